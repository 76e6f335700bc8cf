//! The pods that a name on the command line refers to.

use crate::output::first_names;
use anyhow::bail;
use napkeeper_core::model::cluster::pod::{Pod, PodOwner};
use napkeeper_core::model::names::{Namespace, ObjectKey};
use napkeeper_core::model::support::spelling::nearest;
use napkeeper_core::snapshot::Snapshot;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Letters and digits of the suffixes that Kubernetes gives names (`k8s.io/apimachinery/pkg/util/rand`).
const ALPHABET: &str = "bcdfghjklmnpqrstvwxz2456789";

/// Most names that are suggested.
const NAMES: usize = 5;

/// The kind in a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum QueryKind {
    /// A pod, or else any workload.
    Any,
    Pod,
    Deployment,
    ReplicaSet,
    StatefulSet,
    Job,
}

/// A name of pods, with a kind or without.
#[derive(Debug)]
pub(super) struct PodQuery {
    pub(super) namespace: Namespace,
    /// As given.
    pub(super) text: String,
    kind: QueryKind,
    name: String,
}

/// Why a pod is neither pending nor running.
const ENDED: &str = "has ended: no scheduling needed";
const DELETING: &str = "is being deleted: no scheduling needed";
const OF_NODE: &str = "is a DaemonSet or mirror pod, bound to its node: no node is launched for it";
const UNPARSABLE: &str = "could not be parsed: no node is launched for it";

/// The pods that match a query.
#[derive(Debug, Default)]
pub(super) struct MatchedPods {
    /// Without a node.
    pub(super) pending: Vec<Arc<Pod>>,
    /// On a node.
    pub(super) running: Vec<Arc<Pod>>,
    /// Neither, and why.
    pub(super) other: Vec<(ObjectKey, &'static str)>,
}

impl MatchedPods {
    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty() && self.running.is_empty() && self.other.is_empty()
    }
}

impl PodQuery {
    pub(super) fn parse(text: &str, namespace: Namespace) -> anyhow::Result<Self> {
        let (prefix, name) = text.split_once('/').unwrap_or(("", text));
        let kind = match prefix.to_lowercase().split('.').next().unwrap_or_default() {
            "" => QueryKind::Any,
            "po" | "pod" | "pods" => QueryKind::Pod,
            "deploy" | "deployment" | "deployments" => QueryKind::Deployment,
            "rs" | "replicaset" | "replicasets" => QueryKind::ReplicaSet,
            "sts" | "statefulset" | "statefulsets" => QueryKind::StatefulSet,
            "job" | "jobs" => QueryKind::Job,
            "ds" | "daemonset" | "daemonsets" => {
                bail!("{text}: DaemonSet pods are bound to their nodes, no node is launched for them")
            }
            _ => bail!(
                "{text}: unsupported kind {prefix:?}; use pod, deployment, replicaset, statefulset or job, and -n for \
                 the namespace"
            ),
        };
        if name.is_empty() {
            bail!("{text}: the name is missing");
        }
        Ok(Self { namespace, text: text.to_owned(), kind, name: name.to_owned() })
    }

    /// The matching pods. A pod of exactly that name takes precedence over those of a workload.
    pub(super) fn find(&self, snapshot: &Snapshot) -> MatchedPods {
        let in_namespace = || snapshot.pods().values().filter(|pod| pod.key.namespace == self.namespace);
        let exact = in_namespace()
            .find(|pod| matches!(self.kind, QueryKind::Any | QueryKind::Pod) && pod.key.name.as_str() == self.name);
        let mut matched = MatchedPods::default();
        match exact {
            Some(pod) => matched.add(pod),
            None => in_namespace().filter(|pod| self.is_of(pod.key.name.as_str())).for_each(|pod| matched.add(pod)),
        }
        matched
    }

    /// True when a pod of this name is one of the workload's, by how controllers name their pods.
    fn is_of(&self, pod: &str) -> bool {
        let Some(rest) = pod.strip_prefix(&self.name).and_then(|rest| rest.strip_prefix('-')) else { return false };
        let parts: Vec<&str> = rest.split('-').collect();
        let number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        let generated = |part: &str| !part.is_empty() && part.chars().all(|c| ALPHABET.contains(c));
        let suffix = |part: &str| part.len() == 5 && generated(part);
        match (self.kind, &parts[..]) {
            (QueryKind::StatefulSet | QueryKind::Any, [one]) if number(one) => true,
            (QueryKind::Deployment | QueryKind::ReplicaSet | QueryKind::Job | QueryKind::Any, [one]) => suffix(one),
            (QueryKind::Deployment | QueryKind::Any, [hash, last]) if hash.len() <= 10 && generated(hash) => {
                suffix(last)
            }
            // An indexed Job, and one of many that a CronJob or a step has started.
            (QueryKind::Job | QueryKind::Any, [index, last]) if number(index) => suffix(last),
            _ => false,
        }
    }

