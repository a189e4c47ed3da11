//! The command line as a user runs it: these tests run the binary.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::{arenite, arenite_with, committed, error, fixtures, json, lines, npy, path, stdout, stdout_with};
use serde_json::Value;

const COMMANDS: [&str; 23] = [
    "run",
    "chat",
    "generate",
    "translate",
    "embed",
    "tokenize",
    "detokenize",
    "inspect",
    "plan",
    "pack",
    "quantize",
    "merge",
    "imatrix",
    "perplexity",
    "logits",
    "probe",
    "score",
    "serve",
    "batch",
    "bench",
    "convert",
    "completions",
    "man",
];

#[test]
fn every_command_explains_itself_with_an_example() {
    for command in COMMANDS {
        let help = stdout(&[command, "--help"]);
        assert!(help.contains(&format!("arenite {command}")), "{help}");
        assert!(help.contains("Example"), "{help}");
        // For these commands, the files are arguments, so their help need not mention `--model`.
        let names_files = ["pack", "quantize", "merge", "convert", "completions", "man"].contains(&command);
        assert_eq!(help.contains("--model"), !names_files, "{help}");
    }
    let help = stdout(&["--help"]);
    for command in COMMANDS {
        assert!(help.contains(command), "{help}");
    }
}

#[test]
fn wrong_usage_is_exit_code_2() {
    for args in [
        &["no-such-command"][..],
        &["generate", "--no-such-flag"],
        &["generate", "-n", "many"],
        &["generate", "--kv", "q3"],
        &["generate", "--temp", "-1"],
        &["generate", "-t", "100000"],
        &["generate", "-c", "1000000000000"],
        &["generate", "-b", "99999999999999999999"],
        &["generate", "-n", "-7"],
        &["generate", "-n", "99999999999999999999"],
        &["generate", "--samplers", "top_k;abacus"],
        &["generate", "--mirostat", "3"],
        &["serve", "--port", "-1"],
        &["serve", "--mmproj", "vision.gguf", "--no-mmproj"],
        &["translate", "-p", "a", "--beams", "100000"],
        &["bench", "-r", "0"],
        &["generate", "--logit-bias", "5"],
        &["generate", "-p", "a", "--ids", "1"],
        &["logits", "--ids", "1,x", "-o", "x.npy"],
        &["logits", "--ids", "1"],
        &["plan", "--json", "--rust"],
    ] {
        let output = arenite(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(String::from_utf8_lossy(&output.stderr).starts_with("error: "), "{args:?}");
        assert!(output.stdout.is_empty(), "{args:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr).lines().count(), 1, "{args:?}");
    }
}

#[test]
fn shells_and_man_get_every_command() {
    let directory = tempfile::tempdir().expect("a directory");
    stdout(&["man", path(directory.path())]);
    let script = stdout(&["completions", "bash"]);
    for command in COMMANDS {
        assert!(script.contains(command), "{command}");
        let page = directory.path().join(format!("arenite-{command}.1"));
        assert!(std::fs::read_to_string(page).expect("a page").contains(".SH"), "{command}");
    }
    for shell in ["zsh", "fish", "elvish", "powershell"] {
        assert!(stdout(&["completions", shell]).contains("translate"), "{shell}");
    }
}

#[test]
fn errors_say_what_where_and_what_to_do() {
    let missing = error(&["generate", "-m", "no/such/model.gguf"]);
    assert!(missing.contains("no/such/model.gguf") && missing.contains("no such file"), "{missing}");

    let directory = tempfile::tempdir().expect("a directory");
    let directory_error = error(&["inspect", path(directory.path())]);
    assert!(directory_error.contains("directory"), "{directory_error}");

    let file = directory.path().join("not.gguf");
    std::fs::write(&file, "a text\n").expect("a file");
    let not_gguf = error(&["inspect", path(&file)]);
    assert!(not_gguf.contains("not.gguf") && not_gguf.contains("GGUF"), "{not_gguf}");

    std::fs::write(&file, "").expect("a file");
    assert!(error(&["plan", "-m", path(&file)]).contains("empty"));

    let isa = error(&["generate", "-n", "1", "--isa", "abacus"]);
    assert!(isa.contains("abacus") && isa.contains("auto") && isa.contains("scalar"), "{isa}");

    let token = error(&["logits", "--ids", "4000000000", "-o", path(&directory.path().join("x.npy"))]);
    assert!(token.contains("4000000000"), "{token}");
    assert!(!directory.path().join("x.npy").exists());

    let target = error(&["logits", "--ids", "1", "-o", path(&directory.path().join("none/x.npy"))]);
    assert!(target.contains("x.npy") && target.contains("create it first") && !target.contains("os error"), "{target}");

    let session = arenite(&["generate", "-n", "1", "--session", path(&directory.path().join("none/session"))]);
    let said = String::from_utf8_lossy(&session.stderr);
    assert!(session.stdout.is_empty() && said.contains("create it first"), "{said}");

    // Every command explains the errors that the operating system reports in words.
    let none = path(&file).to_string() + ".none";
    for args in [
        &["generate", "-f", &none][..],
        &["tokenize", "-f", &none],
        &["chat", "--messages", &none],
        &["perplexity", "-f", &none],
        &["score", "--jsonl", "-f", &none],
        &["convert", "llama2c", &none, &none, "x.gguf"],
        &["generate", "--grammar", &none],
    ] {
        let missing = error(args);
        assert!(missing.contains("no such file") && missing.contains(".none"), "{missing}");
        assert!(!missing.contains("os error"), "{missing}");
    }
    let folder = error(&["generate", "-f", path(directory.path())]);
    assert!(folder.contains("a directory") && !folder.contains("os error"), "{folder}");
    assert!(error(&["generate", "-p", "a", "--stop-id", "99999"]).contains("99999"));
    assert!(error(&["translate", "-p", "a", "--n-best", "3", "--beams", "2"]).contains("--beams"));

    // The input of a lossy conversion is not replaced.
    let model = directory.path().join("model.gguf");
    std::fs::copy(committed("tests/fixtures/stories.gguf"), &model).expect("a copy");
    let before = std::fs::read(&model).expect("a model");
    let again = error(&["quantize", path(&model), path(&model), "Q4_0", "--allow-requantize"]);
    assert!(again.contains("is the input") && std::fs::read(&model).expect("a model") == before, "{again}");
    let merged = error(&["merge", path(&model), path(&model), path(&model)]);
    assert!(merged.contains("is the input"), "{merged}");
    stdout(&["quantize", path(&model), path(&model), "COPY", "--override-kv", "general.name=str:Mine"]);

    // No command replaces a file that it reads, also under another name.
    let [text, rules, link] = ["text.txt", "rules.gbnf", "link.gguf"].map(|name| directory.path().join(name));
    std::fs::write(&text, "{\"custom_id\": \"a\"}").expect("a text");
    std::fs::write(&rules, "root ::= \"a\"").expect("a grammar");
    std::fs::hard_link(&model, &link).expect("a second name");
    let files = [&text, &rules, &model];
    let before = files.map(|file| std::fs::read(file).expect("a file"));
    for args in [
        &["logits", "-p", "a", "-m", path(&model), "-o", path(&model)][..],
        &["logits", "-p", "a", "-m", path(&model), "-o", path(&link)],
        &["logits", "-f", path(&text), "-o", path(&text)],
        &["quantize", path(&model), path(&model), "COPY", "--prune-layers", "1"],
        &["grammar", path(&rules), path(&rules)],
        &["batch", "-i", path(&text), "-o", path(&text)],
    ] {
        let refused = error(args);
        assert!(refused.contains("is the input"), "{args:?}: {refused}");
        assert!(files.map(|file| std::fs::read(file).expect("a file")) == before, "{args:?}");
    }

    let model = committed("tests/fixtures/nomic_bert/model.gguf");
    for command in [&["generate", "-p", "a", "-m"][..], &["chat", "-m"], &["score", "--jsonl", "-m"]] {
        assert!(error(&[command, &[path(&model)]].concat()).contains("arenite embed"), "{command:?}");
    }
    let model = committed("tests/fixtures/small/t5_relu/model.gguf");
    for command in [&["generate", "-p", "a", "-m"][..], &["chat", "-m"]] {
        assert!(error(&[command, &[path(&model)]].concat()).contains("arenite translate"), "{command:?}");
    }

    let full = error(&["generate", "-c", "4", "-p", "This is a prompt of more than four tokens."]);
    assert!(full.contains("context") && full.contains("-c"), "{full}");
}

#[test]
fn without_a_command_it_tells_a_story() {
    let output = arenite(&[]);
    assert!(output.status.success());
    let story = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(story.starts_with("Once upon a time"), "{story}");
    assert!(story.ends_with('\n') && story.len() > 100, "{story}");
    let stats = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(stats.contains("tok/s") && stats.contains("seed"), "{stats}");
}

#[test]
fn a_seed_tells_the_same_story_again() {
    let story = |seed: &str| stdout(&["generate", "-n", "40", "--temp", "1.2", "--seed", seed]);
    assert_eq!(story("1"), story("1"));
    assert_ne!(story("1"), story("2"));
    // The JSON output has the random seed of a story.
    let told = json(&["generate", "-n", "20", "--format", "json"]);
    let seed = told["stats"]["seed"].to_string();
    assert_eq!(told["ids"], json(&["generate", "-n", "20", "--format", "json", "--seed", &seed])["ids"]);
}

#[test]
fn neither_batch_nor_threads_nor_isa_change_a_story() {
    let prompt = "Once upon a time there was a little dog who wanted to see the sea.";
    let story = |more: &[&str]| {
        let mut args = vec!["generate", "-p", prompt, "-n", "24", "--temp", "0"];
        args.extend(more);
        stdout(&args)
    };
    let reference = story(&[]);
    for more in [&["-b", "1"][..], &["-b", "7"], &["-t", "1"], &["-t", "2"], &["--isa", "scalar"]] {
        assert_eq!(story(more), reference, "{more:?}");
    }
}

#[test]
fn formats_agree_with_each_other() {
    let args = ["generate", "-p", "The sun", "-n", "12", "--temp", "0", "--ignore-eos"];
    let with = |format| [&args[..], &["--format", format]].concat();
    let ids = json(&with("ids"));
    assert_eq!(ids.as_array().expect("a list").len(), 12);

    let all = json(&with("json"));
    assert_eq!(all["ids"], ids);
    assert_eq!(all["prompt"], "The sun");
    assert_eq!(all["stats"]["tokens"], 12);
    assert_eq!(all["stats"]["end"], "length");
    let text = all["text"].as_str().expect("a string");
    assert_eq!(stdout(&with("text")), format!("The sun{text}\n"));
    let bare = stdout(&[&args[..], &["--no-display-prompt"]].concat());
    assert_eq!(bare, format!("{text}\n"));

    // Token ids of a prompt are used exactly as given.
    let prompt = all["prompt_ids"].to_string();
    let again = json(&["generate", "--ids", &prompt, "-n", "12", "--temp", "0", "--ignore-eos", "--format", "ids"]);
    assert_eq!(again, ids);
}

#[test]
fn stop_texts_and_biases() {
    let base = ["generate", "-p", "Once upon a time", "-n", "60", "--temp", "0", "--format", "json"];
    let free = json(&base);
    let text = free["text"].as_str().expect("a string");
    let stop: String = text.chars().skip(20).take(4).collect();
    let stopped = json(&[&base[..], &["--stop", &stop, "--stop", "never said"]].concat());
    assert_eq!(stopped["text"].as_str(), text.split(&stop).next());
    assert_eq!(stopped["stats"]["end"], "stop");

    // If the first token is forbidden, another one is chosen.
    let first = free["ids"][0].as_u64().expect("an id");
    let biased = json(&[&base[..], &["--logit-bias", &format!("{first}=-1000")]].concat());
    assert_ne!(biased["ids"][0].as_u64(), Some(first));
}

#[test]
fn tokenize_and_detokenize_are_inverse() {
    let texts = ["Once upon a time", "", "  two  spaces ", "tab\tline\nbreak", "\u{e9}\u{4e16}\u{1f600}\"quoted\\\""];
    for text in texts {
        let ids = stdout_with(&["tokenize"], text.as_bytes());
        assert_eq!(stdout(&["detokenize", "--ids", ids.trim()]), text, "{ids}");
        if !text.is_empty() {
            let list = json(&["tokenize", "-p", text, "--json"]);
            assert_eq!(list.to_string(), format!("[{}]", ids.trim()));
        }
    }
    let lines: String = texts.iter().map(|text| format!("{}\n", Value::from(*text))).collect();
    let ids = stdout_with(&["tokenize", "--jsonl"], lines.as_bytes());
    assert_eq!(ids.lines().count(), texts.len());
    assert_eq!(stdout_with(&["detokenize", "--jsonl"], ids.as_bytes()), lines);
}

#[test]
fn jsonl_takes_what_is_not_quite_text() {
    // Three lines: a stray byte, which Python writes as a lone surrogate; another lone surrogate; and a valid escape.
    let ids = stdout_with(&["tokenize", "--jsonl"], b"\"a\\udcffb\"\n\"\\ud800\"\n\"\\u00e9\"\n");
    assert_eq!(ids.lines().count(), 3);
    let text = stdout_with(&["detokenize", "--jsonl"], ids.as_bytes());
    assert_eq!(text, "\"a\u{fffd}b\"\n\"\u{fffd}\"\n\"\u{e9}\"\n");

    let output = arenite_with(&["tokenize", "--jsonl"], b"\"fine\"\nnot json\n");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("line 2"));
}

#[test]
fn a_line_that_is_wrong_is_an_answer_and_the_rest_goes_on() {
    for (command, good, bad) in
        [("tokenize", "\"Once\"", "Once"), ("detokenize", "[1, 330]", "[1, x]"), ("detokenize", "[3]", "[999999]")]
    {
        let output = arenite_with(&[command, "--jsonl"], format!("{good}\n{bad}\n\n{good}\n").as_bytes());
        assert_eq!(output.status.code(), Some(1), "{command}");
        let answers = lines(&String::from_utf8(output.stdout).expect("UTF-8"));
        assert_eq!((answers.len(), answers[1]["line"].as_u64()), (3, Some(2)), "{command}: {answers:?}");
        assert!(answers[1]["error"].is_string() && answers[0] == answers[2], "{command}: {answers:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("standard input, line 2: "), "{command}");
    }
}

#[test]
fn inspect_lists_every_tensor() {
    let report = json(&["inspect", "--json"]);
    assert_eq!(report["metadata"]["general.architecture"], "llama");
    let tensors = report["tensors"].as_array().expect("a list");
    assert!(tensors.iter().any(|tensor| tensor["name"] == "token_embd.weight"));
    let bytes = |list: &[Value]| list.iter().filter_map(|entry| entry["bytes"].as_u64()).sum::<u64>();
    let totals: Vec<Value> = report["totals"].as_object().expect("an object").values().cloned().collect();
    assert_eq!(bytes(tensors), bytes(&totals));

    let text = stdout(&["inspect"]);
    for tensor in tensors {
        assert!(text.contains(tensor["name"].as_str().expect("a name")), "{text}");
    }
}

#[test]
fn logits_are_a_numpy_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let read = |name: &str, all: &[&str]| {
        let file = directory.path().join(name);
        stdout(&[&["logits", "--ids", "1,2,3", "-o", path(&file)][..], all].concat());
        let bytes = std::fs::read(&file).expect("the file");
        let header = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
        (String::from_utf8_lossy(&bytes[10..header]).into_owned(), bytes[header..].to_vec())
    };
    let (header, all) = read("all.npy", &["--all"]);
    let vocab = all.len() / 4 / 3;
    assert!(header.contains(&format!("'shape': (3, {vocab})")), "{header}");
    let (header, last) = read("last.npy", &[]);
    assert!(header.contains(&format!("'shape': (1, {vocab})")), "{header}");
    assert_eq!(last, all[2 * vocab * 4..]);
}

#[test]
fn probe_gives_the_states_of_transformers() {
    let directory = tempfile::tempdir().expect("a directory");
    let output = directory.path().join("states.npy");
    for (case, dim) in [("qwen3", 56), ("gpt2", 64)] {
        let case = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures").join(case);
        let model = case.join("model.gguf");
        let reference: Value = serde_json::from_slice(&std::fs::read(case.join("ref.json")).unwrap()).unwrap();
        let prompt = &reference["prompts"][0];
        let (text, tokens) = (prompt["text"].as_str().unwrap(), prompt["ids"].as_array().unwrap().len());
        let dim = reference["hf_config"]["hidden_size"].as_u64().map_or(dim, |dim| dim as usize);
        let hidden = std::fs::read(case.join("hidden.bin")).expect("hidden.bin");
        let hidden: Vec<f32> = hidden.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
        let layers = (hidden.len() / (tokens * dim) - 1) / 3;
        let stage = |number: usize| &hidden[number * layers * tokens * dim..][..layers * tokens * dim];

        let probe = |more: &[&str]| {
            let given = ["probe", "-m", path(&model), "-p", text, "--kv", "f32", "-o", path(&output)];
            stdout(&[&given[..], more].concat());
            npy(&output)
        };
        let near = |got: &[f32], want: &[f32]| {
            assert_eq!(got.len(), want.len());
            let norm = |x: &mut dyn Iterator<Item = f32>| x.map(|x| f64::from(x).powi(2)).sum::<f64>().sqrt();
            let error = norm(&mut got.iter().zip(want).map(|(a, b)| a - b)) / norm(&mut want.iter().copied());
            assert!(error < 2e-6, "{error:e}");
        };
        for (number, name) in ["before", "attention", "after"].into_iter().enumerate() {
            let (shape, states) = probe(&["--stage", name, "--position", "all"]);
            assert_eq!(shape, format!("({layers}, {tokens}, {dim})"));
            near(&states, stage(number));
        }
        let (shape, states) = probe(&["--stage", "logits", "--position", "all"]);
        assert_eq!(shape, format!("(1, {tokens}, {dim})"));
        near(&states, &hidden[3 * layers * tokens * dim..]);

        let last_layer = &stage(2)[(layers - 1) * tokens * dim..];
        let layer = (layers - 1).to_string();
        let (shape, states) = probe(&["--layers", &layer]);
        assert_eq!(shape, format!("(1, 1, {dim})"));
        near(&states, &last_layer[(tokens - 1) * dim..]);
        let (_, states) = probe(&["--layers", &layer, "--position", "mean", "-b", "3"]);
        let mean = |i: usize| last_layer.iter().skip(i).step_by(dim).sum::<f32>() / tokens as f32;
        near(&states, &(0..dim).map(mean).collect::<Vec<_>>());

        let error = error(&["probe", "-m", path(&model), "-p", "a", "--layers", "99", "-o", path(&output)]);
        assert!(error.contains("99") && error.contains("layers 0 to"), "{error}");
    }
}

#[test]
fn scores_are_log_probabilities() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("logits.npy");
    let lines = b"{\"prompt\": \"Once upon a\", \"continuation\": \" time, there was\"}\n\
        {\"prompt\": [1, 403, 407], \"continuation\": [261, 378]}\n";
    let scores = stdout_with(&["score", "--jsonl", "--kv", "f32"], lines);
    let scores: Vec<Value> = scores.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(scores.len(), 2);
    let total = |score: &Value| score["logprobs"].as_array().unwrap().iter().map(|p| p.as_f64().unwrap()).sum::<f64>();
    for score in &scores {
        assert!((score["logprob"].as_f64().unwrap() - total(score)).abs() < 1e-9);
    }
    // The log-probabilities are compared with those that follow from the output of `arenite logits`.
    stdout(&["logits", "--ids", "1,403,407,261,378", "--all", "--kv", "f32", "-o", path(&file)]);
    let (_, logits) = npy(&file);
    let vocab = logits.len() / 5;
    let score = &scores[1];
    assert_eq!(score["tokens"], serde_json::json!([261, 378]));
    for (i, token) in [(2, 261), (3, 378)] {
        let row = &logits[i * vocab..][..vocab];
        let sum: f64 = row.iter().map(|&x| f64::from(x).exp()).sum();
        let want = f64::from(row[token]) - sum.ln();
        let got = score["logprobs"][i - 2].as_f64().unwrap();
        assert!((got - want).abs() < 1e-6, "{got} {want}");
    }
    // The real continuation of the text is the most probable continuation for the model.
    assert_eq!(scores[0]["greedy"], true);

    for (line, word) in [("{}", "prompt"), ("{\"prompt\": \"a\", \"continuation\": \"\"}", "empty"), ("[", "line 1")] {
        let output = arenite_with(&["score", "--jsonl"], line.as_bytes());
        assert_eq!(output.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&output.stderr).contains(word), "{line}");
    }
}

