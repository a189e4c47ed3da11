//! Folders and files that users typically have: quantized checkpoints, tokenizers in several files, adapters, sounds.
//! Each case of the larger set lists what to run, and the values of an independent program (transformers, tokenizers,
//! PEFT, torch).

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::common::{arenite, external, lines, npy, path, skip, stdout, stdout_with};

/// The folder of the cases, beside that of the fixtures.
fn cases() -> Option<PathBuf> {
    let folder = external("..")?.join("cases").join("folders");
    folder.is_dir().then_some(folder)
}

/// Returns the model of a check: a file, or the result of converting a folder.
fn model(case: &Path, check: &Value, directory: &Path) -> PathBuf {
    if let Some(file) = check["gguf"].as_str() {
        return case.join(file);
    }
    let output = directory.join("model.gguf");
    let from = case.join(check["input"].as_str().expect("a folder"));
    stdout(&["convert", "hf", path(&from), path(&output)]);
    output
}

fn texts(list: &Value) -> String {
    list.as_array().expect("a list").iter().map(|text| format!("{text}\n")).collect()
}

fn numbers(list: &Value) -> Vec<f64> {
    list.as_array().expect("a list").iter().map(|x| x.as_f64().expect("a number")).collect()
}

fn joined(ids: &Value) -> String {
    ids.as_array().expect("a list").iter().map(Value::to_string).collect::<Vec<_>>().join(",")
}

/// Compares vectors by the length of their difference.
fn near(got: &[f64], want: &[f64], most: f64, what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    let length = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>().sqrt();
    let error = length(&mut got.iter().zip(want).map(|(a, b)| a - b)) / length(&mut want.iter().copied());
    assert!(error < most, "{what}: {error:e}");
}

fn logits(case: &Path, check: &Value, directory: &Path) {
    let model = model(case, check, directory);
    let (out, adapter) = (directory.join("out.npy"), directory.join("adapter.gguf"));
    let ids = joined(&check["ids"]);
    let mut how = vec!["logits", "-m", path(&model), "--ids", &ids, "--all", "--kv", "f32", "-o", path(&out)];
    if let Some(lora) = check["lora"].as_str() {
        let (from, base) = (case.join(lora), case.join(check["input"].as_str().expect("a folder")));
        stdout(&["convert", "lora", path(&from), path(&adapter), "--base", path(&base)]);
        how.extend(["--lora", path(&adapter)]);
    }
    stdout(&how);
    let (got, want) = (npy(&out).1, npy(&case.join(check["logits"].as_str().expect("a file"))).1);
    let width = got.len() / check["ids"].as_array().expect("a list").len();
    assert_eq!(got.len(), want.len(), "{}", case.display());
    let double = |row: &[f32]| row.iter().map(|x| f64::from(*x)).collect::<Vec<_>>();
    for (got, want) in got.chunks(width).zip(want.chunks(width)) {
        near(&double(got), &double(want), 3e-5, path(case));
    }
}

fn ids(case: &Path, check: &Value, directory: &Path) {
    let model = model(case, check, directory);
    let how = ["tokenize", "-m", path(&model), "--jsonl", "--add-special", "--parse-special"];
    let got = lines(&stdout_with(&how, texts(&check["texts"]).as_bytes()));
    assert_eq!(Value::from(got), check["ids"], "{}", case.display());
}

fn embed(case: &Path, check: &Value, directory: &Path) {
    if check["may_refuse"] == true {
        let from = case.join(check["input"].as_str().expect("a folder"));
        let ran = arenite(&["convert", "hf", path(&from), path(&directory.join("model.gguf"))]);
        assert!(String::from_utf8_lossy(&ran.stderr).contains("together are not supported"));
        return;
    }
    let model = model(case, check, directory);
    let how = ["embed", "-m", path(&model), "--jsonl", "--kv", "f32"];
    let got = lines(&stdout_with(&how, texts(&check["texts"]).as_bytes()));
    for (got, want) in got.iter().zip(check["vectors"].as_array().expect("a list")) {
        let got = if got.is_array() { got } else { &got["embedding"] };
        near(&numbers(got), &numbers(want), 1e-4, path(case));
    }
    assert_eq!(got.len(), 3, "{}", case.display());
}

