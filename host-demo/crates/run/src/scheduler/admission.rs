//! Decides which answers run, and which context each of them starts with.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use arenite::{Context, Error, TokenId};

use super::running::{Progress, Running};
use super::{Event, Job, Scheduler};
use crate::generation::Settings;
use crate::reuse::{self, Donor, blocks};
use arenite_text::shared;
use arenite_text::shown::one_line;

/// An answer that waits for one of the `parallel` slots.
pub enum Waiting {
    /// A new answer: its job; the number of tokens that the client is told to be cached, if this differs from the real
    /// number; and the number of the answer's slot.
    New(Box<Job>, Option<usize>, usize),
    /// An answer in progress whose slot went to another client.
    Paused(Box<Progress>),
}

impl Waiting {
    pub fn job(&self) -> &Job {
        match self {
            Self::New(job, ..) => job,
            Self::Paused(progress) => &progress.job,
        }
    }

    /// The number of the slot.
    fn slot(&self) -> usize {
        match self {
            Self::New(.., slot) => *slot,
            Self::Paused(progress) => progress.slot,
        }
    }
}

/// The context to share, by its index.
#[derive(Clone, Copy)]
enum Source {
    Cached(usize),
    Running(usize),
}

impl Scheduler<'_, '_, '_> {
    /// Gives slots to waiting answers. The client with the fewest running answers comes first. Among the requests of
    /// this client, the request with the fewest running answers comes first. If no slot is free, and the client with
    /// the most running answers has at least two more of them than the waiting client, one of its answers is paused.
    /// Thus no client waits for another client's long answers.
    pub(super) fn admit(&mut self) {
        let slots = &mut self.slots;
        self.waiting.retain(|waiting| {
            let is_closed = waiting.job().client.is_closed();
            if is_closed {
                slots.failed(waiting.job().scope, waiting.slot());
            }
            !is_closed
        });
        let mut refused = HashSet::new();
        loop {
            let turn = |job: &Job| {
                let each = || self.running.iter().map(|running| running.job.asker);
                let of_client = each().filter(|asker| asker.client == job.asker.client).count();
                (of_client, each().filter(|asker| *asker == job.asker).count())
            };
            let open = self.waiting.iter().map(Waiting::job).enumerate();
            let open = open.filter(|(_, job)| !refused.contains(&job.asker)).map(|(at, job)| (turn(job), at));
            let Some(((of_client, _), at)) = open.min() else { break };
            let is_full = self.running.len() >= self.parallel;
            let most = self.running.iter().enumerate().map(|(at, running)| (turn(&running.job), at)).max();
            let victim = most.filter(|((most, _), _)| is_full && *most >= of_client + 2).map(|(_, at)| at);
            if is_full && victim.is_none() {
                break;
            }
            let waiting = &self.waiting[at];
            if let Waiting::New(job, ..) = waiting
                && self.is_coming(job)
            {
                refused.insert(job.asker);
                continue;
            }
            let Some(waiting) = self.waiting.remove(at) else { break };
            if let Some(victim) = victim {
                self.pause(victim);
            }
            match waiting {
                Waiting::New(job, known, slot) => self.begin(*job, known, slot),
                Waiting::Paused(progress) => self.resume(progress),
            }
        }
    }

    /// Returns true if a running conversation is just reading tokens with which the job's prompt begins, too. The job
    /// should wait until it can share these tokens.
    fn is_coming(&self, job: &Job) -> bool {
        let most = job.prompt.len().saturating_sub(1);
        let known = self.best_shared(&job.prompt, job).map_or(0, |(_, shared)| shared);
        let alike = self.running.iter().filter(|running| running.job.may_share_with(job));
        let coming = alike.map(|running| shared(&running.job.prompt, &job.prompt)).max().unwrap_or(0);
        coming.min(most) >= known + 16
    }

    /// Finds the cached or running context that the job may use and that shares the longest prefix with `ids`. Returns
    /// the context and the length of the prefix, which is always less than the length of `ids`.
    fn best_shared(&self, ids: &[TokenId], job: &Job) -> Option<(Source, usize)> {
        let cached = self.cache.best(ids, &job.settings.lora, job.scope);
        let cached = cached.map(|(at, shared)| (Source::Cached(at), shared));
        let alike = self.running.iter().enumerate().filter(|(_, running)| running.job.may_share_with(job));
        let running = alike.map(|(at, running)| {
            let read = &running.ids()[..running.context.position()];
            (Source::Running(at), shared(read, ids))
        });
        let best = cached.into_iter().chain(running).max_by_key(|(_, shared)| *shared)?;
        let shared = job.settings.shown.whole(best.1.min(ids.len().saturating_sub(1)));
        Some((best.0, shared)).filter(|(_, shared)| *shared > 0)
    }

    /// Opens a context for `ids`. Unless `is_fresh` is true, the new context starts with tokens that another context
    /// has already read. Also returns the length of the prefix that `ids` and this other context share.
    fn context_of(&mut self, ids: &[TokenId], job: &Job, is_fresh: bool) -> Result<(Context, usize), Error> {
        let lora = &*job.settings.lora;
        // Make room first, because otherwise the cache could evict the context that is to be shared.
        let room = self.open()?;
        self.engine.close(room);
        let best = if is_fresh { None } else { self.best_shared(ids, job) };
        let Some((source, branch)) = best else { return Ok((self.open_with(lora)?, 0)) };
        let context = match source {
            Source::Cached(at) => self.cache.touch(at, self.clock),
            Source::Running(at) => &self.running[at].context,
        };
        let shared = job.settings.shown.whole(self.engine.nearest(context, branch));
        let forked = if shared > 0 { self.engine.fork_at(context, shared).ok() } else { None };
        Ok((forked.map_or_else(|| self.open_with(lora), Ok)?, branch))
    }

    /// Finds the conversation that has the most tokens of the prompt after `start`, at other positions.
    fn donor(&mut self, job: &Job, start: usize) -> Option<Donor> {
        let Settings { reuse, scores_prompt, reads_anew, shown, .. } = &*job.settings;
        if *reuse == 0 || *scores_prompt || *reads_anew || !shown.is_empty() || !self.engine.can_reuse() {
            return None;
        }
        // A context is made available first. Later, making one available could evict the cached context of the donor.
        let room = self.open().ok()?;
        self.engine.close(room);
        let cached = self.cache.alike(&job.settings.lora, job.scope);
        let alike = self.running.iter().filter(|running| running.job.may_share_with(job));
        let running = alike.map(|running| (&running.context, &running.ids()[..running.context.position()]));
        let each = cached.chain(running).map(|(context, ids)| (context, blocks(&job.prompt, ids, start, *reuse)));
        let (context, blocks) =
            each.max_by_key(|(_, blocks)| reuse::sum(blocks)).filter(|(_, some)| !some.is_empty())?;
        let context = self.engine.fork(context).ok()?;
        Some(Donor::new(context, blocks))
    }

    fn begin(&mut self, job: Job, known: Option<usize>, slot: usize) {
        self.clock += 1;
        if !job.settings.reads_anew {
            self.fetch(&job.prompt, &job.settings.lora, job.scope);
        }
        // Scoring a prompt needs the logits of all its tokens, so the context of such a prompt starts empty.
        let (context, branch) =
            match self.context_of(&job.prompt, &job, job.settings.scores_prompt || job.settings.reads_anew) {
                Ok(context) => context,
                Err(error) => {
                    self.slots.failed(job.scope, slot);
                    job.client.send(Event::Failed(error.to_string()));
                    return;
                }
            };
        let cached = context.position();
        let donor = self.donor(&job, cached);
        self.counters.requests.fetch_add(1, Ordering::Relaxed);
        self.counters.cached_tokens.fetch_add(cached as u64, Ordering::Relaxed);
        let grammar = job.settings.table.as_ref().map_or(0, |table| self.grammars.number(table));
        let progress = match Progress::new(job, (known.unwrap_or(cached), slot), grammar, self.tokenizer) {
            Ok(progress) => Box::new(progress),
            Err((job, error)) => {
                self.engine.close(context);
                donor.into_iter().for_each(|donor| self.engine.close(donor.context));
                self.slots.failed(job.scope, slot);
                job.client.send(Event::Failed(one_line(&format!("{error:#}"))));
                return;
            }
        };
        let mut running = Running { context, progress, donor };
        if self.engine.model().spec().is_recurrent() {
            running.plan_checkpoints(branch);
        }
        self.running.push(running);
    }

    /// Takes the slot away from an answer, and moves the answer's context to the cache.
    fn pause(&mut self, at: usize) {
        let mut running = self.running.remove(at);
        running.end_donor(&mut self.engine);
        let Running { context, mut progress, .. } = running;
        self.drafts.end(&mut progress.draft);
        let ids = progress.ids()[..context.position()].to_vec();
        self.keep(context, &progress.job, ids);
        self.waiting.push_back(Waiting::Paused(progress));
    }

    /// Gives a slot to a paused answer.
    fn resume(&mut self, progress: Box<Progress>) {
        self.clock += 1;
        match self.context_of(progress.ids(), &progress.job, progress.scores) {
            Ok((context, _)) => self.running.push(Running { context, progress, donor: None }),
            Err(error) => {
                self.slots.failed(progress.job.scope, progress.slot);
                progress.job.client.send(Event::Failed(error.to_string()));
            }
        }
    }

    /// Moves the context of an answer to the cache. `ids` are the tokens in the context.
    pub(super) fn keep(&mut self, context: Context, job: &Job, ids: Vec<TokenId>) {
        self.clock += 1;
        if let Some(context) = self.cache.keep(context, job.scope, ids, job.settings.lora.clone(), self.clock) {
            self.engine.close(context);
        }
    }
}
