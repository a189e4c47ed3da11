//! Prefill: packs rows into panels of 16 and multiplies the panels with several tokens. The multiply instruction is a
//! type parameter ([`Panel`]). Formats with the same panel layout share the functions. Codes are signed here, so there
//! is no bias to subtract.
//!
//! A panel stores its first eight rows, then the other eight. Eight rows have 256 bytes of codes per chunk. The scales
//! of the rows follow each chunk, or each block of 256.

use super::safe::*;
use core::ops::Range;

use bytemuck::must_cast;

use super::bytes::Pair;
use crate::kernel::panel::{PANEL_ROWS, scales};
use crate::kernel::quantized::{Pack, Tile};
use crate::quant::{Bytes, Format};

/// Number of rows that are multiplied at once: with four tokens, 8 integer sums and 8 float sums fit in registers.
pub(super) const ROWS: usize = 8;
/// Bytes of the codes of a chunk of eight rows.
pub(super) const CODES: usize = ROWS * 32;
/// Bytes of a line of eight rows: an f32 or i32 per row.
pub(super) const LINE: usize = ROWS * 4;
/// Bytes of a chunk of eight rows with one scale.
const CHUNK: usize = CODES + LINE;

/// Multiplies eight rows of a panel with `T` tokens at a time.
///
/// # Safety
///
/// The methods that are unsafe read only the elements that their docs name.
pub(super) unsafe trait Panel {
    /// 32 quants of each token, or pointers to them.
    type Quants<const T: usize>: Copy;
    /// An i32 per row and token.
    type Sums<const T: usize>: Copy;
    /// An f32 per row and token.
    type Floats<const T: usize>;
    /// An f32 per row.
    type Line: Copy;
    /// An f32 per token.
    type Scales<const T: usize>: Copy;

    /// Writes a chunk of each of four rows.
    fn put(to: &mut [u8; 128], rows: [[int8x16_t; 2]; 4]);
    /// 32 quants of each token.
    fn quants<const T: usize>(q: [&[i8; 32]; T]) -> Self::Quants<T>;
    /// Reads a scale of each token, and advances the pointers.
    unsafe fn scales<const T: usize>(d: &mut [*const f32; T]) -> Self::Scales<T>;
    /// Reads a float of each row.
    fn line(w: &[u8; LINE]) -> Self::Line;
    /// Multiplies a chunk of eight rows with each token and returns the sums of the products. Moves `codes` to the end
    /// of the chunk. `halves` says which codes of the chunk are multiplied: the first 16, the last 16, or all. The
    /// caller promises that the quants from which `q` was made are still valid and that the processor has the
    /// instruction.
    unsafe fn products<const T: usize>(
        codes: &mut *const u8,
        q: Self::Quants<T>,
        halves: Range<usize>,
    ) -> Self::Sums<T>;
    /// Zeros.
    fn no_sums<const T: usize>() -> Self::Sums<T>;
    /// Adds products to `totals`: the sum of each row and token, times the row's i32 in `scale`.
    fn add_scaled<const T: usize>(totals: &mut Self::Sums<T>, sums: Self::Sums<T>, scale: &[u8; LINE]);
    /// Returns the sum of the 32 quants of a chunk for each token, repeated for every row. `sums` has the sums of the
    /// chunk's first and last 16 quants.
    fn of_chunk<const T: usize>(sums: [&[i16; 2]; T]) -> Self::Sums<T>;
    /// Adds up the products of the minimums: for each row and token, the sum of `minimum * (sum of the group's quants)`
    /// over the groups of a block. `w` has the minimums of eight rows for each group, as i16. `sums` has the sums of
    /// each 16 quants.
    fn minimums<const T: usize, const GROUP: usize>(w: &[[u8; 16]], sums: [&[i16; 16]; T]) -> Self::Sums<T>;
    /// Zeros.
    fn zero<const T: usize>() -> Self::Floats<T>;
    /// `acc += sums * w * x`.
    fn add<const T: usize>(acc: &mut Self::Floats<T>, w: Self::Line, x: Self::Scales<T>, sums: Self::Sums<T>);
    /// Stores the floats of eight rows to each token's output.
    fn store<const T: usize>(out: [&mut [f32; ROWS]; T], acc: Self::Floats<T>);
}

/// Products by an instruction that adds the products of consecutive bytes of a row.
///
/// # Safety
///
/// The conditions of [`Panel`] hold.
pub(super) unsafe trait Along {
    /// [`Panel::put`].
    fn put(to: &mut [u8; 128], rows: [[int8x16_t; 2]; 4]);
    /// [`Panel::products`], four rows per vector.
    unsafe fn products<const T: usize>(w: *const u8, q: [*const i8; T], halves: Range<usize>) -> [[int32x4_t; 2]; T];
}

