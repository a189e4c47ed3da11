//! Creates the worker threads of all commands.

use arenite::workers::{Pool, Serial, Workers};

/// Default number of threads: one per core.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Workers for `threads` threads.
pub fn start(threads: usize) -> Box<dyn Workers + Send> {
    if threads > 1 { Box::new(Pool::new(threads)) } else { Box::new(Serial) }
}
