//! `azure-sim`: serving ARM, faults that a test injects, and shutdown.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod arm;

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The longest that anything here may take.
const PATIENCE: Duration = Duration::from_secs(20);
const COMPUTE: &str = "?api-version=2024-07-01";
const NETWORK: &str = "?api-version=2024-05-01";

/// A running server, ended when it goes out of scope.
struct Sim {
    child: Child,
    address: String,
    group: String,
    token: Option<&'static str>,
}

struct Answer {
    status: u16,
    head: String,
    body: Value,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        let line = self.head.lines().find(|line| line.to_ascii_lowercase().starts_with(&format!("{name}: ")))?;
        Some(line[name.len() + 2..].trim())
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        // It may have been ended by the test already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Sim {
    fn start(args: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_napkeeper"))
            .args(["azure-sim", "-o", "json"])
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ready: Value = serde_json::from_str(&line).unwrap();
        let text = |key: &str| ready[key].as_str().unwrap().to_owned();
        assert_eq!(text("control"), format!("{}/control", text("url")));
        let address = text("url").strip_prefix("http://").unwrap().to_owned();
        Self { child, address, group: text("group"), token: None }
    }

    /// Sends a request without waiting for the answer.
    fn send(&self, method: &str, path: &str, body: &Value) -> TcpStream {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let token = self.token.map(|t| format!("Authorization: Bearer {t}\r\n")).unwrap_or_default();
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let host = &self.address;
        let length = body.len();
        let head =
            format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: {length}\r\n");
        stream.write_all(format!("{head}{token}\r\n{body}").as_bytes()).unwrap();
        stream
    }

    fn ask(&self, method: &str, path: &str, body: &Value) -> Answer {
        read(self.send(method, path, body))
    }

    fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &Value::Null)
    }

    fn control(&self, path: &str, body: &Value) -> Answer {
        self.ask("POST", &format!("/control/{path}"), body)
    }

    fn resource(&self, of: &str, name: &str, version: &str) -> String {
        format!("{}/providers/{of}/{name}{version}", self.group)
    }

    fn vm(&self) -> String {
        self.resource("Microsoft.Compute/virtualMachines", "a", COMPUTE)
    }

    fn nic(&self) -> String {
        self.resource("Microsoft.Network/networkInterfaces", "a", NETWORK)
    }

    fn put_nic(&self) -> Answer {
        self.ask("PUT", &self.nic(), &nic_body())
    }

    fn put_vm(&self) -> Answer {
        let nic = format!("{}/providers/Microsoft.Network/networkInterfaces/a", self.group);
        self.ask("PUT", &self.vm(), &vm_body(&nic))
    }

    fn advance(&self, by: &str) {
        assert_eq!(self.control("clock", &json!({ "by": by })).status, 200);
    }

    fn held(&self) -> Vec<Value> {
        self.get("/control/held").body["held"].as_array().unwrap().clone()
    }

    fn stop(&mut self) -> Option<i32> {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        eventually("the server ends", || self.child.try_wait().unwrap().map(|status| status.code()))
    }
}

fn read(mut stream: TcpStream) -> Answer {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, head: head.to_owned(), body: serde_json::from_str(body).unwrap_or(Value::Null) }
}

fn eventually<T>(condition: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "{condition}: not within {PATIENCE:?}");
        std::thread::yield_now();
    }
}

fn nic_body() -> Value {
    let subnet = json!({ "id": "/subscriptions/s/subnet" });
    let address = json!({ "name": "a", "properties": { "primary": true, "subnet": subnet } });
    json!({ "location": "westeurope", "properties": { "ipConfigurations": [address] } })
}

fn vm_body(nic: &str) -> Value {
    let disk = json!({ "name": "a", "createOption": "FromImage", "deleteOption": "Delete", "diskSizeGB": 64 });
    let nic = json!({ "id": nic, "properties": { "primary": true, "deleteOption": "Delete" } });
    json!({
        "location": "westeurope",
        "zones": ["1"],
        "properties": {
            "hardwareProfile": { "vmSize": "Standard_D2s_v5" },
            "networkProfile": { "networkInterfaces": [nic] },
            "storageProfile": { "osDisk": disk },
            "osProfile": { "computerName": "a" },
        },
    })
}

fn run(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_napkeeper")).arg("azure-sim").args(args).output().unwrap()
}

#[test]
fn a_vm_is_created_on_the_wall_clock_and_the_server_stops_on_request() {
    let mut sim = Sim::start(&["--speed", "100"]);
    assert_eq!(sim.put_nic().status, 201);
    let begun = sim.put_vm();
    assert_eq!((begun.status, begun.header("retry-after")), (201, Some("1")));
    assert!(begun.header("x-ms-request-id").is_some() && begun.header("x-ms-correlation-request-id").is_some());
    let operation = begun.header("azure-asyncoperation").unwrap();
    let operation = operation.strip_prefix(&format!("http://{}", sim.address)).unwrap().to_owned();
    eventually("the VM is there", || (sim.get(&operation).body["status"] == "Succeeded").then_some(()));
    assert_eq!(sim.get(&sim.vm()).body["properties"]["provisioningState"], "Succeeded");

    let all = sim.get(&format!("{}/resources?api-version=2021-04-01&$expand=createdTime", sim.group));
    assert_eq!(all.body["value"].as_array().unwrap().len(), 3);
    let requests = sim.get("/control/requests").body;
    assert_eq!(requests["requests"][0]["method"], "PUT");
    assert_eq!(requests["total"], requests["requests"].as_array().unwrap().len());
    assert_eq!(sim.stop(), Some(0));
}

