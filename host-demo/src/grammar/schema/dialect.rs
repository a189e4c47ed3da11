//! Draft 4 and OpenAPI 3.0 have switches for what later drafts say by a number and a type: as these, they can be compared
//! and combined.

use anyhow::Result;
use serde_json::{Map, Value, json};

use super::declared_types;

const LIMITS: [(&str, &str); 2] = [("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")];

/// Whether a schema has such a switch.
pub(super) fn has_switch(schema: &Map<String, Value>) -> bool {
    let is_switch = |key: &str| schema.get(key).is_some_and(Value::is_boolean);
    LIMITS.iter().any(|(_, switch)| is_switch(switch))
        || (schema.contains_key("type") && schema.contains_key("nullable"))
}

/// The same schema without them.
pub(super) fn without_switches(mut schema: Map<String, Value>, path: &str) -> Result<Map<String, Value>> {
    for (limit, switch) in LIMITS {
        let Some(is_exclusive) = schema.get(switch).and_then(Value::as_bool) else { continue };
        schema.remove(switch);
        if is_exclusive && let Some(limit) = schema.remove(limit) {
            schema.insert(switch.into(), limit);
        }
    }
    // (Without a type, null is allowed whatever the switch says.)
    if schema.contains_key("type") && schema.remove("nullable") == Some(json!(true)) {
        let mut types = declared_types(&schema, path)?;
        if !types.contains(&"null") {
            types.push("null");
        }
        schema.insert("type".into(), json!(types));
    }
    Ok(schema)
}
