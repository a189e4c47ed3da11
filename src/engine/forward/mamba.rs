//! Mamba-1: a convolution over the channels, then a scan, whose output is multiplied by a gate. The scan's steps,
//! inputs and outputs are projections of the channels.
//!
//! In each layer, the state of a context contains the convolution's earlier inputs, `[taps - 1][channels]`, and the
//! states of the channels in tiles of sixteen, `[tiles][states][16]`.

use super::compute::Compute;
use super::recurrent::state_of;
use super::{Forward, copy, enter, leave, rows, rows_mut};
use crate::engine::profile::Section;
use crate::kernel::{Activation, CausalConvolution, Scan, TILE, Update, fork_pairs};
use crate::model::{Layer, Recurrent, Role, StepNorms, Weights};

impl Forward<'_, '_> {
    /// Runs a Mamba-1 layer: `x += output(silu(gate) * scan(convolution(norm(x))))`. Also advances the recurrent
    /// states.
    #[inline(never)] // keeps its temporaries off the stack of other layers
    pub(super) fn mamba(&mut self, layer: &Layer, mixer: &Recurrent) {
        let Self { spec, weights, compute, hidden, branch, inner, rows: count, .. } = self;
        let (index, dim, count) = (layer.index, spec.dim, *count);
        let (Some(hidden), Some(branch)) = (hidden.get_mut(..count * dim), branch.get_mut(..count * dim)) else {
            return;
        };
        let channels = mixer.width;
        let mixer = Selective { weights, mixer, index, made: mixer.ranks[0] + 2 * mixer.keys };
        let mut rest = &mut **inner;
        let [x, gate, made, low, steps, out] = mixer.widths().map(|width| {
            let (piece, after) = core::mem::take(&mut rest).split_at_mut_checked(count * width).unwrap_or_default();
            rest = after;
            piece
        });

        enter(compute, spec, weights, (Role::AttnNorm, Role::AttnNormBias, index), hidden, branch);
        mixer.project(compute, (branch, count), x, gate);
        compute.done(Section::Qkv);
        let segments = self.segments.get(..self.parts).unwrap_or_default();
        let mut left = &mut *x;
        for segment in segments {
            let len = segment.tokens as usize * channels;
            let Some((x, after)) = core::mem::take(&mut left).split_at_mut_checked(len) else { return };
            left = after;
            let Some(state) = state_of((self.kv, &self.pools, &self.store), spec, index, segment) else { return };
            if segment.position == 0 {
                state.fill(0.0);
            }
            let Some(window) = state.get_mut(..mixer.mixer.window_len()) else { return };
            compute.kernels.convolve(&mixer.convolution(), x, channels, window);
        }
        mixer.choose(compute, (x, count), spec.norm_eps, [made, low, steps]);
        let mut start = 0;
        for segment in segments {
            let rows = start..start + segment.tokens as usize;
            start = rows.end;
            let Some(state) = state_of((self.kv, &self.pools, &self.store), spec, index, segment) else { return };
            let of = |width: usize| rows.start * width..rows.end * width;
            let padded = channels.next_multiple_of(TILE);
            let (Some(x), Some(steps), Some(made), Some(out)) = (
                x.get_mut(of(channels)),
                steps.get(of(mixer.groups())),
                made.get(of(mixer.made)),
                out.get_mut(of(padded)),
            ) else {
                return;
            };
            mixer.scan(compute, state, (steps, made), out, x);
        }
        compute.by_tokens(gate, channels, &|start, gate| {
            compute.kernels.activate(Activation::Silu, gate, x.get(start..));
        });
        compute.done(Section::Attention);
        if let Some(w) = weights.matrix(Role::SsmOut, index) {
            compute.times((gate, count), w, branch, dim);
            compute.done(Section::Output);
            leave(compute, spec, weights, (Role::PostAttentionNorm, index), branch, hidden);
        }
    }
}

/// The mixer of a layer.
struct Selective<'a> {
    weights: &'a Weights<'a, 'a>,
    mixer: &'a Recurrent,
    index: usize,
    /// Number of elements per token of the projection that yields the low-rank step, `B` and `C`.
    made: usize,
}

