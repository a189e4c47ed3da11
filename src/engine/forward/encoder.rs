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

/// State of a model with an encoder.
pub(crate) struct Source<'m, 'w> {
    /// Spec, weights and biases of the stack that is not running: those of the encoder, or those of the decoder while
    /// the encoder runs. `None` if the model has an encoder but no decoder.
    pub other: Option<(&'m Spec<'m>, Weights<'m, 'w>, Relative<'w>)>,
    /// `[context][dim]`: the states of the text.
    pub states: &'w mut [f32],
    /// Number of tokens of the text; 0 before the first text, and while a text is read.
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

/// Input of an encoder.
#[derive(Clone, Copy)]
pub(crate) enum Input<'i> {
    Text(&'i [TokenId]),
    #[cfg(feature = "sound")]
    Sound(super::front::Sound<'i>),
}

/// The computation of an encoder's next step, for a batch of tokens.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Embedding,
    /// Computes what the scoring layers add to the states of the previous layer.
    Scoring,
    /// Keys and values of a layer.
    Keys,
    /// The rest of a layer.
    Rest,
    Norm,
    /// Keys and values of a decoder layer's cross-attention.
    CrossKeys,
    Done,
}

/// Progress of an encoder that runs in steps.
#[derive(Clone, Copy)]
pub(crate) struct Progress {
    context: usize,
    tokens: usize,
    /// Type of a question whose options the encoder scores.
    question: usize,
    step: Step,
    layer: usize,
    /// First token of the next step.
    first: usize,
}

impl Progress {
    /// Starts to encode `tokens` tokens (at most one context length) at position 0 of a context whose pages are
    /// reserved. `question` is the type of the question if the encoder scores a question's options.
    pub const fn new(context: usize, tokens: usize, question: usize) -> Self {
        Self { context, tokens, question, step: Step::Embedding, layer: 0, first: 0 }
    }

    /// The progress before the first step.
    pub const fn begun_again(&self) -> Self {
        Self::new(self.context, self.tokens, self.question)
    }

    pub fn is_done(&self) -> bool {
        self.step == Step::Done
    }
}

impl Forward<'_, '_> {
    /// Runs a step. Returns true if more steps remain. The last steps store the keys and values of the decoder's
    /// cross-attention in the context's pages. The states are available after the last step.
    pub fn encoder_step(&mut self, at: &mut Progress, input: Input<'_>) -> bool {
        if at.is_done() {
            return false;
        }
        // The encoder and the decoder change places only within a step, so that the decoder is in its place even if the
        // run is abandoned between two steps.
        let is_encoder = at.step != Step::CrossKeys;
        if is_encoder {
            self.swap_stacks();
        }
        let range = at.first..at.tokens.min(at.first + self.batch().max(1));
        self.run_step(at, &range, input);
        at.first = range.end;
        if at.first >= at.tokens {
            (at.first, at.layer) = (0, at.layer + usize::from(matches!(at.step, Step::Rest | Step::CrossKeys)));
            at.step = self.step_after(at);
        }
        if is_encoder {
            self.swap_stacks();
        }
        self.compute.workers.pause();
        let has_more = self.spec.has_cross_attention() && at.layer < self.spec.layers;
        if at.step == Step::CrossKeys && !has_more {
            at.step = Step::Done;
            if let Some(source) = &mut self.source {
                source.tokens = at.tokens;
            }
        }
        !at.is_done()
    }

    /// Returns the step that follows after the step `at.step` has run on all tokens. Sets `at.layer` to 0 if the layers
    /// of the decoder follow.
    fn step_after(&self, at: &mut Progress) -> Step {
        let begins_scoring = self.spec.scoring().is_some_and(|scoring| at.layer + scoring.layers == self.spec.layers);
        match at.step {
            Step::Scoring => Step::Keys,
            Step::Keys => Step::Rest,
            Step::Embedding | Step::Rest if at.layer < self.spec.layers => {
                if begins_scoring {
                    Step::Scoring
                } else {
                    Step::Keys
                }
            }
            Step::Embedding | Step::Rest if self.spec.scoring().is_none() => Step::Norm,
            Step::CrossKeys => Step::CrossKeys,
            Step::Embedding | Step::Rest | Step::Norm | Step::Done => {
                at.layer = 0;
                Step::CrossKeys
            }
        }
    }

    /// Runs one step of the encoder on the rows in `range`. The caller has swapped the encoder's spec and weights in,
    /// unless the step computes the decoder's keys and values.
    fn run_step(&mut self, at: &Progress, range: &Range<usize>, input: Input<'_>) {
        if at.step == Step::Embedding {
            self.set_rows(at, range);
            match input {
                Input::Text(text) => self.embed(text.get(range.clone()).unwrap_or_default(), 0, range.start),
                #[cfg(feature = "sound")]
                Input::Sound(sound) => self.hear(sound, range.clone()),
            }
        } else {
            self.load_states(at, range);
        }
        let layer = self.spec.layer(at.layer);
        let view = |tiles, part, cross| View { tiles, pool: SOURCE, part, cross };
        match at.step {
            Step::Embedding | Step::Done => {}
            Step::Scoring => self.begin_scoring(at.question),
            Step::Keys => self.attention(&layer, view(self.encoder_tiles(&layer), Part::Keys, false)),
            Step::Rest => {
                self.attention(&layer, view(self.encoder_tiles(&layer), Part::Queries, false));
                self.after_attention(&layer, self.rows);
            }
            Step::Norm => self.norm_states(),
            Step::CrossKeys => self.attention(&layer, view(self.source_tiles(&layer, at.layer), Part::Keys, true)),
        }
        if !matches!(at.step, Step::Keys | Step::CrossKeys) {
            self.store_states(range.start, self.rows);
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

    /// Prepares the scoring of a question's options: applies the final norm to the states of some of the question's
    /// tokens, and adds the embedding of the question's type.
    fn begin_scoring(&mut self, question: usize) {
        self.norm_states();
        let Self { weights, compute, hidden, branch, spec, rows, .. } = self;
        if let (Some(types), Some(row), Some(hidden)) =
            (weights.matrix(Role::TokenTypes, 0), branch.get_mut(..spec.dim), hidden.get_mut(..*rows * spec.dim))
        {
            compute.look_up(&types, question, row);
            rows_mut(hidden, spec.dim).for_each(|x| add(x, row));
        }
    }

    /// Runs a layer's cross-attention, if the model has cross-attention: `x += output(attention(norm(x), source))`.
    pub(super) fn look_across(&mut self, layer: &Layer) {
        if self.spec.has_cross_attention() {
            let tiles = self.source_tiles(layer, layer.index);
            self.attention(layer, View { tiles, pool: SOURCE, part: Part::Queries, cross: true });
        }
    }

    /// Returns where the encoder's keys and values for decoder layer `index` are. Their tiles are at the end of the
    /// cache.
    fn source_tiles(&self, layer: &Layer, index: usize) -> Range<usize> {
        let bytes = self.store.layer_bytes(layer, SOURCE);
        let from_end = bytes.saturating_mul(self.source_layers - index.min(self.source_layers));
        let start = self.kv.len().saturating_sub(self.store.encoder).saturating_sub(from_end);
        start..start.saturating_add(bytes)
    }

    /// Byte range of the cache with the encoder's own keys and values; one layer after the other uses it. It is the
    /// range of the decoder's first cross-attention layer or, if the heads differ, a separate range at the end of the
    /// cache.
    fn encoder_tiles(&self, layer: &Layer) -> Range<usize> {
        match self.store.encoder {
            0 => self.source_tiles(layer, 0),
            bytes => self.kv.len().saturating_sub(bytes)..self.kv.len(),
        }
    }

    /// Starts a pass whose only segment is the positions `rows` of the text that a context encodes.
    fn set_rows(&mut self, &Progress { context, tokens, .. }: &Progress, rows: &Range<usize>) {
        let count = rows.end.saturating_sub(rows.start); // `rows.len()` has an assertion that the compiler may keep
        self.clear();
        if let Some(segment) = self.segments.first_mut() {
            *segment = Segment::new([context, rows.start, count, tokens]);
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

    /// Starts a pass for the positions `rows` of the text that a context encodes. Copies the states of these positions
    /// into `hidden`.
    fn load_states(&mut self, at: &Progress, rows: &Range<usize>) {
        self.set_rows(at, rows);
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
