//! OpenAI's interface for speech: `/v1/audio/transcriptions` and `/v1/audio/translations`.

use std::sync::Arc;
use std::sync::mpsc::Receiver;

use anyhow::Context;
use arenite::Plan;
use axum::extract::{FromRequest, Multipart, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use clap::ValueEnum;
use serde_json::json;

use super::app::{App, Result};
use super::engine::Command;
use super::error::ApiError;
use crate::open_model::OpenModel;
use crate::runtime::Memory;
use crate::speech::{Format, Part, Request as Wanted, Sound, Transcriber, Writer};

/// Maximum size of a request in bytes, as in OpenAI's interface.
pub const MOST_BYTES: usize = 25 << 20;

/// A sound to transcribe.
pub struct Transcription {
    pub file: Vec<u8>,
    pub extension: Option<String>,
    pub wanted: Wanted,
    pub format: Format,
    pub answer: tokio::sync::oneshot::Sender<std::result::Result<String, String>>,
}

pub async fn transcriptions(State(app): State<Arc<App>>, request: Request) -> Result<Response> {
    answer(app, request, false).await
}

pub async fn translations(State(app): State<Arc<App>>, request: Request) -> Result<Response> {
    answer(app, request, true).await
}

/// Fields of a request.
#[derive(Default)]
struct Fields {
    file: Option<(Vec<u8>, Option<String>)>,
    wanted: Wanted,
    format: Option<String>,
}

async fn answer(app: Arc<App>, request: Request, translate: bool) -> Result<Response> {
    let _open = app.open(&request)?;
    let _permit = app.memory.reserve(request.headers(), MOST_BYTES).await?;
    if !app.hears {
        return Err(ApiError::invalid("this model does not transcribe speech: serve a Whisper or Moonshine model"));
    }
    let form = Multipart::from_request(request, &app).await;
    let form = form.map_err(|error| ApiError::new(error.status(), error.body_text()))?;
    let Fields { file, mut wanted, format } = fields(&app, form).await?;
    wanted.translate = translate;
    let (file, extension) = file.ok_or_else(|| ApiError::about("file", "there must be a file, a sound"))?;
    let name = format.as_deref().unwrap_or("json");
    let format = match name {
        "json" | "verbose_json" => Format::Json,
        _ => Format::from_str(name, false)
            .map_err(|_| ApiError::about("response_format", "it must be json, text, srt, vtt or verbose_json"))?,
    };
    let (sender, text) = tokio::sync::oneshot::channel();
    let job = Box::new(Transcription { file, extension, wanted, format, answer: sender });
    let gone = || ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "the engine has ended");
    app.commands.send(Command::Transcribe(job)).map_err(|_| gone())?;
    let text = text.await.map_err(|_| gone())?.map_err(ApiError::invalid)?;
    if name == "json" {
        let whole: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        return Ok(axum::Json(json!({ "text": whole["text"].as_str().unwrap_or_default().trim() })).into_response());
    }
    let kind = if format == Format::Json { "application/json" } else { "text/plain; charset=utf-8" };
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}

/// Reads the fields of a request.
async fn fields(app: &App, mut form: Multipart) -> Result<Fields> {
    let mut fields = Fields::default();
    let failed = |error: axum::extract::multipart::MultipartError| ApiError::new(error.status(), error.body_text());
    while let Some(field) = form.next_field().await.map_err(failed)? {
        let name = field.name().unwrap_or_default().to_owned();
        if name == "file" {
            let extension = field.file_name().and_then(|name| Some(name.rsplit_once('.')?.1.to_owned()));
            fields.file = Some((field.bytes().await.map_err(failed)?.to_vec(), extension));
            continue;
        }
        let text = field.text().await.map_err(failed)?;
        match name.as_str() {
            "model" => app.service.check_model(Some(&text))?,
            "language" if !text.is_empty() => fields.wanted.language = Some(text),
            "prompt" if !text.is_empty() => fields.wanted.prompt = Some(text),
            "language" | "prompt" => {}
            "response_format" => fields.format = Some(text),
            "temperature" => {
                let temperature = text.parse().ok().filter(|t| (0.0..=1.0).contains(t));
                let wrong = || ApiError::about("temperature", "temperature must be a number from 0 to 1");
                fields.wanted.temperature = temperature.ok_or_else(wrong)?;
            }
            "timestamp_granularities[]" | "timestamp_granularities" if text == "segment" => {}
            "stream" if text == "false" => {}
            _ => return Err(ApiError::unsupported(&name)),
        }
    }
    Ok(fields)
}

/// Answers requests in this thread until all senders of commands are dropped. Calls `ready` when the memory is there.
pub fn run(open: &OpenModel, plan: Plan, commands: &Receiver<Command>, ready: impl FnOnce()) -> anyhow::Result<()> {
    let mut memory = Memory::new(&plan)?;
    let session = open.session(&mut memory, plan)?;
    let mut transcriber = Transcriber::new(open.gguf(), open.model(), open.vocabulary()?, session)?;
    ready();
    while let Ok(command) = commands.recv() {
        // Other requests are refused before they come here.
        let Command::Transcribe(job) = command else { continue };
        let Transcription { file, extension, wanted, format, answer } = *job;
        let text = transcribe(&mut transcriber, (file, extension.as_deref()), &wanted, format);
        let _ = answer.send(text.map_err(|error| format!("{error:#}")));
    }
    Ok(())
}

fn transcribe(
    transcriber: &mut Transcriber<'_, '_, '_, '_>,
    (file, extension): (Vec<u8>, Option<&str>),
    wanted: &Wanted,
    format: Format,
) -> anyhow::Result<String> {
    let mut sound = Sound::read(file, extension)?;
    let mut writer = Writer::new(format, Vec::new())?;
    let summary = transcriber.transcribe(&mut sound, wanted, &mut |part: &Part| Ok(writer.part(part)?))?;
    String::from_utf8(writer.finish(&summary, wanted.translate)?).context("the transcript is not UTF-8")
}
