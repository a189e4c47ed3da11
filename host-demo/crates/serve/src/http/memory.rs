//! Limits the memory of requests: one limit is for all bodies, the other for all prompts and all unsent answers.

use std::io::Read;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use http_body_util::BodyExt;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;

use crate::http::connections::ConnectionSlot;
use crate::http::error::{ApiError, Result};
use crate::http::limits::BUFFERS;
use crate::http::pool::{Pace, Permit, Pool};
use crate::http::readers::READERS;
use crate::items::{ITEMS, NAMED};
use arenite_run::generation::Logprob;
use arenite_run::scheduler::{Client, Event};

/// Maximum size of a body in bytes.
const MOST_BYTES: usize = 8 << 20;
/// Maximum size of a body in bytes, for a model that sees.
pub const MOST_WITH_PICTURES: usize = 24 << 20;
/// Maximum size in bytes of a small body. Small bodies have separate memory, so that they do not wait for large bodies.
const SMALL: usize = 64 << 10;
const SMALL_BODIES: usize = 16 << 20;
const LARGE_BODIES: usize = 32 << 20;
/// Time limit for waiting until there is memory for a body. It also limits the time for receiving a body if other
/// bodies wait for memory.
const BODY_TIME: Duration = Duration::from_secs(10);
/// Maximum weight of the values in a body: see [`weight`].
const MOST_WEIGHT: usize = 1_000_000;
/// Upper bound in bytes for the memory of a body's values while its JSON is parsed.
const VALUES: usize = 96 << 20;
/// Limit for the memory of all prompts and answers. Of a streamed answer, only the unsent events count.
const ANSWERS: usize = 128 << 20;
/// Maximum number of bytes in the unsent events of one streamed answer.
const UNREAD: usize = 2 << 20;

/// Memory for the bodies and answers of all requests.
pub struct RequestMemory {
    small: Arc<Pool>,
    large: Arc<Pool>,
    answers: Arc<Answers>,
}

/// Returns the encoding of a compressed body. Refuses all encodings but gzip.
fn encoding(headers: &HeaderMap) -> Result<Option<&HeaderValue>> {
    // Compare without case, because HTTP's names of codings are case-insensitive.
    let is =
        |encoding: &HeaderValue, name: &str| encoding.as_bytes().trim_ascii().eq_ignore_ascii_case(name.as_bytes());
    let encoding = headers.get(header::CONTENT_ENCODING).filter(|encoding| !is(encoding, "identity"));
    match encoding.filter(|encoding| !is(encoding, "gzip") && !is(encoding, "x-gzip")) {
        Some(encoding) => {
            let why =
                format!("a body with the Content-Encoding {encoding:?} cannot be read: use gzip, or send it as it is");
            Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, why))
        }
        None => Ok(encoding),
    }
}

/// Unpacks a gzip body. The body and the result together have at most `most` bytes.
async fn unpacked(packed: Vec<u8>, most: usize) -> Result<Vec<u8>> {
    let unpack = move || {
        let room = most.saturating_sub(packed.len());
        let mut bytes = Vec::new();
        let read = flate2::read::MultiGzDecoder::new(&packed[..]).take(room as u64 + 1).read_to_end(&mut bytes);
        match read {
            Ok(_) if bytes.len() > room => Err(too_long(most)),
            Ok(_) => Ok(bytes),
            Err(_) => Err(ApiError::invalid("the body is incomplete or not encoded as its headers say")),
        }
    };
    let failed = |_| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "a thread failed while it read this body");
    tokio::task::spawn_blocking(unpack).await.map_err(failed)?
}

/// The bytes of a body. The memory counts toward the limit until this value is dropped.
pub struct Received {
    bytes: Bytes,
    _permit: Permit,
}

impl Received {
    /// Returns the bytes, unless parsing their JSON would take too much memory.
    pub fn json(&self) -> Result<&[u8]> {
        if weight(&self.bytes) > MOST_WEIGHT {
            return Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "the body has too many values: send fewer"));
        }
        // Skip a byte order mark, because some programs write one before JSON.
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
        let pool = |bytes| Pool::new(bytes, bytes / 2, BODY_TIME);
        Self { small: pool(SMALL_BODIES), large: pool(LARGE_BODIES), answers: Arc::default() }
    }
}

impl RequestMemory {
    /// Upper bound of all bodies in bytes.
    pub const BODIES: usize = SMALL_BODIES + LARGE_BODIES;

    /// Returns an upper bound in bytes for the memory of all requests, if `threads` threads parse bodies. Each parsed
    /// body may come with the items that it names.
    pub fn most(threads: usize) -> usize {
        Self::BODIES + threads * (VALUES + NAMED) + ANSWERS + ITEMS
    }

