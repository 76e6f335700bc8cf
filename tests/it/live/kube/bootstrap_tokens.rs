//! Bootstrap tokens against a real API server: whom they let in, as whom, and for how long.

use anyhow::{Context, Result};
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client};
use napkeeper_api::bootstrap::{Join, JoinToken, custom_data_with_join};
use napkeeper_core::model::names::Uid;
use napkeeper_core::plan::KubeletSpec;
use napkeeper_kube::BootstrapTokens;
use napkeeper_tests::control_plane::{ControlPlane, Mode};
use napkeeper_tests::manifests::repository;
use napkeeper_tests::wait::eventually;
use serde_json::{Value, json};
use std::time::Duration;

/// The kubeconfig in the custom data of a VM that joins by this token.
fn kubeconfig(plane: &ControlPlane, token: &JoinToken) -> Result<String> {
    let authority = std::fs::read_to_string(plane.ca_certificate())?;
    let join = Join::new(&plane.server(), &authority, "10.0.0.10")?;
    let custom_data = custom_data_with_join(&KubeletSpec::default(), &join, token);
    let read: Value = serde_saphyr::from_str(&custom_data)?;
    let files = read["write_files"].as_array().context("no files")?;
    let file = files.iter().find(|f| f["path"] == "/var/lib/kubelet/bootstrap-kubeconfig").context("no kubeconfig")?;
    let text = file["content"].as_str().context("no text")?;
    Ok(text.replace("/etc/kubernetes/certs/ca.crt", &plane.ca_certificate().display().to_string()))
}

/// The identity of a token, by the API server.
async fn who(plane: &ControlPlane, token: &JoinToken) -> Result<(String, Vec<String>)> {
    let file = plane.folder().join(format!("bootstrap-{}.kubeconfig", token.id()));
    std::fs::write(&file, kubeconfig(plane, token)?)?;
    let client = napkeeper_kube::connect(Some(&file)).await?;
    let ask: SelfSubjectReview = serde_json::from_value(json!({}))?;
    let review = Api::<SelfSubjectReview>::all(client).create(&PostParams::default(), &ask).await?;
    let user = review.status.and_then(|status| status.user_info).context("nobody")?;
    Ok((user.username.unwrap_or_default(), user.groups.unwrap_or_default()))
}

async fn tokens(client: Client) -> Result<usize> {
    let api: Api<Secret> = Api::namespaced(client, "kube-system");
    let only = ListParams::default().labels("app.kubernetes.io/managed-by=napkeeper");
    Ok(api.list(&only).await?.items.len())
}

/// What the policy says of a token in which this field is another.
async fn token_refused(client: &Client, [section, field]: [&str; 2], value: Value) -> Result<Option<String>> {
    let expiration = jiff::Timestamp::now() + jiff::SignedDuration::from_mins(30);
    let mut secret = json!({
        "metadata": {
            "name": "bootstrap-token-zzzzzz",
            "labels": { "app.kubernetes.io/managed-by": "napkeeper", "napkeeper.io/nodeclaim-uid": "u" },
        },
        "type": "bootstrap.kubernetes.io/token",
        "stringData": {
            "token-id": "zzzzzz", "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true",
            "expiration": expiration.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        },
    });
    secret[section][field] = value;
    let api = Api::<Secret>::namespaced(client.clone(), "kube-system");
    let params = PostParams { dry_run: true, field_manager: None };
    match api.create(&params, &serde_json::from_value(secret)?).await {
        Ok(_) => Ok(None),
        Err(kube::Error::Api(error)) => Ok(Some(error.message)),
        Err(other) => Err(other.into()),
    }
}

