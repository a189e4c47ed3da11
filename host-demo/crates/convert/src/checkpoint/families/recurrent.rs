//! Families with states instead of, or in addition to, attention: Mamba, LFM2, Jamba, Falcon-H1, Nemotron-H, PLaMo 2.

use anyhow::{Context, Result, ensure};

use super::{Family, Vocabulary};
use crate::checkpoint::changes::{
    by_ssm_groups, column, decay, decay_column, plus_eleventh, plus_fifth, plus_one, rotated_k, rotated_q, same,
    squeezed,
};
use crate::checkpoint::config::Config;
use crate::checkpoint::keys::{Keys, SIGMOID};
use crate::checkpoint::names::Row;
use crate::checkpoint::view::{Step, View};
use arenite_gguf_writer::Meta;

/// The names of the tensors of a Mamba 2 mixer, as several families use them.
#[rustfmt::skip]
pub const MAMBA2: &[Row] = &[
    ("mamba.A_log", "ssm_a", decay_column),
    ("mamba.D", "ssm_d", column),
    ("mamba.conv1d.weight", "ssm_conv1d.weight", squeezed),
    ("mamba.conv1d.bias", "ssm_conv1d.bias", same),
    ("mamba.dt_bias", "ssm_dt.bias", same),
    ("mamba.in_proj", "ssm_in", same),
    ("mamba.out_proj", "ssm_out", same),
    ("mamba.norm", "ssm_norm", by_ssm_groups),
];

#[rustfmt::skip]
const MIXER2: &[Row] = &[
    ("embeddings", "token_embd", same),
    ("embedding", "token_embd", same),
    ("norm_f", "output_norm", same),
    ("norm", "attn_norm", same),
    ("mixer.A_log", "ssm_a", decay_column),
    ("mixer.D", "ssm_d", column),
    ("mixer.conv1d.weight", "ssm_conv1d.weight", squeezed),
    ("mixer.conv1d.bias", "ssm_conv1d.bias", same),
    ("mixer.dt_bias", "ssm_dt.bias", same),
    ("mixer.in_proj", "ssm_in", same),
    ("mixer.out_proj", "ssm_out", same),
    ("mixer.norm", "ssm_norm", by_ssm_groups),
];

#[rustfmt::skip]
const MIXER1: &[Row] = &[
    ("mixer.A_log", "ssm_a", decay),
    ("mixer.D", "ssm_d", same),
    ("mixer.dt_proj", "ssm_dt", same),
    ("mixer.x_proj", "ssm_x", same),
];

fn no_attention(keys: &mut Keys<'_>) -> Result<()> {
    keys.set("context_length", 1u32 << 20);
    keys.set("embedding_length", keys.config.width()? as u32);
    keys.set("feed_forward_length", 0u32);
    keys.set("attention.head_count", 0u32);
    keys.block_count()
}

fn norm(keys: &mut Keys<'_>) -> Result<()> {
    let epsilon = keys.config.float(&["layer_norm_epsilon", "rms_norm_eps"])?.unwrap_or(1e-5);
    keys.set("attention.layer_norm_rms_epsilon", epsilon);
    Ok(())
}

fn mamba1(keys: &mut Keys<'_>) -> Result<()> {
    no_attention(keys)?;
    let c = keys.config;
    let width = c.width()? as u32;
    keys.set("ssm.conv_kernel", c.number(&["conv_kernel", "d_conv"])?.unwrap_or(4));
    keys.set("ssm.inner_size", c.number(&["intermediate_size", "d_inner"])?.unwrap_or(2 * width));
    keys.set("ssm.state_size", c.number(&["state_size", "d_state"])?.unwrap_or(16));
    keys.set("ssm.time_step_rank", c.number(&["time_step_rank", "dt_rank"])?.unwrap_or(width.div_ceil(16)));
    norm(keys)?;
    keys.set("ssm.dt_b_c_rms", c.text("model_type") == Some("falcon_mamba"));
    // Write the mixer's epsilon only if it differs from the epsilon of the layer norms, because llama.cpp has no key
    // for the mixer's epsilon and uses that of the layer norms.
    let (own, other) = (c.float(&["mixer_rms_eps"])?, c.float(&["layer_norm_epsilon"])?);
    if let Some(own) = own.filter(|own| Some(*own) != other) {
        keys.set("ssm.dt_b_c_rms_epsilon", own);
    }
    Ok(())
}

