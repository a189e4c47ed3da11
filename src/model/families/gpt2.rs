//! GPT-2: layer norms, biases everywhere, learned positions, q, k and v in one matrix, and a feed-forward without a
//! gate that uses the tanh form of GELU.

use crate::kernel::Activation;
use crate::model::keys::Keys;
use crate::model::{Gate, Need, Norm, Positions, RopeStyle, Spec};
use crate::{Error, tri};

pub(super) const fn spec<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(keys.decoder(RopeStyle::Halves));
    let heads = spec.global;
    Ok(Spec {
        global: heads.unrotated(),
        positions: Positions::Learned,
        norm: Norm::Layer,
        norm_eps: tri!(keys.required("attention.layer_norm_epsilon")),
        fused_qkv: true,
        qkv_bias: Need::Required,
        linear_bias: Need::Required,
        activation: Activation::GeluTanh,
        gate: Gate::None,
        ..spec
    })
}
