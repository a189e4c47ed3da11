//! Kimi delta attention ([Kimi Linear](https://arxiv.org/abs/2510.26692)): a gated delta net with a decay for each element
//! of a key.
//!
//! A token's row holds queries, keys, values, decays, gates, removal keys and replacement keys of all heads, and a factor
//! for each head. In each layer, the state of a context contains the previous inputs of the three convolutions, each
//! `[taps - 1][all heads]`, and the matrices of the heads in tiles of sixteen columns, `[tiles][keys][16]`.

use super::compute::Compute;
use super::recurrent::{advance_heads, softplus, state_of};
use super::{Forward, enter, leave, rows_mut, scale};
use crate::engine::profile::Section;
use crate::kernel::{Activation, CausalConvolution, Kernels, Update, Wkv, fork_chunks};
use crate::model::{Layer, Recurrent, Role, Weights};
use crate::quant::le_f32;

/// Queries and keys are divided by their length, the root of the sum of their squares. This number is added to the sum
/// before the root is taken.
const LENGTH_EPS: f32 = 1e-6;

/// For queries, keys and values, the role of the projection and the role of the convolution after it.
#[cfg(feature = "mla")]
const CHANNELS: [(Role, Role); 3] =
    [(Role::AttnQ, Role::SsmConvQ), (Role::AttnK, Role::SsmConvK), (Role::AttnV, Role::SsmConvV)];
#[cfg(not(feature = "mla"))]
const CHANNELS: [(Role, Role); 3] = [(Role::AttnQ, Role::AttnQ); 3];

/// Roles of the matrices that project decays and gates. A projection has either one matrix or a low-rank product of
/// two, to which the two roles of a pair belong.
#[cfg(feature = "mla")]
const LOW: [(Role, Role); 2] = [(Role::SsmFA, Role::SsmFB), (Role::SsmGA, Role::SsmGB)];
#[cfg(not(feature = "mla"))]
const LOW: [(Role, Role); 2] = [(Role::AttnQ, Role::AttnQ); 2];

impl Forward<'_, '_> {
    /// Runs a layer of Kimi delta attention: `x += output(gate * norm(heads(norm(x))))`. Also advances the recurrent
    /// states over the rows.
    #[inline(never)] // keeps its temporaries off the stack of other layers
    pub(super) fn kimi_delta(&mut self, layer: &Layer, mixer: &Recurrent) {
        let Self { spec, weights, compute, hidden, branch, inner, rows: count, .. } = self;
        let (index, dim, count) = (layer.index, spec.dim, *count);
        let width = mixer.inner();
        let layer = Delta { weights, mixer, index, width, stride: 7 * width + mixer.heads };
        let (Some(hidden), Some(branch)) = (hidden.get_mut(..count * dim), branch.get_mut(..count * dim)) else {
            return;
        };
        let Some((x, rest)) = inner.split_at_mut_checked(count * layer.stride) else { return };
        let Some((out, low)) = rest.split_at_mut_checked(count * width) else { return };

        enter(compute, spec, weights, (Role::AttnNorm, Role::AttnNormBias, index), hidden, branch);
        layer.project(compute, (branch, count), x, low);
        compute.done(Section::Qkv);
        let segments = self.segments.get(..self.parts).unwrap_or_default();
        let mut first = 0;
        for segment in segments {
            let tokens = segment.tokens as usize;
            let Some(state) = state_of((self.kv, &self.pools, &self.store), spec, index, segment) else { return };
            if segment.position == 0 {
                state.fill(0.0);
            }
            let Some(x) = x.get_mut(first * layer.stride..(first + tokens) * layer.stride) else { return };
            layer.convolve(compute.kernels, state, x);
            layer.prepare(compute, x);
            let Some(out) = out.get_mut(first * width..(first + tokens) * width) else { return };
            layer.advance(compute, state, x, out);
            layer.combine(compute.kernels, spec.norm_eps, x, out, tokens);
            first += tokens;
        }
        for (out, x) in rows_mut(out, width).zip(rows_mut(x, layer.stride)) {
            super::copy(out, x.get(4 * width..).unwrap_or(&[]));
        }
        compute.done(Section::Attention);
        if let Some(w) = weights.matrix(Role::AttnOutput, index) {
            compute.times((out, count), w, branch, dim);
            compute.done(Section::Output);
            leave(compute, spec, weights, (Role::PostAttentionNorm, index), branch, hidden);
        }
    }
}

/// Kimi delta attention in a layer.
struct Delta<'a> {
    weights: &'a Weights<'a, 'a>,
    mixer: &'a Recurrent,
    index: usize,
    /// Elements of all heads.
    width: usize,
    /// Elements of a row.
    stride: usize,
}