#[test]
fn a_virtual_clock_moves_only_on_request() {
    let sim = Sim::start(&["--clock", "virtual", "--start", "2026-03-01T12:00:00Z"]);
    sim.put_nic();
    sim.put_vm();
    let state = sim.get("/control/state").body;
    assert_eq!(state["now"], "2026-03-01T12:00:00Z");
    assert_eq!((&state["counts"]["Vm"], &state["operations"][0]["kind"]), (&json!(1), &json!("create")));
    sim.advance("90s");
    let state = sim.get("/control/state").body;
    assert_eq!((&state["now"], &state["operations"]), (&json!("2026-03-01T12:01:30Z"), &json!([])));
    let ledger = sim.get("/control/ledger").body;
    let acts: Vec<_> =
        ledger["entries"].as_array().unwrap().iter().map(|e| (&e["act"], &e["by"], &e["kind"])).collect();
    let created = |by: &'static str, kind: &'static str| (json!("created"), json!(by), json!(kind));
    let expected = [created("request", "Nic"), created("cascade", "OsDisk"), created("request", "Vm")];
    assert_eq!(acts, expected.iter().map(|(act, by, kind)| (act, by, kind)).collect::<Vec<_>>());
}

#[test]
fn faults_apply_to_matching_requests_and_can_be_removed() {
    let sim = Sim::start(&["--clock", "virtual"]);
    let to_nics = |times: u32| json!({ "method": "PUT", "path": "networkInterfaces/a", "times": times });
    let throttle = json!({ "throttle": { "retryAfter": "17s", "requests": to_nics(1) } });
    assert_eq!(sim.control("faults", &throttle).status, 200);
    let throttled = sim.put_nic();
    assert_eq!((throttled.status, throttled.header("retry-after")), (429, Some("17")));
    let fail = json!({ "fail": { "status": 503, "code": "ServerBusy", "requests": to_nics(1) } });
    sim.control("faults", &fail);
    let failed = sim.put_nic();
    assert_eq!((failed.status, &failed.body["error"]["code"]), (503, &json!("ServerBusy")));
    assert_eq!(sim.get(&sim.nic()).status, 404, "neither took effect");

    sim.control("faults", &json!({ "garbage": { "requests": to_nics(1) } }));
    let garbled = sim.put_nic();
    assert_eq!((garbled.status, &garbled.body), (200, &Value::Null));
    assert_eq!(sim.get(&sim.nic()).status, 200, "it took effect");

    sim.control("faults", &json!({ "lock": { "for": "1h" } }));
    assert_eq!(sim.ask("DELETE", &sim.nic(), &Value::Null).status, 409);
    assert_eq!(sim.ask("DELETE", "/control/faults", &Value::Null).status, 200);
    assert_eq!(sim.ask("DELETE", &sim.nic(), &Value::Null).status, 202);

    sim.control("faults", &json!({ "quota": { "of": "standardDSv5Family", "cores": 0 } }));
    sim.advance("10s");
    sim.put_nic();
    let refused = sim.put_vm();
    assert_eq!((refused.status, &refused.body["error"]["code"]), (409, &json!("OperationNotAllowed")));
}

#[test]
fn a_request_that_is_held_before_takes_effect_only_if_it_is_released() {
    let sim = Sim::start(&["--clock", "virtual"]);
    let hang = json!({ "hang": { "when": "before", "requests": { "method": "PUT", "times": 2 } } });
    sim.control("faults", &hang);
    let caller = sim.send("PUT", &sim.nic(), &nic_body());
    let held = eventually("the request is held", || sim.held().pop());
    assert_eq!((&held["when"], &held["method"]), (&json!("before"), &json!("PUT")));
    caller.shutdown(Shutdown::Both).unwrap();
    drop(caller);
    eventually("the server notices that the caller is gone", || sim.held().is_empty().then_some(()));
    assert_eq!(sim.get(&sim.nic()).status, 404);
    let log = sim.get("/control/requests").body;
    assert_eq!(log["requests"][0]["status"], 0, "it was never answered");

    let caller = sim.send("PUT", &sim.nic(), &nic_body());
    let held = eventually("the second is held", || sim.held().pop());
    assert_eq!(sim.control("release", &json!({ "id": held["id"] })).status, 200);
    assert_eq!(read(caller).status, 201);
}

