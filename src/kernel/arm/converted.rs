//! Attention over keys and values of other types than f32: sixteen rows of a tile are converted to floats at a time,
//! once for up to three query rows.
//!
//! Computes the same as [`attention::attend`](crate::kernel::attention::attend), for scores without cap, bias and
//! sinks, and values that are not parts of keys.

use core::mem::MaybeUninit;

use super::assembly::ZEROS;
use super::attention::{add_sixteens, largest, multiply, sum, sum_rows};
use super::exp::exp;
use super::float::add_products;
use super::rows::convert;
use super::tiles::Tiles;
use crate::kernel::attention::Attention;
use crate::kernel::attention::tiles::{BLOCK, Range};
use crate::kernel::lanes::Elements;
use crate::memory::kv::Store;
use crate::memory::{HeadLayout, KvType, TILE};

/// Maximum number of query rows that share one conversion of keys and values to floats. With more rows, attention would
/// need more stack than the rest of a pass.
const ROWS: usize = 3;

/// If a fused multiply-add starts with negative zeros, its result is the product itself, also if the product is a
/// negative zero.
static NEGATIVE_ZEROS: [f32; 16] = [-0.0; 16];

/// A query row and its softmax so far.
struct Row {
    q: *const f32,
    out: *mut f32,
    /// The positions that the row attends to.
    visible: Range,
    /// The largest score.
    best: f32,
    /// The sum of the weights, in sixteen lanes.
    total: [f32; 16],
    /// The sum of the values, each times its weight.
    sums: *mut f32,
    /// The scores of a block of positions, later replaced by the weights. The last 16 floats are scratch memory: for
    /// the sums over a block of dimensions, then for the weights of a tile, multiplied by the scales of the values.
    scores: *mut f32,
}

/// Does the same as [`attend`](super::attend::attend), for caches of a type other than f32. Only for jobs with
/// [`Attention::is_plain`] whose values are stored separately.
#[inline(never)]
pub(super) fn attend(job: &Attention<'_>, out: &mut [f32], out_stride: usize, scratch: &mut [f32]) {
    let (dim, width, count) = (job.layout.dim, job.layout.padded(), job.tokens * job.group);
    let Some(tiles) = Tiles::new(job).filter(|_| job.layout.kind.is_built()) else { return };
    for (head, memory) in job.tiles.chunks_exact(tiles.head.max(1)).take(job.heads).enumerate() {
        for first in (0..count).step_by(ROWS) {
            let mut scores = [const { MaybeUninit::<[f32; BLOCK + TILE]>::uninit() }; ROWS];
            let mut rows = [const { MaybeUninit::uninit() }; ROWS];
            let Some(rows) = rows.get_mut(..ROWS.min(count - first)) else { return };
            let Some(sums) = scratch.get_mut(..rows.len() * width) else { return };
            sums.fill(0.0);
            let room = sums.chunks_exact_mut(width.max(1)).zip(&mut scores);
            for (i, (row, (sums, scores))) in rows.iter_mut().zip(room).enumerate() {
                let (token, query) = job.token_and_head(first + i);
                let start = (head * job.group + query) * dim;
                let (q, out) = (job.q.get(token * job.q_stride + start..), out.get_mut(token * out_stride + start..));
                let (Some(q), Some(out)) = (q.and_then(|q| q.get(..dim)), out.and_then(|out| out.get_mut(..dim)))
                else {
                    return;
                };
                let (lo, hi) = job.visible(token);
                row.write(Row {
                    q: q.as_ptr(),
                    out: out.as_mut_ptr(),
                    visible: Range { lo, hi },
                    best: f32::NEG_INFINITY,
                    total: [0.0; TILE],
                    sums: sums.as_mut_ptr(),
                    scores: scores.as_mut_ptr().cast(),
                });
            }
            // SAFETY: all rows are written; each has a query, and room for its output, its padded sums and its scores.
            // The head has every tile that `Tiles::at` can return.
            unsafe {
                let rows = &mut *(core::ptr::from_mut(rows) as *mut [Row]);
                run(&tiles, job.layout, job.scale, memory.as_ptr(), rows);
            }
        }
    }
}

