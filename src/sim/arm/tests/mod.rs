//! Requests and responses, as an adapter sees them.

mod resource_json;

use super::*;
use crate::cloud::fixtures::{at, cloud, offering};
use crate::cloud::{FaultDuration, LateFailure, ListedKind, ListingFault, PolicyAssignment, Shortage, Throttling};
use jiff::SignedDuration;
use napkeeper_core::catalog::CapacityType;
use napkeeper_core::model::azure::cloud::Tags;

const GROUP: &str = "/subscriptions/s/resourceGroups/MC_group";
const ORIGIN: &str = "https://management.azure.com";

pub(super) fn ask(cloud: &mut Cloud, method: &str, path: &str, body: &Value, secs: i64) -> Response {
    let body = if body.is_null() { Vec::new() } else { serde_json::to_vec(body).unwrap() };
    let request =
        Request { method, origin: ORIGIN, path_and_query: path, body: &body, conditions: Conditions::default() };
    handle(cloud, &request, at(secs))
}

fn ask_if(cloud: &mut Cloud, path: &str, body: &Value, conditions: Conditions<'_>) -> Response {
    let body = serde_json::to_vec(body).unwrap();
    let request = Request { method: "PUT", origin: ORIGIN, path_and_query: path, body: &body, conditions };
    handle(cloud, &request, at(0))
}

pub(super) fn get(cloud: &mut Cloud, path: &str, secs: i64) -> Response {
    ask(cloud, "GET", path, &Value::Null, secs)
}

pub(super) fn path(of: &str, name: &str) -> String {
    let slash = if name.is_empty() { "" } else { "/" };
    format!("{GROUP}/providers/{of}{slash}{name}?api-version=2024-03-01")
}

pub(super) fn vm_path() -> String {
    path("Microsoft.Compute/virtualMachines", "a")
}

pub(super) fn nic_path() -> String {
    path("Microsoft.Network/networkInterfaces", "a")
}

pub(super) fn nic_body() -> Value {
    json!({
        "location": "westeurope",
        "tags": { "napkeeper.io_cluster": "c" },
        "properties": { "ipConfigurations": [
            { "name": "a", "properties": { "primary": true, "subnet": { "id": "/subscriptions/s/subnet" } } }
        ] },
    })
}

pub(super) fn vm_body() -> Value {
    let nic = format!("{GROUP}/providers/Microsoft.Network/networkInterfaces/a");
    json!({
        "location": "westeurope",
        "zones": ["2"],
        "tags": { "napkeeper.io_nodeclaim": "pool-x7f2p" },
        "properties": {
            "hardwareProfile": { "vmSize": "Standard_D4s_v5" },
            "priority": "Spot",
            "evictionPolicy": "Delete",
            "networkProfile": { "networkInterfaces": [
                { "id": nic, "properties": { "primary": true, "deleteOption": "Delete" } }
            ] },
            "storageProfile": { "osDisk": {
                "name": "a", "createOption": "FromImage", "deleteOption": "Delete", "diskSizeGB": 64
            } },
            "osProfile": { "computerName": "a" },
        },
    })
}

fn launch(cloud: &mut Cloud) -> Response {
    assert_eq!(ask(cloud, "PUT", &nic_path(), &nic_body(), 0).status, 201);
    ask(cloud, "PUT", &vm_path(), &vm_body(), 0)
}

/// The path of the operation that a response began.
fn operation(response: &Response) -> String {
    let url = response.header("azure-asyncoperation").unwrap();
    url.strip_prefix(ORIGIN).unwrap().to_owned()
}

fn body(response: Response) -> Value {
    assert_eq!(response.status, 200, "{response:?}");
    response.body.unwrap()
}

fn error_of(response: &Response) -> (u16, &str) {
    let code = &response.body.as_ref().unwrap()["error"]["code"];
    (response.status, code.as_str().unwrap())
}

