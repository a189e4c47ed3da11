//! Streams answers of chats and completions as server-sent events.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};

use axum::http::{HeaderValue, header};
use axum::response::sse::{Event as Sse, KeepAlive};
use axum::response::{IntoResponse, Response, Sse as SseResponse};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;
use tokio_stream::Stream;

use crate::app::{App, OpenRequest, Ready};
use crate::faces::Reply;
use crate::http::error::ApiError;
use crate::http::limits::STALLED;
use crate::http::memory::{Inbox, Unsent};
use crate::routes::answer;
use crate::routes::answer::{ResponseMeta, Timings, ToolCall, Usage};
use crate::routes::logprobs;
use arenite_chat::Part;
use arenite_run::scheduler::{Event, Finish};
use arenite_run::service::{Choice, Endpoint};
use arenite_text::without_line_breaks;

/// Maximum number of unread items: the next event of an answer is taken only while the client has fewer unread items
/// than this.
const WAITING: usize = 64;

/// The sending end of a response's body.
pub struct Events<T = Sse> {
    items: UnboundedSender<(T, Option<Unsent>)>,
    unread: Arc<Unread>,
    /// The memory of events whose text is not in an item yet.
    unsent: Mutex<Option<Unsent>>,
}

/// Counts the items of a stream that the connection has not taken yet.
#[derive(Default)]
struct Unread {
    count: AtomicUsize,
    taken: Notify,
}

/// The receiving end of a response's body: its items.
pub struct Items<T> {
    items: UnboundedReceiver<(T, Option<Unsent>)>,
    unread: Arc<Unread>,
}

impl<T> Stream for Items<T> {
    type Item = Result<T, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let item = self.items.poll_recv(context);
        if let Poll::Ready(Some(_)) = item {
            self.unread.count.fetch_sub(1, Ordering::Relaxed);
            self.unread.taken.notify_waiters();
        }
        item.map(|item| item.map(|(item, _)| Ok(item)))
    }
}

impl<T> Events<T> {
    /// Returns the sending and the receiving end of a body.
    pub fn new() -> (Self, Items<T>) {
        let (items, received) = unbounded_channel();
        let unread = Arc::<Unread>::default();
        (Self { items, unread: unread.clone(), unsent: Mutex::default() }, Items { items: received, unread })
    }

    /// Sends an item. Returns `false` if the client has disconnected.
    pub fn send(&self, item: T) -> bool {
        self.unread.count.fetch_add(1, Ordering::Relaxed);
        let unsent = self.unsent().take();
        self.items.send((item, unsent)).is_ok()
    }

    fn unsent(&self) -> MutexGuard<'_, Option<Unsent>> {
        self.unsent.lock().unwrap_or_else(|broken| broken.into_inner())
    }

    /// Waits until the client has fewer than [`WAITING`] unread items. Returns `false` if the client has disconnected
    /// or does not read.
    async fn has_room(&self) -> bool {
        let room = async {
            loop {
                let taken = self.unread.taken.notified();
                if self.unread.count.load(Ordering::Relaxed) < WAITING {
                    return;
                }
                taken.await;
            }
        };
        tokio::select! {
            waited = timeout(STALLED, room) => waited.is_ok(),
            () = self.items.closed() => false,
        }
    }

    /// Returns the next event of an answer; `None` if the client has disconnected or does not read.
    pub async fn next(&self, events: &mut Inbox) -> Option<Event> {
        if !self.has_room().await {
            return None;
        }
        // The second branch is needed because a client may disconnect while no events arrive.
        let (event, unsent) = tokio::select! {
            received = events.recv_unsent() => received?,
            () = self.items.closed() => return None,
        };
        let mut all = self.unsent();
        match &mut *all {
            Some(all) => all.join(unsent),
            all => *all = Some(unsent),
        }
        Some(event)
    }
}

/// Returns a sender of events, and a response whose body consists of the sent events.
pub fn channel() -> (Events, Response) {
    let (out, events) = Events::new();
    let body = SseResponse::new(events).keep_alive(KeepAlive::default());
    (out, unbuffered(body.into_response()))
}

/// Returns a server-sent event with JSON.
pub fn sse(value: &Value) -> Sse {
    Sse::default().data(json_line(value))
}

/// Returns an event with a name. The name comes before the data, as in the examples of OpenAI and Anthropic, because some
/// clients read line by line.
pub fn named(name: &str, value: &Value) -> Sse {
    Sse::default().event(name).data(json_line(value))
}

/// Formats JSON as one line of a stream. Line breaks of Unicode are escaped because some clients end a line at these
/// characters, too.
pub fn json_line(value: &Value) -> String {
    without_line_breaks(value.to_string())
}

