//! Decode: multiplies rows of blocks with one token. The multiply instruction is a type parameter ([`Dot`]).

use super::safe::*;
use core::arch::asm;
use core::marker::PhantomData;

use super::bytes::{Pair, bias, high_halves, join, low_halves};
use super::scale::{Scales, column, floats, group_sums, times_sums};
use crate::kernel::job::Row;
use crate::kernel::quantized::Blocks;
use crate::quant::{Bytes, Format, Shape};

/// An instruction that multiplies bytes. A value of this type proves that the processor has the instruction. All sums
/// of products are exact.
pub(super) trait Dot: Copy {
    /// # Safety
    ///
    /// The processor has the instruction.
    unsafe fn new() -> Self;

    /// Adds the dot product of 32 weights and 32 quants to `sums`. Only the total of the four lanes matters, so the
    /// products may be divided among the lanes in any way.
    fn dot(self, sums: int32x4_t, w: [int8x16_t; 2], x: [int8x16_t; 2]) -> int32x4_t;

    /// [`dot`](Self::dot) for 16 weights and 16 quants.
    fn dot16(self, sums: int32x4_t, w: int8x16_t, x: int8x16_t) -> int32x4_t;
}

/// Reads the block of 32 weights at `p` and moves `p` to the next block, for formats that are [simple](is_simple).
/// Returns the codes as [`Pair::signed`] does; the scale goes to lane `LANE` of `scales`.
///
/// # Safety
///
/// `p` points to a block.
#[inline(always)]
unsafe fn load<F: Format, const LANE: usize>(p: &mut *const u8, scales: &mut uint16x8_t) -> [int8x16_t; 2] {
    // SAFETY: a block of a simple format is an f16 and 16 or 32 bytes. The loads read these bytes and move `p` past
    // them.
    unsafe {
        match F::SHAPE {
            Shape::Nibbles(_, table) => {
                let bytes: uint8x16_t;
                asm!(
                    "ld1 {{{scales:v}.h}}[{lane}], [{p}], #2",
                    "ldr {bytes:q}, [{p}], #16",
                    p = inout(reg) *p,
                    scales = inout(vreg) *scales,
                    bytes = out(vreg) bytes,
                    lane = const LANE,
                    options(pure, readonly, nostack, preserves_flags)
                );
                let codes = [vandq_u8(bytes, vdupq_n_u8(15)), vshrq_n_u8::<4>(bytes)];
                Pair.signed::<F>(table.map_or(codes, |table| Pair.lookup(table, codes)))
            }
            _ => {
                let (low, high);
                asm!(
                    "ld1 {{{scales:v}.h}}[{lane}], [{p}], #2",
                    "ldp {low:q}, {high:q}, [{p}], #32",
                    p = inout(reg) *p,
                    scales = inout(vreg) *scales,
                    low = out(vreg) low,
                    high = out(vreg) high,
                    lane = const LANE,
                    options(pure, readonly, nostack, preserves_flags)
                );
                [low, high]
            }
        }
    }
}

/// True if [`load`] can read the format.
const fn is_simple<F: Format>() -> bool {
    F::M.is_none() && matches!(F::D, Some((0, _))) && matches!(F::SHAPE, Shape::Bytes(2) | Shape::Nibbles(2, _))
}

/// Multiplies eight rows of format `F` with a token by the instruction of `D`.
pub(super) struct Rows<F, D>(PhantomData<(F, D)>);

// SAFETY: `dot` reads the blocks of eight rows, reads the activations of as many blocks as a row has, and writes eight
// outputs.
unsafe impl<F: Format, D: Dot> Blocks for Rows<F, D> {
    type Format = F;
    const ROWS: usize = 8;

