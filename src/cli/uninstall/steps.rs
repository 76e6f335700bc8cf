//! The steps of a removal in their order, and what each has to do in a cluster as it is now.
//!
//! What a step does is looked up again right before it: a second run after an interruption finds what is left.

use super::cluster::{Cluster, Object, object};
use super::ours::{
    BINDING, CONFIG_MAP, CONFIG_PREFIX, DEFINITION, DEFINITIONS, Definition, KUBE_SYSTEM, NAMESPACE, NODE, NODE_CLAIM,
    NODE_POOL, OBJECTS, Owned, PART_OF, POLICIES, POLICY, Place, SECRET, TOKENS, WEBHOOKS, WORKLOADS,
};
use crate::output::plural;
use kube::ResourceExt;
use kube::api::DynamicObject;
use napkeeper_core::model::labels::{FINALIZER, LAUNCH_INTENT, PLANNED_OFFERINGS, POOL_FINALIZER};
use serde::Serialize;
use std::collections::BTreeSet;

/// A step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Step {
    Webhooks,
    Drain,
    Workloads,
    Policies,
    HandOver,
    Objects,
    Definitions,
    Namespace,
}

impl Step {
    /// In their order.
    pub(super) const ALL: [Self; 8] = [
        Self::Webhooks,
        Self::Drain,
        Self::Workloads,
        Self::Policies,
        Self::HandOver,
        Self::Objects,
        Self::Definitions,
        Self::Namespace,
    ];

    /// What it is, and why it is there.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Webhooks => "webhook configurations: first, so that no write waits for a webhook that is gone",
            Self::Drain => {
                "NodePools: deleted while the controller runs, which drains their nodes within their budgets"
            }
            Self::Workloads => "workloads: until their pods are gone, and no controller holds the Lease",
            Self::Policies => "admission policies: they limit the controller as long as it runs",
            Self::HandOver => "finalizers: nobody would remove them later; objects, nodes and VMs stay",
            Self::Objects => "permissions, configuration and the rest",
            Self::Definitions => "definitions without objects, with the policies about them",
            Self::Namespace => "the namespace, if nothing else is in it",
        }
    }
}

/// What happens to an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "action", rename_all = "camelCase")]
pub(super) enum Action {
    /// It is deleted.
    Delete { object: Object },
    /// It is deleted past the guards of `napkeeper policies export`, with what it holds.
    DeleteAcknowledged { object: Object, objects: usize },
    /// It loses a finalizer.
    RemoveFinalizer { object: Object, finalizer: &'static str },
}

impl Action {
    pub(super) fn object(&self) -> &Object {
        let (Self::Delete { object } | Self::DeleteAcknowledged { object, .. } | Self::RemoveFinalizer { object, .. }) =
            self;
        object
    }

    /// For people.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Delete { object } | Self::DeleteAcknowledged { object, objects: 0 } => format!("delete {object}"),
            Self::DeleteAcknowledged { object, objects } => {
                format!("delete {object} with {}", plural(*objects, "object"))
            }
            Self::RemoveFinalizer { object, finalizer } => format!("take the finalizer {finalizer} off {object}"),
        }
    }
}

/// What is removed, and how.
pub(super) struct Removal {
    pub(super) cluster: Cluster,
    /// Nodes are drained and deleted instead of handed over.
    pub(super) drains: bool,
    /// NodeClaims and Nodes lose Karpenter's finalizer too.
    pub(super) releases_nodes: bool,
    /// Definitions of napkeeper are deleted with their objects.
    pub(super) deletes_records: bool,
}

impl Removal {
    /// What a step has to do.
    pub(super) async fn actions(&self, step: Step) -> anyhow::Result<Vec<Action>> {
        match step {
            Step::Webhooks => self.deletions(WEBHOOKS).await,
            Step::Drain if self.drains => {
                let pools = self.held_pools().await?;
                Ok(pools.into_iter().map(|object| Action::DeleteAcknowledged { object, objects: 0 }).collect())
            }
            Step::Drain => Ok(Vec::new()),
            Step::Workloads => self.deletions(WORKLOADS).await,
            Step::Policies => self.deletions(POLICIES).await,
            Step::HandOver => self.hand_over().await,
            Step::Objects => self.other_objects().await,
            Step::Definitions => self.definitions().await,
            Step::Namespace => self.namespace().await,
        }
    }

    async fn deletions(&self, table: &[Owned]) -> anyhow::Result<Vec<Action>> {
        Ok(deletions(self.cluster.existing(table).await?))
    }

    /// NodePools with napkeeper's finalizer. Only a provisioner puts it there.
    async fn held_pools(&self) -> anyhow::Result<Vec<Object>> {
        let pools = self.cluster.all(NODE_POOL).await?;
        let held = pools.iter().filter(|pool| has_finalizer(pool, POOL_FINALIZER));
        Ok(held.map(|pool| object(NODE_POOL, pool)).collect())
    }

    async fn hand_over(&self) -> anyhow::Result<Vec<Action>> {
        // After a drain too: Git may have brought a NodePool back.
        let pools = self.held_pools().await?.into_iter();
        let mut all: Vec<_> =
            pools.map(|object| Action::RemoveFinalizer { object, finalizer: POOL_FINALIZER }).collect();
        if self.releases_nodes {
            let nodes = self.own_nodes().await?;
            // One that is being deleted would be gone at once, undrained, and its VM would stay.
            let releasable =
                |found: &&DynamicObject| has_finalizer(found, FINALIZER) && found.metadata.deletion_timestamp.is_none();
            let release = |object| Action::RemoveFinalizer { object, finalizer: FINALIZER };
            all.extend(nodes.claims.iter().filter(releasable).map(|claim| release(object(NODE_CLAIM, claim))));
            all.extend(nodes.nodes.iter().filter(releasable).map(|node| release(object(NODE, node))));
        }
        Ok(all)
    }

