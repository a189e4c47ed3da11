//! StableLM: layer norms, rotary positions on part of each head, optional biases of q, k and v, and in some models a
//! norm for every head of q and k.

use crate::model::keys::Keys;
use crate::model::{Need, Norm, QkNorm, RopeStyle, Spec};
use crate::{Error, tri};

pub(super) const fn spec<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    // Converters write true if the configuration has no such entry. The norm before the feed-forward decides.
    keys.known("use_parallel_residual");
    Ok(Spec {
        norm: Norm::Layer,
        qkv_bias: Need::Optional,
        norm_eps: tri!(keys.required("attention.layer_norm_epsilon")),
        qk_norm: QkNorm::EachHead,
        ..tri!(keys.decoder(RopeStyle::Halves))
    })
}