    /// Reads a client's body within the limits of size and time.
    pub async fn receive(&self, client: u64, request: Request<Body>) -> Result<Received> {
        self.receive_up_to(client, request, MOST_BYTES).await
    }

    /// Reads a client's body of up to `most` bytes within the limit of time.
    pub async fn receive_up_to(&self, client: u64, request: Request<Body>, most: usize) -> Result<Received> {
        let is_packed = encoding(request.headers())?.is_some();
        let len = Self::announced(request.headers(), most)?;
        let (mut body, mut bytes) = (request.into_body(), Vec::new());
        let mut permit = reserve(&self.small, client, len.min(SMALL)).await?;
        let mut is_whole = read(&mut body, &mut bytes, &permit).await?;
        // A large body gets its memory only after its first part has arrived, so that a client that sends only a head
        // cannot hold memory.
        if !is_whole || is_packed {
            permit = reserve(&self.large, client, len).await?;
        }
        if !is_whole {
            is_whole = read(&mut body, &mut bytes, &permit).await?;
        }
        if !is_whole {
            return Err(too_long(most));
        }
        if is_packed {
            bytes = unpacked(bytes, most).await?;
        }
        permit.shrink(bytes.len());
        Ok(Received { bytes: bytes.into(), _permit: permit })
    }

    /// Returns the announced length of a body. Returns `most` if no length is announced, or if the body is compressed
    /// and its unpacked length is therefore unknown. Refuses a length above `most`.
    pub fn announced(headers: &HeaderMap, most: usize) -> Result<usize> {
        if encoding(headers)?.is_some() {
            return Ok(most);
        }
        let announced = headers.get(header::CONTENT_LENGTH).and_then(|len| len.to_str().ok()?.parse().ok());
        let len: usize = announced.unwrap_or(most);
        if len > most { Err(too_long(most)) } else { Ok(len) }
    }

    /// Creates the meter of a request. Events of a streamed answer count until they are sent; an answer that is not
    /// streamed counts until the request ends.
    pub fn meter(&self, is_streamed: bool) -> Arc<Meter> {
        self.answers.meter(is_streamed, None)
    }

    /// Converts the text of a response to bytes that count as used memory until they are sent. Returns `None` if there
    /// is no room for them.
    pub fn response(&self, text: String, slot: Option<Arc<ConnectionSlot>>) -> Option<Bytes> {
        let meter = self.answers.meter(false, slot);
        meter.hold(text.len()).then(|| Bytes::from_owner(ResponseText { text, _meter: meter }))
    }
}

/// Waits until there is memory for a body of `len` bytes.
async fn reserve(pool: &Arc<Pool>, client: u64, len: usize) -> Result<Permit> {
    let why = "the bodies of other requests take all memory for them: try again later";
    let crowded = || ApiError::new(StatusCode::SERVICE_UNAVAILABLE, why);
    timeout(BODY_TIME, pool.acquire(client, len)).await.ok().flatten().ok_or_else(crowded)
}

/// Reads a body to its end, or until it has more bytes than `permit` allows. Returns true at the end of the body.
async fn read(body: &mut Body, bytes: &mut Vec<u8>, permit: &Permit) -> Result<bool> {
    let mut pace = Pace::new(permit, permit.bytes());
    while bytes.len() <= permit.bytes() {
        let Some(frame) = pace.wait(body.frame()).await? else { return Ok(true) };
        let broken = |_| ApiError::invalid("the body is incomplete or not encoded as its headers say");
        let part = frame.map_err(broken)?.into_data().unwrap_or_default();
        pace.add(part.len());
        bytes.extend_from_slice(&part);
    }
    Ok(false)
}

fn too_long(most: usize) -> ApiError {
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, format!("the body has more than {most} bytes"))
}

/// Estimates the memory of a body's values in units of about 40 bytes: 1 for a number or constant, 4 for a text, a key,
/// a list or an object.
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

/// Returns freed memory to the system, because glibc's allocator otherwise keeps the memory of freed small values. In
/// each thread, this may be as much memory as a whole body takes.
pub fn trim() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    #[allow(unsafe_code)]
    // SAFETY: has no preconditions.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// The memory of a process without its model and requests.
pub struct ProgramMemory {
    /// Number of bytes of address space that were in use when the process started. The program, its libraries and its
    /// first values take them.
    start: usize,
}

