//! Multiplies rows of blocks with one token. Codes and quants are widened to i16, and the products are summed in pairs.
//! The bias is not subtracted from the codes: the sum of the quants times the bias is subtracted from the sum of the
//! products.

use core::arch::wasm32::*;
use core::marker::PhantomData;

use super::bytes::Pair;
use super::simd::{fma, from_f16};
use crate::kernel::job::Row;
use crate::kernel::quantized::Blocks;
use crate::quant::{self, Format, Shape};

/// Four rows of format `F`.
pub(super) struct Rows<F>(PhantomData<F>);

// SAFETY: `dot` reads the blocks of four rows, reads the activations of as many blocks as a row has, and writes four
// outputs.
unsafe impl<F: Format> Blocks for Rows<F> {
    type Format = F;
    const ROWS: usize = 4;

    #[inline(always)]
    unsafe fn dot(w: *const u8, row_bytes: usize, x: Row<'_>, out: *mut f32) {
        // SAFETY: the caller promises rows, activations and room for the outputs.
        unsafe {
            let rows = core::array::from_fn(|r| w.add(r * row_bytes));
            let acc = if F::ELEMENTS == 256 { Self::blocks(rows, x) } else { Self::chunks(rows, x) };
            v128_store(out.cast(), acc);
        }
    }
}

impl<F: Format> Rows<F> {
    /// The bias of [`codes`](Self::codes).
    const BIAS: i32 = if let Shape::Bytes(_) = F::SHAPE { 0 } else { F::BIAS as i32 };

    /// Multiplies four rows of a format with blocks of less than 256.
    #[inline(always)]
    unsafe fn chunks(rows: [*const u8; 4], x: Row<'_>) -> v128 {
        let mut acc = f32x4_splat(0.0);
        for (i, (dx, sums)) in x.d.iter().zip(x.sums.as_chunks::<2>().0).enumerate() {
            let (block, chunk) = (i / (F::ELEMENTS / 32), i % (F::ELEMENTS / 32));
            // SAFETY: the rows and the token have the same number of chunks.
            let (blocks, quants) = unsafe {
                let blocks = rows.map(|row| &*row.add(block * size_of::<F::Block>()).cast::<F::Block>());
                (blocks, quants(x.q.as_ptr().add(i * 32)))
            };
            let codes = blocks.map(|block| Self::codes(block, chunk));
            let less = |sum: i32| i32x4_splat(-Self::BIAS * sum);
            let dx = f32x4_splat(*dx);
            let [first, second] = sums.map(i32::from);
            if F::FLOAT_GROUPS {
                for (half, sum) in [first, second].into_iter().enumerate() {
                    let products = join(codes.map(|codes| dot16(codes, quants, half)));
                    let scale = f32x4_mul(Self::d(blocks, chunk * 32 + half * 16), dx);
                    acc = fma(scale, f32x4_convert_i32x4(i32x4_add(products, less(sum))), acc);
                }
                continue;
            }
            let products = join(codes.map(|codes| dot32(codes, quants)));
            let scale = f32x4_mul(Self::d(blocks, chunk * 32), dx);
            acc = fma(scale, f32x4_convert_i32x4(i32x4_add(products, less(first + second))), acc);
            if F::M.is_some() {
                acc = fma(f32x4_mul(Self::m(blocks), dx), f32x4_splat((first + second) as f32), acc);
            }
        }
        acc
    }

    /// Multiplies four rows of a format with blocks of 256.
    #[inline(always)]
    unsafe fn blocks(rows: [*const u8; 4], x: Row<'_>) -> v128 {
        let mut acc = f32x4_splat(0.0);
        for (i, dx) in x.d.iter().enumerate() {
            // SAFETY: the rows and the token have the same number of blocks.
            unsafe {
                let blocks = rows.map(|row| &*row.add(i * size_of::<F::Block>()).cast::<F::Block>());
                let q = x.q.as_ptr().add(i * 256);
                let sums = Self::group_sums(x.sums.as_ptr().add(i * 16));
                let dx = f32x4_splat(*dx);
                let totals = join(blocks.map(|block| Self::block(block, q, sums)));
                acc = fma(f32x4_mul(Self::d(blocks, 0), dx), f32x4_convert_i32x4(totals), acc);
                if F::M.is_some() {
                    let totals = join(blocks.map(|block| Self::times_sums(F::minimums(block), sums)));
                    acc = fma(f32x4_mul(Self::m(blocks), dx), f32x4_convert_i32x4(totals), acc);
                }
            }
        }
        acc
    }

    /// Four i32 whose sum is the integer dot product of a block of 256.
    ///
    /// # Safety
    ///
    /// `q` points to 256 quants.
    #[inline(always)]
    unsafe fn block(block: &F::Block, q: *const i8, sums: [v128; 2]) -> v128 {
        let scales = F::scales(block);
        let mut total = i32x4_mul(Self::times_sums(scales, sums), i32x4_splat(-Self::BIAS));
        let mut scales = scales.into_iter();
        let mut scale = || i32x4_splat(scales.next().unwrap_or(0).into());
        for chunk in 0..8 {
            let codes = Self::codes(block, chunk);
            // SAFETY: the caller promises 256 quants.
            let quants = unsafe { quants(q.add(chunk * 32)) };
            if F::GROUP == 16 {
                total = i32x4_add(total, i32x4_mul(dot16(codes, quants, 0), scale()));
                total = i32x4_add(total, i32x4_mul(dot16(codes, quants, 1), scale()));
            } else {
                total = i32x4_add(total, i32x4_mul(dot32(codes, quants), scale()));
            }
        }
        total
    }