#[test]
fn a_vm_is_put_polled_read_and_deleted() {
    let mut cloud = cloud(1);
    let begun = launch(&mut cloud);
    assert_eq!(begun.status, 201);
    let state = |vm: &Value| vm["properties"]["provisioningState"].clone();
    assert_eq!(state(begun.body.as_ref().unwrap()), "Creating");
    let url = operation(&begun);
    assert_eq!(body(get(&mut cloud, &url, 1))["status"], "InProgress");
    assert_eq!(body(get(&mut cloud, &url, 90))["status"], "Succeeded");

    let vm = body(get(&mut cloud, &vm_path(), 90));
    assert_eq!(state(&vm), "Succeeded");
    assert_eq!((&vm["zones"], &vm["properties"]["priority"]), (&json!(["2"]), &json!("Spot")));
    assert_eq!(vm["tags"]["napkeeper.io_nodeclaim"], "pool-x7f2p");
    let nic = body(get(&mut cloud, &nic_path(), 90));
    assert_eq!(nic["properties"]["virtualMachine"]["id"], vm["id"]);
    let disk = body(get(&mut cloud, &path("Microsoft.Compute/disks", "a"), 90));
    assert_eq!((&disk["managedBy"], &disk["properties"]["diskSizeGB"]), (&vm["id"], &json!(64)));
    assert_eq!(ask(&mut cloud, "PUT", &vm_path(), &vm_body(), 90).status, 200);

    let deleted = ask(&mut cloud, "DELETE", &vm_path(), &Value::Null, 100);
    assert_eq!((deleted.status, &deleted.body), (202, &None));
    assert_eq!(state(&body(get(&mut cloud, &vm_path(), 101))), "Deleting");
    assert_eq!(body(get(&mut cloud, &operation(&deleted), 160))["status"], "Succeeded");
    assert_eq!(error_of(&get(&mut cloud, &nic_path(), 160)), (404, "ResourceNotFound"));
    assert_eq!(ask(&mut cloud, "DELETE", &vm_path(), &Value::Null, 161).status, 204);
}

#[test]
fn the_address_of_a_nic_is_as_it_was_put() {
    let mut cloud = cloud(1);
    let mut put = nic_body();
    let address = |nic: &Value| nic["properties"]["ipConfigurations"].clone();
    let answer = ask(&mut cloud, "PUT", &nic_path(), &put, 0);
    assert_eq!((answer.status, address(&answer.body.unwrap())), (201, address(&put)));
    assert_eq!(address(&body(get(&mut cloud, &nic_path(), 1))), address(&put));
    let listed = body(get(&mut cloud, &path("Microsoft.Network/networkInterfaces", ""), 1));
    assert_eq!(address(&listed["value"][0]), address(&put));
    let etag = |cloud: &mut Cloud| body(get(cloud, &nic_path(), 2))["etag"].clone();
    let before = etag(&mut cloud);
    put["properties"]["ipConfigurations"][0] =
        json!({ "name": "b", "properties": { "primary": true, "subnet": { "id": "/subscriptions/s/another" } } });
    assert_eq!(ask(&mut cloud, "PUT", &nic_path(), &put, 2).status, 200);
    assert_eq!(address(&body(get(&mut cloud, &nic_path(), 2))), address(&put));
    assert_ne!(etag(&mut cloud), before);
    put["properties"]["ipConfigurations"][0]["name"] = Value::Null;
    let refused = ask(&mut cloud, "PUT", &nic_path(), &put, 3);
    assert_eq!(error_of(&refused), (400, "InvalidParameter"));
}

#[test]
fn paths_are_read_without_regard_to_case() {
    let mut cloud = cloud(1);
    launch(&mut cloud);
    let shouted = GROUP.to_ascii_uppercase();
    let path = format!("{shouted}/PROVIDERS/MICROSOFT.COMPUTE/VIRTUALMACHINES/A?api-version=2024-07-01");
    assert_eq!(body(get(&mut cloud, &path, 1))["name"], "a");
}

#[test]
fn a_failed_operation_is_a_200_that_carries_the_error() {
    let mut cloud = cloud(1);
    cloud.faults.unallocatable = vec![Shortage::of_all(FaultDuration::Times(1))];
    let begun = launch(&mut cloud);
    let outcome = body(get(&mut cloud, &operation(&begun), 90));
    assert_eq!(outcome["status"], "Failed");
    assert_eq!(outcome["error"]["code"], "ZonalAllocationFailed");
    let unknown =
        "/subscriptions/s/providers/Microsoft.Compute/locations/westeurope/operations/x?api-version=2024-07-01";
    assert_eq!(error_of(&get(&mut cloud, unknown, 90)), (404, "NotFound"));
}

