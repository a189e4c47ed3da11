//! Attention of some query rows over KV heads, one after another, stated once over [`Isa`].
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

mod element;
mod tiles;

use core::marker::PhantomData;
use core::mem::MaybeUninit;

use super::float::capped;
use super::lanes::{Isa, Lanes, Work, load, mask};
use crate::built;
use crate::memory::{HeadLayout, KvType, TILE};
use crate::quant::le_f32;
use element::{Element, F16, F32, Q8};
use tiles::{BLOCK, Range, TILES, Tile, Tiles};

/// The query rows of some KV heads: `tokens` at consecutive positions, each with `group` heads for each of them.
pub(crate) struct Attention<'a> {
    /// How many KV heads.
    pub heads: usize,
    /// Each head's tiles, one for each page.
    pub tiles: &'a [u8],
    /// The page of each tile of the context; shorter than the context, it is a ring.
    pub pages: &'a [u32],
    /// How a tile is laid out.
    pub layout: HeadLayout,
    /// Queries: query head `g` of token `t` starts at `t * q_stride + g * head_dim`.
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
    /// A token sees as much after it as before it, up to this position.
    pub reach: Option<usize>,
    /// Factor on every score.
    pub scale: f32,
    /// Scores become `cap * tanh(score / cap)`.
    pub cap: Option<f32>,
    /// Added to every score.
    pub bias: Bias<'a>,
    /// A learned score of each query head, little-endian f32, that takes part in the softmax and has no
    /// value; empty for none.
    pub sinks: &'a [u8],
}

impl Attention<'_> {
    /// One KV head alone.
    #[inline(always)]
    fn head(&self, head: usize) -> Option<Self> {
        let (bytes, first) = (self.tiles.len().checked_div(self.heads)?, head * self.group);
        let bias = if built::RELATIVE_POSITIONS {
            Bias { table: self.bias.table.get(first * self.bias.stride..).unwrap_or(&[]), ..self.bias }
        } else {
            Bias::NONE
        };
        Some(Self {
            heads: 1,
            tiles: self.tiles.get(head * bytes..(head + 1) * bytes)?,
            q: self.q.get(first * self.layout.dim..)?,
            bias,
            sinks: if built::GPT_OSS { self.sinks.get(4 * first..).unwrap_or(&[]) } else { &[] },
            ..*self
        })
    }

    /// The positions that a token sees: from the first to before the last.
    #[inline(always)]
    pub fn visible(&self, token: usize) -> (usize, usize) {
        let at = self.position + token;
        let hi = self.reach.map_or(at + 1, |all| all.min(at.saturating_add(self.window)));
        ((at + 1).saturating_sub(self.window), hi)
    }

    /// Whether scores have no cap and no bias, and there are no sinks.
    #[allow(dead_code)] // for tables that take it apart
    #[inline(always)]
    pub fn is_plain(&self) -> bool {
        is_plain(self) && (!built::GPT_OSS || self.sinks.is_empty())
    }

    /// The token and the head, among the group's, of a row.
    #[inline(always)]
    fn token_and_head(&self, row: usize) -> (usize, usize) {
        let group = self.group.max(1);
        (row / group, row % group)
    }
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
    fn load<S: Isa>(&self, s: S, head: usize, token: usize, position: usize) -> S::V {
        let row = (head * self.stride + self.start).saturating_sub(token);
        load(s, self.table, row + position)
    }
}

/// Runs all rows of `job`; query head `g` of token `t` goes to `out[t * out_stride + g * head_dim..]`.
/// `scratch` holds `S::ROWS` padded rows.
#[inline(always)]
pub(super) fn attend<S: Isa>(s: S, job: &Attention<'_>, out: &mut [f32], out_stride: usize, scratch: &mut [f32]) {
    for head in 0..job.heads {
        let out = out.get_mut(head * job.group * job.layout.dim..);
        let (Some(job), Some(out)) = (&job.head(head), out) else { return };
        match job.layout.kind {
            kind if !kind.is_built() => {}
            KvType::F32 => attend_all::<S, F32>(s, job, out, out_stride, scratch),
            KvType::F16 => attend_all::<S, F16>(s, job, out, out_stride, scratch),
            KvType::Q8_0 => attend_all::<S, Q8>(s, job, out, out_stride, scratch),
        }
    }
}

