//! The engine's thread: schedules conversations and the tokens of each pass.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Result;
use arenite::grammar::Masks;
use arenite::tokenizer::Tokenizer;
use arenite::{Context, Engine, Error, TokenId, Work};

use super::audio::Transcription;
use super::budget::PassBudget;
use super::cache::{Cache, Owner, shared};
use super::logprobs::{Logprob, logprob};
use super::memory::Outbox;
use super::record::{Histogram, Record};
use super::request::Settings;
use super::running::Running;
use crate::ranking::Texts;
use crate::session_file::{Head, SessionFile};

/// A request to the thread.
pub enum Command {
    Generate(Box<Job>),
    Embed(Embedding),
    Transcribe(Box<Transcription>),
}

/// A text, or a pair of texts, to embed.
pub struct Embedding {
    pub texts: Texts,
    /// The adapters to use, and their scales.
    pub lora: Vec<(usize, f32)>,
    pub answer: tokio::sync::oneshot::Sender<Result<Vec<f32>, String>>,
}

/// One answer to generate.
pub struct Job {
    pub prompt: Arc<[TokenId]>,
    pub settings: Arc<Settings>,
    /// The seed of this answer.
    pub seed: u64,
    pub events: Outbox,
    pub record: Arc<Record>,
    /// Identifies the client and its request, so that all take turns.
    pub asker: Asker,
    /// True if the answer reports all cached tokens of the prompt, which reveals the prompts of other clients; otherwise
    /// only those of the client's own conversations.
    pub reports_all_cached: bool,
}

/// The client of a request, and the request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Asker {
    pub client: u64,
    pub request: u64,
}

/// An event of an answer.
#[derive(Debug)]
pub enum Event {
    /// Log-probabilities of the prompt's tokens, if requested.
    Prompt(Vec<Logprob>),
    /// The next token. Its text may be empty (held back), or include text held back earlier.
    Token {
        text: String,
        logprob: Option<Logprob>,
    },
    Done {
        end: Finish,
        /// The stop text that ended the answer.
        stop: Option<String>,
        text: String,
        prompt: usize,
        cached: usize,
        answer: usize,
    },
    Failed(String),
    /// The memory for the rest of the answer is exhausted.
    Overflow,
}

/// The reason why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    Stop,
    Length,
}

impl Finish {
    pub fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
        }
    }
}

/// Counters for `/metrics`.
#[derive(Debug, Default)]
pub struct Counters {
    /// Number of requests without a complete answer.
    pub open: AtomicUsize,
    /// Number of requests without a complete answer, for each client.
    pub open_of: Mutex<HashMap<u64, usize>>,
    pub running: AtomicUsize,
    pub prompt_tokens: AtomicU64,
    pub cached_tokens: AtomicU64,
    pub answer_tokens: AtomicU64,
    pub passes: AtomicU64,
    pub requests: AtomicU64,
    pub free_pages: AtomicUsize,
    /// Seconds from a request to its first token.
    pub first_token: Histogram,
    /// Tokens a second after the first one, of each answer.
    pub token_rate: Histogram,
    /// True if the server is shutting down and refuses new requests.
    pub stopping: AtomicBool,
}

/// State of the engine's thread: requests that wait or run, and cached contexts.
pub struct Scheduler<'a, 'm, 'w> {
    pub engine: Engine<'m, 'w>,
    pub tokenizer: &'a Tokenizer<'a, 'a>,
    /// Number of answers that are generated at the same time.
    pub parallel: usize,
    pub counters: Arc<Counters>,
    budget: PassBudget,
    running: Vec<Running>,
    waiting: VecDeque<Job>,
    /// Texts to embed.
    texts: VecDeque<Embedding>,
    cache: Cache,
    masks: Masks<'a>,
    grammars: Grammars,
    scratch: Vec<u8>,
    clock: u64,
    clients: Clients,
}

