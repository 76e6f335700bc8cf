//! What the docs promise of Karpenter's metrics is exported, and is what happened.

use super::super::fixtures::{at, claim, cluster, group, launch, node, offering, pod, running};
use super::*;
use jiff::Timestamp;
use napkeeper_core::catalog::OsDiskStorage;
use napkeeper_core::model::azure::naming::resource_ids;
use napkeeper_core::model::cluster::claim::{LaunchFailure, TerminationCondition, TerminationConditions};
use napkeeper_core::model::cluster::node::ConditionStatus;
use napkeeper_core::model::cluster::pod::Pod;
use napkeeper_core::model::errors::{CloudError, CloudErrorCode, EffectError, LaunchRefusal};
use napkeeper_core::model::names::ProviderId;
use napkeeper_core::model::settings::{NodeHealthAction, NodeHealthRule, NodeSign};
use napkeeper_core::plan::{
    AksMachineRequest, AksMachineSpec, ClaimDraft, ClaimUpdate, CloudRequest, ClusterWrite, EvictionReport,
    KubeletSpec, SecurityProfile, SignOnNode, Terminate, VmSpec,
};
use napkeeper_serve::prometheus_client::encoding::text::encode_registry;
use std::collections::BTreeSet;

const UPSTREAM: &str = include_str!("upstream.txt");
const DOCS: &str = include_str!("../../../../docs/karpenter.md");

/// Stands still.
#[derive(Debug)]
struct Fixed(Timestamp);

impl Clock for Fixed {
    fn now(&self) -> Timestamp {
        self.0
    }

    fn shifted(&self, real: Timestamp) -> Timestamp {
        real
    }
}

/// The names in backticks.
fn quoted(text: &str) -> BTreeSet<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// Karpenter's metrics: type and labels by name.
fn upstream() -> BTreeMap<&'static str, (&'static str, BTreeSet<&'static str>)> {
    let lines = UPSTREAM.lines().filter(|line| !line.starts_with('#'));
    let row = |line: &'static str| {
        let mut parts = line.split(' ');
        let (name, kind) = (parts.next()?, parts.next()?);
        Some((name, (kind, parts.next().into_iter().flat_map(|labels| labels.split(',')).collect())))
    };
    lines.filter_map(row).collect()
}

/// The metrics of the table in the docs, each with whether it is exported and its labels.
fn documented() -> Vec<(&'static str, bool, BTreeSet<&'static str>)> {
    let rows = DOCS.lines().filter(|line| line.starts_with("| `karpenter_") || line.starts_with("| `operator_"));
    let cells = |row: &'static str| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        assert!(matches!(cells[2], "yes" | "no"), "{row}");
        quoted(cells[1]).into_iter().map(move |name| (name, cells[2] == "yes", quoted(cells[3]))).collect::<Vec<_>>()
    };
    rows.flat_map(cells).collect()
}

/// The labels of nodes that the docs say are left out.
fn left_out() -> BTreeSet<&'static str> {
    let (_, after) = DOCS.split_once("these labels are left out").unwrap();
    quoted(after.split_once("They would double").unwrap().0)
}

/// Metrics of a replica that has seen and done everything.
struct Busy {
    metrics: KarpenterMetrics,
    registries: Vec<Registry>,
    snapshot: Snapshot,
}

impl Busy {
    fn new() -> Self {
        let (metrics, registries) = KarpenterMetrics::new(Arc::new(Fixed(at(100))));
        Self { metrics, registries, snapshot: cluster() }
    }

    /// Shows it a cluster as if the last look had been long ago.
    fn observe(&mut self, snapshot: &Snapshot) {
        self.metrics.refreshed = self.metrics.refreshed.and_then(|at| at.checked_sub(REFRESH_INTERVAL));
        self.metrics.observe(snapshot, &Memory::default());
    }

    fn ended(&mut self, command: &Command, report: &CommandReport) {
        self.metrics.command_started(command, &self.snapshot);
        self.metrics.command_ended(command, report, &self.snapshot);
    }

    fn done(&mut self, command: &Command) {
        self.ended(command, &CommandReport::default());
    }

    fn text(&self) -> String {
        let mut text = String::new();
        self.registries.iter().for_each(|registry| encode_registry(&mut text, registry).unwrap());
        text
    }

