//! Adapters of PEFT: converted, merged, and refused.

use std::fs;
use std::path::Path;

use arenite::Gguf;
use serde_json::Value;

use super::tiny::{write_tensors, write_tiny};
use super::{checkpoint, converted, fnv};
use crate::common::{error, json, path, stdout};

/// A random LoRA of PEFT 0.21 for own_commands. The file that llama.cpp's convert_lora_to_gguf.py writes has the same
/// tensors, and the merged model generates the same tokens as transformers with the merged adapter.
#[test]
fn adapters_are_converted_and_merged() {
    let directory = tempfile::tempdir().unwrap();
    let model = converted("own_commands", &[], directory.path());
    let (adapter, merged) = (directory.path().join("adapter.gguf"), directory.path().join("merged.gguf"));
    let base = checkpoint("own_commands");
    stdout(&["convert", "lora", path(&checkpoint("lora")), path(&adapter), "--base", path(&base)]);
    let bytes = fs::read(&adapter).unwrap();
    let listing = fs::read_to_string(checkpoint("lora.txt")).unwrap();
    let gguf = Gguf::parse(&bytes).unwrap();
    for line in listing.lines() {
        let [_, _, name, _, _, hash] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        assert_eq!(fnv(gguf.tensor(name).unwrap_or_else(|| panic!("{name}")).data), hash, "{name}");
    }
    assert_eq!(gguf.tensors().count(), listing.lines().count());
    stdout(&["merge", path(&model), path(&adapter), path(&merged)]);
    let ids = |model: &Path| {
        json(&[
            "generate",
            "-m",
            path(model),
            "--ids",
            "340,220,47,346,70,388,76",
            "-n",
            "8",
            "--temp",
            "0",
            "--kv",
            "f32",
            "--format",
            "ids",
        ])
    };
    assert_eq!(ids(&merged), serde_json::json!([456, 268, 259, 317, 262, 282, 259, 288]));
    // The adapter at run time, as a whole and as two halves, gives the same logits as the merged model.
    let with = |lora: &[&str]| {
        let out = directory.path().join("logits.npy");
        let loras = lora.iter().flat_map(|text| ["--lora", text]).collect::<Vec<_>>();
        let args = ["logits", "--ids", "340,220,47,346", "--kv", "f32", "-o", path(&out)];
        let model = if lora == ["merged"] { path(&merged) } else { path(&model) };
        stdout(&[&args[..], &["-m", model], if lora == ["merged"] { &[] } else { &loras }].concat());
        crate::common::npy(&out).1
    };
    let near = |a: &[f32], b: &[f32]| {
        let scale = b.iter().fold(0.0f32, |most, x| most.max(x.abs()));
        a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 1e-5 * scale)
    };
    let (plain, expected) = (with(&[]), with(&["merged"]));
    assert!(!near(&plain, &expected));
    assert!(near(&with(&[path(&adapter)]), &expected));
    let half = format!("{}:0.5", path(&adapter));
    assert!(near(&with(&[&half, &half]), &expected));
    assert_eq!(with(&[&format!("{}:0", path(&adapter))]), plain);
    // If the adapter is subtracted from the merged model, the result generates the same tokens as the original model.
    let back = directory.path().join("back.gguf");
    stdout(&["merge", path(&merged), &format!("{}:-1", path(&adapter)), path(&back)]);
    assert_eq!(ids(&back), ids(&model));
    assert!(error(&["merge", path(&model), path(&model), path(&back)]).contains("adapter"));
}

/// Adapters of PEFT with many settings give the same logits as in transformers, both at run time and merged.
/// `adapters.py` wrote the expected logits.
#[test]
fn adapters_of_many_kinds_are_converted() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let [base, lora, model, adapter, merged, out] =
        ["base", "lora", "model.gguf", "lora.gguf", "merged.gguf", "out.npy"].map(at);
    [&base, &lora].into_iter().for_each(|folder| fs::create_dir(folder).unwrap());
    let all: Value = serde_json::from_slice(&fs::read(checkpoint("adapters.json")).unwrap()).unwrap();
    let tokens = all["tokens"].as_array().unwrap().iter().map(Value::to_string).collect::<Vec<_>>().join(",");
    for case in all["cases"].as_array().unwrap() {
        write_tiny(case, &base);
        fs::write(lora.join("adapter_config.json"), case["lora"].to_string()).unwrap();
        write_tensors(&case["pairs"], &lora.join("adapter_model.safetensors"));
        stdout(&["convert", "hf", path(&base), path(&model)]);
        stdout(&["convert", "lora", path(&lora), path(&adapter), "--base", path(&base)]);
        stdout(&["merge", path(&model), path(&adapter), path(&merged)]);
        for run in [&["-m", path(&model), "--lora", path(&adapter)][..], &["-m", path(&merged)]] {
            let results = if case["lora"]["task_type"] == "SEQ_CLS" {
                let mut classes = json(&[&["classify", "--ids", &tokens, "--kv", "f32", "--json"], run].concat());
                let classes = classes.as_array_mut().unwrap();
                classes.sort_by_key(|class| class["label"].to_string());
                classes.iter().map(|class| class["score"].as_f64().unwrap()).collect()
            } else {
                stdout(&[&["logits", "--ids", &tokens, "--kv", "f32", "-o", path(&out)], run].concat());
                crate::common::npy(&out).1.into_iter().map(f64::from).collect::<Vec<_>>()
            };
            for (got, want) in results.iter().zip(case["result"].as_array().unwrap()) {
                let want = want.as_f64().unwrap();
                let near = (got - want).abs() < 3e-5 * want.abs().max(1.0);
                assert!(near, "{got}, not {want}: {} {} {run:?}", case["config"]["model_type"], case["lora"]);
            }
        }
    }
}

