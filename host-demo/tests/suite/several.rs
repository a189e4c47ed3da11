//! `arenite serve` with several models: each model is loaded when a request names it, and all loaded models stay within
//! the given memory.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::PATIENCE;
use crate::common::{committed, error, path};
use crate::serve::{Server, good};

const MODEL: &str = "host-demo/models/stories.gguf";

/// Makes a folder with these files. Each file is a copy of the built-in model.
fn folder(names: &[&str]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in names {
        std::fs::copy(committed(MODEL), folder.path().join(name)).unwrap();
    }
    folder
}

/// Serves the models of a folder.
fn start(folder: &Path, more: &[&str]) -> Server {
    // With more threads, a model takes more memory.
    Server::start_with(&[&["-m", path(folder), "-c", "256", "--parallel", "2", "-t", "2"], more].concat())
}

/// The names of the models that are loaded.
fn loaded(server: &Server) -> Vec<String> {
    let list: Value = serde_json::from_str(&server.ask("GET", "/v1/models", "", b"").1).unwrap();
    let cards = list["data"].as_array().unwrap().iter();
    cards.filter(|card| card["state"] == "loaded").map(|card| card["id"].as_str().unwrap().to_string()).collect()
}

/// Adds the name of the model to a request.
fn of(model: &str, mut body: Value) -> Value {
    body["model"] = json!(model);
    body
}

/// A request for a long answer.
fn long() -> Value {
    json!({ "prompt": "Once", "max_tokens": 240, "ignore_eos": true, "temperature": 0, "stream": true })
}

/// Sends a request whose answer is streamed, and reads its beginning.
fn stream(server: &Server, body: &Value) -> TcpStream {
    let mut socket = server.connect();
    let body = body.to_string();
    let head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: ";
    socket.write_all(format!("{head}{}\r\n\r\n{body}", body.len()).as_bytes()).unwrap();
    let mut first = [0; 12];
    socket.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    socket
}

