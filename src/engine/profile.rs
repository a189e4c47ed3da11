//! Where the time of a pass goes.

/// A section of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Section {
    /// Embeddings of tokens and positions, and inputs that layers have of their own.
    Embedding,
    /// Norms of the hidden state, and adding to it.
    Norms,
    /// Queries, keys and values, or what else a mixer makes of its input.
    Qkv,
    /// What is done to heads before they meet: norms, rotation, keys and values into the cache.
    Heads,
    /// Queries over keys and values, or states of fixed size.
    Attention,
    /// The matrix after attention.
    Output,
    /// The whole of a layer with a state of fixed size, but for its norm.
    State,
    /// The feed-forward part, or the experts.
    FeedForward,
    /// The logits.
    Head,
}

impl Section {
    /// All of them, in the order of a pass.
    pub const ALL: [Self; 9] = [
        Self::Embedding,
        Self::Norms,
        Self::Qkv,
        Self::Heads,
        Self::Attention,
        Self::Output,
        Self::State,
        Self::FeedForward,
        Self::Head,
    ];
}

/// Is told what a pass has just done, and may look at a clock: see [`Engine::with_profiler`](crate::Engine::with_profiler).
pub trait Profiler: Sync {
    /// What was done since the last call, or since the pass began, was this.
    fn done(&self, section: Section);
}
