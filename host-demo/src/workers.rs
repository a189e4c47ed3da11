//! The one place that decides who does the work.

use arenite::workers::{Pool, Serial, Workers};

/// How many threads a command uses when it is not told: one for every core.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Workers for `threads` threads.
pub fn start(threads: usize) -> Box<dyn Workers> {
    if threads > 1 { Box::new(Pool::new(threads)) } else { Box::new(Serial) }
}
