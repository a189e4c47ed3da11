//! Decision models. The folders have the tensors of llama.cpp's conversions under the names of the published
//! checkpoints, and a small vocabulary.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use arenite::Gguf;
use arenite_gguf_writer::Header;
use arenite_run::RunOptions;
use arenite_run::decide::{DecisionModel, Request};
use arenite_run::model_file::ModelFile;
use arenite_run::open_model::OpenModel;
use serde_json::{Value, json};

use super::checkpoint;
use crate::common::{error, fixtures, path, stdout};

const TEMPLATE: &str = "tokenizer.chat_template.systemone";

/// Returns a model that llama.cpp's converter has written, and requests to it with the expected prompts.
fn case(kind: &str) -> Option<(Vec<u8>, Value)> {
    let folder = fixtures(&format!("decisions/decision_{kind}_a"))?;
    let reference = serde_json::from_slice(&fs::read(folder.join("ref.json")).unwrap()).unwrap();
    Some((fs::read(folder.join("model.gguf")).unwrap(), reference))
}

/// The name of a tensor of Qwen 3.5 in checkpoints.
fn of_qwen(name: &str) -> String {
    const NAMES: &[(&str, &str)] = &[
        ("attn_norm", "input_layernorm"),
        ("post_attention_norm", "post_attention_layernorm"),
        ("ssm_a", "linear_attn.A_log"),
        ("ssm_conv1d", "linear_attn.conv1d"),
        ("ssm_dt.bias", "linear_attn.dt_bias"),
        ("ssm_alpha", "linear_attn.in_proj_a"),
        ("ssm_beta", "linear_attn.in_proj_b"),
        ("attn_qkv", "linear_attn.in_proj_qkv"),
        ("attn_gate", "linear_attn.in_proj_z"),
        ("ssm_norm", "linear_attn.norm"),
        ("ssm_out", "linear_attn.out_proj"),
        ("ffn_gate", "mlp.gate_proj"),
        ("ffn_up", "mlp.up_proj"),
        ("ffn_down", "mlp.down_proj"),
        ("attn_q", "self_attn.q_proj"),
        ("attn_k", "self_attn.k_proj"),
        ("attn_v", "self_attn.v_proj"),
        ("attn_output", "self_attn.o_proj"),
        ("attn_q_norm", "self_attn.q_norm"),
        ("attn_k_norm", "self_attn.k_norm"),
    ];
    renamed(name, NAMES, "model.layers.", &[("token_embd", "model.embed_tokens"), ("output_norm", "model.norm")])
}

/// Returns the name of a tensor of laya, given that the encoder has `layers` layers.
fn of_laya(name: &str, layers: usize) -> String {
    const ENCODER: &[(&str, &str)] = &[
        ("attn_norm", "attn_norm"),
        ("attn_qkv", "attn.Wqkv"),
        ("attn_output", "attn.Wo"),
        ("ffn_norm", "mlp_norm"),
        ("ffn_up", "mlp.Wi"),
        ("ffn_down", "mlp.Wo"),
    ];
    const SCORING: &[(&str, &str)] = &[
        ("attn_norm", "norm1"),
        ("attn_qkv.weight", "self_attn.in_proj_weight"),
        ("attn_qkv.bias", "self_attn.in_proj_bias"),
        ("attn_output", "self_attn.out_proj"),
        ("ffn_norm", "norm2"),
        ("ffn_up", "linear1"),
        ("ffn_down", "linear2"),
    ];
    const OTHERS: &[(&str, &str)] = &[
        ("token_embd", "encoder.embeddings.tok_embeddings"),
        ("token_embd_norm", "encoder.embeddings.norm"),
        ("output_norm", "encoder.final_norm"),
        ("token_types", "type_emb"),
        ("cls.norm", "scorer.0"),
        ("cls", "scorer.1"),
        ("cls.output", "scorer.3"),
    ];
    let number = name.strip_prefix("blk.").and_then(|rest| rest.split_once('.')?.0.parse::<usize>().ok());
    match number {
        Some(number) if number >= layers => {
            let name = name.replacen(&format!("blk.{number}."), &format!("blk.{}.", number - layers), 1);
            renamed(&name, SCORING, "head.layers.", OTHERS)
        }
        _ => renamed(name, ENCODER, "encoder.layers.", OTHERS),
    }
}

