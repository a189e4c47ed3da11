//! Looking at hidden states on their way.

use core::ops::ControlFlow;

/// Where in the pass a hidden state is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Before a layer: the embedding before the first, what the layer before it made before others.
    Before,
    /// After a layer's attention and its residual.
    Attention,
    /// After a layer's feed-forward and its residual.
    FeedForward,
    /// After a layer: what the next one gets. Most models do nothing between the feed-forward and this.
    After,
    /// After the last norm, before the head makes logits of it; the number of layers stands for the
    /// layer.
    Logits,
}

/// Sees the hidden states of each batch and may stop the pass.
///
/// `()` observes nothing and costs nothing.
pub trait Observer {
    /// Whether to be called at `stage`. By default at all.
    #[inline(always)]
    fn wants(&self, stage: Stage) -> bool {
        let _ = stage;
        true
    }

    /// `states` is `[tokens][dim]`, the first token at `position`. To break stops the pass: the
    /// session stays where it was before this batch.
    fn observe(&mut self, stage: Stage, layer: usize, position: usize, states: &[f32]) -> ControlFlow<()>;
}

/// Sees the input of every linear layer: called with the bytes of the matrix, as they lie in the model (of an expert,
/// its part of the tensor), and with what it multiplies, `[tokens][columns]`.
pub type Inputs<'a> = dyn Fn(&[u8], &[f32]) + Sync + 'a;

impl Observer for () {
    #[inline(always)]
    fn wants(&self, _: Stage) -> bool {
        false
    }

    #[inline(always)]
    fn observe(&mut self, _: Stage, _: usize, _: usize, _: &[f32]) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}
