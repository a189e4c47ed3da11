//! gpt-oss: experts with biases and a clamped variant of SwiGLU, a sliding window in every other layer, and attention
//! sinks (a learned score without a value in every head's softmax).

use crate::kernel::Activation;
use crate::model::keys::Keys;
use crate::model::layers::Pattern;
use crate::model::roles::Role;
use crate::model::rope::{Rope, Scaling};
use crate::model::{Experts, Need, RopeStyle, Spec};
use crate::{Error, tri};

pub(super) const fn spec<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let mut spec = tri!(keys.decoder(RopeStyle::Halves));
    spec.global.rope = ramp(spec.global.rope, tri!(keys.switch("rope.scaling.yarn_truncate")));
    spec.local = spec.global;
    let spec = tri!(keys.always_windowed(spec, Pattern::AllBut(2)));
    let Some(experts) = tri!(keys.experts(true)) else { return Err(keys.missing("expert_count")) };
    Ok(Spec {
        norm_eps: tri!(keys.required("attention.layer_norm_rms_epsilon")),
        qkv_bias: Need::Required,
        linear_bias: Need::Required,
        experts: Some(Experts { biases: true, ..experts }),
        activation: Activation::ClampedSwiglu,
        attention_sinks: Need::Required,
        renamed: &[(Role::PostAttentionNorm, Role::FfnNorm)],
        ..spec
    })
}

/// Sets whether YaRN's ramp begins and ends at whole pairs. `rounded` is the file's value for this, which only `arenite
/// convert hf` writes. Without this value, a model that was trained for 4096 positions is one of the published models,
/// whose ramp does not end at whole pairs (`truncate: false`).
const fn ramp(rope: Option<Rope>, rounded: Option<bool>) -> Option<Rope> {
    let Some(mut rope) = rope else { return None };
    if let Scaling::Yarn { original, whole_pairs, .. } = &mut rope.scaling {
        *whole_pairs = !matches!((rounded, *original), (Some(false), _) | (None, 4096.0));
    }
    Some(rope)
}
