//! What comes after pooling: linear layers that make a vector or a score.

use super::{Forward, copy};
use crate::model::Role;

impl Forward<'_, '_> {
    /// `x = second(first(x))`, where the model has these layers; `x` has room for their inputs and outputs.
    pub fn pooled_head(&mut self, x: &mut [f32]) {
        let Self { spec, weights, compute, inner, .. } = self;
        let Some(head) = spec.pooled_head() else { return };
        let (Some(first), Some(second)) = (weights.matrix(Role::Dense2, 0), weights.matrix(Role::Dense3, 0)) else {
            return;
        };
        let Some((between, rest)) = inner.split_at_mut_checked(head.inner) else { return };
        let (Some(input), Some(out)) = (x.get(..spec.dim), rest.get_mut(..head.out)) else { return };
        compute.input(input, 1).times(first, between, head.inner);
        compute.input(between, 1).times(second, out, head.out);
        copy(x, out);
    }
}
