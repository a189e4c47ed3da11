//! 64-bit Arm: NEON, which every such core has; dot products (`sdot`); matrix products (`smmla`).

mod blocks;
mod bytes;
mod detect;
mod dotprod;
mod i8mm;
mod neon;
mod panel;
mod scale;

use super::quantized::{self, Multiply};
use super::{Job, Kernels, float};
use crate::quant::{Format, formats_list};
use blocks::Rows;
use dotprod::Sdot;
use neon::{Neon, Widening};
use panel::{Panel, scales};

/// What the tables have in common.
const OF_NEON: Kernels = table!("neon", Neon, neon_matmul);
static NEON: Kernels = OF_NEON;
static DOTPROD: Kernels = Kernels { name: "dotprod", matmul: dotprod_matmul, ..OF_NEON };
static I8MM: Kernels = Kernels { name: "i8mm", matmul: i8mm_matmul, ..OF_NEON };

/// The tables that this machine can run, the fastest first.
pub(super) fn available() -> impl Iterator<Item = &'static Kernels> {
    let dotprod = detect::dotprod();
    let tables = [(dotprod && detect::i8mm(), &I8MM), (dotprod, &DOTPROD), (true, &NEON)];
    tables.into_iter().filter_map(|(there, table)| there.then_some(table))
}

formats_list!(choose neon_matmul floats neon_blocks);
formats_list!(choose dotprod_matmul floats dotprod_blocks);
formats_list!(choose i8mm_matmul floats i8mm_blocks);

/// A sum takes four registers, so four of them are at work at once, and their inputs have room beside them.
fn floats<W: float::Weight>(job: &mut Job<'_>) {
    if job.x.tokens == 1 {
        float::matmul::<_, W, 4, 1>(Neon, job);
    } else {
        float::matmul::<_, W, 2, 2>(Neon, job);
    }
}

/// Rows of blocks times one token.
unsafe fn neon_decode<F: Format>(job: &mut Job<'_>) {
    // SAFETY: passed on to the caller.
    unsafe { quantized::decode::<Rows<F, Widening>>(job, 1) }
}

/// The same. A single token has no use for products of matrices.
#[target_feature(enable = "dotprod")]
unsafe fn dotprod_decode<F: Format>(job: &mut Job<'_>) {
    // SAFETY: passed on to the caller.
    unsafe { quantized::decode::<Rows<F, Sdot>>(job, 1) }
}

/// Block formats: one token, or panels that are packed by `$put` and multiplied by `$pieces` and `$whole`.
macro_rules! blocks {
    ($name:ident, $module:ident, $decode:ident, $put:path, $pieces:path, $whole:path $(, $feature:literal)?) => {
        mod $module {
            use super::*;
            use crate::kernel::quantized::{Pack, Panels, Tile};

            $(#[target_feature(enable = $feature)])?
            unsafe fn pack<F: Format>(pack: &Pack<'_>) {
                // SAFETY: passed on to the caller.
                unsafe { panel::pack::<F>(pack, |to, rows| $put(to, rows)) }
            }
            $(#[target_feature(enable = $feature)])?
            unsafe fn pieces<const T: usize, const SCALES: u8>(tile: &Tile<'_>) {
                // SAFETY: passed on to the caller.
                unsafe { $pieces(tile) }
            }
            $(#[target_feature(enable = $feature)])?
            unsafe fn whole<const T: usize, const GROUP: usize, const MINIMUMS: bool>(tile: &Tile<'_>) {
                // SAFETY: passed on to the caller.
                unsafe { $whole(tile) }
            }

            pub fn of<F: Format>() -> Panels {
                Panels { pack: pack::<F>, cost: 0, both: None, multiply: functions::<F>() }
            }
            /// The functions for a format, for four tokens and for one: those that formats of its kind share.
            fn functions<F: Format>() -> &'static [Multiply] {
                // Each condition by itself, so that the compiler leaves out the functions of the other kinds.
                if const { F::ELEMENTS == 256 && F::GROUP == 16 && F::M.is_some() } {
                    &[(4, whole::<4, 16, true>), (1, whole::<1, 16, true>)]
                } else if const { F::ELEMENTS == 256 && F::GROUP == 16 } {
                    &[(4, whole::<4, 16, false>), (1, whole::<1, 16, false>)]
                } else if const { F::ELEMENTS == 256 && F::M.is_some() } {
                    &[(4, whole::<4, 32, true>), (1, whole::<1, 32, true>)]
                } else if const { F::ELEMENTS == 256 } {
                    &[(4, whole::<4, 32, false>), (1, whole::<1, 32, false>)]
                } else if const { F::M.is_some() } {
                    &[(4, pieces::<4, { scales::MINIMUM }>), (1, pieces::<1, { scales::MINIMUM }>)]
                } else if const { F::FLOAT_GROUPS } {
                    &[(4, pieces::<4, { scales::HALVES }>), (1, pieces::<1, { scales::HALVES }>)]
                } else {
                    &[(4, pieces::<4, { scales::ONE }>), (1, pieces::<1, { scales::ONE }>)]
                }
            }
        }

        unsafe fn $name<F: Format>(job: &mut Job<'_>) {
            // SAFETY: the caller has the instruction, and the functions are of one format.
            unsafe {
                if job.x.tokens == 1 {
                    $decode::<F>(job);
                } else {
                    quantized::prefill(job, F::BIAS, &$module::of::<F>());
                }
            }
        }
    };
}
blocks!(
    neon_blocks,
    by_widening,
    neon_decode,
    Widening::put,
    panel::pieces::<Widening, T, SCALES>,
    panel::whole::<Widening, T, GROUP, MINIMUMS>
);
blocks!(
    dotprod_blocks,
    by_sdot,
    dotprod_decode,
    Sdot::put,
    panel::pieces::<Sdot, T, SCALES>,
    panel::whole::<Sdot, T, GROUP, MINIMUMS>,
    "dotprod"
);
blocks!(
    i8mm_blocks,
    by_smmla,
    dotprod_decode,
    i8mm::put,
    i8mm::pieces::<T, SCALES>,
    i8mm::whole::<T, GROUP, MINIMUMS>,
    "dotprod,i8mm"
);
