//! Leader election by a Lease.
//!
//! A loop reads the Lease, lets [`LeaderElector`] decide, and writes with the resourceVersion that it read. The times in
//! the object are informational. Another's Lease is judged by a monotonic clock alone. How long our own is still good is
//! judged by the greater of monotonic and wall time: the monotonic clock stands still while the machine is suspended.
//!
//! Resource versions are revisions of etcd, which only grow. One that is smaller than before means that etcd has been
//! restored from a backup: watches that continue from an old revision would deliver nothing of what was lost, nor of what
//! happens until that revision is reached again. The leader steps down then, and begins anew.

use crate::error::{ApiRequest, call};
use crate::write::jittered;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::PostParams;
use kube::{Api, Client};
use napkeeper_core::engine::leader_election::{
    LEASE_DURATION, LeaderElector, LeaseAction, LeaseRecord, RENEW_DEADLINE, RETRY_PERIOD, remaining_lease,
};
use napkeeper_core::model::errors::ClusterError;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Name of the controller's Lease.
pub const LEASE: &str = "napkeeper-controller";
/// Its namespace, wherever a controller is installed: two installations in one cluster must not both act.
const LEASE_NAMESPACE: &str = "kube-system";
/// How long the Lease must still be held before a write: the request must arrive before another process may lead.
const MIN_LEASE_LEFT: Duration = Duration::from_secs(5);
/// Name of the Lease by which one replica of the webhook keeps the certificates of all.
pub const WEBHOOK_LEASE: &str = "napkeeper-webhook";

/// The state of the Lease, for those who write. Cheap to clone.
#[derive(Debug, Clone)]
pub struct LeaseHandle {
    renewed: watch::Receiver<Option<PointInTime>>,
    leads: watch::Receiver<bool>,
    is_reachable: watch::Receiver<bool>,
}

/// A point in time, by both clocks.
#[derive(Debug, Clone, Copy)]
struct PointInTime {
    monotonic: Instant,
    wall: SystemTime,
}

impl PointInTime {
    fn now() -> Self {
        Self { monotonic: Instant::now(), wall: SystemTime::now() }
    }

    /// The time since then, by the clock that shows more.
    fn elapsed(self) -> Duration {
        self.monotonic.elapsed().max(self.wall.elapsed().unwrap_or_default())
    }

    /// The point in time this long before; `None` if a clock does not reach back so far.
    #[cfg(test)]
    fn before(self, age: Duration) -> Option<Self> {
        Some(Self { monotonic: self.monotonic.checked_sub(age)?, wall: self.wall.checked_sub(age)? })
    }
}

impl LeaseHandle {
    /// How long no other process can acquire the Lease; `None` if we do not hold it. Counted from when the last renewal
    /// was sent.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        let since = self.renewed.borrow().map(|sent| sent.elapsed())?;
        Duration::try_from(remaining_lease(SignedDuration::try_from(since).ok()?)?).ok()
    }

    /// True if we hold the Lease for at least this long.
    #[must_use]
    pub fn held_for(&self, at_least: Duration) -> bool {
        self.remaining().is_some_and(|left| left >= at_least)
    }

    /// True if a write that is sent now arrives before another process may lead.
    #[must_use]
    pub fn allows_writes(&self) -> bool {
        self.held_for(MIN_LEASE_LEFT)
    }

    /// The handle of a Lease that was renewed this long ago.
    #[cfg(test)]
    pub(crate) fn renewed_before(age: Option<Duration>) -> Self {
        let renewed = age.and_then(|age| PointInTime::now().before(age));
        let [leads, is_reachable] = [renewed.is_some(), true].map(|value| watch::channel(value).1);
        Self { renewed: watch::channel(renewed).1, leads, is_reachable }
    }

    /// False if the last attempt to read or write the Lease failed, for example for lack of a right; the attempt has
    /// been logged. True before the first one.
    #[must_use]
    pub fn is_reachable(&self) -> bool {
        *self.is_reachable.borrow()
    }

    /// Whether we hold the Lease, and every change of that.
    #[must_use]
    pub fn leads(&self) -> watch::Receiver<bool> {
        self.leads.clone()
    }
}

/// A name for [`elect`]: the host's, which in a cluster is the pod's, and a random part.
#[must_use]
pub fn lease_identity() -> String {
    let host = std::env::var("HOSTNAME").ok().filter(|name| !name.is_empty());
    let host = host.unwrap_or_else(|| "napkeeper".to_owned());
    format!("{host}-{}", uuid::Uuid::new_v4().simple())
}

