//! Prefill: rows packed into panels of 16, times several tokens, over the instruction that multiplies ([`Panel`]).
//! Formats whose panels lie alike share the functions. Codes are signed here: no bias is left.
//!
//! A panel is all of its first eight rows, then of the others. For each 32 weights they have 256 bytes; after these, or
//! for formats with blocks of 256 after each block, come the rows' scales.

use core::arch::aarch64::*;
use core::ops::Range;

use super::bytes::Pair;
use crate::kernel::quantized::{Pack, Tile};
use crate::quant::{Bytes, Format};

/// Bytes of 32 codes of eight rows, and of a number for each.
pub(super) const CODES: usize = 8 * 32;
pub(super) const LINE: usize = 8 * 4;
/// Bytes of 32 weights of eight rows with one scale.
pub(super) const PIECE: usize = CODES + LINE;

/// How codes lie under an instruction, and their products.
///
/// # Safety
///
/// The methods need the instruction; `put` writes its 128 bytes and no others, and `products` reads 32 codes of eight rows
/// and of each token.
pub(super) unsafe trait Panel {
    /// Writes 32 codes of each of four rows to the 128 bytes that are theirs.
    unsafe fn put(to: *mut u8, rows: [[int8x16_t; 2]; 4]);
    /// The sums of the products of eight rows, four of them in a vector, with each token: of the first 16 of 32 codes,
    /// the second, or both.
    unsafe fn products<const T: usize>(w: *const u8, q: [*const i8; T], halves: Range<usize>) -> [[int32x4_t; 2]; T];
}

/// What the scales of a panel are like.
pub(super) mod scales {
    /// A `d` for 32 weights.
    pub const ONE: u8 = 0;
    /// And an `m`.
    pub const MINIMUM: u8 = 1;
    /// A `d` for 16.
    pub const HALVES: u8 = 2;
}

/// Where things lie for 256 weights of eight rows: codes; each group's scale as an i32; its minimum as an i16, where there
/// are any; `d`; `m`.
pub(super) struct Whole {
    pub minimums: usize,
    pub d: usize,
    pub m: usize,
    pub size: usize,
}

impl Whole {
    pub const SCALES: usize = 8 * CODES;
    pub const fn of(group: usize, with_minimums: bool) -> Self {
        let groups = 256 / group;
        let minimums = Self::SCALES + groups * LINE;
        let d = minimums + if with_minimums { groups * LINE / 2 } else { 0 };
        let m = d + LINE;
        Self { minimums, d, m, size: if with_minimums { m + LINE } else { m } }
    }
}

/// See [`Pack`](crate::kernel::quantized::Pack); `put` is [`Panel::put`].
#[inline(always)]
pub(super) unsafe fn pack<F: Format>(
    &Pack { w, row_bytes, rows, cols, panel, .. }: &Pack<'_>,
    put: impl Fn(*mut u8, [[int8x16_t; 2]; 4]),
) {
    let two = F::M.is_some() || F::FLOAT_GROUPS;
    let (whole, piece) = const {
        (Whole::of(F::GROUP, F::M.is_some()), if F::M.is_some() || F::FLOAT_GROUPS { PIECE + LINE } else { PIECE })
    };
    let blocks = cols / F::ELEMENTS;
    let block_size = if F::ELEMENTS == 256 { whole.size } else { F::ELEMENTS / 32 * piece };
    for first in (0..rows).step_by(4) {
        // SAFETY: for rows that are missing the last one is read again; both halves of the panel have the room.
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
                            to.add(Whole::SCALES + g * LINE + r * 4).cast::<i32>().write_unaligned(scales[g].into());
                            if F::M.is_some() {
                                let to = to.add(whole.minimums + g * LINE / 2 + r * 2);
                                to.cast::<i16>().write_unaligned(minimums[g].into());
                            }
                        }
                    }
                    d(0, to.add(whole.d));
                    if F::M.is_some() {
                        m(to.add(whole.m));
                    }
                } else {
                    for chunk in 0..F::ELEMENTS / 32 {
                        let to = to.add(chunk * piece);
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

/// The eight numbers at `p`.
#[inline(always)]
unsafe fn floats(p: *const u8) -> [float32x4_t; 2] {
    // SAFETY: the caller has them.
    unsafe { [vld1q_f32(p.cast()), vld1q_f32(p.cast::<f32>().add(4))] }
}

/// `acc` plus the sums times both scales.
#[inline(always)]
unsafe fn add(acc: &mut [float32x4_t; 2], w: [float32x4_t; 2], x: f32, sums: [int32x4_t; 2]) {
    for ((acc, w), sum) in acc.iter_mut().zip(w).zip(sums) {
        // SAFETY: NEON.
        *acc = unsafe { vfmaq_f32(*acc, vmulq_n_f32(w, x), vcvtq_f32_s32(sum)) };
    }
}

/// Formats with a scale for 32 weights, times `T` tokens: eight rows at a time, so that with four tokens 8 sums of
/// integers and 8 of floats stay in registers.
///
/// # Safety
///
/// The caller has the instruction; the tile has a packed panel and the tokens.
#[inline(always)]
pub(super) unsafe fn pieces<P: Panel, const T: usize, const SCALES: u8>(tile: &Tile<'_>) {
    let blocks = tile.cols / 32;
    let size = if SCALES == scales::ONE { PIECE } else { PIECE + LINE };
    for half in 0..2 {
        // SAFETY: the panel has `blocks` blocks, and so has each of the tokens.
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

/// The sums of the quants of eight groups, of the first eight or the next.
#[inline(always)]
pub(super) unsafe fn eight_sums<const GROUP: usize>(sums: *const i16, eight: usize) -> int16x8_t {
    // SAFETY: the caller has sixteen sums of sixteen quants.
    unsafe {
        if GROUP == 16 { vld1q_s16(sums.add(eight * 8)) } else { vpaddq_s16(vld1q_s16(sums), vld1q_s16(sums.add(8))) }
    }
}

/// The same for formats with blocks of 256.
///
/// # Safety
///
/// As for [`pieces`].
#[inline(always)]
pub(super) unsafe fn whole<P: Panel, const T: usize, const GROUP: usize, const MINIMUMS: bool>(tile: &Tile<'_>) {
    let blocks = tile.cols / 256;
    let places = const { Whole::of(GROUP, MINIMUMS) };
    for half in 0..2 {
        // SAFETY: the panel has `blocks` blocks, and so has each of the tokens.
        unsafe {
            let mut w = tile.panel.add(half * blocks * places.size);
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
                    let scale: *const i32 = w.add(Whole::SCALES + group * LINE).cast();
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
                let scale = floats(w.add(places.d));
                for t in 0..T {
                    add(&mut acc[t], scale, *d[t], totals[t]);
                }
                if MINIMUMS {
                    let mut totals = [[vdupq_n_s32(0); 2]; T];
                    for eight in 0..256 / GROUP / 8 {
                        let sums = sums.map(|sums| eight_sums::<GROUP>(sums, eight));
                        let minimums: *const i16 = w.add(places.minimums + eight * 8 * LINE / 2).cast();
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
                    let scale = floats(w.add(places.m));
                    for t in 0..T {
                        add(&mut acc[t], scale, *d[t], totals[t]);
                    }
                    sums = sums.map(|sums| sums.add(16));
                }
                d = d.map(|d| d.add(1));
                w = w.add(places.size);
            }
            for (out, acc) in tile.out::<T>().into_iter().zip(acc) {
                vst1q_f32(out.add(half * 8), acc[0]);
                vst1q_f32(out.add(half * 8 + 4), acc[1]);
            }
        }
    }
}
