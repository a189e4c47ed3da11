//! Tests `quantize`, `imatrix` and `perplexity` by running the binary.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::common::fixtures;

fn arenite(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_arenite")).args(args).stdin(Stdio::null()).output().expect("the binary starts")
}

/// Standard output of a run that must succeed.
fn stdout(args: &[&str]) -> String {
    let output = arenite(args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// The only line of a run that must fail.
fn error(args: &[&str]) -> String {
    let output = arenite(args);
    let stderr = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(1), "{args:?}: {stderr}");
    assert_eq!(stderr.lines().count(), 1, "{args:?}: {stderr}");
    stderr
}

fn path(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

fn entries(directory: &Path) -> Vec<String> {
    let all = fs::read_dir(directory).expect("a directory");
    all.map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8")).collect()
}

/// The built-in story model.
fn stories() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("models/stories.gguf")
}

/// Writes a model with one large matrix of `rows` rows with 4096 values each.
fn large_model(at: &Path, rows: u64) {
    let string = |text: &str| [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat();
    let mut bytes = b"GGUF\x03\0\0\0".to_vec();
    bytes.extend(1u64.to_le_bytes());
    bytes.extend(1u64.to_le_bytes());
    bytes.extend([string("general.architecture"), 8u32.to_le_bytes().to_vec(), string("llama")].concat());
    bytes.extend([string("blk.0.ffn_up.weight"), 2u32.to_le_bytes().to_vec()].concat());
    [4096, rows].iter().for_each(|n| bytes.extend(n.to_le_bytes()));
    bytes.extend(0u32.to_le_bytes()); // F32
    bytes.extend(0u64.to_le_bytes());
    bytes.resize(bytes.len().next_multiple_of(32), 0);
    let mut state = 1u32;
    for _ in 0..4096 * rows {
        state = state.wrapping_mul(1664525).wrapping_add(1013904223);
        bytes.extend(((state >> 8) as f32 / 8388608.0 - 1.0).to_le_bytes());
    }
    fs::write(at, bytes).expect("the model is written");
}

#[test]
fn files_are_those_of_llama_quantize() {
    let Some(case) = fixtures("q_llama") else { return };
    let types = "Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 Q2_K Q3_K_M Q4_K_M Q5_K_M Q6_K IQ4_NL IQ4_XS TQ1_0 TQ2_0";
    for kind in types.split(' ') {
        // The files are compared bit by bit. llama-quantize writes no hashes, so the new file goes to a pipe, to which
        // `arenite quantize` writes none either.
        let output = arenite(&["quantize", path(&case.join("model.gguf")), "/dev/stdout", kind]);
        let want = fs::read(case.join(format!("{kind}.gguf"))).expect("the fixture");
        assert!(output.status.success() && output.stdout == want, "{kind} differs from llama-quantize's file");
    }
}

#[test]
fn a_model_is_measured_quantized_and_compared() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name);
    let words = "Once upon a time there was a little girl who had a red ball and a big dog. They ran to the park. ";
    fs::write(at("text"), words.repeat(40)).expect("the text is written");
    let text = at("text");
    let model = stories();
    let common = ["-m", path(&model), "-f", path(&text), "-c", "64"];

    stdout(&[&["imatrix"], &common[..], &["-o", path(&at("imatrix")), "--chunks", "3"]].concat());
    stdout(&[
        "quantize",
        path(&model),
        path(&at("small.gguf")),
        "IQ2_M",
        "--allow-requantize",
        "--imatrix",
        path(&at("imatrix")),
    ]);
    assert!(fs::metadata(at("small.gguf")).expect("the file").len() < fs::metadata(&model).expect("the model").len());

    let saved = at("logits");
    let all = stdout(&[&["perplexity"], &common[..], &["--chunks", "3", "--save-logits", path(&saved)]].concat());
    let last = all.lines().last().expect("a line").split(' ').collect::<Vec<_>>();
    let [name, value, sign, error] = last[..] else { panic!("{all}") };
    assert_eq!((name, sign), ("perplexity", "+-"));
    let value: f64 = value.parse().expect("a number");
    assert!(value > 1.0 && error.parse::<f64>().expect("a number") > 0.0, "{all}");

    let drawn = at("plot.svg");
    let itself = stdout(&["perplexity", "-m", path(&model), "--kl", path(&saved), "--plot", path(&drawn)]);
    let divergence = |text: &str| -> f64 {
        text.lines().next().and_then(|line| line.split(' ').nth(2)?.parse().ok()).expect("a divergence")
    };
    assert!(divergence(&itself).abs() < 1e-4, "{itself}");
    assert!(itself.ends_with(&format!("{}\n", all.lines().last().expect("a line"))), "{itself}");
    assert!(fs::read_to_string(&drawn).expect("the chart").contains("</svg>"));
    let small = stdout(&["perplexity", "-m", path(&at("small.gguf")), "--kl", path(&saved)]);
    assert!(divergence(&small) > 0.01, "{small}");
}

