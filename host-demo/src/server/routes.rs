//! What the server answers to which path.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::body::Body as HttpBody;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use tower_http::cors::{AllowOrigin, CorsLayer};

use super::app::{App, Open, Result, bytes, json_body, whole};
use super::error::ApiError;
use super::request::Body;
use super::responses::responses;
use super::service::{Endpoint, Frame};
use super::stream::stream;
use crate::text;

/// `origins`: whose pages may ask from a browser, next to the server's own.
pub fn router(app: Arc<App>, origins: Vec<HeaderValue>) -> Router {
    let guarded = Router::new()
        .route("/v1/chat/completions", post(chat))
        .route("/v1/completions", post(completions))
        .route("/v1/responses", post(responses))
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

async fn chat(State(app): State<Arc<App>>, request: Request<HttpBody>) -> Result<Response> {
    generate(app, Endpoint::Chat, request).await
}

async fn completions(State(app): State<Arc<App>>, request: Request<HttpBody>) -> Result<Response> {
    generate(app, Endpoint::Completions, request).await
}

async fn generate(app: Arc<App>, endpoint: Endpoint, request: Request<HttpBody>) -> Result<Response> {
    let seat = request.extensions().get().cloned();
    let body = bytes(request).await?;
    let open = Open::new(&app, seat)?;
    let body = Body::parse(&body)?;
    let mut prepared = app.service.prepare(endpoint, &body, super::by_chance())?;
    let prefix = if endpoint == Endpoint::Chat { "chatcmpl" } else { "cmpl" };
    let frame = Frame::new(format!("{prefix}-{:016x}", super::by_chance()));
    let answers = app.submit(&mut prepared)?;
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

async fn embeddings(State(app): State<Arc<App>>, request: Request<HttpBody>) -> Result<Response> {
    let seat = request.extensions().get().cloned();
    let body = json_body(request).await?;
    let _open = Open::new(&app, seat)?;
    let inputs = app.service.embedding_inputs(&body)?;
    let tokens = inputs.iter().map(|texts| texts.ids.len()).sum();
    let vectors = app.vectors(inputs).await?;
    Ok(Json(app.service.embeddings(&body, &vectors, tokens)).into_response())
}

async fn rerank(State(app): State<Arc<App>>, request: Request<HttpBody>) -> Result<Response> {
    let seat = request.extensions().get().cloned();
    let body = json_body(request).await?;
    let _open = Open::new(&app, seat)?;
    let pairs = app.service.pairs(&body)?;
    let tokens = pairs.iter().map(|texts| texts.ids.len()).sum();
    let vectors = app.vectors(pairs).await?;
    Ok(Json(app.service.ranking(&body, &vectors, tokens)).into_response())
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
