//! Tests `quantize`, `imatrix` and `perplexity` by running the binary.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

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

/// Writes a model with one large matrix: `rows` of 4096 values.
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
    let Some(fixtures) = std::env::var_os("ARENITE_FIXTURES") else {
        eprintln!("SKIP: ARENITE_FIXTURES is not set, so the files of llama-quantize are not compared");
        return;
    };
    let case = Path::new(&fixtures).join("q_llama");
    let types = "Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 Q2_K Q3_K_M Q4_K_M Q5_K_M Q6_K IQ4_NL IQ4_XS TQ1_0 TQ2_0";
    for kind in types.split(' ') {
        // A pipe gets no hashes, which llama-quantize's files do not have.
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

#[cfg(unix)]
#[test]
fn a_full_disk_leaves_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let model = directory.path().join("model");
    large_model(&model, 512);
    let out = directory.path().join("out");
    // A limit on file size fails like a full disk, in the middle of writing.
    let script = format!("ulimit -f 512; exec \"$0\" quantize {} {} Q8_0", path(&model), path(&out));
    let shell = Command::new("sh").args(["-c", &script, env!("CARGO_BIN_EXE_arenite")]).output().expect("a shell");
    let stderr = String::from_utf8_lossy(&shell.stderr);
    assert_eq!(shell.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("cannot write") && stderr.lines().count() == 1, "{stderr}");
    assert_eq!(entries(directory.path()), ["model"]);
}

#[cfg(unix)]
#[test]
fn other_signals_leave_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let model = directory.path().join("model");
    large_model(&model, 8192);
    let out = directory.path().join("out");
    for (signal, status) in [("-TERM", 143), ("-HUP", 129), ("-TERM", 143)] {
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
