//! Quantized products four rows at a time, for instruction sets whose vector types stable Rust lacks (see [`Vectors`]).
//! Vectors are loaded and stored within each operation, and unpacked codes are kept in memory. Results are bit-equal to
//! [`super::dot`].

use super::Job;
use super::job::Row;
use super::scalar::Unit;
use crate::quant::{Bytes, Format, Shape};

/// An instruction set whose vectors cannot be Rust values.
///
/// # Safety
///
/// The conditions of [`Unit`] hold, and the integer sums are exact.
pub(super) unsafe trait Vectors: Unit {
    /// The operations that codes are unpacked with.
    type Bytes: Bytes;
    const BYTES: Self::Bytes;

    fn store(codes: <Self::Bytes as Bytes>::V, to: &mut [u8; 32]);

    /// For each of four rows, the dot product of `N` codes (16 or 32), each code minus `bias`, with the same `N`
    /// quants. A code minus `bias` fits a signed byte.
    ///
    /// # Safety
    ///
    /// The codes and the quants may be read, and the processor has the instruction set.
    unsafe fn dots<const N: usize>(codes: [*const u8; 4], bias: u8, q: *const i8) -> [i32; 4];
}

/// Multiplies all rows with all tokens.
///
/// # Safety
///
/// The processor has the instruction set, and `job` satisfies the promises of [`Job`].
pub(super) unsafe fn matmul<F: Format, U: Vectors>(job: &mut Job<'_>) {
    if job.rows < 4 {
        // SAFETY: the scalar kernel needs no instruction set.
        return unsafe { super::dot::matmul::<F>(job) };
    }
    let row_bytes = job.w.len() / job.rows;
    let mut r = 0;
    while r < job.rows {
        // The last four rows may overlap the previous four, so that no row is left over. Rows in both groups are
        // computed twice, with the same bits.
        r = r.min(job.rows - 4);
        // SAFETY: rows `r..r + 4` are inside the job's weights and outputs, because `r <= job.rows - 4`.
        unsafe {
            let rows = core::array::from_fn(|k| job.w.as_ptr().add((r + k) * row_bytes));
            let mut t = 0;
            while t + 4 <= job.x.tokens {
                tile::<F, U, 4>(rows, job, r, t);
                t += 4;
            }
            for t in t..job.x.tokens {
                tile::<F, U, 1>(rows, job, r, t);
            }
        }
        r += 4;
    }
}