impl ProgramMemory {
    /// Size of a thread's stack in bytes, which is Rust's default.
    const STACK: usize = 2 << 20;
    /// Number of threads of a server: one that serves, the readers, threads for blocking work, and one that waits for a
    /// signal.
    const THREADS: usize = 2 + 2 * READERS;
    /// Memory that the program holds but does not use: gaps between small values. The allocator cannot return these
    /// gaps to the system while the values beside them are in use.
    const GAPS: usize = 16 << 20;

    /// Measures the memory at the start, and limits the allocator.
    ///
    /// By default, glibc gives each thread a separate arena and reserves 64 MiB of addresses for each arena. After
    /// large values have been freed, glibc also stops returning the memory of such values to the system. With one arena
    /// and a fixed threshold, the address space in use is only a little larger than the memory in use. The printed
    /// bound then also holds as a limit on address space (`ulimit -v`).
    pub fn at_start() -> Self {
        #[cfg(all(target_os = "linux", target_env = "gnu"))]
        #[allow(unsafe_code)]
        // SAFETY: `mallopt` has no preconditions. Failure is harmless.
        unsafe {
            libc::mallopt(libc::M_ARENA_MAX, 1);
            libc::mallopt(libc::M_MMAP_THRESHOLD, 256 << 10);
        }
        Self { start: mapped().unwrap_or(0) }
    }

    /// Returns an upper bound in bytes for the memory of a server whose models run in other processes.
    pub fn of_proxy(&self) -> usize {
        self.start + Self::THREADS * Self::STACK + BUFFERS + Self::GAPS
    }

    /// Returns an upper bound in bytes for the memory of a server that runs a model on `threads` threads.
    pub fn of_model(&self, threads: usize) -> usize {
        self.of_proxy() + threads * Self::STACK
    }
}

/// Returns the number of bytes of address space that this process uses, as reported by Linux; `None` on other systems.
fn mapped() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let kilobytes = status.lines().find_map(|line| line.strip_prefix("VmSize:")?.strip_suffix("kB"))?;
    Some(kilobytes.trim().parse::<usize>().ok()? * 1024)
}

/// The memory of the prompts and answers of all requests.
#[derive(Debug, Default)]
struct Answers {
    used: AtomicUsize,
    meters: Mutex<Vec<Weak<Meter>>>,
}

impl Answers {
    fn meter(self: &Arc<Self>, is_streamed: bool, slot: Option<Arc<ConnectionSlot>>) -> Arc<Meter> {
        let most = if is_streamed { UNREAD } else { ANSWERS };
        let meter = Arc::new(Meter::new(most, self.clone(), is_streamed, slot));
        self.meters().push(Arc::downgrade(&meter));
        meter
    }

    fn meters(&self) -> MutexGuard<'_, Vec<Weak<Meter>>> {
        self.meters.lock().unwrap_or_else(|broken| broken.into_inner())
    }

    /// Ends the request that uses the most memory, unless requests that are already ending will free enough memory.
    /// Returns false if the request of `meter` uses the most memory.
    fn make_room(&self, meter: &Meter) -> bool {
        let meters: Vec<_> = self.meters().iter().filter_map(Weak::upgrade).collect();
        let (ending, others): (Vec<_>, Vec<_>) = meters.into_iter().partition(|meter| meter.is_full());
        let comes_back: usize = ending.iter().map(|meter| meter.bytes()).sum();
        if self.used.load(Ordering::Relaxed) <= ANSWERS + comes_back {
            return true;
        }
        let largest = others.into_iter().max_by_key(|meter| meter.bytes());
        largest.filter(|largest| !std::ptr::eq(&**largest, meter)).map(|largest| largest.fill()).is_some()
    }
}

/// The memory of those streamed events that the connection has not taken yet.
#[derive(Debug)]
pub struct Unsent {
    meter: Arc<Meter>,
    bytes: usize,
}

impl Unsent {
    /// Adds the bytes of further events of the same request.
    pub fn join(&mut self, mut more: Self) {
        self.bytes += std::mem::take(&mut more.bytes);
    }
}

impl Drop for Unsent {
    fn drop(&mut self) {
        self.meter.subtract(self.bytes);
    }
}

/// The text of a response. The memory of the text counts until the connection has sent it.
struct ResponseText {
    text: String,
    _meter: Arc<Meter>,
}

impl AsRef<[u8]> for ResponseText {
    fn as_ref(&self) -> &[u8] {
        self.text.as_bytes()
    }
}

/// Counts the memory of a request's prompts and answers.
#[derive(Debug)]
pub struct Meter {
    /// Bytes of events; at most `most`.
    used: AtomicUsize,
    most: usize,
    /// Bytes that count until the end of the request.
    held: AtomicUsize,
    all: Arc<Answers>,
    is_full: AtomicBool,
    is_streamed: bool,
    /// The connection of a response text. It can be closed to free the memory, because the connection holds the text
    /// until the text is sent.
    slot: Option<Arc<ConnectionSlot>>,
}

