//! Separation of clients: no upload ends the server, no client can block it, and no client learns about the requests of
//! others.
#![cfg(target_os = "linux")] // the tests use several addresses of the loopback device

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::PATIENCE;
use crate::common::{committed, path};
use crate::serve::Server;

const UPLOAD: &str = "/v1/audio/transcriptions";

/// Connects from an address of the loopback device.
fn connect_from(server: &Server, from: Ipv4Addr) -> TcpStream {
    let to = SocketAddr::from((Ipv4Addr::LOCALHOST, server.port().parse().unwrap()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    let stream = runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind((from, 0).into()).unwrap();
        socket.connect(to).await.unwrap().into_std().unwrap()
    });
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn head(method: &str, path: &str, kind: &str, len: usize) -> String {
    format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: {kind}\r\nContent-Length: {len}\r\n\r\n"
    )
}

/// Sends a request from an address. Returns the head and the body of the answer.
fn ask_from(server: &Server, from: Ipv4Addr, method: &str, path: &str, kind: &str, body: &[u8]) -> (String, String) {
    let mut socket = connect_from(server, from);
    let _ = socket.write_all(head(method, path, kind, body.len()).as_bytes()).and_then(|()| socket.write_all(body));
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    (head.into(), body.into())
}

/// Makes the body of a form from the names and contents of its fields. A field whose name begins with `file` also gets
/// a file name.
fn form(fields: &[(&str, &[u8])]) -> Vec<u8> {
    let mut body = Vec::new();
    for (name, content) in fields {
        let file = if name.starts_with("file") { "; filename=\"a.wav\"" } else { "" };
        body.extend(format!("--edge\r\nContent-Disposition: form-data; name=\"{name}\"{file}\r\n\r\n").bytes());
        body.extend(*content);
        body.extend(b"\r\n");
    }
    body.extend(b"--edge--\r\n");
    body
}

const FORM: &str = "multipart/form-data; boundary=edge";

fn upload(server: &Server, from: Ipv4Addr, fields: &[(&str, &[u8])]) -> (u16, String) {
    let (head, body) = ask_from(server, from, "POST", UPLOAD, FORM, &form(fields));
    (head.split(' ').nth(1).map_or(0, |status| status.parse().unwrap()), body)
}

fn whisper() -> PathBuf {
    committed("tests/fixtures/whisper_b/model.gguf")
}

fn hearing(more: &[&str]) -> Server {
    let model = whisper();
    Server::start_with(&[&["-m", path(&model), "-t", "1"], more].concat())
}

fn speech() -> Vec<u8> {
    std::fs::read(committed("tests/fixtures/whisper_b/sound0.wav")).unwrap()
}

/// A WAV file of 8-bit silence.
fn silence(rate: u32, samples: usize) -> Vec<u8> {
    let len = samples as u32;
    let sizes = [&1u16.to_le_bytes()[..], &1u16.to_le_bytes(), &rate.to_le_bytes(), &rate.to_le_bytes()].concat();
    let start = [&b"RIFF"[..], &(36 + len).to_le_bytes(), b"WAVEfmt ", &16u32.to_le_bytes(), &sizes].concat();
    [&start[..], &[1, 0, 8, 0], b"data", &len.to_le_bytes(), &vec![128; samples]].concat()
}

/// Nearly three hours in a file of 10 MB.
fn long() -> Vec<u8> {
    silence(1000, 10_000_000)
}

const HONEST: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 1);
const OTHER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

#[test]
fn a_damaged_sound_is_an_error_of_its_client() {
    let server = hearing(&[]);
    let right = upload(&server, HONEST, &[("file", &speech())]);
    assert_eq!(right.0, 200, "{}", right.1);
    // A rate of 0 in both formats, and tags of 4 GB.
    let flac = |rate: [u8; 3]| {
        let info = [&[16, 0, 16, 0, 0, 0, 0, 0, 0, 0][..], &rate, &[0xf0], &[0; 20]].concat();
        [b"fLaC\0\0\0\x22", &info[..], &[0x84, 0, 0, 8], &[0xff; 8], &[0; 64]].concat()
    };
    let mut no_rate = speech();
    no_rate[24..28].fill(0);
    for file in [no_rate, flac([0; 3]), flac([0x03, 0xe8, 0]), b"ID3\x04\0\0\x7f\x7f\x7f\x7f".to_vec(), Vec::new()] {
        let (status, told) = upload(&server, OTHER, &[("file", &file)]);
        assert_eq!(status, 400, "{told}");
    }
    // Any other damage.
    let mut state = 7u64;
    for _ in 0..60 {
        let mut file = speech();
        for _ in 0..4 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            file[(state >> 33) as usize % 48] = (state >> 24) as u8;
        }
        file.truncate(2000);
        let (status, told) = upload(&server, OTHER, &[("file", &file)]);
        assert!([200, 400].contains(&status), "{status} {told}");
    }
    assert_eq!(upload(&server, HONEST, &[("file", &speech())]), right);
}

