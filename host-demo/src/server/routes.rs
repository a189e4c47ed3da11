//! What the server answers to which path.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use arenite::TokenId;
use axum::body::Body as HttpBody;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::sse::{Event as Sse, KeepAlive};
use axum::response::{Html, IntoResponse, Response, Sse as SseResponse};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tower_http::cors::{AllowOrigin, CorsLayer};

use super::engine::{Command, Counters, Event, Job};
use super::error::ApiError;
use super::http::{Held, Seat};
use super::logprobs;
use super::request::Body;
use super::service::{Choice, Endpoint, Frame, Prepared, Service, usage, without_tags};
use super::tools;
use crate::chat::{Part, Thoughts};
use crate::ranking::Texts;
use crate::text;

/// Bytes of a request.
const MOST_BYTES: usize = 8 << 20;
/// How long a body may take to come.
const BODY_TIME: Duration = Duration::from_secs(30);

/// All that answers are made of.
pub struct App {
    pub service: Service,
    pub commands: Sender<Command>,
    pub counters: Arc<Counters>,
    /// Requests that may be open at once.
    pub most_open: usize,
    pub key: Option<String>,
    pub workspace: usize,
    pub kv: usize,
    pub started: Instant,
}

type Result<T> = std::result::Result<T, ApiError>;

/// `origins`: whose pages may ask from a browser, next to the server's own.
pub fn router(app: Arc<App>, origins: Vec<HeaderValue>) -> Router {
    let guarded = Router::new()
        .route("/v1/chat/completions", post(chat))
        .route("/v1/completions", post(completions))
        .route("/v1/embeddings", post(embeddings))
        .route("/v1/rerank", post(rerank))
        .route("/v1/models", get(models))
        .route("/tokenize", post(tokenize))
        .route("/detokenize", post(detokenize))
        .route("/metrics", get(metrics))
        .route_layer(middleware::from_fn_with_state(app.clone(), with_key));
    let routes = guarded
        .route("/health", get(health))
        .route("/", get(|| async { Html(include_str!("page.html")) }))
        .fallback(|| async { ApiError::new(StatusCode::NOT_FOUND, "there is nothing at this path") })
        .method_not_allowed_fallback(|| async {
            ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "this path takes another method")
        })
        .with_state(app);
    if origins.is_empty() {
        return routes;
    }
    let origins = match origins.iter().any(|origin| origin == "*") {
        true => AllowOrigin::any(),
        false => AllowOrigin::list(origins),
    };
    let cors = CorsLayer::new().allow_origin(origins).allow_methods([Method::GET, Method::POST]);
    routes.layer(cors.allow_headers([header::AUTHORIZATION, header::CONTENT_TYPE]))
}

/// Lets those in who have the key.
async fn with_key(State(app): State<Arc<App>>, headers: HeaderMap, request: Request, next: Next) -> Response {
    let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    match &app.key {
        Some(key) if given.is_none_or(|given| !same(given.as_bytes(), key.as_bytes())) => {
            ApiError::new(StatusCode::UNAUTHORIZED, "the API key is missing or wrong").into_response()
        }
        _ => next.run(request).await,
    }
}

/// Compared in a time that does not tell where they differ.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
}

