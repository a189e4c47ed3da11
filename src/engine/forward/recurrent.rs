//! Mixers that remember a state of fixed size: short convolutions (LFM2), gated delta nets (Qwen 3.5) and Mamba-2.
//!
//! A row of a token is what the projections make of it, side by side: of a short convolution, its two gates and the
//! channels; else the gate `z`, the channels (delta net: queries, keys, values; Mamba-2: values, keys, queries) and two
//! numbers for each head, of which come the decay of its state and the factor on what is written.
//!
//! The state of a context is a page, in which each layer has what its convolution sees of earlier tokens,
//! `[taps - 1][channels]`, and the matrices of its heads, `[heads][keys][width]`.

use super::{Forward, copy, enter, leave, rows, rows_mut, scale};
use crate::engine::layout::STATES;
use crate::engine::profile::Section;
use crate::kernel::{Activation, Convolution, Kernels, Recurrence, fork_pairs};
use crate::model::{Layer, Recurrent, RecurrentKind, Role, Weights};
use crate::quant::le_f32;

/// Where the parts of a row begin, if it is not that of a short convolution.
#[derive(Clone, Copy)]
struct Row {
    channels: usize,
    decay: usize,
    factor: usize,
    queries: usize,
    keys: usize,
    values: usize,
}

impl Row {
    fn of(mixer: &Recurrent) -> Self {
        let (channels, keys) = (mixer.inner(), mixer.groups * mixer.keys);
        let decay = channels + mixer.channels();
        let (queries, keys, values) = match mixer.kind {
            RecurrentKind::Mamba2 => (channels + mixer.inner() + keys, channels + mixer.inner(), channels),
            _ => (channels, channels + keys, channels + 2 * keys),
        };
        Self { channels, decay, factor: decay + mixer.heads, queries, keys, values }
    }

    /// Where the key of a head begins among those of all groups. Heads of a group stand together in Mamba-2; the
    /// converter deals those of a delta net out in turns.
    fn group(mixer: &Recurrent, head: usize) -> usize {
        let group = match mixer.kind {
            RecurrentKind::Mamba2 => head.checked_div(mixer.heads.checked_div(mixer.groups).unwrap_or(0)),
            _ => head.checked_rem(mixer.groups),
        };
        group.unwrap_or(0) * mixer.keys
    }
}