/// The last two clients that have sent requests, and the times of their requests.
#[derive(Default)]
struct Clients([Option<(u64, Instant)>; 2]);

impl Clients {
    fn add(&mut self, client: u64) {
        if self.0[0].is_none_or(|(last, _)| last != client) {
            self.0.swap(0, 1);
        }
        self.0[0] = Some((client, Instant::now()));
    }

    /// True if several clients have sent requests lately.
    fn are_several(&self) -> bool {
        self.0[1].is_some_and(|(_, since)| since.elapsed() < Duration::from_secs(60))
    }
}

/// Numbers of recently used grammars, under which their masks are cached.
#[derive(Default)]
struct Grammars {
    known: VecDeque<(u32, Arc<[u8]>)>,
    last: u32,
}

impl Grammars {
    /// The number of a grammar. Numbers are never reused.
    fn number(&mut self, table: &Arc<[u8]>) -> u32 {
        const MOST: usize = 16;
        if let Some(at) = self.known.iter().position(|(_, known)| known == table)
            && let Some(found) = self.known.remove(at)
        {
            self.known.push_back(found);
        } else {
            self.last += 1;
            self.known.push_back((self.last, table.clone()));
            if self.known.len() > MOST {
                self.known.pop_front();
            }
        }
        self.known.back().map_or(0, |(number, _)| *number)
    }
}

impl<'a, 'm, 'w> Scheduler<'a, 'm, 'w> {
    pub fn new(
        engine: Engine<'m, 'w>,
        tokenizer: &'a Tokenizer<'a, 'a>,
        masks: Masks<'a>,
        parallel: usize,
        counters: Arc<Counters>,
    ) -> Self {
        // Large enough for all parameters: the history for penalties, and the whole vocabulary as candidates.
        let scratch = vec![0; 8 * (engine.model().spec().vocab + 1024)];
        Self {
            budget: PassBudget::of(engine.model(), engine.plan().options.batch),
            engine,
            tokenizer,
            parallel,
            counters,
            running: Vec::with_capacity(parallel),
            waiting: VecDeque::new(),
            texts: VecDeque::new(),
            cache: Cache::default(),
            masks,
            grammars: Grammars::default(),
            scratch,
            clock: 0,
            clients: Clients::default(),
        }
    }

    /// Adds the context of a session to the cache.
    pub fn restore(&mut self, file: &mut SessionFile, lora: &[(usize, f32)]) -> Result<()> {
        let mut context = self.open_with(lora)?;
        let head = file.restore(&mut self.engine, &mut context)?;
        if let Some(context) = self.cache.keep(context, Owner::default(), head.tokens, lora.to_vec(), self.clock) {
            self.engine.close(context);
        }
        Ok(())
    }

    /// Writes the longest beginning that two conversations of the cache share, or the only conversation.
    pub fn save(&mut self, file: &SessionFile, lora: &[(usize, f32)]) -> Result<()> {
        let Some((mut context, tokens, shared)) = self.cache.take_most_shared(lora) else { return Ok(()) };
        let position = self.engine.nearest(&context, shared);
        self.engine.rewind(&mut context, position)?;
        file.write(&self.engine, &context, Head { tokens, ..Head::default() })
    }

    /// Runs until all senders of commands are dropped.
    pub fn run(&mut self, commands: &Receiver<Command>) {
        loop {
            let is_idle = self.running.is_empty() && self.waiting.is_empty() && self.texts.is_empty();
            match if is_idle { commands.recv().map_err(|_| TryRecvError::Disconnected) } else { commands.try_recv() } {
                Ok(Command::Generate(job)) => {
                    self.clients.add(job.asker.client);
                    self.waiting.push_back(*job);
                    continue;
                }
                Ok(Command::Embed(text)) => {
                    self.texts.push_back(text);
                    continue;
                }
                // Only models of speech take these, and they have another thread.
                Ok(Command::Transcribe(_)) => continue,
                Err(TryRecvError::Disconnected) if is_idle => return,
                Err(_) => {}
            }
            self.embed_next();
            self.admit();
            if let Err(error) = self.pass() {
                let message = error.to_string();
                for running in self.running.drain(..) {
                    running.job.events.send(Event::Failed(message.clone()));
                    self.engine.close(running.context);
                }
            }
            self.retire();
            self.counters.running.store(self.running.len(), Ordering::Relaxed);
            self.counters.free_pages.store(self.engine.free_pages(), Ordering::Relaxed);
        }
    }

