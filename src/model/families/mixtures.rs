//! Decoders with experts, otherwise like Llama. They differ in the router, the shared expert, and the norms.

use super::llama_like::{adjacent, halves};
use crate::model::keys::Keys;
use crate::model::layers::{HeadSpec, Pattern};
use crate::model::roles::Role;
use crate::model::{Placement, QkNorm, Router, Scores, SharedExperts, Spec};
use crate::{Error, tri};

/// OLMoE: norms of all of q and all of k; weights that do not sum to 1.
pub(super) const fn olmoe<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(halves(keys));
    Ok(Spec { qk_norm: QkNorm::Whole, ..tri!(keys.mixture(spec, Scores::Softmax, false)) })
}

/// Qwen 1.5 and 2 with experts: a shared expert with a gate.
pub(super) const fn qwen2moe<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(halves(keys));
    let spec = tri!(keys.mixture(spec, Scores::Softmax, false));
    let shared_experts = match spec.shared_experts {
        Some(shared) => Some(SharedExperts { gated: true, ..shared }),
        None => Some(SharedExperts { width: spec.ffn.get(0), gated: true }),
    };
    Ok(Spec { shared_experts, ..spec })
}

/// ERNIE 4.5 with experts: a bias on the choice of a softmax.
pub(super) const fn ernie<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(adjacent(keys));
    let spec = tri!(keys.mixture(spec, Scores::Softmax, true));
    let step = tri!(keys.expert_step("interleave_moe_layer_step"));
    // The first layer from `first` on whose number, counted from 1, is a multiple of the step.
    let expert_layers = match spec.expert_layers {
        Pattern::Steps { first, .. } => Pattern::Steps { first: (first + step) / step * step - 1, step },
        _ => Pattern::Every(step),
    };
    let router = match spec.router {
        Router::Softmax => Router::Scored { scores: Scores::Softmax, scale: 1.0, groups: 1, used_groups: 1 },
        router => router,
    };
    Ok(Spec { expert_layers, router, ..spec })
}

/// DeepSeek 1 and Ling: a softmax that is divided by its sum only if the file says so.
pub(super) const fn deepseek<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(adjacent(keys));
    keys.mixture(spec, Scores::Softmax, false)
}

/// dots.llm1: norms of the heads of q and k, a router of sigmoids.
pub(super) const fn dots1<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(halves(keys));
    Ok(Spec { qk_norm: QkNorm::Head, ..tri!(keys.mixture(spec, Scores::Sigmoid, false)) })
}

/// GLM 4.5 to 4.7: norms of the heads of q and k in the larger models.
pub(super) const fn glm4moe<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(halves(keys));
    let qk_norm = if keys.has("blk.0.attn_q_norm.weight") { QkNorm::Head } else { QkNorm::None };
    Ok(Spec {
        qk_norm,
        renamed: &[(Role::PostAttentionNorm, Role::FfnNorm)],
        ..tri!(keys.mixture(spec, Scores::Sigmoid, true))
    })
}

/// Hunyuan with experts: norms of the heads of q and k, after rope.
pub(super) const fn hunyuan<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(halves(keys));
    let spec = tri!(keys.mixture(spec, Scores::Softmax, true));
    Ok(Spec { qk_norm: QkNorm::Head, qk_norm_after_rope: true, ..spec })
}

/// MiniMax M2: norms of all of q and all of k, a router of sigmoids.
pub(super) const fn minimax_m2<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(halves(keys));
    Ok(Spec { qk_norm: QkNorm::Whole, ..tri!(keys.mixture(spec, Scores::Sigmoid, true)) })
}

/// Arcee's AFMoE (Trinity): gates of the heads' output, norms before and after; every fourth layer is global, without
/// rotary positions.
pub(super) const fn afmoe<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(halves(keys));
    let heads = spec.global;
    let local_layers = match tri!(keys.local_layers(spec.layers)) {
        Some(pattern) => pattern,
        None => Pattern::AllBut(4),
    };
    Ok(Spec {
        global: HeadSpec { rope: None, window: None, ..heads },
        local: heads,
        local_layers,
        embedding_scale: super::gemma::root(spec.dim),
        placement: Placement { pre_norm: true, post_norm: true, residual_norm: false },
        qk_norm: QkNorm::Head,
        heads_gated: true,
        ..tri!(keys.mixture(spec, Scores::Sigmoid, true))
    })
}
