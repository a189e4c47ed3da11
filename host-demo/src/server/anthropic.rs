//! `/v1/messages`: chats in Anthropic's format, with streaming, tools, thinking and token counts.

use std::sync::Arc;

use axum::Json;
use axum::body::Body as HttpBody;
use axum::extract::{Request, State};
use axum::response::sse::Event as Sse;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::answer::{Choice, call_id};
use super::app::{Answer, App, OpenRequest, Result, whole};
use super::error::{ApiError, Interface};
use super::request::Body;
use super::service::{Endpoint, Prepared};
use super::stream::{Events, channel};
use crate::chat::{Call, Part};

/// The body of a request.
#[derive(Debug, Deserialize)]
struct Asked {
    #[serde(default)]
    model: Option<String>,
    #[serde(default)]
    max_tokens: Option<i64>,
    messages: Vec<Said>,
    #[serde(default)]
    system: Option<Content>,
    #[serde(default)]
    stop_sequences: Vec<String>,
    #[serde(default)]
    stream: bool,
    #[serde(default)]
    temperature: Option<f32>,
    #[serde(default)]
    top_p: Option<f32>,
    #[serde(default)]
    top_k: Option<i64>,
    #[serde(default)]
    tools: Vec<Tool>,
    #[serde(default)]
    tool_choice: Option<ToolChoice>,
    #[serde(default)]
    thinking: Option<Thinking>,
    #[serde(default)]
    output_config: Option<Value>,
    #[serde(default)]
    output_format: Option<Value>,
    /// All other fields, some of which are refused.
    #[serde(flatten)]
    others: Map<String, Value>,
}

