//! `/v1/responses`: OpenAI's Responses API. An answer is a list of items. Unless `store` is false, the server keeps
//! these items for a while, because clients then name an item instead of repeating it.

use std::sync::Arc;

use axum::Json;
use axum::body::Body as HttpBody;
use axum::extract::{Request, State};
use axum::response::Response;
use serde_json::{Map, Value, json};

use crate::app::{App, OpenRequest, Ready, json, whole};
use crate::faces;
use crate::http::error::{ApiError, Result};
use crate::http::memory::Inbox;
use crate::routes::answer::{ResponseMeta, call_id, with_warning};
use crate::routes::logprobs;
use crate::routes::stream::{Events, channel, named};
use arenite_chat::{Call, Part};
use arenite_run::service::Choice;
use arenite_run::service::Service;
use arenite_run::service::by_chance;

pub async fn responses(State(app): State<Arc<App>>, request: Request<HttpBody>) -> Result<Response> {
    let read = |app: &App, body: &Value| Ok((app.prepare(faces::responses::response(body)?)?, shown(body)));
    let (open, (mut prepared, asked)) = read_by(&app, request, read).await?;
    let meta = ResponseMeta::new(format!("resp_{:016x}", by_chance()));
    let Some(events) = app.submit(&open, &mut prepared)?.pop() else {
        return Err(ApiError::invalid("n must be 1"));
    };
    let warning = prepared.warning.take();
    if !prepared.reply.stream {
        let mut choice = whole(events).await?;
        let bytes = asked.fields.len() + choice.bytes();
        let client = app.scope_of(&open);
        let answer = move |app: &App| {
            let items = items(&prepared, &mut choice, &meta);
            if asked.is_stored {
                app.items.keep(client, &items);
            }
            response(&app.service, &asked, &meta, &items, Some(&choice))
        };
        return Ok(with_warning(app.write(&open, bytes, answer).await?, warning));
    }
    let (out, response) = channel();
    let streamer = Streamer { app, asked, prepared, meta, out, sent: 0, open };
    tokio::spawn(streamer.run(events));
    Ok(with_warning(response, warning))
}

/// `POST /v1/responses/input_tokens`: the number of tokens of a request's prompt.
pub async fn input_tokens(State(app): State<Arc<App>>, request: Request<HttpBody>) -> Result<Json<Value>> {
    let read = |app: &App, body: &Value| app.count(faces::responses::response(body)?);
    let (_open, prepared) = read_by(&app, request, read).await?;
    let tokens = prepared.jobs.first().map_or(0, |(prompt, ..)| prompt.len());
    Ok(Json(json!({ "object": "response.input_tokens", "input_tokens": tokens })))
}

/// Receives a request, and processes the request on a reader thread, together with the items that it names.
async fn read_by<T: Send + 'static>(
    app: &Arc<App>,
    request: Request<HttpBody>,
    read: impl FnOnce(&App, &Value) -> Result<T> + Send + 'static,
) -> Result<(OpenRequest, T)> {
    let (open, body) = app.receive(request).await?;
    let client = app.scope_of(&open);
    let work = move |app: &App| {
        let mut body = json(&body)?;
        app.items.resolve(client, &mut body);
        // In this interface, the field of the conversation is called `input`, so errors must use this name.
        read(app, &body).map_err(|error| match error.param.as_deref() {
            Some("messages") => ApiError { param: Some("input".into()), ..error },
            _ => error,
        })
    };
    let done = app.aside(&open, work).await?;
    Ok((open, done))
}

/// The parts of a request that its answer needs.
struct Shown {
    /// The fields of the request that the answer repeats. They are stored as JSON text, which takes less memory than
    /// values.
    fields: String,
    /// True if later requests may name the answer's items.
    is_stored: bool,
}

