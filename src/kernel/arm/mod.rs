//! Cortex-M with a floating-point unit (fused multiply-add, conversions of f16) or the DSP extension
//! (two products at once): what the compiler does not make of plain Rust.
//!
//! `target.rs` tells which of the two a target has. Registers of the unit are named in the assembler
//! itself, because operands of their class need a target feature that these targets do not have.

#[cfg(all(cortex_m_dsp, cortex_m_fpu))]
mod dsp;
#[cfg(cortex_m_fpu)]
mod float;

use super::float::Weight;
use super::scalar::{Here, Scalar};
use super::{Job, Kernels, dot, float as floats_of_any};
use crate::quant::{Format, formats_list};
#[cfg(cortex_m_fpu)]
pub(super) use float::Fpu;

pub(super) static CORTEX_M: Kernels = table!("cortex-m", Scalar<Here>, products);

formats_list!(choose products floats blocks);

#[inline(always)]
unsafe fn floats<W: Weight>(job: &mut Job<'_>) {
    // SAFETY: needs no instruction set besides the target's; a job is right by construction.
    unsafe {
        #[cfg(cortex_m_fpu)]
        if W::BYTES == 4 && job.w.as_ptr().addr().is_multiple_of(4) {
            return float::matmul(job);
        }
        floats_of_any::matmul::<_, W, 1, 1>(Scalar::<Here>::HERE, job);
    }
}

#[inline(always)]
unsafe fn blocks<F: Format>(job: &mut Job<'_>) {
    // SAFETY: as above.
    unsafe {
        #[cfg(all(cortex_m_dsp, cortex_m_fpu))]
        if const { dsp::has::<F>() } {
            return dsp::matmul::<F>(job);
        }
        dot::matmul::<F>(job);
    }
}
