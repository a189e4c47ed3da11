//! Runs encoders, whole and in steps.

use super::forward::{EncoderInput, Progress};
use super::layout::SOURCE;
use super::{Context, Engine, Rows, check_tokens};
use crate::memory::TILE;
use crate::{Error, TokenId};

/// A run of an encoder in steps, returned by [`Engine::begin_encode`] and [`Engine::begin_listen`]. A step runs one batch of
/// tokens ([`Options::batch`](crate::Options::batch)) through the embedding, through the keys and values of a layer, through
/// the rest of a layer, through the final norm, or through the keys and values of a decoder layer's cross-attention.
///
/// If an `Encoding` is dropped before its last step, the context has no text: run the encoder again.
///
/// # Examples
///
/// ```
/// use arenite::{Engine, Gguf, Line, Model, Options, Plan};
///
/// # let file = std::fs::read("tests/fixtures/jina_bert_v2/model.gguf").unwrap();
/// let gguf = Gguf::parse(&file)?;
/// let model = Model::new(&gguf)?;
/// # let plan = Plan::new(&gguf, Options::new().context(32).batch(1))?;
/// # let mut workspace = vec![Line::ZERO; plan.workspace.div_ceil(64)];
/// # let mut kv = vec![Line::ZERO; plan.kv.div_ceil(64)];
/// let mut engine = Engine::new(&model, plan, Line::bytes_mut(&mut workspace), Line::bytes_mut(&mut kv))?;
/// let mut context = engine.open()?;
///
/// let mut encoding = engine.begin_encode(&mut context, &[5, 6, 7])?;
/// let mut pauses = 0;
/// while encoding.step() {
///     pauses += 1; // feed a watchdog, poll a button
/// }
/// drop(encoding);
/// assert!(pauses >= 2 * 3 * model.spec().layers);
/// let mut buffer = vec![0.0; model.spec().embedding_buffer()];
/// let vector = engine.pooled(&mut buffer)?.to_vec(); // of this text
/// assert_eq!(engine.embed(&mut context, &[5, 6, 7], &mut buffer)?, vector);
/// # Ok::<(), arenite::Error>(())
/// ```
#[must_use = "an encoding that is dropped leaves no text"]
pub struct Encoding<'p, 't, 'm, 'w> {
    engine: &'p mut Engine<'m, 'w>,
    context: &'p mut Context,
    input: EncoderInput<'t>,
    positions: usize,
    at: Progress,
}

impl core::fmt::Debug for Encoding<'_, '_, '_, '_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Encoding").finish_non_exhaustive()
    }
}

impl Encoding<'_, '_, '_, '_> {
    /// Runs one step. Returns true if more steps remain.
    pub fn step(&mut self) -> bool {
        let has_more = self.engine.forward.encoder_step(&mut self.at, self.input);
        if self.engine.forward.compute.has_failed() {
            return self.give_up();
        }
        if !has_more {
            self.context.source = self.positions;
        }
        has_more
    }

    /// Ends a run whose storage has failed, without a text.
    #[cold]
    fn give_up(&mut self) -> bool {
        self.at = self.at.begun_again();
        if let Some(source) = &mut self.engine.forward.source {
            source.tokens = 0;
        }
        false
    }

    /// Runs the remaining steps.
    pub fn finish(mut self) {
        while self.step() {}
    }
}

impl Drop for Encoding<'_, '_, '_, '_> {
    fn drop(&mut self) {
        if !self.at.is_done() {
            // Frees the pages of an abandoned text, because not all keys and values of the text are stored.
            self.engine.forward.pools[SOURCE].release(self.context.slot, 0);
        }
    }
}

impl<'m, 'w> Engine<'m, 'w> {
    /// Runs the encoder on a text. The context restarts at position 0 and attends to this text from now on. Afterwards
    /// [`states`](Self::states) returns the text's states.
    ///
    /// # Errors
    ///
    /// [`Error::NoPart`] if the model has no encoder; [`Error::EmptyPrompt`], [`Error::TokenOutOfRange`],
    /// [`Error::ContextFull`], [`Error::OutOfPages`], [`Error::ForeignContext`]. On error nothing was run.
    pub fn encode(&mut self, context: &mut Context, text: &[TokenId]) -> Result<(), Error> {
        self.begin_encode(context, text)?.finish();
        self.check_storage()
    }

