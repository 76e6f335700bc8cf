//! The check right before every effect: whether it may be performed now.
//!
//! Reads always may. A write needs enough of the Lease left for the request to arrive, and no pause switch that blocks
//! it; for a delete, or a mark for one, the pause switch is read from the API server right before. A sweep writes nothing
//! in Azure while an OrphanSweep cannot be read. Nothing is launched while [`LaunchHold`] forbids it, or once Karpenter's
//! CRDs are another Karpenter's.

use crate::preconditions::clock_skew::ClockSkew;
use crate::preconditions::crd_owner::CrdOwner;
use crate::preconditions::lease::LeaseHandle;
use crate::preconditions::pause::read_pause;
use jiff::Timestamp;
use kube::Client;
use napkeeper_core::model::cluster::launch_hold::LaunchHold;
use napkeeper_core::model::errors::EffectError;
use napkeeper_core::model::orphans::sweep::UnreadableSweeps;
use napkeeper_core::model::settings::{DisruptionScope, Pause, PauseSwitch};
use napkeeper_core::plan::{Effect, is_paused, is_sweep_write};
use napkeeper_core::snapshot::CommandKey;
use std::fmt;
use tokio::sync::watch;

/// What holds writes back, as last watched.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WriteHolds {
    /// The pause switch.
    pub pause: Pause,
    /// OrphanSweeps that cannot be read.
    pub unreadable_sweeps: UnreadableSweeps,
    /// Why nothing may be launched.
    pub launch_hold: Option<LaunchHold>,
}

/// Allows or blocks effects. Cheap to clone.
#[derive(Clone)]
pub struct WriteCheck {
    lease: LeaseHandle,
    skew: ClockSkew,
    holds: watch::Receiver<WriteHolds>,
    crd_owner: CrdOwner,
    client: Client,
    namespace: String,
}

impl fmt::Debug for WriteCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteCheck").field("lease", &self.lease).field("holds", &self.holds).finish_non_exhaustive()
    }
}

impl WriteCheck {
    /// A check of the Lease and of what holds writes back; the pause switch of this namespace is read again for
    /// deletions.
    #[must_use]
    pub fn new(lease: LeaseHandle, holds: watch::Receiver<WriteHolds>, client: Client, namespace: &str) -> Self {
        let crd_owner = CrdOwner::new(client.clone());
        let skew = ClockSkew::default();
        Self { lease, skew, holds, crd_owner, client, namespace: namespace.to_owned() }
    }

    /// The same check, which also compares clocks.
    #[must_use]
    pub fn with_clock_skew(self, skew: ClockSkew) -> Self {
        Self { skew, ..self }
    }

    /// Whether an effect of the command with this key may be performed now. `disrupted` is whose disruption it is, if it is one.
    /// To be called directly before.
    ///
    /// # Errors
    /// [`EffectError::Blocked`] with the reason.
    pub async fn check(
        &self,
        key: &CommandKey,
        effect: &Effect,
        disrupted: &DisruptionScope,
        now: Timestamp,
    ) -> Result<(), EffectError> {
        if !effect.is_write() {
            return Ok(());
        }
        let check_pause = |pause: &Pause| match is_paused(effect, disrupted, pause, now) {
            true => Err(EffectError::Blocked("the pause switch is set")),
            false => Ok(()),
        };
        check_pause(&self.holds.borrow().pause)?;
        if effect.pause_switch() == Some(PauseSwitch::Delete) {
            let unreadable = EffectError::Blocked("the pause switch cannot be read");
            check_pause(&read_pause(&self.client, &self.namespace).await.map_err(|_| unreadable)?)?;
        }
        if effect.is_launch() {
            self.check_launch().await?;
        }
        if is_sweep_write(key, effect) && !self.holds.borrow().unreadable_sweeps.is_empty() {
            return Err(EffectError::Blocked("an OrphanSweep cannot be read"));
        }
        // After all reads, for each says what time it is, and takes time.
        if effect.pause_switch().is_some() && !self.skew.is_tolerable() {
            return Err(EffectError::Blocked("the clock differs too much from the API server's"));
        }
        if self.lease.allows_writes() {
            Ok(())
        } else {
            Err(EffectError::Blocked("the lease is lost or about to expire"))
        }
    }
}

