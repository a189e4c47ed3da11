//! Fork and join: the work of one operation, shared among threads that the caller owns.

mod pair;
#[cfg(feature = "std")]
mod pool;

/// What threads are made of. `tests/schedules` has the pool and the pair with others, which try the orders of what they do.
mod parts {
    pub use core::{hint, sync::atomic};
    #[cfg(feature = "std")]
    pub use std::{thread, time::Instant};
}

pub use pair::{Caller, Helper, Pair};
#[cfg(feature = "std")]
pub use pool::Pool;

/// Something that can run one job on several threads at once.
///
/// The job divides itself: every call of it takes pieces of the work until none is left. So an
/// implementation cannot make results wrong, only slow: calling the job once does all the work,
/// and a thread that is late finds nothing to do.
///
/// # Examples
///
/// Threads of the standard library, made anew for each job. (`Pool` keeps its own, with the feature `std`;
/// [`Pair`] is for two cores without an operating system.)
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
/// Then `session.with_workers(&Threads(3))`, of a plan with `Options::workers(3)`.
pub trait Workers: Sync {
    /// How many threads take part, the calling one included; at least 1.
    fn count(&self) -> usize;

    /// Calls `job` on up to [`count`](Self::count) threads, at least once, and returns when every
    /// call has returned.
    fn run(&self, job: &(dyn Fn() + Sync));
}

/// The calling thread alone: what a session uses that is not given others.
///
/// # Examples
///
/// ```
/// use arenite::workers::{Serial, Workers};
///
/// /// `None` where there is one core.
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
