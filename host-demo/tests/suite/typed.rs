//! Flags that users of llama-cli type, and the sources from which a text is read.

use crate::common::{arenite, arenite_with, json, path, stdout, stdout_with};
use serde_json::Value;

const GREEDY: [&str; 6] = ["-n", "12", "--temp", "0", "--ignore-eos", "--no-display-prompt"];

fn generated(more: &[&str]) -> String {
    stdout(&[&["generate"][..], &GREEDY, more].concat())
}

#[test]
fn a_text_comes_from_everywhere() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("prompt.txt");
    std::fs::write(&file, "The sun\n").expect("a file");
    let want = generated(&["-p", "The sun"]);
    assert_eq!(generated(&["-f", path(&file)]), want);
    assert_eq!(generated(&["-e", "-p", "The\\x20sun"]), want);
    for (more, input) in [(&["-p", "-"][..], "The sun\n"), (&[], "The sun"), (&["-f", "-"], "The sun\n")] {
        let got = stdout_with(&[&["generate"][..], &GREEDY, more].concat(), input.as_bytes());
        assert_eq!(got, want, "{more:?}");
    }
    // Without a prompt and without piped input, `generate` tells a story; all other commands report that the text is
    // missing.
    assert_eq!(generated(&[]), generated(&["-p", "Once upon a time"]));
    let nothing = arenite(&["translate"]);
    assert_eq!(nothing.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&nothing.stderr).contains("-f FILE"));
    let top = stdout_with(&["logits", "--top", "3"], b"The sun");
    assert_eq!(top, stdout(&["logits", "--top", "3", "-p", "The sun"]));
    assert_eq!(top.lines().count(), 4);
}

#[test]
fn flags_of_llama_cli_work_or_say_what_to_do() {
    let want = generated(&["-p", "The sun"]);
    let args = [
        "-p",
        "The sun",
        "-n",
        "12",
        "--temp",
        "0",
        "--ignore-eos",
        "--no-display-prompt",
        "-ngl",
        "99",
        "-fa",
        "--mlock",
        "--no-mmap",
        "-ub",
        "256",
        "--color",
        "-no-cnv",
        "--no-warmup",
        "-s",
        "7",
        "--mirostat",
        "0",
    ];
    let output = arenite(&args);
    assert_eq!(String::from_utf8_lossy(&output.stdout), want);
    let notes = String::from_utf8_lossy(&output.stderr).into_owned();
    for flag in ["-ngl", "-fa", "--mlock", "--no-mmap", "-ub", "--color", "-no-cnv", "--no-warmup"] {
        assert_eq!(
            notes.lines().filter(|line| line.starts_with(&format!("{flag} has no effect: "))).count(),
            1,
            "{notes}"
        );
    }
    for (args, word) in [
        (&["-i"][..], "arenite chat"),
        (&["generate", "-sys", "You are kind"], "arenite chat"),
        (&["generate", "--control-vector", "a.gguf"], "--lora"),
    ] {
        let output = arenite(args);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), stderr.lines().count()), (Some(2), 1), "{args:?}: {stderr}");
        assert!(stderr.contains(word), "{args:?}: {stderr}");
    }
}

#[test]
fn steps_of_choosing_in_any_order() {
    let told = |more: &[&str]| {
        stdout(&[&["generate", "-p", "The sun", "-n", "30", "--seed", "3", "--temp", "1.5"][..], more].concat())
    };
    let usual = told(&[]);
    assert_eq!(told(&["--samplers", "penalties;top_k;typ_p;top_p;min_p;temperature"]), usual);
    assert_ne!(told(&["--samplers", "temperature"]), usual);
    // With each of these settings, only the most probable token is left, so the answer is the same as at temperature 0.
    let best = told(&["--temp", "0"]);
    for more in [
        &["--samplers", "top_k", "--top-k", "1"][..],
        &["--samplers", "temperature;top_p", "--top-p", "0"],
        &["--samplers", "min_p;temperature", "--min-p", "1"],
    ] {
        let more: Vec<&str> = more.iter().copied().chain(["--no-display-prompt"]).collect();
        let args = [&["generate", "-p", "The sun", "-n", "30", "--seed", "3"][..], &more].concat();
        assert_eq!(format!("The sun{}", stdout(&args)), best, "{more:?}");
    }
    assert_ne!(told(&["--typical", "0.1"]), usual);
}

