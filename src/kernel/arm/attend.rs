//! Attention over keys and values in f32, row by row.
//!
//! As [`attention::attend`] does it, with nothing between the loops that is not needed for one row of plain scores.

use core::mem::MaybeUninit;

use super::attention::{add_rows, add_sixteens, multiply, normalize, scores};
use super::exp::{exp, weigh};
use super::float::{Fpu, ZEROS};
use crate::kernel::attention::{self, Attention};
use crate::kernel::scalar::Scalar;
use crate::memory::{KvType, TILE};

/// Positions in a block.
const BLOCK: usize = 64;

/// [`Kernels::attend`](crate::kernel::Kernels).
pub(super) unsafe fn attend(job: &Attention<'_>, out: &mut [f32], out_stride: usize, scratch: &mut [f32]) {
    let (dim, width) = (job.layout.dim, job.layout.padded());
    if const { !KvType::F32.is_built() }
        || job.layout.kind != KvType::F32
        || !job.is_plain()
        || dim == 0
        || !dim.is_multiple_of(4)
    {
        return any(job, out, out_stride, scratch);
    }
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
        let (first, mut i) = (Part::of(&shape.tiles, lo / BLOCK * BLOCK, (lo, hi)), 0);
        for head in job.tiles.chunks_exact(shape.tiles.head.max(1)).take(job.heads) {
            for _ in 0..job.group {
                // SAFETY: the query and its output are among those of the heads, `sums` has the room of a padded value, and
                // the head has all tiles.
                unsafe { row(&shape, &first, hi, head.as_ptr().cast(), q.as_ptr().add(i), out.as_mut_ptr().add(i)) };
                i += dim;
            }
        }
    }
}

/// What else there is.
#[inline(never)]
fn any(job: &Attention<'_>, out: &mut [f32], out_stride: usize, scratch: &mut [f32]) {
    attention::attend(Scalar::<Fpu>::HERE, job, out, out_stride, scratch);
}

/// Where the tiles of each head are.
struct Tiles<'a> {
    pages: &'a [u32],
    /// Bytes of a head, and of a tile.
    head: usize,
    bytes: usize,
    last: usize,
    /// Elements from a tile's start to its values.
    values: usize,
}

impl<'a> Tiles<'a> {
    /// `None` if there are none.
    fn new(job: &Attention<'a>) -> Option<Self> {
        let (bytes, head) = (job.layout.tile_bytes(), job.tiles.len().checked_div(job.heads)?);
        let last = head.checked_div(bytes)?.checked_sub(1)?;
        let is_empty = job.pages.is_empty();
        (!is_empty).then_some(Self { pages: job.pages, head, bytes, last, values: job.layout.values() / 4 })
    }

    /// Where a tile is, in bytes from a head's start: within it, whatever the table says.
    #[inline(always)]
    fn at(&self, tile: usize) -> *const f32 {
        let entry = tile.checked_rem(self.pages.len()).and_then(|entry| self.pages.get(entry));
        let page = entry.map_or(0, |page| *page as usize).min(self.last);
        core::ptr::without_provenance(page * self.bytes)
    }
}

/// What all rows have in common.
struct Shape<'a> {
    tiles: Tiles<'a>,
    scale: f32,
    dim: usize,
    width: usize,
    sums: *mut f32,
}

/// The positions of a block that a token sees, counted from the first tile that has some.
struct Part {
    /// Where the tiles are.
    at: [*const f32; BLOCK / TILE],
    /// The first, and one past the last.
    lane: usize,
    end: usize,
    /// The next block.
    next: usize,
}

impl Part {
    #[inline(always)]
    fn of(tiles: &Tiles<'_>, block: usize, (lo, hi): (usize, usize)) -> Self {
        let lo = lo.max(block);
        let first = lo / TILE;
        let (start, mut tile, next) = (first * TILE, first, block + BLOCK);
        let at = [(); BLOCK / TILE].map(|()| {
            tile += 1;
            tiles.at(tile - 1)
        });
        Self { at, lane: lo - start, end: hi.min(next) - start, next }
    }
}

/// One query over the positions that it sees, one at least, of the head whose tiles begin at `base`: those of the first
/// block, which may be all, then the others.
///
/// # Safety
///
/// There are the query and room for a value at `out` and for a padded one at the shape's sums; the head has all tiles, each
/// with a row of sixteen keys for every number of the query and sixteen rows of the shape's width.
#[inline(always)]
unsafe fn row(shape: &Shape<'_>, first: &Part, hi: usize, base: *const f32, q: *const f32, out: *mut f32) {
    // A block, and as many again as a tile has.
    let mut weights = MaybeUninit::<[f32; BLOCK + TILE]>::uninit();
    let mut total = MaybeUninit::<[f32; TILE]>::uninit();
    let (weights, total) = (weights.as_mut_ptr().cast::<f32>(), total.as_mut_ptr().cast::<f32>());
    let Shape { scale, dim, sums, .. } = *shape;
    // SAFETY: as the caller says.
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

/// The same for the other blocks, beside which the sums so far may count for less.
///
/// # Safety
///
/// As for [`row`]: there are weights of a block, and totals.
#[inline(never)]
unsafe fn later(
    shape: &Shape<'_>,
    (mut block, hi): (usize, usize),
    (base, q): (*const f32, *const f32),
    weights: *mut f32,
    (mut best, total): (f32, *mut f32),
) {
    while block < hi {
        let part = Part::of(&shape.tiles, block, (block, hi));
        // SAFETY: as the caller says.
        unsafe {
            let top = scores(base, part.at.as_ptr(), (q, shape.dim), shape.scale, (part.lane, part.end), weights);
            if top > best {
                let mut rescale = [best - top; 4];
                exp(rescale.as_mut_ptr(), 0.0, 1);
                multiply(total, total, rescale[0], TILE);
                multiply(shape.sums, shape.sums, rescale[0], shape.width);
                best = top;
            }
            weigh(weights, part.lane, part.end, best);
            add_sixteens(weights, weights.add(part.end), total, total);
            add_values(shape, &part, base, weights, (shape.sums, 16));
        }
        block = part.next;
    }
}

/// Adds the values of a part, by weight, to the sums, which are so far at a place, and so far apart.
///
/// # Safety
///
/// As for [`row`].
#[inline(always)]
unsafe fn add_values(
    shape: &Shape<'_>,
    part: &Part,
    base: *const f32,
    weights: *const f32,
    (mut from, step): (*const f32, usize),
) {
    let rows = (part.end - part.lane, TILE - part.lane);
    for i in (0..shape.width).step_by(16) {
        // SAFETY: as the caller says.
        unsafe {
            let (values, to) = (base.wrapping_add(shape.tiles.values + i), shape.sums.add(i));
            let lanes = (shape.width, shape.dim - i);
            add_rows(values, part.at.as_ptr(), part.lane * shape.width, rows, lanes, weights.add(part.lane), from, to);
            from = from.add(step);
        }
    }
}
