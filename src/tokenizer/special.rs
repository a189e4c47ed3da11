//! Finds special tokens in a text, before the rest is tokenized.
//!
//! As in Hugging Face's tokenizers, a text is searched from left to right, and at each position the longest token is
//! taken. Control tokens are searched first; all other added tokens are searched in the text between control tokens,
//! and tokens of normalized text ([`rule::NORMALIZED`]) in what is left. (llama.cpp 0.3.36 takes the longest token of
//! the whole text first. The results differ only if tokens overlap.)

use super::index::{Index, Special, narrow, rule};
use super::unicode::{first_char, is_word};
use super::vocab::{HAS_TABLES, LONGEST_LOOKED_FOR, Model, TokenType, Vocab};
use crate::{TokenId, built};

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
    /// White space absorbed by a token of normalized text.
    pub const STRIPPED_LAST: u8 = 4;
}

/// The searches, in order. The numbers are bits of a set.
mod search {
    /// Control tokens.
    pub const CONTROL: u8 = 1;
    /// Other added tokens.
    pub const ADDED: u8 = 2;
    /// Tokens that are found in normalized text.
    pub const NORMALIZED: u8 = 4;
}

/// The searches for special tokens, in order. The smallest build lacks the last one, because it does not read lists
/// with [`rule::NORMALIZED`].
const SEARCHES: &[u8] =
    if HAS_TABLES { &[search::CONTROL, search::ADDED, search::NORMALIZED] } else { &[search::CONTROL, search::ADDED] };

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
    /// Positions in the text, in ascending order. Control tokens are searched for only at these positions. `None` if
    /// they are searched for everywhere.
    pub places: Option<&'v [usize]>,
}

impl Specials<'_, '_, '_> {
    /// Marks every byte of `text` in the front of `memory`. `Ok(false)` if there is no special token; `memory` is then
    /// unchanged. `Err` if `memory` is too short.
    pub fn mark(&self, text: &[u8], memory: &mut [u8]) -> Result<bool, ()> {
        let (mut marks, mut is_any) = (memory.get_mut(..text.len()), false);
        for search in SEARCHES {
            let mut firsts = ByteSet::EMPTY;
            for special in self.index.specials().iter().map(Special::from_words) {
                if self.search_of(&special) == *search {
                    firsts.insert(special.first);
                }
            }
            if firsts.0 == ByteSet::EMPTY.0 {
                continue;
            }
            let mut next = 0;
            let places = self.places.filter(|_| *search == search::CONTROL);
            let may_start = |byte| match self.is_normalized(*search) {
                true => byte & 0xc0 != 0x80, // the start of a character
                false => firsts.contains(byte),
            };
            for (pos, _) in text.iter().enumerate().filter(|(_, byte)| may_start(**byte)) {
                if pos < next || places.is_some_and(|places| places.binary_search(&pos).is_err()) {
                    continue;
                }
                let free = match &marks {
                    Some(marks) if is_any => free(marks, pos, *search),
                    _ => text.len() - pos,
                };
                let rest = text.get(pos..).and_then(|text| text.get(..free)).unwrap_or(&[]);
                let Some((special, len)) = self.longest(rest, *search) else { continue };
                let end = pos + len;
                next = end;
                if self.is_part_of_word(&special, text, (pos, end), *search) {
                    continue;
                }
                let marks = marks.as_deref_mut().ok_or(())?;
                if !is_any {
                    marks.fill(mark::TEXT);
                    is_any = true;
                }
                take(marks, text, (pos, end), &special, *search);
            }
        }
        Ok(is_any)
    }

    /// The search that finds a token; 0 if no search does.
    fn search_of(&self, special: &Special) -> u8 {
        match special.kind {
            kind if kind != TokenType::UserDefined && !self.parse_special => 0,
            _ if HAS_TABLES && special.follows(rule::NORMALIZED) => search::NORMALIZED,
            TokenType::UserDefined => search::ADDED,
            _ => search::CONTROL,
        }
    }

    /// True if the text is compared with the tokens of this search only after WordPiece's rules have changed the text.
    fn is_normalized(&self, search: u8) -> bool {
        built::WORDPIECE && search == search::NORMALIZED && matches!(self.vocab.model, Model::WordPiece(_))
    }

    /// Returns the longest special token at the start of `text` for which one of the given `searches` looks, and the
    /// length of the text that the token takes.
    fn longest(&self, text: &[u8], searches: u8) -> Option<(Special, usize)> {
        match self.vocab.model {
            Model::WordPiece(rules) if self.is_normalized(searches) => self.longest_of(rules.applied(text), searches),
            _ => self.longest_of(text.iter().enumerate().map(|(at, byte)| (*byte, at + 1)), searches),
        }
    }

    /// Does the same as [`longest`](Self::longest) for a text that is given byte by byte. Each byte comes with the
    /// length of the original text up to it, or with 0 if no token may end there.
    fn longest_of(&self, bytes: impl Iterator<Item = (u8, usize)>, searches: u8) -> Option<(Special, usize)> {
        let (mut range, mut found) = (self.index.specials(), None);
        for (depth, (byte, end)) in bytes.enumerate() {
            let here = |words: &_| self.index.spelled(self.vocab, Special::from_words(words).id).get(depth).copied();
            let Some(narrower) = narrow(range, here, byte) else { break };
            range = narrower;
            // Tokens that end here come first.
            let ends = range.first().map(Special::from_words).filter(|special| special.len == depth + 1 && end > 0);
            let ends = ends.filter(|special| self.search_of(special) & searches != 0);
            found = ends.map(|special| (special, end)).or(found);
        }
        found
    }

    /// Returns true if the token at `pos..end` must be a whole word but is only part of one. As in Hugging Face's
    /// tokenizers, the search for special tokens then continues after this token.
    fn is_part_of_word(&self, special: &Special, text: &[u8], (pos, end): (usize, usize), search: u8) -> bool {
        if !HAS_TABLES || !special.follows(rule::WHOLE_WORD) {
            return false;
        }
        let before = (1..=4).find_map(|len| {
            let char = first_char(text.get(pos.checked_sub(len)?..pos)?)?;
            (char.len == len && (len > 1 || char.code < 0x80)).then_some(char)
        });
        let (rest, mut applied) = (text.get(end..).unwrap_or(&[]), [0; 4]);
        let after = match self.vocab.model {
            // An accent that WordPiece drops does not belong to the token's word.
            Model::WordPiece(rules) if self.is_normalized(search) => {
                rules.applied(rest).zip(&mut applied).for_each(|((byte, _), to)| *to = byte);
                first_char(&applied)
            }
            _ => first_char(rest),
        };
        before.is_some_and(|char| is_word(char.code)) || after.is_some_and(|char| is_word(char.code))
    }

    /// Returns the special token at the start of `text`, and the number of bytes that the token takes. `marks` shows
    /// how far the token extends.
    pub fn at(&self, text: &[u8], marks: &[u8]) -> Option<(TokenId, usize)> {
        let len = 1 + marks.iter().skip(1).take_while(|mark| **mark == mark::INSIDE).count();
        let text = text.get(..len)?;
        let as_it_is = self.longest(text, u8::MAX).filter(|(_, end)| *end == len);
        let (special, _) = match as_it_is {
            None if built::WORDPIECE => self.longest(text, search::NORMALIZED)?,
            found => found?,
        };
        Some((special.id, len))
    }
}

