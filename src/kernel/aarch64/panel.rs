//! Prefill: packs rows into panels of 16 and multiplies them with several tokens, over the instruction that multiplies
//! ([`Panel`]). Formats with the same panel layout share the functions. Codes are signed here, so there is no bias to
//! subtract.
//!
//! A panel is its first eight rows, then the other eight. Eight rows have 256 bytes of codes per chunk. The scales of
//! the rows follow each chunk, or each block of 256.

use core::arch::aarch64::*;
use core::ops::Range;

use super::bytes::Pair;
use crate::kernel::quantized::{Pack, Tile};
use crate::quant::{Bytes, Format};

/// Bytes of the codes of a chunk of eight rows.
pub(super) const CODES: usize = 8 * 32;
/// Bytes of a line of eight rows: an f32 or i32 per row.
pub(super) const LINE: usize = 8 * 4;
/// Bytes of a chunk of eight rows with one scale.
pub(super) const CHUNK: usize = CODES + LINE;

/// The layout of codes for an instruction, and their products.
///
/// # Safety
///
/// The methods require the instruction. `put` writes 128 bytes, and `products` reads a chunk of eight rows and 32
/// quants of each token.
pub(super) unsafe trait Panel {
    /// Writes a chunk of each of four rows to their 128 bytes.
    unsafe fn put(to: *mut u8, rows: [[int8x16_t; 2]; 4]);
    /// The sums of the products of eight rows with each token, four rows per vector. `halves` selects the first 16
    /// codes of a chunk, the last 16, or both.
    unsafe fn products<const T: usize>(w: *const u8, q: [*const i8; T], halves: Range<usize>) -> [[int32x4_t; 2]; T];
}

/// The kinds of scales in a panel.
pub(super) mod scales {
    /// A `d` per 32 weights.
    pub const ONE: u8 = 0;
    /// A `d` and an `m` per 32 weights.
    pub const MINIMUM: u8 = 1;
    /// A `d` per 16 weights.
    pub const HALVES: u8 = 2;
}

/// Layout of a block of 256 of eight rows: the codes of eight chunks; per group a line of i32 scales; in formats with
/// minimums, per group eight i16 minimums; then a line of `d`, and one of `m`.
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

