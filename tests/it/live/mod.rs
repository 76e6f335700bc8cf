//! Tests of what ships against a real Kubernetes control plane.

mod audit;
mod control_plane;
mod controller;
mod flux;
mod install;
mod kube;
mod manifests;
mod policies;
mod scheduler;
mod uninstall;
mod verdicts;
mod webhook;
