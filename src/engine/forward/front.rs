//! Front ends of encoders: convolutions over time, as products of matrices.
//!
//! The rows of a convolution's input that one output depends on are adjacent in memory, so they are one input of a
//! linear layer. For each batch of encoder positions, only the rows of earlier convolutions that the batch depends on
//! are computed, so that scratch memory does not grow with the sound. A few rows at the border of two batches are
//! therefore computed twice.

use core::ops::Range;

use super::compute::Compute;
use super::{Forward, add, add_bias, copy, rows, rows_mut};
use crate::engine::profile::Section;
use crate::model::{Convolution, Front, MAX_STAGES, Positions, Role, Weights};
use crate::quant::le_f32;

/// Roles of the convolutions' weights and biases.
const ROLES: [(Role, Role); MAX_STAGES] =
    [(Role::Conv1, Role::Conv1Bias), (Role::Conv2, Role::Conv2Bias), (Role::Conv3, Role::Conv3Bias)];

/// What is needed to normalize the outputs of a convolution: their mean over the whole sound, and 1 divided by their
/// standard deviation.
#[derive(Clone, Copy)]
struct Statistics {
    mean: f32,
    scale: f32,
}

impl Statistics {
    /// A mean of 0 and a scale of 1: the norm of outputs that have none. They leave the outputs unchanged.
    const NONE: Self = Self { mean: 0.0, scale: 1.0 };
}

/// Consecutive rows of a convolution's input.
#[derive(Clone, Copy)]
struct Input<'i> {
    /// Elements of the rows from `first` on.
    x: &'i [f32],
    first: usize,
    /// Number of rows of the whole sound.
    len: usize,
}

/// A sound that the encoder reads.
#[derive(Clone, Copy)]
pub(crate) struct Sound<'i> {
    front: Front,
    input: Input<'i>,
    statistics: Statistics,
}

impl Forward<'_, '_> {
    /// Prepares the front end for a sound of `frames` frames. If the outputs of the first convolution are normalized,
    /// computes their statistics.
    pub fn sound<'i>(&mut self, (front, frames): (Front, usize), sound: &'i [f32]) -> Sound<'i> {
        self.swap_stacks();
        let batch = self.batch().max(1);
        let Self { spec, weights, compute, inner, .. } = self;
        let input = Input { x: sound, first: 0, len: frames };
        let statistics = match front {
            Front::Samples => {
                statistics((compute, weights), &front.stages(spec.dim), input, (inner, batch), spec.norm_eps)
            }
            Front::LogMel { .. } => Statistics::NONE,
        };
        self.swap_stacks();
        Sound { front, input, statistics }
    }

    /// Computes the embeddings of these positions of a sound.
    pub(super) fn hear(&mut self, Sound { front, input, statistics }: Sound<'_>, range: Range<usize>) {
        let batch = self.batch().max(1);
        let Self { spec, weights, compute, inner, hidden, branch, .. } = self;
        let to = (&mut **inner, &mut **hidden);
        convolve((compute, weights), &front.stages(spec.dim), (input, statistics), to, (range.clone(), batch));
        if let (Positions::Learned, Some(learned)) = (spec.positions(), weights.matrix(Role::PositionEmbd, 0)) {
            let Some(other) = branch.get_mut(..spec.dim) else { return };
            for (position, x) in range.zip(rows_mut(hidden, spec.dim)) {
                compute.look_up(&learned, position, other);
                add(x, other);
            }
        }
        self.compute.done(Section::Embedding);
    }
}

/// Computes the rows `wanted` of the last convolution's output, and all rows of earlier convolutions on which they
/// depend. Writes the wanted rows to `out`.
fn convolve(
    (compute, weights): (&mut Compute<'_, '_>, &Weights<'_, '_>),
    stages: &[Option<Convolution>; MAX_STAGES],
    (sound, statistics): (Input<'_>, Statistics),
    (scratch, mut out): (&mut [f32], &mut [f32]),
    (wanted, batch): (Range<usize>, usize),
) {
    let (patches, mut rest) = split_scratch(scratch, stages, batch);
    let mut input = sound;
    for (i, ((stage, roles), range)) in
        stages.iter().flatten().zip(ROLES).zip(needed(stages, sound.len, wanted)).enumerate()
    {
        let is_last = stages.get(i + 1).is_none_or(Option::is_none);
        let buffer = core::mem::take(if is_last { &mut out } else { &mut rest });
        let Some((rows, after)) = buffer.split_at_mut_checked(range.len() * stage.outputs) else { return };
        rest = after;
        run((compute, weights), (stage, roles), input, (patches, batch), range.clone(), rows);
        if stage.activation.is_none() {
            norm(weights, statistics, stage.outputs, rows);
        }
        input = Input { x: rows, first: range.start, len: stage.rows(input.len) };
    }
}

/// Splits scratch memory into two parts. The first part has room for a batch of inputs of any convolution, and the
/// second part is all the rest.
fn split_scratch<'s>(
    scratch: &'s mut [f32],
    stages: &[Option<Convolution>; MAX_STAGES],
    batch: usize,
) -> (&'s mut [f32], &'s mut [f32]) {
    let widest = stages.iter().flatten().map(|stage| stage.taps * stage.inputs).max().unwrap_or(0);
    scratch.split_at_mut_checked(batch * widest).unwrap_or_default()
}

