//! The forward pass: computes hidden states and logits from tokens.
//!
//! [`Forward::add`] looks up the embeddings of tokens. [`Forward::layer`] runs a layer: [`attention`], then
//! [`feed_forward`] (or [`experts`]), each with norms and a residual. [`Forward::head`] computes logits. An [`encoder`]
//! runs its tokens through the same code. All linear layers use [`Compute`]. The operations of a layer depend on the
//! [`Spec`] and on the weights in the file; [`Layer`] has the parameters that differ between layers.

mod altup;
mod angle;
mod attention;
mod compute;
mod embedding;
mod encoder;
mod experts;
mod feed_forward;
#[cfg(feature = "sound")]
mod front;
mod hadamard;
mod kimi;
#[cfg(feature = "lora")]
mod lora;
mod mamba;
mod mla;
#[cfg(feature = "drafts")]
mod next;
mod observer;
mod per_layer;
mod pooled;
mod recurrent;
mod relative;
mod reuse;
mod rope;
mod rwkv;
mod turns;
#[cfg(feature = "drafts")]
mod undo;
#[cfg(feature = "storage")]
mod window;

use core::ops::{ControlFlow, Range};

use super::layout::{POOLS, Pieces, STATES, Segment, Store};
#[cfg(feature = "vision")]
use super::picture_turns::Turns;
use super::profile::Section;
use crate::built;
use crate::kernel::{Deviation, Kernels, add, copy};
use crate::memory::Pool;
use crate::model::{Layer, Model, Norm, Recurrent, RecurrentKind, Role, Spec, Weights};
use crate::workers::Serial;
use crate::{Error, TokenId};
#[cfg(feature = "vision")]
pub(crate) use angle::sine_cosine;
use attention::{Part, View};
pub(crate) use compute::Compute;
use encoder::Source;
pub(crate) use encoder::{Input as EncoderInput, Progress};
#[cfg(feature = "lora")]
use lora::Lora;
#[cfg(feature = "drafts")]
pub(crate) use next::{Next, Rows};
pub use observer::{Inputs, Observer, Stage};
use relative::Relative;
use rope::Rotary;
#[cfg(feature = "drafts")]
pub(crate) use undo::Undo;
#[cfg(feature = "storage")]
use window::Window;
#[cfg(feature = "storage")]
pub(crate) use window::window_bytes;

