//! Attention over a latent vector ([DeepSeek-V2](https://arxiv.org/abs/2405.04434)): the keys and values of all heads
//! are computed from one vector `c` per position. All heads also share a short rotated key.
//!
//! If the file stores the two matrices of each head separately, the cache holds `c` and the rotated key as its only key
//! and value head: a head's key matrix is applied to its query, and its value matrix to the weighted sum of `c`.
//! Otherwise the cache holds keys and values of all heads.

use super::attention::{Attend, Shape, View, position_of, store_rows};
use super::compute::Compute;
use super::rope::Rotary;
use super::{Forward, copy, enter, leave, rows, rows_mut, scale};
use crate::engine::layout::{Segment, head_layout};
use crate::engine::profile::Section;
use crate::kernel::{Matrix, sqrt};
use crate::model::{Latent, Layer, Role, Rope, Scaling, Spec, Temperature, Weights};

/// Epsilon of the norms of latent vectors. It is a constant, because the epsilon in the file belongs to the model's
/// other norms.
const EPS: f32 = 1e-6;

impl Forward<'_, '_> {
    /// Runs the attention of a layer, `x += output(attention(norm(x)))`, and adds the rows' keys and values to the
    /// cache.
    #[inline(never)] // keeps its temporaries off the stack of other layers
    pub(super) fn latent_attention(&mut self, layer: &Layer, latent: &Latent, view: &View) {
        let Self { spec, weights, compute, hidden, branch, inner, rows: count, .. } = self;
        let shape = Shape {
            q_dim: layer.q_dim(),
            kv_dim: layer.kv_dim(),
            out_dim: layer.heads * head_layout(self.store.kind, layer).value(),
            stride: layer.qkv_dim(),
            head: head_layout(self.store.kind, layer),
        };
        let (index, dim, count) = (layer.index, spec.dim, *count);
        let (Some(hidden), Some(branch)) = (hidden.get_mut(..count * dim), branch.get_mut(..count * dim)) else {
            return;
        };
        let mut rest = &mut **inner;
        let [qkv, out, made, low, both] = latent.pieces(layer).map(|width| {
            let (piece, after) = core::mem::take(&mut rest).split_at_mut_checked(count * width).unwrap_or_default();
            rest = after;
            piece
        });
        let mut pieces = Pieces { qkv, out, made, low, both };
        let Some(cache) = self.kv.get_mut(view.tiles.clone()) else { return };
        let (Some(pool), Some(rotary)) = (self.pools.get(view.pool), self.rotary.get(view.pool)) else { return };
        let segments = self.segments.get(..self.parts).unwrap_or(&[]);
        let heads = Heads { weights, layer, latent, shape, count };

        enter(compute, spec, weights, (Role::AttnNorm, Role::AttnNormBias, index), hidden, branch);
        heads.project(compute, branch, &mut pieces);
        compute.done(Section::Qkv);
        heads.turn(compute, rotary, &mut pieces);
        heads.expand(compute, &mut pieces);
        heads.place(&mut pieces);
        warm(spec, segments, &heads, pieces.qkv);
        let Some(qkv) = pieces.qkv.get(..count * shape.stride) else { return };
        store_rows(compute, (layer.kv_heads, shape), (segments, pool), qkv, cache);
        compute.done(Section::Heads);

        let scale = score_scale(spec, latent);
        let mut attend =
            Attend { spec, layer, shape, text: false, scale, relative: None, pool, cache, sinks: &[], qkv };
        let Some(out) = pieces.out.get_mut(..count * shape.out_dim) else { return };
        attend.all(compute, segments, out, self.sums);
        heads.values(compute, &mut pieces);
        if spec.heads_gated().is_some() {
            heads.gate(compute, branch, &mut pieces);
        }
        compute.done(Section::Attention);
        let values = pieces.qkv.get(..count * layer.heads * latent.value);
        let (Some(values), Some(w)) = (values, weights.matrix(Role::AttnOutput, index)) else { return };
        compute.times((values, count), w, branch, dim);
        compute.done(Section::Output);
        leave(compute, spec, weights, (Role::PostAttentionNorm, index), branch, hidden);
    }
}

/// Memory for the intermediate values of all rows of a pass. The sizes are those of [`Latent::pieces`].
struct Pieces<'a> {
    /// Queries, keys and values, arranged as attention reads them. Later the same memory holds the values of all heads.
    qkv: &'a mut [f32],
    /// Projected queries; later the output of attention.
    out: &'a mut [f32],
    /// Latent vectors, each with its rotated key.
    made: &'a mut [f32],
    /// The input of a matrix product.
    low: &'a mut [f32],
    /// For each head, the part of the key that is not rotated, then the value. Only used if the cache holds the keys
    /// and values of heads instead of latent vectors.
    both: &'a mut [f32],
}

