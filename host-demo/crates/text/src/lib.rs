//! Converts between texts and tokens, and converts JSON strings, which need not be valid Unicode, to bytes.
//!
//! [`encode`] adds two steps to [`Tokenizer::encode`], which are left to programs with memory and Unicode tables: it
//! allocates memory, and it applies the vocabulary's [`normalizer`] first. [`shown`] makes text from outside safe for
//! terminals and logs.
//!
//! ```
//! use arenite::tokenizer::Encode;
//!
//! let file = std::fs::read("../../../tests/fixtures/stories.gguf")?;
//! let gguf = arenite::Gguf::parse(&file)?;
//! let mut index = Vec::new();
//! let tokenizer = arenite_text::tokenizer(&gguf, &mut index)?;
//! let ids = arenite_text::encode(&tokenizer, b"One day, a little fox", Encode::PROMPT)?;
//! let text = arenite_text::decode(&tokenizer, &ids)?;
//! assert_eq!(text.trim_ascii_start(), b"One day, a little fox");
//! # Ok::<(), anyhow::Error>(())
//! ```
#![deny(unsafe_code)]
#![allow(clippy::missing_errors_doc)] // each function fails for the reason that its sentence gives

pub mod normalizer;
pub mod shown;

use std::path::Path;
use std::{fmt, fs};

use anyhow::{Context, Result, anyhow, ensure};
use arenite::gguf::Value;
use arenite::tokenizer::{Decoder, Encode, Tokenizer};
use arenite::{Error, Gguf, TokenId};
use serde::Serialize;
use serde::de::{Deserialize, Deserializer, Visitor};

use crate::normalizer::{Converted, converted};

/// Size of the scratch memory for the first attempt to tokenize a text: this number of bytes more than the text has.
const FIRST_SCRATCH: usize = 64 << 10;

/// Returns true if a file has a vocabulary. A model without a vocabulary runs only with token ids.
pub fn has_vocabulary(gguf: &Gguf<'_>) -> bool {
    !matches!(gguf.get("tokenizer.ggml.model"), None | Some(Value::Str(b"none" | b"no_vocab")))
}

/// Opens the tokenizer of a file. `memory` holds its index.
pub fn tokenizer<'a: 'i, 'i>(gguf: &Gguf<'a>, memory: &'i mut Vec<u8>) -> Result<Tokenizer<'a, 'i>> {
    ensure!(has_vocabulary(gguf), "the model has no vocabulary: it takes and gives token ids only");
    memory.resize(Tokenizer::index_bytes(gguf)?, 0);
    let tokenizer = Tokenizer::new(gguf, memory)?;
    warn_of_old_file(gguf, &tokenizer);
    Ok(tokenizer)
}

/// Warns if a file has a byte-level vocabulary from before May 2024, because such a file does not name the rules for
/// splitting texts.
fn warn_of_old_file(gguf: &Gguf<'_>, tokenizer: &Tokenizer<'_, '_>) {
    let is_named = || !matches!(gguf.get("tokenizer.ggml.pre"), None | Some(Value::Str(b"")));
    if !matches!(gguf.get("tokenizer.ggml.model"), Some(Value::Str(b"gpt2"))) || is_named() {
        return;
    }
    let is_llama_3 = tokenizer.vocab_len() == 128_256 && tokenizer.spelling(128_000) == b"<|begin_of_text|>";
    let (what, name) = match is_llama_3 {
        true => ("which are not those of Llama 3", "llama-bpe"),
        false => ("which may not be the model's", "NAME"),
    };
    log::warn!(
        "warning: the file is old and does not name its pre-tokenizer, so texts are split by the default rules, {what}: get a \
         newer file, or name it with `arenite quantize --override-kv tokenizer.ggml.pre=str:{name} IN OUT COPY`"
    );
}

