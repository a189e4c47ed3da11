//! Requests for embeddings and rankings, and their answers.

use arenite::tokenizer::Encode;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use serde_json::{Value, json};

use super::error::ApiError;
use super::service::{Service, few, inputs};
use crate::ranking::{self, Texts};

/// Maximum number of texts in a request.
const MOST_TEXTS: usize = 2048;

impl Service {
    /// Returns the requested number of values per embedding: the first ones, normalized again.
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

    /// Returns the tokens of the texts in an embedding request.
    pub fn embedding_inputs(&self, body: &Value) -> Result<Vec<Texts>, ApiError> {
        self.check_model(body.get("model").and_then(Value::as_str))?;
        if !self.makes_vectors {
            return Err(ApiError::invalid("this model makes text, and no embeddings"));
        }
        let texts =
            inputs(self, body.get("input"), "input", MOST_TEXTS, Encode { add_special: true, parse_special: false })?;
        for (_, ids) in &texts {
            if ids.is_empty() || ids.len() > self.context {
                return Err(length_error("input", "a text", ids.len(), self.context));
            }
        }
        self.dimensions(body)?;
        Ok(texts.into_iter().map(|(_, ids)| ids.into()).collect())
    }

    /// Returns the tokens of the pairs in a ranking request.
    pub fn pairs(&self, body: &Value) -> Result<Vec<Texts>, ApiError> {
        self.check_model(body.get("model").and_then(Value::as_str))?;
        let ranking = self.ranking.as_ref().ok_or_else(|| ApiError::invalid("this model does not rank"))?;
        let query = body.get("query").and_then(Value::as_str);
        let query = query.ok_or_else(|| ApiError::about("query", "there must be a query, a text"))?;
        let documents = body.get("documents").and_then(Value::as_array);
        let documents = documents.ok_or_else(|| ApiError::about("documents", "there must be a list of texts"))?;
        few("documents", documents, MOST_TEXTS)?;
        let pair = |document: &Value| {
            let text = document.as_str().or_else(|| document.get("text")?.as_str());
            let text = text.ok_or_else(|| ApiError::about("documents", "each must be a text"))?;
            let pair =
                ranking.pair(self.tokenizer, query, text).map_err(|error| ApiError::invalid(error.to_string()))?;
            let len = pair.ids.len();
            if len == 0 || len > self.context {
                return Err(length_error("documents", "a pair", len, self.context));
            }
            Ok(pair)
        };
        documents.iter().map(pair).collect()
    }

    /// Returns the answer to a ranking request, with the best document first.
    pub fn ranking(&self, body: &Value, vectors: &[Vec<f32>], tokens: usize) -> Value {
        let mut scores: Vec<_> = vectors.iter().map(|vector| ranking::score(vector)).enumerate().collect();
        scores.sort_by(|a, b| b.1.total_cmp(&a.1));
        let top = body
            .get("top_n")
            .or_else(|| body.get("top_k"))
            .and_then(Value::as_u64)
            .map_or(usize::MAX, |top| top as usize);
        let results = scores.iter().take(top).map(|(index, score)| {
            let mut result = json!({ "index": index, "relevance_score": score });
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

    /// Returns the answer to an embedding request: lists of numbers, or base64 of their bytes.
    pub fn embeddings(&self, body: &Value, vectors: &[Vec<f32>], tokens: usize) -> Value {
        let is_base64 = body.get("encoding_format").and_then(Value::as_str) == Some("base64");
        let dimensions = self.dimensions(body).ok().flatten().unwrap_or(usize::MAX);
        let unit = |vector: &[f32]| {
            let vector = &vector[..vector.len().min(dimensions)];
            let norm = vector.iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>().sqrt().max(1e-12);
            vector.iter().map(|x| (f64::from(*x) / norm) as f32).collect::<Vec<_>>()
        };
        let written = |vector: Vec<f32>| match is_base64 {
            true => json!(BASE64.encode(vector.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>())),
            false => json!(vector),
        };
        let data = vectors.iter().enumerate().map(
            |(index, vector)| json!({ "object": "embedding", "index": index, "embedding": written(unit(vector)) }),
        );
        json!({
            "object": "list",
            "data": data.collect::<Vec<_>>(),
            "model": self.name,
            "usage": { "prompt_tokens": tokens, "total_tokens": tokens },
        })
    }
}

fn length_error(param: &'static str, what: &str, len: usize, context: usize) -> ApiError {
    let message = format!("{what} has {len} tokens, and 1 to {context} are possible");
    let code = (len > context).then_some("context_length_exceeded");
    ApiError { code, ..ApiError::about(param, message) }
}