fn mamba2(keys: &mut Keys<'_>) -> Result<()> {
    no_attention(keys)?;
    let c = keys.config;
    let expand = c.number(&["mamba_expand", "expand"])?.unwrap_or(2);
    let inner = c.number(&["mamba_d_ssm", "intermediate_size", "d_inner"])?;
    let inner = if keys.architecture == "mamba2" { None } else { inner }.unwrap_or(expand * c.width()? as u32);
    let head = c.number(&["mamba_d_head", "head_dim"])?.unwrap_or(64);
    ensure!(head > 0 && inner.is_multiple_of(head), "config.json has heads of {head} in a state of {inner}");
    keys.set("ssm.conv_kernel", c.number(&["mamba_d_conv", "conv_kernel", "d_conv"])?.unwrap_or(4));
    keys.set("ssm.inner_size", inner);
    keys.set("ssm.state_size", c.number(&["mamba_d_state", "state_size", "d_state"])?.unwrap_or(128));
    keys.set("ssm.time_step_rank", inner / head);
    keys.set("ssm.group_count", c.number(&["mamba_n_groups", "n_groups"])?.unwrap_or(1));
    norm(keys)
}

/// Returns a factor in the config of Falcon-H1; 1 if it is missing. The conversion multiplies weights by these factors.
fn factor(config: &Config, name: &str) -> Result<f32> {
    Ok(config.float(&[name])?.unwrap_or(1.0))
}

/// Returns an element of a list of factors.
fn factor_of(config: &Config, name: &str, at: usize) -> f32 {
    config.get(name).and_then(|list| list[at].as_f64()).map_or(1.0, |factor| factor as f32)
}

macro_rules! multiplied {
    ($($function:ident $($name:literal)+;)*) => {$(
        fn $function<'f>(config: &Config, mut view: View<'f>) -> Result<Vec<View<'f>>> {
            $(view = view.then(Step::Times(factor(config, $name)?));)+
            Ok(vec![view])
        }
    )*};
}
multiplied! {
    by_key "key_multiplier" "attention_in_multiplier";
    by_attention_in "attention_in_multiplier";
    by_attention_out "attention_out_multiplier";
    by_ssm_out "ssm_out_multiplier";
    by_head "lm_head_multiplier";
    by_embedding "embedding_multiplier";
}

fn by_gate<'f>(config: &Config, view: View<'f>) -> Result<Vec<View<'f>>> {
    Ok(vec![view.then(Step::Times(factor_of(config, "mlp_multipliers", 0)))])
}

fn by_down<'f>(config: &Config, view: View<'f>) -> Result<Vec<View<'f>>> {
    Ok(vec![view.then(Step::Times(factor_of(config, "mlp_multipliers", 1)))])
}

/// Multiplies the rows of Mamba's input projection by their factors. The rows of the gate, the input, B, C and dt have
/// one factor each.
fn by_ssm_in<'f>(config: &Config, view: View<'f>) -> Result<Vec<View<'f>>> {
    let inner = config.size(&["mamba_d_ssm"])?;
    let state = config.size(&["mamba_n_groups"])? * config.size(&["mamba_d_state"])?;
    let heads = view.size(0)?.checked_sub(2 * inner + 2 * state).context("mamba.in_proj has too few rows")?;
    let parts =
        view.then(Step::Times(factor(config, "ssm_in_multiplier")?)).split(0, &[inner, inner, state, state, heads])?;
    let parts = parts.into_iter().enumerate();
    Ok(parts.map(|(i, part)| part.then(Step::Times(factor_of(config, "ssm_multipliers", i)))).collect())
}

/// Types of Nemotron-H's layers: `M` for Mamba, `E` for experts, `-` for a feed-forward, `*` for attention.
fn pattern(config: &Config) -> Result<Vec<char>> {
    if let Some(pattern) = config.text("hybrid_override_pattern") {
        return Ok(pattern.chars().collect());
    }
    let types = config.texts("layers_block_type").or(config.texts("layer_types"));
    let types = types.context("config.json has no hybrid_override_pattern and no layers_block_type")?;
    let letter = |kind: &&str| match *kind {
        "mamba" | "linear_attention" => 'M',
        "attention" | "full_attention" => '*',
        "moe" => 'E',
        _ => '-',
    };
    Ok(types.iter().map(letter).collect())
}

