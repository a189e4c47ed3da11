//! The scores of options after a prompt, for decisions.

use std::sync::atomic::Ordering;

use arenite::{Context, Error, TokenId, Work};

use super::{ResultClient, Scheduler, shared};
use crate::decide::Reading;
use arenite_text as text;

/// Prompts, and the labels to score after each of them.
pub struct Decision {
    pub readings: Vec<Reading>,
    /// The client whose conversations the cache may use; `None` for those of all clients.
    pub scope: Option<u64>,
    /// The adapters to use, and their scales.
    pub lora: Vec<(usize, f32)>,
    /// Takes the scores of each prompt's labels.
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
    /// Scores the labels of one prompt between two passes. Requests take turns. If pages are missing, the request waits
    /// for conversations to end.
    pub(super) fn decide_next(&mut self) {
        self.decisions.retain(|deciding| !deciding.decision.answer.is_closed());
        let Some(mut deciding) = self.decisions.pop_front() else { return };
        let at = deciding.scores.len();
        if at < deciding.decision.readings.len() {
            match self.score(&deciding.decision, at) {
                Ok(scores) => deciding.scores.push(scores),
                Err(Error::OutOfPages { .. }) if !self.running.is_empty() => {}
                Err(error) => return deciding.fail(error.to_string()),
            }
        }
        if deciding.scores.len() < deciding.decision.readings.len() {
            self.decisions.push_back(deciding);
        } else {
            deciding.decision.answer.send(Ok(deciding.scores));
        }
    }

    /// Returns the log-probability of each label after prompt `at`. What the prompt shares with the one before it, or
    /// with an earlier conversation, is not computed again.
    fn score(&mut self, decision: &Decision, at: usize) -> Result<Vec<f64>, Error> {
        let Decision { readings, scope, lora, .. } = decision;
        let Reading { ids, labels } = &readings[at];
        self.clock += 1;
        let other = readings.get(at + 1).or_else(|| readings.get(at.checked_sub(1)?));
        let branch = other.map_or(0, |other| shared(&other.ids, ids));
        let mut context = self.begun(ids, lora, *scope)?;
        let done = self.read(&mut context, ids, branch).and_then(|()| self.score_labels(&context, labels));
        // Keep only what the prompts share, so that many questions take one place of the cache.
        let kept = self.engine.nearest(&context, branch);
        let unused = match done.is_ok() && kept > 0 && self.engine.rewind(&mut context, kept).is_ok() {
            true => self.cache.keep(context, *scope, ids[..kept].to_vec(), lora.clone(), self.clock),
            false => Some(context),
        };
        if let Some(context) = unused {
            self.engine.close(context);
        }
        done
    }

    /// Opens a context with the beginning of `ids` that a cached one has. At least one token is left to read.
    fn begun(&mut self, ids: &[TokenId], lora: &[(usize, f32)], scope: Option<u64>) -> Result<Context, Error> {
        // Make room first, so that the cache does not evict the context to be shared.
        let room = self.open()?;
        self.engine.close(room);
        if let Some((found, shared)) = self.cache.best(ids, lora, scope) {
            let context = self.cache.touch(found, self.clock);
            let shared = self.engine.nearest(context, shared.min(ids.len().saturating_sub(1)));
            if shared > 0
                && let Ok(fork) = self.engine.fork_at(context, shared)
            {
                return Ok(fork);
            }
        }
        self.open_with(lora)
    }

    /// Reads the rest of a prompt. Saves the states of recurrent layers at `branch`, where the next prompt branches off.
    fn read(&mut self, context: &mut Context, ids: &[TokenId], branch: usize) -> Result<(), Error> {
        while context.position() < ids.len() {
            let from = context.position();
            let end = if from < branch { branch.min(ids.len()) } else { ids.len() };
            let to = end.min(from + self.engine.plan().options.batch.max(1));
            self.with_room(|engine| {
                let work = Work::prefill(context, &ids[from..to]);
                engine.run(&mut [if to < ids.len() { work.no_logits() } else { work }])
            })?;
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
