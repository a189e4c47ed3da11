//! Sizes of attention over a latent vector.

use super::layers::Layer;

/// Sizes of attention whose keys and values come from one latent vector for each position
/// ([DeepSeek-V2](https://arxiv.org/abs/2405.04434)).
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Latent {
    /// Queries are computed by two matrices with this rank between them. 0 if they are computed by one matrix.
    pub q_rank: usize,
    /// Elements of the latent vector.
    pub rank: usize,
    /// Number of elements of a head's query, and of its key, that are not rotated.
    pub nope: usize,
    /// Number of rotated elements in a head's query, and in the rotated key that all heads share.
    pub rope: usize,
    /// Elements of a head's value.
    pub value: usize,
    /// True if the cache holds latent vectors. A head's key matrix is then applied to its query, and its value matrix
    /// to its result of attention.
    pub absorbed: bool,
    /// Queries and keys are multiplied by `1 + yarn * ln(factor)`, where `factor` is YaRN's factor.
    pub yarn: f32,
}

impl Latent {
    /// Number of elements per token of each buffer of intermediate values:
    ///
    /// 1. queries, keys and values in the layout of attention; after attention, the values of all heads
    /// 2. projected queries; after attention, attention's output
    /// 3. latent vectors
    /// 4. inputs of one head's matrices
    /// 5. keys and values of all heads
    pub(crate) const fn pieces(&self, layer: &Layer) -> [usize; 5] {
        let Self { q_rank, rank, nope, rope, value, absorbed, .. } = *self;
        [
            max(layer.qkv_dim(), layer.heads * value),
            max(layer.q_dim(), layer.heads * (nope + rope)),
            rank + rope,
            max(q_rank, max(nope, rank)),
            if absorbed { 0 } else { layer.heads * (nope + value) },
        ]
    }
}

const fn max(a: usize, b: usize) -> usize {
    if a > b { a } else { b }
}
