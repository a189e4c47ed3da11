//! The size of a panel: 16 rows of weights, packed for an instruction set.

use crate::quant::{Format, TensorType, formats, formats_list};

/// Rows per panel, and the unit in which rows are divided among workers.
pub(crate) const PANEL_ROWS: usize = 16;

macro_rules! panel_bytes {
    ({} $($name:ident = $number:literal, $module:ident :: $format:ident, $feature:literal;)*) => {
        /// Bytes of scratch that a worker needs to multiply a matrix of this type with several tokens. The size is the
        /// same on every target.
        pub(crate) const fn panel_bytes(kind: TensorType, cols: usize) -> usize {
            match kind {
                $(TensorType::$name => PANEL_ROWS * cols.div_ceil(32) * panel_chunk::<formats::$module::$format>(),)*
                _ => 0,
            }
        }
    };
}
formats_list!(panel_bytes);

/// Bytes of a panel per 32 weights of a row: a byte per weight, then scales and minimums in the largest representation
/// of any target.
const fn panel_chunk<F: Format>() -> usize {
    let floats = 4 * if F::M.is_some() { 2 } else { 1 };
    if F::ELEMENTS == 256 {
        // An i32 scale per group, an i16 per 16 weights for the bias or the minimum, and the floats of the block.
        32 + (256 / F::GROUP * 4 + 32 + floats).div_ceil(8)
    } else if F::FLOAT_GROUPS {
        32 + 8
    } else {
        32 + floats
    }
}