#[test]
fn what_is_wrong_is_said_in_one_line_and_nothing_is_written() {
    let directory = tempfile::tempdir().expect("a directory");
    let out = directory.path().join("out.gguf");
    let model = stories();
    let model = path(&model);
    assert!(error(&["quantize", model, path(&out), "Q4_0"]).contains("--allow-requantize"));
    assert!(error(&["quantize", model, path(&out), "IQ1_S", "--allow-requantize"]).contains("--imatrix"));
    assert!(
        error(&["quantize", model, "/no/such/directory/out", "Q4_0", "--allow-requantize"]).contains("cannot write")
    );
    assert!(error(&["quantize", model, path(&out), "Q4_0", "--imatrix", model]).contains("not an importance matrix"));
    assert!(error(&["quantize", "/no/such.gguf", path(&out), "Q4_0"]).contains("no such file"));
    assert_eq!(arenite(&["quantize", model, path(&out), "Q9_9"]).status.code(), Some(2));
    assert!(error(&["perplexity", "-f", path(&directory.path().join("none"))]).contains("cannot read"));
    fs::write(directory.path().join("text"), "Too short.").expect("the text is written");
    let text = directory.path().join("text");
    assert!(error(&["perplexity", "-f", path(&text)]).contains("give a longer text"));
    assert!(error(&["perplexity", "--kl", path(&text)]).contains("log-probabilities"));
    assert_eq!(entries(directory.path()), ["text"]);
}

/// Metadata and tensors of a file.
fn listing(file: &Path) -> Value {
    serde_json::from_str(&stdout(&["inspect", path(file), "--json"])).expect("JSON")
}

fn kinds(file: &Path) -> BTreeMap<String, String> {
    let all = listing(file);
    let entry = |tensor: &Value| {
        (tensor["name"].as_str().unwrap_or_default().to_owned(), tensor["type"].as_str().unwrap_or_default().to_owned())
    };
    all["tensors"].as_array().expect("a list").iter().map(entry).collect()
}

/// If the only layer that predicts further tokens is pruned, the model no longer states that it has such a layer.
#[test]
fn layers_for_drafts_are_pruned() {
    let directory = tempfile::tempdir().expect("a directory");
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/mtp_qwen35.gguf");
    let out = directory.path().join("out.gguf");
    let counts = |file: &Path| {
        let all = &listing(file)["metadata"];
        ["block_count", "nextn_predict_layers"].map(|key| all[format!("qwen35.{key}")].as_u64())
    };
    assert_eq!(counts(Path::new(model)), [Some(5), Some(1)]);
    for (layer, right) in [("4", [Some(4), Some(0)]), ("3", [Some(4), Some(1)])] {
        stdout(&["quantize", model, path(&out), "COPY", "--prune-layers", layer]);
        assert_eq!(counts(&out), right);
    }
}

