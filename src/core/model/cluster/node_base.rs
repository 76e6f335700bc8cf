//! What nodes are made from beside their NodePool and AKSNodeClass.

use crate::model::names::ArmId;
use std::sync::Arc;

/// What nodes are made from beside their NodePool and AKSNodeClass.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeBase {
    /// Their image (`nodes.image` of `napkeeper.yaml`); `None` where AKS chooses it.
    pub image: Option<Arc<str>>,
    /// The subnet of those whose AKSNodeClass names none (`nodes.subnet`); `None` where that is not known.
    pub subnet: Option<ArmId>,
    /// The version of the control plane, as it says itself, for example `v1.33.2`; `None` where that is not known.
    pub kubernetes_version: Option<Arc<str>>,
}

/// The three numbers of a version such as `v1.33.2`, to compare versions of Kubernetes; `None` if it is none.
#[must_use]
pub fn version_numbers(version: &str) -> Option<[u32; 3]> {
    let core = version.strip_prefix('v').unwrap_or(version).split(['-', '+']).next()?;
    let numbers: Vec<u32> = core.split('.').map(str::parse).collect::<Result<_, _>>().ok()?;
    numbers.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_their_numbers() {
        assert_eq!(version_numbers("v1.33.2"), Some([1, 33, 2]));
        assert_eq!(version_numbers("1.33.10-rc.1+abc"), Some([1, 33, 10]));
        assert!(version_numbers("v1.33.10") > version_numbers("v1.33.9"));
        for wrong in ["", "v1.33", "1.33.x", "v1.33.2.1", "latest"] {
            assert_eq!(version_numbers(wrong), None, "{wrong}");
        }
    }
}
