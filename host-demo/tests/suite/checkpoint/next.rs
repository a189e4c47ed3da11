//! Layers that predict further tokens, in checkpoints.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use arenite::Gguf;
use serde_json::{Value, json};

use super::checkpoint;
use crate::common::{fixtures, json as output, path, skip, stdout};

/// Names in GGUF and in checkpoints of GLM 4.5.
const NAMES: &[(&str, &str)] = &[
    ("output.weight", "lm_head.weight"),
    ("token_embd.weight", "model.embed_tokens.weight"),
    ("output_norm.weight", "model.norm.weight"),
    ("attn_norm.", "input_layernorm."),
    ("post_attention_norm.", "post_attention_layernorm."),
    ("attn_q.", "self_attn.q_proj."),
    ("attn_k.", "self_attn.k_proj."),
    ("attn_v.", "self_attn.v_proj."),
    ("attn_output.", "self_attn.o_proj."),
    ("ffn_gate.", "mlp.gate_proj."),
    ("ffn_up.", "mlp.up_proj."),
    ("ffn_down.", "mlp.down_proj."),
    ("ffn_gate_inp.", "mlp.gate."),
    ("exp_probs_b.bias", "mlp.gate.e_score_correction_bias"),
    ("ffn_gate_exps.", "mlp.experts.#.gate_proj."),
    ("ffn_up_exps.", "mlp.experts.#.up_proj."),
    ("ffn_down_exps.", "mlp.experts.#.down_proj."),
    ("ffn_gate_shexp.", "mlp.shared_experts.gate_proj."),
    ("ffn_up_shexp.", "mlp.shared_experts.up_proj."),
    ("ffn_down_shexp.", "mlp.shared_experts.down_proj."),
    ("nextn.eh_proj.", "eh_proj."),
    ("nextn.enorm.", "enorm."),
    ("nextn.hnorm.", "hnorm."),
    ("nextn.shared_head_norm.", "shared_head.norm."),
    ("nextn.shared_head_head.", "shared_head.head."),
    ("nextn.embed_tokens.", "embed_tokens."),
];

/// Writes the tensors of a GGUF file in the form in which a checkpoint stores them.
fn write(gguf: &Gguf<'_>, to: &Path) {
    let mut tensors: BTreeMap<String, (Vec<u64>, &[u8])> = BTreeMap::new();
    for tensor in gguf.tensors() {
        let (layer, name) = match tensor.name.strip_prefix("blk.").and_then(|rest| rest.split_once('.')) {
            Some((number, name)) => (format!("model.layers.{number}."), name),
            None => (String::new(), tensor.name),
        };
        let (old, new) = NAMES.iter().find(|(old, _)| name.starts_with(old)).expect("a known name");
        let new = format!("{layer}{new}{}", &name[old.len()..]);
        let mut shape: Vec<u64> = tensor.dims[..tensor.dim_count as usize].to_vec();
        shape.reverse();
        if new.contains('#') {
            let each = tensor.data.len() / shape[0] as usize;
            for (expert, data) in tensor.data.chunks(each).enumerate() {
                tensors.insert(new.replace('#', &expert.to_string()), (shape[1..].to_vec(), data));
            }
        } else {
            tensors.insert(new, (shape, tensor.data));
        }
    }
    let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
    for (name, (shape, bytes)) in tensors {
        let offsets = [data.len(), data.len() + bytes.len()];
        data.extend(bytes);
        header.insert(name, json!({ "dtype": "F32", "shape": shape, "data_offsets": offsets }));
    }
    let header = Value::from(header).to_string().into_bytes();
    fs::write(to, [&(header.len() as u64).to_le_bytes()[..], &header, &data].concat()).unwrap();
}

/// Writes the tokenizer of the test checkpoint `own_commands`, limited to its first `rows` tokens.
fn write_tokenizer(rows: u64, folder: &Path) {
    let text = fs::read(checkpoint("own_commands").join("tokenizer.json")).unwrap();
    let mut tokenizer: Value = serde_json::from_slice(&text).unwrap();
    let vocabulary = tokenizer["model"]["vocab"].as_object_mut().unwrap();
    vocabulary.retain(|_, id| id.as_u64().unwrap() < rows);
    let vocabulary = vocabulary.clone();
    let merges = tokenizer["model"]["merges"].as_array_mut().unwrap();
    merges.retain(|merge| {
        let parts = merge.as_array().expect("a pair").iter().map(|part| part.as_str().unwrap());
        vocabulary.contains_key(&parts.collect::<String>())
    });
    tokenizer["added_tokens"].as_array_mut().unwrap().retain(|token| token["id"].as_u64().unwrap() < rows);
    fs::write(folder.join("tokenizer.json"), tokenizer.to_string()).unwrap();
}

/// The fixture was written by llama.cpp's converter. For the text of this test, all tokens that its predicting layers
/// propose are right.
#[test]
fn they_are_kept_as_in_llama_cpps_files() {
    let Some(root) = fixtures("drafts") else { return skip("fixtures/drafts") };
    let source = fs::read(root.join("mtp_glm4moe_a").join("model.gguf")).unwrap();
    let source = Gguf::parse(&source).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let (folder, file) = (directory.path().join("model"), directory.path().join("model.gguf"));
    fs::create_dir(&folder).unwrap();
    write(&source, &folder.join("model.safetensors"));
    write_tokenizer(360, &folder);
    let config = json!({
        "architectures": ["Glm4MoeForCausalLM"], "model_type": "glm4_moe", "num_hidden_layers": 2, "hidden_size": 64,
        "intermediate_size": 96, "moe_intermediate_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2,
        "head_dim": 16, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1,
        "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1, "routed_scaling_factor": 1.0, "norm_topk_prob": true,
        "rms_norm_eps": 1e-5, "rope_theta": 1e4, "partial_rotary_factor": 0.5, "max_position_embeddings": 1024,
        "vocab_size": 360, "attention_bias": true, "tie_word_embeddings": false, "num_nextn_predict_layers": 1,
    });
    fs::write(folder.join("config.json"), config.to_string()).unwrap();
    stdout(&["convert", "hf", path(&folder), path(&file)]);
    let bytes = fs::read(&file).unwrap();
    let gguf = Gguf::parse(&bytes).unwrap();
    for tensor in source.tensors() {
        assert!(gguf.tensor(tensor.name).is_some_and(|own| own.data == tensor.data), "{}", tensor.name);
    }
    assert_eq!(gguf.tensors().count(), source.tensors().count());
    for (key, value) in source.keys().filter(|(key, _)| key.starts_with("glm4moe.")) {
        assert_eq!(gguf.get(key).map(|own| format!("{own:?}")), Some(format!("{value:?}")), "{key}");
    }
    let how = ["generate", "-m", path(&file), "--ids", "5,9,20,33,47", "-n", "10", "--temp", "0", "--format", "json"];
    let plain = output(&[&how[..], &["--draft", "off"]].concat());
    let drafted = output(&[&how[..], &["--draft", "auto"]].concat());
    assert_eq!(drafted["ids"], plain["ids"]);
    assert!(drafted["draft_n_accepted"].as_u64() >= Some(3), "{drafted}");
}
