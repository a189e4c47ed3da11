//! The forward pass: tokens in, hidden states and logits out.
//!
//! A token's way: [`Engine::run`] looks up its embedding and takes it through the blocks, each
//! [`attention`] and then [`feed_forward`] (or [`experts`]), with norms and a residual around each;
//! [`Engine::head`] makes logits of it. An [`encoder`] takes its tokens through the same blocks. Every
//! linear layer goes through [`Compute`]. Which parts a block has is told by the [`Spec`] and by which
//! weights there are, never by the family's name; what differs from layer to layer is in [`Layer`].

mod attention;
mod compute;
mod embedding;
mod encoder;
mod experts;
mod feed_forward;
mod observer;
mod per_layer;
mod relative;
mod rope;

use core::ops::{ControlFlow, Range};

use crate::kernel::{Deviation, Kernels, Masks};
use crate::memory::Arena;
use crate::model::{Layer, Model, Norm, Role, Spec, Weights};
use crate::plan::Plan;
use crate::workers::Workers;
use crate::{Error, TokenId};
use attention::{Part, View};
use compute::Compute;
use encoder::Source;
pub use observer::{Observer, Stage};
pub(crate) use relative::Relative;

use rope::Rotary;

/// A model with its memory, ready to run.
pub(crate) struct Engine<'m, 'w> {
    pub spec: &'m Spec<'m>,
    plan: Plan,
    weights: Weights<'m, 'w>,
    pub compute: Compute<'m, 'w>,
    /// Of each kind of heads.
    rotary: [Rotary<'w>; 2],
    relative: Relative<'w>,
    /// The encoder, if the model has one: its states, and what it needs to run.
    pub source: Option<Source<'m, 'w>>,
    /// `[batch][dim]`: the residual stream.
    hidden: &'w mut [f32],
    /// `[batch][dim]`: what goes into a part of a block, and what comes out of it.
    branch: &'w mut [f32],
    /// What is inside a part of a block.
    inner: &'w mut [f32],
    /// `[batch][layers][per_layer_input]`.
    inputs: &'w mut [f32],
    /// Attention's sums, a piece for each worker.
    sums: &'w mut [f32],
    pub logits: &'w mut [f32],
    /// For each layer that has keys of its own, `[kv_heads][tiles]`; of a decoder behind an encoder, then
    /// the same of the encoder's states.
    pub kv: &'w mut [u8],
}

impl<'m, 'w> Engine<'m, 'w> {
    /// Cuts the workspace as planned and fills what does not change: the table of weights and the
    /// rotary frequencies.
    pub fn new(
        model: &'m Model<'_>,
        plan: &Plan,
        workspace: &'w mut [u8],
        kv: &'w mut [u8],
        kernels: &'static Kernels,
        workers: &'m dyn Workers,
    ) -> Result<Self, Error> {
        let short = Error::WorkspaceTooSmall { needed: plan.workspace, given: workspace.len() };
        let mut arena = Arena::new(workspace.get_mut(..plan.workspace).ok_or(short)?)?;
        let short_kv = Error::KvTooSmall { needed: plan.kv, given: kv.len() };
        let kv = Arena::new(kv.get_mut(..plan.kv).ok_or(short_kv)?)?.rest();

        let (spec, layout, threads) = (model.spec(), plan.layout, plan.options.workers);
        let table = arena.take(layout.weights).ok_or(short)?;
        let weights = Weights::new(model.gguf(), spec, table)?;
        let mut rotary = [Rotary::default(), Rotary::default()];
        for (kind, (rotary, frequencies)) in rotary.iter_mut().zip(layout.frequencies).enumerate() {
            let rotations = arena.take(2 * frequencies * plan.options.batch).ok_or(short)?;
            let frequencies = arena.take(frequencies).ok_or(short)?;
            *rotary = Rotary::new(spec, kind, plan.options.context, &weights, frequencies, rotations);
        }
        let hidden = arena.take(layout.hidden).ok_or(short)?;
        let branch = arena.take(layout.hidden).ok_or(short)?;
        let inner = arena.take(layout.inner).ok_or(short)?;
        let inputs = arena.take(layout.inputs).ok_or(short)?;
        let quants = arena.take(layout.quants).ok_or(short)?;
        let scales = arena.take(layout.scales).ok_or(short)?;
        let quant_sums = arena.take(layout.sums).ok_or(short)?;
        let sums = arena.take(layout.attention * threads).ok_or(short)?;
        let panels = arena.take(layout.panel * threads).ok_or(short)?;
        let logits = arena.take(layout.logits).ok_or(short)?;
        let relative = Relative::new(spec, &weights, plan, arena.take(layout.biases).ok_or(short)?);
        let source = Source::new(model, plan, &mut arena)?;
        let compute = Compute { kernels, workers, threads, quants, scales, sums: quant_sums, panels };
        Ok(Self {
            spec,
            plan: *plan,
            weights,
            compute,
            rotary,
            relative,
            source,
            hidden,
            branch,
            inner,
            inputs,
            sums,
            logits,
            kv,
        })
    }

