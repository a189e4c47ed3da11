//! System faults: full disks, limits, links, devices, and files that shrink. Each gives one clear line and an exit
//! code, and existing files stay unchanged.
#![cfg(target_os = "linux")]

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const ARENITE: &str = env!("CARGO_BIN_EXE_arenite");

/// Returns the arguments of every command that writes a file, applied to `file` in `directory`.
fn writers(directory: &Path, file: &str) -> Vec<String> {
    let stories = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/stories.gguf");
    let (stories, file) = (stories.display(), directory.join(file).display().to_string());
    let translator = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/english_hindi");
    let text = concat!(env!("CARGO_MANIFEST_DIR"), "/README.md");
    vec![
        format!("logits --ids 1,5,9 --all -o {file}"),
        format!("probe --ids 1,5,9 --position all -o {file}"),
        format!("pack {stories} {file}"),
        format!("convert seq2seq {} {file}", translator.display()),
        format!("perplexity -f {text} -c 32 --chunks 4 --save-logits {file}"),
    ]
}

/// Runs a command after a line of shell.
fn shell(before: &str, arguments: &str) -> Output {
    Command::new("sh").arg("-c").arg(format!("{before}; exec {ARENITE} {arguments}")).output().unwrap()
}

/// The only line of a command that failed.
#[track_caller]
fn failure(output: Output) -> String {
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    error
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_limit_on_the_size_of_files_leaves_the_old_one() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("out"), "old").unwrap();
    for command in writers(directory.path(), "out") {
        let error = failure(shell("ulimit -f 4", &command));
        assert!(error.contains("cannot write") && error.contains("exceed the size limit"), "{command}: {error}");
        assert_eq!(fs::read(directory.path().join("out")).unwrap(), b"old", "{command}");
        assert_eq!(names(directory.path()), ["out"], "{command}");
    }
}

#[test]
fn a_full_device_is_an_error_and_stays_a_device() {
    for command in writers(Path::new("/dev"), "full") {
        let error = failure(shell(":", &command));
        assert!(error.contains("cannot write /dev/full") && error.contains("no space is left"), "{command}: {error}");
    }
    for help in ["--help", "generate --help", "--version"] {
        let error = failure(shell("exec >/dev/full", help));
        assert!(error.contains("cannot write") && error.contains("no space is left"), "{help}: {error}");
    }
    for command in writers(Path::new("/dev"), "null") {
        assert!(shell(":", &command).status.success(), "{command}");
    }
    assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
}

#[test]
fn a_link_stays_a_link() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    fs::create_dir(at("other")).unwrap();
    symlink("other/file", at("link")).unwrap();
    for command in writers(directory.path(), "link") {
        let _ = fs::remove_file(at("other/file"));
        assert!(shell(":", &command).status.success(), "{command}");
        assert!(fs::symlink_metadata(at("link")).unwrap().is_symlink(), "{command}");
        assert!(fs::metadata(at("other/file")).unwrap().len() > 1000, "{command}");
        assert_eq!(names(&at("other")), ["file"], "{command}");
    }
}

#[test]
fn a_pipe_gets_the_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for command in writers(directory.path(), "pipe") {
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || fs::read(pipe).unwrap()
        });
        assert!(shell(":", &command).status.success(), "{command}");
        assert!(reader.join().unwrap().len() > 1000, "{command}");
        assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo(), "{command}");
    }
}

#[test]
fn a_directory_is_not_written_over() {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("out")).unwrap();
    for command in writers(directory.path(), "out") {
        assert!(failure(shell(":", &command)).contains("this is a directory"), "{command}");
    }
}

#[test]
fn a_model_that_shrinks_while_it_runs_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let model = directory.path().join("model.gguf");
    fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join("models/stories.gguf"), &model).unwrap();
    let mut score = Command::new(ARENITE)
        .args(["score", "--jsonl", "-t", "2", "-m"])
        .arg(&model)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut stdin, request) = (score.stdin.take().unwrap(), b"{\"prompt\": [1, 5], \"continuation\": [9, 7, 4]}\n");
    stdin.write_all(request).unwrap();
    let mut answer = String::new();
    BufReader::new(score.stdout.take().unwrap()).read_line(&mut answer).unwrap();
    assert!(answer.contains("logprob"), "{answer}");
    fs::File::options().write(true).open(&model).unwrap().set_len(4096).unwrap();
    stdin.write_all(request).unwrap();
    drop(stdin);
    let output = score.wait_with_output().unwrap();
    let error = failure(output);
    assert!(error.starts_with("error: ") && error.contains("model.gguf was truncated while in use"), "{error}");
}

/// Converts the English-Hindi model of the fixtures with a changed config. Returns the output of the command.
fn converted(change: impl Fn(&mut serde_json::Value)) -> (Output, PathBuf, tempfile::TempDir) {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/english_hindi");
    let directory = tempfile::tempdir().unwrap();
    for name in ["model.safetensors", "tokenizer.json"] {
        fs::copy(from.join(name), directory.path().join(name)).unwrap();
    }
    let mut config: serde_json::Value = serde_json::from_slice(&fs::read(from.join("config.json")).unwrap()).unwrap();
    change(&mut config);
    fs::write(directory.path().join("config.json"), config.to_string()).unwrap();
    let output = directory.path().join("out.gguf");
    let run = Command::new(ARENITE).args(["convert", "seq2seq"]).args([directory.path(), &output]).output().unwrap();
    (run, output, directory)
}

#[test]
fn a_model_that_would_be_refused_is_not_written() {
    assert!(converted(|_| ()).0.status.success());
    for (key, value, why) in [
        ("num_heads", 0u64, "attention.head_count is 0"),
        ("num_heads", 1 << 31, "attention.head_count is too large"),
        ("num_heads", 3, "attention.head_count does not divide"),
        ("max_len", 0, "context_length is 0"),
        ("max_len", 1 << 31, "context_length is too large"),
    ] {
        let (run, output, _directory) = converted(|config| config[key] = value.into());
        assert!(failure(run).contains(why), "{key} {value}");
        assert!(!output.exists());
        assert!(!names(output.parent().unwrap()).iter().any(|name| name.starts_with(".arenite")));
    }
}

#[test]
fn what_is_not_text_is_named() {
    let argument = OsStr::from_bytes(b"a\xffb");
    let output = Command::new(ARENITE).args(["generate", "-p"]).arg(argument).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), error.lines().count()), (Some(2), 1), "{error}");
    assert!(error.contains("\"a\\xFFb\" is not UTF-8"), "{error}");

    let stories = concat!(env!("CARGO_MANIFEST_DIR"), "/models/stories.gguf");
    for command in ["generate --grammar", "chat --messages"] {
        let error = failure(shell(":", &format!("{command} {stories}")));
        assert!(error.contains(stories) && error.contains("not text in UTF-8"), "{error}");
    }
    let error = failure(shell(":", &format!("perplexity -f {stories} -c 1")));
    assert!(error.contains("give -c 2 or more"), "{error}");
}