    /// Embeds one text between two passes. If pages are missing it waits for conversations to end.
    fn embed_next(&mut self) {
        let Some(text) = self.texts.pop_front() else { return };
        match self.embed(&text.texts, &text.lora) {
            Err(Error::OutOfPages { .. }) if !self.running.is_empty() => self.texts.push_front(text),
            done => _ = text.answer.send(done.map_err(|error| error.to_string())),
        }
    }

    fn embed(&mut self, texts: &Texts, lora: &[(usize, f32)]) -> Result<Vec<f32>, Error> {
        let mut context = self.open_with(lora)?;
        let spec = *self.engine.model().spec();
        let mut vector = vec![0.0; spec.embedding_buffer()];
        let done = loop {
            match self.engine.embed_pair(&mut context, &texts.ids, texts.second, &mut vector).map(|_| ()) {
                Err(Error::OutOfPages { .. }) if self.evict() => {}
                done => break done,
            }
        };
        self.engine.close(context);
        vector.truncate(spec.embedding_len());
        done.and_then(|()| crate::runtime::numbers(&vector)).map(|()| vector)
    }

    /// Opens a context, evicting the oldest one of the cache if necessary.
    fn open(&mut self) -> Result<Context, Error> {
        loop {
            match self.engine.open() {
                Err(Error::TooManyContexts { .. }) if self.evict() => {}
                context => return context,
            }
        }
    }

    /// Opens a context that uses these adapters.
    fn open_with(&mut self, lora: &[(usize, f32)]) -> Result<Context, Error> {
        let mut context = self.open()?;
        match self.engine.adapt(&mut context, lora) {
            Ok(()) => Ok(context),
            Err(error) => {
                self.engine.close(context);
                Err(error)
            }
        }
    }

    fn evict(&mut self) -> bool {
        match self.cache.oldest() {
            Some(context) => {
                self.engine.close(context);
                true
            }
            None => false,
        }
    }

    /// Starts waiting jobs while slots are free. The client with the fewest running answers comes first, then its
    /// request with the fewest. If there are several clients, the last slot is kept for one without a running answer.
    fn admit(&mut self) {
        self.waiting.retain(|job| !job.events.is_closed());
        let mut refused = HashSet::new();
        while self.running.len() < self.parallel {
            let turn = |job: &Job| {
                let each = || self.running.iter().map(|running| running.job.asker);
                let of_client = each().filter(|asker| asker.client == job.asker.client).count();
                (of_client, each().filter(|asker| *asker == job.asker).count())
            };
            let open = self.waiting.iter().enumerate().filter(|(_, job)| !refused.contains(&job.asker));
            let Some((at, _)) = open.min_by_key(|(_, job)| turn(job)) else { break };
            let job = &self.waiting[at];
            let is_last = self.running.len() + 1 == self.parallel;
            if is_last && self.parallel > 1 && turn(job).0 > 0 && self.clients.are_several() {
                break;
            }
            // If another conversation is reading the same prefix, the job waits and shares it.
            let most = job.prompt.len().saturating_sub(1);
            let known = self.best_shared(job).map_or(0, |(_, shared)| shared);
            let alike = self.running.iter().filter(|running| running.job.settings.lora == job.settings.lora);
            let coming = alike.map(|running| shared(&running.job.prompt, &job.prompt)).max().unwrap_or(0);
            if coming.min(most) >= known + 16 {
                refused.insert(job.asker);
                continue;
            }
            let Some(job) = self.waiting.remove(at) else { break };
            self.begin(job);
        }
    }

