//! The routes of the server.

pub mod answer;
pub mod anthropic;
pub mod audio;
pub mod cards;
pub mod cohere;
pub mod decisions;
pub mod llama;
pub mod logprobs;
pub mod lora;
pub mod ollama;
pub mod page;
pub mod responses;
pub mod slots;
pub mod stream;
pub mod tei;
pub mod vectors;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::body::Body as HttpBody;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use axum::{Json, Router};
use serde::Serialize;
use serde_json::{Value, json};
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};

use crate::app::{App, CacheScope, passed_by, whole};
use crate::faces::{self, read_json};
use crate::http::body;
use crate::http::error::{self, ApiError, Result};
use crate::http::gate::{self, Gate};
use crate::http::record;
use crate::http::record::Log;
use crate::models::proxy;
use crate::models::proxy::Proxy;
use crate::routes::answer::{ResponseMeta, with_warning};
use crate::routes::cards::{Architecture, ModelCard, ModelId, health_of, model_id};
use crate::routes::responses::responses;
use crate::routes::stream::stream;
use crate::sounds;
use arenite_request::Keep;
use arenite_run::service::{Choice, Endpoint, by_chance, token_count};
use arenite_text as text;

/// Returns the paths that need the API key, and their handlers. Every path that begins with `/v1` also exists without
/// `/v1`, for clients whose base address lacks it.
fn table() -> Vec<(&'static str, MethodRouter<Arc<App>>)> {
    let limit = || DefaultBodyLimit::max(sounds::MOST_BYTES);
    let mut table = vec![
        ("/", post(tei::root)),
        ("/info", get(tei::info)),
        ("/similarity", post(tei::similarity)),
        ("/v1/chat/completions", post(chat)),
        ("/v1/chat/completions/input_tokens", post(llama::input_tokens)),
        ("/v1/completions", post(completions)),
        ("/completion", post(llama::completion)),
        ("/completions", post(llama::completion)),
        ("/v1/responses", post(responses)),
        ("/v1/responses/input_tokens", post(responses::input_tokens)),
        ("/v1/embeddings", post(embeddings)),
        ("/v1/embed", post(cohere::embed)),
        ("/v2/embed", post(cohere::embed)),
        ("/embedding", post(embeddings)),
        ("/embed", post(embeddings)),
        ("/v1/rerank", post(rerank)),
        ("/v2/rerank", post(rerank)),
        ("/v1/reranking", post(rerank)),
        ("/v1/score", post(vectors::score)),
        ("/v1/systemone", post(decisions::systemone)),
        ("/v1/audio/transcriptions", post(audio::transcriptions).layer(limit())),
        ("/v1/audio/translations", post(audio::translations).layer(limit())),
        ("/v1/models", get(models)),
        ("/v1/models/{*id}", get(model)),
        ("/tokenize", post(tokenize)),
        ("/detokenize", post(detokenize)),
        ("/tokenizer_info", get(tokenizer_info)),
        ("/v1/messages", post(anthropic::messages)),
        ("/v1/messages/count_tokens", post(anthropic::count_tokens)),
        ("/api/chat", post(ollama::chat)),
        ("/api/generate", post(ollama::generate)),
        ("/api/embed", post(ollama::embed)),
        ("/api/embeddings", post(ollama::embed)),
        ("/api/tags", get(ollama::tags)),
        ("/api/ps", get(ollama::loaded)),
        ("/api/pull", post(ollama::pull)),
        ("/api/show", post(ollama::show)),
        ("/api/version", get(ollama::version)),
        ("/api/v0/models", get(models_of_studio)),
        ("/api/v0/models/{*id}", get(model_of_studio)),
        ("/api/v0/chat/completions", post(chat)),
        ("/api/v0/completions", post(completions)),
        ("/api/v0/embeddings", post(embeddings)),
        ("/props", get(llama::props)),
        ("/lora-adapters", get(lora::list).post(lora::set)),
        ("/apply-template", post(llama::apply_template)),
        ("/infill", post(llama::infill)),
        ("/slots", get(slots::list)),
        ("/slots/{id}", post(slots::act)),
        ("/metrics", get(metrics)),
        ("/version", get(version)),
        ("/ping", get(health).post(health)),
    ];
    for at in 0..table.len() {
        let (path, handler) = &table[at];
        let short = path.strip_prefix("/v1").filter(|short| table.iter().all(|(other, _)| other != short));
        if let Some(short) = short {
            table.push((short, handler.clone()));
        }
    }
    table
}

