//! `/v1/responses`: OpenAI's newer form of a chat, with text and functions. What is asked is put as a chat; what the
//! model answers becomes a list of items. Nothing is kept between two requests.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Json;
use axum::body::Body as HttpBody;
use axum::extract::{Request, State};
use axum::response::sse::Event as Sse;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};
use tokio::sync::mpsc::UnboundedReceiver;

use super::app::{App, Open, Result, json_body, whole};
use super::engine::{Event, Finish};
use super::error::ApiError;
use super::request::Body;
use super::service::{Choice, Endpoint, Frame, Prepared, Service, without_tags};
use super::stream::{Pieces, channel};
use crate::chat::{Part, Thoughts};

pub async fn responses(State(app): State<Arc<App>>, request: Request<HttpBody>) -> Result<Response> {
    let seat = request.extensions().get().cloned();
    let asked = json_body(request).await?;
    let open = Open::new(&app, seat)?;
    let body = Body::of(to_chat(&asked)?)?;
    let mut prepared = app.service.prepare(Endpoint::Chat, &body, super::by_chance())?;
    let frame = Frame::new(format!("resp_{:016x}", super::by_chance()));
    let Some(events) = app.submit(&mut prepared)?.pop() else {
        return Err(ApiError::invalid("n must be 1"));
    };
    if !prepared.stream {
        let choice = whole(events).await?;
        let items = items(&prepared, &choice, &frame);
        return Ok(Json(response(&app.service, &asked, &frame, &items, Some(&choice))).into_response());
    }
    let (out, response) = channel();
    let streamer = Streamer { app, asked, prepared, frame, out, sent: 0, _open: open };
    tokio::spawn(streamer.run(events));
    Ok(response)
}

/// The request as one for a chat.
pub fn to_chat(asked: &Value) -> Result<Value> {
    for key in ["previous_response_id", "conversation"] {
        if !asked[key].is_null() {
            return Err(ApiError::invalid(format!("{key}: nothing is kept here: send the conversation as input")));
        }
    }
    let mut chat = Map::new();
    for key in ["model", "stream", "temperature", "top_p", "seed"] {
        chat.insert(key.into(), asked[key].clone());
    }
    chat.insert("max_tokens".into(), asked["max_output_tokens"].clone());
    chat.insert("messages".into(), messages(asked)?.into());
    let tools = asked["tools"].as_array().map_or(&[][..], Vec::as_slice);
    if !tools.is_empty() {
        chat.insert("tools".into(), tools.iter().map(tool).collect::<Result<_>>()?);
        let choice = &asked["tool_choice"];
        let named = json!({ "function": { "name": choice["name"] } });
        chat.insert("tool_choice".into(), if choice.is_object() { named } else { choice.clone() });
    }
    let format = &asked["text"]["format"];
    if !format.is_null() {
        chat.insert("response_format".into(), json!({ "type": format["type"], "json_schema": format }));
    }
    Ok(chat.into())
}

/// A function as chats have it.
fn tool(tool: &Value) -> Result<Value> {
    match tool["type"].as_str() {
        Some("function") => {
            let keys = ["name", "description", "parameters"].into_iter().filter(|key| !tool[*key].is_null());
            let function: Map<_, _> = keys.map(|key| (key.to_string(), tool[key].clone())).collect();
            Ok(json!({ "type": "function", "function": function }))
        }
        _ => Err(ApiError::about("tools", "only functions can be called")),
    }
}

/// Instructions and input as messages.
fn messages(asked: &Value) -> Result<Vec<Value>> {
    let mut messages = Vec::new();
    if let Some(instructions) = asked["instructions"].as_str() {
        messages.push(json!({ "role": "system", "content": instructions }));
    }
    let items = match &asked["input"] {
        Value::String(text) => return Ok([messages, vec![json!({ "role": "user", "content": text })]].concat()),
        Value::Array(items) => items,
        _ => return Err(ApiError::about("input", "input must be a text or a list of items")),
    };
    for item in items {
        match item["type"].as_str().unwrap_or("message") {
            "message" => {
                let role = if item["role"] == "developer" { json!("system") } else { item["role"].clone() };
                messages.push(json!({ "role": role, "content": item["content"] }));
            }
            "function_call" => {
                let function = json!({ "name": item["name"], "arguments": item["arguments"] });
                let call = json!({ "id": item["call_id"], "type": "function", "function": function });
                match messages.last_mut().and_then(|last| last.get_mut("tool_calls")?.as_array_mut()) {
                    Some(calls) => calls.push(call),
                    None => messages.push(json!({ "role": "assistant", "content": "", "tool_calls": [call] })),
                }
            }
            "function_call_output" => {
                let output = &item["output"];
                messages.push(json!({ "role": "tool", "tool_call_id": item["call_id"], "content": output }));
            }
            "reasoning" => {}
            other => return Err(ApiError::about("input", format!("an item of type `{other}` cannot be read"))),
        }
    }
    Ok(messages)
}

