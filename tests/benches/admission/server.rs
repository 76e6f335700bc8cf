//! A webhook that runs: its address, and the CPU time and memory it has used.

use anyhow::{Context, Result, bail};
use napkeeper_tests::control_plane::{Process, Program, word};
use napkeeper_tests::webhook::{self, Listening};
use serde_json::Value;
use std::path::Path;
use std::time::{Duration, Instant};

const STARTS_WITHIN: Duration = Duration::from_secs(60);
/// Clock ticks of `/proc/PID/stat` in a second; the same on every Linux that Rust runs on.
const TICKS: f64 = 100.0;

/// A hook in a process of its own.
pub(crate) struct Server {
    process: Process,
    /// Where reviews are answered, such as `127.0.0.1:40123`.
    pub(crate) admission: String,
    /// Where probes are answered; none for the hook that does nothing.
    health: Option<String>,
    /// Where metrics are; none for the hook that does nothing.
    metrics: Option<String>,
    http: reqwest::Client,
}

/// Makes the certificate that all hooks serve, for loopback.
pub(crate) fn certificate(folder: &Path) -> Result<String> {
    let key = rcgen::KeyPair::generate()?;
    let names = ["127.0.0.1", "localhost"].map(ToOwned::to_owned);
    let pem = rcgen::CertificateParams::new(names)?.self_signed(&key)?.pem();
    std::fs::write(folder.join("tls.crt"), &pem)?;
    std::fs::write(folder.join("tls.key"), key.serialize_pem())?;
    Ok(pem)
}

impl Server {
    /// The webhook as it is shipped, once it is ready; and how long that took.
    pub(crate) async fn napkeeper(folder: &Path, kubeconfig: &Path) -> Result<(Self, Duration)> {
        let mut program = webhook::program(kubeconfig, "127.0.0.1:0", Some(folder))?.args(["--region=westeurope"]);
        for (name, value) in shipped_environment()? {
            program = program.env(name, value);
        }
        let begun = Instant::now();
        let Listening { process, admission, health, metrics } = webhook::listening(&program).await?;
        let http = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(10)).build()?;
        let server = Self { process, admission, health: Some(health), metrics: Some(metrics), http };
        while !server.is_ready().await {
            if begun.elapsed() > STARTS_WITHIN {
                bail!("the webhook does not get ready:\n{}", server.process.tail(20));
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let took = begun.elapsed();
        Ok((server, took))
    }

    /// Waits until pods get hints.
    pub(crate) async fn hints(&self) -> Result<()> {
        self.process.line("placement hints enabled", STARTS_WITHIN).await?;
        // The first Snapshot is published right after that line.
        tokio::time::sleep(Duration::from_secs(1)).await;
        Ok(())
    }

    /// The hook that does nothing.
    pub(crate) async fn nothing(folder: &Path) -> Result<Self> {
        let words = [crate::hook::CHILD.to_owned(), folder.display().to_string()];
        let process = Process::spawn("nothing", &Program::new(std::env::current_exe()?).args(words))?;
        let line = process.line("listens", STARTS_WITHIN).await?;
        let admission = word(&line, "admission=")?;
        Ok(Self { process, admission, health: None, metrics: None, http: reqwest::Client::new() })
    }

    async fn is_ready(&self) -> bool {
        let Some(health) = &self.health else { return true };
        let response = self.http.get(format!("http://{health}/readyz")).send().await;
        response.is_ok_and(|answer| answer.status().is_success())
    }

    /// CPU time that it has used.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        cpu(self.process.pid())
    }

    /// Memory that it has now, and the most that it has had, in MiB.
    pub(crate) fn memory(&self) -> Result<(f64, f64)> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.pid()))?;
        let mib = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key))?;
            Some(line.trim().trim_end_matches(" kB").parse::<f64>().ok()? / 1024.0)
        };
        Ok((mib("VmRSS:").context("no VmRSS")?, mib("VmHWM:").context("no VmHWM")?))
    }

    /// The sum of a counter over the samples that contain a text.
    pub(crate) async fn counter(&self, name: &str, labels: &str) -> Result<u64> {
        let Some(metrics) = &self.metrics else { return Ok(0) };
        let text = self.http.get(format!("http://{metrics}/metrics")).send().await?.text().await?;
        let samples = text.lines().filter(|line| line.starts_with(name) && line.contains(labels));
        Ok(samples.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum())
    }
}

/// CPU time that a process has used, its own and the kernel's for it.
pub(crate) fn cpu(pid: u32) -> Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, rest) = stat.rsplit_once(") ").context("an odd stat file")?;
    // The fields utime and stime; the name, which may contain spaces, is the second field.
    let ticks = rest.split(' ').skip(11).take(2).map(str::parse::<f64>).sum::<Result<f64, _>>()?;
    Ok(Duration::from_secs_f64(ticks / TICKS))
}

/// The environment that kustomize gives the webhook.
pub(crate) fn shipped_environment() -> Result<Vec<(String, String)>> {
    let path = napkeeper_tests::manifests::repository("kustomize/base/webhook.yaml");
    let read = napkeeper_api::yaml::read("webhook.yaml", &std::fs::read_to_string(path)?);
    let deployment = read.documents.iter().map(|document| serde_json::to_value(&document.value));
    let deployment = deployment.filter_map(Result::ok).find(|object| object["kind"] == "Deployment");
    let deployment = deployment.context("webhook.yaml has no Deployment")?;
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    let text = |entry: &Value, key: &str| entry[key].as_str().map(ToOwned::to_owned);
    let pairs = container["env"].as_array().into_iter().flatten();
    Ok(pairs.filter_map(|entry| Some((text(entry, "name")?, text(entry, "value")?))).collect())
}
