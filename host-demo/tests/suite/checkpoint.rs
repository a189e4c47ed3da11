//! Converts checkpoints of other programs, and compares tensors and metadata with llama.cpp's converter, and generated
//! tokens with transformers.

mod decisions;
mod lora;
mod native;
mod next;
mod poolings;
mod settings;
mod sweep;
mod tiny;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use arenite::Gguf;
use arenite::gguf::{Array, Value as Meta, ValueType};
use serde_json::Value;

use self::tiny::{tiny, write_tiny};
use crate::common::{arenite, committed, error, json, path, stdout};

/// Path of a checkpoint in the repository.
fn checkpoint(name: &str) -> PathBuf {
    committed("tests/fixtures/convert").join(name)
}

/// Converts a checkpoint with additional arguments.
fn converted(name: &str, more: &[&str], directory: &Path) -> PathBuf {
    let output = directory.join(format!("{name}.gguf"));
    stdout(&[&["convert", "hf", path(&checkpoint(name)), path(&output)], more].concat());
    output
}

/// Copies a checkpoint into `directory`, so that it can be changed. Returns the folder of the copy and its config.
fn copied(name: &str, directory: &Path) -> (PathBuf, Value) {
    let to = directory.join("model");
    fs::create_dir_all(&to).unwrap();
    for entry in fs::read_dir(checkpoint(name)).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
    let config = serde_json::from_slice(&fs::read(to.join("config.json")).unwrap()).unwrap();
    (to, config)
}

/// FNV-1a, as in `listing.py`.
fn fnv(bytes: &[u8]) -> String {
    let hash = bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    format!("{hash:016x}")
}

fn array(array: &Array<'_>) -> Vec<Value> {
    let mut strings = array.strings();
    (0..array.len())
        .map(|i| match array.element() {
            ValueType::Str => String::from_utf8_lossy(strings.next_string().unwrap()).into(),
            _ => value(&array.get(i).unwrap()),
        })
        .collect()
}

fn value(meta: &Meta<'_>) -> Value {
    match meta {
        Meta::Str(text) => String::from_utf8_lossy(text).into(),
        Meta::Bool(value) => (*value).into(),
        Meta::U32(value) => (*value).into(),
        Meta::I32(value) => (*value).into(),
        Meta::U64(value) => (*value).into(),
        Meta::F32(value) => f64::from(*value).into(),
        Meta::Array(values) => array(values).into(),
        other => panic!("{other:?}"),
    }
}

/// Formats a value as Python prints a list.
fn python(value: &Value) -> String {
    match value {
        Value::Array(all) => format!("[{}]", all.iter().map(python).collect::<Vec<_>>().join(", ")),
        other => other.to_string(),
    }
}

#[test]
fn tensors_and_metadata_are_llama_cpps() {
    let directory = tempfile::tempdir().unwrap();
    let listing = fs::read_to_string(checkpoint("listing.txt")).unwrap();
    for name in ["own_commands", "starcoder2", "qwen3_yarn"] {
        let bytes = fs::read(converted(name, &[], directory.path())).unwrap();
        let gguf = Gguf::parse(&bytes).unwrap();
        let (mut keys, mut tensors) = (0, 0);
        for line in listing.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' ')) {
            if let Some((key, want)) = line.strip_prefix("key ").and_then(|rest| rest.split_once(' ')) {
                let found = gguf.get(key).unwrap_or_else(|| panic!("{name}: {key}"));
                let found = value(&found);
                match serde_json::from_str::<Value>(want) {
                    Ok(want) => assert_eq!(found, want, "{name}: {key}"),
                    Err(_) => assert_eq!(fnv(python(&found).as_bytes()), want, "{name}: {key}"),
                }
                keys += 1;
            } else if let Some(rest) = line.strip_prefix("tensor ") {
                let [tensor, kind, sizes, hash] = rest.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
                let found = gguf.tensor(tensor).unwrap_or_else(|| panic!("{name}: {tensor}"));
                let dims: Vec<String> =
                    found.dims.iter().take(found.dim_count as usize).map(ToString::to_string).collect();
                let found = [format!("{:?}", found.kind), dims.join("x"), fnv(found.data)];
                assert_eq!(found, [kind, sizes, hash], "{name}: {tensor}");
                tensors += 1;
            }
        }
        // Keys that llama.cpp does not write.
        let is_added = |key: &str| key == arenite::gguf::HASHES_KEY || key == "tokenizer.ggml.normalizer.steps";
        assert_eq!(gguf.get("tokenizer.ggml.normalizer.steps").is_some(), name == "qwen3_yarn");
        let own = gguf.keys().filter(|(key, _)| !is_added(key)).count();
        assert_eq!((keys, tensors), (own, gguf.tensors().count()), "{name}");
    }
}

