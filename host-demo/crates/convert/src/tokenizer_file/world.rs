//! Reads the vocabulary of RWKV World: a text file with one token per line. Each line has the token's id, the token as
//! a Python literal, and the token's length in bytes.

use std::fmt::Write;

use anyhow::{Context, Result, ensure};

use super::{CONTROL, NORMAL, Vocabulary};

/// The text that ends an answer. It is an ordinary token, because the vocabulary has no special tokens.
const END_OF_TURN: &str = r"\n\n";

/// Returns true if the first line of the file is a line of an RWKV World vocabulary.
pub fn is(file: &[u8]) -> bool {
    let first = file.split(|byte| *byte == b'\n').next().unwrap_or_default();
    std::str::from_utf8(first).is_ok_and(|line| token(line).is_ok())
}

/// Reads the tokens. As in llama.cpp, id 0 is `<s>`, which begins and ends texts.
pub fn read(file: &[u8]) -> Result<Vocabulary> {
    let text = std::str::from_utf8(file).context("it is not text")?;
    let mut vocabulary = Vocabulary::default();
    vocabulary.set(0, "<s>".to_owned(), 0.0, CONTROL)?;
    for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.is_empty()) {
        let (id, bytes) = token(line).with_context(|| format!("line {number}"))?;
        ensure!(id > 0, "line {number}: id 0 is the end of a text, and has no token");
        vocabulary.set(id, spelled(&bytes), 0.0, NORMAL)?;
    }
    vocabulary.key("model", "rwkv");
    vocabulary.key("bos_token_id", 0u32);
    vocabulary.key("eos_token_id", 0u32);
    if let Some(id) = vocabulary.ids().get(END_OF_TURN) {
        vocabulary.key("eot_token_id", *id);
    }
    Ok(vocabulary)
}

/// Reads the id and the bytes of a line.
fn token(line: &str) -> Result<(u64, Vec<u8>)> {
    let parts = || {
        let (id, rest) = line.trim_end().split_once(' ')?;
        let (text, len) = rest.rsplit_once(' ')?;
        Some((id.parse().ok()?, text.trim(), len.parse::<usize>().ok()?))
    };
    let (id, text, len) = parts().context("this is not an id, a text and its length")?;
    let bytes = literal(text).with_context(|| format!("{text} is not a literal of Python"))?;
    ensure!(bytes.len() == len, "{text} has {} bytes and not {len}", bytes.len());
    Ok((id, bytes))
}

/// Returns the bytes of a Python literal, `'...'` or `b'...'`. A text literal stands for its bytes in UTF-8.
fn literal(text: &str) -> Option<Vec<u8>> {
    let (is_bytes, quoted) = text.strip_prefix('b').map_or((false, text), |quoted| (true, quoted));
    let quote = quoted.chars().next().filter(|quote| matches!(quote, '\'' | '"'))?;
    let mut chars = quoted.strip_prefix(quote)?.strip_suffix(quote)?.chars();
    let mut bytes = Vec::new();
    let mut push = |code: u32, raw: bool| {
        match u8::try_from(code).ok().filter(|_| raw) {
            Some(byte) => bytes.push(byte),
            None => bytes.extend(char::from_u32(code)?.encode_utf8(&mut [0; 4]).as_bytes()),
        }
        Some(())
    };
    while let Some(char) = chars.next() {
        if char != '\\' {
            push(u32::from(char), false)?;
            continue;
        }
        let escape = chars.next()?;
        let digits = match escape {
            'x' => 2,
            'u' if !is_bytes => 4,
            'U' if !is_bytes => 8,
            _ => 0,
        };
        let code = match escape {
            _ if digits > 0 => {
                let written: String = chars.by_ref().take(digits).collect();
                u32::from_str_radix(&written, 16).ok().filter(|_| written.len() == digits)?
            }
            'n' => u32::from(b'\n'),
            'r' => u32::from(b'\r'),
            't' => u32::from(b'\t'),
            '\\' | '\'' | '"' => u32::from(escape),
            _ => return None,
        };
        push(code, is_bytes)?;
    }
    Some(bytes)
}

/// Returns the bytes as Python prints them, without the quotes. GGUF spells the tokens in this way.
fn spelled(bytes: &[u8]) -> String {
    let mut text = String::new();
    // Python quotes with " if a text has ' and no ".
    let escapes_quotes = bytes.contains(&b'\'') && bytes.contains(&b'"');
    for byte in bytes {
        match byte {
            b'\\' => text.push_str(r"\\"),
            b'\'' if escapes_quotes => text.push_str(r"\'"),
            b'\n' => text.push_str(r"\n"),
            b'\r' => text.push_str(r"\r"),
            b'\t' => text.push_str(r"\t"),
            b' '..=b'~' => text.push(char::from(*byte)),
            _ => _ = write!(text, "\\x{byte:02x}"),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected bytes and spellings come from Python's `ast.literal_eval` and `repr`.
    #[test]
    fn literals_of_python() {
        let cases: [(&str, &[u8], &str); 8] = [
            (r"'\x85'", b"\xc2\x85", r"\xc2\x85"),
            (r"b'\x85'", b"\x85", r"\x85"),
            (r"'\u200b\U0001f600'", "\u{200b}\u{1f600}".as_bytes(), r"\xe2\x80\x8b\xf0\x9f\x98\x80"),
            (r#""it's""#, b"it's", "it's"),
            (r#"'it\'s "so"'"#, b"it's \"so\"", r#"it\'s "so""#),
            (r"'\\n\t'", b"\\n\t", r"\\n\t"),
            ("'é'", "é".as_bytes(), r"\xc3\xa9"),
            ("''", b"", ""),
        ];
        for (text, bytes, repr) in cases {
            assert_eq!(literal(text).as_deref(), Some(bytes), "{text}");
            assert_eq!(spelled(bytes), repr, "{text}");
        }
        for text in ["", "'", "'a", "a'", r"'\'", r"'\q'", r"b'\u0041'", r"'\x4'"] {
            assert_eq!(literal(text), None, "{text}");
        }
    }

    #[test]
    fn lines() {
        assert_eq!(token(r"33 ' ' 1").unwrap(), (33, b" ".to_vec()));
        assert!(is(b"1 '\\x00' 1\n2 '\\x01' 1\n") && !is(b"[PAD]\n") && !is(b"") && !is(b"{}"));
        let error = read(b"1 'a' 1\n2 'ab' 3\n").err().unwrap();
        assert_eq!(format!("{error:#}"), "line 2: 'ab' has 2 bytes and not 3");
    }
}
