//! Ctrl-C: the first asks the running command to finish, the second ends the process.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::output::INTERRUPTED;

static ASKED: AtomicBool = AtomicBool::new(false);

/// From here on Ctrl-C sets [`asked`] instead of killing the process.
///
/// Only commands that look at [`asked`] between tokens call this: one that waits for its
/// input is better killed.
pub fn listen() {
    // A handler that cannot be installed leaves Ctrl-C as it was, which is no reason to stop.
    let _ = ctrlc::set_handler(|| {
        if ASKED.swap(true, Ordering::Relaxed) {
            std::process::exit(i32::from(INTERRUPTED));
        }
    });
}

/// Whether Ctrl-C was pressed.
pub fn asked() -> bool {
    ASKED.load(Ordering::Relaxed)
}
