//! Nothing is leaked or doubled when many nodes are created and deleted while the controller is killed at random
//! moments.
//!
//! It is killed at any point, while every pod gets a node of its own and while all nodes are deleted again.
//! `NAPKEEPER_NODES=500` and `NAPKEEPER_KILLS=100` give more of both, `NAPKEEPER_SEED` other moments.

use crate::alone;
use anyhow::{Context, Result, ensure};
use jiff::SignedDuration;
use napkeeper_sim::random::Random;
use napkeeper_tests::control_plane::Process;
use napkeeper_tests::environment::Environment;
use napkeeper_tests::environment::state::{claims, nodes, phases, scale};
use napkeeper_tests::manifests::quickstart_file;
use napkeeper_tests::options::number;
use napkeeper_tests::wait::eventually;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Nodes and kills of a plain run.
const NODES: usize = 24;
const KILLS: usize = 10;
/// Longest that a controller runs: long enough to list a large cluster, short enough to be killed at work.
const LONGEST_RUN: u64 = 4_000;
/// Longest duration of a phase for each node, beside a fixed minute.
const EACH: Duration = Duration::from_secs(4);

/// One pod a node: each requests more than half of the only size that its pool allows.
const MANIFESTS: &str = "
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

/// A controller that dies at random moments, a number of times.
struct KilledController {
    controller: Process,
    chance: Random,
    next_kill: Instant,
    kills: usize,
    left: usize,
}

impl KilledController {
    fn start(env: &Environment, kills: usize) -> Result<Self> {
        let mut chance = Random::of(number("NAPKEEPER_SEED", 1)?, "crowd");
        let next_kill = draw_kill(&mut chance);
        Ok(Self { controller: env.controller()?, chance, next_kill, kills: 0, left: kills })
    }

    async fn live(&mut self, env: &Environment) -> Result<()> {
        let status = self.controller.exit_status();
        ensure!(status.is_none(), "it ended by itself: {}", self.controller.tail(30));
        if self.left > 0 && Instant::now() >= self.next_kill {
            self.controller.kill();
            self.controller.exited(Duration::from_secs(10)).await?;
            self.controller = env.controller()?;
            (self.kills, self.left) = (self.kills + 1, self.left - 1);
            self.next_kill = draw_kill(&mut self.chance);
        }
        Ok(())
    }

    /// Lets it work and die until something is so.
    async fn until(
        &mut self,
        env: &mut Environment,
        phase: Phase<'_>,
        mut so: impl AsyncFnMut(&Environment) -> Result<bool>,
    ) -> Result<()> {
        let (start, mut looked) = (Instant::now(), Instant::now());
        loop {
            self.live(env).await?;
            env.jump(SignedDuration::from_millis(100))?;
            tokio::time::sleep(Duration::from_millis(50)).await;
            // A look costs the API server more than a step of the controller does.
            if looked.elapsed() > Duration::from_secs(1) && self.kills >= phase.kills {
                if so(env).await? {
                    eprintln!("{}: {:.0?}, {} kills so far", phase.condition, start.elapsed(), self.kills);
                    return Ok(());
                }
                looked = Instant::now();
            }
            ensure!(
                start.elapsed() < phase.within,
                "no {}; {} kills; {} in Azure, {} NodeClaims, pods {:?}; log: {}",
                phase.condition,
                self.kills,
                env.resources().await?.len(),
                claims(env).await?.len(),
                phases(env, "crowd").await?,
                self.controller.tail(30)
            );
        }
    }
}

/// The condition to wait for, the least number of kills, and the timeout.
struct Phase<'a> {
    condition: &'a str,
    kills: usize,
    within: Duration,
}

fn draw_kill(chance: &mut Random) -> Instant {
    Instant::now() + Duration::from_millis(chance.between(20, LONGEST_RUN))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes: .ci/nightly runs it, and live::controller::kills kills at every write"]
async fn many_nodes_are_created_and_deleted_under_random_kills() -> Result<()> {
    let _turn = alone().await;
    let (count, kills) = (number("NAPKEEPER_NODES", NODES)?, number("NAPKEEPER_KILLS", KILLS)?);
    let mut env = Environment::start("provisioner").await?;
    let class = quickstart_file("aksnodeclass")?;
    env.plane.apply(&format!("{class}\n---\n{MANIFESTS}")).await?;
    let mut killed = KilledController::start(&env, kills)?;
    let within = Duration::from_secs(60) + EACH * u32::try_from(count)?;

    scale(&env, "crowd", count).await?;
    let all_run = async |env: &Environment| {
        let phases = phases(env, "crowd").await?;
        Ok(phases.len() == 1 && phases.get("Running") == Some(&count))
    };
    killed.until(&mut env, Phase { condition: "a node for every pod", kills: kills / 2, within }, all_run).await?;
    let whole =
        async |env: &Environment| Ok(env.resources().await?.len() == 3 * count && claims(env).await?.len() == count);
    killed.until(&mut env, Phase { condition: "one VM, NIC and disk for each", kills: 0, within }, whole).await?;
    one_vm_for_each_claim(&env, count).await?;

    scale(&env, "crowd", 0).await?;
    eventually("end of the pods", within, async || Ok(phases(&env, "crowd").await?.is_empty().then_some(()))).await?;
    env.plane.kubectl(&["delete", "nodeclaims", "--all", "--wait=false"]).await?;
    let all_deleted = async |env: &Environment| {
        Ok(env.resources().await?.is_empty() && claims(env).await?.is_empty() && nodes(env).await?.is_empty())
    };
    killed.until(&mut env, Phase { condition: "an empty group", kills, within }, all_deleted).await?;
    one_vm_for_each_claim(&env, 0).await
}

/// No NodeClaim ever had a second VM, and so many are left. A NodeClaim that was given up, because its controllers died
/// before they got round to it, may have had one too.
async fn one_vm_for_each_claim(env: &Environment, left: usize) -> Result<()> {
    let ledger = env.azure("ledger").await?;
    let entries = ledger["entries"].as_array().context("the ledger is no list")?;
    let mut lives: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for entry in entries.iter().filter(|entry| entry["kind"] == "Vm") {
        let life = lives.entry(entry["id"].as_str().unwrap_or_default()).or_default();
        life.0 += usize::from(entry["act"] == "created");
        life.1 += usize::from(entry["act"] == "deleted");
    }
    let doubled: Vec<_> = lives.iter().filter(|(_, (made, _))| *made != 1).collect();
    ensure!(doubled.is_empty(), "made more than once: {doubled:?}");
    let alive = lives.values().filter(|(_, deletions)| *deletions == 0).count();
    eprintln!("{} VMs were made so far, each once; {alive} are left", lives.len());
    ensure!(alive == left, "{alive} VMs are left, of {left}");
    Ok(())
}
