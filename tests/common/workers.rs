//! Worker threads for tests: slow to start, and any number of them.

use std::thread;

use arenite::workers::Workers;

/// Starts this number of threads for every job.
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