/// A model with its workspace and the pages of all contexts; runs layers on the rows of a pass.
///
/// The rows of a pass belong to one or more contexts; consecutive rows of one context are a [`Segment`]. All operations
/// except attention process all rows at once; attention reads the pages of each row's context.
pub(crate) struct Forward<'m, 'w> {
    pub spec: &'m Spec<'m>,
    weights: Weights<'m, 'w>,
    pub compute: Compute<'m, 'w>,
    store: Store,
    /// Number of layers with cross-attention.
    source_layers: usize,
    /// Rotations of global and of local heads.
    rotary: [Rotary<'w>; 2],
    relative: Relative<'w>,
    /// The encoder, if the model has one.
    pub source: Option<Source<'m, 'w>>,
    /// `[batch][dim]`: the residual stream.
    hidden: &'w mut [f32],
    /// `[batch][dim]`: the input of a layer's attention or feed-forward. Later, the output of the same part of the
    /// layer.
    branch: &'w mut [f32],
    /// Intermediate values of attention or feed-forward.
    inner: &'w mut [f32],
    /// The additional input that each layer has per token, `[batch][layers][per_layer_input]`. After it come the
    /// vectors that [`Spec::beside`] counts.
    inputs: &'w mut [f32],
    /// Scratch of attention, in equal shares per worker.
    sums: &'w mut [f32],
    /// `[rows of logits][vocab]`.
    pub logits: &'w mut [f32],
    /// First position of a pair's second text.
    pub second: usize,
    /// Segments of the pass, in order.
    segments: &'w mut [Segment],
    /// Number of segments.
    parts: usize,
    /// Number of rows of all segments.
    rows: usize,
    /// End of the tiles of the layers processed so far.
    tiles_end: usize,
    /// Page pools.
    pub pools: [Pool<'w>; POOLS],
    /// KV cache, laid out by [`Store`].
    pub kv: &'w mut [u8],
    /// The layers that predict further tokens, if planned.
    #[cfg(feature = "drafts")]
    pub next: Option<Next<'m, 'w>>,
    #[cfg(feature = "drafts")]
    pub undo: Undo<'w>,
    /// The pictures that contexts have read.
    #[cfg(feature = "vision")]
    pub turns: Turns<'w>,
}

/// Divides the words of page tables among the pools.
#[inline(always)]
fn pools<'w>(store: &Store, mut words: &'w mut [u32]) -> [Pool<'w>; POOLS] {
    let mut pools: [Pool<'_>; POOLS] = Default::default();
    for (pool, (pages, width)) in pools.iter_mut().zip(store.pages.into_iter().zip(store.tiles)) {
        let (pages, rest) = core::mem::take(&mut words).split_at_mut_checked(pages).unwrap_or_default();
        let (tables, rest) = rest.split_at_mut_checked(width * store.contexts).unwrap_or_default();
        words = rest;
        *pool = Pool::new(pages, tables, width);
    }
    pools
}

/// Limits that the plan was made for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// Positions in a context.
    pub context: usize,
    /// Number of workers.
    pub threads: usize,
}

impl<'m, 'w> Forward<'m, 'w> {
    /// Creates the pass and fills its constants, such as the rotary frequencies. The tables of weights were filled by
    /// [`fill_tables`](Self::fill_tables).
    pub fn new(model: &'m Model<'_>, store: Store, sizes: Sizes, pieces: Pieces<'w>, kv: &'w mut [u8]) -> Self {
        let Sizes { context, threads } = sizes;
        let spec = model.spec();
        let weights = Weights::new(model.gguf(), spec, pieces.weights, pieces.vectors);
        let rotary = [
            Rotary::new(spec, 0, context, &weights, pieces.frequencies, pieces.rotations),
            Rotary::new(spec, 1, context, &weights, pieces.local_frequencies, pieces.local_rotations),
        ];
        let source = if !built::ENCODER || pieces.states.is_empty() {
            None
        } else {
            let other = model.encoder().map(|spec| {
                let weights = Weights::new(model.gguf(), spec, pieces.source_weights, pieces.source_vectors);
                let relative = Relative::new(spec, &weights, context, pieces.source_biases);
                (spec, weights, relative)
            });
            Some(Source { other, states: pieces.states, tokens: 0 })
        };
        #[cfg(feature = "drafts")]
        let next = model.drafter().filter(|_| !pieces.kept_tokens.is_empty()).map(|(next, file)| {
            let weights = Weights::new(file, next, pieces.next_weights, pieces.next_vectors);
            let rotary = [
                Rotary::new(next, 0, context, &weights, pieces.next_frequencies, pieces.next_rotations),
                Rotary::new(next, 1, context, &weights, pieces.next_local_frequencies, pieces.next_local_rotations),
            ];
            let kept = pieces.kept_tokens.len() / store.contexts.max(1);
            Next {
                spec: next,
                weights,
                rotary,
                tiles: next::tiles(&store, spec, next),
                kept,
                tokens: pieces.kept_tokens,
                states: pieces.kept_states,
                fresh: pieces.fresh_states,
            }
        });
        Self {
            spec,
            relative: Relative::new(spec, &weights, context, pieces.biases),
            weights,
            compute: Compute {
                kernels: Kernels::detect(),
                workers: &Serial,
                profiler: None,
                threads,
                quants: pieces.quants,
                scales: pieces.scales,
                sums: pieces.quant_sums,
                panels: pieces.panels,
                inputs: None,
                #[cfg(feature = "storage")]
                window: Window::new(pieces.window),
                #[cfg(feature = "lora")]
                lora: Lora::new(
                    (model.gguf().pieces(), store.contexts),
                    (pieces.pairs, pieces.adapter_scales, pieces.owners),
                    pieces.low,
                ),
            },
            pools: pools(&store, pieces.pages),
            store,
            source_layers: if spec.has_cross_attention() { spec.layers } else { 1 },
            rotary,
            source,
            hidden: pieces.hidden,
            branch: pieces.branch,
            inner: pieces.inner,
            inputs: pieces.inputs,
            sums: pieces.sums,
            logits: pieces.logits,
            segments: pieces.segments,
            parts: 0,
            rows: 0,
            tiles_end: 0,
            second: usize::MAX,
            kv,
            #[cfg(feature = "drafts")]
            next,
            #[cfg(feature = "drafts")]
            undo: Undo::new(pieces.ahead, pieces.pending, pieces.tentative, store.contexts),
            #[cfg(feature = "vision")]
            turns: Turns::new(pieces.turns, store.contexts),
        }
    }

