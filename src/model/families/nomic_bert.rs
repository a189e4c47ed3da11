//! Newer encoders related to BERT: Nomic's (rotary positions, gated feed-forward, few biases), ModernBERT (norms before
//! attention and feed-forward, local layers) and Jina v2 (ALiBi positions).

use crate::gguf::equal;
use crate::kernel::Activation;
use crate::model::keys::Keys;
use crate::model::layers::{HeadSpec, Pattern};
use crate::model::rope::Rope;
use crate::model::{
    Gate, MAX_LAYERS, Need, Norm, Placement, PooledActivation, Pooling, Positions, RopeStyle, Scores, Spec,
};
use crate::{Error, tri};

pub(super) const fn nomic<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let decoder = tri!(keys.decoder(RopeStyle::Halves));
    let encoder = tri!(keys.encoder(decoder));
    Ok(Spec {
        token_types: keys.rows("token_types.weight"),
        embedding_norm: Need::Required,
        final_norm: false,
        norm: Norm::Layer,
        norm_eps: tri!(keys.required("attention.layer_norm_epsilon")),
        placement: Placement { pre_norm: false, post_norm: false, residual_norm: true },
        qkv_bias: Need::Optional,
        linear_bias: Need::Optional,
        ..keys.ranking(PooledActivation::Tanh, encoder)
    })
}

pub(super) const fn modern<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let decoder = tri!(keys.decoder(RopeStyle::Halves));
    let encoder = tri!(keys.encoder(decoder));
    let spec = keys.ranking(PooledActivation::Gelu, encoder);
    let spec = match tri!(keys.nonzero("classifier.pooling_type", 4)) {
        Some(1) if spec.pooled_head.is_some() => Spec { pooling: Pooling::Mean, ..spec },
        Some(2) if spec.pooled_head.is_some() => Spec { pooling: Pooling::First, ..spec },
        Some(3) if spec.pooled_head.is_some() => Spec { pooling: Pooling::Last, ..spec },
        _ => spec,
    };
    let period = match tri!(keys.optional_size("attention.sliding_window_pattern", MAX_LAYERS)) {
        Some(period) => period,
        None => 3, // llama.cpp's default
    };
    // The file stores the window's total width in both directions, without the token itself.
    let window = match spec.global.window {
        Some(both) => Some(both / 2 + 1),
        None => None,
    };
    let rope = match spec.global.rope {
        Some(rope) => Some(Rope { base: tri!(keys.or("rope.freq_base_swa", rope.base)), ..rope }),
        None => None,
    };
    let activation = match tri!(keys.text("hidden_activation")) {
        Some(name) if equal(name, b"silu") => Activation::Silu,
        _ => Activation::GeluErf,
    };
    Ok(Spec {
        global: HeadSpec { window: None, ..spec.global },
        local: HeadSpec { window, rope, ..spec.global },
        local_layers: if window.is_some() { Pattern::AllButFirst(period) } else { Pattern::Never },
        embedding_norm: Need::Required,
        norm: Norm::Layer,
        norm_bias: false,
        norm_eps: tri!(keys.norm_eps()),
        fused_qkv: true,
        gate: Gate::Fused,
        activation,
        ..spec
    })
}

pub(super) const fn jina<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(nomic(keys));
    let gate = if keys.has("blk.0.ffn_gate.weight") {
        Gate::Separate
    } else if keys.rows("blk.0.ffn_up.weight") > spec.ffn.get(0) {
        Gate::Fused
    } else {
        Gate::None
    };
    let global = HeadSpec { rope: None, ..spec.global };
    Ok(Spec { global, positions: Positions::Alibi { bias: 8.0 }, activation: Activation::GeluErf, gate, ..spec })
}

/// Nomic's second: experts in every second layer, and no gate.
pub(super) const fn nomic_moe<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(jina_v3(keys));
    let step = tri!(keys.period("moe_every_n_layers", 2));
    let expert_layers = if step > 1 { Pattern::Steps { first: 1, step } } else { Pattern::Never };
    Ok(Spec { expert_layers, ..tri!(keys.mixture(spec, Scores::Softmax, false)) })
}

/// Jina's third, without an adapter: rotary positions, no gate.
pub(super) const fn jina_v3<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    Ok(Spec { gate: Gate::None, activation: Activation::GeluErf, ..tri!(nomic(keys)) })
}

/// EuroBERT: Llama that sees both ways.
pub(super) const fn euro<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    both_ways(keys, RopeStyle::Halves)
}

/// Llama as an encoder (`llama-embed`).
pub(super) const fn llama<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    both_ways(keys, RopeStyle::Adjacent)
}

/// NeoBERT: the same with one matrix for q, k and v, and one for gate and up.
pub(super) const fn neo<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    Ok(Spec { fused_qkv: true, gate: Gate::Fused, ..tri!(both_ways(keys, RopeStyle::Adjacent)) })
}

const fn both_ways<'a>(keys: &mut Keys<'_, 'a>, style: RopeStyle) -> Result<Spec<'a>, Error> {
    let decoder = tri!(keys.rms_decoder(style));
    let encoder = tri!(keys.encoder(decoder));
    keys.known("classifier.pooling_type"); // of rerankers
    Ok(keys.ranking(PooledActivation::Gelu, encoder))
}
