//! Tiny models of further decoder families, built from a list of tensors and keys for each family.

use super::gguf::{Builder, Meta};
use super::tiny::{DIM, FFN, HEADS, Random, tiny_llama};

const LAYERS: u64 = 4;
const WINDOW: u32 = 20;
const HEAD: u64 = DIM / HEADS;
const EXPERTS: u64 = 6;

const ATTENTION: &str = "attn_q D,D; attn_k D,H; attn_v D,H; attn_output D,D";
const GATED: &str = "ffn_gate D,F; ffn_up D,F; ffn_down F,D";
const NORMS: &str = "attn_norm D; ffn_norm D";
const POST_NORMS: &str = "post_attention_norm D; post_ffw_norm D";
const HEAD_NORMS: &str = "attn_q_norm H; attn_k_norm H";
const EXPERT: &str = "ffn_gate_inp D,E; ffn_gate_exps D,F,E; ffn_up_exps D,F,E; ffn_down_exps F,D,E";
const SHARED: &str = "ffn_gate_shexp D,G; ffn_up_shexp D,G; ffn_down_shexp G,D";

/// Families for [`other`].
pub const OTHERS: [&str; 13] = [
    "command-r",
    "gptneox",
    "mpt",
    "olmo",
    "bitnet",
    "apertus",
    "glm4",
    "afmoe",
    "llama4",
    "phimoe",
    "smallthinker",
    "gemma4_moe",
    "dots1",
];

/// Tensors of the layers, each a name and its dimensions; `.weight` is left out. A list that begins with `0` applies to
/// the first layer alone, one that begins with `1` to all other layers.
fn tensors(family: &str) -> Vec<&'static str> {
    match family {
        "command-r" => vec![ATTENTION, GATED, "attn_norm D; attn_q_norm H,N; attn_k_norm H,1"],
        "gptneox" => vec![
            NORMS,
            "attn_norm.bias D; ffn_norm.bias D; attn_qkv D,Q; attn_qkv.bias Q; attn_output D,D; attn_output.bias D",
            "ffn_up D,F; ffn_up.bias F; ffn_down F,D; ffn_down.bias D",
        ],
        "mpt" => vec![NORMS, "attn_qkv D,Q; attn_output D,D; ffn_up D,F; ffn_down F,D"],
        "olmo" => vec![ATTENTION, GATED],
        "bitnet" => vec![ATTENTION, GATED, NORMS, "attn_sub_norm D; ffn_sub_norm F"],
        "apertus" => vec![ATTENTION, NORMS, HEAD_NORMS, "ffn_up D,F; ffn_down F,D"],
        "glm4" => vec![ATTENTION, NORMS, POST_NORMS, "ffn_up D,G; ffn_down F,D"],
        "afmoe" => vec![
            ATTENTION,
            NORMS,
            POST_NORMS,
            HEAD_NORMS,
            "attn_gate D,D",
            "0ffn_gate D,F; ffn_up D,F; ffn_down F,D",
            "1ffn_gate_inp D,E; ffn_gate_exps D,F,E; ffn_up_exps D,F,E; ffn_down_exps F,D,E; exp_probs_b.bias E",
            "1ffn_gate_shexp D,G; ffn_up_shexp D,G; ffn_down_shexp G,D",
        ],
        "llama4" => {
            vec![ATTENTION, NORMS, EXPERT, "ffn_gate_shexp D,F; ffn_up_shexp D,F; ffn_down_shexp F,D"]
        }
        "phimoe" => vec![ATTENTION, NORMS, "attn_norm.bias D; ffn_norm.bias D", EXPERT],
        "smallthinker" => vec![ATTENTION, NORMS, EXPERT],
        "gemma4_moe" => vec![
            ATTENTION,
            GATED,
            NORMS,
            POST_NORMS,
            HEAD_NORMS,
            EXPERT,
            "ffn_gate_inp.scale D; pre_ffw_norm_2 D; post_ffw_norm_1 D; post_ffw_norm_2 D",
        ],
        _ => vec![ATTENTION, NORMS, HEAD_NORMS, EXPERT, SHARED, "exp_probs_b.bias E"],
    }
}