#[test]
fn fields_of_forms_are_bounded() {
    let server = hearing(&[]);
    let sound = speech();
    let long = vec![b'a'; 2_000_000];
    for (fields, told) in [
        (vec![("prompt", &long[..]), ("file", &sound)], "longer than"),
        (vec![("file", &sound), ("language", &long)], "longer than"),
        (vec![("file", &sound), ("file", &sound)], "two files"),
        (vec![("file", &sound), ("prompt", b"\xff")], "not text"),
        ([vec![("language", &b""[..]); 40], vec![("file", &sound)]].concat(), "more than 32 fields"),
    ] {
        let (status, answer) = upload(&server, HONEST, &fields);
        assert!(status == 400 && answer.contains(told), "{told}: {status} {answer}");
    }
    assert_eq!(upload(&server, HONEST, &[("prompt", b"A story."), ("file", &sound)]).0, 200);
}

/// Sounds take turns. If the client of a sound has disconnected, the sound is abandoned.
#[test]
fn a_long_sound_holds_nobody() {
    let mut server = hearing(&[]);
    let body = form(&[("file", &long())]);
    let (mut holders, body_len) = (Vec::new(), body.len());
    for _ in 0..3 {
        let (mut socket, body) = (connect_from(&server, OTHER), body.clone());
        socket.write_all(head("POST", UPLOAD, FORM, body_len).as_bytes()).unwrap();
        // The server does not read the body of a client's next request with a sound before the client's first sound has
        // been transcribed.
        let mut writer = socket.try_clone().unwrap();
        std::thread::spawn(move || writer.write_all(&body));
        holders.push(socket);
    }
    std::thread::sleep(Duration::from_millis(300));
    let began = Instant::now();
    let (status, told) = upload(&server, HONEST, &[("file", &speech())]);
    assert_eq!(status, 200, "{told}");
    // The long sounds have hundreds of windows each.
    holders.iter().for_each(|socket| {
        socket.set_nonblocking(true).unwrap();
        let mut answer = [0; 400];
        let read = (&*socket).read(&mut answer);
        let answer = String::from_utf8_lossy(&answer);
        assert!(read.is_err(), "a long sound was answered first, after {:?}: {answer}", began.elapsed());
    });
    for socket in holders {
        socket.shutdown(std::net::Shutdown::Both).unwrap();
    }
    assert_eq!(upload(&server, HONEST, &[("file", &speech())]).0, 200);
    ends_soon(&mut server);
}

/// Asks the server to end, and checks that it ends in time.
fn ends_soon(server: &mut Server) {
    let began = Instant::now();
    Command::new("kill").args(["-TERM", &server.id().to_string()]).status().unwrap();
    assert!(server.wait().success());
    // Two seconds, and some for a busy machine.
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
}

#[test]
fn a_signal_ends_what_would_take_minutes() {
    let mut server = hearing(&[]);
    let body = form(&[("file", &long())]);
    let mut socket = connect_from(&server, OTHER);
    socket.write_all(head("POST", UPLOAD, FORM, body.len()).as_bytes()).and_then(|()| socket.write_all(&body)).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    ends_soon(&mut server);

    let mut server = Server::start_with(&["-c", "100000", "-t", "1"]);
    let body = json!({ "prompt": "a", "max_tokens": -1, "ignore_eos": true, "temperature": 0 });
    let asked = |stream: bool| {
        let mut body = body.clone();
        body["stream"] = json!(stream);
        let (mut socket, body) = (connect_from(&server, OTHER), body.to_string());
        socket.write_all((head("POST", "/v1/completions", "application/json", body.len()) + &body).as_bytes()).unwrap();
        socket
    };
    let mut clients = [asked(true), asked(false)];
    std::thread::sleep(Duration::from_millis(300));
    ends_soon(&mut server);
    // The clients are told why.
    for socket in &mut clients {
        let mut answer = String::new();
        let _ = socket.read_to_string(&mut answer);
        assert!(answer.contains("shutting down"), "{}", &answer[answer.len().saturating_sub(300)..]);
    }
}

