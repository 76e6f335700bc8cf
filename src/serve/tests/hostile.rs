//! Clients that mean no good, and processes that share a port, on real sockets.

use crate::tests::{LONG, LOOPBACK, client, write_pair};
use crate::{Certificates, Lifecycle, Limits, Listener, bind, serve_plain, serve_tls};
use axum::Router;
use axum::body::Bytes;
use axum::routing::{get, post};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

fn limits() -> Limits {
    Limits { head_within: Duration::from_millis(400), body_within: Duration::from_millis(400), ..Limits::default() }
}

fn router() -> Router {
    let slow = || async {
        sleep(Duration::from_millis(300)).await;
        "slow"
    };
    Router::new()
        .route("/", get(|| async { "hello" }))
        .route("/slow", get(slow))
        .route("/length", post(|body: Bytes| async move { body.len().to_string() }))
}

/// A plain server, and its address.
fn serving(limits: Limits) -> (SocketAddr, Lifecycle) {
    let (listener, lifecycle) = (bind(LOOPBACK).unwrap(), Lifecycle::new(LONG));
    let address = listener.local_addr().unwrap();
    let handle = lifecycle.clone();
    tokio::spawn(async move { serve_plain(&handle, listener, router(), limits).await });
    (address, lifecycle)
}

async fn connect(address: SocketAddr) -> TcpStream {
    TcpStream::connect(address).await.unwrap()
}

/// What comes until the connection ends, and when that is.
async fn rest(mut stream: impl AsyncReadExt + Unpin) -> (String, Duration) {
    let (start, mut text) = (Instant::now(), Vec::new());
    // A reset is an end too.
    let _ = timeout(LONG, stream.read_to_end(&mut text)).await.unwrap();
    (String::from_utf8_lossy(&text).into_owned(), start.elapsed())
}

/// Sends a byte every now and then for as long as it is let.
async fn trickle(mut to: impl AsyncWriteExt + Unpin, byte: &'static [u8]) {
    while to.write_all(byte).await.is_ok() {
        sleep(Duration::from_millis(20)).await;
    }
}

/// Sends a request that then trickles and is cut off, and returns the response.
async fn cut_off(stream: TcpStream, sent: &[u8]) -> String {
    let (from, mut to) = stream.into_split();
    to.write_all(sent).await.unwrap();
    let sending = tokio::spawn(trickle(to, b"a"));
    let (answer, took) = rest(from).await;
    assert!(took < LONG / 4 && took > limits().head_within / 2, "{answer} after {took:?}");
    sending.await.unwrap();
    answer
}

/// A request over a connection that stays open; false when it has been closed.
async fn ask(stream: &mut TcpStream) -> bool {
    let mut answer = vec![0; 4096];
    let sent = stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    sent.is_ok() && timeout(LONG, stream.read(&mut answer)).await.unwrap().is_ok_and(|n| n > 0)
}

#[tokio::test]
async fn a_head_that_trickles_is_cut_off() {
    let (address, _keep) = serving(limits());
    let answer = cut_off(connect(address).await, b"GET / HTTP/1.1\r\nX: ").await;
    assert!(answer.is_empty(), "{answer}");
}

#[tokio::test]
async fn a_connection_may_be_idle_after_a_request_but_not_trickle() {
    let (address, _keep) = serving(limits());
    let mut patient = connect(address).await;
    assert!(ask(&mut patient).await);
    sleep(limits().head_within * 3).await;
    assert!(ask(&mut patient).await, "silence between requests is no offence");
    let answer = cut_off(patient, b"GET / HTTP/1.1\r\nX: ").await;
    assert!(answer.is_empty(), "{answer}");
}

#[tokio::test]
async fn a_slow_body_is_rejected() {
    let (address, _keep) = serving(limits());
    let answer =
        cut_off(connect(address).await, b"POST /length HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
}

/// A connection from another address of this machine.
#[cfg(target_os = "linux")]
async fn connect_from(last: u8, address: SocketAddr) -> TcpStream {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from(([127, 0, 0, last], 0))).unwrap();
    socket.connect(address).await.unwrap()
}

