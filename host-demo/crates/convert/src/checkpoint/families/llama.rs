//! Llama, and families that differ from it in details.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{Family, Made, Vocabulary};
use crate::checkpoint::changes::{halves, plus_one, qkv, rotated_k, rotated_q, same};
use crate::checkpoint::config::Config;
use crate::checkpoint::keys::Keys;
use crate::checkpoint::names::Row;
use arenite_gguf_writer::Meta;

/// Queries and keys. GGUF rotates pairs of neighbouring rows, but transformers stores the two rows of a pair half a
/// head apart.
#[rustfmt::skip]
pub const ROTATED: &[Row] = &[
    ("self_attn.q_proj", "attn_q", rotated_q),
    ("self_attn.k_proj", "attn_k", rotated_k),
];

/// Norms after attention and feed-forward, and none before.
#[rustfmt::skip]
pub const POST_NORMS: &[Row] = &[
    ("post_attention_layernorm", "post_attention_norm", same),
    ("post_feedforward_layernorm", "post_ffw_norm", same),
];

pub fn keys(keys: &mut Keys<'_>) -> Result<()> {
    // In these architectures, the width of a head is written to the file if the model type is `llama`, even if the
    // config has no `head_dim`.
    let has_width = matches!(keys.architecture, "llama" | "arcee" | "afmoe");
    keys.common()?;
    let width = keys.config.head_width()? as u32;
    if has_width && keys.config.number(&["head_dim"])?.is_none() && keys.config.text("model_type") == Some("llama") {
        keys.key_length(width);
    }
    keys.vocab_size()?;
    keys.set("rope.dimension_count", width);
    if matches!(keys.architecture, "llama" | "mistral3") {
        keys.window_everywhere();
    }
    Ok(())
}

/// Computes the frequency divisors of Llama 3's rotary positions, in f32 like torch.
pub fn rope_factors(config: &Config) -> Result<Vec<Made>> {
    if config.rope_type() != Some("llama3") {
        return Ok(Vec::new());
    }
    let setting = |name: &str, default: f64| config.rope_float(name).unwrap_or(default) as f32;
    let turned = match config.number(&["qk_rope_head_dim"])? {
        Some(turned) => turned as usize,
        None => (config.head_width()? as f64 * config.rope_float("partial_rotary_factor").unwrap_or(1.0)) as usize,
    };
    let (base, dim) = (f64::from(setting("rope_theta", 10000.0)), turned);
    let (factor, low, high) =
        (setting("factor", 8.0), setting("low_freq_factor", 1.0), setting("high_freq_factor", 4.0));
    let context = setting("original_max_position_embeddings", 8192.0);
    let values = (0..dim / 2).map(|i| {
        // The reciprocal is taken first, because torch divides a number by a tensor in this way, and the bits should be
        // the same.
        let frequency = (base.powf(f64::from((2 * i) as f32 / dim as f32)) as f32).recip();
        let length = frequency.recip() * std::f32::consts::TAU;
        if length < context / high {
            1.0
        } else if length > context / low {
            factor
        } else {
            let smooth = (length.recip() * context - low) / (high - low);
            ((1.0 - smooth) / factor + smooth).recip()
        }
    });
    Ok(vec![Made { name: "rope_freqs.weight".into(), values: values.collect() }])
}

fn logit_scale(keys: &mut Keys<'_>) -> Result<()> {
    keys.float("logit_scale", &["logit_scale"])
}

/// Writes the keys of SmolLM 3. GGUF does not store which layers lack rotary positions: readers assume that every
/// fourth layer lacks them.
fn smollm3(k: &mut Keys<'_>) -> Result<()> {
    let list = k.config.get("no_rope_layers").and_then(|list| list.as_array());
    let is_usual = |(layer, rotated): (usize, &Value)| rotated.as_u64() == Some(u64::from((layer + 1) % 4 != 0));
    ensure!(
        list.is_none_or(|list| list.iter().enumerate().all(is_usual)),
        "no_rope_layers in config.json is not every fourth layer: not supported"
    );
    keys(k)
}

