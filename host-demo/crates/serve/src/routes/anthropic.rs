//! `/v1/messages`: chats in Anthropic's format, with streaming, tools, thinking and token counts.

use std::sync::Arc;

use axum::Json;
use axum::body::Body as HttpBody;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Value, json};

use crate::app::{Answer, App, OpenRequest, Ready, whole};
use crate::faces;
use crate::http::error::{ApiError, Interface, Result};
use crate::routes::answer::{call_id, with_warning};
use crate::routes::stream::{Events, channel, named};
use arenite_chat::{Call, Part};
use arenite_run::service::{Choice, by_chance};

#[derive(Clone, Copy, Debug, Serialize)]
struct Usage {
    input_tokens: usize,
    output_tokens: usize,
    cache_creation_input_tokens: usize,
    cache_read_input_tokens: usize,
}

impl Usage {
    fn of(choice: &Choice) -> Self {
        Self {
            input_tokens: choice.prompt - choice.cached.min(choice.prompt),
            output_tokens: choice.answer,
            cache_creation_input_tokens: 0,
            cache_read_input_tokens: choice.cached,
        }
    }
}

/// An answer.
#[derive(Serialize)]
struct Message<'m> {
    id: &'m str,
    #[serde(rename = "type")]
    kind: &'static str,
    role: &'static str,
    model: &'m str,
    content: Vec<Value>,
    stop_reason: Option<&'static str>,
    stop_sequence: Option<&'m str>,
    usage: Usage,
}

fn stop_reason(choice: &Choice, stops: &[String], has_calls: bool) -> (&'static str, Option<String>) {
    let stop = choice.stop.clone().filter(|stop| stops.contains(stop));
    match () {
        () if choice.is_cut() => ("max_tokens", None),
        () if has_calls => ("tool_use", None),
        () if stop.is_some() => ("stop_sequence", stop),
        () => ("end_turn", None),
    }
}

fn tool_use(call: &Call, id: &str, index: usize) -> Value {
    let input: Value = serde_json::from_str(&call.arguments).unwrap_or_else(|_| json!({}));
    json!({ "type": "tool_use", "id": call_id(id, 0, index).replacen("call", "toolu", 1), "name": call.name, "input": input })
}

/// Returns the prepared request, and its stop strings.
fn prepared(app: &App, body: Value) -> Result<(Ready, Vec<String>)> {
    let asked = faces::anthropic::messages(&body)?;
    let stops = asked.request.stops.clone();
    Ok((app.prepare(asked)?, stops))
}

/// `POST /v1/messages`.
pub async fn messages(State(app): State<Arc<App>>, request: Request<HttpBody>) -> Result<Response> {
    let (open, (mut prepared, stops)) = app.asked(request, prepared).await?;
    let warning = prepared.warning.take();
    let answer = app.begin(&open, prepared)?;
    let id = format!("msg_{:016x}", by_chance());
    if answer.prepared.reply.stream {
        let (out, response) = channel();
        let streamer = Streamer { app, out, id, stops, index: 0, open: None, _open: open };
        tokio::spawn(streamer.run(answer));
        return Ok(with_warning(response, warning));
    }
    let mut choice = whole(answer.events).await?;
    let parts = answer.prepared.parts(0, &mut choice);
    let mut content = Vec::new();
    if !parts.reasoning.is_empty() {
        content.push(json!({ "type": "thinking", "thinking": parts.reasoning, "signature": "" }));
    }
    if !parts.content.is_empty() || parts.calls.is_empty() && !answer.prepared.may_end_in_call(&choice) {
        content.push(json!({ "type": "text", "text": parts.content }));
    }
    content.extend(parts.calls.iter().enumerate().map(|(index, call)| tool_use(call, &id, index)));
    let (reason, stop) = stop_reason(&choice, &stops, !parts.calls.is_empty());
    let message = Message {
        id: &id,
        kind: "message",
        role: "assistant",
        model: &app.service.name,
        content,
        stop_reason: Some(reason),
        stop_sequence: stop.as_deref(),
        usage: Usage::of(&choice),
    };
    Ok(with_warning(Json(json!(message)).into_response(), warning))
}

