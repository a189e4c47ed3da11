//! Families with experts that have no file of their own.

use anyhow::{Context, Result, bail, ensure};

use super::llama::{HUNYUAN, ROTATED, stretched};
use super::{Family, llama};
use crate::checkpoint::changes::{
    halves_transposed, in_turns_last, in_turns_transposed, qkv_rotated, same, transposed,
};
use crate::checkpoint::config::Config;
use crate::checkpoint::keys::{Keys, SIGMOID, SOFTMAX};
use crate::checkpoint::names::Row;
use crate::checkpoint::view::View;

/// Returns a number that must be the same for all layers. The config states it as one number, or as a list with a
/// number for each layer.
fn of_all_layers(config: &Config, name: &str) -> Result<u32> {
    let value = config.get(name).with_context(|| format!("config.json has no {name}"))?;
    let list = value.as_array().map_or_else(|| vec![value.clone()], Clone::clone);
    ensure!(
        list.windows(2).all(|pair| pair[0] == pair[1]),
        "{name} in config.json is not the same for all layers: not supported"
    );
    let number = list.first().and_then(serde_json::Value::as_u64).and_then(|n| u32::try_from(n).ok());
    number.with_context(|| format!("{name} in config.json is not a number"))
}

#[rustfmt::skip]
pub const ALL: &[Family] = &[
    Family {
        classes: &["AfmoeForCausalLM"],
        architecture: "afmoe",
        names: &[&[
            ("post_attention_layernorm", "post_attention_norm", same),
            ("pre_mlp_layernorm", "ffn_norm", same),
            ("post_mlp_layernorm", "post_ffw_norm", same),
            ("self_attn.gate_proj", "attn_gate", same),
            ("mlp.expert_bias", "exp_probs_b.bias", same),
            ("mlp.router.gate", "ffn_gate_inp", same),
        ]],
        keys: |k| {
            llama::keys(k)?;
            // transformers ignores the following fields. The model therefore behaves as if they had the values below,
            // and any other value is refused.
            for (name, only) in [("route_norm", true.into()), ("score_func", "sigmoid".into()), ("n_group", 1.into())] {
                k.config.only(name, &only)?;
            }
            k.maybe("expert_shared_count", &["num_shared_experts"])?;
            k.maybe("expert_feed_forward_length", &["moe_intermediate_size"])?;
            k.maybe("leading_dense_block_count", &["num_dense_layers"])?;
            k.flag("expert_weights_norm", "route_norm");
            k.maybe_float("expert_weights_scale", &["route_scale"])?;
            // llama.cpp scales the embeddings of this architecture unless this key says that the factor is 1.
            if k.config.flag("mup_enabled") != Some(true) {
                k.set("embedding_scale", 1.0f32);
            }
            k.maybe("attention.sliding_window", &["sliding_window"])
        },
        ..Family::PLAIN
    },
    Family {
        classes: &["OlmoeForCausalLM"],
        architecture: "olmoe",
        keys: |k| {
            k.common()?;
            k.config.only("clip_qkv", &serde_json::Value::Null)?;
            k.set("attention.layer_norm_rms_epsilon", k.config.float(&["rms_norm_eps"])?.unwrap_or(1e-5));
            k.normed_weights(false);
            Ok(())
        },
        ..Family::PLAIN
    },
    Family {
        classes: &["Ernie4_5_MoeForCausalLM"],
        architecture: "ernie4_5-moe",
        names: &[&[
            ("mlp.moe_statics.e_score_correction_bias", "exp_probs_b.bias", same),
        ]],
        keys: |k| {
            k.common()?;
            let c = k.config;
            k.number("expert_count", &["moe_num_experts"])?;
            k.number("expert_used_count", &["moe_k"])?;
            k.number("interleave_moe_layer_step", &["moe_layer_interval"])?;
            k.number("leading_dense_block_count", &["moe_layer_start_index"])?;
            k.maybe("expert_feed_forward_length", &["moe_intermediate_size"])?;
            if let Some(count) = c.number(&["moe_num_shared_experts"])? {
                k.set("expert_shared_count", count);
                if let (1.., Some(width)) = (count, c.number(&["moe_intermediate_size"])?) {
                    k.set("expert_shared_feed_forward_length", width.saturating_mul(count));
                }
            }
            Ok(())
        },
        ..Family::PLAIN
    },
    Family {
        classes: &["HunYuanMoEV1ForCausalLM"],
        architecture: "hunyuan-moe",
        names: &[HUNYUAN, &[
            ("mlp.gate.wg", "ffn_gate_inp", same),
            ("mlp.shared_mlp.gate_proj", "ffn_gate_shexp", same),
            ("mlp.shared_mlp.up_proj", "ffn_up_shexp", same),
            ("mlp.shared_mlp.down_proj", "ffn_down_shexp", same),
        ]],
        keys: |k| {
            k.common()?;
            let c = k.config;
            k.number("expert_shared_feed_forward_length", &["intermediate_size"])?;
            let width = match c.get("moe_intermediate_size") {
                Some(_) => of_all_layers(c, "moe_intermediate_size")?,
                None => c.need(&["intermediate_size"])?,
            };
            k.set("expert_feed_forward_length", width);
            k.set("expert_used_count", of_all_layers(c, "moe_topk")?);
            k.set("expert_shared_count", if c.get("num_shared_expert").is_some() { of_all_layers(c, "num_shared_expert")? } else { 1 });
            if c.rope_type() == Some("dynamic") && c.rope("alpha").is_some() {
                stretched(k, 1000.0)?;
            }
            Ok(())
        },
        ..Family::PLAIN
    },
    Family {
        classes: &["MiniMaxM2ForCausalLM"],
        architecture: "minimax-m2",
        keys: |k| {
            k.common()?;
            k.number("expert_feed_forward_length", &["intermediate_size"])?;
            match k.config.number(&["rotary_dim"])? {
                Some(dim) if k.config.rope("partial_rotary_factor").is_none() => k.set("rope.dimension_count", dim),
                _ => k.rope_dimensions(1.0)?,
            }
            Ok(())
        },
        ..Family::PLAIN
    },
    Family {
        classes: &["PhimoeForCausalLM", "PhiMoEForCausalLM"],
        architecture: "phimoe",
        keys: |k| {
            super::gpt::phi3(k)?;
            // The model's code chooses exactly two experts. It then leaves out an expert whose score is too far below
            // the best score.
            k.config.only("num_experts_per_tok", &serde_json::Value::from(2))?;
            k.config.only("router_jitter_noise", &serde_json::Value::from(0.01))?;
            let head = k.config.head_width()? as u32;
            k.set("rope.dimension_count", head);
            k.number("expert_used_count", &["num_experts_per_tok", "num_experts_per_token"])?;
            k.number("expert_count", &["num_local_experts", "num_experts"])
        },
        made: super::gpt::long_factors,
        ..Family::PLAIN
    },
    Family {
        classes: &["Llama4ForCausalLM", "Llama4ForConditionalGeneration"],
        architecture: "llama4",
        names: &[&[
            ("feed_forward.gate_proj", "ffn_gate", same),
            ("feed_forward.up_proj", "ffn_up", same),
            ("feed_forward.down_proj", "ffn_down", same),
            ("feed_forward.router", "ffn_gate_inp", same),
            ("feed_forward.experts.gate_up_proj", "ffn_gate_exps.weight ffn_up_exps.weight", halves_transposed),
            ("feed_forward.experts.down_proj", "ffn_down_exps.weight", transposed),
            ("feed_forward.shared_expert.gate_proj", "ffn_gate_shexp", same),
            ("feed_forward.shared_expert.up_proj", "ffn_up_shexp", same),
            ("feed_forward.shared_expert.down_proj", "ffn_down_shexp", same),
        ]],
        keys: llama4,
        ..Family::PLAIN
    },
    Family {
        classes: &["GptOssForCausalLM"],
        architecture: "gpt-oss",
        names: &[&[
            ("post_attention_layernorm", "post_attention_norm", same),
            ("self_attn.sinks", "attn_sinks.weight", same),
            ("mlp.router", "ffn_gate_inp", same),
            ("mlp.experts.gate_up_proj", "ffn_gate_exps.weight ffn_up_exps.weight", in_turns_transposed),
            ("mlp.experts.gate_up_proj_bias", "ffn_gate_exps.bias ffn_up_exps.bias", in_turns_last),
            ("mlp.experts.down_proj", "ffn_down_exps.weight", transposed),
            ("mlp.experts.down_proj_bias", "ffn_down_exps.bias", same),
            // The published checkpoints store rows of MXFP4 blocks.
            ("mlp.experts.gate_up_proj_blocks", "ffn_gate_exps.weight ffn_up_exps.weight", in_turns_last),
            ("mlp.experts.down_proj_blocks", "ffn_down_exps.weight", same),
        ]],
        keys: |k| {
            k.common()?;
            k.config.only("swiglu_alpha", &serde_json::Value::from(1.702))?;
            k.config.only("swiglu_limit", &serde_json::Value::from(7.0))?;
            k.number("attention.sliding_window", &["sliding_window"])?;
            k.number("expert_feed_forward_length", &["intermediate_size"])
        },
        ..Family::PLAIN
    },
    Family {
        classes: &["SmallThinkerForCausalLM"],
        architecture: "smallthinker",
        names: &[&[
            ("block_sparse_moe.primary_router", "ffn_gate_inp", same),
            ("block_sparse_moe.experts.#.gate", "ffn_gate_exps", same),
            ("block_sparse_moe.experts.#.up", "ffn_up_exps", same),
            ("block_sparse_moe.experts.#.down", "ffn_down_exps", same),
        ]],
        keys: |k| {
            k.common()?;
            let c = k.config;
            k.maybe("expert_count", &["moe_num_primary_experts"])?;
            k.maybe("expert_used_count", &["moe_num_active_primary_experts"])?;
            k.maybe("expert_feed_forward_length", &["moe_ffn_hidden_size"])?;
            k.maybe("feed_forward_length", &["moe_ffn_hidden_size"])?;
            let softmax = c.flag("moe_primary_router_apply_softmax") == Some(true);
            k.set("expert_gating_func", if softmax { SOFTMAX } else { SIGMOID });
            let local = c.get("sliding_window_layout").and_then(|layout| layout.as_array());
            if local.is_some_and(|layout| layout.iter().any(|layer| layer.as_u64() != Some(0))) {
                k.maybe("attention.sliding_window", &["sliding_window_size"])?;
            }
            Ok(())
        },
        ..Family::PLAIN
    },
    Family {
        classes: &["Dots1ForCausalLM"],
        architecture: "dots1",
        keys: |k| {
            k.common()?;
            k.maybe("expert_feed_forward_length", &["moe_intermediate_size"])?;
            k.leading_dense()?;
            k.number("expert_shared_count", &["n_shared_experts"])?;
            k.float("expert_weights_scale", &["routed_scaling_factor"])?;
            k.flag("expert_weights_norm", "norm_topk_prob");
            if k.config.find(&["scoring_func", "score_func"]).is_none() {
                k.set("expert_gating_func", SIGMOID);
            }
            Ok(())
        },
        ..Family::PLAIN
    },
    Family {
        classes: &["DeepseekForCausalLM"],
        architecture: "deepseek",
        names: &[ROTATED],
        keys: |k| {
            k.common()?;
            let head = k.config.head_width()? as u32;
            k.set("rope.dimension_count", head);
            k.unscaled();
            ensure!(k.config.flag("norm_topk_prob") != Some(true), "norm_topk_prob in config.json is true: not supported");
            k.leading_dense()?;
            k.vocab_size()?;
            k.number("expert_feed_forward_length", &["moe_intermediate_size"])?;
            k.set("expert_weights_scale", k.config.float(&["routed_scaling_factor"])?.unwrap_or(1.0));
            k.number("expert_shared_count", &["n_shared_experts"])
        },
        ..Family::PLAIN
    },
    Family {
        classes: &["DeepseekOCRForCausalLM", "DeepseekOCR2ForCausalLM", "UnlimitedOCRForCausalLM"],
        architecture: "deepseek2-ocr",
        keys: |k| {
            k.common()?;
            let c = k.config;
            k.set("rope.freq_base", c.rope_float("rope_theta").unwrap_or(10000.0) as f32);
            k.set("attention.layer_norm_rms_epsilon", c.float(&["rms_norm_eps"])?.unwrap_or(1e-6));
            k.leading_dense()?;
            k.vocab_size()?;
            k.number("expert_feed_forward_length", &["moe_intermediate_size", "intermediate_size"])?;
            k.set("expert_shared_count", c.number(&["n_shared_experts"])?.unwrap_or(0));
            k.maybe_float("expert_weights_scale", &["routed_scaling_factor"])?;
            let turned = c.number(&["qk_rope_head_dim"])?.filter(|turned| *turned > 0);
            k.set("rope.dimension_count", turned.unwrap_or(c.head_width()? as u32));
            k.maybe("attention.sliding_window", &["sliding_window_size", "sliding_window"])
        },
        ..Family::PLAIN
    },
    Family {
        classes: &["BailingMoeForCausalLM"],
        architecture: "bailingmoe",
        names: &[&[
            ("attention.query_key_value", "attn_q attn_k attn_v", qkv_rotated),
        ], BAILING],
        keys: |k| {
            bailing(k, 1.0)?;
            k.config.only("norm_head", &serde_json::Value::Bool(false))?;
            k.set("expert_weights_scale", 1.0f32);
            Ok(())
        },
        ..Family::PLAIN
    },
    Family {
        classes: &["BailingMoeV2ForCausalLM"],
        architecture: "bailingmoe2",
        names: &[BAILING, &[("mlp.gate.expert_bias", "exp_probs_b.bias", same)]],
        keys: |k| bailing2(k, 0.5),
        ..Family::PLAIN
    },
    Family {
        classes: &["SarvamMoEForCausalLM", "modeling_sarvam_moe.SarvamMoEForCausalLM"],
        architecture: "bailingmoe2",
        names: &[BAILING, &[("mlp.gate.expert_bias", "exp_probs_b.bias", same)]],
        keys: |k| bailing2(k, 1.0),
        ..Family::PLAIN
    },
    Family {
        classes: &["ExaoneMoeForCausalLM", "ExaoneMoEForCausalLM"],
        architecture: "exaone-moe",
        names: &[&[
            ("mlp.e_score_correction_bias", "exp_probs_b.bias", same),
        ]],
        keys: |k| {
            k.common()?;
            let c = k.config;
            k.vocab_size()?;
            k.window()?;
            let (width, shared) = (c.need(&["moe_intermediate_size"])?, c.need(&["num_shared_experts"])?);
            k.set("expert_feed_forward_length", width);
            k.set("expert_shared_count", shared);
            k.set("expert_shared_feed_forward_length", width * shared);
            k.float("expert_weights_scale", &["routed_scaling_factor"])?;
            k.flag("expert_weights_norm", "norm_topk_prob");
            k.set("leading_dense_block_count", c.leading_dense()?.unwrap_or(0));
            k.set("nextn_predict_layers", 0u32);
            k.unscaled();
            Ok(())
        },
        ..Family::PLAIN
    },
    Family {
        classes: &["GroveMoeForCausalLM", "modeling_grove_moe.GroveMoeForCausalLM"],
        architecture: "grovemoe",
        names: &[&[
            ("mlp.chunk_experts.#.gate_proj", "ffn_gate_chexps", same),
            ("mlp.chunk_experts.#.up_proj", "ffn_up_chexps", same),
            ("mlp.chunk_experts.#.down_proj", "ffn_down_chexps", same),
            ("mlp.expert_bias", "", same), // the published code does not use it
            ("mlp.gate.expert_bias", "", same),
        ]],
        keys: |k| {
            k.common()?;
            k.maybe("expert_feed_forward_length", &["moe_intermediate_size"])?;
            // Constants of the published code.
            k.set("expert_chunk_feed_forward_length", k.config.number(&["head_dim"])?.unwrap_or(128));
            k.set("experts_per_group", 2u32);
            k.set("expert_group_scale", 0.05f32);
            Ok(())
        },
        ..Family::PLAIN
    },
    Family {
        classes: &["ArcticForCausalLM"],
        architecture: "arctic",
        names: &[ROTATED, &[
            ("residual_layernorm", "ffn_norm", same),
            ("post_attention_layernorm", "ffn_norm_exps", same),
            ("residual_mlp.w1", "ffn_gate", same),
            ("residual_mlp.w2", "ffn_down", same),
            ("residual_mlp.w3", "ffn_up", same),
        ]],
        keys: |k| {
            k.common()?;
            k.vocab_size()?;
            let width = k.config.width()? / k.config.heads()?.max(1);
            k.set("rope.dimension_count", width as u32);
            Ok(())
        },
        ..Family::PLAIN
    },
    Family {
        classes: &["MellumForCausalLM"],
        architecture: "mellum",
        keys: |k| {
            k.common()?;
            k.maybe("expert_feed_forward_length", &["moe_intermediate_size"])?;
            k.normed_weights(true);
            // Without a list of layers, none has a window.
            let has_windows = k.config.flag("use_sliding_window") != Some(false) && k.config.get("layer_types").is_some();
            if has_windows && k.config.get("sliding_window").is_some() {
                k.window()?;
            }
            Ok(())
        },
        ..Family::PLAIN
    },
    Family {
        classes: &["DbrxForCausalLM"],
        architecture: "dbrx",
        names: &[&[
            ("wte", "token_embd", same),
            ("norm_f", "output_norm", same),
            ("norm_attn_norm.norm_1", "attn_norm", same),
            ("norm_attn_norm.norm_2", "attn_output_norm", same),
            ("norm_attn_norm.attn.Wqkv", "attn_qkv", same),
            ("norm_attn_norm.attn.out_proj", "attn_output", same),
            ("ffn.router.layer", "ffn_gate_inp", same),
            ("ffn.experts.mlp.w1", "ffn_gate_exps.weight", dbrx_rows),
            ("ffn.experts.mlp.v1", "ffn_up_exps.weight", dbrx_rows),
            ("ffn.experts.mlp.w2", "ffn_down_exps.weight", dbrx_columns),
        ]],
        keys: |k| {
            let c = k.config;
            let part = |part: &str, name: &str| {
                let value = c.get(part).map(|part| &part[name]).filter(|value| !value.is_null());
                value.and_then(|value| value.as_f64()).with_context(|| format!("config.json has no {part}.{name}"))
            };
            k.block_count()?;
            k.number("context_length", &["max_seq_len"])?;
            k.number("embedding_length", &["d_model"])?;
            k.set("feed_forward_length", part("ffn_config", "ffn_hidden_size")? as u32);
            k.number("attention.head_count", &["n_heads"])?;
            k.set("attention.head_count_kv", part("attn_config", "kv_n_heads")? as u32);
            let base = c.rope_float("rope_theta").map_or_else(|| part("attn_config", "rope_theta"), Ok)?;
            k.set("rope.freq_base", base as f32);
            let experts = c.get("ffn_config").context("config.json has no ffn_config")?;
            match experts["moe_normalize_expert_weights"].as_f64() {
                Some(1.0) => {}
                None => k.set("expert_weights_norm", false),
                Some(power) => bail!("moe_normalize_expert_weights in config.json is {power}: only 1 and null are supported"),
            }
            let function = experts["ffn_act_fn"]["name"].as_str();
            ensure!(matches!(function, None | Some("silu")), "ffn_act_fn in config.json is not silu: not supported");
            if let Ok(clip) = part("attn_config", "clip_qkv") {
                k.set("attention.clamp_kqv", clip as f32);
            }
            k.set("expert_count", part("ffn_config", "moe_num_experts")? as u32);
            k.set("expert_used_count", part("ffn_config", "moe_top_k")? as u32);
            k.set("attention.layer_norm_epsilon", 1e-5f32);
            Ok(())
        },
        ..Family::PLAIN
    },
    Family {
        classes: &["HYV3ForCausalLM"],
        architecture: "hy_v3",
        names: &[&[
            ("mlp.expert_bias", "exp_probs_b", same),
            ("mlp.router.gate", "ffn_gate_inp", same),
            ("mlp.shared_mlp.gate_proj", "ffn_gate_shexp", same),
            ("mlp.shared_mlp.up_proj", "ffn_up_shexp", same),
            ("mlp.shared_mlp.down_proj", "ffn_down_shexp", same),
        ]],
        keys: |k| {
            k.common()?;
            let c = k.config;
            let width = c.need(&["moe_intermediate_size"])?;
            k.set("expert_feed_forward_length", width);
            k.set("expert_shared_feed_forward_length", width * c.number(&["num_shared_experts"])?.unwrap_or(1));
            k.set("expert_weights_norm", c.flag("route_norm").unwrap_or(true));
            k.set("expert_weights_scale", c.float(&["router_scaling_factor"])?.unwrap_or(1.0));
            k.set("expert_gating_func", SIGMOID);
            Ok(())
        },
        ..Family::PLAIN
    },
];

