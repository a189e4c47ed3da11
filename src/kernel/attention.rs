//! Attention of some query rows over one KV head, stated once over [`Lanes`].
//!
//! Block after block of 64 positions (four tiles of the cache), in order of position:
//!
//! - score of a position = `scale` * one chain of fused multiply-adds over `head_dim` (for q8_0
//!   keys: a chain for each 32 dimensions, then one fma with the tile's scale), capped if so asked;
//! - online softmax: `m' = max(m, scores)`, `p = exp(score - m')`, `l = l * exp(m - m') + p`, tile by
//!   tile in 16 lanes, one for each position of a tile;
//! - `out = out * exp(m - m')`, then `out = fma(p * value scale, value, out)`, position by position.
//!
//! A bias, if there is one, is added to the score. The result is `out * (1 / sum(l))`. Only visible positions are
//! touched, so what else the cache holds has no influence, nor has the number of rows that are taken together.

use core::mem::MaybeUninit;

use super::float::capped;
use super::lanes::{Lanes, load, mask};
use crate::built;
use crate::memory::{HeadLayout, KvType, TILE};
use crate::quant::{le_f16, le_f32};

/// The query rows of one KV head: `tokens` at consecutive positions, each with `group` heads.
pub(crate) struct Attention<'a> {
    /// The head's tiles, one for each page.
    pub tiles: &'a [u8],
    /// The page of each tile of the context; shorter than the context, it is a ring.
    pub pages: &'a [u32],
    /// How a tile is laid out.
    pub layout: HeadLayout,
    /// Queries: head `g` of token `t` starts at `t * q_stride + g * head_dim`.
    pub q: &'a [f32],
    /// Distance between two tokens in `q`.
    pub q_stride: usize,
    /// Query heads that share this KV head.
    pub group: usize,
    /// Number of tokens.
    pub tokens: usize,
    /// Position of the first token.
    pub position: usize,
    /// A token sees itself and the `window - 1` positions before it.
    pub window: usize,
    /// A token sees as much after it as before it, up to so many positions in all.
    pub reach: Option<usize>,
    /// Factor on every score.
    pub scale: f32,
    /// Scores become `cap * tanh(score / cap)`.
    pub cap: Option<f32>,
    /// Added to every score.
    pub bias: Bias<'a>,
    /// A learned score of each of the group's heads, little-endian f32, that takes part in the softmax and has no
    /// value; empty for none.
    pub sinks: &'a [u8],
}

/// Numbers added to scores: for head `g`, token `t` and position `s`, that at `g * stride + start - t + s`.
#[derive(Clone, Copy)]
pub(crate) struct Bias<'a> {
    pub table: &'a [f32],
    pub stride: usize,
    pub start: usize,
}

impl Bias<'_> {
    /// No bias.
    pub const NONE: Self = Self { table: &[], stride: 0, start: 0 };

    #[inline(always)]
    fn is_none(&self) -> bool {
        !built::RELATIVE_POSITIONS || self.table.is_empty()
    }

    /// The numbers of 16 positions from `position` on.
    #[inline(always)]
    unsafe fn load<L: Lanes>(&self, head: usize, token: usize, position: usize) -> L {
        let row = (head * self.stride + self.start).saturating_sub(token);
        // SAFETY: the caller has the instruction set.
        unsafe { load(self.table, row + position) }
    }
}

/// Runs all rows of `job`; head `g` of token `t` goes to `out[t * out_stride + g * head_dim..]`.
/// `scratch` holds `L::ROWS` padded rows.
#[inline(always)]
pub(super) unsafe fn attend<L: Lanes>(job: &Attention<'_>, out: &mut [f32], out_stride: usize, scratch: &mut [f32]) {
    // SAFETY: the caller has the instruction set.
    unsafe {
        match job.layout.kind {
            kind if !kind.is_built() => {}
            KvType::F32 => attend_all::<L, F32>(job, out, out_stride, scratch),
            KvType::F16 => attend_all::<L, F16>(job, out, out_stride, scratch),
            KvType::Q8_0 => attend_all::<L, Q8>(job, out, out_stride, scratch),
        }
    }
}

