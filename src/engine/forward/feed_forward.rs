//! The feed-forward of a layer.

use super::altup::sparsify;
use super::rwkv::shift_rows;
use super::{Forward, add_bias, copy, enter, leave, norm, norm_one, norm_sum, rows_mut};
use crate::built;
use crate::engine::profile::Section;
use crate::kernel::{Activation, Kernels};
use crate::model::{Gate, Layer, Need, Role, Spec, Xielu};

impl Forward<'_, '_> {
    /// Runs the feed-forward of a layer: `x += down(f(gate(norm(x))) * up(norm(x)))` or, in models without a gate, `x
    /// += down(f(up(norm(x))))`.
    pub(super) fn feed_forward(&mut self, layer: &Layer, tokens: usize) {
        let Self { spec, weights, compute, hidden, branch, inner, .. } = self;
        let (index, dim, ffn) = (layer.index, spec.dim, layer.ffn);
        let (Some(hidden), Some(branch)) = (hidden.get_mut(..tokens * dim), branch.get_mut(..tokens * dim)) else {
            return;
        };

        let (before, bias) = Role::before_ffn(spec, layer);
        let held = tokens * spec.held(layer);
        let Some((inner, held)) = inner.split_at_mut_checked(inner.len() - held.min(inner.len())) else { return };
        let input = if spec.is_parallel() { &*held } else { &*hidden };
        enter(compute, spec, weights, (before, bias, index), input, branch);
        let segments = self.segments.get(..self.parts).unwrap_or_default();
        shift_rows((self.kv, &self.pools, &self.store), (spec, weights, index), segments, branch);

        let up = weights.matrix(Role::FfnUp, index);
        let (gate_w, up_w) = match spec.gate_in(layer) {
            Gate::None => (None, up),
            Gate::Separate => (weights.matrix(Role::FfnGate, index), up),
            Gate::Fused => (up.and_then(|w| w.part(0, ffn)), up.and_then(|w| w.part(ffn, ffn))),
        };
        // Without a gate, the output of `up` takes the gate's place, so that the same code activates and projects it.
        let up_at = if gate_w.is_some() { tokens * ffn } else { 0 };
        compute.times_each((branch, tokens), &[(gate_w, 0), (up_w, up_at)], inner, ffn);
        let Some((gate, rest)) = inner.split_at_mut_checked(tokens * ffn) else { return };
        let mut up = gate_w.and(rest.get_mut(..tokens * ffn));
        let bias = if up.is_some() { Role::FfnGateBias } else { Role::FfnUpBias };
        let is_biased = spec.linear_bias != Need::Absent;
        if is_biased {
            add_bias(gate, ffn, weights.vector(bias, index));
            if let Some(up) = &mut up {
                add_bias(up, ffn, weights.vector(Role::FfnUpBias, index));
            }
        }
        let sub_norm = weights.vector(Role::FfnSubNorm, index);
        let threshold = spec.altup().and_then(|altup| altup.threshold(index));
        let limit = Limit::of(spec, index, false);
        compute.by_tokens(gate, ffn, &|start, gate| {
            if built::ALTUP
                && let Some(times) = threshold
            {
                rows_mut(gate, ffn).for_each(|gate| sparsify(gate, times));
            }
            match spec.xielu() {
                Some(xielu) => xielu_of(xielu, index, gate),
                None => {
                    let up = up.as_deref().and_then(|up| up.get(start..));
                    activate(compute.kernels, spec.activation_in(layer), limit, gate, up);
                }
            }
            if spec.sub_norms() {
                rows_mut(gate, ffn).for_each(|x| norm_one(compute.kernels, spec, sub_norm, &[], x));
            }
        });

        if let Some(w) = weights.matrix(Role::FfnDown, index) {
            compute.times((gate, tokens), w, branch, dim);
            if is_biased {
                add_bias(branch, dim, weights.vector(Role::FfnDownBias, index));
            }
            compute.done(Section::FeedForward);
            if layer.has_experts && spec.experts_beside() {
                // `experts` adds this output to its own.
                norm(compute, spec, weights, (Role::PostFfwNorm1, Role::PostFfwNorm1, index), branch);
                return copy(held, branch);
            }
            leave(compute, spec, weights, (Role::PostFfwNorm, index), branch, hidden);
            norm_sum(compute, spec, weights, (Role::LayerOutputNorm, Role::LayerOutputNormBias, index), hidden);
        }
    }
}

/// Applies the activation function xIELU with the parameters of layer `index` to `x`: a parabola for positive elements,
/// `expm1` for the others.
fn xielu_of(Xielu { alpha_n, alpha_p, beta, eps }: &Xielu<'_>, index: usize, x: &mut [f32]) {
    let softplus = |x: f32| libm::log1pf(libm::expf(x));
    let (beta, eps) = (beta.get(index), eps.get(index));
    let (positive, negative) = (softplus(alpha_p.get(index)), beta + softplus(alpha_n.get(index)));
    for x in x {
        let curve =
            if *x > 0.0 { positive * *x * *x } else { negative * (libm::expm1f(if *x < eps { *x } else { eps }) - *x) };
        *x = curve + beta * *x;
    }
}

/// Upper limit on the activated gate of a feed-forward, and on the absolute value of `up`. A layer's experts have a
/// limit of their own.
#[derive(Clone, Copy)]
pub(super) struct Limit {
    most: f32,
    /// True if gates are limited before their activation function, too, and not only after it.
    before: bool,
}

impl Limit {
    /// Returns the limit in layer `index`.
    pub fn of(spec: &Spec<'_>, index: usize, of_experts: bool) -> Option<Self> {
        let (limits, index) = (spec.limits()?, spec.in_file(index));
        let most = if of_experts { limits.experts.get(index) } else { limits.shared.get(index) };
        (most > 1e-6).then_some(Self { most, before: limits.before })
    }
}

/// Activates a gate: sets `gate` to `f(gate)`, or to `f(gate) * up` if there is an `up`. If there is an `up` and a
/// `limit`, both `f(gate)` and the absolute value of `up` are at most the limit.
pub(super) fn activate(kernels: &Kernels, f: Activation, limit: Option<Limit>, gate: &mut [f32], up: Option<&[f32]>) {
    let (true, Some(Limit { most, before }), Some(up)) = (built::LIMITS, limit, up) else {
        return kernels.activate(f, gate, up);
    };
    let at_most = |x: f32| if x > most { most } else { x }; // NaN passes through
    if before {
        gate.iter_mut().for_each(|x| *x = at_most(*x));
    }
    kernels.activate(f, gate, None);
    for (gate, up) in gate.iter_mut().zip(up) {
        *gate = at_most(*gate) * -at_most(-at_most(*up));
    }
}
