//! The engine's thread: what conversations there are, and what goes into each pass.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError};

use anyhow::Result;
use arenite::grammar::{Constraint, Grammar, Masks, State};
use arenite::sampler::{Pcg32, Sampler};
use arenite::tokenizer::{Decoder, Tokenizer};
use arenite::{Context, Engine, Error, TokenId, Work};
use tokio::sync::mpsc::UnboundedSender;

use super::cache::{Cache, shared};
use super::logprobs::{Logprob, logprob};
use super::request::Settings;
use super::shares::{Shares, Unread};
use crate::ranking::Texts;
use crate::stop::StopFilter;
use crate::text;

/// What the thread is asked for.
pub enum Command {
    Generate(Box<Job>),
    Embed(Embedding),
}

/// A text, or a pair of them, that is to become a vector.
pub struct Embedding {
    pub texts: Texts,
    pub answer: tokio::sync::oneshot::Sender<Result<Vec<f32>, String>>,
}

/// One answer that is wanted.
pub struct Job {
    pub prompt: Vec<TokenId>,
    pub settings: Settings,
    pub events: UnboundedSender<Event>,
}

/// What comes of a job.
#[derive(Debug)]
pub enum Event {
    /// The next token; its text may be held back, or more than its own.
    Token {
        text: String,
        logprob: Option<Logprob>,
    },
    Done {
        end: Finish,
        text: String,
        prompt: usize,
        cached: usize,
        answer: usize,
    },
    Failed(String),
}

/// Why an answer ended.
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

/// Numbers that others look at.
#[derive(Debug, Default)]
pub struct Counters {
    /// Requests that have come and have no answer yet.
    pub open: AtomicUsize,
    pub running: AtomicUsize,
    pub prompt_tokens: AtomicU64,
    pub cached_tokens: AtomicU64,
    pub answer_tokens: AtomicU64,
    pub passes: AtomicU64,
    pub requests: AtomicU64,
    pub free_pages: AtomicUsize,
    /// No new requests are taken.
    pub stopping: AtomicBool,
}

/// A conversation at work.
struct Running {
    context: Context,
    job: Job,
    /// The prompt and the answer so far.
    ids: Vec<TokenId>,
    /// Tokens of the prompt that did not have to be computed.
    cached: usize,
    rng: Pcg32,
    state: Option<State>,
    /// The number of its grammar, for masks.
    grammar: u32,
    decoder: Decoder,
    stops: StopFilter,
    end: Option<Finish>,
}

impl Running {
    /// What is still to be read; nothing where the answer has ended.
    fn unread(&self) -> Unread {
        let position = self.context.position();
        Unread { left: if self.end.is_none() { self.ids.len() - position } else { 0 }, position }
    }

    fn answer(&self) -> usize {
        self.ids.len() - self.job.prompt.len()
    }
}

/// All that the thread has.
pub struct Scheduler<'a, 'm, 'w> {
    pub engine: Engine<'m, 'w>,
    pub tokenizer: &'a Tokenizer<'a, 'a>,
    /// Answers in the making at once.
    pub parallel: usize,
    pub counters: Arc<Counters>,
    shares: Shares,
    running: Vec<Running>,
    waiting: VecDeque<Job>,
    /// Texts that are to become vectors.
    texts: VecDeque<Embedding>,
    cache: Cache,
    masks: Masks<'a>,
    grammars: Grammars,
    scratch: Vec<u8>,
    clock: u64,
}

/// Numbers of the grammars that were used last: requests often have the same one.
#[derive(Default)]
struct Grammars {
    known: VecDeque<(u32, Arc<[u8]>)>,
    last: u32,
}

impl Grammars {
    /// The number of a grammar, which no other one has or had.
    fn number(&mut self, table: &Arc<[u8]>) -> u32 {
        const MOST: usize = 64;
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
        // For any parameters: the penalties' history, and all of the vocabulary as candidates.
        let scratch = vec![0; 8 * (engine.model().spec().vocab + 1024)];
        Self {
            shares: Shares::of(engine.model(), engine.plan().options.batch),
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
        }
    }

    /// Serves until nobody asks any more.
    pub fn run(&mut self, commands: &Receiver<Command>) {
        loop {
            let is_idle = self.running.is_empty() && self.waiting.is_empty() && self.texts.is_empty();
            match if is_idle { commands.recv().map_err(|_| TryRecvError::Disconnected) } else { commands.try_recv() } {
                Ok(Command::Generate(job)) => {
                    self.waiting.push_back(*job);
                    continue;
                }
                Ok(Command::Embed(text)) => {
                    self.texts.push_back(text);
                    continue;
                }
                Err(TryRecvError::Disconnected) if is_idle => return,
                Err(_) => {}
            }
            self.embed_next();
            self.admit();
            if let Err(error) = self.pass() {
                let message = error.to_string();
                for running in self.running.drain(..) {
                    let _ = running.job.events.send(Event::Failed(message.clone()));
                    self.engine.close(running.context);
                }
            }
            self.retire();
            self.counters.running.store(self.running.len(), Ordering::Relaxed);
            self.counters.free_pages.store(self.engine.free_pages(), Ordering::Relaxed);
        }
    }