#[test]
fn a_large_form_goes_to_the_model_that_it_names() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::os::unix::fs::symlink(whisper(), at("hear.gguf")).unwrap();
    std::os::unix::fs::symlink(committed("tests/fixtures/stories.gguf"), at("a.gguf")).unwrap();
    let server = Server::start_with(&["-m", path(&at("a.gguf")), "-m", path(&at("hear.gguf")), "-t", "1"]);
    let sound = silence(16_000, 2_600_000)[..2_400_000].to_vec();
    for fields in [[("model", &b"hear"[..]), ("file", &sound)], [("file", &sound), ("model", b"hear")]] {
        let (status, told) = upload(&server, HONEST, &fields);
        assert_eq!(status, 200, "{told}");
    }
    // A name that cannot be read is not a missing name.
    let (head, told) = ask_from(&server, HONEST, "POST", UPLOAD, FORM, b"--edge\r\nContent-Disposition: form-data; na");
    assert!(head.contains(" 400 "), "{head} {told}");
    for body in ["{\"model\": 3, \"prompt\": \"a\"}", "[]", "{\"model\": \"a\", \"model\": \"hear\"}"] {
        let (status, told) = server.post("/tokenize", body.as_bytes());
        assert_eq!(status, 400, "{body}: {told}");
    }
}

#[test]
fn the_log_steers_no_terminal() {
    for format in ["text", "json"] {
        let server = Server::start_with(&["--log-format", format, "-c", "64", "-t", "1"]);
        let mut socket = server.connect();
        let request = "GET /\u{9b}2J\u{202e}\u{85}X HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: a 200 1 s\r\nConnection: close\r\n\r\n";
        socket.write_all(request.as_bytes()).unwrap();
        let _ = socket.read_to_end(&mut Vec::new());
        let began = Instant::now();
        while !server.log().contains("2J") {
            assert!(began.elapsed() < PATIENCE);
            std::thread::sleep(Duration::from_millis(5));
        }
        let log = server.log();
        assert!(!log.contains(['\u{9b}', '\u{202e}', '\u{85}']) && !log.contains("a 200 1 s"), "{log:?}");
    }
}

/// Removes what depends on chance or time.
fn without_time(answer: &mut Value) {
    const TIMES: [&str; 19] = [
        "id",
        "request_id",
        "created",
        "created_at",
        "item_id",
        "response_id",
        "timings",
        "total_duration",
        "load_duration",
        "prompt_eval_duration",
        "eval_duration",
        "prompt_ms",
        "predicted_ms",
        "prompt_per_token_ms",
        "predicted_per_token_ms",
        "prompt_per_second",
        "predicted_per_second",
        "modified_at",
        "completed_at",
    ];
    match answer {
        Value::Object(fields) => {
            fields.retain(|name, _| !TIMES.contains(&name.as_str()));
            fields.values_mut().for_each(without_time);
        }
        Value::Array(values) => values.iter_mut().for_each(without_time),
        _ => {}
    }
}

/// Returns the status, headers and body that a client receives. Times are removed.
fn told(answer: &(String, String)) -> String {
    let line = |line: &str| {
        let (start, json) = line.find(['{', '[']).map_or((line, ""), |at| line.split_at(at));
        match serde_json::from_str::<Value>(json) {
            Ok(mut value) => {
                without_time(&mut value);
                // A seed that the server draws is another one in every run.
                value.pointer_mut("/generation_settings/seed").map(Value::take);
                format!("{start}{value}")
            }
            Err(_) => line.to_string(),
        }
    };
    let timely = |line: &&str| {
        let line = line.to_ascii_lowercase();
        !["date:", "x-request-id:", "request-id:", "content-length:", "arenite_uptime_seconds "]
            .iter()
            .any(|name| line.starts_with(name))
    };
    // Chunks of a stream begin with their lengths.
    let is_length = |line: &&str| line.len() <= 4 && u32::from_str_radix(line.trim(), 16).is_ok();
    let body = answer.1.lines().filter(timely).filter(|line| !is_length(line)).map(line);
    answer.0.lines().filter(timely).map(str::to_string).chain(body).collect::<Vec<_>>().join("\n")
}

