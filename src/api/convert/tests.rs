//! Tests of conversions, all of them on manifests as people write them.

use super::*;
use crate::manifests::{Object, objects};
use crate::yaml;
use jiff::SignedDuration;
use napkeeper_core::catalog::{CapacityType, OfferingKey};
use napkeeper_core::model::amounts::money::HourlyPrice;
use napkeeper_core::model::amounts::resources::Resources;
use napkeeper_core::model::azure::cloud::ResourceKind;
use napkeeper_core::model::cluster::claim::{
    Claim, ClaimSpec, ClaimStatus, DriftedCondition, LaunchIntent, PlannedOffering,
};
use napkeeper_core::model::cluster::node_base::NodeBase;
use napkeeper_core::model::cluster::node_template::NodeTemplate;
use napkeeper_core::model::cluster::pod::{DoNotDisrupt, PodOwner};
use napkeeper_core::model::cluster::pool::{BudgetNodes, ConsolidationPolicy, DisruptionReason};
use napkeeper_core::model::cluster::replacement::{RecurringCause, Replacement};
use napkeeper_core::model::cluster::status::StatusCondition;
use napkeeper_core::model::cluster::volume::ReclaimPolicy;
use napkeeper_core::model::labels;
use napkeeper_core::model::names::{ArmId, ClaimName, NodeClassName, NodePoolName, ObjectName, Uid, VmSize, Zone};
use napkeeper_core::model::orphans::record::{DeletionRecord, OrphanRecords, Sighting, VolumeRecord};
use napkeeper_core::model::orphans::sweep::SweepMode;
use napkeeper_core::model::requirements::{Operator, Requirements};
use std::sync::Arc;

fn read(text: &str) -> Result<Object, Vec<String>> {
    let reading = yaml::read("t.yaml", text);
    assert_eq!(reading.problems, []);
    let (mut objects, problems) = objects(&reading.documents);
    if problems.is_empty() { Ok(objects.remove(0)) } else { Err(problems.iter().map(|p| p.message.clone()).collect()) }
}

fn arm(rest: &str) -> ArmId {
    ArmId::new(format!("/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/{rest}")).unwrap()
}

const POOL: &str = "
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: a}
spec:
  limits: {cpu: 10, nodes: 5, nvidia.com/gpu: '2'}
  template:
    metadata: {labels: {team: x}}
    spec:
      nodeClassRef: {group: karpenter.azure.com, kind: AKSNodeClass, name: default}
      requirements:
        - {key: beta.kubernetes.io/arch, operator: In, values: [amd64], minValues: 1}
";

const CLASS: &str = "
apiVersion: karpenter.azure.com/v1beta1
kind: AKSNodeClass
metadata: {name: default}
spec: {osDiskSizeGB: 128}
";

/// The subnet of nodes whose AKSNodeClass names none.
const SUBNET: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/v/subnets/A";

/// What a node is made from by a NodePool and an AKSNodeClass.
fn template(pool: &str, class: &str) -> NodeTemplate {
    let (Object::NodePool(pool), Object::NodeClass(class)) = (read(pool).unwrap(), read(class).unwrap()) else {
        panic!()
    };
    let base = NodeBase { subnet: Some(ArmId::new(SUBNET).unwrap()), ..NodeBase::default() };
    NodeTemplate::of(&pool, Some(&class), &base)
}

