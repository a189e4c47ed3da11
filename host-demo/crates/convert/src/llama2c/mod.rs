//! Converts llama2.c checkpoints to GGUF with the architecture `llama`.
//!
//! <https://github.com/karpathy/llama2.c>: `export.py` writes the files; `run.c` and `runq.c` read them. The
//! vocabulary is in a separate file, `tokenizer.bin`. Adjacent rows of q and k are rotated together, as in GGUF.

mod checkpoint;
pub mod vocabulary;

use std::io::{Seek, Write};

use anyhow::{Context, Result};

use crate::tensor::Tensor;
use arenite_gguf_writer::Header;
use checkpoint::Checkpoint;
pub use checkpoint::is_checkpoint;

/// Conversion of int8 groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Int8 {
    /// Groups of 32 and of 64 values are stored as they are, so that the arithmetic is the same as that of llama2.c's
    /// `runq.c`.
    Kept,
    /// Convert to Q8_0, which other programs can read.
    Q8_0,
}

/// The key whose value is the version of the checkpoint file from which a model was converted.
pub const VERSION: &str = "llama2c.version";

/// A checkpoint with its vocabulary, converted to GGUF.
pub struct Converted<'s> {
    header: Header,
    tensors: Vec<Tensor<'s>>,
    /// A description of the file.
    pub kind: String,
    /// One line for everything that was not kept exactly.
    pub notes: Vec<String>,
}

impl<'s> Converted<'s> {
    /// Converts the checkpoint `model` with the vocabulary of a `tokenizer.bin`.
    pub fn new(name: &str, model: &'s [u8], tokenizer: &[u8], int8: Int8) -> Result<Self> {
        Self::with(name, model, int8, |rows, header| {
            let vocabulary =
                vocabulary::read(tokenizer, rows).context("the tokenizer does not belong to this model")?;
            vocabulary.keys(header);
            Ok(())
        })
    }

    /// Converts the checkpoint `model`; `vocabulary` writes the keys of a vocabulary for the given number of rows.
    pub fn with(
        name: &str,
        model: &'s [u8],
        int8: Int8,
        vocabulary: impl FnOnce(usize, &mut Header) -> Result<()>,
    ) -> Result<Self> {
        let checkpoint = Checkpoint::read(model)?;
        let mut header = Header::new();
        header.set("general.architecture", "llama");
        header.set("general.name", name);
        checkpoint.keys(&mut header);
        vocabulary(checkpoint.vocab, &mut header)?;
        let (kind, mut notes) = (checkpoint.kind(), Vec::new());
        let tensors = checkpoint.tensors(int8, &mut notes);
        for tensor in &tensors {
            header.tensor(&tensor.name, &tensor.dims, tensor.kind)?;
        }
        Ok(Self { header, tensors, kind, notes })
    }

    /// Writes the GGUF file.
    pub fn write(&self, out: impl Write + Seek) -> Result<()> {
        let mut data = self.header.write(out)?;
        for tensor in &self.tensors {
            data.write_all(&tensor.bytes)?;
        }
        data.finish()?;
        Ok(())
    }
}
