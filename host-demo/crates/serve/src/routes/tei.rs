//! Routes of text-embeddings-inference that no other interface has.

use std::sync::Arc;

use axum::Json;
use axum::body::Body as HttpBody;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Value, json};

use super::{embeddings, rerank};
use crate::app::App;
use crate::http::error::{ApiError, Result};
use crate::routes::vectors;
use arenite_run::service::unit;

/// `POST /`: `/embed` or `/rerank`, whichever the model does.
pub async fn root(state: State<Arc<App>>, request: Request<HttpBody>) -> Result<Response> {
    let service = &state.service;
    match (service.ranking.is_some(), service.makes_vectors) {
        (true, _) => rerank(state, request).await,
        (false, true) => embeddings(state, request).await,
        // Other programs take texts to continue here, so a model that generates text does not answer with a vector.
        (false, false) => {
            let why = "POST / is for rerankers and embedding models: use /embed, or a route that generates text";
            Err(ApiError::new(StatusCode::METHOD_NOT_ALLOWED, why))
        }
    }
}

/// `GET /info`.
pub async fn info(State(app): State<Arc<App>>) -> Json<Value> {
    let service = &app.service;
    let kind = match service.ranking.is_some() {
        true => json!({ "reranker": { "id2label": { "0": "LABEL_0" }, "label2id": { "LABEL_0": 0 } } }),
        false => json!({ "embedding": {} }),
    };
    Json(json!({
        "model_id": service.name,
        "model_type": kind,
        "max_input_length": service.context,
        "max_client_batch_size": arenite_run::service::MOST_TEXTS,
        "auto_truncate": false,
        "version": env!("CARGO_PKG_VERSION"),
    }))
}

/// `POST /similarity`: the cosine of the angle between the vector of a text and that of each other text.
pub async fn similarity(State(app): State<Arc<App>>, request: Request<HttpBody>) -> Result<Response> {
    let read = |app: &App, mut body: Value| {
        let inputs = body.get_mut("inputs").map(Value::take).unwrap_or_default();
        let texts =
            [inputs.get("source_sentence").map(std::slice::from_ref), inputs["sentences"].as_array().map(|v| &v[..])];
        let [Some(source), Some(others)] = texts else {
            return Err(ApiError::about("inputs", "inputs must have source_sentence and a list of sentences"));
        };
        let texts = [source, others].concat();
        if texts.len() < 2 || !texts.iter().all(Value::is_string) {
            return Err(ApiError::about("inputs", "source_sentence and each of sentences must be a text"));
        }
        // `truncate` and others are in `parameters` here.
        let parameters = body.get_mut("parameters").map(Value::take).unwrap_or_default();
        let mut request = if parameters.is_object() { parameters } else { json!({}) };
        request["inputs"] = texts.into();
        Ok(vectors::embedding_inputs(&app.service, &request, false)?.0)
    };
    let (open, inputs) = app.asked(request, read).await?;
    let made = app.vectors(&open, inputs, None).await?;
    let bytes = made.bytes();
    let cosines = move |_: &App| {
        let vectors: Vec<Vec<f32>> = made.vectors.iter().map(|vector| unit(vector)).collect();
        let cosine = |other: &Vec<f32>| vectors[0].iter().zip(other).map(|(a, b)| f64::from(a * b)).sum::<f64>();
        vectors[1..].iter().map(cosine).collect()
    };
    app.write(&open, bytes, cosines).await
}
