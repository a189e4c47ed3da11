//! Attention of query rows over KV heads, one head after another, defined once over [`Isa`]. A query row is one query
//! head of one token.
//!
//! A block of positions is 64 positions: four tiles of the KV cache. Blocks are processed in order of position:
//!
//! - The score of a position is `scale` times one chain of fused multiply-adds over `head_dim`. For q8_0 keys there is
//!   one chain per 32 dimensions, and the chain's result enters the score by one fma with the scale of these
//!   dimensions. The score is capped if `cap` is set, then the bias is added.
//! - The softmax is computed online. `m` is the largest score so far, `l` the sum of the weights in 16 lanes. A block
//!   sets `m' = max(m, scores)` and `l = l * exp(m - m')`. Then each tile adds its 16 weights `p = exp(score - m')` to
//!   `l`, one position per lane.
//! - `out = out * exp(m - m')`, then `out = fma(p * value scale, value, out)` for each position in order.
//!
//! The result is `out * (1 / sum(l))`. Only visible positions are read, so that the result depends neither on the rest
//! of the cache nor on the number of rows that are processed together.

mod element;
pub(super) mod tiles;

use core::marker::PhantomData;
use core::mem::MaybeUninit;

use super::float::capped;
use super::lanes::{Isa, Lanes, Work, load, mask, store};
use crate::built;
use crate::memory::{HeadLayout, KvType, TILE};
use crate::quant::le_f32;
use element::{F16, F32, Keys, Q4, Q8, Values, value_at};
use tiles::{BLOCK, Range, TILES, Tile, Tiles};

/// The operands of attention for `heads` KV heads. The query rows are those of `tokens` consecutive positions. For each
/// KV head, a position has `group` query heads.
pub struct Attention<'a> {
    /// Number of KV heads.
    pub heads: usize,
    /// The memory of the keys and values: for each head, a tile for each page.
    pub tiles: &'a [u8],
    /// The index of the page for each tile of the context. A list shorter than the context is used as a ring.
    pub pages: &'a [u32],
    /// Layout of a tile.
    pub layout: HeadLayout,
    /// Queries. Query head `g` of token `t` starts at `t * q_stride + g * head_dim`.
    pub q: &'a [f32],
    /// Distance between consecutive tokens in `q`.
    pub q_stride: usize,
    /// Query heads per KV head.
    pub group: usize,
    /// Number of tokens.
    pub tokens: usize,
    /// Position of the first token.
    pub position: usize,
    /// Number of positions that a token attends to: its own position and the `window - 1` positions before it.
    pub window: usize,
    /// If `reach` is `Some(end)`, a token also attends to those of the next `window - 1` positions that are below
    /// `end`.
    pub reach: Option<usize>,
    /// A half-open range of positions to which every token of the job attends in addition, such as the picture to which
    /// all these tokens belong. The range contains the positions of all tokens.
    #[cfg(feature = "vision")]
    pub span: Option<(usize, usize)>,
    /// Factor on every score.
    pub scale: f32,
    /// Soft cap: scores become `cap * tanh(score / cap)`.
    pub cap: Option<f32>,
    /// Values added to the scores.
    pub bias: Bias<'a>,
    /// For each query head, a learned score that counts in the sum of the softmax, but for which no value is added (an
    /// attention sink). The scores are little-endian f32. Empty if the model has no sinks.
    pub sinks: &'a [u8],
}

