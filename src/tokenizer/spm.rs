//! SentencePiece's BPE: of all pairs of adjacent symbols, the pair whose union has the best score merges first. Symbols
//! that are not in the vocabulary become byte tokens.
//!
//! Source: llama.cpp's `llm_tokenizer_spm_session`, after SentencePiece's `bpe_model.cc`.

use super::Output;
use super::canonical::Spelling;
use super::index::Index;
use super::merge::{NO_PAIR, Pair, Row, Rules, Word};
use super::vocab::{HAS_TABLES, TokenType, Vocab};
use crate::TokenId;

/// Text between special tokens.
pub(super) struct Fragment<'v, 'a, 'i, 't> {
    pub vocab: &'v Vocab<'a>,
    pub index: &'v Index<'i>,
    pub text: &'t [u8],
    /// True if a space is inserted before the text. The space takes slot 0.
    pub prefix: bool,
}

impl Fragment<'_, '_, '_, '_> {
    fn slots(&self) -> usize {
        self.text.len() + usize::from(self.prefix)
    }

    /// The bytes of text in slots `start..end`.
    fn bytes(&self, start: usize, end: usize) -> impl Iterator<Item = u8> + Clone {
        let shift = usize::from(self.prefix);
        let space = (self.prefix && start == 0).then_some(b' ');
        let text = self.text.get(start.saturating_sub(shift)..end.saturating_sub(shift)).unwrap_or(&[]);
        // A `▁` in the text is equivalent to a space, as in llama.cpp.
        space.into_iter().chain(Spelling::Escaped.bytes(text))
    }

    fn find(&self, start: usize, end: usize) -> Option<TokenId> {
        // A range that is longer than every token is not looked up. The length of the longest spelling, in bytes, is a
        // safe limit, because a token has at most as many slots as its spelling has bytes: a space takes one slot and
        // three bytes.
        if end.saturating_sub(start) > self.index.longest() {
            return None;
        }
        // Added tokens do not match here, because they were cut out of the text before. A user-defined token that is
        // still in the text is one that matches only as a whole word, and here it is part of a longer word.
        let is_added = |id| matches!(self.vocab.file_type(id), TokenType::UserDefined | TokenType::Control);
        let is_piece = |id: &TokenId| !HAS_TABLES || !is_added(*id);
        self.index.find(self.vocab, self.bytes(start, end)).filter(is_piece)
    }

    /// Splits the fragment before the first space across which nothing merges.
    ///
    /// The parts are encoded independently, so that memory for the longest part suffices. In most vocabularies, spaces
    /// only occur at the start of tokens. A part is then a word, whose symbols stay in the cache.
    fn split(&self) -> (Self, Self) {
        let mut cut = 0;
        while let Some(rest) = self.text.get(cut..).filter(|rest| !rest.is_empty()) {
            let symbol = first_symbol(rest);
            cut += symbol;
            let last = rest.get(symbol.saturating_sub(1)).copied().unwrap_or(0);
            if rest.get(symbol) == Some(&b' ') && !self.index.may_span(last) {
                break;
            }
        }
        let (part, rest) = self.text.split_at_checked(cut).unwrap_or((self.text, &[]));
        (Self { text: part, ..*self }, Self { text: rest, prefix: false, ..*self })
    }

    /// Appends the ids; `None` if `memory` is too small.
    pub fn encode(&self, memory: &mut [Word], output: &mut Output<'_>) -> Option<()> {
        let (mut rest, mut after_unknown) = (Self { ..*self }, false);
        while rest.slots() > 0 {
            let part;
            (part, rest) = rest.split();
            after_unknown = part.encode_part(after_unknown, memory, output)?;
        }
        Some(())
    }

