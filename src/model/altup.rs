//! Sizes of alternating updates.

use crate::gguf::Array;

/// Several streams of hidden states: a layer updates one stream and predicts the others ([alternating
/// updates](https://arxiv.org/abs/2301.13310)), with a low-rank path parallel to attention, and sparse feed-forwards
/// (Gemma 3n).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct AltUp<'a> {
    /// Number of streams, the residual stream included.
    pub streams: usize,
    /// Rank of the path parallel to attention.
    pub rank: usize,
    /// Thresholds for the feed-forward's gates, one for each layer. A threshold is given in standard deviations above
    /// the mean of the gates; one that is not finite means that the layer has no threshold. `None` if no layer has one.
    pub sparsity: Option<Array<'a>>,
}

impl AltUp<'_> {
    /// The most streams that a model may have.
    pub const MOST: usize = 8;

    /// Returns the threshold of a layer's gates. `None` if the layer has no threshold.
    pub fn threshold(&self, layer: usize) -> Option<f32> {
        self.sparsity.and_then(|scales| scales.get_f32(layer)).filter(|scale| scale.is_finite())
    }
}