#[test]
fn spelling_and_order_make_no_other_node() {
    let pool = "
kind: NodePool
apiVersion: karpenter.sh/v1
spec:
  weight: 7
  disruption: {consolidateAfter: Never}
  template:
    spec:
      expireAfter: 43200m # thirty days, as by default
      taints: []
      requirements: []
      nodeClassRef: {name: default, kind: AKSNodeClass, group: karpenter.azure.com}
    metadata: {labels: {'team': \"x\"}, annotations: {}}
metadata: {name: a}
";
    let class = "
apiVersion: karpenter.azure.com/v1alpha2
kind: AKSNodeClass
metadata: {name: default}
spec: {imageFamily: Ubuntu, tags: {a: b}, gpu: {mode: Driver}}
";
    assert_eq!(template(pool, class), template(POOL, CLASS));
}

#[test]
fn each_change_of_a_field_is_told_by_its_path() {
    let before = template(POOL, CLASS);
    let of_pool = [
        ("labels: {team: x}", "labels: {team: z}", "metadata.labels[team]: \"x\" is now \"z\""),
        ("labels: {team: x}", "labels: {}", "metadata.labels[team]: \"x\" was removed"),
        ("labels: {team: x}", "labels: {team: x}, annotations: {a: b}", "metadata.annotations[a]: set to \"b\""),
        ("name: default}", "name: other}", "spec.nodeClassRef.name: \"default\" is now \"other\""),
        ("    spec:\n", "    spec:\n      expireAfter: 90m\n", "spec.expireAfter: \"720h\" is now \"90m\""),
        ("    spec:\n", "    spec:\n      expireAfter: Never\n", "spec.expireAfter: \"720h\" is now \"Never\""),
        (
            "    spec:\n",
            "    spec:\n      terminationGracePeriod: 90s\n",
            "spec.terminationGracePeriod: set to \"90s\"",
        ),
        (
            "    spec:\n",
            "    spec:\n      taints: [{key: a, value: b, effect: NoExecute}]\n",
            "spec.taints[a:NoExecute]: set to \"b\"",
        ),
        (
            "    spec:\n",
            "    spec:\n      startupTaints: [{key: a, effect: NoSchedule}]\n",
            "spec.startupTaints[a:NoSchedule]: set to \"\"",
        ),
    ];
    for (old, new, expected) in of_pool {
        let changes = before.changes(&template(&POOL.replace(old, new), CLASS));
        let told: Vec<String> = changes.iter().map(ToString::to_string).collect();
        assert_eq!(told, [format!("NodePool spec.template.{expected}")], "{new}");
    }
    let subnet = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/v/subnets/B";
    let of_class = [
        ("osDiskSizeGB: 64", "osDiskSizeGB: \"128\" is now \"64\"".to_owned()),
        ("imageFamily: AzureLinux", "imageFamily: \"Ubuntu\" is now \"AzureLinux\"".to_owned()),
        ("maxPods: 30", "maxPods: set to \"30\"".to_owned()),
        ("fipsMode: FIPS", "fipsMode: set to \"FIPS\"".to_owned()),
        ("gpu: {mode: None}", "gpu.mode: set to \"None\"".to_owned()),
        (
            "localDNS: {mode: Required, kubeDNSOverrides: [], vnetDNSOverrides: []}",
            "localDNS.mode: set to \"Required\"".to_owned(),
        ),
        ("artifactStreaming: {enabled: true}", "artifactStreaming.enabled: set to \"true\"".to_owned()),
        ("security: {encryptionAtHost: true}", "security.encryptionAtHost: set to \"true\"".to_owned()),
        (
            &*format!("vnetSubnetID: {subnet}"),
            format!("vnetSubnetID: {:?} is now {:?}", SUBNET.to_lowercase(), subnet.to_lowercase()),
        ),
    ];
    for (spec, expected) in of_class {
        let changes = before.changes(&template(POOL, &CLASS.replace("osDiskSizeGB: 128", spec)));
        let told: Vec<String> = changes.iter().map(ToString::to_string).collect();
        assert_eq!(told, [format!("AKSNodeClass spec.{expected}")], "{spec}");
    }
}

#[test]
fn a_template_stays_small_however_much_there_is() {
    let long = |n: usize| POOL.replace("team: x", &format!("team: x}}, annotations: {{a: {}", "v".repeat(n)));
    let changes = template(&long(5_000), CLASS).changes(&template(&long(5_001), CLASS));
    assert!(changes[0].to_string().len() < 300, "{changes:?}");
    let many = |n: usize| {
        let entries: Vec<String> = (0..n).map(|i| format!("key-{i}: value-{i}")).collect();
        template(&POOL.replace("team: x", &entries.join(", ")), CLASS)
    };
    assert!(serde_json::to_string(&many(1_000)).unwrap().len() < 8 << 10);
    let told = |a: &NodeTemplate, b: &NodeTemplate| a.changes(b).iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(told(&many(1_000), &many(1_000)), [""; 0]);
    assert_eq!(told(&many(1_000), &many(2)), ["NodePool spec: changed"]);
    assert_eq!(told(&many(2), &many(1_000)), ["NodePool spec: changed"]);
    assert_eq!(told(&many(1_000), &many(1_001)).len(), 1);
}

#[test]
fn a_pool_gets_the_defaults_of_the_api_server() {
    let Ok(Object::NodePool(pool)) = read(POOL) else { panic!() };
    assert_eq!(pool.uid.as_str(), "unsaved-a");
    assert_eq!(pool.weight, 0);
    assert_eq!(pool.expire_after, Some(SignedDuration::from_hours(720)));
    assert_eq!(pool.termination_grace_period, None);
    assert_eq!(pool.disruption.policy, ConsolidationPolicy::WhenEmptyOrUnderutilized);
    assert_eq!(pool.disruption.consolidate_after, Some(SignedDuration::ZERO));
    assert_eq!(pool.disruption.budgets[0].nodes, BudgetNodes::Percent(10));
    assert_eq!(pool.limits.nodes, Some(5));
    assert_eq!(pool.limits.resources["cpu"], 10_000);
    assert_eq!(pool.limits.resources["nvidia.com/gpu"], 2);
    assert!(pool.requirements.allows(labels::ARCH, Some("amd64")));
    assert!(!pool.requirements.allows(labels::ARCH, Some("arm64")));
    assert!(!pool.requirements.allows("team", Some("y")));
}

#[test]
fn all_violations_of_a_pool_are_reported_at_once() {
    let bad = POOL.replace("In, values: [amd64], minValues: 1", "In").replace("cpu: 10", "cpu: lots");
    let bad = bad.replace("kind: AKSNodeClass", "kind: Other")
        + "  disruption: {consolidateAfter: 1d, budgets: [{nodes: '1', schedule: '@daily'}]}\n";
    let found = read(&bad).unwrap_err();
    let paths: Vec<&str> = found.iter().filter_map(|m| m.split(": ").next()).collect();
    assert_eq!(
        paths,
        [
            "spec.template.spec.nodeClassRef.kind",
            "spec.template.spec.requirements[0].values",
            "spec.limits.cpu",
            "spec.disruption.consolidateAfter",
            "spec.disruption.budgets[0]",
        ]
    );
}

#[test]
fn a_node_class_gets_its_defaults_even_without_a_spec() {
    for version in ["v1beta1", "v1alpha2"] {
        let text = format!("{{apiVersion: karpenter.azure.com/{version}, kind: AKSNodeClass, metadata: {{name: a}}}}");
        let Ok(Object::NodeClass(class)) = read(&text) else { panic!() };
        assert_eq!((&*class.image_family, class.os_disk_gb, class.gpu_drivers), ("Ubuntu", 128, true));
        assert!(!class.fips && !class.local_dns && !class.trusted_launch);
    }
}

#[test]
fn pod_requests_are_the_maximum_over_its_phases() {
    let text = "
apiVersion: v1
kind: Pod
metadata: {name: a, annotations: {karpenter.sh/do-not-disrupt: 1h}}
spec:
  overhead: {cpu: 10m}
  containers:
    - {name: a, resources: {requests: {cpu: 1}, limits: {memory: 1Gi, cpu: 2}}}
    - {name: b, resources: {requests: {nvidia.com/gpu: 1}}}
  initContainers:
    - {name: first, resources: {requests: {memory: 3Gi}}}
    - {name: sidecar, restartPolicy: Always, resources: {requests: {cpu: 200m}}}
    - {name: last, resources: {requests: {cpu: 900m, memory: 2Gi}}}
  nodeSelector: {beta.kubernetes.io/os: linux}
  tolerations: [{operator: Exists}, {key: a, value: b, effect: NoSchedule}]
  topologySpreadConstraints:
    - {maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: ScheduleAnyway}
    - {maxSkew: 2, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {a: b}}}
";
    let Ok(Object::Pod(pod)) = read(text) else { panic!() };
    let mut requests = Resources { pods: 1, ..Resources::cpu_memory(1210, 3 << 30) };
    requests.set_extended("nvidia.com/gpu", 1);
    assert_eq!(pod.shape.requests, requests);
    assert_eq!(pod.do_not_disrupt, Some(DoNotDisrupt::For(SignedDuration::from_hours(1))));
    assert_eq!(pod.owner, PodOwner::Nobody);
    assert!(pod.shape.selector.allows(labels::OS, Some("linux")));
    assert_eq!(pod.shape.spread.len(), 1);
    assert_eq!(pod.shape.spread[0].max_skew, 2);
    assert_eq!((&pod.shape.tolerations[0].key, &pod.shape.tolerations[0].value), (&None, &None));
}

#[test]
fn affinity_with_one_term_narrows_and_with_several_gives_alternatives() {
    let pod = |terms: &str| {
        let text = format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: a}}, spec: {{containers: [], affinity: {{nodeAffinity: \
             {{requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: [{terms}]}}}}}}}}}}"
        );
        read(&text)
    };
    let term = |zone: &str| {
        format!("{{matchExpressions: [{{key: topology.kubernetes.io/zone, operator: In, values: [{zone}]}}]}}")
    };
    let Ok(Object::Pod(one)) = pod(&term("a")) else { panic!() };
    assert!(one.shape.alternatives.is_empty() && !one.shape.selector.allows(labels::ZONE, Some("b")));
    let Ok(Object::Pod(two)) = pod(&format!("{}, {}", term("a"), term("b"))) else { panic!() };
    assert_eq!((two.shape.alternatives.len(), two.shape.selector.is_empty()), (2, true));
    let Ok(Object::Pod(tied)) = pod("{matchFields: [{key: metadata.name, operator: In, values: [x]}]}") else {
        panic!()
    };
    let allows = |name| tied.shape.selector.allows(labels::HOSTNAME, name);
    assert_eq!((allows(Some("x")), allows(Some("y")), allows(None)), (true, false, false));
    let refused = pod("{matchFields: [{key: spec.unschedulable, operator: In, values: [x]}]}").unwrap_err();
    assert!(refused[0].contains("matchFields[0].key"), "{refused:?}");
    let refused = pod("{}").unwrap_err();
    assert!(refused[0].contains("matches no node"), "{refused:?}");
}

