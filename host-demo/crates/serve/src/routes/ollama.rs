//! `/api/*`: Ollama's interface to the same service.

use std::sync::Arc;

use arenite::TokenId;
use axum::Json;
use axum::body::{Body as HttpBody, Bytes};
use axum::extract::{Request, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Value, json};

use crate::app::{Answer, App, OpenRequest, Ready, object};
use crate::faces;
use crate::http::error::{ApiError, Result};
use crate::routes::answer::{call_id, with_warning};
use crate::routes::logprobs;
use crate::routes::stream::{Events, json_line, unbuffered};
use crate::routes::vectors;
use arenite_chat::{Call, Part};
use arenite_run::scheduler::Finish;
use arenite_run::service::{Choice, Endpoint, Facts, by_chance, token_count};

#[derive(Serialize)]
struct Line<'l> {
    model: &'l str,
    created_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<Said>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    logprobs: Vec<Value>,
    done: bool,
    #[serde(flatten)]
    end: Option<End>,
}

#[derive(Default, Serialize)]
struct Said {
    role: &'static str,
    content: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    thinking: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<Value>,
}

/// Those fields of an answer that only its last line has. Durations are in nanoseconds.
#[derive(Serialize)]
struct End {
    #[serde(skip_serializing_if = "Option::is_none")]
    context: Option<Vec<TokenId>>,
    done_reason: &'static str,
    total_duration: u64,
    load_duration: u64,
    prompt_eval_count: usize,
    prompt_eval_duration: u64,
    eval_count: usize,
    eval_duration: u64,
}

fn now() -> String {
    jiff::Timestamp::now().to_string()
}

/// `POST /api/chat`.
pub async fn chat(State(app): State<Arc<App>>, request: Request<HttpBody>) -> Result<Response> {
    answer(app, request, true).await
}

/// `POST /api/generate`.
pub async fn generate(State(app): State<Arc<App>>, request: Request<HttpBody>) -> Result<Response> {
    answer(app, request, false).await
}

async fn answer(app: Arc<App>, request: Request<HttpBody>, is_chat: bool) -> Result<Response> {
    let (open, prepared) = app.asked(request, move |app, body| prepared(app, &body, is_chat)).await?;
    let mut prepared = match prepared {
        Ok(prepared) => prepared,
        Err(reason) => return Ok(Json(empty(&app, is_chat, reason)).into_response()),
    };
    let warning = prepared.warning.take();
    // The field `context` is left out if the prompt has pictures: the client sends its tokens back, and these cannot
    // contain pictures.
    let first = prepared.jobs.first().filter(|(_, settings, _)| !is_chat && settings.shown.is_empty());
    let prompt = first.map(|(prompt, ..)| prompt.clone());
    let answer = app.begin(&open, prepared)?;
    // As in Ollama, a raw prompt has no context.
    let context = prompt.filter(|_| answer.prepared.endpoint == Endpoint::Chat).map(|prompt| prompt.to_vec());
    let id = format!("{:016x}", by_chance());
    let mut streamer = Streamer { app, is_chat, id, calls: 0, context, logprobs: Vec::new(), _open: open };
    if !answer.prepared.reply.stream {
        return Ok(with_warning(Json(streamer.whole(answer).await?).into_response(), warning));
    }
    let (out, lines) = Events::new();
    tokio::spawn(async move { streamer.run(answer, &out).await });
    let body = HttpBody::from_stream(lines);
    let response = unbuffered(([(header::CONTENT_TYPE, "application/x-ndjson")], body).into_response());
    Ok(with_warning(response, warning))
}

/// Returns the answer to a request without a text.
fn empty(app: &App, is_chat: bool, reason: &str) -> Value {
    let said = || Said { role: "assistant", ..Said::default() };
    let (message, response) = if is_chat { (Some(said()), None) } else { (None, Some(String::new())) };
    let (model, created_at) = (&app.service.name, now());
    let (thinking, logprobs) = (None, Vec::new());
    let mut line = json!(Line { model, created_at, message, response, thinking, logprobs, done: true, end: None });
    line["done_reason"] = json!(reason);
    line
}

