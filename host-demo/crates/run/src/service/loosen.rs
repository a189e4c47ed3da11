//! Removes conditions that a grammar cannot express from the parameters of functions.

use arenite_grammar::{self as grammar, Budget};
use serde_json::{Value, json};

/// Two limits of the simplification: the number of parameters that are tried one by one, and the number of keywords
/// that are removed.
const MOST_TRIED: usize = 64;
/// Keywords of schemas whose value is an object with a schema for each name.
const OF_SCHEMAS: [&str; 5] = ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"];
/// Maximum depth at which a part of a schema is reached from the whole schema.
const MOST_STEPS: usize = 200;

/// Simplifies the schema of a function's parameters so that it can be compiled to a grammar. Removes the keywords that
/// a grammar cannot express. If the schema still cannot be compiled, returns an object whose members have the same
/// names, or any object if no names are known.
pub fn loosened(parameters: &Value, budget: &Budget) -> Value {
    without_faults(parameters, budget).unwrap_or_else(|| by_names(parameters, budget))
}

fn without_faults(parameters: &Value, budget: &Budget) -> Option<Value> {
    let mut loose = parameters.clone();
    for _ in 0..MOST_TRIED {
        let Err(why) = grammar::from_json_schema(&loose, budget) else { return Some(loose) };
        // An error begins with the path of the keyword, so the text is split at the first colon.
        let why = format!("{why:#}");
        let place = place(&loose, String::new(), why.split(": ").next()?.strip_prefix('$')?, MOST_STEPS)?;
        remove(&mut loose, &place)?;
    }
    None
}

/// Removes the keyword at a JSON pointer. If the pointer leads to a schema, the schema is replaced by one that allows
/// everything.
fn remove(schema: &mut Value, place: &str) -> Option<()> {
    let (parent, key) = place.rsplit_once('/')?;
    let is_schema = OF_SCHEMAS.iter().any(|name| parent.ends_with(&format!("/{name}")));
    let parent = schema.pointer_mut(parent)?.as_object_mut()?;
    let key = key.replace("~1", "/").replace("~0", "~");
    match is_schema {
        true if parent.get(&key) == Some(&Value::Bool(true)) => return None,
        true => _ = parent.insert(key, Value::Bool(true)),
        false => _ = parent.remove(&key)?,
    }
    Some(())
}

/// Returns the JSON pointer of the part of a schema that an error names with the path of `at` followed by `rest`. A
/// reference, and each part of `allOf`, has the same path as the schema around it.
fn place(root: &Value, at: String, rest: &str, steps: usize) -> Option<String> {
    if rest.is_empty() {
        return Some(at);
    }
    let steps = steps.checked_sub(1)?;
    let value = root.pointer(&at)?;
    if let Some((index, after)) = rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return value.is_array().then(|| place(root, format!("{at}/{index}"), after, steps))?;
    }
    let name = rest.strip_prefix('.')?;
    let members = value.as_object()?;
    let named = members.keys().filter_map(|key| {
        let after =
            name.strip_prefix(key.as_str()).filter(|after| after.is_empty() || after.starts_with(['.', '[']))?;
        place(root, format!("{at}/{}", key.replace('~', "~0").replace('/', "~1")), after, steps)
    });
    let referred = members.get("$ref").and_then(Value::as_str).and_then(|target| target.strip_prefix('#'));
    let parts = members.get("allOf").and_then(Value::as_array).map_or(0, Vec::len);
    let within = referred.map(str::to_string).into_iter().chain((0..parts).map(|part| format!("{at}/allOf/{part}")));
    named.chain(within.filter_map(|part| place(root, part, rest, steps))).next()
}

fn by_names(parameters: &Value, budget: &Budget) -> Value {
    let part = |key: &str| parameters.get(key).cloned().unwrap_or_default();
    let mut properties = part("properties").as_object().cloned().unwrap_or_default();
    if properties.is_empty() {
        return json!({ "type": "object" });
    }
    let whole = |properties: Value, required: Value| json!({ "type": "object", "properties": properties, "required": required, "$defs": part("$defs"), "definitions": part("definitions") });
    let is_tried = properties.len() <= MOST_TRIED;
    for (name, property) in &mut properties {
        let alone = || whole(json!({ name: property }), json!([]));
        if !is_tried || grammar::from_json_schema(&alone(), budget).is_err() {
            *property = Value::Bool(true);
        }
    }
    whole(properties.into(), part("required").as_array().cloned().unwrap_or_default().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_keyword_goes_that_a_grammar_cannot_express() {
        let faulty = json!({
            "type": "object",
            "properties": {
                "a.b": { "type": "string", "pattern": "(?i)x", "maxLength": 3 },
                "c": { "$ref": "#/$defs/C" },
                "d": { "allOf": [{ "type": "integer" }, { "not": { "const": 3 } }] },
                "e": { "anyOf": [{ "type": "null" }, { "type": "array", "items": { "if": {}, "then": {}, "type": "boolean" } }] },
                "not": { "type": "object", "properties": { "if": { "type": "string" } }, "dependentRequired": { "if": ["x"] } },
                "g": 3,
            },
            "required": ["c"],
            "additionalProperties": false,
            "if": { "required": ["c"] },
            "$defs": { "C": { "type": "array", "contains": { "const": 1 }, "minContains": 1, "maxItems": 2 } },
        });
        let wanted = json!({
            "type": "object",
            "properties": {
                "a.b": { "type": "string", "maxLength": 3 },
                "c": { "$ref": "#/$defs/C" },
                "d": { "allOf": [{ "type": "integer" }, {}] },
                "e": { "anyOf": [{ "type": "null" }, { "type": "array", "items": { "type": "boolean" } }] },
                "not": { "type": "object", "properties": { "if": { "type": "string" } } },
                "g": true,
            },
            "required": ["c"],
            "additionalProperties": false,
            "$defs": { "C": { "type": "array", "maxItems": 2 } },
        });
        assert_eq!(loosened(&faulty, &Budget::of_request()), wanted);
        // A value that is no schema becomes any object.
        assert_eq!(loosened(&json!([]), &Budget::of_request()), json!({ "type": "object" }));
    }
}
