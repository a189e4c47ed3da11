//! The simple interface: an engine with one context.

use core::ops::ControlFlow;

#[cfg(feature = "lora")]
use crate::adapter::Adapter;
use crate::engine::{Context, Encoding, Engine, Inputs, Observer, Plan, Profiler, Work};
use crate::kernel::Kernels;
#[cfg(feature = "storage")]
use crate::memory::Storage;
use crate::model::Model;
use crate::workers::Workers;
use crate::{Error, TokenId};

/// Runs a model for one conversation: an [`Engine`] with one [`Context`].
///
/// Results are always the same bits, independent of batching, of the number of workers, and of the kernels.
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
///     let token = argmax(session.logits()).unwrap_or_default(); // the most probable token
///     session.decode(token)?;
/// }
/// assert_eq!(session.position(), 13);
/// session.rewind(3)?; // try another continuation of the prompt
/// # Ok::<(), arenite::Error>(())
/// ```
#[derive(Debug)]
pub struct Session<'m, 'w> {
    engine: Engine<'m, 'w>,
    context: Context,
}

impl<'m, 'w> Session<'m, 'w> {
    /// Creates a session in `workspace` and `kv`. `workspace` and `kv` must have at least the planned size and start on
    /// an [`ALIGN`](crate::memory::ALIGN) boundary. Bytes beyond the planned size are not accessed, and the memory need
    /// not be zeroed.
    ///
    /// # Errors
    ///
    /// Same as [`Engine::new`].
    #[inline(never)] // keeps its temporaries off the caller's stack
    pub fn new(model: &'m Model<'_>, plan: Plan, workspace: &'w mut [u8], kv: &'w mut [u8]) -> Result<Self, Error> {
        let mut engine = Engine::new(model, plan, workspace, kv)?;
        let context = engine.open()?;
        Ok(Self { engine, context })
    }

    /// Shares the work among `workers`. [`Options::workers`](crate::Options::workers) limits how many of them take
    /// part.
    #[must_use]
    pub fn with_workers(mut self, workers: &'m dyn Workers) -> Self {
        self.engine = self.engine.with_workers(workers);
        self
    }

    /// Replaces the automatically detected kernels.
    #[must_use]
    pub fn with_kernels(mut self, kernels: &'static Kernels) -> Self {
        self.engine = self.engine.with_kernels(kernels);
        self
    }

    /// Calls `profiler` after each section of a pass.
    #[must_use]
    pub fn with_profiler(mut self, profiler: &'m dyn Profiler) -> Self {
        self.engine = self.engine.with_profiler(profiler);
        self
    }

    /// Calls `see` with the input of every linear layer from now on.
    #[must_use]
    pub fn with_inputs(mut self, see: &'m Inputs<'m>) -> Self {
        self.engine = self.engine.with_inputs(see);
        self
    }

