//! GPT-2, GPT-J, GPT-NeoX, BLOOM, Falcon, MPT, Phi, StarCoder, CodeShell and Jais.

use anyhow::{Context, Result, bail, ensure};

use super::{Family, Made, Vocabulary};
use crate::checkpoint::changes::{by_groups, by_heads, falcon_groups, same, transposed};
use crate::checkpoint::config::Config;
use crate::checkpoint::keys::Keys;
use crate::checkpoint::names::Row;
use crate::checkpoint::view::{Step, View};

/// Tensor names of GPT-2 and nanoGPT.
#[rustfmt::skip]
pub const GPT2: &[Row] = &[
    ("wte", "token_embd", same),
    ("wpe", "position_embd", same),
    ("ln_f", "output_norm", same),
    ("ln_1", "attn_norm", same),
    ("ln_2", "ffn_norm", same),
    ("attn.c_attn", "attn_qkv", same),
    ("attn.c_proj", "attn_output", same),
    ("mlp.c_fc", "ffn_up", same),
    ("mlp.c_proj", "ffn_down", same),
];

/// Matrices that are stored transposed.
#[rustfmt::skip]
const CONV1D: &[Row] = &[
    ("attn.c_attn.weight", "attn_qkv.weight", transposed),
    ("attn.c_proj.weight", "attn_output.weight", transposed),
    ("mlp.c_fc.weight", "ffn_up.weight", transposed),
    ("mlp.c_proj.weight", "ffn_down.weight", transposed),
];

#[rustfmt::skip]
const BLOOM: &[Row] = &[
    ("word_embeddings", "token_embd", same),
    ("word_embeddings_layernorm", "token_embd_norm", same),
    ("ln_f", "output_norm", same),
    ("mlp.dense_h_to_4h", "ffn_up", same),
    ("mlp.dense_4h_to_h", "ffn_down", same),
    ("self_attention.dense", "attn_output", same),
    ("self_attention.query_key_value", "attn_qkv attn_qkv attn_qkv", by_heads),
];

#[rustfmt::skip]
const FALCON: &[Row] = &[
    ("self_attention.query_key_value", "attn_qkv attn_qkv attn_qkv", by_groups),
    ("ln_attn", "attn_norm_2", same),
    ("ln_mlp", "attn_norm", same),
];

/// Tensor names of GPT-NeoX.
#[rustfmt::skip]
const NEOX: &[Row] = &[
    ("embed_in", "token_embd", same),
    ("embed_out", "output", same),
    ("final_layer_norm", "output_norm", same),
    ("attention.dense", "attn_output", same),
    ("attention.query_key_value", "attn_qkv attn_qkv attn_qkv", by_heads),
    ("mlp.dense_h_to_4h", "ffn_up", same),
    ("mlp.dense_4h_to_h", "ffn_down", same),
];

/// Writes the sizes of a GPT. If the config has no `n_inner`, the feed-forward is four times as wide as the model.
fn sizes(keys: &mut Keys<'_>, context: &[&str]) -> Result<()> {
    let c = keys.config;
    keys.number("context_length", context)?;
    keys.set("embedding_length", c.width()? as u32);
    keys.set("feed_forward_length", c.number(&["n_inner"])?.unwrap_or(4 * c.width()? as u32));
    keys.block_count()?;
    keys.set("attention.head_count", c.heads()? as u32);
    Ok(())
}

fn norm(keys: &mut Keys<'_>) -> Result<()> {
    keys.float("attention.layer_norm_epsilon", &["layer_norm_epsilon", "layer_norm_eps", "norm_epsilon"])
}

/// Phi 3's metadata.
pub fn phi3(keys: &mut Keys<'_>) -> Result<()> {
    let c = keys.config;
    keys.number("context_length", &["n_positions", "max_position_embeddings"])?;
    keys.set("embedding_length", c.width()? as u32);
    keys.number("feed_forward_length", &["intermediate_size"])?;
    keys.block_count()?;
    keys.set("attention.head_count", c.heads()? as u32);
    keys.set("attention.head_count_kv", c.key_heads()? as u32);
    keys.float("attention.layer_norm_rms_epsilon", &["rms_norm_eps"])?;
    keys.set("rope.dimension_count", turned(c)?);
    keys.set("rope.freq_base", c.rope_float("rope_theta").unwrap_or(10000.0) as f32);
    keys.set("attention.sliding_window", c.number(&["sliding_window"])?.unwrap_or(0));
    long(keys)
}

