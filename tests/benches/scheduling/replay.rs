//! Checks a plan: kube-scheduler's filters must allow each pod on its planned node, one after the other.
//!
//! It uses only the rows of pods and its own counts; all nodes of the plan exist from the beginning.

use crate::market::{OfferingIndex, State, ZONES, room};
use crate::plan::{Goes, Plan};
use crate::workload::{Class, LABELS, Work};
use napkeeper_core::model::amounts::resources::Resources;
use std::fmt;

/// The number of placements that violate each constraint.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Errors {
    /// Pods that are unplaced, or placed twice.
    pub(crate) unplaced: usize,
    resources: usize,
    zone_spread: usize,
    host_spread: usize,
    affinity: usize,
    anti_affinity: usize,
}

impl Errors {
    pub(crate) fn sum(&self) -> usize {
        self.unplaced + self.resources + self.zone_spread + self.host_spread + self.affinity + self.anti_affinity
    }
}

impl fmt::Display for Errors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "unplaced {}, resources {}, zone spread {}, host spread {}, affinity {}, anti-affinity {}",
            self.unplaced, self.resources, self.zone_spread, self.host_spread, self.affinity, self.anti_affinity
        )
    }
}

/// A node as it fills.
struct Host {
    zone: usize,
    free: Resources,
    pods: [i64; LABELS],
}

impl Host {
    fn new(offering: OfferingIndex) -> Self {
        Self { zone: offering.zone(), free: room(offering.size), pods: [0; LABELS] }
    }
}

struct Replay<'a> {
    work: &'a Work,
    hosts: Vec<Host>,
    zones: [[i64; LABELS]; ZONES.len()],
    /// Zones with a node.
    occupied: [bool; ZONES.len()],
    errors: Errors,
}

/// Replays a plan over running pods.
pub(crate) fn check(plan: &Plan, work: &Work, state: &State) -> Errors {
    let offerings = state.nodes.iter().map(|n| n.offering).chain(plan.offerings.iter().copied());
    let hosts: Vec<Host> = offerings.map(Host::new).collect();
    let mut occupied = [false; ZONES.len()];
    hosts.iter().for_each(|h| occupied[h.zone] = true);
    let zones = [[0; LABELS]; ZONES.len()];
    let mut replay = Replay { work, hosts, zones, occupied, errors: Errors::default() };
    for (pod, on) in state.on.iter().enumerate() {
        if let Some(node) = on {
            replay.put(pod, *node);
        }
    }
    let mut placed: Vec<bool> = state.on.iter().map(Option::is_some).collect();
    for (pod, goes) in &plan.goes {
        let host = match goes {
            Goes::Standing(node) => *node,
            Goes::New(index) => state.nodes.len() + index,
        };
        if placed[*pod] {
            replay.errors.unplaced += 1;
            continue;
        }
        placed[*pod] = true;
        replay.judge(*pod, host);
        replay.put(*pod, host);
    }
    replay.errors.unplaced += placed.iter().filter(|p| !**p).count();
    replay.errors
}

impl Replay<'_> {
    fn put(&mut self, pod: usize, host: usize) {
        let row = &self.work.rows[pod];
        let host = &mut self.hosts[host];
        host.free.sub(&Resources { pods: 1, ..Resources::cpu_memory(row.cpu, row.memory) });
        host.pods[row.label] += 1;
        self.zones[host.zone][row.label] += 1;
    }

    fn judge(&mut self, pod: usize, at: usize) {
        let row = &self.work.rows[pod];
        let host = &self.hosts[at];
        let requests = Resources { pods: 1, ..Resources::cpu_memory(row.cpu, row.memory) };
        self.errors.resources += usize::from(!requests.fits(&host.free));
        let own = |label: usize| i64::from(label == row.label);
        match row.class {
            Class::Generic => {}
            Class::SpreadZone(label) => {
                let zones = self.zones.iter().zip(self.occupied).filter(|(_, occupied)| *occupied);
                let lowest = zones.map(|(zone, _)| zone[label]).min().unwrap_or(0);
                let skew = self.zones[host.zone][label] + own(label) - lowest;
                self.errors.zone_spread += usize::from(skew > 1);
            }
            Class::SpreadHostname(label) => {
                let lowest = self.hosts.iter().map(|h| h.pods[label]).min().unwrap_or(0);
                let skew = host.pods[label] + own(label) - lowest;
                self.errors.host_spread += usize::from(skew > 1);
            }
            Class::AffinityZone => {
                let first = self.zones.iter().all(|zone| zone[row.label] == 0);
                self.errors.affinity += usize::from(!first && self.zones[host.zone][row.label] == 0);
            }
            Class::AntiHostname => self.errors.anti_affinity += usize::from(host.pods[row.label] > 0),
        }
    }
}