    #[inline(always)]
    unsafe fn dot(w: *const u8, row_bytes: usize, x: Row<'_>, out: *mut f32) {
        // SAFETY: the caller promises the same.
        unsafe {
            if is_simple::<F>() {
                return Self::simple(w, row_bytes, x, out);
            }
            let mut run = Run { sums: [[vdupq_n_s32(0); 4]; 2], before: [vdupq_n_s32(0); 2] };
            let mut next = w;
            for four in 0..2 {
                let rows = [(); 4].map(|()| {
                    let row = next;
                    next = next.wrapping_add(row_bytes);
                    row
                });
                let acc =
                    if F::ELEMENTS == 256 { Self::blocks(rows, x, &mut run) } else { Self::chunks(rows, x, &mut run) };
                vst1q_f32(out.add(four * 4), acc);
            }
        }
    }
}

impl<F: Format, D: Dot> Rows<F, D> {
    /// Multiplies eight rows of a format that [`load`] can read with a token. The integer sums are never cleared: they
    /// grow from block to block, modulo 2^32, and the sum of a block is the growth during this block.
    #[inline(always)]
    unsafe fn simple(w: *const u8, row_bytes: usize, x: Row<'_>, out: *mut f32) {
        // SAFETY: each step reads one block of each of eight rows and 32 quants of `x`, which has as many blocks as a
        // row; `out` has room for eight floats. A prefetch never faults, even beyond the file.
        unsafe {
            let mut rows: [*const u8; 8] = core::array::from_fn(|r| w.add(r * row_bytes));
            let mut ahead = w.wrapping_add(16 * row_bytes);
            let mut q = x.q.as_ptr();
            let mut scales = vdupq_n_u16(0);
            let mut sums = [vdupq_n_s32(0); 8];
            let mut before = [vdupq_n_s32(0); 2];
            let mut acc = [vdupq_n_f32(0.0); 2];
            for (dx, sum) in x.d.iter().zip(x.sums.as_chunks::<2>().0) {
                let quants = [vld1q_s8(q), vld1q_s8(q.add(16))];
                q = q.add(32);
                prefetch::<0>(ahead);
                if size_of::<F::Block>() > 18 {
                    prefetch::<128>(ahead);
                }
                ahead = ahead.wrapping_add(8 * size_of::<F::Block>());
                macro_rules! dot {
                    ($($row:literal)*) => {
                        $(sums[$row] = D::new().dot(sums[$row], load::<F, $row>(&mut rows[$row], &mut scales), quants);)*
                    };
                }
                dot!(0 1 2 3 4 5 6 7);
                let [a, b, c, d, e, f, g, h] = sums;
                let now = [join([a, b, c, d]), join([e, f, g, h])];
                let less = vdupq_n_s32(-i32::from(bias::<F>()) * (i32::from(sum[0]) + i32::from(sum[1])));
                let scales = [low_halves(scales), high_halves(scales)];
                for half in 0..2 {
                    let sum = vaddq_s32(vsubq_s32(now[half], before[half]), less);
                    acc[half] = vfmaq_f32(acc[half], vmulq_n_f32(scales[half], *dx), vcvtq_f32_s32(sum));
                }
                before = now;
            }
            vst1q_f32(out, acc[0]);
            vst1q_f32(out.add(4), acc[1]);
        }
    }

