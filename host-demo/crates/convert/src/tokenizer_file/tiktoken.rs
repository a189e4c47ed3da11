//! Vocabularies in tiktoken's files, read in the form of `tokenizer.json`: Kimi's `tiktoken.model` and Qwen 1's
//! `qwen.tiktoken`. The rules for words and the special tokens come from the models' own classes.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Map, Value, json};

use super::expressions::{KIMI, QWEN2, split};
use super::ranks::{self, Ranks};

const KIMI_FILE: &str = "tiktoken.model";
const QWEN_FILE: &str = "qwen.tiktoken";

/// Number of special tokens after the others.
const KIMI_SPECIAL: usize = 256;
const QWEN_EXTRA: usize = 205;

/// Returns true if [`read`] can read the file, which is known from the file's name.
pub fn is(path: &Path) -> bool {
    path.ends_with(KIMI_FILE) || path.ends_with(QWEN_FILE)
}

/// Reads a file in which each line has a token in base64 and its rank. `settings` is `tokenizer_config.json`.
pub fn read(path: &Path, file: &[u8], settings: &Value) -> Result<Value> {
    ensure!(ranks::is(file), "its first line is not a token in base64 and a rank");
    let text = str::from_utf8(file).context("it is not text")?;
    let tokens = text.lines().filter(|line| !line.is_empty()).enumerate().map(token).collect::<Result<Vec<_>>>()?;
    let tokens: Vec<&[u8]> = tokens.iter().map(Vec::as_slice).collect();
    let ranks = Ranks::new(&tokens);
    let first = tokens.len();
    let is_kimi = path.ends_with(KIMI_FILE);
    let added = if is_kimi { kimi(first, settings) } else { qwen(first) };
    let vocabulary: Map<String, Value> = ranks.texts().map(|(text, id)| (text, id.into())).collect();
    Ok(json!({
        "added_tokens": added,
        "normalizer": if is_kimi { Value::Null } else { json!({ "type": "NFC" }) },
        "pre_tokenizer": split(if is_kimi { KIMI } else { QWEN2 }),
        "decoder": { "type": "ByteLevel" },
        // tiktoken looks a word up before it merges.
        "model": { "type": "BPE", "ignore_merges": true, "vocab": vocabulary, "merges": ranks.merges() },
    }))
}

fn token((at, line): (usize, &str)) -> Result<Vec<u8>> {
    let (token, rank) = line.split_once(' ').with_context(|| format!("line {} has no rank", at + 1))?;
    ensure!(rank.trim_end().parse() == Ok(at), "line {} has the rank {rank}, and not {at}", at + 1);
    BASE64.decode(token).with_context(|| format!("the token in line {} is not base64", at + 1))
}

/// Returns Kimi's special tokens: the tokens that the settings name, and reserved tokens for the ids between them.
fn kimi(first: usize, settings: &Value) -> Vec<Value> {
    let token = |id: usize| {
        let named = &settings["added_tokens_decoder"][id.to_string()];
        match named["content"].as_str() {
            Some(text) => json!({ "id": id, "content": text, "special": named["special"] != false }),
            None => json!({ "id": id, "content": format!("<|reserved_token_{id}|>"), "special": true }),
        }
    };
    (first..first + KIMI_SPECIAL).map(token).collect()
}

fn qwen(first: usize) -> Vec<Value> {
    let named = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"].map(str::to_owned);
    let extra = (0..QWEN_EXTRA).map(|number| format!("<|extra_{number}|>"));
    let token = |(id, text)| json!({ "id": id, "content": text, "special": true });
    (first..).zip(named.into_iter().chain(extra)).map(token).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected tokens come from `tokenization_kimi.py` and `tokenization_qwen.py`.
    #[test]
    fn special_tokens_follow_the_others() {
        let file = b"YQ== 0\nYg== 1\nYWI= 2\n";
        let settings = json!({ "added_tokens_decoder": {
            "3": { "content": "[BOS]", "special": true }, "5": { "content": "<tool>", "special": false },
        } });
        let kimi = read(Path::new("x/tiktoken.model"), file, &settings).unwrap();
        let added = kimi["added_tokens"].as_array().unwrap();
        let token = |id: usize| (added[id]["id"].as_u64().unwrap(), added[id]["content"].as_str().unwrap());
        assert_eq!((added.len(), token(0), token(1)), (256, (3, "[BOS]"), (4, "<|reserved_token_4|>")));
        assert_eq!((token(2), &added[2]["special"]), ((5, "<tool>"), &json!(false)));
        assert_eq!(kimi["model"]["merges"], json!(["a b"]));
        let qwen = read(Path::new("x/qwen.tiktoken"), file, &Value::Null).unwrap();
        let added = qwen["added_tokens"].as_array().unwrap();
        assert_eq!((added.len(), &added[2]["id"], &added[207]["content"]), (208, &json!(5), &json!("<|extra_204|>")));
        for (wrong, message) in [
            (&b"YQ== 0\nYg== 2\n"[..], "line 2 has the rank 2, and not 1"),
            (b"YQ== 0\nYg==\n", "line 2 has no rank"),
            (b"YQ== 0\n=Yg 1\n", "the token in line 2 is not base64"),
            (b"YQ==\n", "its first line is not a token in base64 and a rank"),
        ] {
            assert_eq!(read(Path::new("qwen.tiktoken"), wrong, &Value::Null).unwrap_err().to_string(), message);
        }
    }
}
