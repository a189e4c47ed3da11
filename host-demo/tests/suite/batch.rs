//! `arenite batch`: all answers come in order. The output has the same bytes even if the command is stopped and
//! continued several times.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

fn arenite() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_arenite"));
    command.stdin(Stdio::null()).stderr(Stdio::null());
    command
}

fn requests() -> String {
    let mut lines = Vec::new();
    for i in 0..12 {
        let (url, body) = match i % 4 {
            0 => ("/v1/completions", json!({ "prompt": format!("Once there was a cat number {i}"), "max_tokens": 12 })),
            1 => (
                "/v1/chat/completions",
                json!({ "messages": [{ "role": "user", "content": "Hello" }], "max_tokens": 8, "seed": i }),
            ),
            2 => ("/v1/completions", json!({ "prompt": "The dog", "max_tokens": 10, "temperature": 0, "n": 2 })),
            _ => (
                "/v1/completions",
                json!({
                    "prompt": "An answer:", "max_tokens": 60, "temperature": 1.5,
                    "response_format": { "type": "json_schema", "json_schema": { "schema": {
                        "type": "object", "properties": { "n": { "type": "integer", "minimum": 0, "maximum": 99 } },
                        "required": ["n"],
                    } } },
                }),
            ),
        };
        lines.push(json!({ "custom_id": format!("line-{i}"), "method": "POST", "url": url, "body": body }).to_string());
    }
    lines.join("\n") + "\n"
}

fn batch(input: &Path, output: &Path, parallel: usize) -> Command {
    let mut command = arenite();
    command.args(["batch", "--reproducible", "-c", "256", "--parallel", &parallel.to_string(), "-i"]).arg(input);
    command.arg("-o").arg(output);
    command
}

#[test]
fn answers_are_whole_in_order_and_the_same_for_any_number_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let (input, one, many) = (dir.path().join("in"), dir.path().join("one"), dir.path().join("many"));
    fs::write(&input, requests()).unwrap();
    assert!(batch(&input, &one, 1).status().unwrap().success());
    assert!(batch(&input, &many, 5).status().unwrap().success());
    let text = fs::read_to_string(&one).unwrap();
    assert_eq!(text, fs::read_to_string(&many).unwrap());
    for (i, line) in text.lines().enumerate() {
        let line: Value = serde_json::from_str(line).unwrap();
        assert_eq!(line["custom_id"], format!("line-{i}"));
        assert_eq!(line["response"]["status_code"], 200, "{line}");
        assert_eq!(line["error"], Value::Null);
        let choices = line["response"]["body"]["choices"].as_array().unwrap();
        assert_eq!(choices.len(), if i % 4 == 2 { 2 } else { 1 });
        if i % 4 == 3 {
            let answer: Value = serde_json::from_str(choices[0]["text"].as_str().unwrap()).unwrap();
            assert!((0..=99).contains(&answer["n"].as_i64().unwrap()));
        }
    }
    assert_eq!(text.lines().count(), 12);

    // The command is killed after this number of milliseconds and run again. In one case, the output file is also cut
    // in the middle of a line.
    for after in [0, 50, 150, 400, 900] {
        let out = dir.path().join("out");
        let _ = fs::remove_file(&out);
        let mut child = batch(&input, &out, 3).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(after));
        let _ = child.kill();
        let _ = child.wait();
        if after == 400 {
            let half = text.len() / 2;
            fs::write(&out, &text[..half]).unwrap();
        }
        assert!(batch(&input, &out, 3).status().unwrap().success());
        assert_eq!(fs::read_to_string(&out).unwrap(), text, "killed after {after} ms");
    }
}

/// A file that holds no answers is neither cut nor taken for one of an earlier run. Answers may go to a device.
#[test]
fn other_files_are_not_changed() {
    let dir = tempfile::tempdir().unwrap();
    let (input, other) = (dir.path().join("in"), dir.path().join("other"));
    fs::write(&input, requests().lines().next().unwrap()).unwrap();
    for text in ["{\"custom_id\": \"line-0\"}\n", "{\"custom_id\": \"line-0\"}", "a note"] {
        fs::write(&other, text).unwrap();
        let ran = batch(&input, &other, 1).stderr(Stdio::piped()).output().unwrap();
        let told = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert!(!ran.status.success() && told.contains("line 1 is not a batch answer"), "{told}");
        assert_eq!(fs::read_to_string(&other).unwrap(), text);
    }
    assert!(batch(&input, Path::new("/dev/null"), 1).status().unwrap().success());
}

