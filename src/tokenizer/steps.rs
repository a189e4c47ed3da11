//! Tests bounds on the work that hostile vocabularies cause. Work is counted as the number of visited tokens.

extern crate std;

use std::cell::Cell;
use std::string::{String, ToString};
use std::{format, vec, vec::Vec};

use super::vocab::LONGEST_LOOKED_FOR;
use super::{Encode, Tokenizer};
use crate::{Error, Gguf};

std::thread_local! {
    static STEPS: Cell<u64> = const { Cell::new(0) };
}

/// Counts a visited token.
pub(super) fn step() {
    STEPS.set(STEPS.get() + 1);
}

/// Builds a file with only a vocabulary; all tokens have the same type and a score of -1.
fn file(model: &str, tokens: &[String], kind: i32) -> Vec<u8> {
    fn put(out: &mut Vec<u8>, text: &str) {
        out.extend((text.len() as u64).to_le_bytes());
        out.extend(text.as_bytes());
    }
    fn array(out: &mut Vec<u8>, key: &str, element: u32, len: usize) {
        put(out, key);
        out.extend(9u32.to_le_bytes());
        out.extend(element.to_le_bytes());
        out.extend((len as u64).to_le_bytes());
    }
    let mut out = b"GGUF\x03\0\0\0".to_vec();
    out.extend([0u64, 6].into_iter().flat_map(u64::to_le_bytes));
    put(&mut out, "tokenizer.ggml.model");
    out.extend(8u32.to_le_bytes());
    put(&mut out, model);
    array(&mut out, "tokenizer.ggml.tokens", 8, tokens.len());
    tokens.iter().for_each(|token| put(&mut out, token));
    array(&mut out, "tokenizer.ggml.token_type", 5, tokens.len());
    tokens.iter().for_each(|_| out.extend(kind.to_le_bytes()));
    array(&mut out, "tokenizer.ggml.scores", 6, tokens.len());
    tokens.iter().for_each(|_| out.extend((-1f32).to_le_bytes()));
    for key in ["tokenizer.ggml.add_bos_token", "tokenizer.ggml.add_eos_token"] {
        put(&mut out, key);
        out.extend(7u32.to_le_bytes());
        out.push(0);
    }
    out.resize(out.len().next_multiple_of(32), 0);
    out
}

/// Counts how many tokens of the vocabulary are visited while the index is built, and while `text` is encoded.
fn steps(file: &[u8], text: &str) -> (u64, u64) {
    let gguf = Gguf::parse(file).unwrap();
    let mut index = vec![0; Tokenizer::index_bytes(&gguf).unwrap()];
    STEPS.set(0);
    let tokenizer = Tokenizer::new(&gguf, &mut index).unwrap();
    let built = STEPS.replace(0);
    let mut scratch = vec![0; Tokenizer::scratch_bytes(text.len())];
    let mut ids = vec![0; 3 * text.len() + 3];
    tokenizer.encode(text.as_bytes(), Encode::TEXT, &mut scratch, &mut ids).unwrap();
    (built, STEPS.get())
}

/// Checks that the work of tokenizing is linear in the length of the text. The factor is bounded by the length of the
/// longest token and the logarithm of the number of tokens.
fn check(name: &str, model: &str, tokens: &[String], kind: i32, text: &str) {
    let file = file(model, tokens, kind);
    let log = u64::from(tokens.len().ilog2()) + 1;
    let (built, once) = steps(&file, text);
    let (_, twice) = steps(&file, &text.repeat(2));
    let most = 4 * log * (LONGEST_LOOKED_FOR as u64) * text.len() as u64;
    assert!(once <= most, "{name}: {once} steps, at most {most}");
    assert!(twice <= 2 * once + 4 * log * 512 * 512, "{name}: {once} steps, for twice the text {twice}");
    assert!(built <= 8 * log * file.len() as u64, "{name}: {built} steps for an index, file {}", file.len());
}

/// Returns tokens that consist of `before` and a run of `a`. Their lengths grow by `step` up to the longest length that
/// is looked up.
fn ladder(before: &str, step: usize) -> Vec<String> {
    (1..=LONGEST_LOOKED_FOR - before.len()).step_by(step).map(|len| format!("{before}{}", "a".repeat(len))).collect()
}

#[test]
fn unigram_with_tokens_of_every_length() {
    check("unigram", "t5", &ladder("", 1), 1, &"a".repeat(3000));
    // Tokens that begin like the text but never match it.
    let wrong: Vec<String> = ladder("", 1).into_iter().map(|token| token.replacen("aa", "ab", 1)).collect();
    check("unigram, wrong", "t5", &wrong, 1, &"a".repeat(3000));
}

#[test]
fn longest_matches_of_every_length() {
    let wrong: Vec<String> = ladder("", 1).into_iter().map(|token| token.replacen("aa", "ab", 1)).collect();
    for model in ["rwkv", "plamo2"] {
        check(model, model, &ladder("", 1), 1, &"a".repeat(3000));
        check(model, model, &wrong, 1, &"a".repeat(3000));
    }
}

#[test]
fn word_pieces_of_every_length() {
    check("WordPiece", "bert", &ladder("▁", 1), 1, &"a".repeat(3000));
    check("WordPiece, one long", "bert", &["a".to_string(), "a".repeat(511) + "b"], 1, &"a".repeat(3000));
}

#[test]
fn special_tokens_of_every_length() {
    check("special", "llama", &ladder("", 1), 4, &"a".repeat(3000));
    check("special, never whole", "llama", &ladder("", 7), 4, &("a".repeat(500) + "<").repeat(6));
    check("special, of one length", "llama", &[String::from("ab")], 4, &"abab ".repeat(600));
}

#[test]
fn pieces_of_every_length() {
    check("SentencePiece's BPE", "llama", &ladder("", 1), 1, &"a".repeat(3000));
}

#[test]
fn many_tokens_of_one_spelling() {
    // All tokens "aaaa" have the same hash. A look-up is fast nevertheless, because tokens with equal hashes are sorted
    // by id.
    let tokens: Vec<String> =
        ["a", "b", "ab"].into_iter().chain(std::iter::repeat_n("aaaa", 50_000)).map(String::from).collect();
    for model in ["llama", "t5", "bert", "rwkv", "plamo2"] {
        check("one spelling", model, &tokens, 1, &"a".repeat(3000));
    }
}

#[test]
fn tokens_that_are_too_long_are_refused() {
    for (model, kind) in [("t5", 1), ("bert", 1), ("rwkv", 1), ("plamo2", 1), ("llama", 4), ("llama", 3)] {
        let file = file(model, &["a".to_string(), "a".repeat(1 << 20)], kind);
        let gguf = Gguf::parse(&file).unwrap();
        let mut index = vec![0; Tokenizer::index_bytes(&gguf).unwrap()];
        let error = Tokenizer::new(&gguf, &mut index).err().unwrap();
        assert!(matches!(error, Error::VocabularyEntry { entry: 1, .. }), "{model}: {error:?}");
        assert!(format!("{error}").contains("512 bytes"));
    }
    // A token that is not special is not compared with the text at every position, so that a long token does not make
    // SentencePiece's BPE slow.
    let (_, count) = steps(&file("llama", &["a".to_string(), "a".repeat(1 << 20)], 1), &"a".repeat(5000));
    assert!(count <= 5000 * 40, "{count}");
}