impl Attention<'_> {
    /// The same operands for KV head `head` only.
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

    /// Half-open range of the positions a token attends to.
    #[inline(always)]
    pub fn visible(&self, token: usize) -> (usize, usize) {
        let at = self.position + token;
        let hi = self.reach.map_or(at + 1, |all| all.min(at.saturating_add(self.window)));
        let lo = (at + 1).saturating_sub(self.window);
        #[cfg(feature = "vision")]
        if let Some((start, end)) = self.span {
            return (lo.min(start), hi.max(end));
        }
        (lo, hi)
    }

    /// True if there is no cap, no bias and no sink.
    #[cfg(arm_fpu)]
    pub fn is_plain(&self) -> bool {
        (!built::CAPS || self.cap.is_none()) && self.bias.is_none() && (!built::GPT_OSS || self.sinks.is_empty())
    }

    /// Returns the index of a query row's token, and the index of the row's query head within its group of heads, which
    /// share a KV head.
    #[inline(always)]
    pub fn token_and_head(&self, row: usize) -> (usize, usize) {
        let group = self.group.max(1);
        (row / group, row % group)
    }

    /// Returns the token and the query head of the next row.
    #[inline(always)]
    fn next_row(&self, (token, head): (usize, usize)) -> (usize, usize) {
        if head + 1 < self.group { (token, head + 1) } else { (token + 1, 0) }
    }
}

/// Numbers that are added to attention scores. The bias of head `g`, token `t` and position `s` is `table[g * stride +
/// start - t + s]`.
#[derive(Clone, Copy)]
pub struct Bias<'a> {
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

    /// The biases of 16 positions from `position` on.
    #[inline(always)]
    fn load<S: Isa>(&self, s: S, head: usize, token: usize, position: usize) -> S::V {
        let row = (head * self.stride + self.start).saturating_sub(token);
        load(s, self.table, row + position)
    }
}

/// Computes all rows of `job`. Computes nothing if values are parts of keys but longer than keys. The output of query
/// head `g` of token `t` starts at `out[t * out_stride + g * head_dim]`. `scratch` has room for `S::ROWS` padded rows,
/// and for 16 more rows if values are parts of keys.
#[inline(always)]
pub(super) fn attend<S: Isa>(s: S, job: &Attention<'_>, out: &mut [f32], out_stride: usize, scratch: &mut [f32]) {
    if job.layout.shares() && job.layout.shared > job.layout.dim {
        return;
    }
    for head in 0..job.heads {
        let out = out.get_mut(head * job.group * job.layout.value()..);
        let (Some(job), Some(out)) = (&job.head(head), out) else { return };
        match job.layout.kind {
            kind if !kind.is_built() => {}
            KvType::F32 => attend_all::<S, F32, F32>(s, job, out, out_stride, scratch),
            KvType::F16 => attend_all::<S, F16, F16>(s, job, out, out_stride, scratch),
            KvType::Q8_0 => attend_all::<S, Q8, Q8>(s, job, out, out_stride, scratch),
            KvType::Q4_0 => attend_all::<S, Q4, Q4>(s, job, out, out_stride, scratch),
            KvType::Q8_0Q4_0 => attend_all::<S, Q8, Q4>(s, job, out, out_stride, scratch),
        }
    }
}

/// Computes all rows of one KV head, as many at a time as the registers allow.
#[inline(always)]
fn attend_all<S: Isa, K: Keys, E: Values>(
    s: S,
    job: &Attention<'_>,
    out: &mut [f32],
    out_stride: usize,
    scratch: &mut [f32],
) {
    let rows = job.tokens * job.group;
    let mut row = 0;
    while row < rows {
        row += match rows - row {
            8.. if const { S::ROWS >= 8 } => attend_rows::<S, K, E, 8, 1>(s, job, row, out, out_stride, scratch),
            4.. if const { S::ROWS >= 4 } => attend_rows::<S, K, E, 4, 1>(s, job, row, out, out_stride, scratch),
            3.. if const { S::ROWS >= 3 } => attend_rows::<S, K, E, 3, 1>(s, job, row, out, out_stride, scratch),
            2.. if const { S::ROWS >= 2 } => attend_rows::<S, K, E, 2, 2>(s, job, row, out, out_stride, scratch),
            _ if const { S::ROWS >= 2 } => attend_rows::<S, K, E, 1, 4>(s, job, row, out, out_stride, scratch),
            _ => attend_rows::<S, K, E, 1, 1>(s, job, row, out, out_stride, scratch),
        };
    }
}

