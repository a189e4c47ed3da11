//! StableLM: layer norms, rotary positions on part of each head, optional biases of q, k and v, and in some models a
//! norm for every head of q and k.

use crate::model::keys::Keys;
use crate::model::{Need, Norm, QkNorm, Residual, RopeStyle, Spec};
use crate::{Error, tri};

pub(super) const fn spec<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    // The value of this key is not read, because converters write true if the configuration has no such entry. Instead,
    // layers are parallel if there is no norm before the feed-forward.
    keys.known("use_parallel_residual");
    let residual = if keys.has("blk.0.ffn_norm.weight") || keys.has("blk.0.ffn_norm.bias") {
        Residual::Serial
    } else {
        Residual::Parallel { one_norm: true }
    };
    Ok(Spec {
        norm: Norm::Layer,
        qkv_bias: Need::Optional,
        norm_eps: tri!(keys.required("attention.layer_norm_epsilon")),
        qk_norm: QkNorm::EachHead,
        residual,
        ..tri!(keys.decoder(RopeStyle::Halves))
    })
}
