//! JSON formats of log-probabilities.

use arenite::TokenId;
use serde::Serialize;
use serde_json::{Map, Value, json};

use arenite_run::generation::Logprob;

/// A token in the format of chats and of llama.cpp's own answers. As in llama-server, the token's id is included.
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

/// Returns a token in the format of chats and of llama.cpp.
pub fn chat(token: &Logprob) -> Value {
    let top = token.top.iter().map(|token| ChatToken::of(token.id, &token.bytes, token.logprob, None)).collect();
    json!(ChatToken::of(token.id, &token.bytes, token.logprob.unwrap_or_default(), Some(top)))
}

/// The format of tokens in completions.
#[derive(Serialize)]
struct Completion {
    tokens: Vec<String>,
    token_logprobs: Vec<Option<f64>>,
    top_logprobs: Vec<Option<Map<String, Value>>>,
    text_offset: Vec<usize>,
}

/// Returns tokens in the format of completions. `start` is the offset at which the returned text begins; the text
/// begins with the prompt if the request asks for an echo.
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
