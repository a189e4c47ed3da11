//! Encoders: all tokens of a text through the blocks, each seeing all; and, for a decoder behind it, the
//! keys and values of the result, once for a text.
//!
//! A layer's keys and values of all tokens must be there before the first of them looks: so a layer takes
//! the batches twice, first for keys and values, then for the rest. What an encoder's layers keep only lasts
//! until the next: they share one ring, which lies where a decoder's first layers keep theirs later.

use core::ops::Range;

use super::Engine;
use super::attention::{Part, View};
use super::relative::Relative;
use crate::built;
use crate::kernel::Masks;
use crate::memory::Arena;
use crate::model::{Layer, Model, Spec, Weights};
use crate::plan::Plan;
use crate::{Error, TokenId};

/// What a model with an encoder has besides.
pub(crate) struct Source<'m, 'w> {
    /// The encoder's, where the engine has the decoder's; they change places while it runs. An encoder by
    /// itself is the engine's own.
    other: Option<(&'m Spec<'m>, Weights<'m, 'w>, Relative<'w>)>,
    /// `[context][dim]`: the states of the text.
    states: &'w mut [f32],
    /// Tokens of the text; 0 before the first.
    pub tokens: usize,
}

impl<'m, 'w> Source<'m, 'w> {
    /// Cuts its part of the workspace; `None` if the model has no encoder.
    pub fn new(model: &'m Model<'_>, plan: &Plan, arena: &mut Arena<'w>) -> Result<Option<Self>, Error> {
        let layout = plan.layout;
        let short = Error::WorkspaceTooSmall { needed: plan.workspace, given: plan.workspace };
        if !built::ENCODER || layout.states == 0 {
            return Ok(None);
        }
        let states = arena.take(layout.states).ok_or(short)?;
        let other = match model.encoder() {
            Some(spec) => {
                let weights = Weights::new(model.gguf(), spec, arena.take(layout.source_weights).ok_or(short)?)?;
                let relative = Relative::new(spec, &weights, plan, arena.take(layout.source_biases).ok_or(short)?);
                Some((spec, weights, relative))
            }
            None => None,
        };
        Ok(Some(Self { other, states, tokens: 0 }))
    }

    /// The spec of the encoder, where that is not the engine's.
    pub fn spec(&self) -> Option<&'m Spec<'m>> {
        self.other.as_ref().map(|(spec, ..)| *spec)
    }

    /// `[tokens][dim]`: the states of the text.
    pub fn states(&self, dim: usize) -> &[f32] {
        self.states.get(..self.tokens * dim).unwrap_or(&[])
    }
}

impl Engine<'_, '_> {
    /// Runs the encoder on a text, which is at most a context long, and puts the keys and values of its
    /// states where the decoder looks for them.
    pub fn encode(&mut self, tokens: &[TokenId]) {
        let (n, batch, dim) = (tokens.len(), self.plan.options.batch, self.spec.dim);
        if let Some(source) = &mut self.source {
            source.tokens = n;
        }
        self.change_stack();
        for (part, tokens) in tokens.chunks(batch).enumerate() {
            self.embed(tokens, part * batch, false);
            self.keep_states(part * batch, tokens.len());
        }
        let parts = (0..n).step_by(batch).map(|first| first..n.min(first + batch));
        for index in 0..self.spec.layers {
            let layer = self.spec.layer(index);
            let ring = 0..self.plan.source_ring_bytes(&layer);
            let view = |part: &Range<usize>, of| View {
                ring: ring.clone(),
                tokens: part.len(),
                position: part.start,
                part: of,
                cross: false,
                reach: Some(n),
                masks: Masks::NONE,
            };
            for range in parts.clone() {
                self.load_states(range.start, range.len());
                self.attention(&layer, view(&range, Part::Keys));
            }
            for range in parts.clone() {
                self.load_states(range.start, range.len());
                self.attention(&layer, view(&range, Part::Queries));
                self.feed_forward(&layer, range.len());
                self.keep_states(range.start, range.len());
            }
        }
        for range in parts.clone() {
            self.load_states(range.start, range.len());
            self.final_norm(0..range.len());
            let (Some(hidden), Some(normed)) =
                (self.hidden.get_mut(..range.len() * dim), self.branch.get(..range.len() * dim))
            else {
                return;
            };
            hidden.copy_from_slice(normed);
            self.keep_states(range.start, range.len());
        }
        self.change_stack();

        if !self.spec.has_cross_attention() {
            return;
        }
        for index in 0..self.spec.layers {
            let layer = self.spec.layer(index);
            for range in parts.clone() {
                self.load_states(range.start, range.len());
                let (position, tokens, ring) = (range.start, range.len(), self.cross_ring(&layer));
                let (part, masks) = (Part::Keys, Masks::NONE);
                self.attention(&layer, View { ring, tokens, position, part, cross: true, reach: Some(n), masks });
            }
        }
    }

    /// Cross-attention of a block, where the model has it: `x += output(attention(norm(x), source))`.
    pub(super) fn look_across(&mut self, layer: &Layer, tokens: usize) {
        if self.spec.has_cross_attention() {
            let (ring, part, masks) = (self.cross_ring(layer), Part::Queries, Masks::NONE);
            let reach = self.source.as_ref().map(|source| source.tokens);
            self.attention(layer, View { ring, tokens, position: 0, part, cross: true, reach, masks });
        }
    }

    /// Where the keys and values of the encoder's states for this layer lie: at the end of the cache.
    fn cross_ring(&self, layer: &Layer) -> Range<usize> {
        let bytes = self.plan.source_ring_bytes(layer);
        let end = self.kv.len() - bytes * (self.spec.layers - 1 - layer.index).min(self.kv.len() / bytes.max(1));
        end.saturating_sub(bytes)..end
    }

    /// The encoder in place of the decoder, or the other way round.
    fn change_stack(&mut self) {
        if let Some(Source { other: Some((spec, weights, relative)), .. }) = &mut self.source {
            core::mem::swap(&mut self.spec, spec);
            core::mem::swap(&mut self.weights, weights);
            core::mem::swap(&mut self.relative, relative);
        }
    }

    /// Copies some of the text's states into `hidden`.
    fn load_states(&mut self, first: usize, tokens: usize) {
        let dim = self.spec.dim;
        let states = self.source.as_ref().and_then(|source| source.states.get(first * dim..(first + tokens) * dim));
        if let (Some(states), Some(hidden)) = (states, self.hidden.get_mut(..tokens * dim)) {
            hidden.copy_from_slice(states);
        }
    }

    /// Copies `hidden` to some of the text's states.
    fn keep_states(&mut self, first: usize, tokens: usize) {
        let dim = self.spec.dim;
        let states = self.source.as_mut().and_then(|source| source.states.get_mut(first * dim..(first + tokens) * dim));
        if let (Some(states), Some(hidden)) = (states, self.hidden.get(..tokens * dim)) {
            states.copy_from_slice(hidden);
        }
    }
}
