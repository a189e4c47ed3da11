//! Cutting special tokens out of a text before the rest is tokenized.
//!
//! llama.cpp takes the special tokens one after the other, the longest first, and cuts each out
//! wherever it is still found (`tokenizer_st_partition`): a longer one wins over a shorter one that
//! begins before it. The result is the same here (where two different tokens of one length overlap, whose order
//! llama.cpp leaves to its library's sort, the left one wins), but in one pass over the text: each position at
//! which special tokens begin is a candidate with the longest of them, and a heap gives the longest candidate,
//! the leftmost of one length. If something that is cut out already lies in its way, the candidate comes back
//! with the longest token that ends before that. What lies in the way is longer than the candidate, so that the
//! free space is at most half as long each time: a position comes back a logarithm of times at most.

use super::index::{Index, Special, narrow};
use super::vocab::{TokenType, Vocab};
use crate::TokenId;
use crate::sort::sink;

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

    /// Marks every byte of `text` in the front of `memory`; after that it needs eight bytes for each position at
    /// which a special token begins. `Ok(false)` if there is none in the text; then `memory` is not touched.
    /// `Err` if `memory` is too short.
    pub fn mark(&self, text: &[u8], memory: &mut [u8]) -> Result<bool, ()> {
        let mut firsts = ByteSet::EMPTY;
        for special in self.index.specials().iter().map(Special::from_words).filter(|special| self.counts(special)) {
            firsts.insert(special.first);
        }
        let mut parts = memory.split_at_mut_checked(text.len());
        let mut count = 0;
        for (pos, _) in text.iter().enumerate().filter(|(_, byte)| firsts.contains(**byte)) {
            if let Some(special) = self.longest(text.get(pos..).unwrap_or(&[])) {
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

    /// Cuts the candidates out as far as they do not overlap.
    fn cut(&self, text: &[u8], marks: &mut [u8], heap: &mut [Candidate]) {
        let mut less = |a: &Candidate, b: &Candidate| u64::from_le_bytes(*a) < u64::from_le_bytes(*b);
        for root in (0..heap.len() / 2).rev() {
            sink(heap, root, heap.len(), &mut less);
        }
        let mut count = heap.len();
        while let Some((len, pos)) = heap.get(..count).and_then(|heap| heap.first()).map(parts_of) {
            let span = marks.get(pos..).unwrap_or(&[]).iter().take(len);
            let free = span.take_while(|mark| **mark == mark::TEXT).count();
            // A whole one is found again, one with something in its way becomes shorter.
            let found = self.longest(text.get(pos..).and_then(|text| text.get(..free)).unwrap_or(&[]));
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

    /// The longest special token that `text` begins with.
    fn longest(&self, text: &[u8]) -> Option<Special> {
        let (mut range, mut found) = (self.index.specials(), None);
        for (depth, byte) in text.iter().enumerate() {
            let here = |words: &_| self.index.spelled(self.vocab, Special::from_words(words).id).get(depth).copied();
            let Some(narrower) = narrow(range, here, *byte) else { break };
            range = narrower;
            // Those that end here come first.
            let ends = range.first().map(Special::from_words).filter(|special| special.len == depth + 1);
            found = ends.filter(|special| self.counts(special)).or(found);
        }
        found
    }

    /// The token that was marked at the start of `text`, and its length.
    pub fn at(&self, text: &[u8], marks: &[u8]) -> Option<(TokenId, usize)> {
        let len = 1 + marks.iter().skip(1).take_while(|mark| **mark == mark::INSIDE).count();
        let special = self.longest(text.get(..len)?)?;
        Some((special.id, special.len))
    }
}

/// A length and a position, in one number: the longest is the largest, then the leftmost.
type Candidate = [u8; 8];

fn candidate(len: usize, pos: usize) -> Candidate {
    ((len as u64) << 32 | u64::from(!(pos as u32))).to_le_bytes()
}

fn parts_of(candidate: &Candidate) -> (usize, usize) {
    let number = u64::from_le_bytes(*candidate);
    ((number >> 32) as usize, !(number as u32) as usize)
}

/// Marks a token at `pos`.
fn take(marks: &mut [u8], text: &[u8], pos: usize, special: &Special) {
    let end = pos + special.len;
    let Some(span) = marks.get_mut(pos..end) else { return };
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
}
