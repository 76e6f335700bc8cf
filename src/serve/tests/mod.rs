//! Servers on real sockets: stopping, certificates, readiness.

mod hostile;

use crate::{
    CertificatePair, Certificates, Component, Health, Lifecycle, Limits, RunError, ServeError, TlsError, TlsMetrics,
    bind, metrics, run, serve_plain, serve_tls,
};
use axum::Router;
use axum::routing::get;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

pub(crate) const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);
pub(crate) const LONG: Duration = Duration::from_secs(20);

fn slow_router() -> Router {
    let slow = || async {
        sleep(Duration::from_millis(500)).await;
        "done"
    };
    let never = || async {
        std::future::pending::<()>().await;
        "never"
    };
    Router::new().route("/slow", get(slow)).route("/never", get(never)).route("/", get(|| async { "hello" }))
}

fn plain(lifecycle: &Lifecycle) -> (String, JoinHandle<Result<(), ServeError>>) {
    let listener = bind(LOOPBACK).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let lifecycle = lifecycle.clone();
    let task = tokio::spawn(async move { serve_plain(&lifecycle, listener, slow_router(), Limits::default()).await });
    (url, task)
}

#[tokio::test]
async fn draining_finishes_an_open_request_and_refuses_new_ones() {
    let lifecycle = Lifecycle::new(LONG);
    let (url, server) = plain(&lifecycle);
    let open = tokio::spawn(reqwest::get(format!("{url}/slow")));
    sleep(Duration::from_millis(150)).await;
    lifecycle.signal();
    sleep(Duration::from_millis(50)).await;
    assert!(reqwest::get(&url).await.unwrap_err().is_connect());
    assert_eq!(open.await.unwrap().unwrap().text().await.unwrap(), "done");
    timeout(LONG, server).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn a_second_signal_ends_an_open_request_at_once() {
    let lifecycle = Lifecycle::new(LONG);
    let (url, server) = plain(&lifecycle);
    let open = tokio::spawn(reqwest::get(format!("{url}/never")));
    sleep(Duration::from_millis(150)).await;
    lifecycle.signal();
    sleep(Duration::from_millis(50)).await;
    assert!(!server.is_finished());
    lifecycle.signal();
    timeout(Duration::from_secs(2), server).await.unwrap().unwrap().unwrap();
    assert!(timeout(Duration::from_secs(2), open).await.unwrap().unwrap().is_err());
}

#[tokio::test]
async fn the_grace_time_ends_hanging_tasks() {
    let lifecycle = Lifecycle::new(Duration::from_millis(100));
    let stuck = Component::new("stuck", std::future::pending::<Result<(), Infallible>>());
    let good = lifecycle.clone();
    let good = Component::new("good", async move {
        good.draining().await;
        Ok::<_, Infallible>(())
    });
    lifecycle.drain();
    let error = timeout(LONG, run(&lifecycle, vec![stuck, good])).await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), "stuck did not stop within the grace period");
}

#[tokio::test]
async fn a_second_signal_ends_hanging_tasks() {
    let lifecycle = Lifecycle::new(LONG);
    let stuck = Component::new("stuck", std::future::pending::<Result<(), Infallible>>());
    let running = run(&lifecycle, vec![stuck]);
    let signals = async {
        lifecycle.signal();
        sleep(Duration::from_millis(200)).await;
        lifecycle.signal();
    };
    let start = std::time::Instant::now();
    let (ended, ()) = timeout(LONG / 2, async { tokio::join!(running, signals) }).await.unwrap();
    assert_eq!(ended.unwrap_err().to_string(), "stuck did not stop before the second signal");
    assert!(start.elapsed() >= Duration::from_millis(200), "the first signal waits for the grace period");
}

#[tokio::test]
async fn a_client_that_is_cut_off_after_the_grace_time_is_no_failure() {
    let lifecycle = Lifecycle::new(Duration::from_millis(200));
    let listener = bind(LOOPBACK).unwrap();
    let url = format!("http://{}/never", listener.local_addr().unwrap());
    let (router, handle) = (slow_router(), lifecycle.clone());
    let server = async move { serve_plain(&handle, listener, router, Limits::default()).await };
    let open = tokio::spawn(reqwest::get(url));
    let running = run(&lifecycle, vec![Component::new("server", server)]);
    let signalled = async {
        sleep(Duration::from_millis(150)).await;
        lifecycle.drain();
    };
    let (ended, ()) = timeout(LONG, async { tokio::join!(running, signalled) }).await.unwrap();
    ended.unwrap();
    assert!(open.await.unwrap().is_err());
}