/// Takes the rows in the largest groups that the registers allow.
#[inline(always)]
fn attend_all<S: Isa, E: Element>(s: S, job: &Attention<'_>, out: &mut [f32], out_stride: usize, scratch: &mut [f32]) {
    let rows = job.tokens * job.group;
    let mut row = 0;
    while row < rows {
        row += match rows - row {
            8.. if const { S::ROWS >= 8 } => attend_rows::<S, E, 8, 1>(s, job, row, out, out_stride, scratch),
            4.. if const { S::ROWS >= 4 } => attend_rows::<S, E, 4, 1>(s, job, row, out, out_stride, scratch),
            3.. if const { S::ROWS >= 3 } => attend_rows::<S, E, 3, 1>(s, job, row, out, out_stride, scratch),
            2.. if const { S::ROWS >= 2 } => attend_rows::<S, E, 2, 2>(s, job, row, out, out_stride, scratch),
            _ if const { S::ROWS >= 2 } => attend_rows::<S, E, 1, 4>(s, job, row, out, out_stride, scratch),
            _ => attend_rows::<S, E, 1, 1>(s, job, row, out, out_stride, scratch),
        };
    }
}

/// Runs `R` rows from `row` on, and returns their number.
#[inline(always)]
fn attend_rows<S: Isa, E: Element, const R: usize, const N: usize>(
    s: S,
    job: &Attention<'_>,
    row: usize,
    out: &mut [f32],
    out_stride: usize,
    scratch: &mut [f32],
) -> usize {
    s.apart(Rows::<E, R, N> { job, row, out, out_stride, scratch, element: PhantomData });
    R
}

/// `R` rows. A fused multiply-add takes a few cycles and a sum is a chain of them: where rows are few, `N` registers of
/// each are summed at a time.
struct Rows<'a, E, const R: usize, const N: usize> {
    job: &'a Attention<'a>,
    row: usize,
    out: &'a mut [f32],
    out_stride: usize,
    scratch: &'a mut [f32],
    element: PhantomData<E>,
}

impl<S: Isa, E: Element, const R: usize, const N: usize> Work<S> for Rows<'_, E, R, N> {
    #[inline(always)]
    fn run(self, s: S) {
        let Self { job, row, out, out_stride, scratch, .. } = self;
        let (layout, width) = (job.layout, job.layout.padded());
        let Some(sums) = scratch.get_mut(..R * width) else { return };
        let zero = s.zero();
        sums.as_chunks_mut().0.iter_mut().for_each(|sums| zero.store(sums));
        let mut copies = [const { MaybeUninit::uninit() }; R];
        let Some((queries, visible)) = rows(job, row, &mut copies) else { return };
        // Rows are in order of position, so the first sees the earliest and the last the latest.
        let all = Range { lo: visible[0].lo, hi: visible[R - 1].hi };
        let Some(tiles) = Tiles::new(job, all, if R < 4 { TILES } else { 1 }) else { return };

        let mut softmax = Softmax::new(s, job, row);
        for block in all.lo / BLOCK..=(all.hi - 1) / BLOCK {
            let seen = visible.map(|seen| seen.part(block * BLOCK, BLOCK));
            let tiles = tiles.block(block);
            let mut weights = [const { MaybeUninit::<[f32; BLOCK]>::uninit() }; R];
            let at = weights.each_mut().map(|weights| weights.as_mut_ptr().cast::<f32>());
            // SAFETY: the tiles are whole ones of the head's, in which the layout's offsets stay; each query has `dim`
            // elements; `sums` has R rows; the weights of all tiles that a row sees something of are written before they
            // are read.
            unsafe {
                let top = scores::<S, E, R, N>(s, job, row, (block, &tiles), &queries, &seen, at);
                softmax.weights(s, &top, &seen, at, sums, width);
                weigh_rows::<S, E, R, N>(s, &tiles, layout, &weights, &seen, sums.as_mut_ptr());
            }
        }
        for (r, total) in softmax.total.into_iter().enumerate() {
            let inverse = 1.0 / total.sum();
            let (token, head) = job.token_and_head(row + r);
            let start = token * out_stride + head * layout.dim;
            let (Some(out), Some(sums)) = (out.get_mut(start..start + layout.dim), sums.get(r * width..)) else {
                return;
            };
            for (out, sum) in out.iter_mut().zip(sums) {
                *out = sum * inverse;
            }
        }
    }
}