    /// The sum of the samples of a metric with these labels.
    fn total(&self, name: &str, labels: &[&str]) -> f64 {
        let text = self.text();
        let of_name = text.lines().filter(|line| line.split(['{', ' ']).next() == Some(name));
        let found = of_name.filter(|line| labels.iter().all(|label| line.contains(label)));
        found.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }
}

/// A NodeClaim that replaces nodes that have drifted.
fn draft(name: &str, replaces: &[&str], with: &[&str]) -> Command {
    let names = |all: &[&str]| all.iter().map(|name| ClaimName::new(*name).unwrap()).collect();
    let mut spec = claim(name).spec;
    (spec.replaces, spec.replaces_with) = (names(replaces), names(with));
    let reason = (!replaces.is_empty()).then_some(DisruptionReason::Drifted);
    Command::CreateClaim(Box::new(ClaimDraft { name: ClaimName::new(name).unwrap(), spec, reason, pods: Vec::new() }))
}

fn drained() -> TerminationConditions {
    let drained = Some(TerminationCondition::new(Some(true), "Drained"));
    TerminationConditions { drained, ..TerminationConditions::default() }
}

fn terminate(name: &str) -> Command {
    let claim = claim(name).reference();
    let ids = resource_ids(&group(), &claim.name);
    Command::Terminate(Box::new(Terminate {
        claim,
        ids,
        machine: None,
        drained_node: None,
        held: BTreeSet::new(),
        look_again: None,
        conditions: None,
    }))
}

fn vm(name: &str) -> CloudRequest {
    let (claim, ids) = (claim(name), resource_ids(&group(), &ClaimName::new(name).unwrap()));
    CloudRequest::PutVm(Box::new(VmSpec {
        id: ids.vm,
        offering: offering().key,
        nic: ids.nic,
        os_disk: ids.os_disk,
        os_disk_gb: 128,
        tags: [(Arc::from(labels::TAG_KARPENTER_NODEPOOL), Arc::from("general"))].into(),
        claim: claim.name,
        kubelet: KubeletSpec::default(),
        os_disk_storage: OsDiskStorage::Premium,
        security: SecurityProfile::default(),
        capacity_reservation_group: None,
        create_only: true,
    }))
}

fn refused(code: CloudErrorCode) -> CommandReport {
    let error = CloudError { is_operation_result: true, ..CloudError::new(code, "no") };
    let refusal = LaunchRefusal {
        offering: offering().key,
        reservation: None,
        error,
        applies_to_all_offerings: false,
        at: at(9),
    };
    CommandReport { launch_refusals: vec![refusal], ..CommandReport::default() }
}

fn unhealthy(name: &str) -> Command {
    let claim = claim(name);
    let sign = NodeSign::Condition { kind: Arc::from("NodeReady"), status: ConditionStatus::False, words: Vec::new() };
    let rule = NodeHealthRule { sign, tolerated: jiff::SignedDuration::ZERO, action: NodeHealthAction::Repair };
    let vm: ProviderId = claim.status.provider_id.clone().unwrap();
    let only_if = Some(Box::new(SignOnNode { vm, uid: node(&claim).uid, rule }));
    Command::DeleteClaim { claim: claim.reference(), category: "unhealthy", only_if }
}

fn evict(pod: &Pod, refusal: Option<napkeeper_core::model::errors::ClusterError>) -> (Command, CommandReport) {
    let command = Command::Evict { pod: pod.key.clone(), uid: pod.uid.clone() };
    let eviction = Some(Box::new(EvictionReport { pod: pod.uid.clone(), refusal, at: at(9) }));
    (command, CommandReport { eviction, ..CommandReport::default() })
}