fn nemotron_h(keys: &mut Keys<'_>) -> Result<()> {
    keys.common()?;
    let c = keys.config;
    let layers = pattern(c)?;
    keys.set("block_count", layers.len() as u32);
    keys.vocab_size()?;
    keys.set("context_length", 1u32 << 20);
    let width = c.need(&["head_dim", "attention_head_dim"])?;
    keys.set("rope.dimension_count", width);
    if keys.config.float(&["layer_norm_epsilon"])?.is_some() {
        norm(keys)?;
    }
    keys.number("ssm.conv_kernel", &["conv_kernel", "d_conv"])?;
    keys.number("ssm.state_size", &["ssm_state_size", "state_size"])?;
    keys.number("ssm.group_count", &["n_groups", "num_groups"])?;
    let heads = c.need(&["mamba_num_heads", "n_heads", "num_heads"])?;
    keys.set("ssm.inner_size", heads * c.need(&["mamba_head_dim"])?);
    keys.set("ssm.time_step_rank", heads);
    let key_heads = c.key_heads()? as i32;
    keys.set(
        "attention.head_count_kv",
        Meta::array(layers.iter().map(|kind| if *kind == '*' { key_heads } else { 0 })),
    );
    keys.set("rope.scaling.finetuned", false);
    keys.key_length(width);
    let experts = layers.contains(&'E');
    let (wide, letter) = if experts { ("moe_intermediate_size", 'E') } else { ("intermediate_size", '-') };
    let ff = c.need(&[wide])? as i32;
    keys.set("feed_forward_length", Meta::array(layers.iter().map(|kind| if *kind == letter { ff } else { 0 })));
    if experts {
        keys.number("expert_used_count", &["num_experts_per_tok"])?;
        keys.number("expert_feed_forward_length", &["moe_intermediate_size"])?;
        keys.number("expert_shared_feed_forward_length", &["moe_shared_expert_intermediate_size"])?;
        keys.number("expert_count", &["n_routed_experts"])?;
        keys.number("expert_shared_count", &["n_shared_experts"])?;
        keys.flag("expert_weights_norm", "norm_topk_prob");
        keys.float("expert_weights_scale", &["routed_scaling_factor"])?;
        keys.number("expert_group_count", &["n_group"])?;
        keys.maybe("moe_latent_size", &["moe_latent_size"])?;
    }
    Ok(())
}

/// Writes the number of key heads of each layer; 0 for layers without attention.
fn key_heads(keys: &mut Keys<'_>, attention: impl Fn(usize) -> bool) -> Result<()> {
    let (layers, heads) = (keys.config.layers()?, keys.config.key_heads()? as i32);
    keys.set("attention.head_count_kv", Meta::array((0..layers).map(|layer| if attention(layer) { heads } else { 0 })));
    Ok(())
}

fn attention_layers<'c>(config: &'c Config) -> Result<impl Fn(usize) -> bool + 'c> {
    let types = config.texts("layer_types").context("config.json has no layer_types")?;
    Ok(move |layer: usize| types.get(layer).copied() == Some("full_attention"))
}

#[rustfmt::skip]
const LFM2: &[Row] = &[
    ("embedding_norm", "token_embd_norm", same),
    ("operator_norm", "attn_norm", same),
    ("ffn_norm", "ffn_norm", same),
    ("conv.conv", "shortconv.conv", squeezed),
    ("conv.in_proj", "shortconv.in_proj", same),
    ("conv.out_proj", "shortconv.out_proj", same),
    ("feed_forward.w1", "ffn_gate", same),
    ("feed_forward.w2", "ffn_down", same),
    ("feed_forward.w3", "ffn_up", same),
    ("feed_forward.gate", "ffn_gate_inp", same),
    ("feed_forward.expert_bias", "exp_probs_b.bias", same),
    ("feed_forward.experts.#.w1", "ffn_gate_exps", same),
    ("feed_forward.experts.#.w2", "ffn_down_exps", same),
    ("feed_forward.experts.#.w3", "ffn_up_exps", same),
    ("self_attn.out_proj", "attn_output", same),
    ("self_attn.q_layernorm", "attn_q_norm", same),
    ("self_attn.k_layernorm", "attn_k_norm", same),
];

