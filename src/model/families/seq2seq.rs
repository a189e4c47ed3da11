//! Encoder-decoders in GGUF files written by `arenite convert seq2seq`: Marian, torch's `nn.Transformer`, and the
//! English-Hindi translator. No other program writes these files. The keys describe the blocks:
//! - `norm.kind`: `layer`, `layer_unbiased` or `rms`; `norm.placement`: `pre` (before attention and feed-forward) or
//!   `post` (on the hidden state after each); `norm.final`: whether each stack ends with a norm;
//! - `activation`: `relu`, `silu`, `gelu` or `gelu_tanh`;
//! - `position.kind`: `interleaved` or `halves`, both of sines and cosines;
//! - `attention.decoder_head_count` and `decoder_feed_forward_length`: the decoder's sizes, if they differ from the
//!   encoder's;
//! - `embedding_scale`: a factor on embeddings; `bias`: whether linear layers have biases.

use crate::gguf::equal;
use crate::kernel::Activation;
use crate::model::keys::Keys;
use crate::model::{Gate, HeadSpec, Need, Norm, Placement, Positions, RopeStyle, Spec};
use crate::{Error, tri};

pub(super) const fn spec<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(keys.decoder(RopeStyle::Halves));
    let spec = tri!(keys.target(spec));
    let heads = spec.global;
    let norm = match tri!(one_of(keys, "norm.kind", &["layer", "layer_unbiased", "rms"])) {
        0 => Norm::Layer,
        1 => Norm::Unbiased,
        _ => Norm::Rms,
    };
    let pre = tri!(one_of(keys, "norm.placement", &["pre", "post"])) == 0;
    let activation = match tri!(one_of(keys, "activation", &["relu", "silu", "gelu", "gelu_tanh"])) {
        0 => Activation::Relu,
        1 => Activation::Silu,
        2 => Activation::GeluErf,
        _ => Activation::GeluTanh,
    };
    let halves = tri!(one_of(keys, "position.kind", &["interleaved", "halves"])) == 1;
    let bias = if tri!(flag(keys, "bias")) { Need::Required } else { Need::Absent };
    Ok(Spec {
        global: HeadSpec { rope: None, ..heads },
        positions: Positions::Sinusoidal { halves },
        final_norm: tri!(flag(keys, "norm.final")),
        norm,
        norm_eps: tri!(keys.required("attention.layer_norm_epsilon")),
        placement: Placement { pre_norm: pre, post_norm: false, residual_norm: !pre },
        qkv_bias: bias,
        linear_bias: bias,
        embedding_scale: tri!(keys.required("embedding_scale")),
        output_bias: Need::Optional,
        activation,
        gate: Gate::None,
        ..spec
    })
}

/// Index in `names` of the string that the key holds.
const fn one_of(keys: &mut Keys<'_, '_>, name: &'static str, names: &[&str]) -> Result<usize, Error> {
    let Some(found) = tri!(keys.text(name)) else { return Err(keys.missing(name)) };
    let mut i = 0;
    while i < names.len() {
        if equal(names[i].as_bytes(), found) {
            return Ok(i);
        }
        i += 1;
    }
    Err(keys.wrong(name, "has an unknown value"))
}

const fn flag(keys: &mut Keys<'_, '_>, name: &'static str) -> Result<bool, Error> {
    match tri!(keys.switch(name)) {
        Some(flag) => Ok(flag),
        None => Err(keys.missing(name)),
    }
}
