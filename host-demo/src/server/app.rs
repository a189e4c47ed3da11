//! The state shared by all routes: the service, the channel to the engine, and open requests.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use axum::body::Body as HttpBody;
use axum::extract::Request;
use axum::http::{StatusCode, header};
use serde_json::Value;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::oneshot;

use super::answer::Choice;
use super::connections::{ConnectionSlot, RequestGuard};
use super::engine::{Command, Counters, Embedding, Event, Job};
use super::error::ApiError;
use super::request::Body;
use super::service::{Endpoint, Prepared, Service};
use crate::ranking::Texts;

/// Maximum size of a body in bytes.
const MOST_BYTES: usize = 8 << 20;
/// Time limit for a body.
const BODY_TIME: Duration = Duration::from_secs(30);

/// The state shared by all routes.
pub struct App {
    pub service: Service,
    pub commands: Sender<Command>,
    pub counters: Arc<Counters>,
    /// Maximum number of open requests.
    pub most_open: usize,
    /// Number of answers that are generated at the same time.
    pub parallel: usize,
    pub key: Option<String>,
    /// True if the model transcribes speech.
    pub hears: bool,
    pub workspace: usize,
    pub kv: usize,
    pub started: Instant,
}

pub type Result<T> = std::result::Result<T, ApiError>;

impl App {
    /// Sends the jobs of a request to the engine.
    pub fn submit(&self, prepared: &mut Prepared) -> Result<Vec<UnboundedReceiver<Event>>> {
        let submit = |(prompt, settings)| -> Result<_> {
            let (events, answer) = unbounded_channel();
            let job = Box::new(Job { prompt, settings, events, says_cached: self.key.is_some() });
            self.commands.send(Command::Generate(job)).map_err(|_| gone())?;
            Ok(answer)
        };
        std::mem::take(&mut prepared.jobs).into_iter().map(submit).collect()
    }

    /// Begins the answer to a request that has only one.
    pub fn begin(&self, endpoint: Endpoint, body: &Body) -> Result<Answer> {
        let mut prepared = self.service.prepare(endpoint, body, super::by_chance())?;
        let prompt_tokens = prepared.jobs.first().map_or(0, |(prompt, _)| prompt.len());
        let events = self.submit(&mut prepared)?.pop().ok_or_else(|| ApiError::about("n", "n must be 1"))?;
        Ok(Answer { prepared, events, prompt_tokens, began: Instant::now() })
    }

    /// Embeds texts.
    pub async fn vectors(&self, inputs: Vec<Texts>) -> Result<Vec<Vec<f32>>> {
        let mut vectors = Vec::new();
        for texts in inputs {
            let (answer, vector) = oneshot::channel();
            self.commands
                .send(Command::Embed(Embedding { texts, lora: self.service.lora.usual(), answer }))
                .map_err(|_| gone())?;
            vectors.push(vector.await.map_err(|_| gone())?.map_err(ApiError::invalid)?);
        }
        Ok(vectors)
    }
}

/// An answer in progress.
pub struct Answer {
    pub prepared: Prepared,
    pub events: UnboundedReceiver<Event>,
    pub prompt_tokens: usize,
    pub began: Instant,
}

fn gone() -> ApiError {
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "the engine has ended")
}

/// Reads a body within its limits of size and time.
pub async fn bytes(request: Request<HttpBody>) -> Result<Vec<u8>> {
    let too_long =
        || ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, format!("the body has more than {MOST_BYTES} bytes"));
    let announced = request.headers().get(header::CONTENT_LENGTH).and_then(|len| len.to_str().ok()?.parse().ok());
    if announced.is_some_and(|len: usize| len > MOST_BYTES) {
        return Err(too_long());
    }
    match tokio::time::timeout(BODY_TIME, axum::body::to_bytes(request.into_body(), MOST_BYTES)).await {
        Ok(Ok(bytes)) => Ok(bytes.to_vec()),
        Ok(Err(_)) => Err(too_long()),
        Err(_) => Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, "the body did not come in time")),
    }
}

pub async fn json_body(request: Request<HttpBody>) -> Result<Value> {
    serde_json::from_slice(&bytes(request).await?)
        .map_err(|error| ApiError::invalid(format!("the body is not JSON: {error}")))
}

/// Counts an open request and marks its connection as busy.
pub struct OpenRequest {
    counters: Arc<Counters>,
    _guard: Option<RequestGuard>,
}

impl OpenRequest {
    pub fn new(app: &App, slot: Option<Arc<ConnectionSlot>>) -> Result<Self> {
        if app.counters.stopping.load(Ordering::Relaxed) {
            return Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "the server is shutting down"));
        }
        let open = Self { counters: app.counters.clone(), _guard: slot.map(RequestGuard::new) };
        let before = app.counters.open.fetch_add(1, Ordering::Relaxed);
        if before >= app.most_open { Err(ApiError::busy(before)) } else { Ok(open) }
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.counters.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Waits for a complete answer.
pub async fn whole(mut events: UnboundedReceiver<Event>) -> Result<Choice> {
    let mut choice = Choice::default();
    while let Some(event) = events.recv().await {
        if choice.take(event)? {
            return Ok(choice);
        }
    }
    Err(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "the engine gave no end"))
}

impl Choice {
    /// Applies an event. Returns true if it was the last one.
    pub fn take(&mut self, event: Event) -> Result<bool> {
        match event {
            Event::Prompt(scored) => {
                self.scored = scored;
                Ok(false)
            }
            Event::Token { text, logprob } => {
                self.text += &text;
                self.logprobs.extend(logprob);
                Ok(false)
            }
            Event::Done { end, stop, text, prompt, cached, answer } => {
                self.text += &text;
                self.stop = stop;
                (self.end, self.prompt, self.cached, self.answer) = (Some(end), prompt, cached, answer);
                Ok(true)
            }
            Event::Failed(message) => Err(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, message)),
        }
    }
}
