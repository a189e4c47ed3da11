//! Measures the cost of a fork and join: `arenite::workers::Pool` beside rayon's fastest way.
//!
//! `empty` is a job without work; a late helper is not waited for. `both` is a job in which each thread waits for the
//! other, which measures how long a signal takes. `token` is 100 operations of 20 microseconds, 3 microseconds apart,
//! as in a forward pass: one thread takes 2.3 ms, two threads at best 1.3 ms.

use std::hint::{black_box, spin_loop};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use arenite::workers::{Pool, Serial, Workers};
use divan::Bencher;

fn main() {
    // `--report` is for the benchmark `kernels`, but `cargo bench` passes its arguments to every benchmark.
    if !std::env::args().any(|argument| argument == "--report") {
        divan::main();
    }
}

/// Rayon's `join`, called from a thread of its pool. From outside of the pool it takes ten times as long.
struct Rayon;

/// The pool that the calling thread belongs to; a thread cannot leave its pool.
static RAYON: OnceLock<rayon::ThreadPool> = OnceLock::new();

impl Workers for Rayon {
    fn count(&self) -> usize {
        2
    }
    fn run(&self, job: &(dyn Fn() + Sync)) {
        rayon::join(job, job);
    }
}

/// The workers of this name: two threads, or for "serial" only the calling thread.
fn threads(kind: &str) -> Box<dyn Workers> {
    match kind {
        "pool" => Box::new(Pool::new(2)),
        "rayon" => {
            RAYON.get_or_init(|| rayon::ThreadPoolBuilder::new().num_threads(2).use_current_thread().build().unwrap());
            Box::new(Rayon)
        }
        _ => Box::new(Serial),
    }
}

fn spin(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        spin_loop();
    }
}

#[divan::bench(args = ["pool", "rayon"])]
fn empty(bencher: Bencher<'_, '_>, kind: &str) {
    let workers = threads(kind);
    bencher.bench_local(|| workers.run(&|| ()));
}

#[divan::bench(args = ["pool", "rayon"])]
fn both(bencher: Bencher<'_, '_>, kind: &str) {
    let workers = threads(kind);
    bencher.bench_local(|| {
        let here = AtomicUsize::new(0);
        workers.run(&|| {
            here.fetch_add(1, Ordering::Relaxed);
            let start = Instant::now();
            while here.load(Ordering::Relaxed) < 2 && start.elapsed() < Duration::from_micros(200) {
                spin_loop();
            }
        });
    });
}

#[divan::bench(args = ["pool", "rayon", "serial"])]
fn token(bencher: Bencher<'_, '_>, kind: &str) {
    // A piece of work takes about 2.5 microseconds. All pieces have the same number of steps, so that a thread that
    // loses its core for a while still does the whole piece.
    let work =
        |steps: u64| (0..steps).fold(1u64, |x, i| x.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(black_box(i)));
    let start = Instant::now();
    black_box(work(1 << 20));
    let steps = (2.5e-6 / start.elapsed().as_secs_f64() * f64::from(1 << 20)) as u64;
    let workers = threads(kind);
    bencher.bench_local(|| {
        for _ in 0..100 {
            let next = AtomicUsize::new(0);
            workers.run(&|| {
                while next.fetch_add(1, Ordering::Relaxed) < 8 {
                    black_box(work(steps));
                }
            });
            spin(Duration::from_micros(3));
        }
    });
}