    /// Runs `tokens`, which are at most a batch, at `position` and after. Their keys and values are then
    /// in the cache, and their states after the last block in `hidden`.
    pub fn run<O: Observer>(&mut self, tokens: &[TokenId], position: usize, observer: &mut O) -> ControlFlow<()> {
        self.run_masked(tokens, position, Masks::NONE, observer)
    }

    /// As [`run`](Self::run), with hypotheses for one position instead of a text, if there are `masks`.
    pub fn run_masked<O: Observer>(
        &mut self,
        tokens: &[TokenId],
        position: usize,
        masks: Masks<'_>,
        observer: &mut O,
    ) -> ControlFlow<()> {
        let n = tokens.len();
        let alternatives = !masks.is_none();
        self.embed(tokens, position, alternatives);
        self.layer_inputs(tokens);
        for rotary in &mut self.rotary {
            rotary.turn_to(position, n);
        }
        let mut rings = Rings::default();
        for index in 0..self.spec.layers {
            let layer = self.spec.layer(index);
            let ring = rings.of(&layer, &self.plan);
            self.show(Stage::Before, index, n, position, observer)?;
            let reach = alternatives.then_some((position + 1) * n);
            self.attention(&layer, View { ring, tokens: n, position, part: Part::All, cross: false, reach, masks });
            self.look_across(&layer, n);
            self.show(Stage::Attention, index, n, position, observer)?;
            if self.spec.experts().is_some() {
                self.experts(&layer, n);
            } else {
                self.feed_forward(&layer, n);
            }
            self.show(Stage::FeedForward, index, n, position, observer)?;
            self.layer_end(&layer, n);
            self.show(Stage::After, index, n, position, observer)?;
        }
        if observer.wants(Stage::Logits) {
            self.final_norm(0..n);
            let states = self.branch.get(..n * self.spec.dim).unwrap_or(&[]);
            observer.observe(Stage::Logits, self.spec.layers, position, states)?;
        }
        ControlFlow::Continue(())
    }

    /// The logits of token `t` of the last [`run`](Self::run): final norm and head.
    pub fn head(&mut self, t: usize) {
        self.final_norm(t..t + 1);
        let Self { spec, weights, compute, branch, logits, .. } = self;
        let Some(normed) = branch.get(..spec.dim) else { return };
        let tied = || weights.matrix(Role::TokenEmbd, 0);
        let Some(w) = weights.matrix(Role::Output, 0).or_else(tied) else { return };
        compute.input(normed, 1).times(w, logits, w.rows);
        scale(logits, spec.logit_scale);
        add_bias(logits, w.rows, weights.vector(Role::OutputBias, 0));
        if let Some(cap) = spec.logit_cap() {
            compute.kernels.soft_cap(logits, cap);
        }
    }

    /// Puts the states of some tokens, after the last norm, into `branch`.
    fn final_norm(&mut self, tokens: Range<usize>) {
        let Self { spec, weights, compute, hidden, branch, .. } = self;
        let Some(hidden) = hidden.get(tokens.start * spec.dim..tokens.end * spec.dim) else { return };
        let Some(branch) = branch.get_mut(..hidden.len()) else { return };
        copy(branch, hidden);
        if spec.final_norm {
            norm(compute, spec, weights, (Role::OutputNorm, Role::OutputNormBias, 0), branch);
        }
    }