/// Returns the routes. Browsers may send requests from `origins` and from the server's own page.
pub fn router(app: Arc<App>, origins: Vec<HeaderValue>, gate: Gate) -> Router {
    let own = Common { keys: app.keys.clone(), log: app.log.clone(), origins, gate };
    let secret = app.proxy.clone();
    let routes = own.router(table(), get(health), app);
    match secret {
        Some(secret) => routes.layer(middleware::from_fn_with_state(Arc::<str>::from(secret), of_proxy)),
        None => routes,
    }
}

/// Returns the routes for several models.
pub fn router_of_models(proxy: Proxy, own: Common) -> Router {
    let mut routes = vec![
        ("/v1/models", get(proxy::models)),
        ("/models", get(proxy::models)),
        ("/v1/models/{*id}", get(proxy::model)),
        ("/api/tags", get(proxy::tags)),
        ("/api/ps", get(proxy::tags)),
        ("/api/version", get(ollama::version)),
        ("/api/v0/models", get(proxy::models_of_studio)),
        ("/api/v0/models/{*id}", get(proxy::model_of_studio)),
        ("/metrics", get(proxy::metrics)),
        ("/version", get(version)),
        ("/ping", get(proxy::health).post(proxy::health)),
        ("/models/load", post(proxy::load)),
        ("/models/unload", post(proxy::unload)),
    ];
    for (path, _) in table() {
        if routes.iter().all(|(own, _)| *own != path) {
            // The page answers GET /.
            let forward = if path == "/" { post(proxy::forward) } else { get(proxy::forward).post(proxy::forward) };
            routes.push((path, forward));
        }
    }
    own.router(routes, get(proxy::health), Arc::new(proxy))
}

/// Settings that servers with one model and servers with several models have in common.
pub struct Common {
    pub keys: Vec<String>,
    pub log: Option<Log>,
    pub origins: Vec<HeaderValue>,
    pub gate: Gate,
}

impl Common {
    fn router<S: Clone + Send + Sync + 'static>(
        self,
        guarded: Vec<(&str, MethodRouter<S>)>,
        health: MethodRouter<S>,
        state: S,
    ) -> Router {
        let Self { keys, log, origins, gate } = self;
        let gate = Arc::new(gate);
        let routes = guarded.into_iter().fold(Router::new(), |routes, (path, methods)| routes.route(path, methods));
        let routes = routes
            .route_layer(middleware::from_fn_with_state(Arc::<[String]>::from(keys), with_key))
            .route("/health", health.clone())
            .route("/v1/health", health)
            .merge(page::routes())
            .fallback(|| async { ApiError::new(StatusCode::NOT_FOUND, "there is nothing at this path") })
            .method_not_allowed_fallback(|| async {
                ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "this path takes another method")
            })
            .with_state(state)
            .layer(middleware::from_fn_with_state(gate.clone(), gate::check))
            .layer(middleware::from_fn(error::in_own_format))
            .layer(middleware::from_fn_with_state(log, record::record));
        let origins = match origins.iter().any(|origin| origin == "*") {
            true => AllowOrigin::any(),
            false => AllowOrigin::predicate(move |origin, request| {
                let host = request.headers.get(header::HOST).and_then(|host| host.to_str().ok());
                origin.to_str().is_ok_and(|origin| gate.trusts(origin, host))
            }),
        };
        let cors = CorsLayer::new().allow_origin(origins).allow_methods([Method::GET, Method::POST]);
        // Allow all requested headers, because clients' libraries add further headers. `allow_private_network` is
        // needed because a page of a public site may otherwise not reach a server on this machine.
        let cors = cors.allow_headers(AllowHeaders::mirror_request()).allow_private_network(true);
        routes.layer(cors.expose_headers([HeaderName::from_static("x-warning")]))
    }
}

/// Refuses requests that do not come from the proxy process, because such a request could claim any client's address.
async fn of_proxy(State(secret): State<Arc<str>>, request: Request, next: Next) -> Response {
    match passed_by(&secret, &request) {
        Some(_) => next.run(request).await,
        None => ApiError::new(StatusCode::FORBIDDEN, "send requests to the server, not to a model's process")
            .into_response(),
    }
}