#[rustfmt::skip]
pub const ALL: &[Family] = &[
    Family {
        classes: &["LlamaForCausalLM", "LLaMAForCausalLM", "LlamaModel", "MistralForCausalLM", "MixtralForCausalLM", "VLlama3ForCausalLM", "VoxtralForConditionalGeneration", "IQuestCoderForCausalLM", "InternLM3ForCausalLM"],
        architecture: "llama",
        names: &[ROTATED],
        keys,
        ..Family::PLAIN
    },
    Family {
        classes: &["LlamaBidirectionalModel"],
        architecture: "llama-embed",
        names: &[ROTATED],
        keys,
        ..Family::PLAIN
    },
    Family {
        classes: &["ArceeForCausalLM"],
        architecture: "arcee",
        names: &[ROTATED],
        keys,
        ..Family::PLAIN
    },
    Family {
        classes: &["SmolLM3ForCausalLM"],
        architecture: "smollm3",
        names: &[ROTATED],
        keys: smollm3,
        ..Family::PLAIN
    },
    Family {
        classes: &["Ministral3ForCausalLM", "Mistral3ForConditionalGeneration"],
        architecture: "mistral3",
        names: &[ROTATED],
        keys: |k| {
            keys(k)?;
            if let Some(factor) = k.config.rope_float("mscale_all_dim") {
                k.set("rope.scaling.yarn_log_multiplier", factor as f32);
            }
            if let Some(factor) = k.config.rope_float("llama_4_scaling_beta") {
                k.set("attention.temperature_scale", factor as f32);
            }
            Ok(())
        },
        ..Family::PLAIN
    },
    Family {
        classes: &["ApertusForCausalLM"],
        architecture: "apertus",
        names: &[&[
            ("attention_layernorm", "attn_norm", same),
            ("feedforward_layernorm", "ffn_norm", same),
        ]],
        keys: |k| {
            k.config.only("hidden_act", &Value::from("xielu"))?;
            keys(k)
        },
        scalars: &[
            ("mlp.act_fn.alpha_n", "xielu.alpha_n"),
            ("mlp.act_fn.alpha_p", "xielu.alpha_p"),
            ("mlp.act_fn.beta", "xielu.beta"),
            ("mlp.act_fn.eps", "xielu.eps"),
        ],
        ..Family::PLAIN
    },
    Family {
        classes: &["OlmoForCausalLM", "OLMoForCausalLM"],
        architecture: "olmo",
        names: &[ROTATED],
        keys: |k| {
            k.common()?;
            k.set("attention.layer_norm_epsilon", 1e-5f32);
            if k.config.get("rms_norm_eps").is_some() {
                k.set("attention.layer_norm_rms_epsilon", 1e-5f32); // the model's code ignores the field
            }
            k.maybe_float("attention.clamp_kqv", &["clip_qkv"])
        },
        ..Family::PLAIN
    },
    Family {
        classes: &["Olmo2ForCausalLM", "Olmo3ForCausalLM"],
        architecture: "olmo2",
        names: &[POST_NORMS],
        keys: |k| {
            k.common()?;
            if k.config.get("sliding_window").is_none() {
                return Ok(());
            }
            // Local layers without a separate base use the base of the global layers, but without scaling.
            let base = k.config.rope_float("rope_theta").filter(|_| k.config.rope_outer("sliding_attention").is_none());
            if let Some(base) = base {
                k.set("rope.freq_base_swa", base as f32);
            }
            k.window()
        },
        ..Family::PLAIN
    },
    Family { classes: &["SeedOssForCausalLM"], architecture: "seed_oss", names: &[&[
        ("post_attention_layernorm", "post_attention_norm", same),
    ]], ..Family::PLAIN },
    Family {
        classes: &["StableLmForCausalLM", "StableLMEpochForCausalLM"],
        architecture: "stablelm",
        names: &[&[
            ("self_attn.q_layernorm.norms.#", "attn_q_norm", same),
            ("self_attn.k_layernorm.norms.#", "attn_k_norm", same),
        ]],
        keys: |k| {
            k.number("context_length", &["max_position_embeddings"])?;
            k.number("embedding_length", &["hidden_size"])?;
            k.block_count()?;
            k.number("feed_forward_length", &["intermediate_size"])?;
            let share = k.config.rope_float("partial_rotary_factor").unwrap_or(0.25);
            let width = k.config.width()? / k.config.heads()?.max(1);
            k.set("rope.dimension_count", (share * width as f64) as u32);
            k.number("attention.head_count", &["num_attention_heads"])?;
            k.number("attention.head_count_kv", &["num_key_value_heads"])?;
            let parallel = k.config.flag("use_parallel_residual").unwrap_or(true);
            k.set("use_parallel_residual", parallel);
            k.float("attention.layer_norm_epsilon", &["layer_norm_eps", "norm_eps"])
        },
        ..Family::PLAIN
    },
    Family {
        classes: &["Exaone4ForCausalLM", "Exaone4_5_ForConditionalGeneration"],
        architecture: "exaone4",
        names: &[POST_NORMS],
        keys: |k| {
            k.common()?;
            k.vocab_size()?;
            if k.config.get("sliding_window").is_some() { k.window() } else { Ok(()) }
        },
        ..Family::PLAIN
    },
    Family {
        classes: &["ExaoneForCausalLM"],
        architecture: "exaone",
        names: &[&[
            ("wte", "token_embd", same),
            ("ln_f", "output_norm", same),
            ("ln_1", "attn_norm", same),
            ("ln_2", "ffn_norm", same),
            ("attn.attention.q_proj", "attn_q", same),
            ("attn.attention.k_proj", "attn_k", same),
            ("attn.attention.v_proj", "attn_v", same),
            ("attn.attention.out_proj", "attn_output", same),
            ("attn.attention.rotary.inv_freq", "", same),
            ("mlp.c_fc_0", "ffn_gate", same),
            ("mlp.c_fc_1", "ffn_up", same),
            ("mlp.c_proj", "ffn_down", same),
        ]],
        keys: |k| {
            k.common()?;
            k.rope_dimensions(1.0)
        },
        ..Family::PLAIN
    },
    Family {
        classes: &["CohereForCausalLM"],
        architecture: "command-r",
        keys: |k| {
            k.common()?;
            k.maybe("context_length", &["model_max_length", "max_position_embeddings"])?;
            logit_scale(k)?;
            k.unscaled();
            Ok(())
        },
        ..Family::PLAIN
    },
    Family {
        classes: &["Cohere2ForCausalLM"],
        architecture: "cohere2",
        keys: |k| {
            k.common()?;
            logit_scale(k)?;
            k.number("attention.sliding_window", &["sliding_window"])?;
            k.vocab_size()?;
            // A `rotary_pct` below 1 is refused, because llama.cpp and transformers treat it differently.
            k.config.only("rotary_pct", &Value::from(1.0))?;
            let head = k.config.head_width()? as u32;
            k.set("rope.dimension_count", head);
            k.unscaled();
            Ok(())
        },
        ..Family::PLAIN
    },
    Family {
        classes: &["NemotronForCausalLM"],
        architecture: "nemotron",
        names: &[&[
            ("norm.weight", "output_norm.weight", plus_one),
            ("input_layernorm.weight", "attn_norm.weight", plus_one),
            ("post_attention_layernorm.weight", "ffn_norm.weight", plus_one),
        ]],
        keys: |k| {
            k.common()?;
            k.vocab_size()?;
            k.float("attention.layer_norm_epsilon", &["layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps"])?;
            let share = k.config.rope_float("partial_rotary_factor").unwrap_or(0.5);
            k.set("rope.dimension_count", (share * k.config.head_width()? as f64) as u32);
            match k.config.float(&["factor"])?.filter(|_| k.config.rope_type().is_none()) {
                None => k.unscaled(),
                Some(factor) => {
                    k.set("rope.scaling.type", "linear");
                    k.set("rope.scaling.factor", factor);
                }
            }
            Ok(())
        },
        vocabulary: Vocabulary { ids: &[("padding_token_id", 0), ("unknown_token_id", 1)], ..Vocabulary::PLAIN },
        ..Family::PLAIN
    },
    Family {
        classes: &["Ernie4_5ForCausalLM", "Ernie4_5_ForCausalLM"],
        architecture: "ernie4_5",
        names: &[&[
            ("self_attn.qkv_proj", "attn_q attn_k attn_v", qkv),
            ("mlp.up_gate_proj", "ffn_gate ffn_up", halves),
        ]],
        ..Family::PLAIN
    },
    Family {
        classes: &["PaddleOCRVLForConditionalGeneration"],
        architecture: "paddleocr",
        names: &[&[
            ("self_attn.qkv_proj", "attn_q attn_k attn_v", qkv),
            ("mlp.up_gate_proj", "ffn_gate ffn_up", halves),
        ]],
        ..Family::PLAIN
    },
    Family {
        classes: &["BitNetForCausalLM", "BitnetForCausalLM"],
        architecture: "bitnet",
        names: &[&[
            ("self_attn.inner_attn_ln", "attn_sub_norm", same),
            ("self_attn.attn_sub_norm", "attn_sub_norm", same),
            ("mlp.ffn_layernorm", "ffn_sub_norm", same),
            ("mlp.ffn_sub_norm", "ffn_sub_norm", same),
        ]],
        keys: |k| {
            k.set("rope.scaling.type", "linear");
            k.set("rope.scaling.factor", 1.0f32);
            k.common()
        },
        ..Family::PLAIN
    },
    Family {
        classes: &["HunYuanVLForConditionalGeneration"],
        architecture: "hunyuan_vl",
        names: &[HUNYUAN],
        keys: |k| {
            k.common()?;
            let c = k.config;
            if !matches!(c.rope_type(), Some("dynamic" | "xdrope")) {
                return Ok(());
            }
            let sections = c.rope_outer("xdrope_section").or(c.rope_outer("mrope_section"));
            let Some(sections) = sections.and_then(|list| list.as_array()) else { return stretched(k, 50.0) };
            // llama.cpp applies `alpha` to the base itself.
            k.set("rope.scaling.alpha", c.rope_float("alpha").context("the rope settings in config.json have no alpha")? as f32);
            k.set("rope.scaling.type", "none");
            k.set("rope.scaling.factor", c.rope_float("factor").unwrap_or(1.0) as f32);
            k.number("rope.scaling.original_context_length", &["max_position_embeddings"])?;
            k.set("rope.dimension_sections", Meta::array(sections.iter().map(|n| n.as_i64().unwrap_or(0) as i32)));
            Ok(())
        },
        vocabulary: Vocabulary { end_of_document: true, ..Vocabulary::PLAIN },
        ..Family::PLAIN
    },
    Family {
        classes: &["HunYuanDenseV1ForCausalLM"],
        architecture: "hunyuan-dense",
        names: &[HUNYUAN],
        keys: |k| {
            k.common()?;
            if matches!(k.config.rope_type(), Some("dynamic" | "xdrope")) && k.config.rope("alpha").is_some() {
                stretched(k, 50.0)?;
            }
            Ok(())
        },
        vocabulary: Vocabulary { end_of_document: true, ..Vocabulary::PLAIN },
        ..Family::PLAIN
    },
];

/// Names of the norms of the query and key heads. HunYuan applies these norms after the rotation.
#[rustfmt::skip]
pub const HUNYUAN: &[Row] = &[
    ("self_attn.query_layernorm", "attn_q_norm", same),
    ("self_attn.key_layernorm", "attn_k_norm", same),
];

/// Writes the rotary base, multiplied so that it includes the scaling by `alpha`.
pub fn stretched(keys: &mut Keys<'_>, default: f64) -> Result<()> {
    let c = keys.config;
    let alpha = c.rope_float("alpha").unwrap_or(default);
    let base = c.rope_float("rope_theta").unwrap_or(10000.0);
    let dim = c.head_width()? as f64;
    keys.set("rope.freq_base", (base * alpha.powf(dim / (dim - 2.0))) as f32);
    keys.set("rope.scaling.type", "none");
    keys.set("rope.scaling.factor", 1.0f32);
    // The published models have 262144 positions, although some of their configs state 32768.
    if base == 10000.0 && matches!(c.number(&["max_position_embeddings"])?, Some(32768 | 262_144)) {
        keys.set("rope.scaling.original_context_length", 262_144u32);
        keys.set("context_length", 262_144u32);
    }
    Ok(())
}
