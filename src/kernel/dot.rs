//! The quantized dot product: the reference, and the kernel of every target without SIMD.
//!
//! Per block an exact sum of whole numbers, then one fused multiply-add, in block order; where there are minimums, a
//! second one for these. Every other kernel equals this bit for bit.

use super::Job;
use super::job::Row;
use super::scalar::{Here, Unit};
use crate::quant::{Format, codes};

/// A row of weights times one token.
pub(super) fn dot<F: Format>(row: &[u8], x: Row<'_>) -> f32 {
    let blocks: &[F::Block] = bytemuck::try_cast_slice(row).unwrap_or_default();
    // (Zipping two iterators over chunks divides by their lengths, which may panic where code is small.)
    let mut sums = x.sums.chunks_exact(F::ELEMENTS / 16);
    let mut d = x.d.iter().copied();
    let mut acc = 0.0;
    for (i, block) in blocks.iter().enumerate() {
        let (Some(q), Some(sums)) = (x.q.get(i * F::ELEMENTS..(i + 1) * F::ELEMENTS), sums.next()) else { break };
        acc = if const { F::ELEMENTS == 256 } {
            whole::<F>(block, q, sums, d.next().unwrap_or(0.0), acc)
        } else {
            pieces::<F>(block, q, sums, &mut d, acc)
        };
    }
    acc
}

/// A block of 256: the sums of its groups meet their scales as whole numbers.
#[inline(always)]
fn whole<F: Format>(block: &F::Block, q: &[i8], sums: &[i16], dx: f32, mut acc: f32) -> f32 {
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

/// Any other block: every 32 numbers have a scale of their own in the activations.
#[inline(always)]
fn pieces<F: Format>(block: &F::Block, q: &[i8], sums: &[i16], d: &mut impl Iterator<Item = f32>, mut acc: f32) -> f32 {
    for (chunk, (q, sums)) in q.as_chunks::<32>().0.iter().zip(sums.as_chunks::<2>().0).enumerate() {
        let dx = d.next().unwrap_or(0.0);
        let [first, second] = products::<F>(codes::<F>(block, chunk), q);
        let mut add = |at, sum| acc = Here::fma(F::d(block, chunk * 32 + at, Here::le_f16) * dx, sum as f32, acc);
        if F::FLOAT_GROUPS {
            add(0, first);
            add(16, second);
        } else {
            add(0, first + second);
        }
        if F::M.is_some() {
            let sum: i32 = sums.iter().map(|&sum| i32::from(sum)).sum();
            acc = Here::fma(F::m(block, Here::le_f16) * dx, sum as f32, acc);
        }
    }
    acc
}

/// The sums of 16 products each. (Of lengths that compilers know: else they leave the vectors of the target unused.)
#[inline(always)]
fn products<F: Format>(codes: [u8; 32], q: &[i8; 32]) -> [i32; 2] {
    let ([a, b], [x, y]): ([[u8; 16]; 2], [[i8; 16]; 2]) = (bytemuck::must_cast(codes), bytemuck::must_cast(*q));
    let sum = |codes: [u8; 16], q: [i8; 16]| {
        codes.iter().zip(q).map(|(&code, q)| (i32::from(code) - i32::from(F::BIAS)) * i32::from(q)).sum()
    };
    [sum(a, x), sum(b, y)]
}

/// Rows times tokens, one dot product at a time.
///
/// # Safety
///
/// `job` as [`Job`] says.
pub(super) unsafe fn matmul<F: Format>(job: &mut Job<'_>) {
    for (r, row) in job.w.chunks_exact((job.w.len() / job.rows.max(1)).max(1)).enumerate() {
        for t in 0..job.x.tokens {
            // SAFETY: row `r` and token `t` are the job's.
            unsafe { *job.out.add(t * job.stride + r) = dot::<F>(row, job.x.row(t)) };
        }
    }
}