/// Marks a streamed answer, so that proxies do not hold back its parts.
pub fn unbuffered(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    // This header is for nginx, which by default buffers the answers of a server behind it.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// Streams the answers to a request.
pub fn stream(app: Arc<App>, prepared: Ready, meta: ResponseMeta, answers: Vec<Inbox>, open: OpenRequest) -> Response {
    let (out, response) = channel();
    let streamer = Arc::new(Streamer { app, prepared, meta, out, _open: open });
    tokio::spawn(async move {
        let each = answers.into_iter().enumerate().map(|(index, events)| {
            let streamer = streamer.clone();
            tokio::spawn(async move { streamer.answer(index, events).await })
        });
        let mut choices = Vec::new();
        for task in each.collect::<Vec<_>>() {
            choices.extend(task.await.ok().flatten());
        }
        let Reply { include_usage, has_timings, .. } = streamer.prepared.reply;
        if include_usage {
            let mut last = streamer.head();
            last["choices"] = json!([]);
            last["usage"] = json!(Usage::of(&choices, streamer.prepared.prompt_count, true));
            if let Some(timings) = Timings::of(&choices, true).shown(has_timings) {
                last["timings"] = json!(timings);
            }
            streamer.send(&last);
        }
        streamer.out.send(Sse::default().data("[DONE]"));
    });
    response
}

struct Streamer {
    app: Arc<App>,
    prepared: Ready,
    meta: ResponseMeta,
    out: Events,
    _open: OpenRequest,
}

impl Streamer {
    /// Sends a JSON value as an event. Returns `false` if the client has disconnected.
    fn send(&self, value: &Value) -> bool {
        self.out.send(sse(value))
    }

    /// Returns the fields that all chunks have. `usage`, which only the last chunk has, is left out and not null, as in
    /// llama.cpp and vLLM, because clients of local servers take a chunk with this field for the last one.
    fn head(&self) -> Value {
        answer::head(&self.app.service, self.prepared.endpoint, &self.meta, true)
    }

    /// Sends one chunk of an answer.
    fn chunk(&self, index: usize, content: Value, logprobs: Value) -> bool {
        self.send(&self.chunk_of(index, content, logprobs, None))
    }

    fn chunk_of(&self, index: usize, content: Value, logprobs: Value, finish: Option<&str>) -> Value {
        let mut chunk = self.head();
        let key = if self.prepared.endpoint == Endpoint::Chat { "delta" } else { "text" };
        chunk["choices"] = json!([{ "index": index, key: content, "logprobs": logprobs, "finish_reason": finish }]);
        chunk
    }

    /// Sends the last chunk of an answer. As in llama.cpp, it has the timings if the client asks for them.
    fn last_chunk(&self, index: usize, content: Value, finish: &str, choice: &Choice) {
        let mut chunk = self.chunk_of(index, content, Value::Null, Some(finish));
        if self.prepared.reply.has_timings {
            chunk["timings"] = json!(Timings::of(std::slice::from_ref(choice), true));
        }
        self.send(&chunk);
    }

    async fn answer(&self, index: usize, events: Inbox) -> Option<Choice> {
        match self.prepared.endpoint {
            Endpoint::Chat => self.chat(index, events).await,
            _ => self.completion(index, events).await,
        }
    }

    /// Adds an event to an answer of a stream. Returns true if it is the last event. If it is an error, sends the error
    /// and returns `None`.
    fn take(&self, choice: &mut Choice, event: Event) -> Option<bool> {
        match choice.next(event).map_err(ApiError::from) {
            Ok(is_end) => Some(is_end),
            Err(error) => {
                self.send(&error.body());
                None
            }
        }
    }

    async fn completion(&self, index: usize, mut events: Inbox) -> Option<Choice> {
        let mut choice = Choice::default();
        let prompt = &*self.prepared.prompts[index];
        // The offset of the first token of the text.
        let mut start = self.prepared.echo.then_some(0);
        if self.prepared.echo {
            let mut scored = Value::Null;
            if self.prepared.scores_prompts {
                let event = self.out.next(&mut events).await?;
                self.take(&mut choice, event)?;
                scored = logprobs::completion(&choice.scored, 0);
            }
            self.chunk(index, json!(prompt), scored);
        }
        loop {
            let event = self.out.next(&mut events).await?;
            let logprobs = match &event {
                Event::Token { logprob: Some(logprob), .. } => {
                    let start = *start.get_or_insert(logprob.offset);
                    logprobs::completion(std::slice::from_ref(logprob), start)
                }
                _ => Value::Null,
            };
            let is_end = self.take(&mut choice, event)?;
            let text = &choice.text;
            if !text.is_empty() || !logprobs.is_null() {
                self.chunk(index, json!(text), logprobs);
            }
            if is_end {
                self.last_chunk(index, json!(""), choice.end.map_or("stop", Finish::name), &choice);
                return Some(choice);
            }
        }
    }

    async fn chat(&self, index: usize, mut events: Inbox) -> Option<Choice> {
        // Some clients turn an empty string into an empty text before the call; null has no such effect.
        let content = if self.prepared.tools.0.is_empty() { json!("") } else { Value::Null };
        self.chunk(index, json!({ "role": "assistant", "content": content }), Value::Null);
        let mut splitter = self.prepared.splitter(index);
        let (mut choice, mut parts, mut calls) = (Choice::default(), Vec::new(), 0);
        loop {
            let event = self.out.next(&mut events).await?;
            let mut logprobs = match &event {
                Event::Token { logprob: Some(logprob), .. } => json!({ "content": [logprobs::chat(logprob)] }),
                _ => Value::Null,
            };
            let is_end = self.take(&mut choice, event)?;
            splitter.next(&mut choice, is_end, &mut parts);
            if parts.is_empty() && !logprobs.is_null() {
                parts.push(Part::Content(String::new()));
            }
            for part in parts.drain(..) {
                let delta = match part {
                    Part::Content(text) => json!({ "content": text }),
                    Part::Thought(text) => json!({ "reasoning_content": text }),
                    Part::Call(call) => {
                        calls += 1;
                        json!({ "tool_calls": [ToolCall::new(call, calls - 1, &self.meta.id, index)] })
                    }
                };
                self.chunk(index, delta, logprobs.take());
            }
            if is_end {
                self.last_chunk(index, json!({}), choice.finish(calls > 0), &choice);
                return Some(choice);
            }
        }
    }
}
