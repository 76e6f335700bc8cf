//! Hostile clients of the shipped webhook: each is disconnected, others are still served, and memory stays small.
//!
//! No cluster is needed: verdicts use the embedded facts. Good clients send requests continuously while hostile ones
//! attack over TLS, as anything that reaches the port could.

use super::alone;
use anyhow::{Context, Result, ensure};
use napkeeper_api::yaml;
use napkeeper_tests::control_plane::Process;
use napkeeper_tests::wait::eventually;
use napkeeper_tests::webhook::hooks::{certificate, pools, review};
use napkeeper_tests::webhook::{self, Listening};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

const STEP: Duration = Duration::from_secs(60);
/// Duration of an attack whose clients are disconnected at once.
const QUICK: Duration = Duration::from_secs(3);
/// Duration of an attack whose clients are disconnected after a time limit: 10 s for a head or a body, noticed up to a
/// quarter of that later.
const SLOW: Duration = Duration::from_secs(18);
/// How long a disconnected attacker waits. Otherwise the attackers of this test would use the whole CPU for their own
/// handshakes, which says nothing about the webhook.
const PAUSE: Duration = Duration::from_millis(300);
/// Timeout of the good client: that of the API server.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Lines that the webhook writes about denials in a second, at most.
const MAX_DENIAL_LINES: u64 = 20;
/// Most memory of the webhook in MiB, as Linux counts it, at any time. The baseline is printed first; bodies may take
/// 64 MiB, and each of 512 connections some tens of KiB.
const MOST_MEMORY: u64 = 320;

/// A webhook without a cluster.
struct Target {
    process: Process,
    address: SocketAddr,
    root: String,
    review: String,
    uid: Value,
    tls: [TlsConnector; 2],
}

impl Target {
    async fn start(folder: &std::path::Path) -> Result<Self> {
        let root = certificate(folder)?;
        let program = webhook::program("/nonexistent".as_ref(), "127.0.0.1:0", Some(folder))?;
        let Listening { process, admission, .. } = webhook::listening(&program).await?;
        let (address, review) = (admission.parse()?, pool_review()?);
        let tls = [connector(&root, b"http/1.1")?, connector(&root, b"h2")?];
        Ok(Self {
            process,
            address,
            uid: serde_json::from_str::<Value>(&review)?["request"]["uid"].take(),
            review,
            tls,
            root,
        })
    }

    /// A connection of a client that speaks HTTP/1.1, or HTTP/2.
    async fn connect(&self, http2: bool) -> Result<TlsStream<TcpStream>> {
        // A closed port disconnects nobody.
        let stream = TcpStream::connect(self.address).await.unwrap();
        Ok(self.tls[usize::from(http2)].connect("127.0.0.1".try_into()?, stream).await?)
    }

    /// Memory of the webhook in MiB by Linux: current and peak.
    fn memory(&self) -> Result<(u64, u64)> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.pid()))?;
        let of = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key));
            let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
            kib.map(|kib| kib >> 10).with_context(|| format!("no {key}"))
        };
        Ok((of("VmRSS:")?, of("VmHWM:")?))
    }
}

fn connector(root: &str, protocol: &[u8]) -> Result<TlsConnector> {
    use rustls::pki_types::pem::PemObject;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(rustls::pki_types::CertificateDer::from_pem_slice(root.as_bytes())?)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

/// The review of a NodePool of the quick start.
pub(super) fn pool_review() -> Result<String> {
    let text = pools()?;
    let read = yaml::read("pools.yaml", &text);
    let pool = read.documents.iter().find(|d| d.value["kind"] == "NodePool").context("no NodePool")?;
    Ok(review("CREATE", &serde_json::to_value(&pool.value)?, &Value::Null).to_string())
}

/// How a good client connects: over one connection that it keeps, or over a new one each time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Connections {
    Http1,
    Http2,
    Fresh,
}

