//! Lists and watches one kind, as a stream of [`ReflectorEvent`]s.

use super::failure::{failure_message, is_absent};
use super::invalid::{read_class, read_overlay, read_pool};
use super::object::{ObjectId, ObjectState, ReflectorEvent, WatchedObject};
use super::{WATCH_SECONDS, WatchOptions, WatchedKind};
use crate::objects::controller_time;
use crate::objects::raw_object::{self, RawObject};
use crate::preconditions::pause::{PAUSE_CONFIG_MAP, pause};
use futures::stream::{BoxStream, poll_fn};
use futures::{Stream, StreamExt};
use k8s_openapi::api::{apps, core, policy, storage};
use kube::api::Api;
use kube::client::Body;
use kube::core::{NamespaceResourceScope, PartialObjectMeta};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Client, Resource};
use napkeeper_api::convert::{self, Violations};
use napkeeper_api::types::aks_node_class::AKSNodeClass;
use napkeeper_api::types::karpenter::NodePool;
use napkeeper_api::types::node_overlay::NodeOverlay;
use napkeeper_api::types::orphan_record::OrphanRecord;
use napkeeper_api::types::orphan_sweep::OrphanSweep;
use napkeeper_api::types::scheduler_configuration::SchedulerConfiguration;
use napkeeper_core::engine::clock::Clock;
use napkeeper_core::model::cluster::pool::DaemonSet;
use napkeeper_core::snapshot::delta::Delta;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

/// Objects in a page.
const PAGE_SIZE: u32 = 500;
/// Pods in a page: while it is parsed, one takes many times the memory that it does later.
const POD_PAGE_SIZE: u32 = 100;

/// Lists and watches a kind, indefinitely.
pub(super) fn reflect(
    kind: WatchedKind,
    client: &Client,
    options: &WatchOptions,
) -> BoxStream<'static, ReflectorEvent> {
    let clock = || Arc::clone(&options.clock);
    let reflector = || Reflector::new(kind, client);
    match kind {
        WatchedKind::Pods => reflector().all(pod(clock())),
        WatchedKind::Nodes => {
            let rules = Arc::clone(&options.node_health);
            reflector().all(timed(clock(), move |o, c| controller_time::watched_node(o, c, &rules).map(Delta::Node)))
        }
        WatchedKind::NodeClaims => {
            reflector().all(timed(clock(), |o, c| controller_time::claim(o, c).map(Delta::Claim)))
        }
        WatchedKind::NodePools => reflector().raw::<NodePool>(Box::new(read_pool)),
        WatchedKind::NodeClasses => reflector().raw::<AKSNodeClass>(Box::new(read_class)),
        WatchedKind::NodeOverlays => reflector().raw::<NodeOverlay>(Box::new(read_overlay)),
        WatchedKind::DaemonSets => reflector().all(|o: &apps::v1::DaemonSet| read(convert::daemon_set(o), daemon_set)),
        WatchedKind::DisruptionBudgets => reflector().all(|o: &policy::v1::PodDisruptionBudget| {
            read(convert::disruption_budget_state(o), |b| Delta::DisruptionBudget(b.into()))
        }),
        WatchedKind::OrphanSweeps => {
            reflector().all(|o: &OrphanSweep| read(convert::sweep(o), |s| Delta::Sweep(s.into())))
        }
        WatchedKind::OrphanRecords => reflector().all(record),
        WatchedKind::Volumes => {
            reflector().all(|o: &core::v1::PersistentVolume| read(convert::volume(o), |v| Delta::Volume(v.into())))
        }
        WatchedKind::VolumeClaims => reflector().all(|o: &core::v1::PersistentVolumeClaim| {
            read(convert::volume_claim(o), |c| Delta::VolumeClaim(c.into()))
        }),
        WatchedKind::StorageClasses => reflector()
            .all(|o: &storage::v1::StorageClass| read(convert::storage_class(o), |c| Delta::StorageClass(c.into()))),
        WatchedKind::CsiNodes => reflector()
            .all(|o: &storage::v1::CSINode| read(convert::attach_limits(o), |l| Delta::AttachLimits(l.into()))),
        WatchedKind::Attachments => reflector().all(|o: &storage::v1::VolumeAttachment| {
            read(convert::attachment(o), |(attachment, _)| Delta::Attachment(attachment.into()))
        }),
        // Of a Namespace only metadata are read.
        WatchedKind::Namespaces => reflector().all(|o: &PartialObjectMeta<core::v1::Namespace>| {
            read(convert::namespace(&o.metadata), |(key, space)| Delta::Namespace(key, space.into()))
        }),
        WatchedKind::Services => {
            reflector().all(|o: &core::v1::Service| read(convert::service(o), |(key, s)| Delta::Service(key, s.into())))
        }
        WatchedKind::Schedulers => reflector().all(|o: &SchedulerConfiguration| {
            read(convert::scheduler_profiles(o), |(key, s)| Delta::Scheduler(key, s.into()))
        }),
        WatchedKind::Pause => reflector().named(&options.namespace, PAUSE_CONFIG_MAP, |o: &core::v1::ConfigMap| {
            let (held, wrong) = pause(o);
            (Some(WatchedObject::Pause(Arc::new(held))), wrong)
        }),
    }
}

/// The state of an object, and its violations.
pub(super) type Reading = (Option<WatchedObject>, Option<String>);

fn read<T, R: Into<WatchedObject>>(result: Result<T, Violations>, row: impl FnOnce(T) -> R) -> Reading {
    match result {
        Ok(value) => (Some(row(value).into()), None),
        Err(violations) => (None, Some(violations.to_string())),
    }
}

