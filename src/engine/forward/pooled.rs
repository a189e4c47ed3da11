//! Linear layers after pooling, which compute an embedding or a score.

use super::{Forward, add_bias, copy, norm_one};
use crate::kernel::{Activation, Kernels};
use crate::model::{PooledActivation, Role};

impl Forward<'_, '_> {
    /// Applies the linear layers after pooling, if the model has any, to the pooled state in `x`. The result replaces
    /// it. `x` is as long as the state or the result, whichever is longer.
    pub fn pooled_head(&mut self, x: &mut [f32]) {
        let Self { spec, weights, compute, inner, .. } = self;
        let Some(head) = spec.pooled_head() else { return };
        let (first, second) = (weights.matrix(Role::Dense2, 0), weights.matrix(Role::Dense3, 0));
        let norm = weights.vector(Role::ClsNorm, 0);
        let is_first = spec.scoring().is_some();
        #[cfg(feature = "nomic-bert")]
        if let (true, Some(x)) = (is_first, x.get_mut(..spec.dim)) {
            norm_one(compute.kernels, spec, norm, weights.vector(Role::ClsNormBias, 0), x);
        }
        let Some((between, rest)) = inner.split_at_mut_checked(head.inner) else { return };
        let (Some(mut input), Some(out)) = (x.get(..spec.dim), rest.get_mut(..head.out)) else { return };
        if let Some(w) = first {
            compute.times((input, 1), w, between, head.inner);
            add_bias(between, head.inner, weights.vector(Role::Dense2Bias, 0));
            activate(compute.kernels, head.activation, between);
            if !is_first && !norm.is_empty() {
                norm_one(compute.kernels, spec, norm, &[], between);
            }
            input = between;
        }
        let Some(w) = second else { return };
        compute.times((input, 1), w, out, head.out);
        add_bias(out, head.out, weights.vector(Role::Dense3Bias, 0));
        activate(compute.kernels, head.last, out);
        copy(x, out);
    }
}

/// Applies the activation after a linear layer.
fn activate(kernels: &Kernels, activation: PooledActivation, x: &mut [f32]) {
    match activation {
        PooledActivation::None => {}
        PooledActivation::Tanh => x.iter_mut().for_each(|x| *x = libm::tanhf(*x)),
        PooledActivation::Gelu => kernels.activate(Activation::GeluErf, x, None),
        // ReLU is computed here, because `activate` lacks ReLU in some builds. NaN passes through, as in `activate`.
        PooledActivation::Relu => x.iter_mut().filter(|x| **x <= 0.0).for_each(|x| *x = 0.0),
        PooledActivation::Silu => kernels.activate(Activation::Silu, x, None),
    }
}
