//! Llama 1 to 3 and what is built like it: Mistral, Mixtral, TinyLlama, SmolLM.
//!
//! The converter permutes q and k, so that rotary pairs are adjacent. Llama 3.1 and later carry
//! divisors of the frequencies in `rope_freqs.weight`. Biases are rare, but some relatives have
//! them. Mixtral's feed-forward is experts.

use crate::model::keys::Keys;
use crate::model::{Need, RopeStyle, Spec};
use crate::{Error, tri};

/// ERNIE 4.5, dense: Llama under another name.
pub(super) const fn ernie<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    Ok(Spec {
        norm_eps: tri!(keys.required("attention.layer_norm_rms_epsilon")),
        ..tri!(keys.decoder(RopeStyle::Adjacent))
    })
}

pub(super) const fn spec<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    Ok(Spec {
        norm_eps: tri!(keys.required("attention.layer_norm_rms_epsilon")),
        qkv_bias: Need::Optional,
        linear_bias: Need::Optional,
        experts: tri!(keys.experts(true)),
        ..tri!(keys.decoder(RopeStyle::Adjacent))
    })
}
