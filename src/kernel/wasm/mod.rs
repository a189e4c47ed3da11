//! WebAssembly with 128-bit vectors, if the module is compiled for such vectors. There is no detection at run time,
//! because a runtime without vectors rejects the module.

mod blocks;
mod bytes;
mod simd;

use super::{Job, Kernels, float, quantized};
use crate::quant::{Format, formats_list};
use simd::Simd128;

pub(super) static SIMD128: Kernels = table!("simd128", Simd128, matmul);

formats_list!(choose matmul floats rows);

/// The matrix product of float weights. Two rows share the conversion of an activation to f64. Three rows do not,
/// because the sum of a third row would not fit in the registers.
fn floats<W: float::Weight>(job: &mut Job<'_>) {
    float::matmul::<_, W, 2, 1>(Simd128, job);
}

/// The matrix product of block formats: multiplies the rows as they are in the file, for any number of tokens.
unsafe fn rows<F: Format>(job: &mut Job<'_>) {
    // SAFETY: the caller promises a valid job, and the module is compiled for vectors.
    unsafe { quantized::decode::<blocks::Rows<F>, 1>(job) }
}
