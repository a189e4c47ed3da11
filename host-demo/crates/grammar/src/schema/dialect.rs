//! Normalizes schemas, so that they can be compared and combined. Draft 4 and OpenAPI 3.0 have boolean switches
//! (`exclusiveMinimum`, `exclusiveMaximum`, `nullable`); later drafts have a number or a type instead.

use anyhow::Result;
use serde_json::{Map, Value, json};

use super::{TYPES, UNSUPPORTED, declared_types, implied_types, is_assertion};

const LIMITS: [(&str, &str); 2] = [("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")];

/// Converts floats without a fraction to integers: JSON schema treats 1.0 and 1 as equal ("Instance Equality" in
/// <https://json-schema.org/draft/2020-12/json-schema-core>), but `Value` distinguishes them.
pub(super) fn with_integers(mut schema: Value) -> Value {
    match &mut schema {
        Value::Number(number) if number.is_f64() => {
            // Larger floats are not converted: from 2^53 on, a float may stand for several integers.
            let whole = number.as_f64().filter(|f| f.fract() == 0.0 && f.abs() <= (1u64 << 53) as f64);
            whole.map_or(schema, |whole| json!(whole as i64))
        }
        Value::Array(values) => values.iter_mut().map(|value| with_integers(value.take())).collect(),
        Value::Object(members) => {
            members.values_mut().for_each(|value| *value = with_integers(value.take()));
            schema
        }
        _ => schema,
    }
}

/// Removes keywords whose value is null, because serializers of Go and C# write absent keywords so. The values of `const`
/// and `enum` are not schemas, so they stay.
pub(super) fn remove_nulls(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            members.retain(|key, value| !value.is_null() || key == "const" || !is_keyword(key));
            let within = members.iter_mut().filter(|(key, _)| !["const", "enum"].contains(&key.as_str()));
            within.for_each(|(_, value)| remove_nulls(value));
        }
        Value::Array(values) => values.iter_mut().for_each(remove_nulls),
        _ => {}
    }
}

fn is_keyword(key: &str) -> bool {
    is_assertion(key) || UNSUPPORTED.contains(&key)
}

/// Returns true if [`without_switches`] changes the schema.
pub(super) fn has_switch(schema: &Map<String, Value>) -> bool {
    let is_switch = |key: &str| schema.get(key).is_some_and(Value::is_boolean);
    LIMITS.iter().any(|(_, switch)| is_switch(switch))
        || (schema.contains_key("type") && schema.contains_key("nullable"))
        || left_types(schema).is_some()
}

/// Returns true if a schema allows no value because of `not`: zod writes `{"not": {}}`.
pub(super) fn is_never(schema: &Map<String, Value>) -> bool {
    schema.get("not").is_some_and(allows_all)
}

fn allows_all(schema: &Value) -> bool {
    match schema {
        Value::Object(members) => asserting(members).next().is_none(),
        schema => *schema == json!(true),
    }
}

fn asserting(schema: &Map<String, Value>) -> impl Iterator<Item = &str> {
    schema.keys().map(String::as_str).filter(|key| is_keyword(key))
}

/// Returns the types that `not` does not exclude; `None` if the schema has no `not`, or if `not` may exclude more than
/// types.
fn left_types(schema: &Map<String, Value>) -> Option<Vec<&'static str>> {
    let of = |schema: &Map<String, Value>| {
        let named = declared_types(schema, "").ok()?;
        let types = if named.is_empty() { implied_types(schema) } else { named };
        Some(if types.is_empty() { TYPES.to_vec() } else { types })
    };
    let excluded = match schema.get("not")? {
        Value::Bool(false) => Vec::new(),
        Value::Object(not) if is_never(not) => Vec::new(),
        Value::Object(not) if asserting(not).eq(["type"]) => of(not)?,
        _ => return None,
    };
    let has = |name| excluded.contains(&name);
    let mut left = of(schema)?;
    // A schema that excludes integers but allows numbers is not supported, because only fractional numbers would be
    // left, and a grammar cannot match only these.
    if has("integer") && !has("number") && left.contains(&"number") {
        return None;
    }
    left.retain(|name| !(has(*name) || *name == "integer" && has("number")));
    Some(left)
}

/// Replaces keywords of older dialects that switch the meaning of others (such as `nullable`), and a `not` that only
/// excludes types.
pub(super) fn without_switches(mut schema: Map<String, Value>, path: &str) -> Result<Map<String, Value>> {
    for (limit, switch) in LIMITS {
        let Some(is_exclusive) = schema.get(switch).and_then(Value::as_bool) else { continue };
        schema.remove(switch);
        if is_exclusive && let Some(limit) = schema.remove(limit) {
            schema.insert(switch.into(), limit);
        }
    }
    // Without a type, the schema allows null anyway, so `nullable` has no effect.
    if schema.contains_key("type") && schema.remove("nullable") == Some(json!(true)) {
        let mut types = declared_types(&schema, path)?;
        if !types.contains(&"null") {
            types.push("null");
        }
        schema.insert("type".into(), json!(types));
    }
    if let Some(types) = left_types(&schema) {
        schema.remove("not");
        match types.len() {
            0 => _ = schema.insert("enum".into(), json!([])),
            len if len == TYPES.len() => {}
            _ => _ = schema.insert("type".into(), json!(types)),
        }
    }
    Ok(schema)
}