/// Attends with `rows`, which are in order of their positions, to a head whose tiles begin at `base`.
///
/// # Safety
///
/// Each row points to a query, and to room for its output, the padded sums and the scores. The head has all tiles.
#[inline(always)]
unsafe fn run(tiles: &Tiles<'_>, layout: HeadLayout, scale: f32, base: *const u8, rows: &mut [Row]) {
    let (Some(first), Some(last)) = (rows.first(), rows.last()) else { return };
    let reach = Range { lo: first.visible.lo, hi: last.visible.hi };
    let width = layout.padded();
    for block in (reach.lo / BLOCK * BLOCK..reach.hi).step_by(BLOCK) {
        let seen = reach.clip(block, BLOCK);
        // SAFETY: the caller promises that the rows and tiles are valid. `score` writes the scores of every tile that a
        // row attends to, and `weigh` then replaces the scores by weights.
        unsafe {
            for t in seen.tiles() {
                score(layout, base.add(tiles.at(block / TILE + t)), rows, t);
            }
            for row in &mut *rows {
                row.weigh(scale, block, width);
            }
            for t in seen.tiles() {
                add_values(layout, base.add(tiles.at(block / TILE + t)), rows, block, seen, t);
            }
        }
    }
    for row in rows {
        // SAFETY: the caller promises the output and the sums.
        unsafe { multiply(row.sums, row.out, 1.0 / sum(row.total.as_ptr()), layout.dim) };
    }
}

/// Returns the element type of elements `16 * i..16 * i + 16` of a value in the cache, and the offset of these elements
/// in bytes.
fn sixteen(store: Store, i: usize) -> (Elements, usize) {
    match store {
        Store::Q8 => (Elements::I8, 16 * i),
        Store::Q4 => (Elements::I4 { high: !i.is_multiple_of(2) }, i / 2 * 16),
        Store::F32 | Store::F16 => (Elements::F16, 32 * i),
    }
}

/// True if each 32 elements have a scale.
fn has_scales(layout: HeadLayout) -> bool {
    (KvType::Q8_0.is_built() || KvType::Q4_0.is_built()) && layout.kind != KvType::F16
}

/// Multiplies each row's query with the keys of tile `t` of a block, and stores the dot products in the row's scores.
///
/// # Safety
///
/// Each row points to a query, and the tile may be read.
#[inline(always)]
unsafe fn score(layout: HeadLayout, tile: *const u8, rows: &mut [Row], t: usize) {
    let (mut keys, mut scales) = (MaybeUninit::<[[f32; 16]; TILE]>::uninit(), MaybeUninit::<[f32; TILE]>::uninit());
    let (keys, scales) = (keys.as_mut_ptr().cast::<f32>(), scales.as_mut_ptr().cast::<f32>());
    let scaled = has_scales(layout);
    for i in 0..layout.dim.div_ceil(16) {
        let n = (layout.dim - 16 * i).min(16);
        let (elements, offset) = sixteen(layout.kind.keys(), i);
        // The sums of a block of dimensions end with this group.
        let ends = scaled && (i % 2 == 1 || 16 * i + 16 >= layout.dim);
        // SAFETY: the caller promises the tile, which has a row of 16 keys per dimension, and the query; the buffers
        // have room for 16 rows, and the scores for a block and 16 more.
        unsafe {
            convert(elements, keys, tile.add(TILE * offset), if scaled { TILE } else { 2 * TILE }, n);
            if ends {
                convert(Elements::F16, scales, tile.add(layout.key_scales() + i / 2 * 2 * TILE), 0, 1);
            }
            for row in &mut *rows {
                let score = row.scores.add(t * TILE);
                let sums = if scaled { row.scores.add(BLOCK) } else { score };
                let is_first = i == 0 || scaled && i % 2 == 0;
                sum_rows(keys, row.q.add(16 * i), n, if is_first { ZEROS.as_ptr() } else { sums }, sums);
                if ends {
                    add_products(sums, scales, if i < 2 { ZEROS.as_ptr() } else { score }, score);
                }
            }
        }
    }
}