#[test]
fn quota_and_reservation_come_with_azures_codes() {
    let mut cloud = cloud(1);
    cloud.limits.spot = Some(3);
    let refused = launch(&mut cloud);
    assert_eq!(error_of(&refused), (409, "OperationNotAllowed"));
    let message = refused.body.unwrap()["error"]["message"].to_string();
    assert!(message.contains("LowPriorityCores"), "{message}");
    let refused = ask(&mut cloud, "DELETE", &nic_path(), &Value::Null, 1);
    assert_eq!(error_of(&refused), (400, "NicReservedForAnotherVm"));
}

#[test]
fn throttling_is_a_429_with_retry_after() {
    let mut cloud = cloud(1);
    cloud.faults.throttled = Some((at(10), SignedDuration::from_secs(17)));
    let response = get(&mut cloud, &vm_path(), 1);
    assert_eq!(error_of(&response), (429, "TooManyRequests"));
    assert_eq!(response.header("retry-after"), Some("17"));
}

#[test]
fn unsupported_requests_are_rejected() {
    let mut cloud = cloud(1);
    ask(&mut cloud, "PUT", &nic_path(), &nic_body(), 0);
    for (pointer, value) in [
        ("/properties/timeCreated", Value::Null),
        ("/properties/evictionPolicy", json!("Deallocate")),
        ("/properties/storageProfile/osDisk/deleteOption", json!("Detach")),
        ("/properties/networkProfile/networkInterfaces/0/properties/deleteOption", Value::Null),
        ("/properties/hardwareProfile/vmSize", json!("Standard_X1")),
        ("/zones/0", json!("9")),
        ("/location", json!("eastus")),
    ] {
        let mut wrong = vm_body();
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        match wrong.pointer_mut(parent).unwrap() {
            Value::Array(items) => items[0] = value,
            parent => parent[key] = value,
        }
        let response = ask(&mut cloud, "PUT", &vm_path(), &wrong, 0);
        assert_eq!(error_of(&response), (400, "InvalidParameter"), "{pointer}");
    }
    assert_eq!(ask(&mut cloud, "PUT", &vm_path(), &vm_body(), 0).status, 201);
}

#[test]
fn requests_that_arm_itself_turns_away() {
    let mut cloud = cloud(1);
    let bare = |path: String| path.split('?').next().unwrap().to_owned();
    let other = "/subscriptions/s/resourceGroups/other/resources?api-version=2021-04-01";
    let old_nic = format!("{}?api-version=2021-04-01", bare(nic_path()));
    let load_balancer = path("Microsoft.Network/loadBalancers", "a");
    for (method, path, expected) in [
        ("GET", bare(vm_path()), (400, "MissingApiVersionParameter")),
        ("GET", format!("{}?api-version=foo", bare(vm_path())), (400, "InvalidApiVersionParameter")),
        ("GET", old_nic, (400, "NoRegisteredProviderFound")),
        ("GET", other.to_owned(), (404, "ResourceGroupNotFound")),
        ("GET", other.replace("/s/", "/another/"), (404, "SubscriptionNotFound")),
        ("GET", load_balancer, (404, "NotFound")),
        ("POST", vm_path(), (405, "MethodNotAllowed")),
        ("PUT", vm_path(), (400, "InvalidRequestContent")),
    ] {
        let response = ask(&mut cloud, method, &path, &Value::Null, 0);
        assert_eq!(error_of(&response), expected, "{method} {path}");
    }
}

/// All pages of a listing, or the response that is no page.
fn pages(cloud: &mut Cloud, first: &str) -> Result<Vec<Vec<Value>>, Response> {
    let mut pages = Vec::new();
    let mut next = Some(first.to_owned());
    while let Some(path) = next {
        let response = get(cloud, &path, 10);
        if response.status != 200 {
            return Err(response);
        }
        let mut page = response.body.unwrap();
        let Value::Array(items) = page["value"].take() else {
            panic!("{page} is no page");
        };
        pages.push(items);
        next = page["nextLink"].as_str().map(|link| link.strip_prefix(ORIGIN).unwrap().to_owned());
    }
    Ok(pages)
}

