//! Reads vocabularies: SentencePiece models, with or without a list of ids, and Hugging Face's BPE.

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use prost::Message;
use serde_json::Value;

use super::families::{Family, Model};
use super::read as read_file;
use crate::tokenizer_file::sentencepiece::{Piece, SentencePiece};
use arenite_gguf_writer::{Header, Meta};

/// Values of `token_type`.
const NORMAL: i32 = 1;
const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;

/// A vocabulary as read from the file.
struct Vocabulary {
    tokens: Vec<String>,
    scores: Vec<f32>,
    types: Vec<i32>,
}

impl Vocabulary {
    /// Creates `len` placeholder tokens, which match no text.
    fn new(len: usize) -> Self {
        let tokens = (0..len).map(|id| format!("<unused {id}>")).collect();
        Self { tokens, scores: vec![f32::NEG_INFINITY; len], types: vec![CONTROL; len] }
    }

    fn set(&mut self, id: u64, token: &str, score: f32, kind: i32) -> Result<()> {
        let at = usize::try_from(id)?;
        let places = (self.tokens.get_mut(at), self.scores.get_mut(at), self.types.get_mut(at));
        let (Some(t), Some(s), Some(k)) = places else {
            bail!("the token {token:?} has id {id}, which is outside of the model's vocabulary")
        };
        (*t, *s, *k) = (token.to_owned(), score, kind);
        Ok(())
    }

    fn write(self, header: &mut Header) {
        header.set("tokenizer.ggml.tokens", Meta::strings(&self.tokens));
        header.set("tokenizer.ggml.scores", Meta::array(self.scores));
        header.set("tokenizer.ggml.token_type", Meta::array(self.types));
    }
}

/// Writes the vocabulary of the model in `directory`.
pub fn read(directory: &Path, family: Family, model: &Model<'_>, header: &mut Header) -> Result<()> {
    match family {
        Family::EnglishHindi => pairs(directory, model, header)?,
        Family::Marian | Family::Torch => pieces(directory, family, model, header)?,
    }
    header.set("tokenizer.ggml.eos_token_id", model.end);
    header.set("tokenizer.ggml.add_eos_token", true);
    if let Some(pad) = model.pad {
        header.set("tokenizer.ggml.padding_token_id", pad);
    }
    Ok(())
}

/// Reads the pieces of `source.spm`. For Marian, their ids are taken from `vocab.json`.
fn pieces(directory: &Path, family: Family, model: &Model<'_>, header: &mut Header) -> Result<()> {
    let source = SentencePiece::decode(&*read_file(directory, "source.spm")?).context("source.spm is damaged")?;
    let kind = source.trainer.as_ref().and_then(|trainer| trainer.model_type).unwrap_or(1);
    ensure!(kind == 1, "source.spm is not a unigram model: not supported");
    let mut vocabulary = Vocabulary::new(model.vocab);
    let mut unknown = None;
    let kind_of = |piece: &Piece| piece.kind.unwrap_or(NORMAL);
    if family == Family::Marian {
        let ids: HashMap<String, u64> =
            serde_json::from_slice(&read_file(directory, "vocab.json")?).context("vocab.json is not a list of ids")?;
        let found: HashMap<&str, &Piece> = source.pieces.iter().map(|piece| (piece.piece.as_str(), piece)).collect();
        // Refuse a piece without an id, because Marian would encode such a piece as the unknown token.
        for piece in &source.pieces {
            let known = ids.contains_key(&piece.piece) || kind_of(piece) != NORMAL;
            ensure!(known, "the piece {:?} of source.spm is not in vocab.json", piece.piece);
        }
        for (token, id) in &ids {
            // A token that exists only in the target language gets the score minus infinity, so that the source text is
            // never split into it.
            let (score, kind) = match found.get(token.as_str()) {
                Some(piece) => (piece.score, kind_of(piece)),
                None if token == "<pad>" => (0.0, CONTROL),
                None => (f32::NEG_INFINITY, NORMAL),
            };
            vocabulary.set(*id, token, score, kind)?;
        }
        unknown = ids.get("<unk>").copied();
    } else {
        for (id, piece) in source.pieces.iter().enumerate() {
            vocabulary.set(id as u64, &piece.piece, piece.score, kind_of(piece))?;
            if kind_of(piece) == UNKNOWN {
                unknown = Some(id as u64);
            }
        }
        if source.pieces.len() < model.vocab {
            vocabulary.set(model.start.into(), "<s>", 0.0, CONTROL)?;
        }
    }
    vocabulary.write(header);
    let normalizer = source.normalizer.unwrap_or_default();
    header.set("tokenizer.ggml.model", "t5");
    header.set("tokenizer.ggml.pre", "default");
    header.set("tokenizer.ggml.add_space_prefix", normalizer.add_dummy_prefix.unwrap_or(true));
    header.set("tokenizer.ggml.remove_extra_whitespaces", normalizer.remove_extra_whitespaces.unwrap_or(true));
    if !normalizer.charsmap.is_empty() {
        header.set("tokenizer.ggml.precompiled_charsmap", Meta::array(normalizer.charsmap));
    }
    if let Some(unknown) = unknown {
        header.set("tokenizer.ggml.unknown_token_id", u32::try_from(unknown)?);
    }
    Ok(())
}