/// A whole body, if it is not too long and comes in time.
async fn bytes(request: Request<HttpBody>) -> Result<Vec<u8>> {
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

async fn json_body(request: Request<HttpBody>) -> Result<Value> {
    serde_json::from_slice(&bytes(request).await?)
        .map_err(|error| ApiError::invalid(format!("the body is not JSON: {error}")))
}

/// Counts a request as long as it is open, and keeps its connection.
struct Open {
    counters: Arc<Counters>,
    _held: Option<Held>,
}

impl Open {
    fn new(app: &App, seat: Option<Arc<Seat>>) -> Result<Self> {
        if app.counters.stopping.load(Ordering::Relaxed) {
            return Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "the server is about to end"));
        }
        let open = Self { counters: app.counters.clone(), _held: seat.map(Held::new) };
        let before = app.counters.open.fetch_add(1, Ordering::Relaxed);
        if before >= app.most_open { Err(ApiError::busy(before)) } else { Ok(open) }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.counters.open.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn chat(State(app): State<Arc<App>>, request: Request<HttpBody>) -> Result<Response> {
    generate(app, Endpoint::Chat, request).await
}

async fn completions(State(app): State<Arc<App>>, request: Request<HttpBody>) -> Result<Response> {
    generate(app, Endpoint::Completions, request).await
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

async fn generate(app: Arc<App>, endpoint: Endpoint, request: Request<HttpBody>) -> Result<Response> {
    let seat = request.extensions().get().cloned();
    let body = bytes(request).await?;
    let open = Open::new(&app, seat)?;
    let body = Body::parse(&body)?;
    let mut prepared = app.service.prepare(endpoint, &body, super::by_chance())?;
    let prefix = if endpoint == Endpoint::Chat { "chatcmpl" } else { "cmpl" };
    let frame = Frame { id: format!("{prefix}-{:016x}", super::by_chance()), created: now(), says_cached: true };
    let mut answers = Vec::new();
    for (prompt, settings) in std::mem::take(&mut prepared.jobs) {
        let (events, answer) = unbounded_channel();
        let job = Box::new(Job { prompt, settings, events });
        if app.commands.send(Command::Generate(job)).is_err() {
            return Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "the engine has ended"));
        }
        answers.push(answer);
    }
    if prepared.stream {
        return Ok(stream(app, prepared, frame, answers, open));
    }
    let mut choices = Vec::new();
    for answer in answers {
        choices.push(whole(answer).await?);
    }
    drop(open);
    Ok(Json(app.service.answer(&prepared, &choices, &frame)).into_response())
}

/// All of an answer.
async fn whole(mut events: UnboundedReceiver<Event>) -> Result<Choice> {
    let mut choice = Choice::default();
    while let Some(event) = events.recv().await {
        if choice.take(event)? {
            return Ok(choice);
        }
    }
    Err(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "the engine gave no end"))
}

impl Choice {
    /// Takes what came; whether it was the last.
    pub fn take(&mut self, event: Event) -> Result<bool> {
        match event {
            Event::Token { text, logprob } => {
                self.text += &text;
                self.logprobs.extend(logprob);
                Ok(false)
            }
            Event::Done { end, text, prompt, cached, answer } => {
                self.text += &text;
                (self.end, self.prompt, self.cached, self.answer) = (Some(end), prompt, cached, answer);
                Ok(true)
            }
            Event::Failed(message) => Err(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, message)),
        }
    }
}

/// Answers as they come.
fn stream(
    app: Arc<App>,
    prepared: Prepared,
    frame: Frame,
    answers: Vec<UnboundedReceiver<Event>>,
    open: Open,
) -> Response {
    let (out, pieces) = unbounded_channel::<std::result::Result<Sse, Infallible>>();
    let streamer = Arc::new(Streamer { app, prepared, frame, out, _open: open });
    tokio::spawn(async move {
        let each = answers.into_iter().enumerate().map(|(index, events)| {
            let streamer = streamer.clone();
            tokio::spawn(async move { streamer.answer(index, events).await })
        });
        let mut choices = Vec::new();
        for task in each.collect::<Vec<_>>() {
            choices.extend(task.await.ok().flatten());
        }
        if streamer.prepared.include_usage {
            let mut last = streamer.app.service.frame(streamer.prepared.endpoint, &streamer.frame, true);
            last["choices"] = json!([]);
            last["usage"] = usage(&choices, true);
            streamer.send(&last);
        }
        let _ = streamer.out.send(Ok(Sse::default().data("[DONE]")));
    });
    SseResponse::new(UnboundedReceiverStream::new(pieces)).keep_alive(KeepAlive::default()).into_response()
}

struct Streamer {
    app: Arc<App>,
    prepared: Prepared,
    frame: Frame,
    out: UnboundedSender<std::result::Result<Sse, Infallible>>,
    _open: Open,
}

impl Streamer {
    /// `false` if nobody listens any more.
    fn send(&self, value: &Value) -> bool {
        self.out.send(Ok(Sse::default().data(value.to_string()))).is_ok()
    }

    /// One piece of a choice.
    fn piece(&self, index: usize, content: Value, logprobs: Value, finish: Option<&str>) -> bool {
        let mut piece = self.app.service.frame(self.prepared.endpoint, &self.frame, true);
        let key = if self.prepared.endpoint == Endpoint::Chat { "delta" } else { "text" };
        piece["choices"] = json!([{ "index": index, key: content, "logprobs": logprobs, "finish_reason": finish }]);
        self.send(&piece)
    }

