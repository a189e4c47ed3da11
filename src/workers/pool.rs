//! Threads for a session: made for hundreds of short jobs, one after another.
//!
//! A forward pass forks and joins some six times a layer, for a few microseconds of work each. So
//! a thread that has nothing to do looks for the next job for a short while, then offers its core
//! to others, and then sleeps until it is woken.
//!
//! The caller does not wait for anybody to begin. A job divides itself (see [`Workers`]), so when
//! the caller's own call has returned, everything has been taken: the gate closes, and only the
//! threads that are at it are waited for. A thread whose core is busy with something else simply
//! misses the job.
//!
//! Nothing is allocated for a job.
#![allow(unsafe_code)] // one place, in `Shared::join`: the type system cannot say that a job outlives its threads' use of it

use core::time::Duration;
use std::format;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::vec::Vec;

use super::Workers;
use super::parts::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use super::parts::thread::{self, JoinHandle};
use super::parts::{Instant, hint};

/// How long a thread looks for the next job before it offers its core to others: longer than the
/// pauses between the jobs of one token (1 to 20 microseconds).
const SPIN: Duration = Duration::from_micros(50);
/// How long it does that before it sleeps: longer than it takes to sample a token.
const LINGER: Duration = Duration::from_micros(500);

/// A number of threads, the caller's own included. With the feature `std`.
///
/// # Examples
///
/// ```
/// use arenite::workers::{Pool, Workers};
/// let pool = Pool::new(2);
/// assert_eq!(pool.count(), 2);
/// ```
#[derive(Debug)]
pub struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Pool {
    /// Starts `count - 1` threads. If the system refuses some, there are fewer.
    pub fn new(count: usize) -> Self {
        let shared = Arc::<Shared>::default();
        let start = |i| {
            let shared = shared.clone();
            thread::Builder::new().name(format!("worker {i}")).spawn(move || shared.work()).ok()
        };
        let threads = (1..count.min(MOST)).map_while(start).collect();
        Self { shared, threads }
    }
}

impl Workers for Pool {
    fn count(&self) -> usize {
        self.threads.len() + 1
    }

