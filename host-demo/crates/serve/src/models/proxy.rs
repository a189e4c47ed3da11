//! The routes of a server with several models. Each request is forwarded to the process of the model that it names.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::multipart::MultipartError;
use axum::extract::{DefaultBodyLimit, FromRequest, Multipart, Query, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use hyper::body::{Frame, SizeHint};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::app::network;
use crate::http::body;
use crate::http::connections::{ConnectionSlot, RequestGuard};
use crate::http::error::{ApiError, Result};
use crate::http::memory::{Received, RequestMemory};
use crate::http::record::{CLIENT, ID, Record};
use crate::identity::ClientKey;
use crate::models::{Lease, Models};
use crate::routes::cards::{ModelCard, ModelId, health_of, list, list_of_studio, model_id, of_studio};
use crate::routes::ollama;
use crate::sounds;
use arenite_run::scheduler::Counters;

/// Time after which an idle connection to a process is closed. It is shorter than the process's own limit
/// (`HEAD_TIME`), because a request on a connection that the process is closing would fail.
const IDLE: Duration = Duration::from_secs(10);

/// Headers that are not forwarded.
const DROPPED: [HeaderName; 8] = [
    CLIENT, // set by the proxy, never by a client
    header::CONNECTION,
    header::CONTENT_ENCODING, // bodies are forwarded unpacked
    header::CONTENT_LENGTH,
    header::EXPECT,
    header::HOST,
    header::ORIGIN,
    header::TRANSFER_ENCODING,
];

/// State of the routes.
pub struct Proxy {
    models: Arc<Models>,
    client: Client<HttpConnector, Body>,
    memory: RequestMemory,
    identities: ClientKey,
    counters: Arc<Counters>,
}

impl Proxy {
    pub fn new(models: Models, counters: Arc<Counters>) -> Self {
        let mut client = Client::builder(TokioExecutor::new());
        let client = client.pool_idle_timeout(IDLE).pool_timer(TokioTimer::new()).build_http();
        let (memory, identities) = (RequestMemory::default(), ClientKey::random());
        Self { models: Arc::new(models), client, memory, identities, counters }
    }
}

/// The field of a request that names the model.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ModelName {
    model: Option<String>,
    /// Ollama's name of the field.
    name: Option<String>,
    /// Ollama's time for which the model stays loaded.
    keep_alive: Option<Value>,
}

/// Parses a time in Ollama's notation: a number of seconds, or a number with a unit. A negative time has no end.
/// Returns `None` if it cannot be parsed.
fn time_of(value: &Value) -> Option<Option<Duration>> {
    let seconds = match value {
        Value::String(text) => {
            let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
            let unit = match &text[number.len()..] {
                "ms" => 0.001,
                "" | "s" => 1.0,
                "m" => 60.0,
                "h" => 3600.0,
                _ => return None,
            };
            number.parse::<f64>().ok()? * unit
        }
        value => value.as_f64()?,
    };
    match seconds < 0.0 {
        true => Some(None),
        false => Duration::try_from_secs_f64(seconds).ok().map(Some),
    }
}

/// An open request, and the model that answers it.
struct OpenRequest {
    counters: Arc<Counters>,
    _lease: Option<Lease>,
    _guard: Option<RequestGuard>,
}

impl OpenRequest {
    fn new(proxy: &Proxy, slot: Option<&Arc<ConnectionSlot>>) -> Result<Self> {
        if proxy.counters.stopping.load(Ordering::Relaxed) {
            return Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "the server is shutting down"));
        }
        proxy.counters.open.fetch_add(1, Ordering::Relaxed);
        let guard = slot.cloned().map(RequestGuard::new);
        Ok(Self { counters: proxy.counters.clone(), _lease: None, _guard: guard })
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.counters.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Forwards a request to the process of its model.
pub async fn forward(State(proxy): State<Arc<Proxy>>, request: Request) -> Result<Response> {
    let slot: Option<Arc<ConnectionSlot>> = request.extensions().get().cloned();
    let record: Option<Arc<Record>> = request.extensions().get().cloned();
    let (method, target, mut headers) = (request.method().clone(), request.uri().clone(), request.headers().clone());
    let in_address = Query::<ModelName>::try_from_uri(&target).map(|Query(named)| named.model);
    let in_address = in_address.map_err(|error| ApiError::invalid(error.body_text()))?;
    let (name, body) = match method {
        Method::POST => named(&proxy, request).await?,
        _ => ((None, None), Body::empty()),
    };
    // Opened only after the body has arrived, so that a connection whose body is still arriving can be closed to make
    // room for other clients.
    let mut open = OpenRequest::new(&proxy, slot.as_ref())?;
    let (name, keep_alive) = (name.0.or(in_address), name.1);
    let lease = proxy.models.lease(proxy.models.find(name.as_deref())?).await?;
    keep_alive.as_ref().and_then(time_of).into_iter().for_each(|idle| lease.keep_for(idle));
    for name in DROPPED {
        headers.remove(name);
    }
    let client = slot.map(|slot| slot.client.to_string()).unwrap_or_default();
    let client = format!("{} {client}", lease.token());
    let id = record.as_ref().map(|record| record.pass_on()).unwrap_or_default();
    for (name, value) in [(CLIENT, client.as_str()), (ID, id)] {
        headers.extend(HeaderValue::from_str(value).map(|value| (name, value)));
    }
    let path = target.path_and_query().map_or("/", |path| path.as_str());
    let uri = Uri::try_from(format!("http://127.0.0.1:{}{path}", lease.port()));
    let mut passed = Request::new(body);
    *passed.method_mut() = method;
    *passed.uri_mut() = uri.map_err(|error| ApiError::invalid(error.to_string()))?;
    *passed.headers_mut() = headers;
    let response = proxy.client.request(passed).await.map_err(|_| {
        let why = format!("the process of the model `{}` has ended: repeat the request to restart it", lease.name());
        ApiError::new(StatusCode::BAD_GATEWAY, why)
    })?;
    open._lease = Some(lease);
    let (mut head, body) = response.into_parts();
    head.headers.remove(header::CONNECTION);
    Ok(Response::from_parts(head, Body::new(Answer { body, _open: open })))
}

