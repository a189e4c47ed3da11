//! `arenite rerank`: scores of pairs of texts are compared with Hugging Face transformers.

use crate::common::{committed, error, lines, path, stdout_with};
use crate::serve::Server;
use serde_json::{Value, json};

#[test]
fn rerankers_score_as_transformers_does() {
    for case in ["bert_reranker", "modern_bert_reranker", "qwen3_reranker"] {
        let directory = committed("tests/fixtures").join(case);
        let reference: Value = serde_json::from_slice(&std::fs::read(directory.join("ref.json")).unwrap()).unwrap();
        for pair in reference["prompts"].as_array().unwrap() {
            let (query, document) = (pair["query"].as_str().unwrap(), pair["document"].as_str().unwrap());
            let model = directory.join("model.gguf");
            let args = ["rerank", "-m", path(&model), "-p", query, "--kv", "f32"];
            // If several texts are ranked together, each text gets the score that it gets alone, and the text with the
            // highest score comes first.
            let ranked = lines(&stdout_with(&args, format!("{document}\nAnother text.\n").as_bytes()));
            assert_eq!(ranked.len(), 2);
            let score = |answer: &Value| answer["relevance_score"].as_f64().unwrap();
            assert!(score(&ranked[0]) >= score(&ranked[1]));
            let answer = ranked.iter().find(|answer| answer["index"] == 0).unwrap();
            assert_eq!(answer["document"], document);
            let want = pair["score"].as_f64().unwrap();
            assert!((score(answer) - want).abs() < 2e-5, "{case}: {} instead of {want}", score(answer));
            assert_eq!(lines(&stdout_with(&[&args[..], &["--top", "1"]].concat(), document.as_bytes())).len(), 1);
        }
    }
}

/// A classifier with a single class gives the logistic function of its score as probability. The reference scores are
/// those of transformers.
#[test]
fn classifiers_of_pairs() {
    for case in ["bert_reranker", "modern_bert_reranker"] {
        let directory = committed("tests/fixtures").join(case);
        let reference: Value = serde_json::from_slice(&std::fs::read(directory.join("ref.json")).unwrap()).unwrap();
        let model = directory.join("model.gguf");
        for pair in reference["prompts"].as_array().unwrap() {
            let text = |name: &str| pair[name].as_str().unwrap();
            let classify = |args: &[&str]| -> f64 {
                let args = [&["classify", "-m", path(&model), "--json", "--kv", "f32"], args].concat();
                lines(&stdout_with(&args, b""))[0][0]["score"].as_f64().unwrap()
            };
            let want = 1.0 / (1.0 + (-pair["score"].as_f64().unwrap()).exp());
            let have = classify(&["-p", text("query"), "--pair", text("document")]);
            assert!((have - want).abs() < 1e-5, "{case}: {have} instead of {want}");
            if case == "modern_bert_reranker" {
                assert_eq!(classify(&["--ids", &pair["ids"].to_string().replace(['[', ']'], "")]), have);
            }
        }
    }
}

#[test]
fn other_classifiers_do_not_rank() {
    let model = committed("host-demo/models/faults.gguf");
    let texts = committed("tests/fixtures/README.md");
    let told = error(&["rerank", "-m", path(&model), "-p", "a", "-f", path(&texts)]);
    assert!(told.contains("a classifier with 12 labels (") && told.contains("`arenite classify`"), "{told}");
    let server = Server::start_with(&["-m", path(&model)]);
    for (route, texts) in [("/v1/rerank", "documents"), ("/v2/rerank", "documents"), ("/rerank", "texts")] {
        let body = json!({ "query": "a", texts: ["b"] }).to_string();
        let (status, answer) = server.post(route, body.as_bytes());
        assert!(status == 400 && answer.to_string().contains("no reranker"), "{route}: {answer}");
    }
}
