//! Tiny models of decoder families whose only independent reference is llama.cpp.

use super::gguf::{Builder, Meta};
use super::tiny::{DIM, FFN, Random, VOCAB, tiny_llama};

const LAYERS: u64 = 4;
/// Elements of a head: four query heads, and two heads of keys and values.
const HEAD: u64 = DIM / 4;
const EXPERTS: u64 = 6;

/// A family: its architecture, keys, and tensors. A digit before tensors restricts them to some layers: the first one (0),
/// all but the first (1), all but the last (2), or the last one (3).
///
/// Some keys are not written to the file: `width` is the width of the hidden state, `global` names a vector of the whole
/// model, `tied` and `bare` leave out the head and the last norm, and a minus sign leaves out a key.
pub struct Peer {
    pub architecture: &'static str,
    keys: &'static str,
    tensors: &'static [&'static str],
    /// True if llama.cpp's logits are less accurate, because llama.cpp looks up GELU in a table.
    pub is_rough: bool,
}

const A: &str = "attn_q D,D; attn_k D,K; attn_v D,K; attn_output D,D";
/// Attention with as many heads of keys and values as of queries.
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
const DELTA: &str = "2attn_q D,D; attn_k D,D; attn_v D,D; attn_output D,D; ssm_conv1d_q 4,1,D; ssm_conv1d_k 4,1,D; ssm_conv1d_v 4,1,D; ssm_beta D,4; ssm_dt.bias D; ssm_norm 8";
const MLA: &str = "3attn_kv_a_mqa D,20; attn_kv_a_norm 16; attn_k_b 8,16,4; attn_v_b 16,8,4; attn_output D,D";
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
    "talkie" "logit_scale 0.5; bare", [A, FFN3, "attn_q_norm 1,4; layer_output_scale 1; attn_output.scale 1; ffn_down.scale 1"];
    "hrm_text" "block_count 12; embedding_scale 3.0; hrm.layers_per_stack 2; hrm.h_cycles 2; hrm.l_cycles 2; hrm.prefix_lm false; bare; global hrm.z_l_init",
        [A, FFN3, "attn_gate D,D"];
    "arwkv7" "width 128; attention.head_count 0; attention.head_count_kv 0; -rope.dimension_count; wkv.head_size 64; token_shift_count 1; attention.decay_lora_rank 8; attention.iclr_lora_rank 12; attention.value_residual_mix_lora_rank 4; attention.gate_lora_rank 16",
        [NORMS, FFN3, "time_mix_w0 D; time_mix_w1 D,8; time_mix_w2 8,D; time_mix_a0 D; time_mix_a1 D,12; time_mix_a2 12,D; time_mix_v0 D", "0time_mix_v1 D,12; time_mix_v2 12,D", "1time_mix_v1 D,4; time_mix_v2 4,D",
         "time_mix_g1 D,16; time_mix_g2 16,D; time_mix_lerp_fused D,1,1,6; time_mix_k_k D; time_mix_k_a D; time_mix_r_k D; time_mix_ln D; time_mix_ln.bias D",
         "time_mix_key D,D; time_mix_value D,D; time_mix_receptance D,D; time_mix_output D,D"];
    "rwkv6qwen2" "attention.head_count 0; -rope.dimension_count; wkv.head_size 8; token_shift_count 1; time_mix_extra_dim 4; time_decay_extra_dim 8",
        [NORMS, FFN3, "time_mix_w1 D,20; time_mix_w2 4,D,5; time_mix_lerp_x D; time_mix_lerp_fused D,1,1,5; time_mix_decay D; time_mix_decay_w1 D,8; time_mix_decay_w2 8,D",
         "time_mix_key D,K; time_mix_value D,K; time_mix_receptance D,D; time_mix_gate D,D; time_mix_output D,D; time_mix_key.bias K; time_mix_value.bias K; time_mix_receptance.bias D"];
    "grovemoe" "expert_count 6; expert_used_count 2; expert_feed_forward_length 32; experts_per_group 2; expert_chunk_feed_forward_length 8; expert_group_scale 0.5",
        [A, NORMS, HEADS, EXPERT, "ffn_gate_chexps D,8,3; ffn_up_chexps D,8,3; ffn_down_chexps 8,D,3"];
    "arctic" "feed_forward_length 32; expert_count 6; expert_used_count 2", [A, NORMS, "ffn_norm_exps D; ffn_gate D,D; ffn_up D,D; ffn_down D,D", EXPERT];
    "kimi-linear" "attention.layer_norm_rms_epsilon 0.000001; attention.head_count_kv [0,0,0,1]; attention.kv_lora_rank 16; attention.key_length 20; attention.key_length_mla 12; attention.value_length_mla 8; rope.dimension_count 4; ssm.conv_kernel 4; kda.head_dim 8; expert_count 6; expert_used_count 2; expert_feed_forward_length 32; leading_dense_block_count 1; expert_shared_count 1; expert_weights_scale 2.0; expert_gating_func 2",
        [NORMS, DELTA, "2ssm_f_a D,8; ssm_f_b 8,D; ssm_g_a D,8; ssm_g_b 8,D", "2!ssm_a 1,4", "3attn_q D,48", MLA, DENSE0, EXPERT1, SHARED1, "1exp_probs_b.bias E"];
    "bailingmoe3" "attention.layer_norm_rms_epsilon 0.000001; attention.head_count_kv [0,0,0,1]; attention.q_lora_rank 16; attention.kv_lora_rank 16; attention.key_length 20; attention.key_length_mla 12; attention.value_length_mla 8; rope.dimension_count 4; ssm.conv_kernel 4; kda.head_dim 8; kda.safe_gate true; kda.gate_lower_bound -5.0; expert_count 6; expert_used_count 2; expert_feed_forward_length 32; leading_dense_block_count 1; expert_shared_count 1; expert_shared_feed_forward_length 32; expert_weights_scale 2.0; expert_weights_norm true; expert_gating_func 2",
        [NORMS, DELTA, "2ssm_f_a D,D; ssm_g_a D,D", "2!ssm_a 1,4", "3attn_q_a D,16; attn_q_a_norm 16; attn_q_b 16,48; attn_gate D,4", MLA, DENSE0, EXPERT1, SHARED1, "1exp_probs_b.bias E"];
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
    let (mut width, mut global) = (DIM, None);
    for key in keys.flat_map(|keys| keys.split("; ")).filter(|key| !key.is_empty()) {
        match key.split_once(' ') {
            Some(("width", value)) => width = value.parse().unwrap(),
            Some(("global", name)) => global = Some(name),
            Some((key, value)) => drop(file.set(&format!("{architecture}.{key}"), meta(value))),
            None if key == "tied" => drop(file.remove_tensor("output.weight")),
            None if key == "bare" => drop(file.remove_tensor("output_norm.weight")),
            None if key.starts_with('-') => drop(file.remove(&format!("{architecture}.{}", &key[1..]))),
            None => {
                file.remove(&format!("{architecture}.attention.layer_norm_rms_epsilon"));
                file.set(&format!("{architecture}.attention.layer_norm_epsilon"), 1e-5f32);
            }
        }
    }
    file.set(&format!("{architecture}.embedding_length"), width as u32);
    let mut random = Random(31);
    let mut add = |name: &str, dims: &[u64]| {
        let norm = name.contains("norm") && !name.ends_with(".bias");
        let (base, spread) = match name.ends_with("ssm_a") {
            // Kimi Linear's `ssm_a` is negative. Ling's (`bailingmoe3`) is a positive factor.
            true => (if architecture == "kimi-linear" { -1.0 } else { 1.0 }, 0.5),
            false if norm => (1.0, 0.5),
            false => (0.0, 1.5 / (dims[0] as f32).sqrt()),
        };
        let values: Vec<f32> = (0..dims.iter().product()).map(|_| base + random.value() * spread).collect();
        file.set_f32(name, dims, &values);
    };
    if width != DIM {
        add("token_embd.weight", &[width, VOCAB]);
        add("output.weight", &[width, VOCAB]);
        add("output_norm.weight", &[width]);
    }
    if let Some(name) = global {
        add(name, &[width]);
    }
    for layer in 0..LAYERS {
        for list in family.tensors {
            let (first, last) = (layer == 0, layer + 1 == LAYERS);
            let list = match (list.chars().next(), &list[1..]) {
                (Some('0'), list) if first => list,
                (Some('1'), list) if !first => list,
                (Some('2'), list) if !last => list,
                (Some('3'), list) if last => list,
                (Some('0'..='3'), _) => continue,
                _ => list,
            };
            let (list, is_bare) = (list.trim_start_matches('!'), list.starts_with('!'));
            for (name, dims) in list.split("; ").map(|tensor| tensor.split_once(' ').unwrap()) {
                let dims: Vec<u64> = dims.split(',').map(|name| size(name, width)).collect();
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

/// Families with layers that have a state.
pub const STATEFUL: [&str; 4] = ["arwkv7", "rwkv6qwen2", "kimi-linear", "bailingmoe3"];

/// True if a family of [`PEERS`] has a state or a window, so that a context cannot be rewound to any position.
pub fn forgets(name: &str) -> bool {
    let has_window = |family: &Peer| family.architecture == name && family.keys.contains("window");
    STATEFUL.contains(&name) || PEERS.iter().any(has_window)
}

/// The tiny model of this architecture.
pub fn peer_of(architecture: &str) -> Builder {
    peer(PEERS.iter().find(|family| family.architecture == architecture).unwrap())
}

/// Every family's tiny model, with the name of its architecture.
pub fn all_peers() -> impl Iterator<Item = (&'static str, Builder)> {
    PEERS.iter().map(|family| (family.architecture, peer(family)))
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

/// Returns the value of a size, by its letters in [`PEERS`].
fn size(name: &str, width: u64) -> u64 {
    match name {
        "D" => width,
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
