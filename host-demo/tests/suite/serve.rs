//! `arenite serve`: each client gets the same answer as if it were the only client, and no client can block the others.
//! `tests/serving` has longer checks.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::PATIENCE;

pub struct Server {
    process: Child,
    address: String,
    /// Headers of all requests.
    pub headers: &'static str,
    /// File that receives the server's standard error.
    log: PathBuf,
}

impl Server {
    pub fn start(more: &[&str]) -> Self {
        Self::start_with(&[&["-c", "256"], more].concat())
    }

    pub fn start_with(args: &[&str]) -> Self {
        Self::start_by(Command::new(env!("CARGO_BIN_EXE_arenite")), args)
    }

    /// Starts a server whose address space is limited to `bytes` bytes.
    #[cfg(target_os = "linux")]
    pub fn start_within(bytes: usize, args: &[&str]) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit -v {} && exec \"$0\" \"$@\"", bytes >> 10)]);
        command.arg(env!("CARGO_BIN_EXE_arenite"));
        Self::start_by(command, args)
    }

    fn start_by(mut command: Command, args: &[&str]) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("serve-{}-{}.log", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let log = std::env::temp_dir().join(name);
        let mut process = command
            .args(["serve", "--port", "0"])
            .args(args)
            .stdout(Stdio::piped())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on http://").unwrap().to_string();
        Self { process, address, headers: "", log }
    }

    pub fn id(&self) -> u32 {
        self.process.id()
    }

    pub fn port(&self) -> &str {
        self.address.rsplit(':').next().unwrap()
    }

    /// Waits for the end of the process.
    pub fn wait(&mut self) -> std::process::ExitStatus {
        self.process.wait().unwrap()
    }

    /// The server's standard error so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    pub fn connect(&self) -> TcpStream {
        let socket = TcpStream::connect(&self.address).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    }

    /// Sends a request. Returns the head and the body of the response; both are empty if the connection was closed
    /// before the end of the head.
    pub fn ask(&self, method: &str, path: &str, headers: &str, body: &[u8]) -> (String, String) {
        let mut socket = self.connect();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{}{headers}Content-Length: {}\r\n\r\n",
            self.headers,
            body.len()
        );
        let _ = socket.write_all(head.as_bytes()).and_then(|()| socket.write_all(body));
        let mut answer = Vec::new();
        if let Err(error) = socket.read_to_end(&mut answer) {
            assert!(
                !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
                "no answer from {path}: {error}"
            );
        }
        let answer = String::from_utf8(answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
        (head.into(), body.into())
    }

    pub fn post(&self, path: &str, body: &[u8]) -> (u16, Value) {
        let (head, body) = self.ask("POST", path, "", body);
        let status = head.split(' ').nth(1).map_or(0, |status| status.parse().unwrap());
        (status, serde_json::from_str(&body).unwrap_or(Value::Null))
    }

    fn answer(&self, body: &Value) -> Value {
        let (status, answer) = self.post("/v1/completions", body.to_string().as_bytes());
        assert_eq!(status, 200, "{answer}");
        answer
    }

    pub fn text(&self, body: &Value) -> String {
        self.answer(body)["choices"][0]["text"].as_str().unwrap().into()
    }

    pub fn metric(&self, name: &str) -> u64 {
        let (_, text) = self.ask("GET", "/metrics", "", b"");
        let name = format!("arenite_{name} ");
        text.lines().find_map(|line| line.strip_prefix(&name)).unwrap().parse().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_file(&self.log);
    }
}

pub fn good() -> Value {
    json!({ "prompt": "Once upon a time", "max_tokens": 8, "temperature": 0 })
}

