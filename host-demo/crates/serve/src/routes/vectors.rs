//! Requests for embeddings and rankings, and their answers.

use arenite_request::Refusal;
use arenite_run::ranking::{self, Texts};
use arenite_run::service::{Pairs, Service, by_chance, unit};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use serde_json::{Value, json};

use crate::faces::Field;
use crate::faces::rerank::Ranked;
use crate::http::error::ApiError;

/// The message for a request without texts.
const NO_INPUT: &str = "input must be a text, tokens, or a list of these";

/// Texts with the error of each text that does not fit.
type Inputs = Vec<Result<Texts, Refusal>>;

/// Returns the requested number of values per embedding. Embeddings are cut to their first values and normalized again.
fn dimensions(service: &Service, body: &Value) -> Result<Option<usize>, ApiError> {
    match body.get("dimensions") {
        None | Some(Value::Null) => Ok(None),
        Some(count) => match count.as_u64().map(|count| count as usize) {
            Some(count) if (1..=service.embedding_len).contains(&count) => Ok(Some(count)),
            _ => {
                let message = format!("dimensions is {count}, and 1 to {} are possible", service.embedding_len);
                Err(ApiError::about("dimensions", message))
            }
        },
    }
}

/// Returns the tokens of the texts in an embedding request.
pub fn embedding_inputs(service: &Service, body: &Value) -> Result<Inputs, ApiError> {
    service.check_model(body.get("model").and_then(Value::as_str))?;
    if !service.makes_vectors {
        return Err(ApiError::invalid("this model computes no embeddings"));
    }
    // llama.cpp's own routes have another name for the texts.
    let given = |name| Some(Field { name, value: body.get(name).filter(|value| !value.is_null())? });
    let field = ["input", "content"].into_iter().find_map(given);
    let field = field.ok_or_else(|| Refusal::about("input", NO_INPUT))?;
    let prompts = field.prompts()?;
    if body.get("embd_normalize").is_some_and(|norm| !norm.is_null() && *norm != 2) {
        return Err(Refusal::unsupported("embd_normalize").into());
    }
    dimensions(service, body)?;
    if !matches!(body.get("encoding_format"), None | Some(Value::Null))
        && !["float", "base64"].iter().any(|format| body["encoding_format"] == *format)
    {
        return Err(ApiError::about("encoding_format", "encoding_format must be float or base64"));
    }
    Ok(service.texts(field.name, &prompts, truncation(service, body)?)?)
}

/// Returns the number of tokens that longer texts are cut to, or `None` if they are not cut. The fields are vLLM's
/// `truncate_prompt_tokens` (-1: the model's own limit), and Cohere's and text-embeddings-inference's `truncate`.
fn truncation(service: &Service, body: &Value) -> Result<Option<usize>, ApiError> {
    const FIELD: &str = "truncate_prompt_tokens";
    match (body.get(FIELD), body.get("truncate")) {
        (None | Some(Value::Null), Some(Value::Bool(true))) => Ok(Some(service.context)),
        (None | Some(Value::Null), Some(Value::String(side))) if side == "END" => Ok(Some(service.context)),
        (None | Some(Value::Null), _) => Ok(None),
        (Some(limit), _) => match limit.as_i64() {
            Some(-1) => Ok(Some(service.context)),
            Some(limit @ 1..) => Ok(Some(service.context.min(limit as usize))),
            _ => Err(ApiError::about(FIELD, format!("{FIELD} is {limit}: give a number of tokens, or -1"))),
        },
    }
}

/// Returns the tokens of the pairs in a ranking request.
pub fn pairs(service: &Service, asked: &Ranked) -> Result<Inputs, ApiError> {
    service.check_model(asked.model.as_deref())?;
    let Ranked { query, field, texts, keep, most_tokens, .. } = asked;
    Ok(service.pairs(&Pairs { query, field, texts, keep: *keep, most_tokens: *most_tokens })?)
}

/// Returns the answer to a ranking request, with the best document first. Documents without a score come last, each
/// with its error.
pub fn ranking(service: &Service, asked: &Ranked, vectors: &[Result<Vec<f32>, ApiError>], tokens: usize) -> Value {
    let score = |vector: &Result<Vec<f32>, ApiError>| {
        let vector = vector.as_ref().ok()?;
        Some(if asked.is_share { ranking::share(vector) } else { ranking::score(vector) })
    };
    let mut scores: Vec<_> = vectors.iter().map(score).enumerate().collect();
    let order = |score: Option<f64>| score.unwrap_or(f64::NEG_INFINITY);
    scores.sort_by(|a, b| order(b.1).total_cmp(&order(a.1)));
    let results = scores.iter().take(asked.most.unwrap_or(usize::MAX)).map(|(index, score)| {
        let mut result = match asked.is_list {
            true => json!({ "index": index, "score": score }),
            false => json!({ "index": index, "relevance_score": score }),
        };
        if let Err(error) = &vectors[*index] {
            result["error"] = error.body()["error"].take();
        }
        match (asked.returns_documents, asked.is_list) {
            (true, true) => result["text"] = json!(asked.texts[*index]),
            (true, false) => result["document"] = asked.documents[*index].clone(),
            (false, _) => {}
        }
        result
    });
    let results: Vec<Value> = results.collect();
    if asked.is_list {
        return results.into();
    }
    json!({
        "id": format!("rerank-{:016x}", by_chance()),
        "object": "list",
        "model": service.name,
        "results": results,
        "meta": { "api_version": { "version": "2" }, "billed_units": { "search_units": 1 } },
        "usage": { "prompt_tokens": tokens, "total_tokens": tokens },
    })
}

/// Returns the answer to an embedding request: lists of numbers, or base64 of their bytes. A text that could not be
/// embedded gets an empty embedding and its error.
pub fn embeddings(service: &Service, body: &Value, vectors: &[Result<Vec<f32>, ApiError>], tokens: usize) -> Value {
    let is_base64 = body.get("encoding_format").and_then(Value::as_str) == Some("base64");
    let dimensions = dimensions(service, body).ok().flatten().unwrap_or(usize::MAX);
    let written = |vector: Vec<f32>| match is_base64 {
        true => json!(BASE64.encode(vector.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>())),
        false => json!(vector),
    };
    let data = vectors.iter().enumerate().map(|(index, vector)| {
        let values = vector.as_ref().map(|vector| unit(&vector[..vector.len().min(dimensions)])).unwrap_or_default();
        let mut row = json!({ "object": "embedding", "index": index, "embedding": written(values) });
        if let Err(error) = vector {
            row["error"] = error.body()["error"].take();
        }
        row
    });
    json!({
        "object": "list",
        "data": data.collect::<Vec<_>>(),
        "model": service.name,
        "usage": { "prompt_tokens": tokens, "total_tokens": tokens },
    })
}
