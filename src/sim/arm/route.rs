//! Parses URLs into routes, and checks their `api-version`.

use super::Response;
use super::facts::FactRoute;
use super::related_resources::RelatedListing;
use super::responses::error_response;
use crate::cloud::{Cloud, CloudSettings, ComputeCall, ListedKind};
use napkeeper_core::model::azure::cloud::{CloudResource, ResourceDetail};
use napkeeper_core::model::errors::OperationId;
use napkeeper_core::model::names::ArmId;
use std::sync::Arc;

/// Resource types that are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResourceType {
    Vm,
    Nic,
    Disk,
}

impl ResourceType {
    const ALL: [Self; 3] = [Self::Vm, Self::Nic, Self::Disk];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Vm => "Microsoft.Compute/virtualMachines",
            Self::Nic => "Microsoft.Network/networkInterfaces",
            Self::Disk => "Microsoft.Compute/disks",
        }
    }

    pub(super) fn of(resource: &CloudResource) -> Self {
        match resource.detail {
            ResourceDetail::Vm(_) => Self::Vm,
            ResourceDetail::Nic(_) => Self::Nic,
            ResourceDetail::Disk(_) => Self::Disk,
        }
    }

    pub(super) fn kind(self) -> ListedKind {
        match self {
            Self::Vm => ListedKind::Vms,
            Self::Nic => ListedKind::Nics,
            Self::Disk => ListedKind::Disks,
        }
    }

    fn parse(provider: &str, name: &str) -> Option<Self> {
        let text = format!("{provider}/{name}");
        Self::ALL.into_iter().find(|t| t.as_str().eq_ignore_ascii_case(&text))
    }
}

/// The target of a path.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Route {
    Group,
    Everything,
    List(ResourceType),
    Related(RelatedListing),
    Resource(ResourceType, ArmId),
    Tags(ArmId),
    /// Of a VM.
    Extension(ArmId),
    /// A Machine of an agent pool.
    Machine(ArmId),
    /// Where Machines of a pool are deleted; the pool's id.
    DeleteMachines(ArmId),
    Operation(OperationId),
    Skus,
    Usages,
    Locks,
    Fact(FactRoute),
    Permissions,
    /// `Microsoft.Authorization/permissions` of the cluster.
    ClusterPermissions,
    Denials,
    Policies,
}

/// Versions of `Microsoft.Compute/skus`, which has its own.
const SKU_VERSIONS: [&str; 4] = ["2017-03-30", "2017-09-01", "2019-04-01", "2021-07-01"];

/// Versions of `Microsoft.Compute/locations/usages`.
const USAGE_VERSIONS: [&str; 10] = [
    "2021-07-01",
    "2021-11-01",
    "2022-03-01",
    "2022-08-01",
    "2022-11-01",
    "2023-03-01",
    "2023-07-01",
    "2023-09-01",
    "2024-03-01",
    "2024-07-01",
];

/// Versions of `Microsoft.Authorization/locks`.
const LOCK_VERSIONS: [&str; 5] = ["2015-01-01", "2016-09-01", "2017-04-01", "2020-04-01-preview", "2020-05-01"];

/// Versions of Microsoft.Network that exist. They differ from those of Microsoft.Resources, such as 2021-04-01, which a
/// generic client would send.
const NETWORK_VERSIONS: [&str; 14] = [
    "2022-01-01",
    "2022-05-01",
    "2022-07-01",
    "2022-09-01",
    "2022-11-01",
    "2023-02-01",
    "2023-04-01",
    "2023-05-01",
    "2023-06-01",
    "2023-09-01",
    "2023-11-01",
    "2024-01-01",
    "2024-03-01",
    "2024-05-01",
];

/// Versions of Microsoft.ContainerService that have Machines and are served here. Only previews write Machines, and
/// only they have tags and states.
const CONTAINER_SERVICE_VERSIONS: [&str; 5] =
    ["2025-05-01", "2025-07-01", "2025-09-02-preview", "2026-01-02-preview", "2026-04-02-preview"];

