//! Two cores without an operating system.
#![allow(unsafe_code)] // one place, in `Helper::step`: the type system cannot say that a job outlives its use there

use core::ptr::{self, null_mut};

use super::Workers;
use super::parts::atomic::{AtomicBool, AtomicPtr, Ordering};
use super::parts::hint;

/// What a job is: calls of it take pieces of the work until none is left.
type Job<'j> = &'j (dyn Fn() + Sync);

/// The second core of a microcontroller as a worker: one core runs the engine, the other one serves it.
///
/// Needs atomic loads and stores only, so it works on the RP2040, too. The cores wait for each other by looking.
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
    /// To the job that is open: a [`Job`] in the caller's frame; null for none.
    open: AtomicPtr<()>,
    /// Whether the helper may be looking at a job.
    inside: AtomicBool,
}

/// The core that runs the engine.
#[derive(Debug)]
pub struct Caller<'p>(&'p Pair);

/// The core that helps.
#[derive(Debug)]
pub struct Helper<'p>(&'p Pair);

impl Pair {
    /// Without a job.
    pub const fn new() -> Self {
        Self { open: AtomicPtr::new(null_mut()), inside: AtomicBool::new(false) }
    }

    /// A side for each core: there is one of each, as nobody else has the pair.
    pub fn split(&mut self) -> (Caller<'_>, Helper<'_>) {
        (Caller(self), Helper(self))
    }
}

impl Workers for Caller<'_> {
    fn count(&self) -> usize {
        2
    }

    fn run(&self, job: Job<'_>) {
        /// Closes the job and waits for the helper, however this ends.
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
    /// Takes part in the job that is open, if one is. Whether one was.
    pub fn step(&self) -> bool {
        let Pair { open, inside } = self.0;
        if open.load(Ordering::Relaxed).is_null() {
            return false;
        }
        // First say so, then look again. If the job is still open at the second look, its caller has yet to close it, and
        // will then see `inside`: all four accesses are of one order (SeqCst).
        inside.store(true, Ordering::SeqCst);
        let job = ptr::NonNull::new(open.load(Ordering::SeqCst));
        if let Some(job) = job {
            // SAFETY: `run` put it there, and does not return before `inside` is false again. There is only this helper.
            unsafe { (*job.cast::<Job<'_>>().as_ptr())() };
        }
        inside.store(false, Ordering::SeqCst);
        job.is_some()
    }

    /// Helps for ever.
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

    /// Each of many short jobs is done once, and is over when `run` returns: what it borrows changes at once.
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
            // Sooner or later the helper is in time.
            while helped.load(Ordering::Relaxed) == 0 {
                caller.run(&std::thread::yield_now);
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}
