//! Tiny models of decoder families whose only independent reference is llama.cpp.

use super::gguf::{Builder, Meta};
use super::tiny::{DIM, FFN, Random, VOCAB, tiny_llama};

const LAYERS: u64 = 4;
/// Elements of a head: four query heads, and two heads of keys and values.
const HEAD: u64 = DIM / 4;
const EXPERTS: u64 = 6;

/// A family: its architecture, keys, and tensors. After a digit, tensors exist only in the first layer (0), or only in
/// the others (1).
pub struct Peer {
    pub architecture: &'static str,
    keys: &'static str,
    tensors: &'static [&'static str],
    /// True if the result of llama.cpp is less accurate: it looks up GELU in a table.
    pub is_rough: bool,
}

const A: &str = "attn_q D,D; attn_k D,K; attn_v D,K; attn_output D,D";
/// As many heads of keys and values as of queries.
const M: &str = "attn_q D,D; attn_k D,D; attn_v D,D; attn_output D,D";
const FUSED: &str = "attn_qkv D,Q; attn_output D,D";
const FUSED_M: &str = "attn_qkv D,3D; attn_output D,D";
const FFN3: &str = "ffn_gate D,F; ffn_up D,F; ffn_down F,D";
const FFN2: &str = "ffn_up D,2F; ffn_down F,D";
const NORMS: &str = "attn_norm D; ffn_norm D";
const BIASED: &str = "attn_norm.bias D; ffn_norm.bias D";
const POST: &str = "post_attention_norm D; post_ffw_norm D";
const HEADS: &str = "attn_q_norm H; attn_k_norm H";
const EXPERT: &str = "ffn_gate_inp D,E; ffn_gate_exps D,W,E; ffn_up_exps D,W,E; ffn_down_exps W,D,E";
const EXPERT1: &str = "1ffn_gate_inp D,E; ffn_gate_exps D,W,E; ffn_up_exps D,W,E; ffn_down_exps W,D,E";
const SHARED: &str = "ffn_gate_shexp D,W; ffn_up_shexp D,W; ffn_down_shexp W,D";
const SHARED1: &str = "1ffn_gate_shexp D,W; ffn_up_shexp D,W; ffn_down_shexp W,D";
const DENSE0: &str = "0ffn_gate D,F; ffn_up D,F; ffn_down F,D";
const WINDOW: &str =
    "attention.sliding_window 16; rope.freq_base_swa 5000.0; attention.key_length 8; attention.value_length 8";

macro_rules! peers {
    ($($architecture:literal $keys:expr, [$($tensors:expr),*] $($rough:literal)?;)*) => {
        /// The families.
        pub const PEERS: &[Peer] = &[$(Peer {
            architecture: $architecture,
            keys: $keys,
            tensors: &[$($tensors),*],
            is_rough: false $(|| $rough)?,
        }),*];
    };
}

