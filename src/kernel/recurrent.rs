//! Layers that remember a state of fixed size: a causal convolution over the last few positions, and a matrix for each
//! head that every token updates. Stated once over [`Isa`](super::lanes::Isa); channels and columns are lanes, so nothing is added
//! across, and any way of splitting tokens into passes gives the same bits.

use super::lanes::{Isa, Lanes, load, store};

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
    match job.taps {
        3 => convolve_taps::<S, 3>(s, job, x, stride, state),
        4 => convolve_taps::<S, 4>(s, job, x, stride, state),
        _ => convolve_taps::<S, MAX_TAPS>(s, job, x, stride, state),
    }
}

/// The same for at most `N` taps: what a model has by far most often is known to the compiler, and lies in registers.
#[inline(always)]
fn convolve_taps<S: Isa, const N: usize>(s: S, job: &Convolution<'_>, x: &mut [f32], stride: usize, state: &mut [f32]) {
    let Convolution { channels, taps, .. } = *job;
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

/// Columns of a head's state that lie together.
pub(crate) const TILE: usize = 16;

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

/// Takes `state` through all tokens of `out`, `[tokens][width]`. The state lies in tiles of sixteen columns, each
/// `[keys][16]`: memory is gone through in the order of its addresses.
///
/// Sums over keys are chains of fused multiply-adds in their order.
#[inline(always)]
pub(super) fn recur<S: Isa>(s: S, job: &Recurrence<'_>, state: &mut [f32], out: &mut [f32]) {
    if job.width == 0 || out.len() < job.width {
        return; // no token: the state stays as it is
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

/// One tile through all tokens, while it is in the first cache. By the delta rule (`DELTA`), what the state holds under a
/// token's key is added up while it is written by the token before: the tile is gone through once for each token, and once
/// before the first.
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
            // The next tile comes from memory, for all that is known.
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
        // Nothing comes after the last token, and what is written stays as it is.
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
