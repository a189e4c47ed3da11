//! Reads `tokenizer.model`, SentencePiece's `ModelProto`
//! (<https://github.com/google/sentencepiece/blob/master/src/sentencepiece_model.proto>).

use anyhow::{Context, Result, bail};
use prost::Message;

use super::{CONTROL, NORMAL, UNKNOWN, Vocabulary};
use crate::gguf_writer::Meta;

/// The fields of `ModelProto` that are used.
#[derive(Clone, PartialEq, Message)]
pub struct SentencePiece {
    #[prost(message, repeated, tag = "1")]
    pub pieces: Vec<Piece>,
    #[prost(message, optional, tag = "2")]
    pub trainer: Option<Trainer>,
    #[prost(message, optional, tag = "3")]
    pub normalizer: Option<Normalizer>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Piece {
    #[prost(string, tag = "1")]
    pub piece: String,
    #[prost(float, tag = "2")]
    pub score: f32,
    /// The values are those of `tokenizer.ggml.token_type`.
    #[prost(int32, optional, tag = "3")]
    pub kind: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Trainer {
    #[prost(int32, optional, tag = "3")]
    pub model_type: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Normalizer {
    #[prost(bytes = "vec", tag = "2")]
    pub charsmap: Vec<u8>,
    #[prost(bool, optional, tag = "3")]
    pub add_dummy_prefix: Option<bool>,
    #[prost(bool, optional, tag = "4")]
    pub remove_extra_whitespaces: Option<bool>,
}

pub(super) fn read(file: &[u8]) -> Result<Vocabulary> {
    let model = SentencePiece::decode(file)
        .context("it is not a tokenizer.json, SentencePiece's tokenizer.model or llama2.c's tokenizer.bin")?;
    let mut vocabulary = Vocabulary::default();
    for (id, piece) in (0..).zip(&model.pieces) {
        vocabulary.set(id, piece.piece.clone(), piece.score, piece.kind.unwrap_or(NORMAL))?;
    }
    let normalizer = model.normalizer.unwrap_or_default();
    let unigram = match model.trainer.unwrap_or_default().model_type.unwrap_or(1) {
        1 => true,
        2 => false,
        kind => bail!("its model type is {kind}: unigram (1) and BPE (2) are supported"),
    };
    vocabulary.key("model", if unigram { "t5" } else { "llama" });
    vocabulary.key("pre", "default");
    vocabulary.key("add_space_prefix", normalizer.add_dummy_prefix.unwrap_or(true));
    vocabulary.key("remove_extra_whitespaces", unigram && normalizer.remove_extra_whitespaces.unwrap_or(true));
    if unigram && !normalizer.charsmap.is_empty() {
        vocabulary.key("precompiled_charsmap", Meta::array(normalizer.charsmap));
    }
    let id_of = |test: &dyn Fn(&Piece) -> bool| model.pieces.iter().position(test).map(|id| id as u32);
    if let Some(id) = id_of(&|piece| piece.kind == Some(UNKNOWN)) {
        vocabulary.key("unknown_token_id", id);
    }
    for (key, text) in [("bos_token_id", "<s>"), ("eos_token_id", "</s>"), ("padding_token_id", "<pad>")] {
        if let Some(id) = id_of(&|piece| piece.kind == Some(CONTROL) && piece.piece == text) {
            vocabulary.key(key, id);
        }
    }
    Ok(vocabulary)
}