/// Normalizes `text` by the vocabulary's steps, and then tokenizes it.
pub fn encode(tokenizer: &Tokenizer<'_, '_>, text: &[u8], how: Encode) -> Result<Vec<TokenId>> {
    let Converted { text, tokenizer, places } = &converted(tokenizer, text, how)?;
    // The scratch memory is small at first, and is doubled while it does not suffice, because most texts need far less
    // than the upper bound `most`.
    let most = tokenizer.scratch_bytes_for(text);
    let mut scratch = vec![0; most.min(text.len().saturating_add(FIRST_SCRATCH))];
    // A text almost never has more tokens than bytes. If it does, the error contains the number of tokens.
    let mut ids = vec![0; text.len().saturating_add(3)];
    loop {
        let count = match places {
            Some(places) => tokenizer.encode_converted(text, places, how, &mut scratch, &mut ids),
            None => tokenizer.encode(text, how, &mut scratch, &mut ids),
        };
        match count {
            Err(Error::BufferTooSmall { given, .. }) if given == scratch.len() && given < most => {
                // Frees the old memory before the new memory is allocated, so that both are never held at the same
                // time.
                drop(std::mem::take(&mut scratch));
                scratch = vec![0; most.min(given.saturating_mul(2))];
            }
            Err(Error::BufferTooSmall { needed, given, .. }) if given == ids.len() && given < needed => {
                ids.resize(needed, 0);
            }
            count => {
                ids.truncate(count?);
                return Ok(ids);
            }
        }
    }
}

/// The token for `text`, if `text` is a single token.
pub fn token(tokenizer: &Tokenizer<'_, '_>, text: &str) -> Option<TokenId> {
    match encode(tokenizer, text.as_bytes(), Encode { add_special: false, parse_special: true }).as_deref() {
        Ok([token]) => Some(*token),
        _ => None,
    }
}

/// Decodes `ids`, leaving out control tokens. The result may not be UTF-8.
pub fn decode(tokenizer: &Tokenizer<'_, '_>, ids: &[TokenId]) -> Result<Vec<u8>> {
    let mut decoder = tokenizer.decoder();
    let mut text = Vec::new();
    for &id in ids {
        decoder.push_bytes(id, tokenizer, |bytes| text.extend_from_slice(bytes))?;
    }
    decoder.finish_bytes(|bytes| text.extend_from_slice(bytes));
    Ok(text)
}

/// Reads a text file. The text may contain bytes that are not UTF-8.
pub fn read(path: &Path) -> Result<Vec<u8>> {
    let read = || without_mark(fs::read(path)?);
    read().with_context(|| format!("cannot read {}", path.display()))
}

/// Reads a file of text in UTF-8.
pub fn read_utf8(path: &Path) -> Result<String> {
    String::from_utf8(read(path)?).map_err(|_| anyhow!("cannot read {}: this is not text in UTF-8", path.display()))
}

/// Removes the byte order mark that some editors and shells write on Windows, and refuses text in UTF-16. A byte order
/// mark in UTF-16 is never the start of a text in UTF-8.
pub fn without_mark(mut text: Vec<u8>) -> Result<Vec<u8>> {
    ensure!(
        !text.starts_with(b"\xff\xfe") && !text.starts_with(b"\xfe\xff"),
        "this is text in UTF-16: save it as UTF-8"
    );
    if text.starts_with(b"\xef\xbb\xbf") {
        text.drain(..3);
    }
    Ok(text)
}

/// The special tokens that the vocabulary adds before and after a text.
#[derive(Clone, Debug, Default)]
pub struct Frame {
    before: Vec<TokenId>,
    after: Vec<TokenId>,
}

impl Frame {
    /// Reads the tokens that this vocabulary adds.
    pub fn of(tokenizer: &Tokenizer<'_, '_>) -> Result<Self> {
        let ids = |text: &[u8]| encode(tokenizer, text, Encode { add_special: true, parse_special: false });
        let (nothing, letter) = (ids(b"")?, ids(b"a")?);
        let same = |(a, b): &(&TokenId, &TokenId)| a == b;
        let before = nothing.iter().zip(&letter).take_while(same).count();
        let (before, after) = nothing.split_at(before);
        Ok(Self { before: before.to_vec(), after: after.to_vec() })
    }