    async fn answer(&self, index: usize, mut events: UnboundedReceiver<Event>) -> Option<Choice> {
        let is_chat = self.prepared.endpoint == Endpoint::Chat;
        let nothing = if is_chat { json!({}) } else { json!("") };
        if is_chat {
            self.piece(index, json!({ "role": "assistant", "content": "" }), Value::Null, None);
        }
        let mut thoughts = Thoughts::after(&self.prepared.prompts[index]);
        let mut choice = Choice::default();
        loop {
            // Also when nothing comes for a while, it shows that the client has left.
            let event = tokio::select! {
                event = events.recv() => event?,
                () = self.out.closed() => return None,
            };
            let (mut text, mut logprobs) = (String::new(), Value::Null);
            match &event {
                Event::Token { text: piece, logprob } => {
                    text += piece;
                    if let Some(logprob) = logprob {
                        logprobs = match is_chat {
                            true => json!({ "content": [logprob.chat()] }),
                            false => logprobs::completion(std::slice::from_ref(logprob)),
                        };
                    }
                }
                Event::Done { text: rest, .. } => text += rest,
                Event::Failed(_) => {}
            }
            let is_end = match choice.take(event) {
                Ok(is_end) => is_end,
                Err(error) => {
                    self.send(&error.body());
                    return None;
                }
            };
            // Calls of functions show only at the end.
            if !self.prepared.has_tools {
                if is_chat {
                    self.deltas(index, &mut thoughts, &text, logprobs, is_end);
                } else if !text.is_empty() || !logprobs.is_null() {
                    self.piece(index, json!(text), logprobs, None);
                }
            }
            if is_end {
                let mut finish = choice.end.map_or("stop", super::engine::Finish::name);
                if self.prepared.has_tools {
                    let parts = self.prepared.parts(index, &choice.text);
                    let mut delta = json!({});
                    if !parts.reasoning.is_empty() {
                        delta["reasoning_content"] = json!(parts.reasoning);
                    }
                    if !parts.content.is_empty() {
                        delta["content"] = json!(parts.content);
                    }
                    if !parts.calls.is_empty() {
                        delta["tool_calls"] = tools::to_json(&parts.calls, &self.frame.id, index);
                        finish = "tool_calls";
                    }
                    self.piece(index, delta, Value::Null, None);
                }
                self.piece(index, nothing, Value::Null, Some(finish));
                return Some(choice);
            }
        }
    }

    /// What is said and what is thought, as it becomes certain.
    fn deltas(&self, index: usize, thoughts: &mut Thoughts, text: &str, mut logprobs: Value, is_end: bool) {
        let mut deltas = Vec::new();
        let mut show = |part: Part<'_>| -> std::result::Result<(), Infallible> {
            match part {
                Part::Said(text) => deltas.push(json!({ "content": text })),
                Part::Thought(text) => match without_tags(text) {
                    text if text.is_empty() => {}
                    text => deltas.push(json!({ "reasoning_content": text })),
                },
            }
            Ok(())
        };
        let Ok(()) = thoughts.push(text, &mut show);
        if is_end {
            let Ok(()) = thoughts.finish(&mut show);
        }
        if deltas.is_empty() && !logprobs.is_null() {
            deltas.push(json!({ "content": "" }));
        }
        for delta in deltas {
            self.piece(index, delta, std::mem::take(&mut logprobs), None);
        }
    }
}

async fn embeddings(State(app): State<Arc<App>>, request: Request<HttpBody>) -> Result<Response> {
    let seat = request.extensions().get().cloned();
    let body = json_body(request).await?;
    let _open = Open::new(&app, seat)?;
    let inputs = app.service.embedding_inputs(&body)?;
    let tokens = inputs.iter().map(|texts| texts.ids.len()).sum();
    let vectors = vectors_of(&app, inputs).await?;
    Ok(Json(app.service.embeddings(&body, &vectors, tokens)).into_response())
}

async fn rerank(State(app): State<Arc<App>>, request: Request<HttpBody>) -> Result<Response> {
    let seat = request.extensions().get().cloned();
    let body = json_body(request).await?;
    let _open = Open::new(&app, seat)?;
    let pairs = app.service.pairs(&body)?;
    let tokens = pairs.iter().map(|texts| texts.ids.len()).sum();
    let vectors = vectors_of(&app, pairs).await?;
    Ok(Json(app.service.ranking(&body, &vectors, tokens)).into_response())
}

