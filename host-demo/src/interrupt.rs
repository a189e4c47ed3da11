//! Handles the signals that end the process. The first Ctrl-C asks a command that checks [`asked`] to finish. In all
//! other cases, a signal removes unfinished files and ends the process: a second Ctrl-C, a Ctrl-C in any other command,
//! SIGTERM, and SIGHUP.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::output::INTERRUPTED;

static LISTENING: AtomicBool = AtomicBool::new(false);
static ASKED: AtomicBool = AtomicBool::new(false);
/// Function that removes unfinished files.
static CLEAN_UP: OnceLock<fn()> = OnceLock::new();

fn clean_up() {
    if let Some(clean_up) = CLEAN_UP.get() {
        clean_up();
    }
}

/// Installs the Ctrl-C handler. Called once, at startup.
pub fn prepare() {
    // If this fails, Ctrl-C keeps its default behaviour.
    let _ = ctrlc::set_handler(|| {
        if !LISTENING.load(Ordering::Relaxed) || ASKED.swap(true, Ordering::Relaxed) {
            clean_up();
            std::process::exit(i32::from(INTERRUPTED));
        }
    });
}

/// Makes Ctrl-C, SIGTERM and SIGHUP call `clean_up`, which removes unfinished files, before they end the process.
/// Writers of files call this function before they create a file; commands without files, such as the server, handle
/// the signals themselves.
pub fn clean_up_on_signals(clean_up: fn()) {
    CLEAN_UP.get_or_init(|| {
        // If this fails, the signals keep their default behaviour.
        let _ = watch_signals();
        clean_up
    });
}

#[cfg(unix)]
fn watch_signals() -> std::io::Result<()> {
    use tokio::signal::unix::{Signal, SignalKind, signal};

    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let context = runtime.enter();
    let mut term = signal(SignalKind::terminate())?;
    // If SIGHUP is ignored, do not listen to it, because `nohup` makes the process ignore it.
    let mut hangup: Option<Signal> = match is_ignored(SignalKind::hangup()) {
        true => None,
        false => Some(signal(SignalKind::hangup())?),
    };
    drop(context);
    let wait = move || {
        let ended_by = runtime.block_on(async {
            let hung_up = async {
                match &mut hangup {
                    Some(hangup) => hangup.recv().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = term.recv() => SignalKind::terminate(),
                _ = hung_up => SignalKind::hangup(),
            }
        });
        clean_up();
        std::process::exit(128 + ended_by.as_raw_value());
    };
    std::thread::Builder::new().name("signals".into()).spawn(wait)?;
    Ok(())
}

/// Returns true if the signal was already ignored when the process started. Returns false on systems other than Linux.
#[cfg(unix)]
fn is_ignored(kind: tokio::signal::unix::SignalKind) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    ignored.is_some_and(|ignored| ignored >> (kind.as_raw_value() - 1) & 1 == 1)
}

#[cfg(not(unix))]
fn watch_signals() -> std::io::Result<()> {
    Ok(())
}

/// Makes Ctrl-C set [`asked`] instead of ending the process.
///
/// A command calls this function only while it checks [`asked`] between tokens. While a command waits for input, Ctrl-C
/// should end the process.
pub fn listen() {
    LISTENING.store(true, Ordering::Relaxed);
}

/// Returns whether Ctrl-C was pressed.
pub fn asked() -> bool {
    ASKED.load(Ordering::Relaxed)
}

/// Makes Ctrl-C end the process again, after a command has handled it.
pub fn answered() {
    LISTENING.store(false, Ordering::Relaxed);
    ASKED.store(false, Ordering::Relaxed);
}