impl Forward<'_, '_> {
    /// `x += output(mix(projections(norm(x))))`; the states are then those after the rows. Of a layer that has attention
    /// as well, the input is what [`hold`](Self::hold) has kept.
    pub(super) fn recurrent(&mut self, layer: &Layer, mixer: &Recurrent) {
        let Self { spec, weights, compute, hidden, branch, inner, rows: count, .. } = self;
        let (index, dim, count, stride) = (layer.index, spec.dim, *count, mixer.row_len());
        let held = if layer.has_attention() { count * dim } else { 0 };
        let Some((inner, held)) = inner.split_at_mut_checked(inner.len() - held.min(inner.len())) else { return };
        let (Some(hidden), Some(branch)) = (hidden.get_mut(..count * dim), branch.get_mut(..count * dim)) else {
            return;
        };
        let Some((x, rest)) = inner.split_at_mut_checked(count * stride) else { return };
        let Some(out) = rest.get_mut(..count * mixer.inner()) else { return };

        let input = if layer.has_attention() { &*held } else { &*hidden };
        enter(compute, spec, weights, (Role::AttnNorm, Role::AttnNormBias, index), input, branch);
        let row = Row::of(mixer);
        let of = |role, at| (weights.matrix(role, index), at);
        let products = match mixer.kind {
            RecurrentKind::ShortConvolution => [of(Role::ShortConvIn, 0), (None, 0), (None, 0), (None, 0)],
            RecurrentKind::Mamba2 => [of(Role::SsmIn, 0), (None, 0), (None, 0), (None, 0)],
            RecurrentKind::DeltaNet => [
                of(Role::AttnGate, 0),
                of(Role::AttnQkv, row.channels),
                of(Role::SsmAlpha, row.decay),
                of(Role::SsmBeta, row.factor),
            ],
        };
        compute.input(branch, count).times_each(&products, x, stride);
        compute.done(Section::Qkv);

        let (mut x_left, mut out_left) = (&mut *x, &mut *out);
        for segment in self.segments.iter().take(self.parts) {
            let tokens = segment.tokens as usize;
            let (Some((x, x_after)), Some((out, out_after))) = (
                core::mem::take(&mut x_left).split_at_mut_checked(tokens * stride),
                core::mem::take(&mut out_left).split_at_mut_checked(tokens * mixer.inner()),
            ) else {
                return;
            };
            (x_left, out_left) = (x_after, out_after);
            let page = self.pools.get(STATES).and_then(|pool| pool.table(segment.context as usize).first());
            let state = page.and_then(|page| self.store.state_range(spec, index, *page as usize));
            let Some(state) = state.and_then(|range| self.kv.get_mut(range)) else { return };
            let Ok(state) = bytemuck::try_cast_slice_mut::<u8, f32>(state) else { return };
            if segment.position == 0 {
                state.fill(0.0);
            }
            let Some((window, matrices)) = state.split_at_mut_checked(mixer.window_len()) else { return };
            if mixer.kind == RecurrentKind::ShortConvolution {
                convolve_gated(compute.kernels, weights, (mixer, index), x, window, out);
                continue;
            }
            let convolution = Convolution {
                weight: weights.vector(Role::SsmConv, index),
                bias: weights.vector(Role::SsmConvBias, index),
                channels: mixer.channels(),
                taps: mixer.taps,
                silu: true,
            };
            if let Some(channels) = x.get_mut(row.channels..) {
                compute.kernels.convolve(&convolution, channels, stride, window);
            }
            for x in rows_mut(x, stride) {
                gates(compute.kernels, weights, (mixer, index), row, x);
            }
            let work = tokens.saturating_mul(4 * mixer.matrices_len());
            let head_len = mixer.keys * mixer.width;
            let Some(matrices) = matrices.get_mut(..mixer.matrices_len()) else { return };
            let x = &*x;
            fork_pairs(
                compute.workers,
                (matrices, head_len),
                (out, tokens * mixer.width),
                work,
                |head, matrix, out| {
                    let group = Row::group(mixer, head);
                    let from = |at: usize| x.get(at..).unwrap_or(&[]);
                    let job = Recurrence {
                        key: from(row.keys + group),
                        query: from(row.queries + group),
                        value: from(row.values + head * mixer.width),
                        stride,
                        keys: mixer.keys,
                        width: mixer.width,
                        decay: from(row.decay + head),
                        factor: from(row.factor + head),
                        gate_stride: stride,
                        delta: mixer.kind == RecurrentKind::DeltaNet,
                    };
                    compute.kernels.recur(&job, matrix, out);
                },
            );
        }

        if mixer.kind != RecurrentKind::ShortConvolution {
            let (mut x_left, mut out_left) = (&mut *x, &*out);
            for segment in self.segments.iter().take(self.parts) {
                let tokens = segment.tokens as usize;
                let (Some((x, x_after)), Some((out, out_after))) = (
                    core::mem::take(&mut x_left).split_at_mut_checked(tokens * stride),
                    out_left.split_at_checked(tokens * mixer.inner()),
                ) else {
                    return;
                };
                (x_left, out_left) = (x_after, out_after);
                for (t, x) in rows_mut(x, stride).enumerate() {
                    combine((compute.kernels, spec.norm_eps), weights, (mixer, index), row, x, out, (t, tokens));
                }
            }
            for (out, x) in rows_mut(out, mixer.inner()).zip(rows(x, stride)) {
                copy(out, x);
            }
        }
        compute.done(Section::Attention);
        let role = if mixer.kind == RecurrentKind::ShortConvolution { Role::ShortConvOut } else { Role::SsmOut };
        if let Some(w) = weights.matrix(role, index) {
            compute.input(out, count).times(w, branch, dim);
            leave(compute, spec, weights, (Role::PostAttentionNorm, index), branch, hidden);
        }
    }

    /// Keeps the input of a layer for a second mixer, at the end of what is inside a block.
    pub(super) fn hold(&mut self) {
        let len = self.rows * self.spec.dim;
        let start = self.inner.len() - len.min(self.inner.len());
        if let (Some(held), Some(hidden)) = (self.inner.get_mut(start..), self.hidden.get(..len)) {
            copy(held, hidden);
        }
    }
}

