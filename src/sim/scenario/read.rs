//! Reads a scenario from a document.

use super::{API_VERSION, LONGEST, SYSTEM_NODES, Scenario, Step, problem};
use crate::world::Action;
use crate::world::actions::fields;
use jiff::{SignedDuration, Timestamp};
use napkeeper_api::field_path::Path;
use napkeeper_api::manifests::Problem;
use napkeeper_api::types::decode::{DecodeError, decode};
use napkeeper_api::types::duration;
use napkeeper_api::yaml::Document;
use napkeeper_core::model::names::Region;
use napkeeper_core::model::support::spelling::nearest;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// Least time between two times of one step: the world is not made for more.
const MOST_OFTEN: SignedDuration = SignedDuration::from_mins(1);
/// Times that a scenario may begin at: prices are of this age, and a year after them must still be a time.
const FIRST_START: Timestamp = Timestamp::UNIX_EPOCH;
/// WorldSetup of the year 2200.
const LAST_START_SECOND: i64 = 7_258_118_400;
/// Keys of a step beside the action.
const TIME_KEYS: [&str; 3] = ["at", "every", "until"];

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    metadata: Metadata,
    spec: Spec,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Spec {
    description: Option<String>,
    region: Region,
    start: Timestamp,
    #[serde(rename = "for", deserialize_with = "fields::duration")]
    duration: SignedDuration,
    seed: Option<u64>,
    system_nodes: Option<u32>,
    /// Read one by one, so that every wrong one is found.
    #[serde(default, rename = "steps")]
    _steps: Option<Vec<Value>>,
}

/// Reads a scenario.
///
/// # Errors
/// All problems, with positions.
pub fn read(document: &Document) -> Result<Scenario, Vec<Problem>> {
    let mut problems = Vec::new();
    let version = document.value["apiVersion"].as_str().unwrap_or_default();
    if version != API_VERSION {
        let message = format!("unsupported apiVersion {version:?}: use {API_VERSION}");
        problems.push(problem(document, &Path::from_dotted("apiVersion"), message));
    }
    let file: Option<File> = match decode(&document.value) {
        Ok(file) => Some(file),
        Err(DecodeError { path, message }) => {
            problems.push(problem(document, &path, message));
            None
        }
    };
    let values = document.value["spec"]["steps"].as_array();
    let mut steps = Vec::new();
    for (i, value) in values.into_iter().flatten().enumerate() {
        let path = Path::from_dotted("spec.steps").index(i);
        match step(value, &path) {
            Ok(step) => steps.push(step),
            Err((path, message)) => problems.push(problem(document, &path, message)),
        }
    }
    if let Some(file) = &file {
        problems.extend(times(&file.spec, &steps).into_iter().map(|(path, message)| problem(document, &path, message)));
    }
    match file {
        Some(File { metadata, spec, .. }) if problems.is_empty() => Ok(Scenario {
            name: metadata.name,
            description: spec.description,
            region: spec.region,
            start: spec.start,
            duration: spec.duration,
            seed: spec.seed.unwrap_or(1),
            system_nodes: spec.system_nodes.unwrap_or(SYSTEM_NODES),
            steps,
        }),
        _ => Err(problems),
    }
}

/// Something wrong at a path.
type PathProblem = (Path, String);

/// Reads one step: when, and exactly one action.
fn step(value: &Value, path: &Path) -> Result<Step, PathProblem> {
    let Some(map) = value.as_object() else {
        return Err((path.clone(), "a step must be a map such as {at: 15m, approve: {}}".to_owned()));
    };
    let time = |key: &str| match map.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => {
            duration::parse_with_days(text).map(Some).map_err(|e| (path.key(key), e.to_string()))
        }
        Some(_) => Err((path.key(key), "must be a duration such as 15m or 2d".to_owned())),
    };
    let at = time("at")?.ok_or_else(|| (path.clone(), "at is missing, for example at: 15m".to_owned()))?;
    let (every, until) = (time("every")?, time("until")?);
    let actions: Vec<_> = map.iter().filter(|(key, _)| !TIME_KEYS.contains(&key.as_str())).collect();
    let (name, body) = match actions[..] {
        [(name, body)] => (name, body),
        [] => return Err((path.clone(), format!("the step has no action: add one of {}", Action::NAMES.join(", ")))),
        [_, (second, _), ..] => {
            return Err((path.key(second), "a step has exactly one action: move this to its own step".to_owned()));
        }
    };
    if !Action::NAMES.contains(&name.as_str()) {
        let meant = nearest(name, Action::NAMES).map(|n| format!("did you mean {n}? ")).unwrap_or_default();
        let message = format!("unknown step {name:?}; {meant}Steps are {}", Action::NAMES.join(", "));
        return Err((path.key(name), message));
    }
    let body = if body.is_null() { Value::Object(Map::new()) } else { body.clone() };
    let action =
        decode(&json!({ name.as_str(): body })).map_err(|error| (path.join(error.path.segments()), error.message))?;
    Ok(Step { at, every, until, action, path: path.clone() })
}

/// Problems of the times.
fn times(spec: &Spec, steps: &[Step]) -> Vec<PathProblem> {
    let mut wrong = Vec::new();
    let mut refuse = |when: bool, path: Path, message: String| wrong.extend(when.then_some((path, message)));
    let fits = spec.start >= FIRST_START && spec.start.as_second() < LAST_START_SECOND;
    refuse(
        !fits,
        Path::from_dotted("spec.start"),
        "must be a time from 1970 to 2200, for example 2026-08-03T06:00:00Z".to_owned(),
    );
    let length = spec.duration.is_positive() && spec.duration <= LONGEST;
    refuse(!length, Path::from_dotted("spec.for"), "must be greater than 0 and at most 366d".to_owned());
    for step in steps {
        let late = step.at > spec.duration;
        refuse(
            late,
            step.path.key("at"),
            format!("never happens: the scenario ends after {}", duration::format(spec.duration)),
        );
        let often = step.every.is_some_and(|every| every < MOST_OFTEN);
        refuse(often, step.path.key("every"), "must be at least 1m".to_owned());
        let idle = step.until.is_some() && step.every.is_none();
        refuse(idle, step.path.key("until"), "requires every: the step happens only once".to_owned());
        let over = step.until.is_some_and(|until| until < step.at);
        refuse(over, step.path.key("until"), "is before at: the step never happens".to_owned());
    }
    wrong
}
