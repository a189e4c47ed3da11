//! Connections that are open, and which of them gives its place to another.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Instant;

use tokio::task::AbortHandle;

/// A connection that is open.
pub struct Seat {
    /// Requests of it that are being answered.
    busy: AtomicUsize,
    /// When it came, or when its last answer was done.
    since: Mutex<Instant>,
    task: OnceLock<AbortHandle>,
}

impl Seat {
    /// Which task is to be ended where the connection has to give its place.
    pub fn is_served_by(&self, task: AbortHandle) {
        let _ = self.task.set(task);
    }
}

/// Keeps a connection for an answer.
pub struct Held(Arc<Seat>);

impl Held {
    pub fn new(seat: Arc<Seat>) -> Self {
        seat.busy.fetch_add(1, Ordering::Relaxed);
        Self(seat)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        *self.0.since.lock().unwrap_or_else(|broken| broken.into_inner()) = Instant::now();
        self.0.busy.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Who only holds sockets open keeps nobody out: where there is no place for another connection, the one that has
/// asked for nothing for longest gives its own.
#[derive(Default)]
pub struct Seats(Vec<Weak<Seat>>);

impl Seats {
    /// A connection has come.
    pub fn add(&mut self) -> Arc<Seat> {
        // Before it would take more memory.
        if self.0.len() == self.0.capacity() {
            self.forget_closed();
        }
        let seat = Arc::new(Seat { busy: 0.into(), since: Instant::now().into(), task: OnceLock::new() });
        self.0.push(Arc::downgrade(&seat));
        seat
    }

    fn forget_closed(&mut self) {
        self.0.retain(|seat| seat.strong_count() > 0);
    }

    pub fn make_room(&mut self) {
        self.forget_closed();
        let idle = self.0.iter().filter_map(Weak::upgrade).filter(|seat| seat.busy.load(Ordering::Relaxed) == 0);
        let since = |seat: &Arc<Seat>| *seat.since.lock().unwrap_or_else(|broken| broken.into_inner());
        if let Some(task) = idle.min_by_key(since).and_then(|seat| seat.task.get().cloned()) {
            task.abort();
        }
    }
}