/// A client that sends requests one after the other until it is stopped. Returns the latency of each.
async fn good_client(target: Arc<Target>, way: Connections, stop: Arc<AtomicBool>) -> Result<Vec<Duration>> {
    let root = reqwest::Certificate::from_pem(target.root.as_bytes())?;
    let builder = reqwest::Client::builder().no_proxy().add_root_certificate(root).timeout(TIMEOUT);
    let client = match way {
        Connections::Http1 => builder.http1_only(),
        Connections::Http2 => builder,
        Connections::Fresh => builder.http1_only().pool_max_idle_per_host(0),
    };
    let client = client.build()?;
    let url = format!("https://{}/validate", target.address);
    let mut took = Vec::new();
    while !stop.load(Ordering::SeqCst) {
        let start = Instant::now();
        let request = client.post(&url).header("content-type", "application/json").body(target.review.clone());
        let answer: Value = request.send().await.with_context(|| format!("a good client, {way:?}"))?.json().await?;
        ensure!(answer["response"]["allowed"] == true && answer["response"]["uid"] == target.uid, "{answer}");
        took.push(start.elapsed());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(took)
}

/// What a hostile client does, again and again until it is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Behaviour {
    SlowHead,
    SlowBody,
    LongBody,
    LongList,
    StreamsReset,
    StreamsOpen,
    Garbage,
    Plaintext,
    Silence,
}

/// Hostile clients that come together.
struct Attack {
    name: &'static str,
    clients: &'static [(Behaviour, usize)],
    lasts: Duration,
}

const ATTACKS: [Attack; 7] = [
    Attack { name: "nothing", clients: &[], lasts: QUICK },
    Attack {
        name: "100 slow heads, 300 bodies of 512 KiB that stall, 50 times 200 open streams, 50 silent",
        clients: &[
            (Behaviour::SlowHead, 100),
            (Behaviour::SlowBody, 300),
            (Behaviour::StreamsOpen, 50),
            (Behaviour::Silence, 50),
        ],
        lasts: SLOW,
    },
    Attack { name: "bodies of 1 GB, with and without a length", clients: &[(Behaviour::LongBody, 4)], lasts: QUICK },
    Attack {
        name: "lists of 150,000 and of 3,000,000 digits",
        clients: &[(Behaviour::LongList, 8)],
        // One is answered after the other.
        lasts: SLOW,
    },
    Attack { name: "HTTP/2 streams that are reset at once", clients: &[(Behaviour::StreamsReset, 4)], lasts: QUICK },
    Attack { name: "garbage as TLS", clients: &[(Behaviour::Garbage, 8)], lasts: QUICK },
    Attack { name: "plain HTTP", clients: &[(Behaviour::Plaintext, 8)], lasts: QUICK },
];

