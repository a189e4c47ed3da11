//! Products of byte matrices, 2 x 8 times 8 x 2, by `smmla`, in assembly because its intrinsic is not stable. Used for
//! panels; a single token gains nothing from it.

use core::arch::aarch64::*;
use core::arch::asm;

use super::blocks::next;
use super::panel::{BlockLayout, CHUNK, CODES, LINE, eight_sums, scales};
use crate::kernel::quantized::Tile;

/// Adds the products of two tokens and two rows, eight bytes of each. The lanes are
/// `[token 0 row 0, token 0 row 1, token 1 row 0, token 1 row 1]`.
///
/// Not declared pure, because the compiler would then move all loads before all products and run out of registers.
#[inline(always)]
unsafe fn smmla(sum: &mut int32x4_t, x: int8x16_t, w: int8x16_t) {
    // SAFETY: the caller promises the instruction, which uses registers only.
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

/// A panel interleaves four rows: eight bytes of each, then the next eight. A vector has eight bytes of two rows.
#[inline(always)]
pub(super) unsafe fn put(to: *mut u8, [a, b, c, d]: [[int8x16_t; 2]; 4]) {
    // SAFETY: the two stores fill the 128 bytes of four rows.
    unsafe {
        for (((a, b), (c, d)), to) in a.into_iter().zip(b).zip(c.into_iter().zip(d)).zip([to, to.add(64)]) {
            let [a, b, c, d] = [a, b, c, d].map(|half| vreinterpretq_s64_s8(half));
            vst4q_s64(to.cast(), int64x2x4_t(a, b, c, d));
        }
    }
}

/// Vectors for pairs of tokens, with one token in the lower half and one in the upper. Only even indices are used; an
/// odd last token is paired with itself.
type Pairs<V, const T: usize> = [[V; 4]; T];

/// The index of the first token of each pair. In this form the compiler knows that it is below `T` even without
/// unrolling.
#[inline(always)]
fn evens<const T: usize>() -> impl Iterator<Item = usize> {
    (0..T.div_ceil(2)).map(|pair| 2 * pair)
}

/// 32 quants of each pair of tokens, eight per vector; moves the pointers on.
#[inline(always)]
unsafe fn quants<const T: usize>(q: &mut [*const i64; T]) -> Pairs<int8x16_t, T> {
    // SAFETY: the caller promises 32 quants of each token.
    unsafe {
        let mut quants = [[vdupq_n_s8(0); 4]; T];
        for t in evens::<T>() {
            let mut pair = vld4q_dup_s64(q[t]);
            if t + 1 < T {
                pair = vld4q_lane_s64::<1>(q[t + 1], pair);
            }
            quants[t] = [pair.0, pair.1, pair.2, pair.3].map(|x| vreinterpretq_s8_s64(x));
        }
        *q = q.map(|q| q.add(4));
        quants
    }
}

/// The sums of the products of eight rows, in four pairs, and pairs of tokens. `$step` selects some of the four steps
/// of eight codes in a chunk. `$codes` points to the first selected step, and is moved on by a chunk.
macro_rules! products {
    ($codes:ident, $quants:ident, $($step:literal)*) => {{
        let mut sums = [[vdupq_n_s32(0); 4]; T];
        for four in evens::<4>() {
            let next = $codes.add(CODES / 2);
            $(
                let w = load(&mut $codes);
                for t in evens::<T>() {
                    smmla(&mut sums[t][four], $quants[t][$step], w[0]);
                    smmla(&mut sums[t][four + 1], $quants[t][$step], w[1]);
                }
            )*
            if [$($step),*].len() < 4 {
                $codes = next;
            }
        }
        sums
    }};
}

/// The floats of eight rows: in each vector those of two rows, twice.
#[inline(always)]
unsafe fn floats(w: *const u8) -> [float32x4_t; 4] {
    // SAFETY: the caller promises eight floats.
    let pairs = unsafe { vld4q_dup_f64(w.cast()) };
    // SAFETY: every target of this module has NEON.
    [pairs.0, pairs.1, pairs.2, pairs.3].map(|pair| unsafe { vreinterpretq_f32_f64(pair) })
}

/// The scales of each pair of tokens; moves the pointers on.
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

/// `acc + sums * w * x`.
#[inline(always)]
unsafe fn add<const T: usize>(
    acc: &mut Pairs<float32x4_t, T>,
    w: [float32x4_t; 4],
    x: [float32x4_t; T],
    sums: Pairs<int32x4_t, T>,
) {
    for t in evens::<T>() {
        for pair in 0..4 {
            // SAFETY: every target of this module has NEON.
            acc[t][pair] = unsafe { vfmaq_f32(acc[t][pair], vmulq_f32(w[pair], x[t]), vcvtq_f32_s32(sums[t][pair])) };
        }
    }
}

/// Stores the sums of eight rows to each token's output.
#[inline(always)]
unsafe fn store<const T: usize>(out: [*mut f32; T], acc: Pairs<float32x4_t, T>) {
    // SAFETY: the caller promises room for eight rows of each token.
    unsafe {
        for t in evens::<T>() {
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

/// See [`super::panel::chunks`]. Eight rows at a time, so that with four tokens 8 integer sums and 8 float sums fit in
/// registers.
///
/// # Safety
///
/// The processor has the instruction; the tile has a packed panel and `T` tokens.
#[inline(always)]
pub(super) unsafe fn chunks<const T: usize, const SCALES: u8>(tile: &Tile<'_>) {
    let blocks = tile.cols / 32;
    let size = if SCALES == scales::ONE { CHUNK } else { CHUNK + LINE };
    for half in 0..2 {
        // SAFETY: each half of the panel, and each token, has `blocks` chunks.
        unsafe {
            let mut w = tile.panel.add(half * blocks * size);
            let mut q = tile.q::<T>().map(|q| q.cast::<i64>());
            let (mut d, mut sums) = (tile.d::<T>(32), tile.sums::<T>());
            let mut acc = [[vdupq_n_f32(0.0); 4]; T];
            for _ in 0..blocks {
                let quants = quants(&mut q);
                let mut second = w.add(CODES / 4);
                let first =
                    if SCALES == scales::HALVES { products!(w, quants, 0 1) } else { products!(w, quants, 0 1 2 3) };
                let dx = scales(&mut d);
                add(&mut acc, floats(w), dx, first);
                w = w.add(LINE);
                if SCALES == scales::HALVES {
                    add(&mut acc, floats(w), dx, products!(second, quants, 2 3));
                    w = w.add(LINE);
                }
                if SCALES == scales::MINIMUM {
                    let mut totals = [[vdupq_n_s32(0); 4]; T];
                    for t in evens::<T>() {
                        let sum = |t: usize| vdup_n_s32(i32::from(*sums[t]) + i32::from(*sums[t].add(1)));
                        totals[t] = [vcombine_s32(sum(t), sum(if t + 1 < T { t + 1 } else { t })); 4];
                    }
                    add(&mut acc, floats(w), dx, totals);
                    sums = sums.map(|sums| sums.add(2));
                    w = w.add(LINE);
                }
            }
            store(tile.out::<T>().map(|out| out.add(half * 8)), acc);
        }
    }
}

/// See [`super::panel::blocks`].
///
/// # Safety
///
/// The processor has the instruction; the tile has a packed panel and `T` tokens.
#[inline(always)]
pub(super) unsafe fn blocks<const T: usize, const GROUP: usize, const MINIMUMS: bool>(tile: &Tile<'_>) {
    let blocks = tile.cols / 256;
    let layout = const { BlockLayout::of(GROUP, MINIMUMS) };
    for half in 0..2 {
        // SAFETY: each half of the panel, and each token, has `blocks` blocks.
        unsafe {
            let mut w = tile.panel.add(half * blocks * layout.size);
            let mut q = tile.q::<T>().map(|q| q.cast::<i64>());
            let (mut d, mut sums) = (tile.d::<T>(256), tile.sums::<T>());
            let mut acc = [[vdupq_n_f32(0.0); 4]; T];
            for _ in 0..blocks {
                let mut totals = [[vdupq_n_s32(0); 4]; T];
                let mut scale: *const i64 = w.add(BlockLayout::SCALES).cast();
                let mut weigh = |sums: Pairs<int32x4_t, T>| {
                    let pairs = vld4q_dup_s64(scale);
                    let pairs = [pairs.0, pairs.1, pairs.2, pairs.3].map(|pair| vreinterpretq_s32_s64(pair));
                    for t in evens::<T>() {
                        for pair in 0..4 {
                            totals[t][pair] = vmlaq_s32(totals[t][pair], sums[t][pair], pairs[pair]);
                        }
                    }
                    scale = scale.add(4);
                };
                let mut codes = w;
                for _ in 0..8 {
                    let quants = quants(&mut q);
                    let mut second = codes.add(CODES / 4);
                    if GROUP == 32 {
                        weigh(products!(codes, quants, 0 1 2 3));
                    } else {
                        weigh(products!(codes, quants, 0 1));
                        weigh(products!(second, quants, 2 3));
                    }
                }
                let dx = scales(&mut d);
                add(&mut acc, floats(w.add(layout.d)), dx, totals);
                if MINIMUMS {
                    let totals = minimums::<T, GROUP>(w.add(layout.minimums).cast(), sums);
                    add(&mut acc, floats(w.add(layout.m)), dx, totals);
                    sums = sums.map(|sums| sums.add(16));
                }
                w = w.add(layout.size);
            }
            store(tile.out::<T>().map(|out| out.add(half * 8)), acc);
        }
    }
}

/// For eight rows and each pair of tokens, the sums of minimums times the sums of the groups.
#[inline(always)]
unsafe fn minimums<const T: usize, const GROUP: usize>(
    minimums: *const u32,
    sums: [*const i16; T],
) -> Pairs<int32x4_t, T> {
    // SAFETY: the caller promises eight minimums per group, and 16 sums of each token.
    unsafe {
        let mut totals = [[vdupq_n_s32(0); 4]; T];
        for eight in 0..256 / GROUP / 8 {
            for t in evens::<T>() {
                let (even, odd) = (sums[t], if t + 1 < T { sums[t + 1] } else { sums[t] });
                let (even, odd) = (eight_sums::<GROUP>(even, eight), eight_sums::<GROUP>(odd, eight));
                // Each sum twice, of both tokens: two groups per vector.
                let (low, high) = (vzip1q_s16(even, odd), vzip2q_s16(even, odd));
                let two = [vzip1q_s16(low, low), vzip2q_s16(low, low), vzip1q_s16(high, high), vzip2q_s16(high, high)];
                for (i, sums) in two.into_iter().enumerate() {
                    let of = |group: usize| {
                        let pairs = vld4q_dup_s32(minimums.add((eight * 8 + group) * 4).cast());
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