#[test]
fn bench_measures_what_it_is_told() {
    let report = json(&["bench", "-p", "8", "-n", "4", "-t", "1", "-r", "2", "--json"]);
    let results = report["results"].as_array().expect("a list");
    assert_eq!(results.len(), 1);
    let result = &results[0];
    assert_eq!((&result["prefill_tokens"], &result["decode_tokens"]), (&Value::from(8), &Value::from(4)));
    assert_eq!(result["threads"], 1);
    for key in ["prefill_tok_s", "decode_tok_s", "first_token_ms", "load_ms"] {
        assert!(result[key].as_f64().expect(key) > 0.0, "{key}: {result}");
    }
    for key in ["workspace_bytes", "kv_bytes", "peak_rss_bytes"] {
        assert!(result[key].as_u64().expect(key) > 0, "{key}: {result}");
    }
    assert!(result["model"].is_string() && result["isa"].is_string());
}

#[test]
fn bench_measures_several_lengths_or_only_one_part() {
    let results = |args: &[&str]| {
        let report = json(&[&["bench", "-t", "1", "-r", "1", "--json"], args].concat());
        report["results"].as_array().expect("a list").clone()
    };
    let lengths: Vec<Value> =
        results(&["-p", "4,8", "-n", "2"]).iter().map(|row| row["prefill_tokens"].clone()).collect();
    assert_eq!(lengths, [4, 8]);
    for (args, missing, there) in [
        (["-p", "0", "-n", "4"], "prefill_tok_s", "decode_tok_s"),
        (["-p", "4", "-n", "0"], "decode_tok_s", "prefill_tok_s"),
    ] {
        let row = &results(&args)[0];
        assert!(row[missing].is_null() && row[there].as_f64().is_some_and(|speed| speed > 0.0), "{row}");
        let table = stdout(&[&["bench", "-t", "1", "-r", "1"], &args[..]].concat());
        assert!(table.contains(" - ") && !table.contains("NaN"), "{table}");
    }
    assert!(error(&["bench", "-p", "0", "-n", "0"]).contains("nothing to measure"));

    // The cache grows with the tokens before.
    let deep = results(&["-p", "4", "-n", "2", "-d", "0,40"]);
    let of = |name: &str| deep.iter().map(|row| row[name].as_u64().expect("a number")).collect::<Vec<_>>();
    assert_eq!(of("depth"), [0, 40]);
    assert!(of("kv_bytes")[1] > of("kv_bytes")[0]);
    assert!(error(&["bench", "-p", "4", "-n", "4", "-d", "40", "-c", "42"]).contains("44 tokens"));
}