/// The keys of names, sizes and recommended sampling come from llama.cpp's converter (in llama-cpp-python 0.3.36).
/// Lists and texts of several lines are left out, because Arenite does not write them.
#[test]
fn general_keys_are_llama_cpps() {
    let directory = tempfile::tempdir().unwrap();
    let output = directory.path().join("out.gguf");
    // The cases: the name of the model's folder, its README.md, the name in its config, its generation_config.json, and
    // the keys that the converter should write.
    for (name, card, stated, sampling, want) in [
        (
            "Own-Commands-0.2M-Instruct-v1.5",
            "",
            None,
            serde_json::json!({}),
            serde_json::json!({
                "name": "Own Commands 0.2M Instruct v1.5", "version": "v1.5", "finetune": "Instruct",
                "basename": "Own-Commands", "size_label": "0.2M",
            }),
        ),
        (
            "model",
            "---\nlicense: apache-2.0\nmodel_name: \"Own commands\"\nmodel_creator: An Author\nversion: '2.0'\n\
             license_name: mine\nlicense_link: https://example.com/licence # ours\ntags:\n- text\nlanguage: [en]\n\
             finetune: null\ndescription: >\n  several\n  lines\n---\nname: not this\n",
            None,
            serde_json::json!({
                "top_k": 20, "top_p": 0.8, "temperature": 0.6, "repetition_penalty": 1.05, "do_sample": true, "min_p": 0,
                "max_new_tokens": 5,
            }),
            serde_json::json!({
                "sampling.top_k": 20, "sampling.top_p": 0.8f32, "sampling.min_p": 0.0, "sampling.temp": 0.6f32,
                "sampling.penalty_repeat": 1.05f32, "name": "Own commands", "author": "An Author", "version": "2.0",
                "size_label": "181K", "license": "apache-2.0", "license.name": "mine",
                "license.link": "https://example.com/licence",
            }),
        ),
        (
            "a-b",
            "name: no front matter\n",
            Some("Owner/Base-1.5-200K-chat"),
            serde_json::json!({
                "mirostat": 2, "mirostat_tau": 5, "mirostat_eta": 0.1, "penalty_last_n": 64, "penalty_repeat": 1.5,
                "repetition_penalty": 1.1, "xtc_probability": 0.5, "xtc_threshold": 0.25,
            }),
            serde_json::json!({
                "sampling.xtc_probability": 0.5, "sampling.xtc_threshold": 0.25, "sampling.penalty_last_n": 64,
                "sampling.penalty_repeat": 1.5, "sampling.mirostat": 2, "sampling.mirostat_tau": 5.0,
                "sampling.mirostat_eta": 0.1f32, "name": "Base 1.5 200K Chat", "organization": "Owner",
                "finetune": "chat", "basename": "Base-1.5", "size_label": "200K",
            }),
        ),
        (
            "dir-7B",
            "---\nbasename: theirs\nsize_label: 9B\norganization: Org\nauthor: Me\nmodel_type: llama\n---\n",
            Some("/a/path/of/three"),
            serde_json::json!({}),
            serde_json::json!({
                "name": "Dir 7B", "author": "Me", "organization": "Org", "finetune": "7b", "basename": "theirs",
                "size_label": "9B",
            }),
        ),
        (
            "plain",
            "---\nmodel_type: mine\nmodel_description: 'quoted: text'\n---\n",
            Some("A name in words"),
            serde_json::json!({}),
            serde_json::json!({
                "name": "A Name In Words", "basename": "mine", "description": "quoted: text", "size_label": "181K",
            }),
        ),
    ] {
        let (copy, mut config) = copied("own_commands", directory.path());
        config["_name_or_path"] = stated.into();
        fs::write(copy.join("config.json"), config.to_string()).unwrap();
        fs::write(copy.join("README.md"), card).unwrap();
        fs::write(copy.join("generation_config.json"), sampling.to_string()).unwrap();
        let from = directory.path().join(name);
        fs::rename(&copy, &from).unwrap();
        stdout(&["convert", "hf", path(&from), path(&output)]);
        let bytes = fs::read(&output).unwrap();
        let gguf = Gguf::parse(&bytes).unwrap();
        let others = ["architecture", "type", "file_type", "quantization_version"];
        let own = gguf.keys().filter_map(|(key, found)| Some((key.strip_prefix("general.")?, value(&found))));
        let found: serde_json::Map<_, _> =
            own.filter(|(key, _)| !others.contains(key)).map(|(key, value)| (key.to_owned(), value)).collect();
        assert_eq!(Value::from(found), want, "{name}");
        fs::remove_dir_all(&from).unwrap();
    }
}

