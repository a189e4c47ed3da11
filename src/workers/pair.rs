//! Workers for two cores without an operating system.
#![allow(unsafe_code)] // one place, in `Helper::step`: the type system cannot say that a job outlives its use there

use core::ptr::{self, null_mut};

use super::Workers;
use super::parts::atomic::{AtomicBool, AtomicPtr, Ordering};
use super::parts::hint;

/// A job: each call takes chunks of the work until none is left.
type Job<'j> = &'j (dyn Fn() + Sync);

/// Uses the second core of a microcontroller as a worker: one core runs the engine, the other executes shares of its
/// jobs.
///
/// Only needs atomic loads and stores, so it works on the RP2040. The cores wait for each other by polling.
///
/// # Examples
///
/// ```
/// use arenite::workers::{Pair, Workers};
/// use core::sync::atomic::{AtomicU32, Ordering};
///
/// let mut pair = Pair::new(); // on a microcontroller: in a static
/// let (caller, helper) = pair.split();
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
    /// Points to the open job, a [`Job`] in the caller's stack frame; null if there is none.
    open: AtomicPtr<()>,
    /// True while the helper may access a job.
    inside: AtomicBool,
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
        Self { open: AtomicPtr::new(null_mut()), inside: AtomicBool::new(false) }
    }

    /// Returns a handle for each core. The exclusive borrow ensures that there is only one of each.
    pub fn split(&mut self) -> (Caller<'_>, Helper<'_>) {
        (Caller(self), Helper(self))
    }
}

impl Workers for Caller<'_> {
    fn count(&self) -> usize {
        2
    }

    fn run(&self, job: Job<'_>) {
        /// Closes the job and waits for the helper, also on a panic.
        struct Opened<'p>(&'p Pair);
        impl Drop for Opened<'_> {
            fn drop(&mut self) {
                self.0.open.store(null_mut(), Ordering::SeqCst);
                while self.0.inside.load(Ordering::SeqCst) {
                    hint::spin_loop();
                }
            }
        }
        let opened = Opened(self.0);
        self.0.open.store((&raw const job).cast_mut().cast(), Ordering::SeqCst);
        job();
        drop(opened);
    }
}

impl Helper<'_> {
    /// Runs the open job, if there is one; returns whether there was.
    pub fn step(&self) -> bool {
        let Pair { open, inside } = self.0;
        if open.load(Ordering::Relaxed).is_null() {
            return false;
        }
        // Announce first, then check again. If the job is still open then, its caller has not closed it yet and will
        // see `inside`, because all four accesses are sequentially consistent.
        inside.store(true, Ordering::SeqCst);
        let job = ptr::NonNull::new(open.load(Ordering::SeqCst));
        if let Some(job) = job {
            // SAFETY: `run` put it there, and does not return before `inside` is false again. There is only this helper.
            unsafe { (*job.cast::<Job<'_>>().as_ptr())() };
        }
        inside.store(false, Ordering::SeqCst);
        job.is_some()
    }

    /// Runs jobs forever.
    pub fn serve(&self) -> ! {
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

    /// Each of many short jobs runs once and has ended when `run` returns, because its borrows end then.
    #[test]
    fn jobs_end_before_run_returns() {
        let mut pair = Pair::new();
        let (caller, helper) = pair.split();
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
            // Repeat until the helper is in time.
            while helped.load(Ordering::Relaxed) == 0 {
                caller.run(&std::thread::yield_now);
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}
