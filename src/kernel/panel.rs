//! The size of a panel: some rows of weights, packed for an instruction set.

use crate::quant::{Format, TensorType, formats, formats_list};

/// Rows that a packed panel holds, and the unit that workers take.
pub(crate) const PANEL_ROWS: usize = 16;

macro_rules! panel_bytes {
    ({} $($name:ident = $number:literal, $module:ident :: $format:ident, $feature:literal;)*) => {
        /// Bytes of scratch that a worker needs for matrices of this type, when there are several tokens.
        /// The same on every target.
        pub(crate) const fn panel_bytes(kind: TensorType, cols: usize) -> usize {
            match kind {
                $(TensorType::$name => PANEL_ROWS * cols.div_ceil(32) * panel_chunk::<formats::$module::$format>(),)*
                _ => 0,
            }
        }
    };
}
formats_list!(panel_bytes);

/// Bytes of a panel for 32 weights of a row: themselves, then the most that a target takes for scales and minimums.
const fn panel_chunk<F: Format>() -> usize {
    let floats = 4 * if F::M.is_some() { 2 } else { 1 };
    if F::ELEMENTS == 256 {
        // Each group's scale as an i32; for every 16 an i16 that makes up for the bias, or the minimum.
        32 + (256 / F::GROUP * 4 + 32 + floats).div_ceil(8)
    } else if F::FLOAT_GROUPS {
        32 + 8
    } else {
        32 + floats
    }
}