impl Behaviour {
    /// One attempt, until it is cut off. An error that is no end of the connection is one of this test.
    async fn attempt(self, target: &Target, turn: usize) -> Result<()> {
        match self {
            Self::SlowHead => {
                let mut stream = target.connect(false).await?;
                stream.write_all(b"POST /validate HTTP/1.1\r\nX: ").await?;
                trickle(&mut stream).await
            }
            Self::SlowBody => {
                let mut stream = target.connect(false).await?;
                stream.write_all(b"POST /mutate HTTP/1.1\r\nHost: a\r\nContent-Length: 7000000\r\n\r\n").await?;
                stream.write_all(&[b' '; 512 << 10]).await?;
                trickle(&mut stream).await
            }
            Self::LongBody => long_body(target.connect(false).await?, turn.is_multiple_of(2)).await,
            Self::LongList => long_list(target, turn).await,
            Self::StreamsReset => streams(target.connect(true).await?, true).await,
            Self::StreamsOpen => streams(target.connect(true).await?, false).await,
            Self::Garbage => say(target, &[&[0x16, 3, 1, 0xff, 0xff][..], &[7; 60_000]].concat()).await,
            Self::Plaintext => say(target, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await,
            Self::Silence => say(target, b"").await,
        }
    }
}

/// A byte every 100 ms.
async fn trickle(stream: &mut TlsStream<TcpStream>) -> Result<()> {
    loop {
        stream.write_all(b" ").await?;
        stream.flush().await?;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn say(target: &Target, text: &[u8]) -> Result<()> {
    let mut stream = TcpStream::connect(target.address).await.unwrap();
    stream.write_all(text).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    assert!(!answer.starts_with(b"HTTP/1.1 2"), "served: {}", String::from_utf8_lossy(&answer));
    Ok(())
}

/// Sends all of it, unless it is stopped.
async fn long_body(mut stream: TlsStream<TcpStream>, named: bool) -> Result<()> {
    const WHOLE: usize = 1 << 30;
    let part = vec![b' '; 64 << 10];
    let framing = if named { format!("Content-Length: {WHOLE}") } else { "Transfer-Encoding: chunked".to_owned() };
    stream.write_all(format!("POST /mutate HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n").as_bytes()).await?;
    let mut sent = 0;
    while sent < WHOLE {
        sent += part.len();
        if !named {
            stream.write_all(format!("{:x}\r\n", part.len()).as_bytes()).await?;
        }
        stream.write_all(&part).await?;
        if !named {
            stream.write_all(b"\r\n").await?;
        }
    }
    assert!(sent < WHOLE, "all of a gigabyte was taken");
    Ok(())
}

/// A review whose object takes many times the memory of its text, all of which is validated.
async fn long_list(target: &Target, turn: usize) -> Result<()> {
    let mut review: Value = serde_json::from_str(&target.review)?;
    review["request"]["object"]["spec"]["template"]["spec"]["taints"] = json!("HERE");
    let list = format!("[{}0]", "0,".repeat([3_000_000, 150_000][turn % 2]));
    let body = review.to_string().replace("\"HERE\"", &list);
    ensure!(body.len() > list.len(), "the list is not in the review");
    let mut stream = target.connect(false).await?;
    let head =
        format!("POST /validate HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with("HTTP/1.1 "), "closed without an answer: {answer}");
    Ok(())
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or_default().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Opens streams, by frames made by hand, and resets each at once or leaves each without an end.
async fn streams(stream: TlsStream<TcpStream>, reset: bool) -> Result<()> {
    let (mut from, mut to) = tokio::io::split(stream);
    // POST http://a/mutate, in the terms of HPACK.
    let head = [&[0x83, 0x86, 0x41, 1, b'a', 0x44, 7][..], b"/mutate"].concat();
    let mut frames = [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(4, 0, 0, &[])].concat();
    for n in 0..if reset { 10_000 } else { 200 } {
        frames.extend(frame(1, 4, 2 * n + 1, &head));
        if reset {
            frames.extend(frame(3, 0, 2 * n + 1, &8_u32.to_be_bytes()));
        }
    }
    to.write_all(&frames).await?;
    to.flush().await?;
    from.read_to_end(&mut Vec::new()).await?;
    Ok(())
}

/// Attacks until the time is over; how often the clients were cut off. Each must have been, once at least.
async fn attack(target: &Arc<Target>, attack: &Attack) -> Result<usize> {
    let mut clients = JoinSet::new();
    let cut_off: Arc<Vec<AtomicUsize>> =
        Arc::new(attack.clients.iter().flat_map(|(_, n)| 0..*n).map(|_| AtomicUsize::new(0)).collect());
    let all = attack.clients.iter().flat_map(|(behaviour, n)| (0..*n).map(|turn| (*behaviour, turn)));
    for (n, (behaviour, turn)) in all.enumerate() {
        let (target, cut_off) = (Arc::clone(target), Arc::clone(&cut_off));
        clients.spawn(async move {
            loop {
                // A reset or closed connection is an error of a write or read.
                drop(behaviour.attempt(&target, turn).await);
                cut_off[n].fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(PAUSE).await;
            }
        });
    }
    tokio::time::sleep(attack.lasts).await;
    // Only a failed assertion ends one.
    if let Some(ended) = clients.try_join_next() {
        ended.with_context(|| format!("a hostile client got through: {}", attack.name))?;
    }
    clients.shutdown().await;
    let mut left = std::collections::BTreeMap::<Behaviour, usize>::new();
    let behaviours = attack.clients.iter().flat_map(|(behaviour, n)| std::iter::repeat_n(*behaviour, *n));
    for (behaviour, count) in behaviours.zip(cut_off.iter()) {
        *left.entry(behaviour).or_default() += usize::from(count.load(Ordering::SeqCst) == 0);
    }
    // Open streams get a response after their time limit; their connection may then wait for other requests.
    left.retain(|behaviour, count| *count > 0 && *behaviour != Behaviour::StreamsOpen);
    ensure!(left.is_empty(), "never cut off within {:?}: {left:?}", attack.lasts);
    Ok(cut_off.iter().map(|count| count.load(Ordering::SeqCst)).sum())
}

fn percentile(sorted: &[Duration], percent: usize) -> f64 {
    let at = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(at).map_or(f64::NAN, |took| took.as_secs_f64() * 1000.0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_clients_neither_stop_others_nor_fill_the_memory() -> Result<()> {
    let _turn = alone().await;
    drop(rustls::crypto::ring::default_provider().install_default());
    let folder = tempfile::Builder::new().prefix("hostile-").tempdir()?;
    let target = Arc::new(Target::start(folder.path()).await?);
    eprintln!(
        "{:<90} {:>7} {:>8} {:>8} {:>8} {:>8} {:>8}",
        "attack", "cut off", "answers", "p50 ms", "max ms", "RSS", "peak MiB"
    );
    let mut worst = 0;
    for one in &ATTACKS {
        let (name, stop) = (one.name, Arc::new(AtomicBool::new(false)));
        let clients = [Connections::Http1, Connections::Http2, Connections::Fresh]
            .map(|way| tokio::spawn(good_client(target.clone(), way, stop.clone())));
        let cut_off = attack(&target, one).await.with_context(|| format!("during: {name}"))?;
        stop.store(true, Ordering::SeqCst);
        let mut took = Vec::new();
        for client in clients {
            let answers = client.await?.with_context(|| format!("during: {name}"))?;
            ensure!(answers.len() > 20, "only {} answers during: {name}", answers.len());
            took.extend(answers);
        }
        took.sort();
        let (now, peak) = target.memory()?;
        let (half, most) = (percentile(&took, 50), percentile(&took, 100));
        eprintln!("{name:<90} {cut_off:>7} {:>8} {half:>8.1} {most:>8.1} {now:>8} {peak:>8}", took.len());
        worst = worst.max(peak);
    }
    ensure!(worst <= MOST_MEMORY, "the webhook took {worst} MiB");
    ensure!(target.process.exit_status().is_none(), "the webhook ended: {}", target.process.tail(20));
    let (denials, others): (Vec<_>, Vec<_>) =
        target.process.lines().into_iter().partition(|line| line.contains("write denied"));
    ensure!(!others.iter().any(|line| line.contains("panic")), "{}", target.process.tail(20));
    ensure!(others.len() < 50, "attackers fill the log: {} lines", others.len());
    let most: u64 = ATTACKS.iter().map(|attack| attack.lasts.as_secs() * MAX_DENIAL_LINES).sum();
    ensure!(denials.len() as u64 <= most, "attackers fill the log: {} denials", denials.len());
    // Lists with a fault in each item are judged in time.
    ensure!(!denials.is_empty(), "no hostile review was denied");
    target.process.terminate()?;
    eventually("end of the webhook", STEP, async || Ok(target.process.exit_status())).await?;
    Ok(())
}
