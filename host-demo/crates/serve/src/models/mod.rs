//! Runs several models within a budget of memory. Each loaded model runs in a separate process: a failure ends only
//! that process, and all memory of the process returns to the system.

pub mod proxy;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail};
use axum::http::StatusCode;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};
use tokio::runtime::Handle;
use tokio::sync::{Notify, OnceCell, RwLock};
use tokio::time::timeout;

use crate::http::error::{self, ApiError};
use crate::http::memory::{ProgramMemory, RequestMemory};
use crate::http::readers::READERS;
use arenite_files::Bytes;
use arenite_request::Refusal;
use arenite_run::service::Facts;
use arenite_run::service::{Host, by_chance, is_any, is_name};

/// Time that a request waits for memory before it gets priority over other requests.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time that a request with priority waits for memory before the request fails.
const WAIT: Duration = Duration::from_secs(120);

/// A model that requests can choose.
pub struct ModelEntry {
    pub name: String,
    pub path: PathBuf,
    pub facts: Facts,
    /// Maximum number of positions of a conversation.
    pub context: usize,
    pub vocab: usize,
    /// Maximum size of the model's process in bytes.
    pub bytes: usize,
    /// What the model can do.
    pub capabilities: Vec<&'static str>,
}

impl ModelEntry {
    /// Describes a planned model.
    pub fn new(path: &Path, host: &Host, program: &ProgramMemory) -> Self {
        let Host { service, open, .. } = host;
        Self {
            name: service.name.clone(),
            path: path.to_owned(),
            facts: service.facts.clone(),
            context: service.context,
            vocab: service.vocab,
            bytes: host.bytes(RequestMemory::most(READERS), program.of_model(open.options.threads)),
            capabilities: service.capabilities(),
        }
    }
}

/// The models, and the processes of those that are loaded.
pub struct Models {
    models: Vec<ModelEntry>,
    /// Memory for all processes together.
    budget: usize,
    /// A secret by which the processes know this one.
    token: String,
    /// Program and arguments of this process. The processes of the models get further arguments.
    command: (PathBuf, Vec<OsString>),
    /// The process of each model. To avoid deadlocks, this list is never locked while a lock inside a [`ProcessSlot`]
    /// is held, because `take` locks in the opposite order.
    slots: Mutex<Vec<Option<Arc<ProcessSlot>>>>,
    /// Notified when memory may have become free.
    freed: Notify,
    /// Write-locked by a request that has waited too long for memory. All other requests then wait until this request
    /// has its memory, because they would otherwise keep other models loaded without end.
    turn: RwLock<()>,
    /// Time without requests after which a model is unloaded; `None` keeps the model loaded.
    idle: Option<Duration>,
}

/// Identifies a version of a file: its length, and the time of its last change. A hash of the contents would take too
/// long, because each request compares the stamp.
type FileStamp = Option<(u64, SystemTime)>;

fn stamp(path: &Path) -> FileStamp {
    let file = std::fs::metadata(path).ok()?;
    Some((file.len(), file.modified().ok()?))
}

/// A process, or one that is being started.
struct ProcessSlot {
    /// The process, or the reason why it does not run.
    process: OnceCell<std::result::Result<Process, String>>,
    /// Number of requests that the process is answering.
    leases: AtomicUsize,
    used: Mutex<Instant>,
    /// How long the model stays loaded without requests, if a request has set this in place of [`Models::idle`].
    idle: Mutex<Option<Option<Duration>>>,
    /// The model file when the process was started.
    file: FileStamp,
}

struct Process {
    /// `None` after the process was ended.
    child: Mutex<Option<Child>>,
    port: u16,
}

/// Keeps a model loaded until the lease is dropped.
pub struct Lease {
    models: Arc<Models>,
    at: usize,
    slot: Arc<ProcessSlot>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        *lock(&self.slot.used) = Instant::now();
        if self.slot.leases.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.models.freed.notify_waiters();
            let idle = lock(&self.slot.idle).unwrap_or(self.models.idle);
            if let (Some(idle), Ok(runtime)) = (idle, Handle::try_current()) {
                runtime.spawn(self.models.clone().unload_idle(self.at, idle));
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|broken| broken.into_inner())
}

