//! RWKV-6 ([Finch](https://arxiv.org/abs/2404.05892)) and RWKV-7 ([Goose](https://arxiv.org/abs/2503.14456)): time
//! mixing and channel mixing combine each row with the previous row. QRWKV has the projections of RWKV-6, and heads
//! that share keys and values.
//!
//! In each layer, the state of a context contains the last row of time mixing, the last row of channel mixing if the
//! model has channel mixing, and the matrices of the heads in tiles of sixteen columns, `[tiles][keys][16]`.

use super::compute::Compute;
use super::recurrent::{advance_heads, state_of};
use super::{Forward, add_bias, copy, enter, leave, rows, rows_mut};
use crate::engine::layout::{Segment, Store};
use crate::engine::profile::Section;
use crate::kernel::{Activation, Deviation, Kernels, Update, Wkv};
use crate::memory::Pool;
use crate::model::{Layer, Recurrent, RecurrentKind, Role, Spec, Weights};
use crate::quant::le_f32;

/// Epsilon of the norm of a head's output.
const HEAD_EPS: f32 = 64e-5;
/// Epsilon of a removal key's length, added under the root.
const KEY_EPS: f32 = 1e-24;

/// Intermediate values of a layer, each `[rows][dim]`.
struct Pieces<'a> {
    /// The difference between each row and the previous row. Later the same memory holds the replacement keys.
    shift: &'a mut [f32],
    /// First the input of a matrix product, later the removal keys, and finally the output of the layer's mixer.
    x: &'a mut [f32],
    query: &'a mut [f32],
    decay: &'a mut [f32],
    key: &'a mut [f32],
    value: &'a mut [f32],
    /// Learning rates of RWKV-7. Later the same memory holds the outputs that are read from the state,
    /// `[heads][tokens][width]` for each context.
    rate: &'a mut [f32],
    gate: &'a mut [f32],
    /// Low-rank vectors.
    low: &'a mut [f32],
}

impl Forward<'_, '_> {
    /// Runs the time mixing of an RWKV layer: `x += output(gate * heads(norm(x)))`. Also advances the recurrent states
    /// over the rows.
    #[inline(never)] // keeps its temporaries off the stack of other layers
    pub(super) fn time_mix(&mut self, layer: &Layer, mixer: &Recurrent) {
        let at = self.beside_at();
        let Self { spec, weights, compute, hidden, branch, inner, inputs, rows: count, .. } = self;
        let (index, dim, count) = (layer.index, spec.dim, *count);
        let seven = mixer.kind == RecurrentKind::Rwkv7;
        let kept = if seven { count * dim } else { 0 };
        let (Some(hidden), Some(branch), Some(first)) =
            (hidden.get_mut(..count * dim), branch.get_mut(..count * dim), inputs.get_mut(at..at + kept))
        else {
            return;
        };
        let mut rest = &mut **inner;
        let mut take = |width: usize| {
            let (piece, after) = core::mem::take(&mut rest).split_at_mut_checked(count * width).unwrap_or_default();
            rest = after;
            piece
        };
        let low = mixer.widest_rank() + if seven { 0 } else { 5 * mixer.ranks[1] };
        let [shift, x, query, decay, key, value, rate, gate] = core::array::from_fn(|_| take(dim));
        let mut pieces = Pieces { shift, x, query, decay, key, value, rate, gate, low: take(low) };

        enter(compute, spec, weights, (Role::AttnNorm, Role::AttnNormBias, index), hidden, branch);
        let segments = self.segments.get(..self.parts).unwrap_or_default();
        let mut start = 0;
        for segment in segments {
            let range = start..start + segment.tokens as usize * dim;
            start = range.end;
            let (Some(shift), Some(x)) = (pieces.shift.get_mut(range.clone()), branch.get(range)) else { return };
            let Some(state) = state_of((self.kv, &self.pools, &self.store), spec, index, segment) else { return };
            if segment.position == 0 {
                state.fill(0.0);
            }
            let Some(last) = state.get_mut(..dim) else { return };
            for (shift, x) in rows_mut(shift, dim).zip(rows(x, dim)) {
                for ((shift, last), x) in shift.iter_mut().zip(last.iter_mut()).zip(x) {
                    *shift = *last - *x;
                    *last = *x;
                }
            }
        }
        let layer = Mixing { weights, mixer, index, dim };
        if seven {
            layer.project(compute, branch, &mut pieces, first);
        } else {
            layer.project_by_data(compute, branch, &mut pieces);
        }
        compute.done(Section::Qkv);
        let all = rows_mut(pieces.key, dim).zip(rows(pieces.rate, dim));
        for ((key, rate), (x, shift)) in all.zip(rows_mut(pieces.x, dim).zip(rows_mut(pieces.shift, dim))) {
            if seven {
                layer.keys(compute.kernels, key, rate, x, shift);
            }
        }
        if mixer.kind == RecurrentKind::Qrwkv6 {
            layer.gated_linear(&mut pieces);
        }
        let mut start = 0;
        for segment in segments {
            let range = start..start + segment.tokens as usize * dim;
            start = range.end;
            let Some(state) = state_of((self.kv, &self.pools, &self.store), spec, index, segment) else { return };
            layer.advance(compute, state, range.clone(), &mut pieces);
            layer.combine(compute.kernels, range, &mut pieces);
        }
        if !seven || mixer.ranks[3] > 0 {
            compute.by_tokens(pieces.x, dim, &|start, x| {
                x.iter_mut().zip(pieces.gate.get(start..).unwrap_or(&[])).for_each(|(x, gate)| *x *= gate);
            });
        }
        compute.done(Section::Attention);
        if let Some(w) = weights.matrix(Role::TimeMixOutput, index) {
            compute.times((pieces.x, count), w, branch, dim);
            compute.done(Section::Output);
            leave(compute, spec, weights, (Role::PostAttentionNorm, index), branch, hidden);
        }
    }
}