impl Route {
    pub(super) fn parse(path: &str, settings: &CloudSettings) -> Result<Self, Response> {
        let path = path.trim_end_matches('/');
        // Types are compared without case; names keep the spelling of the request.
        let folded = path.to_ascii_lowercase();
        let words: Vec<&str> = folded.trim_start_matches('/').split('/').collect();
        let names: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        if let Some(fact) = FactRoute::parse(&words, &names) {
            check_subscription(words.get(1).copied().unwrap_or_default(), settings)?;
            return Ok(Self::Fact(fact));
        }
        let id = |segments: usize| ArmId::new(format!("/{}", names[..segments].join("/"))).ok();
        let parsed = match (&words[..], &names[..]) {
            (["subscriptions", subscription, "providers", rest @ ..], [_, _, _, names @ ..]) => {
                check_subscription(subscription, settings)?;
                Self::of_subscription(rest, names, settings)?
            }
            (
                ["subscriptions", _, "resourcegroups", _, "providers", "microsoft.containerservice", _, _, rest @ ..],
                _,
            ) if id(8) == settings.managed_by && settings.managed_by.is_some() => Self::of_cluster(rest, id),
            (["subscriptions", _, "resourcegroups", _, "providers", "microsoft.containerservice", ..], _) => {
                let name = names.get(7).copied().unwrap_or_default();
                let message =
                    format!("The Resource 'Microsoft.ContainerService/managedClusters/{name}' was not found.");
                return Err(error_response(404, "ResourceNotFound", &message));
            }
            (["subscriptions", subscription, "resourcegroups", _, rest @ ..], [_, _, _, name, ..]) => {
                check_subscription(subscription, settings)?;
                if id(4).as_ref() != Some(&settings.group) {
                    let message = format!("Resource group '{name}' could not be found.");
                    return Err(error_response(404, "ResourceGroupNotFound", &message));
                }
                Self::of_group(rest, id)
            }
            _ => None,
        };
        parsed.ok_or_else(|| error_response(404, "NotFound", &format!("Nothing is served at {path}.")))
    }

    /// What lies below `/subscriptions/{id}/providers`.
    fn of_subscription(rest: &[&str], names: &[&str], settings: &CloudSettings) -> Result<Option<Self>, Response> {
        match rest {
            ["microsoft.compute", "skus"] => Ok(Some(Self::Skus)),
            ["microsoft.compute", "locations", location, "usages"] => {
                if *location == settings.region.as_str() {
                    return Ok(Some(Self::Usages));
                }
                let message = format!("The provided location '{location}' is not available here.");
                Err(error_response(400, "LocationNotAvailableForResourceType", &message))
            }
            [_, "locations", _, "operations", _] => Ok(Some(Self::Operation(OperationId(Arc::from(names[4]))))),
            _ => Ok(None),
        }
    }

    /// The part below the group; `id` makes an id of this many segments of the path.
    fn of_group(rest: &[&str], id: impl Fn(usize) -> Option<ArmId>) -> Option<Self> {
        match rest {
            [] => Some(Self::Group),
            ["resources"] => Some(Self::Everything),
            ["providers", "microsoft.authorization", "locks"] => Some(Self::Locks),
            ["providers", "microsoft.authorization", "permissions"] => Some(Self::Permissions),
            ["providers", "microsoft.authorization", "denyassignments"] => Some(Self::Denials),
            ["providers", "microsoft.authorization", "policyassignments"] => Some(Self::Policies),
            ["providers", rest @ ..] if RelatedListing::of_group(rest).is_some() => {
                RelatedListing::of_group(rest).map(Self::Related)
            }
            ["providers", provider, of] => ResourceType::parse(provider, of).map(Self::List),
            ["providers", provider, of, _] => {
                ResourceType::parse(provider, of).zip(id(8)).map(|(of, id)| Self::Resource(of, id))
            }
            ["providers", "microsoft.compute", "virtualmachines", _, "extensions", _] => id(10).map(Self::Extension),
            ["providers", _, _, _, "providers", "microsoft.resources", "tags", "default"] => id(8).map(Self::Tags),
            _ => None,
        }
    }

    /// What lies below the managed cluster.
    fn of_cluster(rest: &[&str], id: impl Fn(usize) -> Option<ArmId>) -> Option<Self> {
        match rest {
            ["providers", "microsoft.authorization", "permissions"] => Some(Self::ClusterPermissions),
            ["agentpools"] => Some(Self::Related(RelatedListing::Pools)),
            ["agentpools", _, "machines", _] => id(12).map(Self::Machine),
            ["agentpools", _, "deletemachines"] => id(10).map(Self::DeleteMachines),
            ["agentpools", pool, "machines"] => Some(Self::Related(RelatedListing::Machines((*pool).to_owned()))),
            _ => None,
        }
    }