    /// Like [`encode`](Self::encode), step by step: the caller may do other work between steps.
    ///
    /// # Errors
    ///
    /// Same as [`encode`](Self::encode).
    pub fn begin_encode<'p, 't>(
        &'p mut self,
        context: &'p mut Context,
        text: &'t [TokenId],
    ) -> Result<Encoding<'p, 't, 'm, 'w>, Error> {
        self.begin_text(context, text, 0)
    }

    /// Begins to encode a text, or a question of this type.
    pub(super) fn begin_text<'p, 't>(
        &'p mut self,
        context: &'p mut Context,
        text: &'t [TokenId],
        question: usize,
    ) -> Result<Encoding<'p, 't, 'm, 'w>, Error> {
        self.known(context)?;
        let source = self.forward.source.as_ref().ok_or(Error::NoPart { part: "encoder" })?;
        if self.forward.spec.sound().is_some() {
            return Err(Error::NoPart { part: "encoder of text" });
        }
        check_tokens(text, source.spec().unwrap_or(self.forward.spec).vocab)?;
        self.begin_source(context, text.len())?;
        let at = Progress::new(context.slot, text.len(), question);
        Ok(Encoding { engine: self, context, input: EncoderInput::Text(text), positions: text.len(), at })
    }

    /// Runs the encoder on a sound: log-mel features, `[frames][bins]` ([`LogMel`](crate::sound::LogMel)), or samples,
    /// depending on the model's [`Front`](crate::model::Front). The context restarts at position 0 and attends to this
    /// sound from now on. Afterwards [`states`](Self::states) returns the encoder's states.
    ///
    /// Whisper expects the features of its whole window, padded with silence.
    ///
    /// # Errors
    ///
    /// [`Error::NoPart`] if the model has no encoder of sounds; [`Error::Sound`] for values that are not finite and for
    /// a sound that is too short; [`Error::ContextFull`], [`Error::OutOfPages`], [`Error::ForeignContext`]. On error
    /// nothing was run.
    #[cfg(feature = "sound")]
    pub fn listen(&mut self, context: &mut Context, sound: &[f32]) -> Result<(), Error> {
        self.begin_listen(context, sound)?.finish();
        self.check_storage()
    }

    /// Like [`listen`](Self::listen), step by step: the caller may do other work between steps, such as storing
    /// samples. For a model that reads samples, this call itself runs the first convolution over the whole sound,
    /// because the convolution's outputs are normalized over the sound.
    ///
    /// # Errors
    ///
    /// Same as [`listen`](Self::listen).
    #[cfg(feature = "sound")]
    pub fn begin_listen<'p, 't>(
        &'p mut self,
        context: &'p mut Context,
        sound: &'t [f32],
    ) -> Result<Encoding<'p, 't, 'm, 'w>, Error> {
        self.known(context)?;
        let part = Error::NoPart { part: "encoder of sounds" };
        let front = self.forward.spec.sound().ok_or(part)?.front;
        crate::sound::check_samples(sound, 0)?;
        let frames = sound.len() / front.inputs().max(1);
        let positions = front.positions(frames);
        if positions == 0 || frames * front.inputs() != sound.len() {
            return Err(Error::Sound { at: sound.len(), why: "is missing: the model needs a longer sound" });
        }
        self.begin_source(context, positions)?;
        let at = Progress::new(context.slot, positions, 0);
        let input = EncoderInput::Sound(self.forward.sound((front, frames), sound));
        Ok(Encoding { engine: self, context, input, positions, at })
    }

    /// Reserves pages for a text or sound of this many positions, and restarts the context.
    fn begin_source(&mut self, context: &mut Context, positions: usize) -> Result<(), Error> {
        self.open_storage()?;
        let planned = self.plan.options.source(self.forward.spec);
        if positions > planned {
            return Err(Error::ContextFull { context: planned, needed: positions });
        }
        let pool = &mut self.forward.pools[SOURCE];
        let (needed, free) = (positions.div_ceil(TILE), pool.free() + pool.owned(context.slot));
        if needed > free {
            return Err(Error::OutOfPages { needed, free });
        }
        pool.release(context.slot, 0);
        pool.claim(context.slot, 0, needed - 1);
        pool.provide(context.slot, |_, _| ());
        self.rewind(context, 0)?;
        (context.source, context.logits) = (0, Rows::default());
        if let Some(source) = &mut self.forward.source {
            source.tokens = 0;
        }
        Ok(())
    }

    /// The encoder's output for the last text: `[tokens][dim]`; empty before the first text.
    pub fn states(&self) -> &[f32] {
        self.forward.source.as_ref().map_or(&[], |source| source.states(self.forward.spec.dim))
    }
}
