//! The attention of a layer.

use core::ops::Range;

use super::compute::{Compute, TOKENS};
use super::hadamard;
use super::recurrent::softplus;
use super::relative::Relative;
use super::rope::Rotary;
use super::{Forward, add_bias, copy, enter, leave, norm_one, norm_sum, rows, rows_mut, scale};
use crate::built;
use crate::engine::layout::{Segment, head_layout};
use crate::engine::profile::Section;
use crate::kernel::{Activation, Attention, Bias, Kernels, fork_chunks, sqrt, store};
use crate::memory::{HeadLayout, Pool, TILE};
use crate::model::{Layer, Need, QkNorm, Role, Spec, Temperature, Values, Weights};
use crate::quant::le_f32;

/// Cache tiles and options of one attention pass.
#[derive(Clone)]
pub(super) struct View {
    /// Byte range of the layer's tiles in the cache.
    pub tiles: Range<usize>,
    /// Pool that the tiles' pages belong to.
    pub pool: usize,
    pub part: Part,
    /// True for cross-attention, whose keys and values come from the encoder's states.
    pub cross: bool,
}

/// The steps of attention that are run. An encoder runs them separately: it stores the keys and values of all tokens
/// before the first token attends, because each token attends to all tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    All,
    /// Only store keys and values in the cache.
    Keys,
    /// Only attend, to keys and values in the cache.
    Queries,
}

/// The roles of the tensors of an attention. Each pair has the role of a weight and the role of its bias.
struct Roles {
    before: (Role, Role),
    q: (Role, Role),
    k: (Role, Role),
    v: (Role, Role),
    output: (Role, Role),
    after: (Role, Role),
}

const WITHIN: Roles = Roles {
    before: (Role::AttnNorm, Role::AttnNormBias),
    q: (Role::AttnQ, Role::AttnQBias),
    k: (Role::AttnK, Role::AttnKBias),
    v: (Role::AttnV, Role::AttnVBias),
    output: (Role::AttnOutput, Role::AttnOutputBias),
    after: (Role::AttnOutputNorm, Role::AttnOutputNormBias),
};

const ACROSS: Roles = Roles {
    before: (Role::CrossAttnNorm, Role::CrossAttnNormBias),
    q: (Role::CrossAttnQ, Role::CrossAttnQBias),
    k: (Role::CrossAttnK, Role::CrossAttnKBias),
    v: (Role::CrossAttnV, Role::CrossAttnVBias),
    output: (Role::CrossAttnOutput, Role::CrossAttnOutputBias),
    after: (Role::CrossAttnOutputNorm, Role::CrossAttnOutputNormBias),
};

/// Layout of q, k and v in a row.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    pub q_dim: usize,
    pub kv_dim: usize,
    /// Elements of all heads' outputs.
    pub out_dim: usize,
    /// Elements from one row to the next.
    pub stride: usize,
    pub head: HeadLayout,
}

