//! A NodeClaim to be: the instance types that are left after each pod that was added.

use super::constraints::PodNeeds;
use super::groups::NodeDomain;
use super::topology::Topology;
use crate::karpenter::offerings::{OfferingFilter, PoolOptions, TypeOption, Unavailable, is_open};
use napkeeper_core::catalog::InstanceType;
use napkeeper_core::model::amounts::resources::Resources;
use napkeeper_core::model::cluster::pod::{HostPort, Pod};
use napkeeper_core::model::labels;
use napkeeper_core::model::requirements::{Requirement, Requirements};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A NodeClaim while pods are added to it.
#[derive(Debug, Clone)]
pub(super) struct NewClaim {
    pub(super) options: Arc<PoolOptions>,
    pub(super) requirements: Requirements,
    /// Indexes of the types that are left.
    pub(super) types: Vec<usize>,
    pub(super) requests: Resources,
    ports: Vec<HostPort>,
    pub(super) pods: Vec<Arc<Pod>>,
}

/// The state of a NodeClaim if a pod were added.
#[derive(Debug)]
pub(super) struct Narrowed {
    requirements: Option<Requirements>,
    types: Vec<usize>,
    requests: Resources,
}

impl NewClaim {
    /// One without pods, of these types, which must satisfy the pool's template and be available.
    pub(super) fn new(options: &Arc<PoolOptions>, types: Vec<usize>, number: usize) -> Self {
        let mut requirements = options.template.clone();
        requirements.add(labels::HOSTNAME, Requirement::any_of([format!("new-node-{number:04}")]));
        let requests = Resources::default();
        Self { options: Arc::clone(options), requirements, types, requests, ports: Vec::new(), pods: Vec::new() }
    }

    /// What it would be with one more pod; `None` when it cannot take it.
    pub(super) fn with(
        &self,
        needs: &PodNeeds,
        volumes: &[Requirements],
        topology: &Topology<'_>,
        unavailable: &Unavailable,
    ) -> Option<Narrowed> {
        let options = &self.options;
        if !needs.tolerates(&options.pool.taints) || !HostPort::all_free(&needs.shape.ports, &self.ports) {
            return None;
        }
        let requests = self.requests.plus(&needs.shape.requests);
        if needs.requirements.is_empty()
            && volumes.is_empty()
            && needs.groups.is_empty()
            && !topology.repels(&needs.shape)
        {
            let types = self.narrow(needs, &requests, |_| true)?;
            return self.has_min_values(&self.requirements, &types).then_some(Narrowed {
                requirements: None,
                types,
                requests,
            });
        }
        if !self.requirements.is_compatible(&needs.requirements, is_open) {
            return None;
        }
        let base = self.requirements.intersect(&needs.requirements);
        let anywhere = [Requirements::ALL];
        let alternatives = if volumes.is_empty() { &anywhere[..] } else { volumes };
        alternatives.iter().find_map(|volume| {
            if !base.is_compatible(volume, is_open) {
                return None;
            }
            let requirements = in_domains(base.intersect(volume), needs, topology)?;
            let changed: Vec<_> =
                requirements.iter().filter(|(key, wanted)| self.requirements.get(key) != Some(*wanted)).collect();
            let filter = OfferingFilter::of(&requirements);
            let compatible = |option: &TypeOption| {
                let of_type = &option.instance.requirements;
                changed.iter().all(|(key, wanted)| of_type.get(key).is_none_or(|own| own.intersects(wanted)))
                    && unavailable.offerings(&option.instance, &filter).next().is_some()
            };
            let types = self.narrow(needs, &requests, compatible)?;
            let enough = self.has_min_values(&requirements, &types);
            enough.then(|| Narrowed { requirements: Some(requirements), types, requests: requests.clone() })
        })
    }

    fn narrow(
        &self,
        needs: &PodNeeds,
        requests: &Resources,
        compatible: impl Fn(&TypeOption) -> bool,
    ) -> Option<Vec<usize>> {
        let ports = &needs.shape.ports;
        let fits = |index: &&usize| {
            let option = &self.options.types[**index];
            requests.fits(&option.room) && HostPort::all_free(ports, &option.daemon_ports) && compatible(option)
        };
        let left: Vec<usize> = self.types.iter().filter(fits).copied().collect();
        (!left.is_empty()).then_some(left)
    }

    fn has_min_values(&self, requirements: &Requirements, types: &[usize]) -> bool {
        let instances = types.iter().map(|index| &*self.options.types[*index].instance);
        has_min_values(requirements, instances)
    }

    /// Adds the pod.
    pub(super) fn add(&mut self, pod: &Arc<Pod>, needs: &PodNeeds, narrowed: Narrowed, topology: &mut Topology<'_>) {
        if let Some(requirements) = narrowed.requirements {
            self.requirements = requirements;
        }
        self.types = narrowed.types;
        self.requests = narrowed.requests;
        self.ports.extend(pod.shape.ports.iter().cloned());
        self.pods.push(Arc::clone(pod));
        if let Some(host) = self.requirements.get(labels::HOSTNAME).and_then(|host| host.single()) {
            topology.open_host(host);
        }
        let taints = &self.options.pool.taints;
        topology.record_new(&needs.shape, &needs.repelling, &self.requirements, taints);
    }
}

/// The requirements in the domains that topology allows; `None` when there are none.
fn in_domains(requirements: Requirements, needs: &PodNeeds, topology: &Topology<'_>) -> Option<Requirements> {
    let chosen = topology.choose(&needs.shape, &needs.groups, &needs.strict, NodeDomain::New(&requirements))?;
    let mut both = requirements.clone();
    for (key, domains) in chosen {
        let wanted = Requirement::any_of(domains);
        if requirements.get(&key).is_some_and(|own| !own.intersects(&wanted)) {
            return None;
        }
        both.add(&key, wanted);
    }
    both.first_empty().is_none().then_some(both)
}

/// True when these types still have as many values of each label as `minValues` demands.
pub(in crate::karpenter) fn has_min_values<'t>(
    requirements: &Requirements,
    instances: impl Iterator<Item = &'t InstanceType> + Clone,
) -> bool {
    requirements.iter().filter_map(|(key, wanted)| Some((key, wanted, wanted.min_values()?))).all(
        |(key, wanted, least)| {
            let values = instances.clone().filter_map(|instance| instance.requirements.get(key)?.values());
            let distinct: BTreeSet<&Arc<str>> = values.flatten().filter(|value| wanted.allows(Some(value))).collect();
            distinct.len() >= least as usize
        },
    )
}
