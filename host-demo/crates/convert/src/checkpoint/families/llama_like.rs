//! Families that differ from Llama in names, fused matrices, or sizes of layers.

use anyhow::{Context, Result, ensure};

use super::llama::{self, ROTATED};
use super::{Family, Vocabulary};
use crate::checkpoint::changes::{
    grouped_rotated, halves, in_groups_of_heads, keys_and_values, quarters, rotated_heads, same, thirds_rotated,
    tiled_columns, tiled_rows,
};
use crate::checkpoint::config::Config;
use crate::checkpoint::keys::Keys;
use crate::checkpoint::names::Row;
use crate::checkpoint::view::{Step, View};
use arenite_gguf_writer::Meta;

/// Tensor names of GPT-2 that Qwen 1 and Refact also use.
#[rustfmt::skip]
const GPT: &[Row] = &[
    ("wte", "token_embd", same),
    ("ln_f", "output_norm", same),
    ("ln_1", "attn_norm", same),
    ("ln_2", "ffn_norm", same),
    ("attn.c_proj", "attn_output", same),
    ("attn.rotary_emb.inv_freq", "", same),
    ("mlp.c_proj", "ffn_down", same),
];

/// Writes the keys that the first converters for GGUF wrote for this architecture, including a key that names the
/// layout of the tensors.
fn original(keys: &mut Keys<'_>) -> Result<()> {
    keys.common()?;
    keys.set("tensor_data_layout", "Meta AI original pth");
    let width = keys.config.width()? / keys.config.heads()?.max(1);
    keys.set("rope.dimension_count", width as u32);
    Ok(())
}

fn pangu(keys: &mut Keys<'_>) -> Result<()> {
    llama::keys(keys)?;
    let width = keys.config.head_width()? as u32;
    keys.key_length(width);
    Ok(())
}

fn minicpm(keys: &mut Keys<'_>) -> Result<()> {
    keys.common()?;
    let c = keys.config;
    keys.set("embedding_scale", double(c, "scale_emb")? as f32);
    keys.set("residual_scale", (double(c, "scale_depth")? / (c.layers()? as f64).sqrt()) as f32);
    keys.set("logit_scale", (c.width()? as f64 / double(c, "dim_model_base")?) as f32);
    Ok(())
}

fn hrm(keys: &mut Keys<'_>) -> Result<()> {
    keys.common()?;
    let c = keys.config;
    let layers = c.need(&["num_layers_per_stack", "num_hidden_layers"])?;
    let (high, low) = (c.need(&["H_cycles"])?, c.need(&["L_cycles"])?);
    keys.set("block_count", layers * high * (low + 1));
    keys.set("rope.dimension_count", c.head_width()? as u32);
    keys.float("embedding_scale", &["embedding_scale"])?;
    keys.set("hrm.layers_per_stack", layers);
    keys.set("hrm.h_cycles", high);
    keys.set("hrm.l_cycles", low);
    keys.set("hrm.prefix_lm", c.flag("prefix_lm").unwrap_or(false));
    Ok(())
}

/// Negates the second half of each head, because Talkie rotates in the other direction.
fn turned_back<'f>(config: &Config, view: View<'f>) -> Result<Vec<View<'f>>> {
    let head = config.size(&["head_dim"])?;
    ensure!(head > 0, "head_dim in config.json is 0");
    let heads = view.size(0)? / head;
    let halves = view.split(0, &vec![head / 2; 2 * heads])?;
    let signed = |(i, half): (usize, View<'f>)| if i % 2 == 0 { half } else { half.then(Step::Times(-1.0)) };
    Ok(halves.into_iter().enumerate().map(signed).collect())
}

/// Reshapes a vector with one number per head to a column.
fn by_head<'f>(_: &Config, view: View<'f>) -> Result<Vec<View<'f>>> {
    let len = view.len();
    Ok(vec![view.reshape(&[len, 1])?])
}

