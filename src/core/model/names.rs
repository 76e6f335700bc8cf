//! Validated names and ids of Kubernetes and Azure.
//!
//! Every name is a type of its own, checked once where it enters. All are cheap to clone.

use std::fmt;
use std::sync::Arc;

/// Why a name was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} {value:?}: {reason}")]
pub struct NameError {
    /// The kind of name, for example `NodePool name`.
    pub kind: &'static str,
    /// The text as given.
    pub value: String,
    /// The rule it broke.
    pub reason: &'static str,
}

/// Declares a checked name: a newtype over shared text.
macro_rules! name {
    ($(#[$doc:meta])* $type:ident, $kind:literal, $check:path) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $type(Arc<str>);

        impl $type {
            /// Checks and wraps a name.
            ///
            /// # Errors
            /// [`NameError`] names the rule that the text breaks.
            pub fn new(value: impl AsRef<str>) -> Result<Self, NameError> {
                let value = value.as_ref();
                match $check(value) {
                    Ok(()) => Ok(Self(Arc::from(value))),
                    Err(reason) => Err(NameError { kind: $kind, value: value.to_owned(), reason }),
                }
            }

            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// The name as shared text.
            #[must_use]
            pub fn text(&self) -> Arc<str> {
                Arc::clone(&self.0)
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }

        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                Self::new(&text).map_err(serde::de::Error::custom)
            }
        }
    };
}

name!(
    /// Name of a NodePool. It becomes a label value, so it has at most 63 characters.
    NodePoolName, "NodePool name", dns_label_value
);
name!(
    /// Name of an AKSNodeClass.
    NodeClassName, "AKSNodeClass name", dns_subdomain
);
name!(
    /// Name of a NodeClaim.
    ClaimName, "NodeClaim name", dns_subdomain
);
name!(
    /// Name of a Node.
    NodeName, "Node name", dns_subdomain
);
name!(
    /// Name of any other Kubernetes object.
    ObjectName, "object name", dns_subdomain
);
name!(
    /// Kubernetes namespace.
    Namespace, "namespace", dns_label
);
name!(
    /// Unique id that the API server gave an object.
    Uid, "UID", present
);
name!(
    /// Azure VM size, for example `Standard_D4s_v5`.
    VmSize, "VM size", present
);
name!(
    /// Azure region, for example `westeurope`.
    Region, "region", lower_word
);
name!(
    /// Zone as the node label has it: `<region>-<n>`, or `0` for a VM that is in no zone.
    Zone, "zone", present
);

impl Zone {
    /// The label value of a VM that is in no zone ("regional").
    pub const REGIONAL: &'static str = "0";

    /// The zone `n` of a region.
    #[must_use]
    pub fn of(region: &Region, n: u8) -> Self {
        Self(Arc::from(format!("{region}-{n}").as_str()))
    }

    /// The absence of a zone.
    #[must_use]
    pub fn regional() -> Self {
        Self(Arc::from(Self::REGIONAL))
    }

    /// True when this is [`Zone::regional`].
    #[must_use]
    pub fn is_regional(&self) -> bool {
        &*self.0 == Self::REGIONAL
    }
}

fn present(value: &str) -> Result<(), &'static str> {
    if value.is_empty() { Err("must not be empty") } else { Ok(()) }
}

fn lower_word(value: &str) -> Result<(), &'static str> {
    let fits = value.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    if value.is_empty() || !fits { Err("must be lower-case letters and digits") } else { Ok(()) }
}

fn dns_label(value: &str) -> Result<(), &'static str> {
    if value.is_empty() || value.len() > 63 {
        return Err("must have 1 to 63 characters");
    }
    if !value.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-') {
        return Err("must be lower-case letters, digits and '-'");
    }
    if value.starts_with('-') || value.ends_with('-') {
        return Err("must begin and end with a letter or a digit");
    }
    Ok(())
}

fn dns_subdomain(value: &str) -> Result<(), &'static str> {
    if value.len() > 253 {
        return Err("must have at most 253 characters");
    }
    if value.split('.').all(dns_label_any_length) {
        Ok(())
    } else {
        Err("must be lower-case letters, digits, '-' and '.', each part beginning and ending with a letter or a digit")
    }
}

fn dns_label_any_length(label: &str) -> bool {
    !label.is_empty()
        && label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && !label.starts_with('-')
        && !label.ends_with('-')
}

fn dns_label_value(value: &str) -> Result<(), &'static str> {
    if value.len() > 63 {
        return Err("must have at most 63 characters, because it becomes a label value");
    }
    dns_subdomain(value)
}

/// Namespace and name of a Pod (or of another namespaced object).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct ObjectKey {
    /// The namespace.
    pub namespace: Namespace,
    /// The name.
    pub name: ObjectName,
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Azure resource id. Azure compares ids without regard to case, and so does this type;
/// the spelling as first seen is used for display.
#[derive(Clone)]
pub struct ArmId {
    shown: Arc<str>,
    folded: Arc<str>,
}