/// `POST /v1/messages/count_tokens`.
pub async fn count_tokens(State(app): State<Arc<App>>, request: Request<HttpBody>) -> Result<Json<Value>> {
    let read = |app: &App, body: Value| app.count(faces::anthropic::messages(&body)?);
    let (_open, prepared) = app.asked(request, read).await?;
    let tokens = prepared.jobs.first().map_or(0, |(prompt, ..)| prompt.len());
    Ok(Json(json!({ "input_tokens": tokens })))
}

/// Sends an answer in blocks while it is generated.
struct Streamer {
    app: Arc<App>,
    out: Events,
    id: String,
    stops: Vec<String>,
    /// Number of closed blocks.
    index: usize,
    /// The type of the open block.
    open: Option<&'static str>,
    _open: OpenRequest,
}

impl Streamer {
    async fn run(mut self, mut answer: Answer) {
        self.start(answer.prompt_tokens);
        let mut splitter = answer.prepared.splitter(0);
        let (mut choice, mut parts, mut calls) = (Choice::default(), Vec::new(), 0);
        loop {
            let Some(event) = self.out.next(&mut answer.events).await else { return };
            let is_end = match choice.next(event).map_err(ApiError::from) {
                Ok(is_end) => is_end,
                Err(error) => return self.send("error", error.body_of(Interface::Anthropic)),
            };
            splitter.next(&mut choice, is_end, &mut parts);
            for part in parts.drain(..) {
                self.part(part, &mut calls);
            }
            if is_end {
                break;
            }
        }
        if self.index == 0 && self.open.is_none() && !answer.prepared.may_end_in_call(&choice) {
            self.begin("text", json!({ "type": "text", "text": "" }));
        }
        self.close();
        let (reason, stop) = stop_reason(&choice, &self.stops, calls > 0);
        let delta = json!({ "stop_reason": reason, "stop_sequence": stop });
        self.send("message_delta", json!({ "delta": delta, "usage": Usage::of(&choice) }));
        self.send("message_stop", json!({}));
    }

    fn start(&self, prompt_tokens: usize) {
        let usage = Usage {
            input_tokens: prompt_tokens,
            output_tokens: 0,
            cache_creation_input_tokens: 0,
            cache_read_input_tokens: 0,
        };
        let message = Message {
            id: &self.id,
            kind: "message",
            role: "assistant",
            model: &self.app.service.name,
            content: Vec::new(),
            stop_reason: None,
            stop_sequence: None,
            usage,
        };
        self.send("message_start", json!({ "message": message }));
        self.send("ping", json!({}));
    }

    fn part(&mut self, part: Part, calls: &mut usize) {
        match part {
            Part::Content(text) => {
                self.begin("text", json!({ "type": "text", "text": "" }));
                self.delta(json!({ "type": "text_delta", "text": text }));
            }
            Part::Thought(text) => {
                self.begin("thinking", json!({ "type": "thinking", "thinking": "", "signature": "" }));
                self.delta(json!({ "type": "thinking_delta", "thinking": text }));
            }
            Part::Call(call) => {
                self.close();
                let mut block = tool_use(&call, &self.id, *calls);
                *calls += 1;
                block["input"] = json!({});
                self.begin("tool_use", block);
                self.delta(json!({ "type": "input_json_delta", "partial_json": call.arguments }));
                self.close();
            }
        }
    }

    /// Begins a block, unless a block of this type is open.
    fn begin(&mut self, kind: &'static str, block: Value) {
        if self.open == Some(kind) {
            return;
        }
        self.close();
        self.open = Some(kind);
        self.send("content_block_start", json!({ "index": self.index, "content_block": block }));
    }

    fn delta(&self, delta: Value) {
        self.send("content_block_delta", json!({ "index": self.index, "delta": delta }));
    }

    fn close(&mut self) {
        let Some(kind) = self.open.take() else { return };
        if kind == "thinking" {
            self.delta(json!({ "type": "signature_delta", "signature": "" }));
        }
        self.send("content_block_stop", json!({ "index": self.index }));
        self.index += 1;
    }

    fn send(&self, kind: &str, mut event: Value) {
        event["type"] = json!(kind);
        self.out.send(named(kind, &event));
    }
}
