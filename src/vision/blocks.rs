//! The blocks of an encoder: attention without a mask, and a feed-forward.

use core::ops::Range;

use super::encoder::{Encoder, States};
use super::plan::{Window, head_layout};
use super::positions::rotate;
use super::roles::Role;
use super::spec::Spec;
use super::tensors::Table;
use crate::engine::{Compute, add_bias, rows, rows_mut};
use crate::kernel::{Attention, Bias, Deviation, Kernels, Matrix, add, copy, fork_chunks, sqrt, store};
use crate::memory::HeadLayout;
use crate::model::Norm;
use crate::quant::le_f32;

/// Rows per chunk when workers share the rows of attention.
const ROWS: usize = 8;

impl Encoder<'_, '_> {
    /// Stores the keys and values of all rows of a layer.
    pub(super) fn store_keys(&mut self, layer: usize) {
        let Self { spec, table, compute, states, plan, .. } = self;
        let States { hidden, branch, inner, cache, pages, places, slots, rotations, count: all, .. } = states;
        let (dim, batch, head) = (spec.dim, plan.options.batch.max(1), head_layout(spec));
        let [_, k, v] = projections(table, layer, dim);
        let is_whole = spec.sees_all(layer);
        for first in (0..*all).step_by(batch) {
            let count = batch.min(*all - first);
            let (Some(hidden), Some(branch), Some(kv)) = (
                hidden.get(first * dim..(first + count) * dim),
                branch.get_mut(..count * dim),
                inner.get_mut(..2 * count * dim),
            ) else {
                return;
            };
            copy(branch, hidden);
            norm(compute, spec.norm(), norm_of(table, layer, Role::Norm1, Role::Norm1Bias), branch);
            compute.times_each((branch, count), &[(k.0, 0), (v.0, dim)], kv, 2 * dim);
            add_bias(kv, 2 * dim, k.1);
            add_bias(kv.get_mut(dim..).unwrap_or_default(), 2 * dim, v.1);
            compute.by_tokens(kv, 2 * dim, &|start, kv| {
                let first = first + start.checked_div(2 * dim).unwrap_or(0);
                for (row, kv) in (first..).zip(rows_mut(kv, 2 * dim)) {
                    let Some(keys) = kv.get_mut(..dim) else { return };
                    rotate(spec, rotations, place_of(places, spec, row), keys);
                }
            });
            let each = compute.piece(spec.heads);
            let bytes = cache.len().checked_div(spec.heads).unwrap_or(0);
            let (kv, work) = (&*kv, kv.len() * 10);
            fork_chunks(compute.workers, cache, each * bytes, work, &mut [(); 0], 0, &|i, tiles, _| {
                let at = i * each * head.dim;
                for (row, kv) in (first..).zip(rows(kv, 2 * dim)) {
                    let position = if is_whole { row } else { slots.get(row).map_or(0, |slot| *slot as usize) };
                    let Some((k, v)) = kv.split_at_checked(dim) else { return };
                    let (Some(k), Some(v)) = (k.get(at..), v.get(at..)) else { return };
                    store(compute.kernels, head, (tiles, bytes), pages, position, k, v);
                }
            });
        }
    }

    /// Runs attention and feed-forward of a layer on all rows. The keys and values of the rows are already stored.
    pub(super) fn block(&mut self, layer: usize) {
        let batch = self.plan.options.batch.max(1);
        for first in (0..self.states.count).step_by(batch) {
            let range = first..self.states.count.min(first + batch);
            self.attend(layer, range.clone());
            self.feed_forward(layer, range);
        }
    }