    /// The rate limit of Compute that a request counts against.
    pub(super) fn compute_call(&self) -> Option<ComputeCall<'_>> {
        match self {
            Self::List(ResourceType::Vm) => Some(ComputeCall::ListVms),
            Self::Resource(ResourceType::Vm, id) => Some(ComputeCall::Vm(id.folded())),
            Self::Extension(id) => Some(ComputeCall::Extension(id.folded())),
            Self::Operation(id) => Some(ComputeCall::Operation(&id.0)),
            _ => None,
        }
    }

    /// Refuses a request without an `api-version`, or with one that the provider does not have.
    pub(super) fn check_version(&self, version: Option<&str>) -> Result<(), Response> {
        let Some(version) = version.filter(|v| !v.is_empty()) else {
            let message = "The api-version query parameter (?api-version=) is required for all requests.";
            return Err(error_response(400, "MissingApiVersionParameter", message));
        };
        if !is_api_version(version) {
            let message = format!(
                "The api-version '{version}' is invalid. It must be a date, such as 2024-07-01 or 2024-07-01-preview."
            );
            return Err(error_response(400, "InvalidApiVersionParameter", &message));
        }
        let (of, versions): (&str, &[&str]) = match self {
            Self::List(ResourceType::Nic) | Self::Resource(ResourceType::Nic, _) => {
                (ResourceType::Nic.as_str(), &NETWORK_VERSIONS)
            }
            Self::Fact(fact) => fact.versions().unwrap_or(("virtualNetworks/usages", &NETWORK_VERSIONS)),
            Self::Usages => ("locations/usages", &USAGE_VERSIONS),
            Self::Related(RelatedListing::PublicIps) => ("Microsoft.Network/publicIPAddresses", &NETWORK_VERSIONS),
            Self::Related(RelatedListing::LoadBalancers) => ("Microsoft.Network/loadBalancers", &NETWORK_VERSIONS),
            Self::Related(RelatedListing::Pools | RelatedListing::Machines(_))
            | Self::Machine(_)
            | Self::DeleteMachines(_) => ("Microsoft.ContainerService/managedClusters", &CONTAINER_SERVICE_VERSIONS),
            Self::Skus => ("Microsoft.Compute/skus", &SKU_VERSIONS),
            Self::Locks => ("Microsoft.Authorization/locks", &LOCK_VERSIONS),
            _ => return Ok(()),
        };
        if !versions.contains(&version) {
            let message = format!("No registered resource provider found for API version '{version}' for type '{of}'.");
            return Err(error_response(400, "NoRegisteredProviderFound", &message));
        }
        Ok(())
    }
}

/// True for a date, perhaps of a preview.
fn is_api_version(text: &str) -> bool {
    let date = text.strip_suffix("-preview").unwrap_or(text);
    let lengths = date.split('-').map(|part| if part.bytes().all(|b| b.is_ascii_digit()) { part.len() } else { 0 });
    lengths.eq([4, 2, 2])
}

fn check_subscription(subscription: &str, settings: &CloudSettings) -> Result<(), Response> {
    if settings.group.folded().split('/').nth(2) == Some(subscription) {
        return Ok(());
    }
    let message = format!("The subscription '{subscription}' could not be found.");
    Err(error_response(404, "SubscriptionNotFound", &message))
}

/// Where the outcome of an operation is served.
pub(super) fn operation_url(origin: &str, cloud: &Cloud, target: &ArmId, operation: &OperationId) -> String {
    let mut segments = target.as_str().split('/').skip(2);
    let subscription = segments.next().unwrap_or_default();
    let (provider, version) = if target.folded().contains("/machines/") {
        ("Microsoft.ContainerService", "2025-07-01")
    } else if target.folded().contains("/microsoft.network/") {
        ("Microsoft.Network", "2024-05-01")
    } else {
        ("Microsoft.Compute", "2024-07-01")
    };
    let region = &cloud.settings().region;
    format!(
        "{origin}/subscriptions/{subscription}/providers/{provider}/locations/{region}/operations/{operation}?api-version={version}"
    )
}

/// Parameters of a URL, decoded.
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    pub(super) fn parse(text: &str) -> Self {
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        Self(pairs.map(Self::pair).collect())
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }

    /// True when the pair, not decoded, is of this name.
    pub(super) fn names(pair: &str, name: &str) -> bool {
        Self::pair(pair).0 == name
    }

    fn pair(pair: &str) -> (String, String) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decoded(name), decoded(value))
    }
}

/// Undoes percent-encoding; invalid escapes are unchanged.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let escape = (*first == b'%')
            .then(|| tail.get(..2))
            .flatten()
            .and_then(|hex| std::str::from_utf8(hex).ok())
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        bytes.push(escape.unwrap_or(*first));
        rest = if escape.is_some() { &tail[2..] } else { tail };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