impl Forward<'_, '_> {
    /// `x += output(attention(norm(x)))`; also stores the rows' keys and values in the cache.
    pub(super) fn attention(&mut self, layer: &Layer, view: View) {
        let Self { spec, weights, compute, hidden, branch, inner, rows, .. } = self;
        let roles = if view.cross { ACROSS } else { WITHIN };
        let shape = Shape {
            q_dim: layer.q_dim(),
            kv_dim: layer.kv_dim(),
            out_dim: layer.q_dim(),
            stride: spec.attention_row(layer),
            head: head_layout(self.store.kind, layer),
        };
        let (index, dim, rows) = (layer.index, spec.dim, *rows);
        let (Some(hidden), Some(branch)) = (hidden.get_mut(..rows * dim), branch.get_mut(..rows * dim)) else {
            return;
        };
        let Some((qkv, rest)) = inner.split_at_mut_checked(rows * shape.stride) else { return };
        let Some(out) = rest.get_mut(..rows * shape.q_dim) else { return };
        let Some(cache) = self.kv.get_mut(view.tiles.clone()) else { return };
        let Some(pool) = self.pools.get(view.pool) else { return };
        let segments = self.segments.get(..self.parts).unwrap_or(&[]);

        if view.cross && view.part == Part::Keys {
            copy(branch, hidden); // the encoder's states are already normed
        } else {
            enter(compute, spec, weights, (roles.before.0, roles.before.1, index), hidden, branch);
        }
        project(compute, weights, (spec, &roles, &view, layer), shape, branch, qkv);
        compute.done(Section::Qkv);
        let Some(rotary) = self.rotary.get(spec.rotation(layer)) else { return };
        let unrotated = Rotary::default(); // positions in a text and in a sound cannot be compared
        let rotary = if built::SOUND && view.cross { &unrotated } else { rotary };
        norm_and_rotate(compute, (spec, weights, layer), rotary, (shape, segments, view.part), qkv);
        if layer.owns_kv && view.part != Part::Queries {
            store_rows(compute, (layer.kv_heads, shape), (segments, pool), qkv, cache);
        }
        compute.done(Section::Heads);
        if view.part == Part::Keys {
            return;
        }
        let mut attend = Attend {
            spec,
            layer,
            shape,
            text: view.cross || !spec.is_causal(),
            scale: spec.attention_scale.unwrap_or_else(|| 1.0 / sqrt(shape.head.dim as f32)),
            relative: if view.cross { None } else { Some(&self.relative) }, // cross-attention has no distances
            pool,
            cache,
            sinks: weights.vector(Role::AttnSinks, index),
            qkv,
        };
        attend.all(compute, segments, out, self.sums);
        if shape.head.kind.is_rotated() {
            fork_chunks(compute.workers, out, shape.q_dim, rows * shape.q_dim * 10, &mut [(); 0], 0, &|_, out, _| {
                hadamard::rotate(out, hadamard::values(shape.head.dim));
            });
        }
        if spec.gated_query() || spec.heads_gated().is_some() {
            gate(compute, (spec, layer), shape, qkv, out);
        }
        if spec.sub_norms() {
            let weight = weights.vector(Role::AttnSubNorm, index);
            rows_mut(out, shape.q_dim).for_each(|x| norm_one(compute.kernels, spec, weight, &[], x));
        }
        let width = layer.heads * spec.value_width(layer);
        if let Some(values) = spec.values() {
            gather(out, (layer.heads, shape.head.dim), values.width);
        }
        compute.done(Section::Attention);
        if let (Some(w), Some(out)) = (weights.matrix(roles.output.0, index), out.get(..rows * width)) {
            compute.times((out, rows), w, branch, dim);
            if spec.linear_bias != Need::Absent {
                add_bias(branch, dim, weights.vector(roles.output.1, index));
            }
            compute.done(Section::Output);
            leave(compute, spec, weights, (Role::PostAttentionNorm, index), branch, hidden);
            norm_sum(compute, spec, weights, (roles.after.0, roles.after.1, index), hidden);
        }
    }
}