/// Returns the fields of the request that the answer repeats. Very long fields are left out, because a streamed answer
/// contains these fields several times.
fn shown(asked: &Value) -> Shown {
    const MOST_BYTES: usize = 64 << 10;
    const KEYS: [&str; 9] = [
        "instructions",
        "max_output_tokens",
        "metadata",
        "parallel_tool_calls",
        "temperature",
        "text",
        "tool_choice",
        "tools",
        "top_p",
    ];
    let fields = KEYS.iter().map(|key| (key.to_string(), asked[*key].clone()));
    let fields = fields.filter(|(_, value)| value.to_string().len() <= MOST_BYTES);
    Shown { fields: Value::from(Map::from_iter(fields)).to_string(), is_stored: asked["store"] != false }
}

/// Returns the answer to the request `body`. The items of this answer are not kept.
pub fn whole_response(
    service: &Service,
    body: &Value,
    prepared: &Ready,
    choice: &mut Choice,
    meta: &ResponseMeta,
) -> Value {
    let items = items(prepared, choice, meta);
    response(service, &Shown { is_stored: false, ..shown(body) }, meta, &items, Some(choice))
}

/// Returns the items that an answer consists of: a thought, a message, and function calls.
fn items(prepared: &Ready, choice: &mut Choice, meta: &ResponseMeta) -> Vec<Value> {
    let parts = prepared.parts(0, choice);
    let id = meta.id.trim_start_matches("resp_");
    let mut items = Vec::new();
    if !parts.reasoning.is_empty() {
        items.push(thought(id, 0, &parts.reasoning));
    }
    if !parts.content.is_empty() || parts.calls.is_empty() && !prepared.may_end_in_call(choice) {
        let tokens = choice.logprobs.iter().zip(&parts.is_thought).filter(|(_, is_thought)| !**is_thought);
        let logprobs = tokens.map(|(token, _)| logprobs::chat(token)).collect();
        items.push(message(id, items.len(), &parts.content, status(choice), logprobs));
    }
    items.extend(parts.calls.iter().enumerate().map(|(index, call)| function_call(prepared, id, index, call)));
    items
}

fn function_call(prepared: &Ready, id: &str, index: usize, call: &Call) -> Value {
    let found = prepared.reply.namespaces.get(&call.name);
    let mut item = json!({
        "id": format!("fc_{id}_{index}"),
        "type": "function_call",
        "status": "completed",
        "call_id": call_id(id, 0, index),
        "name": found.map_or(&call.name, |(_, name)| name),
        "arguments": call.arguments,
    });
    if let Some((namespace, _)) = found {
        item["namespace"] = json!(namespace);
    }
    item
}

fn status(choice: &Choice) -> &'static str {
    if choice.is_cut() { "incomplete" } else { "completed" }
}

/// Returns the output item of a thought, which is item `index` of the answer `id`.
fn thought(id: &str, index: usize, text: &str) -> Value {
    let content = json!([{ "type": "reasoning_text", "text": text }]);
    json!({ "id": format!("rs_{id}_{index}"), "type": "reasoning", "summary": [], "content": content })
}

fn message(id: &str, index: usize, text: &str, status: &str, logprobs: Vec<Value>) -> Value {
    let (id, content) = (format!("msg_{id}_{index}"), json!([part(text, logprobs)]));
    json!({ "id": id, "type": "message", "role": "assistant", "status": status, "content": content })
}

fn part(text: &str, logprobs: Vec<Value>) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": logprobs })
}

