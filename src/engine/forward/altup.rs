//! Alternating updates ([paper](https://arxiv.org/abs/2301.13310)): the model has several streams of hidden states in
//! addition to the residual stream. A layer predicts all streams, runs on the predicted residual stream, and corrects
//! all streams by the prediction's error. A low-rank path runs parallel to attention. Gemma 3n uses alternating updates
//! and such a path.
//!
//! In `inputs`, three buffers follow the additional inputs of layers: the other streams, `[streams - 1][batch][dim]`,
//! then the predicted residual stream and the low-rank path's output, each `[batch][dim]`.

use super::{Forward, add, copy, norm_rows, rows, rows_mut, scale};
use crate::engine::profile::Section;
use crate::model::{AltUp, Layer, Role};

/// Lower bound for the mean square of a vector that is rescaled to a given magnitude, so that a vector of zeros does
/// not divide by 0.
const LEAST: f32 = 1e-5;

impl Forward<'_, '_> {
    /// Offset in `inputs` of the other streams.
    pub(super) fn beside_at(&self) -> usize {
        self.batch() * self.spec.layers * self.spec.per_layer_input()
    }

    /// Computes the additional streams of hidden states: projections of the token embeddings, scaled to the embeddings'
    /// magnitude.
    #[inline(never)] // keeps its temporaries off the stack of models with one stream
    pub(super) fn open_streams(&mut self) {
        let Some(altup) = self.spec.altup() else { return };
        let (at, batch) = (self.beside_at(), self.batch());
        let Self { spec, weights, compute, hidden, inputs, rows: count, .. } = self;
        let (dim, count) = (spec.dim, *count);
        let Some(w) = weights.matrix(Role::AltupProj, 0) else { return };
        let (Some(x), Some(beside)) = (hidden.get(..count * dim), inputs.get_mut(at..)) else { return };
        for (i, stream) in rows_mut(beside, batch * dim).enumerate().take(altup.streams - 1) {
            let (Some(w), Some(stream)) = (w.part(i * dim, dim), stream.get_mut(..count * dim)) else { return };
            compute.times((x, count), w, stream, dim);
            rows_mut(stream, dim).zip(rows(x, dim)).for_each(|(stream, x)| as_large(stream, x));
        }
        compute.done(Section::Embedding);
    }

    /// Predicts all streams, and computes the low-rank path.
    #[inline(never)] // keeps its temporaries off the stack of models with one stream
    pub(super) fn predict(&mut self, layer: &Layer) {
        let Some(altup) = self.spec.altup() else { return };
        let n = altup.streams;
        let (at, batch) = (self.beside_at(), self.batch());
        self.route(&altup, layer, Role::AltupPredictCoef, n * n);
        let Self { spec, weights, compute, hidden, branch, inner, inputs, rows: count, .. } = self;
        let (index, dim, count) = (layer.index, spec.dim, *count);
        let factors = inner.get(count * n..).unwrap_or(&[]);
        let Some(beside) = inputs.get_mut(at..) else { return };
        for (row, factors) in rows(factors, n * n).enumerate().take(count) {
            let Some(x) = hidden.get_mut(row * dim..(row + 1) * dim) else { return };
            for (d, x) in x.iter_mut().enumerate() {
                let place = |i: usize| ((i - 1) * batch + row) * dim + d;
                let mut before = [*x; AltUp::MOST];
                for (i, before) in before.iter_mut().enumerate().take(n).skip(1) {
                    *before = beside.get(place(i)).copied().unwrap_or(0.0);
                }
                for (i, factors) in rows(factors, n).enumerate() {
                    let mut sum = 0.0;
                    for (factor, before) in factors.iter().zip(&before) {
                        sum += factor * before;
                    }
                    sum += before.get(i).copied().unwrap_or(0.0);
                    match beside.get_mut(if i == 0 { usize::MAX } else { place(i) }) {
                        Some(stream) => *stream = sum,
                        None => *x = sum,
                    }
                }
            }
        }
        // Stores the prediction, norms it to `normed`, and computes the output of the low-rank path: `normed +
        // norm(up(down(normed)))`.
        let (Some(x), Some(branch)) = (hidden.get(..count * dim), branch.get_mut(..count * dim)) else { return };
        let Some(kept) = beside.get_mut((n - 1) * batch * dim..) else { return };
        let Some((prediction, path)) = kept.split_at_mut_checked(batch * dim) else { return };
        let (Some(path), Some(low)) = (path.get_mut(..count * dim), inner.get_mut(..count * altup.rank)) else {
            return;
        };
        copy(prediction, x);
        super::enter(compute, spec, weights, (Role::AttnNorm, Role::AttnNormBias, index), x, branch);
        let (Some(down), Some(up)) = (weights.matrix(Role::LaurelL, index), weights.matrix(Role::LaurelR, index))
        else {
            return;
        };
        compute.times((branch, count), down, low, altup.rank);
        compute.times((low, count), up, path, dim);
        norm_rows(compute.kernels, spec, weights.vector(Role::LaurelPostNorm, index), &[], path);
        add(path, branch);
        compute.done(Section::Qkv);
    }

