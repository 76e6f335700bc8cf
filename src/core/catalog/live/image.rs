//! The AKS node image of an AKSNodeClass.
//!
//! The families, definitions and their order are those of karpenter-provider-azure (`pkg/providers/imagefamily`).

use crate::catalog::Arch;
use jiff::Timestamp;
use std::sync::Arc;

/// A public gallery of AKS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Gallery {
    /// Ubuntu.
    Ubuntu,
    /// Azure Linux.
    AzureLinux,
}

impl Gallery {
    /// Its public name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ubuntu => "AKSUbuntu-38d80f77-467a-481f-a8d4-09b6d4220bd2",
            Self::AzureLinux => "AKSAzureLinux-f7c7cda5-1c9a-4bdc-a222-9614c968580b",
        }
    }
}

/// An image definition of AKS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ImageDefinition {
    /// Where it is.
    pub gallery: Gallery,
    /// Its name.
    pub name: &'static str,
    /// Which sizes boot it.
    pub arch: Arch,
    /// Generation of Hyper-V: 1 or 2.
    pub generation: u8,
}

/// A version of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageVersion {
    /// For example `202607.01.0`.
    pub version: Arc<str>,
    /// When it was published.
    pub published_at: Option<Timestamp>,
}

/// The image requirements of a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageNeeds<'a> {
    /// `spec.imageFamily`.
    pub family: &'a str,
    /// Minor version of Kubernetes 1.
    pub minor: u32,
    /// FIPS 140.
    pub fips: bool,
    /// Trusted launch.
    pub trusted_launch: bool,
}

/// From this minor version on, `Ubuntu` is Ubuntu 24.04.
const UBUNTU_2404_FROM: u32 = 34;
/// From this minor version on, `AzureLinux` is version 3.
const AZURE_LINUX_3_FROM: u32 = 32;

/// Definitions without FIPS, those of trusted launch last: by family, then generation 2, generation 1, arm64.
const UBUNTU_2204: [&str; 4] =
    ["2204gen2containerd", "2204containerd", "2204gen2arm64containerd", "2204gen2TLcontainerd"];
const UBUNTU_2404: [&str; 4] =
    ["2404gen2containerd", "2404containerd", "2404gen2arm64containerd", "2404gen2TLcontainerd"];
const AZURE_LINUX_3: [&str; 4] = ["V3gen2", "V3", "V3gen2arm64", "V3gen2TL"];
const AZURE_LINUX_2: [&str; 4] = ["V2gen2", "V2", "V2gen2arm64", "V2gen2TL"];

/// What `Ubuntu` means with a Kubernetes version.
#[must_use]
pub fn ubuntu_default(minor: u32) -> &'static str {
    if minor >= UBUNTU_2404_FROM { "Ubuntu2404" } else { "Ubuntu2204" }
}

/// The definitions that a class may boot, in the order that they are tried: the first that suits a size's architecture
/// and generation is taken. Empty where none is public: FIPS images are not in the community galleries.
#[must_use]
pub fn image_definitions(needs: &ImageNeeds<'_>) -> Vec<ImageDefinition> {
    if needs.fips {
        return Vec::new();
    }
    let (gallery, names) = match needs.family {
        "AzureLinux" if needs.minor >= AZURE_LINUX_3_FROM => (Gallery::AzureLinux, AZURE_LINUX_3),
        "AzureLinux" => (Gallery::AzureLinux, AZURE_LINUX_2),
        "Ubuntu2204" => (Gallery::Ubuntu, UBUNTU_2204),
        "Ubuntu2404" => (Gallery::Ubuntu, UBUNTU_2404),
        _ if ubuntu_default(needs.minor) == "Ubuntu2404" => (Gallery::Ubuntu, UBUNTU_2404),
        _ => (Gallery::Ubuntu, UBUNTU_2204),
    };
    let [second, first, arm, trusted] = names;
    let definition = |name, arch, generation| ImageDefinition { gallery, name, arch, generation };
    if needs.trusted_launch {
        return vec![definition(trusted, Arch::Amd64, 2)];
    }
    vec![definition(second, Arch::Amd64, 2), definition(first, Arch::Amd64, 1), definition(arm, Arch::Arm64, 2)]
}

impl ImageDefinition {
    /// Every definition that any class may boot with a Kubernetes version, each once.
    #[must_use]
    pub fn all(minor: u32) -> Vec<Self> {
        let families = ["Ubuntu2204", "Ubuntu2404", "AzureLinux"];
        let needs = families.into_iter().flat_map(|family| {
            [false, true].map(|trusted_launch| ImageNeeds { family, minor, fips: false, trusted_launch })
        });
        let mut all: Vec<Self> = needs.flat_map(|needs| image_definitions(&needs)).collect();
        all.sort();
        all.dedup();
        all
    }
}

/// The newest of some versions: by when it was published, then by the numbers of its name.
#[must_use]
pub fn newest(versions: impl IntoIterator<Item = ImageVersion>) -> Option<ImageVersion> {
    let numbers = |v: &ImageVersion| v.version.split('.').map(|n| n.parse().unwrap_or(0)).collect::<Vec<u64>>();
    versions.into_iter().max_by_key(|v| (v.published_at, numbers(v)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_family_and_the_kubernetes_version_choose_the_image() {
        let names = |family, minor, fips, trusted_launch| {
            let all = image_definitions(&ImageNeeds { family, minor, fips, trusted_launch });
            all.iter().map(|d| d.name).collect::<Vec<_>>().join(" ")
        };
        for (family, minor, fips, trusted, expected) in [
            ("Ubuntu", 33, false, false, "2204gen2containerd 2204containerd 2204gen2arm64containerd"),
            ("Ubuntu", 34, false, false, "2404gen2containerd 2404containerd 2404gen2arm64containerd"),
            ("Ubuntu2204", 34, false, true, "2204gen2TLcontainerd"),
            ("Ubuntu2404", 33, false, true, "2404gen2TLcontainerd"),
            ("AzureLinux", 31, false, false, "V2gen2 V2 V2gen2arm64"),
            ("AzureLinux", 32, false, false, "V3gen2 V3 V3gen2arm64"),
            ("AzureLinux", 32, false, true, "V3gen2TL"),
            ("Ubuntu", 33, true, false, ""),
        ] {
            assert_eq!(names(family, minor, fips, trusted), expected, "{family} 1.{minor}");
        }
        assert_eq!(ImageDefinition::all(33).len(), 12);
    }

    #[test]
    fn the_newest_image_was_published_last_whatever_its_name() {
        let version = |version: &str, at: i64| ImageVersion {
            version: Arc::from(version),
            published_at: Timestamp::from_second(at).ok(),
        };
        let found = newest([version("202610.9.0", 1), version("202610.10.0", 1), version("202701.1.0", 0)]);
        assert_eq!(&*found.unwrap().version, "202610.10.0");
    }
}
