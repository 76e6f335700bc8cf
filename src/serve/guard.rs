//! Guard: how does a request come in whole, within the limits, before anybody works on it?

use crate::connections::{Connection, Connections, Visit};
use crate::ledger::{Held, Ledger};
use crate::lifecycle::Lifecycle;
use crate::limits::Limits;
use crate::stage::Stage;
use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::http::header::{CONNECTION, CONTENT_LENGTH};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Request, StatusCode, Version};
use axum::response::{IntoResponse, Response};
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::{Semaphore, SemaphorePermit};
use tower::Service;

/// What a request costs beside its bytes: a task, a stream, buffers. An estimate, and not a small one.
const EACH: usize = 1 << 10;

/// What all connections of a server share.
#[derive(Debug)]
pub(crate) struct House {
    pub(crate) limits: Limits,
    lifecycle: Lifecycle,
    connections: Arc<Connections>,
    ledger: Arc<Ledger>,
    /// The turn of a large body to be answered.
    turn: Semaphore,
}

/// What a request holds while it is answered.
struct Holds<'a> {
    _room: Held,
    _turn: Option<SemaphorePermit<'a>>,
}

/// Why a request is not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refused {
    TooLong,
    TooSlow,
    /// Without `Retry-After`: with it, the API server would make its client wait for all of the hook's timeout.
    NoRoom,
    Broken,
}

impl Refused {
    fn answer(self, limits: &Limits) -> Response {
        let (status, why) = match self {
            Self::TooLong => {
                (StatusCode::PAYLOAD_TOO_LARGE, format!("the request body exceeds {} bytes\n", limits.body))
            }
            Self::TooSlow => (
                StatusCode::REQUEST_TIMEOUT,
                format!("the request body was incomplete after {:?}\n", limits.body_within),
            ),
            Self::NoRoom => (StatusCode::SERVICE_UNAVAILABLE, "too many concurrent requests\n".to_owned()),
            Self::Broken => (StatusCode::BAD_REQUEST, "the request body was interrupted\n".to_owned()),
        };
        (status, why).into_response()
    }
}

impl House {
    pub(crate) fn new(limits: Limits, lifecycle: Lifecycle, connections: Arc<Connections>) -> Self {
        let ledger = Arc::new(Ledger::new(limits.requests));
        Self { limits, lifecycle, connections, ledger, turn: Semaphore::new(1) }
    }

    /// The request with its whole body, and what it holds while it is answered.
    async fn receive<B>(&self, request: Request<B>, whose: u64) -> Result<(Request<Body>, Holds<'_>), Refused>
    where
        B: HttpBody<Data = Bytes>,
    {
        let (head, body) = request.into_parts();
        let named = length(&head.headers);
        if named.is_some_and(|length| length > self.limits.body) {
            return Err(Refused::TooLong);
        }
        let (mut held, others) = self.ledger.enter(whose, EACH + weight(&head)).ok_or(Refused::NoRoom)?;
        self.connections.close(&others);
        let collecting = self.collect(body, named.unwrap_or_default(), &mut held);
        let whole = tokio::time::timeout(self.limits.body_within, collecting).await;
        let whole = whole.map_err(|_| Refused::TooSlow)??;
        // Until its turn has come it may have to go for somebody smaller.
        let turn = if whole.len() > self.limits.large { Some(self.turn().await?) } else { None };
        if !held.arrived() {
            return Err(Refused::NoRoom);
        }
        Ok((Request::from_parts(head, Body::from(whole)), Holds { _room: held, _turn: turn }))
    }

    /// Waits until no other large body is being answered.
    async fn turn(&self) -> Result<SemaphorePermit<'_>, Refused> {
        match tokio::time::timeout(self.limits.body_within, self.turn.acquire()).await {
            Ok(Ok(turn)) => Ok(turn),
            _ => Err(Refused::NoRoom),
        }
    }

    /// The bytes are copied: a slice of what was read at once would keep all of that, be it a single byte.
    async fn collect<B>(&self, body: B, named: usize, held: &mut Held) -> Result<Vec<u8>, Refused>
    where
        B: HttpBody<Data = Bytes>,
    {
        let (mut body, mut whole) = (pin!(body), Vec::new());
        while let Some(frame) = poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
            let Ok(data) = frame.map_err(|_| Refused::Broken)?.into_data() else { continue };
            let needed = whole.len() + data.len();
            if needed > self.limits.body {
                return Err(Refused::TooLong);
            }
            if needed > whole.capacity() {
                // A length costs nothing to name: more than twice what is here is not set aside for it.
                let room = needed.max(named.min(2 * needed)).max(2 * whole.capacity()).min(self.limits.body);
                let others = held.grow(room - whole.capacity()).ok_or(Refused::NoRoom)?;
                self.connections.close(&others);
                whole.reserve_exact(room - whole.len());
            }
            whole.extend_from_slice(&data);
        }
        Ok(whole)
    }
}

/// Bytes of a header beside its name and value: its places in the table of headers.
const HEADER: usize = 128;

/// What a head takes in memory, about.
fn weight(head: &Parts) -> usize {
    let fields: usize = head.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + HEADER).sum();
    let authority = head.uri.authority().map_or(0, |authority| authority.as_str().len());
    let path = head.uri.path_and_query().map_or(0, |path| path.as_str().len());
    fields + authority + path + head.method.as_str().len()
}

/// What the head says of the body's length; one that cannot be counted is as good as the largest.
fn length(headers: &HeaderMap) -> Option<usize> {
    let named = headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse::<u64>().ok()?;
    Some(usize::try_from(named).unwrap_or(usize::MAX))
}

/// The router, as one connection comes to it.
#[derive(Debug, Clone)]
pub(crate) struct Guarded {
    router: Router,
    connection: Arc<Connection>,
    house: Arc<House>,
}

impl Guarded {
    pub(crate) fn new(router: Router, connection: Arc<Connection>, house: Arc<House>) -> Self {
        Self { router, connection, house }
    }

    async fn answer<B>(self, request: Request<B>, mut visit: Visit) -> Response
    where
        B: HttpBody<Data = Bytes>,
    {
        let Self { mut router, house, .. } = self;
        match house.receive(request, visit.whose()).await {
            Ok((request, _holds)) => {
                visit.work();
                let response = match router.call(request).await {
                    Ok(response) => response,
                    Err(never) => match never {},
                };
                if !response.status().is_client_error() && !response.status().is_server_error() {
                    visit.answered();
                }
                response
            }
            Err(why) => why.answer(&house.limits),
        }
    }
}

impl<B> Service<Request<B>> for Guarded
where
    B: HttpBody<Data = Bytes> + Send + 'static,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let http2 = request.version() >= Version::HTTP_2;
        let visit = self.connection.begin(http2);
        let (this, lifecycle) = (self.clone(), self.house.lifecycle.clone());
        Box::pin(async move {
            let mut response = this.answer(request, visit).await;
            if !http2 && lifecycle.stage() >= Stage::Draining {
                // The client then knows that the connection ends here. One that is closed between two requests may
                // meet the second on its way.
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok(response)
        })
    }
}
