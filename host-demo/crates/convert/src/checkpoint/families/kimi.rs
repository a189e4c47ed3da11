//! Kimi delta attention: Kimi Linear and Ling 3.

use anyhow::{Result, bail, ensure};

use super::Family;
use super::deepseek::LATENT;
use crate::checkpoint::changes::{latent, same};
use crate::checkpoint::config::Config;
use crate::checkpoint::keys::{Keys, SIGMOID};
use crate::checkpoint::names::{Place, Row};
use crate::checkpoint::view::{Step, View};
use arenite_gguf_writer::Meta;

/// Reshapes a convolution of the channels of queries, keys or values to four dimensions.
fn channels<'f>(_: &Config, view: View<'f>) -> Result<Vec<View<'f>>> {
    let (rows, len) = (view.size(0)?, view.len());
    Ok(vec![view.reshape(&[1, rows, 1, len.checked_div(rows).unwrap_or(0)])?])
}

/// Computes rates of decay from their logarithms.
fn rates<'f>(_: &Config, view: View<'f>) -> Result<Vec<View<'f>>> {
    let len = view.len();
    Ok(vec![view.then(Step::NegativeExp).reshape(&[1, 1, len, 1])?])
}

/// Computes the absolute values of the [`rates`], as a column.
fn positive_rates<'f>(_: &Config, view: View<'f>) -> Result<Vec<View<'f>>> {
    let len = view.len();
    Ok(vec![view.then(Step::NegativeExp).then(Step::Times(-1.0)).reshape(&[len, 1])?])
}

#[rustfmt::skip]
const KIMI: &[Row] = &[
    ("self_attn.A_log", "ssm_a", rates),
    ("self_attn.dt_bias", "ssm_dt.bias", same),
    ("self_attn.q_conv1d", "ssm_conv1d_q", channels),
    ("self_attn.k_conv1d", "ssm_conv1d_k", channels),
    ("self_attn.v_conv1d", "ssm_conv1d_v", channels),
    ("self_attn.f_a_proj", "ssm_f_a", same),
    ("self_attn.f_b_proj", "ssm_f_b", same),
    ("self_attn.g_a_proj", "ssm_g_a", same),
    ("self_attn.g_b_proj", "ssm_g_b", same),
    ("self_attn.b_proj", "ssm_beta", same),
    ("self_attn.o_norm", "ssm_norm", same),
    ("block_sparse_moe.gate.e_score_correction_bias", "exp_probs_b.bias", same),
    // The feed-forward of dense layers has these names, too, although they belong to layers with experts: transformers
    // saves it under the names of experts.
    ("block_sparse_moe.gate_proj", "ffn_gate", same),
    ("block_sparse_moe.up_proj", "ffn_up", same),
    ("block_sparse_moe.down_proj", "ffn_down", same),
    ("block_sparse_moe.shared_experts.gate_proj", "ffn_gate_shexp", same),
    ("block_sparse_moe.shared_experts.up_proj", "ffn_up_shexp", same),
    ("block_sparse_moe.shared_experts.down_proj", "ffn_down_shexp", same),
];

#[rustfmt::skip]
const LING: &[Row] = &[
    ("word_embeddings", "token_embd", same),
    ("attention.q_proj", "attn_q", same),
    ("attention.k_proj", "attn_k", same),
    ("attention.v_proj", "attn_v", same),
    ("attention.o_proj", "attn_output", same),
    ("attention.dense", "attn_output", same),
    ("attention.q_a_proj", "attn_q_a", same),
    ("attention.q_a_layernorm", "attn_q_a_norm", same),
    ("attention.q_b_proj", "attn_q_b", same),
    ("attention.kv_a_proj_with_mqa", "attn_kv_a_mqa", same),
    ("attention.kv_a_layernorm", "attn_kv_a_norm", same),
    ("attention.kv_b_proj", "attn_k_b attn_v_b", latent),
    ("attention.A_log", "ssm_a", positive_rates),
    ("attention.dt_bias", "ssm_dt.bias", same),
    ("attention.q_conv1d", "ssm_conv1d_q", channels),
    ("attention.k_conv1d", "ssm_conv1d_k", channels),
    ("attention.v_conv1d", "ssm_conv1d_v", channels),
    ("attention.f_proj", "ssm_f_a", same),
    ("attention.g_proj", "attn_gate ssm_g_a", gates),
    ("attention.b_proj", "ssm_beta", same),
    ("attention.o_norm", "ssm_norm", same),
    ("mlp.gate.expert_bias", "exp_probs_b.bias", same),
];

/// Stores the gates under the name of attention's gates in layers with attention, and under the name of the delta net's
/// gates in all other layers.
fn gates<'f>(config: &Config, view: View<'f>) -> Result<Vec<View<'f>>> {
    let layer = Place::of(view.name()).number.unwrap_or(0);
    let none = view.clone().nothing();
    Ok(if has_attention(config)?(layer) { vec![view, none] } else { vec![none, view] })
}

/// Returns a function that tells whether a layer of Ling has attention. These are the last layer of each group, and all
/// layers after the last whole group.
fn has_attention(config: &Config) -> Result<impl Fn(usize) -> bool + use<>> {
    let (layers, group) = (config.layers()?, config.size(&["layer_group_size"])?);
    ensure!(group > 0, "layer_group_size in config.json is 0");
    Ok(move |layer: usize| (layer + 1).is_multiple_of(group) || layer >= layers / group * group)
}