#[test]
fn listings_come_in_pages_by_type_or_whole_with_creation_times() {
    let mut cloud = cloud(1);
    for n in 0..120 {
        cloud.leak_nic(&format!("n{n:03}"), Tags::new(), at(0)).unwrap();
    }
    cloud.add_vm("vm", Tags::new(), &offering("Standard_D4s_v5", 1, CapacityType::OnDemand), at(1)).unwrap();
    let nics = pages(&mut cloud, &path("Microsoft.Network/networkInterfaces", "")).unwrap();
    assert_eq!(nics.iter().map(Vec::len).collect::<Vec<_>>(), [50, 50, 21]);
    let vms = pages(&mut cloud, &path("Microsoft.Compute/virtualMachines", "")).unwrap();
    assert_eq!(vms[0][0]["properties"]["hardwareProfile"]["vmSize"], "Standard_D4s_v5");

    let all = format!("{GROUP}/resources?%24expand=createdTime%2CprovisioningState&api-version=2021-04-01");
    let all: Vec<Value> = pages(&mut cloud, &all).unwrap().concat();
    assert_eq!(all.len(), 123);
    for resource in &all {
        assert!(resource["createdTime"].is_string() && resource["properties"].is_null(), "{resource}");
        assert_eq!(resource["provisioningState"], "Succeeded");
    }
}

#[test]
fn a_broken_listing_fails_on_its_last_page_and_a_forbidden_one_at_once() {
    let mut cloud = cloud(1);
    for n in 0..60 {
        cloud.leak_nic(&format!("n{n:03}"), Tags::new(), at(0)).unwrap();
    }
    let path = path("Microsoft.Network/networkInterfaces", "");
    cloud.faults.listing = Some((at(100), ListingFault::BrokenPage));
    assert_eq!(get(&mut cloud, &path, 10).status, 200);
    let failed = pages(&mut cloud, &path).unwrap_err();
    assert_eq!(error_of(&failed), (500, "InternalServerError"));
    cloud.faults.listing = Some((at(100), ListingFault::Forbidden));
    assert_eq!(error_of(&get(&mut cloud, &path, 10)), (403, "AuthorizationFailed"));
}

#[test]
fn the_group_says_who_manages_it_and_tags_are_merged() {
    let mut cloud = cloud(1);
    let cluster = ArmId::new("/subscriptions/s/managedClusters/c").unwrap();
    cloud.set_group_managed_by(Some(cluster));
    let group = body(get(&mut cloud, &format!("{GROUP}?api-version=2021-04-01"), 0));
    assert_eq!(group["managedBy"], "/subscriptions/s/managedClusters/c");

    ask(&mut cloud, "PUT", &nic_path(), &nic_body(), 0);
    let tags = format!(
        "{GROUP}/providers/Microsoft.Network/networkInterfaces/a/providers/Microsoft.Resources/tags/default?api-version=2021-04-01"
    );
    let merge = json!({ "operation": "Merge", "properties": { "tags": { "x": "1" } } });
    let merged = body(ask(&mut cloud, "PATCH", &tags, &merge, 1));
    assert_eq!(merged["properties"]["tags"], json!({ "napkeeper.io_cluster": "c", "x": "1" }));
    let delete = json!({ "operation": "Delete", "properties": { "tags": { "x": "1", "napkeeper.io_cluster": "d" } } });
    let left = body(ask(&mut cloud, "PATCH", &tags, &delete, 1));
    assert_eq!(left["properties"]["tags"], json!({ "napkeeper.io_cluster": "c" }), "another value stays");
    let replace = json!({ "operation": "Replace", "properties": { "tags": {} } });
    assert_eq!(ask(&mut cloud, "PATCH", &tags, &replace, 1).status, 400);
}

#[test]
fn an_operation_can_be_watched_by_either_of_its_urls_as_often_as_it_says() {
    let mut cloud = cloud(1);
    let begun = launch(&mut cloud);
    assert_eq!(begun.header("retry-after"), Some("10"));
    let result = begun.header("location").unwrap().strip_prefix(ORIGIN).unwrap().to_owned();
    let running = get(&mut cloud, &result, 1);
    assert_eq!((running.status, running.header("location")), (202, begun.header("location")));
    assert_eq!(get(&mut cloud, &operation(&begun), 1).header("retry-after"), Some("10"));
    assert_eq!(get(&mut cloud, &result, 90).status, 204);

    let mut cloud = crate::cloud::fixtures::cloud(1);
    cloud.faults.unallocatable = vec![Shortage::of_all(FaultDuration::Times(1))];
    let begun = launch(&mut cloud);
    let result = begun.header("location").unwrap().strip_prefix(ORIGIN).unwrap().to_owned();
    assert_eq!(error_of(&get(&mut cloud, &result, 90)), (409, "ZonalAllocationFailed"));
}

