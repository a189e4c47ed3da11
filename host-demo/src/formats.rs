//! The files other than GGUF that this program opens as models, and the models that are built into the program.

use std::io::Cursor;
use std::path::Path;

use anyhow::{Context, Result, anyhow, ensure};
use arenite_convert::checkpoint::{self, whisper_cpp};
use arenite_convert::{llama2c, tokenizer_file};
use arenite_files::map;
use arenite_run::model_file::{self, Formats, ModelFile, Source};

use crate::cli::ModelArgs;
use crate::foreign;
use crate::output::note;

/// The built-in models, trained by the scripts in `models/`.
static STORIES: &[u8] = include_bytes!("../models/stories.gguf");
static TRANSLATOR: &[u8] = include_bytes!("../models/translator.gguf");

/// Registers the formats.
pub fn register() {
    model_file::register(Formats { no_file: foreign::path, convert, with_vocabulary: tokenizer_file::with_tokenizer });
}

/// Opens the model that the options name, or the built-in story model.
pub fn open(model: &ModelArgs) -> Result<ModelFile> {
    open_or(model, STORIES)
}

/// Opens the model that the options name, or the built-in English to Hindi translator.
pub fn open_translator(model: &ModelArgs) -> Result<ModelFile> {
    open_or(model, TRANSLATOR)
}

fn open_or(model: &ModelArgs, built_in: &'static [u8]) -> Result<ModelFile> {
    if let Some(path) = model.file() {
        return ModelFile::open(source(model, path));
    }
    ensure!(model.tokenizer.is_none(), "the built-in model has its own vocabulary: give --tokenizer together with -m");
    Ok(ModelFile::from_static("built-in", built_in, model.check_tensors))
}

/// The file at `path`, opened as the options say.
pub fn source<'a>(model: &'a ModelArgs, path: &'a Path) -> Source<'a> {
    let (tokenizer, projector) = (model.tokenizer.as_deref(), model.projector());
    Source { model: path, tokenizer, check: model.check_tensors, load: model.load, projector }
}

/// Converts files of whisper.cpp and llama2.c. Refuses all other kinds of files, with advice.
fn convert(path: &Path, bytes: &[u8], tokenizer: Option<&Path>) -> Option<Result<Vec<u8>>> {
    if whisper_cpp::is_model(bytes) {
        Some(checkpoint::in_memory(path))
    } else if llama2c::is_checkpoint(bytes) {
        Some(of_llama2c(path, bytes, tokenizer))
    } else if foreign::is_foreign(path, bytes) {
        Some(Err(anyhow!(foreign::content(path, bytes))))
    } else {
        None
    }
}

fn of_llama2c(path: &Path, checkpoint: &[u8], tokenizer: Option<&Path>) -> Result<Vec<u8>> {
    let tokenizer =
        tokenizer.context("this is a llama2.c checkpoint: give its vocabulary with --tokenizer tokenizer.bin")?;
    let vocabulary = map(tokenizer).with_context(|| format!("cannot read the tokenizer {}", tokenizer.display()))?;
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let converted = llama2c::Converted::new(&name, checkpoint, &vocabulary, llama2c::Int8::Kept)?;
    converted.notes.iter().for_each(note);
    let mut bytes = Cursor::new(Vec::with_capacity(checkpoint.len() + vocabulary.len() + (1 << 16)));
    converted.write(&mut bytes)?;
    Ok(bytes.into_inner())
}
