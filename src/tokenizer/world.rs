//! RWKV World: takes the longest token at each position of the text, byte by byte. All tokens take part, including
//! control tokens.
//!
//! Source: `rwkv_tokenizer.py` of RWKV-LM (the class `TRIE_TOKENIZER`), and llama.cpp's `llm_tokenizer_rwkv_session`.

use super::Output;
use super::index::Index;
use super::vocab::Vocab;

/// Appends the ids of a text without special tokens. A byte without a token becomes the unknown token, if there is an
/// unknown token. Published vocabularies have tokens for all 256 bytes.
pub(super) fn encode(vocab: &Vocab<'_>, index: &Index<'_>, mut text: &[u8], output: &mut Output<'_>) -> Option<()> {
    while !text.is_empty() {
        let longest = index.prefixes(vocab, text.iter().copied()).last();
        if let Some(id) = longest.map(|(_, id)| id).or(vocab.unknown) {
            output.push(id);
        }
        text = text.get(longest.map_or(1, |(len, _)| len)..)?;
    }
    Some(())
}
