//! VM sizes that are excluded for an AKSNodeClass, with the reason.
//!
//! The rules are those of Azure/karpenter-provider-azure (`pkg/providers/instancetype/instancetypes.go`), and one that
//! it lacks: an image for the size's architecture must exist.

use crate::catalog::{Arch, OfferedSize, SizeFacts, SizeName};
use crate::model::cluster::pool::NodeClass;

/// Sizes that AKS refuses for nodes, and two that are known not to work (upstream's `pkg/utils/sku`).
const REFUSED_BY_AKS: [&str; 14] = [
    "Basic_A0",
    "Basic_A1",
    "Basic_A2",
    "Basic_A3",
    "Basic_A4",
    "Standard_A0",
    "Standard_A1",
    "Standard_A1_v2",
    "Standard_B1ms",
    "Standard_B1s",
    "Standard_E64i_v3",
    "Standard_E64is_v3",
    "Standard_F1",
    "Standard_F1s",
];
/// AKS's least node: 2 vCPUs and 3.5 GiB.
const LEAST_VCPUS: u32 = 2;
const LEAST_MEMORY_MIB: u64 = 3584;
/// The least node on which local DNS is set up.
const LOCAL_DNS_VCPUS: u32 = 4;
const LOCAL_DNS_MEMORY_MIB: u64 = 244;

/// Why a VM size can be no node of an AKSNodeClass in a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum ExclusionReason {
    /// Azure restricts it for the subscription.
    #[error("not available to the subscription in this region")]
    Restricted,
    /// On the list of sizes that AKS refuses.
    #[error("AKS does not support this size")]
    RefusedByAks,
    /// Family and series cannot be parsed from the name.
    #[error("its name does not follow the Azure naming scheme")]
    UnreadableName,
    /// Below AKS's least number of vCPUs.
    #[error("AKS requires at least 2 vCPUs")]
    TooFewCpus,
    /// Below AKS's least memory.
    #[error("AKS requires at least 3.5Gi of memory")]
    TooLittleMemory,
    /// An accelerator that AKS has no driver for.
    #[error("AKS does not support its GPU or accelerator")]
    UnsupportedGpu,
    /// Some of its cores are switched off.
    #[error("constrained vCPUs: it is priced for more vCPUs than it has")]
    ConstrainedCores,
    /// A confidential size.
    #[error("confidential sizes (DC, EC) are not supported")]
    Confidential,
    /// Its price is unknown.
    #[error("no pay-as-you-go price is known in this region")]
    NoPrice,
    /// No GPU driver for the image family.
    #[error("AKS has no GPU driver for the AKSNodeClass's image family")]
    NoDriverOnImage,
    /// The class installs GPU drivers, and none is available.
    #[error("AKS does not install a driver for its GPU: the AKSNodeClass must set gpu.mode to None")]
    NoDriverInstall,
    /// The class requires encryption at host.
    #[error("it does not support encryption at host, which the AKSNodeClass requires")]
    NoEncryptionAtHost,
    /// The class enables LocalDNS.
    #[error("too small for LocalDNS, which the AKSNodeClass enables: at least 4 vCPUs and 244Mi required")]
    TooSmallForLocalDns,
    /// The class enables artifact streaming.
    #[error("artifact streaming, which the AKSNodeClass enables, is not supported on arm64")]
    NoArtifactStreaming,
    /// The class enables trusted launch.
    #[error("it does not support generation 2 images, required by trusted launch, which the AKSNodeClass enables")]
    NoTrustedLaunch,
    /// The class requires an image that exists for amd64 only.
    #[error("no arm64 image for the AKSNodeClass: trusted launch and FIPS on Ubuntu are amd64 only")]
    NoArm64Image,
}

