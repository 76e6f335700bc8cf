//! Sends single HTTP requests to Azure.
//!
//! Everything that leaves this crate passes a [`Transport`]. [`HttpTransport`] is the real one; tests have another in
//! front of the simulated Azure. A transport knows no tokens, no retries and no errors of Azure.

use async_trait::async_trait;
pub use reqwest::Method;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

/// Longest wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest body that is read, in bytes. A page of a listing is far shorter.
const MAX_BODY: usize = 32 << 20;
const USER_AGENT: &str = concat!("napkeeper/", env!("CARGO_PKG_VERSION"));

/// Sends a request and returns its response, of any status.
#[async_trait]
pub trait Transport: Send + Sync + fmt::Debug {
    /// Sends once, without retries.
    ///
    /// # Errors
    /// [`TransportError`] where there is no whole response.
    async fn send(&self, request: HttpRequest) -> Result<HttpResponse, TransportError>;

    /// Time since a fixed instant, for rate limits; a transport to a simulated Azure returns its clock's.
    fn elapsed(&self) -> Duration {
        START.elapsed()
    }

    /// Waits.
    async fn sleep(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }
}

/// When [`Transport::elapsed`] was first called.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// A request. Its `Debug` shows neither headers nor body: they hold tokens.
#[derive(Clone, PartialEq, Eq)]
pub struct HttpRequest {
    /// Method.
    pub method: Method,
    /// The whole URL.
    pub url: String,
    /// Headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// Body; empty if there is none.
    pub body: Vec<u8>,
}

/// A response. Its `Debug` shows neither headers nor body.
#[derive(Clone, PartialEq, Eq)]
pub struct HttpResponse {
    /// Status code.
    pub status: u16,
    /// Headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// Body; empty if there is none.
    pub body: Vec<u8>,
}

impl HttpResponse {
    /// The value of a header, by its name in lower case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }
}

impl fmt::Debug for HttpRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.url.split('?').next().unwrap_or_default())
    }
}

impl fmt::Debug for HttpResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} and {} bytes", self.status, self.body.len())
    }
}

/// Why there is no whole response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TransportError {
    /// The HTTP client cannot be made.
    #[error("cannot create an HTTP client: {0}")]
    Client(Arc<str>),
    /// The URL is not one that requests are sent to.
    #[error("{0}")]
    Url(&'static str),
    /// There is no connection.
    #[error("no connection: {0}")]
    Connect(Arc<str>),
    /// It took too long.
    #[error("timed out before the response was complete")]
    Timeout,
    /// The connection broke, or the response is no HTTP.
    #[error("connection interrupted: {0}")]
    Broken(Arc<str>),
    /// The body is longer than any that Azure sends.
    #[error("the response exceeds {MAX_BODY} bytes")]
    TooLong,
}

/// HTTP. Plain `http` is allowed on this machine alone.
#[derive(Debug, Clone)]
pub struct HttpTransport {
    client: reqwest::Client,
    /// For plain `http`, without a proxy.
    direct: reqwest::Client,
    allows_plain_http: fn(&IpAddr) -> bool,
}

impl HttpTransport {
    /// A transport whose exchanges last at most this long each. Nothing is sent yet.
    ///
    /// # Errors
    /// [`TransportError::Client`] if this machine has no trusted root certificates.
    pub fn new(deadline: Duration) -> Result<Self, TransportError> {
        Self::with(deadline, IpAddr::is_loopback)
    }

    /// A transport to the token endpoints, one of which is a link-local address of the VM's host in plain `http`.
    pub(crate) fn for_tokens(deadline: Duration) -> Result<Self, TransportError> {
        Self::with(deadline, |ip| ip.is_loopback() || matches!(ip, IpAddr::V4(ip) if ip.is_link_local()))
    }

