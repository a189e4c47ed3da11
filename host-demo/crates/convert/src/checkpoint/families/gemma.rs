//! Gemma 1 to 4, Gemma 3n, and EmbeddingGemma.

use anyhow::{Context, Result, ensure};

use super::llama::POST_NORMS;
use super::{Family, Made, Vocabulary};
use crate::checkpoint::changes::{plus_one, same};
use crate::checkpoint::config::Config;
use crate::checkpoint::keys::Keys;
use crate::checkpoint::names::Row;
use crate::checkpoint::view::View;
use arenite_gguf_writer::Meta;

/// Norm weights that are stored relative to one.
#[rustfmt::skip]
const SHORT_NORMS: &[Row] = &[
    ("norm", "output_norm", plus_one),
    ("input_layernorm", "attn_norm", plus_one),
    ("pre_feedforward_layernorm", "ffn_norm", plus_one),
    ("post_feedforward_layernorm", "post_ffw_norm", plus_one),
    ("self_attn.q_norm", "attn_q_norm", plus_one),
    ("self_attn.k_norm", "attn_k_norm", plus_one),
];

/// `post_attention_layernorm` is the norm before the feed-forward in Gemma 1, and the norm after attention in all later
/// versions.
#[rustfmt::skip]
const BEFORE_FFN: &[Row] = &[("post_attention_layernorm", "ffn_norm", plus_one)];
#[rustfmt::skip]
const AFTER_ATTENTION: &[Row] = &[("post_attention_layernorm", "post_attention_norm", plus_one)];

/// Tensor names of Gemma 3n and 4. The head is the embedding, unless the config says otherwise.
#[rustfmt::skip]
const PER_LAYER: &[Row] = &[
    ("pre_feedforward_layernorm", "ffn_norm", same),
    ("embed_tokens_per_layer", "per_layer_token_embd", same),
    ("per_layer_model_projection", "per_layer_model_proj", same),
    ("per_layer_projection_norm", "per_layer_proj_norm", same),
    ("per_layer_input_gate", "inp_gate", same),
    ("per_layer_projection", "proj", same),
    ("post_per_layer_input_norm", "post_norm", same),
    ("lm_head", "output", unless_tied),
];

#[rustfmt::skip]
const NESTED: &[Row] = &[
    ("altup_projections.#", "altup_proj", same),
    ("altup_unembed_projections.#", "altup_unembd_proj", same),
    ("altup.correct_output_scale", "altup_correct_scale.weight", same),
    ("altup.correction_coefs", "altup_correct_coef", same),
    ("altup.prediction_coefs", "altup_predict_coef", same),
    ("altup.modality_router", "altup_router", same),
    ("altup.router_norm", "altup_router_norm", same),
    ("laurel.linear_left", "laurel_l", same),
    ("laurel.linear_right", "laurel_r", same),
    ("laurel.post_laurel_norm", "laurel_post_norm", same),
];

#[rustfmt::skip]
const FOURTH: &[Row] = &[
    ("layer_scalar", "layer_output_scale.weight", same),
    ("experts.gate_up_proj", "ffn_gate_up_exps.weight", same),
    ("experts.down_proj", "ffn_down_exps.weight", same),
    ("router.proj", "ffn_gate_inp", same),
    ("router.scale", "ffn_gate_inp.scale", same),
    ("router.per_expert_scale", "ffn_down_exps.scale", same),
    ("post_feedforward_layernorm_1", "post_ffw_norm_1", same),
    ("post_feedforward_layernorm_2", "post_ffw_norm_2", same),
    ("pre_feedforward_layernorm_2", "pre_ffw_norm_2", same),
];

const NO_SPACE: Vocabulary = Vocabulary { space_prefix: Some(false), ..Vocabulary::PLAIN };

fn first(keys: &mut Keys<'_>) -> Result<()> {
    keys.number("context_length", &["max_position_embeddings"])?;
    keys.number("embedding_length", &["hidden_size"])?;
    keys.block_count()?;
    keys.number("feed_forward_length", &["intermediate_size"])?;
    keys.number("attention.head_count", &["num_attention_heads"])?;
    keys.number("attention.head_count_kv", &["num_key_value_heads", "num_attention_heads"])?;
    keys.float("attention.layer_norm_rms_epsilon", &["rms_norm_eps"])?;
    let width = keys.config.need(&["head_dim"])?;
    keys.key_length(width);
    Ok(())
}

fn third(keys: &mut Keys<'_>) -> Result<()> {
    keys.common()?;
    let c = keys.config;
    keys.set("context_length", c.number(&["max_position_embeddings"])?.unwrap_or(131_072));
    keys.set("attention.head_count", c.number(&["num_attention_heads"])?.unwrap_or(8));
    keys.set("attention.head_count_kv", c.number(&["num_key_value_heads"])?.unwrap_or(4));
    keys.set("attention.layer_norm_rms_epsilon", c.float(&["rms_norm_eps"])?.unwrap_or(1e-6));
    keys.key_length(c.number(&["head_dim"])?.unwrap_or(256));
    keys.set("rope.freq_base", c.rope_float("rope_theta").unwrap_or(1e6) as f32);
    if let Some(base) = c.float(&["rope_local_base_freq"])? {
        keys.set("rope.freq_base_swa", base);
    }
    c.only("attn_logit_softcapping", &serde_json::Value::Null)?;
    keys.factor("final_logit_softcapping", "final_logit_softcapping")?;
    score_scale(keys, 62)?;
    keys.maybe("attention.sliding_window", &["sliding_window"])
}

