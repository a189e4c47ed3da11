//! A running model: prefill, decode, rewind, save and restore.

mod snapshot;

use core::ops::ControlFlow;

use crate::forward::{Engine, Observer};
use crate::kernel::{Kernels, Masks};
use crate::model::{Model, Pooling, Stack};
use crate::plan::Plan;
use crate::workers::{Serial, Workers};
use crate::{Error, TokenId};

/// A model at work in the caller's memory: a KV cache, a position in it, and the last logits.
///
/// The results do not depend on how a prompt is cut into batches, on the number of workers, or on
/// the kernels: always the same bits.
pub struct Session<'m, 'w> {
    model: &'m Model<'m>,
    engine: Engine<'m, 'w>,
    position: usize,
    /// One past the furthest position ever written: what a sliding window has overwritten.
    reached: usize,
    plan: Plan,
}

impl<'m, 'w> Session<'m, 'w> {
    /// Sets up a session in `workspace` and `kv`, which hold at least the planned bytes and start on
    /// [`ALIGN`](crate::memory::ALIGN) boundaries. Nothing beyond the planned bytes is touched, and
    /// the memory need not be zeroed.
    ///
    /// # Errors
    ///
    /// [`Error::WorkspaceTooSmall`], [`Error::KvTooSmall`] and [`Error::Misaligned`];
    /// [`Error::PlanMismatch`] if the plan was made for another model.
    pub fn new(model: &'m Model<'_>, plan: Plan, workspace: &'w mut [u8], kv: &'w mut [u8]) -> Result<Self, Error> {
        if Plan::try_of(model.gguf(), plan.options)? != plan {
            return Err(Error::PlanMismatch);
        }
        let engine = Engine::new(model, &plan, workspace, kv, Kernels::detect(), &Serial)?;
        Ok(Self { model, engine, position: 0, reached: 0, plan })
    }

    /// Shares the work among `workers`; the plan says how many take part.
    #[must_use]
    pub fn with_workers(mut self, workers: &'m dyn Workers) -> Self {
        self.engine.compute.workers = workers;
        self
    }

    /// Runs on these kernels rather than on the fastest.
    #[must_use]
    pub fn with_kernels(mut self, kernels: &'static Kernels) -> Self {
        self.engine.compute.kernels = kernels;
        self
    }

    /// Runs the encoder on a text; a decoder behind it begins anew, at position 0, and attends to this text
    /// from now on. Afterwards [`states`](Self::states) are those of the text.
    ///
    /// # Errors
    ///
    /// [`Error::NoPart`] if the model has no encoder; [`Error::EmptyPrompt`], [`Error::TokenOutOfRange`],
    /// [`Error::ContextFull`]: nothing has been run then.
    pub fn encode(&mut self, text: &[TokenId]) -> Result<(), Error> {
        let source = self.engine.source.as_ref().ok_or(Error::NoPart { part: "encoder" })?;
        check_tokens(text, source.spec().unwrap_or(self.engine.spec).vocab)?;
        if text.len() > self.context() {
            return Err(Error::ContextFull { context: self.context(), needed: text.len() });
        }
        self.engine.encode(text);
        (self.position, self.reached) = (0, 0);
        Ok(())
    }

    /// What the encoder made of the last text: `[tokens][dim]`; empty before the first.
    pub fn states(&self) -> &[f32] {
        self.engine.source.as_ref().map_or(&[], |source| source.states(self.engine.spec.dim))
    }

    /// The states of the text as one vector, as the model means it (the mean, if it does not say): `dim`
    /// numbers into `out`.
    ///
    /// # Errors
    ///
    /// [`Error::NoSource`] before the first text; [`Error::BufferTooSmall`].
    pub fn pooled(&self, out: &mut [f32]) -> Result<(), Error> {
        let (dim, states, given) = (self.engine.spec.dim, self.states(), out.len());
        let short = Error::BufferTooSmall { what: "buffer for the embedding", needed: dim, given };
        let out = out.get_mut(..dim).ok_or(short)?;
        let tokens = states.len() / dim;
        let pooling = match self.engine.spec.stack() {
            Stack::Encoder { pooling } => pooling,
            _ => Pooling::Mean,
        };
        let mut states = states.chunks_exact(dim);
        match pooling {
            Pooling::First => out.copy_from_slice(states.next().ok_or(Error::NoSource)?),
            Pooling::Last => out.copy_from_slice(states.next_back().ok_or(Error::NoSource)?),
            Pooling::Mean => {
                out.copy_from_slice(states.next().ok_or(Error::NoSource)?);
                states.for_each(|state| out.iter_mut().zip(state).for_each(|(sum, x)| *sum += x));
                out.iter_mut().for_each(|sum| *sum /= tokens as f32);
            }
        }
        Ok(())
    }

    /// Runs `tokens` after what is in the context. Afterwards [`logits`](Self::logits) are those
    /// of the last one.
    ///
    /// # Errors
    ///
    /// [`Error::EmptyPrompt`], [`Error::TokenOutOfRange`], [`Error::ContextFull`]; [`Error::NoPart`] if the
    /// model is an encoder, [`Error::NoSource`] if its decoder has no text yet: nothing has been run then.
    pub fn prefill(&mut self, tokens: &[TokenId]) -> Result<(), Error> {
        self.prefill_observed(tokens, &mut ()).map(|_| ())
    }