/// Writes the keys of LongRoPE scaling: the original context, and the factor by which rotated queries and keys are
/// multiplied.
pub fn long(keys: &mut Keys<'_>) -> Result<()> {
    let c = keys.config;
    let original = original(c)?.or(c.number(&["max_position_embeddings"])?);
    keys.set("rope.scaling.original_context_length", original.context("config.json has no max_position_embeddings")?);
    if c.rope("long_factor").is_some() {
        let context = f64::from(c.need(&["n_positions", "max_position_embeddings"])?);
        let original = original.map_or(context, f64::from);
        let scale = c.rope_float("factor").unwrap_or(context / original);
        let factor = match c.rope_type() {
            _ if c.rope_float("attention_factor").is_some() => c.rope_float("attention_factor").unwrap_or(1.0),
            _ if scale <= 1.0 => 1.0,
            Some("longrope" | "su") => (1.0 + scale.ln() / original.ln()).sqrt(),
            Some("yarn") => 0.1 * scale.ln() + 1.0,
            other => bail!("the rope type {} has no long factors", other.unwrap_or("none")),
        };
        keys.set("rope.scaling.attn_factor", factor as f32);
    }
    Ok(())
}

/// Number of rotated elements in a head.
fn turned(config: &Config) -> Result<u32> {
    let share = config.rope_float("partial_rotary_factor").unwrap_or(1.0);
    Ok((share * config.width()? as f64) as u32 / config.heads()?.max(1) as u32)
}

/// Returns the number of positions for which the model was trained before its context was extended. If config.json
/// states it outside of the rope settings, too, that number is used.
fn original(config: &Config) -> Result<Option<u32>> {
    const FIELD: &str = "original_max_position_embeddings";
    let inner = config.rope(FIELD).and_then(|n| u32::try_from(n.as_u64()?).ok());
    Ok(config.number(&[FIELD])?.or(inner))
}

/// Factors of frequencies for short and long texts.
pub fn long_factors(config: &Config) -> Result<Vec<Made>> {
    factors(config, turned(config)? as usize / 2)
}

/// Like [`long_factors`], for `pairs` rotated pairs.
pub fn factors(config: &Config, pairs: usize) -> Result<Vec<Made>> {
    let mut made = Vec::new();
    for (setting, name) in [("long_factor", "rope_factors_long.weight"), ("short_factor", "rope_factors_short.weight")]
    {
        let Some(list) = config.rope(setting).and_then(|list| list.as_array()) else { continue };
        let values: Vec<f32> = list.iter().filter_map(|value| Some(value.as_f64()? as f32)).collect();
        ensure!(values.len() == pairs, "{setting} in config.json has {} numbers, not {pairs}", values.len());
        made.push(Made { name: name.into(), values });
    }
    ensure!(made.len() != 1, "config.json has only one of long_factor and short_factor");
    Ok(made)
}

/// Multiplies Jais' embedding by its factor.
fn by_embedding<'f>(config: &Config, view: View<'f>) -> Result<Vec<View<'f>>> {
    let factor = config.float(&["mup_embeddings_scale", "embeddings_scale"])?.unwrap_or(1.0);
    Ok(vec![view.then(Step::Times(factor))])
}

/// Multiplies Jais' head by its factor.
fn by_width<'f>(config: &Config, view: View<'f>) -> Result<Vec<View<'f>>> {
    let number = |name| config.get(name).and_then(|value| value.as_f64());
    let factor = match number("mup_output_alpha").zip(number("mup_width_scale")) {
        Some((alpha, scale)) => alpha * scale,
        None => number("width_scale").unwrap_or(1.0),
    };
    Ok(vec![view.then(Step::Times(factor as f32))])
}

/// Checks that the stored ALiBi slopes are the usual ones, which GGUF implies (maximum bias 8), by comparing the first
/// slope. Drops the tensor then.
fn standard_slopes<'f>(config: &Config, view: View<'f>) -> Result<Vec<View<'f>>> {
    let heads = config.heads()?.max(1);
    let mut first = [0.0];
    view.read(0, &mut first);
    let bias = -(first[0].log2() * (1 << heads.ilog2()) as f32).round();
    ensure!(bias == 8.0, "the slopes of positions in {} are not those of a bias of 8: not supported", view.name());
    Ok(vec![view])
}

