//! Layers that predict further tokens: they read the token at a position and the final state of the position before.
//!
//! Rows come from two places: the last positions of each context, whose tokens and states are kept in a ring, and the
//! pass that has just run, whose states are `fresh`. [`add_next`](Forward::add_next) joins tokens and states of rows,
//! [`run_next`](Forward::run_next) runs the layers on them, and [`guess`](Forward::guess) computes the logits and
//! states of some rows.

use core::ops::Range;

use super::attention::{Part, View};
use super::rope::Rotary;
use super::{Compute, Forward, copy, norm_one, rows_mut, scale};
use crate::TokenId;
use crate::engine::layout::{Ahead, Segment, Store};
use crate::engine::profile::Section;
use crate::kernel::copy_row;
use crate::model::{Layer, Role, Spec, Weights};

/// The predicting layers of a forward pass, and the tokens and states that they read.
pub(crate) struct Next<'m, 'w> {
    /// Spec of the predicting layers. Their spec, weights and rotations change places with the model's while these
    /// layers run.
    pub spec: &'m Spec<'m>,
    pub weights: Weights<'m, 'w>,
    pub rotary: [Rotary<'w>; 2],
    /// Byte ranges of the cache's tiles to which the predicting layers attend: in global layers, and in local layers.
    pub tiles: [Range<usize>; 2],
    /// Number of positions that are kept of each context.
    pub kept: usize,
    /// `[contexts][kept]`: the last tokens of each context. The token at position `p` has the index `p % kept`.
    pub tokens: &'w mut [u32],
    /// `[contexts][kept][width]`: the final states of the last positions of each context. The state of position `p` has
    /// the index `p % kept`.
    pub states: &'w mut [f32],
    /// `[batch][width]`: the final states of the rows of the pass that was run last.
    pub fresh: &'w mut [f32],
}

/// Rows on which the predicting layers run. A row is a token, together with the model's state at the position before
/// the token.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rows<'t> {
    /// `count` kept positions.
    Kept { count: usize },
    /// The token that is `drafted` positions after the context. This is only for predicting layers that have no keys of
    /// their own: such layers process all drafted tokens as if they were at one position, and attend to the positions
    /// before it.
    Drafted { drafted: usize },
    /// The rows of the model's last pass from `row` on, with their tokens. The model's state before row `row` is kept
    /// from the previous pass.
    Fresh { row: usize, tokens: &'t [TokenId] },
}

impl Next<'_, '_> {
    /// Width of a state.
    pub fn width(&self) -> usize {
        self.spec.next().map_or(self.spec.dim, |next| next.width)
    }

    /// True if the predicting layers have keys and values of their own, which must be computed for every position.
    pub fn owns_keys(&self) -> bool {
        !self.spec.assists()
    }

    /// Index of the ring's entry for a position.
    fn entry(&self, context: usize, position: usize) -> usize {
        context * self.kept + position.checked_rem(self.kept).unwrap_or(0)
    }

    pub fn token(&self, context: usize, position: usize) -> TokenId {
        self.tokens.get(self.entry(context, position)).copied().unwrap_or(0)
    }

    pub fn set_token(&mut self, context: usize, position: usize, token: TokenId) {
        let entry = self.entry(context, position);
        if let Some(place) = self.tokens.get_mut(entry) {
            *place = token;
        }
    }

    fn state(&self, context: usize, position: usize) -> &[f32] {
        let (entry, width) = (self.entry(context, position), self.width());
        self.states.get(entry * width..(entry + 1) * width).unwrap_or(&[])
    }

    fn state_mut(&mut self, context: usize, position: usize) -> &mut [f32] {
        let (entry, width) = (self.entry(context, position), self.width());
        self.states.get_mut(entry * width..(entry + 1) * width).unwrap_or_default()
    }

    /// Keeps the last of the given tokens, and the states that the last pass computed for them. The state of the first
    /// token of `tokens` is in row `row` of the pass.
    pub fn keep(&mut self, context: usize, position: usize, tokens: &[TokenId], row: usize) {
        let (width, skipped) = (self.width(), tokens.len().saturating_sub(self.kept));
        for (i, token) in tokens.iter().enumerate().skip(skipped) {
            self.set_token(context, position + i, *token);
            let (entry, at) = (self.entry(context, position + i) * width, (row + i) * width);
            if let (Some(to), Some(from)) = (self.states.get_mut(entry..entry + width), self.fresh.get(at..at + width))
            {
                copy(to, from);
            }
        }
    }

    /// Copies what is kept of one context to another.
    pub fn share(&mut self, from: usize, to: usize) {
        let (kept, width) = (self.kept, self.width());
        for i in 0..kept {
            let token = self.tokens.get(from * kept + i).copied().unwrap_or(0);
            if let Some(place) = self.tokens.get_mut(to * kept + i) {
                *place = token;
            }
        }
        copy_row(self.states, kept * width, from, to);
    }

