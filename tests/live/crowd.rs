//! The crowd: does anything leak or double when many nodes come and go and the controller keeps dying?
//!
//! It is killed at random moments, wherever it happens to be, while every pod gets a node of its own and while all of
//! them go again. `NAPKEEPER_CROWD=500/100` asks for 500 nodes and 100 deaths; without it there are few of both.

use super::story::{claims, nodes, phases, scale};
use super::{a_lab_alone, eventually};
use anyhow::{Context, Result, ensure};
use jiff::SignedDuration;
use napkeeper_sim::random::Random;
use napkeeper_tests::control_plane::Process;
use napkeeper_tests::lab::{Lab, repository};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Nodes and deaths of a run in CI.
const FEW: (usize, usize) = (24, 10);
/// Longest life of a controller: long enough to list a large cluster, short enough to die at work.
const LONGEST_LIFE: u64 = 4_000;
/// Longest that a phase may take, for each node of the crowd, beside a minute for whatever the size.
const EACH: Duration = Duration::from_secs(4);

/// One pod a node: each asks for more than half of the only size that its pool allows.
const CROWD: &str = "
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: crowd}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.azure.com, kind: AKSNodeClass, name: default}
      requirements:
        - {key: karpenter.azure.com/sku-family, operator: In, values: [D]}
        - {key: karpenter.azure.com/sku-cpu, operator: In, values: ['2']}
        - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
        - {key: kubernetes.io/arch, operator: In, values: [amd64]}
      expireAfter: Never
  disruption: {consolidationPolicy: WhenEmpty, consolidateAfter: Never}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: crowd, namespace: default}
spec:
  replicas: 0
  selector: {matchLabels: {app: crowd}}
  template:
    metadata: {labels: {app: crowd}}
    spec:
      containers:
        - {name: main, image: none, resources: {requests: {cpu: 1100m, memory: 1Gi}}}
";

/// Nodes and deaths of this run.
fn size() -> Result<(usize, usize)> {
    let Ok(text) = std::env::var("NAPKEEPER_CROWD") else { return Ok(FEW) };
    let parts = text.split_once('/').and_then(|(nodes, deaths)| Some((nodes.parse().ok()?, deaths.parse().ok()?)));
    parts.with_context(|| format!("NAPKEEPER_CROWD={text}: must be nodes/deaths, as in 500/100"))
}

