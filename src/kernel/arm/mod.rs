//! 32-bit Arm with a floating-point unit (fused multiply-add, conversions of f16), the DSP extension of a Cortex-M (two
//! products per instruction), Helium or NEON. These kernels use instructions that the compiler does not generate from
//! plain Rust.
//!
//! `target.rs` determines the instructions of a Cortex-M at build time; Linux reports NEON at run time. The assembly
//! names the floating-point registers of a Cortex-M directly, because register operands need a target feature that
//! these targets do not have.

#[cfg(arm_fpu)]
mod assembly;
#[cfg(arm_fpu)]
mod attend;
#[cfg(arm_fpu)]
mod attention;
#[cfg(arm_fpu)]
mod converted;
#[cfg(all(cortex_m_dsp, cortex_m_fpu))]
mod dsp;
#[cfg(arm_fpu)]
mod entries;
#[cfg(arm_fpu)]
mod exp;
#[cfg(all(cortex_m_dsp, cortex_m_fpu))]
mod fives;
#[cfg(arm_fpu)]
mod float;
#[cfg(all(cortex_m_dsp, cortex_m_fpu))]
mod groups;
#[cfg(cortex_m_fpu)]
mod half_floats;
#[cfg(all(cortex_m_dsp, cortex_m_fpu))]
mod halves;
#[cfg(helium)]
mod helium;
#[cfg(arm_fpu)]
mod matmul;
#[cfg(arm_linux)]
mod neon;
#[cfg(all(cortex_m_dsp, cortex_m_fpu))]
mod pairs;
#[cfg(arm_fpu)]
mod plain;
#[cfg(all(cortex_m_dsp, cortex_m_fpu))]
mod quantize;
#[cfg(arm_fpu)]
mod rows;
#[cfg(arm_fpu)]
mod tiles;
#[cfg(all(cortex_m_dsp, cortex_m_fpu))]
mod two_rows;
#[cfg(arm_fpu)]
mod vectors;
#[cfg(all(cortex_m_dsp, cortex_m_fpu))]
mod word;
#[cfg(all(cortex_m_dsp, cortex_m_fpu))]
mod words;

use super::float::Weight;
#[cfg(not(arm_linux))]
use super::scalar::Here;
use super::scalar::Scalar;
use super::{Job, Kernels, float as floats_of_any};
use crate::quant::{Format, formats_list};
#[cfg(arm_fpu)]
pub(super) use float::Fpu;
#[cfg(arm_linux)]
use float::Fpu as Here;
#[cfg(arm_linux)]
pub(super) use neon::available;

/// The kernels of this target. A kernel is written in assembly if this takes fewer instructions, as counted per token
/// by `benches/functions.sh` with the model stories260K.
const OF_UNIT: Kernels = Kernels {
    #[cfg(arm_fpu)]
    attend: attend::attend,
    #[cfg(arm_fpu)]
    activate: entries::activate,
    #[cfg(arm_fpu)]
    rms_norm: entries::rms_norm,
    #[cfg(arm_fpu)]
    store_floats: entries::store_floats,
    ..table!("cortex-m", Scalar<Here>, products)
};

#[cfg(not(arm_linux))]
static CORTEX_M: Kernels = OF_UNIT;

/// Yields the table that the build was compiled for.
#[cfg(not(arm_linux))]
pub(super) fn available() -> impl Iterator<Item = &'static Kernels> {
    core::iter::once(&CORTEX_M)
}

formats_list!(choose products floats blocks);

// `other_floats` and `blocks` are not inlined, so that a call for one type does not need stack for the other types.
#[inline(always)]
unsafe fn floats<W: Weight>(job: &mut Job<'_>) {
    // SAFETY: the table's machine has the instructions, and the caller promises a valid job.
    unsafe {
        #[cfg(helium)]
        if helium::floats::matmul::<W>(job) {
            return;
        }
        #[cfg(arm_fpu)]
        if W::BYTES == 4 {
            return if job.w.as_ptr().addr().is_multiple_of(4) && job.cols.is_multiple_of(4) && job.cols >= 32 {
                matmul::matmul(job)
            } else {
                plain::matmul(job)
            };
        }
        #[cfg(cortex_m_fpu)]
        if W::BYTES == 2 && half_floats::matmul(job, W::BRAIN) {
            return;
        }
        other_floats::<W>(job);
    }
}

#[inline(never)]
fn other_floats<W: Weight>(job: &mut Job<'_>) {
    floats_of_any::matmul::<_, W, 1, 1>(Scalar::<Here>::HERE, job);
}

#[inline(never)]
unsafe fn blocks<F: Format>(job: &mut Job<'_>) {
    // SAFETY: the table's machine has the instructions, and the caller promises a valid job.
    unsafe {
        #[cfg(helium)]
        if helium::matmul::<F>(job) {
            return;
        }
        #[cfg(all(cortex_m_dsp, cortex_m_fpu))]
        if const { dsp::has::<F>() } {
            return dsp::matmul::<F>(job);
        }
        #[cfg(all(cortex_m_dsp, cortex_m_fpu))]
        return if const { groups::has::<F>() } { groups::matmul::<F>(job) } else { words::matmul::<F>(job) };
        #[cfg(arm_linux)]
        super::fours::matmul::<F, Fpu>(job);
        #[cfg(not(any(arm_linux, all(cortex_m_dsp, cortex_m_fpu))))]
        super::dot::matmul::<F>(job);
    }
}