fn double(config: &Config, name: &str) -> Result<f64> {
    config.get(name).and_then(|value| value.as_f64()).with_context(|| format!("config.json has no number {name}"))
}

fn chatglm(keys: &mut Keys<'_>) -> Result<()> {
    let c = keys.config;
    let (width, heads) = (c.width()? as u32, c.heads()? as u32);
    let old = c.flag("rmsnorm");
    ensure!(old != Some(false), "rmsnorm in config.json is false: only RMS norms are supported");
    ensure!(
        c.flag("post_layer_norm") != Some(false) && c.flag("apply_residual_connection_post_layernorm") != Some(true),
        "post_layer_norm or apply_residual_connection_post_layernorm in config.json is not supported"
    );
    keys.set("context_length", c.number(&["seq_length", "max_position_embeddings"])?.unwrap_or(width));
    keys.set("embedding_length", width);
    keys.set("feed_forward_length", c.number(&["ffn_hidden_size", "intermediate_size"])?.unwrap_or(4 * width));
    keys.block_count()?;
    keys.set("attention.head_count", heads);
    keys.set("attention.head_count_kv", chatglm_groups(c)? as u32);
    let epsilon = c.float(&["layernorm_epsilon", "rms_norm_eps"])?.unwrap_or(1e-5);
    keys.set("attention.layer_norm_rms_epsilon", epsilon);
    let head = c.number(&["head_dim", "kv_channels"])?.unwrap_or(width / heads.max(1));
    if head * heads != width {
        keys.key_length(head);
    }
    let share = c.rope_float("partial_rotary_factor").unwrap_or(0.5);
    keys.set("rope.dimension_count", (f64::from(head) * share) as u32);
    let ratio = c.float(&["rope_ratio"])?.map_or(1.0, f64::from);
    keys.set("rope.freq_base", (c.rope_float("rope_theta").unwrap_or(10000.0) * ratio) as f32);
    Ok(())
}

/// Number of heads of keys and values.
fn chatglm_groups(config: &Config) -> Result<usize> {
    if config.flag("multi_query_attention") == Some(false) {
        return config.heads();
    }
    Ok(config.number(&["multi_query_group_num"])?.map_or(config.key_heads()?, |n| n as usize))
}

/// Returns the width of each layer's feed-forward.
fn openelm_widths(config: &Config) -> Result<Vec<i32>> {
    let factors = config.get("ffn_multipliers").and_then(|list| list.as_array()).context("no ffn_multipliers")?;
    let (width, divisor) = (config.need(&["model_dim"])?, config.need(&["ffn_dim_divisor"])?.max(1));
    let rounded = |factor: f64| {
        let wanted = factor * f64::from(width);
        let mut size = divisor.max((wanted + f64::from(divisor / 2)) as u32 / divisor * divisor);
        if f64::from(size) < 0.9 * wanted {
            size += divisor;
        }
        size as i32
    };
    Ok(factors.iter().map(|factor| rounded(factor.as_f64().unwrap_or(0.0))).collect())
}

/// Returns a list with one number per layer.
fn list(config: &Config, name: &str) -> Result<Vec<i32>> {
    let list =
        config.get(name).and_then(|list| list.as_array()).with_context(|| format!("config.json has no {name}"))?;
    let list: Option<Vec<i32>> = list.iter().map(|n| i32::try_from(n.as_i64()?).ok()).collect();
    list.with_context(|| format!("{name} in config.json is not a list of numbers"))
}

fn openelm(keys: &mut Keys<'_>) -> Result<()> {
    let c = keys.config;
    ensure!(
        c.flag("ffn_with_glu") != Some(false) && c.flag("normalize_qk_projections") != Some(false),
        "ffn_with_glu or normalize_qk_projections in config.json is false, which is not supported"
    );
    let head = c.need(&["head_dim"])?;
    keys.number("block_count", &["num_transformer_layers"])?;
    keys.number("context_length", &["max_context_length"])?;
    keys.number("embedding_length", &["model_dim"])?;
    keys.set("feed_forward_length", Meta::array(openelm_widths(c)?));
    keys.set("attention.head_count", Meta::array(list(c, "num_query_heads")?));
    keys.set("attention.head_count_kv", Meta::array(list(c, "num_kv_heads")?));
    keys.float("rope.freq_base", &["rope_freq_constant"])?;
    keys.set("attention.layer_norm_rms_epsilon", 1e-6f32);
    keys.set("rope.dimension_count", head);
    keys.key_length(head);
    Ok(())
}

