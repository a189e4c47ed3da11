//! Dot products of four bytes: `sdot`, in assembler because its intrinsic is not stable.

use core::arch::aarch64::*;
use core::arch::asm;

use super::blocks::{Dot, Format, PANEL_BLOCK, PANEL_SCALES, Rows, next, pack};
use crate::kernel::Acts;
use crate::kernel::quantized::Panel;

/// The instruction `sdot`.
pub(super) struct Sdot;

impl Dot for Sdot {
    #[inline(always)]
    unsafe fn dot(sums: int32x4_t, w: [int8x16_t; 2], x: [int8x16_t; 2]) -> int32x4_t {
        let out;
        // SAFETY: the caller has the instruction, which has no other effects.
        unsafe {
            asm!(
                "sdot {sums:v}.4s, {w0:v}.16b, {x0:v}.16b",
                "sdot {sums:v}.4s, {w1:v}.16b, {x1:v}.16b",
                sums = inout(vreg) sums => out,
                w0 = in(vreg) w[0],
                w1 = in(vreg) w[1],
                x0 = in(vreg) x[0],
                x1 = in(vreg) x[1],
                options(pure, nomem, nostack, preserves_flags)
            );
        }
        out
    }

    #[inline(always)]
    unsafe fn dot16(w: int8x16_t, x: int8x16_t) -> int32x4_t {
        let out;
        // SAFETY: the caller has the instruction, which has no other effects.
        unsafe {
            asm!(
                "sdot {sums:v}.4s, {w:v}.16b, {x:v}.16b",
                sums = inout(vreg) vdupq_n_s32(0) => out,
                w = in(vreg) w,
                x = in(vreg) x,
                options(pure, nomem, nostack, preserves_flags)
            );
        }
        out
    }
}

/// Adds to each lane the dot product of its four bytes of `w` and four bytes of `x`.
#[inline(always)]
unsafe fn sdot_lane<const LANE: usize>(sum: int32x4_t, w: int8x16_t, x: int8x16_t) -> int32x4_t {
    let out;
    // SAFETY: the caller has the instruction, which has no other effects.
    unsafe {
        asm!(
            "sdot {sum:v}.4s, {w:v}.16b, {x:v}.4b[{lane}]",
            sum = inout(vreg) sum => out,
            w = in(vreg) w,
            x = in(vreg) x,
            lane = const LANE,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    out
}

/// The rows of a panel lie in groups of four: four bytes of each, then the next four. So a vector times
/// four bytes of a token gives the sums of four rows side by side.
impl<F: Format> Panel for Rows<F, Sdot> {
    #[inline(always)]
    unsafe fn pack(w: *const u8, row_bytes: usize, rows: usize, cols: usize, panel: *mut u8) {
        // SAFETY: passed on to the caller; the two stores fill the 128 bytes of four rows.
        unsafe {
            pack::<F>(w, row_bytes, rows, cols, panel, |to, [a, b, c, d]| {
                for (half, to) in [to, to.add(64)].into_iter().enumerate() {
                    let words = [a, b, c, d].map(|row| vreinterpretq_s32_s8(row[half]));
                    vst4q_s32(to.cast(), int32x4x4_t(words[0], words[1], words[2], words[3]));
                }
            });
        }
    }

    /// Eight rows at a time: with four tokens, 8 sums of integers and 8 of floats stay in registers.
    #[inline(always)]
    unsafe fn multiply<const T: usize>(panel: *const u8, cols: usize, x: &Acts<'_>, first: usize, out: [*mut f32; T]) {
        let blocks = cols / 32;
        for half in 0..2 {
            // SAFETY: the panel has `blocks` blocks, and so has each of the tokens.
            unsafe {
                let mut w: *const i8 = panel.add(half * blocks * PANEL_BLOCK).cast();
                let (q, d) = (x.q.as_ptr().add(first * cols), x.d.as_ptr().add(first * blocks));
                let mut q: [*const i8; T] = core::array::from_fn(|t| q.add(t * cols));
                let mut d: [*const f32; T] = core::array::from_fn(|t| d.add(t * blocks));
                let mut acc = [[vdupq_n_f32(0.0); 2]; T];
                for _ in 0..blocks {
                    let mut sums = [[vdupq_n_s32(0); 2]; T];
                    for step in 0..2 {
                        let quants = q.map(|q| vld1q_s8(q.add(step * 16)));
                        macro_rules! words {
                            ($lane:literal) => {
                                for group in 0..2 {
                                    let w = vld1q_s8(w.add(group * 128 + step * 64 + $lane * 16));
                                    for t in 0..T {
                                        sums[t][group] = sdot_lane::<$lane>(sums[t][group], w, quants[t]);
                                    }
                                }
                            };
                        }
                        words!(0);
                        words!(1);
                        words!(2);
                        words!(3);
                    }
                    let dw: *const f32 = w.add(PANEL_SCALES).cast();
                    let dw = [vld1q_f32(dw), vld1q_f32(dw.add(4))];
                    for t in 0..T {
                        let dx = next(&mut d[t]);
                        for group in 0..2 {
                            let scale = vmulq_lane_f32::<0>(dw[group], dx);
                            acc[t][group] = vfmaq_f32(acc[t][group], scale, vcvtq_f32_s32(sums[t][group]));
                        }
                        q[t] = q[t].add(32);
                    }
                    w = w.add(PANEL_BLOCK);
                }
                for (out, acc) in out.into_iter().zip(acc) {
                    vst1q_f32(out.add(half * 8), acc[0]);
                    vst1q_f32(out.add(half * 8 + 4), acc[1]);
                }
            }
        }
    }
}
