//! The state of a watched object, and the events of a reflector.

use napkeeper_api::types::orphan_record::OrphanRecordSpec;
use napkeeper_core::model::cluster::pod::Pod;
use napkeeper_core::model::names::ObjectKey;
use napkeeper_core::model::settings::Pause;
use napkeeper_core::snapshot::delta::Delta;
use std::fmt;
use std::sync::Arc;

/// Namespace (empty if cluster-scoped) and name, unchecked.
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

/// The state of an object.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum WatchedObject {
    /// The change that adds it to the Snapshot.
    Put(Delta),
    Record(Arc<OrphanRecordSpec>),
    Pause(Arc<Pause>),
}

impl From<Delta> for WatchedObject {
    fn from(put: Delta) -> Self {
        Self::Put(put)
    }
}

impl WatchedObject {
    /// The last valid state of an object that is invalid now: unchanged, but a pod is opaque.
    pub(super) fn unreadable_now(self) -> Self {
        match self {
            Self::Put(Delta::Pod(pod)) => Delta::Pod(Arc::new(Pod { opaque: true, ..Pod::clone(&pod) })).into(),
            row => row,
        }
    }
}

/// An object as last seen. It is small, since there is one for every pod.
#[derive(Debug, Clone)]
pub(super) struct ObjectState {
    /// `metadata.resourceVersion`.
    pub(super) version: Box<str>,
    /// Its state; `None` if it is invalid.
    pub(super) object: Option<WatchedObject>,
    /// Its violations.
    pub(super) wrong: Option<Box<str>>,
}

/// An event of a reflector.
#[derive(Debug)]
pub(super) enum ReflectorEvent {
    /// A listing starts.
    ListStarted,
    /// An object of the listing, or of the watch after it.
    Seen(ObjectId, ObjectState),
    /// An object was deleted.
    Gone(ObjectId),
    /// The listing is complete.
    ListDone,
    /// The kind is optional and not served: it has no objects.
    Absent,
    /// A watch has started.
    WatchStarted,
    /// A request failed; why, if that is to be reported.
    Failed(Option<String>),
}
