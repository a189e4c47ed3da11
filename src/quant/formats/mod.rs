//! One file per format, after the block structs of ggml's `ggml-common.h` and its functions `dequantize_row_*`. The
//! list in `list.rs` declares the modules.

macro_rules! declare {
    ({} $($name:ident = $number:literal, $module:ident :: $format:ident, $feature:literal;)*) => {
        $(
            pub(crate) mod $module;
            impl super::Named for $module::$format {
                const KIND: super::TensorType = super::TensorType::$name;
            }
        )*
    };
}
super::list::formats!(declare);
