//! Reads keys and values of each element type of the KV cache.

use core::ops::Range;

use super::tiles::Tile;
use crate::kernel::lanes::{Elements, Isa, Lanes};
use crate::memory::{HeadLayout, TILE};

/// The operations of attention on keys of one element type.
///
/// # Safety
///
/// An implementation of `scores` writes the scores of every tile. All methods read only inside the given tiles, as
/// `layout` describes them.
pub unsafe trait Keys {
    /// Computes the dot products of each query with the 16 keys of each tile. Stores a query's products at its pointer
    /// in `to`, tile after tile.
    unsafe fn scores<S: Isa, const R: usize, const N: usize>(
        s: S,
        tiles: [Tile; N],
        layout: HeadLayout,
        queries: &[&[f32]; R],
        to: [*mut f32; R],
    );
    /// Element `d` of the 16 keys of a tile.
    unsafe fn keys<S: Isa>(s: S, tile: *const u8, layout: HeadLayout, d: usize) -> S::V;
}

/// An element type of values.
///
/// # Safety
///
/// A value is a row of [`HeadLayout::value_bytes`] bytes of a tile. For every `i` that is a multiple of 16 below the
/// padded width, `value` reads only the value at `at`, and `scales` reads only the tile.
pub unsafe trait Values {
    /// Offset in bytes of elements `i..i + 16` of a value.
    fn offset(i: usize) -> usize;
    /// The type in which elements `i..i + 16` of a value are stored; `None` if [`Isa::add_rows`] cannot convert this
    /// type.
    fn elements(i: usize) -> Option<Elements>;
    /// Loads elements `i..i + 16` of the value whose row is at `at`, as floats that are not yet multiplied by the
    /// value's scale.
    unsafe fn value<S: Isa>(s: S, at: *const u8, i: usize) -> S::V;
    /// Returns the scales of elements `i..i + 16` of the values in a tile. `None` if values of this type have no
    /// scales.
    #[inline(always)]
    unsafe fn scales<S: Isa>(_s: S, _tile: *const u8, _layout: HeadLayout, _i: usize) -> Option<S::V> {
        None
    }
}

/// The address of the value at `position` of a tile.
#[inline(always)]
pub fn value_at(tile: *const u8, layout: HeadLayout, position: usize) -> *const u8 {
    tile.wrapping_add(layout.values() + position * layout.value_bytes())
}

/// The scales of element `i` of the 16 values of a tile.
///
/// # Safety
///
/// `tile` is a tile of this layout, whose values have scales, and values have an element `i`.
#[inline(always)]
unsafe fn value_scales<S: Isa>(s: S, tile: *const u8, layout: HeadLayout, i: usize) -> S::V {
    // SAFETY: after the values, the tile has a row of 16 scales (f16) for each block of 32 elements, and element `i` is
    // in block `i / 32`.
    unsafe { s.load_f16(&*tile.add(layout.value_scales() + i / 32 * TILE * 2).cast()) }
}

macro_rules! float_element {
    ($name:ident, $bytes:literal, $load:ident, $elements:expr) => {
        pub struct $name;
        // SAFETY: `scores` stores a vector of scores for every tile and query. All reads are inside the tile, for the
        // reason that is given at each block.
        unsafe impl Keys for $name {
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
                    if let (1, Some(elements)) = (S::ROWS, Self::elements(0)) {
                        for (tile, acc) in tiles.iter().zip(&mut acc) {
                            for (acc, q) in acc.iter_mut().zip(queries) {
                                *acc = s.add_rows(elements, *acc, tile.at, TILE * $bytes, q.as_ptr(), layout.dim);
                            }
                        }
                        return store_all(acc, to);
                    }
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
        }
        // SAFETY: elements `i..i + 16` of a value are `$bytes * 16` bytes of the value's padded row.
        unsafe impl Values for $name {
            #[inline(always)]
            fn offset(i: usize) -> usize {
                $bytes * i
            }
            #[inline(always)]
            fn elements(_i: usize) -> Option<Elements> {
                $elements
            }
            #[inline(always)]
            unsafe fn value<S: Isa>(s: S, at: *const u8, i: usize) -> S::V {
                // SAFETY: the caller passes a value with these 16 elements.
                unsafe { s.$load(&*at.add(Self::offset(i)).cast()) }
            }
        }
    };
}
float_element!(F32, 4, load_f32, None);
float_element!(F16, 2, load_f16, Some(Elements::F16));