#[test]
fn workloads_have_counts_and_shapes() {
    let spec = "template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a}]}}";
    let read = |kind: &str, more: &str| {
        let api = if kind == "Job" { "batch/v1" } else { "apps/v1" };
        read(&format!(
            "{{apiVersion: {api}, kind: {kind}, metadata: {{name: a, namespace: ns}}, spec: {{{more}{spec}}}}}"
        ))
    };
    let Ok(Object::Deployment(deployment)) = read("Deployment", "replicas: 3, ") else { panic!() };
    assert_eq!((deployment.replicas, deployment.key.to_string().as_str()), (3, "ns/a"));
    assert_eq!(deployment.template.shape.labels.len(), 1);
    let Ok(Object::Job(job)) = read("Job", "parallelism: 4, ") else { panic!() };
    assert_eq!((job.parallelism, job.completions), (4, 4));
    assert!(matches!(read("DaemonSet", ""), Ok(Object::DaemonSet(_))));
}

#[test]
fn a_zone_redundant_disk_is_in_all_its_zones() {
    let term = |zone: &str| {
        format!("{{matchExpressions: [{{key: topology.disk.csi.azure.com/zone, operator: In, values: ['{zone}']}}]}}")
    };
    let text = format!(
        "{{apiVersion: v1, kind: PersistentVolume, metadata: {{name: pvc-1}}, spec: {{csi: {{driver: disk.csi.azure.com, \
         volumeHandle: {}}}, persistentVolumeReclaimPolicy: Delete, claimRef: {{namespace: ns, name: c}}, \
         nodeAffinity: {{required: {{nodeSelectorTerms: [{}, {}]}}}}}}}}",
        arm("disks/d").as_str(),
        term("westeurope-1"),
        term("")
    );
    let Ok(Object::PersistentVolume(volume)) = read(&text) else { panic!("{:?}", read(&text)) };
    assert_eq!(volume.handle, Some(arm("disks/d")));
    for (zone, allowed) in [("westeurope-1", true), ("0", true), ("westeurope-2", false)] {
        let allows = |one: &Requirements| one.allows(labels::ZONE, Some(zone));
        assert_eq!(volume.affinity.iter().any(allows), allowed, "{zone}");
    }
}

