//! Decisions: the probabilities of given answers to a question, without generating text.
//!
//! The answers are tokens after a prompt (letters, or words of one token), the classes of a classifier, or marks in a text that an
//! encoder scores. Programs with memory render the prompts of published decision models; a device has one prompt, and its
//! answers are known in advance.

use crate::engine::{Context, Engine, Work};
use crate::model::Spec;
use crate::{Error, Session, TokenId};

/// The answers of a question, and how they are scored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Answers<'a> {
    /// Each answer is a token that may follow the prompt. Its score is the token's logit.
    Tokens(&'a [TokenId]),
    /// All classes of a classifier, in the order of its outputs. The outputs are the scores; the model's layers after
    /// pooling compute them: see [`Spec::embedding_len`](crate::model::Spec::embedding_len).
    Classes,
    /// Marks in the prompt, one for each option of a question. The model is an encoder with layers that score options.
    Marks {
        /// Positions of the marks.
        marks: &'a [usize],
        /// The type of the question: a row of the model's types.
        kind: usize,
    },
}

impl Answers<'_> {
    /// Number of answers, of a model with this specification.
    const fn count(&self, spec: &Spec<'_>) -> usize {
        match self {
            Self::Tokens(tokens) => tokens.len(),
            Self::Classes => spec.embedding_len(),
            Self::Marks { marks, .. } => marks.len(),
        }
    }
}

impl Engine<'_, '_> {
    /// Reads a prompt, and writes the probability of each answer to the front of `out`: the softmax of the answers'
    /// scores divided by `temperature`. Returns the index of the most probable answer. A decoder's context continues
    /// after the prompt; an encoder's context restarts.
    ///
    /// `buffer` holds at least [`Spec::embedding_buffer`](crate::model::Spec::embedding_buffer) values for
    /// [`Answers::Classes`] and [`Answers::Marks`], and may be empty otherwise.
    ///
    /// # Errors
    ///
    /// [`Error::BufferTooSmall`]; [`Error::TokenOutOfRange`] for an answer that is not a token; [`Error::NoPart`] for
    /// classes of a model that is no classifier; [`Error::EmptyPrompt`] for no answers or a mark outside of the prompt;
    /// and the errors of [`run`](Self::run), [`embed`](Self::embed) or [`begin_question`](Self::begin_question).
    pub fn decide(
        &mut self,
        context: &mut Context,
        prompt: &[TokenId],
        answers: Answers<'_>,
        temperature: f32,
        (out, buffer): (&mut [f32], &mut [f32]),
    ) -> Result<usize, Error> {
        let (needed, given) = (answers.count(self.model().spec()), out.len());
        let short = Error::BufferTooSmall { what: "probabilities", needed, given };
        let scores = out.get_mut(..needed).ok_or(short)?;
        match answers {
            Answers::Tokens(tokens) => {
                self.run(&mut [Work::prefill(context, prompt)])?;
                let logits = self.logits(context);
                for (score, token) in scores.iter_mut().zip(tokens) {
                    let vocab = logits.len() as u32;
                    let logit = logits.get(*token as usize);
                    *score = *logit.ok_or(Error::TokenOutOfRange { token: *token, vocab })?;
                }
            }
            Answers::Classes => {
                if !self.model().spec().ranks() {
                    return Err(Error::NoPart { part: "classifier" });
                }
                let made = self.embed(context, prompt, buffer)?;
                scores.iter_mut().zip(made).for_each(|(score, made)| *score = *made);
            }
            Answers::Marks { marks, kind } => {
                self.begin_question(context, prompt, kind)?.finish();
                self.check_storage()?;
                let dim = self.model().spec().dim;
                for (score, mark) in scores.iter_mut().zip(marks) {
                    let states = self.states().get(mark.saturating_mul(dim)..).and_then(|states| states.get(..dim));
                    let (state, given) = (states.ok_or(Error::EmptyPrompt)?, buffer.len());
                    let short = Error::BufferTooSmall { what: "floats of the embedding", needed: dim, given };
                    let place = buffer.get_mut(..dim).ok_or(short)?;
                    place.iter_mut().zip(state).for_each(|(to, from)| *to = *from);
                    let made = self.headed(buffer)?;
                    // Some models have a score for each type of question.
                    *score = made.get(kind).or(made.first()).copied().unwrap_or(0.0);
                }
            }
        }
        softmax(scores, temperature).ok_or(Error::EmptyPrompt)
    }
}

