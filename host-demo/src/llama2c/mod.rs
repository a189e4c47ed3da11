//! llama2.c's checkpoints to GGUF, architecture `llama`.
//!
//! <https://github.com/karpathy/llama2.c>: `export.py` writes the files, `run.c` and `runq.c` read them. They hold no
//! vocabulary: that is in `tokenizer.bin`. Adjacent rows of q and k belong to one rotation, as in GGUF.

mod checkpoint;
pub mod vocabulary;

use std::io::Write;

use anyhow::{Context, Result};

use crate::gguf_writer::Header;
use crate::tensor::Tensor;
use checkpoint::Checkpoint;
pub use checkpoint::is_checkpoint;

/// What becomes of int8 in groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Int8 {
    /// Groups of 32 and 64 stay as they are, and with them the arithmetic of `runq.c`.
    Kept,
    /// Q8_0, which other programs read.
    Q8_0,
}

/// The key that says what version of checkpoint a model comes from.
pub const VERSION: &str = "llama2c.version";

/// A checkpoint with its vocabulary, as GGUF.
pub struct Converted<'s> {
    header: Header,
    tensors: Vec<Tensor<'s>>,
    /// What the file is, for people.
    pub kind: String,
    /// What did not stay exactly as it was, a line for each.
    pub notes: Vec<String>,
}

impl<'s> Converted<'s> {
    /// The checkpoint `model` with the vocabulary of a `tokenizer.bin`.
    pub fn new(name: &str, model: &'s [u8], tokenizer: &[u8], int8: Int8) -> Result<Self> {
        let checkpoint = Checkpoint::read(model)?;
        let vocabulary = vocabulary::read(tokenizer, checkpoint.vocab).context("the tokenizer is not this model's")?;
        let mut header = Header::new();
        header.set("general.architecture", "llama");
        header.set("general.name", name);
        checkpoint.keys(&mut header);
        vocabulary.keys(&mut header);
        let (kind, mut notes) = (checkpoint.kind(), Vec::new());
        let tensors = checkpoint.tensors(int8, &mut notes);
        for tensor in &tensors {
            header.tensor(&tensor.name, &tensor.dims, tensor.kind)?;
        }
        Ok(Self { header, tensors, kind, notes })
    }

    /// Writes the GGUF file.
    pub fn write(&self, out: impl Write) -> Result<()> {
        let mut data = self.header.write(out)?;
        for tensor in &self.tensors {
            data.write_all(&tensor.bytes)?;
        }
        data.finish()?;
        Ok(())
    }
}