fn renamed(name: &str, of_layer: &[(&str, &str)], layers: &str, others: &[(&str, &str)]) -> String {
    let (place, rest, names) = match name.strip_prefix("blk.").and_then(|rest| rest.split_once('.')) {
        Some((number, rest)) => (format!("{layers}{number}."), rest, of_layer),
        None => (String::new(), name, others),
    };
    let whole = names.iter().find(|(own, _)| *own == rest).map(|(_, new)| (*new).to_owned());
    let stem = || {
        let (stem, suffix) = rest.rsplit_once('.')?;
        let (_, new) = names.iter().find(|(own, _)| *own == stem)?;
        Some(format!("{new}.{suffix}"))
    };
    place + &whole.or_else(stem).unwrap_or_else(|| panic!("{name} has no name in checkpoints"))
}

/// Writes the tensors of a GGUF file as safetensors. The tensors `unused` are added, each with a single value. The
/// tensors of a head are left out if the head is stored in a separate file.
fn write_tensors(gguf: &Gguf<'_>, unused: &[&str], to: &Path, name: impl Fn(&str) -> String) {
    let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
    let is_laya = gguf.tensor("cls.norm.weight").is_some();
    for tensor in gguf.tensors().filter(|tensor| is_laya || !is_of_head(tensor.name)) {
        let mut shape: Vec<u64> = tensor.dims.into_iter().take(tensor.dim_count as usize).collect();
        shape.reverse();
        if tensor.name.contains("ssm_conv1d") {
            shape.insert(1, 1);
        }
        let start = data.len();
        // States decay by `-exp(A_log)`.
        if tensor.name.ends_with("ssm_a") {
            let values = tensor.data.as_chunks().0.iter().map(|bytes| (-f32::from_le_bytes(*bytes)).ln());
            data.extend(values.flat_map(f32::to_le_bytes));
        } else {
            data.extend_from_slice(tensor.data);
        }
        let entry = json!({ "dtype": "F32", "shape": shape, "data_offsets": [start, data.len()] });
        header.insert(name(tensor.name), entry);
    }
    for name in unused {
        let start = data.len();
        data.extend(1f32.to_le_bytes());
        header.insert((*name).to_owned(), json!({ "dtype": "F32", "shape": [1], "data_offsets": [start, data.len()] }));
    }
    let header = Value::from(header).to_string().into_bytes();
    fs::write(to, [&(header.len() as u64).to_le_bytes()[..], &header, &data].concat()).unwrap();
}

fn write(folder: &Path, name: &str, value: &Value) {
    let to = folder.join(name);
    fs::create_dir_all(to.parent().unwrap()).unwrap();
    fs::write(to, value.to_string()).unwrap();
}

