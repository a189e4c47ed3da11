//! 64-bit Arm: tables for NEON, which every core has, for dot products (`sdot`) and for matrix products (`smmla`).

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

/// The NEON table, as a constant because the other tables share most of its functions.
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

/// Float weights. A sum takes four registers, so a tile of four sums leaves registers for its inputs.
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
    unsafe { quantized::decode::<Rows<F, Widening>>(job, 1) }
}

/// Multiplies rows of blocks with one token, by `sdot`. Products of matrices gain nothing with a single token.
#[target_feature(enable = "dotprod")]
unsafe fn dotprod_decode<F: Format>(job: &mut Job<'_>) {
    // SAFETY: the caller promises the same.
    unsafe { quantized::decode::<Rows<F, Sdot>>(job, 1) }
}

/// Defines the matrix product of block formats: decode for one token, otherwise panels that `$put` packs and `$chunks`
/// and `$blocks` multiply.
macro_rules! blocks {
    ($name:ident, $module:ident, $decode:ident, $put:path, $chunks:path, $blocks:path $(, $feature:literal)?) => {
        mod $module {
            use super::*;
            use crate::kernel::quantized::{Pack, Panels, Tile};

            $(#[target_feature(enable = $feature)])?
            unsafe fn pack<F: Format>(pack: &Pack<'_>) {
                // SAFETY: the caller promises the same.
                unsafe { panel::pack::<F>(pack, |to, rows| $put(to, rows)) }
            }
            $(#[target_feature(enable = $feature)])?
            unsafe fn chunks<const T: usize, const SCALES: u8>(tile: &Tile<'_>) {
                // SAFETY: the caller promises the same.
                unsafe { $chunks(tile) }
            }
            $(#[target_feature(enable = $feature)])?
            unsafe fn blocks<const T: usize, const GROUP: usize, const MINIMUMS: bool>(tile: &Tile<'_>) {
                // SAFETY: the caller promises the same.
                unsafe { $blocks(tile) }
            }

            pub fn of<F: Format>() -> Panels {
                Panels { pack: pack::<F>, cost: 0, both: None, multiply: functions::<F>() }
            }
            /// The functions for a format, for four tokens and for one. Formats with the same panel layout share them.
            fn functions<F: Format>() -> &'static [Multiply] {
                // Separate conditions, so that the compiler omits the functions of other layouts.
                if const { F::ELEMENTS == 256 && F::GROUP == 16 && F::M.is_some() } {
                    &[(4, blocks::<4, 16, true>), (1, blocks::<1, 16, true>)]
                } else if const { F::ELEMENTS == 256 && F::GROUP == 16 } {
                    &[(4, blocks::<4, 16, false>), (1, blocks::<1, 16, false>)]
                } else if const { F::ELEMENTS == 256 && F::M.is_some() } {
                    &[(4, blocks::<4, 32, true>), (1, blocks::<1, 32, true>)]
                } else if const { F::ELEMENTS == 256 } {
                    &[(4, blocks::<4, 32, false>), (1, blocks::<1, 32, false>)]
                } else if const { F::M.is_some() } {
                    &[(4, chunks::<4, { scales::MINIMUM }>), (1, chunks::<1, { scales::MINIMUM }>)]
                } else if const { F::FLOAT_GROUPS } {
                    &[(4, chunks::<4, { scales::HALVES }>), (1, chunks::<1, { scales::HALVES }>)]
                } else {
                    &[(4, chunks::<4, { scales::ONE }>), (1, chunks::<1, { scales::ONE }>)]
                }
            }
        }

        unsafe fn $name<F: Format>(job: &mut Job<'_>) {
            // SAFETY: the caller promises the instruction; all functions are for format `F`, and `$put` writes the
            // layout that is read.
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
    panel::chunks::<Widening, T, SCALES>,
    panel::blocks::<Widening, T, GROUP, MINIMUMS>
);
blocks!(
    dotprod_blocks,
    by_sdot,
    dotprod_decode,
    Sdot::put,
    panel::chunks::<Sdot, T, SCALES>,
    panel::blocks::<Sdot, T, GROUP, MINIMUMS>,
    "dotprod"
);
blocks!(
    i8mm_blocks,
    by_smmla,
    dotprod_decode,
    i8mm::put,
    i8mm::chunks::<T, SCALES>,
    i8mm::blocks::<T, GROUP, MINIMUMS>,
    "dotprod,i8mm"
);
