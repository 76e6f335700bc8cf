//! What our identity may do in the node resource group, and what denies it.
//!
//! Reads only. Every read may itself be refused, which does not end the others: the result then has that failure and
//! the rest.

use crate::arm::client::NoResponse;
use crate::arm::error::{from_response, outer_code, unreadable_response, with_correlation};
use crate::arm::pages::ListRequest;
use crate::client::Azure;
use napkeeper_core::catalog::live::Lock;
use napkeeper_core::model::errors::{CloudError, FailureCause};
use napkeeper_core::model::names::ArmId;
use serde::Deserialize;
use serde_json::Value;

/// Azure Resource Manager's code for a group that does not exist, or that this identity may not see.
const NO_GROUP: &str = "ResourceGroupNotFound";
/// The same of the subscription.
const NO_SUBSCRIPTION: &str = "SubscriptionNotFound";
/// Version of resource groups.
const GROUPS: &str = "2021-04-01";
/// Version of permissions and deny assignments.
const AUTHORIZATION: &str = "2022-04-01";
/// Version of policies.
const POLICY: &str = "2023-04-01";
/// Most pages of a listing. More means that its links form a circle.
const MAX_PAGES: usize = 100;
/// Most definitions of policies that are looked up.
const MAX_DEFINITIONS: usize = 100;

/// The actions of a role: those it allows, without those it excludes again.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Permission {
    /// Patterns of actions that are in it.
    pub actions: Vec<String>,
    /// Patterns of actions that are not in it, though `actions` has them.
    pub not_actions: Vec<String>,
}

impl Permission {
    /// True when an action is in the set.
    #[must_use]
    pub fn has(&self, action: &str) -> bool {
        let any = |patterns: &[String]| patterns.iter().any(|pattern| matches(pattern, action));
        any(&self.actions) && !any(&self.not_actions)
    }
}

/// A deny assignment, such as the one by which AKS locks a node resource group down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DenyAssignment {
    /// Its display name.
    pub name: String,
    /// What it denies.
    pub permissions: Vec<Permission>,
    /// How many principals it exempts: ours may be among them.
    pub excluded_principals: usize,
}

impl DenyAssignment {
    /// True when it denies an action.
    #[must_use]
    pub fn denies(&self, action: &str) -> bool {
        self.permissions.iter().any(|permission| permission.has(action))
    }
}

/// An Azure Policy assignment that may refuse what we write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyAssignment {
    /// Its display name.
    pub name: String,
    /// `deny`, `denyaction` (of deletes), `unknown`, or `initiative` for a set of policies that was not looked into.
    pub effect: String,
    /// Where it is assigned.
    pub scope: String,
}

/// The result. Each part is complete, or has its error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preflight {
    /// Rights in the node resource group, a set for each role.
    pub permissions: Result<Vec<Permission>, CloudError>,
    /// Deny assignments.
    pub deny_assignments: Result<Vec<DenyAssignment>, CloudError>,
    /// Locks of the group and its resources.
    pub locks: Result<Vec<Lock>, CloudError>,
    /// Policies with the effect deny, and initiatives.
    pub policies: Result<Vec<PolicyAssignment>, CloudError>,
    /// Rights at the managed cluster, whose agent pools and Machines are listed with everything else; `None` if the
    /// cluster is not an AKS cluster, so that nothing of it is listed.
    pub cluster: Option<ClusterPermissions>,
}

/// Our permissions at the managed cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterPermissions {
    /// The cluster.
    pub id: ArmId,
    /// Rights there, a set for each role.
    pub permissions: Result<Vec<Permission>, CloudError>,
}

impl ClusterPermissions {
    /// Whether an action is allowed there: `None` where the permissions could not be read.
    #[must_use]
    pub fn allows(&self, action: &str) -> Option<bool> {
        allows(&self.permissions, action)
    }
}

fn allows(permissions: &Result<Vec<Permission>, CloudError>, action: &str) -> Option<bool> {
    let permissions = permissions.as_ref().ok()?;
    Some(permissions.iter().any(|permission| permission.has(action)))
}

impl Preflight {
    /// Whether an action is allowed: `None` where the permissions could not be read.
    #[must_use]
    pub fn allows(&self, action: &str) -> Option<bool> {
        allows(&self.permissions, action)
    }

    /// The deny assignments that deny an action.
    pub fn denied_by<'a>(&'a self, action: &'a str) -> impl Iterator<Item = &'a DenyAssignment> {
        self.deny_assignments.iter().flatten().filter(move |denial| denial.denies(action))
    }
}

