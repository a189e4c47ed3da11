//! Reads vocabularies from tokenizer files: `tokenizer.json`, `tokenizer.model`, `tekken.json`, `vocab.json` with
//! `merges.txt`, `vocab.txt`, `sentencepiece.bpe.model`, Kimi's `tiktoken.model`, Qwen 1's
//! `qwen.tiktoken`, llama2.c's `tokenizer.bin`, nanoGPT's `meta.pkl`, RWKV World's text file, and PLaMo 2's
//! `tokenizer.jsonl`.

mod added;
mod characters;
mod expressions;
pub mod files;
pub mod folder;
#[cfg(test)]
mod ids;
mod json;
mod normalized;
mod parts;
mod plamo2;
pub mod ranks;
mod rules;
pub mod sentencepiece;
mod slow;
mod special;
mod support;
mod tiktoken;
pub mod wanted;
mod world;

use std::collections::{BTreeMap, HashMap};
use std::io::{Cursor, Seek, Write};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use arenite::Gguf;
use arenite::gguf::Value;
use arenite::tokenizer::{INDEX_HASH_KEY, INDEX_KEY};

use crate::llama2c;
use arenite_gguf_writer::{Header, Meta};
pub use rules::VocabularyRules;

/// Values of `tokenizer.ggml.token_type`.
const NORMAL: i32 = 1;
const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;
const UNUSED: i32 = 5;
const BYTE: i32 = 6;

/// A vocabulary to be written to a file.
#[derive(Default)]
struct Vocabulary {
    /// Tokens by id. A file may skip ids.
    tokens: BTreeMap<u32, Token>,
    /// Metadata of the vocabulary, under `tokenizer.ggml`.
    keys: Vec<(&'static str, Meta)>,
    /// The chat templates from files in the same directory: names and sources. The default template has an empty name.
    chat_templates: Vec<(String, String)>,
}

struct Token {
    text: String,
    score: f32,
    kind: i32,
}

impl Vocabulary {
    fn set(&mut self, id: u64, text: String, score: f32, kind: i32) -> Result<()> {
        let at = u32::try_from(id).ok().filter(|at| *at < 1 << 24);
        let at =
            at.with_context(|| format!("the token {text:?} has the id {id}, which is too large for any vocabulary"))?;
        self.tokens.insert(at, Token { text, score, kind });
        Ok(())
    }

    fn key(&mut self, name: &'static str, value: impl Into<Meta>) {
        self.keys.push((name, value.into()));
    }

    /// The ids of tokens by their text.
    fn ids(&self) -> HashMap<String, u32> {
        self.tokens.iter().map(|(id, token)| (token.text.clone(), *id)).collect()
    }

