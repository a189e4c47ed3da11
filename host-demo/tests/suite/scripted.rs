//! Models that generate a given script by ordinary decoding: one-hot embeddings, attention without an effect, and a
//! head that maps each token of the script to the next token.

use std::path::Path;

/// A script and its vocabulary.
pub struct Scripted<'s> {
    /// The tokens of the answer. No token may occur twice.
    pub script: &'s [&'s str],
    /// The control tokens, and the user-defined tokens.
    pub control: &'s [&'s str],
    pub user: &'s [&'s str],
    pub template: &'s str,
}

/// The chat template of most scripts.
pub const CHATML: &str =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n";

struct File(Vec<u8>, u64);

impl File {
    fn string(&mut self, text: &str) {
        self.0.extend((text.len() as u64).to_le_bytes());
        self.0.extend(text.as_bytes());
    }

    fn key(&mut self, key: &str, kind: u32) {
        self.1 += 1;
        self.string(key);
        self.0.extend(kind.to_le_bytes());
    }

    fn number(&mut self, key: &str, value: u32) {
        self.key(key, 4);
        self.0.extend(value.to_le_bytes());
    }

    fn float(&mut self, key: &str, value: f32) {
        self.key(key, 6);
        self.0.extend(value.to_le_bytes());
    }

    fn switch(&mut self, key: &str, value: bool) {
        self.key(key, 7);
        self.0.push(u8::from(value));
    }

    fn text(&mut self, key: &str, value: &str) {
        self.key(key, 8);
        self.string(value);
    }

    fn list(&mut self, key: &str, kind: u32, len: usize) {
        self.key(key, 9);
        self.0.extend(kind.to_le_bytes());
        self.0.extend((len as u64).to_le_bytes());
    }
}

