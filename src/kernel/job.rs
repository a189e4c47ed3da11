//! The operands of a kernel: activations, and one worker's share of a matrix product.

use super::linear::Matrix;
use super::panel::panel_bytes;
use crate::quant::{Format, TensorType, formats, formats_list};

/// The representation of activations that a weight type is multiplied with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Floats, not quantized.
    F32,
    /// Signed bytes with an f16 scale per 32.
    Q8,
    /// Signed bytes with an f32 scale per 256.
    Q8K,
    /// Signed bytes with an f32 scale per 32.
    Groups32,
    /// Signed bytes with an f32 scale per 64, which is stored twice.
    Groups64,
}

/// Activations per element of `sums`, in every quantized form.
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

    /// The form for a weight type; `None` for types that this build does not run.
    #[inline(always)] // one load
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

    /// True if this build has a weight type that uses this form.
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

/// The activations of some tokens, as floats and in one quantized form.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acts<'a> {
    /// `[tokens][cols]`.
    pub x: &'a [f32],
    /// `[tokens][cols]`, from -127 to 127. `q`, `d` and `sums` are empty for `Form::F32`.
    pub q: &'a [i8],
    /// Scales, `[tokens][cols / span]`.
    pub d: &'a [f32],
    /// Sums of `SUM_SPAN` elements of `q`, `[tokens][cols / 16]`.
    pub sums: &'a [i16],
    pub tokens: usize,
}

/// The quantized activations of one token.
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

    /// The elements of token `t` in one of the slices.
    fn part<T>(&self, all: &'a [T], t: usize) -> &'a [T] {
        let n = all.len() / self.tokens.max(1);
        all.get(t * n..(t + 1) * n).unwrap_or(&[])
    }

    /// True if the slices hold `cols` elements of every token in this form.
    fn has(&self, form: Form, cols: usize) -> bool {
        let elements = self.tokens.saturating_mul(cols);
        self.x.len() == elements
            && (form == Form::F32
                || self.q.len() >= elements
                    && self.d.len() >= elements / form.span()
                    && self.sums.len() >= elements / SUM_SPAN)
    }
}

/// One worker's share of a matrix product: some rows of weights times all tokens of `x`.
///
/// [`new`](Self::new) establishes these promises, which kernels rely on: `kind`, `w`, `rows` and `cols` describe a
/// valid [`Matrix`] of at least one row; `x` has `cols` elements per token, in the form of the weight type;
/// `out + t * stride + r` may be written for every row `r` and token `t`; and `panel` has [`panel_bytes`] if there are
/// several tokens.
pub(super) struct Job<'a> {
    pub kind: TensorType,
    pub w: &'a [u8],
    pub rows: usize,
    pub cols: usize,
    pub x: &'a Acts<'a>,
    pub out: *mut f32,
    pub stride: usize,
    #[allow(dead_code)] // the scalar kernels do not pack
    pub panel: &'a mut [u8],
}

impl<'a> Job<'a> {
    /// Returns `None` if the matrix has no rows or the shapes do not match.
    ///
    /// # Safety
    ///
    /// For every row `r` and token `t`, `out + t * stride + r` may be written and nobody else accesses it.
    #[inline(always)]
    pub unsafe fn new(
        w: &Matrix<'a>,
        x: &'a Acts<'a>,
        (out, stride): (*mut f32, usize),
        panel: &'a mut [u8],
    ) -> Option<Self> {
        let Matrix { kind, form, rows, cols, data, .. } = *w;
        let packed = if x.tokens > 1 { panel_bytes(kind, cols) } else { 0 };
        let fits = rows > 0 && x.has(form, cols) && panel.len() >= packed;
        fits.then_some(Self { kind, w: data, rows, cols, x, out, stride, panel })
    }
}
