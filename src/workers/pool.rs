//! A thread pool for hundreds of short jobs in succession.
//!
//! A forward pass forks and joins about six times per layer, for a few microseconds of work each. An idle thread
//! therefore polls for the next job for a short while, then yields its core, and finally sleeps until it is woken.
//!
//! The caller does not wait for threads to start. The caller runs the job itself until no chunks are left (see
//! [`Workers`]). No thread can join the job after that, and the caller waits only for the threads that have joined. A
//! thread whose core runs another program misses the job.
//!
//! Jobs allocate nothing.
#![allow(unsafe_code)] // used in `Shared::join`: the type system cannot express that a job outlives its use by threads

use core::cell::Cell;
use core::fmt::Debug;
use core::mem;
use core::time::Duration;
use std::format;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::vec::Vec;

use super::Workers;
use super::parts::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering, fence};
use super::parts::thread::{self, JoinHandle};
use super::parts::{Instant, hint};

/// Time for which a thread polls for the next job before it yields. It is longer than the gaps between jobs of one
/// token (1 to 20 microseconds), so that the next job finds the thread awake.
const SPIN: Duration = Duration::from_micros(50);
/// Time for which a thread yields before it sleeps. It is longer than the time for sampling a token, so that the first
/// job of the next token need not wake the thread.
const LINGER: Duration = Duration::from_micros(500);
/// Time for which a thread of the pool runs jobs before it yields its core. The thread yields between two jobs, or
/// between two chunks if another program uses the core. Otherwise the system would interrupt the thread in the middle
/// of a chunk (Linux does so after 2 to 4 ms), and the caller would wait for this chunk for several milliseconds.
const TURN: Duration = Duration::from_millis(2);
/// If a yield takes longer than this, it is assumed that another program has used the core.
const ABSENCE: Duration = Duration::from_micros(100);

std::thread_local! {
    /// The current turn of this thread (see [`Turn`]); `None` in threads that do not belong to a pool.
    static TURN_OF_THREAD: Cell<Option<Turn>> = const { Cell::new(None) };
}

/// A period in which a thread runs jobs without yielding its core.
#[derive(Clone, Copy)]
struct Turn {
    began: Instant,
    /// True if another program used the core while the thread yielded it before this turn.
    shared: bool,
}

impl Turn {
    /// Begins a turn of the thread that calls this, which has just started or was interrupted by a yield or by sleep.
    fn begin(shared: bool) {
        TURN_OF_THREAD.set(Some(Self { began: Instant::now(), shared }));
    }

    /// Yields the core and begins a new turn.
    fn give_up() {
        let before = Instant::now();
        thread::yield_now();
        Self::begin(before.elapsed() > ABSENCE);
    }

    /// Yields the core if the turn is over.
    fn end() {
        if TURN_OF_THREAD.get().is_some_and(|turn| turn.began.elapsed() > TURN) {
            Self::give_up();
        }
    }
}

/// Access to the scheduler of an operating system, for [`Pool::on`]: finds the core of a thread, and moves threads to
/// other cores.
pub trait Cores: Debug + Send + Sync {
    /// Number of the core on which the calling thread runs.
    fn current(&self) -> usize;

    /// Moves the calling thread to a core other than `core`, if there is one.
    fn leave(&self, core: usize);
}