/// Refuses requests that do not have one of the API keys, if the server has keys.
async fn with_key(State(keys): State<Arc<[String]>>, headers: HeaderMap, request: Request, next: Next) -> Response {
    let bearer = headers.get(header::AUTHORIZATION).and_then(|value| {
        let (scheme, key) = value.to_str().ok()?.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| key.trim_start())
    });
    // The header `x-api-key` is also read, because Anthropic's clients send the key in it.
    let given = bearer.or_else(|| headers.get("x-api-key")?.to_str().ok());
    // The given key is compared with all keys, and each comparison takes the same time, so the duration does not reveal
    // which key resembles the given one.
    let is_known = |given: &str| keys.iter().fold(false, |known, key| known | same(given.as_bytes(), key.as_bytes()));
    match keys.is_empty() || given.is_some_and(is_known) {
        true => next.run(request).await,
        false => ApiError::new(StatusCode::UNAUTHORIZED, "the API key is missing or wrong").into_response(),
    }
}

/// Returns true if two keys are equal. The time does not depend on the position of their first difference, so it does
/// not help to guess a key.
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
    let (open, body) = app.receive(request).await?;
    let read = move |app: &App| app.prepare(read_json(endpoint, &body::parse(body.json()?)?)?);
    let mut prepared = app.aside(&open, read).await?;
    let prefix = if endpoint == Endpoint::Chat { "chatcmpl" } else { "cmpl" };
    let meta = ResponseMeta::new(format!("{prefix}-{:016x}", by_chance()));
    let answers = app.submit(&open, &mut prepared)?;
    let warning = prepared.warning.take();
    if prepared.reply.stream {
        return Ok(with_warning(stream(app, prepared, meta, answers, open), warning));
    }
    let mut choices = Vec::new();
    for answer in answers {
        choices.push(whole(answer).await?);
    }
    let bytes = choices.iter().map(Choice::bytes).sum();
    let response =
        app.write(&open, bytes, move |app| answer::answer(&app.service, &prepared, &mut choices, &meta)).await?;
    Ok(with_warning(response, warning))
}

async fn embeddings(State(app): State<Arc<App>>, request: Request<HttpBody>) -> Result<Response> {
    let read = |app: &App, body: Value| {
        let (inputs, format) = vectors::embedding_inputs(&app.service, &body, false)?;
        let lora = lora::of_body(&app.service.lora, &body)?;
        // Only llama.cpp's requests have the field `content`, so only their answers have llama.cpp's own format.
        let is_llama = body.get("input").is_none_or(Value::is_null) && body.get("content").is_some();
        Ok((format, inputs, lora, is_llama))
    };
    // text-embeddings-inference's routes, `/embed` and `/`.
    let path = request.uri().path().trim_end_matches('/');
    let is_list = path.is_empty() || path.ends_with("/embed");
    let (open, (format, inputs, lora, is_llama)) = app.asked(request, read).await?;
    let tokens = token_count(&inputs);
    let made = app.vectors(&open, inputs, lora).await?;
    let bytes = made.bytes();
    let answer = move |app: &App| match (is_list, is_llama) {
        (true, _) => made.vectors.iter().map(|vector| format.values(vector)).collect(),
        (false, true) => llama::embeddings(&made.vectors, format),
        (false, false) => vectors::embeddings(&app.service, format, &made.vectors, tokens),
    };
    app.write(&open, bytes, answer).await
}

async fn rerank(State(app): State<Arc<App>>, request: Request<HttpBody>) -> Result<Response> {
    // Cohere's scores are numbers from 0 to 1; llama.cpp's scores are the model's own scores.
    let path = request.uri().path().trim_end_matches('/');
    let is_share = path.ends_with("/v2/rerank");
    // Cohere cuts long documents. llama.cpp and text-embeddings-inference refuse them.
    let cuts = is_share || path.ends_with("/v1/rerank");
    let read = move |app: &App, body: Value| {
        let mut ranked = faces::rerank::ranking(&body)?;
        if is_share {
            ranked.is_share.get_or_insert(true);
        }
        if !ranked.is_list && (cuts || ranked.most_tokens.is_some()) {
            ranked.keep.get_or_insert(Keep::Fitting);
        }
        let lora = lora::of_body(&app.service.lora, &body)?;
        Ok((vectors::pairs(&app.service, &ranked)?, ranked, lora))
    };
    let (open, (pairs, ranked, lora)) = app.asked(request, read).await?;
    let tokens = token_count(&pairs);
    let made = app.vectors(&open, pairs, lora).await?;
    // The response may be as long as needed if it repeats the documents, because the documents may be long.
    let bytes = if ranked.returns_documents { usize::MAX } else { made.bytes() };
    app.write(&open, bytes, move |app| vectors::ranking(&app.service, &ranked, &made.vectors, tokens)).await
}