/// Finds, for each convolution, which rows of its output are needed to compute the rows `wanted` of the last
/// convolution's output.
fn needed(
    stages: &[Option<Convolution>; MAX_STAGES],
    frames: usize,
    wanted: Range<usize>,
) -> [Range<usize>; MAX_STAGES] {
    let mut ranges: [Range<usize>; MAX_STAGES] = Default::default();
    let mut range = wanted;
    for (i, (place, stage)) in ranges.iter_mut().zip(stages).enumerate().rev() {
        let Some(stage) = stage else { continue };
        let len = stages.iter().flatten().take(i).fold(frames, |rows, stage| stage.rows(rows));
        let start = (range.start * stage.stride).saturating_sub(stage.padding);
        let end = (range.start * stage.stride + stage.reach(range.len())).saturating_sub(stage.padding);
        *place = range;
        range = start..end.min(len);
    }
    ranges
}

/// Computes the elements `range` of a convolution's output, before its norm. `patches` is scratch memory for the inputs
/// of `batch` output rows.
fn run(
    (compute, weights): (&mut Compute<'_, '_>, &Weights<'_, '_>),
    (stage, (weight, bias)): (&Convolution, (Role, Role)),
    input: Input<'_>,
    (patches, batch): (&mut [f32], usize),
    range: Range<usize>,
    out: &mut [f32],
) {
    let (Some(w), bias) = (weights.matrix(weight, 0), weights.vector(bias, 0)) else { return };
    let (width, mut out) = (stage.taps * stage.inputs, out);
    for first in range.clone().step_by(batch.max(1)) {
        let tokens = batch.min(range.end - first);
        let Some(patches) = patches.get_mut(..tokens * width) else { return };
        let Some((rows, rest)) = core::mem::take(&mut out).split_at_mut_checked(tokens * stage.outputs) else { return };
        for (row, patch) in (first..).zip(rows_mut(patches, width)) {
            input.patch(stage, row, patch);
        }
        compute.times((patches, tokens), w, rows, stage.outputs);
        add_bias(rows, stage.outputs, bias);
        compute.by_tokens(rows, stage.outputs, &|_, x| match stage.activation {
            Some(activation) => compute.kernels.activate(activation, x, None),
            None => compute.kernels.soft_cap(x, 1.0),
        });
        out = rest;
    }
}

impl Input<'_> {
    /// Copies to `patch` those input rows from which a convolution computes its output row `row`. Rows before the start
    /// and after the end of the sound are zeros.
    fn patch(&self, stage: &Convolution, row: usize, patch: &mut [f32]) {
        for (tap, to) in rows_mut(patch, stage.inputs).enumerate() {
            let row = (row * stage.stride + tap).checked_sub(stage.padding).filter(|row| *row < self.len);
            let start = row.and_then(|row| row.checked_sub(self.first)).map(|row| row * stage.inputs);
            match start.and_then(|start| self.x.get(start..)?.get(..stage.inputs)) {
                Some(from) => copy(to, from),
                None => to.fill(0.0),
            }
        }
    }
}

/// Computes the outputs of the first convolution for the whole sound, only to return their statistics. The sum of each
/// row is computed in f32, and the sums of several rows in f64.
fn statistics(
    (compute, weights): (&mut Compute<'_, '_>, &Weights<'_, '_>),
    stages: &[Option<Convolution>; MAX_STAGES],
    sound: Input<'_>,
    (scratch, batch): (&mut [f32], usize),
    eps: f32,
) -> Statistics {
    let [Some(stage), ..] = stages else { return Statistics::NONE };
    let (len, (patches, rest)) = (stage.rows(sound.len), split_scratch(scratch, stages, batch));
    let [roles, ..] = ROLES;
    let (mut sum, mut squares) = (0.0f64, 0.0f64);
    for first in (0..len).step_by(batch.max(1)) {
        let range = first..len.min(first + batch);
        let Some(out) = rest.get_mut(..range.len() * stage.outputs) else { return Statistics::NONE };
        run((compute, weights), (stage, roles), sound, (patches, batch), range, out);
        for row in rows(out, stage.outputs) {
            sum += f64::from(row.iter().sum::<f32>());
            squares += f64::from(row.iter().map(|x| x * x).sum::<f32>());
        }
    }
    let count = (len * stage.outputs).max(1) as f64;
    let mean = sum / count;
    let variance = libm::fmax(squares / count - mean * mean, 0.0);
    Statistics { mean: mean as f32, scale: (1.0 / libm::sqrt(variance + f64::from(eps))) as f32 }
}

/// Normalizes rows of the first convolution's output.
fn norm(weights: &Weights<'_, '_>, Statistics { mean, scale }: Statistics, width: usize, out: &mut [f32]) {
    let (weight, bias) = (weights.vector(Role::Conv1Norm, 0), weights.vector(Role::Conv1NormBias, 0));
    for row in rows_mut(out, width) {
        for (i, x) in row.iter_mut().enumerate() {
            *x = (*x - mean) * scale * le_f32(weight, i) + le_f32(bias, i);
        }
    }
}
