//! What a removal leaves behind, and how to remove that.

use super::ours::{CONTROLLER, DEPLOYMENT, POLICY};
use super::steps::{Installed, OwnNodes, Removal};
use crate::output::{first_names, plural};
use kube::ResourceExt;
use kube::api::DynamicObject;
use serde::Serialize;
use std::collections::BTreeSet;

/// Taints that napkeeper puts on nodes it is about to remove.
const TAINTS: [&str; 2] = ["napkeeper.io/underutilized", "karpenter.sh/disrupted"];
/// Labels and annotations of napkeeper.
const PREFIX: &str = "napkeeper.io/";
/// So many names are shown.
const NAMES: usize = 20;

/// Something that stays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Left {
    /// What it is.
    pub(super) what: String,
    /// Why it stays.
    pub(super) why: String,
    /// How to remove it.
    pub(super) remove: String,
    /// It was meant to stay: the removal is complete all the same.
    pub(super) is_expected: bool,
}

fn expected(what: String, why: &str, remove: String) -> Left {
    Left { what, why: why.to_owned(), remove, is_expected: true }
}

impl Removal {
    /// What stays of all that the cluster shows, and what is to be looked for elsewhere.
    pub(super) async fn left(&self) -> anyhow::Result<Vec<Left>> {
        let mut all = self.kept_definitions().await?;
        all.extend(self.kept_namespace().await?);
        let nodes = self.own_nodes().await?;
        all.extend(self.kept_claims(&nodes));
        all.extend(marks(&nodes));
        all.extend(self.kept_policies().await?);
        all.push(expected(
            "in Azure: the identity of napkeeper and its roles; tags napkeeper.io_… on resources that it has launched, or marked \
             as suspect"
                .to_owned(),
            "this command does not sign in to Azure",
            "az resource list --query \"[?tags.\\\"napkeeper.io_cluster\\\" || tags.\\\"napkeeper.io_suspect-since\\\"].id\" \
             -o tsv lists what has tags; \
             az identity delete -g RESOURCE_GROUP -n napkeeper deletes the identity"
                .to_owned(),
        ));
        Ok(all)
    }

    async fn kept_definitions(&self) -> anyhow::Result<Vec<Left>> {
        let left = |Installed { definition, object, held, .. }| {
            let kind = definition.kind;
            let why = match held {
                Some(0) => "another definition of Karpenter's holds objects".to_owned(),
                Some(n) => format!("it holds {}, deleted with it", plural(n, "object")),
                None => format!("its objects cannot be listed in version {}", kind.version),
            };
            let remove = if definition.is_own {
                "napkeeper uninstall --apply --delete-records deletes it with its objects".to_owned()
            } else {
                "once no object of Karpenter's kinds is left, napkeeper uninstall --apply deletes it".to_owned()
            };
            Left { what: object.to_string(), why, remove, is_expected: !definition.is_own }
        };
        Ok(self.installed().await?.into_iter().filter(|one| !one.goes).map(left).collect())
    }

    async fn kept_namespace(&self) -> anyhow::Result<Option<Left>> {
        let strangers = self.strangers().await?;
        let name = &self.cluster.namespace;
        Ok((!strangers.is_empty()).then(|| Left {
            what: format!("Namespace {name}"),
            why: format!("it holds, or may hold, what is not part of an installation: {}", strangers.join(", ")),
            remove: format!("move that, then kubectl delete namespace {name}"),
            is_expected: false,
        }))
    }

    fn kept_claims(&self, nodes: &OwnNodes) -> Vec<Left> {
        let (deleting, kept): (Vec<_>, Vec<_>) =
            nodes.claims.iter().partition(|claim| claim.metadata.deletion_timestamp.is_some());
        let mut all = Vec::new();
        if !deleting.is_empty() {
            all.push(Left {
                what: format!("NodeClaims that are being deleted: {}", names(&deleting)),
                why: "without a controller nobody drains their nodes and deletes their VMs".to_owned(),
                remove: "wait until they are gone before --apply; later another Karpenter has to finish it, or delete \
                         the VMs and then take the finalizer karpenter.sh/termination off"
                    .to_owned(),
                is_expected: false,
            });
        }
        if !kept.is_empty() {
            let release = if self.releases_nodes {
                "kubectl delete node NAME and nodeclaim NAME, and the VM in Azure, after a drain"
            } else {
                "managed NAP or Karpenter takes them over, with their finalizer karpenter.sh/termination; if none does, \
                 napkeeper uninstall --apply --release-nodes takes it off"
            };
            let what = format!("NodeClaims with their Nodes and VMs: {}", names(&kept));
            all.push(expected(what, "their pods run on", release.to_owned()));
        }
        all
    }