    /// The codes of a chunk, widened to i16. If the format stores weights as signed bytes, the result is the weights
    /// themselves.
    #[inline(always)]
    fn codes(block: &F::Block, chunk: usize) -> [v128; 4] {
        if let Shape::Bytes(offset) = F::SHAPE {
            // SAFETY: the block has 32 bytes from `offset` on, as `quant/types.rs` checks.
            return unsafe { quants((&raw const *block).cast::<i8>().add(offset)) };
        }
        let [a, b] = F::unpack(Pair, block, chunk);
        [u16x8_extend_low_u8x16(a), u16x8_extend_high_u8x16(a), u16x8_extend_low_u8x16(b), u16x8_extend_high_u8x16(b)]
    }

    /// `d` of four blocks.
    #[inline(always)]
    fn d(blocks: [&F::Block; 4], at: usize) -> v128 {
        match F::D {
            Some((offset, factor)) => halves::<F>(blocks, offset, factor),
            None => {
                let [a, b, c, d] = blocks.map(|block| F::d(block, at, quant::le_f16));
                f32x4(a, b, c, d)
            }
        }
    }

    /// `m` of four blocks.
    #[inline(always)]
    fn m(blocks: [&F::Block; 4]) -> v128 {
        F::M.map_or(f32x4_splat(0.0), |(offset, factor)| halves::<F>(blocks, offset, factor))
    }

    /// The sum of the quants of each group. If groups have 32 weights, there are eight sums, and zeros in place of the
    /// last eight.
    ///
    /// # Safety
    ///
    /// `sums` points to 16 sums.
    #[inline(always)]
    unsafe fn group_sums(sums: *const i16) -> [v128; 2] {
        // SAFETY: the caller promises 16 sums.
        let [a, b] = unsafe { [v128_load(sums.cast()), v128_load(sums.add(8).cast())] };
        if F::GROUP == 16 {
            return [a, b];
        }
        let pairs = |x| i32x4_extadd_pairwise_i16x8(x);
        [i16x8_narrow_i32x4(pairs(a), pairs(b)), i16x8_splat(0)]
    }

    /// Multiplies the scales or minimums of a block with the sums of activations of its groups. The dot product is the
    /// sum of the four i32 returned.
    #[inline(always)]
    fn times_sums(bytes: [i8; 16], sums: [v128; 2]) -> v128 {
        // SAFETY: the array has 16 bytes.
        let bytes = unsafe { v128_load(bytes.as_ptr().cast()) };
        let first = i32x4_dot_i16x8(i16x8_extend_low_i8x16(bytes), sums[0]);
        if F::GROUP == 32 {
            return first;
        }
        i32x4_add(first, i32x4_dot_i16x8(i16x8_extend_high_i8x16(bytes), sums[1]))
    }
}

/// Loads the f16 at byte `offset` of each of four blocks and multiplies them by `factor`. The format must have an f16
/// at this offset.
#[inline(always)]
fn halves<F: Format>(blocks: [&F::Block; 4], offset: usize, factor: f32) -> v128 {
    let [a, b, c, d] = blocks.map(|block| {
        // SAFETY: two bytes from `offset` on are inside the block, as `quant/types.rs` checks.
        let half = unsafe { (&raw const *block).cast::<u8>().add(offset).cast::<u16>().read_unaligned() };
        u32::from(half)
    });
    let floats = from_f16(u32x4(a, b, c, d));
    if factor == 1.0 { floats } else { f32x4_mul(floats, f32x4_splat(factor)) }
}

/// Loads 32 signed bytes and widens them to i16.
///
/// # Safety
///
/// `q` points to 32 quants.
#[inline(always)]
unsafe fn quants(q: *const i8) -> [v128; 4] {
    // SAFETY: the caller promises 32 quants.
    unsafe { [0, 8, 16, 24].map(|at| i16x8_load_extend_i8x8(q.add(at))) }
}

/// Four i32 whose sum is the dot product of 32 codes and quants.
#[inline(always)]
fn dot32(codes: [v128; 4], quants: [v128; 4]) -> v128 {
    i32x4_add(dot16(codes, quants, 0), dot16(codes, quants, 1))
}

/// Like [`dot32`], but multiplies only the first or the second 16 of the 32 codes and quants.
#[inline(always)]
fn dot16(codes: [v128; 4], quants: [v128; 4], half: usize) -> v128 {
    let [a, b, c, d] = codes;
    let [w, x, y, z] = quants;
    if half == 0 {
        i32x4_add(i32x4_dot_i16x8(a, w), i32x4_dot_i16x8(b, x))
    } else {
        i32x4_add(i32x4_dot_i16x8(c, y), i32x4_dot_i16x8(d, z))
    }
}

/// The sum of the lanes of each of four vectors.
#[inline(always)]
fn join([a, b, c, d]: [v128; 4]) -> v128 {
    let two = |a, b| i32x4_add(i32x4_shuffle::<0, 4, 1, 5>(a, b), i32x4_shuffle::<2, 6, 3, 7>(a, b));
    let (ab, cd) = (two(a, b), two(c, d));
    i32x4_add(i64x2_shuffle::<0, 2>(ab, cd), i64x2_shuffle::<1, 3>(ab, cd))
}
