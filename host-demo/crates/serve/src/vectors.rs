//! Requests for embeddings and rankings, and their answers.

use arenite_request::Refusal;
use arenite_run::ranking::{self, Texts};
use arenite_run::service::{Service, unit};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use serde_json::{Value, json};

use super::error::ApiError;
use super::faces::Field;

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
    let field = |value| Field { name: "input", value };
    let prompts = body.get("input").map_or(Err(Refusal::about("input", NO_INPUT)), |value| field(value).prompts())?;
    dimensions(service, body)?;
    if !matches!(body.get("encoding_format"), None | Some(Value::Null))
        && !["float", "base64"].iter().any(|format| body["encoding_format"] == *format)
    {
        return Err(ApiError::about("encoding_format", "encoding_format must be float or base64"));
    }
    Ok(service.texts(&prompts, truncation(service, body)?)?)
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
pub fn pairs(service: &Service, body: &Value) -> Result<Inputs, ApiError> {
    service.check_model(body.get("model").and_then(Value::as_str))?;
    if service.ranking.is_none() {
        return Err(ApiError::invalid("this model does not rank"));
    }
    let query = body.get("query").and_then(Value::as_str);
    let query = query.ok_or_else(|| ApiError::about("query", "query must be a text"))?;
    let documents = body.get("documents").and_then(Value::as_array);
    let documents = documents.ok_or_else(|| ApiError::about("documents", "documents must be a list of texts"))?;
    let text = |document: &'_ Value| -> Result<String, ApiError> {
        let text = document.as_str().or_else(|| document.get("text")?.as_str());
        text.map(str::to_owned).ok_or_else(|| ApiError::about("documents", "each document must be a text"))
    };
    let texts = documents.iter().map(text).collect::<Result<Vec<_>, _>>()?;
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    Ok(service.pairs(query, &texts, truncation(service, body)?)?)
}

/// Returns the answer to a ranking request, with the best document first. Documents without a score come last, each
/// with its error.
pub fn ranking(service: &Service, body: &Value, vectors: &[Result<Vec<f32>, ApiError>], tokens: usize) -> Value {
    let score = |vector: &Result<Vec<f32>, ApiError>| vector.as_ref().ok().map(|vector| ranking::score(vector));
    let mut scores: Vec<_> = vectors.iter().map(score).enumerate().collect();
    let order = |score: Option<f64>| score.unwrap_or(f64::NEG_INFINITY);
    scores.sort_by(|a, b| order(b.1).total_cmp(&order(a.1)));
    let top =
        body.get("top_n").or_else(|| body.get("top_k")).and_then(Value::as_u64).map_or(usize::MAX, |top| top as usize);
    let results = scores.iter().take(top).map(|(index, score)| {
        let mut result = json!({ "index": index, "relevance_score": score });
        if let Err(error) = &vectors[*index] {
            result["error"] = error.body()["error"].take();
        }
        if body.get("return_documents").and_then(Value::as_bool) == Some(true) {
            // Cohere returns an object, even if the request has a text.
            let document = &body["documents"][*index];
            result["document"] = if document.is_string() { json!({ "text": document }) } else { document.clone() };
        }
        result
    });
    json!({
        "object": "list",
        "model": service.name,
        "results": results.collect::<Vec<_>>(),
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
