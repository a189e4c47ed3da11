//! The state of a conversation: its position, and the pages with the keys and values of earlier positions.

/// A conversation of an [`Engine`](super::Engine): the tokens it has read so far.
///
/// It only holds a slot number and a position; keys and values are in pages of the engine's KV memory. [`Engine::fork`]
/// makes a copy that shares them, [`Engine::close`] frees them. A context that is dropped without being closed keeps
/// its pages until the engine is dropped.
///
/// [`Engine::fork`]: super::Engine::fork
/// [`Engine::close`]: super::Engine::close
#[derive(Debug)]
#[must_use = "a context has pages until it is closed"]
pub struct Context {
    /// Its slot number in the engine.
    pub(super) slot: usize,
    /// Identifies the engine, by the address of its memory.
    pub(super) engine: usize,
    /// Position of the next token.
    pub(super) position: usize,
    /// One past the furthest position ever written; determines what a sliding window has overwritten.
    pub(super) reached: usize,
    /// Whether a pass was aborted after it had begun to change recurrent states.
    pub(super) torn: bool,
    /// Number of tokens of the encoder's text.
    pub(super) source: usize,
    pub(super) logits: Rows,
}

/// Rows of logits that a run computed for a context.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rows {
    /// Number of the run; 0 for none.
    pub run: u64,
    /// First row.
    pub first: usize,
    pub count: usize,
    /// One past the position of the last row.
    pub end: usize,
}

impl Context {
    /// Number of tokens read; also the position of the next token.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Number of tokens of the encoder's text.
    pub fn source_tokens(&self) -> usize {
        self.source
    }
}