/// Computes the `R` rows from `row` on, and returns `R`.
#[inline(always)]
fn attend_rows<S: Isa, K: Keys, E: Values, const R: usize, const N: usize>(
    s: S,
    job: &Attention<'_>,
    row: usize,
    out: &mut [f32],
    out_stride: usize,
    scratch: &mut [f32],
) -> usize {
    let first = job.token_and_head(row);
    s.apart(Rows::<K, E, R, N> { job, row, first, out, out_stride, scratch, elements: PhantomData });
    R
}

/// The arguments of attention for `R` rows. If `R` is small, `N` registers per row are summed at a time: a sum is a
/// chain of fused multiply-adds, each of which waits several cycles for the previous one, so that several independent
/// chains are needed to keep the processor busy.
struct Rows<'a, K, E, const R: usize, const N: usize> {
    job: &'a Attention<'a>,
    row: usize,
    /// Token and query head of the first row. They are not computed in `run`, because there the compiler would repeat the
    /// division for every element of a query and of an output.
    first: (usize, usize),
    out: &'a mut [f32],
    out_stride: usize,
    scratch: &'a mut [f32],
    elements: PhantomData<(K, E)>,
}

impl<S: Isa, K: Keys, E: Values, const R: usize, const N: usize> Work<S> for Rows<'_, K, E, R, N> {
    #[inline(always)]
    fn run(self, s: S) {
        let Self { job, row, first, out, out_stride, scratch, .. } = self;
        let (layout, width) = (job.layout, job.layout.padded());
        let Some((sums, values)) = scratch.split_at_mut_checked(R * width) else { return };
        let zero = s.zero();
        sums.as_chunks_mut().0.iter_mut().for_each(|sums| zero.store(sums));
        let mut copies = [const { MaybeUninit::uninit() }; R];
        let Some((queries, visible)) = rows(s, job, first, &mut copies) else { return };
        // Rows are in order of position, so the first row has the earliest start and the last row the latest end.
        let all = Range { lo: visible[0].lo, hi: visible[R - 1].hi };
        let Some(tiles) = Tiles::new(job, all, if R < 4 { TILES } else { 1 }) else { return };

        let mut softmax = Softmax::new(s, job, row);
        for block in all.lo / BLOCK..=(all.hi - 1) / BLOCK {
            let (mut seen, mut at) = (visible, [core::ptr::null_mut(); R]);
            let tiles = tiles.block(block);
            let mut weights = [const { MaybeUninit::<[f32; BLOCK]>::uninit() }; R];
            // (Loops, because `map` of an array compiles slowly.)
            for (r, weights) in weights.iter_mut().enumerate() {
                seen[r] = seen[r].clip(block * BLOCK, BLOCK);
                at[r] = weights.as_mut_ptr().cast::<f32>();
            }
            // SAFETY: the tiles are complete tiles of the head, and the layout's offsets stay inside a tile; each query
            // has `dim` elements; `sums` has `R` rows. `multiply` writes the scores of every tile that a row attends
            // to, before `finish`, `weights` and `weigh_rows` read them.
            unsafe {
                multiply::<S, K, R, N>(s, &tiles, layout, &queries, Range { lo: seen[0].lo, hi: seen[R - 1].hi }, at);
                s.apart(Weights { softmax: &mut softmax, job, row, block, seen: &seen, scores: at, sums, width });
                let sums = sums.as_mut_ptr();
                if layout.shares() {
                    weigh_keys::<S, K, R, N>(s, &tiles, layout, &weights, &seen, sums, values);
                } else {
                    weigh_rows::<S, E, R, N>(s, &tiles, layout, &weights, &seen, sums);
                }
            }
        }
        let mut at = first;
        for (r, total) in softmax.total.into_iter().enumerate() {
            let inverse = s.splat(1.0 / total.sum());
            let start = at.0 * out_stride + at.1 * layout.value();
            at = job.next_row(at);
            let (Some(out), Some(sums)) = (out.get_mut(start..start + layout.value()), sums.get(r * width..)) else {
                return;
            };
            for i in (0..out.len()).step_by(16) {
                store(load(s, sums, i).mul(inverse), out, i);
            }
        }
    }
}