    /// Writes the two inputs of a predicting layer to `out`, `[2][width]`: the embedding of a token and a state of the
    /// model. If there is no state, zeros are written instead.
    fn join(
        &self,
        (compute, target, words): (&mut Compute<'_, '_>, &Spec<'_>, &Weights<'_, '_>),
        token: TokenId,
        state: &[f32],
        out: &mut [f32],
    ) {
        let Some((word, to)) = out.split_at_mut_checked(self.width()) else { return };
        let own = self.weights.matrix(Role::NextEmbd, 0);
        let Some(words) = own.or_else(|| words.matrix(Role::TokenEmbd, 0)) else { return };
        compute.look_up(&words, token as usize, word);
        scale(word, target.embedding_scale);
        to.fill(0.0);
        to.iter_mut().zip(state).for_each(|(to, from)| *to = *from);
        for (role, x) in [(Role::NextTokenNorm, word), (Role::NextStateNorm, to)] {
            let weight = self.weights.vector(role, 0);
            if !weight.is_empty() {
                norm_one(compute.kernels, self.spec, weight, &[], x);
            }
        }
    }
}

/// Returns the byte ranges of the tiles in the cache of `spec` that the predicting model `next` attends to: one range
/// for its global layers, and one for its local layers.
pub(super) fn tiles(store: &Store, spec: &Spec<'_>, next: &Spec<'_>) -> [Range<usize>; 2] {
    let before = |end: usize| {
        let layers = (0..end).map(|index| spec.layer(index)).filter(|layer| layer.owns_kv);
        layers.map(|layer| store.layer_bytes(&layer, layer.pool())).sum::<usize>()
    };
    [false, true].map(|is_local| {
        if !next.assists() {
            let start = before(spec.layers);
            return start..start + store.next;
        }
        let owner = spec.owner(is_local).unwrap_or(0);
        let (start, layer) = (before(owner), spec.layer(owner));
        start..start + store.layer_bytes(&layer, layer.pool())
    })
}

impl Forward<'_, '_> {
    /// Stores the final states of all rows of the pass in `fresh`, where the predicting layers read them.
    pub fn keep_fresh(&mut self) {
        let normed = self.next.as_ref().and_then(|next| next.spec.next()).is_some_and(|next| next.normed);
        if normed {
            self.final_norm(0..self.rows, 0);
        }
        let len = self.rows * self.spec.dim;
        let Some(next) = &mut self.next else { return };
        let states = if normed { &*self.branch } else { &*self.hidden };
        if let (Some(to), Some(from)) = (next.fresh.get_mut(..len), states.get(..len)) {
            copy(to, from);
        }
    }

    /// Adds rows of a context to a pass of the predicting layers. The first row is for the position `position`. The
    /// model's states at positions before `from` are no longer available.
    pub fn add_next(&mut self, context: usize, position: usize, from: usize, rows: Rows<'_>) {
        let (first, batch) = (self.rows, self.batch());
        let Self { spec, weights, compute, inner, next: Some(next), segments, parts, .. } = self else { return };
        let width = next.width();
        let count = match rows {
            Rows::Kept { count } => count,
            Rows::Drafted { .. } => 1,
            Rows::Fresh { tokens, .. } => tokens.len(),
        };
        let Some(place) = segments.get_mut(*parts).filter(|_| first + count <= batch) else { return };
        let Some(joined) = inner.get_mut(first * 2 * width..) else { return };
        for (i, out) in rows_mut(joined, 2 * width).take(count).enumerate() {
            let at = position + i;
            let kept = || match at.checked_sub(1).filter(|before| *before >= from) {
                Some(before) => next.state(context, before),
                None => &[],
            };
            let (token, state) = match rows {
                Rows::Kept { .. } | Rows::Drafted { .. } => (next.token(context, at), kept()),
                Rows::Fresh { tokens, .. } if i == 0 => (tokens.first().copied().unwrap_or(0), kept()),
                Rows::Fresh { row, tokens } => {
                    let at = (row + i - 1) * width;
                    (tokens.get(i).copied().unwrap_or(0), next.fresh.get(at..at + width).unwrap_or(&[]))
                }
            };
            next.join((compute, spec, weights), token, state, out);
        }
        let (position, seen) = match rows {
            Rows::Drafted { drafted } => (position - drafted.min(position), position.saturating_sub(drafted + 1)),
            _ => (position, position),
        };
        *place = Segment::new([context, seen, count, 0]);
        *parts += 1;
        self.rows += count;
        #[cfg(feature = "lora")]
        compute.lora.own(first, count, context as u32);
        for rotary in &mut next.rotary {
            rotary.turn_to(first, position, count);
        }
        compute.done(Section::Embedding);
    }