/// All that is exported of a replica to which everything has happened.
fn busy() -> Busy {
    let mut busy = Busy::new();
    let mut before = Snapshot::default();
    busy.snapshot.pods().values().for_each(|one| before.put_pod(pod(one.key.name.as_str())));
    busy.observe(&before);
    let mut terminating = busy.snapshot.clone();
    let mut old = claim("general-a");
    old.deleting_at = Some(at(40));
    let mut old_node = node(&old);
    old_node.deleting_at = Some(at(70));
    terminating.put_node(old_node);
    terminating.put_claim(old);
    let mut pool = (**terminating.pools().values().next().unwrap()).clone();
    pool.deletion.requested_at = Some(at(90));
    let holding = napkeeper_core::model::cluster::status::StatusCondition::holding("Ready");
    pool.status.conditions.by_type = [(napkeeper_core::model::cluster::status::ConditionType::Ready, holding)].into();
    pool.status.resources = node(&claim("general-a")).capacity;
    terminating.put_pool(pool.name.clone(), pool);
    busy.observe(&terminating);
    let mut after = terminating.clone();
    after.remove_claim(&ClaimName::new("general-a").unwrap());
    busy.observe(&after);
    busy.observe(&terminating);
    for kind in DecisionKind::ALL {
        busy.metrics.decision_made(kind, Duration::from_millis(3));
    }
    busy.metrics.observe_eligible(&[(DisruptionReason::Empty, 2)].into());
    busy.done(&draft("general-c", &[], &[]));
    busy.done(&draft("general-d", &["general-a"], &[]));
    busy.done(&Command::delete_claim(claim("general-b").reference(), "underutilized"));
    busy.done(&unhealthy("general-b"));
    let given_up = Command::UpdateClaim { claim: claim("general-a").reference(), update: ClaimUpdate::NotDisrupted };
    busy.metrics.command_started(&given_up, &busy.snapshot);
    // What is written may be seen before the command has ended.
    let marked = busy.snapshot.clone();
    busy.snapshot.put_claim(claim("general-a"));
    busy.metrics.command_ended(&given_up, &CommandReport::default(), &busy.snapshot);
    busy.snapshot = marked;
    let (command, report) = evict(&pod("on-general-a"), None);
    busy.ended(&command, &report);
    let failing = launch("general-b");
    busy.metrics.command_started(&failing, &busy.snapshot);
    let failure = LaunchFailure { at: at(9), code: Arc::from("zonal_allocation_failed"), message: Arc::from("no") };
    let failed = ClusterWrite::UpdateClaim(claim("general-b").reference(), ClaimUpdate::LaunchFailed(failure));
    busy.metrics.effect_started(&Effect::Cluster(failed), &busy.snapshot);
    busy.metrics.command_ended(&failing, &refused(CloudErrorCode::ZonalAllocationFailed), &busy.snapshot);
    let gone = ClusterWrite::RemoveFinalizer(claim("general-a").reference());
    busy.snapshot = terminating;
    let terminate = terminate("general-a");
    busy.metrics.command_started(&terminate, &busy.snapshot);
    // The Node goes with the VM, before the NodeClaim.
    busy.snapshot.remove_node(&node(&claim("general-a")).name);
    let drained = ClaimUpdate::Terminating(Box::new(drained()));
    let drained = ClusterWrite::UpdateClaim(claim("general-a").reference(), drained);
    for effect in [Effect::Cloud(vm("general-b")), Effect::Cluster(drained), Effect::Cluster(gone)] {
        busy.metrics.effect_started(&effect, &busy.snapshot);
    }
    // The watch may tell that it is gone before the command has ended.
    let before = busy.snapshot.clone();
    busy.snapshot.remove_claim(&claim("general-a").name);
    busy.metrics.commands.forget(&busy.snapshot);
    busy.metrics.command_ended(&terminate, &CommandReport::default(), &busy.snapshot);
    busy.snapshot = before;
    busy
}

/// The labels of each sample of a metric of this type.
fn labels_of<'t>(text: &'t str, name: &str, kind: &str) -> Vec<BTreeSet<&'t str>> {
    let (suffix, own) = match kind {
        "histogram" => ("_bucket", "le"),
        "summary" => ("", "quantile"),
        _ => ("", ""),
    };
    let sample = format!("{name}{suffix}");
    let lines = text.lines().filter(|line| line.split(['{', ' ']).next() == Some(&*sample));
    let labels = lines.map(|line| line.split_once('{').and_then(|(_, rest)| rest.rsplit_once('}')).map_or("", |l| l.0));
    // Values may have commas.
    let keys = |labels: &'t str| labels.split("=\"").map(|part| part.rsplit([',', '"']).next().unwrap_or_default());
    labels.map(|labels| keys(labels).filter(|key| !key.is_empty() && *key != own).collect()).collect()
}