impl Scripted<'_> {
    /// Returns the texts and types of all tokens of the test model's vocabulary, and the ids of the tokens that the
    /// model will generate (its script).
    fn vocabulary(&self) -> (Vec<(String, i32)>, Vec<usize>) {
        let mut tokens = vec![("<unk>".to_string(), 2), ("<s>".to_string(), 3), ("</s>".to_string(), 3)];
        tokens.extend((0..256).map(|byte| (format!("<0x{byte:02X}>"), 6)));
        tokens.extend(self.control.iter().map(|token| (token.to_string(), 3)));
        tokens.extend(self.user.iter().map(|token| (token.to_string(), 4)));
        let ids = self.script.iter().map(|piece| {
            let marked = |token: &(String, i32)| matches!(token.1, 3 | 4 | 6) && token.0 == *piece;
            tokens.iter().position(marked).unwrap_or_else(|| {
                tokens.push((piece.replace(' ', "\u{2581}"), 1));
                tokens.len() - 1
            })
        });
        let ids = ids.collect();
        (tokens, ids)
    }

    /// Writes the model.
    pub fn write(&self, path: &Path) {
        self.write_with(path, None);
    }

    /// Writes a model with the same vocabulary, but with a random embedding and a random head, so that its answers do
    /// not follow the script.
    pub fn write_random(&self, path: &Path, seed: u64) {
        self.write_with(path, Some(seed));
    }

    fn write_with(&self, path: &Path, seed: Option<u64>) {
        const ONE: [u8; 2] = [0x00, 0x3c];
        const FOUR: [u8; 2] = [0x00, 0x44];
        let (tokens, ids) = self.vocabulary();
        let count = tokens.len();
        let dim = if seed.is_some() { 64 } else { count.next_multiple_of(64) };
        let mut next = vec![ids[0]; count];
        for (at, id) in ids.iter().enumerate() {
            next[*id] = ids.get(at + 1).copied().unwrap_or(2);
        }
        let mut keys = File(Vec::new(), 0);
        keys.text("general.architecture", "llama");
        for (key, value) in
            [("context_length", 8192), ("embedding_length", dim), ("block_count", 1), ("feed_forward_length", 32)]
        {
            keys.number(&format!("llama.{key}"), value as u32);
        }
        for (key, value) in
            [("attention.head_count", dim / 32), ("attention.head_count_kv", dim / 32), ("rope.dimension_count", 32)]
        {
            keys.number(&format!("llama.{key}"), value as u32);
        }
        keys.float("llama.attention.layer_norm_rms_epsilon", 1e-5);
        keys.text("tokenizer.ggml.model", "llama");
        keys.list("tokenizer.ggml.tokens", 8, count);
        tokens.iter().for_each(|(token, _)| keys.string(token));
        keys.list("tokenizer.ggml.scores", 6, count);
        for (id, (_, kind)) in tokens.iter().enumerate() {
            keys.0.extend(if *kind == 1 { -(id as f32) } else { 0.0 }.to_le_bytes());
        }
        keys.list("tokenizer.ggml.token_type", 5, count);
        tokens.iter().for_each(|(_, kind)| keys.0.extend(kind.to_le_bytes()));
        for (key, value) in [("bos", 1), ("eos", 2), ("unknown", 0)] {
            keys.number(&format!("tokenizer.ggml.{key}_token_id"), value);
        }
        keys.switch("tokenizer.ggml.add_bos_token", false);
        keys.switch("tokenizer.ggml.add_space_prefix", false);
        keys.text("tokenizer.chat_template", self.template);

        let zeros = |len: usize| vec![0; 2 * len];
        let ones = |len: usize| 1f32.to_le_bytes().repeat(len);
        let mut embeddings = zeros(count * dim);
        let mut head = zeros(count * dim);
        for id in (0..count).filter(|_| seed.is_none()) {
            embeddings[2 * (id * dim + id)..][..2].copy_from_slice(&ONE);
            head[2 * (next[id] * dim + id)..][..2].copy_from_slice(&FOUR);
        }
        if let Some(mut state) = seed {
            let mut fill = |values: &mut [u8], least: u16| {
                for value in values.chunks_exact_mut(2) {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let bits = (state >> 40) as u16;
                    value.copy_from_slice(&(bits & 0x8000 | (least + (bits & 0x7ff))).to_le_bytes());
                }
            };
            // Half floats of magnitude 0.25 to 1, and 0.03 to 0.13.
            fill(&mut embeddings, 0x3400);
            fill(&mut head, 0x2800);
        }
        let mut tensors = vec![
            ("token_embd.weight", vec![dim, count], 1, embeddings),
            ("output.weight", vec![dim, count], 1, head),
            ("output_norm.weight", vec![dim], 0, ones(dim)),
            ("blk.0.attn_norm.weight", vec![dim], 0, ones(dim)),
            ("blk.0.ffn_norm.weight", vec![dim], 0, ones(dim)),
            ("blk.0.ffn_gate.weight", vec![dim, 32], 1, zeros(32 * dim)),
            ("blk.0.ffn_up.weight", vec![dim, 32], 1, zeros(32 * dim)),
            ("blk.0.ffn_down.weight", vec![32, dim], 1, zeros(32 * dim)),
        ];
        let attention =
            ["blk.0.attn_q.weight", "blk.0.attn_k.weight", "blk.0.attn_v.weight", "blk.0.attn_output.weight"];
        tensors.extend(attention.map(|name| (name, vec![dim, dim], 1, zeros(dim * dim))));

        let mut file = File(b"GGUF".to_vec(), 0);
        file.0.extend(3u32.to_le_bytes());
        file.0.extend((tensors.len() as u64).to_le_bytes());
        file.0.extend(keys.1.to_le_bytes());
        file.0.extend(keys.0);
        let mut offset = 0u64;
        for (name, dims, kind, data) in &tensors {
            file.string(name);
            file.0.extend((dims.len() as u32).to_le_bytes());
            dims.iter().for_each(|dim| file.0.extend((*dim as u64).to_le_bytes()));
            file.0.extend((*kind as u32).to_le_bytes());
            file.0.extend(offset.to_le_bytes());
            offset = (offset + data.len() as u64).next_multiple_of(32);
        }
        for (.., data) in tensors {
            file.0.resize(file.0.len().next_multiple_of(32), 0);
            file.0.extend(data);
        }
        std::fs::write(path, file.0).unwrap();
    }
}