/// Number of kinds of requests.
const REQUESTS: u64 = 33;

/// A request to one of the routes, about a prompt.
fn request(choice: u64, prompt: &str) -> (&'static str, &'static str, Value) {
    let messages = json!([{ "role": "user", "content": prompt }]);
    let few = json!({ "temperature": 0, "num_predict": 3 });
    match choice % REQUESTS {
        0 | 1 => ("POST", "/v1/completions", json!({ "prompt": prompt, "max_tokens": 3, "temperature": 0 })),
        2 => ("POST", "/v1/chat/completions", json!({ "messages": messages, "max_tokens": 3, "temperature": 0 })),
        3 => (
            "POST",
            "/v1/completions",
            json!({ "prompt": prompt, "max_tokens": 3, "temperature": 0, "stream": true, "stream_options": { "include_usage": true } }),
        ),
        4 => (
            "POST",
            "/v1/chat/completions",
            json!({ "messages": messages, "max_tokens": 3, "temperature": 0, "stream": true, "stream_options": { "include_usage": true } }),
        ),
        5 => ("POST", "/completion", json!({ "prompt": prompt, "n_predict": 3, "temperature": 0 })),
        6 => ("POST", "/v1/responses", json!({ "input": prompt, "max_output_tokens": 16, "temperature": 0 })),
        7 => (
            "POST",
            "/v1/messages",
            json!({ "model": "default", "messages": messages, "max_tokens": 3, "temperature": 0 }),
        ),
        8 => ("POST", "/v1/messages/count_tokens", json!({ "model": "default", "messages": messages })),
        9 => ("POST", "/api/chat", json!({ "messages": messages, "options": few, "stream": false })),
        10 => ("POST", "/api/generate", json!({ "prompt": prompt, "options": few })),
        11 => ("POST", "/tokenize", json!({ "content": prompt })),
        12 => ("POST", "/apply-template", json!({ "messages": messages })),
        13 => ("POST", "/v1/embeddings", json!({ "input": prompt })),
        14 => ("POST", "/v1/completions", json!({ "prompt": prompt, "max_tokens": 0, "echo": true, "logprobs": 1 })),
        15 => ("GET", "/metrics", Value::Null),
        16 => ("GET", "/health", Value::Null),
        17 => ("GET", "/v1/models", Value::Null),
        18 => ("GET", "/props", Value::Null),
        19 => ("GET", "/slots", Value::Null),
        20 => ("GET", "/api/ps", Value::Null),
        21 => ("GET", "/lora-adapters", Value::Null),
        22 => ("GET", "/tokenizer_info", Value::Null),
        23 => (
            "POST",
            "/v1/systemone",
            json!({ "state": prompt, "questions": { "a": { "type": "noul", "instructions": "Is it?" } } }),
        ),
        24 => (
            "POST",
            "/v1/systemone",
            json!({ "states": [prompt, "b"], "questions": { "a": { "type": "choice", "instructions": prompt, "criteria": { "c": null, "d": null } } } }),
        ),
        25 => (
            "POST",
            "/infill",
            json!({ "input_prefix": prompt, "input_suffix": "b", "n_predict": 3, "temperature": 0 }),
        ),
        26 => ("POST", "/detokenize", json!({ "tokens": [5, 300, 301] })),
        27 => ("POST", "/v1/rerank", json!({ "query": prompt, "documents": [prompt, "b"] })),
        28 => ("POST", "/api/embed", json!({ "input": prompt })),
        29 => ("POST", "/api/show", json!({ "model": "default" })),
        30 => ("POST", "/slots/0?action=erase", json!({})),
        31 => ("POST", "/v1/audio/transcriptions", json!({ "file": prompt })),
        32 => ("GET", "/api/version", Value::Null),
        _ => ("GET", "/api/tags", Value::Null),
    }
}

