//! Cutting special tokens out of a text before the rest is tokenized.
//!
//! llama.cpp takes the special tokens one after the other, the longest first, and cuts each out
//! wherever it is still found (`tokenizer_st_partition`): a longer one wins over a shorter one that
//! begins before it. Here all tokens of one length go through the text together, from left to
//! right. The result is the same unless two different tokens of one length overlap in the text,
//! where llama.cpp's order is left to its library's sort.

use super::index::{Index, Special};
use super::merge::Word;
use super::vocab::{TokenType, Vocab};
use crate::TokenId;

/// What became of a byte of the text.
pub(super) mod mark {
    /// Text still.
    pub const TEXT: u8 = 0;
    /// A special token begins here.
    pub const START: u8 = 1;
    /// It goes on.
    pub const INSIDE: u8 = 2;
    /// White space that goes with a special token.
    pub const STRIPPED: u8 = 3;
}

/// A set of bytes.
#[derive(Clone, Copy)]
pub(super) struct ByteSet(pub [u32; 8]);

impl ByteSet {
    pub const EMPTY: Self = Self([0; 8]);

    fn of(bytes: &[u8]) -> Self {
        let mut set = Self::EMPTY;
        for byte in bytes {
            set.insert(*byte);
        }
        set
    }

    pub fn insert(&mut self, byte: u8) {
        if let Some(word) = self.0.get_mut(usize::from(byte >> 5)) {
            *word |= 1 << (byte & 31);
        }
    }

    fn contains(&self, byte: u8) -> bool {
        self.0.get(usize::from(byte >> 5)).is_some_and(|word| word >> (byte & 31) & 1 != 0)
    }
}

/// Special tokens in a text.
pub(super) struct Specials<'v, 'a, 'i> {
    pub vocab: &'v Vocab<'a>,
    pub index: &'v Index<'i>,
    /// Whether control tokens count, or only those that the makers of the model added.
    pub parse_special: bool,
}

impl Specials<'_, '_, '_> {
    fn counts(&self, special: &Special) -> bool {
        self.parse_special || special.kind == TokenType::UserDefined
    }

    /// Marks every byte of `text` in the front of `marks`. `Ok(false)` if there is no special token
    /// in the text; then `marks` is not touched. `Err` if there is one and `marks` is too short.
    pub fn mark(&self, text: &[u8], marks: &mut [u8]) -> Result<bool, ()> {
        let mut marks = marks.get_mut(..text.len());
        let present = ByteSet::of(text);
        let mut any = false;
        let mut rest = self.index.specials();
        while let Some((len, group)) = first_group(rest) {
            rest = rest.get(group.len()..).unwrap_or(&[]);
            if len == 0 || len > text.len() {
                continue;
            }
            let mut first = ByteSet::EMPTY;
            let mut possible = false;
            for special in group.iter().map(Special::from_words).filter(|special| self.counts(special)) {
                first.insert(special.first);
                possible |= present.contains(special.first);
            }
            if !possible {
                continue;
            }
            let mut pos = 0;
            while let Some(window) = text.get(pos..pos + len) {
                let is_candidate = window.first().is_some_and(|byte| first.contains(*byte));
                let Some(special) = is_candidate.then(|| self.find(group, window)).flatten() else {
                    pos += 1;
                    continue;
                };
                let marks = marks.as_deref_mut().ok_or(())?;
                if !any {
                    marks.fill(mark::TEXT);
                    any = true;
                }
                pos = match take(marks, text, pos, &special) {
                    true => pos + len,
                    false => pos + 1,
                };
            }
        }
        Ok(any)
    }

    /// The token of `group`, which is sorted by spelling, that is spelled `text`.
    fn find(&self, group: &[[Word; 3]], text: &[u8]) -> Option<Special> {
        let spelled = |special: &[Word; 3]| self.index.spelled(self.vocab, Special::from_words(special).id);
        let place = group.partition_point(|special| spelled(special) < text);
        let found = group.get(place).filter(|special| spelled(special) == text)?;
        Some(Special::from_words(found)).filter(|special| self.counts(special))
    }

    /// The token that was marked at the start of `text`, and its length.
    pub fn at(&self, text: &[u8], marks: &[u8]) -> Option<(TokenId, usize)> {
        let len = 1 + marks.iter().skip(1).take_while(|mark| **mark == mark::INSIDE).count();
        let specials = self.index.specials();
        let longer = specials.partition_point(|special| Special::from_words(special).len > len);
        let (_, group) = first_group(specials.get(longer..)?)?;
        let special = self.find(group, text.get(..len)?)?;
        Some((special.id, len))
    }
}

/// The first tokens of one length, and the length; `None` at the end.
fn first_group(specials: &[[Word; 3]]) -> Option<(usize, &[[Word; 3]])> {
    let len = Special::from_words(specials.first()?).len;
    let count = specials.iter().take_while(|special| Special::from_words(special).len == len).count();
    Some((len, specials.get(..count)?))
}

/// Marks a token at `pos` unless part of it is taken already.
fn take(marks: &mut [u8], text: &[u8], pos: usize, special: &Special) -> bool {
    let end = pos + special.len;
    let Some(span) = marks.get_mut(pos..end).filter(|span| span.iter().all(|m| *m == mark::TEXT)) else {
        return false;
    };
    span.fill(mark::INSIDE);
    if let Some(first) = span.first_mut() {
        *first = mark::START;
    }
    // What C's `isspace` says.
    let is_space = |at: usize| matches!(text.get(at), Some(b' ' | b'\t'..=b'\r'));
    if special.strips_right {
        for (at, mark) in marks.iter_mut().enumerate().skip(end) {
            if *mark != mark::TEXT || !is_space(at) {
                break;
            }
            *mark = mark::STRIPPED;
        }
    }
    if special.strips_left {
        for (at, mark) in marks.iter_mut().enumerate().take(pos).rev() {
            if *mark != mark::TEXT || !is_space(at) {
                break;
            }
            *mark = mark::STRIPPED;
        }
    }
    true
}
