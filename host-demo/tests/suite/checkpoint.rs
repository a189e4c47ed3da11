//! Converts checkpoints of other programs, and compares tensors and metadata with llama.cpp's converter, and generated
//! tokens with transformers.

use std::fs;
use std::path::{Path, PathBuf};

use arenite::Gguf;
use arenite::gguf::{Array, Value as Meta, ValueType};
use serde_json::Value;

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

/// Copies a checkpoint into `directory`, for changes, and returns the folder of the copy and its config.
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

/// The keys of names, sizes and recommended sampling are those of llama.cpp's converter (in llama-cpp-python 0.3.36),
/// without lists and texts of several lines, which Arenite does not write.
#[test]
fn general_keys_are_llama_cpps() {
    let directory = tempfile::tempdir().unwrap();
    let output = directory.path().join("out.gguf");
    // A folder's name, its README.md, the name in its config, its generation_config.json, and the keys.
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

/// Converted models generate the tokens that transformers 5.24 generates greedily.
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

/// A folder, its file of weights, and an index that names this file give the same tensors and metadata.
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

/// Converted checkpoints of training scripts generate the tokens that transformers generates with the same weights as
/// GPT-2: nanoGPT's, and build-nanogpt's without biases, in torch's old form.
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
    let message = copy(&|config| config["quantization_config"] = serde_json::json!({"quant_method": "awq"}), none);
    assert!(message.contains("awq"), "{message}");
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

/// Tensors without which a model would differ from the checkpoint, and modules after the encoder.
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

/// The text model inside of a model with pictures, by its type, and special tokens without a post-processor.
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
    // No window, a window as long as the context, and a shorter window, which is left out for Qwen 2 but not for
    // Mistral.
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

/// Settings for which llama.cpp has no key give the logits of transformers, which `settings.py` wrote.
#[test]
fn settings_without_a_key_are_followed() {
    let directory = tempfile::tempdir().unwrap();
    let output = directory.path().join("out.gguf");
    let (from, plain) = copied("own_commands", directory.path());
    let all: Value = serde_json::from_slice(&fs::read(checkpoint("settings.json")).unwrap()).unwrap();
    let numbers = |list: &Value| list.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect::<Vec<_>>();
    let ids: Vec<String> = numbers(&all["tokens"]).iter().map(|id| id.to_string()).collect();
    for case in all["cases"].as_array().unwrap() {
        let mut config = plain.clone();
        config.as_object_mut().unwrap().extend(case["settings"].as_object().unwrap().clone());
        fs::write(from.join("config.json"), config.to_string()).unwrap();
        stdout(&["convert", "hf", path(&from), path(&output)]);
        let out = directory.path().join("logits.npy");
        stdout(&["logits", "-m", path(&output), "--ids", &ids.join(","), "--all", "--kv", "f32", "-o", path(&out)]);
        let (_, logits) = crate::common::npy(&out);
        let rows: Vec<&[f32]> = logits.chunks(logits.len() / ids.len()).collect();
        for (position, want) in numbers(&all["positions"]).into_iter().zip(case["logits"].as_array().unwrap()) {
            for (got, want) in rows[position as usize].iter().zip(numbers(want)) {
                // The logits in the file have five decimals.
                assert!((f64::from(*got) - want).abs() < 3e-5, "{}: {got}, not {want}", case["settings"]);
            }
        }
    }
}

/// Derives the values of a tensor from its name, as `tiny.py` does.
fn weights(name: &str, shape: &[usize]) -> Vec<u8> {
    let fnv = |state: u64, byte: u8| (state ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    let mut state = name.bytes().fold(0xcbf2_9ce4_8422_2325, fnv);
    let is_factor = shape.len() == 1 && (name.ends_with("weight") || name.ends_with("scale"));
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 48) as f32 / 131_072.0 - 0.25 + f32::from(is_factor)
    };
    (0..shape.iter().product()).flat_map(|_: usize| next().to_le_bytes()).collect()
}