/// Takes part in the election of the cluster's controller until `stop`, then releases the Lease, so that a successor need
/// not wait. Writes must have ended before `stop`. No two processes may share an identity.
pub fn elect(
    client: Client,
    identity: &str,
    stop: impl Future<Output = ()> + Send + 'static,
) -> (LeaseHandle, JoinHandle<()>) {
    elect_for(LEASE, client, LEASE_NAMESPACE, identity, stop)
}

/// As [`elect`], for the Lease of this name and namespace.
pub fn elect_for(
    lease: &'static str,
    client: Client,
    namespace: &str,
    identity: &str,
    stop: impl Future<Output = ()> + Send + 'static,
) -> (LeaseHandle, JoinHandle<()>) {
    let (renewed, renewed_at) = watch::channel(None);
    let (leads, leads_now) = watch::channel(false);
    let (is_reachable, is_reachable_now) = watch::channel(true);
    let election = Election {
        lease,
        api: Api::namespaced(client, namespace),
        identity: Arc::from(identity),
        candidate: LeaderElector::new(Arc::from(identity)),
        start: Instant::now(),
        renewal_sent: None,
        revision: 0,
        renewed,
        leads,
        is_reachable,
    };
    let handle = LeaseHandle { renewed: renewed_at, leads: leads_now, is_reachable: is_reachable_now };
    (handle, tokio::spawn(election.run(stop)))
}

struct Election {
    lease: &'static str,
    api: Api<Lease>,
    identity: Arc<str>,
    candidate: LeaderElector,
    start: Instant,
    /// When the last renewal that succeeded was sent.
    renewal_sent: Option<PointInTime>,
    /// The last known revision of the Lease; 0 before the first.
    revision: u64,
    renewed: watch::Sender<Option<PointInTime>>,
    leads: watch::Sender<bool>,
    is_reachable: watch::Sender<bool>,
}

impl Election {
    async fn run(mut self, stop: impl Future<Output = ()>) {
        tokio::pin!(stop);
        loop {
            let timeout = self.time_until_expiry();
            tokio::select! {
                () = &mut stop => break,
                done = tokio::time::timeout(timeout, self.try_acquire_or_renew()) => {
                    if done.is_err() {
                        tracing::warn!(lease = self.lease, "the API server timed out");
                    }
                    self.is_reachable.send_replace(done.unwrap_or(false));
                }
            }
            self.publish();
            let wait = jittered(unsigned(RETRY_PERIOD)).min(self.time_until_expiry());
            tokio::select! {
                () = &mut stop => break,
                () = tokio::time::sleep(wait) => {}
            }
            self.publish();
        }
        self.release().await;
    }

    /// How long until it must be published that the Lease is lost, unless it is renewed.
    fn time_until_expiry(&self) -> Duration {
        let since = self.renewal_age();
        let left = since.map_or(RENEW_DEADLINE, |since| (RENEW_DEADLINE - since).max(SignedDuration::from_millis(10)));
        unsigned(left)
    }

    /// Reads the Lease, and acquires or renews it if possible. False if a request failed.
    async fn try_acquire_or_renew(&mut self) -> bool {
        let name = self.lease;
        let request = |verb| ApiRequest { verb, kind: "Lease", name };
        let Ok(lease) = call(request("get"), self.api.get_opt(self.lease)).await else { return false };
        if lease.as_ref().is_some_and(|lease| self.steps_down_if_restored(lease)) {
            return true;
        }
        let decision = self.candidate.next_action(lease.as_ref().map(record).as_ref(), self.now());
        let acquires = match decision {
            LeaseAction::Wait(_) => return true,
            LeaseAction::Acquire => true,
            LeaseAction::Renew => false,
        };
        let (sent, now, at) = (PointInTime::now(), self.now(), Timestamp::now());
        let written = match lease {
            None => {
                let metadata = ObjectMeta { name: Some(self.lease.to_owned()), ..ObjectMeta::default() };
                let lease = Lease { metadata, spec: Some(self.spec(None, true, at)) };
                call(request("create"), self.api.create(&PostParams::default(), &lease)).await
            }
            Some(mut lease) => {
                lease.spec = Some(self.spec(lease.spec.as_ref(), acquires, at));
                call(request("update"), self.api.replace(self.lease, &PostParams::default(), &lease)).await
            }
        };
        match written {
            // The Lease may have been absent from the backup.
            Ok(written) if self.steps_down_if_restored(&written) => {}
            Ok(_) => {
                self.candidate.record_renewal(now);
                self.renewal_sent = Some(sent);
            }
            Err(ClusterError::Conflict) => tracing::debug!(lease = self.lease, "another replica was faster"),
            Err(_) => return false,
        }
        true
    }