/// Writes the keys of Llama 4. llama.cpp has constants for most settings of Llama 4, so a key is written only if the
/// value differs from the constant.
fn llama4(keys: &mut Keys<'_>) -> Result<()> {
    llama::keys(keys)?;
    let c = keys.config;
    keys.number("feed_forward_length", &["intermediate_size_mlp"])?;
    keys.number("interleave_moe_layer_step", &["interleave_moe_layer_step"])?;
    keys.number("expert_feed_forward_length", &["intermediate_size"])?;
    let layers = c.layers()?;
    let is_normed = c.flag("use_qk_norm").unwrap_or(true);
    if is_normed != (c.experts()? != 128) {
        keys.set("use_qk_norm", is_normed);
    }
    let turned = c.get("no_rope_layers").and_then(|list| list.as_array()).filter(|list| !list.is_empty());
    let still = match turned {
        Some(list) => list.iter().position(|turned| turned.as_u64() == Some(0)).map_or(0, |layer| layer + 1),
        None => c.number(&["no_rope_layer_interval"])?.unwrap_or(4) as usize,
    };
    let types = c.texts("layer_types").unwrap_or_default();
    let is_full = !types.is_empty() && types.iter().all(|kind| *kind == "full_attention");
    let is_usual =
        |(layer, kind): (usize, &&str)| (*kind == "full_attention") == (still > 0 && (layer + 1).is_multiple_of(still));
    ensure!(
        is_full || types.iter().enumerate().all(is_usual),
        "layer_types in config.json is not the usual one for its no_rope_layers: not supported"
    );
    if is_full && still == 0 {
        keys.set("attention.sliding_window", 0u32);
        return Ok(());
    }
    if still != 4 {
        keys.set("attention.sliding_window_pattern", if still == 0 { layers + 1 } else { still } as u32);
    }
    let chunk = if is_full { 0 } else { c.number(&["attention_chunk_size"])?.unwrap_or(0) };
    if chunk != 8192 {
        keys.set("attention.chunk_size", chunk);
    }
    let is_tuned = c.flag("attn_temperature_tuning").unwrap_or(true);
    let scale = if is_tuned { c.float(&["attn_scale"])?.unwrap_or(0.1) } else { 0.0 };
    if scale != 0.1 {
        keys.set("attention.temperature_scale", scale);
    }
    if let Some(length) = c.number(&["floor_scale"])?.filter(|length| *length != 8192) {
        keys.set("attention.temperature_length", length);
    }
    Ok(())
}

