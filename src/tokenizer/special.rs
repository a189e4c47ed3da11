//! Finds special tokens in a text, before the rest is tokenized.
//!
//! As in Hugging Face's tokenizers, a text is searched from left to right, and at each position the longest token is
//! taken. Control tokens are searched first; all other added tokens are searched in the text between control tokens.
//! (llama.cpp 0.3.36 takes the longest token of the whole text first. The results differ only if tokens overlap.)

use super::index::{Index, Special, narrow, rule};
use super::unicode::{first_char, is_word};
use super::vocab::{HAS_TABLES, LONGEST_LOOKED_FOR, TokenType, Vocab};
use crate::TokenId;

/// Mark of a byte of the text.
pub(super) mod mark {
    /// Text.
    pub const TEXT: u8 = 0;
    /// Start of a special token.
    pub const START: u8 = 1;
    /// Inside a special token.
    pub const INSIDE: u8 = 2;
    /// White space absorbed by a special token.
    pub const STRIPPED: u8 = 3;
}

#[derive(Clone, Copy)]
pub(super) struct ByteSet(pub [u32; 8]);

impl ByteSet {
    pub const EMPTY: Self = Self([0; 8]);

    pub fn insert(&mut self, byte: u8) {
        if let Some(word) = self.0.get_mut(usize::from(byte >> 5)) {
            *word |= 1 << (byte & 31);
        }
    }

    fn contains(&self, byte: u8) -> bool {
        self.0.get(usize::from(byte >> 5)).is_some_and(|word| word >> (byte & 31) & 1 != 0)
    }
}

/// Finds the special tokens of a vocabulary.
pub(super) struct Specials<'v, 'a, 'i> {
    pub vocab: &'v Vocab<'a>,
    pub index: &'v Index<'i>,
    /// True if control tokens are parsed; user-defined tokens are always parsed.
    pub parse_special: bool,
    /// The only positions at which control tokens may start, in ascending order; `None` for no restriction.
    pub places: Option<&'v [usize]>,
}

/// The kinds of special tokens that a search finds.
#[derive(Clone, Copy)]
struct Counts {
    control: bool,
    added: bool,
}

impl Counts {
    fn has(self, special: &Special) -> bool {
        if special.kind == TokenType::UserDefined { self.added } else { self.control }
    }
}

impl Specials<'_, '_, '_> {
    /// Marks every byte of `text` in the front of `memory`. `Ok(false)` if there is no special token; `memory` is then
    /// unchanged. `Err` if `memory` is too short.
    pub fn mark(&self, text: &[u8], memory: &mut [u8]) -> Result<bool, ()> {
        let (mut marks, mut is_any) = (memory.get_mut(..text.len()), false);
        for is_control in [true, false] {
            if is_control && !self.parse_special {
                continue;
            }
            let counts = Counts { control: is_control, added: !is_control };
            let mut firsts = ByteSet::EMPTY;
            for special in self.index.specials().iter().map(Special::from_words).filter(|special| counts.has(special)) {
                firsts.insert(special.first);
            }
            let mut next = 0;
            let places = self.places.filter(|_| is_control);
            for (pos, _) in text.iter().enumerate().filter(|(_, byte)| firsts.contains(**byte)) {
                if pos < next || places.is_some_and(|places| places.binary_search(&pos).is_err()) {
                    continue;
                }
                let free = match &marks {
                    Some(marks) if is_any => free(marks, pos),
                    _ => text.len() - pos,
                };
                let rest = text.get(pos..).and_then(|text| text.get(..free)).unwrap_or(&[]);
                let Some(special) = self.longest(rest, counts) else { continue };
                next = pos + special.len;
                if is_part_of_word(&special, text, pos) {
                    continue;
                }
                let marks = marks.as_deref_mut().ok_or(())?;
                if !is_any {
                    marks.fill(mark::TEXT);
                    is_any = true;
                }
                next = take(marks, text, pos, &special);
            }
        }
        Ok(is_any)
    }

    fn longest(&self, text: &[u8], counts: Counts) -> Option<Special> {
        let (mut range, mut found) = (self.index.specials(), None);
        for (depth, byte) in text.iter().enumerate() {
            let here = |words: &_| self.index.spelled(self.vocab, Special::from_words(words).id).get(depth).copied();
            let Some(narrower) = narrow(range, here, *byte) else { break };
            range = narrower;
            // Tokens that end here come first.
            let ends = range.first().map(Special::from_words).filter(|special| special.len == depth + 1);
            found = ends.filter(|special| counts.has(special)).or(found);
        }
        found
    }

    /// The token marked at the start of `text`, and its length.
    pub fn at(&self, text: &[u8], marks: &[u8]) -> Option<(TokenId, usize)> {
        let len = 1 + marks.iter().skip(1).take_while(|mark| **mark == mark::INSIDE).count();
        let counts = Counts { control: self.parse_special, added: true };
        let special = self.longest(text.get(..len)?, counts)?;
        Some((special.id, special.len))
    }
}

