//! Finds special tokens in a text, before the rest is tokenized.
//!
//! llama.cpp processes special tokens in order of length, longest first, and cuts out each occurrence in the remaining
//! text (`tokenizer_st_partition`): a longer token wins over a shorter one that starts before it. The result here is
//! the same, in one pass. (If two tokens of equal length overlap, llama.cpp's order depends on its library's sort; here
//! the left one wins.) Each position at which special tokens start is a candidate with the longest of them, and a heap
//! returns the longest candidate, leftmost first. If a token that was cut out overlaps the candidate, the candidate is
//! reinserted with the longest token that fits before the overlap. The overlapping token is longer than the candidate,
//! so the free space at least halves each time: a position is reinserted a logarithmic number of times.

use super::index::{Index, Special, narrow, rule};
use super::unicode::{first_char, is_word};
use super::vocab::{HAS_TABLES, TokenType, Vocab};
use crate::TokenId;
use crate::sort::sink;

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

/// A set of bytes.
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
    /// True if control tokens are parsed; user-defined tokens always are.
    pub parse_special: bool,
}

impl Specials<'_, '_, '_> {
    fn counts(&self, special: &Special) -> bool {
        self.parse_special || special.kind == TokenType::UserDefined
    }

    /// Marks every byte of `text` in the front of `memory`, which needs eight more bytes per position at which a
    /// special token starts. `Ok(false)` if there is none; then `memory` is unchanged. `Err` if `memory` is too short.
    pub fn mark(&self, text: &[u8], memory: &mut [u8]) -> Result<bool, ()> {
        let mut firsts = ByteSet::EMPTY;
        for special in self.index.specials().iter().map(Special::from_words).filter(|special| self.counts(special)) {
            firsts.insert(special.first);
        }
        let mut parts = memory.split_at_mut_checked(text.len());
        let (mut count, mut next) = (0, 0);
        for (pos, _) in text.iter().enumerate().filter(|(_, byte)| firsts.contains(**byte)) {
            if let Some(special) = self.longest(text.get(pos..).unwrap_or(&[])).filter(|_| pos >= next) {
                if is_part_of_word(&special, text, pos) {
                    next = pos + special.len;
                    continue;
                }
                let (_, heap) = parts.as_mut().ok_or(())?;
                *heap.as_chunks_mut().0.get_mut(count).ok_or(())? = candidate(special.len, pos);
                count += 1;
            }
        }
        if count == 0 {
            return Ok(false);
        }
        let (marks, heap) = parts.ok_or(())?;
        marks.fill(mark::TEXT);
        self.cut(text, marks, heap.as_chunks_mut().0.get_mut(..count).ok_or(())?);
        Ok(true)
    }

    /// Marks the special tokens: takes the longest candidate of `heap` in turn, and shortens one that overlaps marked
    /// bytes.
    fn cut(&self, text: &[u8], marks: &mut [u8], heap: &mut [Candidate]) {
        let mut less = |a: &Candidate, b: &Candidate| u64::from_le_bytes(*a) < u64::from_le_bytes(*b);
        for root in (0..heap.len() / 2).rev() {
            sink(heap, root, heap.len(), &mut less);
        }
        let mut count = heap.len();
        while let Some((len, pos)) = heap.get(..count).and_then(|heap| heap.first()).map(parts_of) {
            let span = marks.get(pos..).unwrap_or(&[]).iter().take(len);
            let free = span.take_while(|mark| **mark == mark::TEXT).count();
            // Finds the candidate's token again if all of its bytes are free, else a shorter token.
            let found = self.longest(text.get(pos..).and_then(|text| text.get(..free)).unwrap_or(&[]));
            let found = found.filter(|special| !is_part_of_word(special, text, pos));
            let next = match found {
                Some(special) if free == len => {
                    take(marks, text, pos, &special);
                    None
                }
                found => found,
            };
            let next = next.map(|special| candidate(special.len, pos)).or_else(|| {
                count -= 1;
                heap.get(count).copied()
            });
            if let (Some(next), Some(first)) = (next, heap.first_mut()) {
                *first = next;
            }
            sink(heap, 0, count, &mut less);
        }
    }

    /// The longest special token at the start of `text`.
    fn longest(&self, text: &[u8]) -> Option<Special> {
        let (mut range, mut found) = (self.index.specials(), None);
        for (depth, byte) in text.iter().enumerate() {
            let here = |words: &_| self.index.spelled(self.vocab, Special::from_words(words).id).get(depth).copied();
            let Some(narrower) = narrow(range, here, *byte) else { break };
            range = narrower;
            // Tokens that end here come first.
            let ends = range.first().map(Special::from_words).filter(|special| special.len == depth + 1);
            found = ends.filter(|special| self.counts(special)).or(found);
        }
        found
    }

    /// The token marked at the start of `text`, and its length.
    pub fn at(&self, text: &[u8], marks: &[u8]) -> Option<(TokenId, usize)> {
        let len = 1 + marks.iter().skip(1).take_while(|mark| **mark == mark::INSIDE).count();
        let special = self.longest(text.get(..len)?)?;
        Some((special.id, special.len))
    }
}

/// Length and position in one number: longer candidates have larger numbers, and so have earlier ones of equal length.
type Candidate = [u8; 8];

fn candidate(len: usize, pos: usize) -> Candidate {
    ((len as u64) << 32 | u64::from(!(pos as u32))).to_le_bytes()
}

fn parts_of(candidate: &Candidate) -> (usize, usize) {
    let number = u64::from_le_bytes(*candidate);
    ((number >> 32) as usize, !(number as u32) as usize)
}

/// Returns true if the token at `pos` must be a whole word and is not. As in Hugging Face's tokenizers, the search for
/// special tokens then continues after this token.
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

/// Marks the bytes of a token at `pos`, and the white space that the token absorbs.
fn take(marks: &mut [u8], text: &[u8], pos: usize, special: &Special) {
    let end = pos + special.len;
    let Some(span) = marks.get_mut(pos..end) else { return };
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
    at = pos;
    while special.follows(rule::STRIPS_LEFT)
        && is_text(marks, at.wrapping_sub(1))
        && let Some(len) = (1..=3).find(|len| white(text, at.wrapping_sub(*len)) == Some(*len))
    {
        at -= len;
        marks.iter_mut().skip(at).take(len).for_each(|mark| *mark = mark::STRIPPED);
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