/// Tensor names of Ling.
#[rustfmt::skip]
const BAILING: &[Row] = &[
    ("word_embeddings", "token_embd", same),
    ("attention.query_key_value", "attn_qkv", same),
    ("attention.dense", "attn_output", same),
    ("attention.query_layernorm", "attn_q_norm", same),
    ("attention.key_layernorm", "attn_k_norm", same),
];

fn bailing(keys: &mut Keys<'_>, share: f64) -> Result<()> {
    keys.common()?;
    keys.rope_dimensions(share)?;
    keys.leading_dense()?;
    keys.vocab_size()?;
    keys.number("expert_feed_forward_length", &["moe_intermediate_size"])?;
    keys.number("expert_shared_count", &["num_shared_experts"])?;
    keys.flag("expert_weights_norm", "norm_topk_prob");
    Ok(())
}

fn bailing2(keys: &mut Keys<'_>, share: f64) -> Result<()> {
    bailing(keys, share)?;
    let c = keys.config;
    let shared = c.number(&["moe_shared_expert_intermediate_size"])?;
    let width = c.need(&["moe_intermediate_size"])? * c.need(&["num_shared_experts"])?;
    keys.set("expert_shared_feed_forward_length", shared.unwrap_or(width));
    keys.float("expert_weights_scale", &["routed_scaling_factor"])?;
    // Layers for multi-token prediction are dropped.
    if c.get("num_nextn_predict_layers").is_some() {
        keys.set("nextn_predict_layers", 0u32);
    }
    Ok(())
}

/// Reshapes DBRX's experts, which are stored in one matrix, to one matrix per expert.
fn dbrx_rows<'f>(config: &Config, view: View<'f>) -> Result<Vec<View<'f>>> {
    let experts = config.get("ffn_config").and_then(|part| part["moe_num_experts"].as_u64());
    let experts = experts.context("config.json has no ffn_config.moe_num_experts")? as usize;
    let (rows, columns) = (view.size(0)?, view.size(1)?);
    Ok(vec![view.reshape(&[experts, rows / experts.max(1), columns])?])
}

fn dbrx_columns<'f>(config: &Config, view: View<'f>) -> Result<Vec<View<'f>>> {
    dbrx_rows(config, view)?.into_iter().map(View::transpose).collect()
}