impl ArmId {
    /// Checks and wraps an id such as `/subscriptions/…/resourceGroups/…/providers/…`.
    ///
    /// # Errors
    /// [`NameError`] when the text does not start with `/subscriptions/`.
    pub fn new(value: impl AsRef<str>) -> Result<Self, NameError> {
        let shown = value.as_ref();
        let folded = shown.to_ascii_lowercase();
        if !folded.starts_with("/subscriptions/") {
            let reason = "must start with /subscriptions/";
            return Err(NameError { kind: "Azure resource id", value: shown.to_owned(), reason });
        }
        Ok(Self { shown: Arc::from(shown), folded: Arc::from(folded) })
    }

    /// The id of a resource in this resource group, given its type such as `Microsoft.Compute/disks`.
    #[must_use]
    pub fn resource(&self, kind: &str, name: &str) -> Self {
        let shown = format!("{}/providers/{kind}/{name}", self.shown);
        Self { folded: Arc::from(shown.to_ascii_lowercase()), shown: Arc::from(shown) }
    }

    /// True for what is in this resource group.
    #[must_use]
    pub fn is_in(&self, group: &ArmId) -> bool {
        self.folded.strip_prefix(&*group.folded).is_some_and(|rest| rest.starts_with('/'))
    }

    /// The id as first seen.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.shown
    }

    /// The id in lower case: what Azure compares.
    #[must_use]
    pub fn folded(&self) -> &str {
        &self.folded
    }

    /// The last segment: the resource's name, as first seen.
    #[must_use]
    pub fn name(&self) -> &str {
        self.shown.rsplit('/').next().unwrap_or(&self.shown)
    }

    /// The resource group, in lower case, when the id has one.
    #[must_use]
    pub fn resource_group(&self) -> Option<&str> {
        let mut segments = self.folded.split('/');
        segments.find(|s| *s == "resourcegroups")?;
        segments.next()
    }
}

impl PartialEq for ArmId {
    fn eq(&self, other: &Self) -> bool {
        self.folded == other.folded
    }
}
impl Eq for ArmId {}
impl PartialOrd for ArmId {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for ArmId {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.folded.cmp(&other.folded)
    }
}
impl std::hash::Hash for ArmId {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.folded.hash(state);
    }
}
impl fmt::Display for ArmId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.shown)
    }
}
impl fmt::Debug for ArmId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.shown, f)
    }
}
impl serde::Serialize for ArmId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.shown)
    }
}
impl<'de> serde::Deserialize<'de> for ArmId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::new(&text).map_err(serde::de::Error::custom)
    }
}

/// `spec.providerID` of a Node: `azure://` and the id of the VM.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct ProviderId(ArmId);

impl ProviderId {
    /// The provider id of a VM.
    #[must_use]
    pub fn of_vm(vm: &ArmId) -> Self {
        Self(vm.clone())
    }

    /// Parses `azure:///subscriptions/…`.
    ///
    /// # Errors
    /// [`NameError`] when the scheme or the id is not Azure's.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let refused = |reason| NameError { kind: "providerID", value: text.to_owned(), reason };
        let id = text.strip_prefix("azure://").ok_or_else(|| refused("must start with azure://"))?;
        ArmId::new(id).map(Self).map_err(|e| refused(e.reason))
    }

    /// The VM's resource id.
    #[must_use]
    pub fn vm(&self) -> &ArmId {
        &self.0
    }
}

impl fmt::Display for ProviderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "azure://{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_where_they_enter() {
        for (value, reason) in [
            ("", "each part"),
            ("Upper", "lower-case"),
            ("-a", "beginning"),
            (&"a".repeat(64) as &str, "63 characters"),
        ] {
            let error = NodePoolName::new(value).unwrap_err();
            assert!(error.reason.contains(reason), "{value:?}: {error}");
        }
        assert_eq!(NodePoolName::new("spot-preferred").unwrap().as_str(), "spot-preferred");
    }

    #[test]
    fn arm_ids_compare_without_case_and_print_as_seen() {
        let a = ArmId::new("/subscriptions/S/resourceGroups/MC_x/providers/Microsoft.Compute/disks/D").unwrap();
        let b = ArmId::new("/SUBSCRIPTIONS/s/resourcegroups/mc_X/providers/microsoft.compute/disks/d").unwrap();
        assert_eq!(a, b);
        assert_eq!(a.name(), "D");
        assert_eq!(b.resource_group(), Some("mc_x"));
    }

    #[test]
    fn provider_id_round_trips() {
        let text = "azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/v";
        assert_eq!(ProviderId::parse(text).unwrap().to_string(), text);
        assert!(ProviderId::parse("aws:///i-1").is_err());
    }
}