impl Session<'_, '_> {
    /// Decides about one prompt: see [`Engine::decide`]. The session restarts.
    ///
    /// # Examples
    ///
    /// ```
    /// use arenite::{Answers, Gguf, Line, Model, Options, Plan, Session};
    ///
    /// # let file = std::fs::read("tests/fixtures/stories.gguf").unwrap();
    /// let gguf = Gguf::parse(&file)?;
    /// let model = Model::new(&gguf)?;
    /// # let plan = Plan::new(&gguf, Options::new().context(64))?;
    /// # let mut workspace = vec![Line::ZERO; plan.workspace.div_ceil(64)];
    /// # let mut kv = vec![Line::ZERO; plan.kv.div_ceil(64)];
    /// let mut session = Session::new(&model, plan, Line::bytes_mut(&mut workspace), Line::bytes_mut(&mut kv))?;
    ///
    /// let mut probabilities = [0.0; 3];
    /// let best = session.decide(&[1, 300, 301], Answers::Tokens(&[5, 6, 7]), 1.0, &mut probabilities, &mut [])?;
    /// assert!(probabilities.iter().all(|p| *p <= probabilities[best]));
    /// assert!((probabilities.iter().sum::<f32>() - 1.0).abs() < 1e-6);
    /// # Ok::<(), arenite::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Same as [`Engine::decide`].
    pub fn decide(
        &mut self,
        prompt: &[TokenId],
        answers: Answers<'_>,
        temperature: f32,
        out: &mut [f32],
        buffer: &mut [f32],
    ) -> Result<usize, Error> {
        let (engine, context) = self.parts();
        engine.rewind(context, 0)?;
        engine.decide(context, prompt, answers, temperature, (out, buffer))
    }
}

#[cfg(feature = "vision")]
impl crate::vision::Encoder<'_, '_> {
    /// Writes the probability of each class of the [loaded](Self::load) picture to the front of `out`: the softmax of the
    /// picture's row divided by `temperature`. Returns the index of the most probable class. The names of the classes are
    /// in the file, as the array `clip.vision.output_labels`.
    ///
    /// # Errors
    ///
    /// [`Error::NoPart`] if a picture does not have exactly one row; [`Error::BufferTooSmall`] for `out`.
    pub fn decide(&mut self, temperature: f32, out: &mut [f32]) -> Result<usize, Error> {
        if self.plan().views.tokens() != 1 {
            return Err(Error::NoPart { part: "classifier" });
        }
        let (needed, given) = (self.plan().rows, out.len());
        let scores = out.get_mut(..needed).ok_or(Error::BufferTooSmall { what: "probabilities", needed, given })?;
        self.encode(0, scores)?;
        softmax(scores, temperature).ok_or(Error::EmptyPrompt)
    }
}

/// Replaces scores by probabilities; returns the index of the first maximum, or `None` if there are no scores.
fn softmax(scores: &mut [f32], temperature: f32) -> Option<usize> {
    let (mut best, mut top) = (None, f32::NEG_INFINITY);
    for (at, score) in scores.iter().enumerate() {
        if best.is_none() || *score > top {
            (best, top) = (Some(at), *score);
        }
    }
    let mut sum = 0.0;
    for score in scores.iter_mut() {
        *score = libm::expf((*score - top) / temperature);
        sum += *score;
    }
    scores.iter_mut().for_each(|score| *score /= sum);
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities() {
        let mut scores = [1.0, 3.0, 3.0];
        assert_eq!(softmax(&mut scores, 2.0), Some(1));
        let low = libm::expf(-1.0);
        for (p, weight) in scores.into_iter().zip([low, 1.0, 1.0]) {
            assert!((p - weight / (2.0 + low)).abs() < 1e-6);
        }
        assert_eq!(softmax(&mut [], 1.0), None);
    }
}
