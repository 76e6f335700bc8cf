//! Checks that a saved file is a complete listing of the kind that its name says.
//!
//! Anything less must never count as an empty listing: a resource without references is an orphan.

use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The listings of Kubernetes that are read, with the kind of their objects.
pub(super) const KUBERNETES: [(&str, &str); 8] = [
    ("nodeclaims", "NodeClaim"),
    ("nodes", "Node"),
    ("persistentvolumes", "PersistentVolume"),
    ("volumeattachments", "VolumeAttachment"),
    ("pods", "Pod"),
    ("volumesnapshotcontents", "VolumeSnapshotContent"),
    ("orphansweeps", "OrphanSweep"),
    ("orphanrecords", "OrphanRecord"),
];

/// Most characters of an error that are quoted.
const MAX_QUOTE: usize = 200;

/// The objects in the output of kubectl: a list, or a single object.
///
/// # Errors
/// Why it is not a complete list of that kind.
pub(super) fn objects(value: Value, kind: &str) -> Result<Vec<Value>, String> {
    let Value::Object(mut map) = value else { return Err(format!("expected a List of {kind}, got {}", named(&value))) };
    if let Some(error) = error_in(&map) {
        return Err(format!("expected a List of {kind}, got an error: {error}"));
    }
    let own = map.get("kind").and_then(Value::as_str).map(str::to_owned);
    let continues = map.get("metadata").and_then(|meta| meta.get("continue")).and_then(Value::as_str);
    if continues.is_some_and(|token| !token.is_empty()) {
        return Err("it is only the first page of a list (metadata.continue)".to_owned());
    }
    match (map.remove("items"), own.as_deref()) {
        (Some(Value::Array(items)), list) => {
            if let Some(list) = list.filter(|list| *list != "List" && *list != format!("{kind}List")) {
                return Err(format!("expected a List of {kind}, got {list}"));
            }
            items.iter().try_for_each(|item| check_kind(item, kind))?;
            Ok(items)
        }
        (Some(other), _) => Err(format!("`items` must be a list, got {}", named(&other))),
        (None, Some(own)) if own == kind => Ok(vec![Value::Object(map)]),
        (None, Some(own)) => Err(format!("expected a List of {kind}, got {own}")),
        (None, None) => Err(format!("expected a List of {kind}, it has no `items`")),
    }
}

/// Checks the kind of an item of a list, which may be left to the list.
fn check_kind(item: &Value, kind: &str) -> Result<(), String> {
    let Value::Object(map) = item else { return Err(format!("one of its items is {}", named(item))) };
    match map.get("kind").and_then(Value::as_str) {
        Some(other) if other != kind => Err(format!("one of its items is {other}, expected {kind}")),
        _ => Ok(()),
    }
}

/// Checks that pages are a complete listing, or with `single` one object.
///
/// # Errors
/// Why they are not. `page` names the file of a page.
pub(super) fn pages(pages: &BTreeMap<u32, Value>, single: bool, page: impl Fn(u32) -> String) -> Result<(), String> {
    let mut continues = false;
    for (n, (at, value)) in (1..).zip(pages) {
        if n != *at {
            return Err(format!("{} exists but {} is missing", page(*at), page(n)));
        }
        let wrong = |reason: String| if *at == 1 { reason } else { format!("in {}: {reason}", page(*at)) };
        continues = if single { one(value).map(|()| false) } else { list(value) }.map_err(wrong)?;
    }
    let next = pages.len() + 1;
    match u32::try_from(next) {
        Ok(next) if continues => Err(format!("the listing continues (nextLink), but {} is missing", page(next))),
        _ => Ok(()),
    }
}

/// Checks a page of a list; true where it names a next one.
fn list(value: &Value) -> Result<bool, String> {
    let (items, next) = match value {
        Value::Array(items) => (items, None),
        Value::Object(map) => {
            if let Some(error) = error_in(map) {
                return Err(format!("expected a listing, got an error: {error}"));
            }
            match map.get("value") {
                Some(Value::Array(items)) => (items, map.get("nextLink")),
                Some(other) => return Err(format!("`value` must be a list, got {}", named(other))),
                None => return Err("expected a listing, it has no `value`".to_owned()),
            }
        }
        other => return Err(format!("expected a listing, got {}", named(other))),
    };
    match items.iter().find(|item| !item.is_object()) {
        Some(other) => Err(format!("one of its items is {}", named(other))),
        None => Ok(next.is_some_and(|link| !link.is_null() && link != "")),
    }
}