/// What an answer consists of: a thought, what is said, and calls.
fn items(prepared: &Prepared, choice: &Choice, frame: &Frame) -> Vec<Value> {
    let parts = prepared.parts(0, &choice.text);
    let id = frame.id.trim_start_matches("resp_");
    let mut items = Vec::new();
    if !parts.reasoning.is_empty() {
        items.push(thought(id, &parts.reasoning));
    }
    if !parts.content.is_empty() || parts.calls.is_empty() {
        items.push(message(id, &parts.content, status(choice)));
    }
    items.extend(parts.calls.iter().enumerate().map(|(index, call)| {
        json!({
            "id": format!("fc_{id}_{index}"),
            "type": "function_call",
            "status": "completed",
            "call_id": format!("call_{id}_{index}"),
            "name": call.name,
            "arguments": call.arguments,
        })
    }));
    items
}

fn status(choice: &Choice) -> &'static str {
    if choice.end == Some(Finish::Length) { "incomplete" } else { "completed" }
}

fn thought(id: &str, text: &str) -> Value {
    let content = json!([{ "type": "reasoning_text", "text": text }]);
    json!({ "id": format!("rs_{id}"), "type": "reasoning", "summary": [], "content": content })
}

fn message(id: &str, text: &str, status: &str) -> Value {
    let content = json!([part(text)]);
    json!({ "id": format!("msg_{id}"), "type": "message", "role": "assistant", "status": status, "content": content })
}

fn part(text: &str) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] })
}

/// The whole object; without a choice, of an answer that has just begun.
fn response(service: &Service, asked: &Value, frame: &Frame, items: &[Value], choice: Option<&Choice>) -> Value {
    let given = |key: &str, default: Value| match &asked[key] {
        Value::Null => default,
        value => value.clone(),
    };
    let is_cut = choice.is_some_and(|choice| choice.end == Some(Finish::Length));
    let usage = choice.map(|choice| {
        json!({
            "input_tokens": choice.prompt,
            "input_tokens_details": { "cached_tokens": choice.cached },
            "output_tokens": choice.answer,
            "output_tokens_details": { "reasoning_tokens": 0 },
            "total_tokens": choice.prompt + choice.answer,
        })
    });
    json!({
        "id": frame.id,
        "object": "response",
        "created_at": frame.created,
        "status": choice.map_or("in_progress", status),
        "error": null,
        "incomplete_details": if is_cut { json!({ "reason": "max_output_tokens" }) } else { Value::Null },
        "instructions": asked["instructions"],
        "max_output_tokens": asked["max_output_tokens"],
        "metadata": given("metadata", json!({})),
        "model": service.name,
        "output": items,
        "parallel_tool_calls": true,
        "previous_response_id": null,
        "store": false,
        "temperature": asked["temperature"],
        "text": given("text", json!({ "format": { "type": "text" } })),
        "tool_choice": given("tool_choice", json!("auto")),
        "tools": given("tools", json!([])),
        "top_p": asked["top_p"],
        "usage": usage,
    })
}

/// Sends an answer as it comes.
struct Streamer {
    app: Arc<App>,
    asked: Value,
    prepared: Prepared,
    frame: Frame,
    out: Pieces,
    /// Events so far: each has its number.
    sent: usize,
    _open: Open,
}

