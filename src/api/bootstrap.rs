//! Bootstrap: what does the custom data of a VM tell its kubelet?
//!
//! AKS node images start the kubelet with `/etc/default/kubelet`: `KUBELET_NODE_LABELS` holds the labels, and
//! `KUBELET_FLAGS` the rest (Azure/AgentBaker, `parts/linux/cloud-init`). [`write()`] and [`read`] are each other's
//! reverse.

use napkeeper_core::cluster::pod::Labels;
use napkeeper_core::labels::TAINT_UNREGISTERED;
use napkeeper_core::plan::KubeletSpec;
use std::sync::Arc;

const LABELS: &str = "KUBELET_NODE_LABELS=";
const MAX_PODS: &str = "--max-pods=";

/// The custom data of a VM, as cloud-init reads it.
#[must_use]
pub fn write(kubelet: &KubeletSpec) -> String {
    let labels: Vec<String> = kubelet.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let flags = format!("--register-with-taints={TAINT_UNREGISTERED}=:NoExecute {MAX_PODS}{}", kubelet.max_pods);
    format!(
        "#cloud-config\nwrite_files:\n- path: /etc/default/kubelet\n  permissions: \"0600\"\n  content: |\n    \
         {LABELS}{}\n    KUBELET_FLAGS={flags}\n",
        labels.join(",")
    )
}

/// What custom data tells the kubelet; nothing where it says nothing.
#[must_use]
pub fn read(custom_data: &str) -> KubeletSpec {
    let mut spec = KubeletSpec::default();
    for line in custom_data.lines().map(str::trim) {
        if let Some(pairs) = line.strip_prefix(LABELS) {
            let pairs = pairs.split(',').filter_map(|pair| pair.split_once('='));
            spec.labels = pairs.map(|(key, value)| (Arc::from(key), Arc::from(value))).collect::<Labels>();
        }
        let flag = line.split_whitespace().find_map(|word| word.strip_prefix(MAX_PODS));
        spec.max_pods = flag.and_then(|n| n.parse().ok()).unwrap_or(spec.max_pods);
    }
    spec
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back() {
        let label = |key: &str, value: &str| (Arc::from(key), Arc::from(value));
        let labels = Labels::from([label("kubernetes.io/arch", "amd64"), label("a/b", "")]);
        let spec = KubeletSpec { labels, max_pods: 110 };
        let text = write(&spec);
        assert!(text.contains("KUBELET_NODE_LABELS=a/b=,kubernetes.io/arch=amd64\n"), "{text}");
        assert_eq!(read(&text), spec);
        assert_eq!(read(&write(&KubeletSpec::default())), KubeletSpec::default());
    }
}
