//! Recurrent mixers: short convolutions (LFM2), gated delta nets (Qwen 3.5) and Mamba-2.
//!
//! A token's row holds the outputs of its projections: for a short convolution, two gates and the channels; otherwise
//! the gate `z`, the channels (delta net: queries, keys, values; Mamba-2: values, keys, queries) and two values per
//! head, for the decay of the head's state and for the factor on new values.
//!
//! A context's states are in one page. For each layer, the page holds the previous inputs of the convolution, `[taps -
//! 1][channels]`, and the matrices of the heads, each in tiles of 16 columns, `[tiles][keys][16]`.

use super::compute::Compute;
#[cfg(feature = "drafts")]
use super::undo::Undo;
use super::{Forward, copy, enter, leave, rows, rows_mut, scale};
use crate::engine::layout::{STATES, Segment, Store};
use crate::engine::profile::Section;
use crate::kernel::{Activation, CausalConvolution, Kernels, Product, Recurrence, Update, fork_pairs};
use crate::memory::Pool;
use crate::model::{Layer, Recurrent, RecurrentKind, Role, Spec, Weights};
use crate::quant::le_f32;

/// Offsets, in a token's row of projections, of the vectors that a recurrent layer reads. Short convolutions do not use
/// them.
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

    /// Index of the group that a head belongs to.
    fn group(mixer: &Recurrent, head: usize) -> usize {
        let group = match mixer.in_turns {
            true => head.checked_rem(mixer.groups),
            false => head.checked_div(mixer.heads.checked_div(mixer.groups).unwrap_or(0)),
        };
        group.unwrap_or(0)
    }

    /// Offsets in a row of a head's decay and of its factor. If one matrix computes both, the factors of a group of
    /// heads are adjacent, and the group's decays follow them.
    fn gates(&self, mixer: &Recurrent, head: usize) -> (usize, usize) {
        if mixer.kind != RecurrentKind::DeltaNet || mixer.in_turns {
            return (self.decay + head, self.factor + head);
        }
        let share = mixer.heads.checked_div(mixer.groups).unwrap_or(0);
        let factor = self.decay + head + Self::group(mixer, head) * share;
        (factor + share, factor)
    }
}

impl Forward<'_, '_> {
    /// Runs a recurrent layer: `x += output(mix(projections(norm(x))))`. Also advances the recurrent states. In a layer
    /// that also has attention, the input is the hidden state saved by [`hold`](Self::hold).
    #[inline(never)] // keeps its temporaries off the stack of other layers
    pub(super) fn recurrent(&mut self, layer: &Layer, mixer: &Recurrent) {
        let Self { spec, weights, compute, hidden, branch, inner, rows: count, .. } = self;
        let (index, dim, count) = (layer.index, spec.dim, *count);
        let mixer = Mixer { weights, mixer, index, row: Row::of(mixer), stride: mixer.row_len() };
        let held = if layer.has_attention() { count * dim } else { 0 };
        let Some((inner, held)) = inner.split_at_mut_checked(inner.len() - held.min(inner.len())) else { return };
        let (Some(hidden), Some(branch)) = (hidden.get_mut(..count * dim), branch.get_mut(..count * dim)) else {
            return;
        };
        let Some((x, rest)) = inner.split_at_mut_checked(count * mixer.stride) else { return };
        let Some(out) = rest.get_mut(..count * mixer.inner()) else { return };

        let input = if layer.has_attention() { &*held } else { &*hidden };
        enter(compute, spec, weights, (Role::AttnNorm, Role::AttnNormBias, index), input, branch);
        compute.times_each((branch, count), &mixer.projections(), x, mixer.stride);
        compute.done(Section::Qkv);

        let segments = self.segments.get(..self.parts).unwrap_or_default();
        let mut left = (&mut *x, &mut *out);
        for segment in segments {
            let Some((x, out)) = mixer.next(segment, &mut left) else { return };
            let Some(state) = state_of((self.kv, &self.pools, &self.store), spec, index, segment) else { return };
            if segment.position == 0 {
                state.fill(0.0);
            }
            #[cfg(feature = "drafts")]
            if let Some(state) = mixer.settled(compute, (&mut self.undo, spec), segment, state, x) {
                mixer.advance(compute, state, x, out);
            }
            #[cfg(not(feature = "drafts"))]
            mixer.advance(compute, state, x, out);
        }
        if mixer.kind != RecurrentKind::ShortConvolution {
            let mut left = (&mut *x, &mut *out);
            for segment in segments {
                let Some((x, out)) = mixer.next(segment, &mut left) else { return };
                for (t, x) in rows_mut(x, mixer.stride).enumerate() {
                    mixer.combine((compute.kernels, spec.norm_eps), x, out, (t, segment.tokens as usize));
                }
            }
            for (out, x) in rows_mut(out, mixer.inner()).zip(rows(x, mixer.stride)) {
                copy(out, x);
            }
        }
        compute.done(Section::Attention);
        let role = if mixer.kind == RecurrentKind::ShortConvolution { Role::ShortConvOut } else { Role::SsmOut };
        if let Some(w) = weights.matrix(role, index) {
            compute.times((out, count), w, branch, dim);
            compute.done(Section::Output);
            leave(compute, spec, weights, (Role::PostAttentionNorm, index), branch, hidden);
        }
    }