/// A reading of an object that holds times.
fn timed<K>(
    clock: Arc<dyn Clock>,
    convert: impl Fn(&K, &dyn Clock) -> Result<Delta, Violations> + Send + 'static,
) -> impl Fn(&K) -> Reading + Send + 'static {
    move |object| read(convert(object, &*clock), |row| row)
}

/// An invalid pod is kept: it runs.
fn pod(clock: Arc<dyn Clock>) -> impl Fn(&core::v1::Pod) -> Reading + Send + 'static {
    move |object| match controller_time::pod(object, &*clock) {
        Ok((pod, wrong)) => (Some(Delta::Pod(pod).into()), wrong.map(|violations| violations.to_string())),
        Err(violations) => (None, Some(violations.to_string())),
    }
}

fn daemon_set(set: convert::DaemonSet) -> Delta {
    Delta::DaemonSet(set.key, Arc::new(DaemonSet { shape: set.template.shape }))
}

fn record(object: &OrphanRecord) -> Reading {
    read(convert::records([&object.spec]), |_| WatchedObject::Record(Arc::new(object.spec.clone())))
}

/// One kind, and whether its last watch has started.
struct Reflector {
    kind: WatchedKind,
    client: Client,
    started: Arc<AtomicBool>,
}

impl Reflector {
    fn new(kind: WatchedKind, client: &Client) -> Self {
        let started = Arc::default();
        Self { kind, client: noting_watch_starts(client.clone(), Arc::clone(&started)), started }
    }

    /// All objects of the kind, in all namespaces.
    fn all<K>(self, read: impl Fn(&K) -> Reading + Send + 'static) -> BoxStream<'static, ReflectorEvent>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + 'static,
    {
        self.raw::<K>(Box::new(as_kind(read)))
    }

    /// As [`Self::all`], with each object as the API server sends it.
    fn raw<K: Resource<DynamicType = ()>>(self, read: ReadRaw) -> BoxStream<'static, ReflectorEvent> {
        let api = raw_object::all::<K>(&self.client);
        self.run(api, watcher::Config::default(), read)
    }

    /// The object of this name.
    fn named<K>(
        self,
        space: &str,
        name: &str,
        read: impl Fn(&K) -> Reading + Send + 'static,
    ) -> BoxStream<'static, ReflectorEvent>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + DeserializeOwned + 'static,
    {
        let api = raw_object::namespaced::<K>(&self.client, space);
        self.run(api, watcher::Config::default().fields(&format!("metadata.name={name}")), Box::new(as_kind(read)))
    }

    fn run(self, api: Api<RawObject>, config: watcher::Config, read: ReadRaw) -> BoxStream<'static, ReflectorEvent> {
        let kind = self.kind;
        let page = if kind == WatchedKind::Pods { POD_PAGE_SIZE } else { PAGE_SIZE };
        let events = watcher(api, config.timeout(WATCH_SECONDS).page_size(page)).default_backoff();
        let changes = events.map(move |event| match event {
            Ok(event) => convert_event(event, &read),
            Err(error) if kind.is_optional() && is_absent(&error) => ReflectorEvent::Absent,
            Err(error) => ReflectorEvent::Failed(failure_message(kind, &error)),
        });
        with_watch_starts(changes.boxed(), self.started).boxed()
    }
}

/// Reads an object of an erased kind.
type ReadRaw = Box<dyn Fn(RawObject) -> Reading + Send>;

fn as_kind<K: DeserializeOwned>(read: impl Fn(&K) -> Reading) -> impl Fn(RawObject) -> Reading {
    move |object| match object.read() {
        Ok(object) => read(&object),
        Err(error) => (None, Some(error.to_string())),
    }
}

fn convert_event(event: Event<RawObject>, read: &ReadRaw) -> ReflectorEvent {
    let id = |object: &RawObject| ObjectId {
        namespace: object.meta().namespace.as_deref().unwrap_or_default().into(),
        name: object.meta().name.as_deref().unwrap_or_default().into(),
    };
    match event {
        Event::Init => ReflectorEvent::ListStarted,
        Event::InitApply(object) | Event::Apply(object) => {
            let version = object.meta().resource_version.as_deref().unwrap_or_default().into();
            let id = id(&object);
            let (row, wrong) = read(object);
            ReflectorEvent::Seen(id, ObjectState { version, object: row, wrong: wrong.map(Into::into) })
        }
        Event::Delete(object) => ReflectorEvent::Gone(id(&object)),
        Event::InitDone => ReflectorEvent::ListDone,
    }
}

/// Adds an event where a watch has started: kube's watcher emits none until something changes, and a kind would look
/// broken until then. The watcher makes its requests while it is polled, so once it waits, `started` has the result of
/// the last one.
fn with_watch_starts(
    mut changes: BoxStream<'static, ReflectorEvent>,
    started: Arc<AtomicBool>,
) -> impl Stream<Item = ReflectorEvent> + Send {
    poll_fn(move |context| match changes.poll_next_unpin(context) {
        Poll::Pending if started.swap(false, Ordering::Relaxed) => Poll::Ready(Some(ReflectorEvent::WatchStarted)),
        Poll::Ready(change) => {
            started.store(false, Ordering::Relaxed);
            Poll::Ready(change)
        }
        Poll::Pending => Poll::Pending,
    })
}

/// The same client, which records when a watch has started.
fn noting_watch_starts(client: Client, started: Arc<AtomicBool>) -> Client {
    let namespace = client.default_namespace().to_owned();
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (client, started) = (client.clone(), Arc::clone(&started));
        async move {
            let watches = request.uri().query().is_some_and(|q| q.split('&').any(|p| p == "watch=true"));
            let response = client.send(request).await?;
            started.store(watches && response.status().is_success(), Ordering::Relaxed);
            Ok::<_, kube::Error>(response)
        }
    });
    Client::new(service, namespace)
}
