//! Mamba-1: models that consist of it (Mamba, Falcon Mamba), and models in which it alternates with attention (Jamba,
//! PLaMo 2).

use crate::model::keys::Keys;
use crate::model::layers::Pattern;
use crate::model::roles::Role;
use crate::model::{Gate, Placement, QkNorm, Recurrent, RopeStyle, Spec, StepNorms};
use crate::{Error, tri};

pub(super) const fn spec<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(keys.hybrid(RopeStyle::Halves));
    Ok(Spec {
        norm_eps: tri!(keys.required("attention.layer_norm_rms_epsilon")),
        global: spec.global.unrotated(),
        recurrent: Some(tri!(keys.selective())),
        recurrent_layers: Pattern::Always,
        ..spec
    })
}

/// Jamba: attention has no positions; the tensors in the file show which layers have experts.
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
        expert_layers: keys.expert_layers(),
        ..spec
    })
}

/// PLaMo 2: channels of a head share a step; norms after mixer and feed-forward; normed heads of q and k.
pub(super) const fn plamo2<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(keys.hybrid(RopeStyle::Halves));
    let mixer = tri!(keys.selective());
    tri!(keys.nonzero("ssm.group_count", 1));
    // Files store the number of heads as `ssm.time_step_rank`; the rank itself follows from the width.
    let shared = match mixer.width.checked_div(mixer.ranks[0]) {
        Some(shared) if shared > 1 && mixer.width == shared * mixer.ranks[0] => shared,
        _ => return Err(keys.wrong("ssm.time_step_rank", "does not divide ssm.inner_size")),
    };
    // llama.cpp's names of these norms have no suffix.
    const BARE: &[(Role, Role)] = &[
        (Role::PostAttentionNormBare, Role::PostAttentionNorm),
        (Role::PostFfwNormBare, Role::PostFfwNorm),
        (Role::SsmDtNormBare, Role::SsmDtNorm),
        (Role::SsmBNormBare, Role::SsmBNorm),
        (Role::SsmCNormBare, Role::SsmCNorm),
    ];
    let rank = if spec.dim / 16 > 64 { spec.dim / 16 } else { 64 };
    Ok(Spec {
        norm_eps: tri!(keys.required("attention.layer_norm_rms_epsilon")),
        placement: Placement::BOTH,
        fused_qkv: true,
        qk_norm: QkNorm::EachHead,
        gate: Gate::Fused,
        renamed: if keys.has("blk.0.post_attention_norm") { BARE } else { &[] },
        recurrent: Some(Recurrent { shared, ranks: [rank, 0, 0, 0], step_norms: StepNorms::Weighted, ..mixer }),
        recurrent_layers: keys.layers_without_attention(),
        ..spec
    })
}
