//! Tests against a real Kubernetes control plane that must run alone.

mod bad_hooks;
mod controller_floods;
mod hooks;
mod random_kills;
mod restarts;