    /// Fills the table with the places of the model's weights and, if the model has an encoder, the table of the
    /// encoder's weights.
    pub fn fill_tables(model: &Model<'_>, pieces: &mut Pieces<'_>) -> Result<(), Error> {
        Weights::fill(model.gguf(), model.spec(), pieces.weights, pieces.vectors)?;
        #[cfg(feature = "drafts")]
        if let Some((next, file)) = model.drafter().filter(|_| !pieces.kept_tokens.is_empty()) {
            Weights::fill(file, next, pieces.next_weights, pieces.next_vectors)?;
        }
        match model.encoder().filter(|_| built::ENCODER) {
            Some(spec) => Weights::fill(model.gguf(), spec, pieces.source_weights, pieces.source_vectors),
            None => Ok(()),
        }
    }

    /// Maximum number of rows in a pass.
    pub fn batch(&self) -> usize {
        self.hidden.len().checked_div(self.spec.dim).unwrap_or(0)
    }

    /// Starts an empty pass.
    pub fn clear(&mut self) {
        (self.parts, self.rows) = (0, 0);
    }

    /// Number of rows that can still be added to the pass.
    pub fn room(&self) -> usize {
        if self.parts < self.segments.len() { self.batch().saturating_sub(self.rows) } else { 0 }
    }

    /// Adds the next tokens of a context to the pass, as rows. There must be [`room`](Self::room) for them, and their
    /// pages must be reserved. Returns the index of the first of these rows.
    pub fn add(&mut self, segment: Segment, tokens: &[TokenId]) -> usize {
        let first = self.rows;
        let Some(place) = self.segments.get_mut(self.parts) else { return first };
        *place = segment;
        self.parts += 1;
        self.rows += tokens.len();
        #[cfg(feature = "lora")]
        self.compute.lora.own(first, tokens.len(), segment.context);
        self.embed(tokens, first, segment.position as usize);
        self.embed_for_layers(tokens, first);
        for rotary in &mut self.rotary {
            rotary.turn_to(first, segment.position as usize, tokens.len());
        }
        self.compute.done(Section::Embedding);
        first
    }

    /// Replaces the embedding of a row by the vector of a picture, multiplied by `picture_scale`, which is 1 for most
    /// models.
    #[cfg(feature = "vision")]
    pub fn replace(&mut self, row: usize, vector: &[f32]) {
        let Self { spec, hidden, .. } = self;
        if let Some(x) = hidden.get_mut(row * spec.dim..(row + 1) * spec.dim) {
            copy(x, vector);
            scale(x, spec.picture_scale);
        }
    }

    /// Adds a vector to the hidden state of a row.
    #[cfg(feature = "vision")]
    pub fn add_to(&mut self, row: usize, vector: &[f32]) {
        let dim = self.spec.dim;
        add(self.hidden.get_mut(row * dim..(row + 1) * dim).unwrap_or_default(), vector);
    }

