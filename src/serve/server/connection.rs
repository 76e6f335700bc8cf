//! Connections that are closed when their time limit is over, or for others.
//!
//! hyper bounds the wait for a request's head, but neither a silent HTTP/2 connection nor a head or body that trickles.

use crate::server::limits::Limits;
use crate::server::listener::Accepted;
use crate::server::open_connections::OpenConnection;
use crate::server::request_limits::{LimitedService, ServerLimits};
use axum::Router;
use axum_server::accept::Accept;
use std::future::{Future as _, Ready, ready};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};

/// Applies the limits of time and size to each connection.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionAcceptor {
    pub(crate) limits: Arc<ServerLimits>,
}

impl Accept<Accepted, Router> for ConnectionAcceptor {
    type Stream = TimedStream<TcpStream>;
    type Service = LimitedService;
    type Future = Ready<io::Result<(Self::Stream, Self::Service)>>;

    fn accept(&self, Accepted { stream, connection }: Accepted, router: Router) -> Self::Future {
        ready(stream.set_nodelay(true).map(|()| {
            let (activity, limits) = (Arc::clone(connection.activity()), self.limits.limits);
            let timer = Box::pin(sleep(check_interval(&limits)));
            let watched = TimedStream { inner: stream, connection, limits, timer };
            (watched, LimitedService::new(router, activity, Arc::clone(&self.limits)))
        }))
    }
}

/// A stream whose reads and writes fail once its time limit is over, or it is closed for another connection.
#[derive(Debug)]
pub(crate) struct TimedStream<S> {
    inner: S,
    connection: OpenConnection,
    limits: Limits,
    timer: Pin<Box<Sleep>>,
}

impl<S> TimedStream<S> {
    /// Deadlines move with each request: they are checked now and then, instead of resetting a timer as often.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        if self.connection.activity().poll_closed(cx).is_ready() {
            return Poll::Ready(io::Error::new(io::ErrorKind::ConnectionAborted, "closed for a new connection"));
        }
        loop {
            ready!(self.timer.as_mut().poll(cx));
            let now = Instant::now();
            let deadline = self.connection.activity().deadline(&self.limits).map(Instant::from_std);
            if deadline.is_some_and(|deadline| deadline <= now) {
                return Poll::Ready(io::Error::new(io::ErrorKind::TimedOut, "timed out waiting for a request"));
            }
            let next = now + check_interval(&self.limits);
            self.timer.as_mut().reset(deadline.map_or(next, |deadline| deadline.min(next)));
        }
    }
}

/// How late a deadline may be noticed.
fn check_interval(limits: &Limits) -> Duration {
    limits.head_within.min(limits.idle) / 4
}

impl<S: AsyncRead + Unpin> AsyncRead for TimedStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if let Poll::Ready(error) = self.poll_end(cx) {
            return Poll::Ready(Err(error));
        }
        let poll = Pin::new(&mut self.inner).poll_read(cx, buf);
        if poll.is_ready() {
            self.connection.activity().read();
        }
        poll
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TimedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match Pin::new(&mut self.inner).poll_write(cx, buf) {
            Poll::Pending => self.poll_end(cx).map(Err),
            written => written,
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
