//! Finds free loopback ports.

use anyhow::{Result, bail};
use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, TcpListener};

/// Below Linux's ephemeral ports, so that no connection takes one while a server is down.
const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;
const TRIES: usize = 200;

/// Ports that are free at this moment. They may be taken the next: callers then try others.
///
/// # Errors
/// When too few are found.
pub fn free<const N: usize>() -> Result<[u16; N]> {
    let mut held = Vec::with_capacity(N);
    for _ in 0..TRIES {
        #[expect(clippy::cast_possible_truncation, reason = "a remainder of a u16")]
        let port = FIRST + (RandomState::new().hash_one(held.len()) % u64::from(COUNT)) as u16;
        if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            held.push((port, listener));
        }
        if held.len() == N {
            let mut ports = [0; N];
            ports.iter_mut().zip(held).for_each(|(slot, (port, _))| *slot = port);
            return Ok(ports);
        }
    }
    bail!("found no {N} free ports on loopback among {TRIES}")
}
