//! PLaMo 2: the segmentation into tokens with the lowest sum of costs, found from the end of the text.
//!
//! Costs are whole numbers, so two segmentations can have equal sums. Then the segmentation with the longest first
//! token wins. Sources: `tokenization_plamo.py` of `pfnet/plamo-2-1b`, and llama.cpp's `llm_tokenizer_plamo2`.

use super::Output;
use super::index::Index;
use super::merge::Word;
use super::unicode::{Normalized, encode as utf8, first_char};
use super::vocab::{TokenType, Vocab};
use crate::TokenId;

/// Cost of a character without a token. Such a character becomes byte tokens.
const UNKNOWN_COST: i64 = 10_000_000;

/// Tokens of this cost or more are never used.
const UNUSED_COST: f64 = 20_000_000.0;

/// The best segmentation of the text that begins at a position: its cost, in a low and a high word, and its first
/// token.
type Step = [Word; 3];

/// Stands for the first token in a [`Step`] if the text begins with a character that has no token.
const NO_TOKEN: TokenId = TokenId::MAX;

/// UTF-8 of U+FEFF, which is dropped at the start of a text.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Words of memory for a text of `len` bytes.
pub(super) const fn words_for(len: usize) -> usize {
    len.saturating_mul(3)
}

/// Appends the ids of a text that has no special tokens. `None` if `memory` is too small for the text.
pub(super) fn encode(
    vocab: &Vocab<'_>,
    index: &Index<'_>,
    text: &[u8],
    memory: &mut [Word],
    output: &mut Output<'_>,
) -> Option<()> {
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    let steps = memory.as_chunks_mut::<3>().0.get_mut(..text.len())?;
    for at in (0..text.len()).rev().filter(|at| is_start(text, *at)) {
        let rest = text.get(at..)?;
        let cost_after = |len: usize| steps.get(at + len).map_or(0, cost_of);
        let mut best = (cost_after(first_char(rest)?.len) + UNKNOWN_COST, NO_TOKEN);
        let mut walk = Walk { text: rest, taken: 0, decoded: 0 };
        for (len, id) in index.prefixes(vocab, Normalized::new(rest)) {
            if let Some((len, cost)) = walk.to(len).zip(cost(vocab, id))
                && cost + cost_after(len) <= best.0
            {
                best = (cost + cost_after(len), id);
            }
        }
        let ((low, high), id) = ((best.0 as u32, (best.0 >> 32) as u32), best.1);
        *steps.get_mut(at)? = [low, high, id].map(u32::to_le_bytes);
    }
    let mut at = 0;
    while let Some([_, _, id]) = steps.get(at) {
        let (rest, id) = (text.get(at..)?, u32::from_le_bytes(*id));
        at += if id == NO_TOKEN {
            let char = first_char(rest)?;
            let (bytes, len) = utf8(char.code);
            for byte in bytes.get(..len)? {
                let token = index.byte(*byte).filter(|id| vocab.file_type(*id) == TokenType::Byte);
                token.or(vocab.unknown).into_iter().for_each(|id| output.push(id));
            }
            char.len
        } else {
            output.push(id);
            Walk { text: rest, taken: 0, decoded: 0 }.to(index.spelled(vocab, id).len())?
        };
    }
    Some(())
}

/// True if a character starts at `at`. A byte that is not part of a character counts as a character. (The first byte of
/// a UTF-8 sequence never occurs inside a sequence.)
fn is_start(text: &[u8], at: usize) -> bool {
    let reaches = |back: usize| {
        let char = at.checked_sub(back).and_then(|before| first_char(text.get(before..)?));
        char.is_some_and(|char| char.len > back)
    };
    !(1..4).any(reaches)
}

/// Counts the bytes of a text before and after decoding. Decoding replaces a byte that is not part of a character by
/// U+FFFD.
struct Walk<'t> {
    text: &'t [u8],
    taken: usize,
    decoded: usize,
}

impl Walk<'_> {
    /// Converts a position in the decoded text, `len` bytes from its start, to a position in the original text. `None`
    /// if the position is inside a character. `len` must not decrease from call to call.
    fn to(&mut self, len: usize) -> Option<usize> {
        while self.decoded < len {
            let char = first_char(self.text.get(self.taken..)?)?;
            self.taken += char.len;
            self.decoded += utf8(char.code).1;
        }
        (self.decoded == len).then_some(self.taken)
    }
}

/// Cost of a token, if texts may contain it: -10000 times its score, rounded, in the range of 32 bits.
fn cost(vocab: &Vocab<'_>, id: TokenId) -> Option<i64> {
    let cost = -libm::round(f64::from(vocab.score(id)) * 1e4);
    let is_used = vocab.file_type(id) != TokenType::Byte && cost < UNUSED_COST;
    is_used.then_some((cost as i64).max(i64::from(i32::MIN)))
}

fn cost_of([low, high, _]: &Step) -> i64 {
    i64::from(u32::from_le_bytes(*high) as i32) << 32 | i64::from(u32::from_le_bytes(*low))
}