/// Takes the rows in the largest groups that the registers allow.
#[inline(always)]
unsafe fn attend_all<L: Lanes, E: Element>(
    job: &Attention<'_>,
    out: &mut [f32],
    out_stride: usize,
    scratch: &mut [f32],
) {
    let rows = job.tokens * job.group;
    let mut row = 0;
    // SAFETY: the caller has the instruction set; `row + R <= rows`.
    unsafe {
        while row < rows {
            let left = if L::ROWS < rows - row { L::ROWS } else { rows - row };
            row += match left {
                8.. => attend_rows::<L, E, 8, 1>(job, row, out, out_stride, scratch),
                4.. => attend_rows::<L, E, 4, 1>(job, row, out, out_stride, scratch),
                3 => attend_rows::<L, E, 3, 1>(job, row, out, out_stride, scratch),
                2 => attend_rows::<L, E, 2, 2>(job, row, out, out_stride, scratch),
                _ if L::ROWS > 1 => attend_rows::<L, E, 1, 4>(job, row, out, out_stride, scratch),
                _ => attend_rows::<L, E, 1, 1>(job, row, out, out_stride, scratch),
            };
        }
    }
}

/// Runs `R` rows from `row` on. A fused multiply-add takes a few cycles and a sum is a chain of them: where
/// rows are few, `S` registers of each are summed at a time.
#[allow(clippy::needless_range_loop)] // several arrays run along with `r`
#[inline(always)]
unsafe fn attend_rows<L: Lanes, E: Element, const R: usize, const S: usize>(
    job: &Attention<'_>,
    row: usize,
    out: &mut [f32],
    out_stride: usize,
    scratch: &mut [f32],
) -> usize {
    let layout = job.layout;
    let (dim, width, tile_bytes) = (layout.dim, layout.padded(), layout.tile_bytes());
    let pages = job.tiles.len() / tile_bytes.max(1);
    let group = job.group.max(1);
    let Some(sums) = scratch.get_mut(..R * width) else { return R };
    sums.fill(0.0);
    if pages == 0 || job.pages.is_empty() {
        return R;
    }

    let mut together = [[0.0f32; NARROW]; R];
    let mut queries = [[].as_slice(); R];
    let mut visible = [Range { lo: 0, hi: 0 }; R];
    for (r, ((query, seen), copy)) in queries.iter_mut().zip(&mut visible).zip(&mut together).enumerate() {
        let (token, head) = ((row + r) / group, (row + r) % group);
        let start = token * job.q_stride + head * dim;
        let Some(q) = job.q.get(start..start + dim) else { return R };
        *query = q;
        // Tokens are a power of two apart, where they contend for the same lines of the nearest cache.
        if R > 1 && dim < NARROW {
            let Some(copy) = copy.get_mut(..dim) else { return R };
            copy.iter_mut().zip(q).for_each(|(to, q)| *to = *q);
            *query = copy;
        }
        let at = job.position + token;
        let hi = job.reach.map_or(at + 1, |all| all.min(at.saturating_add(job.window)));
        *seen = Range { lo: (at + 1).saturating_sub(job.window), hi };
        if seen.hi == 0 {
            return R; // nothing to see
        }
    }
    // Rows are in order of position, so the first sees the earliest and the last the latest.
    let (start, end) = (visible[0].lo, visible[R - 1].hi);
    let (first, last) = (start / BLOCK, (end - 1) / BLOCK);
    let at = |tile: usize| {
        let entry = tile.checked_rem(job.pages.len()).and_then(|entry| job.pages.get(entry));
        // An entry without a page has nothing that a row sees.
        let page = entry.map_or(0, |page| *page as usize).min(pages - 1);
        job.tiles.as_ptr().wrapping_add(page * tile_bytes)
    };
    // After the last tile of this head comes the first of the next, whose tiles follow.
    let (first_tile, distance) = (start / TILE, if R < 4 { TILES } else { 1 });
    let count = end.div_ceil(TILE) - first_tile;
    let later = |tile: usize| {
        let i = (tile + distance).saturating_sub(first_tile);
        let heads = i.checked_div(count).unwrap_or(0);
        at((tile + distance).wrapping_sub(heads * count)).wrapping_add(heads * job.tiles.len())
    };

    // SAFETY: the caller has the instruction set. Each of `tile` points to a whole tile of the head's,
    // in which the layout's offsets stay; each query has `dim` elements; `sums` has R rows; the weights
    // of all tiles that a row sees something of are written before they are read.
    unsafe {
        let mut best = [f32::NEG_INFINITY; R];
        let mut total = [L::zero(); R];
        if built::GPT_OSS && !job.sinks.is_empty() {
            for r in 0..R {
                best[r] = le_f32(job.sinks, (row + r) % group);
                total[r] = L::splat(1.0).select(1, L::zero());
            }
        }
        let cap = if built::CAPS { job.cap } else { None };
        let plain = cap.is_none() && job.bias.is_none();
        for block in first..=last {
            let tile: [Tile; TILES] = core::array::from_fn(|t| {
                let tile = block * TILES + t;
                Tile { at: at(tile), later: later(tile) }
            });
            let seen = visible.map(|seen| seen.part(block * BLOCK, BLOCK));
            let reach = Range { lo: seen[0].lo, hi: seen[R - 1].hi };

            // Scores, and the largest of each row.
            let mut weights = [const { MaybeUninit::<[f32; BLOCK]>::uninit() }; R];
            let mut top = [L::splat(f32::NEG_INFINITY); R];
            let at = weights.each_mut().map(|weights| weights.as_mut_ptr().cast::<f32>());
            let mut tiles = tile.get(reach.tiles()).unwrap_or(&[]);
            let mut t = reach.tiles().start;
            while let Some((&keys, rest)) = tiles.split_first() {
                let to = at.map(|at| at.add(t * TILE));
                (tiles, t) = match tiles.split_first_chunk::<S>() {
                    Some((keys, rest)) if S > 1 => {
                        E::scores::<L, R, S>(*keys, layout, &queries, TILE, to);
                        (rest, t + S)
                    }
                    _ => {
                        E::scores::<L, R, 1>([keys], layout, &queries, reach.lanes(t).end, to);
                        (rest, t + 1)
                    }
                };
            }
            for t in reach.tiles() {
                let at = at.map(|at| at.add(t * TILE));
                for r in 0..R {
                    let lanes = seen[r].lanes(t);
                    if plain {
                        top[r] = L::scale(at[r], job.scale, lanes, top[r]);
                        continue;
                    }
                    let mut score = L::load(at[r]).mul(L::splat(job.scale));
                    if let Some(cap) = cap {
                        score = capped(score, cap);
                    }
                    if !job.bias.is_none() {
                        let (token, head) = ((row + r) / group, (row + r) % group);
                        score = score.add(job.bias.load(head, token, block * BLOCK + t * TILE));
                    }
                    let score = score.masked(mask(&lanes), f32::NEG_INFINITY);
                    top[r] = top[r].max(score);
                    score.store(at[r]);
                }
            }

            // Scores to weights.
            for r in 0..R {
                let top = top[r].largest();
                if top > best[r] {
                    // In the first block there is nothing yet: zeros stay zeros.
                    if best[r] > f32::NEG_INFINITY {
                        let rescale = L::splat(best[r] - top).exp();
                        total[r] = total[r].mul(rescale);
                        for i in (0..width).step_by(16) {
                            let at = sums.as_mut_ptr().add(r * width + i);
                            L::load(at).mul(rescale).store(at);
                        }
                    }
                    best[r] = top;
                }
                for t in seen[r].tiles() {
                    let at = weights[r].as_mut_ptr().cast::<f32>().add(t * TILE);
                    L::softmax(at, best[r], seen[r].lanes(t), &mut total[r]);
                }
            }

            // The positions that all rows see are taken together, those before and after row by
            // row. What lies in invisible positions may be anything, even NaN: it is not read.
            let common = Range { lo: seen[R - 1].lo, hi: seen[0].hi };
            let common = if common.lo < common.hi { common } else { Range { lo: reach.hi, hi: reach.hi } };
            let sums = sums.as_mut_ptr();
            for r in 0..R {
                let before = Range { lo: seen[r].lo, hi: seen[r].hi.min(common.lo) };
                weigh::<L, E, 1, S>(&tile, layout, core::array::from_ref(&weights[r]), before, sums.add(r * width));
            }
            weigh::<L, E, R, S>(&tile, layout, &weights, common, sums);
            for r in 0..R {
                let after = Range { lo: seen[r].lo.max(common.hi), hi: seen[r].hi };
                weigh::<L, E, 1, S>(&tile, layout, core::array::from_ref(&weights[r]), after, sums.add(r * width));
            }
        }
        for r in 0..R {
            let inverse = 1.0 / total[r].sum();
            let (token, head) = ((row + r) / group, (row + r) % group);
            let start = token * out_stride + head * dim;
            let (Some(out), Some(sums)) = (out.get_mut(start..start + dim), sums.get(r * width..)) else { return R };
            for (out, sum) in out.iter_mut().zip(sums) {
                *out = sum * inverse;
            }
        }
    }
    R
}

