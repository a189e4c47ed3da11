//! An answer in progress in the engine: its generation, its context and its client.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering;
use std::time::Instant;

use anyhow::Result;
use arenite::sampler::Pcg32;
use arenite::tokenizer::Tokenizer;
use arenite::{Context, Engine, TokenId};

use super::budget::Unread;
use super::{Counters, Event, Finish, Job, Times};
use crate::drafts::Draft;
use crate::generation::{End, Generation, Logprob, Workbench, offsets};
use crate::reuse::Donor;
use crate::rng::AnyRng;

/// Distance in tokens of a checkpoint from the end of a prompt. A checkpoint at the end is not enough, because the next
/// turn's prompt often differs in the last tokens.
const BEFORE_END: usize = 12;

/// An answer in progress, and its context.
pub struct Running {
    pub context: Context,
    pub progress: Box<Progress>,
    /// The conversation whose tokens the prompt reuses.
    pub donor: Option<Donor>,
}

/// The state of an answer in progress, without the context. While an answer is paused, its context is in the cache. If
/// the cache drops the context, the answer's tokens are prefilled again.
pub struct Progress {
    pub job: Job,
    pub generation: Generation,
    /// The number of the slot.
    pub slot: usize,
    began: Instant,
    /// The time of the first token.
    first: Option<Instant>,
    /// Number of prompt tokens that the answer reports as taken from the cache.
    cached: usize,
    /// Number of complete characters before each token of a prompt that is scored.
    pub prompt_offsets: Vec<usize>,
    pub end: Option<Finish>,
    /// Log-probabilities of the prompt's tokens so far.
    pub scored: Vec<Logprob>,
    /// True while a prompt that is to be scored has tokens without a score.
    pub scores: bool,
    /// Positions at which the states of recurrent layers are saved, in ascending order.
    checkpoints: Vec<usize>,
    /// Proposed tokens of the next pass.
    pub draft: Draft,
}

impl Deref for Running {
    type Target = Progress;

    fn deref(&self) -> &Progress {
        &self.progress
    }
}

impl DerefMut for Running {
    fn deref_mut(&mut self) -> &mut Progress {
        &mut self.progress
    }
}

impl Running {
    /// Returns the tokens that the next pass may read: none if the answer has ended, or while the prompt is being
    /// scored.
    pub fn unread(&self) -> Unread {
        let position = self.context.position();
        let is_open = self.end.is_none() && !self.scores;
        Unread {
            left: if is_open { self.ids().len() - position } else { 0 },
            position,
            is_prompt: self.generation.answer().is_empty(),
        }
    }

    /// Chooses the positions at which states are saved: where another conversation branched off, [`BEFORE_END`] tokens
    /// before the end of the prompt, and at the end of the prompt.
    pub fn plan_checkpoints(&mut self, branch: usize) {
        let len = self.job.prompt.len();
        let shown = self.generation.shown();
        let points = [branch, len.saturating_sub(BEFORE_END), len].map(|point| shown.whole(point));
        self.checkpoints = points.into_iter().filter(|point| *point > self.context.position()).collect();
        self.checkpoints.sort_unstable();
        self.checkpoints.dedup();
    }

    /// Returns the number of tokens, at most `count`, that may be read up to the next checkpoint. The number may differ
    /// if it would cut a picture.
    pub fn piece(&self, count: usize) -> usize {
        let position = self.context.position();
        let next = self.checkpoints.iter().find(|point| **point > position);
        let count = next.map_or(count, |point| count.min(point - position));
        let reused = self.donor.as_ref().and_then(Donor::next);
        let count = reused.map_or(count, |point| count.min(point.saturating_sub(position)));
        if count == 0 { 0 } else { self.generation.shown().end(position, count) - position }
    }

    /// Appends those tokens of the donor, an earlier conversation, that belong at the current position. Returns their
    /// number.
    pub fn reuse(&mut self, engine: &mut Engine<'_, '_>) -> usize {
        let Some(donor) = &mut self.donor else { return 0 };
        let reused = donor.give(engine, &mut self.context);
        if donor.next().is_none() {
            self.end_donor(engine);
        }
        if self.job.scope.is_none() {
            self.cached += reused;
        }
        reused
    }

