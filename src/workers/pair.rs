//! Workers for two cores without an operating system.
#![allow(unsafe_code)] // used in `Helper::step`: the type system cannot express that a job outlives its use there

use core::ptr::{self, null_mut};

use super::Workers;
use super::parts::atomic::{AtomicBool, AtomicPtr, Ordering, fence};
use super::parts::hint;

/// A job. Each call takes chunks of the work until no chunk is left.
type Job<'j> = &'j (dyn Fn() + Sync);

/// Uses the second core of a microcontroller as a worker: one core runs the engine, the other core executes shares of
/// the engine's jobs.
///
/// A pair uses only atomic loads, stores and fences, because the RP2040 has no compare-and-swap. The cores wait for
/// each other by polling.
///
/// If a job runs a second job on the same pair, the inner job runs on one core only, because the other core is busy
/// with the outer job.
///
/// # Examples
///
/// ```
/// use arenite::workers::{Pair, Workers};
/// use core::sync::atomic::{AtomicU32, Ordering};
///
/// let mut pair = Pair::new(); // on a microcontroller: in a static
/// let (caller, mut helper) = pair.split();
/// let left = AtomicU32::new(1000);
/// let done = AtomicU32::new(0);
/// std::thread::scope(|scope| {
///     scope.spawn(|| while done.load(Ordering::Relaxed) < 1000 { helper.step(); }); // the other core: `helper.serve()`
///     caller.run(&|| {
///         while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok() {
///             done.fetch_add(1, Ordering::Relaxed);
///         }
///     });
///     assert_eq!(done.load(Ordering::Relaxed), 1000);
/// });
/// ```
#[derive(Debug, Default)]
pub struct Pair {
    /// Points to the open job, a [`Job`] in the caller's stack frame; null if no job is open.
    open: AtomicPtr<()>,
    /// True while the helper may access a job.
    inside: AtomicBool,
    /// True if the helper's call of the open job panicked. (Without unwinding, the helper does not return from a
    /// panic.)
    panicked: AtomicBool,
}

/// Handle for the core that runs the engine.
#[derive(Debug)]
pub struct Caller<'p>(&'p Pair);

/// Handle for the core that helps.
#[derive(Debug)]
pub struct Helper<'p>(&'p Pair);

impl Pair {
    /// Creates a pair without a job.
    pub const fn new() -> Self {
        Self { open: AtomicPtr::new(null_mut()), inside: AtomicBool::new(false), panicked: AtomicBool::new(false) }
    }

    /// Returns a handle for each core. Borrows the pair exclusively, so that there is only one caller and one helper.
    pub fn split(&mut self) -> (Caller<'_>, Helper<'_>) {
        (Caller(self), Helper(self))
    }
}

impl Workers for Caller<'_> {
    fn count(&self) -> usize {
        2
    }

    /// # Panics
    ///
    /// If the job panicked on the helper, where panics unwind.
    fn run(&self, job: Job<'_>) {
        /// Closes the job and waits for the helper. This also happens on a panic, because the job is in the caller's
        /// stack frame.
        struct Opened<'p>(&'p Pair);
        impl Drop for Opened<'_> {
            fn drop(&mut self) {
                self.0.open.store(null_mut(), Ordering::Release);
                fence(Ordering::SeqCst); // pairs with the fence in `step`
                while self.0.inside.load(Ordering::Acquire) {
                    hint::spin_loop();
                }
            }
        }
        // Runs the job on this core only, because the helper is busy: the job is nested in another job (on either
        // core), or a different thread is using this caller.
        if self.0.inside.load(Ordering::Acquire) || !self.0.open.load(Ordering::Acquire).is_null() {
            return job();
        }
        self.0.panicked.store(false, Ordering::Relaxed);
        let opened = Opened(self.0);
        self.0.open.store((&raw const job).cast_mut().cast(), Ordering::Release);
        job();
        drop(opened);
        #[cfg(panic = "unwind")]
        if self.0.panicked.load(Ordering::Relaxed) {
            panic!("the job panicked on the helper");
        }
    }
}

