//! Selectors of kustomizations, and which of them select what a migration changes.
//!
//! Group, version and kind of a selector are regular expressions that match as a whole, and a field that is absent matches everything
//! (`api/types/selector.go` in `kubernetes-sigs/kustomize`).

use regex::Regex;
use serde_json::Value;

/// What a migration makes of an object: group, old version and kind, new version and kind.
pub(super) const MIGRATED: [(&str, &str, &str, &str, &str); 5] = [
    ("karpenter.sh", "v1alpha5", "Provisioner", "v1", "NodePool"),
    ("karpenter.sh", "v1alpha5", "NodePool", "v1", "NodePool"),
    ("karpenter.sh", "v1beta1", "NodePool", "v1", "NodePool"),
    ("karpenter.sh", "v1beta1", "NodeClaim", "v1", "NodeClaim"),
    ("karpenter.azure.com", "v1alpha2", "AKSNodeClass", "v1beta1", "AKSNodeClass"),
];
/// All fields of selectors, in lower case.
const FIELDS: [&str; 9] =
    ["group", "version", "kind", "name", "namespace", "labelselector", "annotationselector", "fieldpath", "options"];

/// What selects objects by group, version and kind.
#[derive(Debug, Clone, Copy)]
pub(super) struct Selector<'v> {
    group: Option<&'v str>,
    version: Option<&'v str>,
    kind: Option<&'v str>,
}

/// What a selector has instead, where it differs.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Current {
    pub(super) version: Option<&'static str>,
    pub(super) kind: Option<String>,
}

impl<'v> Selector<'v> {
    /// `None` for what has fields that no selector has.
    pub(super) fn of(value: &'v Value) -> Option<Self> {
        let map = value.as_object()?;
        let is_field = |key: &String| FIELDS.contains(&key.to_ascii_lowercase().as_str());
        let text = |name: &str| field(value, name).and_then(|(_, text)| text.as_str()).filter(|text| !text.is_empty());
        let selector = Self { group: text("group"), version: text("version"), kind: text("kind") };
        map.keys().all(is_field).then_some(selector)
    }

    fn selects(&self, group: &str, version: &str, kind: &str) -> bool {
        matches(self.group, group) && matches(self.version, version) && matches(self.kind, kind)
    }

    /// True if it selects objects before their migration and not after it.
    pub(super) fn is_old(&self) -> bool {
        MIGRATED.iter().any(|(group, old, old_kind, new, new_kind)| {
            self.selects(group, old, old_kind) && !self.selects(group, new, new_kind)
        })
    }

    /// What it has to have instead; `None` if it is not old, or if no change of version and kind selects the same objects.
    pub(super) fn current(&self) -> Option<Current> {
        let kinds: Vec<&str> = self.kind.map(|kind| kind.split('|').collect()).unwrap_or_default();
        let is_known = |kind: &&str| MIGRATED.iter().any(|(_, _, old, ..)| old == kind);
        let is_of_karpenter = match self.kind {
            None => MIGRATED.iter().any(|(group, ..)| self.group == Some(*group)),
            Some(_) => kinds.iter().all(is_known),
        };
        if !self.is_old() || !is_of_karpenter {
            return None;
        }
        let mut current = Current { version: None, kind: None };
        for (group, old, old_kind, new, new_kind) in MIGRATED {
            if !self.selects(group, old, old_kind) {
                continue;
            }
            if !matches(self.version, new) {
                current.version = Some(new);
            }
            if !matches(self.kind, new_kind) {
                let renamed = kinds.iter().map(|kind| if *kind == "Provisioner" { "NodePool" } else { *kind });
                current.kind = Some(renamed.collect::<Vec<_>>().join("|"));
            }
        }
        let new = Selector {
            version: current.version.or(self.version),
            kind: current.kind.as_deref().or(self.kind),
            ..*self
        };
        // Whatever it selected is selected after the migration.
        let keeps = |(group, old, old_kind, version, kind): &(&str, &str, &str, &str, &str)| {
            let was = self.selects(group, old, old_kind) || self.selects(group, version, kind);
            !was || new.selects(group, version, kind)
        };
        MIGRATED.iter().all(keeps).then_some(current)
    }
}

fn matches(pattern: Option<&str>, text: &str) -> bool {
    pattern.is_none_or(|pattern| {
        pattern == text || Regex::new(&format!("^(?:{pattern})$")).is_ok_and(|pattern| pattern.is_match(text))
    })
}

/// A field of a kustomization with its key: kustomize does not distinguish upper and lower case.
pub(super) fn field<'v>(value: &'v Value, name: &str) -> Option<(&'v str, &'v Value)> {
    let entries = value.as_object()?.iter().map(|(key, value)| (key.as_str(), value));
    entries.into_iter().find(|(key, _)| key.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_row_is_migrated() {
        for (group, old, kind, new, new_kind) in MIGRATED {
            let value = json!({"apiVersion": format!("{group}/{old}"), "kind": kind, "metadata": {"name": "a"}});
            let migrated = super::super::migrated(&value).unwrap();
            assert_eq!(
                (&migrated["apiVersion"], &migrated["kind"]),
                (&json!(format!("{group}/{new}")), &json!(new_kind))
            );
        }
    }

    #[test]
    fn what_is_selected_stays_selected() {
        let current = |version: Option<&'static str>, kind: Option<&str>| {
            Some(Current { version, kind: kind.map(ToOwned::to_owned) })
        };
        for (value, expected) in [
            (json!({"kind": "NodePool", "version": "v1beta1"}), current(Some("v1"), None)),
            (json!({"Kind": "NodePool", "VERSION": "v1beta1"}), current(Some("v1"), None)),
            (json!({"kind": "NodePool|NodeClaim", "version": "v1beta1"}), current(Some("v1"), None)),
            (json!({"group": "karpenter.sh", "version": "v1beta1"}), current(Some("v1"), None)),
            (json!({"group": "karpenter.azure.com", "version": "v1alpha2"}), current(Some("v1beta1"), None)),
            (json!({"kind": "Provisioner", "name": "default"}), current(None, Some("NodePool"))),
            (json!({"kind": "Provisioner|NodePool"}), None),
            (json!({"kind": "Provisioner", "version": "v1alpha5"}), current(Some("v1"), Some("NodePool"))),
        ] {
            assert_eq!(Selector::of(&value).unwrap().current(), expected, "{value}");
        }
    }

    #[test]
    fn what_cannot_be_changed_is_old_and_all_else_is_not() {
        for value in [
            json!({"version": "v1beta1"}),
            json!({"kind": ".*", "version": "v1beta1"}),
            json!({"kind": "Node.*", "version": "v1beta1"}),
            json!({"group": "karpenter.*", "version": "v1beta1"}),
            json!({"kind": "NodePool|AKSNodeClass", "version": "v1beta1"}),
        ] {
            let selector = Selector::of(&value).unwrap();
            assert!(selector.is_old() && selector.current().is_none(), "{value}: {selector:?}");
        }
        for value in [
            json!({"kind": "NodePool"}),
            json!({"name": "a"}),
            json!({"kind": "NodePool", "version": "v1.*"}),
            json!({"kind": "Deployment", "version": "v1beta1"}),
            json!({"kind": "AKSNodeClass", "version": "v1beta1"}),
            json!({"group": "example.com", "kind": "NodePool", "version": "v1beta1"}),
        ] {
            assert!(!Selector::of(&value).unwrap().is_old(), "{value}");
        }
        assert!(Selector::of(&json!({"kind": "NodePool", "version": "v1beta1", "spec": {}})).is_none());
    }
}
