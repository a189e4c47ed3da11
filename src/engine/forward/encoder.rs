//! Encoders: all tokens of a text through the blocks, each seeing all; and, for a decoder that follows, the
//! keys and values of the result, once for a text.
//!
//! A layer's keys and values of all tokens must be there before the first of them looks: so a layer takes
//! the batches twice, first for keys and values, then for the rest. What an encoder's layers keep only lasts
//! until the next: they share the tiles that the first layer of a decoder looks across at later.

use core::ops::Range;

use super::attention::{Part, View};
use super::relative::Relative;
use super::{Forward, copy};
use crate::TokenId;
use crate::engine::layout::{SOURCE, Segment};
use crate::model::{Layer, Spec, Weights};

/// What a model with an encoder has for it.
pub(crate) struct Source<'m, 'w> {
    /// The encoder's, where the rest has the decoder's; they change places while it runs. An encoder by
    /// itself is no decoder's.
    pub other: Option<(&'m Spec<'m>, Weights<'m, 'w>, Relative<'w>)>,
    /// `[context][dim]`: the states of the text.
    pub states: &'w mut [f32],
    /// Tokens of the text; 0 before the first.
    pub tokens: usize,
}

impl<'m> Source<'m, '_> {
    /// The spec of the encoder, where it has one of its own.
    pub fn spec(&self) -> Option<&'m Spec<'m>> {
        self.other.as_ref().map(|(spec, ..)| *spec)
    }

    /// `[tokens][dim]`: the states of the text.
    pub fn states(&self, dim: usize) -> &[f32] {
        self.states.get(..self.tokens * dim).unwrap_or(&[])
    }
}

impl Forward<'_, '_> {
    /// Runs the encoder on a text, which is at most a context long, and puts the keys and values of its
    /// states where the decoder looks for them: into the pages of the context, which are there.
    pub fn encode(&mut self, context: usize, tokens: &[TokenId]) {
        let (n, batch) = (tokens.len(), self.batch().max(1));
        if let Some(source) = &mut self.source {
            source.tokens = n;
        }
        self.change_stack();
        for (part, tokens) in tokens.chunks(batch).enumerate() {
            self.only(context, part * batch..part * batch + tokens.len());
            self.embed(tokens, 0, part * batch);
            self.keep_states(part * batch, tokens.len());
        }
        let parts = (0..n).step_by(batch).map(|first| first..n.min(first + batch));
        for index in 0..self.spec.layers {
            let layer = self.spec.layer(index);
            let tiles = self.encoder_tiles(&layer);
            let view = |part| View { tiles: tiles.clone(), pool: SOURCE, part, cross: false };
            for range in parts.clone() {
                self.load_states(context, &range);
                self.attention(&layer, view(Part::Keys));
            }
            for range in parts.clone() {
                self.load_states(context, &range);
                self.attention(&layer, view(Part::Queries));
                self.feed_forward(&layer, range.len());
                self.keep_states(range.start, range.len());
            }
        }
        for range in parts.clone() {
            self.load_states(context, &range);
            self.final_norm(0..range.len(), 0);
            let len = range.len() * self.spec.dim;
            let (Some(hidden), Some(normed)) = (self.hidden.get_mut(..len), self.branch.get(..len)) else { return };
            copy(hidden, normed);
            self.keep_states(range.start, range.len());
        }
        self.change_stack();

        if !self.spec.has_cross_attention() {
            return;
        }
        for index in 0..self.spec.layers {
            let layer = self.spec.layer(index);
            let tiles = self.source_tiles(&layer, index);
            for range in parts.clone() {
                self.load_states(context, &range);
                self.attention(&layer, View { tiles: tiles.clone(), pool: SOURCE, part: Part::Keys, cross: true });
            }
        }
    }

    /// Cross-attention of a block, where the model has it: `x += output(attention(norm(x), source))`.
    pub(super) fn look_across(&mut self, layer: &Layer) {
        if self.spec.has_cross_attention() {
            let tiles = self.source_tiles(layer, layer.index);
            self.attention(layer, View { tiles, pool: SOURCE, part: Part::Queries, cross: true });
        }
    }

    /// Where the tiles with the keys and values of the encoder's states for decoder layer `index` lie, which are
    /// at the end of the cache.
    fn source_tiles(&self, layer: &Layer, index: usize) -> Range<usize> {
        let bytes = self.store.layer_bytes(layer, SOURCE);
        let from_end = bytes.saturating_mul(self.source_layers - index.min(self.source_layers));
        let start = self.kv.len().saturating_sub(self.store.encoder).saturating_sub(from_end);
        start..start.saturating_add(bytes)
    }

    /// The tiles that the encoder's own layers use, one after another: the decoder's first, or those that are for it.
    fn encoder_tiles(&self, layer: &Layer) -> Range<usize> {
        match self.store.encoder {
            0 => self.source_tiles(layer, 0),
            bytes => self.kv.len().saturating_sub(bytes)..self.kv.len(),
        }
    }

    /// Makes the pass one of this context's rows at these positions of its text.
    fn only(&mut self, context: usize, rows: Range<usize>) {
        let source = self.source.as_ref().map_or(0, |source| source.tokens);
        let numbers = [context, rows.start, rows.len(), source].map(|number| number as u32);
        let [context, position, tokens, source] = numbers;
        self.clear();
        if let Some(segment) = self.segments.first_mut() {
            *segment = Segment { context, position, tokens, source };
            (self.parts, self.rows) = (1, rows.len());
        }
        for rotary in &mut self.rotary {
            rotary.turn_to(0, rows.start, rows.len());
        }
    }

    /// The encoder in place of the decoder, or the other way round.
    fn change_stack(&mut self) {
        if let Some(Source { other: Some((spec, weights, relative)), .. }) = &mut self.source {
            core::mem::swap(&mut self.spec, spec);
            core::mem::swap(&mut self.weights, weights);
            core::mem::swap(&mut self.relative, relative);
        }
    }

    /// Makes the pass one of these positions of a context's text, and copies their states into `hidden`.
    fn load_states(&mut self, context: usize, rows: &Range<usize>) {
        self.only(context, rows.clone());
        let (first, tokens, dim) = (rows.start, rows.len(), self.spec.dim);
        let states = self.source.as_ref().and_then(|source| source.states.get(first * dim..(first + tokens) * dim));
        if let (Some(states), Some(hidden)) = (states, self.hidden.get_mut(..tokens * dim)) {
            copy(hidden, states);
        }
    }

    /// Copies `hidden` to some of the text's states.
    fn keep_states(&mut self, first: usize, tokens: usize) {
        let dim = self.spec.dim;
        let states = self.source.as_mut().and_then(|source| source.states.get_mut(first * dim..(first + tokens) * dim));
        if let (Some(states), Some(hidden)) = (states, self.hidden.get(..tokens * dim)) {
            copy(states, hidden);
        }
    }
}