    /// Number of special tokens before a text.
    pub fn before_len(&self) -> usize {
        self.before.len()
    }

    /// Number of special tokens.
    #[allow(clippy::len_without_is_empty)] // a count, not a collection
    pub fn len(&self) -> usize {
        self.before.len() + self.after.len()
    }

    /// Number of tokens of a text, without the special ones.
    pub fn inner_len(&self, ids: &[TokenId]) -> usize {
        ids.len().saturating_sub(if ids.ends_with(&self.after) { self.len() } else { self.before.len() })
    }

    /// Removes tokens from the end of a text that has more than `limit` tokens. The special tokens stay.
    pub fn cut(&self, mut ids: Vec<TokenId>, limit: usize) -> Result<Vec<TokenId>> {
        if ids.len() <= limit {
            return Ok(ids);
        }
        let after = if ids.ends_with(&self.after) { &self.after[..] } else { &[] };
        ensure!(
            limit > self.before.len() + after.len(),
            "{limit} tokens are too few: a text has {} special ones",
            self.len()
        );
        ids.truncate(limit - after.len());
        ids.extend(after);
        Ok(ids)
    }
}

/// Returns the number of tokens at the start of two texts that are equal.
pub fn shared(a: &[TokenId], b: &[TokenId]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// Refuses ids that the model has no logits for.
pub fn in_vocabulary(ids: &[TokenId], vocab: usize) -> Result<(), Error> {
    match ids.iter().find(|id| **id as usize >= vocab) {
        Some(&token) => Err(Error::TokenOutOfRange { token, vocab: vocab as u32 }),
        None => Ok(()),
    }
}

/// Appends the text that token `id` completes. Ids beyond the vocabulary have no text; they occur if a model has more
/// logits than tokens.
pub fn push(decoder: &mut Decoder, id: TokenId, tokenizer: &Tokenizer<'_, '_>, text: &mut String) -> Result<()> {
    if (id as usize) < tokenizer.vocab_len() {
        decoder.push(id, tokenizer, |part| text.push_str(part))?;
    }
    Ok(())
}

/// Returns the text of one token for display. Invalid UTF-8 is replaced; a token without text gives an empty string.
pub fn piece(tokenizer: &Tokenizer<'_, '_>, id: TokenId) -> Result<String> {
    let known = (id as usize) < tokenizer.vocab_len();
    let bytes = if known { decode(tokenizer, &[id])? } else { Vec::new() };
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns log(sum(exp(logit))) of all logits. Subtracting it from a logit gives the token's log-probability.
pub fn log_of_sum(logits: &[f32]) -> f64 {
    let top = logits.iter().fold(f32::NEG_INFINITY, |top, &logit| top.max(logit));
    let sum: f64 = logits.iter().map(|&logit| (f64::from(logit) - f64::from(top)).exp()).sum();
    f64::from(top) + sum.ln()
}

/// The bytes of a JSON string.
///
/// JSON text may contain strings that are not valid Unicode. Bytes that are not UTF-8 are kept, as well as bytes that
/// Python wrote as lone surrogates (`\udcff` for 0xff, PEP 383). Any other lone surrogate becomes U+FFFD.
pub struct JsonBytes(pub Vec<u8>);

impl<'de> Deserialize<'de> for JsonBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Bytes;
        impl Visitor<'_> for Bytes {
            type Value = JsonBytes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_str<E>(self, text: &str) -> Result<JsonBytes, E> {
                Ok(JsonBytes(text.as_bytes().to_vec()))
            }

            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<JsonBytes, E> {
                Ok(JsonBytes(without_surrogates(bytes)))
            }
        }
        deserializer.deserialize_bytes(Bytes)
    }
}

/// Formats `value` as JSON on one line. All characters that Unicode counts as line breaks are escaped.
pub fn json_line(value: &(impl Serialize + ?Sized)) -> Result<String, serde_json::Error> {
    serde_json::to_string(value).map(without_line_breaks)
}

