//! Conversion of SchedulerConfigurations and Services, for the default spread constraints of kube-scheduler.

use crate::convert::common;
use crate::convert::pods::spread;
use crate::convert::violations::Violations;
use crate::field_path::Path;
use crate::types::scheduler_configuration::SchedulerConfiguration;
use crate::yaml;
use k8s_openapi::api::core::v1::{Service, TopologySpreadConstraint};
use napkeeper_core::model::cluster::pod::{Labels, Spread};
use napkeeper_core::model::names::{ObjectKey, ObjectName};
use napkeeper_core::model::requirements::Requirements;
use napkeeper_core::snapshot::spread_defaults::{DEFAULT_SCHEDULER, DefaultSpread, SchedulerProfiles};
use serde::Deserialize;
use serde_json::Value;
use std::sync::Arc;

/// The plugin that spreads pods.
const PLUGIN: &str = "PodTopologySpread";

/// The used fields of a KubeSchedulerConfiguration.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Configuration {
    #[serde(default)]
    profiles: Vec<Profile>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Profile {
    scheduler_name: Option<String>,
    #[serde(default)]
    plugins: Plugins,
    #[serde(default)]
    plugin_config: Vec<PluginConfig>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Plugins {
    multi_point: PluginSet,
    filter: PluginSet,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct PluginSet {
    disabled: Vec<Plugin>,
}

#[derive(Deserialize)]
struct Plugin {
    name: String,
}

#[derive(Deserialize)]
struct PluginConfig {
    name: String,
    #[serde(default)]
    args: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SpreadArgs {
    #[serde(default)]
    defaulting_type: String,
    #[serde(default)]
    default_constraints: Vec<TopologySpreadConstraint>,
}

/// Reads a SchedulerConfiguration, of which only default spread constraints matter. kube-scheduler's own defaults
/// (`defaultingType: System`) only affect scores, which are not simulated.
///
/// # Errors
/// [`Violations`]: all of them.
pub fn scheduler_profiles(object: &SchedulerConfiguration) -> Result<(ObjectName, SchedulerProfiles), Violations> {
    let mut found = Violations::default();
    let name = common::name(&object.metadata, &mut found, |n| ObjectName::new(n));
    let mut profiles = SchedulerProfiles::default();
    let at = Path::from_dotted("spec.rawConfig");
    for profile in configuration(&object.spec.raw_config, &at, &mut found).into_iter().flat_map(|c| c.profiles) {
        let defaults = defaults(&profile, &at, &mut found);
        if !defaults.is_empty() {
            let name = profile.scheduler_name.as_deref().unwrap_or(DEFAULT_SCHEDULER);
            profiles.defaults.insert(Arc::from(name), defaults);
        }
    }
    found.finish(name.map(|name| (name, profiles)))
}

fn configuration(text: &str, at: &Path, found: &mut Violations) -> Option<Configuration> {
    let read = yaml::read("rawConfig", text);
    if let Some(problem) = read.problems.first() {
        found.add(at, format!("line {}: {}", problem.position, problem.message));
        return None;
    }
    let value = read.documents.into_iter().next()?.value;
    found.take(
        at,
        serde_json::from_value(value).map_err(|error| format!("is not a KubeSchedulerConfiguration: {error}")),
    )
}

fn defaults(profile: &Profile, at: &Path, found: &mut Violations) -> Vec<DefaultSpread> {
    let off = profile.plugins.multi_point.disabled.iter().chain(&profile.plugins.filter.disabled);
    let mut of_plugin = profile.plugin_config.iter().filter(|config| config.name == PLUGIN);
    let args = of_plugin.next().filter(|_| !off.into_iter().any(|plugin| plugin.name == PLUGIN || plugin.name == "*"));
    let Some(args) = args.map(|config| config.args.clone()).filter(|args| !args.is_null()) else { return Vec::new() };
    let at = at.key("args");
    let args = serde_json::from_value(args).map_err(|error| format!("are not PodTopologySpreadArgs: {error}"));
    let Some(args) = found.take::<SpreadArgs, _>(&at, args) else { return Vec::new() };
    if args.defaulting_type != "List" {
        return Vec::new();
    }
    let at = at.key("defaultConstraints");
    let all = args.default_constraints.iter().enumerate();
    all.filter_map(|(i, wire)| default(wire, &at.index(i), found)).collect()
}

fn default(wire: &TopologySpreadConstraint, at: &Path, found: &mut Violations) -> Option<DefaultSpread> {
    // kube-scheduler replaces any selector by that of the pod's owner.
    let bare = TopologySpreadConstraint { match_label_keys: None, label_selector: None, ..wire.clone() };
    let (is_hard, spread) = spread::read_constraint(&bare, &Labels::new(), at, found)?;
    let spread = Spread { selector: Requirements::new(), ..spread };
    Some(DefaultSpread { spread, is_hard })
}

/// Reads a Service, of which only the selector matters.
///
/// # Errors
/// [`Violations`]: all of them.
pub fn service(object: &Service) -> Result<(ObjectKey, Labels), Violations> {
    let mut found = Violations::default();
    let key = common::key(&object.metadata, &mut found);
    let selector = object.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    found.finish(key.map(|key| (key, common::labels(selector))))
}

#[cfg(test)]
mod tests;
