//! OpenAI's interface for speech: `/v1/audio/transcriptions` and `/v1/audio/translations`.

use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use anyhow::{Context, ensure};
use arenite::Plan;
use axum::body::Bytes;
use axum::extract::{FromRequest, Multipart, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::app::{App, Result};
use super::engine::Command;
use super::error::ApiError;
use super::faces;
use super::faces::audio::Transcribe;
use crate::open_model::OpenModel;
use crate::runtime::Memory;
use crate::speech::{Format, Request as Wanted, Segment, Sound, Transcriber, Writer};

/// Maximum size of a request in bytes, as in OpenAI's interface.
pub const MOST_BYTES: usize = 25 << 20;

/// Maximum duration of a sound in seconds: four hours.
const MOST_SECONDS: usize = 4 * 3600;

/// Time limit for receiving a request.
const BODY_TIME: Duration = Duration::from_secs(60);

/// A sound to transcribe.
pub struct Transcription {
    pub file: Bytes,
    pub extension: Option<String>,
    pub wanted: Wanted,
    pub format: Format,
    pub answer: tokio::sync::oneshot::Sender<std::result::Result<String, String>>,
    /// Counts the file toward the memory limit of bodies, also after the client has disconnected.
    pub _permit: OwnedSemaphorePermit,
}

pub async fn transcriptions(State(app): State<Arc<App>>, request: Request) -> Result<Response> {
    answer(app, request, false).await
}

pub async fn translations(State(app): State<Arc<App>>, request: Request) -> Result<Response> {
    answer(app, request, true).await
}

async fn answer(app: Arc<App>, request: Request, translate: bool) -> Result<Response> {
    let _open = app.open(&request)?;
    let permit = app.memory.reserve(request.headers(), MOST_BYTES).await?;
    if !app.hears {
        return Err(ApiError::invalid("this model does not transcribe speech: serve a Whisper or Moonshine model"));
    }
    let form = Multipart::from_request(request, &app).await;
    let form = form.map_err(|error| ApiError::new(error.status(), error.body_text()))?;
    let late = |_| ApiError::new(StatusCode::REQUEST_TIMEOUT, "the body did not come in time");
    let (file, fields) = timeout(BODY_TIME, parts(form)).await.map_err(late)??;
    let mut asked = faces::audio::transcription(&fields)?;
    app.service.check_model(asked.model.as_deref())?;
    asked.wanted.translate = translate;
    let (file, extension) =
        file.ok_or_else(|| ApiError::about("file", "the field `file` with a sound file is missing"))?;
    let Transcribe { wanted, format, is_brief, .. } = asked;
    let (sender, text) = tokio::sync::oneshot::channel();
    let job = Box::new(Transcription { file, extension, wanted, format, answer: sender, _permit: permit });
    let gone = || ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "the engine has ended");
    app.commands.send(Command::Transcribe(job)).map_err(|_| gone())?;
    let text = text.await.map_err(|_| gone())?.map_err(ApiError::invalid)?;
    if is_brief {
        let whole: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        return Ok(axum::Json(json!({ "text": whole["text"].as_str().unwrap_or_default().trim() })).into_response());
    }
    let kind = if format == Format::Json { "application/json" } else { "text/plain; charset=utf-8" };
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}

/// The sound with the extension of its name, and the other fields. A field that comes several times is a list.
type Parts = (Option<(Bytes, Option<String>)>, Map<String, Value>);

/// Receives the parts of a form.
async fn parts(mut form: Multipart) -> Result<Parts> {
    let (mut file, mut fields) = (None, Map::new());
    let failed = |error: axum::extract::multipart::MultipartError| ApiError::new(error.status(), error.body_text());
    while let Some(field) = form.next_field().await.map_err(failed)? {
        let name = field.name().unwrap_or_default().trim_end_matches("[]").to_owned();
        if name == "file" {
            let extension = field.file_name().and_then(|name| Some(name.rsplit_once('.')?.1.to_owned()));
            file = Some((field.bytes().await.map_err(failed)?, extension));
            continue;
        }
        let text = Value::String(field.text().await.map_err(failed)?);
        match fields.get_mut(&name) {
            Some(Value::Array(list)) => list.push(text),
            Some(first) => *first = Value::Array(vec![first.take(), text]),
            None => _ = fields.insert(name, text),
        }
    }
    Ok((file, fields))
}

/// Answers requests in this thread until all senders of commands are dropped. Calls `ready` when the memory is
/// allocated.
pub fn run(open: &OpenModel, plan: Plan, commands: &Receiver<Command>, ready: impl FnOnce()) -> anyhow::Result<()> {
    let mut memory = Memory::new(&plan)?;
    let session = open.session(&mut memory, plan)?;
    let mut transcriber = Transcriber::new(open.gguf(), open.model(), open.vocabulary()?, session)?;
    ready();
    while let Ok(command) = commands.recv() {
        // The routes refuse all other requests to a speech model.
        let Command::Transcribe(job) = command else { continue };
        let text = transcribe(&mut transcriber, &job);
        let _ = job.answer.send(text.map_err(|error| format!("{error:#}")));
    }
    Ok(())
}

/// Transcribes a sound, unless its client has disconnected.
fn transcribe(transcriber: &mut Transcriber<'_, '_, '_, '_>, job: &Transcription) -> anyhow::Result<String> {
    let wanted = || -> anyhow::Result<()> {
        ensure!(!job.answer.is_closed(), "the client has disconnected");
        Ok(())
    };
    wanted()?;
    let mut sound = Sound::read(job.file.clone(), job.extension.as_deref())?.at_most(MOST_SECONDS);
    let mut writer = Writer::new(job.format, Vec::new())?;
    let summary = transcriber.transcribe(&mut sound, &job.wanted, &mut |segment: &Segment| {
        wanted()?;
        Ok(writer.segment(segment)?)
    })?;
    String::from_utf8(writer.finish(&summary, job.wanted.translate)?).context("the transcript is not UTF-8")
}