    fn spec(&self, before: Option<&LeaseSpec>, acquires: bool, at: Timestamp) -> LeaseSpec {
        let mut spec = before.cloned().unwrap_or_default();
        if acquires {
            spec.acquire_time = Some(MicroTime(at));
            spec.lease_transitions = Some(spec.lease_transitions.map_or(0, |n| n.saturating_add(1)));
        }
        spec.holder_identity = Some(self.identity.to_string());
        spec.lease_duration_seconds = i32::try_from(LEASE_DURATION.as_secs()).ok();
        spec.renew_time = Some(MicroTime(at));
        spec
    }

    /// Publishes whether we lead, and since when the Lease is renewed.
    fn publish(&mut self) {
        let leads = self.renewal_age().is_some_and(|age| remaining_lease(age).is_some());
        if !leads {
            self.candidate.step_down();
        }
        self.renewed.send_replace(self.renewal_sent.filter(|_| leads));
        let changed = self.leads.send_if_modified(|known| std::mem::replace(known, leads) != leads);
        if changed {
            tracing::info!(lease = self.lease, identity = &*self.identity, leads, "leadership changed");
        }
    }

    /// Learns the revision of the Lease, and steps down if it shows that etcd has been restored from a backup; true then.
    fn steps_down_if_restored(&mut self, lease: &Lease) -> bool {
        let revision = lease.metadata.resource_version.as_deref().and_then(|version| version.parse().ok());
        let Some(revision) = revision else { return false };
        let is_restored = revision < self.revision;
        if is_restored {
            tracing::error!(
                lease = self.lease,
                revision,
                before = self.revision,
                "the API server has been restored from a backup: stepping down"
            );
            self.candidate.step_down();
        }
        self.revision = revision;
        is_restored
    }

    /// Releases the Lease. This process does not lead from now on, even if the request fails.
    async fn release(mut self) {
        let held = self.candidate.renewed_at().is_some();
        self.candidate.step_down();
        self.publish();
        if !held {
            return;
        }
        let name = self.lease;
        let request = |verb| ApiRequest { verb, kind: "Lease", name };
        let Ok(Some(mut lease)) = call(request("get"), self.api.get_opt(self.lease)).await else { return };
        let is_holder = lease.spec.as_ref().and_then(|s| s.holder_identity.as_deref()) == Some(&*self.identity);
        if let Some(spec) = lease.spec.as_mut().filter(|_| is_holder) {
            spec.holder_identity = None;
            spec.renew_time = Some(MicroTime(Timestamp::now()));
            // A failure is logged: the successor then waits until the Lease expires.
            let _ = call(request("release"), self.api.replace(self.lease, &PostParams::default(), &lease)).await;
        }
    }

    /// How long ago the last renewal was sent; `None` if we do not hold the Lease.
    fn renewal_age(&self) -> Option<SignedDuration> {
        self.candidate.renewed_at()?;
        Some(SignedDuration::try_from(self.renewal_sent?.elapsed()).unwrap_or(SignedDuration::MAX))
    }

    /// The time since the start, by a clock that nobody sets: a step of the wall clock must not let another's Lease expire.
    fn now(&self) -> SignedDuration {
        SignedDuration::try_from(self.start.elapsed()).unwrap_or(SignedDuration::MAX)
    }
}

fn record(lease: &Lease) -> LeaseRecord {
    let spec = lease.spec.as_ref();
    let holder = spec.and_then(|s| s.holder_identity.as_deref()).filter(|holder| !holder.is_empty());
    let seconds = spec.and_then(|s| s.lease_duration_seconds).unwrap_or_default();
    LeaseRecord {
        holder: holder.map(Arc::from),
        version: Arc::from(lease.metadata.resource_version.as_deref().unwrap_or_default()),
        duration: SignedDuration::from_secs(seconds.into()),
    }
}