#[test]
fn a_profile_adds_up() {
    let args = ["bench", "-p", "64", "-n", "32", "-t", "1", "-r", "3", "--profile", "--json"];
    let result = &json(&args)["results"][0];
    let profile = &result["profile"];
    for (pass, tokens) in [("prefill", 64), ("decode", 1)] {
        let pass = &profile[pass];
        assert_eq!(pass["tokens"], tokens);
        let parts = pass["parts"].as_array().expect("parts");
        let sum: f64 = parts.iter().map(|part| part["ms"].as_f64().expect("ms")).sum();
        let whole = pass["ms"].as_f64().expect("ms");
        // The process may be interrupted between its parts.
        assert!(sum > 0.5 * whole && sum < 1.001 * whole, "{sum} of {whole}");
        for part in ["q, k, v", "attention", "output", "feed-forward", "head"] {
            let part = parts.iter().find(|other| other["part"] == part).unwrap_or_else(|| panic!("{part}"));
            assert!(part["gmul_s"].as_f64().expect("a rate") > 0.0, "{part}");
        }
    }
    for limit in ["read_gb_s", "decode_share"] {
        assert!(result[limit].as_f64().expect(limit) > 0.0, "{limit}");
    }
    // The scalar kernels have no instruction for integer products, so both values are null for them.
    assert_eq!(result["integer_gmul_s"].is_null(), result["prefill_share"].is_null());
}

