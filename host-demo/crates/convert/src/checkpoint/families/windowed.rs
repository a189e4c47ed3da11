//! Families whose local layers differ from the global layers not only in the window.

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::llama::ROTATED;
use super::{Family, Made};
use crate::checkpoint::changes::{plus_eleventh, plus_fifth, plus_one, rotated_k, rotated_q, same, squeezed};
use crate::checkpoint::config::Config;
use crate::checkpoint::keys::{Keys, SIGMOID};
use crate::checkpoint::names::Row;
use arenite_gguf_writer::Meta;

/// Returns a list with one entry per layer: true for local layers.
fn local(config: &Config) -> Result<Vec<bool>> {
    let types = config.texts("layer_types").context("config.json has no layer_types")?;
    Ok(types.iter().map(|kind| *kind == "sliding_attention").collect())
}

/// For families that list rotary settings for global layers and for local layers: writes the numbers of rotated
/// elements of both.
fn rotated(keys: &mut Keys<'_>) -> Result<()> {
    let c = keys.config;
    let head = c.head_width()? as f64;
    let share = |part: Option<&Value>| part.and_then(|part| part["partial_rotary_factor"].as_f64()).unwrap_or(1.0);
    keys.set("rope.dimension_count", (head * share(c.rope_outer("full_attention"))) as u32);
    if let Some(part) = c.rope_outer("sliding_attention") {
        keys.set("rope.dimension_count_swa", (head * share(Some(part))) as u32);
    }
    Ok(())
}

fn granite(keys: &mut Keys<'_>) -> Result<()> {
    super::granite::experts(keys)?;
    let c = keys.config;
    keys.set("attention.sliding_window", c.number(&["sliding_window"])?.unwrap_or(128));
    let local = match c.get("layer_types") {
        Some(_) => local(c)?,
        None => (0..c.layers()?).map(|layer| layer % 4 != 0).collect(),
    };
    keys.set("attention.sliding_window_pattern", Meta::array(local));
    let bases = c.get("layer_rope_theta").and_then(|bases| bases.as_array());
    let is_same = |base: &Value| base.as_f64() == c.rope_float("rope_theta");
    ensure!(
        bases.is_none_or(|bases| bases.iter().all(is_same)),
        "layer_rope_theta in config.json differs from rope_theta: not supported"
    );
    if let Some(list) = c.get("no_rope_layers").and_then(|list| list.as_array()).filter(|list| !list.is_empty()) {
        let rotated = list.iter().map(|layer| layer.as_bool().unwrap_or(layer.as_u64() != Some(0)));
        keys.set("rope.pattern", Meta::array(rotated));
    }
    Ok(())
}

fn cohere(keys: &mut Keys<'_>) -> Result<()> {
    keys.common()?;
    let c = keys.config;
    keys.float("logit_scale", &["logit_scale"])?;
    keys.window()?;
    keys.vocab_size()?;
    let width = c.need(&["intermediate_size"])?;
    keys.set("expert_feed_forward_length", width);
    keys.set("leading_dense_block_count", c.leading_dense()?.unwrap_or(0));
    // `expert_weights_norm` also stands for a softmax over only the chosen experts, because dividing the weights by
    // their sum gives the same weights.
    let is_softmax = c.text("expert_selection_fn") == Some("softmax");
    keys.set("expert_weights_norm", is_softmax || c.flag("norm_topk_prob").unwrap_or(false));
    if let Some(shared) = c.number(&["num_shared_experts"])?.filter(|shared| *shared > 0) {
        c.only("shared_expert_combination_strategy", &Value::from("average"))?;
        keys.set("expert_shared_count", shared);
        keys.set("expert_shared_feed_forward_length", width * shared);
    }
    keys.number("rope.dimension_count", &["head_dim"])?;
    keys.unscaled();
    Ok(())
}

