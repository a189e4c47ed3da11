//! Log-probabilities of tokens.

use arenite::TokenId;
use arenite::tokenizer::Tokenizer;

/// A token, its log-probability, and its most probable alternatives.
#[derive(Clone, Debug)]
pub struct Logprob {
    pub id: TokenId,
    pub bytes: Vec<u8>,
    /// The log-probability; `None` for the first token of a text, because nothing predicts the first token.
    pub logprob: Option<f64>,
    pub top: Vec<Alternative>,
    /// Number of characters before this token, in the prompt and the answer together. Only complete characters count.
    pub offset: usize,
}

/// A likely token with its log-probability.
#[derive(Clone, Debug)]
pub struct Alternative {
    pub id: TokenId,
    pub bytes: Vec<u8>,
    pub logprob: f64,
}

/// Returns the bytes of a token's text; for a control token, the bytes of its spelling.
pub fn bytes(tokenizer: &Tokenizer<'_, '_>, id: TokenId) -> Vec<u8> {
    tokenizer.piece(id).map(Iterator::collect).unwrap_or_default()
}

/// Returns a token with its log-probability and the `count` most probable tokens, computed from the model's unmodified
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

impl Logprob {
    /// Returns a token without a log-probability.
    pub fn unknown(tokenizer: &Tokenizer<'_, '_>, id: TokenId) -> Self {
        Self { id, bytes: bytes(tokenizer, id), logprob: None, top: Vec::new(), offset: 0 }
    }
}
