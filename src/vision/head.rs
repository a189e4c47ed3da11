//! Computes rows of the language model from states: joins blocks of patches, and applies linear layers.

use super::blocks::{norm, norm_of};
use super::encoder::{Encoder, States};
use super::projector::Join;
use super::roles::Role;
use super::spec::Spec;
use super::tensors::Table;
use super::views::View;
use crate::engine::{Compute, add_bias, rows, rows_mut};
use crate::kernel::{Activation, Matrix, copy};
use crate::model::Norm;
use crate::quant::decode_row;

impl Encoder<'_, '_> {
    /// Projects the states of the encoder, and writes the results to vector number `stream` of each row of `out`. The
    /// states are those after layer `layer` or, if this is `None`, the last ones.
    pub(super) fn project(&mut self, view: &View, layer: Option<usize>, (out, stream): (&mut [f32], usize)) {
        let head = layer.map_or(Head::LAST, Head::deep);
        let Self { spec, table, compute, states, plan, .. } = self;
        let States { hidden, inner, places, count: all, .. } = states;
        let (block, dim, width) = (spec.block(), spec.dim, spec.tensors.out);
        let (before, joined) = (spec.before(), block * dim);
        let batch = spec.joined_at_once(plan.options.batch).max(1);
        let tokens = (*all - before).checked_div(block).unwrap_or(0);
        for first in (0..tokens).step_by(batch) {
            let count = batch.min(tokens - first);
            let start = before * dim + first * joined;
            let Some(from) = hidden.get(start..start + count * joined) else { return };
            let Some((a, rest)) = inner.split_at_mut_checked(count * spec.joined()) else { return };
            let Some((b, c)) = rest.split_at_mut_checked(count * spec.between()) else { return };
            let Some(result) = head.run((spec, table, compute), (from, count), [a, b, c]) else { return };
            for (token, result) in (first..).zip(rows(result, width)) {
                let Some(place) = places.get(token * block) else { return };
                let (line, column) = ((place >> 16) as usize, (place & 0xffff) as usize);
                let at = line.checked_div(spec.merge).unwrap_or(0) * view.columns
                    + column.checked_div(spec.merge).unwrap_or(0);
                let at = at * spec.row_len() + stream * width;
                copy(out.get_mut(at..at + width).unwrap_or_default(), result);
            }
        }
    }
}

/// The tensors of one projection.
#[derive(Clone, Copy)]
struct Head {
    layer: usize,
    norm: (Role, Role),
    first: (Role, Role),
    second: (Role, Role),
    is_last: bool,
}

impl Head {
    /// The projection of the last states.
    const LAST: Self = Self {
        layer: 0,
        norm: (Role::JoinNorm, Role::JoinNormBias),
        first: (Role::First, Role::FirstBias),
        second: (Role::Second, Role::SecondBias),
        is_last: true,
    };

    /// The projection of the states after `layer`.
    const fn deep(layer: usize) -> Self {
        Self {
            layer,
            norm: (Role::DeepNorm, Role::DeepNormBias),
            first: (Role::DeepFirst, Role::DeepFirstBias),
            second: (Role::DeepSecond, Role::DeepSecondBias),
            is_last: false,
        }
    }

    /// Projects `count` blocks of joined patches to the width of the language model. The three buffers hold
    /// intermediate results; returns the one with the final result.
    fn run<'b>(
        self,
        (spec, table, compute): (&Spec<'_>, &Table<'_, '_>, &mut Compute<'_, '_>),
        (from, count): (&[f32], usize),
        [a, b, c]: [&'b mut [f32]; 3],
    ) -> Option<&'b mut [f32]> {
        let (block, dim, out) = (spec.block(), spec.dim, spec.tensors.out);
        let mut width = spec.joined();
        let a = a.get_mut(..count * width)?;
        match spec.rules.join {
            Join::Concatenated => copy(a, from),
            Join::Mean => mean_rows(from, a, block, dim),
        }
        if self.is_last {
            let (weight, bias) = norm_of(table, 0, Role::PatchNorm, Role::PatchNormBias);
            let rule = if bias.is_empty() { Norm::Rms } else { Norm::Layer };
            norm(compute, (rule, dim, spec.eps), (weight, bias), a);
            if let Some(merger) = table.matrix(Role::Merger, 0) {
                interleave(a, b, block, dim);
                compute.times((b.get(..count * width)?, count), merger, a, dim);
                width = dim;
            }
            if let Some(columns) = table.matrix(Role::Transposed, 0) {
                let c = c.get_mut(..count * out)?;
                times_columns((a.get(..count * width)?, width), &columns, c, b.get_mut(..out)?);
                return Some(c);
            }
        }
        let a = a.get_mut(..count * width)?;
        let (weight, bias) = norm_of(table, self.layer, self.norm.0, self.norm.1);
        norm(compute, (Norm::Layer, width, spec.rules.join_eps.unwrap_or(spec.eps)), (weight, bias), a);
        let first = table.matrix(self.first.0, self.layer)?;
        let b = b.get_mut(..count * first.rows())?;
        compute.times((a, count), first, b, first.rows());
        add_bias(b, first.rows(), table.vector(self.first.1, self.layer));
        let Some(second) = table.matrix(self.second.0, self.layer) else { return Some(b) };
        let kernels = compute.kernels;
        compute.by_tokens(b, first.rows(), &|_, b| kernels.activate(Activation::GeluErf, b, None));
        let c = c.get_mut(..count * out)?;
        compute.times((b, count), second, c, out);
        add_bias(c, out, table.vector(self.second.1, self.layer));
        Some(c)
    }
}

/// Writes the mean of every `block` rows.
fn mean_rows(from: &[f32], to: &mut [f32], block: usize, dim: usize) {
    let share = 1.0 / block as f32;
    for (from, to) in rows(from, block * dim).zip(rows_mut(to, dim)) {
        for (i, to) in to.iter_mut().enumerate() {
            let sum: f32 = from.iter().skip(i).step_by(dim.max(1)).sum();
            *to = sum * share;
        }
    }
}

/// Transposes each block of `block` rows of `dim` elements: in `to`, the elements of a column are adjacent.
fn interleave(from: &[f32], to: &mut [f32], block: usize, dim: usize) {
    for (from, to) in rows(from, block * dim).zip(rows_mut(to, block * dim)) {
        for (row, from) in rows(from, dim).enumerate() {
            to.iter_mut().skip(row).step_by(block.max(1)).zip(from).for_each(|(to, x)| *to = *x);
        }
    }
}

/// Multiplies with a matrix whose rows belong to inputs instead of outputs: `out[t][i] = sum over k of x[t][k] *
/// w[k][i]`. `row` has room for a row of the matrix.
fn times_columns((x, width): (&[f32], usize), w: &Matrix<'_>, out: &mut [f32], row: &mut [f32]) {
    out.fill(0.0);
    for k in 0..w.rows() {
        decode_row(w.kind(), w.row(k), row);
        for (x, out) in rows(x, width).zip(rows_mut(out, row.len())) {
            let factor = x.get(k).copied().unwrap_or(0.0);
            out.iter_mut().zip(&*row).for_each(|(out, w)| *out += factor * w);
        }
    }
}
