//! `arenite sample` is compared with llama.cpp's sampling steps: see `tests/fixtures/README.md`.

use serde_json::{Value, json};

use crate::common::{arenite, stdout};

/// Runs the command with the logits of a row.
fn sample(row: usize, history: &Value, more: &[&str]) -> Value {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/samplers");
    let logits = std::fs::read(format!("{folder}/logits.bin")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("logits.npy");
    let head = "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 200), }";
    let mut file = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
    file.extend(format!("{head:<117}\n").bytes());
    file.extend(&logits[800 * row..800 * (row + 1)]);
    std::fs::write(&path, file).unwrap();
    let history =
        history.as_array().map_or(String::new(), |ids| ids.iter().map(Value::to_string).collect::<Vec<_>>().join(","));
    let (model, path) = (format!("{folder}/vocab.gguf"), path.to_string_lossy().into_owned());
    let args = ["sample", "-m", &model, "--logits", &path, "--history", &history, "--json"];
    serde_json::from_str(&stdout(&[&args[..], more].concat())).unwrap()
}

#[test]
fn every_case_of_the_fixture() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/samplers/ref.json");
    let json: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    for case in json["cases"].as_array().unwrap() {
        let first = case["steps"].get(0).unwrap_or(case);
        let mut given = case["params"].clone();
        given["sampler"] = case["sampler"].clone();
        for key in ["mu", "weighted_sum", "total_weight"] {
            given[key] = first.get(key).cloned().unwrap_or_default();
        }
        let row = first["logits_row"].as_u64().unwrap() as usize;
        let left = sample(row, &case["history"], &["--case", &given.to_string()]);
        let all: Vec<Value> = (0..200).map(Value::from).collect();
        let wanted = first["ids"].as_array().unwrap_or(&all).iter().zip(first["probs"].as_array().unwrap());
        assert_eq!(left["ids"].as_array().unwrap().len(), wanted.len(), "{}", case["name"]);
        for (id, prob) in wanted {
            let at = left["ids"].as_array().unwrap().iter().position(|other| other == id).unwrap();
            let off = left["probs"][at].as_f64().unwrap() - prob.as_f64().unwrap();
            assert!(off.abs() <= 5e-6, "{}: token {id} is off by {off}", case["name"]);
        }
    }
}

#[test]
fn the_options_are_those_of_generate() {
    let left = |more: &[&str]| sample(0, &Value::Null, more);
    assert_eq!(left(&["--temp", "0"])["probs"], json!([1.0]));
    assert_eq!(left(&["--top-k", "3", "--top-p", "1", "--min-p", "0"])["ids"].as_array().unwrap().len(), 3);
    let output = arenite(&["sample", "--logits", "no.npy", "--case", "{\"sampler\": \"abacus\"}"]);
    assert_eq!(output.status.code(), Some(1));
}