#[derive(Debug, Deserialize)]
struct Said {
    role: String,
    content: Content,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Blocks(Vec<Block>),
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Block {
    Text {
        text: String,
    },
    Thinking {
        thinking: String,
    },
    RedactedThinking {},
    ToolUse {
        id: String,
        name: String,
        input: Value,
    },
    ToolResult {
        tool_use_id: String,
        content: Option<Content>,
    },
    #[serde(other)]
    Other,
}

#[derive(Debug, Deserialize)]
struct Tool {
    /// `custom`, or the name of a tool of Anthropic's servers.
    #[serde(rename = "type", default)]
    kind: Option<String>,
    name: String,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    input_schema: Option<Value>,
    #[serde(default)]
    strict: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct ToolChoice {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    disable_parallel_tool_use: bool,
}

#[derive(Debug, Deserialize)]
struct Thinking {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    budget_tokens: Option<i64>,
}

impl Content {
    /// Joins the texts of all blocks.
    fn text(&self) -> Result<String> {
        match self {
            Self::Text(text) => Ok(text.clone()),
            Self::Blocks(blocks) => blocks
                .iter()
                .map(|block| match block {
                    Block::Text { text } => Ok(text.as_str()),
                    _ => Err(ApiError::about("messages", "only text can be read, no images or documents")),
                })
                .collect(),
        }
    }
}

impl Asked {
    /// Converts the request to a chat request.
    fn body(&self) -> Result<Body> {
        let is_given = |name: &&&str| match self.others.get(**name) {
            Some(Value::Array(list)) => !list.is_empty(),
            Some(value) => !value.is_null(),
            None => false,
        };
        if let Some(name) = ["mcp_servers", "container", "context_management"].iter().find(is_given) {
            return Err(ApiError::unsupported(name));
        }
        if self.tools.iter().any(|tool| tool.kind.as_deref().is_some_and(|kind| kind != "custom")) {
            return Err(ApiError::about("tools", "only tools with an input_schema can be called, no server tools"));
        }
        if self.messages.last().is_some_and(|last| last.role == "assistant") {
            return Err(ApiError::about("messages", "a started answer cannot be continued: end with a user's message"));
        }
        let mut messages = Vec::new();
        if let Some(system) = &self.system {
            messages.push(json!({ "role": "system", "content": system.text()? }));
        }
        for said in &self.messages {
            said.add_to(&mut messages)?;
        }
        let tools = self.tools.iter().map(|tool| {
            let mut function = Map::from_iter([("name".to_string(), json!(tool.name))]);
            function.extend(tool.description.iter().map(|text| ("description".to_string(), json!(text))));
            function.extend(tool.input_schema.iter().map(|schema| ("parameters".to_string(), schema.clone())));
            function.extend(tool.strict.iter().map(|strict| ("strict".to_string(), json!(strict))));
            json!({ "type": "function", "function": function })
        });
        let tools: Vec<Value> = tools.collect();
        let tool_choice = self.tool_choice.as_ref().map(|choice| match choice.kind.as_str() {
            "any" => json!("required"),
            "tool" => json!({ "type": "function", "function": { "name": choice.name } }),
            kind => json!(kind),
        });
        let thinks = self.thinking.as_ref().map(|thinking| thinking.kind != "disabled");
        let mut others = Map::new();
        // Only `disabled` needs a switch for thoughts in the template. All other types become the effort "medium",
        // which works with every template.
        others.extend(thinks.filter(|thinks| !thinks).map(|off| ("enable_thinking".to_string(), json!(off))));
        let config = self.output_config.as_ref().and_then(|config| config.pointer("/format/schema"));
        let schema = config.or_else(|| self.output_format.as_ref()?.get("schema")).cloned();
        Ok(Body {
            messages: Some(messages),
            model: self.model.clone(),
            stream: Some(self.stream),
            max_tokens: self.max_tokens,
            stop: Some(super::request::Stop::Many(self.stop_sequences.clone())),
            temperature: self.temperature,
            top_p: self.top_p,
            top_k: self.top_k,
            json_schema: schema,
            parallel_tool_calls: self.tool_choice.as_ref().map(|choice| !choice.disable_parallel_tool_use),
            tools: Some(tools).filter(|tools| !tools.is_empty()),
            tool_choice,
            reasoning_effort: thinks.filter(|thinks| *thinks).map(|_| "medium".to_string()),
            reasoning_budget: self.thinking.as_ref().and_then(|thinking| thinking.budget_tokens),
            others,
            ..Body::default()
        })
    }
}

impl Said {
    /// Appends this message as chat messages: each tool result becomes a message of its own.
    fn add_to(&self, messages: &mut Vec<Value>) -> Result<()> {
        let blocks = match &self.content {
            Content::Text(text) => {
                messages.push(json!({ "role": self.role, "content": text }));
                return Ok(());
            }
            Content::Blocks(blocks) => blocks,
        };
        let (mut text, mut thought, mut calls) = (String::new(), String::new(), Vec::new());
        for block in blocks {
            match block {
                Block::Text { text: more } => text += more,
                Block::Thinking { thinking } => thought += thinking,
                Block::RedactedThinking {} => {}
                Block::ToolUse { id, name, input } => calls.push(json!({
                    "id": id, "type": "function", "function": { "name": name, "arguments": input.to_string() },
                })),
                Block::ToolResult { tool_use_id, content } => {
                    let content = content.as_ref().map_or(Ok(String::new()), Content::text)?;
                    messages.push(json!({ "role": "tool", "tool_call_id": tool_use_id, "content": content }));
                }
                Block::Other => {
                    return Err(ApiError::about("messages", "only text can be read, no images or documents"));
                }
            }
        }
        if text.is_empty() && calls.is_empty() && messages.last().is_some_and(|last| last["role"] == "tool") {
            return Ok(());
        }
        let mut message = json!({ "role": self.role, "content": text });
        if !thought.is_empty() {
            message["reasoning_content"] = json!(thought);
        }
        if !calls.is_empty() {
            message["tool_calls"] = json!(calls);
        }
        messages.push(message);
        Ok(())
    }
}

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
fn prepared(app: &App, body: Value) -> Result<(Prepared, Vec<String>)> {
    let asked: Asked =
        serde_json::from_value(body).map_err(|error| ApiError::invalid(format!("the body is invalid: {error}")))?;
    let mut prepared = app.prepare(Endpoint::Chat, &asked.body()?)?;
    prepared.stream = asked.stream;
    Ok((prepared, asked.stop_sequences))
}

/// `POST /v1/messages`.
pub async fn messages(State(app): State<Arc<App>>, request: Request<HttpBody>) -> Result<Response> {
    let (open, (prepared, stops)) = app.asked(request, prepared).await?;
    let answer = app.begin(&open, prepared)?;
    let id = format!("msg_{:016x}", super::by_chance());
    if answer.prepared.stream {
        let (out, response) = channel();
        let streamer = Streamer { app, out, id, stops, index: 0, open: None, _open: open };
        tokio::spawn(streamer.run(answer));
        return Ok(response);
    }
    let choice = whole(answer.events).await?;
    let parts = answer.prepared.parts(0, &choice);
    let mut content = Vec::new();
    if !parts.reasoning.is_empty() {
        content.push(json!({ "type": "thinking", "thinking": parts.reasoning, "signature": "" }));
    }
    if !parts.content.is_empty() || parts.calls.is_empty() {
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
    Ok(Json(json!(message)).into_response())
}

/// `POST /v1/messages/count_tokens`.
pub async fn count_tokens(State(app): State<Arc<App>>, request: Request<HttpBody>) -> Result<Json<Value>> {
    let (_open, (prepared, _)) = app.asked(request, prepared).await?;
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
        let mut reader = answer.prepared.reader(0);
        let (mut choice, mut parts, mut calls) = (Choice::default(), Vec::new(), 0);
        loop {
            let Some(event) = self.out.next(&mut answer.events).await else { return };
            let is_end = match choice.next(event) {
                Ok(is_end) => is_end,
                Err(error) => return self.send("error", error.body_of(Interface::Anthropic)),
            };
            reader.push(&choice.text, &mut parts);
            if is_end {
                reader.finish(&mut parts, choice.is_cut());
            }
            for part in parts.drain(..) {
                self.part(part, &mut calls);
            }
            if is_end {
                break;
            }
        }
        if self.index == 0 && self.open.is_none() {
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
        self.out.send(Sse::default().event(kind).data(event.to_string()));
    }
}