#[tokio::test]
async fn beyond_the_most_connections_the_longest_silent_one_is_closed_at_once() {
    let limits = Limits { connections: 8, ..limits() };
    let (address, _keep) = serving(limits);
    let mut silent = JoinSet::new();
    for _ in 0..limits.connections {
        silent.spawn(rest(connect(address).await));
    }
    let start = Instant::now();
    let mut newcomer = connect(address).await;
    assert!(ask(&mut newcomer).await, "a newcomer is not served");
    let (text, _) = silent.join_next().await.unwrap().unwrap();
    assert!(text.is_empty() && start.elapsed() < limits.head_within / 2, "it waited for {:?}", start.elapsed());
    assert!(ask(&mut newcomer).await);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn connections_of_one_address_close_none_of_another() {
    let limits = Limits { connections: 8, head_within: LONG, ..Limits::default() };
    let (address, _keep) = serving(limits);
    let (mut idle, mut slow) = (connect_from(2, address).await, connect_from(3, address).await);
    assert!(ask(&mut idle).await);
    slow.write_all(b"GET / HTTP/1.1\r\nHost:").await.unwrap();
    let (mut flood, start) = (Vec::new(), Instant::now());
    for n in 0..500 {
        let mut one = connect_from(4, address).await;
        // Half of them begin a request whose body never comes.
        if n % 2 == 0 {
            let _ = one.write_all(b"POST /length HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n").await;
        }
        flood.push(one);
    }
    assert!(ask(&mut connect_from(5, address).await).await, "a newcomer is not served");
    assert!(ask(&mut idle).await, "an idle connection was closed for those of another address");
    slow.write_all(b" a\r\n\r\n").await.unwrap();
    let mut answer = vec![0; 4096];
    assert!(slow.read(&mut answer).await.unwrap() > 0, "a request that is arriving was cut off");
    assert!(start.elapsed() < LONG / 2);
}

#[tokio::test]
async fn when_all_connections_are_being_answered_a_newcomer_is_closed_at_once() {
    let limits = Limits { connections: 4, ..limits() };
    let (address, _keep) = serving(limits);
    let mut slow = JoinSet::new();
    for _ in 0..limits.connections {
        let mut stream = connect(address).await;
        stream.write_all(b"GET /slow HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await.unwrap();
        slow.spawn(rest(stream));
    }
    sleep(Duration::from_millis(100)).await;
    let (text, took) = rest(connect(address).await).await;
    assert!(text.is_empty() && took < Duration::from_millis(100), "{text:?} after {took:?}");
    while let Some(end) = slow.join_next().await {
        assert!(end.unwrap().0.starts_with("HTTP/1.1 200"));
    }
    assert!(ask(&mut connect(address).await).await);
}

#[tokio::test]
async fn bodies_that_do_not_end_leave_room_for_one_that_does() {
    let limits = Limits { requests: 1 << 20, body_within: LONG, ..limits() };
    let (address, _keep) = serving(limits);
    let mut large = Vec::new();
    for _ in 0..6 {
        let mut stream = connect(address).await;
        stream.write_all(b"POST /length HTTP/1.1\r\nHost: a\r\nContent-Length: 400000\r\n\r\n").await.unwrap();
        stream.write_all(&[b'a'; 300_000]).await.unwrap();
        large.push(stream);
        sleep(Duration::from_millis(50)).await;
        let mut good = connect(address).await;
        let mut request =
            b"POST /length HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 20000\r\n\r\n".to_vec();
        request.extend([b'a'; 20_000]);
        good.write_all(&request).await.unwrap();
        let (answer, _) = rest(good).await;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("20000"), "{answer}");
    }
}

#[tokio::test]
async fn large_bodies_are_processed_in_turn_without_delaying_small_ones() {
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (inside, seen) = (Arc::clone(&now), Arc::clone(&most));
    let router = Router::new().route(
        "/",
        post(move |body: Bytes| async move {
            if body.len() > 10_000 {
                seen.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                sleep(Duration::from_millis(100)).await;
                inside.fetch_sub(1, Ordering::SeqCst);
            }
        }),
    );
    let (listener, lifecycle) = (bind(LOOPBACK).unwrap(), Lifecycle::new(LONG));
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let limits = Limits { large: 10_000, body_within: LONG, ..limits() };
    tokio::spawn(async move { serve_plain(&lifecycle, listener, router, limits).await });
    drop(rustls::crypto::ring::default_provider().install_default());
    let client = reqwest::Client::new();
    let send = |length: usize| client.post(&url).body(vec![b'a'; length]).send();
    let large: Vec<_> = (0..5).map(|_| tokio::spawn(send(10_001))).collect();
    sleep(Duration::from_millis(30)).await;
    let start = Instant::now();
    assert!(send(10_000).await.unwrap().status().is_success());
    assert!(start.elapsed() < Duration::from_millis(300), "{:?}", start.elapsed());
    for one in large {
        assert!(one.await.unwrap().unwrap().status().is_success());
    }
    assert_eq!((now.load(Ordering::SeqCst), most.load(Ordering::SeqCst)), (0, 1));
}

#[tokio::test]
async fn overload_is_a_503_without_retry_after() {
    let limits = Limits { requests: 100_000, ..limits() };
    let (address, _keep) = serving(limits);
    let mut stream = connect(address).await;
    let mut request = b"POST /length HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\n".to_vec();
    request.extend([b'a'; 200_000]);
    let _ = stream.write_all(&request).await;
    let (answer, _) = rest(stream).await;
    // The rest of the body may meet a closed connection, which then takes the answer with it.
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert!(!answer.to_lowercase().contains("retry-after"), "{answer}");
    assert!(ask(&mut connect(address).await).await);
}

/// Frames of HTTP/2 by hand: an ordinary client has no way to be so rude.
mod frames {
    pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
    }

    pub(super) fn hello() -> Vec<u8> {
        [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(4, 0, 0, &[])].concat()
    }

    /// `GET http://a/` or, with a body to come, `POST`.
    pub(super) fn request(stream: u32, post: bool) -> Vec<u8> {
        // Indexed fields of the static table: method, path, scheme; then an authority.
        let head = [if post { 0x83 } else { 0x82 }, 0x84, 0x86, 0x41, 1, b'a'];
        frame(1, if post { 4 } else { 5 }, stream, &head)
    }

    pub(super) fn reset(stream: u32) -> Vec<u8> {
        frame(3, 0, stream, &8_u32.to_be_bytes())
    }
}

