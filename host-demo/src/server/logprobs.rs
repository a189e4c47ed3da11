//! How likely tokens were.

use arenite::TokenId;
use arenite::tokenizer::Tokenizer;
use serde_json::{Value, json};

/// A token, how likely it was, and which others were likely.
#[derive(Clone, Debug)]
pub struct Logprob {
    pub bytes: Vec<u8>,
    pub logprob: f64,
    pub top: Vec<(Vec<u8>, f64)>,
}

/// Of a token that was chosen, by the logits as the model gave them.
pub fn logprob(tokenizer: &Tokenizer<'_, '_>, logits: &[f32], token: TokenId, count: usize) -> Logprob {
    let highest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let total: f64 = logits.iter().map(|logit| f64::from(logit - highest).exp()).sum();
    let of = |id: usize| f64::from(logits[id] - highest) - total.ln();
    let bytes = |id: usize| tokenizer.piece(id as TokenId).map(Iterator::collect).unwrap_or_default();
    let mut ids: Vec<usize> = (0..logits.len()).collect();
    let by_logit = |a: &usize, b: &usize| logits[*b].total_cmp(&logits[*a]).then(a.cmp(b));
    let count = count.min(ids.len());
    if count > 0 && count < ids.len() {
        ids.select_nth_unstable_by(count, by_logit);
    }
    ids.truncate(count);
    ids.sort_unstable_by(by_logit);
    let top = ids.into_iter().map(|id| (bytes(id), of(id))).collect();
    Logprob { bytes: bytes(token as usize), logprob: of(token as usize), top }
}

impl Logprob {
    /// As in answers of chats.
    pub fn chat(&self) -> Value {
        let of = |bytes: &[u8], logprob: f64| json!({ "token": String::from_utf8_lossy(bytes), "logprob": logprob, "bytes": bytes });
        let mut value = of(&self.bytes, self.logprob);
        value["top_logprobs"] = self.top.iter().map(|(bytes, logprob)| of(bytes, *logprob)).collect();
        value
    }
}

/// As in answers of completions.
pub fn completion(logprobs: &[Logprob]) -> Value {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut offset = 0;
    let offsets: Vec<usize> = logprobs
        .iter()
        .map(|logprob| {
            let here = offset;
            offset += text(&logprob.bytes).chars().count();
            here
        })
        .collect();
    let tops: Vec<Value> = logprobs
        .iter()
        .map(|logprob| logprob.top.iter().map(|(bytes, value)| (text(bytes), json!(value))).collect())
        .collect();
    json!({
        "tokens": logprobs.iter().map(|logprob| text(&logprob.bytes)).collect::<Vec<_>>(),
        "token_logprobs": logprobs.iter().map(|logprob| logprob.logprob).collect::<Vec<_>>(),
        "top_logprobs": tops,
        "text_offset": offsets,
    })
}