    /// NodeClaims of napkeeper, and their Nodes.
    pub(super) async fn own_nodes(&self) -> anyhow::Result<OwnNodes> {
        let mut claims = self.cluster.all(NODE_CLAIM).await?;
        claims.retain(|claim| {
            let annotations = claim.annotations();
            annotations.contains_key(LAUNCH_INTENT) || annotations.contains_key(PLANNED_OFFERINGS)
        });
        let names: BTreeSet<_> = claims.iter().filter_map(|claim| claim.data["status"]["nodeName"].as_str()).collect();
        if names.is_empty() {
            return Ok(OwnNodes { claims, nodes: Vec::new() });
        }
        let mut nodes = self.cluster.all(NODE).await?;
        nodes.retain(|node| names.contains(node.name_any().as_str()));
        Ok(OwnNodes { nodes, claims })
    }

    async fn other_objects(&self) -> anyhow::Result<Vec<Action>> {
        let mut found = self.cluster.existing(OBJECTS).await?;
        let mut configurations = self.cluster.select(CONFIG_MAP, Some(&self.cluster.namespace), "").await?;
        configurations.retain(|object| is_configuration(&object.name));
        found.extend(configurations);
        found.extend(self.cluster.select(SECRET, Some(KUBE_SYSTEM), TOKENS).await?);
        Ok(deletions(found))
    }

    /// The definitions that are there and that napkeeper has installed.
    pub(super) async fn installed(&self) -> anyhow::Result<Vec<Installed>> {
        let mut all = Vec::new();
        for definition in DEFINITIONS {
            let Some(found) = self.cluster.get(DEFINITION, None, &definition.name()).await? else { continue };
            let part_of = found.labels().get(PART_OF.0).map(String::as_str);
            if definition.is_own || part_of == Some(PART_OF.1) {
                let held = self.cluster.count(definition.kind).await?;
                let goes = held == Some(0) || definition.is_own && self.deletes_records;
                all.push(Installed { definition, object: object(DEFINITION, &found), held, goes });
            }
        }
        // Without one of them, another Karpenter could not take the others over.
        if all.iter().any(|one| !one.definition.is_own && !one.goes) {
            all.iter_mut().filter(|one| !one.definition.is_own).for_each(|one| one.goes = false);
        }
        Ok(all)
    }

    async fn definitions(&self) -> anyhow::Result<Vec<Action>> {
        let mut all = Vec::new();
        let installed = self.installed().await?;
        for Installed { definition, object, held, .. } in installed.into_iter().filter(|one| one.goes) {
            all.push(Action::DeleteAcknowledged { object, objects: held.unwrap_or_default() });
            all.extend(self.policies_about(definition).await?);
        }
        // What an earlier run has not come to.
        for definition in DEFINITIONS {
            if self.cluster.get(DEFINITION, None, &definition.name()).await?.is_none() {
                all.extend(self.policies_about(definition).await?);
            }
        }
        Ok(all)
    }

    async fn policies_about(&self, definition: &Definition) -> anyhow::Result<Vec<Action>> {
        let table = [BINDING, POLICY].map(|kind| Owned { kind, place: Place::Cluster, names: definition.policies });
        self.deletions(&table).await
    }

    async fn namespace(&self) -> anyhow::Result<Vec<Action>> {
        let name = &self.cluster.namespace;
        let Some(found) = self.cluster.get(NAMESPACE, None, name).await? else { return Ok(Vec::new()) };
        if !self.strangers().await?.is_empty() {
            return Ok(Vec::new());
        }
        Ok(deletions(vec![object(NAMESPACE, &found)]))
    }

    /// What is in the namespace and not napkeeper's, or cannot be listed.
    pub(super) async fn strangers(&self) -> anyhow::Result<Vec<String>> {
        let mut ours: BTreeSet<(&str, &str)> = BTreeSet::new();
        for row in [WORKLOADS, OBJECTS].concat().into_iter().filter(|row| row.place == Place::Own) {
            ours.extend(row.names.iter().map(|name| (row.kind.kind, *name)));
        }
        let mut found = match self.cluster.contents().await {
            Ok(found) => found,
            Err(error) => return Ok(vec![format!("{error:#}")]),
        };
        found.retain(|(kind, name)| {
            let is_configuration = kind == CONFIG_MAP.kind && is_configuration(name);
            !is_configuration && !ours.contains(&(kind.as_str(), name.as_str()))
        });
        Ok(found.into_iter().map(|(kind, name)| format!("{kind} {name}")).collect())
    }
}

/// A definition that napkeeper has installed.
pub(super) struct Installed {
    pub(super) definition: &'static Definition,
    pub(super) object: Object,
    /// How many objects it holds; `None` if that is not known.
    pub(super) held: Option<usize>,
    /// It is deleted.
    pub(super) goes: bool,
}

/// NodeClaims that napkeeper has made, and their Nodes.
pub(super) struct OwnNodes {
    pub(super) claims: Vec<DynamicObject>,
    pub(super) nodes: Vec<DynamicObject>,
}

fn deletions(objects: Vec<Object>) -> Vec<Action> {
    objects.into_iter().map(|object| Action::Delete { object }).collect()
}

fn has_finalizer(found: &DynamicObject, finalizer: &str) -> bool {
    found.finalizers().iter().any(|one| one == finalizer)
}

/// The generated ConfigMap, with the hash of its content or without.
fn is_configuration(name: &str) -> bool {
    name.strip_prefix(CONFIG_PREFIX).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}
