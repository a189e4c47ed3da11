//! Tiny checkpoints from `tiny.json` and `adapters.json`. Their weights are computed from the names of the tensors.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::checkpoint;

/// Computes the values of a tensor from its name. `tiny.py`, which made the expected results, computes the same values.
pub fn weights(name: &str, shape: &[usize]) -> Vec<u8> {
    let fnv = |state: u64, byte: u8| (state ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    let mut state = name.bytes().fold(0xcbf2_9ce4_8422_2325, fnv);
    let is_factor = shape.len() == 1 && (name.ends_with("weight") || name.ends_with("scale"));
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 48) as f32 / 131_072.0 - 0.25 + f32::from(is_factor)
    };
    (0..shape.iter().product()).flat_map(|_: usize| next().to_le_bytes()).collect()
}

/// Writes a file of tensors with the given shapes. Their values are computed from their names.
pub fn write_tensors(shapes: &Value, path: &Path) {
    let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
    for (name, shape) in shapes.as_object().unwrap() {
        let shape: Vec<usize> = shape.as_array().unwrap().iter().map(|n| n.as_u64().unwrap() as usize).collect();
        let start = data.len();
        data.extend(weights(name, &shape));
        let tensor = serde_json::json!({ "dtype": "F32", "shape": shape, "data_offsets": [start, data.len()] });
        header.insert(name.clone(), tensor);
    }
    let header = Value::from(header).to_string().into_bytes();
    fs::write(path, [&(header.len() as u64).to_le_bytes()[..], &header, &data].concat()).unwrap();
}

/// Writes a checkpoint of `tiny.json` with the tokenizer of own_commands. Encoders get mean pooling.
pub fn write_tiny(case: &Value, folder: &Path) {
    write_tensors(&case["tensors"], &folder.join("model.safetensors"));
    fs::write(folder.join("config.json"), case["config"].to_string()).unwrap();
    for name in ["tokenizer.json", "tokenizer_config.json"] {
        fs::copy(checkpoint("own_commands").join(name), folder.join(name)).unwrap();
    }
    let modules = r#"[{"type": "models.Pooling", "path": "1_Pooling"}]"#;
    fs::write(folder.join("modules.json"), modules).unwrap();
}

/// A case of `tiny.json`.
pub fn tiny(all: &Value, class: &str) -> Value {
    let mut cases = all["cases"].as_array().unwrap().iter();
    cases.find(|case| case["config"]["architectures"][0] == class).unwrap().clone()
}