    /// Applies the attention of a layer to some rows: `x += scale1 * output(attention(norm1(x)))`.
    fn attend(&mut self, layer: usize, range: Range<usize>) {
        let Self { spec, table, compute, states, .. } = self;
        let (dim, count) = (spec.dim, range.len());
        let States {
            hidden,
            branch,
            inner,
            cache,
            pages,
            places,
            windows,
            rotations,
            sums,
            count: all,
            window_count,
            ..
        } = states;
        let Some(hidden) = hidden.get_mut(range.start * dim..range.end * dim) else { return };
        let Some(branch) = branch.get_mut(..count * dim) else { return };
        let Some((q, rest)) = inner.split_at_mut_checked(count * dim) else { return };
        let Some(out) = rest.get_mut(..count * dim) else { return };
        copy(branch, hidden);
        norm(compute, spec.norm(), norm_of(table, layer, Role::Norm1, Role::Norm1Bias), branch);
        let [(weights, bias), ..] = projections(table, layer, dim);
        let Some(weights) = weights else { return };
        compute.times((branch, count), weights, q, dim);
        add_bias(q, dim, bias);
        compute.by_tokens(q, dim, &|start, q| {
            let first = range.start + start.checked_div(dim).unwrap_or(0);
            for (row, q) in (first..).zip(rows_mut(q, dim)) {
                rotate(spec, rotations, place_of(places, spec, row), q);
            }
        });
        let whole = [Window { first: 0, len: *all as u32, tile: 0 }];
        let windows = if spec.sees_all(layer) { &whole } else { windows.get(..*window_count).unwrap_or(&[]) };
        let view = Seen { spec, head: head_layout(spec), cache, pages, windows };
        let (q, scratch) = (&*q, sums.len().checked_div(compute.threads).unwrap_or(0));
        let work = count * 2 * dim * windows.iter().map(|window| window.len as usize).max().unwrap_or(0);
        fork_chunks(compute.workers, out, ROWS * dim, work, sums, scratch, &|i, out, sums| {
            let (first, q) = (range.start + i * ROWS, q.get(i * ROWS * dim..).unwrap_or(&[]));
            view.attend(compute.kernels, first, q, out, sums);
        });
        if let Some(weights) = table.matrix(Role::Output, layer) {
            compute.times((out, count), weights, branch, dim);
        }
        add_bias(branch, dim, table.vector(Role::OutputBias, layer));
        scale_rows(branch, dim, table.vector(Role::Scale1, layer));
        add(hidden, branch);
    }

    /// Applies the feed-forward of a layer to some rows: `x += scale2 * down(f(gate(norm2(x))) * up(norm2(x)))`. In
    /// encoders without a gate, `x += scale2 * down(f(up(norm2(x))))`.
    fn feed_forward(&mut self, layer: usize, range: Range<usize>) {
        let Self { spec, table, compute, states, .. } = self;
        let (dim, ffn, count) = (spec.dim, spec.ffn, range.len());
        let Some(hidden) = states.hidden.get_mut(range.start * dim..range.end * dim) else { return };
        let Some(branch) = states.branch.get_mut(..count * dim) else { return };
        copy(branch, hidden);
        norm(compute, spec.norm(), norm_of(table, layer, Role::Norm2, Role::Norm2Bias), branch);
        let (gate, up) = (table.matrix(Role::Gate, layer), table.matrix(Role::Up, layer));
        // Without a gate, the output of `up` takes the gate's place, so that the same code activates and projects it.
        let up_at = if gate.is_some() { count * ffn } else { 0 };
        compute.times_each((branch, count), &[(gate, 0), (up, up_at)], states.inner, ffn);
        let Some((inner, rest)) = states.inner.split_at_mut_checked(count * ffn) else { return };
        let mut up = gate.and(rest.get_mut(..count * ffn));
        let first_bias = if up.is_some() { Role::GateBias } else { Role::UpBias };
        add_bias(inner, ffn, table.vector(first_bias, layer));
        if let Some(up) = &mut up {
            add_bias(up, ffn, table.vector(Role::UpBias, layer));
        }
        let kernels = compute.kernels;
        compute.by_tokens(inner, ffn, &|start, inner| {
            kernels.activate(spec.activation, inner, up.as_deref().and_then(|up| up.get(start..)));
        });
        if let Some(weights) = table.matrix(Role::Down, layer) {
            compute.times((inner, count), weights, branch, dim);
        }
        add_bias(branch, dim, table.vector(Role::DownBias, layer));
        scale_rows(branch, dim, table.vector(Role::Scale2, layer));
        add(hidden, branch);
    }

    /// Norms the states after the last block, if the encoder has a norm there.
    pub(super) fn norm_after(&mut self) {
        let Self { spec, table, compute, states, .. } = self;
        let Some(hidden) = states.hidden.get_mut(..states.count * spec.dim) else { return };
        norm(compute, spec.norm(), norm_of(table, 0, Role::NormAfter, Role::NormAfterBias), hidden);
    }
}

