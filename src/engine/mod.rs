//! Runs models: an [`Engine`] runs passes, and a [`Context`] is one conversation's state.
//!
//! An engine owns the workspace and a pool of pages for keys and values; a context is a position and a table of pages.
//! One [run](Engine::run) processes any number of tokens of each of several contexts and reads every weight once for
//! all of them. Results do not depend on what else is in the run: each context gets the same bits as when run alone.
//!
//! ```
//! use arenite::{Engine, Gguf, Line, Model, Options, Plan, Work};
//!
//! # let file = include_bytes!("../../tests/fixtures/qwen3/model.gguf");
//! let gguf = Gguf::parse(file)?;
//! let model = Model::new(&gguf)?;
//! let plan = Plan::new(&gguf, Options::new().context(128).contexts(3).pages(12))?;
//! let mut workspace = vec![Line::ZERO; plan.workspace.div_ceil(64)];
//! let mut kv = vec![Line::ZERO; plan.kv.div_ceil(64)];
//! let mut engine = Engine::new(&model, plan, Line::bytes_mut(&mut workspace), Line::bytes_mut(&mut kv))?;
//!
//! let mut a = engine.open()?;
//! engine.run(&mut [Work::prefill(&mut a, &[5, 6, 7])])?; // what both have in common
//! let mut b = engine.fork(&a)?; // shares its pages
//! engine.run(&mut [Work::prefill(&mut a, &[8, 9]), Work::decode(&mut b, 10)])?;
//! assert_ne!(engine.logits(&a), engine.logits(&b));
//!
//! engine.rewind(&mut b, 3)?; // another continuation of the same three tokens
//! engine.run(&mut [Work::prefill(&mut b, &[8, 9])])?;
//! let logits = engine.logits(&b).to_vec();
//! engine.close(b);
//! engine.rewind(&mut a, 4)?;
//! engine.run(&mut [Work::decode(&mut a, 9)])?;
//! assert_eq!(engine.logits(&a), logits);
//! # Ok::<(), arenite::Error>(())
//! ```
//!
//! The layers of this module, from the bottom: `layout` places everything in memory, `plan` counts the bytes, `forward`
//! runs a pass, and this file manages contexts.

mod context;
#[cfg(feature = "drafts")]
mod draft;
mod embed;
mod encoding;
mod formats;
mod forward;
pub(crate) mod layout;
#[cfg(feature = "vision")]
mod picture_turns;
#[cfg(feature = "vision")]
mod pictures;
mod plan;
mod profile;
mod reuse;
mod snapshot;
mod work;

#[cfg(feature = "lora")]
use crate::adapter::Adapter;
use crate::built;
use crate::kernel::Kernels;
#[cfg(feature = "storage")]
use crate::memory::Storage;
use crate::memory::{Arena, TILE};
use crate::model::Model;
use crate::workers::Workers;
use crate::{Error, TokenId};
pub use context::Context;
use context::{Id, Rows};
pub use encoding::Encoding;
#[cfg(feature = "vision")]
pub(crate) use formats::Formats;
#[cfg(feature = "storage")]
pub(crate) use forward::window_bytes;
#[cfg(feature = "vision")]
pub(crate) use forward::{Compute, add_bias, rows, rows_mut, sine_cosine};
use forward::{Forward, Sizes};
pub use forward::{Inputs, Observer, Stage};
use layout::{POOLS, Pieces, SOURCE, STATES, Segment};
#[cfg(feature = "vision")]
pub use pictures::Span;
#[cfg(feature = "vision")]
pub(crate) use plan::stop;
pub use plan::{Options, Plan};
pub use profile::{Profiler, Section};
pub use work::{Pass, Work};

/// A model with its memory, ready to run several contexts.
///
/// Results are always the same bits, independent of batching, of other contexts in a pass, of the number of workers,
/// and of the kernels. See the [module](self) for an example.
pub struct Engine<'m, 'w> {
    model: &'m Model<'m>,
    plan: Plan,
    forward: Forward<'m, 'w>,
    /// For each planned context, 1 if it is open.
    open: &'w mut [u32],
    /// The positions at which recurrent states were saved, `[contexts][checkpoints]`. 0 means that nothing was saved.
    marks: &'w mut [u32],
    /// Number of the last run that computed logits.
    run: u64,
    /// Distinguishes the contexts of this engine from contexts of other engines.
    id: Id,
}

