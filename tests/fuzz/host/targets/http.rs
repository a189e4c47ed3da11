//! Any HTTP request to any route gets a complete answer, and no status of 500 or more. Messages of errors have one
//! line.
//!
//! A thread answers in place of the engine.
#![no_main]

use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, LazyLock};

use arbitrary::Arbitrary;
use arenite_run::RunOptions;
use arenite_run::decide::{Reading, Scored};
use arenite_run::drafts::DraftCounts;
use arenite_run::model_file::ModelFile;
use arenite_run::open_model::OpenModel;
use arenite_run::scheduler::{Command, Counters, Event, Finish, SlotAnswer, Times};
use arenite_run::service::Host;
use arenite_serve::{App, Gate, Transcription, router};
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::Request;
use fuzz::list::List;
use fuzz_host::{Edits, Words};
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tower::ServiceExt;

static ROUTES: LazyLock<Router> = LazyLock::new(|| {
    let file = ModelFile::from_static("built-in", include_bytes!("../../../../host-demo/models/stories.gguf"), false);
    let options = RunOptions { context: Some(256), threads: 1, ..RunOptions::default() };
    let Host { service, .. } =
        Host::new(OpenModel::new(file, options).expect("a correct file"), true).expect("a model of text");
    let (commands, received) = channel();
    let embedding = service.embedding_len;
    std::thread::spawn(move || answer(&received, embedding));
    let (transcriptions, sounds) = channel();
    std::thread::spawn(move || transcribe(&sounds));
    let app = App {
        most_open: 8,
        parallel: 2,
        hears: true,
        ..App::new(service, commands, transcriptions, Arc::<Counters>::default())
    };
    let gate = Gate::new([127, 0, 0, 1].into(), "localhost", vec![]);
    router(Arc::new(app), vec![], gate)
});

static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime"));

const TEXTS: [&str; 8] = [
    "Once",
    " upon",
    "<think>a</think>",
    "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>",
    "\"\\",
    "\u{fdd0}",
    "é",
    "",
];

/// Answers all commands until their senders are dropped.
fn answer(commands: &Receiver<Command>, embedding: usize) {
    while let Ok(command) = commands.recv() {
        match command {
            Command::Generate(job) => {
                for text in TEXTS.iter().take(1 + job.prompt.len() % TEXTS.len()) {
                    job.client.send(Event::Token { id: 0, text: (*text).into(), logprob: None });
                }
                let (prompt, answer) = (job.prompt.len(), 3);
                job.client.send(Event::Done {
                    end: Finish::Length,
                    stop: None,
                    text: "end".into(),
                    prompt,
                    cached: 0,
                    answer,
                    slot: 0,
                    read: prompt + answer,
                    is_full: false,
                    drafts: DraftCounts::default(),
                    times: Times::default(),
                });
            }
            Command::Decide(decision) => {
                let scores = |reading: &Reading| match &reading.scored {
                    Scored::Labels(labels) => vec![0.5; labels.len()],
                    _ => Vec::new(),
                };
                decision.answer.send(Ok(decision.readings.iter().map(scores).collect()));
            }
            Command::Slots(request) => request.answer.send(Ok(SlotAnswer::Slots(Vec::new()))),
            Command::Embed(text) => text.answer.send(Ok(vec![0.5; embedding])),
        }
    }
}

/// Transcribes all sounds until their senders are dropped.
fn transcribe(sounds: &Receiver<Transcription>) {
    while let Ok(job) = sounds.recv() {
        _ = job.answer.send(Ok("{\"text\": \"a\"}".into()));
    }
}