#[test]
fn what_people_type_for_llama_quantize() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name);
    large_model(&at("model.gguf"), 64);
    let model = at("model.gguf");
    let model = path(&model);
    let out = at("out.gguf");
    let out = path(&out);
    // llama-quantize also takes flags before the files, a number in place of the type's name, and a number of threads
    // after the type.
    stdout(&["quantize", "--output-tensor-type", "q8_0", "--token-embedding-type", "f16", model, out, "15", "2"]);
    assert_eq!(listing(&at("out.gguf"))["metadata"]["general.file_type"], 15);
    // A rule that matches nothing is a misspelled one.
    for (rule, is_told) in [("ffn_pu=q6_K", true), ("ffn_up=q6_K", false)] {
        let output = arenite(&["quantize", "--tensor-type", rule, model, out, "Q8_0"]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.contains("matches no tensor") == is_told, "{said}");
    }
    // If no output is named, the new file is beside the model.
    stdout(&["quantize", model, "Q8_0", "1"]);
    assert!(kinds(&at("ggml-model-Q8_0.gguf")).values().any(|kind| kind == "Q8_0"));
    stdout(&["quantize", "--pure", model, out, "q4_k_m"]);
    assert!(
        kinds(&at("out.gguf")).values().all(|kind| kind == "Q4_K" || kind == "F32"),
        "{:?}",
        kinds(&at("out.gguf"))
    );
    // A copy with other metadata.
    let said = arenite(&[
        "quantize",
        "--override-kv",
        "general.name=str:Mine",
        "--override-kv",
        "a.b=int:7",
        "--override-kv",
        "a.c=float:0.5",
        "--override-kv",
        "a.d=bool:true",
        out,
        &format!("{out}.copy"),
        "COPY",
    ]);
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    let copy = PathBuf::from(format!("{out}.copy"));
    assert_eq!(kinds(&copy), kinds(&at("out.gguf")));
    let keys = &listing(&copy)["metadata"];
    assert_eq!(
        (&keys["general.name"], &keys["a.b"], &keys["a.c"], &keys["a.d"]),
        (&"Mine".into(), &7.into(), &0.5.into(), &true.into())
    );
    assert_eq!(keys["general.file_type"], 15);
    // With `--dry-run`, no file is written, and the size that the file would have is printed.
    let before = entries(directory.path());
    let rehearsed = arenite(&["quantize", "--dry-run", model, "IQ2_XXS"]);
    let told = String::from_utf8_lossy(&rehearsed.stderr).into_owned();
    assert!(
        rehearsed.status.success() && told.contains("bits per weight") && told.contains("importance matrix"),
        "{told}"
    );
    assert_eq!(entries(directory.path()), before);
    for (args, words) in [
        (&["quantize", model, out, "Q4_0", "many"][..], "many is not a number of threads"),
        (&["quantize", model, "Q9_9"], "`Q9_9`: unknown type; give one of"),
        (&["quantize", model], "give a type after the model"),
        (&["quantize", "--override-kv", "a=7", model, out, "Q4_0"], "KEY=TYPE:VALUE"),
        (&["quantize", "--prune-layers", "a", model, out, "Q4_0"], "layer numbers"),
        (&["quantize", "--include-weights", "a", model, out, "Q4_0"], "--imatrix"),
    ] {
        let output = arenite(args);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.code() == Some(2) && stderr.contains(words) && stderr.lines().count() == 1,
            "{args:?}: {stderr}"
        );
    }
}