#[tokio::test]
async fn a_part_that_fails_stops_the_others_and_is_named() {
    let lifecycle = Lifecycle::new(LONG);
    let waiting = lifecycle.clone();
    let good = Component::new("good", async move {
        waiting.draining().await;
        Ok::<_, Infallible>(())
    });
    let bad = Component::new("bad", async { Err::<(), _>("no luck") });
    let error = timeout(LONG, run(&lifecycle, vec![good, bad])).await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), "bad failed: no luck");
    let panics = Component::new("panics", async {
        assert!(std::env::args().count() == 0, "on purpose");
        Ok::<_, Infallible>(())
    });
    let error = timeout(LONG, run(&Lifecycle::new(LONG), vec![panics])).await.unwrap().unwrap_err();
    assert!(matches!(error, RunError::Panicked { component: "panics" }), "{error}");
}

#[tokio::test]
async fn readiness_names_failing_checks() {
    let lifecycle = Lifecycle::new(LONG);
    let health = Health::new(&lifecycle);
    let check = health.check("cache");
    let listener = bind(LOOPBACK).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (router, handle) = (health.router(), lifecycle.clone());
    let server = tokio::spawn(async move { serve_plain(&handle, listener, router, Limits::default()).await });
    let ask = |path: &str| {
        let url = format!("{url}{path}");
        async move {
            let answer = reqwest::get(url).await.unwrap();
            (answer.status().as_u16(), answer.text().await.unwrap())
        }
    };
    let not_ready = "[-] stage: the process is starting\n[-] cache: not started\nnot ready\n";
    assert_eq!(ask("/readyz").await, (503, not_ready.to_owned()));
    assert_eq!(ask("/healthz").await.0, 200);
    lifecycle.ready();
    check.fail("the watch of Node is broken");
    assert_eq!(ask("/readyz").await, (503, "[-] cache: the watch of Node is broken\nnot ready\n".to_owned()));
    check.pass();
    assert_eq!(ask("/readyz").await, (200, "ok\n".to_owned()));
    assert_eq!(ask("/readyz?verbose").await, (200, "[+] stage\n[+] cache\nok\n".to_owned()));
    assert_eq!(ask("/metrics").await.0, 404, "a scrape must not hold up a probe");
    lifecycle.drain();
    assert!(!health.is_ready());
    timeout(LONG, server).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn metrics_are_served() {
    let (lifecycle, mut registry) = (Lifecycle::new(LONG), metrics::registry());
    TlsMetrics::register(&mut registry);
    let listener = bind(LOOPBACK).unwrap();
    let url = format!("http://{}/metrics", listener.local_addr().unwrap());
    tokio::spawn(
        async move { serve_plain(&lifecycle, listener, metrics::router(vec![registry]), Limits::default()).await },
    );
    let text = reqwest::get(url).await.unwrap().text().await.unwrap();
    assert!(text.contains("napkeeper_tls_certificate_expiry_timestamp_seconds 0"), "{text}");
}

/// Takes a while for another scrape to come, and knows how many are encoding it.
#[derive(Debug, Default)]
struct Slow {
    encoding: AtomicUsize,
    most: AtomicUsize,
}

impl Collector for Slow {
    fn encode(&self, _: DescriptorEncoder<'_>) -> std::fmt::Result {
        self.most.fetch_max(self.encoding.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        let begun = Instant::now();
        while self.encoding.load(Ordering::SeqCst) == 1 && begun.elapsed() < Duration::from_millis(50) {
            std::thread::yield_now();
        }
        self.encoding.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    }
}

#[tokio::test]
async fn one_scrape_is_answered_at_a_time() {
    drop(rustls::crypto::ring::default_provider().install_default());
    let (lifecycle, mut registry, slow) = (Lifecycle::new(LONG), metrics::registry(), Arc::new(Slow::default()));
    registry.register_collector(Box::new(Arc::clone(&slow)));
    let listener = bind(LOOPBACK).unwrap();
    let url = format!("http://{}/metrics", listener.local_addr().unwrap());
    tokio::spawn(
        async move { serve_plain(&lifecycle, listener, metrics::router(vec![registry]), Limits::default()).await },
    );
    let scrapes: Vec<_> = (0..4).map(|_| tokio::spawn(reqwest::get(url.clone()))).collect();
    for scrape in scrapes {
        assert_eq!(scrape.await.unwrap().unwrap().status(), 200);
    }
    assert_eq!(slow.most.load(Ordering::SeqCst), 1);
}

/// A certificate for `localhost`, identified by its serial number, written to files.
pub(crate) fn write_pair(folder: &Path, serial: u8) -> (PathBuf, PathBuf, String) {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.serial_number = Some(vec![serial].into());
    let certificate = params.self_signed(&key).unwrap().pem();
    let files = (folder.join("tls.crt"), folder.join("tls.key"));
    std::fs::write(&files.0, &certificate).unwrap();
    std::fs::write(&files.1, key.serialize_pem()).unwrap();
    (files.0, files.1, certificate)
}

pub(crate) fn client(root: &str) -> reqwest::Client {
    drop(rustls::crypto::ring::default_provider().install_default());
    let root = reqwest::Certificate::from_pem(root.as_bytes()).unwrap();
    reqwest::Client::builder().add_root_certificate(root).pool_max_idle_per_host(0).build().unwrap()
}

#[tokio::test]
async fn a_changed_certificate_is_taken_up_and_a_bad_one_is_not() {
    let folder = TempDir::new().unwrap();
    let (certificate, key, first) = write_pair(folder.path(), 1);
    let mut registry = metrics::registry();
    let tls_metrics = TlsMetrics::register(&mut registry);
    let certificates = Certificates::load(&certificate, &key, None).unwrap();
    let listener = bind(LOOPBACK).unwrap();
    let url = format!("https://localhost:{}", listener.local_addr().unwrap().port());
    let lifecycle = Lifecycle::new(LONG);
    let handle = lifecycle.clone();
    let server = tokio::spawn(async move {
        serve_tls(&handle, listener, slow_router(), Limits::default(), certificates.with_metrics(tls_metrics)).await
    });
    let answer = client(&first).get(&url).send().await.unwrap();
    assert_eq!(answer.version(), reqwest::Version::HTTP_2);
    std::fs::write(&key, "no key").unwrap();
    counted(&registry, "napkeeper_tls_reloads_total{result=\"refused\"} 1").await;
    client(&first).get(&url).send().await.unwrap();
    let (_, _, second) = write_pair(folder.path(), 2);
    counted(&registry, "napkeeper_tls_reloads_total{result=\"loaded\"} 1").await;
    client(&second).get(&url).send().await.unwrap();
    client(&first).get(&url).send().await.unwrap_err();
    lifecycle.drain();
    timeout(LONG, server).await.unwrap().unwrap().unwrap();
}

async fn counted(registry: &prometheus_client::registry::Registry, line: &str) {
    let mut text = String::new();
    for _ in 0..100 {
        sleep(Duration::from_millis(100)).await;
        text.clear();
        prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
        if text.contains(line) {
            return;
        }
    }
    panic!("{line} is not in\n{text}");
}

#[test]
fn certificates_that_cannot_be_served_name_the_file() {
    let (one, two) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let (certificate, key, _) = write_pair(one.path(), 1);
    let (_, other_key, _) = write_pair(two.path(), 2);
    assert!(Certificates::load(&certificate, &key, None).is_ok());
    let error = |certificate: &Path, key: &Path| Certificates::load(certificate, key, None).unwrap_err();
    assert!(matches!(error(&certificate, &other_key), TlsError::Mismatch { .. }));
    let missing = one.path().join("none");
    let text = error(&missing, &key).to_string();
    assert!(text.contains("certificate") && text.contains(&*missing.to_string_lossy()), "{text}");
    assert!(matches!(error(&key, &key), TlsError::Pem { part: "certificate", .. }));
    assert!(matches!(error(&certificate, &certificate), TlsError::Pem { part: "key", .. }));
}

#[tokio::test]
async fn a_silent_connection_is_closed() {
    use tokio::io::AsyncReadExt;
    let lifecycle = Lifecycle::new(LONG);
    let listener = bind(LOOPBACK).unwrap();
    let address = listener.local_addr().unwrap();
    // Only this limit may close it: the others are longer than the test waits.
    let limits = Limits { head_within: Duration::from_millis(400), handshake: LONG, idle: LONG, ..Limits::default() };
    let server = tokio::spawn(async move { serve_plain(&lifecycle, listener, slow_router(), limits).await });
    let start = std::time::Instant::now();
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    assert_eq!(reqwest::get(format!("http://{address}/")).await.unwrap().text().await.unwrap(), "hello");
    let mut rest = Vec::new();
    timeout(LONG / 2, stream.read_to_end(&mut rest)).await.unwrap().unwrap();
    assert!(start.elapsed() >= limits.head_within, "closed after {:?}", start.elapsed());
    assert_eq!(rest, b"", "nothing was requested, so nothing is answered");
    assert_eq!(reqwest::get(format!("http://{address}/")).await.unwrap().text().await.unwrap(), "hello");
    server.abort();
}

#[tokio::test]
async fn a_pair_that_is_handed_over_is_served_from_then_on() {
    let folder = TempDir::new().unwrap();
    let (certificate, key, first) = write_pair(folder.path(), 1);
    let pair = CertificatePair::new(std::fs::read(certificate).unwrap(), std::fs::read(key).unwrap());
    let mut registry = metrics::registry();
    let tls_metrics = TlsMetrics::register(&mut registry);
    let lifecycle = Lifecycle::new(LONG);
    let check = Health::new(&lifecycle).check("certificate");
    let (hand, handed) = tokio::sync::watch::channel(None);
    let certificates = Certificates::from_channel("a Secret", handed, None).unwrap().with_check(check.clone());
    let listener = bind(LOOPBACK).unwrap();
    let url = format!("https://localhost:{}", listener.local_addr().unwrap().port());
    let handle = lifecycle.clone();
    let server = tokio::spawn(async move {
        serve_tls(&handle, listener, slow_router(), Limits::default(), certificates.with_metrics(tls_metrics)).await
    });
    client(&first).get(&url).send().await.unwrap_err();
    sleep(Duration::from_millis(50)).await;
    assert_eq!(check.failure().as_deref(), Some("no certificate to serve yet"));
    hand.send_replace(Some(pair.clone()));
    counted(&registry, "napkeeper_tls_reloads_total{result=\"loaded\"} 1").await;
    client(&first).get(&url).send().await.unwrap();
    assert_eq!(check.failure(), None);
    // A bad one changes nothing.
    hand.send_replace(Some(CertificatePair::new(pair.certificate().to_vec(), b"no key".to_vec())));
    counted(&registry, "napkeeper_tls_reloads_total{result=\"refused\"} 1").await;
    client(&first).get(&url).send().await.unwrap();
    lifecycle.drain();
    timeout(LONG, server).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn only_clients_of_the_named_authority_are_served() {
    let folder = TempDir::new().unwrap();
    let (certificate, key, root) = write_pair(folder.path(), 1);
    let params = |name: &str| {
        let mut params = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params
    };
    let identity = |authority: &rcgen::Issuer<'_, rcgen::KeyPair>| {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = params("apiserver");
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&key, authority).unwrap().pem();
        reqwest::Identity::from_pem(format!("{certificate}{}", key.serialize_pem()).as_bytes()).unwrap()
    };
    let authority = || {
        let mut params = params("clients");
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = rcgen::KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        (rcgen::Issuer::new(params, key), pem)
    };
    let ((trusted, pem), (untrusted, _)) = (authority(), authority());
    let clients = folder.path().join("clients.crt");
    std::fs::write(&clients, "nothing").unwrap();
    let error = Certificates::load(&certificate, &key, Some(&clients)).unwrap_err().to_string();
    assert!(error.contains("no client authority in") && error.contains("clients.crt"), "{error}");
    std::fs::write(&clients, pem).unwrap();
    let certificates = Certificates::load(&certificate, &key, Some(&clients)).unwrap();
    let listener = bind(LOOPBACK).unwrap();
    let url = format!("https://localhost:{}", listener.local_addr().unwrap().port());
    let lifecycle = Lifecycle::new(LONG);
    let (handle, tls) = (lifecycle.clone(), certificates);
    let server = tokio::spawn(async move { serve_tls(&handle, listener, slow_router(), Limits::default(), tls).await });
    let with = |identity: reqwest::Identity| {
        let root = reqwest::Certificate::from_pem(root.as_bytes()).unwrap();
        reqwest::Client::builder().add_root_certificate(root).identity(identity).build().unwrap()
    };
    drop(rustls::crypto::ring::default_provider().install_default());
    assert_eq!(with(identity(&trusted)).get(&url).send().await.unwrap().text().await.unwrap(), "hello");
    with(identity(&untrusted)).get(&url).send().await.unwrap_err();
    client(&root).get(&url).send().await.unwrap_err();
    lifecycle.drain();
    timeout(LONG, server).await.unwrap().unwrap().unwrap();
}

/// What comes back from a server that is sent this, over plain HTTP.
async fn send_raw(limits: Limits, request: Vec<u8>) -> (usize, String) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let lifecycle = Lifecycle::new(LONG);
    let listener = bind(LOOPBACK).unwrap();
    let address = listener.local_addr().unwrap();
    let router =
        Router::new().route("/", axum::routing::post(|body: axum::body::Bytes| async move { body.len().to_string() }));
    let server = tokio::spawn(async move { serve_plain(&lifecycle, listener, router, limits).await });
    let (mut from, mut to) = tokio::net::TcpStream::connect(address).await.unwrap().into_split();
    let sending = tokio::spawn(async move {
        let mut sent = 0;
        for part in request.chunks(64 << 10) {
            if to.write_all(part).await.is_err() {
                break;
            }
            sent += part.len();
        }
        sent
    });
    let mut text = Vec::new();
    // A reset after the answer is as good as an end.
    let _ = timeout(LONG, from.read_to_end(&mut text)).await.unwrap();
    let sent = timeout(LONG, sending).await.unwrap().unwrap();
    server.abort();
    (sent, String::from_utf8_lossy(&text).into_owned())
}

