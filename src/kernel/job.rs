//! What a kernel works on: activations, and a worker's piece of a matrix product.

use super::linear::Matrix;
use super::panel::panel_bytes;
use crate::quant::{Format, TensorType, formats, formats_list};

/// The form of the activations that a weight type is multiplied with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// As they are.
    F32,
    /// Bytes with a scale for every 32.
    Q8,
    /// Bytes with a scale for every 256.
    Q8K,
    /// Bytes with an f32 scale for every 32.
    Groups32,
    /// Bytes with an f32 scale for every 64, which is there twice.
    Groups64,
}

/// Activations for each sum in the quantized forms.
pub(crate) const SUM_SPAN: usize = 16;

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

    /// Of each weight type with a low number.
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

    /// `None` for weight types that this build does not run.
    #[inline(always)] // a load
    pub const fn of(kind: TensorType) -> Option<Self> {
        let id = kind as usize;
        if id < Self::ALL.len() {
            Self::ALL[id]
        } else if TensorType::Q8_G32.is_built() || TensorType::Q8_G64.is_built() {
            Self::chosen(kind) // those two, which GGUF has no numbers for
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

    /// Whether this build has a weight type that wants this form.
    pub const fn is_built(self) -> bool {
        match self {
            Self::F32 | Self::Q8 => true,
            Self::Q8K => Q8K_BUILT,
            Self::Groups32 | Self::Groups64 => TensorType::Q8_G32.is_built(),
        }
    }

    /// Elements for each scale.
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
        /// Whether this build has a weight type that wants activations in the form [`Form::Q8K`].
        const Q8K_BUILT: bool =
            $(matches!(Form::of(TensorType::$name), Some(Form::Q8K)) ||)* false;
    };
}
formats_list!(q8k_built);

/// The activations of some tokens, as floats and in one quantized form.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acts<'a> {
    /// `[tokens][cols]`.
    pub x: &'a [f32],
    /// `[tokens][cols]`, from -127 to 127; empty where the form is F32, like the next two.
    pub q: &'a [i8],
    /// Scales, `[tokens][cols / span]`.
    pub d: &'a [f32],
    /// Sums of `q`, `[tokens][cols / 16]`.
    pub sums: &'a [i16],
    pub tokens: usize,
}

/// One token of [`Acts`].
#[derive(Clone, Copy)]
pub(super) struct Row<'a> {
    pub q: &'a [i8],
    pub d: &'a [f32],
    pub sums: &'a [i16],
}

impl<'a> Acts<'a> {
    /// Token `t`.
    pub(super) fn row(&self, t: usize) -> Row<'a> {
        Row { q: self.part(self.q, t), d: self.part(self.d, t), sums: self.part(self.sums, t) }
    }

    /// Token `t` of one of the slices.
    fn part<T>(&self, all: &'a [T], t: usize) -> &'a [T] {
        let n = all.len() / self.tokens.max(1);
        all.get(t * n..(t + 1) * n).unwrap_or(&[])
    }

    /// Whether every token has `cols` elements in this form.
    fn has(&self, form: Form, cols: usize) -> bool {
        let elements = self.tokens.saturating_mul(cols);
        self.x.len() == elements
            && (form == Form::F32
                || self.q.len() >= elements
                    && self.d.len() >= elements / form.span()
                    && self.sums.len() >= elements / SUM_SPAN)
    }
}

/// One worker's piece of a matrix product: rows of weights times all tokens of `x`.
///
/// The fields are right by construction: those of a [`Matrix`] of one row at least; `x` has `cols` elements a token, in
/// the form of the type; `out + t * stride + r` may be written for every row and token; and `panel` has [`panel_bytes`] if
/// there are several tokens.
pub(super) struct Job<'a> {
    pub kind: TensorType,
    pub w: &'a [u8],
    pub rows: usize,
    pub cols: usize,
    pub x: &'a Acts<'a>,
    pub out: *mut f32,
    pub stride: usize,
    #[allow(dead_code)] // the scalar kernels pack nothing
    pub panel: &'a mut [u8],
}

impl<'a> Job<'a> {
    /// `None` if there is nothing to do, or if the shapes do not fit together.
    ///
    /// # Safety
    ///
    /// `out + t * stride + r` is valid for writes, and nobody else's, for every row and token.
    #[inline(always)]
    pub unsafe fn new(
        w: &Matrix<'a>,
        x: &'a Acts<'a>,
        (out, stride): (*mut f32, usize),
        panel: &'a mut [u8],
    ) -> Option<Self> {
        let Matrix { kind, form, rows, cols, data } = *w;
        let packed = if x.tokens > 1 { panel_bytes(kind, cols) } else { 0 };
        let fits = rows > 0 && x.has(form, cols) && panel.len() >= packed;
        fits.then_some(Self { kind, w: data, rows, cols, x, out, stride, panel })
    }
}
