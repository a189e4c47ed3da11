//! Q6_K: 256 weights of six bits in 16 sub-blocks, each with a scale of its own; one token at a time.

use core::arch::aarch64::*;
use core::marker::PhantomData;

use super::blocks::{Dot, join};
use super::neon::low_halves;
use crate::kernel::quantized::Blocks;
use crate::kernel::{Row, scalar};

/// Bytes of a block, and where its parts begin: low four bits, high two bits, sub-blocks' scales, scale.
const BYTES: usize = 210;
const HIGH: usize = 128;
const SCALES: usize = 192;
const SCALE: usize = 208;

/// Rows of Q6_K under one instruction.
pub(super) struct Q6K<D>(PhantomData<D>);

impl<D: Dot> Blocks for Q6K<D> {
    const ROWS: usize = 4;

    #[inline(always)]
    unsafe fn dot(w: *const u8, row_bytes: usize, x: Row<'_>, out: *mut f32) {
        // SAFETY: each of the four rows has as many blocks as `x`, which has 256 quants and 16 offsets for each;
        // `out` has room for four.
        unsafe {
            let mut acc = vdupq_n_f32(0.0);
            for (block, dx) in x.d.iter().enumerate() {
                let w: [*const u8; 4] = core::array::from_fn(|r| w.add(r * row_bytes + block * BYTES));
                let (q, offsets) = (x.q.as_ptr().add(block * 256), x.offsets.as_ptr().add(block * 16));
                let mut sums = [vdupq_n_s32(0); 4];
                for half in 0..2 {
                    for (sums, w) in sums.iter_mut().zip(w) {
                        *sums = add_half::<D>(*sums, w, half, q.add(half * 128), offsets.add(half * 8));
                    }
                }
                let scale = |r: usize| w[r].add(SCALE).cast::<u16>();
                let scales = vld1_lane_u16::<0>(scale(0), vdup_n_u16(0));
                let scales = vld1_lane_u16::<1>(scale(1), scales);
                let scales = vld1_lane_u16::<2>(scale(2), scales);
                let scales = vld1_lane_u16::<3>(scale(3), scales);
                let scales = low_halves(vcombine_u16(scales, scales));
                acc = vfmaq_f32(acc, vmulq_n_f32(scales, *dx), vcvtq_f32_s32(join(sums)));
            }
            vst1q_f32(out, acc);
        }
    }

    fn dot_one(row: &[u8], x: Row<'_>) -> f32 {
        scalar::dot_q6_k(row, x)
    }
}

/// Adds a half of the block at `w` times 128 quants: eight sub-blocks, each the product of its scale and the sum
/// over its 16 weights. The weights are taken 32 too large, which the offsets undo.
#[inline(always)]
unsafe fn add_half<D: Dot>(
    mut sums: int32x4_t,
    w: *const u8,
    half: usize,
    q: *const i8,
    offsets: *const i32,
) -> int32x4_t {
    // SAFETY: `w` points to a block; the caller's quants are 128 and the offsets 8.
    unsafe {
        let scales = vmovl_s8(vld1_s8(w.add(SCALES + half * 8).cast()));
        let scales = [vmovl_s16(vget_low_s16(scales)), vmovl_high_s16(scales)];
        for (i, scales) in scales.into_iter().enumerate() {
            sums = vmlaq_s32(sums, scales, vld1q_s32(offsets.add(i * 4)));
        }
        // A quarter of 32 weights is two sub-blocks. The first two quarters have the lower nibbles of 64 bytes,
        // the others the upper ones; each has two bits of every one of 32 bytes.
        for part in 0..2 {
            let low = w.add(half * 64 + part * 16);
            let (a, b) = (vld1q_u8(low), vld1q_u8(low.add(32)));
            let high = vld1q_u8(w.add(HIGH + half * 32 + part * 16));
            let six = vdupq_n_u8(63);
            let quarters = [
                vandq_u8(vsliq_n_u8::<4>(a, high), six),
                vandq_u8(vsliq_n_u8::<4>(b, vshrq_n_u8::<2>(high)), six),
                vandq_u8(vsliq_n_u8::<4>(vshrq_n_u8::<4>(a), vshrq_n_u8::<4>(high)), six),
                vsliq_n_u8::<4>(vshrq_n_u8::<4>(b), vshrq_n_u8::<6>(high)),
            ];
            for (k, w) in quarters.into_iter().enumerate() {
                let sum = D::dot16(vreinterpretq_s8_u8(w), vld1q_s8(q.add(k * 32 + part * 16)));
                let scales = scales[k / 2];
                sums = match k % 2 * 2 + part {
                    0 => vmlaq_laneq_s32::<0>(sums, sum, scales),
                    1 => vmlaq_laneq_s32::<1>(sums, sum, scales),
                    2 => vmlaq_laneq_s32::<2>(sums, sum, scales),
                    _ => vmlaq_laneq_s32::<3>(sums, sum, scales),
                };
            }
        }
        sums
    }
}
