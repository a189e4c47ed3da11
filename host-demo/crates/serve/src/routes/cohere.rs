//! Cohere's `/v1/embed` and `/v2/embed`. The rankings of Cohere have the format of other servers.

use std::sync::Arc;

use axum::body::Body as HttpBody;
use axum::extract::{Request, State};
use axum::response::Response;
use serde_json::{Value, json};

use crate::app::{App, object};
use crate::http::error::Result;
use crate::routes::vectors;
use arenite_run::service::{by_chance, token_count};

/// `POST /v1/embed` and `POST /v2/embed`.
pub async fn embed(State(app): State<Arc<App>>, request: Request<HttpBody>) -> Result<Response> {
    let is_first = request.uri().path().trim_end_matches('/').ends_with("/v1/embed");
    let read = move |app: &App, body: Value| {
        let mut body = object(body)?;
        if body.get("truncate").is_none_or(Value::is_null) {
            // Cohere cuts long texts unless the request forbids it.
            body["truncate"] = json!("END");
        }
        // The first version lists vectors by their type only if the request names types.
        let is_by_type = !is_first || body.get("embedding_types").is_some_and(|types| !types.is_null());
        let inputs = vectors::embedding_inputs(&app.service, &body, false)?;
        Ok((inputs, body["texts"].take(), is_by_type))
    };
    let (open, ((inputs, format), texts, is_by_type)) = app.asked(request, read).await?;
    let tokens = token_count(&inputs);
    let made = app.vectors(&open, inputs, None).await?;
    let answer = move |_: &App| {
        let vectors: Value = made.vectors.iter().map(|vector| format.values(vector)).collect();
        let (kind, embeddings) = match is_by_type {
            true => ("embeddings_by_type", json!({ "float": vectors })),
            false => ("embeddings_floats", vectors),
        };
        let version = if is_first { "1" } else { "2" };
        json!({
            "id": format!("embed-{:016x}", by_chance()),
            "response_type": kind,
            "embeddings": embeddings,
            "texts": texts,
            "meta": { "api_version": { "version": version }, "billed_units": { "input_tokens": tokens } },
        })
    };
    // The answer repeats the texts, which may be long.
    app.write(&open, usize::MAX, answer).await
}
