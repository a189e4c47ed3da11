//! Writes models. A new file replaces an old file only if this program can open the new file, because a checkpoint may
//! have faults that the converter does not look for.

use std::path::Path;

use anyhow::{Context, Result};
use arenite::tokenizer::Tokenizer;
use arenite::{Gguf, Model};

use arenite_files::NewFile;

const REFUSED: &str = "the converted model was not written, because it could not be opened; correct the input";

/// Writes the model that `write` produces to `path`, if this program can open the model.
pub fn write_model(path: &Path, write: impl FnOnce(&mut NewFile) -> Result<()>) -> Result<()> {
    arenite_files::write_checked(path, write, |path| opens(path).context(REFUSED))
}

/// Like [`write_model`], but also writes a model whose architecture is not supported, because other programs may run
/// it. Returns a note in this case.
pub fn write_converted(path: &Path, write: impl FnOnce(&mut NewFile) -> Result<()>) -> Result<Option<String>> {
    let mut note = None;
    arenite_files::write_checked(path, write, |path| match opens(path) {
        Err(error) => match error.downcast_ref::<arenite::Error>() {
            Some(arenite::Error::Unsupported { what: "architecture", name }) => {
                note = Some(format!("the architecture {name} is not one that this program runs"));
                Ok(())
            }
            _ => Err(error.context(REFUSED)),
        },
        Ok(()) => Ok(()),
    })?;
    Ok(note)
}

/// Checks that the file at `path` is a supported model, and that its vocabulary, if it has one, is supported.
fn opens(path: &Path) -> Result<()> {
    let map = arenite_files::map(path)?;
    let gguf = Gguf::parse(&map)?;
    Model::new(&gguf)?;
    if arenite_text::has_vocabulary(&gguf) {
        Tokenizer::new(&gguf, &mut vec![0; Tokenizer::index_bytes(&gguf)?])?;
    }
    Ok(())
}
