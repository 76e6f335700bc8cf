//! Every NodeClaim gets one VM, and soon, although Azure throttles and lacks capacity.
//!
//! The real scripts over the real adapter over the simulated ARM, all on one virtual clock. Azure counts requests in
//! small buckets and answers 429 when they are empty; 30 % of the requested VMs fail, half of them at once and half
//! late, when their operation ends.

use super::same::cloud_settings;
use jiff::{SignedDuration, Timestamp};
use napkeeper_azure::{Azure, HttpRequest, HttpResponse, Transport, TransportError};
use napkeeper_core::catalog::{CapacityType, Catalog, InstanceTypeOptions, OfferingKey, instance_types};
use napkeeper_core::lifecycle::{ClassInstanceTypes, LaunchScript};
use napkeeper_core::model::amounts::money::HourlyPrice;
use napkeeper_core::model::azure::cloud::{CloudResource, ProvisioningState, ResourceDetail, Tags};
use napkeeper_core::model::cluster::claim::{ClaimRef, LaunchIntent, PlannedOffering};
use napkeeper_core::model::errors::EffectError;
use napkeeper_core::model::labels;
use napkeeper_core::model::names::{ClaimName, Uid, VmSize, Zone};
use napkeeper_core::model::settings::DeletionRules;
use napkeeper_core::plan::{ClaimUpdate, ClusterWrite, Effect, Launch, Reply, Script, Step};
use napkeeper_sim::cloud::{Cloud, CloudSettings, FaultDuration, Shortage};
use napkeeper_sim::random::Random;
use napkeeper_tests::arm::{InProcess, credential, settings};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

const CLAIMS: usize = 200;
/// What a bucket holds, and how fast it fills, per second: reads, and then writes and deletes each.
const BUCKETS: [(f64, f64); 3] = [(100.0, 12.0), (40.0, 3.0), (40.0, 3.0)];
/// In which every request is answered.
const LATENCY: Duration = Duration::from_millis(150);
/// How long a decider waits before it launches again.
const AGAIN: Duration = Duration::from_secs(15);

/// A clock that moves when nothing else does.
#[derive(Debug, Clone, Default)]
struct Clock(Arc<Mutex<Waiting>>);

/// The time, the next turn, and the wakers by time.
type Waiting = (Duration, u64, BTreeMap<(Duration, u64), Waker>);

impl Clock {
    fn now(&self) -> Duration {
        self.0.lock().unwrap().0
    }

    fn sleep(&self, time: Duration) -> Sleep {
        Sleep { clock: self.clone(), until: self.now() + time, turn: None }
    }

    /// Advances to the next instant with a waiter; `false` if there is none.
    fn go_on(&self) -> bool {
        let mut state = self.0.lock().unwrap();
        let Some((&(at, turn), _)) = state.2.first_key_value() else { return false };
        state.0 = at;
        let waker = state.2.remove(&(at, turn));
        drop(state);
        waker.into_iter().for_each(Waker::wake);
        true
    }
}

struct Sleep {
    clock: Clock,
    until: Duration,
    turn: Option<u64>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let clock = self.clock.clone();
        let mut state = clock.0.lock().unwrap();
        if state.0 >= self.until {
            return Poll::Ready(());
        }
        let turn = *self.turn.get_or_insert_with(|| {
            state.1 += 1;
            state.1
        });
        state.2.insert((self.until, turn), context.waker().clone());
        Poll::Pending
    }
}

/// A simulated Azure that is busy and short of machines.
#[derive(Debug)]
struct Busy {
    inner: Arc<InProcess>,
    start: Timestamp,
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    left: [f64; 3],
    at: Duration,
    random: Random,
    requests: usize,
    throttled: usize,
    refused: [usize; 2],
}

impl State {
    /// A number below 100.
    fn draw(&mut self) -> u64 {
        self.random.bits() % 100
    }
}

impl Busy {
    /// Takes a token: the remaining ones, or `None` if the bucket is empty.
    fn pay(&self, bucket: usize) -> Option<u32> {
        let mut state = self.state.lock().unwrap();
        let now = self.clock.now();
        let passed = (now - state.at).as_secs_f64();
        state.at = now;
        for (left, (most, rate)) in state.left.iter_mut().zip(BUCKETS) {
            *left = (*left + passed * rate).min(most);
        }
        state.requests += 1;
        if state.left[bucket] < 1.0 {
            state.throttled += 1;
            return None;
        }
        state.left[bucket] -= 1.0;
        Some(state.left[bucket] as u32)
    }

    /// Of the requested VMs, 15 % are rejected, and 15 % are accepted and then fail to allocate.
    fn make_short(&self) {
        let mut state = self.state.lock().unwrap();
        let (drawn, short) = (state.draw(), vec![Shortage::of_all(FaultDuration::Times(1))]);
        let (refused, unallocatable) = match drawn {
            0..15 => (short, Vec::new()),
            15..30 => (Vec::new(), short),
            _ => (Vec::new(), Vec::new()),
        };
        state.refused[0] += refused.len();
        state.refused[1] += unallocatable.len();
        self.inner.with(|cloud, _| (cloud.faults.refused, cloud.faults.unallocatable) = (refused, unallocatable));
    }
}