fn card(app: &App) -> ModelCard<'_> {
    let mut card = ModelCard::new(&app.service.name, app.service.context, app.service.vocab);
    let decides = || Architecture { input_modalities: ["text"], output_modalities: ["decisions"] };
    card.architecture = app.service.decisions.as_ref().map(|_| decides());
    card.capabilities = app.service.capabilities();
    card
}

async fn models(State(app): State<Arc<App>>, headers: HeaderMap) -> Json<Value> {
    Json(cards::list(&[card(&app)], &headers))
}

async fn models_of_studio(State(app): State<Arc<App>>) -> Json<Value> {
    Json(cards::list_of_studio(&[card(&app)]))
}

async fn model_of_studio(State(app): State<Arc<App>>, id: ModelId) -> Result<Json<Value>> {
    app.service.check_model(Some(&model_id(id)?))?;
    Ok(Json(cards::of_studio(&card(&app))))
}

async fn model(State(app): State<Arc<App>>, id: ModelId, headers: HeaderMap) -> Result<Json<Value>> {
    let id = model_id(id)?;
    app.service.check_model(Some(&id))?;
    Ok(Json(card(&app).answer(&headers)))
}

async fn tokenize(State(app): State<Arc<App>>, request: Request<HttpBody>) -> Result<Response> {
    app.answered(request, tokens_of).await
}

/// The answer to `/tokenize`. The tokens are stored as numbers, because numbers take an eighth of the memory of JSON
/// values.
#[derive(Serialize)]
struct Tokenized {
    count: usize,
    max_model_len: usize,
    tokens: TokenList,
}

#[derive(Serialize)]
#[serde(untagged)]
enum TokenList {
    Ids(Vec<u32>),
    /// For llama.cpp's field `with_pieces`.
    Pieces(Vec<Value>),
}

fn tokens_of(app: &App, body: Value) -> Result<Tokenized> {
    let max_model_len = app.service.context;
    // vLLM's requests may have a conversation, to which the chat template applies.
    if body.get("messages").is_some_and(Value::is_array) {
        let prepared = app.count(faces::openai::chat(&body)?)?;
        let tokens: Vec<u32> = prepared.jobs.first().map(|(prompt, ..)| prompt.to_vec()).unwrap_or_default();
        return Ok(Tokenized { count: tokens.len(), max_model_len, tokens: TokenList::Ids(tokens) });
    }
    let text = ["content", "text", "prompt"].iter().find_map(|key| body.get(*key)).unwrap_or(&Value::Null);
    let prompt = faces::Field { name: "content", value: text }.prompt()?;
    let switch = |keys: [&str; 2], default| keys.iter().find_map(|key| body.get(*key)?.as_bool()).unwrap_or(default);
    // `add_special` is on by default for vLLM's requests, which have the field `prompt`, and off by default for
    // llama.cpp's requests, which have the field `content`.
    let add_special = switch(["add_special", "add_special_tokens"], body.get("prompt").is_some());
    let parse_special = switch(["parse_special", "parse_special_tokens"], true);
    let how = arenite::tokenizer::Encode { add_special, parse_special };
    let (_, tokens) = app.service.tokens("content", &prompt, how)?;
    let count = tokens.len();
    if body.get("with_pieces") != Some(&Value::Bool(true)) {
        return Ok(Tokenized { count, max_model_len, tokens: TokenList::Ids(tokens) });
    }
    // The number of tokens is limited to the context, because the pieces of a text take a hundred times as much memory
    // as its ids.
    if count > max_model_len {
        let message = format!("content has {count} tokens, but with_pieces takes at most {max_model_len}: shorten it");
        return Err(ApiError::about("content", message));
    }
    let piece = |id| {
        // As in llama.cpp, an incomplete character is shown as a list of bytes.
        let piece = String::from_utf8(arenite_run::generation::bytes(app.service.tokenizer(), id));
        json!({ "id": id, "piece": piece.map_or_else(|part| json!(part.as_bytes()), Value::String) })
    };
    let pieces = tokens.into_iter().map(piece).collect();
    Ok(Tokenized { count, max_model_len, tokens: TokenList::Pieces(pieces) })
}

async fn detokenize(State(app): State<Arc<App>>, request: Request<HttpBody>) -> Result<Response> {
    app.answered(request, text_of).await
}

