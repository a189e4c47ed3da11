//! Measures the limits of this machine: the speed of reading the weights, and of multiplying integers.

use std::hint::black_box;
use std::time::Instant;

use arenite::{Gguf, Kernels};
use serde::Serialize;

/// The limits of this machine with a number of threads.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Limits {
    /// Speed of plain reading from the pages of the weights, in gigabytes per second. This is the limit of decoding.
    pub read_gb_s: f64,
    /// Number of multiply-adds per second, in billions, of the instruction that the kernels use. This is the limit of
    /// prefill. `None` if the kernels have no such instruction.
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

    /// Returns `rate`, which is in products of bytes per second as `traffic::total` counts them, as a share of the limit.
    /// `None` if there is no limit or there are no products.
    pub fn share_of_products(&self, rate: f64) -> Option<f64> {
        self.integer_gmul_s.filter(|_| rate > 0.0).map(|peak| rate / (peak * 1e9))
    }
}

/// Returns the best rate of several tries. `run` does the work of one thread and returns the amount of work.
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

/// Measures how fast this machine reads the model: returns the number of bytes per second if each thread reads a part
/// of each tensor.
fn reading(gguf: &Gguf<'_>, threads: usize) -> f64 {
    /// Minimum number of bytes to read. A small model is read several times, so that the time for starting the threads
    /// does not matter.
    const LEAST: usize = 256 << 20;
    /// Bytes that fit the first-level cache. This is no multiple of a page, because the processor would take loads and stores
    /// at the same places of two pages for dependent.
    const CACHED: usize = 4096 - 256;
    let data: Vec<&[u8]> = gguf.tensors().map(|tensor| tensor.data).collect();
    let times = LEAST.div_ceil(data.iter().map(|data| data.len()).sum::<usize>().max(1));
    best(threads, |thread| {
        let (mut bytes, mut cached) = (0, [0; CACHED]);
        for data in (0..times).flat_map(|_| &data) {
            let size = data.len().div_ceil(threads.max(1)).next_multiple_of(64).max(64);
            let part = data.chunks(size).nth(thread).unwrap_or_default();
            // Copies to memory that stays in the cache are as fast as plain reads at any optimization level.
            for part in part.chunks(CACHED) {
                if let Some(cached) = cached.get_mut(..part.len()) {
                    cached.copy_from_slice(part);
                }
                black_box(&mut cached);
            }
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
