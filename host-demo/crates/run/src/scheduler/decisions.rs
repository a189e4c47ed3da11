//! The scores of options after a prompt, for decisions.

use std::sync::atomic::Ordering;

use std::ops::{ControlFlow, Range};

use anyhow::{Result, ensure};
use arenite::{Context, Error, Observer, Stage, TokenId, Work};

use super::{ResultClient, STOPPED, Scheduler, is_wanted};
use crate::decide::{Reading, Scored};
use arenite_text as text;
use arenite_text::shared;

/// Prompts whose options are to be scored.
pub struct Decision {
    pub readings: Vec<Reading>,
    /// The client whose conversations the cache may use; `None` to use the conversations of all clients.
    pub scope: Option<u64>,
    /// The adapters to use, and their scales.
    pub lora: Vec<(usize, f32)>,
    /// Takes the scores of each prompt's options.
    pub answer: Box<dyn ResultClient<Vec<Vec<f64>>>>,
}

/// A decision, and the scores so far.
pub struct Deciding {
    decision: Decision,
    scores: Vec<Vec<f64>>,
}

impl From<Decision> for Deciding {
    fn from(decision: Decision) -> Self {
        Self { decision, scores: Vec::new() }
    }
}

impl Deciding {
    pub fn fail(self, why: String) {
        self.decision.answer.send(Err(why));
    }
}