#[test]
fn skus_have_capabilities_locations_and_restrictions() {
    let mut cloud = cloud(1);
    let url =
        |filter: &str| format!("/subscriptions/s/providers/Microsoft.Compute/skus?api-version=2021-07-01{filter}");
    let in_region = url("&%24filter=location%20eq%20%27westeurope%27");
    let find = |cloud: &mut Cloud, name: &str| {
        let all = body(get(cloud, &in_region, 0))["value"].take();
        let all = all.as_array().unwrap().clone();
        all.into_iter().find(|sku| sku["name"] == name).unwrap()
    };
    let sku = find(&mut cloud, "Standard_D4s_v5");
    assert_eq!((&sku["resourceType"], &sku["family"]), (&json!("virtualMachines"), &json!("standardDSv5Family")));
    assert_eq!(sku["locationInfo"][0]["zones"], json!(["1"]), "the zones with a price");
    assert_eq!(sku["restrictions"], json!([]));
    let capability = |name: &str| {
        let all = sku["capabilities"].as_array().unwrap();
        all.iter().find(|c| c["name"] == name).map(|c| c["value"].as_str().unwrap().to_owned())
    };
    assert_eq!(capability("vCPUs").as_deref(), Some("4"));
    assert_eq!(capability("MemoryGB").as_deref(), Some("16"));
    assert_eq!(capability("HyperVGenerations").as_deref(), Some("V1,V2"));
    assert_eq!(capability("LowPriorityCapable").as_deref(), Some("True"));
    assert_eq!(capability("GPUs"), None);

    let size = offering("Standard_D4s_v5", 1, CapacityType::Spot).size;
    cloud.faults.refused = vec![Shortage { size: Some(size), ..Shortage::of_all(FaultDuration::Until(at(60))) }];
    let restricted = &find(&mut cloud, "Standard_D4s_v5")["restrictions"];
    assert_eq!(
        (&restricted[0]["type"], &restricted[0]["reasonCode"]),
        (&json!("Location"), &json!("NotAvailableForSubscription"))
    );
    assert_eq!(find(&mut cloud, "Standard_D2s_v5")["restrictions"], json!([]));

    assert_eq!(body(get(&mut cloud, &url("&$filter=location eq 'eastus'"), 0))["value"], json!([]));
    let generic = in_region.replace("2021-07-01", "2021-04-01");
    assert_eq!(error_of(&get(&mut cloud, &generic, 0)), (400, "NoRegisteredProviderFound"));
}

#[test]
fn usages_count_running_cores_and_name_the_limits() {
    let mut cloud = cloud(1);
    cloud.limits.regional = Some(100);
    cloud.limits.families.insert(Arc::from("standardDSv5Family"), 10);
    cloud.add_vm("vm", Tags::new(), &offering("Standard_D4s_v5", 1, CapacityType::OnDemand), at(0)).unwrap();
    launch(&mut cloud);
    let path = "/subscriptions/s/providers/Microsoft.Compute/locations/westeurope/usages?api-version=2024-07-01";
    let all = body(get(&mut cloud, path, 1))["value"].take();
    let entry = |name: &str| {
        let all = all.as_array().unwrap();
        let found = all.iter().find(|usage| usage["name"]["value"] == name).unwrap();
        (found["currentValue"].as_u64().unwrap(), found["limit"].as_u64().unwrap())
    };
    assert_eq!(entry("cores"), (4, 100));
    assert_eq!(entry("standardDSv5Family"), (4, 10));
    assert_eq!(entry("standardESv5Family").0, 0);
    assert_eq!(entry("lowPriorityCores").0, 4);
    let elsewhere = path.replace("westeurope", "eastus");
    assert_eq!(error_of(&get(&mut cloud, &elsewhere, 1)), (400, "LocationNotAvailableForResourceType"));
    let other = path.replace("/s/", "/other/");
    assert_eq!(error_of(&get(&mut cloud, &other, 1)), (404, "SubscriptionNotFound"));
}

