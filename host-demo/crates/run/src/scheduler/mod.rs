//! The scheduler: runs many conversations in the passes of one engine.
//!
//! | file | |
//! |---|---|
//! | `mod` | requests, events, and the loop of passes |
//! | `running` | an answer in progress |
//! | `budget` | the tokens of a pass |
//! | `cache`, `history` | contexts of finished conversations, and what each client knows of them |
//! | `disk` | the cache on disk |
//! | `slots` | the last conversations of a client by number, for saving and restoring |
//! | `decisions` | the scores of options after a prompt |
//! | `counters` | counters for `/metrics` |

mod budget;
mod cache;
mod counters;
mod decisions;
mod disk;
mod history;
mod running;
mod slots;

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::time::Duration;

use anyhow::Result;
use arenite::grammar::Masks;
use arenite::tokenizer::Tokenizer;
use arenite::{Context, Engine, Error, TokenId, Work};

use budget::PassBudget;
use cache::Cache;
pub use counters::{Counters, Histogram};
use decisions::Deciding;
pub use decisions::Decision;
pub use disk::DiskCache;
pub use history::HISTORIES;
use history::History;
use running::{Progress, Running};
use slots::Slots;
pub use slots::{Slot, SlotAction, SlotAnswer, SlotRequest};

use crate::drafts::{DraftCounts, Drafts, Turn};
use crate::eyes::Piece;
use crate::generation::{Logprob, Settings, Workbench, logprob};
use crate::ranking::Texts;
use crate::reuse::{self, Donor, blocks};
use crate::session_file::{Head, SessionFile};
use arenite_grammar::Table;
use arenite_text::shared;
use arenite_text::shown::one_line;

/// A request to the engine's thread.
pub enum Command {
    Generate(Box<Job>),
    Embed(Embedding),
    Decide(Decision),
    Slots(SlotRequest),
}

/// A text, or a pair of texts, to embed.
pub struct Embedding {
    pub texts: Texts,
    /// Identifies the client. Clients take turns.
    pub client: u64,
    /// The adapters to use, and their scales.
    pub lora: Vec<(usize, f32)>,
    pub answer: Box<dyn ResultClient<Vec<f32>>>,
}

/// Receives the result of a request without events, such as an embedding.
pub trait ResultClient<T>: Send {
    /// True if nobody waits for the result any more.
    fn is_closed(&self) -> bool;
    /// Takes the result, or the reason why there is none.
    fn send(self: Box<Self>, result: Result<T, String>);
}

/// Returns false if the client has left or the server shuts down. Called after every step of an encoder or a prompt.
fn is_wanted<T>(answer: &dyn ResultClient<T>, counters: &Counters) -> bool {
    !answer.is_closed() && !counters.ended.load(Ordering::Relaxed)
}

/// Receives the events of an answer.
pub trait Client: Send {
    /// Takes an event. Must not wait for the reader of the answer.
    fn send(&self, event: Event);
    /// True if nobody waits for the answer any more.
    fn is_closed(&self) -> bool;
    /// Called at the first token. Returns the time since the request, if it is to be counted.
    fn first_token(&self) -> Option<Duration> {
        None
    }
    /// Called at the end, with the number of tokens of the prompt and of the answer.
    fn answered(&self, prompt: usize, answer: usize) {
        let _ = (prompt, answer);
    }
}

/// A channel whose receiver waits for the result.
impl<T: Send> ResultClient<T> for Sender<Result<T, String>> {
    fn is_closed(&self) -> bool {
        false
    }

    fn send(self: Box<Self>, result: Result<T, String>) {
        let _ = Self::send(&self, result);
    }
}

/// A channel whose receiver waits for the end of the answer.
impl Client for Sender<Event> {
    fn send(&self, event: Event) {
        let _ = Self::send(self, event);
    }

    fn is_closed(&self) -> bool {
        false
    }
}

/// One answer to generate.
pub struct Job {
    pub prompt: Arc<[TokenId]>,
    pub settings: Arc<Settings>,
    /// The seed of this answer.
    pub seed: u64,
    pub client: Box<dyn Client>,
    /// Identifies the client and its request. Clients, and the requests of a client, take turns.
    pub asker: Asker,
    /// The client whose conversations the cache may use for this answer, and about which the answer tells; `None` for
    /// those of all clients.
    pub scope: Option<u64>,
}

impl Job {
    /// True if one of the two answers may continue the other's context.
    fn may_share_with(&self, other: &Self) -> bool {
        self.scope == other.scope && self.settings.lora == other.settings.lora
    }
}