#[test]
fn a_sweep_reports_by_default_and_never_goes_below_the_floor() {
    let sweep = |spec: &str| {
        read(&format!(
            "{{apiVersion: napkeeper.io/v1alpha1, kind: OrphanSweep, metadata: {{name: a}}, spec: {{{spec}}}}}"
        ))
    };
    let Ok(Object::OrphanSweep(default)) = sweep("") else { panic!() };
    assert_eq!(default.mode, SweepMode::Report);
    assert_eq!(default.kinds.len(), 4);
    assert!(
        default.approval_required.contains(&ResourceKind::Vm)
            && default.approval_required.contains(&ResourceKind::DataDisk)
    );
    assert_eq!(default.minimum_age(ResourceKind::DataDisk), SignedDuration::from_hours(168));
    assert_eq!(sweep("minimumAge: {nic: 9m}").unwrap_err(), ["spec.minimumAge.nic: must be at least 10m"]);
    let approved = sweep(
        "approvals: [{id: /subscriptions/x, incarnation: i, expiresAt: '2026-11-30T00:00:00Z'}], breaker: {clearedAt: '2026-11-20T00:00:00Z'}",
    );
    let Ok(Object::OrphanSweep(approved)) = approved else { panic!() };
    assert_eq!(approved.approvals[0].expires_at.to_string(), "2026-11-30T00:00:00Z");
    assert!(approved.breaker_cleared_at.is_some());
}