impl Models {
    /// Creates a list of models that are loaded within `memory` bytes, or without a limit. The server's own process
    /// takes `own` of these bytes. `command` started the server: its program and arguments.
    ///
    /// # Errors
    ///
    /// Two models have the same name, or one of them is too large.
    pub fn new(
        models: Vec<ModelEntry>,
        memory: Option<usize>,
        own: usize,
        idle: Option<Duration>,
        command: (PathBuf, Vec<OsString>),
    ) -> Result<Self> {
        let all: usize = models.iter().map(|model| model.bytes).sum();
        let budget = memory.map_or(all, |memory| memory.saturating_sub(own));
        for (at, ModelEntry { name, path, bytes, .. }) in models.iter().enumerate() {
            if let Some(other) = models[..at].iter().find(|other| other.name == *name) {
                let (path, other) = (path.display(), other.path.display());
                bail!("two models are named `{name}`, {other} and {path}: give each a name with --alias");
            }
            if *bytes > budget {
                bail!(
                    "`{name}` takes {}, and --memory leaves {} for a model: give more, or a smaller -c or --parallel",
                    Bytes(*bytes),
                    Bytes(budget)
                );
            }
        }
        Ok(Self {
            slots: Mutex::new(models.iter().map(|_| None).collect()),
            models,
            budget,
            token: format!("{:016x}{:016x}", by_chance(), by_chance()),
            command,
            freed: Notify::new(),
            turn: RwLock::new(()),
            idle,
        })
    }

    /// Memory for all processes of models together, in bytes.
    pub fn budget(&self) -> usize {
        self.budget
    }

    /// Returns each model, and whether it is loaded.
    pub fn list(&self) -> Vec<(&ModelEntry, bool)> {
        let slots = lock(&self.slots);
        let loaded = slots.iter().map(|slot| slot.as_ref().is_some_and(|slot| slot.runs() == Some(true)));
        self.models.iter().zip(loaded).collect()
    }

    /// Returns the index of the model `name`. Requests without a name get the first model.
    pub fn find(&self, name: Option<&str>) -> error::Result<usize> {
        let Some(name) = name.filter(|name| !is_any(name)) else { return Ok(0) };
        let is_named = |model: &ModelEntry| is_name(name, &model.name);
        self.models.iter().position(is_named).ok_or_else(|| {
            let known: Vec<_> = self.models.iter().map(|model| model.name.as_str()).collect();
            Refusal::no_model(name, &known.join("`, `")).into()
        })
    }