impl Meter {
    fn new(most: usize, all: Arc<Answers>, is_streamed: bool, slot: Option<Arc<ConnectionSlot>>) -> Self {
        Self { used: 0.into(), most, held: 0.into(), all, is_full: false.into(), is_streamed, slot }
    }

    /// A meter without a limit.
    pub fn unlimited() -> Arc<Self> {
        Arc::new(Self::new(usize::MAX, Arc::default(), true, None))
    }

    /// Counts `bytes` further bytes of events. Returns false if there is no room for them.
    pub fn add(&self, bytes: usize) -> bool {
        let used = self.used.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let fits = used <= self.most && self.fits(bytes);
        if !fits {
            self.used.fetch_sub(bytes, Ordering::Relaxed);
            self.fill();
        }
        fits
    }

    /// Counts `bytes` further bytes until the end of the request. Returns false if there is no room for them.
    pub fn hold(&self, bytes: usize) -> bool {
        self.held.fetch_add(bytes, Ordering::Relaxed);
        let fits = self.fits(bytes);
        if !fits {
            self.held.fetch_sub(bytes, Ordering::Relaxed);
        }
        fits
    }

    /// Counts `bytes` toward the limit of all requests. If the limit is exceeded, ends the request that uses the most
    /// memory. Returns false if this request uses the most memory.
    fn fits(&self, bytes: usize) -> bool {
        let all = self.all.used.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let fits = all <= ANSWERS || self.most == usize::MAX || self.all.make_room(self);
        if !fits {
            self.all.used.fetch_sub(bytes, Ordering::Relaxed);
        }
        fits
    }

    fn subtract(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
        self.all.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn bytes(&self) -> usize {
        self.used.load(Ordering::Relaxed) + self.held.load(Ordering::Relaxed)
    }

    /// True if there was no memory for the rest of the answers.
    pub fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }

    fn fill(&self) {
        self.is_full.store(true, Ordering::Relaxed);
        if let Some(slot) = &self.slot {
            slot.close();
        }
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        let bytes = self.bytes();
        self.all.used.fetch_sub(bytes, Ordering::Relaxed);
        self.all.meters().retain(|meter| !std::ptr::eq(meter.as_ptr(), self));
        if bytes > UNREAD {
            trim();
        }
    }
}

/// Returns an upper bound for the number of bytes that an event takes until it is sent. The text of the event exists
/// four times: in the event, in a part of the message, in a JSON value and in the JSON text.
fn bytes(event: &Event) -> usize {
    const HEAD: usize = 400;
    let of = |logprob: &Logprob| 700 * (1 + logprob.top.len());
    match event {
        Event::Prompt(scored) => scored.iter().map(of).sum(),
        Event::Token { text, logprob, .. } => HEAD + 4 * text.len() + logprob.as_ref().map_or(0, of),
        Event::Done { text, .. } => HEAD + 4 * text.len(),
        Event::Failed(_) | Event::Overflow => HEAD,
    }
}

/// Returns the two ends of a channel for the events of an answer. Sending an event never waits.
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

impl Client for Outbox {
    /// Sends an event, unless the memory for the answer is full.
    fn send(&self, event: Event) {
        if !self.meter.is_full() && self.meter.add(bytes(&event)) {
            let _ = self.events.send(event);
        }
    }

