//! What a file's model is: [`Spec`], an architecture as data, and where its weights lie.
//!
//! One small file a family (`llama.rs`, `qwen.rs`, `gpt2.rs`) reads metadata into a [`Spec`]; the
//! forward pass runs any of them. A family has no loop over tokens.

mod gpt2;
mod keys;
mod llama;
mod qwen;
mod spec;
mod weights;

use crate::{Error, Gguf};
pub use spec::{MAX_LAYERS, Need, Norm, Rope, RopeStyle, Scaling, Spec};
pub use weights::is_ignored;
pub(crate) use weights::{Entry, Role, Weights};

/// A model in a file: its [`Spec`], and the assurance that every tensor is there, in the shape that
/// the spec asks for and of a type that this build runs.
#[derive(Clone, Copy, Debug)]
pub struct Model<'a> {
    gguf: Gguf<'a>,
    spec: Spec,
}

impl<'a> Model<'a> {
    /// Reads the metadata and checks every tensor, once. Does not touch the weights.
    ///
    /// # Errors
    ///
    /// What [`Spec::read`] says of the metadata; for the tensors [`Error::MissingTensor`],
    /// [`Error::UnexpectedTensor`], [`Error::TensorShape`] and [`Error::Unsupported`].
    pub fn new(gguf: &Gguf<'a>) -> Result<Self, Error> {
        let spec = Spec::read(gguf)?;
        weights::check(gguf, &spec)?;
        Ok(Self { gguf: *gguf, spec })
    }

    /// The architecture.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// The file.
    pub fn gguf(&self) -> &Gguf<'a> {
        &self.gguf
    }
}