/// Converted models generate the same tokens as transformers 5.24 with greedy decoding.
#[test]
fn the_tokens_are_those_of_transformers() {
    let directory = tempfile::tempdir().unwrap();
    let file = converted("own_commands", &[], directory.path());
    let prompt = "turn on the kitchen light ->";
    let text = stdout(&["generate", "-m", path(&file), "-p", prompt, "-n", "40", "--temp", "0", "--kv", "f32"]);
    assert_eq!(
        text.trim(),
        "turn on the kitchen light -> {\"device\":\"light\",\"room\":\"kitchen\",\"state\":\"off\"}"
    );
    for (name, ids, greedy) in [
        ("qwen3_yarn", "340,220,47,346,70,388,76,356,372,266,67,413,327,339,220,43", None),
        (
            "starcoder2",
            "340,220,47,346,70,389,76,357,373,266,67,414,326,339,220,43,72,289,77,272,290,284,266,68,309,444,11,357,79,88,322,\
             314,332,72,69,88,13",
            Some("[310,75,292,360,261,280,86,280,86,280,323,101]"),
        ),
    ] {
        let file = converted(name, &[], directory.path());
        let args = [
            "generate",
            "-m",
            path(&file),
            "--ids",
            ids,
            "-n",
            "12",
            "--temp",
            "0",
            "--kv",
            "f32",
            "--format",
            "ids",
            "--ignore-eos",
        ];
        let found = stdout(&args).replace(' ', "");
        assert!(greedy.is_none_or(|greedy| found.trim() == greedy), "{name}: {found}");
    }
}

#[test]
fn types_are_chosen() {
    let directory = tempfile::tempdir().unwrap();
    for (kind, want) in [("f16", "F16"), ("bf16", "BF16"), ("q8_0", "Q8_0"), ("q4_k_m", "Q5_0")] {
        let file = converted("own_commands", &["--type", kind], directory.path());
        let bytes = fs::read(file).unwrap();
        let gguf = Gguf::parse(&bytes).unwrap();
        let kind_of = |name: &str| format!("{:?}", gguf.tensor(name).unwrap().kind);
        // K-quants have blocks of 256, but rows of this matrix have 64 elements: Q4_K is replaced by Q5_0, as in
        // llama-quantize.
        assert_eq!(kind_of("blk.0.attn_q.weight"), want, "{kind}");
        assert_eq!(kind_of("blk.0.attn_norm.weight"), "F32");
    }
}