    fn run(&self, job: &(dyn Fn() + Sync)) {
        // A job within a job, or two callers at once: the second has no helpers.
        if self.threads.is_empty() || self.shared.taken.swap(true, Ordering::Acquire) {
            return job();
        }
        let open = Open::new(self, &job);
        job();
        drop(open);
        if self.shared.panicked.load(Ordering::Relaxed) {
            panic!("a worker panicked");
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

/// What the threads look at.
#[derive(Debug, Default)]
#[repr(align(128))] // no cache line shared with anything else, nor the one that is prefetched with it
struct Shared {
    /// The number of the job, whether threads may join ([`OPEN`]), and how many have ([`RUNNING`]).
    gate: AtomicUsize,
    /// The job, while the gate is open or threads are at it: a `*const &(dyn Fn() + Sync)`.
    job: AtomicPtr<()>,
    /// Threads that must be woken.
    sleeping: AtomicUsize,
    /// Whether somebody is running a job.
    taken: AtomicBool,
    panicked: AtomicBool,
    stop: AtomicBool,
}

/// Bits of the gate that count threads.
const RUNNING: usize = OPEN - 1;
/// The bit of the gate that lets threads in.
const OPEN: usize = MOST;
/// What the next job's number is further on.
const NEXT: usize = OPEN << 1;
/// The most threads.
const MOST: usize = 1 << 12;

/// A job that threads may join. Dropping it closes the gate and waits for those that did, also when
/// the caller's own call panics.
struct Open<'p>(&'p Shared);

impl<'p> Open<'p> {
    fn new(pool: &'p Pool, job: &&(dyn Fn() + Sync)) -> Self {
        let shared = &*pool.shared;
        shared.panicked.store(false, Ordering::Relaxed);
        shared.job.store((&raw const *job).cast_mut().cast(), Ordering::Relaxed);
        // The caller is the only one here, and nobody is at the last job any more.
        let number = shared.gate.load(Ordering::Relaxed) & !(OPEN | RUNNING);
        // In one order with `sleeping`: either a thread sees the gate or the caller sees it sleep.
        shared.gate.store(number.wrapping_add(NEXT) | OPEN, Ordering::SeqCst);
        if shared.sleeping.load(Ordering::SeqCst) > 0 {
            pool.threads.iter().for_each(|thread| thread.thread().unpark());
        }
        Self(shared)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        let Self(shared) = self;
        let mut gate = shared.gate.fetch_and(!OPEN, Ordering::AcqRel);
        let mut tries = 0;
        while gate & RUNNING != 0 {
            // Whoever still runs is about to finish, unless it has lost its core.
            if tries < 1000 {
                hint::spin_loop();
                tries += 1;
            } else {
                thread::yield_now();
            }
            gate = shared.gate.load(Ordering::Acquire);
        }
        shared.taken.store(false, Ordering::Release);
    }
}

impl Shared {
    /// What each thread does all its life.
    fn work(&self) {
        let mut done = 0;
        while let Some(gate) = self.next(done) {
            if self.join(gate) {
                done = gate & !(OPEN | RUNNING);
            }
        }
    }

    /// Waits for the gate to be open for another job than number `done`; `None` at the end.
    fn next(&self, done: usize) -> Option<usize> {
        let news = |gate: usize| gate & OPEN != 0 && gate & !(OPEN | RUNNING) != done;
        let start = Instant::now();
        loop {
            for _ in 0..32 {
                let gate = self.gate.load(Ordering::Relaxed);
                if news(gate) {
                    return Some(gate);
                }
                hint::spin_loop();
            }
            let waited = start.elapsed();
            if waited > LINGER {
                break;
            }
            if waited > SPIN {
                thread::yield_now();
            }
        }
        self.sleeping.fetch_add(1, Ordering::SeqCst);
        let gate = loop {
            let gate = self.gate.load(Ordering::SeqCst);
            if self.stop.load(Ordering::SeqCst) {
                break None;
            }
            if news(gate) {
                break Some(gate);
            }
            thread::park();
        };
        self.sleeping.fetch_sub(1, Ordering::SeqCst);
        gate
    }

    /// Takes part in the job, if the gate is still as it was.
    fn join(&self, gate: usize) -> bool {
        // An open gate: adding one more thread keeps it open, and the caller from returning.
        if self.gate.compare_exchange(gate, gate + 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return false;
        }
        let job = self.job.load(Ordering::Relaxed).cast::<&(dyn Fn() + Sync)>();
        // SAFETY: the pointer was stored before the gate was opened, which the exchange above has
        // seen. It points into `run`, which borrows the job and cannot return, nor unwind, before
        // `Open` has been dropped; and that waits until this thread is no longer counted, below.
        let job = unsafe { *job };
        if panic::catch_unwind(AssertUnwindSafe(job)).is_err() {
            self.panicked.store(true, Ordering::Relaxed);
        }
        self.gate.fetch_sub(1, Ordering::Release);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds up `0..n`, as jobs in the core divide themselves.
    fn sum(pool: &Pool, n: usize) -> usize {
        let (next, total) = (AtomicUsize::new(0), AtomicUsize::new(0));
        pool.run(&|| {
            loop {
                let i = next.fetch_add(1, Ordering::Relaxed);
                if i >= n {
                    return;
                }
                total.fetch_add(i, Ordering::Relaxed);
            }
        });
        total.into_inner()
    }

    #[test]
    fn every_piece_once() {
        for count in [1, 2, 3, 8] {
            let pool = Pool::new(count);
            assert_eq!(pool.count(), count);
            for n in 0..2000 {
                assert_eq!(sum(&pool, n % 50), (n % 50) * (n % 50).saturating_sub(1) / 2);
            }
        }
    }

    #[test]
    fn others_take_part() {
        let pool = Pool::new(2);
        for pause in [0, 2] {
            thread::sleep(Duration::from_millis(pause)); // the second time, the thread sleeps
            let at_it = AtomicUsize::new(0);
            pool.run(&|| {
                // Returns only when both threads have come.
                at_it.fetch_add(1, Ordering::Relaxed);
                while at_it.load(Ordering::Relaxed) < 2 {
                    thread::yield_now();
                }
            });
            assert_eq!(at_it.into_inner(), 2);
        }
    }

    #[test]
    fn jobs_within_jobs_and_from_two_threads() {
        let pool = Pool::new(3);
        let total = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        total.fetch_add(sum(&pool, 10), Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(total.load(Ordering::Relaxed), 1000 * 45);
        let calls = AtomicUsize::new(0);
        pool.run(&|| {
            assert_eq!(sum(&pool, 10), 45);
            calls.fetch_add(1, Ordering::Relaxed);
        });
        assert!((1..=3).contains(&calls.into_inner()));
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_lives_on() {
        let pool = Pool::new(2);
        for _ in 0..20 {
            let caught = panic::catch_unwind(AssertUnwindSafe(|| pool.run(&|| panic!("a job"))));
            assert!(caught.is_err());
            assert_eq!(sum(&pool, 10), 45);
        }
    }

    #[test]
    fn what_threads_write_is_there_afterwards() {
        let pool = Pool::new(4);
        for round in 0..500 {
            let cells: Vec<AtomicUsize> = (0..64).map(|_| AtomicUsize::new(0)).collect();
            let next = AtomicUsize::new(0);
            pool.run(&|| {
                while let Some(cell) = cells.get(next.fetch_add(1, Ordering::Relaxed)) {
                    cell.store(round, Ordering::Relaxed);
                }
            });
            assert!(cells.into_iter().all(|cell| cell.into_inner() == round));
        }
    }
}