// SAFETY: `put` and `products` only call the methods of [`Along`] that make the same promises. The other methods read
// only the elements that their docs name.
unsafe impl<A: Along> Panel for A {
    type Quants<const T: usize> = [*const i8; T];
    type Sums<const T: usize> = [[int32x4_t; 2]; T];
    type Floats<const T: usize> = [[float32x4_t; 2]; T];
    type Line = [float32x4_t; 2];
    type Scales<const T: usize> = [f32; T];

    #[inline(always)]
    fn put(to: &mut [u8; 128], rows: [[int8x16_t; 2]; 4]) {
        A::put(to, rows);
    }
    #[inline(always)]
    fn quants<const T: usize>(q: [&[i8; 32]; T]) -> [*const i8; T] {
        q.map(|q| q.as_ptr())
    }
    #[inline(always)]
    unsafe fn scales<const T: usize>(d: &mut [*const f32; T]) -> [f32; T] {
        // SAFETY: the caller promises a scale of each token.
        let scales = d.map(|d| unsafe { *d });
        *d = d.map(|d| d.wrapping_add(1));
        scales
    }
    #[inline(always)]
    fn line(w: &[u8; LINE]) -> [float32x4_t; 2] {
        must_cast(*w)
    }
    #[inline(always)]
    unsafe fn products<const T: usize>(
        codes: &mut *const u8,
        q: [*const i8; T],
        halves: Range<usize>,
    ) -> [[int32x4_t; 2]; T] {
        let chunk = *codes;
        *codes = chunk.wrapping_add(CODES);
        // SAFETY: the caller promises the same.
        unsafe { A::products(chunk, q, halves) }
    }
    #[inline(always)]
    fn no_sums<const T: usize>() -> [[int32x4_t; 2]; T] {
        [[vdupq_n_s32(0); 2]; T]
    }
    #[inline(always)]
    fn add_scaled<const T: usize>(totals: &mut [[int32x4_t; 2]; T], sums: [[int32x4_t; 2]; T], scale: &[u8; LINE]) {
        let scale: [int32x4_t; 2] = must_cast(*scale);
        for (total, sums) in totals.iter_mut().zip(sums) {
            for four in 0..2 {
                total[four] = vmlaq_s32(total[four], sums[four], scale[four]);
            }
        }
    }
    #[inline(always)]
    fn of_chunk<const T: usize>(sums: [&[i16; 2]; T]) -> [[int32x4_t; 2]; T] {
        sums.map(|sums| [vdupq_n_s32(i32::from(sums[0]) + i32::from(sums[1])); 2])
    }
    #[inline(always)]
    fn minimums<const T: usize, const GROUP: usize>(w: &[[u8; 16]], sums: [&[i16; 16]; T]) -> [[int32x4_t; 2]; T] {
        let mut totals = Self::no_sums::<T>();
        for (eight, w) in w.as_chunks::<8>().0.iter().enumerate() {
            let sums = sums.map(|sums| eight_sums::<GROUP>(sums, eight));
            macro_rules! groups {
                ($($group:literal)*) => { $(
                    let of_group = must_cast(w[$group]);
                    for t in 0..T {
                        let [low, high] = totals[t];
                        totals[t] = [
                            vmlal_laneq_s16::<$group>(low, vget_low_s16(of_group), sums[t]),
                            vmlal_high_laneq_s16::<$group>(high, of_group, sums[t]),
                        ];
                    }
                )* };
            }
            groups!(0 1 2 3 4 5 6 7);
        }
        totals
    }
    #[inline(always)]
    fn zero<const T: usize>() -> [[float32x4_t; 2]; T] {
        [[vdupq_n_f32(0.0); 2]; T]
    }
    #[inline(always)]
    fn add<const T: usize>(
        acc: &mut [[float32x4_t; 2]; T],
        w: [float32x4_t; 2],
        x: [f32; T],
        sums: [[int32x4_t; 2]; T],
    ) {
        for ((acc, x), sums) in acc.iter_mut().zip(x).zip(sums) {
            for ((acc, w), sum) in acc.iter_mut().zip(w).zip(sums) {
                *acc = vfmaq_f32(*acc, vmulq_n_f32(w, x), vcvtq_f32_s32(sum));
            }
        }
    }
    #[inline(always)]
    fn store<const T: usize>(out: [&mut [f32; ROWS]; T], acc: [[float32x4_t; 2]; T]) {
        for (out, acc) in out.into_iter().zip(acc) {
            *out = must_cast(acc);
        }
    }
}