    /// Makes a vector of one text between two passes; where pages are missing, when conversations have ended.
    fn embed_next(&mut self) {
        let Some(text) = self.texts.pop_front() else { return };
        match self.embed(&text.texts) {
            Err(Error::OutOfPages { .. }) if !self.running.is_empty() => self.texts.push_front(text),
            done => _ = text.answer.send(done.map_err(|error| error.to_string())),
        }
    }

    fn embed(&mut self, texts: &Texts) -> Result<Vec<f32>, Error> {
        let mut context = self.open()?;
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
        done.map(|()| vector)
    }

    /// A context; the oldest of the cache gives its place if there is no other.
    fn open(&mut self) -> Result<Context, Error> {
        loop {
            match self.engine.open() {
                Err(Error::TooManyContexts { .. }) if self.evict() => {}
                context => return context,
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

    /// Begins what waits, as far as there is room.
    fn admit(&mut self) {
        let mut at = 0;
        while self.running.len() < self.parallel && at < self.waiting.len() {
            if self.waiting[at].events.is_closed() {
                self.waiting.remove(at);
                continue;
            }
            // What another one is just reading is better shared than read twice.
            let prompt = &self.waiting[at].prompt;
            let most = prompt.len().saturating_sub(1);
            let known = self.best_shared(prompt).map_or(0, |(_, shared)| shared);
            let coming = self.running.iter().map(|running| shared(&running.job.prompt, prompt)).max().unwrap_or(0);
            if coming.min(most) >= known + 16 {
                at += 1;
                continue;
            }
            let Some(job) = self.waiting.remove(at) else { break };
            self.begin(job);
        }
    }

    /// The context that has read most of a prompt's beginning: in the cache, or at work.
    fn best_shared(&self, prompt: &[TokenId]) -> Option<(Source, usize)> {
        let cached = self.cache.best(prompt).map(|(at, shared)| (Source::Cached(at), shared));
        let running = self.running.iter().enumerate().map(|(at, running)| {
            let read = &running.ids[..running.context.position()];
            (Source::Running(at), shared(read, prompt))
        });
        let best = cached.into_iter().chain(running).max_by_key(|(_, shared)| *shared)?;
        Some((best.0, best.1.min(prompt.len().saturating_sub(1)))).filter(|(_, shared)| *shared > 0)
    }

    fn begin(&mut self, job: Job) {
        self.clock += 1;
        let mut forked = None;
        // The cache must not lose what is about to be shared: room is made first.
        let room = self.open().map(|context| self.engine.close(context));
        if room.is_ok()
            && let Some((source, shared)) = self.best_shared(&job.prompt)
        {
            let context = match source {
                Source::Cached(at) => self.cache.touch(at, self.clock),
                Source::Running(at) => &self.running[at].context,
            };
            let shared = self.engine.nearest(context, shared);
            forked = match shared {
                0 => None,
                _ => self.engine.fork_at(context, shared).ok().map(|context| (context, shared)),
            };
        }
        let context = match forked {
            Some(forked) => Ok(forked),
            None => self.open().map(|context| (context, 0)),
        };
        let (context, cached) = match context {
            Ok(context) => context,
            Err(error) => {
                let _ = job.events.send(Event::Failed(error.to_string()));
                return;
            }
        };
        self.counters.requests.fetch_add(1, Ordering::Relaxed);
        self.counters.cached_tokens.fetch_add(cached as u64, Ordering::Relaxed);
        let state = job.settings.table.as_deref().and_then(|table| Some(State::new(&Grammar::new(table).ok()?)));
        let grammar = job.settings.table.as_ref().map_or(0, |table| self.grammars.number(table));
        let mut decoder = self.tokenizer.decoder();
        for id in &job.prompt {
            let _ = text::push(&mut decoder, *id, self.tokenizer, &mut String::new());
        }
        self.running.push(Running {
            context,
            ids: job.prompt.clone(),
            cached,
            rng: Pcg32::new(job.settings.seed),
            state,
            grammar,
            decoder,
            stops: StopFilter::new(&job.settings.stops),
            end: None,
            job,
        });
    }

    /// One pass: the next token of everyone who has one, and pieces of prompts.
    fn pass(&mut self) -> Result<(), Error> {
        for running in self.running.iter_mut().filter(|running| running.job.events.is_closed()) {
            running.end = Some(Finish::Stop);
        }
        let counts = self.shares.of_pass(&self.running.iter().map(Running::unread).collect::<Vec<_>>());
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
            let read = running.context.position().min(running.job.prompt.len());
            let prompt = read.saturating_sub(running.context.position() - count);
            self.counters.prompt_tokens.fetch_add(prompt as u64, Ordering::Relaxed);
            if running.unread().left == 0 {
                self.sample(at);
            }
        }
        Ok(())
    }

    /// Chooses the next token of a conversation, and says so.
    fn sample(&mut self, at: usize) {
        let Self { engine, tokenizer, running, masks, scratch, counters, .. } = self;
        let running = &mut running[at];
        match running.choose(engine, tokenizer, masks, scratch) {
            Ok(()) => {
                counters.answer_tokens.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => {
                let _ = running.job.events.send(Event::Failed(error.to_string()));
                running.end = Some(Finish::Stop);
            }
        }
    }

    /// What is done makes room; what it has read stays in the cache.
    fn retire(&mut self) {
        let mut at = 0;
        while at < self.running.len() {
            if self.running[at].end.is_none() {
                at += 1;
                continue;
            }
            let Running { context, mut ids, .. } = self.running.swap_remove(at);
            ids.truncate(context.position());
            self.clock += 1;
            if let Some(context) = self.cache.keep(context, ids, self.clock) {
                self.engine.close(context);
            }
        }
    }
}

/// Where a context that is to be shared is.
#[derive(Clone, Copy)]
enum Source {
    Cached(usize),
    Running(usize),
}

impl Running {
    fn choose(
        &mut self,
        engine: &mut Engine<'_, '_>,
        tokenizer: &Tokenizer<'_, '_>,
        masks: &mut Masks<'_>,
        scratch: &mut [u8],
    ) -> Result<(), Error> {
        let Settings { params, bias, limit, ignore_end, table, logprobs, .. } = &self.job.settings;
        let logits = engine.logits_mut(&self.context);
        // Before penalties and temperature: what the model itself says.
        let plain = logprobs.map(|_| logits.to_vec());
        let mut sampler = Sampler::new(*params, bias, logits.len(), scratch)?;
        let recent = self.ids.len().saturating_sub(params.repeat_last_n as usize);
        self.ids[recent..].iter().for_each(|id| sampler.accept(*id));
        let constraint = match (&mut self.state, table) {
            (Some(state), Some(table)) => Some(Constraint::at(Grammar::checked_before(table)?, state.clone())),
            _ => None,
        };
        let token = match &constraint {
            None => sampler.sample(logits, &mut self.rng),
            Some(constraint) => {
                let mut mask = masks.at(constraint, tokenizer, self.grammar);
                let allowed = |token| mask.allows(token) && !(*ignore_end && tokenizer.is_end(token));
                sampler.sample_where(logits, &mut self.rng, allowed)
            }
        };
        let token = match token {
            Err(Error::NoTokenAllowed) if constraint.as_ref().is_some_and(Constraint::is_complete) => {
                self.finish(Finish::Stop);
                return Ok(());
            }
            token => token?,
        };
        if !ignore_end && tokenizer.is_end(token) {
            self.finish(Finish::Stop);
            return Ok(());
        }
        self.ids.push(token);
        let logprob = plain.zip(*logprobs).map(|(logits, count)| logprob(tokenizer, &logits, token, count));
        let mut piece = String::new();
        if (token as usize) < tokenizer.vocab_len() {
            self.decoder.push(token, tokenizer, |text| piece.push_str(text))?;
        }
        let (text, stopped) = self.stops.push(&piece);
        let _ = self.job.events.send(Event::Token { text, logprob });
        let mut is_over = false;
        if let Some(mut constraint) = constraint {
            constraint.accept(tokenizer, token)?;
            is_over = constraint.is_over();
            self.state = Some(constraint.into_state());
        }
        if stopped || is_over {
            self.finish_after(Finish::Stop, stopped);
        } else if limit.is_some_and(|limit| self.answer() >= limit) || self.ids.len() > engine.plan().options.context {
            self.finish(Finish::Length);
        }
        Ok(())
    }

    fn finish(&mut self, end: Finish) {
        self.finish_after(end, false);
    }

    /// The end, with what was held back, unless that was a stop text.
    fn finish_after(&mut self, end: Finish, stopped: bool) {
        let mut text = String::new();
        if !stopped {
            let mut rest = String::new();
            self.decoder.finish(|part| rest += part);
            text = self.stops.push(&rest).0 + &self.stops.finish();
        }
        let done = Event::Done { end, text, prompt: self.job.prompt.len(), cached: self.cached, answer: self.answer() };
        let _ = self.job.events.send(done);
        self.end = Some(end);
    }
}
