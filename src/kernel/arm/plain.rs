//! Small and slow code for rare cases: f32 weights that are not aligned to four bytes, which no known program writes;
//! rows that have fewer than 32 columns or whose number of columns is not a multiple of four; norms without weights, or
//! whose width is not a multiple of 16.

use super::float::Fpu;
use crate::kernel::Job;
use crate::kernel::scalar::Unit;

/// Multiplies all rows of f32 weights with all tokens.
///
/// # Safety
///
/// The weights are f32, and `job` satisfies the promises of [`Job`].
#[inline(never)]
pub(super) unsafe fn matmul(job: &mut Job<'_>) {
    for (t, x) in job.x.x.chunks_exact(job.cols.max(1)).enumerate() {
        for (r, row) in job.w.chunks_exact((4 * job.cols).max(4)).enumerate() {
            let mut pairs = row.as_chunks().0.iter().zip(x);
            let sum = dot(&mut || pairs.next().map(|(w, x)| (f32::from_le_bytes(*w), *x)), job.cols);
            // SAFETY: the job has row `r` and token `t`, so the output for them may be written.
            unsafe { *job.out.add(t * job.stride + r) = sum };
        }
    }
}

/// RMS norm for any width and weights.
#[inline(never)]
pub(super) fn rms_norm(x: &mut [f32], weight: &[u8], eps: f32) {
    let mut squares = x.iter();
    let sum = dot(&mut || squares.next().map(|x| (*x, *x)), x.len());
    let scale = 1.0 / Fpu::sqrt(sum / x.len() as f32 + eps);
    let mut weights = weight.as_chunks().0.iter().map(|w| f32::from_le_bytes(*w));
    for x in x {
        let weight = if weight.is_empty() { 1.0 } else { weights.next().unwrap_or(0.0) };
        *x = *x * scale * weight;
    }
}

/// Adds up `n` products in sixteen lanes, which are then added by the same tree as in all other kernels. If the last
/// sixteen products are incomplete, the missing ones are 0. `next` returns the products' factors; it is `dyn`, so that
/// the code exists only once.
#[inline(never)]
fn dot(next: &mut dyn FnMut() -> Option<(f32, f32)>, n: usize) -> f32 {
    let mut acc = [0.0; 16];
    for i in 0..n.next_multiple_of(16) {
        let (a, b) = next().unwrap_or((0.0, 0.0));
        let acc = &mut acc[i % 16];
        *acc = Fpu::fma(a, b, *acc);
    }
    Fpu::sum(acc)
}
