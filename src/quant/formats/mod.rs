//! One file per format. Source: the block structs in ggml's `ggml-common.h`, and ggml's functions `dequantize_row_*`.
//! The list in `list.rs` declares the modules.

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
