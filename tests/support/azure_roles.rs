//! What Azure checks before it performs a request, and the roles that ship for it.
//!
//! The action of a request is its method and its resource type. The resources that its body names are checked too, each
//! with the action that its type has for that.

use crate::manifests::repository;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Where a napkeeper gets which of the roles that ship.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Granted {
    /// `napkeeper audit`.
    Audit,
    /// The controller beside managed NAP.
    Companion,
    /// The controller instead of managed NAP.
    Provisioner,
    /// The same with `--experimental-machines`.
    Machines,
}

/// Scopes at which roles are assigned.
#[derive(Debug, Clone)]
pub struct Scopes {
    /// The node resource group.
    pub group: String,
    /// The managed cluster.
    pub cluster: String,
}

/// An action at a resource, or at the group or subscription of a listing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Checked {
    /// Such as `Microsoft.Compute/disks/delete`, in lower case.
    pub action: String,
    /// The scope, in lower case.
    pub scope: String,
}

/// The actions of a role that ships, in lower case.
///
/// # Errors
/// When its file cannot be read.
pub fn role(name: &str) -> Result<BTreeSet<String>> {
    let file = repository("manifests/azure/roles").join(name).with_extension("json");
    let text = std::fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
    let role: Value = serde_json::from_str(&text)?;
    let actions = role["Actions"].as_array().context("a role has actions")?;
    Ok(actions.iter().filter_map(Value::as_str).map(str::to_ascii_lowercase).collect())
}

impl Granted {
    /// Roles, and the scopes at which each is assigned.
    fn assignments(self, scopes: &Scopes) -> Vec<(&'static str, Vec<String>)> {
        let here = vec![scopes.group.clone(), scopes.cluster.clone()];
        let subscription = scopes.group.split('/').take(3).collect::<Vec<_>>().join("/");
        let beside = ("subscription", vec![subscription]);
        match self {
            Self::Audit => vec![("read-only", here)],
            Self::Companion => vec![("janitor", here), beside],
            // The resources that a body names, wherever they are.
            Self::Provisioner => vec![("provisioner", here), beside, ("node-resources", vec![String::new()])],
            Self::Machines => {
                let mut all = Self::Provisioner.assignments(scopes);
                all.push(("machines", vec![scopes.cluster.clone()]));
                all
            }
        }
    }

    /// Checks that the roles permit everything.
    ///
    /// # Errors
    /// Names what they do not permit.
    pub fn permits(self, scopes: &Scopes, checked: &BTreeSet<Checked>) -> Result<()> {
        let mut granted = Vec::new();
        for (name, at) in self.assignments(scopes) {
            granted.push((role(name)?, at.iter().map(|scope| scope.to_ascii_lowercase()).collect::<Vec<_>>()));
        }
        let is_permitted = |one: &&Checked| {
            granted.iter().any(|(actions, at)| {
                let covers = |scope: &String| one.scope == *scope || one.scope.starts_with(&format!("{scope}/"));
                actions.contains(&one.action) && at.iter().any(covers)
            })
        };
        let denied: BTreeMap<_, _> =
            checked.iter().filter(|one| !is_permitted(one)).map(|one| (&one.action, &one.scope)).collect();
        ensure!(denied.is_empty(), "the roles of {self:?} do not permit {denied:#?}");
        Ok(())
    }
}

/// What Azure checks before it performs a request; nothing for the public price list.
///
/// # Errors
/// When the path or a resource that the body names is of no known form.
pub fn checks(method: &str, path: &str, body: &[u8]) -> Result<Vec<Checked>> {
    let path = path.split('?').next().unwrap_or_default().trim_end_matches('/').to_ascii_lowercase();
    if !path.starts_with("/subscriptions/") {
        ensure!(path == "/api/retail/prices", "{method} {path} is no request to Azure Resource Manager");
        return Ok(Vec::new());
    }
    let verb = match method {
        "GET" => "read",
        "PUT" | "PATCH" => "write",
        "DELETE" => "delete",
        "POST" => "action",
        _ => anyhow::bail!("{method} {path}: no action has this method"),
    };
    let mut all = vec![checked(&path, verb)?];
    if !body.is_empty() {
        let body: Value = serde_json::from_slice(body)?;
        named(&body, &mut |id| {
            let link = linked(id)?;
            all.push(link);
            Ok(())
        })?;
    }
    Ok(all)
}

