//! `webhook`: serving, shutdown, and no Azure credentials.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Longest wait for the process.
const PATIENCE: Duration = Duration::from_secs(30);

/// Ends the process with the test, however that ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// An address that counts connections and never responds: metadata service, authority and proxy in one.
fn trap() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&calls);
    std::thread::spawn(move || {
        for _ in listener.incoming() {
            counter.fetch_add(1, Ordering::SeqCst);
        }
    });
    (url, calls)
}

/// The trap counts connections.
fn counts(url: &str, calls: &AtomicUsize) {
    drop(TcpStream::connect(url.trim_start_matches("http://")).unwrap());
    let deadline = Instant::now() + PATIENCE;
    while calls.load(Ordering::SeqCst) == 0 && Instant::now() < deadline {
        std::thread::park_timeout(Duration::from_millis(20));
    }
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

fn pair(folder: &Path) -> String {
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap().pem();
    std::fs::write(folder.join("tls.crt"), &certificate).unwrap();
    std::fs::write(folder.join("tls.key"), key.serialize_pem()).unwrap();
    certificate
}

fn webhook(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_napkeeper"));
    command.args(["webhook", "--tls-cert", "tls.crt", "--tls-key", "tls.key", "--bind", "127.0.0.1:0"]);
    command.args(["--health-bind", "127.0.0.1:0", "--metrics-bind", "127.0.0.1:0"]);
    command.current_dir(folder).stderr(Stdio::piped()).stdout(Stdio::null());
    command
}

/// The ports that the log names: of admission, probes and metrics.
fn ports(child: &mut Child) -> (u16, u16, u16) {
    let mut log = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while log.read_line(&mut line).unwrap() > 0 {
        let entry: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("no JSON: {line}"));
        if entry["message"] == "webhook listening" {
            let port = |key: &str| entry[key].as_str().unwrap().rsplit(':').next().unwrap().parse().unwrap();
            let found = (port("admission"), port("health"), port("metrics"));
            // Logging to a closed pipe would end the process.
            std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
            return found;
        }
        line.clear();
    }
    panic!("the webhook ended before it listened");
}

fn review(uid: &str, kind: (&str, &str, &str), object: &Value) -> Value {
    let (group, version, kind) = kind;
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": uid, "kind": { "group": group, "version": version, "kind": kind },
            "operation": "CREATE", "namespace": "shop", "object": object,
        },
    })
}

async fn ask(client: &reqwest::Client, url: &str, review: &Value) -> Value {
    let mut answer: Value = client.post(url).json(review).send().await.unwrap().json().await.unwrap();
    answer["response"].take()
}

fn ends(child: &mut Child) -> Option<i32> {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        std::thread::park_timeout(Duration::from_millis(20));
    }
    panic!("the webhook did not end");
}

fn client_that_trusts(root: &str) -> reqwest::Client {
    drop(rustls::crypto::ring::default_provider().install_default());
    let root = reqwest::Certificate::from_pem(root.as_bytes()).unwrap();
    reqwest::Client::builder().add_root_certificate(root).no_proxy().timeout(PATIENCE).build().unwrap()
}