    /// Updates a context's state in one layer with the pending rows of accepted tokens.
    #[cfg(feature = "drafts")]
    pub(super) fn settle_layer(&mut self, layer: &Layer, mixer: &Recurrent, segment: &Segment) {
        let Self { spec, weights, compute, undo, .. } = self;
        let index = layer.index;
        let mixer = Mixer { weights, mixer, index, row: Row::of(mixer), stride: mixer.row_len() };
        if let Some(state) = state_of((self.kv, &self.pools, &self.store), spec, index, segment) {
            mixer.settled(compute, (undo, spec), segment, state, &[]);
        }
    }

    /// Saves the hidden states at the end of the intermediate values. They are the input of a layer's second mixer, if
    /// the layer has two.
    pub(super) fn hold(&mut self) {
        let len = self.rows * self.spec.dim;
        let start = self.inner.len() - len.min(self.inner.len());
        if let (Some(held), Some(hidden)) = (self.inner.get_mut(start..), self.hidden.get(..len)) {
            copy(held, hidden);
        }
    }
}

/// The state that a segment's context has in a layer.
pub(super) fn state_of<'k>(
    (kv, pools, store): (&'k mut [u8], &[Pool<'_>], &Store),
    spec: &Spec<'_>,
    index: usize,
    segment: &Segment,
) -> Option<&'k mut [f32]> {
    let page = pools.get(STATES)?.table(segment.context as usize).first()?;
    let range = store.state_range(spec, index, *page as usize)?;
    bytemuck::try_cast_slice_mut(kv.get_mut(range)?).ok()
}

/// Updates the states of a context's heads for `tokens` tokens. The heads are divided among the workers. `update`
/// describes the work on a head, which takes `cost` operations per element and token. `out` is
/// `[heads][tokens][width]`.
pub(super) fn advance_heads<'u>(
    compute: &Compute<'_, '_>,
    mixer: &Recurrent,
    (state, out): (&mut [f32], &mut [f32]),
    (tokens, cost): (usize, usize),
    update: impl Fn(usize) -> Update<'u> + Sync,
) {
    let matrices = state.get_mut(mixer.window_len()..).and_then(|state| state.get_mut(..mixer.matrices_len()));
    let Some(matrices) = matrices else { return };
    fork_pairs(
        compute.workers,
        (matrices, mixer.matrix_len()),
        (out, tokens * mixer.width),
        tokens.saturating_mul(cost * mixer.matrices_len()),
        |head, matrix, out| compute.kernels.recur(&update(head), matrix, out),
    );
}

/// The recurrent mixer of a layer.
struct Mixer<'a> {
    weights: &'a Weights<'a, 'a>,
    mixer: &'a Recurrent,
    index: usize,
    row: Row,
    /// Elements of a row.
    stride: usize,
}