fn full_spec(pool: NodePoolName, requests: Resources, offering: PlannedOffering) -> ClaimSpec {
    let mut requirements = Requirements::new();
    requirements.add_entry(labels::SKU_CPU, Operator::Gt, &["3"]).unwrap();
    requirements.add_entry(labels::SKU_CPU, Operator::NotIn, &["7"]).unwrap();
    requirements.add_entry(labels::ARCH, Operator::In, &["amd64", "arm64"]).unwrap();
    ClaimSpec {
        labels: [(Arc::from(labels::NODEPOOL), pool.text())].into(),
        pool: Some(pool),
        class: NodeClassName::new("default").unwrap(),
        requirements,
        requests,
        annotations: [(Arc::from("example.com/owner"), Arc::from("a"))].into(),
        taints: vec![],
        startup_taints: vec![],
        expire_after: None,
        made_from: Some(Arc::new(template(POOL, CLASS))),
        termination_grace_period: Some(SignedDuration::from_secs(5400)),
        planned: vec![offering],
        replaces: vec![ClaimName::new("p-old").unwrap()],
        replaces_with: vec![ClaimName::new("p-other").unwrap()],
        replacement: Some(Replacement {
            cause: RecurringCause::CONSOLIDATION,
            in_a_row: 2,
            offerings: vec!["Standard_D4s_v5 on-demand".to_owned()],
            replaced: Some("Standard_D8s_v5 spot".to_owned()),
        }),
    }
}

fn full_claim() -> Claim {
    let at = "2026-11-21T08:00:00Z".parse().unwrap();
    let offering = PlannedOffering {
        key: OfferingKey {
            size: VmSize::new("Standard_D4s_v5").unwrap(),
            zone: Zone::new("westeurope-1").unwrap(),
            capacity_type: CapacityType::Spot,
        },
        price: HourlyPrice::from_nanos(7),
    };
    let pool = NodePoolName::new("p").unwrap();
    let mut requests = Resources { pods: 3, ..Resources::cpu_memory(1500, 1 << 30) };
    requests.set_extended("nvidia.com/gpu", 1);
    Claim {
        name: ClaimName::new("p-abc").unwrap(),
        uid: Uid::new("u").unwrap(),
        created_at: at,
        deleting_at: Some(at),
        termination_at: None,
        owned_by_pool: false,
        has_finalizer: true,
        spec: full_spec(pool, requests.clone(), offering.clone()),
        intent: Some(LaunchIntent {
            reservation: None,
            offering,
            vm: arm("virtualMachines/v"),
            nic: arm("networkInterfaces/n"),
            os_disk: arm("disks/o"),
            machine: None,
            written_at: at,
            refused: 2,
            operation: None,
        }),
        status: ClaimStatus {
            launched: Some(at),
            billed: Some(at),
            registered: Some(at),
            image: Some(Arc::from("/CommunityGalleries/nodes-1/images/ubuntu/versions/1.0.0")),
            capacity: requests,
            last_pod_event: Some(at),
            consolidatable: true,
            consistent_state: Some(StatusCondition::failing("ConsistencyCheckFailed", "expected 2 of resource cpu")),
            termination: Default::default(),
            drifted: Some(DriftedCondition {
                since: at,
                reason: Arc::from("NodePoolDrifted"),
                message: Arc::from("m"),
            }),
            disrupted: Some(DisruptionReason::Underutilized),
            ..ClaimStatus::default()
        },
    }
}

#[test]
fn a_claim_survives_the_way_to_the_api_server_and_back() {
    let before = full_claim();
    let wire = serde_json::to_value(claim_object(&before).unwrap()).unwrap();
    let after = claim(&serde_json::from_value(wire).unwrap()).unwrap();
    assert_eq!(after, before);
}