/// Writes tensors of these shapes, with values derived from their names.
fn write_tensors(shapes: &Value, path: &Path) {
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

/// Writes a checkpoint of `tiny.json`, with the tokenizer of own_commands, and mean pooling for encoders.
fn write_tiny(case: &Value, folder: &Path) {
    write_tensors(&case["tensors"], &folder.join("model.safetensors"));
    fs::write(folder.join("config.json"), case["config"].to_string()).unwrap();
    for name in ["tokenizer.json", "tokenizer_config.json"] {
        fs::copy(checkpoint("own_commands").join(name), folder.join(name)).unwrap();
    }
    let modules = r#"[{"type": "models.Pooling", "path": "1_Pooling"}]"#;
    fs::write(folder.join("modules.json"), modules).unwrap();
}

/// Gives two tokens the names of a reranker's labels, "yes" and "no". Removes all merges, which may refer to the old
/// names.
fn name_labels(folder: &Path, ids: &Value) {
    let file = folder.join("tokenizer.json");
    let mut json: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let vocab = json["model"]["vocab"].as_object_mut().unwrap();
    vocab.retain(|_, id| !ids.as_array().unwrap().contains(id));
    vocab.extend([("yes".to_owned(), ids[0].clone()), ("no".to_owned(), ids[1].clone())]);
    json["model"]["merges"] = Value::from(Vec::<Value>::new());
    fs::write(&file, json.to_string()).unwrap();
}

/// Encoders, T5 and others have the results of transformers with settings that few models have. `tiny.py` wrote the
/// results.
#[test]
fn rare_settings_are_followed() {
    let directory = tempfile::tempdir().unwrap();
    let (folder, model) = (directory.path().join("model"), directory.path().join("model.gguf"));
    let out = directory.path().join("out.npy");
    fs::create_dir(&folder).unwrap();
    let all: Value = serde_json::from_slice(&fs::read(checkpoint("tiny.json")).unwrap()).unwrap();
    let ids = |name: &str| all[name].as_array().unwrap().iter().map(Value::to_string).collect::<Vec<_>>().join(",");
    let (tokens, decoder) = (ids("tokens"), ids("decoder"));
    for case in all["cases"].as_array().unwrap() {
        write_tiny(case, &folder);
        let class = case["config"]["architectures"][0].as_str().unwrap();
        let reranker = case["config"]["_name_or_path"].as_str().is_some_and(|name| name.contains("Reranker"));
        if reranker {
            name_labels(&folder, &all["labels"]);
        }
        stdout(&["convert", "hf", path(&folder), path(&model)]);
        let which: &[&str] = match class {
            _ if class.ends_with("ForConditionalGeneration") => {
                &["logits", "--encoder-ids", &tokens, "--ids", &decoder]
            }
            _ if class.ends_with("ForCausalLM") && !reranker => &["logits", "--ids", &tokens],
            _ => &["embed", "--ids", &tokens, "--no-normalize"],
        };
        stdout(&[which, &["-m", path(&model), "--kv", "f32", "-o", path(&out)]].concat());
        let (_, values) = crate::common::npy(&out);
        let result = case["result"].as_array().unwrap();
        assert!(values.len() >= result.len(), "{} values: {}", values.len(), case["config"]);
        for (got, want) in values.iter().zip(result) {
            let want = want.as_f64().unwrap();
            // The results in the file have five decimals.
            assert!(
                (f64::from(*got) - want).abs() < 3e-5 * want.abs().max(1.0),
                "{}: {got}, not {want}",
                case["config"]
            );
        }
    }
}

/// Settings that an architecture cannot follow are refused by name.
#[test]
fn rare_settings_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let (folder, model) = (directory.path().join("model"), directory.path().join("model.gguf"));
    fs::create_dir(&folder).unwrap();
    let all: Value = serde_json::from_slice(&fs::read(checkpoint("tiny.json")).unwrap()).unwrap();
    for (class, field, value) in [
        ("BertModel", "hidden_act", Value::from("tanh")),
        ("Gemma3TextModel", "use_bidirectional_attention", false.into()),
        ("ModernBertForSequenceClassification", "classifier_activation", "mish".into()),
        ("T5ForConditionalGeneration", "feed_forward_proj", "mish".into()),
    ] {
        let mut case = tiny(&all, class);
        case["config"][field] = value;
        write_tiny(&case, &folder);
        let message = error(&["convert", "hf", path(&folder), path(&model)]);
        assert!(message.contains(&format!("{field} in config.json is ")), "{message}");
    }
    let mut case = tiny(&all, "MptForCausalLM");
    case["config"]["attn_config"]["alibi"] = false.into();
    write_tiny(&case, &folder);
    let message = error(&["convert", "hf", path(&folder), path(&model)]);
    assert!(message.contains("alibi in config.json is false: not supported for the architecture mpt"), "{message}");
    // With learned positions, ALiBi may be off.
    case["tensors"]["transformer.wpe.weight"] = serde_json::json!([64, 32]);
    write_tiny(&case, &folder);
    stdout(&["convert", "hf", path(&folder), path(&model)]);
}

