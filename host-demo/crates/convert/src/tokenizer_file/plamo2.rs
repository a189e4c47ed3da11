//! Reads the vocabulary of PLaMo 2 and 3, `tokenizer.jsonl`. Each line is a list with a token's text, its score and its
//! type.

use anyhow::{Context, Result};
use serde_json::Value;

use super::{BYTE, CONTROL, NORMAL, UNKNOWN, UNUSED, Vocabulary};

/// The token that ends a turn of a conversation, as in llama.cpp.
const END_OF_TURN: &str = "<|plamo:op|>";

/// Returns true if the file begins like a `tokenizer.jsonl`.
pub fn is(file: &[u8]) -> bool {
    let first = file.split(|byte| *byte == b'\n').next().unwrap_or_default();
    serde_json::from_slice::<Value>(first).is_ok_and(|line| line[0].is_string() && line[1].is_number())
}

/// Reads the tokens, filled up to `rows` as in llama.cpp.
pub fn read(file: &[u8], rows: usize) -> Result<Vocabulary> {
    let mut vocabulary = Vocabulary::default();
    let mut count = 0;
    for (number, line) in (1..).zip(file.split(|byte| *byte == b'\n')).filter(|(_, line)| !line.trim_ascii().is_empty())
    {
        let entry: Value = serde_json::from_slice(line).with_context(|| format!("line {number} is not JSON"))?;
        let parts = entry[0].as_str().zip(entry[1].as_f64());
        let (text, score) = parts.with_context(|| format!("line {number} is not a text and a score"))?;
        let kind = match entry[2].as_str() {
            Some("UNKNOWN") => UNKNOWN,
            Some("CONTROL") => CONTROL,
            Some("BYTE") => BYTE,
            _ if text.starts_with("<|plamo:") && text.ends_with("|>") => CONTROL,
            _ => NORMAL,
        };
        vocabulary.set(count, text.to_owned(), score as f32, kind)?;
        count += 1;
    }
    for (number, id) in (1..).zip(count..rows as u64) {
        vocabulary.set(id, format!("[PAD{number}]"), -1000.0, UNUSED)?;
    }
    vocabulary.key("model", "plamo2");
    vocabulary.key("pre", "default");
    vocabulary.key("add_space_prefix", false);
    if let Some(id) = vocabulary.ids().get(END_OF_TURN) {
        vocabulary.key("eot_token_id", *id);
    }
    Ok(vocabulary)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let file = br#"["<|plamo:unk|>", 0.0, "UNKNOWN", null]
["<|plamo:bos|>", 0.0, "CONTROL"]
["<0x00>", 0.0, "BYTE"]
["<|plamo:op|>", 0.0, "NORMAL"]
["a", -1.5, "NORMAL"]
"#;
        assert!(is(file) && !is(b"{}") && !is(b"") && !is(b"1 'a' 1"));
        let vocabulary = read(file, 7).unwrap();
        let tokens: Vec<_> = vocabulary.tokens.values().map(|token| (&*token.text, token.score, token.kind)).collect();
        assert_eq!(
            tokens,
            [
                ("<|plamo:unk|>", 0.0, UNKNOWN),
                ("<|plamo:bos|>", 0.0, CONTROL),
                ("<0x00>", 0.0, BYTE),
                ("<|plamo:op|>", 0.0, CONTROL),
                ("a", -1.5, NORMAL),
                ("[PAD1]", -1000.0, UNUSED),
                ("[PAD2]", -1000.0, UNUSED),
            ]
        );
        let error = read(b"[\"a\", 0.0]\n[1]\n", 1).err().unwrap();
        assert_eq!(error.to_string(), "line 2 is not a text and a score");
    }
}