type Lines = Events<Bytes>;

/// Returns the prepared request. An empty request only asks to load or unload the model: for it, returns the reason to
/// put into the answer.
fn prepared(app: &App, body: &Value, is_chat: bool) -> Result<std::result::Result<Ready, &'static str>> {
    let mut read = faces::ollama::asked(body, is_chat)?;
    if read.is_empty() {
        app.service.check_model(read.asked.request.model.as_deref())?;
        return Ok(Err(if read.unloads { "unload" } else { "load" }));
    }
    // Ollama's default is 0.8, so its clients get this temperature unless the command line has one.
    read.asked.request.sampling.temperature.get_or_insert(app.service.temperature.unwrap_or(0.8));
    Ok(Ok(app.prepare(read.asked)?))
}

/// Sends an answer as one line per event.
struct Streamer {
    app: Arc<App>,
    is_chat: bool,
    /// Identifier of the answer, which is part of the identifiers of its calls.
    id: String,
    /// Number of calls so far.
    calls: usize,
    /// The tokens of prompt and answer so far, for `context`.
    context: Option<Vec<TokenId>>,
    /// Log-probabilities of tokens that no line has yet.
    logprobs: Vec<Value>,
    _open: OpenRequest,
}

impl Streamer {
    async fn run(mut self, mut answer: Answer, out: &Lines) {
        let mut reader = answer.prepared.reader(0);
        let is_raw = answer.prepared.endpoint != Endpoint::Chat;
        let (mut choice, mut parts, mut first) = (Choice::default(), Vec::new(), None);
        loop {
            let Some(event) = out.next(&mut answer.events).await else { return };
            first.get_or_insert_with(|| answer.began.elapsed());
            let is_end = match choice.next(event).map_err(ApiError::from) {
                Ok(is_end) => is_end,
                Err(error) => return send(out, &json!({ "error": error.message })),
            };
            self.context.iter_mut().for_each(|context| context.extend(&choice.tokens));
            self.logprobs.extend(choice.logprobs.iter().map(logprobs::chat));
            let text = &choice.text;
            if is_raw {
                parts.extend((!text.is_empty()).then(|| Part::Content(text.into())));
            } else {
                reader.push(text, &mut parts);
                if is_end {
                    reader.finish(&mut parts, choice.is_unfinished());
                }
            }
            for part in parts.drain(..) {
                send(out, &self.line(vec![part], None));
            }
            if is_end {
                let end = self.end(&answer, &choice, first);
                return send(out, &self.line(Vec::new(), Some(end)));
            }
        }
    }

    async fn whole(&mut self, answer: Answer) -> Result<Value> {
        let Answer { prepared, mut events, prompt_tokens, began } = answer;
        let (mut choice, mut first) = (Choice::default(), None);
        while let Some(event) = events.recv().await {
            first.get_or_insert_with(|| began.elapsed());
            if choice.take(event)? {
                break;
            }
        }
        let mut parts = Vec::new();
        if prepared.endpoint == Endpoint::Chat {
            let mut reader = prepared.reader(0);
            reader.push(&choice.text, &mut parts);
            reader.finish(&mut parts, choice.is_unfinished());
        } else {
            parts.push(Part::Content(choice.text.clone()));
        }
        self.context.iter_mut().for_each(|context| context.extend(&choice.tokens));
        self.logprobs = choice.logprobs.iter().map(logprobs::chat).collect();
        let answer = Answer { prepared, events, prompt_tokens, began };
        let end = self.end(&answer, &choice, first);
        Ok(self.line(parts, Some(end)))
    }

    fn line(&mut self, parts: Vec<Part>, end: Option<End>) -> Value {
        let mut said = Said { role: "assistant", ..Said::default() };
        for part in parts {
            match part {
                Part::Content(text) => said.content += &text,
                Part::Thought(text) => said.thinking += &text,
                Part::Call(call) => said.tool_calls.push(self.call(&call)),
            }
        }
        let (message, response, thinking) = match self.is_chat {
            true => (Some(said), None, None),
            false => (None, Some(said.content), Some(said.thinking).filter(|thinking| !thinking.is_empty())),
        };
        let (model, logprobs) = (&self.app.service.name, std::mem::take(&mut self.logprobs));
        json!(Line { model, created_at: now(), message, response, thinking, logprobs, done: end.is_some(), end })
    }

