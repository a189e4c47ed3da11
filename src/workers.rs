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

    /// Called after each part of a large operation that runs on the calling thread only. A program without an operating
    /// system can do other work here: see [`Paced`]. The default implementation does nothing.
    fn pause(&self) {}

    /// Returns the number of parts into which a matrix product of `work` multiplications is divided, if it has enough
    /// rows: a part has at least 16. The default implementation returns 1 for a single thread, and otherwise four for
    /// each thread, so that a thread can take parts of another one that is slow or late. (With two or four, products are
    /// equally fast; with one, they are 2 or 3 % faster as long as no other program needs a core.)
    fn parts(&self, work: usize) -> usize {
        let _ = work;
        let count = self.count();
        if count > 1 { count.saturating_mul(4) } else { 1 }
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

    // As by default, but without a second call.
    fn parts(&self, _: usize) -> usize {
        1
    }
}

/// Runs jobs on the calling thread only, and calls a function of the program between their parts. The function may poll
/// a button, feed a watchdog, or move samples out of a buffer, where steps of a layer
/// ([`Pass::step`](crate::engine::Pass::step)) are too long.
///
/// # Examples
///
/// ```
/// use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
///
/// use arenite::workers::Paced;
/// use arenite::{Gguf, Line, Model, Options, Plan, Session};
///
/// # let file = std::fs::read("tests/fixtures/jina_bert_v2/model.gguf").unwrap();
/// # let gguf = Gguf::parse(&file)?;
/// # let model = Model::new(&gguf)?;
/// # let plan = Plan::new(&gguf, Options::new().context(32).batch(1))?;
/// # let mut workspace = vec![Line::ZERO; plan.workspace.div_ceil(64)];
/// # let mut kv = vec![Line::ZERO; plan.kv.div_ceil(64)];
/// static POLLS: AtomicUsize = AtomicUsize::new(0);
/// let workers = Paced::new(20_000, || _ = POLLS.fetch_add(1, Relaxed));
/// let mut session = Session::new(&model, plan, Line::bytes_mut(&mut workspace), Line::bytes_mut(&mut kv))?;
/// session = session.with_workers(&workers);
/// let mut buffer = vec![0.0; model.spec().embedding_buffer()];
/// session.embed(&[5, 6, 7], &mut buffer)?;
/// assert!(POLLS.load(Relaxed) >= 2 * 3 * model.spec().layers); // in a small model, after each step
/// # Ok::<(), arenite::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Paced<F> {
    most: usize,
    poll: F,
}

impl<F: Fn() + Sync> Paced<F> {
    /// Calls `poll` after parts of at most `most` multiplications, which take 1.4 to 3 instructions each on a
    /// Cortex-M4F. Attention counts as one part.
    pub const fn new(most: usize, poll: F) -> Self {
        Self { most, poll }
    }
}

impl<F: Fn() + Sync> Workers for Paced<F> {
    fn count(&self) -> usize {
        1
    }

    fn run(&self, job: &(dyn Fn() + Sync)) {
        job();
    }

    fn pause(&self) {
        (self.poll)();
    }

    fn parts(&self, work: usize) -> usize {
        work.div_ceil(self.most.max(1))
    }
}
