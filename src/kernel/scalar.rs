//! The reference, and the kernel of every target without SIMD.
//!
//! The float kernels of [`super::float`] and [`super::attention`] run here on an array of 16 f32.
//! The quantized dot products are written out: per block an exact integer sum, then one fused
//! multiply-add, in block order. Every other kernel must equal these bit for bit.

use super::lanes::Lanes;
use super::{Job, Row};
use crate::quant::{Q6K, le_f16};

/// Sixteen f32 in an array.
#[derive(Clone, Copy)]
pub(super) struct Array([f32; 16]);

impl Array {
    #[inline(always)]
    fn map(self, f: impl Fn(f32) -> f32) -> Self {
        Self(self.0.map(f))
    }

    #[inline(always)]
    fn zip(mut self, b: Self, f: impl Fn(f32, f32) -> f32) -> Self {
        for (a, b) in self.0.iter_mut().zip(b.0) {
            *a = f(*a, b);
        }
        self
    }
}

/// The fused multiply-add, `a * b + c` rounded once.
#[inline(always)]
pub(super) fn fma(a: f32, b: f32, c: f32) -> f32 {
    libm::fmaf(a, b, c)
}

impl Lanes for Array {
    const ROWS: usize = 1;

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        Self([x; 16])
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> Self {
        // SAFETY: the caller's pointer is valid for 16 f32.
        Self(unsafe { p.cast::<[f32; 16]>().read_unaligned() })
    }
    #[inline(always)]
    unsafe fn load_f16(p: *const u8) -> Self {
        // SAFETY: the caller's pointer is valid for 32 bytes.
        Self(unsafe { p.cast::<[[u8; 2]; 16]>().read_unaligned() }.map(le_f16))
    }
    #[inline(always)]
    unsafe fn load_bf16(p: *const u8) -> Self {
        // SAFETY: the caller's pointer is valid for 32 bytes.
        let halves = unsafe { p.cast::<[[u8; 2]; 16]>().read_unaligned() };
        Self(halves.map(|b| half::bf16::from_le_bytes(b).to_f32_const()))
    }
    #[inline(always)]
    unsafe fn load_i8(p: *const u8) -> Self {
        // SAFETY: the caller's pointer is valid for 16 bytes.
        Self(unsafe { p.cast::<[i8; 16]>().read_unaligned() }.map(f32::from))
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32) {
        // SAFETY: the caller's pointer is valid for 16 f32.
        unsafe { p.cast::<[f32; 16]>().write_unaligned(self.0) }
    }
    #[inline(always)]
    unsafe fn store_f16(self, p: *mut u8) {
        // SAFETY: the caller's pointer is valid for 32 bytes.
        unsafe {
            p.cast::<[[u8; 2]; 16]>().write_unaligned(self.0.map(|x| half::f16::from_f32_const(x).to_le_bytes()));
        }
    }
    #[inline(always)]
    unsafe fn store_i8(self, p: *mut i8) {
        // SAFETY: the caller's pointer is valid for 16 bytes.
        unsafe { p.cast::<[i8; 16]>().write_unaligned(self.0.map(|x| x as i8)) }
    }