/// Identifiers of a client and of one of its requests.
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
        id: TokenId,
        text: String,
        logprob: Option<Logprob>,
    },
    Done {
        end: Finish,
        /// The stop string that ended the answer.
        stop: Option<String>,
        text: String,
        prompt: usize,
        cached: usize,
        answer: usize,
        /// The number of the slot that has the conversation.
        slot: usize,
        /// Number of tokens in the context.
        read: usize,
        /// True if the context was full.
        is_full: bool,
        drafts: DraftCounts,
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

/// The error of answers that a shutdown ends.
pub const STOPPED: &str = "the server is shutting down";

/// State of the engine's thread: requests that wait or run, and cached contexts.
pub struct Scheduler<'a, 'm, 'w> {
    pub engine: Engine<'m, 'w>,
    pub tokenizer: &'a Tokenizer<'a, 'a>,
    /// Number of answers that are generated at the same time.
    pub parallel: usize,
    pub counters: Arc<Counters>,
    budget: PassBudget,
    running: Vec<Running>,
    waiting: VecDeque<Waiting>,
    /// Texts to embed.
    texts: VecDeque<Embedding>,
    /// Clients whose texts were embedded, the most recent one at the end.
    embedded: VecDeque<u64>,
    /// Questions to answer.
    decisions: VecDeque<Deciding>,
    cache: Cache,
    history: History,
    slots: Slots,
    disk: Option<DiskCache>,
    masks: Masks<'a>,
    grammars: Grammars,
    scratch: Vec<u8>,
    drafts: Drafts<'a>,
    /// A row of logits.
    row: Vec<f32>,
    clock: u64,
}

/// An answer that waits for one of the `parallel` slots.
enum Waiting {
    /// A job, the number of tokens that its client is told to be cached, if that is not the number that are, and the
    /// number of its slot.
    New(Box<Job>, Option<usize>, usize),
    /// An answer in progress whose slot went to another client.
    Paused(Box<Progress>),
}

