//! The state of a conversation: its position, and the pages with the keys and values of earlier positions.

use core::sync::atomic::{AtomicU32, Ordering};

/// A conversation of an [`Engine`](super::Engine): the state after the tokens that the conversation has read so far.
///
/// A context only holds a slot number, positions and flags; keys and values are in pages of the engine's KV memory.
/// [`Engine::fork`] makes a copy that shares the pages, [`Engine::close`] frees them. A context that is dropped without
/// being closed keeps its pages until the engine is dropped.
///
/// [`Engine::fork`]: super::Engine::fork
/// [`Engine::close`]: super::Engine::close
#[derive(Debug)]
#[must_use = "a context has pages until it is closed"]
pub struct Context {
    /// Slot number of the context in the engine.
    pub(super) slot: usize,
    /// Identity of the engine that opened the context.
    pub(super) engine: Id,
    /// Position of the next token.
    pub(super) position: usize,
    /// One more than the largest position that was ever written. It tells which positions a sliding window's ring has
    /// overwritten.
    pub(super) reached: usize,
    /// True if a pass was aborted after it had begun to change recurrent states.
    pub(super) torn: bool,
    /// Number of tokens of the encoder's text.
    pub(super) source: usize,
    pub(super) logits: Rows,
}

/// Identity of an engine. No two engines in a program have the same identity, not even if the engines are created one
/// after the other in the same memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Id {
    generation: u32,
    /// Address of the engine's memory. It distinguishes engines of equal generation: without compare-and-swap, two
    /// cores that create engines at the same time may get the same generation.
    memory: usize,
}

impl Id {
    /// Creates an identity for a new engine. `memory` holds the engine's page tables, and its address is part of the
    /// identity.
    pub fn new(memory: &[u32]) -> Self {
        /// Number of engines created, modulo 2^32. This is the only mutable static of the core. It does not affect
        /// results.
        static ENGINES: AtomicU32 = AtomicU32::new(0);
        #[cfg(target_has_atomic = "32")]
        let generation = ENGINES.fetch_add(1, Ordering::Relaxed);
        #[cfg(not(target_has_atomic = "32"))]
        let generation = {
            let generation = ENGINES.load(Ordering::Relaxed);
            ENGINES.store(generation.wrapping_add(1), Ordering::Relaxed);
            generation
        };
        Self { generation, memory: memory.as_ptr().addr() }
    }
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