impl Streamer {
    async fn run(mut self, mut events: UnboundedReceiver<Event>) {
        for kind in ["response.created", "response.in_progress"] {
            self.response(kind, &[], None);
        }
        let mut thoughts = Thoughts::after(&self.prepared.prompts[0]);
        let (mut choice, mut thought, mut said) = (Choice::default(), String::new(), String::new());
        loop {
            // Also when nothing comes for a while, it shows that the client has left.
            let event = tokio::select! {
                event = events.recv() => event,
                () = self.out.closed() => None,
            };
            let Some(event) = event else { return };
            let before = choice.text.len();
            let is_end = match choice.take(event) {
                Ok(is_end) => is_end,
                Err(error) => {
                    let message = error.body()["error"]["message"].clone();
                    return self.send("error", json!({ "code": "server_error", "message": message, "param": null }));
                }
            };
            let mut new = String::new();
            let mut show = |part: Part<'_>| -> std::result::Result<(), Infallible> {
                match part {
                    Part::Said(text) => new += text,
                    Part::Thought(text) => thought += &without_tags(text),
                }
                Ok(())
            };
            let Ok(()) = thoughts.push(&choice.text[before..], &mut show);
            if is_end {
                let Ok(()) = thoughts.finish(&mut show);
            }
            // Calls of functions show only at the end.
            if !self.prepared.has_tools {
                self.say(&mut said, &new, thought.trim());
            }
            if is_end {
                break;
            }
        }
        let items = items(&self.prepared, &choice, &self.frame);
        for (index, item) in items.iter().enumerate() {
            // Of what has been said as it came, only the end is missing.
            match item["type"].as_str() {
                Some("message") if !said.is_empty() => self.end(index, item),
                Some("reasoning") if !said.is_empty() => {}
                _ => {
                    self.begin(index, item);
                    self.end(index, item);
                }
            }
        }
        let kind = if status(&choice) == "incomplete" { "response.incomplete" } else { "response.completed" };
        self.response(kind, &items, Some(&choice));
    }

    /// The next piece of what is said; before the first one, what was thought.
    fn say(&mut self, said: &mut String, new: &str, thought: &str) {
        let new = if said.is_empty() && !thought.is_empty() { new.trim_start() } else { new };
        if new.is_empty() {
            return;
        }
        let id = self.frame.id.trim_start_matches("resp_").to_string();
        let index = usize::from(!thought.is_empty());
        if said.is_empty() {
            if index > 0 {
                let item = self::thought(&id, thought);
                self.begin(0, &item);
                self.end(0, &item);
            }
            self.begin(index, &message(&id, "", "in_progress"));
        }
        said.push_str(new);
        let place = json!({ "item_id": format!("msg_{id}"), "output_index": index, "content_index": 0 });
        self.send("response.output_text.delta", with(place, json!({ "delta": new, "logprobs": [] })));
    }

    fn begin(&mut self, index: usize, item: &Value) {
        let mut begun = item.clone();
        begun["status"] = json!("in_progress");
        let is_message = item["type"] == "message";
        if is_message {
            begun["content"] = json!([]);
        } else if item["type"] == "function_call" {
            begun["arguments"] = json!("");
        }
        self.send("response.output_item.added", json!({ "output_index": index, "item": begun }));
        if is_message {
            let place = json!({ "item_id": item["id"], "output_index": index, "content_index": 0 });
            self.send("response.content_part.added", with(place, json!({ "part": part("") })));
        }
    }

    fn end(&mut self, index: usize, item: &Value) {
        let place = json!({ "item_id": item["id"], "output_index": index });
        match item["type"].as_str() {
            Some("message") => {
                let place = with(place, json!({ "content_index": 0 }));
                let part = &item["content"][0];
                let text = json!({ "text": part["text"], "logprobs": [] });
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
            _ => {}
        }
        self.send("response.output_item.done", json!({ "output_index": index, "item": item }));
    }

    fn response(&mut self, kind: &str, items: &[Value], choice: Option<&Choice>) {
        let response = response(&self.app.service, &self.asked, &self.frame, items, choice);
        self.send(kind, json!({ "response": response }));
    }

    fn send(&mut self, kind: &str, event: Value) {
        let event = with(event, json!({ "type": kind, "sequence_number": self.sent }));
        self.sent += 1;
        let _ = self.out.send(Ok(Sse::default().event(kind).data(event.to_string())));
    }
}

/// Both objects as one.
fn with(mut object: Value, more: Value) -> Value {
    if let (Some(object), Value::Object(more)) = (object.as_object_mut(), more) {
        object.extend(more);
    }
    object
}