/// Returns the response object. `choice` is `None` if the answer has just begun.
fn response(service: &Service, shown: &Shown, meta: &ResponseMeta, items: &[Value], choice: Option<&Choice>) -> Value {
    let asked: Value = serde_json::from_str(&shown.fields).unwrap_or_default();
    let given = |key: &str, default: Value| match &asked[key] {
        Value::Null => default,
        value => value.clone(),
    };
    let is_cut = choice.is_some_and(Choice::is_cut);
    let usage = choice.map(|choice| {
        json!({
            "input_tokens": choice.prompt,
            "input_tokens_details": { "cached_tokens": choice.cached },
            "output_tokens": choice.answer,
            "output_tokens_details": { "reasoning_tokens": choice.thought },
            "total_tokens": choice.prompt + choice.answer,
        })
    });
    json!({
        "id": meta.id,
        "object": "response",
        "created_at": meta.created,
        "status": choice.map_or("in_progress", status),
        "error": null,
        "incomplete_details": if is_cut { json!({ "reason": "max_output_tokens" }) } else { Value::Null },
        "instructions": asked["instructions"],
        "max_output_tokens": asked["max_output_tokens"],
        "metadata": given("metadata", json!({})),
        "model": service.name,
        "output": items,
        "parallel_tool_calls": given("parallel_tool_calls", json!(true)),
        "previous_response_id": null,
        "store": shown.is_stored,
        "temperature": asked["temperature"],
        "text": given("text", json!({ "format": { "type": "text" } })),
        "tool_choice": given("tool_choice", json!("auto")),
        "tools": given("tools", json!([])),
        "top_p": asked["top_p"],
        "usage": usage,
    })
}

/// Sends an answer while it is generated.
struct Streamer {
    app: Arc<App>,
    asked: Shown,
    prepared: Ready,
    meta: ResponseMeta,
    out: Events,
    /// Number of events that were sent. This is also the sequence number of the next event.
    sent: usize,
    open: OpenRequest,
}

/// The finished items of an answer, and the open item.
#[derive(Default)]
struct Progress {
    items: Vec<Value>,
    /// The text of the open item.
    text: String,
    /// The log-probabilities of all tokens of the open item. `unsent` has those that were not sent yet.
    logprobs: Vec<Value>,
    unsent: Vec<Value>,
    kind: &'static str,
    calls: usize,
}

impl Streamer {
    async fn run(mut self, mut events: Inbox) {
        for kind in ["response.created", "response.in_progress"] {
            self.response(kind, &[], None);
        }
        let mut splitter = self.prepared.splitter(0);
        let (mut choice, mut parts, mut progress) = (Choice::default(), Vec::new(), Progress::default());
        loop {
            let Some(event) = self.out.next(&mut events).await else { return };
            let is_end = match choice.next(event).map_err(ApiError::from) {
                Ok(is_end) => is_end,
                Err(error) => {
                    let message = error.body()["error"]["message"].clone();
                    return self.send("error", json!({ "code": "server_error", "message": message, "param": null }));
                }
            };
            if !splitter.next(&mut choice, is_end, &mut parts) {
                progress.unsent.extend(choice.logprobs.iter().map(logprobs::chat));
            }
            for part in parts.drain(..) {
                self.part(&mut progress, part);
            }
            if is_end {
                break;
            }
        }
        if progress.items.is_empty() && progress.kind.is_empty() && !self.prepared.may_end_in_call(&choice) {
            self.open(&mut progress, "message");
        }
        self.close(&mut progress, status(&choice));
        if self.asked.is_stored {
            self.app.items.keep(self.app.scope_of(&self.open), &progress.items);
        }
        let kind = if status(&choice) == "incomplete" { "response.incomplete" } else { "response.completed" };
        self.response(kind, &progress.items, Some(&choice));
    }

    fn id(&self) -> String {
        self.meta.id.trim_start_matches("resp_").to_string()
    }

    /// Sends the next part of an answer.
    fn part(&mut self, progress: &mut Progress, part: Part) {
        let index = |progress: &Progress| progress.items.len();
        match part {
            Part::Content(text) => {
                self.open(progress, "message");
                progress.text += &text;
                let id = format!("msg_{}_{}", self.id(), index(progress));
                let place = json!({ "item_id": id, "output_index": index(progress), "content_index": 0 });
                let logprobs = std::mem::take(&mut progress.unsent);
                progress.logprobs.extend(logprobs.iter().cloned());
                self.send("response.output_text.delta", with(place, json!({ "delta": text, "logprobs": logprobs })));
            }
            Part::Thought(text) => {
                self.open(progress, "reasoning");
                progress.text += &text;
                let id = format!("rs_{}_{}", self.id(), index(progress));
                let place = json!({ "item_id": id, "output_index": index(progress), "content_index": 0 });
                self.send("response.reasoning_text.delta", with(place, json!({ "delta": text })));
            }
            Part::Call(call) => {
                self.close(progress, "completed");
                let item = function_call(&self.prepared, &self.id(), progress.calls, &call);
                progress.calls += 1;
                self.begin(index(progress), &item);
                self.end(index(progress), &item);
                progress.items.push(item);
            }
        }
    }

