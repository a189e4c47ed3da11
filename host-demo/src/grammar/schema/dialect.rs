//! Normalizes schemas, so that they can be compared and combined. Draft 4 and OpenAPI 3.0 have boolean switches for
//! what later drafts express by a number and a type.

use anyhow::Result;
use serde_json::{Map, Value, json};

use super::declared_types;

const LIMITS: [(&str, &str); 2] = [("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")];

/// Converts floats without a fraction to integers: 1.0 equals 1 ("Instance Equality" in
/// <https://json-schema.org/draft/2020-12/json-schema-core>), but `Value` distinguishes them.
pub(super) fn with_integers(mut schema: Value) -> Value {
    match &mut schema {
        Value::Number(number) if number.is_f64() => {
            // Beyond 2^53 not every integer has an exact `f64`.
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

/// Returns whether a schema has such a switch.
pub(super) fn has_switch(schema: &Map<String, Value>) -> bool {
    let is_switch = |key: &str| schema.get(key).is_some_and(Value::is_boolean);
    LIMITS.iter().any(|(_, switch)| is_switch(switch))
        || (schema.contains_key("type") && schema.contains_key("nullable"))
}

/// Replaces the switches of a schema.
pub(super) fn without_switches(mut schema: Map<String, Value>, path: &str) -> Result<Map<String, Value>> {
    for (limit, switch) in LIMITS {
        let Some(is_exclusive) = schema.get(switch).and_then(Value::as_bool) else { continue };
        schema.remove(switch);
        if is_exclusive && let Some(limit) = schema.remove(limit) {
            schema.insert(switch.into(), limit);
        }
    }
    // (Without a type, null is allowed regardless of the switch.)
    if schema.contains_key("type") && schema.remove("nullable") == Some(json!(true)) {
        let mut types = declared_types(&schema, path)?;
        if !types.contains(&"null") {
            types.push("null");
        }
        schema.insert("type".into(), json!(types));
    }
    Ok(schema)
}
