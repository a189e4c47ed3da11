//! Llama 1 to 3 and models of the same architecture: Mistral, Mixtral, TinyLlama, SmolLM.
//!
//! The converter permutes q and k so that rotary pairs are adjacent. Llama 3.1 and later have frequency divisors in
//! `rope_freqs.weight`. Biases are rare, but some related models have them. Mixtral's feed-forward has experts.

use crate::model::keys::Keys;
use crate::model::{Need, RopeStyle, Spec};
use crate::{Error, tri};

/// ERNIE 4.5, dense: the same architecture under another name.
pub(super) const fn ernie<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    Ok(Spec {
        norm_eps: tri!(keys.required("attention.layer_norm_rms_epsilon")),
        ..tri!(keys.decoder(RopeStyle::Adjacent))
    })
}

pub(super) const fn spec<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(keys.decoder(RopeStyle::Adjacent));
    tri!(keys.window_everywhere(&spec)); // Mistral 7B of 2023
    Ok(Spec {
        norm_eps: tri!(keys.required("attention.layer_norm_rms_epsilon")),
        qkv_bias: Need::Optional,
        linear_bias: Need::Optional,
        experts: tri!(keys.experts(true)),
        ..spec
    })
}
