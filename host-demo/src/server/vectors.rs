//! Requests for embeddings and rankings, and their answers.

use arenite::TokenId;
use arenite::tokenizer::Encode;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use serde_json::{Value, json};

use super::error::ApiError;
use super::faces::Field;
use super::service::{Service, few};
use crate::ranking::{self, Texts};
use crate::text::Frame;
use crate::text_request::Refusal;

/// Maximum number of texts in a request.
const MOST_TEXTS: usize = 2048;
/// The message for a request without texts.
const NO_INPUT: &str = "input must be a text, tokens, or a list of these";

impl Service {
    /// Returns the requested number of values per embedding. Embeddings are cut to their first values and normalized
    /// again.
    fn dimensions(&self, body: &Value) -> Result<Option<usize>, ApiError> {
        match body.get("dimensions") {
            None | Some(Value::Null) => Ok(None),
            Some(count) => match count.as_u64().map(|count| count as usize) {
                Some(count) if (1..=self.embedding_len).contains(&count) => Ok(Some(count)),
                _ => {
                    let message = format!("dimensions is {count}, and 1 to {} are possible", self.embedding_len);
                    Err(ApiError::about("dimensions", message))
                }
            },
        }
    }

    /// Returns the tokens of the texts in an embedding request. A text that is too long gets its own error. If
    /// no text fits, the request fails.
    pub fn embedding_inputs(&self, body: &Value) -> Result<Vec<Result<Texts, ApiError>>, ApiError> {
        self.check_model(body.get("model").and_then(Value::as_str))?;
        if !self.makes_vectors {
            return Err(ApiError::invalid("this model computes no embeddings"));
        }
        let field = |value| Field { name: "input", value };
        let prompts =
            body.get("input").map_or(Err(Refusal::about("input", NO_INPUT)), |value| field(value).prompts())?;
        few("input", prompts.len(), MOST_TEXTS)?;
        let how = Encode { add_special: true, parse_special: false };
        let tokens = |prompt| self.tokens("input", prompt, how);
        let texts = prompts.iter().map(tokens).collect::<Result<Vec<_>, _>>()?;
        self.dimensions(body)?;
        if !matches!(body.get("encoding_format"), None | Some(Value::Null))
            && !["float", "base64"].iter().any(|format| body["encoding_format"] == *format)
        {
            return Err(ApiError::about("encoding_format", "encoding_format must be float or base64"));
        }
        let limit = self.truncation(body)?;
        let one = |(_, ids): (String, Vec<TokenId>)| {
            let ids = limit.map_or(Ok(ids.clone()), |limit| self.frame().cut(ids, limit)).map_err(invalid)?;
            self.fitting("input", "a text", ids.into())
        };
        some(texts.into_iter().map(one).collect())
    }

    /// Returns the number of tokens that longer texts are cut to, or `None` if they are not cut. The fields are vLLM's
    /// `truncate_prompt_tokens` (-1: the model's own limit), and Cohere's and text-embeddings-inference's `truncate`.
    fn truncation(&self, body: &Value) -> Result<Option<usize>, ApiError> {
        const FIELD: &str = "truncate_prompt_tokens";
        match (body.get(FIELD), body.get("truncate")) {
            (None | Some(Value::Null), Some(Value::Bool(true))) => Ok(Some(self.context)),
            (None | Some(Value::Null), Some(Value::String(side))) if side == "END" => Ok(Some(self.context)),
            (None | Some(Value::Null), _) => Ok(None),
            (Some(limit), _) => match limit.as_i64() {
                Some(-1) => Ok(Some(self.context)),
                Some(limit @ 1..) => Ok(Some(self.context.min(limit as usize))),
                _ => Err(ApiError::about(FIELD, format!("{FIELD} is {limit}: give a number of tokens, or -1"))),
            },
        }
    }

    /// Checks that the tokens of a text or of a pair fit in the context.
    fn fitting(&self, param: &'static str, what: &str, texts: Texts) -> Result<Texts, ApiError> {
        let (len, context) = (texts.ids.len(), self.context);
        if (1..=context).contains(&len) {
            return Ok(texts);
        }
        let message = format!(
            "{what} has {len} tokens, and 1 to {context} are possible: shorten it, or cut it with truncate_prompt_tokens"
        );
        let code = (len > context).then_some("context_length_exceeded");
        Err(ApiError { code, ..ApiError::about(param, message) })
    }

    fn frame(&self) -> Frame {
        Frame::of(self.tokenizer()).unwrap_or_default()
    }

