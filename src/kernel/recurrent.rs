//! Layers with a state of fixed size: a causal convolution over the last few positions, and a matrix per head that
//! every token updates. They are defined once over [`Isa`](super::lanes::Isa). A lane is a channel or a column, and
//! nothing is summed across lanes, so that the bits do not depend on how tokens are divided into passes.

use super::lanes::{Isa, Lanes, TILE, load, store};
use super::selective::{Scan, scan};
use super::wkv::{Wkv, wkv};
use crate::built;

/// The largest number of taps of a convolution.
pub(crate) const MAX_TAPS: usize = 8;

/// A causal convolution per channel: `y[t] = bias + sum over j < taps of weight[j] * x[t - taps + 1 + j]`, oldest
/// position first.
#[derive(Clone, Copy)]
pub struct CausalConvolution<'a> {
    /// `[channels][taps]`, little-endian f32.
    pub weight: &'a [u8],
    /// `[channels]`, little-endian f32; empty for none.
    pub bias: &'a [u8],
    pub channels: usize,
    /// Number of positions that are summed, including the token's own position; at most [`MAX_TAPS`].
    pub taps: usize,
    /// True if SiLU is applied to the sum.
    pub silu: bool,
}

/// Convolves the first `channels` elements of every `stride` elements of `x`, in place; the last token may have fewer
/// than `stride`. `state` is `[taps - 1][channels]`, oldest first. On entry it has the inputs before the first token,
/// on return the inputs before the next token.
#[inline(always)]
pub(super) fn convolve<S: Isa>(s: S, job: &CausalConvolution<'_>, x: &mut [f32], stride: usize, state: &mut [f32]) {
    match job.taps {
        3 => convolve_taps::<S, 3>(s, job, x, stride, state),
        4 => convolve_taps::<S, 4>(s, job, x, stride, state),
        _ => convolve_taps::<S, MAX_TAPS>(s, job, x, stride, state),
    }
}