fn lfm2(keys: &mut Keys<'_>) -> Result<()> {
    keys.common()?;
    let c = keys.config;
    key_heads(keys, attention_layers(c)?)?;
    keys.vocab_size()?;
    keys.number("shortconv.l_cache", &["conv_L_cache"])
}

/// Width of the feed-forward. With `block_auto_adjust_ff_dim`, the width is two thirds of the config's value, times
/// `block_ffn_dim_multiplier`, rounded up to a multiple of `block_multiple_of`.
fn adjusted(config: &Config) -> Result<u32> {
    let width = config.need(&["block_ff_dim", "intermediate_size"])?;
    if config.flag("block_auto_adjust_ff_dim") != Some(true) {
        return Ok(width);
    }
    let share = config.float(&["block_ffn_dim_multiplier"])?.unwrap_or(1.0);
    let multiple = config.number(&["block_multiple_of"])?.unwrap_or(256).max(1);
    Ok(((f64::from(2 * width / 3) * f64::from(share)) as u32).next_multiple_of(multiple))
}

fn jamba(keys: &mut Keys<'_>) -> Result<()> {
    let c = keys.config;
    let width = c.width()? as u32;
    keys.block_count()?;
    keys.number("context_length", &["max_position_embeddings", "n_ctx"])?;
    keys.set("embedding_length", width);
    keys.number("feed_forward_length", &["intermediate_size"])?;
    keys.number("attention.head_count", &["num_attention_heads"])?;
    let (offset, period) = (c.size(&["attn_layer_offset"])?, c.size(&["attn_layer_period"])?.max(1));
    key_heads(keys, |layer| layer >= offset && (layer - offset).is_multiple_of(period))?;
    keys.set("ssm.conv_kernel", c.number(&["mamba_d_conv"])?.unwrap_or(4));
    keys.set("ssm.inner_size", c.need(&["mamba_expand"])? * width);
    keys.set("ssm.state_size", c.number(&["mamba_d_state"])?.unwrap_or(16));
    keys.set("ssm.time_step_rank", c.number(&["mamba_dt_rank"])?.unwrap_or(width.div_ceil(16)));
    keys.set("attention.layer_norm_rms_epsilon", c.float(&["layer_norm_epsilon", "rms_norm_eps"])?.unwrap_or(1e-6));
    keys.number("expert_count", &["num_local_experts", "num_experts"])?;
    keys.number("expert_used_count", &["num_experts_per_tok", "num_experts_per_token"])
}

const IN_EIGHTS: Vocabulary = Vocabulary { multiple: 8, ..Vocabulary::PLAIN };

/// Names of PLaMo 2's mixers and norms.
#[rustfmt::skip]
const PLAMO2: &[Row] = &[
    ("norm", "output_norm", plus_one),
    ("pre_mixer_norm", "attn_norm", plus_one),
    ("post_mixer_norm.weight", "post_attention_norm", plus_fifth),
    ("pre_mlp_norm", "ffn_norm", plus_one),
    ("post_mlp_norm.weight", "post_ffw_norm", plus_eleventh),
    ("mixer.qkv_proj", "attn_qkv", same),
    ("mixer.q_weight", "attn_q_norm.weight", same),
    ("mixer.k_weight", "attn_k_norm.weight", same),
    ("mixer.o_proj", "attn_output", same),
    ("mixer.A_log", "ssm_a", decay),
    ("mixer.D", "ssm_d", same),
    ("mixer.bcdt_proj", "ssm_x", same),
    ("mixer.dt_proj", "ssm_dt", same),
    ("mixer.dt_norm_weight", "ssm_dt_norm", same),
    ("mixer.B_norm_weight", "ssm_b_norm", same),
    ("mixer.C_norm_weight", "ssm_c_norm", same),
    ("mlp.gate_up_proj", "ffn_up", same),
];

