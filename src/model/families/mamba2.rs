//! Mamba-2: alone, alternating with attention layers (Granite 4), or beside attention in every layer (Falcon-H1).

use crate::model::keys::Keys;
use crate::model::layers::Pattern;
use crate::model::roles::Role;
use crate::model::{HeadSpec, RecurrentKind, RopeStyle, Spec};
use crate::{Error, tri};

pub(super) const fn spec<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(keys.hybrid(RopeStyle::Halves));
    Ok(Spec {
        norm_eps: tri!(keys.required("attention.layer_norm_rms_epsilon")),
        global: HeadSpec { rope: None, ..spec.global },
        recurrent: Some(tri!(keys.recurrent(RecurrentKind::Mamba2))),
        recurrent_layers: Pattern::Always,
        ..spec
    })
}

/// Granite 4: the scale factors of Granite 3; rotary positions only if a key enables them.
pub(super) const fn granite<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(keys.hybrid(RopeStyle::Adjacent));
    let rope = match tri!(keys.switch("rope.scaling.finetuned")) {
        Some(false) => None,
        _ => spec.global.rope,
    };
    // In models without experts the converter stores the shared expert as the feed-forward.
    let (experts, shared_experts) = (tri!(keys.experts(true)), tri!(keys.shared_experts(false)));
    Ok(Spec {
        norm_eps: tri!(keys.required("attention.layer_norm_rms_epsilon")),
        global: HeadSpec { rope, ..spec.global },
        embedding_scale: tri!(keys.or("embedding_scale", 1.0)),
        residual_scale: tri!(keys.or("residual_scale", 1.0)),
        logit_scale: 1.0 / tri!(keys.or("logit_scale", 1.0)), // the file has the divisor
        shared_experts: if experts.is_some() { shared_experts } else { None },
        experts,
        recurrent: Some(tri!(keys.recurrent(RecurrentKind::Mamba2))),
        recurrent_layers: keys.layers_without_attention(),
        ..spec
    })
}

/// Falcon-H1: in every layer, Mamba-2 and attention process the same input.
pub(super) const fn falcon<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    Ok(Spec {
        norm_eps: tri!(keys.required("attention.layer_norm_rms_epsilon")),
        recurrent: Some(tri!(keys.recurrent(RecurrentKind::Mamba2))),
        side_by_side: true,
        renamed: &[(Role::FfnNormBare, Role::FfnNorm)],
        ..tri!(keys.hybrid(RopeStyle::Halves))
    })
}
