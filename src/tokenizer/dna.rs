//! Byte-level BPE in which the text between `<dna>` and `</dna>` is read in groups of six letters. Each group is one
//! token.
//!
//! Source: llama.cpp's `llm_tokenizer_hybriddna_session`. The vocabulary marks the tokens of groups with
//! [`DNA_MARK`](super::canonical::DNA_MARK).

use super::Output;
use super::bpe;
use super::canonical::DNA_BYTE;
use super::index::Index;
use super::merge::Word;
use super::pretokenizer::PreTokenizer;
use super::vocab::Vocab;

const BEGIN: &[u8] = b"<dna>";
const END: &[u8] = b"</dna>";
/// The token of a group that is not in the vocabulary.
const UNKNOWN: &[u8] = b"<oov>";

/// Number of DNA letters in a group. If the text has fewer letters for the last group, it is filled up with `A`.
const LETTERS: usize = 6;

/// Appends the ids of a text without special tokens; `None` if `memory` is too small for one of its words. If the
/// vocabulary lacks any of the three marks, the text is encoded with ordinary byte-level BPE.
pub(super) fn encode(
    vocab: &Vocab<'_>,
    index: &Index<'_>,
    pre: PreTokenizer,
    mut text: &[u8],
    memory: &mut [Word],
    output: &mut Output<'_>,
) -> Option<()> {
    let marks = [BEGIN, END, UNKNOWN].map(|mark| index.find(vocab, mark.iter().copied()));
    while let [Some(begin), Some(end), Some(unknown)] = marks
        && let Some((before, after)) = split(text, BEGIN)
    {
        bpe::encode_bytes(vocab, index, pre, before, memory, output)?;
        output.push(begin);
        let (letters, after) = split(after, END).map_or((after, None), |(letters, after)| (letters, Some(after)));
        for group in letters.chunks(LETTERS) {
            let letters = (0..LETTERS).map(|at| group.get(at).map_or(b'A', u8::to_ascii_uppercase));
            output.push(index.find(vocab, letters.chain([DNA_BYTE])).unwrap_or(unknown));
        }
        // If the text has no end mark, all of the rest was letters.
        text = match after {
            Some(after) => {
                output.push(end);
                after
            }
            None => return Some(()),
        };
    }
    bpe::encode_bytes(vocab, index, pre, text, memory, output)
}

/// The text before and after the first `mark`.
fn split<'t>(text: &'t [u8], mark: &[u8]) -> Option<(&'t [u8], &'t [u8])> {
    let at = text.windows(mark.len()).position(|here| here == mark)?;
    Some((text.get(..at)?, text.get(at + mark.len()..)?))
}