#[test]
fn lines_that_cannot_be_answered_say_so() {
    let lines = [
        "nonsense",
        r#"{"custom_id": "a", "method": "POST", "url": "/v1/nothing", "body": {}}"#,
        r#"{"custom_id": "b", "method": "POST", "url": "/v1/completions", "body": {"prompt": 3}}"#,
        r#"{"custom_id": "c", "method": "POST", "url": "/v1/completions", "body": {"prompt": "x", "max_tokens": 2}}"#,
        r#"{"custom_id": "d", "method": "GET", "url": "/v1/completions", "body": {"prompt": "x", "max_tokens": 2}}"#,
    ];
    let answers = answers(&lines.join("\n"), 1);
    assert_eq!(answers[0]["error"]["code"], "invalid_line");
    assert_eq!(answers[0]["response"], Value::Null);
    assert_eq!(answers[1]["response"]["status_code"], 400);
    assert_eq!(answers[2]["response"]["body"]["error"]["param"], "prompt");
    assert_eq!(answers[3]["response"]["status_code"], 200);
    assert_eq!(answers[3]["custom_id"], "c");
    assert_eq!(answers[4]["response"]["body"]["error"]["param"], "method");
}

#[test]
fn lines_of_one_custom_id_are_told_and_ids_have_the_prefixes_of_their_answers() {
    let line = |id: &str, url: &str| {
        json!({ "custom_id": id, "url": url, "body": { "prompt": "x", "max_tokens": 2,
            "messages": [{ "role": "user", "content": "x" }] } })
        .to_string()
    };
    let response =
        json!({ "custom_id": "r", "url": "/v1/responses", "body": { "input": "x", "max_output_tokens": 2 } });
    let lines = [
        line("a", "/v1/chat/completions"),
        line("b", "/v1/completions"),
        line("a", "/v1/completions"),
        response.to_string(),
    ];
    let output = crate::common::arenite_with(&["batch", "-c", "64", "-i", "-", "-o", "-"], lines.join("\n").as_bytes());
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("line 3 has the custom_id of line 1: \"a\""), "{told}");
    assert!(!told.contains("line 2 has"), "{told}");
    let answers = crate::common::lines(&String::from_utf8(output.stdout).unwrap());
    for (answer, prefix) in answers.iter().zip(["chatcmpl-", "cmpl-", "cmpl-", "resp_"]) {
        assert!(answer["response"]["body"]["id"].as_str().unwrap().starts_with(prefix), "{answer}");
    }
    let response = &answers[3]["response"]["body"];
    assert_eq!((&response["object"], &response["output"][0]["type"]), (&json!("response"), &json!("message")));
    assert_eq!(response["usage"]["output_tokens"], 2, "{response}");
}

/// Spreadsheets and PowerShell write a byte order mark at the start of a file: it is skipped. Blank lines count for the
/// line numbers in errors, because editors count them, too.
#[test]
fn a_byte_order_mark_is_skipped_and_blank_lines_are_counted() {
    let good =
        r#"{"custom_id": "c", "method": "POST", "url": "/v1/completions", "body": {"prompt": "x", "max_tokens": 2}}"#;
    let answers = answers(&format!("\u{feff}{good}\n\n\nnonsense\n"), 1);
    assert_eq!((&answers[0]["custom_id"], &answers[0]["response"]["status_code"]), (&json!("c"), &json!(200)));
    assert!(answers[1]["error"]["message"].as_str().unwrap().starts_with("line 4 is not JSON"), "{}", answers[1]);
}

/// Returns the answers to the lines of `input`. The command must end with the exit code `code`.
fn answers(input: &str, code: i32) -> Vec<Value> {
    let mut child = arenite()
        .args(["batch", "-c", "64", "-i", "-", "-o", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(code));
    String::from_utf8(output.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}
