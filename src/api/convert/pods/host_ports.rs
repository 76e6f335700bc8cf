//! Conversion of host ports.
//!
//! As kube-scheduler's NodePorts does: containers, and init containers that go on running.

use crate::convert::violations::Violations;
use crate::field_path::Path;
use k8s_openapi::api::core::v1::{Container, ContainerPort, PodSpec};
use napkeeper_core::model::cluster::pod::HostPort;
use std::sync::{Arc, LazyLock};

/// The protocols, shared by all ports of all pods.
static PROTOCOLS: LazyLock<[Arc<str>; 3]> = LazyLock::new(|| ["TCP", "UDP", "SCTP"].map(Arc::from));

/// The host ports of the containers, sorted, each once.
pub(crate) fn host_ports(spec: &PodSpec, at: &Path, found: &mut Violations) -> Vec<HostPort> {
    let on_host = spec.host_network == Some(true);
    let is_sidecar = |c: &Container| c.restart_policy.as_deref() == Some("Always");
    let sidecars = spec.init_containers.iter().flatten().enumerate().filter(|(_, c)| is_sidecar(c));
    let sidecars = sidecars.map(|(i, c)| (c, "initContainers", i));
    let containers = spec.containers.iter().enumerate().map(|(i, c)| (c, "containers", i));
    let mut all = Vec::new();
    for (container, list, i) in containers.chain(sidecars) {
        for (j, port) in container.ports.iter().flatten().enumerate() {
            let Some(number) = number(port, on_host) else { continue };
            let at = at.key(list).index(i).key("ports").index(j);
            all.extend(host_port(port, number, &at, found));
        }
    }
    all.sort_unstable();
    all.dedup();
    all
}

/// The host port. With host network every container port is one.
fn number(port: &ContainerPort, on_host: bool) -> Option<i32> {
    port.host_port.filter(|n| *n != 0).or_else(|| on_host.then_some(port.container_port))
}

fn host_port(port: &ContainerPort, number: i32, at: &Path, found: &mut Violations) -> Option<HostPort> {
    let number = u16::try_from(number).ok().filter(|n| *n > 0).ok_or("must be 1 to 65535");
    let number = found.take(&at.key("hostPort"), number);
    let protocol = port.protocol.as_deref().filter(|p| !p.is_empty()).unwrap_or("TCP");
    let protocol = PROTOCOLS.iter().find(|known| &***known == protocol).ok_or("must be TCP, UDP or SCTP");
    let protocol = found.take(&at.key("protocol"), protocol);
    let address = port.host_ip.as_deref().filter(|ip| !matches!(*ip, "" | "0.0.0.0" | "::"));
    Some(HostPort { port: number?, protocol: Arc::clone(protocol?), address: address.map(Arc::from) })
}
