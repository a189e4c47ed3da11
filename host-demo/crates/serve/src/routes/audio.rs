//! OpenAI's interface for speech: `/v1/audio/transcriptions` and `/v1/audio/translations`.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use anyhow::{Context, anyhow};
use arenite::Plan;
use axum::body::Bytes;
use axum::extract::{FromRequest, Multipart, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::app::{App, Result};
use crate::faces;
use crate::faces::audio::Transcribe;
use crate::http::error::ApiError;
use crate::http::memory::RequestMemory;
use arenite_run::open_model::OpenModel;
use arenite_run::runtime::Memory;
use arenite_run::scheduler::{Counters, STOPPED};
use arenite_speech::{Format, Progress, Request as Wanted, Segment, Sound, SoundFile, Transcriber, Writer};

/// Maximum size of a request in bytes, as in OpenAI's interface.
pub const MOST_BYTES: usize = 25 << 20;

/// Maximum duration of a sound in seconds: four hours.
const MOST_SECONDS: usize = 4 * 3600;

/// Time limit for receiving a request.
const BODY_TIME: Duration = Duration::from_secs(60);

/// Maximum size in bytes of each other field of a form. Whisper reads at most the last 224 tokens of a prompt.
const MOST_FIELD: usize = 16 << 10;
/// Maximum number of fields of a form.
const MOST_FIELDS: usize = 32;

/// Maximum number of sounds that are received, decoded and transcribed in turns, in all and of one client. Further ones
/// wait before their bodies are read.
const MOST_SOUNDS: usize = 6;
const MOST_OF_CLIENT: usize = 1;
/// Upper bound in bytes for the decoder, the thread and the samples of a sound, besides its file.
const SOUND_BYTES: usize = 8 << 20;
/// Upper bound in bytes for all sounds.
pub const SOUNDS: usize = MOST_SOUNDS * (MOST_BYTES + SOUND_BYTES);
/// Time after which the engine looks again whether samples are decoded.
const PAUSE: Duration = Duration::from_millis(2);

/// A sound to transcribe.
pub struct Transcription {
    pub sound: SoundFile,
    pub client: u64,
    pub wanted: Wanted,
    pub format: Format,
    pub answer: tokio::sync::oneshot::Sender<std::result::Result<String, String>>,
    pub _turn: Turn,
}

/// Limits the number of sounds that are open at the same time.
pub struct Sounds {
    all: Arc<Semaphore>,
    of_client: Mutex<HashMap<u64, Weak<Semaphore>>>,
}

/// The right to have a sound open.
pub struct Turn(#[allow(dead_code)] [OwnedSemaphorePermit; 2], #[allow(dead_code)] Arc<Semaphore>);

impl Default for Sounds {
    fn default() -> Self {
        Self { all: Arc::new(Semaphore::new(MOST_SOUNDS)), of_client: Mutex::default() }
    }
}

impl Sounds {
    /// Waits for a turn of a client.
    async fn turn(&self, client: u64) -> Option<Turn> {
        let own = {
            let mut of_client = self.of_client.lock().unwrap_or_else(|broken| broken.into_inner());
            of_client.retain(|_, semaphore| semaphore.strong_count() > 0);
            let known = of_client.get(&client).and_then(Weak::upgrade);
            let own = known.unwrap_or_else(|| Arc::new(Semaphore::new(MOST_OF_CLIENT)));
            of_client.insert(client, Arc::downgrade(&own));
            own
        };
        let first = own.clone().acquire_owned().await.ok()?;
        Some(Turn([first, self.all.clone().acquire_owned().await.ok()?], own))
    }
}

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
    RequestMemory::announced(request.headers(), MOST_BYTES)?;
    // The body is read once the client has its turn, so the memory of files is that of the turns.
    let gone = || ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "the engine has ended");
    let client = open.client();
    let turn = app.sounds.turn(client).await.ok_or_else(gone)?;
    let form = Multipart::from_request(request, &app).await;
    let form = form.map_err(|error| ApiError::new(error.status(), error.body_text()))?;
    let late = |_| ApiError::new(StatusCode::REQUEST_TIMEOUT, "the body did not come in time");
    let (file, fields) = timeout(BODY_TIME, parts(form)).await.map_err(late)??;
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

/// The sound, and the other fields. A field that comes several times is a list.
type Parts = (Option<Bytes>, Map<String, Value>);

/// Receives the parts of a form.
async fn parts(mut form: Multipart) -> Result<Parts> {
    let (mut file, mut fields) = (None, Map::new());
    let failed = |error: axum::extract::multipart::MultipartError| ApiError::new(error.status(), error.body_text());
    let mut count = 0;
    while let Some(mut field) = form.next_field().await.map_err(failed)? {
        count += 1;
        if count > MOST_FIELDS {
            return Err(ApiError::invalid(format!("the form has more than {MOST_FIELDS} fields")));
        }
        let name = field.name().unwrap_or_default().trim_end_matches("[]").to_owned();
        if name == "file" {
            if file.is_some() {
                return Err(ApiError::about("file", "the form has two files: send one"));
            }
            file = Some(field.bytes().await.map_err(failed)?);
            continue;
        }
        let mut text = Vec::new();
        while let Some(part) = field.chunk().await.map_err(failed)? {
            if text.len() + part.len() > MOST_FIELD {
                let why = format!("the field is longer than {MOST_FIELD} bytes: shorten it");
                return Err(ApiError::about(name, why));
            }
            text.extend_from_slice(&part);
        }
        let not_text = |_| ApiError::about(name.as_str(), "the field is not text in UTF-8");
        let text = Value::String(String::from_utf8(text).map_err(not_text)?);
        match fields.get_mut(&name) {
            Some(Value::Array(list)) => list.push(text),
            Some(first) => *first = Value::Array(vec![first.take(), text]),
            None => _ = fields.insert(name, text),
        }
    }
    Ok((file, fields))
}

/// A sound that is transcribed.
struct Active {
    sound: Sound,
    client: u64,
    translates: bool,
    progress: Progress,
    writer: Writer<Vec<u8>>,
    answer: tokio::sync::oneshot::Sender<std::result::Result<String, String>>,
    _turn: Turn,
}

impl Active {
    /// Begins a transcription, or answers with the error.
    fn new(transcriber: &Transcriber<'_, '_, '_, '_>, job: Transcription) -> Option<Self> {
        let Transcription { sound, client, wanted, format, answer, _turn } = job;
        let sound = Sound::from(sound).at_most(MOST_SECONDS);
        let begun = || anyhow::Ok((transcriber.begin(&wanted)?, Writer::new(format, Vec::new())?));
        match begun() {
            Ok((progress, writer)) => {
                let translates = wanted.translate;
                Some(Self { sound, client, translates, progress, writer, answer, _turn })
            }
            Err(error) => {
                let _ = answer.send(Err(format!("{error:#}")));
                None
            }
        }
    }

    /// Transcribes the next window. Returns false at the end of the sound.
    fn window(&mut self, transcriber: &mut Transcriber<'_, '_, '_, '_>) -> anyhow::Result<bool> {
        let Self { sound, answer, progress, writer, .. } = self;
        let goes_on = || !answer.is_closed();
        transcriber.window(progress, sound, &goes_on, &mut |segment: &Segment| Ok(writer.segment(segment)?))
    }

    /// Sends the transcript, or the error that ended it.
    fn finish(self, ended: anyhow::Result<()>) {
        let Self { sound, translates, answer, progress, writer, .. } = self;
        let text = ended.and_then(|()| {
            let text = writer.finish(&progress.summary(&sound), translates)?;
            String::from_utf8(text).context("the transcript is not UTF-8")
        });
        let _ = answer.send(text.map_err(|error| format!("{error:#}")));
    }
}

/// Answers requests in this thread until all senders of sounds are dropped. Calls `ready` when the memory is
/// allocated. Sounds take turns, a window each; the client that was served longest ago comes first.
pub fn run(
    open: &OpenModel,
    plan: Plan,
    counters: &Counters,
    sounds: &Receiver<Transcription>,
    ready: impl FnOnce(),
) -> anyhow::Result<()> {
    let mut memory = Memory::new(&plan)?;
    let session = open.session(&mut memory, plan)?;
    let mut transcriber = Transcriber::new(open.gguf(), open.model(), open.vocabulary()?, session)?;
    ready();
    // In the order of their turns.
    let mut active: VecDeque<Active> = VecDeque::new();
    let mut is_open = true;
    while is_open || !active.is_empty() {
        let received = match active.is_empty() {
            true => sounds.recv().map_err(|_| TryRecvError::Disconnected),
            false => sounds.try_recv(),
        };
        match received {
            // A new sound comes before those of its client.
            Ok(job) => {
                let at = active.iter().position(|other| other.client == job.client);
                let at = at.map_or(0, |_| active.len());
                Active::new(&transcriber, job).into_iter().for_each(|new| active.insert(at, new));
                continue;
            }
            Err(TryRecvError::Disconnected) => is_open = false,
            Err(TryRecvError::Empty) => {}
        }
        active.retain(|active| !active.answer.is_closed());
        if counters.ended.load(Ordering::Relaxed) {
            active.drain(..).for_each(|active| active.finish(Err(anyhow!(STOPPED))));
            continue;
        }
        let ready = active.iter_mut().enumerate().find_map(|(at, Active { sound, progress, .. })| {
            let ready = transcriber.is_ready(progress, sound).transpose()?;
            Some((at, ready))
        });
        let Some((at, ready)) = ready else {
            std::thread::sleep(PAUSE);
            continue;
        };
        let Some(mut next) = active.remove(at) else { continue };
        match ready.and_then(|()| next.window(&mut transcriber)) {
            Ok(true) => {
                // The other sounds of this client wait for those of others, too.
                let client = next.client;
                active.push_back(next);
                let (own, others): (VecDeque<_>, VecDeque<_>) =
                    active.into_iter().partition(|active| active.client == client);
                active = others.into_iter().chain(own).collect();
            }
            Ok(false) => next.finish(Ok(())),
            Err(error) => next.finish(Err(error)),
        }
    }
    Ok(())
}
