//! Sizes of alternating updates.

use crate::gguf::Array;

/// Streams of hidden states of which a layer updates one and predicts the others
/// ([alternating updates](https://arxiv.org/abs/2301.13310)), with a low-rank path beside attention and sparse
/// feed-forwards: Gemma 3n.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct AltUp<'a> {
    /// Number of streams, the residual stream included.
    pub streams: usize,
    /// Rank of the path beside attention.
    pub rank: usize,
    /// For each layer, how many standard deviations above the mean a gate must be to count; not finite: all do. `None`: in
    /// no layer.
    pub sparsity: Option<Array<'a>>,
}

impl AltUp<'_> {
    /// The most streams that a model may have.
    pub const MOST: usize = 8;

    /// That of a layer; `None` if all gates count there.
    pub fn threshold(&self, layer: usize) -> Option<f32> {
        self.sparsity.and_then(|scales| scales.get_f32(layer)).filter(|scale| scale.is_finite())
    }
}