/// The name of the model, and the time for which the model stays loaded.
type Named = (Option<String>, Option<Value>);

/// Receives a body, and reads the name of the model in it. The body counts toward the memory limit until it is
/// forwarded.
async fn named(proxy: &Proxy, request: Request) -> Result<(Named, Body)> {
    let is_form = request.headers().get(header::CONTENT_TYPE).is_some_and(|kind| {
        kind.to_str().is_ok_and(|kind| kind.trim_start().to_ascii_lowercase().starts_with("multipart/form-data"))
    });
    let headers = request.headers().clone();
    let slot: Option<&Arc<ConnectionSlot>> = request.extensions().get();
    let client = proxy.identities.id(slot.map(|slot| network(slot.client)));
    if is_form {
        let body = Bytes::from_owner(proxy.memory.receive_up_to(client, request, sounds::MOST_BYTES).await?);
        return Ok(((name_in_form(&headers, body.clone()).await?, None), Body::from(body)));
    }
    let body = proxy.memory.receive(client, request).await?;
    let failed =
        |_| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "a thread failed while it processed this request");
    tokio::task::spawn_blocking(|| Ok((name_in_json(&body)?, Body::from(Bytes::from_owner(body)))))
        .await
        .map_err(failed)?
}

fn name_in_json(body: &Received) -> Result<Named> {
    if body.as_ref().is_empty() {
        return Ok((None, None));
    }
    match serde_json::from_slice::<ModelName>(&body::well_formed(body.json()?)) {
        Ok(ModelName { model, name, keep_alive }) => Ok((model.or(name), keep_alive)),
        // This is an error, because a request without a name would go to the first model, and that model might answer
        // it.
        Err(error) if error.is_data() => Err(ApiError::about("model", format!("model is invalid: {error}"))),
        Err(error) => Err(body::not_json(&error)),
    }
}

/// Returns the name of the model in a form with a sound file. A form without the name goes to the first model. A form
/// that cannot be read is an error, because it may contain a name.
async fn name_in_form(headers: &HeaderMap, body: Bytes) -> Result<Option<String>> {
    let mut request = Request::new(Body::from(body));
    *request.headers_mut() = headers.clone();
    DefaultBodyLimit::max(sounds::MOST_BYTES).apply(&mut request);
    let form = Multipart::from_request(request, &()).await;
    let mut form = form.map_err(|error| ApiError::new(error.status(), error.body_text()))?;
    let failed = |error: MultipartError| ApiError::new(error.status(), error.body_text());
    while let Some(field) = form.next_field().await.map_err(failed)? {
        if field.name() == Some("model") {
            return field.text().await.map(Some).map_err(failed);
        }
    }
    Ok(None)
}

/// The body of an answer. The model stays loaded until the body has been sent.
struct Answer<B> {
    body: B,
    _open: OpenRequest,
}

impl<B: hyper::body::Body + Unpin> hyper::body::Body for Answer<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Returns the cards of all models, for `/v1/models`.
fn cards(models: &Models) -> Vec<ModelCard<'_>> {
    let mut cards = Vec::new();
    for (model, is_loaded) in models.list() {
        let mut card = ModelCard::new(&model.name, model.context, model.vocab);
        card.state = Some(if is_loaded { "loaded" } else { "unloaded" });
        card.memory = Some(model.bytes);
        card.capabilities.clone_from(&model.capabilities);
        cards.push(card);
    }
    cards
}

/// `GET /v1/models`.
pub async fn models(State(proxy): State<Arc<Proxy>>, headers: HeaderMap) -> Json<Value> {
    Json(list(&cards(&proxy.models), &headers))
}

