//! The lifetime of nodes, and the time that they have to drain.

use crate::finding::Issue;
use crate::rules::disruption as rules;
use crate::semantic::disruption::given;
use jiff::SignedDuration;
use napkeeper_api::field_path::Path;
use napkeeper_api::types::duration;
use napkeeper_core::model::cluster::pool::NodePool;
use serde_json::Value;

/// Below this nothing useful runs: a VM takes minutes to become a node.
const MIN_LIFETIME: SignedDuration = SignedDuration::from_mins(5);
/// `terminationGracePeriodSeconds` of a pod that does not set it.
const DEFAULT_POD_GRACE: SignedDuration = SignedDuration::from_secs(30);

pub(super) fn check(pool: &NodePool, value: &Value, found: &mut Vec<Issue>) {
    let spec = Path::from_dotted("spec.template.spec");
    let (life, grace) = (pool.expire_after, pool.termination_grace_period);
    if let Some(life) = life {
        let shown = duration::format(life);
        if life < MIN_LIFETIME {
            let message = format!(
                "a node is deleted {shown} after its creation, which is before or shortly after it becomes ready"
            );
            let fix = "use days, for example 720h, or Never".to_owned();
            found.push(Issue::new(&rules::SHORT_LIFE, &spec.key("expireAfter"), message).fix(fix));
        } else if grace.is_none() && given(value, "spec.template.spec.expireAfter").is_some() {
            let message = format!(
                "after {shown} a node is drained, and without terminationGracePeriod the drain has no time limit: a \
                 PodDisruptionBudget without room, or a pod with karpenter.sh/do-not-disrupt, keeps the node indefinitely"
            );
            let fix = "add terminationGracePeriod, the time limit of a drain, for example 24h".to_owned();
            found.push(Issue::new(&rules::NO_GRACE, &spec.key("expireAfter"), message).fix(fix));
        }
    }
    let Some(grace) = grace else { return };
    let (path, shown) = (spec.key("terminationGracePeriod"), duration::format(grace));
    if grace <= DEFAULT_POD_GRACE {
        let message = format!(
            "a drain of {shown} is too short for pods with the default termination grace period of 30s: they are deleted \
             at once, despite any PodDisruptionBudget and do-not-disrupt"
        );
        let fix = "set the time limit of a drain, for example 1h".to_owned();
        found.push(Issue::new(&rules::SHORT_GRACE, &path, message).fix(fix));
    } else if let Some(life) = life.filter(|life| grace > *life && *life >= MIN_LIFETIME) {
        let message = format!("a node may take longer to drain ({shown}) than it lives ({})", duration::format(life));
        let fix = "use a shorter terminationGracePeriod: the maximum age of a node is the sum of both".to_owned();
        found.push(Issue::new(&rules::LONG_GRACE, &path, message).fix(fix));
    }
}