#[test]
fn results_in_every_form_and_as_pictures() {
    let directory = tempfile::tempdir().expect("a directory");
    let plot = directory.path().join("plot.svg");
    let bench = |more: &[&str]| stdout(&[&["bench", "-p", "4", "-n", "4", "-r", "1", "-t", "1"][..], more].concat());
    let csv = bench(&["-o", "csv", "--sequences", "1,3", "--plot", path(&plot)]);
    let lines: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(lines.iter().map(Vec::len).collect::<Vec<_>>(), [18, 18, 18]);
    assert_eq!((lines[0][3], lines[1][3], lines[2][3]), ("sequences", "1", "3"));
    assert_eq!(bench(&["-o", "md", "-c", "0"]).lines().count(), 3);
    assert!(bench(&["-o", "json"]).contains("\"results\""));

    let states = ["probe", "-p", "The sun", "--plot", path(&plot)];
    for args in [&states[..], &["plan", "--plot", path(&plot)]] {
        stdout(args);
        let svg = std::fs::read_to_string(&plot).expect("a picture");
        assert!(svg.starts_with("<svg") && svg.contains("<polyline"), "{args:?}");
        std::fs::remove_file(&plot).expect("it is there");
    }
}

#[test]
fn one_tensor_in_numbers() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("tensor.npy");
    stdout(&["inspect", "--tensor", "blk.0.attn_k.weight", "-o", path(&file)]);
    let (shape, numbers) = npy(&file);
    let report = json(&["inspect", "--json"]);
    let tensor = report["tensors"].as_array().expect("tensors").iter().find(|t| t["name"] == "blk.0.attn_k.weight");
    let dims = tensor.expect("it is there")["shape"].clone();
    assert_eq!(shape, format!("({}, {})", dims[1], dims[0]));
    assert!(numbers.iter().all(|x| x.is_finite()) && numbers.iter().any(|x| *x != 0.0));
    // The text output shows rows first.
    let shown = format!("{} x {}", dims[1], dims[0]);
    let line = stdout(&["inspect"]).lines().find(|line| line.contains("blk.0.attn_k.weight")).map(str::to_string);
    assert!(line.as_ref().is_some_and(|line| line.contains(&shown)), "{line:?}");
    let missing = error(&["inspect", "--tensor", "no.such", "-o", path(&file)]);
    assert!(missing.contains("no.such") && missing.contains("lists the tensors"), "{missing}");
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_arenite"))
        .args(["generate", "-n", "200", "--ignore-eos"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let mut some = [0; 4];
    child.stdout.take().expect("a pipe").read_exact(&mut some).expect("some output");
    let output = child.wait_with_output().expect("the binary ends");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert!(!stderr.contains("panic") && !stderr.contains("error"), "{stderr}");
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_the_line_and_prints_the_statistics() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_arenite"))
        .args(["generate", "--ignore-eos", "--seed", "1"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let mut out = child.stdout.take().expect("a pipe");
    let mut some = [0; 20];
    out.read_exact(&mut some).expect("some output");
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill");
    assert!(killed.success());
    let mut rest = Vec::new();
    out.read_to_end(&mut rest).expect("the rest");
    let output = child.wait_with_output().expect("the binary ends");
    // The process may also end normally, because a short context may be full just before the signal comes.
    assert!(matches!(output.status.code(), Some(130 | 0)), "{:?}", output.status);
    assert!(rest.ends_with(b"\n"));
    assert!(String::from_utf8_lossy(&output.stderr).contains("tok/s"));
}

#[test]
fn stories260k_tells_what_llama2c_tells() {
    let Some(case) = fixtures("stories260K") else { return };
    let reference: Value =
        serde_json::from_slice(&std::fs::read(case.join("ref.json")).expect("ref.json")).expect("JSON");
    let model = case.join("model.gguf");
    for prompt in reference["prompts"].as_array().expect("a list") {
        let text = prompt["text"].as_str().expect("a text");
        let expected = prompt["runc_text"].as_str().expect("a text");
        let got = stdout(&["generate", "-m", path(&model), "-p", text, "-n", "200", "--temp", "0", "--kv", "f32"]);
        assert!(got.starts_with(expected), "{text:?}\nexpected {expected:?}\ngot      {got:?}");
    }
}

#[test]
fn greedy_ids_are_those_of_the_reference() {
    for case in ["qwen3", "gpt2", "phi4_mini", "gpt_oss_yarn", "olmo3_small", "granite4_small", "lfm2moe", "nemotron_h"]
    {
        let case = committed("tests/fixtures").join(case);
        let reference: Value =
            serde_json::from_slice(&std::fs::read(case.join("ref.json")).expect("ref.json")).expect("JSON");
        let model = case.join("model.gguf");
        for prompt in reference["prompts"].as_array().expect("a list") {
            let ids = prompt["ids"].to_string();
            let args = ["generate", "-m", path(&model), "--ids", &ids, "-n", "32", "--temp", "0"];
            let got = json(&[&args[..], &["--kv", "f32", "--ignore-eos", "--format", "ids"]].concat());
            assert_eq!(got, prompt["greedy"], "{}", model.display());
        }
    }
}

#[test]
fn a_file_with_only_a_vocabulary_tokenizes() {
    let tokenizers = committed("tests/fixtures/tokenizers");
    let vectors: Value =
        serde_json::from_slice(&std::fs::read(tokenizers.join("ids.json")).expect("the vectors")).expect("JSON");
    let model = tokenizers.join("llama_mha.gguf");
    let list = |key: &str| vectors[key].as_array().expect("a list").iter();
    let cases: Vec<_> = list("texts").zip(list("llama_mha")).filter(|(_, ids)| !ids.is_null()).collect();
    assert!(cases.len() > 100);
    // Bytes that are not UTF-8 are passed unchanged in a JSON string.
    let lines: Vec<u8> = cases.iter().flat_map(|(text, _)| json_line(&bytes_of(text))).collect();
    let output = arenite_with(&["tokenize", "-m", path(&model), "--jsonl"], &lines);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let got = String::from_utf8(output.stdout).expect("UTF-8");
    for ((text, want), ids) in cases.iter().zip(got.lines()) {
        assert_eq!(serde_json::from_str::<Value>(ids).expect("JSON"), **want, "{text}");
    }
    let back = stdout_with(&["detokenize", "-m", path(&model), "--jsonl"], got.as_bytes());
    for ((case, _), text) in cases.iter().zip(back.lines()) {
        // SentencePiece writes spaces as U+2581, so a U+2581 in the text comes back as a space.
        let expected = String::from_utf8_lossy(&bytes_of(case)).replace('\u{2581}', " ");
        assert_eq!(serde_json::from_str::<Value>(text).expect("JSON"), Value::from(expected), "{case}");
    }
}

/// Returns the bytes of a string in the test's file, where strings are hexadecimal.
fn bytes_of(text: &Value) -> Vec<u8> {
    let hex = text.as_str().expect("hex");
    (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).expect("hex")).collect()
}

/// A line with `bytes` as a JSON string.
fn json_line(bytes: &[u8]) -> Vec<u8> {
    let mut line = vec![b'"'];
    for &byte in bytes {
        match byte {
            b'"' | b'\\' => line.extend([b'\\', byte]),
            0..0x20 => line.extend(format!("\\u{byte:04x}").bytes()),
            _ => line.push(byte),
        }
    }
    line.extend(b"\"\n");
    line
}