fn text_of(app: &App, body: Value) -> Result<Value> {
    let ids =
        body.get("tokens").and_then(Value::as_array).map(|ids| ids.iter().map(|id| u32::try_from(id.as_u64()?).ok()));
    let ids: Option<Vec<u32>> = ids.and_then(Iterator::collect);
    let ids = ids.ok_or_else(|| ApiError::about("tokens", "tokens must be a list of token ids"))?;
    let text =
        text::decode(app.service.tokenizer(), &ids).map_err(|error| ApiError::about("tokens", error.to_string()))?;
    let text = String::from_utf8_lossy(&text);
    // The first field is llama.cpp's, the second is vLLM's.
    Ok(json!({ "content": text, "prompt": text }))
}

/// The answer to `/tokenizer_info`: the special tokens, which evaluation programs read.
#[derive(Serialize)]
struct TokenizerInfo {
    eos_token: Option<String>,
    bos_token: Option<String>,
    pad_token: Option<String>,
    add_bos_token: bool,
    chat_template: String,
    model_max_length: usize,
    vocab_size: usize,
}

async fn tokenizer_info(State(app): State<Arc<App>>) -> Json<Value> {
    let tokenizer = app.service.tokenizer();
    let spelled = |id: Option<u32>| id.map(|id| String::from_utf8_lossy(tokenizer.spelling(id)).into_owned());
    let eos_token = spelled(tokenizer.eos());
    Json(json!(TokenizerInfo {
        pad_token: eos_token.clone(),
        eos_token,
        bos_token: spelled(tokenizer.bos()),
        add_bos_token: tokenizer.add_bos(),
        chat_template: app.service.source(),
        model_max_length: app.service.context,
        vocab_size: tokenizer.vocab_len(),
    }))
}

/// vLLM's `/version`.
async fn version() -> Json<Value> {
    Json(json!({ "version": env!("CARGO_PKG_VERSION") }))
}

async fn health(State(app): State<Arc<App>>) -> Response {
    health_of(&app.counters)
}

/// Metrics for Prometheus.
async fn metrics(State(app): State<Arc<App>>) -> Response {
    let counters = &app.counters;
    let load = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let size = |gauge: &std::sync::atomic::AtomicUsize| gauge.load(Ordering::Relaxed) as u64;
    let rows = [
        ("workspace_bytes", "gauge", "Bytes of workspace", app.workspace as u64),
        ("kv_bytes", "gauge", "Bytes of KV cache", app.kv as u64),
        ("uptime_seconds", "gauge", "Seconds since the start", app.started.elapsed().as_secs()),
    ];
    // The following values reveal what other clients do. They are therefore shown only if the clients share the cache
    // anyway.
    let shared = [
        ("requests_total", "counter", "Answers that were started", load(&counters.requests)),
        ("answer_tokens_total", "counter", "Tokens of answers", load(&counters.answer_tokens)),
        ("draft_tokens_total", "counter", "Proposed tokens", load(&counters.drafted_tokens)),
        ("draft_accepted_tokens_total", "counter", "Proposed tokens that were right", load(&counters.accepted_tokens)),
        ("passes_total", "counter", "Passes through the model", load(&counters.passes)),
        ("requests_open", "gauge", "Requests without an answer yet", size(&counters.open)),
        ("answers_running", "gauge", "Answers being generated", size(&counters.running)),
        ("kv_pages_free", "gauge", "Pages of the KV cache that are free", size(&counters.free_pages)),
        ("prompt_tokens_total", "counter", "Prompt tokens that were computed", load(&counters.prompt_tokens)),
        ("cached_tokens_total", "counter", "Prompt tokens that were found in the cache", load(&counters.cached_tokens)),
        (
            "reused_tokens_total",
            "counter",
            "Prompt tokens that were found in the cache at other positions",
            load(&counters.reused_tokens),
        ),
    ];
    let shows_all = app.scope == CacheScope::Server;
    let text: String = rows
        .iter()
        .chain(shared.iter().filter(|_| shows_all))
        .map(|(name, kind, help, value)| {
            format!("# HELP arenite_{name} {help}\n# TYPE arenite_{name} {kind}\narenite_{name} {value}\n")
        })
        .collect();
    let first = counters.first_token.lines("first_token_seconds", "Seconds from a request to its first token");
    let rate =
        counters.token_rate.lines("answer_tokens_per_second", "Tokens per second of an answer, after the first token");
    let histograms = if shows_all { first + &rate } else { String::new() };
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text + &histograms).into_response()
}