    fn call(&mut self, call: &Call) -> Value {
        let index = self.calls;
        self.calls += 1;
        let arguments: Value = serde_json::from_str(&call.arguments).unwrap_or_else(|_| json!({}));
        json!({
            "id": call_id(&self.id, 0, index),
            "function": { "index": index, "name": call.name, "arguments": arguments },
        })
    }

    fn end(&self, answer: &Answer, choice: &Choice, first: Option<std::time::Duration>) -> End {
        let total = answer.began.elapsed();
        let first = first.unwrap_or(total);
        let nanos = |time: std::time::Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        End {
            context: self.context.clone(),
            done_reason: choice.end.map_or("stop", Finish::name),
            total_duration: nanos(total),
            load_duration: 0,
            prompt_eval_count: choice.prompt,
            prompt_eval_duration: nanos(first),
            eval_count: choice.answer,
            eval_duration: nanos(total.saturating_sub(first)),
        }
    }
}

fn send(out: &Lines, line: &Value) {
    out.send(Bytes::from(json_line(line) + "\n"));
}

/// A model in the answer to `/api/tags`.
#[derive(Serialize)]
struct ModelCard<'m> {
    name: &'m str,
    model: &'m str,
    modified_at: &'static str,
    size: u64,
    digest: String,
    details: Details<'m>,
}

#[derive(Clone, Debug, Serialize)]
struct Details<'m> {
    parent_model: &'static str,
    format: &'static str,
    family: &'m str,
    families: [&'m str; 1],
    parameter_size: &'m str,
    quantization_level: &'m str,
}

fn details(facts: &Facts) -> Details<'_> {
    let family = facts.family.as_str();
    Details {
        parent_model: "",
        format: "gguf",
        family,
        families: [family],
        parameter_size: &facts.size_label,
        quantization_level: &facts.quantization,
    }
}

/// `GET /api/tags`.
pub async fn tags(State(app): State<Arc<App>>) -> Json<Value> {
    Json(json!({ "models": [tag(&app.service.name, &app.service.facts)] }))
}

/// `GET /api/ps`.
pub async fn loaded(State(app): State<Arc<App>>) -> Json<Value> {
    let service = &app.service;
    Json(json!({ "models": [loaded_tag(&service.name, &service.facts, service.context)] }))
}

/// Returns the entry of a model in the answer to `/api/ps`.
pub fn loaded_tag(name: &str, facts: &Facts, context: usize) -> Value {
    let mut entry = tag(name, facts);
    entry["context_length"] = json!(context);
    entry["size_vram"] = json!(0);
    // The real time is not known in advance, because every request restarts the idle time after which the model is
    // unloaded.
    entry["expires_at"] = json!("9999-12-31T23:59:59Z");
    entry
}

/// `POST /api/pull`: a model that the server has needs no download, and the server does not download any other model.
pub async fn pull(State(app): State<Arc<App>>, request: Request<HttpBody>) -> Result<Response> {
    let check = |app: &App, body: Value| {
        let name = ["model", "name"].iter().find_map(|key| body.get(*key)?.as_str());
        let name = name.ok_or_else(|| ApiError::about("model", "model must be a text"))?;
        Ok(app.service.check_model(Some(name.trim_end_matches(":latest")))?)
    };
    app.asked(request, check).await?;
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], "{\"status\":\"success\"}\n").into_response())
}

/// Returns the entry of a model in the answer to `/api/tags`.
pub fn tag(name: &str, facts: &Facts) -> Value {
    let (size, digest) = (facts.bytes, format!("{:064x}", facts.fingerprint));
    let (modified_at, details) = ("1970-01-01T00:00:00Z", details(facts));
    json!(ModelCard { name, model: name, modified_at, size, digest, details })
}