#[async_trait::async_trait]
impl Transport for Busy {
    async fn send(&self, request: HttpRequest) -> Result<HttpResponse, TransportError> {
        self.clock.sleep(LATENCY).await;
        let (bucket, name) = match request.method.as_str() {
            "GET" => (0, "reads"),
            "DELETE" => (2, "deletes"),
            _ => (1, "writes"),
        };
        let header = format!("x-ms-ratelimit-remaining-subscription-{name}");
        let Some(left) = self.pay(bucket) else {
            let body = br#"{"error":{"code":"SubscriptionRequestsThrottled","message":"too many"}}"#.to_vec();
            let headers = vec![("retry-after".to_owned(), "5".to_owned()), (header, "0".to_owned())];
            return Ok(HttpResponse { status: 429, headers, body });
        };
        if bucket == 1 && request.url.contains("/virtualMachines/") {
            self.make_short();
        }
        self.inner.set_now(self.start + SignedDuration::try_from(self.clock.now()).unwrap());
        let mut response = self.inner.send(request).await?;
        response.headers.push((header, left.to_string()));
        Ok(response)
    }

    fn elapsed(&self) -> Duration {
        self.clock.now()
    }

    async fn sleep(&self, time: Duration) {
        self.clock.sleep(time).await;
    }
}

/// How a NodeClaim ended, and when.
#[derive(Debug, Clone)]
enum End {
    Launched(Duration),
    Failed(String),
}

/// What every launch works with.
struct Bench {
    azure: Azure,
    clock: Clock,
    start: Timestamp,
    cloud: CloudSettings,
    sizes: ClassInstanceTypes,
    planned: Vec<PlannedOffering>,
    ends: Mutex<BTreeMap<ClaimName, End>>,
}

impl Bench {
    fn launch(&self, claim: &ClaimRef, intent: Option<LaunchIntent>) -> Launch {
        let tag = |key: &str, value: &str| (Arc::from(key), Arc::from(value));
        Launch {
            claim: claim.clone(),
            pool: None,
            offerings: self.planned.clone(),
            intent,
            group: self.cloud.group.clone(),
            tags: Tags::from([
                tag(labels::TAG_CLUSTER, "c"),
                tag(labels::TAG_CLAIM, claim.name.as_str()),
                tag(labels::TAG_CLAIM_UID, claim.uid.as_str()),
            ]),
            os_disk_gb: 64,
            image: None,
            security: Default::default(),
            subnet: None,
            capacity_reservation_group: None,
        }
    }

    /// Launches until it is clear how it ends, as the lifecycle does.
    async fn drive(self: Arc<Self>, claim: ClaimRef) {
        let mut intent = None;
        for _ in 0..50 {
            let mut script =
                LaunchScript::new(self.launch(&claim, intent.clone()), self.sizes.clone(), DeletionRules::all());
            let mut reply = None;
            loop {
                let now = self.start + SignedDuration::try_from(self.clock.now()).unwrap();
                match script.step(reply.take(), now) {
                    Step::Perform(effect) => reply = Some(self.perform(&effect, &mut intent).await),
                    Step::Wait(time) => self.clock.sleep(Duration::try_from(time).unwrap()).await,
                    Step::End(_) => break,
                }
            }
            if self.ends.lock().unwrap().contains_key(&claim.name) {
                return;
            }
            self.clock.sleep(AGAIN).await;
        }
    }

    async fn perform(&self, effect: &Effect, intent: &mut Option<LaunchIntent>) -> Result<Reply, EffectError> {
        match effect {
            Effect::Cluster(ClusterWrite::WriteIntent(_, written)) => *intent = Some((**written).clone()),
            Effect::Cluster(ClusterWrite::UpdateClaim(claim, ClaimUpdate::Launched { .. })) => {
                self.ends.lock().unwrap().insert(claim.name.clone(), End::Launched(self.clock.now()));
            }
            Effect::Cluster(ClusterWrite::UpdateClaim(claim, ClaimUpdate::LaunchFailed(failure))) => {
                self.ends.lock().unwrap().insert(claim.name.clone(), End::Failed(failure.message.to_string()));
            }
            Effect::Read(_) => return Ok(Reply::Node(None)),
            Effect::Cloud(request) => {
                self.azure.prepare(request).await?;
                return self.azure.perform(request).await;
            }
            Effect::Cluster(_) | Effect::TakeInventory => {}
        }
        Ok(Reply::Done)
    }
}

fn planned() -> Vec<PlannedOffering> {
    let region = cloud_settings().region;
    let mut planned = Vec::new();
    for capacity_type in [CapacityType::Spot, CapacityType::OnDemand] {
        for (size, zone) in [("Standard_D2s_v5", 1), ("Standard_D4s_v5", 2), ("Standard_E4s_v5", 3)] {
            let key = OfferingKey { size: VmSize::new(size).unwrap(), zone: Zone::of(&region, zone), capacity_type };
            planned.push(PlannedOffering { key, price: HourlyPrice::default() });
        }
    }
    planned
}

