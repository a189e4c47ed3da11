//! Requests for embeddings and rankings, and their answers.

use std::sync::Arc;

use arenite_request::Keep;
use arenite_run::ranking::Texts;
use arenite_run::service::{MOST_TEXTS, Pairs, Service, by_chance, token_count, unit};
use axum::body::Body as HttpBody;
use axum::extract::{Request, State};
use axum::response::Response;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use serde_json::{Value, json};

use crate::app::App;
use crate::faces;
use crate::faces::rerank::Ranked;
use crate::http::error::ApiError;

/// Returns the requested number of values per embedding. Embeddings are cut to their first values and normalized again.
fn dimensions(service: &Service, given: Option<&Value>) -> Result<Option<usize>, ApiError> {
    let Some(count) = given.filter(|count| !count.is_null()) else { return Ok(None) };
    match count.as_u64().map(|count| count as usize) {
        Some(count) if (1..=service.embedding_len).contains(&count) => Ok(Some(count)),
        _ => {
            let message = format!("dimensions is {count}, and 1 to {} are possible", service.embedding_len);
            Err(ApiError::about("dimensions", message))
        }
    }
}

/// How embeddings are written.
#[derive(Clone, Copy, Debug)]
pub struct VectorFormat {
    /// Number of values, of which the first ones are kept.
    dimensions: usize,
    is_raw: bool,
    is_base64: bool,
}

impl VectorFormat {
    /// Returns the values that are sent to the client: the first `dimensions` values of the vector. They are scaled to
    /// length 1 unless the client asks for raw values.
    pub fn values(self, vector: &[f32]) -> Vec<f32> {
        let first = &vector[..vector.len().min(self.dimensions)];
        if self.is_raw { first.to_vec() } else { unit(first) }
    }
}

/// Returns the tokens of the texts in an embedding request, and the format of the answer. `takes_none` is true if a request without texts is allowed,
/// as in Ollama.
pub fn embedding_inputs(
    service: &Service,
    body: &Value,
    takes_none: bool,
) -> Result<(Vec<Texts>, VectorFormat), ApiError> {
    service.check_model(body.get("model").and_then(Value::as_str))?;
    service.check_vectors()?;
    let asked = faces::embeddings::embeddings(body)?;
    if asked.prompts.is_empty() && !takes_none {
        return Err(ApiError::about(asked.field, format!("{}: the list is empty", asked.field)));
    }
    let dimensions = dimensions(service, asked.dimensions.as_ref())?.unwrap_or(usize::MAX);
    let format = VectorFormat { dimensions, is_raw: asked.is_raw, is_base64: asked.is_base64 };
    let limit = match asked.keep {
        Keep::All => None,
        Keep::Fitting => Some(service.context),
        Keep::Last(limit) => Some(service.context.min(limit)),
    };
    Ok((service.texts(asked.field, &asked.prompts, limit)?, format))
}

/// Returns the tokens of the pairs in a ranking request.
pub fn pairs(service: &Service, asked: &Ranked) -> Result<Vec<Texts>, ApiError> {
    service.check_model(asked.model.as_deref())?;
    let Ranked { query, field, texts, keep, most_tokens, .. } = asked;
    Ok(service.pairs(&Pairs { query, field, texts, keep: keep.unwrap_or_default(), most_tokens: *most_tokens })?)
}

/// Returns the answer to a ranking request, with the best document first.
pub fn ranking(service: &Service, asked: &Ranked, vectors: &[Vec<f32>], tokens: usize) -> Value {
    let is_share = asked.is_share.unwrap_or(asked.is_list);
    let score = |(index, vector): (usize, &Vec<f32>)| {
        let ranking = service.ranking.as_ref()?;
        Some((index, if is_share { ranking.share(vector) } else { ranking.score(vector) }))
    };
    let mut scores: Vec<_> = vectors.iter().enumerate().filter_map(score).collect();
    scores.sort_by(|a, b| b.1.total_cmp(&a.1));
    let results = scores.iter().take(asked.most.unwrap_or(usize::MAX)).map(|(index, score)| {
        let mut result = match asked.is_list {
            true => json!({ "index": index, "score": score }),
            false => json!({ "index": index, "relevance_score": score }),
        };
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

/// `POST /v1/score`, vLLM's: the scores of pairs of texts, in the order of the pairs.
pub async fn score(State(app): State<Arc<App>>, request: Request<HttpBody>) -> Result<Response, ApiError> {
    let read = |app: &App, body: Value| {
        let texts = |key| {
            let value = body
                .get(key)
                .ok_or_else(|| ApiError::about(key, format!("{key} must be a text or a list of texts")))?;
            Ok::<_, ApiError>(faces::Field { name: key, value }.texts()?)
        };
        let (queries, texts) = (texts("text_1")?, texts("text_2")?);
        if texts.is_empty() || texts.len() > MOST_TEXTS {
            let message = format!("text_2 has {} texts, and 1 to {MOST_TEXTS} are possible", texts.len());
            return Err(ApiError::about("text_2", message));
        }
        if queries.len() != 1 && queries.len() != texts.len() {
            let message =
                format!("text_1 has {} texts and text_2 has {}: give one, or equally many", queries.len(), texts.len());
            return Err(ApiError::about("text_1", message));
        }
        let ranked = |query: &str, texts: &[String]| {
            let model = body.get("model").and_then(Value::as_str).map(str::to_string);
            pairs(
                &app.service,
                &Ranked { model, query: query.into(), field: "text_2", texts: texts.into(), ..Ranked::default() },
            )
        };
        match &queries[..] {
            [query] => ranked(query, &texts),
            queries => {
                let each = queries.iter().zip(texts.chunks(1)).map(|(query, text)| ranked(query, text));
                Ok(each.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
            }
        }
    };
    let (open, pairs) = app.asked(request, read).await?;
    let tokens = token_count(&pairs);
    let made = app.vectors(&open, pairs, None).await?;
    let answer = move |app: &App| {
        let score = |(index, vector): (usize, &Vec<f32>)| {
            let score = app.service.ranking.as_ref().map(|ranking| ranking.share(vector));
            json!({ "index": index, "object": "score", "score": score })
        };
        json!({
            "id": format!("score-{:016x}", by_chance()),
            "object": "list",
            "model": app.service.name,
            "data": made.vectors.iter().enumerate().map(score).collect::<Value>(),
            "usage": { "prompt_tokens": tokens, "total_tokens": tokens },
        })
    };
    app.write(&open, 0, answer).await
}

/// Returns the answer to an embedding request: lists of numbers, or the bytes of the numbers in base64.
pub fn embeddings(service: &Service, format: VectorFormat, vectors: &[Vec<f32>], tokens: usize) -> Value {
    let written = |vector: Vec<f32>| match format.is_base64 {
        true => json!(BASE64.encode(vector.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>())),
        false => json!(vector),
    };
    let data = vectors.iter().enumerate().map(
        |(index, vector)| json!({ "object": "embedding", "index": index, "embedding": written(format.values(vector)) }),
    );
    json!({
        "object": "list",
        "data": data.collect::<Vec<_>>(),
        "model": service.name,
        "usage": { "prompt_tokens": tokens, "total_tokens": tokens },
    })
}
