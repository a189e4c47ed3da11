//! BERT: an encoder without a decoder, with learned positions, layer norms on the hidden state after attention, after
//! feed-forward and after the embedding, and the exact GELU. The result is a pooled vector of the text's hidden states.

use crate::kernel::Activation;
use crate::model::keys::Keys;
use crate::model::{Gate, Need, Norm, Placement, PooledActivation, Positions, Spec};
use crate::{Error, tri};

pub(super) const fn spec<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(keys.ranked_encoder(PooledActivation::Tanh));
    Ok(Spec {
        global: spec.global.unrotated(),
        positions: Positions::Learned,
        token_types: keys.rows("token_types.weight"),
        embedding_norm: Need::Required,
        final_norm: false,
        norm: Norm::Layer,
        norm_eps: tri!(keys.required("attention.layer_norm_epsilon")),
        placement: Placement::RESIDUALS,
        qkv_bias: Need::Required,
        linear_bias: Need::Required,
        activation: Activation::GeluErf,
        gate: Gate::None,
        ..spec
    })
}
