//! Label, annotation, taint, finalizer and tag keys.
//!
//! Upstream's keys are API: `karpenter.sh` (core), `karpenter.azure.com` and `kubernetes.azure.com` (the Azure
//! provider), `kubernetes.io` (Kubernetes). Ours are under `napkeeper.io`.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

/// VM size.
pub const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";
/// CPU architecture: `amd64` or `arm64`.
pub const ARCH: &str = "kubernetes.io/arch";
/// Operating system; always `linux` here.
pub const OS: &str = "kubernetes.io/os";
/// Name of a Namespace, which the API server puts on it.
pub const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";
/// Host name of a node.
pub const HOSTNAME: &str = "kubernetes.io/hostname";
/// Zone.
pub const ZONE: &str = "topology.kubernetes.io/zone";
/// Region.
pub const REGION: &str = "topology.kubernetes.io/region";
/// `on-demand` or `spot`.
pub const CAPACITY_TYPE: &str = "karpenter.sh/capacity-type";
/// NodePool that a node belongs to.
pub const NODEPOOL: &str = "karpenter.sh/nodepool";
/// Set once a node has joined.
pub const REGISTERED: &str = "karpenter.sh/registered";
/// Set once a node is ready for pods.
pub const INITIALIZED: &str = "karpenter.sh/initialized";
/// AKSNodeClass of a node.
pub const NODECLASS: &str = "karpenter.azure.com/aksnodeclass";
/// VM size, Azure's own key.
pub const SKU_NAME: &str = "karpenter.azure.com/sku-name";
/// Family letter, for example `D`.
pub const SKU_FAMILY: &str = "karpenter.azure.com/sku-family";
/// Series, for example `Ds_v5`.
pub const SKU_SERIES: &str = "karpenter.azure.com/sku-series";
/// Version digits, for example `5`.
pub const SKU_VERSION: &str = "karpenter.azure.com/sku-version";
/// Number of vCPUs.
pub const SKU_CPU: &str = "karpenter.azure.com/sku-cpu";
/// Memory in MiB.
pub const SKU_MEMORY: &str = "karpenter.azure.com/sku-memory";
/// GPU name, for example `A100`.
pub const SKU_GPU_NAME: &str = "karpenter.azure.com/sku-gpu-name";
/// `nvidia` or `amd`.
pub const SKU_GPU_MANUFACTURER: &str = "karpenter.azure.com/sku-gpu-manufacturer";
/// Number of GPUs.
pub const SKU_GPU_COUNT: &str = "karpenter.azure.com/sku-gpu-count";
/// Accelerated networking: `true` or `false`.
pub const SKU_ACCELERATED_NETWORKING: &str = "karpenter.azure.com/sku-networking-accelerated";
/// Premium storage: `true` or `false`.
pub const SKU_PREMIUM_STORAGE: &str = "karpenter.azure.com/sku-storage-premium-capable";
/// Greatest ephemeral OS disk in GB.
pub const SKU_EPHEMERAL_OS_MAX: &str = "karpenter.azure.com/sku-storage-ephemeralos-maxsize";
/// `zonal` or `regional`.
pub const PLACEMENT_SCOPE: &str = "karpenter.azure.com/placement-scope";
/// `regular` or `spot`, AKS's key.
pub const SCALE_SET_PRIORITY: &str = "kubernetes.azure.com/scalesetpriority";
/// `regular` or `spot`, AKS's newer key.
pub const PRIORITY: &str = "kubernetes.azure.com/priority";
/// `system` or `user`.
pub const MODE: &str = "kubernetes.azure.com/mode";
/// Number of vCPUs, AKS's key.
pub const AKS_SKU_CPU: &str = "kubernetes.azure.com/sku-cpu";
/// Memory in MiB, AKS's key.
pub const AKS_SKU_MEMORY: &str = "kubernetes.azure.com/sku-memory";
/// `Ubuntu` or `AzureLinux`.
pub const OS_SKU: &str = "kubernetes.azure.com/os-sku";
/// `true` on nodes with a FIPS image; absent on all others.
pub const FIPS_ENABLED: &str = "kubernetes.azure.com/fips_enabled";
/// Node resource group, normalised.
pub const CLUSTER: &str = "kubernetes.azure.com/cluster";