/// Two servers get the same requests, except for the prompts of one client. A second client must get the same answers
/// from both servers. `ARENITE_TRIALS` is the number of trials; each trial has four requests of the second client.
#[test]
fn a_client_is_told_the_same_whatever_others_ask() {
    let start = || Server::start_with(&["-c", "256", "--parallel", "2", "-t", "1", "-b", "16", "--decide", "any"]);
    let trials = std::env::var("ARENITE_TRIALS").map_or(60, |trials| trials.parse().unwrap());
    let servers = [start(), start()];
    let secret = "My secret is this: the little old fox has a red ball and a blue kite and went home. ";
    let mut state = 11u64;
    let mut random = move |most: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % most
    };
    for trial in 0..trials {
        // Two clients send requests: a spy and another client. The spy guesses a part of the secret, which only the
        // first server has received. The other client sends its prompt before one of the spy's four requests.
        let spy = Ipv4Addr::new(127, 0, 1 + (trial / 200) as u8, 1 + (trial % 200) as u8);
        let victim = Ipv4Addr::new(127, 0, 0, 1 + random(3) as u8);
        let guess = &secret[..20 + random(60) as usize];
        let asked = [(); 4].map(|()| random(REQUESTS));
        let victims = [format!("{secret}{trial}"), "Something else, and shorter".to_string()];
        let (via, at) = (random(REQUESTS), random(4));
        let answers = servers.iter().zip(&victims).map(|(server, prompt)| {
            let send = |from: Ipv4Addr, choice: u64, prompt: &str| {
                let (method, path, body) = request(choice, prompt);
                let body = if body.is_null() { String::new() } else { body.to_string() };
                told(&ask_from(server, from, method, path, "application/json", body.as_bytes()))
            };
            let mut answers = Vec::new();
            for (turn, choice) in asked.iter().enumerate() {
                if turn as u64 == at {
                    send(victim, via, prompt);
                }
                answers.push(send(spy, *choice, guess));
            }
            answers
        });
        let answers: Vec<Vec<String>> = answers.collect();
        for (choice, (first, second)) in asked.iter().zip(answers[0].iter().zip(&answers[1])) {
            assert_eq!(first, second, "{trial}: {:?}", request(*choice, guess));
        }
    }
}

/// By default, a client is not told how many of its tokens were cached. If the operator lets clients share the cache,
/// it is.
#[test]
fn the_cache_is_shared_only_if_the_operator_says_so() {
    let prompt = "a b c d e f g h i j k l m n o p q r s t ".repeat(2);
    let body = json!({ "prompt": prompt, "max_tokens": 2, "temperature": 0 }).to_string();
    let cached = |server: &Server, from: Ipv4Addr| {
        let (_, answer) = ask_from(server, from, "POST", "/v1/completions", "application/json", body.as_bytes());
        let answer: Value = serde_json::from_str(&answer).unwrap();
        answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap()
    };
    for (scope, is_shared) in
        [(&[][..], false), (&["--cache-scope", "client"], false), (&["--cache-scope", "server"], true)]
    {
        let server = Server::start_with(&[&["-c", "256", "-t", "1"], scope].concat());
        assert_eq!(cached(&server, HONEST), 0);
        assert_eq!(cached(&server, OTHER) > 30, is_shared, "{scope:?}");
        assert!(cached(&server, HONEST) > 30);
        let metrics = ask_from(&server, OTHER, "GET", "/metrics", "text/plain", b"").1;
        assert_eq!(metrics.contains("arenite_passes_total"), is_shared, "{scope:?}");
    }
}

/// Scales of adapters apply only to the client that has set them, unless the operator lets clients share the cache.
#[test]
fn scales_of_adapters_belong_to_their_client() {
    let folder = tempfile::tempdir().unwrap();
    let [lora, _] = crate::adapters::adapters(folder.path());
    let lora = format!("{}:0", path(&lora));
    for (scope, is_shared) in [("client", false), ("server", true)] {
        let server = Server::start_with(&["-c", "256", "-t", "1", "--lora", &lora, "--cache-scope", scope]);
        let ask = |from: Ipv4Addr, method: &str, path: &str, body: &Value| {
            let body = if body.is_null() { String::new() } else { body.to_string() };
            told(&ask_from(&server, from, method, path, "application/json", body.as_bytes()))
        };
        let body = json!({ "prompt": [1, 403], "max_tokens": 8, "temperature": 0, "ignore_eos": true });
        let both = |from: Ipv4Addr| {
            let text = ask(from, "POST", "/completion", &body);
            let value: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
            (value["content"].clone(), ask(from, "GET", "/lora-adapters", &Value::Null))
        };
        let before = both(HONEST);
        assert!(ask(OTHER, "POST", "/lora-adapters", &json!([{ "id": 0, "scale": 1 }])).contains("true"));
        let (own, others) = (both(OTHER), both(HONEST));
        assert!(own.0 != before.0 && own.1 != before.1, "{own:?}");
        assert_eq!(others, if is_shared { own } else { before }, "{scope}");
    }
}

