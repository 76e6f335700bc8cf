//! The spread constraints that a profile gives pods that have none.

use super::pod_class::PodClass;
use super::rules::HOSTNAME;
use super::selector::Selector;
use super::volumes::ZONE;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{Pod, Service, TopologySpreadConstraint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use std::collections::BTreeMap;

/// The constraints of profiles that set none (`defaultingType: System`).
fn built_in() -> Vec<TopologySpreadConstraint> {
    let preferred = |key: &str, max_skew| TopologySpreadConstraint {
        topology_key: key.to_owned(),
        max_skew,
        when_unsatisfiable: "ScheduleAnyway".to_owned(),
        ..TopologySpreadConstraint::default()
    };
    vec![preferred(HOSTNAME, 3), preferred(ZONE, 5)]
}

/// Profiles, and what tells a pod's kin.
#[derive(Debug, Clone, Default)]
pub(super) struct Defaults {
    profiles: BTreeMap<String, Vec<TopologySpreadConstraint>>,
    services: Vec<Service>,
    sets: Vec<ReplicaSet>,
}

impl Defaults {
    pub(super) fn add_profile(&mut self, name: &str, constraints: Vec<TopologySpreadConstraint>) {
        self.profiles.insert(name.to_owned(), constraints);
    }

    pub(super) fn add_service(&mut self, service: &Service) {
        self.services.push(service.clone());
    }

    pub(super) fn add_set(&mut self, set: &ReplicaSet) {
        self.sets.push(set.clone());
    }

    /// The class of a pod with the constraints that its profile gives it.
    pub(super) fn class_of(&self, pod: &Pod) -> PodClass {
        let spec = pod.spec.as_ref();
        let own = spec.and_then(|spec| spec.topology_spread_constraints.as_ref());
        let kin = if own.is_none_or(Vec::is_empty) { self.kin(pod) } else { None };
        let Some(kin) = kin else { return PodClass::read(pod) };
        let profile = spec.and_then(|spec| spec.scheduler_name.as_ref()).and_then(|name| self.profiles.get(name));
        let built_in = built_in();
        let constraints = profile.unwrap_or(&built_in).iter();
        let given = constraints.map(|constraint| {
            let label_selector = Some(kin.clone());
            TopologySpreadConstraint { label_selector, ..constraint.clone() }
        });
        let mut completed = pod.clone();
        completed.spec.get_or_insert_default().topology_spread_constraints = Some(given.collect());
        PodClass { spreads_without_labels: profile.is_none(), ..PodClass::read(&completed) }
    }

    /// The selector of the pod's Service or controller, if any.
    fn kin(&self, pod: &Pod) -> Option<LabelSelector> {
        let labels = pod.metadata.labels.clone().unwrap_or_default();
        let mut kin = BTreeMap::new();
        for service in self.services.iter().filter(|s| s.metadata.namespace == pod.metadata.namespace) {
            let selector = service.spec.as_ref().and_then(|spec| spec.selector.clone()).unwrap_or_default();
            let all = LabelSelector { match_labels: Some(selector.clone()), match_expressions: None };
            if !selector.is_empty() && Selector::read(Some(&all)).matches(&labels) {
                kin.extend(selector);
            }
        }
        let mut owners = pod.metadata.owner_references.iter().flatten();
        let owner = owners.find(|owner| owner.controller == Some(true) && owner.kind == "ReplicaSet");
        let set = owner.and_then(|owner| {
            let same = |set: &&ReplicaSet| set.metadata.name.as_ref() == Some(&owner.name);
            self.sets.iter().filter(|set| set.metadata.namespace == pod.metadata.namespace).find(same)
        });
        kin.extend(set.and_then(|set| set.spec.as_ref()?.selector.match_labels.clone()).unwrap_or_default());
        (!kin.is_empty()).then_some(LabelSelector { match_labels: Some(kin), match_expressions: None })
    }
}
