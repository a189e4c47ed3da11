//! Tests of settings in `config.json`: some are converted, some are refused, and some are left out with a note.

use std::fs;
use std::path::Path;

use arenite::Gguf;
use serde_json::{Value, json};

use super::tiny::{tiny, weights, write_tiny};
use super::{checkpoint, copied, value};
use crate::common::{arenite, error, path, stdout};

/// Settings for which llama.cpp has no key give the same logits as in transformers. `settings.py` wrote the expected
/// logits.
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

/// Settings that are missing in `config.json` get the defaults of transformers' class. This also holds for a text model
/// inside of another model. `absent.py` wrote the expected logits.
#[test]
fn absent_settings_are_the_defaults_of_the_class() {
    let directory = tempfile::tempdir().unwrap();
    let (folder, model) = (directory.path().join("model"), directory.path().join("model.gguf"));
    let out = directory.path().join("out.npy");
    fs::create_dir(&folder).unwrap();
    let all: Value = serde_json::from_slice(&fs::read(checkpoint("absent.json")).unwrap()).unwrap();
    let tokens = all["tokens"].as_array().unwrap().iter().map(Value::to_string).collect::<Vec<_>>().join(",");
    for case in all["cases"].as_array().unwrap() {
        write_tiny(case, &folder);
        fs::remove_file(folder.join("modules.json")).unwrap();
        stdout(&["convert", "hf", path(&folder), path(&model)]);
        stdout(&["logits", "-m", path(&model), "--ids", &tokens, "--kv", "f32", "-o", path(&out)]);
        let (_, logits) = crate::common::npy(&out);
        let wanted = case["result"].as_array().unwrap();
        assert!(wanted.len() <= logits.len());
        for (got, want) in logits.iter().zip(wanted) {
            let want = want.as_f64().unwrap();
            // The logits in the file have five decimals.
            assert!(
                (f64::from(*got) - want).abs() < 3e-5 * want.abs().max(1.0),
                "{}: {got}, not {want}",
                case["config"]
            );
        }
    }
}

/// Renames two tokens to "yes" and "no", the labels of a reranker. Removes all merges, because they may contain the old
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

/// Encoders, T5 and other models give the same results as in transformers, with settings that few models have.
/// `tiny.py` wrote the expected results.
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

/// If an architecture cannot represent a setting of a checkpoint, the conversion fails, and the error names the
/// setting.
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

/// A sliding window is refused if the file cannot express it. If the checkpoint has more layers than the config states,
/// they are left out, and a note says so.
#[test]
fn windows_and_layers_are_not_left_out_in_silence() {
    let directory = tempfile::tempdir().unwrap();
    let (folder, model) = (directory.path().join("model"), directory.path().join("model.gguf"));
    fs::create_dir(&folder).unwrap();
    let all: Value = serde_json::from_slice(&fs::read(checkpoint("tiny.json")).unwrap()).unwrap();
    let convert = |class: &str, settings: &Value| {
        let mut case = tiny(&all, class);
        case["config"].as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
        write_tiny(&case, &folder);
        let ran = arenite(&["convert", "hf", path(&folder), path(&model)]);
        (ran.status.success(), String::from_utf8_lossy(&ran.stderr).into_owned())
    };
    let layers = json!(["full_attention", "sliding_attention"]);
    for settings in [
        json!({ "sliding_window": 8, "use_sliding_window": true }),
        json!({ "sliding_window": 8, "layer_types": layers }),
    ] {
        let (is_done, said) = convert("OlmoForCausalLM", &settings);
        assert!(!is_done && said.contains("sliding_window in config.json is 8: windows are not supported"), "{said}");
    }
    for class in ["LlamaForCausalLM", "BertModel"] {
        let (is_done, said) = convert(class, &json!({ "num_hidden_layers": 1 }));
        assert!(is_done && !said.contains("predict"), "{said}");
        assert!(said.contains("of the layers from 1 on, because num_hidden_layers in config.json is 1"), "{said}");
    }
}

/// Some settings are left out, with a note that names them: ALiBi slopes of MPT other than 8, because transformers
/// ignores them, too; and dynamic scaling, because it only begins beyond the context.
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

