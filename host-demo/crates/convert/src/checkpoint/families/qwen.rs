//! Qwen 2 to 3.5.

use anyhow::{Result, ensure};

use super::Family;
use crate::checkpoint::changes::{
    decay, delta_columns, delta_decay, delta_groups, delta_heads, delta_qkv, delta_values, plus_one, same, squeezed,
};
use crate::checkpoint::config::{Config, JOINT_DECODER};
use crate::checkpoint::keys::Keys;
use crate::checkpoint::names::{EXPERTS_EITHER_WAY, Row};
use arenite_gguf_writer::Meta;

/// Norm weights that are stored relative to one.
#[rustfmt::skip]
const SHORT_NORMS: &[Row] = &[
    ("norm", "output_norm", plus_one),
    ("input_layernorm", "attn_norm", plus_one),
    ("post_attention_layernorm", "post_attention_norm", plus_one),
    ("self_attn.q_norm", "attn_q_norm", plus_one),
    ("self_attn.k_norm", "attn_k_norm", plus_one),
    ("fc", "nextn.eh_proj", same),
    ("pre_fc_norm_embedding", "nextn.enorm", plus_one),
    ("pre_fc_norm_hidden", "nextn.hnorm", plus_one),
    ("blk.norm", "nextn.shared_head_norm", plus_one),
];

#[rustfmt::skip]
const DELTA: &[Row] = &[
    ("linear_attn.norm", "ssm_norm", same),
    ("linear_attn.in_proj_qkv", "attn_qkv attn_qkv", delta_qkv),
    ("linear_attn.in_proj_z", "attn_gate", delta_values),
    ("linear_attn.in_proj_a", "ssm_alpha", delta_heads),
    ("linear_attn.in_proj_b", "ssm_beta", delta_heads),
    ("linear_attn.A_log", "ssm_a", delta_decay),
    ("linear_attn.dt_bias", "ssm_dt.bias", delta_heads),
    ("linear_attn.conv1d", "ssm_conv1d ssm_conv1d", delta_qkv),
    ("linear_attn.out_proj", "ssm_out", delta_columns),
];

/// Tensor names of Qwen 3 Next, whose value heads are grouped by key head.
#[rustfmt::skip]
const NEXT: &[Row] = &[
    ("linear_attn.norm", "ssm_norm", same),
    ("linear_attn.in_proj_qkvz", "attn_qkv attn_qkv attn_qkv attn_gate", delta_groups),
    ("linear_attn.in_proj_ba", "ssm_ba", same),
    ("linear_attn.A_log", "ssm_a", decay),
    ("linear_attn.dt_bias", "ssm_dt.bias", same),
    ("linear_attn.conv1d", "ssm_conv1d", squeezed),
    ("linear_attn.out_proj", "ssm_out", same),
];

/// Writes the common keys. Refuses an attention window that has an effect, because GGUF defines no windows for these
/// architectures.
fn plain(keys: &mut Keys<'_>) -> Result<()> {
    let c = keys.config;
    let window = c.number(&["sliding_window"])?.zip(c.number(&["max_position_embeddings"])?);
    let is_short = window.is_none_or(|(window, context)| window < context);
    let types = c.texts("layer_types").unwrap_or_default();
    let first = c.number(&["max_window_layers"])?.unwrap_or(0) as usize;
    let has_local = types.contains(&"sliding_attention") || types.is_empty() && first < c.layers()?;
    ensure!(
        c.flag("use_sliding_window") != Some(true) || !is_short || !has_local,
        "use_sliding_window in config.json is true: windows are not supported in this family"
    );
    keys.common()
}

fn experts(keys: &mut Keys<'_>) -> Result<()> {
    plain(keys)?;
    // llama.cpp divides the weights of experts by their sum in every architecture that uses this function, except
    // qwen2moe.
    keys.normed_weights(keys.architecture != "qwen2moe");
    keys.maybe("expert_feed_forward_length", &["moe_intermediate_size"])?;
    keys.maybe("expert_shared_feed_forward_length", &["shared_expert_intermediate_size"])
}