/// A fixed number of threads, including the caller's thread. This type needs the feature `std`.
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
    /// Starts `count - 1` threads, or fewer if the system refuses to start more.
    pub fn new(count: usize) -> Self {
        Self::start(count, Shared::default())
    }

    /// Like [`new`](Self::new), but also moves a thread of the pool to another core if it would run a job on the
    /// caller's core. Without this, Linux often runs both threads on one core while another program uses the other
    /// cores.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[cfg(target_os = "linux")] {
    /// use arenite::workers::{Cores, Pool, Workers};
    ///
    /// unsafe extern "C" {
    ///     safe fn sched_getcpu() -> i32;
    ///     fn sched_setaffinity(thread: i32, bytes: usize, cores: *const u64) -> i32;
    /// }
    ///
    /// /// Linux, on at most 64 cores.
    /// #[derive(Debug)]
    /// struct Linux;
    ///
    /// impl Cores for Linux {
    ///     fn current(&self) -> usize {
    ///         usize::try_from(sched_getcpu()).unwrap_or(usize::MAX)
    ///     }
    ///
    ///     fn leave(&self, core: usize) {
    ///         let others = !1_u64.checked_shl(core as u32).unwrap_or(0);
    ///         // SAFETY: the function reads a set of 8 bytes. Thread 0 is the calling one.
    ///         unsafe { sched_setaffinity(0, size_of_val(&others), &others) };
    ///     }
    /// }
    ///
    /// assert_eq!(Pool::on(&Linux, 2).count(), 2);
    /// # }
    /// ```
    pub fn on(cores: &'static dyn Cores, count: usize) -> Self {
        Self::start(count, Shared { cores: Some(cores), ..Shared::default() })
    }

    fn start(count: usize, shared: Shared) -> Self {
        let shared = Arc::new(shared);
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
        // A nested job, or a second caller at the same time, runs without helpers, because the pool holds one job.
        if self.threads.is_empty() {
            return job();
        }
        // The workers' core is asked for before the pool is marked as taken. If this call panicked later, the pool
        // would stay taken.
        let core = self.shared.cores.map(Cores::current);
        if self.shared.taken.swap(true, Ordering::Acquire) {
            return job();
        }
        let open = Open::new(self, core, &job);
        job();
        drop(open);
        if self.shared.panicked.load(Ordering::Relaxed) {
            panic!("a worker panicked");
        }
    }

    fn should_leave(&self) -> bool {
        // A thread that has its core to itself yields only between jobs, because a thread that yields during a job
        // misses the rest of the job.
        TURN_OF_THREAD.get().is_some_and(|turn| turn.shared && turn.began.elapsed() > TURN)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

/// State shared by the threads.
#[derive(Debug, Default)]
#[repr(align(128))] // two cache lines of its own, because some processors prefetch lines in pairs
struct Shared {
    /// Number of the job, a bit that lets threads join ([`OPEN`]), and the number of threads that have joined
    /// ([`RUNNING`]).
    gate: AtomicUsize,
    /// The job, a `*const &(dyn Fn() + Sync)`; valid while the gate is open or threads are running the job.
    job: AtomicPtr<()>,
    sleeping: AtomicUsize,
    cores: Option<&'static dyn Cores>,
    /// The core on which the caller opened the latest job; set only if `cores` is `Some`.
    callers_core: AtomicUsize,
    /// True while a caller runs a job.
    taken: AtomicBool,
    panicked: AtomicBool,
    stop: AtomicBool,
}

/// Bits of the gate that count joined threads.
const RUNNING: usize = OPEN - 1;
/// Bit of the gate that lets threads join.
const OPEN: usize = MOST;
/// Increment of the job number in the gate.
const NEXT: usize = OPEN << 1;
/// Maximum number of threads, so that the count of joined threads never reaches the bit [`OPEN`].
const MOST: usize = 1 << 12;

/// A job that threads may join. Dropping this value closes the gate and waits for the joined threads. It is also
/// dropped if the caller's own call panics.
struct Open<'p>(&'p Shared);

