//! Checkpoints in the form of Meta and Mistral. The logits come from `native.py`, which computes the models in f64.

use std::fs;

use serde_json::{Value, json};

use super::checkpoint;
use super::tiny::write_tensors;
use crate::common::{arenite, error, npy, path, stdout};

#[test]
fn params_json_is_read() {
    let all: Value = serde_json::from_slice(&fs::read(checkpoint("native.json")).unwrap()).unwrap();
    let ids = all["tokens"].as_array().unwrap().iter().map(Value::to_string).collect::<Vec<_>>().join(",");
    for case in all["cases"].as_array().unwrap() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let [folder, model, out] = ["model", "model.gguf", "logits.npy"].map(at);
        fs::create_dir(&folder).unwrap();
        write_tensors(&case["tensors"], &folder.join("consolidated.safetensors"));
        fs::copy(checkpoint("own_commands").join("tokenizer.json"), folder.join("tokenizer.json")).unwrap();
        let params = |params: &Value| fs::write(folder.join("params.json"), params.to_string()).unwrap();
        params(&case["params"]);
        let ran = arenite(&["convert", "hf", path(&folder), path(&model)]);
        let said = String::from_utf8_lossy(&ran.stderr);
        let has_length = case["params"]["max_seq_len"].is_u64();
        assert!(ran.status.success() && said.contains("how long a context may be") != has_length, "{said}");
        stdout(&["logits", "-m", path(&model), "--ids", &ids, "--kv", "f32", "-o", path(&out)]);
        for (got, want) in npy(&out).1.iter().zip(case["logits"].as_array().unwrap()) {
            assert!((f64::from(*got) - want.as_f64().unwrap()).abs() < 1e-5, "{}: {got} {want}", case["name"]);
        }
        for (name, value) in
            [("yarn", json!({"factor": 16})), ("vision_encoder", json!({})), ("use_biases", json!(true))]
        {
            let mut other = case["params"].clone();
            other[name] = value;
            params(&other);
            let message = error(&["convert", "hf", path(&folder), path(&model)]);
            assert!(message.contains("params.json has") && message.contains(name), "{message}");
        }
    }
}