/// Tiles in a block, and positions.
const TILES: usize = 4;
const BLOCK: usize = TILES * TILE;

/// Queries shorter than this are copied together, a little more than a power of two apart.
const NARROW: usize = 128 + 16;

/// A tile of the cache, and the one whose lines are called while this one's are used: few rows are done with a
/// tile before the next one could arrive.
#[derive(Clone, Copy)]
struct Tile {
    at: *const u8,
    later: *const u8,
}

/// Positions `lo..hi`.
#[derive(Clone, Copy)]
struct Range {
    lo: usize,
    hi: usize,
}

impl Range {
    /// The part among the `len` positions from `start`, counted from there.
    #[inline(always)]
    fn part(self, start: usize, len: usize) -> Self {
        let cut = |position: usize| position.saturating_sub(start).min(len);
        Self { lo: cut(self.lo), hi: cut(self.hi) }
    }

    /// The tiles of the block that it has something of.
    #[inline(always)]
    fn tiles(self) -> core::ops::Range<usize> {
        self.lo / TILE..self.hi.div_ceil(TILE)
    }

    /// The part in tile `t` of the block, counted from there.
    #[inline(always)]
    fn lanes(self, t: usize) -> core::ops::Range<usize> {
        let part = self.part(t * TILE, TILE);
        part.lo..part.hi
    }
}