/// NodeClaims keep it from one version of napkeeper to the next.
#[test]
fn the_record_of_a_replacement_is_written_so() {
    let written = |replacement| {
        let mut claim = full_claim();
        claim.spec.replacement = replacement;
        claim_object(&claim).unwrap().metadata.annotations.unwrap().get("napkeeper.io/replacement").cloned()
    };
    let consolidated = r#"{"cause":{"reason":"Underutilized"},"inARow":2,"offerings":["Standard_D4s_v5 on-demand"],"replaced":"Standard_D8s_v5 spot"}"#;
    assert_eq!(written(full_claim().spec.replacement).as_deref(), Some(consolidated));
    let cause = RecurringCause { reason: DisruptionReason::Drifted, change: Some("00c0ffee00c0ffee".to_owned()) };
    let drifted = r#"{"cause":{"reason":"Drifted","change":"00c0ffee00c0ffee"},"inARow":3}"#;
    assert_eq!(written(Some(Replacement::new(cause, 3))).as_deref(), Some(drifted));
    assert_eq!(written(None), None);
}

#[test]
fn records_are_spread_over_objects_and_found_again() {
    let at = "2026-11-21T08:00:00Z".parse().unwrap();
    let mut before = OrphanRecords { last_inventory_at: Some(at), ..OrphanRecords::default() };
    for i in 0..1100 {
        let sighting = Sighting {
            kind: ResourceKind::Nic,
            incarnation: Arc::from("x"),
            tags: [(Arc::from("a"), Arc::from("b"))].into(),
            first_seen: at,
            last_seen: at,
            times: 2,
        };
        before.sightings.insert(arm(&format!("networkInterfaces/{i}")), sighting);
    }
    before.deletions.push(DeletionRecord {
        id: arm("disks/d"),
        incarnation: Arc::from("y"),
        kind: ResourceKind::DataDisk,
        at,
        evidence: vec![Arc::from("seen twice")],
        failures: 2,
        refused: Some(Arc::from("locked")),
    });
    let volume = |gone_since, unique_id: Option<&str>| VolumeRecord {
        name: ObjectName::new("pv").unwrap(),
        reclaim: ReclaimPolicy::Delete,
        last_seen: at,
        gone_since,
        unique_id: unique_id.map(Arc::from),
    };
    before.volumes.extend([(arm("disks/a"), volume(None, None)), (arm("disks/b"), volume(Some(at), Some("z")))]);
    let objects = record_objects(&before);
    assert_eq!(objects.len(), 3);
    assert_eq!(records(&objects).unwrap(), before);
}

fn wire<T: serde::de::DeserializeOwned>(value: serde_json::Value) -> T {
    serde_json::from_value(value).unwrap()
}

#[test]
fn a_node_is_read_with_all_that_matters() {
    let vm = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/v";
    let object = wire(serde_json::json!({
        "metadata": { "name": "n", "uid": "u", "creationTimestamp": "2026-03-01T10:00:00Z",
            "labels": { "a": "b" }, "finalizers": [labels::FINALIZER],
            "annotations": { labels::DO_NOT_DISRUPT: "true" } },
        "spec": { "providerID": format!("azure://{vm}"), "unschedulable": true,
            "taints": [{ "key": "k", "effect": "NoExecute" }] },
        "status": { "capacity": { "cpu": "2", "memory": "8Gi", "pods": "30" },
            "allocatable": { "cpu": "1900m", "memory": "7Gi", "nvidia.com/gpu": "1" },
            "conditions": [
                { "type": "MemoryPressure", "status": "True", "lastTransitionTime": "2026-03-01T10:09:00Z" },
                { "type": "Ready", "status": "True", "lastTransitionTime": "2026-03-01T10:01:00Z" }] },
    }));
    let node = node(&object).unwrap();
    assert_eq!(node.provider_id.unwrap().vm().as_str(), vm);
    assert_eq!((node.ready, node.ready_since.to_string().as_str()), (true, "2026-03-01T10:01:00Z"));
    assert!(node.cordoned && node.has_finalizer && node.do_not_disrupt);
    assert_eq!((node.capacity.cpu_millis, node.capacity.pods), (2000, 30));
    assert_eq!((node.allocatable.memory, node.allocatable.extended("nvidia.com/gpu")), (7 << 30, 1));
    assert_eq!(format!("{:?}", node.taints[0].effect), "NoExecute");
}

