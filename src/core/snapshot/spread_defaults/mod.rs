//! Default spread constraints that kube-scheduler gives to pods without any of their own.
//!
//! A profile of kube-scheduler may list some (`PodTopologySpread`, `defaultingType: List`). Their selector is built
//! from the Services that select the pod and from the set that created it; a pod without either gets none.
//! (kube-scheduler v1.36, `plugins/podtopologyspread/common.go` and `plugins/helper/spread.go`.)

use crate::model::cluster::pod::{Labels, Pod, PodShape, Preferences, Spread};
use crate::model::names::{ObjectKey, ObjectName};
use crate::model::requirements::{Requirement, Requirements};
use crate::snapshot::{Snapshot, Table};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Name of the profile that schedules pods which name none.
pub const DEFAULT_SCHEDULER: &str = "default-scheduler";

/// Name of the only SchedulerConfiguration that AKS reads.
const UPSTREAM: &str = "upstream";

/// Labels that differ between pods of one set, and are in no selector of it.
const OF_ONE_POD: [&str; 3] =
    ["apps.kubernetes.io/pod-index", "controller-revision-hash", "statefulset.kubernetes.io/pod-name"];

/// Default spread constraints of kube-scheduler's profiles, by the name of the profile.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SchedulerProfiles {
    /// Profiles that give something.
    pub defaults: BTreeMap<Arc<str>, Vec<DefaultSpread>>,
}

/// A spread constraint for pods that have none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefaultSpread {
    /// The constraint, without a selector.
    pub spread: Spread,
    /// It must hold (`DoNotSchedule`).
    pub is_hard: bool,
}

/// Default constraints for pods without spread constraints.
#[derive(Debug)]
pub struct SpreadDefaults {
    profiles: Arc<SchedulerProfiles>,
    services: Table<ObjectKey, Labels>,
}

impl SpreadDefaults {
    /// Those of a cluster; `None` where no pod gets any.
    #[must_use]
    pub fn of(snapshot: &Snapshot) -> Option<Self> {
        let profiles = snapshot.schedulers().get(&ObjectName::new(UPSTREAM).ok()?)?;
        (!profiles.defaults.is_empty())
            .then(|| Self { profiles: Arc::clone(profiles), services: snapshot.services().clone() })
    }

    /// The pod with its default constraints; `None` where it has none.
    #[must_use]
    pub fn complete(&self, pod: &Pod) -> Option<Arc<Pod>> {
        let own = &pod.shape;
        let preferred = own.preferences.as_deref().map_or(&[][..], |preferences| preferences.spread.as_slice());
        if !own.spread.is_empty() || !preferred.is_empty() {
            return None;
        }
        let defaults = self.profiles.defaults.get(pod.scheduler.as_deref().unwrap_or(DEFAULT_SCHEDULER))?;
        let kin = self.selector_labels(pod);
        if kin.is_empty() {
            return None;
        }
        let kin = selector(&kin);
        let mut shape = PodShape::clone(own);
        for default in defaults {
            let spread = Spread { selector: kin.clone(), ..default.spread.clone() };
            if default.is_hard {
                shape.spread.push(spread);
            } else {
                shape.preferences.get_or_insert_with(Box::<Preferences>::default).spread.push(spread);
            }
        }
        Some(Arc::new(Pod { shape: Arc::new(shape), ..pod.clone() }))
    }

    /// The selector labels of a pod, by its Services and its set; empty where there are none.
    fn selector_labels(&self, pod: &Pod) -> Labels {
        let labels = &pod.shape.labels;
        let mut kin = Labels::new();
        for selector in self.services.of_namespace(&pod.key.namespace) {
            let selects = !selector.is_empty() && selector.iter().all(|(key, value)| labels.get(key) == Some(value));
            kin.extend(selector.iter().filter(|_| selects).map(|(key, value)| (Arc::clone(key), Arc::clone(value))));
        }
        if pod.of_set {
            let shared = labels.iter().filter(|(key, _)| !OF_ONE_POD.contains(&&***key));
            kin.extend(shared.map(|(key, value)| (Arc::clone(key), Arc::clone(value))));
        }
        kin
    }
}

fn selector(kin: &Labels) -> Requirements {
    let mut selector = Requirements::new();
    for (key, value) in kin {
        selector.add(key, Requirement::any_of([value]));
    }
    selector
}

#[cfg(test)]
mod tests;