/// What the rows of a layer attend to: the layer's keys and values, and the window of positions that each row sees.
struct Seen<'s> {
    spec: &'s Spec<'s>,
    head: HeadLayout,
    cache: &'s [u8],
    pages: &'s [u32],
    windows: &'s [Window],
}

impl Seen<'_> {
    /// Computes attention for the rows from row `first` on, as many as `out` has room for. `q` has the queries of these
    /// rows.
    fn attend(&self, kernels: &Kernels, first: usize, q: &[f32], out: &mut [f32], sums: &mut [f32]) {
        let Spec { dim, heads, .. } = *self.spec;
        let end = first + out.len().checked_div(dim).unwrap_or(0);
        for window in self.windows {
            let (start, len) = (window.first as usize, window.len as usize);
            let range = first.max(start)..end.min(start + len);
            if range.is_empty() {
                continue;
            }
            let at = (range.start - first) * dim;
            let (Some(q), Some(out)) = (q.get(at..), out.get_mut(at..)) else { return };
            let job = Attention {
                heads,
                tiles: self.cache,
                pages: self.pages.get(window.tile as usize..).unwrap_or(&[]),
                layout: self.head,
                q,
                q_stride: dim,
                group: 1,
                tokens: range.len(),
                position: range.start - start,
                window: usize::MAX,
                reach: Some(len),
                span: None,
                scale: 1.0 / sqrt(self.head.dim as f32),
                cap: None,
                bias: Bias::NONE,
                sinks: &[],
            };
            kernels.attend(&job, out, dim, sums);
        }
    }
}

/// Returns the line and the column of the patch of a row, stored as in `Layout::places`. `None` for rows before the
/// patches, which have no place in the picture.
fn place_of(places: &[u32], spec: &Spec<'_>, row: usize) -> Option<u32> {
    places.get(row.checked_sub(spec.before())?).copied()
}

/// Matrices and biases of queries, keys and values.
fn projections<'m>(table: &Table<'m, '_>, layer: usize, dim: usize) -> [(Option<Matrix<'m>>, &'m [u8]); 3] {
    let fused = (table.matrix(Role::Qkv, layer), table.vector(Role::QkvBias, layer));
    let part = |i: usize| {
        let bias = fused.1.get(4 * i * dim..).and_then(|bias| bias.get(..4 * dim)).unwrap_or(&[]);
        (fused.0.and_then(|w| w.part(i * dim, dim)), bias)
    };
    let apart = |w, bias| (table.matrix(w, layer), table.vector(bias, layer));
    match fused.0 {
        Some(_) => [part(0), part(1), part(2)],
        None => {
            [(Role::Q, Role::QBias), (Role::K, Role::KBias), (Role::V, Role::VBias)].map(|(w, bias)| apart(w, bias))
        }
    }
}

pub(super) fn norm_of<'m>(table: &Table<'m, '_>, layer: usize, weight: Role, bias: Role) -> (&'m [u8], &'m [u8]) {
    (table.vector(weight, layer), table.vector(bias, layer))
}

/// Norms every `dim` elements of `x`, if there is a weight.
pub(super) fn norm(
    compute: &Compute<'_, '_>,
    (rule, dim, eps): (Norm, usize, f32),
    (weight, bias): (&[u8], &[u8]),
    x: &mut [f32],
) {
    if weight.is_empty() {
        return;
    }
    let kernels = compute.kernels;
    compute.by_tokens(x, dim, &|_, x| {
        rows_mut(x, dim).for_each(|x| match rule {
            Norm::Rms => kernels.rms_norm(x, weight, eps),
            _ => kernels.layer_norm(x, weight, bias, Deviation::Within(eps)),
        });
    });
}

/// Multiplies each column of `x` by the column's factor. Does nothing if there are no factors.
fn scale_rows(x: &mut [f32], dim: usize, factors: &[u8]) {
    if !factors.is_empty() {
        rows_mut(x, dim).for_each(|x| x.iter_mut().enumerate().for_each(|(i, x)| *x *= le_f32(factors, i)));
    }
}