impl Row {
    /// Turns the scores of the block of positions that begins at `block` into weights. If one of these scores is the
    /// largest so far, the sums of the earlier blocks are rescaled.
    ///
    /// # Safety
    ///
    /// The scores of every tile that the row attends to are written, and the sums have `width` floats.
    #[inline(always)]
    unsafe fn weigh(&mut self, scale: f32, block: usize, width: usize) {
        let Range { lo, hi } = self.visible.clip(block, BLOCK);
        if lo >= hi {
            return;
        }
        let (scores, total) = (self.scores, self.total.as_mut_ptr());
        let first = lo / TILE * TILE;
        // SAFETY: the caller promises that the scores of the tiles from `first` to `hi` are written, and that the row's
        // sums are valid.
        unsafe {
            let at = scores.add(first);
            multiply(at, at, scale, hi - first);
            let top = largest(scores.add(lo), hi - lo);
            if top > self.best {
                // Before the first score, there is nothing to rescale, because all sums are zero.
                if self.best > f32::NEG_INFINITY {
                    let mut rescale = [self.best - top; 4];
                    exp(rescale.as_mut_ptr(), 0.0, 1);
                    multiply(total, total, rescale[0], TILE);
                    multiply(self.sums, self.sums, rescale[0], width);
                }
                self.best = top;
            }
            let whole = lo & !3;
            exp(scores.add(whole), self.best, (hi - whole).div_ceil(4));
            for i in (first..lo).chain(hi..hi.next_multiple_of(TILE)) {
                scores.add(i).write(0.0);
            }
            add_sixteens(at, scores.add(hi), total, total);
        }
    }
}

/// Multiplies the values of tile `t` by their weights and adds them to the sums of each row. The tile belongs to the
/// block of positions that begins at `block`. `seen` has the positions of the block that a row attends to.
///
/// # Safety
///
/// The tile may be read, the weights of every row are written, and the sums of each row have room for a padded value.
#[inline(always)]
unsafe fn add_values(layout: HeadLayout, tile: *const u8, rows: &mut [Row], block: usize, seen: Range, t: usize) {
    let (mut values, mut scales) = (MaybeUninit::<[[f32; 16]; TILE]>::uninit(), MaybeUninit::<[f32; TILE]>::uninit());
    let (values, scales) = (values.as_mut_ptr().cast::<f32>(), scales.as_mut_ptr().cast::<f32>());
    let (bytes, lanes) = (layout.value_bytes(), seen.lanes(t));
    for i in 0..layout.padded() / 16 {
        let (elements, offset) = sixteen(layout.kind.values(), i);
        // SAFETY: the caller promises the tile, weights and sums; the buffers have room for 16 rows.
        unsafe {
            let at = tile.add(layout.values() + offset + lanes.start * bytes);
            convert(elements, values, at, bytes, lanes.len());
            let is_first = has_scales(layout) && i % 2 == 0;
            if is_first {
                convert(Elements::F16, scales, tile.add(layout.value_scales() + i / 2 * 2 * TILE), 0, 1);
            }
            for row in &mut *rows {
                let own = row.visible.clip(block, BLOCK).lanes(t);
                if own.is_empty() {
                    continue;
                }
                let mut weights = row.scores.add(t * TILE);
                let scaled = row.scores.add(BLOCK);
                if is_first {
                    add_products(weights, scales, NEGATIVE_ZEROS.as_ptr(), scaled);
                }
                if has_scales(layout) {
                    weights = scaled;
                }
                let (value, sums) = (values.add((own.start - lanes.start) * 16), row.sums.add(16 * i));
                sum_rows(value, weights.add(own.start), own.len(), sums, sums);
            }
        }
    }
}