fn laguna(keys: &mut Keys<'_>) -> Result<()> {
    keys.common()?;
    let c = keys.config;
    ensure!(
        c.float(&["moe_router_logit_softcapping"])?.is_none_or(|cap| cap == 0.0)
            && c.flag("moe_apply_router_weight_on_input") != Some(true),
        "moe_router_logit_softcapping or moe_apply_router_weight_on_input in config.json is not supported"
    );
    keys.vocab_size()?;
    let heads = c.need(&["num_attention_heads"])? as i32;
    let heads = match c.get("num_attention_heads_per_layer").and_then(|list| list.as_array()) {
        Some(list) => list.iter().map(|n| n.as_i64().unwrap_or(0) as i32).collect(),
        None => vec![heads; c.layers()?],
    };
    keys.set("attention.head_count", Meta::array(heads));
    if let Some(window) = c.number(&["sliding_window"])?.filter(|window| *window > 0) {
        keys.set("attention.sliding_window", window);
        let local = local(c)?;
        // In the default pattern, one global layer comes before every three local layers.
        if local.iter().enumerate().any(|(layer, local)| *local != (layer % 4 != 0)) {
            keys.set("attention.sliding_window_pattern", Meta::array(local));
        }
    }
    keys.number("expert_feed_forward_length", &["moe_intermediate_size"])?;
    keys.number("expert_shared_feed_forward_length", &["shared_expert_intermediate_size"])?;
    keys.set("expert_weights_norm", true);
    keys.set("expert_weights_scale", c.float(&["moe_routed_scaling_factor"])?.unwrap_or(1.0));
    keys.set("expert_gating_func", SIGMOID);
    keys.leading_dense()?;
    rotated(keys)
}

fn mimo(keys: &mut Keys<'_>) -> Result<()> {
    keys.common()?;
    let c = keys.config;
    for (name, other) in [
        ("swa_head_dim", "head_dim"),
        ("swa_num_attention_heads", "num_attention_heads"),
        ("swa_v_head_dim", "v_head_dim"),
    ] {
        ensure!(
            c.get(name).is_none_or(|value| c.get(other) == Some(value)),
            "{name} in config.json is not {other}: not supported"
        );
    }
    let pattern = match c.get("hybrid_layer_pattern").and_then(|list| list.as_array()) {
        Some(list) => list.iter().map(|layer| layer.as_i64().unwrap_or(0) as i32).collect(),
        None => local(c)?.into_iter().map(i32::from).collect::<Vec<_>>(),
    };
    let all = c.need(&["num_key_value_heads"])? as i32;
    // transformers' own class gives local layers twice as many heads, and counts the token itself in its windows.
    let local = match c.number(&["swa_num_key_value_heads"])? {
        Some(heads) => heads as i32,
        None if c.get("layer_types").is_some() => all.saturating_mul(2),
        None => bail!("config.json has no swa_num_key_value_heads"),
    };
    let heads = [all, local];
    keys.set("attention.head_count_kv", Meta::array(pattern.iter().map(|local| heads[usize::from(*local == 1)])));
    let window = match c.number(&["sliding_window_size"])? {
        Some(before) => before.saturating_add(1),
        None => c.need(&["sliding_window"])?,
    };
    keys.set("attention.sliding_window", window);
    keys.set("attention.sliding_window_pattern", Meta::array(pattern));
    keys.number("attention.value_length", &["v_head_dim"])?;
    keys.number("expert_count", &["n_routed_experts"])?;
    keys.number("expert_feed_forward_length", &["moe_intermediate_size"])?;
    keys.rope_dimensions(1.0)?;
    let epsilon = c.float(&["layernorm_epsilon", "rms_norm_eps"])?.unwrap_or(1e-5);
    keys.set("attention.layer_norm_rms_epsilon", epsilon);
    if let Some(scale) = c.float(&["routed_scaling_factor"])?.filter(|scale| *scale != 1.0) {
        keys.set("expert_weights_scale", scale);
    }
    keys.normed_weights(true);
    keys.maybe_float("attention.value_scale", &["attention_value_scale"])
}

/// Returns a list in Step 3.5's config with one number per layer; missing numbers are 0.
fn padded(config: &Config, name: &str) -> Result<Option<Vec<f32>>> {
    let Some(list) = config.get(name).and_then(|list| list.as_array()) else { return Ok(None) };
    let mut list: Vec<f32> = list.iter().map(|limit| limit.as_f64().unwrap_or(0.0) as f32).collect();
    list.resize(config.layers()?, 0.0);
    Ok(Some(list))
}

