//! Log-probabilities of tokens, and their JSON formats.

use arenite::TokenId;
use arenite::tokenizer::Tokenizer;
use serde::Serialize;
use serde_json::{Map, Value, json};

/// A token with its log-probability and its likeliest alternatives.
#[derive(Clone, Debug)]
pub struct Logprob {
    pub id: TokenId,
    pub bytes: Vec<u8>,
    /// `None` for the first token of a text, because nothing predicts it.
    pub logprob: Option<f64>,
    pub top: Vec<Alternative>,
    /// Number of complete characters of prompt and answer before the token.
    pub offset: usize,
}

/// A likely token with its log-probability.
#[derive(Clone, Debug)]
pub struct Alternative {
    pub id: TokenId,
    pub bytes: Vec<u8>,
    pub logprob: f64,
}

/// The bytes of text of a token; a control token gives its spelling.
pub fn bytes(tokenizer: &Tokenizer<'_, '_>, id: TokenId) -> Vec<u8> {
    tokenizer.piece(id).map(Iterator::collect).unwrap_or_default()
}

/// Returns a token with its log-probability and the `count` likeliest tokens, computed from the model's unmodified
/// logits.
pub fn logprob(tokenizer: &Tokenizer<'_, '_>, logits: &[f32], token: TokenId, count: usize, offset: usize) -> Logprob {
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
    let alternative = |at: usize| {
        let id = at as TokenId;
        Alternative { id, bytes: bytes(tokenizer, id), logprob: of(at) }
    };
    let top = ids.into_iter().map(alternative).collect();
    Logprob { id: token, bytes: bytes(tokenizer, token), logprob: Some(of(token as usize)), top, offset }
}

/// The format of a token in chats, and in llama.cpp's own format. Like llama-server, it has the token's id.
#[derive(Serialize)]
struct ChatToken<'l> {
    id: TokenId,
    token: String,
    logprob: f64,
    bytes: &'l [u8],
    #[serde(skip_serializing_if = "Option::is_none")]
    top_logprobs: Option<Vec<ChatToken<'l>>>,
}

impl<'l> ChatToken<'l> {
    fn of(id: TokenId, bytes: &'l [u8], logprob: f64, top_logprobs: Option<Vec<Self>>) -> Self {
        Self { id, token: lossy(bytes), logprob, bytes, top_logprobs }
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl Logprob {
    /// Returns a token without a log-probability.
    pub fn unknown(tokenizer: &Tokenizer<'_, '_>, id: TokenId) -> Self {
        Self { id, bytes: bytes(tokenizer, id), logprob: None, top: Vec::new(), offset: 0 }
    }

    /// Returns the token in the format of chats and of llama.cpp.
    pub fn chat(&self) -> Value {
        let top = self.top.iter().map(|token| ChatToken::of(token.id, &token.bytes, token.logprob, None)).collect();
        json!(ChatToken::of(self.id, &self.bytes, self.logprob.unwrap_or_default(), Some(top)))
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

/// Returns tokens in the format of completions. `start` is the offset of the answer's text, which begins with the
/// prompt if the request asks for an echo.
pub fn completion(logprobs: &[Logprob], start: usize) -> Value {
    let top = |logprob: &Logprob| {
        let top = logprob.top.iter().rev().map(|token| (lossy(&token.bytes), json!(token.logprob))).collect();
        logprob.logprob.map(|_| top)
    };
    json!(Completion {
        tokens: logprobs.iter().map(|logprob| lossy(&logprob.bytes)).collect(),
        token_logprobs: logprobs.iter().map(|logprob| logprob.logprob).collect(),
        top_logprobs: logprobs.iter().map(top).collect(),
        text_offset: logprobs.iter().map(|logprob| logprob.offset.saturating_sub(start)).collect(),
    })
}
