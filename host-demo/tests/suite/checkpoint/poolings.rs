//! Poolings of sentence-transformers, and models that have a result for each token.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::checkpoint;
use super::tiny::{write_tensors, write_tiny};
use crate::common::{npy, path, stdout};

/// Writes the modules that sentence-transformers, or ColBERT's library, stores beside a model.
fn write_modules(case: &Value, folder: &Path) {
    let write = |name: &str, value: &Value| fs::write(folder.join(name), value.to_string()).unwrap();
    for name in ["1_Pooling", "1_Dense"] {
        fs::create_dir_all(folder.join(name)).unwrap();
    }
    if case["dense"].is_array() {
        write("modules.json", &json!([{"type": "pylate.models.Dense.Dense", "path": "1_Dense"}]));
        let settings = json!({"in_features": 32, "out_features": 8, "bias": false, "activation_function": "Identity"});
        write("1_Dense/config.json", &settings);
        write_tensors(&json!({ "linear.weight": case["dense"] }), &folder.join("1_Dense/model.safetensors"));
    } else if case["pooling"].is_string() {
        write("1_Pooling/config.json", &json!({ "pooling_mode": case["pooling"] }));
    } else {
        fs::remove_file(folder.join("modules.json")).unwrap();
    }
}

/// `poolings.py` wrote the results.
#[test]
fn poolings_and_results_for_each_token() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out.npy");
    let all: Value = serde_json::from_slice(&fs::read(checkpoint("poolings.json")).unwrap()).unwrap();
    let tokens = all["tokens"].as_array().unwrap().iter().map(Value::to_string).collect::<Vec<_>>().join(",");
    for (number, case) in all["cases"].as_array().unwrap().iter().enumerate() {
        let folder = directory.path().join(format!("model{number}"));
        let model = directory.path().join(format!("model{number}.gguf"));
        fs::create_dir(&folder).unwrap();
        write_tiny(case, &folder);
        write_modules(case, &folder);
        stdout(&["convert", "hf", path(&folder), path(&model)]);
        let mut how = vec!["embed", "-m", path(&model), "--ids", &tokens, "--no-normalize", "--kv", "f32"];
        how.extend(["-o", path(&out)]);
        if case["tokens"].is_u64() {
            how.push("--tokens");
        }
        stdout(&how);
        let (_, values) = npy(&out);
        let want: Vec<f64> = case["result"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect();
        assert_eq!(values.len(), want.len(), "{number}");
        for (got, want) in values.iter().zip(want) {
            // The results in the file have five decimals.
            let error = (f64::from(*got) - want).abs();
            assert!(error < 3e-5 * want.abs().max(1.0), "{}: {got}, not {want}", case["config"]);
        }
    }
}

/// Neighbouring tokens whose labels have the same name form one entity, unless a label begins a new entity.
#[test]
fn a_classifier_of_tokens_finds_entities() {
    let directory = tempfile::tempdir().unwrap();
    let (folder, model) = (directory.path().join("model"), directory.path().join("model.gguf"));
    fs::create_dir(&folder).unwrap();
    let all: Value = serde_json::from_slice(&fs::read(checkpoint("poolings.json")).unwrap()).unwrap();
    let is_meant = |case: &&Value| case["config"]["architectures"][0] == "BertForTokenClassification";
    let case = all["cases"].as_array().unwrap().iter().find(is_meant).unwrap();
    write_tiny(case, &folder);
    write_modules(case, &folder);
    stdout(&["convert", "hf", path(&folder), path(&model)]);
    let text = "the sea is calm and a small fox runs";
    let found = |more: &[&str]| stdout(&[&["classify", "-m", path(&model), "-p", text, "--kv", "f32"], more].concat());
    let entities: Value = serde_json::from_str(&found(&["--json"])).unwrap();
    let entities = entities.as_array().unwrap();
    assert!(!entities.is_empty() && found(&[]).lines().count() == entities.len());
    let words: Vec<&str> = entities.iter().map(|entity| entity["word"].as_str().unwrap()).collect();
    assert!(words.iter().all(|word| text.contains(word)), "{words:?}");
    assert!(entities.iter().all(|entity| entity["entity_group"] == "PER"), "{entities:?}");
}