    /// Begins an item of the type `kind`. If an item of another type is open, ends that item first. Does nothing if an
    /// item of this type is already open.
    fn open(&mut self, progress: &mut Progress, kind: &'static str) {
        if progress.kind == kind {
            return;
        }
        self.close(progress, "completed");
        progress.kind = kind;
        let (id, index) = (self.id(), progress.items.len());
        let item = match kind {
            "message" => message(&id, index, "", "in_progress", Vec::new()),
            _ => thought(&id, index, ""),
        };
        self.begin(index, &item);
    }

    /// Ends the open item.
    fn close(&mut self, progress: &mut Progress, status: &str) {
        let (id, index, text) = (self.id(), progress.items.len(), std::mem::take(&mut progress.text));
        let item = match std::mem::take(&mut progress.kind) {
            "" => return,
            "message" => {
                let mut logprobs = std::mem::take(&mut progress.logprobs);
                logprobs.append(&mut progress.unsent);
                message(&id, index, &text, status, logprobs)
            }
            _ => thought(&id, index, &text),
        };
        self.end(index, &item);
        progress.items.push(item);
    }

    fn begin(&mut self, index: usize, item: &Value) {
        let mut begun = item.clone();
        begun["status"] = json!("in_progress");
        let is_message = item["type"] == "message";
        if is_message {
            begun["content"] = json!([]);
        } else if item["type"] == "function_call" {
            begun["arguments"] = json!("");
        } else {
            begun["content"] = json!([]);
        }
        self.send("response.output_item.added", json!({ "output_index": index, "item": begun }));
        if is_message {
            let place = json!({ "item_id": item["id"], "output_index": index, "content_index": 0 });
            self.send("response.content_part.added", with(place, json!({ "part": part("", Vec::new()) })));
        }
    }

    fn end(&mut self, index: usize, item: &Value) {
        let place = json!({ "item_id": item["id"], "output_index": index });
        match item["type"].as_str() {
            Some("message") => {
                let place = with(place, json!({ "content_index": 0 }));
                let part = &item["content"][0];
                let text = json!({ "text": part["text"], "logprobs": part["logprobs"] });
                self.send("response.output_text.done", with(place.clone(), text));
                self.send("response.content_part.done", with(place, json!({ "part": part })));
            }
            Some("function_call") => {
                let arguments = &item["arguments"];
                let delta = with(place.clone(), json!({ "delta": arguments }));
                self.send("response.function_call_arguments.delta", delta);
                let done = with(place, json!({ "arguments": arguments, "name": item["name"] }));
                self.send("response.function_call_arguments.done", done);
            }
            _ => {
                let text = &item["content"][0]["text"];
                let done = with(place, json!({ "content_index": 0, "text": text }));
                self.send("response.reasoning_text.done", done);
            }
        }
        self.send("response.output_item.done", json!({ "output_index": index, "item": item }));
    }

    fn response(&mut self, kind: &str, items: &[Value], choice: Option<&Choice>) {
        let response = response(&self.app.service, &self.asked, &self.meta, items, choice);
        self.send(kind, json!({ "response": response }));
    }

    fn send(&mut self, kind: &str, event: Value) {
        let event = with(event, json!({ "type": kind, "sequence_number": self.sent }));
        self.sent += 1;
        self.out.send(named(kind, &event));
    }
}

/// Merges two objects.
fn with(mut object: Value, more: Value) -> Value {
    if let (Some(object), Value::Object(more)) = (object.as_object_mut(), more) {
        object.extend(more);
    }
    object
}