#[tokio::test]
async fn streams_that_are_reset_as_soon_as_they_begin_end_their_connection_and_no_other() {
    let (address, _keep) = serving(limits());
    let mut good = connect(address).await;
    let mut stream = connect(address).await;
    let mut flood = frames::hello();
    for n in 0..5000 {
        flood.extend(frames::request(2 * n + 1, n % 2 == 0));
        flood.extend(frames::reset(2 * n + 1));
    }
    let _ = stream.write_all(&flood).await;
    let mut received = Vec::new();
    let _ = timeout(LONG, stream.read_to_end(&mut received)).await.unwrap();
    // GOAWAY with ENHANCE_YOUR_CALM, unless the reset that follows takes it along.
    let goaway = received.windows(17).any(|f| f[3] == 7 && f[13..17] == 11_u32.to_be_bytes());
    assert!(received.is_empty() || goaway, "{received:?}");
    assert!(ask(&mut good).await);
}

#[tokio::test]
async fn http2_has_the_same_time_for_heads_and_bodies() {
    let (address, _keep) = serving(limits());
    // Nothing but pings.
    let (from, mut to) = connect(address).await.into_split();
    to.write_all(&frames::hello()).await.unwrap();
    let pinging = tokio::spawn(async move {
        while to.write_all(&frames::frame(6, 0, 0, &[0; 8])).await.is_ok() {
            sleep(Duration::from_millis(20)).await;
        }
    });
    assert!(rest(from).await.1 < LONG / 2);
    pinging.await.unwrap();
    // A body byte by byte. The server's answer is a frame HEADERS on stream 1; only then it may end.
    let (mut from, mut to) = connect(address).await.into_split();
    to.write_all(&[frames::hello(), frames::request(1, true)].concat()).await.unwrap();
    let sending = tokio::spawn(async move {
        while to.write_all(&frames::frame(0, 0, 1, b"a")).await.is_ok() {
            sleep(Duration::from_millis(20)).await;
        }
    });
    let (start, mut received, mut part) = (Instant::now(), Vec::<u8>::new(), vec![0; 4096]);
    while !received.windows(9).any(|f| f[3] == 1 && f[5..9] == 1_u32.to_be_bytes()) {
        let length = timeout(LONG, from.read(&mut part)).await.unwrap().unwrap();
        assert!(length > 0, "it ended without an answer: {received:?}");
        received.extend(&part[..length]);
    }
    assert!(start.elapsed() < LONG / 2);
    sending.abort();
}

#[tokio::test]
async fn tls_servers_outlast_garbage_plain_requests_and_silence() {
    let folder = TempDir::new().unwrap();
    let (certificate, key, root) = write_pair(folder.path(), 1);
    let tls = Certificates::load(&certificate, &key, None).unwrap();
    let listener = bind(LOOPBACK).unwrap();
    let address = listener.local_addr().unwrap();
    let (lifecycle, limits) = (Lifecycle::new(LONG), Limits { connections: 16, ..limits() });
    tokio::spawn(async move { serve_tls(&lifecycle, listener, router(), limits, tls).await });
    let mut streams = Vec::new();
    for n in 0..36 {
        let mut stream = connect(address).await;
        let bytes: &[u8] = match n % 3 {
            0 => b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
            1 => &[0x16, 3, 1, 0xff, 0xff, 1, 2, 3],
            _ => b"",
        };
        let _ = stream.write_all(bytes).await;
        streams.push(stream);
        let answer = client(&root).get(format!("https://localhost:{}/", address.port())).send().await.unwrap();
        assert_eq!(answer.text().await.unwrap(), "hello");
    }
    for stream in streams {
        rest(stream).await;
    }
}