#[tokio::test]
async fn a_body_past_the_limit_is_refused_and_not_read_to_its_end() {
    let limits = Limits {
        body: 1000,
        head_within: Duration::from_secs(2),
        body_within: Duration::from_secs(2),
        ..Limits::default()
    };
    let head =
        |length: usize| format!("POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n");
    let with = |length: usize| [head(length).into_bytes(), vec![b'a'; length]].concat();
    let (_, answer) = send_raw(limits, with(1000)).await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("1000"), "{answer}");
    // It is rejected by its Content-Length, before any byte of the body.
    let (_, answer) = send_raw(limits, head(1001).into_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    let huge = 64 << 20;
    let (sent, answer) = send_raw(limits, with(huge)).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 413"), "{answer}");
    assert!(sent < huge, "all of {sent} bytes were read");
    // Without a length it is cut off where the limit is.
    let mut chunks = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    for _ in 0..1024 {
        chunks.extend(b"10000\r\n");
        chunks.extend(vec![b'a'; 0x10000]);
        chunks.extend(b"\r\n");
    }
    let all = chunks.len();
    let (sent, answer) = send_raw(limits, chunks).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 413"), "{answer}");
    assert!(sent < all, "all of {sent} bytes were read");
}

#[tokio::test]
async fn a_head_past_the_limit_is_refused() {
    let limits =
        Limits { head_within: Duration::from_secs(2), body_within: Duration::from_secs(2), ..Limits::default() };
    let head = |size: usize| {
        format!("POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX-Long: {}\r\n\r\n", "a".repeat(size))
    };
    let (_, answer) = send_raw(limits, head(limits.head / 2).into_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let (_, answer) = send_raw(limits, head(limits.head * 2).into_bytes()).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");
}

#[tokio::test]
async fn a_stalled_handshake_is_ended_and_blocks_no_other() {
    use tokio::io::AsyncReadExt;
    let folder = TempDir::new().unwrap();
    let (certificate, key, root) = write_pair(folder.path(), 1);
    let tls = Certificates::load(&certificate, &key, None).unwrap();
    let listener = bind(LOOPBACK).unwrap();
    let address = listener.local_addr().unwrap();
    // Only this limit may end it: the others are longer than the test waits.
    let limits = Limits { handshake: Duration::from_secs(2), head_within: LONG, idle: LONG, ..Limits::default() };
    let lifecycle = Lifecycle::new(LONG);
    let server = tokio::spawn(async move { serve_tls(&lifecycle, listener, slow_router(), limits, tls).await });
    let start = std::time::Instant::now();
    let silent = tokio::net::TcpStream::connect(address).await.unwrap();
    let silent = tokio::spawn(async move {
        let (mut silent, mut rest) = (silent, Vec::new());
        // A reset is an end too.
        let _ = timeout(LONG / 2, silent.read_to_end(&mut rest)).await.unwrap();
        start.elapsed()
    });
    let mut served = 0;
    while !silent.is_finished() {
        let sent = std::time::Instant::now();
        client(&root).get(format!("https://localhost:{}", address.port())).send().await.unwrap();
        assert!(sent.elapsed() < LONG / 4, "held up for {:?}", sent.elapsed());
        served += 1;
    }
    let ended = silent.await.unwrap();
    assert!(ended >= limits.handshake, "ended after {ended:?}");
    assert!(served > 0, "nobody was served meanwhile");
    server.abort();
}
