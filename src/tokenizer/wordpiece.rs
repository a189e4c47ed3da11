//! WordPiece: splits each word greedily into the longest tokens of the vocabulary. Tokens that begin a word are spelled
//! with `▁`. A word that cannot be split becomes one unknown token.
//!
//! Source: Hugging Face's `tokenizers` (`BertNormalizer`, `BertPreTokenizer`, `WordPiece`). llama.cpp differs, because
//! it leaves Hangul composed and strips all marks.

use core::iter;

use super::Output;
use super::canonical::SPACE;
use super::index::Index;
use super::merge::Word;
use super::unicode::{Group, encode as utf8, first_char, group, is_space, plain};
use super::vocab::{Vocab, WordPieceRules};

impl WordPieceRules {
    /// Returns the characters that replace `code`, padded with zeros.
    fn apply(self, code: u32) -> [u32; 3] {
        let same = [code, 0, 0];
        let mut lower = same;
        for (to, char) in lower.iter_mut().zip(char::from_u32(code).into_iter().flat_map(char::to_lowercase)) {
            *to = char as u32;
        }
        match (self.lowercase, self.strips_accents) {
            (false, false) => same,
            (true, false) => lower,
            (true, true) => plain(code),
            (false, true) => match plain(code) {
                parts if parts == lower => same,
                // `plain` returns lowercase.
                [first, rest @ ..] if group(code) == Group::Upper => {
                    let upper = char::from_u32(first).and_then(|first| first.to_uppercase().next());
                    let [second, third] = rest;
                    [upper.map_or(first, u32::from), second, third]
                }
                parts => parts,
            },
        }
    }

    /// True for control characters that are left out.
    fn drops(self, code: u32) -> bool {
        let is_line = matches!(code, 0x09 | 0x0a | 0x0d);
        self.cleans && (matches!(code, 0 | 0xfffd) || group(code) == Group::Control && !is_line)
    }

    /// Converts a text by these rules, and leaves out the rule for spaces around ideographs. Each byte comes with the
    /// length of the text up to it, or with 0 if more bytes of the same converted character follow.
    pub fn applied(self, text: &[u8]) -> impl Iterator<Item = (u8, usize)> {
        let mut at = 0;
        let mut chars = iter::from_fn(move || {
            let char = first_char(text.get(at..)?)?;
            at += char.len;
            Some((char.code, at))
        });
        let (mut bytes, mut next, mut end) = (heapless::Vec::<u8, 12>::new(), 0, 0);
        iter::from_fn(move || {
            while next == bytes.len() {
                let code;
                (code, end) = chars.next()?;
                (bytes, next) = (heapless::Vec::new(), 0);
                if self.drops(code) {
                    continue;
                }
                let [first, rest @ ..] = self.apply(if self.cleans && is_space(code) { 0x20 } else { code });
                for code in iter::once(first).chain(rest.into_iter().filter(|code| *code != 0)) {
                    let (utf8, len) = utf8(code);
                    let is_left_out = self.strips_accents && group(code) == Group::Nonspacing;
                    // There is room for three characters.
                    _ = bytes.extend_from_slice(utf8.get(..len).filter(|_| !is_left_out).unwrap_or(&[]));
                }
            }
            let byte = *bytes.get(next)?;
            next += 1;
            Some((byte, if next == bytes.len() { end } else { 0 }))
        })
    }
}

/// Appends the ids of a text that has no special tokens. `None` if `memory` is too small for a word of the text.
pub(super) fn encode(
    vocab: &Vocab<'_>,
    index: &Index<'_>,
    rules: WordPieceRules,
    mut text: &[u8],
    memory: &mut [Word],
    output: &mut Output<'_>,
) -> Option<()> {
    let mut word = Letters { bytes: memory.as_flattened_mut(), len: 0, count: 0 };
    while let Some(char) = first_char(text) {
        text = text.get(char.len..)?;
        if rules.drops(char.code) {
            continue;
        }
        let is_alone = rules.parts_ideographs && is_chinese(char.code);
        if is_alone {
            word.finish(vocab, index, output)?;
        }
        let [first, rest @ ..] = rules.apply(char.code);
        for code in iter::once(first).chain(rest.into_iter().filter(|code| *code != 0)) {
            match group(code) {
                _ if is_space(code) => word.finish(vocab, index, output)?,
                Group::Nonspacing if rules.strips_accents => {}
                kind if kind == Group::Punctuation || kind == Group::Symbol && code < 0x7f => {
                    word.finish(vocab, index, output)?;
                    word.push(code)?;
                    word.finish(vocab, index, output)?;
                }
                _ => word.push(code)?,
            }
        }
        if is_alone {
            word.finish(vocab, index, output)?;
        }
    }
    word.finish(vocab, index, output)
}