#[test]
fn a_request_held_after_its_effect_has_taken_effect() {
    let sim = Sim::start(&["--clock", "virtual"]);
    sim.control("faults", &json!({ "hang": { "when": "after", "requests": { "method": "PUT", "times": 1 } } }));
    let caller = sim.send("PUT", &sim.nic(), &nic_body());
    eventually("the answer is held", || sim.held().pop());
    drop(caller);
    eventually("the server notices that the caller is gone", || sim.held().is_empty().then_some(()));
    assert_eq!(sim.get(&sim.nic()).status, 200);
}

#[test]
fn a_server_that_holds_requests_stops_all_the_same() {
    let mut sim = Sim::start(&["--clock", "virtual"]);
    sim.control("faults", &json!({ "hang": { "when": "before", "requests": { "method": "PUT" } } }));
    let _caller = sim.send("PUT", &sim.nic(), &nic_body());
    eventually("the request is held", || sim.held().pop());
    assert_eq!(sim.stop(), Some(0));
}

#[test]
fn other_clients_leak_resources_and_azure_evicts_a_spot_vm() {
    let sim = Sim::start(&["--clock", "virtual"]);
    let tags = json!({ "napkeeper.io_cluster": "demo" });
    let nic = sim.control("stage", &json!({ "leakNic": { "name": "left", "tags": tags } }));
    let path = format!("{}{NETWORK}", nic.body["id"].as_str().unwrap());
    assert_eq!(sim.get(&path).body["tags"], tags);
    assert_eq!(sim.control("stage", &json!({ "leakNic": { "name": "left" } })).status, 409);
    let vm = json!({ "name": "s", "size": "Standard_D2s_v5", "zone": "westeurope-2", "capacityType": "spot" });
    assert_eq!(sim.control("stage", &json!({ "leakVm": vm })).status, 200);
    assert_eq!(sim.control("stage", &json!({ "evictSpot": { "name": "s" } })).status, 200);
    sim.advance("30s");
    let state = sim.get("/control/state").body;
    assert_eq!((&state["counts"]["Vm"], &state["counts"]["Nic"]), (&json!(0), &json!(1)));
}

#[test]
fn unknown_fields_of_a_control_body_are_rejected() {
    let sim = Sim::start(&[]);
    for (path, body, words) in [
        ("faults", json!({ "lock": { "for": "1h", "id": 1 } }), "unknown field `id`"),
        ("faults", json!({ "hail": {} }), "unknown variant `hail`"),
        ("faults", json!({ "hang": { "when": "before", "requests": { "path": "(" } } }), "path: "),
        ("faults", json!({ "lock": { "for": "soon" } }), "is not a duration"),
        ("faults", json!({ "shortage": { "how": "refused" } }), "either times or for"),
        ("stage", json!({ "leakNic": { "name": "a/b" } }), "name \"a/b\""),
        ("release", json!({ "ids": [1] }), "unknown field `ids`"),
    ] {
        let answer = sim.control(path, &body);
        let error = answer.body["error"].as_str().unwrap_or_default().to_owned();
        assert!(answer.status == 400 && error.contains(words), "{body}: {} {error}", answer.status);
    }
    assert_eq!(sim.control("clock", &json!({ "by": "1s" })).status, 409, "the wall clock is not moved");
    assert_eq!(sim.get("/control/nothing").status, 404);
}

#[test]
fn callers_need_the_token() {
    let mut sim = Sim::start(&["--token", "s3cret"]);
    assert_eq!(sim.get(&sim.nic()).body["error"]["code"], "AuthenticationFailed");
    sim.token = Some("s3cre");
    let refused = sim.get(&sim.nic());
    assert_eq!((refused.status, &refused.body["error"]["code"]), (401, &json!("InvalidAuthenticationToken")));
    sim.token = Some("s3cret");
    assert_eq!(sim.get(&sim.nic()).status, 404);
}

#[test]
fn an_offset_file_moves_the_wall_clock() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("offset");
    let sim = Sim::start(&["--time-offset-file", file.to_str().unwrap()]);
    sim.put_nic();
    sim.put_vm();
    let running = || sim.get("/control/state").body["operations"].as_array().unwrap().len();
    assert_eq!(running(), 1);
    std::fs::write(&file, "2020-01-01T00:00:00Z 2m\n").unwrap();
    eventually("the VM is there two minutes early", || (running() == 0).then_some(()));
}

#[test]
fn invalid_flags_exit_with_2() {
    for (args, words) in [
        (&["--bind", "0.0.0.0:0"][..], "--allow-remote"),
        (&["--region", "westeuorpe"], "did you mean westeurope?"),
        (&["--start", "2026-03-01T12:00:00Z"], "requires --clock virtual"),
        (&["--clock", "virtual", "--time-offset-file", "x"], "requires --clock wall"),
        (&["--join", "/nowhere/kubeconfig"], "reading the kubeconfig /nowhere/kubeconfig"),
        (&["--speed", "0"], "--speed"),
    ] {
        let output = run(args);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {error}");
        assert!(error.contains(words), "{args:?}: {error}");
        assert!(output.stdout.is_empty());
    }
}
