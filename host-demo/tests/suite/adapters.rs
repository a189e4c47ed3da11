//! Adapters and sessions on the command line and in the server.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::common::{arenite, committed, error, json as output, npy, path, stdout};
use crate::serve::Server;

/// Makes two adapters for the built-in model with a script of the firmware's tests.
pub fn adapters(directory: &std::path::Path) -> [PathBuf; 2] {
    ["1", "2"].map(|seed| {
        let file = directory.join(format!("{seed}.gguf"));
        let made = std::process::Command::new("python3")
            .arg(committed("tests/firmware/random_adapter.py"))
            .args([path(&committed("host-demo/models/stories.gguf")), path(&file), "2", seed])
            .status();
        assert!(made.expect("python3 runs").success());
        file
    })
}

fn ids(more: &[&str]) -> Value {
    output(
        &[&["generate", "--ids", "1,403", "-n", "8", "--temp", "0", "--ignore-eos", "--format", "ids"], more].concat(),
    )
}

#[test]
fn adapters_and_scales() {
    let directory = tempfile::tempdir().unwrap();
    let [first, second] = adapters(directory.path());
    let (first, second) = (path(&first), path(&second));
    let plain = ids(&[]);
    let (one, other) = (ids(&["--lora", first]), ids(&["--lora", second]));
    assert!(plain != one && plain != other && one != other);
    assert_eq!(ids(&["--lora", first, "--lora", &format!("{second}:0")]), one);
    assert_eq!(ids(&["--lora-scaled", &format!("{first}:0,{second}:1")]), other);
    // The result is the same if the model file is copied instead of mapped, and if the model is also its own smaller
    // model for drafts.
    assert_eq!(ids(&["--lora", first, "--load", "copy"]), one);
    assert_eq!(ids(&["--lora", first, "--draft", path(&committed("host-demo/models/stories.gguf"))]), one);
    let message = error(&["generate", "--lora", path(&committed("host-demo/models/stories.gguf")), "-p", "a"]);
    assert!(message.contains("stories.gguf") && message.contains("this is no LoRA adapter"), "{message}");
    assert!(error(&["generate", "--lora", "nowhere.gguf", "-p", "a"]).contains("nowhere.gguf"));

    let plan = |more: &[&str]| output(&[&["plan", "-c", "64", "--json"], more].concat());
    let (alone, with) = (plan(&[]), plan(&["--lora", first, "--lora", second]));
    let workspace = |plan: &Value| plan["workspace_bytes"].as_u64().unwrap();
    assert!(workspace(&with) > workspace(&alone));
    assert!(with["features"].as_array().unwrap().contains(&json!("lora")), "{with}");
}

/// An adapter of the token embedding and of the head gives the same logits when it is applied at run time as when it is
/// merged.
#[test]
fn merged_embeddings() {
    let directory = tempfile::tempdir().unwrap();
    let (model, lora) = (committed("tests/fixtures/qwen3/model.gguf"), committed("tests/fixtures/lora/first.gguf"));
    let (merged, out) = (directory.path().join("merged.gguf"), directory.path().join("logits.npy"));
    stdout(&["merge", path(&model), path(&lora), path(&merged)]);
    let logits = |more: &[&str]| {
        stdout(&[&["logits", "--ids", "46,349,220,494", "--kv", "f32", "-o", path(&out)], more].concat());
        npy(&out).1
    };
    let (plain, with) = (logits(&["-m", path(&model)]), logits(&["-m", path(&model), "--lora", path(&lora)]));
    let most = with.iter().fold(0.0f32, |most, x| most.max(x.abs()));
    let differs = |a: &[f32]| a.iter().zip(&with).fold(0.0f32, |most, (a, b)| most.max((a - b).abs())) / most;
    assert!(differs(&plain) > 1e-2);
    assert!(differs(&logits(&["-m", path(&merged)])) < 1e-5);
}

