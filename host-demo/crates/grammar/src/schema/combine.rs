//! Combines two schemas that must both hold into one.

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};

use super::dialect::{self, without_switches};
use super::object::LOOKS;
use super::{Reader, declared_types, is_assertion};

/// Maximum nesting of `$ref` and `allOf`.
const MAX_NESTING: usize = 64;
/// Maximum number of alternatives that the combination of two `anyOf` lists may have.
const MAX_ALTERNATIVES: usize = 256;

impl Reader<'_> {
    /// Resolves references and `allOf` at the top of a schema.
    pub(super) fn flat(&self, schema: &Value, path: &str, depth: usize) -> Result<Value> {
        if depth > MAX_NESTING {
            bail!("{path}: this refers to itself or to too many others");
        }
        self.budget.copy(schema).with_context(|| path.to_string())?;
        let Value::Object(schema) = schema else { return Ok(schema.clone()) };
        if dialect::is_never(schema) {
            return Ok(Value::Bool(false));
        }
        let mut rest = without_switches(schema.clone(), path)?;
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
        if !parts.is_empty() {
            self.check_keywords(&rest, path)?;
        }
        let mut sum = Value::Object(rest);
        for (part, path) in parts {
            sum = self.both(&sum, &part, &path, depth + 1)?;
        }
        Ok(sum)
    }

    /// Combines two schemas.
    pub(super) fn both(&self, a: &Value, b: &Value, path: &str, depth: usize) -> Result<Value> {
        let (a, b) = (self.flat(a, path, depth + 1)?, self.flat(b, path, depth + 1)?);
        let (mut a, mut b) = match (a, b) {
            (Value::Bool(false), _) | (_, Value::Bool(false)) => return Ok(Value::Bool(false)),
            (Value::Bool(true), other) | (other, Value::Bool(true)) => return Ok(other),
            (Value::Object(a), Value::Object(b)) => (a, b),
            _ => bail!("{path}: a schema must be an object, true or false"),
        };
        self.check_keywords(&b, path)?;
        // `b` is an element of `allOf`, so its `unevaluatedProperties` applies to all properties that `b` itself does
        // not list.
        close(&mut b, path)?;
        // The other schema must allow all additional properties, because a property that matches a pattern of one
        // schema may be an additional property of the other.
        let is_open = |schema: &Map<String, Value>| {
            schema.get("additionalProperties").is_none_or(|others| *others == Value::Bool(true))
        };
        for (one, other) in [(&a, &b), (&b, &a)] {
            let patterns = one.get("patternProperties");
            if patterns.is_some() && patterns != other.get("patternProperties") && !is_open(other) {
                bail!(
                    "{path}: `patternProperties` cannot be combined with the `additionalProperties` of another schema: write both in one schema"
                );
            }
        }
        if a.contains_key("properties") || b.contains_key("properties") {
            // Combines the properties even if only one of the schemas lists properties, because the other schema may
            // forbid them.
            a.insert("properties".into(), self.properties(&a, &b, path)?);
        }
        if a.contains_key("prefixItems") || b.contains_key("prefixItems") {
            a.insert("prefixItems".into(), self.elements(&a, &b, path)?);
        }
        for (key, theirs) in b {
            if key == "properties" || key == "prefixItems" {
                continue;
            }
            let both = match a.get(&key) {
                Some(ours) if *ours != theirs && is_assertion(&key) => match self.joined(&key, ours, &theirs, path)? {
                    Some(both) => both,
                    None => return Ok(Value::Bool(false)),
                },
                Some(_) => continue,
                None => theirs,
            };
            a.insert(key, both);
        }
        Ok(Value::Object(a))
    }

    /// Combines the values `a` and `b` that two schemas have for the keyword `key`. `None` if no value satisfies both.
    fn joined(&self, key: &str, a: &Value, b: &Value, path: &str) -> Result<Option<Value>> {
        let number = |value: &Value| value.as_f64().unwrap_or_default();
        let all = || json!({ "allOf": [a, b] });
        let list = |value: &Value| match value {
            Value::Array(values) => values.clone(),
            one => vec![one.clone()],
        };
        // Charge the budget before the work, because two lists are compared element by element, and an `anyOf` list is
        // copied again for each element of the other list. Other values are copied once.
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
            "additionalProperties" | "propertyNames" => all(),
            "anyOf" => {
                let (ours, theirs) = (list(a), list(b));
                if ours.len() * theirs.len() > MAX_ALTERNATIVES {
                    bail!(
                        "{path}.anyOf: combined with another `anyOf`, it has more than {MAX_ALTERNATIVES} alternatives: use fewer"
                    );
                }
                let pairs = ours.iter().flat_map(|a| theirs.iter().map(move |b| json!({ "allOf": [a, b] })));
                json!(pairs.collect::<Vec<_>>())
            }
            "multipleOf" if number(b) != 0.0 && (number(a) / number(b)).fract() == 0.0 => a.clone(),
            "multipleOf" if number(a) != 0.0 && (number(b) / number(a)).fract() == 0.0 => b.clone(),
            _ => bail!("{path}.{key}: this cannot be combined with another `{key}`"),
        }))
    }

    /// Combines the properties of both schemas. If only one schema lists a property, the `additionalProperties` of the
    /// other schema may apply to it.
    fn properties(&self, a: &Map<String, Value>, b: &Map<String, Value>, path: &str) -> Result<Value> {
        let of = |schema: &Map<String, Value>| match schema.get("properties") {
            Some(Value::Object(properties)) => properties.clone(),
            _ => Map::new(),
        };
        let (ours, theirs) = (of(a), of(b));
        let (our_others, their_others) = (self.additional(a, &theirs, path)?, self.additional(b, &ours, path)?);
        let mut all = Map::new();
        for (name, schema) in &ours {
            all.insert(name.clone(), with(schema, theirs.get(name).or_else(|| their_others(name))));
        }
        for (name, schema) in theirs.iter().filter(|(name, _)| !ours.contains_key(*name)) {
            all.insert(name.clone(), with(schema, our_others(name)));
        }
        Ok(Value::Object(all))
    }

    /// Returns a function from a name to the `additionalProperties` of `schema`; the function returns `None` if
    /// `schema` has none, or if one of its patterns matches the name. The budget is charged in advance for one call
    /// with each of `names`.
    fn additional<'s>(
        &self,
        schema: &'s Map<String, Value>,
        names: &Map<String, Value>,
        path: &str,
    ) -> Result<impl Fn(&str) -> Option<&'s Value>> {
        let others = self.of_others(schema, "additionalProperties", names.len(), path)?;
        let patterns = if others.is_some() { self.patterned(schema, path)? } else { Vec::new() };
        let bytes = names.keys().map(|name| 1 + name.len()).sum::<usize>();
        self.budget.steps(LOOKS * patterns.len() * bytes).with_context(|| format!("{path}.patternProperties"))?;
        Ok(move |name: &str| others.filter(|_| !patterns.iter().any(|(regex, _)| regex.is_match(name))))
    }

    /// Combines the `prefixItems` of both schemas. For an element that only one of them lists, the `items` of the other
    /// one apply as well.
    fn elements(&self, a: &Map<String, Value>, b: &Map<String, Value>, path: &str) -> Result<Value> {
        let of = |schema: &Map<String, Value>| match schema.get("prefixItems") {
            Some(Value::Array(elements)) => elements.clone(),
            _ => Vec::new(),
        };
        let (ours, theirs) = (of(a), of(b));
        let others = |schema, elements: &[Value]| self.of_others(schema, "items", elements.len(), path);
        let (our_others, their_others) = (others(a, &theirs)?, others(b, &ours)?);
        let mut all: Vec<Value> =
            ours.iter().enumerate().map(|(i, schema)| with(schema, theirs.get(i).or(their_others))).collect();
        all.extend(theirs.iter().skip(ours.len()).map(|schema| with(schema, our_others)));
        Ok(Value::Array(all))
    }

    /// Returns the schema of the keyword `key`, which applies to unlisted elements or properties. The budget is charged
    /// for `times` copies of this schema.
    fn of_others<'s>(
        &self,
        schema: &'s Map<String, Value>,
        key: &str,
        times: usize,
        path: &str,
    ) -> Result<Option<&'s Value>> {
        let others = schema.get(key);
        others.map_or(Ok(()), |others| self.budget.copies(others, times)).with_context(|| format!("{path}.{key}"))?;
        Ok(others)
    }
}