    fn write(mut self, rows: usize, header: &mut Header) -> Result<()> {
        let count = self.tokens.last_key_value().map_or(0, |(last, _)| *last as usize + 1);
        ensure!(
            count <= rows,
            "it has {count} tokens, but the model has {rows} rows: give the vocabulary that the model was trained with"
        );
        let unused = |id| Token { text: format!("[PAD{id}]"), score: f32::MIN, kind: UNUSED };
        let tokens: Vec<Token> =
            (0..rows as u32).map(|id| self.tokens.remove(&id).unwrap_or_else(|| unused(id))).collect();
        header.set("tokenizer.ggml.tokens", Meta::strings(tokens.iter().map(|token| &token.text)));
        header.set("tokenizer.ggml.scores", Meta::array(tokens.iter().map(|token| token.score)));
        header.set("tokenizer.ggml.token_type", Meta::array(tokens.iter().map(|token| token.kind)));
        for (name, value) in self.keys {
            header.set(&format!("tokenizer.ggml.{name}"), value);
        }
        write_templates(&self.chat_templates, header);
        Ok(())
    }
}

/// Writes chat templates, by llama.cpp's keys.
fn write_templates(templates: &[(String, String)], header: &mut Header) {
    let named: Vec<_> = templates.iter().filter(|(name, _)| !name.is_empty()).collect();
    if !named.is_empty() {
        header.set("tokenizer.chat_templates", Meta::strings(named.iter().map(|(name, _)| name)));
    }
    for (name, source) in templates {
        let key = if name.is_empty() {
            "tokenizer.chat_template".to_owned()
        } else {
            format!("tokenizer.chat_template.{name}")
        };
        header.set(&key, source.as_str());
    }
}

/// Returns a copy of the model `gguf` with its vocabulary replaced by the file `tokenizer`.
pub fn with_tokenizer(gguf: &Gguf<'_>, tokenizer: &Path) -> Result<Vec<u8>> {
    let mut bytes = Cursor::new(Vec::new());
    write(gguf, &header_with(gguf, tokenizer)?, &mut bytes)?;
    Ok(bytes.into_inner())
}

/// Returns the header of the file that [`with_tokenizer`] makes.
pub fn header_with(gguf: &Gguf<'_>, tokenizer: &Path) -> Result<Header> {
    let mut header = Header::new();
    // The vocabulary may lack special tokens. So their ids, such as those of BOS and EOS, and the flags that say
    // whether they are added, are kept unless the new vocabulary sets them.
    let stays = |key: &str| match key.strip_prefix("tokenizer.ggml.") {
        Some(name) => name.ends_with("_token_id") || name.starts_with("add_") && name.ends_with("_token"),
        None => ![INDEX_KEY, INDEX_HASH_KEY].contains(&key),
    };
    gguf.keys().filter(|(key, _)| stays(key)).for_each(|(key, value)| header.set(key, value));
    let name = || format!("the tokenizer {}", tokenizer.display());
    let file = arenite_files::read(tokenizer)?;
    vocabulary(gguf, tokenizer, &file, &mut header).with_context(name)?;
    if let Some(Value::U32(alignment)) = gguf.get("general.alignment") {
        header.align(alignment)?;
    }
    for tensor in gguf.tensors() {
        let dims: Vec<u64> = tensor.dims.into_iter().take(tensor.dim_count as usize).collect();
        header.tensor(tensor.name, &dims, tensor.kind)?;
    }
    Ok(header)
}

/// Writes `header` and the tensors of `gguf`.
pub fn write(gguf: &Gguf<'_>, header: &Header, out: impl Write + Seek) -> Result<()> {
    let mut data = header.write(out)?;
    gguf.tensors().try_for_each(|tensor| data.write_all(tensor.data))?;
    data.finish().map(|_| ())
}

fn vocabulary(gguf: &Gguf<'_>, path: &Path, file: &[u8], header: &mut Header) -> Result<()> {
    let embedding = gguf.tensors().find(|tensor| tensor.name == "token_embd.weight");
    let rows = embedding.map(|tensor| tensor.dims[1] as usize);
    let rows = rows.context("the model has no token_embd.weight: give a model with weights")?;
    match *file {
        // The length of the longest token, a 32-bit number.
        [_, _, 0, 0, ..] => {
            llama2c::vocabulary::read(file, rows)?.keys(header);
            return Ok(());
        }
        _ if file.trim_ascii_start().starts_with(b"{") => {
            let text = |key: &str| match gguf.get(key) {
                Some(Value::Str(text)) => Some(text),
                _ => None,
            };
            let pre = text("tokenizer.ggml.pre").filter(|_| text("tokenizer.ggml.model") == Some(b"gpt2"));
            json::read_file(&json::Model { architecture: gguf.architecture().unwrap_or_default(), pre }, path, file)?
        }
        _ if characters::is(file) => characters::read(file)?,
        _ if world::is(file) => world::read(file)?,
        _ if plamo2::is(file) => plamo2::read(file, rows)?,
        _ => sentencepiece::read(file)?,
    }
    .write(rows, header)
}
