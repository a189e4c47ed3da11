//! Converts checkpoints of Hugging Face (safetensors, torch) to GGUF.
//!
//! | file | |
//! |---|---|
//! | `tensors`, `torch` | stored tensors, as views of mapped files |
//! | `quantized` | tensors that are already quantized |
//! | `view` | reshaped, sliced and transposed without copies |
//! | `changes` | changes of a tensor on its way to the new file |
//! | `names`, `families` | names of tensors and settings in checkpoints and in GGUF |
//! | `config`, `keys`, `general` | metadata |
//! | `output` | the new file's tensors |

mod changes;
mod config;
mod families;
mod general;
mod keys;
pub mod lora;
mod names;
mod output;
mod plain;
mod pooling;
mod quantized;
mod tensors;
mod torch;
mod view;

use std::path::Path;

use anyhow::{Context, Result, ensure};
use arenite::quant::TensorType;
use indicatif::{ProgressBar, ProgressStyle};

use crate::gguf_writer::{Header, Meta};
use crate::new_model::write_converted;
use crate::output::watched;
use crate::quantize::mix::{Chooser, Facts, Mix, Shape, TypeOptions};
use crate::tokenizer_file::folder;
use crate::{interrupt, workers};
use config::Config;
use families::Family;
pub use families::Vocabulary as VocabularyRules;
use keys::Keys;
use output::{Assembled, Output};
use tensors::{Checkpoint, Files};

/// The input and output of a conversion.
pub struct Request<'r> {
    /// A directory, or a file with weights.
    pub from: &'r Path,
    pub to: &'r Path,
    /// Types of the tensors; `None` keeps the stored ones.
    pub mix: Option<Mix>,
    /// A vocabulary outside of the directory.
    pub tokenizer: Option<&'r Path>,
}

/// A summary of the conversion, for messages.
pub struct Report {
    pub architecture: String,
    pub notes: Vec<String>,
}

/// Converts a checkpoint.
pub fn convert(request: &Request<'_>) -> Result<Report> {
    let directory = if request.from.is_dir() { Some(request.from) } else { request.from.parent() };
    let files = Files::open(request.from)?;
    let mut checkpoint = Checkpoint::read(&files)?;
    let config = directory.map(|directory| directory.join("config.json")).filter(|path| path.is_file());
    let mut of_a_script = false;
    let (config, family) = match (plain::config(&checkpoint)?, config) {
        (Some(config), _) => {
            of_a_script = true;
            let family = plain::family(&config)?;
            (config, family)
        }
        (None, Some(path)) => {
            let config = Config::read(&path)?;
            let family = Family::of(&config, &checkpoint)?;
            (config, family)
        }
        (None, None) => anyhow::bail!("there is no config.json in the directory of {}", request.from.display()),
    };
    quantized::prepare(&config, directory, &mut checkpoint)?;
    let architecture = family.architecture(&config);
    let tables = families::tables(family, &config);
    let Assembled { mut outputs, scalars, mut notes } = output::assemble(&checkpoint, family, &tables, &config)?;
    if let Some(directory) = directory {
        pooling::dense(directory, &mut outputs)?;
    }
    choose_types(&mut outputs, request.mix, &config, architecture)?;

    let mut header = Header::new();
    header.set("general.architecture", architecture);
    for (key, values) in scalars {
        header.set(key, Meta::array(values));
    }
    header.set("general.type", "model");
    general::write(&mut header, request.from, &outputs);
    let mut keys = Keys { config: &config, header: &mut header, architecture };
    (family.keys)(&mut keys)?;
    notes.extend(keys.dropped_window());
    if let Some(directory) = directory {
        pooling::keys(directory, &mut keys)?;
        if matches!(architecture, "whisper" | "moonshine") {
            families::speech::tokens(directory, &mut keys)?;
        }
    }
    header.set("general.file_type", file_type(&outputs, request.mix));
    header.set("general.quantization_version", 2u32);
    let embedding = outputs.iter().find(|output| output.name == "token_embd.weight");
    let rows =
        embedding.and_then(|output| output.shape.first().copied()).context("the checkpoint has no token embedding")?;
    let vocabulary = folder::Wanted {
        directory: request.tokenizer.or(directory).context("there is no directory with a tokenizer")?,
        architecture,
        config: &config.json(),
        rows,
        rules: &family.vocabulary,
    };
    // A training script saves its weights in a separate folder.
    if of_a_script && request.tokenizer.is_none() && !folder::has(vocabulary.directory) {
        notes.push("the file has no vocabulary: give one with --tokenizer".to_owned());
    } else {
        notes.extend(folder::write(&vocabulary, &mut header)?);
    }
    for output in &outputs {
        header.tensor(&output.name, &output.dims(), output.kind)?;
    }
    write(request.to, &header, &outputs, &mut notes)?;
    Ok(Report { architecture: architecture.to_owned(), notes })
}

