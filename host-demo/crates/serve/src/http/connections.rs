//! Open connections. If there is no room for a new connection, the connection that has been idle the longest is closed.

use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Instant;

use tokio::task::AbortHandle;

/// An open connection.
#[derive(Debug)]
pub struct ConnectionSlot {
    /// Number of requests in progress on this connection.
    busy: AtomicUsize,
    /// The client's address.
    pub client: IpAddr,
    /// Time when the connection was accepted, or when its last answer finished.
    since: Mutex<Instant>,
    task: OnceLock<AbortHandle>,
}

impl ConnectionSlot {
    /// Sets the task to abort when this connection is closed to make room.
    pub fn is_served_by(&self, task: AbortHandle) {
        let _ = self.task.set(task);
    }

    /// Closes the connection.
    pub fn close(&self) {
        if let Some(task) = self.task.get() {
            task.abort();
        }
    }
}

/// Marks a connection as busy while a request is answered.
pub struct RequestGuard(Arc<ConnectionSlot>);

impl RequestGuard {
    pub fn new(slot: Arc<ConnectionSlot>) -> Self {
        slot.busy.fetch_add(1, Ordering::Relaxed);
        Self(slot)
    }

    /// Returns the connection of the request.
    pub fn slot(&self) -> Arc<ConnectionSlot> {
        self.0.clone()
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        *self.0.since.lock().unwrap_or_else(|broken| broken.into_inner()) = Instant::now();
        self.0.busy.fetch_sub(1, Ordering::Relaxed);
    }
}

/// All open connections. Idle connections are closed to make room for other clients.
#[derive(Default)]
pub struct Connections(Vec<Weak<ConnectionSlot>>);

impl Connections {
    /// Adds a connection.
    pub fn add(&mut self, client: IpAddr) -> Arc<ConnectionSlot> {
        // Remove closed connections before the list grows, so that its length stays near the number of open
        // connections.
        if self.0.len() == self.0.capacity() {
            self.forget_closed();
        }
        let since = Instant::now().into();
        let slot = Arc::new(ConnectionSlot { busy: 0.into(), client, since, task: OnceLock::new() });
        self.0.push(Arc::downgrade(&slot));
        slot
    }

    fn forget_closed(&mut self) {
        self.0.retain(|slot| slot.strong_count() > 0);
    }

    /// Closes the connection that has been idle the longest.
    pub fn make_room(&mut self) {
        self.forget_closed();
        let idle = self.0.iter().filter_map(Weak::upgrade).filter(|slot| slot.busy.load(Ordering::Relaxed) == 0);
        let since = |slot: &Arc<ConnectionSlot>| *slot.since.lock().unwrap_or_else(|broken| broken.into_inner());
        if let Some(slot) = idle.min_by_key(since) {
            slot.close();
        }
    }
}
