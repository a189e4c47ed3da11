//! llama.cpp's `/slots`: the last conversations of a client, which it may save to files and restore.
//!
//! A client sees only its own conversations, and each client's files are in a separate folder. Clients that share the
//! cache also share the conversations and the folder.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use axum::Json;
use axum::body::Body as HttpBody;
use axum::extract::{Path, Query, Request, State};
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::llama::sampling;
use crate::app::{App, CacheScope, OpenRequest, Waiting};
use crate::http::body;
use crate::http::error::{ApiError, Result};
use crate::identity::KEY_FILE;
use arenite_files::keep_private;
use arenite_run::scheduler::{Command, Slot, SlotAction, SlotAnswer, SlotRequest};
use arenite_run::session_file::{parsed, store};

/// Start of the names of clients' folders.
const CLIENT_FOLDER: &str = "client-";

/// Parameters of the address.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct Parameters {
    action: Option<String>,
    fail_on_no_slot: Option<String>,
}

/// `GET /slots`.
pub async fn list(
    State(app): State<Arc<App>>,
    Query(parameters): Query<Parameters>,
    request: Request<HttpBody>,
) -> Result<Json<Value>> {
    let open = app.open(&request)?;
    let SlotAnswer::Slots(slots) = ask(&app, &open, SlotAction::List).await? else { return Err(no_answer()) };
    if parameters.fail_on_no_slot.is_some() && slots.iter().all(|slot| slot.working > 0) {
        return Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "no slot available"));
    }
    Ok(Json(slots.iter().enumerate().map(|(id, slot)| card(&app, id, slot)).collect()))
}

/// Returns a slot as llama.cpp shows it.
fn card(app: &App, id: usize, slot: &Slot) -> Value {
    let is_processing = slot.working > 0;
    let mut card = json!({
        "id": id, "n_ctx": app.service.context, "speculative": false, "is_processing": is_processing,
    });
    let Some(settings) = &slot.settings else { return card };
    let left = settings.limit.map_or(-1, |limit| limit.saturating_sub(slot.answer) as i64);
    card["n_prompt_tokens"] = json!(slot.prompt);
    card["params"] = sampling(&settings.params);
    card["next_token"] = json!([{ "has_next_token": is_processing, "n_remain": left, "n_decoded": slot.answer }]);
    card
}

/// `POST /slots/{id}?action=save|restore|erase`.
pub async fn act(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    Query(parameters): Query<Parameters>,
    request: Request<HttpBody>,
) -> Result<Json<Value>> {
    let Some(folder) = &app.slots else {
        let why = "this server saves no slots: start it with --slot-save-path";
        return Err(ApiError::new(StatusCode::NOT_IMPLEMENTED, why));
    };
    let id: usize = id.parse().map_err(|_| ApiError::invalid("Invalid slot ID"))?;
    let (open, body) = app.receive(request).await?;
    let file = || -> Result<(String, PathBuf)> {
        let body = body::parse(body.json()?)?;
        let name = body.get("filename").and_then(Value::as_str);
        let name = name.ok_or_else(|| ApiError::about("filename", "filename must name a file"))?;
        Ok((name.to_string(), path_of(&app, folder, &open, name)?))
    };
    // Snapshots are written one at a time, because the snapshot of a conversation may be large.
    let _turn = app.saving.lock().await;
    let began = Instant::now();
    let spent = || json!(began.elapsed().as_micros() as f64 / 1000.0);
    match parameters.action.as_deref() {
        Some("save") => {
            let (name, path) = file()?;
            let SlotAnswer::Saved(head, snapshot) = ask(&app, &open, SlotAction::Save(id)).await? else {
                return Err(no_answer());
            };
            let saved = head.tokens.len();
            let write = move |app: &App| {
                let failed = |error: anyhow::Error| {
                    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, format!("the slot cannot be saved: {error:#}"))
                };
                let (others, most) = (bytes_beside(&path), app.most_saved);
                if others + snapshot.len() as u64 > most {
                    let why =
                        format!("the saved slots would take more than {most} bytes: save to a filename of before");
                    return Err(ApiError::new(StatusCode::INSUFFICIENT_STORAGE, why));
                }
                if let Some(own) = path.parent().filter(|own| !own.is_dir()) {
                    let made = std::fs::create_dir(own).and_then(|()| keep_private(own, 0o700));
                    made.map_err(|error| failed(error.into()))?;
                }
                store(&path, &head, &snapshot).map_err(failed)?;
                Ok(std::fs::metadata(&path).map_or(0, |file| file.len()))
            };
            let written = app.aside(&open, write).await?;
            Ok(Json(json!({
                "id_slot": id, "filename": name, "n_saved": saved, "n_written": written, "timings": { "save_ms": spent() },
            })))
        }
        Some("restore") => {
            let (name, path) = file()?;
            let read = move |_: &App| {
                let bytes = std::fs::read(&path).map_err(|_| not_restored())?;
                let (head, snapshot) = parsed(&bytes).map_err(|_| not_restored())?;
                Ok((bytes.len(), head, snapshot))
            };
            let (len, head, snapshot) = app.aside(&open, read).await?;
            let action = SlotAction::Restore(id, head, snapshot);
            let SlotAnswer::Restored(count) = ask(&app, &open, action).await.map_err(|_| not_restored())? else {
                return Err(no_answer());
            };
            Ok(Json(json!({
                "id_slot": id, "filename": name, "n_restored": count, "n_read": len,
                "timings": { "restore_ms": spent() },
            })))
        }
        Some("erase") => {
            let SlotAnswer::Erased(count) = ask(&app, &open, SlotAction::Erase(id)).await? else {
                return Err(no_answer());
            };
            Ok(Json(json!({ "id_slot": id, "n_erased": count })))
        }
        _ => Err(ApiError::invalid("Invalid action")),
    }
}