/// Without `--type`, each matrix keeps the type and the bytes that the checkpoint has, even if the types of the
/// matrices differ.
#[test]
fn each_matrix_keeps_its_type() {
    let directory = tempfile::tempdir().unwrap();
    let (folder, model) = (directory.path().join("model"), directory.path().join("model.gguf"));
    fs::create_dir(&folder).unwrap();
    let all: Value = serde_json::from_slice(&fs::read(checkpoint("tiny.json")).unwrap()).unwrap();
    let case = tiny(&all, "LlamaForCausalLM");
    write_tiny(&case, &folder);
    let (mut header, mut data, mut stored) = (serde_json::Map::new(), Vec::new(), Vec::new());
    for (index, (name, shape)) in case["tensors"].as_object().unwrap().iter().enumerate() {
        let shape: Vec<usize> = shape.as_array().unwrap().iter().map(|n| n.as_u64().unwrap() as usize).collect();
        let kind = if shape.len() == 1 { "F32" } else { ["F32", "BF16", "F16"][index % 3] };
        let values = tiny::weights(name, &shape);
        // The upper half of a float is a BF16. In this model, the same bits are also a finite F16.
        let bytes = if kind == "F32" {
            values
        } else {
            values.as_chunks().0.iter().flat_map(|&[.., a, b]: &[u8; 4]| [a, b]).collect()
        };
        let start = data.len();
        data.extend(&bytes);
        let offsets = [start, data.len()];
        header.insert(name.clone(), serde_json::json!({ "dtype": kind, "shape": shape, "data_offsets": offsets }));
        stored.push((name.as_str(), kind, bytes));
    }
    let header = Value::from(header).to_string().into_bytes();
    let file = [&(header.len() as u64).to_le_bytes()[..], &header, &data].concat();
    fs::write(folder.join("model.safetensors"), file).unwrap();
    stdout(&["convert", "hf", path(&folder), path(&model)]);
    let bytes = fs::read(&model).unwrap();
    let gguf = Gguf::parse(&bytes).unwrap();
    let mut kinds = BTreeSet::new();
    for (stored, new) in [
        ("model.embed_tokens", "token_embd"),
        ("lm_head", "output"),
        ("model.norm", "output_norm"),
        ("model.layers.0.mlp.up_proj", "blk.0.ffn_up"),
        ("model.layers.0.mlp.down_proj", "blk.0.ffn_down"),
        ("model.layers.1.mlp.gate_proj", "blk.1.ffn_gate"),
        ("model.layers.1.self_attn.v_proj", "blk.1.attn_v"),
        ("model.layers.1.self_attn.o_proj", "blk.1.attn_output"),
    ]
    .map(|(old, new)| (stored.iter().find(|(name, ..)| *name == format!("{old}.weight")).unwrap(), new))
    {
        let found = gguf.tensor(&format!("{new}.weight")).unwrap();
        assert_eq!((format!("{:?}", found.kind).as_str(), found.data), (stored.1, &stored.2[..]), "{new}");
        kinds.insert(stored.1);
    }
    assert_eq!(kinds.len(), 3);
}