impl<'p> Open<'p> {
    /// `core` is the caller's, if it matters.
    fn new(pool: &'p Pool, core: Option<usize>, job: &&(dyn Fn() + Sync)) -> Self {
        let shared = &*pool.shared;
        shared.panicked.store(false, Ordering::Relaxed);
        if let Some(core) = core {
            shared.callers_core.store(core, Ordering::Relaxed);
        }
        shared.job.store((&raw const *job).cast_mut().cast(), Ordering::Relaxed);
        // Plain stores suffice, because only one caller can be here and no thread runs the previous job any more.
        let number = shared.gate.load(Ordering::Relaxed) & !(OPEN | RUNNING);
        shared.gate.store(number.wrapping_add(NEXT) | OPEN, Ordering::Release);
        fence(Ordering::SeqCst); // pairs with the fence in `next`
        if shared.sleeping.load(Ordering::Relaxed) > 0 {
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
            // Spins first, because running threads usually finish soon, unless they were preempted.
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
    /// Main loop of a thread.
    fn work(&self) {
        let mut done = 0;
        Turn::begin(false);
        while let Some(gate) = self.next(done) {
            // The thread continues after a panic here, because the panic concerns only the choice of the core.
            if let Err(payload) = panic::catch_unwind(AssertUnwindSafe(|| self.leave_callers_core())) {
                mem::forget(payload);
            }
            if self.join(gate) {
                done = gate & !(OPEN | RUNNING);
            }
            Turn::end();
        }
    }

    /// Moves this thread if it is on the caller's core.
    fn leave_callers_core(&self) {
        if let Some(cores) = self.cores {
            let callers = self.callers_core.load(Ordering::Relaxed);
            if cores.current() == callers {
                cores.leave(callers);
            }
        }
    }

    /// Waits until the gate is open for another job than job number `done`, and returns the gate's value. `None` if the
    /// pool is being dropped.
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
            // Also checks `stop`, because on a system whose clock stands still, the time limit alone would never end
            // the wait.
            if waited > LINGER || self.stop.load(Ordering::Relaxed) {
                break;
            }
            if waited > SPIN {
                Turn::give_up();
            }
        }
        // The fences order the writes of both sides: either this thread sees that the next job's gate is open, or the
        // caller sees that this thread sleeps and wakes it. Otherwise the thread could sleep through a job.
        self.sleeping.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let gate = loop {
            let gate = self.gate.load(Ordering::Relaxed);
            if self.stop.load(Ordering::Relaxed) {
                break None;
            }
            if news(gate) {
                break Some(gate);
            }
            thread::park();
        };
        self.sleeping.fetch_sub(1, Ordering::Relaxed);
        Turn::begin(false);
        gate
    }

