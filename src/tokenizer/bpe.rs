//! BPE with merges: each word (or line) is split into bytes or characters, and the pair with the lowest merge rank
//! merges first.
//!
//! Sources: llama.cpp's `llm_tokenizer_bpe_session`, after GPT-2's `encoder.py`; for characters, Hugging Face's `BPE`
//! model without byte fallback after its `Whitespace` pre-tokenizer.

use super::Output;
use super::canonical::{SPACE, Spelling};
use super::index::Index;
use super::merge::{NO_PAIR, Pair, Row, Rules, Word};
use super::pretokenizer::PreTokenizer;
use super::unicode::{Normalized, first_char, is_space};
use super::vocab::{TokenType, Vocab};
use crate::TokenId;

/// Merge rules ordered by rank.
struct Ranks<'v, 'i>(&'v Index<'i>);

impl Rules for Ranks<'_, '_> {
    #[inline]
    fn key(&self, pair: Pair) -> u32 {
        self.0.merge(pair.left, pair.right).map_or(NO_PAIR, |(rank, _)| rank)
    }

    #[inline]
    fn merged(&self, pair: Pair) -> TokenId {
        self.0.merge(pair.left, pair.right).map_or(u32::MAX, |(_, id)| id)
    }
}

/// Appends the ids of a text without special tokens; `None` if `memory` is too small for one of its words.
pub(super) fn encode_bytes(
    vocab: &Vocab<'_>,
    index: &Index<'_>,
    pre: PreTokenizer,
    text: &[u8],
    memory: &mut [Word],
    output: &mut Output<'_>,
) -> Option<()> {
    for word in pre.words(text) {
        let bytes = Normalized::new(word);
        if let [byte @ 0..=0x7f] = *word {
            // A byte that the vocabulary lacks is skipped, as in llama.cpp.
            if let Some(id) = index.byte(byte) {
                output.push(id);
            }
            continue;
        }
        // User-defined tokens were cut out of the text before. A token that is still in the text matches only as a
        // whole word, and here it is part of a longer word.
        let is_piece = |id: &TokenId| vocab.file_type(*id) != TokenType::UserDefined;
        if pre.ignore_merges
            && let Some(id) = index.find(vocab, bytes.clone()).filter(is_piece)
        {
            output.push(id);
            continue;
        }
        let mut row = Row::new(memory, bytes.clone().count())?;
        for (slot, byte) in bytes.enumerate() {
            row.put(slot, slot + 1, index.byte(byte).unwrap_or(u32::MAX));
        }
        row.merge(&Ranks(index));
        for (_, _, id) in row.symbols() {
            if id != u32::MAX {
                output.push(id);
            }
        }
    }
    Some(())
}

/// Like [`encode_bytes`], with characters: a character that the vocabulary lacks becomes an unknown token. Words begin
/// with a space (`▁`) if the vocabulary spells them that way.
pub(super) fn encode_characters(
    vocab: &Vocab<'_>,
    index: &Index<'_>,
    lowercase: bool,
    text: &[u8],
    memory: &mut [Word],
    output: &mut Output<'_>,
) -> Option<()> {
    let prefix = vocab.add_space_prefix;
    for mut word in PreTokenizer::WORDS.words(text) {
        if first_char(word).is_some_and(|first| is_space(first.code)) {
            continue;
        }
        let mut row = Row::new(memory, word.len())?;
        let (mut slot, mut space) = (0, prefix.then_some(b' '));
        while let Some(char) = first_char(word) {
            let (bytes, rest) = word.split_at_checked(char.len)?;
            let end = slot + bytes.len();
            let mut put = |bytes: &[u8], end| {
                let bytes = space.take().into_iter().chain(Spelling::Escaped.bytes(bytes));
                row.put(slot, end, index.find(vocab, bytes).or(vocab.unknown).unwrap_or(u32::MAX));
                slot = end;
            };
            match char::from_u32(char.code).filter(|_| lowercase).map(char::to_lowercase) {
                // Only U+0130, of two bytes, becomes two characters.
                Some(lower) => {
                    let count = lower.len();
                    for (at, lower) in lower.enumerate() {
                        put(lower.encode_utf8(&mut [0; 4]).as_bytes(), (end + 1 + at).saturating_sub(count));
                    }
                }
                None => put(bytes, end),
            }
            word = rest;
        }
        row.merge(&Ranks(index));
        for (_, _, id) in row.symbols() {
            if id != u32::MAX {
                output.push(id);
            }
        }
    }
    Some(())
}

/// Like [`encode_characters`], with lines instead of words, no space before them, and byte tokens for characters that
/// the vocabulary lacks. Consecutive newlines form a line; with `newlines` they become a single token if the vocabulary
/// has it.
///
/// Source: llama.cpp's `LLAMA_VOCAB_PRE_TYPE_GEMMA4` and, without `newlines`, `LLAMA_VOCAB_PRE_TYPE_SARVAM_MOE`.
pub(super) fn encode_lines(
    vocab: &Vocab<'_>,
    index: &Index<'_>,
    newlines: bool,
    text: &[u8],
    memory: &mut [Word],
    output: &mut Output<'_>,
) -> Option<()> {
    for line in PreTokenizer::LINES.words(text) {
        if newlines
            && line.starts_with(b"\n")
            && let Some(id) = index.find(vocab, line.iter().copied())
        {
            output.push(id);
            continue;
        }
        let mut row = Row::new(memory, line.len())?;
        let (mut slot, mut chars) = (0, line);
        while let Some(char) = first_char(chars) {
            let (char, after) = chars.split_at_checked(char.len)?;
            row.put(slot, slot + char.len(), index.find(vocab, Spelling::Escaped.bytes(char)).unwrap_or(u32::MAX));
            slot += char.len();
            chars = after;
        }
        row.merge(&Ranks(index));
        for (start, end, id) in row.symbols() {
            if id != u32::MAX {
                output.push(id);
                continue;
            }
            for byte in line.get(start..end)?.iter().copied() {
                let space = &SPACE[..];
                let bytes = if byte == b' ' { space } else { core::slice::from_ref(&byte) };
                for byte in bytes {
                    if let Some(id) = index.byte(*byte).or(vocab.unknown) {
                        output.push(id);
                    }
                }
            }
        }
    }
    Some(())
}
