//! Words: why is something kept, and what can a person do about it?

use super::report::{Failed, Kept};
use jiff::{SignedDuration, Timestamp};
use napkeeper_core::cluster::cloud::{CloudResource, ResourceKind};
use napkeeper_core::cluster::inventory::ListFailure;
use napkeeper_core::cluster::sweep::Sweep;
use napkeeper_core::orphans::Refusal;

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
}

/// A refusal in words, with its remedy.
pub(super) fn kept(refusal: Refusal, about: &About<'_>) -> Kept {
    let (why, remedy) = of_law(refusal, about).unwrap_or_else(|| of_leave(refusal, about));
    Kept { refusal: refusal.category(), why, remedy }
}

/// Clauses 0 to 5: what is proven?
fn of_law(refusal: Refusal, about: &About<'_>) -> Option<(String, String)> {
    let text = |why: &str, remedy: &str| Some((why.to_owned(), remedy.to_owned()));
    match refusal {
        Refusal::OtherCluster => Some((
            about.cluster_missing.to_owned(),
            "check clusterId and nodeResourceGroup, and that the kubeconfig is of this cluster".to_owned(),
        )),
        Refusal::NotOwned => text(
            "its cluster tag does not name this cluster",
            "it is left alone; delete it by hand if you know that it is nobody's",
        ),
        Refusal::NoVolumeRecord => text(
            "no record says that this cluster had a volume with this disk",
            "the controller records volumes from when it runs on; an older disk is for you to delete, if you are sure",
        ),
        Refusal::Retained => text(
            "its volume had reclaim policy Retain: somebody said keep",
            "delete it by hand when nobody wants its data",
        ),
        Refusal::SignOfLife => text("something alive links to it", "none needed"),
        Refusal::TooYoung => Some(too_young(about)),
        Refusal::SeenOnce => {
            let times = match about.seen {
                0 => "no record has seen it as an orphan yet".to_owned(),
                _ => "only one record has seen it as an orphan".to_owned(),
            };
            Some((times, "let the controller observe it: two sightings at least 10 min apart prove it".to_owned()))
        }
        Refusal::PartialListing => text(
            "a listing is not whole, or too old to act upon",
            "see what could not be listed; a live run takes new listings",
        ),
        Refusal::Breaker => text(
            "the breaker has tripped: too much turned suspect at once",
            "find out why, then commit the line that the report prints",
        ),
        _ => None,
    }
}

fn too_young(about: &About<'_>) -> (String, String) {
    let least = napkeeper_api::duration::format(about.least);
    match about.of_age_at {
        Some(at) => (format!("not an orphan for {least} yet: it will be at {at}"), format!("wait until {at}")),
        None => (
            format!("its {least} as an orphan begin when a record first sees it"),
            "let the controller observe it".to_owned(),
        ),
    }
}

/// Clauses 6 and 7: may it be deleted?
fn of_leave(refusal: Refusal, about: &About<'_>) -> (String, String) {
    let kind = about.resource.kind();
    let name = about.sweep.map(|s| s.name.to_string());
    let (why, remedy) = match (refusal, &name) {
        (Refusal::Mode, None) => return no_sweep(kind),
        (Refusal::Mode, Some(name)) => {
            return (
                format!("OrphanSweep {name} does not collect now"),
                format!("set mode: Collect in OrphanSweep {name}, or wait for its schedule"),
            );
        }
        (Refusal::Changed, _) => ("it has changed since it was listed", "wait for the next observation"),
        (Refusal::Paused, _) => ("deletes are paused", "lift the pause: ConfigMap napkeeper-pause, key delete"),
        (Refusal::NoLease, _) => ("this replica does not lead", "none needed: another one does"),
        (Refusal::Companion, _) => (
            "beside managed NAP, VMs are reported and never deleted",
            "delete its NodeClaim if there is one, else the VM by hand; its NIC and OS disk follow it",
        ),
        (Refusal::Cap, _) => ("enough has been deleted in these 24 hours", "wait, or raise caps.deletionsPerDay"),
        (Refusal::Approval, _) => ("nobody has approved it", "commit the lines under `approvals` below"),
        (Refusal::BackOff, _) => ("its last deletion failed", "wait: it is tried again a little later"),
        (Refusal::Denied, _) => (
            "Azure does not let such a resource be deleted now",
            "see what `napkeeper audit --as-controller` says of rights, locks and policies",
        ),
        (Refusal::Excluded, _) => ("an exclusion names it", "remove the exclusion if it is in error"),
        _ => ("the law refuses", "see docs/orphans.md"),
    };
    (why.to_owned(), remedy.to_owned())
}

fn no_sweep(kind: ResourceKind) -> (String, String) {
    (
        format!("no OrphanSweep looks at {kind} resources, so nothing is deleted"),
        format!("commit an OrphanSweep with kinds: [{kind}]; begin with mode: Report"),
    )
}

/// What to do about a listing that failed.
pub(super) fn failed(failure: &ListFailure) -> Failed {
    let why = failure.why.to_string();
    let lower = why.to_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    let remedy = if has(&[".json"]) {
        "put that file right and run the audit again"
    } else if has(&["no connection", "connect error", "error sending", "dns", "refused"]) {
        "check the address (--azure-endpoint, or the server in the kubeconfig) and the network in between"
    } else if has(&["401", "credential", "token", "unauthorized", "authentication"]) {
        "sign in anew (az login, or the token file) as somebody of the cluster's tenant"
    } else if has(&["403", "forbidden", "authorization", "does not have"]) {
        "grant the right to read it; `napkeeper audit --as-controller` says what is missing"
    } else if has(&["cannot be understood", "cannot be read"]) {
        "look at that object: it is not of the shape that its kind has"
    } else if has(&["404", "could not be found", "not found"]) {
        "check subscription, nodeResourceGroup and that the cluster serves this kind"
    } else {
        "try again; if it stays, look at the named service"
    };
    Failed { what: failure.what.to_string(), why, remedy: remedy.to_owned() }
}
