//! The state that the handlers of all routes share: the service, the channel to the engine, and the open requests.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use arenite::TokenId;
use axum::body::{Body as HttpBody, Bytes};
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::Value;
use tokio::sync::oneshot;

use crate::faces::Asked;
use crate::faces::Reply;
use crate::http::connections::{ConnectionSlot, RequestGuard};
use crate::http::error::{ApiError, Result};
use crate::http::memory::{Inbox, MOST_WITH_PICTURES, Meter, Outbox, Received, RequestMemory, mailbox};
use crate::http::pool::Pool;
use crate::http::readers::Readers;
use crate::http::record::{CLIENT, Log, Record};
use crate::identity::ClientKey;
use crate::items::KeptItems;
use crate::sounds::{self, Transcription};
use arenite_request::Refusal;
use arenite_run::generation::Settings;
use arenite_run::ranking::Texts;
use arenite_run::scheduler::{self, Asker, Command, Counters, Decision, Embedding, Event, Job, ResultClient};
use arenite_run::service::token_count;
use arenite_run::service::{Choice, Decisions, Prepared, Service, by_chance};

/// Maximum number of open requests beyond [`App::most_open`]. Each of these must be the only open request of its
/// client, so that a client with many requests does not lock out other clients.
const MOST_FIRST: usize = 64;

/// Determines which clients can use each other's cached conversations, and about whose requests a client sees counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheScope {
    /// A prompt continues only conversations of its own client. Answers therefore tell a client nothing about the
    /// prompts of other clients.
    Client,
    /// All clients share the conversations and see all metrics.
    Server,
}

/// A request that can be sent to the engine, and the form of its answer.
pub struct Ready {
    pub prepared: Prepared,
    pub reply: Reply,
}

impl Deref for Ready {
    type Target = Prepared;

    fn deref(&self) -> &Prepared {
        &self.prepared
    }
}

impl DerefMut for Ready {
    fn deref_mut(&mut self) -> &mut Prepared {
        &mut self.prepared
    }
}

/// Turns a request, which was read in the format of one of the interfaces, into jobs for the engine.
pub fn prepare(service: &Service, asked: Asked, seed_by_chance: u64) -> std::result::Result<Ready, Refusal> {
    let mut prepared = service.jobs(&asked.request, seed_by_chance)?;
    asked.reply.warnings.iter().for_each(|warning| prepared.warn(*warning));
    Ok(Ready { prepared, reply: asked.reply })
}

/// A client that waits for the result of a request that has no events, such as an embedding.
pub struct Waiting<T>(pub oneshot::Sender<std::result::Result<T, String>>);

impl<T: Send> ResultClient<T> for Waiting<T> {
    fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    fn send(self: Box<Self>, result: std::result::Result<T, String>) {
        let _ = self.0.send(result); // the client may have disconnected meanwhile
    }
}

struct Recorded {
    events: Outbox,
    record: Arc<Record>,
}

impl scheduler::Client for Recorded {
    fn send(&self, event: Event) {
        self.events.send(event);
    }

    fn is_closed(&self) -> bool {
        self.events.is_closed()
    }

    fn first_token(&self) -> Option<Duration> {
        self.record.first_token()
    }

    fn answered(&self, prompt: usize, answer: usize) {
        self.record.answered(prompt, answer);
    }
}

impl CacheScope {
    /// All scopes by name.
    pub const ALL: [(&str, Self); 2] = [("client", Self::Client), ("server", Self::Server)];
}

/// The state shared by all routes.
pub struct App {
    pub service: Service,
    /// The scheduler's requests.
    pub commands: Sender<Command>,
    /// Sounds to transcribe.
    pub transcriptions: Sender<Transcription>,
    pub counters: Arc<Counters>,
    /// Maximum number of open requests.
    pub most_open: usize,
    /// Number of answers that are generated at the same time.
    pub parallel: usize,
    pub keys: Vec<String>,
    pub scope: CacheScope,
    /// The secret of the proxy process; `None` if requests do not come from a proxy. The proxy runs several models,
    /// each in a process like this one.
    pub proxy: Option<String>,
    /// True if the model transcribes speech.
    pub hears: bool,
    /// Memory of sounds.
    pub sounds: Arc<Pool>,
    pub workspace: usize,
    pub kv: usize,
    pub started: Instant,
    pub memory: RequestMemory,
    pub readers: Readers,
    pub log: Option<Log>,
    /// Computes identifiers of clients.
    pub identities: ClientKey,
    /// Items of responses.
    pub items: KeptItems,
    /// The folder of saved slots; `None` if slots cannot be saved.
    pub slots: Option<PathBuf>,
    /// Maximum number of bytes on disk for the saved slots of one client.
    pub most_saved: u64,
    /// Held while a slot is saved or restored.
    pub saving: tokio::sync::Mutex<()>,
}

