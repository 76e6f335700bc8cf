//! Servers: how does a router answer on a port, until it is told to stop?

use crate::idle::IdleAcceptor;
use crate::lifecycle::Lifecycle;
use crate::tls::{Certificates, TlsMetrics};
use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_LENGTH;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum_server::Handle;
use axum_server::Server;
use axum_server::accept::Accept;
use axum_server::tls_rustls::RustlsAcceptor;
use hyper_util::rt::TokioTimer;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// What a client may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Longest TLS handshake.
    pub handshake: Duration,
    /// Longest silence on a connection, and longest time from one request to the end of the next one's head. It is
    /// longer than the 90 s after which a Go client, such as the API server, drops an idle connection: a request
    /// never meets a server that is just closing.
    pub idle: Duration,
    /// Largest body of a request in bytes. The API server's own limit is 3 MiB, and a review holds up to two objects.
    pub body: usize,
    /// Largest head of a request in bytes. The API server's are below 1 KiB.
    pub head: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { handshake: Duration::from_secs(5), idle: Duration::from_secs(120), body: 7 << 20, head: 32 << 10 }
    }
}

/// A server could not begin, or ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}; choose another address, or stop what listens there")]
    Bind {
        /// Which.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The listener broke.
    #[error("the server on {address} ended: {source}")]
    Serve {
        /// Which.
        address: String,
        /// Why.
        source: io::Error,
    },
}

/// Listens on an address; port 0 takes a free one.
///
/// # Errors
/// [`ServeError::Bind`].
pub fn bind(address: SocketAddr) -> Result<TcpListener, ServeError> {
    let open = || {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    };
    open().map_err(|source| ServeError::Bind { address, source })
}

/// Serves a router over plain HTTP until the process drains; open requests finish within the grace time.
///
/// # Errors
/// [`ServeError::Serve`].
pub async fn serve_plain(
    lifecycle: &Lifecycle,
    listener: TcpListener,
    router: Router,
    limits: Limits,
) -> Result<(), ServeError> {
    serve(lifecycle, listener, router, limits, IdleAcceptor { after: limits.idle }).await
}

/// Serves a router over TLS 1.2 or later (HTTP/2 and HTTP/1.1) until the process drains. Changed certificate files are
/// taken up while it runs.
///
/// # Errors
/// [`ServeError::Serve`].
pub async fn serve_tls(
    lifecycle: &Lifecycle,
    listener: TcpListener,
    router: Router,
    limits: Limits,
    (certificates, metrics): (Certificates, TlsMetrics),
) -> Result<(), ServeError> {
    let acceptor = RustlsAcceptor::new(certificates.config())
        .handshake_timeout(limits.handshake)
        .acceptor(IdleAcceptor { after: limits.idle });
    tokio::select! {
        ended = serve(lifecycle, listener, router, limits, acceptor) => ended,
        never = certificates.follow(&metrics) => match never {},
    }
}

/// Refuses a body that is said to be too long before any of it is read. One without a length is cut off by
/// [`DefaultBodyLimit`].
async fn by_length(State(most): State<usize>, request: Request, next: Next) -> Response {
    let length = request.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    let too_long = |length| usize::try_from(length).map_or(true, |length| length > most);
    if length.is_some_and(too_long) {
        return (StatusCode::PAYLOAD_TOO_LARGE, format!("the body is longer than {most} bytes\n")).into_response();
    }
    next.run(request).await
}

async fn serve<A>(
    lifecycle: &Lifecycle,
    listener: TcpListener,
    router: Router,
    limits: Limits,
    acceptor: A,
) -> Result<(), ServeError>
where
    A: Accept<TcpStream, Router, Service = Router> + Clone + Send + Sync + 'static,
    A::Stream: AsyncRead + AsyncWrite + Unpin + Send,
    A::Future: Send,
{
    let address = listener.local_addr().map_or_else(|_| "an unknown address".to_owned(), |a| a.to_string());
    let failed = |source| ServeError::Serve { address: address.clone(), source };
    let handle = Handle::new();
    let mut server: Server<SocketAddr, A> =
        axum_server::from_tcp(listener).map_err(failed)?.handle(handle.clone()).acceptor(acceptor);
    server.http_builder().http1().timer(TokioTimer::new()).header_read_timeout(limits.idle).max_buf_size(limits.head);
    server
        .http_builder()
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(u32::try_from(limits.head).unwrap_or(u32::MAX));
    let router = router.layer(DefaultBodyLimit::max(limits.body)).layer(from_fn_with_state(limits.body, by_length));
    let serving = server.serve(router.into_make_service());
    tokio::pin!(serving);
    tokio::select! {
        ended = &mut serving => return ended.map_err(failed),
        () = lifecycle.draining() => handle.graceful_shutdown(Some(lifecycle.grace())),
    }
    tokio::select! {
        ended = &mut serving => ended.map_err(failed),
        () = lifecycle.stopped() => {
            handle.shutdown();
            Ok(())
        }
    }
}
