//! Two schemas that must both hold, as one.

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};

use super::{ASSERTING, Reader, declared_types};

/// References and combinations within each other.
const MOST_NESTED: usize = 64;
/// Alternatives that a combination of alternatives may have.
const MOST_ALTERNATIVES: usize = 256;

impl Reader<'_> {
    /// A schema without a reference or `allOf` at its top.
    pub(super) fn flat(&self, schema: &Value, path: &str, depth: usize) -> Result<Value> {
        if depth > MOST_NESTED {
            bail!("{path}: this refers to itself, or to too many others");
        }
        self.budget.copy(schema).with_context(|| path.to_string())?;
        let Value::Object(schema) = schema else { return Ok(schema.clone()) };
        let mut rest = schema.clone();
        let (reference, all) = (rest.remove("$ref"), rest.remove("allOf"));
        let mut parts = Vec::new();
        if let Some(reference) = reference {
            let Some(reference) = reference.as_str() else { bail!("{path}.$ref: this must be a string") };
            parts.push((self.target(reference, path)?.clone(), format!("{path}.$ref")));
        }
        match all {
            None => {}
            Some(Value::Array(all)) => {
                parts.extend(all.into_iter().enumerate().map(|(i, part)| (part, format!("{path}.allOf[{i}]"))));
            }
            Some(_) => bail!("{path}.allOf: this must be a list of schemas"),
        }
        let mut sum = Value::Object(rest);
        for (part, path) in parts {
            sum = self.both(&sum, &part, &path, depth + 1)?;
        }
        Ok(sum)
    }

    /// What both schemas allow.
    pub(super) fn both(&self, a: &Value, b: &Value, path: &str, depth: usize) -> Result<Value> {
        let (a, b) = (self.flat(a, path, depth + 1)?, self.flat(b, path, depth + 1)?);
        let (mut a, b) = match (a, b) {
            (Value::Bool(false), _) | (_, Value::Bool(false)) => return Ok(Value::Bool(false)),
            (Value::Bool(true), other) | (other, Value::Bool(true)) => return Ok(other),
            (Value::Object(a), Value::Object(b)) => (a, b),
            _ => bail!("{path}: a schema is an object, true or false"),
        };
        self.check_keywords(&a, path)?;
        self.check_keywords(&b, path)?;
        // What a pattern allows in one may be an additional property in the other.
        let is_open = |schema: &Map<String, Value>| {
            schema.get("additionalProperties").is_none_or(|others| *others == Value::Bool(true))
        };
        for (one, other) in [(&a, &b), (&b, &a)] {
            let patterns = one.get("patternProperties");
            if patterns.is_some() && patterns != other.get("patternProperties") && !is_open(other) {
                bail!("{path}.patternProperties: this cannot be combined with `additionalProperties`");
            }
        }
        if a.contains_key("properties") || b.contains_key("properties") {
            // Also where one has none: it may still forbid those of the other.
            a.insert("properties".into(), properties(&a, &b));
        }
        for (key, theirs) in b {
            if key == "properties" {
                continue;
            }
            let both = match a.get(&key) {
                Some(ours) if *ours != theirs && ASSERTING.contains(&key.as_str()) => {
                    match self.joined(&key, ours, &theirs, path)? {
                        Some(both) => both,
                        None => return Ok(Value::Bool(false)),
                    }
                }
                Some(_) => continue,
                None => theirs,
            };
            a.insert(key, both);
        }
        Ok(Value::Object(a))
    }

    /// Both values of a keyword; `None` if nothing can satisfy both.
    fn joined(&self, key: &str, a: &Value, b: &Value, path: &str) -> Result<Option<Value>> {
        let number = |value: &Value| value.as_f64().unwrap_or_default();
        let all = || json!({ "allOf": [a, b] });
        let list = |value: &Value| match value {
            Value::Array(values) => values.clone(),
            one => vec![one.clone()],
        };
        // Both are copied once, and lists compared element by element or copied for each element of the other.
        let len = |value: &Value| value.as_array().map_or(1, Vec::len);
        let (times, other_times) = if key == "anyOf" { (1 + len(b), 1 + len(a)) } else { (1, 1) };
        let counted = self.budget.copies(a, times).and_then(|()| self.budget.copies(b, other_times));
        counted.and_then(|()| self.budget.steps(len(a) * len(b))).with_context(|| format!("{path}.{key}"))?;
        Ok(Some(match key {
            "type" => {
                let types = |value: &Value| declared_types(&Map::from_iter([("type".into(), value.clone())]), path);
                let (ours, theirs) = (types(a)?, types(b)?);
                let has = |types: &[&str], name: &str| {
                    types.contains(&name) || (name == "integer" && types.contains(&"number"))
                };
                let common: Vec<&str> =
                    super::TYPES.into_iter().filter(|name| has(&ours, name) && has(&theirs, name)).collect();
                if common.is_empty() {
                    return Ok(None);
                }
                json!(common)
            }
            "enum" => {
                let theirs = list(b);
                json!(list(a).into_iter().filter(|value| theirs.contains(value)).collect::<Vec<_>>())
            }
            "const" => return Ok(None),
            "required" => {
                let (mut names, ours) = (list(a), list(a));
                names.extend(list(b).into_iter().filter(|name| !ours.contains(name)));
                json!(names)
            }
            "pattern" => json!([list(a), list(b)].concat()),
            "minimum" | "exclusiveMinimum" | "minLength" | "minItems" | "minProperties" => {
                if number(a) >= number(b) {
                    a.clone()
                } else {
                    b.clone()
                }
            }
            "maximum" | "exclusiveMaximum" | "maxLength" | "maxItems" | "maxProperties" => {
                if number(a) <= number(b) {
                    a.clone()
                } else {
                    b.clone()
                }
            }
            "items" if !a.is_array() && !b.is_array() => all(),
            "additionalProperties" if *a == json!(false) || *b == json!(false) => json!(false),
            "additionalProperties" => all(),
            "prefixItems" if list(a).len() == list(b).len() => {
                json!(list(a).into_iter().zip(list(b)).map(|(a, b)| json!({ "allOf": [a, b] })).collect::<Vec<_>>())
            }
            "anyOf" => {
                let (ours, theirs) = (list(a), list(b));
                if ours.len() * theirs.len() > MOST_ALTERNATIVES {
                    bail!("{path}.anyOf: more than {MOST_ALTERNATIVES} combinations of alternatives");
                }
                let pairs = ours.iter().flat_map(|a| theirs.iter().map(move |b| json!({ "allOf": [a, b] })));
                json!(pairs.collect::<Vec<_>>())
            }
            "multipleOf" if number(b) != 0.0 && (number(a) / number(b)).fract() == 0.0 => a.clone(),
            "multipleOf" if number(a) != 0.0 && (number(b) / number(a)).fract() == 0.0 => b.clone(),
            _ => bail!("{path}.{key}: this cannot be combined with another `{key}`"),
        }))
    }
}

/// The properties of both; what only one describes, the other may forbid or describe as additional.
fn properties(a: &Map<String, Value>, b: &Map<String, Value>) -> Value {
    let none = Map::new();
    let of = |schema: &Map<String, Value>| match schema.get("properties") {
        Some(Value::Object(properties)) => properties.clone(),
        _ => none.clone(),
    };
    let (ours, theirs) = (of(a), of(b));
    let mut all = Map::new();
    for (name, schema) in &ours {
        let other = theirs.get(name).or_else(|| b.get("additionalProperties"));
        all.insert(name.clone(), with(schema, other));
    }
    for (name, schema) in theirs.iter().filter(|(name, _)| !ours.contains_key(*name)) {
        all.insert(name.clone(), with(schema, a.get("additionalProperties")));
    }
    Value::Object(all)
}

fn with(schema: &Value, other: Option<&Value>) -> Value {
    match other {
        None | Some(Value::Bool(true)) => schema.clone(),
        Some(Value::Bool(false)) => Value::Bool(false),
        Some(other) if other == schema => schema.clone(),
        Some(other) => json!({ "allOf": [schema, other] }),
    }
}
