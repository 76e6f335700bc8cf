//! The fields of an object by its schema, and edits of them.

use serde_json::{Map, Value, json};

/// A step down a schema.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Step {
    Key(String),
    Item,
    MapValue,
}

/// A node of a schema below its root.
#[derive(Debug, Clone)]
pub(crate) struct Field {
    pub(crate) steps: Vec<Step>,
    pub(crate) schema: Value,
}

impl Field {
    /// The field as people write it.
    pub(crate) fn path(&self) -> String {
        let mut path = String::new();
        for step in &self.steps {
            match step {
                Step::Key(key) if path.is_empty() => path.push_str(key),
                Step::Key(key) => path.extend([".", key]),
                Step::Item => path.push_str("[]"),
                Step::MapValue => path.push_str("{}"),
            }
        }
        path
    }
}

/// The schema of the version of an object among definitions.
pub(crate) fn schema_of(crds: &[Value], object: &Value) -> Value {
    for crd in crds {
        let spec = &crd["spec"];
        for version in spec["versions"].as_array().into_iter().flatten() {
            let api = format!(
                "{}/{}",
                spec["group"].as_str().unwrap_or_default(),
                version["name"].as_str().unwrap_or_default()
            );
            if object["apiVersion"] == json!(api) && object["kind"] == spec["names"]["kind"] {
                return version["schema"]["openAPIV3Schema"].clone();
            }
        }
    }
    Value::Null
}

/// All fields of a schema, from the top down, without `metadata`.
pub(crate) fn fields(schema: &Value) -> Vec<Field> {
    let mut all = Vec::new();
    walk(schema, &mut Vec::new(), &mut all);
    all.retain(|field| !matches!(&field.steps[0], Step::Key(key) if ["metadata", "apiVersion", "kind"].contains(&key.as_str())));
    all
}

fn walk(schema: &Value, steps: &mut Vec<Step>, all: &mut Vec<Field>) {
    if !steps.is_empty() {
        all.push(Field { steps: steps.clone(), schema: schema.clone() });
    }
    let properties = schema["properties"].as_object().into_iter().flatten();
    let mut below: Vec<_> = properties.map(|(name, schema)| (Step::Key(name.clone()), schema)).collect();
    for (keyword, step) in [("items", Step::Item), ("additionalProperties", Step::MapValue)] {
        below.extend(schema.get(keyword).filter(|s| s.is_object()).map(|schema| (step, schema)));
    }
    for (step, schema) in below {
        steps.push(step);
        walk(schema, steps, all);
        steps.pop();
    }
}

/// What to do at a field.
#[derive(Debug, Clone)]
pub(crate) enum Edit {
    Put(Value),
    Remove,
    /// Adds a key to the object there.
    Add(&'static str, Value),
}

/// Applies it at the first (`which` = 0) or a later one of the concrete fields. Absent parents are created.
pub(crate) fn apply(object: &mut Value, steps: &[Step], which: usize, edit: &Edit) {
    let Some((step, below)) = steps.split_first() else {
        match edit {
            Edit::Put(value) => *object = value.clone(),
            Edit::Add(key, value) => {
                make_object(object).insert((*key).to_owned(), value.clone());
            }
            Edit::Remove => {}
        }
        return;
    };
    let remove = below.is_empty() && matches!(edit, Edit::Remove);
    match step {
        Step::Item => {
            if !object.is_array() {
                *object = json!([]);
            }
            let Value::Array(list) = object else { return };
            if list.is_empty() && !remove {
                list.push(json!({}));
            }
            let index = which % list.len().max(1);
            if remove && index < list.len() {
                list.remove(index);
            } else if let Some(item) = list.get_mut(index) {
                apply(item, below, which, edit);
            }
        }
        Step::Key(_) | Step::MapValue => {
            let map = make_object(object);
            let key = match step {
                Step::Key(key) => key.clone(),
                _ => map.keys().nth(which % map.len().max(1)).cloned().unwrap_or_else(|| "new".to_owned()),
            };
            if remove {
                map.remove(&key);
            } else {
                apply(map.entry(key).or_insert(Value::Null), below, which, edit);
            }
        }
    }
}

fn make_object(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = json!({});
    }
    match value {
        Value::Object(map) => map,
        _ => unreachable!("it was made an object"),
    }
}

/// The value of a field, the first of several.
pub(crate) fn look<'a>(object: &'a Value, steps: &[Step], which: usize) -> Option<&'a Value> {
    let Some((step, below)) = steps.split_first() else {
        return Some(object);
    };
    let next = match step {
        Step::Key(key) => object.get(key)?,
        Step::Item => object.as_array().and_then(|list| list.get(which % list.len().max(1)))?,
        Step::MapValue => object.as_object().and_then(|map| map.values().nth(which % map.len().max(1)))?,
    };
    look(next, below, which)
}