impl<'m, 'w> Engine<'m, 'w> {
    /// Creates an engine in `workspace` and `kv`. `workspace` and `kv` must have at least the planned size and start on
    /// an [`ALIGN`](crate::memory::ALIGN) boundary. Bytes beyond the planned size are not accessed, and the memory need
    /// not be zeroed.
    ///
    /// # Errors
    ///
    /// [`Error::WorkspaceTooSmall`], [`Error::KvTooSmall`] and [`Error::Misaligned`]; [`Error::PlanMismatch`] if the
    /// plan was made for another model.
    pub fn new(model: &'m Model<'_>, plan: Plan, workspace: &'w mut [u8], kv: &'w mut [u8]) -> Result<Self, Error> {
        if !plan.is_for(model.gguf(), model.spec()) {
            return Err(Error::PlanMismatch);
        }
        #[cfg(feature = "drafts")]
        if plan.options.own_drafts && !model.can_draft() {
            return Err(Error::NoPart { part: "layer that predicts further tokens" });
        }
        let short = Error::WorkspaceTooSmall { needed: plan.workspace, given: workspace.len() };
        let arena = Arena::new(workspace.get_mut(..plan.workspace).ok_or(short)?)?;
        let short_kv = Error::KvTooSmall { needed: plan.kv, given: kv.len() };
        let kv = Arena::new(kv.get_mut(..plan.kv).ok_or(short_kv)?)?.rest();
        let mut pieces = Pieces::cut(&plan.layout, arena).ok_or(short)?;
        let account = core::mem::take(&mut pieces.pages);
        let (open, account) = account.split_at_mut_checked(plan.options.contexts).ok_or(short)?;
        let marks = plan.options.contexts * plan.store.tiles.last().map_or(0, |tiles| tiles.saturating_sub(1));
        let (marks, account) = account.split_at_mut_checked(marks).ok_or(short)?;
        open.fill(0);
        marks.fill(0);
        pieces.pages = account;
        Forward::fill_tables(model, &mut pieces)?;
        Self::of(model, plan, (open, marks), pieces, kv)
    }

    /// Assembles an engine. Returns a `Result` like its callers, so that the large engine is not copied.
    #[inline(never)] // keeps the engine off the stack of `new` while `fill_tables` runs
    fn of(
        model: &'m Model<'_>,
        plan: Plan,
        (open, marks): (&'w mut [u32], &'w mut [u32]),
        pieces: Pieces<'w>,
        kv: &'w mut [u8],
    ) -> Result<Self, Error> {
        let Options { context, workers, .. } = plan.options;
        let id = Id::new(open);
        let forward = Forward::new(model, plan.store, Sizes { context, threads: workers }, pieces, kv);
        Ok(Self { model, plan, forward, open, marks, run: 0, id })
    }

    /// Shares the work among `workers`. [`Options::workers`] limits how many of them take part.
    #[must_use]
    pub fn with_workers(mut self, workers: &'m dyn Workers) -> Self {
        self.forward.compute.workers = workers;
        self
    }

    /// Replaces the automatically detected kernels.
    #[must_use]
    pub fn with_kernels(mut self, kernels: &'static Kernels) -> Self {
        self.forward.compute.kernels = kernels;
        self
    }

    /// Calls `profiler` after each section of a pass. Without a profiler nothing is measured.
    #[must_use]
    pub fn with_profiler(mut self, profiler: &'m dyn Profiler) -> Self {
        self.forward.compute.profiler = Some(profiler);
        self
    }

