//! Runs a health check as Argo CD does: Lua 5.1 without libraries but that of tables, with the object as `obj`.

use anyhow::{Context, Result, anyhow, ensure};
use mlua::{Function, Lua, LuaOptions, StdLib, Table};
use napkeeper_tests::manifests::repository;
use serde_json::Value;

/// What Argo CD takes as a health.
const STATUSES: [&str; 6] = ["Healthy", "Progressing", "Degraded", "Suspended", "Missing", "Unknown"];

/// What a check says of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Health {
    /// One of [`STATUSES`].
    pub(crate) status: String,
    /// The message for people.
    pub(crate) message: String,
}

/// The check of a kind, as `group_kind`, that ships.
pub(super) fn script(kind: &str) -> Result<String> {
    let path = repository("manifests/gitops/argocd/health").join(format!("{kind}.lua"));
    std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
}

/// What the check of its kind says of an object.
pub(crate) fn health_of(object: &Value) -> Result<Health> {
    let text = |key: &str| object[key].as_str().with_context(|| format!("an object without {key}: {object}"));
    let group = text("apiVersion")?.split('/').next().unwrap_or_default();
    let kind = format!("{group}_{}", text("kind")?);
    run(&script(&kind)?, object).map_err(|error| anyhow!("{kind}: {error} on {object}"))
}

fn run(script: &str, object: &Value) -> Result<Health> {
    let result = || -> mlua::Result<(String, String, usize)> {
        let lua = Lua::new_with(StdLib::TABLE, LuaOptions::default())?;
        lua.globals().set("obj", to_lua(&lua, object)?)?;
        let check: Function = lua.load(script).into_function()?;
        let health: Table = check.call(())?;
        Ok((health.get("status")?, health.get("message")?, health.pairs::<mlua::Value, mlua::Value>().count()))
    };
    // The errors of the interpreter are not Send.
    let (status, message, fields) = result().map_err(|error| anyhow!("{error}"))?;
    ensure!(STATUSES.contains(&&*status) && fields == 2, "no health: {status:?}, {message:?}");
    Ok(Health { status, message })
}

/// A value as Argo CD passes it: all numbers are floating-point, and null is absent.
fn to_lua(lua: &Lua, value: &Value) -> mlua::Result<mlua::Value> {
    Ok(match value {
        Value::Null => mlua::Value::Nil,
        Value::Bool(value) => mlua::Value::Boolean(*value),
        Value::Number(number) => mlua::Value::Number(number.as_f64().unwrap_or(f64::NAN)),
        Value::String(text) => mlua::Value::String(lua.create_string(text)?),
        Value::Array(items) => {
            let items = items.iter().map(|item| to_lua(lua, item)).collect::<mlua::Result<Vec<_>>>()?;
            mlua::Value::Table(lua.create_sequence_from(items)?)
        }
        Value::Object(fields) => {
            let table = lua.create_table()?;
            for (key, field) in fields {
                table.set(&**key, to_lua(lua, field)?)?;
            }
            mlua::Value::Table(table)
        }
    })
}

/// A script that uses what Argo CD does not offer must fail here too.
#[test]
fn scripts_have_no_other_libraries() {
    for call in ["string.find('a', 'a')", "('a'):find('a')", "os.time()", "io.open('/')", "math.max(1, 2)"] {
        let script = format!("local x = {call}; return {{ status = 'Healthy', message = '' }}");
        let error = run(&script, &Value::Null).unwrap_err().to_string();
        assert!(error.contains("nil value") || error.contains("a string value"), "{call}: {error}");
    }
    assert!(run("return { status = 'Fine', message = '' }", &Value::Null).is_err());
}
