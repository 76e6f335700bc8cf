//! Floods of silent connections from one address, against the shipped webhook: probes, metrics and reviews are answered
//! as before.
//!
//! The attacker has an address of its own, as another pod would; probes, scrapes and reviews come from a second one. For
//! the controller see `live::controller_floods`.

use super::alone;
use super::hostile::pool_review;
use anyhow::{Context, Result, bail, ensure};
use napkeeper_tests::webhook::hooks::certificate;
use napkeeper_tests::webhook::{self, Listening};
use reqwest::{Client, ClientBuilder, RequestBuilder};
use serde_json::Value;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::JoinSet;

/// How long each flood is measured.
const LASTS: Duration = Duration::from_secs(5);
/// How long a flood runs before that: the most connections are reached.
const WARM_UP: Duration = Duration::from_secs(1);
/// Silent connections per second to the ports of probes and metrics.
pub(super) const MONITORING_RATE: u32 = 1_100;
/// Silent connections per second to the port of reviews.
const ADMISSION_RATE: u32 = 2_000;
/// Longest answer to a probe or a scrape. A probe that sets no timeout has a second.
const MAX_PROBE: Duration = Duration::from_millis(500);
/// Most that the 99th percentile of reviews may grow by where the flood is the webhook's to deal with.
const MAX_GROWTH: Duration = Duration::from_millis(25);
/// How often both are measured until they keep to that. What else the machine does for seconds shows in one measurement, and a
/// flood that holds reviews up shows in every one.
const MEASUREMENTS: usize = 3;
/// Pause of the good client after each request.
const PAUSE: Duration = Duration::from_millis(10);
/// Timeout of the good client.
const TIMEOUT: Duration = Duration::from_secs(2);
const ATTACKER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 66);
const CLIENT: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// Silent connections to an address.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flood {
    pub(super) target: SocketAddr,
    /// Per second.
    pub(super) rate: u32,
}

impl Flood {
    /// Opens connections, each of which is held until the server closes it; returns how many.
    pub(super) async fn run(self, stop: Arc<AtomicBool>) -> usize {
        let (opened, mut all, begun, mut begun_so_far) =
            (Arc::new(AtomicUsize::new(0)), JoinSet::new(), Instant::now(), 0);
        while !stop.load(Ordering::SeqCst) {
            let due = u128::from(self.rate) * begun.elapsed().as_millis() / 1000;
            while begun_so_far < due {
                begun_so_far += 1;
                all.spawn(self.hold_one(Arc::clone(&opened)));
            }
            while all.try_join_next().is_some() {}
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        all.shutdown().await;
        opened.load(Ordering::SeqCst)
    }

    async fn hold_one(self, opened: Arc<AtomicUsize>) -> std::io::Result<usize> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::from((ATTACKER, 0)))?;
        let mut stream = socket.connect(self.target).await?;
        opened.fetch_add(1, Ordering::SeqCst);
        stream.read(&mut [0]).await
    }
}

/// Sends requests one after the other until it is stopped; the sorted times of their answers.
async fn ask(request: RequestBuilder, stop: Arc<AtomicBool>) -> Result<Vec<Duration>> {
    let mut took = Vec::new();
    while !stop.load(Ordering::SeqCst) {
        let (start, request) = (Instant::now(), request.try_clone().context("a request is sent repeatedly")?);
        let answer = request.send().await.with_context(|| format!("after {} answers", took.len()))?;
        ensure!(answer.status().is_success(), "{}", answer.status());
        let text = answer.text().await?;
        if let Ok(review) = serde_json::from_str::<Value>(&text) {
            ensure!(review["response"]["allowed"] == true && review["response"]["warnings"].is_null(), "{text}");
        }
        took.push(start.elapsed());
        tokio::time::sleep(PAUSE).await;
    }
    took.sort();
    ensure!(took.len() > 50, "only {} answers", took.len());
    Ok(took)
}