    /// As [`prefill`](Self::prefill), and `observer` sees the hidden states of every batch. If it
    /// breaks, the batches before are in the context and the rest are not, and the logits are those
    /// from before.
    ///
    /// # Errors
    ///
    /// As for [`prefill`](Self::prefill).
    pub fn prefill_observed<O: Observer>(
        &mut self,
        tokens: &[TokenId],
        observer: &mut O,
    ) -> Result<ControlFlow<()>, Error> {
        self.check(tokens)?;
        let mut last = 0;
        for batch in tokens.chunks(self.plan.options.batch.max(1)) {
            let flow = self.engine.run(batch, self.position, observer);
            // Even a batch that was stopped has overwritten what a ring held before it.
            self.reached = self.reached.max(self.position + batch.len());
            if flow.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            self.advance(batch.len());
            last = batch.len() - 1;
        }
        self.engine.head(last);
        Ok(ControlFlow::Continue(()))
    }

    /// As [`prefill`](Self::prefill), and `each` is called with the position and the logits (one f32 for
    /// each word of the vocabulary) of every token.
    ///
    /// # Errors
    ///
    /// As for [`prefill`](Self::prefill).
    pub fn prefill_all(&mut self, tokens: &[TokenId], mut each: impl FnMut(usize, &[f32])) -> Result<(), Error> {
        self.check(tokens)?;
        for batch in tokens.chunks(self.plan.options.batch.max(1)) {
            let _ = self.engine.run(batch, self.position, &mut ());
            for t in 0..batch.len() {
                self.engine.head(t);
                each(self.position + t, self.engine.logits);
            }
            self.advance(batch.len());
        }
        Ok(())
    }

    /// Runs one token.
    ///
    /// # Errors
    ///
    /// As for [`prefill`](Self::prefill).
    pub fn decode(&mut self, token: TokenId) -> Result<(), Error> {
        self.prefill(&[token])
    }

    /// The logits of the last token: one f32 for each word of the vocabulary. Unspecified before the
    /// first [`prefill`](Self::prefill).
    pub fn logits(&self) -> &[f32] {
        self.engine.logits
    }

    /// The logits, for a sampler to work on in place.
    pub fn logits_mut(&mut self) -> &mut [f32] {
        self.engine.logits
    }

    /// Tokens in the context: the position of the next one.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Positions in the context.
    pub fn context(&self) -> usize {
        self.plan.options.context
    }

    /// Forgets everything from `position` on; the logits stay as they are.
    ///
    /// # Errors
    ///
    /// [`Error::CannotRewind`] if the session has not come that far, or if a sliding window has
    /// overwritten what the token at `position` would see.
    pub fn rewind(&mut self, position: usize) -> Result<(), Error> {
        let earliest = self.earliest(self.reached);
        if position > self.position || position < earliest && position != 0 {
            return Err(Error::CannotRewind { position, earliest, latest: self.position });
        }
        self.position = position;
        if position == 0 {
            self.reached = 0;
        }
        Ok(())
    }

    /// Where a session that came as far as `reached` can go back to, besides 0.
    fn earliest(&self, reached: usize) -> usize {
        let earliest = (0..).zip([self.engine.spec.global, self.engine.spec.local]).filter_map(|(kind, heads)| {
            // A ring still holds the positions from `reached - kept` on; the next token sees `window - 1`
            // before it.
            match (heads.window, reached.checked_sub(self.plan.kept(kind))) {
                (None, _) | (_, None | Some(0)) => None,
                (Some(window), Some(lost)) => Some(lost + window - 1),
            }
        });
        earliest.max().unwrap_or(0)
    }

    /// What was planned.
    pub(crate) fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Runs hypotheses for one position, which `seen` masks; without masks, a token.
    pub(crate) fn run_alternatives(&mut self, tokens: &[TokenId], position: usize, seen: Masks<'_>) {
        let _ = self.engine.run_masked(tokens, position, seen, &mut ());
    }

    /// The logits of token `t` of the last pass.
    pub(crate) fn head(&mut self, t: usize) -> &[f32] {
        self.engine.head(t);
        self.engine.logits
    }

    fn advance(&mut self, tokens: usize) {
        self.position += tokens;
        self.reached = self.reached.max(self.position);
    }

    /// Whether `tokens` can be run.
    pub(crate) fn check(&self, tokens: &[TokenId]) -> Result<(), Error> {
        if !self.engine.spec.has_head() {
            return Err(Error::NoPart { part: "decoder" });
        }
        if self.engine.spec.has_cross_attention() && self.states().is_empty() {
            return Err(Error::NoSource);
        }
        check_tokens(tokens, self.engine.spec.vocab)?;
        let needed = self.position.saturating_add(tokens.len());
        if needed > self.context() {
            return Err(Error::ContextFull { context: self.context(), needed });
        }
        Ok(())
    }
}

/// Whether there are tokens, all of the vocabulary.
fn check_tokens(tokens: &[TokenId], vocab: usize) -> Result<(), Error> {
    if tokens.is_empty() {
        return Err(Error::EmptyPrompt);
    }
    match tokens.iter().find(|&&token| token as usize >= vocab) {
        Some(&token) => Err(Error::TokenOutOfRange { token, vocab: vocab as u32 }),
        None => Ok(()),
    }
}

impl core::fmt::Debug for Session<'_, '_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Session").field("position", &self.position).field("plan", &self.plan).finish_non_exhaustive()
    }
}