/// Returns the queries of `R` rows, and the positions that each row attends to. `None` if a row attends to no position.
/// Short queries are copied to `copies`: queries whose distance is a power of two would compete for the same lines of
/// the first-level cache.
#[inline(always)]
fn rows<'a, S: Isa, const R: usize>(
    s: S,
    job: &Attention<'a>,
    first: (usize, usize),
    copies: &'a mut [MaybeUninit<[f32; NARROW]>; R],
) -> Option<([&'a [f32]; R], [Range; R])> {
    let dim = job.layout.dim;
    let mut queries = [[].as_slice(); R];
    let mut visible = [Range { lo: 0, hi: 0 }; R];
    let mut at = first;
    for ((query, seen), copy) in queries.iter_mut().zip(&mut visible).zip(copies) {
        let (token, head) = at;
        at = job.next_row(at);
        let start = token * job.q_stride + head * dim;
        let q = job.q.get(start..start + dim)?;
        *query = q;
        if R > 1 && dim < NARROW {
            let copy = copy.write([0.0; NARROW]).get_mut(..dim)?;
            for i in (0..dim).step_by(16) {
                store(load(s, q, i), copy, i);
            }
            *query = copy;
        }
        let (lo, hi) = job.visible(token);
        *seen = Range { lo, hi };
        if seen.hi == 0 {
            return None; // no visible position
        }
    }
    Some((queries, visible))
}

/// The dot products of `R` queries with the keys of all tiles that `reach` touches.
///
/// # Safety
///
/// Each of `tiles` is a complete tile of `layout`, each query has the elements of a key, and each pointer of `to` has
/// room for a block of scores.
#[inline(always)]
unsafe fn multiply<S: Isa, K: Keys, const R: usize, const N: usize>(
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
        // SAFETY: the caller promises these tiles, queries and room.
        unsafe {
            let mut to = to;
            to.iter_mut().for_each(|to| *to = to.add(t * TILE));
            (tiles, t) = match tiles.split_first_chunk::<N>() {
                Some((keys, rest)) if N > 1 => {
                    K::scores::<S, R, N>(s, *keys, layout, queries, to);
                    (rest, t + N)
                }
                _ => {
                    K::scores::<S, R, 1>(s, [keys], layout, queries, to);
                    (rest, t + 1)
                }
            };
        }
    }
}

/// Turns the scores of a block of positions into weights.
///
/// Whoever builds a `Weights` promises that the scores of all tiles that a row attends to are written, and that `sums`
/// has `R` rows of `width` floats.
struct Weights<'a, S: Isa, const R: usize> {
    softmax: &'a mut Softmax<S, R>,
    job: &'a Attention<'a>,
    row: usize,
    block: usize,
    seen: &'a [Range; R],
    scores: [*mut f32; R],
    sums: &'a mut [f32],
    width: usize,
}

impl<S: Isa, const R: usize> Work<S> for Weights<'_, S, R> {
    #[inline(always)]
    fn run(self, s: S) {
        let Self { softmax, job, row, block, seen, scores, sums, width } = self;
        // SAFETY: whoever builds `self` promises that the scores of this block are written, and that `sums` is valid.
        unsafe {
            let top = finish(s, job, row, block, seen, scores);
            softmax.weights(s, &top, seen, scores, sums, width);
        }
    }
}

