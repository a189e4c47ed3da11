//! The forward pass: tokens in, hidden states and logits out.
//!
//! A token's way: [`Engine::run`] looks up its embedding and takes it through the blocks, each
//! [`attention`] and then [`feed_forward`], each with a norm before it and a residual around it;
//! [`Engine::head`] makes logits of it. Every linear layer goes through [`Compute`]. Which parts a
//! block has is told by the [`Spec`] and by which weights there are, never by the family's name.

mod attention;
mod compute;
mod feed_forward;
mod observer;
mod rope;

use core::ops::ControlFlow;

use crate::kernel::Kernels;
use crate::memory::{Arena, HeadLayout};
use crate::model::{Model, Norm, Role, Spec, Weights};
use crate::plan::Plan;
use crate::quant::decode_row;
use crate::workers::Workers;
use crate::{Error, TokenId};
use compute::Compute;
pub use observer::{Observer, Stage};
use rope::Rotary;

/// A model with its memory, ready to run.
pub(crate) struct Engine<'m, 'w> {
    pub spec: &'m Spec,
    weights: Weights<'m, 'w>,
    pub compute: Compute<'m, 'w>,
    rotary: Rotary<'w>,
    /// `[batch][dim]`: the residual stream.
    hidden: &'w mut [f32],
    /// `[batch][dim]`: what goes into a part of a block, and what comes out of it.
    branch: &'w mut [f32],
    /// What is inside a part of a block.
    inner: &'w mut [f32],
    /// Attention's sums, a piece for each worker.
    sums: &'w mut [f32],
    pub logits: &'w mut [f32],
    /// `[layers][kv_heads][tiles]`.
    kv: &'w mut [u8],
    head: HeadLayout,
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
        let frequencies = arena.take(layout.frequencies).ok_or(short)?;
        let rotations = arena.take(layout.rotations).ok_or(short)?;
        let rotary = Rotary::new(spec.rope, weights.vector(Role::RopeFreqs, 0), frequencies, rotations);
        let hidden = arena.take(layout.hidden).ok_or(short)?;
        let branch = arena.take(layout.hidden).ok_or(short)?;
        let inner = arena.take(layout.inner).ok_or(short)?;
        let quants = arena.take(layout.quants).ok_or(short)?;
        let scales = arena.take(layout.scales).ok_or(short)?;
        let offsets = arena.take(layout.offsets).ok_or(short)?;
        let sums = arena.take(layout.attention * threads).ok_or(short)?;
        let panels = arena.take(layout.panel * threads).ok_or(short)?;
        let logits = arena.take(layout.logits).ok_or(short)?;
        let compute = Compute { kernels, workers, threads, quants, scales, offsets, panels };
        let head = HeadLayout { kind: plan.options.kv, dim: spec.head_dim };
        Ok(Self { spec, weights, compute, rotary, hidden, branch, inner, sums, logits, kv, head })
    }

    /// Runs `tokens`, which are at most a batch, at `position` and after. Their keys and values are then
    /// in the cache, and their states after the last block in `hidden`.
    pub fn run<O: Observer>(&mut self, tokens: &[TokenId], position: usize, observer: &mut O) -> ControlFlow<()> {
        let n = tokens.len();
        let width = n * self.spec.dim;
        self.embed(tokens, position);
        self.rotary.turn_to(position, n);
        observer.observe(Stage::Embedding, 0, position, self.hidden.get(..width).unwrap_or(&[]))?;
        for layer in 0..self.spec.layers {
            self.attention(layer, n, position);
            observer.observe(Stage::Attention, layer, position, self.hidden.get(..width).unwrap_or(&[]))?;
            self.feed_forward(layer, n);
            observer.observe(Stage::Block, layer, position, self.hidden.get(..width).unwrap_or(&[]))?;
        }
        ControlFlow::Continue(())
    }

    /// The logits of token `t` of the last [`run`](Self::run): final norm and head.
    pub fn head(&mut self, t: usize) {
        let dim = self.spec.dim;
        let Some(x) = self.hidden.get(t * dim..(t + 1) * dim) else { return };
        let Some(normed) = self.branch.get_mut(..dim) else { return };
        normed.copy_from_slice(x);
        norm(&self.compute, self.spec, &self.weights, (Role::OutputNorm, Role::OutputNormBias, 0), normed);
        let tied = || self.weights.matrix(Role::TokenEmbd, 0);
        if let Some(w) = self.weights.matrix(Role::Output, 0).or_else(tied) {
            self.compute.input(normed, 1).times(w, self.logits, w.rows);
        }
    }

    /// Token embeddings, and position embeddings where the model has them.
    fn embed(&mut self, tokens: &[TokenId], position: usize) {
        let dim = self.spec.dim;
        let learned = self.weights.matrix(Role::PositionEmbd, 0);
        let Some(words) = self.weights.matrix(Role::TokenEmbd, 0) else { return };
        for ((t, &token), x) in tokens.iter().enumerate().zip(self.hidden.chunks_exact_mut(dim.max(1))) {
            decode_row(words.kind, words.row(token as usize), x);
            if let (Some(learned), Some(p)) = (learned, self.branch.get_mut(..dim)) {
                decode_row(learned.kind, learned.row(position + t), p);
                add(x, p);
            }
        }
    }
}

/// Norms each `dim` elements of `x` in place with the weight and bias of these roles.
fn norm(compute: &Compute<'_, '_>, spec: &Spec, weights: &Weights<'_, '_>, role: (Role, Role, usize), x: &mut [f32]) {
    let (weight, bias, layer) = role;
    let (weight, bias) = (weights.vector(weight, layer), weights.vector(bias, layer));
    for x in x.chunks_exact_mut(spec.dim.max(1)) {
        match spec.norm {
            Norm::Rms => compute.kernels.rms_norm(x, weight, spec.norm_eps),
            Norm::Layer => compute.kernels.layer_norm(x, weight, bias, spec.norm_eps),
        }
    }
}

/// `x += y`.
fn add(x: &mut [f32], y: &[f32]) {
    for (x, y) in x.iter_mut().zip(y) {
        *x += y;
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
