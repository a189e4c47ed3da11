//! Tiny encoders and encoder-decoders with random weights.

use super::gguf::Builder;
use super::tiny::{CONTEXT, DIM, FFN, HEADS, Random, VOCAB, tiny_llama};

/// Number of layers of the encoder and of the decoder.
pub const LAYERS: [u64; 2] = [2, 3];

/// Names for [`encoder`]: BERT, MPNet, EmbeddingGemma, T5 with and without a gate, and the architecture `seq2seq` with norms
/// before sublayers (as in the English-Hindi translator) and after them.
pub const ENCODERS: [&str; 7] = ["bert", "mpnet", "gemma-embedding", "t5", "t5_gated", "unbiased", "post"];

/// True if a model has no decoder.
pub fn is_alone(kind: &str) -> bool {
    matches!(kind, "bert" | "mpnet" | "gemma-embedding")
}

const BUCKETS: u64 = 8;

/// Builds a tiny model of this kind.
pub fn encoder(kind: &str) -> Builder {
    let architecture = match kind {
        _ if is_alone(kind) => kind,
        "t5" | "t5_gated" => "t5",
        _ => "seq2seq",
    };
    let mut file = Builder::new();
    // All models have Llama's vocabulary.
    file.keys = tiny_llama().keys.into_iter().filter(|key| key.name.starts_with(b"tokenizer.")).collect();
    file.set("general.architecture", architecture);
    let key = |name: &str| format!("{architecture}.{name}");
    for (name, value) in [
        ("block_count", LAYERS[0] as u32),
        ("context_length", CONTEXT as u32),
        ("embedding_length", DIM as u32),
        ("feed_forward_length", FFN as u32),
        ("attention.head_count", HEADS as u32),
    ] {
        file.set(&key(name), value);
    }
    if !is_alone(kind) {
        file.set(&key("decoder_block_count"), LAYERS[1] as u32).set(&key("decoder_start_token_id"), 1u32);
    }
    match architecture {
        "bert" | "mpnet" => {
            file.set(&key("attention.causal"), false).set(&key("attention.layer_norm_epsilon"), 1e-5f32);
            if kind == "mpnet" {
                file.set(&key("attention.relative_buckets_count"), BUCKETS as u32);
            }
        }
        "gemma-embedding" => {
            file.set(&key("attention.layer_norm_rms_epsilon"), 1e-6f32);
            file.set(&key("attention.sliding_window"), 16u32).set(&key("attention.sliding_window_pattern"), 2u32);
            for (name, width) in [("2_feat_in", DIM), ("2_feat_out", FFN), ("3_feat_in", FFN), ("3_feat_out", DIM)] {
                file.set(&key(&format!("dense_{name}")), width as u32);
            }
        }
        "t5" => {
            file.set(&key("attention.layer_norm_rms_epsilon"), 1e-6f32);
            file.set(&key("attention.relative_buckets_count"), BUCKETS as u32);
        }
        _ => {
            let pre = kind == "unbiased";
            file.set(&key("attention.layer_norm_epsilon"), 1e-6f32)
                .set(&key("norm.kind"), if pre { "layer_unbiased" } else { "layer" })
                .set(&key("norm.placement"), if pre { "pre" } else { "post" })
                .set(&key("norm.final"), pre)
                .set(&key("activation"), if pre { "relu" } else { "silu" })
                .set(&key("position.kind"), if pre { "interleaved" } else { "halves" })
                .set(&key("embedding_scale"), (DIM as f32).sqrt())
                .set(&key("bias"), true);
        }
    }
    let mut random = Random(29);
    for (name, dims) in tensors(kind) {
        let is_norm = name.contains("norm.weight");
        let (base, spread) = if is_norm { (1.0, 0.5) } else { (0.0, 1.0 / (dims[0] as f32).sqrt()) };
        let values: Vec<f32> = (0..dims.iter().product()).map(|_| base + random.value() * spread).collect();
        file.set_f32(&name, &dims, &values);
    }
    file
}

/// Names and dimensions of the tensors.
pub fn tensors(kind: &str) -> Vec<(String, Vec<u64>)> {
    let mut all: Vec<(String, Vec<u64>)> = vec![("token_embd.weight".into(), vec![DIM, VOCAB])];
    let mut add = |name: String, dims: &[u64], bias: bool| {
        all.push((format!("{name}.weight"), dims.to_vec()));
        if bias {
            all.push((format!("{name}.bias"), vec![*dims.last().unwrap()]));
        }
    };
    let gemma = kind == "gemma-embedding";
    let biased = !kind.starts_with("t5") && !gemma;
    if gemma {
        add("dense_2".into(), &[DIM, FFN], false);
        add("dense_3".into(), &[FFN, DIM], false);
        add("output_norm".into(), &[DIM], false);
    }
    if matches!(kind, "bert" | "mpnet") {
        add("position_embd".into(), &[DIM, CONTEXT], false);
        if kind == "bert" {
            add("token_types".into(), &[DIM, 2], false);
        }
        add("token_embd_norm".into(), &[DIM], true);
    }
    if kind == "unbiased" {
        add("enc.token_embd".into(), &[DIM, VOCAB + 3], false);
    }
    if matches!(kind, "unbiased" | "post") {
        add("output".into(), &[DIM, VOCAB], true);
    }
    let stacks: &[_] = if is_alone(kind) { &[("", "output")] } else { &[("enc.", "o"), ("dec.", "o")] };
    for ((prefix, output), layers) in stacks.iter().zip(LAYERS) {
        for layer in 0..layers {
            let name = |part: &str| format!("{prefix}blk.{layer}.{part}");
            let attentions: &[_] = if *prefix == "dec." { &["attn", "cross_attn"] } else { &["attn"] };
            for attention in attentions {
                for letter in ["q", "k", "v", output] {
                    add(name(&format!("{attention}_{letter}")), &[DIM, DIM], biased);
                }
                let norm = if matches!(kind, "bert" | "mpnet" | "post") { "output_norm" } else { "norm" };
                add(name(&format!("{attention}_{norm}")), &[DIM], biased);
            }
            if layer == 0 && (kind == "mpnet" || kind.starts_with("t5")) {
                add(name("attn_rel_b"), &[HEADS, BUCKETS], false);
            }
            if gemma {
                for norm in ["attn_q_norm", "attn_k_norm"] {
                    add(name(norm), &[DIM / HEADS], false);
                }
                add(name("post_attention_norm"), &[DIM], false);
                add(name("post_ffw_norm"), &[DIM], false);
            }
            if gemma || kind == "t5_gated" {
                add(name("ffn_gate"), &[DIM, FFN], false);
            }
            add(name("ffn_up"), &[DIM, FFN], biased);
            add(name("ffn_down"), &[FFN, DIM], biased);
            add(
                name(if matches!(kind, "bert" | "mpnet" | "post") { "layer_output_norm" } else { "ffn_norm" }),
                &[DIM],
                biased,
            );
        }
        if matches!(kind, "t5" | "t5_gated" | "unbiased") {
            add(format!("{prefix}output_norm"), &[DIM], biased);
        }
    }
    all
}
