//! Requests of clients to the scheduler, and the events that clients receive.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::time::Duration;

use arenite::TokenId;

use super::{Counters, Decision, SlotRequest};
use crate::drafts::DraftCounts;
use crate::generation::{Logprob, Settings};
use crate::ranking::Texts;

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

/// Receives the result of a request that has no events, such as an embedding.
pub trait ResultClient<T>: Send {
    /// True if nobody waits for the result any more.
    fn is_closed(&self) -> bool;
    /// Takes the result, or the reason why there is none.
    fn send(self: Box<Self>, result: Result<T, String>);
}

/// Returns false if the client of a job has left or if the server is shutting down. Called after every step of an
/// encoder or of a prompt, so that the job can be stopped.
pub fn is_wanted<T>(answer: &dyn ResultClient<T>, counters: &Counters) -> bool {
    !answer.is_closed() && !counters.ended.load(Ordering::Relaxed)
}

/// Receives the events of an answer.
pub trait Client: Send {
    /// Receives an event of the answer. The function must return at once, even if nobody reads the answer.
    fn send(&self, event: Event);
    /// True if nobody waits for the answer any more.
    fn is_closed(&self) -> bool;
    /// Called at the first token. Returns the time since the request, or `None` if this time is not to be counted.
    fn first_token(&self) -> Option<Duration> {
        None
    }
    /// Called when an answer has ended, with the number of tokens of its prompt and the number of its own tokens.
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

/// A channel as a client. The receiver of the channel waits for the end of the answer.
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
    /// Who asks: the client, and which of its requests this answer belongs to. Clients take turns, and so do the
    /// requests of a client.
    pub asker: Asker,
    /// The client whose conversations the cache may use for this answer, and from whose conversations the reported
    /// counts come; `None` for the conversations of all clients.
    pub scope: Option<u64>,
}

impl Job {
    /// Returns true if answers to this request and to `other` may continue each other's conversations: they belong to
    /// the same client and have the same adapters.
    pub fn may_share_with(&self, other: &Self) -> bool {
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
    /// The next token. Its text may be empty if it is held back, and it may include text that was held back earlier.
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
        times: Times,
    },
    Failed(String),
    /// The memory for the rest of the answer is exhausted.
    Overflow,
}

/// How long the engine worked on an answer. Waiting for a slot does not count, but other answers in the same passes do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Time until the first token.
    pub prompt: Duration,
    /// Time from the first token to the last one.
    pub answer: Duration,
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