fn delta(keys: &mut Keys<'_>) -> Result<()> {
    let c = keys.config;
    keys.number("ssm.conv_kernel", &["linear_conv_kernel_dim"])?;
    keys.number("ssm.state_size", &["linear_key_head_dim"])?;
    keys.number("ssm.group_count", &["linear_num_key_heads"])?;
    keys.number("ssm.time_step_rank", &["linear_num_value_heads"])?;
    keys.set("ssm.inner_size", c.need(&["linear_value_head_dim"])? * c.need(&["linear_num_value_heads"])?);
    keys.recurrent_layers(0);
    let interval = c.number(&["full_attention_interval"])?.unwrap_or_else(|| interval(c));
    keys.set("full_attention_interval", interval);
    keys.rope_dimensions(0.25)
}

/// Returns the distance from one layer with attention to the next. It is computed from the list of layers.
fn interval(config: &Config) -> u32 {
    let types = config.texts("layer_types").unwrap_or_default();
    types.iter().position(|kind| *kind == "full_attention").map_or(4, |first| first as u32 + 1)
}

fn sections(keys: &mut Keys<'_>) -> Result<()> {
    if keys.config.rope_outer("mrope_section").is_none() {
        keys.set("rope.dimension_sections", Meta::array([11i32, 11, 10, 0]));
    }
    Ok(())
}

fn deepstack(keys: &mut Keys<'_>) {
    let layers = keys.config.get("vision_config").and_then(|vision| vision["deepstack_visual_indexes"].as_array());
    keys.set("n_deepstack_layers", layers.map_or(0, Vec::len) as u32);
}

#[rustfmt::skip]
pub const ALL: &[Family] = &[
    Family { classes: &["Qwen2ForCausalLM", "Qwen2Model", "KORMoForCausalLM", "DotsOCRForCausalLM", "Qwen2AudioForConditionalGeneration", "AudioFlamingo3ForConditionalGeneration"], architecture: "qwen2", keys: plain, ..Family::PLAIN },
    Family {
        classes: &["Qwen3ForCausalLM", "Qwen3Model"],
        architecture: "qwen3",
        keys: plain,
        ..Family::PLAIN
    },
    Family {
        classes: &["Qwen2MoeForCausalLM"],
        architecture: "qwen2moe",
        keys: experts,
        ..Family::PLAIN
    },
    Family {
        classes: &["Qwen3MoeForCausalLM"],
        architecture: "qwen3moe",
        keys: experts,
        ..Family::PLAIN
    },
    Family {
        classes: &["Qwen2VLForConditionalGeneration", "Qwen2VLModel", "Qwen2_5_VLForConditionalGeneration", "Qwen2_5OmniModel"],
        architecture: "qwen2vl",
        keys: plain,
        ..Family::PLAIN
    },
    Family {
        classes: &["Qwen3VLForConditionalGeneration", "Qwen3ASRForConditionalGeneration"],
        architecture: "qwen3vl",
        keys: |k| {
            plain(k)?;
            deepstack(k);
            Ok(())
        },
        ..Family::PLAIN
    },
    Family {
        classes: &["Qwen3VLMoeForConditionalGeneration", "Qwen3OmniMoeForConditionalGeneration"],
        architecture: "qwen3vlmoe",
        names: &[EXPERTS_EITHER_WAY],
        keys: |k| {
            experts(k)?;
            deepstack(k);
            Ok(())
        },
        ..Family::PLAIN
    },
    Family {
        classes: &["Qwen3NextForCausalLM"],
        architecture: "qwen3next",
        predicts: true,
        names: &[SHORT_NORMS, NEXT],
        keys: |k| {
            experts(k)?;
            delta(k)
        },
        ..Family::PLAIN
    },
    Family {
        classes: &["Qwen3_5ForCausalLM", "Qwen3_5ForConditionalGeneration"],
        architecture: "qwen35",
        predicts: true,
        names: &[SHORT_NORMS, DELTA],
        keys: hybrid,
        ..Family::PLAIN
    },
    // The decoder of Qwen 3.5; its head is in another file.
    Family {
        classes: &[JOINT_DECODER],
        architecture: "clef",
        names: &[SHORT_NORMS, DELTA],
        keys: hybrid,
        ..Family::PLAIN
    },
    Family {
        classes: &["Qwen3_5MoeForCausalLM", "Qwen3_5MoeForConditionalGeneration"],
        architecture: "qwen35moe",
        predicts: true,
        names: &[SHORT_NORMS, DELTA],
        keys: |k| {
            experts(k)?;
            delta(k)?;
            sections(k)
        },
        ..Family::PLAIN
    },
];

/// The keys of Qwen 3.5.
fn hybrid(k: &mut Keys<'_>) -> Result<()> {
    k.common()?;
    delta(k)?;
    sections(k)
}
