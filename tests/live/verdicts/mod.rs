//! Verdicts: does the API server say of an object what we say?
//!
//! Objects are mutated by the schemas of the definitions, asked of a real API server by dry-run and of our engine, and
//! the answers compared: verdict, HTTP class, fields of the causes, names of unknown fields. A failure shows a smaller
//! object with the same difference.

mod azure;
pub(super) mod bases;
mod cases;
mod chance;
mod differ;
mod meta;
mod places;
pub(super) mod rules;
pub(super) mod server;
mod setting;
mod values;

use anyhow::{Context, Result, ensure};
use cases::Case;
use napkeeper_tests::control_plane::{ControlPlane, Mode, upstream_crds};
use serde_json::Value;
use server::{Server, Told};
use std::collections::BTreeSet;
use std::time::Instant;

/// Our definitions.
fn ours() -> Result<Vec<Value>> {
    Ok(napkeeper_api::crds::all()?.into_iter().map(|crd| crd.definition).collect())
}

/// Karpenter's own definitions of the kinds that we have too.
async fn upstreams() -> Result<Vec<Value>> {
    let mut all = Vec::new();
    for document in upstream_crds().await?.split("---\n").filter(|text| !text.trim().is_empty()) {
        all.push(serde_saphyr::from_str::<Value>(document).context("reading a definition of upstream")?);
    }
    all.retain(|crd| ["NodePool", "NodeClaim"].iter().any(|kind| crd["spec"]["names"]["kind"] == *kind));
    ensure!(all.len() == 2, "upstream has {} of the two definitions", all.len());
    Ok(all)
}

async fn answers(server: &Server, cases: &[Case]) -> Result<Vec<Told>> {
    let start = Instant::now();
    let told = server.all(cases, async |server, case| server.ask_case(case).await).await?;
    let taken = told.iter().filter(|told| told.answer.code == 200).count();
    eprintln!("{} cases, {taken} taken, {:?}", cases.len(), start.elapsed());
    Ok(told)
}

#[tokio::test]
async fn our_definitions_lack_nothing_of_karpenters_and_add_the_label_rules_of_azure() -> Result<()> {
    let (upstream, ours) = (upstreams().await?, ours()?);
    let plane = ControlPlane::start(Mode::Api).await?;
    let server = Server::of(&plane).await?;
    setting::install(&plane, &server, &upstream).await?;
    let cases = cases::creates(&upstream);
    let by_upstream = answers(&server, &cases).await?;
    let other = ControlPlane::start(Mode::Api).await?;
    let by_us = Server::of(&other).await?;
    setting::install(&other, &by_us, &ours).await?;
    let told = answers(&by_us, &cases).await?;
    let mut met = BTreeSet::new();
    for (case, told) in cases.iter().zip(&by_upstream) {
        met.extend(azure::expected(case, told).1);
    }
    let expected: std::collections::BTreeMap<_, _> = cases
        .iter()
        .zip(&by_upstream)
        .map(|(case, told)| (case.label.clone(), azure::expected(case, told).0))
        .collect();
    let wrong =
        differ::differences(&by_us, &cases, &told, &|case, _| expected.get(&case.label).cloned().unwrap_or_default())
            .await?;
    ensure!(wrong.is_empty(), "{wrong}");
    ensure!(met == azure::every(), "not met: {:?}", azure::every().difference(&met));
    Ok(())
}