impl Delta<'_> {
    /// Multiplies the rows of `count` tokens, `input`, with the matrices of all projections.
    fn project(&self, compute: &mut Compute<'_, '_>, input: (&[f32], usize), x: &mut [f32], low: &mut [f32]) {
        let (width, count) = (self.width, input.1);
        let matrix = |role| self.weights.matrix(role, self.index);
        let [q, k, v] = CHANNELS.map(|(role, _)| matrix(role));
        let [decay, gate] = LOW.map(|(role, _)| matrix(role));
        let [low_decay, low_gate] = LOW.map(|(_, role)| matrix(role));
        // A product of low rank has a second matrix.
        let whole = |w, second: &Option<_>| if second.is_some() { None } else { w };
        let products = [
            (q, 0),
            (k, width),
            (v, 2 * width),
            (whole(decay, &low_decay), 3 * width),
            (whole(gate, &low_gate), 4 * width),
            (matrix(Role::SsmBeta), 7 * width),
        ];
        compute.times_each(input, &products, x, self.stride);
        for ((down, up), at) in [(decay, low_decay), (gate, low_gate)].into_iter().zip([3 * width, 4 * width]) {
            let (Some(down), Some(up)) = (down, up) else { continue };
            let rank = down.rows();
            let (Some(low), Some(x)) = (low.get_mut(..count * rank), x.get_mut(at..)) else { return };
            compute.times(input, down, low, rank);
            compute.times((low, count), up, x, self.stride);
        }
    }

    /// Convolves queries, keys and values of a context's rows.
    fn convolve(&self, kernels: &Kernels, state: &mut [f32], x: &mut [f32]) {
        let past = self.mixer.taps.saturating_sub(1) * self.width;
        for (((_, role), window), at) in CHANNELS.into_iter().zip(rows_mut(state, past)).zip([0, 1, 2]) {
            let weight = self.weights.vector(role, self.index);
            let convolution =
                CausalConvolution { weight, bias: &[], channels: self.width, taps: self.mixer.taps, silu: true };
            if let Some(channels) = x.get_mut(at * self.width..) {
                kernels.convolve(&convolution, channels, self.stride, window);
            }
        }
    }

    /// Computes decays, factors, removal keys and replacement keys; scales queries and keys to length 1, and then
    /// queries by `1 / sqrt(keys)`.
    fn prepare(&self, compute: &Compute<'_, '_>, x: &mut [f32]) {
        let Recurrent { keys, floor, .. } = *self.mixer;
        let (width, n) = (self.width, keys as f32);
        let (a, bias) = (self.weights.vector(Role::SsmA, self.index), self.weights.vector(Role::SsmDtBias, self.index));
        let work = x.len().saturating_mul(10);
        fork_chunks(compute.workers, x, self.stride, work, &mut [(); 0], 0, &|_, row, _| {
            let mut rest = row;
            let mut take = || {
                let (piece, after) = core::mem::take(&mut rest).split_at_mut_checked(width).unwrap_or_default();
                rest = after;
                piece
            };
            let [query, key, _, decay, _, removal, replace] = core::array::from_fn(|_| take());
            for (head, decay) in rows_mut(decay, keys).enumerate() {
                let a = le_f32(a, head);
                for (i, decay) in decay.iter_mut().enumerate() {
                    let step = *decay + le_f32(bias, head * keys + i);
                    let log = if floor < 0.0 { floor / (1.0 + libm::expf(-a * step)) } else { a * softplus(step) };
                    *decay = libm::expf(log);
                }
            }
            for (all, factor) in [(&mut *query, 1.0 / n), (&mut *key, 1.0 / libm::sqrtf(n))] {
                for head in rows_mut(all, keys) {
                    // The epsilon is divided by `n`, because the model adds it to the sum of squares, but `rms_norm`
                    // adds it to the mean of squares.
                    compute.kernels.rms_norm(head, &[], LENGTH_EPS / n);
                    scale(head, factor);
                }
            }
            let factors = rest;
            let heads = rows_mut(removal, keys).zip(rows_mut(replace, keys)).zip(rows_mut(key, keys));
            for (((removal, replace), (key, decay)), factor) in
                heads.zip(rows_mut(decay, keys)).map(|((both, key), decay)| (both, (key, decay))).zip(factors)
            {
                let factor = 1.0 / (1.0 + libm::expf(-*factor));
                removal.iter_mut().zip(&*key).zip(decay).for_each(|((to, key), decay)| *to = key * *decay);
                replace.iter_mut().zip(key).for_each(|(to, key)| *to = *key * factor);
            }
        });
    }

    /// Advances the state of a context by the tokens in `x`, and writes the outputs to `out`, `[heads][tokens][width]`.
    fn advance(&self, compute: &Compute<'_, '_>, state: &mut [f32], x: &[f32], out: &mut [f32]) {
        let Recurrent { keys, width, .. } = *self.mixer;
        let tokens = x.len().checked_div(self.stride).unwrap_or(0);
        advance_heads(compute, self.mixer, (state, out), (tokens, 8), |head| {
            let [query, value, decay, removal, replace] =
                [0, 2, 3, 5, 6].map(|piece| x.get(piece * self.width + head * keys..).unwrap_or(&[]));
            let (key, bonus, stride) = (replace, &[][..], self.stride);
            // The removal key is already multiplied by the decay, because the value to remove is read from the decayed
            // state.
            Update::Wkv(Wkv { query, decay, key, value, removal, replace, bonus, stride, keys, width })
        });
    }

    /// Multiplies the normed output of each head by the sigmoid of the head's gate, and stores the result in place of
    /// the gate.
    fn combine(&self, kernels: &Kernels, eps: f32, x: &mut [f32], out: &mut [f32], tokens: usize) {
        let (weight, width) = (self.weights.vector(Role::SsmNorm, self.index), self.mixer.width);
        for (t, row) in rows_mut(x, self.stride).enumerate() {
            let Some(gates) = row.get_mut(4 * self.width..5 * self.width) else { return };
            for (head, gate) in rows_mut(gates, width).enumerate() {
                let at = (head * tokens + t) * width;
                let Some(made) = out.get_mut(at..at + width) else { return };
                kernels.rms_norm(made, weight, eps);
                kernels.activate(Activation::Sigmoid, gate, Some(made));
            }
        }
    }
}