/// Why a VM size can be no node of a class; `None` when it can. The first reason found.
#[must_use]
pub fn exclusion_reason(size: &OfferedSize, class: &NodeClass) -> Option<ExclusionReason> {
    let facts = &*size.facts;
    let restricted = size.restricted.then_some(ExclusionReason::Restricted);
    let no_price = || size.on_demand.is_none().then_some(ExclusionReason::NoPrice);
    restricted
        .or_else(|| ExclusionReason::CLASS_INDEPENDENT.into_iter().find(|reason| reason.applies_to_size(facts)))
        .or_else(no_price)
        .or_else(|| {
            ExclusionReason::CLASS_DEPENDENT.into_iter().find(|r| r.applies_to_class(class) && r.applies_to_size(facts))
        })
}

impl ExclusionReason {
    /// Reasons that depend on the size alone, in the order in which they are checked.
    pub(in crate::catalog) const CLASS_INDEPENDENT: [Self; 7] = [
        Self::UnreadableName,
        Self::RefusedByAks,
        Self::TooFewCpus,
        Self::TooLittleMemory,
        Self::UnsupportedGpu,
        Self::ConstrainedCores,
        Self::Confidential,
    ];
    /// Reasons that depend on the class, in the order in which they are checked.
    pub(in crate::catalog) const CLASS_DEPENDENT: [Self; 7] = [
        Self::NoDriverOnImage,
        Self::NoDriverInstall,
        Self::NoEncryptionAtHost,
        Self::TooSmallForLocalDns,
        Self::NoArtifactStreaming,
        Self::NoTrustedLaunch,
        Self::NoArm64Image,
    ];

    /// True when a class has the setting of this reason; true for reasons that hold for every class.
    #[must_use]
    pub fn applies_to_class(self, class: &NodeClass) -> bool {
        match self {
            Self::NoDriverOnImage => is_azure_linux(class),
            Self::NoDriverInstall => class.gpu_drivers,
            Self::NoEncryptionAtHost => class.encryption_at_host,
            Self::TooSmallForLocalDns => class.local_dns,
            Self::NoArtifactStreaming => class.artifact_streaming,
            Self::NoTrustedLaunch => class.trusted_launch,
            Self::NoArm64Image => no_arm64_image(class),
            _ => true,
        }
    }

    /// True when this reason excludes the size. False for reasons that depend on the region.
    #[must_use]
    pub fn applies_to_size(self, facts: &SizeFacts) -> bool {
        let name = SizeName::parse(facts.name.as_str()).ok();
        let arm64 = facts.arch == Arch::Arm64;
        let gpu = facts.gpu.as_ref();
        match self {
            Self::Restricted | Self::NoPrice => false,
            Self::UnreadableName => name.is_none(),
            Self::RefusedByAks => REFUSED_BY_AKS.contains(&facts.name.as_str()),
            Self::TooFewCpus => facts.vcpus < LEAST_VCPUS,
            Self::TooLittleMemory => facts.memory_mib < LEAST_MEMORY_MIB,
            // All of family N have accelerators; the facts name only those that AKS supports.
            Self::UnsupportedGpu => name.is_some_and(|n| n.family() == "N") && gpu.is_none(),
            Self::ConstrainedCores => name.is_some_and(|n| n.constrained().is_some()),
            Self::Confidential => name.is_some_and(|n| n.is_confidential()),
            Self::NoDriverOnImage => gpu.is_some_and(|g| !g.azure_linux),
            // AKS installs NVIDIA's drivers only.
            Self::NoDriverInstall => gpu.is_some_and(|g| &*g.manufacturer != "nvidia"),
            Self::NoEncryptionAtHost => !facts.encryption_at_host,
            Self::TooSmallForLocalDns => facts.vcpus < LOCAL_DNS_VCPUS || facts.memory_mib < LOCAL_DNS_MEMORY_MIB,
            Self::NoArtifactStreaming | Self::NoArm64Image => arm64,
            Self::NoTrustedLaunch => !facts.hyperv_v2,
        }
    }
}

/// No arm64 image exists for the class: those of trusted launch, and of FIPS on Ubuntu, are for amd64 alone.
#[must_use]
pub fn no_arm64_image(class: &NodeClass) -> bool {
    class.trusted_launch || (class.fips && !is_azure_linux(class))
}