fn sizes() -> ClassInstanceTypes {
    let region = Catalog::embedded().unwrap().region(&cloud_settings().region).unwrap();
    let class = napkeeper_tests::fixtures::class();
    Arc::new(instance_types(&region, &class, &InstanceTypeOptions::default()))
}

/// All claims at once: how they ended, and what Azure saw.
fn run(paced: bool) -> (Arc<Busy>, Arc<Bench>) {
    let (cloud, start, clock) = (cloud_settings(), Timestamp::from_second(1_800_000_000).unwrap(), Clock::default());
    let state = State {
        left: BUCKETS.map(|(most, _)| most),
        at: Duration::ZERO,
        random: Random::new(6),
        requests: 0,
        throttled: 0,
        refused: [0; 2],
    };
    let inner = InProcess::new(Cloud::new(cloud.clone()), start);
    let busy = Arc::new(Busy { inner, start, clock: clock.clone(), state: Mutex::new(state) });
    let azure = Azure::new(settings(&cloud), Arc::clone(&busy) as Arc<dyn Transport>, credential()).unwrap();
    let azure = if paced { azure } else { azure.without_rate_limits() };
    let bench = Arc::new(Bench {
        azure,
        clock: clock.clone(),
        start,
        cloud,
        sizes: sizes(),
        planned: planned(),
        ends: Mutex::default(),
    });
    // Deadlines of requests are real time, which does not pass here; they need its driver all the same.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let _entered = runtime.enter();
    let ready = Arc::new(Mutex::new((0..CLAIMS).rev().collect::<Vec<_>>()));
    let mut tasks: Vec<Pin<Box<dyn Future<Output = ()>>>> = Vec::new();
    for n in 0..CLAIMS {
        let name = ClaimName::new(format!("crowd-{n:03}")).unwrap();
        let claim = ClaimRef { name, uid: Uid::new(format!("uid-{n}")).unwrap() };
        tasks.push(Box::pin(Arc::clone(&bench).drive(claim)));
    }
    loop {
        let next = ready.lock().unwrap().pop();
        match next {
            Some(id) => {
                let waker = Waker::from(Arc::new(Ready { id, ready: Arc::clone(&ready) }));
                // A finished task is not woken again.
                let _ = tasks[id].as_mut().poll(&mut Context::from_waker(&waker));
            }
            None if clock.go_on() => {}
            None => return (busy, bench),
        }
    }
}

/// Puts a task among those that can go on.
struct Ready {
    id: usize,
    ready: Arc<Mutex<Vec<usize>>>,
}

impl Wake for Ready {
    fn wake(self: Arc<Self>) {
        self.ready.lock().unwrap().push(self.id);
    }
}

#[test]
fn every_claim_ends_with_one_vm_or_a_reason() {
    let mut throttled = Vec::new();
    for paced in [false, true] {
        let (busy, bench) = run(paced);
        let ends = bench.ends.lock().unwrap().clone();
        assert_eq!(ends.len(), CLAIMS, "each has ended");
        let mut times = Vec::new();
        for (claim, end) in &ends {
            let vms = busy.inner.with(|cloud, _| {
                let own =
                    |r: &&Arc<CloudResource>| r.tags.get(labels::TAG_CLAIM).is_some_and(|v| **v == *claim.as_str());
                let runs = |d: &ResourceDetail| matches!(d, ResourceDetail::Vm(vm) if vm.state == ProvisioningState::Succeeded);
                let all: Vec<_> = cloud.resources().values().filter(own).map(|r| &r.detail).collect();
                let vms = all.iter().filter(|d| runs(d)).count();
                (vms, all.iter().filter(|d| matches!(d, ResourceDetail::Nic(_))).count())
            });
            match end {
                End::Launched(at) => {
                    assert_eq!(vms, (1, 1), "{claim}: one VM, one NIC");
                    times.push(*at);
                }
                End::Failed(reason) => assert!(vms.0 == 0 && !reason.is_empty(), "{claim}: {reason}"),
            }
        }
        times.sort();
        let percentile = |p: usize| times[(times.len() - 1) * p / 100].as_secs();
        let state = busy.state.lock().unwrap();
        let [at_once, late] = state.refused;
        eprintln!(
            "{}: {} of {CLAIMS} launched, p50 {} s, p95 {} s, all {} s; {} requests, {} of them throttled; {at_once} VMs refused at once, {late} late",
            if paced { "paced" } else { "without pace" },
            times.len(),
            percentile(50),
            percentile(95),
            percentile(100),
            state.requests,
            state.throttled,
        );
        assert!(times.len() * 100 >= CLAIMS * 95, "{ends:?}");
        assert!(at_once > 20 && late > 20, "the hour is bad");
        throttled.push(state.throttled);
    }
    assert!(throttled[1] * 4 < throttled[0], "at its pace far fewer requests are turned away: {throttled:?}");
}
