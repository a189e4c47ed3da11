//! The listener, its limits, and shutdown.

pub mod body;
pub mod connections;
pub mod error;
pub mod gate;
pub mod limits;
pub mod memory;
pub mod pool;
pub mod readers;
pub mod record;

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use anyhow::{Context as _, Result};
use axum::Router;
use axum::http::{HeaderValue, Request, Uri};
use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::Sleep;

use crate::http::connections::Connections;
use crate::http::gate::Gate;
use crate::http::limits::{MOST_BUFFERED, MOST_CONNECTIONS, STALLED};
use crate::http::readers::READERS;
use arenite_run::scheduler::Counters;

/// Time after a signal to stop in which open requests may still be answered, and the time after that for sending their
/// errors.
const DRAIN: Duration = Duration::from_millis(1300);
const LAST_ERRORS: Duration = Duration::from_millis(200);
/// Time limit for receiving the head of a request, and for the pause between two requests.
const HEAD_TIME: Duration = Duration::from_secs(15);

/// The address to listen on, and the allowed origins.
#[derive(Clone, Debug)]
pub struct Limits {
    pub host: String,
    pub port: u16,
    /// Origins whose pages may send requests from a browser (CORS).
    pub origins: Vec<HeaderValue>,
    /// Called with the address when the server listens.
    pub listening: fn(SocketAddr) -> Result<()>,
    /// Called when the server stops to take requests.
    pub stopping: fn(),
}

/// Serves until the process receives a signal to stop, and all open requests are answered or their time is over.
///
/// Prints the address when `ready` reports that the engine has allocated its memory. `routes` is called with the hosts
/// and origins that requests may name.
pub fn serve(
    routes: impl FnOnce(Gate) -> Router,
    counters: &Counters,
    limits: &Limits,
    ready: oneshot::Receiver<()>,
) -> Result<()> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().max_blocking_threads(READERS).build()?;
    runtime.block_on(async {
        let address = (limits.host.as_str(), limits.port);
        let listener = TcpListener::bind(address).await.with_context(|| {
            let (host, port) = (&limits.host, limits.port);
            format!("cannot listen on {host}:{port}; give another --host or --port")
        })?;
        let address: SocketAddr = listener.local_addr()?;
        if ready.await.is_err() {
            return Ok(()); // because the engine's thread reports the error
        }
        (limits.listening)(address)?;
        let gate = Gate::new(address.ip(), &limits.host, limits.origins.clone());
        let accepting = tokio::spawn(accept(listener, routes(gate)));
        asked_to_end().await?;
        accepting.abort();
        counters.stopping.store(true, Ordering::Relaxed);
        (limits.stopping)();
        tokio::select! {
            () = all_done(counters) => {}
            again = asked_to_end() => again?,
            () = tokio::time::sleep(DRAIN) => {
                counters.ended.store(true, Ordering::Relaxed);
                tokio::time::sleep(LAST_ERRORS).await;
            }
        }
        Ok(())
    })
}

async fn all_done(counters: &Counters) {
    while counters.open.load(Ordering::Relaxed) > 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // Wait, because a request counts as closed before the last bytes of its answer reach the socket.
    tokio::time::sleep(Duration::from_millis(100)).await;
}

async fn accept(listener: TcpListener, routes: Router) {
    let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    let mut connections = Connections::default();
    loop {
        let Ok((socket, peer)) = listener.accept().await else {
            // Close an idle connection, because there may be too many open files.
            connections.make_room();
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let place = match places.clone().try_acquire_owned() {
            Ok(place) => place,
            Err(_) => {
                connections.make_room();
                let Ok(place) = places.clone().acquire_owned().await else { return };
                place
            }
        };
        let _ = socket.set_nodelay(true);
        let slot = connections.add(peer.ip());
        let (routes, asking) = (TowerToHyperService::new(routes.clone()), slot.clone());
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(asking.clone());
            if let Some(uri) = without_empty_segments(request.uri()) {
                *request.uri_mut() = uri;
            }
            routes.call(request)
        });
        let task = tokio::spawn(async move {
            let mut http = hyper::server::conn::http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME).max_buf_size(MOST_BUFFERED);
            let socket = Patient { socket, patience: STALLED, end: None };
            let _ = http.serve_connection(TokioIo::new(socket), service).await;
            drop(place);
        });
        slot.is_served_by(task.abort_handle());
    }
}

/// A socket that fails if its client does not read anything for the time `patience`. Otherwise an unread answer could
/// hold its memory without end.
struct Patient<S> {
    socket: S,
    patience: Duration,
    /// Deadline of a write that waits for the client.
    end: Option<Pin<Box<Sleep>>>,
}

impl<S> Patient<S> {
    fn waited<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.end = None;
            return written;
        }
        let patience = self.patience;
        let end = self.end.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        end.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write(context, bytes);
        self.waited(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write_vectored(context, bytes);
        self.waited(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}

/// Removes empty segments of a path (`//` and a `/` at the end), because clients create such paths from a base address
/// that ends in `/`.
fn without_empty_segments(uri: &Uri) -> Option<Uri> {
    let path = uri.path();
    if path == "/" || !path.contains("//") && !path.ends_with('/') {
        return None;
    }
    let kept: String = path.split('/').filter(|part| !part.is_empty()).map(|part| format!("/{part}")).collect();
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    format!("{}{query}", if kept.is_empty() { "/" } else { &kept }).parse().ok()
}

#[cfg(unix)]
async fn asked_to_end() -> Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut end, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        _ = end.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

#[cfg(not(unix))]
async fn asked_to_end() -> Result<()> {
    Ok(tokio::signal::ctrl_c().await?)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[test]
    fn a_client_that_reads_nothing_is_given_up() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (mut client, socket) = tokio::io::duplex(50_000);
            let mut server = Patient { socket, patience: Duration::from_secs(2), end: None };
            let writes = tokio::spawn(async move {
                loop {
                    if let Err(error) = server.write_all(&[0; 10_000]).await {
                        return error.kind();
                    }
                }
            });
            // A client that reads slowly keeps its connection. The whole answer may take longer than the time limit for
            // one write.
            for _ in 0..30 {
                tokio::time::sleep(Duration::from_millis(100)).await;
                client.read_exact(&mut vec![0; 50_000]).await.unwrap();
            }
            assert!(!writes.is_finished());
            assert_eq!(writes.await.unwrap(), io::ErrorKind::TimedOut);
        });
    }
}
