//! Llama 1 to 3 and models of the same architecture: Mistral, Mixtral, TinyLlama, SmolLM.
//!
//! The converter permutes q and k so that rotary pairs are adjacent. Llama 3.1 and later have frequency divisors in
//! `rope_freqs.weight`. Biases are rare, but some related models have them. Mixtral's feed-forward has experts. Dense
//! ERNIE 4.5 has the same architecture under the name `ernie4_5`.

use crate::model::keys::Keys;
use crate::model::{Need, RopeStyle, Spec};
use crate::{Error, tri};

pub(super) const fn spec<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    edit!(keys.decoder(RopeStyle::Adjacent), spec => others(keys, spec))
}

const fn others<'a>(keys: &mut Keys<'_, 'a>, spec: &mut Spec<'a>) -> Result<(), Error> {
    spec.norm_eps = tri!(keys.required("attention.layer_norm_rms_epsilon"));
    tri!(keys.window_everywhere(spec)); // Mistral 7B of 2023
    spec.qkv_bias = Need::Optional;
    spec.linear_bias = Need::Optional;
    spec.experts = tri!(keys.experts(true));
    Ok(())
}