fn generate(case: &Path, check: &Value, directory: &Path) {
    let model = model(case, check, directory);
    let (count, prompt) = (check["n"].to_string(), &check["prompt"]);
    let ids = if prompt.is_array() { joined(prompt) } else { String::new() };
    let prompt = prompt.as_str().map_or(["--ids", &ids], |text| ["-p", text]);
    let mut how = vec!["generate", "-m", path(&model), "-n", &count, "--temp", "0", "--format", "ids", "--kv", "f32"];
    how.extend(prompt);
    let flags: Vec<String> = check["flags"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(|flag| flag.strip_prefix('@').map_or_else(|| flag.to_owned(), |file| path(&case.join(file)).to_owned()))
        .collect();
    how.extend(flags.iter().map(String::as_str));
    let got: Value = serde_json::from_str(stdout(&how).trim()).expect("a list");
    // A case lists several right answers, or one.
    let is_right = check["ids"] == got || check["ids"].as_array().is_some_and(|all| all.contains(&got));
    assert!(is_right, "{}: {got}, not {}", case.display(), check["ids"]);
}

fn template(case: &Path, check: &Value, directory: &Path) {
    let bytes = fs::read(model(case, check, directory)).expect("a file");
    let gguf = arenite::Gguf::parse(&bytes).expect("a model");
    let template = gguf.str("tokenizer", "chat_template").expect("a text").expect("a template");
    assert_eq!(String::from_utf8_lossy(template), check["template"].as_str().expect("a text"));
}

fn apply(case: &Path, check: &Value, directory: &Path) {
    let model = model(case, check, directory);
    let (messages, tools) = (directory.join("messages.json"), directory.join("tools.json"));
    for prompt in check["prompts"].as_array().expect("a list") {
        fs::write(&messages, prompt[0]["messages"].to_string()).expect("a file");
        let mut how = vec!["chat", "-m", path(&model), "--messages", path(&messages), "--print-prompt"];
        if prompt[0]["tools"].is_array() {
            fs::write(&tools, prompt[0]["tools"].to_string()).expect("a file");
            how.extend(["--tools", path(&tools)]);
        }
        assert_eq!(stdout(&how), prompt[1].as_str().expect("a text"), "{}", case.display());
    }
}

fn listen(case: &Path, check: &Value, directory: &Path) {
    let model = model(case, check, directory);
    for sound in check["sounds"].as_array().expect("a list").iter().filter_map(Value::as_str) {
        let output = arenite(&["listen", "-m", path(&model), path(&case.join(sound)), "--language", "en"]);
        assert_eq!(String::from_utf8_lossy(&output.stdout), check["text"].as_str().expect("a text"), "{sound}");
    }
}

fn quantize(case: &Path, check: &Value, directory: &Path) {
    let (from, to) = (case.join(check["gguf"].as_str().expect("a file")), directory.join("quantized.gguf"));
    let tensor = check["tensor"].as_str().expect("a name");
    for kind in check["types"].as_array().expect("a list").iter().filter_map(Value::as_str) {
        let ran = arenite(&["quantize", "--pure", path(&from), path(&to), kind]);
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(
            ran.status.success() && said.contains(&format!("the weights of {tensor} are too small")),
            "{kind}: {said}"
        );
    }
}

#[test]
fn cases_have_the_values_of_independent_programs() {
    let Some(folder) = cases() else { return skip("cases/folders") };
    let mut count = 0;
    for entry in fs::read_dir(folder).expect("a folder") {
        let case = entry.expect("an entry").path();
        let Ok(expected) = fs::read(case.join("expected.json")) else { continue };
        let expected: Value = serde_json::from_slice(&expected).expect("JSON");
        for check in expected["checks"].as_array().expect("a list") {
            let directory = tempfile::tempdir().expect("a folder");
            let run = match check["what"].as_str().expect("a text") {
                "logits" => logits,
                "ids" => ids,
                "embed" => embed,
                "generate" | "text" => generate,
                "template" => template,
                "apply" => apply,
                "listen" => listen,
                "quantize" => quantize,
                other => panic!("{other}"),
            };
            run(&case, check, directory.path());
            count += 1;
        }
    }
    assert!(count >= 27, "{count}");
}