#[test]
fn the_docs_tell_of_every_metric_of_karpenters_once() {
    let (known, documented) = (upstream(), documented());
    let mut names: Vec<&str> = documented.iter().map(|(name, ..)| *name).collect();
    names.sort_unstable();
    assert_eq!(names, known.keys().copied().collect::<Vec<_>>());
    let left_out = left_out();
    for (name, _, labels) in documented.iter().filter(|(_, is_exported, _)| *is_exported) {
        let wanted: BTreeSet<&str> = known[name].1.difference(&left_out).copied().collect();
        let is_of_nodes = known[name].1.contains("windows_build");
        assert_eq!(labels, if is_of_nodes { &wanted } else { &known[name].1 }, "{name}");
    }
}

#[test]
fn what_the_docs_promise_is_exported_with_its_labels() {
    let (text, known) = (busy().text(), upstream());
    for (name, _, promised) in documented().iter().filter(|(_, is_exported, _)| *is_exported) {
        let found = labels_of(&text, name, known[name].0);
        assert!(!found.is_empty(), "{name} is not exported:\n{text}");
        assert!(found.iter().all(|labels| labels == promised), "{name} has {found:?}");
    }
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split(['{', ' ']).next().unwrap();
        let base = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
        let is_told =
            documented().iter().any(|(told, is_exported, _)| *is_exported && (*told == name || *told == base));
        assert!(is_told, "{name} is not in the docs");
    }
}

#[test]
fn decisions_are_counted_once_for_nodes_that_are_replaced_together() {
    let mut busy = Busy::new();
    let decisions = "karpenter_voluntary_disruption_decisions_total";
    busy.done(&draft("general-c", &["general-a"], &["general-d"]));
    busy.done(&draft("general-d", &["general-a"], &["general-c"]));
    assert_eq!(busy.total(decisions, &["decision=\"replace\"", "reason=\"drifted\"", "consolidation_type=\"\""]), 1.0);
    assert_eq!(busy.total("karpenter_nodeclaims_created_total", &["reason=\"drifted\""]), 2.0);
    // Its replacement exists, so that its deletion is the end of that decision.
    busy.done(&Command::delete_claim(claim("general-a").reference(), "drifted"));
    assert_eq!(busy.total(decisions, &[]), 1.0);
    busy.done(&Command::delete_claim(claim("general-b").reference(), "underutilized"));
    assert_eq!(busy.total(decisions, &["decision=\"delete\"", "consolidation_type=\"single\""]), 1.0);
    let by_pool = "karpenter_voluntary_disruption_decisions_by_nodepool_total";
    assert_eq!(busy.total(by_pool, &["nodepool=\"general\""]), 2.0);
    busy.done(&Command::delete_claim(claim("general-b").reference(), "expired"));
    assert_eq!(busy.total(decisions, &[]), 2.0, "an expired node is no voluntary disruption");
}

/// Nodes of fixed-size NodePools are not marked before they are deleted.
#[test]
fn the_replacement_of_a_node_without_a_mark_is_a_decision() {
    let mut busy = Busy::new();
    let mut unmarked = claim("fixed-a");
    unmarked.status.disrupted = None;
    let mut new = claim("fixed-c");
    new.spec.replaces = vec![unmarked.name.clone()];
    busy.snapshot.put_claim(unmarked);
    busy.done(&draft("fixed-c", &["fixed-a"], &[]));
    busy.snapshot.put_claim(new);
    busy.done(&Command::delete_claim(claim("fixed-a").reference(), "drifted"));
    let decisions = "karpenter_voluntary_disruption_decisions_total";
    assert_eq!(busy.total(decisions, &["decision=\"replace\"", "reason=\"drifted\""]), 1.0);
    assert_eq!(busy.total(decisions, &["decision=\"delete\""]), 0.0);
}

#[test]
fn pods_of_a_drain_are_counted_by_the_reason_of_the_drain() {
    let mut busy = Busy::new();
    let reason =
        |busy: &Busy, reason: &str| busy.total("karpenter_pods_drained_total", &[&format!("reason=\"{reason}\"")]);
    for (on, wanted) in [("on-general-a", "Drifted"), ("on-general-b", "Forceful Termination")] {
        let (command, report) = evict(&pod(on), None);
        busy.ended(&command, &report);
        assert_eq!(reason(&busy, wanted), 1.0, "{on}");
    }
    busy.done(&Command::delete_claim(claim("general-b").reference(), "underutilized"));
    let (command, report) = evict(&pod("on-general-b"), None);
    busy.ended(&command, &report);
    assert_eq!(reason(&busy, "Underutilized"), 1.0, "it has no condition, but why it is deleted is known");
    let budget = napkeeper_core::model::errors::ClusterError::Budget { retry_after: 0 };
    let (command, report) = evict(&pod("on-general-b"), Some(budget));
    busy.ended(&command, &report);
    let requests = |busy: &Busy, code: &str| busy.total("karpenter_pods_eviction_requests_total", &[code]);
    assert_eq!((requests(&busy, "code=\"200\""), requests(&busy, "code=\"429\"")), (3.0, 1.0));
    assert_eq!(busy.total("karpenter_pods_drained_total", &[]), 3.0, "a refused one stays");
}