/// Does the same as [`convolve`], for at most `N` taps. The common numbers of taps are compile-time constants, so that
/// weights and window are in registers.
#[inline(always)]
fn convolve_taps<S: Isa, const N: usize>(
    s: S,
    job: &CausalConvolution<'_>,
    x: &mut [f32],
    stride: usize,
    state: &mut [f32],
) {
    let CausalConvolution { channels, taps, .. } = *job;
    let taps = if N < MAX_TAPS { N } else { taps };
    let past = taps.saturating_sub(1);
    if taps == 0 || taps > N || stride < channels || state.len() < past * channels {
        return;
    }
    for c in (0..channels).step_by(16) {
        let mut weights = [[0.0f32; 16]; N];
        let mut bias = [0.0f32; 16];
        let of_channels = job.weight.get(4 * c * taps..).unwrap_or_default().chunks_exact(4 * taps);
        for (lane, of_channel) in of_channels.take(16).enumerate() {
            for (weights, weight) in weights.iter_mut().zip(of_channel.as_chunks().0) {
                if let Some(to) = weights.get_mut(lane) {
                    *to = f32::from_le_bytes(*weight);
                }
            }
        }
        let biases = job.bias.get(4 * c..).unwrap_or_default().as_chunks().0;
        bias.iter_mut().zip(biases).for_each(|(to, bias)| *to = f32::from_le_bytes(*bias));
        let weights = weights.map(|weights| s.load(&weights));
        let bias = s.load(&bias);
        let mut window = [s.zero(); N];
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

/// A head's state `S` is a matrix of `keys` rows and `width` columns. Each token updates it: `S = decay S`, then `S +=
/// key (outer) new`, then `out = query S`. The field `delta` defines `new`.
#[derive(Clone, Copy)]
pub struct Recurrence<'a> {
    /// The keys of all tokens. The keys, queries and values of token `t` begin at index `t * stride` of their slices.
    pub key: &'a [f32],
    pub query: &'a [f32],
    pub value: &'a [f32],
    pub stride: usize,
    pub keys: usize,
    pub width: usize,
    /// The decay of each token, `gate_stride` apart.
    pub decay: &'a [f32],
    /// The factor on `new` of each token, `gate_stride` apart.
    pub factor: &'a [f32],
    pub gate_stride: usize,
    /// True for the delta rule, `new = factor * (value - key S)`, which replaces the state's value for this key ([gated
    /// delta nets](https://arxiv.org/abs/2412.06464)). False for `new = factor * value` (Mamba-2).
    pub delta: bool,
}

/// Updates `state` with all tokens of `out`, which is `[tokens][width]`. The state is stored in tiles of 16 columns,
/// each `[keys][16]`, so that memory is read in order of address.
///
/// Sums over keys are chains of fused multiply-adds in key order.
#[inline(always)]
fn recur<S: Isa>(s: S, job: &Recurrence<'_>, state: &mut [f32], out: &mut [f32]) {
    if job.width == 0 || out.len() < job.width {
        return; // without a token the state does not change
    }
    let columns = (0..job.width).step_by(TILE);
    for (tile, column) in state.as_chunks_mut().0.chunks_exact_mut(job.keys.max(1)).zip(columns) {
        if job.delta {
            recur_tile::<S, true>(s, job, tile, column, out);
        } else {
            recur_tile::<S, false>(s, job, tile, column, out);
        }
    }
}

/// Updates one tile of a recurrent state `S` with all tokens, while the tile is in the first-level cache. With the
/// delta rule (`DELTA`), the loop that writes the state after one token also computes `key S` for the next token
/// (`held`). The tile is therefore read once per token, and once before the first token.
#[inline(always)]
fn recur_tile<S: Isa, const DELTA: bool>(
    s: S,
    job: &Recurrence<'_>,
    tile: &mut [[f32; TILE]],
    column: usize,
    out: &mut [f32],
) {
    let Recurrence { keys, width, .. } = *job;
    let key = |t: usize| job.key.get(t * job.stride..t * job.stride + keys);
    let decay = |t: usize| job.decay.get(t * job.gate_stride).map(|decay| s.splat(*decay));
    let mut held = s.zero();
    if DELTA {
        let (Some(key), Some(decay)) = (key(0), decay(0)) else { return };
        for (row, key) in tile.iter_mut().zip(key) {
            // Each row of this tile prefetches the same row of the next tile, which is probably not in the cache yet.
            s.prefetch(row.as_ptr().wrapping_add(keys * TILE).cast());
            let decayed = s.load(row).mul(decay);
            held = decayed.fma(s.splat(*key), held);
            decayed.store(row);
        }
    }
    let tokens = out.len().checked_div(width).unwrap_or(0);
    for (t, out) in out.chunks_exact_mut(width).enumerate() {
        let at = t * job.stride;
        let (Some(now), Some(query), Some(value), Some(decayed), Some(&factor)) = (
            key(t),
            job.query.get(at..at + keys),
            job.value.get(at..at + width),
            decay(t),
            job.factor.get(t * job.gate_stride),
        ) else {
            return;
        };
        // No key follows after the last token. Then a decay of 1 leaves the state unchanged.
        let next = if t + 1 < tokens { key(t + 1).zip(decay(t + 1)) } else { Some((now, s.splat(1.0))) };
        let Some((next, decay_next)) = next else { return };
        let new = load(s, value, column);
        let new = if DELTA { new.sub(held) } else { new }.mul(s.splat(factor));
        let mut sum = s.zero();
        held = s.zero();
        for (((row, key), query), next) in tile.iter_mut().zip(now).zip(query).zip(next) {
            let before = s.load(row);
            let before = if DELTA { before } else { before.mul(decayed) };
            let mut after = new.fma(s.splat(*key), before);
            sum = after.fma(s.splat(*query), sum);
            if DELTA {
                after = after.mul(decay_next);
                held = after.fma(s.splat(*next), held);
            }
            after.store(row);
        }
        store(sum, out, column);
    }
}

/// The kinds of update with which consecutive tokens change a layer's recurrent state.
pub enum Update<'a> {
    /// Mamba-2 and delta nets: the state of a head.
    Matrix(Recurrence<'a>),
    /// Mamba-1: the states of some channels.
    Scan(Scan<'a>),
    /// RWKV: the state of a head.
    Wkv(Wkv<'a>),
}

/// Updates `state` with all tokens of `out`.
#[inline(always)]
pub(super) fn update<S: Isa>(s: S, job: &Update<'_>, state: &mut [f32], out: &mut [f32]) {
    match job {
        Update::Matrix(job) if built::RECURRENCE => recur(s, job, state, out),
        Update::Scan(job) if built::SELECTIVE => scan(s, job, state, out),
        Update::Wkv(job) if built::WKV => wkv(s, job, state, out),
        _ => {}
    }
}
