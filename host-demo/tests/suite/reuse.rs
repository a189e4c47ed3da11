//! `--cache-reuse`: tokens that an earlier conversation has at other positions. The expected counts follow from the
//! prompts. After a removed part, llama.cpp reuses the same blocks.

use serde_json::{Value, json};

use crate::common::{arenite, committed, path};
use crate::serve::Server;

const FIRST: &str =
    "Once upon a time there was a little girl named Lily. She loved to play with her toys in the park. ";
const REMOVED: &str = "One day it rained and she had to stay inside all day long with her cat and her dog. ";
const LAST: &str = "Then the sun came out and everyone was happy again. They went to the park to play.";

/// Sends a prompt to the server. Returns the number of the prompt's tokens, and how many of them came from the cache.
fn read(server: &Server, prompt: &str, more: Value) -> (u64, u64) {
    let mut body = json!({ "prompt": prompt, "n_predict": 1, "temperature": 0 });
    more.as_object().unwrap().iter().for_each(|(key, value)| body[key] = value.clone());
    let (status, answer) = server.post("/completion", body.to_string().as_bytes());
    assert_eq!(status, 200, "{answer}");
    (answer["tokens_evaluated"].as_u64().unwrap(), answer["timings"]["cache_n"].as_u64().unwrap())
}

#[test]
fn blocks_after_a_change_are_reused() {
    let (whole, shorter) = (format!("{FIRST}{REMOVED}{LAST}"), format!("{FIRST}{LAST}"));
    let changed = format!("{FIRST}Two things happened. {LAST}");
    for args in [&["--cache-reuse", "8"][..], &["--cache-reuse", "8", "--cache-scope", "server", "--kv", "q8_0"]] {
        let server = Server::start(args);
        assert_eq!(read(&server, &whole, json!({})).1, 0);
        let (tokens, cached) = read(&server, &shorter, json!({}));
        assert_eq!(cached, tokens - 1, "{args:?}");
        // The inserted sentence is read, and a few tokens before it, because the end of the prompt's first part may
        // form other tokens with the new text.
        let (tokens, cached) = read(&server, &changed, json!({}));
        assert!(cached < tokens - 3 && cached + 10 > tokens, "{args:?}: {cached} of {tokens}");
        // A request may ask for longer blocks, or none.
        let few = [json!({ "n_cache_reuse": 500 }), json!({ "n_cache_reuse": 0 }), json!({ "cache_prompt": false })];
        for (number, more) in few.into_iter().enumerate() {
            let (tokens, cached) = read(&server, &format!("{number} {LAST} {FIRST}"), more.clone());
            assert!(cached < 5, "{more}: {cached} of {tokens}");
        }
    }
    // Off by default.
    let server = Server::start(&["--cache-scope", "server"]);
    read(&server, &whole, json!({}));
    let (tokens, cached) = read(&server, &shorter, json!({}));
    assert!(cached > 10 && cached < tokens - 10, "{cached} of {tokens}");
}

/// The option `--cache-reuse` changes no answer in a model whose states have no positions, because tokens cannot be
/// moved there.
#[test]
fn models_without_movable_keys_read_all() {
    let model = committed("tests/fixtures/nemotron_h/model.gguf");
    let run = |more: &[&str]| {
        let args = ["generate", "-m", path(&model), "--ids", "5,6,7,8", "-n", "4", "--temp", "0", "--format", "ids"];
        arenite(&[&args[..], more].concat())
    };
    let (plain, reusing) = (run(&[]), run(&["--cache-reuse", "2"]));
    assert!(plain.status.success() && plain.stdout == reusing.stdout);
    let said = String::from_utf8_lossy(&reusing.stderr);
    assert!(said.contains("--cache-reuse has no effect"), "{said}");
}

#[test]
fn a_session_reuses_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("session");
    let run = |prompt: &str, more: &[&str]| {
        let args = ["generate", "-p", prompt, "-n", "2", "-c", "256", "--temp", "0", "--session", path(&file)];
        let output = arenite(&[&args[..], more].concat());
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{said}");
        said
    };
    run(&format!("{FIRST}{REMOVED}{LAST}"), &[]);
    let said = run(&format!("{FIRST}{LAST}"), &["--cache-reuse", "8"]);
    assert!(said.contains("from the session") && said.contains("at other positions"), "{said}");
}