    /// Returns the cached or running context of the same adapters with the longest common prefix, and the length of the
    /// prefix.
    fn best_shared(&self, job: &Job) -> Option<(Source, usize)> {
        let (prompt, lora) = (&job.prompt, &job.settings.lora);
        let cached = self.cache.best(prompt, lora).map(|(at, shared)| (Source::Cached(at), shared));
        let alike = self.running.iter().enumerate().filter(|(_, running)| running.job.settings.lora == *lora);
        let running = alike.map(|(at, running)| {
            let read = &running.ids[..running.context.position()];
            (Source::Running(at), shared(read, prompt))
        });
        let best = cached.into_iter().chain(running).max_by_key(|(_, shared)| *shared)?;
        Some((best.0, best.1.min(prompt.len().saturating_sub(1)))).filter(|(_, shared)| *shared > 0)
    }

    fn begin(&mut self, job: Job) {
        self.clock += 1;
        let (mut forked, mut branch) = (None, 0);
        let known = match job.reports_all_cached {
            true => job.prompt.len(),
            false => self.cache.known_to(job.asker.client, &job.prompt, &job.settings.lora),
        };
        // Room is made first, so that the cache does not evict the context to be shared.
        let room = self.open().map(|context| self.engine.close(context));
        // Scoring a prompt needs the logits of all its tokens.
        if room.is_ok()
            && !job.settings.scores_prompt
            && let Some((source, shared)) = self.best_shared(&job)
        {
            let context = match source {
                Source::Cached(at) => self.cache.touch(at, self.clock),
                Source::Running(at) => &self.running[at].context,
            };
            branch = shared;
            let shared = self.engine.nearest(context, shared);
            forked = match shared {
                0 => None,
                _ => self.engine.fork_at(context, shared).ok().map(|context| (context, shared)),
            };
        }
        let context = match forked {
            Some(forked) => Ok(forked),
            None => self.open_with(&job.settings.lora).map(|context| (context, 0)),
        };
        let (context, cached) = match context {
            Ok(context) => context,
            Err(error) => {
                job.events.send(Event::Failed(error.to_string()));
                return;
            }
        };
        self.counters.requests.fetch_add(1, Ordering::Relaxed);
        self.counters.cached_tokens.fetch_add(cached as u64, Ordering::Relaxed);
        let grammar = job.settings.table.as_ref().map_or(0, |table| self.grammars.number(table));
        let mut running = Running::new(job, context, cached.min(known), grammar, self.tokenizer);
        if self.engine.model().spec().recurrent().is_some() {
            running.plan_checkpoints(branch);
        }
        self.running.push(running);
    }

