//! One file each: the block structs of ggml's `ggml-common.h` and what its `dequantize_row_*` make of them. A module
//! is declared by the list; those that share something with others are named here.

macro_rules! declare {
    ({} $($name:ident = $number:literal, $module:ident :: $format:ident, $feature:literal;)*) => {
        $(pub(crate) mod $module;)*
    };
}
super::list::formats!(declare);
