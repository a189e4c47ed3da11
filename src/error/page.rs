//! Tests that the guide's table of errors has every error with its current sentence.

extern crate std;

use std::collections::BTreeSet;
use std::string::String;
use std::{format, vec, vec::Vec};

use super::{Error, Name};
use crate::quant::TensorType;

const PAGE: &str = include_str!("../guide/what_can_go_wrong.md");

/// Returns an example of each variant.
fn examples() -> Vec<Error> {
    let key = Name::new(b"llama.block_count");
    let tensor = Name::new(b"blk.0.attn_q.weight");
    let (found, expected) = ([64, 32, 1, 1], [64, 64, 1, 1]);
    vec![
        Error::NotGguf,
        Error::Truncated { what: "a metadata key", at: 1024 },
        Error::BigEndian,
        Error::Version { version: 1 },
        Error::TooMany { what: "tensors", count: 1 << 63, at: 8 },
        Error::BadName { what: "tensor", at: 2048, why: "is not UTF-8" },
        Error::DuplicateKey { key },
        Error::DuplicateTensor { tensor },
        Error::UnknownValueType { key, id: 13 },
        Error::NestedArray { key },
        Error::TensorRank { tensor, count: 5 },
        Error::TensorDim { tensor, dim: 1, len: -1 },
        Error::TensorTooLarge { tensor, dims: [1 << 40, 1 << 40, 1, 1] },
        Error::UnknownTensorType { tensor, id: 4 },
        Error::TensorBlock { tensor, row: 100, block: 32 },
        Error::TensorOffset { tensor, found: 4096, expected: 8192 },
        Error::TensorData { tensor, offset: 8192, size: 16384, file: 20000 },
        #[cfg(feature = "verify")]
        Error::DamagedTensor { tensor },
        #[cfg(feature = "split")]
        Error::Piece { number: 2, count: 3, why: "is missing" },
        Error::MissingKey { key },
        Error::KeyType { key, expected: "a 32-bit unsigned integer" },
        Error::KeyValue { key, why: "is 0" },
        Error::UnexpectedKey { key: Name::new(b"llama.new_idea") },
        Error::UnsupportedKey { key: Name::new(b"llama.expert_group_count"), what: "groups of experts" },
        Error::Unsupported { what: "architecture", name: Name::new(b"dream") },
        Error::MissingTensor { tensor },
        Error::UnexpectedTensor { tensor: Name::new(b"blk.0.new_idea.weight") },
        Error::TensorShape { tensor, found, expected },
        Error::TensorType { tensor, kind: TensorType::Q2_K },
        Error::PlanTooLarge,
        Error::PlanMismatch,
        Error::WorkspaceTooSmall { needed: 65536, given: 65535 },
        Error::KvTooSmall { needed: 65536, given: 0 },
        Error::Misaligned { align: 64 },
        Error::WorkspaceTaken,
        Error::BufferTooSmall { what: "token ids", needed: 12, given: 8 },
        Error::TokenOutOfRange { token: 32000, vocab: 32000 },
        Error::EmptyPrompt,
        Error::NoPart { part: "encoder" },
        Error::NoSource,
        Error::TooManyContexts { planned: 4 },
        Error::ForeignContext,
        Error::OutOfPages { needed: 3, free: 1 },
        Error::TooManyLogits { planned: 1, needed: 8 },
        Error::TooManyBeams { planned: 3, given: 4 },
        Error::CannotRewind { position: 900, earliest: 512, latest: 800 },
        Error::DamagedSnapshot { why: "is cut short" },
        Error::ForeignSnapshot { what: "model" },
        Error::ContextFull { context: 256, needed: 300 },
        #[cfg(feature = "sound")]
        Error::Sound { at: 4812, why: "is not a number from -1 to 1: decode the sound again" },
        #[cfg(feature = "capi")]
        Error::Argument { what: "for the model" },
        Error::VocabularyEntry { key: Name::new(b"tokenizer.ggml.merges"), entry: 7, why: "has no space" },
        Error::ForeignIndex,
        Error::TextRefused,
        Error::TextTooLong { bytes: 1 << 31, limit: 1 << 30 },
        Error::LogitsLength { vocab: 32000, given: 512 },
        Error::DamagedGrammar { at: 4, why: "ends inside a node" },
        Error::TokenNotAllowed { token: 29 },
        Error::NotNumbers,
        Error::NoTokenAllowed,
        #[cfg(feature = "vision")]
        Error::Picture { why: "is empty: give one with pixels" },
        #[cfg(feature = "storage")]
        Error::Storage { at: 4096, bytes: 1088, code: -5 },
        #[cfg(feature = "storage")]
        Error::NoStorage,
    ]
}

fn name(error: &Error) -> String {
    format!("{error:?}").chars().take_while(|c| c.is_alphanumeric()).collect()
}

#[test]
fn the_page_shows_each_message() {
    for error in examples() {
        // Escapes brackets, which would be links in Markdown.
        let row = format!("\n| {} | `{}` | {error} |\n", error.number(), name(&error)).replace('[', "\\[");
        assert!(PAGE.contains(&row), "the page lacks this row:\n{row}");
    }
}

#[test]
fn no_error_is_left_out() {
    let sentences = include_str!("sentences.rs").lines().filter(|line| line.contains(" => \""));
    let words = |line: &str| -> String { line.trim().chars().take_while(|c| c.is_alphanumeric()).collect() };
    let mut all: BTreeSet<_> = sentences.map(words).collect();
    assert!(all.len() > 50);
    for error in examples() {
        assert!(all.remove(&name(&error)));
    }
    all.retain(|name| cfg!(feature = "capi") || name != "Argument");
    all.retain(|name| cfg!(feature = "split") || name != "Piece");
    all.retain(|name| cfg!(feature = "verify") || name != "DamagedTensor");
    all.retain(|name| cfg!(feature = "sound") || name != "Sound");
    all.retain(|name| cfg!(feature = "vision") || name != "Picture");
    all.retain(|name| cfg!(feature = "storage") || !["Storage", "NoStorage"].contains(&name.as_str()));
    assert!(all.is_empty(), "without an example: {all:?}");
}
