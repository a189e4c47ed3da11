//! `arenite serve` with hostile clients: other clients do not wait for the hostile clients, and the printed memory is
//! not exceeded.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::PATIENCE;
use crate::serve::{Server, good};

/// Sends a request and reads no answer.
fn send(server: &Server, path: &str, body: &[u8], sent: usize) -> TcpStream {
    let mut socket = connect_from("127.0.0.1", server);
    socket.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    let head = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", body.len());
    // The server may stop reading from this client.
    let _ = socket.write_all(head.as_bytes()).and_then(|()| socket.write_all(&body[..sent]));
    socket
}

/// Requests whose bodies take long to process.
fn slow_requests() -> Vec<Value> {
    let schema = json!({ "pattern": "^(([a-z]{0,99}x?){0,99}y?){0,99}$" });
    let value = (0..60).fold(json!(1), |inner, _| json!([inner]));
    vec![
        json!({ "prompt": "x", "grammar": "root ::= ((\"a\"{0,99} \"b\"?){0,99} \"c\"?){0,99}" }),
        json!({ "prompt": "x", "response_format": { "type": "json_schema", "json_schema": { "schema": schema } } }),
        json!({ "prompt": vec![value; 20_000] }),
        json!({ "prompt": "word ".repeat(400_000) }),
    ]
}

#[test]
fn nobody_waits_for_slow_requests() {
    let server = Server::start(&["--parallel", "2"]);
    let said = server.text(&good());
    std::thread::scope(|scope| {
        let slow: Vec<_> = (0..8)
            .map(|i| {
                let body = slow_requests().swap_remove(i % 4).to_string();
                scope.spawn(|| {
                    let body = body;
                    server.post("/v1/completions", body.as_bytes()).0
                })
            })
            .collect();
        std::thread::sleep(Duration::from_millis(50));
        // Counts how many slow requests end while `/health` is answered. If `/health` had to wait for a slow request,
        // one would end each time.
        let ended = || slow.iter().filter(|slow| slow.is_finished()).count();
        let (mut asked, mut waited) = (0, 0);
        while ended() < slow.len() {
            let before = ended();
            assert!(server.ask("GET", "/health", "", b"").1.contains("ok"));
            asked += 1;
            waited += usize::from(ended() > before);
        }
        assert!(waited < asked.max(1), "all {asked} requests to /health waited for a slow one");
        let statuses: Vec<u16> = slow.into_iter().map(|slow| slow.join().unwrap()).collect();
        assert!(statuses.iter().all(|status| matches!(status, 400 | 413)), "statuses of slow requests: {statuses:?}");
    });
    assert_eq!(server.text(&good()), said);
}

/// Returns the number of bytes that `text` has after a label, in a form such as `12.5 MiB`.
fn bytes_after(text: &str, label: &str) -> f64 {
    let rest = &text[text.find(label).unwrap_or_else(|| panic!("no {label}: {text}")) + label.len()..];
    let mut words = rest.split_whitespace();
    let number: f64 = words.next().unwrap().parse().unwrap();
    number
        * [("KiB", 1024.0), ("kB", 1024.0), ("MiB", 1048576.0), ("GiB", 1073741824.0)]
            .iter()
            .find(|(unit, _)| words.clone().next().unwrap().starts_with(unit))
            .unwrap()
            .1
}