    /// Reads the model's matrices from `storage`, if they are not in memory. A row that could not be read ends the run with
    /// [`Error::Storage`].
    #[cfg(feature = "storage")]
    #[must_use]
    pub fn with_storage(mut self, storage: &'m mut (dyn Storage + 'static)) -> Self {
        self.forward.compute.window.storage = Some(storage);
        self
    }

    /// Returns the storage error that ended the last run, if that run was made in steps ([`begin`](Self::begin),
    /// [`begin_encode`](Self::begin_encode)). The last step of such a run has returned false, and its contexts have no
    /// logits. All other functions return the error themselves.
    #[cfg(feature = "storage")]
    pub fn storage_error(&mut self) -> Option<Error> {
        self.forward.compute.window.take_fault()
    }

    /// Returns the error of the storage in this run.
    #[inline(always)]
    pub(crate) fn check_storage(&mut self) -> Result<(), Error> {
        #[cfg(feature = "storage")]
        if let Some(error) = self.storage_error() {
            return Err(error);
        }
        Ok(())
    }

    /// Clears the storage error of the last run. Checks that a storage was given, if the model's matrices are in a
    /// storage.
    #[inline(always)]
    fn open_storage(&mut self) -> Result<(), Error> {
        #[cfg(feature = "storage")]
        {
            let window = &mut self.forward.compute.window;
            window.take_fault();
            if window.storage.is_none() && self.model.gguf().pieces().is_head() {
                return Err(Error::NoStorage);
            }
        }
        Ok(())
    }

    /// Calls `see` with the input of every linear layer from now on, for example to compute an importance matrix.
    #[must_use]
    pub fn with_inputs(mut self, see: &'m Inputs<'m>) -> Self {
        self.forward.compute.inputs = Some(see);
        self
    }

    /// Lets contexts use `adapters`. [`adapt`](Self::adapt) takes their indices.
    ///
    /// # Errors
    ///
    /// [`Error::BufferTooSmall`] if there are more adapters than [`Options::adapters`], or if an adapter's rank exceeds
    /// [`Options::rank`]; the errors of [`Adapter::new`] if an adapter does not fit this model.
    #[cfg(feature = "lora")]
    pub fn with_adapters(mut self, adapters: &'m [Adapter<'m>]) -> Result<Self, Error> {
        self.forward.compute.lora.set(adapters, self.model)?;
        Ok(self)
    }

    /// Replaces the adapters of a context. `adapters` has the index and the scale of each adapter. The context restarts
    /// at position 0, because its keys and values were computed with the previous adapters. A new context has no
    /// adapters, and a fork has the adapters of its original.
    ///
    /// # Errors
    ///
    /// [`Error::BufferTooSmall`] if there is no adapter with such an index; [`Error::ForeignContext`].
    #[cfg(feature = "lora")]
    pub fn adapt(&mut self, context: &mut Context, adapters: &[(usize, f32)]) -> Result<(), Error> {
        self.known(context)?;
        self.forward.compute.lora.choose(context.slot, adapters)?;
        for pool in &mut self.forward.pools {
            pool.release(context.slot, 0);
        }
        self.forget_checkpoints(context.slot);
        #[cfg(feature = "drafts")]
        self.forget_drafts(context.slot, 0);
        #[cfg(feature = "vision")]
        self.forward.turns.rewind(context.slot, 0);
        (context.position, context.reached, context.torn, context.source) = (0, 0, false, 0);
        context.logits = Rows::default();
        Ok(())
    }

    /// The model.
    pub fn model(&self) -> &'m Model<'m> {
        self.model
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Opens a new, empty context.
    ///
    /// # Errors
    ///
    /// [`Error::TooManyContexts`] if all planned contexts are open.
    pub fn open(&mut self) -> Result<Context, Error> {
        let planned = self.open.len();
        let free = self.open.iter_mut().enumerate().find(|(_, open)| **open == 0);
        let (slot, open) = free.ok_or(Error::TooManyContexts { planned })?;
        *open = 1;
        let engine = self.id;
        #[cfg(feature = "lora")]
        self.forward.compute.lora.choose(slot, &[])?;
        self.forget_checkpoints(slot);
        #[cfg(feature = "drafts")]
        self.forget_drafts(slot, 0);
        #[cfg(feature = "vision")]
        self.forward.turns.rewind(slot, 0);
        Ok(Context { slot, engine, position: 0, reached: 0, torn: false, source: 0, logits: Rows::default() })
    }

    /// Opens a copy of `context`. The copy has the same tokens and logits and shares the pages. Contexts share a page
    /// until one of them writes to it; that context then gets a copy of the page. The encoder's text stays shared.
    ///
    /// # Errors
    ///
    /// [`Error::TooManyContexts`]; [`Error::ForeignContext`].
    pub fn fork(&mut self, context: &Context) -> Result<Context, Error> {
        let fork = self.fork_at(context, context.position)?;
        Ok(Context { logits: context.logits, ..fork })
    }

    /// Opens a context with the first `position` tokens of `context`, sharing their pages.
    ///
    /// # Errors
    ///
    /// The errors of [`fork`](Self::fork), and [`Error::CannotRewind`] as in [`rewind`](Self::rewind).
    pub fn fork_at(&mut self, context: &Context, position: usize) -> Result<Context, Error> {
        self.known(context)?;
        self.can_rewind(context, position)?;
        let fork = self.open()?;
        #[cfg(feature = "lora")]
        self.forward.compute.lora.copy(context.slot, fork.slot);
        let reached = if position == 0 { 0 } else { context.reached };
        #[cfg(feature = "drafts")]
        self.share_drafts(context, fork.slot, position);
        #[cfg(feature = "vision")]
        {
            self.forward.turns.share(context.slot, fork.slot);
            self.forward.turns.rewind(fork.slot, position);
        }
        if let Some(entry) = self.state_at(context, position)
            && let Some(pool) = self.forward.pools.get_mut(STATES)
        {
            pool.name((context.slot, entry), (fork.slot, 0));
        }
        for (kind, pool) in self.forward.pools.iter_mut().enumerate().take(STATES) {
            // Shares the whole page table of a sliding window, because the table is a ring and the needed tiles may be
            // anywhere in the ring.
            let tiles = if kind == SOURCE || self.plan.is_ring(self.model.spec(), kind) && position > 0 {
                usize::MAX
            } else {
                position.div_ceil(TILE)
            };
            pool.share(context.slot, fork.slot, tiles);
        }
        Ok(Context { position, reached, source: context.source, ..fork })
    }

    /// Closes a context and frees its pages. (Contexts of other engines are ignored.)
    pub fn close(&mut self, context: Context) {
        if self.known(&context).is_err() {
            return;
        }
        for pool in &mut self.forward.pools {
            pool.release(context.slot, 0);
        }
        if let Some(open) = self.open.get_mut(context.slot) {
            *open = 0;
        }
    }

    /// Number of free pages, out of those planned by [`Options::pages`].
    pub fn free_pages(&self) -> usize {
        let pools = self.forward.pools.iter().enumerate().take(SOURCE);
        pools
            .filter(|(kind, _)| !self.plan.is_ring(self.model.spec(), *kind))
            .map(|(_, pool)| pool.free())
            .max()
            .unwrap_or(0)
    }

    /// Removes all tokens from `position` on. The logits do not change.
    ///
    /// # Errors
    ///
    /// [`Error::CannotRewind`] if the context is not at `position` yet, or if a sliding window has overwritten keys
    /// that the token at `position` would attend to; [`Error::ForeignContext`].
    pub fn rewind(&mut self, context: &mut Context, position: usize) -> Result<(), Error> {
        self.known(context)?;
        self.can_rewind(context, position)?;
        if let Some(entry) = self.state_at(context, position)
            && let Some(pool) = self.forward.pools.get_mut(STATES)
        {
            pool.name((context.slot, entry), (context.slot, 0));
        }
        for mark in self.marks_mut(context.slot).iter_mut().filter(|mark| **mark as usize > position) {
            *mark = 0;
        }
        #[cfg(feature = "drafts")]
        self.rewind_drafts(context, position);
        #[cfg(feature = "vision")]
        self.forward.turns.rewind(context.slot, position);
        (context.position, context.torn) = (position, false);
        for (kind, pool) in self.forward.pools.iter_mut().enumerate().take(SOURCE) {
            if position == 0 || !self.plan.is_ring(self.model.spec(), kind) {
                pool.release(context.slot, position.div_ceil(TILE));
            }
        }
        if position == 0 {
            context.reached = 0;
        }
        Ok(())
    }

    /// The earliest position, other than 0, that a context can rewind to.
    pub fn earliest(&self, context: &Context) -> usize {
        self.plan.earliest(self.model.spec(), context.reached)
    }

    /// The last position, at or before `position`, that a context can rewind to, or 0. A model with recurrent layers
    /// can only rewind to a [checkpoint](Self::checkpoint), because each token replaces the states of these layers.
    pub fn nearest(&self, context: &Context, position: usize) -> usize {
        let position = position.min(context.position);
        if position < self.earliest(context) {
            return 0;
        }
        if !self.has_states() || self.state_at(context, position).is_some() {
            return position;
        }
        #[cfg(feature = "drafts")]
        if self.is_undoable(context, position) {
            return position;
        }
        let marks = self.marks(context.slot).iter().map(|mark| *mark as usize);
        marks.filter(|mark| *mark <= position).max().unwrap_or(0)
    }

    /// Saves the recurrent states of a context, so that the context can later rewind to this position and be forked
    /// here. The last [`Options::checkpoints`] states are kept. Models without recurrent layers have nothing to save.
    ///
    /// ```
    /// use arenite::{Engine, Gguf, Line, Model, Options, Plan, Work};
    ///
    /// # let file = std::fs::read("tests/fixtures/nemotron_h/model.gguf").unwrap();
    /// let gguf = Gguf::parse(&file)?;
    /// let model = Model::new(&gguf)?; // some of its layers are Mamba-2
    /// let plan = Plan::new(&gguf, Options::new().context(64).checkpoints(2))?;
    /// # let mut workspace = vec![Line::ZERO; plan.workspace.div_ceil(64)];
    /// # let mut kv = vec![Line::ZERO; plan.kv.div_ceil(64)];
    /// # let mut engine = Engine::new(&model, plan, Line::bytes_mut(&mut workspace), Line::bytes_mut(&mut kv))?;
    /// let mut context = engine.open()?;
    /// engine.run(&mut [Work::prefill(&mut context, &[5, 6, 7])])?;
    /// engine.checkpoint(&context)?; // the end of the system prompt
    /// engine.run(&mut [Work::prefill(&mut context, &[8, 9])])?;
    ///
    /// assert!(engine.rewind(&mut context, 4).is_err()); // no state was saved at position 4
    /// let back = engine.nearest(&context, 4);
    /// engine.rewind(&mut context, back)?;
    /// assert_eq!(context.position(), 3);
    /// # Ok::<(), arenite::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::ForeignContext`].
    pub fn checkpoint(&mut self, context: &Context) -> Result<(), Error> {
        self.known(context)?;
        if !self.has_states()
            || context.position == 0
            || context.torn
            || self.marks(context.slot).contains(&(context.position as u32))
        {
            return Ok(());
        }
        #[cfg(feature = "drafts")]
        self.settle(context);
        let oldest = self.marks_mut(context.slot).iter_mut().enumerate().min_by_key(|(_, mark)| **mark);
        let Some((entry, mark)) = oldest else { return Ok(()) };
        *mark = context.position as u32;
        if let Some(pool) = self.forward.pools.get_mut(STATES) {
            pool.name((context.slot, 0), (context.slot, entry + 1));
        }
        Ok(())
    }

    /// True if the model has recurrent layers. After an aborted pass or a rewind, the states of these layers return to
    /// a [`checkpoint`](Self::checkpoint).
    pub(crate) fn has_states(&self) -> bool {
        built::STATES && self.plan.store.state_bytes > 0
    }

    /// Positions of the states saved for a context.
    fn marks(&self, slot: usize) -> &[u32] {
        if !built::STATES {
            return &[];
        }
        let count = self.marks.len() / self.open.len().max(1);
        self.marks.get(slot * count..(slot + 1) * count).unwrap_or(&[])
    }

    fn marks_mut(&mut self, slot: usize) -> &mut [u32] {
        if !built::STATES {
            return &mut [];
        }
        let count = self.marks.len() / self.open.len().max(1);
        self.marks.get_mut(slot * count..(slot + 1) * count).unwrap_or_default()
    }

    fn forget_checkpoints(&mut self, slot: usize) {
        self.marks_mut(slot).fill(0);
    }

    /// Returns which of a context's recurrent states belongs to `position`: 0 is the current state, and `1 + i` is
    /// checkpoint `i`.
    fn state_at(&self, context: &Context, position: usize) -> Option<usize> {
        if !self.has_states() || position == 0 {
            return None;
        }
        if position == self.settled(context) && !context.torn {
            return Some(0);
        }
        self.marks(context.slot).iter().position(|mark| *mark as usize == position).map(|entry| entry + 1)
    }

    /// The position of the context's current recurrent states.
    fn settled(&self, context: &Context) -> usize {
        #[cfg(feature = "drafts")]
        return context.position - context.position.min(self.ahead_of(context.slot).pending as usize);
        #[cfg(not(feature = "drafts"))]
        context.position
    }

    fn can_rewind(&self, context: &Context, position: usize) -> Result<(), Error> {
        let nearest = self.nearest(context, position);
        if nearest == position {
            return Ok(());
        }
        let earliest = if self.has_states() { nearest } else { self.earliest(context) };
        Err(Error::CannotRewind { position, earliest, latest: context.position })
    }

    /// Logits of the last token that a context read, `[vocab]`; empty if the last [run](Self::run) did not compute
    /// them.
    pub fn logits(&self, context: &Context) -> &[f32] {
        self.row(context).and_then(|row| self.forward.logits.get(row)).unwrap_or(&[])
    }

    /// The same as [`logits`](Self::logits), but mutable, because a sampler changes logits in place.
    pub fn logits_mut(&mut self, context: &Context) -> &mut [f32] {
        let row = self.row(context);
        row.and_then(|row| self.forward.logits.get_mut(row)).unwrap_or_default()
    }

    /// Logits of the token at `position`, after a run with [`Work::all_logits`].
    pub fn logits_at(&self, context: &Context, position: usize) -> &[f32] {
        let rows = self.rows(context);
        let before =
            rows.end.checked_sub(position.saturating_add(1)).and_then(|after| rows.count.checked_sub(after + 1));
        before.and_then(|row| self.forward.logits.get(self.place(rows.first + row))).unwrap_or(&[])
    }

    /// Rows of logits that the last run computed for a context.
    fn rows(&self, context: &Context) -> Rows {
        let rows = context.logits;
        if rows.run == self.run && context.engine == self.id { rows } else { Rows::default() }
    }

    fn row(&self, context: &Context) -> Option<core::ops::Range<usize>> {
        let rows = self.rows(context);
        (rows.count > 0).then(|| self.place(rows.first + rows.count - 1))
    }

    /// Range of row `row` within all logits.
    fn place(&self, row: usize) -> core::ops::Range<usize> {
        let vocab = self.model.spec().vocab;
        row * vocab..(row + 1) * vocab
    }

    /// Reads `tokens` like [`run`](Self::run) and calls `each` with the position and logits of every token.
    ///
    /// # Errors
    ///
    /// Same as [`run`](Self::run).
    pub fn prefill_all(
        &mut self,
        context: &mut Context,
        tokens: &[TokenId],
        each: impl FnMut(usize, &[f32]),
    ) -> Result<(), Error> {
        self.read_all(Work::prefill(context, tokens), each)
    }

    /// Checks that the context is open and belongs to this engine.
    fn known(&self, context: &Context) -> Result<(), Error> {
        let open = self.open.get(context.slot).is_some_and(|open| *open == 1);
        if open && context.engine == self.id { Ok(()) } else { Err(Error::ForeignContext) }
    }

    /// Checks that a context can read `tokens`. Does not check that there are enough free pages.
    fn check(&self, context: &Context, tokens: &[TokenId]) -> Result<(), Error> {
        self.known(context)?;
        if !self.forward.spec.has_head() {
            return Err(Error::NoPart { part: "decoder" });
        }
        if self.forward.spec.has_cross_attention() && context.source == 0 {
            return Err(Error::NoSource);
        }
        check_tokens(tokens, self.forward.spec.vocab)?;
        if built::STATES && context.torn {
            let (position, earliest) = (context.position, self.nearest(context, context.position));
            return Err(Error::CannotRewind { position, earliest, latest: position });
        }
        let (positions, needed) = (self.plan.options.context, context.position.saturating_add(tokens.len()));
        if needed > positions {
            return Err(Error::ContextFull { context: positions, needed });
        }
        Ok(())
    }

    /// Reserves pages for the next tokens of several contexts. If the pages do not suffice for all contexts, none are
    /// reserved, so that a run that fails changes nothing. `parts` has the slot, position and number of tokens of each
    /// context.
    fn reserve(&mut self, parts: impl Iterator<Item = (usize, usize, usize)> + Clone) -> Result<(), Error> {
        let mut short = None;
        let written = || (0..POOLS).filter(|kind| *kind != SOURCE);
        for (kind, pool) in self.forward.pools.iter_mut().enumerate().filter(|(kind, _)| *kind != SOURCE) {
            let claimed = parts.clone().map(|(slot, position, tokens)| match kind {
                STATES => pool.claim(slot, 0, 0),
                _ => pool.claim(slot, position / TILE, (position + tokens).saturating_sub(1) / TILE),
            });
            let needed = claimed.sum();
            if needed > pool.free() {
                short = Some(Error::OutOfPages { needed, free: pool.free() });
            }
        }
        for (slot, ..) in parts {
            for kind in written() {
                match short {
                    None => self.forward.provide(slot, kind),
                    Some(_) => self.forward.unclaim(slot, kind),
                }
            }
        }
        short.map_or(Ok(()), Err)
    }
}

/// Checks that `tokens` is not empty and that all tokens are in the vocabulary.
fn check_tokens(tokens: &[TokenId], vocab: usize) -> Result<(), Error> {
    if tokens.is_empty() {
        return Err(Error::EmptyPrompt);
    }
    match tokens.iter().find(|&&token| token as usize >= vocab) {
        Some(&token) => Err(Error::TokenOutOfRange { token, vocab: vocab as u32 }),
        None => Ok(()),
    }
}

impl core::fmt::Debug for Engine<'_, '_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Engine").field("plan", &self.plan).finish_non_exhaustive()
    }
}
