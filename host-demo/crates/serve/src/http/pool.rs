//! A limited amount of memory that clients share: each client has at most a share of it, and waits for its turn to get
//! more.

use std::collections::HashMap;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::http::error::{ApiError, Result};

/// Time over which the speed of a body is measured.
const WINDOW: Duration = Duration::from_secs(2);
/// A body of which nothing came for this time is refused.
const SILENCE: Duration = Duration::from_secs(10);

/// Memory for bodies of similar size.
pub struct Pool {
    /// Maximum number of bytes for the bodies of one client. A single body of a client may be larger.
    share: usize,
    /// If a body would take longer than this at its current speed, it gives way to the bodies of other clients.
    patience: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    free: usize,
    clients: HashMap<u64, Held>,
    /// In the order of their turns.
    waiting: Vec<Waiter>,
}

/// The memory of a client.
#[derive(Default)]
struct Held {
    bytes: usize,
    bodies: usize,
}

struct Waiter {
    client: u64,
    bytes: usize,
    /// Number of bodies that the client had when this body arrived. Waiting bodies are served in the order of this
    /// number, so clients with few bodies come first.
    rank: usize,
    grant: oneshot::Sender<Permit>,
}

/// Memory for a body until this value is dropped.
pub struct Permit {
    pool: Arc<Pool>,
    client: u64,
    bytes: usize,
}

impl Pool {
    /// A pool of `all` bytes.
    pub fn new(all: usize, share: usize, patience: Duration) -> Arc<Self> {
        Arc::new(Self { share, patience, state: State { free: all, ..State::default() }.into() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|broken| broken.into_inner())
    }

    /// Waits until there is room for `bytes` bytes. Clients that have fewer bodies come first.
    pub async fn acquire(self: &Arc<Self>, client: u64, bytes: usize) -> Option<Permit> {
        let (grant, granted) = oneshot::channel();
        {
            let mut state = self.state();
            state.waiting.retain(|waiter| !waiter.grant.is_closed());
            let before = state.waiting.iter().filter(|waiter| waiter.client == client).count();
            let rank = before + state.clients.get(&client).map_or(0, |held| held.bodies);
            let at = state.waiting.partition_point(|waiter| waiter.rank <= rank);
            state.waiting.insert(at, Waiter { client, bytes, rank, grant });
        }
        self.serve_waiting();
        granted.await.ok()
    }

    /// Gives free memory to those that wait.
    fn serve_waiting(self: &Arc<Self>) {
        loop {
            let Some(Waiter { client, bytes, grant, .. }) = self.state().next(self.share) else { return };
            // An error means that the client has disconnected. It is ignored because the permit is then dropped.
            let _ = grant.send(Permit { pool: self.clone(), client, bytes });
        }
    }

    /// Returns true if any other client waits for memory.
    fn is_wanted(&self, client: u64) -> bool {
        self.state().waiting.iter().any(|waiter| waiter.client != client && !waiter.grant.is_closed())
    }

    fn release(self: &Arc<Self>, client: u64, bytes: usize, bodies: usize) {
        {
            let mut state = self.state();
            state.free += bytes;
            if let Some(held) = state.clients.get_mut(&client) {
                (held.bytes, held.bodies) = (held.bytes - bytes, held.bodies - bodies);
                if held.bodies == 0 {
                    state.clients.remove(&client);
                }
            }
        }
        self.serve_waiting();
    }
}

impl State {
    /// Takes memory for the first waiting body whose client has not used up its share. Bodies behind this body wait
    /// even if there is room for them, because a large body would otherwise have to wait for all of them.
    fn next(&mut self, share: usize) -> Option<Waiter> {
        self.waiting.retain(|waiter| !waiter.grant.is_closed());
        let may =
            |waiter: &Waiter| self.clients.get(&waiter.client).is_none_or(|held| held.bytes + waiter.bytes <= share);
        let at = self.waiting.iter().position(may)?;
        self.free = self.free.checked_sub(self.waiting[at].bytes)?;
        let waiter = self.waiting.remove(at);
        let held = self.clients.entry(waiter.client).or_default();
        (held.bytes, held.bodies) = (held.bytes + waiter.bytes, held.bodies + 1);
        Some(waiter)
    }
}

impl Permit {
    /// Number of bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Gives back all but `bytes`.
    pub fn shrink(&mut self, bytes: usize) {
        let more = self.bytes.saturating_sub(bytes);
        self.bytes -= more;
        self.pool.release(self.client, more, 0);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.pool.release(self.client, self.bytes, 1);
    }
}

/// Measures how fast a body arrives. While other clients wait for memory, a slow body is refused.
pub struct Pace<'p> {
    permit: &'p Permit,
    /// Length of the body, or its greatest possible one.
    len: usize,
    /// Start of the window, and the bytes that came in it.
    since: Instant,
    came: usize,
    /// When the last bytes came.
    last: Instant,
}

impl<'p> Pace<'p> {
    pub fn new(permit: &'p Permit, len: usize) -> Self {
        Self { permit, len, since: Instant::now(), came: 0, last: Instant::now() }
    }

    /// Counts bytes that came.
    pub fn add(&mut self, bytes: usize) {
        self.came += bytes;
        self.last = Instant::now();
    }

    /// Waits for the next part of the body.
    pub async fn wait<T>(&mut self, part: impl Future<Output = T>) -> Result<T> {
        let mut part = pin!(part);
        loop {
            let left = WINDOW.saturating_sub(self.since.elapsed());
            if let Ok(part) = timeout(left, part.as_mut()).await {
                return Ok(part);
            }
            let Permit { pool, client, .. } = self.permit;
            let (time, patience) = (self.since.elapsed().as_secs_f64(), pool.patience.as_secs_f64());
            let is_slow = self.came as f64 * patience < self.len as f64 * time;
            if self.last.elapsed() >= SILENCE || is_slow && pool.is_wanted(*client) {
                return Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, "the body did not come in time"));
            }
            (self.since, self.came) = (Instant::now(), 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client gets at most its share of the memory (or one body, if a single body is larger). Clients that have less
    /// memory are served first.
    #[tokio::test(flavor = "current_thread")]
    async fn clients_take_turns() {
        let pool = Pool::new(10, 5, Duration::from_secs(1));
        let ask = |client, bytes| {
            let pool = pool.clone();
            tokio::spawn(async move { pool.acquire(client, bytes).await.unwrap() })
        };
        let settle = || async {
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
        };
        let first = pool.acquire(1, 4).await.unwrap();
        let more: Vec<_> = (0..3).map(|_| ask(1, 4)).collect();
        settle().await;
        // The further bodies of client 1 have to wait, because its share is used up. For other clients there is still
        // room.
        assert!(more.iter().all(|task| !task.is_finished()));
        let second = pool.acquire(2, 6).await.unwrap();
        assert!(second.bytes() == 6 && pool.is_wanted(2) && !pool.is_wanted(1));
        let third = ask(3, 2);
        settle().await;
        drop(first);
        settle().await;
        assert!(third.is_finished() && more.iter().all(|task| !task.is_finished()), "the third client has less");
        // A request that has ended waits no more.
        more.into_iter().for_each(|task| task.abort());
        settle().await;
        assert!(!pool.is_wanted(2));
        drop((second, third.await.unwrap()));
        let mut whole = pool.acquire(4, 10).await.unwrap();
        whole.shrink(3);
        drop(pool.acquire(5, 7).await.unwrap());
        drop(whole);
        assert!(pool.state().free == 10 && pool.state().clients.is_empty());
    }
}