/// Multiplies four rows with `T` tokens; the codes of the rows are unpacked once.
///
/// # Safety
///
/// The job has rows `r..r + 4` and tokens `t..t + T`.
#[inline(never)]
unsafe fn tile<F: Format, U: Vectors, const T: usize>(rows: [*const u8; 4], job: &Job<'_>, r: usize, t: usize) {
    let x: [Row<'_>; T] = core::array::from_fn(|k| job.x.row(t + k));
    let mut acc = [[0.0f32; 4]; T];
    for i in 0..job.cols / F::ELEMENTS {
        // SAFETY: the rows and the tokens have `cols / ELEMENTS` blocks each, and `i` is less than this number.
        unsafe {
            let blocks = rows.map(|row| &*row.add(i * size_of::<F::Block>()).cast::<F::Block>());
            if F::ELEMENTS == 256 {
                add_block::<F, U, T>(blocks, &x, i, &mut acc);
            } else {
                for chunk in 0..F::ELEMENTS / 32 {
                    add_chunk::<F, U, T>(blocks, chunk, &x, i * (F::ELEMENTS / 32) + chunk, &mut acc);
                }
            }
        }
    }
    for (k, acc) in acc.into_iter().enumerate() {
        // SAFETY: the outputs of four rows and token `t + k` may be written, by the promise of the caller.
        unsafe { job.out.add((t + k) * job.stride + r).cast::<[f32; 4]>().write_unaligned(acc) };
    }
}

/// Multiplies block `i` of four rows with `T` tokens and adds the products to `acc`, for formats with blocks of 256
/// weights.
///
/// # Safety
///
/// The tokens have block `i`, and the processor has the instruction set.
#[inline(always)]
unsafe fn add_block<F: Format, U: Vectors, const T: usize>(
    blocks: [&F::Block; 4],
    x: &[Row<'_>; T],
    i: usize,
    acc: &mut [[f32; 4]; T],
) {
    let scales = blocks.map(F::scales);
    let mut totals = [[0i32; 4]; T];
    for chunk in 0..8 {
        let mut room = [[0; 32]; 4];
        let (codes, bias) = codes::<F, U>(blocks, chunk, &mut room);
        for (x, totals) in x.iter().zip(&mut totals) {
            // SAFETY: `codes` points to 32 codes of each row, and the tokens have block `i`.
            unsafe {
                let q = x.q.as_ptr().add(i * 256 + chunk * 32);
                let mut add = |sums: [i32; 4], group: usize| {
                    for ((total, sum), scales) in totals.iter_mut().zip(sums).zip(&scales) {
                        *total += sum * i32::from(scales[group]);
                    }
                };
                if F::GROUP == 16 {
                    add(U::dots::<16>(codes, bias, q), 2 * chunk);
                    add(U::dots::<16>(codes.map(|codes| codes.add(16)), bias, q.add(16)), 2 * chunk + 1);
                } else {
                    add(U::dots::<32>(codes, bias, q), chunk);
                }
            }
        }
    }
    let d = blocks.map(|block| F::d(block, 0, U::le_f16));
    let (m, minimums) = (blocks.map(|block| F::m(block, U::le_f16)), blocks.map(F::minimums));
    for ((x, totals), acc) in x.iter().zip(totals).zip(acc) {
        let dx = x.d.get(i).copied().unwrap_or(0.0);
        let sums = x.sums.get(i * 16..i * 16 + 16).and_then(|sums| sums.first_chunk()).unwrap_or(&[0i16; 16]);
        for (r, acc) in acc.iter_mut().enumerate() {
            *acc = U::fma(d[r] * dx, totals[r] as f32, *acc);
            if F::M.is_some() {
                let of_group = |g: usize| -> i32 {
                    if F::GROUP == 16 { sums[g].into() } else { i32::from(sums[2 * g]) + i32::from(sums[2 * g + 1]) }
                };
                let sum: i32 = (0..256 / F::GROUP).map(|g| i32::from(minimums[r][g]) * of_group(g)).sum();
                *acc = U::fma(m[r] * dx, sum as f32, *acc);
            }
        }
    }
}

/// Multiplies a chunk of four rows with `T` tokens and adds the products to their sums, for formats with blocks of less
/// than 256 weights. `chunk` is the chunk's number in the block, `i` is its number in the row.
///
/// # Safety
///
/// The tokens have chunk `i`, and the processor has the instruction set.
#[inline(always)]
unsafe fn add_chunk<F: Format, U: Vectors, const T: usize>(
    blocks: [&F::Block; 4],
    chunk: usize,
    x: &[Row<'_>; T],
    i: usize,
    acc: &mut [[f32; 4]; T],
) {
    let mut room = [[0; 32]; 4];
    let (codes, bias) = codes::<F, U>(blocks, chunk, &mut room);
    let d = |at| blocks.map(|block| F::d(block, chunk * 32 + at, U::le_f16));
    let (first, second) = (d(0), if F::FLOAT_GROUPS { d(16) } else { [0.0; 4] });
    let m = blocks.map(|block| F::m(block, U::le_f16));
    for (x, acc) in x.iter().zip(acc) {
        let dx = x.d.get(i).copied().unwrap_or(0.0);
        let mut add = |scales: [f32; 4], sums: [i32; 4]| {
            for ((acc, scale), sum) in acc.iter_mut().zip(scales).zip(sums) {
                *acc = U::fma(scale * dx, sum as f32, *acc);
            }
        };
        // SAFETY: `codes` has pointers to 32 codes of each row, and the quants of each token include chunk `i`.
        unsafe {
            let q = x.q.as_ptr().add(i * 32);
            if F::FLOAT_GROUPS {
                add(first, U::dots::<16>(codes, bias, q));
                add(second, U::dots::<16>(codes.map(|codes| codes.add(16)), bias, q.add(16)));
            } else {
                add(first, U::dots::<32>(codes, bias, q));
            }
        }
        if F::M.is_some() {
            let sum: i32 = x.sums.iter().skip(2 * i).take(2).map(|&sum| i32::from(sum)).sum();
            add(m, [sum; 4]);
        }
    }
}

/// Returns pointers to the codes of a chunk in each of four rows, and the bias of the codes. If the format stores
/// signed bytes, the pointers lead into the rows, and the bias is 0. Otherwise, the codes are unpacked to `room`.
#[inline(always)]
fn codes<F: Format, U: Vectors>(
    blocks: [&F::Block; 4],
    chunk: usize,
    room: &mut [[u8; 32]; 4],
) -> ([*const u8; 4], u8) {
    if let Shape::Bytes(offset) = F::SHAPE {
        return (blocks.map(|block| (&raw const *block).cast::<u8>().wrapping_add(offset)), 0);
    }
    for (block, room) in blocks.into_iter().zip(room.iter_mut()) {
        U::store(F::unpack(U::BYTES, block, chunk), room);
    }
    (core::array::from_fn(|r| room[r].as_ptr()), F::BIAS)
}
