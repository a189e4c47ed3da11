//! Embeddings: a text as one vector.

use core::ops::ControlFlow;

use super::{Context, Encoding, Engine, Observer, Stage, Work};
use crate::model::Pooling;
use crate::{Error, TokenId};

impl<'m, 'w> Engine<'m, 'w> {
    /// Computes the embedding of a text: pools the states of its tokens and applies the model's linear layers after
    /// pooling, if there are such layers. The context restarts. If the model is a decoder, the context is empty
    /// afterwards.
    ///
    /// `buffer` has at least [`Spec::embedding_buffer`](crate::model::Spec::embedding_buffer) elements. The returned
    /// vector is a part of `buffer`. A reranker returns one score per class (usually one).
    ///
    /// ```
    /// use arenite::{Engine, Gguf, Line, Model, Options, Plan};
    ///
    /// # let file = std::fs::read("tests/fixtures/qwen3_embedding/model.gguf").unwrap();
    /// let gguf = Gguf::parse(&file)?;
    /// let model = Model::new(&gguf)?;
    /// # let plan = Plan::new(&gguf, Options::new().context(64))?;
    /// # let mut workspace = vec![Line::ZERO; plan.workspace.div_ceil(64)];
    /// # let mut kv = vec![Line::ZERO; plan.kv.div_ceil(64)];
    /// let mut engine = Engine::new(&model, plan, Line::bytes_mut(&mut workspace), Line::bytes_mut(&mut kv))?;
    /// let mut context = engine.open()?;
    ///
    /// let mut buffers = [(); 2].map(|()| vec![0.0; model.spec().embedding_buffer()]);
    /// let [a, b] = &mut buffers;
    /// let a = engine.embed(&mut context, &[5, 6, 7], a)?;
    /// let b = engine.embed(&mut context, &[5, 6, 8], b)?;
    /// let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
    /// let cosine = dot(a, b) / (dot(a, a) * dot(b, b)).sqrt(); // similarity of the two texts
    /// assert!(cosine < 1.0);
    /// # Ok::<(), arenite::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::BufferTooSmall`], and the errors of [`encode`](Self::encode) or, without an encoder, of
    /// [`run`](Self::run).
    pub fn embed<'b>(
        &mut self,
        context: &mut Context,
        text: &[TokenId],
        buffer: &'b mut [f32],
    ) -> Result<&'b mut [f32], Error> {
        Ok(self.embed_steps(context, text, buffer, || true)?.unwrap_or_default())
    }

    fn embed_steps<'b>(
        &mut self,
        context: &mut Context,
        text: &[TokenId],
        buffer: &'b mut [f32],
        mut goes_on: impl FnMut() -> bool,
    ) -> Result<Option<&'b mut [f32]>, Error> {
        if self.forward.source.is_some() {
            let mut encoding = self.begin_encode(context, text)?;
            while encoding.step() {
                if !goes_on() {
                    return Ok(None);
                }
            }
            drop(encoding);
            self.check_storage()?;
            return self.pooled(buffer).map(Some);
        }
        let mut pool = self.pool(text.len(), buffer)?;
        self.rewind(context, 0)?;
        let mut works = [Work::prefill(context, text)];
        let mut pass = self.begin(&mut works)?;
        let mut is_left = false;
        while !is_left && pass.step_observed(&mut pool) == ControlFlow::Continue(true) {
            is_left = !goes_on();
        }
        pool.finish();
        self.rewind(context, 0)?;
        self.check_storage()?;
        if is_left { Ok(None) } else { self.through_head(buffer).map(Some) }
    }

    /// Like [`embed`](Self::embed), but rows of pictures replace some of the tokens' embeddings: see
    /// [`Work::pictures`](crate::Work::pictures). The model is a decoder.
    ///
    /// # Errors
    ///
    /// The errors of [`embed`](Self::embed), and the errors of [`run`](Self::run) for pictures.
    #[cfg(feature = "vision")]
    pub fn embed_pictures<'b>(
        &mut self,
        context: &mut Context,
        text: &[TokenId],
        pictures: &[super::Span<'_>],
        buffer: &'b mut [f32],
    ) -> Result<&'b mut [f32], Error> {
        let mut pool = self.pool(text.len(), buffer)?;
        self.rewind(context, 0)?;
        let mut works = [Work::prefill(context, text).pictures(pictures)];
        let mut pass = self.begin(&mut works)?;
        while let ControlFlow::Continue(true) = pass.step_observed(&mut pool) {}
        pool.finish();
        self.rewind(context, 0)?;
        self.check_storage()?;
        self.through_head(buffer)
    }

    /// Like [`embed`](Self::embed), for a pair of texts: the second text starts at token `second`, and its tokens have
    /// the second token type if the model has token types.
    ///
    /// ```
    /// use arenite::{Engine, Gguf, Line, Model, Options, Plan};
    ///
    /// # let file = std::fs::read("tests/fixtures/bert_reranker/model.gguf").unwrap();
    /// let gguf = Gguf::parse(&file)?; // a reranker
    /// let model = Model::new(&gguf)?;
    /// # let plan = Plan::new(&gguf, Options::new().context(32))?;
    /// # let mut workspace = vec![Line::ZERO; plan.workspace.div_ceil(64)];
    /// # let mut kv = vec![Line::ZERO; plan.kv.div_ceil(64)];
    /// let mut engine = Engine::new(&model, plan, Line::bytes_mut(&mut workspace), Line::bytes_mut(&mut kv))?;
    /// let mut context = engine.open()?;
    ///
    /// let (question, answer) = ([2, 9, 10, 3], [11, 12, 3]); // as the tokenizer joins them
    /// let mut buffer = vec![0.0; model.spec().embedding_buffer()];
    /// let score = engine.embed_pair(&mut context, &[&question[..], &answer].concat(), question.len(), &mut buffer)?;
    /// assert_eq!(score.len(), 1);
    /// # Ok::<(), arenite::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Same as [`embed`](Self::embed).
    pub fn embed_pair<'b>(
        &mut self,
        context: &mut Context,
        texts: &[TokenId],
        second: usize,
        buffer: &'b mut [f32],
    ) -> Result<&'b mut [f32], Error> {
        Ok(self.embed_while(context, (texts, second), buffer, || true)?.unwrap_or_default())
    }

    /// Like [`embed_pair`](Self::embed_pair), but calls `goes_on` after each step. A step is a layer of a decoder, or a
    /// part of an encoder's layer. If `goes_on` returns false, the computation ends and the result is `None`. `second`
    /// is the index in `texts` at which the second text begins, or `usize::MAX` for a single text.
    ///
    /// # Errors
    ///
    /// Same as [`embed`](Self::embed).
    pub fn embed_while<'b>(
        &mut self,
        context: &mut Context,
        (texts, second): (&[TokenId], usize),
        buffer: &'b mut [f32],
        goes_on: impl FnMut() -> bool,
    ) -> Result<Option<&'b mut [f32]>, Error> {
        self.forward.second = second;
        let made = self.embed_steps(context, texts, buffer, goes_on);
        self.forward.second = usize::MAX;
        made
    }

    /// The embedding of the last text: like [`embed`](Self::embed), from states that the encoder has already computed.
    ///
    /// ```
    /// use arenite::{Engine, Gguf, Line, Model, Options, Plan};
    ///
    /// # let file = std::fs::read("tests/fixtures/jina_bert_v2/model.gguf").unwrap();
    /// let gguf = Gguf::parse(&file)?;
    /// let model = Model::new(&gguf)?;
    /// # let plan = Plan::new(&gguf, Options::new().context(32))?;
    /// # let mut workspace = vec![Line::ZERO; plan.workspace.div_ceil(64)];
    /// # let mut kv = vec![Line::ZERO; plan.kv.div_ceil(64)];
    /// let mut engine = Engine::new(&model, plan, Line::bytes_mut(&mut workspace), Line::bytes_mut(&mut kv))?;
    /// let mut context = engine.open()?;
    ///
    /// engine.encode(&mut context, &[5, 6, 7])?;
    /// assert_eq!(engine.states().len(), 3 * model.spec().dim); // a vector for each token
    /// let mut buffer = vec![0.0; model.spec().embedding_buffer()];
    /// assert_eq!(engine.pooled(&mut buffer)?.len(), model.spec().embedding_len()); // and one for all
    /// # Ok::<(), arenite::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::NoSource`] before the first text; [`Error::BufferTooSmall`].
    pub fn pooled<'b>(&mut self, buffer: &'b mut [f32]) -> Result<&'b mut [f32], Error> {
        let tokens = self.states().len() / self.forward.spec.dim.max(1);
        let mut pool = self.pool(tokens, buffer)?;
        if tokens == 0 {
            return Err(Error::NoSource);
        }
        pool.add(0, self.states());
        pool.finish();
        self.through_head(buffer)
    }

    /// Begins to run the encoder on a question with its options and a state, like [`begin_encode`](Self::begin_encode).
    /// `kind` is the type of the question, as a row of the model's table of question types. Afterwards,
    /// [`headed`](Self::headed) turns the state of an option's mark into the option's score.
    ///
    /// # Errors
    ///
    /// Same as [`encode`](Self::encode), and [`Error::NoPart`] if the model does not score options, or lacks the type.
    pub fn begin_question<'p, 't>(
        &'p mut self,
        context: &'p mut Context,
        text: &'t [TokenId],
        kind: usize,
    ) -> Result<Encoding<'p, 't, 'm, 'w>, Error> {
        let scoring = self.forward.spec.scoring().filter(|scoring| kind < scoring.types);
        scoring.ok_or(Error::NoPart { part: "layers for this type of question" })?;
        self.begin_text(context, text, kind)
    }

    /// Applies the linear layers after pooling to the state of one token, as [`embed`](Self::embed) does to the pooled
    /// state. `buffer` has at least [`Spec::embedding_buffer`](crate::model::Spec::embedding_buffer) elements, of which
    /// the first `dim` are the state. Returns the part of `buffer` that has the result.
    ///
    /// # Errors
    ///
    /// [`Error::BufferTooSmall`].
    pub fn headed<'b>(&mut self, buffer: &'b mut [f32]) -> Result<&'b mut [f32], Error> {
        self.pool(1, buffer)?;
        self.through_head(buffer)
    }

    fn pool<'b>(&self, tokens: usize, buffer: &'b mut [f32]) -> Result<Pool<'b>, Error> {
        let spec = self.forward.spec;
        let (needed, given) = (spec.embedding_buffer(), buffer.len());
        let short = Error::BufferTooSmall { what: "floats of the embedding", needed, given };
        let out = buffer.get_mut(..needed).and_then(|out| out.get_mut(..spec.dim)).ok_or(short)?;
        Ok(Pool { pooling: spec.pooling, tokens, out })
    }

    fn through_head<'b>(&mut self, buffer: &'b mut [f32]) -> Result<&'b mut [f32], Error> {
        self.open_storage()?;
        self.forward.pooled_head(buffer);
        self.check_storage()?;
        Ok(buffer.get_mut(..self.forward.spec.embedding_len()).unwrap_or_default())
    }
}