/// Returns a setting of the global layers: the field `stated`, or the field `name` in `per_layer_config`. `None` if
/// global layers have no separate setting.
fn of_global_layers(config: &Config, name: &str, stated: &str) -> Result<Option<u32>> {
    if let Some(value) = config.number(&[stated])? {
        return Ok(Some(value));
    }
    let Some(layers) = config.get("per_layer_config").and_then(|layers| layers.as_object()) else { return Ok(None) };
    let types = config.texts("layer_types").unwrap_or_default();
    let global =
        |layer: &str| layer.parse::<usize>().ok().and_then(|layer| types.get(layer).copied()) == Some("full_attention");
    let found = layers.iter().find(|(layer, settings)| global(layer) && settings[name].is_u64());
    Ok(found.and_then(|(_, settings)| u32::try_from(settings[name].as_u64()?).ok()))
}

fn fourth(keys: &mut Keys<'_>) -> Result<()> {
    third(keys)?;
    let c = keys.config;
    let shared = c.number(&["num_kv_shared_layers"])?.unwrap_or(0);
    keys.set("attention.shared_kv_layers", shared);
    keys.set("embedding_length_per_layer_input", c.number(&["hidden_size_per_layer_input"])?.unwrap_or(0));
    keys.window_pattern();
    if c.get("layer_types").is_none() {
        let layers = c.layers()?;
        let local = (1..=layers).map(|layer| layer % 6 != 0 && layer < layers);
        keys.set("attention.sliding_window_pattern", Meta::array(local));
    }
    let local = c.need(&["head_dim"])?;
    let global = of_global_layers(c, "head_dim", "global_head_dim")?.unwrap_or(local);
    keys.key_length(global);
    keys.set("attention.key_length_swa", local);
    keys.set("attention.value_length_swa", local);
    keys.maybe("expert_feed_forward_length", &["expert_intermediate_size", "moe_intermediate_size"])?;
    let layers = c.layers()?;
    if c.flag("use_double_wide_mlp") == Some(true) {
        let width = c.need(&["intermediate_size"])? as i32;
        let own = layers.saturating_sub(shared as usize);
        keys.set(
            "feed_forward_length",
            Meta::array((0..layers).map(|layer| if layer < own { width } else { 2 * width })),
        );
    }
    if let Some(few) = of_global_layers(c, "num_key_value_heads", "num_global_key_value_heads")? {
        let many = c.need(&["num_key_value_heads"])?;
        let types = c.texts("layer_types").context("config.json has no layer_types")?;
        let heads = types.iter().map(|kind| if *kind == "sliding_attention" { many as i32 } else { few as i32 });
        keys.set("attention.head_count_kv", Meta::array(heads));
    }
    keys.set("rope.dimension_count", global);
    keys.set("rope.dimension_count_swa", local);
    Ok(())
}

/// Computes the divisors of rotary frequencies. Pairs that are not rotated get a huge divisor.
fn frozen(config: &Config) -> Result<Vec<Made>> {
    let local = config.need(&["head_dim"])?;
    let width = of_global_layers(config, "head_dim", "global_head_dim")?.unwrap_or(local) as usize;
    let share = config.rope_float("partial_rotary_factor").unwrap_or(1.0);
    ensure!(
        config.rope_type() != Some("llama3"),
        "rope_type in config.json is llama3: not supported for this architecture"
    );
    let turning = (width as f64 * share / 2.0) as usize;
    let values = (0..width / 2).map(|pair| if pair < turning { 1.0 } else { 1e30 }).collect();
    Ok(vec![Made { name: "rope_freqs.weight".into(), values }])
}

fn nested(keys: &mut Keys<'_>) -> Result<()> {
    third(keys)?;
    let c = keys.config;
    ensure!(c.need(&["altup_num_inputs"])? == 4, "altup_num_inputs in config.json is not 4: not supported");
    keys.number("altup.active_idx", &["altup_active_idx"])?;
    keys.number("altup.num_inputs", &["altup_num_inputs"])?;
    keys.number("embedding_length_per_layer_input", &["hidden_size_per_layer_input"])?;
    keys.number("attention.shared_kv_layers", &["num_kv_shared_layers"])?;
    let shares = c.get("activation_sparsity_pattern").and_then(|list| list.as_array());
    let shares = shares.context("config.json has no activation_sparsity_pattern")?;
    let scales = shares.iter().map(|share| quantile(share.as_f64().unwrap_or(0.0)));
    keys.set("activation_sparsity_scale", Meta::array(scales));
    keys.window_pattern();
    Ok(())
}