fn seed() -> u64 {
    std::env::var("NAPKEEPER_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// A controller that dies at random moments, a number of times.
struct Doomed {
    controller: Process,
    chance: Random,
    dies_at: Instant,
    deaths: usize,
    left: usize,
}

impl Doomed {
    fn start(lab: &Lab, deaths: usize) -> Result<Self> {
        let mut chance = Random::of(seed(), "crowd");
        let dies_at = next_death(&mut chance);
        Ok(Self { controller: lab.controller()?, chance, dies_at, deaths: 0, left: deaths })
    }

    async fn live(&mut self, lab: &Lab) -> Result<()> {
        let status = self.controller.exit_status();
        ensure!(status.is_none(), "it ended by itself: {}", self.controller.tail(30));
        if self.left > 0 && Instant::now() >= self.dies_at {
            self.controller.kill();
            self.controller.exited(Duration::from_secs(10)).await?;
            self.controller = lab.controller()?;
            (self.deaths, self.left) = (self.deaths + 1, self.left - 1);
            self.dies_at = next_death(&mut self.chance);
        }
        Ok(())
    }

    /// Lets it work and die until something is so.
    async fn until(
        &mut self,
        lab: &mut Lab,
        phase: Phase<'_>,
        mut so: impl AsyncFnMut(&Lab) -> Result<bool>,
    ) -> Result<()> {
        let (start, mut looked) = (Instant::now(), Instant::now());
        loop {
            self.live(lab).await?;
            lab.jump(SignedDuration::from_millis(100))?;
            tokio::time::sleep(Duration::from_millis(50)).await;
            // A look costs the API server more than a step of the controller does.
            if looked.elapsed() > Duration::from_secs(1) && self.deaths >= phase.deaths {
                if so(lab).await? {
                    eprintln!("{}: {:.0?}, {} deaths so far", phase.what, start.elapsed(), self.deaths);
                    return Ok(());
                }
                looked = Instant::now();
            }
            ensure!(
                start.elapsed() < phase.within,
                "no {}; {} deaths; {} in Azure, {} NodeClaims, pods {:?}; log: {}",
                phase.what,
                self.deaths,
                lab.resources().await?.len(),
                claims(lab).await?.len(),
                phases(lab, "crowd").await?,
                self.controller.tail(30)
            );
        }
    }
}

/// What is waited for, with so many deaths at least, and for how long at most.
struct Phase<'a> {
    what: &'a str,
    deaths: usize,
    within: Duration,
}

fn next_death(chance: &mut Random) -> Instant {
    Instant::now() + Duration::from_millis(chance.between(20, LONGEST_LIFE))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_of_nodes_comes_and_goes_under_random_deaths() -> Result<()> {
    let _turn = a_lab_alone().await?;
    let (crowd, deaths) = size()?;
    let mut lab = Lab::start("provisioner").await?;
    let class = std::fs::read_to_string(repository("manifests/quickstart/aksnodeclass.yaml"))?;
    lab.plane.apply(&format!("{class}\n---\n{CROWD}")).await?;
    let mut doomed = Doomed::start(&lab, deaths)?;
    let within = Duration::from_secs(60) + EACH * u32::try_from(crowd)?;

    scale(&lab, "crowd", crowd).await?;
    let all_run = async |lab: &Lab| {
        let phases = phases(lab, "crowd").await?;
        Ok(phases.len() == 1 && phases.get("Running") == Some(&crowd))
    };
    doomed.until(&mut lab, Phase { what: "a node for every pod", deaths: deaths / 2, within }, all_run).await?;
    let whole = async |lab: &Lab| Ok(lab.resources().await?.len() == 3 * crowd && claims(lab).await?.len() == crowd);
    doomed.until(&mut lab, Phase { what: "one VM, NIC and disk for each", deaths: 0, within }, whole).await?;
    one_vm_for_each_claim(&lab, crowd).await?;

    scale(&lab, "crowd", 0).await?;
    eventually("end of the pods", within, async || Ok(phases(&lab, "crowd").await?.is_empty().then_some(()))).await?;
    lab.plane.kubectl(&["delete", "nodeclaims", "--all", "--wait=false"]).await?;
    let all_gone = async |lab: &Lab| {
        Ok(lab.resources().await?.is_empty() && claims(lab).await?.is_empty() && nodes(lab).await?.is_empty())
    };
    doomed.until(&mut lab, Phase { what: "an empty group", deaths, within }, all_gone).await?;
    one_vm_for_each_claim(&lab, 0).await
}

/// No NodeClaim ever had a second VM, and so many are left. A NodeClaim that was given up, because its controllers died
/// before they got round to it, may have had one too.
async fn one_vm_for_each_claim(lab: &Lab, left: usize) -> Result<()> {
    let ledger = lab.azure("ledger").await?;
    let entries = ledger["entries"].as_array().context("the ledger is no list")?;
    let mut lives: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for entry in entries.iter().filter(|entry| entry["kind"] == "Vm") {
        let life = lives.entry(entry["id"].as_str().unwrap_or_default()).or_default();
        life.0 += usize::from(entry["act"] == "created");
        life.1 += usize::from(entry["act"] == "deleted");
    }
    let doubled: Vec<_> = lives.iter().filter(|(_, (made, _))| *made != 1).collect();
    ensure!(doubled.is_empty(), "made more than once: {doubled:?}");
    let alive = lives.values().filter(|(_, gone)| *gone == 0).count();
    eprintln!("{} VMs were made so far, each once; {alive} are left", lives.len());
    ensure!(alive == left, "{alive} VMs are left, of {left}");
    Ok(())
}
