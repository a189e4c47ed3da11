//! Counters of a scheduler, for `/metrics`.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Upper bounds of the buckets of every histogram. The values are seconds in some histograms, and tokens per second in
/// others.
const BOUNDS: [f64; 19] = [
    0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0,
    5000.0,
];

/// Counters for `/metrics`.
#[derive(Debug, Default)]
pub struct Counters {
    /// Number of requests without a complete answer.
    pub open: AtomicUsize,
    /// Number of requests of each client that do not have a complete answer yet.
    pub open_of: Mutex<HashMap<u64, usize>>,
    pub running: AtomicUsize,
    pub prompt_tokens: AtomicU64,
    pub cached_tokens: AtomicU64,
    /// Number of prompt tokens that were reused from other positions of conversations in the cache.
    pub reused_tokens: AtomicU64,
    pub answer_tokens: AtomicU64,
    pub passes: AtomicU64,
    /// Proposed tokens, and those that were right.
    pub drafted_tokens: AtomicU64,
    pub accepted_tokens: AtomicU64,
    pub requests: AtomicU64,
    pub free_pages: AtomicUsize,
    /// Seconds from a request to its first token.
    pub first_token: Histogram,
    /// Tokens per second of each answer. The first token of an answer is not counted.
    pub token_rate: Histogram,
    /// True if the server is shutting down and refuses new requests.
    pub stopping: AtomicBool,
    /// True if the server is shutting down and requests that were still open have used up their time. Their answers
    /// then end with [`STOPPED`](super::STOPPED).
    pub ended: AtomicBool,
}

/// A histogram for `/metrics`.
#[derive(Debug, Default)]
pub struct Histogram {
    /// Number of values in each bucket; values above all bounds count only in `count`.
    buckets: [AtomicU64; BOUNDS.len()],
    count: AtomicU64,
    /// Sum of all values in millionths.
    sum: AtomicU64,
}

impl Histogram {
    pub fn add(&self, value: f64) {
        if let Some(bucket) = BOUNDS.iter().position(|bound| value <= *bound) {
            self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        }
        self.sum.fetch_add((value * 1e6) as u64, Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the lines for `/metrics`.
    pub fn lines(&self, name: &str, help: &str) -> String {
        let mut text = format!("# HELP arenite_{name} {help}\n# TYPE arenite_{name} histogram\n");
        let (count, sum) = (self.count.load(Ordering::Relaxed), self.sum.load(Ordering::Relaxed));
        let mut below = 0;
        for (bound, bucket) in BOUNDS.iter().zip(&self.buckets) {
            below += bucket.load(Ordering::Relaxed);
            let _ = writeln!(text, "arenite_{name}_bucket{{le=\"{bound}\"}} {below}");
        }
        let _ = writeln!(text, "arenite_{name}_bucket{{le=\"+Inf\"}} {count}");
        let _ = writeln!(text, "arenite_{name}_sum {}\narenite_{name}_count {count}", sum as f64 / 1e6);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::Histogram;

    #[test]
    fn buckets_are_cumulative() {
        let histogram = Histogram::default();
        [0.004, 0.3, 0.4, 9000.0].into_iter().for_each(|value| histogram.add(value));
        let lines = histogram.lines("x", "y");
        for line in [
            "x_bucket{le=\"0.2\"} 1\n",
            "x_bucket{le=\"0.5\"} 3\n",
            "x_bucket{le=\"5000\"} 3\n",
            "{le=\"+Inf\"} 4\n",
            "x_count 4\n",
        ] {
            assert!(lines.contains(line), "{lines}");
        }
    }
}
