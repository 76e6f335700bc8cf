//! Measures what a review costs with the shipped program as it is run: its start, reviews over TLS from loopback, and
//! pods created through a real API server, each beside a hook that does nothing.
//!
//! `cargo build --release && cargo bench -p napkeeper-tests --bench admission`, or with `-- start`, `load` or `pairs` for
//! a part. `load` needs [oha](https://github.com/hatoo/oha) in the `PATH` (`cargo install oha --locked`), `pairs` Go for
//! the control plane.

#![expect(clippy::print_stdout, reason = "its output is its purpose")]

mod cluster;
mod hook;
mod load;
mod pairs;
mod reviews;
mod server;
mod start;

use anyhow::{Result, ensure};

const PARTS: [&str; 3] = ["start", "load", "pairs"];

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<()> {
    // Cargo adds `--bench`.
    let parts: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    drop(rustls::crypto::ring::default_provider().install_default());
    if let [word, folder] = &parts[..]
        && word == hook::CHILD
    {
        return hook::serve(folder.as_ref()).await;
    }
    for word in &parts {
        ensure!(PARTS.contains(&&**word), "there is no part {word}: choose of {}", PARTS.join(", "));
    }
    let wanted = |part: &str| parts.is_empty() || parts.iter().any(|word| word == part);
    machine();
    if wanted("start") {
        start::measure().await?;
    }
    if wanted("load") {
        load::measure().await?;
    }
    if wanted("pairs") {
        pairs::measure().await?;
    }
    Ok(())
}

/// Prints the machine.
fn machine() {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    println!(
        "machine: {cores} cores,{}; load {}",
        model.trim_start_matches([' ', '\t', ':']),
        read("/proc/loadavg").trim()
    );
}
