//! A single matrix product, for the benchmarks. This module is not part of the public interface.

use super::form::SUM_SPAN;
use super::linear::{Batch, linear};
use super::panel;
use super::{Acts, Form, Kernels, Matrix};
use crate::quant::TensorType;
use crate::workers::Workers;

/// Activations in the form that a weight type is multiplied with.
#[derive(Debug)]
pub struct Activations<'a>(Acts<'a>);

/// Memory for [`Activations`]: `q` as long as the activations, `d` and `sums` with at least one element per 16
/// activations.
#[derive(Debug)]
pub struct Memory<'a> {
    /// Quantized activations.
    pub q: &'a mut [i8],
    /// Scales.
    pub d: &'a mut [f32],
    /// Sums of 16 quantized activations each.
    pub sums: &'a mut [i16],
}

impl<'a> Activations<'a> {
    /// Quantizes `x`, `[tokens][cols]`, for weights of type `kind`. Returns `None` if this build has no kernel for the
    /// weight type, or `memory` is too small.
    pub fn new(kernels: &Kernels, kind: TensorType, x: &'a [f32], tokens: usize, memory: Memory<'a>) -> Option<Self> {
        let form = Form::of(kind)?;
        let quantized = if form == Form::F32 { 0 } else { x.len() };
        let q = memory.q.get_mut(..quantized)?;
        let d = memory.d.get_mut(..quantized / form.span())?;
        let sums = memory.sums.get_mut(..quantized / SUM_SPAN)?;
        kernels.quantize(form, x, q, d, sums);
        Some(Self(Acts { x, q, d, sums, tokens }))
    }
}

/// Bytes of scratch that each worker needs to multiply a matrix with several tokens.
pub const fn panel_bytes(kind: TensorType, cols: usize) -> usize {
    panel::panel_bytes(kind, cols)
}

/// `out[t][r] = row r of weights * token t of x`, where `out` is `[tokens][rows]` and `panels` has [`panel_bytes`] per
/// worker. Does nothing if the shapes do not match.
#[allow(clippy::too_many_arguments)]
pub fn product(
    kernels: &Kernels,
    workers: &dyn Workers,
    kind: TensorType,
    (rows, cols): (usize, usize),
    weights: &[u8],
    x: &Activations<'_>,
    panels: &mut [u8],
    out: &mut [f32],
) {
    let Some(w) = Matrix::at(kind, (rows, cols), weights, 0) else { return };
    linear(kernels, workers, panels, Batch { products: &[(Some(w), 0)], x: x.0, out, stride: rows }, &());
}
