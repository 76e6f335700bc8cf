//! Guard: how does a request come in whole, within the limits, before anybody works on it?

use crate::connections::Connection;
use crate::lifecycle::Lifecycle;
use crate::limits::Limits;
use crate::stage::Stage;
use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::http::header::CONNECTION;
use axum::http::request::Parts;
use axum::http::{HeaderValue, Request, StatusCode, Version};
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
/// Bytes of a header beside its name and value: its places in the table of headers.
const HEADER: usize = 128;

/// What all connections of a server share.
#[derive(Debug)]
pub(crate) struct House {
    pub(crate) limits: Limits,
    lifecycle: Lifecycle,
    /// Bytes of requests: one half is for those with small bodies, the other for those whose bodies are, or may become,
    /// large. So slow large bodies do not keep reviews of pods out.
    small: Semaphore,
    large: Semaphore,
    /// The turn of a large body to be answered.
    turn: Semaphore,
}

/// What a request holds while it is answered.
struct Holds<'a> {
    _bytes: SemaphorePermit<'a>,
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
    pub(crate) fn new(limits: Limits, lifecycle: Lifecycle) -> Self {
        let half = || Semaphore::new(limits.requests / 2);
        Self { limits, lifecycle, small: half(), large: half(), turn: Semaphore::new(1) }
    }

    /// The request with its whole body, and what it holds while it is answered.
    async fn receive<B>(&self, request: Request<B>) -> Result<(Request<Body>, Holds<'_>), Refused>
    where
        B: HttpBody<Data = Bytes>,
    {
        let (head, body) = request.into_parts();
        let named = body.size_hint().exact().map(|length| usize::try_from(length).unwrap_or(usize::MAX));
        if named.is_some_and(|length| length > self.limits.body) {
            return Err(Refused::TooLong);
        }
        let bytes = if named.is_some_and(|length| length <= self.limits.large) { &self.small } else { &self.large };
        let whole = tokio::time::timeout(self.limits.body_within, self.collect(body, weight(&head), bytes)).await;
        let (whole, held) = whole.map_err(|_| Refused::TooSlow)??;
        let turn = if whole.len() > self.limits.large { Some(self.turn().await?) } else { None };
        Ok((Request::from_parts(head, Body::from(whole)), Holds { _bytes: held, _turn: turn }))
    }

    /// Waits until no other large body is being answered.
    async fn turn(&self) -> Result<SemaphorePermit<'_>, Refused> {
        match tokio::time::timeout(self.limits.body_within, self.turn.acquire()).await {
            Ok(Ok(turn)) => Ok(turn),
            _ => Err(Refused::NoRoom),
        }
    }

    /// The bytes are copied: a slice of what was read at once would keep all of that, be it a single byte.
    async fn collect<'a, B>(
        &self,
        body: B,
        head: usize,
        bytes: &'a Semaphore,
    ) -> Result<(Vec<u8>, SemaphorePermit<'a>), Refused>
    where
        B: HttpBody<Data = Bytes>,
    {
        let take = |length: usize| {
            let length = u32::try_from(length).map_err(|_| Refused::TooLong)?;
            bytes.try_acquire_many(length).map_err(|_| Refused::NoRoom)
        };
        let (mut body, mut whole, mut held) = (pin!(body), Vec::new(), take(head)?);
        while let Some(frame) = poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
            let Ok(data) = frame.map_err(|_| Refused::Broken)?.into_data() else { continue };
            if whole.len() + data.len() > self.limits.body {
                return Err(Refused::TooLong);
            }
            held.merge(take(data.len())?);
            whole.extend_from_slice(&data);
        }
        Ok((whole, held))
    }
}

/// What a request takes in memory beside its body, about.
fn weight(head: &Parts) -> usize {
    let fields = head.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + HEADER);
    EACH + fields.sum::<usize>() + head.uri.path_and_query().map_or(0, |path| path.as_str().len())
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

    async fn answer<B>(self, request: Request<B>) -> Response
    where
        B: HttpBody<Data = Bytes>,
    {
        let Self { mut router, house, .. } = self;
        match house.receive(request).await {
            Ok((request, _holds)) => match router.call(request).await {
                Ok(response) => response,
                Err(never) => match never {},
            },
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
            let mut response = this.answer(request).await;
            drop(visit);
            if !http2 && lifecycle.stage() >= Stage::Draining {
                // The client then knows that the connection ends here. One that is closed between two requests may
                // meet the second on its way.
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok(response)
        })
    }
}
