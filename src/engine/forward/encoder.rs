//! Encoders: run all tokens of a text through the layers; each token attends to all tokens. If the model also has a
//! decoder, the encoder's output is converted to the keys and values of the decoder's cross-attention, once per text.
//!
//! A layer must store the keys and values of all tokens before the first token attends. Each layer therefore processes
//! the batches twice: first for keys and values, then for the rest. An encoder layer's cache is only needed until the
//! next layer, so all encoder layers share the tiles that the decoder's first cross-attention layer uses later.

use core::ops::Range;

use super::attention::{Part, View};
use super::relative::Relative;
use super::{Forward, add, copy, rows_mut};
use crate::TokenId;
use crate::engine::layout::{SOURCE, Segment};
use crate::model::{Layer, Role, Spec, Weights};
use crate::quant::decode_row;

/// State of a model with an encoder.
pub(crate) struct Source<'m, 'w> {
    /// Spec, weights and biases of the encoder, swapped with the decoder's while the encoder runs. `None` for an
    /// encoder without a decoder.
    pub other: Option<(&'m Spec<'m>, Weights<'m, 'w>, Relative<'w>)>,
    /// `[context][dim]`: the states of the text.
    pub states: &'w mut [f32],
    /// Number of tokens of the text; 0 before the first text.
    pub tokens: usize,
}

impl<'m> Source<'m, '_> {
    /// Spec of the encoder of an encoder-decoder.
    pub fn spec(&self) -> Option<&'m Spec<'m>> {
        self.other.as_ref().map(|(spec, ..)| *spec)
    }

    /// `[tokens][dim]`: the states of the text.
    pub fn states(&self, dim: usize) -> &[f32] {
        self.states.get(..self.tokens * dim).unwrap_or(&[])
    }
}

impl Forward<'_, '_> {
    /// Runs the encoder on a text of at most one context length, and stores the cross-attention keys and values of its
    /// states in the context's pages, which the caller has reserved.
    /// `question` is the type of a question whose options the encoder scores.
    pub fn encode(&mut self, context: usize, tokens: &[TokenId], question: usize) {
        let (n, batch) = (tokens.len(), self.batch().max(1));
        if let Some(source) = &mut self.source {
            source.tokens = n;
        }
        self.swap_stacks();
        for (part, tokens) in tokens.chunks(batch).enumerate() {
            self.set_rows(context, part * batch..part * batch + tokens.len());
            self.embed(tokens, 0, part * batch);
            self.store_states(part * batch, tokens.len());
        }
        self.run_encoder(context, n, question);
    }

