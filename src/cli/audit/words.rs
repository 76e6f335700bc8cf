//! Words: why is something kept, and what can a person do about it?

use super::report::{Failed, Kept, seconds};
use super::shape::KUBERNETES;
use jiff::{SignedDuration, Timestamp};
use napkeeper_core::model::azure::cloud::{CloudResource, ResourceKind};
use napkeeper_core::model::azure::inventory::ListFailure;
use napkeeper_core::model::cron::Schedule;
use napkeeper_core::model::orphans::finding::DeletionRefusal;
use napkeeper_core::model::orphans::sweep::{Sweep, SweepMode};

/// What the words of a refusal depend on.
pub(super) struct About<'a> {
    pub(super) resource: &'a CloudResource,
    /// The sweep that looks at it, if one does.
    pub(super) sweep: Option<&'a Sweep>,
    /// How long it must have been an orphan.
    pub(super) least: SignedDuration,
    /// When it will have been an orphan for long enough by records.
    pub(super) of_age_at: Option<Timestamp>,
    /// How often records have seen it as one.
    pub(super) seen: u32,
    /// Why the inventory is not one of the configured cluster.
    pub(super) cluster_missing: &'a str,
    /// The pause switch could be read.
    pub(super) pause_is_known: bool,
    /// When the listings were taken.
    pub(super) now: Timestamp,
}

/// A refusal in words, with its remedy.
pub(super) fn kept(refusal: DeletionRefusal, about: &About<'_>) -> Kept {
    let (why, remedy) = of_law(refusal, about).unwrap_or_else(|| of_leave(refusal, about));
    Kept { refusal: refusal.category(), why, remedy }
}

/// Clauses 0 to 5: what is proven?
fn of_law(refusal: DeletionRefusal, about: &About<'_>) -> Option<(String, String)> {
    let text = |why: &str, remedy: &str| Some((why.to_owned(), remedy.to_owned()));
    match refusal {
        DeletionRefusal::OtherCluster => Some((
            about.cluster_missing.to_owned(),
            "check clusterId and nodeResourceGroup, and that the kubeconfig is for this cluster".to_owned(),
        )),
        DeletionRefusal::NotOwned => text(
            "not owned by this cluster",
            "never deleted by napkeeper; delete it manually if you know that it is unused",
        ),
        DeletionRefusal::NoVolumeRecord => text(
            "no record that this cluster used this disk for a volume",
            "the controller records volumes only while it runs; delete older disks manually if you are sure",
        ),
        DeletionRefusal::Retained => {
            text("its volume had reclaim policy Retain", "delete it manually if its data is no longer needed")
        }
        DeletionRefusal::SignOfLife => text("references found: it is in use", "no action needed"),
        DeletionRefusal::TooYoung => Some(too_young(about)),
        DeletionRefusal::SeenOnce => {
            let times = match about.seen {
                0 => "not observed by the controller yet".to_owned(),
                _ => "observed only once by the controller".to_owned(),
            };
            Some((times, "let the controller observe it: two observations at least 10m apart are required".to_owned()))
        }
        DeletionRefusal::TakesAlong => text(
            "a NIC or disk that must be kept would be deleted with it: see the evidence",
            "detach that NIC or disk, or delete the VM manually",
        ),
        DeletionRefusal::PartialListing => {
            text("a listing is incomplete or too old", "check what could not be listed; a live run lists again")
        }
        DeletionRefusal::Breaker => text(
            "the breaker has tripped: too many resources became suspect at once",
            "find out why, then commit the line in the report",
        ),
        _ => None,
    }
}

fn too_young(about: &About<'_>) -> (String, String) {
    let least = napkeeper_api::duration::format(about.least);
    match about.of_age_at {
        Some(at) => {
            let at = seconds(at);
            (format!("{least} grace period ends at {at}"), format!("wait until {at}"))
        }
        None => (
            format!("{least} grace period not started: not observed by the controller yet"),
            "let the controller observe it".to_owned(),
        ),
    }
}

/// Clauses 6 and 7: may it be deleted?
fn of_leave(refusal: DeletionRefusal, about: &About<'_>) -> (String, String) {
    let kind = about.resource.kind();
    let name = about.sweep.map(|s| s.name.to_string());
    let (why, remedy) = match (refusal, &name) {
        (DeletionRefusal::Mode, None) => return no_sweep(kind),
        (DeletionRefusal::Mode, Some(_)) => return mode(about),
        (DeletionRefusal::Changed, _) => ("it changed since it was listed", "wait for the next observation"),
        (DeletionRefusal::Paused, _) if !about.pause_is_known => {
            ("unknown whether deletions are paused", "check why ConfigMap napkeeper-pause could not be read")
        }
        (DeletionRefusal::Paused, _) => {
            ("deletions are paused", "resume deletions: ConfigMap napkeeper-pause, key delete")
        }
        (DeletionRefusal::NoLease, _) => ("this replica is not the leader", "no action needed: another replica is"),
        (DeletionRefusal::Companion, _) => (
            "companion mode only reports VMs, it never deletes them",
            "delete its NodeClaim if it exists, otherwise the VM; its NIC and OS disk are deleted afterwards",
        ),
        (DeletionRefusal::Cap, _) => ("limit of deletions per 24h reached", "wait, or raise caps.deletionsPerDay"),
        (DeletionRefusal::Approval, _) => ("not approved", "commit the lines under `approvals` below"),
        (DeletionRefusal::BackOff, _) => ("the last deletion failed", "wait: it will be retried"),
        (DeletionRefusal::Denied, _) => (
            "Azure currently denies the deletion of such resources",
            "check permissions, locks and policies with `napkeeper audit --as-controller`",
        ),
        (DeletionRefusal::Excluded, _) => ("excluded", "remove the exclusion if it is wrong"),
        _ => ("not allowed by the deletion rules", "see docs/orphans.md"),
    };
    (why.to_owned(), remedy.to_owned())
}

