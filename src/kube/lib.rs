//! Adapter to Kubernetes: which objects does the cluster hold, and how are ours written?
//!
//! Will hold the reflectors that feed a [`napkeeper_core::cluster::Snapshot`], server-side apply with one
//! field manager per use, eviction, events and the Lease. It decides nothing.