impl core::ops::Deref for Mixer<'_> {
    type Target = Recurrent;

    fn deref(&self) -> &Recurrent {
        self.mixer
    }
}

impl Mixer<'_> {
    /// The matrices of the layer's projections, each with the offset of its outputs in a row.
    fn projections(&self) -> [Product<'_>; 4] {
        let of = |role, at| (self.weights.matrix(role, self.index), at);
        match self.kind {
            RecurrentKind::ShortConvolution => [of(Role::ShortConvIn, 0), (None, 0), (None, 0), (None, 0)],
            RecurrentKind::DeltaNet if !self.in_turns => [
                of(Role::AttnGate, 0),
                of(Role::AttnQkv, self.row.channels),
                of(Role::SsmBetaAlpha, self.row.decay),
                (None, 0),
            ],
            RecurrentKind::DeltaNet => [
                of(Role::AttnGate, 0),
                of(Role::AttnQkv, self.row.channels),
                of(Role::SsmAlpha, self.row.decay),
                of(Role::SsmBeta, self.row.factor),
            ],
            _ => [of(Role::SsmIn, 0), (None, 0), (None, 0), (None, 0)],
        }
    }

    /// Takes the rows and outputs of a segment from the front of the rows and outputs that are left.
    fn next<'x>(
        &self,
        segment: &Segment,
        (x_left, out_left): &mut (&'x mut [f32], &'x mut [f32]),
    ) -> Option<(&'x mut [f32], &'x mut [f32])> {
        let tokens = segment.tokens as usize;
        let (x, x_after) = core::mem::take(x_left).split_at_mut_checked(tokens * self.stride)?;
        let (out, out_after) = core::mem::take(out_left).split_at_mut_checked(tokens * self.inner())?;
        (*x_left, *out_left) = (x_after, out_after);
        Some((x, out))
    }

    /// Advances a recurrent layer's state of one context over the rows of a segment. `out` receives
    /// `[heads][tokens][width]`; for a short convolution, it receives the layer's output.
    fn advance(&self, compute: &Compute<'_, '_>, state: &mut [f32], x: &mut [f32], out: &mut [f32]) {
        let Some(window) = state.get_mut(..self.window_len()) else { return };
        if self.kind == RecurrentKind::ShortConvolution {
            return self.convolve_gated(compute.kernels, x, window, out);
        }
        let convolution = CausalConvolution {
            weight: self.weights.vector(Role::SsmConv, self.index),
            bias: self.weights.vector(Role::SsmConvBias, self.index),
            channels: self.channels(),
            taps: self.taps,
            silu: true,
        };
        if let Some(channels) = x.get_mut(self.row.channels..) {
            compute.kernels.convolve(&convolution, channels, self.stride, window);
        }
        for x in rows_mut(x, self.stride) {
            self.gates(compute.kernels, x);
        }
        let (x, tokens) = (&*x, x.len().checked_div(self.stride).unwrap_or(0));
        advance_heads(compute, self, (state, out), (tokens, 4), |head| {
            let group = Row::group(self, head) * self.keys;
            let (decay, factor) = self.row.gates(self, head);
            let from = |at: usize| x.get(at..).unwrap_or(&[]);
            Update::Matrix(Recurrence {
                key: from(self.row.keys + group),
                query: from(self.row.queries + group),
                value: from(self.row.values + head * self.width),
                stride: self.stride,
                keys: self.keys,
                width: self.width,
                decay: from(decay),
                factor: from(factor),
                gate_stride: self.stride,
                delta: self.kind == RecurrentKind::DeltaNet,
            })
        });
    }

    /// Advances `state` over the segment's pending rows: rows that were read as proposals and are now accepted. Returns
    /// the state that the rows `x` of this pass advance next. If the rows `x` are themselves proposals, the returned
    /// state is a copy of `state`, and the rows are saved as pending.
    #[cfg(feature = "drafts")]
    fn settled<'s>(
        &self,
        compute: &Compute<'_, '_>,
        (undo, spec): (&'s mut Undo<'_>, &Spec<'_>),
        segment: &Segment,
        state: &'s mut [f32],
        x: &[f32],
    ) -> Option<&'s mut [f32]> {
        let context = segment.context as usize;
        let ahead = undo.ahead(context);
        let pending = ahead.pending as usize;
        if pending > 0 {
            if segment.position == ahead.pending {
                state.fill(0.0);
            }
            let scratch = core::mem::take(&mut undo.scratch);
            let out = scratch.get_mut(self.state_len()..).and_then(|out| out.get_mut(..pending * self.inner()));
            let rows = undo.rows(spec, self.index, context).get_mut(..pending * self.stride);
            if let (Some(rows), Some(out)) = (rows, out) {
                self.advance(compute, state, rows, out);
            }
            undo.scratch = scratch;
        }
        if ahead.tentative == 0 {
            return Some(state);
        }
        copy(undo.rows(spec, self.index, context).get_mut(..x.len())?, x);
        let copied = undo.scratch.get_mut(..self.state_len())?;
        copy(copied, state.get(..self.state_len())?);
        Some(copied)
    }

    /// Gated short convolution: `out = second gate * convolution(first gate * x)`. A row of projections holds the first
    /// gate, the second gate, and `x`.
    fn convolve_gated(&self, kernels: &Kernels, x: &mut [f32], window: &mut [f32], out: &mut [f32]) {
        let dim = self.width;
        for row in rows_mut(x, 3 * dim) {
            let Some((gates, x)) = row.split_at_mut_checked(2 * dim) else { return };
            x.iter_mut().zip(gates).for_each(|(x, gate)| *x *= *gate);
        }
        let weight = self.weights.vector(Role::ShortConv, self.index);
        let convolution = CausalConvolution { weight, bias: &[], channels: dim, taps: self.taps, silu: false };
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

    /// Computes the decay of each head's state and the factor on new values, from the head's two projected values. In
    /// delta nets, also scales keys and queries to length 1, and then queries by `1 / sqrt(keys)`.
    fn gates(&self, kernels: &Kernels, x: &mut [f32]) {
        let (weights, row) = (self.weights, self.row);
        let (a, bias) = (weights.vector(Role::SsmA, self.index), weights.vector(Role::SsmDtBias, self.index));
        let delta = self.kind == RecurrentKind::DeltaNet;
        for head in 0..self.heads {
            let (decay, factor) = row.gates(self, head);
            let Some(decay) = x.get_mut(decay) else { return };
            let step = softplus(*decay + le_f32(bias, head));
            *decay = libm::expf(step * le_f32(a, head));
            let Some(factor) = x.get_mut(factor) else { return };
            *factor = if delta { 1.0 / (1.0 + libm::expf(-*factor)) } else { step };
        }
        if !delta {
            return;
        }
        let n = self.mixer.keys as f32;
        for (at, factor) in [(row.queries, 1.0 / n), (row.keys, 1.0 / libm::sqrtf(n))] {
            for head in x.get_mut(at..).map(|x| rows_mut(x, self.mixer.keys)).into_iter().flatten().take(self.groups) {
                // The epsilon is divided by `n`, because the model adds it to the sum of squares, but `rms_norm` adds
                // it to the mean of squares.
                kernels.rms_norm(head, &[], 1e-6 / n);
                scale(head, factor);
            }
        }
    }

    /// Computes the final output of token `t` from the recurrent outputs `out`, `[heads][tokens][width]`, and from the
    /// token's gate in `x`. Writes it over the gate.
    fn combine(&self, (kernels, eps): (&Kernels, f32), x: &mut [f32], out: &[f32], (t, tokens): (usize, usize)) {
        let (mixer, row) = (self.mixer, self.row);
        let vector = |role| self.weights.vector(role, self.index);
        let (norm, skip) = (vector(Role::SsmNorm), vector(Role::SsmD));
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
}

/// `ln(1 + e^x)`.
pub(super) fn softplus(x: f32) -> f32 {
    if x > 20.0 { x } else { libm::log1pf(libm::expf(x)) }
}
