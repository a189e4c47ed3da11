//! Memory of requests: their bodies, and answers that were not sent yet. Each has one limit for all requests.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use http_body_util::LengthLimitError;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::app::Result;
use super::engine::Event;
use super::error::ApiError;
use super::logprobs::Logprob;

/// Maximum size of a body in bytes.
const MOST_BYTES: usize = 8 << 20;
/// Bodies of up to this size have memory of their own, so that large ones cannot keep them waiting.
const SMALL: usize = 64 << 10;
const SMALL_BODIES: usize = 16 << 20;
const LARGE_BODIES: usize = 32 << 20;
/// Time limit for receiving a body, and for waiting until there is memory for it.
const BODY_TIME: Duration = Duration::from_secs(10);
/// Maximum weight of the values in a body: see [`weight`].
const MOST_WEIGHT: usize = 1_000_000;
/// Upper bound for the memory of a body's values while it is read.
const VALUES: usize = 96 << 20;
/// Limit for the memory of all answers. A streamed answer counts only its events that were not sent yet.
const ANSWERS: usize = 128 << 20;
const UNREAD: usize = 1 << 20;

/// Memory for the bodies and answers of all requests.
pub struct RequestMemory {
    small: Arc<Semaphore>,
    large: Arc<Semaphore>,
    answers: Arc<AtomicUsize>,
}

/// The bytes of a body. They count toward the limit until this is dropped.
pub struct Received {
    bytes: Bytes,
    _permit: OwnedSemaphorePermit,
}

impl Received {
    /// Returns the bytes, unless reading their JSON would take too much memory.
    pub fn json(&self) -> Result<&[u8]> {
        if weight(&self.bytes) > MOST_WEIGHT {
            return Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "the body has too many values: send fewer"));
        }
        // Some programs write this mark before JSON.
        Ok(self.bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&self.bytes))
    }
}

impl AsRef<[u8]> for Received {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        if self.bytes.len() > SMALL {
            trim();
        }
    }
}

impl Default for RequestMemory {
    fn default() -> Self {
        Self {
            small: Arc::new(Semaphore::new(SMALL_BODIES)),
            large: Arc::new(Semaphore::new(LARGE_BODIES)),
            answers: Arc::default(),
        }
    }
}

impl RequestMemory {
    /// Upper bound of all bodies in bytes.
    pub const BODIES: usize = SMALL_BODIES + LARGE_BODIES;

    /// Upper bound in bytes, with `threads` that read bodies.
    pub fn most(threads: usize) -> usize {
        Self::BODIES + threads * VALUES + ANSWERS
    }

    /// Reads a body within its limits of size and time.
    pub async fn receive(&self, request: Request<Body>) -> Result<Received> {
        self.receive_up_to(request, MOST_BYTES).await
    }

    /// Reads a body of up to `most` bytes within the limit of time.
    pub async fn receive_up_to(&self, request: Request<Body>, most: usize) -> Result<Received> {
        let too_long = || too_long(most);
        let mut permit = self.reserve(request.headers(), most).await?;
        let most = permit.num_permits();
        match timeout(BODY_TIME, axum::body::to_bytes(request.into_body(), most)).await {
            Ok(Ok(bytes)) => {
                drop(permit.split(most - bytes.len()));
                Ok(Received { bytes, _permit: permit })
            }
            Ok(Err(error)) if error.source().is_some_and(|source| source.is::<LengthLimitError>()) => Err(too_long()),
            Ok(Err(_)) => Err(ApiError::invalid("the body is incomplete or not encoded as its headers say")),
            Err(_) => Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, "the body did not come in time")),
        }
    }

    /// Waits until there is memory for a body of its announced length, or of `most` bytes if it announces none.
    pub async fn reserve(&self, headers: &HeaderMap, most: usize) -> Result<OwnedSemaphorePermit> {
        let encoding = headers.get(header::CONTENT_ENCODING).filter(|encoding| *encoding != "identity");
        if let Some(encoding) = encoding {
            let why = format!("a body with the Content-Encoding {encoding:?} cannot be read: send it as it is");
            return Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, why));
        }
        let announced = headers.get(header::CONTENT_LENGTH).and_then(|len| len.to_str().ok()?.parse().ok());
        let len: usize = announced.unwrap_or(most);
        if len > most {
            return Err(too_long(most));
        }
        let memory = if len <= SMALL { &self.small } else { &self.large };
        match timeout(BODY_TIME, memory.clone().acquire_many_owned(len as u32)).await {
            Ok(Ok(permit)) => Ok(permit),
            _ => {
                let why = "the bodies of other requests take all memory for them: try again later";
                Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, why))
            }
        }
    }

    /// The meter of a request. The events of streamed answers count until they are sent, all others until the end.
    pub fn meter(&self, is_streamed: bool) -> Arc<Meter> {
        let most = if is_streamed { UNREAD } else { ANSWERS };
        Arc::new(Meter { used: 0.into(), most, all: self.answers.clone(), is_full: false.into(), is_streamed })
    }
}

fn too_long(most: usize) -> ApiError {
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, format!("the body has more than {most} bytes"))
}

/// The weight of a body's values, about 40 bytes each: 1 for a number or constant, 4 for a text, a key, a list or an
/// object.
fn weight(json: &[u8]) -> usize {
    let (mut weight, mut in_text, mut is_escaped) = (0, false, false);
    for byte in json {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_text => is_escaped = true,
            b'"' => {
                in_text = !in_text;
                weight += if in_text { 4 } else { 0 };
            }
            _ if in_text => {}
            b'[' | b'{' => weight += 4,
            b',' => weight += 1,
            _ => {}
        }
    }
    weight
}

