//! Finds where two judges differ, and reduces the object to the least that shows it.

use super::server::{Answer, Response, Server};
use crate::drawn_objects::cases::Case;
use anyhow::Result;
use serde_json::Value;
use std::fmt::Write;

/// How many differences are shown in full.
const SHOWN: usize = 12;
/// How often a case is made smaller.
const TRIES: usize = 150;

impl Server {
    /// The API server's answer to a case.
    pub(super) async fn ask_case(&self, case: &Case) -> Result<Response> {
        self.create(&case.about, &case.object).await
    }
}

/// Compares the server's answers with those of `judge`, and reports all differences; empty if there are none.
pub(super) async fn differences(
    server: &Server,
    cases: &[Case],
    response: &[Response],
    judge: &dyn Fn(&Case, &Response) -> Answer,
) -> Result<String> {
    let mut report = String::new();
    let differing: Vec<_> =
        cases.iter().zip(response).filter(|(case, response)| judge(case, response) != response.answer).collect();
    if differing.is_empty() {
        return Ok(report);
    }
    writeln!(report, "{} of {} answers differ", differing.len(), cases.len())?;
    for (case, response) in differing.iter().take(SHOWN) {
        let (small, response) = minimised(server, case, response, judge).await?;
        writeln!(report, "\n{}", case.label)?;
        writeln!(report, "  object: {}", small.object)?;
        writeln!(report, "  server: {:?}\n          {}", response.answer, response.message)?;
        writeln!(report, "  ours:   {:?}", judge(&small, &response))?;
    }
    for (case, response) in differing.iter().skip(SHOWN).take(100) {
        let own = judge(case, response);
        let (server, own) = (brief(&response.answer, &own), brief(&own, &response.answer));
        writeln!(report, "{}\n  server only {server}; ours only {own}", case.label)?;
    }
    Ok(report)
}

/// What one answer has and the other has not.
fn brief(one: &Answer, other: &Answer) -> String {
    let fields: Vec<_> = one.fields.difference(&other.fields).collect();
    let unknown: Vec<_> = one.unknown.difference(&other.unknown).collect();
    format!("{} {fields:?} {unknown:?}", one.code)
}

/// The same difference by a smaller object: keys and items go as long as the judges still differ.
async fn minimised(
    server: &Server,
    case: &Case,
    response: &Response,
    judge: &dyn Fn(&Case, &Response) -> Answer,
) -> Result<(Case, Response)> {
    let (mut best, mut best_response) = (case.clone(), response.clone());
    let mut tries = 0;
    let mut pointers = pointers(&best.object);
    while let Some(pointer) = pointers.pop() {
        if tries == TRIES {
            break;
        }
        let mut smaller = best.clone();
        if !remove(&mut smaller.object, &pointer) {
            continue;
        }
        tries += 1;
        let response = server.ask_case(&smaller).await?;
        if judge(&smaller, &response) != response.answer {
            pointers.retain(|other| !other.starts_with(&format!("{pointer}/")));
            (best, best_response) = (smaller, response);
        }
    }
    Ok((best, best_response))
}

/// JSON pointers to everything below a value, so that the last are the outermost and the last items.
fn pointers(value: &Value) -> Vec<String> {
    let mut level = vec![(String::new(), value)];
    let mut all = Vec::new();
    while !level.is_empty() {
        let mut next = Vec::new();
        for (at, value) in level {
            match value {
                Value::Object(map) => next.extend(map.iter().map(|(key, v)| (format!("{at}/{}", escaped(key)), v))),
                Value::Array(list) => next.extend(list.iter().enumerate().rev().map(|(i, v)| (format!("{at}/{i}"), v))),
                _ => {}
            }
        }
        all.extend(next.iter().map(|(at, _)| at.clone()));
        level = next;
    }
    all.retain(|at| !["/apiVersion", "/kind", "/metadata", "/metadata/name"].contains(&at.as_str()));
    all.reverse();
    all
}

fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

fn remove(object: &mut Value, pointer: &str) -> bool {
    let Some((parent, last)) = pointer.rsplit_once('/') else {
        return false;
    };
    match object.pointer_mut(parent) {
        Some(Value::Object(map)) => map.remove(&last.replace("~1", "/").replace("~0", "~")).is_some(),
        Some(Value::Array(list)) => match last.parse::<usize>() {
            Ok(index) if index < list.len() => {
                list.remove(index);
                true
            }
            _ => false,
        },
        _ => false,
    }
}