fn rest(mut socket: TcpStream) -> String {
    let mut rest = String::new();
    socket.read_to_string(&mut rest).unwrap();
    rest
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn models_take_turns_in_their_memory() {
    let folder = folder(&["one.gguf", "three.gguf", "two.gguf", "two-00002-of-00002.gguf"]);
    std::fs::write(folder.path().join("zero.gguf"), b"GGUF is no model").unwrap();
    let alone = Server::start(&["--parallel", "2"]).text(&good());
    // This limit has room for two loaded models, the bodies of requests and the process of the server itself.
    let server = start(folder.path(), &["--cache-scope", "server", "--memory", "1500M", "--alias", "first"]);
    assert!(server.log().contains("zero.gguf"), "{}", server.log());
    assert!(loaded(&server).is_empty());
    for (name, then) in [
        ("first", &["first"][..]),
        ("two", &["first", "two"]),
        ("first:latest", &["first", "two"]),
        ("three", &["first", "three"]),
        ("two", &["three", "two"]),
        ("", &["first", "two"]),
    ] {
        // Clients of Ollama append `:latest` to names.
        assert_eq!(server.text(&of(name.trim_end_matches(":latest"), good())), alone);
        assert_eq!(loaded(&server), then, "{name}");
    }
    // The process of the model reports errors in a request.
    let (status, answer) = server.post("/v1/completions", b"{\"model\": \"first\", \"prompt\": 3}");
    assert!(status == 400 && answer["error"]["param"] == "prompt", "{answer}");
    assert_eq!(server.post("/v1/completions", b"{\"model\": \"three\", ").0, 400);
    for (path, body) in
        [("/v1/completions", "{\"model\": \"four\", \"prompt\": \"a\"}"), ("/api/show", "{\"name\": \"four\"}")]
    {
        let (status, answer) = server.post(path, body.as_bytes());
        // The error of each interface has its own form.
        let code = if path.starts_with("/api/") { Value::Null } else { json!("model_not_found") };
        assert!(status == 404 && answer["error"]["code"] == code, "{answer}");
        assert!(answer["error"].to_string().contains("`first`, `three`, `two`"), "{answer}");
    }
    assert_eq!(server.post("/api/show", b"{\"name\": \"two:latest\"}").0, 200);
    assert!(server.ask("GET", "/v1/models/four", "", b"").0.contains(" 404 "));
    assert!(server.ask("GET", "/v1/models/two", "", b"").1.contains("\"state\":\"loaded\""));
    assert!(server.ask("GET", "/health", "", b"").1.contains("ok"));
    // None of these requests loads another model.
    assert!(server.ask("GET", "/favicon.ico", "", b"").0.contains(" 404 "));
    assert!(server.ask("GET", "/metrics", "", b"").1.contains("arenite_model_loaded{model=\"three\"} 0\n"));
    assert!(server.ask("GET", "/metrics?model=three", "", b"").0.contains(" 503 "));
    assert!(server.ask("GET", "/metrics?model=two", "", b"").1.contains("arenite_requests_total 1\n"));
    assert_eq!(server.ask("GET", "/api/ps", "", b"").1.matches("\"digest\"").count(), 2);
    assert_eq!(loaded(&server), ["first", "two"]);
}

#[test]
fn models_that_cannot_be_served_together() {
    let file = committed(MODEL);
    let file = path(&file);
    assert!(error(&["serve", "-m", file, "-m", file]).contains("two models are named `stories`"));
    let told = error(&["serve", "-m", file, "--memory", "1M"]);
    assert!(told.contains("the model takes ") && told.contains("--memory is 1.0 MiB"), "{told}");
    let told = error(&["serve", "-m", file, "-m", file, "--memory", "100M", "--alias", "a", "--alias", "b"]);
    assert!(told.contains("`a` takes ") && told.contains("--memory leaves "), "{told}");
    assert!(error(&["serve", "-m", file, "-m", "missing.gguf"]).contains("missing.gguf"));
    // Only `serve` takes several models. In other commands, the last `-m` counts, as with other repeated options.
    assert!(error(&["tokenize", "-m", file, "-m", "missing.gguf", "-p", "a"]).contains("missing.gguf"));
}

#[test]
fn answers_go_on_while_others_are_loaded() {
    let folder = folder(&["one.gguf", "two.gguf"]);
    let server = start(folder.path(), &[]);
    let count = |socket| rest(socket).matches("data:").count();
    let whole = count(stream(&server, &of("one", long())));
    assert!(whole > 100, "{whole}");
    // There is memory for both models.
    let streamed = stream(&server, &of("one", long()));
    let said = server.text(&of("two", good()));
    assert_eq!(count(streamed), whole);
    assert_eq!(loaded(&server), ["one", "two"]);
    // With memory for only one model, the second model must wait until the answer of the first model has ended.
    let server = start(folder.path(), &["--memory", "900M"]);
    let streamed = stream(&server, &of("one", long()));
    std::thread::scope(|scope| {
        let second = scope.spawn(|| server.text(&of("two", good())));
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(count(streamed), whole);
        assert_eq!(second.join().unwrap(), said);
    });
    assert_eq!(loaded(&server), ["two"]);
}

#[test]
fn a_client_that_leaves_ends_its_answer() {
    let folder = folder(&["one.gguf", "two.gguf"]);
    let server = start(folder.path(), &["--cache-scope", "server"]);
    let body = json!({ "prompt": "a", "n": 64, "max_tokens": 200, "ignore_eos": true, "stream": true });
    drop(stream(&server, &of("one", body)));
    let metrics = || server.ask("GET", "/metrics?model=one", "", b"").1;
    // Between two passes no answer may be running.
    wait_until("the answer ends", || {
        let metrics = metrics();
        ["arenite_answers_running 0\n", "arenite_requests_open 0\n"].iter().all(|line| metrics.contains(line))
    });
}

/// A client cannot choose the address by which the server identifies it. With another client's address, it would learn
/// which prompts of that client are cached.
#[test]
fn a_client_cannot_name_itself() {
    let folder = folder(&["one.gguf", "two.gguf"]);
    let server = start(folder.path(), &[]);
    let cached = |headers: &str, prompt: &str| {
        let body = of("one", json!({ "prompt": prompt, "max_tokens": 4, "temperature": 0 })).to_string();
        let answer: Value =
            serde_json::from_str(&server.ask("POST", "/v1/completions", headers, body.as_bytes()).1).unwrap();
        answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap()
    };
    let forged = "X-Arenite-Client: 10.0.0.1\r\nx-arenite-client: 10.0.0.2\r\n";
    let prompt = "a b c d e f g h i j k l m n o p q r s t ".repeat(4);
    assert_eq!(cached(forged, &prompt), 0);
    // Clients are told apart by their addresses only. So this prompt may continue a conversation of the same address,
    // whatever headers the request has.
    assert!(cached("", &format!("{prompt} and then a dog")) > 70);
    assert!(cached(forged, &format!("{prompt} and then a dog and a bird")) > 70);
}

/// Processes of the server's models, by name.
#[cfg(target_os = "linux")]
fn processes(server: &Server) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let status = std::fs::read_to_string(entry.path().join("status")).unwrap_or_default();
        if !status.contains(&format!("\nPPid:\t{}\n", server.id())) {
            continue;
        }
        let arguments = std::fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default();
        let arguments: Vec<&str> = arguments.split('\0').collect();
        if let Some(at) = arguments.iter().rposition(|argument| *argument == "--alias") {
            found.push((arguments[at + 1].to_string(), entry.file_name().into_string().unwrap()));
        }
    }
    found
}