fn plamo2(keys: &mut Keys<'_>) -> Result<()> {
    let c = keys.config;
    let number = |name: &str, default: u32| Ok::<u32, anyhow::Error>(c.number(&[name])?.unwrap_or(default));
    let (layers, step) = (c.layers()?, number("mamba_step", 2)? as usize);
    keys.vocab_size()?;
    if c.flag("mamba_enabled") != Some(false) {
        let last_only = layers <= step / 2;
        let attention = |layer| if last_only { layer + 1 == layers } else { layer % step.max(1) == step / 2 };
        for (key, name, default) in
            [("attention.head_count_kv", "num_key_value_heads", 4), ("attention.head_count", "num_attention_heads", 32)]
        {
            let heads = number(name, default)? as i32;
            keys.set(key, Meta::array((0..layers).map(|layer| if attention(layer) { heads } else { 0 })));
        }
    }
    let (head, heads) = (number("hidden_size_per_head", 128)?, number("mamba_num_heads", 64)?);
    keys.set("context_length", number("max_position_embeddings", 2048)?);
    keys.set("embedding_length", number("hidden_size", 4096)?);
    keys.key_length(head);
    keys.block_count()?;
    keys.set("attention.layer_norm_rms_epsilon", c.float(&["rms_norm_eps"])?.unwrap_or(1e-6));
    keys.set("rope.freq_base", c.rope_float("rope_theta").unwrap_or(10000.0) as f32);
    keys.set("ssm.state_size", number("mamba_d_state", 64)?);
    keys.set("ssm.conv_kernel", number("mamba_d_conv", 4)?);
    keys.set("ssm.time_step_rank", heads);
    keys.set("ssm.inner_size", heads * head);
    keys.set("ssm.group_count", 0u32);
    keys.set("feed_forward_length", number("intermediate_size", 13312)?);
    Ok(())
}

