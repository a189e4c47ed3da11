//! The scheduler: runs many conversations in the passes of one engine.
//!
//! | file | |
//! |---|---|
//! | `mod` | the state, and the loop of passes |
//! | `requests` | requests of clients, and the events that clients receive |
//! | `admission` | the answers that run, and the context that each of them starts with |
//! | `pass` | a pass for all answers in progress |
//! | `arrivals` | requests that arrive during a pass |
//! | `running` | an answer in progress |
//! | `budget` | the tokens of a pass |
//! | `cache`, `history` | contexts of finished conversations, and the cached tokens that each client is told |
//! | `disk` | the cache on disk |
//! | `slots` | the last conversations of a client by number, for saving and restoring |
//! | `embeddings`, `decisions` | vectors of texts, and the scores of options after a prompt |
//! | `grammars` | the keys of cached masks |
//! | `counters` | counters for `/metrics` |

mod admission;
mod arrivals;
mod budget;
mod cache;
mod counters;
mod decisions;
mod disk;
mod embeddings;
mod grammars;
mod history;
mod pass;
mod requests;
mod running;
mod slots;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};

use anyhow::Result;
use arenite::grammar::Masks;
use arenite::tokenizer::Tokenizer;
use arenite::{Context, Engine, Error};

use admission::Waiting;
use arrivals::Arrivals;
use budget::PassBudget;
use cache::Cache;
pub use counters::{Counters, Histogram};
use decisions::Deciding;
pub use decisions::Decision;
pub use disk::DiskCache;
use grammars::Grammars;
pub use history::HISTORIES;
use history::History;
use requests::is_wanted;
pub use requests::{Asker, Client, Command, Embedding, Event, Finish, Job, ResultClient, STOPPED, Times};
use running::{Progress, Running};
use slots::Slots;
pub use slots::{Slot, SlotAction, SlotAnswer, SlotRequest};

use crate::drafts::Drafts;
use crate::session_file::{Head, SessionFile};

/// State of the engine's thread: waiting requests, running requests and cached contexts.
pub struct Scheduler<'a, 'm, 'w> {
    pub engine: Engine<'m, 'w>,
    pub tokenizer: &'a Tokenizer<'a, 'a>,
    /// Number of answers that are generated at the same time.
    pub parallel: usize,
    pub counters: Arc<Counters>,
    budget: PassBudget,
    arrivals: Arrivals,
    running: Vec<Running>,
    waiting: VecDeque<Waiting>,
    /// Texts to embed.
    texts: VecDeque<Embedding>,
    /// Clients that have sent texts to embed, in the order in which their last text was embedded. The client at the
    /// front has waited the longest.
    embedded: VecDeque<u64>,
    /// Questions to answer.
    decisions: VecDeque<Deciding>,
    cache: Cache,
    history: History,
    slots: Slots,
    disk: Option<DiskCache>,
    masks: Masks<'a>,
    grammars: Grammars,
    /// Scratch memory of samplers: the history for penalties, and the whole vocabulary as candidates.
    scratch: Vec<u8>,
    drafts: Drafts<'a>,
    /// A row of logits.
    row: Vec<f32>,
    clock: u64,
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
        Self {
            budget: PassBudget::of(engine.model(), engine.plan().options.batch),
            arrivals: Arrivals::default(),
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
            scratch: Vec::new(),
            drafts,
            row: Vec::new(),
            clock: 0,
        }
    }

    /// Restores the context that a session file stores, and adds it to the cache.
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
            let next = match self.arrivals.next() {
                Some(command) => Ok(command),
                None if is_idle => self.wait(commands),
                None => commands.try_recv(),
            };
            match next {
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
            if let Err(error) = self.pass(commands) {
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

    /// Waits for a command. If no command comes for a while, stores conversations on disk.
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
}
