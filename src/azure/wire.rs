//! The wire: how does one request travel to Azure and its response back?
//!
//! [`Wire`] is the only way out of this crate, in plain types. [`HttpWire`] is the real one; the simulated Azure lies
//! behind another in tests. A wire knows no tokens, no retries and no errors of Azure.

use async_trait::async_trait;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

/// Longest wait for a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// Longest body that is read, in bytes. A page of a listing is far shorter.
const LONGEST_BODY: usize = 32 << 20;
/// What we call ourselves.
const USER_AGENT: &str = concat!("napkeeper/", env!("CARGO_PKG_VERSION"));

/// Sends a request and brings its response back, whatever its status.
#[async_trait]
pub trait Wire: Send + Sync + fmt::Debug {
    /// Sends once, without retries.
    ///
    /// # Errors
    /// [`WireError`] where there is no whole response.
    async fn send(&self, request: WireRequest) -> Result<WireResponse, WireError>;

    /// Time since a fixed instant. The pace of requests is kept by it; a wire to a simulated Azure goes by its clock.
    fn elapsed(&self) -> Duration {
        START.elapsed()
    }

    /// Waits.
    async fn rest(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }
}

/// When this process first looked at a clock.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Method of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Read.
    Get,
    /// Create or replace.
    Put,
    /// Change a part.
    Patch,
    /// Take away.
    Delete,
    /// Ask for a token.
    Post,
}

impl Method {
    /// As HTTP spells it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
            Self::Post => "POST",
        }
    }
}

/// A request. Its `Debug` shows neither headers nor body: they hold tokens.
#[derive(Clone, PartialEq, Eq)]
pub struct WireRequest {
    /// Method.
    pub method: Method,
    /// The whole URL.
    pub url: String,
    /// Headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// Body; empty where there is none.
    pub body: Vec<u8>,
}

/// A response. Its `Debug` shows neither headers nor body.
#[derive(Clone, PartialEq, Eq)]
pub struct WireResponse {
    /// Status code.
    pub status: u16,
    /// Headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// Body; empty where there is none.
    pub body: Vec<u8>,
}

impl WireResponse {
    /// The value of a header, by its name in lower case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }
}

impl fmt::Debug for WireRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method.as_str(), self.url.split('?').next().unwrap_or_default())
    }
}

impl fmt::Debug for WireResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} and {} bytes", self.status, self.body.len())
    }
}

/// Why there is no whole response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The HTTP client cannot be made.
    #[error("cannot create an HTTP client: {0}")]
    Client(Arc<str>),
    /// The URL is not one that requests are sent to.
    #[error("{0}")]
    Url(&'static str),
    /// No connection.
    #[error("no connection: {0}")]
    Connect(Arc<str>),
    /// It took too long.
    #[error("timed out before the response was complete")]
    Timeout,
    /// The connection broke, or the response is no HTTP.
    #[error("connection interrupted: {0}")]
    Broken(Arc<str>),
    /// The body is longer than any that Azure sends.
    #[error("the response exceeds {LONGEST_BODY} bytes")]
    TooLong,
}

/// HTTP. Plain `http` is for this machine alone.
#[derive(Debug, Clone)]
pub struct HttpWire {
    client: reqwest::Client,
    /// For plain `http`: no proxy sees it.
    near: reqwest::Client,
    may_be_plain: fn(&IpAddr) -> bool,
}

impl HttpWire {
    /// A wire whose exchanges last at most this long each. Nothing is sent yet.
    ///
    /// # Errors
    /// [`WireError::Client`] where this machine has no roots of trust.
    pub fn new(deadline: Duration) -> Result<Self, WireError> {
        Self::with(deadline, IpAddr::is_loopback)
    }

    /// A wire to the token endpoints, one of which is a link-local address of the VM's host in plain `http`.
    pub(crate) fn for_tokens(deadline: Duration) -> Result<Self, WireError> {
        Self::with(deadline, |ip| ip.is_loopback() || matches!(ip, IpAddr::V4(ip) if ip.is_link_local()))
    }