/// Each of these sampling steps changes the text of an answer, unless it has the value that turns it off.
#[test]
fn further_steps_of_choosing() {
    let told = |more: &[&str]| {
        let common = ["generate", "-p", "The sun", "-n", "60", "--seed", "3", "--temp", "1.5", "--min-p", "0"];
        stdout(&[&common[..], more].concat())
    };
    let usual = told(&[]);
    for (on, off) in [
        (&["--top-nsigma", "0.5"][..], &["--top-nsigma", "-1"][..]),
        (&["--xtc-probability", "1", "--xtc-threshold", "0.05"], &["--xtc-probability", "0"]),
        (&["--dynatemp-range", "1", "--dynatemp-exp", "2"], &["--dynatemp-range", "0"]),
        (&["--mirostat", "1", "--mirostat-ent", "1"], &["--mirostat", "0", "--mirostat-ent", "1"]),
        (&["--mirostat", "2", "--mirostat-ent", "1", "--mirostat-lr", "0.5"], &["--mirostat", "0"]),
        (&["--adaptive-target", "0.3"], &["--adaptive-target", "-1"]),
        (&["--min-keep", "20", "--top-p", "0.1"], &["--min-keep", "0"]),
    ] {
        assert_ne!(told(on), usual, "{on:?}");
        assert_eq!(told(off), usual, "{off:?}");
    }
    // DRY needs a repetition; a negative penalty prefers it.
    let again = |more: &[&str]| {
        let common = ["generate", "-p", "Red fox. Blue fox. Red fox. Blue fox. Red", "-n", "2", "--temp", "0"];
        stdout(&[&common[..], more].concat())
    };
    assert_ne!(again(&["--dry-multiplier", "-100"]), again(&[]));
    assert_eq!(again(&["--dry-multiplier", "0", "--dry-base", "2"]), again(&[]));
    assert_eq!(again(&["--dry-multiplier", "-100", "--dry-sequence-breaker", "d"]), again(&[]));
    // A step that is not listed is off.
    let listed = "penalties;top_k;typ_p;top_p;min_p;temperature";
    let all = ["--samplers", listed, "--xtc-probability", "1", "--dry-multiplier", "5", "--adaptive-target", "0.3"];
    assert_eq!(told(&all), usual);
}

#[test]
fn a_full_context_may_lose_its_oldest_tokens() {
    let ids = |more: &[&str]| -> Vec<u32> {
        let common =
            ["generate", "-p", "The sun", "-c", "64", "-n", "200", "--temp", "0", "--ignore-eos", "--format", "ids"];
        serde_json::from_str(&stdout(&[&common[..], more].concat())).unwrap()
    };
    let (cut, whole, kept) = (ids(&[]), ids(&["--context-shift"]), ids(&["--context-shift", "--keep", "8"]));
    assert!(cut.len() < 64 && whole.len() == 200 && kept.len() == 200);
    let first = cut.len() - 2;
    assert_eq!((&whole[..first], &kept[..first]), (&cut[..first], &cut[..first]));
    assert_ne!(whole, kept);
}

#[test]
fn more_context_than_the_model_has_is_warned_of() {
    let output = arenite(&["generate", "-n", "1", "-c", "600"]);
    assert!(output.status.success());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.lines().next().expect("a line").contains("600 positions are more than the model's 512"), "{said}");
    let tokens = arenite(&["generate", "-n", "1", "-p", "The sun", "--verbose-prompt"]);
    assert!(String::from_utf8_lossy(&tokens.stderr).contains("sun"));
}

#[test]
fn a_thousand_lines_and_a_bad_one() {
    let mut input = String::new();
    for i in 0..1000 {
        input += &match i {
            500 => "this is no JSON\n".to_string(),
            501 => format!("{{\"id\": \"five\", \"prompt\": [1, {i}]}}\n"),
            _ => format!("{{\"id\": {i}, \"prompt\": \"One day {i}\"}}\n"),
        };
    }
    let args = ["generate", "--jsonl", "-n", "2", "--temp", "0"];
    let output = arenite_with(&args, input.as_bytes());
    assert_eq!(output.status.code(), Some(1));
    let answers = crate::common::lines(&String::from_utf8(output.stdout).expect("UTF-8"));
    assert_eq!(answers.len(), 1000);
    assert_eq!(answers[500]["line"], 501);
    assert!(answers[500]["error"].is_string());
    assert_eq!(answers[501]["id"], "five");
    for i in [0, 7, 999] {
        assert_eq!(answers[i]["id"], i);
        let alone = json(&["generate", "-p", &format!("One day {i}"), "-n", "2", "--temp", "0", "--format", "json"]);
        assert_eq!((&answers[i]["text"], &answers[i]["ids"]), (&alone["text"], &alone["ids"]));
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("line 501") && said.contains("1 of 1000"), "{said}");
}