/// Checks that a value is one object with an id.
fn one(value: &Value) -> Result<(), String> {
    let Value::Object(map) = value else { return Err(format!("expected a resource, got {}", named(value))) };
    match (error_in(map), map.get("id")) {
        (Some(error), _) => Err(format!("expected a resource, got an error: {error}")),
        (None, Some(Value::String(_))) => Ok(()),
        (None, _) => Err("expected a resource, it has no `id`".to_owned()),
    }
}

/// The text of an error body of Azure or Kubernetes.
fn error_in(map: &Map<String, Value>) -> Option<String> {
    let word = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (code, message) = match (map.get("error"), map.get("kind").and_then(Value::as_str)) {
        (Some(error), _) => (word(error, "code"), word(error, "message")),
        (None, Some("Status")) => {
            let text = |key: &str| map.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
            (text("reason"), text("message"))
        }
        _ => return None,
    };
    let error: String = [code, message].into_iter().filter(|s| !s.is_empty()).collect::<Vec<_>>().join(": ");
    Some(if error.is_empty() { "no further details".to_owned() } else { error.chars().take(MAX_QUOTE).collect() })
}

/// The type of a value, as text.
fn named(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_a_whole_list_of_the_kind_is_one() {
        let node = json!({ "kind": "Node", "metadata": { "name": "a" } });
        for good in [
            json!({ "items": [] }),
            json!({ "kind": "List", "items": [node] }),
            json!({ "kind": "NodeList", "metadata": { "continue": "" }, "items": [{ "metadata": {} }] }),
            node.clone(),
        ] {
            assert!(objects(good.clone(), "Node").is_ok(), "{good}");
        }
        for (bad, part) in [
            (json!(null), "got null"),
            (json!("x"), "got a string"),
            (json!([]), "a list"),
            (json!({}), "no `items`"),
            (json!({ "items": {} }), "`items` must be a list"),
            (json!({ "kind": "Pod" }), "got Pod"),
            (json!({ "kind": "PodList", "items": [] }), "got PodList"),
            (json!({ "kind": "List", "items": [{ "kind": "Pod" }] }), "is Pod, expected Node"),
            (json!({ "items": [null] }), "is null"),
            (
                json!({ "kind": "Status", "reason": "Forbidden", "message": "no" }),
                "expected a List of Node, got an error: Forbidden: no",
            ),
            (json!({ "error": { "code": "A" }, "items": [] }), "an error"),
            (json!({ "items": [], "metadata": { "continue": "x" } }), "only the first page"),
        ] {
            let reason = objects(bad.clone(), "Node").unwrap_err();
            assert!(reason.contains(part), "{bad}: {reason}");
        }
    }

    #[test]
    fn incomplete_pages_have_a_reason() {
        let check = |list: &[(u32, Value)], single| {
            pages(&list.iter().cloned().collect(), single, |n| format!("p{n}")).err().unwrap_or_default()
        };
        let (last, continues) = (json!({ "value": [] }), json!({ "value": [], "nextLink": "https://a" }));
        assert_eq!(check(&[(1, last.clone())], false), "");
        assert_eq!(check(&[(1, json!([{ "id": "/a" }]))], false), "");
        assert_eq!(check(&[(1, continues.clone()), (2, last.clone())], false), "");
        assert_eq!(check(&[(1, json!({ "id": "/a" }))], true), "");
        for (list, single, part) in [
            (vec![(1, continues.clone())], false, "p2 is missing"),
            (vec![(1, continues.clone()), (3, last.clone())], false, "p3 exists but p2 is missing"),
            (vec![(2, last.clone())], false, "p1 is missing"),
            (
                vec![(1, continues), (2, json!({ "error": { "code": "Throttled" } }))],
                false,
                "in p2: expected a listing, got an error",
            ),
            (vec![(1, json!({}))], false, "it has no `value`"),
            (vec![(1, json!({ "error": {} }))], false, "no further details"),
            (vec![(1, json!({ "kind": "Status", "message": "no" }))], false, "expected a listing, got an error: no"),
            (vec![(1, json!(null))], false, "got null"),
            (vec![(1, json!({ "value": null }))], false, "`value` must be a list, got null"),
            (vec![(1, json!([1]))], false, "a number"),
            (vec![(1, json!([]))], true, "expected a resource, got a list"),
            (vec![(1, json!({}))], true, "no `id`"),
        ] {
            let reason = check(&list, single);
            assert!(reason.contains(part), "{list:?}: {reason}");
        }
    }
}
