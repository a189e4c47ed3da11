//! Decoders that differ from Llama in a few fields: RMS norms, rotary positions, and mostly SiLU with a gate.

use super::gemma::root;
use super::granite;
use crate::kernel::Activation;
use crate::model::keys::Keys;
use crate::model::layers::{PerLayer, Xielu};
use crate::model::roles::Role;
use crate::model::spec::Special;
use crate::model::{Gate, HeadGate, Loops, MAX_LAYERS, Need, Placement, Positions, QkNorm, Residual, RopeStyle, Spec};
use crate::{Error, tri};

/// InternLM 2 and XVERSE: Llama by another name.
pub(super) const fn adjacent<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    keys.rms_decoder(RopeStyle::Adjacent)
}

/// Exaone 3 and Pangu: each rotary pair has one element in each half of the head.
pub(super) const fn halves<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    keys.rms_decoder(RopeStyle::Halves)
}

/// Arcee: no gate, and squared ReLU.
pub(super) const fn arcee<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    Ok(Spec { gate: Gate::None, activation: Activation::ReluSquared, ..tri!(adjacent(keys)) })
}

/// Baichuan: the 13B models, recognized by their 40 layers, use ALiBi.
pub(super) const fn baichuan<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(adjacent(keys));
    if spec.layers != 40 {
        return Ok(spec);
    }
    Ok(Spec { global: spec.global.unrotated(), positions: Positions::Alibi { bias: 8.0 }, ..spec })
}

/// Refact: ALiBi.
pub(super) const fn refact<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(adjacent(keys));
    Ok(Spec { global: spec.global.unrotated(), positions: Positions::Alibi { bias: 8.0 }, ..spec })
}

/// OpenELM: norms of the heads of q and k; layers differ in their numbers of heads.
pub(super) const fn openelm<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    Ok(Spec { fused_qkv: true, qk_norm: QkNorm::Head, ..tri!(halves(keys)) })
}

/// DeciLM and pruned Nemotron: layers without attention, or without a feed-forward.
pub(super) const fn deci<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    keys.partial_layers = true;
    adjacent(keys)
}

/// Nanbeige 4.2: the layers run several times.
pub(super) const fn nanbeige<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(adjacent(keys));
    let runs = tri!(keys.period("num_loops", 1));
    let normed = !matches!(tri!(keys.switch("skip_loop_final_norm")), Some(true));
    let (own, layers) = (spec.layers, spec.layers.saturating_mul(runs));
    if layers > MAX_LAYERS {
        return Err(keys.wrong("num_loops", "is too large"));
    }
    if let PerLayer::Each(_) = spec.kv_heads {
        return Err(keys.wrong("attention.head_count_kv", "must be the same for all layers"));
    }
    Ok(Spec { layers, loops: if runs > 1 { Some(Loops { layers: own, normed, low_runs: 0 }) } else { None }, ..spec })
}

/// CogVLM without images.
pub(super) const fn cogvlm<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    Ok(Spec { fused_qkv: true, ..tri!(halves(keys)) })
}

/// PLaMo 1: attention and feed-forward read the same hidden state.
pub(super) const fn plamo<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    Ok(Spec { residual: Residual::Parallel { one_norm: true }, ..tri!(halves(keys)) })
}

/// Talkie: norms without weights, a factor for each head of q, and the token's embedding added after every layer.
pub(super) const fn talkie<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    Ok(Spec {
        bare_norm: true,
        embedding_norm: Need::Optional,
        special: Special::EmbeddingSkip,
        layer_scale: Need::Required,
        qk_norm: QkNorm::Gain,
        qk_norm_after_rope: true,
        logit_scale: tri!(keys.required("logit_scale")),
        ..tri!(halves(keys))
    })
}

/// HRM: two stacks of layers in turns, norms without weights, and gates on the outputs of heads. All tokens attend to
/// earlier tokens only, as in llama.cpp.
pub(super) const fn hrm_text<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(halves(keys));
    let run = tri!(keys.size("hrm.layers_per_stack", MAX_LAYERS));
    let low_runs = tri!(keys.size("hrm.l_cycles", MAX_LAYERS));
    let cycles = tri!(keys.size("hrm.h_cycles", MAX_LAYERS));
    keys.known("hrm.prefix_lm");
    if spec.layers != run * cycles * (low_runs + 1) {
        return Err(keys.wrong("block_count", "is not the number of layers of all runs"));
    }
    let (PerLayer::All(_), PerLayer::All(_)) = (spec.heads, spec.kv_heads) else {
        return Err(keys.wrong("attention.head_count", "must be the same for all layers"));
    };
    Ok(Spec {
        bare_norm: true,
        embedding_scale: tri!(keys.or("embedding_scale", 1.0)),
        heads_gated: Some(HeadGate { per_head: false, softplus: false }),
        loops: Some(Loops { layers: 2 * run, normed: true, low_runs }),
        ..spec
    })
}

/// Maincoder: norms of the heads of q and k, after rope.
pub(super) const fn maincoder<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    Ok(Spec { qk_norm: QkNorm::Head, qk_norm_after_rope: true, ..tri!(adjacent(keys)) })
}

/// Seed-OSS: the tensor of the norm before the feed-forward has an unusual name.
pub(super) const fn seed_oss<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    Ok(Spec { renamed: &[(Role::PostAttentionNorm, Role::FfnNorm)], ..tri!(halves(keys)) })
}

/// ChatGLM 2 and 3, and the first GLM 4: gate and up in one matrix.
pub(super) const fn chatglm<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let fused_qkv = keys.has("blk.0.attn_qkv.weight");
    Ok(Spec { fused_qkv, gate: Gate::Fused, ..tri!(adjacent(keys)) })
}

/// GLM 4: norms before and after attention and feed-forward.
pub(super) const fn glm4<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let all = tri!(adjacent(keys));
    let spec = tri!(keys.without_next(all));
    Ok(Spec { placement: Placement::BOTH, gate: Gate::Fused, ..spec })
}

/// Qwen 1: q, k and v in one matrix; `feed_forward_length` is the width of gate and up together.
pub(super) const fn qwen<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(halves(keys));
    let ffn = match spec.ffn {
        PerLayer::All(both) => PerLayer::All(both / 2),
        PerLayer::Each(_) => return Err(keys.wrong("feed_forward_length", "must be the same for all layers")),
    };
    Ok(Spec { fused_qkv: keys.has("blk.0.attn_qkv.weight"), ffn, ..spec })
}

/// MiniCPM 1 and 2: Granite's scale factors, which have defaults, because early files have no keys for them.
pub(super) const fn minicpm<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(adjacent(keys));
    granite::scaled(keys, spec, [12.0, 1.4 / root(spec.layers), spec.dim as f32 / 256.0])
}

/// Apertus: norms of the heads of q and k, no gate, and xIELU.
pub(super) const fn apertus<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(halves(keys));
    let xielu = Xielu {
        alpha_n: tri!(keys.numbers("xielu.alpha_n", spec.layers)),
        alpha_p: tri!(keys.numbers("xielu.alpha_p", spec.layers)),
        beta: tri!(keys.numbers("xielu.beta", spec.layers)),
        eps: tri!(keys.numbers("xielu.eps", spec.layers)),
    };
    Ok(Spec { qk_norm: QkNorm::Head, gate: Gate::None, special: Special::Xielu(xielu), ..spec })
}