#[test]
fn admission_is_served_without_an_azure_credential() {
    let folder = tempfile::tempdir().unwrap();
    let (root, (url, calls)) = (pair(folder.path()), trap());
    std::fs::write(folder.path().join("token"), "secret").unwrap();
    let mut command = webhook(folder.path());
    command.env("AZURE_CLIENT_ID", "client").env("AZURE_TENANT_ID", "tenant").env("IDENTITY_HEADER", "secret");
    command.env("AZURE_FEDERATED_TOKEN_FILE", folder.path().join("token"));
    for variable in [
        "AZURE_AUTHORITY_HOST",
        "IDENTITY_ENDPOINT",
        "MSI_ENDPOINT",
        "AZURE_POD_IDENTITY_AUTHORITY_HOST",
        "HTTP_PROXY",
        "HTTPS_PROXY",
    ] {
        command.env(variable, &url);
    }
    let mut process = Running(command.spawn().unwrap());
    let (admission, health, metrics) = ports(&mut process.0);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = client_that_trusts(&root);
        let base = format!("https://localhost:{admission}");
        let class = json!({
            "apiVersion": "karpenter.azure.com/v1beta1", "kind": "AKSNodeClass", "metadata": { "name": "a" },
            "spec": { "maxPods": 9 },
        });
        let refused = review("a", ("karpenter.azure.com", "v1beta1", "AKSNodeClass"), &class);
        let answer = ask(&client, &format!("{base}/validate?timeout=2s"), &refused).await;
        assert_eq!(
            (&answer["allowed"], &answer["uid"], &answer["status"]["code"]),
            (&json!(false), &json!("a"), &json!(422))
        );
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "generateName": "a-" },
            "spec": { "containers": [{ "name": "a" }] },
        });
        let answer = ask(&client, &format!("{base}/mutate?timeout=2s"), &review("b", ("", "v1", "Pod"), &pod)).await;
        assert_eq!(answer, json!({ "uid": "b", "allowed": true }));
        let get = |path: &str| client.get(format!("http://127.0.0.1:{health}{path}")).send();
        // Where there is no cluster to reach it is ready at once, but not sooner than it has looked.
        let start = Instant::now();
        while get("/readyz").await.unwrap().status() != 200 {
            assert!(start.elapsed() < PATIENCE, "it is not ready");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(get("/metrics").await.unwrap().status(), 404);
        let metrics = client.get(format!("http://127.0.0.1:{metrics}/metrics")).send().await.unwrap();
        let metrics = metrics.text().await.unwrap();
        assert!(
            metrics.contains(r#"napkeeper_admission_requests_total{path="/validate",outcome="refused"} 1"#),
            "{metrics}"
        );
    });
    drop(runtime); // An open connection would be waited for until the grace time is over.
    let pid = process.0.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert_eq!(ends(&mut process.0), Some(0));
    assert_eq!(calls.load(Ordering::SeqCst), 0, "somebody was asked for an Azure credential, or for anything");
    counts(&url, &calls);
}

#[test]
fn a_missing_certificate_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let output = webhook(folder.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("cannot read the TLS certificate tls.crt"), "{text}");
}

/// A cluster that accepts and never answers holds back readiness for a while, and no verdict.
#[test]
fn policies_that_cannot_be_used_are_named_before_anything_is_served() {
    let folder = tempfile::tempdir().unwrap();
    pair(folder.path());
    let ask = |policies: &Path| {
        let output = webhook(folder.path()).arg("--policies").arg(policies).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, error) = ask(&folder.path().join("none.yaml"));
    assert!(code == Some(2) && error.contains("none.yaml"), "{code:?} {error}");
    let file = folder.path().join("policy.yaml");
    std::fs::write(&file, "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}").unwrap();
    let (code, error) = ask(&file);
    assert!(code == Some(2) && error.contains("no ValidatingAdmissionPolicy"), "{code:?} {error}");
    let broken = "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\n\
                  metadata: {name: a}\nspec: {policyName: b, validationActions: [Deny, Warn]}\n";
    std::fs::write(&file, broken).unwrap();
    let (code, error) = ask(&file);
    assert!(code == Some(2) && error.contains("policy.yaml:4:") && error.contains("cannot be combined"), "{error}");
}

#[test]
fn it_waits_for_the_cluster_but_not_for_ever() {
    let folder = tempfile::tempdir().unwrap();
    let (root, (url, _)) = (pair(folder.path()), trap());
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "a",
        "clusters": [{ "name": "a", "cluster": { "server": url } }],
        "users": [{ "name": "a", "user": {} }],
        "contexts": [{ "name": "a", "context": { "cluster": "a", "user": "a" } }],
    });
    std::fs::write(folder.path().join("config"), config.to_string()).unwrap();
    let start = Instant::now();
    let mut process = Running(webhook(folder.path()).args(["--kubeconfig", "config"]).spawn().unwrap());
    let (admission, health, _) = ports(&mut process.0);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = client_that_trusts(&root);
        let class = json!({
            "apiVersion": "karpenter.azure.com/v1beta1", "kind": "AKSNodeClass", "metadata": { "name": "a" },
            "spec": { "maxPods": 9 },
        });
        let refused = review("a", ("karpenter.azure.com", "v1beta1", "AKSNodeClass"), &class);
        let answer = ask(&client, &format!("https://localhost:{admission}/validate"), &refused).await;
        assert_eq!(answer["allowed"], false, "{answer}");
        let ready = || async {
            let answer = client.get(format!("http://127.0.0.1:{health}/readyz")).send().await.unwrap();
            (answer.status().as_u16(), answer.text().await.unwrap())
        };
        let (status, text) = ready().await;
        assert_eq!((status, text.lines().count()), (503, 2), "{text}");
        assert!(text.starts_with("[-] caches: "), "{text}");
        while ready().await.0 != 200 {
            assert!(start.elapsed() < 2 * PATIENCE, "it is not ready yet");
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
        assert!(start.elapsed() >= Duration::from_secs(29), "it was ready after {:?}", start.elapsed());
    });
}