/// A folder, its file of weights, and an index that names this file are converted to the same tensors and metadata.
#[test]
fn weights_may_be_named_by_an_index() {
    let directory = tempfile::tempdir().unwrap();
    let output = directory.path().join("out.gguf");
    let (from, _) = copied("own_commands", directory.path());
    fs::write(from.join("all.index.json"), r#"{"weight_map": {"x": "model.safetensors"}}"#).unwrap();
    let [folder, file, index] = ["", "model.safetensors", "all.index.json"].map(|name| {
        stdout(&["convert", "hf", path(&from.join(name)), path(&output)]);
        fs::read(&output).unwrap()
    });
    assert!(folder == file && folder == index);
}

/// The results are those of transformers 5.24: a tied head may be stored in place of the embedding, what trainers leave
/// behind is ignored, and an index may name a subfolder. An adapter in the folder is said, and two sets of shards are
/// refused.
#[test]
fn folders_of_trainers_are_read() {
    let directory = tempfile::tempdir().unwrap();
    let output = directory.path().join("out.gguf");
    let (from, _) = copied("own_commands", directory.path());
    let weights = from.join("model.safetensors");
    let convert = || {
        let ran = arenite(&["convert", "hf", path(&from), path(&output)]);
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        (fs::read(&output).unwrap(), String::from_utf8_lossy(&ran.stderr).into_owned())
    };
    let want = convert();
    let bytes = fs::read(&weights).unwrap();
    let (start, rest) = bytes.split_first_chunk::<8>().unwrap();
    let (header, data) = rest.split_at(u64::from_le_bytes(*start) as usize);
    let header: serde_json::Map<String, Value> = serde_json::from_slice(header).unwrap();
    let head = |(name, tensor): (String, Value)| match name.as_str() {
        "model.embed_tokens.weight" => ("lm_head.weight".to_owned(), tensor),
        _ => (name, tensor),
    };
    let mut header: serde_json::Map<String, Value> = header.into_iter().map(head).collect();
    let tensor = |kind: &str, shape: &[usize], len: usize| serde_json::json!({ "dtype": kind, "shape": shape, "data_offsets": [data.len(), data.len() + len] });
    header.insert("v_head.summary.weight".into(), tensor("F32", &[1, 4], 16));
    for name in ["model.layers.0.self_attn._extra_state", "model.layers.1.self_attn.rotary_emb.cos_cached"] {
        header.insert(name.into(), serde_json::json!({ "dtype": "U8", "shape": [0], "data_offsets": [0, 0] }));
    }
    let header = Value::from(header).to_string().into_bytes();
    fs::write(&weights, [&(header.len() as u64).to_le_bytes()[..], &header, data, &[0; 16]].concat()).unwrap();
    assert!(convert() == want);

    fs::create_dir(from.join("sub")).unwrap();
    fs::rename(&weights, from.join("sub/a.safetensors")).unwrap();
    let index = from.join("model.safetensors.index.json");
    fs::write(&index, r#"{"weight_map": {"x": "sub/a.safetensors"}}"#).unwrap();
    assert!(convert() == want);

    fs::write(from.join("adapter_config.json"), "{}").unwrap();
    fs::write(from.join("adapter_model.safetensors"), "").unwrap();
    let (file, told) = convert();
    assert!(file == want.0 && told.contains("arenite convert lora"), "{told}");

    fs::remove_file(index).unwrap();
    for name in ["model-00001-of-00001", "model-00001-of-00002", "model-00002-of-00002"] {
        fs::copy(from.join("sub/a.safetensors"), from.join(format!("{name}.safetensors"))).unwrap();
    }
    let message = error(&["convert", "hf", path(&from), path(&output)]);
    assert!(message.contains("two sets of weights"), "{message}");
}

/// Converted checkpoints of training scripts generate the same tokens as transformers with the same weights in GPT-2.
/// The checkpoints are nanoGPT's, and build-nanogpt's without biases in torch's old format.
#[test]
fn torch_files_are_read_without_running_them() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("model.gguf");
    for (name, ids, activation) in [
        ("nanogpt.pt", [32, 46, 63, 46, 63, 46, 46, 63], Some("gelu")),
        ("no_bias.pt", [46, 60, 11, 60, 46, 42, 45, 42], None),
    ] {
        stdout(&["convert", "hf", path(&checkpoint(name)), path(&file)]);
        let how = ["generate", "--ids", "1,5,9,33,63,2", "-n", "8", "--temp", "0", "--kv", "f32", "--format", "ids"];
        assert_eq!(json(&[&how[..], &["-m", path(&file)]].concat()), serde_json::json!(ids), "{name}");
        let bytes = fs::read(&file).unwrap();
        let found = Gguf::parse(&bytes).unwrap().get("gpt2.hidden_activation").map(|found| value(&found));
        assert_eq!(found, activation.map(Value::from), "{name}");
    }
}

/// nanoGPT's vocabularies of characters. The expected ids come from nanoGPT's `encode`. The expected text has the
/// characters of the ids that transformers generates.
#[test]
fn characters_have_nano_gpts_ids() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("model.gguf");
    let nano = checkpoint("nanogpt.pt");
    for (vocabulary, text, ids) in [
        ("letters.pkl", "a b\n  ä語 😀cßé", serde_json::json!([2, 1, 3, 0, 1, 1, 6, 8, 1, 9, 4, 5, 7])),
        (
            "meta.pkl",
            "Exeunt,\n  BAZ & Co?",
            serde_json::json!([16, 61, 42, 58, 51, 57, 6, 0, 1, 1, 13, 12, 37, 1, 4, 1, 14, 52, 11]),
        ),
    ] {
        let vocabulary = checkpoint(vocabulary);
        let ran = arenite(&["convert", "hf", path(&nano), path(&file), "--tokenizer", path(&vocabulary)]);
        let stderr = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success() && stderr.contains("use --ignore-eos"), "{stderr}");
        let found = json(&["tokenize", "-m", path(&file), "--add-special", "--json", "-p", text]);
        assert_eq!(found, ids, "{text:?}");
    }
    let how = ["generate", "--ids", "1,5,9,33,63,2", "-n", "8", "--temp", "0", "--kv", "f32", "--ignore-eos"];
    let text = stdout(&[&how[..], &["-m", path(&file)]].concat());
    assert!(text.trim_end().ends_with("Uiziziiz"), "{text:?}");
}

