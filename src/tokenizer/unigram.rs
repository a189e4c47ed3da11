//! Unigram: finds the segmentation into tokens with the largest sum of scores (Viterbi).
//!
//! Sources: llama.cpp's `llm_tokenizer_ugm_session`, after SentencePiece's `unigram_model.cc` ([Kudo
//! 2018](https://arxiv.org/abs/1804.10959)). The text streams through the caller's memory: as soon as all segmentations
//! have a token boundary at a position, the tokens before that position are final.

use core::cell::Cell;

use super::Output;
use super::canonical::SPACE;
use super::charsmap::Normalized;
use super::index::Index;
use super::merge::Word;
use super::vocab::{TokenType, Vocab};
use crate::TokenId;

/// A character without a token gets the lowest score of all tokens minus this number.
const UNKNOWN_PENALTY: f32 = 10.0;

/// Number of bytes of memory per byte of normalized text: the byte itself and a [`Step`].
const BYTES_PER_POSITION: usize = 1 + size_of::<Step>();

/// Maximum growth of a text by normalization, because no Unicode character becomes more than 11 times as long (U+FDFA
/// does).
pub(super) const MOST_GROWTH: usize = 11;

/// Number of words of memory for a text that has `len` bytes after normalization.
pub(super) const fn words_for(len: usize) -> usize {
    // The step after the last byte takes the four additional words, because `encode` notices the end of the text only
    // if there is room for another byte.
    len.saturating_mul(BYTES_PER_POSITION).div_ceil(4).saturating_add(4)
}

/// Returns the number of words of memory that are needed to encode `text`, whatever tokens the vocabulary has.
pub(super) fn words_for_text(vocab: &Vocab<'_>, text: &[u8]) -> usize {
    words_for(normalized(vocab, text, true).count())
}

fn normalized<'t>(vocab: &'t Vocab<'_>, text: &'t [u8], prefix: bool) -> impl Iterator<Item = u8> {
    Escaped { bytes: Normalized::new(vocab.charsmap, vocab.spaces(prefix), text), rest: &[] }
}

/// Iterator over `bytes` with `▁` instead of spaces, because tokens are spelled this way.
struct Escaped<I> {
    bytes: I,
    rest: &'static [u8],
}

impl<I: Iterator<Item = u8>> Iterator for Escaped<I> {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        if let [byte, rest @ ..] = self.rest {
            self.rest = rest;
            return Some(*byte);
        }
        match self.bytes.next()? {
            b' ' => {
                let [first, rest @ ..] = &SPACE;
                self.rest = rest;
                Some(*first)
            }
            byte => Some(byte),
        }
    }
}

/// The best segmentation of the text up to a position: the length of its last token (u32), and the sum of its tokens'
/// scores (f64).
type Step = [u8; 12];

fn step(len: usize, score: f64) -> Step {
    let (mut step, (len, score)) = ([0; 12], ((len as u32).to_le_bytes(), score.to_le_bytes()));
    for (to, from) in step.iter_mut().zip(len.into_iter().chain(score)) {
        *to = from;
    }
    step
}

fn len_of(step: &Step) -> usize {
    let [a, b, c, d, ..] = *step;
    u32::from_le_bytes([a, b, c, d]) as usize
}

fn score_of(step: &Step) -> f64 {
    let [.., a, b, c, d, e, f, g, h] = *step;
    f64::from_le_bytes([a, b, c, d, e, f, g, h])
}

/// Score of a token; `None` if the segmentation of a text must not use the token. Most user-defined tokens have been
/// cut out of the text before. Those that still occur here match only as whole words, and are a part of a longer word.
fn score(vocab: &Vocab<'_>, id: TokenId) -> Option<f64> {
    match vocab.file_type(id) {
        // A token that is used only for decoding has the score minus infinity in the file. Such a token is not found in
        // texts.
        TokenType::Normal | TokenType::Unused | TokenType::UserDefined => {
            Some(f64::from(vocab.score(id))).filter(|score| score.is_finite())
        }
        _ => None,
    }
}