fn unsigned(time: SignedDuration) -> Duration {
    Duration::try_from(time).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;
    use tokio::time::{sleep, timeout};

    const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
    const PATIENCE: Duration = Duration::from_secs(30);

    #[test]
    fn a_lease_ages_while_the_machine_is_suspended_and_when_the_wall_clock_is_set_back() {
        let renewed_at = |monotonic: u64, wall: i64| {
            let (now, seconds) = (PointInTime::now(), Duration::from_secs(wall.unsigned_abs()));
            let wall = if wall < 0 { now.wall.checked_add(seconds) } else { now.wall.checked_sub(seconds) };
            let monotonic = now.monotonic.checked_sub(Duration::from_secs(monotonic)).unwrap();
            let at = PointInTime { monotonic, wall: wall.unwrap() };
            LeaseHandle { renewed: watch::channel(Some(at)).1, ..LeaseHandle::renewed_before(None) }
        };
        let is_held = |lease: LeaseHandle| lease.held_for(Duration::from_secs(5));
        assert!(is_held(renewed_at(2, 2)));
        assert!(!is_held(renewed_at(2, 3_600)), "it was suspended for an hour");
        assert!(is_held(renewed_at(2, -3_600)), "the wall clock was set back");
        assert!(!is_held(renewed_at(60, -3_600)), "it was set back, and the Lease is old");
    }

    /// A replica, and what ends it.
    struct Replica {
        lease: LeaseHandle,
        task: JoinHandle<()>,
        stop: tokio::sync::oneshot::Sender<()>,
    }

    impl Replica {
        fn start(server: &Fake, identity: &str) -> Self {
            let (stop, stopped) = tokio::sync::oneshot::channel();
            let (lease, task) = elect(server.client(), identity, async { drop(stopped.await) });
            Self { lease, task, stop }
        }

        fn holds(&self) -> bool {
            self.lease.held_for(Duration::ZERO)
        }

        async fn leads(&self) {
            let mut leads = self.lease.leads();
            timeout(PATIENCE, leads.wait_for(|leads| *leads)).await.unwrap().unwrap();
            assert!(self.holds());
        }
    }

    #[test]
    fn a_lease_counts_until_five_seconds_before_another_may_take_it() {
        let remaining = |ms: u64| LeaseHandle::renewed_before(Some(Duration::from_millis(ms))).remaining();
        for (age, left) in [(0, 15), (5_000, 10), (9_000, 6)] {
            let remaining = remaining(age).unwrap();
            assert!(remaining.abs_diff(Duration::from_secs(left)) < Duration::from_secs(1), "{age}: {remaining:?}");
        }
        assert_eq!(remaining(10_000), None, "the renewal deadline is over");
        assert_eq!(LeaseHandle::renewed_before(None).remaining(), None);
    }

    #[tokio::test]
    async fn a_second_replica_waits_until_the_first_releases_the_lease() {
        let server = Fake::serving(&[LEASES]);
        let first = Replica::start(&server, "first");
        first.leads().await;
        let second = Replica::start(&server, "second");
        sleep(unsigned(RETRY_PERIOD) * 2).await;
        assert!(first.holds() && !second.holds());
        first.stop.send(()).unwrap();
        timeout(PATIENCE, first.task).await.unwrap().unwrap();
        assert!(!first.lease.held_for(Duration::ZERO), "released");
        let released = Instant::now();
        second.leads().await;
        assert!(released.elapsed() < unsigned(RENEW_DEADLINE), "a released Lease is taken at the next look");
    }

    #[tokio::test]
    async fn a_replica_that_was_killed_is_succeeded_only_after_its_writes_are_blocked() {
        let server = Fake::serving(&[LEASES]);
        let first = Replica::start(&server, "first");
        first.leads().await;
        let second = Replica::start(&server, "second");
        // The process may continue without renewing: the handle counts down by itself.
        first.task.abort();
        let killed = Instant::now();
        while !second.holds() {
            assert!(killed.elapsed() < PATIENCE, "nobody leads");
            sleep(Duration::from_millis(20)).await;
        }
        assert!(!first.holds(), "two replicas may write");
        assert!(killed.elapsed() > unsigned(RENEW_DEADLINE), "{:?}", killed.elapsed());
    }

    #[tokio::test]
    async fn a_leader_begins_anew_when_etcd_has_been_restored() {
        let server = Fake::serving(&[LEASES]);
        server.skip_versions(1_000);
        let replica = Replica::start(&server, "only");
        replica.leads().await;
        let mut leads = replica.lease.leads();
        for is_lost in [false, true] {
            server.restore(LEASES, 500, is_lost);
            timeout(PATIENCE, leads.wait_for(|leads| !*leads)).await.unwrap().unwrap();
            replica.leads().await;
            server.skip_versions(1_000);
            // Another renewal has been seen.
            sleep(unsigned(RETRY_PERIOD) * 2).await;
            assert!(replica.holds(), "it steps down once");
        }
    }

    #[tokio::test]
    async fn a_lease_that_cannot_be_renewed_is_lost() {
        let server = Fake::serving(&[LEASES]);
        let replica = Replica::start(&server, "only");
        replica.leads().await;
        server.fail(LEASES, Some(crate::fake::Fault::Unreachable));
        let mut leads = replica.lease.leads();
        timeout(PATIENCE, leads.wait_for(|leads| !*leads)).await.unwrap().unwrap();
        assert!(!replica.holds() && !replica.lease.is_reachable());
        server.fail(LEASES, None);
        replica.leads().await;
        assert!(replica.lease.is_reachable());
    }
}
