//! Runs the pool and the pair under shuttle, which chooses the next thread at each atomic access, randomly from a
//! fixed seed. Deadlocks, work that is done twice or never, and access to a job after `run` has returned end the
//! program.
//!
//! All accesses are taken as SeqCst. The thread sanitizer checks weaker orderings. The server's scheduler and the
//! pages of the cache have one thread.

mod workers;

use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicUsize as Plain, Ordering::Relaxed}; // invisible to shuttle

use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::sync::Barrier;
use shuttle::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use shuttle::{Config, Runner, thread};
use workers::{Pair, Pool, Workers};

/// Runs a job of `N` chunks. Each must be done once, and no worker may access the job afterwards.
fn pieces<const N: usize>(workers: &dyn Workers) {
    let next = AtomicUsize::new(0);
    let (done, inside) = ([const { Plain::new(0) }; N], Plain::new(0));
    workers.run(&|| {
        inside.fetch_add(1, Relaxed);
        while let Some(piece) = done.get(next.fetch_add(1, Ordering::Relaxed)) {
            piece.fetch_add(1, Relaxed);
        }
        inside.fetch_sub(1, Relaxed);
    });
    assert_eq!(inside.load(Relaxed), 0, "a worker still runs a job that is over");
    assert!(done.iter().all(|piece| piece.load(Relaxed) == 1), "every piece is done once");
}

/// Lets other threads run for a random time. Afterwards a worker may sleep, be about to sleep, or still poll.
fn pause() {
    (0..thread_rng().gen_range(0..200)).for_each(|_| thread::yield_now());
}

/// Tests [`Pair`], which is for two cores.
fn pair() {
    let mut pair = Pair::new();
    let (caller, mut helper) = pair.split();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                helper.step();
                thread::yield_now(); // otherwise the helper might find the same job forever
            }
        });
        pieces::<1>(&caller);
        pieces::<3>(&caller);
        pieces::<2>(&caller);
        stop.store(true, Ordering::Relaxed);
    });
}

/// Tests a pool whose threads sleep, are woken, and are finally stopped.
fn pool<const THREADS: usize>() {
    let pool = Pool::new(THREADS);
    pieces::<1>(&pool);
    pause();
    pieces::<4>(&pool);
    pieces::<2>(&pool);
    pause();
}

/// Tests a pool without work.
fn idle() {
    let _pool = Pool::new(3);
    pause();
}

/// Tests a job that returns only when both threads run it. The other thread may be asleep at first.
fn all_come() {
    let pool = Pool::new(2);
    for _ in 0..5 {
        pause();
        // (Polling would not suffice: shuttle may resume threads that nobody has woken while others can run.)
        let here = Barrier::new(2);
        pool.run(&|| _ = here.wait());
    }
}

/// Tests two callers, and a job that runs another job.
fn callers() {
    let pool = Pool::new(2);
    thread::scope(|scope| {
        scope.spawn(|| pieces::<2>(&pool));
        pieces::<2>(&pool);
        pool.run(&|| pieces::<1>(&pool));
    });
}

/// Tests a job that panics on every thread, and a job after it.
fn panics() {
    let pool = Pool::new(2);
    let caught = panic::catch_unwind(AssertUnwindSafe(|| pool.run(&|| panic::resume_unwind(Box::new("a job")))));
    assert!(caught.is_err());
    pieces::<2>(&pool);
}

fn main() {
    let runs = std::env::args().nth(1).map_or(Ok(5_000), |runs| runs.parse()).expect("a number of orders");
    let mut config = Config::new();
    config.stack_size = 1 << 17;
    config.silence_warnings = true;
    let models: [(&str, fn()); 7] = [
        ("pair", pair),
        ("pool of two", pool::<2>),
        ("pool of three", pool::<3>),
        ("idle pool", idle),
        ("all come", all_come),
        ("two callers", callers),
        ("panics", panics),
    ];
    for (name, model) in models {
        let mut orders = 0;
        let schedulers: [Box<dyn Scheduler + Send>; 2] =
            [Box::new(RandomScheduler::new_from_seed(1, runs)), Box::new(PctScheduler::new_from_seed(1, 4, runs))];
        for scheduler in schedulers {
            orders += Runner::new(scheduler, config.clone()).run(model);
        }
        println!("{name}: nothing found in {orders} orders");
    }
}
