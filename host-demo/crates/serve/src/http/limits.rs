//! Limits of connections.

use std::time::Duration;

/// Maximum number of connections.
pub const MOST_CONNECTIONS: usize = 512;
/// Maximum size in bytes of the buffers of all connections, each with one to read and one to write.
pub const BUFFERS: usize = MOST_CONNECTIONS * 2 * MOST_BUFFERED;
/// Maximum size of a connection's buffer, which also limits the head of a request.
pub const MOST_BUFFERED: usize = 32 << 10;
/// Time after which the answer to a client that reads nothing is abandoned, and its connection is closed.
pub const STALLED: Duration = Duration::from_secs(30);