    /// Multiplies four rows of a format with blocks of less than 256.
    #[inline(always)]
    unsafe fn chunks(rows: [*const u8; 4], x: Row<'_>, run: &mut Run) -> float32x4_t {
        // SAFETY: the rows and the token have the same number of chunks.
        unsafe {
            let mut acc = vdupq_n_f32(0.0);
            for (i, (dx, sums)) in x.d.iter().zip(x.sums.as_chunks::<2>().0).enumerate() {
                let (block, chunk) = (i / (F::ELEMENTS / 32), i % (F::ELEMENTS / 32));
                let blocks = rows.map(|row| &*row.add(block * size_of::<F::Block>()).cast::<F::Block>());
                let q = x.q.as_ptr().add(i * 32);
                let quants = [vld1q_s8(q), vld1q_s8(q.add(16))];
                let codes = blocks.map(|block| Pair.signed::<F>(F::unpack(Pair, block, chunk)));
                let less = |sum: i32| vdupq_n_s32(-i32::from(bias::<F>()) * sum);
                let [first, second] = sums.map(i32::from);
                if F::FLOAT_GROUPS {
                    for (half, sum) in [first, second].into_iter().enumerate() {
                        for (sums, codes) in run.sums[half].iter_mut().zip(codes) {
                            *sums = D::new().dot16(*sums, codes[half], quants[half]);
                        }
                        let products = vaddq_s32(run.grown(half), less(sum));
                        let [d, _] = floats::<F>(blocks, chunk * 32 + half * 16);
                        acc = vfmaq_f32(acc, vmulq_n_f32(d, *dx), vcvtq_f32_s32(products));
                    }
                    continue;
                }
                for (sums, codes) in run.sums[0].iter_mut().zip(codes) {
                    *sums = D::new().dot(*sums, codes, quants);
                }
                let products = vaddq_s32(run.grown(0), less(first + second));
                let [d, m] = floats::<F>(blocks, chunk * 32);
                acc = vfmaq_f32(acc, vmulq_n_f32(d, *dx), vcvtq_f32_s32(products));
                if F::M.is_some() {
                    acc = vfmaq_f32(acc, vmulq_n_f32(m, *dx), vdupq_n_f32((first + second) as f32));
                }
            }
            acc
        }
    }

    /// Multiplies four rows of a format with blocks of 256.
    #[inline(always)]
    unsafe fn blocks(rows: [*const u8; 4], x: Row<'_>, run: &mut Run) -> float32x4_t {
        // SAFETY: the rows and the token have the same number of blocks.
        unsafe {
            let mut acc = vdupq_n_f32(0.0);
            for (i, dx) in x.d.iter().enumerate() {
                let mut blocks = rows.map(|row| &*row.add(i * size_of::<F::Block>()).cast::<F::Block>());
                let q = x.q.as_ptr().add(i * 256);
                let group_sums = group_sums::<F>(&*x.sums.as_ptr().add(i * 16).cast());
                let scales = Scales::of::<F>(blocks);
                // Both sums are computed before the loop below, so that the registers of their inputs are free in the
                // loop.
                let mut total = vdupq_n_s32(0);
                if bias::<F>() > 0 {
                    total = vmulq_n_s32(times_sums::<F>(scales.scales, group_sums), -i32::from(bias::<F>()));
                }
                let mut minimums = vdupq_n_s32(0);
                if F::M.is_some() {
                    minimums = pinned(times_sums::<F>(scales.minimums, group_sums));
                }
                macro_rules! group {
                    ($odd:literal, $group:expr) => {
                        total = vmlaq_s32(total, run.grown($odd), column::<{ $group }>(scales.scales));
                    };
                }
                macro_rules! pairs {
                    ($($pair:literal)*) => { $(
                        blocks = reread(blocks);
                        for (r, block) in blocks.into_iter().enumerate() {
                            let quants = |chunk: usize| [vld1q_s8(q.add(chunk * 32)), vld1q_s8(q.add(chunk * 32 + 16))];
                            let (x, y) = (quants($pair * 2), quants($pair * 2 + 1));
                            let first = Pair.signed::<F>(F::unpack(Pair, block, $pair * 2));
                            let second = Pair.signed::<F>(F::unpack(Pair, block, $pair * 2 + 1));
                            run.sums[0][r] = D::new().dot(run.sums[0][r], first, x);
                            run.sums[1][r] = D::new().dot(run.sums[1][r], second, y);
                        }
                        group!(0, $pair * 2);
                        group!(1, $pair * 2 + 1);
                    )* };
                }
                macro_rules! halves {
                    ($($chunk:literal)*) => { $(
                        blocks = reread(blocks);
                        let quants = [vld1q_s8(q.add($chunk * 32)), vld1q_s8(q.add($chunk * 32 + 16))];
                        for (r, block) in blocks.into_iter().enumerate() {
                            let codes = Pair.signed::<F>(F::unpack(Pair, block, $chunk));
                            run.sums[0][r] = D::new().dot16(run.sums[0][r], codes[0], quants[0]);
                            run.sums[1][r] = D::new().dot16(run.sums[1][r], codes[1], quants[1]);
                        }
                        group!(0, $chunk * 2);
                        group!(1, $chunk * 2 + 1);
                    )* };
                }
                if F::GROUP == 16 {
                    halves!(0 1 2 3 4 5 6 7);
                } else {
                    pairs!(0 1 2 3);
                }
                acc = vfmaq_f32(acc, vmulq_n_f32(scales.d, *dx), vcvtq_f32_s32(total));
                if F::M.is_some() {
                    acc = vfmaq_f32(acc, vmulq_n_f32(scales.m, *dx), vcvtq_f32_s32(minimums));
                }
            }
            acc
        }
    }
}

