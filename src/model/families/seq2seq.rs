//! Encoder-decoders in GGUF files written by `arenite convert seq2seq`: Marian, torch's `nn.Transformer`, and the
//! English-Hindi translator. No other program writes these files. The keys that describe the layers are:
//! - `norm.kind`: `layer`, `layer_unbiased` or `rms`; `norm.placement`: `pre` (before attention and feed-forward) or
//!   `post` (on the hidden state after each); `norm.final`: whether each stack ends with a norm;
//! - `activation`: `relu`, `silu`, `gelu` or `gelu_tanh`;
//! - `position.kind`: the order of sines and cosines, `interleaved` or `halves`;
//! - `attention.decoder_head_count` and `decoder_feed_forward_length`: the decoder's sizes, if they differ from the
//!   encoder's;
//! - `embedding_scale`: a factor on embeddings; `bias`: whether linear layers have biases.

use crate::gguf::equal;
use crate::kernel::Activation;
use crate::model::keys::Keys;
use crate::model::{Gate, Need, Norm, Placement, Positions, RopeStyle, Spec};
use crate::{Error, tri};

const PLACEMENTS: [(&str, Placement); 2] = [("pre", Placement::INPUTS), ("post", Placement::RESIDUALS)];
const ACTIVATIONS: [(&str, Activation); 4] = [
    ("relu", Activation::Relu),
    ("silu", Activation::Silu),
    ("gelu", Activation::GeluErf),
    ("gelu_tanh", Activation::GeluTanh),
];

pub(super) const fn spec<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(keys.decoder(RopeStyle::Halves));
    let spec = tri!(keys.target(spec));
    let norms = [("layer", Norm::Layer), ("layer_unbiased", Norm::Unbiased), ("rms", Norm::Rms)];
    let bias = if tri!(flag(keys, "bias")) { Need::Required } else { Need::Absent };
    Ok(Spec {
        global: spec.global.unrotated(),
        positions: Positions::Sinusoidal {
            halves: tri!(one_of(keys, "position.kind", &[("interleaved", false), ("halves", true)])),
        },
        final_norm: tri!(flag(keys, "norm.final")),
        norm: tri!(one_of(keys, "norm.kind", &norms)),
        norm_eps: tri!(keys.required("attention.layer_norm_epsilon")),
        placement: tri!(one_of(keys, "norm.placement", &PLACEMENTS)),
        qkv_bias: bias,
        linear_bias: bias,
        embedding_scale: tri!(keys.required("embedding_scale")),
        output_bias: Need::Optional,
        activation: tri!(one_of(keys, "activation", &ACTIVATIONS)),
        gate: Gate::None,
        ..spec
    })
}

/// Reads the string under `name` and returns the value that `values` pairs with this string.
const fn one_of<T: Copy>(keys: &mut Keys<'_, '_>, name: &'static str, values: &[(&str, T)]) -> Result<T, Error> {
    let Some(found) = tri!(keys.text(name)) else { return Err(keys.missing(name)) };
    let mut rest = values;
    while let [(text, value), after @ ..] = rest {
        if equal(text.as_bytes(), found) {
            return Ok(*value);
        }
        rest = after;
    }
    Err(keys.wrong(name, "has an unknown value"))
}

const fn flag(keys: &mut Keys<'_, '_>, name: &'static str) -> Result<bool, Error> {
    match tri!(keys.switch(name)) {
        Some(flag) => Ok(flag),
        None => Err(keys.missing(name)),
    }
}
