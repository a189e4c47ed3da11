//! The settings of one answer, derived from a request.

use arenite::TokenId;
use arenite::sampler::Params;
use arenite::tokenizer::{Encode, Tokenizer};

use crate::generation::{BreakerList, Settings};
use arenite_request::{Biased, Refusal, TextRequest};
use arenite_text as text;

/// Maximum number of stop strings. The number is limited because all stop strings are searched for with every token. It
/// is not lower because programs for role play send one stop string for each character.
const MOST_STOPS: usize = 64;
/// Maximum number of texts that end repetitions.
const MOST_BREAKERS: usize = 16;
/// Maximum size of a stop string in bytes.
const MOST_STOP_BYTES: usize = 512;
/// Maximum number of tokens with a bias, and maximum number of tokens that end an answer.
const MOST_BIASES: usize = 1024;

/// Returns the settings of a request, without the grammar. Parameters that the request does not set are taken from
/// `usual`.
pub fn settings(
    request: &TextRequest,
    tokenizer: &Tokenizer<'_, '_>,
    vocab: usize,
    (usual, usual_breakers): (&Params, &[String]),
    by_chance: u64,
) -> Result<Settings, Refusal> {
    let stop_ids = request.stop_ids.clone();
    if stop_ids.len() > MOST_BIASES || stop_ids.iter().any(|id| *id as usize >= vocab) {
        return Err(Refusal::about("stop_token_ids", "stop_token_ids names a token that does not exist"));
    }
    let params = request.sampling.params(usual)?;
    Ok(Settings {
        params,
        breakers: breakers(request, &params, usual_breakers, tokenizer)?,
        bias: biases(&request.bias, tokenizer, vocab)?,
        seed: request.seed.unwrap_or(by_chance),
        limit: request.limit,
        min_tokens: request.min_tokens,
        stops: few_stops(&request.stops)?,
        stop_ids,
        ignore_end: request.ignore_end,
        indent: request.indent,
        time: request.time,
        logprobs: request.logprobs,
        reads_anew: request.reads_anew,
        slot: request.slot,
        ..Settings::default()
    })
}

/// Returns the bias of each token whose logit a request changes. If the request names a text, each token of the text
/// gets the bias.
fn biases(
    given: &[(Biased, f32)],
    tokenizer: &Tokenizer<'_, '_>,
    vocab: usize,
) -> Result<Vec<(TokenId, f32)>, Refusal> {
    let wrong = |message: String| Refusal::about("logit_bias", message);
    let mut biases = Vec::new();
    for (biased, bias) in given {
        match biased {
            Biased::Token(id) if *id as usize >= vocab => {
                return Err(wrong("logit_bias names a token that does not exist".into()));
            }
            Biased::Token(id) => biases.push((*id, *bias)),
            Biased::Text(text) => {
                // No special tokens are added, so that the tokens are the same as from `/tokenize`.
                let how = Encode { add_special: false, parse_special: false };
                let ids = text::encode(tokenizer, text.as_bytes(), how).map_err(|error| wrong(error.to_string()))?;
                biases.extend(ids.into_iter().map(|id| (id, *bias)));
            }
        }
        if biases.len() > MOST_BIASES {
            return Err(wrong(format!("logit_bias names more than {MOST_BIASES} tokens")));
        }
    }
    // Sort by token, because a sum of floats depends on the order of its terms, and the order of fields in a JSON
    // object has no meaning.
    biases.sort_by_key(|(id, _)| *id);
    Ok(biases)
}

/// Returns the sequences that interrupt the repetitions counted by DRY, if DRY is on.
fn breakers(
    request: &TextRequest,
    params: &Params,
    usual: &[String],
    tokenizer: &Tokenizer<'_, '_>,
) -> Result<BreakerList, Refusal> {
    const FIELD: &str = "dry_sequence_breakers";
    if params.more.dry_multiplier == 0.0 {
        return Ok(BreakerList::default());
    }
    let texts = request.sampling.dry_sequence_breakers.as_deref().unwrap_or(usual);
    if texts.len() > MOST_BREAKERS {
        let message = format!("{FIELD} has {} texts, and at most {MOST_BREAKERS} are possible", texts.len());
        return Err(Refusal::about(FIELD, message));
    }
    BreakerList::new(texts, tokenizer).map_err(|error| Refusal::about(FIELD, format!("{FIELD}: {error}")))
}

fn few_stops(stops: &[String]) -> Result<Vec<String>, Refusal> {
    if stops.len() > MOST_STOPS {
        let message = format!("stop has {} texts, and at most {MOST_STOPS} are possible", stops.len());
        return Err(Refusal::about("stop", message));
    }
    match stops.iter().find(|stop| stop.len() > MOST_STOP_BYTES) {
        Some(long) => {
            let message =
                format!("a text in stop has {} bytes, and at most {MOST_STOP_BYTES} are possible", long.len());
            Err(Refusal::about("stop", message))
        }
        None => Ok(stops.to_vec()),
    }
}
