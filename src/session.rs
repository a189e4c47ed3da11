//! The plain face: one engine, one context.

use core::ops::ControlFlow;

use crate::engine::{Context, Engine, Inputs, Observer, Plan, Profiler, Work};
use crate::kernel::Kernels;
use crate::model::Model;
use crate::workers::Workers;
use crate::{Error, TokenId};

/// A model at work on one conversation: an [`Engine`] with one [`Context`].
///
/// The results do not depend on how a prompt is cut into batches, on the number of workers, or on
/// the kernels: always the same bits.
///
/// # Examples
///
/// ```
/// use arenite::sampler::argmax;
/// use arenite::{Gguf, Line, Model, Options, Plan, Session};
///
/// # let file = std::fs::read("tests/fixtures/stories.gguf").unwrap();
/// let gguf = Gguf::parse(&file)?;
/// let model = Model::new(&gguf)?;
/// let plan = Plan::new(&gguf, Options::new().context(64))?;
/// let mut workspace = vec![Line::ZERO; plan.workspace.div_ceil(64)];
/// let mut kv = vec![Line::ZERO; plan.kv.div_ceil(64)];
/// let mut session = Session::new(&model, plan, Line::bytes_mut(&mut workspace), Line::bytes_mut(&mut kv))?;
///
/// session.prefill(&[1, 300, 301])?; // a prompt's tokens
/// for _ in 0..10 {
///     let token = argmax(session.logits()).unwrap_or_default(); // the likeliest
///     session.decode(token)?;
/// }
/// assert_eq!(session.position(), 13);
/// session.rewind(3)?; // another way from the end of the prompt
/// # Ok::<(), arenite::Error>(())
/// ```
#[derive(Debug)]
pub struct Session<'m, 'w> {
    engine: Engine<'m, 'w>,
    context: Context,
}

impl<'m, 'w> Session<'m, 'w> {
    /// Sets up a session in `workspace` and `kv`, which hold at least the planned bytes and start on
    /// [`ALIGN`](crate::memory::ALIGN) boundaries. Nothing beyond the planned bytes is touched, and
    /// the memory need not be zeroed.
    ///
    /// # Errors
    ///
    /// As for [`Engine::new`].
    #[inline(never)] // or its temporaries stay on the caller's stack
    pub fn new(model: &'m Model<'_>, plan: Plan, workspace: &'w mut [u8], kv: &'w mut [u8]) -> Result<Self, Error> {
        let mut engine = Engine::new(model, plan, workspace, kv)?;
        let context = engine.open()?;
        Ok(Self { engine, context })
    }

    /// Shares the work among `workers`; the plan says how many take part.
    #[must_use]
    pub fn with_workers(mut self, workers: &'m dyn Workers) -> Self {
        self.engine = self.engine.with_workers(workers);
        self
    }

    /// Runs on these kernels instead of the fastest.
    #[must_use]
    pub fn with_kernels(mut self, kernels: &'static Kernels) -> Self {
        self.engine = self.engine.with_kernels(kernels);
        self
    }

    /// Tells `profiler` whenever a section of a pass is done.
    #[must_use]
    pub fn with_profiler(mut self, profiler: &'m dyn Profiler) -> Self {
        self.engine = self.engine.with_profiler(profiler);
        self
    }

    /// Shows `see` what every linear layer multiplies, from here on.
    #[must_use]
    pub fn with_inputs(mut self, see: &'m Inputs<'m>) -> Self {
        self.engine = self.engine.with_inputs(see);
        self
    }

    /// The engine and the context, for what takes both: forks, several conversations in a pass, beam search.
    pub fn parts(&mut self) -> (&mut Engine<'m, 'w>, &mut Context) {
        (&mut self.engine, &mut self.context)
    }

    /// Runs the encoder on a text; a decoder that follows it begins anew, at position 0, and attends to this text
    /// from now on. Afterwards [`states`](Self::states) are those of the text.
    ///
    /// # Errors
    ///
    /// As for [`Engine::encode`].
    pub fn encode(&mut self, text: &[TokenId]) -> Result<(), Error> {
        self.engine.encode(&mut self.context, text)
    }

    /// What the encoder made of the last text: `[tokens][dim]`; empty before the first.
    pub fn states(&self) -> &[f32] {
        self.engine.states()
    }