#[cfg(target_os = "linux")]
#[test]
fn memory_stays_within_what_was_printed() {
    let server = Server::start(&["--parallel", "2"]);
    let said = server.text(&good());
    let large = vec![b' '; 8_000_000];
    // Clients send bodies that never end.
    let unfinished: Vec<_> = (0..60).map(|_| send(&server, "/v1/completions", &large, large.len() - 1)).collect();
    // Clients do not read their answers.
    let stalled = json!({ "prompt": "a", "n": 128, "logprobs": 20, "stream": true, "max_tokens": 100,
        "ignore_eos": true })
    .to_string();
    let stalled: Vec<_> = (0..3).map(|_| send(&server, "/v1/completions", stalled.as_bytes(), stalled.len())).collect();
    drop(unfinished);
    // Bodies have many small values.
    for values in ["{\"messages\": [", "{\"tools\": ["] {
        for element in ["{},", "{\"a\":0},", "[[]],", "0,"] {
            let body = [values, &element.repeat(6_000_000 / element.len()), "0]}"].concat();
            let (status, _) = server.post("/v1/chat/completions", body.as_bytes());
            assert!(matches!(status, 400 | 413), "{status}");
            let body = [values, &element.repeat(100_000), "0]}"].concat();
            assert_eq!(server.post("/v1/chat/completions", body.as_bytes()).0, 400);
        }
    }
    drop(stalled);
    assert_eq!(server.text(&good()), said);
    let used = |label| bytes_after(&std::fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap(), label);
    let (printed, highest) = (bytes_after(&server.log(), "in all up to "), used("VmHWM:"));
    assert!(highest < 1.1 * printed + 67_108_864.0, "{highest} bytes were in use, and {printed} were printed");
    let began = Instant::now();
    while used("VmRSS:") >= 167_772_160.0 {
        assert!(began.elapsed() < PATIENCE, "{} bytes are still in use after the requests", used("VmRSS:"));
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// The server survives large requests even if its address space is limited to the printed number of bytes.
#[cfg(target_os = "linux")]
#[test]
fn the_printed_memory_is_also_a_limit_of_addresses() {
    let flags = ["--parallel", "2", "-c", "256"];
    let printed = bytes_after(&Server::start_with(&flags).log(), "in all up to ");
    let server = Server::start_within(printed as usize, &flags);
    let said = server.text(&good());
    let values = ["{\"messages\": [", &"{\"a\":0},".repeat(90_000), "0]}"].concat().into_bytes();
    let large = |body: Value| ("/v1/completions", body.to_string().into_bytes());
    let requests = [
        large(json!({ "prompt": "x".repeat(7_900_000) })),
        large(json!({ "prompt": "x".repeat(300_000), "truncate_prompt_tokens": 9, "max_tokens": 1 })),
        ("/v1/chat/completions", values),
    ];
    std::thread::scope(|scope| {
        for (path, body) in requests.iter().cycle().take(9) {
            let server = &server;
            scope.spawn(move || assert!(matches!(server.post(path, body).0, 200 | 400), "{path}"));
        }
    });
    assert_eq!(server.text(&good()), said);
}

/// A prompt that cannot fit is refused because of its length, because counting its tokens would take a second.
#[test]
fn prompts_that_cannot_fit_are_refused_by_their_length() {
    let server = Server::start(&["--parallel", "2"]);
    let text = "a word ".repeat(20_000);
    for (path, param, body) in [
        ("/v1/completions", "prompt", json!({ "prompt": text })),
        ("/v1/completions", "prompt", json!({ "prompt": ["a", text] })),
        ("/v1/chat/completions", "messages", json!({ "messages": [{ "role": "user", "content": text }] })),
    ] {
        let (status, answer) = server.post(path, body.to_string().as_bytes());
        let error = &answer["error"];
        assert_eq!((status, &error["param"], &error["code"]), (400, &json!(param), &json!("context_length_exceeded")));
        assert!(error["message"].as_str().unwrap().contains("the prompt has at least "), "{error}");
    }
    // If the request allows its prompt to be cut, the prompt is not refused. White space is not counted.
    let body = json!({ "prompt": text, "truncate_prompt_tokens": 9, "max_tokens": 1 });
    assert_eq!(server.post("/v1/completions", body.to_string().as_bytes()).0, 200);
    let body = json!({ "prompt": " ".repeat(100_000) });
    let (_, answer) = server.post("/v1/completions", body.to_string().as_bytes());
    assert!(!answer["error"]["message"].as_str().unwrap().contains("at least"), "{answer}");
}

/// An answer whose client does not read it is abandoned. Until then, other clients are served.
#[test]
fn stalled_readers_lose_their_place() {
    let server = Server::start(&["--parallel", "2", "--cache-scope", "server"]);
    let body = json!({ "prompt": "a", "n": 64, "logprobs": 20, "stream": true, "max_tokens": 150, "ignore_eos": true });
    let body = body.to_string();
    let stalled: Vec<_> = (0..2).map(|_| send(&server, "/v1/completions", body.as_bytes(), body.len())).collect();
    let began = Instant::now();
    while server.metric("answers_running") > 0 || server.metric("requests_total") < 4 {
        assert!(began.elapsed() < PATIENCE, "answers that nobody reads still run");
        std::thread::sleep(Duration::from_millis(100));
    }
    // Not all 128 answers were generated in full.
    let tokens = server.metric("answer_tokens_total");
    assert!(tokens < 64 * 150, "{tokens} tokens were made for clients that read nothing");
    drop(stalled);
}

#[test]
fn requests_have_identifiers_and_lines() {
    let server = Server::start(&["--log-format", "json", "--cache-scope", "server"]);
    let body = good().to_string();
    let (head, _) = server.ask("POST", "/v1/completions", "X-Request-Id: mine-7\r\n", body.as_bytes());
    assert!(head.to_lowercase().contains("x-request-id: mine-7"), "{head}");
    let (head, _) = server.ask("POST", "/v1/other?key=secret", "", b"{}");
    assert!(head.to_lowercase().contains("x-request-id: "), "{head}");
    let began = Instant::now();
    // The answer is sent before the engine counts it.
    for line in ["arenite_first_token_seconds_count 1\n", "arenite_answer_tokens_per_second_bucket{le=\"+Inf\"} 1\n"] {
        while !server.ask("GET", "/metrics", "", b"").1.contains(line) {
            assert!(began.elapsed() < PATIENCE, "{line}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    let began = Instant::now();
    let lines: Vec<Value> = loop {
        let log = server.log();
        let lines: Vec<Value> = log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        if lines.len() >= 3 {
            assert!(!log.contains("secret") && !log.contains("Once upon"), "{log}");
            break lines;
        }
        assert!(began.elapsed() < PATIENCE, "{log}");
        std::thread::sleep(Duration::from_millis(20));
    };
    let line = lines.iter().find(|line| line["id"] == "mine-7").unwrap();
    assert_eq!((&line["status"], &line["path"]), (&json!(200), &json!("/v1/completions")));
    assert!(line["answer_tokens"] == 8 && line["prompt_tokens"].as_u64() > Some(2), "{line}");
    assert!(line["first_token_seconds"].as_f64() <= line["seconds"].as_f64(), "{line}");
    assert!(lines.iter().any(|line| line["status"] == 404 && line["path"] == "/v1/other"), "{lines:?}");
}

/// Connects from an address. The receive buffer is small: with the default size, Linux would accept up to 32 megabytes
/// (tcp_rmem) before the client reads.
fn connect_from(source: &str, server: &Server) -> TcpStream {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let socket = runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4()?;
        socket.set_recv_buffer_size(1 << 16)?;
        socket.bind(format!("{source}:0").parse().unwrap())?;
        socket.connect(format!("127.0.0.1:{}", server.port()).parse().unwrap()).await?.into_std()
    });
    let socket = socket.unwrap();
    socket.set_nonblocking(false).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// The response to a request from another address.
pub fn ask_from(source: &str, server: &Server, path: &str, body: &Value) -> String {
    let (mut socket, body) = (connect_from(source, server), body.to_string());
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    socket.write_all((head + &body).as_bytes()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    answer
}

/// If a client has all slots, another client gets a slot at once. The answer that is paused for this continues later
/// with the same text.
#[test]
fn a_new_client_does_not_wait_for_long_answers() {
    let server = Server::start_with(&["-c", "1024", "--parallel", "2", "--cache-scope", "server"]);
    for (scores, gives) in [(false, "paused while it answers"), (true, "paused while its prompt is scored")] {
        let long = json!({ "prompt": "a b c d e f g h ".repeat(10), "n": 3, "max_tokens": 300, "ignore_eos": true,
            "seed": 5, "echo": scores, "logprobs": 1 });
        let alone = server.post("/v1/completions", long.to_string().as_bytes()).1["choices"].clone();
        std::thread::scope(|scope| {
            let begun = server.metric("requests_total");
            let made = server.metric("answer_tokens_total");
            let answer =
                scope.spawn(|| server.post("/v1/completions", long.to_string().as_bytes()).1["choices"].clone());
            while server.metric("requests_total") < begun + 2 {}
            for source in ["127.0.0.2", "127.0.0.3", "127.0.0.2"] {
                assert!(ask_from(source, &server, "/v1/completions", &good()).starts_with("HTTP/1.1 200"));
            }
            let made = server.metric("answer_tokens_total") - made;
            // If the server did not pause long answers, the first of the other clients would wait until two answers of
            // 300 tokens have ended.
            assert!(made < 600, "{made} of 924 tokens were made before the other clients had their answers");
            assert!(answer.join().unwrap() == alone, "{gives}");
        });
    }
}

/// Clients take turns when texts are embedded.
#[test]
fn a_client_with_many_texts_does_not_delay_others() {
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/bert_reranker/model.gguf");
    let server = Server::start_with(&["-m", model, "--cache-scope", "server"]);
    let many = json!({ "query": "a", "documents": vec!["b c d e f g h i j k l m n o p"; 2000] }).to_string();
    let greedy: Vec<_> = (0..8).map(|_| send(&server, "/v1/rerank", many.as_bytes(), many.len())).collect();
    while server.metric("requests_open") == 0 {
        std::thread::sleep(Duration::from_millis(10));
    }
    let one = json!({ "query": "a", "documents": ["b"] });
    assert!(ask_from("127.0.0.2", &server, "/v1/rerank", &one).starts_with("HTTP/1.1 200"));
    assert!(server.metric("requests_open") > 0, "the other client waited for all 16000 texts");
    drop(greedy);
}

/// A client with many conversations does not delay the turns of other clients.
#[test]
fn clients_take_turns() {
    let server = Server::start_with(&["--parallel", "2", "--cache-scope", "server", "-c", "256", "--host", "0.0.0.0"]);
    let many = json!({ "prompt": "a", "n": 100, "max_tokens": 200, "ignore_eos": true, "stream": true }).to_string();
    let greedy = send(&server, "/v1/completions", many.as_bytes(), many.len());
    while server.metric("answers_running") < 2 {
        std::thread::sleep(Duration::from_millis(10));
    }
    let answer = ask_from("127.0.0.2", &server, "/v1/completions", &good());
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let begun = server.metric("requests_total");
    assert!(begun < 30, "{begun} of 101 answers were begun before the other client's ended");
    drop(greedy);
}
