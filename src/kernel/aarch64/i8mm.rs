//! Products of byte matrices, 2 x 8 times 8 x 2: `smmla`, in assembler because its intrinsic is not stable.
//! It serves panels; a single token has no use for it.

use core::arch::aarch64::*;
use core::arch::asm;

use super::blocks::next;
use super::panel::PIECE;
use crate::kernel::quantized::Tile;

/// Adds the products of two tokens and two rows, eight bytes of each: lanes are
/// `[token 0 row 0, token 0 row 1, token 1 row 0, token 1 row 1]`.
///
/// Not declared pure, which lets the compiler move it: with all loads ahead of all products it
/// would run out of registers.
#[inline(always)]
unsafe fn smmla(sum: &mut int32x4_t, x: int8x16_t, w: int8x16_t) {
    // SAFETY: the caller has the instruction, which has no other effects.
    unsafe {
        asm!(
            "smmla {sum:v}.4s, {x:v}.16b, {w:v}.16b",
            sum = inout(vreg) *sum,
            x = in(vreg) x,
            w = in(vreg) w,
            options(nomem, nostack, preserves_flags)
        );
    }
}

/// The rows of a panel lie in groups of four: eight bytes of each, then the next eight. So a vector
/// has two rows.
#[inline(always)]
pub(super) unsafe fn put(to: *mut u8, rows: [[int8x16_t; 2]; 4]) {
    // SAFETY: the two stores fill the 128 bytes of four rows.
    unsafe {
        for (half, to) in [to, to.add(64)].into_iter().enumerate() {
            let [a, b, c, d] = rows.map(|row| vreinterpretq_s64_s8(row[half]));
            vst4q_s64(to.cast(), int64x2x4_t(a, b, c, d));
        }
    }
}

/// A panel of a format with one scale for 32 weights times `T` tokens.
///
/// # Safety
///
/// The caller has the instruction; the tile has a packed panel and the tokens.
///
/// Eight rows at a time: with four tokens, 8 sums of integers and 8 of floats stay in registers. An odd last
/// token is paired with itself.
#[inline(always)]
pub(super) unsafe fn multiply<const T: usize>(tile: &Tile<'_>) {
    let blocks = tile.cols / 32;
    for half in 0..2 {
        // SAFETY: the panel has `blocks` blocks, and so has each of the tokens.
        unsafe {
            let mut w = tile.panel.add(half * blocks * PIECE);
            let mut q = tile.q::<T>().map(|q| q.cast::<i64>());
            let mut d = tile.d::<T>(32);
            // For each pair of tokens, four pairs of rows; what stands at odd tokens is never used.
            let mut acc = [[vdupq_n_f32(0.0); 4]; T];
            for _ in 0..blocks {
                let mut sums = [[vdupq_n_s32(0); 4]; T];
                let mut quants = [[vdupq_n_s8(0); 4]; T];
                for t in (0..T).step_by(2) {
                    // Eight bytes of one token to each of four registers, and of the other to their upper halves.
                    let mut pair = vld4q_dup_s64(q[t]);
                    if t + 1 < T {
                        pair = vld4q_lane_s64::<1>(q[t + 1], pair);
                    }
                    quants[t] = [pair.0, pair.1, pair.2, pair.3].map(|x| vreinterpretq_s8_s64(x));
                }
                for four in [0, 2] {
                    for steps in [[0, 1], [2, 3]] {
                        let w = [load(&mut w), load(&mut w)];
                        for (step, w) in steps.into_iter().zip(w) {
                            for t in (0..T).step_by(2) {
                                smmla(&mut sums[t][four], quants[t][step], w[0]);
                                smmla(&mut sums[t][four + 1], quants[t][step], w[1]);
                            }
                        }
                    }
                }
                // After the quants are the scales, those of each two rows twice, and then the next block.
                let dw = vld4q_dup_f64(w.cast());
                let dw = [dw.0, dw.1, dw.2, dw.3].map(|pair| vreinterpretq_f32_f64(pair));
                w = w.add(32);
                for t in (0..T).step_by(2) {
                    let even = next(&mut d[t]);
                    let dx = vcombine_f32(even, if t + 1 < T { next(&mut d[t + 1]) } else { even });
                    for pair in 0..4 {
                        let scale = vmulq_f32(dw[pair], dx);
                        acc[t][pair] = vfmaq_f32(acc[t][pair], scale, vcvtq_f32_s32(sums[t][pair]));
                    }
                }
                q = q.map(|q| q.add(4));
            }
            let out = tile.out::<T>().map(|out| out.add(half * 8));
            for t in (0..T).step_by(2) {
                let acc = acc[t].map(|pair| vreinterpretq_f64_f32(pair));
                vst1q_f64(out[t].cast(), vzip1q_f64(acc[0], acc[1]));
                vst1q_f64(out[t].add(4).cast(), vzip1q_f64(acc[2], acc[3]));
                if t + 1 < T {
                    vst1q_f64(out[t + 1].cast(), vzip2q_f64(acc[0], acc[1]));
                    vst1q_f64(out[t + 1].add(4).cast(), vzip2q_f64(acc[2], acc[3]));
                }
            }
        }
    }
}

/// Eight bytes of each of four rows; `p` moves past them.
#[inline(always)]
unsafe fn load(p: &mut *const u8) -> [int8x16_t; 2] {
    let (a, b);
    // SAFETY: reads the 32 bytes that the caller's pointer is at, nothing else.
    unsafe {
        asm!(
            "ldp {a:q}, {b:q}, [{p}], #32",
            a = out(vreg) a,
            b = out(vreg) b,
            p = inout(reg) *p,
            options(pure, readonly, nostack, preserves_flags)
        );
    }
    [a, b]
}