    /// Reads the model's matrices from `storage`, if they are not in memory: see [`Engine::with_storage`].
    #[cfg(feature = "storage")]
    #[must_use]
    pub fn with_storage(mut self, storage: &'m mut (dyn Storage + 'static)) -> Self {
        self.engine = self.engine.with_storage(storage);
        self
    }

    /// Lets the session use `adapters`: see [`Engine::with_adapters`].
    ///
    /// # Errors
    ///
    /// Same as [`Engine::with_adapters`].
    #[cfg(feature = "lora")]
    pub fn with_adapters(mut self, adapters: &'m [Adapter<'m>]) -> Result<Self, Error> {
        self.engine = self.engine.with_adapters(adapters)?;
        Ok(self)
    }

    /// Chooses adapters and their scales, and restarts at position 0: see [`Engine::adapt`].
    ///
    /// # Errors
    ///
    /// Same as [`Engine::adapt`].
    #[cfg(feature = "lora")]
    pub fn adapt(&mut self, adapters: &[(usize, f32)]) -> Result<(), Error> {
        self.engine.adapt(&mut self.context, adapters)
    }

    /// The engine and the context, for functions that take both: forks, several conversations per pass, beam search.
    pub fn parts(&mut self) -> (&mut Engine<'m, 'w>, &mut Context) {
        (&mut self.engine, &mut self.context)
    }

    /// Runs the encoder on a text. A decoder restarts at position 0 and attends to this text from now on. Afterwards
    /// [`states`](Self::states) returns the text's states.
    ///
    /// # Errors
    ///
    /// Same as [`Engine::encode`].
    pub fn encode(&mut self, text: &[TokenId]) -> Result<(), Error> {
        self.engine.encode(&mut self.context, text)
    }

    /// Like [`encode`](Self::encode), step by step: the caller may do other work between steps.
    ///
    /// # Errors
    ///
    /// Same as [`Engine::encode`].
    pub fn begin_encode<'p, 't>(&'p mut self, text: &'t [TokenId]) -> Result<Encoding<'p, 't, 'm, 'w>, Error> {
        self.engine.begin_encode(&mut self.context, text)
    }

    /// Runs the encoder on a sound: see [`Engine::listen`].
    ///
    /// # Errors
    ///
    /// Same as [`Engine::listen`].
    #[cfg(feature = "sound")]
    pub fn listen(&mut self, sound: &[f32]) -> Result<(), Error> {
        self.engine.listen(&mut self.context, sound)
    }

    /// Like [`listen`](Self::listen), step by step: the caller may do other work between steps, such as storing samples.
    ///
    /// # Errors
    ///
    /// Same as [`Engine::listen`].
    #[cfg(feature = "sound")]
    pub fn begin_listen<'p, 't>(&'p mut self, sound: &'t [f32]) -> Result<Encoding<'p, 't, 'm, 'w>, Error> {
        self.engine.begin_listen(&mut self.context, sound)
    }

    /// The encoder's output for the last text: `[tokens][dim]`; empty before the first text.
    pub fn states(&self) -> &[f32] {
        self.engine.states()
    }

    /// The embedding of the last text, from states that the encoder has already computed: see [`Engine::pooled`].
    ///
    /// # Errors
    ///
    /// Same as [`Engine::pooled`].
    pub fn pooled<'b>(&mut self, buffer: &'b mut [f32]) -> Result<&'b mut [f32], Error> {
        self.engine.pooled(buffer)
    }

    /// Computes the embedding of a text: see [`Engine::embed`].
    ///
    /// # Errors
    ///
    /// Same as [`Engine::embed`].
    pub fn embed<'b>(&mut self, text: &[TokenId], buffer: &'b mut [f32]) -> Result<&'b mut [f32], Error> {
        self.engine.embed(&mut self.context, text, buffer)
    }

    /// Computes the embedding or score of a pair of texts: see [`Engine::embed_pair`].
    ///
    /// # Errors
    ///
    /// Same as [`Engine::embed`].
    pub fn embed_pair<'b>(
        &mut self,
        texts: &[TokenId],
        second: usize,
        buffer: &'b mut [f32],
    ) -> Result<&'b mut [f32], Error> {
        self.engine.embed_pair(&mut self.context, texts, second, buffer)
    }

    /// Appends `tokens` to the context and runs them. Afterwards [`logits`](Self::logits) returns the logits of the
    /// last token.
    ///
    /// # Errors
    ///
    /// Same as [`Engine::run`]. On error nothing was run.
    pub fn prefill(&mut self, tokens: &[TokenId]) -> Result<(), Error> {
        self.engine.run(&mut [Work::prefill(&mut self.context, tokens)])
    }

    /// Like [`prefill`](Self::prefill), but also shows `observer` the hidden states of every batch. If `observer`
    /// returns `Break`, the context keeps only the completed batches, and the logits do not change.
    ///
    /// # Errors
    ///
    /// Same as [`prefill`](Self::prefill).
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
                ControlFlow::Continue(false) => break,
                ControlFlow::Break(()) => return Ok(ControlFlow::Break(())),
            }
        }
        self.engine.check_storage()?;
        Ok(ControlFlow::Continue(()))
    }

    /// Like [`prefill`](Self::prefill), but also calls `each` with the position and logits (`[vocab]`) of every token.
    ///
    /// # Errors
    ///
    /// Same as [`prefill`](Self::prefill).
    pub fn prefill_all(&mut self, tokens: &[TokenId], each: impl FnMut(usize, &[f32])) -> Result<(), Error> {
        self.engine.prefill_all(&mut self.context, tokens, each)
    }

    /// Runs one token.
    ///
    /// # Errors
    ///
    /// Same as [`prefill`](Self::prefill).
    pub fn decode(&mut self, token: TokenId) -> Result<(), Error> {
        self.prefill(&[token])
    }

    /// Logits of the last token, `[vocab]`; empty before the first [`prefill`](Self::prefill).
    pub fn logits(&self) -> &[f32] {
        self.engine.logits(&self.context)
    }

    /// The same as [`logits`](Self::logits), but mutable, because a sampler changes logits in place.
    pub fn logits_mut(&mut self) -> &mut [f32] {
        self.engine.logits_mut(&self.context)
    }

    /// Number of tokens in the context; also the position of the next token.
    pub fn position(&self) -> usize {
        self.context.position()
    }

    /// Length of the context in positions.
    pub fn context(&self) -> usize {
        self.engine.plan().options.context
    }

    /// Removes all tokens from `position` on. The logits do not change.
    ///
    /// # Errors
    ///
    /// [`Error::CannotRewind`] if the session is not at `position` yet, or if a sliding window has overwritten keys
    /// that the token at `position` would attend to.
    pub fn rewind(&mut self, position: usize) -> Result<(), Error> {
        self.engine.rewind(&mut self.context, position)
    }

    /// Number of bytes that [`save`](Self::save) would write now. [`Plan::snapshot_bytes`] computes the size in
    /// advance.
    pub fn snapshot_bytes(&self) -> usize {
        self.engine.snapshot_bytes(&self.context)
    }

    /// Writes a snapshot to the front of `out` and returns the snapshot's length: see [`Engine::save`].
    ///
    /// # Errors
    ///
    /// Same as [`Engine::save`].
    pub fn save(&mut self, out: &mut [u8]) -> Result<usize, Error> {
        self.engine.save(&self.context, out)
    }

    /// Restores the state saved by [`save`](Self::save): see [`Engine::restore`].
    ///
    /// # Errors
    ///
    /// Same as [`Engine::restore`]; on error the session is unchanged.
    pub fn restore(&mut self, snapshot: &[u8]) -> Result<(), Error> {
        self.engine.restore(&mut self.context, snapshot)
    }
}
