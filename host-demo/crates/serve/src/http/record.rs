//! Records of requests: their identifier, a line in the log, and histograms. No text of a request is recorded.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant, SystemTime};

use arenite_run::service::by_chance;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;
use serde::Serialize;

use arenite_text::shown::{log_json, log_line};

/// Header of a request to the process of a model. It has the secret of the server's process, and the client's address.
pub const CLIENT: HeaderName = HeaderName::from_static("x-arenite-client");
pub const ID: HeaderName = HeaderName::from_static("x-request-id");
/// Maximum length of a client's own identifier.
const MOST_ID: usize = 128;
/// Maximum number of lines that wait for the log's reader. Further lines are dropped, so that a slow reader neither
/// delays requests nor fills the memory.
const WAITING: usize = 1024;

/// The format of lines in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Plain text
    Text,
    /// One JSON object
    Json,
}

impl LogFormat {
    /// All formats by name.
    pub const ALL: [(&str, Self); 2] = [("text", Self::Text), ("json", Self::Json)];
}

/// Writes lines in a separate thread, because the program that reads the log may be slow.
#[derive(Clone)]
pub struct Log {
    format: LogFormat,
    lines: SyncSender<String>,
}

impl Log {
    /// Starts the thread, which writes to `to`.
    pub fn new(format: LogFormat, mut to: impl Write + Send + 'static) -> Self {
        let (lines, waiting) = sync_channel::<String>(WAITING);
        std::thread::spawn(move || {
            for line in waiting {
                let _ = to.write_all(line.as_bytes());
            }
        });
        Self { format, lines }
    }
}

/// One request, from its head to the end of its answer. Dropping the last reference writes the log line.
pub struct Record {
    log: Option<Log>,
    id: String,
    method: String,
    path: String,
    began: Instant,
    status: AtomicU16,
    prompt_tokens: AtomicUsize,
    answer_tokens: AtomicUsize,
    /// Microseconds to the first token; 0 if there is none yet.
    first: AtomicU64,
    /// True if the process of the model writes this log line.
    is_passed_on: AtomicBool,
}

#[derive(Serialize)]
struct Line<'r> {
    time: String,
    id: &'r str,
    method: &'r str,
    path: &'r str,
    status: u16,
    seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_token_seconds: Option<f64>,
    prompt_tokens: usize,
    answer_tokens: usize,
}

impl Record {
    fn new(log: Option<Log>, id: String, request: &Request<Body>) -> Self {
        let mut record = Self::none();
        (record.log, record.id, record.method) = (log, id, request.method().to_string());
        // Without the query, because it may contain a key.
        record.path = request.uri().path().chars().take(200).collect();
        record
    }

    /// A record without a line in the log.
    pub fn none() -> Self {
        Self {
            log: None,
            id: String::new(),
            method: String::new(),
            path: String::new(),
            began: Instant::now(),
            status: 0.into(),
            prompt_tokens: 0.into(),
            answer_tokens: 0.into(),
            first: 0.into(),
            is_passed_on: false.into(),
        }
    }

    /// The request's identifier.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Leaves the log line to the process of the model. Returns the request's identifier.
    pub fn pass_on(&self) -> &str {
        self.is_passed_on.store(true, Ordering::Relaxed);
        &self.id
    }

    /// Adds the tokens of a finished answer.
    pub fn answered(&self, prompt: usize, answer: usize) {
        self.prompt_tokens.fetch_max(prompt, Ordering::Relaxed);
        self.answer_tokens.fetch_add(answer, Ordering::Relaxed);
    }

    /// Notes the time of the first token. Returns the time since the request; `None` if the request already had a
    /// token.
    pub fn first_token(&self) -> Option<Duration> {
        let time = self.began.elapsed();
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX).max(1);
        self.first.compare_exchange(0, micros, Ordering::Relaxed, Ordering::Relaxed).is_ok().then_some(time)
    }

    fn line(&self, format: LogFormat) -> String {
        let first = self.first.load(Ordering::Relaxed);
        let line = Line {
            time: jiff::Timestamp::try_from(SystemTime::now()).map(|time| format!("{time:.3}")).unwrap_or_default(),
            id: &self.id,
            method: &self.method,
            path: &self.path,
            status: self.status.load(Ordering::Relaxed),
            seconds: self.began.elapsed().as_secs_f64(),
            first_token_seconds: (first > 0).then_some(first as f64 / 1e6),
            prompt_tokens: self.prompt_tokens.load(Ordering::Relaxed),
            answer_tokens: self.answer_tokens.load(Ordering::Relaxed),
        };
        match format {
            LogFormat::Json => log_json(&serde_json::to_string(&line).unwrap_or_default()),
            LogFormat::Text => {
                let Line { time, id, method, path, status, seconds, prompt_tokens, answer_tokens, .. } = line;
                log_line(&format!(
                    "{time} {method} {path} {status} {seconds:.3} s, {prompt_tokens} + {answer_tokens} tokens, request {id}"
                ))
            }
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        if let Some(log) = &self.log
            && !self.is_passed_on.load(Ordering::Relaxed)
        {
            let _ = log.lines.try_send(self.line(log.format));
        }
    }
}

/// Gives each request a record, and adds the request's identifier to the answer.
pub async fn record(State(log): State<Option<Log>>, mut request: Request<Body>, next: Next) -> Response {
    let given = request.headers().get(ID).filter(|id| id.len() <= MOST_ID).and_then(|id| id.to_str().ok());
    // The identifier must consist of graphic characters, because an identifier with spaces could look like several
    // fields of the log.
    let given = given.filter(|id| !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_graphic()));
    let id = given.map_or_else(|| format!("{:016x}", by_chance()), str::to_string);
    let record = Arc::new(Record::new(log, id, &request));
    request.extensions_mut().insert(record.clone());
    let mut response = next.run(request).await;
    record.status.store(response.status().as_u16(), Ordering::Relaxed);
    if let Ok(id) = HeaderValue::from_str(&record.id) {
        response.headers_mut().insert(ID, id);
    }
    response
}