/// Lowest score of an ordinary token, stored in the index.
pub(super) fn worst_score(vocab: &Vocab<'_>) -> f32 {
    let ids = 0..vocab.len() as TokenId;
    let normal = ids.filter(|id| vocab.file_type(*id) == TokenType::Normal).map(|id| vocab.score(id));
    let worst = normal.filter(|score| score.is_finite()).fold(f32::MAX, f32::min);
    if worst == f32::MAX { 0.0 } else { worst }
}

/// Appends the ids of a text without special tokens; `None` if `memory` is too small.
pub(super) fn encode(
    vocab: &Vocab<'_>,
    index: &Index<'_>,
    (text, prefix): (&[u8], bool),
    memory: &mut [Word],
    output: &mut Output<'_>,
) -> Option<()> {
    let mut normalized = normalized(vocab, text, prefix);
    let bytes = memory.as_flattened_mut();
    let room = bytes.len() / BYTES_PER_POSITION;
    let (bytes, steps) = bytes.split_at_mut_checked(room)?;
    let steps = steps.as_chunks_mut::<12>().0;
    let mut lattice = Lattice { vocab, index, bytes, steps, len: 0, after_unknown: false };
    let unknown = f64::from(index.worst_score() - UNKNOWN_PENALTY);

    let (mut at, mut reach, mut settled, mut ended) = (0usize, 0usize, 0usize, false);
    loop {
        // Loads as much text as the longest token that may start at `at` needs.
        let wanted = at.saturating_add(index.longest()).saturating_add(1);
        while !ended && lattice.len < wanted {
            if lattice.len == lattice.bytes.len() {
                if lattice.word_end(at) < lattice.len {
                    break; // the loaded text suffices
                }
                lattice.settle(settled, output)?;
                lattice.forget(settled);
                (at, reach, settled) = (at.checked_sub(settled)?, reach.checked_sub(settled)?, 0);
                if lattice.len == lattice.bytes.len() {
                    return None;
                }
                continue;
            }
            match normalized.next() {
                Some(byte) => lattice.push(byte)?,
                None => ended = true,
            }
        }
        if at >= lattice.len {
            lattice.settle(at, output)?;
            return Some(());
        }
        if reach <= at {
            // All segmentations have a token boundary here. The sums restart from 0, so that results do not depend on
            // the size of the memory.
            settled = at;
            lattice.restart(at);
        }
        reach = reach.max(lattice.advance(at, unknown)?);
        at += lattice.char_len(at);
    }
}

/// The part of a normalized text whose tokens are not final yet, with the best segmentation up to each of its
/// positions.
struct Lattice<'l, 'a, 'i> {
    vocab: &'l Vocab<'a>,
    index: &'l Index<'i>,
    bytes: &'l mut [u8],
    /// Best segmentation up to the end of each byte.
    steps: &'l mut [Step],
    len: usize,
    after_unknown: bool,
}