/// `POST /api/show`.
pub async fn show(State(app): State<Arc<App>>, request: Request<HttpBody>) -> Result<Json<Value>> {
    Ok(Json(app.asked(request, shown).await?.1))
}

fn shown(app: &App, body: Value) -> Result<Value> {
    let name = body.get("model").or_else(|| body.get("name")).and_then(Value::as_str);
    let service = &app.service;
    service.check_model(name.map(|name| name.trim_end_matches(":latest")))?;
    let capabilities = service.capabilities();
    let family = &service.facts.family;
    let info = json!({
        "general.architecture": family,
        // Clients show this field as the model's name, so it has the name of the served model if the file has no base
        // name.
        "general.basename": service.facts.basename.as_deref().unwrap_or(&service.name),
        "general.parameter_count": service.facts.parameters,
        format!("{family}.context_length"): service.context,
        format!("{family}.embedding_length"): service.embedding_len,
    });
    Ok(json!({
        "license": "",
        "modelfile": format!("FROM {}\n", service.name),
        "modified_at": "1970-01-01T00:00:00Z",
        "system": "",
        "parameters": "",
        "template": service.source(),
        "details": details(&service.facts),
        "model_info": info,
        "capabilities": capabilities,
    }))
}

/// `POST /api/embed`, and `/api/embeddings` with one text.
pub async fn embed(State(app): State<Arc<App>>, request: Request<HttpBody>) -> Result<Response> {
    let began = std::time::Instant::now();
    let read = |app: &App, body: Value| {
        let mut body = object(body)?;
        let text = ["input", "prompt"].iter().find_map(|key| body.get(*key)).unwrap_or(&Value::Null);
        let is_empty = text.is_null() || text == "" || text.as_array().is_some_and(Vec::is_empty);
        if let Some(name) = body.get("model").and_then(Value::as_str) {
            body["model"] = json!(name.trim_end_matches(":latest"));
        }
        if body.get("dimensions").and_then(Value::as_i64).is_some_and(|count| count <= 0) {
            // As in Ollama, only a positive number is a limit.
            body["dimensions"] = Value::Null;
        }
        // Ollama shortens long texts unless the request forbids it, so `truncate` is true by default.
        body["truncate"] = json!(body.get("truncate").and_then(Value::as_bool).unwrap_or(true));
        // A request without a text only asks to load or unload the model, which has no effect here.
        let inputs = match is_empty {
            true => app.service.check_model(body.get("model").and_then(Value::as_str)).map(|()| None)?,
            false => Some(vectors::embedding_inputs(&app.service, &body, true)?),
        };
        Ok(inputs)
    };
    let is_old = request.uri().path().ends_with("/embeddings");
    let (open, asked) = app.asked(request, read).await?;
    let Some((inputs, format)) = asked else {
        let answer = move |app: &App| match is_old {
            true => json!({ "embedding": [] }),
            false => json!({ "model": app.service.name, "embeddings": [] }),
        };
        return app.write(&open, 0, answer).await;
    };
    let tokens = token_count(&inputs);
    let made = app.vectors(&open, inputs, None).await?;
    let took = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let bytes = made.bytes();
    let answer = move |app: &App| {
        let mut answer = vectors::embeddings(&app.service, format, &made.vectors, tokens);
        let rows = answer["data"].as_array_mut().into_iter().flatten();
        let vectors: Vec<Value> = rows.map(|row| row["embedding"].take()).collect();
        if is_old {
            return json!({ "embedding": vectors.first() });
        }
        json!({
            "model": app.service.name,
            "embeddings": vectors,
            "total_duration": took,
            "load_duration": 0,
            "prompt_eval_count": tokens,
        })
    };
    app.write(&open, bytes, answer).await
}

/// The version of Ollama whose interface the server implements. Arenite's own version is not reported, because clients
/// refuse versions that are lower than they need.
const INTERFACE: &str = "0.14.0";

/// `GET /api/version`.
pub async fn version() -> Json<Value> {
    Json(json!({ "version": INTERFACE, "arenite": env!("CARGO_PKG_VERSION") }))
}