/// Returns the path of a client's file. The name must not contain folders, and must not be the name of one of the
/// server's own files.
fn path_of(app: &App, folder: &std::path::Path, open: &OpenRequest, name: &str) -> Result<PathBuf> {
    let is_plain = |name: &str| {
        let forbidden = |c: char| c.is_control() || "/\\:*?\"<>|".contains(c);
        // A name must not end with points or spaces, because some systems drop them, and two names would then be the
        // same file.
        let is_same_everywhere = !name.starts_with('.') && !name.ends_with(['.', ' ']);
        (1..=255).contains(&name.len()) && is_same_everywhere && !name.contains(forbidden)
    };
    // These names are refused because the server's own files may be in this folder: `client.key`, folders of clients,
    // and folders of models in `--cache-disk`.
    let lower = name.to_ascii_lowercase();
    let is_of_server = lower == KEY_FILE
        || lower.starts_with(CLIENT_FOLDER)
        || lower.len() == 16 && lower.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_plain(name) || is_of_server {
        return Err(ApiError::about("filename", "Invalid filename"));
    }
    Ok(match app.scope {
        CacheScope::Server => folder.join(name),
        CacheScope::Client => folder.join(format!("{CLIENT_FOLDER}{:016x}", open.client())).join(name),
    })
}

/// Returns the total size of all other files that are in the same folder as `path`.
fn bytes_beside(path: &std::path::Path) -> u64 {
    let files = path.parent().and_then(|own| std::fs::read_dir(own).ok()).into_iter().flatten().flatten();
    let sizes = files.filter(|file| file.path() != path).filter_map(|file| file.metadata().ok());
    sizes.filter(|file| file.is_file()).map(|file| file.len()).sum()
}

fn not_restored() -> ApiError {
    // llama.cpp's words.
    ApiError::invalid("Unable to restore slot: No available space in KV cache or invalid slot save file")
}

fn no_answer() -> ApiError {
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "the engine gave another answer")
}

async fn ask(app: &App, open: &OpenRequest, action: SlotAction) -> Result<SlotAnswer> {
    let (answer, done) = oneshot::channel();
    let request = SlotRequest { scope: app.scope_of(open), action, answer: Box::new(Waiting(answer)) };
    let gone = || ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "the engine has ended");
    app.commands.send(Command::Slots(request)).map_err(|_| gone())?;
    done.await.map_err(|_| gone())?.map_err(|why| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, why))
}
