//! RISC-V with floats, and with vectors: fused multiply-adds, which `core` does not give, and what is worth most of the
//! vector extension. Its intrinsics are not stable, so it is inline assembly, and no vector outlives a block of it.

mod blocks;
mod unit;

use super::float::Weight;
use super::scalar::Scalar;
use super::{Job, Kernels, dot, float as floats_of_any};
use crate::quant::{Format, formats_list};
pub(super) use unit::Float;
use unit::Vector;

static FLOAT: Kernels = table!("riscv", Scalar<Float>, float_products);
static VECTOR: Kernels = table!("rvv", Scalar<Vector>, vector_products);

formats_list!(choose float_products float_floats float_blocks);
formats_list!(choose vector_products vector_floats vector_blocks);

/// The tables that this machine can run, the fastest first.
pub(super) fn available() -> impl Iterator<Item = &'static Kernels> {
    has_vectors().then_some(&VECTOR).into_iter().chain([&FLOAT])
}

/// Whether there is the vector extension, version 1: vectors of 128 bits at least.
fn has_vectors() -> bool {
    #[cfg(target_os = "linux")]
    {
        /// Linux says what there is by the letters of the extensions.
        const V: libc::c_ulong = 1 << (b'V' - b'A');
        // SAFETY: without preconditions.
        if unsafe { libc::getauxval(libc::AT_HWCAP) } & V != 0 {
            return true;
        }
    }
    cfg!(target_feature = "v")
}

fn float_floats<W: Weight>(job: &mut Job<'_>) {
    floats_of_any::matmul::<_, W, 1, 1>(Scalar::<Float>::HERE, job);
}
use dot::matmul as float_blocks;

/// # Safety
///
/// There are vectors; `job` as [`Job`] says.
unsafe fn vector_floats<W: Weight>(job: &mut Job<'_>) {
    floats_of_any::matmul::<_, W, 1, 1>(Scalar::<Vector>::HERE, job);
}

/// # Safety
///
/// There are vectors; `job` as [`Job`] says.
unsafe fn vector_blocks<F: Format>(job: &mut Job<'_>) {
    // SAFETY: passed on to the caller.
    unsafe {
        if const { blocks::has::<F>() } {
            blocks::matmul::<F>(job);
        } else {
            dot::matmul::<F>(job);
        }
    }
}