/// The heads of a layer, and the number of rows.
struct Heads<'a> {
    weights: &'a Weights<'a, 'a>,
    layer: &'a Layer,
    latent: &'a Latent,
    shape: Shape,
    count: usize,
}

impl Heads<'_> {
    /// Multiplies each head's value by the sigmoid of a gate. The gates are the outputs of a linear layer, which reads
    /// the same input as attention.
    fn gate(&self, compute: &mut Compute<'_, '_>, input: &[f32], pieces: &mut Pieces<'_>) {
        let Pieces { qkv, out, .. } = pieces;
        let (heads, value) = (self.layer.heads, self.latent.value);
        let (Some(w), Some(gates)) = (self.matrix(Role::AttnGate), out.get_mut(..self.count * heads)) else { return };
        compute.times((input, self.count), w, gates, heads);
        for (x, gate) in rows_mut(qkv, value).zip(gates) {
            scale(x, 1.0 / (1.0 + libm::expf(-*gate)));
        }
    }

    fn matrix(&self, role: Role) -> Option<Matrix<'_>> {
        self.weights.matrix(role, self.layer.index)
    }

    /// Number of elements of a row's projected queries.
    fn queries(&self) -> usize {
        self.layer.heads * (self.latent.nope + self.latent.rope)
    }

    /// Computes the queries, with one matrix or with two low-rank matrices. Also computes the latent vectors, together
    /// with the parts of the keys that are rotated.
    fn project(&self, compute: &mut Compute<'_, '_>, input: &[f32], pieces: &mut Pieces<'_>) {
        let Latent { q_rank, rank, rope, .. } = *self.latent;
        let count = self.count;
        if let (Some(down), Some(up)) = (self.matrix(Role::AttnQA), self.matrix(Role::AttnQB)) {
            let Some(low) = pieces.low.get_mut(..count * q_rank) else { return };
            compute.times((input, count), down, low, q_rank);
            let weight = self.weights.vector(Role::AttnQANorm, self.layer.index);
            rows_mut(low, q_rank).for_each(|low| compute.kernels.rms_norm(low, weight, EPS));
            compute.times((low, count), up, pieces.out, self.queries());
        } else if let Some(w) = self.matrix(Role::AttnQ) {
            compute.times((input, count), w, pieces.out, self.queries());
        }
        if let Some(w) = self.matrix(Role::AttnKvA) {
            compute.times((input, count), w, pieces.made, rank + rope);
        }
    }

    /// Normalizes the latent vectors. Rotates those parts of the keys and of the queries that depend on the position.
    fn turn(&self, compute: &Compute<'_, '_>, rotary: &Rotary<'_>, pieces: &mut Pieces<'_>) {
        let Latent { rank, nope, rope, .. } = *self.latent;
        let weight = self.weights.vector(Role::AttnKvANorm, self.layer.index);
        let all = rows_mut(pieces.made, rank + rope).zip(rows_mut(pieces.out, self.queries()));
        for (row, (made, queries)) in all.enumerate().take(self.count) {
            let Some((c, key)) = made.split_at_mut_checked(rank) else { return };
            compute.kernels.rms_norm(c, weight, EPS);
            rotary.rotate(row, key, rope);
            for query in rows_mut(queries, nope + rope) {
                rotary.rotate(row, query.get_mut(nope..).unwrap_or_default(), rope);
            }
        }
    }

    /// If latent vectors are cached (`absorbed`), multiplies each head's query by the head's key matrix. Otherwise
    /// computes keys and values of all heads from the latent vectors.
    fn expand(&self, compute: &mut Compute<'_, '_>, pieces: &mut Pieces<'_>) {
        let Latent { rank, nope, rope, value, absorbed, .. } = *self.latent;
        let Pieces { qkv, out, made, low, both } = pieces;
        let count = self.count;
        if !absorbed {
            gather(made, count, (rank + rope, 0), low, rank);
            let (Some(w), Some(low)) = (self.matrix(Role::AttnKvB), low.get(..count * rank)) else { return };
            return compute.times((low, count), w, both, self.layer.heads * (nope + value));
        }
        let Some(all) = self.matrix(Role::AttnKB) else { return };
        for head in 0..self.layer.heads {
            gather(out, count, (self.queries(), head * (nope + rope)), low, nope);
            let to = qkv.get_mut(head * self.shape.head.dim..);
            let (Some(w), Some(low), Some(to)) = (all.part(head * rank, rank), low.get(..count * nope), to) else {
                return;
            };
            compute.times((low, count), w, to, self.shape.stride);
        }
    }

    /// Assembles queries, keys and values. If latent vectors are cached, a query is the output of
    /// [`expand`](Self::expand), followed by the query's rotated part; the key is the latent vector, followed by the
    /// rotated key; the value is the first part of the key. Otherwise queries and keys have a part without rotation and
    /// a rotated part, and vectors that are shorter than the head are padded with zeros.
    fn place(&self, pieces: &mut Pieces<'_>) {
        let Latent { rank, nope, rope, value, absorbed, .. } = *self.latent;
        let (shape, width) = (self.shape, self.shape.head.dim);
        let mut both = rows(pieces.both, self.layer.heads * (nope + value));
        let sources = rows(pieces.out, self.queries()).zip(rows(pieces.made, rank + rope));
        for (qkv, (queries, made)) in rows_mut(pieces.qkv, shape.stride).take(self.count).zip(sources) {
            let Some((q, kv)) = qkv.split_at_mut_checked(shape.q_dim) else { return };
            let Some((k, v)) = kv.split_at_mut_checked(shape.kv_dim) else { return };
            for (q, query) in rows_mut(q, width).zip(rows(queries, nope + rope)) {
                if absorbed {
                    copy(q.get_mut(rank..).unwrap_or_default(), query.get(nope..).unwrap_or(&[]));
                } else {
                    put(q, query, &[]);
                }
            }
            if absorbed {
                copy(k, made);
                continue;
            }
            let (both, rotated) = (both.next().unwrap_or(&[]), made.get(rank..).unwrap_or(&[]));
            for ((k, v), both) in rows_mut(k, width).zip(rows_mut(v, width)).zip(rows(both, nope + value)) {
                let Some((key, own)) = both.split_at_checked(nope) else { return };
                put(k, key, rotated);
                put(v, own, &[]);
            }
        }
    }

    /// Computes the values of all heads from the output of attention.
    fn values(&self, compute: &mut Compute<'_, '_>, pieces: &mut Pieces<'_>) {
        let Latent { rank, value, absorbed, .. } = *self.latent;
        let Pieces { qkv, out, low, .. } = pieces;
        let (count, all, width) = (self.count, self.layer.heads * value, self.shape.head.dim);
        if !absorbed {
            for (to, from) in rows_mut(qkv, all).zip(rows(out, self.shape.out_dim)).take(count) {
                rows_mut(to, value).zip(rows(from, width)).for_each(|(to, from)| copy(to, from));
            }
            return;
        }
        let Some(matrices) = self.matrix(Role::AttnVB) else { return };
        for head in 0..self.layer.heads {
            gather(out, count, (self.shape.out_dim, head * rank), low, rank);
            let to = qkv.get_mut(head * value..);
            let (Some(w), Some(low), Some(to)) = (matrices.part(head * value, value), low.get(..count * rank), to)
            else {
                return;
            };
            compute.times((low, count), w, to, all);
        }
    }
}

