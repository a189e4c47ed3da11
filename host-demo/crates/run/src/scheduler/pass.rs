//! A pass of the engine for all answers in progress.

use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;

use arenite::{Error, Work};

use super::running::{Progress, Running};
use super::{Command, Event, Finish, Scheduler};
use crate::drafts::Turn;
use crate::eyes::Piece;
use crate::generation::{Logprob, Workbench, logprob};
use arenite_text::shown::one_line;

impl Scheduler<'_, '_, '_> {
    /// For a conversation whose prompt is to be scored, reads the next piece of the prompt and computes the logits of
    /// each of its tokens.
    fn score_prompt(&mut self) -> Result<(), Error> {
        let Self { engine, running, tokenizer, .. } = self;
        let Some(running) = running.iter_mut().find(|running| running.scores && running.end.is_none()) else {
            return Ok(());
        };
        let Running { context, progress: running, .. } = running;
        let from = context.position();
        let to = running.job.prompt.len().min(from + engine.plan().options.batch);
        let ids = running.ids()[from..to].to_vec();
        let count = running.job.settings.logprobs.unwrap_or(0);
        // Drop the scores of tokens that are read again because there were too few free pages or because the answer was
        // paused.
        running.scored.truncate(if from == 0 { 0 } else { from + 1 });
        if from == 0 {
            running.scored.push(Logprob::unknown(tokenizer, ids[0]));
        }
        let (prompt, offsets, scored) = (&running.job.prompt, &running.prompt_offsets, &mut running.scored);
        engine.prefill_all(context, &ids, |position, logits| {
            if let Some(next) = prompt.get(position + 1) {
                scored.push(logprob(tokenizer, logits, *next, count, offsets[position + 1]));
            }
        })?;
        if to == running.job.prompt.len() {
            running.job.client.send(Event::Prompt(std::mem::take(&mut running.scored)));
            running.scores = false;
            self.counters.prompt_tokens.fetch_add(to as u64, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Runs one pass: the next token of every answer, and pieces of prompts. Stops the pass, without effect, if a request
    /// arrives that is to have the next pass.
    pub(super) fn pass(&mut self, commands: &Receiver<Command>) -> Result<(), Error> {
        for running in self.running.iter_mut().filter(|running| running.job.client.is_closed()) {
            running.end = Some(Finish::Stop);
        }
        // If the last piece of a prompt whose log-probabilities are reported has been read, samples the first token of
        // the answer in the same pass.
        let scored = self.running.iter().position(|running| running.scores && running.end.is_none());
        while let Err(error) = self.score_prompt() {
            if !matches!(error, Error::OutOfPages { .. }) || !self.evict() {
                return Err(error);
            }
        }
        if let Some(at) = scored.filter(|at| !self.running[*at].scores) {
            self.sample(at, None);
        }
        for running in &mut self.running {
            let reused = running.reuse(&mut self.engine);
            self.counters.reused_tokens.fetch_add(reused as u64, Ordering::Relaxed);
        }
        let unread = self.running.iter().map(Running::unread).collect::<Vec<_>>();
        let mut counts = self.budget.of_pass(&unread);
        for (running, count) in self.running.iter().zip(&mut counts) {
            *count = running.piece(*count);
        }
        self.propose(&counts);
        let is_whole = loop {
            match self.run_pieces(&counts, commands) {
                Err(Error::OutOfPages { .. }) if self.evict() => {}
                done => break done?,
            }
        };
        if !is_whole {
            return Ok(());
        }
        self.counters.passes.fetch_add(1, Ordering::Relaxed);
        for (at, count) in counts.into_iter().enumerate().filter(|(_, count)| *count > 0) {
            let running = &self.running[at];
            if running.is_at_checkpoint() {
                self.engine.checkpoint(&running.context)?;
            }
            let position = running.context.position() - running.draft.len();
            let prompt = position.min(running.job.prompt.len()).saturating_sub(position - count);
            self.counters.prompt_tokens.fetch_add(prompt as u64, Ordering::Relaxed);
            if position == running.ids().len() {
                self.verify(at)?;
            }
        }
        Ok(())
    }

    /// Runs a pass in which each conversation reads its next tokens; `counts` has the number for each conversation.
    /// Returns false if there were no tokens to read, or if the pass was stopped.
    fn run_pieces(&mut self, counts: &[usize], commands: &Receiver<Command>) -> Result<bool, Error> {
        let each = self.running.iter_mut().map(|running| (&mut running.context, &*running.progress));
        let (contexts, answers): (Vec<_>, Vec<_>) = each.unzip();
        let mut pieces = Vec::with_capacity(counts.len());
        for ((context, answer), count) in contexts.iter().zip(&answers).zip(counts) {
            let from = context.position();
            pieces.push(answer.generation.shown().piece(answer.ids(), from..from + count));
        }
        let mut works: Vec<Work<'_>> = Vec::with_capacity(contexts.len());
        let each = contexts.into_iter().zip(answers).zip(&pieces);
        for ((context, answer), Piece { ids, spans }) in each.filter(|(_, piece)| !piece.ids.is_empty()) {
            let is_last = context.position() + ids.len() == answer.ids().len();
            let draft = &answer.draft;
            works.push(match is_last {
                true if !draft.is_empty() => Work::prefill(context, &draft.run).all_logits().tentative(),
                true => Work::prefill(context, ids).pictures(spans),
                false => Work::prefill(context, ids).pictures(spans).no_logits(),
            });
        }
        if works.is_empty() {
            return Ok(false);
        }
        let spec = self.engine.model().spec();
        // The states of recurrent layers, and of a layer that predicts further tokens, cannot be set back to the
        // beginning of a pass, so such a pass is never stopped.
        let has_states = spec.is_recurrent() || self.engine.plan().options.own_drafts;
        let may_stop = self.budget.may_stop() && counts.len() < self.parallel && !has_states;
        // Only the first half of the layers may be stopped. After this half, finishing the pass costs less than to run
        // these layers again.
        let mut left = if may_stop { spec.layers / 2 } else { 0 };
        let mut pass = self.engine.begin(&mut works)?;
        let mut is_stopped = false;
        while !is_stopped && pass.step() {
            is_stopped = left > 0 && self.arrivals.receive(commands, &self.cache);
            left = left.saturating_sub(1);
        }
        self.budget.end_pass(is_stopped);
        Ok(!is_stopped)
    }

    /// Proposes tokens for the conversations whose last token is read in this pass.
    fn propose(&mut self, counts: &[usize]) {
        let Self { engine, running, drafts, tokenizer, .. } = self;
        if !drafts.is_on() {
            return;
        }
        let mut turns = Vec::with_capacity(running.len());
        for (running, count) in running.iter_mut().zip(counts) {
            let Running { context, progress, .. } = running;
            let Progress { generation, draft, .. } = &mut **progress;
            let is_last = *count == 1 && context.position() + 1 == generation.ids().len();
            if is_last && !generation.answer().is_empty() && generation.may_draft() {
                turns.push(Turn { context, generation, draft });
            }
        }
        // An error of the source of drafts concerns no answer.
        if let Err(error) = drafts.propose(engine, &mut turns, Some(tokenizer)) {
            log::warn!("no drafts: {error:#}");
            turns.iter_mut().for_each(|turn| turn.draft.run.clear());
        }
    }

    /// Chooses the tokens after the last one that a conversation has read: one token, and one more token for each
    /// proposed token that was right. Undoes the proposed tokens that were wrong.
    fn verify(&mut self, at: usize) -> Result<(), Error> {
        let drafted = self.running[at].draft.len();
        if drafted == 0 {
            self.running[at].draft.run.clear();
            self.sample(at, None);
            return Ok(());
        }
        let last = self.running[at].context.position() - drafted - 1;
        self.running[at].draft.begin();
        self.counters.drafted_tokens.fetch_add(drafted as u64, Ordering::Relaxed);
        loop {
            let right = self.running[at].draft.right;
            self.sample(at, Some(last + right));
            let running = &self.running[at];
            if running.draft.right == right || running.end.is_some() {
                break;
            }
        }
        let Running { context, progress, .. } = &mut self.running[at];
        self.engine.rewind(context, last + 1 + progress.draft.right)?;
        progress.draft.end(progress.end.is_some());
        Ok(())
    }

    /// Samples the next token of a conversation and sends it. Uses the logits of the token at `position`, or of the
    /// last token if `position` is `None`.
    fn sample(&mut self, at: usize, position: Option<usize>) {
        let Self { engine, tokenizer, running, masks, scratch, counters, row, .. } = self;
        let Running { context, progress: running, .. } = &mut running[at];
        let context_len = engine.plan().options.context;
        let mut bench = Workbench { tokenizer: Some(tokenizer), masks: Some(masks), scratch, context: context_len };
        let logits = match position {
            Some(position) => {
                row.clear();
                row.extend_from_slice(engine.logits_at(context, position));
                row
            }
            None => engine.logits_mut(context),
        };
        match running.choose(logits, &mut bench, counters) {
            Ok(()) => {
                if let Some(position) = running.generation.take_rewound()
                    && let Err(error) = engine.rewind(context, engine.nearest(context, position))
                {
                    running.job.client.send(Event::Failed(error.to_string()));
                    running.end = Some(Finish::Stop);
                }
                counters.answer_tokens.fetch_add(1, Ordering::Relaxed);
                if running.end.is_some() {
                    running.generation.token_rate().inspect(|rate| counters.token_rate.add(*rate));
                }
            }
            Err(error) => {
                running.job.client.send(Event::Failed(one_line(&format!("{error:#}"))));
                running.end = Some(Finish::Stop);
            }
        }
    }

    /// Removes finished answers and keeps their contexts in the cache.
    pub(super) fn retire(&mut self) {
        let mut at = 0;
        while at < self.running.len() {
            if self.running[at].end.is_none() {
                at += 1;
                continue;
            }
            let mut running = self.running.remove(at);
            running.end_donor(&mut self.engine);
            let Running { context, mut progress, .. } = running;
            self.drafts.end(&mut progress.draft);
            let ids = progress.ids()[..context.position()].to_vec();
            self.slots.end(progress.job.scope, progress.slot, &progress, &ids);
            if let Some(client) = progress.job.scope {
                self.history.add(client, progress.ids(), progress.job.prompt.len(), &progress.job.settings.lora);
            }
            self.keep(context, &progress.job, ids);
        }
    }
}