/// Pools the states of a text while they are computed.
struct Pool<'b> {
    pooling: Pooling,
    /// Number of tokens of the whole text.
    tokens: usize,
    /// `[dim]`
    out: &'b mut [f32],
}

impl Pool<'_> {
    /// Adds the states of the tokens from `position` on.
    fn add(&mut self, position: usize, states: &[f32]) {
        for (position, state) in (position..).zip(states.chunks_exact(self.out.len().max(1))) {
            let out = self.out.iter_mut().zip(state);
            match self.pooling {
                Pooling::Mean | Pooling::MeanSqrtLength if position > 0 => out.for_each(|(sum, x)| *sum += x),
                Pooling::WeightedMean if position > 0 => out.for_each(|(sum, x)| *sum += x * (position + 1) as f32),
                // A NaN stays.
                Pooling::Max if position > 0 => {
                    out.filter(|(most, x)| **x > **most || x.is_nan()).for_each(|(most, x)| *most = *x);
                }
                Pooling::First if position > 0 => {}
                Pooling::Last if position + 1 < self.tokens => {}
                _ => out.for_each(|(out, x)| *out = *x),
            }
        }
    }

    fn finish(self) {
        let count = self.tokens as f32;
        let divisor = match self.pooling {
            Pooling::Mean => count,
            Pooling::MeanSqrtLength => libm::sqrtf(count),
            Pooling::WeightedMean => count * (count + 1.0) / 2.0,
            _ => return,
        };
        self.out.iter_mut().for_each(|sum| *sum /= divisor);
    }
}

impl Observer for Pool<'_> {
    fn wants(&self, stage: Stage) -> bool {
        stage == Stage::Logits
    }

    /// Stops the pass before the head computes logits, because an embedding does not need them.
    fn observe(&mut self, _: Stage, _: usize, position: usize, states: &[f32]) -> ControlFlow<()> {
        self.add(position, states);
        let end = position + states.len() / self.out.len().max(1);
        if end < self.tokens { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }
}
