//! Cortex-M with a floating-point unit (fused multiply-add, conversions of f16) or the DSP extension
//! (two products at once): what the compiler does not make of plain Rust.
//!
//! `target.rs` tells which of the two a target has. Registers of the unit are named in the assembler
//! itself, because operands of their class need a target feature that these targets do not have.

#[cfg(all(cortex_m_dsp, cortex_m_fpu))]
mod dsp;
#[cfg(cortex_m_fpu)]
mod float;

use super::scalar::{self, Array, Here};
use super::{Job, Kernels, float as floats};
use crate::quant::TensorType;
#[cfg(cortex_m_fpu)]
pub(super) use float::Fpu;

pub(super) static CORTEX_M: Kernels = table!("cortex-m", Array<Here>, products);

#[inline(always)]
unsafe fn products(kind: TensorType, job: &mut Job<'_>) {
    // SAFETY: passed on to the caller.
    unsafe {
        match kind {
            #[cfg(cortex_m_fpu)]
            TensorType::F32 if job.w.as_ptr().addr().is_multiple_of(4) => float::matmul(job),
            TensorType::F32 => floats::matmul::<Array<Here>, floats::F32, 1, 1>(job),
            TensorType::F16 if const { TensorType::F16.is_built() } => {
                floats::matmul::<Array<Here>, floats::F16, 1, 1>(job)
            }
            TensorType::BF16 if const { TensorType::BF16.is_built() } => {
                floats::matmul::<Array<Here>, floats::Bf16, 1, 1>(job)
            }
            #[cfg(all(cortex_m_dsp, cortex_m_fpu))]
            TensorType::Q8_0 if const { TensorType::Q8_0.is_built() } => dsp::matmul(job),
            #[cfg(not(all(cortex_m_dsp, cortex_m_fpu)))]
            TensorType::Q8_0 if const { TensorType::Q8_0.is_built() } => scalar::matmul(job, scalar::dot_q8_0),
            TensorType::Q4_0 if const { TensorType::Q4_0.is_built() } => scalar::matmul(job, scalar::dot_q4_0),
            TensorType::Q6_K if const { TensorType::Q6_K.is_built() } => scalar::matmul(job, scalar::dot_q6_k),
            _ => {}
        }
    }
}
