//! Newer encoders related to BERT: Nomic's (rotary positions, gated feed-forward, few biases), ModernBERT (norms before
//! attention and feed-forward, local layers), Jina v2 (ALiBi positions) and MPNet (relative positions).

use crate::kernel::Activation;
use crate::model::keys::Keys;
use crate::model::layers::Pattern;
use crate::model::spec::Special;
use crate::model::{
    Gate, MAX_LAYERS, Need, Norm, Placement, PooledActivation, Positions, RopeStyle, Scores, Scoring, Spec,
};
use crate::{Error, tri};

pub(super) const fn nomic<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(keys.ranked_encoder(PooledActivation::Tanh));
    Ok(Spec {
        token_types: keys.rows("token_types.weight"),
        embedding_norm: Need::Required,
        final_norm: false,
        norm: Norm::Layer,
        norm_eps: tri!(keys.required("attention.layer_norm_epsilon")),
        placement: Placement::RESIDUALS,
        qkv_bias: Need::Optional,
        linear_bias: Need::Optional,
        ..spec
    })
}

pub(super) const fn modern<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(keys.ranked_encoder(PooledActivation::Gelu));
    let local = spec.global.with_window_both_ways();
    let spec = tri!(keys.windowed(Spec { local, ..spec }, Pattern::AllBut(3))); // llama.cpp's default
    let pooling = spec.pooling;
    Ok(Spec {
        local_layers: match spec.local_layers {
            Pattern::AllBut(period) => Pattern::AllButFirst(period),
            pattern => pattern,
        },
        pooling: if spec.ranks() { tri!(keys.pooling("classifier.pooling_type", pooling, pooling)) } else { pooling },
        embedding_norm: Need::Required,
        norm: Norm::Layer,
        norm_bias: false,
        norm_eps: tri!(keys.norm_eps()),
        fused_qkv: true,
        gate: Gate::Fused,
        activation: Activation::GeluErf,
        ..tri!(scoring(keys, spec))
    })
}

/// Adds the layers that score options, if the file has such layers (laya).
const fn scoring<'a>(keys: &mut Keys<'_, 'a>, spec: Spec<'a>) -> Result<Spec<'a>, Error> {
    let Some(b"laya") = tri!(keys.text("decision.type")) else { return Ok(spec) };
    keys.known("decision.max_head_tokens");
    let layers = tri!(keys.size("decision.block_count", MAX_LAYERS));
    if layers > spec.layers {
        return Err(keys.wrong("decision.block_count", "is larger than block_count"));
    }
    let scoring = Scoring { layers, types: keys.rows("token_types.weight") };
    Ok(Spec { special: Special::Scoring(scoring), qkv_bias: Need::Optional, linear_bias: Need::Optional, ..spec })
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
    let global = spec.global.unrotated();
    Ok(Spec { global, positions: Positions::Alibi { bias: 8.0 }, activation: Activation::GeluErf, gate, ..spec })
}

/// MPNet: BERT with T5's biases by distance beside the learned positions.
pub(super) const fn mpnet<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(nomic(keys));
    let positions = Positions::Relative { buckets: tri!(keys.relative_buckets()), embedded: true };
    Ok(Spec {
        global: spec.global.unrotated(),
        positions,
        qkv_bias: Need::Required,
        linear_bias: Need::Required,
        activation: Activation::GeluErf,
        gate: Gate::None,
        ..spec
    })
}

/// Nomic v2: experts in every second layer, and no gate.
pub(super) const fn nomic_moe<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(jina_v3(keys));
    let step = tri!(keys.period("moe_every_n_layers", 2));
    let expert_layers = if step > 1 { Pattern::Steps { first: 1, step } } else { Pattern::Never };
    Ok(Spec { expert_layers, ..tri!(keys.mixture(spec, Scores::Softmax, false)) })
}

/// Jina v3, without an adapter: rotary positions, no gate.
pub(super) const fn jina_v3<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    Ok(Spec { gate: Gate::None, activation: Activation::GeluErf, ..tri!(nomic(keys)) })
}

/// EuroBERT: Llama whose tokens attend to all tokens.
pub(super) const fn euro<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    both_ways(keys, RopeStyle::Halves)
}

/// Llama as an encoder (`llama-embed`).
pub(super) const fn llama<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    both_ways(keys, RopeStyle::Adjacent)
}

/// NeoBERT: Llama as an encoder, with one matrix for q, k and v, and one matrix for gate and up.
pub(super) const fn neo<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    Ok(Spec { fused_qkv: true, gate: Gate::Fused, ..tri!(both_ways(keys, RopeStyle::Adjacent)) })
}

const fn both_ways<'a>(keys: &mut Keys<'_, 'a>, style: RopeStyle) -> Result<Spec<'a>, Error> {
    let decoder = tri!(keys.rms_decoder(style));
    let mut encoder = tri!(keys.encoder(decoder));
    keys.known("classifier.pooling_type"); // a key of rerankers
    tri!(keys.ranking(PooledActivation::Gelu, &mut encoder));
    Ok(encoder)
}