/// Quantizes the adapter IN to Q8_0, and also writes the values of the blocks as F32. Arguments: DIRECTORY IN Q8_0 F32.
const QUANTIZE: &str = r#"
import array, struct, sys
sys.path.insert(0, sys.argv[1])
from gguf_file import Gguf
blocks, floats = Gguf(sys.argv[2]), Gguf(sys.argv[2])
for name, (dims, kind, data) in list(blocks.tensors.items()):
    packed, values = b"", array.array("f")
    numbers = array.array("f", bytes(data))
    for start in range(0, len(numbers), 32):
        block = numbers[start:start + 32]
        scale = struct.pack("<e", max(map(abs, block)) / 127)
        factor, = struct.unpack("<e", scale)
        codes = array.array("b", [max(-127, min(127, round(x / factor))) for x in block])
        packed += scale + codes.tobytes()
        values.extend(factor * code for code in codes)
    blocks.tensors[name] = (dims, 8, packed)
    floats.tensors[name] = (dims, kind, values.tobytes())
blocks.write(sys.argv[3])
floats.write(sys.argv[4])
"#;

/// A Q8_0 adapter, which llama.cpp's converter can write, gives exactly the same result as its decoded values.
#[test]
fn quantized_adapters() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let [plain, blocks, floats, out] = ["plain.gguf", "q8.gguf", "f32.gguf", "out.npy"].map(at);
    let run = |args: &[&str]| assert!(std::process::Command::new("python3").args(args).status().unwrap().success());
    let scripts = committed("tests/firmware");
    let stories = committed("host-demo/models/stories.gguf");
    run(&[path(&scripts.join("random_adapter.py")), path(&stories), path(&plain), "32", "3"]);
    run(&["-c", QUANTIZE, path(&scripts), path(&plain), path(&blocks), path(&floats)]);
    let logits = |more: &[&str]| {
        stdout(&[&["logits", "--ids", "1,403,77", "--kv", "f32", "-o", path(&out)], more].concat());
        npy(&out).1
    };
    let expected = logits(&["--lora", path(&floats)]);
    assert_ne!(expected, logits(&["--lora", path(&plain)]));
    assert_eq!(expected, logits(&["--lora", path(&blocks)]));
    assert_eq!(expected, logits(&["--lora", path(&blocks), "--load", "copy"]));
}

