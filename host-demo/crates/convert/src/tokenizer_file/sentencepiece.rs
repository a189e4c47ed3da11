//! Reads `tokenizer.model`, SentencePiece's `ModelProto`
//! (<https://github.com/google/sentencepiece/blob/master/src/sentencepiece_model.proto>).

use anyhow::{Context, Result, bail, ensure};
use prost::Message;

use super::{CONTROL, NORMAL, UNKNOWN, USER_DEFINED, Vocabulary, ranks};
use arenite_gguf_writer::Meta;
use arenite_text::normalizer::{self, Step};

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
    #[prost(bool, tag = "24")]
    pub treat_whitespace_as_suffix: bool,
    #[prost(string, tag = "46", default = "<s>")]
    pub bos_piece: String,
    #[prost(string, tag = "47", default = "</s>")]
    pub eos_piece: String,
    #[prost(string, tag = "48", default = "<pad>")]
    pub pad_piece: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct Normalizer {
    #[prost(bytes = "vec", tag = "2")]
    pub charsmap: Vec<u8>,
    #[prost(bool, optional, tag = "3")]
    pub add_dummy_prefix: Option<bool>,
    #[prost(bool, optional, tag = "4")]
    pub remove_extra_whitespaces: Option<bool>,
    #[prost(bool, optional, tag = "5")]
    pub escape_whitespaces: Option<bool>,
}

impl Normalizer {
    fn adds_prefix(&self) -> bool {
        self.add_dummy_prefix.unwrap_or(true)
    }

    fn merges_spaces(&self) -> bool {
        self.remove_extra_whitespaces.unwrap_or(true)
    }
}

pub(super) fn read(file: &[u8]) -> Result<Vocabulary> {
    ensure!(
        !ranks::is(file),
        "it is a list of tiktoken, which lacks the special tokens: give the tokenizer.json of the model with --tokenizer"
    );
    let model = SentencePiece::decode(file)
        .context("it is not a tokenizer.json, SentencePiece's tokenizer.model or llama2.c's tokenizer.bin")?;
    let (normalizer, trainer) = (model.normalizer.unwrap_or_default(), model.trainer.unwrap_or_default());
    let mut vocabulary = Vocabulary::default();
    for (id, piece) in (0..).zip(&model.pieces) {
        let kind = piece.kind.unwrap_or(NORMAL);
        let text = if kind == USER_DEFINED { piece.piece.replace('▁', " ") } else { piece.piece.clone() };
        vocabulary.set(id, text, piece.score, kind)?;
    }
    let unigram = match trainer.model_type.unwrap_or(1) {
        1 => true,
        // A vocabulary of characters is BPE without merges.
        2 | 4 => false,
        kind => bail!("its model type is {kind}: unigram (1), BPE (2) and characters (4) are supported"),
    };
    ensure!(
        !trainer.treat_whitespace_as_suffix && normalizer.escape_whitespaces != Some(false),
        "it has treat_whitespace_as_suffix or lacks escape_whitespaces, which is not supported"
    );
    vocabulary.key("model", if unigram { "t5" } else { "llama" });
    vocabulary.key("pre", "default");
    normalization(&normalizer, unigram, &mut vocabulary);
    let id_of = |test: &dyn Fn(&Piece) -> bool| model.pieces.iter().position(test).map(|id| id as u32);
    if let Some(id) = id_of(&|piece| piece.kind == Some(UNKNOWN)) {
        vocabulary.key("unknown_token_id", id);
    }
    for (key, adds, text) in [
        ("bos_token_id", "add_bos_token", &trainer.bos_piece),
        ("eos_token_id", "add_eos_token", &trainer.eos_piece),
        ("padding_token_id", "", &trainer.pad_piece),
    ] {
        match id_of(&|piece| piece.kind == Some(CONTROL) && piece.piece == *text) {
            Some(id) => vocabulary.key(key, id),
            None if adds.is_empty() => {}
            None => vocabulary.key(adds, false),
        }
    }
    Ok(vocabulary)
}