/// The dot products of quantized keys with queries. For each block of 32 dimensions, one chain of fma adds up codes
/// times query, then one fma with the block's scale adds the result to the score. `codes` returns the codes of 16 keys
/// in one dimension; its flag is true for a dimension in the second half of a block. `rows` returns the offset of the
/// row with these codes.
///
/// # Safety
///
/// For each block of the layout, `codes` reads inside a tile and the key scales are inside the tile. Each pointer of
/// `to` has room for `16 * N` floats.
#[inline(always)]
unsafe fn block_scores<S: Isa, const R: usize, const N: usize>(
    s: S,
    tiles: [Tile; N],
    layout: HeadLayout,
    queries: &[&[f32]; R],
    to: [*mut f32; R],
    codes: impl Fn(*const u8, usize, bool) -> S::V,
    rows: impl Fn(usize, bool) -> (Elements, usize),
) {
    // SAFETY: after the keys come one row of 16 f16 per block; each query has `dim` elements.
    unsafe {
        let mut acc = [[s.splat(0.0); R]; N];
        for block in 0..layout.blocks() {
            let mut sums = [[s.splat(0.0); R]; N];
            let (first, end) = (block * 32, layout.dim.min(block * 32 + 32));
            let middle = end.min(first + 16);
            if S::ROWS == 1 {
                for (range, high) in [(first..middle, false), (middle..end, true)] {
                    for (tile, sums) in tiles.iter().zip(&mut sums) {
                        for (sum, q) in sums.iter_mut().zip(queries) {
                            let (elements, at) = rows(range.start, high);
                            let (x, n) = (q.as_ptr().wrapping_add(range.start), range.len());
                            *sum = s.add_rows(elements, *sum, tile.at.wrapping_add(at), TILE, x, n);
                        }
                    }
                }
            } else {
                add_codes(s, &tiles, queries, first..middle, &mut sums, |tile, d| codes(tile, d, false));
                add_codes(s, &tiles, queries, middle..end, &mut sums, |tile, d| codes(tile, d, true));
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

/// Multiplies the codes of the keys by the elements of the query, for each dimension in `range`, in order, and adds the
/// products to the sums of each tile and query.
///
/// # Safety
///
/// `codes` reads inside a tile, and each query has the dimensions in `range`.
#[inline(always)]
unsafe fn add_codes<S: Isa, const R: usize, const N: usize>(
    s: S,
    tiles: &[Tile; N],
    queries: &[&[f32]; R],
    range: Range<usize>,
    sums: &mut [[S::V; R]; N],
    codes: impl Fn(*const u8, usize) -> S::V,
) {
    for d in range {
        for (tile, sums) in tiles.iter().zip(&mut *sums) {
            let key = codes(tile.at, d);
            for (sum, q) in sums.iter_mut().zip(queries) {
                // SAFETY: the caller promises this dimension.
                *sum = key.fma(s.splat(unsafe { *q.get_unchecked(d) }), *sum);
            }
        }
    }
}

pub struct Q8;
// SAFETY: `block_scores` stores a vector per tile and query; a block is 32 rows of 16 bytes.
unsafe impl Keys for Q8 {
    #[inline(always)]
    unsafe fn scores<S: Isa, const R: usize, const N: usize>(
        s: S,
        tiles: [Tile; N],
        layout: HeadLayout,
        queries: &[&[f32]; R],
        to: [*mut f32; R],
    ) {
        // SAFETY: the keys of a tile are `dim` rows of 16 bytes, and `d` is below `dim`.
        unsafe {
            let codes = |tile: *const u8, d, _| s.load_i8(&*tile.add(d * TILE).cast());
            block_scores(s, tiles, layout, queries, to, codes, |d, _| (Elements::I8, d * TILE));
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
}
// SAFETY: a value is a padded row of bytes.
unsafe impl Values for Q8 {
    #[inline(always)]
    fn offset(i: usize) -> usize {
        i
    }
    #[inline(always)]
    fn elements(_i: usize) -> Option<Elements> {
        Some(Elements::I8)
    }
    #[inline(always)]
    unsafe fn value<S: Isa>(s: S, at: *const u8, i: usize) -> S::V {
        // SAFETY: the caller passes a value with these 16 elements.
        unsafe { s.load_i8(&*at.add(i).cast()) }
    }
    #[inline(always)]
    unsafe fn scales<S: Isa>(s: S, tile: *const u8, layout: HeadLayout, i: usize) -> Option<S::V> {
        // SAFETY: the caller passes a tile of a layout with scales.
        Some(unsafe { value_scales(s, tile, layout, i) })
    }
}

pub struct Q4;
// SAFETY: `block_scores` stores a vector per tile and query; a block is 16 rows of 16 bytes.
unsafe impl Keys for Q4 {
    #[inline(always)]
    unsafe fn scores<S: Isa, const R: usize, const N: usize>(
        s: S,
        tiles: [Tile; N],
        layout: HeadLayout,
        queries: &[&[f32]; R],
        to: [*mut f32; R],
    ) {
        // SAFETY: the keys of a tile are `16 * blocks` rows of 16 bytes.
        unsafe {
            let at = |d| (d / 32 * 16 + d % 16) * TILE;
            let codes = |tile: *const u8, d, high| s.load_i4(&*tile.add(at(d)).cast(), high);
            block_scores(s, tiles, layout, queries, to, codes, |d, high| (Elements::I4 { high }, at(d)));
        }
    }
    #[inline(always)]
    unsafe fn keys<S: Isa>(s: S, tile: *const u8, layout: HeadLayout, d: usize) -> S::V {
        let (block, i) = (d / 32, d % 32);
        // SAFETY: each block is 16 rows of 16 bytes; after all blocks comes one row of 16 f16 per block.
        unsafe {
            let scale = s.load_f16(&*tile.add(layout.key_scales() + block * TILE * 2).cast());
            s.load_i4(&*tile.add((block * 16 + i % 16) * TILE).cast(), i >= 16).mul(scale)
        }
    }
}
// SAFETY: a value is a row of 16 bytes per block, which hold elements 0 to 15 and 16 to 31 of the block.
unsafe impl Values for Q4 {
    #[inline(always)]
    fn offset(i: usize) -> usize {
        i / 32 * 16
    }
    #[inline(always)]
    fn elements(i: usize) -> Option<Elements> {
        Some(Elements::I4 { high: i & 16 != 0 })
    }
    #[inline(always)]
    unsafe fn value<S: Isa>(s: S, at: *const u8, i: usize) -> S::V {
        // SAFETY: the caller passes a value with these 16 elements.
        unsafe { s.load_i4(&*at.add(Self::offset(i)).cast(), i & 16 != 0) }
    }
    #[inline(always)]
    unsafe fn scales<S: Isa>(s: S, tile: *const u8, layout: HeadLayout, i: usize) -> Option<S::V> {
        // SAFETY: the caller passes a tile of a layout with scales.
        Some(unsafe { value_scales(s, tile, layout, i) })
    }
}

/// Stores the scores of `N` tiles, each with one vector per query row. `to` has a pointer per query row, to which the
/// scores of all tiles are written, tile after tile.
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