    /// Appends the ids of a part of the text. `after_unknown` is true if the token before the part was the unknown
    /// token. The result is true if the last token of the part is the unknown token.
    fn encode_part(&self, mut after_unknown: bool, memory: &mut [Word], output: &mut Output<'_>) -> Option<bool> {
        let slots = self.slots();
        let mut row = Row::new(memory, slots)?;
        let mut start = 0;
        if self.prefix {
            row.put(0, 1, 0);
            start = 1;
        }
        let mut rest = self.text;
        while !rest.is_empty() {
            let symbol = first_symbol(rest);
            row.put(start, start + symbol, 0);
            start += symbol;
            rest = rest.get(symbol..)?;
        }
        row.merge(self);
        for (start, end, _) in row.symbols() {
            match self.find(start, end) {
                Some(id) => {
                    output.push(id);
                    after_unknown = false;
                }
                None => after_unknown = self.spell_out(start, end, after_unknown, output),
            }
        }
        Some(after_unknown)
    }

    /// Appends byte tokens for a symbol that is not in the vocabulary. If the vocabulary has no such byte tokens,
    /// appends the unknown token and returns true.
    fn spell_out(&self, start: usize, end: usize, after_unknown: bool, output: &mut Output<'_>) -> bool {
        let mut is_unknown = false;
        let mut push = |byte| match self.index.byte(byte) {
            Some(id) => output.push(id),
            None => is_unknown = true,
        };
        for byte in self.bytes(start, end) {
            match byte {
                b' ' => super::canonical::SPACE.into_iter().for_each(&mut push),
                byte => push(byte),
            }
        }
        if is_unknown
            && !(after_unknown && self.vocab.fuse_unknown)
            && let Some(id) = self.vocab.unknown
        {
            output.push(id);
        }
        is_unknown
    }
}

impl Rules for Fragment<'_, '_, '_, '_> {
    fn key(&self, pair: Pair) -> u32 {
        match self.find(pair.start as usize, pair.end as usize) {
            Some(id) => key_of_score(self.vocab.score(id)),
            None => NO_PAIR,
        }
    }

    fn merged(&self, _: Pair) -> TokenId {
        0 // Symbols are looked up by their bytes instead.
    }
}

/// Maps a score to a key that decreases as the score increases. NaN gets the largest key.
fn key_of_score(score: f32) -> u32 {
    if score.is_nan() {
        return NO_PAIR - 1;
    }
    let bits = (score + 0.0).to_bits(); // -0 equals 0
    if bits >> 31 == 0 { !(bits | 1 << 31) } else { bits }
}

/// Number of bytes of the first symbol of `text`, which is not empty.
///
/// llama.cpp replaces spaces by `▁` and then takes a character's length from its first byte (`unicode_len_utf8`). In
/// invalid UTF-8 the first bytes of a `▁` may therefore become part of a symbol. In llama.cpp, the other bytes of the
/// `▁` stand alone and never merge; here, they are counted as part of the symbol.
fn first_symbol(text: &[u8]) -> usize {
    let mut missing = match text.first() {
        Some(0xc0..=0xdf) => 1,
        Some(0xe0..=0xef) => 2,
        Some(0xf0..=0xff) => 3,
        _ => return 1,
    };
    let mut len = 1;
    for byte in text.iter().skip(1) {
        if missing == 0 {
            break;
        }
        missing -= if *byte == b' ' { missing.min(3) } else { 1 };
        len += 1;
    }
    len
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols() {
        let len = |text: &[u8]| first_symbol(text);
        assert_eq!([len(b"ab"), len("éa".as_bytes()), len("語a".as_bytes()), len("😀a".as_bytes())], [1, 2, 3, 4]);
        assert_eq!([len(b"\x81a"), len(b"\xe2"), len(b"\xe2a"), len(b"\xc3 a"), len(b"\xe2a a")], [1, 1, 2, 2, 3]);
    }

    #[test]
    fn keys_order_against_scores() {
        let scores = [f32::INFINITY, 1e10, 1.0, 1e-40, 0.0, -1e-40, -1.0, -1e10, f32::NEG_INFINITY, f32::NAN];
        for pair in scores.windows(2) {
            assert!(key_of_score(pair[0]) < key_of_score(pair[1]), "{pair:?}");
        }
        assert_eq!(key_of_score(0.0), key_of_score(-0.0));
        assert!(key_of_score(f32::NAN) < NO_PAIR);
    }
}
