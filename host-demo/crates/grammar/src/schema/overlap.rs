//! `oneOf`: checks that no value generated for one alternative can satisfy another.

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value};

use super::{Reader, TYPES, declared_types, implied_types, is_of_type, names};

/// Maximum depth of the comparison.
const MAX_NESTING: usize = 8;

impl Reader<'_> {
    /// Fails unless the alternatives exclude each other.
    pub(super) fn check_exclusive(&self, alternatives: &[Value], path: &str) -> Result<()> {
        for (i, a) in alternatives.iter().enumerate() {
            for (j, b) in alternatives.iter().enumerate() {
                if i != j && !self.excludes(a, b, 0) {
                    // If the budget is used up, every comparison fails. In this case, reports the budget instead of the
                    // alternatives.
                    self.budget.steps(1).with_context(|| format!("{path}.oneOf"))?;
                    bail!(
                        "{path}.oneOf[{i}]: a value could also satisfy oneOf[{j}]: make them distinguishable (by a property with a `const`), or use `anyOf`"
                    );
                }
            }
        }
        Ok(())
    }

    /// Returns true if it is certain that no value generated for `a` is valid under `b`.
    fn excludes(&self, a: &Value, b: &Value, depth: usize) -> bool {
        let (Ok(a), Ok(b)) = (self.flat(a, "$", 0), self.flat(b, "$", 0)) else { return false };
        let (a, b) = match (&a, &b) {
            (Value::Bool(false), _) | (_, Value::Bool(false)) => return true,
            (Value::Object(a), Value::Object(b)) => (a, b),
            _ => return false,
        };
        if depth > MAX_NESTING {
            return false;
        }
        for key in ["anyOf", "oneOf"] {
            if let Some(Value::Array(each)) = a.get(key)
                && each.iter().all(|each| self.excludes(each, &Value::Object(b.clone()), depth + 1))
            {
                return true;
            }
            if let Some(Value::Array(each)) = b.get(key)
                && each.iter().all(|each| self.excludes(&Value::Object(a.clone()), each, depth + 1))
            {
                return true;
            }
        }
        let is_invalid = |value: &Value, schema: &Map<String, Value>| {
            let compared = listed(schema).map_or(1, |values| values.len());
            self.budget.steps(compared).is_ok() && is_plainly_invalid(value, schema)
        };
        match (listed(a), listed(b)) {
            (Some(ours), _) => return ours.iter().all(|value| is_invalid(value, b)),
            (None, Some(theirs)) => return theirs.iter().all(|value| is_invalid(value, a)),
            (None, None) => {}
        }
        let types = |schema: &Map<String, Value>, is_written: bool| {
            let mut types = declared_types(schema, "$").unwrap_or_default();
            if types.is_empty() && is_written && !has_alternatives(schema) {
                types = implied_types(schema);
            }
            if types.is_empty() { TYPES.to_vec() } else { types }
        };
        let (ours, theirs) = (types(a, true), types(b, false));
        let is_common = |name: &&&str| {
            theirs.contains(*name)
                || (**name == "integer" && theirs.contains(&"number"))
                || (**name == "number" && theirs.contains(&"integer"))
        };
        ours.iter().filter(is_common).all(|name| match *name {
            "object" => self.objects_exclude(a, b, depth),
            "number" | "integer" => {
                limits_exclude(a, b, ["minimum", "exclusiveMinimum"], ["maximum", "exclusiveMaximum"])
            }
            "string" => limits_exclude(a, b, ["minLength"; 2], ["maxLength"; 2]),
            "array" => limits_exclude(a, b, ["minItems"; 2], ["maxItems"; 2]),
            _ => false,
        })
    }

    fn objects_exclude(&self, a: &Map<String, Value>, b: &Map<String, Value>, depth: usize) -> bool {
        let required = |schema: &Map<String, Value>| {
            names(schema, "required", "$").unwrap_or_default().into_iter().map(String::from).collect::<Vec<_>>()
        };
        let property =
            |schema: &Map<String, Value>, name: &str| schema.get("properties").and_then(|all| all.get(name)).cloned();
        let is_closed = |schema: &Map<String, Value>| schema.get("additionalProperties") == Some(&Value::Bool(false));
        let describes =
            |schema: &Map<String, Value>| schema.contains_key("properties") || schema.contains_key("required");
        let ours = required(a);
        let writes_others = a.contains_key("additionalProperties") && !is_closed(a)
            || a.contains_key("patternProperties")
            || a.contains_key("propertyNames")
            || has_alternatives(a)
            || !describes(a);
        let never_written = |name: &String| {
            !writes_others
                && property(a, name).is_none_or(|schema| schema == Value::Bool(false))
                && !ours.contains(name)
        };
        let not_allowed = |name: &String| match (property(a, name), property(b, name)) {
            (Some(ours), Some(theirs)) => self.excludes(&ours, &theirs, depth + 1),
            (_, None) => is_closed(b) && !b.contains_key("patternProperties"),
            _ => false,
        };
        let theirs = required(b);
        let is_counted = self.budget.steps(ours.len() * (1 + theirs.len())).is_ok();
        is_counted && (theirs.iter().any(never_written) || ours.iter().any(not_allowed))
    }
}

/// Returns whether a schema also contains alternatives.
fn has_alternatives(schema: &Map<String, Value>) -> bool {
    schema.contains_key("anyOf") || schema.contains_key("oneOf")
}

/// The values that a schema lists.
pub(super) fn listed(schema: &Map<String, Value>) -> Option<&[Value]> {
    match (schema.get("const"), schema.get("enum")) {
        (Some(value), _) => Some(std::slice::from_ref(value)),
        (None, Some(Value::Array(values))) => Some(values),
        _ => None,
    }
}

fn is_plainly_invalid(value: &Value, schema: &Map<String, Value>) -> bool {
    let types = declared_types(schema, "$").unwrap_or_default();
    let wrong_type = !types.is_empty() && !types.iter().any(|name| is_of_type(value, name));
    wrong_type || listed(schema).is_some_and(|values| !values.contains(value))
}

/// Returns whether one range ends before the other starts.
fn limits_exclude(a: &Map<String, Value>, b: &Map<String, Value>, min: [&str; 2], max: [&str; 2]) -> bool {
    let limit = |schema: &Map<String, Value>, keys: [&str; 2]| {
        keys.iter().find_map(|key| Some((schema.get(*key)?.as_f64()?, key.starts_with("exclusive"))))
    };
    let before = |first, second| match (limit(first, max), limit(second, min)) {
        (Some((end, a)), Some((start, b))) => end < start || (end == start && (a || b)),
        _ => false,
    };
    before(a, b) || before(b, a)
}
