//! `/api/*`: Ollama's interface to the same service.

use std::sync::Arc;

use axum::Json;
use axum::body::{Body as HttpBody, Bytes};
use axum::extract::{Request, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::answer::Choice;
use super::app::{Answer, App, OpenRequest, Result, object};
use super::engine::Finish;
use super::error::ApiError;
use super::request::{Body, Stop};
use super::service::{Endpoint, Facts, Prepared};
use super::stream::Events;
use super::vectors::token_count;
use crate::chat::{Call, Part};

/// The body of `/api/chat` and `/api/generate`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Asked {
    model: Option<String>,
    messages: Vec<Value>,
    prompt: Option<String>,
    system: Option<String>,
    suffix: Option<String>,
    template: Option<String>,
    raw: bool,
    tools: Vec<Value>,
    format: Option<Value>,
    options: Options,
    stream: Option<bool>,
    think: Option<Value>,
    images: Vec<Value>,
    context: Option<Vec<Value>>,
    logprobs: Option<bool>,
}

/// Supported options. Other options that would change the answer are refused.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Options {
    num_predict: Option<i64>,
    temperature: Option<f32>,
    top_k: Option<i64>,
    top_p: Option<f32>,
    min_p: Option<f32>,
    typical_p: Option<f32>,
    seed: Option<i64>,
    stop: Option<Stop>,
    repeat_penalty: Option<f32>,
    repeat_last_n: Option<i64>,
    presence_penalty: Option<f32>,
    frequency_penalty: Option<f32>,
    #[serde(flatten)]
    others: Map<String, Value>,
}

impl Asked {
    /// Converts the request to OpenAI's format. `usual` is the command line's temperature, for a request without one.
    fn body(&self, endpoint: Endpoint, usual: Option<f32>) -> Result<Body> {
        for (name, is_given) in [
            ("suffix", self.suffix.as_ref().is_some_and(|suffix| !suffix.is_empty())),
            ("template", self.template.as_ref().is_some_and(|template| !template.is_empty())),
            ("images", !self.images.is_empty()),
            ("context", self.context.as_ref().is_some_and(|ids| !ids.is_empty())),
            ("logprobs", self.logprobs.unwrap_or(false)),
        ] {
            if is_given {
                return Err(ApiError::unsupported(name));
            }
        }
        let Options { num_predict, temperature, top_k, top_p, min_p, typical_p, seed, .. } = self.options;
        let mut messages = self.messages.iter().map(message).collect::<Result<Vec<_>>>()?;
        if let (Endpoint::Chat, Some(prompt)) = (endpoint, &self.prompt) {
            messages.extend(self.system.iter().map(|system| json!({ "role": "system", "content": system })));
            messages.push(json!({ "role": "user", "content": prompt }));
        }
        let mut others = self.options.others.clone();
        let mut effort = None;
        match &self.think {
            Some(Value::Bool(switch)) => _ = others.insert("enable_thinking".into(), json!(switch)),
            Some(Value::String(level)) => effort = Some(level.clone()),
            _ => {}
        }
        let (format, schema) = match &self.format {
            Some(Value::String(name)) if name == "json" => (Some(json!({ "type": "json_object" })), None),
            Some(schema @ Value::Object(_)) => (None, Some(schema.clone())),
            None | Some(Value::Null) => (None, None),
            Some(Value::String(name)) if name.is_empty() => (None, None),
            Some(_) => return Err(ApiError::about("format", "format must be json or a schema")),
        };
        Ok(Body {
            messages: Some(messages),
            prompt: self.prompt.clone().filter(|_| endpoint != Endpoint::Chat).map(Value::String),
            model: self.model.as_deref().map(|name| name.trim_end_matches(":latest").to_string()),
            // In Ollama, only a positive number is a limit.
            max_tokens: num_predict.filter(|limit| *limit > 0),
            temperature: temperature.or(usual).or(Some(0.8)),
            top_k,
            top_p,
            min_p,
            typical_p,
            seed,
            stop: self.options.stop.clone(),
            repeat_penalty: self.options.repeat_penalty,
            repeat_last_n: self.options.repeat_last_n,
            presence_penalty: self.options.presence_penalty,
            frequency_penalty: self.options.frequency_penalty,
            response_format: format,
            json_schema: schema,
            reasoning_effort: effort,
            tools: Some(self.tools.clone()).filter(|tools| !tools.is_empty()),
            others,
            ..Body::default()
        })
    }
}