#[test]
fn every_command_takes_many_texts() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("texts.jsonl");
    std::fs::write(&file, "\"The sun\"\n\n{\"text\": \"A little dog\", \"id\": 2}\n").expect("a file");
    let many = |args: &[&str]| crate::common::lines(&stdout(&[args, &["--jsonl", "-f", path(&file)]].concat()));

    let translated = many(&["translate", "--n-best", "2"]);
    let alone = json(&["translate", "-p", "A little dog", "--n-best", "2", "--format", "json"]);
    assert_eq!((translated.len(), &translated[1]["id"]), (2, &Value::from(2)));
    assert_eq!((&translated[1]["text"], &translated[1]["others"][0]), (&alone[0]["text"], &alone[1]));

    let logits = many(&["logits", "--top", "4"]);
    let ids = json(&["generate", "-p", "A little dog", "-n", "1", "--temp", "0", "--format", "ids"]);
    assert_eq!(logits[1]["top"].as_array().expect("a list").len(), 4);
    assert_eq!(logits[1]["top"][0]["id"], ids[0]);

    let output = directory.path().join("states.npy");
    for position in ["last", "mean"] {
        let rows = many(&["probe", "--position", position, "-o", path(&output)]);
        let (shape, states) = crate::common::npy(&output);
        assert_eq!((rows.len(), &rows[1]["row"]), (2, &Value::from(1)));
        let alone = directory.path().join("alone.npy");
        stdout(&["probe", "--ids", &rows[1]["ids"].to_string(), "--position", position, "-o", path(&alone)]);
        let (one, last) = crate::common::npy(&alone);
        assert_eq!(one.replace(", 1, ", ", "), shape.replace("(2, ", "("), "{shape}");
        assert_eq!(states[states.len() / 2..], last[..]);
    }

    let scored = br#"{"id": 1, "prompt": "Once upon a", "continuation": " time"}
        {"prompt": [1], "continuation": [5]}"#;
    let scores = crate::common::lines(&stdout_with(&["score", "--jsonl"], scored));
    assert_eq!((scores.len(), &scores[0]["id"]), (2, &Value::from(1)));
}

#[test]
fn embeddings_of_many_texts() {
    let directory = tempfile::tempdir().expect("a directory");
    let model = crate::common::committed("tests/fixtures/nomic_bert/model.gguf");
    let output = directory.path().join("all.npy");
    let lines = b"\"hello world\"\n[1, 2, 3]\n";
    let printed = crate::common::lines(&stdout_with(&["embed", "-m", path(&model), "--jsonl"], lines));
    let rows =
        crate::common::lines(&stdout_with(&["embed", "-m", path(&model), "--jsonl", "-o", path(&output)], lines));
    let (shape, numbers) = crate::common::npy(&output);
    let dim = numbers.len() / 2;
    assert_eq!(shape, format!("(2, {dim})"));
    let alone = json(&["embed", "-m", path(&model), "--ids", "1,2,3"]);
    for (row, embedding) in printed.iter().map(|answer| &answer["embedding"]).enumerate() {
        let got: Vec<f32> = serde_json::from_value(embedding.clone()).expect("numbers");
        assert_eq!(got[..], numbers[row * dim..][..dim]);
        assert_eq!(rows[row]["row"], row);
    }
    assert_eq!(printed[1]["embedding"], alone);
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_every_command_with_its_code() {
    use std::process::{Command, Stdio};
    for args in [
        &["translate", "--jsonl"][..],
        &["translate", "-p", "-"],
        &["tokenize"],
        &["generate", "--jsonl"],
        &["translate", "-p", "I love my mother.", "-n", "100000", "-c", "100000", "--ignore-eos"],
    ] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_arenite"))
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        // Wait until the program has installed its handler of SIGINT, which is signal 2.
        let status = format!("/proc/{}/status", child.id());
        let is_caught = || {
            let status = std::fs::read_to_string(&status).unwrap_or_default();
            let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or("2").trim();
            u64::from_str_radix(caught, 16).expect("a mask") & 1 << 1 != 0
        };
        std::thread::sleep(std::time::Duration::from_millis(100));
        while !is_caught() && child.try_wait().expect("a state").is_none() {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let mut left = 0;
        while child.try_wait().expect("a state").is_none() && left < 20 {
            let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill");
            assert!(killed.success());
            std::thread::sleep(std::time::Duration::from_millis(100));
            left += 1;
        }
        assert_eq!(child.wait().expect("an end").code(), Some(130), "{args:?}");
    }
}
