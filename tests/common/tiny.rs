//! A complete Llama with a vocabulary, small enough to be built in every test.

use super::gguf::{Builder, Meta};

pub const DIM: u64 = 32;
pub const LAYERS: u64 = 2;
pub const HEADS: u64 = 2;
pub const KV_HEADS: u64 = 1;
pub const HEAD_DIM: u64 = DIM / HEADS;
pub const FFN: u64 = 64;
pub const CONTEXT: u64 = 64;
/// Size of the vocabulary: three control tokens, the 256 byte tokens, and [`PIECES`].
pub const VOCAB: u64 = 3 + 256 + PIECES.len() as u64;

/// Pieces of text, by falling score.
const PIECES: [&str; 29] = [
    "▁t", "he", "▁the", "in", "er", "▁a", "on", "▁", "e", "t", "a", "o", "i", "n", "s", "r", "h", "l", "d", "u", "c",
    "m", "w", "f", "g", "y", "p", "b", ".",
];

/// Builds a Llama with random F32 weights and an SPM vocabulary with byte tokens, BOS 1 and EOS 2. The file is correct
/// in every respect; tests change one property.
pub fn tiny_llama() -> Builder {
    let mut file = Builder::new();
    file.set("general.architecture", "llama")
        .set("general.name", "tiny")
        .set("llama.block_count", LAYERS as u32)
        .set("llama.context_length", CONTEXT as u32)
        .set("llama.embedding_length", DIM as u32)
        .set("llama.feed_forward_length", FFN as u32)
        .set("llama.attention.head_count", HEADS as u32)
        .set("llama.attention.head_count_kv", KV_HEADS as u32)
        .set("llama.attention.layer_norm_rms_epsilon", 1e-5f32)
        .set("llama.rope.freq_base", 10000.0f32)
        .set("llama.rope.dimension_count", HEAD_DIM as u32)
        .set("llama.vocab_size", VOCAB as u32);

    let mut tokens = vec![b"<unk>".to_vec(), b"<s>".to_vec(), b"</s>".to_vec()];
    let mut types = vec![2, 3, 3];
    let mut scores = vec![0.0f32; 3];
    for byte in 0..=255u8 {
        tokens.push(format!("<0x{byte:02X}>").into_bytes());
        types.push(6i32);
        scores.push(0.0);
    }
    for (rank, piece) in PIECES.iter().enumerate() {
        tokens.push(piece.as_bytes().to_vec());
        types.push(1);
        scores.push(-(rank as f32));
    }
    file.set("tokenizer.ggml.model", "llama")
        .set("tokenizer.ggml.tokens", Meta::strings(tokens))
        .set("tokenizer.ggml.scores", Meta::array(scores))
        .set("tokenizer.ggml.token_type", Meta::array(types))
        .set("tokenizer.ggml.bos_token_id", 1u32)
        .set("tokenizer.ggml.eos_token_id", 2u32)
        .set("tokenizer.ggml.unknown_token_id", 0u32)
        .set("tokenizer.ggml.add_bos_token", true)
        .set("tokenizer.ggml.add_eos_token", false);

    let mut random = Random(1);
    let mut weight = |name: &str, dims: &[u64]| {
        let scale = 1.0 / (dims[0] as f32).sqrt();
        let values: Vec<f32> = (0..dims.iter().product()).map(|_| random.value() * scale).collect();
        file.set_f32(name, dims, &values);
    };
    weight("token_embd.weight", &[DIM, VOCAB]);
    weight("output.weight", &[DIM, VOCAB]);
    for layer in 0..LAYERS {
        for (name, dims) in [
            ("attn_q", [DIM, DIM]),
            ("attn_k", [DIM, KV_HEADS * HEAD_DIM]),
            ("attn_v", [DIM, KV_HEADS * HEAD_DIM]),
            ("attn_output", [DIM, DIM]),
            ("ffn_gate", [DIM, FFN]),
            ("ffn_up", [DIM, FFN]),
            ("ffn_down", [FFN, DIM]),
        ] {
            weight(&format!("blk.{layer}.{name}.weight"), &dims);
        }
    }
    for layer in 0..LAYERS {
        for name in ["attn_norm", "ffn_norm"] {
            file.set_f32(&format!("blk.{layer}.{name}.weight"), &[DIM], &[1.0; DIM as usize]);
        }
    }
    file.set_f32("output_norm.weight", &[DIM], &[1.0; DIM as usize]);
    file
}

/// Reproducible random numbers between -1 and 1 (a linear congruential generator).
pub struct Random(pub u64);

impl Random {
    pub fn value(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }
}
