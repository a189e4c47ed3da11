//! Converts checkpoints of Hugging Face (safetensors, torch) to GGUF.
//!
//! | file | |
//! |---|---|
//! | `tensors`, `torch`, `whisper_cpp` | stored tensors, as views of mapped files |
//! | `quantized`, `integers`, `awq`, `hqq`, `mlx`, `modelopt`, `packed` | tensors that are already quantized |
//! | `grid` | integers of other programs in GGUF's blocks, without loss |
//! | `access` | the values and names of tensors |
//! | `view` | reshaped, sliced and transposed tensors, without copies |
//! | `changes` | changes of a tensor on its way to the new file |
//! | `names`, `families` | names of tensors and settings in checkpoints and in GGUF |
//! | `config`, `defaults`, `keys`, `general` | metadata |
//! | `agreement` | checks that the model that the core reads follows the config |
//! | `settings` | checks that settings that were not read have no effect |
//! | `plain`, `openai_whisper` | checkpoints that store their settings with the tensors |
//! | `native` | checkpoints in the form of Meta and of Mistral |
//! | `projector` | the encoder of pictures, which becomes a separate file |
//! | `reranker`, `pooling`, `decision` | heads and prompts of rerankers, embedding models and decision models |
//! | `output` | the new file's tensors |
//! | `lora`, `whole`, `adapter_config` | adapters |

mod access;
mod adapter_config;
mod agreement;
mod awq;
mod changes;
mod config;
mod decision;
mod defaults;
mod families;
mod general;
mod grid;
mod hqq;
mod image_processor;
mod integers;
mod keys;
mod leaf;
pub mod lora;
mod mlx;
mod modelopt;
mod names;
mod native;
mod openai_whisper;
mod output;
mod packed;
mod plain;
mod pooling;
mod projector;
mod quantized;
mod reranker;
mod settings;
mod tensors;
pub mod torch;
mod view;
pub mod whisper_cpp;
mod whole;

use std::io::{Cursor, Seek, Write};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use arenite::quant::TensorType;
use serde_json::Value;

use crate::tokenizer_file::ranks::Ranks;
use crate::tokenizer_file::wanted::Wanted;
use crate::tokenizer_file::{VocabularyRules, files, folder};
use crate::written::write_converted;
use arenite_gguf_writer::Header;
use arenite_quantize::mix::{Chooser, Facts, Mix, Shape, TypeOptions};
use config::Config;
use decision::Decision;
use families::Family;
use image_processor::ImageProcessor;
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

/// The progress of a conversion.
pub struct Progress<'p> {
    /// Name of the tensor that is being written.
    pub tensor: &'p str,
    /// Bytes of tensor data that were written.
    pub done: usize,
    /// Bytes of tensor data of the whole file.
    pub total: usize,
}

/// Converts a checkpoint. Calls `go_on` while the file is written. If `go_on` returns false, the conversion stops and
/// leaves no file.
pub fn convert(request: &Request<'_>, go_on: &mut dyn FnMut(&Progress<'_>) -> bool) -> Result<Report> {
    // Adapters of decision models are refused first, so that the error names the adapter. Their files do not have the
    // weights of a whole model, so reading them would fail with another error.
    if request.from.is_dir() {
        Decision::of(request.from)?;
    }
    let files = match request.from.is_dir() {
        true => Files::open(&pooling::transformer(request.from)?)?,
        false => Files::open(request.from)?,
    };
    let mut checkpoint = Checkpoint::read(&files)?;
    let folder = request.from.is_dir().then_some(request.from);
    let projector = folder.map(|folder| projector::assemble(folder, request.mix, &checkpoint));
    let mut new = assemble(request, &mut checkpoint)?;
    write(request.to, &files, &mut new, go_on)?;
    match projector.transpose() {
        Ok(Some(Some(mut projector))) => {
            let path = projector::beside(request.to);
            write(&path, &files, &mut projector, go_on)?;
            new.notes.retain(|note| !note.ends_with(output::OTHERS));
            new.notes.push(format!("{}: the projector, for pictures", path.display()));
        }
        Ok(_) => {}
        Err(why) if folder.is_some_and(ImageProcessor::is_absent) => {
            new.notes.push(format!("the projector is not written, so there are no pictures: {why:#}"));
        }
        Err(why) => return Err(why.context("the model is written without its projector, so it reads no pictures")),
    }
    Ok(Report { architecture: new.architecture.to_owned(), notes: new.notes })
}

