//! The tensor types of GGUF and the geometry of their blocks.
//!
//! Source: `enum ggml_type` and the block structs of ggml (`ggml.h`, `ggml-common.h`).

use super::{Format, Shape, formats, formats_list};

macro_rules! types {
    (
        // Types that have no block format in this crate: types of single elements, and ggml's formats for activations.
        { $($plain:ident = $id:literal, $elements:literal, $bytes:literal;)* }
        $($name:ident = $number:literal, $module:ident :: $format:ident, $feature:literal;)*
    ) => {
        /// A tensor's element type, by its number in the file.
        ///
        /// Every type number of current GGUF has a name, so that any file can be listed; [`is_built`](Self::is_built)
        /// tells which types this build can run. `Q8_G32` and `Q8_G64` are the int8 groups of llama2.c, for which GGUF
        /// has no numbers.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(u8)]
        #[allow(non_camel_case_types, missing_docs)] // the names are ggml's
        pub enum TensorType {
            $($plain = $id,)*
            $($name = $number,)*
        }

        impl TensorType {
            /// The type with this number in a file; `None` for numbers that were never used or were withdrawn (4, 5, 31
            /// to 33, 36 to 38).
            pub const fn from_id(id: u32) -> Option<Self> {
                match id {
                    $($id => Some(Self::$plain),)*
                    $($number => Some(Self::$name),)*
                    _ => None,
                }
            }

            /// The crate feature that enables this type; `None` for F32, which is always enabled, and for types that no
            /// build can run.
            pub const fn feature(self) -> Option<&'static str> {
                match self {
                    Self::F16 | Self::BF16 => Some("half-floats"),
                    $(Self::$name => Some($feature),)*
                    _ => None,
                }
            }

            /// True if this build can run the type: the type is F32, or the type's [`feature`](Self::feature) is on.
            #[allow(clippy::match_like_matches_macro)] // holds only with every feature on
            pub const fn is_built(self) -> bool {
                match self {
                    Self::F32 => true,
                    Self::F16 | Self::BF16 => cfg!(feature = "half-floats"),
                    $(Self::$name => cfg!(feature = $feature),)*
                    _ => false,
                }
            }

            /// Elements per block, and bytes per block.
            pub const fn block(self) -> (usize, usize) {
                match self {
                    $(Self::$plain => ($elements, $bytes),)*
                    $(Self::$name => (
                        <formats::$module::$format as Format>::ELEMENTS,
                        size_of::<<formats::$module::$format as Format>::Block>(),
                    ),)*
                }
            }
        }

        $(const _: () = assert!(is_sound::<formats::$module::$format>(), "a field outside of the block");)*
        $(const _: () = assert!(<formats::$module::$format as Format>::ELEMENTS.is_power_of_two());)*
    };
}

/// Checks that every offset in a [`Format`] is inside its block, because kernels read there without bounds checks.
const fn is_sound<F: Format>() -> bool {
    let size = size_of::<F::Block>();
    let shape = match F::SHAPE {
        Shape::Bytes(offset) => offset + 32 <= size && F::ELEMENTS == 32,
        Shape::Nibbles(offset, _) => offset + 16 <= size && F::ELEMENTS == 32,
        Shape::Halves(offset) => offset + 128 <= size && F::ELEMENTS == 256 && F::GROUP == 32,
        Shape::Other => F::ELEMENTS.is_multiple_of(32),
    };
    // `m` has to follow `d`, because kernels read both together.
    let both = match (F::D, F::M) {
        (Some((d, factor)), Some((m, _))) => m == d + 2 && factor == 1.0,
        (_, m) => m.is_none(),
    };
    shape && both && has_half(F::D, size) && has_half(F::M, size) && (F::GROUP == 16 || F::GROUP == 32)
}

/// True if the f16 at `offset` lies within a block of `size` bytes, or if the format has no such f16.
const fn has_half(offset: Option<(usize, f32)>, size: usize) -> bool {
    match offset {
        Some((offset, _)) => offset + 2 <= size,
        None => true,
    }
}
formats_list! { types
    F32 = 0, 1, 4;
    F16 = 1, 1, 2;
    Q8_1 = 9, 32, 36;
    Q8_K = 15, 256, 292;
    I8 = 24, 1, 1;
    I16 = 25, 1, 2;
    I32 = 26, 1, 4;
    I64 = 27, 1, 8;
    F64 = 28, 1, 8;
    BF16 = 30, 1, 2;
}

impl TensorType {
    /// Number of bytes of a row of `len` elements; `None` unless `len` is a multiple of the block length.
    pub const fn row_bytes(self, len: usize) -> Option<usize> {
        let (elements, bytes) = self.block();
        if len.is_multiple_of(elements) { (len / elements).checked_mul(bytes) } else { None }
    }
}
