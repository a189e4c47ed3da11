//! Drafts do not change a byte of any answer, in any command.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::common::{committed, error, fixtures, json as output, lines, path, skip, stdout, stdout_with};
use crate::serve::Server;

/// A model whose proposed tokens are usually right, and the value of the option that turns these proposals on.
struct Case {
    model: PathBuf,
    draft: String,
}

/// Returns the cases. Some cases have the draft layers in a file beside the model.
fn cases() -> Vec<Case> {
    let Some(root) = fixtures("drafts") else { return Vec::new() };
    let mut dirs: Vec<_> = fs::read_dir(root).unwrap().map(|dir| dir.unwrap().path()).collect();
    dirs.sort();
    let cases = dirs.iter().map(|dir| {
        let file = |names: [&str; 2]| names.map(|name| dir.join(name)).into_iter().find(|path| path.exists());
        Case {
            model: file(["model.gguf", "trunk.gguf"]).unwrap(),
            draft: file(["assistant.gguf", "mtp-head.gguf"]).map_or("auto".into(), |file| path(&file).to_string()),
        }
    });
    cases.collect()
}

/// Returns prompts for the test: beginnings of texts like those that the models were trained on, some of which are
/// repeated, and other texts.
fn prompts(count: usize) -> Vec<String> {
    let days = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
    let who = ["the cat", "a small bird", "the old fox", "my sister", "Pedro", "x = [1, 2"];
    let sees = ["sees the", "sees the white house and", "and", "says: good", "", "{\"n\":"];
    let prompt = |i: usize| {
        let text = format!("On {} {} {}", days[i % 7], who[i / 7 % 6], sees[i / 42 % 6]);
        if i % 5 == 4 { format!("{text}. {text}") } else { text }
    };
    (0..count).map(prompt).collect()
}

fn generated(case: &Case, more: &[&str], prompts: &[String]) -> String {
    let input: String = prompts.iter().map(|text| format!("{}\n", json!(text))).collect();
    let args = ["generate", "--jsonl", "-m", path(&case.model), "-n", "40", "-c", "128", "--seed", "11"];
    stdout_with(&[&args[..], more].concat(), input.as_bytes())
}

/// The sampling settings of the tests: greedy, sampled, with penalties, and with a grammar.
const SAMPLINGS: [&[&str]; 4] = [
    &["--temp", "0", "--ignore-eos"],
    &["--temp", "0.8", "--kv", "f32", "-t", "1"],
    &["--temp", "0.7", "--repeat-penalty", "1.2", "--top-k", "20", "--kv", "q8_0"],
    &[
        "--temp",
        "1",
        "--json-schema",
        r#"{"type": "array", "items": {"enum": ["red", "blue", "green"]}, "minItems": 2}"#,
    ],
];

#[test]
fn two_hundred_answers_are_the_same_bytes() {
    for case in cases() {
        for (sampling, count) in SAMPLINGS.iter().zip([200, 60, 40, 40]) {
            let prompts = prompts(count);
            let alone = generated(&case, &[sampling, &["--draft", "off"][..]].concat(), &prompts);
            assert_eq!(alone.lines().count(), count);
            let ways: [&[&str]; 4] = [
                &["--draft", &case.draft],
                &["--draft", &case.draft, "--draft-max", "6", "-b", "8"],
                &["--lookup", "5"],
                &["--draft", path(&case.model), "--draft-max", "2"],
            ];
            for way in ways {
                assert!(
                    generated(&case, &[sampling, way].concat(), &prompts) == alone,
                    "{} {sampling:?} {way:?}",
                    case.model.display()
                );
            }
        }
    }
}

#[test]
fn answers_with_an_adapter_are_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    for (i, case) in cases().iter().enumerate() {
        let adapter = dir.path().join(format!("{i}.gguf"));
        let made = std::process::Command::new("python3")
            .arg(committed("tests/firmware/random_adapter.py"))
            .args([path(&case.model), path(&adapter), "2", "3"])
            .status();
        if !made.expect("python3 runs").success() {
            skip("an adapter for drafts");
            continue;
        }
        let lora = ["--lora", path(&adapter), "--temp", "0.5"];
        let prompts = prompts(30);
        let alone = generated(case, &[&lora[..], &["--draft", "off"]].concat(), &prompts);
        assert_ne!(alone, generated(case, &["--temp", "0.5", "--draft", "off"], &prompts));
        assert!(generated(case, &[&lora[..], &["--draft", &case.draft]].concat(), &prompts) == alone);
    }
}

/// Returns the requests of a batch: texts, chats, and requests whose answer must match a schema.
fn requests() -> String {
    let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"] });
    let line = |(i, prompt): (usize, String)| {
        let temperature = if i % 2 == 0 { 0.0 } else { 0.9 };
        let mut body = json!({ "prompt": prompt, "max_tokens": 30, "seed": i, "temperature": temperature });
        if i % 7 == 6 {
            body["response_format"] = json!({ "type": "json_schema", "json_schema": { "schema": schema } });
        }
        json!({ "custom_id": format!("{i}"), "method": "POST", "url": "/v1/completions", "body": body }).to_string()
    };
    prompts(60).into_iter().enumerate().map(line).collect::<Vec<_>>().join("\n")
}

/// Returns the answers of a batch without the counts of drafts, and true if there were drafts.
fn batch(case: &Case, input: &Path, parallel: &str, draft: &[&str]) -> (Vec<Value>, bool) {
    let args = ["batch", "--reproducible", "-m", path(&case.model), "-c", "128", "-o", "-", "--parallel", parallel];
    let mut answers = lines(&stdout(&[&args[..], &["-i", path(input)], draft].concat()));
    let mut has_drafts = false;
    for answer in &mut answers {
        let body = answer["response"]["body"].as_object_mut().unwrap();
        has_drafts |= body.remove("timings").is_some_and(|timings| timings["draft_n_accepted"].as_u64() > Some(0));
    }
    (answers, has_drafts)
}

