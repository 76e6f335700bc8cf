//! `azure-sim`: what a test stages besides VMs, NICs and disks.

use super::*;

#[test]
fn staged_resources_are_listed() {
    let sim = Sim::start(&["--clock", "virtual", "--page-size", "1"]);
    let stage = |act: Value| sim.control("stage", &act);
    for act in [
        json!({ "machine": { "pool": "nodes", "name": "m", "vm": "aks-m", "tags": { "k": "v" } } }),
        json!({ "scaleSetInstance": { "set": "vmss", "instance": "0", "nics": 1, "disks": ["d"] } }),
        json!({ "snapshot": { "name": "s", "disk": "d", "inProgress": true } }),
        json!({ "publicIp": { "name": "ip", "address": "20.0.0.4" } }),
        json!({ "frontend": { "balancer": "kubernetes", "name": "f", "publicIp": "ip", "rules": 2, "backends": 3 } }),
    ] {
        assert_eq!(stage(act.clone()).status, 200, "{act}");
        assert_eq!(stage(act.clone()).status, 409, "twice: {act}");
    }
    assert_eq!(stage(json!({ "frontend": { "balancer": "b", "name": "f", "backends": 1 } })).status, 409);
    let standing = sim.get("/control/state").body["bystanders"].clone();
    assert_eq!(standing.as_array().unwrap().len(), 5);
    let cluster =
        sim.get(&format!("{}?api-version=2021-04-01", sim.group)).body["managedBy"].as_str().unwrap().to_owned();
    let machines = |version: &str| {
        let path = format!("{cluster}/agentPools/nodes/machines?api-version={version}");
        sim.get(&path).body["value"][0]["properties"].clone()
    };
    assert!(machines("2025-07-01")["resourceId"].as_str().unwrap().ends_with("/virtualMachines/aks-m"));
    assert_eq!(machines("2025-07-01")["tags"], Value::Null, "only previews tell tags");
    assert_eq!(machines("2026-04-02-preview")["tags"]["k"], "v");
    let pools = sim.get(&format!("{cluster}/agentPools?api-version=2025-07-01")).body;
    assert!(pools["nextLink"].is_string(), "one on a page: {pools}");
    let snapshot = |sim: &Sim| {
        let path = sim.resource("Microsoft.Compute", "snapshots", COMPUTE);
        sim.get(&path).body["value"][0]["properties"]["completionPercent"].as_f64()
    };
    assert!(snapshot(&sim).unwrap() < 100.0);
    assert_eq!(stage(json!({ "finishSnapshot": { "name": "s" } })).status, 200);
    assert_eq!(snapshot(&sim), Some(100.0));
    let id = standing[0]["id"].clone();
    assert_eq!(stage(json!({ "delete": { "id": id } })).status, 200);
    assert_eq!(sim.get("/control/state").body["bystanders"].as_array().unwrap().len(), 4);
}

#[test]
fn faults_of_arm_itself_are_injected_shown_and_removed() {
    let sim = Sim::start(&["--clock", "virtual"]);
    assert_eq!(sim.put_nic().status, 201);
    let inject = |fault: Value| {
        let answer = sim.control("faults", &fault);
        assert_eq!(answer.status, 200, "{fault}: {}", answer.body);
        answer.body
    };
    let refused = |method: &str| {
        let body = if method == "PUT" { nic_body() } else { Value::Null };
        let answer = sim.ask(method, &sim.nic(), &body);
        (answer.status, answer.body["error"]["code"].as_str().unwrap_or_default().to_owned())
    };
    let says = |status: u16, code: &str| (status, code.to_owned());
    inject(json!({ "policy": { "assignment": "no-nics", "of": "nics", "times": 1 } }));
    assert_eq!(refused("PUT"), says(403, "RequestDisallowedByPolicy"));
    inject(json!({ "policy": { "assignment": "keep", "deletes": true, "for": "1m" } }));
    assert_eq!(refused("DELETE"), says(403, "RequestDisallowedByPolicy"));
    inject(json!({ "lockdown": { "for": "1m" } }));
    assert_eq!(refused("DELETE"), says(403, "DenyAssignmentAuthorizationFailed"));
    sim.advance("2m");
    inject(json!({ "forbidden": { "for": "1m" } }));
    assert_eq!(refused("PUT"), says(403, "AuthorizationFailed"));
    sim.advance("2m");
    inject(json!({ "listing": { "how": "absent", "of": "machines", "for": "1m" } }));
    inject(json!({ "listLag": { "of": "nics", "hides": "10m" } }));
    inject(json!({ "slow": { "factor": 3 } }));
    inject(json!({ "failLate": { "deletes": true, "times": 1 } }));
    inject(json!({ "raggedPages": { "on": true } }));
    inject(json!({ "pageSize": { "items": 1000 } }));
    let shown = inject(json!({ "rateLimits": { "on": true } }));
    assert_eq!(
        shown["listings"],
        json!([{ "of": "machines", "how": "absent", "until": shown["listings"][0]["until"] }])
    );
    assert_eq!(shown["lags"], json!([{ "of": "nics", "hidesSeconds": 600.0, "keepsSeconds": 0.0 }]));
    assert_eq!(shown["failLate"], json!([{ "deletes": true, "timesLeft": 1 }]));
    assert_eq!((&shown["slow"], &shown["pageSize"], &shown["rateLimits"]), (&json!(3), &json!(1000), &json!(true)));
    let listed = sim.get(&sim.nic().replace("/a?", "?"));
    assert_eq!(listed.header("x-ms-ratelimit-remaining-subscription-reads"), Some("249"));
    assert_eq!(listed.body["value"], json!([]), "the NIC is younger than 10 min");
    for (wrong, expected) in [
        (json!({ "policy": { "assignment": "x" } }), "needs either times or for"),
        (json!({ "pageSize": { "items": 1001 } }), "must be from 1 to 1000"),
        (json!({ "listLag": { "of": "nics" } }), "needs either by"),
        (json!({ "lockdown": { "for": "1m", "id": 1 } }), "unknown field"),
    ] {
        let answer = sim.control("faults", &wrong);
        assert_eq!(answer.status, 400, "{wrong}");
        assert!(answer.body["error"].as_str().unwrap().contains(expected), "{}", answer.body);
    }
    assert_eq!(sim.ask("DELETE", "/control/faults", &Value::Null).status, 200);
    let listed = sim.get(&sim.nic().replace("/a?", "?"));
    assert_eq!(listed.body["value"].as_array().unwrap().len(), 1);
    assert_eq!(listed.header("x-ms-ratelimit-remaining-subscription-reads"), None);
}
