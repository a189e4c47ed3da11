//! Conversion of llama2.c's files. The results of the new models are compared with the output of llama2.c's own
//! programs.

use std::path::{Path, PathBuf};

use crate::common::{arenite, error, fixtures, json, path, stdout};
use serde_json::Value;

fn reference(case: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(case.join("ref.json")).expect("ref.json")).expect("JSON")
}

/// The options `-m` and `--tokenizer`.
fn given(case: &Path, model: &str, tokenizer: &str) -> [String; 4] {
    let file = |name: &str| path(&case.join(name)).to_string();
    ["-m".into(), file(model), "--tokenizer".into(), file(tokenizer)]
}

fn with<'a>(command: &'a str, given: &'a [String; 4], more: &[&'a str]) -> Vec<&'a str> {
    let mut args = vec![command];
    args.extend(given.iter().map(String::as_str));
    args.extend(more);
    args
}

#[test]
fn stories260k_tells_what_run_c_tells() {
    let Some(case) = fixtures("stories260K") else { return };
    let model = given(&case, "stories260K.bin", "tok512.bin");
    for prompt in reference(&case)["prompts"].as_array().expect("a list") {
        let text = prompt["text"].as_str().expect("a text");
        let want = prompt["runc_text"].as_str().expect("a text");
        let got = stdout(&with("generate", &model, &["-p", text, "-n", "200", "--temp", "0"]));
        assert!(got.starts_with(want), "{text:?}\nexpected {want:?}\ngot      {got:?}");
    }
}

#[test]
fn a_seed_gives_the_text_that_run_c_gives() {
    let Some(case) = fixtures("stories260K") else { return };
    let model = given(&case, "stories260K.bin", "tok512.bin");
    // The expected texts are the start of the output of `run stories260K.bin -z tok512.bin -t 0.9 -p P -s S -n 256 -i
    // "Once upon a time"`.
    for (seed, top_p, want) in [
        (
            "1",
            "0.9",
            "Once upon a time, there was a little boy named Tim. Tim loved to play with his toys. He would talk to his friend, Sam. Sam liked to play with the toy car all day.\nOne day, Tim and Sam went to the park. They saw a big tree with tru",
        ),
        (
            "2",
            "0.9",
            "Once upon a time, there was a little girl named Lily. She loved to play outside in the park with her friends. One day, Lily and her friends played together and went to the park. They played with the swings and had a great time.\nLi",
        ),
        (
            "3",
            "1.0",
            "Once upon a time, in a little classroom, there was a big garden. The other kids were dogs, but they were too scared for the room. The kids loved the water and said, \"Don't wrow! We need to find a wallet for you.\"\nThe kayaked sleep",
        ),
    ] {
        let more = ["-p", "Once upon a time", "-n", "252", "--temp", "0.9", "--top-p", top_p, "--seed", seed];
        let got = stdout(&with("generate", &model, &[&more[..], &["--rng", "llama2c"]].concat()));
        assert!(got.starts_with(want), "{seed}: {got}");
    }
}

#[test]
fn old_checkpoints_give_the_ids_of_run_c() {
    let Some(case) = fixtures("llama2c_legacy") else { return };
    for prompt in reference(&case)["prompts"].as_array().expect("a list") {
        let text = prompt["text"].as_str().expect("a text");
        let known = prompt["prompt_ids"].as_array().expect("ids").len();
        for (model, program) in
            [("model_v0.bin", "v0_runc"), ("model_v1.bin", "v0_runc"), ("model_v2_q80.bin", "v2_runqc")]
        {
            let want: Vec<&Value> =
                prompt[program]["next_ids"].as_array().expect("ids").iter().skip(known - 1).collect();
            let count = want.len().to_string();
            let model = given(&case, model, "tokenizer.bin");
            let more = ["-p", text, "-n", &count, "--temp", "0", "--format", "ids"];
            let got = json(&with("generate", &model, &more));
            let got: Vec<&Value> = got.as_array().expect("ids").iter().collect();
            assert_eq!(got, want, "{text:?} {model:?}");
        }
    }
}