/// Floods while a request is repeated, and prints the figures; returns the 99th percentile and the longest time.
async fn measure(name: &str, flood: Flood, request: RequestBuilder) -> Result<(Duration, Duration)> {
    let stop = Arc::new(AtomicBool::new(false));
    let flooding = tokio::spawn(flood.run(Arc::clone(&stop)));
    tokio::time::sleep(WARM_UP).await;
    let asking = tokio::spawn(ask(request, Arc::clone(&stop)));
    tokio::time::sleep(LASTS).await;
    stop.store(true, Ordering::SeqCst);
    let opened = flooding.await?;
    let took = asking.await?.with_context(|| format!("{name} during {flood:?}"))?;
    let (p99, most) = (took[took.len() * 99 / 100], took[took.len() - 1]);
    let ms = |time: Duration| time.as_secs_f64() * 1000.0;
    let rate = opened as f64 / (WARM_UP + LASTS).as_secs_f64();
    let (half, high, longest) = (ms(took[took.len() / 2]), ms(p99), ms(most));
    eprintln!(
        "{name:<34} {rate:>6.0}/s silent, {:>4} answers: p50 {half:>5.1}, p99 {high:>5.1}, max {longest:>6.1} ms",
        took.len()
    );
    // Otherwise nothing was tested.
    ensure!(rate >= 0.9 * f64::from(flood.rate), "only {rate:.0} connections a second were opened");
    Ok((p99, most))
}

/// Floods the ports of probes and metrics one after the other, and demands that each answers in time.
pub(super) async fn flood_monitoring(client: &Client, health: &str, metrics: &str) -> Result<()> {
    for (name, address, path) in
        [("probe", health, "healthz"), ("probe", health, "readyz"), ("scrape", metrics, "metrics")]
    {
        let flood = Flood { target: address.parse()?, rate: MONITORING_RATE };
        let request = client.get(format!("http://{address}/{path}"));
        let (_, longest) = measure(&format!("{name} of {path}"), flood, request).await?;
        ensure!(longest <= MAX_PROBE, "{name} of {path} took {longest:?}");
    }
    Ok(())
}

/// Floods the port of reviews, and demands that they are answered as fast as during a flood of another port: attacker, client
/// and webhook share two cores here, and what the attacker takes of them is not the webhook's fault.
async fn flood_reviews(name: &str, target: SocketAddr, request: &RequestBuilder) -> Result<()> {
    let request = || request.try_clone().context("a request is sent repeatedly");
    let other = closing_listener().await?;
    let mut grew = Vec::new();
    for _ in 0..MEASUREMENTS {
        let (before, _) = measure(name, Flood { target: other, rate: ADMISSION_RATE }, request()?).await?;
        let (during, _) = measure(name, Flood { target, rate: ADMISSION_RATE }, request()?).await?;
        if during <= before + MAX_GROWTH {
            return Ok(());
        }
        grew.push(format!("from {before:?} to {during:?}"));
    }
    bail!("{name}: p99 grew {}", grew.join(", then "))
}

/// A port that closes each connection at once, until the test ends.
async fn closing_listener() -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        loop {
            drop(listener.accept().await);
        }
    });
    Ok(address)
}

/// Builds a client with an address that is not the attacker's.
fn builder() -> ClientBuilder {
    Client::builder().no_proxy().timeout(TIMEOUT).http1_only().local_address(IpAddr::V4(CLIENT))
}

/// Such a client, which opens a connection for each request.
pub(super) fn client() -> Result<Client> {
    Ok(builder().pool_max_idle_per_host(0).build()?)
}

/// Such clients for HTTPS: one that opens a connection for each request, and one that keeps its connection as the API
/// server does.
fn clients(root: &str) -> Result<[Client; 2]> {
    let root = reqwest::Certificate::from_pem(root.as_bytes())?;
    let client = || builder().add_root_certificate(root.clone());
    Ok([client().pool_max_idle_per_host(0).build()?, client().build()?])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_connections_hold_up_neither_probes_nor_metrics_nor_reviews() -> Result<()> {
    let _turn = alone().await;
    drop(rustls::crypto::ring::default_provider().install_default());
    let folder = tempfile::Builder::new().prefix("floods-").tempdir()?;
    let root = certificate(folder.path())?;
    let program = webhook::program("/nonexistent".as_ref(), "127.0.0.1:0", Some(folder.path()))?;
    let Listening { process, admission, health, metrics } = webhook::listening(&program).await?;
    let [fresh, kept] = clients(&root)?;
    flood_monitoring(&fresh, &health, &metrics).await?;
    let (target, review) = (admission.parse()?, pool_review()?);
    for (name, client) in [("review, new connections", fresh), ("review, one connection", kept)] {
        let post = client.post(format!("https://{admission}/validate")).header("content-type", "application/json");
        flood_reviews(name, target, &post.body(review.clone())).await?;
    }
    ensure!(process.exit_status().is_none(), "the webhook ended: {}", process.tail(20));
    ensure!(process.lines().len() < 50, "attackers fill the log: {} lines", process.lines().len());
    Ok(())
}
