//! The scales and minimums of four rows of blocks, one row per lane.

use super::safe::*;
use core::arch::asm;

use bytemuck::must_cast;

use super::bytes::{Pair, four_halves, join};
use crate::quant::{Format, TensorType, bytes_at};

/// The scales of a block of 256 of each of four rows.
#[derive(Clone, Copy)]
pub(super) struct Scales {
    /// Vector `i` holds the scales of groups `4 * i` to `4 * i + 3` as bytes, in the lane of each row.
    pub scales: [int32x4_t; 4],
    pub minimums: [int32x4_t; 4],
    pub d: float32x4_t,
    pub m: float32x4_t,
}

impl Scales {
    #[inline(always)]
    pub fn of<F: Format>(blocks: [&F::Block; 4]) -> Self {
        if const { matches!(F::KIND, TensorType::Q4_K | TensorType::Q5_K) } {
            return Self::of_six_bits::<F>(blocks);
        }
        let scales = columns::<F>(blocks.map(F::scale_words));
        let minimums = if F::M.is_some() { columns::<F>(blocks.map(F::minimum_words)) } else { scales };
        let [d, m] = floats::<F>(blocks, 0);
        Self { scales, minimums, d, m }
    }

    /// Like [`of`](Self::of), for Q4_K and Q5_K. The first 16 bytes of a block hold `d`, `m`, all scales and all
    /// minimums.
    #[inline(always)]
    fn of_six_bits<F: Format>(blocks: [&F::Block; 4]) -> Self {
        let [a, b, c, d] = blocks.map(|block| must_cast(*bytes_at::<16>(block.as_ref(), 0)));
        let two = |a, b| (vreinterpretq_u64_u32(vtrn1q_u32(a, b)), vreinterpretq_u64_u32(vtrn2q_u32(a, b)));
        let ((ab02, ab13), (cd02, cd13)) = (two(a, b), two(c, d));
        let floats = vreinterpretq_u32_u64(vtrn1q_u64(ab02, cd02));
        let bytes = |x| vreinterpretq_u8_u64(x);
        let (scales, minimums) = (bytes(vtrn1q_u64(ab13, cd13)), bytes(vtrn2q_u64(ab02, cd02)));
        let rest = bytes(vtrn2q_u64(ab13, cd13));

        // `first` has values 0 to 3 in the low six bits of its bytes. Values 4 to 7 are split: their low four bits are
        // in `rest`, and their high two bits are the high bits of `first`.
        let columns = |first, rest| {
            let second = vsliq_n_u8::<4>(rest, vshrq_n_u8::<6>(first));
            let both = [vandq_u8(first, vdupq_n_u8(0x3f)), second].map(|x| vreinterpretq_s32_u8(x));
            [both[0], both[1], both[0], both[1]]
        };
        Self {
            scales: columns(scales, vandq_u8(rest, vdupq_n_u8(15))),
            minimums: columns(minimums, vshrq_n_u8::<4>(rest)),
            d: four_halves(vmovn_u32(floats)),
            m: times(four_halves(vshrn_n_u32::<16>(floats)), F::M.map_or(1.0, |(_, factor)| factor)),
        }
    }
}

/// Arranges the scales of four rows as in [`Scales`]. Each row has sixteen one-byte scales, or eight if a scale is for
/// 32 weights.
#[inline(always)]
fn columns<F: Format>([a, b, c, d]: [[u64; 2]; 4]) -> [int32x4_t; 4] {
    let two = |a: u64, b: u64| vreinterpretq_s32_u64(vcombine_u64(vcreate_u64(a), vcreate_u64(b)));
    let (ab, cd) = (two(a[0], b[0]), two(c[0], d[0]));
    let (first, second) = (vuzp1q_s32(ab, cd), vuzp2q_s32(ab, cd));
    if F::GROUP == 32 {
        return [first, second, first, second];
    }
    let (ab, cd) = (two(a[1], b[1]), two(c[1], d[1]));
    [first, second, vuzp1q_s32(ab, cd), vuzp2q_s32(ab, cd)]
}

/// The values of a group, sign-extended, in a lane per row.
#[inline(always)]
pub(super) fn column<const GROUP: usize>(columns: [int32x4_t; 4]) -> int32x4_t {
    let four = columns[GROUP / 4];
    vshrq_n_s32::<24>(match GROUP % 4 {
        0 => vshlq_n_s32::<24>(four),
        1 => vshlq_n_s32::<16>(four),
        2 => vshlq_n_s32::<8>(four),
        _ => four,
    })
}