/// Projects queries, keys and values of all rows. Skips projections that `view.part` does not need.
///
/// A row's q, k and v are adjacent, whether one matrix computes all of them or each has a matrix. A layer that shares
/// another layer's keys and values only projects q.
fn project(
    compute: &mut Compute<'_, '_>,
    weights: &Weights<'_, '_>,
    (spec, roles, view, layer): (&Spec<'_>, &Roles, &View, &Layer),
    shape: Shape,
    branch: &[f32],
    qkv: &mut [f32],
) {
    let (keys, queries, gated) = (view.part != Part::Queries, view.part != Part::Keys, spec.gated_query());
    let (k_at, v_at) = (shape.q_dim, shape.q_dim + shape.kv_dim);
    let fused = ((Role::AttnQkv, Role::AttnQkvBias), 0, !view.cross);
    let (k, v) = ((roles.k, k_at, keys), (roles.v, v_at, keys));
    // A gated layer has a matrix that interleaves queries and gates. Its outputs go after the values; later,
    // `norm_and_rotate` copies the queries to the front.
    let wanted = if gated {
        [fused, k, v, (roles.q, v_at + shape.kv_dim, queries), NO_GATE]
    } else {
        let gates = ((Role::AttnGate, Role::AttnGate), layer.qkv_dim(), queries && spec.heads_gated().is_some());
        [fused, (roles.q, 0, queries), k, v, gates]
    };
    let products =
        wanted.map(|((role, _), at, is_wanted)| (if is_wanted { weights.matrix(role, layer.index) } else { None }, at));
    let rows = qkv.len().checked_div(shape.stride).unwrap_or(0);
    compute.times_each((branch, rows), &products, qkv, shape.stride);
    if spec.qkv_bias != Need::Absent {
        for ((_, bias), at, is_wanted) in wanted.into_iter().take(4) {
            if let (true, Some(qkv)) = (is_wanted, qkv.get_mut(at..)) {
                add_bias(qkv, shape.stride, weights.vector(bias, layer.index));
            }
        }
    }
    if let Some(limit) = spec.qkv_clamp() {
        for x in qkv {
            *x = if *x > limit {
                limit
            } else if *x < -limit {
                -limit
            } else {
                *x
            };
        }
    }
}

/// Stands in the list of products for layers in which no separate product computes the gates: in a layer with gated
/// queries, the matrix of the queries also computes the gates.
const NO_GATE: ((Role, Role), usize, bool) = ((Role::AttnGate, Role::AttnGate), 0, false);

/// Norms and rotates queries and keys, and norms values, if the model does so. Only processes the vectors that `part`
/// says were projected.
fn norm_and_rotate(
    compute: &Compute<'_, '_>,
    (spec, weights, layer): (&Spec<'_>, &Weights<'_, '_>, &Layer),
    rotary: &Rotary<'_>,
    (shape, segments, part): (Shape, &[Segment], Part),
    qkv: &mut [f32],
) {
    let (kernels, head_dim) = (compute.kernels, layer.head.dim);
    let (q_norm, k_norm) = (weights.vector(Role::AttnQNorm, layer.index), weights.vector(Role::AttnKNorm, layer.index));
    let v_is_k = spec.v_from_k() && !spec.fused_qkv() && weights.matrix(Role::AttnV, layer.index).is_none();
    fork_chunks(compute.workers, qkv, shape.stride, work(qkv), &mut [(); 0], 0, &|row, qkv, _| {
        let Some((q, kv)) = qkv.split_at_mut_checked(shape.q_dim) else { return };
        let (k, v) = kv.split_at_mut_checked(shape.kv_dim).unwrap_or_default();
        let (v, gated) = v.split_at_mut_checked(shape.kv_dim).unwrap_or_default();
        if spec.gated_query() {
            for (q, gated) in rows_mut(q, head_dim).zip(rows(gated, 2 * head_dim)) {
                copy(q, gated);
            }
        }
        if v_is_k {
            copy(v, k);
        }
        if let Some(values) = spec.values() {
            spread(v, head_dim, values);
        }
        // Uses only the parts that were projected.
        let q = if part == Part::Keys { &mut [] } else { q };
        let (k, v) = if part == Part::Queries { Default::default() } else { (k, v) };
        for (heads, weight) in [(&mut *q, q_norm), (k, k_norm)] {
            let after_rope = spec.qk_norm_after_rope();
            if !after_rope {
                norm_heads(kernels, spec, heads, head_dim, weight);
            }
            if !spec.scores(layer.index) {
                rotary.rotate(row, heads, head_dim);
            }
            if after_rope {
                norm_heads(kernels, spec, heads, head_dim, weight);
            }
            if spec.qk_norm() == QkNorm::Unweighted && layer.head.rope.is_some() {
                rows_mut(heads, head_dim).for_each(|x| norm_one(kernels, spec, &[], &[], x));
            }
        }
        if let Some(Temperature { scale: by, length, offset, only_unrotated }) = spec.temperature()
            && !(only_unrotated && layer.head.rope.is_some())
        {
            let step = (position_of(segments, row) + offset) / length.max(1);
            scale(q, 1.0 + by * libm::logf(1.0 + step as f32));
        }
        if spec.v_norm() {
            for head in rows_mut(v, head_dim) {
                kernels.rms_norm(head, &[], spec.norm_eps);
            }
        }
        if shape.head.kind.is_rotated() {
            [q, k].into_iter().for_each(|heads| hadamard::rotate(heads, hadamard::keys(head_dim)));
            hadamard::rotate(v, hadamard::values(head_dim));
        }
    });
}

/// Multiplies values by `scale` and moves them apart: in `v`, each head gets `head_dim` elements, of which the elements
/// after the value are zeros.
fn spread(v: &mut [f32], head_dim: usize, Values { width, scale }: Values) {
    for at in (0..v.len()).rev() {
        let (Some(head), Some(i)) = (at.checked_div(head_dim), at.checked_rem(head_dim)) else { return };
        let value = if i < width { v.get(head * width + i).map_or(0.0, |x| x * scale) } else { 0.0 };
        if let Some(place) = v.get_mut(at) {
            *place = value;
        }
    }
}

/// Moves the first `width` elements of each head to the front of `out`, for all rows, so that they follow each other
/// without gaps.
fn gather(out: &mut [f32], (heads, head_dim): (usize, usize), width: usize) {
    let rows = out.len().checked_div(heads * head_dim).unwrap_or(0);
    for at in 0..rows * heads * width {
        let (Some(head), Some(i)) = (at.checked_div(width), at.checked_rem(width)) else { return };
        let value = out.get(head * head_dim + i).copied().unwrap_or(0.0);
        if let Some(place) = out.get_mut(at) {
            *place = value;
        }
    }
}

/// Multiplies each head's output by the head's gates. Usually, the gates are in `qkv`, after the values of the row. If
/// the matrix of queries also computes the gates, the gates of each head come after a copy of the head's query.
fn gate(compute: &Compute<'_, '_>, (spec, layer): (&Spec<'_>, &Layer), shape: Shape, qkv: &mut [f32], out: &mut [f32]) {
    let head_dim = layer.head.dim;
    let (width, at) = if spec.gated_query() { (2 * head_dim, head_dim) } else { (head_dim, 0) };
    for (qkv, out) in rows_mut(qkv, shape.stride).zip(rows_mut(out, shape.q_dim)) {
        let gates = qkv.get_mut(layer.qkv_dim()..).unwrap_or_default();
        if let Some(own) = spec.heads_gated()
            && (own.per_head || own.softplus)
        {
            for (gate, out) in gates.iter().zip(rows_mut(out, if own.per_head { head_dim } else { 1 })) {
                let factor = if own.softplus { softplus(*gate) } else { 1.0 / (1.0 + libm::expf(-gate)) };
                scale(out, factor);
            }
            continue;
        }
        for (gate, out) in rows_mut(gates, width).zip(rows_mut(out, head_dim)) {
            let Some(gate) = gate.get_mut(at..) else { return };
            compute.kernels.activate(Activation::Sigmoid, gate, Some(out));
            copy(out, gate);
        }
    }
}

pub(super) fn position_of(segments: &[Segment], mut row: usize) -> usize {
    for segment in segments {
        let tokens = segment.tokens as usize;
        if row < tokens {
            return segment.position as usize + row;
        }
        row -= tokens;
    }
    0
}

/// Estimates the work on the heads of rows, in multiplications. For each element, norm, rotation and storing take about
/// as long as ten multiplications.
fn work(qkv: &[f32]) -> usize {
    qkv.len().saturating_mul(10)
}

/// Stores keys and values of all rows in the cache.
pub(super) fn store_rows(
    compute: &Compute<'_, '_>,
    (kv_heads, shape): (usize, Shape),
    (segments, pool): (&[Segment], &Pool<'_>),
    qkv: &[f32],
    cache: &mut [u8],
) {
    let Shape { q_dim, kv_dim, stride, head, .. } = shape;
    let head_bytes = cache.len().checked_div(kv_heads).unwrap_or(0);
    let each = compute.piece(kv_heads);
    fork_chunks(compute.workers, cache, each * head_bytes, work(qkv), &mut [(); 0], 0, &|i, tiles, _| {
        let mut all = rows(qkv, stride);
        for segment in segments {
            let pages = pool.table(segment.context as usize);
            for position in (segment.position as usize..).take(segment.tokens as usize) {
                let kv = all.next().and_then(|row| row.get(q_dim..)?.split_at_checked(kv_dim));
                let Some((k, v)) = kv else { return };
                let first = i * each * head.dim;
                let (Some(k), Some(v)) = (k.get(first..), v.get(first..)) else { return };
                store(compute.kernels, head, (tiles, head_bytes), pages, position, k, v);
            }
        }
    });
}

/// Parameters of attention for all queries of a pass.
pub(super) struct Attend<'l> {
    pub spec: &'l Spec<'l>,
    pub layer: &'l Layer,
    pub shape: Shape,
    /// True if every row attends to all positions of the encoder's text, not to the earlier positions of its own
    /// context.
    pub text: bool,
    /// Factor on scores.
    pub scale: f32,
    pub relative: Option<&'l Relative<'l>>,
    pub pool: &'l Pool<'l>,
    /// `[kv_heads][pages]` tiles.
    pub cache: &'l [u8],
    /// Like [`Attention::sinks`], for all heads.
    pub sinks: &'l [u8],
    /// Queries of all rows.
    pub qkv: &'l [f32],
}

impl Attend<'_> {
    /// Processes all segments. Workers divide the tokens of a long segment among themselves. If consecutive segments
    /// have one token each, as in decoding, workers divide the segments and the KV heads, because one token cannot be
    /// divided.
    pub fn all(&mut self, compute: &Compute<'_, '_>, mut segments: &[Segment], mut out: &mut [f32], sums: &mut [f32]) {
        let (out_dim, kv_heads) = (self.shape.out_dim, self.layer.kv_heads);
        let scratch = sums.len() / compute.threads.max(1);
        while let Some(segment) = segments.first() {
            let alone = segments.iter().take_while(|segment| segment.tokens == 1).count();
            let (parts, rows) = if alone > 0 { (alone, alone) } else { (1, segment.tokens as usize) };
            let (Some((now, later)), Some((here, rest))) =
                (segments.split_at_checked(parts), out.split_at_mut_checked(rows * out_dim))
            else {
                return;
            };
            let work = now.iter().map(|segment| self.work(segment)).sum();
            let attend = &*self;
            if alone > 0 {
                let each = compute.piece(kv_heads);
                let width = each * attend.layer.group() * attend.shape.head.value();
                fork_chunks(compute.workers, here, width, work, sums, scratch, &|i, out, sums| {
                    let row = (i * each).checked_div(kv_heads).unwrap_or(0);
                    let Some(segment) = now.get(row) else { return };
                    let first = i * each - row * kv_heads;
                    attend.heads(compute.kernels, segment, (row, 0, 1), first..first + each, out, sums);
                });
            } else {
                fork_chunks(compute.workers, here, TOKENS * out_dim, work, sums, scratch, &|i, out, sums| {
                    let first = i * TOKENS;
                    let tokens = TOKENS.min(rows - first);
                    attend.heads(compute.kernels, segment, (first, first, tokens), 0..kv_heads, out, sums);
                });
            }
            self.qkv = self.qkv.get(rows * self.shape.stride..).unwrap_or(&[]);
            (segments, out) = (later, rest);
        }
    }

    /// Estimated work, in multiplications.
    fn work(&self, segment: &Segment) -> usize {
        let window = self.layer.head.window.unwrap_or(usize::MAX);
        let all = segment.position.saturating_add(segment.tokens) as usize;
        let seen = if self.text { segment.source as usize } else { all.min(window) };
        (segment.tokens as usize).saturating_mul(2 * self.shape.q_dim).saturating_mul(seen)
    }

    /// Computes some KV heads for some tokens of a segment. `first` is the index of the first token in the segment, and
    /// `row` is the index of that token's row in `qkv`. `out` starts with that token's output. In chunked attention,
    /// tokens of different chunks are computed separately.
    fn heads(
        &self,
        kernels: &Kernels,
        segment: &Segment,
        (row, first, tokens): (usize, usize, usize),
        heads: Range<usize>,
        out: &mut [f32],
        sums: &mut [f32],
    ) {
        let Some(chunk) = self.spec.chunk().filter(|_| self.layer.head.rope.is_some()) else {
            return self.chunk(kernels, segment, (row, first, tokens, 0), heads, out, sums);
        };
        let mut done = 0;
        while done < tokens {
            let position = segment.position as usize + first + done;
            let into = position.checked_rem(chunk).unwrap_or(0);
            let here = (tokens - done).min(chunk - into).max(1);
            let Some(out) = out.get_mut(done * self.shape.out_dim..) else { return };
            self.chunk(kernels, segment, (row + done, first + done, here, position - into), heads.clone(), out, sums);
            done += here;
        }
    }

    /// Like [`heads`](Self::heads), for tokens that attend to positions from `start` on. `start` is the first position
    /// of a tile.
    fn chunk(
        &self,
        kernels: &Kernels,
        segment: &Segment,
        (row, first, tokens, start): (usize, usize, usize, usize),
        heads: Range<usize>,
        out: &mut [f32],
        sums: &mut [f32],
    ) {
        let Self { spec, layer, shape, .. } = self;
        let (group, head_bytes) = (layer.group(), self.cache.len().checked_div(layer.kv_heads).unwrap_or(0));
        let (first_query, position) = (heads.start * group, segment.position as usize + first);
        let (Some(tiles), Some(q)) = (
            self.cache.get(heads.start * head_bytes..heads.end * head_bytes),
            self.qkv.get(row * shape.stride + first_query * shape.head.dim..),
        ) else {
            return;
        };
        let job = Attention {
            heads: heads.len(),
            tiles,
            pages: self.pool.table(segment.context as usize).get(start / TILE..).unwrap_or(&[]),
            layout: shape.head,
            q,
            q_stride: shape.stride,
            group,
            tokens,
            position: position - start.min(position),
            window: layer.head.window.unwrap_or(usize::MAX),
            reach: self.text.then_some(segment.source as usize),
            #[cfg(feature = "vision")]
            span: (!spec.has_cross_attention() && !self.text && segment.source > 0).then(|| {
                let position = segment.position as usize - start.min(segment.position as usize);
                (position, position + segment.tokens as usize)
            }),
            scale: self.scale,
            cap: spec.attention_cap(),
            bias: self.relative.map_or(Bias::NONE, |relative| relative.bias(layer.index, first_query, position)),
            sinks: if built::GPT_OSS { self.sinks.get(4 * first_query..).unwrap_or(&[]) } else { &[] },
        };
        kernels.attend(&job, out, shape.out_dim, sums);
    }
}

/// Norms each head of `head_dim` elements in place, in the way that the spec says. `weight` is empty if the file has no
/// weights for this norm.
fn norm_heads(kernels: &Kernels, spec: &Spec<'_>, heads: &mut [f32], head_dim: usize, weight: &[u8]) {
    if weight.is_empty() && spec.qk_norm() != QkNorm::Gain {
        return;
    }
    match spec.qk_norm() {
        QkNorm::Gain => {
            for (i, x) in rows_mut(heads, head_dim).enumerate() {
                kernels.rms_norm(x, &[], spec.norm_eps);
                scale(x, if weight.is_empty() { 1.0 } else { le_f32(weight, i) });
            }
        }
        QkNorm::None | QkNorm::Unweighted => {}
        QkNorm::Whole => norm_one(kernels, spec, weight, &[], heads),
        QkNorm::Head => rows_mut(heads, head_dim).for_each(|x| norm_one(kernels, spec, weight, &[], x)),
        QkNorm::EachHead => {
            for (x, weight) in rows_mut(heads, head_dim).zip(rows(weight, 4 * head_dim)) {
                norm_one(kernels, spec, weight, &[], x);
            }
        }
    }
}
