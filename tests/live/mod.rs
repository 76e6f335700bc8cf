//! Live: does what we ship hold before a real Kubernetes control plane?

#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a broken fixture should stop the test at once; what was measured is for whoever runs it"
)]

mod alerts;
mod audit;
mod audit_scale;
mod bad_hooks;
mod buffers;
mod certificates;
mod companion;
mod crowd;
mod definitions;
mod examples;
mod facts;
mod guards;
mod harness;
mod hooks;
mod hostile;
mod kills;
mod load;
mod overlays;
mod policies;
mod processes;
mod replicas;
mod scale;
mod scheduler;
mod story;
mod surroundings;
mod sweeps;
mod tokens;
mod turns;
mod verdicts;
mod writer;

use anyhow::{Context, Result, bail};
use jiff::Timestamp;
use napkeeper_core::engine::clock::Clock;
use napkeeper_tests::lab::repository;
use std::net::{IpAddr, UdpSocket};
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, SemaphorePermit};

/// The time of this machine, moved by nobody.
#[derive(Debug)]
struct Real;

impl Clock for Real {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn shifted(&self, real: Timestamp) -> Timestamp {
        real
    }
}

/// Asks again and again until there is an answer.
async fn eventually<T>(what: &str, within: Duration, mut ask: impl AsyncFnMut() -> Result<Option<T>>) -> Result<T> {
    let start = Instant::now();
    while start.elapsed() < within {
        if let Some(answer) = ask().await.with_context(|| format!("waiting for {what}"))? {
            return Ok(answer);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    bail!("no {what} within {within:?}")
}

/// A lab runs some ten programs, which mostly wait: more than these at once would only make each other slow.
const LABS: u32 = 2;
static TURNS: Semaphore = Semaphore::const_new(LABS as usize);

/// The turn of a lab that does not mind another one beside it.
async fn a_lab() -> Result<SemaphorePermit<'static>> {
    Ok(TURNS.acquire().await?)
}

/// The turn of a lab that measures times, or fills the machine by itself.
async fn a_lab_alone() -> Result<SemaphorePermit<'static>> {
    Ok(TURNS.acquire_many(LABS).await?)
}

/// The address of this machine by which it would speak to others; nothing is sent.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    socket.local_addr().ok().map(|address| address.ip()).filter(|ip| !ip.is_loopback() && !ip.is_unspecified())
}