/// Embedding requests choose adapters, too.
#[test]
fn embedding_requests_choose_adapters() {
    let directory = tempfile::tempdir().unwrap();
    let (model, lora) = (committed("tests/fixtures/qwen3_embedding/model.gguf"), directory.path().join("lora.gguf"));
    let script = committed("tests/firmware/random_adapter.py");
    let made =
        std::process::Command::new("python3").args([path(&script), path(&model), path(&lora), "2", "1"]).status();
    assert!(made.unwrap().success());
    let server = Server::start_with(&["-m", path(&model), "--lora", &format!("{}:0", path(&lora))]);
    let embedded = |more: &[&str]| output(&[&["embed", "-m", path(&model), "-p", "a cold day"], more].concat());
    let ask = |scale: f32| {
        let body = json!({ "input": "a cold day", "lora": [{ "id": 0, "scale": scale }] });
        let (status, answer) = server.post("/v1/embeddings", body.to_string().as_bytes());
        assert_eq!(status, 200, "{answer}");
        answer["data"][0]["embedding"].as_array().unwrap()[0].as_f64().unwrap()
    };
    let first = |vector: Value| vector.as_array().unwrap()[0].as_f64().unwrap();
    let (plain, with) = (first(embedded(&[])), first(embedded(&["--lora", path(&lora)])));
    assert!((plain - with).abs() > 1e-3);
    assert!((ask(0.0) - plain).abs() < 1e-6 && (ask(1.0) - with).abs() < 1e-6);
    assert_eq!(server.post("/v1/embeddings", br#"{"input": "a", "lora": [{"id": 1, "scale": 1}]}"#).0, 400);
    assert_eq!(server.post("/v1/embeddings", br#"{"input": "a", "lora": 1}"#).0, 400);
}

/// Requests choose adapters. A cached prompt is reused only by requests with the same adapters.
#[test]
fn requests_choose_adapters() {
    let directory = tempfile::tempdir().unwrap();
    let [first, second] = adapters(directory.path());
    let (first, second) = (path(&first), path(&second));
    let server = Server::start_with(&["-c", "256", "--lora", first, "--lora", &format!("{second}:0")]);
    let ask = |lora: Value| {
        let mut body = json!({ "prompt": [1, 403], "max_tokens": 8, "temperature": 0, "ignore_eos": true });
        if !lora.is_null() {
            body["lora"] = lora;
        }
        let (status, answer) = server.post("/v1/completions", body.to_string().as_bytes());
        (status, answer["choices"][0]["text"].as_str().unwrap_or_default().to_string(), answer)
    };
    let text = |more: &[&str]| {
        let args = ["generate", "--ids", "1,403", "-n", "8", "--temp", "0", "--ignore-eos", "--no-display-prompt"];
        stdout(&[&args[..], more].concat()).trim_end_matches('\n').to_string()
    };
    let (plain, one, other) = (text(&[]), text(&["--lora", first]), text(&["--lora", second]));
    for _ in 0..2 {
        assert_eq!(ask(Value::Null).1, one);
        assert_eq!(ask(json!([])).1, plain);
        assert_eq!(ask(json!([{ "id": 1, "scale": 1.0 }])).1, other);
        assert_eq!(ask(json!([{ "id": 0, "scale": 1.0 }])).1, one);
    }
    assert_eq!(ask(json!([{ "id": 2, "scale": 1.0 }])).0, 400);
    assert_eq!(ask(json!([{ "id": 0 }])).0, 400);
    let list = || serde_json::from_str::<Value>(&server.ask("GET", "/lora-adapters", "", b"").1).unwrap();
    assert_eq!(list(), json!([{ "id": 0, "path": first, "scale": 1.0 }, { "id": 1, "path": second, "scale": 0.0 }]));
    assert_eq!(server.post("/lora-adapters", b"[{\"id\": 1, \"scale\": 1}]").0, 200);
    assert_eq!(list()[0]["scale"], json!(0.0));
    assert_eq!(ask(Value::Null).1, other);
    assert_eq!(server.post("/lora-adapters", b"[{\"id\": 7, \"scale\": 1}]").0, 400);
    assert_eq!(server.post("/lora-adapters", b"{}").0, 400);
}

#[test]
fn sessions_on_disk() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("session.bin");
    let [first, _] = adapters(directory.path());
    let prompt = "One day a little fox went to the forest and saw a big tree.";
    let generate = |more: &[&str]| {
        output(&[&["generate", "-p", prompt, "-n", "12", "--temp", "0", "--format", "json"], more].concat())
    };
    let plain = generate(&[]);
    for kept in [0, plain["stats"]["prompt_tokens"].as_u64().unwrap() - 1] {
        let found = generate(&["--session", path(&file)]);
        assert_eq!(found["text"], plain["text"]);
        assert_eq!(found["stats"]["kept_tokens"], json!(kept));
    }
    // Another prompt with the same beginning.
    let longer = |more: &[&str]| {
        stdout(&[&["generate", "-p", &format!("{prompt} It was"), "-n", "9", "--temp", "0"], more].concat())
    };
    assert_eq!(longer(&["--session", path(&file)]), longer(&[]));
    let written = fs::read(&file).unwrap();
    for (more, says) in [
        (&["--kv", "q8_0"][..], "type of KV cache"),
        (&["--lora", path(&first)], "model or adapter"),
        (&["-m", path(&committed("tests/fixtures/qwen3/model.gguf")), "--ids", "5"], "model or adapter"),
        (&["-c", "99"], "context length"),
    ] {
        let own: &[&str] = if more[0] == "-m" { &[] } else { &["-p", prompt] };
        let message = error(&[&["generate", "--session", path(&file), "--format", "ids"], own, more].concat());
        assert!(message.contains(path(&file)) && message.contains(says), "{message}");
    }
    assert_eq!(fs::read(&file).unwrap(), written);
    fs::write(&file, &written[..written.len() - 1]).unwrap();
    assert!(error(&["generate", "-p", prompt, "--session", path(&file)]).contains("cut short"));
    // A flipped bit anywhere is found.
    for at in (0..written.len()).step_by(written.len() / 40).chain([20, 27, 32, 40, 50]) {
        let mut damaged = written.clone();
        damaged[at] ^= 1;
        fs::write(&file, &damaged).unwrap();
        assert!(error(&["generate", "-p", prompt, "--session", path(&file)]).contains(path(&file)), "{at}");
    }
    fs::write(&file, [b"arenite session 1\n", &written[18..]].concat()).unwrap();
    assert!(error(&["generate", "-p", prompt, "--session", path(&file)]).contains("another version"));
    let nowhere = directory.path().join("no/session.bin");
    assert!(error(&["generate", "-p", prompt, "--session", path(&nowhere)]).contains("create it first"));
    let small = directory.path().join("small.bin");
    stdout(&["generate", "-p", "Once", "-n", "2", "-c", "16", "--session", path(&small)]);
    let long = error(&["generate", "-p", &prompt.repeat(2), "--session", path(&small)]);
    assert!(long.contains("a new file for the session"), "{long}");
    fs::write(&file, "").unwrap();
    assert_eq!(generate(&["--session", path(&file)])["text"], plain["text"]);
    fs::write(&file, "a text").unwrap();
    assert!(error(&["generate", "-p", prompt, "--session", path(&file)]).contains("not a session"));
    assert!(!arenite(&["generate", "--session", path(&file), "--jsonl"]).status.success());
}

/// A chat with `--session` continues after the program was started again. A batch computes the common beginning of its
/// prompts only once.
#[test]
fn sessions_of_chats_and_batches() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let file = at("chat.bin");
    let turn = |input: &str, more: &[&str]| {
        let args = ["chat", "--template", "chatml", "--system", "Short.", "-n", "6", "--temp", "0"];
        let out = crate::common::arenite_with(&[&args[..], more].concat(), input.as_bytes());
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    };
    let together = turn("Hello\nAnd then?\n", &[]);
    let apart = ["Hello\n", "And then?\n"].map(|input| turn(input, &["--session", path(&file)]));
    assert_eq!(apart.concat(), together);

    let system = "You are a little fox in a big forest. ".repeat(6);
    let line = |i: usize| {
        let messages = json!([{ "role": "system", "content": system }, { "role": "user", "content": format!("{i}") }]);
        let body = json!({ "messages": messages, "max_tokens": 4, "temperature": 0 });
        json!({ "custom_id": i.to_string(), "method": "POST", "url": "/v1/chat/completions", "body": body }).to_string()
    };
    fs::write(at("in.jsonl"), (0..3).map(line).collect::<Vec<_>>().join("\n")).unwrap();
    let (input, kept) = (at("in.jsonl"), at("batch.bin"));
    let mut answers = Vec::new();
    for (out, more) in [("a", &[][..]), ("b", &["--session", path(&kept)]), ("c", &["--session", path(&kept)])] {
        let out = at(out);
        let args = ["batch", "-i", path(&input), "-o", path(&out), "--reproducible", "--parallel", "2", "-c", "256"];
        stdout(&[&args[..], more].concat());
        answers.push(fs::read(out).unwrap());
    }
    assert!(answers.iter().all(|answer| *answer == answers[0]));
    assert!(fs::metadata(&kept).unwrap().len() > 10_000);
}