/// Returns freed memory to the system. The allocator of glibc keeps freed memory of small values, a whole body's worth
/// in each thread.
pub fn trim() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    #[allow(unsafe_code)]
    // SAFETY: has no preconditions.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Counts the memory of a request's answers.
#[derive(Debug)]
pub struct Meter {
    used: AtomicUsize,
    most: usize,
    /// The sum of all meters.
    all: Arc<AtomicUsize>,
    is_full: AtomicBool,
    is_streamed: bool,
}

impl Meter {
    /// A meter without a limit.
    pub fn unlimited() -> Arc<Self> {
        Arc::new(Self {
            used: 0.into(),
            most: usize::MAX,
            all: Arc::default(),
            is_full: false.into(),
            is_streamed: true,
        })
    }

    /// Counts `bytes` more, if there is room.
    pub fn add(&self, bytes: usize) -> bool {
        let used = self.used.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let all = self.all.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let fits = used <= self.most && (all <= ANSWERS || self.most == usize::MAX);
        if !fits {
            self.subtract(bytes);
            self.is_full.store(true, Ordering::Relaxed);
        }
        fits
    }

    fn subtract(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
        self.all.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        let used = self.used.load(Ordering::Relaxed);
        self.all.fetch_sub(used, Ordering::Relaxed);
        if !self.is_streamed && used > UNREAD {
            trim();
        }
    }
}

/// Bytes that an event takes until its answer is sent: its text is copied to a part of a message, a JSON value and JSON.
fn bytes(event: &Event) -> usize {
    let of = |logprob: &Logprob| 700 * (1 + logprob.top.len());
    match event {
        Event::Prompt(scored) => scored.iter().map(of).sum(),
        Event::Token { text, logprob } => 96 + 4 * text.len() + logprob.as_ref().map_or(0, of),
        Event::Done { text, .. } => 96 + 4 * text.len(),
        Event::Failed(_) | Event::Overflow => 96,
    }
}

/// Returns the ends of a channel for the events of an answer. Sending never waits.
pub fn mailbox(meter: Arc<Meter>) -> (Outbox, Inbox) {
    let (events, received) = unbounded_channel();
    (Outbox { events, meter: meter.clone() }, Inbox { events: received, meter })
}

/// The engine's end of the channel.
#[derive(Debug)]
pub struct Outbox {
    events: UnboundedSender<Event>,
    meter: Arc<Meter>,
}

impl Outbox {
    /// Sends an event, unless the memory for the answer is full.
    pub fn send(&self, event: Event) {
        if !self.meter.is_full() && self.meter.add(bytes(&event)) {
            let _ = self.events.send(event);
        }
    }

    /// True if nobody waits for the answer any more, or if there is no memory for it.
    pub fn is_closed(&self) -> bool {
        self.events.is_closed() || self.meter.is_full()
    }
}

/// The request's end of the channel.
#[derive(Debug)]
pub struct Inbox {
    events: UnboundedReceiver<Event>,
    meter: Arc<Meter>,
}

impl Inbox {
    pub async fn recv(&mut self) -> Option<Event> {
        let event = self.events.recv().await;
        self.received(event)
    }

    pub fn blocking_recv(&mut self) -> Option<Event> {
        let event = self.events.blocking_recv();
        self.received(event)
    }

    fn received(&self, event: Option<Event>) -> Option<Event> {
        if self.meter.is_full() {
            return Some(Event::Overflow);
        }
        event.inspect(|event| {
            if self.meter.is_streamed {
                self.meter.subtract(bytes(event));
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(text: &str) -> Event {
        Event::Token { text: text.into(), logprob: None }
    }

    #[test]
    fn unread_answers_are_bounded() {
        let memory = RequestMemory::default();
        let (out, mut unread) = mailbox(memory.meter(true));
        let text = "x".repeat(1000);
        for _ in 0..100 {
            out.send(token(&text));
            assert!(matches!(unread.blocking_recv(), Some(Event::Token { .. })));
        }
        assert_eq!(memory.answers.load(Ordering::Relaxed), 0);
        let sent = (0..10_000).take_while(|_| !out.is_closed()).map(|_| out.send(token(&text))).count();
        assert!((240..280).contains(&sent) && matches!(unread.blocking_recv(), Some(Event::Overflow)), "{sent}");
        drop((out, unread));
        assert_eq!(memory.answers.load(Ordering::Relaxed), 0);
        // Answers that are collected share their memory.
        let many: Vec<_> = (0..8).map(|_| mailbox(memory.meter(false))).collect();
        let text = "x".repeat(1 << 20);
        let sent =
            (0..1000).take_while(|i| !many[i % 8].0.is_closed()).map(|i| many[i % 8].0.send(token(&text))).count();
        assert!((31..=40).contains(&sent), "{sent}");
        drop(many);
        assert_eq!(memory.answers.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn values_of_bodies_are_counted() {
        assert_eq!(weight(br#"{"a,[": [1, 2, ""," ], "b": {}}"#), 4 + 4 + 4 + 1 + 1 + 4 + 1 + 4 + 4);
        assert!(weight(&b"{\"a\":0},".repeat(200_000)) > MOST_WEIGHT && weight(&b"1,".repeat(500_000)) < MOST_WEIGHT);
    }
}