impl Forward<'_, '_> {
    /// `x += sigmoid(receptance) * value(relu(key)^2)`: the channel mixing of RWKV-6.
    #[inline(never)] // keeps its temporaries off the stack of other layers
    pub(super) fn channel_mix(&mut self, layer: &Layer) {
        let Self { spec, weights, compute, hidden, branch, inner, rows: count, .. } = self;
        let (index, dim, ffn, count) = (layer.index, spec.dim, layer.ffn, *count);
        let (Some(hidden), Some(branch)) = (hidden.get_mut(..count * dim), branch.get_mut(..count * dim)) else {
            return;
        };
        let Some((receptance, rest)) = inner.split_at_mut_checked(count * dim) else { return };
        let Some((gate, rest)) = rest.split_at_mut_checked(count * dim) else { return };
        let Some(inside) = rest.get_mut(..count * ffn) else { return };
        let (norm, bias) = Role::before_ffn(spec, layer);
        enter(compute, spec, weights, (norm, bias, index), hidden, branch);
        let lerp = weights.vector(Role::ChannelMixLerpR, index).as_chunks().0;
        let segments = self.segments.get(..self.parts).unwrap_or_default();
        let mut left = rows_mut(receptance, dim).zip(rows(branch, dim));
        for segment in segments {
            let state = state_of((self.kv, &self.pools, &self.store), spec, index, segment);
            let mut last = state.and_then(|state| state.get(dim..2 * dim)).unwrap_or(&[]);
            for (receptance, x) in left.by_ref().take(segment.tokens as usize) {
                for (((to, x), last), lerp) in receptance.iter_mut().zip(x).zip(last).zip(lerp) {
                    *to = x + (last - x) * f32::from_le_bytes(*lerp);
                }
                last = x;
            }
        }
        drop(left);
        shift_rows((self.kv, &self.pools, &self.store), (spec, weights, index), segments, branch);
        let matrix = |role| weights.matrix(role, index);
        let (Some(w_gate), Some(w_up), Some(w_down)) =
            (matrix(Role::ChannelMixReceptance), matrix(Role::FfnUp), matrix(Role::FfnDown))
        else {
            return;
        };
        compute.times((receptance, count), w_gate, gate, dim);
        compute.times((branch, count), w_up, inside, ffn);
        compute.by_tokens(inside, ffn, &|_, x| compute.kernels.activate(spec.activation(), x, None));
        compute.times((inside, count), w_down, branch, dim);
        compute.by_tokens(gate, dim, &|start, x| {
            compute.kernels.activate(Activation::Sigmoid, x, branch.get(start..));
        });
        copy(branch, gate);
        compute.done(Section::FeedForward);
        leave(compute, spec, weights, (Role::PostFfwNorm, index), branch, hidden);
        if let Some(Recurrent { halved_every: every @ 1.., .. }) = spec.recurrent()
            && (index + 1).is_multiple_of(every)
        {
            super::scale(hidden, 0.5);
        }
    }
}