/// Packs the rows of [`Pack`](crate::kernel::quantized::Pack); `put` is [`Panel::put`].
#[inline(always)]
pub(super) unsafe fn pack<F: Format>(
    &Pack { w, row_bytes, rows, cols, panel, .. }: &Pack<'_>,
    put: impl Fn(*mut u8, [[int8x16_t; 2]; 4]),
) {
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
        // SAFETY: rows past the last one are replaced by it, and each row has `blocks` blocks. The panel has room for
        // two halves of `blocks * block_size` bytes, and every write is inside the `block_size` bytes from `to`.
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
                    put(to.add(first % 8 * 32), numbers);
                };
                let d = |i: usize, to: *mut u8| {
                    let d = four.map(|block| F::d(block, i, |bytes| Pair.f16(bytes)));
                    vst1q_f32(to.add(first % 8 * 4).cast(), vld1q_f32(d.as_ptr()));
                };
                let m = |to: *mut u8| {
                    let m = four.map(|block| F::m(block, |bytes| Pair.f16(bytes)));
                    vst1q_f32(to.add(first % 8 * 4).cast(), vld1q_f32(m.as_ptr()));
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

/// The floats of a line.
#[inline(always)]
unsafe fn floats(p: *const u8) -> [float32x4_t; 2] {
    // SAFETY: the caller promises a line.
    unsafe { [vld1q_f32(p.cast()), vld1q_f32(p.cast::<f32>().add(4))] }
}

/// `acc + sums * w * x`.
#[inline(always)]
unsafe fn add(acc: &mut [float32x4_t; 2], w: [float32x4_t; 2], x: f32, sums: [int32x4_t; 2]) {
    for ((acc, w), sum) in acc.iter_mut().zip(w).zip(sums) {
        // SAFETY: every target of this module has NEON.
        *acc = unsafe { vfmaq_f32(*acc, vmulq_n_f32(w, x), vcvtq_f32_s32(sum)) };
    }
}

/// Multiplies a panel of a format with blocks of less than 256. Eight rows at a time, so that with four tokens 8
/// integer sums and 8 float sums fit in registers.
///
/// # Safety
///
/// The processor has the instruction; the tile has a packed panel and `T` tokens.
#[inline(always)]
pub(super) unsafe fn chunks<P: Panel, const T: usize, const SCALES: u8>(tile: &Tile<'_>) {
    let blocks = tile.cols / 32;
    let size = if SCALES == scales::ONE { CHUNK } else { CHUNK + LINE };
    for half in 0..2 {
        // SAFETY: each half of the panel, and each token, has `blocks` chunks.
        unsafe {
            let mut w = tile.panel.add(half * blocks * size);
            let (mut q, mut d, mut sums) = (tile.q::<T>(), tile.d::<T>(32), tile.sums::<T>());
            let mut acc = [[vdupq_n_f32(0.0); 2]; T];
            for _ in 0..blocks {
                let first = floats(w.add(CODES));
                let products = P::products(w, q, if SCALES == scales::HALVES { 0..1 } else { 0..2 });
                for t in 0..T {
                    add(&mut acc[t], first, *d[t], products[t]);
                }
                if SCALES == scales::HALVES {
                    let second = floats(w.add(CODES + LINE));
                    let products = P::products(w, q, 1..2);
                    for t in 0..T {
                        add(&mut acc[t], second, *d[t], products[t]);
                    }
                }
                if SCALES == scales::MINIMUM {
                    let minimums = floats(w.add(CODES + LINE));
                    for t in 0..T {
                        let sum = vdupq_n_s32(i32::from(*sums[t]) + i32::from(*sums[t].add(1)));
                        add(&mut acc[t], minimums, *d[t], [sum; 2]);
                    }
                    sums = sums.map(|sums| sums.add(2));
                }
                q = q.map(|q| q.add(32));
                d = d.map(|d| d.add(1));
                w = w.add(size);
            }
            for (out, acc) in tile.out::<T>().into_iter().zip(acc) {
                vst1q_f32(out.add(half * 8), acc[0]);
                vst1q_f32(out.add(half * 8 + 4), acc[1]);
            }
        }
    }
}

/// The sums of the activations of eight groups, from group `8 * eight` on.
#[inline(always)]
pub(super) unsafe fn eight_sums<const GROUP: usize>(sums: *const i16, eight: usize) -> int16x8_t {
    // SAFETY: the caller promises 16 sums of 16 quants.
    unsafe {
        if GROUP == 16 { vld1q_s16(sums.add(eight * 8)) } else { vpaddq_s16(vld1q_s16(sums), vld1q_s16(sums.add(8))) }
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
    for half in 0..2 {
        // SAFETY: each half of the panel, and each token, has `blocks` blocks.
        unsafe {
            let mut w = tile.panel.add(half * blocks * layout.size);
            let (mut q, mut d, mut sums) = (tile.q::<T>(), tile.d::<T>(256), tile.sums::<T>());
            let mut acc = [[vdupq_n_f32(0.0); 2]; T];
            for _ in 0..blocks {
                let mut totals = [[vdupq_n_s32(0); 2]; T];
                for group in 0..256 / GROUP {
                    let chunk = w.add(group * GROUP / 32 * CODES);
                    let products = if GROUP == 32 {
                        P::products(chunk, q, 0..2)
                    } else {
                        let part = group % 2;
                        P::products(chunk, q, part..part + 1)
                    };
                    let scale: *const i32 = w.add(BlockLayout::SCALES + group * LINE).cast();
                    let scale = [vld1q_s32(scale), vld1q_s32(scale.add(4))];
                    for t in 0..T {
                        for four in 0..2 {
                            totals[t][four] = vmlaq_s32(totals[t][four], products[t][four], scale[four]);
                        }
                    }
                    if GROUP == 32 || group % 2 == 1 {
                        q = q.map(|q| q.add(32));
                    }
                }
                let scale = floats(w.add(layout.d));
                for t in 0..T {
                    add(&mut acc[t], scale, *d[t], totals[t]);
                }
                if MINIMUMS {
                    let mut totals = [[vdupq_n_s32(0); 2]; T];
                    for eight in 0..256 / GROUP / 8 {
                        let sums = sums.map(|sums| eight_sums::<GROUP>(sums, eight));
                        let minimums: *const i16 = w.add(layout.minimums + eight * 8 * LINE / 2).cast();
                        macro_rules! groups {
                            ($($group:literal)*) => { $(
                                let of_group = vld1q_s16(minimums.add($group * 8));
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
                    let scale = floats(w.add(layout.m));
                    for t in 0..T {
                        add(&mut acc[t], scale, *d[t], totals[t]);
                    }
                    sums = sums.map(|sums| sums.add(16));
                }
                d = d.map(|d| d.add(1));
                w = w.add(layout.size);
            }
            for (out, acc) in tile.out::<T>().into_iter().zip(acc) {
                vst1q_f32(out.add(half * 8), acc[0]);
                vst1q_f32(out.add(half * 8 + 4), acc[1]);
            }
        }
    }
}