#[test]
fn answers_are_those_that_come_alone() {
    let server = Server::start(&["--parallel", "3", "--cache-scope", "server"]);
    let schema = json!({ "type": "object", "properties": { "n": { "type": "integer", "minimum": 0, "maximum": 99 } }, "required": ["n"] });
    let kinds = [
        good(),
        json!({ "prompt": "The dog said", "max_tokens": 12, "seed": 3 }),
        json!({ "prompt": "word ".repeat(60), "max_tokens": 3, "temperature": 0 }),
        json!({ "prompt": "A number:", "max_tokens": 60, "seed": 5, "temperature": 1.5,
                "response_format": { "type": "json_schema", "json_schema": { "schema": schema } } }),
    ];
    let alone: Vec<String> = kinds.iter().map(|kind| server.text(kind)).collect();
    std::thread::scope(|scope| {
        for seed in 0..12 {
            let (server, kinds, alone) = (&server, &kinds, &alone);
            scope.spawn(move || {
                for i in 0..6 {
                    let kind = (seed + i * i) % kinds.len();
                    if (seed + i) % 5 == 0 {
                        // This client disconnects before the end of the answer.
                        let mut body = kinds[kind].clone();
                        body["stream"] = json!(true);
                        let body = body.to_string();
                        let mut socket = server.connect();
                        let head = format!(
                            "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n",
                            body.len()
                        );
                        socket.write_all((head + &body).as_bytes()).unwrap();
                        socket.read_exact(&mut [0; 20]).unwrap();
                    } else {
                        assert_eq!(server.text(&kinds[kind]), alone[kind]);
                    }
                }
            });
        }
    });
    assert_eq!(server.text(&kinds[0]), alone[0]);
    // A client that has disconnected holds no resources.
    let is_idle = || server.metric("answers_running") == 0 && server.metric("requests_open") == 0;
    let mut looks = 0;
    while !is_idle() {
        looks += 1;
        assert!(looks < 1200);
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_common_beginning_is_read_once() {
    let mut server = Server::start(&["--parallel", "2", "--api-key", "secret"]);
    server.headers = "Authorization: bearer secret\r\n";
    let beginning = "a b c d e f g h ".repeat(10);
    let ask = |end: &str| {
        let before = server.metric("prompt_tokens_total");
        let body = json!({ "prompt": format!("{beginning}{end}"), "max_tokens": 2, "temperature": 0 });
        let usage = server.answer(&body)["usage"].clone();
        let cached = usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
        (usage["prompt_tokens"].as_u64().unwrap(), cached, server.metric("prompt_tokens_total") - before)
    };
    let (first, cached, computed) = ask("The cat");
    assert!(first > 80 && cached == 0 && computed == first);
    let (second, cached, computed) = ask("A dog and a bird");
    assert!(cached > 80 && computed == second - cached && computed < 16, "{second} {cached} {computed}");
    // The same request is sent again, as when a user has the answer regenerated.
    assert_eq!(ask("A dog and a bird").2, 1);
}

#[test]
fn bad_requests_are_refused_and_the_next_is_served() {
    let server = Server::start(&["--parallel", "2"]);
    let said = server.text(&good());
    let long = format!("{{\"prompt\": \"{}\"}}", "word ".repeat(1000));
    let huge = vec![b'x'; 10_000_000];
    for (body, path, status) in [
        (&b"{"[..], "/v1/completions", 400),
        (b"", "/v1/chat/completions", 400),
        (b"\xff", "/v1/completions", 400),
        (b"{\"messages\": 3}", "/v1/chat/completions", 400),
        (b"{\"prompt\": 3}", "/v1/completions", 400),
        (b"{\"prompt\": \"x\", \"max_tokens\": \"many\"}", "/v1/completions", 400),
        (b"{\"prompt\": \"x\", \"model\": \"gpt\"}", "/v1/completions", 404),
        (b"{\"prompt\": \"x\", \"response_format\": {\"type\": \"json_schema\", \"json_schema\": {\"schema\": {\"not\": {}}}}}", "/v1/completions", 400),
        (long.as_bytes(), "/v1/completions", 400),
        (b"{}", "/v1/other", 404),
        (b"{}", "/v1/models", 405),
        (&huge, "/v1/completions", 413),
    ] {
        let (found, answer) = server.post(path, body);
        // A body that is too long may be refused before the client has sent all of it.
        assert!(found == status || (status == 413 && found == 0), "{path} {status}: {found} {answer}");
        assert!(found == 0 || answer["error"]["message"].is_string() && answer["error"]["type"].is_string(), "{answer}");
        assert_eq!(server.text(&good()), said);
    }
    // The test opens more connections than the server allows, and sends no complete request on any of them.
    let halves =
        [&b""[..], b"POST /v1/comp", b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{"];
    let held: Vec<TcpStream> = (0..600)
        .map(|i| {
            let mut socket = server.connect();
            let _ = socket.write_all(halves[i % 3]);
            socket
        })
        .collect();
    assert_eq!(server.text(&good()), said);
    drop(held);
    assert_eq!(server.text(&good()), said);
}

#[test]
fn bodies_that_are_no_objects_are_refused() {
    let server = Server::start(&[]);
    for body in ["7", "[]", "true", "\"a\""] {
        for path in ["/api/embed", "/api/embeddings", "/infill", "/v1/completions", "/v1/messages", "/v2/rerank"] {
            let (status, answer) = server.post(path, body.as_bytes());
            assert!(status == 400 && answer.to_string().contains("must be a JSON object"), "{path} {body}: {answer}");
        }
    }
}

#[test]
fn flags_of_llama_server_work() {
    let plain = Server::start(&[]);
    let mut ask = json!({ "prompt": "The sun", "max_tokens": 8, "seed": 3, "temperature": 0 });
    let greedy = plain.text(&ask);
    ask["temperature"] = json!(1.5);
    let warm = plain.text(&ask);
    assert_ne!(warm, greedy);
    let args =
        ["-ngl", "99", "-np", "3", "-fa", "on", "--jinja", "-cb", "--no-webui", "-a", "tiny, small", "--temp", "0"];
    let server = Server::start(&[&args[..], &["--template", "chatml"]].concat());
    let props: Value = serde_json::from_str(&server.ask("GET", "/props", "", b"").1).unwrap();
    assert_eq!((&props["total_slots"], &props["model_alias"]), (&json!(3), &json!("tiny")));
    for (model, status) in [("tiny", 200), ("small", 200), ("other", 404)] {
        ask["model"] = json!(model);
        assert_eq!(server.post("/v1/completions", ask.to_string().as_bytes()).0, status, "{model}");
    }
    ask.as_object_mut().unwrap().remove("model");
    assert_eq!(props["default_generation_settings"]["params"]["temperature"], json!(0.0));
    assert_eq!(server.text(&ask), warm, "the request's temperature");
    ask.as_object_mut().unwrap().remove("temperature");
    assert_eq!(server.text(&ask), greedy, "the server's temperature");
    let options = json!({ "num_predict": 8 });
    let ollama = json!({ "prompt": "The sun", "raw": true, "stream": false, "options": options });
    let (_, answer) = server.post("/api/generate", ollama.to_string().as_bytes());
    assert_eq!(answer["response"], greedy.as_str(), "the server's temperature in Ollama's format");
    let chat = json!({ "messages": [{ "role": "user", "content": "a" }] }).to_string();
    let prompt = "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n";
    assert_eq!(server.post("/apply-template", chat.as_bytes()).1["prompt"], prompt);
    // A context of 0 means the model's own.
    let own = Server::start_with(&["-c", "0"]);
    let props: Value = serde_json::from_str(&own.ask("GET", "/props", "", b"").1).unwrap();
    assert_eq!(props["default_generation_settings"]["n_ctx"], json!(512));
}

/// The expected pieces come from llama.cpp's `llama_token_to_piece`.
#[test]
fn tokens_with_their_pieces() {
    let server = Server::start(&[]);
    let body = json!({ "content": "One \u{e9} day", "with_pieces": true }).to_string();
    let (_, answer) = server.post("/tokenize", body.as_bytes());
    assert_eq!(
        answer["tokens"],
        json!([
            { "id": 455, "piece": " One" },
            { "id": 1989, "piece": " " },
            { "id": 198, "piece": [0xc3] },
            { "id": 172, "piece": [0xa9] },
            { "id": 371, "piece": " day" },
        ])
    );
    let long = json!({ "content": "One ".repeat(300), "with_pieces": true }).to_string();
    assert_eq!(server.post("/tokenize", long.as_bytes()).0, 400);
    let (status, answer) = server.post("/v1/completions", json!({ "prompt": [1, 2048] }).to_string().as_bytes());
    assert!(status == 400 && answer.to_string().contains("2048 is not a token"), "{answer}");
}

#[test]
fn embeddings_in_unknown_formats_are_refused() {
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/nomic_bert/model.gguf");
    let server = Server::start_with(&["-m", model]);
    for (format, status) in [("float", 200), ("base64", 200), ("int8", 400)] {
        let body = json!({ "input": "a", "encoding_format": format }).to_string();
        assert_eq!(server.post("/v1/embeddings", body.as_bytes()).0, status, "{format}");
    }
}

/// A request is limited in the number of its settings, such as biases, and in the cost of its grammar.
#[test]
fn what_one_request_brings_is_limited() {
    let server = Server::start(&["--parallel", "2"]);
    let said = server.text(&good());
    let biases: serde_json::Map<_, _> = (0..1025).map(|i| (format!("{i:05}"), json!(1))).collect();
    let schema = json!({ "properties": { "when": { "pattern": "^((a{1,200}){1,200}){1,200}$" } } });
    let function = json!({ "type": "function", "function": { "name": "f", "parameters": schema, "strict": true } });
    for (key, value, says) in [
        ("prompt", json!(vec!["a"; 129]), "prompt has 129 texts, and at most 128 are possible in one request"),
        ("n", json!(129), "n is 129, and 1 to 128 are possible"),
        ("n", json!(usize::MAX), "1 to 128 are possible"),
        ("stop", json!(vec!["x"; 65]), "stop has 65 texts, and at most 64 are possible"),
        ("stop", json!("x".repeat(513)), "a text in stop has 513 bytes, and at most 512 are possible"),
        ("logit_bias", json!(biases), "logit_bias names more than 1024 tokens"),
        (
            "response_format",
            json!({ "type": "json_schema", "json_schema": { "schema": schema } }),
            "response_format: $.properties.when: this is too",
        ),
        ("grammar", json!("root ::= ((((([^x]*){0,99}){0,99}){0,99}){0,99}){0,99}"), "grammar: 1:1: this is too"),
        ("grammar", json!(format!("root ::= \"a\"{}", "?".repeat(1_000_000))), "nested repetitions"),
        ("tools", json!([function]), "tools: $"),
    ] {
        let mut body = good();
        let mut path = "/v1/completions";
        if key == "tools" {
            path = "/v1/chat/completions";
            body = json!({ "messages": [{ "role": "user", "content": "x" }], "tool_choice": "required" });
        }
        body[key] = value;
        let (status, answer) = server.post(path, body.to_string().as_bytes());
        let error = &answer["error"];
        let message = error["message"].as_str().unwrap_or_default();
        assert!(status == 400 && message.contains(says) && message.len() < 1000, "{key}: {answer}");
        assert_eq!((&error["param"], &error["type"]), (&json!(key), &json!("invalid_request_error")));
        assert_eq!(server.text(&good()), said);
    }
    let many = json!({ "prompt": vec!["a"; 65], "n": 2, "max_tokens": 1 });
    let (status, answer) = server.post("/v1/completions", many.to_string().as_bytes());
    assert!(status == 400 && answer["error"]["param"] == "prompt", "{answer}");
    let unknown = json!({ "prompt": "a", "model": "m".repeat(100_000) });
    let (status, answer) = server.post("/v1/completions", unknown.to_string().as_bytes());
    assert!(status == 404 && answer["error"]["message"].as_str().unwrap().len() < 1100);
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/bert_reranker/model.gguf");
    let reranker = Server::start(&["-m", file, "--kv", "f32"]);
    for (server, path, key, body) in [
        (&reranker, "/v1/rerank", "documents", json!({ "query": "a", "documents": vec!["b"; 2049] })),
        (&server, "/v1/embeddings", "input", json!({ "input": vec!["b"; 2049] })),
    ] {
        let (status, answer) = server.post(path, body.to_string().as_bytes());
        let error = &answer["error"];
        assert!(status == 400 && error["param"] == key, "{answer}");
        assert!(error["message"].as_str().unwrap().contains("has 2049 texts, and at most 2048"), "{answer}");
    }
}

#[test]
fn keys_and_origins() {
    let server = Server::start(&["--api-key", "secret", "--cors-origin", "https://a.example"]);
    let body = good().to_string();
    assert_eq!(server.post("/v1/completions", body.as_bytes()).0, 401);
    let headers = "Authorization: Bearer secret\r\nOrigin: https://a.example\r\n";
    let (head, _) = server.ask("POST", "/v1/completions", headers, body.as_bytes());
    assert!(
        head.starts_with("HTTP/1.1 200") && head.contains("access-control-allow-origin: https://a.example"),
        "{head}"
    );
    // Browsers send a preflight request, without the key.
    let headers = "Origin: https://a.example\r\nAccess-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: x-stainless-os\r\n";
    let (head, _) = server.ask("OPTIONS", "/v1/completions", headers, b"");
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("access-control-allow-headers"), "{head}");
    let headers = "Origin: https://b.example\r\nAccess-Control-Request-Method: POST\r\n";
    let (head, _) = server.ask("OPTIONS", "/v1/completions", headers, b"");
    assert!(!head.contains("https://b.example"), "{head}");
    drop(server);
    let server = Server::start(&["--cors-origin", "chrome-extension://*", "--cors-origin", "HTTPS://a.example:8000/"]);
    for (origin, status) in [
        ("chrome-extension://abc", "200"),
        ("https://a.example:8000", "200"),
        ("moz-extension://abc", "403"),
        ("https://b.example", "403"),
        ("xchrome-extension://abc", "403"),
    ] {
        let head = server.ask("POST", "/v1/completions", &format!("Origin: {origin}\r\n"), body.as_bytes()).0;
        assert_eq!(&head[9..12], status, "{origin}: {head}");
        let allowed = format!("access-control-allow-origin: {origin}\r\n");
        assert_eq!(head.contains(&allowed), status == "200", "{origin}: {head}");
    }
    for origin in
        ["https://x.org/path", "x.org", "https://*.x.org", "http://localhost:*", "https://a.org, https://b.org", ""]
    {
        let output = crate::common::arenite(&["serve", "--port", "0", "--cors-origin", origin]);
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && error.contains("an origin is a scheme and a host"), "{error}");
    }
}

#[test]
fn keys_are_separated_by_commas_and_none_is_empty() {
    let server = Server::start(&["--api-key", "one, two"]);
    let body = good().to_string();
    for (key, is_known) in [("one", true), ("two", true), ("one, two", false), ("", false), ("three", false)] {
        let head =
            server.ask("POST", "/v1/completions", &format!("Authorization: Bearer {key}\r\n"), body.as_bytes()).0;
        assert_eq!(head.starts_with("HTTP/1.1 200"), is_known, "{key}: {head}");
    }
    for (args, said) in [
        (["--api-key", ""], "the key is empty: give one, or leave out --api-key"),
        (["--api-key", "a,,b"], "the key is empty"),
        (["--host", "/run/arenite.sock"], "unix sockets are not supported: give an address"),
    ] {
        let output = crate::common::arenite(&[&["serve", "--port", "0"], &args[..]].concat());
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && error.contains(said), "{args:?}: {error}");
    }
    if std::net::TcpListener::bind("[::1]:0").is_ok() {
        let mut command = Command::new(env!("CARGO_BIN_EXE_arenite"));
        let mut child =
            command.args(["serve", "--host", "[::1]", "--port", "0"]).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let _ = child.kill();
        let _ = child.wait();
        assert!(line.starts_with("listening on http://[::1]:"), "{line}");
    }
}

/// RFC 1952, 2.2: a file consists of several members.
#[test]
fn a_body_of_several_gzip_members_is_read_to_its_end() {
    use std::io::Write;
    let server = Server::start(&[]);
    let member = |text: &[u8]| {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(text).unwrap();
        packed.finish().unwrap()
    };
    let body = good().to_string().into_bytes();
    let (first, last) = body.split_at(body.len() / 2);
    for (members, status) in [([first, last], "200"), ([&body[..], b"garbage"], "400")] {
        let packed = members.map(member).concat();
        let head = server.ask("POST", "/v1/completions", "Content-Encoding: gzip\r\n", &packed).0;
        assert_eq!(head.split(' ').nth(1), Some(status), "{head}");
    }
}

#[test]
fn a_generator_computes_the_embeddings_of_the_command_line() {
    let server = Server::start(&[]);
    let (status, answer) = server.post("/v1/embeddings", br#"{"input": ["The sea", "A dog"]}"#);
    assert_eq!(status, 200, "{answer}");
    for (at, text) in ["The sea", "A dog"].iter().enumerate() {
        let wanted = crate::common::json(&["embed", "-p", text]);
        let (made, wanted) = (answer["data"][at]["embedding"].as_array().unwrap(), wanted.as_array().unwrap());
        assert_eq!(made.len(), wanted.len());
        for (made, wanted) in made.iter().zip(wanted) {
            assert!((made.as_f64().unwrap() - wanted.as_f64().unwrap()).abs() < 1e-5, "{made} {wanted}");
        }
    }
    // Embeddings that are not scaled to length 1 are requested by the fields of vLLM, Jina and llama.cpp, and from
    // text-embeddings-inference's endpoint, which answers with a list of vectors without other fields.
    let wanted = crate::common::json(&["embed", "-p", "The sea", "--no-normalize"]);
    let raw = |path: &str, body: Value, at: &str| {
        let (status, answer) = server.post(path, body.to_string().as_bytes());
        assert_eq!(status, 200, "{answer}");
        let made = answer.pointer(at).unwrap_or_else(|| panic!("{answer}")).as_array().unwrap().clone();
        for (made, wanted) in made.iter().zip(wanted.as_array().unwrap()) {
            assert!((made.as_f64().unwrap() - wanted.as_f64().unwrap()).abs() < 1e-4, "{made} {wanted}");
        }
    };
    let openai = "/data/0/embedding";
    raw("/v1/embeddings", json!({ "input": "The sea", "normalize": false }), openai);
    raw("/v1/embeddings", json!({ "input": "The sea", "normalized": false, "dimensions": 8 }), openai);
    raw("/embedding", json!({ "content": "The sea", "embd_normalize": -1 }), "/0/embedding/0");
    raw("/embed", json!({ "inputs": ["The sea", "A dog"], "normalize": false, "truncate": false }), "/0");
    let long = json!({ "inputs": "The sea ".repeat(2000) }).to_string();
    assert_eq!(server.post("/embed", long.as_bytes()).0, 400);
    // As in Ollama, 0 dimensions are all of them.
    let (_, answer) = server.post("/api/embed", br#"{"input": "A dog", "dimensions": 0}"#);
    assert_eq!(answer["embeddings"][0].as_array().map(Vec::len), wanted.as_array().map(Vec::len), "{answer}");
    // In Ollama, an empty list of texts gives an empty list of embeddings. In OpenAI's interface, it is an error.
    let (status, answer) = server.post("/api/embed", br#"{"input": []}"#);
    assert_eq!((status, &answer["embeddings"]), (200, &json!([])), "{answer}");
    let (status, answer) = server.post("/v1/embeddings", br#"{"input": []}"#);
    assert!(status == 400 && answer["error"]["message"] == "input: the list is empty", "{answer}");
}

/// A browser on this machine may show web pages of other sites, which try to send requests to the server. The server
/// refuses them.
#[test]
fn pages_from_elsewhere_ask_for_nothing() {
    let server = Server::start(&[]);
    let body = good().to_string();
    let status = |host: &str, headers: &str| {
        let mut socket = server.connect();
        let len = body.len();
        let head = format!("POST /v1/completions HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{headers}");
        let _ = socket.write_all(format!("{head}Content-Length: {len}\r\n\r\n{body}").as_bytes());
        let mut answer = String::new();
        let _ = socket.read_to_string(&mut answer);
        answer.split(' ').nth(1).and_then(|status| status.parse::<u16>().ok()).unwrap_or(0)
    };
    for host in ["localhost", "localhost:8080", "127.0.0.1:1", "[::1]:8080", "a.localhost"] {
        assert_eq!(status(host, ""), 200, "{host}");
    }
    for host in ["a.example", "a.example:8080", "localhost.example", "127.0.0.1.example", "10.0.0.1"] {
        assert_eq!(status(host, ""), 403, "{host}");
    }
    for (headers, wanted) in [
        ("Origin: http://localhost:3000\r\n", 200),
        ("Origin: https://a.example\r\n", 403),
        ("Origin: null\r\n", 403),
        ("Content-Type: text/plain\r\n", 415),
        ("Content-Type: Text/Plain; charset=utf-8\r\n", 415),
        ("Content-Type: application/x-www-form-urlencoded\r\n", 200),
        ("Content-Type: application/json; charset=utf-8\r\n", 200),
    ] {
        assert_eq!(status("localhost", headers), wanted, "{headers}");
    }
}

/// Clients write the same request in several forms. Forms with the same meaning are accepted.
#[test]
fn harmless_forms_of_requests_are_accepted_and_others_are_refused_in_a_line() {
    let server = Server::start(&[]);
    let said = server.text(&good());
    let body = good().to_string();
    let with_mark = format!("\u{feff}{body}");
    let with_points = body.replace(":8", ":8.0");
    assert_ne!(with_points, body);
    for (path, headers, body) in [
        ("/v1/completions", "", &with_mark),
        ("/v1/completions", "", &with_points),
        ("/v1//completions", "", &body),
        ("/v1/completions/?api-version=1", "", &body),
        ("/v1/completions", "Content-Encoding: identity\r\nExpect: 100-continue\r\n", &body),
    ] {
        let (head, answer) = server.ask("POST", path, headers, body.as_bytes());
        let answer = answer.rsplit("\r\n\r\n").next().unwrap();
        let answer: Value = serde_json::from_str(answer).unwrap_or_else(|_| panic!("{path} {headers}: {head}"));
        assert_eq!(answer["choices"][0]["text"], said, "{path} {headers}");
    }
    assert!(server.ask("GET", "/models/", "", b"").1.contains("\"object\":\"list\""));
    for (headers, body, status, told) in [
        ("Content-Encoding: br\r\n", "\u{1f}", " 415 ", "send it as it is"),
        ("Host: elsewhere.example\r\n", "{}", " 400 ", "several Host headers"),
        ("", "{\"prompt\": \"a\", \"logprobs\": -1}", " 400 ", "logprobs must be"),
        ("", "{\"prompt\": \"a\", \"stop\": [1]}", " 400 ", "stop must be a text or a list of texts"),
    ] {
        let (head, answer) = server.ask("POST", "/v1/completions", headers, body.as_bytes());
        assert!(head.contains(status) && answer.contains(told), "{headers}{body}: {head} {answer}");
    }
    let mut socket = server.connect();
    let head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nno length\r\n";
    socket.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    let _ = socket.read_to_string(&mut answer);
    assert!(answer.contains(" 400 ") && answer.contains("incomplete or not encoded"), "{answer}");
}

/// Without a key, a client is told only about cached tokens of its own conversations. Cached tokens of other
/// conversations would reveal the prompts of other clients.
#[test]
fn without_a_key_nobody_learns_which_prompts_are_known() {
    let server = Server::start(&[]);
    let cached = |prompt: &str| {
        let body = json!({ "prompt": prompt, "max_tokens": 4, "temperature": 0 });
        server.answer(&body)["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap()
    };
    let secret = "a b c d e f g h i j k l m n o p q r s t ".repeat(4);
    assert_eq!(cached(&secret), 0);
    // A guess that begins like the secret prompt but continues differently must be answered as if nothing were cached.
    for guess in [120, 100, 60, 20].map(|len| &secret[..len]) {
        assert_eq!(cached(&format!("{guess}z")), 0, "{guess}");
    }
    // A prompt that continues the whole secret conversation may be told to be cached, because its client knows the
    // secret.
    assert!(cached(&format!("{secret} and then a dog")) > 70);
    assert!(!server.ask("GET", "/metrics", "", b"").1.contains("cached_tokens_total"));
}

#[test]
fn ids_are_taken_as_they_are() {
    let server = Server::start(&[]);
    for id in [json!(1u64 << 32), json!((1u64 << 32) + 1), json!(-1), json!(1.5), json!(u32::MAX)] {
        let (status, answer) = server.post("/detokenize", json!({ "tokens": [id] }).to_string().as_bytes());
        assert_eq!((status, &answer["error"]["param"]), (400, &json!("tokens")), "{answer}");
    }
}

#[cfg(unix)]
#[test]
fn a_signal_ends_it_when_all_is_answered() {
    for signal in ["-TERM", "-INT"] {
        let mut server = Server::start(&[]);
        assert!(!server.text(&good()).is_empty());
        Command::new("kill").args([signal, &server.process.id().to_string()]).status().unwrap();
        assert!(server.process.wait().unwrap().success(), "{signal}");
    }
}

/// Pairs of texts are scored through `/v1/rerank`. The scores are the same as in transformers, and the best text is
/// first.
#[test]
fn rerankers() {
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/bert_reranker");
    let reference: Value = serde_json::from_slice(&std::fs::read(directory.join("ref.json")).unwrap()).unwrap();
    let server = Server::start(&["-m", directory.join("model.gguf").to_str().unwrap(), "--kv", "f32"]);
    for pair in reference["prompts"].as_array().unwrap() {
        let body = json!({ "query": pair["query"], "documents": ["Another text.", pair["document"]] });
        let (status, answer) = server.post("/v1/rerank", body.to_string().as_bytes());
        assert_eq!(status, 200, "{answer}");
        let results = answer["results"].as_array().unwrap();
        let score = |result: &Value| result["relevance_score"].as_f64().unwrap();
        assert!(results.len() == 2 && score(&results[0]) >= score(&results[1]), "{answer}");
        let result = results.iter().find(|result| result["index"] == 1).unwrap();
        assert!((score(result) - pair["score"].as_f64().unwrap()).abs() < 2e-5, "{answer}");
    }
}