/// The queries of `R` rows and the positions that each sees; `None` where there are none. Queries that lie a power of
/// two apart, where they contend for the same lines of the nearest cache, are copied to `copies`.
#[inline(always)]
fn rows<'a, const R: usize>(
    job: &Attention<'a>,
    row: usize,
    copies: &'a mut [MaybeUninit<[f32; NARROW]>; R],
) -> Option<([&'a [f32]; R], [Range; R])> {
    let dim = job.layout.dim;
    let mut queries = [[].as_slice(); R];
    let mut visible = [Range { lo: 0, hi: 0 }; R];
    for (r, ((query, seen), copy)) in queries.iter_mut().zip(&mut visible).zip(copies).enumerate() {
        let (token, head) = job.token_and_head(row + r);
        let start = token * job.q_stride + head * dim;
        let q = job.q.get(start..start + dim)?;
        *query = q;
        if R > 1 && dim < NARROW {
            let copy = copy.write([0.0; NARROW]).get_mut(..dim)?;
            copy.iter_mut().zip(q).for_each(|(to, q)| *to = *q);
            *query = copy;
        }
        let (lo, hi) = job.visible(token);
        *seen = Range { lo, hi };
        if seen.hi == 0 {
            return None; // nothing to see
        }
    }
    Some((queries, visible))
}

/// The scores of a block; each row's largest.
///
/// # Safety
///
/// As for [`multiply`].
#[inline(always)]
unsafe fn scores<S: Isa, E: Element, const R: usize, const N: usize>(
    s: S,
    job: &Attention<'_>,
    row: usize,
    (block, tiles): (usize, &[Tile; TILES]),
    queries: &[&[f32]; R],
    seen: &[Range; R],
    to: [*mut f32; R],
) -> [f32; R] {
    // SAFETY: passed on to the caller; the layout is that of the tiles.
    unsafe {
        if R == 1 && S::ROWS == 1 && E::IS_F32 {
            let (keys, plain) = (tiles.map(|tile| tile.at.cast()), is_plain(job));
            let factor = if plain { job.scale } else { 1.0 };
            let top = s.scores_one(&keys, queries[0], factor, seen[0].lo..seen[0].hi, to[0]);
            if plain {
                return [top; R];
            }
        } else {
            multiply::<S, E, R, N>(s, tiles, job.layout, queries, Range { lo: seen[0].lo, hi: seen[R - 1].hi }, to);
        }
        finish(s, job, row, block, seen, to)
    }
}

/// Whether scores have no cap and no bias.
#[inline(always)]
fn is_plain(job: &Attention<'_>) -> bool {
    (!built::CAPS || job.cap.is_none()) && job.bias.is_none()
}

/// The dot products of `R` queries with the keys of the tiles that `reach` has something of.
///
/// # Safety
///
/// The tiles are whole, each query has the elements of a key, and there is room for a block of scores at each of `to`.
#[inline(always)]
unsafe fn multiply<S: Isa, E: Element, const R: usize, const N: usize>(
    s: S,
    tiles: &[Tile; TILES],
    layout: HeadLayout,
    queries: &[&[f32]; R],
    reach: Range,
    to: [*mut f32; R],
) {
    let mut t = reach.tiles().start;
    let mut tiles = tiles.get(reach.tiles()).unwrap_or(&[]);
    while let Some((&keys, rest)) = tiles.split_first() {
        // SAFETY: passed on to the caller.
        unsafe {
            let to = to.map(|to| to.add(t * TILE));
            (tiles, t) = match tiles.split_first_chunk::<N>() {
                Some((keys, rest)) if N > 1 => {
                    E::scores::<S, R, N>(s, *keys, layout, queries, to);
                    (rest, t + N)
                }
                _ => {
                    E::scores::<S, R, 1>(s, [keys], layout, queries, to);
                    (rest, t + 1)
                }
            };
        }
    }
}

/// Scales the scores of a block, caps them and adds the bias, where there are any. Returns each row's largest.
///
/// # Safety
///
/// The scores of all tiles that a row sees something of are there.
#[allow(clippy::needless_range_loop)] // several arrays run along with `r`
#[inline(always)]
unsafe fn finish<S: Isa, const R: usize>(
    s: S,
    job: &Attention<'_>,
    row: usize,
    block: usize,
    seen: &[Range; R],
    scores: [*mut f32; R],
) -> [f32; R] {
    let cap = if built::CAPS { job.cap } else { None };
    let plain = is_plain(job);
    if R == 1 && S::ROWS == 1 && plain {
        // SAFETY: the row has a block of scores there, and sees some of them.
        return [unsafe { s.scale_one(scores[0], job.scale, seen[0].lo..seen[0].hi) }; R];
    }
    let mut top = [s.splat(f32::NEG_INFINITY); R];
    for t in (Range { lo: seen[0].lo, hi: seen[R - 1].hi }).tiles() {
        for r in 0..R {
            let lanes = seen[r].lanes(t);
            if R > 1 && lanes.is_empty() {
                continue; // only other rows see something of this tile
            }
            // SAFETY: the row has a tile of scores there.
            unsafe {
                let at = scores[r].add(t * TILE);
                if plain {
                    top[r] = s.scale(at, job.scale, lanes, top[r]);
                    continue;
                }
                let scores = &mut *at.cast();
                let mut score = s.load(scores).mul(s.splat(job.scale));
                if let Some(cap) = cap {
                    score = capped(s, score, cap);
                }
                if !job.bias.is_none() {
                    let (token, head) = job.token_and_head(row + r);
                    score = score.add(job.bias.load(s, head, token, block * BLOCK + t * TILE));
                }
                let score = score.masked(mask(&lanes), s.splat(f32::NEG_INFINITY));
                top[r] = top[r].max(score);
                score.store(scores);
            }
        }
    }
    let mut largest = [f32::NEG_INFINITY; R];
    for (largest, top) in largest.iter_mut().zip(top) {
        *largest = top.largest();
    }
    largest
}

/// The online softmax of `R` rows: the best score so far, and the sum of the weights.
struct Softmax<S: Isa, const R: usize> {
    best: [f32; R],
    total: [S::V; R],
}

impl<S: Isa, const R: usize> Softmax<S, R> {
    #[inline(always)]
    fn new(s: S, job: &Attention<'_>, row: usize) -> Self {
        let mut new = Self { best: [f32::NEG_INFINITY; R], total: [s.zero(); R] };
        if built::GPT_OSS && !job.sinks.is_empty() {
            for (r, (best, total)) in new.best.iter_mut().zip(&mut new.total).enumerate() {
                *best = le_f32(job.sinks, job.token_and_head(row + r).1);
                *total = s.splat(1.0).select(1, s.zero());
            }
        }
        new
    }

    /// Turns the scores of a block, of which `top` has the largest, into weights, and rescales what `sums` has so far.
    ///
    /// # Safety
    ///
    /// The scores of all tiles that a row sees something of are there, and R rows of `width` sums.
    #[allow(clippy::needless_range_loop)] // several arrays run along with `r`
    #[inline(always)]
    unsafe fn weights(
        &mut self,
        s: S,
        top: &[f32; R],
        seen: &[Range; R],
        scores: [*mut f32; R],
        sums: &mut [f32],
        width: usize,
    ) {
        for r in 0..R {
            let top = top[r];
            if top > self.best[r] {
                // In the first block there is nothing yet: zeros stay zeros.
                if self.best[r] > f32::NEG_INFINITY {
                    let rescale = s.exp(s.splat(self.best[r] - top));
                    self.total[r] = self.total[r].mul(rescale);
                    for i in (0..width).step_by(16) {
                        // SAFETY: `width` is a multiple of 16, and the row is there.
                        let sums = unsafe { &mut *sums.as_mut_ptr().add(r * width + i).cast() };
                        s.load(sums).mul(rescale).store(sums);
                    }
                }
                self.best[r] = top;
            }
            if R == 1 && S::ROWS == 1 {
                // SAFETY: the block has scores, of which the row sees these.
                unsafe { s.softmax_one(scores[r], self.best[r], seen[r].lo..seen[r].hi, &mut self.total[r]) };
                return;
            }
            for t in seen[r].tiles() {
                // SAFETY: the tile has scores, and lanes that the row sees.
                unsafe { s.softmax(scores[r].add(t * TILE), self.best[r], seen[r].lanes(t), &mut self.total[r]) };
            }
        }
    }
}

/// Queries shorter than this are copied together, a little more than a power of two apart.
const NARROW: usize = 128 + 16;

/// Adds the values of a block by weight. The positions that all rows see are taken together, those before and after row
/// by row. What lies in invisible positions may be anything, even NaN: it is not read.
///
/// # Safety
///
/// The tiles are whole, the weights of all that a row sees are there, and `sums` has `R` rows.
#[inline(always)]
unsafe fn weigh_rows<S: Isa, E: Element, const R: usize, const N: usize>(
    s: S,
    tiles: &[Tile; TILES],
    layout: HeadLayout,
    weights: &[MaybeUninit<[f32; BLOCK]>; R],
    seen: &[Range; R],
    sums: *mut f32,
) {
    if R == 1 {
        // SAFETY: passed on to the caller.
        return unsafe { weigh::<S, E, R, N>(s, tiles, layout, weights, seen[0], sums) };
    }
    let common = Range { lo: seen[R - 1].lo, hi: seen[0].hi };
    let end = seen[R - 1].hi;
    let common = if common.lo < common.hi { common } else { Range { lo: end, hi: end } };
    for after in [false, true] {
        if after {
            // SAFETY: passed on to the caller.
            unsafe { weigh::<S, E, R, N>(s, tiles, layout, weights, common, sums) };
        }
        for (r, (seen, weights)) in seen.iter().zip(weights).enumerate() {
            let own = match after {
                false => Range { lo: seen.lo, hi: seen.hi.min(common.lo) },
                true => Range { lo: seen.lo.max(common.hi), hi: seen.hi },
            };
            // SAFETY: passed on to the caller; the row has its sums.
            unsafe {
                let sums = sums.add(r * layout.padded());
                weigh::<S, E, 1, N>(s, tiles, layout, core::array::from_ref(weights), own, sums);
            }
        }
    }
}

/// Adds the values at some positions of a block, by weight, to R rows of sums, `N` registers at a time.
#[inline(always)]
unsafe fn weigh<S: Isa, E: Element, const R: usize, const N: usize>(
    s: S,
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
    // SAFETY: passed on to the caller; `i + 16 * N <= width`, or `i + 16`, as both are multiples of 16.
    unsafe {
        while i < width {
            i += if N > 1 && width - i >= 16 * N {
                weigh_part::<S, E, R, N>(s, tiles, layout, weights, range, sums, i)
            } else {
                weigh_part::<S, E, R, 1>(s, tiles, layout, weights, range, sums, i)
            };
        }
    }
}

/// The same for `16 * N` elements of the values, from `i` on.
#[inline(always)]
unsafe fn weigh_part<S: Isa, E: Element, const R: usize, const N: usize>(
    s: S,
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
        if R == 1 && S::ROWS == 1 && E::IS_F32 {
            let values = tiles.map(|tile| E::values(tile.at, layout, 0, i).cast());
            let weights = weights.as_ptr().cast();
            s.add_rows(&values, width, weights, range.lo..range.hi, layout.dim - i, sums.add(i));
            return 16 * N;
        }
        let mut acc = [[s.splat(0.0); R]; N];
        for (n, acc) in acc.iter_mut().enumerate() {
            for (r, acc) in acc.iter_mut().enumerate() {
                *acc = s.load(&*sums.add(r * width + i + 16 * n).cast());
            }
        }
        for t in range.tiles() {
            let (Some(tile), lanes) = (tiles.get(t), range.lanes(t)) else { break };
            let mut at = E::values(tile.at, layout, lanes.start, i);
            let mut later = E::values(tile.later, layout, lanes.start, i);
            for slot in lanes {
                if R < 4 {
                    s.prefetch(later);
                    later = later.wrapping_add(E::BYTES * width);
                }
                for (n, acc) in acc.iter_mut().enumerate() {
                    let value = E::value(s, at.wrapping_add(16 * n * E::BYTES));
                    let scale = E::value_scale(tile.at, layout, slot, i + 16 * n);
                    for (acc, weights) in acc.iter_mut().zip(weights) {
                        let weight = *weights.as_ptr().cast::<f32>().add(t * TILE + slot);
                        *acc = value.fma(s.splat(weight * scale), *acc);
                    }
                }
                at = at.wrapping_add(E::BYTES * width);
            }
        }
        for (n, acc) in acc.into_iter().enumerate() {
            for (r, acc) in acc.into_iter().enumerate() {
                acc.store(&mut *sums.add(r * width + i + 16 * n).cast());
            }
        }
    }
    16 * N
}
