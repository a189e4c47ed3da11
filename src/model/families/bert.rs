//! BERT: an encoder without a decoder, with learned positions, layer norms on the hidden state after attention,
//! after feed-forward and after the embedding, and the exact GELU. Its result is the hidden states of a text, pooled.

use crate::kernel::Activation;
use crate::model::keys::Keys;
use crate::model::{Gate, HeadSpec, Need, Norm, Placement, PooledActivation, Positions, RopeStyle, Spec};
use crate::{Error, tri};

pub(super) const fn spec<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let decoder = tri!(keys.decoder(RopeStyle::Halves));
    let encoder = tri!(keys.encoder(decoder));
    let spec = keys.ranking(PooledActivation::Tanh, encoder);
    let heads = spec.global;
    Ok(Spec {
        global: HeadSpec { rope: None, ..heads },
        positions: Positions::Learned,
        token_types: keys.rows("token_types.weight"),
        embedding_norm: Need::Required,
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
