//! Threads for tests: slow to start, and as many as one likes.

use std::thread;

use arenite::workers::Workers;

/// So many threads, started anew for every job.
pub struct Scoped(pub usize);

impl Workers for Scoped {
    fn count(&self) -> usize {
        self.0
    }

    fn run(&self, job: &(dyn Fn() + Sync)) {
        thread::scope(|scope| {
            for _ in 1..self.0 {
                scope.spawn(job);
            }
            job();
        });
    }
}