/// Scales the scores of a block of positions, caps them if there is a cap, and adds the bias if there is one. Returns
/// the largest score of each row.
///
/// # Safety
///
/// The scores of all tiles that a row attends to are written.
#[allow(clippy::needless_range_loop)] // several arrays are indexed by `r`
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
    let mut top = [s.splat(f32::NEG_INFINITY); R];
    for t in (Range { lo: seen[0].lo, hi: seen[R - 1].hi }).tiles() {
        for r in 0..R {
            let lanes = seen[r].lanes(t);
            if R > 1 && lanes.is_empty() {
                continue; // only other rows attend to this tile
            }
            // SAFETY: row `r` attends to tile `t`, so the caller promises that the scores of this tile are written.
            unsafe {
                let at = scores[r].add(t * TILE);
                if cap.is_none() && job.bias.is_none() {
                    s.scale(at, job.scale, lanes, &mut top[r]);
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

/// The state of the softmax of `R` rows, which is computed block by block: the largest score so far, and the sum of the
/// weights.
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

    /// Turns the scores of a block of positions into weights. `top` has the largest score of each row in this block. If
    /// it is the largest score of the row so far, the row's `sums` and its total are rescaled to it.
    ///
    /// # Safety
    ///
    /// The scores of all tiles that a row attends to are written, and `sums` has `R` rows of `width` floats.
    #[allow(clippy::needless_range_loop)] // several arrays are indexed by `r`
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
                // Nothing is rescaled before the first score, because the sums are zero.
                if self.best[r] > f32::NEG_INFINITY {
                    let rescale = s.exp(s.splat(self.best[r] - top));
                    self.total[r] = self.total[r].mul(rescale);
                    for i in (0..width).step_by(16) {
                        // SAFETY: `width` is a multiple of 16, and row `r` is inside `sums`.
                        let sums = unsafe { &mut *sums.as_mut_ptr().add(r * width + i).cast() };
                        s.load(sums).mul(rescale).store(sums);
                    }
                }
                self.best[r] = top;
            }
            for t in seen[r].tiles() {
                // SAFETY: the scores of this tile are written, and the lanes are not empty.
                unsafe { s.softmax(scores[r].add(t * TILE), self.best[r], seen[r].lanes(t), &mut self.total[r]) };
            }
        }
    }
}

/// Queries with fewer elements than this are copied to arrays of this length. The distance between the copies is then a
/// little more than a power of two, so that they do not compete for the same places of the cache.
const NARROW: usize = 128 + 16;

/// Adds the values of a block of positions, each times its weight, to `sums`. Positions that all rows attend to are
/// processed for all rows together, and the positions before and after these are processed row by row. Invisible
/// positions are not read, because their memory may hold anything, even NaN.
///
/// # Safety
///
/// The values of each tile are readable at the offsets of `layout`, the weights of all tiles that a row attends to are
/// written, and `sums` has `R` rows.
#[inline(always)]
unsafe fn weigh_rows<S: Isa, E: Values, const R: usize, const N: usize>(
    s: S,
    tiles: &[Tile; TILES],
    layout: HeadLayout,
    weights: &[MaybeUninit<[f32; BLOCK]>; R],
    seen: &[Range; R],
    sums: *mut f32,
) {
    if R == 1 {
        return s.apart(Weigh::<E, R, N> { tiles, layout, weights, range: seen[0], sums, elements: PhantomData });
    }
    let common = Range { lo: seen[R - 1].lo, hi: seen[0].hi };
    let end = seen[R - 1].hi;
    let common = if common.lo < common.hi { common } else { Range { lo: end, hi: end } };
    for after in [false, true] {
        if after && common.lo < common.hi {
            s.apart(Weigh::<E, R, N> { tiles, layout, weights, range: common, sums, elements: PhantomData });
        }
        for (r, (seen, weights)) in seen.iter().zip(weights).enumerate() {
            let range = match after {
                false => Range { lo: seen.lo, hi: seen.hi.min(common.lo) },
                true => Range { lo: seen.lo.max(common.hi), hi: seen.hi },
            };
            if range.lo < range.hi {
                // SAFETY: `r` is one of the rows of `sums`.
                let sums = unsafe { sums.add(r * layout.padded()) };
                let weights = core::array::from_ref(weights);
                s.apart(Weigh::<E, 1, 1> { tiles, layout, weights, range, sums, elements: PhantomData });
            }
        }
    }
}

