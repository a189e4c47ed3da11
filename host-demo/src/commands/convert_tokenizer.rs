//! `arenite convert tokenizer`: replaces the vocabulary of a GGUF file.

use std::path::Path;

use anyhow::{Context, Result};

use crate::output::note;
use arenite_convert::tokenizer_file;
use arenite_convert::write_model;
use arenite_run::model_file::ModelFile;

/// Writes the model `input` with the vocabulary of the file `tokenizer` to `output`.
pub fn run(tokenizer: &Path, input: &Path, output: &Path) -> Result<()> {
    let file = ModelFile::open(input)?;
    let gguf = file.parse()?;
    let header = tokenizer_file::header_with(&gguf, tokenizer).with_context(|| file.name().to_owned())?;
    write_model(output, |out| tokenizer_file::write(&gguf, &header, out))?;
    note(format_args!("{}: with the vocabulary of {}", output.display(), tokenizer.display()));
    Ok(())
}