    fn show<O: Observer>(
        &self,
        stage: Stage,
        layer: usize,
        tokens: usize,
        position: usize,
        observer: &mut O,
    ) -> ControlFlow<()> {
        if !observer.wants(stage) {
            return ControlFlow::Continue(());
        }
        observer.observe(stage, layer, position, self.hidden.get(..tokens * self.spec.dim).unwrap_or(&[]))
    }
}

/// Where in the cache the layers' rings lie, as the pass comes to them.
#[derive(Default)]
struct Rings {
    end: usize,
    /// The last one of each kind of heads: that which sharing layers read.
    last: [Range<usize>; 2],
}

impl Rings {
    /// The bytes of the next layer's.
    fn of(&mut self, layer: &Layer, plan: &Plan) -> Range<usize> {
        let [first, second] = &mut self.last;
        let last = if layer.kind == 0 { first } else { second };
        if layer.owns_kv {
            *last = self.end..self.end + plan.ring_bytes(layer);
            self.end = last.end;
        }
        last.clone()
    }
}

/// What goes into a part of a block: the hidden state, normed where a norm stands before the part.
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
        if spec.placement().before {
            norm_rows(compute.kernels, spec, weight, bias, branch);
        }
    });
}

/// Adds what a part of a block made to the hidden state, normed where a norm stands behind the part.
fn leave(
    compute: &Compute<'_, '_>,
    spec: &Spec<'_>,
    weights: &Weights<'_, '_>,
    role: (Role, usize),
    branch: &mut [f32],
    hidden: &mut [f32],
) {
    let weight = weights.vector(role.0, role.1);
    if spec.placement().behind || spec.residual_scale != 1.0 {
        compute.by_tokens(branch, spec.dim, &|_, branch| {
            if spec.placement().behind {
                norm_rows(compute.kernels, spec, weight, &[], branch);
            }
            scale(branch, spec.residual_scale);
        });
    }
    compute.by_tokens(hidden, spec.dim, &|start, hidden| add(hidden, branch.get(start..).unwrap_or(&[])));
}

/// Norms the hidden state after a part of a block, where a norm stands there.
fn norm_sum(
    compute: &Compute<'_, '_>,
    spec: &Spec<'_>,
    weights: &Weights<'_, '_>,
    role: (Role, Role, usize),
    hidden: &mut [f32],
) {
    if spec.placement().after {
        norm(compute, spec, weights, role, hidden);
    }
}

/// Norms each `dim` elements of `x` in place with the weight and bias of these roles.
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

/// Norms each `dim` elements of `x` in place.
fn norm_rows(kernels: &Kernels, spec: &Spec<'_>, weight: &[u8], bias: &[u8], x: &mut [f32]) {
    for x in rows_mut(x, spec.dim) {
        norm_one(kernels, spec, weight, bias, x);
    }
}

/// Norms all of `x` in place.
fn norm_one(kernels: &Kernels, spec: &Spec<'_>, weight: &[u8], bias: &[u8], x: &mut [f32]) {
    match spec.norm() {
        Norm::Rms => kernels.rms_norm(x, weight, spec.norm_eps),
        Norm::Layer => kernels.layer_norm(x, weight, bias, Deviation::Within(spec.norm_eps)),
        Norm::Unbiased => kernels.layer_norm(x, weight, bias, Deviation::Unbiased(spec.norm_eps)),
    }
}

/// The rows of `width` elements. (`chunks_exact` panics for 0, and the compiler does not know that no
/// width is.)
fn rows(x: &[f32], width: usize) -> core::slice::ChunksExact<'_, f32> {
    x.chunks_exact(width.max(1))
}

/// Likewise, to write.
fn rows_mut(x: &mut [f32], width: usize) -> core::slice::ChunksExactMut<'_, f32> {
    x.chunks_exact_mut(width.max(1))
}

/// `x = y`, as far as both go.
fn copy(x: &mut [f32], y: &[f32]) {
    for (x, y) in x.iter_mut().zip(y) {
        *x = *y;
    }
}

/// `x += y`.
fn add(x: &mut [f32], y: &[f32]) {
    for (x, y) in x.iter_mut().zip(y) {
        *x += y;
    }
}

/// `x *= factor`.
fn scale(x: &mut [f32], factor: f32) {
    if factor != 1.0 {
        for x in x {
            *x *= factor;
        }
    }
}

/// Adds a bias of little-endian f32, which may be empty, to each `stride` elements of `x`.
fn add_bias(x: &mut [f32], stride: usize, bias: &[u8]) {
    if bias.is_empty() {
        return;
    }
    for x in x.chunks_mut(stride.max(1)) {
        for (x, b) in x.iter_mut().zip(bias.as_chunks().0) {
            *x += f32::from_le_bytes(*b);
        }
    }
}
