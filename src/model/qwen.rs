//! Qwen 2 and 2.5 (biases on q, k and v) and Qwen 3 (norms on the heads of q and k instead).

use super::keys::Keys;
use super::{Need, RopeStyle, Spec};
use crate::{Error, tri};

pub(super) const fn qwen2(keys: &Keys<'_, '_>) -> Result<Spec, Error> {
    Ok(Spec {
        norm_eps: tri!(keys.eps("attention.layer_norm_rms_epsilon")),
        qkv_bias: Need::Required,
        ..tri!(keys.decoder(RopeStyle::Halves))
    })
}

pub(super) const fn qwen3(keys: &Keys<'_, '_>) -> Result<Spec, Error> {
    Ok(Spec {
        norm_eps: tri!(keys.eps("attention.layer_norm_rms_epsilon")),
        qk_norm: Need::Required,
        ..tri!(keys.decoder(RopeStyle::Halves))
    })
}