    fn with(deadline: Duration, allows_plain_http: fn(&IpAddr) -> bool) -> Result<Self, TransportError> {
        // A provider may be installed already, which is fine: all of ours are the same.
        drop(rustls::crypto::ring::default_provider().install_default());
        let builder = || {
            reqwest::Client::builder()
                .connect_timeout(CONNECT_TIMEOUT.min(deadline))
                .timeout(deadline)
                .redirect(reqwest::redirect::Policy::none())
                .user_agent(USER_AGENT)
        };
        let failed = |e: reqwest::Error| TransportError::Client(e.to_string().into());
        let client = builder().build().map_err(failed)?;
        let direct = builder().no_proxy().build().map_err(failed)?;
        Ok(Self { client, direct, allows_plain_http })
    }

    /// The client for a URL.
    fn client(&self, url: &reqwest::Url) -> Result<&reqwest::Client, TransportError> {
        if url.scheme() == "https" {
            return Ok(&self.client);
        }
        let ip = url.host_str().and_then(|host| host.trim_matches(['[', ']']).parse().ok());
        let is_allowed = url.host_str() == Some("localhost") || ip.is_some_and(|ip| (self.allows_plain_http)(&ip));
        if url.scheme() == "http" && is_allowed {
            Ok(&self.direct)
        } else {
            Err(TransportError::Url("only https is allowed for remote hosts"))
        }
    }
}

#[async_trait]
impl Transport for HttpTransport {
    async fn send(&self, request: HttpRequest) -> Result<HttpResponse, TransportError> {
        let url = reqwest::Url::parse(&request.url).map_err(|_| TransportError::Url("not a valid URL"))?;
        let mut builder = self.client(&url)?.request(request.method, url);
        for (name, value) in &request.headers {
            builder = builder.header(name, value);
        }
        let mut response = builder.body(request.body).send().await.map_err(transport_error)?;
        let header = |(name, value): (&reqwest::header::HeaderName, &reqwest::header::HeaderValue)| {
            Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned()))
        };
        let (status, headers) = (response.status().as_u16(), response.headers().iter().filter_map(header).collect());
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(transport_error)? {
            if body.len() + chunk.len() > MAX_BODY {
                return Err(TransportError::TooLong);
            }
            body.extend_from_slice(&chunk);
        }
        Ok(HttpResponse { status, headers, body })
    }
}

/// The URL stays out of the text: its query may hold a token.
fn transport_error(error: reqwest::Error) -> TransportError {
    let error = error.without_url();
    if error.is_timeout() {
        return TransportError::Timeout;
    }
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(&error);
    // The chain is short; the bound is against one that is not.
    for _ in 0..8 {
        let Some(inner) = cause else { break };
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    if error.is_connect() { TransportError::Connect(text.into()) } else { TransportError::Broken(text.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_http_is_for_this_machine_alone() {
        let wire = HttpTransport::new(Duration::from_secs(1)).unwrap();
        let tokens = HttpTransport::for_tokens(Duration::from_secs(1)).unwrap();
        let goes = |wire: &HttpTransport, url: &str| wire.client(&url.parse().unwrap()).is_ok();
        for (url, goes_there, token) in [
            ("https://management.azure.com/", true, true),
            ("http://management.azure.com/", false, false),
            ("http://127.0.0.1:8080/", true, true),
            ("http://[::1]:8080/", true, true),
            ("http://localhost/", true, true),
            ("http://localhost.example/", false, false),
            ("http://169.254.169.254/metadata", false, true),
            ("http://10.0.0.1/", false, false),
            ("ftp://127.0.0.1/", false, false),
        ] {
            assert_eq!((goes(&wire, url), goes(&tokens, url)), (goes_there, token), "{url}");
        }
    }

    #[test]
    fn debug_output_has_no_token() {
        let headers = vec![("authorization".to_owned(), "Bearer secret".to_owned())];
        let url = "https://a/b?sig=secret".to_owned();
        let request = HttpRequest { method: Method::PUT, url, headers: headers.clone(), body: b"secret".to_vec() };
        assert_eq!(format!("{request:?}"), "PUT https://a/b");
        assert_eq!(format!("{:?}", HttpResponse { status: 200, headers, body: b"secret".to_vec() }), "200 and 6 bytes");
    }
}
