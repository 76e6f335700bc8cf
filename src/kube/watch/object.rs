//! What is kept of a watched object, and the events of a reflector.

use napkeeper_api::types::orphan_record::OrphanRecordSpec;
use napkeeper_core::model::cluster::pod::Pod;
use napkeeper_core::model::names::ObjectKey;
use napkeeper_core::model::settings::Pause;
use napkeeper_core::snapshot::delta::Delta;
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
    /// What puts it into the Snapshot.
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
    /// What is kept of an object that could be parsed before: all of it, with a pod marked as opaque.
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