/// The class's image family is Azure Linux; all others are Ubuntu.
#[must_use]
pub fn is_azure_linux(class: &NodeClass) -> bool {
    &*class.image_family == "AzureLinux"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::instance_types::tests::class;
    use crate::catalog::{Catalog, RegionCatalog};
    use crate::model::names::{Region, VmSize};

    fn region(name: &str) -> RegionCatalog {
        let region = Region::new(name).unwrap();
        Catalog::embedded().unwrap().region(&region).unwrap()
    }

    /// The exclusion reason of a size as if it were unrestricted, so that the table does not depend on a region.
    fn verdict(name: &str, class: &NodeClass) -> Option<ExclusionReason> {
        let facts = Catalog::embedded().unwrap().size(&VmSize::new(name).unwrap()).unwrap().clone();
        let price = Some(crate::model::amounts::money::HourlyPrice::from_nanos(1));
        let (restricted, spot, zones) = (false, None, Vec::new());
        exclusion_reason(&OfferedSize { facts, zones, restricted, on_demand: price, spot }, class)
    }

    #[test]
    fn sizes_that_aks_cannot_use_are_dropped_with_the_reason() {
        for (name, reason) in [
            ("Standard_D4s_v5", None),
            ("Standard_NC24ads_A100_v4", None),
            ("Standard_D4ps_v5", None),
            ("Standard_A1_v2", Some(ExclusionReason::RefusedByAks)),
            ("Standard_B2ts_v2", Some(ExclusionReason::TooLittleMemory)),
            ("Standard_B1ls", Some(ExclusionReason::TooFewCpus)),
            ("Standard_NV4as_v4", Some(ExclusionReason::UnsupportedGpu)),
            ("Standard_NP10s", Some(ExclusionReason::UnsupportedGpu)),
            ("Standard_M8-2ms", Some(ExclusionReason::ConstrainedCores)),
            ("Standard_DC8s_v3", Some(ExclusionReason::Confidential)),
            ("Standard_ND96isr_MI300X_v5", Some(ExclusionReason::NoDriverInstall)),
        ] {
            assert_eq!(verdict(name, &class()), reason, "{name}");
        }
    }

    #[test]
    fn settings_of_a_class_exclude_sizes_without_support() {
        let with = |change: fn(&mut NodeClass)| {
            let mut class = class();
            change(&mut class);
            class
        };
        let azure_linux = |c: &mut NodeClass| c.image_family = "AzureLinux".into();
        for (class, name, reason) in [
            (with(|c| c.trusted_launch = true), "Standard_D4ps_v5", Some(ExclusionReason::NoArm64Image)),
            (with(|c| c.trusted_launch = true), "Standard_D4s_v5", None),
            (with(|c| c.trusted_launch = true), "Standard_A2_v2", Some(ExclusionReason::NoTrustedLaunch)),
            (with(|c| c.fips = true), "Standard_D4ps_v5", Some(ExclusionReason::NoArm64Image)),
            (with(|c| c.artifact_streaming = true), "Standard_D4ps_v5", Some(ExclusionReason::NoArtifactStreaming)),
            (with(|c| c.encryption_at_host = true), "Standard_A2_v2", Some(ExclusionReason::NoEncryptionAtHost)),
            (with(|c| c.local_dns = true), "Standard_D2s_v5", Some(ExclusionReason::TooSmallForLocalDns)),
            (with(|c| c.gpu_drivers = false), "Standard_ND96isr_MI300X_v5", None),
            (with(azure_linux), "Standard_NV12s_v3", Some(ExclusionReason::NoDriverOnImage)),
            (with(azure_linux), "Standard_NC4as_T4_v3", None),
        ] {
            assert_eq!(verdict(name, &class), reason, "{name} {class:?}");
        }
    }

    #[test]
    fn restricted_sizes_are_excluded() {
        let region = region("westeurope");
        let reasons: std::collections::BTreeSet<ExclusionReason> =
            region.sizes.iter().filter_map(|s| exclusion_reason(s, &class())).collect();
        assert!(
            reasons.contains(&ExclusionReason::Restricted) && reasons.contains(&ExclusionReason::NoPrice),
            "{reasons:?}"
        );
    }
}
