//! Idle connections: how are they closed?
//!
//! hyper bounds the wait for a request's head, but neither a silent HTTP/2 connection nor a body that stalls.

use axum_server::accept::Accept;
use std::future::{Future, Ready, ready};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};

/// Accepts TCP connections that are closed when nothing has been read or written for a while.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IdleAcceptor {
    pub(crate) after: Duration,
}

impl<S> Accept<TcpStream, S> for IdleAcceptor {
    type Stream = Idle<TcpStream>;
    type Service = S;
    type Future = Ready<io::Result<(Idle<TcpStream>, S)>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        let timed = stream.set_nodelay(true).map(|()| Idle::new(stream, self.after));
        ready(timed.map(|stream| (stream, service)))
    }
}

/// A stream whose reads fail once it has been silent for too long.
#[derive(Debug)]
pub(crate) struct Idle<S> {
    inner: S,
    after: Duration,
    last: Instant,
    timer: Pin<Box<Sleep>>,
}

impl<S> Idle<S> {
    fn new(inner: S, after: Duration) -> Self {
        Self { inner, after, last: Instant::now(), timer: Box::pin(sleep(after)) }
    }

    /// The timer is moved only when it fires, not at each of many bytes.
    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        while self.timer.as_mut().poll(cx).is_ready() {
            let deadline = self.last + self.after;
            if deadline <= Instant::now() {
                return Poll::Ready(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "the connection has been idle for too long",
                ));
            }
            self.timer.as_mut().reset(deadline);
        }
        Poll::Pending
    }

    fn note<T>(&mut self, poll: &Poll<T>) {
        if poll.is_ready() {
            self.last = Instant::now();
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Idle<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let poll = Pin::new(&mut self.inner).poll_read(cx, buf);
        self.note(&poll);
        match poll {
            Poll::Pending => self.poll_silence(cx).map(Err),
            ready => ready,
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Idle<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.note(&poll);
        poll
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
