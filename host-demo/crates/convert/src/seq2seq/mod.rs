//! Converts encoder-decoder models from safetensors to GGUF with the architecture `seq2seq`.
//!
//! Keys under `seq2seq.`, in addition to the usual `embedding_length`, `context_length`, `feed_forward_length` and
//! `attention.head_count`:
//!
//! | key | |
//! |---|---|
//! | `block_count`, `decoder_block_count` | layers of the encoder and of the decoder |
//! | `attention.decoder_head_count`, `decoder_feed_forward_length` | if the decoder's differ from the encoder's |
//! | `norm.kind` | `layer`: `(x - mean) / sqrt(variance + eps)`; `layer_unbiased`: `(x - mean) / (std + eps)`, where the divisor of the variance is n - 1; `rms` |
//! | `norm.placement` | `pre`: before each sublayer; `post`: after the sublayer's residual |
//! | `norm.final` | whether each stack ends with a norm |
//! | `attention.layer_norm_epsilon` | |
//! | `activation` | `relu`, `silu`, `gelu`, `gelu_tanh` |
//! | `position.kind` | `interleaved`: sines on even, cosines on odd elements; `halves`: sines, then cosines |
//! | `embedding_scale` | factor of the embeddings |
//! | `bias` | whether the linear layers of a block have biases |
//! | `decoder_start_token_id` | the decoder's first token |
//!
//! The tensors have llama.cpp's names for T5: `enc.blk.N.attn_q.weight`, `dec.blk.N.cross_attn_q.weight`, ...; norms
//! `attn_norm`, `cross_attn_norm`, `ffn_norm` (pre) or `attn_output_norm`, `cross_attn_output_norm`,
//! `layer_output_norm` (post). Without `enc.token_embd`, the encoder shares the decoder's `token_embd`; without
//! `output`, the head shares it. `output.bias` is added to the logits.

mod families;
mod tensors;
mod vocabulary;

use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::tensor::Tensor;
use crate::written::write_model;
use arenite_gguf_writer::Header;
use families::Family;
use tensors::Source;

/// True for the folder of a Marian checkpoint.
pub fn is_marian(directory: &Path) -> bool {
    let config: Option<Value> =
        read(directory, "config.json").ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
    config.is_some_and(|config| config["model_type"] == "marian")
}

/// Converts the model in `directory` to `out`, with matrices in q8_0 if `q8_0` is set. Returns the name of the model's
/// family. Strings in the config's object `general` (license, attribution, ...) become keys under `general.`.
pub fn convert(directory: &Path, out: &Path, q8_0: bool) -> Result<&'static str> {
    let bytes = read(directory, "model.safetensors")?;
    let config: Value = serde_json::from_slice(&read(directory, "config.json")?).context("config.json is not JSON")?;
    let mut source = Source::new(&bytes)?;
    let Some(family) = Family::of(&config, &source) else {
        bail!("this is not a model of Marian, torch's nn.Transformer or English-Hindi: try `arenite convert hf`");
    };
    let mut header = Header::new();
    header.set("general.architecture", "seq2seq");
    if let Some(name) = directory.file_name().and_then(|name| name.to_str()) {
        header.set("general.name", name);
    }
    for (name, text) in config["general"].as_object().into_iter().flatten() {
        let text = text.as_str().with_context(|| format!("general.{name} in config.json is not a string"))?;
        header.set(&format!("general.{name}"), text);
    }
    let mut model = family.read(&config, &mut source)?;
    source.all_taken()?;
    if q8_0 {
        model.tensors = model.tensors.into_iter().map(Tensor::into_q8_0).collect();
        header.set("general.file_type", 7u32);
        header.set("general.quantization_version", 2u32);
    }
    model.keys(&mut header);
    vocabulary::read(directory, family, &model, &mut header)?;
    for tensor in &model.tensors {
        header.tensor(&tensor.name, &tensor.dims, tensor.kind)?;
    }
    write_model(out, |out| {
        let mut tensors = header.write(out)?;
        for tensor in &model.tensors {
            tensors.write_all(&tensor.bytes)?;
        }
        tensors.finish()?;
        Ok(())
    })?;
    Ok(family.name())
}

/// Reads a file of the model's directory.
fn read(directory: &Path, name: &str) -> Result<Vec<u8>> {
    let path = directory.join(name);
    arenite_files::read(&path)
}