#[test]
fn a_lock_is_listed_and_denies_deletes_until_it_is_removed() {
    let mut cloud = cloud(1);
    ask(&mut cloud, "PUT", &nic_path(), &nic_body(), 0);
    cloud.faults.deletes_locked_until = Some(at(60));
    let locks = format!("{GROUP}/providers/Microsoft.Authorization/locks?api-version=2020-05-01");
    assert_eq!(body(get(&mut cloud, &locks, 1))["value"][0]["properties"]["level"], "CanNotDelete");
    assert_eq!(error_of(&ask(&mut cloud, "DELETE", &nic_path(), &Value::Null, 1)), (409, "ScopeLocked"));
    assert_eq!(body(get(&mut cloud, &locks, 60))["value"], json!([]));
    assert_eq!(ask(&mut cloud, "DELETE", &nic_path(), &Value::Null, 60).status, 202);
}

#[test]
fn a_caller_without_a_token_gets_the_error_of_arm() {
    assert_eq!(error_of(&unauthorized(false)), (401, "AuthenticationFailed"));
    assert_eq!(error_of(&unauthorized(true)), (401, "InvalidAuthenticationToken"));
}

#[test]
fn a_put_honours_its_conditions_and_a_delete_ignores_them() {
    let mut cloud = cloud(1);
    let none = Conditions::of([("If-None-Match", "*")]);
    assert_eq!(ask_if(&mut cloud, &nic_path(), &nic_body(), none).status, 201);
    assert_eq!(error_of(&ask_if(&mut cloud, &nic_path(), &nic_body(), none)), (412, "PreconditionFailed"));
    let shown = get(&mut cloud, &nic_path(), 0).body.unwrap();
    let etag = shown["etag"].as_str().unwrap().to_owned();
    let mut body = nic_body();
    body["tags"]["more"] = "x".into();
    let matching = Conditions::of([("if-match", &*etag)]);
    assert_eq!(ask_if(&mut cloud, &nic_path(), &body, matching).status, 200);
    assert_eq!(
        error_of(&ask_if(&mut cloud, &nic_path(), &body, matching)),
        (412, "PreconditionFailed"),
        "changed since"
    );
    assert_eq!(ask_if(&mut cloud, &vm_path(), &vm_body(), none).status, 201);
    assert_eq!(error_of(&ask_if(&mut cloud, &vm_path(), &vm_body(), none)), (412, "PreconditionFailed"));
    let stale = Conditions::of([("if-match", "no such tag")]);
    let request =
        Request { method: "DELETE", origin: ORIGIN, path_and_query: &vm_path(), body: b"", conditions: stale };
    assert_eq!(handle(&mut cloud, &request, at(0)).status, 202);
}

#[test]
fn missing_and_unexpected_properties_are_named() {
    let mut cloud = cloud(1);
    let mut refused = |path: &str, change: &dyn Fn(&mut Value), body: Value| {
        let mut body = body;
        change(&mut body);
        let response = ask(&mut cloud, "PUT", path, &body, 0);
        let error = response.body.clone().unwrap()["error"].clone();
        let word = |key: &str| error[key].as_str().unwrap_or_default().to_owned();
        (response.status, word("code"), word("target"))
    };
    let remove =
        |key: &'static str| move |body: &mut Value| drop(body["properties"].as_object_mut().unwrap().remove(key));
    let expect = |code: &str, target: &str| (400, code.to_owned(), target.to_owned());
    for key in ["hardwareProfile", "storageProfile", "osProfile", "networkProfile"] {
        assert_eq!(refused(&vm_path(), &remove(key), vm_body()), expect("InvalidParameter", key));
    }
    assert_eq!(
        refused(&nic_path(), &remove("ipConfigurations"), nic_body()),
        expect("InvalidParameter", "ipConfigurations")
    );
    for key in ["timeCreated", "vmId", "provisioningState"] {
        let null = |body: &mut Value| body["properties"][key] = Value::Null;
        assert_eq!(refused(&vm_path(), &null, vm_body()), expect("InvalidParameter", key), "read-only, null or not");
    }
    let without_location = |body: &mut Value| drop(body.as_object_mut().unwrap().remove("location"));
    assert_eq!(refused(&vm_path(), &without_location, vm_body()), expect("LocationRequired", ""));
    let misspelt = |body: &mut Value| body["zone"] = "1".into();
    assert_eq!(refused(&vm_path(), &misspelt, vm_body()), expect("InvalidRequestContent", ""));
}