/// A case of `tiny.json`.
fn tiny(all: &Value, class: &str) -> Value {
    let mut cases = all["cases"].as_array().unwrap().iter();
    cases.find(|case| case["config"]["architectures"][0] == class).unwrap().clone()
}

/// A note names each setting that is left out: slopes of MPT other than 8, which transformers ignores, and dynamic
/// scaling, which begins after the context.
#[test]
fn settings_that_are_left_out_are_said() {
    let directory = tempfile::tempdir().unwrap();
    let (folder, model) = (directory.path().join("model"), directory.path().join("model.gguf"));
    fs::create_dir(&folder).unwrap();
    let all: Value = serde_json::from_slice(&fs::read(checkpoint("tiny.json")).unwrap()).unwrap();
    for (class, settings, field, value, note) in [
        ("MptForCausalLM", Some("attn_config"), "alibi_bias_max", 8.into(), None),
        ("MptForCausalLM", Some("attn_config"), "alibi_bias_max", 16.into(), Some("alibi_bias_max is 16")),
        ("EuroBertModel", Some("rope_parameters"), "rope_type", "linear".into(), None),
        ("EuroBertModel", Some("rope_parameters"), "rope_type", "dynamic".into(), Some("(dynamic scaling)")),
        ("HunYuanDenseV1ForCausalLM", Some("rope_parameters"), "alpha", 100.0.into(), None),
        ("HunYuanDenseV1ForCausalLM", Some("rope_parameters"), "alpha", Value::Null, Some("(dynamic scaling)")),
        ("BertModel", None, "rotary_scaling_factor", Value::Null, None), // a setting of Nomic's models
        ("BertModel", None, "rotary_scaling_factor", 2.into(), Some("(dynamic scaling)")),
    ] {
        let mut case = tiny(&all, class);
        let config = &mut case["config"];
        match settings {
            Some(inner) => config[inner][field] = value,
            None => config[field] = value,
        }
        write_tiny(&case, &folder);
        let ran = arenite(&["convert", "hf", path(&folder), path(&model)]);
        let stderr = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "{stderr}");
        let notes = ["alibi_bias_max", "(dynamic scaling)"];
        assert_eq!(notes.iter().any(|note| stderr.contains(note)), note.is_some(), "{class} {field}: {stderr}");
        assert!(note.is_none_or(|note| stderr.contains(note)), "{stderr}");
    }
}