impl App {
    /// The state of a server of one model. By default, the server answers one request at a time, needs no key, stores
    /// nothing on disk and writes no log; the fields can be changed.
    pub fn new(
        service: Service,
        commands: Sender<Command>,
        transcriptions: Sender<Transcription>,
        counters: Arc<Counters>,
    ) -> Self {
        Self {
            service,
            commands,
            transcriptions,
            counters,
            most_open: 1,
            parallel: 1,
            keys: Vec::new(),
            scope: CacheScope::Client,
            proxy: None,
            hears: false,
            sounds: sounds::turns(),
            workspace: 0,
            kv: 0,
            started: Instant::now(),
            memory: RequestMemory::default(),
            readers: Readers::start(),
            log: None,
            identities: ClientKey::random(),
            items: KeptItems::default(),
            slots: None,
            most_saved: u64::MAX,
            saving: tokio::sync::Mutex::default(),
        }
    }

    /// Reads the body of a request, then opens the request.
    pub async fn receive(self: &Arc<Self>, request: Request<HttpBody>) -> Result<(OpenRequest, Received)> {
        let client = Client::of(self, &request);
        let body = match self.service.open.eyes() {
            Some(_) => self.memory.receive_up_to(client.asker.client, request, MOST_WITH_PICTURES).await?,
            None => self.memory.receive(client.asker.client, request).await?,
        };
        Ok((OpenRequest::new(self, client)?, body))
    }

    /// Opens a request before its body is read.
    pub fn open(&self, request: &Request<HttpBody>) -> Result<OpenRequest> {
        OpenRequest::new(self, Client::of(self, request))
    }