    /// The states of the text as one vector: see [`Engine::pooled`].
    ///
    /// # Errors
    ///
    /// As for [`Engine::pooled`].
    pub fn pooled<'b>(&mut self, buffer: &'b mut [f32]) -> Result<&'b mut [f32], Error> {
        self.engine.pooled(buffer)
    }

    /// Makes one vector of a text: see [`Engine::embed`].
    ///
    /// # Errors
    ///
    /// As for [`Engine::embed`].
    pub fn embed<'b>(&mut self, text: &[TokenId], buffer: &'b mut [f32]) -> Result<&'b mut [f32], Error> {
        self.engine.embed(&mut self.context, text, buffer)
    }

    /// Makes one vector of a pair of texts: see [`Engine::embed_pair`].
    ///
    /// # Errors
    ///
    /// As for [`Engine::embed`].
    pub fn embed_pair<'b>(
        &mut self,
        texts: &[TokenId],
        second: usize,
        buffer: &'b mut [f32],
    ) -> Result<&'b mut [f32], Error> {
        self.engine.embed_pair(&mut self.context, texts, second, buffer)
    }

    /// Runs `tokens` after what is in the context. Afterwards [`logits`](Self::logits) are those
    /// of the last one.
    ///
    /// # Errors
    ///
    /// As for [`Engine::run`]: nothing has been run then.
    pub fn prefill(&mut self, tokens: &[TokenId]) -> Result<(), Error> {
        self.engine.run(&mut [Work::prefill(&mut self.context, tokens)])
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
        let works = &mut [Work::prefill(&mut self.context, tokens)];
        let mut pass = self.engine.begin(works)?;
        loop {
            match pass.step_observed(observer) {
                ControlFlow::Continue(true) => {}
                ControlFlow::Continue(false) => return Ok(ControlFlow::Continue(())),
                ControlFlow::Break(()) => return Ok(ControlFlow::Break(())),
            }
        }
    }

    /// As [`prefill`](Self::prefill), and `each` is called with the position and the logits (one f32 for
    /// each word of the vocabulary) of every token.
    ///
    /// # Errors
    ///
    /// As for [`prefill`](Self::prefill).
    pub fn prefill_all(&mut self, tokens: &[TokenId], each: impl FnMut(usize, &[f32])) -> Result<(), Error> {
        self.engine.prefill_all(&mut self.context, tokens, each)
    }

    /// Runs one token.
    ///
    /// # Errors
    ///
    /// As for [`prefill`](Self::prefill).
    pub fn decode(&mut self, token: TokenId) -> Result<(), Error> {
        self.prefill(&[token])
    }

    /// The logits of the last token: one f32 for each word of the vocabulary; empty before the first
    /// [`prefill`](Self::prefill).
    pub fn logits(&self) -> &[f32] {
        self.engine.logits(&self.context)
    }

    /// The logits, for a sampler to work on in place.
    pub fn logits_mut(&mut self) -> &mut [f32] {
        self.engine.logits_mut(&self.context)
    }

    /// Tokens in the context: the position of the next one.
    pub fn position(&self) -> usize {
        self.context.position()
    }

    /// Positions in the context.
    pub fn context(&self) -> usize {
        self.engine.plan().options.context
    }

    /// Forgets everything from `position` on; the logits stay as they are.
    ///
    /// # Errors
    ///
    /// [`Error::CannotRewind`] if the session has not come that far, or if a sliding window has
    /// overwritten what the token at `position` would see.
    pub fn rewind(&mut self, position: usize) -> Result<(), Error> {
        self.engine.rewind(&mut self.context, position)
    }

    /// Bytes that [`save`](Self::save) writes now. [`Plan::snapshot_bytes`] tells beforehand.
    pub fn snapshot_bytes(&self) -> usize {
        self.engine.snapshot_bytes(&self.context)
    }

    /// Writes a snapshot to the front of `out` and returns its length: see [`Engine::save`].
    ///
    /// # Errors
    ///
    /// As for [`Engine::save`].
    pub fn save(&self, out: &mut [u8]) -> Result<usize, Error> {
        self.engine.save(&self.context, out)
    }

    /// Puts the session where the one was that [`save`](Self::save) wrote: see [`Engine::restore`].
    ///
    /// # Errors
    ///
    /// As for [`Engine::restore`]; the session is then as it was before.
    pub fn restore(&mut self, snapshot: &[u8]) -> Result<(), Error> {
        self.engine.restore(&mut self.context, snapshot)
    }
}