/// With `save_embedding_layers`, PEFT stores a saved module as `modules_to_save` and under the model's name, with the
/// untrained values beside them as `original_module`. The adapter is the same as without this setting, and
/// `adapters.json` has its logits.
#[test]
fn saved_modules_may_have_three_names() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let [base, lora, one, three] = ["base", "lora", "one.gguf", "three.gguf"].map(at);
    [&base, &lora].into_iter().for_each(|folder| fs::create_dir(folder).unwrap());
    let all: Value = serde_json::from_slice(&fs::read(checkpoint("adapters.json")).unwrap()).unwrap();
    let mut cases = all["cases"].as_array().unwrap().iter();
    let case = cases.find(|case| case["lora"]["modules_to_save"].is_array()).unwrap();
    write_tiny(case, &base);
    fs::write(lora.join("adapter_config.json"), case["lora"].to_string()).unwrap();
    let file = lora.join("adapter_model.safetensors");
    write_tensors(&case["pairs"], &file);
    let convert = |to: &Path| stdout(&["convert", "lora", path(&lora), path(to), "--base", path(&base)]);
    convert(&one);
    let written = fs::read(&file).unwrap();
    let (size, rest) = written.split_first_chunk::<8>().unwrap();
    let (header, data) = rest.split_at(u64::from_le_bytes(*size) as usize);
    let mut header: serde_json::Map<String, Value> = serde_json::from_slice(header).unwrap();
    let mut data = data.to_vec();
    for module in ["lm_head", "model.embed_tokens"] {
        let name = |form: &str| format!("base_model.model.{module}.{form}weight");
        let plain = header[&name("")].clone();
        let [start, end] = [0, 1].map(|at| plain["data_offsets"][at].as_u64().unwrap() as usize);
        let own = data[start..end].to_vec();
        let frozen = super::tiny::weights(module, &[own.len() / 4]);
        for (form, values) in [("modules_to_save.", own), ("original_module.", frozen)] {
            let mut tensor = plain.clone();
            tensor["data_offsets"] = serde_json::json!([data.len(), data.len() + values.len()]);
            header.insert(name(form), tensor);
            data.extend(values);
        }
    }
    let header = Value::from(header).to_string().into_bytes();
    fs::write(&file, [&(header.len() as u64).to_le_bytes()[..], &header, &data].concat()).unwrap();
    convert(&three);
    assert!(fs::read(&one).unwrap() == fs::read(&three).unwrap());
    // Other values under the model's name are another adapter.
    let start = serde_json::from_slice::<Value>(&header).unwrap()["base_model.model.lm_head.weight"]["data_offsets"][0]
        .as_u64()
        .unwrap();
    data[start as usize] ^= 1;
    fs::write(&file, [&(header.len() as u64).to_le_bytes()[..], &header, &data].concat()).unwrap();
    let message = error(&["convert", "lora", path(&lora), path(&three), "--base", path(&base)]);
    assert!(message.contains("lm_head.weight differ"), "{message}");
}

/// An adapter is refused if it is incomplete, or if its effect is not the addition of a product of two matrices to a
/// matrix.
#[test]
fn other_adapters_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let (lora, output) = (directory.path().join("lora"), directory.path().join("out.gguf"));
    fs::create_dir(&lora).unwrap();
    let read = |name: &str| fs::read(checkpoint("lora").join(name)).unwrap();
    let plain: Value = serde_json::from_slice(&read("adapter_config.json")).unwrap();
    let weights = read("adapter_model.safetensors");
    let refused = |settings: &Value, weights: &[u8]| {
        fs::write(lora.join("adapter_config.json"), settings.to_string()).unwrap();
        fs::write(lora.join("adapter_model.safetensors"), weights).unwrap();
        error(&["convert", "lora", path(&lora), path(&output), "--base", path(&checkpoint("own_commands"))])
    };
    for (name, value) in [
        ("alora_invocation_tokens", serde_json::json!([1, 2])),
        ("layer_replication", serde_json::json!([[0, 2], [1, 3]])),
        ("init_lora_weights", "pissa_niter_4".into()),
        ("use_qalora", true.into()),
        ("use_dora", true.into()),
        ("lora_bias", true.into()),
        ("modules_to_save", serde_json::json!(["lm_head"])),
        ("bias", "some".into()),
        ("trainable_token_indices", serde_json::json!([5])),
        ("alpha_pattern", serde_json::json!({ "(": 8 })),
    ] {
        let mut settings = plain.clone();
        settings[name] = value;
        let message = refused(&settings, &weights);
        assert!(message.contains(name), "{message}");
    }
    let file = lora.join("other.safetensors");
    let name = |half: &str| format!("base_model.model.model.layers.0.self_attn.q_proj.{half}.weight");
    let of = |halves: &[(&str, [usize; 2])]| {
        let shapes = halves.iter().map(|(half, shape)| (name(half), serde_json::json!(shape)));
        write_tensors(&shapes.collect::<serde_json::Map<_, _>>().into(), &file);
        refused(&plain, &fs::read(&file).unwrap())
    };
    let (a, b) = (("lora_A", [4, 64]), ("lora_B", [64, 4]));
    for (halves, says) in [
        (&[a][..], "lora_B.weight is missing"),
        (&[b], "lora_A.weight is missing"),
        (&[a, b, ("lora_M", [1, 1])], "is not part of a LoRA"),
        (&[a, ("lora_B", [64, 8])], "different ranks"),
        (&[], "no tensors"),
    ] {
        let message = of(halves);
        assert!(message.contains(says), "{message}");
    }
    let mut broken = weights.clone();
    let end = broken.len();
    broken[end - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
    let message = refused(&plain, &broken);
    assert!(message.contains("is not finite"), "{message}");
}