/// Writes the folder of a decision model.
fn write_folder(kind: &str, gguf: &Gguf<'_>, folder: &Path) {
    let is_laya = ["laya", "julia"].contains(&kind);
    let tokenizer = if is_laya { folder.join("tokenizer") } else { folder.to_owned() };
    fs::create_dir_all(&tokenizer).unwrap();
    fs::copy(checkpoint("own_commands").join("tokenizer.json"), tokenizer.join("tokenizer.json")).unwrap();
    let marks = json!({ "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]" });
    write(&tokenizer, "tokenizer_config.json", &if is_laya { marks } else { json!({}) });
    if is_laya {
        let activation = if kind == "laya" { "gelu" } else { "silu" };
        let config = json!({
            "architectures": ["ModernBertModel"], "vocab_size": 600, "hidden_size": 64, "intermediate_size": 96,
            "num_hidden_layers": 4, "num_attention_heads": 4, "max_position_embeddings": 1024, "layer_norm_eps": 1e-5,
            "norm_eps": 1e-5, "local_attention": 16, "global_attn_every_n_layers": 3, "global_rope_theta": 160_000.0,
            "local_rope_theta": 10_000.0, "hidden_activation": activation, "classifier_pooling": "cls",
        });
        write(folder, "encoder/config.json", &config);
        let (name, scoring) = match kind {
            "laya" => (
                "rl_agent_config.json",
                json!({
                    "head_layers": 2, "head_max_len": 96, "temperature": [1.3, 0.9, 1.7],
                    "temperature_by_options": {
                        "choice:2": 1.1, "choice:3-5": 1.4, "choice:6-10": 0.7, "choice:11+": 2.2, "score:6-10": 0.5,
                    },
                }),
            ),
            _ => ("julia_config.json", json!({ "head_layers": 2, "head_max_len": 64, "temperature": [1.3, 0.9, 1.7] })),
        };
        write(folder, name, &scoring);
        let unused = ["act_head.0.weight", "act_head.2.bias", "temperature"];
        write_tensors(gguf, &unused, &folder.join("model.safetensors"), |name| of_laya(name, 4));
        return;
    }
    let config = json!({
        "architectures": ["Qwen3_5ForCausalLM"], "vocab_size": 832, "hidden_size": 64, "intermediate_size": 128,
        "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
        "max_position_embeddings": 2048, "rms_norm_eps": 1e-6, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 16,
        "linear_value_head_dim": 16, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "tie_word_embeddings": true,
        "layer_types": ["linear_attention", "full_attention", "linear_attention", "full_attention"],
        "full_attention_interval": 2, "hidden_act": "silu",
        "rope_parameters": {
            "rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": 0.5, "mrope_section": [2, 1, 1],
        },
    });
    write(folder, "config.json", &config);
    match kind {
        "openjev" => write(folder, "helper/shim.py", &json!("")),
        "lev" => {
            write(folder, "lev_release.json", &json!({}));
            let temperatures = json!({
                "choice:A:small": 0.9, "choice:A:mid": 1.7, "choice:A:large": 2.5, "choice:B:large": 3.0, "score:A": 1.2,
                "noul:A": 1.1,
            });
            write(folder, "calibration.json", &json!({ "temperatures": temperatures }));
        }
        "kev" => {
            write(folder, "training_config.json", &json!({ "args": { "head_dim": 24 } }));
            fs::copy(checkpoint("kev_head.pt"), folder.join("head.pt")).unwrap();
        }
        "clef" => {
            let settings = json!({ "routing_layers": 1, "layers": 2, "heads": 4 });
            write(folder, "joint_head_config.json", &settings);
            write_joint_head(gguf, &folder.join("joint_head.safetensors"));
        }
        _ => write(folder, "schema_config.json", &json!({ "task": "schema_candidate_classification_v2" })),
    }
    write_tensors(gguf, &[], &folder.join("model.safetensors"), of_qwen);
}