impl Lattice<'_, '_, '_> {
    fn push(&mut self, byte: u8) -> Option<()> {
        *self.bytes.get_mut(self.len)? = byte;
        *self.steps.get_mut(self.len)? = step(0, -f64::MAX);
        self.len += 1;
        Some(())
    }

    /// Length of the character at `at` by its first byte.
    fn char_len(&self, at: usize) -> usize {
        let len = match self.bytes.get(at) {
            Some(0xc0..=0xdf) => 2,
            Some(0xe0..=0xef) => 3,
            Some(0xf0..) => 4,
            _ => 1,
        };
        len.min(self.len - at.min(self.len)).max(1)
    }

    /// Returns a limit that no token that starts at `at` exceeds: the first space that no token can contain, the length
    /// of the longest token, or the end of the loaded text.
    fn word_end(&self, at: usize) -> usize {
        let end = self.len.min(at.saturating_add(self.index.longest()));
        let mut places = self.bytes.get(at..end).unwrap_or(&[]).windows(1 + SPACE.len());
        let space = places.position(
            |place| matches!(place, [before, space @ ..] if *space == SPACE && !self.index.may_span(*before)),
        );
        space.map_or(end, |i| at + i + 1)
    }

    fn score_at(&self, at: usize) -> f64 {
        at.checked_sub(1).and_then(|before| self.steps.get(before)).map_or(0.0, score_of)
    }

    fn restart(&mut self, at: usize) {
        if let Some(here) = at.checked_sub(1).and_then(|before| self.steps.get_mut(before)) {
            *here = step(len_of(here), 0.0);
        }
    }

    /// Extends the best segmentation at `at` by every token that starts there; returns the furthest end of these
    /// tokens.
    fn advance(&mut self, at: usize, unknown: f64) -> Option<usize> {
        let (here, char_len) = (self.score_at(at), self.char_len(at));
        let text = self.bytes.get(at..self.len)?;
        let (mut reach, mut has_char) = (at + char_len, false);
        for (len, id) in self.index.prefixes(self.vocab, text.iter().copied()) {
            let Some(score) = score(self.vocab, id) else { continue };
            has_char |= len == char_len;
            reach = reach.max(at + len);
            offer(self.steps, at, len, here + score);
        }
        if !has_char {
            offer(self.steps, at, char_len, here + unknown);
        }
        Some(reach)
    }

    /// Outputs the tokens of the best segmentation up to `end`.
    fn settle(&mut self, end: usize, output: &mut Output<'_>) -> Option<()> {
        // `steps` holds each token's length at the token's end, but ids are output from the start of the text.
        // Therefore walks backwards and stores each length at the token's start.
        let (mut at, mut len) = (end, self.steps.get(end.wrapping_sub(1)).map_or(0, len_of));
        while at > 0 && len > 0 {
            let start = at.checked_sub(len)?;
            let before = self.steps.get(start.wrapping_sub(1)).map_or(0, len_of);
            *self.steps.get_mut(start)? = step(len, 0.0);
            (at, len) = (start, before);
        }
        let mut start = 0;
        while start < end {
            let len = len_of(self.steps.get(start)?).max(1);
            let token = self.bytes.get(start..start + len)?;
            let id = self.index.find(self.vocab, token.iter().copied());
            let id = id.filter(|id| score(self.vocab, *id).is_some());
            // A vocabulary with byte tokens has no unknown characters.
            if id.is_none() && token.iter().all(|byte| self.byte(*byte).is_some()) {
                token.iter().filter_map(|byte| self.byte(*byte)).for_each(|id| output.push(id));
                self.after_unknown = false;
            } else if let Some(id) = id.or(self.vocab.unknown) {
                // Consecutive unknown characters become one token.
                let unknown = Some(id) == self.vocab.unknown;
                if !(core::mem::replace(&mut self.after_unknown, unknown) && unknown) {
                    output.push(id);
                }
            }
            start += len;
        }
        Some(())
    }

    /// The token `<0x41>` of a byte.
    fn byte(&self, byte: u8) -> Option<TokenId> {
        self.index.byte(byte).filter(|id| self.vocab.file_type(*id) == TokenType::Byte)
    }

    /// Removes the first `count` bytes.
    fn forget(&mut self, count: usize) {
        if count > 0 && count <= self.len {
            shift(self.bytes, count, self.len);
            shift(self.steps, count, self.len);
            self.len -= count;
        }
    }
}

/// Moves the elements `from..to` to the front.
fn shift<T: Copy>(all: &mut [T], from: usize, to: usize) {
    // Copies through cells, because the compiler cannot rule out a panic in `copy_within`.
    let cells = Cell::from_mut(all).as_slice_of_cells();
    for (to, from) in cells.iter().zip(cells.get(from..to).unwrap_or(&[])) {
        to.set(from.get());
    }
}

/// Stores a segmentation that ends with a token of `len` bytes at `at`, unless a better segmentation is already stored.
fn offer(steps: &mut [Step], at: usize, len: usize, score: f64) {
    if let Some(there) = steps.get_mut(at + len - 1)
        && score > score_of(there)
    {
        *there = step(len, score);
    }
}
