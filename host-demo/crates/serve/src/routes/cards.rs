//! The cards of `/v1/models` and the answer to `/health`, which one model and several have in common.

use std::sync::atomic::Ordering;

use axum::Json;
use axum::extract::Path;
use axum::extract::rejection::PathRejection;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::json;

use crate::http::error::{ApiError, Result};
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
    /// llama.cpp's field, for models that are trained for decisions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub architecture: Option<Architecture>,
    /// What the model can do, by Ollama's names and `rerank`, `decisions` and `transcription`.
    pub capabilities: Vec<&'static str>,
    /// `loaded` or `unloaded`, if there are several models.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<&'static str>,
    /// Bytes of memory of the loaded model, if there are several models.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<usize>,
}

/// What a model takes, and what it returns.
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
