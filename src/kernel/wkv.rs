//! The state of [RWKV](https://arxiv.org/abs/2503.14456): a matrix per head, with a row per element of a key and a
//! decay per row. A lane is a column, and nothing is summed across lanes.

use super::lanes::{Isa, Lanes, TILE, load, store};

/// The update of a head's state `S` by each token. All vectors have `keys` elements, except `value`.
///
/// - RWKV-6: `out = query (S + bonus key (outer) value)`, then `S = decay S + key (outer) value`.
/// - RWKV-7: `S = decay S + key (outer) value - replace (outer) (removal S)`, then `out = query S`.
///
/// `decay` and `bonus` multiply each row by its own factor.
#[derive(Clone, Copy)]
pub struct Wkv<'a> {
    /// The vectors of token `t` begin at `t * stride`.
    pub query: &'a [f32],
    pub decay: &'a [f32],
    pub key: &'a [f32],
    pub value: &'a [f32],
    /// Removal keys (each has length 1) and replacement keys. For each token, the value that the state holds for the
    /// removal key is read, and is subtracted from the state under the replacement key. RWKV-6 has no such keys: both
    /// slices are empty.
    pub removal: &'a [f32],
    pub replace: &'a [f32],
    /// The factors on a token's own key in RWKV-6, `keys` little-endian f32; empty for RWKV-7.
    pub bonus: &'a [u8],
    pub stride: usize,
    pub keys: usize,
    pub width: usize,
}

impl<'a> Wkv<'a> {
    /// Returns the `len` elements that belong to token `t`, from one of the slices of this struct.
    #[inline(always)]
    fn of(&self, all: &'a [f32], t: usize, len: usize) -> Option<&'a [f32]> {
        all.get(t * self.stride..t * self.stride + len)
    }
}

/// Updates `state` with all tokens of `out`, which is `[tokens][width]`. The state is stored in tiles of 16 columns,
/// each `[keys][16]`. Sums over keys are chains of fused multiply-adds in key order.
#[inline(always)]
pub(super) fn wkv<S: Isa>(s: S, job: &Wkv<'_>, state: &mut [f32], out: &mut [f32]) {
    if job.width == 0 || out.len() < job.width {
        return; // without a token the state does not change
    }
    let columns = (0..job.width).step_by(TILE);
    for (tile, column) in state.as_chunks_mut().0.chunks_exact_mut(job.keys.max(1)).zip(columns) {
        if job.bonus.is_empty() {
            wkv_tile(s, job, tile, column, out);
        } else {
            own_tile(s, job, tile, column, out);
        }
    }
}

/// Updates one tile of RWKV-6 with all tokens.
#[inline(always)]
fn own_tile<S: Isa>(s: S, job: &Wkv<'_>, tile: &mut [[f32; TILE]], column: usize, out: &mut [f32]) {
    let Wkv { keys, width, .. } = *job;
    for (t, out) in out.chunks_exact_mut(width.max(1)).enumerate() {
        let (Some(query), Some(decay), Some(key), Some(value)) = (
            job.of(job.query, t, keys),
            job.of(job.decay, t, keys),
            job.of(job.key, t, keys),
            job.of(job.value, t, width),
        ) else {
            return;
        };
        let value = load(s, value, column);
        let mut sum = s.zero();
        for ((((row, query), decay), key), bonus) in
            tile.iter_mut().zip(query).zip(decay).zip(key).zip(job.bonus.as_chunks().0)
        {
            let (new, before) = (value.mul(s.splat(*key)), s.load(row));
            sum = new.fma(s.splat(f32::from_le_bytes(*bonus)), before).fma(s.splat(*query), sum);
            before.fma(s.splat(*decay), new).store(row);
        }
        store(sum, out, column);
    }
}

/// Updates one tile of RWKV-7 with all tokens. The loop that writes the state for one token also computes `removal S`
/// of the next token (`held`). The tile is therefore read once per token, and once before the first token.
#[inline(always)]
fn wkv_tile<S: Isa>(s: S, job: &Wkv<'_>, tile: &mut [[f32; TILE]], column: usize, out: &mut [f32]) {
    let Wkv { keys, width, .. } = *job;
    let mut held = s.zero();
    let Some(removal) = job.of(job.removal, 0, keys) else { return };
    for (row, removal) in tile.iter().zip(removal) {
        held = s.load(row).fma(s.splat(*removal), held);
    }
    let tokens = out.len().checked_div(width).unwrap_or(0);
    for (t, out) in out.chunks_exact_mut(width).enumerate() {
        let (Some(query), Some(decay), Some(key), Some(replace), Some(value), Some(next)) = (
            job.of(job.query, t, keys),
            job.of(job.decay, t, keys),
            job.of(job.key, t, keys),
            job.of(job.replace, t, keys),
            job.of(job.value, t, width),
            job.of(job.removal, if t + 1 < tokens { t + 1 } else { t }, keys),
        ) else {
            return;
        };
        let value = load(s, value, column);
        let removed = s.zero().sub(held);
        let mut sum = s.zero();
        held = s.zero();
        let rows = tile.iter_mut().zip(query).zip(decay).zip(key).zip(replace).zip(next);
        for (((((row, query), decay), key), replace), next) in rows {
            let after = s.load(row).mul(s.splat(*decay));
            let after = value.fma(s.splat(*key), after);
            let after = removed.fma(s.splat(*replace), after);
            sum = after.fma(s.splat(*query), sum);
            held = after.fma(s.splat(*next), held);
            after.store(row);
        }
        store(sum, out, column);
    }
}