    /// Computes the rotations of row `row` in a model whose positions have three axes: time, line and column.
    #[cfg(feature = "vision")]
    pub fn turn(&mut self, row: usize, axes: [usize; 3]) {
        if let Some(sections) = self.spec.sections() {
            self.rotary.iter_mut().for_each(|rotary| rotary.turn_axes(row, axes, sections));
        }
    }

    /// Runs one layer on all rows, and stores the keys and values of the rows in the layer's section of the cache.
    pub fn layer<O: Observer>(&mut self, index: usize, observer: &mut O) -> ControlFlow<()> {
        let layer = self.spec.layer(index);
        let has_streams = self.spec.altup().is_some();
        if index == 0 {
            self.layer_inputs();
            if has_streams {
                self.open_streams();
            }
            self.keep_embedding();
            self.compute.done(Section::Embedding);
        }
        self.take_turn(index);
        self.show(Stage::Before, index, observer)?;
        let tiles = self.tiles(&layer);
        let mixer = if layer.has_state() { self.spec.recurrent() } else { None };
        if mixer.is_some() && layer.has_attention() || self.spec.keeps_input() {
            self.hold();
        }
        if has_streams {
            self.predict(&layer);
        }
        if layer.has_attention() {
            let view = View { tiles, pool: layer.pool(), part: Part::All, cross: false };
            match self.spec.latent() {
                Some(latent) => self.latent_attention(&layer, &latent, &view),
                None => self.attention(&layer, view),
            }
        }
        if has_streams {
            self.join();
        }
        if let Some(mixer) = mixer {
            match mixer.kind {
                RecurrentKind::Mamba => self.mamba(&layer, &mixer),
                RecurrentKind::Rwkv7 | RecurrentKind::Rwkv6 | RecurrentKind::Qrwkv6 => self.time_mix(&layer, &mixer),
                RecurrentKind::KimiDelta => self.kimi_delta(&layer, &mixer),
                _ => self.recurrent(&layer, &mixer),
            }
            self.compute.done(Section::State);
        }
        self.look_across(&layer);
        self.show(Stage::Attention, index, observer)?;
        self.after_attention(&layer, self.rows);
        if has_streams {
            self.correct(&layer);
        }
        self.show(Stage::FeedForward, index, observer)?;
        self.layer_end(&layer, self.rows);
        if has_streams && index + 1 == self.spec.layers {
            self.close_streams();
        } else {
            self.norm_between(index);
        }
        self.compute.done(Section::Embedding);
        self.show(Stage::After, index, observer)
    }

    /// In a model whose layers run several times, applies the final norm between two of these runs.
    fn norm_between(&mut self, index: usize) {
        let Self { spec, weights, compute, hidden, rows, .. } = self;
        if let (Some(loops), Some(hidden)) = (spec.loops(), hidden.get_mut(..*rows * spec.dim))
            && loops.normed
            && (index + 1).checked_rem(loops.run()) == Some(0)
            && !(spec.takes_turns() && index + 1 == spec.layers)
        {
            norm(compute, spec, weights, (Role::OutputNorm, Role::OutputNormBias, 0), hidden);
        }
    }

    /// Runs the second half of a layer: the feed-forward, the experts, or both.
    fn after_attention(&mut self, layer: &Layer, tokens: usize) {
        if let (true, Some(Recurrent { kind: RecurrentKind::Rwkv6, .. })) = (built::RWKV, self.spec.recurrent()) {
            return self.channel_mix(layer);
        }
        if layer.ffn > 0 && (!layer.has_experts || self.spec.has_dense_beside()) {
            self.feed_forward(layer, tokens);
        }
        if layer.has_experts {
            self.experts(layer, tokens);
        }
    }

    /// Shows the observer the input of the head.
    pub fn show_last<O: Observer>(&mut self, observer: &mut O) -> ControlFlow<()> {
        if !observer.wants(Stage::Logits) {
            return ControlFlow::Continue(());
        }
        self.final_norm(0..self.rows, 0);
        self.show_states(self.branch, Stage::Logits, self.spec.layers, observer)
    }