    /// Returns true if nobody waits for the answer any more, or if there is no memory for the answer.
    fn is_closed(&self) -> bool {
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

    /// Receives an event, and a value that counts the memory of the event until it is dropped.
    pub async fn recv_unsent(&mut self) -> Option<(Event, Unsent)> {
        let event = self.events.recv().await;
        if self.meter.is_full() {
            return Some((Event::Overflow, Unsent { meter: self.meter.clone(), bytes: 0 }));
        }
        let event = event?;
        let unsent = Unsent { meter: self.meter.clone(), bytes: bytes(&event) };
        Some((event, unsent))
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
    use std::time::Instant;

    use super::*;
    use crate::http::connections::Connections;

    fn token(text: &str) -> Event {
        Event::Token { id: 0, text: text.into(), logprob: None }
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
        assert_eq!(memory.answers.used.load(Ordering::Relaxed), 0);
        let sent = (0..10_000).take_while(|_| !out.is_closed()).map(|_| out.send(token(&text))).count();
        assert!((460..490).contains(&sent) && matches!(unread.blocking_recv(), Some(Event::Overflow)), "{sent}");
        drop((out, unread));
        assert_eq!(memory.answers.used.load(Ordering::Relaxed), 0);
        // Answers that are collected share their memory.
        let many: Vec<_> = (0..8).map(|_| mailbox(memory.meter(false))).collect();
        let text = "x".repeat(1 << 20);
        let sent =
            (0..1000).take_while(|i| !many[i % 8].0.is_closed()).map(|i| many[i % 8].0.send(token(&text))).count();
        assert!((31..=40).contains(&sent), "{sent}");
        drop(many);
        // If there is no room for an event, the answer with the most unread events ends. All other answers go on.
        let (large, small) = (mailbox(memory.meter(false)), mailbox(memory.meter(false)));
        (0..31).for_each(|_| large.0.send(token(&text)));
        (0..3).for_each(|_| small.0.send(token(&text)));
        assert!(large.0.is_closed() && !small.0.is_closed());
        drop((large, small));
        assert_eq!(memory.answers.used.load(Ordering::Relaxed), 0);
    }

    /// A request body whose bytes do not arrive is refused if other clients wait for its memory. Its client's share of
    /// the memory is then free again.
    #[test]
    fn slow_bodies_give_way() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let memory = Arc::new(RequestMemory::default());
            let request = |body| {
                let request = Request::builder().header(header::CONTENT_LENGTH, MOST_BYTES);
                request.body(body).unwrap()
            };
            // Bodies that stop after some bytes.
            let slow = |client: u64, bytes: usize| {
                use tokio_stream::StreamExt;
                let (memory, start) = (memory.clone(), Ok::<_, std::io::Error>(Bytes::from(vec![b' '; bytes])));
                let body = tokio_stream::once(start).chain(tokio_stream::pending());
                tokio::spawn(async move { memory.receive(client, request(Body::from_stream(body))).await })
            };
            let honest = || async {
                let began = Instant::now();
                let received = memory.receive(0, request(Body::from(vec![b' '; MOST_BYTES]))).await;
                assert!(received.is_ok());
                began.elapsed()
            };
            // One client keeps others from nothing.
            let mut tasks: Vec<_> = (0..500).map(|at| slow(1, if at < 300 { 1 } else { SMALL + 1 })).collect();
            tokio::time::sleep(Duration::from_millis(100)).await;
            let time = honest().await;
            assert!(time < Duration::from_secs(1), "{time:?}");
            // Several clients give way.
            tasks.extend((2..8).map(|client| slow(client, SMALL + 1)));
            tokio::time::sleep(Duration::from_millis(100)).await;
            let time = honest().await;
            assert!(time < BODY_TIME / 2, "{time:?}");
            tasks.into_iter().for_each(|task| task.abort());
        });
    }

    #[test]
    fn unsent_responses_are_bounded() {
        let memory = RequestMemory::default();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let _inside = runtime.enter();
        let mut connections = Connections::default();
        let task = runtime.spawn(std::future::pending::<()>());
        let slot = connections.add([127, 0, 0, 1].into());
        slot.is_served_by(task.abort_handle());
        let large = memory.response("x".repeat(100 << 20), Some(slot)).unwrap();
        // The connection of the largest response is closed, which makes room for another response.
        let other = memory.response("x".repeat(40 << 20), None).unwrap();
        runtime.block_on(async { assert!(task.await.unwrap_err().is_cancelled()) });
        drop(large);
        // If a new response would be larger than all responses in memory, it is refused instead of dropping another
        // response.
        assert!(memory.response("x".repeat(100 << 20), None).is_none());
        drop(other);
        assert_eq!(memory.answers.used.load(Ordering::Relaxed), 0);
        assert!(memory.answers.meters().is_empty());
    }

    #[test]
    fn events_count_until_they_are_sent() {
        let memory = RequestMemory::default();
        let (out, mut unsent) = mailbox(memory.meter(true));
        out.send(token("a"));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (_, first) = runtime.block_on(unsent.recv_unsent()).unwrap();
        out.send(token("a"));
        let (_, second) = runtime.block_on(unsent.recv_unsent()).unwrap();
        let mut both = first;
        both.join(second);
        assert_eq!(memory.answers.used.load(Ordering::Relaxed), 2 * bytes(&token("a")));
        drop(both);
        assert_eq!(memory.answers.used.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn values_of_bodies_are_counted() {
        assert_eq!(weight(br#"{"a,[": [1, 2, ""," ], "b": {}}"#), 4 + 4 + 4 + 1 + 1 + 4 + 1 + 4 + 4);
        assert!(weight(&b"{\"a\":0},".repeat(200_000)) > MOST_WEIGHT && weight(&b"1,".repeat(500_000)) < MOST_WEIGHT);
    }
}
