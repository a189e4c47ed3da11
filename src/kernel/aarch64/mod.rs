//! 64-bit Arm: tables for NEON, which every core has, for dot products (`sdot`) and for matrix products (`smmla`).

// Some closures only call an intrinsic. They are not replaced by its name, because the closure names the operands.
#![allow(clippy::redundant_closure)]

mod blocks;
mod bytes;
mod detect;
mod dotprod;
mod i8mm;
mod neon;
mod panel;
mod safe;
mod scale;

use super::panel::functions;
use super::quantized::{self, Panels};
use super::{Job, Kernels, float};
use crate::quant::{Format, formats_list};
use blocks::Rows;
use dotprod::Sdot;
use i8mm::Smmla;
use neon::{Neon, Widening};

const NEON: Kernels = table!("neon", Neon, neon_matmul);
const DOTPROD: Kernels = Kernels { name: "dotprod", matmul: dotprod_matmul, ..NEON };
const I8MM: Kernels = Kernels { name: "i8mm", matmul: i8mm_matmul, ..NEON };

/// The tables that this machine can run, the fastest first.
pub(super) fn available() -> impl Iterator<Item = &'static Kernels> {
    let dotprod = detect::dotprod();
    let tables = [(dotprod && detect::i8mm(), &I8MM), (dotprod, &DOTPROD), (true, &NEON)];
    tables.into_iter().filter_map(|(there, table)| there.then_some(table))
}

formats_list!(choose neon_matmul floats neon_blocks);
formats_list!(choose dotprod_matmul floats dotprod_blocks);
formats_list!(choose i8mm_matmul floats i8mm_blocks);

/// Multiplies float weights. The sum of a row and a token takes four registers, so a tile has only four sums, and
/// registers are left for the inputs.
fn floats<W: float::Weight>(job: &mut Job<'_>) {
    if job.x.tokens == 1 {
        float::matmul::<_, W, 4, 1>(Neon, job);
    } else {
        float::matmul::<_, W, 2, 2>(Neon, job);
    }
}

/// Multiplies rows of blocks with one token, by NEON.
unsafe fn neon_decode<F: Format>(job: &mut Job<'_>) {
    // SAFETY: the caller promises the same.
    unsafe { quantized::decode::<Rows<F, Widening>, 1>(job) }
}

/// Multiplies rows of blocks with one token, by `sdot`. (`smmla` gains nothing with a single token.)
#[target_feature(enable = "dotprod")]
unsafe fn dotprod_decode<F: Format>(job: &mut Job<'_>) {
    // SAFETY: the caller promises the same.
    unsafe { quantized::decode::<Rows<F, Sdot>, 1>(job) }
}

/// Defines the matrix product of block formats. One token is multiplied by `$decode`, several tokens with panels by
/// `$panel`.
macro_rules! blocks {
    ($name:ident, $module:ident, $decode:ident, $panel:ty $(, $feature:literal)?) => {
        mod $module {
            use super::*;
            use crate::kernel::quantized::{Multiply, Pack, Tile};

            $(#[target_feature(enable = $feature)])?
            pub unsafe fn pack<F: Format>(pack: &Pack<'_>) {
                // SAFETY: the caller promises the same.
                unsafe { panel::pack::<F, $panel>(pack) }
            }
            $(#[target_feature(enable = $feature)])?
            unsafe fn chunks<const T: usize, const SCALES: u8>(tile: &Tile<'_>) {
                // SAFETY: the caller promises the same.
                unsafe { panel::chunks::<$panel, T, SCALES>(tile) }
            }
            $(#[target_feature(enable = $feature)])?
            unsafe fn blocks<const T: usize, const GROUP: usize, const MINIMUMS: bool>(tile: &Tile<'_>) {
                // SAFETY: the caller promises the same.
                unsafe { panel::blocks::<$panel, T, GROUP, MINIMUMS>(tile) }
            }
            pub const fn multiply<F: Format>() -> &'static [Multiply] {
                functions!(F, [], 4 1)
            }
        }

        unsafe fn $name<F: Format>(job: &mut Job<'_>) {
            // SAFETY: the caller promises that the processor has the instruction; all functions are for format `F` and
            // for the layout of `$panel`.
            unsafe {
                if job.x.tokens == 1 {
                    $decode::<F>(job);
                } else {
                    let panels = const {
                        Panels { pack: $module::pack::<F>, cost: 0, both: None, multiply: $module::multiply::<F>() }
                    };
                    quantized::prefill(job, F::BIAS, &panels);
                }
            }
        }
    };
}
blocks!(neon_blocks, by_widening, neon_decode, Widening);
blocks!(dotprod_blocks, by_sdot, dotprod_decode, Sdot, "dotprod");
blocks!(i8mm_blocks, by_smmla, dotprod_decode, Smmla, "dotprod,i8mm");
