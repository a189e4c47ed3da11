//! GPT-2: layer norms, biases everywhere, learned positions, q, k and v in one matrix, and a plain
//! feed-forward with the tanh form of GELU.

use super::keys::Keys;
use super::{Need, Norm, RopeStyle, Spec};
use crate::kernel::Activation;
use crate::{Error, tri};

pub(super) const fn spec(keys: &Keys<'_, '_>) -> Result<Spec, Error> {
    Ok(Spec {
        norm: Norm::Layer,
        norm_eps: tri!(keys.eps("attention.layer_norm_epsilon")),
        rope: None,
        fused_qkv: true,
        qkv_bias: Need::Required,
        linear_bias: Need::Required,
        activation: Activation::GeluTanh,
        gated: false,
        ..tri!(keys.decoder(RopeStyle::Halves))
    })
}