/// A model's process accepts only requests of the server, because other programs could claim the address of any client.
#[test]
fn processes_of_models_take_requests_of_the_server_only() {
    let model = committed("host-demo/models/stories.gguf");
    let server = Server::start_with(&["-m", path(&model), "-m", path(&whisper()), "-t", "1", "-c", "64"]);
    assert_eq!(server.post("/completion", br#"{"model": "stories", "prompt": "a", "n_predict": 1}"#).0, 200);
    let own = server.port().to_string();
    let sockets = std::fs::read_to_string("/proc/net/tcp").unwrap();
    // Finds the sockets on which the models' processes listen: those of child processes with a port other than the
    // server's.
    let children = Command::new("pgrep").args(["-P", &server.id().to_string()]).output().unwrap().stdout;
    let children = String::from_utf8(children).unwrap();
    let inodes: Vec<String> = children
        .lines()
        .flat_map(|child| std::fs::read_dir(format!("/proc/{child}/fd")).unwrap())
        .filter_map(|file| Some(std::fs::read_link(file.unwrap().path()).ok()?.to_str()?.to_string()))
        .filter_map(|link| Some(link.strip_prefix("socket:[")?.strip_suffix(']')?.to_string()))
        .collect();
    let ports = sockets.lines().filter(|line| inodes.iter().any(|inode| line.contains(&format!(" {inode} "))));
    let ports =
        ports.filter_map(|line| u16::from_str_radix(line.split_whitespace().nth(1)?.split_once(':')?.1, 16).ok());
    let ports: std::collections::BTreeSet<u16> = ports.filter(|port| port.to_string() != own).collect();
    assert!(!ports.is_empty(), "{children} {inodes:?}");
    for port in ports {
        let Ok(mut socket) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else { continue };
        let asked =
            "GET /slots HTTP/1.1\r\nHost: localhost\r\nX-Arenite-Client: 127.0.0.1\r\nConnection: close\r\n\r\n";
        socket.write_all(asked.as_bytes()).unwrap();
        let mut answer = String::new();
        let _ = socket.read_to_string(&mut answer);
        assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    }
}

/// Sounds that do not come give way to those of others.
#[test]
fn sounds_that_do_not_come_hold_nobody() {
    let server = hearing(&[]);
    let holders: Vec<TcpStream> = (0..12)
        .map(|at| {
            let mut socket = connect_from(&server, Ipv4Addr::new(127, 0, 1, 1 + at));
            socket.write_all(head("POST", UPLOAD, FORM, 1_000_000).as_bytes()).unwrap();
            socket
        })
        .collect();
    std::thread::sleep(Duration::from_millis(200));
    let began = Instant::now();
    let (status, told) = upload(&server, HONEST, &[("file", &speech())]);
    assert_eq!(status, 200, "{told}");
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    drop(holders);
}

/// At its start, the server renders a template many times to find out how the template writes calls.
#[test]
fn a_hostile_template_does_not_delay_the_start() {
    use crate::scripted::Scripted;
    let folder = tempfile::tempdir().unwrap();
    for (name, template) in [
        ("loops", "{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}".to_string()),
        ("macros", "{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}".to_string()),
        ("concatenates", format!("{{{{ {}1 }}}}", "1~".repeat(16_000))),
    ] {
        let model = folder.path().join(format!("{name}.gguf"));
        Scripted { script: &["Hello"], control: &[], user: &[], template: &template }.write(&model);
        let began = Instant::now();
        let server = Server::start_with(&["-m", path(&model), "-c", "64", "-t", "1"]);
        // A second on a quiet machine.
        assert!(began.elapsed() < Duration::from_secs(10), "{name}: {:?}", began.elapsed());
        let body = json!({ "messages": [{ "role": "user", "content": "hi" }], "max_tokens": 2 });
        let (status, told) = server.post("/v1/chat/completions", body.to_string().as_bytes());
        assert!([200, 400].contains(&status), "{name}: {status} {told}");
    }
}
