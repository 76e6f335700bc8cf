//! Listening sockets: one that processes can share, and one that drains without resetting clients.

use crate::lifecycle::Lifecycle;
use crate::server::ServeError;
use crate::server::open_connections::{OpenConnection, OpenConnections};
use axum_server::{AddrListener, Address};
use socket2::{Domain, Protocol, Socket, Type};
#[cfg(target_os = "linux")]
use socket2::{SockFilter, SockRef};
use std::collections::VecDeque;
use std::future::{Future, ready};
use std::net::{SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{fmt, io};
use tokio::net::TcpStream;

/// Connections that may wait to be accepted; the kernel may allow fewer.
const BACKLOG: i32 = 1024;
/// A shared port is closed this long after it starts to drop SYNs, for handshakes in progress: some round trips within
/// a cluster.
const HANDSHAKE_GRACE: Duration = Duration::from_millis(2);
/// A bound on what is accepted from the queue at the end: more than the backlog are new connections.
const MAX_QUEUED: usize = 4096;

/// A socket that is bound to an address.
pub struct Listener {
    socket: Socket,
    listens: bool,
    listen_after: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener").field("socket", &self.socket).field("listens", &self.listens).finish_non_exhaustive()
    }
}

impl Listener {
    /// A socket with SO_REUSEPORT: other processes of the same user may bind the address in this way too, and the
    /// kernel distributes new connections. It gets none before it is served, so a process that is not ready takes none
    /// from one that is. Port 0 is a free one.
    ///
    /// # Errors
    /// [`ServeError::Bind`].
    pub fn reuse_port(address: SocketAddr) -> Result<Self, ServeError> {
        let socket = bound_socket(address, true).map_err(|source| ServeError::Bind { address, source })?;
        Ok(Self { socket, listens: false, listen_after: Box::pin(ready(())) })
    }

    /// The same, which listens only once this has happened.
    #[must_use]
    pub fn listen_after(self, happened: impl Future<Output = ()> + Send + 'static) -> Self {
        Self { listen_after: Box::pin(happened), ..self }
    }

    /// The address.
    ///
    /// # Errors
    /// If the system call fails.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        let address = self.socket.local_addr()?.as_socket();
        address.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "not an IP address"))
    }

    /// Listens until the process drains. The flag turns true once all queued connections have been accepted.
    pub(crate) async fn open(
        self,
        lifecycle: &Lifecycle,
        most: usize,
    ) -> io::Result<(DrainingListener, Arc<AtomicBool>)> {
        let happened = tokio::select! {
            () = self.listen_after => true,
            () = lifecycle.draining() => false,
        };
        let closed = Arc::new(AtomicBool::new(false));
        let state = if happened || self.listens {
            if !self.listens {
                self.socket.listen(BACKLOG)?;
            }
            State::Open(Arc::new(tokio::net::TcpListener::from_std(self.socket.into())?))
        } else {
            // It stops before it was ready: others answer.
            State::Closed(VecDeque::new())
        };
        let state = Mutex::new(state);
        let (lifecycle, shared) = (lifecycle.clone(), !self.listens);
        let connections = Arc::new(OpenConnections::new(most));
        Ok((DrainingListener { lifecycle, connections, shared, state, closed: Arc::clone(&closed) }, closed))
    }
}

impl From<TcpListener> for Listener {
    fn from(listener: TcpListener) -> Self {
        Self { socket: listener.into(), listens: true, listen_after: Box::pin(ready(())) }
    }
}

/// Listens on an address; port 0 is a free one.
///
/// # Errors
/// [`ServeError::Bind`].
pub fn bind(address: SocketAddr) -> Result<TcpListener, ServeError> {
    let listen = || {
        let socket = bound_socket(address, false)?;
        socket.listen(BACKLOG)?;
        Ok(socket.into())
    };
    listen().map_err(|source| ServeError::Bind { address, source })
}

fn bound_socket(address: SocketAddr, shared: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // Connections of a previous process must not delay the bind.
    socket.set_reuse_address(true)?;
    if shared {
        socket.set_reuse_port(true)?;
    }
    socket.bind(&address.into())?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// The address of a client, which nothing uses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AnyPeer;

/// An accepted connection, one of [`Limits::connections`](super::limits::Limits::connections).
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) stream: TcpStream,
    pub(crate) connection: OpenConnection,
}

impl Address for AnyPeer {
    type Stream = Accepted;
    type Listener = DrainingListener;
}

/// Accepts connections until the process drains, then those that are queued: the kernel resets whatever is not accepted
/// when the port is closed.
#[derive(Debug)]
pub(crate) struct DrainingListener {
    lifecycle: Lifecycle,
    connections: Arc<OpenConnections>,
    shared: bool,
    state: Mutex<State>,
    closed: Arc<AtomicBool>,
}