/// The action of a verb at a path.
fn checked(path: &str, verb: &str) -> Result<Checked> {
    let (scope, provider, rest) = match path.rsplit_once("/providers/") {
        Some((scope, rest)) => {
            let (provider, rest) = rest.split_once('/').context("a provider has types")?;
            (scope, provider, rest)
        }
        None => {
            let action = match path.split('/').collect::<Vec<_>>()[..] {
                ["", "subscriptions", _, "resourcegroups", _] => "microsoft.resources/subscriptions/resourcegroups",
                ["", "subscriptions", _, "resourcegroups", _, "resources"] => {
                    "microsoft.resources/subscriptions/resourcegroups/resources"
                }
                _ => anyhow::bail!("{path}: no provider is named"),
            };
            return Ok(Checked { action: format!("{action}/{verb}"), scope: path.to_owned() });
        }
    };
    let types: Vec<&str> = rest.split('/').step_by(2).collect();
    // What extends a resource, such as its tags, is checked at that resource, and a listing where it is taken.
    let is_one = rest.split('/').count() % 2 == 0;
    let extends = ["microsoft.authorization", "microsoft.resources"].contains(&provider);
    let scope = match () {
        () if extends => scope.to_owned(),
        () if is_one => path.to_owned(),
        () if types.len() > 1 => path.rsplit_once('/').map_or(path, |(above, _)| above).to_owned(),
        () => scope.to_owned(),
    };
    Ok(Checked { action: format!("{provider}/{}/{verb}", types.join("/")), scope })
}

/// Calls back with each id of a resource in a body.
fn named(body: &Value, found: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
    match body {
        Value::String(text) if text.to_ascii_lowercase().starts_with("/subscriptions/") => found(text),
        Value::Array(all) => all.iter().try_for_each(|one| named(one, found)),
        Value::Object(fields) => fields.iter().try_for_each(|(key, value)| {
            if key.starts_with("/subscriptions/") {
                found(key)?;
            }
            // Tags are text, whatever it looks like.
            if key == "tags" { Ok(()) } else { named(value, found) }
        }),
        _ => Ok(()),
    }
}

/// The action that Azure checks at a resource which another one is to use.
fn linked(id: &str) -> Result<Checked> {
    let id = id.to_ascii_lowercase();
    let types = checked(&id, "read")?.action;
    let verb = match types.trim_end_matches("/read") {
        "microsoft.network/virtualnetworks/subnets" | "microsoft.network/networkinterfaces" => "join/action",
        "microsoft.network/networksecuritygroups" | "microsoft.network/loadbalancers/backendaddresspools" => {
            "join/action"
        }
        "microsoft.managedidentity/userassignedidentities" => "assign/action",
        "microsoft.compute/capacityreservationgroups" => "deploy/action",
        "microsoft.compute/images"
        | "microsoft.compute/galleries/images/versions"
        | "microsoft.compute/diskencryptionsets" => "read",
        other => anyhow::bail!("{id}: which action does Azure check at a {other} that a body names?"),
    };
    checked(&id, verb)
}