/// Does the same as [`weigh_rows`], for a cache in which a value is the first elements of the position's key. One tile
/// at a time, these elements are converted to rows of f32 in `values`.
///
/// # Safety
///
/// Each of `tiles` is a complete tile of `layout`, and the other conditions of [`weigh_rows`] hold.
#[inline(always)]
unsafe fn weigh_keys<S: Isa, K: Keys, const R: usize, const N: usize>(
    s: S,
    tiles: &[Tile; TILES],
    layout: HeadLayout,
    weights: &[MaybeUninit<[f32; BLOCK]>; R],
    seen: &[Range; R],
    sums: *mut f32,
    values: &mut [f32],
) {
    let rows = HeadLayout { kind: KvType::F32, dim: layout.shared, shared: 0 };
    let width = rows.padded();
    let Some(values) = values.get_mut(..TILE * width) else { return };
    for t in (Range { lo: seen[0].lo, hi: seen[R - 1].hi }).tiles() {
        let Some(tile) = tiles.get(t) else { return };
        s.apart(Convert::<K> { tile: tile.at, layout, values, width, elements: PhantomData });
        let at = values.as_ptr().cast::<u8>().wrapping_sub(rows.values());
        let cut = |position: usize| position.max(t * TILE).min(t * TILE + TILE);
        let mut seen = *seen;
        seen.iter_mut().for_each(|seen| *seen = Range { lo: cut(seen.lo), hi: cut(seen.hi) });
        // SAFETY: the visible positions are limited to this tile, whose values are the rows just written.
        unsafe { weigh_rows::<S, F32, R, N>(s, &[Tile { at, later: at }; TILES], rows, weights, &seen, sums) };
    }
}

/// Converts the values of a tile to rows of `width` floats, in caches where a value is not stored separately because it
/// is the first part of the key.
struct Convert<'a, K> {
    tile: *const u8,
    layout: HeadLayout,
    values: &'a mut [f32],
    width: usize,
    elements: PhantomData<K>,
}

impl<S: Isa, K: Keys> Work<S> for Convert<'_, K> {
    #[inline(always)]
    fn run(self, s: S) {
        let Self { tile, layout, values, width, .. } = self;
        for first in (0..layout.shared).step_by(16) {
            let mut columns = [[0.0f32; TILE]; 16];
            for (d, column) in (first..layout.shared).zip(&mut columns) {
                // SAFETY: the tile is complete, and the key has this element.
                unsafe { K::keys(s, tile, layout, d) }.store(column);
            }
            for (slot, row) in values.chunks_exact_mut(width.max(1)).enumerate() {
                for (to, column) in row.iter_mut().skip(first).zip(&columns) {
                    *to = column.get(slot).copied().unwrap_or(0.0);
                }
            }
        }
    }
}

/// The weighted sums of attention: adds the values at the positions `range` of a block, each times its weight, to the
/// sums of `R` rows, `N` registers at a time. Whoever builds a `Weigh` promises what [`weigh_rows`] requires, and that
/// all rows attend to `range`.
struct Weigh<'a, E, const R: usize, const N: usize> {
    tiles: &'a [Tile; TILES],
    layout: HeadLayout,
    weights: &'a [MaybeUninit<[f32; BLOCK]>; R],
    range: Range,
    sums: *mut f32,
    elements: PhantomData<E>,
}