/// Adds the values at some positions of a block, by weight, to R rows of sums, `S` registers at a time.
#[inline(always)]
unsafe fn weigh<L: Lanes, E: Element, const R: usize, const S: usize>(
    tiles: &[Tile; TILES],
    layout: HeadLayout,
    weights: &[MaybeUninit<[f32; BLOCK]>; R],
    range: Range,
    sums: *mut f32,
) {
    if range.lo >= range.hi {
        return;
    }
    let width = layout.padded();
    let mut i = 0;
    // SAFETY: passed on to the caller; `i + 16 * S <= width`, or `i + 16`, as both are multiples of 16.
    unsafe {
        while i < width {
            i += if S > 1 && width - i >= 16 * S {
                weigh_part::<L, E, R, S>(tiles, layout, weights, range, sums, i)
            } else {
                weigh_part::<L, E, R, 1>(tiles, layout, weights, range, sums, i)
            };
        }
    }
}

/// The same for `16 * S` elements of the values, from `i` on.
#[inline(always)]
unsafe fn weigh_part<L: Lanes, E: Element, const R: usize, const S: usize>(
    tiles: &[Tile; TILES],
    layout: HeadLayout,
    weights: &[MaybeUninit<[f32; BLOCK]>; R],
    range: Range,
    sums: *mut f32,
    i: usize,
) -> usize {
    let width = layout.padded();
    // SAFETY: the caller's tiles are whole, `hi <= BLOCK`, all weights in the range are there, and `sums` has R
    // rows of `width`, in which the elements are.
    unsafe {
        if R == 1 && L::ROWS == 1 && E::IS_F32 {
            let (sums, weights) = (sums.add(i), weights.as_ptr().cast::<f32>());
            for t in range.tiles() {
                let (Some(tile), lanes) = (tiles.get(t), range.lanes(t)) else { break };
                let values = E::values(tile.at, layout, lanes.start, i).cast();
                let weights = weights.add(t * TILE + lanes.start);
                L::add_products(sums, values, width, weights, lanes.end - lanes.start, layout.dim - i, sums);
            }
            return 16 * S;
        }
        let mut acc = [[L::splat(0.0); R]; S];
        for (s, acc) in acc.iter_mut().enumerate() {
            for (r, acc) in acc.iter_mut().enumerate() {
                *acc = L::load(sums.add(r * width + i + 16 * s));
            }
        }
        for t in range.tiles() {
            let (Some(tile), lanes) = (tiles.get(t), range.lanes(t)) else { break };
            let mut at = E::values(tile.at, layout, lanes.start, i);
            let mut later = E::values(tile.later, layout, lanes.start, i);
            for slot in lanes {
                if R < 4 {
                    L::prefetch(later);
                    later = later.wrapping_add(E::BYTES * width);
                }
                for (s, acc) in acc.iter_mut().enumerate() {
                    let value = E::value::<L>(at.wrapping_add(16 * s * E::BYTES));
                    let scale = E::value_scale(tile.at, layout, slot, i + 16 * s);
                    for (acc, weights) in acc.iter_mut().zip(weights) {
                        let weight = *weights.as_ptr().cast::<f32>().add(t * TILE + slot);
                        *acc = value.fma(L::splat(weight * scale), *acc);
                    }
                }
                at = at.wrapping_add(E::BYTES * width);
            }
        }
        for (s, acc) in acc.into_iter().enumerate() {
            for (r, acc) in acc.into_iter().enumerate() {
                acc.store(sums.add(r * width + i + 16 * s));
            }
        }
    }
    16 * S
}