/// Writes the head of a clef model under the names of torch's modules, which have query, key and value in one tensor.
fn write_joint_head(gguf: &Gguf<'_>, to: &Path) {
    const LAYER: &[(&str, &str)] = &[
        ("attn_norm", "norm1"),
        ("attn_o", "self_attn.out_proj"),
        ("cross_attn_norm", "norm2"),
        ("cross_attn_o", "multihead_attn.out_proj"),
        ("ffn_norm", "norm3"),
        ("ffn_up", "linear1"),
        ("ffn_down", "linear2"),
    ];
    const ROUTING: &[(&str, &str)] = &[
        ("cross_attn_norm", "query_norm"),
        ("cross_attn_norm_kv", "memory_norm"),
        ("cross_attn_o", "attention.out_proj"),
        ("ffn_norm", "feedforward_norm"),
        ("ffn_up", "feedforward.0"),
        ("ffn_down", "feedforward.3"),
    ];
    const OTHERS: &[(&str, &str)] = &[
        ("token_types", "type_embedding"),
        ("hidden_norm", "hidden_norm"),
        ("proj_memory", "memory_projection"),
        ("proj_question", "question_projection"),
        ("proj_option_question", "option_question_projection"),
        ("proj_global", "global_projection"),
        ("proj_option_context", "option_context_projection"),
        ("proj_option_lexical", "option_lexical_projection"),
        ("option_summary_norm", "option_summary_norm"),
        ("field_norm", "field_norm"),
        ("option_norm", "option_norm"),
        ("scorer", "residual_scorer.0"),
        ("scorer_out", "residual_scorer.3"),
    ];
    let mut tensors: BTreeMap<String, (Vec<u64>, Vec<u8>)> = BTreeMap::new();
    for tensor in gguf.tensors().filter(|tensor| is_of_head(tensor.name)) {
        let mut shape: Vec<u64> = tensor.dims.into_iter().take(tensor.dim_count as usize).collect();
        shape.reverse();
        if tensor.name == "decision.scales" {
            let value = |at: usize| f32::from_le_bytes(*tensor.data.as_chunks().0.get(at).unwrap());
            let gate = (value(2) / (1.0 - value(2))).ln();
            for (name, value) in
                [("prior_logit_scale", value(0).ln()), ("joint_logit_scale", value(1).ln()), ("residual_gate", gate)]
            {
                tensors.insert(name.into(), (vec![], value.to_le_bytes().into()));
            }
            continue;
        }
        let name = tensor.name.trim_start_matches("decision.");
        let Some(rest) = name.strip_prefix("dec.blk.") else {
            tensors.insert(renamed(name, &[], "", OTHERS), (shape, tensor.data.into()));
            continue;
        };
        let (number, rest) = rest.split_once('.').unwrap();
        let number: usize = number.parse().unwrap();
        let (layers, names) = match number {
            0 => ("evidence_layers.0.".to_owned(), ROUTING),
            number => (format!("layers.{}.", number - 1), LAYER),
        };
        let (stem, end) = rest.rsplit_once('.').unwrap();
        let Some((attention, "q" | "k" | "v")) = stem.rsplit_once('_') else {
            tensors.insert(layers + &renamed(rest, &[], "", names), (shape, tensor.data.into()));
            continue;
        };
        let module = match (number, attention) {
            (0, _) => "attention",
            (_, "attn") => "self_attn",
            _ => "multihead_attn",
        };
        let name = format!("{layers}{module}.in_proj_{end}");
        let part = |letter: &str| gguf.tensor(&format!("dec.blk.{number}.{attention}_{letter}.{end}")).unwrap().data;
        shape[0] *= 3;
        tensors.insert(name, (shape, ["q", "k", "v"].map(part).concat()));
    }
    let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
    for (name, (shape, bytes)) in tensors {
        let start = data.len();
        data.extend(bytes);
        header.insert(name, json!({ "dtype": "F32", "shape": shape, "data_offsets": [start, data.len()] }));
    }
    let header = Value::from(header).to_string().into_bytes();
    fs::write(to, [&(header.len() as u64).to_le_bytes()[..], &header, &data].concat()).unwrap();
}

/// Returns true for the tensors that belong to a head, and that are absent if the head has a separate file.
fn is_of_head(name: &str) -> bool {
    ["decision.", "dec.", "token_types", "cls."].iter().any(|begin| name.starts_with(begin))
}

/// Returns the keys of an architecture, without the size of the vocabulary.
fn keys(gguf: &Gguf<'_>) -> BTreeMap<String, Value> {
    let prefix = format!("{}.", gguf.architecture().unwrap());
    let own = gguf.keys().filter(|(key, _)| key.starts_with(&prefix) && !key.ends_with("vocab_size"));
    own.map(|(key, value)| (key.to_owned(), super::value(&value))).collect()
}

/// The file `gguf` with another template.
fn with_template(gguf: &Gguf<'_>, template: &str, to: PathBuf) -> PathBuf {
    let mut header = Header::new();
    gguf.keys().for_each(|(key, value)| header.set(key, value));
    header.set(TEMPLATE, template);
    for tensor in gguf.tensors() {
        let dims: Vec<u64> = tensor.dims.into_iter().take(tensor.dim_count as usize).collect();
        header.tensor(tensor.name, &dims, tensor.kind).unwrap();
    }
    let mut data = header.write(fs::File::create(&to).unwrap()).unwrap();
    gguf.tensors().for_each(|tensor| std::io::Write::write_all(&mut data, tensor.data).unwrap());
    data.finish().unwrap();
    to
}

