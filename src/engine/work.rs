//! Work items of a run, and runs in steps.

use core::ops::{ControlFlow, Range};

use super::context::{Context, Rows};
use super::forward::Observer;
#[cfg(feature = "drafts")]
use super::layout::Ahead;
#[cfg(feature = "vision")]
use super::pictures::Span;
use super::{Engine, Segment};
use crate::{Error, TokenId};

/// Tokens for a context to read in a run.
#[derive(Debug)]
pub struct Work<'c> {
    pub(super) context: &'c mut Context,
    tokens: Tokens<'c>,
    wanted: Wanted,
    /// `done` is the number of this work's tokens that earlier passes of the run have processed. `taken` is the number
    /// of its tokens in the current pass.
    pub(super) done: usize,
    taken: usize,
    /// Number of tokens in the pass that has just run.
    #[cfg(feature = "drafts")]
    pub(super) ran: usize,
    #[cfg(feature = "drafts")]
    is_tentative: bool,
    #[cfg(feature = "vision")]
    pub(super) pictures: &'c [Span<'c>],
}

#[derive(Debug)]
enum Tokens<'c> {
    One([TokenId; 1]),
    Many(&'c [TokenId]),
}

/// Rows of logits that a run computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    None,
    Last,
    All,
}

impl<'c> Work<'c> {
    /// Reads any number of tokens. Computes the logits of the last token.
    pub fn prefill(context: &'c mut Context, tokens: &'c [TokenId]) -> Self {
        Self::new(context, Tokens::Many(tokens))
    }

    /// Reads one token and computes its logits.
    pub fn decode(context: &'c mut Context, token: TokenId) -> Self {
        Self::new(context, Tokens::One([token]))
    }

    fn new(context: &'c mut Context, tokens: Tokens<'c>) -> Self {
        Self {
            context,
            tokens,
            wanted: Wanted::Last,
            done: 0,
            taken: 0,
            #[cfg(feature = "drafts")]
            ran: 0,
            #[cfg(feature = "drafts")]
            is_tentative: false,
            #[cfg(feature = "vision")]
            pictures: &[],
        }
    }

    /// Lets the context [rewind](Engine::rewind) to any position within these tokens, even if the model has recurrent
    /// layers. All tokens may be guesses that the run verifies. There may be one token more than
    /// [`Options::drafts`](crate::Options::drafts).
    ///
    /// (The recurrent layers of RWKV, Mamba-1 and Kimi ignore this setting: they can only rewind to
    /// [checkpoints](Engine::checkpoint).)
    #[cfg(feature = "drafts")]
    #[must_use]
    pub fn tentative(self) -> Self {
        Self { is_tentative: true, ..self }
    }

    /// Computes the logits of every token. Each token takes one of the rows planned by
    /// [`Options::logits`](crate::Options::logits).
    #[must_use]
    pub fn all_logits(self) -> Self {
        Self { wanted: Wanted::All, ..self }
    }

    /// Computes no logits. Call this for all chunks of a prompt but the last, because logits cost a product with the
    /// whole vocabulary.
    #[must_use]
    pub fn no_logits(self) -> Self {
        Self { wanted: Wanted::None, ..self }
    }

    pub(super) fn tokens(&self) -> &[TokenId] {
        match &self.tokens {
            Tokens::One(one) => one,
            Tokens::Many(many) => many,
        }
    }

    pub(super) fn logits(&self) -> usize {
        match self.wanted {
            Wanted::None => 0,
            Wanted::Last => 1,
            Wanted::All => self.tokens().len(),
        }
    }

    /// The rows of the pass for which this work needs logits. Row `row` of the pass is the first row of this work.
    fn rows_of_logits(&self, row: usize) -> Range<usize> {
        let end = row + self.taken;
        match self.wanted {
            Wanted::Last if self.left() == self.taken => end - 1..end,
            Wanted::All => row..end,
            _ => end..end,
        }
    }

    fn left(&self) -> usize {
        self.tokens().len() - self.done.min(self.tokens().len())
    }
}

