//! Granite 3 and 4: dense, with experts, and hybrids of attention and Mamba 2.

use anyhow::{Context, Result};

use super::llama::{self, ROTATED};
use super::recurrent::MAMBA2;
use super::{Family, Vocabulary};
use crate::checkpoint::changes::{halves, same};
use crate::checkpoint::config::Config;
use crate::checkpoint::keys::Keys;
use crate::checkpoint::names::Row;
use arenite_gguf_writer::Meta;

#[rustfmt::skip]
const EXPERTS: &[Row] = &[
    ("block_sparse_moe.input_linear", "ffn_gate_exps ffn_up_exps", halves),
    ("block_sparse_moe.output_linear", "ffn_down_exps", same),
    ("block_sparse_moe.router.layer", "ffn_gate_inp", same),
];

#[rustfmt::skip]
const SHARED: &[Row] = &[
    ("shared_mlp.input_linear", "ffn_gate_shexp ffn_up_shexp", halves),
    ("shared_mlp.output_linear", "ffn_down_shexp", same),
];

/// Names of the shared feed-forward's tensors in a model without experts, whose only feed-forward it is.
#[rustfmt::skip]
const ALONE: &[Row] = &[
    ("shared_mlp.input_linear", "ffn_gate ffn_up", halves),
    ("shared_mlp.output_linear", "ffn_down", same),
];

fn scales(keys: &mut Keys<'_>) -> Result<()> {
    keys.factor("attention.scale", "attention_multiplier")?;
    keys.factor("embedding_scale", "embedding_multiplier")?;
    keys.factor("residual_scale", "residual_multiplier")?;
    keys.factor("logit_scale", "logits_scaling")
}

fn dense(keys: &mut Keys<'_>) -> Result<()> {
    llama::keys(keys)?;
    scales(keys)
}

pub fn experts(keys: &mut Keys<'_>) -> Result<()> {
    dense(keys)?;
    if let Some(width) = keys.config.number(&["shared_intermediate_size"])?.filter(|width| *width > 0) {
        keys.set("expert_shared_feed_forward_length", width);
    }
    Ok(())
}

/// Returns true for each layer with attention.
fn attention(config: &Config) -> Result<Vec<bool>> {
    let layers = config.layers()?;
    if let Some(types) = config.texts("layer_types").or(config.texts("layers_block_type")) {
        return Ok(types.iter().map(|kind| matches!(*kind, "attention" | "full_attention")).collect());
    }
    if let Some(list) = config.get("attn_layer_indices").and_then(|list| list.as_array()) {
        return Ok((0..layers).map(|layer| list.iter().any(|at| at.as_u64() == Some(layer as u64))).collect());
    }
    let (period, offset) = (config.number(&["attn_layer_period"])?, config.number(&["attn_layer_offset"])?);
    let (period, offset) = period.zip(offset).context("config.json does not say which layers are attention")?;
    Ok((0..layers).map(|layer| layer as u32 % period.max(1) == offset).collect())
}

fn hybrid(keys: &mut Keys<'_>) -> Result<()> {
    experts(keys)?;
    let c = keys.config;
    let attention = attention(c)?;
    if c.experts()? == 0 {
        keys.maybe("feed_forward_length", &["shared_intermediate_size"])?;
    }
    keys.number("ssm.conv_kernel", &["mamba_d_conv", "conv_kernel", "d_conv"])?;
    keys.number("ssm.state_size", &["mamba_d_state", "state_size", "d_state", "ssm_state_size"])?;
    keys.number("ssm.group_count", &["mamba_n_groups", "n_groups"])?;
    let inner = c.need(&["mamba_expand", "expand"])? * c.need(&["hidden_size"])?;
    keys.set("ssm.inner_size", inner);
    keys.number("ssm.time_step_rank", &["mamba_n_heads", "n_heads", "mamba_num_heads"])?;
    let heads = c.need(&["num_key_value_heads"])? as i32;
    keys.set("attention.head_count_kv", Meta::array(attention.iter().map(|is| if *is { heads } else { 0 })));
    keys.maybe("rope.dimension_count", &["attn_rotary_emb"])?;
    let turns = match c.text("position_embedding_type") {
        Some(kind) => kind == "rope",
        None => c.classes().contains(&"BambaForCausalLM"),
    };
    keys.set("rope.scaling.finetuned", turns);
    if !turns {
        keys.set("context_length", 1u32 << 20);
    }
    Ok(())
}

/// Returns the architecture for a hybrid model whose layers all have attention; `None` if a layer has a recurrent state
/// instead.
fn without_states(config: &Config) -> Option<&'static str> {
    let only = attention(config).ok()?.iter().all(|is| *is);
    let experts = config.number(&["num_experts_per_tok"]).ok()?.unwrap_or(0) > 0;
    only.then_some(if experts { "granitemoe" } else { "granite" })
}

#[rustfmt::skip]
pub const ALL: &[Family] = &[
    Family {
        classes: &["GraniteForCausalLM"],
        architecture: "granite",
        names: &[ROTATED],
        keys: dense,
        ..Family::PLAIN
    },
    Family {
        classes: &["GraniteMoeForCausalLM", "GraniteMoeSharedForCausalLM"],
        architecture: "granitemoe",
        names: &[ROTATED, EXPERTS, SHARED],
        keys: experts,
        ..Family::PLAIN
    },
    Family {
        classes: &["GraniteMoeHybridForCausalLM"],
        architecture: "granitehybrid",
        variant: without_states,
        names: &[ROTATED, EXPERTS, SHARED, MAMBA2],
        keys: hybrid,
        vocabulary: Vocabulary { multiple: 8, ..Vocabulary::PLAIN },
        ..Family::PLAIN
    },
];

/// Tensor names of a model without experts.
pub const WITHOUT_EXPERTS: &[&[Row]] = &[ROTATED, ALONE, MAMBA2];