    /// Copies shared pages that a context is about to write to.
    pub fn provide(&mut self, context: usize, kind: usize) {
        let Self { pools, kv, store, spec, .. } = self;
        #[cfg(feature = "drafts")]
        let next = &self.next;
        let Some(pool) = pools.get_mut(kind) else { return };
        pool.provide(context, |from, to| {
            if built::STATES && kind == STATES {
                if let (Some(from), Some(to)) = (store.state_page(from), store.state_page(to)) {
                    copy_piece(kv, from.start, to.start, from.len());
                }
                return;
            }
            let mut start = 0;
            for layer in (0..spec.layers).map(|index| spec.layer(index)).filter(|layer| layer.owns_kv) {
                let end = start + store.layer_bytes(&layer, layer.pool());
                if layer.pool() == kind
                    && let Some(tiles) = kv.get_mut(start..end)
                {
                    copy_tiles(tiles, store.pages.get(kind).copied().unwrap_or(0), layer.kv_heads, from, to);
                }
                start = end;
            }
            #[cfg(feature = "drafts")]
            if let Some(next) = next.as_ref().filter(|next| next.owns_keys()) {
                let layer = next.spec.layer(0);
                if layer.pool() == kind
                    && let Some(tiles) = kv.get_mut(start..start + store.next)
                {
                    copy_tiles(tiles, store.pages.get(kind).copied().unwrap_or(0), layer.kv_heads, from, to);
                }
            }
        });
    }

    /// Releases the pages that were claimed for a context.
    pub fn unclaim(&mut self, context: usize, kind: usize) {
        if let Some(pool) = self.pools.get_mut(kind) {
            pool.unclaim(context);
        }
    }

    /// Returns the byte range of the cache's tiles that a layer attends to. A layer without keys of its own attends to
    /// the tiles of another layer. The function must be called for the layers in order, because `tiles_end` adds up the
    /// tiles of the layers before.
    fn tiles(&mut self, layer: &Layer) -> Range<usize> {
        if layer.index == 0 {
            self.tiles_end = 0;
        }
        if layer.owns_kv {
            let start = self.tiles_end;
            self.tiles_end += self.store.layer_bytes(layer, layer.pool());
            return start..self.tiles_end;
        }
        let owner = self.spec.owner(layer.is_local).unwrap_or(0);
        let before = (0..owner).map(|index| self.spec.layer(index)).filter(|layer| layer.owns_kv);
        let start = before.map(|layer| self.store.layer_bytes(&layer, layer.pool())).sum();
        start..start + self.store.layer_bytes(&self.spec.layer(owner), layer.pool())
    }

    /// Computes the logits of the first `count` rows of `branch`, which [`final_norm`](Self::final_norm) has stored
    /// there. Writes them to the rows of the logits from row `to` on.
    pub fn head(&mut self, count: usize, to: usize) {
        let Self { spec, weights, compute, branch, logits, .. } = self;
        let vocab = spec.vocab;
        let (Some(normed), Some(logits)) =
            (branch.get(..count * spec.dim), logits.get_mut(to * vocab..(to + count) * vocab))
        else {
            return;
        };
        let tied = || weights.matrix(Role::TokenEmbd, 0);
        let head = weights.matrix(Role::Output, 0);
        #[cfg(feature = "drafts")]
        let head = weights.matrix(Role::NextHead, 0).or(head);
        let Some(w) = head.or_else(tied).filter(|_| count > 0) else { return };
        compute.by_selected(true);
        compute.times((normed, count), w, logits, vocab);
        compute.by_selected(false);
        scale(logits, spec.logit_scale);
        add_bias(logits, vocab, weights.vector(Role::OutputBias, 0));
        if let Some(cap) = spec.logit_cap() {
            compute.kernels.soft_cap(logits, cap);
        }
        compute.done(Section::Head);
    }

