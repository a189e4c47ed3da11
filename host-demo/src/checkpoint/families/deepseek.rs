//! DeepSeek 2 and 3 and other families with latent attention; GLM 4.

use anyhow::Result;

use super::Family;
use crate::checkpoint::changes::{latent, same};
use crate::checkpoint::keys::{Keys, SIGMOID};
use crate::checkpoint::names::Row;

#[rustfmt::skip]
const LATENT: &[Row] = &[
    ("self_attn.q_a_proj", "attn_q_a", same),
    ("self_attn.q_a_layernorm", "attn_q_a_norm", same),
    ("self_attn.q_b_proj", "attn_q_b", same),
    ("self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa", same),
    ("self_attn.kv_a_layernorm", "attn_kv_a_norm", same),
    ("self_attn.kv_b_proj", "attn_k_b attn_v_b", latent),
];

fn keys(keys: &mut Keys<'_>) -> Result<()> {
    keys.common()?;
    let c = keys.config;
    keys.set("attention.head_count_kv", 1u32);
    keys.set("attention.layer_norm_rms_epsilon", c.float(&["rms_norm_eps"])?.unwrap_or(1e-6));
    let experts = c.number(&["n_routed_experts"])?;
    let dense = match c.number(&["first_k_dense_replace"])? {
        Some(dense) => dense,
        None => {
            if experts.is_some() {
                0
            } else {
                c.layers()? as u32
            }
        }
    };
    keys.set("leading_dense_block_count", dense);
    keys.vocab_size()?;
    keys.maybe("attention.q_lora_rank", &["q_lora_rank"])?;
    let (rank, turned) = (c.number(&["kv_lora_rank"])?.unwrap_or(512), c.need(&["qk_rope_head_dim"])?);
    keys.set("attention.kv_lora_rank", rank);
    keys.set("attention.key_length", rank + turned);
    keys.set("attention.value_length", rank);
    keys.set("attention.key_length_mla", c.need(&["qk_nope_head_dim"])? + turned);
    keys.number("attention.value_length_mla", &["v_head_dim"])?;
    keys.number("expert_feed_forward_length", &["moe_intermediate_size", "intermediate_size"])?;
    keys.maybe("expert_count", &["n_routed_experts"])?;
    keys.set("expert_shared_count", c.number(&["n_shared_experts"])?.unwrap_or(0));
    keys.maybe_float("expert_weights_scale", &["routed_scaling_factor"])?;
    if c.flag("norm_topk_prob") == Some(true) {
        keys.set("expert_weights_norm", true);
    }
    // Version 2 selects experts by softmax; later configs omit the rule.
    let later = !matches!(c.text("model_type"), Some("deepseek_v2"));
    if later && c.find(&["scoring_func", "score_func"]).is_none() {
        keys.set("expert_gating_func", SIGMOID);
    }
    keys.set("rope.dimension_count", turned);
    if let Some(scale) = c.rope_float("mscale_all_dim") {
        keys.set("rope.scaling.yarn_log_multiplier", (0.1 * scale) as f32);
    }
    Ok(())
}

#[rustfmt::skip]
pub const ALL: &[Family] = &[
    Family {
        classes: &["DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM", "Glm4MoeLiteForCausalLM"],
        architecture: "deepseek2",
        names: &[LATENT],
        keys,
        ..Family::PLAIN
    },
    Family {
        classes: &["Glm4ForCausalLM"],
        architecture: "glm4",
        names: &[&[
            ("post_self_attn_layernorm", "post_attention_norm", same),
            ("post_mlp_layernorm", "post_ffw_norm", same),
            ("mlp.gate_up_proj", "ffn_up", same),
        ]],
        keys: |k| {
            k.common()?;
            k.rope_dimensions(0.5)
        },
        ..Family::PLAIN
    },
    Family {
        classes: &["Glm4MoeForCausalLM"],
        architecture: "glm4moe",
        names: &[&[
            ("post_attention_layernorm", "post_attention_norm", same),
        ]],
        keys: |k| {
            k.common()?;
            k.rope_dimensions(0.5)?;
            k.maybe("expert_feed_forward_length", &["moe_intermediate_size"])?;
            k.maybe("expert_shared_count", &["n_shared_experts"])?;
            k.maybe("leading_dense_block_count", &["first_k_dense_replace"])?;
            k.set("expert_gating_func", SIGMOID);
            k.maybe_float("expert_weights_scale", &["routed_scaling_factor"])?;
            k.flag("expert_weights_norm", "norm_topk_prob");
            // Layers for multi-token prediction are dropped.
            k.set("nextn_predict_layers", 0u32);
            Ok(())
        },
        ..Family::PLAIN
    },
];
