//! Scales of LoRA adapters: the scales in a request, or the client's default scales. llama.cpp's route `/lora-adapters`
//! shows and sets the default scales.

use std::sync::Arc;

use axum::Json;
use axum::body::Body as HttpBody;
use axum::extract::{Request, State};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::app::App;
use crate::http::error::{ApiError, Result};
use arenite_run::service::LoraScales;

/// The scale of an adapter, in requests.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct LoraScale {
    pub id: usize,
    pub scale: f32,
}

/// An adapter in the answer to `GET /lora-adapters`.
#[derive(Serialize)]
struct LoraCard<'s> {
    id: usize,
    path: &'s str,
    scale: f32,
}

/// Returns the scales in the optional field `lora` of a body.
pub fn of_body(scales: &LoraScales, body: &Value) -> Result<Option<Vec<(usize, f32)>>> {
    let list = body.get("lora").map(Option::<Vec<LoraScale>>::deserialize).transpose();
    let list = list.map_err(|error| ApiError::about("lora", format!("lora is invalid: {error}")))?;
    Ok(list.flatten().map(|list| scales.of_request(&pairs(list))).transpose()?)
}

fn pairs(list: Vec<LoraScale>) -> Vec<(usize, f32)> {
    list.into_iter().map(|LoraScale { id, scale }| (id, scale)).collect()
}

/// `GET /lora-adapters`.
pub async fn list(State(app): State<Arc<App>>, request: Request<HttpBody>) -> Result<Json<Value>> {
    let adapters = app.service.lora.list(app.scope_of(&app.open(&request)?));
    let cards = adapters.iter().enumerate().map(|(id, (path, scale))| LoraCard { id, path, scale: *scale });
    Ok(Json(json!(cards.collect::<Vec<_>>())))
}

/// `POST /lora-adapters`: sets the default scales of the client, or of all clients if they share the cache.
pub async fn set(State(app): State<Arc<App>>, request: Request<HttpBody>) -> Result<Json<Value>> {
    let read = |_: &App, body| {
        let list = serde_json::from_value(body);
        let list =
            list.map_err(|error| ApiError::invalid(format!("the body must be a list of {{id, scale}}: {error}")));
        Ok(pairs(list?))
    };
    let (open, scales) = app.asked(request, read).await?;
    app.service.lora.set(app.scope_of(&open), &scales)?;
    Ok(Json(json!({ "success": true })))
}
