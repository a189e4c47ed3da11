//! Checkpoints that store their settings with the tensors: nanoGPT's, llama2.c's, and OpenAI's Whisper.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::changes::same;
use super::config::Config;
use super::families::{Family, Made, gpt, speech};
use super::keys::Keys;
use super::names::Row;
use super::openai_whisper;
use super::tensors::Checkpoint;

const NANO_GPT: &str = "nanoGPT";
const LLAMA2C: &str = "llama2.c";
const WHISPER: &str = "OpenAI's Whisper";

/// Converts the settings that a checkpoint stores with its tensors to a config; `None` if there are no such settings.
pub fn config(checkpoint: &Checkpoint<'_>) -> Result<Option<Config>> {
    let settings = |name: &str| checkpoint.settings.as_ref().and_then(|settings| settings.get(name));
    if let Some(dims) = settings("dims") {
        return Config::new(&openai_whisper::config(dims, WHISPER)).map(Some);
    }
    // nanoGPT and llama2.c store `model_args`. build-nanogpt stores an object named `config`, and its models
    // approximate GELU.
    let has_heads = |(settings, _): &(&Value, _)| settings["n_head"].is_u64() || settings["n_heads"].is_u64();
    let found = [("model_args", "gelu"), ("config", "gelu_pytorch_tanh")].into_iter();
    let mut found = found.filter_map(|(name, activation)| Some((settings(name)?, activation)));
    let Some((settings, activation)) = found.find(has_heads) else { return Ok(None) };
    let size = |name: &str, dim: usize| checkpoint.tensors.get(name).and_then(|leaf| leaf.shape.get(dim)).copied();
    let config = if let Some(rows) = size("transformer.wte.weight", 0) {
        json!({
            "architectures": [NANO_GPT],
            "n_layer": settings["n_layer"],
            "n_head": settings["n_head"],
            "n_embd": settings["n_embd"],
            "n_positions": settings["block_size"],
            "vocab_size": rows,
            "layer_norm_epsilon": 1e-5,
            "activation_function": activation,
            "bias": size("transformer.ln_f.bias", 0).is_some(),
        })
    } else if let Some(rows) = size("tok_embeddings.weight", 0) {
        let heads = &settings["n_heads"];
        let or = |name: &str, default: Value| if settings[name].is_null() { default } else { settings[name].clone() };
        json!({
            "architectures": [LLAMA2C],
            "num_hidden_layers": settings["n_layers"],
            "num_attention_heads": heads,
            "num_key_value_heads": or("n_kv_heads", heads.clone()),
            "hidden_size": settings["dim"],
            "intermediate_size": size("layers.0.feed_forward.w1.weight", 0),
            "max_position_embeddings": settings["max_seq_len"],
            "rms_norm_eps": or("norm_eps", 1e-5.into()),
            "rope_theta": 10000.0,
            "vocab_size": rows,
        })
    } else {
        return Ok(None);
    };
    Config::new(&config).map(Some)
}

/// Returns the family of a checkpoint of a training script, which contains its own settings.
pub fn family(config: &Config) -> Result<&'static Family> {
    let class = config.classes().first().copied().unwrap_or_default();
    ALL.iter()
        .find(|family| family.classes.contains(&class))
        .context("the file has the settings of an unknown training script: nanoGPT's and llama2.c's are supported")
}

/// Tensor names of llama2.c, which are those of Meta and of Mistral. Rows that are rotated together are already neighbours.
#[rustfmt::skip]
pub const LLAMA: &[Row] = &[
    ("tok_embeddings", "token_embd", same),
    ("output", "output", same),
    ("attention_norm", "attn_norm", same),
    ("ffn_norm", "ffn_norm", same),
    ("attention.wq", "attn_q", same),
    ("attention.wk", "attn_k", same),
    ("attention.wv", "attn_v", same),
    ("attention.wo", "attn_output", same),
    ("feed_forward.w1", "ffn_gate", same),
    ("feed_forward.w2", "ffn_down", same),
    ("feed_forward.w3", "ffn_up", same),
    ("attention.mask", "", same),
    ("freqs_cos", "", same),
    ("freqs_sin", "", same),
];

fn gpt(keys: &mut Keys<'_>) -> Result<()> {
    keys.number("context_length", &["n_positions"])?;
    keys.number("embedding_length", &["n_embd"])?;
    keys.set("feed_forward_length", 4 * keys.config.width()? as u32);
    keys.block_count()?;
    keys.number("attention.head_count", &["n_head"])?;
    keys.float("attention.layer_norm_epsilon", &["layer_norm_epsilon"])
}

/// Makes biases of zeros for a model without biases, because the architecture `gpt2` requires biases.
fn no_biases(config: &Config) -> Result<Vec<Made>> {
    if config.get("bias") != Some(&Value::Bool(false)) {
        return Ok(Vec::new());
    }
    let (width, layers) = (config.width()?, config.layers()?);
    ensure!(width <= 1 << 16 && layers <= 1 << 12, "its sizes are larger than any model's");
    let zeros =
        |name: String, times: usize| Made { name: format!("{name}.bias").into(), values: vec![0.0; times * width] };
    let names =
        [("attn_norm", 1), ("attn_qkv", 3), ("attn_output", 1), ("ffn_norm", 1), ("ffn_up", 4), ("ffn_down", 1)];
    let layers = (0..layers).flat_map(|i| names.map(|(name, times)| zeros(format!("blk.{i}.{name}"), times)));
    Ok(layers.chain([zeros("output_norm".to_owned(), 1)]).collect())
}

fn llama(keys: &mut Keys<'_>) -> Result<()> {
    keys.common()?;
    keys.vocab_size()?;
    let width = keys.config.head_width()? as u32;
    keys.set("rope.dimension_count", width);
    Ok(())
}

#[rustfmt::skip]
const ALL: &[Family] = &[
    Family { classes: &[NANO_GPT], architecture: "gpt2", names: &[gpt::GPT2], keys: gpt, made: no_biases, ..Family::PLAIN },
    Family { classes: &[WHISPER], architecture: "whisper", names: &[speech::OPENAI], keys: speech::whisper, ..Family::PLAIN },
    Family { classes: &[LLAMA2C], architecture: "llama", names: &[LLAMA], keys: llama, ..Family::PLAIN },
];