/// Converts a message: Ollama's calls have no type or identifier, and its thoughts have another field name.
fn message(message: &Value) -> Result<Value> {
    let mut message = message.clone();
    let has_images = message.get("images").and_then(Value::as_array).is_some_and(|images| !images.is_empty());
    if has_images {
        return Err(ApiError::unsupported("images"));
    }
    if let Some(thinking) = message.get("thinking").cloned() {
        message["reasoning_content"] = thinking;
    }
    if let Some(name) = message.get("tool_name").cloned() {
        message["name"] = name;
    }
    for (index, call) in message.get_mut("tool_calls").and_then(Value::as_array_mut).into_iter().flatten().enumerate() {
        if call.get("id").is_none() && call.is_object() {
            call["id"] = json!(format!("call{index:05}"));
            call["type"] = json!("function");
        }
    }
    Ok(message)
}

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

/// The fields that only the last line of an answer has. Durations are in nanoseconds.
#[derive(Serialize)]
struct End {
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

fn call(call: &Call) -> Value {
    let arguments: Value = serde_json::from_str(&call.arguments).unwrap_or_else(|_| json!({}));
    json!({ "function": { "name": call.name, "arguments": arguments } })
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
    let (open, prepared) = app.asked(request, move |app, body| prepared(app, body, is_chat)).await?;
    let Some(prepared) = prepared else {
        let said = || Said { role: "assistant", ..Said::default() };
        let (message, response) = if is_chat { (Some(said()), None) } else { (None, Some(String::new())) };
        let line = Line {
            model: &app.service.name,
            created_at: now(),
            message,
            response,
            thinking: None,
            done: true,
            end: None,
        };
        let mut line = json!(line);
        line["done_reason"] = json!("load");
        return Ok(Json(line).into_response());
    };
    let answer = app.begin(&open, prepared)?;
    let streamer = Streamer { app, is_chat, _open: open };
    if !answer.prepared.stream {
        return Ok(Json(streamer.whole(answer).await?).into_response());
    }
    let (out, lines) = Events::new();
    tokio::spawn(async move { streamer.run(answer, &out).await });
    let body = HttpBody::from_stream(lines);
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], body).into_response())
}

type Lines = Events<Bytes>;

/// Returns the prepared request, or `None` for an empty one, which only asks to load the model.
fn prepared(app: &App, body: Value, is_chat: bool) -> Result<Option<Prepared>> {
    let asked: Asked =
        serde_json::from_value(body).map_err(|error| ApiError::invalid(format!("the body is invalid: {error}")))?;
    let is_empty = if is_chat { asked.messages.is_empty() } else { asked.prompt.as_deref().is_none_or(str::is_empty) };
    let usual = app.service.temperature;
    if is_empty {
        app.service.check_model(asked.body(Endpoint::Chat, usual)?.model.as_deref())?;
        return Ok(None);
    }
    let endpoint = if asked.raw { Endpoint::Completions } else { Endpoint::Chat };
    let mut prepared = app.prepare(endpoint, &asked.body(endpoint, usual)?)?;
    prepared.stream = asked.stream != Some(false);
    Ok(Some(prepared))
}

/// Sends an answer as one line per event.
struct Streamer {
    app: Arc<App>,
    is_chat: bool,
    _open: OpenRequest,
}

impl Streamer {
    async fn run(self, mut answer: Answer, out: &Lines) {
        let mut reader = answer.prepared.reader(0);
        let is_raw = answer.prepared.endpoint != Endpoint::Chat;
        let (mut choice, mut parts, mut first) = (Choice::default(), Vec::new(), None);
        loop {
            let Some(event) = out.next(&mut answer.events).await else { return };
            first.get_or_insert_with(|| answer.began.elapsed());
            let is_end = match choice.next(event) {
                Ok(is_end) => is_end,
                Err(error) => return send(out, &json!({ "error": error.message })),
            };
            let text = &choice.text;
            if is_raw {
                parts.extend((!text.is_empty()).then(|| Part::Content(text.into())));
            } else {
                reader.push(text, &mut parts);
                if is_end {
                    reader.finish(&mut parts, choice.is_cut());
                }
            }
            for part in parts.drain(..) {
                send(out, &self.line(vec![part], None));
            }
            if is_end {
                return send(out, &self.line(Vec::new(), Some(end(&answer, &choice, first))));
            }
        }
    }

