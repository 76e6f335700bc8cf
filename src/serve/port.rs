//! Ports: where does a server listen, together with whom, and how does it stop without losing a caller?

use crate::lifecycle::Lifecycle;
use crate::server::ServeError;
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
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Callers that may wait to be accepted; the kernel may allow less.
const BACKLOG: i32 = 1024;
/// A shared port is closed so long after it has stopped to take new callers, for handshakes that had begun: some round
/// trips within a cluster.
const SETTLE: Duration = Duration::from_millis(2);
/// A bound on what is taken out of the queue at the end: more than the backlog are new callers.
const MOST_QUEUED: usize = 4096;

/// An address that is taken.
pub struct Port {
    socket: Socket,
    listens: bool,
    once: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Port").field("socket", &self.socket).field("listens", &self.listens).finish_non_exhaustive()
    }
}

impl Port {
    /// An address that other processes of the same user may take in this way too; the kernel then gives each a part of
    /// the new connections. It gets none before it is served: a process that is not ready takes nothing from one that
    /// is. Port 0 takes a free one.
    ///
    /// # Errors
    /// [`ServeError::Bind`].
    pub fn shared(address: SocketAddr) -> Result<Self, ServeError> {
        let socket = open(address, true).map_err(|source| ServeError::Bind { address, source })?;
        Ok(Self { socket, listens: false, once: Box::pin(ready(())) })
    }

    /// The same, served no sooner than when something has happened.
    #[must_use]
    pub fn once(self, happened: impl Future<Output = ()> + Send + 'static) -> Self {
        Self { once: Box::pin(happened), ..self }
    }

    /// The address.
    ///
    /// # Errors
    /// When the system does not tell.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        let address = self.socket.local_addr()?.as_socket();
        address.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "not an IP address"))
    }

    /// From here on callers come, until the process drains. The second part turns true once all have been let in.
    pub(crate) async fn open(self, lifecycle: &Lifecycle, most: usize) -> io::Result<(Gate, Arc<AtomicBool>)> {
        let happened = tokio::select! {
            () = self.once => true,
            () = lifecycle.draining() => false,
        };
        let closed = Arc::new(AtomicBool::new(false));
        let state = if happened || self.listens {
            if !self.listens {
                self.socket.listen(BACKLOG)?;
            }
            State::Open(Arc::new(tokio::net::TcpListener::from_std(self.socket.into())?))
        } else {
            // It was told to stop before it was ready: others answer.
            State::Closed(VecDeque::new())
        };
        let state = Mutex::new(state);
        let (lifecycle, shared, places) = (lifecycle.clone(), !self.listens, Arc::new(Semaphore::new(most.max(1))));
        Ok((Gate { lifecycle, places, shared, state, closed: Arc::clone(&closed) }, closed))
    }
}

impl From<TcpListener> for Port {
    fn from(listener: TcpListener) -> Self {
        Self { socket: listener.into(), listens: true, once: Box::pin(ready(())) }
    }
}

/// Listens on an address; port 0 takes a free one.
///
/// # Errors
/// [`ServeError::Bind`].
pub fn bind(address: SocketAddr) -> Result<TcpListener, ServeError> {
    let listen = || {
        let socket = open(address, false)?;
        socket.listen(BACKLOG)?;
        Ok(socket.into())
    };
    listen().map_err(|source| ServeError::Bind { address, source })
}

fn open(address: SocketAddr, shared: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // Connections of a process that has just ended are no reason to wait.
    socket.set_reuse_address(true)?;
    if shared {
        socket.set_reuse_port(true)?;
    }
    socket.bind(&address.into())?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Where a caller comes from: nobody needs to know.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Somewhere;

/// One that has come in, with its place among the connections.
#[derive(Debug)]
pub(crate) struct Caller {
    pub(crate) stream: TcpStream,
    pub(crate) place: OwnedSemaphorePermit,
}

impl Address for Somewhere {
    type Stream = Caller;
    type Listener = Gate;
}

/// Where callers come in, until the process drains. Those that wait then are let in still: the kernel resets those that
/// nobody has accepted when the port is closed.
#[derive(Debug)]
pub(crate) struct Gate {
    lifecycle: Lifecycle,
    /// As many as there may be connections; who finds none waits in the kernel's queue.
    places: Arc<Semaphore>,
    shared: bool,
    state: Mutex<State>,
    closed: Arc<AtomicBool>,
}

#[derive(Debug)]
enum State {
    Open(Arc<tokio::net::TcpListener>),
    Closed(VecDeque<TcpStream>),
}

impl Gate {
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
        // Only one waits at the gate, and has let go of it.
        let Some(listener) = Arc::into_inner(listener) else { return };
        let queued = listener.into_std().map(|listener| queued(&listener)).unwrap_or_default();
        *self.lock() = State::Closed(queued);
    }

    fn next_queued(&self) -> Option<TcpStream> {
        match &mut *self.lock() {
            State::Open(_) => None,
            State::Closed(queued) => queued.pop_front(),
        }
    }
}

/// New callers get no answer from here on. They try again after a second, and are then given to a process that still
/// listens; one that comes just when the port is closed would be reset instead. Callers that are in are not concerned.
#[cfg(target_os = "linux")]
fn turn_away(listener: &tokio::net::TcpListener) -> bool {
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

/// Elsewhere it cannot be had.
#[cfg(not(target_os = "linux"))]
fn turn_away(_: &tokio::net::TcpListener) -> bool {
    false
}

/// All that wait, by asking the kernel and not what was last heard from it.
fn queued(listener: &TcpListener) -> VecDeque<TcpStream> {
    let mut queued = VecDeque::new();
    for _ in 0..MOST_QUEUED {
        let accepted = listener.accept().and_then(|(stream, _)| {
            stream.set_nonblocking(true)?;
            TcpStream::from_std(stream)
        });
        match accepted {
            Ok(stream) => queued.push_back(stream),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            // One that has gone again.
            Err(_) => {}
        }
    }
    queued
}

impl AddrListener<Caller, Somewhere> for Gate {
    async fn bind_to(_: Somewhere) -> io::Result<Self> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "not a listenable address"))
    }

    async fn accept_stream(&self) -> io::Result<(Caller, Somewhere)> {
        let place = Arc::clone(&self.places).acquire_owned().await.map_err(io::Error::other)?;
        if let Some(listener) = self.listener() {
            let accepted = tokio::select! {
                biased;
                () = self.lifecycle.draining() => None,
                accepted = listener.accept() => Some(accepted?.0),
            };
            if let Some(stream) = accepted {
                return Ok((Caller { stream, place }, Somewhere));
            }
            if self.shared
                && turn_away(&listener)
                && let Ok(accepted) = tokio::time::timeout(SETTLE, listener.accept()).await
            {
                return Ok((Caller { stream: accepted?.0, place }, Somewhere));
            }
            drop(listener);
            self.close();
        }
        match self.next_queued() {
            Some(stream) => Ok((Caller { stream, place }, Somewhere)),
            None => {
                self.closed.store(true, Ordering::SeqCst);
                std::future::pending().await
            }
        }
    }

    fn get_local_addr(&self) -> io::Result<Somewhere> {
        Ok(Somewhere)
    }
}
