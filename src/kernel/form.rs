//! The representation of activations for each weight type.

use crate::quant::{Format, TensorType, formats, formats_list};

/// The representation of activations that a weight type is multiplied with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Floats, not quantized.
    F32,
    /// Signed bytes with an f16 scale per 32.
    Q8,
    /// Signed bytes with an f32 scale per 256.
    Q8K,
    /// Signed bytes with an f32 scale per 32.
    Groups32,
    /// Signed bytes with an f32 scale per 64 elements. Each scale is stored twice.
    Groups64,
}

/// In every quantized form, `sums` has one sum per this many activations.
pub const SUM_SPAN: usize = 16;

macro_rules! form_of {
    ({} $($name:ident = $number:literal, $module:ident :: $format:ident, $feature:literal;)*) => {
        const fn chosen(kind: TensorType) -> Option<Self> {
            match kind {
                _ if !kind.is_built() => None,
                TensorType::F32 | TensorType::F16 | TensorType::BF16 => Some(Self::F32),
                $(TensorType::$name => Some(Self::of_blocks::<formats::$module::$format>()),)*
                _ => None,
            }
        }
    };
}

impl Form {
    formats_list!(form_of);

    /// The form for each weight type with a number below 64.
    const ALL: [Option<Self>; 64] = {
        let mut all = [None; 64];
        let mut id = 0;
        while id < all.len() {
            if let Some(kind) = TensorType::from_id(id as u32) {
                all[id] = Self::chosen(kind);
            }
            id += 1;
        }
        all
    };

    /// The form in which activations are multiplied with weights of a type. `None` for types that this build does not
    /// run.
    #[inline(always)] // compiles to one load
    pub const fn of(kind: TensorType) -> Option<Self> {
        let id = kind as usize;
        if id < Self::ALL.len() {
            Self::ALL[id]
        } else if TensorType::Q8_G32.is_built() || TensorType::Q8_G64.is_built() {
            Self::chosen(kind) // `Q8_G32` and `Q8_G64`, whose numbers are above GGUF's
        } else {
            None
        }
    }

    const fn of_blocks<F: Format>() -> Self {
        match (F::ELEMENTS, F::F32_SCALES) {
            (256, _) => Self::Q8K,
            (64, true) => Self::Groups64,
            (_, true) => Self::Groups32,
            _ => Self::Q8,
        }
    }

    /// True if activations of this form are needed for a weight type of this build.
    pub const fn is_built(self) -> bool {
        match self {
            Self::F32 | Self::Q8 => true,
            Self::Q8K => Q8K_BUILT,
            Self::Groups32 | Self::Groups64 => TensorType::Q8_G32.is_built(),
        }
    }

    /// Activations per scale.
    pub const fn span(self) -> usize {
        match self {
            Self::F32 => 1,
            Self::Q8 | Self::Groups32 | Self::Groups64 => 32,
            Self::Q8K => 256,
        }
    }
}

macro_rules! q8k_built {
    ({} $($name:ident = $number:literal, $module:ident :: $format:ident, $feature:literal;)*) => {
        /// True if this build has a weight type that uses [`Form::Q8K`].
        const Q8K_BUILT: bool =
            $(matches!(Form::of(TensorType::$name), Some(Form::Q8K)) ||)* false;
    };
}
formats_list!(q8k_built);