#[test]
fn decision_models_are_those_of_llama_cpps_converter() {
    for kind in ["openjev", "lev", "nimble", "kev", "clef", "laya", "julia"] {
        let Some((reference, requests)) = case(kind) else { continue };
        let reference = Gguf::parse(&reference).unwrap();
        let folder = tempfile::tempdir().unwrap();
        write_folder(kind, &reference, &folder.path().join("model"));
        let output = folder.path().join("model.gguf");
        stdout(&["convert", "hf", path(&folder.path().join("model")), path(&output)]);
        let new = fs::read(&output).unwrap();
        let new = Gguf::parse(&new).unwrap();
        assert_eq!(keys(&new), keys(&reference), "{kind}");
        let tensors = |gguf: &Gguf<'_>| gguf.tensors().map(|t| (t.name.to_owned(), t.dims)).collect::<BTreeMap<_, _>>();
        assert_eq!(tensors(&new), tensors(&reference), "{kind}");
        let is_laya = ["laya", "julia"].contains(&kind);
        for tensor in reference.tensors().filter(|tensor| is_laya || is_of_head(tensor.name)) {
            let own = new.tensors().find(|own| own.name == tensor.name).unwrap().data;
            // The scales are computed from logarithms.
            let close =
                |(a, b): (&[u8; 4], &[u8; 4])| (f32::from_le_bytes(*a) / f32::from_le_bytes(*b) - 1.0).abs() < 1e-6;
            let is_right = match tensor.name {
                "decision.scales" => own.as_chunks().0.iter().zip(tensor.data.as_chunks().0).all(close),
                _ => own == tensor.data,
            };
            assert!(is_right, "{kind} {}", tensor.name);
        }
        // The template differs from the one that llama.cpp's converter writes, but gives the same prompts.
        let template = new.str("tokenizer.chat_template", "systemone").unwrap().unwrap();
        let template = std::str::from_utf8(template).unwrap();
        let file = with_template(&reference, template, folder.path().join("template.gguf"));
        let open = OpenModel::new(ModelFile::open(&*file).unwrap(), RunOptions::default()).unwrap();
        let model = DecisionModel::new(open.gguf(), open.vocabulary().unwrap()).unwrap().unwrap();
        for want in requests["requests"].as_array().unwrap() {
            let part = |name| want["request"].get(name);
            let mut request = Request::read(part("state"), part("questions"), 255).unwrap();
            model.arrange(&mut request);
            let rendered = want["prompts"].as_array().unwrap().iter().map(|prompt| prompt["prompt"].as_str().unwrap());
            assert_eq!(model.prompts(&request).unwrap(), rendered.collect::<Vec<_>>(), "{kind} {}", want["name"]);
        }
    }
}

#[test]
fn adapters_of_decision_models_are_refused_with_the_steps_to_take() {
    let folder = tempfile::tempdir().unwrap();
    let said = |files: &[(&str, Value)]| {
        let model = folder.path().join("model");
        fs::create_dir_all(&model).unwrap();
        files.iter().for_each(|(name, value)| write(&model, name, value));
        let said = error(&["convert", "hf", path(&model), path(&folder.path().join("out.gguf"))]);
        fs::remove_dir_all(&model).unwrap();
        said
    };
    let adapter = ("adapter_config.json", json!({ "base_model_name_or_path": "own/base" }));
    let said_of_lev = said(&[("lev_release.json", json!({})), adapter.clone()]);
    assert!(said_of_lev.contains("an adapter of the type lev: merge it into own/base"), "{said_of_lev}");
    let kev = [("head.pt", json!("")), ("training_config.json", json!({ "args": { "head_dim": 24 } })), adapter];
    let said_of_kev = said(&kev);
    assert!(said_of_kev.contains("of the type kev") && said_of_kev.contains("copy head.pt and"), "{said_of_kev}");
}
