//! AKSNodeClasses, `karpenter.azure.com/v1beta1`.
//!
//! Fields, defaults and limits are those of `karpenter-provider-azure` of August 2026. `v1alpha2` has the same schema,
//! so one type serves both versions.

use crate::types::common::{Condition, DURATION, wire};
use kube::CustomResource;
use std::collections::BTreeMap;

/// Default of `imageFamily`.
pub const DEFAULT_IMAGE_FAMILY: &str = "Ubuntu";
/// Default of `osDiskSizeGB`.
pub const DEFAULT_OS_DISK_GB: i32 = 128;
/// Default of `gpu.mode`.
pub const DEFAULT_GPU_MODE: &str = "Driver";

/// A size such as `50Mi`.
const SIZE: &str = r"^\d+(E|P|T|G|M|K|Ei|Pi|Ti|Gi|Mi|Ki)$";
/// Resource id of a subnet. Azure compares ids without case.
const SUBNET: &str = r"(?i)^\/subscriptions\/[^\/]+\/resourceGroups\/[a-zA-Z0-9_\-().]{0,89}[a-zA-Z0-9_\-()]\/providers\/Microsoft\.Network\/virtualNetworks\/[^\/]+\/subnets\/[^\/]+$";
/// A DNS zone, or `.` for the root.
const DNS_ZONE: &str =
    r"^(\.|[A-Za-z0-9]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?)*\.?)$";

wire! {
    /// AKSNodeClassSpec says how the VMs of nodes are set up.
    #[derive(CustomResource)]
    #[kube(
        group = "karpenter.azure.com",
        version = "v1beta1",
        kind = "AKSNodeClass",
        plural = "aksnodeclasses",
        doc = "AKSNodeClass configures the VMs of nodes.",
        shortname = "aksnc",
        shortname = "aksncs",
        category = "karpenter",
        category = "nap",
        status = "AKSNodeClassStatus",
        derive = "Default",
        derive = "PartialEq",
        // The API server takes one without a spec; the macro has no word for that.
        attr = "cfg_attr(all(), serde(default))",
        printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
        printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
        printcolumn(name = "ImageFamily", type_ = "string", json_path = ".spec.imageFamily", priority = 1)
    )]
    AKSNodeClassSpec {
        /// Streaming of container images.
        artifact_streaming?: ArtifactStreaming,
        /// FIPS images; absent is Disabled.
        #[schemars(extend("enum" = ["FIPS", "Disabled"]))]
        fips_mode?: String,
        /// GPU settings.
        gpu?: Gpu,
        /// Image family of the nodes.
        #[schemars(extend(
            "default" = DEFAULT_IMAGE_FAMILY,
            "enum" = ["Ubuntu", "Ubuntu2204", "Ubuntu2404", "AzureLinux"]
        ))]
        image_family?: String,
        /// Kubelet settings.
        kubelet?: Kubelet,
        /// Settings of the operating system.
        #[serde(rename = "linuxOSConfig")]
        linux_os_config?: LinuxOsConfig,
        /// DNS on the node.
        #[serde(rename = "localDNS")]
        local_dns?: LocalDns,
        /// Most pods on a node; absent is the default of the network mode.
        #[schemars(extend("minimum" = 10, "maximum" = 250))]
        max_pods?: i32,
        /// Size of the OS disk in GB.
        #[schemars(extend("default" = DEFAULT_OS_DISK_GB, "minimum" = 30, "maximum" = 2048))]
        #[serde(rename = "osDiskSizeGB")]
        os_disk_size_gb?: i32,
        /// Security settings.
        security?: Security,
        /// Tags for the VMs and what belongs to them.
        tags?: BTreeMap<String, String>,
        /// Subnet for the nodes; absent is the cluster's.
        #[schemars(extend("pattern" = SUBNET))]
        #[serde(rename = "vnetSubnetID")]
        vnet_subnet_id?: String,
    }
}

wire! {
    /// Streaming of container images.
    ArtifactStreaming {
        /// Images are streamed.
        enabled?: bool,
    }
}