    /// The same name without the kind, where that is pod.
    pub(super) fn of_any_kind(&self) -> Option<Self> {
        let Self { namespace, text, name, .. } = self;
        let any =
            || Self { namespace: namespace.clone(), text: text.clone(), kind: QueryKind::Any, name: name.clone() };
        (self.kind == QueryKind::Pod).then(any)
    }

    /// The error that the name is that of a workload and not of a pod.
    pub(super) fn not_a_pod(&self, from: &str) -> anyhow::Error {
        let Self { name, namespace, .. } = self;
        anyhow::anyhow!(
            "{from}: no pod is named {name} in namespace {namespace}, but a workload is: use {name} without kind for its pods"
        )
    }

    /// An error that nothing matches, with similar names.
    pub(super) fn not_found(&self, snapshot: &Snapshot, from: &str, workloads: &[ObjectKey]) -> anyhow::Error {
        let in_namespace = |key: &&ObjectKey| key.namespace == self.namespace;
        let keys = || snapshot.pods().iter().map(|(key, _)| key).chain(workloads);
        let names: BTreeSet<&str> = keys().filter(in_namespace).map(|key| key.name.as_str()).collect();
        let mut message = format!("{from}: no pod or workload {} found in namespace {}", self.text, self.namespace);
        let named = |key: &&ObjectKey| key.name.as_str() == self.name;
        if let Some(other) = keys().filter(named).find(|key| !in_namespace(key)) {
            message += &format!("; found one in namespace {}: use -n {}", other.namespace, other.namespace);
        } else if let Some(meant) = nearest(&self.name, names.iter().copied()) {
            message += &format!("; did you mean {meant}?");
        } else if names.is_empty() {
            let spaces: BTreeSet<&str> = keys().map(|key| key.namespace.as_str()).collect();
            message += &match spaces.is_empty() {
                true => "; there are no pods".to_owned(),
                false => format!("; pods are in {}", first_names(&spaces, spaces.len(), NAMES)),
            };
        } else {
            message += &format!("; found: {}", first_names(&names, names.len(), NAMES));
        }
        anyhow::anyhow!(message)
    }
}

impl MatchedPods {
    fn add(&mut self, pod: &Arc<Pod>) {
        let other = match pod.owner {
            _ if pod.is_terminal() => Some(ENDED),
            PodOwner::DaemonSet | PodOwner::Static => Some(OF_NODE),
            _ if pod.node.is_some() => None,
            _ if pod.deleting_at.is_some() => Some(DELETING),
            _ if pod.opaque => Some(UNPARSABLE),
            PodOwner::Nobody | PodOwner::Controller | PodOwner::Buffer => None,
        };
        match other {
            Some(reason) => self.other.push((pod.key.clone(), reason)),
            None if pod.node.is_some() => self.running.push(Arc::clone(pod)),
            None => self.pending.push(Arc::clone(pod)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> PodQuery {
        PodQuery::parse(text, Namespace::new("default").unwrap()).unwrap()
    }

    #[test]
    fn a_workload_has_the_pods_that_its_controller_names() {
        for (workload, pod, is) in [
            ("deployment/web", "web-7d4b9c6f5-x2x9k", true),
            ("deploy/web", "web-x2x9k", true),
            ("deployment/web", "web-admin-7d4b9c6f5-x2x9k", false),
            ("deployment/web", "web-admin-x2x9k", false),
            ("deployment/web", "web-0", false),
            ("statefulset/db", "db-12", true),
            ("sts/db", "db-x2x9k", false),
            ("job/train", "train-x2x9k", true),
            ("job/train", "train-1-x2x9k", true),
            ("rs/web", "web-7d4b9c6f5-x2x9k", false),
            ("replicaset/web-7d4b9c6f5", "web-7d4b9c6f5-x2x9k", true),
            ("web", "web-7d4b9c6f5-x2x9k", true),
            ("web", "website-x2x9k", false),
            ("pod/web", "web-x2x9k", false),
        ] {
            assert_eq!(name(workload).is_of(pod), is, "{workload} {pod}");
        }
    }

    #[test]
    fn invalid_queries_are_rejected_with_the_valid_forms() {
        let wrong = |text| PodQuery::parse(text, Namespace::new("default").unwrap()).unwrap_err().to_string();
        assert!(wrong("shop/web").contains("unsupported kind \"shop\""), "{}", wrong("shop/web"));
        assert!(wrong("ds/agent").contains("no node is launched for them"));
        assert!(wrong("deployment/").contains("the name is missing"));
    }
}