    /// Applies the final norm to the rows `rows`, and stores the results in `branch` from row `to` on. Returns the
    /// number of these rows.
    pub fn final_norm(&mut self, rows: Range<usize>, to: usize) -> usize {
        let Self { spec, weights, compute, hidden, branch, .. } = self;
        let count = rows.end.saturating_sub(rows.start); // `rows.len()` has an assertion that the compiler may keep
        let Some(hidden) = hidden.get(rows.start * spec.dim..rows.end * spec.dim) else { return 0 };
        let Some(branch) = branch.get_mut(to * spec.dim..(to + count) * spec.dim) else { return 0 };
        copy(branch, hidden);
        rows.enumerate().for_each(|(i, row)| compute.select(to + i, row));
        if spec.final_norm {
            norm(compute, spec, weights, (Role::OutputNorm, Role::OutputNormBias, 0), branch);
        }
        compute.done(Section::Norms);
        count
    }

    fn show<O: Observer>(&self, stage: Stage, layer: usize, observer: &mut O) -> ControlFlow<()> {
        if !observer.wants(stage) {
            return ControlFlow::Continue(());
        }
        self.show_states(self.hidden, stage, layer, observer)
    }

    /// Calls `observer` with the `states` of the pass, once for each context.
    fn show_states<O: Observer>(
        &self,
        states: &[f32],
        stage: Stage,
        layer: usize,
        observer: &mut O,
    ) -> ControlFlow<()> {
        let mut row = 0;
        for segment in self.segments.iter().take(self.parts) {
            let end = row + segment.tokens as usize;
            let states = states.get(row * self.spec.dim..end * self.spec.dim).unwrap_or(&[]);
            observer.observe(stage, layer, segment.position as usize, states)?;
            row = end;
        }
        ControlFlow::Continue(())
    }
}

/// Copies tile `from` to tile `to`, for each head.
fn copy_tiles(tiles: &mut [u8], pages: usize, kv_heads: usize, from: usize, to: usize) {
    let head = tiles.len().checked_div(kv_heads).unwrap_or(0);
    for tiles in rows_mut(tiles, head) {
        let bytes = tiles.len().checked_div(pages).unwrap_or(0);
        copy_piece(tiles, from * bytes, to * bytes, bytes);
    }
}

/// Copies `len` bytes from offset `from` to offset `to`; the ranges must not overlap.
fn copy_piece(bytes: &mut [u8], from: usize, to: usize, len: usize) {
    let Some((before, after)) = bytes.split_at_mut_checked(from.max(to)) else { return };
    let low = before.get_mut(from.min(to)..).and_then(|low| low.get_mut(..len));
    let (Some(low), Some(high)) = (low, after.get_mut(..len)) else { return };
    let (from, to) = if from < to { (low, high) } else { (high, low) };
    for (to, from) in to.iter_mut().zip(from) {
        *to = *from;
    }
}

/// Stores the input of attention or feed-forward in `branch`: the hidden state, normed if the model has a pre-norm.
fn enter(
    compute: &Compute<'_, '_>,
    spec: &Spec<'_>,
    weights: &Weights<'_, '_>,
    role: (Role, Role, usize),
    hidden: &[f32],
    branch: &mut [f32],
) {
    let (weight, bias, layer) = role;
    let (weight, bias) = (weights.vector(weight, layer), weights.vector(bias, layer));
    compute.by_tokens(branch, spec.dim, &|start, branch| {
        copy(branch, hidden.get(start..).unwrap_or(&[]));
        if spec.placement().pre_norm && (!weight.is_empty() || spec.bare_norm()) {
            norm_rows(compute.kernels, spec, weight, bias, branch);
        }
    });
    compute.done(Section::Norms);
}

/// Adds the output of attention or feed-forward to the hidden state. Before the addition, the output is normed (if the
/// model has a post-norm) and multiplied by `residual_scale`.
fn leave(
    compute: &Compute<'_, '_>,
    spec: &Spec<'_>,
    weights: &Weights<'_, '_>,
    role: (Role, usize),
    branch: &mut [f32],
    hidden: &mut [f32],
) {
    let weight = weights.vector(role.0, role.1);
    if spec.placement().post_norm || spec.residual_scale != 1.0 {
        compute.by_tokens(branch, spec.dim, &|_, branch| {
            if spec.placement().post_norm {
                match spec.post_norm_eps {
                    Some(eps) => rows_mut(branch, spec.dim).for_each(|x| compute.kernels.rms_norm(x, weight, eps)),
                    None => norm_rows(compute.kernels, spec, weight, &[], branch),
                }
            }
            scale(branch, spec.residual_scale);
        });
    }
    compute.by_tokens(hidden, spec.dim, &|start, hidden| add(hidden, branch.get(start..).unwrap_or(&[])));
    compute.done(Section::Norms);
}

/// Norms the hidden state after the residual addition, if the model has a norm there.
fn norm_sum(
    compute: &Compute<'_, '_>,
    spec: &Spec<'_>,
    weights: &Weights<'_, '_>,
    role: (Role, Role, usize),
    hidden: &mut [f32],
) {
    if spec.placement().residual_norm {
        norm(compute, spec, weights, role, hidden);
    }
}

/// Norms each row of `x`, which has `dim` elements, in place. The weight and the bias are the tensors of the given
/// roles.
fn norm(
    compute: &Compute<'_, '_>,
    spec: &Spec<'_>,
    weights: &Weights<'_, '_>,
    role: (Role, Role, usize),
    x: &mut [f32],
) {
    let (weight, bias, layer) = role;
    let (weight, bias) = (weights.vector(weight, layer), weights.vector(bias, layer));
    compute.by_tokens(x, spec.dim, &|_, x| norm_rows(compute.kernels, spec, weight, bias, x));
}

/// Norms every `dim` elements of `x` in place.
fn norm_rows(kernels: &Kernels, spec: &Spec<'_>, weight: &[u8], bias: &[u8], x: &mut [f32]) {
    for x in rows_mut(x, spec.dim) {
        norm_one(kernels, spec, weight, bias, x);
    }
}

/// Norms `x` as one vector in place.
fn norm_one(kernels: &Kernels, spec: &Spec<'_>, weight: &[u8], bias: &[u8], x: &mut [f32]) {
    match spec.norm() {
        Norm::Rms => kernels.rms_norm(x, weight, spec.norm_eps),
        Norm::Layer => kernels.layer_norm(x, weight, bias, Deviation::Within(spec.norm_eps)),
        Norm::Unbiased => kernels.layer_norm(x, weight, bias, Deviation::Unbiased(spec.norm_eps)),
    }
}

/// Splits `x` into rows of `width` elements. `chunks_exact` is not used, because it panics for a width of 0, which the
/// compiler cannot rule out.
pub(crate) fn rows<T>(mut x: &[T], width: usize) -> impl Iterator<Item = &[T]> {
    core::iter::from_fn(move || {
        let (row, rest) = x.split_at_checked(width.max(1))?;
        x = rest;
        Some(row)
    })
}

/// Mutable rows of `width` elements.
pub(crate) fn rows_mut<T>(mut x: &mut [T], width: usize) -> impl Iterator<Item = &mut [T]> {
    core::iter::from_fn(move || {
        let (row, rest) = core::mem::take(&mut x).split_at_mut_checked(width.max(1))?;
        x = rest;
        Some(row)
    })
}

fn scale(x: &mut [f32], factor: f32) {
    if factor != 1.0 {
        for x in x {
            *x *= factor;
        }
    }
}

/// Adds a bias to each row of `x`, which has `stride` elements. The bias is little-endian f32, and may be empty.
pub(crate) fn add_bias(x: &mut [f32], stride: usize, bias: &[u8]) {
    if bias.is_empty() {
        return;
    }
    for x in x.chunks_mut(stride.max(1)) {
        for (x, b) in x.iter_mut().zip(bias.as_chunks().0) {
            *x += f32::from_le_bytes(*b);
        }
    }
}
