//! NK2015 to NK2018 and NK2029: settings of an AKSNodeClass that AKS rejects, or that napkeeper itself does not support.

use crate::finding::Issue;
use crate::rules::azure as rules;
use crate::semantic::azure::kubelet;
use crate::semantic::facts::Facts;
use napkeeper_api::field_path::Path;
use napkeeper_core::catalog::is_azure_linux;
use napkeeper_core::model::cluster::pool::NodeClass;
use napkeeper_core::model::labels;
use serde_json::Value;
use std::collections::BTreeMap;

pub(super) fn check(class: &NodeClass, stored: &Value, facts: &Facts, found: &mut Vec<Issue>) {
    image(class, facts, found);
    if let Some(subnet) = &class.subnet {
        found.extend(subnet_issue(subnet));
    }
    tags(class, found);
    kubelet::check(&stored["spec"]["kubelet"], found);
    if facts.nodes.self_managed {
        found.extend(class.unhonoured.iter().map(|field| unsupported(field)));
    }
}

/// In provisioner mode nothing is launched of a class that sets such a field, so that it is not silently ignored.
fn unsupported(field: &str) -> Issue {
    let path = Path::from_dotted(&format!("spec.{field}"));
    let message =
        format!("{field} is not supported in provisioner mode: napkeeper launches no node of this AKSNodeClass");
    let fix = "remove it, or leave the nodes to managed NAP (--mode companion)".to_owned();
    Issue::new(&rules::UNSUPPORTED_FIELD, &path, message).fix(fix)
}

/// Kubernetes 1.33 as (1, 33).
fn minor(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.trim_start_matches('v').split('.').map(|p| p.parse().ok());
    Some((parts.next()??, parts.next()??))
}

/// Which versions of Kubernetes a family has images for is Microsoft's table of "Supported OS versions".
fn image(class: &NodeClass, facts: &Facts, found: &mut Vec<Issue>) {
    let family = &*class.image_family;
    let path = Path::from_dotted("spec.imageFamily");
    let version = facts.kubernetes.as_deref();
    let at = version.and_then(minor);
    let with = version.map(|v| format!(" with Kubernetes {v}")).unwrap_or_default();
    let problem = match (family, at) {
        ("Ubuntu2404", Some(at)) if at < (1, 32) => Some((
            format!("AKS has no Ubuntu 24.04{with}: it requires Kubernetes 1.32 or later"),
            "set imageFamily: Ubuntu, which is the newest Ubuntu of the Kubernetes version",
        )),
        ("Ubuntu2204", Some(at)) if at >= (1, 35) => {
            Some((format!("AKS has no Ubuntu 22.04{with}: Ubuntu 24.04 replaced it"), "set imageFamily: Ubuntu"))
        }
        ("AzureLinux", Some(at)) if at < (1, 32) => Some((
            format!("AzureLinux{with} is Azure Linux 2.0, whose images AKS removed on 2026-03-31"),
            "upgrade the cluster to 1.32 or later, where AzureLinux is 3.0, or set imageFamily: Ubuntu",
        )),
        _ => None,
    };
    if let Some((message, fix)) = problem {
        found.push(Issue::new(&rules::IMAGE, &path, message).fix(fix.to_owned()));
    }
    if class.fips && !is_azure_linux(class) && !class.trusted_launch {
        let message = "FIPS on Ubuntu without trusted launch is Ubuntu 20.04, whose images AKS removes on 2027-03-17";
        let fix = "set imageFamily: AzureLinux, or enable trusted launch".to_owned();
        found.push(Issue::new(&rules::IMAGE, &Path::from_dotted("spec.fipsMode"), message).fix(fix));
    }
}

/// Subnets that Azure keeps for services of its own.
const RESERVED_SUBNETS: [&str; 5] = [
    "GatewaySubnet",
    "AzureFirewallSubnet",
    "AzureFirewallManagementSubnet",
    "AzureBastionSubnet",
    "RouteServerSubnet",
];

