//! The limits of a server: time, sizes, connections.

use std::time::Duration;

/// Limits for each client and for all together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Longest TLS handshake.
    pub handshake: Duration,
    /// Longest time from a connection's beginning to the end of its first request's head, handshake and all; and of
    /// the head of a later one, from its first byte (HTTP/1.1).
    pub head_within: Duration,
    /// Longest time from the end of a request's head to the end of its body, however steadily that trickles.
    pub body_within: Duration,
    /// Longest time that a connection is kept without a request. It is longer than the 90 s after which a Go client,
    /// such as the API server, drops an idle connection: a request never meets a server that is just closing.
    pub idle: Duration,
    /// Largest body of a request in bytes. The API server's own limit is 3 MiB, and a review holds up to two objects.
    pub body: usize,
    /// Largest head of a request in bytes. The API server's are below 1 KiB.
    pub head: usize,
    /// Most bytes of requests, heads and bodies, that are held at once over all connections: half for those whose body
    /// has at most [`Self::large`] by its `Content-Length`, half for the others. Beyond that requests get 503.
    pub requests: usize,
    /// Larger bodies are processed one after the other: parsed, one may take twenty times its size. Pods have some
    /// kilobytes.
    pub large: usize,
    /// Most open connections, at least 1. For a further one, the connection is closed that has gone without an answer
    /// for longest, among those of the client address that has most; if all are being answered, the new one. An API
    /// server changes at most 200 objects at once by default, so this is two of them whose every change waits for us
    /// over HTTP/1.1, and some room.
    pub connections: usize,
    /// Most requests at once on one HTTP/2 connection.
    pub streams: u32,
}

impl Limits {
    /// For a server of probes, and for one of metrics, which a few Prometheus servers request. Unread responses stay in
    /// memory.
    #[must_use]
    pub fn for_monitoring() -> Self {
        Self { connections: 64, streams: 4, body: 64 << 10, requests: 1 << 20, ..Self::default() }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(5),
            head_within: Duration::from_secs(10),
            body_within: Duration::from_secs(10),
            idle: Duration::from_secs(120),
            body: 7 << 20,
            head: 32 << 10,
            requests: 64 << 20,
            large: 256 << 10,
            connections: 512,
            streams: 200,
        }
    }
}