impl Helper<'_> {
    /// Runs the open job, if there is one. Returns true if a job was run.
    ///
    /// Threads cannot share a helper:
    ///
    /// ```compile_fail,E0499
    /// # use arenite::workers::Pair;
    /// let mut pair = Pair::new();
    /// let (_, mut helper) = pair.split();
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| helper.step());
    ///     scope.spawn(|| helper.step());
    /// });
    /// ```
    pub fn step(&mut self) -> bool {
        /// Releases the caller. This also happens if the job unwinds, because otherwise the caller would wait for this
        /// core forever.
        struct Inside<'p>(&'p Pair, bool);
        impl Drop for Inside<'_> {
            fn drop(&mut self) {
                let Self(pair, finished) = self;
                if !*finished {
                    pair.panicked.store(true, Ordering::Relaxed);
                }
                pair.inside.store(false, Ordering::Release);
            }
        }
        let Pair { open, inside, .. } = self.0;
        if open.load(Ordering::Relaxed).is_null() {
            return false;
        }
        // Announces the helper first, then checks again that the job is open. Each core stores its own flag, passes a
        // fence and loads the flag of the other core, so at least one core sees the store of the other core: this core
        // sees that the job is closed, or the caller sees `inside`. Fences are needed because some emulators let a
        // sequentially consistent load pass an earlier store.
        inside.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let mut guard = Inside(self.0, false);
        let job = ptr::NonNull::new(open.load(Ordering::Acquire));
        if let Some(job) = job {
            // SAFETY: `run` stored a pointer to its argument. It neither returns nor unwinds before it has cleared this
            // pointer and has then seen that `inside` is false. This is the only helper of the pair (`split` borrows it
            // mutably), and `&mut self` makes this the only call of `step`, so nobody else resets `inside` meanwhile.
            unsafe { (*job.cast::<Job<'_>>().as_ptr())() };
        }
        guard.1 = true;
        job.is_some()
    }

    /// Runs jobs forever.
    pub fn serve(&mut self) -> ! {
        loop {
            if !self.step() {
                hint::spin_loop();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use core::sync::atomic::AtomicUsize;

    /// Every chunk of many short jobs runs once. Every job has ended when `run` returns, because the data that the job
    /// borrows may end then.
    #[test]
    fn jobs_end_before_run_returns() {
        let mut pair = Pair::new();
        let (caller, mut helper) = pair.split();
        let stop = AtomicBool::new(false);
        let helped = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    if helper.step() {
                        helped.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
            for round in 0..2000usize {
                let next = AtomicUsize::new(0);
                let places: [AtomicUsize; 16] = core::array::from_fn(|_| AtomicUsize::new(0));
                caller.run(&|| {
                    while let Some(place) = places.get(next.fetch_add(1, Ordering::Relaxed)) {
                        place.fetch_add(round + 1, Ordering::Relaxed);
                    }
                });
                assert!(places.iter().all(|place| place.load(Ordering::Relaxed) == round + 1));
            }
            // Repeats until the helper has joined a job.
            while helped.load(Ordering::Relaxed) == 0 {
                caller.run(&std::thread::yield_now);
            }
            stop.store(true, Ordering::Relaxed);
        });
    }

    /// A job that runs another job on both cores terminates.
    #[test]
    fn jobs_within_jobs() {
        let mut pair = Pair::new();
        let (caller, mut helper) = pair.split();
        let (stop, inner) = (AtomicBool::new(false), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    _ = helper.step()
                }
            });
            let here = AtomicUsize::new(0);
            caller.run(&|| {
                here.fetch_add(1, Ordering::SeqCst);
                while here.load(Ordering::SeqCst) < 2 {
                    std::thread::yield_now(); // until both cores run it
                }
                caller.run(&|| _ = inner.fetch_add(1, Ordering::SeqCst));
            });
            stop.store(true, Ordering::Relaxed);
        });
        assert!(inner.into_inner() >= 2); // the helper may come back to the open job
    }

    /// A job that panics on the helper panics in the caller instead of blocking the caller.
    #[test]
    fn a_panic_on_the_helper_reaches_the_caller() {
        use std::panic::{AssertUnwindSafe, catch_unwind};
        let mut pair = Pair::new();
        let (caller, mut helper) = pair.split();
        let caller_thread = std::thread::current().id();
        let here = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| while catch_unwind(AssertUnwindSafe(|| helper.step())).is_ok_and(|helped| !helped) {});
            let run = || {
                caller.run(&|| {
                    if std::thread::current().id() != caller_thread {
                        here.store(1, Ordering::SeqCst);
                        panic!("a job");
                    }
                    while here.load(Ordering::SeqCst) == 0 {
                        std::thread::yield_now();
                    }
                })
            };
            assert!(catch_unwind(AssertUnwindSafe(run)).is_err());
        });
    }
}
