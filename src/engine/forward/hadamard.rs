//! Rotates heads by a Hadamard matrix, for quantized KV caches.
//!
//! A rotation spreads an outlier over its block, so that the block's scale fits all elements. Rotated queries and keys
//! have the same dot products as the originals. The matrix is its own inverse, so rotating the weighted sum of rotated
//! values gives the sum of the originals. (As in QuaRot, <https://arxiv.org/abs/2404.00456>; llama.cpp does the same.)

use super::rows_mut;
use crate::kernel::sqrt;

/// The largest block that is rotated as one.
const LARGEST: usize = 64;

/// Multiplies each block of `heads` by the normalized Hadamard matrix. The length of a block is the largest power of
/// two, up to 64, that divides `head_dim`.
pub(super) fn rotate(heads: &mut [f32], head_dim: usize) {
    let block = LARGEST.min(1 << head_dim.trailing_zeros().min(31));
    let scale = 1.0 / sqrt(block as f32);
    for x in rows_mut(heads, block) {
        let mut half = 1;
        while half < block {
            for pair in rows_mut(x, 2 * half) {
                let Some((low, high)) = pair.split_at_mut_checked(half) else { return };
                for (a, b) in low.iter_mut().zip(high) {
                    (*a, *b) = (*a + *b, *a - *b);
                }
            }
            half *= 2;
        }
        x.iter_mut().for_each(|x| *x *= scale);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares with the matrix written out: entry `(i, j)` is negative if `i & j` has an odd number of ones.
    #[test]
    fn a_rotation_is_the_product_with_the_matrix() {
        for (head_dim, block) in [(64, 64), (128, 64), (96, 32), (80, 16), (6, 2), (7, 1)] {
            let x: [f32; 128] = core::array::from_fn(|i| (i * 37 % 101) as f32 - 50.0);
            let (x, mut got) = (&x[..head_dim], x);
            rotate(&mut got[..head_dim], head_dim);
            for (i, got) in got[..head_dim].iter().enumerate() {
                let first = i / block * block;
                let term = |j: usize| {
                    f64::from(x[first + j]) * if ((i - first) & j).count_ones() % 2 == 1 { -1.0 } else { 1.0 }
                };
                let want = (0..block).map(term).sum::<f64>() / (block as f64).sqrt();
                assert!((f64::from(*got) - want).abs() < 1e-4, "{head_dim} {i}: {got} {want}");
            }
        }
    }
}
