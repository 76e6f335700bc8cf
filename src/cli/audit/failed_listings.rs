//! Listings that failed, with remedies.

use super::input::Input;
use super::listing_check::KUBERNETES;
use super::report::FailedListing;
use napkeeper_core::model::azure::inventory::ListFailure;
use napkeeper_core::model::errors::FailureCause;

/// What could not be listed, each cause once.
pub(super) fn failed_listings(input: &Input) -> Vec<FailedListing> {
    let mut by_cause: Vec<FailedListing> = Vec::new();
    for failure in input.inventory.failures().map(|(_, failure)| failure).chain(&input.unread) {
        let failed = failed_listing(failure);
        match by_cause.iter_mut().find(|known| known.reason == failed.reason) {
            Some(known) if known.listing.split(", ").any(|listing| listing == failed.listing) => {}
            Some(known) => known.listing += &format!(", {}", failed.listing),
            None => by_cause.push(failed),
        }
    }
    by_cause
}

/// A failed listing with its remedy.
pub(super) fn failed_listing(failure: &ListFailure) -> FailedListing {
    let remedy = match (failure.cause, grant_in_cluster(&failure.listing)) {
        (FailureCause::NotSaved, _) => "correct that file and run the audit again".to_owned(),
        (FailureCause::Unreachable, _) => {
            "check the address (--azure-endpoint, or the server in the kubeconfig) and the network".to_owned()
        }
        (cause, Some(grant)) => of_kubernetes(cause, grant),
        (cause, None) => of_azure(cause).to_owned(),
    };
    FailedListing { listing: failure.listing.to_string(), reason: failure.reason.to_string(), remedy }
}

/// The permission to read an object of Kubernetes; none for a listing of Azure.
fn grant_in_cluster(listing: &str) -> Option<String> {
    if let Some(name) = listing.strip_prefix("configmap ") {
        return Some(format!("grant `get` on ConfigMap {name}"));
    }
    KUBERNETES.iter().any(|(name, _)| *name == listing).then(|| format!("grant `list` on {listing}"))
}

fn of_kubernetes(cause: FailureCause, grant: String) -> String {
    match cause {
        FailureCause::Forbidden => format!("{grant} in the cluster, as kustomize/overlays/audit/rbac.yaml does"),
        FailureCause::Unauthenticated => {
            "sign in to the cluster again (az aks get-credentials, kubelogin), or renew the kubeconfig".to_owned()
        }
        FailureCause::Unreadable => "check that object: it does not match the schema of its kind".to_owned(),
        FailureCause::NotFound => {
            "check that the kubeconfig is for this cluster, and that the cluster serves this kind".to_owned()
        }
        _ => "try again; if it persists, check the API server".to_owned(),
    }
}

fn of_azure(cause: FailureCause) -> &'static str {
    match cause {
        FailureCause::SubscriptionNotFound => {
            "check --subscription, or identity.subscription in napkeeper.yaml, and that you are signed in to its \
             tenant: `az account list` shows the available ones"
        }
        FailureCause::ResourceGroupNotFound => {
            "check --subscription and --resource-group, or nodeResourceGroup in napkeeper.yaml, and that you are \
             signed in to its tenant"
        }
        FailureCause::Forbidden => "grant read permission; `napkeeper audit --as-controller` shows what is missing",
        FailureCause::Unauthenticated => {
            "sign in again (az login, or the token file) with an account of the cluster's tenant"
        }
        FailureCause::Unreadable => "check that resource: it does not match the schema of its type",
        FailureCause::NotFound => "check the subscription, nodeResourceGroup and clusterId",
        _ => "try again; if it persists, check the service named in the error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remedy(listing: &str, cause: FailureCause) -> String {
        // A text that names every other cause decides nothing.
        let reason = "forbidden 401 404 no connection dns .json cannot be read";
        failed_listing(&ListFailure { cause, ..ListFailure::new(listing, reason) }).remedy
    }

    #[test]
    fn each_cause_has_its_remedy_in_azure_and_in_the_cluster() {
        for (cause, azure, cluster) in [
            (FailureCause::Forbidden, "--as-controller", "grant `list` on nodes in the cluster, as kustomize/"),
            (FailureCause::Unauthenticated, "az login", "kubelogin"),
            (FailureCause::SubscriptionNotFound, "`az account list`", "try again"),
            (FailureCause::ResourceGroupNotFound, "--resource-group, or nodeResourceGroup", "try again"),
            (FailureCause::NotFound, "clusterId", "serves this kind"),
            (FailureCause::Unreachable, "--azure-endpoint", "--azure-endpoint"),
            (FailureCause::Unreadable, "check that resource", "check that object"),
            (FailureCause::NotSaved, "correct that file", "correct that file"),
            (FailureCause::Other, "try again", "try again"),
        ] {
            let (of_azure, of_cluster) = (remedy("the node resource group", cause), remedy("nodes", cause));
            assert!(of_azure.contains(azure) && of_cluster.contains(cluster), "{cause:?}: {of_azure}, {of_cluster}");
        }
        let pause = remedy("configmap napkeeper-pause", FailureCause::Forbidden);
        assert!(pause.contains("grant `get` on ConfigMap napkeeper-pause"), "{pause}");
    }
}