fn step(keys: &mut Keys<'_>) -> Result<()> {
    keys.common()?;
    let c = keys.config;
    if let Some(bases) = c.get("rope_theta").and_then(|bases| bases.as_array()) {
        for (key, base) in ["rope.freq_base", "rope.freq_base_swa"].into_iter().zip(bases) {
            keys.set(key, base.as_f64().context("rope_theta in config.json is not a list of numbers")? as f32);
        }
    }
    let local = local(c)?;
    let other = c.get("attention_other_setting").cloned().unwrap_or_default();
    for (key, name) in
        [("attention.head_count", "num_attention_heads"), ("attention.head_count_kv", "num_attention_groups")]
    {
        let all = c.need(&[name])? as i32;
        let own = other[name].as_i64().map_or(all, |own| own as i32);
        keys.set(key, Meta::array(local.iter().map(|local| if *local { own } else { all })));
    }
    keys.number("attention.sliding_window", &["sliding_window"])?;
    keys.set("attention.sliding_window_pattern", Meta::array(local));
    keys.number("attention.value_length", &["head_dim"])?;
    keys.number("expert_count", &["moe_num_experts"])?;
    keys.number("expert_used_count", &["moe_top_k"])?;
    keys.number("expert_feed_forward_length", &["moe_intermediate_size"])?;
    keys.number("expert_shared_feed_forward_length", &["share_expert_dim"])?;
    keys.maybe_float("expert_weights_scale", &["moe_router_scaling_factor"])?;
    keys.flag("expert_weights_norm", "norm_expert_weight");
    let first = c.text("moe_layers_enum").and_then(|list| list.split(',').filter_map(|n| n.trim().parse().ok()).min());
    keys.set("leading_dense_block_count", first.unwrap_or(0u32));
    keys.set("moe_every_n_layers", c.number(&["moe_every_n_layer"])?.unwrap_or(1));
    keys.set("attention.layer_norm_rms_epsilon", c.float(&["rms_norm_eps"])?.unwrap_or(1e-5));
    for (key, name) in [("swiglu_clamp_exp", "swiglu_limits"), ("swiglu_clamp_shexp", "swiglu_limits_shared")] {
        if let Some(limits) = padded(c, name)? {
            keys.set(key, Meta::array(limits));
        }
    }
    Ok(())
}

/// Makes norm weights for queries and keys. The weights for queries are the factor by which Muse Glimmer multiplies its
/// queries; the weights for keys are 1.
fn muse_norms(config: &Config) -> Result<Vec<Made>> {
    let (head, factor) = (config.head_width()?, config.float(&["qk_scale_factor"])?.context("no qk_scale_factor")?);
    let layers = 0..config.layers()?;
    Ok(layers
        .flat_map(|layer| {
            [("q", factor), ("k", 1.0)].map(|(which, value)| Made {
                name: format!("blk.{layer}.attn_{which}_norm.weight").into(),
                values: vec![value; head],
            })
        })
        .collect())
}

#[rustfmt::skip]
const STEP: &[Row] = &[
    ("norm", "output_norm", plus_one),
    ("input_layernorm", "attn_norm", plus_one),
    ("post_attention_layernorm", "ffn_norm", plus_one),
    ("self_attn.q_norm", "attn_q_norm", plus_one),
    ("self_attn.k_norm", "attn_k_norm", plus_one),
    ("self_attn.g_proj", "attn_gate", squeezed),
    ("moe.gate", "ffn_gate_inp", squeezed),
    ("moe.router_bias", "exp_probs_b.bias", same),
    ("moe.gate_proj", "ffn_gate_exps", same),
    ("moe.up_proj", "ffn_up_exps", same),
    ("moe.down_proj", "ffn_down_exps", same),
    ("share_expert.gate_proj", "ffn_gate_shexp", same),
    ("share_expert.up_proj", "ffn_up_shexp", same),
    ("share_expert.down_proj", "ffn_down_shexp", same),
];

