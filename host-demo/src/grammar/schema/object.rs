//! Objects: properties in the order of the schema, then others where it allows them.

use anyhow::{Result, bail};
use serde_json::{Map, Value};

use super::{Reader, comma, count, list, pattern, space, string};
use crate::grammar::expr::{Chars, Expr};

impl Reader<'_> {
    pub(super) fn object(&mut self, schema: &Map<String, Value>, path: &str) -> Result<Expr> {
        let none = Map::new();
        let properties = match schema.get("properties") {
            None => &none,
            Some(Value::Object(properties)) => properties,
            Some(_) => bail!("{path}.properties: this must be an object"),
        };
        let required = names(schema, "required", path)?;
        let mut members = Vec::new();
        for (name, schema) in properties {
            let value = self.schema(schema, &format!("{path}.properties.{name}"))?;
            members.push((member(literal_key(name), value), required.contains(&name.as_str())));
        }
        let rest = self.others(schema, properties, &required, path)?;
        // What is required and not described is as any other.
        for name in required.iter().filter(|name| !properties.contains_key(**name)) {
            let value = match schema.get("additionalProperties") {
                Some(others) => self.schema(others, &format!("{path}.additionalProperties"))?,
                None => self.any_value(),
            };
            members.push((member(literal_key(name), value), true));
        }
        let (min, max) = (count(schema, "minProperties", path)?.unwrap_or(0), count(schema, "maxProperties", path)?);
        let least = members.iter().filter(|(_, required)| *required).count() as u32;
        let most = rest.is_none().then_some(members.len() as u32);
        let is_limited = min > least || max.is_some_and(|max| most.is_none_or(|most| most > max));
        let inner = match (is_limited, rest) {
            (true, Some(rest)) if members.is_empty() => {
                let rest = Expr::Rule(self.rules.add(format!("{path}.additionalProperties"), rest));
                list(rest, min, max)
            }
            (true, _) => bail!("{path}: `minProperties` and `maxProperties` beside `properties` are not supported"),
            (false, rest) => Expr::Members { members, rest: rest.map(Box::new), separator: Box::new(comma()) },
        };
        Ok(Expr::seq([Expr::text("{"), space(), inner, space(), Expr::text("}")]))
    }

    /// A member that is not among the properties, if there may be any.
    fn others(
        &mut self,
        schema: &Map<String, Value>,
        properties: &Map<String, Value>,
        required: &[&str],
        path: &str,
    ) -> Result<Option<Expr>> {
        let known: Vec<&str> = properties.keys().map(String::as_str).chain(required.iter().copied()).collect();
        if let Some(patterns) = schema.get("patternProperties") {
            let Value::Object(patterns) = patterns else { bail!("{path}.patternProperties: this must be an object") };
            if !known.is_empty()
                || schema.get("additionalProperties").is_some_and(|others| *others != Value::Bool(false))
            {
                bail!("{path}.patternProperties: this keyword is supported only without other properties");
            }
            return self.by_pattern(patterns, path).map(Some);
        }
        let value = match schema.get("additionalProperties") {
            Some(Value::Bool(false)) => return Ok(None),
            Some(others) => self.schema(others, &format!("{path}.additionalProperties"))?,
            None if known.is_empty() => self.any_value(),
            None => return Ok(None),
        };
        let key = match schema.get("propertyNames") {
            None if known.is_empty() => pattern::any_char().repeat(0, None),
            None => without(any_key(), known.iter().map(|name| pattern::literal(name))),
            Some(Value::Object(names)) if known.is_empty() => {
                let unknown = names
                    .keys()
                    .find(|key| !["minLength", "maxLength", "pattern", "format", "type"].contains(&key.as_str()));
                if let Some(unknown) = unknown {
                    bail!("{path}.propertyNames.{unknown}: this keyword is not supported here");
                }
                string(names, &format!("{path}.propertyNames"))?
            }
            Some(_) => bail!("{path}.propertyNames: this keyword is supported only without other properties"),
        };
        Ok(Some(member(pattern::quoted(key), value)))
    }

    /// Members whose names match one of the patterns, and no other of them.
    fn by_pattern(&mut self, patterns: &Map<String, Value>, path: &str) -> Result<Expr> {
        let mut keys = Vec::new();
        for name in patterns.keys() {
            keys.push(
                pattern::matching(name).map_err(|error| error.context(format!("{path}.patternProperties.{name}")))?,
            );
        }
        let mut each = Vec::new();
        for (i, (name, schema)) in patterns.iter().enumerate() {
            let value = self.schema(schema, &format!("{path}.patternProperties.{name}"))?;
            let others = keys.iter().enumerate().filter(|(j, _)| *j != i).map(|(_, key)| key.clone());
            each.push(member(pattern::quoted(without(keys[i].clone(), others)), value));
        }
        Ok(Expr::Alt(each))
    }
}

fn any_key() -> Expr {
    pattern::one_of(&Chars::any()).repeat(0, None)
}

fn without(key: Expr, others: impl Iterator<Item = Expr>) -> Expr {
    let others: Vec<Expr> = others.collect();
    if others.is_empty() { key } else { Expr::Minus(Box::new(key), Box::new(Expr::Alt(others))) }
}

fn literal_key(name: &str) -> Expr {
    pattern::quoted(pattern::literal(name))
}

fn member(key: Expr, value: Expr) -> Expr {
    Expr::seq([key, Expr::text(":"), space(), value])
}

/// A list of names.
pub(super) fn names<'s>(schema: &'s Map<String, Value>, key: &str, path: &str) -> Result<Vec<&'s str>> {
    let Some(names) = schema.get(key) else { return Ok(Vec::new()) };
    let names = names.as_array().map(|names| names.iter().map(Value::as_str).collect::<Option<Vec<_>>>());
    match names.flatten() {
        Some(names) => Ok(names),
        // Draft 3 had a switch in each property.
        None => bail!("{path}.{key}: this must be a list of names"),
    }
}