#[test]
fn durations_are_those_of_the_objects() {
    let busy = busy();
    let sum = |name: &str| busy.total(&format!("{name}_sum"), &[]);
    assert_eq!(sum("karpenter_nodeclaims_termination_duration_seconds"), 60.0, "deleted at 40, gone at 100");
    assert_eq!(sum("karpenter_nodes_termination_duration_seconds"), 60.0, "its Node was deleted later");
    assert_eq!(sum("karpenter_nodes_lifetime_duration_seconds"), 100.0);
    let of_node = ["name=\"aks-general-a\""];
    assert_eq!(busy.total("operator_node_termination_current_time_seconds", &of_node), 30.0);
    assert_eq!(busy.total("karpenter_nodes_drained_total", &[]), 1.0);
    assert_eq!(busy.total("karpenter_pods_startup_duration_seconds_count", &[]), 2.0);
    assert_eq!(busy.total("karpenter_pods_startup_duration_seconds", &["quantile=\"0.5\""]), 4.0);
    assert_eq!(sum("karpenter_pods_bound_duration_seconds"), 2.0, "each after a second");
    assert_eq!(busy.total("karpenter_pods_unbound_time_seconds", &["name=\"waiting\""]), 100.0);
}

#[test]
fn gauges_are_in_the_units_of_karpenter() {
    let mut busy = Busy::new();
    let snapshot = busy.snapshot.clone();
    busy.observe(&snapshot);
    let of_node = |name: &str, resource: &str| {
        busy.total(name, &["node_name=\"aks-general-a\"", &format!("resource_type=\"{resource}\"")])
    };
    assert_eq!(of_node("karpenter_nodes_total_pod_requests", "cpu"), 0.5);
    assert_eq!(of_node("karpenter_nodes_total_pod_limits", "cpu"), 1.0);
    assert_eq!(of_node("karpenter_nodes_total_daemon_limits", "cpu"), 0.0);
    assert_eq!(busy.total("karpenter_nodepools_cost_total", &["nodepool=\"general\""]), 0.384);
    assert_eq!(busy.total("karpenter_nodepools_nodes_consuming_budgets", &["reason=\"Drifted\""]), 0.0);
    let price = "karpenter_cloudprovider_instance_type_offering_price_estimate";
    let of_offering = ["instance_type=\"Standard_D4s_v5\"", "capacity_type=\"on-demand\"", "zone=\"westeurope-1\""];
    assert!((0.05..1.0).contains(&busy.total(price, &of_offering)));
    assert_eq!(busy.total(price, &["instance_type=\"Standard_D8s_v5\""]), 0.0, "no node has that size");
    let conditions = "operator_nodeclaim_status_condition_count";
    let drifted = ["name=\"general-a\"", "type=\"Drifted\"", "status=\"True\"", "reason=\"NodePoolDrifted\""];
    assert_eq!(busy.total(conditions, &drifted), 1.0);
    assert_eq!(busy.total(conditions, &["name=\"general-b\"", "type=\"Ready\"", "status=\"True\""]), 1.0);
    busy.metrics.clear();
    assert_eq!(busy.total("karpenter_pods_state", &[]), 0.0, "another replica reports it");
}

