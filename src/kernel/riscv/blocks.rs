//! Blocks of 32 by vectors: the whole-numbered dot product of each. What comes after it is as in [`super::dot`].

use core::arch::asm;

use super::unit::Float;
use crate::kernel::Job;
use crate::kernel::scalar::Unit;
use crate::quant::{Format, Shape, le_f16};

/// Whether there is a kernel for the format: Q8_0, Q4_0.
pub(super) const fn has<F: Format>() -> bool {
    F::ELEMENTS == 32
        && F::M.is_none()
        && !F::FLOAT_GROUPS
        && match F::SHAPE {
            Shape::Bytes(_) => true,
            Shape::Nibbles(_, None) => F::BIAS == 8,
            _ => false,
        }
}

/// Rows times tokens.
///
/// # Safety
///
/// There are vectors; `F` is a format that [`has`] a kernel; `job` as [`Job`] says.
pub(super) unsafe fn matmul<F: Format>(job: &mut Job<'_>) {
    let row_bytes = job.w.len() / job.rows.max(1);
    for (r, row) in job.w.chunks_exact(row_bytes.max(1)).enumerate() {
        let blocks: &[F::Block] = bytemuck::try_cast_slice(row).unwrap_or_default();
        for t in 0..job.x.tokens {
            let x = job.x.row(t);
            let mut acc = 0.0;
            for ((block, q), d) in blocks.iter().zip(x.q.as_chunks::<32>().0).zip(x.d) {
                // SAFETY: there are vectors, and the places are the format's.
                let sum = unsafe {
                    let at = (&raw const *block).cast::<u8>();
                    match F::SHAPE {
                        Shape::Bytes(place) => bytes(at.add(place), q),
                        Shape::Nibbles(place, _) => nibbles(at.add(place), q),
                        _ => 0,
                    }
                };
                acc = Float::fma(F::d(block, 0, le_f16) * d, sum as f32, acc);
            }
            // SAFETY: row `r` and token `t` are the job's.
            unsafe { *job.out.add(t * job.stride + r) = acc };
        }
    }
}

/// `asm!` with vectors of bytes, whose products and sums it joins from v8, as 16 lanes of 16 bits, or 32.
macro_rules! vectors {
    ($($code:literal,)* ; $($operands:tt)*) => {
        asm!(
            ".option push",
            ".option arch, +v",
            $($code,)*
            ".option pop",
            $($operands)*
            out("v0") _, out("v1") _, out("v2") _, out("v3") _, out("v4") _, out("v5") _, out("v6") _, out("v7") _,
            out("v8") _, out("v9") _, out("v10") _, out("v11") _, out("v12") _,
            options(nostack, readonly),
        )
    };
}

/// 32 signed bytes times 32.
///
/// # Safety
///
/// There are vectors, and the bytes.
#[inline(always)]
unsafe fn bytes(w: *const u8, q: &[i8; 32]) -> i32 {
    let sum: isize;
    // SAFETY: reads 32 bytes of each.
    unsafe {
        vectors!(
            "vsetvli zero, {n}, e8, m2, ta, ma",
            "vle8.v v0, ({w})",
            "vle8.v v2, ({q})",
            "vwmul.vv v8, v0, v2",
            "vmv.v.i v4, 0",
            "vsetvli zero, {n}, e16, m4, ta, ma",
            "vwredsum.vs v4, v8, v4",
            "vsetivli zero, 1, e32, m1, ta, ma",
            "vmv.x.s {sum}, v4",
            ;
            n = in(reg) 32usize,
            w = in(reg) w,
            q = in(reg) q.as_ptr(),
            sum = lateout(reg) sum,
        );
    }
    sum as i32
}

/// The low halves of 16 bytes, then their high halves, each less 8, times 32.
///
/// # Safety
///
/// There are vectors, and the bytes.
#[inline(always)]
unsafe fn nibbles(w: *const u8, q: &[i8; 32]) -> i32 {
    let sum: isize;
    // SAFETY: reads 16 bytes and 32.
    unsafe {
        vectors!(
            "vsetivli zero, 16, e8, m1, ta, ma",
            "vle8.v v0, ({w})",
            "vle8.v v2, ({q})",
            "vle8.v v3, ({later})",
            "vsrl.vi v1, v0, 4",
            "vand.vi v0, v0, 15",
            "vadd.vi v1, v1, -8",
            "vadd.vi v0, v0, -8",
            "vwmul.vv v8, v0, v2",
            "vwmacc.vv v8, v1, v3",
            "vmv.v.i v4, 0",
            "vsetivli zero, 16, e16, m2, ta, ma",
            "vwredsum.vs v4, v8, v4",
            "vsetivli zero, 1, e32, m1, ta, ma",
            "vmv.x.s {sum}, v4",
            ;
            w = in(reg) w,
            q = in(reg) q.as_ptr(),
            later = in(reg) q.as_ptr().add(16),
            sum = lateout(reg) sum,
        );
    }
    sum as i32
}
