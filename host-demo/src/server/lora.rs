//! Scales of LoRA adapters: those in a request, or the default scales, which llama.cpp's route `/lora-adapters` shows
//! and sets.

use std::sync::{Arc, Mutex};

use axum::Json;
use axum::body::Body as HttpBody;
use axum::extract::{Request, State};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::app::{App, Result};
use super::error::ApiError;
use crate::adapters::scaled;
use crate::text_request::Refusal;

/// The scale of an adapter, in requests.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct LoraScale {
    pub id: usize,
    pub scale: f32,
}

/// The adapters, and their default scales. The defaults apply to requests that give no scales.
pub struct LoraScales {
    paths: Vec<String>,
    scales: Mutex<Vec<f32>>,
}

/// An adapter in the answer to `GET /lora-adapters`.
#[derive(Serialize)]
struct LoraCard<'s> {
    id: usize,
    path: &'s str,
    scale: f32,
}

impl LoraScales {
    /// Reads the scales in a list of `FILE` or `FILE:SCALE`.
    pub fn new(lora: &[String]) -> anyhow::Result<Self> {
        let pairs = lora.iter().map(|text| scaled(text)).collect::<anyhow::Result<Vec<_>>>()?;
        let paths = pairs.iter().map(|(path, _)| path.display().to_string()).collect();
        Ok(Self { paths, scales: Mutex::new(pairs.iter().map(|(_, scale)| *scale).collect()) })
    }

    /// Returns the scales for a request with this `list`, or the default scales if there is no list. An adapter that
    /// the list leaves out is not used.
    pub fn of_request(&self, list: Option<&[(usize, f32)]>) -> std::result::Result<Vec<(usize, f32)>, Refusal> {
        list.map_or_else(|| Ok(self.usual()), |list| Ok(used(&self.complete(list)?)))
    }

    /// Returns the scales for a request with this body. The field `lora` is optional.
    pub fn of_body(&self, body: &Value) -> Result<Vec<(usize, f32)>> {
        let list = body.get("lora").map(Option::<Vec<LoraScale>>::deserialize).transpose();
        let list = list.map_err(|error| ApiError::about("lora", format!("lora is invalid: {error}")))?;
        let pairs = list.flatten().map(pairs);
        Ok(self.of_request(pairs.as_deref())?)
    }

    /// Returns the default scales, for requests that give no scales.
    pub fn usual(&self) -> Vec<(usize, f32)> {
        used(&self.lock())
    }

    /// Returns the scale of each adapter, which is 0 if `list` leaves the adapter out.
    fn complete(&self, list: &[(usize, f32)]) -> std::result::Result<Vec<f32>, Refusal> {
        let mut scales = vec![0.0; self.paths.len()];
        for (id, scale) in list {
            let count = scales.len();
            let place = scales.get_mut(*id).ok_or_else(|| {
                Refusal::about("lora", format!("there is no adapter {id}: the server was started with {count}"))
            })?;
            if !scale.is_finite() {
                return Err(Refusal::about("lora", format!("the scale of adapter {id} is not a finite number")));
            }
            *place = *scale;
        }
        Ok(scales)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<f32>> {
        self.scales.lock().unwrap_or_else(|broken| broken.into_inner())
    }

    fn cards(&self) -> Value {
        let scales = self.lock();
        let cards = self.paths.iter().zip(scales.iter()).enumerate();
        json!(cards.map(|(id, (path, scale))| LoraCard { id, path, scale: *scale }).collect::<Vec<_>>())
    }
}

fn pairs(list: Vec<LoraScale>) -> Vec<(usize, f32)> {
    list.into_iter().map(|LoraScale { id, scale }| (id, scale)).collect()
}

/// The adapters whose scale is not 0.
fn used(scales: &[f32]) -> Vec<(usize, f32)> {
    scales.iter().copied().enumerate().filter(|(_, scale)| *scale != 0.0).collect()
}

/// `GET /lora-adapters`.
pub async fn list(State(app): State<Arc<App>>) -> Json<Value> {
    Json(app.service.lora.cards())
}

/// `POST /lora-adapters`: sets the default scales.
pub async fn set(State(app): State<Arc<App>>, request: Request<HttpBody>) -> Result<Json<Value>> {
    let read = |app: &App, body| {
        let list: Vec<LoraScale> = serde_json::from_value(body)
            .map_err(|error| ApiError::invalid(format!("the body must be a list of {{id, scale}}: {error}")))?;
        let lora = &app.service.lora;
        let scales = lora.complete(&pairs(list))?;
        *lora.lock() = scales;
        Ok(())
    };
    app.asked(request, read).await?;
    Ok(Json(json!({ "success": true })))
}