impl Scheduler<'_, '_, '_> {
    /// Scores the options of some prompts between two passes. Requests take turns. If there are too few free pages, the
    /// request waits until conversations end.
    pub(super) fn decide_next(&mut self) {
        self.decisions.retain(|deciding| !deciding.decision.answer.is_closed());
        let Some(mut deciding) = self.decisions.pop_front() else { return };
        let at = deciding.scores.len();
        if at < deciding.decision.readings.len() {
            match self.score_some(&deciding.decision, at) {
                Ok(scores) => deciding.scores.extend(scores),
                Err(error) => match error.downcast_ref() {
                    Some(Error::OutOfPages { .. }) if !self.running.is_empty() => {}
                    _ => return deciding.fail(format!("{error:#}")),
                },
            }
        }
        if deciding.scores.len() < deciding.decision.readings.len() {
            self.decisions.push_back(deciding);
        } else {
            deciding.decision.answer.send(Ok(deciding.scores));
        }
    }

    /// Returns the scores of prompt `at`, and of the following prompts that fit in the same pass. Among prompts with a
    /// common beginning, the first prompt is read alone, so that the following prompts can share this beginning.
    fn score_some(&mut self, decision: &Decision, at: usize) -> Result<Vec<Vec<f64>>> {
        let options = self.engine.plan().options;
        // One of the contexts is not available for prompts, because it keeps the cached beginning of the prompts.
        let most = options.logits.min(options.contexts.saturating_sub(1 + self.running.len()));
        let Decision { readings, scope, lora, .. } = decision;
        let together = at..readings.len().min(at + most);
        let together = together.take_while(|next| readings[*next].scored.is_one_token() && !is_first(readings, *next));
        let together = together.map(|next| &readings[next]);
        let pages = |reading: &Reading| {
            // A page has 16 positions. One page more is needed, because the page at which a prompt differs from the
            // cached prompt is copied.
            let known = self.cache.best(&reading.ids, lora, *scope).map_or(0, |(_, shared)| shared);
            reading.ids.len().saturating_sub(known).div_ceil(16) + 1
        };
        let pages: Vec<usize> = together.map(pages).collect();
        let count = self.fitting(&pages);
        if count > 1 {
            match self.score_together(decision, at..at + count) {
                // Read one prompt, because the estimate was too low.
                Err(Error::TooManyContexts { .. } | Error::OutOfPages { .. }) => {}
                done => return Ok(done?),
            }
        }
        Ok(vec![self.score(decision, at)?])
    }

    /// Returns how many prompts fit in memory, given the number of pages that each prompt takes. If necessary, evicts
    /// contexts of the cache, but not the most recently used context, which usually has the prompts' beginning.
    fn fitting(&mut self, pages: &[usize]) -> usize {
        let (mut count, mut needed) = (0, 0);
        for pages in pages {
            needed += pages;
            while needed > self.engine.free_pages() && self.cache.len() > 1 && self.evict() {}
            if needed > self.engine.free_pages() {
                break;
            }
            count += 1;
        }
        count
    }

    /// Returns the scores of prompts whose options are single tokens. All prompts are read in one pass.
    fn score_together(&mut self, decision: &Decision, range: Range<usize>) -> Result<Vec<Vec<f64>>, Error> {
        let Decision { readings, scope, lora, .. } = decision;
        self.clock += 1;
        let mut contexts = Vec::new();
        let mut done = Ok(Vec::new());
        for Reading { ids, scored } in &readings[range.clone()] {
            match self.begun((ids, scored.shareable(ids.len())), lora, *scope) {
                Ok(context) => contexts.push(context),
                Err(error) => done = Err(error),
            }
        }
        if done.is_ok() {
            done = self.read_together(&mut contexts, &readings[range]);
        }
        contexts.into_iter().for_each(|context| self.engine.close(context));
        done
    }

    fn read_together(&mut self, contexts: &mut [Context], readings: &[Reading]) -> Result<Vec<Vec<f64>>, Error> {
        let rest: usize = contexts.iter().zip(readings).map(|(it, reading)| reading.ids.len() - it.position()).sum();
        self.with_room(|engine| {
            let work = |(context, reading)| {
                let (context, Reading { ids, .. }): (&mut Context, &Reading) = (context, reading);
                let from = context.position();
                Work::prefill(context, &ids[from..])
            };
            let mut works: Vec<Work<'_>> = contexts.iter_mut().zip(readings).map(work).collect();
            engine.run(&mut works)
        })?;
        self.counters.prompt_tokens.fetch_add(rest as u64, Ordering::Relaxed);
        let score = |(context, reading): (&Context, &Reading)| match &reading.scored {
            Scored::Labels(labels) => self.score_labels(context, labels),
            _ => Ok(Vec::new()),
        };
        contexts.iter().zip(readings).map(score).collect()
    }

    /// Computes the score of each option for one of the prompts of a decision, number `at`. Tokens that this prompt
    /// shares with the previous prompt, or with an earlier conversation, are not computed again.
    fn score(&mut self, decision: &Decision, at: usize) -> Result<Vec<f64>> {
        let Decision { readings, scope, lora, .. } = decision;
        let Reading { ids, scored } = &readings[at];
        self.clock += 1;
        let counters = self.counters.clone();
        let goes_on = &|| is_wanted(&*decision.answer, &counters);
        if let Scored::Marks { marks, kind } = scored {
            return self.score_marks(ids, (marks, *kind), lora, goes_on);
        }
        let most = scored.shareable(ids.len());
        let other = readings.get(at + 1).or_else(|| readings.get(at.checked_sub(1)?));
        let branch =
            other.map_or(0, |other| shared(&other.ids, ids).min(other.scored.shareable(other.ids.len()))).min(most);
        let mut context = self.begun((ids, most), lora, *scope)?;
        let done = match scored {
            Scored::Labels(labels) => self
                .read(&mut context, (ids, branch), &mut (), goes_on)
                .and_then(|()| Ok(self.score_labels(&context, labels)?)),
            Scored::Ends(ends) => self.score_ends(&mut context, (ids, branch), ends, goes_on),
            Scored::Joint(joint) => {
                let dim = self.engine.model().spec().dim;
                let mut states = States { dim, wanted: None, values: Vec::new() };
                let read = self.read(&mut context, (ids, branch), &mut states, goes_on);
                read.and_then(|()| joint.scores(self.engine.model().gguf(), ids, &states.values))
            }
            Scored::Marks { .. } => Ok(Vec::new()),
        };
        // Keep only the tokens that the prompts share, so that many questions take only one context of the cache. The
        // prompt of a single question is kept, because the prompt of the next request may share its beginning.
        let kept = self.engine.nearest(&context, if other.is_some() { branch } else { most });
        let unused = match done.is_ok() && kept > 0 && self.engine.rewind(&mut context, kept).is_ok() {
            true => self.cache.keep(context, *scope, ids[..kept].to_vec(), lora.clone(), self.clock),
            false => Some(context),
        };
        if let Some(context) = unused {
            self.engine.close(context);
        }
        done
    }

    /// Returns the scores that an encoder computes for the tokens at `marks`, in a question of the type `kind`.
    fn score_marks(
        &mut self,
        ids: &[TokenId],
        (marks, kind): (&[usize], usize),
        lora: &[(usize, f32)],
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Vec<f64>> {
        let spec = self.engine.model().spec();
        let (dim, mut buffer) = (spec.dim, vec![0.0; spec.embedding_buffer()]);
        let mut context = self.open_with(lora)?;
        let done = self.engine.begin_question(&mut context, ids, kind).map(|mut encoding| {
            while encoding.step() {
                if !goes_on() {
                    return false;
                }
            }
            true
        });
        self.engine.close(context);
        ensure!(done?, STOPPED);
        self.counters.prompt_tokens.fetch_add(ids.len() as u64, Ordering::Relaxed);
        let mut scores = Vec::new();
        for mark in marks {
            buffer[..dim].copy_from_slice(&self.engine.states()[mark * dim..][..dim]);
            let out = self.engine.headed(&mut buffer)?;
            // Some models have a score for each type of question. `kind`, the type of this question, selects one of
            // them.
            scores.push(f64::from(out[if out.len() > 1 { kind.min(out.len() - 1) } else { 0 }]));
        }
        Ok(scores)
    }

    /// Returns the product of the last token's vector with the vector of each option's last token, divided by the
    /// square root of the length of the vectors.
    fn score_ends(
        &mut self,
        context: &mut Context,
        (ids, branch): (&[TokenId], usize),
        ends: &[usize],
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Vec<f64>> {
        let spec = self.engine.model().spec();
        let (dim, mut buffer) = (spec.dim, vec![0.0; spec.embedding_buffer()]);
        let wanted = ends.iter().copied().chain([ids.len() - 1]).collect();
        let mut states = States { dim, wanted: Some(wanted), values: Vec::new() };
        self.read(context, (ids, branch), &mut states, goes_on)?;
        let mut vectors = Vec::new();
        for state in states.values.chunks_exact(dim) {
            buffer[..dim].copy_from_slice(state);
            vectors.push(self.engine.headed(&mut buffer)?.to_vec());
        }
        let Some((last, ends)) = vectors.split_last() else { return Ok(Vec::new()) };
        let half = last.len() / 2;
        let product =
            |end: &Vec<f32>| last.iter().zip(&end[half..]).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
        Ok(ends.iter().map(|end| product(end) / (half as f64).sqrt()).collect())
    }

    /// Opens a context that contains the longest known beginning of `ids`, up to `most` tokens. The beginning is taken
    /// from a cached context.
    fn begun(
        &mut self,
        (ids, most): (&[TokenId], usize),
        lora: &[(usize, f32)],
        scope: Option<u64>,
    ) -> Result<Context, Error> {
        // Make room first, because otherwise the cache could evict the context that is to be shared.
        let room = self.open()?;
        self.engine.close(room);
        if let Some((found, shared)) = self.cache.best(ids, lora, scope) {
            let context = self.cache.touch(found, self.clock);
            let shared = self.engine.nearest(context, shared.min(most));
            if shared > 0
                && let Ok(fork) = self.engine.fork_at(context, shared)
            {
                return Ok(fork);
            }
        }
        self.open_with(lora)
    }

    /// Reads the rest of a prompt, and passes the states of its tokens to `states`. Saves the states of recurrent
    /// layers at `branch`, where the next prompt branches off.
    fn read(
        &mut self,
        context: &mut Context,
        (ids, branch): (&[TokenId], usize),
        observer: &mut impl Observer,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<()> {
        while context.position() < ids.len() {
            let from = context.position();
            let end = if from < branch { branch.min(ids.len()) } else { ids.len() };
            let to = end.min(from + self.engine.plan().options.batch.max(1));
            self.with_room(|engine| {
                let work = Work::prefill(context, &ids[from..to]);
                let mut works = [if to < ids.len() { work.no_logits() } else { work }];
                let mut pass = engine.begin(&mut works)?;
                while pass.step_observed(observer) == ControlFlow::Continue(true) && goes_on() {}
                Ok(())
            })?;
            ensure!(goes_on(), STOPPED);
            self.counters.prompt_tokens.fetch_add((to - from) as u64, Ordering::Relaxed);
            if to == branch {
                self.engine.checkpoint(context)?;
            }
        }
        Ok(())
    }

    fn score_labels(&mut self, context: &Context, labels: &[Vec<TokenId>]) -> Result<Vec<f64>, Error> {
        let logits = self.engine.logits(context);
        crate::runtime::numbers(logits)?;
        let log_p = |logits: &[f32], total: f64, token: TokenId| {
            logits.get(token as usize).map_or(f64::NEG_INFINITY, |logit| f64::from(*logit) - total)
        };
        let total = text::log_of_sum(logits);
        let first = |label: &Vec<TokenId>| label.first().map_or(0.0, |token| log_p(logits, total, *token));
        let mut scores: Vec<f64> = labels.iter().map(first).collect();
        for (score, label) in scores.iter_mut().zip(labels) {
            let (Some((_, before)), Some((_, after))) = (label.split_last(), label.split_first()) else { continue };
            if after.is_empty() {
                continue;
            }
            let room = self.open()?;
            self.engine.close(room);
            let mut fork = self.engine.fork(context)?;
            let start = fork.position();
            let mut sum = 0.0;
            let done = self.with_room(|engine| {
                sum = 0.0;
                engine.rewind(&mut fork, start)?;
                engine.prefill_all(&mut fork, before, |position, logits| {
                    sum += log_p(logits, text::log_of_sum(logits), after[position - start]);
                })
            });
            self.engine.close(fork);
            done?;
            *score += sum;
        }
        Ok(scores)
    }

    /// Runs a pass. If pages are missing, evicts contexts of the cache and tries again.
    fn with_room(
        &mut self,
        mut run: impl FnMut(&mut arenite::Engine<'_, '_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        loop {
            match run(&mut self.engine) {
                Err(Error::OutOfPages { .. }) if self.evict() => {}
                done => return done,
            }
        }
    }
}

/// Returns true if a prompt is the first of a group: it shares much more with the next prompt than with the prompt
/// before it.
fn is_first(readings: &[Reading], at: usize) -> bool {
    let with = |other: Option<usize>| {
        let other = other.and_then(|other| readings.get(other));
        other.map_or(0, |other| shared(&other.ids, &readings[at].ids))
    };
    at == 0 || with(at.checked_sub(1)) < with(Some(at + 1)) / 2
}

/// Collects the states of tokens after the final norm.
struct States {
    /// Width of a state.
    dim: usize,
    /// Positions of the tokens whose states are collected, in ascending order; `None` for all tokens.
    wanted: Option<Vec<usize>>,
    values: Vec<f32>,
}

impl Observer for States {
    fn wants(&self, stage: Stage) -> bool {
        stage == Stage::Logits
    }

    fn observe(&mut self, _: Stage, _: usize, position: usize, states: &[f32]) -> ControlFlow<()> {
        let is_wanted = |at: &usize| self.wanted.as_ref().is_none_or(|wanted| wanted.contains(at));
        for (_, state) in (position..).zip(states.chunks_exact(self.dim)).filter(|(at, _)| is_wanted(at)) {
            self.values.extend_from_slice(state);
        }
        ControlFlow::Continue(())
    }
}