/// Returns the quantile of the standard normal distribution for the probability `p`.
fn quantile(p: f64) -> f32 {
    if p <= 0.0 {
        return f32::NEG_INFINITY;
    }
    if p >= 1.0 {
        return f32::INFINITY;
    }
    let (mut low, mut high) = (-40.0f64, 40.0f64);
    while high - low > 1e-14 * high.abs().max(1.0) {
        let middle = f64::midpoint(low, high);
        let below = 0.5 * libm::erfc(-middle / std::f64::consts::SQRT_2);
        *(if below < p { &mut low } else { &mut high }) = middle;
    }
    f64::midpoint(low, high) as f32
}

/// Drops the head, unless the config says that the head differs from the embedding. These models usually have no head
/// of their own.
fn unless_tied<'f>(config: &Config, view: View<'f>) -> Result<Vec<View<'f>>> {
    let is_own = config.flag("tie_word_embeddings") == Some(false);
    Ok(vec![if is_own { view } else { view.nothing() }])
}

/// Writes the factor of attention scores if it differs from the factor that readers compute from the sizes; llama.cpp
/// has no key for such a factor. For the model with `largest` layers, readers compute the factor from the width and the
/// number of heads; for all other models, from `head_dim`.
fn score_scale(keys: &mut Keys<'_>, largest: usize) -> Result<()> {
    let c = keys.config;
    let Some(scalar) = c.float(&["query_pre_attn_scalar"])? else { return Ok(()) };
    let head = c.number(&["head_dim"])?.unwrap_or(256) as usize;
    let implied = if c.layers()? == largest { c.width()? / c.heads()?.max(1) } else { head };
    if scalar != implied as f32 {
        keys.set("attention.scale", 1.0 / scalar.sqrt());
    }
    Ok(())
}

/// Writes a soft cap. If the key is missing, readers use the cap of the published models. A cap of 0 disables the soft
/// cap; llama.cpp does not support this for attention.
fn cap(keys: &mut Keys<'_>, name: &str) -> Result<()> {
    if keys.config.is_null(name) {
        keys.set(name, 0f32);
        return Ok(());
    }
    keys.float(name, &[name])
}

#[rustfmt::skip]
pub const ALL: &[Family] = &[
    Family {
        classes: &["GemmaForCausalLM"],
        architecture: "gemma",
        names: &[SHORT_NORMS, BEFORE_FFN, &[("lm_head", "output", unless_tied)]],
        keys: first,
        vocabulary: Vocabulary {
            ids: &[("eot_token_id", 107)],
            ..NO_SPACE
        },
        ..Family::PLAIN
    },
    Family {
        classes: &["Gemma2ForCausalLM"],
        architecture: "gemma2",
        names: &[SHORT_NORMS, AFTER_ATTENTION, &[("lm_head", "output", unless_tied)]],
        keys: |k| {
            first(k)?;
            score_scale(k, 46)?;
            cap(k, "attn_logit_softcapping")?;
            cap(k, "final_logit_softcapping")?;
            k.number("attention.sliding_window", &["sliding_window"])
        },
        vocabulary: NO_SPACE,
        ..Family::PLAIN
    },
    Family {
        classes: &["Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"],
        architecture: "gemma3",
        names: &[SHORT_NORMS, AFTER_ATTENTION],
        keys: third,
        vocabulary: NO_SPACE,
        ..Family::PLAIN
    },
    Family {
        classes: &["Gemma3TextModel"],
        architecture: "gemma-embedding",
        names: &[SHORT_NORMS, AFTER_ATTENTION],
        keys: |k| {
            let name = "use_bidirectional_attention";
            ensure!(k.config.flag(name) == Some(true), "{name} in config.json is not true: not supported for this class");
            third(k)
        },
        vocabulary: NO_SPACE,
        ..Family::PLAIN
    },
    Family {
        classes: &["Gemma3nForCausalLM", "Gemma3nForConditionalGeneration"],
        architecture: "gemma3n",
        names: &[POST_NORMS, PER_LAYER, NESTED],
        keys: nested,
        vocabulary: NO_SPACE,
        ..Family::PLAIN
    },
    Family {
        classes: &["Gemma4ForCausalLM", "Gemma4ForConditionalGeneration"],
        architecture: "gemma4",
        names: &[POST_NORMS, PER_LAYER, FOURTH],
        keys: fourth,
        made: frozen,
        vocabulary: Vocabulary {
            adds: &[("add_bos_token", true)],
            shown: &["<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>", "<|tool_response>", "<tool_response|>", "<|\"|>"],
            ..NO_SPACE
        },
        ..Family::PLAIN
    },
];

#[cfg(test)]
mod tests {
    use super::quantile;

    /// The expected value for 0.95 was computed by Python's `statistics.NormalDist().inv_cdf`, and rounded to f32.
    #[test]
    fn quantiles() {
        assert_eq!(quantile(0.95), 1.644_853_626_951_471_5_f64 as f32);
        assert!(quantile(0.5).abs() < 1e-14);
        assert_eq!(quantile(0.0), f32::NEG_INFINITY);
    }
}
