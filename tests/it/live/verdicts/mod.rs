//! The API server and napkeeper agree on objects.
//!
//! Objects are mutated by the schemas of the definitions, validated by a real API server by dry-run and by our engine,
//! and the answers compared: verdict, HTTP class, fields of the causes, names of unknown fields. A failure shows a
//! smaller
//! object with the same difference.

mod azure;
mod differ;
pub(super) mod server;
pub(super) mod setup;
mod workloads;

use crate::drawn_objects::cases::{self, Case};
use crate::drawn_objects::{bases, definitions as own_definitions, fields};
use anyhow::{Context, Result, ensure};
use napkeeper_tests::control_plane::{ControlPlane, Mode, upstream_crds};
use napkeeper_verdict::CrdSchemas;
use serde_json::Value;
use server::{Answer, Response, Server};
use std::collections::BTreeSet;
use std::time::Instant;

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

async fn answers(server: &Server, cases: &[Case]) -> Result<Vec<Response>> {
    let start = Instant::now();
    let responses = server.all(cases, async |server, case| server.ask_case(case).await).await?;
    let taken = responses.iter().filter(|responses| responses.answer.code == 200).count();
    eprintln!("{} cases, {taken} taken, {:?}", cases.len(), start.elapsed());
    Ok(responses)
}

/// The engine's answer to a case, by some definitions.
fn engine(definitions: &CrdSchemas, case: &Case) -> Answer {
    let verdict = definitions.create(&case.object);
    Answer {
        code: if verdict.code == 201 { 200 } else { verdict.code },
        fields: verdict.causes.into_iter().map(|cause| cause.field).collect(),
        unknown: verdict.unknown_fields.into_iter().collect(),
    }
}

/// Every field of every schema must have been changed, else a field would go unseen.
fn ensure_all_fields_met(crds: &[Value], cases: &[Case]) -> Result<()> {
    let mut unmet = Vec::new();
    for base in bases::all() {
        let name = base.name.split('-').next().unwrap_or_default();
        let of_kind: String =
            cases.iter().filter(|case| case.about["kind"] == base.object["kind"]).map(|c| c.label.as_str()).collect();
        let all = fields::fields(&fields::schema_of(crds, &base.object));
        let unseen =
            all.iter().map(fields::Field::path).filter(|path| !path.starts_with("status") && !of_kind.contains(path));
        unmet.extend(unseen.map(|path| format!("{name} {path}")));
    }
    ensure!(unmet.is_empty(), "nothing changes {unmet:?}");
    Ok(())
}

#[tokio::test]
async fn the_engine_answers_as_the_api_server_does_by_our_definitions() -> Result<()> {
    let crds = own_definitions()?;
    let definitions = CrdSchemas::from_crds("ours", crds.iter())?;
    let plane = ControlPlane::start(Mode::Api).await?;
    let server = Server::of(&plane).await?;
    setup::install(&plane, &server, &crds).await?;

    let creates = cases::creates(&crds);
    ensure_all_fields_met(&crds, &creates)?;
    ensure!(creates.len() >= 3_000, "{} creates", creates.len());
    let judge = |case: &Case, _: &Response| engine(&definitions, case);
    let responses = answers(&server, &creates).await?;
    let wrong = differ::differences(&server, &creates, &responses, &judge).await?;
    ensure!(wrong.is_empty(), "{wrong}");
    Ok(())
}

#[tokio::test]
async fn karpenters_definitions_agree_except_for_azure_label_rules() -> Result<()> {
    let (upstream, own) = (upstreams().await?, own_definitions()?);
    let by_upstream = CrdSchemas::from_crds("upstream", upstream.iter())?;
    let by_own = CrdSchemas::from_crds("ours", own.iter())?;
    let plane = ControlPlane::start(Mode::Api).await?;
    let server = Server::of(&plane).await?;
    setup::install(&plane, &server, &upstream).await?;
    let (cases, mut met) = (cases::creates(&upstream), BTreeSet::new());
    let responses = answers(&server, &cases).await?;
    let judge = |case: &Case, _: &Response| engine(&by_upstream, case);
    let mut wrong = differ::differences(&server, &cases, &responses, &judge).await?;
    for (case, responses) in cases.iter().zip(&responses) {
        let (expected, rules) = azure::expected(case, responses);
        let answer = engine(&by_own, case);
        if answer == expected {
            met.extend(rules);
        } else {
            wrong.push_str(&format!("\nby ours, {}\n  expected {expected:?}\n  but      {answer:?}\n", case.label));
        }
    }
    ensure!(wrong.is_empty(), "{wrong}");
    ensure!(met == azure::every(), "no case meets {:?}", azure::every().difference(&met));
    Ok(())
}
