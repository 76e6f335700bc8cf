//! Reflectors: how does one kind become a stream of [`RotationStep`]s?

use super::row::{Id, Row, Seen, Step};
use super::trouble::{is_absent, trouble};
use super::{Kind, WATCH_SECONDS, WatchOptions};
use crate::ours;
use crate::pause::{PAUSE_CONFIG_MAP, pause};
use crate::raw::{self, RawObject};
use futures::stream::{BoxStream, poll_fn};
use futures::{Stream, StreamExt};
use k8s_openapi::api::{apps, core, storage};
use kube::api::Api;
use kube::client::Body;
use kube::core::{NamespaceResourceScope, PartialObjectMeta};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Client, Resource};
use napkeeper_api::azure::AKSNodeClass;
use napkeeper_api::convert::{self, Violations};
use napkeeper_api::karpenter::NodePool;
use napkeeper_api::overlay::NodeOverlay;
use napkeeper_api::record::OrphanRecord;
use napkeeper_api::scheduler::SchedulerConfiguration;
use napkeeper_api::sweep::OrphanSweep;
use napkeeper_core::engine::clock::Clock;
use napkeeper_core::model::cluster::pool::DaemonSet;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

/// Objects in a page.
const PAGE: u32 = 500;
/// Pods in a page: one takes many times the memory while it is read that it does later.
const PODS: u32 = 100;

/// Lists and watches a kind, for ever.
pub(super) fn steps(kind: Kind, client: &Client, options: &WatchOptions) -> BoxStream<'static, Step> {
    let clock = || Arc::clone(&options.clock);
    let reflector = || Reflector::new(kind, client);
    match kind {
        Kind::Pods => reflector().all(pod(clock())),
        Kind::Nodes => reflector().all(timed(clock(), |o, c| ours::node(o, c).map(Row::Node))),
        Kind::NodeClaims => reflector().all(timed(clock(), |o, c| ours::claim(o, c).map(Row::Claim))),
        Kind::NodePools => reflector().all(|o: &NodePool| read(convert::node_pool(o), |p| Row::Pool(p.into()))),
        Kind::NodeClasses => reflector().all(|o: &AKSNodeClass| read(convert::node_class(o), |c| Row::Class(c.into()))),
        Kind::NodeOverlays => {
            reflector().all(|o: &NodeOverlay| read(convert::node_overlay(o), |o| Row::Overlay(o.into())))
        }
        Kind::DaemonSets => reflector().all(|o: &apps::v1::DaemonSet| read(convert::daemon_set(o), daemon_set)),
        Kind::OrphanSweeps => reflector().all(|o: &OrphanSweep| read(convert::sweep(o), |s| Row::Sweep(s.into()))),
        Kind::OrphanRecords => reflector().all(record),
        Kind::Volumes => {
            reflector().all(|o: &core::v1::PersistentVolume| read(convert::volume(o), |v| Row::Volume(v.into())))
        }
        Kind::VolumeClaims => reflector()
            .all(|o: &core::v1::PersistentVolumeClaim| read(convert::volume_claim(o), |c| Row::VolumeClaim(c.into()))),
        Kind::StorageClasses => reflector()
            .all(|o: &storage::v1::StorageClass| read(convert::storage_class(o), |c| Row::StorageClass(c.into()))),
        Kind::CsiNodes => {
            reflector().all(|o: &storage::v1::CSINode| read(convert::attach_limits(o), |l| Row::AttachLimits(l.into())))
        }
        // Of a Namespace only metadata are read.
        Kind::Namespaces => reflector().all(|o: &PartialObjectMeta<core::v1::Namespace>| {
            read(convert::namespace(&o.metadata), |space| Row::Namespace(Arc::new(keyed(space))))
        }),
        Kind::Services => {
            reflector().all(|o: &core::v1::Service| read(convert::service(o), |s| Row::Service(Arc::new(keyed(s)))))
        }
        Kind::Schedulers => reflector().all(|o: &SchedulerConfiguration| {
            read(convert::scheduler_profiles(o), |s| Row::Scheduler(Arc::new(keyed(s))))
        }),
        Kind::Pause => reflector().named(&options.namespace, PAUSE_CONFIG_MAP, |o: &core::v1::ConfigMap| {
            let (held, wrong) = pause(o);
            (Some(Row::Pause(Arc::new(held))), wrong)
        }),
    }
}

/// What is kept of an object, and what is wrong with it.
type Reading = (Option<Row>, Option<String>);

fn read<T>(result: Result<T, Violations>, row: impl FnOnce(T) -> Row) -> Reading {
    match result {
        Ok(value) => (Some(row(value)), None),
        Err(violations) => (None, Some(violations.to_string())),
    }
}

/// A reading of an object that holds times.
fn timed<K>(
    clock: Arc<dyn Clock>,
    convert: impl Fn(&K, &dyn Clock) -> Result<Row, Violations> + Send + 'static,
) -> impl Fn(&K) -> Reading + Send + 'static {
    move |object| read(convert(object, &*clock), |row| row)
}