/// Writes the sizes of latent attention, and which layers have it.
fn latent_keys(keys: &mut Keys<'_>, attention: &[bool]) -> Result<()> {
    let c = keys.config;
    keys.set("attention.head_count_kv", Meta::array(attention.iter().map(|has| i32::from(*has))));
    keys.vocab_size()?;
    keys.maybe("attention.q_lora_rank", &["q_lora_rank"])?;
    let (rank, turned) = (c.need(&["kv_lora_rank"])?, c.need(&["qk_rope_head_dim"])?);
    keys.set("attention.kv_lora_rank", rank);
    keys.set("rope.dimension_count", turned);
    keys.set("attention.key_length", rank + turned);
    keys.set("attention.key_length_mla", c.need(&["qk_nope_head_dim"])? + turned);
    keys.number("attention.value_length_mla", &["v_head_dim"])?;
    keys.number("expert_feed_forward_length", &["moe_intermediate_size"])?;
    keys.set("leading_dense_block_count", c.leading_dense()?.unwrap_or(0));
    keys.float("expert_weights_scale", &["routed_scaling_factor"])
}

fn kimi(keys: &mut Keys<'_>) -> Result<()> {
    keys.common()?;
    let c = keys.config;
    if let Some(groups) = c.number(&["num_expert_group"])?.filter(|groups| *groups > 1) {
        keys.set("expert_group_count", groups);
    }
    // The convolutions have this activation, too.
    c.only("hidden_act", &"silu".into())?;
    // The model's own code nests the settings of the delta net; transformers' class does not.
    let nested = c.get("linear_attn_config");
    let kinds = c.texts("layer_types");
    let attention: Vec<bool> = match (nested.and_then(|nested| nested["full_attn_layers"].as_array()), kinds) {
        (_, Some(kinds)) => kinds.iter().map(|kind| *kind == "full_attention").collect(),
        (Some(numbers), None) => (1..=c.layers()?).map(|layer| numbers.contains(&layer.into())).collect(),
        (None, None) => bail!("config.json has no layer_types and no full_attn_layers in linear_attn_config"),
    };
    latent_keys(keys, &attention)?;
    for (key, name, own) in [
        ("ssm.conv_kernel", "short_conv_kernel_size", "linear_conv_kernel_dim"),
        ("kda.head_dim", "head_dim", "linear_head_dim"),
    ] {
        match nested.and_then(|nested| nested[name].as_u64()) {
            Some(number) => keys.set(key, number as u32),
            None => keys.maybe(key, &[own])?,
        }
    }
    keys.set("expert_shared_count", c.number(&["num_shared_experts"])?.unwrap_or(1));
    keys.set("expert_gating_func", SIGMOID);
    // llama.cpp divides the weights by their sum in any case, so the key is written only if it is false.
    if [c.flag("moe_renormalize"), c.flag("norm_topk_prob")].contains(&Some(false)) {
        keys.set("expert_weights_norm", false);
    }
    Ok(())
}

fn ling(keys: &mut Keys<'_>) -> Result<()> {
    keys.common()?;
    let c = keys.config;
    let flag = |name: &str| c.flag(name) == Some(true);
    ensure!(flag("no_kda_lora"), "no_kda_lora in config.json is not true: not supported");
    ensure!(flag("kda_safe_gate"), "kda_safe_gate in config.json is not true: not supported");
    ensure!(
        c.text("gated_attention_proj_granularity_type") == Some("head_wise"),
        "gated_attention_proj_granularity_type in config.json is not head_wise: not supported"
    );
    for name in ["expert_swiglu_limit_list", "share_expert_swiglu_limit_list"] {
        let limits = c.get(name).and_then(|list| list.as_array());
        let has_limit = limits.into_iter().flatten().any(|limit| limit.as_f64().is_some_and(|limit| limit != 0.0));
        ensure!(!has_limit, "{name} in config.json has limits: not supported");
    }
    let has_attention = has_attention(c)?;
    let attention: Vec<bool> = (0..c.layers()?).map(has_attention).collect();
    latent_keys(keys, &attention)?;
    keys.number("ssm.conv_kernel", &["short_conv_kernel_size"])?;
    keys.number("kda.head_dim", &["head_dim"])?;
    keys.set("kda.safe_gate", true);
    keys.float("kda.gate_lower_bound", &["kda_lower_bound"])?;
    keys.number("expert_shared_feed_forward_length", &["moe_shared_expert_intermediate_size"])?;
    keys.set("expert_shared_count", c.number(&["num_shared_experts"])?.unwrap_or(1));
    keys.flag("expert_weights_norm", "norm_topk_prob");
    if keys.config.find(&["score_function", "scoring_func", "score_func", "moe_router_activation_func"]).is_none() {
        keys.set("expert_gating_func", SIGMOID);
    }
    Ok(())
}

#[rustfmt::skip]
pub const ALL: &[Family] = &[
    Family {
        classes: &["KimiLinearForCausalLM", "KimiLinearModel"],
        architecture: "kimi-linear",
        names: &[KIMI, LATENT],
        keys: kimi,
        ..Family::PLAIN
    },
    Family {
        classes: &["BailingMoeV3ForCausalLM"],
        architecture: "bailingmoe3",
        names: &[LING],
        keys: ling,
        ..Family::PLAIN
    },
];