/// Creates a Secret in kube-system, unless it exists.
async fn create(client: &Client, name: &str, of_type: &str) -> Result<()> {
    let secret = json!({ "metadata": { "name": name }, "type": of_type });
    let api = Api::<Secret>::namespaced(client.clone(), "kube-system");
    match api.create(&PostParams::default(), &serde_json::from_value(secret)?).await {
        // An earlier try has come before the policy.
        Err(kube::Error::Api(error)) if error.code == 409 => Ok(()),
        made => Ok(made.map(drop)?),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_lets_one_node_ask_for_its_certificate_until_it_is_revoked() -> Result<()> {
    drop(rustls::crypto::ring::default_provider().install_default());
    let plane = ControlPlane::start(Mode::Api).await?;
    let rbac = repository("kustomize/overlays/provisioner/rbac.yaml").display().to_string();
    plane.kubectl(&["create", "namespace", "napkeeper-system"]).await?;
    plane.kubectl(&["--namespace", "napkeeper-system", "create", "serviceaccount", "napkeeper-controller"]).await?;
    plane.kubectl(&["apply", "--filename", &rbac]).await?;
    let admission = repository("kustomize/overlays/provisioner/admission.yaml").display().to_string();
    plane.kubectl(&["apply", "--filename", &admission]).await?;
    let controller = plane.service_account_kubeconfig("napkeeper-system", "napkeeper-controller").await?;
    let controller = napkeeper_kube::connect(Some(&controller)).await?;
    let admin = napkeeper_kube::connect(Some(&plane.admin_kubeconfig())).await?;
    let (made, uid) = (BootstrapTokens::new(controller.clone()), Uid::new("uid-of-a-claim").unwrap());

    eventually("the policy's force", Duration::from_secs(60), async || {
        let refused = create(&controller, "somebody", "Opaque").await.err().map(|error| error.to_string());
        Ok(refused.filter(|error| error.contains("napkeeper may create and delete bootstrap tokens")))
    })
    .await?;
    assert!(create(&controller, "bootstrap-token-abcdef", "Opaque").await.is_err(), "only tokens have such names");
    let secrets = Api::<Secret>::namespaced(controller.clone(), "kube-system");
    create(&admin, "theirs", "Opaque").await?;
    assert!(secrets.delete("theirs", &DeleteParams::default()).await.is_err(), "nor may it delete others");

    let untouched = token_refused(&controller, ["metadata", "name"], json!("bootstrap-token-zzzzzz")).await?;
    assert_eq!(untouched, None);
    for (field, value, message) in [
        (["metadata", "labels"], Value::Null, "only bootstrap tokens of its own NodeClaims"),
        (["stringData", "usage-bootstrap-signing"], json!("true"), "no other usages or groups"),
        (["stringData", "auth-extra-groups"], json!("system:bootstrappers:admins"), "no other usages or groups"),
        (["stringData", "expiration"], json!("2099-01-01T00:00:00Z"), "expires within an hour"),
        (["stringData", "expiration"], json!("2099-01-01T00:00:00+00:00"), "expires within an hour"),
        (["stringData", "expiration"], json!(""), "expires within an hour"),
    ] {
        let told = token_refused(&controller, field, value.clone()).await?;
        assert!(told.as_ref().is_some_and(|told| told.contains(message)), "{field:?} {value}: {told:?}");
    }
    create(&admin, "bootstrap-token-theirs", "bootstrap.kubernetes.io/token").await?;
    let theirs = secrets.delete("bootstrap-token-theirs", &DeleteParams::default()).await;
    assert!(theirs.is_err_and(|error| error.to_string().contains("of its own NodeClaims")), "nor tokens of others");

    let first = made.issue(&uid).await?;
    let second = made.issue(&uid).await?;
    assert_ne!(first.id(), second.id(), "a PUT that is repeated has one of its own");
    for token in [&first, &second] {
        let (name, groups) = who(&plane, token).await?;
        assert_eq!(name, format!("system:bootstrap:{}", token.id()));
        assert!(groups.contains(&"system:bootstrappers".to_owned()), "{groups:?}");
    }
    assert!(tokens(controller).await.is_err(), "we read no Secrets");
    assert_eq!(tokens(admin.clone()).await?, 2);
    made.issue(&Uid::new("another").unwrap()).await?;
    made.revoke(&uid).await?;
    made.revoke(&uid).await?;
    assert_eq!(tokens(admin).await?, 1, "the other's stays");
    // The API server remembers for some seconds whom it has let in.
    for token in [&first, &second] {
        eventually("end of a token", Duration::from_secs(60), async || Ok(who(&plane, token).await.err())).await?;
    }
    Ok(())
}