    /// Runs the job if the value of the gate is still `gate`. Returns true if the job was run.
    fn join(&self, gate: usize) -> bool {
        // The gate is open, so that a job is running. Its low bits count the threads that have joined; adding one keeps
        // the gate open, and keeps the caller of the job from returning.
        if self.gate.compare_exchange(gate, gate + 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return false;
        }
        let job = self.job.load(Ordering::Relaxed).cast::<&(dyn Fn() + Sync)>();
        // SAFETY: the pointer was stored before the gate was opened, and the exchange above has seen the open gate. The
        // pointer points to the argument of `run`, which borrows the job and neither returns nor unwinds before `Open`
        // is dropped. That drop waits until this thread is no longer counted, after the `fetch_sub` below.
        let job = unsafe { *job };
        if let Err(payload) = panic::catch_unwind(AssertUnwindSafe(job)) {
            self.panicked.store(true, Ordering::Relaxed);
            // The payload is not dropped, because dropping it runs code of the job. This code may panic again and skip
            // the line below, and the caller would then wait forever.
            mem::forget(payload);
        }
        self.gate.fetch_sub(1, Ordering::Release);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sums `0..n` with a job that divides itself.
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
    fn every_chunk_runs_once() {
        for count in [1, 2, 3, 8] {
            let pool = Pool::new(count);
            assert_eq!(pool.count(), count);
            for n in 0..2000 {
                assert_eq!(sum(&pool, n % 50), (n % 50) * (n % 50).saturating_sub(1) / 2);
            }
        }
    }

    #[test]
    fn threads_join_jobs() {
        let pool = Pool::new(2);
        for pause in [0, 2] {
            thread::sleep(Duration::from_millis(pause)); // the second time the thread is asleep
            let at_it = AtomicUsize::new(0);
            pool.run(&|| {
                // Each call of the job waits until both threads have called it.
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

    /// A panic payload whose `Drop` panics as well.
    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            assert!(thread::panicking(), "a payload");
        }
    }

    #[test]
    fn a_payload_that_panics_when_dropped_does_not_stop_the_pool() {
        let (pool, caller) = (Pool::new(2), thread::current().id());
        for _ in 0..20 {
            let has_panicked = AtomicBool::new(false);
            let caught = panic::catch_unwind(AssertUnwindSafe(|| {
                pool.run(&|| {
                    if thread::current().id() != caller {
                        has_panicked.store(true, Ordering::Relaxed);
                        panic::panic_any(Bomb);
                    }
                    let start = Instant::now();
                    while !has_panicked.load(Ordering::Relaxed) && start.elapsed() < Duration::from_secs(5) {
                        thread::yield_now();
                    }
                })
            }));
            assert!(caught.is_err());
            assert_eq!(sum(&pool, 10), 45);
        }
    }

    /// Panics in the first calls.
    #[derive(Debug)]
    struct Angry(AtomicUsize);

    impl Cores for Angry {
        fn current(&self) -> usize {
            assert!(self.0.fetch_add(1, Ordering::Relaxed) >= 20, "no core");
            0
        }

        fn leave(&self, _: usize) {}
    }

    #[test]
    fn a_panic_about_cores_neither_takes_the_pool_nor_ends_its_threads() {
        static ANGRY: Angry = Angry(AtomicUsize::new(0));
        let cores: &'static Angry = &ANGRY;
        let pool = Pool::on(cores, 2);
        let caller = thread::current().id();
        // Runs a job that waits for the pool's second thread, but not longer than `most`. Returns true if the second
        // thread has joined the job.
        let is_joined_within = |most: Duration| {
            let is_joined = AtomicBool::new(false);
            let _ = panic::catch_unwind(AssertUnwindSafe(|| {
                pool.run(&|| {
                    is_joined.fetch_or(thread::current().id() != caller, Ordering::Relaxed);
                    let start = Instant::now();
                    while !is_joined.load(Ordering::Relaxed) && start.elapsed() < most {
                        thread::yield_now();
                    }
                })
            }));
            is_joined.into_inner()
        };
        for _ in 0..100 {
            is_joined_within(Duration::ZERO); // the first of these panic
        }
        assert!(is_joined_within(Duration::from_secs(10)));
    }

    #[test]
    fn writes_of_threads_are_visible_afterwards() {
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

    /// Reports core 7 for every thread, and counts the calls of `leave`.
    #[derive(Debug, Default)]
    struct OneCore(AtomicUsize);

    impl Cores for OneCore {
        fn current(&self) -> usize {
            7
        }
        fn leave(&self, core: usize) {
            assert_eq!(core, 7);
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn threads_leave_the_callers_core() {
        let cores: &OneCore = std::boxed::Box::leak(std::boxed::Box::default());
        let pool = Pool::on(cores, 2);
        while cores.0.load(Ordering::Relaxed) == 0 {
            assert_eq!(sum(&pool, 10), 45);
            thread::yield_now();
        }
    }

    /// A thread whose core another program uses leaves a job when its turn is over. The calling thread does not leave.
    #[test]
    fn a_turn_on_a_shared_core_ends() {
        let pool = Pool::new(2);
        assert!(!pool.should_leave());
        let past = Instant::now().checked_sub(2 * TURN).unwrap();
        // A turn that begins in the future is not over yet, however slow the machine is.
        let future = Instant::now() + 10_000 * TURN;
        for (shared, began, leaves) in [(true, past, true), (false, past, false), (true, future, false)] {
            thread::scope(|scope| {
                scope.spawn(|| {
                    TURN_OF_THREAD.set(Some(Turn { began, shared }));
                    assert_eq!(pool.should_leave(), leaves, "{shared} {began:?}");
                });
            });
        }
    }
}
