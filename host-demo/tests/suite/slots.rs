//! `/slots`: conversations that a client saves, restores and erases by number.

use std::io::Write;

use serde_json::{Value, json};

use crate::overload::ask_from;
use crate::serve::Server;

const PROMPT: &str = "One day, a little fox went to the river. The fox saw a big fish in the water and said hello to the \
                      fish. The fish was very happy to see the fox.";

fn post(server: &Server, path: &str, body: &Value) -> Value {
    let (status, answer) = server.post(path, body.to_string().as_bytes());
    assert_eq!(status, 200, "{path} {body}: {answer}");
    answer
}

fn get(server: &Server, path: &str) -> Value {
    serde_json::from_str(&server.ask("GET", path, "", b"").1).unwrap()
}

#[test]
fn a_saved_slot_continues_on_another_server() {
    let folder = tempfile::tempdir().unwrap();
    let args = ["--slot-save-path", folder.path().to_str().unwrap(), "--parallel", "2"];
    let server = Server::start(&args);
    let first =
        post(&server, "/completion", &json!({ "prompt": PROMPT, "n_predict": 40, "temperature": 0, "id_slot": 1 }));
    let read = first["tokens_evaluated"].as_u64().unwrap();
    assert_eq!((&first["id_slot"], &first["tokens_cached"]), (&json!(1), &json!(read + 39)));
    let slots = get(&server, "/slots");
    assert_eq!((slots[0].get("params"), &slots[1]["n_prompt_tokens"]), (None, &json!(read)));
    let saved = post(&server, "/slots/1?action=save", &json!({ "filename": "one.bin" }));
    assert_eq!((&saved["id_slot"], &saved["n_saved"]), (&json!(1), &json!(read + 39)));
    let text = format!("{PROMPT}{} Then", first["content"].as_str().unwrap());
    let second = json!({ "prompt": text, "n_predict": 30, "temperature": 0, "cache_prompt": false });
    let fresh = post(&server, "/completion", &second);
    assert_eq!(fresh["timings"]["cache_n"], 0);
    drop(server);

    let server = Server::start(&args);
    let restored = post(&server, "/slots/0?action=restore", &json!({ "filename": "one.bin" }));
    assert_eq!((&restored["n_restored"], &restored["n_read"]), (&json!(read + 39), &saved["n_written"]));
    let second = json!({ "prompt": text, "n_predict": 30, "temperature": 0, "id_slot": 0, "return_tokens": true });
    let answer = post(&server, "/completion", &second);
    assert_eq!(answer["content"], fresh["content"]);
    let (cached, computed) = (answer["timings"]["cache_n"].as_u64(), answer["timings"]["prompt_n"].as_u64());
    assert!(cached == Some(read + 39) && computed.unwrap() * 10 <= answer["tokens_evaluated"].as_u64().unwrap());
    // The slot now has the whole conversation. Once the slot is erased, the server reads all tokens of the next
    // request.
    let erased = server.ask("POST", "/slots/0?action=erase", "", b"").1;
    let count = json!(answer["tokens_evaluated"].as_u64().unwrap() + 29);
    assert_eq!(serde_json::from_str::<Value>(&erased).unwrap(), json!({ "id_slot": 0, "n_erased": count }));
    assert_eq!(post(&server, "/completion", &second)["timings"]["cache_n"], 0);
}

#[test]
fn other_clients_see_no_slots() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&["--slot-save-path", folder.path().to_str().unwrap(), "--parallel", "2"]);
    post(&server, "/completion", &json!({ "prompt": PROMPT, "n_predict": 4, "temperature": 0, "id_slot": 0 }));
    post(&server, "/slots/0?action=save", &json!({ "filename": "mine.bin" }));
    let of_other = |path: &str, body: &Value| ask_from("127.0.0.2", &server, path, body);
    let file = json!({ "filename": "mine.bin" });
    assert!(of_other("/slots/0?action=restore", &file).starts_with("HTTP/1.1 400"));
    assert!(of_other("/slots/0?action=erase", &file).contains("\"n_erased\":0"));
    let told = of_other("/slots/0?action=save", &json!({ "filename": "mine.bin" }));
    assert!(told.contains("\"n_saved\":0"), "{told}");
    // The own file is still there.
    let restored = post(&server, "/slots/1?action=restore", &file);
    assert!(restored["n_restored"].as_u64().unwrap() > 40);
}

