//! Scales of LoRA adapters: those in a request, or the default scales, which llama.cpp's route `/lora-adapters` shows
//! and sets.

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

/// Returns the scales for a request with this body. The field `lora` is optional.
pub fn of_body(scales: &LoraScales, body: &Value) -> Result<Vec<(usize, f32)>> {
    let list = body.get("lora").map(Option::<Vec<LoraScale>>::deserialize).transpose();
    let list = list.map_err(|error| ApiError::about("lora", format!("lora is invalid: {error}")))?;
    let pairs = list.flatten().map(pairs);
    Ok(scales.of_request(pairs.as_deref())?)
}

fn pairs(list: Vec<LoraScale>) -> Vec<(usize, f32)> {
    list.into_iter().map(|LoraScale { id, scale }| (id, scale)).collect()
}

/// `GET /lora-adapters`.
pub async fn list(State(app): State<Arc<App>>) -> Json<Value> {
    let adapters = app.service.lora.list();
    let cards = adapters.iter().enumerate().map(|(id, (path, scale))| LoraCard { id, path, scale: *scale });
    Json(json!(cards.collect::<Vec<_>>()))
}

/// `POST /lora-adapters`: sets the default scales.
pub async fn set(State(app): State<Arc<App>>, request: Request<HttpBody>) -> Result<Json<Value>> {
    let read = |app: &App, body| {
        let list: Vec<LoraScale> = serde_json::from_value(body)
            .map_err(|error| ApiError::invalid(format!("the body must be a list of {{id, scale}}: {error}")))?;
        Ok(app.service.lora.set(&pairs(list))?)
    };
    app.asked(request, read).await?;
    Ok(Json(json!({ "success": true })))
}
