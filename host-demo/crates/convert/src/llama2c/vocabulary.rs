//! Reads `tokenizer.bin`: the length of the longest token, then score, length and bytes of each token. The file has
//! spaces in place of SentencePiece's `▁`.

use anyhow::{Context, Result, ensure};

use arenite_gguf_writer::{Header, Meta};

/// Values of `tokenizer.ggml.token_type`.
const NORMAL: i32 = 1;
const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;
const BYTE: i32 = 6;

/// SentencePiece's ids, used by all llama2.c models.
const BOS: u32 = 1;
const EOS: u32 = 2;

pub struct Vocabulary {
    tokens: Vec<Vec<u8>>,
    scores: Vec<f32>,
    types: Vec<i32>,
}

/// Reads a vocabulary of `len` tokens.
pub fn read(file: &[u8], len: usize) -> Result<Vocabulary> {
    let (_, mut rest) = number(file).context("the file is truncated: download it again")?;
    let mut vocabulary = Vocabulary { tokens: Vec::new(), scores: Vec::new(), types: Vec::new() };
    while !rest.is_empty() && vocabulary.tokens.len() <= len {
        let (score, length, after) = number(rest)
            .and_then(|(score, rest)| number(rest).map(|(length, rest)| (f32::from_le_bytes(score), length, rest)))
            .with_context(|| format!("it ends inside token {}: download it again", vocabulary.tokens.len()))?;
        let length = usize::try_from(i32::from_le_bytes(length)).ok();
        let token = length.and_then(|length| after.split_at_checked(length));
        let (token, after) =
            token.with_context(|| format!("it ends inside token {}: download it again", vocabulary.tokens.len()))?;
        vocabulary.push(token, score);
        rest = after;
    }
    let count = vocabulary.tokens.len();
    let count = if count > len { "more".to_string() } else { count.to_string() };
    ensure!(vocabulary.tokens.len() == len, "it has {count} tokens and the model has {len}");
    Ok(vocabulary)
}

impl Vocabulary {
    fn push(&mut self, token: &[u8], score: f32) {
        let (token, kind) = match self.tokens.len() {
            0 => (b"<unk>".to_vec(), UNKNOWN),
            // The file of llama2.c spells these two tokens "\n<s>\n" and "\n</s>\n".
            1 => (b"<s>".to_vec(), CONTROL),
            2 => (b"</s>".to_vec(), CONTROL),
            _ if is_byte(token) => (token.to_vec(), BYTE),
            _ => (
                token
                    .iter()
                    .flat_map(|byte| if *byte == b' ' { "▁".as_bytes().to_vec() } else { vec![*byte] })
                    .collect(),
                NORMAL,
            ),
        };
        self.tokens.push(token);
        self.scores.push(score);
        self.types.push(kind);
    }

    /// Writes the keys of the vocabulary. BOS is also the end token, as in `run.c`, because BOS separated texts in
    /// training.
    pub fn keys(&self, header: &mut Header) {
        header.set("tokenizer.ggml.model", "llama");
        header.set("tokenizer.ggml.pre", "default");
        header.set("tokenizer.ggml.tokens", Meta::strings(&self.tokens));
        header.set("tokenizer.ggml.scores", Meta::array(self.scores.iter().copied()));
        header.set("tokenizer.ggml.token_type", Meta::array(self.types.iter().copied()));
        header.set("tokenizer.ggml.bos_token_id", BOS);
        header.set("tokenizer.ggml.eos_token_id", EOS);
        header.set("tokenizer.ggml.eot_token_id", BOS);
        header.set("tokenizer.ggml.unknown_token_id", 0u32);
        header.set("tokenizer.ggml.add_bos_token", true);
        header.set("tokenizer.ggml.add_eos_token", false);
        header.set("tokenizer.ggml.add_space_prefix", true);
    }
}

/// Returns whether a token is spelled like `<0x41>`.
fn is_byte(token: &[u8]) -> bool {
    matches!(token, [b'<', b'0', b'x', high, low, b'>'] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit())
}

fn number(bytes: &[u8]) -> Option<([u8; 4], &[u8])> {
    bytes.split_first_chunk().map(|(number, rest)| (*number, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(tokens: &[(&str, f32)]) -> Vec<u8> {
        let mut file = 7u32.to_le_bytes().to_vec();
        for (token, score) in tokens {
            file.extend(score.to_le_bytes());
            file.extend((token.len() as i32).to_le_bytes());
            file.extend(token.as_bytes());
        }
        file
    }

    #[test]
    fn tokens_get_sentencepieces_spelling() {
        let file = file(&[("<unk>", 0.0), ("\n<s>\n", 0.0), ("\n</s>\n", 0.0), ("<0x0A>", 0.0), (" a b", -3.5)]);
        let vocabulary = read(&file, 5).unwrap();
        let want = ["<unk>", "<s>", "</s>", "<0x0A>", "▁a▁b"].map(|token| token.as_bytes().to_vec());
        assert_eq!(vocabulary.tokens, want);
        assert_eq!(vocabulary.types, [2, 3, 3, 6, 1]);
        assert_eq!(vocabulary.scores, [0.0, 0.0, 0.0, 0.0, -3.5]);
    }

    #[test]
    fn another_models_or_a_cut_file_is_told() {
        let file = file(&[("<unk>", 0.0), ("\n<s>\n", 0.0), ("\n</s>\n", 0.0)]);
        let error = |file: &[u8], len| read(file, len).err().unwrap().to_string();
        assert!(error(&file, 4).contains("3 tokens and the model has 4"));
        assert!(error(&file, 2).contains("more tokens and the model has 2"));
        assert!(error(&file[..file.len() - 1], 3).contains("token 2"));
        assert!(error(&file[..2], 3).contains("truncated"));
        let mut negative = file.clone();
        negative[8..12].copy_from_slice(&(-1i32).to_le_bytes());
        assert!(error(&negative, 3).contains("token 0"));
    }
}
