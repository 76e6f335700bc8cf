//! Runs the probes of a pod, as often as its manifest says.

use super::kubelet::seconds;
use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::{Container, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The defaults of Kubernetes.
const PERIOD_SECONDS: i32 = 10;
const TIMEOUT_SECONDS: i32 = 1;
const FAILURE_THRESHOLD: i32 = 3;

/// The probes of a container that runs.
pub(super) struct Probes {
    http: reqwest::Client,
    /// Until it has passed, the others are not run.
    startup: Option<RunningProbe>,
    liveness: Option<RunningProbe>,
    readiness: Option<RunningProbe>,
    is_ready: Option<bool>,
}

struct RunningProbe {
    url: String,
    period: Duration,
    timeout: Duration,
    next: Instant,
    failures: i32,
    most_failures: i32,
}

impl RunningProbe {
    fn of(probe: &Probe, container: &Container, ports: &BTreeMap<u16, u16>) -> Result<Self> {
        let get = probe.http_get.as_ref().context("only probes by HTTP are understood")?;
        let number = match &get.port {
            IntOrString::Int(number) => *number,
            IntOrString::String(name) => {
                let mut named = container.ports.iter().flatten();
                let port = named.find(|port| port.name.as_ref() == Some(name));
                port.with_context(|| format!("the container has no port {name}"))?.container_port
            }
        };
        let Some(port) = ports.get(&u16::try_from(number)?) else {
            bail!("the container does not name the port {number}")
        };
        let url = format!("http://127.0.0.1:{port}{}", get.path.as_deref().unwrap_or("/"));
        let period = seconds(probe.period_seconds.unwrap_or(PERIOD_SECONDS).into());
        let timeout = seconds(probe.timeout_seconds.unwrap_or(TIMEOUT_SECONDS).into());
        let next = Instant::now() + seconds(probe.initial_delay_seconds.unwrap_or_default().into());
        let most_failures = probe.failure_threshold.unwrap_or(FAILURE_THRESHOLD);
        Ok(Self { url, period, timeout, next, failures: 0, most_failures })
    }

    /// Whether it passes, if it is due.
    async fn run(&mut self, http: &reqwest::Client) -> Option<bool> {
        if Instant::now() < self.next {
            return None;
        }
        self.next = Instant::now() + self.period;
        let answer = http.get(&self.url).timeout(self.timeout).send().await;
        let passes = answer.is_ok_and(|answer| answer.status().is_success());
        self.failures = if passes { 0 } else { self.failures + 1 };
        Some(passes)
    }

    /// As [`RunningProbe::run`], for a probe that ends the container when it has failed too often.
    async fn run_or_fail(&mut self, http: &reqwest::Client) -> Result<Option<bool>> {
        let passes = self.run(http).await;
        ensure!(self.failures < self.most_failures, "{} has failed {} times in a row", self.url, self.failures);
        Ok(passes)
    }
}

impl Probes {
    /// Those of a container with these ports on this machine.
    ///
    /// # Errors
    /// When one is not understood here.
    pub(super) fn of(container: &Container, ports: &BTreeMap<u16, u16>) -> Result<Self> {
        let running =
            |probe: &Option<Probe>| probe.as_ref().map(|probe| RunningProbe::of(probe, container, ports)).transpose();
        Ok(Self {
            http: reqwest::Client::builder().no_proxy().build()?,
            startup: running(&container.startup_probe)?,
            liveness: running(&container.liveness_probe)?,
            readiness: running(&container.readiness_probe)?,
            is_ready: None,
        })
    }

    /// Whether the container is ready, when that is new. One without probes is as soon as it runs.
    ///
    /// # Errors
    /// When it would be killed, because it does not start or is not alive.
    pub(super) async fn change(&mut self) -> Result<Option<bool>> {
        let Some(now) = self.current().await? else { return Ok(None) };
        let is_new = self.is_ready != Some(now);
        self.is_ready = Some(now);
        Ok(is_new.then_some(now))
    }

    async fn current(&mut self) -> Result<Option<bool>> {
        if let Some(startup) = &mut self.startup {
            match startup.run_or_fail(&self.http).await? {
                Some(true) => self.startup = None,
                other => return Ok(other),
            }
        }
        if let Some(liveness) = &mut self.liveness {
            liveness.run_or_fail(&self.http).await?;
        }
        Ok(match &mut self.readiness {
            Some(readiness) => readiness.run(&self.http).await,
            None => Some(true),
        })
    }
}