peers! {
    "internlm2" "", [A, FFN3, NORMS];
    "xverse" "", [A, FFN3, NORMS];
    "orion" "layer_norm", [A, FFN3, NORMS, BIASED];
    "minicpm" "embedding_scale 3.0; residual_scale 0.5; logit_scale 2.0", [A, FFN3, NORMS];
    "codeshell" "layer_norm", [FUSED, "attn_qkv.bias Q; attn_output.bias D; ffn_up D,F; ffn_down F,D; ffn_up.bias F; ffn_down.bias D", NORMS, BIASED] true;
    "qwen" "feed_forward_length 128; attention.head_count_kv 4", [FUSED_M, "attn_qkv.bias 3D", FFN3, NORMS];
    "maincoder" "", [A, FFN3, NORMS, HEADS];
    "chatglm" "rope.dimension_count 4", [FUSED, "attn_qkv.bias Q", FFN2, NORMS];
    "deepseek" "expert_count 6; expert_used_count 2; expert_feed_forward_length 32; leading_dense_block_count 1; expert_shared_count 1; expert_weights_scale 1.0",
        [A, NORMS, DENSE0, EXPERT1, SHARED1];
    "bailingmoe" "expert_count 6; expert_used_count 2; expert_feed_forward_length 32; leading_dense_block_count 0; expert_shared_count 1; expert_weights_scale 1.0; expert_weights_norm true",
        [A, NORMS, EXPERT, SHARED];
    "bailingmoe2" "expert_count 6; expert_used_count 2; expert_feed_forward_length 32; leading_dense_block_count 1; expert_shared_count 1; expert_weights_scale 2.5; expert_weights_norm true; expert_gating_func 2; expert_group_count 2; expert_group_used_count 1; rope.dimension_count 4",
        [FUSED, NORMS, HEADS, DENSE0, EXPERT1, SHARED1, "1exp_probs_b.bias E"];
    "plm" "attention.kv_lora_rank 16; attention.key_length 12; attention.value_length 12; rope.dimension_count 4; attention.head_count_kv 4; tied",
        ["attn_q D,48; attn_kv_a_mqa D,20; attn_kv_a_norm 16; attn_kv_b 16,80; attn_output 48,D; ffn_up D,F; ffn_down F,D", NORMS];
    "plamo" "", [A, FFN3, "attn_norm D"];
    "refact" "attention.head_count_kv 4", [M, FFN3, NORMS];
    "jais" "layer_norm; attention.max_alibi_bias 8.0; attention.head_count_kv 4",
        [FUSED_M, "attn_qkv.bias 3D; attn_output.bias D; ffn_gate.bias F; ffn_up.bias F; ffn_down.bias D", FFN3, NORMS, BIASED];
    "openelm" "tied; attention.key_length 8; attention.value_length 8; attention.head_count [2,4,4,4]; attention.head_count_kv [1,2,2,2]; feed_forward_length [32,64,64,64]",
        ["0attn_qkv D,32; attn_output 16,D; ffn_gate D,32; ffn_up D,32; ffn_down 32,D", "1attn_qkv D,Q; attn_output D,D; ffn_gate D,F; ffn_up D,F; ffn_down F,D", NORMS, HEADS];
    "plamo3" "attention.sliding_window_pattern 2; window", [FUSED, FFN2, NORMS, HEADS, "!post_attention_norm D; post_ffw_norm D"];
    "spark2_5" "attention.sliding_window_pattern [true,true,true,false]; rope.dimension_count 4; rope.dimension_count_swa 8; window",
        [A, FFN3, NORMS, "attn_gate D,4"] true;
    "maple" "expert_count 6; expert_used_count 2; expert_feed_forward_length 32; attention.sliding_window_pattern [true,true,false,true]; swiglu_clamp_exp 0.0; window",
        [A, NORMS, HEADS, EXPERT];
    "step35" "expert_count 6; expert_used_count 2; expert_feed_forward_length 32; leading_dense_block_count 1; expert_shared_feed_forward_length 32; expert_weights_scale 1.5; expert_weights_norm true; moe_every_n_layers 1; attention.sliding_window_pattern [false,true,true,true]; attention.head_count [2,4,4,4]; attention.head_count_kv [2,2,2,2]; window",
        ["0attn_q D,16; attn_k D,K; attn_v D,K; attn_output 16,D; attn_gate D,2", "1attn_q D,D; attn_k D,K; attn_v D,K; attn_output D,D; attn_gate D,4", NORMS, HEADS, DENSE0, EXPERT1, SHARED1, "1exp_probs_b.bias E"];
    "mimo2" "expert_count 6; expert_used_count 2; expert_feed_forward_length 32; attention.sliding_window 16; attention.sliding_window_pattern [0,1,1,1]; rope.freq_base_swa 5000.0; attention.key_length 12; attention.value_length 8; attention.value_scale 0.7; rope.dimension_count 4; attention.head_count_kv [1,2,2,2]",
        ["0attn_q D,48; attn_k D,12; attn_v D,8; attn_output D,D", "1attn_q D,48; attn_k D,24; attn_v D,16; attn_output D,D; attn_sinks 4", NORMS, DENSE0, EXPERT1, "1exp_probs_b.bias E"];
    "hy_v3" "expert_count 6; expert_used_count 2; expert_feed_forward_length 32; expert_weights_scale 2.8; expert_weights_norm true; expert_gating_func 2; expert_shared_feed_forward_length 32",
        [A, NORMS, HEADS, DENSE0, EXPERT1, SHARED1, "1!exp_probs_b E"];
    "granite_swa" "embedding_scale 3.0; residual_scale 0.5; logit_scale 2.0; attention.scale 0.3; attention.sliding_window 16; attention.sliding_window_pattern [false,true,true,false]",
        [A, FFN3, NORMS, "attn_sinks 4"];
    "cohere2moe" "layer_norm; logit_scale 0.5; expert_count 6; expert_used_count 2; expert_feed_forward_length 32; leading_dense_block_count 1; expert_shared_count 1; expert_shared_feed_forward_length 32; expert_weights_norm true; attention.sliding_window 16; attention.sliding_window_pattern [false,true,true,false]",
        [A, "attn_norm D", DENSE0, EXPERT1, SHARED1];
    "laguna" "expert_count 6; expert_used_count 2; expert_feed_forward_length 32; leading_dense_block_count 1; expert_shared_feed_forward_length 32; expert_weights_scale 1.5; expert_weights_norm true; expert_gating_func 2; attention.head_count [2,4,4,4]; rope.dimension_count 4; rope.dimension_count_swa 8; window",
        ["0attn_q D,16; attn_k D,K; attn_v D,K; attn_output 16,D; attn_gate D,2", "1attn_q D,D; attn_k D,K; attn_v D,K; attn_output D,D; attn_gate D,4", NORMS, HEADS, DENSE0, EXPERT1, SHARED1, "1exp_probs_b.bias E"];
    "muse-glimmer" "logit_scale 0.5; final_logit_softcapping 20.0; window", [A, FFN3, NORMS, POST, HEADS, "attn_gate D,D"];
    "deepseek2-ocr" "expert_count 6; expert_used_count 2; expert_feed_forward_length 32; leading_dense_block_count 1; expert_shared_count 1; expert_weights_scale 1.0; attention.head_count_kv 4; attention.key_length 8; attention.value_length 8",
        [M, NORMS, DENSE0, EXPERT1, SHARED1];
    "nanbeige" "num_loops 2", [A, FFN3, NORMS];
    "deci" "attention.key_length 8; attention.value_length 8; attention.head_count [4,0,0,0]; attention.head_count_kv [2,0,0,0]; feed_forward_length [32,64,64,64]",
        ["0attn_norm D", "0attn_q D,D; attn_k D,K; attn_v D,K; attn_output D,D", "ffn_norm D", "0ffn_gate D,32; ffn_up D,32; ffn_down 32,D", "1ffn_gate D,F; ffn_up D,F; ffn_down F,D"];
    "cogvlm" "attention.head_count_kv 4", [FUSED_M, FFN3, NORMS, "vis_attn_qkv D,3D; vis_attn_output D,D; vis_gate D,F; vis_up D,F; vis_down F,D"];
}

