//! Reading keys and values of the three types of KV cache.

use super::tiles::Tile;
use crate::kernel::lanes::{Isa, Lanes};
use crate::memory::{HeadLayout, TILE};
use crate::quant::le_f16;

/// One element type of the KV cache.
///
/// # Safety
///
/// `scores` writes the scores of every tile. All reads, and all pointers from `values`, are inside a tile of the
/// layout.
pub unsafe trait Element {
    /// For each query, the dot products with the 16 keys of each tile, 16 after 16 from `to` on.
    unsafe fn scores<S: Isa, const R: usize, const N: usize>(
        s: S,
        tiles: [Tile; N],
        layout: HeadLayout,
        queries: &[&[f32]; R],
        to: [*mut f32; R],
    );
    /// Element `d` of the 16 keys of a tile.
    unsafe fn keys<S: Isa>(s: S, tile: *const u8, layout: HeadLayout, d: usize) -> S::V;
    /// Bytes of an element.
    const BYTES: usize;
    /// True if an element is an f32.
    const IS_F32: bool = false;
    /// Sixteen elements of a value, without their scale.
    unsafe fn value<S: Isa>(s: S, at: *const u8) -> S::V;
    /// The address of element `i` of the value at `position`. The value of the next position is a padded row later.
    #[inline(always)]
    fn values(tile: *const u8, layout: HeadLayout, position: usize, i: usize) -> *const u8 {
        tile.wrapping_add(layout.values() + (position * layout.padded() + i) * Self::BYTES)
    }
    /// The scale of that value.
    #[inline(always)]
    unsafe fn value_scale(_tile: *const u8, _layout: HeadLayout, _position: usize, _i: usize) -> f32 {
        1.0
    }
}

macro_rules! float_element {
    ($name:ident, $bytes:literal, $load:ident) => {
        pub struct $name;
        // SAFETY: `scores` stores a vector per tile and query; reads are inside the tile, as argued at each block.
        unsafe impl Element for $name {
            #[inline(always)]
            unsafe fn scores<S: Isa, const R: usize, const N: usize>(
                s: S,
                tiles: [Tile; N],
                layout: HeadLayout,
                queries: &[&[f32]; R],
                to: [*mut f32; R],
            ) {
                // SAFETY: keys are `dim` rows of 16 elements; each query has `dim` elements.
                unsafe {
                    let mut acc = [[s.splat(0.0); R]; N];
                    for d in 0..layout.dim {
                        for (tile, acc) in tiles.iter().zip(&mut acc) {
                            let at = d * (TILE * $bytes);
                            let key = s.$load(&*tile.at.add(at).cast());
                            s.prefetch(tile.later.wrapping_add(at));
                            for (acc, q) in acc.iter_mut().zip(queries) {
                                *acc = key.fma(s.splat(*q.get_unchecked(d)), *acc);
                            }
                        }
                    }
                    store_all(acc, to);
                }
            }
            #[inline(always)]
            unsafe fn keys<S: Isa>(s: S, tile: *const u8, _layout: HeadLayout, d: usize) -> S::V {
                // SAFETY: keys are rows of 16 elements.
                unsafe { s.$load(&*tile.add(d * (TILE * $bytes)).cast()) }
            }
            const BYTES: usize = $bytes;
            const IS_F32: bool = $bytes == 4;
            #[inline(always)]
            unsafe fn value<S: Isa>(s: S, at: *const u8) -> S::V {
                // SAFETY: the caller passes a pointer to 16 elements.
                unsafe { s.$load(&*at.cast()) }
            }
        }
    };
}
float_element!(F32, 4, load_f32);
float_element!(F16, 2, load_f16);

pub struct Q8;
// SAFETY: `scores` stores a vector per tile and query; reads are inside the tile, as argued at each block.
unsafe impl Element for Q8 {
    #[inline(always)]
    unsafe fn scores<S: Isa, const R: usize, const N: usize>(
        s: S,
        tiles: [Tile; N],
        layout: HeadLayout,
        queries: &[&[f32]; R],
        to: [*mut f32; R],
    ) {
        // SAFETY: keys are `dim` rows of 16 bytes, then one row of 16 f16 per 32 rows; each query has `dim` elements.
        unsafe {
            let mut acc = [[s.splat(0.0); R]; N];
            for block in 0..layout.blocks() {
                let mut sums = [[s.splat(0.0); R]; N];
                for d in block * 32..layout.dim.min(block * 32 + 32) {
                    for (tile, sums) in tiles.iter().zip(&mut sums) {
                        let key = s.load_i8(&*tile.at.add(d * TILE).cast());
                        for (sum, q) in sums.iter_mut().zip(queries) {
                            *sum = key.fma(s.splat(*q.get_unchecked(d)), *sum);
                        }
                    }
                }
                for (tile, (acc, sums)) in tiles.iter().zip(acc.iter_mut().zip(sums)) {
                    let scale = s.load_f16(&*tile.at.add(layout.key_scales() + block * TILE * 2).cast());
                    for (acc, sum) in acc.iter_mut().zip(sums) {
                        *acc = sum.fma(scale, *acc);
                    }
                }
            }
            store_all(acc, to);
        }
    }
    #[inline(always)]
    unsafe fn keys<S: Isa>(s: S, tile: *const u8, layout: HeadLayout, d: usize) -> S::V {
        // SAFETY: keys are rows of 16 bytes, then one row of 16 f16 per 32 rows.
        unsafe {
            let scale = s.load_f16(&*tile.add(layout.key_scales() + d / 32 * TILE * 2).cast());
            s.load_i8(&*tile.add(d * TILE).cast()).mul(scale)
        }
    }
    const BYTES: usize = 1;
    #[inline(always)]
    unsafe fn value<S: Isa>(s: S, at: *const u8) -> S::V {
        // SAFETY: the caller passes a pointer to 16 elements.
        unsafe { s.load_i8(&*at.cast()) }
    }
    #[inline(always)]
    unsafe fn value_scale(tile: *const u8, layout: HeadLayout, position: usize, i: usize) -> f32 {
        // SAFETY: after the values come 16 rows of `blocks` f16.
        unsafe {
            le_f16(tile.add(layout.value_scales() + (position * layout.blocks() + i / 32) * 2).cast::<[u8; 2]>().read())
        }
    }
}

/// Stores the scores of `N` tiles, tile after tile, for each row.
///
/// # Safety
///
/// Each pointer of `to` has room for `16 * N` floats.
#[inline(always)]
unsafe fn store_all<V: Lanes, const R: usize, const N: usize>(scores: [[V; R]; N], to: [*mut f32; R]) {
    for (n, scores) in scores.into_iter().enumerate() {
        for (score, to) in scores.into_iter().zip(to) {
            // SAFETY: the caller promises this room.
            unsafe { score.store(&mut *to.add(n * TILE).cast()) };
        }
    }
}
