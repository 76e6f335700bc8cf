//! Sound objects, from which the cases are made.

use serde_json::{Value, json};

/// A sound object, and the name that failures call it.
#[derive(Debug, Clone)]
pub(crate) struct Base {
    pub(crate) name: &'static str,
    pub(crate) object: Value,
}

const SUBNET: &str = "/subscriptions/12345678-1234-1234-1234-123456789012/resourceGroups/rg/providers/Microsoft.Network/virtualNetworks/v/subnets/s";
const DISK: &str = "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Compute/disks/d";
const NIC: &str = "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Network/networkInterfaces/n";

/// All of them. The names of the objects are those of the bases.
pub(crate) fn all() -> Vec<Base> {
    let mut bases = Vec::new();
    let mut add = |api: &str, kind: &str, name: &'static str, spec: Value| {
        let metadata = json!({ "name": name });
        let mut object = json!({ "apiVersion": api, "kind": kind, "metadata": metadata });
        if !spec.is_null() {
            object["spec"] = spec;
        }
        bases.push(Base { name, object });
    };
    let karpenter = "karpenter.sh/v1";
    add(karpenter, "NodePool", "pool-minimal", json!({ "template": { "spec": minimal_template() } }));
    add(karpenter, "NodePool", "pool-full", full_pool());
    add(karpenter, "NodePool", "pool-static", static_pool());
    add(karpenter, "NodePool", "pool-odd", odd_pool());
    add(karpenter, "NodeClaim", "claim-minimal", minimal_template());
    add(karpenter, "NodeClaim", "claim-full", full_claim());
    let overlay = json!({
        "requirements": [{ "key": "karpenter.sh/nodepool", "operator": "In", "values": ["a"] }],
        "priceAdjustment": "-12.5%",
        "capacity": { "example.com/fpga": "2" },
        "weight": 10_000,
    });
    add("karpenter.sh/v1alpha1", "NodeOverlay", "overlay-full", overlay);
    for (version, minimal, full) in [
        ("karpenter.azure.com/v1beta1", "class-minimal", "class-full"),
        ("karpenter.azure.com/v1alpha2", "older-minimal", "older-full"),
    ] {
        add(version, "AKSNodeClass", minimal, Value::Null);
        add(version, "AKSNodeClass", full, full_class());
    }
    add("karpenter.azure.com/v1beta1", "AKSNodeClass", "class-odd", odd_class());
    let napkeeper = "napkeeper.io/v1alpha1";
    add(napkeeper, "OrphanSweep", "sweep-minimal", Value::Null);
    add(napkeeper, "OrphanSweep", "sweep-full", full_sweep());
    add(napkeeper, "OrphanRecord", "record-full", full_record());
    add(napkeeper, "NodeRecord", "node-record-full", full_node_record());
    add(napkeeper, "PlacementPolicy", "placement-full", full_placement());
    bases
}

/// The base of this name.
pub(crate) fn named(name: &str) -> Value {
    all().into_iter().find(|base| base.name == name).map(|base| base.object).unwrap_or_default()
}

fn class_ref() -> Value {
    json!({ "group": "karpenter.azure.com", "kind": "AKSNodeClass", "name": "default" })
}

fn minimal_template() -> Value {
    json!({ "nodeClassRef": class_ref(), "requirements": [] })
}

fn full_template() -> Value {
    json!({
        "expireAfter": "720h",
        "nodeClassRef": class_ref(),
        "requirements": [
            { "key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"] },
            { "key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot", "on-demand"], "minValues": 1 },
            { "key": "karpenter.azure.com/sku-family", "operator": "NotIn", "values": ["A"] },
            { "key": "karpenter.azure.com/sku-cpu", "operator": "Gt", "values": ["3"] },
            { "key": "karpenter.azure.com/sku-version", "operator": "Gte", "values": ["5"] },
            { "key": "kubernetes.azure.com/mode", "operator": "Exists" },
            { "key": "example.com/gone", "operator": "DoesNotExist", "values": [] },
        ],
        "startupTaints": [{ "key": "example.com/start", "effect": "NoExecute" }],
        "taints": [
            { "key": "example.com/kept", "value": "yes", "effect": "NoSchedule", "timeAdded": "2026-01-02T03:04:05Z" },
            { "key": "plain", "effect": "PreferNoSchedule" },
        ],
        "terminationGracePeriod": "1h30m",
    })
}