fn deci(keys: &mut Keys<'_>) -> Result<()> {
    let c = keys.config;
    let Some(blocks) = c.get("block_configs").and_then(|blocks| blocks.as_array()) else {
        llama::keys(keys)?;
        if c.get("num_key_value_heads_per_layer").is_some() {
            keys.set("attention.head_count_kv", Meta::array(list(c, "num_key_value_heads_per_layer")?));
        }
        return Ok(());
    };
    let (heads, width) = (c.need(&["num_attention_heads"])? as i32, c.need(&["hidden_size"])?);
    let (mut own, mut shared, mut wide) = (Vec::new(), Vec::new(), Vec::new());
    for block in blocks {
        let group = block["attention"]["n_heads_in_group"].as_i64().map(|group| group.max(1) as i32);
        let linear = block["attention"]["replace_with_linear"].as_bool() == Some(true);
        own.push(if group.is_some() || linear { heads } else { 0 });
        shared.push(group.map_or(0, |group| heads / group));
        let factor = block["ffn"]["ffn_mult"].as_f64().unwrap_or(0.0);
        wide.push(((2.0 * factor * f64::from(width) / 3.0) as u32).next_multiple_of(256) as i32);
    }
    if let Some(base) = c.rope_float("rope_theta") {
        keys.set("rope.freq_base", base as f32);
    }
    keys.set("attention.head_count_kv", Meta::array(shared));
    keys.set("attention.head_count", Meta::array(own));
    keys.set("feed_forward_length", Meta::array(wide));
    keys.block_count()?;
    keys.number("context_length", &["max_position_embeddings"])?;
    keys.number("embedding_length", &["hidden_size"])?;
    keys.float("attention.layer_norm_rms_epsilon", &["rms_norm_eps"])?;
    let head = c.head_width()? as u32;
    keys.key_length(head);
    keys.vocab_size()?;
    keys.set("rope.dimension_count", head);
    Ok(())
}