/// The sums of activations of the 16 groups, in four vectors. Vector `i` has the sums of groups `4 * i` to `4 * i + 3`
/// in its lower half, and the same sums in its upper half.
#[inline(always)]
pub(super) fn group_sums<F: Format>(sums: &[i16; 16]) -> [int16x8_t; 4] {
    let sums: [int16x8_t; 2] = must_cast(*sums);
    let sums = if F::GROUP == 16 { sums } else { [vpaddq_s16(sums[0], sums[1]); 2] };
    let [a, b] = sums.map(|sums| {
        let four = vreinterpretq_s64_s16(sums);
        [vdupq_laneq_s64::<0>(four), vdupq_laneq_s64::<1>(four)].map(|four| vreinterpretq_s16_s64(four))
    });
    [a[0], a[1], b[0], b[1]]
}

/// Multiplies the scales (or minimums) of the groups by the groups' sums of activations, and adds up these products for
/// each of four rows.
#[inline(always)]
pub(super) fn times_sums<F: Format>(columns: [int32x4_t; 4], sums: [int16x8_t; 4]) -> int32x4_t {
    let mut rows = [vdupq_n_s32(0); 4];
    for (column, sums) in columns.into_iter().zip(sums).take(256 / F::GROUP / 4) {
        let bytes = vreinterpretq_s8_s32(column);
        for (two, words) in [vmovl_s8(vget_low_s8(bytes)), vmovl_high_s8(bytes)].into_iter().enumerate() {
            rows[two * 2] = vmlal_s16(rows[two * 2], vget_low_s16(words), vget_low_s16(sums));
            rows[two * 2 + 1] = vmlal_high_s16(rows[two * 2 + 1], words, sums);
        }
    }
    join(rows)
}

/// The f16 scales `d` and, if the format has them, `m` of four blocks, as floats, for the weights from element `at` on.
#[inline(always)]
pub(super) fn floats<F: Format>(blocks: [&F::Block; 4], at: usize) -> [float32x4_t; 2] {
    match (F::D, F::M) {
        (Some((d, by)), Some((m, m_by))) if d + 2 == m => {
            let both = words(blocks.map(|block| bytes_at(block.as_ref(), d)));
            [times(four_halves(vmovn_u32(both)), by), times(four_halves(vshrn_n_u32::<16>(both)), m_by)]
        }
        (Some((d, by)), _) => {
            let half = halves(blocks.map(|block| bytes_at(block.as_ref(), d)));
            [times(four_halves(half), by), vdupq_n_f32(0.0)]
        }
        (None, _) => {
            let d = blocks.map(|block| F::d(block, at, |bytes| Pair.f16(bytes)));
            [must_cast(d), vdupq_n_f32(0.0)]
        }
    }
}

#[inline(always)]
fn times(x: float32x4_t, by: f32) -> float32x4_t {
    if by == 1.0 { x } else { vmulq_n_f32(x, by) }
}

/// Defines a load of one lane from each of four pointers. It is written in assembly because the compiler would load
/// through general registers.
macro_rules! gather {
    ($name:ident, $lane:literal, $bytes:literal, $lanes:ty) => {
        #[inline(always)]
        fn $name([a, b, c, d]: [&[u8; $bytes]; 4]) -> $lanes {
            let out;
            // SAFETY: reads one lane's bytes through each reference.
            unsafe {
                asm!(
                    concat!("ldr {out:", $lane, "}, [{a}]"),
                    concat!("ld1 {{{out:v}.", $lane, "}}[1], [{b}]"),
                    concat!("ld1 {{{out:v}.", $lane, "}}[2], [{c}]"),
                    concat!("ld1 {{{out:v}.", $lane, "}}[3], [{d}]"),
                    a = in(reg) a.as_ptr(),
                    b = in(reg) b.as_ptr(),
                    c = in(reg) c.as_ptr(),
                    d = in(reg) d.as_ptr(),
                    out = out(vreg) out,
                    options(pure, readonly, nostack, preserves_flags)
                );
            }
            out
        }
    };
}
gather!(halves, "h", 2, uint16x4_t);
gather!(words, "s", 4, uint32x4_t);
