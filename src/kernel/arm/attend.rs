//! Attention over f32 keys and values, row by row.
//!
//! Computes the same as [`attention::attend`], one row at a time. Only scores without cap, bias and sinks are
//! supported. [`converted`] has the same for the other types of the cache.

use core::mem::MaybeUninit;

use super::assembly::ZEROS;
use super::attention::{add_rows, add_sixteens, multiply, normalize, scores};
use super::converted;
use super::exp::{exp, weigh};
use super::float::Fpu;
use super::tiles::Tiles;
use crate::kernel::attention::{self, Attention};
use crate::kernel::scalar::Scalar;
use crate::memory::{KvType, TILE};

/// Positions per block.
const BLOCK: usize = 64;

/// [`Kernels::attend`](crate::kernel::Kernels).
pub(super) unsafe fn attend(job: &Attention<'_>, out: &mut [f32], out_stride: usize, scratch: &mut [f32]) {
    let dim = job.layout.dim;
    if !job.is_plain() || job.layout.shares() {
        any(job, out, out_stride, scratch);
    } else if const { !KvType::F32.is_built() } || job.layout.kind != KvType::F32 {
        converted::attend(job, out, out_stride, scratch);
    } else if dim == 0 || !dim.is_multiple_of(4) {
        any(job, out, out_stride, scratch);
    } else {
        floats(job, out, out_stride, scratch);
    }
}

/// Attention over f32 keys and values, whose length is a multiple of four.
#[inline(never)]
fn floats(job: &Attention<'_>, out: &mut [f32], out_stride: usize, scratch: &mut [f32]) {
    let (dim, width) = (job.layout.dim, job.layout.padded());
    let (Some(sums), Some(tiles)) = (scratch.get_mut(..width), Tiles::new(job)) else { return };
    let shape = Shape { tiles, scale: job.scale, dim, width, sums: sums.as_mut_ptr() };
    let queries = job.heads * job.group * dim;
    for token in 0..job.tokens {
        let (q, out) = (job.q.get(token * job.q_stride..), out.get_mut(token * out_stride..));
        let (Some(q), Some(out)) = (q.and_then(|q| q.get(..queries)), out.and_then(|out| out.get_mut(..queries)))
        else {
            return;
        };
        let (lo, hi) = job.visible(token);
        if lo >= hi {
            continue;
        }
        let (first, mut i) = (BlockRange::of(&shape.tiles, lo / BLOCK * BLOCK, (lo, hi)), 0);
        for head in job.tiles.chunks_exact(shape.tiles.head.max(1)).take(job.heads) {
            for _ in 0..job.group {
                // SAFETY: the query and its output are inside the slices of `queries` floats, `sums` has room for a
                // padded value, and the head has every tile that `Tiles::at` can return.
                unsafe { row(&shape, &first, hi, head.as_ptr().cast(), q.as_ptr().add(i), out.as_mut_ptr().add(i)) };
                i += dim;
            }
        }
    }
}

/// Attention in all cases that [`attend`] has no assembly for.
#[inline(never)]
fn any(job: &Attention<'_>, out: &mut [f32], out_stride: usize, scratch: &mut [f32]) {
    attention::attend(Scalar::<Fpu>::HERE, job, out, out_stride, scratch);
}

/// The parameters that all rows share.
struct Shape<'a> {
    tiles: Tiles<'a>,
    scale: f32,
    dim: usize,
    width: usize,
    sums: *mut f32,
}

/// The positions of a block that a token attends to. They are counted from the start of the first tile that contains
/// one of them.
struct BlockRange {
    /// For each tile of the block, the distance in bytes from the start of a head's keys or values to the tile.
    at: [*const f32; BLOCK / TILE],
    /// The first position, and one past the last.
    lane: usize,
    end: usize,
    /// The first position of the next block.
    next: usize,
}

impl BlockRange {
    #[inline(always)]
    fn of(tiles: &Tiles<'_>, block: usize, (lo, hi): (usize, usize)) -> Self {
        let lo = lo.max(block);
        let first = lo / TILE;
        let (start, mut tile, next) = (first * TILE, first, block + BLOCK);
        let at = [(); BLOCK / TILE].map(|()| {
            tile += 1;
            core::ptr::without_provenance(tiles.at(tile - 1))
        });
        Self { at, lane: lo - start, end: hi.min(next) - start, next }
    }
}