#[rustfmt::skip]
pub const ALL: &[Family] = &[
    Family {
        classes: &["GraniteSWAForCausalLM", "GraniteMoeSWAForCausalLM"],
        architecture: "granite_swa",
        names: &[ROTATED, &[
            ("self_attn.sinks", "attn_sinks.weight", same),
            ("block_sparse_moe.experts.gate_up_proj", "ffn_gate_up_exps.weight", same),
            ("block_sparse_moe.experts.down_proj", "ffn_down_exps.weight", same),
            ("block_sparse_moe.input_linear", "ffn_gate_up_exps", same),
            ("block_sparse_moe.output_linear", "ffn_down_exps", same),
            ("block_sparse_moe.router", "ffn_gate_inp", same),
            ("block_sparse_moe.router.layer", "ffn_gate_inp", same),
            ("shared_mlp.input_linear", "ffn_up_shexp", same),
            ("shared_mlp.output_linear", "ffn_down_shexp", same),
        ]],
        keys: granite,
        ..Family::PLAIN
    },
    Family { classes: &["Cohere2MoeForCausalLM"], architecture: "cohere2moe", keys: cohere, ..Family::PLAIN },
    Family {
        classes: &["LagunaForCausalLM"],
        architecture: "laguna",
        names: &[&[
            ("self_attn.g_proj", "attn_gate", same),
            ("mlp.experts.e_score_correction_bias", "exp_probs_b.bias", same),
        ]],
        keys: laguna,
        ..Family::PLAIN
    },
    Family {
        classes: &["MiMoV2FlashForCausalLM", "MiMoV2ForCausalLM"],
        architecture: "mimo2",
        names: &[&[("self_attn.attention_sink_bias", "attn_sinks.weight", same)]],
        keys: mimo,
        ..Family::PLAIN
    },
    Family {
        classes: &["Plamo3ForCausalLM", "PLaMo3ForCausalLM"],
        architecture: "plamo3",
        names: &[&[
            ("norm", "output_norm", plus_one),
            ("pre_mixer_norm", "attn_norm", plus_one),
            ("post_mixer_norm.weight", "post_attention_norm", plus_fifth),
            ("pre_mlp_norm", "ffn_norm", plus_one),
            ("post_mlp_norm.weight", "post_ffw_norm", plus_eleventh),
            ("mixer.qkv_proj", "attn_qkv", same),
            ("mixer.q_norm", "attn_q_norm", plus_one),
            ("mixer.k_norm", "attn_k_norm", plus_one),
            ("mixer.o_proj", "attn_output", same),
            ("mlp.gate_up_proj", "ffn_up", same),
        ]],
        keys: |k| {
            k.common()?;
            k.vocab_size()?;
            if let Some(window) = k.config.number(&["window_size", "sliding_window"])? {
                k.set("attention.sliding_window", window);
                k.number("attention.sliding_window_pattern", &["sliding_window_pattern"])?;
            }
            Ok(())
        },
        ..Family::PLAIN
    },
    Family {
        classes: &["Spark2_5ForCausalLM"],
        architecture: "spark2_5",
        names: &[&[
            ("self_attn.q_k_v_proj", "attn_qkv", same),
            ("self_attn.g_proj", "attn_gate", same),
        ]],
        keys: |k| {
            k.common()?;
            let c = k.config;
            c.only("gate_attn_act_mode", &Value::from("sigmoid"))?;
            c.only("headwise_attn_output_gate", &Value::Bool(true))?;
            c.only("hidden_act", &Value::from("gelu"))?;
            k.vocab_size()?;
            k.window()?;
            rotated(k)
        },
        ..Family::PLAIN
    },
    Family {
        classes: &["MapleForCausalLM"],
        architecture: "maple",
        keys: |k| {
            k.common()?;
            let c = k.config;
            for (name, only) in [("num_shared_experts", Value::from(0)), ("norm_topk_prob", Value::Bool(true))] {
                c.only(name, &only)?;
            }
            ensure!(c.flag("nope_on_global_attention") == Some(true), "nope_on_global_attention in config.json is not true: not supported");
            k.vocab_size()?;
            k.rope_dimensions(1.0)?;
            k.window()?;
            k.number("expert_feed_forward_length", &["moe_intermediate_size"])?;
            k.set("swiglu_clamp_exp", Meta::array(vec![7.0f32; c.layers()?]));
            Ok(())
        },
        ..Family::PLAIN
    },
    Family {
        classes: &["Step3p5ForCausalLM", "Step3p7ForConditionalGeneration"],
        architecture: "step35",
        names: &[STEP],
        keys: step,
        ..Family::PLAIN
    },
    Family {
        classes: &["MuseGlimmerForConditionalGeneration"],
        architecture: "muse-glimmer",
        names: &[&[
            ("input_layernorm", "attn_norm", plus_one),
            ("post_attention_layernorm", "post_attention_norm", plus_one),
            ("pre_feedforward_layernorm", "ffn_norm", plus_one),
            ("post_feedforward_layernorm", "post_ffw_norm", plus_one),
            ("self_attn.gate_proj", "attn_gate", same),
            ("self_attn.q_proj", "attn_q", rotated_q),
            ("self_attn.k_proj", "attn_k", rotated_k),
        ]],
        keys: |k| {
            k.common()?;
            k.float("final_logit_softcapping", &["final_logit_softcapping"])?;
            k.float("logit_scale", &["output_multiplier"])?;
            k.number("attention.sliding_window", &["sliding_window"])?;
            k.window_pattern();
            Ok(())
        },
        made: muse_norms,
        ..Family::PLAIN
    },
];