impl Selective<'_> {
    /// Number of elements per token of each intermediate value: the channels, their gate, the projected channels, the
    /// low-rank step, the steps, and the scan's output in whole tiles.
    fn widths(&self) -> [usize; 6] {
        let channels = self.mixer.width;
        [channels, channels, self.made, self.mixer.ranks[0], channels, channels.next_multiple_of(TILE)]
    }

    /// Number of groups of channels; the channels of a group share a step.
    fn groups(&self) -> usize {
        self.mixer.width.checked_div(self.mixer.shared).unwrap_or(0)
    }

    fn vector(&self, role: Role) -> &[u8] {
        self.weights.vector(role, self.index)
    }

    fn convolution(&self) -> CausalConvolution<'_> {
        CausalConvolution {
            weight: self.vector(Role::SsmConv),
            bias: self.vector(Role::SsmConvBias),
            channels: self.mixer.width,
            taps: self.mixer.taps,
            silu: true,
        }
    }

    /// Projects rows to the channels `x` and the channels' gates. The first half of the matrix gives the channels, the
    /// second half the gates. If channels are grouped, the matrix has, for each group, the rows of the gate, then the
    /// rows of the channels.
    fn project(&self, compute: &mut Compute<'_, '_>, input: (&[f32], usize), x: &mut [f32], gate: &mut [f32]) {
        let Recurrent { width: channels, shared, .. } = *self.mixer;
        let Some(w) = self.weights.matrix(Role::SsmIn, self.index) else { return };
        if shared <= 1 {
            let (Some(w_x), Some(w_gate)) = (w.part(0, channels), w.part(channels, channels)) else { return };
            compute.times(input, w_x, x, channels);
            return compute.times(input, w_gate, gate, channels);
        }
        for first in (0..channels).step_by(shared) {
            let (Some(w_x), Some(w_gate)) = (w.part(2 * first + shared, shared), w.part(2 * first, shared)) else {
                return;
            };
            let (Some(x), Some(gate)) = (x.get_mut(first..), gate.get_mut(first..)) else { return };
            compute.times(input, w_x, x, channels);
            compute.times(input, w_gate, gate, channels);
        }
    }

    /// Offsets, in a row of the projection, of the low-rank step, of the factors that write the states (`B`), and of
    /// the factors that read them (`C`).
    fn places(&self) -> [usize; 3] {
        let (rank, states) = (self.mixer.ranks[0], self.mixer.keys);
        if self.mixer.shared > 1 { [2 * states, 0, states] } else { [0, rank, rank + states] }
    }

    /// Computes the parameters of the scan that depend on the token: a step for each channel or group of channels, and
    /// the factors with which each state is written and read. They are projections of the convolution's outputs.
    fn choose(
        &self,
        compute: &mut Compute<'_, '_>,
        (x, count): (&[f32], usize),
        eps: f32,
        [made, low, steps]: [&mut [f32]; 3],
    ) {
        let (rank, states) = (self.mixer.ranks[0], self.mixer.keys);
        let matrix = |role| self.weights.matrix(role, self.index);
        let (Some(w), Some(w_steps)) = (matrix(Role::SsmX), matrix(Role::SsmDt)) else { return };
        compute.times((x, count), w, made, self.made);
        let places = self.places();
        let eps = self.mixer.step_eps.unwrap_or(eps);
        for (made, low) in rows_mut(made, self.made).zip(rows_mut(low, rank)) {
            let parts = [(Role::SsmDtNorm, rank), (Role::SsmBNorm, states), (Role::SsmCNorm, states)];
            for ((role, width), at) in parts.into_iter().zip(places) {
                let Some(part) = made.get_mut(at..at + width) else { return };
                if self.mixer.step_norms != StepNorms::None {
                    compute.kernels.rms_norm(part, self.vector(role), eps);
                }
            }
            copy(low, made.get(places[0]..).unwrap_or(&[]));
        }
        compute.times((low, count), w_steps, steps, self.groups());
    }

    /// Advances a context's state by the scan over its rows `x`, and overwrites `x` with the scan's output. `out` is a
    /// buffer for the output, `[tiles][tokens][16]`.
    fn scan(
        &self,
        compute: &Compute<'_, '_>,
        state: &mut [f32],
        (steps, made): (&[f32], &[f32]),
        out: &mut [f32],
        x: &mut [f32],
    ) {
        let Recurrent { width: channels, keys: states, shared, .. } = *self.mixer;
        let [_, write_at, read_at] = self.places();
        let tokens = x.len().checked_div(channels).unwrap_or(0);
        let state = state.get_mut(self.mixer.window_len()..).and_then(|state| state.get_mut(..self.mixer.matrix_len()));
        let (Some(state), Some(write), Some(read)) = (state, made.get(write_at..), made.get(read_at..)) else {
            return;
        };
        let tiles = if compute.workers.count() > 1 { 1 } else { channels.div_ceil(TILE) };
        let scan = Scan {
            shared,
            rates: self.vector(Role::SsmA),
            bias: self.vector(Role::SsmDtBias),
            skip: self.vector(Role::SsmD),
            first: 0,
            channels,
            states,
            steps,
            input: x,
            write,
            read,
            stride: self.made,
        };
        fork_pairs(
            compute.workers,
            (state, tiles * states * TILE),
            (out, tiles * tokens * TILE),
            tokens.saturating_mul(8 * self.mixer.matrix_len()),
            |i, state, out| {
                compute.kernels.recur(&Update::Scan(Scan { first: i * tiles * TILE, ..scan }), state, out);
            },
        );
        for (tile, out) in rows(out, tokens * TILE).enumerate() {
            for (x, out) in rows_mut(x, channels).zip(rows(out, TILE)) {
                copy(x.get_mut(tile * TILE..).unwrap_or_default(), out);
            }
        }
    }
}
