//! Mamba-1, by itself (also Falcon Mamba), and in turns with attention (Jamba).

use crate::model::keys::Keys;
use crate::model::layers::Pattern;
use crate::model::{HeadSpec, Recurrent, RopeStyle, Spec, StepNorms};
use crate::{Error, tri};

pub(super) const fn spec<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(keys.hybrid(RopeStyle::Halves));
    Ok(Spec {
        norm_eps: tri!(keys.required("attention.layer_norm_rms_epsilon")),
        global: HeadSpec { rope: None, ..spec.global },
        recurrent: Some(tri!(keys.selective())),
        recurrent_layers: Pattern::Always,
        ..spec
    })
}

/// Jamba: attention has no positions; the tensors show which layers have experts.
pub(super) const fn jamba<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(spec(keys));
    let recurrent = match spec.recurrent {
        Some(mixer) => Some(Recurrent { step_norms: StepNorms::Weighted, ..mixer }),
        None => None,
    };
    Ok(Spec {
        recurrent,
        recurrent_layers: keys.layers_without_attention(),
        experts: tri!(keys.experts(false)),
        expert_layers: keys.layers_with(".ffn_gate_inp.weight"),
        ..spec
    })
}