/// How keys and values of one KV type are read.
trait Element {
    /// For each query, its dot products with the 16 keys of each tile, of which the first `lanes` are asked for,
    /// to `to` and after.
    unsafe fn scores<L: Lanes, const R: usize, const S: usize>(
        tiles: [Tile; S],
        layout: HeadLayout,
        queries: &[&[f32]; R],
        lanes: usize,
        to: [*mut f32; R],
    );
    /// Bytes of an element.
    const BYTES: usize;
    /// Whether an element is a number as it stands.
    const IS_F32: bool = false;
    /// Sixteen elements of a value, unscaled.
    unsafe fn value<L: Lanes>(at: *const u8) -> L;
    /// Where element `i` of the value at `position` is; that of the next position is a padded row further.
    #[inline(always)]
    fn values(tile: *const u8, layout: HeadLayout, position: usize, i: usize) -> *const u8 {
        tile.wrapping_add(layout.values() + (position * layout.padded() + i) * Self::BYTES)
    }
    /// The factor on that value.
    #[inline(always)]
    unsafe fn value_scale(_tile: *const u8, _layout: HeadLayout, _position: usize, _i: usize) -> f32 {
        1.0
    }
}

macro_rules! float_element {
    ($name:ident, $bytes:literal, $load:ident) => {
        struct $name;
        impl Element for $name {
            #[inline(always)]
            unsafe fn scores<L: Lanes, const R: usize, const S: usize>(
                tiles: [Tile; S],
                layout: HeadLayout,
                queries: &[&[f32]; R],
                lanes: usize,
                to: [*mut f32; R],
            ) {
                // SAFETY: keys are `dim` rows of 16 elements; each query has `dim` elements.
                unsafe {
                    if L::ROWS == 1 && Self::IS_F32 {
                        static ZEROS: [f32; TILE] = [0.0; TILE];
                        for (q, to) in queries.iter().zip(to) {
                            let keys = tiles[0].at.cast();
                            L::add_products(ZEROS.as_ptr(), keys, TILE, q.as_ptr(), layout.dim, lanes, to);
                        }
                        return;
                    }
                    let mut acc = [[L::splat(0.0); R]; S];
                    for d in 0..layout.dim {
                        for (tile, acc) in tiles.iter().zip(&mut acc) {
                            let at = d * (TILE * $bytes);
                            let key = L::$load(tile.at.add(at).cast());
                            L::prefetch(tile.later.wrapping_add(at));
                            for (acc, q) in acc.iter_mut().zip(queries) {
                                *acc = key.fma(L::splat(*q.get_unchecked(d)), *acc);
                            }
                        }
                    }
                    store_all(acc, to);
                }
            }
            const BYTES: usize = $bytes;
            const IS_F32: bool = $bytes == 4;
            #[inline(always)]
            unsafe fn value<L: Lanes>(at: *const u8) -> L {
                // SAFETY: passed on to the caller.
                unsafe { L::$load(at.cast()) }
            }
        }
    };
}
float_element!(F32, 4, load);
float_element!(F16, 2, load_f16);

