//! Receives each request completely and within the limits, before its handler runs.

use crate::lifecycle::Lifecycle;
use crate::lifecycle::Stage;
use crate::server::activity::{ConnectionActivity, OpenRequest};
use crate::server::limits::Limits;
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

/// Memory of a request besides its bytes: a task, a stream, buffers. A generous estimate.
const REQUEST_OVERHEAD: usize = 1 << 10;
/// Bytes of a header besides its name and value: its entries in the header table.
const HEADER_OVERHEAD: usize = 128;

/// The limits of a server, and what its connections share of them.
#[derive(Debug)]
pub(crate) struct ServerLimits {
    pub(crate) limits: Limits,
    lifecycle: Lifecycle,
    /// Bytes of requests: half for those with small bodies, half for those whose bodies are, or may become, large, so
    /// that slow large bodies do not keep reviews of pods out.
    small: Semaphore,
    large: Semaphore,
    /// Large bodies are answered one at a time.
    large_body: Semaphore,
}

/// The permits of a request while it is processed.
struct Permits<'a> {
    _bytes: SemaphorePermit<'a>,
    _large_body: Option<SemaphorePermit<'a>>,
}

/// Why a request is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rejection {
    TooLong,
    TooSlow,
    /// Without `Retry-After`: with it, the API server would make its client wait for all of the hook's timeout.
    Overloaded,
    Broken,
}

impl Rejection {
    fn answer(self, limits: &Limits) -> Response {
        let (status, message) = match self {
            Self::TooLong => {
                (StatusCode::PAYLOAD_TOO_LARGE, format!("the request body exceeds {} bytes\n", limits.body))
            }
            Self::TooSlow => (
                StatusCode::REQUEST_TIMEOUT,
                format!("the request body was incomplete after {:?}\n", limits.body_within),
            ),
            Self::Overloaded => (StatusCode::SERVICE_UNAVAILABLE, "too many concurrent requests\n".to_owned()),
            Self::Broken => (StatusCode::BAD_REQUEST, "the request body was interrupted\n".to_owned()),
        };
        (status, message).into_response()
    }
}

impl ServerLimits {
    pub(crate) fn new(limits: Limits, lifecycle: Lifecycle) -> Self {
        let half = || Semaphore::new(limits.requests / 2);
        Self { limits, lifecycle, small: half(), large: half(), large_body: Semaphore::new(1) }
    }

    /// The request with its whole body, and its permits.
    async fn receive<B>(
        &self,
        request: Request<B>,
        open_request: &mut OpenRequest,
    ) -> Result<(Request<Body>, Permits<'_>), Rejection>
    where
        B: HttpBody<Data = Bytes>,
    {
        let (head, body) = request.into_parts();
        let named = body.size_hint().exact().map(|length| usize::try_from(length).unwrap_or(usize::MAX));
        if named.is_some_and(|length| length > self.limits.body) {
            return Err(Rejection::TooLong);
        }
        let bytes = if named.is_some_and(|length| length <= self.limits.large) { &self.small } else { &self.large };
        let whole = tokio::time::timeout(self.limits.body_within, self.collect(body, head_size(&head), bytes)).await;
        let (whole, held) = whole.map_err(|_| Rejection::TooSlow)??;
        open_request.received();
        let large_body = if whole.len() > self.limits.large { Some(self.large_body_permit().await?) } else { None };
        Ok((Request::from_parts(head, Body::from(whole)), Permits { _bytes: held, _large_body: large_body }))
    }

    /// Waits until no other large body is being processed.
    async fn large_body_permit(&self) -> Result<SemaphorePermit<'_>, Rejection> {
        match tokio::time::timeout(self.limits.body_within, self.large_body.acquire()).await {
            Ok(Ok(permit)) => Ok(permit),
            _ => Err(Rejection::Overloaded),
        }
    }

    /// The bytes are copied: even a one-byte slice would keep the whole read buffer.
    async fn collect<'a, B>(
        &self,
        body: B,
        head: usize,
        bytes: &'a Semaphore,
    ) -> Result<(Vec<u8>, SemaphorePermit<'a>), Rejection>
    where
        B: HttpBody<Data = Bytes>,
    {
        let take = |length: usize| {
            let length = u32::try_from(length).map_err(|_| Rejection::TooLong)?;
            bytes.try_acquire_many(length).map_err(|_| Rejection::Overloaded)
        };
        let (mut body, mut whole, mut held) = (pin!(body), Vec::new(), take(head)?);
        while let Some(frame) = poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
            let Ok(data) = frame.map_err(|_| Rejection::Broken)?.into_data() else { continue };
            if whole.len() + data.len() > self.limits.body {
                return Err(Rejection::TooLong);
            }
            held.merge(take(data.len())?);
            whole.extend_from_slice(&data);
        }
        Ok((whole, held))
    }
}

/// The approximate memory of a request besides its body.
fn head_size(head: &Parts) -> usize {
    let fields = head.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + HEADER_OVERHEAD);
    REQUEST_OVERHEAD + fields.sum::<usize>() + head.uri.path_and_query().map_or(0, |path| path.as_str().len())
}

/// The router for one connection, behind the limits.
#[derive(Debug, Clone)]
pub(crate) struct LimitedService {
    router: Router,
    connection: Arc<ConnectionActivity>,
    limits: Arc<ServerLimits>,
}

impl LimitedService {
    pub(crate) fn new(router: Router, connection: Arc<ConnectionActivity>, limits: Arc<ServerLimits>) -> Self {
        Self { router, connection, limits }
    }

    async fn answer<B>(self, request: Request<B>, open_request: &mut OpenRequest) -> Response
    where
        B: HttpBody<Data = Bytes>,
    {
        let Self { mut router, limits, .. } = self;
        match limits.receive(request, open_request).await {
            Ok((request, _holds)) => match router.call(request).await {
                Ok(response) => response,
                Err(never) => match never {},
            },
            Err(error) => error.answer(&limits.limits),
        }
    }
}

impl<B> Service<Request<B>> for LimitedService
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
        let mut open_request = self.connection.begin(http2);
        let (this, lifecycle) = (self.clone(), self.limits.lifecycle.clone());
        Box::pin(async move {
            let mut response = this.answer(request, &mut open_request).await;
            drop(open_request);
            if !http2 && lifecycle.stage() >= Stage::Draining {
                // The client then knows that the connection ends here. One that is closed between two requests may
                // meet the second on its way.
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok(response)
        })
    }
}