    /// Joins the two parallel paths after attention: adds the output of the low-rank path to the residual stream, and
    /// divides the sum by `sqrt(2)`.
    #[inline(never)] // keeps its temporaries off the stack of models with one stream
    pub(super) fn join(&mut self) {
        let Some(altup) = self.spec.altup() else { return };
        let start = self.beside_at() + altup.streams * self.batch() * self.spec.dim;
        let Self { spec, hidden, inputs, rows: count, .. } = self;
        let len = *count * spec.dim;
        let (Some(x), Some(path)) = (hidden.get_mut(..len), inputs.get(start..)) else { return };
        add(x, path);
        scale(x, core::f32::consts::FRAC_1_SQRT_2);
    }

    /// Adds to each stream the error of the prediction, times a factor of the stream. The error is the residual stream
    /// after the layer, minus its prediction.
    #[inline(never)] // keeps its temporaries off the stack of models with one stream
    pub(super) fn correct(&mut self, layer: &Layer) {
        let Some(altup) = self.spec.altup() else { return };
        let n = altup.streams;
        let (at, batch) = (self.beside_at(), self.batch());
        self.route(&altup, layer, Role::AltupCorrectCoef, n);
        let Self { spec, hidden, inner, inputs, rows: count, .. } = self;
        let (dim, count) = (spec.dim, *count);
        let factors = inner.get(count * n..).unwrap_or(&[]);
        let Some((beside, kept)) = inputs.get_mut(at..).and_then(|all| all.split_at_mut_checked((n - 1) * batch * dim))
        else {
            return;
        };
        let all = rows_mut(hidden, dim).zip(rows(kept, dim)).zip(rows(factors, n)).enumerate().take(count);
        for (row, ((x, prediction), factors)) in all {
            x.iter_mut().zip(prediction).for_each(|(x, prediction)| *x -= prediction);
            for (i, factor) in factors.iter().enumerate().skip(1) {
                let place = ((i - 1) * batch + row) * dim;
                let Some(stream) = beside.get_mut(place..place + dim) else { return };
                stream.iter_mut().zip(&*x).for_each(|(stream, off)| *stream += off * (factor + 1.0));
            }
            let factor = factors.first().map_or(1.0, |factor| factor + 1.0);
            x.iter_mut().zip(prediction).for_each(|(x, prediction)| *x = prediction + *x * factor);
        }
    }

    /// Adds `branch` to all streams except the residual stream.
    pub(super) fn add_to_streams(&mut self) {
        let Some(altup) = self.spec.altup() else { return };
        let (at, batch) = (self.beside_at(), self.batch());
        let Self { spec, branch, inputs, rows: count, .. } = self;
        let len = *count * spec.dim;
        let (Some(more), Some(beside)) = (branch.get(..len), inputs.get_mut(at..)) else { return };
        rows_mut(beside, batch * spec.dim).take(altup.streams - 1).for_each(|stream| add(stream, more));
    }