    /// Policies that somebody has installed by `napkeeper policies export`.
    async fn kept_policies(&self) -> anyhow::Result<Option<Left>> {
        let labelled = self.cluster.select(POLICY, None, "app.kubernetes.io/name=napkeeper").await?;
        let mut deleted = BTreeSet::from(["napkeeper-bootstrap-tokens"]);
        for one in self.installed().await?.into_iter().filter(|one| one.goes) {
            deleted.extend(one.definition.policies);
        }
        let kept: Vec<_> =
            labelled.iter().map(|policy| policy.name.as_str()).filter(|name| !deleted.contains(name)).collect();
        Ok((!kept.is_empty()).then(|| {
            expected(
                format!("admission policies: {}", kept.join(", ")),
                "they work without napkeeper",
                "napkeeper policies export | kubectl delete --ignore-not-found -f -".to_owned(),
            )
        }))
    }

    /// What applies napkeeper from Git, and would apply it again.
    pub(super) async fn git(&self) -> anyhow::Result<Option<String>> {
        let namespace = &self.cluster.namespace;
        let Some(found) = self.cluster.get(DEPLOYMENT, Some(namespace), CONTROLLER).await? else { return Ok(None) };
        let flux = |part: &str| found.labels().get(&format!("kustomize.toolkit.fluxcd.io/{part}")).cloned();
        if let Some(name) = flux("name") {
            let namespace = flux("namespace").unwrap_or_default();
            return Ok(Some(format!(
                "Flux Kustomization {namespace}/{name}: suspend it, or remove napkeeper from Git"
            )));
        }
        let application = found.annotations().get("argocd.argoproj.io/tracking-id");
        let application = application.and_then(|id| id.split(':').next());
        Ok(application
            .map(|name| format!("Argo CD Application {name}: end its automatic sync, or remove napkeeper from Git")))
    }
}

/// Taints, labels and annotations of nodes and NodeClaims.
fn marks(nodes: &OwnNodes) -> Vec<Left> {
    let mut all = Vec::new();
    for taint in TAINTS {
        let has = |node: &&DynamicObject| {
            let taints = node.data["spec"]["taints"].as_array();
            taints.is_some_and(|taints| taints.iter().any(|one| one["key"] == taint))
        };
        let tainted: Vec<_> = nodes.nodes.iter().filter(has).collect();
        if !tainted.is_empty() {
            let why = "a move of their pods was under way";
            let all_names: Vec<_> = tainted.iter().map(|node| node.name_any()).collect();
            let remove = format!("kubectl taint nodes {} {taint}-", all_names.join(" "));
            all.push(expected(format!("the taint {taint} on Nodes {}", names(&tainted)), why, remove));
        }
    }
    let keys: BTreeSet<&String> = nodes
        .claims
        .iter()
        .flat_map(|claim| claim.annotations().keys())
        .filter(|key| key.starts_with(PREFIX))
        .collect();
    if !keys.is_empty() {
        let keys: Vec<_> = keys.into_iter().map(String::as_str).collect();
        let removals: Vec<_> = keys.iter().map(|key| format!("{key}-")).collect();
        all.push(expected(
            format!("annotations of NodeClaims: {}", keys.join(", ")),
            "by them napkeeper recognises its nodes if it is installed again",
            format!("kubectl annotate nodeclaims --all {}", removals.join(" ")),
        ));
    }
    all
}

/// The first names, and how many more there are.
fn names(objects: &[&DynamicObject]) -> String {
    first_names(objects.iter().map(|object| object.name_any()), objects.len(), NAMES)
}