/// Time mixing in a layer.
struct Mixing<'a> {
    weights: &'a Weights<'a, 'a>,
    mixer: &'a Recurrent,
    index: usize,
    dim: usize,
}

impl Mixing<'_> {
    fn vector(&self, role: Role) -> &[u8] {
        self.weights.vector(role, self.index)
    }

    /// Mixes each row with the previous row: `x = row + lerp * (previous row - row)`. `shift` has the differences;
    /// `number` selects one of the layer's `lerp` vectors.
    fn lerp(&self, compute: &Compute<'_, '_>, rows_in: &[f32], shift: &[f32], number: usize, x: &mut [f32]) {
        let all = self.vector(Role::TimeMixLerp);
        let lerp = all.get(4 * number * self.dim..).unwrap_or(&[]);
        compute.by_tokens(x, self.dim, &|start, x| {
            copy(x, rows_in.get(start..).unwrap_or(&[]));
            mix(x, shift.get(start..).unwrap_or(&[]), lerp, self.dim);
        });
    }

    /// `out = up(f(down(x)))`, a low-rank product, plus a bias.
    fn low_rank(
        &self,
        compute: &mut Compute<'_, '_>,
        (x, low): (&[f32], &mut [f32]),
        (down, up, bias): (Role, Role, Option<Role>),
        f: fn(&Kernels, &mut [f32]),
        out: &mut [f32],
    ) {
        let (Some(w_down), Some(w_up)) = (self.weights.matrix(down, self.index), self.weights.matrix(up, self.index))
        else {
            return;
        };
        let (count, rank) = (x.len().checked_div(self.dim).unwrap_or(0), w_down.rows());
        let Some(low) = low.get_mut(..count * rank) else { return };
        compute.times((x, count), w_down, low, rank);
        f(compute.kernels, low);
        compute.times((low, count), w_up, out, self.dim);
        if let Some(bias) = bias {
            add_bias(out, self.dim, self.vector(bias));
        }
    }

    /// Computes the projections of RWKV-6's time mixing. In RWKV-6, each row itself determines how much of the previous
    /// row is mixed into it.
    fn project_by_data(&self, compute: &mut Compute<'_, '_>, input: &[f32], pieces: &mut Pieces<'_>) {
        let Pieces { shift, x, query, decay, key, value, gate, low, .. } = pieces;
        let (dim, rank) = (self.dim, self.mixer.ranks[1]);
        let count = input.len().checked_div(dim).unwrap_or(0);
        let matrix = |role| self.weights.matrix(role, self.index);
        let Some((mixes, low)) = low.split_at_mut_checked(count * 5 * rank) else { return };
        copy(x, input);
        mix(x, shift, self.vector(Role::TimeMixLerpX), dim);
        let (Some(w_down), Some(w_up)) = (matrix(Role::TimeMixW1), matrix(Role::TimeMixW2)) else { return };
        compute.times((x, count), w_down, mixes, 5 * rank);
        compute.kernels.soft_cap(mixes, 1.0);
        let roles =
            [Role::TimeMixDecayW1, Role::TimeMixKey, Role::TimeMixValue, Role::TimeMixReceptance, Role::TimeMixGate];
        for (number, role) in roles.into_iter().enumerate() {
            let (Some(w_mix), Some(w)) = (w_up.part(number * dim, dim), matrix(role)) else { return };
            let Some(of_mix) = low.get_mut(..count * rank) else { return };
            for (to, from) in rows_mut(of_mix, rank).zip(rows(mixes, 5 * rank)) {
                copy(to, from.get(number * rank..).unwrap_or(&[]));
            }
            compute.times((of_mix, count), w_mix, x, dim);
            let lerp = self.vector(Role::TimeMixLerp);
            add_bias(x, dim, lerp.get(4 * number * dim..4 * (number + 1) * dim).unwrap_or(&[]));
            for ((x, shift), input) in x.iter_mut().zip(&**shift).zip(input) {
                *x = input + *x * shift;
            }
            if number == 0 {
                let roles = (role, Role::TimeMixDecayW2, Some(Role::TimeMixDecay));
                self.low_rank(compute, (x, low), roles, |kernels, low| kernels.soft_cap(low, 1.0), decay);
                continue;
            }
            let out = [&mut *key, &mut *value, &mut *query, &mut *gate];
            if let Some(out) = out.into_iter().nth(number - 1) {
                compute.times((x, count), w, out, dim);
            }
        }
        compute.by_tokens(decay, dim, &|_, x| compute.kernels.activate(Activation::DoubleExponential, x, None));
        let gated = if self.mixer.kind == RecurrentKind::Qrwkv6 { Activation::Sigmoid } else { Activation::Silu };
        compute.by_tokens(gate, dim, &|_, x| compute.kernels.activate(gated, x, None));
    }

    /// Prepares the rows of QRWKV, whose state has no bonus and no removals: adds biases, copies keys and values to all
    /// heads that share them, multiplies keys by one minus the decay, and scales queries.
    fn gated_linear(&self, pieces: &mut Pieces<'_>) {
        let Recurrent { heads, groups, width, .. } = *self.mixer;
        let (dim, share) = (self.dim, heads.checked_div(groups).unwrap_or(1));
        #[cfg(feature = "rwkv")]
        add_bias(pieces.query, dim, self.vector(Role::TimeMixReceptanceBias));
        super::scale(pieces.query, 1.0 / libm::sqrtf(width as f32));
        #[cfg(feature = "rwkv")]
        let biases = [self.vector(Role::TimeMixKeyBias), self.vector(Role::TimeMixValueBias)];
        #[cfg(not(feature = "rwkv"))]
        let biases = [&[] as &[u8]; 2];
        for (all, bias) in [&mut *pieces.key, &mut *pieces.value].into_iter().zip(biases) {
            for row in rows_mut(all, dim) {
                add_bias(row.get_mut(..groups * width).unwrap_or_default(), dim, bias);
                for at in (0..dim).rev() {
                    let (head, i) = (at.checked_div(width).unwrap_or(0), at.checked_rem(width).unwrap_or(0));
                    let from = head.checked_div(share).unwrap_or(0) * width + i;
                    let value = row.get(from).copied().unwrap_or(0.0);
                    if let Some(to) = row.get_mut(at) {
                        *to = value;
                    }
                }
            }
        }
        pieces.key.iter_mut().zip(&*pieces.decay).for_each(|(key, decay)| *key -= *key * decay);
        pieces.x.fill(0.0);
        pieces.shift.fill(0.0);
    }

    /// Computes all projections of RWKV-7's time mixing. The values of later layers are mixed with the values of the
    /// first layer, which are kept in `first`.
    fn project(&self, compute: &mut Compute<'_, '_>, input: &[f32], pieces: &mut Pieces<'_>, first: &mut [f32]) {
        let Pieces { shift, x, query, decay, key, value, rate, gate, low } = pieces;
        let (dim, none): (_, fn(&Kernels, &mut [f32])) = (self.dim, |_, _| {});
        let count = input.len().checked_div(dim).unwrap_or(0);
        let matrix = |role| self.weights.matrix(role, self.index);
        self.lerp(compute, input, shift, 0, x);
        if let Some(w) = matrix(Role::TimeMixReceptance) {
            compute.times((x, count), w, query, dim);
        }
        self.lerp(compute, input, shift, 1, x);
        let roles = (Role::TimeMixW1, Role::TimeMixW2, Some(Role::TimeMixW0));
        self.low_rank(compute, (x, low), roles, |kernels, low| kernels.soft_cap(low, 1.0), decay);
        self.lerp(compute, input, shift, 2, x);
        if let Some(w) = matrix(Role::TimeMixKey) {
            compute.times((x, count), w, key, dim);
        }
        self.lerp(compute, input, shift, 4, x);
        self.low_rank(compute, (x, low), (Role::TimeMixA1, Role::TimeMixA2, Some(Role::TimeMixA0)), none, rate);
        if self.mixer.ranks[3] > 0 {
            self.lerp(compute, input, shift, 5, x);
            let sigmoid: fn(&Kernels, &mut [f32]) = |kernels, low| kernels.activate(Activation::Sigmoid, low, None);
            self.low_rank(compute, (x, low), (Role::TimeMixG1, Role::TimeMixG2, None), sigmoid, gate);
        }
        self.lerp(compute, input, shift, 3, x);
        if let Some(w) = matrix(Role::TimeMixValue) {
            compute.times((x, count), w, value, dim);
        }
        if self.index == 0 {
            copy(first, value);
        } else {
            // Like `low_rank`, but the output replaces the input.
            let (Some(w_down), Some(w_up)) = (matrix(Role::TimeMixV1), matrix(Role::TimeMixV2)) else { return };
            let rank = w_down.rows();
            let Some(low) = low.get_mut(..count * rank) else { return };
            compute.times((x, count), w_down, low, rank);
            compute.times((low, count), w_up, x, dim);
            add_bias(x, dim, self.vector(Role::TimeMixV0));
            compute.by_tokens(x, dim, &|_, x| compute.kernels.activate(Activation::Sigmoid, x, None));
            let (x, first) = (&**x, &*first);
            compute.by_tokens(value, dim, &|start, value| {
                let parts = x.get(start..).unwrap_or(&[]).iter().zip(first.get(start..).unwrap_or(&[]));
                value.iter_mut().zip(parts).for_each(|(value, (share, first))| *value += (first - *value) * share);
            });
        }
        compute.by_tokens(decay, dim, &|_, x| compute.kernels.activate(Activation::Decay, x, None));
        compute.by_tokens(rate, dim, &|_, x| compute.kernels.activate(Activation::Sigmoid, x, None));
    }

    /// Computes a row's removal keys, which have length 1, and the row's replacement keys. Then overwrites `key` with
    /// the keys that are written to the state.
    fn keys(&self, kernels: &Kernels, key: &mut [f32], rate: &[f32], removal: &mut [f32], replace: &mut [f32]) {
        let (k_k, k_a) = (self.vector(Role::TimeMixKk), self.vector(Role::TimeMixKa));
        let n = self.mixer.keys as f32;
        for ((removal, key), k_k) in removal.iter_mut().zip(&*key).zip(k_k.as_chunks().0) {
            *removal = key * f32::from_le_bytes(*k_k);
        }
        for head in rows_mut(removal, self.mixer.keys) {
            // The epsilon is divided by `n`, because the model adds it to the sum of squares, but `rms_norm` adds it to
            // the mean of squares.
            kernels.rms_norm(head, &[], KEY_EPS / n);
            super::scale(head, 1.0 / libm::sqrtf(n));
        }
        for ((replace, removal), rate) in replace.iter_mut().zip(removal).zip(rate) {
            *replace = *removal * rate;
        }
        for ((key, rate), k_a) in key.iter_mut().zip(rate).zip(k_a.as_chunks().0) {
            *key *= 1.0 + (rate - 1.0) * f32::from_le_bytes(*k_a);
        }
    }

    /// Advances the recurrent state of a context over the elements `range` of its rows. The outputs of the state are
    /// written over the learning rates.
    fn advance(
        &self,
        compute: &Compute<'_, '_>,
        state: &mut [f32],
        range: core::ops::Range<usize>,
        pieces: &mut Pieces<'_>,
    ) {
        let Recurrent { keys, width, .. } = *self.mixer;
        let tokens = range.len().checked_div(self.dim).unwrap_or(0);
        let Pieces { shift, x, query, decay, key, value, rate, .. } = pieces;
        let Some(out) = rate.get_mut(range.clone()) else { return };
        let parts = [query, decay, key, value, x, shift].map(|piece| piece.get(range.clone()).unwrap_or(&[]));
        advance_heads(compute, self.mixer, (state, out), (tokens, 8), |head| {
            let [query, decay, key, value, removal, replace] =
                parts.map(|part| part.get(head * width..).unwrap_or(&[]));
            let bonus = self.vector(Role::TimeMixFirst);
            let bonus = bonus.get(4 * head * keys..4 * (head + 1) * keys).unwrap_or(&[]);
            Update::Wkv(Wkv { query, decay, key, value, removal, replace, bonus, stride: self.dim, keys, width })
        });
    }

    /// Computes the outputs of time mixing for the elements `range`, which belong to the rows of one context.
    fn combine(&self, kernels: &Kernels, range: core::ops::Range<usize>, pieces: &mut Pieces<'_>) {
        let Pieces { x, query, key, value, rate, .. } = pieces;
        let [query, key, value, made] = [query, key, value, rate].map(|piece| piece.get(range.clone()).unwrap_or(&[]));
        let tokens = made.len().checked_div(self.dim).unwrap_or(0);
        let rows_in = rows(query, self.dim).zip(rows(key, self.dim)).zip(rows(value, self.dim));
        let out = rows_mut(x.get_mut(range).unwrap_or_default(), self.dim);
        for (t, (((query, key), value), x)) in rows_in.zip(out).enumerate() {
            self.combine_row(kernels, (made, t, tokens), (query, key, value), x);
        }
    }

    /// Computes the output of the mixing for token `t` of a context and stores it in `out`: the normed output of each
    /// head and, in RWKV-7, what the token's own key contributes.
    fn combine_row(
        &self,
        kernels: &Kernels,
        (made, t, tokens): (&[f32], usize, usize),
        (query, key, value): (&[f32], &[f32], &[f32]),
        out: &mut [f32],
    ) {
        let width = self.mixer.width;
        let vector = |role, head: usize| {
            let all = self.vector(role);
            all.get(4 * head * width..4 * (head + 1) * width).unwrap_or(&[])
        };
        let heads = rows(query, width).zip(rows(key, width)).zip(rows(value, width));
        for ((head, out), ((query, key), value)) in rows_mut(out, width).enumerate().zip(heads) {
            let at = (head * tokens + t) * width;
            copy(out, made.get(at..at + width).unwrap_or(&[]));
            let weight = vector(Role::TimeMixLn, head);
            if !weight.is_empty() {
                kernels.layer_norm(out, weight, vector(Role::TimeMixLnBias, head), Deviation::Within(HEAD_EPS));
            }
            if self.mixer.kind != RecurrentKind::Rwkv7 {
                continue;
            }
            let mut own = 0.0;
            for (i, (query, key)) in query.iter().zip(key).enumerate() {
                own += query * key * le_f32(vector(Role::TimeMixRk, head), i);
            }
            out.iter_mut().zip(value).for_each(|(out, value)| *out += own * value);
        }
    }
}

