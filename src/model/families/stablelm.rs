//! StableLM: layer norms, rotary positions on part of each head, optional biases of q, k and v, and in some models a
//! norm for every head of q and k.

use crate::model::keys::Keys;
use crate::model::{Need, Norm, QkNorm, RopeStyle, Spec};
use crate::{Error, tri};

pub(super) const fn spec<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    if let Some(true) = tri!(keys.switch("use_parallel_residual")) {
        return Err(keys.wrong("use_parallel_residual", "is true: not supported"));
    }
    Ok(Spec {
        norm: Norm::Layer,
        norm_eps: tri!(keys.required("attention.layer_norm_epsilon")),
        qkv_bias: Need::Optional,
        qk_norm: QkNorm::EachHead,
        ..tri!(keys.decoder(RopeStyle::Halves))
    })
}
