//! Embeddings of tokens and positions.

use super::{Forward, add, norm, rows_mut, scale};
use crate::TokenId;
use crate::model::{Need, Positions, Role};

impl Forward<'_, '_> {
    /// Stores the embeddings of `tokens`, which start at `position`, in rows `first..` of `hidden`.
    pub(super) fn embed(&mut self, tokens: &[TokenId], first: usize, position: usize) {
        let Self { spec, weights, compute, hidden, branch, second, .. } = self;
        let dim = spec.dim;
        let Some(words) = weights.matrix(Role::TokenEmbd, 0) else { return };
        let Some(other) = branch.get_mut(..dim) else { return };
        let Some(hidden) = hidden.get_mut(first * dim..) else { return };
        for (((position, _row), &token), x) in (position..).zip(first..).zip(tokens).zip(rows_mut(hidden, dim)) {
            compute.look_up(&words, token as usize, x);
            #[cfg(feature = "lora")]
            compute.adapt_embedding(_row, token, &words, x);
            scale(x, spec.embedding_scale);
            match (spec.positions(), weights.matrix(Role::PositionEmbd, 0)) {
                (positions, Some(learned)) if positions.are_learned() => {
                    compute.look_up(&learned, position, other);
                    add(x, other);
                }
                (Positions::Sinusoidal { halves }, _) => {
                    sines(position, halves, other);
                    add(x, other);
                }
                _ => {}
            }
            if spec.token_types() > 0
                && let Some(types) = weights.matrix(Role::TokenTypes, 0)
            {
                compute.look_up(&types, usize::from(position >= *second && types.rows() > 1), other);
                add(x, other);
            }
            if spec.embedding_norm() != Need::Absent {
                norm(compute, spec, weights, (Role::TokenEmbdNorm, Role::TokenEmbdNormBias, 0), x);
            }
        }
    }
}

/// Sines and cosines of a position, computed in f64 like the reference implementations ([Attention is all you
/// need](https://arxiv.org/abs/1706.03762), 3.5).
fn sines(position: usize, halves: bool, out: &mut [f32]) {
    let dim = out.len();
    for (i, x) in out.iter_mut().enumerate() {
        let half = dim.div_ceil(2); // number of sines
        let (pair, is_sine) =
            if halves { (if i < half { i } else { i - half }, i < half) } else { (i / 2, i % 2 == 0) };
        let angle = position as f64 / libm::pow(10000.0, (2 * pair) as f64 / dim as f64);
        *x = if is_sine { libm::sin(angle) } else { libm::cos(angle) } as f32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_layouts_hold_the_same_numbers() {
        let (mut turns, mut halves) = ([0.0; 8], [0.0; 8]);
        sines(7, false, &mut turns);
        sines(7, true, &mut halves);
        for i in 0..4 {
            assert_eq!((turns[2 * i], turns[2 * i + 1]), (halves[i], halves[4 + i]));
        }
        assert_eq!((turns[0], turns[1]), (libm::sin(7.0) as f32, libm::cos(7.0) as f32));
    }
}