    /// Loads a model, and keeps it loaded for a request.
    pub async fn lease(self: &Arc<Self>, at: usize) -> error::Result<Lease> {
        let first = timeout(PATIENCE, async {
            let turn = self.turn.read().await;
            match self.take(at) {
                Some(taken) => taken,
                None => {
                    drop(turn);
                    self.taken(at).await
                }
            }
        });
        let (lease, ended) = match first.await {
            Ok(taken) => taken,
            Err(_) => {
                let waited = timeout(WAIT, async {
                    let _turn = self.turn.write().await;
                    self.taken(at).await
                });
                waited.await.map_err(|_| {
                    let why = format!(
                        "other models occupy the memory that `{}` needs: try again later",
                        self.models[at].name
                    );
                    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, why)
                })?
            }
        };
        if lease.slot.runs() == Some(true) {
            return Ok(lease);
        }
        // The start runs in a separate task, so that it continues even if the client disconnects.
        let started = tokio::spawn(async move { lease.start(ended).await.map(|()| lease) });
        let failed = |why: String| {
            let why = format!("the model `{}` cannot be loaded: {why}", self.models[at].name);
            ApiError::new(StatusCode::SERVICE_UNAVAILABLE, why)
        };
        started.await.map_err(|error| error.to_string()).and_then(|started| started).map_err(failed)
    }

    /// Waits until there is memory for a model.
    async fn taken(self: &Arc<Self>, at: usize) -> (Lease, Vec<Arc<ProcessSlot>>) {
        loop {
            let freed = self.freed.notified();
            if let Some(taken) = self.take(at) {
                return taken;
            }
            freed.await;
        }
    }

    /// Returns a slot for a model, and the slots that must end first. `None` if there is no memory for the model.
    fn take(self: &Arc<Self>, at: usize) -> Option<(Lease, Vec<Arc<ProcessSlot>>)> {
        let mut slots = lock(&self.slots);
        for slot in &mut *slots {
            slot.take_if(|slot| slot.runs() == Some(false));
        }
        let mut ended = Vec::new();
        // If the file of a model was replaced, the model's process ends once no request uses it any more, and the new
        // file is loaded.
        let file = stamp(&self.models[at].path);
        let is_old = |slot: &mut Arc<ProcessSlot>| slot.file != file && slot.leases.load(Ordering::Relaxed) == 0;
        ended.extend(slots[at].take_if(is_old));
        if slots[at].is_none() {
            let held = slots.iter().zip(&self.models).filter(|(slot, _)| slot.is_some());
            let mut needed = self.models[at].bytes + held.map(|(_, model)| model.bytes).sum::<usize>();
            let idle = slots.iter().enumerate().filter_map(|(at, slot)| {
                let slot = slot.as_ref().filter(|slot| slot.leases.load(Ordering::Relaxed) == 0)?;
                Some((*lock(&slot.used), at))
            });
            let mut idle: Vec<_> = idle.collect();
            idle.sort_unstable();
            let count = idle.iter().take_while(|(_, at)| {
                let is_over = needed > self.budget;
                needed -= if is_over { self.models[*at].bytes } else { 0 };
                is_over
            });
            let count = count.count();
            if needed > self.budget {
                return None;
            }
            ended.extend(idle[..count].iter().filter_map(|(_, at)| slots[*at].take()));
            let (process, used) = (OnceCell::new(), Instant::now().into());
            slots[at] = Some(Arc::new(ProcessSlot { process, leases: 0.into(), used, idle: None.into(), file }));
        }
        let slot = slots[at].clone()?;
        slot.leases.fetch_add(1, Ordering::Relaxed);
        Some((Lease { models: self.clone(), at, slot }, ended))
    }

    /// Unloads a model if no request uses it. Returns true if the model was loaded and is now unloaded.
    pub async fn unload(&self, at: usize) -> bool {
        let is_idle = |slot: &mut Arc<ProcessSlot>| slot.leases.load(Ordering::Relaxed) == 0;
        let slot = lock(&self.slots)[at].take_if(is_idle);
        let Some(slot) = slot else { return false };
        slot.end().await;
        self.freed.notify_waiters();
        true
    }

    /// Unloads a model if no request has used it for this time.
    async fn unload_idle(self: Arc<Self>, at: usize, idle: Duration) {
        tokio::time::sleep(idle).await;
        let is_unused = lock(&self.slots)[at].as_ref().is_some_and(|slot| lock(&slot.used).elapsed() >= idle);
        if is_unused {
            self.unload(at).await;
        }
    }

    /// Starts the process of a model, and waits until the model is loaded.
    async fn start(&self, at: usize) -> Result<Process> {
        let ModelEntry { name, path, .. } = &self.models[at];
        // If an option is repeated, its last value counts. So these options come last and override those in
        // `command`.
        let (program, arguments) = &self.command;
        let mut child = Command::new(program)
            .args(arguments)
            .args([OsStr::new("-m"), path.as_os_str(), OsStr::new("--alias"), OsStr::new(name)])
            .args(["--host", "127.0.0.1", "--port", "0", "--within"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        // Standard input stays open, because the model's process ends when its standard input is closed. It therefore
        // also ends when this process is killed.
        if let Some(input) = &mut child.stdin {
            input.write_all(format!("{}\n", self.token).as_bytes()).await?;
        }
        let mut line = String::new();
        if let Some(out) = child.stdout.take() {
            BufReader::new(out).read_line(&mut line).await?;
        }
        let port = line.trim().rsplit(':').next().and_then(|port| port.parse().ok());
        let port = port.context("its process has ended, and has written why to the log")?;
        Ok(Process { child: Some(child).into(), port })
    }
}

impl ProcessSlot {
    /// Returns false if the process has ended; `None` if it has not been started yet.
    fn runs(&self) -> Option<bool> {
        let process = self.process.get()?.as_ref().ok();
        Some(process.is_some_and(|process| {
            lock(&process.child).as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)))
        }))
    }

    /// Ends the process, and waits until its memory is free.
    async fn end(&self) {
        let child = self.process.get().and_then(|process| lock(&process.as_ref().ok()?.child).take());
        if let Some(mut child) = child {
            let _ = child.kill().await;
        }
    }
}

impl Lease {
    /// Ends the processes in `ended`, and starts the model's process unless another request has started it.
    async fn start(&self, ended: Vec<Arc<ProcessSlot>>) -> std::result::Result<(), String> {
        let start = || async {
            for slot in &ended {
                slot.end().await;
            }
            self.models.start(self.at).await.map_err(|error| error.to_string())
        };
        // All waiting requests share one start, so that they also share its error. The next request starts the process
        // again.
        let started = self.slot.process.get_or_init(start).await;
        started.as_ref().map(|_| ()).map_err(String::clone)
    }

    /// The port of the model's process on this machine.
    pub fn port(&self) -> u16 {
        self.slot.process.get().and_then(|process| Some(process.as_ref().ok()?.port)).unwrap_or(0)
    }

    /// The secret by which the model's process knows this one.
    pub fn token(&self) -> &str {
        &self.models.token
    }

    pub fn name(&self) -> &str {
        &self.models.models[self.at].name
    }

    /// Sets the time without requests after which the model is unloaded; `None` keeps the model loaded.
    pub fn keep_for(&self, idle: Option<Duration>) {
        *lock(&self.slot.idle) = Some(idle);
    }
}