#[test]
fn a_conversion_is_what_it_should_be() {
    let Some(case) = fixtures("llama2c_legacy") else { return };
    let directory = tempfile::tempdir().expect("a directory");
    let tokenizer = case.join("tokenizer.bin");
    let convert = |name: &str| -> PathBuf {
        let out = directory.path().join(format!("{name}.gguf"));
        stdout(&["convert", "llama2c", path(&case.join(name)), path(&tokenizer), path(&out)]);
        out
    };
    let tensors = |file: &Path| {
        let report = json(&["inspect", "--json", path(file)]);
        let bytes = std::fs::read(file).expect("the file");
        let end = report["tensors"]
            .as_array()
            .expect("tensors")
            .iter()
            .map(|t| t["offset"].as_u64().unwrap() + t["bytes"].as_u64().unwrap());
        let data = bytes.len() - end.max().expect("tensors") as usize;
        let mut list: Vec<(String, Value, Vec<u8>)> = report["tensors"]
            .as_array()
            .expect("tensors")
            .iter()
            .map(|tensor| {
                let at = data + tensor["offset"].as_u64().expect("a number") as usize;
                let numbers = bytes[at..at + tensor["bytes"].as_u64().expect("a number") as usize].to_vec();
                (tensor["name"].to_string(), tensor["shape"].clone(), numbers)
            })
            .collect();
        list.sort_by(|a, b| a.0.cmp(&b.0));
        (list, report["metadata"].clone())
    };
    let (want, keys) = tensors(&case.join("expected.gguf"));
    for name in ["model_v0.bin", "model_v1.bin"] {
        let (got, metadata) = tensors(&convert(name));
        assert!(got == want, "{name}: other tensors");
        for (key, value) in keys.as_object().expect("keys") {
            if !["general.name", "general.license"].contains(&key.as_str()) {
                assert_eq!(metadata[key], *value, "{name}: {key}");
            }
        }
        assert_eq!(metadata["tokenizer.ggml.eot_token_id"], 1);
    }

    // The converted int8 weights are Q8_0. If a command reads the checkpoint directly, the groups of 64 are kept.
    let types = |report: Value| -> Vec<String> {
        let tensors = report["tensors"].as_array().expect("tensors").iter();
        tensors.map(|tensor| tensor["type"].to_string()).filter(|kind| kind != "\"F32\"").collect()
    };
    let model = given(&case, "model_v2_q80.bin", "tokenizer.bin");
    let converted = types(json(&["inspect", "--json", path(&convert("model_v2_q80.bin"))]));
    assert!(converted.len() == 15 && converted.iter().all(|kind| kind == "\"Q8_0\""), "{converted:?}");
    let kept = types(json(&with("inspect", &model, &["--json"])));
    assert!(kept.len() == 15 && kept.iter().all(|kind| kind == "\"Q8_G64\""), "{kept:?}");
    for command in ["tokenize", "plan", "inspect"] {
        let more: &[&str] = if command == "tokenize" { &["-p", "a"] } else { &[] };
        assert!(arenite(&with(command, &model, more)).status.success(), "{command}");
    }
}

#[test]
fn a_token_that_was_named_ends_it() {
    let Some(case) = fixtures("stories260K") else { return };
    let model = given(&case, "stories260K.bin", "tok512.bin");
    let base = ["-p", "Once upon a time", "-n", "30", "--temp", "0", "--kv", "f32", "--format", "json"];
    let free = json(&with("generate", &model, &base));
    let ids = free["ids"].as_array().expect("ids");
    let stop = ids[7].to_string();
    let first = ids.iter().position(|id| *id == ids[7]).expect("it is there");
    let stopped = json(&with("generate", &model, &[&base[..], &["--stop-id", &stop]].concat()));
    assert_eq!(stopped["ids"].as_array().expect("ids")[..], ids[..first]);
    assert_eq!(stopped["stats"]["end"], "end-token");
}

#[test]
fn what_does_not_go_together_is_told() {
    let Some(case) = fixtures("llama2c_legacy") else { return };
    let directory = tempfile::tempdir().expect("a directory");
    let model = case.join("model_v0.bin");
    assert!(error(&["generate", "-m", path(&model)]).contains("--tokenizer tokenizer.bin"));
    let cut = directory.path().join("cut.bin");
    let bytes = std::fs::read(&model).expect("the model");
    std::fs::write(&cut, &bytes[..bytes.len() - 5]).expect("a file");
    let tokenizer = case.join("tokenizer.bin");
    assert!(error(&["plan", "-m", path(&cut), "--tokenizer", path(&tokenizer)]).contains("truncated"));
    assert!(error(&["plan", "-m", path(&model), "--tokenizer", path(&model)]).contains("tokenizer"));
    let out = directory.path().join("out.gguf");
    assert!(error(&["convert", "llama2c", path(&cut), path(&tokenizer), path(&out)]).contains("5 bytes"));
    assert!(!out.exists());
}
