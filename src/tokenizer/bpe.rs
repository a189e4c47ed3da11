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
use super::vocab::Vocab;
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
    let id = |byte| byte_id(vocab, index, byte);
    for word in pre.words(text) {
        let bytes = Normalized::new(word);
        if let [byte @ 0..=0x7f] = *word {
            if let Some(id) = id(byte) {
                output.push(id);
            }
            continue;
        }
        // Special tokens do not match here, because they were cut out of the text before. One that is still in the
        // text was not wanted, matches only as a whole word, or appeared when the text was normalized.
        let is_piece = |id: &TokenId| !vocab.file_type(*id).is_special();
        if pre.ignore_merges
            && let Some(id) = index.find(vocab, bytes.clone()).filter(is_piece)
        {
            output.push(id);
            continue;
        }
        let ids = bytes.filter_map(id);
        let mut row = Row::new(memory, ids.clone().count())?;
        for (slot, id) in ids.enumerate() {
            row.put(slot, slot + 1, id);
        }
        row.merge(&Ranks(index));
        for (_, _, id) in row.symbols() {
            output.push(id);
        }
    }
    Some(())
}

/// Returns the token of a byte. As in Hugging Face's tokenizers, a byte that the vocabulary lacks is an unknown token. Without
/// such a token the byte is left out, and its neighbours may merge. (llama.cpp leaves it out after merging.)
#[inline(never)] // keeps its temporaries off the caller's stack
fn byte_id(vocab: &Vocab<'_>, index: &Index<'_>, byte: u8) -> Option<TokenId> {
    index.byte(byte).or(vocab.unknown)
}

/// Like [`encode_bytes`], but for BPE over characters: a character that the vocabulary lacks becomes an unknown token.
/// Words begin with a space (`▁`) if the vocabulary spells them that way.
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
        let (mut slot, mut end, mut last, mut space) = (0, 0, None, prefix.then_some(b' '));
        while let Some(char) = first_char(word) {
            let (bytes, rest) = word.split_at_checked(char.len)?;
            end += bytes.len();
            let mut put = |bytes: &[u8], end| {
                let bytes = space.take().into_iter().chain(Spelling::Escaped.bytes(bytes));
                if let Some(id) = index.find(vocab, bytes).or(vocab.unknown) {
                    last = Some((slot, id));
                }
                // Without an unknown token, a character that the vocabulary lacks is dropped: the symbol before it takes
                // its place, or the one after it if it is the first, so that its neighbors may merge.
                if let Some((start, id)) = last {
                    row.put(start, end, id);
                    slot = end;
                }
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
        if last.is_none() {
            continue;
        }
        row.merge(&Ranks(index));
        for (_, _, id) in row.symbols() {
            output.push(id);
        }
    }
    Some(())
}

/// BPE over characters. Differs from [`encode_characters`] in two ways: it splits a text into lines instead of words,
/// and characters that the vocabulary lacks become byte tokens. Consecutive newlines form a line.
///
/// Source: llama.cpp's `LLAMA_VOCAB_PRE_TYPE_GEMMA4`, `LLAMA_VOCAB_PRE_TYPE_SARVAM_MOE` (without `newlines`) and, with
/// `words`, `LLAMA_VOCAB_PRE_TYPE_MMBERT`.
pub(super) struct Lines<'v, 'a, 'i> {
    pub vocab: &'v Vocab<'a>,
    pub index: &'v Index<'i>,
    /// True if consecutive newlines become a single token, provided that the vocabulary has such a token.
    pub newlines: bool,
    /// True if a line that does not begin with a space gets one, and each line is split into words before its spaces.
    pub words: bool,
}

impl Lines<'_, '_, '_> {
    /// Appends the ids of a text that has no special tokens. `None` if `memory` is too small for a line of the text.
    pub fn encode(&self, text: &[u8], memory: &mut [Word], output: &mut Output<'_>) -> Option<()> {
        for mut line in PreTokenizer::LINES.words(text) {
            let is_newlines = line.starts_with(b"\n");
            if self.newlines
                && is_newlines
                && let Some(id) = self.index.find(self.vocab, line.iter().copied())
            {
                output.push(id);
                continue;
            }
            if !self.words || is_newlines {
                self.encode_line(None, line, memory, output)?;
                continue;
            }
            let mut space = (!starts_with_space(line)).then_some(b' ');
            while !line.is_empty() {
                let len = (1..line.len()).find(|at| starts_with_space(line.get(*at..).unwrap_or(&[])));
                let (word, rest) = line.split_at_checked(len.unwrap_or(line.len()))?;
                self.encode_line(space.take(), word, memory, output)?;
                line = rest;
            }
        }
        Some(())
    }

    /// Appends the ids of a line or word. If `space` is not `None`, the line is encoded with this byte, a space, before
    /// it.
    fn encode_line(&self, space: Option<u8>, line: &[u8], memory: &mut [Word], output: &mut Output<'_>) -> Option<()> {
        let before = usize::from(space.is_some());
        let mut row = Row::new(memory, before + line.len())?;
        let mut put = |start: usize, bytes: &[u8]| {
            let id = self.index.find(self.vocab, Spelling::Escaped.bytes(bytes)).unwrap_or(u32::MAX);
            row.put(start, start + bytes.len(), id);
            start + bytes.len()
        };
        let (mut slot, mut chars) = (0, line);
        if space.is_some() {
            slot = put(0, b" ");
        }
        while let Some(char) = first_char(chars) {
            let (char, after) = chars.split_at_checked(char.len)?;
            slot = put(slot, char);
            chars = after;
        }
        row.merge(&Ranks(self.index));
        for (start, end, id) in row.symbols() {
            if id != u32::MAX {
                output.push(id);
                continue;
            }
            let spelled = line.get(start.saturating_sub(before)..end.saturating_sub(before))?;
            let spelled = if end <= before { b" " } else { spelled };
            for byte in spelled.iter().copied() {
                let space = &SPACE[..];
                let bytes = if byte == b' ' { space } else { core::slice::from_ref(&byte) };
                for byte in bytes {
                    if let Some(id) = self.index.byte(*byte).or(self.vocab.unknown) {
                        output.push(id);
                    }
                }
            }
        }
        Some(())
    }
}

fn starts_with_space(text: &[u8]) -> bool {
    text.starts_with(b" ") || text.starts_with(&SPACE)
}
