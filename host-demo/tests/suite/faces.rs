//! Answers of each interface as real clients need them: streams, lists, rankings, log-probabilities, paths and names of
//! hosts.
//!
//! The bodies are those of Claude Code, Codex, Ollama's Go package, Cohere's and Hugging Face's clients, and others;
//! the expected answers follow the documentation of each interface.

use serde_json::{Value, json};

use crate::common::arenite_with;
use crate::scripted::CHATML;
use crate::serve::Server;
use crate::talk::{FIM, asked, function, start};

/// Each event of a streamed completion contains the counts of tokens so far, as in llama.cpp.
#[test]
fn streams_of_completions_count() {
    let talk = start(&["A", "B", "C"], &[], &[], CHATML);
    let body = json!({ "prompt": "hi", "n_predict": 3, "temperature": 0, "stream": true });
    let (_, text) = talk.server.ask("POST", "/completion", "", body.to_string().as_bytes());
    let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data: ")?).ok());
    let counts =
        events.map(|event| (event["tokens_predicted"].as_u64(), event["tokens_evaluated"].as_u64().unwrap() > 0));
    let counts: Vec<_> = counts.collect();
    assert_eq!(counts[..3], [(Some(1), true), (Some(2), true), (Some(3), true)], "{text}");
}

/// Some clients read line by line: each line of data belongs to the name before it.
#[test]
fn the_name_of_an_event_comes_before_its_data() {
    let talk = start(&["A", "B"], &[], &[], CHATML);
    for (path, body) in [
        ("/v1/messages", json!({ "messages": [{ "role": "user", "content": "hi" }], "max_tokens": 2, "stream": true })),
        ("/v1/responses", json!({ "input": "hi", "stream": true })),
    ] {
        let (_, text) = talk.server.ask("POST", path, "", body.to_string().as_bytes());
        let (mut name, mut count) = ("", 0);
        for line in text.lines() {
            if let Some(next) = line.strip_prefix("event: ") {
                name = next;
            } else if let Some(data) = line.strip_prefix("data: ") {
                assert_eq!(serde_json::from_str::<Value>(data).unwrap()["type"], name, "{path}");
                (name, count) = ("", count + 1);
            }
        }
        assert!(count > 5, "{text}");
    }
}

