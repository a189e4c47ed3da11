//! Positions as biases on scores, by distance: learned (T5) or linear (ALiBi).
//!
//! The biases of all distances are computed once. Each head's biases are in order of distance, so that the biases for a
//! query's keys are consecutive.

use super::rows_mut;
use crate::built;
use crate::engine::layout::distances;
use crate::kernel::Bias;
use crate::model::{Positions, Role, Spec, Weights};
use crate::quant::le_f32;

/// Distances of at least this many positions share T5's last bucket. All files use this value.
const FURTHEST: usize = 128;

/// Relative-position biases of a stack of layers: `[heads][distances]`, in the order of the keys' positions. There is
/// one such table if all layers share it, otherwise one per layer.
#[derive(Default)]
pub(crate) struct Relative<'w> {
    table: &'w [f32],
    /// Biases per head.
    stride: usize,
    /// Index of distance 0.
    middle: usize,
    /// Number of heads in each layer's part of the table; 0 if all layers share one set of biases.
    layer: usize,
}

impl<'w> Relative<'w> {
    /// Computes the biases on attention scores for all distances and heads. Stores them in `table`, which has
    /// [`biases`](crate::engine::layout::biases) elements.
    pub fn new(spec: &Spec<'_>, weights: &Weights<'_, '_>, context: usize, table: &'w mut [f32]) -> Self {
        let (buckets, steepest) = match spec.positions() {
            Positions::Relative { buckets, .. } => (Some(buckets), 0.0),
            Positions::Alibi { bias } => (None, bias),
            _ => return Self::default(),
        };
        let (causal, heads) = (spec.is_causal(), spec.heads.get(0));
        let (stride, middle) = (distances(causal, context), context - 1);
        for (row, numbers) in rows_mut(table, stride).enumerate() {
            let (layer, head) = (row.checked_div(heads).unwrap_or(0), row.checked_rem(heads).unwrap_or(0));
            let learned = weights.vector(Role::AttnRelB, layer);
            for (i, number) in numbers.iter_mut().enumerate() {
                // `back` is the distance from the query back to an earlier key, and `ahead` is the distance ahead to a
                // later key. One of them is 0.
                let (back, ahead) = (middle.saturating_sub(i), i.saturating_sub(middle));
                let ahead = if causal { 0 } else { ahead };
                *number = match buckets {
                    Some(buckets) => le_f32(learned, bucket(back, ahead, buckets, causal) * heads + head),
                    None => -slope(steepest, head, heads) * (back + ahead) as f32,
                };
            }
        }
        Self { table, stride, middle, layer: if spec.own_biases() { heads } else { 0 } }
    }

    /// Returns the biases on attention scores in a layer, for the heads from `head` on and for queries from `position`
    /// on.
    pub fn bias(&self, layer: usize, head: usize, position: usize) -> Bias<'_> {
        if !built::RELATIVE_POSITIONS {
            return Bias::NONE;
        }
        let table = self.table.get((layer * self.layer + head) * self.stride..).unwrap_or(&[]);
        Bias { table, stride: self.stride, start: self.middle.saturating_sub(position) }
    }
}

/// ALiBi's slope for a head: what is subtracted from a score per position of distance. It is `2^(-steepest (head + 1) /
/// n)` for the first `n` heads, where `n` is the largest power of two that is at most the number of heads. The
/// exponents of the remaining heads are halfway between those of the first heads.
fn slope(steepest: f32, head: usize, heads: usize) -> f32 {
    let n = 1usize << heads.max(1).ilog2();
    let steps = if head < n { (head + 1) as f64 } else { (head - n) as f64 + 0.5 };
    libm::exp2(-f64::from(steepest) * steps / n as f64) as f32
}

/// Bucket of a distance: one per small distance, then logarithmic. A stack that attends to later positions uses half of
/// the buckets for later positions. Same as Hugging Face's `_relative_position_bucket`, in f32.
fn bucket(back: usize, ahead: usize, buckets: usize, causal: bool) -> usize {
    let (base, count, distance) = match (causal, ahead) {
        (true, _) => (0, buckets, back),
        (false, 0) => (0, buckets / 2, back),
        (false, _) => (buckets / 2, buckets / 2, ahead),
    };
    let exact = count / 2;
    if distance < exact {
        return base + distance;
    }
    let (far, scale) = (distance as f32 / exact as f32, FURTHEST as f64 / exact as f64);
    let more = libm::logf(far) / libm::log(scale) as f32 * (count - exact) as f32;
    base + (exact + more as usize).min(count.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        // From transformers: _relative_position_bucket(torch.tensor([...]), bidirectional, 32, 128).
        let causal = [0, 1, 15, 16, 20, 31, 32, 63, 64, 100, 127, 128, 1000].map(|back| bucket(back, 0, 32, true));
        assert_eq!(causal, [0, 1, 15, 16, 17, 21, 21, 26, 26, 30, 31, 31, 31]);
        let back = [0, 1, 7, 8, 11, 12, 16, 32, 64, 127, 128].map(|back| bucket(back, 0, 32, false));
        assert_eq!(back, [0, 1, 7, 8, 8, 9, 10, 12, 14, 15, 15]);
        let ahead = [1, 7, 8, 12, 64, 500].map(|ahead| bucket(0, ahead, 32, false));
        assert_eq!(ahead, [17, 23, 24, 25, 30, 31]);
    }
}