/// Copies a part of each row, `width` elements from index `at` on, and places the copies one after the other. Rows are
/// `stride` elements apart.
fn gather(from: &[f32], count: usize, (stride, at): (usize, usize), to: &mut [f32], width: usize) {
    for (to, from) in rows_mut(to, width).zip(rows(from, stride)).take(count) {
        copy(to, from.get(at..).unwrap_or(&[]));
    }
}

/// Writes `first` and then `second` to `to`, and zeros after them.
fn put(to: &mut [f32], first: &[f32], second: &[f32]) {
    to.fill(0.0);
    copy(to, first);
    copy(to.get_mut(first.len()..).unwrap_or_default(), second);
}

/// Multiplies each query by the attention temperature for the query's position, if the model has such a temperature (it
/// grows with the position).
fn warm(spec: &Spec<'_>, segments: &[Segment], heads: &Heads<'_>, qkv: &mut [f32]) {
    let Some(Temperature { scale: by, length, .. }) = spec.temperature() else { return };
    for (row, qkv) in rows_mut(qkv, heads.shape.stride).take(heads.count).enumerate() {
        let step = position_of(segments, row) / length.max(1);
        scale(qkv.get_mut(..heads.shape.q_dim).unwrap_or_default(), 1.0 + by * libm::logf(1.0 + step as f32));
    }
}

/// The factor on attention scores. YaRN's factor applies to whole queries and keys, not only to their rotated parts.
fn score_scale(spec: &Spec<'_>, latent: &Latent) -> f32 {
    let plain = 1.0 / sqrt((latent.nope + latent.rope) as f32);
    match spec.rope(false) {
        Some(Rope { scaling: Scaling::Yarn { factor, .. }, .. }) => {
            let magnitude = 1.0 + latent.yarn * libm::logf(factor);
            plain * magnitude * magnitude
        }
        _ => plain,
    }
}