/// True when a pattern of Azure's covers an action. A star matches any text; case is ignored.
fn matches(pattern: &str, action: &str) -> bool {
    let (pattern, action) = (pattern.to_ascii_lowercase(), action.to_ascii_lowercase());
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = action.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    // Each part as early as possible leaves the most for those after it.
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

impl Azure {
    /// Whether the group can be reached at all: by one request without retries, so that a wrong address, a rejected
    /// token and a group that does not exist are reported at once.
    ///
    /// # Errors
    /// If there is no token or connection, or later requests cannot succeed. Any other response is fine, even
    /// a rejection.
    pub async fn reach(&self) -> Result<(), CloudError> {
        let url = self.arm.url(self.settings.group.as_str(), Some(GROUPS));
        let response = match self.arm.get_once(url).await {
            Err(NoResponse::Unreachable(error)) => return Err(error),
            Ok(Err(response)) => response,
            _ => return Ok(()),
        };
        let error = from_response(&response);
        if response.status == 401 {
            return Err(CloudError { message: format!("the token is rejected: {}", error.message).into(), ..error });
        }
        let is = |code: &str| response.status == 404 && outer_code(&response).eq_ignore_ascii_case(code);
        if is(NO_SUBSCRIPTION) {
            let message = format!("subscription '{}' was not found", self.subscription).into();
            let error = CloudError { message, cause: FailureCause::SubscriptionNotFound, ..error };
            return Err(with_correlation(error, &response));
        }
        if is(NO_GROUP) {
            let message = format!("resource group '{}' was not found", self.settings.group.name()).into();
            let error = CloudError { message, cause: FailureCause::ResourceGroupNotFound, ..error };
            return Err(with_correlation(error, &response));
        }
        Ok(())
    }

    /// Reads what our identity may do in the node resource group. Changes nothing.
    pub async fn preflight(&self) -> Preflight {
        if let Err(error) = self.reach().await {
            let (permissions, deny_assignments) = (Err(error.clone()), Err(error.clone()));
            return Preflight {
                permissions,
                deny_assignments,
                locks: Err(error.clone()),
                policies: Err(error),
                cluster: None,
            };
        }
        let cluster = match &self.settings.aks {
            Some(aks) => Some(ClusterPermissions { id: aks.id.clone(), permissions: self.permissions(&aks.id).await }),
            None => None,
        };
        Preflight {
            cluster,
            permissions: self.permissions(&self.settings.group).await,
            deny_assignments: self.deny_assignments().await,
            locks: self.group_locks().await,
            policies: self.policies().await,
        }
    }

    async fn permissions(&self, at: &ArmId) -> Result<Vec<Permission>, CloudError> {
        let list = self.authorization(at, "permissions", AUTHORIZATION).await?;
        list.into_iter().map(|value| serde_json::from_value(value).map_err(unreadable_response)).collect()
    }

    async fn deny_assignments(&self) -> Result<Vec<DenyAssignment>, CloudError> {
        let list = self.authorization(&self.settings.group, "denyAssignments", AUTHORIZATION).await?;
        let denial = |value: Value| {
            let properties = &value["properties"];
            let permissions = serde_json::from_value(properties["permissions"].clone()).map_err(unreadable_response)?;
            let excluded_principals = properties["excludePrincipals"].as_array().map_or(0, Vec::len);
            Ok(DenyAssignment { name: display_name(&value, "denyAssignmentName"), permissions, excluded_principals })
        };
        list.into_iter().map(denial).collect()
    }

    async fn policies(&self) -> Result<Vec<PolicyAssignment>, CloudError> {
        let assignments = self.authorization(&self.settings.group, "policyAssignments", POLICY).await?;
        let mut policies = Vec::new();
        for assignment in assignments.into_iter().take(MAX_DEFINITIONS) {
            let properties = &assignment["properties"];
            if properties["enforcementMode"].as_str() == Some("DoNotEnforce") {
                continue;
            }
            let effect = self.effect(properties).await;
            if matches!(effect.as_str(), "deny" | "denyaction" | "initiative" | "unknown") {
                policies.push(PolicyAssignment {
                    name: display_name(&assignment, "displayName"),
                    effect,
                    scope: text(&properties["scope"]),
                });
            }
        }
        Ok(policies)
    }

    /// The effect of an assignment, in lower case: its own parameter, else that of its definition.
    async fn effect(&self, assignment: &Value) -> String {
        if let Some(effect) = assignment["parameters"]["effect"]["value"].as_str() {
            return effect.to_ascii_lowercase();
        }
        let id = text(&assignment["policyDefinitionId"]);
        if id.to_ascii_lowercase().contains("/policysetdefinitions/") {
            return "initiative".to_owned();
        }
        match self.arm.get::<Value>(&id, Some(POLICY)).await {
            Ok(definition) => effect_of(&definition["properties"]),
            Err(_) => "unknown".to_owned(),
        }
    }

    /// All pages of a listing of the provider of authorization, at a group or a resource.
    async fn authorization(&self, at: &ArmId, collection: &str, version: &str) -> Result<Vec<Value>, CloudError> {
        let path = format!("{at}/providers/Microsoft.Authorization/{collection}");
        self.arm.list(ListRequest { path: &path, version: Some(version), parameters: &[], max_pages: MAX_PAGES }).await
    }
}

/// The effect of a definition if its assignment sets none.
fn effect_of(definition: &Value) -> String {
    let effect = definition["policyRule"]["then"]["effect"].as_str().unwrap_or_default();
    let by_default = || definition["parameters"]["effect"]["defaultValue"].as_str().unwrap_or("unknown");
    let effect = if effect.starts_with('[') { by_default() } else { effect };
    effect.to_ascii_lowercase()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The display name, else the resource name.
fn display_name(value: &Value, key: &str) -> String {
    let given = value["properties"][key].as_str().filter(|name| !name.is_empty());
    given.map_or_else(|| text(&value["name"]), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn patterns_are_matched_as_azure_matches_them() {
        let action = "Microsoft.Network/networkInterfaces/delete";
        for (pattern, expected) in [
            ("*", true),
            ("*/delete", true),
            ("Microsoft.Network/*", true),
            ("microsoft.network/NETWORKINTERFACES/delete", true),
            ("Microsoft.Network/*/delete", true),
            ("Microsoft.Network/networkInterfaces/delete*", true),
            ("*/read", false),
            ("Microsoft.Network/networkInterfaces", false),
            ("Microsoft.Net*work/*/delete/*", false),
            ("", false),
        ] {
            assert_eq!(matches(pattern, action), expected, "{pattern}");
        }
        assert!(matches("", "") && !matches("a*a", "a"), "two parts do not share a letter");
    }

    /// A reference implementation: tries every length of each star.
    fn by_definition(pattern: &[u8], text: &[u8]) -> bool {
        match pattern {
            [] => text.is_empty(),
            [b'*', rest @ ..] => (0..=text.len()).any(|n| by_definition(rest, &text[n..])),
            [c, rest @ ..] => text.split_first().is_some_and(|(t, tail)| t == c && by_definition(rest, tail)),
        }
    }

    proptest! {
        #[test]
        fn patterns_match_as_documented(pattern in "[ab*]{0,8}", text in "[ab]{0,10}") {
            prop_assert_eq!(matches(&pattern, &text), by_definition(pattern.as_bytes(), text.as_bytes()));
            prop_assert_eq!(matches(&pattern.to_uppercase(), &text), matches(&pattern, &text));
        }

        #[test]
        fn not_actions_are_excluded(given in "[ab*]{0,6}", taken in "[ab*]{0,6}", text in "[ab]{0,8}") {
            let permission = Permission { actions: vec![given.clone()], not_actions: vec![taken.clone()] };
            prop_assert_eq!(permission.has(&text), matches(&given, &text) && !matches(&taken, &text));
        }
    }

    #[test]
    fn permissions_of_several_roles_add_up() {
        let permission = |actions: &[&str], not: &[&str]| Permission {
            actions: actions.iter().map(|a| (*a).to_owned()).collect(),
            not_actions: not.iter().map(|a| (*a).to_owned()).collect(),
        };
        let preflight = Preflight {
            permissions: Ok(vec![permission(&["*"], &["*/delete"]), permission(&["Microsoft.Compute/disks/*"], &[])]),
            deny_assignments: Ok(vec![DenyAssignment {
                name: "lockdown".to_owned(),
                permissions: vec![permission(&["*/delete"], &["Microsoft.Network/*"])],
                excluded_principals: 1,
            }]),
            locks: Ok(Vec::new()),
            policies: Ok(Vec::new()),
            cluster: None,
        };
        assert_eq!(preflight.allows("Microsoft.Compute/disks/delete"), Some(true));
        assert_eq!(preflight.allows("Microsoft.Network/networkInterfaces/delete"), Some(false));
        assert_eq!(preflight.denied_by("Microsoft.Compute/disks/delete").count(), 1);
        assert_eq!(preflight.denied_by("Microsoft.Network/networkInterfaces/delete").count(), 0);
    }

    #[test]
    fn a_policy_has_the_effect_that_it_names_or_defaults_to() {
        let definition = |effect: &str, default: Value| json!({ "policyRule": { "then": { "effect": effect } }, "parameters": { "effect": { "defaultValue": default } } });
        assert_eq!(effect_of(&definition("Deny", Value::Null)), "deny");
        assert_eq!(effect_of(&definition("[parameters('effect')]", json!("Audit"))), "audit");
        assert_eq!(effect_of(&definition("[parameters('effect')]", Value::Null)), "unknown");
    }
}