    fn with(deadline: Duration, may_be_plain: fn(&IpAddr) -> bool) -> Result<Self, WireError> {
        // One of several may be installed already, which is fine: all of ours are this one.
        drop(rustls::crypto::ring::default_provider().install_default());
        let builder = || {
            reqwest::Client::builder()
                .connect_timeout(CONNECT.min(deadline))
                .timeout(deadline)
                .redirect(reqwest::redirect::Policy::none())
                .user_agent(USER_AGENT)
        };
        let failed = |e: reqwest::Error| WireError::Client(e.to_string().into());
        let client = builder().build().map_err(failed)?;
        let near = builder().no_proxy().build().map_err(failed)?;
        Ok(Self { client, near, may_be_plain })
    }

    /// The client for a URL.
    fn client(&self, url: &reqwest::Url) -> Result<&reqwest::Client, WireError> {
        if url.scheme() == "https" {
            return Ok(&self.client);
        }
        let ip = url.host_str().and_then(|host| host.trim_matches(['[', ']']).parse().ok());
        let near = url.host_str() == Some("localhost") || ip.is_some_and(|ip| (self.may_be_plain)(&ip));
        if url.scheme() == "http" && near {
            Ok(&self.near)
        } else {
            Err(WireError::Url("only https is allowed for remote hosts"))
        }
    }
}

#[async_trait]
impl Wire for HttpWire {
    async fn send(&self, request: WireRequest) -> Result<WireResponse, WireError> {
        let url = reqwest::Url::parse(&request.url).map_err(|_| WireError::Url("not a valid URL"))?;
        let method = match request.method {
            Method::Get => reqwest::Method::GET,
            Method::Put => reqwest::Method::PUT,
            Method::Patch => reqwest::Method::PATCH,
            Method::Delete => reqwest::Method::DELETE,
            Method::Post => reqwest::Method::POST,
        };
        let mut builder = self.client(&url)?.request(method, url);
        for (name, value) in &request.headers {
            builder = builder.header(name, value);
        }
        let mut response = builder.body(request.body).send().await.map_err(broken)?;
        let header = |(name, value): (&reqwest::header::HeaderName, &reqwest::header::HeaderValue)| {
            Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned()))
        };
        let (status, headers) = (response.status().as_u16(), response.headers().iter().filter_map(header).collect());
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(broken)? {
            if body.len() + chunk.len() > LONGEST_BODY {
                return Err(WireError::TooLong);
            }
            body.extend_from_slice(&chunk);
        }
        Ok(WireResponse { status, headers, body })
    }
}

/// The URL stays out of the text: its query may hold a token.
fn broken(error: reqwest::Error) -> WireError {
    let error = error.without_url();
    if error.is_timeout() {
        return WireError::Timeout;
    }
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(&error);
    // The chain is short; the bound is against one that is not.
    for _ in 0..8 {
        let Some(inner) = cause else { break };
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    if error.is_connect() { WireError::Connect(text.into()) } else { WireError::Broken(text.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_http_is_for_this_machine_alone() {
        let wire = HttpWire::new(Duration::from_secs(1)).unwrap();
        let tokens = HttpWire::for_tokens(Duration::from_secs(1)).unwrap();
        let goes = |wire: &HttpWire, url: &str| wire.client(&url.parse().unwrap()).is_ok();
        for (url, ours, token) in [
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
            assert_eq!((goes(&wire, url), goes(&tokens, url)), (ours, token), "{url}");
        }
    }

    #[test]
    fn what_is_shown_has_no_token() {
        let headers = vec![("authorization".to_owned(), "Bearer secret".to_owned())];
        let url = "https://a/b?sig=secret".to_owned();
        let request = WireRequest { method: Method::Put, url, headers: headers.clone(), body: b"secret".to_vec() };
        assert_eq!(format!("{request:?}"), "PUT https://a/b");
        assert_eq!(format!("{:?}", WireResponse { status: 200, headers, body: b"secret".to_vec() }), "200 and 6 bytes");
    }
}
