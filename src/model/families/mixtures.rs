//! Decoders with experts, otherwise like Llama. The architectures differ from each other in the router, the shared
//! expert, and the norms.

use super::llama_like::{adjacent, halves};
use super::phi3;
use crate::kernel::Activation;
use crate::model::keys::Keys;
use crate::model::layers::{HeadSpec, Pattern, PerLayer};
use crate::model::mixture::SharedWidth;
use crate::model::roles::Role;
use crate::model::spec::Special;
use crate::model::{
    Experts, GroupExperts, HeadGate, Placement, QkNorm, RopeStyle, Router, Scores, SharedExperts, Spec, Temperature,
};
use crate::{Error, tri};

/// OLMoE: one norm over all heads of q and one over all heads of k; the weights of a token's experts do not sum to 1.
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
        None => Some(SharedExperts { gated: true, ..SharedExperts::new(spec.ffn.get(0)) }),
    };
    Ok(Spec { shared_experts, ..spec })
}

/// ERNIE 4.5 with experts: a softmax router with a bias that only affects the choice.
pub(super) const fn ernie<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(adjacent(keys));
    let spec = tri!(keys.mixture(spec, Scores::Softmax, true));
    let router = match spec.router {
        Router::Softmax => Router::Scored { scores: Scores::Softmax, scale: 1.0, groups: 1, used_groups: 1 },
        router => router,
    };
    Ok(Spec { router, ..spec })
}

/// DeepSeek 1 and Ling: a softmax router. The weights of experts are divided by their sum only if a key says so.
pub(super) const fn deepseek<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(adjacent(keys));
    keys.mixture(spec, Scores::Softmax, false)
}

/// DeepSeek OCR without images.
pub(super) const fn deepseek_ocr<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(halves(keys));
    keys.mixture(spec, Scores::Softmax, false)
}

/// dots.llm1: norms of the heads of q and k, a sigmoid router.
pub(super) const fn dots1<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(halves(keys));
    Ok(Spec { qk_norm: QkNorm::Head, ..tri!(keys.mixture(spec, Scores::Sigmoid, false)) })
}

/// Hunyuan 3: like dots.llm1, but files have a different name for the router's bias.
pub(super) const fn hy_v3<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(dots1(keys));
    let renamed = &[(Role::ExpProbsBare, Role::ExpProbsBias)];
    Ok(Spec { renamed, ..spec })
}

/// Ling 2: norms of the heads of q and k, groups of experts.
pub(super) const fn bailing2<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(halves(keys));
    let spec = tri!(keys.mixture_with(spec, Scores::Sigmoid, false, SharedWidth::KeyTimesCount));
    Ok(Spec { qk_norm: QkNorm::Head, ..spec })
}

/// EXAONE 4 with experts: rotary positions only in layers with a window.
pub(super) const fn exaone<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let all = tri!(dots1(keys));
    let spec = tri!(keys.always_windowed(all, Pattern::AllBut(4)));
    Ok(Spec { global: spec.global.unrotated(), ..spec })
}

/// Mellum 2: Qwen 3 with experts, and local layers whose rotary frequencies are not scaled.
pub(super) const fn mellum<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(halves(keys));
    let spec = tri!(keys.mixture(spec, Scores::Softmax, true));
    let spec = tri!(keys.windowed(spec, Pattern::AllBut(4)));
    Ok(Spec { local: spec.local.unscaled(), qk_norm: QkNorm::Head, ..spec })
}

/// DBRX: layer norms without biases, clamped queries, keys and values.
pub(super) const fn dbrx<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(keys.layer_norm_decoder(RopeStyle::Halves));
    Ok(Spec {
        norm_bias: false,
        fused_qkv: true,
        qkv_clamp: tri!(keys.positive("attention.clamp_kqv")),
        renamed: &[(Role::AttnOutputNorm, Role::FfnNorm)],
        ..tri!(keys.mixture(spec, Scores::Softmax, true))
    })
}

/// Grove MoE: Qwen 3 with experts, and a shared expert for each group of experts.
pub(super) const fn grovemoe<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(halves(keys));
    let size = tri!(keys.size("experts_per_group", 512));
    let width = match tri!(keys.nonzero("expert_chunk_feed_forward_length", Keys::MAX_WIDTH)) {
        Some(width) => width,
        None => spec.global.dim,
    };
    let scale = tri!(keys.required("expert_group_scale"));
    let spec = tri!(keys.mixture(spec, Scores::Softmax, true));
    match spec.experts {
        Some(experts) if experts.count.is_multiple_of(size) => {}
        _ => return Err(keys.wrong("experts_per_group", "does not divide expert_count")),
    }
    Ok(Spec { qk_norm: QkNorm::Head, special: Special::GroupExperts(GroupExperts { size, width, scale }), ..spec })
}

/// Arctic: a dense feed-forward as wide as the hidden state, and experts that read the layer's input.
pub(super) const fn arctic<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(adjacent(keys));
    let PerLayer::All(width) = spec.ffn else {
        return Err(keys.wrong("feed_forward_length", "must be the same for all layers"));
    };
    let spec = tri!(keys.mixture(spec, Scores::Softmax, true));
    let experts = match spec.experts {
        Some(experts) => Some(Experts { width: Some(width), ..experts }),
        None => None,
    };
    Ok(Spec { experts, ffn: PerLayer::All(spec.dim), special: Special::ExpertsOfInput, shared_experts: None, ..spec })
}

