//! Opens the file given for drafts: either layers that were made for the model, or a smaller model.

use std::path::Path;

use anyhow::{Context, Result};
use arenite::gguf::Value;
use arenite::{Gguf, Model};
use self_cell::self_cell;

use crate::model_file::ModelFile;

self_cell!(
    /// A file with layers that predict further tokens for another model.
    pub struct Layers {
        owner: ModelFile,
        #[covariant]
        dependent: Gguf,
    }
);

impl Layers {
    pub fn gguf(&self) -> &Gguf<'_> {
        self.borrow_dependent()
    }

    pub fn name(&self) -> &str {
        self.borrow_owner().name()
    }

    /// Returns true if these layers fit a model that has no such layers itself.
    pub fn fit(&self, model: &ModelFile) -> bool {
        let Ok(gguf) = model.gguf() else { return false };
        let is_needed = Model::new(&gguf).is_ok_and(|model| !model.can_draft());
        is_needed && Model::new(&gguf.with_drafter(self.gguf())).is_ok_and(|model| model.can_draft())
    }
}

/// A file for drafts.
pub enum DraftFile {
    Layers(Layers),
    /// A model of its own.
    Model(ModelFile),
}

impl DraftFile {
    /// Opens the file.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or is not a model.
    pub fn open(path: &Path) -> Result<Self> {
        let file = ModelFile::open(path)?;
        let is_layers = file.parse().map(|gguf| predicts(&gguf)).with_context(|| file.name().to_owned())?;
        Ok(match is_layers {
            true => Self::Layers(Layers::try_new(file, |file| file.parse())?),
            false => Self::Model(file),
        })
    }
}

/// Returns true if the file has layers for another model: an assistant, or layers for multi-token prediction without
/// the layers that precede them.
fn predicts(gguf: &Gguf<'_>) -> bool {
    let is_assistant = gguf.architecture().is_ok_and(|name| name.ends_with("-assistant"));
    let has = |name: &str| gguf.tensors().any(|tensor| tensor.name.ends_with(name));
    is_assistant || has(".nextn.eh_proj.weight") && gguf.tensors().all(|tensor| !tensor.name.starts_with("blk.0."))
}

/// Returns true if two vocabularies of different sizes have the same tokens, except that the larger one has unused
/// tokens at its end.
pub fn is_padded(a: &Gguf<'_>, b: &Gguf<'_>) -> bool {
    let [Some(Value::Array(a)), Some(Value::Array(b))] = [a, b].map(|gguf| gguf.get("tokenizer.ggml.tokens")) else {
        return false;
    };
    let (mut a, mut b) = (a.strings(), b.strings());
    loop {
        match (a.next_string(), b.next_string()) {
            (Some(a), Some(b)) if a == b => {}
            (Some(_), Some(_)) => return false,
            _ => return true,
        }
    }
}
