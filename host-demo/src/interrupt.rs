//! Ctrl-C. The first one asks a command that checks [`asked`] to finish. A second one, or the first one in any other
//! command, ends the process and removes unfinished files.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::new_file;
use crate::output::INTERRUPTED;

static LISTENING: AtomicBool = AtomicBool::new(false);
static ASKED: AtomicBool = AtomicBool::new(false);

/// Installs the Ctrl-C handler. Called once, at startup.
pub fn prepare() {
    // If this fails, Ctrl-C keeps its default behaviour.
    let _ = ctrlc::set_handler(|| {
        if !LISTENING.load(Ordering::Relaxed) || ASKED.swap(true, Ordering::Relaxed) {
            new_file::abandon_all();
            std::process::exit(i32::from(INTERRUPTED));
        }
    });
}

/// From now on Ctrl-C sets [`asked`].
///
/// Only commands that check [`asked`] between tokens call this. A command that waits for input should just end.
pub fn listen() {
    LISTENING.store(true, Ordering::Relaxed);
}

/// Returns whether Ctrl-C was pressed.
pub fn asked() -> bool {
    ASKED.load(Ordering::Relaxed)
}

/// Ctrl-C was handled: from now on it ends the process again.
pub fn answered() {
    LISTENING.store(false, Ordering::Relaxed);
    ASKED.store(false, Ordering::Relaxed);
}
