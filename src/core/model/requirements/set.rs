//! Requirements by label key, and their compatibility.

use super::{Operator, Requirement, RequirementError};
use crate::model::labels;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// One requirement per label key. A key without an entry is unconstrained.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct Requirements(BTreeMap<Arc<str>, Requirement>);

/// Two sets of requirements that no node can satisfy at once.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Incompatible {
    /// Both name the key, and no value suits both.
    #[error("pods require {key} {requested}, the NodePool has {offered}")]
    Disjoint {
        /// The label key.
        key: Arc<str>,
        /// The requested values.
        requested: String,
        /// The offered values.
        offered: String,
    },
    /// A label that is not set.
    #[error("no instance type matches nodeSelector or node affinity `{key} {requested}`")]
    Undefined {
        /// The label key.
        key: Arc<str>,
        /// The requested values.
        requested: String,
    },
}

impl Requirements {
    /// No requirements, as a constant.
    pub const ALL: Self = Self(BTreeMap::new());

    /// No requirements.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Requirements that no labels satisfy: an absent selector where one is required.
    #[must_use]
    pub fn unsatisfiable() -> Self {
        let mut none = Self::new();
        none.add("labels", Requirement::any_of::<&str>([]));
        none
    }

    /// Requirements that hold for just these labels.
    pub fn from_labels<'a>(labels: impl IntoIterator<Item = (&'a Arc<str>, &'a Arc<str>)>) -> Self {
        Self(labels.into_iter().map(|(k, v)| (Arc::clone(k), Requirement::any_of([v]))).collect())
    }

    /// Adds a requirement; if the key has one already, both must hold.
    pub fn add(&mut self, key: &str, requirement: Requirement) {
        if let Some(present) = self.0.get_mut(key) {
            *present = present.intersect(&requirement);
        } else {
            self.0.insert(labels::interned(key), requirement);
        }
    }

    /// Adds one entry of `requirements[]`.
    ///
    /// # Errors
    /// [`RequirementError`] when operator and values do not suit each other.
    pub fn add_entry<V: AsRef<str>>(
        &mut self,
        key: &str,
        operator: Operator,
        values: &[V],
    ) -> Result<(), RequirementError> {
        self.add(key, Requirement::new(operator, values)?);
        Ok(())
    }

    /// Adds all of another set.
    pub fn add_all(&mut self, other: &Self) {
        for (key, requirement) in &other.0 {
            self.add(key, requirement.clone());
        }
    }

    /// The intersection.
    #[must_use]
    pub fn intersect(&self, other: &Self) -> Self {
        let mut both = self.clone();
        both.add_all(other);
        both
    }

    /// The requirement on a key, if there is one.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Requirement> {
        self.0.get(key)
    }

    /// The interned key and the requirement on it, if there is one.
    #[must_use]
    pub fn get_key_value(&self, key: &str) -> Option<(&Arc<str>, &Requirement)> {
        self.0.get_key_value(key)
    }

    /// Drops the requirement on a key.
    pub fn remove(&mut self, key: &str) -> Option<Requirement> {
        self.0.remove(key)
    }

    /// True when a label in this state satisfies the requirement on its key.
    #[must_use]
    pub fn allows(&self, key: &str, state: Option<&str>) -> bool {
        self.0.get(key).is_none_or(|r| r.allows(state))
    }

    /// True when labels satisfy every requirement.
    #[must_use]
    pub fn satisfied_by(&self, labels: &BTreeMap<Arc<str>, Arc<str>>) -> bool {
        self.0.iter().all(|(key, r)| r.allows(labels.get(key).map(|v| &**v)))
    }

    /// Checks that a node which satisfies `self` can also satisfy `requested`. A key that only `requested` names may
    /// have any value when `open(key)`: the provider will set that label; otherwise the label will be absent.
    ///
    /// # Errors
    /// [`Incompatible`] names the first key, in order, that no node can satisfy.
    pub fn compatible(&self, requested: &Self, open: impl Fn(&str) -> bool) -> Result<(), Incompatible> {
        for (key, requirement) in &requested.0 {
            match self.0.get(key) {
                Some(offered) if !offered.intersects(requirement) => {
                    return Err(disjoint(key, requirement, offered));
                }
                // A contradictory requirement is satisfied by no node.
                None if requirement.is_empty() => {
                    return Err(disjoint(key, requirement, &Requirement::anything()));
                }
                None if !requirement.allows_absent() && !open(key) => {
                    return Err(Incompatible::Undefined { key: Arc::clone(key), requested: requirement.to_string() });
                }
                Some(_) | None => {}
            }
        }
        Ok(())
    }

    /// As [`Requirements::compatible`], without the reason.
    #[must_use]
    pub fn is_compatible(&self, requested: &Self, open: impl Fn(&str) -> bool) -> bool {
        requested.0.iter().all(|(key, requirement)| match self.0.get(key) {
            Some(offered) => offered.intersects(requirement),
            None => !requirement.is_empty() && (requirement.allows_absent() || open(key)),
        })
    }

    /// True when each key that both have allows a common state. Of few requirements and many, the few are asked.
    #[must_use]
    pub fn intersects(&self, other: &Self) -> bool {
        self.0.iter().all(|(key, requirement)| other.0.get(key).is_none_or(|theirs| theirs.intersects(requirement)))
    }

    /// The first key of which no state is allowed.
    #[must_use]
    pub fn first_empty(&self) -> Option<&Arc<str>> {
        self.0.iter().find(|(_, r)| r.is_empty()).map(|(key, _)| key)
    }

    /// The first label of which only one value is allowed.
    #[must_use]
    pub fn single_label(&self) -> Option<(Arc<str>, Arc<str>)> {
        self.iter().find_map(|(key, requirement)| Some((Arc::clone(key), Arc::clone(requirement.single()?))))
    }

    /// Keys and requirements, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Requirement)> {
        self.0.iter()
    }

    /// True when nothing is required.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn disjoint(key: &Arc<str>, requirement: &Requirement, offered: &Requirement) -> Incompatible {
    Incompatible::Disjoint { key: Arc::clone(key), requested: requirement.to_string(), offered: offered.to_string() }
}

impl fmt::Display for Requirements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (key, requirement)) in self.0.iter().enumerate() {
            let gap = if i > 0 { ", " } else { "" };
            write!(f, "{gap}{key} {requirement}")?;
        }
        Ok(())
    }
}
