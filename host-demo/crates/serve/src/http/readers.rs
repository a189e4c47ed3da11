//! Threads that read requests: JSON, templates, tokens and grammars. The client that has used the least time lately
//! comes first, and one thread serves only clients that have used little time. A slow request therefore mainly delays
//! other requests of its own client.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

/// Number of threads.
pub const READERS: usize = 2;
/// Maximum used time of a client that the first thread serves.
const LITTLE: Duration = Duration::from_millis(20);
/// Half-life of a client's used time.
const HALF: Duration = Duration::from_secs(5);
/// Maximum number of clients whose used time is counted, so that many addresses cannot fill the memory. If there are
/// more clients, those with little used time are removed.
const MOST_CLIENTS: usize = 1024;

/// The threads, which end when this value is dropped.
pub struct Readers(Arc<Queue>);

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Tasks in the order of their arrival.
    waiting: Vec<Task>,
    /// The client whose task runs on the thread for all.
    served: Option<u64>,
    used: HashMap<u64, Used>,
    is_closed: bool,
}

/// Work for a request of a client.
struct Task {
    client: u64,
    work: Box<dyn FnOnce() + Send>,
}

/// Time that a client had used at the moment `since`. The time is halved every [`HALF`].
#[derive(Clone, Copy)]
struct Used {
    time: Duration,
    since: Instant,
}

impl Used {
    fn now(self) -> Duration {
        self.time.mul_f64(0.5f64.powf(self.since.elapsed().as_secs_f64() / HALF.as_secs_f64()))
    }
}

impl State {
    fn used(&self, client: u64) -> Duration {
        self.used.get(&client).map_or(Duration::ZERO, |used| used.now())
    }

    /// Removes the waiting task of the client that has used the least time, if this time is at most `most`. The time
    /// may be longer than `most` if it is at most half of the time that was used by the client whose task runs on the
    /// thread for all clients.
    fn take(&mut self, most: Duration) -> Option<Task> {
        let most = most.max(self.served.map_or(Duration::ZERO, |client| self.used(client) / 2));
        let clients = self.waiting.iter().enumerate().map(|(at, task)| (self.used(task.client), at));
        let (_, at) = clients.filter(|(used, _)| *used <= most).min()?;
        Some(self.waiting.remove(at))
    }

    /// Adds `time` to a client's used time and subtracts `estimate`, which was added before.
    fn count(&mut self, client: u64, time: Duration, estimate: Duration) {
        if self.used.len() >= MOST_CLIENTS {
            self.used.retain(|_, used| used.now() > LITTLE / 10);
        }
        if self.used.len() < MOST_CLIENTS || self.used.contains_key(&client) {
            let time = (self.used(client) + time).saturating_sub(estimate);
            self.used.insert(client, Used { time, since: Instant::now() });
        }
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|broken| broken.into_inner())
    }

    /// Runs tasks of clients whose used time is at most `most`.
    fn run(&self, most: Duration) {
        let mut state = self.lock();
        while !state.is_closed {
            let Some(Task { client, work }) = state.take(most) else {
                state = self.changed.wait(state).unwrap_or_else(|broken| broken.into_inner());
                continue;
            };
            // Until the task has ended, the client is charged with an estimate. Otherwise, the other thread would take
            // the client's next request at the same time.
            state.count(client, 2 * LITTLE, Duration::ZERO);
            if most == Duration::MAX {
                state.served = Some(client);
            }
            drop(state);
            let began = Spent::now();
            // After a panic, the sender of the result is dropped, which informs the request.
            let _ = catch_unwind(AssertUnwindSafe(work));
            state = self.lock();
            state.count(client, began.elapsed(), 2 * LITTLE);
            if most == Duration::MAX {
                state.served = None;
            }
        }
    }
}

impl Readers {
    /// Starts the threads.
    pub fn start() -> Self {
        let queue = Arc::<Queue>::default();
        for most in [LITTLE, Duration::MAX] {
            let queue = queue.clone();
            std::thread::spawn(move || {
                if most > LITTLE {
                    yield_to_others();
                }
                queue.run(most);
            });
        }
        Self(queue)
    }

    /// Runs work on one of the threads. `None` if it panicked.
    pub async fn run<T: Send + 'static>(&self, client: u64, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let (sender, result) = oneshot::channel();
        let work = Box::new(move || {
            // Skip the work if the client has disconnected, because nobody receives the result.
            if !sender.is_closed() {
                let _ = sender.send(work());
            }
        });
        self.0.lock().waiting.push(Task { client, work });
        self.0.changed.notify_all();
        result.await.ok()
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.0.lock().is_closed = true;
        self.0.changed.notify_all();
    }
}

/// The time that this thread has spent. It is the thread's processor time if the system reports it, so that neither a
/// busy machine nor the priority of the thread has an effect.
struct Spent(Instant, Option<Duration>);

impl Spent {
    fn now() -> Self {
        Self(Instant::now(), processor_time())
    }

    fn elapsed(&self) -> Duration {
        let spent = self.1.zip(processor_time()).map(|(before, now)| now.saturating_sub(before));
        spent.unwrap_or_else(|| self.0.elapsed())
    }
}

/// The processor time of this thread.
#[cfg(target_os = "linux")]
fn processor_time() -> Option<Duration> {
    rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime).try_into().ok()
}

#[cfg(not(target_os = "linux"))]
fn processor_time() -> Option<Duration> {
    None
}

/// Lowers the priority of this thread below the priority of the threads that run the model and serve.
fn yield_to_others() {
    // On Linux, `None` means the calling thread. An error is ignored because the reader then only keeps the usual
    // priority.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::setpriority_process(None, 10);
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

    use super::*;

    #[test]
    fn slow_requests_delay_their_own_client() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let readers = Arc::new(Readers::start());
        let (is_open, begun) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        // The first two slow requests take some processor time each. All later slow requests wait until the small
        // requests were served.
        let run = |client: u64, is_slow: bool| {
            let (readers, is_open, begun) = (readers.clone(), is_open.clone(), begun.clone());
            let work = move || {
                if is_slow {
                    let began = Spent::now();
                    while began.elapsed() < Duration::from_millis(50) {}
                    let is_free = begun.fetch_add(1, Relaxed) < READERS;
                    while !is_free && !is_open.load(Relaxed) {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                }
            };
            tokio::spawn(async move { readers.run(client, work).await })
        };
        runtime.block_on(async {
            let slow: Vec<_> = (0..8).map(|_| run(1, true)).collect();
            tokio::time::sleep(Duration::from_millis(20)).await;
            for client in 2..6 {
                let small = run(client, false);
                tokio::time::timeout(Duration::from_secs(60), small).await.expect("a free reader").unwrap().unwrap();
            }
            is_open.store(true, Relaxed);
            for task in slow {
                task.await.unwrap().unwrap();
            }
            // A panic ends only its own request.
            assert!(readers.run(7, || panic!("on purpose")).await.is_none());
            assert_eq!(readers.run(7, || 3).await, Some(3));
        });
    }

    #[test]
    fn used_time_is_forgotten() {
        let mut state = State::default();
        (0..2000).for_each(|client| state.count(client, Duration::from_micros(1), Duration::ZERO));
        assert!(state.used.len() <= MOST_CLIENTS);
        state.used.insert(1, Used { time: 8 * LITTLE, since: Instant::now() - 4 * HALF });
        assert!(state.used(1) < LITTLE);
    }
}