/// Keys that the provider sets by itself on every node, so that a pod may require them without the pool naming them.
pub const WELL_KNOWN: [&str; 28] = [
    INSTANCE_TYPE,
    ARCH,
    OS,
    ZONE,
    REGION,
    CAPACITY_TYPE,
    NODEPOOL,
    NODECLASS,
    SKU_NAME,
    SKU_FAMILY,
    SKU_SERIES,
    SKU_VERSION,
    SKU_CPU,
    SKU_MEMORY,
    SKU_GPU_NAME,
    SKU_GPU_MANUFACTURER,
    SKU_GPU_COUNT,
    SKU_ACCELERATED_NETWORKING,
    SKU_PREMIUM_STORAGE,
    SKU_EPHEMERAL_OS_MAX,
    PLACEMENT_SCOPE,
    SCALE_SET_PRIORITY,
    PRIORITY,
    MODE,
    AKS_SKU_CPU,
    AKS_SKU_MEMORY,
    OS_SKU,
    FIPS_ENABLED,
];

/// True when the provider sets this label itself.
#[must_use]
pub fn is_well_known(key: &str) -> bool {
    WELL_KNOWN.contains(&key)
}

/// A key as shared text: of a well-known one there is a single copy, which thousands of nodes and sizes share.
#[must_use]
pub fn interned(key: &str) -> Arc<str> {
    static KNOWN: LazyLock<BTreeSet<Arc<str>>> =
        LazyLock::new(|| WELL_KNOWN.iter().copied().chain([HOSTNAME]).map(Arc::from).collect());
    KNOWN.get(key).map_or_else(|| Arc::from(key), Arc::clone)
}

/// The current key for an old alias; the key itself when it is none.
#[must_use]
pub fn normalize(key: &str) -> &str {
    match key {
        "failure-domain.beta.kubernetes.io/zone" => ZONE,
        "failure-domain.beta.kubernetes.io/region" => REGION,
        "beta.kubernetes.io/arch" => ARCH,
        "beta.kubernetes.io/os" => OS,
        "beta.kubernetes.io/instance-type" => INSTANCE_TYPE,
        key => key,
    }
}