#[test]
fn a_model_that_is_here_is_pulled_and_listed() {
    let talk = start(&["Once"], &[], &[], CHATML);
    let (status, answer) = talk.server.ask("POST", "/api/pull", "", br#"{"model":"m:latest"}"#);
    assert!(status.contains(" 200 ") && answer.trim() == r#"{"status":"success"}"#, "{status} {answer}");
    let (status, answer) = talk.server.post("/api/pull", br#"{"model":"other"}"#);
    assert_eq!((status, &answer["error"]), (404, &json!("there is no model `other` here; there is `m`")));
    let (_, loaded) = talk.server.ask("GET", "/api/ps", "", b"");
    let loaded: Value = serde_json::from_str(&loaded).unwrap();
    assert_eq!(loaded["models"][0]["context_length"], 1024);
}

#[test]
fn ollama_reports_log_probabilities() {
    let talk = start(&["A", "B", "C"], &[], &[], CHATML);
    let asked = [
        ("/api/chat", json!({ "messages": [{ "role": "user", "content": "hi" }] })),
        ("/api/generate", json!({ "prompt": "hi" })),
    ];
    for (path, mut body) in asked {
        (body["logprobs"], body["top_logprobs"]) = (json!(true), json!(2));
        body["options"] = json!({ "temperature": 0 });
        let lines = talk.stream(path, &body);
        let streamed: Vec<&Value> =
            lines.iter().flat_map(|line| line["logprobs"].as_array().into_iter().flatten()).collect();
        body["stream"] = json!(false);
        let answer = talk.good(path, &body);
        let whole = answer["logprobs"].as_array().unwrap();
        assert_eq!(whole.iter().collect::<Vec<_>>(), streamed, "{path}");
        assert_eq!(whole.iter().take(3).map(|token| token["token"].as_str().unwrap()).collect::<String>(), "ABC");
        assert!(whole.iter().all(|token| token["top_logprobs"].as_array().unwrap().len() == 2), "{answer}");
        body["logprobs"] = json!(false);
        assert!(talk.good(path, &body).get("logprobs").is_none());
    }
}

#[test]
fn tokens_of_a_response_are_counted_beforehand() {
    let talk = start(&["A"], &[], &[], CHATML);
    let mut body = json!({ "input": "hi", "instructions": "Be brief.", "tools": [function("f")] });
    let count = talk.good("/v1/responses/input_tokens", &body);
    body["temperature"] = json!(0);
    assert_eq!(count["input_tokens"], talk.good("/v1/responses", &body)["usage"]["input_tokens"]);
}

#[test]
fn a_context_continues_ollamas_prompts() {
    let talk = start(&["Once", " upon"], &[], &[], CHATML);
    let ask = |more: Value| {
        let mut body = json!({ "prompt": "hi", "stream": false, "options": { "temperature": 0 } });
        more.as_object().unwrap().iter().for_each(|(key, value)| body[key] = value.clone());
        talk.good("/api/generate", &body)
    };
    let first = ask(json!({}));
    let context = first["context"].as_array().unwrap();
    let count = |answer: &Value, key: &str| answer[key].as_u64().unwrap();
    assert_eq!(context.len() as u64, count(&first, "prompt_eval_count") + count(&first, "eval_count"));
    let second = ask(json!({ "context": context }));
    assert_eq!(count(&second, "prompt_eval_count"), context.len() as u64 + count(&first, "prompt_eval_count"));
    let lines = talk.stream("/api/generate", &json!({ "prompt": "hi", "options": { "temperature": 0 } }));
    assert_eq!(&lines.last().unwrap()["context"], &first["context"]);
    assert!(lines[..lines.len() - 1].iter().all(|line| line.get("context").is_none()));
    assert_eq!(ask(json!({ "raw": true })).get("context"), None);
}

#[test]
fn a_suffix_fills_a_gap() {
    let talk = start(&["Once", " upon"], &FIM, &[], CHATML);
    let infill = talk.good("/infill", &json!({ "input_prefix": "ab", "input_suffix": "cd", "temperature": 0 }));
    let answer = talk.good("/v1/completions", &json!({ "prompt": "ab", "suffix": "cd", "temperature": 0 }));
    assert_eq!(
        (&answer["choices"][0]["text"], &answer["usage"]["prompt_tokens"]),
        (&infill["content"], &infill["tokens_evaluated"])
    );
    let body = json!({ "prompt": "ab", "suffix": "cd", "stream": false, "options": { "temperature": 0 } });
    let answer = talk.good("/api/generate", &body);
    assert_eq!((&answer["response"], &answer["prompt_eval_count"]), (&infill["content"], &infill["tokens_evaluated"]));
}

#[test]
fn every_path_exists_without_its_version() {
    let talk = start(&["Once"], &[], &[], CHATML);
    let said = json!([{ "role": "user", "content": "hi" }]);
    for (path, body) in [
        ("/v1/chat/completions", asked(json!({}))),
        ("/v1/responses", json!({ "input": "hi" })),
        ("/v1/messages", json!({ "messages": said })),
        ("/v1/messages/count_tokens", json!({ "messages": said })),
        ("/v1/embeddings", json!({ "input": "hi" })),
        ("/v1/rerank", json!({ "query": "a", "documents": ["b"] })),
        ("/v1/audio/transcriptions", json!({})),
        ("/v1/audio/translations", json!({})),
    ] {
        let status = |path: &str| talk.server.post(path, body.to_string().as_bytes()).0;
        assert_eq!(status(path), status(&path[3..]), "{path}");
        assert_ne!(status(path), 404, "{path}");
    }
    for path in ["/v1/models", "/models", "/models/m"] {
        assert!(talk.server.ask("GET", path, "", b"").0.starts_with("HTTP/1.1 200"), "{path}");
    }
    let show = talk.good("/api/show", &json!({ "model": "m" }));
    assert!(show["model_info"]["general.basename"].is_string() && show["capabilities"].is_array(), "{show}");
    let version = talk.server.ask("GET", "/api/version", "", b"").1;
    let version: Value = serde_json::from_str(&version).unwrap();
    let numbers: Vec<u32> =
        version["version"].as_str().unwrap().split('.').map(|number| number.parse().unwrap()).collect();
    // VS Code asks for 0.6.4, and thoughts came with 0.9.
    assert!(numbers.len() == 3 && numbers >= vec![0, 9, 0], "{version}");
}

/// Streams do not contain these characters unescaped, because some clients split a stream with Python's
/// `str.splitlines`, which ends lines at these characters.
#[test]
fn lines_of_streams_have_no_other_line_breaks() {
    const BREAKS: [char; 3] = ['\u{85}', '\u{2028}', '\u{2029}'];
    let said = "a\u{2028}b\u{2029}c\u{85}d end";
    let talk = start(&["a\u{2028}b", "\u{2029}c\u{85}d", " end"], &[], &[], CHATML);
    let streamed = |path: &str, texts: &[&str]| {
        let mut body = asked(json!({ "input": "hi", "stream": true }));
        if path.contains("compl") && !path.contains("chat") || path == "/api/generate" {
            body.as_object_mut().unwrap().remove("messages");
            body["prompt"] = json!("hi");
        }
        let (head, text) = talk.server.ask("POST", path, "", body.to_string().as_bytes());
        assert!(head.contains(" 200 ") && !text.contains(BREAKS), "{path}: {head} {text}");
        let lines = text.lines().map(|line| line.strip_prefix("data: ").unwrap_or(line));
        let events = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let parts =
            events.filter_map(|event| texts.iter().find_map(|text| Some(event.pointer(text)?.as_str()?.to_string())));
        assert_eq!(parts.collect::<String>(), said, "{path}: {text}");
    };
    streamed("/v1/chat/completions", &["/choices/0/delta/content"]);
    streamed("/v1/completions", &["/choices/0/text"]);
    streamed("/completion", &["/content"]);
    streamed("/v1/messages", &["/delta/text"]);
    streamed("/v1/responses", &["/delta"]);
    streamed("/api/chat", &["/message/content"]);
    streamed("/api/generate", &["/response"]);
    let path = talk.model();
    let line = json!({ "custom_id": "\u{2028}", "url": "/v1/chat/completions", "body": asked(json!({})) }).to_string();
    let output = arenite_with(&["batch", "-m", &path, "-i", "-", "-o", "-", "-c", "256"], line.as_bytes());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!text.contains(BREAKS), "{text}");
    let answer: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(answer["response"]["body"]["choices"][0]["message"]["content"], said);
}

#[test]
fn streams_pass_proxies() {
    let talk = start(&["Once"], &[], &[], CHATML);
    for (path, body) in [
        ("/v1/chat/completions", asked(json!({ "stream": true }))),
        ("/v1/completions", json!({ "prompt": "a", "stream": true })),
        ("/completion", json!({ "prompt": "a", "stream": true })),
        ("/v1/responses", json!({ "input": "a", "stream": true })),
        ("/v1/messages", json!({ "messages": [{ "role": "user", "content": "hi" }], "stream": true })),
        ("/api/chat", json!({ "messages": [{ "role": "user", "content": "hi" }] })),
        ("/api/generate", json!({ "prompt": "hi" })),
    ] {
        let (head, _) = talk.server.ask("POST", path, "", body.to_string().as_bytes());
        assert!(head.contains("x-accel-buffering: no") && head.contains("cache-control: no-cache"), "{path}: {head}");
    }
}

#[test]
fn pages_and_containers_of_this_machine() {
    let server = Server::start(&[]);
    let head = |method: &str, headers: &str| server.ask(method, "/v1/models", headers, b"").0;
    for origin in [
        "http://localhost:3000",
        "http://127.0.0.1:5173",
        "http://0.0.0.0:8080",
        "tauri://localhost",
        "capacitor://localhost",
        "app://obsidian.md",
        "vscode-webview://x",
    ] {
        let allowed = format!("access-control-allow-origin: {origin}");
        let preflight = format!(
            "Origin: {origin}\r\nAccess-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: authorization\r\n"
        );
        assert!(head("OPTIONS", &preflight).contains(&allowed), "{origin}");
        assert!(head("GET", &format!("Origin: {origin}\r\n")).contains(&allowed), "{origin}");
    }
    for origin in
        ["https://evil.example", "null", "http://localhost.evil.example", "http://a.local", "chrome-extension://x"]
    {
        assert!(!head("GET", &format!("Origin: {origin}\r\n")).contains("access-control-allow-origin"), "{origin}");
    }
    // A page whose own host is a name under .local or .internal gets no data, because anybody on the local network may
    // have such a name.
    for near in ["evil.local", "evil.internal"] {
        let origin = format!("http://{near}:{}", server.port());
        for more in [format!("Origin: {origin}\r\n"), "Sec-Fetch-Site: same-origin\r\n".to_string()] {
            use std::io::{Read, Write};
            let mut socket = server.connect();
            let host = format!("{near}:{}", server.port());
            let asked = format!("GET /slots HTTP/1.1\r\nHost: {host}\r\n{more}Connection: close\r\n\r\n");
            socket.write_all(asked.as_bytes()).unwrap();
            let mut answer = String::new();
            let _ = socket.read_to_string(&mut answer);
            assert!(answer.starts_with("HTTP/1.1 403"), "{more}: {answer}");
        }
    }
    let status = |host: &str| {
        use std::io::{Read, Write};
        let mut socket = server.connect();
        let _ = socket
            .write_all(format!("GET /v1/models HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").as_bytes());
        let mut answer = String::new();
        let _ = socket.read_to_string(&mut answer);
        answer.split(' ').nth(1).map(str::to_string).unwrap_or_default()
    };
    for host in [
        "host.docker.internal:11434",
        "gateway.docker.internal",
        "host.containers.internal:1",
        "HOST.DOCKER.INTERNAL.",
        "box.local",
        "0.0.0.0:8080",
    ] {
        assert_eq!(status(host), "200", "{host}");
    }
    for host in ["attacker.example", "internal", "host.docker.internal.attacker.example", "xinternal:80"] {
        assert_eq!(status(host), "403", "{host}");
    }
}

#[test]
fn rankings_of_cohere_and_text_embeddings_inference() {
    let model = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/bert_reranker/model.gguf");
    let server = Server::start_with(&["-m", model.to_str().unwrap()]);
    let documents = ["the cat sat on the mat", "a dog", "rain in spain"];
    let ask = |path: &str, body: Value| {
        let (status, answer) = server.post(path, body.to_string().as_bytes());
        assert_eq!(status, 200, "{path} {body}: {answer}");
        answer
    };
    let whole = ask("/v1/rerank", json!({ "query": "cat", "documents": documents }));
    let best = ask(
        "/v2/rerank",
        json!({ "query": "cat", "documents": documents, "top_n": 2, "max_tokens_per_doc": 4096, "model": null }),
    );
    assert!(best["id"].is_string() && best["meta"].is_object(), "{best}");
    // Cohere promises scores from 0 to 1. llama.cpp's route returns the model's own scores.
    let share = |raw: f64| 1.0 / (1.0 + (-raw).exp());
    let compare = |best: &Value, count: usize| {
        assert_eq!(best["results"].as_array().unwrap().len(), count);
        for (best, own) in best["results"].as_array().unwrap().iter().zip(whole["results"].as_array().unwrap()) {
            assert_eq!(best["index"], own["index"]);
            let [best, own] = [best, own].map(|result| result["relevance_score"].as_f64().unwrap());
            assert!((best - share(own)).abs() < 1e-9 && own < 0.0, "{best} {own}");
        }
    };
    compare(&best, 2);
    compare(&ask("/v1/rerank", json!({ "query": "cat", "documents": documents, "raw_scores": false })), 3);
    let own = ask("/v2/rerank", json!({ "query": "cat", "documents": documents, "raw_scores": true }));
    assert_eq!(own["results"], whole["results"]);
    let (status, answer) = server.post("/v1/embeddings", br#"{"input": "cat"}"#);
    let said = answer["error"]["message"].as_str().unwrap();
    assert!(status == 400 && said.contains("scores texts and computes no embeddings: use /v1/rerank"), "{answer}");
    let output = arenite_with(&["embed", "-m", model.to_str().unwrap(), "-p", "cat"], b"");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains("scores texts and computes no embeddings"), "{said}");
    let scores = |path: &str, raw: bool| {
        let body = json!({ "query": "cat", "texts": documents, "raw_scores": raw, "return_text": true, "truncate": true, "truncation_direction": "Right" });
        ask(path, body).as_array().unwrap().clone()
    };
    let raw = scores("/rerank", true);
    for (one, result) in raw.iter().zip(whole["results"].as_array().unwrap()) {
        assert_eq!((&one["index"], &one["score"]), (&result["index"], &result["relevance_score"]));
        assert_eq!(one["text"], documents[one["index"].as_u64().unwrap() as usize]);
    }
    for (share, raw) in scores("/rerank", false).iter().zip(&raw) {
        let [share, raw] = [share, raw].map(|one| one["score"].as_f64().unwrap());
        assert!((share - 1.0 / (1.0 + (-raw).exp())).abs() < 1e-9);
    }
    assert_eq!(scores("/", true), raw);
    assert_eq!(server.post("/rerank", br#"{"query": "a"}"#).0, 400);
    // `rank_fields` chooses the fields of a document that are ranked.
    let fields = documents.map(|text| json!({ "title": text, "text": "x" }));
    let ranked = ask("/v1/rerank", json!({ "query": "cat", "documents": fields, "rank_fields": ["title"] }));
    assert_eq!(ranked["results"], whole["results"]);
    let joined = ask("/v1/rerank", json!({ "query": "cat", "documents": fields, "rank_fields": ["title", "text"] }));
    let same = ask("/v1/rerank", json!({ "query": "cat", "documents": documents.map(|text| format!("{text}\nx")) }));
    assert_eq!(joined["results"], same["results"]);
    let body = json!({ "query": "cat", "documents": fields, "rank_fields": ["name"] });
    assert_eq!(server.post("/v1/rerank", body.to_string().as_bytes()).0, 400);
    // vLLM's scores have the order of the texts.
    let shares = ask("/v2/rerank", json!({ "query": "cat", "documents": documents }));
    for body in [
        json!({ "text_1": "cat", "text_2": documents }),
        json!({ "text_1": ["cat", "cat", "cat"], "text_2": documents }),
    ] {
        let scored = ask("/score", body);
        for result in shares["results"].as_array().unwrap() {
            let one = &scored["data"][result["index"].as_u64().unwrap() as usize];
            assert_eq!((&one["index"], &one["score"]), (&result["index"], &result["relevance_score"]));
        }
    }
    assert_eq!(server.post("/v1/score", br#"{"text_1": ["a", "b"], "text_2": "c"}"#).0, 400);
    let info: Value = serde_json::from_str(&server.ask("GET", "/info", "", b"").1).unwrap();
    assert!(info["model_type"]["reranker"].is_object() && info["max_input_length"] == 512, "{info}");
}

/// text-embeddings-inference answers at `/` itself, where the page also is.
#[test]
fn embeddings_of_text_embeddings_inference() {
    let model = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/nomic_bert/model.gguf");
    let server = Server::start_with(&["-m", model.to_str().unwrap(), "-c", "512"]);
    let ask = |path: &str, body: Value| {
        let (status, answer) = server.post(path, body.to_string().as_bytes());
        assert_eq!(status, 200, "{path} {body}: {answer}");
        answer
    };
    let inputs = ["striking", "a clock", "striking"];
    let vectors = ask("/", json!({ "inputs": inputs }));
    assert_eq!(vectors, ask("/embed", json!({ "inputs": inputs })));
    let vectors: Vec<Vec<f64>> = serde_json::from_value(vectors).unwrap();
    let sentences = json!({ "source_sentence": inputs[0], "sentences": inputs[1..] });
    let similar = ask("/similarity", json!({ "inputs": sentences, "parameters": { "truncate": true } }));
    let similar: Vec<f64> = serde_json::from_value(similar).unwrap();
    for (vector, similar) in vectors[1..].iter().zip(&similar) {
        let product: f64 = vectors[0].iter().zip(vector).map(|(a, b)| a * b).sum();
        assert!((product - similar).abs() < 1e-5, "{product} {similar}");
    }
    assert!(similar.len() == 2 && (similar[1] - 1.0).abs() < 1e-5 && similar[0] < 0.9999, "{similar:?}");
    assert_eq!(server.post("/similarity", br#"{"inputs": {"sentences": ["a"]}}"#).0, 400);
    // Cohere's routes have the same vectors.
    let vectors = json!(vectors);
    let body = json!({ "texts": inputs, "model": null, "input_type": "search_document", "embedding_types": ["float"] });
    let answer = ask("/v2/embed", body.clone());
    assert_eq!((&answer["embeddings"]["float"], &answer["texts"]), (&vectors, &json!(inputs)));
    assert_eq!(ask("/v1/embed", body)["embeddings"]["float"], vectors);
    assert_eq!(ask("/v1/embed", json!({ "texts": inputs }))["embeddings"], vectors);
    let long = "striking ".repeat(600);
    assert_eq!(ask("/v2/embed", json!({ "texts": [long] }))["meta"]["billed_units"]["input_tokens"], 512);
    for (key, value) in [("truncate", json!("NONE")), ("embedding_types", json!(["int8"]))] {
        assert_eq!(server.post("/v2/embed", json!({ "texts": [long], key: value }).to_string().as_bytes()).0, 400);
    }
    assert!(server.ask("GET", "/", "", b"").0.contains("text/html"));
    drop(server);
    // A model that generates text has no vectors at `/`, and the key is needed there.
    let server = Server::start(&["--api-key", "k"]);
    assert_eq!(server.post("/", br#"{"inputs": "a"}"#).0, 401);
    assert!(server.ask("POST", "/", "Authorization: Bearer k\r\n", br#"{"inputs": "a"}"#).0.contains(" 405 "));
    assert!(server.ask("GET", "/", "", b"").0.contains(" 200 "));
}

/// The tokens of a conversation are counted and listed as the model reads them.
#[test]
fn tokens_of_a_conversation() {
    let talk = start(&["Once"], &[], &[], CHATML);
    let count = talk.good("/v1/chat/completions", &asked(json!({})))["usage"]["prompt_tokens"].clone();
    assert_eq!(talk.good("/v1/chat/completions/input_tokens", &asked(json!({})))["input_tokens"], count);
    let listed = talk.good("/tokenize", &asked(json!({})));
    assert_eq!(listed["count"], count);
    let text = talk.good("/detokenize", &json!({ "tokens": listed["tokens"] }))["content"].clone();
    assert_eq!(text, "user\nhi\nassistant");
    assert_eq!(talk.server.ask("GET", "/ping", "", b"").0.split(' ').nth(1), Some("200"));
}

/// A list of models has the format that the client's interface uses: Anthropic's or OpenAI's.
#[test]
fn models_are_listed_for_anthropics_clients() {
    let talk = start(&["Once"], &[], &[], CHATML);
    let get = |path: &str, headers: &str| {
        let (head, body) = talk.server.ask("GET", path, headers, b"");
        (head.contains(" 200 "), serde_json::from_str::<Value>(&body).unwrap())
    };
    const ANTHROPIC: &str = "anthropic-version: 2023-06-01\r\n";
    let (_, list) = get("/v1/models?limit=20", ANTHROPIC);
    let card = json!({
        "type": "model", "id": "m", "display_name": "m", "created_at": "1970-01-01T00:00:00Z", "lifecycle": "active",
        "max_input_tokens": 1024, "max_tokens": 1024,
    });
    assert_eq!(list, json!({ "data": [card], "has_more": false, "first_id": "m", "last_id": "m" }));
    assert_eq!(get("/v1/models/m", ANTHROPIC), (true, card));
    let (is_good, error) = get("/v1/models/other", ANTHROPIC);
    assert!(!is_good && error["type"] == "error" && error["error"]["type"] == "not_found_error", "{error}");
    assert_eq!(get("/v1/models", "").1["object"], "list");
    assert_eq!(get("/v1/models/m", "").1["object"], "model");
}

/// A request whose conversation is longer than the context can be counted, and its prompt can be shown; only an answer
/// is refused.
#[test]
fn long_conversations_are_counted() {
    let talk = start(&["a"], &[], &[], CHATML);
    for words in [1000, 100_000] {
        let body = json!({ "messages": [{ "role": "user", "content": "a ".repeat(words) }], "max_tokens": 1 });
        let counted = talk.good("/v1/messages/count_tokens", &body)["input_tokens"].as_u64().unwrap();
        assert!(counted >= 2 * words as u64, "{counted}");
        talk.refused("/v1/messages", &body);
        let prompt = talk.good("/apply-template", &body)["prompt"].as_str().unwrap().len();
        assert!(prompt > 2 * words);
        let body = json!({ "input": "a ".repeat(words) });
        assert_eq!(talk.good("/v1/responses/input_tokens", &body)["input_tokens"], counted);
        talk.refused("/v1/responses", &body);
    }
}
