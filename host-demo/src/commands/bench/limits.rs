//! Measures what this machine can do: reading the weights, and multiplying integers.

use std::hint::black_box;
use std::time::Instant;

use arenite::{Gguf, Kernels};
use serde::Serialize;

/// The limits of this machine with a number of threads.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Limits {
    /// Bytes per second of plain reading, from the pages of the weights: the limit of decoding.
    pub read_gb_s: f64,
    /// Multiply-adds per second of the instruction that the kernels use: the limit of prefill. `None` if the kernels
    /// have no such instruction.
    pub integer_gmul_s: Option<f64>,
}

/// Tries; the best one counts.
const TRIES: usize = 3;

impl Limits {
    pub fn measure(gguf: &Gguf<'_>, kernels: &Kernels, threads: usize) -> Self {
        Self {
            read_gb_s: reading(gguf, threads) * 1e-9,
            integer_gmul_s: multiplying(kernels, threads).map(|rate| rate * 1e-9),
        }
    }

    /// The share of integer products that `rate` products per second take; `None` without a limit or without products.
    pub fn share_of_products(&self, rate: f64) -> Option<f64> {
        self.integer_gmul_s.filter(|_| rate > 0.0).map(|peak| rate / (peak * 1e9))
    }
}

/// The best rate of several tries: `run` does a thread's part of the work and returns its amount.
fn best(threads: usize, run: impl Fn(usize) -> u64 + Sync) -> f64 {
    let tries = (0..TRIES).map(|_| {
        let start = Instant::now();
        let amount: u64 = std::thread::scope(|scope| {
            let run = &run;
            let all: Vec<_> = (0..threads.max(1)).map(|thread| scope.spawn(move || run(thread))).collect();
            all.into_iter().map(|thread| thread.join().unwrap_or(0)).sum()
        });
        amount as f64 / start.elapsed().as_secs_f64()
    });
    tries.fold(0.0, f64::max)
}

/// Bytes per second of reading all tensors in place, a part of each by each thread.
fn reading(gguf: &Gguf<'_>, threads: usize) -> f64 {
    /// A small model is read several times, so that starting the threads does not count.
    const LEAST: usize = 256 << 20;
    let data: Vec<&[u8]> = gguf.tensors().map(|tensor| tensor.data).collect();
    let times = LEAST.div_ceil(data.iter().map(|data| data.len()).sum::<usize>().max(1));
    best(threads, |thread| {
        let mut bytes = 0;
        for data in (0..times).flat_map(|_| &data) {
            let size = data.len().div_ceil(threads.max(1)).next_multiple_of(64).max(64);
            let part = data.chunks(size).nth(thread).unwrap_or_default();
            let (words, _) = black_box(part).as_chunks::<32>();
            // Sums of four words, for which compilers use vectors.
            let sums = words.iter().fold([0u64; 4], |mut sums, chunk| {
                let (words, _) = chunk.as_chunks::<8>();
                sums.iter_mut().zip(words).for_each(|(sum, word)| *sum ^= u64::from_ne_bytes(*word));
                sums
            });
            black_box(sums);
            bytes += part.len() as u64;
        }
        bytes
    })
}

/// Multiply-adds per second.
fn multiplying(kernels: &Kernels, threads: usize) -> Option<f64> {
    const ROUNDS: u32 = 2_000_000;
    kernels.multiply_integers(1)?;
    Some(best(threads, |_| kernels.multiply_integers(ROUNDS).unwrap_or(0)))
}