#[test]
fn a_node_of_no_azure_vm_has_no_provider_id_and_one_of_azure_must_have_a_good_one() {
    let read = |id: &str| {
        let object = serde_json::json!({ "metadata": { "name": "n", "creationTimestamp": "2026-03-01T10:00:00Z" },
            "spec": { "providerID": id } });
        node(&wire(object))
    };
    let other = read("kind://docker/n").unwrap();
    assert_eq!((other.provider_id, other.ready), (None, false));
    assert_eq!(other.ready_since, other.created_at);
    let wrong = read("azure://x").unwrap_err();
    assert_eq!(wrong.0[0].path.to_string(), "spec.providerID");
}

#[test]
fn claims_classes_and_attachments_locate_disks_and_their_users() {
    let disk = arm("disks/d");
    let free = volume_claim(&wire(serde_json::json!({
        "metadata": { "name": "c", "namespace": "x" }, "spec": { "storageClassName": "fast", "volumeName": "" } })));
    let free = free.unwrap();
    assert_eq!((free.key.to_string().as_str(), free.volume, free.deleting), ("x/c", None, false));
    assert_eq!(free.class.unwrap().as_str(), "fast");

    let zones = |values: &[&str]| serde_json::json!({ "matchLabelExpressions": [{ "key": "topology.disk.csi.azure.com/zone", "values": values }] });
    let class = storage_class(&wire(serde_json::json!({
        "metadata": { "name": "fast" }, "provisioner": "disk.csi.azure.com",
        "volumeBindingMode": "WaitForFirstConsumer", "allowedTopologies": [zones(&["e-1"]), zones(&["e-2"])] })));
    let class = class.unwrap();
    assert!(class.waits_for_pod && class.topologies[0].allows(labels::ZONE, Some("e-2")));
    assert!(!class.topologies[0].allows(labels::ZONE, Some("e-3")));

    let attached = |source: serde_json::Value| {
        let object = serde_json::json!({ "metadata": { "name": "a" },
            "spec": { "attacher": "disk.csi.azure.com", "nodeName": "n", "source": source } });
        attachment(&wire(object)).unwrap()
    };
    let (by_name, none) = attached(serde_json::json!({ "persistentVolumeName": "p" }));
    assert_eq!((by_name.volume.unwrap().as_str(), none), ("p", None));
    let inline = serde_json::json!({ "csi": { "driver": "disk.csi.azure.com", "volumeHandle": disk.as_str() } });
    let (_, named) = attached(serde_json::json!({ "inlineVolumeSpec": inline }));
    assert_eq!(named.unwrap().disk, disk);

    let volume = |uri: &str| serde_json::json!({ "name": "v", "azureDisk": { "diskName": "d", "diskURI": uri } });
    let in_tree: k8s_openapi::api::core::v1::PersistentVolume =
        wire(serde_json::json!({ "metadata": { "name": "pv", "uid": "u" },
        "spec": { "azureDisk": { "diskName": "d", "diskURI": disk.as_str() } } }));
    assert_eq!(super::volume(&in_tree).unwrap().handle.as_ref(), Some(&disk));
    let uses = inline_disks(&wire(serde_json::json!({ "metadata": { "name": "p", "namespace": "x" },
        "spec": { "containers": [], "volumes": [volume(disk.as_str()), volume("https://blob/d.vhd")] } })));
    assert_eq!(uses.len(), 1);
    assert_eq!((&uses[0].disk, &*uses[0].user), (&disk, "Pod x/p"));
}