    /// Returns the tokens of the pairs in a ranking request. A pair that is too long gets its own error. If no pair
    /// fits, the request fails.
    pub fn pairs(&self, body: &Value) -> Result<Vec<Result<Texts, ApiError>>, ApiError> {
        self.check_model(body.get("model").and_then(Value::as_str))?;
        let ranking = self.ranking.as_ref().ok_or_else(|| ApiError::invalid("this model does not rank"))?;
        let query = body.get("query").and_then(Value::as_str);
        let query = query.ok_or_else(|| ApiError::about("query", "query must be a text"))?;
        let documents = body.get("documents").and_then(Value::as_array);
        let documents = documents.ok_or_else(|| ApiError::about("documents", "documents must be a list of texts"))?;
        few("documents", documents.len(), MOST_TEXTS)?;
        let limit = self.truncation(body)?;
        let text = |document: &Value| -> Result<String, ApiError> {
            let text = document.as_str().or_else(|| document.get("text")?.as_str());
            text.map(str::to_owned).ok_or_else(|| ApiError::about("documents", "each document must be a text"))
        };
        let texts = documents.iter().map(text).collect::<Result<Vec<_>, _>>()?;
        let pair = |text: &String| {
            let pair = ranking.pair(self.tokenizer(), query, text, limit).map_err(invalid)?;
            self.fitting("documents", "a pair of query and document", pair)
        };
        some(texts.iter().map(pair).collect())
    }

    /// Returns the answer to a ranking request, with the best document first. Documents without a score come last, each
    /// with its error.
    pub fn ranking(&self, body: &Value, vectors: &[Result<Vec<f32>, ApiError>], tokens: usize) -> Value {
        let score = |vector: &Result<Vec<f32>, ApiError>| vector.as_ref().ok().map(|vector| ranking::score(vector));
        let mut scores: Vec<_> = vectors.iter().map(score).enumerate().collect();
        let order = |score: Option<f64>| score.unwrap_or(f64::NEG_INFINITY);
        scores.sort_by(|a, b| order(b.1).total_cmp(&order(a.1)));
        let top = body
            .get("top_n")
            .or_else(|| body.get("top_k"))
            .and_then(Value::as_u64)
            .map_or(usize::MAX, |top| top as usize);
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
            "model": self.name,
            "results": results.collect::<Vec<_>>(),
            "usage": { "prompt_tokens": tokens, "total_tokens": tokens },
        })
    }

    /// Returns the answer to an embedding request: lists of numbers, or base64 of their bytes. A text that could not be
    /// embedded gets an empty embedding and its error.
    pub fn embeddings(&self, body: &Value, vectors: &[Result<Vec<f32>, ApiError>], tokens: usize) -> Value {
        let is_base64 = body.get("encoding_format").and_then(Value::as_str) == Some("base64");
        let dimensions = self.dimensions(body).ok().flatten().unwrap_or(usize::MAX);
        let written = |vector: Vec<f32>| match is_base64 {
            true => json!(BASE64.encode(vector.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>())),
            false => json!(vector),
        };
        let data = vectors.iter().enumerate().map(|(index, vector)| {
            let values =
                vector.as_ref().map(|vector| unit(&vector[..vector.len().min(dimensions)])).unwrap_or_default();
            let mut row = json!({ "object": "embedding", "index": index, "embedding": written(values) });
            if let Err(error) = vector {
                row["error"] = error.body()["error"].take();
            }
            row
        });
        json!({
            "object": "list",
            "data": data.collect::<Vec<_>>(),
            "model": self.name,
            "usage": { "prompt_tokens": tokens, "total_tokens": tokens },
        })
    }
}

/// Scales a vector to length 1; leaves a zero vector unchanged.
pub fn unit(vector: &[f32]) -> Vec<f32> {
    let norm = vector.iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>().sqrt().max(1e-12);
    vector.iter().map(|x| (f64::from(*x) / norm) as f32).collect()
}

fn invalid(error: impl std::fmt::Display) -> ApiError {
    ApiError::invalid(error.to_string())
}

/// Returns the results, or the first error if all of them are errors.
fn some<T>(mut results: Vec<Result<T, ApiError>>) -> Result<Vec<Result<T, ApiError>>, ApiError> {
    match results.iter().all(Result::is_err) && !results.is_empty() {
        true => results.swap_remove(0).map(|_| results),
        false => Ok(results),
    }
}

/// Number of tokens of all texts without an error.
pub fn token_count(texts: &[Result<Texts, ApiError>]) -> usize {
    texts.iter().flatten().map(|texts| texts.ids.len()).sum()
}