/// Converts a checkpoint that is a single file to GGUF, in memory.
pub fn in_memory(from: &Path) -> Result<Vec<u8>> {
    let files = Files::open(from)?;
    let mut checkpoint = Checkpoint::read(&files)?;
    let request = Request { from, to: from, mix: None, tokenizer: None };
    let new = assemble(&request, &mut checkpoint).with_context(|| from.display().to_string())?;
    let mut bytes = Cursor::new(Vec::new());
    write_to(&mut bytes, &files, &new.header, &new.outputs, |_, _| Ok(()))?;
    Ok(bytes.into_inner())
}

/// A converted model that is not written yet.
struct New<'f> {
    architecture: &'static str,
    header: Header,
    outputs: Vec<Output<'f>>,
    notes: Vec<String>,
}

/// Reads the settings, and assembles metadata and tensors.
fn assemble<'f>(request: &Request<'_>, checkpoint: &mut Checkpoint<'f>) -> Result<New<'f>> {
    let folder = if request.from.is_dir() { Some(request.from) } else { request.from.parent() };
    let decision = folder.map(Decision::of).transpose()?.flatten();
    let mut notes = Vec::new();
    let native = folder.map(|folder| native::config(folder, checkpoint, &mut notes)).transpose()?.flatten();
    let (config, family, directory) = match plain::config(checkpoint)? {
        // No folder is returned, because the other files beside the checkpoint of a training script do not belong to
        // the model.
        Some(config) => {
            let family = plain::family(&config)?;
            (config, family, None)
        }
        None if let Some(config) = native => (config, &native::FAMILY, folder),
        None if let (Some(decision), Some(folder)) = (decision, folder) => {
            let config = decision.config(folder)?;
            let family = Family::of(&config, checkpoint)?;
            (config, family, Some(folder))
        }
        None => {
            let path = folder.map(pooling::transformer).transpose()?;
            let path = path.map(|folder| folder.join("config.json")).filter(|path| path.is_file());
            let path = path.with_context(|| {
                let from = request.from.display();
                format!("there is no config.json beside {from}, and no settings of nanoGPT or llama2.c: copy the model's there")
            })?;
            let config = Config::read(&path)?;
            let family = Family::of(&config, checkpoint)?;
            (config, family, folder)
        }
    };
    let method = quantized::prepare(&config, directory, checkpoint)?;
    let architecture = family.architecture(&config);
    let tables = families::tables(family, &config);
    let Assembled { mut outputs, scalars, notes: others } = output::assemble(checkpoint, family, &tables, &config)?;
    notes.extend(others);
    let mut pools = false;
    if let Some(directory) = directory {
        let prefix = if architecture == "t5encoder" { "enc." } else { "" };
        pooling::dense(directory, prefix, &mut outputs)?;
        pools = pooling::pools(directory)?;
    }
    output::complete(&outputs, &config, pools)?;
    if let (Some(decision), Some(folder)) = (decision, folder) {
        decision.head(folder, &mut outputs)?;
    }
    let reranker = directory.filter(|directory| reranker::is(&config, directory));
    if let Some(directory) = reranker {
        reranker::head(&config, request.tokenizer.unwrap_or(directory), &mut outputs)?;
        notes
            .push("its name is a reranker's: of the head, the file has only the rows of \"yes\" and \"no\"".to_owned());
    }
    choose_types(&mut outputs, request.mix, &config, architecture)?;
    notes.extend(outputs.iter_mut().filter_map(Output::keep_small));
    notes.extend(method.filter(|_| request.mix.is_none()).and_then(|method| integers(&method, &outputs)));

    let mut header = Header::new();
    header.set("general.architecture", architecture);
    for (key, value) in scalars {
        header.set(key, value);
    }
    header.set("general.type", "model");
    general::write(&mut header, request.from, directory, &config, &outputs)?;
    let mut keys = Keys { config: &config, header: &mut header, architecture };
    (family.keys)(&mut keys)?;
    keys.direction();
    keys.predicting(output::predicting(&outputs))?;
    notes.extend(keys.dropped_window()?);
    notes.extend(keys.other_slopes());
    notes.extend(keys.dynamic_scaling());
    notes.extend(dropped_bias(checkpoint));
    notes.extend(directory.and_then(adapter_beside));
    if let Some(directory) = directory {
        pooling::keys(directory, &mut keys)?;
        notes.extend(pooling::notes(directory, keys.context_length())?);
    }
    if reranker.is_some() {
        reranker::keys(&mut keys);
    }
    header.set("general.file_type", file_type(&outputs, request.mix));
    header.set("general.quantization_version", 2u32);
    let tokenizer = decision.zip(folder).and_then(|(decision, folder)| Some(decision.folders(folder)?.1));
    let inner = folder.map(pooling::transformer).transpose()?;
    let place = tokenizer.as_deref().or(inner.as_deref());
    notes.extend(vocabulary((request, place), checkpoint, family, &config, &outputs, &mut header)?);
    let padded = pooling::padded_ends(&mut Keys { config: &config, header: &mut header, architecture });
    notes.extend(padded.map(str::to_owned));
    if let (Some(decision), Some(folder)) = (decision, folder) {
        decision.keys(&mut Keys { config: &config, header: &mut header, architecture }, folder)?;
    }
    for output in &outputs {
        header.tensor(&output.name, &output.dims(), output.kind)?;
    }
    agreement::settle(&mut header, &config, architecture)?;
    settings::check(&config, architecture)?;
    settings::check_tensors(&config, architecture, &outputs)?;
    Ok(New { architecture, header, outputs, notes })
}