    /// Reads the next piece of a prompt whose tokens are to be scored, with the logits of each.
    fn score_prompt(&mut self) -> Result<(), Error> {
        let Self { engine, running, tokenizer, .. } = self;
        let Some(running) = running.iter_mut().find(|running| running.scores() && running.end.is_none()) else {
            return Ok(());
        };
        let from = running.context.position();
        let to = running.job.prompt.len().min(from + engine.plan().options.batch);
        let ids = running.ids[from..to].to_vec();
        let count = running.job.settings.logprobs.unwrap_or(0);
        if from == 0 {
            running.scored.push(Logprob::unknown(tokenizer, ids[0]));
        }
        let (prompt, offsets, scored) = (&running.job.prompt, &running.prompt_offsets, &mut running.scored);
        engine.prefill_all(&mut running.context, &ids, |position, logits| {
            if let Some(next) = prompt.get(position + 1) {
                scored.push(logprob(tokenizer, logits, *next, count, offsets[position + 1]));
            }
        })?;
        if to == running.job.prompt.len() {
            running.job.events.send(Event::Prompt(std::mem::take(&mut running.scored)));
            self.counters.prompt_tokens.fetch_add(to as u64, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Runs one pass: the next token of every answer, and pieces of prompts.
    fn pass(&mut self) -> Result<(), Error> {
        for running in self.running.iter_mut().filter(|running| running.job.events.is_closed()) {
            running.end = Some(Finish::Stop);
        }
        // After the last piece of a scored prompt, its answer continues immediately.
        let scored = self.running.iter().position(|running| running.scores() && running.end.is_none());
        while let Err(error) = self.score_prompt() {
            if !matches!(error, Error::OutOfPages { .. }) || !self.evict() {
                return Err(error);
            }
        }
        if let Some(at) = scored.filter(|at| !self.running[*at].scores()) {
            self.sample(at);
        }
        let unread = self.running.iter().map(Running::unread).collect::<Vec<_>>();
        let mut counts = self.budget.of_pass(&unread);
        for (running, count) in self.running.iter().zip(&mut counts) {
            *count = running.up_to_checkpoint(*count);
        }
        loop {
            let mut works: Vec<Work<'_>> = Vec::with_capacity(self.running.len());
            for (running, count) in self.running.iter_mut().zip(&counts).filter(|(_, count)| **count > 0) {
                let from = running.context.position();
                let tokens = &running.ids[from..from + count];
                let is_last = from + count == running.ids.len();
                let work = Work::prefill(&mut running.context, tokens);
                works.push(if is_last { work } else { work.no_logits() });
            }
            if works.is_empty() {
                return Ok(());
            }
            match self.engine.run(&mut works) {
                Err(Error::OutOfPages { .. }) => {
                    drop(works);
                    if !self.evict() {
                        return Err(Error::OutOfPages { needed: 1, free: 0 });
                    }
                }
                done => break done?,
            }
        }
        self.counters.passes.fetch_add(1, Ordering::Relaxed);
        for (at, count) in counts.into_iter().enumerate().filter(|(_, count)| *count > 0) {
            let running = &self.running[at];
            if running.is_at_checkpoint() {
                self.engine.checkpoint(&running.context)?;
            }
            let read = running.context.position().min(running.job.prompt.len());
            let prompt = read.saturating_sub(running.context.position() - count);
            self.counters.prompt_tokens.fetch_add(prompt as u64, Ordering::Relaxed);
            if running.unread().left == 0 {
                self.sample(at);
            }
        }
        Ok(())
    }

    /// Samples the next token of a conversation and sends it.
    fn sample(&mut self, at: usize) {
        let Self { engine, tokenizer, running, masks, scratch, counters, .. } = self;
        let running = &mut running[at];
        match running.choose(engine, tokenizer, masks, scratch, counters) {
            Ok(()) => {
                counters.answer_tokens.fetch_add(1, Ordering::Relaxed);
                if running.end.is_some() {
                    running.token_rate().inspect(|rate| counters.token_rate.add(*rate));
                }
            }
            Err(error) => {
                running.job.events.send(Event::Failed(error.to_string()));
                running.end = Some(Finish::Stop);
            }
        }
    }

    /// Removes finished answers and keeps their contexts in the cache.
    fn retire(&mut self) {
        let mut at = 0;
        while at < self.running.len() {
            if self.running[at].end.is_none() {
                at += 1;
                continue;
            }
            let Running { context, mut ids, job, .. } = self.running.swap_remove(at);
            ids.truncate(context.position());
            self.clock += 1;
            let owner = Owner { client: job.asker.client, prompt: job.prompt.len() };
            if let Some(context) = self.cache.keep(context, owner, ids, job.settings.lora.clone(), self.clock) {
                self.engine.close(context);
            }
        }
    }
}

/// The context to share.
#[derive(Clone, Copy)]
enum Source {
    Cached(usize),
    Running(usize),
}
