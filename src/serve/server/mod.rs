//! Serves a router on a port until the process drains.

mod activity;
mod connection;
pub(crate) mod limits;
pub(crate) mod listener;
mod open_connections;
mod request_limits;

use self::request_limits::{LimitedService, ServerLimits};
use crate::lifecycle::Lifecycle;
use crate::server::connection::ConnectionAcceptor;
use crate::server::limits::Limits;
use crate::server::listener::{Accepted, AnyPeer, Listener};
use crate::tls::Certificates;
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum_server::accept::Accept;
use axum_server::tls_rustls::RustlsAcceptor;
use axum_server::{Handle, Server};
use hyper_util::rt::TokioTimer;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};

/// HTTP/1.1 connections end with the answer to their next request once the process drains; those that have none within
/// this time are closed as they are.
const IDLE_GRACE: Duration = Duration::from_secs(1);
const CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// A server could not start, or failed.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}; use another address, or stop the process that listens there")]
    Bind {
        /// Which.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The listener broke.
    #[error("the server on {address} failed: {source}")]
    Serve {
        /// Which.
        address: String,
        /// Why.
        source: io::Error,
    },
}

/// Serves a router over plain HTTP until the process drains; open requests finish within the grace time.
///
/// # Errors
/// [`ServeError::Serve`].
pub async fn serve_plain(
    lifecycle: &Lifecycle,
    listener: impl Into<Listener>,
    router: Router,
    limits: Limits,
) -> Result<(), ServeError> {
    serve(lifecycle, listener.into(), router, limits, |connections| connections).await
}

/// Serves a router over TLS 1.2 or later (HTTP/2 and HTTP/1.1) until the process drains. Changed certificate files are
/// loaded while it runs.
///
/// # Errors
/// [`ServeError::Serve`].
pub async fn serve_tls(
    lifecycle: &Lifecycle,
    listener: impl Into<Listener>,
    router: Router,
    limits: Limits,
    certificates: Certificates,
) -> Result<(), ServeError> {
    let tls = RustlsAcceptor::new(certificates.config()).handshake_timeout(limits.handshake);
    tokio::select! {
        ended = serve(lifecycle, listener.into(), router, limits, |connections| tls.acceptor(connections)) => ended,
        never = certificates.follow() => match never {},
    }
}

async fn serve<A>(
    lifecycle: &Lifecycle,
    listener: Listener,
    router: Router,
    limits: Limits,
    acceptor: impl FnOnce(ConnectionAcceptor) -> A,
) -> Result<(), ServeError>
where
    A: Accept<Accepted, Router, Service = LimitedService> + Clone + Send + Sync + 'static,
    A::Stream: AsyncRead + AsyncWrite + Unpin + Send,
    A::Future: Send,
{
    let address = listener.local_addr().map_or_else(|_| "an unknown address".to_owned(), |a| a.to_string());
    let failed = |source| ServeError::Serve { address: address.clone(), source };
    let (draining, closed) = listener.open(lifecycle, limits.connections).await.map_err(failed)?;
    let handle = Handle::new();
    let connections = ConnectionAcceptor { limits: Arc::new(ServerLimits::new(limits, lifecycle.clone())) };
    let mut server: Server<AnyPeer, A> =
        Server::from_listener(draining).handle(handle.clone()).acceptor(acceptor(connections));
    set_http_limits(&mut server, &limits);
    // `LimitedService` has limited the body already.
    let router = router.layer(DefaultBodyLimit::disable());
    let serving = server.serve(router.into_make_service());
    tokio::pin!(serving);
    tokio::select! {
        ended = &mut serving => return ended.map_err(failed),
        () = lifecycle.draining() => {}
    }
    let idle_grace = IDLE_GRACE.min(lifecycle.grace() / 2);
    tokio::select! {
        ended = &mut serving => return ended.map_err(failed),
        () = all_closed(&closed, &handle) => {}
        () = tokio::time::sleep(idle_grace) => {}
        () = lifecycle.stopped() => {}
    }
    handle.graceful_shutdown(Some(lifecycle.grace().saturating_sub(idle_grace)));
    tokio::select! {
        ended = &mut serving => ended.map_err(failed),
        () = lifecycle.stopped() => {
            handle.shutdown();
            Ok(())
        }
    }
}

/// Waits until the port is closed and no connection open.
async fn all_closed(closed: &AtomicBool, handle: &Handle<AnyPeer>) {
    while !closed.load(Ordering::SeqCst) || handle.connection_count() > 0 {
        tokio::time::sleep(CHECK_INTERVAL).await;
    }
}

/// The limits that hyper and h2 enforce. If a client opens streams and resets them at once, h2 closes the connection at
/// 20 pending resets, or 1,024 protocol violations.
fn set_http_limits<A>(server: &mut Server<AnyPeer, A>, limits: &Limits) {
    let head = u32::try_from(limits.head).unwrap_or(u32::MAX);
    server.http_builder().http1().timer(TokioTimer::new()).header_read_timeout(limits.idle).max_buf_size(limits.head);
    server
        .http_builder()
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(head)
        .max_concurrent_streams(limits.streams)
        .max_pending_accept_reset_streams(20)
        .max_local_error_reset_streams(1024);
}
