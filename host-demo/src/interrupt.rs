//! Ctrl-C: a command that can finish what it has begun is asked to, at the second one the process ends. Any other
//! command ends at once, with the same exit code.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::output::INTERRUPTED;

static LISTENED: AtomicBool = AtomicBool::new(false);
static ASKED: AtomicBool = AtomicBool::new(false);

/// From here on Ctrl-C is an end like others: nothing is killed by a signal.
pub fn install() {
    // A handler that cannot be installed leaves Ctrl-C as it was, which is no reason to stop.
    let _ = ctrlc::set_handler(|| {
        if !LISTENED.load(Ordering::Relaxed) || ASKED.swap(true, Ordering::Relaxed) {
            std::process::exit(i32::from(INTERRUPTED));
        }
    });
}

/// From here on the first Ctrl-C sets [`asked`], which the command looks at between tokens.
pub fn listen() {
    LISTENED.store(true, Ordering::Relaxed);
}

/// Whether Ctrl-C was pressed.
pub fn asked() -> bool {
    ASKED.load(Ordering::Relaxed)
}

/// Ctrl-C was answered: the next one is a first again.
pub fn forget() {
    ASKED.store(false, Ordering::Relaxed);
}