/// `GET /api/v0/models`.
pub async fn models_of_studio(State(proxy): State<Arc<Proxy>>) -> Json<Value> {
    Json(list_of_studio(&cards(&proxy.models)))
}

/// `GET /api/v0/models/{id}`.
pub async fn model_of_studio(State(proxy): State<Arc<Proxy>>, id: ModelId) -> Result<Json<Value>> {
    let at = proxy.models.find(Some(&model_id(id)?))?;
    Ok(Json(of_studio(&cards(&proxy.models)[at])))
}

/// `GET /v1/models/{id}`.
pub async fn model(State(proxy): State<Arc<Proxy>>, id: ModelId, headers: HeaderMap) -> Result<Json<Value>> {
    let at = proxy.models.find(Some(&model_id(id)?))?;
    Ok(Json(cards(&proxy.models)[at].answer(&headers)))
}

/// `POST /models/load`: begins to load a model.
pub async fn load(State(proxy): State<Arc<Proxy>>, request: Request) -> Result<Json<Value>> {
    let ((name, _), _) = named(&proxy, request).await?;
    let at = name.and_then(|name| proxy.models.find(Some(&name)).ok());
    let at = at.ok_or_else(|| ApiError::new(StatusCode::NOT_FOUND, "File Not Found"))?;
    if proxy.models.list()[at].1 {
        return Err(ApiError::invalid("model is already running"));
    }
    let models = proxy.models.clone();
    tokio::spawn(async move { models.lease(at).await.map(drop) });
    Ok(Json(json!({ "success": true })))
}

/// `POST /models/unload`: ends the process of a model that no request uses.
pub async fn unload(State(proxy): State<Arc<Proxy>>, request: Request) -> Result<Json<Value>> {
    let ((name, _), _) = named(&proxy, request).await?;
    let at = name.and_then(|name| proxy.models.find(Some(&name)).ok());
    let at = at.ok_or_else(|| ApiError::invalid("model is not found"))?;
    if !proxy.models.list()[at].1 {
        return Err(ApiError::invalid("model is not running"));
    }
    match proxy.models.unload(at).await {
        true => Ok(Json(json!({ "success": true }))),
        false => Err(ApiError::invalid("model is answering requests: try again later")),
    }
}

/// `GET /api/tags`, and `GET /api/ps` for the models that are loaded.
pub async fn tags(State(proxy): State<Arc<Proxy>>, uri: Uri) -> Json<Value> {
    let list = proxy.models.list();
    let tags: Vec<_> = match uri.path().ends_with("/ps") {
        false => list.into_iter().map(|(model, _)| ollama::tag(&model.name, &model.facts)).collect(),
        true => {
            let loaded = list.into_iter().filter(|(_, is_loaded)| *is_loaded);
            loaded.map(|(model, _)| ollama::loaded_tag(&model.name, &model.facts, model.context)).collect()
        }
    };
    Json(json!({ "models": tags }))
}

/// `GET /health`.
pub async fn health(State(proxy): State<Arc<Proxy>>) -> Response {
    health_of(&proxy.counters)
}

/// `GET /metrics`: with the parameter `model`, the metrics of that model's process if the model is loaded. Otherwise
/// the memory of all models, and for each model whether it is loaded.
pub async fn metrics(State(proxy): State<Arc<Proxy>>, request: Request) -> Result<Response> {
    let named = Query::<ModelName>::try_from_uri(request.uri());
    let Query(ModelName { model: named, .. }) = named.map_err(|error| ApiError::invalid(error.body_text()))?;
    let list = proxy.models.list();
    if let Some(name) = named {
        let (model, is_loaded) = list[proxy.models.find(Some(&name))?];
        if is_loaded {
            return forward(State(proxy.clone()), request).await;
        }
        let why = format!("the model `{}` is not loaded", model.name);
        return Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, why));
    }
    // The escapes of Rust's `Debug` are not used, because Prometheus accepts only these three escapes.
    let label = |name: &str| name.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let row = |(model, value): (&str, usize)| format!("{{model=\"{}\"}} {value}\n", label(model));
    let rows = |name: &str, help: &str, values: Vec<(&str, usize)>| {
        let rows: String = values.into_iter().map(|value| format!("arenite_{name}{}", row(value))).collect();
        format!("# HELP arenite_{name} {help}\n# TYPE arenite_{name} gauge\n{rows}")
    };
    let loaded = list.iter().map(|(model, is_loaded)| (model.name.as_str(), usize::from(*is_loaded))).collect();
    let bytes = list.iter().map(|(model, _)| (model.name.as_str(), model.bytes)).collect();
    let text = rows("model_loaded", "1 if the model is loaded", loaded)
        + &rows("model_memory_bytes", "Bytes of memory of the loaded model", bytes);
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response())
}