/// Reads `tokenizer.json` with a BPE model and the `Whitespace` pre-tokenizer. If tokens inside of words have a prefix
/// (`##`), the prefix is removed, and tokens at the start of a word get `▁`.
fn pairs(directory: &Path, model: &Model<'_>, header: &mut Header) -> Result<()> {
    let json: Value =
        serde_json::from_slice(&read_file(directory, "tokenizer.json")?).context("tokenizer.json is not JSON")?;
    let bpe = &json["model"];
    ensure!(bpe["type"] == "BPE", "the model in tokenizer.json is not BPE: not supported");
    ensure!(json["pre_tokenizer"]["type"] == "Whitespace", "the pre-tokenizer in tokenizer.json is not Whitespace");
    ensure!(json["normalizer"].is_null(), "tokenizer.json has a normalizer: not supported");
    for name in ["fuse_unk", "byte_fallback", "ignore_merges"] {
        ensure!(bpe[name] != true, "{name} in tokenizer.json is true: not supported");
    }
    ensure!(bpe["end_of_word_suffix"].as_str().unwrap_or("").is_empty(), "end_of_word_suffix is not supported");
    let prefix = bpe["continuing_subword_prefix"].as_str().unwrap_or("");
    let mut specials: HashMap<&str, u64> = HashMap::new();
    for token in json["added_tokens"].as_array().into_iter().flatten() {
        if let (Some(text), Some(id)) = (token["content"].as_str(), token["id"].as_u64()) {
            specials.insert(text, id);
        }
    }
    // Returns the token as GGUF spells it: a token at the start of a word begins with `▁`.
    let spelled = |token: &str| match token.strip_prefix(prefix) {
        _ if prefix.is_empty() => token.to_owned(),
        Some(rest) => rest.to_owned(),
        None => format!("▁{token}"),
    };
    let mut vocabulary = Vocabulary::new(model.vocab);
    for (token, id) in bpe["vocab"].as_object().context("tokenizer.json has no vocabulary")? {
        let id = id.as_u64().context("an id in tokenizer.json is not a number")?;
        if !specials.contains_key(token.as_str()) {
            vocabulary.set(id, &spelled(token), 0.0, NORMAL)?;
        }
    }
    let unknown = bpe["unk_token"].as_str();
    for (token, id) in &specials {
        vocabulary.set(*id, token, 0.0, if Some(*token) == unknown { UNKNOWN } else { CONTROL })?;
    }
    let merges = bpe["merges"].as_array().context("tokenizer.json has no merges")?.iter().map(|merge| {
        // A merge is a list of the two texts. Older files have one text instead, in which a space separates the two.
        let pair = match merge {
            Value::String(text) => text.split_once(' '),
            pair => pair[0].as_str().zip(pair[1].as_str()),
        };
        let (left, right) = pair.with_context(|| format!("{merge} in tokenizer.json is not a merge"))?;
        Ok(format!("{} {}", spelled(left), spelled(right)))
    });
    let merges: Vec<String> = merges.collect::<Result<_>>()?;
    vocabulary.write(header);
    header.set("tokenizer.ggml.model", "bpe");
    header.set("tokenizer.ggml.pre", "whitespace");
    header.set("tokenizer.ggml.add_space_prefix", !prefix.is_empty());
    header.set("tokenizer.ggml.merges", Meta::strings(merges));
    header.set("tokenizer.ggml.bos_token_id", model.start);
    header.set("tokenizer.ggml.add_bos_token", true);
    let unknown = unknown.and_then(|unknown| specials.get(unknown)).context("tokenizer.json names no unknown token")?;
    header.set("tokenizer.ggml.unknown_token_id", u32::try_from(*unknown)?);
    Ok(())
}