/// Paths, each with a correct body.
static REQUESTS: LazyLock<Vec<(&str, Value)>> = LazyLock::new(|| {
    let function = json!({ "name": "f", "description": "d", "parameters": { "type": "object", "properties": { "a": { "type": "integer" } } } });
    let tools = json!([{ "type": "function", "function": function }]);
    let call = json!([{ "id": "1", "type": "function", "function": { "name": "f", "arguments": "{}" } }]);
    let messages = json!([
        { "role": "system", "content": "a" }, { "role": "user", "content": [{ "type": "text", "text": "b" }] },
        { "role": "assistant", "content": null, "tool_calls": call }, { "role": "tool", "tool_call_id": "1", "content": "c" },
    ]);
    let options = json!({ "num_predict": 3, "temperature": 0.5, "stop": ["a"], "seed": 1, "num_ctx": 256, "top_k": 3 });
    let used = json!({ "type": "tool_use", "id": "1", "name": "f", "input": {} });
    vec![
        (
            "/v1/chat/completions",
            json!({ "messages": messages, "tools": tools, "max_tokens": 3, "stream": true, "n": 2, "stop": "a" }),
        ),
        (
            "/v1/completions",
            json!({ "prompt": ["a", "b"], "max_tokens": 3, "logprobs": 2, "echo": true, "grammar": "root ::= [a-z]+" }),
        ),
        (
            "/v1/responses",
            json!({ "input": "a", "instructions": "b", "stream": true, "text": { "format": { "type": "text" } } }),
        ),
        ("/v1/embeddings", json!({ "input": ["a", "b"], "encoding_format": "base64", "dimensions": 8 })),
        (
            "/v1/rerank",
            json!({ "query": "a", "documents": ["b", { "text": "c" }], "top_n": 1, "return_documents": true }),
        ),
        ("/tokenize", json!({ "content": "a", "add_special": true })),
        ("/detokenize", json!({ "tokens": [1, 2, 3] })),
        (
            "/v1/messages",
            json!({
                "max_tokens": 3, "system": [{ "type": "text", "text": "a", "cache_control": { "type": "ephemeral" } }], "stream": true,
                "messages": [
                    { "role": "user", "content": "b" }, { "role": "assistant", "content": [used] },
                    { "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "1", "content": "c" }] },
                ],
                "tools": [{ "name": "f", "input_schema": { "type": "object" } }], "tool_choice": { "type": "auto" }, "stop_sequences": ["a"],
            }),
        ),
        ("/v1/messages/count_tokens", json!({ "messages": [{ "role": "user", "content": "b" }], "max_tokens": 1 })),
        (
            "/api/chat",
            json!({ "messages": messages, "tools": tools, "options": options, "stream": false, "keep_alive": "5m" }),
        ),
        (
            "/api/generate",
            json!({ "prompt": "a", "system": "b", "options": options, "raw": true, "format": "json", "think": false }),
        ),
        ("/api/embed", json!({ "input": ["a", "b"], "truncate": true })),
        ("/api/show", json!({ "model": "built-in" })),
        ("/apply-template", json!({ "messages": messages })),
        (
            "/infill",
            json!({ "input_prefix": "a", "input_suffix": "b", "input_extra": [{ "filename": "c", "text": "d" }] }),
        ),
        ("/lora-adapters", json!([{ "id": 0, "scale": 0.5 }])),
        ("/v1/models", Value::Null),
        ("/v1/models/built-in", Value::Null),
        ("/props", Value::Null),
        ("/metrics", Value::Null),
        ("/health", Value::Null),
        ("/", Value::Null),
    ]
});

/// Words of multipart forms that contain a sound.
const FORM: &[&str] = &[
    "--x\r\n",
    "--x--\r\n",
    "\r\n",
    "Content-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\n",
    "Content-Disposition: form-data; name=\"model\"\r\n\r\n",
    "Content-Disposition: form-data; name=\"response_format\"\r\n\r\n",
    "Content-Disposition: form-data; name=\"temperature\"\r\n\r\n",
    "Content-Disposition: form-data; name=\"language\"\r\n\r\n",
    "Content-Type: audio/wav\r\n",
    "RIFF",
    "whisper-1",
    "built-in",
    "json",
    "verbose_json",
    "srt",
    "0.5",
    "en",
];

#[rustfmt::skip]
const HEADERS: &[(&str, &str)] = &[
    ("host", "localhost"), ("host", "elsewhere.example"), ("origin", "http://localhost:3000"), ("origin", "null"),
    ("content-type", "application/json"), ("content-type", "text/plain"), ("content-type", "multipart/form-data; boundary=x"),
    ("content-length", "7"), ("content-length", "99999999"), ("content-encoding", "gzip"), ("content-encoding", "identity"),
    ("authorization", "Bearer x"), ("x-api-key", "x"), ("anthropic-version", "2023-06-01"), ("accept", "text/event-stream"),
    ("x-request-id", "a"), ("x-arenite-client", "1.2.3.4"), ("transfer-encoding", "chunked"), ("expect", "100-continue"),
];

#[derive(Arbitrary, Debug)]
struct Case {
    request: u8,
    method: u8,
    headers: List<u8, 4>,
    edits: Edits,
    form: Option<(bool, Words<16>)>,
    query: Option<String>,
}

impl Case {
    fn request(&self) -> Option<Request<Body>> {
        let (path, body) = &REQUESTS[usize::from(self.request) % REQUESTS.len()];
        let mut request = Request::builder();
        let (mut path, mut bytes) = ((*path).to_string(), vec![]);
        if !body.is_null() {
            bytes = self.edits.bytes(body.clone());
        }
        if let Some((translates, words)) = &self.form {
            path = format!("/v1/audio/{}", if *translates { "translations" } else { "transcriptions" });
            bytes = words.text(FORM).into_bytes();
            request = request.header("content-type", "multipart/form-data; boundary=x");
        }
        if let Some(query) = &self.query {
            path = format!("{path}?{query}");
        }
        let usual = if body.is_null() && self.form.is_none() { "GET" } else { "POST" };
        request =
            request.method(*["GET", "POST", "HEAD", "OPTIONS", "PUT"].get(usize::from(self.method)).unwrap_or(&usual));
        for at in self.headers.iter() {
            let (name, value) = HEADERS[usize::from(*at) % HEADERS.len()];
            request = request.header(name, value);
        }
        request.uri(path).body(Body::from(bytes)).ok()
    }
}

fuzz_target!(|case: Case| {
    let Some(request) = case.request() else { return };
    RUNTIME.block_on(async {
        let response = ROUTES.clone().oneshot(request).await.expect("it always answers");
        let status = response.status().as_u16();
        let body = to_bytes(response.into_body(), usize::MAX).await.expect("a complete body");
        assert!(status < 500, "{status}: {}", String::from_utf8_lossy(&body));
        if let Ok(answer) = serde_json::from_slice::<Value>(&body)
            && let Some(message) = answer["error"]["message"].as_str().or(answer["error"].as_str())
        {
            assert!(status >= 400 && !message.is_empty() && !message.contains('\n'), "{status}: {message}");
        }
    });
});
