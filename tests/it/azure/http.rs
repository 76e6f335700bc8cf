//! What the adapter makes of servers that are broken, slow, or closed to us.

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use napkeeper_azure::{Azure, AzureSettings, HttpTransport, SettingsError, VmSettings};
use napkeeper_core::model::azure::cloud::ResourceKind;
use napkeeper_core::model::errors::{CloudError, CloudErrorCode, EffectError, FailureCause};
use napkeeper_core::model::names::{ArmId, Region};
use napkeeper_core::plan::{CloudRequest, NicSpec, Reply};
use napkeeper_tests::arm::credential;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;

const NIC: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/networkInterfaces/n";
const VM: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/v";

fn machines(image: &str) -> VmSettings {
    VmSettings {
        subnet: ArmId::new("/subscriptions/s/subnet").unwrap(),
        image: Arc::from(image),
        ssh_public_key: Arc::from("ssh-ed25519 AAAA"),
        admin_username: Arc::from("azureuser"),
        disk_encryption_set: None,
    }
}

fn settings(endpoint: &str) -> AzureSettings {
    AzureSettings {
        group: ArmId::new("/subscriptions/s/resourceGroups/g").unwrap(),
        region: Region::new("westeurope").unwrap(),
        aks: None,
        vms: Some(machines("/subscriptions/s/image")),
        endpoint: Arc::from(endpoint),
        deadline: Duration::from_millis(500),
    }
}

/// An adapter to a server that answers everything in this way.
async fn served<F>(answer: fn(Request) -> F) -> Azure
where
    F: Future<Output = Response> + Send + 'static,
{
    served_by(Router::new().fallback(answer)).await
}

/// An adapter to a server that gives everybody this answer.
async fn served_with(answer: impl Fn() -> Response + Clone + Send + Sync + 'static) -> Azure {
    served_by(Router::new().fallback(async move || answer())).await
}

async fn served_by(router: Router) -> Azure {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    let wire = HttpTransport::new(Duration::from_secs(5)).unwrap();
    Azure::new(settings(&endpoint), Arc::new(wire), credential()).unwrap()
}

fn get(id: &str) -> CloudRequest {
    CloudRequest::Get(ArmId::new(id).unwrap())
}

fn error(reply: Result<Reply, EffectError>) -> CloudError {
    match reply {
        Err(EffectError::Cloud(error)) => error,
        other => panic!("{other:?} is no error of Azure"),
    }
}

#[tokio::test]
async fn garbage_is_unavailable_and_never_a_shorter_list() {
    let azure = served(|_| async { "<html>maintenance</html>".into_response() }).await;
    for id in [NIC, VM] {
        let error = error(azure.perform(&get(id)).await);
        assert_eq!(error.code, CloudErrorCode::Unavailable, "{error:?}");
        assert!(error.message.contains("a body that is not JSON"), "{error:?}");
    }
    assert!(azure.list().await.is_err());
    assert!(azure.group_managed_by().await.is_err());
}

#[tokio::test]
async fn a_server_that_hangs_is_left_at_the_deadline() {
    let azure = served(|_| async { std::future::pending::<Response>().await }).await;
    let began = Instant::now();
    assert_eq!(error(azure.perform(&get(VM)).await).code, CloudErrorCode::Unavailable);
    let body = |_| async {
        Body::from_stream(futures::stream::pending::<Result<bytes::Bytes, std::io::Error>>()).into_response()
    };
    let azure = served(body).await;
    assert_eq!(error(azure.perform(&get(NIC)).await).code, CloudErrorCode::Unavailable);
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
}

#[tokio::test]
async fn an_unreachable_host_is_unavailable() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let wire = HttpTransport::new(Duration::from_secs(5)).unwrap();
    let azure = Azure::new(settings(&endpoint), Arc::new(wire), credential()).unwrap();
    let error = error(azure.perform(&get(VM)).await);
    assert_eq!(error.code, CloudErrorCode::Unavailable);
    assert!(error.message.contains("no connection"), "{error:?}");
    assert_eq!(azure.reach().await.unwrap_err().cause, FailureCause::Unreachable);
}

#[tokio::test]
async fn reachability_of_the_group_follows_from_its_errors() {
    let reach = async |status: StatusCode, code: &'static str| {
        let body = format!(r#"{{"error":{{"code":"{code}","message":"m"}}}}"#);
        let azure = served_with(move || (status, body.clone()).into_response()).await;
        azure.reach().await.map_err(|error| error.cause)
    };
    assert_eq!(reach(StatusCode::UNAUTHORIZED, "InvalidToken").await, Err(FailureCause::Unauthenticated));
    let absent = StatusCode::NOT_FOUND;
    assert_eq!(reach(absent, "SubscriptionNotFound").await, Err(FailureCause::SubscriptionNotFound));
    assert_eq!(reach(absent, "ResourceGroupNotFound").await, Err(FailureCause::ResourceGroupNotFound));
    assert_eq!(reach(StatusCode::FORBIDDEN, "AuthorizationFailed").await, Ok(()), "what may be read is asked later");
    assert_eq!(reach(StatusCode::SERVICE_UNAVAILABLE, "ServerBusy").await, Ok(()), "requests that follow are retried");
}