/// Maximum number of characters of a word. A longer word becomes the unknown token.
const MOST_CHARACTERS: usize = 100;

/// True for characters that BERT treats as words: CJK ideographs.
fn is_chinese(code: u32) -> bool {
    matches!(
        code,
        0x4e00..=0x9fff
            | 0x3400..=0x4dbf
            | 0x20000..=0x2a6df
            | 0x2a700..=0x2b73f
            | 0x2b740..=0x2b81f
            | 0x2b920..=0x2ceaf // as in Hugging Face's Rust code; the block begins at 2b820
            | 0xf900..=0xfaff
            | 0x2f800..=0x2fa1f
    )
}

/// The current word, after a `▁`.
struct Letters<'m> {
    bytes: &'m mut [u8],
    len: usize,
    /// Number of characters of the word so far. If there are more than [`MOST_CHARACTERS`], the further characters are
    /// only counted.
    count: usize,
}

impl Letters<'_> {
    fn push(&mut self, code: u32) -> Option<()> {
        if self.count == 0 {
            self.push_bytes(&SPACE)?;
        }
        self.count = self.count.saturating_add(1);
        if self.count > MOST_CHARACTERS {
            return Some(());
        }
        let (bytes, len) = utf8(code);
        self.push_bytes(bytes.get(..len)?)
    }

    fn push_bytes(&mut self, bytes: &[u8]) -> Option<()> {
        self.bytes.get_mut(self.len..self.len + bytes.len())?.copy_from_slice(bytes);
        self.len += bytes.len();
        Some(())
    }

    /// Appends the word's ids and starts the next word.
    fn finish(&mut self, vocab: &Vocab<'_>, index: &Index<'_>, output: &mut Output<'_>) -> Option<()> {
        let mut rest = self.bytes.get(..self.len)?;
        let is_known = self.count <= MOST_CHARACTERS;
        (self.len, self.count) = (0, 0);
        let (before, mut is_first) = (output.len, true);
        while !rest.is_empty() {
            // Special tokens do not match here, because they were cut out of the text before. A special token that is
            // still in the text is one that matches only as a whole word, and here it is part of a longer word.
            let pieces =
                index.prefixes(vocab, rest.iter().copied()).filter(|(_, id)| !vocab.file_type(*id).is_special());
            // `▁` marks the start of a word only in the word's first piece. In the rest of the word, a `▁` is a
            // character of the text, and must not match such a token.
            let is_known = is_known && (core::mem::take(&mut is_first) || !rest.starts_with(&SPACE));
            let Some((len, id)) = pieces.last().filter(|_| is_known) else {
                output.len = before;
                if let Some(unknown) = vocab.unknown {
                    output.push(unknown);
                }
                break;
            };
            output.push(id);
            rest = rest.get(len..)?;
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ranges of code points are those of BERT's `_is_chinese_char`, except that one starts at 2b920, as in
    /// `tokenizers`.
    #[test]
    fn ideographs_are_words() {
        let blocks = [
            (0x3400, 0x4dbf),
            (0x4e00, 0x9fff),
            (0xf900, 0xfaff),
            (0x20000, 0x2a6df),
            (0x2a700, 0x2b73f),
            (0x2b740, 0x2b81f),
            (0x2b920, 0x2ceaf),
            (0x2f800, 0x2fa1f),
        ];
        let mut count = 0;
        for (first, last) in blocks {
            assert!(is_chinese(first) && is_chinese((first + last) / 2) && is_chinese(last), "{first:x}");
            count += last - first + 1;
        }
        assert_eq!((0..0x110000).filter(|code| is_chinese(*code)).count(), count as usize);
    }
}