/// A published checkpoint of Nomic's mixture of experts stores all experts in one matrix, the second one transposed:
/// `w1.view(experts, inner, width)[i].T` and `w2.view(experts, inner, width)[i]` are the factors of expert `i`. A note
/// says that the bias of their sum is left out.
#[test]
fn experts_in_one_matrix_are_cut() {
    let directory = tempfile::tempdir().unwrap();
    let (folder, model) = (directory.path().join("model"), directory.path().join("model.gguf"));
    fs::create_dir(&folder).unwrap();
    let (experts, inner, width) = (3, 64, 32);
    let mut tensors = serde_json::json!({
        "embeddings.word_embeddings.weight": [365, width], "embeddings.token_type_embeddings.weight": [1, width],
        "emb_ln.weight": [width], "emb_ln.bias": [width],
        "encoder.layers.0.mlp.fc1.weight": [inner, width], "encoder.layers.0.mlp.fc1.bias": [inner],
        "encoder.layers.0.mlp.fc2.weight": [width, inner], "encoder.layers.0.mlp.fc2.bias": [width],
        "encoder.layers.1.mlp.router.layer.weight": [experts, width],
        "encoder.layers.1.mlp.experts.mlp.w1": [experts * inner, width],
        "encoder.layers.1.mlp.experts.mlp.w2": [experts * inner, width],
        "encoder.layers.1.mlp.experts.bias": [width],
    });
    for layer in 0..2 {
        for (name, rows) in [("attn.Wqkv", 3 * width), ("attn.out_proj", width), ("norm1", 1), ("norm2", 1)] {
            let shape = if rows == 1 { serde_json::json!([width]) } else { serde_json::json!([rows, width]) };
            tensors[format!("encoder.layers.{layer}.{name}.weight")] = shape;
            tensors[format!("encoder.layers.{layer}.{name}.bias")] = serde_json::json!([rows.max(width)]);
        }
    }
    let config = serde_json::json!({
        "architectures": ["NomicBertModel"], "vocab_size": 365, "n_embd": width, "n_inner": inner, "n_layer": 2,
        "n_head": 2, "n_positions": 64, "layer_norm_epsilon": 1e-5, "type_vocab_size": 1, "rotary_emb_base": 10000,
        "activation_function": "gelu", "moe_every_n_layers": 2, "moe_top_k": 2, "num_experts": experts,
    });
    write_tiny(&serde_json::json!({ "config": config, "tensors": tensors }), &folder);
    let ran = arenite(&["convert", "hf", path(&folder), path(&model)]);
    let stderr = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success() && stderr.contains("the experts' bias is left out"), "{stderr}");

    let bytes = fs::read(&model).unwrap();
    let gguf = Gguf::parse(&bytes).unwrap();
    let stored = |name: &str| weights(&format!("encoder.layers.1.mlp.experts.mlp.{name}"), &[experts * inner, width]);
    let up = gguf.tensor("blk.1.ffn_up_exps.weight").unwrap();
    assert_eq!((up.dims, up.data), ([width as u64, inner as u64, experts as u64, 1], &stored("w1")[..]));
    let (down, w2) = (gguf.tensor("blk.1.ffn_down_exps.weight").unwrap(), stored("w2"));
    assert_eq!(down.dims, [inner as u64, width as u64, experts as u64, 1]);
    let (down, w2) = (down.data.as_chunks::<4>().0, w2.as_chunks::<4>().0);
    for (i, value) in down.iter().enumerate() {
        let (expert, row, column) = (i / (width * inner), i / inner % width, i % inner);
        assert_eq!(*value, w2[(expert * inner + column) * width + row], "expert {expert}, row {row}");
    }
    // Without the bias there is nothing to say.
    tensors.as_object_mut().unwrap().remove("encoder.layers.1.mlp.experts.bias");
    write_tiny(&serde_json::json!({ "config": config, "tensors": tensors }), &folder);
    let ran = arenite(&["convert", "hf", path(&folder), path(&model)]);
    assert!(ran.status.success() && !String::from_utf8_lossy(&ran.stderr).contains("bias"), "{ran:?}");
}

/// Activation functions have several names in checkpoints. In transformers 5.24 "swish" is "silu" and "gelu_new" has
/// the formula of "gelu_pytorch_tanh".
#[test]
fn activation_functions_have_one_name() {
    let directory = tempfile::tempdir().unwrap();
    let (folder, model) = (directory.path().join("model"), directory.path().join("model.gguf"));
    fs::create_dir(&folder).unwrap();
    let all: Value = serde_json::from_slice(&fs::read(checkpoint("tiny.json")).unwrap()).unwrap();
    for (class, key, field, name, want) in [
        ("ModernBertModel", "modern-bert.hidden_activation", "hidden_activation", "swish", Some("silu")),
        (
            "ModernBertModel",
            "modern-bert.hidden_activation",
            "hidden_activation",
            "gelu_new",
            Some("gelu_pytorch_tanh"),
        ),
        ("BertModel", "bert.hidden_activation", "hidden_act", "swish", Some("silu")),
        ("T5ForConditionalGeneration", "t5.hidden_activation", "feed_forward_proj", "gated-swish", Some("silu")),
        ("T5ForConditionalGeneration", "t5.hidden_activation", "feed_forward_proj", "gated-gelu_new", None),
    ] {
        let mut case = tiny(&all, class);
        case["config"][field] = name.into();
        write_tiny(&case, &folder);
        stdout(&["convert", "hf", path(&folder), path(&model)]);
        let bytes = fs::read(&model).unwrap();
        let found = Gguf::parse(&bytes).unwrap().get(key).map(|found| value(&found));
        assert_eq!(found, want.map(Value::from), "{class}: {name}");
    }
}

