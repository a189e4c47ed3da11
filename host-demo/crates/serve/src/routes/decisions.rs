//! llama.cpp's `/v1/systemone`: questions about a state, answered with probabilities.

use std::sync::Arc;

use axum::body::Body as HttpBody;
use axum::extract::{Request, State};
use axum::response::Response;

use crate::app::App;
use crate::faces::decisions::decisions;
use crate::http::body;
use crate::http::error::Result;
use crate::routes::lora;

pub async fn systemone(State(app): State<Arc<App>>, request: Request<HttpBody>) -> Result<Response> {
    let (open, received) = app.receive(request).await?;
    let read = move |app: &App| {
        // Whole numbers with a decimal point are not converted to integers, because numbers in the state are shown to
        // the model as they are written.
        let body = body::as_written(received.json()?)?;
        Ok((decisions(&app.service, &body)?, lora::of_body(&app.service.lora, &body)?))
    };
    let (mut decisions, lora) = app.aside(&open, read).await?;
    let scores = app.scores(&open, &mut decisions, lora).await?;
    let answer = app.service.decided(&decisions, scores)?;
    // The answer repeats the descriptions of a scale's levels, which may be long. Its size is therefore not limited.
    app.write(&open, usize::MAX, move |_| answer).await
}