    /// Runs the encoder on the stored embeddings of `n` positions, then computes the decoder's cross-attention keys and
    /// values. Expects the stacks to be swapped, and swaps them back.
    pub(super) fn run_encoder(&mut self, context: usize, n: usize, question: usize) {
        let batch = self.batch().max(1);
        let parts = (0..n).step_by(batch).map(|first| first..n.min(first + batch));
        for index in 0..self.spec.layers {
            let layer = self.spec.layer(index);
            if self.spec.scoring().is_some_and(|scoring| index + scoring.layers == self.spec.layers) {
                parts.clone().for_each(|range| self.begin_scoring(context, &range, question));
            }
            let tiles = self.encoder_tiles(&layer);
            let view = |part| View { tiles: tiles.clone(), pool: SOURCE, part, cross: false };
            for range in parts.clone() {
                self.load_states(context, &range);
                self.attention(&layer, view(Part::Keys));
            }
            for range in parts.clone() {
                self.load_states(context, &range);
                self.attention(&layer, view(Part::Queries));
                self.after_attention(&layer, self.rows);
                self.store_states(range.start, self.rows);
            }
        }
        if self.spec.scoring().is_none() {
            for range in parts.clone() {
                self.load_states(context, &range);
                self.norm_states();
                self.store_states(range.start, self.rows);
            }
        }
        self.swap_stacks();

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

    /// Applies the final norm to the rows of `hidden`.
    fn norm_states(&mut self) {
        self.final_norm(0..self.rows, 0);
        let len = self.rows * self.spec.dim;
        if let (Some(hidden), Some(normed)) = (self.hidden.get_mut(..len), self.branch.get(..len)) {
            copy(hidden, normed);
        }
    }

    /// Applies the final norm to a part of a question's states, and adds the embedding of the question's type.
    fn begin_scoring(&mut self, context: usize, range: &Range<usize>, question: usize) {
        self.load_states(context, range);
        self.norm_states();
        let Self { weights, hidden, branch, spec, rows, .. } = self;
        if let (Some(types), Some(row), Some(hidden)) =
            (weights.matrix(Role::TokenTypes, 0), branch.get_mut(..spec.dim), hidden.get_mut(..*rows * spec.dim))
        {
            decode_row(types.kind(), types.row(question), row);
            rows_mut(hidden, spec.dim).for_each(|x| add(x, row));
        }
        self.store_states(range.start, self.rows);
    }

    /// Cross-attention of a layer, if the model has it: `x += output(attention(norm(x), source))`.
    pub(super) fn look_across(&mut self, layer: &Layer) {
        if self.spec.has_cross_attention() {
            let tiles = self.source_tiles(layer, layer.index);
            self.attention(layer, View { tiles, pool: SOURCE, part: Part::Queries, cross: true });
        }
    }

    /// Range of the tiles with the encoder's keys and values for decoder layer `index`, at the end of the cache.
    fn source_tiles(&self, layer: &Layer, index: usize) -> Range<usize> {
        let bytes = self.store.layer_bytes(layer, SOURCE);
        let from_end = bytes.saturating_mul(self.source_layers - index.min(self.source_layers));
        let start = self.kv.len().saturating_sub(self.store.encoder).saturating_sub(from_end);
        start..start.saturating_add(bytes)
    }

    /// Range of the tiles that all encoder layers share: those of the decoder's first cross-attention layer, or
    /// separate ones.
    fn encoder_tiles(&self, layer: &Layer) -> Range<usize> {
        match self.store.encoder {
            0 => self.source_tiles(layer, 0),
            bytes => self.kv.len().saturating_sub(bytes)..self.kv.len(),
        }
    }

    /// Sets up the pass with these rows of the context's text as its only segment.
    pub(super) fn set_rows(&mut self, context: usize, rows: Range<usize>) {
        let source = self.source.as_ref().map_or(0, |source| source.tokens);
        let count = rows.end.saturating_sub(rows.start); // `rows.len()` has an assertion that the compiler may keep
        self.clear();
        if let Some(segment) = self.segments.first_mut() {
            *segment = Segment::new([context, rows.start, count, source]);
            (self.parts, self.rows) = (1, count);
        }
        #[cfg(feature = "lora")]
        self.compute.lora.own(0, count, context as u32);
        for rotary in &mut self.rotary {
            rotary.turn_to(0, rows.start, count);
        }
    }

    /// Swaps encoder and decoder.
    pub(super) fn swap_stacks(&mut self) {
        if let Some(Source { other: Some((spec, weights, relative)), .. }) = &mut self.source {
            core::mem::swap(&mut self.spec, spec);
            core::mem::swap(&mut self.weights, weights);
            core::mem::swap(&mut self.relative, relative);
        }
    }

    /// Sets up the pass with these rows of a context's text and copies their states into `hidden`.
    fn load_states(&mut self, context: usize, rows: &Range<usize>) {
        self.set_rows(context, rows.clone());
        let (first, tokens, dim) = (rows.start, rows.len(), self.spec.dim);
        let states = self.source.as_ref().and_then(|source| source.states.get(first * dim..(first + tokens) * dim));
        if let (Some(states), Some(hidden)) = (states, self.hidden.get_mut(..tokens * dim)) {
            copy(hidden, states);
        }
    }

    /// Copies `hidden` into the text's states.
    pub(super) fn store_states(&mut self, first: usize, tokens: usize) {
        let dim = self.spec.dim;
        let states = self.source.as_mut().and_then(|source| source.states.get_mut(first * dim..(first + tokens) * dim));
        if let (Some(states), Some(hidden)) = (states, self.hidden.get(..tokens * dim)) {
            copy(states, hidden);
        }
    }
}