impl WriteCheck {
    /// Whether anything may be launched in this cluster, and that no other Karpenter has installed its CRDs.
    async fn check_launch(&self) -> Result<(), EffectError> {
        if self.holds.borrow().launch_hold.is_some() {
            return Err(EffectError::Blocked("nothing may be launched in this cluster now"));
        }
        match self.crd_owner.recent_foreign_definitions().await {
            Ok(None) => Ok(()),
            Ok(Some(_)) => Err(EffectError::Blocked("the CRDs of Karpenter are not napkeeper's any more")),
            Err(_) => Err(EffectError::Blocked("the CRDs of Karpenter cannot be read")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{Fake, Fault};
    use kube::client::Body;
    use napkeeper_core::model::azure::cloud::ResourceKind;
    use napkeeper_core::model::cluster::claim::ClaimRef;
    use napkeeper_core::model::cluster::pool::DisruptionReason;
    use napkeeper_core::model::names::{
        ArmId, ClaimName, Namespace, NodePoolName, ObjectKey, ObjectName, ProviderId, Uid,
    };
    use napkeeper_core::plan::{CloudRequest, ClusterRead, ClusterWrite};
    use serde_json::{Value, json};
    use std::sync::Arc;
    use std::time::Duration;

    const CONFIG_MAPS: &str = "/api/v1/namespaces/napkeeper/configmaps";
    const FRESH: Option<Duration> = Some(Duration::ZERO);

    fn vm() -> ArmId {
        ArmId::new("/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/v").unwrap()
    }

    fn launch() -> Effect {
        Effect::Cloud(CloudRequest::PutBillingExtension(vm()))
    }

    fn disrupt() -> Effect {
        let pod = ObjectKey { namespace: Namespace::new("shop").unwrap(), name: ObjectName::new("web-0").unwrap() };
        Effect::Cluster(ClusterWrite::Evict(pod, Uid::new("p").unwrap()))
    }

    fn delete() -> Effect {
        Effect::Cloud(CloudRequest::Delete(vm(), ResourceKind::Vm))
    }

    /// A write that no switch pauses.
    fn finalize() -> Effect {
        let claim = ClaimRef { name: ClaimName::new("a").unwrap(), uid: Uid::new("u").unwrap() };
        Effect::Cluster(ClusterWrite::RemoveFinalizer(claim))
    }

    fn read() -> Effect {
        let vm = format!("azure://{}", vm());
        Effect::Read(ClusterRead::Node(ProviderId::parse(&vm).unwrap()))
    }

    fn switch(data: Value) -> Value {
        json!({ "metadata": { "name": "napkeeper-pause", "namespace": "napkeeper" }, "data": data })
    }

    /// The check of a replica with this time since its Lease renewal, which has seen these switches.
    fn check_of(client: Client, renewed: Option<Duration>, seen: &[PauseSwitch]) -> WriteCheck {
        let seen = WriteHolds { pause: Pause::of(seen.iter().copied()), ..WriteHolds::default() };
        WriteCheck::new(LeaseHandle::renewed_before(renewed), watch::channel(seen).1, client, "napkeeper")
    }

    /// Of a NodeClaim's command.
    fn of_claim() -> CommandKey {
        CommandKey::Claim(ClaimName::new("a").unwrap())
    }

    #[tokio::test]
    async fn a_wrong_clock_blocks_what_cannot_be_undone() {
        let skew = ClockSkew::default();
        let check = check_of(Fake::serving(&[CONFIG_MAPS]).client(), FRESH, &[]).with_clock_skew(skew.clone());
        let pod = ObjectKey { namespace: Namespace::new("a").unwrap(), name: ObjectName::new("b").unwrap() };
        let evict = Effect::Cluster(ClusterWrite::Evict(pod, Uid::new("u").unwrap()));
        let claim = ClaimRef { name: ClaimName::new("c").unwrap(), uid: Uid::new("u").unwrap() };
        let delete = Effect::Cluster(ClusterWrite::DeleteClaim(claim.clone()));
        let release = Effect::Cluster(ClusterWrite::RemoveFinalizer(claim));
        for (date, is_allowed) in [("Mon, 01 Jan 2024 00:00:00 GMT", false), ("Mon, 01 Jan 2024 00:09:00 GMT", true)] {
            let date = [(http::header::DATE, http::HeaderValue::from_static(date))].into_iter().collect();
            skew.observe(&date, "2024-01-01T00:10:00Z".parse().unwrap());
            for effect in [&launch(), &evict, &delete] {
                assert_eq!(checked(&check, &of_claim(), effect).await.is_ok(), is_allowed, "{effect:?}");
            }
            assert_eq!(checked(&check, &of_claim(), &release).await, Ok(()), "nothing is lost by it");
        }
    }

    #[tokio::test]
    async fn the_answer_to_the_last_read_before_a_delete_shows_a_wrong_clock() {
        let skew = ClockSkew::default();
        let learns = skew.clone();
        let server = tower::service_fn(move |_: http::Request<Body>| {
            let date = [(http::header::DATE, http::HeaderValue::from_static("Mon, 01 Jan 2024 00:00:00 GMT"))];
            learns.observe(&date.into_iter().collect(), "2024-02-01T00:00:00Z".parse().unwrap());
            let body = crate::fake::refusal(404, json!({ "name": "napkeeper-pause" })).to_string();
            let answer = http::Response::builder().status(404).body(Body::from(body.into_bytes()));
            std::future::ready(answer.map_err(Box::<dyn std::error::Error + Send + Sync>::from))
        });
        let check = check_of(Client::new(server, "default"), FRESH, &[]).with_clock_skew(skew);
        let blocked = Err(EffectError::Blocked("the clock differs too much from the API server's"));
        assert_eq!(checked(&check, &of_claim(), &delete()).await, blocked);
    }

    /// Of which nothing but the pause switches without a scope is asked.
    async fn checked(check: &WriteCheck, key: &CommandKey, effect: &Effect) -> Result<(), EffectError> {
        check.check(key, effect, &DisruptionScope::default(), Timestamp::UNIX_EPOCH).await
    }

    #[tokio::test]
    async fn a_pause_of_a_node_pool_or_a_reason_holds_its_own_disruptions_until_its_end() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let keys = [
            ("disrupt.nodepool.general", "until 2026-08-03T12:00:00Z"),
            ("disrupt.reason.Drifted", "true"),
            ("launch", "until 2026-08-03T12:00:00Z"),
        ];
        let (pause, _) = Pause::read(keys.map(|(key, value)| (key, Some(value))));
        let holds = watch::channel(WriteHolds { pause, ..WriteHolds::default() }).1;
        let client = Fake::serving(&[CONFIG_MAPS]).client();
        let check = WriteCheck::new(LeaseHandle::renewed_before(FRESH), holds, client, "napkeeper");
        let (early, late) = (at("2026-08-03T11:59:59Z"), at("2026-08-03T12:00:00Z"));
        for (pool, reason, allowed) in [
            ("general", DisruptionReason::Empty, [false, true]),
            ("batch", DisruptionReason::Empty, [true, true]),
            ("batch", DisruptionReason::Drifted, [false, false]),
        ] {
            let scope = DisruptionScope::new(&NodePoolName::new(pool).unwrap(), reason);
            for (now, is_allowed) in [early, late].into_iter().zip(allowed) {
                let answer = check.check(&of_claim(), &disrupt(), &scope, now).await;
                assert_eq!(answer.is_ok(), is_allowed, "{scope:?} at {now}");
                assert_eq!(check.check(&of_claim(), &launch(), &scope, now).await.is_ok(), now == late);
                assert_eq!(check.check(&of_claim(), &finalize(), &scope, now).await, Ok(()), "it disrupts nothing");
            }
        }
    }

    /// Which effects are allowed: launch, disrupt, delete, one that no switch pauses, a read.
    async fn allowed(check: &WriteCheck) -> [bool; 5] {
        let mut allowed = [false; 5];
        for (ok, effect) in allowed.iter_mut().zip([launch(), disrupt(), delete(), finalize(), read()]) {
            *ok = checked(check, &of_claim(), &effect).await.is_ok();
        }
        allowed
    }

    #[tokio::test]
    async fn each_switch_pauses_its_own_writes() {
        let client = || Fake::serving(&[CONFIG_MAPS]).client();
        assert_eq!(allowed(&check_of(client(), FRESH, &[])).await, [true; 5]);
        for (switch, expected) in [
            (PauseSwitch::Launch, [false, true, true, true, true]),
            (PauseSwitch::Disrupt, [true, false, true, true, true]),
            (PauseSwitch::Delete, [true, true, false, true, true]),
        ] {
            assert_eq!(allowed(&check_of(client(), FRESH, &[switch])).await, expected, "{switch:?}");
        }
        let blocked = checked(&check_of(client(), FRESH, &[PauseSwitch::Launch]), &of_claim(), &launch()).await;
        assert_eq!(blocked, Err(EffectError::Blocked("the pause switch is set")));
    }

    #[tokio::test]
    async fn before_a_delete_the_switch_is_read_from_the_api_server() {
        let server = Fake::serving(&[CONFIG_MAPS]);
        let check = check_of(server.client(), FRESH, &[]);
        server.put(CONFIG_MAPS, switch(json!({ "delete": "true" })));
        assert_eq!(allowed(&check).await, [true, true, false, true, true], "no watch has seen it yet");
        server.put(CONFIG_MAPS, switch(json!({ "launch": "true" })));
        assert!(checked(&check, &of_claim(), &delete()).await.is_ok());
        server.fail(CONFIG_MAPS, Some(Fault::Status(403)));
        let unreadable = Err(EffectError::Blocked("the pause switch cannot be read"));
        assert_eq!(checked(&check, &of_claim(), &delete()).await, unreadable);
        assert_eq!(allowed(&check).await, [true, true, false, true, true]);
    }

    #[tokio::test]
    async fn an_orphan_sweep_that_cannot_be_read_blocks_what_sweeps_write_in_azure() {
        let client = || Fake::serving(&[CONFIG_MAPS]).client();
        let (holds, held) = watch::channel(WriteHolds::default());
        let check = WriteCheck::new(LeaseHandle::renewed_before(FRESH), held, client(), "napkeeper");
        let of_sweep = CommandKey::Resource(vm());
        let mark = || Effect::Cloud(CloudRequest::Tag(vm(), Default::default()));
        let unmark = || Effect::Cloud(CloudRequest::Untag(vm(), Default::default()));
        let record = || Effect::Cluster(ClusterWrite::WriteRecords(Box::default()));
        let writes = || [delete(), mark(), unmark()];
        for effect in writes() {
            assert_eq!(checked(&check, &of_sweep, &effect).await, Ok(()), "{effect:?}");
        }
        let unreadable_sweeps = UnreadableSweeps::of([(Arc::from("nightly"), Arc::from("wrong"))]);
        holds.send_replace(WriteHolds { unreadable_sweeps, ..WriteHolds::default() });
        for effect in writes() {
            let blocked = Err(EffectError::Blocked("an OrphanSweep cannot be read"));
            assert_eq!(checked(&check, &of_sweep, &effect).await, blocked, "{effect:?}");
        }
        assert_eq!(checked(&check, &of_sweep, &record()).await, Ok(()), "the outcome of a DELETE is still recorded");
        assert_eq!(checked(&check, &of_claim(), &delete()).await, Ok(()), "a NodeClaim's own resources are deleted");
        holds.send_replace(WriteHolds::default());
        assert_eq!(checked(&check, &of_sweep, &delete()).await, Ok(()));
    }

    #[tokio::test]
    async fn without_the_lease_only_reads_are_allowed() {
        let client = || Fake::serving(&[CONFIG_MAPS]).client();
        let reads_only = [false, false, false, false, true];
        assert_eq!(allowed(&check_of(client(), None, &[])).await, reads_only, "another replica holds it");
        let nearly = Some(Duration::from_secs(9));
        assert_eq!(allowed(&check_of(client(), nearly, &[])).await, [true; 5], "more than five seconds are left");
        let late = Some(Duration::from_millis(10_001));
        assert_eq!(allowed(&check_of(client(), late, &[])).await, reads_only, "less than five seconds are left");
    }

    #[tokio::test]
    async fn a_lease_that_ends_while_the_switch_is_read_blocks_the_delete() {
        let slow = tower::service_fn(|_: http::Request<Body>| async {
            tokio::time::sleep(Duration::from_millis(600)).await;
            let body = serde_json::to_vec(&crate::fake::refusal(404, json!({ "name": "napkeeper-pause" })))?;
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(
                http::Response::builder().status(404).body(Body::from(body))?,
            )
        });
        let check = check_of(Client::new(slow, "default"), Some(Duration::from_millis(9_500)), &[]);
        let blocked = checked(&check, &of_claim(), &delete()).await;
        assert_eq!(blocked, Err(EffectError::Blocked("the lease is lost or about to expire")));
    }
}
