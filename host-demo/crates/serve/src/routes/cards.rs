//! The cards of `/v1/models`, in OpenAI's format or Anthropic's format, and the answer to `/health`. Servers with one
//! model and servers with several models share this code.

use std::sync::atomic::Ordering;

use axum::Json;
use axum::extract::Path;
use axum::extract::rejection::PathRejection;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Value, json};

use crate::http::error::{ApiError, Result, is_of_anthropic};
use arenite_run::scheduler::Counters;

/// A model in the answer to `/v1/models`.
#[derive(Serialize)]
pub struct ModelCard<'s> {
    id: &'s str,
    object: &'static str,
    created: u64,
    owned_by: &'static str,
    max_model_len: usize,
    meta: ModelMeta,
    /// What llama.cpp tells about a model's input and output; only for models that are trained for decisions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub architecture: Option<Architecture>,
    /// Names of the abilities of the model: Ollama's names, and `rerank`, `decisions` and `transcription`.
    pub capabilities: Vec<&'static str>,
    /// `loaded` or `unloaded`, if there are several models.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<&'static str>,
    /// Number of bytes of memory that the loaded model takes, if the server has several models.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<usize>,
}

/// The kinds of input and output of a model.
#[derive(Serialize)]
pub struct Architecture {
    pub input_modalities: [&'static str; 1],
    pub output_modalities: [&'static str; 1],
}

#[derive(Serialize)]
struct ModelMeta {
    n_ctx: usize,
    n_vocab: usize,
}

impl<'s> ModelCard<'s> {
    pub fn new(id: &'s str, context: usize, vocab: usize) -> Self {
        let meta = ModelMeta { n_ctx: context, n_vocab: vocab };
        let (object, owned_by, max_model_len) = ("model", "arenite", context);
        Self {
            id,
            object,
            created: 0,
            owned_by,
            max_model_len,
            meta,
            architecture: None,
            capabilities: Vec::new(),
            state: None,
            memory: None,
        }
    }

    /// The answer to `/v1/models/{id}`.
    pub fn answer(&self, headers: &HeaderMap) -> Value {
        if !is_of_anthropic(headers) {
            return json!(self);
        }
        // `created_at` is the beginning of 1970, because Anthropic's documentation prescribes this for an unknown time.
        json!({
            "type": "model", "id": self.id, "display_name": self.id, "created_at": "1970-01-01T00:00:00Z",
            "lifecycle": "active", "max_input_tokens": self.max_model_len, "max_tokens": self.max_model_len,
        })
    }
}

/// The answer to `/api/v0/models/{id}`, LM Studio's card of a model.
pub fn of_studio(card: &ModelCard<'_>) -> Value {
    let can = |what: &str| card.capabilities.contains(&what);
    let kind = match () {
        () if can("vision") => "vlm",
        () if can("completion") => "llm",
        () => "embeddings",
    };
    let capabilities: &[_] = if can("tools") { &["tool_use"] } else { &[] };
    json!({
        "id": card.id, "object": "model", "type": kind, "publisher": card.owned_by, "compatibility_type": "gguf",
        "state": if card.state == Some("unloaded") { "not-loaded" } else { "loaded" }, "capabilities": capabilities,
        "max_context_length": card.max_model_len, "loaded_context_length": card.max_model_len,
    })
}

/// The answer to `/api/v0/models`, LM Studio's list of models.
pub fn list_of_studio(cards: &[ModelCard<'_>]) -> Value {
    json!({ "object": "list", "data": cards.iter().map(of_studio).collect::<Vec<_>>() })
}

/// The answer to `/v1/models`.
pub fn list(cards: &[ModelCard<'_>], headers: &HeaderMap) -> Value {
    let data: Vec<Value> = cards.iter().map(|card| card.answer(headers)).collect();
    if !is_of_anthropic(headers) {
        return json!({ "object": "list", "data": data });
    }
    let id = |card: Option<&ModelCard<'_>>| card.map(|card| card.id.to_string());
    json!({ "data": data, "has_more": false, "first_id": id(cards.first()), "last_id": id(cards.last()) })
}

/// The name of a model in a path.
pub type ModelId = std::result::Result<Path<String>, PathRejection>;

pub fn model_id(id: ModelId) -> Result<String> {
    id.map(|Path(id)| id).map_err(|error| ApiError::invalid(error.body_text()))
}

/// Returns whether the server accepts requests.
pub fn health_of(counters: &Counters) -> Response {
    match counters.stopping.load(Ordering::Relaxed) {
        false => Json(json!({ "status": "ok" })).into_response(),
        true => (StatusCode::SERVICE_UNAVAILABLE, Json(json!({ "status": "stopping" }))).into_response(),
    }
}
