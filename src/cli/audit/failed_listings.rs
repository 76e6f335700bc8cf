//! Listings that failed, and what to do about each.

use super::input::Input;
use super::listing_check::KUBERNETES;
use super::report::FailedListing;
use napkeeper_core::model::azure::inventory::ListFailure;

/// What could not be listed, each cause once.
pub(super) fn failed_listings(input: &Input) -> Vec<FailedListing> {
    let mut by_cause: Vec<FailedListing> = Vec::new();
    for failure in input.inventory.failures().map(|(_, failure)| failure).chain(&input.unread) {
        let failed = failed_listing(failure);
        match by_cause.iter_mut().find(|known| known.why == failed.why) {
            Some(known) if known.what.split(", ").any(|what| what == failed.what) => {}
            Some(known) => known.what += &format!(", {}", failed.what),
            None => by_cause.push(failed),
        }
    }
    by_cause
}

/// What to do about a listing that failed.
pub(super) fn failed_listing(failure: &ListFailure) -> FailedListing {
    let why = failure.reason.to_string();
    let lower = why.to_lowercase();
    // The id for support may contain status codes.
    let message = lower.split(" (correlation id").next().unwrap_or_default();
    let has = |words: &[&str]| words.iter().any(|word| message.contains(word));
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
            Some(grant) => of_kubernetes(message, grant),
            None => of_azure(message).to_owned(),
        }
    };
    FailedListing { what: failure.listing.to_string(), why, remedy }
}

/// The permission to read an object of Kubernetes; none for a listing of Azure.
fn grant_in_cluster(what: &str) -> Option<String> {
    if let Some(name) = what.strip_prefix("configmap ") {
        return Some(format!("grant `get` on ConfigMap {name}"));
    }
    KUBERNETES.iter().any(|(name, _)| *name == what).then(|| format!("grant `list` on {what}"))
}

fn of_kubernetes(message: &str, grant: String) -> String {
    let has = |words: &[&str]| words.iter().any(|word| message.contains(word));
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

fn of_azure(message: &str) -> &'static str {
    let has = |words: &[&str]| words.iter().any(|word| message.contains(word));
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
        let remedy = |what: &str, why: &str| {
            failed_listing(&ListFailure { listing: Arc::from(what), reason: Arc::from(why) }).remedy
        };
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