/// `x += lerp * shift`, for each row of `dim` elements.
fn mix(x: &mut [f32], shift: &[f32], lerp: &[u8], dim: usize) {
    for (x, shift) in rows_mut(x, dim).zip(rows(shift, dim)) {
        for ((x, shift), lerp) in x.iter_mut().zip(shift).zip(lerp.as_chunks().0) {
            *x += shift * f32::from_le_bytes(*lerp);
        }
    }
}

/// Combines each row of channel mixing with the previous row: `x += lerp * (previous row - x)`. Does nothing in models
/// without channel mixing.
pub(super) fn shift_rows(
    (kv, pools, store): (&mut [u8], &[Pool<'_>], &Store),
    (spec, weights, index): (&Spec<'_>, &Weights<'_, '_>, usize),
    segments: &[Segment],
    x: &mut [f32],
) {
    if !matches!(spec.recurrent(), Some(Recurrent { channel_mixing: true, .. })) {
        return;
    }
    let (dim, lerp) = (spec.dim, weights.vector(Role::ChannelMixLerp, index));
    let mut left = rows_mut(x, dim);
    for segment in segments {
        let state = state_of((kv, pools, store), spec, index, segment);
        let Some(last) = state.and_then(|state| state.get_mut(dim..2 * dim)) else { return };
        for x in left.by_ref().take(segment.tokens as usize) {
            for ((x, last), lerp) in x.iter_mut().zip(last.iter_mut()).zip(lerp.as_chunks().0) {
                let shift = *last - *x;
                *last = *x;
                *x += shift * f32::from_le_bytes(*lerp);
            }
        }
    }
}
