//! Phi 3: q, k and v in one matrix, gate and up in a second matrix. Long-context models have two lists of factors that
//! divide the rotary frequencies: one list for short contexts, the other for long contexts.

use crate::model::keys::Keys;
use crate::model::layers::HeadSpec;
use crate::model::rope::{Rope, Scaling};
use crate::model::{Gate, RopeStyle, Spec};
use crate::{Error, tri};

pub(super) const fn spec<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(keys.decoder(RopeStyle::Halves));
    let heads = spec.global;
    tri!(keys.window_everywhere(&spec));
    let rope = tri!(long(keys, &spec));
    Ok(Spec {
        norm_eps: tri!(keys.required("attention.layer_norm_rms_epsilon")),
        global: HeadSpec { rope, ..heads },
        fused_qkv: true,
        gate: Gate::Fused,
        ..spec
    })
}

/// Returns the spec's rotary positions with LongRoPE scaling, unless the file has a different scaling.
pub(super) const fn long(keys: &mut Keys<'_, '_>, spec: &Spec<'_>) -> Result<Option<Rope>, Error> {
    let original = match tri!(keys.optional_size("rope.scaling.original_context_length", i32::MAX as usize)) {
        Some(original) => original,
        None => spec.context, // files of spring 2024 lack the key
    };
    let attn_factor = tri!(keys.or("rope.scaling.attn_factor", 1.0));
    Ok(match spec.global.rope {
        Some(rope) if matches!(rope.scaling, Scaling::None) => {
            Some(Rope { scaling: Scaling::Long { original, attn_factor }, ..rope })
        }
        other => other,
    })
}