/// transformers loads and runs models whose config has ids of special tokens outside of the vocabulary. For example,
/// these ids are default values of GPT-2's config class.
#[test]
fn special_tokens_outside_of_the_vocabulary_are_left_out() {
    let directory = tempfile::tempdir().unwrap();
    let (folder, model) = (directory.path().join("model"), directory.path().join("model.gguf"));
    fs::create_dir(&folder).unwrap();
    let all: Value = serde_json::from_slice(&fs::read(checkpoint("tiny.json")).unwrap()).unwrap();
    let mut case = tiny(&all, "MptForCausalLM");
    for field in ["bos_token_id", "eos_token_id", "pad_token_id"] {
        case["config"][field] = 50256.into();
    }
    write_tiny(&case, &folder);
    // The tokenizer's own settings name tokens for the beginning and the end of a text, but none for padding. Only the
    // padding id of the config is therefore missing in the first case.
    for left_out in [&["pad_token_id"][..], &["bos_token_id", "eos_token_id", "pad_token_id"]] {
        let ran = arenite(&["convert", "hf", path(&folder), path(&model)]);
        let stderr = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "{stderr}");
        let bytes = fs::read(&model).unwrap();
        for (field, key) in [("bos_token_id", "bos"), ("eos_token_id", "eos"), ("pad_token_id", "padding")] {
            let is_out = left_out.contains(&field);
            let note = format!("{field} in config.json is 50256, but the model has 365 tokens");
            assert_eq!(stderr.contains(&note), is_out, "{stderr}");
            let key = format!("tokenizer.ggml.{key}_token_id");
            assert_eq!(Gguf::parse(&bytes).unwrap().get(&key).is_some(), !is_out, "{key}");
        }
        fs::write(folder.join("tokenizer_config.json"), "{}").unwrap();
    }
}

/// sentence-transformers 6.2 cuts texts after `max_seq_length` tokens (or the tokenizer's `model_max_length`), and
/// embeddings after `truncate_dim` values.
#[test]
fn lengths_of_sentence_transformers_are_reported() {
    let directory = tempfile::tempdir().unwrap();
    let (folder, model) = (directory.path().join("model"), directory.path().join("model.gguf"));
    fs::create_dir(&folder).unwrap();
    let all: Value = serde_json::from_slice(&fs::read(checkpoint("tiny.json")).unwrap()).unwrap();
    write_tiny(&tiny(&all, "BertModel"), &folder);
    for (file, json, note) in [
        ("sentence_bert_config.json", r#"{"max_seq_length": 64}"#, None),
        ("sentence_bert_config.json", r#"{"max_seq_length": 32}"#, Some("cuts texts after 32 tokens")),
        ("sentence_bert_config.json", "{}", None),
        ("tokenizer_config.json", r#"{"model_max_length": 16}"#, Some("cuts texts after 16 tokens")),
        ("tokenizer_config.json", "{}", None),
        ("config_sentence_transformers.json", r#"{"truncate_dim": 8}"#, Some("cuts embeddings after 8 values")),
    ] {
        fs::write(folder.join(file), json).unwrap();
        let ran = arenite(&["convert", "hf", path(&folder), path(&model)]);
        let stderr = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "{stderr}");
        assert_eq!(stderr.contains(" cuts "), note.is_some(), "{stderr}");
        assert!(note.is_none_or(|note| stderr.contains(note)), "{stderr}");
    }
}

/// A published checkpoint of Nomic's mixture of experts stores all experts in one matrix, the second matrix transposed:
/// `w1.view(experts, inner, width)[i].T` and `w2.view(experts, inner, width)[i]` are the factors of expert `i`. A note
/// says that the bias, which is added to the sum of the experts, is left out.
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

/// transformers' class GemmaMLP reads `hidden_act` and ignores `hidden_activation` (as of version 5.24).
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

/// The rows of a reranker's labels are found with the vocabulary that `--tokenizer` names.
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
    // Without `--tokenizer` the conversion fails, because the model's own vocabulary has no labels. `--tokenizer`
    // accepts a folder, or a file of any name.
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