#[test]
fn write_restrictions_use_azures_messages() {
    let mut cloud = cloud(1);
    cloud.leak_nic("a", Tags::new(), at(0)).unwrap();
    cloud.faults.lockdown_until = Some(at(10));
    let response = ask(&mut cloud, "DELETE", &nic_path(), &Value::Null, 1);
    assert_eq!(error_of(&response), (403, "DenyAssignmentAuthorizationFailed"));
    let message = response.body.unwrap()["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("'Microsoft.Network/networkInterfaces/delete'"), "{message}");
    assert_eq!(get(&mut cloud, &nic_path(), 1).status, 200, "reads pass");
    cloud.faults.lockdown_until = None;
    cloud.faults.forbidden_until = Some(at(10));
    assert_eq!(error_of(&ask(&mut cloud, "PUT", &nic_path(), &nic_body(), 1)), (403, "AuthorizationFailed"));
    cloud.faults.forbidden_until = None;
    let policy = |deletes| PolicyAssignment {
        assignment: "deny-some".into(),
        of: Some(ListedKind::Nics),
        deletes,
        duration: FaultDuration::Times(1),
    };
    for (deletes, method, body, effect) in
        [(false, "PUT", nic_body(), "Deny"), (true, "DELETE", Value::Null, "DenyAction")]
    {
        cloud.faults.policies = vec![policy(deletes)];
        let response = ask(&mut cloud, method, &nic_path(), &body, 1);
        assert_eq!(error_of(&response), (403, "RequestDisallowedByPolicy"));
        let error = &response.body.as_ref().unwrap()["error"];
        assert_eq!(error["target"], "a");
        let info = &error["additionalInfo"][0];
        assert_eq!(info["type"], "PolicyViolation");
        assert_eq!(info["info"]["policyDefinitionEffect"], effect);
        assert_eq!(info["info"]["policyAssignmentName"], "deny-some");
        assert!(ask(&mut cloud, method, &nic_path(), &body, 1).status < 300, "once");
    }
}

#[test]
fn an_operation_may_fail_at_its_end_or_take_longer() {
    let mut cloud = cloud(1);
    cloud.leak_nic("a", Tags::new(), at(0)).unwrap();
    cloud.faults.failing = vec![LateFailure { deletes: true, duration: FaultDuration::Times(1) }];
    let accepted = ask(&mut cloud, "DELETE", &nic_path(), &Value::Null, 0);
    let url = accepted.header("azure-asyncoperation").unwrap().strip_prefix(ORIGIN).unwrap().to_owned();
    let ended = get(&mut cloud, &url, 60).body.unwrap();
    assert_eq!(
        (ended["status"].as_str(), ended["error"]["code"].as_str()),
        (Some("Failed"), Some("InternalExecutionError"))
    );
    assert_eq!(get(&mut cloud, &nic_path(), 60).status, 200, "it is still there");
    cloud.faults.slow = 100;
    assert_eq!(ask(&mut cloud, "DELETE", &nic_path(), &Value::Null, 60).status, 202);
    assert_eq!(get(&mut cloud, &nic_path(), 120).status, 200, "it takes at least 100 s now");
    assert_eq!(get(&mut cloud, &nic_path(), 700).status, 404);
}

#[test]
fn azures_rate_limits_are_reported_and_enforced() {
    let mut cloud = cloud(1);
    assert_eq!(get(&mut cloud, &vm_path(), 0).header("x-ms-ratelimit-remaining-subscription-reads"), None);
    cloud.throttling = Some(Throttling::default());
    let read = get(&mut cloud, &vm_path(), 0);
    assert_eq!(read.header("x-ms-ratelimit-remaining-subscription-reads"), Some("249"));
    assert_eq!(
        read.header("x-ms-ratelimit-remaining-resource"),
        Some("Microsoft.Compute/LowCostGetSubscriptionMaximum;23999,Microsoft.Compute/LowCostGetResource;35")
    );
    let list = path("Microsoft.Network/networkInterfaces", "");
    let left = (0..300).map(|_| get(&mut cloud, &list, 0)).find(|response| response.status != 200).unwrap();
    assert_eq!(error_of(&left), (429, "SubscriptionRequestsThrottled"));
    assert_eq!(left.header("retry-after"), Some("1"));
    let compute = (0..13).map(|_| ask(&mut cloud, "PUT", &vm_path(), &vm_body(), 60)).last().unwrap();
    assert_eq!(error_of(&compute), (429, "OperationNotAllowed"));
    assert_eq!(compute.body.as_ref().unwrap()["error"]["details"][0]["code"], "TooManyRequests");
    assert_eq!(compute.header("retry-after"), Some("15"));
}

#[test]
fn pages_have_the_requested_size_unless_a_fault_makes_them_ragged() {
    let mut cloud = cloud(1);
    for n in 0..30 {
        cloud.leak_nic(&format!("n-{n:02}"), Tags::new(), at(0)).unwrap();
    }
    let mut names = |query: &str| {
        let mut next = format!("{}{query}", path("Microsoft.Network/networkInterfaces", ""));
        let (mut pages, mut names) = (0, Vec::new());
        loop {
            let page = get(&mut cloud, &next, 1).body.unwrap();
            names.extend(page["value"].as_array().unwrap().iter().map(|nic| nic["name"].as_str().unwrap().to_owned()));
            pages += 1;
            match page["nextLink"].as_str() {
                Some(link) => next = link.strip_prefix(ORIGIN).unwrap().to_owned(),
                None => return (pages, names.len()),
            }
        }
    };
    assert_eq!(names(""), (1, 30));
    assert_eq!(names("&$top=7"), (5, 30));
    assert_eq!(names("&$top=100000"), (1, 30));
    cloud.page_size = 10;
    cloud.faults.ragged_pages = true;
    let mut next = path("Microsoft.Network/networkInterfaces", "");
    let mut sizes = Vec::new();
    loop {
        let page = get(&mut cloud, &next, 1).body.unwrap();
        sizes.push(page["value"].as_array().unwrap().len());
        let Some(link) = page["nextLink"].as_str() else { break };
        next = link.strip_prefix(ORIGIN).unwrap().to_owned();
    }
    assert_eq!(sizes.iter().sum::<usize>(), 30);
    assert!(sizes.len() > 3 && sizes.iter().all(|size| (1..=10).contains(size)), "{sizes:?}");
}

#[test]
fn an_extension_is_installed_on_a_vm_and_deleted_with_it() {
    let mut cloud = cloud(1);
    let extension = vm_path().replace("/a?", "/a/extensions/computeAksLinuxBilling?");
    let body = json!({ "location": "westeurope", "properties": {
        "publisher": "Microsoft.AKS", "type": "Compute.AKS.Linux.Billing", "typeHandlerVersion": "1.0",
        "autoUpgradeMinorVersion": true, "settings": {},
    } });
    assert_eq!(error_of(&ask(&mut cloud, "PUT", &extension, &body, 0)), (404, "ResourceNotFound"), "there is no VM");
    assert_eq!(ask(&mut cloud, "PUT", &nic_path(), &nic_body(), 0).status, 201);
    assert_eq!(ask(&mut cloud, "PUT", &vm_path(), &vm_body(), 0).status, 201);
    let begun = ask(&mut cloud, "PUT", &extension, &body, 0);
    assert_eq!(begun.status, 201);
    let url = begun.header("azure-asyncoperation").unwrap().strip_prefix(ORIGIN).unwrap().to_owned();
    let state =
        |cloud: &mut Cloud, secs| get(cloud, &extension, secs).body.unwrap()["properties"]["provisioningState"].clone();
    assert_eq!(state(&mut cloud, 1), "Creating");
    assert_eq!(get(&mut cloud, &url, 30).body.unwrap()["status"], "Succeeded");
    assert_eq!(state(&mut cloud, 30), "Succeeded");
    assert_eq!(ask(&mut cloud, "PUT", &extension, &body, 31).status, 200);
    ask(&mut cloud, "DELETE", &vm_path(), &Value::Null, 100);
    assert_eq!(get(&mut cloud, &extension, 300).status, 404);
}
