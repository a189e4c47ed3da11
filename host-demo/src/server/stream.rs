//! Answers of chats and completions as they come, by server-sent events.

use std::convert::Infallible;
use std::sync::Arc;

use axum::response::sse::{Event as Sse, KeepAlive};
use axum::response::{IntoResponse, Response, Sse as SseResponse};
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_stream::wrappers::UnboundedReceiverStream;

use super::app::{App, Open};
use super::engine::{Event, Finish};
use super::logprobs;
use super::service::{Choice, Endpoint, Frame, Prepared, usage, without_tags};
use super::tools;
use crate::chat::{Part, Thoughts};

/// What is on its way to a client.
pub type Pieces = UnboundedSender<std::result::Result<Sse, Infallible>>;

/// An answer whose body is what is sent to the other end.
pub fn channel() -> (Pieces, Response) {
    let (out, pieces) = unbounded_channel();
    let body = SseResponse::new(UnboundedReceiverStream::new(pieces)).keep_alive(KeepAlive::default());
    (out, body.into_response())
}

/// Answers as they come.
pub fn stream(
    app: Arc<App>,
    prepared: Prepared,
    frame: Frame,
    answers: Vec<UnboundedReceiver<Event>>,
    open: Open,
) -> Response {
    let (out, response) = channel();
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
    response
}

struct Streamer {
    app: Arc<App>,
    prepared: Prepared,
    frame: Frame,
    out: Pieces,
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
            let (before, logprobs) = (choice.text.len(), self.logprobs(&event));
            let is_end = match choice.take(event) {
                Ok(is_end) => is_end,
                Err(error) => {
                    self.send(&error.body());
                    return None;
                }
            };
            let text = &choice.text[before..];
            // Calls of functions show only at the end.
            if !self.prepared.has_tools {
                if is_chat {
                    self.deltas(index, &mut thoughts, text, logprobs, is_end);
                } else if !text.is_empty() || !logprobs.is_null() {
                    self.piece(index, json!(text), logprobs, None);
                }
            }
            if is_end {
                let has_calls = self.prepared.has_tools && self.with_calls(index, &choice);
                let finish = if has_calls { "tool_calls" } else { choice.end.map_or("stop", Finish::name) };
                self.piece(index, nothing, Value::Null, Some(finish));
                return Some(choice);
            }
        }
    }

    /// How likely the token was, if that is wanted.
    fn logprobs(&self, event: &Event) -> Value {
        match event {
            Event::Token { logprob: Some(logprob), .. } if self.prepared.endpoint == Endpoint::Chat => {
                json!({ "content": [logprob.chat()] })
            }
            Event::Token { logprob: Some(logprob), .. } => logprobs::completion(std::slice::from_ref(logprob)),
            _ => Value::Null,
        }
    }

    /// A whole answer in one piece, calls of functions apart. Whether there are any.
    fn with_calls(&self, index: usize, choice: &Choice) -> bool {
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
        }
        self.piece(index, delta, Value::Null, None);
        !parts.calls.is_empty()
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