wire! {
    /// GPU settings.
    Gpu {
        /// Driver installs the GPU driver; None leaves it to somebody else.
        #[schemars(extend("default" = DEFAULT_GPU_MODE, "enum" = ["Driver", "None"]))]
        mode?: String,
    }
}

wire! {
    /// Kubelet settings.
    Kubelet {
        /// Unsafe sysctls that pods may set.
        allowed_unsafe_sysctls?: Vec<String>,
        /// Most log files of a container.
        #[schemars(extend("default" = 5, "minimum" = 2))]
        container_log_max_files?: i32,
        /// Size at which a container's log is rotated.
        #[schemars(extend("default" = "50Mi", "pattern" = SIZE))]
        container_log_max_size?: String,
        /// CPU limits are enforced by CFS quota.
        #[schemars(extend("default" = true))]
        #[serde(rename = "cpuCFSQuota")]
        cpu_cfs_quota?: bool,
        /// Period of the CFS quota.
        #[schemars(extend("default" = "100ms"))]
        #[serde(rename = "cpuCFSQuotaPeriod")]
        cpu_cfs_quota_period?: String,
        /// CPU manager policy.
        #[schemars(extend("default" = "none", "enum" = ["none", "static"]))]
        cpu_manager_policy?: String,
        /// The kubelet refuses to start on a node with swap.
        fail_swap_on?: bool,
        /// Disk use in percent above which images are collected.
        #[schemars(extend("minimum" = 0, "maximum" = 100))]
        #[serde(rename = "imageGCHighThresholdPercent")]
        image_gc_high_threshold_percent?: i32,
        /// Disk use in percent down to which images are collected.
        #[schemars(extend("minimum" = 0, "maximum" = 100))]
        #[serde(rename = "imageGCLowThresholdPercent")]
        image_gc_low_threshold_percent?: i32,
        /// Most processes of a pod.
        pod_pids_limit?: i64,
        /// Topology manager policy.
        #[schemars(extend("default" = "none", "enum" = ["restricted", "best-effort", "none", "single-numa-node"]))]
        topology_manager_policy?: String,
    }
}

wire! {
    /// Settings of the operating system.
    LinuxOsConfig {
        /// Size of the swap file.
        #[schemars(extend("pattern" = SIZE))]
        swap_file_size?: String,
        /// Kernel settings.
        sysctls?: Sysctls,
        /// Defragmentation of transparent huge pages.
        #[schemars(extend("enum" = ["always", "defer", "defer+madvise", "madvise", "never"]))]
        transparent_huge_page_defrag?: String,
        /// Use of transparent huge pages.
        #[schemars(extend("enum" = ["always", "madvise", "never"]))]
        transparent_huge_page_enabled?: String,
    }
}

