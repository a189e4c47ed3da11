//! DeepSeek 2 and 3 and other families with latent attention; GLM 4.

use anyhow::{Result, ensure};

use super::{Family, Made};
use crate::checkpoint::changes::{latent, same};
use crate::checkpoint::config::Config;
use crate::checkpoint::keys::{Keys, SIGMOID};
use crate::checkpoint::names::Row;

#[rustfmt::skip]
pub const LATENT: &[Row] = &[
    ("self_attn.q_a_proj", "attn_q_a", same),
    ("self_attn.q_a_layernorm", "attn_q_a_norm", same),
    ("self_attn.q_b_proj", "attn_q_b", same),
    ("self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa", same),
    ("self_attn.kv_a_layernorm", "attn_kv_a_norm", same),
    ("self_attn.kv_b_proj", "attn_k_b attn_v_b", latent),
];

/// The matrix that computes keys and values from the latent vector. It is not split into two matrices, because
/// llama.cpp stores it as one for some families.
#[rustfmt::skip]
const KEYS_AND_VALUES: &[Row] = &[("self_attn.kv_b_proj", "attn_kv_b", same)];

/// Frequency factors for the rotated part of a head.
fn turned_factors(config: &Config) -> Result<Vec<Made>> {
    super::gpt::factors(config, config.size(&["qk_rope_head_dim"])? / 2)
}

fn keys(keys: &mut Keys<'_>) -> Result<()> {
    keys.common()?;
    let c = keys.config;
    keys.set("attention.head_count_kv", 1u32);
    keys.set("attention.layer_norm_rms_epsilon", c.float(&["rms_norm_eps"])?.unwrap_or(1e-6));
    let experts = c.number(&["n_routed_experts"])?;
    let dense = match c.leading_dense()? {
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
    c.only("rope_interleave", &serde_json::Value::Bool(true))?;
    if c.text("topk_method") == Some("greedy") {
        keys.set("expert_group_count", 1u32);
        keys.set("expert_group_used_count", 1u32);
    }
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
    // If `norm_topk_prob` is true, the authors' code and llama.cpp divide the weights by their sum, but transformers
    // does not. Published models set it to false.
    let is_second = c.classes().contains(&"DeepseekV2ForCausalLM");
    ensure!(
        !is_second || c.flag("norm_topk_prob") != Some(true),
        "norm_topk_prob in config.json is true: not supported for this class, whose implementations differ in its meaning"
    );
    if c.flag("norm_topk_prob") == Some(true) {
        keys.set("expert_weights_norm", true);
    }
    // DeepSeek 2 and Mistral 4 select experts by softmax. Later versions of DeepSeek use sigmoid if config.json does
    // not name a function.
    let later = !matches!(c.text("model_type"), Some("deepseek_v2")) && keys.architecture != "mistral4";
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
        classes: &["DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM", "Glm4MoeLiteForCausalLM", "KimiVLForConditionalGeneration", "KimiK25ForConditionalGeneration", "YoutuForCausalLM", "YoutuVLForConditionalGeneration"],
        architecture: "deepseek2",
        predicts: true,
        names: &[LATENT],
        keys,
        ..Family::PLAIN
    },
    Family {
        classes: &["Mistral4ForCausalLM"],
        architecture: "mistral4",
        names: &[LATENT, &[("mlp.experts.gate_up_proj", "ffn_gate_up_exps.weight", same)]],
        keys: |k| {
            keys(k)?;
            k.config.only("n_group", &serde_json::Value::from(1))?;
            if let Some(factor) = k.config.rope_float("llama_4_scaling_beta") {
                k.set("attention.temperature_scale", factor as f32);
            }
            Ok(())
        },
        ..Family::PLAIN
    },
    Family {
        classes: &["MiniCPM3ForCausalLM"],
        architecture: "minicpm3",
        names: &[KEYS_AND_VALUES, LATENT],
        keys: |k| {
            let c = k.config;
            for (key, name) in [
                ("context_length", "max_position_embeddings"),
                ("embedding_length", "hidden_size"),
                ("feed_forward_length", "intermediate_size"),
                ("attention.head_count", "num_attention_heads"),
                ("attention.head_count_kv", "num_key_value_heads"),
                ("attention.kv_lora_rank", "kv_lora_rank"),
                ("rope.dimension_count", "qk_rope_head_dim"),
            ] {
                k.number(key, &[name])?;
            }
            k.block_count()?;
            k.float("attention.layer_norm_rms_epsilon", &["rms_norm_eps"])?;
            k.vocab_size()?;
            k.maybe("attention.q_lora_rank", &["q_lora_rank"])?;
            k.set("attention.key_length", c.need(&["qk_nope_head_dim"])? + c.need(&["qk_rope_head_dim"])?);
            super::gpt::long(k)?; // llama.cpp has neither key for this architecture
            // llama.cpp has these factors as constants, so they are written only if config.json has other values. If
            // `scale_emb` is null, its value is 12. If one of the other two fields is null, there is no such factor.
            let factor = |name: &str, absent: f32, null: f32| -> Result<f32> {
                Ok(c.float(&[name])?.unwrap_or(if c.is_null(name) { null } else { absent }))
            };
            let (depth, width) = ((c.layers()? as f32).sqrt(), c.width()? as f32);
            let scales = (factor("scale_emb", 12.0, 12.0)?, factor("scale_depth", 1.4, depth)?, factor("dim_model_base", 256.0, width)?);
            if scales != (12.0, 1.4, 256.0) {
                k.set("embedding_scale", scales.0);
                k.set("residual_scale", scales.1 / depth);
                k.set("logit_scale", width / scales.2);
            }
            Ok(())
        },
        made: turned_factors,
        ..Family::PLAIN
    },
    Family {
        classes: &["PLMForCausalLM"],
        architecture: "plm",
        names: &[KEYS_AND_VALUES, LATENT],
        keys: |k| {
            k.common()?;
            let (kept, turned) = (k.config.need(&["qk_nope_head_dim"])?, k.config.need(&["qk_rope_head_dim"])?);
            k.vocab_size()?;
            k.number("attention.kv_lora_rank", &["kv_lora_rank"])?;
            k.set("attention.key_length", kept + turned);
            k.number("attention.value_length", &["v_head_dim"])?;
            k.set("rope.dimension_count", turned);
            Ok(())
        },
        ..Family::PLAIN
    },
    Family {
        classes: &["Glm4ForCausalLM", "Glm4vForConditionalGeneration", "GlmOcrForConditionalGeneration"],
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
        classes: &["Glm4MoeForCausalLM", "Glm4vMoeForConditionalGeneration", "SolarOpenForCausalLM"],
        architecture: "glm4moe",
        predicts: true,
        names: &[&[
            ("post_attention_layernorm", "post_attention_norm", same),
        ]],
        keys: |k| {
            k.common()?;
            let solar = k.config.classes().contains(&"SolarOpenForCausalLM");
            k.rope_dimensions(if solar { 1.0 } else { 0.5 })?;
            k.maybe("expert_feed_forward_length", &["moe_intermediate_size"])?;
            k.maybe("expert_shared_count", &["n_shared_experts"])?;
            if let Some(dense) = k.config.leading_dense()? {
                k.set("leading_dense_block_count", dense);
            }
            k.set("expert_gating_func", SIGMOID);
            k.maybe_float("expert_weights_scale", &["routed_scaling_factor"])?;
            k.flag("expert_weights_norm", "norm_topk_prob");
            k.set("nextn_predict_layers", 0u32);
            Ok(())
        },
        ..Family::PLAIN
    },
];