/// In transformers 5.24 the class GemmaMLP uses `hidden_act`, and ignores `hidden_activation`.
#[test]
fn gemma_has_one_field_for_its_activation_function() {
    let directory = tempfile::tempdir().unwrap();
    let output = directory.path().join("out.gguf");
    let (from, mut config) = copied("own_commands", directory.path());
    config["architectures"] = serde_json::json!(["GemmaForCausalLM"]);
    config["head_dim"] =
        (config["hidden_size"].as_u64().unwrap() / config["num_attention_heads"].as_u64().unwrap()).into();
    for (act, activation, want) in
        [("gelu_pytorch_tanh", "silu", None), ("silu", "gelu_pytorch_tanh", Some("silu")), ("gelu", "gelu", None)]
    {
        (config["hidden_act"], config["hidden_activation"]) = (act.into(), activation.into());
        fs::write(from.join("config.json"), config.to_string()).unwrap();
        stdout(&["convert", "hf", path(&from), path(&output)]);
        let bytes = fs::read(&output).unwrap();
        let found = Gguf::parse(&bytes).unwrap().get("gemma.hidden_activation").map(|found| value(&found));
        assert_eq!(found, want.map(Value::from), "{act} and {activation}");
    }
}

/// The rows of a reranker's labels are those of the vocabulary that `--tokenizer` names.
#[test]
fn a_reranker_takes_its_labels_from_the_given_vocabulary() {
    let directory = tempfile::tempdir().unwrap();
    let (folder, other) = (directory.path().join("model"), directory.path().join("other"));
    let (want, model) = (directory.path().join("want.gguf"), directory.path().join("model.gguf"));
    let all: Value = serde_json::from_slice(&fs::read(checkpoint("tiny.json")).unwrap()).unwrap();
    for directory in [&folder, &other] {
        fs::create_dir(directory).unwrap();
        write_tiny(&tiny(&all, "Qwen3ForCausalLM"), directory);
    }
    name_labels(&other, &all["labels"]);
    stdout(&["convert", "hf", path(&other), path(&want)]);
    // The model's own vocabulary has no labels. `--tokenizer` accepts a file of any name.
    assert!(error(&["convert", "hf", path(&folder), path(&model)]).contains("which a reranker needs"));
    let file = directory.path().join("labels.json");
    fs::copy(other.join("tokenizer.json"), &file).unwrap();
    for tokenizer in [&other, &file] {
        stdout(&["convert", "hf", path(&folder), path(&model), "--tokenizer", path(tokenizer)]);
        let head = |file: &Path| {
            let bytes = fs::read(file).unwrap();
            Gguf::parse(&bytes).unwrap().tensor("cls.output.weight").unwrap().data.to_vec()
        };
        assert_eq!(head(&model), head(&want));
    }
}

/// A random LoRA of PEFT 0.21 for own_commands: its file by llama.cpp's convert_lora_to_gguf.py has the same tensors,
/// and the merged model generates what transformers generates with the adapter merged.
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
    // The adapter at run time, alone and as two halves, gives the logits of the merged model.
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
    // Subtracting the adapter from the merged model gives the tokens of the original model.
    let back = directory.path().join("back.gguf");
    stdout(&["merge", path(&merged), &format!("{}:-1", path(&adapter)), path(&back)]);
    assert_eq!(ids(&back), ids(&model));
    assert!(error(&["merge", path(&model), path(&model), path(&back)]).contains("adapter"));
}

/// Adapters of PEFT with many settings have the logits of transformers, at run time and merged. `adapters.py` wrote the
/// logits.
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
            stdout(&[&["logits", "--ids", &tokens, "--kv", "f32", "-o", path(&out)], run].concat());
            for (got, want) in crate::common::npy(&out).1.iter().zip(case["result"].as_array().unwrap()) {
                let want = want.as_f64().unwrap();
                let near = (f64::from(*got) - want).abs() < 3e-5 * want.abs().max(1.0);
                assert!(near, "{got}, not {want}: {} {} {run:?}", case["config"]["model_type"], case["lora"]);
            }
        }
    }
}

/// Adapters that are incomplete, or that are more than a product added to a matrix, are refused.
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
        ("bias", "all".into()),
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
        (&[a, b, ("lora_M", [1, 1])], "no part of a plain LoRA"),
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

/// A unigram vocabulary whose post-processor adds `<s>` and `</s>`, as XLM-RoBERTa's does. The expected ids are from
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