/// Without a cluster it can check no object completely: with `--when-unable refuse` it says so, and is not ready.
#[test]
fn a_webhook_that_fails_closed_refuses_until_it_knows_the_cluster() {
    let folder = tempfile::tempdir().unwrap();
    let root = pair(folder.path());
    let args = ["--kubeconfig", "no-such-file", "--when-unable", "refuse"];
    let mut process = Running(webhook(folder.path()).args(args).spawn().unwrap());
    let (admission, health, metrics) = ports(&mut process.0);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = client_that_trusts(&root);
        let class = json!({
            "apiVersion": "karpenter.azure.com/v1beta1", "kind": "AKSNodeClass", "metadata": { "name": "a" }, "spec": {},
        });
        let good = review("a", ("karpenter.azure.com", "v1beta1", "AKSNodeClass"), &class);
        let get = |port: u16, path: &str| client.get(format!("http://127.0.0.1:{port}{path}")).send();
        let start = Instant::now();
        // It refuses at once, and says why when it has tried to reach the cluster.
        loop {
            let answer = ask(&client, &format!("https://localhost:{admission}/validate"), &good).await;
            assert_eq!((&answer["allowed"], &answer["status"]["code"]), (&json!(false), &json!(503)), "{answer}");
            if answer["status"]["message"].as_str().unwrap().contains("cannot reach the cluster: ") {
                break;
            }
            assert!(start.elapsed() < PATIENCE, "no reason is given: {answer}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let answer = get(health, "/readyz").await.unwrap();
        assert_eq!(answer.status(), 503);
        let text = answer.text().await.unwrap();
        assert!(text.contains("[-] caches: cannot reach the cluster: "), "{text}");
        assert_eq!(get(health, "/healthz").await.unwrap().status(), 200, "a restart would not help");
        let text = get(metrics, "/metrics").await.unwrap().text().await.unwrap();
        assert!(text.contains("outcome=\"failed_closed\""), "{text}");
    });
}

#[test]
fn without_files_and_cluster_the_missing_input_is_named() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_napkeeper"));
    command.args(["webhook", "--bind", "127.0.0.1:0", "--health-bind", "127.0.0.1:0", "--kubeconfig", "no-such-file"]);
    command.args(["--metrics-bind", "127.0.0.1:0"]);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("without --tls-cert and --tls-key") && text.contains("no-such-file"), "{text}");
    let output = command.args(["--tls-cert", "a"]).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("--tls-key"), "{text}");
}

#[test]
fn certificates_need_a_cluster_and_have_no_port() {
    let run = |args: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_napkeeper")).arg("certificates").args(args).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, text) = run(&["--kubeconfig", "no-such-file"]);
    assert_eq!(code, Some(2));
    assert!(text.contains("requires access to the cluster") && text.contains("no-such-file"), "{text}");
    for flag in ["--bind", "--health-bind", "--metrics-bind"] {
        let (code, text) = run(&[flag, "127.0.0.1:0"]);
        assert!(code == Some(2) && text.contains("unexpected argument"), "{flag}: {text}");
    }
}

#[test]
fn a_budget_that_the_hook_would_not_wait_for_is_refused() {
    for (budget, expected) in [("2s", "1ms to 1s"), ("0ms", "1ms to 1s"), ("soon", "such as 5ms")] {
        let run =
            Command::new(env!("CARGO_BIN_EXE_napkeeper")).args(["webhook", "--hint-budget", budget]).output().unwrap();
        let error = String::from_utf8(run.stderr).unwrap();
        assert!(!run.status.success() && error.contains(expected), "{budget}: {error}");
    }
}
