//! Qwen 3.5: gated delta nets, and in every fourth layer attention with gated heads.

use crate::model::keys::Keys;
use crate::model::layers::Pattern;
use crate::model::roles::Role;
use crate::model::spec::Special;
use crate::model::{MAX_LAYERS, PooledActivation, PooledHead, QkNorm, Recurrent, RecurrentKind, RopeStyle, Spec};
use crate::{Error, tri};

pub(super) const fn spec<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let all = tri!(keys.decoder(RopeStyle::Halves));
    let spec = tri!(keys.without_next(all));
    let interval = match tri!(keys.optional_size("full_attention_interval", MAX_LAYERS)) {
        Some(interval) => interval,
        None => 4, // llama.cpp's default
    };
    // The sections of the rotation distinguish the axes of images. In text, all sections use the token's position.
    keys.known("rope.dimension_sections");
    let recurrent_layers = match tri!(keys.layers_where("attention.recurrent_layers", all.layers)) {
        Some(pattern) => pattern,
        None => Pattern::AllBut(interval),
    };
    const RENAMED: &[(Role, Role)] = &[(Role::PostAttentionNorm, Role::FfnNorm)];
    // A layer on the states of tokens, for decisions (kev).
    const WITH_HEAD: &[(Role, Role)] = &[
        (Role::PostAttentionNorm, Role::FfnNorm),
        (Role::ClsOutput, Role::Dense3),
        (Role::ClsOutputBias, Role::Dense3Bias),
    ];
    let out = keys.rows("cls.output.weight");
    if out > 0 {
        keys.known("embedding_length_out");
    }
    let plain = PooledActivation::None;
    let head = PooledHead { inner: 0, out, activation: plain, last: plain, scores: false };
    Ok(Spec {
        pooled_head: if out > 0 { Some(head) } else { None },
        norm_eps: tri!(keys.required("attention.layer_norm_rms_epsilon")),
        qk_norm: QkNorm::Head,
        recurrent: Some(tri!(keys.recurrent(RecurrentKind::DeltaNet))),
        recurrent_layers,
        gated_query: true,
        renamed: if out > 0 { WITH_HEAD } else { RENAMED },
        ..spec
    })
}

/// Qwen 3.5 with a head that decides about several questions together (clef).
pub(super) const fn clef<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    keys.known("decision.routing_block_count");
    keys.known("decision.block_count");
    keys.known("decision.head_count");
    Ok(Spec { special: Special::JointHead, ..tri!(spec(keys)) })
}

/// Qwen 3.5 with experts.
pub(super) const fn experts<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let (experts, shared_experts) = (tri!(keys.experts(true)), tri!(keys.shared_experts(true)));
    let spec = tri!(spec(keys));
    Ok(Spec { experts, shared_experts, expert_layers: keys.expert_layers(), ..spec })
}

/// Qwen 3 Next, where the heads of a group are adjacent.
pub(super) const fn next<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(experts(keys));
    let recurrent = match spec.recurrent {
        Some(mixer) => Some(Recurrent { in_turns: false, ..mixer }),
        None => None,
    };
    Ok(Spec { recurrent, ..spec })
}
