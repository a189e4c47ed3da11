//! Layers that remember a state of fixed size: a causal convolution over the last few positions, and a matrix for each
//! head that every token updates. Stated once over [`Isa`](super::lanes::Isa); channels and columns are lanes, so nothing is added
//! across, and any way of splitting tokens into passes gives the same bits.

use super::lanes::{Isa, Lanes, load, store};
use crate::quant::le_f32;

/// The most positions that a convolution sees.
pub(crate) const MAX_TAPS: usize = 8;

/// A causal convolution, each channel by itself: `y[t] = bias + sum over j < taps of weight[j] * x[t - taps + 1 + j]`,
/// oldest first.
#[derive(Clone, Copy)]
pub(crate) struct Convolution<'a> {
    /// `[channels][taps]`, little-endian f32.
    pub weight: &'a [u8],
    /// `[channels]`, little-endian f32; empty for none.
    pub bias: &'a [u8],
    pub channels: usize,
    /// Positions that it sees, the token's own included; at most [`MAX_TAPS`].
    pub taps: usize,
    /// Whether the sum goes through SiLU.
    pub silu: bool,
}

/// Convolves the first `channels` elements of each `stride` of `x` in place; the last one may be shorter. `state` is `[taps - 1][channels]`: what
/// came before, oldest first, and afterwards what the next token will see.
#[inline(always)]
pub(super) fn convolve<S: Isa>(s: S, job: &Convolution<'_>, x: &mut [f32], stride: usize, state: &mut [f32]) {
    let Convolution { channels, taps, .. } = *job;
    let past = taps.saturating_sub(1);
    if taps == 0 || taps > MAX_TAPS || stride < channels || state.len() < past * channels {
        return;
    }
    for c in (0..channels).step_by(16) {
        let mut weights = [[0.0f32; 16]; MAX_TAPS];
        let mut bias = [0.0f32; 16];
        for lane in 0..16.min(channels - c) {
            for (j, weights) in weights.iter_mut().enumerate().take(taps) {
                weights[lane] = le_f32(job.weight, (c + lane) * taps + j);
            }
            bias[lane] = le_f32(job.bias, c + lane);
        }
        let weights = weights.map(|weights| s.load(&weights));
        let bias = s.load(&bias);
        let mut window = [s.zero(); MAX_TAPS];
        for (before, row) in window.iter_mut().zip(state.chunks_exact(channels)).take(past) {
            *before = load(s, row, c);
        }
        for row in x.chunks_mut(stride) {
            let Some(row) = row.get_mut(..channels) else { break };
            if let Some(newest) = window.get_mut(past) {
                *newest = load(s, row, c);
            }
            let mut sum = bias;
            for (x, weight) in window.iter().zip(&weights).take(taps) {
                sum = x.fma(*weight, sum);
            }
            store(if job.silu { super::float::silu(s, sum) } else { sum }, row, c);
            window.copy_within(1.., 0);
        }
        for (before, row) in window.iter().zip(state.chunks_exact_mut(channels)).take(past) {
            store(*before, row, c);
        }
    }
}

/// How a head's state `S`, a matrix of `keys` rows and `width` columns, goes on with each token:
/// `S = decay S`, `S += key (outer) new`, `out = query S`.
#[derive(Clone, Copy)]
pub(crate) struct Recurrence<'a> {
    /// Key, query and value of token `t` begin at `t * stride`.
    pub key: &'a [f32],
    pub query: &'a [f32],
    pub value: &'a [f32],
    pub stride: usize,
    pub keys: usize,
    pub width: usize,
    /// For each token, `gate_stride` apart, the decay.
    pub decay: &'a [f32],
    /// For each token, as far apart, the factor on what is written.
    pub factor: &'a [f32],
    pub gate_stride: usize,
    /// What is written: `factor * value` (Mamba-2), or, by the delta rule, `factor * (value - key S)`, which replaces
    /// what the state holds under this key ([gated delta nets](https://arxiv.org/abs/2412.06464)).
    pub delta: bool,
}

/// Takes `state`, `[keys][width]`, through all tokens of `out`, `[tokens][width]`.
///
/// Sums over keys are chains of fused multiply-adds in their order.
#[inline(always)]
pub(super) fn recur<S: Isa>(s: S, job: &Recurrence<'_>, state: &mut [f32], out: &mut [f32]) {
    let Recurrence { keys, width, .. } = *job;
    if width == 0 || state.len() < keys * width {
        return;
    }
    // Sixteen columns go through all tokens while they are in the first cache.
    for column in (0..width).step_by(16) {
        for (t, out) in out.chunks_exact_mut(width).enumerate() {
            let at = t * job.stride;
            let (Some(key), Some(query), Some(value), Some(&decay), Some(&factor)) = (
                job.key.get(at..at + keys),
                job.query.get(at..at + keys),
                job.value.get(at..at + width),
                job.decay.get(t * job.gate_stride),
                job.factor.get(t * job.gate_stride),
            ) else {
                return;
            };
            let (decay, factor) = (s.splat(decay), s.splat(factor));
            let mut new = load(s, value, column);
            if job.delta {
                let mut held = s.zero();
                for (row, key) in state.chunks_exact_mut(width).zip(key) {
                    let decayed = load(s, row, column).mul(decay);
                    held = decayed.fma(s.splat(*key), held);
                    store(decayed, row, column);
                }
                new = new.sub(held);
            }
            let new = new.mul(factor);
            let mut sum = s.zero();
            for ((row, key), query) in state.chunks_exact_mut(width).zip(key).zip(query) {
                let row_before = load(s, row, column);
                let row_before = if job.delta { row_before } else { row_before.mul(decay) };
                let row_after = new.fma(s.splat(*key), row_before);
                sum = row_after.fma(s.splat(*query), sum);
                store(row_after, row, column);
            }
            store(sum, out, column);
        }
    }
}
