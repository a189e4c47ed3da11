//! Dot products of four bytes by `sdot`, in assembly because the intrinsic of `sdot` is not stable.

use super::safe::*;
use core::arch::asm;
use core::ops::Range;

use super::blocks::Dot;
use super::panel::Along;

/// The instruction `sdot`.
#[derive(Clone, Copy)]
pub(super) struct Sdot(());

impl Dot for Sdot {
    #[inline(always)]
    unsafe fn new() -> Self {
        Self(())
    }

    #[inline(always)]
    fn dot(self, sums: int32x4_t, w: [int8x16_t; 2], x: [int8x16_t; 2]) -> int32x4_t {
        let out;
        // SAFETY: `self` proves that the processor has the instruction, which uses registers only.
        unsafe {
            asm!(
                "sdot {sums:v}.4s, {w0:v}.16b, {x0:v}.16b",
                "sdot {sums:v}.4s, {w1:v}.16b, {x1:v}.16b",
                sums = inout(vreg) sums => out,
                w0 = in(vreg) w[0],
                w1 = in(vreg) w[1],
                x0 = in(vreg) x[0],
                x1 = in(vreg) x[1],
                options(nomem, nostack, preserves_flags)
            );
        }
        out
    }

    #[inline(always)]
    fn dot16(self, sums: int32x4_t, w: int8x16_t, x: int8x16_t) -> int32x4_t {
        let out;
        // SAFETY: `self` proves that the processor has the instruction, which uses registers only.
        unsafe {
            asm!(
                "sdot {sums:v}.4s, {w:v}.16b, {x:v}.16b",
                sums = inout(vreg) sums => out,
                w = in(vreg) w,
                x = in(vreg) x,
                options(nomem, nostack, preserves_flags)
            );
        }
        out
    }
}

impl Sdot {
    /// Adds a dot product of four bytes to each lane: the lane's bytes of `w` times the bytes in lane `LANE` of `x`.
    #[inline(always)]
    fn lane<const LANE: usize>(self, sum: int32x4_t, w: int8x16_t, x: int8x16_t) -> int32x4_t {
        let out;
        // SAFETY: `self` proves that the processor has the instruction, which uses registers only.
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
}

/// A panel interleaves four rows: four bytes of each row, then the next four bytes of each. A vector times four bytes
/// of a token thus gives the sums of four rows.
// SAFETY: `put` writes the 128 bytes of four rows; `products` reads the codes of eight rows and the quants that
// `halves` selects.
unsafe impl Along for Sdot {
    #[inline(always)]
    fn put(to: &mut [u8; 128], [a, b, c, d]: [[int8x16_t; 2]; 4]) {
        let halves = to.as_chunks_mut().0.iter_mut();
        for (to, ((a, b), (c, d))) in halves.zip(a.into_iter().zip(b).zip(c.into_iter().zip(d))) {
            let [a, b, c, d] = [a, b, c, d].map(|half| vreinterpretq_s32_s8(half));
            vst4q_s32(to, int32x4x4_t(a, b, c, d));
        }
    }

    #[inline(always)]
    unsafe fn products<const T: usize>(w: *const u8, q: [*const i8; T], halves: Range<usize>) -> [[int32x4_t; 2]; T] {
        // SAFETY: the caller promises the codes and the quants.
        unsafe {
            let w: *const i8 = w.cast();
            let mut sums = [[vdupq_n_s32(0); 2]; T];
            for half in halves {
                let quants = q.map(|q| vld1q_s8(q.add(half * 16)));
                macro_rules! words {
                    ($($lane:literal)*) => { $(
                        for group in 0..2 {
                            let w = vld1q_s8(w.add(group * 128 + half * 64 + $lane * 16));
                            for t in 0..T {
                                sums[t][group] = Self::new().lane::<$lane>(sums[t][group], w, quants[t]);
                            }
                        }
                    )* };
                }
                words!(0 1 2 3);
            }
            sums
        }
    }
}