/// `out = second gate * convolution(first gate * x)`: a row has the first gate, the second, and x.
fn convolve_gated(
    kernels: &Kernels,
    weights: &Weights<'_, '_>,
    (mixer, index): (&Recurrent, usize),
    x: &mut [f32],
    window: &mut [f32],
    out: &mut [f32],
) {
    let dim = mixer.width;
    for row in rows_mut(x, 3 * dim) {
        let Some((gates, x)) = row.split_at_mut_checked(2 * dim) else { return };
        x.iter_mut().zip(gates).for_each(|(x, gate)| *x *= *gate);
    }
    let weight = weights.vector(Role::ShortConv, index);
    let convolution = Convolution { weight, bias: &[], channels: dim, taps: mixer.taps, silu: false };
    if let Some(channels) = x.get_mut(2 * dim..) {
        kernels.convolve(&convolution, channels, 3 * dim, window);
    }
    for (out, row) in rows_mut(out, dim).zip(rows(x, 3 * dim)) {
        let (Some(gate), Some(x)) = (row.get(dim..2 * dim), row.get(2 * dim..)) else { return };
        for ((out, gate), x) in out.iter_mut().zip(gate).zip(x) {
            *out = gate * x;
        }
    }
}

/// Of the two numbers of each head, the decay of its state and the factor on what is written; and a delta net's keys
/// and queries of length 1, queries by the root of their width.
fn gates(kernels: &Kernels, weights: &Weights<'_, '_>, (mixer, index): (&Recurrent, usize), row: Row, x: &mut [f32]) {
    let (a, bias) = (weights.vector(Role::SsmA, index), weights.vector(Role::SsmDtBias, index));
    let delta = mixer.kind == RecurrentKind::DeltaNet;
    if let Some((decays, factors)) = x.get_mut(row.decay..).and_then(|x| x.split_at_mut_checked(mixer.heads)) {
        for (head, (decay, factor)) in decays.iter_mut().zip(factors).enumerate() {
            let step = softplus(*decay + le_f32(bias, head));
            *decay = libm::expf(step * le_f32(a, head));
            *factor = if delta { 1.0 / (1.0 + libm::expf(-*factor)) } else { step };
        }
    }
    if !delta {
        return;
    }
    let n = mixer.keys as f32;
    for (at, factor) in [(row.queries, 1.0 / n), (row.keys, 1.0 / libm::sqrtf(n))] {
        for head in x.get_mut(at..).map(|x| rows_mut(x, mixer.keys)).into_iter().flatten().take(mixer.groups) {
            // By the root of the sum of squares, not of their mean.
            kernels.rms_norm(head, &[], 1e-6 / n);
            scale(head, factor);
        }
    }
}

/// `ln(1 + e^x)`.
fn softplus(x: f32) -> f32 {
    if x > 20.0 { x } else { libm::log1pf(libm::expf(x)) }
}

/// The output of token `t`, in place of its gate. `out` is `[heads][tokens][width]`.
fn combine(
    (kernels, eps): (&Kernels, f32),
    weights: &Weights<'_, '_>,
    (mixer, index): (&Recurrent, usize),
    row: Row,
    x: &mut [f32],
    out: &[f32],
    (t, tokens): (usize, usize),
) {
    let (norm, skip) = (weights.vector(Role::SsmNorm, index), weights.vector(Role::SsmD, index));
    let Some((gate, rest)) = x.split_at_mut_checked(mixer.inner()) else { return };
    let values = rest.get_mut(row.values - row.channels..).unwrap_or_default();
    for (head, gate) in rows_mut(gate, mixer.width).enumerate() {
        let at = (head * tokens + t) * mixer.width;
        let (Some(made), Some(value)) =
            (out.get(at..at + mixer.width), values.get_mut(head * mixer.width..(head + 1) * mixer.width))
        else {
            return;
        };
        match mixer.kind {
            RecurrentKind::Mamba2 => {
                let skip = le_f32(skip, head);
                value.iter_mut().zip(made).for_each(|(value, made)| *value = *value * skip + made);
            }
            _ => {
                copy(value, made);
                kernels.rms_norm(value, norm, eps);
            }
        }
        kernels.activate(Activation::Silu, gate, Some(value));
    }
    if mixer.kind == RecurrentKind::Mamba2 && !norm.is_empty() {
        let width = mixer.inner().checked_div(mixer.groups).unwrap_or(0);
        for (group, weight) in rows_mut(gate, width).zip(rows(norm, 4 * width)) {
            kernels.rms_norm(group, weight, eps);
        }
    }
}
