//! Texts and their token ids from other programs.

use arenite::tokenizer::{Encode, INDEX_KEY, Tokenizer};
use arenite::{Error, Gguf, TokenId};
use serde::Deserialize;
use serde_json::Value;

use super::fixture::numbers;
use super::fixtures::{committed, needed, read};
use super::gguf::{Meta, with_key};
use super::unwritten::unwritten;

/// Reads a file of the repository or of the larger set.
pub fn fixture(path: &str) -> Option<Vec<u8>> {
    let small = committed().join(path);
    let file = if small.exists() { small } else { needed(path)?.join(path) };
    Some(read(&file))
}

/// Reads a published vocabulary from the larger set: a GGUF file, named as in llama.cpp's tests, or the same file
/// compressed.
pub fn vocabulary(name: &str) -> Option<Vec<u8>> {
    let path = format!("tokenizers/ggml-vocab-{name}.gguf");
    let plain = needed(&path)?.join(path);
    Some(read(&if plain.exists() { plain } else { plain.with_extension("gguf.gz") }))
}

/// Reads a tiny vocabulary of the repository, and texts with their ids. The published crate does not contain them.
pub fn tiny(name: &str) -> Option<(Vec<u8>, Vectors)> {
    let directory = committed().join("tokenizers");
    if !directory.exists() {
        println!("SKIP: tests/fixtures/tokenizers is missing");
        return None;
    }
    let file: Value = serde_json::from_slice(&read(&directory.join("ids.json"))).unwrap();
    let texts = file["texts"].as_array().unwrap().iter().map(|hex| bytes_of(hex.as_str().unwrap()));
    let cases = texts.zip(file[name].as_array().unwrap()).filter(|(_, ids)| !ids.is_null());
    let cases = cases.map(|(text, ids)| (text, numbers(ids))).collect();
    Some((read(&directory.join(format!("{name}.gguf"))), Vectors { cases, hello_special: None }))
}

/// Reads a tiny vocabulary of the repository, and texts with their ids and the text that these decode to.
pub fn tiny_texts(name: &str) -> Option<(Vec<u8>, Vec<Text>)> {
    let directory = committed().join("tokenizers");
    if !directory.exists() {
        println!("SKIP: tests/fixtures/tokenizers is missing");
        return None;
    }
    let file: Value = serde_json::from_slice(&read(&directory.join("texts.json"))).unwrap();
    let text = |case: &Value| Text {
        bytes: bytes_of(case[0].as_str().unwrap()),
        ids: numbers(&case[1]),
        again: case[2].as_str().map(bytes_of),
    };
    let texts = file[name].as_array().unwrap().iter().map(text).collect();
    Some((read(&directory.join(format!("{name}.gguf"))), texts))
}

/// A text, its ids, and the text decoded from them.
pub struct Text {
    pub bytes: Vec<u8>,
    pub ids: Vec<u32>,
    pub again: Option<Vec<u8>>,
}

/// Texts and their ids.
pub struct Vectors {
    pub cases: Vec<(Vec<u8>, Vec<u32>)>,
    /// Ids of "Hello" with special tokens added.
    pub hello_special: Option<Vec<u32>>,
}

#[derive(Deserialize)]
#[allow(non_snake_case)]
struct File {
    cases: Vec<Case>,
    add_special_Hello: Option<Vec<u32>>,
}

#[derive(Deserialize)]
struct Case {
    hex: String,
    ids: Option<Vec<u32>>,
}

/// Returns the bytes that hexadecimal digits stand for.
fn bytes_of(hex: &str) -> Vec<u8> {
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    hex.as_bytes().chunks(2).map(byte).collect()
}

impl Vectors {
    /// Reads texts and the ids that llama.cpp gives them with a published vocabulary.
    pub fn published(name: &str) -> Option<Self> {
        let file: File = serde_json::from_slice(&fixture(&format!("tokenizers/{name}.json"))?).unwrap();
        let cases = file.cases.into_iter().filter_map(|case| Some((bytes_of(&case.hex), case.ids?)));
        Some(Self { cases: cases.collect(), hello_special: file.add_special_Hello })
    }
}

/// A tokenizer with its own memory, which is never freed.
pub struct Owned<'a> {
    pub tokenizer: Tokenizer<'a, 'a>,
}

impl<'a> Owned<'a> {
    pub fn new(file: &'a [u8]) -> Self {
        let gguf = Gguf::parse(file).unwrap();
        let index = vec![0; Tokenizer::index_bytes(&gguf).unwrap()].leak();
        Self { tokenizer: Tokenizer::new(&gguf, unwritten(index)).unwrap() }
    }

    /// Like [`new`](Self::new), with the index inside the file.
    pub fn packed(file: &[u8]) -> Self {
        let gguf = Gguf::parse(file).unwrap();
        let mut index = vec![0; Tokenizer::built_index_bytes(&gguf).unwrap()];
        Tokenizer::build_index(&gguf, &mut index).unwrap();
        let words = index.chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap()));
        let file = with_key(file, INDEX_KEY, Meta::array(words)).leak();
        let gguf = Gguf::parse(file).unwrap();
        assert_eq!(Tokenizer::index_bytes(&gguf), Ok(0));
        Self { tokenizer: Tokenizer::new(&gguf, &mut []).unwrap() }
    }

    pub fn encode(&self, text: &[u8], options: Encode) -> Vec<TokenId> {
        let mut scratch = vec![0xaa; Tokenizer::scratch_bytes(text.len())];
        let mut ids = vec![0; 3 * text.len() + 16];
        let count = self.tokenizer.encode(text, options, unwritten(&mut scratch), &mut ids).unwrap();
        ids.truncate(count);
        ids
    }

    /// Decodes ids byte for byte, with control tokens spelled out.
    pub fn decode(&self, ids: &[TokenId]) -> Vec<u8> {
        let needed = match self.tokenizer.detokenize(ids, true, &mut []) {
            Ok(_) => 0,
            Err(Error::BufferTooSmall { needed, .. }) => needed,
            Err(error) => panic!("{error}"),
        };
        let mut text = vec![0; needed];
        assert_eq!(self.tokenizer.detokenize(ids, true, &mut text), Ok(needed));
        text
    }
}