    /// Runs slow work on a reader thread, so that the serving thread never waits for the work.
    pub async fn aside<T: Send + 'static>(
        self: &Arc<Self>,
        open: &OpenRequest,
        work: impl FnOnce(&Self) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let app = self.clone();
        let failed =
            || ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "a thread failed while it processed this request");
        self.readers.run(open.asker.client, move || work(&app)).await.ok_or_else(failed)?
    }

    /// Receives the body of a request. Parses it as JSON, and calls `work` with it, on a reader thread.
    pub async fn asked<T: Send + 'static>(
        self: &Arc<Self>,
        request: Request<HttpBody>,
        work: impl FnOnce(&Self, Value) -> Result<T> + Send + 'static,
    ) -> Result<(OpenRequest, T)> {
        let (open, body) = self.receive(request).await?;
        let done = self.aside(&open, move |app| work(app, json(&body)?)).await?;
        Ok((open, done))
    }

    /// Converts an answer to JSON, and returns the response. `bytes` is an upper bound for the size of the JSON; a
    /// large answer is converted on a reader thread.
    pub async fn write(
        self: &Arc<Self>,
        open: &OpenRequest,
        bytes: usize,
        answer: impl FnOnce(&Self) -> Value + Send + 'static,
    ) -> Result<Response> {
        let text = match bytes > LARGE_ANSWER {
            true => self.aside(open, move |app| Ok(answer(app).to_string())).await?,
            false => answer(self).to_string(),
        };
        self.response(open, text)
    }

    /// Returns a response with the JSON text `text`. A long text counts toward the memory limit of answers until it is
    /// sent.
    fn response(&self, open: &OpenRequest, text: String) -> Result<Response> {
        let slot = || open.guard.as_ref().map(RequestGuard::slot);
        let text = match text.len() > LARGE_ANSWER {
            true => self.memory.response(text, slot()).ok_or_else(crowded)?,
            false => Bytes::from(text),
        };
        Ok(([(header::CONTENT_TYPE, "application/json")], text).into_response())
    }

    /// Answers a request with the result of `work`, which runs on a reader thread and gets the request's JSON.
    pub async fn answered<T: Serialize>(
        self: &Arc<Self>,
        request: Request<HttpBody>,
        work: impl FnOnce(&Self, Value) -> Result<T> + Send + 'static,
    ) -> Result<Response> {
        let written = |app: &Self, body: Value| {
            let answer = work(app, body)?;
            serde_json::to_string(&answer)
                .map_err(|error| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
        };
        let (open, text) = self.asked(request, written).await?;
        self.response(&open, text)
    }

    /// Sends the jobs of a request to the engine.
    pub fn submit(&self, open: &OpenRequest, prepared: &mut Ready) -> Result<Vec<Inbox>> {
        let meter = self.memory.meter(prepared.reply.stream);
        if !meter.hold(prepared.bytes()) {
            return Err(crowded());
        }
        let usual = (!prepared.has_lora).then(|| self.lora_of(open, None));
        let submit = |(prompt, mut settings, seed): (_, Arc<Settings>, _)| -> Result<_> {
            if let Some(lora) = usual.as_ref().filter(|lora| **lora != settings.lora) {
                settings = Arc::new(Settings { lora: lora.clone(), ..(*settings).clone() });
            }
            let (events, answer) = mailbox(meter.clone());
            let asker = open.asker;
            let client = Box::new(Recorded { events, record: open.record.clone() });
            let scope = self.scope_of(open);
            let job = Box::new(Job { prompt, settings, seed, client, asker, scope });
            self.commands.send(Command::Generate(job)).map_err(|_| gone())?;
            Ok(answer)
        };
        std::mem::take(&mut prepared.jobs).into_iter().map(submit).collect()
    }

    /// Returns the client whose conversations the request may use; `None` for the conversations of all clients.
    pub fn scope_of(&self, open: &OpenRequest) -> Option<u64> {
        (self.scope == CacheScope::Client).then_some(open.asker.client)
    }

    /// Returns the scales of adapters: the scales in the request, or the default scales of the client if the request
    /// has none.
    pub fn lora_of(&self, open: &OpenRequest, given: Option<Vec<(usize, f32)>>) -> Vec<(usize, f32)> {
        given.unwrap_or_else(|| self.service.lora.usual(self.scope_of(open)))
    }

    /// Sends a request that has exactly one answer to the engine. Returns the answer in progress.
    pub fn begin(&self, open: &OpenRequest, mut prepared: Ready) -> Result<Answer> {
        let prompt_tokens = prepared.jobs.first().map_or(0, |(prompt, ..)| prompt.len());
        let events = self.submit(open, &mut prepared)?.pop().ok_or_else(|| ApiError::about("n", "n must be 1"))?;
        Ok(Answer { prepared, events, prompt_tokens, began: Instant::now() })
    }

    /// Prepares a text request.
    pub fn prepare(&self, asked: Asked) -> Result<Ready> {
        Ok(prepare(&self.service, asked, by_chance())?)
    }

    /// Prepares a text request whose prompt is only counted or shown. The prompt may be longer than the context.
    pub fn count(&self, mut asked: Asked) -> Result<Ready> {
        asked.request.is_counted = true;
        self.prepare(asked)
    }

    /// Embeds the texts of a request, using the given adapters. Returns a vector for each text.
    pub async fn vectors(
        &self,
        open: &OpenRequest,
        inputs: Vec<Texts>,
        lora: Option<Vec<(usize, f32)>>,
    ) -> Result<Vectors> {
        let lora = self.lora_of(open, lora);
        let memory = self.memory.meter(false);
        let bytes = inputs.len() * (TEXT_BYTES + self.service.embedding_len * VALUE_BYTES);
        if !memory.hold(bytes + token_count(&inputs) * size_of::<TokenId>()) {
            return Err(crowded());
        }
        let mut vectors = Vec::new();
        for texts in inputs {
            if memory.is_full() {
                return Err(crowded());
            }
            let (answer, vector) = oneshot::channel();
            let (client, lora) = (open.asker.client, lora.clone());
            let text = Embedding { texts, client, lora, answer: Box::new(Waiting(answer)) };
            self.commands.send(Command::Embed(text)).map_err(|_| gone())?;
            vectors.push(vector.await.map_err(|_| gone())?.map_err(ApiError::invalid)?);
        }
        Ok(Vectors { vectors, _memory: memory })
    }
}

impl App {
    /// Scores the labels of a request's prompts, using the given adapters.
    pub async fn scores(
        &self,
        open: &OpenRequest,
        decisions: &mut Decisions,
        lora: Option<Vec<(usize, f32)>>,
    ) -> Result<Vec<Vec<f64>>> {
        let lora = self.lora_of(open, lora);
        let memory = self.memory.meter(false);
        if !memory.hold(decisions.bytes()) {
            return Err(crowded());
        }
        let (answer, scores) = oneshot::channel();
        let scope = self.scope_of(open);
        let readings = decisions.take_readings();
        let decision = Decision { readings, scope, lora, answer: Box::new(Waiting(answer)) };
        self.commands.send(Command::Decide(decision)).map_err(|_| gone())?;
        scores.await.map_err(|_| gone())?.map_err(|why| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, why))
    }
}

/// Number of bytes of memory for one text of an embedding request, in addition to its tokens.
const TEXT_BYTES: usize = 512;
/// Number of bytes of memory for one value of an embedding: the number, its JSON value and its text.
const VALUE_BYTES: usize = 48;
/// An answer with more bytes than this is converted to JSON on a reader thread, because a single thread serves all
/// connections.
const LARGE_ANSWER: usize = 128 << 10;

/// Embeddings, whose memory counts toward the limit of answers until this value is dropped.
pub struct Vectors {
    pub vectors: Vec<Vec<f32>>,
    _memory: Arc<Meter>,
}

