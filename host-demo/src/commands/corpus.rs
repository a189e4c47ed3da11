//! A long text for evaluating a model, split into chunks as in llama.cpp's tools.

use std::path::Path;

use anyhow::{Result, ensure};
use arenite::TokenId;
use arenite::tokenizer::{Encode, Tokenizer};
use indicatif::ProgressBar;

use crate::cli::read_input;
use crate::output::progress;
use arenite_text as text;

/// Default chunk size in tokens.
pub const DEFAULT_CHUNK: usize = 512;

/// The tokens of a text in complete chunks.
pub struct Corpus {
    pub tokens: Vec<TokenId>,
    /// Number of tokens per chunk.
    pub chunk: usize,
    /// Token that replaces the first token of each chunk.
    bos: Option<TokenId>,
}

impl Corpus {
    /// Reads at most `limit` chunks of the file at `path`. A newline at the end of the file and an incomplete last
    /// chunk are dropped.
    pub fn read(path: &Path, tokenizer: &Tokenizer<'_, '_>, chunk: usize, limit: Option<usize>) -> Result<Self> {
        let text = read_input(path)?;
        let text = text.strip_suffix(b"\n").unwrap_or(&text);
        let mut tokens = text::encode(tokenizer, text, Encode { add_special: true, parse_special: false })?;
        ensure!(
            tokens.len() >= 2 * chunk,
            "{} has {} tokens, but {} are needed (twice the context of {chunk}): give a longer text or a smaller -c",
            path.display(),
            tokens.len(),
            2 * chunk,
        );
        let chunks = (tokens.len() / chunk).min(limit.unwrap_or(usize::MAX));
        tokens.truncate(chunks * chunk);
        Ok(Self::new(tokens, tokenizer, chunk))
    }

    /// Splits tokens into complete chunks.
    pub fn new(tokens: Vec<TokenId>, tokenizer: &Tokenizer<'_, '_>, chunk: usize) -> Self {
        Self { tokens, chunk, bos: tokenizer.bos().filter(|_| tokenizer.add_bos()) }
    }

    pub fn count(&self) -> usize {
        self.tokens.len() / self.chunk
    }

    /// Returns the chunks, each with the BOS token as its first token if the vocabulary adds one.
    pub fn chunks(&self) -> impl Iterator<Item = Vec<TokenId>> {
        self.tokens.chunks_exact(self.chunk).map(|chunk| {
            let mut chunk = chunk.to_vec();
            if let (Some(first), Some(bos)) = (chunk.first_mut(), self.bos) {
                *first = bos;
            }
            chunk
        })
    }

    /// Returns a progress bar for chunks. The bar is hidden if standard error is not a terminal.
    pub fn bar(&self) -> ProgressBar {
        progress::bar(self.count() as u64, "{bar:32} {pos}/{len} chunks {eta} {msg}")
    }
}
