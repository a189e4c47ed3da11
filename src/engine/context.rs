//! What is remembered: a position, and the pages that hold the positions before it.

/// A conversation of an [`Engine`](super::Engine): what it has read so far.
///
/// It is a number and a position; keys and values lie in pages of the engine's KV memory. [`Engine::fork`] makes
/// another that shares them, [`Engine::close`] gives them back. A context that is dropped keeps its pages until the
/// engine is dropped, too.
///
/// [`Engine::fork`]: super::Engine::fork
/// [`Engine::close`]: super::Engine::close
#[derive(Debug)]
#[must_use = "a context has pages until it is closed"]
pub struct Context {
    /// Its number in the engine.
    pub(super) slot: usize,
    /// Which engine, by where its memory is.
    pub(super) engine: usize,
    /// The position of the next token.
    pub(super) position: usize,
    /// One past the furthest position ever written: what a sliding window has overwritten.
    pub(super) reached: usize,
    /// Whether a pass was stopped that had begun to change states of fixed size.
    pub(super) torn: bool,
    /// Tokens of the encoder's text.
    pub(super) source: usize,
    pub(super) logits: Rows,
}

/// Rows of logits that a run has left for a context.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rows {
    /// Number of the run; 0 for none.
    pub run: u64,
    /// The first row.
    pub first: usize,
    pub count: usize,
    /// One past the position of the last row.
    pub end: usize,
}

impl Context {
    /// Tokens that it has read: the position of the next one.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Tokens of the encoder's text that it attends to.
    pub fn source_tokens(&self) -> usize {
        self.source
    }
}