#[test]
fn a_failed_launch_is_counted_once_and_only_if_azure_was_asked() {
    let mut busy = Busy::new();
    let errors = |busy: &Busy, error: &str| {
        let labels = ["method=\"Create\"", &format!("error=\"{error}\"")];
        busy.total("karpenter_cloudprovider_errors_total", &labels)
    };
    let failure = |code| LaunchFailure { at: at(9), code: Arc::from(code), message: Arc::from("no") };
    let written = |name: &str, code| {
        let update = ClaimUpdate::LaunchFailed(failure(code));
        Effect::Cluster(ClusterWrite::UpdateClaim(claim(name).reference(), update))
    };
    busy.metrics.effect_started(&written("general-a", "StandaloneNodeClaim"), &busy.snapshot);
    let refused = ClaimUpdate::LaunchFailed(failure("StandaloneNodeClaim"));
    busy.done(&Command::UpdateClaim { claim: claim("general-a").reference(), update: refused });
    assert_eq!(errors(&busy, ""), 0.0);
    let unavailable = napkeeper_core::model::errors::ClusterError::Unavailable;
    let throttled = CloudError::new(CloudErrorCode::Throttled, "later");
    for (error, counted) in [
        (Some(EffectError::Cluster(unavailable)), [0.0, 0.0]),
        (Some(EffectError::Cloud(throttled)), [0.0, 1.0]),
        (None, [1.0, 1.0]),
    ] {
        let launch = launch("general-b");
        busy.metrics.command_started(&launch, &busy.snapshot);
        for _ in 0..2 {
            busy.metrics.effect_started(&written("general-b", "zonal_allocation_failed"), &busy.snapshot);
        }
        let report = CommandReport { error, ..CommandReport::default() };
        busy.metrics.command_ended(&launch, &report, &busy.snapshot);
        assert_eq!(["InsufficientCapacityError", ""].map(|error| errors(&busy, error)), counted);
    }
}

#[test]
fn machines_of_aks_count_as_vms() {
    let mut busy = Busy::new();
    let CloudRequest::PutVm(vm) = vm("general-b") else { panic!("not a VM") };
    let machine = AksMachineSpec {
        id: vm.id,
        offering: vm.offering,
        os_disk_gb: vm.os_disk_gb,
        ephemeral_os_disk: false,
        tags: vm.tags,
        claim: vm.claim,
        security: vm.security,
        subnet: None,
        kubelet: vm.kubelet,
    };
    let put = Effect::Cloud(CloudRequest::AksMachine(AksMachineRequest::Put(Box::new(machine))));
    busy.metrics.effect_started(&put, &busy.snapshot);
    assert_eq!(busy.total("karpenter_instance_vm_create_start_total", &["nodepool=\"general\""]), 1.0);
}

#[test]
fn pods_are_observed_that_start_between_two_looks() {
    let mut busy = Busy::new();
    let mut snapshot = busy.snapshot.clone();
    busy.observe(&snapshot);
    let on = node(&claim("general-a"));
    let mut starting = running("late", &on);
    (starting.ready, starting.details.ready_at) = (false, None);
    snapshot.put_pod(starting);
    busy.observe(&snapshot);
    let startups = "karpenter_pods_startup_duration_seconds_count";
    let bound = "karpenter_pods_bound_duration_seconds_count";
    assert_eq!(busy.total(bound, &[]), 1.0, "created in the same second as others that were known");
    snapshot.put_pod(running("late", &on));
    busy.observe(&snapshot);
    busy.observe(&snapshot);
    assert_eq!((busy.total(startups, &[]), busy.total(bound, &[])), (1.0, 1.0));
    busy.metrics.clear();
    busy.observe(&snapshot);
    assert_eq!(busy.total(startups, &[]), 1.0, "what was there before this replica led is not counted");
}

#[test]
fn an_unhealthy_node_is_counted_with_its_own_image() {
    let mut busy = Busy::new();
    let mut broken = claim("general-b");
    broken.status.image = Some(Arc::from("/images/of-the-node"));
    busy.snapshot.put_claim(broken);
    busy.done(&unhealthy("general-b"));
    let labels = ["image_id=\"/images/of-the-node\"", "condition=\"node_ready\""];
    assert_eq!(busy.total("karpenter_nodeclaims_unhealthy_disrupted_total", &labels), 1.0);
}

#[test]
fn commands_that_were_forgotten_leave_nothing_behind() {
    let mut busy = Busy::new();
    let launch = launch("general-b");
    busy.metrics.command_started(&launch, &busy.snapshot);
    busy.metrics.forget_commands();
    busy.metrics.command_ended(&launch, &CommandReport::default(), &busy.snapshot);
    assert_eq!(busy.total("karpenter_cloudprovider_duration_seconds_count", &[]), 0.0);
}
