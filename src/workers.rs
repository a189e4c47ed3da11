//! Fork and join: the work of one operation, shared among threads that the caller owns.

mod pair;
#[cfg(feature = "std")]
mod pool;

pub use pair::{Caller, Helper, Pair};
#[cfg(feature = "std")]
pub use pool::Pool;

/// Something that can run one job on several threads at once.
///
/// The job divides itself: every call of it takes pieces of the work until none is left. So an
/// implementation cannot make results wrong, only slow: calling the job once does all the work,
/// and a thread that is late finds nothing to do.
pub trait Workers: Sync {
    /// How many threads take part, the calling one included; at least 1.
    fn count(&self) -> usize;

    /// Calls `job` on up to [`count`](Self::count) threads, at least once, and returns when every
    /// call has returned.
    fn run(&self, job: &(dyn Fn() + Sync));
}

/// The calling thread alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct Serial;

impl Workers for Serial {
    fn count(&self) -> usize {
        1
    }

    fn run(&self, job: &(dyn Fn() + Sync)) {
        job();
    }
}
