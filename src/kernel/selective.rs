//! The selective scan of [Mamba](https://arxiv.org/abs/2312.00752): every channel has a few states. Their decay depends
//! on a step, which each token sets anew. A lane is a channel, and nothing is summed across lanes.

use super::float::{floats, softplus};
use super::lanes::{Isa, Lanes, TILE, load};
use crate::quant::le_f32;

/// One token updates every channel as follows: `step = softplus(steps + bias)`. Then, for each state, `h = exp(step *
/// rate) h + step * input * write`. The output is `skip * input + sum of read * h`, over the states in order.
#[derive(Clone, Copy)]
pub struct Scan<'a> {
    /// Number of neighbouring channels that have the same step, bias, skip factor and rate of decay. Such a rate
    /// applies to all states of these channels. 1 if every channel has its own values; then each state has its own
    /// rate.
    pub shared: usize,
    /// Decay rates of the states, as little-endian f32, all negative: `[channels][states]`, or one rate for each group
    /// of `shared` channels.
    pub rates: &'a [u8],
    /// Biases, as little-endian f32, one for each group of `shared` channels.
    pub bias: &'a [u8],
    /// Skip factors, as little-endian f32, one for each group of `shared` channels.
    pub skip: &'a [u8],
    /// Index of the channel at which the first tile of the state begins.
    pub first: usize,
    pub channels: usize,
    pub states: usize,
    /// The step of the scan for each token and group of channels, `[tokens][groups]`.
    pub steps: &'a [f32],
    /// `[tokens][channels]`.
    pub input: &'a [f32],
    /// The factors by which each state is written and read: for each token, `states` factors of each kind. From token
    /// to token there are `stride` floats.
    pub write: &'a [f32],
    pub read: &'a [f32],
    pub stride: usize,
}

/// Updates `state` with all tokens of `out`, which is `[tiles][tokens][16]`. The state is stored in tiles of 16
/// channels, each `[states][16]`.
#[inline(always)]
pub(super) fn scan<S: Isa>(s: S, job: &Scan<'_>, state: &mut [f32], out: &mut [f32]) {
    let tiles = state.as_chunks_mut().0.chunks_exact_mut(job.states.max(1));
    let tokens = out.len().checked_div(tiles.len() * TILE).unwrap_or(0);
    let channels = (job.first..).step_by(TILE);
    // The order of these iterators matters. If two chunk iterators are zipped directly, `Zip` divides by their chunk
    // sizes, and the compiler keeps the code for the panic of a division by zero.
    for ((tile, channel), out) in tiles.zip(channels).zip(out.as_chunks_mut().0.chunks_exact_mut(tokens.max(1))) {
        scan_tile(s, job, tile, channel, out);
    }
}

/// Updates one tile of a recurrent state with all tokens, sixteen states per channel at a time. Their decay rates are
/// transposed first, so that each channel has a lane.
#[inline(always)]
fn scan_tile<S: Isa>(s: S, job: &Scan<'_>, tile: &mut [[f32; TILE]], channel: usize, out: &mut [[f32; TILE]]) {
    let Scan { channels, states, stride, .. } = *job;
    let bias = of_groups(s, job, channel, |i| floats(s, job.bias, i), |group| le_f32(job.bias, group));
    let skip = of_groups(s, job, channel, |i| floats(s, job.skip, i), |group| le_f32(job.skip, group));
    let groups = channels.div_ceil(job.shared.max(1));
    for (first, tile) in (0..states).step_by(TILE).zip(tile.chunks_mut(TILE)) {
        let rates = columns(job, channel, first);
        for (t, out) in out.iter_mut().enumerate() {
            let (at, gates) = (t * channels, t * stride + first);
            let (Some(steps), Some(input), Some(write), Some(read)) = (
                job.steps.get(t * groups..(t + 1) * groups),
                job.input.get(at..at + channels),
                job.write.get(gates..),
                job.read.get(gates..),
            ) else {
                return;
            };
            let input = load(s, input, channel);
            let step = |group: usize| steps.get(group).copied().unwrap_or(0.0);
            let step = of_groups(s, job, channel, |i| load(s, steps, i), step);
            let step = softplus(s, step.add(bias));
            let new = step.mul(input);
            let mut sum = if first == 0 { skip.mul(input) } else { s.load(out) };
            for (((row, rate), write), read) in tile.iter_mut().zip(&rates).zip(write).zip(read) {
                let decay = s.exp(step.mul(s.load(rate)));
                let after = new.fma(s.splat(*write), s.load(row).mul(decay));
                sum = after.fma(s.splat(*read), sum);
                after.store(row);
            }
            sum.store(out);
        }
    }
}

/// Returns the values of the sixteen channels from channel `i` on. If every channel has its own value, these are
/// `own(i)`, otherwise `group(g)` for the group `g` of each channel.
#[inline(always)]
fn of_groups<S: Isa>(
    s: S,
    job: &Scan<'_>,
    i: usize,
    own: impl Fn(usize) -> S::V,
    group: impl Fn(usize) -> f32,
) -> S::V {
    if job.shared <= 1 {
        return own(i);
    }
    let mut lanes = [0.0; TILE];
    for (lane, c) in lanes.iter_mut().zip(i..job.channels) {
        *lane = group(c / job.shared);
    }
    s.load(&lanes)
}

/// Loads decay rates of the recurrent state: a row for each of the sixteen states from `first` on, a lane for each of
/// the sixteen channels from `channel` on. Lanes past the last channel are zeros. Rows past the last state are zeros
/// too; but if channels share rates, all sixteen rows repeat the channel's only rate.
#[inline(always)]
fn columns(job: &Scan<'_>, channel: usize, first: usize) -> [[f32; TILE]; TILE] {
    let mut rows = [[0.0f32; TILE]; TILE];
    for (row, c) in rows.iter_mut().zip(channel..job.channels) {
        if job.shared > 1 {
            *row = [le_f32(job.rates, c / job.shared); TILE];
            continue;
        }
        let of_channel = job.rates.get(4 * (c * job.states + first)..4 * (c + 1) * job.states).unwrap_or_default();
        for (to, rate) in row.iter_mut().zip(of_channel.as_chunks().0) {
            *to = f32::from_le_bytes(*rate);
        }
    }
    let mut columns = [[0.0f32; TILE]; TILE];
    for (i, column) in columns.iter_mut().enumerate() {
        for (to, row) in column.iter_mut().zip(&rows) {
            *to = row[i];
        }
    }
    columns
}