wire! {
    /// Kernel settings.
    Sysctls {
        /// `fs.aio-max-nr`.
        #[schemars(extend("minimum" = 65_536, "maximum" = 6_553_500))]
        fs_aio_max_nr?: i32,
        /// `fs.file-max`.
        #[schemars(extend("minimum" = 8_192, "maximum" = 12_000_500))]
        fs_file_max?: i32,
        /// `fs.inotify.max_user_watches`.
        #[schemars(extend("minimum" = 781_250, "maximum" = 2_097_152))]
        fs_inotify_max_user_watches?: i32,
        /// `fs.nr_open`.
        #[schemars(extend("minimum" = 8_192, "maximum" = 20_000_500))]
        fs_nr_open?: i32,
        /// `kernel.threads-max`.
        #[schemars(extend("minimum" = 20, "maximum" = 513_785))]
        kernel_threads_max?: i32,
        /// `net.core.netdev_max_backlog`.
        #[schemars(extend("minimum" = 1_000, "maximum" = 3_240_000))]
        net_core_netdev_max_backlog?: i32,
        /// `net.core.optmem_max`.
        #[schemars(extend("minimum" = 20_480, "maximum" = 4_194_304))]
        net_core_optmem_max?: i32,
        /// `net.core.rmem_default`.
        #[schemars(extend("minimum" = 212_992, "maximum" = 134_217_728))]
        net_core_rmem_default?: i32,
        /// `net.core.rmem_max`.
        #[schemars(extend("minimum" = 212_992, "maximum" = 134_217_728))]
        net_core_rmem_max?: i32,
        /// `net.core.somaxconn`.
        #[schemars(extend("minimum" = 4_096, "maximum" = 3_240_000))]
        net_core_somaxconn?: i32,
        /// `net.core.wmem_default`.
        #[schemars(extend("minimum" = 212_992, "maximum" = 134_217_728))]
        net_core_wmem_default?: i32,
        /// `net.core.wmem_max`.
        #[schemars(extend("minimum" = 212_992, "maximum" = 134_217_728))]
        net_core_wmem_max?: i32,
        /// `net.ipv4.ip_local_port_range`.
        #[schemars(extend("pattern" = r"^\d+ \d+$"))]
        #[serde(rename = "netIPv4IPLocalPortRange")]
        net_ipv4_ip_local_port_range?: String,
        /// `net.ipv4.neigh.default.gc_thresh1`.
        #[schemars(extend("minimum" = 128, "maximum" = 80_000))]
        #[serde(rename = "netIPv4NeighDefaultGcThresh1")]
        net_ipv4_neigh_default_gc_thresh1?: i32,
        /// `net.ipv4.neigh.default.gc_thresh2`.
        #[schemars(extend("minimum" = 512, "maximum" = 90_000))]
        #[serde(rename = "netIPv4NeighDefaultGcThresh2")]
        net_ipv4_neigh_default_gc_thresh2?: i32,
        /// `net.ipv4.neigh.default.gc_thresh3`.
        #[schemars(extend("minimum" = 1_024, "maximum" = 100_000))]
        #[serde(rename = "netIPv4NeighDefaultGcThresh3")]
        net_ipv4_neigh_default_gc_thresh3?: i32,
        /// `net.ipv4.tcp_fin_timeout`.
        #[schemars(extend("minimum" = 5, "maximum" = 120))]
        #[serde(rename = "netIPv4TCPFinTimeout")]
        net_ipv4_tcp_fin_timeout?: i32,
        /// `net.ipv4.tcp_keepalive_intvl`.
        #[schemars(extend("minimum" = 10, "maximum" = 90))]
        #[serde(rename = "netIPv4TCPKeepaliveIntvl")]
        net_ipv4_tcp_keepalive_intvl?: i32,
        /// `net.ipv4.tcp_keepalive_probes`.
        #[schemars(extend("minimum" = 1, "maximum" = 15))]
        #[serde(rename = "netIPv4TCPKeepaliveProbes")]
        net_ipv4_tcp_keepalive_probes?: i32,
        /// `net.ipv4.tcp_keepalive_time`.
        #[schemars(extend("minimum" = 30, "maximum" = 432_000))]
        #[serde(rename = "netIPv4TCPKeepaliveTime")]
        net_ipv4_tcp_keepalive_time?: i32,
        /// `net.ipv4.tcp_max_syn_backlog`.
        #[schemars(extend("minimum" = 128, "maximum" = 3_240_000))]
        #[serde(rename = "netIPv4TCPMaxSynBacklog")]
        net_ipv4_tcp_max_syn_backlog?: i32,
        /// `net.ipv4.tcp_max_tw_buckets`.
        #[schemars(extend("minimum" = 8_000, "maximum" = 1_440_000))]
        #[serde(rename = "netIPv4TCPMaxTwBuckets")]
        net_ipv4_tcp_max_tw_buckets?: i32,
        /// `net.ipv4.tcp_tw_reuse`.
        #[serde(rename = "netIPv4TCPTwReuse")]
        net_ipv4_tcp_tw_reuse?: bool,
        /// `net.netfilter.nf_conntrack_buckets`.
        #[schemars(extend("minimum" = 65_536, "maximum" = 524_288))]
        net_netfilter_nf_conntrack_buckets?: i32,
        /// `net.netfilter.nf_conntrack_max`.
        #[schemars(extend("minimum" = 131_072, "maximum" = 2_097_152))]
        net_netfilter_nf_conntrack_max?: i32,
        /// `vm.max_map_count`.
        #[schemars(extend("minimum" = 65_530, "maximum" = 262_144))]
        vm_max_map_count?: i32,
        /// `vm.swappiness`.
        #[schemars(extend("minimum" = 0, "maximum" = 100))]
        vm_swappiness?: i32,
        /// `vm.vfs_cache_pressure`.
        #[schemars(extend("minimum" = 0, "maximum" = 100))]
        vm_vfs_cache_pressure?: i32,
    }
}