#[tokio::test]
async fn who_waits_at_the_port_when_it_closes_is_answered_still() {
    let (listener, lifecycle) = (bind(LOOPBACK).unwrap(), Lifecycle::new(LONG));
    let address = listener.local_addr().unwrap();
    let mut waiting = Vec::new();
    for _ in 0..50 {
        let mut stream = connect(address).await;
        stream.write_all(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        waiting.push(stream);
    }
    lifecycle.drain();
    let handle = lifecycle.clone();
    let server = tokio::spawn(async move { serve_plain(&handle, listener, router(), limits()).await });
    for stream in waiting {
        let (answer, _) = rest(stream).await;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("connection: close"), "{answer}");
    }
    timeout(LONG, server).await.unwrap().unwrap().unwrap();
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn a_connection_ends_with_the_next_answer_once_the_server_drains() {
    let (address, lifecycle) = serving(limits());
    let mut stream = connect(address).await;
    assert!(ask(&mut stream).await);
    lifecycle.drain();
    sleep(Duration::from_millis(100)).await;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    let (answer, took) = rest(stream).await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("connection: close"), "{answer}");
    assert!(took < Duration::from_millis(800), "{took:?}");
}

/// Sends requests continuously, over new connections or a kept one; returns the numbers of requests and failures.
async fn request_continuously(address: SocketAddr, until: Arc<AtomicUsize>, keep: bool) -> (usize, usize) {
    let (mut requests, mut failed, mut open_stream) = (0, 0, None);
    while until.load(Ordering::SeqCst) == 0 {
        let mut stream = match open_stream.take() {
            Some(stream) => stream,
            None => connect(address).await,
        };
        let sent = stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        let mut answer = vec![0; 4096];
        let length = timeout(LONG, stream.read(&mut answer)).await.unwrap().unwrap_or(0);
        let text = String::from_utf8_lossy(&answer[..length]).into_owned();
        requests += 1;
        failed += usize::from(sent.is_err() || !text.starts_with("HTTP/1.1 200"));
        if keep && !text.contains("connection: close") {
            open_stream = Some(stream);
        }
        sleep(Duration::from_millis(2)).await;
    }
    (requests, failed)
}

#[tokio::test]
async fn a_shared_port_is_closed_until_its_time_has_come() {
    let (ready, waiting) = tokio::sync::oneshot::channel::<()>();
    let port = Listener::reuse_port(LOOPBACK).unwrap().listen_after(async move { drop(waiting.await) });
    let (address, lifecycle) = (port.local_addr().unwrap(), Lifecycle::new(LONG));
    let handle = lifecycle.clone();
    let server = tokio::spawn(async move { serve_plain(&handle, port, router(), limits()).await });
    sleep(Duration::from_millis(50)).await;
    assert!(TcpStream::connect(address).await.is_err());
    ready.send(()).unwrap();
    while TcpStream::connect(address).await.is_err() {
        sleep(Duration::from_millis(10)).await;
    }
    lifecycle.drain();
    timeout(LONG, server).await.unwrap().unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_on_one_port_replace_each_other_without_interruption() {
    let first = Listener::reuse_port(LOOPBACK).unwrap();
    let address = first.local_addr().unwrap();
    assert!(TcpStream::connect(address).await.is_err(), "nobody is let in before it is served");
    let serve = |port: Listener| {
        let lifecycle = Lifecycle::new(LONG);
        let handle = lifecycle.clone();
        (lifecycle, tokio::spawn(async move { serve_plain(&handle, port, router(), Limits::default()).await }))
    };
    let mut now = serve(first);
    while TcpStream::connect(address).await.is_err() {
        sleep(Duration::from_millis(10)).await;
    }
    assert!(bind(address).is_err(), "only who asks for it shares");
    let until = Arc::new(AtomicUsize::new(0));
    let mut clients = JoinSet::new();
    for n in 0..16 {
        clients.spawn(request_continuously(address, Arc::clone(&until), n % 2 == 0));
    }
    for _ in 0..10 {
        let next = serve(Listener::reuse_port(address).unwrap());
        sleep(Duration::from_millis(100)).await;
        let (lifecycle, server) = std::mem::replace(&mut now, next);
        lifecycle.signal();
        timeout(LONG, server).await.unwrap().unwrap().unwrap();
    }
    until.store(1, Ordering::SeqCst);
    let (mut sent, mut failed) = (0, 0);
    while let Some(done) = clients.join_next().await {
        let (one, bad) = done.unwrap();
        (sent, failed) = (sent + one, failed + bad);
    }
    assert!(sent > 200 && failed == 0, "{failed} of {sent}");
}
