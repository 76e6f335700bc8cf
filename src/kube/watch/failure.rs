//! Messages of failures to read a kind, with remedies.

use super::WatchedKind;
use crate::error::describe;
use kube::Error;
use kube::core::Status;
use kube::runtime::watcher;

/// The problem and its remedy; `None` for routine errors of a watch: it expired and is listed again, or its connection
/// ended and is opened again.
pub(super) fn failure_message(kind: WatchedKind, error: &watcher::Error) -> Option<String> {
    match error {
        watcher::Error::WatchError(status) if status.code == 410 => None,
        watcher::Error::WatchFailed(Error::SerdeError(_)) => Some(format!(
            "cannot parse the API server's responses for {kind}: {error}; check whether this napkeeper supports the \
             version of the API server"
        )),
        watcher::Error::WatchFailed(_) => None,
        watcher::Error::WatchError(status) => Some(refused(kind, status)),
        watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error) => Some(match error {
            Error::Api(status) => refused(kind, status),
            Error::SerdeError(error) => {
                format!(
                    "cannot parse the API server's responses for {kind}: {error}; check whether this napkeeper \
                     supports the version of the API server"
                )
            }
            other => format!(
                "cannot reach the API server for {kind}: {}; check its address, certificate and network",
                describe(other)
            ),
        }),
        watcher::Error::NoResourceVersion => Some(format!("cannot watch {kind}: lists have no resourceVersion")),
    }
}

/// True when the API server does not serve the kind at all.
pub(super) fn is_absent(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::InitialListFailed(Error::Api(status))
        | watcher::Error::WatchStartFailed(Error::Api(status)) => status.code == 404,
        watcher::Error::WatchError(status) => status.code == 404,
        _ => false,
    }
}

fn refused(kind: WatchedKind, status: &Status) -> String {
    let message = if status.message.is_empty() { &status.reason } else { &status.message };
    match status.code {
        401 => format!("the API server rejected the credentials for {kind}: {message}; renew them"),
        403 => format!("not allowed to read {kind}: {message}; grant the service account list and watch on {kind}"),
        404 => format!("{kind} is not served by this cluster: install its CustomResourceDefinition ({message})"),
        code => format!("the API server failed to read {kind} (HTTP {code}): {message}; retrying"),
    }
}
