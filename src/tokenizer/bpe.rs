//! Byte-level BPE: every word begins as bytes, and the pair with the earliest merge merges first.
//!
//! Source: llama.cpp's `llm_tokenizer_bpe_session`, after GPT-2's `encoder.py`.

use super::Output;
use super::index::Index;
use super::merge::{NO_PAIR, Pair, Row, Rules, Word};
use super::pretokenizer::PreTokenizer;
use super::unicode::Normalized;
use super::vocab::Vocab;
use crate::TokenId;

/// Merges by rank.
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

/// Appends the ids of a text without special tokens; `None` if `memory` is too small for one of
/// its words.
pub(super) fn encode(
    vocab: &Vocab<'_>,
    index: &Index<'_>,
    pre: PreTokenizer,
    text: &[u8],
    memory: &mut [Word],
    output: &mut Output<'_>,
) -> Option<()> {
    for word in pre.words(text) {
        let bytes = Normalized::new(word);
        if let [byte @ 0..=0x7f] = *word {
            // A byte that the vocabulary lacks is left out, as in llama.cpp.
            if let Some(id) = index.byte(byte) {
                output.push(id);
            }
            continue;
        }
        if pre.ignore_merges
            && let Some(id) = index.find(vocab, bytes.clone())
        {
            output.push(id);
            continue;
        }
        let mut row = Row::new(memory, bytes.clone().count())?;
        for (slot, byte) in bytes.enumerate() {
            row.put(slot, slot + 1, index.byte(byte).unwrap_or(u32::MAX));
        }
        row.merge(&Ranks(index));
        for (_, _, id) in row.symbols() {
            if id != u32::MAX {
                output.push(id);
            }
        }
    }
    Some(())
}