#[derive(Debug)]
enum State {
    Open(Arc<tokio::net::TcpListener>),
    Closed(VecDeque<(TcpStream, SocketAddr)>),
}

impl DrainingListener {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn listener(&self) -> Option<Arc<tokio::net::TcpListener>> {
        match &*self.lock() {
            State::Open(listener) => Some(Arc::clone(listener)),
            State::Closed(_) => None,
        }
    }

    fn close(&self) {
        let before = std::mem::replace(&mut *self.lock(), State::Closed(VecDeque::new()));
        let State::Open(listener) = before else { return };
        // `accept_stream` held the only other reference, and has dropped it.
        let Some(listener) = Arc::into_inner(listener) else { return };
        let queued = listener.into_std().map(|listener| queued(&listener)).unwrap_or_default();
        *self.lock() = State::Closed(queued);
    }

    fn next_queued(&self) -> Option<(TcpStream, SocketAddr)> {
        match &mut *self.lock() {
            State::Open(_) => None,
            State::Closed(queued) => queued.pop_front(),
        }
    }

    /// The next connection; none once the process drains and all that were queued have been taken.
    async fn next_stream(&self) -> io::Result<Option<(TcpStream, SocketAddr)>> {
        if let Some(listener) = self.listener() {
            let accepted = tokio::select! {
                biased;
                () = self.lifecycle.draining() => None,
                accepted = accept(&listener) => Some(accepted?),
            };
            if accepted.is_some() {
                return Ok(accepted);
            }
            if self.shared
                && drop_new_syns(&listener)
                && let Ok(accepted) = tokio::time::timeout(HANDSHAKE_GRACE, accept(&listener)).await
            {
                return accepted.map(Some);
            }
            drop(listener);
            self.close();
        }
        Ok(self.next_queued())
    }
}

/// The next connection. A client that has reset its own is no failure, after which the server would pause.
async fn accept(listener: &tokio::net::TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
    loop {
        match listener.accept().await {
            Err(error) if is_of_client(&error) => {}
            accepted => return accepted,
        }
    }
}

fn is_of_client(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::Interrupted
    )
}

/// Has the kernel drop new SYNs. Those clients retry after a second, and reach a process that still listens; one that
/// connects just when the port is closed would be reset instead. Open connections are not affected.
#[cfg(target_os = "linux")]
fn drop_new_syns(listener: &tokio::net::TcpListener) -> bool {
    // A program for the kernel: of a segment's flags at offset 13, take SYN and ACK; where only SYN is set, drop it.
    let program = [
        SockFilter::new(0x30, 0, 0, 13),
        SockFilter::new(0x54, 0, 0, 0x12),
        SockFilter::new(0x15, 0, 1, 0x02),
        SockFilter::new(0x06, 0, 0, 0),
        SockFilter::new(0x06, 0, 0, u32::MAX),
    ];
    let attached = SockRef::from(listener).attach_filter(&program);
    if let Err(error) = &attached {
        tracing::debug!(%error, "closing the shared port may drop a connection");
    }
    attached.is_ok()
}

/// Not available elsewhere.
#[cfg(not(target_os = "linux"))]
fn drop_new_syns(_: &tokio::net::TcpListener) -> bool {
    false
}

/// All queued connections, by asking the kernel instead of the reactor.
fn queued(listener: &TcpListener) -> VecDeque<(TcpStream, SocketAddr)> {
    let mut queued = VecDeque::new();
    for _ in 0..MAX_QUEUED {
        let accepted = listener.accept().and_then(|(stream, peer)| {
            stream.set_nonblocking(true)?;
            Ok((TcpStream::from_std(stream)?, peer))
        });
        match accepted {
            Ok(accepted) => queued.push_back(accepted),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            // A connection that was closed again.
            Err(_) => {}
        }
    }
    queued
}

impl AddrListener<Accepted, AnyPeer> for DrainingListener {
    async fn bind_to(_: AnyPeer) -> io::Result<Self> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "not a listenable address"))
    }

    async fn accept_stream(&self) -> io::Result<(Accepted, AnyPeer)> {
        // Each turn takes a connection from the queue. Nothing is waited for but the next one: where there is no room
        // for a connection, it is closed at once.
        loop {
            let Some((stream, peer)) = self.next_stream().await? else {
                self.closed.store(true, Ordering::SeqCst);
                return std::future::pending().await;
            };
            if let Some(connection) = self.connections.admit(peer.ip().to_canonical()) {
                return Ok((Accepted { stream, connection }, AnyPeer));
            }
        }
    }

    fn get_local_addr(&self) -> io::Result<AnyPeer> {
        Ok(AnyPeer)
    }
}
