//! Streams: how is a connection closed that is silent for too long?
//!
//! hyper bounds the wait for a request's head, but neither a silent HTTP/2 connection nor a head or body that trickles.

use crate::connections::Connection;
use crate::guard::{Guarded, House};
use crate::limits::Limits;
use crate::port::Caller;
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
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep, sleep};

/// Has the connections of callers watched, and their requests received within the limits.
#[derive(Debug, Clone)]
pub(crate) struct Doorman {
    pub(crate) house: Arc<House>,
}

impl Accept<Caller, Router> for Doorman {
    type Stream = Watched<TcpStream>;
    type Service = Guarded;
    type Future = Ready<io::Result<(Self::Stream, Self::Service)>>;

    fn accept(&self, Caller { stream, place }: Caller, router: Router) -> Self::Future {
        ready(stream.set_nodelay(true).map(|()| {
            let (connection, limits) = (Arc::new(Connection::new()), self.house.limits);
            let timer = Box::pin(sleep(look_every(&limits)));
            let watched = Watched { inner: stream, connection: Arc::clone(&connection), _place: place, limits, timer };
            (watched, Guarded::new(router, connection, Arc::clone(&self.house)))
        }))
    }
}

/// A stream whose reads and writes fail once its time is over.
#[derive(Debug)]
pub(crate) struct Watched<S> {
    inner: S,
    connection: Arc<Connection>,
    /// Counts among [`Limits::connections`] until this is dropped.
    _place: OwnedSemaphorePermit,
    limits: Limits,
    timer: Pin<Box<Sleep>>,
}

impl<S> Watched<S> {
    /// Deadlines move with each request: they are looked at now and then, instead of a timer that moves as often.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        loop {
            ready!(self.timer.as_mut().poll(cx));
            let now = Instant::now();
            let deadline = self.connection.deadline(&self.limits).map(Instant::from_std);
            if deadline.is_some_and(|deadline| deadline <= now) {
                return Poll::Ready(io::Error::new(io::ErrorKind::TimedOut, "timed out waiting for a request"));
            }
            let next = now + look_every(&self.limits);
            self.timer.as_mut().reset(deadline.map_or(next, |deadline| deadline.min(next)));
        }
    }
}

/// As late as this a deadline may be noticed.
fn look_every(limits: &Limits) -> Duration {
    limits.head_within.min(limits.idle) / 4
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if let Poll::Ready(error) = self.poll_end(cx) {
            return Poll::Ready(Err(error));
        }
        let poll = Pin::new(&mut self.inner).poll_read(cx, buf);
        if poll.is_ready() {
            self.connection.read();
        }
        poll
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
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
