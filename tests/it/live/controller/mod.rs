//! Tests of the controller in a cluster: what it launches, keeps, deletes, and what it survives.

mod availability;
mod buffers;
pub(super) mod companion;
mod facts;
mod identities;
mod kills;
mod moves;
mod outages;
mod quick_start;
mod replacements;
mod replicas;
mod restored_etcd;
mod statuses;
mod sweeps;
mod unclaimed_node;