#[tokio::test]
async fn the_status_decides_if_the_body_has_no_code() {
    let azure = served(|_| async { StatusCode::UNAUTHORIZED.into_response() }).await;
    assert_eq!(error(azure.perform(&get(VM)).await).code, CloudErrorCode::Permission);
    let azure = served(|_| async { (StatusCode::INTERNAL_SERVER_ERROR, "oops").into_response() }).await;
    assert_eq!(error(azure.perform(&get(VM)).await).code, CloudErrorCode::Unavailable);
    let azure = served(|_| async { (StatusCode::FOUND, [("location", "https://evil.example")]).into_response() }).await;
    assert_eq!(error(azure.perform(&get(VM)).await).code, CloudErrorCode::Unavailable, "redirects are not followed");
    let azure = served(|_| async { StatusCode::NOT_FOUND.into_response() }).await;
    assert!(azure.list().await.is_err(), "a missing group is no empty one");
}

#[tokio::test]
async fn a_resource_is_absent_only_if_azure_says_so() {
    const ABSENT: &str = r#"{"error":{"code":"ResourceNotFound","message":"m"}}"#;
    const NO_GROUP: &str = r#"{"error":{"code":"ResourceGroupNotFound","message":"no such group"}}"#;
    const BARE: &str = r#"{"error":{"code":"NotFound","message":"m"}}"#;
    let delete = |id: &str, kind| CloudRequest::Delete(ArmId::new(id).unwrap(), kind);
    let effects = [get(VM), get(NIC), delete(VM, ResourceKind::Vm), delete(NIC, ResourceKind::Nic)];
    let azure = served(|_| async { (StatusCode::NOT_FOUND, ABSENT).into_response() }).await;
    for effect in &effects {
        let absent = if effect.is_write() { Reply::Absent } else { Reply::Resource(None) };
        assert_eq!(azure.perform(effect).await, Ok(absent), "{effect:?}");
    }
    let no_group = served(|_| async { (StatusCode::NOT_FOUND, NO_GROUP).into_response() }).await;
    let bare = served(|_| async { (StatusCode::NOT_FOUND, BARE).into_response() }).await;
    let page = served(|_| async { (StatusCode::NOT_FOUND, "<html>not here</html>").into_response() }).await;
    let empty = served(|_| async { StatusCode::NOT_FOUND.into_response() }).await;
    for (azure, effect) in
        [&no_group, &bare, &page, &empty].into_iter().flat_map(|a| effects.iter().map(move |e| (a, e)))
    {
        let error = error(azure.perform(effect).await);
        assert_eq!(error.code, CloudErrorCode::Unavailable, "{effect:?} {error:?}");
        assert!(error.message.contains("cannot tell whether the resource exists"), "{error:?}");
    }
    let error = error(no_group.perform(&get(VM)).await);
    assert!(error.message.contains("no such group"), "{error:?}");
}

#[tokio::test]
async fn a_request_has_user_agent_and_api_version() {
    let echo = |request: Request| async move {
        let header = |headers: &HeaderMap, name: &str| headers.get(name).is_some_and(|value| !value.is_empty());
        let headers = request.headers();
        let good = headers["authorization"] == "Bearer a-secret-token"
            && headers["user-agent"].to_str().is_ok_and(|agent| agent.starts_with("napkeeper/"))
            && headers["content-type"] == "application/json"
            && header(headers, "x-ms-client-request-id")
            && request.uri().query() == Some("api-version=2024-05-01");
        if good { StatusCode::OK.into_response() } else { StatusCode::BAD_REQUEST.into_response() }
    };
    let azure = served(echo).await;
    let tags = std::collections::BTreeMap::new();
    let nic = NicSpec { id: ArmId::new(NIC).unwrap(), tags, accelerated: false, subnet: None, create_only: false };
    assert_eq!(azure.perform(&CloudRequest::PutNic(Box::new(nic))).await, Ok(Reply::Done));
}

#[tokio::test]
async fn pages_that_lead_elsewhere_or_in_circles_end_the_listing() {
    const ELSEWHERE: &str = r#"{"value":[],"nextLink":"https://evil.example/next"}"#;
    let azure = served(|_| async { ELSEWHERE.into_response() }).await;
    let failure = azure.list().await.unwrap_err();
    assert!(failure.reason.contains("evil.example"), "{failure}");
    let circle = |request: Request| async move {
        let host = request.headers()["host"].to_str().unwrap_or_default().to_owned();
        format!(r#"{{"value":[],"nextLink":"http://{host}{}"}}"#, request.uri()).into_response()
    };
    let failure = served(circle).await.list().await.unwrap_err();
    assert!(failure.reason.contains("pages"), "{failure}");
}

#[test]
fn settings_that_would_leak_a_token_are_refused() {
    let wire = || Arc::new(HttpTransport::new(Duration::from_secs(1)).unwrap());
    for endpoint in ["http://management.azure.com", "https://a/path", "ftp://127.0.0.1", "nothing", "http://10.0.0.1"] {
        let made = Azure::new(settings(endpoint), wire(), credential());
        assert!(matches!(made, Err(SettingsError::Endpoint(_))), "{endpoint}");
    }
    let made =
        Azure::new(AzureSettings { vms: Some(machines("ubuntu")), ..settings("http://[::1]:1") }, wire(), credential());
    assert!(matches!(made, Err(SettingsError::Image(_))));
    let made = Azure::new(settings("https://management.azure.com/"), wire(), credential());
    let shown = format!("{:?} {:?}", made.unwrap(), credential());
    assert!(!shown.contains("a-secret-token"), "{shown}");
}
