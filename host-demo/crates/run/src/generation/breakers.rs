//! Finds the sequences of tokens that interrupt the repetitions counted by DRY, from texts such as line breaks.
//!
//! Source: llama.cpp, `llama_sampler_init_dry`.

use arenite::TokenId;
use arenite::sampler::{Breaker, Breakers};
use arenite::tokenizer::{Encode, Tokenizer};

use super::logprob::bytes;
use arenite_text as text;

/// Maximum size of a text in bytes; the rest is cut.
const MOST_BYTES: usize = 40;
/// Maximum number of tokens after the first token of a sequence; further tokens are cut off.
const MOST_TAIL: usize = 20;

/// A list of sequences of tokens. It owns the memory that [`Breakers`] borrows.
#[derive(Clone, Debug, Default)]
pub struct BreakerList {
    heads: Vec<Breaker>,
    tails: Vec<TokenId>,
}

impl BreakerList {
    /// Finds the sequences of tokens that contain one of `texts`. A sequence is a single token that contains the text,
    /// or a token that ends with the beginning of the text, followed by the tokens of the rest.
    ///
    /// # Errors
    ///
    /// A text cannot be tokenized.
    pub fn new(texts: &[String], tokenizer: &Tokenizer<'_, '_>) -> anyhow::Result<Self> {
        let mut found: Vec<(TokenId, Vec<TokenId>)> = Vec::new();
        for given in texts.iter().filter(|given| !given.is_empty()) {
            let given = &given.as_bytes()[..given.len().min(MOST_BYTES)];
            // `tails[len]` has the first tokens of the text that remains after the first `len` bytes.
            let tails: Vec<_> = (0..given.len()).map(|len| tail(&given[len..], tokenizer)).collect::<Result<_, _>>()?;
            for id in 0..tokenizer.vocab_len() as TokenId {
                let token = bytes(tokenizer, id);
                if token.windows(given.len()).any(|part| part == given) {
                    found.push((id, Vec::new()));
                    continue;
                }
                let lens = (1..given.len()).filter(|len| token.ends_with(&given[..*len]));
                found.extend(lens.map(|len| (id, tails[len].clone())));
            }
        }
        found.sort();
        found.dedup();
        let mut list = Self::default();
        for (head, tail) in found {
            list.heads.push(Breaker { head, start: list.tails.len() as u32, len: tail.len() as u32 });
            list.tails.extend(tail);
        }
        Ok(list)
    }

    /// The sequences in the core's form.
    pub fn list(&self) -> Breakers<'_> {
        // This cannot fail, because the heads are sorted and the range of each tail is inside `tails`.
        Breakers::new(&self.heads, &self.tails).unwrap_or_default()
    }
}

fn tail(rest: &[u8], tokenizer: &Tokenizer<'_, '_>) -> anyhow::Result<Vec<TokenId>> {
    let mut tail = text::encode(tokenizer, rest, Encode { add_special: false, parse_special: false })?;
    tail.truncate(MOST_TAIL);
    Ok(tail)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sequences are those of llama.cpp.
    #[test]
    fn texts_become_sequences_of_tokens() -> anyhow::Result<()> {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/fixtures/samplers");
        let file = std::fs::read(folder.join("vocab.gguf"))?;
        let (gguf, mut index) = (arenite::Gguf::parse(&file)?, Vec::new());
        let tokenizer = text::tokenizer(&gguf, &mut index)?;
        let json: serde_json::Value = serde_json::from_slice(&std::fs::read(folder.join("ref.json"))?)?;
        let mut count = 0;
        for case in json["cases"].as_array().into_iter().flatten().filter(|case| case["sampler"] == "dry") {
            let texts: Vec<String> = serde_json::from_value(case["params"]["sequence_breakers"].clone())?;
            let mut wanted: Vec<(TokenId, Vec<TokenId>)> = Vec::new();
            for (head, tails) in case["breakers"].as_object().into_iter().flatten() {
                for tail in tails.as_array().into_iter().flatten() {
                    wanted.push((head.parse()?, serde_json::from_value(tail.clone())?));
                }
            }
            wanted.sort();
            wanted.dedup();
            let list = BreakerList::new(&texts, &tokenizer)?;
            let tail = |found: &Breaker| list.tails[found.start as usize..][..found.len as usize].to_vec();
            assert_eq!(list.heads.iter().map(|found| (found.head, tail(found))).collect::<Vec<_>>(), wanted);
            count += wanted.len();
        }
        assert!(count > 0);
        Ok(())
    }
}