struct Q8;
impl Element for Q8 {
    #[inline(always)]
    unsafe fn scores<L: Lanes, const R: usize, const S: usize>(
        tiles: [Tile; S],
        layout: HeadLayout,
        queries: &[&[f32]; R],
        _lanes: usize,
        to: [*mut f32; R],
    ) {
        // SAFETY: keys are `dim` rows of 16 bytes, then a row of 16 f16 for each 32 of them.
        unsafe {
            let mut acc = [[L::splat(0.0); R]; S];
            for block in 0..layout.blocks() {
                let mut sums = [[L::splat(0.0); R]; S];
                for d in block * 32..layout.dim.min(block * 32 + 32) {
                    for (tile, sums) in tiles.iter().zip(&mut sums) {
                        let key = L::load_i8(tile.at.add(d * TILE));
                        for (sum, q) in sums.iter_mut().zip(queries) {
                            *sum = key.fma(L::splat(*q.get_unchecked(d)), *sum);
                        }
                    }
                }
                for (tile, (acc, sums)) in tiles.iter().zip(acc.iter_mut().zip(sums)) {
                    let scale = L::load_f16(tile.at.add(layout.key_scales() + block * TILE * 2));
                    for (acc, sum) in acc.iter_mut().zip(sums) {
                        *acc = sum.fma(scale, *acc);
                    }
                }
            }
            store_all(acc, to);
        }
    }
    const BYTES: usize = 1;
    #[inline(always)]
    unsafe fn value<L: Lanes>(at: *const u8) -> L {
        // SAFETY: passed on to the caller.
        unsafe { L::load_i8(at) }
    }
    #[inline(always)]
    unsafe fn value_scale(tile: *const u8, layout: HeadLayout, position: usize, i: usize) -> f32 {
        // SAFETY: 16 rows of `blocks` f16 follow the values.
        unsafe {
            le_f16(tile.add(layout.value_scales() + (position * layout.blocks() + i / 32) * 2).cast::<[u8; 2]>().read())
        }
    }
}

/// Stores the scores of `S` tiles, one tile's after the other's, for each row.
#[inline(always)]
unsafe fn store_all<L: Lanes, const R: usize, const S: usize>(scores: [[L; R]; S], to: [*mut f32; R]) {
    for (s, scores) in scores.into_iter().enumerate() {
        for (score, to) in scores.into_iter().zip(to) {
            // SAFETY: the caller has the instruction set, and room for `S` tiles of scores at each place.
            unsafe { score.store(to.add(s * TILE)) };
        }
    }
}