impl Vectors {
    /// Upper bound for the bytes of the embeddings' JSON.
    pub fn bytes(&self) -> usize {
        self.vectors.iter().map(|vector| vector.len() * VALUE_BYTES).sum()
    }
}

/// An answer in progress.
pub struct Answer {
    pub prepared: Ready,
    pub events: Inbox,
    pub prompt_tokens: usize,
    pub began: Instant,
}

fn crowded() -> ApiError {
    let why = "there is not enough memory for this request beside the others: try again later, or send a smaller one";
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, why)
}

fn gone() -> ApiError {
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "the engine has ended")
}

/// Parses a body.
pub fn json(body: &Received) -> Result<Value> {
    crate::http::body::parse(body.json()?)
}

/// Returns the body if it is an object. Refuses any other body, because the routes add fields to it.
pub fn object(body: Value) -> Result<Value> {
    if body.is_object() { Ok(body) } else { Err(ApiError::invalid("the body must be a JSON object")) }
}

/// The client and the connection of a request, and the record of the request.
struct Client {
    slot: Option<Arc<ConnectionSlot>>,
    record: Arc<Record>,
    asker: Asker,
}

impl Client {
    fn of(app: &App, request: &Request<HttpBody>) -> Self {
        let slot: Option<Arc<ConnectionSlot>> = request.extensions().get().cloned();
        let record = request.extensions().get().cloned().unwrap_or_else(|| Arc::new(Record::none()));
        // Trusted because the router has checked the secret.
        let passed = app.proxy.as_ref().and_then(|secret| passed_by(secret, request));
        let client = app.identities.id((slot.as_ref().map(|slot| network(slot.client)), passed));
        let asker = Asker { client, request: by_chance() };
        Self { slot, record, asker }
    }
}

/// Returns the client's address that the proxy process has added; `None` if the request does not come from the proxy.
pub fn passed_by(secret: &str, request: &Request<HttpBody>) -> Option<HeaderValue> {
    let passed = request.headers().get(CLIENT)?.to_str().ok()?;
    HeaderValue::from_str(passed.strip_prefix(secret)?.strip_prefix(' ')?).ok()
}

/// Returns the part of an address that identifies a client. An IPv6 client is identified by the first half of the
/// address, because one machine may use all addresses with the same first half.
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address => address,
    }
}

/// Counts an open request and marks its connection as busy.
pub struct OpenRequest {
    counters: Arc<Counters>,
    record: Arc<Record>,
    asker: Asker,
    guard: Option<RequestGuard>,
}

impl OpenRequest {
    fn new(app: &App, client: Client) -> Result<Self> {
        if app.counters.stopping.load(Ordering::Relaxed) {
            return Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "the server is shutting down"));
        }
        let Client { slot, record, asker } = client;
        let open = Self { counters: app.counters.clone(), record, asker, guard: slot.map(RequestGuard::new) };
        let before = app.counters.open.fetch_add(1, Ordering::Relaxed);
        let is_first = {
            let mut of_clients = open.of_clients();
            let of_client = of_clients.entry(open.asker.client).or_default();
            *of_client += 1;
            *of_client == 1
        };
        // A client's only request is accepted even if the limit is reached, because other clients may have used up the
        // limit.
        let most = app.most_open + if is_first { MOST_FIRST } else { 0 };
        if before >= most { Err(ApiError::busy()) } else { Ok(open) }
    }

    /// Identifies the client.
    pub fn client(&self) -> u64 {
        self.asker.client
    }

    fn of_clients(&self) -> MutexGuard<'_, HashMap<u64, usize>> {
        self.counters.open_of.lock().unwrap_or_else(|broken| broken.into_inner())
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.counters.open.fetch_sub(1, Ordering::Relaxed);
        let mut of_clients = self.of_clients();
        if let Some(count) = of_clients.get_mut(&self.asker.client) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                of_clients.remove(&self.asker.client);
            }
        }
    }
}

/// Waits for a complete answer.
pub async fn whole(mut events: Inbox) -> Result<Choice> {
    let mut choice = Choice::default();
    while let Some(event) = events.recv().await {
        if choice.take(event)? {
            return Ok(choice);
        }
    }
    Err(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "the engine stopped before the end of the answer"))
}

#[cfg(test)]
mod tests {
    use super::network;

    #[test]
    fn addresses_of_one_client() {
        let same = |a: &str, b: &str| network(a.parse().unwrap()) == network(b.parse().unwrap());
        assert!(same("2001:db8:0:1::1", "2001:db8:0:1:ffff::2") && same("::ffff:10.0.0.1", "10.0.0.1"));
        assert!(!same("2001:db8:0:1::1", "2001:db8:0:2::1") && !same("10.0.0.1", "10.0.0.2"));
        assert!(!same("::ffff:10.0.0.1", "::ffff:10.0.0.2"));
    }
}