#[test]
fn an_invalid_pod_is_opaque_and_never_disrupted() {
    let base = serde_json::json!({
        "metadata": { "name": "p", "namespace": "a", "uid": "u",
            "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": true }] },
        "spec": { "nodeName": "n", "containers": [{ "name": "c", "resources": { "requests": { "cpu": "500m" } } }] },
        "status": { "phase": "Running" },
    });
    let read = |at: &str, value: serde_json::Value| {
        let mut object = base.clone();
        let (parent, field) = at.rsplit_once('/').unwrap();
        object.pointer_mut(parent).unwrap()[field] = value;
        let object: k8s_openapi::api::core::v1::Pod = serde_json::from_value(object).unwrap();
        let strict = super::pod(&object);
        let (pod, wrong) = super::pod_or_opaque(&object).unwrap();
        assert_eq!(strict.err(), wrong);
        assert_eq!((pod.node.as_ref().map(|n| n.as_str()), pod.uid.as_str()), (Some("n"), "u"));
        assert_eq!(pod.shape.requests.cpu_millis, 500);
        (pod, wrong.is_some())
    };
    let never = jiff::Timestamp::MAX;
    let term = serde_json::json!({ "matchExpressions": [{ "key": "k", "operator": "Perhaps" }] });
    let affinity = serde_json::json!({ "nodeAffinity":
        { "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [term] } } });
    for (at, value) in [
        ("/status/phase", serde_json::json!("Pondering")),
        ("/spec/tolerations", serde_json::json!([{ "operator": "Perhaps" }])),
        ("/spec/affinity", affinity),
    ] {
        let (pod, wrong) = read(at, value);
        assert!(wrong && pod.opaque && pod.holds_drain(None, never) && pod.refuses_disruption(never), "{at}: {pod:?}");
        let waiting = napkeeper_core::model::cluster::pod::Pod { node: None, unschedulable: true, ..pod };
        assert!(!waiting.is_provisionable(), "{at}");
    }
    for text in ["True", "yes"] {
        let (pod, wrong) = read("/metadata/annotations", serde_json::json!({ "karpenter.sh/do-not-disrupt": text }));
        assert!(!wrong && !pod.opaque && pod.refuses_disruption(never), "{text}");
    }
    let (pod, _) = read("/metadata/annotations", serde_json::json!({ "karpenter.sh/do-not-disrupt": "false" }));
    assert!(!pod.refuses_disruption(never));
}

#[test]
fn the_finalizers_of_a_pool_say_how_far_its_deletion_is() {
    let deletion = |metadata: serde_json::Value| {
        let reference = serde_json::json!({ "group": "karpenter.azure.com", "kind": "AKSNodeClass", "name": "c" });
        let template = serde_json::json!({ "spec": { "nodeClassRef": reference, "requirements": [] } });
        let mut object = serde_json::json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": { "name": "p", "uid": "u" },
            "spec": { "template": template },
        });
        object["metadata"].as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
        let valid = super::node_pool(&serde_json::from_value(object.clone()).unwrap()).unwrap().deletion;
        let invalid = super::invalid_pool(&serde_json::from_value(object).unwrap(), "wrong").unwrap().deletion;
        assert_eq!(valid, invalid);
        (valid.requested_at.is_some(), valid.has_finalizer, valid.keeps_nodes)
    };
    let at = "2026-11-21T08:00:00Z";
    for (metadata, expected) in [
        (serde_json::json!({}), (false, false, false)),
        (serde_json::json!({ "finalizers": ["a/b", "napkeeper.io/nodes"] }), (false, true, false)),
        (serde_json::json!({ "deletionTimestamp": at, "finalizers": ["napkeeper.io/nodes"] }), (true, true, false)),
        (serde_json::json!({ "deletionTimestamp": at, "finalizers": ["foregroundDeletion"] }), (true, false, false)),
        (
            serde_json::json!({ "deletionTimestamp": at, "finalizers": ["orphan", "napkeeper.io/nodes"] }),
            (true, true, true),
        ),
        // Nobody has deleted it yet.
        (serde_json::json!({ "finalizers": ["orphan"] }), (false, false, false)),
    ] {
        assert_eq!(deletion(metadata.clone()), expected, "{metadata}");
    }
}

#[test]
fn a_claim_knows_whether_a_pool_owns_it() {
    let owned = |owners: serde_json::Value| {
        let mut object = serde_json::to_value(super::claim_object(&full_claim()).unwrap()).unwrap();
        object["metadata"]["ownerReferences"] = owners;
        super::claim(&serde_json::from_value(object).unwrap()).unwrap().owned_by_pool
    };
    let owner = |version: &str, kind: &str| serde_json::json!([{ "apiVersion": version, "kind": kind, "name": "p", "uid": "u" }]);
    for (version, kind, expected) in [
        ("karpenter.sh/v1", "NodePool", true),
        ("karpenter.sh/v1beta1", "NodePool", true),
        ("karpenter.sh/v1", "Other", false),
        ("example.com/v1", "NodePool", false),
    ] {
        assert_eq!(owned(owner(version, kind)), expected, "{version} {kind}");
    }
    assert!(!owned(serde_json::Value::Null));
}
