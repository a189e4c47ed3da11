//! Log-probabilities of tokens, and their JSON formats.

use arenite::TokenId;
use arenite::tokenizer::Tokenizer;
use serde::Serialize;
use serde_json::{Map, Value, json};

/// A token with its log-probability and its likeliest alternatives.
#[derive(Clone, Debug)]
pub struct Logprob {
    pub bytes: Vec<u8>,
    /// `None` for the first token of a text, because nothing predicts it.
    pub logprob: Option<f64>,
    pub top: Vec<(Vec<u8>, f64)>,
}

fn bytes(tokenizer: &Tokenizer<'_, '_>, id: TokenId) -> Vec<u8> {
    tokenizer.piece(id).map(Iterator::collect).unwrap_or_default()
}

/// Returns the log-probability of a token, computed from the model's unmodified logits.
pub fn logprob(tokenizer: &Tokenizer<'_, '_>, logits: &[f32], token: TokenId, count: usize) -> Logprob {
    let highest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let total: f64 = logits.iter().map(|logit| f64::from(logit - highest).exp()).sum();
    let of = |id: usize| f64::from(logits[id] - highest) - total.ln();
    let mut ids: Vec<usize> = (0..logits.len()).collect();
    let by_logit = |a: &usize, b: &usize| logits[*b].total_cmp(&logits[*a]).then(a.cmp(b));
    let count = count.min(ids.len());
    if count > 0 && count < ids.len() {
        ids.select_nth_unstable_by(count, by_logit);
    }
    ids.truncate(count);
    ids.sort_unstable_by(by_logit);
    let top = ids.into_iter().map(|id| (bytes(tokenizer, id as TokenId), of(id))).collect();
    Logprob { bytes: bytes(tokenizer, token), logprob: Some(of(token as usize)), top }
}

/// The format of a token in chats.
#[derive(Serialize)]
struct ChatToken<'l> {
    token: String,
    logprob: f64,
    bytes: &'l [u8],
    #[serde(skip_serializing_if = "Option::is_none")]
    top_logprobs: Option<Vec<ChatToken<'l>>>,
}

impl<'l> ChatToken<'l> {
    fn of(bytes: &'l [u8], logprob: f64, top_logprobs: Option<Vec<Self>>) -> Self {
        Self { token: lossy(bytes), logprob, bytes, top_logprobs }
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl Logprob {
    /// A token without a log-probability.
    pub fn unknown(tokenizer: &Tokenizer<'_, '_>, id: TokenId) -> Self {
        Self { bytes: bytes(tokenizer, id), logprob: None, top: Vec::new() }
    }

    /// Returns the format used in chats.
    pub fn chat(&self) -> Value {
        let top = self.top.iter().map(|(bytes, logprob)| ChatToken::of(bytes, *logprob, None)).collect();
        json!(ChatToken::of(&self.bytes, self.logprob.unwrap_or_default(), Some(top)))
    }
}

/// Counts the characters before each token. A character may have several tokens.
#[derive(Clone, Debug, Default)]
pub struct Offsets {
    /// Complete characters so far.
    chars: usize,
    /// Bytes of an incomplete character.
    open: Vec<u8>,
}

impl Offsets {
    /// Returns the offset of the first token after `text`.
    pub fn after(text: &str) -> Self {
        Self { chars: text.chars().count(), open: Vec::new() }
    }

    /// Returns the start of the next token, in characters.
    fn next(&mut self, bytes: &[u8]) -> usize {
        let here = self.chars;
        self.open.extend_from_slice(bytes);
        loop {
            let (valid, skipped) = match std::str::from_utf8(&self.open) {
                Ok(_) => (self.open.len(), 0),
                Err(error) => match error.error_len() {
                    Some(len) => (error.valid_up_to(), len),
                    None => {
                        let valid = error.valid_up_to();
                        self.chars += lossy(&self.open[..valid]).chars().count();
                        self.open.drain(..valid);
                        return here;
                    }
                },
            };
            self.chars += lossy(&self.open[..valid]).chars().count() + usize::from(skipped > 0);
            self.open.drain(..valid + skipped);
            if self.open.is_empty() {
                return here;
            }
        }
    }
}

/// The format of tokens in completions.
#[derive(Serialize)]
struct Completion {
    tokens: Vec<String>,
    token_logprobs: Vec<Option<f64>>,
    top_logprobs: Vec<Option<Map<String, Value>>>,
    text_offset: Vec<usize>,
}

/// Returns the format used in completions. `offsets` continues from call to call.
pub fn completion(logprobs: &[Logprob], offsets: &mut Offsets) -> Value {
    let top = |logprob: &Logprob| {
        let top = logprob.top.iter().rev().map(|(bytes, value)| (lossy(bytes), json!(value))).collect();
        logprob.logprob.map(|_| top)
    };
    json!(Completion {
        tokens: logprobs.iter().map(|logprob| lossy(&logprob.bytes)).collect(),
        token_logprobs: logprobs.iter().map(|logprob| logprob.logprob).collect(),
        top_logprobs: logprobs.iter().map(top).collect(),
        text_offset: logprobs.iter().map(|logprob| offsets.next(&logprob.bytes)).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::Offsets;

    #[test]
    fn offsets_count_whole_characters() {
        let mut offsets = Offsets::default();
        let each: [&[u8]; 9] = [b"A", b"\xc3", b"\xa9", b"\xf0", b"\x9f", b"\x99", b"\x82", b"B", b"\xff"];
        assert_eq!(each.map(|bytes| offsets.next(bytes)), [0, 1, 1, 2, 2, 2, 2, 3, 4]);
        assert_eq!(offsets.next(b"C"), 5);
        assert_eq!(Offsets::after("na\u{ef}ve").next(b"x"), 5);
    }
}