/// Why a sweep does not collect now: its mode, or its schedule.
fn mode(about: &About<'_>) -> (String, String) {
    let Some(sweep) = about.sweep else { return no_sweep(about.resource.kind()) };
    let name = &sweep.name;
    if sweep.mode != SweepMode::Collect {
        return (
            format!("the OrphanSweep's mode is {}", sweep.mode),
            format!("set mode: Collect in OrphanSweep {name}"),
        );
    }
    let next = sweep.schedule.as_ref().and_then(|text| Schedule::parse(text).ok()).and_then(|s| s.after(about.now));
    match next.map(seconds) {
        Some(at) => (format!("OrphanSweep {name} runs on a schedule, next at {at}"), format!("wait until {at}")),
        None => (
            format!("OrphanSweep {name} has a schedule that never matches"),
            format!("correct the schedule of OrphanSweep {name}"),
        ),
    }
}

fn no_sweep(kind: ResourceKind) -> (String, String) {
    (
        format!("no OrphanSweep includes kind {kind}, so nothing is deleted"),
        format!("commit an OrphanSweep with kinds: [{kind}]; start with mode: Report"),
    )
}

/// What to do about a listing that failed.
pub(super) fn failed(failure: &ListFailure) -> Failed {
    let why = failure.reason.to_string();
    let lower = why.to_lowercase();
    // Numbers in what support finds it by say nothing.
    let said = lower.split(" (correlation id").next().unwrap_or_default();
    let has = |words: &[&str]| words.iter().any(|word| said.contains(word));
    let remedy = if has(&[".json"]) {
        "correct that file and run the audit again".to_owned()
    } else if has(&["no connection", "connect error", "error sending", "dns", "connection refused"]) {
        "check the address (--azure-endpoint, or the server in the kubeconfig) and the network".to_owned()
    } else if has(&["resource group '"]) && has(&["was not found"]) {
        "check --subscription and --resource-group, or nodeResourceGroup in napkeeper.yaml, and that you are signed in \
         to its tenant"
            .to_owned()
    } else if has(&["subscription '"]) && has(&["was not found"]) {
        "check --subscription, or identity.subscription in napkeeper.yaml, and that you are signed in to its tenant: \
         `az account list` shows the available ones"
            .to_owned()
    } else {
        match grant_in_cluster(&failure.listing) {
            Some(grant) => of_kubernetes(said, grant),
            None => of_azure(said).to_owned(),
        }
    };
    Failed { what: failure.listing.to_string(), why, remedy }
}

/// The right to read what is Kubernetes' own; none for what Azure lists.
fn grant_in_cluster(what: &str) -> Option<String> {
    if let Some(name) = what.strip_prefix("configmap ") {
        return Some(format!("grant `get` on ConfigMap {name}"));
    }
    KUBERNETES.iter().any(|(name, _)| *name == what).then(|| format!("grant `list` on {what}"))
}

fn of_kubernetes(said: &str, grant: String) -> String {
    let has = |words: &[&str]| words.iter().any(|word| said.contains(word));
    if has(&["forbidden", "403", "cannot list", "cannot get"]) {
        format!("{grant} in the cluster, as kustomize/overlays/audit/rbac.yaml does")
    } else if has(&["401", "unauthorized", "credential"]) {
        "sign in to the cluster again (az aks get-credentials, kubelogin), or renew the kubeconfig".to_owned()
    } else if has(&["cannot be understood", "cannot be read", "cannot parse"]) {
        "check that object: it does not match the schema of its kind".to_owned()
    } else if has(&["404", "could not be found", "not found"]) {
        "check that the kubeconfig is for this cluster, and that the cluster serves this kind".to_owned()
    } else {
        "try again; if it persists, check the API server".to_owned()
    }
}

fn of_azure(said: &str) -> &'static str {
    let has = |words: &[&str]| words.iter().any(|word| said.contains(word));
    if has(&["does not have", "authorizationfailed", "forbidden", "403"]) {
        "grant read permission; `napkeeper audit --as-controller` shows what is missing"
    } else if has(&["401", "credential", "token", "unauthorized", "authentication"]) {
        "sign in again (az login, or the token file) with an account of the cluster's tenant"
    } else if has(&["cannot be understood", "cannot be read", "cannot parse"]) {
        "check that resource: it does not match the schema of its type"
    } else if has(&["404", "could not be found", "not found"]) {
        "check the subscription, nodeResourceGroup and clusterId"
    } else {
        "try again; if it persists, check the service named in the error"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn who_refuses_decides_what_is_to_be_granted() {
        let remedy =
            |what: &str, why: &str| failed(&ListFailure { listing: Arc::from(what), reason: Arc::from(why) }).remedy;
        let forbidden = "nodes is forbidden: User \"token-401\" cannot list resource \"nodes\" at the cluster scope";
        let grant = remedy("nodes", forbidden);
        assert!(
            grant.contains("grant `list` on nodes") && grant.contains("kustomize/overlays/audit/rbac.yaml"),
            "{grant}"
        );
        assert!(remedy("configmap napkeeper-pause", "configmaps is forbidden").contains("grant `get` on ConfigMap"));
        let azure = "The client 'a' does not have authorization to read (correlation id 401-403)";
        assert!(remedy("the node resource group", azure).contains("--as-controller"));
        let expired = "the access token is of another tenant (correlation id 403)";
        assert!(remedy("the node resource group", expired).contains("sign in again"));
        let absent = "resource group 'MC_nope' was not found (correlation id 401)";
        assert!(remedy("the node resource group", absent).contains("--resource-group, or nodeResourceGroup"));
    }
}