#[test]
fn narrow_rows_are_told_and_layers_left_out() {
    let directory = tempfile::tempdir().expect("a directory");
    let out = directory.path().join("out.gguf");
    let model = stories();
    let said = arenite(&["quantize", "--allow-requantize", path(&model), path(&out), "Q2_K"]);
    let told = String::from_utf8_lossy(&said.stderr).into_owned();
    let warning = told.lines().find(|line| line.starts_with("warning: the rows of ")).expect("a warning");
    for words in ["Q2_K cannot hold in blocks of 256", "become", "a type that fits is IQ4_NL"] {
        assert!(warning.contains(words), "{told}");
    }
    let columns = listing(&model)["metadata"]["llama.embedding_length"].to_string();
    assert!(told.contains(&format!("have {columns} elements")), "{told}");

    let layers = listing(&model)["metadata"]["llama.block_count"].as_u64().expect("a number");
    let last = (layers - 1).to_string();
    stdout(&["quantize", "--prune-layers", &last, path(&model), path(&out), "COPY"]);
    let pruned = listing(&out);
    assert_eq!(pruned["metadata"]["llama.block_count"], layers - 1);
    assert!(!kinds(&out).keys().any(|name| name.starts_with(&format!("blk.{last}."))));
    stdout(&["quantize", "--prune-layers", "0", path(&model), path(&out), "COPY"]);
    let tensor = |file: &Path, name: &str| {
        let npy = directory.path().join("x.npy");
        stdout(&["inspect", path(file), "--tensor", name, "-o", path(&npy)]);
        fs::read(npy).expect("values")
    };
    assert_eq!(tensor(&out, "blk.0.attn_q.weight"), tensor(&model, "blk.1.attn_q.weight"));
    assert!(arenite(&["generate", "-m", path(&out), "-p", "a", "-n", "2"]).status.success());
    let all = (0..layers).map(|layer| layer.to_string()).collect::<Vec<_>>().join(",");
    assert!(error(&["quantize", "--prune-layers", &all, path(&model), path(&out), "COPY"]).contains("leaves no layer"));
    assert!(error(&["quantize", "--prune-layers", "99", path(&model), path(&out), "COPY"]).contains("no layer 99"));
}

#[cfg(unix)]
#[test]
fn a_full_disk_leaves_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let model = directory.path().join("model");
    large_model(&model, 512);
    let out = directory.path().join("out");
    // A limit on the size of files makes a write fail in the middle of the file, as on a full disk.
    let script = format!("ulimit -f 512; exec \"$0\" quantize {} {} Q8_0", path(&model), path(&out));
    let shell = Command::new("sh").args(["-c", &script, env!("CARGO_BIN_EXE_arenite")]).output().expect("a shell");
    let stderr = String::from_utf8_lossy(&shell.stderr);
    assert_eq!(shell.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("cannot write") && stderr.lines().count() == 1, "{stderr}");
    assert_eq!(entries(directory.path()), ["model"]);
}

/// Returns true if this process ignores SIGHUP, as under `nohup`. Its children then ignore SIGHUP, too.
#[cfg(unix)]
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 1 == 1)
}

#[cfg(unix)]
#[test]
fn other_signals_leave_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let model = directory.path().join("model");
    large_model(&model, 8192);
    let out = directory.path().join("out");
    for (signal, status) in [("-TERM", 143), ("-HUP", 129), ("-TERM", 143)] {
        if signal == "-HUP" && ignores_hangup() {
            println!("SKIP: SIGHUP is ignored here, so it ends nothing");
            continue;
        }
        let mut child = Command::new(env!("CARGO_BIN_EXE_arenite"))
            .args(["quantize", path(&model), path(&out), "Q5_K_M", "-t", "1"])
            .stderr(Stdio::null())
            .spawn()
            .expect("the binary starts");
        while entries(directory.path()).len() < 2 {
            std::thread::yield_now(); // until it writes
        }
        let killed = Command::new("kill").args([signal, &child.id().to_string()]).status().expect("kill runs");
        assert!(killed.success());
        assert_eq!(child.wait().expect("the binary ends").code(), Some(status), "{signal}");
        assert_eq!(entries(directory.path()), ["model"], "{signal}");
    }
}

#[cfg(unix)]
#[test]
fn ctrl_c_leaves_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let model = directory.path().join("model");
    large_model(&model, 8192);
    let out = directory.path().join("out");
    let child = Command::new(env!("CARGO_BIN_EXE_arenite"))
        .args(["quantize", path(&model), path(&out), "Q5_K_M", "-t", "1"])
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    while entries(directory.path()).len() < 2 {
        std::thread::yield_now(); // until it writes
    }
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill runs");
    assert!(killed.success());
    let output = child.wait_with_output().expect("the binary ends");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{stderr}");
    assert!(stderr.starts_with("stopped: ") && stderr.lines().count() == 1, "{stderr}");
    assert_eq!(entries(directory.path()), ["model"]);
}
