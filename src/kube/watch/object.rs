//! What is kept of a watched object, and the events of a reflector.

use napkeeper_api::types::orphan_record::OrphanRecordSpec;
use napkeeper_core::catalog::overlay::Overlay;
use napkeeper_core::model::cluster::claim::Claim;
use napkeeper_core::model::cluster::node::Node;
use napkeeper_core::model::cluster::pod::{Labels, Pod};
use napkeeper_core::model::cluster::pool::{DaemonSet, NodeClass, NodePool};
use napkeeper_core::model::cluster::volume::{AttachLimits, StorageClass, Volume, VolumeClaim};
use napkeeper_core::model::names::{Namespace, ObjectKey, ObjectName};
use napkeeper_core::model::orphans::sweep::Sweep;
use napkeeper_core::model::settings::Pause;
use napkeeper_core::snapshot::spread_defaults::SchedulerProfiles;
use std::fmt;
use std::sync::Arc;

/// Namespace (empty where there is none) and name, unchecked.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ObjectId {
    pub(super) namespace: Arc<str>,
    pub(super) name: Arc<str>,
}

impl ObjectId {
    /// The same as a pod's key, and of the same text.
    pub(super) fn of(key: &ObjectKey) -> Self {
        Self { namespace: key.namespace.text(), name: key.name.text() }
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            return f.write_str(&self.name);
        }
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// What is kept of an object.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum WatchedObject {
    Pod(Arc<Pod>),
    Node(Arc<Node>),
    Claim(Arc<Claim>),
    Pool(Arc<NodePool>),
    Class(Arc<NodeClass>),
    Overlay(Arc<Overlay>),
    DaemonSet(Arc<(ObjectKey, Arc<DaemonSet>)>),
    Sweep(Arc<Sweep>),
    Record(Arc<OrphanRecordSpec>),
    Volume(Arc<Volume>),
    VolumeClaim(Arc<VolumeClaim>),
    StorageClass(Arc<StorageClass>),
    AttachLimits(Arc<AttachLimits>),
    Namespace(Arc<(Namespace, Arc<Labels>)>),
    Service(Arc<(ObjectKey, Arc<Labels>)>),
    Scheduler(Arc<(ObjectName, Arc<SchedulerProfiles>)>),
    Pause(Arc<Pause>),
}

impl WatchedObject {
    /// What is kept of an object that could be parsed before: all of it, with a pod marked as opaque.
    pub(super) fn unreadable_now(self) -> Self {
        match self {
            Self::Pod(pod) => Self::Pod(Arc::new(Pod { opaque: true, ..Pod::clone(&pod) })),
            row => row,
        }
    }
}

/// An object as last seen. It is small, since there is one for every pod.
#[derive(Debug, Clone)]
pub(super) struct ObjectState {
    /// `metadata.resourceVersion`.
    pub(super) version: Box<str>,
    /// What is kept of it; `None` when it cannot be parsed.
    pub(super) object: Option<WatchedObject>,
    /// What is wrong with it.
    pub(super) wrong: Option<Box<str>>,
}

/// An event of a reflector.
#[derive(Debug)]
pub(super) enum ReflectorEvent {
    /// A listing starts.
    ListStarted,
    /// An object of the listing, or of the watch after it.
    Seen(ObjectId, ObjectState),
    /// An object is gone.
    Gone(ObjectId),
    /// The listing is complete.
    ListDone,
    /// The kind is not served, and need not be: there are none of it.
    Absent,
    /// A watch has started.
    WatchStarted,
    /// A request failed; why, if that is to be reported.
    Failed(Option<String>),
}
