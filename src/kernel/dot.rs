//! The quantized dot product: the reference for all tables, and the kernel of targets without SIMD.
//!
//! For each block, in order, one fused multiply-add scales an exact sum of integers and adds it to the result. Formats
//! with minimums have a second fused multiply-add per block. Every other kernel computes the same bits.

use super::Job;
use super::job::Row;
use super::scalar::{Here, Unit};
use crate::quant::{Format, bytes_at, codes};

/// The dot product of a row of weights with one token.
pub(super) fn dot<F: Format>(row: &[u8], x: Row<'_>) -> f32 {
    let blocks: &[F::Block] = bytemuck::try_cast_slice(row).unwrap_or_default();
    // The iterators are not zipped, because zipping two chunk iterators would divide by the chunk lengths, and builds
    // for size keep the panic of a division.
    let mut sums = x.sums.chunks_exact(F::ELEMENTS / 16);
    let mut d = x.d.iter().copied();
    let mut acc = 0.0;
    for (i, block) in blocks.iter().enumerate() {
        let (Some(q), Some(sums)) = (x.q.get(i * F::ELEMENTS..(i + 1) * F::ELEMENTS), sums.next()) else { break };
        acc = if const { F::ELEMENTS == 256 } {
            add_block::<F>(block, q, sums, d.next().unwrap_or(0.0), acc)
        } else {
            add_chunks::<F>(block, q, sums, &mut d, acc)
        };
    }
    acc
}

/// Adds the products of a block of 256 weights to `acc`. The sum of each group is an integer and is multiplied by the
/// group's integer scale before it becomes a float, because only then is the sum of the block exact.
#[inline(always)]
fn add_block<F: Format>(block: &F::Block, q: &[i8], sums: &[i16], dx: f32, mut acc: f32) -> f32 {
    let mut scales = F::scales(block).into_iter().map(i32::from);
    let mut scale = || scales.next().unwrap_or(0);
    let mut sum = 0;
    for (chunk, q) in q.as_chunks::<32>().0.iter().enumerate() {
        let [first, second] = products::<F>(codes::<F>(block, chunk), q);
        sum += if F::GROUP == 16 { scale() * first + scale() * second } else { scale() * (first + second) };
    }
    acc = Here::fma(F::d(block, 0, Here::le_f16) * dx, sum as f32, acc);
    if F::M.is_some() {
        let sums = sums.chunks_exact(F::GROUP / 16).map(|sums| sums.iter().map(|&sum| i32::from(sum)).sum::<i32>());
        let minimums = F::minimums(block).into_iter().map(i32::from);
        let sum: i32 = minimums.zip(sums).map(|(minimum, sum)| minimum * sum).sum();
        acc = Here::fma(F::m(block, Here::le_f16) * dx, sum as f32, acc);
    }
    acc
}

/// Multiplies a block of less than 256 weights, and adds the products to the result. The activations have a scale per
/// 32 elements, so that the integer sum of each chunk of 32 is converted to a float.
#[inline(always)]
fn add_chunks<F: Format>(
    block: &F::Block,
    q: &[i8],
    sums: &[i16],
    d: &mut impl Iterator<Item = f32>,
    mut acc: f32,
) -> f32 {
    for (chunk, (q, sums)) in q.as_chunks::<32>().0.iter().zip(sums.as_chunks::<2>().0).enumerate() {
        let dx = d.next().unwrap_or(0.0);
        let [first, second] = products::<F>(codes::<F>(block, chunk), q);
        let mut add = |at, sum| {
            acc = match F::D {
                Some((offset, 1.0)) => Here::add_scaled(*bytes_at(block.as_ref(), offset), dx, sum, acc),
                _ => Here::fma(F::d(block, chunk * 32 + at, Here::le_f16) * dx, sum as f32, acc),
            };
        };
        if F::FLOAT_GROUPS {
            add(0, first);
            add(16, second);
        } else {
            add(0, first + second);
        }
        let sum = || sums.iter().map(|&sum| i32::from(sum)).sum::<i32>();
        acc = match F::M {
            Some((offset, 1.0)) => Here::add_scaled(*bytes_at(block.as_ref(), offset), dx, sum(), acc),
            Some(_) => Here::fma(F::m(block, Here::le_f16) * dx, sum() as f32, acc),
            None => acc,
        };
    }
    acc
}

/// Multiplies 32 codes with 32 quants. Returns the sum of the first 16 products and the sum of the last 16. (The
/// lengths are fixed so that the compiler uses the target's vectors.)
#[inline(always)]
fn products<F: Format>(codes: [u8; 32], q: &[i8; 32]) -> [i32; 2] {
    let ([a, b], [x, y]): ([[u8; 16]; 2], [[i8; 16]; 2]) = (bytemuck::must_cast(codes), bytemuck::must_cast(*q));
    let sum = |codes: [u8; 16], q: [i8; 16]| {
        codes.iter().zip(q).map(|(&code, q)| (i32::from(code) - i32::from(F::BIAS)) * i32::from(q)).sum()
    };
    [sum(a, x), sum(b, y)]
}

/// Multiplies all rows with all tokens, one dot product at a time.
///
/// # Safety
///
/// `job` satisfies the promises of [`Job`].
pub(super) unsafe fn matmul<F: Format>(job: &mut Job<'_>) {
    let first = job.x.row(0); // takes divisions, which small cores compute in software
    for (r, row) in job.w.chunks_exact((job.w.len() / job.rows.max(1)).max(1)).enumerate() {
        for t in 0..job.x.tokens {
            let x = if t == 0 { first } else { job.x.row(t) };
            // SAFETY: the job has row `r` and token `t`, so the output for them may be written.
            unsafe { *job.out.add(t * job.stride + r) = dot::<F>(row, x) };
        }
    }
}
