//! Tiny models of the decoder families other than Llama.

use super::gguf::{Builder, Meta};
use super::others::{OTHERS, other};
use super::tiny::{DIM, FFN, HEADS, Random, VOCAB, tiny_llama};

/// Number of layers: enough for every pattern of local layers, and of layers that share keys and values.
pub const LAYERS: u64 = 4;
/// Window of local layers.
pub const WINDOW: u64 = 20;
const HEAD: u64 = DIM / HEADS;
const EXPERTS: u64 = 5;
/// Width of each layer's own input in Gemma 4.
const INPUT: u64 = 8;

/// Families for [`decoder`].
pub const DECODERS: [&str; 31] = [
    "gemma",
    "gemma2",
    "gemma3",
    "gemma4",
    "phi3",
    "stablelm",
    "smollm3",
    "olmo2",
    "granite",
    "mixtral",
    "qwen3moe",
    "exaone4",
    "gpt-oss",
    "hunyuan-dense",
    "mistral3",
    "deepseek2",
    "plm",
    "gemma3n",
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

/// Families with recurrent layers, also for [`decoder`].
pub const RECURRENT: [&str; 14] = [
    "lfm2",
    "qwen35",
    "mamba2",
    "falcon-h1",
    "lfm2moe",
    "qwen35moe",
    "qwen3next",
    "granitehybrid",
    "nemotron_h_moe",
    "mamba",
    "jamba",
    "plamo2",
    "rwkv7",
    "rwkv6",
];

/// Sizes of the states: positions of the convolution, heads, groups, elements of a key and of a value.
const TAPS: u64 = 4;
const SSM: (u64, u64, u64, u64) = (4, 2, 8, 6);
/// Sizes of Mamba-1: channels, states per channel, and the rank of the step. None is a multiple of sixteen.
const SCAN: (u64, u64, u64) = (20, 18, 3);
/// Ranks of RWKV-7: decay, learning rate, value mix, gate.
const RANKS: [u64; 4] = [3, 5, 4, 6];
/// Sizes of latent attention: ranks of queries and of latent vectors; elements of a key that are not rotated, elements
/// that are rotated, and elements of a value.
const LATENT: (u64, u64, u64, u64, u64) = (12, 10, 8, 4, 14);
/// Gemma 3n: number of streams (AltUp), and rank of the path beside attention (LAuReL).
const ALTUP: (u64, u64) = (3, 7);

/// True if a family has local layers.
pub fn is_windowed(family: &str) -> bool {
    matches!(
        family,
        "gemma2" | "gemma3" | "gemma4" | "gemma3n" | "exaone4" | "gpt-oss" | "afmoe" | "smallthinker" | "gemma4_moe"
    )
}

/// Gemma 4's layers: whether the layer is local, the width of a head, the number of KV heads, and whether the layer has
/// its own keys and values.
pub const GEMMA4: [(bool, u64, u64, bool); 4] =
    [(true, HEAD, HEADS, true), (false, 2 * HEAD, 1, true), (true, HEAD, HEADS, false), (false, 2 * HEAD, 1, false)];

/// Builds a tiny model of this family.
pub fn decoder(family: &str) -> Builder {
    if OTHERS.contains(&family) {
        return other(family);
    }
    let architecture = if family == "mixtral" { "llama" } else { family };
    let mut file = tiny_llama();
    for key in &mut file.keys {
        if let Some(rest) = key.name.strip_prefix(b"llama.") {
            key.name = [architecture.as_bytes(), b".", rest].concat();
        }
    }
    file.tensors.retain(|tensor| !tensor.name.starts_with(b"blk."));
    file.set("general.architecture", architecture);
    set_keys(&mut file, family, architecture);

    let mut random = Random(23);
    let mut add = |name: &str, dims: &[u64]| {
        let norm = name.contains("norm.weight")
            || name.contains("scale")
            || name.contains("freqs")
            || name.contains("factors")
            || name.contains("time_mix_ln.weight");
        let (base, spread) = if norm { (1.0, 0.5) } else { (0.0, 1.0 / (dims[0] as f32).sqrt()) };
        let values: Vec<f32> = (0..dims.iter().product()).map(|_| base + random.value() * spread).collect();
        file.set_f32(name, dims, &values);
    };
    for layer in 0..LAYERS {
        for (part, dims) in layer_tensors(family, layer) {
            add(&format!("blk.{layer}.{part}"), &dims);
        }
    }
    match family {
        "gemma4" => {
            add("rope_freqs.weight", &[HEAD]);
            add("per_layer_token_embd.weight", &[LAYERS * INPUT, VOCAB]);
            add("per_layer_model_proj.weight", &[DIM, LAYERS * INPUT]);
            add("per_layer_proj_norm.weight", &[INPUT]);
        }
        "gemma3n" => {
            add("per_layer_token_embd.weight", &[LAYERS * INPUT, VOCAB]);
            add("per_layer_model_proj.weight", &[DIM, LAYERS * INPUT]);
            add("per_layer_proj_norm.weight", &[INPUT]);
            add("altup_proj.weight", &[DIM, DIM, ALTUP.0 - 1]);
            add("altup_unembd_proj.weight", &[DIM, DIM, ALTUP.0 - 1]);
        }
        "rwkv6" | "rwkv7" => {
            ["token_embd_norm.weight", "token_embd_norm.bias", "output_norm.bias"]
                .into_iter()
                .for_each(|name| add(name, &[DIM]));
        }
        "phi3" => {
            add("rope_factors_short.weight", &[HEAD / 2]);
            add("rope_factors_long.weight", &[HEAD / 2]);
        }
        "stablelm" => add("output_norm.bias", &[DIM]),
        "lfm2" | "lfm2moe" => add("token_embd_norm.weight", &[DIM]),
        _ => {}
    }
    if family.starts_with("gemma") {
        file.remove_tensor("output.weight");
    }
    if family.starts_with("lfm2") {
        file.remove_tensor("output_norm.weight");
    }
    file
}

fn set_keys(file: &mut Builder, family: &str, architecture: &str) {
    let mut set = |key: &str, value: Meta| {
        file.set(&format!("{architecture}.{key}"), value);
    };
    set("block_count", (LAYERS as u32).into());
    if is_windowed(family) {
        set("attention.sliding_window", (WINDOW as u32).into());
    }
    match family {
        "gemma2" => {
            set("attn_logit_softcapping", 5.0f32.into());
            set("final_logit_softcapping", 6.0f32.into());
        }
        "gemma3" => {
            set("attention.sliding_window_pattern", 3u32.into());
            set("rope.freq_base", 1e6f32.into());
            set("rope.freq_base_swa", 1e4f32.into());
        }
        "gemma4" => {
            set("attention.sliding_window_pattern", Meta::array(GEMMA4.map(|(local, ..)| local)));
            set("attention.head_count_kv", Meta::array(GEMMA4.map(|(_, _, kv_heads, _)| kv_heads as u32)));
            set("feed_forward_length", Meta::array([0, 1, 2, 3].map(|layer| gemma4_ffn(layer) as u32)));
            set("attention.key_length", (2 * HEAD as u32).into());
            set("attention.key_length_swa", (HEAD as u32).into());
            set("rope.dimension_count", (2 * HEAD as u32).into());
            set("rope.dimension_count_swa", (HEAD as u32).into());
            set("rope.freq_base_swa", 1e4f32.into());
            set("attention.shared_kv_layers", 2u32.into());
            set("embedding_length_per_layer_input", (INPUT as u32).into());
            set("final_logit_softcapping", 8.0f32.into());
        }
        "gemma3n" => {
            set("attention.sliding_window_pattern", Meta::array(GEMMA4.map(|(local, ..)| local)));
            set("attention.shared_kv_layers", 2u32.into());
            set("embedding_length_per_layer_input", (INPUT as u32).into());
            set("final_logit_softcapping", 8.0f32.into());
            set("altup.active_idx", 0u32.into());
            set("altup.num_inputs", (ALTUP.0 as u32).into());
            set("activation_sparsity_scale", Meta::array([1.0f32, f32::NEG_INFINITY, 0.5, f32::NEG_INFINITY]));
        }
        "deepseek2" | "plm" => {
            let (q_rank, rank, nope, rope, value) = LATENT;
            let absorbed = family == "deepseek2";
            set("attention.head_count_kv", (if absorbed { 1 } else { HEADS as u32 }).into());
            set("attention.kv_lora_rank", (rank as u32).into());
            set("attention.key_length", (if absorbed { rank + rope } else { nope + rope } as u32).into());
            set("attention.value_length", (if absorbed { rank } else { value } as u32).into());
            set("rope.dimension_count", (rope as u32).into());
            if absorbed {
                set("attention.q_lora_rank", (q_rank as u32).into());
                set("attention.key_length_mla", ((nope + rope) as u32).into());
                set("attention.value_length_mla", (value as u32).into());
                set("rope.scaling.type", "yarn".into());
                set("rope.scaling.factor", 4.0f32.into());
                set("rope.scaling.original_context_length", 16u32.into());
                set("rope.scaling.yarn_log_multiplier", 0.0707f32.into());
                set("leading_dense_block_count", 1u32.into());
                set("expert_shared_count", 2u32.into());
                set("expert_gating_func", 2u32.into());
                set("expert_group_count", (EXPERTS as u32).into());
                set("expert_group_used_count", 3u32.into());
                set("expert_weights_norm", true.into());
                set("expert_weights_scale", 2.5f32.into());
                set("attention.temperature_scale", 0.1f32.into());
            }
        }
        "mamba" | "jamba" | "plamo2" => {
            let (channels, states, rank) = SCAN;
            let rank = if family == "plamo2" { 4 } else { rank };
            set("ssm.conv_kernel", (TAPS as u32).into());
            set("ssm.inner_size", (channels as u32).into());
            set("ssm.state_size", (states as u32).into());
            set("ssm.time_step_rank", (rank as u32).into());
            if family != "mamba" {
                set("attention.head_count_kv", Meta::array([0u32, 1, 0, 0]));
            } else {
                set("ssm.dt_b_c_rms", true.into());
            }
        }
        "rwkv6" => {
            set("time_decay_extra_dim", (RANKS[0] as u32).into());
            set("time_mix_extra_dim", (RANKS[1] as u32).into());
            set("rescale_every_n_layers", 2u32.into());
            set("wkv.head_size", (HEAD as u32).into());
            set("attention.layer_norm_epsilon", 1e-5f32.into());
        }
        "rwkv7" => {
            let names = ["decay", "iclr", "value_residual_mix", "gate"];
            for (name, rank) in names.into_iter().zip(RANKS) {
                set(&format!("attention.{name}_lora_rank"), (rank as u32).into());
            }
            set("wkv.head_size", (HEAD as u32).into());
            set("attention.layer_norm_epsilon", 1e-5f32.into());
        }
        "phi3" => {
            set("attention.sliding_window", 0u32.into());
            set("rope.scaling.original_context_length", 32u32.into());
            set("rope.scaling.attn_factor", 1.1f32.into());
        }
        "stablelm" => {
            set("attention.layer_norm_epsilon", 1e-5f32.into());
            set("rope.dimension_count", (HEAD as u32 / 4).into());
            set("use_parallel_residual", false.into());
        }
        "granite" => {
            for (key, value) in
                [("attention.scale", 0.2f32), ("embedding_scale", 6.0), ("residual_scale", 0.4), ("logit_scale", 3.0)]
            {
                set(key, value.into());
            }
        }
        "lfm2" | "lfm2moe" => {
            set("attention.head_count_kv", Meta::array([0u32, 1, 0, 1]));
            set("shortconv.l_cache", (TAPS as u32).into());
            if family == "lfm2moe" {
                set("leading_dense_block_count", 1u32.into());
                set("expert_gating_func", 2u32.into());
            }
        }
        "qwen35" | "mamba2" | "falcon-h1" | "qwen35moe" | "qwen3next" | "granitehybrid" | "nemotron_h_moe" => {
            let (heads, groups, keys, width) = SSM;
            set("ssm.conv_kernel", (TAPS as u32).into());
            set("ssm.inner_size", ((heads * width) as u32).into());
            set("ssm.time_step_rank", (heads as u32).into());
            set("ssm.group_count", (groups as u32).into());
            set("ssm.state_size", (keys as u32).into());
            if family.starts_with("qwen3") {
                set("full_attention_interval", 2u32.into());
            }
            if family == "mamba2" {
                set("attention.head_count", 0u32.into());
                set("attention.head_count_kv", 0u32.into());
                set("feed_forward_length", 0u32.into());
            }
        }
        "mistral3" => {
            set("rope.scaling.type", "yarn".into());
            set("rope.scaling.factor", 4.0f32.into());
            set("rope.scaling.original_context_length", 16u32.into());
            set("rope.scaling.yarn_log_multiplier", 1.0f32.into());
            set("attention.temperature_scale", 0.1f32.into());
        }
        _ => {}
    }
    match family {
        "granitehybrid" => set("attention.head_count_kv", Meta::array([0u32, 1, 0, 1])),
        "nemotron_h_moe" => {
            set("attention.head_count_kv", Meta::array([0u32, 0, 1, 0]));
            set("feed_forward_length", Meta::array([0u32, FFN as u32, 0, FFN as u32]));
            set("expert_weights_norm", true.into());
            set("expert_weights_scale", 2.5f32.into());
        }
        _ => {}
    }
    if has_shared(family) && family != "deepseek2" {
        set("expert_shared_feed_forward_length", (2 * FFN as u32).into());
    }
    match family {
        _ if has_experts(family) => {
            set("expert_count", (EXPERTS as u32).into());
            set("expert_used_count", 2u32.into());
            if !matches!(family, "mixtral" | "granitehybrid" | "jamba") {
                set("expert_feed_forward_length", (FFN as u32).into());
            }
        }
        _ => {}
    }
    if family.starts_with("mamba") || family.starts_with("rwkv") {
        file.remove(&format!("{family}.rope.dimension_count"));
        file.set(&format!("{family}.attention.head_count"), 0u32);
        file.set(&format!("{family}.attention.head_count_kv"), 0u32);
    }
    if family == "mamba" {
        file.set("mamba.feed_forward_length", 0u32);
    }
    if family.starts_with("rwkv") {
        file.remove(&format!("{family}.attention.layer_norm_rms_epsilon"));
    }
    if family == "stablelm" {
        file.remove("stablelm.attention.layer_norm_rms_epsilon");
    }
}

/// True if a family has layers with experts.
fn has_experts(family: &str) -> bool {
    matches!(family, "mixtral" | "gpt-oss" | "jamba") || family.contains("moe") || has_shared(family)
}

/// True if a family has a shared expert.
fn has_shared(family: &str) -> bool {
    matches!(family, "qwen35moe" | "qwen3next" | "granitehybrid" | "nemotron_h_moe" | "deepseek2")
}

fn gemma4_ffn(layer: u64) -> u64 {
    if layer < 2 { FFN } else { 2 * FFN }
}

fn layer_tensors(family: &str, layer: u64) -> Vec<(&'static str, Vec<u64>)> {
    let (mut q, mut kv, mut head, mut ffn, mut owns) = (DIM, HEAD, HEAD, FFN, true);
    if family == "gemma4" {
        let (_, width, kv_heads, own) = GEMMA4[layer as usize];
        (q, kv, head, ffn, owns) = (HEADS * width, kv_heads * width, width, gemma4_ffn(layer), own);
    }
    if family == "gemma3n" {
        owns = layer < 2;
    }
    let latent = matches!(family, "deepseek2" | "plm");
    let state = state_tensors(family, layer);
    let nemotron = family == "nemotron_h_moe";
    let attention = (state.is_empty() || family == "falcon-h1") && !(nemotron && layer % 2 == 1);
    let mut tensors = state;
    if family == "plamo2" {
        tensors.extend(["post_attention_norm.weight", "post_ffw_norm.weight"].map(|name| (name, vec![DIM])));
        if attention {
            tensors.extend([("attn_q_norm.weight", vec![head, HEADS]), ("attn_k_norm.weight", vec![head, 1])]);
        }
    }
    if attention && !latent {
        tensors.push(("attn_output.weight", vec![q, DIM]));
    }
    if !attention {
        // The mixer's tensors replace attention's.
    } else if latent {
        tensors.extend(latent_tensors(family));
    } else if matches!(family, "phi3" | "plamo2") {
        tensors.push(("attn_qkv.weight", vec![DIM, q + 2 * kv]));
        if family == "phi3" {
            tensors.push(("ffn_up.weight", vec![DIM, 2 * ffn]));
        }
    } else {
        tensors.push(("attn_q.weight", vec![DIM, if is_delta(family) { 2 * q } else { q }]));
        if owns {
            tensors.push(("attn_k.weight", vec![DIM, kv]));
        }
        // Gemma 4's second layer uses k as v.
        if owns && !(family == "gemma4" && layer == 1) {
            tensors.push(("attn_v.weight", vec![DIM, kv]));
        }
    }
    if nemotron && layer.is_multiple_of(2) {
        // Nemotron's even layers have no feed-forward.
    } else if has_experts(family) && !has_dense(family, layer) {
        tensors.push(("ffn_gate_inp.weight", vec![DIM, EXPERTS]));
        if !nemotron {
            tensors.push(("ffn_gate_exps.weight", vec![DIM, ffn, EXPERTS]));
        }
        if has_shared(family) {
            tensors.push(("ffn_up_shexp.weight", vec![DIM, 2 * ffn]));
            tensors.push(("ffn_down_shexp.weight", vec![2 * ffn, DIM]));
            if !nemotron {
                tensors.push(("ffn_gate_shexp.weight", vec![DIM, 2 * ffn]));
            }
            if is_delta(family) {
                tensors.push(("ffn_gate_inp_shexp.weight", vec![DIM]));
            }
        }
        if nemotron || matches!(family, "lfm2moe" | "deepseek2") {
            tensors.push(("exp_probs_b.bias", vec![EXPERTS]));
        }
        tensors.push(("ffn_up_exps.weight", vec![DIM, ffn, EXPERTS]));
        tensors.push(("ffn_down_exps.weight", vec![ffn, DIM, EXPERTS]));
    } else if !matches!(family, "mamba" | "mamba2" | "rwkv6" | "rwkv7") {
        tensors.push(("ffn_down.weight", vec![ffn, DIM]));
        if family == "plamo2" {
            tensors.push(("ffn_up.weight", vec![DIM, 2 * ffn]));
        } else if family == "plm" {
            tensors.push(("ffn_up.weight", vec![DIM, ffn]));
        } else if family != "phi3" {
            tensors.push(("ffn_gate.weight", vec![DIM, ffn]));
            tensors.push(("ffn_up.weight", vec![DIM, ffn]));
        }
    }
    let norms: &[_] = match family {
        "olmo2" | "exaone4" => &[],
        "nemotron_h_moe" => &["attn_norm.weight"],
        "gpt-oss" | "qwen35" | "qwen35moe" | "qwen3next" => &["attn_norm.weight", "post_attention_norm.weight"],
        "mamba" | "mamba2" => &["attn_norm.weight"],
        "rwkv6" | "rwkv7" => &["attn_norm.weight", "attn_norm.bias", "attn_norm_2.weight", "attn_norm_2.bias"],
        "falcon-h1" => &["attn_norm.weight", "ffn_norm"],
        _ => &["attn_norm.weight", "ffn_norm.weight"],
    };
    tensors.extend(norms.iter().map(|name| (*name, vec![DIM])));
    if is_windowed(family) && family != "gpt-oss" || family == "olmo2" {
        tensors.extend(["post_attention_norm.weight", "post_ffw_norm.weight"].map(|name| (name, vec![DIM])));
    }
    match family {
        "gemma3" | "gemma4" | "gemma3n" | "qwen3moe" | "exaone4" | "hunyuan-dense" | "lfm2" | "lfm2moe" | "qwen35"
        | "qwen35moe" | "qwen3next"
            if attention =>
        {
            tensors.push(("attn_q_norm.weight", vec![head]));
            if owns {
                tensors.push(("attn_k_norm.weight", vec![head]));
            }
        }
        "gpt-oss" => {
            tensors.extend([("attn_q.bias", vec![q]), ("attn_k.bias", vec![kv]), ("attn_v.bias", vec![kv])]);
            tensors.extend([("attn_output.bias", vec![DIM]), ("attn_sinks.weight", vec![HEADS])]);
            tensors.extend([("ffn_gate_inp.bias", vec![EXPERTS]), ("ffn_down_exps.bias", vec![DIM, EXPERTS])]);
            tensors.extend(["ffn_gate_exps.bias", "ffn_up_exps.bias"].map(|name| (name, vec![ffn, EXPERTS])));
        }
        "olmo2" => tensors.extend([("attn_q_norm.weight", vec![q]), ("attn_k_norm.weight", vec![kv])]),
        "stablelm" => {
            tensors.extend(["attn_norm.bias", "ffn_norm.bias"].map(|name| (name, vec![DIM])));
            tensors.extend([("attn_q.bias", vec![q]), ("attn_k.bias", vec![kv]), ("attn_v.bias", vec![kv])]);
            tensors.extend([("attn_q_norm.weight", vec![head, HEADS]), ("attn_k_norm.weight", vec![head, 1])]);
        }
        _ => {}
    }
    if family == "gemma3n" {
        let (streams, rank) = ALTUP;
        tensors.extend([("inp_gate.weight", vec![DIM, INPUT]), ("proj.weight", vec![INPUT, DIM])]);
        tensors.extend([("post_norm.weight", vec![DIM]), ("laurel_post_norm.weight", vec![DIM])]);
        tensors.extend([("laurel_l.weight", vec![DIM, rank]), ("laurel_r.weight", vec![rank, DIM])]);
        tensors.extend([("altup_router.weight", vec![DIM, streams]), ("altup_router_norm.weight", vec![DIM])]);
        tensors.extend([("altup_predict_coef.weight", vec![streams, streams * streams])]);
        tensors.extend([("altup_correct_coef.weight", vec![streams, streams])]);
        tensors.extend([("altup_correct_scale.weight", vec![DIM])]);
    }
    if family == "gemma4" {
        tensors.extend([("inp_gate.weight", vec![DIM, INPUT]), ("proj.weight", vec![INPUT, DIM])]);
        tensors.extend([("post_norm.weight", vec![DIM]), ("layer_output_scale.weight", vec![1])]);
    }
    tensors
}

/// True if this layer has a dense feed-forward while other layers have experts.
fn has_dense(family: &str, layer: u64) -> bool {
    match family {
        "lfm2moe" | "deepseek2" => layer == 0,
        "jamba" => layer.is_multiple_of(2),
        _ => false,
    }
}

/// The tensors of attention over latent vectors.
fn latent_tensors(family: &str) -> Vec<(&'static str, Vec<u64>)> {
    let (q_rank, rank, nope, rope, value) = LATENT;
    let mut tensors = vec![
        ("attn_kv_a_mqa.weight", vec![DIM, rank + rope]),
        ("attn_kv_a_norm.weight", vec![rank]),
        ("attn_output.weight", vec![HEADS * value, DIM]),
    ];
    tensors.extend(match family {
        "plm" => vec![
            ("attn_q.weight", vec![DIM, HEADS * (nope + rope)]),
            ("attn_kv_b.weight", vec![rank, HEADS * (nope + value)]),
        ],
        _ => vec![
            ("attn_q_a.weight", vec![DIM, q_rank]),
            ("attn_q_a_norm.weight", vec![q_rank]),
            ("attn_q_b.weight", vec![q_rank, HEADS * (nope + rope)]),
            ("attn_k_b.weight", vec![nope, rank, HEADS]),
            ("attn_v_b.weight", vec![rank, value, HEADS]),
        ],
    });
    tensors
}

/// True if a family has delta nets and gated queries.
fn is_delta(family: &str) -> bool {
    matches!(family, "qwen35" | "qwen35moe" | "qwen3next")
}

/// The tensors of a layer's recurrent mixer, if it has one.
fn state_tensors(family: &str, layer: u64) -> Vec<(&'static str, Vec<u64>)> {
    let (heads, groups, keys, width) = SSM;
    let inner = heads * width;
    let channels = inner + 2 * groups * keys;
    let of_both = |a: Vec<u64>| {
        vec![
            ("ssm_conv1d.weight", vec![TAPS, channels]),
            ("ssm_a", a),
            ("ssm_dt.bias", vec![heads]),
            ("ssm_out.weight", vec![inner, DIM]),
        ]
    };
    match family {
        "lfm2" | "lfm2moe" if layer.is_multiple_of(2) => vec![
            ("shortconv.in_proj.weight", vec![DIM, 3 * DIM]),
            ("shortconv.conv.weight", vec![TAPS, DIM]),
            ("shortconv.out_proj.weight", vec![DIM, DIM]),
        ],
        _ if is_delta(family) && layer.is_multiple_of(2) => {
            let mut more = vec![
                ("attn_qkv.weight", vec![DIM, channels]),
                ("attn_gate.weight", vec![DIM, inner]),
                ("ssm_norm.weight", vec![width]),
            ];
            more.extend(match family {
                "qwen3next" => vec![("ssm_ba.weight", vec![DIM, 2 * heads])],
                _ => ["ssm_alpha.weight", "ssm_beta.weight"].map(|name| (name, vec![DIM, heads])).to_vec(),
            });
            of_both(vec![heads]).into_iter().chain(more).collect()
        }
        "granitehybrid" | "nemotron_h_moe" if layer % 2 == 1 || family == "nemotron_h_moe" && layer == 2 => {
            vec![]
        }
        "mamba2" | "falcon-h1" | "granitehybrid" | "nemotron_h_moe" => {
            let more = [
                ("ssm_in.weight", vec![DIM, inner + channels + heads]),
                ("ssm_conv1d.bias", vec![channels]),
                ("ssm_d", vec![1, heads]),
                ("ssm_norm.weight", vec![inner / groups, groups]),
            ];
            of_both(vec![1, heads]).into_iter().chain(more).collect()
        }
        "jamba" | "plamo2" if layer == 1 => vec![],
        "mamba" | "jamba" | "plamo2" => scan_tensors(family),
        "rwkv6" => rwkv6_tensors(),
        "rwkv7" => rwkv_tensors(layer),
        _ => vec![],
    }
}

/// The tensors of Mamba-1.
fn scan_tensors(family: &str) -> Vec<(&'static str, Vec<u64>)> {
    let (channels, states, rank) = SCAN;
    if family == "plamo2" {
        // Four heads; the step's rank is at least 64.
        return vec![
            ("ssm_in.weight", vec![DIM, 2 * channels]),
            ("ssm_conv1d.weight", vec![TAPS, channels]),
            ("ssm_x.weight", vec![channels, 64 + 2 * states]),
            ("ssm_dt.weight", vec![64, 4]),
            ("ssm_dt.bias", vec![4]),
            ("ssm_a", vec![4]),
            ("ssm_d", vec![4]),
            ("ssm_dt_norm.weight", vec![64]),
            ("ssm_b_norm.weight", vec![states]),
            ("ssm_c_norm.weight", vec![states]),
            ("ssm_out.weight", vec![channels, DIM]),
        ];
    }
    let mut tensors = vec![
        ("ssm_in.weight", vec![DIM, 2 * channels]),
        ("ssm_conv1d.weight", vec![TAPS, channels]),
        ("ssm_conv1d.bias", vec![channels]),
        ("ssm_x.weight", vec![channels, rank + 2 * states]),
        ("ssm_dt.weight", vec![rank, channels]),
        ("ssm_dt.bias", vec![channels]),
        ("ssm_a", vec![states, channels]),
        ("ssm_d", vec![channels]),
        ("ssm_out.weight", vec![channels, DIM]),
    ];
    if family == "jamba" {
        tensors.extend([("ssm_dt_norm.weight", vec![rank]), ("ssm_b_norm.weight", vec![states])]);
        tensors.push(("ssm_c_norm.weight", vec![states]));
    }
    tensors
}

/// The tensors of RWKV-7.
fn rwkv_tensors(layer: u64) -> Vec<(&'static str, Vec<u64>)> {
    let [decay, learning, mixed, gate] = RANKS;
    let mixed = if layer > 0 { mixed } else { learning };
    let mut tensors = vec![
        ("time_mix_lerp_fused.weight", vec![DIM, 1, 1, 6]),
        ("time_mix_w1.weight", vec![DIM, decay]),
        ("time_mix_w2.weight", vec![decay, DIM]),
        ("time_mix_a1.weight", vec![DIM, learning]),
        ("time_mix_a2.weight", vec![learning, DIM]),
        ("time_mix_v1.weight", vec![DIM, mixed]),
        ("time_mix_v2.weight", vec![mixed, DIM]),
        ("time_mix_g1.weight", vec![DIM, gate]),
        ("time_mix_g2.weight", vec![gate, DIM]),
        ("channel_mix_lerp_k.weight", vec![DIM]),
        ("channel_mix_key.weight", vec![DIM, FFN]),
        ("channel_mix_value.weight", vec![FFN, DIM]),
    ];
    let names = [
        "time_mix_w0.weight",
        "time_mix_a0.weight",
        "time_mix_v0.weight",
        "time_mix_k_k.weight",
        "time_mix_k_a.weight",
        "time_mix_r_k.weight",
        "time_mix_ln.weight",
        "time_mix_ln.bias",
    ];
    tensors.extend(names.map(|name| (name, vec![DIM])));
    let matrices =
        ["time_mix_key.weight", "time_mix_value.weight", "time_mix_receptance.weight", "time_mix_output.weight"];
    tensors.extend(matrices.map(|name| (name, vec![DIM, DIM])));
    tensors
}

/// The tensors of RWKV-6.
fn rwkv6_tensors() -> Vec<(&'static str, Vec<u64>)> {
    let [decay, mixed, ..] = RANKS;
    vec![
        ("time_mix_w1.weight", vec![DIM, 5 * mixed]),
        ("time_mix_w2.weight", vec![mixed, DIM, 5]),
        ("time_mix_lerp_x.weight", vec![DIM]),
        ("time_mix_lerp_fused.weight", vec![DIM, 1, 1, 5]),
        ("time_mix_first.weight", vec![HEAD, HEADS]),
        ("time_mix_decay.weight", vec![DIM]),
        ("time_mix_decay_w1.weight", vec![DIM, decay]),
        ("time_mix_decay_w2.weight", vec![decay, DIM]),
        ("time_mix_key.weight", vec![DIM, DIM]),
        ("time_mix_value.weight", vec![DIM, DIM]),
        ("time_mix_receptance.weight", vec![DIM, DIM]),
        ("time_mix_gate.weight", vec![DIM, DIM]),
        ("time_mix_output.weight", vec![DIM, DIM]),
        ("time_mix_ln.weight", vec![DIM]),
        ("time_mix_ln.bias", vec![DIM]),
        ("channel_mix_lerp_k.weight", vec![DIM]),
        ("channel_mix_lerp_r.weight", vec![DIM]),
        ("channel_mix_key.weight", vec![DIM, FFN]),
        ("channel_mix_value.weight", vec![FFN, DIM]),
        ("channel_mix_receptance.weight", vec![DIM, DIM]),
    ]
}
