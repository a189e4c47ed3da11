//! Llama 1 to 3 and what is built like it: Mistral, TinyLlama, SmolLM.
//!
//! The converter permutes q and k, so that rotary pairs are adjacent. Llama 3.1 and later carry
//! divisors of the frequencies in `rope_freqs.weight`. Biases are rare, but some relatives have
//! them.

use super::keys::Keys;
use super::{Need, RopeStyle, Spec};
use crate::{Error, tri};

pub(super) const fn spec(keys: &Keys<'_, '_>) -> Result<Spec, Error> {
    Ok(Spec {
        norm_eps: tri!(keys.eps("attention.layer_norm_rms_epsilon")),
        qkv_bias: Need::Optional,
        linear_bias: Need::Optional,
        ..tri!(keys.decoder(RopeStyle::Adjacent))
    })
}
