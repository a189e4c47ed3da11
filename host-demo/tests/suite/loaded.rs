//! `Loaded` gives the same answers as the command line, even if several threads use it, and closes its file when it is
//! dropped.

use std::path::Path;

use crate::common::{committed, path, stdout_with};
use arenite_run::{AnswerEnd, Loaded, Message, Request, RunOptions};
use serde_json::Value;

fn stories() -> Loaded {
    Loaded::open("models/stories.gguf", RunOptions { threads: 1, parallel: 2, ..RunOptions::default() }).unwrap()
}

#[test]
fn a_text_is_continued_as_by_generate() {
    let model = stories();
    let args = ["generate", "-p", "Once upon a time", "--temp", "0", "-n", "40", "--no-display-prompt"];
    let want = stdout_with(&args, b"");
    let request = || Request::from("Once upon a time").temperature(0.0).max_tokens(40);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut answer = model.generate(request()).unwrap();
                let parts: Vec<String> = answer.by_ref().collect::<Result<_, _>>().unwrap();
                assert_eq!(parts.concat().trim_end(), want.trim_end());
                assert!(parts.len() > 20 && answer.end() == Some(AnswerEnd::Length) && answer.tokens().1 == 40);
            });
        }
    });
    // If an answer is dropped, its generation ends, and the next answer is not affected.
    drop(model.generate(request()).unwrap().next());
    assert_eq!(model.generate(request().stop(",")).unwrap().text().unwrap(), want.split(',').next().unwrap());
}

#[test]
fn a_conversation_is_answered() {
    let model = stories();
    let messages = [Message::system("Be brief."), Message::user("Tell a story.")];
    let request = || Request::from(&messages[..]).temperature(0.0).max_tokens(12);
    let answer = model.chat(request()).unwrap().text().unwrap();
    assert!(!answer.is_empty());
    assert_eq!(model.chat(request()).unwrap().text().unwrap(), answer);
    let error = model.generate(request()).err().unwrap().to_string();
    assert!(error.contains("use `chat`"), "{error}");
}

#[test]
fn values_follow_their_schemas() {
    let model = stories();
    let schema = r#"{"type": "object", "properties": {"name": {"enum": ["Tom", "Lily"]}, "age": {"type": "integer", "minimum": 1,
        "maximum": 9}}, "required": ["name", "age"], "additionalProperties": false}"#;
    let parsed = serde_json::from_str(schema).unwrap();
    for seed in 0..4 {
        let child: Value = model.json(Request::from("There was a child:").seed(seed), schema).unwrap();
        assert!(jsonschema::is_valid(&parsed, &child), "{child}");
    }
    let cut = model.json::<String>(Request::from("A text:").max_tokens(3), r#"{"type": "string", "minLength": 30}"#);
    assert!(cut.unwrap_err().to_string().contains("cut off"));
    let wrong = model.json::<u8>("A number:", r#"{"const": "text"}"#).unwrap_err().to_string();
    assert!(wrong.contains("not of this type"), "{wrong}");
    assert!(model.json::<u8>("A number:", "{").unwrap_err().to_string().contains("not JSON"));
    assert_eq!(model.generate(Request::from("A:").grammar("root ::= \"bc\"")).unwrap().text().unwrap(), "bc");
    // A model that generates text can also compute an embedding: the mean of the vectors of the text's tokens, as
    // `arenite embed` does.
    let printed: Vec<f32> = serde_json::from_str(&stdout_with(&["embed", "-p", "A text"], b"")).unwrap();
    let vector = model.embed("A text").unwrap();
    assert_eq!(vector.len(), printed.len());
    assert!(vector.iter().zip(&printed).all(|(own, printed)| (own - printed).abs() < 1e-6), "{vector:?} {printed:?}");
}

#[test]
fn documents_are_ranked_as_by_transformers() {
    let directory = committed("tests/fixtures").join("bert_reranker");
    let reference: Value = serde_json::from_slice(&std::fs::read(directory.join("ref.json")).unwrap()).unwrap();
    let model = Loaded::open(&*directory.join("model.gguf"), RunOptions::default()).unwrap();
    for pair in reference["prompts"].as_array().unwrap() {
        let [query, document] = ["query", "document"].map(|name| pair[name].as_str().unwrap());
        let scores = model.rerank(query, &[document, "Another text."]).unwrap();
        assert!((scores[0] - pair["score"].as_f64().unwrap()).abs() < 2e-5, "{scores:?}");
    }
}

#[test]
fn texts_are_embedded_as_by_embed() {
    let file = committed("tests/fixtures/nomic_bert/model.gguf");
    let want: Vec<f32> =
        serde_json::from_str(&stdout_with(&["embed", "-m", path(&file), "-p", "The sea"], b"")).unwrap();
    let model = Loaded::open(&*file, RunOptions::default()).unwrap();
    let vector = model.embed("The sea").unwrap();
    assert!(vector.len() == want.len() && vector.iter().zip(&want).all(|(a, b)| (a - b).abs() < 1e-6));
    assert!(model.generate("The sea").err().unwrap().to_string().contains("no text"));
}

#[test]
fn a_model_that_is_dropped_leaves_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("dropped.gguf");
    std::fs::copy(committed("tests/fixtures/stories.gguf"), &file).unwrap();
    let is_mapped = || std::fs::read_to_string("/proc/self/maps").unwrap_or_default().contains("dropped.gguf");
    for _ in 0..2 {
        let model = Loaded::open(path(&file), RunOptions::default()).unwrap();
        assert!(is_mapped() || !cfg!(target_os = "linux"));
        drop(model);
        assert!(!is_mapped());
    }
    let missing = Loaded::open(Path::new("missing.gguf"), RunOptions::default()).err().unwrap();
    assert!(format!("{missing:#}").contains("missing.gguf"));
}