/// Returns a note about an adapter in the model's folder, which transformers adds to the model.
fn adapter_beside(directory: &Path) -> Option<String> {
    let has = |name: &str| directory.join(name).is_file();
    let weights = ["adapter_model.safetensors", "adapter_model.bin"].into_iter().find(|name| has(name))?;
    has("adapter_config.json").then(|| {
        format!(
            "{weights}, which transformers would add to the model, is left out: convert it with `arenite convert lora {}`, and give \
             the result to --lora or `arenite merge`",
            directory.display()
        )
    })
}

/// Writes the vocabulary. The vocabulary is read from `--tokenizer`, from the file of the weights, or from the folder
/// of the weights.
fn vocabulary(
    (request, folder): (&Request<'_>, Option<&Path>),
    checkpoint: &Checkpoint<'_>,
    family: &Family,
    config: &Config,
    outputs: &[Output<'_>],
    header: &mut Header,
) -> Result<Vec<String>> {
    let is_speech = matches!(family.architecture, "whisper" | "moonshine");
    let embedding = outputs.iter().find(|output| output.name == "token_embd.weight");
    let rows = embedding
        .and_then(|output| output.shape.first().copied())
        .context("the checkpoint has no token embedding: give the folder of the whole model")?;
    let architecture = family.architecture(config);
    let wanted = Wanted {
        directory: request
            .tokenizer
            .or(folder)
            .context("the checkpoint comes without a tokenizer: give a folder with one with --tokenizer")?,
        architecture,
        config: &config.json(),
        rows,
        rules: &family.vocabulary,
    };
    if !checkpoint.tokens.is_empty() && request.tokenizer.is_none() {
        let special = openai_whisper::Special::new(rows as u32);
        let tokens = checkpoint.tokens.get(..special.first as usize).unwrap_or(&checkpoint.tokens);
        let ranks = Ranks::new(tokens);
        let tokenizer = special.tokenizer(&ranks);
        let mut keys = Keys { config, header, architecture };
        families::speech::tokens(&special.settings(Some(&ranks)), &tokenizer, &mut keys)?;
        folder::write_json(&wanted, &tokenizer, header)?;
        return Ok(Vec::new());
    }
    if is_speech {
        if let Some(path) = folder.map(|folder| folder.join("preprocessor_config.json")).filter(|path| path.is_file()) {
            families::speech::check_extractor(&config::json(&path)?, architecture)?;
        }
        let tokenizer = files::tokenizer(wanted.directory)?.unwrap_or(Value::Null);
        let settings = if wanted.directory.is_dir() {
            wanted.directory
        } else {
            wanted.directory.parent().unwrap_or(wanted.directory)
        };
        let path = settings.join("generation_config.json");
        let mut settings = if path.is_file() { config::json(&path)? } else { Value::Null };
        if settings.is_null() && checkpoint.settings.is_some() {
            settings = openai_whisper::Special::new(rows as u32).settings(None);
        }
        families::speech::tokens(&settings, &tokenizer, &mut Keys { config, header, architecture })?;
    }
    if checkpoint.settings.is_some() && request.tokenizer.is_none() && !folder::has(wanted.directory) {
        return Ok(vec!["the file has no vocabulary: give one with --tokenizer".to_owned()]);
    }
    folder::write(&wanted, header)
}

/// Chooses the type of each tensor.
fn choose_types(outputs: &mut [Output<'_>], mix: Option<Mix>, config: &Config, architecture: &str) -> Result<()> {
    let plain = match mix {
        Some(mix) if matches!(mix.kind(), TensorType::F32 | TensorType::F16 | TensorType::BF16) => Some(mix.kind()),
        // For the name Q8_0, every matrix gets the type Q8_0, as from llama.cpp's converter. `llama-quantize` chooses
        // some types differently.
        Some(Mix::Q8_0) => Some(TensorType::Q8_0),
        _ => None,
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
        if output.is_integer() {
            output.find_grid();
        }
        let four = matches!(output.stored(), TensorType::NVFP4 | TensorType::MXFP4);
        output.kind = match plain {
            _ if four => output.stored(),
            _ if output.stays_f32() => TensorType::F32,
            // Weights that another program has quantized to integers become F32, because the products of integers and
            // factors have more bits than half precision. (A quantized type would store the same weights, but its
            // kernels also round the activations.)
            _ if mix.is_none() && output.is_integer() => TensorType::F32,
            _ if mix.is_none() => output.stored(),
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

/// Returns a note for conversions without `--type`, if `method` has quantized the checkpoint's weights to integers.
fn integers(method: &str, outputs: &[Output<'_>]) -> Option<String> {
    let mut grids = outputs.iter().filter(|output| output.is_integer()).map(|output| output.grid);
    let first = grids.next()?;
    let smaller = match first.filter(|first| grids.all(|grid| grid == Some(*first))) {
        Some(kind) => format!("; --type {kind:?} has the same weights in a smaller file"),
        None => String::new(),
    };
    Some(format!(
        "its weights are integers of {method}: without --type, they are written as F32, which loses nothing{smaller}"
    ))
}

/// Returns the value of `general.file_type`.
fn file_type(outputs: &[Output<'_>], mix: Option<Mix>) -> u32 {
    let has = |kind| outputs.iter().any(|output| output.kind == kind);
    let plain = mix.is_none_or(|mix| matches!(mix.kind(), TensorType::F32 | TensorType::F16 | TensorType::BF16));
    match mix {
        _ if plain && has(TensorType::NVFP4) => 39,
        _ if plain && has(TensorType::MXFP4) => 38,
        Some(mix) => mix.number(),
        None => {
            let mixes = [Mix::BF16, Mix::F16].into_iter().filter(|mix| has(mix.kind()));
            let quantized = outputs.iter().filter(|output| output.kind.block().0 > 1).max_by_key(|output| output.len());
            quantized.map(|output| Mix::of(output.kind)).into_iter().chain(mixes).next().unwrap_or(Mix::F32).number()
        }
    }
}

/// Returns a note if the experts of a Nomic model have a bias that is added to the sum of the experts, because the bias
/// is left out.
fn dropped_bias(checkpoint: &Checkpoint<'_>) -> Option<String> {
    let mut biases = checkpoint.tensors.keys().filter(|name| name.ends_with(".mlp.experts.bias"));
    let has_values = |name: &String| {
        checkpoint.view(name).is_some_and(|view| {
            let mut values = vec![0.0; view.len()];
            view.read(0, &mut values);
            values.iter().any(|value| *value != 0.0)
        })
    };
    biases.any(has_values).then(|| {
        "the experts' bias is left out, because GGUF has no tensor for it: the results differ from the checkpoint's"
            .to_owned()
    })
}

fn write(path: &Path, files: &Files, new: &mut New<'_>, go_on: &mut dyn FnMut(&Progress<'_>) -> bool) -> Result<()> {
    let New { header, outputs, notes, .. } = new;
    let total =
        outputs.iter().filter_map(|o| Some(o.kind.row_bytes(*o.shape.last()?)? * o.len() / o.shape.last()?)).sum();
    let mut done = 0;
    let opened = write_converted(path, |out| {
        write_to(out, files, header, outputs, |tensor, bytes| {
            done += bytes;
            let goes_on = go_on(&Progress { tensor, done, total });
            ensure!(goes_on, "stopped: {} was not written", path.display());
            Ok(())
        })
    });
    notes.extend(opened?);
    Ok(())
}

/// Writes metadata and tensors. Calls `go_on` after each write with the tensor's name and the number of bytes.
fn write_to(
    out: impl Write + Seek,
    files: &Files,
    header: &Header,
    outputs: &[Output<'_>],
    mut go_on: impl FnMut(&str, usize) -> Result<()>,
) -> Result<()> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut data = header.write(out)?;
    for output in outputs {
        output.write(cores, &mut data, |bytes| go_on(&output.name, bytes))?;
        output.parts().for_each(|part| files.release(part));
    }
    data.finish().map(|_| ())
}

/// Writes the vocabulary of a `tokenizer.json` for a model of llama2.c whose embedding has `rows` rows.
pub fn vocabulary_of_llama2c(tokenizer: &Path, rows: usize, header: &mut Header) -> Result<()> {
    let (config, rules) = (serde_json::Value::Null, VocabularyRules::PLAIN);
    let wanted = Wanted { directory: tokenizer, architecture: "llama", config: &config, rows, rules: &rules };
    folder::write(&wanted, header).map(|_| ())
}
