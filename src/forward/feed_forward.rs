//! The feed-forward part of a block.

use super::{Engine, add, add_bias, norm};
use crate::model::Role;

impl Engine<'_, '_> {
    /// `x += down(f(gate(norm(x))) * up(norm(x)))`, or `x += down(f(up(norm(x))))`.
    pub(super) fn feed_forward(&mut self, layer: usize, tokens: usize) {
        let Self { spec, weights, compute, hidden, branch, inner, .. } = self;
        let (dim, ffn) = (spec.dim, spec.ffn);
        let (Some(hidden), Some(branch)) = (hidden.get_mut(..tokens * dim), branch.get_mut(..tokens * dim)) else {
            return;
        };
        let Some((gate, rest)) = inner.split_at_mut_checked(tokens * ffn) else { return };

        branch.copy_from_slice(hidden);
        norm(compute, spec, weights, (Role::FfnNorm, Role::FfnNormBias, layer), branch);

        let mut input = compute.input(branch, tokens);
        let mut apply = |weight, bias, out: &mut [f32]| {
            if let Some(w) = weights.matrix(weight, layer) {
                input.times(w, out, ffn);
                add_bias(out, ffn, weights.vector(bias, layer));
            }
        };
        let up = if spec.gated {
            let Some(up) = rest.get_mut(..tokens * ffn) else { return };
            apply(Role::FfnGate, Role::FfnGateBias, gate);
            apply(Role::FfnUp, Role::FfnUpBias, up);
            Some(&*up)
        } else {
            apply(Role::FfnUp, Role::FfnUpBias, gate);
            None
        };
        compute.kernels.activate(spec.activation, gate, up);

        if let Some(w) = weights.matrix(Role::FfnDown, layer) {
            compute.input(gate, tokens).times(w, branch, dim);
            add_bias(branch, dim, weights.vector(Role::FfnDownBias, layer));
            add(hidden, branch);
        }
    }
}