/// Keywords that apply to values which no other keyword covers, and the keywords that replace them after all schemas
/// are combined.
pub(super) const UNEVALUATED: [(&str, &str); 2] =
    [("unevaluatedProperties", "additionalProperties"), ("unevaluatedItems", "items")];

/// Replaces `unevaluatedProperties: false` and `unevaluatedItems: false` by `additionalProperties: false` and `items:
/// false`, which forbid everything that the schema does not list itself.
pub(super) fn close(part: &mut Map<String, Value>, path: &str) -> Result<()> {
    for (key, others) in UNEVALUATED {
        if part.remove(key) != Some(Value::Bool(false)) || part.contains_key(others) {
            continue;
        }
        if part.contains_key("anyOf") || part.contains_key("oneOf") {
            bail!(
                "{path}.{key}: not supported together with alternatives inside a combination: move it out of the combination"
            );
        }
        part.insert(others.into(), Value::Bool(false));
    }
    Ok(())
}

/// Combines a schema with another one, if there is one.
fn with(schema: &Value, other: Option<&Value>) -> Value {
    match other {
        None | Some(Value::Bool(true)) => schema.clone(),
        Some(Value::Bool(false)) => Value::Bool(false),
        Some(other) if other == schema => schema.clone(),
        Some(other) => json!({ "allOf": [schema, other] }),
    }
}