/// Taint of a node that is being disrupted.
pub const TAINT_DISRUPTED: &str = "karpenter.sh/disrupted";
/// Taint of a node that may soon be deleted. Ours: it only makes kube-scheduler prefer other nodes.
pub const TAINT_UNDERUTILIZED: &str = "napkeeper.io/underutilized";
/// Taint of a node that has not been registered.
pub const TAINT_UNREGISTERED: &str = "karpenter.sh/unregistered";
/// Taint of a node whose kubelet is not ready.
pub const TAINT_NOT_READY: &str = "node.kubernetes.io/not-ready";
/// Taint of a node that cannot be reached.
pub const TAINT_UNREACHABLE: &str = "node.kubernetes.io/unreachable";
/// Taint of a node that a person has shut down for certain; Kubernetes deletes its pods while it is not ready.
pub const TAINT_OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
/// Taint of a node whose VM is shut down, by its cloud provider.
pub const TAINT_SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";
/// Taint of a node that its cloud provider has not yet initialised.
pub const TAINT_UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// Label of a node to which load balancers send no traffic.
pub const EXCLUDE_FROM_LOAD_BALANCERS: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
/// Its value on a node that is being drained, as in Karpenter. Users may give it another.
pub const EXCLUDED_BY: &str = "karpenter";
/// Annotation that keeps pods and nodes from being disrupted.
pub const DO_NOT_DISRUPT: &str = "karpenter.sh/do-not-disrupt";
/// Annotation of a pod: those of a ReplicaSet with less are deleted first.
pub const POD_DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
/// Annotation of a Job: how long each of its pods runs in a simulation, for example `45m`.
pub const SIMULATED_DURATION: &str = "napkeeper.io/simulated-duration";
/// Annotation of an AKSNodeClass: the id of the capacity reservation group of its nodes.
pub const RESERVATION_GROUP: &str = "napkeeper.io/capacity-reservation-group";
/// Annotation on a NodeClaim: the resources that are about to be created in Azure for it.
pub const LAUNCH_INTENT: &str = "napkeeper.io/launch-intent";
/// Annotation on a NodeClaim: the offerings it was planned for, cheapest first.
pub const PLANNED_OFFERINGS: &str = "napkeeper.io/planned-offerings";
/// Annotation on a NodeClaim: the NodeClaims that it replaces, whose nodes are disrupted once it is initialized.
pub const REPLACES: &str = "napkeeper.io/replaces";
/// Annotation on a NodeClaim: the other NodeClaims that are created with it to replace the same ones.
pub const REPLACES_WITH: &str = "napkeeper.io/replaces-with";
/// Annotation on a NodeClaim that replaces others: why, and how often in a row, as JSON.
pub const REPLACEMENT: &str = "napkeeper.io/replacement";
/// Annotation on a NodeClaim: the fields of the NodePool and the AKSNodeClass that it was made from.
pub const MADE_FROM: &str = "napkeeper.io/made-from";
/// Annotation on a NodeClaim that is being deleted: until when its node must be drained, as RFC 3339.
pub const TERMINATION_TIMESTAMP: &str = "karpenter.sh/nodeclaim-termination-timestamp";
/// Finalizer on NodeClaims and Nodes.
pub const FINALIZER: &str = "karpenter.sh/termination";
/// Finalizer on NodePools: until their nodes are gone.
pub const POOL_FINALIZER: &str = "napkeeper.io/nodes";
/// Finalizer of an object that is being deleted with `--cascade=orphan`: what it owns is kept
/// (`metav1.FinalizerOrphanDependents`).
pub const ORPHAN_FINALIZER: &str = "orphan";

/// Azure tag: the cluster that owns a resource (Karpenter's key).
pub const TAG_KARPENTER_CLUSTER: &str = "karpenter.azure.com_cluster";
/// Azure tag: the NodePool (Karpenter's key).
pub const TAG_KARPENTER_NODEPOOL: &str = "karpenter.sh_nodepool";
/// Azure tag: the cluster that owns a resource.
pub const TAG_CLUSTER: &str = "napkeeper.io_cluster";
/// Azure tag: name of the NodeClaim.
pub const TAG_CLAIM: &str = "napkeeper.io_nodeclaim";
/// Azure tag: UID of the NodeClaim.
pub const TAG_CLAIM_UID: &str = "napkeeper.io_nodeclaim-uid";
/// Azure tag of an AKS Machine and its VM: name of the NodeClaim that Karpenter created it for.
pub const TAG_MACHINE_CLAIM: &str = "karpenter.azure.com_aksmachine_nodeclaim";
/// Azure tag of a disk or snapshot: name of the PersistentVolume that the CSI driver created it for.
pub const TAG_CSI_VOLUME: &str = "kubernetes.io-created-for-pv-name";
/// Azure tag of a disk: name of the PersistentVolumeClaim that it was created for.
pub const TAG_CSI_CLAIM: &str = "kubernetes.io-created-for-pvc-name";
/// Azure tag of a disk: namespace of the PersistentVolumeClaim that it was created for.
pub const TAG_CSI_NAMESPACE: &str = "kubernetes.io-created-for-pvc-namespace";
/// Azure tag of a public IP: the Services that it was created for, `namespace/name` with commas between.
pub const TAG_SERVICE: &str = "k8s-azure-service";
/// Azure tag: since when a resource has been a suspect (mode `Mark`).
pub const TAG_SUSPECT_SINCE: &str = "napkeeper.io_suspect-since";