/// Keys, besides those of Llama.
fn keys(family: &str) -> Vec<(&'static str, Meta)> {
    let experts = || vec![("expert_count", (EXPERTS as u32).into()), ("expert_used_count", 2u32.into())];
    let with = |more: Vec<(&'static str, Meta)>| experts().into_iter().chain(more).collect();
    match family {
        "command-r" => vec![("logit_scale", 0.25f32.into())],
        "gptneox" => vec![("use_parallel_residual", true.into())],
        "mpt" => vec![("attention.max_alibi_bias", 6.0f32.into()), ("attention.clamp_kqv", 0.7f32.into())],
        "olmo" => vec![("attention.clamp_kqv", 0.7f32.into())],
        "afmoe" => with(vec![
            ("attention.sliding_window", WINDOW.into()),
            ("leading_dense_block_count", 1u32.into()),
            ("expert_shared_count", 2u32.into()),
            ("expert_gating_func", 2u32.into()),
            ("expert_weights_scale", 2.0f32.into()),
        ]),
        "smallthinker" => with(vec![("attention.sliding_window", WINDOW.into())]),
        "gemma4_moe" => with(vec![
            ("attention.sliding_window", WINDOW.into()),
            ("attention.sliding_window_pattern", Meta::array([true, true, true, false])),
            ("rope.freq_base_swa", 1e4f32.into()),
            ("expert_feed_forward_length", (FFN as u32).into()),
        ]),
        "llama4" => with(vec![("expert_feed_forward_length", (FFN as u32).into())]),
        "dots1" => with(vec![
            ("expert_group_count", 3u32.into()),
            ("expert_group_used_count", 2u32.into()),
            ("expert_shared_count", 2u32.into()),
        ]),
        "phimoe" => experts(),
        _ => vec![],
    }
}

/// Builds a tiny model of this family.
pub fn other(family: &str) -> Builder {
    let architecture = if family == "gemma4_moe" { "gemma4" } else { family };
    let mut file = tiny_llama();
    for key in &mut file.keys {
        if let Some(rest) = key.name.strip_prefix(b"llama.") {
            key.name = [architecture.as_bytes(), b".", rest].concat();
        }
    }
    file.tensors.retain(|tensor| !tensor.name.starts_with(b"blk."));
    file.set("general.architecture", architecture).set(&format!("{architecture}.block_count"), LAYERS as u32);
    if matches!(family, "command-r" | "gptneox" | "mpt" | "olmo") {
        file.remove(&format!("{architecture}.attention.layer_norm_rms_epsilon"));
        file.set(&format!("{architecture}.attention.layer_norm_epsilon"), 1e-5f32);
    }
    for (key, value) in keys(family) {
        file.set(&format!("{architecture}.{key}"), value);
    }
    if family == "apertus" {
        for (key, value) in [("alpha_n", 0.3f32), ("alpha_p", 0.4), ("beta", 0.5), ("eps", -1e-6)] {
            file.set(&format!("xielu.{key}"), Meta::array([0.0, 0.1, 0.2, 0.3].map(|more| value + more * value)));
        }
    }
    let mut random = Random(29);
    let mut add = |name: &str, dims: &[u64]| {
        let norm = name.contains("norm") && !name.ends_with(".bias") || name.ends_with(".scale");
        let (base, spread) = if norm { (1.0, 0.5) } else { (0.0, 1.0 / (dims[0] as f32).sqrt()) };
        let values: Vec<f32> = (0..dims.iter().product()).map(|_| base + random.value() * spread).collect();
        file.set_f32(name, dims, &values);
    };
    for layer in 0..LAYERS {
        for list in tensors(family) {
            let list = match (list.strip_prefix('0'), list.strip_prefix('1')) {
                (Some(list), _) if layer == 0 => list,
                (_, Some(list)) if layer > 0 => list,
                (None, None) => list,
                _ => continue,
            };
            for (name, dims) in list.split("; ").map(|tensor| tensor.split_once(' ').unwrap()) {
                let dims: Vec<u64> = dims.split(',').map(size).collect();
                let end = if name.contains('.') { "" } else { ".weight" };
                add(&format!("blk.{layer}.{name}{end}"), &dims);
            }
        }
    }
    if matches!(family, "gptneox" | "phimoe") {
        add("output_norm.bias", &[DIM]);
    }
    if matches!(family, "command-r" | "mpt" | "bitnet" | "gemma4_moe") {
        file.remove_tensor("output.weight");
    }
    if family == "olmo" {
        file.remove_tensor("output_norm.weight");
    }
    file
}

/// Returns the value of a size, by its letters in a table of shapes.
fn size(name: &str) -> u64 {
    match name {
        "D" => DIM,
        "F" => FFN,
        "G" => 2 * FFN,
        "H" => HEAD,
        "N" => HEADS,
        "Q" => DIM + 2 * HEAD,
        "E" => EXPERTS,
        number => number.parse().unwrap(),
    }
}
