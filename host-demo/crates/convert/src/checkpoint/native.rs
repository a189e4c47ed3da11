//! Checkpoints in the form of Meta and of Mistral: `params.json` beside `consolidated.safetensors` or `consolidated.00.pth`.
//!
//! Sources: `llama_models` of Meta and `mistral_inference` of Mistral (`args.py`). What `params.json` does not say is
//! taken from transformers' scripts `convert_llama_weights_to_hf.py` and `convert_mistral_weights_to_hf.py`.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::changes::same;
use super::config::Config;
use super::families::{Family, llama};
use super::names::Row;
use super::plain;
use super::tensors::Checkpoint;

const CLASS: &str = "consolidated";

/// Names of the settings in Mistral's `params.json` that this module reads, or that only describe how the model was
/// trained.
const KNOWN: [&str; 23] = [
    "dim",
    "n_layers",
    "n_heads",
    "n_kv_heads",
    "head_dim",
    "hidden_dim",
    "vocab_size",
    "norm_eps",
    "rope_theta",
    "use_scaled_rope",
    "sliding_window",
    "max_seq_len",
    "max_position_embeddings",
    "model_max_length",
    "moe",
    "tied_embeddings",
    "multiple_of",
    "ffn_dim_multiplier",
    "max_batch_size",
    "use_biases",
    "causal",
    "ragged_attention",
    "model_parallel_size",
];

/// Names of the tensors of experts. Rotary frequencies have no name in GGUF, because they follow from the settings.
#[rustfmt::skip]
const EXPERTS: &[Row] = &[
    ("feed_forward.gate", "ffn_gate_inp", same),
    ("feed_forward.experts.#.w1", "ffn_gate_exps", same),
    ("feed_forward.experts.#.w2", "ffn_down_exps", same),
    ("feed_forward.experts.#.w3", "ffn_up_exps", same),
    ("rope.freqs", "", same),
];

pub const FAMILY: Family = Family {
    classes: &[CLASS],
    architecture: "llama",
    names: &[plain::LLAMA, EXPERTS],
    keys: llama::keys,
    ..Family::PLAIN
};

/// Converts Meta's or Mistral's `params.json` to a config with the names of transformers. `None` if the checkpoint is
/// not of this kind.
pub fn config(folder: &Path, checkpoint: &Checkpoint<'_>, notes: &mut Vec<String>) -> Result<Option<Config>> {
    let path = folder.join("params.json");
    let size = |name: &str, dim: usize| checkpoint.tensors.get(name).and_then(|leaf| leaf.shape.get(dim)).copied();
    let Some(rows) = size("tok_embeddings.weight", 0).filter(|_| path.is_file()) else { return Ok(None) };
    let text = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let params: Value = serde_json::from_slice(&text).with_context(|| format!("cannot parse {}", path.display()))?;
    let said = |name: &str| Some(&params[name]).filter(|value| !value.is_null());
    let others =
        params.as_object().into_iter().flatten().filter(|(name, value)| {
            !KNOWN.contains(&name.as_str()) && !matches!(value, Value::Null | Value::Bool(false))
        });
    if let Some((name, _)) = others.into_iter().next() {
        bail!("params.json has {name}, which is not supported: give the model in the form of transformers");
    }
    ensure!(
        said("causal") != Some(&Value::Bool(false)) && said("use_biases") != Some(&Value::Bool(true)),
        "params.json has causal or use_biases, which are not supported"
    );
    ensure!(
        !folder.join("consolidated.01.pth").is_file(),
        "the weights are divided among several processors (consolidated.01.pth): give the model in the form of transformers"
    );
    let scales = said("use_scaled_rope") == Some(&Value::Bool(true));
    let length = ["max_position_embeddings", "max_seq_len", "model_max_length"].into_iter().find_map(said);
    let length = length.cloned().unwrap_or_else(|| {
        let usual = usual_length(&params, scales, rows);
        notes.push(format!("params.json does not say how long a context may be: {usual} tokens are assumed"));
        usual.into()
    });
    let mut config = json!({
        "architectures": [CLASS],
        "num_hidden_layers": params["n_layers"],
        "num_attention_heads": params["n_heads"],
        "num_key_value_heads": said("n_kv_heads").unwrap_or(&params["n_heads"]),
        "hidden_size": params["dim"],
        "head_dim": params["head_dim"],
        "intermediate_size": said("hidden_dim").cloned().or(size("layers.0.feed_forward.w1.weight", 0).map(Value::from)),
        "max_position_embeddings": length,
        "rms_norm_eps": said("norm_eps").cloned().unwrap_or(1e-5.into()),
        "rope_theta": said("rope_theta").cloned().unwrap_or(10000.0.into()),
        "sliding_window": params["sliding_window"],
        "tie_word_embeddings": said("tied_embeddings").cloned().unwrap_or(false.into()),
        "vocab_size": rows,
    });
    if scales {
        // The factor of Llama 3.1 and 3.3 is 8, and the factor of the smaller models of Llama 3.2 is 32.
        let factor = if params["dim"].as_u64() < Some(4096) { 32.0 } else { 8.0 };
        config["rope_scaling"] = json!({
            "rope_type": "llama3", "factor": factor, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        });
    }
    if let Some(experts) = said("moe") {
        config["num_local_experts"] = experts["num_experts"].clone();
        config["num_experts_per_tok"] = experts["num_experts_per_tok"].clone();
    }
    Config::new(&config).map(Some)
}

/// The context of the models that have such settings.
fn usual_length(params: &Value, scales: bool, rows: usize) -> u32 {
    let is_metas = !params["multiple_of"].is_null();
    match (is_metas, scales) {
        (true, true) => 131_072,
        (true, false) if rows >= 128_000 => 8192,
        (true, false) => 4096,
        (false, _) => 32768,
    }
}
