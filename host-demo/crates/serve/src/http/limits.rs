//! Limits of connections.

use std::time::Duration;

/// Maximum number of connections.
pub const MOST_CONNECTIONS: usize = 512;
/// Maximum number of bytes in the buffers of all connections. Each connection has one buffer for reading and one for
/// writing.
pub const BUFFERS: usize = MOST_CONNECTIONS * 2 * MOST_BUFFERED;
/// Maximum size of a buffer in bytes, which also limits the size of a request's head.
pub const MOST_BUFFERED: usize = 32 << 10;
/// Time after which the answer to a client that does not read is abandoned, and the client's connection is closed.
pub const STALLED: Duration = Duration::from_secs(30);
