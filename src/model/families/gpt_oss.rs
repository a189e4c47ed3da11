//! gpt-oss: experts with biases and a clamped variant of SwiGLU, a sliding window in every other layer, and attention
//! sinks (a learned score without a value in every head's softmax).

use crate::kernel::Activation;
use crate::model::keys::Keys;
use crate::model::layers::{HeadSpec, Pattern, PerLayer};
use crate::model::roles::Role;
use crate::model::rope::{Rope, Scaling};
use crate::model::{Experts, Need, RopeStyle, Spec};
use crate::{Error, tri};

pub(super) const fn spec<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(keys.decoder(RopeStyle::Halves));
    let rounded = tri!(keys.switch("rope.scaling.yarn_truncate"));
    let heads = HeadSpec { rope: ramp(spec.global.rope, rounded), ..spec.global };
    if heads.window.is_none() {
        return Err(keys.missing("attention.sliding_window"));
    }
    let Some(experts) = tri!(keys.experts(true)) else { return Err(keys.missing("expert_count")) };
    let local_layers = match tri!(keys.local_layers(spec.layers)) {
        Some(pattern) => pattern,
        None => Pattern::AllBut(2),
    };
    Ok(Spec {
        norm_eps: tri!(keys.required("attention.layer_norm_rms_epsilon")),
        global: HeadSpec { window: None, ..heads },
        local: heads,
        local_layers,
        qkv_bias: Need::Required,
        linear_bias: Need::Required,
        ffn: PerLayer::All(tri!(keys.size("expert_feed_forward_length", Keys::MAX_WIDTH))),
        experts: Some(Experts { biases: true, ..experts }),
        activation: Activation::ClampedSwiglu,
        attention_sinks: Need::Required,
        renamed: &[(Role::PostAttentionNorm, Role::FfnNorm)],
        ..spec
    })
}

/// Selects the variant of YaRN's ramp. The published models, trained for 4096 positions, do not round its ends
/// (`truncate: false`), but their files have no key for it: only `arenite convert hf` writes one.
const fn ramp(rope: Option<Rope>, rounded: Option<bool>) -> Option<Rope> {
    let Some(mut rope) = rope else { return None };
    if let Scaling::Yarn { original, whole_pairs, .. } = &mut rope.scaling {
        *whole_pairs = match rounded {
            Some(rounded) => rounded,
            None => *original != 4096.0,
        };
    }
    Some(rope)
}
