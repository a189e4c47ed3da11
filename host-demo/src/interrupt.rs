//! Ctrl-C: the first asks the running command to finish, if it looks at [`asked`]; else, and the second time, the
//! process ends, and leaves no half-written file.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::new_file;
use crate::output::INTERRUPTED;

static LISTENING: AtomicBool = AtomicBool::new(false);
static ASKED: AtomicBool = AtomicBool::new(false);

/// Takes over Ctrl-C from the system; called once, first thing.
pub fn prepare() {
    // A handler that cannot be installed leaves Ctrl-C as it was, which is no reason to stop.
    let _ = ctrlc::set_handler(|| {
        if !LISTENING.load(Ordering::Relaxed) || ASKED.swap(true, Ordering::Relaxed) {
            new_file::abandon_all();
            std::process::exit(i32::from(INTERRUPTED));
        }
    });
}

/// From here on Ctrl-C sets [`asked`].
///
/// Only commands that look at [`asked`] between tokens call this: one that waits for its
/// input is better ended.
pub fn listen() {
    LISTENING.store(true, Ordering::Relaxed);
}

/// Whether Ctrl-C was pressed.
pub fn asked() -> bool {
    ASKED.load(Ordering::Relaxed)
}

/// Ctrl-C was answered, and ends the process again, as before [`listen`].
pub fn answered() {
    LISTENING.store(false, Ordering::Relaxed);
    ASKED.store(false, Ordering::Relaxed);
}
