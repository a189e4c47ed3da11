//! A long text for measuring a model, in pieces that fill its context: cut as llama.cpp's tools cut it.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use arenite::TokenId;
use arenite::tokenizer::{Encode, Tokenizer};
use indicatif::{ProgressBar, ProgressStyle};

use crate::{output, text};

/// Positions of a piece where the user does not say.
pub const USUAL_CHUNK: usize = 512;

/// The tokens of a text; those beyond the last whole piece are not used.
pub struct Corpus {
    pub tokens: Vec<TokenId>,
    /// Tokens of a piece.
    pub chunk: usize,
    /// The token that replaces the first of each piece.
    bos: Option<TokenId>,
}

impl Corpus {
    /// The text in the file at `path`, without a line break at its end: at most `limit` pieces.
    pub fn read(path: &Path, tokenizer: &Tokenizer<'_, '_>, chunk: usize, limit: Option<usize>) -> Result<Self> {
        let text = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let text = text.strip_suffix(b"\n").unwrap_or(&text);
        let mut tokens = text::encode(tokenizer, text, Encode { add_special: true, parse_special: false })?;
        ensure!(
            tokens.len() >= 2 * chunk,
            "{} has {} tokens, and {} are needed, twice a context of {chunk}: give a longer text or a smaller -c",
            path.display(),
            tokens.len(),
            2 * chunk,
        );
        let chunks = (tokens.len() / chunk).min(limit.unwrap_or(usize::MAX));
        tokens.truncate(chunks * chunk);
        Ok(Self::new(tokens, tokenizer, chunk))
    }

    /// Whole pieces of tokens.
    pub fn new(tokens: Vec<TokenId>, tokenizer: &Tokenizer<'_, '_>, chunk: usize) -> Self {
        Self { tokens, chunk, bos: tokenizer.bos().filter(|_| tokenizer.add_bos()) }
    }

    pub fn count(&self) -> usize {
        self.tokens.len() / self.chunk
    }

    /// The pieces, as the model takes them.
    pub fn chunks(&self) -> impl Iterator<Item = Vec<TokenId>> {
        self.tokens.chunks_exact(self.chunk).map(|chunk| {
            let mut chunk = chunk.to_vec();
            if let (Some(first), Some(bos)) = (chunk.first_mut(), self.bos) {
                *first = bos;
            }
            chunk
        })
    }

    /// A bar that counts pieces, if someone looks.
    pub fn bar(&self) -> ProgressBar {
        if !output::watched() {
            return ProgressBar::hidden();
        }
        let style = ProgressStyle::with_template("{bar:32} {pos}/{len} pieces {eta} {msg}");
        ProgressBar::new(self.count() as u64).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
    }
}
