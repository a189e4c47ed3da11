//! Attention over keys and values in f32, row by row.
//!
//! As [`attention::attend`] does it, with nothing between the loops that is not needed for one row of plain scores.

use core::mem::MaybeUninit;

use super::attention::{add_rows, clear, largest, multiply, scores, sum};
use super::exp::softmax;
use super::float::Fpu;
use crate::kernel::attention::{self, Attention};
use crate::kernel::scalar::Scalar;
use crate::memory::{KvType, TILE};

/// Positions in a block.
const BLOCK: usize = 64;

/// [`Kernels::attend`](crate::kernel::Kernels).
pub(super) unsafe fn attend(job: &Attention<'_>, out: &mut [f32], out_stride: usize, scratch: &mut [f32]) {
    if const { !KvType::F32.is_built() } || job.layout.kind != KvType::F32 || !job.is_plain() {
        return any(job, out, out_stride, scratch);
    }
    let (dim, width) = (job.layout.dim, job.layout.padded());
    let (Some(sums), Some(tiles)) = (scratch.get_mut(..width), Tiles::new(job)) else { return };
    for token in 0..job.tokens {
        let seen = job.visible(token);
        let heads = (job.q.get(token * job.q_stride..), out.get_mut(token * out_stride..));
        let (Some(mut q), Some(mut out)) = heads else { return };
        if seen.0 >= seen.1 {
            continue;
        }
        for _ in 0..job.group {
            let heads = (q.split_at_checked(dim), out.split_at_mut_checked(dim));
            let (Some((head, others)), Some((to, rest))) = heads else { return };
            row(&tiles, head, job.scale, seen, sums, to);
            (q, out) = (others, rest);
        }
    }
}

/// What else there is.
#[inline(never)]
fn any(job: &Attention<'_>, out: &mut [f32], out_stride: usize, scratch: &mut [f32]) {
    attention::attend(Scalar::<Fpu>::HERE, job, out, out_stride, scratch);
}

/// A head's tiles.
struct Tiles<'a> {
    all: &'a [u8],
    pages: &'a [u32],
    bytes: usize,
    last: usize,
    /// Elements from a tile's start to its values.
    values: usize,
}

impl<'a> Tiles<'a> {
    /// `None` if there are none.
    fn new(job: &Attention<'a>) -> Option<Self> {
        let bytes = job.layout.tile_bytes();
        let last = job.tiles.len().checked_div(bytes)?.checked_sub(1)?;
        let is_empty = job.pages.is_empty();
        (!is_empty).then_some(Self { all: job.tiles, pages: job.pages, bytes, last, values: job.layout.values() / 4 })
    }

    /// Where a tile is: within them, whatever the table says.
    #[inline(always)]
    fn at(&self, tile: usize) -> *const f32 {
        let entry = tile.checked_rem(self.pages.len()).and_then(|entry| self.pages.get(entry));
        let page = entry.map_or(0, |page| *page as usize).min(self.last);
        self.all.as_ptr().wrapping_add(page * self.bytes).cast()
    }
}

/// One query over the positions that it sees, one at least: `sums` has the room of a padded value, `out` that of a value.
fn row(tiles: &Tiles<'_>, q: &[f32], scale: f32, (lo, hi): (usize, usize), sums: &mut [f32], out: &mut [f32]) {
    let (width, sums) = (sums.len(), sums.as_mut_ptr());
    let mut weights = MaybeUninit::<[f32; BLOCK]>::uninit();
    let mut total = MaybeUninit::<[f32; 16]>::uninit();
    let (weights, total) = (weights.as_mut_ptr().cast::<f32>(), total.as_mut_ptr().cast::<f32>());
    let mut best = f32::NEG_INFINITY;
    // SAFETY: there is room for the weights of a block and for these sums; `at` has the tiles of all positions that are
    // named, each with a row of sixteen keys for every number of `q` and sixteen rows of `width`.
    unsafe {
        clear(total, 16);
        clear(sums, width);
        let mut block = lo / BLOCK * BLOCK;
        while block < hi {
            let (from, to) = (lo.saturating_sub(block), (hi - block).min(BLOCK));
            let (first, lane) = (from / TILE, from % TILE);
            let mut at = [core::ptr::null(); BLOCK / TILE];
            for (tile, at) in (block / TILE + first..(block + to).div_ceil(TILE)).zip(&mut at) {
                *at = tiles.at(tile);
            }
            let start = weights.add(TILE * first);
            scores(at.as_ptr(), q, scale, to - TILE * first, start);
            let top = largest(start.add(lane), to - from);
            if top > best {
                if best > f32::NEG_INFINITY {
                    let mut rescale = best - top;
                    softmax(&raw mut rescale, 0.0, 0..1, MaybeUninit::<[f32; 16]>::uninit().as_mut_ptr().cast());
                    multiply(total, total, rescale, 16);
                    multiply(sums, sums, rescale, width);
                }
                best = top;
            }
            softmax(start, best, lane..lane + to - from, total);
            for i in (0..width).step_by(16) {
                let skip = (tiles.values + i, lane * width);
                add_rows(at.as_ptr(), skip, (to - from, TILE - lane), width, start.add(lane), q.len() - i, sums.add(i));
            }
            block += BLOCK;
        }
        multiply(sums, out.as_mut_ptr(), 1.0 / sum(total), out.len());
    }
}