/// The schema has checked the form of the id; a `<placeholder>` in it has been reported.
fn subnet_issue(subnet: &str) -> Option<Issue> {
    let path = Path::from_dotted("spec.vnetSubnetID");
    let parts: Vec<&str> = subnet.split('/').collect();
    if subnet.contains(['<', '>']) {
        return None;
    }
    let subscription = parts.get(2).copied().unwrap_or_default();
    let name = parts.last().copied().unwrap_or_default();
    let of_variable = |part: &&&str| part.starts_with(['$', '{']) || part.contains("${");
    if let Some(variable) = parts.iter().find(|p| of_variable(p)) {
        let message = format!("{variable} is an unreplaced variable");
        return Some(Issue::new(&rules::SUBNET, &path, message).fix("replace it with the real value".to_owned()));
    }
    let wrong = match is_guid(subscription) {
        true if is_blank(subscription) => Some("is a placeholder: all digits are the same"),
        true => None,
        false => Some("is not a subscription id: expected a UUID (8-4-4-4-12 hex digits)"),
    };
    if let Some(wrong) = wrong {
        let message = format!("subscription {subscription:?} {wrong}");
        let fix = "use the output of az account show --query id".to_owned();
        return Some(Issue::new(&rules::SUBNET, &path, message).fix(fix));
    }
    let reserved = RESERVED_SUBNETS.iter().find(|r| r.eq_ignore_ascii_case(name))?;
    let message = format!("{reserved} is reserved by Azure for one of its services and cannot hold VMs");
    Some(Issue::new(&rules::SUBNET, &path, message).fix("use a subnet for nodes".to_owned()))
}

fn is_guid(text: &str) -> bool {
    let lengths = text.split('-').map(str::len);
    lengths.eq([8, 4, 4, 4, 12]) && text.bytes().all(|b| b == b'-' || b.is_ascii_hexdigit())
}

/// Ids are random: one of a single digit was written to be replaced.
fn is_blank(guid: &str) -> bool {
    let mut digits = guid.bytes().filter(|b| *b != b'-');
    digits.next().is_none_or(|first| digits.all(|b| b.eq_ignore_ascii_case(&first)))
}

/// Ownership tags that Karpenter, AKS or napkeeper sets.
const OWNER_TAGS: [&str; 8] = [
    labels::TAG_KARPENTER_CLUSTER,
    labels::TAG_KARPENTER_NODEPOOL,
    "karpenter.azure.com_aksmachine_nodeclaim",
    "karpenter.azure.com_aksmachine_creationtimestamp",
    labels::TAG_CLUSTER,
    labels::TAG_CLAIM,
    labels::TAG_CLAIM_UID,
    labels::TAG_SUSPECT_SINCE,
];
/// A resource in Azure has at most 50 tags, including these.
const MOST_TAGS: usize = 50 - OWNER_TAGS.len();

fn tags(class: &NodeClass, found: &mut Vec<Issue>) {
    let path = Path::from_dotted("spec.tags");
    let mut folded: BTreeMap<String, &str> = BTreeMap::new();
    for key in class.tags.keys() {
        let at = path.key(key);
        // The provider writes "_" for "/" in a tag, because Azure takes no "/".
        let written = key.replace('/', "_").to_lowercase();
        let owner = OWNER_TAGS.contains(&&*written) || written.starts_with("aks-managed-");
        if owner {
            let message = format!(
                "tag {key} marks the owner of a VM: set by hand, the VM would appear to belong to something else"
            );
            let fix = "remove the tag: the controller sets it".to_owned();
            found.push(Issue::new(&rules::TAG_OWNER, &at, message).at_key().fix(fix));
        }
        if let Some(other) = folded.insert(written, key) {
            let message =
                format!("{key} and {other} are the same tag for Azure, which ignores case and replaces / by _");
            found.push(Issue::new(&rules::TAG_LIMIT, &at, message).at_key().fix("keep one of them".to_owned()));
        }
    }
    if class.tags.len() > MOST_TAGS {
        let message = format!(
            "{} tags: Azure allows 50 per VM, and {} of them are needed for ownership",
            class.tags.len(),
            OWNER_TAGS.len()
        );
        found.push(Issue::new(&rules::TAG_LIMIT, &path, message).fix(format!("keep at most {MOST_TAGS}")));
    }
}