/// The mark that a search puts on white space that its tokens absorb. A later token may lie in such white space only if
/// its search uses the same mark.
fn stripped(search: u8) -> u8 {
    if HAS_TABLES && search == search::NORMALIZED { mark::STRIPPED_LAST } else { mark::STRIPPED }
}

/// Number of bytes from `pos` on in which a search may find a token: bytes of text, and white space that a token has
/// absorbed but that this search may use nevertheless. Counting stops after the length of the longest possible token.
fn free(marks: &[u8], pos: usize, search: u8) -> usize {
    let reach = marks.get(pos..).unwrap_or(&[]).iter().take(LONGEST_LOOKED_FOR);
    reach.take_while(|mark| **mark == mark::TEXT || **mark == stripped(search)).count()
}

/// Marks the bytes of a special token in the text, and the white space that the token absorbs. As in Hugging Face's
/// tokenizers, the token may lie in white space that the token before it has absorbed. White space after this token
/// then becomes text again.
fn take(marks: &mut [u8], text: &[u8], (pos, end): (usize, usize), special: &Special, search: u8) {
    let stripped = stripped(search);
    if special.follows(rule::STRIPS_LEFT) && marks.get(pos) == Some(&stripped) {
        return; // all white space is absorbed by the token before this one
    }
    let Some(span) = marks.get_mut(pos..end) else { return };
    span.fill(mark::INSIDE);
    if let Some(first) = span.first_mut() {
        *first = mark::START;
    }
    let absorbed = marks.iter_mut().skip(end).take_while(|mark| **mark == stripped);
    absorbed.for_each(|mark| *mark = mark::TEXT);
    let is_text = |marks: &[u8], at: usize| marks.get(at) == Some(&mark::TEXT);
    let mut at = end;
    while special.follows(rule::STRIPS_RIGHT)
        && is_text(marks, at)
        && let Some(len) = white(text, at)
    {
        marks.iter_mut().skip(at).take(len).for_each(|mark| *mark = stripped);
        at += len;
    }
    at = pos;
    while special.follows(rule::STRIPS_LEFT)
        && is_text(marks, at.wrapping_sub(1))
        && let Some(len) = (1..=3).find(|len| white(text, at.wrapping_sub(*len)) == Some(*len))
    {
        at -= len;
        marks.iter_mut().skip(at).take(len).for_each(|mark| *mark = stripped);
    }
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