/// A client's files cannot have the names of the server's own files, and their size on disk is limited.
#[test]
fn saved_slots_keep_to_their_place() {
    let folder = tempfile::tempdir().unwrap();
    let args =
        ["--slot-save-path", folder.path().to_str().unwrap(), "--cache-scope", "server", "--cache-disk-size", "300000"];
    let server = Server::start(&args);
    post(&server, "/completion", &json!({ "prompt": PROMPT, "n_predict": 4, "temperature": 0, "id_slot": 0 }));
    let save = |name: &str| {
        let body = json!({ "filename": name }).to_string();
        let (status, answer) = server.post("/slots/0?action=save", body.as_bytes());
        (status, answer["error"]["message"].as_str().unwrap_or_default().to_string())
    };
    for name in ["client.key", "Client.KEY", "client-0011223344556677", "0011223344556677", "client.key.", "a "] {
        assert_eq!(save(name), (400, "Invalid filename".into()), "{name}");
    }
    let statuses: Vec<_> = (0..10).map(|at| save(&format!("{at}.bin"))).collect();
    let full = statuses.iter().position(|(status, _)| *status != 200).expect("a full folder");
    assert!(full > 0 && statuses[full].0 == 507 && statuses[full].1.contains("bytes: save"), "{statuses:?}");
    // A file may be replaced.
    assert_eq!(save("0.bin").0, 200);
    drop(server);
    post(&Server::start(&args), "/slots/0?action=restore", &json!({ "filename": "0.bin" }));
}

#[test]
fn wrong_requests_about_slots() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&["--slot-save-path", folder.path().to_str().unwrap()]);
    std::fs::write(folder.path().join("bad.bin"), "no session").unwrap();
    for (path, body, word) in [
        ("/slots/0?action=save", json!({ "filename": "" }), "Invalid filename"),
        ("/slots/0?action=save", json!({ "filename": "../x.bin" }), "Invalid filename"),
        ("/slots/0?action=save", json!({ "filename": ".." }), "Invalid filename"),
        ("/slots/0?action=save", json!({}), "filename"),
        ("/slots/0?action=restore", json!({ "filename": "missing.bin" }), "Unable to restore slot"),
        ("/slots/0?action=restore", json!({ "filename": "bad.bin" }), "Unable to restore slot"),
        ("/slots/0?action=dance", json!({}), "Invalid action"),
        ("/slots/0", json!({}), "Invalid action"),
        ("/slots/x?action=erase", json!({}), "Invalid slot ID"),
    ] {
        let (status, answer) = server.post(path, body.to_string().as_bytes());
        assert_eq!((status, &answer["error"]["code"]), (400, &json!(400)), "{path}: {answer}");
        assert!(answer["error"]["message"].as_str().unwrap().contains(word), "{path}: {answer}");
    }
    // As in llama.cpp, numbers beyond the last slot start again at the first slot.
    assert_eq!(server.post("/slots/99?action=erase", b"").1, json!({ "id_slot": 99, "n_erased": 0 }));
    let (status, answer) = Server::start(&[]).post("/slots/0?action=erase", b"");
    assert_eq!((status, &answer["error"]["type"]), (501, &json!("not_supported_error")));
}

#[test]
fn bodies_may_be_compressed() {
    let server = Server::start(&[]);
    let packed = |body: &[u8]| {
        let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        writer.write_all(body).unwrap();
        writer.finish().unwrap()
    };
    let ask = |encoding: &str, body: &[u8]| {
        let head = server.ask("POST", "/completion", &format!("Content-Encoding: {encoding}\r\n"), body).0;
        head.split(' ').nth(1).unwrap().parse::<u16>().unwrap()
    };
    let body = packed(json!({ "prompt": "a", "n_predict": 1 }).to_string().as_bytes());
    assert_eq!((ask("gzip", &body), ask("identity", b"{\"prompt\": \"a\", \"n_predict\": 1}")), (200, 200));
    assert_eq!((ask("gzip", &body[..body.len() / 2]), ask("gzip", b"{}"), ask("br", &body)), (400, 400, 415));
    // A small body that unpacks to a large one.
    assert_eq!(ask("gzip", &packed(&vec![b' '; 50 << 20])), 413);
}

/// If the context is full, half of the tokens after the first `n_keep` tokens are dropped, as in llama.cpp.
#[test]
fn answers_continue_in_a_full_context() {
    let body = json!({ "prompt": PROMPT, "n_predict": 300, "temperature": 0, "ignore_eos": true });
    let cut = post(&Server::start(&[]), "/completion", &body);
    assert_eq!((&cut["truncated"], &cut["stop_type"]), (&json!(true), &json!("limit")));
    let server = Server::start(&["--context-shift"]);
    let whole = post(&server, "/completion", &body);
    assert_eq!((&whole["truncated"], &whole["tokens_predicted"]), (&json!(true), &json!(300)));
    let text = |answer: &Value| answer["content"].as_str().unwrap().to_string();
    assert!(text(&whole).starts_with(&text(&cut)[..text(&cut).len() - 10]));
    // When the context is full, one token at the start is kept, and half of the 254 tokens after it are dropped. This
    // happens once.
    let read = whole["tokens_evaluated"].as_u64().unwrap();
    assert_eq!(whole["tokens_cached"], json!(read + 299 - 127));
    let kept = post(
        &server,
        "/completion",
        &json!({ "n_keep": -1, "n_discard": 10, "prompt": PROMPT,
        "n_predict": 300, "temperature": 0, "ignore_eos": true }),
    );
    let shifts = (read + 299 - kept["tokens_cached"].as_u64().unwrap()) / 10;
    assert_eq!(kept["tokens_cached"].as_u64().unwrap() + 10 * shifts, read + 299);
    assert!(shifts > 5 && kept["tokens_predicted"] == 300);
    // An answer that fits is the same with and without.
    let short = json!({ "prompt": PROMPT, "n_predict": 50, "temperature": 0 });
    assert_eq!(text(&post(&server, "/completion", &short)), text(&post(&Server::start(&[]), "/completion", &short)));
}