#[test]
fn what_cannot_be_converted_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let output = directory.path().join("out.gguf");
    let copy = |config: &dyn Fn(&mut Value), tokenizer: &dyn Fn(&mut Value)| {
        let (from, _) = copied("own_commands", directory.path());
        for (name, change) in [("config.json", config), ("tokenizer.json", tokenizer)] {
            let mut json: Value = serde_json::from_slice(&fs::read(from.join(name)).unwrap()).unwrap();
            change(&mut json);
            fs::write(from.join(name), json.to_string()).unwrap();
        }
        error(&["convert", "hf", path(&from), path(&output)])
    };
    let none: &dyn Fn(&mut Value) = &|_| {};
    let message = copy(&|config| config["architectures"] = serde_json::json!(["UnheardOfModel"]), none);
    assert!(message.contains("UnheardOfModel"), "{message}");
    let message = copy(&|config| config["num_attention_heads"] = 7.into(), none);
    assert!(message.contains("heads"), "{message}");
    let rope = serde_json::json!({"rope_type": "longrope", "rope_theta": 10000.0, "long_factor": [1.0], "short_factor": [1.0]});
    let message = copy(&|config| config["rope_parameters"] = rope.clone(), none);
    assert!(
        message.contains("rope_type in config.json is longrope: not supported for the architecture llama"),
        "{message}"
    );
    let message = copy(
        &|config| {
            config["architectures"] = serde_json::json!(["AfmoeForCausalLM"]);
            config["route_norm"] = false.into();
        },
        none,
    );
    assert!(message.contains("route_norm in config.json is false"), "{message}");
    let message = copy(&|config| config["hidden_act"] = "mish".into(), none);
    assert!(message.contains("hidden_act in config.json is mish"), "{message}");
    let message = copy(&|config| config["quantization_config"] = serde_json::json!({"quant_method": "aqlm"}), none);
    assert!(message.contains("quantized by aqlm"), "{message}");
    let split =
        serde_json::json!({"type": "Split", "pattern": {"Regex": "[a-f]+"}, "behavior": "Isolated", "invert": false});
    let message = copy(
        none,
        &|json| json["pre_tokenizer"] = serde_json::json!({"type": "Sequence", "pretokenizers": [split.clone(), {"type": "ByteLevel", "use_regex": false}]}),
    );
    assert!(message.contains("[a-f]+"), "{message}");
    let message = copy(none, &|json| json["normalizer"] = serde_json::json!({"type": "Strip"}));
    assert!(message.contains("its normalizer Strip is not supported"), "{message}");
    let message = copy(none, &|json| {
        json["normalizer"] = serde_json::json!({"type": "Lowercase"});
        json["added_tokens"][0]["normalized"] = true.into();
    });
    assert!(message.contains("is found after normalization"), "{message}");
    assert!(!output.exists());
}

