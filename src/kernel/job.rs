//! The operands of a kernel: activations, and one worker's share of a matrix product.

use core::ops::Deref;

use super::form::{Form, SUM_SPAN};
use super::matrix::Matrix;
use super::panel::panel_bytes;
use crate::quant::TensorType;

/// The activations of one or more tokens, as floats and in one quantized form.
#[derive(Clone, Copy, Debug)]
pub struct Acts<'a> {
    /// The floats, `[tokens][cols]`.
    pub x: &'a [f32],
    /// The quants, `[tokens][cols]`, from -127 to 127. `q`, `d` and `sums` are empty for `Form::F32`.
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
    /// The quantized activations of token `t`.
    pub(super) fn row(&self, t: usize) -> Row<'a> {
        Row { q: self.part(self.q, t), d: self.part(self.d, t), sums: self.part(self.sums, t) }
    }

    /// The elements of token `t` in one of the slices.
    fn part<T>(&self, all: &'a [T], t: usize) -> &'a [T] {
        let n = all.len() / self.tokens.max(1);
        all.get(t * n..(t + 1) * n).unwrap_or(&[])
    }

    /// True if there is a token, and the slices hold exactly `cols` elements of every token, quantized as `form`. A
    /// slice that is too long is as wrong as a slice that is too short, because kernels walk over a slice to its end.
    fn has(&self, form: Form, cols: usize) -> bool {
        let Some(elements) = self.tokens.checked_mul(cols).filter(|elements| *elements > 0) else { return false };
        self.x.len() == elements
            && (form == Form::F32
                || self.q.len() == elements
                    && self.d.len() == elements / form.span()
                    && self.sums.len() == elements / SUM_SPAN)
    }
}

/// One worker's share of a matrix product: some rows of weights times all tokens of `x`.
///
/// [`new`](Self::new) establishes these promises, which kernels rely on and that nobody can break afterwards: `kind`,
/// `w`, `rows` and `cols` describe a valid [`Matrix`] of at least one row and one block; `x` has at least one token,
/// and `cols` elements per token in the form of the weight type; `out + t * stride + r` may be written for every row
/// `r` and token `t`; and the panel has [`panel_bytes`] if there are several tokens.
pub(super) struct Job<'a> {
    operands: Operands<'a>,
    #[allow(dead_code)] // the scalar kernels do not pack
    panel: &'a mut [u8],
}

/// The operands of a [`Job`]. They are a type of their own, so that kernels can read but not replace them.
pub(super) struct Operands<'a> {
    pub kind: TensorType,
    pub w: &'a [u8],
    pub rows: usize,
    pub cols: usize,
    pub x: &'a Acts<'a>,
    pub out: *mut f32,
    pub stride: usize,
}

impl<'a> Deref for Job<'a> {
    type Target = Operands<'a>;
    #[inline(always)]
    fn deref(&self) -> &Operands<'a> {
        &self.operands
    }
}

impl<'a> Job<'a> {
    /// Creates the job of multiplying the matrix `w` with all tokens of `x`. Returns `None` if the matrix has no rows
    /// or if the shapes do not match.
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
        let (kind, rows, cols) = (w.kind(), w.rows(), w.cols());
        let packed = if x.tokens > 1 { panel_bytes(kind, cols) } else { 0 };
        let fits = rows > 0 && x.has(w.form(), cols) && panel.len() >= packed;
        fits.then_some(Self { operands: Operands { kind, w: w.data(), rows, cols, x, out, stride }, panel })
    }

    /// The memory of the panel.
    #[allow(dead_code)] // the scalar kernels do not pack
    #[inline(always)]
    pub fn panel(&mut self) -> &mut [u8] {
        self.panel
    }
}