/// Byte offsets in a block of 256 weights of eight rows. The block has, in this order: the codes of eight chunks; for
/// each group, a line of i32 scales; in formats with minimums, for each group, eight i16 minimums; a line of `d`; in
/// formats with minimums, a line of `m`.
pub(super) struct BlockLayout {
    pub minimums: usize,
    pub d: usize,
    pub m: usize,
    pub size: usize,
}

impl BlockLayout {
    pub const SCALES: usize = 8 * CODES;
    pub const fn of(group: usize, with_minimums: bool) -> Self {
        let groups = 256 / group;
        let minimums = Self::SCALES + groups * LINE;
        let d = minimums + if with_minimums { groups * LINE / 2 } else { 0 };
        let m = d + LINE;
        Self { minimums, d, m, size: if with_minimums { m + LINE } else { m } }
    }
}

/// Packs rows into a panel, as [`Pack`] describes.
///
/// # Safety
///
/// The processor has the instruction; `pack` is as described at [`Pack`].
#[inline(always)]
pub(super) unsafe fn pack<F: Format, P: Panel>(&Pack { w, row_bytes, rows, cols, panel, .. }: &Pack<'_>) {
    let two = F::M.is_some() || F::FLOAT_GROUPS;
    let (layout, chunk_size) = const {
        (
            BlockLayout::of(F::GROUP, F::M.is_some()),
            if F::M.is_some() || F::FLOAT_GROUPS { CHUNK + LINE } else { CHUNK },
        )
    };
    let blocks = cols / F::ELEMENTS;
    let block_size = if F::ELEMENTS == 256 { layout.size } else { F::ELEMENTS / 32 * chunk_size };
    for first in (0..rows).step_by(4) {
        // SAFETY: rows past the last row are replaced by the last row, and each row has `blocks` blocks. The panel has
        // room for two halves of `blocks * block_size` bytes, and every write is inside the `block_size` bytes from
        // `to`.
        unsafe {
            let half = panel.add(first / 8 * blocks * block_size);
            for b in 0..blocks {
                let at = |r: usize| w.add((first + r).min(rows - 1) * row_bytes + b * size_of::<F::Block>());
                let four: [&F::Block; 4] = core::array::from_fn(|r| &*at(r).cast());
                let to = half.add(b * block_size);
                let codes = |chunk: usize, to: *mut u8| {
                    let numbers = four.map(|block| {
                        let codes = Pair.sub(F::unpack(Pair, block, chunk), Pair.splat(F::BIAS));
                        codes.map(|x| vreinterpretq_s8_u8(x))
                    });
                    P::put(&mut *to.add(first % 8 * 32).cast(), numbers);
                };
                let d = |i: usize, to: *mut u8| {
                    let d = four.map(|block| F::d(block, i, |bytes| Pair.f16(bytes)));
                    to.add(first % 8 * 4).cast::<[f32; 4]>().write_unaligned(d);
                };
                let m = |to: *mut u8| {
                    let m = four.map(|block| F::m(block, |bytes| Pair.f16(bytes)));
                    to.add(first % 8 * 4).cast::<[f32; 4]>().write_unaligned(m);
                };
                if F::ELEMENTS == 256 {
                    for chunk in 0..8 {
                        codes(chunk, to.add(chunk * CODES));
                    }
                    for (r, block) in four.into_iter().enumerate() {
                        let (scales, minimums) = (F::scales(block), F::minimums(block));
                        let r = first % 8 + r;
                        for g in 0..256 / F::GROUP {
                            to.add(BlockLayout::SCALES + g * LINE + r * 4)
                                .cast::<i32>()
                                .write_unaligned(scales[g].into());
                            if F::M.is_some() {
                                let to = to.add(layout.minimums + g * LINE / 2 + r * 2);
                                to.cast::<i16>().write_unaligned(minimums[g].into());
                            }
                        }
                    }
                    d(0, to.add(layout.d));
                    if F::M.is_some() {
                        m(to.add(layout.m));
                    }
                } else {
                    for chunk in 0..F::ELEMENTS / 32 {
                        let to = to.add(chunk * chunk_size);
                        codes(chunk, to);
                        d(chunk * 32, to.add(CODES));
                        if F::M.is_some() {
                            m(to.add(CODES + LINE));
                        } else if two {
                            d(chunk * 32 + 16, to.add(CODES + LINE));
                        }
                    }
                }
            }
        }
    }
}