    /// Replaces the residual stream by the mean of all streams, each projected and scaled to the magnitude of the
    /// residual stream.
    #[inline(never)] // keeps its temporaries off the stack of models with one stream
    pub(super) fn close_streams(&mut self) {
        let Some(altup) = self.spec.altup() else { return };
        let (at, batch) = (self.beside_at(), self.batch());
        let Self { spec, weights, compute, hidden, branch, inputs, rows: count, .. } = self;
        let (dim, count) = (spec.dim, *count);
        let Some(w) = weights.matrix(Role::AltupUnembdProj, 0) else { return };
        let (Some(x), Some(branch)) = (hidden.get_mut(..count * dim), branch.get_mut(..count * dim)) else { return };
        let streams = inputs.get_mut(at..).and_then(|all| all.split_at_mut_checked((altup.streams - 1) * batch * dim));
        let Some((streams, sum)) = streams else { return };
        let Some(sum) = sum.get_mut(..count * dim) else { return };
        copy(sum, x);
        for (i, stream) in rows(streams, batch * dim).enumerate() {
            let (Some(w), Some(stream)) = (w.part(i * dim, dim), stream.get(..count * dim)) else { return };
            compute.times((stream, count), w, branch, dim);
            rows_mut(branch, dim).zip(rows(x, dim)).for_each(|(branch, x)| as_large(branch, x));
            add(sum, branch);
        }
        copy(x, sum);
        scale(x, 1.0 / altup.streams as f32);
    }

    /// For each row, computes `width` values, `coefficients(tanh(router(norm(x) / dim)))`, and stores them in `inner`
    /// after the output of the router.
    fn route(&mut self, altup: &AltUp<'_>, layer: &Layer, coefficients: Role, width: usize) {
        let Self { spec, weights, compute, hidden, branch, inner, rows: count, .. } = self;
        let (index, dim, count, n) = (layer.index, spec.dim, *count, altup.streams);
        let (Some(x), Some(branch)) = (hidden.get(..count * dim), branch.get_mut(..count * dim)) else { return };
        let Some((made, rest)) = inner.split_at_mut_checked(count * n) else { return };
        let (Some(router), Some(w), Some(factors)) = (
            weights.matrix(Role::AltupRouter, index),
            weights.matrix(coefficients, index),
            rest.get_mut(..count * width),
        ) else {
            return;
        };
        copy(branch, x);
        norm_rows(compute.kernels, spec, weights.vector(Role::AltupRouterNorm, index), &[], branch);
        scale(branch, 1.0 / dim as f32);
        compute.times((branch, count), router, made, n);
        compute.kernels.soft_cap(made, 1.0);
        compute.times((made, count), w, factors, width);
    }
}

/// Scales `x` to the root mean square of `other`.
fn as_large(x: &mut [f32], other: &[f32]) {
    let (target, own) = (libm::sqrtf(mean_square(other)), mean_square(x));
    let factor = libm::sqrtf(if own > LEAST { own } else { LEAST });
    x.iter_mut().for_each(|x| *x = *x * target / factor);
}

/// The mean of squares, summed in sixteen lanes.
fn mean_square(x: &[f32]) -> f32 {
    let mut lanes = [0.0f32; 16];
    for x in x.chunks(16) {
        lanes.iter_mut().zip(x).for_each(|(lane, x)| *lane += x * x);
    }
    lanes.iter().sum::<f32>() / x.len() as f32
}

/// Thresholds a row of gates at `times` standard deviations above the row's mean: `max(gate - mean - times * deviation,
/// 0)`.
pub(super) fn sparsify(gate: &mut [f32], times: f32) {
    let mut lanes = [0.0f32; 16];
    for x in gate.chunks(16) {
        lanes.iter_mut().zip(x).for_each(|(lane, x)| *lane += x);
    }
    let n = gate.len() as f32;
    let mean = lanes.iter().sum::<f32>() / n;
    let mut lanes = [0.0f32; 16];
    for x in gate.chunks(16) {
        lanes.iter_mut().zip(x).for_each(|(lane, x)| *lane += (x - mean) * (x - mean));
    }
    let cutoff = mean + times * libm::sqrtf(lanes.iter().sum::<f32>() / n);
    gate.iter_mut().for_each(|x| *x = if *x > cutoff { *x - cutoff } else { 0.0 });
}
