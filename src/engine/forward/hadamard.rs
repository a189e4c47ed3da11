//! Rotates heads by a Hadamard matrix, for quantized KV caches.
//!
//! A rotation spreads an outlier over many elements, so that the scales of the quantized blocks fit. Rotated queries
//! and keys have the same dot products as the originals. The matrix is its own inverse, so rotating the weighted sum of
//! rotated values gives the weighted sum of the original values. (As in QuaRot, <https://arxiv.org/abs/2404.00456>.
//! llama.cpp rotates heads whose length is a multiple of 64, in the same blocks.)

use super::rows_mut;
use crate::kernel::sqrt;

/// The Hadamard matrix rotates queries and keys in blocks. Returns the length of a block: the largest power of two that
/// divides `head_dim`.
pub(super) fn keys(head_dim: usize) -> usize {
    1 << head_dim.trailing_zeros().min(31)
}

/// Length of the blocks in which values are rotated. It is the length for keys, but at most 64, because with longer
/// blocks q4_0 was less accurate for Gemma 3 270M (KL to f16 0.150 instead of 0.103).
pub(super) fn values(head_dim: usize) -> usize {
    keys(head_dim).min(64)
}

/// Multiplies each block of `block` elements by the normalized Hadamard matrix. `block` is a power of two.
pub(super) fn rotate(heads: &mut [f32], block: usize) {
    let scale = 1.0 / sqrt(block as f32);
    for x in rows_mut(heads, block) {
        let mut half = 1;
        while 4 * half <= block {
            two_steps(x, half);
            half *= 4;
        }
        if half < block {
            let Some((low, high)) = x.split_at_mut_checked(half) else { return };
            low.iter_mut().zip(high).for_each(|(a, b)| (*a, *b) = (*a + *b, *a - *b));
        }
        x.iter_mut().for_each(|x| *x *= scale);
    }
}

/// Runs two steps of the Hadamard transform with one load and store per element: sums and differences of elements that
/// are `half` apart, then of elements that are `2 * half` apart.
fn two_steps(x: &mut [f32], half: usize) {
    let both = |a: &mut f32, b: &mut f32, c: &mut f32, d: &mut f32| {
        let (low, high) = ([*a + *b, *a - *b], [*c + *d, *c - *d]);
        (*a, *b, *c, *d) = (low[0] + high[0], low[1] + high[1], low[0] - high[0], low[1] - high[1]);
    };
    if half == 1 {
        x.as_chunks_mut().0.iter_mut().for_each(|[a, b, c, d]| both(a, b, c, d));
        return;
    }
    for four in rows_mut(x, 4 * half) {
        let Some((low, high)) = four.split_at_mut_checked(2 * half) else { return };
        let (Some((a, b)), Some((c, d))) = (low.split_at_mut_checked(half), high.split_at_mut_checked(half)) else {
            return;
        };
        a.iter_mut().zip(b).zip(c).zip(d).for_each(|(((a, b), c), d)| both(a, b, c, d));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rotation is compared with the product with the whole matrix, whose entry `(i, j)` is negative if `i & j` has
    /// an odd number of ones.
    #[test]
    fn a_rotation_is_the_product_with_the_matrix() {
        for (head_dim, block) in [(64, 64), (256, 256), (192, 64), (96, 32), (80, 16), (6, 2), (7, 1)] {
            assert_eq!((keys(head_dim), values(head_dim)), (block, block.min(64)));
            let x: [f32; 256] = core::array::from_fn(|i| (i * 37 % 101) as f32 - 50.0);
            let (x, mut got) = (&x[..head_dim], x);
            rotate(&mut got[..head_dim], block);
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