impl<S: Isa, E: Values, const R: usize, const N: usize> Work<S> for Weigh<'_, E, R, N> {
    #[inline(always)]
    fn run(self, s: S) {
        let Self { tiles, layout, weights, range, sums, .. } = self;
        let width = layout.padded();
        let mut i = 0;
        // SAFETY: whoever builds `self` promises the conditions of this function; `width` and `i` are multiples of 16,
        // so `i + 16 * N <= width` in the first branch and `i + 16 <= width` in the second.
        unsafe {
            while i < width {
                i += if N > 1 && width - i >= 16 * N {
                    weigh_elements::<S, E, R, N>(s, tiles, layout, weights, range, sums, i)
                } else {
                    weigh_elements::<S, E, R, 1>(s, tiles, layout, weights, range, sums, i)
                };
            }
        }
    }
}

/// Adds the weighted values for [`Weigh`], but only elements `i..i + 16 * N` of the values. Returns `16 * N`.
#[inline(always)]
unsafe fn weigh_elements<S: Isa, E: Values, const R: usize, const N: usize>(
    s: S,
    tiles: &[Tile; TILES],
    layout: HeadLayout,
    weights: &[MaybeUninit<[f32; BLOCK]>; R],
    range: Range,
    sums: *mut f32,
    i: usize,
) -> usize {
    let (width, bytes) = (layout.padded(), layout.value_bytes());
    // SAFETY: the values and scales of the caller's tiles are readable, `hi <= BLOCK`, the weights of all tiles that the
    // range touches are written, and `sums` has R rows of `width`, which contain elements `i..i + 16 * N`.
    unsafe {
        let mut acc = [[s.splat(0.0); R]; N];
        for (n, acc) in acc.iter_mut().enumerate() {
            for (r, acc) in acc.iter_mut().enumerate() {
                *acc = s.load(&*sums.add(r * width + i + 16 * n).cast());
            }
        }
        for t in range.tiles() {
            let (Some(tile), lanes) = (tiles.get(t), range.lanes(t)) else { break };
            let mut at = value_at(tile.at, layout, lanes.start);
            let mut later = value_at(tile.later, layout, lanes.start).wrapping_add(E::offset(i));
            // For each row and group of 16 elements, the weights of the tile's positions, multiplied by the scales of
            // the values if the values have scales.
            let mut scaled = [[MaybeUninit::<[f32; TILE]>::uninit(); R]; N];
            let mut factors = [[core::ptr::null::<f32>(); R]; N];
            for (n, (factors, scaled)) in factors.iter_mut().zip(&mut scaled).enumerate() {
                let scales = E::scales(s, tile.at, layout, i + 16 * n);
                for ((factors, scaled), weights) in factors.iter_mut().zip(scaled).zip(weights) {
                    *factors = weights.as_ptr().cast::<f32>().add(t * TILE);
                    if let Some(scales) = scales {
                        s.load(&*factors.cast()).mul(scales).store(&mut *scaled.as_mut_ptr());
                        *factors = scaled.as_ptr().cast();
                    }
                }
            }
            if let (1, Some(elements)) = (S::ROWS, E::elements(i)) {
                for (acc, factors) in acc.iter_mut().flatten().zip(factors.iter().flatten()) {
                    let (at, x) = (at.wrapping_add(E::offset(i)), factors.wrapping_add(lanes.start));
                    *acc = s.add_rows(elements, *acc, at, bytes, x, lanes.len());
                }
                continue;
            }
            for slot in lanes {
                if R < 4 {
                    s.prefetch(later);
                    later = later.wrapping_add(bytes);
                }
                for (n, (acc, factors)) in acc.iter_mut().zip(&factors).enumerate() {
                    let value = E::value(s, at, i + 16 * n);
                    for (acc, factors) in acc.iter_mut().zip(factors) {
                        *acc = value.fma(s.splat(*factors.add(slot)), *acc);
                    }
                }
                at = at.wrapping_add(bytes);
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
