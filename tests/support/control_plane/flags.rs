//! The flags of each program of a control plane.

use super::pki::Pki;
use super::{Mode, Options, ports, stages};
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Ports and paths of one control plane.
pub(crate) struct Layout {
    folder: PathBuf,
    apiserver: u16,
    etcd: u16,
    etcd_peers: u16,
    kwok: u16,
    more: Vec<String>,
    controller_manager: Vec<String>,
    scheduler_profiles: Vec<Value>,
    kubelet_elsewhere: Option<&'static str>,
}

impl Layout {
    /// Free ports for programs that keep their files in `folder`.
    pub(crate) fn new(folder: &Path, options: &Options) -> Result<Self> {
        let [apiserver, etcd, etcd_peers, kwok] = ports::free()?;
        Ok(Self {
            folder: folder.to_owned(),
            apiserver,
            etcd,
            etcd_peers,
            kwok,
            more: options.apiserver_flags.clone(),
            controller_manager: options.controller_manager_flags.clone(),
            scheduler_profiles: options.scheduler_profiles.clone(),
            kubelet_elsewhere: options.kubelet_elsewhere,
        })
    }

    /// The port of kube-apiserver.
    pub(crate) fn port(&self) -> u16 {
        self.apiserver
    }

    /// Adds the flags of kube-apiserver for a mode.
    pub(crate) fn mode_flags(&mut self, mode: Mode) {
        // Without the controller of ServiceAccounts no pod could be created, for lack of the one named default; without
        // that of Nodes none would lose its not-ready taint; and without that of volumes their finalizers would never
        // be removed.
        let without = match mode {
            Mode::Api => "ServiceAccount",
            Mode::Scheduling => "ServiceAccount,TaintNodesByCondition,StorageObjectInUseProtection",
            Mode::Full => return,
        };
        self.more.insert(0, format!("--disable-admission-plugins={without}"));
    }

    /// The folder of etcd's data.
    pub(crate) fn etcd_data(&self) -> PathBuf {
        self.folder.join("etcd")
    }

    pub(crate) fn etcd(&self) -> Vec<String> {
        let client = format!("http://127.0.0.1:{}", self.etcd);
        let peer = format!("http://127.0.0.1:{}", self.etcd_peers);
        vec![
            "--name=test".to_owned(),
            format!("--data-dir={}", self.etcd_data().display()),
            // The data need not survive the machine.
            "--unsafe-no-fsync".to_owned(),
            "--log-level=warn".to_owned(),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=test={peer}"),
        ]
    }

    pub(crate) fn apiserver(&self, pki: &Pki) -> Vec<String> {
        let server = pki.pair("apiserver");
        let accounts = pki.pair("service-accounts");
        let mut flags = vec![
            format!("--etcd-servers=http://127.0.0.1:{}", self.etcd),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={}", self.apiserver),
            // A loopback address is not allowed in the Endpoints of the Service `kubernetes`.
            "--endpoint-reconciler-type=none".to_owned(),
            format!("--tls-cert-file={}", server.certificate.display()),
            format!("--tls-private-key-file={}", server.key.display()),
            format!("--client-ca-file={}", pki.pair("ca").certificate.display()),
            "--anonymous-auth=false".to_owned(),
            "--enable-bootstrap-token-auth=true".to_owned(),
            "--authorization-mode=RBAC".to_owned(),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            format!("--service-account-key-file={}", accounts.certificate.display()),
            format!("--service-account-signing-key-file={}", accounts.key.display()),
            "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
        ];
        flags.extend(self.more.iter().cloned());
        flags
    }

    pub(crate) fn controller_manager(&self, pki: &Pki) -> Vec<String> {
        let ca = pki.pair("ca");
        let mut flags = vec![
            "--secure-port=0".to_owned(),
            "--leader-elect=false".to_owned(),
            "--use-service-account-credentials=true".to_owned(),
            format!("--service-account-private-key-file={}", pki.pair("service-accounts").key.display()),
            format!("--root-ca-file={}", ca.certificate.display()),
            format!("--cluster-signing-cert-file={}", ca.certificate.display()),
            format!("--cluster-signing-key-file={}", ca.key.display()),
            // Else it makes a folder under /usr.
            format!("--flex-volume-plugin-dir={}", self.folder.join("flex").display()),
        ];
        flags.extend(self.controller_manager.iter().cloned());
        flags
    }

    /// Also writes the configuration, beside which equivalent flags are ignored.
    pub(crate) fn scheduler(&self, kubeconfig: &Path) -> Result<Vec<String>> {
        let configuration = json!({
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            // Without rates of its own it binds as fast as the API server takes it.
            "clientConnection": { "kubeconfig": kubeconfig, "qps": 2000, "burst": 2000 },
            "leaderElection": { "leaderElect": false },
            "profiles": self.scheduler_profiles,
        });
        let file = self.folder.join("kube-scheduler.json");
        std::fs::write(&file, configuration.to_string()).with_context(|| format!("writing {}", file.display()))?;
        Ok(vec![
            format!("--config={}", file.display()),
            "--secure-port=0".to_owned(),
            // Else it reuses the scores of a pod for an identical one that follows within 500 ms, and its choice depends
            // on how busy the machine is.
            "--feature-gates=OpportunisticBatching=false".to_owned(),
        ])
    }

    /// Also writes the stages, made from those that kwok ships.
    pub(crate) fn kwok(&self, shipped: &Path) -> Result<Vec<String>> {
        let stages = stages::write(shipped, &self.folder, self.kubelet_elsewhere)?;
        Ok(vec![
            format!("--config={}", stages.display()),
            "--manage-all-nodes=true".to_owned(),
            "--cidr=10.244.0.1/16".to_owned(),
            "--node-ip=127.0.0.1".to_owned(),
            "--node-lease-duration-seconds=40".to_owned(),
            format!("--server-address=127.0.0.1:{}", self.kwok),
        ])
    }
}
