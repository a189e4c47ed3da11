//! WebAssembly with 128-bit vectors, where the module is compiled for them: there is nothing to detect, because an
//! engine without them refuses the module.

mod blocks;
mod bytes;
mod simd;

use super::{Job, Kernels, float, quantized};
use crate::quant::{Format, formats_list};
use simd::Simd128;

pub(super) static SIMD128: Kernels = table!("simd128", Simd128, matmul);

formats_list!(choose matmul floats rows);

/// Two rows share what becomes of an activation in f64; a sum more has no room in the registers.
fn floats<W: float::Weight>(job: &mut Job<'_>) {
    float::matmul::<_, W, 2, 1>(Simd128, job);
}

/// The file's own rows, for any number of tokens.
unsafe fn rows<F: Format>(job: &mut Job<'_>) {
    // SAFETY: passed on to the caller.
    unsafe { quantized::decode::<blocks::Rows<F>>(job, job.x.tokens) }
}
