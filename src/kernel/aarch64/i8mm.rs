//! Products of byte matrices, 2 x 8 times 8 x 2, by `smmla`, in assembly because the intrinsic of `smmla` is not
//! stable. The instruction multiplies panels only, because a single token gains nothing from it.

use super::safe::*;
use core::arch::aarch64::vld4q_lane_s64;
use core::arch::asm;
use core::ops::Range;

use bytemuck::{must_cast, must_cast_ref};

use super::panel::{CODES, LINE, Panel, ROWS, eight_sums};

/// The instruction `smmla`.
pub(super) struct Smmla;

/// Adds the dot products of each of two tokens with each of two rows, over eight bytes. The lanes are `[token 0 row 0,
/// token 0 row 1, token 1 row 0, token 1 row 1]`.
///
/// The assembly is not declared pure, because the compiler would then move all loads before all products and run out of
/// registers.
#[inline(always)]
unsafe fn smmla(sum: &mut int32x4_t, x: int8x16_t, w: int8x16_t) {
    // SAFETY: the caller promises that the processor has the instruction, which uses registers only.
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

/// One vector for each pair of tokens, with the first of the two tokens in its lower half and the second in its upper
/// half. Only the even indices are used. If the last token has no partner, it is paired with itself.
type Pairs<V, const T: usize> = [[V; 4]; T];

/// The index of the first token of each pair of tokens. The index is computed from the pair's number, so that the
/// compiler knows, even without unrolling, that it is below `T`.
#[inline(always)]
fn evens<const T: usize>() -> impl Iterator<Item = usize> {
    (0..T.div_ceil(2)).map(|pair| 2 * pair)
}

/// A panel interleaves four rows: eight bytes of each row, then the next eight bytes of each. A vector has eight bytes
/// of two rows.
// SAFETY: `put` writes the 128 bytes of four rows; the other methods read only the elements that their docs name.
unsafe impl Panel for Smmla {
    type Quants<const T: usize> = Pairs<int8x16_t, T>;
    type Sums<const T: usize> = Pairs<int32x4_t, T>;
    type Floats<const T: usize> = Pairs<float32x4_t, T>;
    /// Each vector holds the floats of two rows, twice.
    type Line = [float32x4_t; 4];
    type Scales<const T: usize> = [float32x4_t; T];

    #[inline(always)]
    fn put(to: &mut [u8; 128], [a, b, c, d]: [[int8x16_t; 2]; 4]) {
        let halves = to.as_chunks_mut().0.iter_mut();
        for (to, ((a, b), (c, d))) in halves.zip(a.into_iter().zip(b).zip(c.into_iter().zip(d))) {
            let [a, b, c, d] = [a, b, c, d].map(|half| vreinterpretq_s64_s8(half));
            vst4q_s64(to, int64x2x4_t(a, b, c, d));
        }
    }
    /// Eight quants per vector.
    #[inline(always)]
    fn quants<const T: usize>(q: [&[i8; 32]; T]) -> Pairs<int8x16_t, T> {
        let mut quants = [[vdupq_n_s8(0); 4]; T];
        for t in evens::<T>() {
            let mut pair = vld4q_dup_s64(must_cast_ref(q[t]));
            if t + 1 < T {
                // SAFETY: every target of this module has NEON, and a token has 32 quants.
                pair = unsafe { vld4q_lane_s64::<1>(q[t + 1].as_ptr().cast(), pair) };
            }
            quants[t] = [pair.0, pair.1, pair.2, pair.3].map(|x| vreinterpretq_s8_s64(x));
        }
        quants
    }
    #[inline(always)]
    unsafe fn scales<const T: usize>(d: &mut [*const f32; T]) -> [float32x4_t; T] {
        // SAFETY: the caller promises a scale of each token.
        unsafe {
            let mut scales = [vdupq_n_f32(0.0); T];
            for t in evens::<T>() {
                let even = next(&mut d[t]);
                scales[t] = vcombine_f32(even, if t + 1 < T { next(&mut d[t + 1]) } else { even });
            }
            scales
        }
    }
    #[inline(always)]
    fn line(w: &[u8; LINE]) -> [float32x4_t; 4] {
        let pairs = vld4q_dup_f64(w);
        [pairs.0, pairs.1, pairs.2, pairs.3].map(|pair| vreinterpretq_f32_f64(pair))
    }
    /// Multiplies a chunk of 32 codes per row in four steps of eight codes. Two steps belong to each half of the chunk.
    #[inline(always)]
    unsafe fn products<const T: usize>(
        codes: &mut *const u8,
        quants: Pairs<int8x16_t, T>,
        halves: Range<usize>,
    ) -> Pairs<int32x4_t, T> {
        let mut sums = Self::no_sums::<T>();
        for four in evens::<4>() {
            let next = codes.wrapping_add(CODES / 2);
            if halves.start == 1 {
                *codes = codes.wrapping_add(CODES / 4);
            }
            #[allow(clippy::needless_range_loop)] // the bounds are constants where this is inlined
            for step in 2 * halves.start..2 * halves.end {
                // SAFETY: the caller promises a chunk of eight rows, and that the processor has the instruction.
                unsafe {
                    let w = load(codes);
                    for t in evens::<T>() {
                        smmla(&mut sums[t][four], quants[t][step], w[0]);
                        smmla(&mut sums[t][four + 1], quants[t][step], w[1]);
                    }
                }
            }
            if halves.len() == 1 {
                *codes = next;
            }
        }
        sums
    }
    #[inline(always)]
    fn no_sums<const T: usize>() -> Pairs<int32x4_t, T> {
        [[vdupq_n_s32(0); 4]; T]
    }
    #[inline(always)]
    fn add_scaled<const T: usize>(totals: &mut Pairs<int32x4_t, T>, sums: Pairs<int32x4_t, T>, scale: &[u8; LINE]) {
        let pairs = vld4q_dup_s64(scale);
        let pairs = [pairs.0, pairs.1, pairs.2, pairs.3].map(|pair| vreinterpretq_s32_s64(pair));
        for t in evens::<T>() {
            for pair in 0..4 {
                totals[t][pair] = vmlaq_s32(totals[t][pair], sums[t][pair], pairs[pair]);
            }
        }
    }
    #[inline(always)]
    fn of_chunk<const T: usize>(sums: [&[i16; 2]; T]) -> Pairs<int32x4_t, T> {
        let mut totals = Self::no_sums::<T>();
        for t in evens::<T>() {
            let sum = |t: usize| vdup_n_s32(i32::from(sums[t][0]) + i32::from(sums[t][1]));
            totals[t] = [vcombine_s32(sum(t), sum(if t + 1 < T { t + 1 } else { t })); 4];
        }
        totals
    }
    #[inline(always)]
    fn minimums<const T: usize, const GROUP: usize>(w: &[[u8; 16]], sums: [&[i16; 16]; T]) -> Pairs<int32x4_t, T> {
        let mut totals = Self::no_sums::<T>();
        for (eight, w) in w.as_chunks::<8>().0.iter().enumerate() {
            for t in evens::<T>() {
                let (even, odd) = (sums[t], if t + 1 < T { sums[t + 1] } else { sums[t] });
                let (even, odd) = (eight_sums::<GROUP>(even, eight), eight_sums::<GROUP>(odd, eight));
                // Each vector has sums of two groups of quants. For each group, the sum of the even token comes twice,
                // then the sum of the odd token twice.
                let (low, high) = (vzip1q_s16(even, odd), vzip2q_s16(even, odd));
                let two = [vzip1q_s16(low, low), vzip2q_s16(low, low), vzip1q_s16(high, high), vzip2q_s16(high, high)];
                for (i, sums) in two.into_iter().enumerate() {
                    let of = |group: usize| {
                        let pairs = vld4q_dup_s32(&w[group]);
                        [pairs.0, pairs.1, pairs.2, pairs.3].map(|pair| vreinterpretq_s16_s32(pair))
                    };
                    let (first, second) = (of(i * 2), of(i * 2 + 1));
                    for pair in 0..4 {
                        let total = vmlal_s16(totals[t][pair], vget_low_s16(first[pair]), vget_low_s16(sums));
                        totals[t][pair] = vmlal_high_s16(total, second[pair], sums);
                    }
                }
            }
        }
        totals
    }
    #[inline(always)]
    fn zero<const T: usize>() -> Pairs<float32x4_t, T> {
        [[vdupq_n_f32(0.0); 4]; T]
    }
    #[inline(always)]
    fn add<const T: usize>(
        acc: &mut Pairs<float32x4_t, T>,
        w: [float32x4_t; 4],
        x: [float32x4_t; T],
        sums: Pairs<int32x4_t, T>,
    ) {
        for t in evens::<T>() {
            for pair in 0..4 {
                acc[t][pair] = vfmaq_f32(acc[t][pair], vmulq_f32(w[pair], x[t]), vcvtq_f32_s32(sums[t][pair]));
            }
        }
    }
    #[inline(always)]
    fn store<const T: usize>(out: [&mut [f32; ROWS]; T], acc: Pairs<float32x4_t, T>) {
        for t in evens::<T>() {
            let acc = acc[t].map(|pair| vreinterpretq_f64_f32(pair));
            *out[t] = must_cast([vzip1q_f64(acc[0], acc[1]), vzip1q_f64(acc[2], acc[3])]);
            if t + 1 < T {
                *out[t + 1] = must_cast([vzip2q_f64(acc[0], acc[1]), vzip2q_f64(acc[2], acc[3])]);
            }
        }
    }
}

/// Eight bytes of each of four rows; moves `p` past them.
#[inline(always)]
unsafe fn load(p: &mut *const u8) -> [int8x16_t; 2] {
    let (a, b);
    // SAFETY: reads the 32 bytes at `p`, which the caller promises.
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

/// Loads the float at `p` into both lanes, and moves `p` to the next float.
#[inline(always)]
unsafe fn next(p: &mut *const f32) -> float32x2_t {
    let out;
    // SAFETY: reads the float at `p`, which the caller promises.
    unsafe {
        asm!(
            "ld1r {{{out:v}.2s}}, [{p}], #4",
            out = out(vreg) out,
            p = inout(reg) *p,
            options(pure, readonly, nostack, preserves_flags)
        );
    }
    out
}
