//! Drafts: the model's own layers propose tokens, and a run verifies proposed tokens.
//!
//! The [`Ahead`] of a context has the position up to which the predicting layer has read, and the number of tokens that
//! the recurrent states leave out. The predicting layer lags behind the model: it reads the last few positions
//! together, as soon as a guess needs these positions or a pass would overwrite their states.

use super::forward::{Next, Rows};
use super::layout::{Ahead, STATES};
use super::{Context, Engine, Work};
use crate::Error;

impl Engine<'_, '_> {
    /// Proposes tokens with the model's own layers: each work has one token, which follows the tokens of its context,
    /// and [`logits`](Self::logits) then returns the logits of the token after it, as the predicting layer guesses
    /// them. In the first call, the token is one that the model has chosen; in each further call, it is the guess of
    /// the previous call. The contexts do not change: a [run](Self::run) with the same tokens verifies them
    /// ([`Work::tentative`]).
    ///
    /// Guesses are deterministic: they depend on the tokens of the context, and on what was read before a rewind.
    ///
    /// ```
    /// use arenite::sampler::argmax;
    /// use arenite::{Engine, Gguf, Line, Model, Options, Plan, Work};
    ///
    /// # let file = std::fs::read("tests/fixtures/mtp_qwen35.gguf").unwrap();
    /// let gguf = Gguf::parse(&file)?;
    /// let model = Model::new(&gguf)?;
    /// assert!(model.can_draft());
    /// let plan = Plan::new(&gguf, Options::new().context(64).drafts(2).own_drafts(true).logits(3))?;
    /// # let mut workspace = vec![Line::ZERO; plan.workspace.div_ceil(64)];
    /// # let mut kv = vec![Line::ZERO; plan.kv.div_ceil(64)];
    /// # let mut engine = Engine::new(&model, plan, Line::bytes_mut(&mut workspace), Line::bytes_mut(&mut kv))?;
    /// let mut context = engine.open()?;
    /// engine.run(&mut [Work::prefill(&mut context, &[266, 356, 260])])?;
    /// let mut tokens = vec![argmax(engine.logits(&context)).unwrap()]; // chosen by the model
    /// for _ in 0..2 {
    ///     engine.draft(&mut [Work::decode(&mut context, tokens[tokens.len() - 1])])?;
    ///     tokens.push(argmax(engine.logits(&context)).unwrap()); // guessed
    /// }
    /// engine.run(&mut [Work::prefill(&mut context, &tokens).all_logits().tentative()])?;
    /// let right = (1..3).take_while(|i| argmax(engine.logits_at(&context, 2 + i)) == Some(tokens[*i])).count();
    /// engine.rewind(&mut context, 4 + right)?; // wrong guesses are undone
    /// # Ok::<(), arenite::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::NoPart`] without [`Options::own_drafts`](crate::Options::own_drafts); [`Error::EmptyPrompt`] for a
    /// context without tokens; [`Error::BufferTooSmall`] after [`Options::drafts`](crate::Options::drafts) tokens; the
    /// errors of [`run`](Self::run).
    pub fn draft(&mut self, works: &mut [Work<'_>]) -> Result<(), Error> {
        self.open_storage()?;
        for work in works.iter() {
            self.check(work.context, work.tokens())?;
            self.check_draft(work.context)?;
        }
        let planned = self.plan.options.logits;
        if works.len() > planned {
            return Err(Error::TooManyLogits { planned, needed: works.len() });
        }
        if self.forward.next.as_ref().is_some_and(Next::owns_keys) {
            for work in works.iter() {
                let (slot, position) = (work.context.slot, work.context.position);
                let drafted = self.ahead_of(slot).drafted as usize;
                self.reserve(core::iter::once((slot, position + drafted, 1)))?;
            }
        }
        let Some(next) = &mut self.forward.next else { return Ok(()) };
        for work in works.iter() {
            let (slot, position) = (work.context.slot, work.context.position);
            let drafted = self.forward.undo.ahead(slot).drafted as usize;
            next.set_token(slot, position + drafted, work.tokens().first().copied().unwrap_or(0));
        }
        self.run += 1;
        let mut done = 0;
        while let Some(rest) = works.get_mut(done..).filter(|rest| !rest.is_empty())
            && !self.forward.compute.has_failed()
        {
            let more = self.guess(rest, done);
            done += more.max(usize::from(self.forward.batch() == 0)); // a pass has room for a row, so this ends
        }
        if self.forward.compute.has_failed() {
            works.iter_mut().for_each(|work| work.context.logits = super::context::Rows::default());
        }
        self.check_storage()
    }

    /// Runs the layers that predict further tokens on those positions of the works' contexts that these layers have not
    /// read yet, as many as fit in a pass. The logits of the first work go to row `to`. Returns the number of works
    /// that now have logits.
    fn guess(&mut self, works: &mut [Work<'_>], to: usize) -> usize {
        let Self { forward, .. } = self;
        let owns_keys = forward.next.as_ref().is_some_and(Next::owns_keys);
        forward.clear();
        let mut finished = 0;
        for work in works.iter() {
            let (slot, position) = (work.context.slot, work.context.position);
            let ahead = forward.undo.ahead(slot);
            let last = position + ahead.drafted as usize;
            let first = if owns_keys { ahead.filled as usize } else { last };
            let rows = (last + 1 - first.min(last)).min(forward.room());
            if rows == 0 {
                break;
            }
            let drafted = ahead.drafted as usize;
            let source = if owns_keys { Rows::Kept { count: rows } } else { Rows::Drafted { drafted } };
            forward.add_next(slot, first, ahead.from as usize, source);
            forward.undo.set_ahead(slot, Ahead { filled: (first + rows) as u32, ..ahead });
            if first + rows <= last {
                break;
            }
            finished += 1;
        }
        forward.run_next();
        forward.guess(finished, to);
        if forward.compute.has_failed() {
            forward.unread_next();
            return 0;
        }
        let kept = forward.next.as_ref().map_or(0, |next| next.kept);
        for (i, work) in works.iter_mut().take(finished).enumerate() {
            let ahead = forward.undo.ahead(work.context.slot);
            let drafted = ahead.drafted + 1;
            let end = work.context.position + drafted as usize;
            let from = ahead.from.max(end.saturating_sub(kept) as u32);
            forward.undo.set_ahead(work.context.slot, Ahead { drafted, from, ..ahead });
            if owns_keys {
                work.context.reached = work.context.reached.max(end);
            }
            work.context.logits = super::context::Rows { run: self.run, first: to + i, count: 1, end };
        }
        finished
    }

    fn check_draft(&self, context: &Context) -> Result<(), Error> {
        let Some(next) = &self.forward.next else {
            return Err(Error::NoPart { part: "layer that predicts further tokens" });
        };
        if context.position == 0 && !next.owns_keys() {
            return Err(Error::EmptyPrompt); // there are no keys to attend to
        }
        let (needed, given) = (self.ahead_of(context.slot).drafted as usize + 1, self.plan.options.drafts);
        if needed > given {
            return Err(Error::BufferTooSmall { what: "planned drafts (Options::drafts)", needed, given });
        }
        let (positions, needed) = (self.plan.options.context, context.position + needed);
        if needed > positions {
            return Err(Error::ContextFull { context: positions, needed });
        }
        Ok(())
    }

    /// Progress of a context's drafts.
    pub(super) fn ahead_of(&self, slot: usize) -> Ahead {
        self.forward.undo.ahead(slot)
    }

    /// Marks a context as having nothing to undo or to catch up: the next token is at `position`, and the predicting
    /// layer counts as having read all earlier positions.
    pub(super) fn forget_drafts(&mut self, slot: usize, position: usize) {
        let position = position as u32;
        self.forward.undo.set_ahead(slot, Ahead { from: position, filled: position, ..Ahead::default() });
    }

    /// True if the context's tokens from `position` on are not yet part of its recurrent states, so that they can be
    /// removed.
    pub(super) fn is_undoable(&self, context: &Context, position: usize) -> bool {
        !context.torn && position >= self.settled(context) && position <= context.position
    }

    /// Returns to `position`, to which the context can rewind.
    pub(super) fn rewind_drafts(&mut self, context: &Context, position: usize) {
        let settled = self.settled(context);
        let ahead = self.ahead_of(context.slot).rewound(position, settled, context.torn);
        self.forward.undo.set_ahead(context.slot, ahead);
    }

    /// Gives the context `fork` what is kept of the first `position` tokens of `context`: the tokens and the model's
    /// states for the predicting layers, and pending rows.
    pub(super) fn share_drafts(&mut self, context: &Context, fork: usize, position: usize) {
        let ahead = self.ahead_of(context.slot).rewound(position, self.settled(context), context.torn);
        self.forward.undo.set_ahead(fork, ahead);
        if ahead.pending > 0 {
            self.forward.undo.share(context.slot, fork);
            if let Some(pool) = self.forward.pools.get_mut(STATES) {
                pool.name((context.slot, 0), (fork, 0));
            }
        }
        if let Some(next) = &mut self.forward.next {
            next.share(context.slot, fork);
        }
    }

    /// Takes all tokens of a context into its recurrent states.
    pub(super) fn settle(&mut self, context: &Context) {
        if self.ahead_of(context.slot).pending > 0 {
            self.forward.settle(context.slot, context.position);
        }
    }

    /// Runs the predicting layer on kept positions that it has not read yet, if the next pass, of `tokens` tokens,
    /// would overwrite them.
    pub(super) fn catch_up(&mut self, slot: usize, position: usize, tokens: usize) {
        let Self { forward, .. } = self;
        let (Some(next), mut ahead) = (forward.next.as_ref(), forward.undo.ahead(slot)) else { return };
        if !next.owns_keys() || position + tokens < ahead.filled.min(position as u32) as usize + next.kept {
            return;
        }
        while (ahead.filled as usize) < position {
            forward.clear();
            let rows = (position - ahead.filled as usize).min(forward.room());
            if rows == 0 {
                return;
            }
            forward.add_next(slot, ahead.filled as usize, ahead.from as usize, Rows::Kept { count: rows });
            forward.run_next();
            if forward.compute.has_failed() {
                return;
            }
            ahead.filled += rows as u32;
            forward.undo.set_ahead(slot, ahead);
        }
    }

    /// Keeps the tokens and states of the pass that was run last, for the predicting layer. If a work has too many
    /// tokens to keep all of their states, the predicting layer reads these tokens at once.
    pub(super) fn keep_pass(&mut self, works: &mut [Work<'_>]) {
        let Self { forward, .. } = self;
        let mut row = 0;
        forward.clear();
        for work in works.iter_mut().filter(|work| work.ran > 0) {
            let ran = core::mem::take(&mut work.ran);
            let (slot, end) = (work.context.slot, work.context.position);
            let start = end - ran.min(end);
            let tokens = work.tokens().get(work.done - ran.min(work.done)..work.done).unwrap_or(&[]);
            let Some(kept) = forward.next.as_ref().map(|next| next.kept) else { return };
            let mut ahead = forward.undo.ahead(slot);
            (ahead.filled, ahead.drafted) = (ahead.filled.min(start as u32), 0);
            if ran >= kept && forward.next.as_ref().is_some_and(Next::owns_keys) {
                forward.add_next(slot, start, ahead.from as usize, Rows::Fresh { row, tokens });
                ahead.filled = end as u32;
            }
            if let Some(next) = &mut forward.next {
                next.keep(slot, start, tokens, row);
            }
            ahead.from = ahead.from.max(end.saturating_sub(kept) as u32);
            forward.undo.set_ahead(slot, ahead);
            row += ran;
        }
        forward.run_next();
    }
}

impl Ahead {
    /// Returns the new value of this struct after the context was rewound to `position`. The recurrent states contain
    /// the tokens before position `settled`. If `torn` is true, the states are damaged, and no pending rows are left.
    fn rewound(self, position: usize, settled: usize, torn: bool) -> Self {
        let pending = if torn { 0 } else { position.saturating_sub(settled) as u32 };
        let position = position as u32;
        // The state before token `self.from` is kept. It stays kept unless the context goes back to an earlier
        // position.
        let from = if position <= self.from { position } else { self.from };
        Self { from, filled: self.filled.min(position), pending: pending.min(self.pending), ..Self::default() }
    }
}