/// A run in steps of one layer, returned by [`Engine::begin`]. A run consists of one or more passes through the layers,
/// each with at most a batch of tokens.
///
/// If a `Pass` is dropped before the end of the run, the contexts return to their state after the last complete pass.
///
/// # Examples
///
/// ```
/// use arenite::{Engine, Gguf, Line, Model, Options, Plan, Work};
///
/// # let file = std::fs::read("tests/fixtures/stories.gguf").unwrap();
/// let gguf = Gguf::parse(&file)?;
/// let model = Model::new(&gguf)?;
/// # let plan = Plan::new(&gguf, Options::new().context(64))?;
/// # let mut workspace = vec![Line::ZERO; plan.workspace.div_ceil(64)];
/// # let mut kv = vec![Line::ZERO; plan.kv.div_ceil(64)];
/// let mut engine = Engine::new(&model, plan, Line::bytes_mut(&mut workspace), Line::bytes_mut(&mut kv))?;
/// let mut context = engine.open()?;
///
/// let mut pauses = 0;
/// let mut works = [Work::prefill(&mut context, &[1, 300, 301])];
/// let mut pass = engine.begin(&mut works)?;
/// while pass.step() {
///     pauses += 1; // feed a watchdog, blink, let other tasks run
/// }
/// assert!(pauses >= model.spec().layers);
/// assert_eq!(context.position(), 3);
/// # Ok::<(), arenite::Error>(())
/// ```
pub struct Pass<'p, 'c, 'm, 'w> {
    engine: &'p mut Engine<'m, 'w>,
    works: &'p mut [Work<'c>],
    /// Next layer; `None` between two passes.
    layer: Option<usize>,
    /// Rows of logits computed so far.
    logits: usize,
    /// Largest number of tokens of a pass, besides the batch.
    #[cfg(feature = "drafts")]
    most: usize,
}

impl core::fmt::Debug for Pass<'_, '_, '_, '_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Pass").field("layer", &self.layer).finish_non_exhaustive()
    }
}

