//! Runs the binary as a user does.
#![allow(dead_code)] // No test uses all of this module.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// Runs `arenite` with the arguments `args`. `input` is its standard input.
pub fn arenite_with(args: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_arenite"))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    // A command that does not read its input closes the pipe. This is not an error.
    let _ = child.stdin.take().expect("a pipe").write_all(input);
    child.wait_with_output().expect("the binary ends")
}

pub fn arenite(args: &[&str]) -> Output {
    arenite_with(args, b"")
}

/// Standard output of a run that must succeed.
pub fn stdout(args: &[&str]) -> String {
    stdout_with(args, b"")
}

pub fn stdout_with(args: &[&str], input: &[u8]) -> String {
    let output = arenite_with(args, input);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

pub fn json(args: &[&str]) -> Value {
    let text = stdout(args);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{args:?}: {error}: {text}"))
}

/// Runs a command that must fail with exit code 1. Returns the only line on its standard error.
pub fn error(args: &[&str]) -> String {
    let output = arenite(args);
    let stderr = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(1), "{args:?}: {stderr}");
    assert_eq!(stderr.lines().count(), 1, "{args:?}: {stderr}");
    assert!(stderr.starts_with("error: "), "{args:?}: {stderr}");
    stderr.trim_end().to_string()
}

/// Returns the path of a case in the larger set, if `ARENITE_FIXTURES` names the folder of this set.
pub fn external(case: &str) -> Option<PathBuf> {
    std::env::var_os("ARENITE_FIXTURES").map(|root| Path::new(&root).join(case))
}

/// Like [`external`], for a test whose only case is in the larger set. Prints SKIP if the set is missing.
pub fn fixtures(case: &str) -> Option<PathBuf> {
    let path = external(case);
    if path.is_none() {
        skip(case);
    }
    path
}

/// Prints that a case is skipped. `.ci/run` counts the printed lines.
pub fn skip(case: &str) {
    println!("SKIP {case}: set ARENITE_FIXTURES to the directory of reference cases");
}

pub fn path(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

/// The shape and the values of a NumPy file.
pub fn npy(file: &Path) -> (String, Vec<f32>) {
    let bytes = std::fs::read(file).expect("a file");
    let (header, values) = bytes.split_at(10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]])));
    let text = String::from_utf8_lossy(&header[10..]).to_string();
    let shape = text.split("'shape': ").nth(1).and_then(|rest| rest.split(", }").next()).expect("a shape");
    (shape.to_string(), values.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect())
}

/// The path of a file in the repository.
pub fn committed(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name)
}

/// Parses one JSON value per line.
pub fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}
