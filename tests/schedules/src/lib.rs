//! Nothing is done twice or left out, and nobody is at a job after `run` has returned, whichever thread goes on at each
//! step. The source is the core's: see `build.rs`.
#![allow(dead_code, unused_imports, missing_docs)]
#![cfg(test)]

mod workers {
    pub mod pool {
        include!(concat!(env!("OUT_DIR"), "/pool.rs"));
    }
    pub mod pair {
        include!(concat!(env!("OUT_DIR"), "/pair.rs"));
    }

    /// As in the core.
    pub trait Workers: Sync {
        fn count(&self) -> usize;
        fn run(&self, job: &(dyn Fn() + Sync));
    }
}

mod kernel {
    pub mod fork {
        include!(concat!(env!("OUT_DIR"), "/fork.rs"));
    }
    // What the file imports of its neighbours.
    pub mod job {
        pub const SUM_SPAN: usize = 16;
    }
    pub struct Form;
    pub struct Kernels;
}

use kernel::fork::{fork, fork_chunks};
use shuttle::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use shuttle::thread;
use workers::Workers;
use workers::pair::Pair;
use workers::pool::Pool;

/// Schedules that are tried: at random, and with few changes of thread at random places.
fn tried(test: impl Fn() + Send + Sync + 'static) {
    let count = std::env::var("ARENITE_SCHEDULES").ok().and_then(|count| count.parse().ok()).unwrap_or(2000);
    let test = std::sync::Arc::new(test);
    let again = test.clone();
    shuttle::check_random(move || again(), count);
    shuttle::check_pct(move || test(), count, 3);
}

/// Work that a job divides, as jobs in the core do; and whether its caller still waits for it.
struct Job {
    next: AtomicUsize,
    done: [AtomicUsize; 3],
    open: AtomicBool,
}

impl Job {
    fn run(workers: &dyn Workers) {
        let job =
            Self { next: AtomicUsize::new(0), done: [const { AtomicUsize::new(0) }; 3], open: AtomicBool::new(true) };
        workers.run(&|| {
            assert!(job.open.load(Ordering::SeqCst), "somebody is late");
            while let Some(done) = job.done.get(job.next.fetch_add(1, Ordering::SeqCst)) {
                done.fetch_add(1, Ordering::SeqCst);
            }
            assert!(job.open.load(Ordering::SeqCst), "somebody is at it yet");
        });
        job.open.store(false, Ordering::SeqCst);
        for done in job.done {
            assert_eq!(done.into_inner(), 1);
        }
    }
}

#[test]
fn a_pool_does_everything_once() {
    tried(|| {
        let pool = Pool::new(3);
        (0..3).for_each(|_| Job::run(&pool));
    });
}

#[test]
fn two_callers_of_a_pool() {
    tried(|| {
        let pool = shuttle::sync::Arc::new(Pool::new(2));
        let other = pool.clone();
        let thread = thread::spawn(move || Job::run(&*other));
        Job::run(&*pool);
        thread.join().unwrap();
    });
}

#[test]
fn a_job_within_a_job() {
    tried(|| {
        let pool = Pool::new(2);
        pool.run(&|| Job::run(&pool));
        Job::run(&pool);
    });
}

#[test]
fn a_pair_does_everything_once() {
    tried(|| {
        // Not a static: each schedule has one of its own, which its threads outlive.
        let pair: &'static mut Pair = Box::leak(Box::new(Pair::new()));
        let (caller, helper) = pair.split();
        let over: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
        let thread = thread::spawn(move || {
            while !over.load(Ordering::SeqCst) {
                helper.step();
                thread::yield_now();
            }
        });
        (0..3).for_each(|_| Job::run(&caller));
        over.store(true, Ordering::SeqCst);
        thread.join().unwrap();
    });
}

#[test]
fn shared_work_has_one_worker_for_each_piece_and_each_scratch() {
    tried(|| {
        let pool = Pool::new(3);
        let mut scratch = [0u8; 4];
        let taken = [const { AtomicBool::new(false) }; 2];
        let done = [const { AtomicUsize::new(0) }; 5];
        let start = scratch.as_ptr().addr();
        fork(&pool, 5, usize::MAX, &mut scratch, 2, &|item, scratch| {
            let slot = &taken[(scratch.as_ptr().addr() - start) / 2];
            assert!(scratch.len() == 2 && !slot.swap(true, Ordering::SeqCst), "two have one scratch");
            done[item].fetch_add(1, Ordering::SeqCst);
            assert!(slot.swap(false, Ordering::SeqCst));
        });
        assert!(done.iter().all(|done| done.load(Ordering::SeqCst) == 1));

        let mut data = [0u8; 7];
        fork_chunks(&pool, &mut data, 2, usize::MAX, &mut [(); 0], 0, |i, chunk, _| chunk.fill(i as u8 + 1));
        assert_eq!(data, [1, 1, 2, 2, 3, 3, 4]);
    });
}