impl<'p, 'c, 'm, 'w> Pass<'p, 'c, 'm, 'w> {
    /// Prepares to run `works` in passes. The caller has checked all works and reserved the pages of the cache that
    /// they need.
    pub(super) fn new(engine: &'p mut Engine<'m, 'w>, works: &'p mut [Work<'c>]) -> Self {
        Self {
            engine,
            works,
            layer: None,
            logits: 0,
            #[cfg(feature = "drafts")]
            most: usize::MAX,
        }
    }

    /// Runs one step: sets up a pass, runs one layer on all tokens of the pass, or computes logits. Returns true if
    /// more steps remain.
    pub fn step(&mut self) -> bool {
        matches!(self.step_observed(&mut ()), ControlFlow::Continue(true))
    }

    /// Runs the remaining steps.
    pub fn finish(mut self) {
        while self.step() {}
    }

    /// Like [`step`](Self::step), and shows `observer` the hidden states. If `observer` returns `Break`, the contexts
    /// return to their state after the last complete pass.
    pub fn step_observed<O: Observer>(&mut self, observer: &mut O) -> ControlFlow<(), bool> {
        if self.engine.forward.compute.has_failed() {
            return self.give_up();
        }
        match self.layer {
            None => {
                if self.lay_out() == 0 {
                    return ControlFlow::Continue(false);
                }
                self.layer = Some(0);
            }
            Some(index) if index < self.engine.forward.spec.layers => {
                self.engine.forward.layer(index, observer)?;
                #[cfg(feature = "vision")]
                self.add_pictures(index);
                self.layer = Some(index + 1);
            }
            Some(_) => {
                self.engine.forward.show_last(observer)?;
                self.complete();
                self.layer = None;
                return ControlFlow::Continue(self.works.iter().any(|work| work.left() > 0));
            }
        }
        ControlFlow::Continue(true)
    }

    /// Ends a run whose storage has failed. The contexts lose their logits, because these belong to earlier tokens.
    #[cold]
    fn give_up(&mut self) -> ControlFlow<(), bool> {
        self.works.iter_mut().for_each(|work| work.context.logits = Rows::default());
        ControlFlow::Continue(false)
    }

    /// Chooses the tokens of a pass: those of the first work, then those of the next one, as long as there is room.
    /// Returns the number of tokens.
    fn lay_out(&mut self) -> usize {
        #[cfg(feature = "drafts")]
        let most = self.most;
        let Self { engine, works, .. } = self;
        let has_states = engine.has_states();
        #[cfg(feature = "drafts")]
        for work in works.iter() {
            let tokens = work.left().min(engine.forward.batch()).min(most);
            engine.catch_up(work.context.slot, work.context.position, tokens);
        }
        #[cfg(feature = "drafts")]
        let can_undo = has_states && engine.forward.spec.can_undo();
        let forward = &mut engine.forward;
        forward.clear();
        let mut rows = 0;
        for work in works.iter_mut() {
            work.taken = work.left().min(forward.room());
            #[cfg(feature = "drafts")]
            {
                work.taken = work.taken.min(most - rows);
            }
            #[cfg(feature = "vision")]
            {
                work.taken = work.without_cuts(work.taken);
            }
            #[cfg(feature = "drafts")]
            if work.is_tentative && work.taken < work.left() && rows > 0 {
                work.taken = 0; // tentative tokens share a pass
            }
            let Some(tokens) = work.tokens().get(work.done..work.done + work.taken).filter(|tokens| !tokens.is_empty())
            else {
                continue;
            };
            let Context { slot, position, source, .. } = *work.context;
            let segment = Segment::new([slot, position, work.taken, source]);
            #[cfg(feature = "drafts")]
            {
                let tentative = u32::from(can_undo && work.is_tentative);
                forward.undo.set_ahead(slot, Ahead { tentative, ..forward.undo.ahead(slot) });
            }
            #[cfg(not(feature = "vision"))]
            forward.add(segment, tokens);
            #[cfg(feature = "vision")]
            {
                work.taken = forward.add_parts(work, segment, tokens);
            }
            rows += work.taken;
            // `reached` is set before the pass runs, because even an aborted pass overwrites earlier contents of a
            // sliding window.
            work.context.reached = work.context.reached.max(work.context.position + work.taken);
            work.context.torn = has_states;
        }
        rows
    }

    /// Ends a pass: computes the requested logits in one matrix product, and advances the positions of the contexts.
    fn complete(&mut self) {
        let Self { engine, works, logits, .. } = self;
        // The run gets a new number when its first logits are computed, because these overwrite the logits of the
        // previous run.
        let run = engine.run + u64::from(*logits == 0);
        #[cfg(feature = "drafts")]
        engine.forward.keep_fresh();
        let (mut row, mut count) = (0, 0);
        for work in works.iter().filter(|work| work.taken > 0) {
            let rows = work.rows_of_logits(row);
            row += work.taken;
            if !rows.is_empty() {
                count += engine.forward.final_norm(rows, count);
            }
        }
        if count > 0 {
            engine.run = run;
            engine.forward.head(count, *logits);
            if engine.forward.compute.has_failed() {
                return;
            }
        }
        let mut row = 0;
        for work in works.iter_mut().filter(|work| work.taken > 0) {
            let rows = work.rows_of_logits(row);
            row += work.taken;
            let is_early = work.wanted == Wanted::Last && rows.is_empty();
            #[cfg(feature = "vision")]
            engine.forward.keep_pictures(work, work.taken);
            let context = &mut *work.context;
            context.position += work.taken;
            context.torn = false;
            let mut made = if context.logits.run == run { context.logits } else { Rows::default() };
            if !rows.is_empty() {
                if made.count == 0 {
                    made.first = *logits;
                }
                let count = rows.end.saturating_sub(rows.start); // `rows.len()` has an assertion
                *logits += count;
                (made.run, made.count, made.end) = (run, made.count + count, context.position);
            }
            if !is_early {
                context.logits = made;
            }
            work.done += work.taken;
            #[cfg(feature = "drafts")]
            {
                work.ran = work.taken;
                let (undo, slot) = (&mut engine.forward.undo, work.context.slot);
                let ahead = undo.ahead(slot);
                undo.set_ahead(slot, Ahead { pending: ahead.tentative * work.taken as u32, ..ahead });
            }
            work.taken = 0;
        }
        #[cfg(feature = "drafts")]
        {
            engine.keep_pass(works);
            // The error is dropped, because the model's pass is already complete. If the storage fails here, the
            // predicting layer only proposes worse tokens.
            #[cfg(feature = "storage")]
            engine.forward.compute.window.take_fault();
        }
    }
}

impl Pass<'_, '_, '_, '_> {
    /// Adds the vectors of pictures after a layer.
    #[cfg(feature = "vision")]
    fn add_pictures(&mut self, layer: usize) {
        let mut row = 0;
        for work in self.works.iter().filter(|work| work.taken > 0) {
            self.engine.forward.add_pictures(work, work.taken, row, layer);
            row += work.taken;
        }
    }