/// Builds a tiny model of a family.
pub fn peer(family: &Peer) -> Builder {
    let architecture = family.architecture;
    let mut file = tiny_llama();
    for key in &mut file.keys {
        if let Some(rest) = key.name.strip_prefix(b"llama.") {
            key.name = [architecture.as_bytes(), b".", rest].concat();
        }
    }
    file.tensors.retain(|tensor| !tensor.name.starts_with(b"blk."));
    file.set("general.architecture", architecture);
    for (key, value) in [("block_count", LAYERS), ("attention.head_count", 4), ("attention.head_count_kv", 2)] {
        file.set(&format!("{architecture}.{key}"), value as u32);
    }
    file.set(&format!("{architecture}.rope.dimension_count"), HEAD as u32);
    let keys = family.keys.split("; ").map(|key| if key == "window" { WINDOW } else { key });
    for key in keys.flat_map(|keys| keys.split("; ")).filter(|key| !key.is_empty()) {
        match key.split_once(' ') {
            Some((key, value)) => drop(file.set(&format!("{architecture}.{key}"), meta(value))),
            None if key == "tied" => drop(file.remove_tensor("output.weight")),
            None => {
                file.remove(&format!("{architecture}.attention.layer_norm_rms_epsilon"));
                file.set(&format!("{architecture}.attention.layer_norm_epsilon"), 1e-5f32);
            }
        }
    }
    let mut random = Random(31);
    let mut add = |name: &str, dims: &[u64]| {
        let norm = name.contains("norm") && !name.ends_with(".bias");
        let (base, spread) = if norm { (1.0, 0.5) } else { (0.0, 1.5 / (dims[0] as f32).sqrt()) };
        let values: Vec<f32> = (0..dims.iter().product()).map(|_| base + random.value() * spread).collect();
        file.set_f32(name, dims, &values);
    };
    for layer in 0..LAYERS {
        for list in family.tensors {
            let list = match (list.strip_prefix('0'), list.strip_prefix('1')) {
                (Some(list), _) if layer == 0 => list,
                (_, Some(list)) if layer > 0 => list,
                (None, None) => list,
                _ => continue,
            };
            let (list, is_bare) = (list.trim_start_matches('!'), list.starts_with('!'));
            for (name, dims) in list.split("; ").map(|tensor| tensor.split_once(' ').unwrap()) {
                let dims: Vec<u64> = dims.split(',').map(size).collect();
                let end = if name.contains('.') || is_bare { "" } else { ".weight" };
                add(&format!("blk.{layer}.{name}{end}"), &dims);
            }
        }
    }
    if ["orion", "codeshell", "jais"].contains(&architecture) {
        add("output_norm.bias", &[DIM]);
    }
    file
}

/// The ids of the text that logits are compared for.
pub fn text() -> Vec<u32> {
    (0..40).map(|i| if i == 0 { 1 } else { 3 + (i * 37 + i * i * 11) % (VOCAB as u32 - 3) }).collect()
}

/// A value as written in [`PEERS`].
fn meta(value: &str) -> Meta {
    match value.strip_prefix('[').and_then(|list| list.strip_suffix(']')) {
        Some(list) if list.contains("e") => Meta::array(list.split(',').map(|x| x == "true").collect::<Vec<_>>()),
        Some(list) => Meta::array(list.split(',').map(|x| x.parse::<i32>().unwrap()).collect::<Vec<_>>()),
        None if value.contains("e") => (value == "true").into(),
        None if value.contains('.') => value.parse::<f32>().unwrap().into(),
        None => value.parse::<u32>().unwrap().into(),
    }
}

/// The number that stands for a size.
fn size(name: &str) -> u64 {
    match name {
        "D" => DIM,
        "3D" => 3 * DIM,
        "F" => FFN,
        "2F" => 2 * FFN,
        "H" => HEAD,
        "K" => 2 * HEAD,
        "Q" => DIM + 4 * HEAD,
        "E" => EXPERTS,
        "W" => 32,
        number => number.parse().unwrap(),
    }
}
