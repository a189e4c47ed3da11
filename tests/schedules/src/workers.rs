//! The core's pool and pair, built on shuttle's threads and atomics.

use std::time::Duration;

pub mod parts {
    pub use super::Instant;
    pub use shuttle::{hint, sync::atomic, thread};
}

#[allow(dead_code)] // `serve`
#[path = "../../../src/workers/pair.rs"]
mod pair;
#[allow(dead_code)] // `on`
#[path = "../../../src/workers/pool.rs"]
mod pool;

pub use pair::Pair;
pub use pool::Pool;

/// A copy of the core's trait `Workers`.
#[allow(dead_code)] // `count` and `should_leave`
pub trait Workers: Sync {
    fn count(&self) -> usize;
    fn run(&self, job: &(dyn Fn() + Sync));
    fn should_leave(&self) -> bool {
        false
    }
}

/// A clock controlled by the schedule: a waiting thread polls, yields, or, mostly, goes to sleep.
#[derive(Clone, Copy)]
pub struct Instant;

impl Instant {
    pub fn now() -> Self {
        Self
    }

    pub fn elapsed(&self) -> Duration {
        use shuttle::rand::{Rng, thread_rng};
        Duration::from_micros(*[0, 100, 1000].get(thread_rng().gen_range(0..10)).unwrap_or(&1000))
    }
}