    /// Runs all steps of one pass, and returns the number of tokens of the first work in it.
    fn run_pass(&mut self) -> usize {
        let done = |works: &[Work<'_>]| works.first().map_or(0, |work| work.done);
        let before = done(self.works);
        while self.step() && self.layer.is_some() {}
        done(self.works) - before
    }

    /// Computes the logits of the first `rows` rows of the pass that was run last. Calls `each` with the position and
    /// the logits of each of these rows.
    fn each_logits(&mut self, rows: usize, each: &mut dyn FnMut(usize, &[f32])) {
        let Some(work) = self.works.first_mut() else { return };
        let Engine { forward, plan, run, .. } = &mut *self.engine;
        let (at_once, vocab) = (plan.options.logits.max(1), forward.spec.vocab);
        let first = work.context.position - rows;
        for row in (0..rows).step_by(at_once) {
            let range = row..rows.min(row + at_once);
            *run += 1;
            forward.final_norm(range.clone(), 0);
            forward.head(range.len(), 0);
            if forward.compute.has_failed() {
                work.context.logits = Rows::default();
                return;
            }
            for (i, row) in range.enumerate() {
                each(first + row, forward.logits.get(i * vocab..(i + 1) * vocab).unwrap_or(&[]));
                work.context.logits = Rows { run: *run, first: i, count: 1, end: first + row + 1 };
            }
        }
    }
}

impl<'m, 'w> Engine<'m, 'w> {
    /// Runs one work like [`run`](Self::run) and calls `each` with the position and logits of every token.
    ///
    /// # Errors
    ///
    /// Same as [`run`](Self::run).
    pub fn read_all(&mut self, work: Work<'_>, mut each: impl FnMut(usize, &[f32])) -> Result<(), Error> {
        let mut works = [work.no_logits()];
        #[cfg(feature = "drafts")]
        let kept = self.forward.next.as_ref().map(|_| self.plan.options.kept() - 1);
        let mut pass = self.begin(&mut works)?;
        // Limits the pass to fewer tokens than the number whose states are kept. The predicting layer would read the
        // tokens of a larger pass at once, and overwrite the states that `each_logits` needs.
        #[cfg(feature = "drafts")]
        if let Some(kept) = kept {
            pass.most = kept;
        }
        loop {
            match pass.run_pass() {
                0 => break,
                rows => pass.each_logits(rows, &mut each),
            }
        }
        self.check_storage()
    }

    /// Runs all works in order, in passes of at most [`Options::batch`](crate::Options::batch) tokens; works that fit
    /// together share a pass. Every context gets the same bits as if it ran alone. Afterwards [`logits`](Self::logits)
    /// returns each context's logits.
    ///
    /// # Errors
    ///
    /// [`Error::EmptyPrompt`], [`Error::TokenOutOfRange`], [`Error::ContextFull`]; [`Error::OutOfPages`] and
    /// [`Error::TooManyLogits`]; [`Error::NoPart`] if the model is only an encoder, [`Error::NoSource`] if the model's
    /// encoder has not run on a text yet; [`Error::ForeignContext`]. On error nothing was run.
    pub fn run(&mut self, works: &mut [Work<'_>]) -> Result<(), Error> {
        self.begin(works)?.finish();
        self.check_storage()
    }

    /// Checks that a work with proposed tokens has at most as many tokens as the plan allows for such a work.
    #[cfg(feature = "drafts")]
    fn check_tentative(&self, work: &Work<'_>) -> Result<(), Error> {
        let (needed, given) = (work.tokens().len(), self.plan.options.drafts + 1);
        if work.is_tentative && needed > given {
            return Err(Error::BufferTooSmall {
                what: "planned tentative tokens (Options::drafts + 1)",
                needed,
                given,
            });
        }
        Ok(())
    }

    /// Like [`run`](Self::run), step by step: the caller may do other work between steps.
    ///
    /// # Errors
    ///
    /// Same as [`run`](Self::run).
    pub fn begin<'p, 'c>(&'p mut self, works: &'p mut [Work<'c>]) -> Result<Pass<'p, 'c, 'm, 'w>, Error> {
        self.open_storage()?;
        let mut rows = 0;
        for work in works.iter_mut() {
            self.check(work.context, work.tokens())?;
            rows += work.logits();
            (work.done, work.taken) = (0, 0);
            #[cfg(feature = "drafts")]
            self.check_tentative(work)?;
            #[cfg(feature = "vision")]
            self.check_pictures(work)?;
        }
        if rows > self.plan.options.logits {
            return Err(Error::TooManyLogits { planned: self.plan.options.logits, needed: rows });
        }
        self.reserve(works.iter().map(|work| (work.context.slot, work.context.position, work.tokens().len())))?;
        Ok(Pass::new(self, works))
    }
}