wire! {
    /// DNS on the node.
    LocalDns {
        /// Overrides for names that pods resolve through kube-dns.
        #[schemars(extend("maxItems" = 100, "x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["zone"]))]
        #[serde(rename = "kubeDNSOverrides")]
        kube_dns_overrides: Vec<DnsOverride>,
        /// Preferred, Required or Disabled.
        #[schemars(extend("enum" = ["Preferred", "Required", "Disabled"]))]
        mode: String,
        /// Overrides for names that pods resolve through the virtual network.
        #[schemars(extend("maxItems" = 100, "x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["zone"]))]
        #[serde(rename = "vnetDNSOverrides")]
        vnet_dns_overrides: Vec<DnsOverride>,
    }
}

wire! {
    /// How names of one zone are resolved.
    DnsOverride {
        /// How long answers are kept.
        #[schemars(extend("pattern" = DURATION))]
        cache_duration: String,
        /// Where queries go.
        #[schemars(extend("enum" = ["ClusterCoreDNS", "VnetDNS"]))]
        forward_destination: String,
        /// Which upstream server is asked.
        #[schemars(extend("enum" = ["Sequential", "RoundRobin", "Random"]))]
        forward_policy: String,
        /// Most queries at once.
        #[schemars(extend("minimum" = 0))]
        max_concurrent: i32,
        /// Protocol to the upstream server.
        #[schemars(extend("enum" = ["PreferUDP", "ForceTCP"]))]
        protocol: String,
        /// What is logged.
        #[schemars(extend("enum" = ["Error", "Log"]))]
        query_logging: String,
        /// Use of stale answers.
        #[schemars(extend("enum" = ["Verify", "Immediate", "Disable"]))]
        serve_stale: String,
        /// How long stale answers are used.
        #[schemars(extend("pattern" = DURATION))]
        serve_stale_duration: String,
        /// The zone; `.` is the root.
        #[schemars(extend("maxLength" = 254, "minLength" = 1, "pattern" = DNS_ZONE))]
        zone: String,
    }
}

wire! {
    /// Security settings.
    Security {
        /// Encryption at the host.
        encryption_at_host?: bool,
        /// Trusted launch.
        trusted_launch?: TrustedLaunch,
    }
}

wire! {
    /// Trusted launch.
    TrustedLaunch {
        /// Secure boot.
        secure_boot?: bool,
        /// Virtual TPM.
        vtpm?: bool,
    }
}

wire! {
    /// State of an AKSNodeClass.
    AKSNodeClassStatus {
        /// Aspects of the state.
        conditions?: Vec<Condition>,
        /// Images that nodes may be made from.
        images?: Vec<NodeImage>,
        /// Kubernetes version of new nodes.
        kubernetes_version?: String,
        /// Whether local DNS is in use.
        #[schemars(extend("enum" = ["Enabled", "Disabled"]))]
        #[serde(rename = "localDNSState")]
        local_dns_state?: String,
    }
}

wire! {
    /// An image that nodes may be made from.
    NodeImage {
        /// Resource id.
        id: String,
        /// VM sizes that it suits.
        requirements: Vec<ImageRequirement>,
    }
}

wire! {
    /// A requirement of an image on a VM size.
    ImageRequirement {
        /// Label key.
        key: String,
        /// Operator.
        operator: String,
        /// Values.
        #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
        values?: Vec<String>,
    }
}