/// Escapes the characters in JSON that Unicode counts as line breaks. In JSON, these characters can only be in strings.
pub fn without_line_breaks(mut json: String) -> String {
    for (end, escape) in [('\u{85}', "\\u0085"), ('\u{2028}', "\\u2028"), ('\u{2029}', "\\u2029")] {
        if json.contains(end) {
            json = json.replace(end, escape);
        }
    }
    json
}

/// Replaces surrogates as described for [`JsonBytes`]. A surrogate is encoded as ED, then A0 to BF, then any
/// continuation byte.
fn without_surrogates(mut bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    while let Some((&first, rest)) = bytes.split_first() {
        match *bytes {
            [0xed, middle @ 0xa0..=0xbf, last @ 0x80..=0xbf, ref after @ ..] => {
                let unit = 0xd000 | u16::from(middle & 0x3f) << 6 | u16::from(last & 0x3f);
                match u8::try_from(unit.wrapping_sub(0xdc00)) {
                    Ok(byte @ 0x80..) => out.push(byte),
                    _ => out.extend("\u{fffd}".bytes()),
                }
                bytes = after;
            }
            _ => {
                out.push(first);
                bytes = rest;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(json: &[u8]) -> Vec<u8> {
        serde_json::from_slice::<JsonBytes>(json).unwrap().0
    }

    #[test]
    fn utf16_is_refused() {
        let text = |units: Vec<u8>| without_mark(units).is_ok();
        let little: Vec<u8> = "\u{feff}The sea".encode_utf16().flat_map(u16::to_le_bytes).collect();
        let big: Vec<u8> = "\u{feff}The sea".encode_utf16().flat_map(u16::to_be_bytes).collect();
        assert!(!text(little) && !text(big) && text(vec![]));
        assert_eq!(without_mark("\u{feff}The sea".into()).unwrap(), b"The sea");
    }

    #[test]
    fn special_tokens_stay_in_a_text_that_is_cut() {
        let frame = Frame { before: vec![101], after: vec![102] };
        assert_eq!(frame.cut(vec![101, 5, 6, 7, 8, 102], 4).unwrap(), [101, 5, 6, 102]);
        assert_eq!(frame.cut(vec![101, 5, 102], 3).unwrap(), [101, 5, 102]);
        assert!(frame.cut(vec![101, 5, 102], 2).unwrap_err().to_string().contains("2 tokens are too few"));
        assert_eq!(Frame { before: vec![1], after: vec![] }.cut(vec![1, 5, 6, 7], 3).unwrap(), [1, 5, 6]);
        assert_eq!((frame.len(), frame.inner_len(&[101, 5, 6, 102]), frame.inner_len(&[101, 102])), (2, 2, 0));
    }

    #[test]
    fn json_strings_become_bytes() {
        assert_eq!(bytes(br#""a\n\u00e9\ud83d\ude00""#), "a\n\u{e9}\u{1f600}".as_bytes());
        assert_eq!(bytes("\"\u{d7ff}\u{e000}\"".as_bytes()), "\u{d7ff}\u{e000}".as_bytes());
    }

    #[test]
    fn stray_bytes_stay_themselves() {
        assert_eq!(bytes(br#""a\udcffb""#), b"a\xffb");
        assert_eq!(bytes(br#""\udc80""#), b"\x80");
        assert_eq!(bytes(b"\"a\xffb\""), b"a\xffb");
    }

    #[test]
    fn other_lone_surrogates_are_replaced() {
        for json in [&br#""\ud800""#[..], br#""\udc7f""#, br#""\udd00""#, br#""\udfff""#] {
            assert_eq!(bytes(json), "\u{fffd}".as_bytes(), "{json:?}");
        }
    }

    #[test]
    fn a_json_line_is_one_line_for_everyone() {
        assert_eq!(json_line("a\n\u{85}\u{2028}\u{2029}\u{e9}").unwrap(), "\"a\\n\\u0085\\u2028\\u2029\u{e9}\"");
    }

    #[test]
    fn only_strings_are_strings() {
        assert!(serde_json::from_slice::<JsonBytes>(b"[1,2]").is_err());
        assert!(serde_json::from_slice::<JsonBytes>(b"\"a").is_err());
    }
}
