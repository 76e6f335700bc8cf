//! The peer: a hook that reads a review, and adds one annotation without looking at anything.

use anyhow::Result;
use axum::Json;
use axum::routing::post;
use napkeeper_serve::prometheus_client::registry::Registry;
use napkeeper_serve::{Certificates, Lifecycle, Limits, TlsMetrics, bind, serve_tls};
use serde_json::{Value, json};
use std::path::Path;

/// The argument that makes this program the hook.
pub(crate) const CHILD: &str = "hook-that-does-nothing";

/// Serves until it is killed. Certificates and connections are handled as in the webhook, so that the difference is the
/// evaluation of reviews.
pub(crate) async fn serve(folder: &Path) -> Result<()> {
    let certificates = Certificates::load(&folder.join("tls.crt"), &folder.join("tls.key"), None)?;
    let listener = bind("127.0.0.1:0".parse()?)?;
    println!("listens admission={}", listener.local_addr()?);
    let router = axum::Router::new().route("/mutate", post(answer)).route("/validate", post(answer));
    let (lifecycle, mut registry) = (Lifecycle::default(), Registry::default());
    let certificates = certificates.with_metrics(TlsMetrics::register(&mut registry));
    Ok(serve_tls(&lifecycle, listener, router, Limits::default(), certificates).await?)
}

async fn answer(Json(review): Json<Value>) -> Json<Value> {
    let request = &review["request"];
    let mut response = json!({ "uid": request["uid"], "allowed": true });
    if request["kind"]["kind"] == "Pod" {
        let patch = if request["object"]["metadata"]["annotations"].is_object() {
            json!([{ "op": "add", "path": "/metadata/annotations/nothing", "value": "nothing" }])
        } else {
            json!([{ "op": "add", "path": "/metadata/annotations", "value": { "nothing": "nothing" } }])
        };
        response["patchType"] = json!("JSONPatch");
        // As wire types have bytes: base64.
        response["patch"] = json!(k8s_openapi::ByteString(patch.to_string().into_bytes()));
    }
    Json(json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response }))
}