/// What Azure checks before the requests of a log of `azure-sim`, which has no bodies.
///
/// # Errors
/// As [`checks`].
pub fn checks_of_log(log: &Value) -> Result<BTreeSet<Checked>> {
    let requests = log["requests"].as_array().context("the log has no requests")?;
    let mut all = BTreeSet::new();
    for request in requests {
        let text = |key: &str| request[key].as_str().unwrap_or_default();
        all.extend(checks(text("method"), text("path"), b"")?);
    }
    ensure!(!all.is_empty(), "no request was logged");
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: &str = "/subscriptions/s/resourcegroups/mc_g";

    fn one(method: &str, path: &str) -> (String, String) {
        let Checked { action, scope } = checks(method, path, b"").unwrap().remove(0);
        (action, scope)
    }

    #[test]
    fn a_request_needs_the_action_of_its_method_and_type() {
        let cluster = "/subscriptions/s/resourceGroups/g/providers/Microsoft.ContainerService/managedClusters/c";
        let of_cluster = cluster.to_ascii_lowercase();
        for (method, path, action, scope) in [
            ("GET", GROUP.to_owned(), "microsoft.resources/subscriptions/resourcegroups/read", GROUP),
            (
                "GET",
                format!("{GROUP}/resources?$top=1"),
                "microsoft.resources/subscriptions/resourcegroups/resources/read",
                &format!("{GROUP}/resources"),
            ),
            ("GET", format!("{GROUP}/providers/Microsoft.Compute/disks"), "microsoft.compute/disks/read", GROUP),
            (
                "DELETE",
                format!("{GROUP}/providers/Microsoft.Compute/disks/d"),
                "microsoft.compute/disks/delete",
                &format!("{GROUP}/providers/microsoft.compute/disks/d"),
            ),
            (
                "PATCH",
                format!("{GROUP}/providers/Microsoft.Compute/disks/d/providers/Microsoft.Resources/tags/default"),
                "microsoft.resources/tags/write",
                &format!("{GROUP}/providers/microsoft.compute/disks/d"),
            ),
            (
                "GET",
                "/subscriptions/s/providers/Microsoft.Compute/locations/l/usages".to_owned(),
                "microsoft.compute/locations/usages/read",
                "/subscriptions/s/providers/microsoft.compute/locations/l",
            ),
            (
                "POST",
                format!("{cluster}/agentPools/p/deleteMachines"),
                "microsoft.containerservice/managedclusters/agentpools/deletemachines/action",
                &format!("{of_cluster}/agentpools/p"),
            ),
        ] {
            assert_eq!(one(method, &path), (action.to_owned(), scope.to_owned()), "{method} {path}");
        }
        assert!(checks("GET", "/control/state", b"").is_err());
        assert_eq!(checks("GET", "/api/retail/prices?$filter=x", b"").unwrap(), []);
    }

    #[test]
    fn what_a_body_names_is_checked_too() {
        let subnet = "/subscriptions/s/resourceGroups/net/providers/Microsoft.Network/virtualNetworks/v/subnets/n";
        let group = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/networkSecurityGroups/n";
        let body = serde_json::json!({ "tags": { "a": "/subscriptions/x" }, "properties": [{ "id": subnet }, { "id": group }] });
        let nic = format!("{GROUP}/providers/Microsoft.Network/networkInterfaces/n");
        let all: Vec<_> =
            checks("PUT", &nic, body.to_string().as_bytes()).unwrap().into_iter().map(|c| c.action).collect();
        assert_eq!(
            all,
            [
                "microsoft.network/networkinterfaces/write",
                "microsoft.network/virtualnetworks/subnets/join/action",
                "microsoft.network/networksecuritygroups/join/action",
            ]
        );
        let unknown = serde_json::json!({ "id": "/subscriptions/s/resourceGroups/g/providers/Microsoft.Storage/storageAccounts/a" });
        assert!(checks("PUT", &nic, unknown.to_string().as_bytes()).is_err());
    }

    #[test]
    fn a_role_counts_at_its_scopes_and_below() {
        let scopes =
            Scopes { group: GROUP.to_owned(), cluster: "/subscriptions/s/resourcegroups/g/providers/c".to_owned() };
        let at = |scope: &str| {
            BTreeSet::from([Checked { action: "microsoft.compute/disks/delete".to_owned(), scope: scope.to_owned() }])
        };
        let disk = format!("{GROUP}/providers/microsoft.compute/disks/d");
        Granted::Companion.permits(&scopes, &at(&disk)).unwrap();
        assert!(Granted::Audit.permits(&scopes, &at(&disk)).is_err());
        assert!(
            Granted::Companion
                .permits(&scopes, &at("/subscriptions/s/resourcegroups/mc_g2/providers/disks/d"))
                .is_err()
        );
    }
}