/// A pod that cannot be understood is kept all the same: it runs.
fn pod(clock: Arc<dyn Clock>) -> impl Fn(&core::v1::Pod) -> Reading + Send + 'static {
    move |object| match ours::pod(object, &*clock) {
        Ok((pod, wrong)) => (Some(Row::Pod(pod)), wrong.map(|why| why.to_string())),
        Err(violations) => (None, Some(violations.to_string())),
    }
}

/// The key of an object, and what is kept of it, to be shared.
fn keyed<K, V>((key, value): (K, V)) -> (K, Arc<V>) {
    (key, Arc::new(value))
}

fn daemon_set(set: convert::DaemonSet) -> Row {
    Row::DaemonSet(Arc::new((set.key, Arc::new(DaemonSet { shape: set.template.shape }))))
}

fn record(object: &OrphanRecord) -> Reading {
    read(convert::records([&object.spec]), |_| Row::Record(Arc::new(object.spec.clone())))
}

/// One kind, and whether its last watch has begun.
struct Reflector {
    kind: Kind,
    client: Client,
    begun: Arc<AtomicBool>,
}

impl Reflector {
    fn new(kind: Kind, client: &Client) -> Self {
        let begun = Arc::default();
        Self { kind, client: listening(client.clone(), Arc::clone(&begun)), begun }
    }

    /// All objects of the kind, in all namespaces.
    fn all<K>(self, read: impl Fn(&K) -> Reading + Send + 'static) -> BoxStream<'static, Step>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + 'static,
    {
        let api = raw::all::<K>(&self.client);
        self.run(api, watcher::Config::default(), Box::new(as_kind(read)))
    }

    /// The object of this name.
    fn named<K>(
        self,
        space: &str,
        name: &str,
        read: impl Fn(&K) -> Reading + Send + 'static,
    ) -> BoxStream<'static, Step>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + DeserializeOwned + 'static,
    {
        let api = raw::namespaced::<K>(&self.client, space);
        self.run(api, watcher::Config::default().fields(&format!("metadata.name={name}")), Box::new(as_kind(read)))
    }

    fn run(self, api: Api<RawObject>, config: watcher::Config, read: ReadRaw) -> BoxStream<'static, Step> {
        let kind = self.kind;
        let page = if kind == Kind::Pods { PODS } else { PAGE };
        let events = watcher(api, config.timeout(WATCH_SECONDS).page_size(page)).default_backoff();
        let steps = events.map(move |event| match event {
            Ok(event) => step(event, &read),
            Err(error) if kind.is_optional() && is_absent(&error) => Step::Absent,
            Err(error) => Step::Failed(trouble(kind, &error)),
        });
        with_beginnings(steps.boxed(), self.begun).boxed()
    }
}

/// Reads an object of a kind that is no longer in the type.
type ReadRaw = Box<dyn Fn(RawObject) -> Reading + Send>;

fn as_kind<K: DeserializeOwned>(read: impl Fn(&K) -> Reading) -> impl Fn(RawObject) -> Reading {
    move |object| match object.read() {
        Ok(object) => read(&object),
        Err(error) => (None, Some(error.to_string())),
    }
}

fn step(event: Event<RawObject>, read: &ReadRaw) -> Step {
    let id = |object: &RawObject| Id {
        namespace: object.meta().namespace.as_deref().unwrap_or_default().into(),
        name: object.meta().name.as_deref().unwrap_or_default().into(),
    };
    match event {
        Event::Init => Step::Listing,
        Event::InitApply(object) | Event::Apply(object) => {
            let version = object.meta().resource_version.as_deref().unwrap_or_default().into();
            let id = id(&object);
            let (row, wrong) = read(object);
            Step::Object(id, Seen { version, row, wrong: wrong.map(Into::into) })
        }
        Event::Delete(object) => Step::Gone(id(&object)),
        Event::InitDone => Step::Listed,
    }
}

/// Says so where a watch has begun: kube's watcher says nothing until something changes, and a kind would look broken
/// for as long. The watcher makes its requests while it is polled, so once it waits, `begun` tells how the last went.
fn with_beginnings(mut steps: BoxStream<'static, Step>, begun: Arc<AtomicBool>) -> impl Stream<Item = Step> + Send {
    poll_fn(move |context| match steps.poll_next_unpin(context) {
        Poll::Pending if begun.swap(false, Ordering::Relaxed) => Poll::Ready(Some(Step::Watching)),
        Poll::Ready(step) => {
            begun.store(false, Ordering::Relaxed);
            Poll::Ready(step)
        }
        Poll::Pending => Poll::Pending,
    })
}

/// The same client, which notes when a watch has begun.
fn listening(client: Client, begun: Arc<AtomicBool>) -> Client {
    let namespace = client.default_namespace().to_owned();
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (client, begun) = (client.clone(), Arc::clone(&begun));
        async move {
            let watches = request.uri().query().is_some_and(|q| q.split('&').any(|p| p == "watch=true"));
            let response = client.send(request).await?;
            begun.store(watches && response.status().is_success(), Ordering::Relaxed);
            Ok::<_, kube::Error>(response)
        }
    });
    Client::new(service, namespace)
}