fn full_pool() -> Value {
    json!({
        "disruption": {
            "budgets": [
                { "nodes": "10%" },
                { "nodes": "0", "reasons": ["Drifted", "Underutilized"], "schedule": "0 9 * * 1-5", "duration": "8h30m" },
            ],
            "consolidateAfter": "30s",
            "consolidationPolicy": "WhenEmpty",
        },
        "limits": { "cpu": "100", "memory": "400Gi", "example.com/device": 4 },
        "template": {
            "metadata": {
                "annotations": { "example.com/why": "because" },
                "labels": { "team": "a", "example.com/tier": "web", "empty": "" },
            },
            "spec": full_template(),
        },
        "weight": 10,
    })
}

fn static_pool() -> Value {
    json!({
        "replicas": 3,
        "limits": { "nodes": "10" },
        "template": { "spec": { "nodeClassRef": class_ref(), "requirements": [
            { "key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["Standard_D4s_v5", "Standard_D8s_v5"], "minValues": 2 },
        ] } },
    })
}

fn odd_pool() -> Value {
    json!({
        "disruption": { "budgets": [], "consolidateAfter": "Never", "consolidationPolicy": "Balanced" },
        "limits": {},
        "template": {
            "metadata": { "labels": {} },
            "spec": {
                "expireAfter": "Never",
                "nodeClassRef": class_ref(),
                "requirements": [
                    { "key": "kubernetes.azure.com/os-sku", "operator": "In", "values": ["Ubuntu", "Ubuntu"] },
                    { "key": "example.com/zero", "operator": "Lt", "values": ["+007"] },
                ],
                "taints": [],
            },
        },
    })
}

fn full_claim() -> Value {
    let mut spec = full_template();
    spec["resources"] = json!({ "requests": { "cpu": "2", "memory": "4Gi", "pods": 5 } });
    spec
}

fn dns(zone: &str, destination: &str) -> Value {
    json!({
        "zone": zone,
        "cacheDuration": "1h",
        "forwardDestination": destination,
        "forwardPolicy": "Sequential",
        "maxConcurrent": 1000,
        "protocol": "PreferUDP",
        "queryLogging": "Error",
        "serveStale": "Verify",
        "serveStaleDuration": "30m",
    })
}

fn full_class() -> Value {
    json!({
        "artifactStreaming": { "enabled": true },
        "fipsMode": "FIPS",
        "gpu": { "mode": "None" },
        "imageFamily": "Ubuntu2204",
        "kubelet": {
            "allowedUnsafeSysctls": ["net.core.somaxconn"],
            "containerLogMaxFiles": 5,
            "containerLogMaxSize": "50Mi",
            "cpuCFSQuota": true,
            "cpuCFSQuotaPeriod": "100ms",
            "cpuManagerPolicy": "static",
            "failSwapOn": false,
            "imageGCHighThresholdPercent": 85,
            "imageGCLowThresholdPercent": 80,
            "podPidsLimit": 100,
            "topologyManagerPolicy": "best-effort",
        },
        "linuxOSConfig": {
            "swapFileSize": "1Gi",
            "sysctls": full_sysctls(),
            "transparentHugePageDefrag": "defer+madvise",
            "transparentHugePageEnabled": "always",
        },
        "localDNS": {
            "mode": "Required",
            "kubeDNSOverrides": [
                dns(".", "ClusterCoreDNS"),
                dns("cluster.local", "ClusterCoreDNS"),
                dns("example.com", "VnetDNS"),
            ],
            "vnetDNSOverrides": [
                dns(".", "VnetDNS"),
                dns("cluster.local", "ClusterCoreDNS"),
                dns("example.com.", "VnetDNS"),
            ],
        },
        "maxPods": 110,
        "osDiskSizeGB": 128,
        "security": { "encryptionAtHost": true, "trustedLaunch": { "secureBoot": false, "vtpm": true } },
        "tags": { "team": "a", "cost center": "12" },
        "vnetSubnetID": SUBNET,
    })
}

fn full_sysctls() -> Value {
    json!({
        "fsAioMaxNr": 65_536,
        "fsFileMax": 12_000_500,
        "fsInotifyMaxUserWatches": 781_250,
        "fsNrOpen": 8_192,
        "kernelThreadsMax": 20,
        "netCoreNetdevMaxBacklog": 1_000,
        "netCoreOptmemMax": 20_480,
        "netCoreRmemDefault": 212_992,
        "netCoreRmemMax": 425_984,
        "netCoreSomaxconn": 4_096,
        "netCoreWmemDefault": 212_992,
        "netCoreWmemMax": 212_992,
        "netIPv4IPLocalPortRange": "32768 60999",
        "netIPv4NeighDefaultGcThresh1": 1_024,
        "netIPv4NeighDefaultGcThresh2": 2_048,
        "netIPv4NeighDefaultGcThresh3": 4_096,
        "netIPv4TCPFinTimeout": 60,
        "netIPv4TCPKeepaliveIntvl": 75,
        "netIPv4TCPKeepaliveProbes": 9,
        "netIPv4TCPKeepaliveTime": 7_200,
        "netIPv4TCPMaxSynBacklog": 128,
        "netIPv4TCPMaxTwBuckets": 8_000,
        "netIPv4TCPTwReuse": true,
        "netNetfilterNfConntrackBuckets": 65_536,
        "netNetfilterNfConntrackMax": 131_072,
        "vmMaxMapCount": 65_530,
        "vmSwappiness": 60,
        "vmVfsCachePressure": 100,
    })
}

fn odd_class() -> Value {
    json!({
        "fipsMode": "Disabled",
        "gpu": {},
        "imageFamily": "AzureLinux",
        "kubelet": {},
        "linuxOSConfig": { "sysctls": {} },
        "security": { "trustedLaunch": {} },
        "tags": {},
    })
}

fn full_placement() -> Value {
    json!({
        "namespaceSelector": { "matchLabels": { "placement": "balanced" } },
        "defaults": {
            "topologySpread": [
                { "topologyKey": "topology.kubernetes.io/zone", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway" },
            ],
            "spot": { "onDemandPercent": 33 },
            "jobs": { "doNotDisruptFor": "4h" },
        },
    })
}

fn full_sweep() -> Value {
    json!({
        "approvalRequired": ["Vm", "DataDisk"],
        "approvals": [
            { "id": DISK, "incarnation": "1", "expiresAt": "2026-02-01T00:00:00Z" },
            { "id": NIC, "incarnation": "2", "expiresAt": "2026-02-01T00:00:00.5+02:00" },
        ],
        "breaker": { "clearedAt": "2026-01-01T00:00:00Z" },
        "caps": { "deletionsPerDay": 10 },
        "exclusions": [{ "name": "kept" }, { "tag": { "key": "keep", "value": "yes" } }],
        "kinds": ["Nic", "OsDisk", "Vm", "DataDisk"],
        "minimumAge": { "dataDisk": "168h", "nic": "30m", "osDisk": "1h", "vm": "90m" },
        "mode": "Collect",
        "observeEvery": "10m",
        "schedule": "0 3 * * *",
    })
}

fn full_node_record() -> Value {
    let time = "2026-01-01T00:00:00Z";
    json!({
        "lastRemoval": time,
        "removals": [{
            "by": "napkeeper", "cause": "NodePoolDrifted: label team: b", "ended": time, "nodePool": "general", "pods": 3,
            "reason": "Drifted", "started": time, "uid": "u-1",
            "removed": {
                "capacityType": "on-demand", "node": "aks-a", "nodeClaim": "a", "price": 192_000_000,
                "size": "Standard_D4s_v5", "zone": "westeurope-1",
            },
            "replacements": [{ "capacityType": "spot", "nodeClaim": "b", "size": "Standard_D2s_v5", "zone": "0" }],
        }],
    })
}

fn full_record() -> Value {
    let time = "2026-01-01T00:00:00Z";
    json!({
        "deletions": [{ "at": time, "evidence": ["no link"], "id": NIC, "incarnation": "1", "kind": "Nic" }],
        "lastObserved": time,
        "sightings": [{
            "firstSeen": time, "id": DISK, "incarnation": "1", "kind": "DataDisk", "lastSeen": time,
            "tags": { "team": "a" }, "times": 3,
        }],
        "trips": [{ "at": time, "kind": "Vm", "owned": 10, "suspects": 5 }],
        "volumes": [{ "disk": DISK, "lastSeen": time, "name": "pv-1", "reclaim": "Delete" }],
    })
}
