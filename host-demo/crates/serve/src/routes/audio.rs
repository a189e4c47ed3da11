//! OpenAI's interface for speech: `/v1/audio/transcriptions` and `/v1/audio/translations`.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{FromRequest, Multipart, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use crate::app::App;
use crate::faces;
use crate::faces::audio::Transcribe;
use crate::http::error::{ApiError, Result};
use crate::http::memory::RequestMemory;
use crate::http::pool::Pace;
use crate::sounds::{MOST_BYTES, Transcription};
use arenite_speech::{Format, SoundFile};

/// Maximum number of bytes of each field of a form except the sound. Whisper reads at most the last 224 tokens of a
/// prompt.
const MOST_FIELD: usize = 16 << 10;
/// Maximum number of fields of a form.
const MOST_FIELDS: usize = 32;

pub async fn transcriptions(State(app): State<Arc<App>>, request: Request) -> Result<Response> {
    answer(app, request, false).await
}

pub async fn translations(State(app): State<Arc<App>>, request: Request) -> Result<Response> {
    answer(app, request, true).await
}

async fn answer(app: Arc<App>, request: Request, translate: bool) -> Result<Response> {
    let open = app.open(&request)?;
    if !app.hears {
        return Err(ApiError::invalid("this model does not transcribe speech: serve a Whisper or Moonshine model"));
    }
    let len = RequestMemory::announced(request.headers(), MOST_BYTES)?;
    let gone = || ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "the engine has ended");
    let client = open.client();
    let turn = app.sounds.acquire(client, MOST_BYTES).await.ok_or_else(gone)?;
    let form = Multipart::from_request(request, &app).await;
    let form = form.map_err(|error| ApiError::new(error.status(), error.body_text()))?;
    let (file, fields) = parts(form, Pace::new(&turn, len)).await?;
    let mut asked = faces::audio::transcription(&fields)?;
    app.service.check_model(asked.model.as_deref())?;
    asked.wanted.translate = translate;
    let file = file.ok_or_else(|| ApiError::about("file", "the field `file` with a sound file is missing"))?;
    let Transcribe { wanted, format, is_brief, .. } = asked;
    let (sender, text) = tokio::sync::oneshot::channel();
    let wrong = |error: anyhow::Error| ApiError::about("file", format!("{error:#}"));
    let sound = app.aside(&open, move |_| SoundFile::new(file).map_err(wrong)).await?;
    let job = Transcription { sound, client, wanted, format, answer: sender, _turn: turn };
    app.transcriptions.send(job).map_err(|_| gone())?;
    let text = text.await.map_err(|_| gone())?.map_err(ApiError::invalid)?;
    if is_brief {
        let whole: std::result::Result<serde_json::Value, _> = serde_json::from_str(&text);
        let text = whole.as_ref().ok().and_then(|whole| whole["text"].as_str());
        let lost = || ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "the transcript has no text");
        return Ok(axum::Json(json!({ "text": text.ok_or_else(lost)?.trim() })).into_response());
    }
    let kind = if format == Format::Json { "application/json" } else { "text/plain; charset=utf-8" };
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}

/// The sound, and all other fields. If a field is repeated, its value is a list.
type Parts = (Option<Bytes>, Map<String, Value>);

/// Receives the parts of a form.
async fn parts(mut form: Multipart, mut pace: Pace<'_>) -> Result<Parts> {
    let (mut file, mut fields) = (None, Map::new());
    let failed = |error: axum::extract::multipart::MultipartError| ApiError::new(error.status(), error.body_text());
    let mut count = 0;
    while let Some(mut field) = pace.wait(form.next_field()).await?.map_err(failed)? {
        count += 1;
        if count > MOST_FIELDS {
            return Err(ApiError::invalid(format!("the form has more than {MOST_FIELDS} fields")));
        }
        let name = field.name().unwrap_or_default().trim_end_matches("[]").to_owned();
        let is_file = name == "file";
        if is_file && file.is_some() {
            return Err(ApiError::about("file", "the form has two files: send one"));
        }
        let mut content = Vec::new();
        while let Some(part) = pace.wait(field.chunk()).await?.map_err(failed)? {
            pace.add(part.len());
            if !is_file && content.len() + part.len() > MOST_FIELD {
                let why = format!("the field is longer than {MOST_FIELD} bytes: shorten it");
                return Err(ApiError::about(name, why));
            }
            content.extend_from_slice(&part);
        }
        if is_file {
            file = Some(Bytes::from(content));
            continue;
        }
        let not_text = |_| ApiError::about(name.as_str(), "the field is not text in UTF-8");
        let text = Value::String(String::from_utf8(content).map_err(not_text)?);
        match fields.get_mut(&name) {
            Some(Value::Array(list)) => list.push(text),
            Some(first) => *first = Value::Array(vec![first.take(), text]),
            None => _ = fields.insert(name, text),
        }
    }
    Ok((file, fields))
}