/// Chooses the type of each tensor.
fn choose_types(outputs: &mut [Output<'_>], mix: Option<Mix>, config: &Config, architecture: &str) -> Result<()> {
    // The type of most weights.
    let natural = outputs.iter().filter(|output| output.shape.len() > 1).max_by_key(|output| output.len());
    let natural = natural.map_or(TensorType::F32, Output::stored);
    let natural = match natural {
        TensorType::F16 | TensorType::BF16 => natural,
        TensorType::NVFP4 | TensorType::MXFP4 => TensorType::BF16,
        _ => TensorType::F32,
    };
    let plain = match mix {
        None => Some(natural),
        Some(mix) if matches!(mix.kind(), TensorType::F32 | TensorType::F16 | TensorType::BF16) => Some(mix.kind()),
        // llama.cpp's converter also writes this type, by its own rule.
        Some(Mix::Q8_0) => Some(TensorType::Q8_0),
        Some(_) => None,
    };
    let heads = config.heads().unwrap_or(0) as u32;
    let facts = Facts {
        architecture,
        heads,
        key_heads: config.key_heads().map_or(heads, |heads| heads as u32),
        layers: config.layers().unwrap_or(0) as u32,
        experts: config.experts().unwrap_or(0) as u32,
    };
    let options = TypeOptions::default();
    let names: Vec<String> = outputs.iter().map(|output| output.name.clone()).collect();
    let mut chooser = Chooser::of(&facts, names.iter().map(String::as_str), mix.unwrap_or(Mix::F32), &options, false);
    for output in outputs.iter_mut() {
        let four = matches!(output.stored(), TensorType::NVFP4 | TensorType::MXFP4);
        output.kind = match plain {
            _ if four => output.stored(),
            _ if output.stays_f32() => TensorType::F32,
            Some(kind) => {
                let whole = output.shape.last().is_some_and(|columns| columns.is_multiple_of(kind.block().0));
                if whole { kind } else { TensorType::F16 }
            }
            None => {
                let mut dims = [1; 4];
                output.dims().iter().zip(&mut dims).for_each(|(size, dim)| *dim = *size);
                chooser.choose(&Shape { name: &output.name, dims, kind: TensorType::F32 })?
            }
        };
    }
    Ok(())
}

/// `general.file_type`.
fn file_type(outputs: &[Output<'_>], mix: Option<Mix>) -> u32 {
    let has = |kind| outputs.iter().any(|output| output.kind == kind);
    let plain = mix.is_none_or(|mix| matches!(mix.kind(), TensorType::F32 | TensorType::F16 | TensorType::BF16));
    match mix {
        _ if plain && has(TensorType::NVFP4) => 39,
        _ if plain && has(TensorType::MXFP4) => 38,
        Some(mix) => mix.number(),
        None if has(TensorType::BF16) => Mix::BF16.number(),
        None if has(TensorType::F16) => Mix::F16.number(),
        None => Mix::F32.number(),
    }
}

fn write(path: &Path, header: &Header, outputs: &[Output<'_>], notes: &mut Vec<String>) -> Result<()> {
    interrupt::listen();
    let total: usize =
        outputs.iter().filter_map(|o| Some(o.kind.row_bytes(*o.shape.last()?)? * o.len() / o.shape.last()?)).sum();
    let bar = if watched() {
        let style = ProgressStyle::with_template("{bar:32} {bytes}/{total_bytes} {eta} {msg}");
        ProgressBar::new(total as u64).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
    } else {
        ProgressBar::hidden()
    };
    let threads = workers::cores();
    let opened = write_converted(path, |out| {
        let mut data = header.write(out)?;
        for output in outputs {
            bar.set_message(output.name.clone());
            output.write(threads, &mut data, |bytes| {
                bar.inc(bytes as u64);
                ensure!(!interrupt::asked(), "stopped: {} was not written", path.display());
                Ok(())
            })?;
        }
        data.finish().map(|_| ())
    });
    bar.finish_and_clear();
    notes.extend(opened?);
    Ok(())
}

/// Writes the vocabulary of a `tokenizer.json` for a model of llama2.c with `rows` rows.
pub fn vocabulary_of_llama2c(tokenizer: &Path, rows: usize, header: &mut Header) -> Result<()> {
    let (config, rules) = (serde_json::Value::Null, VocabularyRules::PLAIN);
    let wanted = folder::Wanted { directory: tokenizer, architecture: "llama", config: &config, rows, rules: &rules };
    folder::write(&wanted, header).map(|_| ())
}