/// Without certain tensors, or with additional modules after the encoder, the converted model would differ from the
/// checkpoint. Checks the notes and errors for these cases.
#[test]
fn what_is_missing_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let (folder, model) = (directory.path().join("model"), directory.path().join("model.gguf"));
    fs::create_dir(&folder).unwrap();
    let all: Value = serde_json::from_slice(&fs::read(checkpoint("tiny.json")).unwrap()).unwrap();
    let converted = |case: &Value, modules: &str| {
        write_tiny(case, &folder);
        fs::write(folder.join("modules.json"), modules).unwrap();
        error(&["convert", "hf", path(&folder), path(&model)])
    };
    let mut case = tiny(&all, "OlmoForCausalLM");
    case["config"]["tie_word_embeddings"] = false.into();
    case["tensors"].as_object_mut().unwrap().remove("lm_head.weight");
    let message = converted(&case, "[]");
    assert!(message.contains("the checkpoint has no head"), "{message}");
    // An embedding model needs none.
    let pooling = r#"[{"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"}]"#;
    fs::write(folder.join("modules.json"), pooling).unwrap();
    stdout(&["convert", "hf", path(&folder), path(&model)]);
    let mut case = tiny(&all, "BertModel");
    case["tensors"].as_object_mut().unwrap().remove("encoder.layer.1.attention.self.query.bias");
    let message = converted(&case, "[]");
    assert!(message.contains("has biases for attn_q, but none for layer 1"), "{message}");
    let message =
        converted(&tiny(&all, "BertModel"), r#"[{"type": "sentence_transformers.models.LayerNorm", "path": "2"}]"#);
    assert!(message.contains("modules.json has a module LayerNorm"), "{message}");
    fs::write(folder.join("modules.json"), "[]").unwrap();
    fs::write(folder.join("sentence_bert_config.json"), r#"{"do_lower_case": true}"#).unwrap();
    let prompts = r#"{"prompts": {"query": "query: "}, "default_prompt_name": "query"}"#;
    fs::write(folder.join("config_sentence_transformers.json"), prompts).unwrap();
    let ran = arenite(&["convert", "hf", path(&folder), path(&model)]);
    let stderr = String::from_utf8_lossy(&ran.stderr);
    assert!(stderr.contains(r#"puts "query: " before each text"#) && stderr.contains("to lower case"), "{stderr}");
}

/// The text part of a model with pictures is recognized by its `model_type`, because it has no class name of its own.
/// The special tokens are found even if the tokenizer has no post-processor.
#[test]
fn text_models_and_special_tokens_are_recognized() {
    let directory = tempfile::tempdir().unwrap();
    let output = directory.path().join("out.gguf");
    let (from, plain) = copied("own_commands", directory.path());
    let around = |kind: &str| {
        let mut text = plain.clone();
        text["model_type"] = kind.into();
        let class = "LlavaForConditionalGeneration";
        let config = serde_json::json!({"architectures": [class], "model_type": "llava", "text_config": text});
        fs::write(from.join("config.json"), config.to_string()).unwrap();
    };
    around("gemma");
    let message = error(&["convert", "hf", path(&from), path(&output)]);
    assert!(message.contains("LlavaForConditionalGeneration are not supported"), "{message}");
    around("llama");
    let words = serde_json::json!({"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "a": 4});
    let mut json = serde_json::json!({
        "added_tokens": [], "normalizer": null, "pre_tokenizer": {"type": "BertPreTokenizer"},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "vocab": words},
    });
    fs::write(from.join("tokenizer_config.json"), r#"{"tokenizer_class": "PreTrainedTokenizerFast"}"#).unwrap();
    let text = |id: &str| serde_json::json!({"Sequence": {"id": id, "type_id": 0}});
    let template =
        serde_json::json!({"type": "TemplateProcessing", "single": [text("A")], "pair": [text("A"), text("B")]});
    for processor in [Value::Null, template] {
        json["post_processor"] = processor;
        fs::write(from.join("tokenizer.json"), json.to_string()).unwrap();
        stdout(&["convert", "hf", path(&from), path(&output)]);
        let bytes = fs::read(&output).unwrap();
        let gguf = Gguf::parse(&bytes).unwrap();
        for key in ["tokenizer.ggml.add_bos_token", "tokenizer.ggml.add_eos_token"] {
            assert!(matches!(gguf.get(key), Some(Meta::Bool(false))), "{key}");
        }
    }
}

#[test]
fn a_window_that_is_left_out_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let output = directory.path().join("out.gguf");
    let (from, mut config) = copied("own_commands", directory.path());
    // Three cases: no window, a window as long as the context, and a shorter window. The shorter window is left out for
    // Qwen 2, but not for Mistral.
    let (qwen, mistral) = ("Qwen2ForCausalLM", "MistralForCausalLM");
    for (class, window, is_said) in
        [(qwen, Value::Null, false), (qwen, 256.into(), false), (qwen, 32.into(), true), (mistral, 32.into(), false)]
    {
        config["architectures"] = serde_json::json!([class]);
        config["sliding_window"] = window;
        fs::write(from.join("config.json"), config.to_string()).unwrap();
        let ran = arenite(&["convert", "hf", path(&from), path(&output)]);
        let stderr = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "{stderr}");
        assert_eq!(stderr.contains("the window of 32 tokens is left out"), is_said, "{stderr}");
    }
}

/// A unigram vocabulary whose post-processor adds `<s>` and `</s>`, as XLM-RoBERTa's does. The expected ids come from
/// Hugging Face's tokenizers 0.23.
#[test]
fn post_processors_of_unigrams_add_both_ends() {
    let directory = tempfile::tempdir().unwrap();
    let output = directory.path().join("out.gguf");
    let (from, _) = copied("own_commands", directory.path());
    let special =
        |id: u32, text: &str| serde_json::json!({"id": id, "content": text, "special": true, "normalized": false});
    let token = |text: &str| serde_json::json!({"SpecialToken": {"id": text, "type_id": 0}});
    let text = |name: &str| serde_json::json!({"Sequence": {"id": name, "type_id": 0}});
    let tokenizer = serde_json::json!({
        "added_tokens": [special(0, "<s>"), special(1, "<pad>"), special(2, "</s>"), special(3, "<unk>")],
        "normalizer": null,
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [token("<s>"), text("A"), token("</s>")],
            "pair": [token("<s>"), text("A"), token("</s>"), token("</s>"), text("B"), token("</s>")],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [0]}, "</s>": {"id": "</s>", "ids": [2]}},
        },
        "model": {
            "type": "Unigram",
            "unk_id": 3,
            "vocab": [["<s>", 0.0], ["<pad>", 0.0], ["</s>", 0.0], ["<unk>", 0.0], ["▁", -2.0], ["a", -2.5], ["b", -3.0], ["▁ab", -3.5]],
        },
    });
    fs::write(from.join("tokenizer.json"), tokenizer.to_string()).unwrap();
    stdout(&["convert", "hf", path(&from), path(&output)]);
    let found = stdout(&["tokenize", "-m", path(&output), "-p", "ab a ba", "--add-special", "--json"]);
    assert_eq!(found.trim(), "[0,7,4,5,4,6,5,2]");
}
