//! The tensor types of GGUF and the geometry of their blocks.
//!
//! Source: `enum ggml_type` and the block structs of ggml (`ggml.h`, `ggml-common.h`).

use super::{Format, Shape, formats, formats_list};

macro_rules! types {
    (
        // Types that are not blocks of weights: elements and bytes.
        { $($plain:ident = $id:literal, $elements:literal, $bytes:literal;)* }
        $($name:ident = $number:literal, $module:ident :: $format:ident, $feature:literal;)*
    ) => {
        /// A tensor's element type, by its number in the file.
        ///
        /// All current types are named, so that a file can be listed; [`is_built`](Self::is_built) says which run.
        /// `Q8_G32` and `Q8_G64` are llama2.c's int8, which GGUF has no numbers for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(u8)]
        #[allow(non_camel_case_types, missing_docs)] // the names are ggml's
        pub enum TensorType {
            $($plain = $id,)*
            $($name = $number,)*
        }

        impl TensorType {
            /// The type with this number in the file; `None` for numbers never used or withdrawn
            /// (4, 5, 31 to 33, 36 to 38).
            pub const fn from_id(id: u32) -> Option<Self> {
                match id {
                    $($id => Some(Self::$plain),)*
                    $($number => Some(Self::$name),)*
                    _ => None,
                }
            }

            /// The crate's feature that brings code for it; `None` for F32, which is always there, and for types that
            /// are never run.
            pub const fn feature(self) -> Option<&'static str> {
                match self {
                    Self::F16 | Self::BF16 => Some("half-floats"),
                    $(Self::$name => Some($feature),)*
                    _ => None,
                }
            }

            /// Whether this build has code for it: all types that can be run, less what the crate's features leave out.
            #[allow(clippy::match_like_matches_macro)] // only where all features are on
            pub const fn is_built(self) -> bool {
                match self {
                    Self::F32 => true,
                    Self::F16 | Self::BF16 => cfg!(feature = "half-floats"),
                    $(Self::$name => cfg!(feature = $feature),)*
                    _ => false,
                }
            }

            /// Elements per block and bytes per block.
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

        $(const _: () = assert!(is_sound::<formats::$module::$format>(), "a place outside of the block");)*
    };
}

/// Whether the places that [`Format`] names are inside its block: kernels read there without a check.
const fn is_sound<F: Format>() -> bool {
    let size = size_of::<F::Block>();
    let numbers = match F::SHAPE {
        Shape::Bytes(place) => place + 32 <= size && F::ELEMENTS == 32,
        Shape::Nibbles(place, _) => place + 16 <= size && F::ELEMENTS == 32,
        Shape::Halves(place) => place + 128 <= size && F::ELEMENTS == 256 && F::GROUP == 32,
        Shape::Other => F::ELEMENTS.is_multiple_of(32),
    };
    // `m` follows `d`.
    let both = match (F::D, F::M) {
        (Some((d, factor)), Some((m, _))) => m == d + 2 && factor == 1.0,
        (_, m) => m.is_none(),
    };
    numbers && both && has_half(F::D, size) && has_half(F::M, size) && (F::GROUP == 16 || F::GROUP == 32)
}

/// Whether an f16 at this place, if there is one, is inside a block.
const fn has_half(place: Option<(usize, f32)>, size: usize) -> bool {
    match place {
        Some((place, _)) => place + 2 <= size,
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
    /// Bytes of a row of `len` elements; `None` if that is not a whole number of blocks.
    pub const fn row_bytes(self, len: usize) -> Option<usize> {
        let (elements, bytes) = self.block();
        if len.is_multiple_of(elements) { (len / elements).checked_mul(bytes) } else { None }
    }
}
