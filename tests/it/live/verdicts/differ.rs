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

/// Compares the server's answers with somebody else's, and tells of all differences; empty if there are none.
pub(super) async fn differences(
    server: &Server,
    cases: &[Case],
    told: &[Response],
    judge: &dyn Fn(&Case, &Response) -> Answer,
) -> Result<String> {
    let mut report = String::new();
    let differing: Vec<_> = cases.iter().zip(told).filter(|(case, told)| judge(case, told) != told.answer).collect();
    if differing.is_empty() {
        return Ok(report);
    }
    writeln!(report, "{} of {} answers differ", differing.len(), cases.len())?;
    for (case, told) in differing.iter().take(SHOWN) {
        let (small, told) = minimised(server, case, told, judge).await?;
        writeln!(report, "\n{}", case.label)?;
        writeln!(report, "  object: {}", small.object)?;
        writeln!(report, "  server: {:?}\n          {}", told.answer, told.message)?;
        writeln!(report, "  ours:   {:?}", judge(&small, &told))?;
    }
    for (case, told) in differing.iter().skip(SHOWN).take(100) {
        let ours = judge(case, told);
        let (server, ours) = (brief(&told.answer, &ours), brief(&ours, &told.answer));
        writeln!(report, "{}\n  server only {server}; ours only {ours}", case.label)?;
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
    told: &Response,
    judge: &dyn Fn(&Case, &Response) -> Answer,
) -> Result<(Case, Response)> {
    let (mut best, mut best_told) = (case.clone(), told.clone());
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
        let told = server.ask_case(&smaller).await?;
        if judge(&smaller, &told) != told.answer {
            pointers.retain(|other| !other.starts_with(&format!("{pointer}/")));
            (best, best_told) = (smaller, told);
        }
    }
    Ok((best, best_told))
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
