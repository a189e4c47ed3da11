//! Variants of [`tiny_llama`]: other families, weight types, windows and sizes.

use super::gguf::Builder;
use super::tiny::{CONTEXT, DIM, FFN, HEAD_DIM, HEADS, KV_HEADS, LAYERS, Random, tiny_llama};

/// Elements of a token's keys, and of its values.
const KV_DIM: u64 = KV_HEADS * HEAD_DIM;

/// A tiny model of this family: `llama`, `qwen2`, `qwen3` or `gpt2`.
pub fn tiny(family: &str) -> Builder {
    let mut file = tiny_llama();
    for key in &mut file.keys {
        if let Some(rest) = key.name.strip_prefix(b"llama.") {
            key.name = [family.as_bytes(), b".", rest].concat();
        }
    }
    file.set("general.architecture", family);
    let mut random = Random(7);
    let mut add = |file: &mut Builder, name: &str, dims: &[u64]| {
        let values: Vec<f32> = (0..dims.iter().product()).map(|_| random.value() * 0.5).collect();
        file.set_f32(name, dims, &values);
    };
    for layer in 0..LAYERS {
        let name = |part: &str| format!("blk.{layer}.{part}");
        match family {
            "llama" => {}
            "qwen2" => {
                add(&mut file, &name("attn_q.bias"), &[DIM]);
                add(&mut file, &name("attn_k.bias"), &[KV_DIM]);
                add(&mut file, &name("attn_v.bias"), &[KV_DIM]);
            }
            "qwen3" => {
                add(&mut file, &name("attn_q_norm.weight"), &[HEAD_DIM]);
                add(&mut file, &name("attn_k_norm.weight"), &[HEAD_DIM]);
            }
            "gpt2" => {
                for part in ["attn_q.weight", "attn_k.weight", "attn_v.weight", "ffn_gate.weight"] {
                    file.remove_tensor(&name(part));
                }
                add(&mut file, &name("attn_qkv.weight"), &[DIM, DIM + 2 * KV_DIM]);
                add(&mut file, &name("attn_qkv.bias"), &[DIM + 2 * KV_DIM]);
                add(&mut file, &name("attn_output.bias"), &[DIM]);
                add(&mut file, &name("ffn_up.bias"), &[FFN]);
                add(&mut file, &name("ffn_down.bias"), &[DIM]);
                add(&mut file, &name("attn_norm.bias"), &[DIM]);
                add(&mut file, &name("ffn_norm.bias"), &[DIM]);
            }
            _ => panic!("no tiny {family}"),
        }
    }
    if family == "gpt2" {
        file.remove("gpt2.attention.layer_norm_rms_epsilon").set("gpt2.attention.layer_norm_epsilon", 1e-5f32);
        add(&mut file, "output_norm.bias", &[DIM]);
        add(&mut file, "position_embd.weight", &[DIM, CONTEXT]);
    }
    file
}

/// Families for [`tiny`].
pub const FAMILIES: [&str; 4] = ["llama", "qwen2", "qwen3", "gpt2"];

/// The same model with its matrices as random blocks of a type: `Q8_0` or `Q4_0`.
pub fn quantized(mut file: Builder, kind: &str) -> Builder {
    let (id, block, payload) = match kind {
        "Q8_0" => (8, 32, 32),
        "Q4_0" => (2, 32, 16),
        _ => panic!("no tiny {kind}"),
    };
    let mut random = Random(9);
    // Vectors, and tensors smaller than a block, stay as they are.
    let whole = |dims: &[u64]| dims.len() > 1 && dims[1] > 1 && dims[0].is_multiple_of(block);
    for tensor in file.tensors.iter_mut().filter(|tensor| whole(&tensor.dims)) {
        tensor.kind = id;
        tensor.data.clear();
        for _ in 0..tensor.dims.iter().product::<u64>() / block {
            tensor.data.extend_from_slice(&0x1800u16.to_le_bytes()); // f16: 1 / 512
            tensor.data.extend((0..payload).map(|_| (random.value() * 127.0) as i8 as u8));
        }
    }
    file
}

/// [`tiny_llama`] with a sliding window.
pub fn windowed(window: u32) -> Builder {
    let mut file = tiny_llama();
    file.set("llama.attention.sliding_window", window);
    file
}

/// [`tiny_llama`] with a head width that is even but not a power of two.
pub fn with_heads_of(head_dim: u64) -> Builder {
    let mut file = tiny_llama();
    file.set("llama.attention.key_length", head_dim as u32).set("llama.rope.dimension_count", head_dim as u32);
    let mut random = Random(11);
    let mut add = |name: String, dims: [u64; 2]| {
        let values: Vec<f32> = (0..dims[0] * dims[1]).map(|_| random.value() * 0.3).collect();
        file.set_f32(&name, &dims, &values);
    };
    for layer in 0..LAYERS {
        add(format!("blk.{layer}.attn_q.weight"), [DIM, HEADS * head_dim]);
        add(format!("blk.{layer}.attn_k.weight"), [DIM, KV_HEADS * head_dim]);
        add(format!("blk.{layer}.attn_v.weight"), [DIM, KV_HEADS * head_dim]);
        add(format!("blk.{layer}.attn_output.weight"), [HEADS * head_dim, DIM]);
    }
    file
}

/// The same model with its first layer only.
pub fn one_layer(mut file: Builder) -> Builder {
    file.set("llama.block_count", 1u32);
    file.tensors.retain(|tensor| !tensor.name.starts_with(b"blk.1."));
    file
}

/// One layer with so wide a feed-forward and so many KV heads that even a single token's work is divided among
/// workers.
pub fn wide() -> Builder {
    const WIDE: u64 = 2048;
    let mut file = one_layer(tiny_llama());
    file.set("llama.feed_forward_length", WIDE as u32).set("llama.attention.head_count_kv", HEADS as u32);
    file.set("llama.context_length", 1024u32);
    let mut random = Random(13);
    for (part, dims) in [
        ("attn_k", [DIM, DIM]),
        ("attn_v", [DIM, DIM]),
        ("ffn_gate", [DIM, WIDE]),
        ("ffn_up", [DIM, WIDE]),
        ("ffn_down", [WIDE, DIM]),
    ] {
        let values: Vec<f32> = (0..dims[0] * dims[1]).map(|_| random.value() * 0.1).collect();
        file.set_f32(&format!("blk.0.{part}.weight"), &dims, &values);
    }
    file
}
