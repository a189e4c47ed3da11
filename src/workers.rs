//! Fork and join: shares the work of an operation among threads that the caller owns.

mod pair;
#[cfg(feature = "std")]
mod pool;

/// The synchronization primitives that `pool` and `pair` use. They are in one module, so that `tests/schedules` can
/// replace them by others, which try all orders of the threads' steps.
mod parts {
    pub use core::{hint, sync::atomic};
    #[cfg(feature = "std")]
    pub use std::{thread, time::Instant};
}

pub use pair::{Caller, Helper, Pair};
#[cfg(feature = "std")]
pub use pool::{Cores, Pool};

/// Runs a job on several threads at once.
///
/// The calls of a job divide the work among themselves: every call takes chunks of the work until none is left. An
/// implementation therefore cannot make results wrong, only slow: a single call does all the work, and a late thread
/// finds nothing to do.
///
/// # Examples
///
/// This implementation spawns threads of the standard library for each job. (`Pool`, with the feature `std`, keeps its
/// threads; [`Pair`] is for two cores without an operating system.)
///
/// ```
/// use arenite::workers::Workers;
///
/// struct Threads(usize);
///
/// impl Workers for Threads {
///     fn count(&self) -> usize {
///         self.0
///     }
///
///     fn run(&self, job: &(dyn Fn() + Sync)) {
///         std::thread::scope(|scope| (0..self.0).for_each(|_| drop(scope.spawn(job))));
///     }
/// }
/// # use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
/// # let calls = AtomicUsize::new(0);
/// # Threads(3).run(&|| drop(calls.fetch_add(1, Relaxed)));
/// # assert_eq!(calls.into_inner(), 3);
/// ```
///
/// Use this implementation with `session.with_workers(&Threads(3))` and a plan with `Options::workers(3)`.
pub trait Workers: Sync {
    /// Number of threads, including the calling thread; at least 1.
    fn count(&self) -> usize;

    /// Calls `job` on up to [`count`](Self::count) threads, at least once, and returns when all calls have returned.
    ///
    /// Threads must not keep each other from running, because a call of the job may wait for another call that has
    /// begun.
    fn run(&self, job: &(dyn Fn() + Sync));

    /// Returns true if the calling thread should return from the job instead of taking another chunk, because the
    /// system will soon interrupt the thread. The other threads then take the chunks that are left. The default
    /// implementation returns false.
    fn should_leave(&self) -> bool {
        false
    }
}

/// Runs jobs on the calling thread only. This is the default of a session.
///
/// # Examples
///
/// ```
/// use arenite::workers::{Serial, Workers};
///
/// /// `None` on a single core.
/// fn workers<'a>(others: Option<&'a dyn Workers>) -> &'a dyn Workers {
///     others.unwrap_or(&Serial)
/// }
/// assert_eq!(workers(None).count(), 1);
/// ```
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