/// Multiplies a panel of a format with blocks of less than 256.
///
/// # Safety
///
/// The processor has the instruction; the tile has a packed panel and `T` tokens.
#[inline(always)]
pub(super) unsafe fn chunks<P: Panel, const T: usize, const SCALES: u8>(tile: &Tile<'_>) {
    let blocks = tile.cols / 32;
    let size = if SCALES == scales::ONE { CHUNK } else { CHUNK + LINE };
    for half in 0..PANEL_ROWS / ROWS {
        // SAFETY: each half of the panel, and each token, has `blocks` chunks.
        unsafe {
            let mut w = tile.panel.add(half * blocks * size);
            let (mut q, mut d, mut sums) = (tile.q::<T>(), tile.d::<T>(32), tile.sums::<T>());
            let mut acc = P::zero::<T>();
            for _ in 0..blocks {
                let (quants, mut codes) = (P::quants(q.map(|q| &*q.cast())), w);
                q = q.map(|q| q.add(32));
                let first = P::products::<T>(&mut w, quants, if SCALES == scales::HALVES { 0..1 } else { 0..2 });
                let dx = P::scales(&mut d);
                P::add(&mut acc, P::line(&*w.cast()), dx, first);
                w = w.add(LINE);
                if SCALES == scales::HALVES {
                    P::add(&mut acc, P::line(&*w.cast()), dx, P::products::<T>(&mut codes, quants, 1..2));
                    w = w.add(LINE);
                }
                if SCALES == scales::MINIMUM {
                    P::add(&mut acc, P::line(&*w.cast()), dx, P::of_chunk(sums.map(|sums| &*sums.cast())));
                    sums = sums.map(|sums| sums.add(2));
                    w = w.add(LINE);
                }
            }
            P::store(tile.out::<T>().map(|out| &mut *out.add(half * ROWS).cast()), acc);
        }
    }
}

/// Multiplies a panel of a format with blocks of 256.
///
/// # Safety
///
/// The processor has the instruction; the tile has a packed panel and `T` tokens.
#[inline(always)]
pub(super) unsafe fn blocks<P: Panel, const T: usize, const GROUP: usize, const MINIMUMS: bool>(tile: &Tile<'_>) {
    let blocks = tile.cols / 256;
    let layout = const { BlockLayout::of(GROUP, MINIMUMS) };
    for half in 0..PANEL_ROWS / ROWS {
        // SAFETY: each half of the panel, and each token, has `blocks` blocks.
        unsafe {
            let mut w = tile.panel.add(half * blocks * layout.size);
            let (mut q, mut d, mut sums) = (tile.q::<T>(), tile.d::<T>(256), tile.sums::<T>());
            let mut acc = P::zero::<T>();
            for _ in 0..blocks {
                let mut totals = P::no_sums::<T>();
                let mut scale: *const [u8; LINE] = w.add(BlockLayout::SCALES).cast();
                let mut codes = w;
                for _ in 0..8 {
                    let quants = P::quants(q.map(|q| &*q.cast()));
                    q = q.map(|q| q.add(32));
                    if GROUP == 32 {
                        P::add_scaled(&mut totals, P::products::<T>(&mut codes, quants, 0..2), &*scale);
                    } else {
                        let mut again = codes;
                        P::add_scaled(&mut totals, P::products::<T>(&mut codes, quants, 0..1), &*scale);
                        P::add_scaled(&mut totals, P::products::<T>(&mut again, quants, 1..2), &*scale.add(1));
                    }
                    scale = scale.add(32 / GROUP);
                }
                let dx = P::scales(&mut d);
                P::add(&mut acc, P::line(&*w.add(layout.d).cast()), dx, totals);
                if MINIMUMS {
                    let of_groups = core::slice::from_raw_parts(w.add(layout.minimums).cast(), 256 / GROUP);
                    let totals = P::minimums::<T, GROUP>(of_groups, sums.map(|sums| &*sums.cast()));
                    P::add(&mut acc, P::line(&*w.add(layout.m).cast()), dx, totals);
                    sums = sums.map(|sums| sums.add(16));
                }
                w = w.add(layout.size);
            }
            P::store(tile.out::<T>().map(|out| &mut *out.add(half * ROWS).cast()), acc);
        }
    }
}

/// The sums of the activations for groups `8 * eight` up to `8 * eight + 8` of a block.
#[inline(always)]
pub(super) fn eight_sums<const GROUP: usize>(sums: &[i16; 16], eight: usize) -> int16x8_t {
    let [first, last] = must_cast(*sums);
    match (GROUP, eight) {
        (16, 0) => first,
        (16, _) => last,
        _ => vpaddq_s16(first, last),
    }
}