impl Waiting {
    fn job(&self) -> &Job {
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

/// Assigns a number to each grammar: the key of the grammar's cached masks. Remembers recently used grammars.
#[derive(Default)]
struct Grammars {
    known: VecDeque<(u32, Arc<Table>)>,
    last: u32,
}

impl Grammars {
    /// The number of a grammar. Numbers are never reused.
    fn number(&mut self, table: &Arc<Table>) -> u32 {
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
        drafts: Drafts<'a>,
    ) -> Self {
        // Scratch memory for any parameters: the history for penalties, and the whole vocabulary as candidates.
        let scratch = Vec::new();
        Self {
            budget: PassBudget::of(engine.model(), engine.plan().options.batch),
            engine,
            tokenizer,
            parallel,
            counters,
            running: Vec::with_capacity(parallel),
            waiting: VecDeque::new(),
            texts: VecDeque::new(),
            embedded: VecDeque::new(),
            decisions: VecDeque::new(),
            cache: Cache::default(),
            history: History::default(),
            slots: Slots::new(parallel),
            disk: None,
            masks,
            grammars: Grammars::default(),
            scratch,
            drafts,
            row: Vec::new(),
            clock: 0,
        }
    }

    /// Restores the context in a session file, and adds this context to the cache.
    pub fn restore(&mut self, file: &mut SessionFile, lora: &[(usize, f32)]) -> Result<()> {
        let mut context = self.open_with(lora)?;
        let head = file.restore(&mut self.engine, &mut context)?;
        if let Some(context) = self.cache.keep(context, None, head.tokens, lora.to_vec(), self.clock) {
            self.engine.close(context);
        }
        Ok(())
    }

    /// Writes the longest prefix that two cached conversations share, or the only conversation, to a session file.
    pub fn save(&mut self, file: &SessionFile, lora: &[(usize, f32)]) -> Result<()> {
        let Some((mut context, tokens, shared)) = self.cache.take_most_shared(lora) else { return Ok(()) };
        let position = self.engine.nearest(&context, shared);
        self.engine.rewind(&mut context, position)?;
        file.write(&mut self.engine, &context, Head { tokens, ..Head::default() })
    }

    /// Runs until all senders of commands are dropped.
    pub fn run(&mut self, commands: &Receiver<Command>) {
        loop {
            let has_answers = !self.running.is_empty() || !self.waiting.is_empty();
            let is_idle = !has_answers && self.texts.is_empty() && self.decisions.is_empty();
            match if is_idle { self.wait(commands) } else { commands.try_recv() } {
                Ok(Command::Generate(job)) => {
                    let known = job.scope.map(|client| {
                        let known = match job.settings.scores_prompt || job.settings.reads_anew {
                            true => 0,
                            false => {
                                let least = if job.settings.tells_reuse { job.settings.reuse } else { 0 };
                                self.history.known(client, &job.prompt, &job.settings.lora, least)
                            }
                        };
                        self.history.add(client, &job.prompt, job.prompt.len(), &job.settings.lora);
                        known
                    });
                    let slot = self.slots.begin(job.scope, &job.prompt, &job.settings);
                    self.waiting.push_back(Waiting::New(job, known, slot));
                    continue;
                }
                Ok(Command::Embed(text)) => {
                    self.texts.push_back(text);
                    continue;
                }
                Ok(Command::Decide(decision)) => {
                    self.decisions.push_back(decision.into());
                    continue;
                }
                Ok(Command::Slots(request)) => {
                    self.slot_request(request);
                    continue;
                }
                Err(TryRecvError::Disconnected) if is_idle => return,
                Err(_) => {}
            }
            if self.counters.ended.load(Ordering::Relaxed) {
                self.fail_all();
                continue;
            }
            self.embed_next();
            self.decide_next();
            self.admit();
            if let Err(error) = self.pass() {
                let message = error.to_string();
                for mut running in self.running.drain(..) {
                    self.slots.failed(running.job.scope, running.slot);
                    self.drafts.end(&mut running.draft);
                    running.job.client.send(Event::Failed(message.clone()));
                    running.end_donor(&mut self.engine);
                    self.engine.close(running.context);
                }
            }
            self.retire();
            self.counters.running.store(self.running.len(), Ordering::Relaxed);
            self.counters.free_pages.store(self.engine.free_pages(), Ordering::Relaxed);
        }
    }

    /// Waits for a command. After a while without any, stores conversations on disk.
    fn wait(&mut self, commands: &Receiver<Command>) -> Result<Command, TryRecvError> {
        if self.disk.is_some() {
            match commands.recv_timeout(disk::QUIET) {
                Err(RecvTimeoutError::Timeout) => self.store_kept(),
                done => return done.map_err(|_| TryRecvError::Disconnected),
            }
        }
        commands.recv().map_err(|_| TryRecvError::Disconnected)
    }

    /// Ends all answers with an error.
    fn fail_all(&mut self) {
        let failed = || Event::Failed(STOPPED.into());
        self.waiting.drain(..).for_each(|waiting| waiting.job().client.send(failed()));
        self.texts.drain(..).for_each(|text| text.answer.send(Err(STOPPED.into())));
        self.decisions.drain(..).for_each(|deciding| deciding.fail(STOPPED.into()));
        for mut running in self.running.drain(..) {
            self.drafts.end(&mut running.draft);
            running.job.client.send(failed());
            running.end_donor(&mut self.engine);
            self.engine.close(running.context);
        }
    }

    /// Embeds one text between two passes. Clients take turns. If pages are missing, the text waits for conversations to end.
    fn embed_next(&mut self) {
        const MOST: usize = 256;
        self.texts.retain(|text| !text.answer.is_closed());
        let last = |text: &Embedding| self.embedded.iter().position(|client| *client == text.client);
        let Some((at, _)) = self.texts.iter().enumerate().min_by_key(|(_, text)| last(text)) else { return };
        let Some(text) = self.texts.remove(at) else { return };
        match self.embed(&text) {
            Err(Error::OutOfPages { .. }) if !self.running.is_empty() => self.texts.push_front(text),
            done => {
                self.embedded.retain(|client| *client != text.client);
                self.embedded.push_back(text.client);
                if self.embedded.len() > MOST {
                    self.embedded.pop_front();
                }
                let done = done.map_err(|error| error.to_string());
                text.answer.send(done.and_then(|vector| vector.ok_or(STOPPED.into())));
            }
        }
    }

    /// Returns the vector of a text, or `None` if its client has left.
    fn embed(&mut self, text: &Embedding) -> Result<Option<Vec<f32>>, Error> {
        let mut context = self.open_with(&text.lora)?;
        let spec = *self.engine.model().spec();
        let mut vector = vec![0.0; spec.embedding_buffer()];
        let counters = self.counters.clone();
        let Texts { ids, second } = &text.texts;
        let done = loop {
            let goes_on = || is_wanted(&*text.answer, &counters);
            let made = self.engine.embed_while(&mut context, (ids, *second), &mut vector, goes_on);
            match made.map(|made| made.is_some()) {
                Err(Error::OutOfPages { .. }) if self.evict() => {}
                done => break done,
            }
        };
        self.engine.close(context);
        vector.truncate(spec.embedding_len());
        Ok(match done? {
            true => crate::runtime::numbers(&vector).map(|()| Some(vector))?,
            false => None,
        })
    }

    /// Opens a context. If necessary, evicts the least recently used context of the cache.
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
        self.store_kept();
        if let Some(context) = self.cache.oldest() {
            self.engine.close(context);
            return true;
        }
        let Self { running, engine, .. } = self;
        running.iter_mut().any(|running| running.end_donor(engine))
    }

    /// Gives slots to waiting answers. The client with the fewest running answers comes first, and of this client's
    /// requests the one with the fewest running answers. If no slot is free, but the client with the most running
    /// answers has at least two more than the waiting client, pauses one of these answers. Thus no client waits for the
    /// long answers of another.
    fn admit(&mut self) {
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

    /// Returns true if another conversation is reading a prefix of the job's prompt: the job should wait, and then
    /// share the prefix.
    fn is_coming(&self, job: &Job) -> bool {
        let most = job.prompt.len().saturating_sub(1);
        let known = self.best_shared(&job.prompt, job).map_or(0, |(_, shared)| shared);
        let alike = self.running.iter().filter(|running| running.job.may_share_with(job));
        let coming = alike.map(|running| shared(&running.job.prompt, &job.prompt)).max().unwrap_or(0);
        coming.min(most) >= known + 16
    }

    /// Finds the cached or running context that the job may use and that shares the longest prefix with `ids`. Returns
    /// the context and the length of the prefix, which is less than the length of `ids`.
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

    /// Opens a context for `ids`. Unless `is_fresh`, the new context starts with tokens that another context has
    /// already read. Also returns the length of the prefix that `ids` and the other context share.
    fn context_of(&mut self, ids: &[TokenId], job: &Job, is_fresh: bool) -> Result<(Context, usize), Error> {
        let lora = &*job.settings.lora;
        // Make room first, so that the cache does not evict the context to be shared.
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

    /// Finds the conversation that has most of the prompt's tokens after `start`, at other positions.
    fn donor(&mut self, job: &Job, start: usize) -> Option<Donor> {
        let Settings { reuse, scores_prompt, reads_anew, shown, .. } = &*job.settings;
        if *reuse == 0 || *scores_prompt || *reads_anew || !shown.is_empty() || !self.engine.can_reuse() {
            return None;
        }
        // Make room first, so that the cache does not evict the donor.
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

    /// Takes the slot from an answer, and moves its context to the cache.
    fn pause(&mut self, at: usize) {
        let mut running = self.running.swap_remove(at);
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

    /// Keeps the context of an answer in the cache; `ids` are its tokens.
    fn keep(&mut self, context: Context, job: &Job, ids: Vec<TokenId>) {
        self.clock += 1;
        if let Some(context) = self.cache.keep(context, job.scope, ids, job.settings.lora.clone(), self.clock) {
            self.engine.close(context);
        }
    }

    /// Reads the next piece of a prompt whose tokens are to be scored, with the logits of each token.
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
        // Drop the scores of tokens that are read again, after pages were missing or the answer was paused.
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

    /// Runs one pass: the next token of every answer, and pieces of prompts.
    fn pass(&mut self) -> Result<(), Error> {
        for running in self.running.iter_mut().filter(|running| running.job.client.is_closed()) {
            running.end = Some(Finish::Stop);
        }
        // After the last piece of a scored prompt, sample the answer's first token immediately.
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
        loop {
            let each = self.running.iter_mut().map(|running| (&mut running.context, &*running.progress));
            let (contexts, answers): (Vec<_>, Vec<_>) = each.unzip();
            let mut pieces = Vec::with_capacity(counts.len());
            for ((context, answer), count) in contexts.iter().zip(&answers).zip(&counts) {
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
                return Ok(());
            }
            match self.engine.run(&mut works) {
                Err(Error::OutOfPages { .. }) => {
                    drop(works);
                    drop(pieces);
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
            let position = running.context.position() - running.draft.len();
            let prompt = position.min(running.job.prompt.len()).saturating_sub(position - count);
            self.counters.prompt_tokens.fetch_add(prompt as u64, Ordering::Relaxed);
            if position == running.ids().len() {
                self.verify(at)?;
            }
        }
        Ok(())
    }

    /// Proposes tokens for the conversations that read their last token in this pass.
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

    /// Chooses the tokens after the last one that a conversation has read: one, and one more for each proposed token that
    /// was right. Undoes the other proposed tokens.
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

    /// Samples the next token of a conversation and sends it. The logits are those of the token at `position`, or of the
    /// last token.
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
    fn retire(&mut self) {
        let mut at = 0;
        while at < self.running.len() {
            if self.running[at].end.is_none() {
                at += 1;
                continue;
            }
            let mut running = self.running.swap_remove(at);
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

/// The context to share, by its index.
#[derive(Clone, Copy)]
enum Source {
    Cached(usize),
    Running(usize),
}