#[test]
fn answers_beside_seven_others_are_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let input = dir.path().join("in.jsonl");
    fs::write(&input, requests()).unwrap();
    for case in cases() {
        let (alone, has_drafts) = batch(&case, &input, "1", &["--draft", "off"]);
        assert!(!has_drafts && alone.len() == 60);
        for (parallel, draft) in
            [("8", &["--draft", &case.draft][..]), ("3", &["--lookup", "4"]), ("8", &["--draft", path(&case.model)])]
        {
            let (answers, has_drafts) = batch(&case, &input, parallel, draft);
            assert!(has_drafts && answers == alone, "{} {draft:?}", case.model.display());
        }
    }
}

#[test]
fn counts_are_told() {
    for case in cases() {
        let ids = if path(&case.model).contains("gemma") { "2,378,375,299,353,324" } else { "266,356,260,325,285" };
        let args = ["generate", "-m", path(&case.model), "--ids", ids, "-n", "48", "--temp", "0", "--ignore-eos"];
        let told = |draft: &str| output(&[&args[..], &["--format", "json", "--draft", draft]].concat());
        let (with, without) = (told(&case.draft), told("off"));
        assert_eq!(with["ids"], without["ids"]);
        assert_eq!((&without["draft_n"], &without["draft_n_accepted"]), (&json!(0), &json!(0)));
        let counts = |name: &str| with[name].as_u64().unwrap();
        assert!(counts("draft_n") >= counts("draft_n_accepted") && counts("draft_n_accepted") > 10, "{with}");
        // The same counts every time.
        assert_eq!(told(&case.draft)["draft_n"], with["draft_n"]);

        let server = Server::start_with(&[
            "-m",
            path(&case.model),
            "-c",
            "128",
            "--draft",
            &case.draft,
            "--cache-scope",
            "server",
        ]);
        let ids: Vec<u32> = ids.split(',').map(|id| id.parse().unwrap()).collect();
        let request = json!({ "prompt": ids, "n_predict": 30, "temperature": 0, "ignore_eos": true });
        let (_, answer) = server.post("/completion", request.to_string().as_bytes());
        assert!(answer["timings"]["draft_n_accepted"].as_u64() > Some(5), "{answer}");
        assert_eq!(Some(server.metric("draft_accepted_tokens_total")), answer["timings"]["draft_n_accepted"].as_u64());
    }
}

#[test]
fn files_that_do_not_fit_are_refused() {
    let all = cases();
    let Some(qwen) = all.iter().find(|case| case.model.ends_with("trunk.gguf")) else { return };
    let Some(gemma) = all.iter().find(|case| case.draft.ends_with("assistant.gguf")) else { return };
    let refused =
        |model: &Path, draft: &str| error(&["generate", "-m", path(model), "--ids", "3", "-n", "2", "--draft", draft]);
    let message = refused(&qwen.model, &gemma.draft);
    assert!(message.contains("assistant.gguf"), "{message}");
    let message = refused(&gemma.model, &qwen.draft);
    assert!(message.contains("mtp-head.gguf"), "{message}");
    let message = error(&["generate", "-m", &gemma.draft, "--ids", "3", "-n", "2"]);
    assert!(message.contains("drafts for another"), "{message}");
    assert!(refused(&qwen.model, "nowhere.gguf").contains("nowhere.gguf"));
}

#[test]
fn a_file_beside_the_model_needs_no_flag_and_may_belong_to_another() {
    let all = cases();
    let Some(qwen) = all.iter().find(|case| case.model.ends_with("trunk.gguf")) else { return };
    let Some(gemma) = all.iter().find(|case| case.draft.ends_with("assistant.gguf")) else { return };
    let answer = |model: &Path, more: &[&str]| {
        let ids = if model.ends_with("gemma.gguf") { "2,378,375,299,353,324" } else { "266,356,260,325,285" };
        let args = ["generate", "-m", path(model), "--ids", ids, "-n", "48", "--temp", "0", "--format", "json"];
        output(&[&args[..], &["--ignore-eos"], more].concat())
    };
    let folder = tempfile::tempdir().unwrap();
    let put = |from: &Path, name: &str| {
        let to = folder.path().join(name);
        fs::copy(from, &to).unwrap();
        to
    };
    let (trunk, own) = (put(&qwen.model, "qwen.gguf"), put(&gemma.model, "gemma.gguf"));
    let head = put(Path::new(&qwen.draft), "mtp-qwen.gguf");
    let found = answer(&trunk, &[]);
    assert_eq!(found["draft_n"], answer(&trunk, &["--draft", path(&head)])["draft_n"]);
    assert!(found["draft_n_accepted"].as_u64() > Some(10), "{found}");
    let off = answer(&trunk, &["--draft", "off"]);
    assert_eq!((&off["ids"], &off["draft_n"]), (&found["ids"], &json!(0)));
    // If the file beside a model has predicting layers for a different model, it is not used. The answer is the same as
    // without the file.
    assert_eq!(answer(&own, &[])["ids"], answer(&own, &["--draft", "off"])["ids"]);
    fs::remove_file(head).unwrap();
    put(Path::new(&gemma.draft), "gemma-assistant.gguf");
    assert!(answer(&own, &[])["draft_n_accepted"].as_u64() > Some(10));
    assert_eq!(answer(&trunk, &[])["ids"], found["ids"]);
}