    #[inline(always)]
    unsafe fn add(self, b: Self) -> Self {
        self.zip(b, |a, b| a + b)
    }
    #[inline(always)]
    unsafe fn sub(self, b: Self) -> Self {
        self.zip(b, |a, b| a - b)
    }
    #[inline(always)]
    unsafe fn mul(self, b: Self) -> Self {
        self.zip(b, |a, b| a * b)
    }
    #[inline(always)]
    unsafe fn div(self, b: Self) -> Self {
        self.zip(b, |a, b| a / b)
    }
    #[inline(always)]
    unsafe fn fma(mut self, b: Self, c: Self) -> Self {
        for ((a, b), c) in self.0.iter_mut().zip(b.0).zip(c.0) {
            *a = fma(*a, b, c);
        }
        self
    }
    #[inline(always)]
    unsafe fn max(self, b: Self) -> Self {
        self.zip(b, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    unsafe fn min(self, b: Self) -> Self {
        self.zip(b, |a, b| if a < b { a } else { b })
    }
    #[inline(always)]
    unsafe fn abs(self) -> Self {
        self.map(f32::abs)
    }
    #[inline(always)]
    unsafe fn round(self) -> Self {
        self.map(libm::rintf)
    }
    #[inline(always)]
    unsafe fn exp2i(self) -> Self {
        self.map(|n| f32::from_bits(((n as i32 + 127) << 23) as u32))
    }
    #[inline(always)]
    unsafe fn select(mut self, mask: u16, other: Self) -> Self {
        for (i, (a, b)) in self.0.iter_mut().zip(other.0).enumerate() {
            if mask >> i & 1 == 0 {
                *a = b;
            }
        }
        self
    }

    #[inline(always)]
    unsafe fn sum(self) -> f32 {
        self.tree(|a, b| a + b)
    }
    #[inline(always)]
    unsafe fn largest(self) -> f32 {
        self.tree(|a, b| if a > b { a } else { b })
    }
}

impl Array {
    /// Joins lane `i` with `i + 8`, then `i + 4`, `i + 2`, `i + 1`.
    #[inline(always)]
    fn tree(mut self, f: impl Fn(f32, f32) -> f32) -> f32 {
        for half in [8, 4, 2, 1] {
            let (low, high) = self.0.split_at_mut(half);
            for (a, &b) in low.iter_mut().zip(high.iter()) {
                *a = f(*a, b);
            }
        }
        self.0[0]
    }
}

/// A row of Q8_0 weights times one token.
pub(super) fn dot_q8_0(row: &[u8], x: Row<'_>) -> f32 {
    blocks::<34, 32>(row, x, |block, q| {
        let [d0, d1, w @ ..] = block;
        (le_f16([*d0, *d1]), w.iter().zip(q).map(|(&w, &q)| i32::from(w as i8) * i32::from(q)).sum())
    })
}

/// A row of Q4_0 weights times one token: low nibbles are the first 16, each less 8.
pub(super) fn dot_q4_0(row: &[u8], x: Row<'_>) -> f32 {
    blocks::<18, 32>(row, x, |block, q| {
        let [d0, d1, w @ ..] = block;
        let (low, high) = q.split_at(16);
        let pairs = w.iter().zip(low.iter().zip(high));
        let sum =
            pairs.map(|(&w, (&a, &b))| (i32::from(w & 15) - 8) * i32::from(a) + (i32::from(w >> 4) - 8) * i32::from(b));
        (le_f16([*d0, *d1]), sum.sum())
    })
}

/// A row of Q6_K weights times one token: 16 sub-blocks of 16, each with a whole-number scale.
pub(super) fn dot_q6_k(row: &[u8], x: Row<'_>) -> f32 {
    blocks::<210, 256>(row, x, |block, q| {
        let block = Q6K::new(block);
        let sum = q
            .iter()
            .enumerate()
            .map(|(i, &q)| i32::from(block.scale(i / 16)) * i32::from(block.quant(i)) * i32::from(q));
        (block.d, sum.sum())
    })
}

/// The form of every quantized dot product: `acc = fma(d_w * d_x, isum, acc)`, block after block.
#[inline(always)]
fn blocks<const B: usize, const N: usize>(
    row: &[u8],
    x: Row<'_>,
    block: impl Fn(&[u8; B], &[i8; N]) -> (f32, i32),
) -> f32 {
    let mut acc = 0.0;
    let pairs = row.as_chunks::<B>().0.iter().zip(x.q.as_chunks::<N>().0);
    for ((w, q), &dx) in pairs.zip(x.d) {
        let (dw, sum) = block(w, q);
        acc = fma(dw * dx, sum as f32, acc);
    }
    acc
}

/// Rows times tokens, one dot product at a time.
///
/// # Safety
///
/// `job` as [`Job`] says.
#[inline(always)]
pub(super) unsafe fn matmul(job: &mut Job<'_>, dot: impl Fn(&[u8], Row<'_>) -> f32) {
    if job.rows == 0 {
        return;
    }
    for (r, row) in job.w.chunks_exact((job.w.len() / job.rows).max(1)).enumerate() {
        for t in 0..job.x.tokens {
            // SAFETY: row `r` and token `t` are the job's.
            unsafe { *job.out.add(t * job.stride + r) = dot(row, job.x.row(t)) };
        }
    }
}