/// Sets how texts are converted before they are tokenized. The core converts texts for unigram only, and separately on
/// each side of a user-defined token; everything else becomes steps that this program applies before the core.
fn normalization(normalizer: &Normalizer, unigram: bool, vocabulary: &mut Vocabulary) {
    let (prefix, merges) = (normalizer.adds_prefix(), normalizer.merges_spaces());
    let has_shown = vocabulary.tokens.values().any(|token| token.kind == USER_DEFINED);
    let has_map = !normalizer.charsmap.is_empty();
    let needs_steps = !unigram || has_shown || !prefix;
    vocabulary.key("add_space_prefix", prefix);
    vocabulary.key("remove_extra_whitespaces", merges && !needs_steps);
    if has_map {
        vocabulary.key("precompiled_charsmap", Meta::array(normalizer.charsmap.iter().copied()));
    }
    let has_prefix = has_shown && prefix;
    let steps = [(Step::Charsmap, has_map), (Step::SingleSpaces, merges), (Step::SpacePrefix, has_prefix)];
    let steps = steps.into_iter().filter(|(_, is_needed)| needs_steps && *is_needed).map(|(step, _)| step);
    let names = normalizer::names(steps);
    if !names.is_empty() {
        vocabulary.key("normalizer.steps", names.as_str());
    }
    if has_prefix {
        // Rule 3, the sum of two flags: no space is added before a text that begins with a space, and none after a
        // special token.
        vocabulary.key("add_space_prefix_rule", 3u32);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use arenite::Gguf;
    use arenite::tokenizer::Encode;

    use super::super::BYTE;
    use super::*;
    use arenite_gguf_writer::Header;
    use arenite_text as text;

    /// A character map as `spm_train --normalization_rule_tsv` makes it, from three rules: tab becomes a space, "A"
    /// becomes "a" and "H" becomes "h".
    fn charsmap() -> Vec<u8> {
        let mut nodes = [0u32; 256];
        for (at, node) in
            [(0, 0x2000), (1, 0xd09), (2, 1 << 31), (3, 1 << 31 | 2), (4, 1 << 31 | 4), (64, 0x11148), (73, 0x12941)]
        {
            nodes[at] = node;
        }
        let size = 4 * nodes.len() as u32;
        [size].into_iter().chain(nodes).flat_map(u32::to_le_bytes).chain(*b" \0a\0h\0").collect()
    }

    struct Case {
        model_type: i32,
        has_shown: bool,
        prefix: bool,
        merges: bool,
        has_map: bool,
        has_bytes: bool,
    }

    fn file(case: &Case) -> Vec<u8> {
        let piece = |text: &str, score: f32, kind: i32| Piece { piece: text.to_owned(), score, kind: Some(kind) };
        let mut pieces = vec![piece("<unk>", 0.0, UNKNOWN), piece("<s>", 0.0, CONTROL), piece("</s>", 0.0, CONTROL)];
        let texts = ["▁a", "▁c", "▁cat", "at", "th", "▁the", "▁th", "e", "h", "t", "a", "c", "▁"];
        pieces.extend((4u8..).zip(texts).map(|(i, text)| piece(text, -f32::from(i) / 4.0, NORMAL)));
        pieces.extend(case.has_shown.then(|| piece("<x>", 0.0, USER_DEFINED)));
        let bytes = (0..=255u8).filter(|_| case.has_bytes);
        pieces.extend(bytes.map(|byte| piece(&format!("<0x{byte:02X}>"), 0.0, BYTE)));
        let normalizer = Normalizer {
            charsmap: if case.has_map { charsmap() } else { Vec::new() },
            add_dummy_prefix: Some(case.prefix),
            remove_extra_whitespaces: Some(case.merges),
            escape_whitespaces: None,
        };
        let trainer = Some(Trainer { model_type: Some(case.model_type), ..Trainer::default() });
        SentencePiece { pieces, trainer, normalizer: Some(normalizer) }.encode_to_vec()
    }

    /// The expected ids come from sentencepiece 0.2.3 for the same files.
    #[test]
    fn ids_are_sentencepieces() {
        let texts = ["the cAt", "  The  cat \t ", " ", "<x>", "a<x> cat<x>c", "<x>  the", "ez \tzz", "the \tHat"];
        let case = |flags: u32, model_type: i32| {
            let is = |bit: u32| flags >> bit & 1 == 1;
            Case { model_type, has_shown: is(4), prefix: is(3), merges: is(2), has_map: is(1), has_bytes: is(0) }
        };
        let wanted = [
            (
                0b01110,
                &[2][..],
                ["8,5", "15,0,11,10,5", "", "15,0", "3,0,5,0,14", "15,0,8", "15,10,0,15,0", "8,15,11,6"],
            ),
            (
                0b11110,
                &[1, 2],
                ["8,5", "15,0,11,10,5", "", "15,16", "3,16,5,16,14", "15,16,8", "15,10,0,15,0", "8,15,11,6"],
            ),
            (
                0b00100,
                &[1, 2],
                ["7,10,4,0,12", "0,11,10,5,15,0", "", "0", "13,0,5,0,14", "0,8", "10,0,15,0", "7,10,15,0,6"],
            ),
            (
                0b01001,
                &[1],
                [
                    "8,4,81,12",
                    "15,15,15,100,11,10,15,5,15,25,15",
                    "15,15",
                    "15,76,136,78",
                    "3,76,136,78,5,76,136,78,14",
                    "15,76,136,78,15,8",
                    "15,10,138,15,25,138,138",
                    "8,15,25,88,6",
                ],
            ),
        ];
        let cases = wanted.iter().flat_map(|(flags, types, ids)| types.iter().map(move |kind| (*flags, *kind, ids)));
        for (flags, model_type, wanted) in cases {
            let mut header = Header::new();
            read(&file(&case(flags, model_type))).unwrap().write(300, &mut header).unwrap();
            let file = header.write(Cursor::new(Vec::new())).unwrap().finish().unwrap().into_inner();
            let (gguf, mut memory) = (Gguf::parse(&file).unwrap(), Vec::new());
            let tokenizer = text::tokenizer(&gguf, &mut memory).unwrap();
            for (text, wanted) in texts.iter().zip(wanted) {
                let ids = text::encode(&tokenizer, text.as_bytes(), Encode::TEXT).unwrap();
                let ids: Vec<String> = ids.iter().map(u32::to_string).collect();
                assert_eq!(ids.join(","), *wanted, "{text:?} with {flags:#b} and type {model_type}");
            }
        }
    }

    #[test]
    fn other_kinds_are_refused() {
        let trainer = |trainer| SentencePiece { pieces: Vec::new(), trainer: Some(trainer), normalizer: None };
        let words = trainer(Trainer { model_type: Some(3), ..Trainer::default() });
        let suffix = trainer(Trainer { treat_whitespace_as_suffix: true, ..Trainer::default() });
        for (file, says) in [(words, "model type is 3"), (suffix, "treat_whitespace_as_suffix")] {
            assert!(read(&file.encode_to_vec()).err().unwrap().to_string().contains(says));
        }
    }
}