/// Waits until a condition holds.
fn until(what: &str, holds: impl Fn() -> bool) {
    let began = std::time::Instant::now();
    while !holds() {
        assert!(began.elapsed() < crate::PATIENCE, "{what}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn conversations_on_disk_survive_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let args = ["--cache-disk", folder.path().to_str().unwrap(), "--cache-scope", "server"];
    let server = Server::start(&args);
    let text = format!("{PROMPT} {PROMPT}");
    let answer = post(&server, "/completion", &json!({ "prompt": text, "n_predict": 20, "temperature": 0 }));
    let files = || {
        let folders = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
        let files = folders.filter(|path| path.is_dir()).flat_map(|own| std::fs::read_dir(own).unwrap());
        let files = files.map(|entry| entry.unwrap().path());
        files.filter(|path| path.extension().is_some_and(|ending| ending == "conversation")).collect::<Vec<_>>()
    };
    until("no conversation was stored", || !files().is_empty());
    drop(server);
    let more =
        json!({ "prompt": text.clone() + answer["content"].as_str().unwrap(), "n_predict": 20, "temperature": 0 });
    let server = Server::start(&args);
    let next = post(&server, "/completion", &more);
    let (read, all) = (&next["timings"]["prompt_n"], next["tokens_evaluated"].as_u64().unwrap());
    assert!(read.as_u64().unwrap() * 10 <= all, "{read} of {all}");
    drop(server);
    // A damaged file is removed, and the answer is the same.
    files().iter().for_each(|path| {
        let mut bytes = std::fs::read(path).unwrap();
        let last = bytes.len() - 9;
        bytes[last] ^= 1;
        std::fs::write(path, bytes).unwrap();
    });
    let damaged = files();
    let again = post(&Server::start(&args), "/completion", &more);
    assert_eq!((&again["content"], &again["timings"]["cache_n"]), (&next["content"], &json!(0)));
    assert!(!damaged.iter().all(|path| path.exists()));
    // Without room there are no files.
    let none = tempfile::tempdir().unwrap();
    let args = ["--cache-disk", none.path().to_str().unwrap(), "--cache-disk-size", "1K"];
    post(&Server::start(&args), "/completion", &more);
}

#[test]
fn models_are_unloaded_loaded_and_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let (path, next) = (folder.path().join("tiny.gguf"), folder.path().join("next"));
    let models = concat!(env!("CARGO_MANIFEST_DIR"), "/models");
    std::fs::copy(format!("{models}/stories.gguf"), &path).unwrap();
    let server = Server::start(&["-m", path.to_str().unwrap(), "--idle-timeout", "1"]);
    let card = || get(&server, "/v1/models")["data"][0].clone();
    let ask = |path: &str, body: Value| server.post(path, body.to_string().as_bytes());
    assert_eq!((&card()["state"], &card()["capabilities"][0]), (&json!("unloaded"), &json!("completion")));
    let one = json!({ "prompt": "One day", "n_predict": 4, "temperature": 0 });
    let told = post(&server, "/completion", &one);
    until("the model stays loaded", || card()["state"] == "unloaded");
    for (path, model, status, word) in [
        ("/models/unload", "tiny", 400, "not running"),
        ("/models/load", "nope", 404, "Not Found"),
        ("/models/unload", "nope", 400, "not found"),
    ] {
        let (given, answer) = ask(path, json!({ "model": model }));
        assert_eq!(given, status, "{path} {model}");
        assert!(answer["error"]["message"].as_str().unwrap().contains(word), "{answer}");
    }
    // A request of Ollama says how long the model stays.
    let kept = |time: Value| json!({ "model": "tiny", "prompt": "a", "stream": false, "keep_alive": time, "options": { "num_predict": 1 } });
    post(&server, "/api/generate", &kept(json!("10m")));
    std::thread::sleep(std::time::Duration::from_millis(1500));
    assert_eq!(card()["state"], "loaded");
    assert_eq!(ask("/models/load", json!({ "model": "tiny" })).0, 400);
    assert_eq!(ask("/models/unload", json!({ "model": "tiny" })), (200, json!({ "success": true })));
    assert_eq!(card()["state"], "unloaded");
    assert_eq!(ask("/models/load", json!({ "model": "tiny" })), (200, json!({ "success": true })));
    until("the model is not loaded", || card()["state"] == "loaded");
    post(&server, "/api/generate", &kept(json!(-1)));
    post(&server, "/api/generate", &kept(json!(0)));
    until("the model stays loaded", || card()["state"] == "unloaded");
    // Another file in the place of the model's.
    assert_eq!(post(&server, "/completion", &one)["content"], told["content"]);
    std::fs::copy(format!("{models}/hybrid.gguf"), &next).unwrap();
    std::fs::rename(&next, &path).unwrap();
    assert_ne!(post(&server, "/completion", &one)["content"], told["content"]);
}
