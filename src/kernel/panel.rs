//! Panels: 16 rows of weights, packed for an instruction set. This module defines the size of a panel, and selects the
//! functions that multiply panels with tokens.

use crate::quant::{Format, TensorType, formats, formats_list};

/// Number of rows per panel. Workers divide the rows of a matrix in units of this size.
pub(crate) const PANEL_ROWS: usize = 16;

/// Maximum number of tokens that a function multiplies with a panel at once: 16 with AMX, otherwise 8.
pub(super) const MAX_TOKENS: usize = if cfg!(target_arch = "x86_64") { 16 } else { 8 };

/// Returns `tokens`, if it is at least 1 and at most [`MAX_TOKENS`]. In a constant, another number is a compile-time
/// error.
#[allow(dead_code)] // not every target has panels
pub(super) const fn at_most(tokens: usize) -> usize {
    assert!(0 < tokens && tokens <= MAX_TOKENS);
    tokens
}

macro_rules! panel_bytes {
    ({} $($name:ident = $number:literal, $module:ident :: $format:ident, $feature:literal;)*) => {
        /// Number of bytes of scratch memory that a worker needs to multiply a matrix of this type with several tokens.
        /// The size is the same on every target.
        pub const fn panel_bytes(kind: TensorType, cols: usize) -> usize {
            match kind {
                $(TensorType::$name => PANEL_ROWS * cols.div_ceil(32) * panel_chunk::<formats::$module::$format>(),)*
                _ => 0,
            }
        }
    };
}
formats_list!(panel_bytes);

/// Number of bytes of a panel per 32 weights of a row: a byte per weight, then scales and minimums in the largest
/// representation of any target, so that plans are the same on every target.
const fn panel_chunk<F: Format>() -> usize {
    let floats = 4 * if F::M.is_some() { 2 } else { 1 };
    if F::ELEMENTS == 256 {
        // After the 32 bytes of codes come, for each row, an i32 scale per group, an i16 per 16 weights for the bias or
        // the minimum, and the floats of the block. The sum counts them for a whole block, and divides them among its
        // eight chunks.
        32 + (256 / F::GROUP * 4 + 32 + floats).div_ceil(8)
    } else if F::FLOAT_GROUPS {
        32 + 8
    } else {
        32 + floats
    }
}

/// The ways in which a panel stores scales if blocks have fewer than 256 weights.
#[allow(dead_code)] // not every target has panels
pub(super) mod scales {
    /// A `d` per 32 weights.
    pub const ONE: u8 = 0;
    /// A `d` and an `m` per 32 weights.
    pub const MINIMUM: u8 = 1;
    /// A `d` per 16 weights.
    pub const HALVES: u8 = 2;
}

/// Lists the function `chunks` or `blocks` for the format `$f`, compiled for each number of tokens. Formats with the
/// same panel layout share the compiled functions. `$e` has the functions' first generic arguments.
#[allow(unused_macros)] // not every target has panels
macro_rules! functions {
    ($f:ident, $e:tt, $($tokens:literal)*) => {{
        use $crate::kernel::panel::scales;
        // The functions for each panel layout are behind a condition of their own, so that the compiler omits the
        // functions of all other layouts.
        if const { $f::ELEMENTS == 256 && $f::GROUP == 16 && $f::M.is_some() } {
            &[$(functions!(@ blocks $e $tokens 16 true)),*]
        } else if const { $f::ELEMENTS == 256 && $f::GROUP == 16 } {
            &[$(functions!(@ blocks $e $tokens 16 false)),*]
        } else if const { $f::ELEMENTS == 256 && $f::M.is_some() } {
            &[$(functions!(@ blocks $e $tokens 32 true)),*]
        } else if const { $f::ELEMENTS == 256 } {
            &[$(functions!(@ blocks $e $tokens 32 false)),*]
        } else if const { $f::M.is_some() } {
            &[$(functions!(@ chunks $e $tokens { scales::MINIMUM })),*]
        } else if const { $f::FLOAT_GROUPS } {
            &[$(functions!(@ chunks $e $tokens { scales::HALVES })),*]
        } else {
            &[$(functions!(@ chunks $e $tokens { scales::ONE })),*]
        }
    }};
    (@ $function:ident [$($e:tt)*] $tokens:literal $($constant:tt)*) => {
        (const { $crate::kernel::panel::at_most($tokens) }, $function::<$($e)* $tokens, $($constant),*>)
    };
}
#[allow(unused_imports)] // not every target has panels
pub(super) use functions;
