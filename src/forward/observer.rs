//! Looking at hidden states on their way.

use core::ops::ControlFlow;

/// Where in the pass a hidden state is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// After the embedding; layer 0.
    Embedding,
    /// After a layer's attention and its residual.
    Attention,
    /// After a layer's feed-forward and its residual: what the next layer gets.
    Block,
}

/// Sees the hidden states of each batch and may stop the pass.
///
/// `()` observes nothing and costs nothing.
pub trait Observer {
    /// `states` is `[tokens][dim]`, the first token at `position`. To break stops the pass: the
    /// session stays where it was before this batch.
    fn observe(&mut self, stage: Stage, layer: usize, position: usize, states: &[f32]) -> ControlFlow<()>;
}

impl Observer for () {
    #[inline(always)]
    fn observe(&mut self, _: Stage, _: usize, _: usize, _: &[f32]) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}
