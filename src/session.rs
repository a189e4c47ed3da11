//! A running model: prefill, decode, rewind.

use core::ops::ControlFlow;

use crate::forward::{Engine, Observer};
use crate::kernel::Kernels;
use crate::model::Model;
use crate::plan::Plan;
use crate::workers::{Serial, Workers};
use crate::{Error, TokenId};

/// A model at work in the caller's memory: a KV cache, a position in it, and the last logits.
///
/// The results do not depend on how a prompt is cut into batches, on the number of workers, or on
/// the kernels: always the same bits.
pub struct Session<'m, 'w> {
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
        Ok(Self { engine, position: 0, reached: 0, plan })
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

    /// Runs `tokens` after what is in the context. Afterwards [`logits`](Self::logits) are those
    /// of the last one.
    ///
    /// # Errors
    ///
    /// [`Error::EmptyPrompt`], [`Error::TokenOutOfRange`], [`Error::ContextFull`]: nothing has been run
    /// then.
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
        let earliest = match self.engine.spec.window {
            // A ring of `kept` positions still holds those from `reached - kept` on; the next token sees
            // `window - 1` before it.
            Some(window) => {
                let kept = self.plan.layout.tiles * crate::memory::TILE;
                match self.reached.checked_sub(kept) {
                    None | Some(0) => 0,
                    Some(lost) => lost + window - 1,
                }
            }
            None => 0,
        };
        if position > self.position || position < earliest && position != 0 {
            return Err(Error::CannotRewind { position, earliest, latest: self.position });
        }
        self.position = position;
        if position == 0 {
            self.reached = 0;
        }
        Ok(())
    }

    fn advance(&mut self, tokens: usize) {
        self.position += tokens;
        self.reached = self.reached.max(self.position);
    }

    /// Whether `tokens` can be run.
    fn check(&self, tokens: &[TokenId]) -> Result<(), Error> {
        if tokens.is_empty() {
            return Err(Error::EmptyPrompt);
        }
        let vocab = self.engine.spec.vocab;
        if let Some(&token) = tokens.iter().find(|&&token| token as usize >= vocab) {
            return Err(Error::TokenOutOfRange { token, vocab: vocab as u32 });
        }
        let needed = self.position.saturating_add(tokens.len());
        if needed > self.context() {
            return Err(Error::ContextFull { context: self.context(), needed });
        }
        Ok(())
    }
}

impl core::fmt::Debug for Session<'_, '_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Session").field("position", &self.position).field("plan", &self.plan).finish_non_exhaustive()
    }
}