/// Attends with the query at `q` to its visible positions in one head, whose tiles begin at `base`. `first` is the
/// first block with a visible position; [`later`] attends to the other blocks, up to position `hi`.
///
/// # Safety
///
/// `q` points to a query, `out` to room for a value, and the sums of `shape` to room for a padded value. The head has
/// all tiles, each with a row of sixteen keys per element of the query, and with sixteen value rows of the shape's
/// width.
#[inline(always)]
unsafe fn row(shape: &Shape<'_>, first: &BlockRange, hi: usize, base: *const f32, q: *const f32, out: *mut f32) {
    // Room for the scores of a block of positions, and for the zeros after the last score.
    let mut weights = MaybeUninit::<[f32; BLOCK + TILE]>::uninit();
    let mut total = MaybeUninit::<[f32; TILE]>::uninit();
    let (weights, total) = (weights.as_mut_ptr().cast::<f32>(), total.as_mut_ptr().cast::<f32>());
    let Shape { scale, dim, sums, .. } = *shape;
    // SAFETY: the caller promises query, tiles and room; `weigh` writes all weights and zeros that `add_sixteens`
    // reads.
    unsafe {
        let best = scores(base, first.at.as_ptr(), (q, dim), scale, (first.lane, first.end), weights);
        weigh(weights, first.lane, first.end, best);
        add_sixteens(weights.add(TILE), weights.add(first.end), weights, total);
        add_values(shape, first, base, weights, (ZEROS.as_ptr(), 0));
        if first.next < hi {
            later(shape, (first.next, hi), (base, q), weights, (best, total));
        }
        normalize(total, sums, out, dim);
    }
}

/// Attends to the blocks from position `block` to `hi`. If a score is larger than `best`, the sums so far are rescaled.
///
/// # Safety
///
/// The conditions of [`row`] hold; there is room for the weights of a block, and `total` has 16 sums.
#[inline(never)]
unsafe fn later(
    shape: &Shape<'_>,
    (mut block, hi): (usize, usize),
    (base, q): (*const f32, *const f32),
    weights: *mut f32,
    (mut best, total): (f32, *mut f32),
) {
    while block < hi {
        let range = BlockRange::of(&shape.tiles, block, (block, hi));
        // SAFETY: the caller promises query, tiles and room.
        unsafe {
            let top = scores(base, range.at.as_ptr(), (q, shape.dim), shape.scale, (range.lane, range.end), weights);
            if top > best {
                let mut rescale = [best - top; 4];
                exp(rescale.as_mut_ptr(), 0.0, 1);
                multiply(total, total, rescale[0], TILE);
                multiply(shape.sums, shape.sums, rescale[0], shape.width);
                best = top;
            }
            weigh(weights, range.lane, range.end, best);
            add_sixteens(weights, weights.add(range.end), total, total);
            add_values(shape, &range, base, weights, (shape.sums, 16));
        }
        block = range.next;
    }
}

/// Adds the values of a block of positions, each times its weight, to a row's sums in `shape.sums`. The start value of
/// sums `i..i + 16` is read from `from`, which then moves on by `step` floats: a `step` of 0 reads the same zeros for
/// all sums.
///
/// # Safety
///
/// The conditions of [`row`] hold, and the weights of the block are written.
#[inline(always)]
unsafe fn add_values(
    shape: &Shape<'_>,
    range: &BlockRange,
    base: *const f32,
    weights: *const f32,
    (mut from, step): (*const f32, usize),
) {
    let rows = (range.end - range.lane, TILE - range.lane);
    for i in (0..shape.width).step_by(16) {
        // SAFETY: the caller promises that the tiles and the sums are valid, and `i` is less than the number of sums.
        unsafe {
            let (values, to) = (base.wrapping_add(shape.tiles.values + i), shape.sums.add(i));
            let lanes = (shape.width, shape.dim - i);
            add_rows(
                values,
                range.at.as_ptr(),
                range.lane * shape.width,
                rows,
                lanes,
                weights.add(range.lane),
                from,
                to,
            );
            from = from.add(step);
        }
    }
}