    async fn whole(&self, answer: Answer) -> Result<Value> {
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
            reader.finish(&mut parts, choice.is_cut());
        } else {
            parts.push(Part::Content(choice.text.clone()));
        }
        let answer = Answer { prepared, events, prompt_tokens, began };
        Ok(self.line(parts, Some(end(&answer, &choice, first))))
    }

    fn line(&self, parts: Vec<Part>, end: Option<End>) -> Value {
        let mut said = Said { role: "assistant", ..Said::default() };
        for part in parts {
            match part {
                Part::Content(text) => said.content += &text,
                Part::Thought(text) => said.thinking += &text,
                Part::Call(made) => said.tool_calls.push(call(&made)),
            }
        }
        let (message, response, thinking) = match self.is_chat {
            true => (Some(said), None, None),
            false => (None, Some(said.content), Some(said.thinking).filter(|thinking| !thinking.is_empty())),
        };
        let model = &self.app.service.name;
        json!(Line { model, created_at: now(), message, response, thinking, done: end.is_some(), end })
    }
}

fn end(answer: &Answer, choice: &Choice, first: Option<std::time::Duration>) -> End {
    let total = answer.began.elapsed();
    let first = first.unwrap_or(total);
    let nanos = |time: std::time::Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    End {
        done_reason: choice.end.map_or("stop", Finish::name),
        total_duration: nanos(total),
        load_duration: 0,
        prompt_eval_count: choice.prompt,
        prompt_eval_duration: nanos(first),
        eval_count: choice.answer,
        eval_duration: nanos(total.saturating_sub(first)),
    }
}

fn send(out: &Lines, line: &Value) {
    out.send(Bytes::from(format!("{line}\n")));
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

/// `GET /api/tags` and `/api/ps`.
pub async fn tags(State(app): State<Arc<App>>) -> Json<Value> {
    Json(json!({ "models": [tag(&app.service.name, &app.service.facts)] }))
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
    let mut capabilities = Vec::new();
    if service.makes_text {
        capabilities.extend(["completion", "tools"]);
        if service.style.thinks() {
            capabilities.push("thinking");
        }
        if service.infill.is_some() {
            capabilities.push("insert");
        }
    }
    if service.makes_vectors {
        capabilities.push("embedding");
    }
    let family = &service.facts.family;
    let info = json!({
        "general.architecture": family,
        format!("{family}.context_length"): service.context,
        format!("{family}.embedding_length"): service.embedding_len,
    });
    Ok(json!({
        "modelfile": format!("FROM {}\n", service.name),
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
        let is_old = body.get("input").is_none();
        if is_old {
            body["input"] = body.get("prompt").cloned().unwrap_or_default();
        }
        if let Some(name) = body.get("model").and_then(Value::as_str) {
            body["model"] = json!(name.trim_end_matches(":latest"));
        }
        // Ollama cuts long texts unless the request forbids it.
        body["truncate"] = json!(body.get("truncate").and_then(Value::as_bool).unwrap_or(true));
        let inputs = app.service.embedding_inputs(&body)?;
        Ok((inputs, is_old, json!({ "dimensions": body["dimensions"] })))
    };
    let (open, (inputs, is_old, body)) = app.asked(request, read).await?;
    let tokens = token_count(&inputs);
    let made = app.vectors(&open, inputs, &app.service.lora.usual()).await?;
    let took = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let bytes = made.bytes();
    let answer = move |app: &App| {
        let mut answer = app.service.embeddings(&body, &made.vectors, tokens);
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

/// `GET /api/version`.
pub async fn version() -> Json<Value> {
    Json(json!({ "version": env!("CARGO_PKG_VERSION") }))
}