/// GLM 4.5 to 4.7: norms of the heads of q and k in the larger models.
pub(super) const fn glm4moe<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(halves(keys));
    let qk_norm = if keys.has_in_layers("attn_q_norm.weight") { QkNorm::Head } else { QkNorm::None };
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

/// MiniMax M2: one norm over all heads of q, one over all heads of k, and a sigmoid router.
pub(super) const fn minimax_m2<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(halves(keys));
    Ok(Spec { qk_norm: QkNorm::Whole, ..tri!(keys.mixture(spec, Scores::Sigmoid, true)) })
}

/// Arcee's AFMoE (Trinity): gates on the outputs of heads, norms before and after attention and feed-forward; every
/// fourth layer is global, without rotary positions.
pub(super) const fn afmoe<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(halves(keys));
    let spec = tri!(keys.mixture(spec, Scores::Sigmoid, true));
    let spec = tri!(keys.always_windowed(spec, Pattern::AllBut(4)));
    Ok(Spec {
        global: spec.global.unrotated(),
        embedding_scale: tri!(keys.or("embedding_scale", super::gemma::root(spec.dim))),
        placement: Placement::BOTH,
        qk_norm: QkNorm::Head,
        heads_gated: Some(HeadGate { per_head: false, softplus: false }),
        ..spec
    })
}

/// Phi 3.5 MoE: layer norms, and SparseMixer's router.
pub(super) const fn phimoe<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(keys.layer_norm_decoder(RopeStyle::Halves));
    tri!(keys.window_everywhere(&spec));
    let rope = tri!(phi3::long(keys, &spec));
    let spec = tri!(keys.mixture(spec, Scores::Softmax, false));
    match spec.experts {
        Some(experts) if experts.used > MOST_SPARSE => {
            return Err(keys.wrong("expert_used_count", "is more than 8, which this router cannot choose"));
        }
        _ => {}
    }
    let router = Router::Scored { scores: Scores::Sparse, scale: 1.0, groups: 1, used_groups: 1 };
    Ok(Spec { global: HeadSpec { rope, ..spec.global }, router, shared_experts: None, ..spec })
}

/// SmallThinker: the router reads the layer's input, gates use ReLU; the first layer of every four attends to all
/// positions and has no rotary positions.
pub(super) const fn smallthinker<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(halves(keys));
    let spec = tri!(keys.mixture(spec, Scores::Softmax, true));
    let spec = tri!(keys.rotated_windows(spec, Pattern::AllButFirst(4)));
    Ok(Spec { activation: Activation::Relu, early_router: true, shared_experts: None, ..spec })
}

/// Llama 4 without images: layers with rotary positions attend within chunks. Every fourth layer attends to all
/// positions. Such a layer has no rotary positions, and its queries grow with the position.
pub(super) const fn llama4<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(adjacent(keys));
    let spec = Spec { experts: tri!(keys.experts(false)), expert_layers: keys.expert_layers(), ..spec };
    // llama.cpp's converter does not write this key. If the key is missing, the number of experts decides: the model
    // with 128 experts has no norms of q and k.
    let is_normed = match tri!(keys.switch("use_qk_norm")) {
        Some(is_normed) => is_normed,
        None => !matches!(spec.experts, Some(Experts { count: 128, .. })),
    };
    let shared = SharedExperts::new(match spec.experts {
        Some(Experts { width: Some(width), .. }) => width,
        _ => spec.ffn.get(0),
    });
    // As in llama.cpp, files cannot choose another router.
    keys.known("expert_gating_func");
    keys.known("expert_weights_scale");
    let spec = Spec {
        qk_norm: if is_normed { QkNorm::Unweighted } else { QkNorm::None },
        qk_norm_after_rope: true,
        shared_experts: if spec.experts.is_some() { Some(shared) } else { None },
        router: Router::Scored { scores: Scores::Sigmoid, scale: 1.0, groups: 1, used_groups: 1 },
        weighted_inputs: true,
        ..spec
    };
    chunks(keys, spec)
}

/// Reads Llama 4's chunks and temperature. The defaults are llama.cpp's constants; a window of 0 turns off both chunks
/// and temperature.
const fn chunks<'a>(keys: &mut Keys<'_, 'a>, spec: Spec<'a>) -> Result<Spec<'a>, Error> {
    const MOST: usize = i32::MAX as usize;
    let is_chunked = spec.global.window.is_some() || !keys.has_key("attention.sliding_window");
    let period = tri!(keys.period("attention.sliding_window_pattern", 4));
    let chunk = match keys.has_key("attention.chunk_size") {
        true => tri!(keys.nonzero("attention.chunk_size", MOST)),
        false => Some(8192),
    };
    if let Some(positions) = chunk
        && !positions.is_multiple_of(16)
    {
        return Err(keys.wrong("attention.chunk_size", "is not a multiple of 16, the length of a page"));
    }
    let length = tri!(keys.size_or("attention.temperature_length", MOST, 8192));
    let scale = match keys.has_key("attention.temperature_scale") {
        true => tri!(keys.unless_zero("attention.temperature_scale")),
        false => Some(0.1),
    };
    let global = HeadSpec { window: None, ..spec.global };
    Ok(Spec {
        global,
        local: global.unrotated(),
        local_layers: if is_chunked { Pattern::Every(period) } else { Pattern::Never },
        chunk: if is_chunked { chunk } else { None },
        temperature: match scale {
            Some(scale) => Some(Temperature { scale, length, offset: 1, only_unrotated: true }),
            None => None,
        },
        ..spec
    })
}

/// The most experts that [`Scores::Sparse`] chooses.
const MOST_SPARSE: usize = 8;