/// Number of bytes from `pos` on that do not belong to a special token. Counting stops after the length of the longest
/// possible token.
fn free(marks: &[u8], pos: usize) -> usize {
    let reach = marks.get(pos..).unwrap_or(&[]).iter().take(LONGEST_LOOKED_FOR);
    reach.take_while(|mark| **mark == mark::TEXT).count()
}

/// Returns true if the token at `pos` must be a whole word but is only part of one. As in Hugging Face's tokenizers,
/// the search for special tokens then continues after this token.
fn is_part_of_word(special: &Special, text: &[u8], pos: usize) -> bool {
    if !HAS_TABLES || !special.follows(rule::WHOLE_WORD) {
        return false;
    }
    let before = (1..=4).find_map(|len| {
        let char = first_char(text.get(pos.checked_sub(len)?..pos)?)?;
        (char.len == len && (len > 1 || char.code < 0x80)).then_some(char)
    });
    let after = first_char(text.get(pos + special.len..).unwrap_or(&[]));
    before.is_some_and(|char| is_word(char.code)) || after.is_some_and(|char| is_word(char.code))
}

/// Marks the bytes of a token at `pos`, and the white space that the token absorbs. Returns the position after the
/// token and the white space.
fn take(marks: &mut [u8], text: &[u8], pos: usize, special: &Special) -> usize {
    let end = pos + special.len;
    let Some(span) = marks.get_mut(pos..end) else { return end };
    span.fill(mark::INSIDE);
    if let Some(first) = span.first_mut() {
        *first = mark::START;
    }
    let is_text = |marks: &[u8], at: usize| marks.get(at) == Some(&mark::TEXT);
    let mut at = end;
    while special.follows(rule::STRIPS_RIGHT)
        && is_text(marks, at)
        && let Some(len) = white(text, at)
    {
        marks.iter_mut().skip(at).take(len).for_each(|mark| *mark = mark::STRIPPED);
        at += len;
    }
    let after = at;
    at = pos;
    while special.follows(rule::STRIPS_LEFT)
        && is_text(marks, at.wrapping_sub(1))
        && let Some(len) = (1..=3).find(|len| white(text, at.wrapping_sub(*len)) == Some(*len))
    {
        at -= len;
        marks.iter_mut().skip(at).take(len).for_each(|mark| *mark = mark::STRIPPED);
    }
    after
}

/// Length of the white space character (by Unicode) at `at`, if there is one.
fn white(text: &[u8], at: usize) -> Option<usize> {
    Some(match text.get(at..)? {
        [b' ' | b'\t'..=b'\r', ..] => 1,
        [0xc2, 0x85 | 0xa0, ..] => 2,
        [0xe1, 0x9a, 0x80, ..] | [0xe2, 0x80, 0x80..=0x8a | 0xa8 | 0xa9 | 0xaf, ..] => 3,
        [0xe2, 0x81, 0x9f, ..] | [0xe3, 0x80, 0x80, ..] => 3,
        _ => return None,
    })
}