/// Kills the process of a model, and waits until the server has noticed the end of the process.
#[cfg(target_os = "linux")]
fn kill(server: &Server, model: &str, then: &[&str]) {
    let (_, id) = processes(server).into_iter().find(|(name, _)| name == model).unwrap();
    assert!(std::process::Command::new("kill").args(["-9", &id]).status().unwrap().success());
    wait_until("the process ends", || loaded(server) == then);
}

#[cfg(target_os = "linux")]
#[test]
fn a_model_that_fails_takes_no_other() {
    let folder = folder(&["one.gguf", "two.gguf"]);
    let mut server = start(folder.path(), &["--api-key", "secret"]);
    assert_eq!(server.post("/v1/completions", of("one", good()).to_string().as_bytes()).0, 401);
    server.headers = "Authorization: Bearer secret\r\n";
    let said = server.text(&of("one", good()));
    assert_eq!(server.text(&of("two", good())), said);
    kill(&server, "one", &["two"]);
    assert_eq!(server.text(&of("two", good())), said);
    assert_eq!(server.text(&of("one", good())), said);
    assert_eq!(loaded(&server), ["one", "two"]);
    // The file is missing when the model is loaded again.
    std::fs::remove_file(folder.path().join("one.gguf")).unwrap();
    kill(&server, "one", &["two"]);
    let (status, answer) = server.post("/v1/completions", of("one", good()).to_string().as_bytes());
    let message = answer["error"]["message"].as_str().unwrap_or_default();
    assert!(status == 503 && message.contains("`one` cannot be loaded"), "{answer}");
    assert_eq!(server.text(&of("two", good())), said);
    // The processes of the models end with the server.
    let (_, two) = processes(&server).remove(0);
    drop(server);
    let line = move || std::fs::read_to_string(format!("/proc/{two}/cmdline")).unwrap_or_default();
    wait_until("the process ends", || !line().contains("--within"));
}

#[test]
fn the_log_has_one_line_for_each_request() {
    let folder = folder(&["one.gguf", "two.gguf"]);
    let server = start(folder.path(), &["--log-format", "json"]);
    let body = of("two", good()).to_string();
    let (head, _) = server.ask("POST", "/v1/completions", "X-Request-Id: mine-7\r\n", body.as_bytes());
    assert_eq!(head.to_lowercase().matches("x-request-id: mine-7").count(), 1, "{head}");
    server.post("/v1/completions", b"{\"model\": \"none\"}");
    let lines = || -> Vec<Value> { server.log().lines().filter_map(|line| serde_json::from_str(line).ok()).collect() };
    wait_until("two lines", || lines().len() >= 2);
    let lines = lines();
    // A client may have the complete answer before the log line of the request is written.
    let (answered, refused): (Vec<_>, Vec<_>) = lines.iter().partition(|line| line["id"] == "mine-7");
    assert!(answered.len() == 1 && answered[0]["answer_tokens"] == 8, "{lines:?}");
    assert!(refused.len() == 1 && refused[0]["status"] == 404, "{lines:?}");
}