/// What the model makes of texts.
async fn vectors_of(app: &App, inputs: Vec<Texts>) -> Result<Vec<Vec<f32>>> {
    let mut vectors = Vec::new();
    for texts in inputs {
        let (answer, vector) = tokio::sync::oneshot::channel();
        let gone = || ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "the engine has ended");
        app.commands.send(Command::Embed { texts, answer }).map_err(|_| gone())?;
        vectors.push(vector.await.map_err(|_| gone())?.map_err(ApiError::invalid)?);
    }
    Ok(vectors)
}

async fn models(State(app): State<Arc<App>>) -> Json<Value> {
    let service = &app.service;
    let model = json!({
        "id": service.name,
        "object": "model",
        "created": 0,
        "owned_by": "arenite",
        "meta": { "n_ctx": service.context, "n_vocab": service.vocab },
    });
    Json(json!({ "object": "list", "data": [model] }))
}

async fn tokenize(State(app): State<Arc<App>>, request: Request<HttpBody>) -> Result<Json<Value>> {
    let body = json_body(request).await?;
    let text = ["content", "text", "prompt"].iter().find_map(|key| body.get(*key)?.as_str());
    let text = text.ok_or_else(|| ApiError::about("content", "content must be a text"))?;
    let switch = |key: &str| body.get(key).and_then(Value::as_bool).unwrap_or(false);
    let how = arenite::tokenizer::Encode { add_special: switch("add_special"), parse_special: switch("parse_special") };
    let ids = text::encode(app.service.tokenizer, text.as_bytes(), how);
    Ok(Json(json!({ "tokens": ids.map_err(|error| ApiError::invalid(error.to_string()))? })))
}

async fn detokenize(State(app): State<Arc<App>>, request: Request<HttpBody>) -> Result<Json<Value>> {
    let body = json_body(request).await?;
    let ids = body.get("tokens").and_then(Value::as_array).map(|ids| ids.iter().map(|id| Some(id.as_u64()? as u32)));
    let ids: Option<Vec<u32>> = ids.and_then(Iterator::collect);
    let ids = ids.ok_or_else(|| ApiError::about("tokens", "tokens must be a list of numbers"))?;
    let text =
        text::decode(app.service.tokenizer, &ids).map_err(|error| ApiError::about("tokens", error.to_string()))?;
    Ok(Json(json!({ "content": String::from_utf8_lossy(&text) })))
}

async fn health(State(app): State<Arc<App>>) -> Response {
    match app.counters.stopping.load(Ordering::Relaxed) {
        false => Json(json!({ "status": "ok" })).into_response(),
        true => (StatusCode::SERVICE_UNAVAILABLE, Json(json!({ "status": "stopping" }))).into_response(),
    }
}

/// For Prometheus.
async fn metrics(State(app): State<Arc<App>>) -> Response {
    let counters = &app.counters;
    let load = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let size = |gauge: &std::sync::atomic::AtomicUsize| gauge.load(Ordering::Relaxed) as u64;
    let rows = [
        ("requests_total", "counter", "Answers that were begun", load(&counters.requests)),
        ("prompt_tokens_total", "counter", "Tokens of prompts that were computed", load(&counters.prompt_tokens)),
        ("cached_tokens_total", "counter", "Tokens of prompts that were known", load(&counters.cached_tokens)),
        ("answer_tokens_total", "counter", "Tokens of answers", load(&counters.answer_tokens)),
        ("passes_total", "counter", "Passes through the model", load(&counters.passes)),
        ("requests_open", "gauge", "Requests without an answer yet", size(&counters.open)),
        ("answers_running", "gauge", "Answers in the making", size(&counters.running)),
        ("kv_pages_free", "gauge", "Pages of the KV cache that are free", size(&counters.free_pages)),
        ("workspace_bytes", "gauge", "Bytes of workspace", app.workspace as u64),
        ("kv_bytes", "gauge", "Bytes of KV cache", app.kv as u64),
        ("uptime_seconds", "gauge", "Seconds since the start", app.started.elapsed().as_secs()),
    ];
    let text: String = rows
        .iter()
        .map(|(name, kind, help, value)| {
            format!("# HELP arenite_{name} {help}\n# TYPE arenite_{name} {kind}\narenite_{name} {value}\n")
        })
        .collect();
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response()
}