/// Prefetches two cache lines from `p + AT`, which may be past the file. This is needed because some hardware
/// prefetchers cannot follow eight rows at once. Rows are contiguous, so each step prefetches one range of memory: as
/// many bytes as the step reads, 16 rows ahead. (The distance was found by measurements on x86.)
#[inline(always)]
fn prefetch<const AT: usize>(p: *const u8) {
    // SAFETY: a prefetch never faults.
    unsafe {
        asm!(
            "prfm pldl2keep, [{p}, #{at}]",
            "prfm pldl2keep, [{p}, #{at} + 64]",
            p = in(reg) p,
            at = const AT,
            options(readonly, nostack, preserves_flags)
        );
    }
}

/// Integer sums of four rows: one set for the even groups of weights, and one for the odd groups. The sums are never
/// set to 0 (see [`Rows::simple`]). `before` has what the sums of each row were when [`grown`](Self::grown) was called
/// last.
struct Run {
    sums: [[int32x4_t; 4]; 2],
    before: [int32x4_t; 2],
}

impl Run {
    /// The growth of each row's sum since the last call.
    #[inline(always)]
    fn grown(&mut self, set: usize) -> int32x4_t {
        let now = join_now(self.sums[set]);
        let grown = vsubq_s32(now, self.before[set]);
        self.before[set] = now;
        grown
    }
}

/// Returns `blocks` unchanged. The compiler cannot tell that the references are the same, so it loads the bytes of the
/// blocks again. Otherwise the compiler would keep more bytes than fit in the registers.
#[inline(always)]
fn reread<B>(blocks: [&B; 4]) -> [&B; 4] {
    blocks.map(|block| {
        let mut block: *const B = block;
        // SAFETY: the assembly contains no instruction, so the returned reference is the argument.
        unsafe {
            asm!("/* {0} */", inout(reg) block, options(readonly, nostack, preserves_flags));
            &*block
        }
    })
}

/// Forces the compiler to compute `x` here instead of where `x` is used.
#[inline(always)]
fn pinned(mut x: int32x4_t) -> int32x4_t {
    // SAFETY: contains no instruction.
    unsafe { asm!("/* {0:v} */", inout(vreg) x, options(nomem, nostack, preserves_flags)) };
    x
}

/// Does the same as [`join`], but at once. Otherwise the compiler would delay the computation until the result is used,
/// and would copy the running sums.
#[inline(always)]
fn join_now([a, b, c, d]: [int32x4_t; 4]) -> int32x4_t {
    let x;
    // SAFETY: computes in registers, by instructions of NEON.
    unsafe {
        asm!(
            "addp {x:v}.4s, {a:v}.4s, {b:v}.4s",
            "addp {y:v}.4s, {c:v}.4s, {d:v}.4s",
            "addp {x:v}.4s, {x:v}.4s, {y:v}.4s",
            a = in(vreg) a,
            b = in(vreg) b,
            c = in(vreg) c,
            d = in(vreg) d,
            x = out(vreg) x,
            y = out(vreg) _,
            options(nomem, nostack, preserves_flags)
        );
    }
    x
}