    /// Runs the layers that predict further tokens on all rows of the pass. After this, [`guess`](Self::guess) can be
    /// called.
    pub fn run_next(&mut self) {
        if self.rows == 0 {
            return;
        }
        self.swap_next();
        let (rows, dim) = (self.rows, self.spec.dim);
        let Self { weights, compute, inner, hidden, next, .. } = self;
        let Some(width) = next.as_ref().map(Next::width) else { return };
        let projection = weights.matrix(Role::NextProj, 0).or_else(|| weights.matrix(Role::NextPre, 0));
        if let (Some(w), Some(joined), Some(hidden)) =
            (projection, inner.get(..rows * 2 * width), hidden.get_mut(..rows * dim))
        {
            compute.times((joined, rows), w, hidden, dim);
        }
        compute.done(Section::Embedding);
        for index in 0..self.spec.layers {
            let layer = self.spec.layer(index);
            self.next_layer(&layer);
        }
        self.swap_next();
    }

    /// Marks the rows of the current pass as not read by the predicting layer. Called if the storage has failed in this
    /// pass.
    #[cold]
    pub fn unread_next(&mut self) {
        for segment in self.segments.iter().take(self.parts) {
            let ahead = self.undo.ahead(segment.context as usize);
            self.undo
                .set_ahead(segment.context as usize, Ahead { filled: ahead.filled.min(segment.position), ..ahead });
        }
    }

    /// Runs one of the predicting layers, which have already changed places with the layers of the model.
    fn next_layer(&mut self, layer: &Layer) {
        let Some(next) = &self.next else { return };
        let [global, local] = &next.tiles;
        let tiles = if layer.pool() == 0 { global.clone() } else { local.clone() };
        if self.spec.keeps_input() {
            self.hold();
        }
        let view = View { tiles, pool: layer.pool(), part: Part::All, cross: false };
        match self.spec.latent() {
            Some(latent) => self.latent_attention(layer, &latent, &view),
            None => self.attention(layer, view),
        }
        self.after_attention(layer, self.rows);
        self.layer_end(layer, self.rows);
    }

    /// For each of the first `count` segments, computes the logits that follow the segment's last row, and stores them
    /// in the rows of the logits from row `to` on. Keeps the final state of this last row.
    pub fn guess(&mut self, count: usize, to: usize) {
        self.swap_next();
        let dim = self.spec.dim;
        let mut row = 0;
        for i in 0..count {
            row += self.segments.get(i).map_or(0, |segment| segment.tokens as usize);
            let last = row.saturating_sub(1);
            let Self { hidden, branch, compute, .. } = self;
            if let (Some(to), Some(from)) =
                (branch.get_mut(i * dim..(i + 1) * dim), hidden.get(last * dim..(last + 1) * dim))
            {
                copy(to, from);
            }
            compute.select(i, last);
            // The states of the last rows, before the final norm, are moved to the front, where they can be kept.
            copy_row(hidden, dim, last, i);
        }
        let Self { spec, weights, compute, branch, inner, hidden, segments, undo, next: Some(next), .. } = self else {
            return;
        };
        let Some(normed) = branch.get_mut(..count * dim) else { return };
        let own = weights.vector(Role::NextHeadNorm, 0);
        let weight = if own.is_empty() { weights.vector(Role::OutputNorm, 0) } else { own };
        rows_mut(normed, dim).for_each(|x| norm_one(compute.kernels, spec, weight, &[], x));
        let part = spec.next();
        let width = part.map_or(dim, |next| next.width);
        let states = match weights.matrix(Role::NextPost, 0) {
            Some(w) => {
                compute.times((normed, count), w, inner, width);
                &**inner
            }
            None if part.is_some_and(|next| next.normed) => &*normed,
            None => &**hidden,
        };
        for (segment, state) in segments.iter().take(count).zip(super::rows(states, width)) {
            let (context, first) = (segment.context as usize, segment.position as usize);
            let last = if spec.assists() {
                first + 1 + undo.ahead(context).drafted as usize
            } else {
                (first + segment.tokens as usize).saturating_sub(1)
            };
            copy(next.state_mut(context, last), state);
        }
        self.head(count, to);
        self.swap_next();
    }

    /// Lets the predicting layers change places with the layers of the model, so that the same code runs them.
    fn swap_next(&mut self) {
        if let Some(next) = &mut self.next {
            core::mem::swap(&mut self.spec, &mut next.spec);
            core::mem::swap(&mut self.weights, &mut next.weights);
            core::mem::swap(&mut self.rotary, &mut next.rotary);
        }
    }
}