#[rustfmt::skip]
pub const ALL: &[Family] = &[
    Family {
        classes: &["InternLM2ForCausalLM"],
        architecture: "internlm2",
        names: &[&[
            ("tok_embeddings", "token_embd", same),
            ("output", "output", same),
            ("attention_norm", "attn_norm", same),
            ("ffn_norm", "ffn_norm", same),
            ("attention.wqkv", "attn_q attn_k attn_v", grouped_rotated),
            ("attention.wo", "attn_output", same),
            ("feed_forward.w1", "ffn_gate", same),
            ("feed_forward.w2", "ffn_down", same),
            ("feed_forward.w3", "ffn_up", same),
        ]],
        ..Family::PLAIN
    },
    Family {
        classes: &["XverseForCausalLM"],
        architecture: "xverse",
        names: &[ROTATED],
        keys: original,
        ..Family::PLAIN
    },
    Family {
        classes: &["BaichuanForCausalLM", "BaiChuanForCausalLM"],
        architecture: "baichuan",
        names: &[&[("self_attn.W_pack", "attn_q attn_k attn_v", thirds_rotated)]],
        keys: original,
        ..Family::PLAIN
    },
    Family {
        classes: &["OrionForCausalLM"],
        architecture: "orion",
        keys: |k| {
            k.set("tensor_data_layout", "Meta AI original pth");
            k.number("context_length", &["max_sequence_length", "max_position_embeddings", "model_max_length"])?;
            k.number("embedding_length", &["hidden_size"])?;
            k.block_count()?;
            k.number("feed_forward_length", &["intermediate_size"])?;
            k.number("attention.head_count", &["num_attention_heads"])?;
            k.number("attention.head_count_kv", &["num_key_value_heads", "num_attention_heads"])?;
            k.float("attention.layer_norm_epsilon", &["rms_norm_eps"])
        },
        ..Family::PLAIN
    },
    Family {
        classes: &["MiniCPMForCausalLM"],
        architecture: "minicpm",
        names: &[ROTATED],
        keys: minicpm,
        made: super::gpt::long_factors,
        ..Family::PLAIN
    },
    Family {
        classes: &["GlmForCausalLM", "ChatGLMModel", "ChatGLMForConditionalGeneration"],
        architecture: "chatglm",
        names: &[&[
            ("embedding.word_embeddings", "token_embd", same),
            ("encoder.final_layernorm", "output_norm", same),
            ("output_layer", "output", same),
            ("rotary_pos_emb.inv_freq", "", same),
            ("self_attention.query_key_value", "attn_qkv", same),
            ("self_attention.dense", "attn_output", same),
            ("mlp.dense_h_to_4h", "ffn_up", same),
            ("mlp.dense_4h_to_h", "ffn_down", same),
            ("mlp.gate_up_proj", "ffn_up", same),
        ]],
        keys: chatglm,
        vocabulary: Vocabulary { adds: &[("add_bos_token", false)], ..Vocabulary::PLAIN },
        ..Family::PLAIN
    },
    Family {
        classes: &["QWenLMHeadModel"],
        architecture: "qwen",
        names: &[&[
            ("attn.c_attn", "attn_qkv", same),
            ("mlp.w1", "ffn_up", same),
            ("mlp.w2", "ffn_gate", same),
        ], GPT],
        keys: |k| {
            k.common()?;
            k.float("attention.layer_norm_rms_epsilon", &["layer_norm_epsilon"])
        },
        ..Family::PLAIN
    },
    Family {
        classes: &["GPTRefactForCausalLM"],
        architecture: "refact",
        names: &[&[
            ("attn.q", "attn_q", same),
            ("attn.kv", "attn_k attn_v", keys_and_values),
            ("mlp.gate_up_proj", "ffn_gate ffn_up", halves),
        ], GPT],
        keys: |k| {
            let width = k.config.need(&["n_embd"])?;
            k.number("context_length", &["n_positions"])?;
            k.set("embedding_length", width);
            k.set("feed_forward_length", (8 * width / 3).next_multiple_of(256));
            k.block_count()?;
            k.number("attention.head_count", &["n_head"])?;
            k.set("attention.head_count_kv", 1u32);
            k.float("attention.layer_norm_rms_epsilon", &["layer_norm_epsilon"])
        },
        vocabulary: Vocabulary {
            ids: &[("prefix_token_id", 1), ("suffix_token_id", 3), ("middle_token_id", 2)],
            ..Vocabulary::PLAIN
        },
        ..Family::PLAIN
    },
    Family {
        classes: &["PlamoForCausalLM"],
        architecture: "plamo",
        names: &[&[
            ("blk.norm", "attn_norm", same),
            ("self_attn.q_proj", "attn_q", tiled_rows),
            ("self_attn.o_proj", "attn_output", tiled_columns),
        ]],
        keys: |k| {
            k.set("context_length", k.config.number(&["max_position_embeddings"])?.unwrap_or(4096));
            k.number("embedding_length", &["hidden_size"])?;
            k.number("feed_forward_length", &["intermediate_size"])?;
            k.block_count()?;
            k.number("attention.head_count", &["num_attention_heads"])?;
            k.set("attention.head_count_kv", in_groups_of_heads(k.config)?[0] as u32);
            k.float("attention.layer_norm_rms_epsilon", &["rms_norm_eps"])
        },
        ..Family::PLAIN
    },
    Family {
        classes: &["OpenELMForCausalLM"],
        architecture: "openelm",
        names: &[&[
            ("token_embeddings", "token_embd", same),
            ("attn_norm", "attn_norm", same),
            ("ffn_norm", "ffn_norm", same),
            ("attn.qkv_proj", "attn_qkv", same),
            ("attn.out_proj", "attn_output", same),
            ("attn.q_norm", "attn_q_norm", same),
            ("attn.k_norm", "attn_k_norm", same),
            ("ffn.proj_1", "ffn_gate ffn_up", halves),
            ("ffn.proj_2", "ffn_down", same),
        ]],
        keys: openelm,
        ..Family::PLAIN
    },
    Family {
        classes: &["DeciLMForCausalLM"],
        architecture: "deci",
        names: &[&[
            ("self_attn.q_proj", "attn_q", rotated_heads),
            ("self_attn.k_proj", "attn_k", rotated_heads),
            ("self_attn.linear_attn", "attn_output", same),
        ]],
        keys: deci,
        ..Family::PLAIN
    },
    Family {
        classes: &["NanbeigeForCausalLM"],
        architecture: "nanbeige",
        names: &[ROTATED],
        keys: |k| {
            llama::keys(k)?;
            k.set("num_loops", k.config.number(&["num_loops"])?.unwrap_or(1).max(1));
            k.set("skip_loop_final_norm", k.config.flag("skip_loop_final_norm").unwrap_or(false));
            Ok(())
        },
        ..Family::PLAIN
    },
    Family {
        classes: &["TalkieForCausalLM"],
        architecture: "talkie",
        names: &[&[
            ("embed", "token_embd", same),
            ("attn.attn_query", "attn_q", turned_back),
            ("attn.attn_key", "attn_k", turned_back),
            ("attn.attn_value", "attn_v", same),
            ("attn.attn_resid", "attn_output", same),
            ("attn.head_gain.head_g", "attn_q_norm.weight", by_head),
            ("attn_gain.a_g", "attn_output.scale", same),
            ("mlp.mlp_gate", "ffn_gate", same),
            ("mlp.mlp_linear", "ffn_up", same),
            ("mlp.mlp_resid", "ffn_down", same),
            ("mlp_gain.a_g", "ffn_down.scale", same),
            ("embed_skip.a_g", "layer_output_scale.weight", same),
        ]],
        keys: |k| {
            k.common()?;
            // The machine epsilon of f32 is torch's default for norms.
            k.set("attention.layer_norm_rms_epsilon", f32::EPSILON);
            Ok(())
        },
        scalars: &[("lm_head_gain.w_g", "talkie.logit_scale")],
        ..Family::PLAIN
    },
    Family {
        classes: &["HrmTextForCausalLM"],
        architecture: "hrm_text",
        names: &[&[
            ("z_L_init", "hrm.z_l_init", same),
            ("attn.gqkv_proj", "attn_gate attn_q attn_k attn_v", quarters),
            ("attn.o_proj", "attn_output", same),
            ("mlp.gate_up_proj", "ffn_gate ffn_up", halves),
        ]],
        keys: hrm,
        ..Family::PLAIN
    },
    Family { classes: &["PanguEmbeddedForCausalLM"], architecture: "pangu-embedded", keys: pangu, ..Family::PLAIN },
    Family {
        classes: &["MaincoderForCausalLM"],
        architecture: "maincoder",
        keys: |k| {
            k.common()?;
            k.maybe("rope.dimension_count", &["head_dim"])
        },
        ..Family::PLAIN
    },
    Family {
        classes: &["CogVLMForCausalLM"],
        architecture: "cogvlm",
        names: &[&[
            ("self_attn.language_expert_query_key_value", "attn_qkv", same),
            ("self_attn.language_expert_dense", "attn_output", same),
            ("mlp.language_mlp.gate_proj", "ffn_gate", same),
            ("mlp.language_mlp.up_proj", "ffn_up", same),
            ("mlp.language_mlp.down_proj", "ffn_down", same),
        ]],
        keys: llama::keys,
        ..Family::PLAIN
    },
];
