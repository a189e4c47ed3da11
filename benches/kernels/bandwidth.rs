//! Measures how fast this machine reads memory: `bandwidth [THREADS] [MIB] [ROUNDS]`. Prints one JSON object.
//!
//! Each thread reads its own memory; the result is the median of the rounds. This rate limits the speed of decoding.

use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use kernel_benches::read;

fn main() {
    let argument = |i, default| std::env::args().nth(i).map_or(default, |text| text.parse().expect("a number"));
    let (threads, mib, rounds) = (argument(1, 1), argument(2, 1024), argument(3, 7));
    let part = (mib << 20) / threads;
    let start = Barrier::new(threads + 1);
    let done = Barrier::new(threads + 1);
    let mut seconds: Vec<f64> = thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let memory = vec![1u8; part]; // not zeros, because the system need not back these with memory
                for _ in 0..rounds {
                    start.wait();
                    std::hint::black_box(read(&memory));
                    done.wait();
                }
            });
        }
        let round = |_| {
            start.wait();
            let time = Instant::now();
            done.wait();
            time.elapsed().as_secs_f64()
        };
        (0..rounds).map(round).collect()
    });
    seconds.sort_by(f64::total_cmp);
    let rate = (part * threads) as f64 / 1e9 / seconds[rounds / 2];
    println!("{{\"threads\": {threads}, \"bytes\": {}, \"gb_s\": {rate:.2}}}", part * threads);
}