#[rustfmt::skip]
pub const ALL: &[Family] = &[
    Family {
        classes: &["GPT2LMHeadModel", "GPT2Model", "GPT2ForSequenceClassification"],
        architecture: "gpt2",
        names: &[CONV1D, GPT2],
        keys: |k| {
            k.config.only("scale_attn_weights", &serde_json::Value::Bool(true))?;
            k.config.only("scale_attn_by_inverse_layer_idx", &serde_json::Value::Bool(false))?;
            sizes(k, &["n_positions", "n_ctx"])?;
            norm(k)
        },
        ..Family::PLAIN
    },
    Family {
        classes: &["JAISLMHeadModel"],
        architecture: "jais",
        names: &[&[
            ("mlp.c_fc2.weight", "ffn_gate.weight", transposed),
            ("mlp.c_fc2.bias", "ffn_gate.bias", same),
            ("relative_pe.slopes", "", standard_slopes),
            ("wte", "token_embd", by_embedding),
            ("lm_head", "output", by_width),
        ], CONV1D, GPT2],
        keys: |k| {
            let c = k.config;
            c.only("activation_function", &serde_json::Value::from("swiglu"))?;
            c.only("position_embedding_type", &serde_json::Value::from("alibi"))?;
            sizes(k, &["n_positions"])?;
            norm(k)?;
            k.set("attention.max_alibi_bias", 8.0f32);
            Ok(())
        },
        own_head: |_| true,
        ..Family::PLAIN
    },
    Family {
        classes: &["Jais2ForCausalLM"],
        architecture: "jais2",
        keys: |k| {
            k.common()?;
            // Write the epsilon of the layer norms also under the key for RMS norms, because the core prefers that key.
            if let Some(epsilon) = k.config.float(&["layer_norm_eps"])? {
                k.set("attention.layer_norm_rms_epsilon", epsilon);
            }
            let head = k.config.head_width()? as u32;
            k.set("rope.dimension_count", head);
            Ok(())
        },
        ..Family::PLAIN
    },
    Family {
        classes: &["GPTJForCausalLM"],
        architecture: "gptj",
        names: &[&[
            ("attn.q_proj", "attn_q", same),
            ("attn.k_proj", "attn_k", same),
            ("attn.v_proj", "attn_v", same),
            ("attn.out_proj", "attn_output", same),
            ("mlp.fc_in", "ffn_up", same),
            ("mlp.fc_out", "ffn_down", same),
        ], GPT2],
        keys: |k| {
            sizes(k, &["n_positions"])?;
            norm(k)?;
            let width = k.config.head_width()? as u32;
            k.set("rope.dimension_count", k.config.number(&["rotary_dim"])?.unwrap_or(width));
            Ok(())
        },
        ..Family::PLAIN
    },
    Family {
        classes: &["CodeShellForCausalLM"],
        architecture: "codeshell",
        names: &[&[("attn.rotary_emb.inv_freq", "", same)], GPT2],
        keys: |k| {
            sizes(k, &["n_positions"])?;
            k.number("attention.head_count_kv", &["num_query_groups"])?;
            norm(k)?;
            k.set("rope.freq_base", 10000.0f32);
            k.set("rope.scaling.type", "linear");
            k.set("rope.scaling.factor", 1.0f32);
            Ok(())
        },
        ..Family::PLAIN
    },
    Family {
        classes: &["GPTBigCodeForCausalLM"],
        architecture: "starcoder",
        names: &[GPT2],
        keys: |k| {
            sizes(k, &["n_positions"])?;
            k.config.only("multi_query", &serde_json::Value::Bool(true))?;
            k.config.only("scale_attn_weights", &serde_json::Value::Bool(true))?;
            k.set("attention.head_count_kv", 1u32);
            norm(k)
        },
        ..Family::PLAIN
    },
    Family {
        classes: &["Starcoder2ForCausalLM"],
        architecture: "starcoder2",
        names: &[&[
            ("mlp.c_fc", "ffn_up", same),
            ("mlp.c_proj", "ffn_down", same),
        ]],
        keys: |k| {
            k.common()?;
            k.window_everywhere();
            Ok(())
        },
        ..Family::PLAIN
    },
    Family {
        classes: &["GPTNeoXForCausalLM"],
        architecture: "gptneox",
        names: &[NEOX],
        keys: |k| {
            k.number("context_length", &["max_position_embeddings"])?;
            k.number("embedding_length", &["hidden_size"])?;
            k.block_count()?;
            k.number("feed_forward_length", &["intermediate_size"])?;
            let share = k.config.rope_float("partial_rotary_factor").or(k.config.float(&["rotary_pct"])?.map(f64::from));
            let width = k.config.width()? / k.config.heads()?.max(1);
            k.set("rope.dimension_count", (share.unwrap_or(0.25) * width as f64) as u32);
            k.number("attention.head_count", &["num_attention_heads"])?;
            let parallel = k.config.flag("use_parallel_residual").unwrap_or(true);
            k.set("use_parallel_residual", parallel);
            norm(k)
        },
        ..Family::PLAIN
    },
    Family {
        classes: &["BloomForCausalLM", "BloomModel"],
        architecture: "bloom",
        names: &[BLOOM],
        keys: |k| {
            let width = k.config.width()? as u32;
            k.config.only("apply_residual_connection_post_layernorm", &serde_json::Value::Bool(false))?;
            k.set("context_length", k.config.number(&["seq_length"])?.unwrap_or(width));
            k.set("embedding_length", width);
            k.set("feed_forward_length", 4 * width);
            k.block_count()?;
            k.set("attention.head_count", k.config.heads()? as u32);
            k.set("attention.head_count_kv", k.config.heads()? as u32);
            norm(k)
        },
        ..Family::PLAIN
    },
    Family {
        classes: &["FalconForCausalLM", "RWForCausalLM"],
        architecture: "falcon",
        names: &[FALCON, BLOOM],
        keys: |k| {
            let c = k.config;
            c.only("alibi", &serde_json::Value::Bool(false))?;
            c.only("apply_residual_connection_post_layernorm", &serde_json::Value::Bool(false))?;
            k.set("context_length", 2048u32);
            k.set("tensor_data_layout", "jploski");
            k.set("embedding_length", c.width()? as u32);
            k.set("feed_forward_length", c.number(&["ffn_hidden_size"])?.unwrap_or(4 * c.width()? as u32));
            k.block_count()?;
            k.set("attention.head_count", c.heads()? as u32);
            k.set("attention.head_count_kv", falcon_groups(c)? as u32);
            norm(k)
        },
        ..Family::PLAIN
    },
    Family {
        classes: &["MptForCausalLM", "MPTForCausalLM"],
        architecture: "mpt",
        names: &[&[
            ("wte", "token_embd", same),
            ("wpe", "position_embd", same),
            ("norm_f", "output_norm", same),
            ("norm_1", "attn_norm", same),
            ("norm_2", "ffn_norm", same),
            ("attn.Wqkv", "attn_qkv", same),
            ("attn.out_proj", "attn_output", same),
            ("attn.q_ln", "attn_q_norm", same),
            ("attn.k_ln", "attn_k_norm", same),
            ("ffn.up_proj", "ffn_up", same),
            ("ffn.down_proj", "ffn_down", same),
        ]],
        keys: |k| {
            sizes(k, &["max_seq_len"])?;
            let attention = k.config.get("attn_config").context("config.json has no attn_config")?;
            if let Some(heads) = attention["kv_n_heads"].as_u64().filter(|heads| *heads > 0) {
                k.set("attention.head_count_kv", heads as u32);
            }
            k.set("attention.layer_norm_epsilon", k.config.float(&["layer_norm_epsilon"])?.unwrap_or(1e-5));
            if let Some(scale) = attention["softmax_scale"].as_f64() {
                k.set("attention.scale", scale as f32);
            }
            if let Some(clip) = attention["clip_qkv"].as_f64() {
                k.set("attention.clamp_kqv", clip as f32);
            }
            let most = attention["alibi_bias_max"].as_f64().unwrap_or(8.0) as f32;
            let alibi = attention["alibi"].as_bool().unwrap_or(true);
            k.set("attention.max_alibi_bias", if alibi { most } else { 0.0 });
            Ok(())
        },
        ..Family::PLAIN
    },
    Family {
        classes: &["PhiForCausalLM"],
        architecture: "phi2",
        names: &[&[
            ("final_layernorm", "output_norm", same),
            ("self_attn.dense", "attn_output", same),
            ("mlp.fc1", "ffn_up", same),
            ("mlp.fc2", "ffn_down", same),
        ]],
        keys: |k| {
            sizes(k, &["n_positions", "max_position_embeddings"])?;
            k.set("attention.head_count_kv", k.config.key_heads()? as u32);
            norm(k)?;
            let share = k.config.rope_float("partial_rotary_factor").unwrap_or(0.5);
            k.set("rope.dimension_count", (share * k.config.width()? as f64) as u32 / k.config.heads()?.max(1) as u32);
            k.maybe("feed_forward_length", &["n_inner", "intermediate_size"])
        },
        vocabulary: Vocabulary { defaults: &[("add_bos_token", false)], ..Vocabulary::PLAIN },
        ..Family::PLAIN
    },
    Family {
        classes: &["Phi3ForCausalLM"],
        architecture: "phi3",
        names: &[&[
            ("mlp.gate_up_proj", "ffn_up", same),
        ]],
        keys: phi3,
        made: long_factors,
        ..Family::PLAIN
    },
];
