//! Speech: [Whisper](https://arxiv.org/abs/2212.04356) and [Moonshine](https://arxiv.org/abs/2410.15608), encoders of
//! sounds with decoders of text. `arenite convert hf` writes the files. They have the same keys and tensors as files of
//! text encoder-decoders, and in addition:
//! - `encoder_context_length`: number of encoder positions; Whisper computes all of them for every sound;
//! - `mel_bins`: number of features of a frame;
//! - the keys of [`sound::Rules`](crate::sound::Rules), and special tokens: `languages` and `language_token_ids`,
//!   `transcribe_token_id`, `translate_token_id`, `previous_token_id`, `no_speech_token_id`;
//! - `default_language` and `default_task`, for a request that names no language or no task.
//!
//! The front end's tensors are `enc.conv1.weight` (an output's weights for the first tap and all inputs, then for the
//! second tap, ...), `enc.conv1.bias`, `enc.conv1_norm.weight` and so on.

use crate::kernel::Activation;
use crate::model::keys::Keys;
use crate::model::{Front, Gate, Need, Norm, Positions, RopeStyle, SoundSizes, Spec};
use crate::{Error, tri};

/// Keys that describe tokens; the forward pass does not need them.
const TOKENS: [&str; 12] = [
    "suppress_tokens",
    "begin_suppress_tokens",
    "no_timestamps_token_id",
    "max_initial_timestamp_index",
    "languages",
    "language_token_ids",
    "transcribe_token_id",
    "translate_token_id",
    "previous_token_id",
    "no_speech_token_id",
    "default_language",
    "default_task",
];

/// Whisper: layer norms before attention and feed-forward, learned positions, and biases except for keys.
pub(super) const fn whisper<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let bins = tri!(keys.size("mel_bins", 256));
    let spec = tri!(heard(keys, RopeStyle::Halves, Front::LogMel { bins }));
    Ok(Spec {
        global: spec.global.unrotated(),
        positions: Positions::Learned,
        activation: Activation::GeluErf,
        gate: Gate::None,
        qkv_bias: Need::Optional,
        linear_bias: Need::Required,
        ..spec
    })
}

/// Moonshine: rotary positions in both stacks, no biases in attention and norms, and a gate only in the feed-forwards
/// of the decoder.
pub(super) const fn moonshine<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(heard(keys, RopeStyle::Adjacent, Front::Samples));
    Ok(Spec { norm_bias: false, linear_bias: Need::Optional, ..spec })
}

/// Reads the settings that both families share.
const fn heard<'a>(keys: &mut Keys<'_, 'a>, style: RopeStyle, front: Front) -> Result<Spec<'a>, Error> {
    let spec = tri!(keys.decoder(style));
    let mut spec = tri!(keys.target(spec));
    let positions = tri!(keys.size("encoder_context_length", i32::MAX as usize));
    let sound = SoundSizes { front, positions, feed_forward: (Gate::None, Activation::GeluErf) };
    spec.stack = spec.stack.hears(sound);
    spec.norm = Norm::Layer;
    spec.norm_eps = tri!(keys.required("attention.layer_norm_epsilon"));
    let mut i = 0;
    while i < TOKENS.len() {
        keys.known(TOKENS[i]);
        i += 1;
    }
    Ok(spec)
}