#[rustfmt::skip]
pub const ALL: &[Family] = &[
    Family {
        classes: &["MambaForCausalLM", "MambaLMHeadModel", "FalconMambaForCausalLM"],
        architecture: "mamba",
        names: &[MIXER1, MIXER2],
        keys: mamba1,
        vocabulary: IN_EIGHTS,
        ..Family::PLAIN
    },
    Family {
        classes: &["Mamba2ForCausalLM"],
        architecture: "mamba2",
        names: &[MIXER2],
        keys: mamba2,
        vocabulary: Vocabulary { multiple: 16, ..Vocabulary::PLAIN },
        ..Family::PLAIN
    },
    Family {
        classes: &["FalconH1ForCausalLM"],
        architecture: "falcon-h1",
        names: &[&[
            ("embed_tokens", "token_embd", by_embedding),
            ("lm_head", "output", by_head),
            ("final_layernorm", "output_norm", same),
            ("pre_ff_layernorm.weight", "ffn_norm", same),
            ("feed_forward.gate_proj", "ffn_gate", by_gate),
            ("feed_forward.up_proj", "ffn_up", same),
            ("feed_forward.down_proj", "ffn_down", by_down),
            ("self_attn.q_proj", "attn_q", by_attention_in),
            ("self_attn.k_proj", "attn_k", by_key),
            ("self_attn.v_proj", "attn_v", by_attention_in),
            ("self_attn.o_proj", "attn_output", by_attention_out),
            ("mamba.in_proj", "ssm_in", by_ssm_in),
            ("mamba.out_proj", "ssm_out", by_ssm_out),
        ], MAMBA2],
        keys: |k| {
            mamba2(k)?;
            let c = k.config;
            ensure!(
                c.flag("mamba_rms_norm") != Some(true) || c.flag("mamba_norm_before_gate") == Some(false),
                "mamba_norm_before_gate in config.json is not false: not supported"
            );
            k.vocab_size()?;
            k.set("context_length", c.number(&["max_position_embeddings"])?.unwrap_or(0));
            k.number("feed_forward_length", &["intermediate_size"])?;
            k.number("attention.head_count", &["num_attention_heads"])?;
            k.number("attention.head_count_kv", &["num_key_value_heads"])?;
            let width = c.head_width()? as u32;
            k.key_length(width);
            k.set("rope.freq_base", c.rope_float("rope_theta").context("config.json has no rope_theta")? as f32);
            Ok(())
        },
        vocabulary: Vocabulary { multiple: 16, ..Vocabulary::PLAIN },
        own_head: |_| true,
        ..Family::PLAIN
    },
    Family {
        classes: &["NemotronHForCausalLM"],
        architecture: "nemotron_h",
        // Whether the model has experts is read from the list of layers, because transformers also writes the settings
        // of experts for models without experts.
        variant: |config| pattern(config).is_ok_and(|layers| layers.contains(&'E')).then_some("nemotron_h_moe"),
        names: &[&[
            ("mixer.gate", "ffn_gate_inp", same),
            ("mixer.gate.e_score_correction_bias", "exp_probs_b.bias", same),
            ("mixer.gate.e_score_correction.bias", "exp_probs_b.bias", same),
            ("mixer.experts.#.up_proj", "ffn_up_exps", same),
            ("mixer.experts.#.down_proj", "ffn_down_exps", same),
            ("mixer.experts.up_proj", "ffn_up_exps.weight", same),
            ("mixer.experts.down_proj", "ffn_down_exps.weight", same),
            ("mixer.shared_experts.up_proj", "ffn_up_shexp", same),
            ("mixer.shared_experts.down_proj", "ffn_down_shexp", same),
            ("mixer.up_proj", "ffn_up", same),
            ("mixer.down_proj", "ffn_down", same),
            ("mixer.q_proj", "attn_q", rotated_q),
            ("mixer.k_proj", "attn_k", rotated_k),
            ("mixer.v_proj", "attn_v", same),
            ("mixer.o_proj", "attn_output", same),
            ("mixer.dt_bias", "ssm_dt.bias", same),
        ], MIXER2],
        keys: nemotron_h,
        vocabulary: IN_EIGHTS,
        ..Family::PLAIN
    },
    Family {
        classes: &["Lfm2ForCausalLM", "LFM2ForCausalLM", "Lfm2VlForConditionalGeneration"],
        architecture: "lfm2",
        names: &[LFM2],
        keys: |k| {
            lfm2(k)?;
            k.float("attention.layer_norm_rms_epsilon", &["norm_eps"])?;
            k.set("feed_forward_length", adjusted(k.config)?);
            Ok(())
        },
        ..Family::PLAIN
    },
    Family {
        classes: &["Lfm2MoeForCausalLM"],
        architecture: "lfm2moe",
        names: &[LFM2],
        keys: |k| {
            lfm2(k)?;
            k.number("expert_feed_forward_length", &["moe_intermediate_size"])?;
            k.number("leading_dense_block_count", &["num_dense_layers"])?;
            k.set("expert_gating_func", SIGMOID);
            k.normed_weights(true);
            if let Some(scale) = k.config.float(&["routed_scaling_factor"])?.filter(|scale| *scale != 1.0) {
                k.set("expert_weights_scale", scale);
            }
            Ok(())
        },
        ..Family::PLAIN
    },
    Family {
        classes: &["JambaForCausalLM"],
        architecture: "jamba",
        names: &[&[
            ("final_layernorm", "output_norm", same),
            ("pre_ff_layernorm", "ffn_norm", same),
            ("feed_forward.gate_proj", "ffn_gate", same),
            ("feed_forward.up_proj", "ffn_up", same),
            ("feed_forward.down_proj", "ffn_down", same),
            ("feed_forward.router", "ffn_gate_inp", same),
            ("feed_forward.experts.#.gate_proj", "ffn_gate_exps", same),
            ("feed_forward.experts.#.up_proj", "ffn_up_exps", same),
            ("feed_forward.experts.#.down_proj", "ffn_down_exps", same),
            ("mamba.A_log", "ssm_a", decay),
            ("mamba.D", "ssm_d", same),
            ("mamba.dt_proj", "ssm_dt", same),
            ("mamba.x_proj", "ssm_x", same),
            ("mamba.b_layernorm", "ssm_b_norm", same),
            ("mamba.c_layernorm", "ssm_c_norm", same),
            ("mamba.dt_layernorm", "ssm_dt_norm", same),
        ], MAMBA2],
        keys: jamba,
        vocabulary: Vocabulary { space_prefix: Some(false), ..Vocabulary::PLAIN },
        ..Family::PLAIN
    },
    Family {
        classes: &["Plamo2ForCausalLM", "PLaMo2ForCausalLM"],
        architecture: "plamo2",
        names: &[PLAMO2, MIXER2],
        keys: plamo2,
        ..Family::PLAIN
    },
];
