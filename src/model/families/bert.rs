//! BERT: an encoder by itself, with learned positions, layer norms behind attention and feed-forward and
//! one behind the embedding, and the exact GELU. The states of a text, pooled, are what it is for.

use crate::kernel::Activation;
use crate::model::keys::Keys;
use crate::model::{Gate, HeadSpec, Need, Norm, Placement, Pooling, Positions, RopeStyle, Spec, Stack};
use crate::{Error, tri};

pub(super) const fn spec<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(keys.decoder(RopeStyle::Halves));
    let heads = spec.global;
    if let Some(true) = tri!(keys.switch("attention.causal")) {
        return Err(keys.wrong("attention.causal", "is true: not supported for this architecture"));
    }
    let pooling = match tri!(keys.nonzero("pooling_type", 4)) {
        None | Some(1) => Pooling::Mean,
        Some(2) => Pooling::First,
        Some(3) => Pooling::Last,
        Some(_) => return Err(keys.wrong("pooling_type", "is not the mean, the first or the last: not supported")),
    };
    Ok(Spec {
        stack: Stack::Encoder { pooling },
        global: HeadSpec { rope: None, ..heads },
        positions: Positions::Learned,
        token_types: keys.rows("token_types.weight"),
        embedding_norm: true,
        final_norm: false,
        norm: Norm::Layer,
        norm_eps: tri!(keys.required("attention.layer_norm_epsilon")),
        placement: Placement { pre_norm: false, post_norm: false, residual_norm: true },
        qkv_bias: Need::Required,
        linear_bias: Need::Required,
        activation: Activation::GeluErf,
        gate: Gate::None,
        ..spec
    })
}