    /// Stops the reuse of tokens from an earlier conversation, so that the rest of the prompt is read. Returns true if
    /// this released the context of the earlier conversation.
    pub fn end_donor(&mut self, engine: &mut Engine<'_, '_>) -> bool {
        let donor = self.donor.take();
        let is_some = donor.is_some();
        donor.into_iter().for_each(|donor| engine.close(donor.context));
        is_some
    }

    pub fn is_at_checkpoint(&self) -> bool {
        self.checkpoints.contains(&self.context.position())
    }
}

impl Progress {
    /// Begins an answer.
    ///
    /// # Errors
    ///
    /// The prompt has a token outside the vocabulary, or the grammar's table is damaged.
    pub fn new(
        job: Job,
        (cached, slot): (usize, usize),
        grammar: u32,
        tokenizer: &Tokenizer<'_, '_>,
    ) -> Result<Self, (Job, anyhow::Error)> {
        let rng = AnyRng::Pcg(Pcg32::new(job.seed));
        let offsets = match job.settings.scores_prompt {
            true => offsets(&job.prompt, &mut tokenizer.decoder(), tokenizer).map(|(offsets, _)| offsets),
            false => Ok(Vec::new()),
        };
        let generation = Generation::new(job.settings.clone(), &job.prompt, rng, grammar, Some(tokenizer));
        let (prompt_offsets, generation) = match (offsets, generation) {
            (Ok(offsets), Ok(generation)) => (offsets, generation),
            (Err(error), _) | (_, Err(error)) => return Err((job, error)),
        };
        Ok(Self {
            slot,
            began: Instant::now(),
            first: None,
            cached,
            generation,
            prompt_offsets,
            end: None,
            scored: Vec::new(),
            scores: job.settings.scores_prompt,
            checkpoints: Vec::new(),
            draft: Draft::default(),
            job,
        })
    }

    /// The prompt and the answer so far.
    pub fn ids(&self) -> &[TokenId] {
        self.generation.ids()
    }

    /// Chooses the next token and sends it.
    ///
    /// # Errors
    ///
    /// The errors of [`Generation::step`].
    pub fn choose(&mut self, logits: &mut [f32], bench: &mut Workbench<'_, '_, '_>, counters: &Counters) -> Result<()> {
        let is_first = self.generation.answer().is_empty();
        let step = self.generation.step(logits, bench)?;
        // Count the token before the client learns of the end of the answer, because the client may request the metrics
        // next.
        if self.draft.take(step.token.as_ref().map(|token| token.id)) {
            counters.accepted_tokens.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(token) = step.token {
            self.first.get_or_insert_with(Instant::now);
            self.job.client.send(Event::Token { id: token.id, text: token.text, logprob: token.logprob });
            if is_first {
                self.job.client.first_token().inspect(|time| counters.first_token.add(time.as_secs_f64()));
            }
        }
        if let Some(end) = step.end {
            self.finish(if end.is_cut() { Finish::Length } else { Finish::Stop }, end == End::Context);
        }
        Ok(())
    }

    /// Ends the answer, and sends the text that was held back.
    fn finish(&mut self, end: Finish, is_full: bool) {
        let text = self.generation.rest();
        let stop = self.generation.stop().map(str::to_string);
        let (prompt, answer) = (self.job.prompt.len(), self.generation.answer().len());
        let (read, is_full) = (self.ids().len().saturating_sub(1), is_full || self.generation.has_shifted());
        let (cached, slot, drafts) = (self.cached, self.slot, self.draft.counts);
        let now = Instant::now();
        let first = self.first.unwrap_or(now);
        let times = Times { prompt: first.duration_since(self.began), answer: now.duration_since(first) };
        let done = Event::Done { end, stop, text, prompt, cached, answer, slot, read, is_full, drafts, times };
        self.job.client.send(done);
        self.job.client.answered(prompt, answer);
        self.end = Some(end);
    }
}
