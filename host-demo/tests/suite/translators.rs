//! Converts encoder-decoders and compares their output with transformers and torch in fp32. One case is in
//! `tests/fixtures`, and all other cases are in the directory that `ARENITE_FIXTURES` names.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::common::fixtures;

/// As in `tests/suite/encoders.rs`: only sums are rounded.
const TOLERANCE: f64 = 2e-5;

/// Runs the command line and returns its standard output.
fn arenite(args: &[&str]) -> Vec<u8> {
    let output = Command::new(env!("CARGO_BIN_EXE_arenite")).args(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn case(name: &str) -> Option<(PathBuf, Value)> {
    let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures").join(name);
    let directory = if committed.exists() { committed } else { fixtures(name)? };
    let text = std::fs::read_to_string(directory.join("ref.json")).unwrap();
    Some((directory, serde_json::from_str(&text).unwrap()))
}

fn array(directory: &Path, at: &Value) -> Vec<f32> {
    let bytes = std::fs::read(directory.join(at["file"].as_str().unwrap())).unwrap();
    let offset = at["offset"].as_u64().unwrap() as usize;
    let len: u64 = at["shape"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).product();
    floats(&bytes[offset..offset + 4 * len as usize])
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
}

/// The values of a `.npy` file.
fn npy(path: &Path) -> Vec<f32> {
    let bytes = std::fs::read(path).unwrap();
    floats(&bytes[10 + u16::from_le_bytes([bytes[8], bytes[9]]) as usize..])
}

fn relative_error(got: &[f32], want: &[f32]) -> f64 {
    assert_eq!(got.len(), want.len());
    let norm = |x: &mut dyn Iterator<Item = f64>| x.map(|v| v * v).sum::<f64>().sqrt();
    let difference = norm(&mut got.iter().zip(want).map(|(g, w)| f64::from(*g) - f64::from(*w)));
    difference / norm(&mut want.iter().map(|w| f64::from(*w)))
}

fn list(ids: &Value) -> String {
    ids.as_array().unwrap().iter().map(|id| id.to_string()).collect::<Vec<_>>().join(",")
}

#[test]
fn converted_models_equal_their_originals() {
    for name in ["english_hindi", "marian_relu", "marian_swish", "vanilla_prenorm", "vanilla_postnorm"] {
        let Some((directory, json)) = case(name) else { continue };
        let scratch = tempfile::tempdir().unwrap();
        let path = |name: &str| scratch.path().join(name).display().to_string();
        let model = path("model.gguf");
        arenite(&["convert", "seq2seq", directory.to_str().unwrap(), &model]);
        let mut worst = 0.0f64;
        for (i, prompt) in json["prompts"].as_array().unwrap().iter().enumerate() {
            let (ids, decoder) = (list(&prompt["ids"]), list(&prompt["decoder_ids"]));
            let logits = path("logits.npy");
            let common = ["-m", &model, "--kv", "f32"];
            let args = ["logits", "--encoder-ids", &ids, "--ids", &decoder, "--all", "-b", "5", "-o", &logits];
            arenite(&[&args[..], &common].concat());
            let (got, want) = (npy(Path::new(&logits)), array(&directory, &prompt["logits"]));
            let rows = prompt["decoder_ids"].as_array().unwrap().len();
            let vocab = want.len() / rows;
            for (position, (got, want)) in got.chunks(vocab).zip(want.chunks(vocab)).enumerate() {
                let error = relative_error(got, want);
                assert!(error <= TOLERANCE, "{name} prompt {i} position {position}: {error:e}");
                worst = worst.max(error);
            }
            // Greedy decoding, token by token.
            let greedy = prompt["greedy"].as_array().unwrap();
            let length = greedy.len().to_string();
            let args = ["translate", "--ids", &ids, "--beams", "1", "-n", &length, "--ignore-eos", "--format", "ids"];
            let got: Value = serde_json::from_slice(&arenite(&[&args[..], &common].concat())).unwrap();
            assert_eq!(got, prompt["greedy"], "{name} prompt {i}");
            // The tokenizer gives the ids of the case.
            let text = prompt["text"].as_str().unwrap();
            let got: Value =
                serde_json::from_slice(&arenite(&["tokenize", "-m", &model, "-p", text, "--add-special", "--json"]))
                    .unwrap();
            assert_eq!(got, prompt["ids"], "{name} prompt {i}");
        }
        println!("{name}: {worst:.1e}");
    }
}

/// `marian_relu` with 2 heads in the encoder and 8 in the decoder; the expected values come from
/// `tests/fixtures/marian_heads.py`.
#[test]
fn encoder_and_decoder_with_different_heads() {
    let Some((directory, _)) = case("marian_relu") else { return };
    let scratch = tempfile::tempdir().unwrap();
    for name in ["model.safetensors", "source.spm", "target.spm", "vocab.json", "tokenizer_config.json"] {
        std::fs::copy(directory.join(name), scratch.path().join(name)).unwrap();
    }
    let mut config: Value = serde_json::from_slice(&std::fs::read(directory.join("config.json")).unwrap()).unwrap();
    config["encoder_attention_heads"] = 2.into();
    config["decoder_attention_heads"] = 8.into();
    std::fs::write(scratch.path().join("config.json"), config.to_string()).unwrap();
    let path = |name: &str| scratch.path().join(name).display().to_string();
    let (model, logits) = (path("model.gguf"), path("logits.npy"));
    arenite(&["convert", "seq2seq", scratch.path().to_str().unwrap(), &model]);
    let reference = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/marian_heads.json");
    let json: Value = serde_json::from_slice(&std::fs::read(reference).unwrap()).unwrap();
    for prompt in json["prompts"].as_array().unwrap() {
        let (ids, decoder) = (list(&prompt["ids"]), list(&prompt["decoder_ids"]));
        let want: Vec<f32> = prompt["logits"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap() as f32).collect();
        for (kv, tolerance) in [("f32", TOLERANCE), ("f16", 1e-3), ("q8_0", 2e-2)] {
            arenite(&["logits", "-m", &model, "--encoder-ids", &ids, "--ids", &decoder, "--kv", kv, "-o", &logits]);
            let error = relative_error(&npy(Path::new(&logits)), &want);
            assert!(error <= tolerance, "{kv}: {error:e}");
        }
    }
}

#[test]
fn what_cannot_be_converted_is_said_in_one_line() {
    let scratch = tempfile::tempdir().unwrap();
    let output = scratch.path().join("out.gguf");
    let run = || {
        let output = Command::new(env!("CARGO_BIN_EXE_arenite"))
            .args(["convert", "seq2seq"])
            .args([scratch.path(), &output])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1));
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(error.trim_end().lines().count(), 1, "{error}");
        error
    };
    assert!(run().contains("model.safetensors"));
    std::fs::write(scratch.path().join("model.safetensors"), b"\x02\0\0\0\0\0\0\0{}").unwrap();
    assert!(run().contains("config.json"));
    std::fs::write(scratch.path().join("config.json"), b"{}").unwrap();
    assert!(run().contains("try `arenite convert hf`"));
    std::fs::write(scratch.path().join("config.json"), br#"{"model_type": "marian"}"#).unwrap();
    assert!(run().contains("embed_tokens"));
    std::fs::write(scratch.path().join("model.safetensors"), b"\xff\0\0\0\0\0\0\0{}").unwrap();
    assert!(run().contains("damaged"));
    assert!(!output.exists());
}

#[test]
fn the_built_in_translator_speaks_hindi() {
    for beams in ["1", "4"] {
        let hindi = arenite(&["translate", "-p", "I love my mother.", "--beams", beams]);
        assert_eq!(String::from_utf8(hindi).unwrap(), "मैं अपनी माँ से प्यार करता हूँ।\n");
    }
}

#[test]
fn matrices_become_q8_0_and_texts_of_the_config_keys() {
    let (directory, json) = case("english_hindi").unwrap();
    let scratch = tempfile::tempdir().unwrap();
    for name in ["model.safetensors", "tokenizer.json"] {
        std::fs::copy(directory.join(name), scratch.path().join(name)).unwrap();
    }
    let text = std::fs::read_to_string(directory.join("config.json")).unwrap();
    let mut config: Value = serde_json::from_str(&text).unwrap();
    config["general"] = serde_json::json!({ "license": "none" });
    std::fs::write(scratch.path().join("config.json"), config.to_string()).unwrap();
    let path = |name: &str| scratch.path().join(name).display().to_string();
    let (model, logits) = (path("model.gguf"), path("logits.npy"));
    arenite(&["convert", "seq2seq", &path(""), &model, "--type", "q8_0"]);

    let bytes = std::fs::read(&model).unwrap();
    let gguf = arenite::Gguf::parse(&bytes).unwrap();
    assert_eq!(gguf.str("general", "license"), Ok(Some(&b"none"[..])));
    let is_q8_0 = |tensor: &arenite::gguf::Tensor<'_>| tensor.kind == arenite::quant::TensorType::Q8_0;
    assert!(gguf.tensors().all(|tensor| is_q8_0(&tensor) == (tensor.dims[1] > 1)));

    let prompt = &json["prompts"][0];
    let (ids, decoder) = (list(&prompt["ids"]), list(&prompt["decoder_ids"]));
    arenite(&["logits", "--encoder-ids", &ids, "--ids", &decoder, "--all", "-o", &logits, "-m", &model]);
    let error = relative_error(&npy(Path::new(&logits)), &array(&directory, &prompt["logits"]));
    assert!(error < 0.05, "{error}");
}
