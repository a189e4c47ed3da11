//! Objects: the listed properties in order, then other properties if the schema allows them.

use std::borrow::Cow;
use std::collections::HashSet;

use anyhow::{Context, Result, bail};
use regex_lite::{Regex, RegexBuilder};
use serde_json::{Map, Value, json};

use super::overlap::listed;
use super::{Reader, UNSUPPORTED, comma, count, is_allowed, is_assertion, list, names, pattern, short, space, string};
use crate::expr::{Chars, Expr};

/// Maximum size of a compiled name pattern in bytes. The size is limited because it bounds the number of steps for each
/// byte of a matched name.
const MAX_COMPILED: usize = 1 << 16;
/// Budget steps to match one byte of a name with one pattern.
pub(super) const LOOKS: usize = 200;
/// Keywords that `propertyNames` may have, if it does not list the names.
const OF_NAMES: [&str; 4] = ["minLength", "maxLength", "pattern", "format"];

const ANY: Value = Value::Bool(true);

impl Reader<'_> {
    pub(super) fn object(&mut self, schema: &Map<String, Value>, path: &str) -> Result<Expr> {
        let none = Map::new();
        let properties = match schema.get("properties") {
            None => &none,
            Some(Value::Object(properties)) => properties,
            Some(_) => bail!("{path}.properties: this must be an object"),
        };
        let required = names(schema, "required", path)?;
        let is_required: HashSet<&str> = required.iter().copied().collect();
        let listed = self.listed_names(schema, path)?;
        let only: Option<HashSet<&str>> = listed.as_ref().map(|names| names.iter().map(String::as_str).collect());
        let is_forbidden = |name: &str| only.as_ref().is_some_and(|only| !only.contains(name));
        let mut unlisted: Vec<&str> =
            listed.iter().flatten().map(String::as_str).chain(required.iter().copied()).collect();
        let mut seen: HashSet<&str> = properties.keys().map(String::as_str).collect();
        unlisted.retain(|name| seen.insert(*name));
        let patterned = if seen.is_empty() { Vec::new() } else { self.patterned(schema, path)? };
        let mut members = Vec::new();
        for (name, property) in properties {
            let path = format!("{path}.properties.{}", short(name));
            let property = self.with_patterns(name, property, &patterned).with_context(|| path.clone())?;
            let value = if is_forbidden(name) { Expr::never() } else { self.schema(&property, &path)? };
            members.push((member(literal_key(name), value), is_required.contains(name.as_str())));
        }
        let rest = if listed.is_some() { None } else { self.others(schema, properties, &required, path)? };
        // If only `required` or `propertyNames` lists a property, its value has the schema of the patterns that match
        // the name. Without such patterns, it has the schema of `additionalProperties`, and without these, any value is
        // allowed.
        let mut additional = None;
        for name in unlisted {
            let by_pattern = self.with_patterns(name, &ANY, &patterned);
            let by_pattern = by_pattern.with_context(|| {
                let list = if is_required.contains(name) { "required" } else { "propertyNames" };
                format!("{path}.{list}")
            })?;
            let value = match schema.get("additionalProperties") {
                _ if is_forbidden(name) => Expr::never(),
                _ if *by_pattern != ANY => self.schema(&by_pattern, &format!("{path}.patternProperties"))?,
                Some(others) => match &additional {
                    Some(rule) => Expr::Rule(*rule),
                    None => {
                        let path = format!("{path}.additionalProperties");
                        let value = self.schema(others, &path)?;
                        Expr::Rule(*additional.insert(self.all.rules.add(path, value)))
                    }
                },
                None => self.any_value(),
            };
            members.push((member(literal_key(name), value), is_required.contains(name)));
        }
        let (min, max) = (count(schema, "minProperties", path)?.unwrap_or(0), count(schema, "maxProperties", path)?);
        let least = members.iter().filter(|(_, required)| *required).count() as u32;
        let most = rest.is_none().then_some(members.len() as u32);
        let is_limited = min > least || max.is_some_and(|max| most.is_none_or(|most| most > max));
        let is_never = max.is_some_and(|max| max < min.max(least)) || most.is_some_and(|most| most < min);
        let inner = match (is_limited, rest) {
            _ if is_never => Expr::never(),
            (true, Some(_)) if min as usize > members.len() + 1 => bail!(
                "{path}.minProperties: more than one beside the listed properties is not supported: a name could repeat"
            ),
            (true, Some(rest)) if members.is_empty() => {
                let rest = Expr::Rule(self.all.rules.add(format!("{path}.additionalProperties"), rest));
                list(rest, min, max)
            }
            (true, rest) => self.counted(members, rest, min, max, path)?,
            (false, rest) => Expr::Members { members, rest: rest.map(Box::new), separator: Box::new(comma()) },
        };
        Ok(Expr::seq([Expr::text("{"), space(), inner, space(), Expr::text("}")]))
    }

    /// Matches an object with `min` to `max` members. All unlisted members together count as one member towards `min`,
    /// because all of them may have the same name.
    fn counted(
        &mut self,
        members: Vec<(Expr, bool)>,
        rest: Option<Expr>,
        min: u32,
        max: Option<u32>,
        path: &str,
    ) -> Result<Expr> {
        // Counts above `most` are treated as `most`.
        let most = max.map_or(min, |max| max.saturating_add(1).max(min)).min(members.len() as u32 + min + 1);
        self.budget.states(members.len().saturating_mul(most as usize)).with_context(|| path.to_string())?;
        let rest = rest.map(|rest| Expr::Rule(self.all.rules.add(format!("{path}.additionalProperties"), rest)));
        let place = format!("{path} (counted properties)");
        let before = |count: u32| if count == 0 { Expr::empty() } else { comma() };
        // For each number of listed members that are present, the expression that can follow the last of them.
        let ends = (0..=most).map(|count| {
            let room = max.map(|max| max.saturating_sub(count));
            match &rest {
                _ if max.is_some_and(|max| count > max) => Expr::never(),
                Some(rest) if count + 1 >= min => {
                    let others = Expr::seq([before(count), list(rest.clone(), 1, room)]);
                    let others = if room == Some(0) { Expr::never() } else { others };
                    if count >= min { Expr::alt([Expr::empty(), others]) } else { others }
                }
                _ if count >= min => Expr::empty(),
                _ => Expr::never(),
            }
        });
        let mut after: Vec<Expr> = ends.collect();
        for (member, is_required) in members.into_iter().rev() {
            let rules: Vec<Expr> = after.into_iter().map(|expr| Expr::Rule(self.all.rules.add(&place, expr))).collect();
            let member = Expr::Rule(self.all.rules.add(&place, member));
            let with = |count: u32| {
                let next = rules[(count + 1).min(most) as usize].clone();
                Expr::seq([before(count), member.clone(), next])
            };
            let each = (0..=most).map(|count| match is_required {
                true => with(count),
                false => Expr::alt([with(count), rules[count as usize].clone()]),
            });
            after = each.collect();
        }
        Ok(after.swap_remove(0))
    }

    /// Matches a property that is not listed; `None` if the schema allows only listed properties.
    fn others(
        &mut self,
        schema: &Map<String, Value>,
        properties: &Map<String, Value>,
        required: &[&str],
        path: &str,
    ) -> Result<Option<Expr>> {
        let known: Vec<&str> = properties.keys().map(String::as_str).chain(required.iter().copied()).collect();
        let patterns = self.patterns(schema, path)?;
        // The expression of each pattern excludes all listed names and all other patterns, so the work grows with their
        // lengths times the number of patterns.
        let parts = known.iter().map(|name| pattern::WAYS * name.len()).sum::<usize>()
            + patterns.iter().map(|(_, key, _)| key.parts()).sum::<usize>();
        // If there are no patterns and other names are not allowed, nothing is built, so the cost is zero.
        let is_closed = schema.get("additionalProperties").is_none_or(|others| *others == Value::Bool(false));
        let times = if is_closed { patterns.len() } else { 1 + patterns.len() };
        self.budget.steps(parts * times).with_context(|| format!("{path}.patternProperties"))?;
        let names = known.iter().map(|name| pattern::literal(name));
        let mut members = Vec::new();
        for (i, (name, key, value)) in patterns.iter().enumerate() {
            // A name that matches several patterns is excluded, because its value would have to satisfy the schemas of
            // all these patterns.
            let others = patterns.iter().enumerate().filter(|(j, _)| *j != i).map(|(_, (_, key, _))| key.clone());
            let key = without(key.clone(), names.clone().chain(others));
            let value = self.schema(value, &format!("{path}.patternProperties.{}", short(name)))?;
            members.push(member(pattern::quoted(key), value));
        }
        let says_nothing = known.is_empty() && patterns.is_empty();
        let any_name = self.property_names(schema, says_nothing, path)?;
        let value = match schema.get("additionalProperties") {
            Some(Value::Bool(false)) => None,
            Some(others) => Some(self.schema(others, &format!("{path}.additionalProperties"))?),
            None => says_nothing.then(|| self.any_value()),
        };
        if let Some(value) = value {
            let key = any_name.unwrap_or_else(|| match says_nothing {
                true => pattern::any_char().repeat(0, None),
                false => without(any_key(), names.chain(patterns.iter().map(|(_, key, _)| key.clone()))),
            });
            members.push(member(pattern::quoted(key), value));
        }
        Ok((!members.is_empty()).then(|| Expr::alt(members)))
    }

    /// Matches the names that `propertyNames` allows.
    fn property_names(&mut self, schema: &Map<String, Value>, is_alone: bool, path: &str) -> Result<Option<Expr>> {
        let Some(names) = schema.get("propertyNames") else { return Ok(None) };
        let path = format!("{path}.propertyNames");
        let names = match self.flat(names, &path, 0)? {
            Value::Bool(true) => return Ok(None),
            Value::Object(names) => names,
            _ => bail!("{path}: this must be an object, with enum, {}", OF_NAMES.join(", ")),
        };
        if !is_alone {
            bail!("{path}: this is supported only without `properties`, `required` and `patternProperties`");
        }
        let is_known = |key: &str, value: &Value| OF_NAMES.contains(&key) || (key == "type" && value == "string");
        let is_note = |key: &str| !is_assertion(key) && !UNSUPPORTED.contains(&key);
        if let Some((other, _)) = names.iter().find(|(key, value)| !is_known(key, value) && !is_note(key)) {
            bail!("{path}.{other}: this keyword is not supported here: use one of enum, {}", OF_NAMES.join(", "));
        }
        self.differ_in_format(&names, &path);
        let (expr, loose) = string(&names, &path, self.budget, !self.all.drops_lengths)?;
        self.differ_in_text(loose, &path);
        Ok(Some(expr))
    }

    /// Returns the names that `propertyNames` lists in `enum` or `const`; `None` if there is no such list.
    fn listed_names(&self, schema: &Map<String, Value>, path: &str) -> Result<Option<Vec<String>>> {
        let Some(names) = schema.get("propertyNames") else { return Ok(None) };
        let path = format!("{path}.propertyNames");
        let Value::Object(names) = self.flat(names, &path, 0)? else { return Ok(None) };
        let Some(values) = listed(&names) else { return Ok(None) };
        self.check_keywords(&names, &path)?;
        if let Some(other) = ["pattern", "format"].into_iter().find(|key| names.contains_key(*key)) {
            bail!("{path}: `{other}` together with listed names is not supported");
        }
        if !values.iter().any(Value::is_string) {
            bail!("{path}: names are strings, and no string is listed: list strings, or remove `propertyNames`");
        }
        let mut allowed = Vec::new();
        for value in values {
            if let Value::String(name) = value
                && is_allowed(value, values, &names, &path)?
            {
                allowed.push(name.clone());
            }
        }
        Ok(Some(allowed))
    }

    /// Returns the compiled patterns of names, and for each pattern the schema of the values.
    pub(super) fn patterned<'s>(&self, schema: &'s Map<String, Value>, path: &str) -> Result<Vec<(Regex, &'s Value)>> {
        let Some(Value::Object(patterns)) = schema.get("patternProperties") else { return Ok(Vec::new()) };
        let each = patterns.iter().map(|(pattern, value)| {
            let place = || format!("{path}.patternProperties.{}", short(pattern));
            self.budget.steps(MAX_COMPILED).with_context(place)?;
            let regex = RegexBuilder::new(pattern).size_limit(MAX_COMPILED).build();
            Ok((regex.with_context(|| format!("{}: this pattern cannot be matched against names", place()))?, value))
        });
        each.collect()
    }

    /// Combines the schema of a property with the schemas of all patterns that its name matches.
    fn with_patterns<'s>(
        &self,
        name: &str,
        property: &'s Value,
        patterned: &[(Regex, &Value)],
    ) -> Result<Cow<'s, Value>> {
        self.budget.steps((1 + name.len()) * (1 + LOOKS * patterned.len()))?;
        let mut all = Vec::new();
        for (_, value) in patterned.iter().filter(|(regex, _)| regex.is_match(name)) {
            self.budget.copy(value)?;
            all.push((*value).clone());
        }
        Ok(match (all.is_empty(), property) {
            (true, _) => Cow::Borrowed(property),
            (false, Value::Bool(true)) if all.len() == 1 => Cow::Owned(all.swap_remove(0)),
            _ => {
                self.budget.copy(property)?;
                all.push(property.clone());
                Cow::Owned(json!({ "allOf": all }))
            }
        })
    }

    /// Returns the schema's `patternProperties`: for each pattern of names, its text, its expression, and the schema of
    /// the values.
    fn patterns<'s>(&self, schema: &'s Map<String, Value>, path: &str) -> Result<Vec<(&'s String, Expr, &'s Value)>> {
        let patterns = match schema.get("patternProperties") {
            None => return Ok(Vec::new()),
            Some(Value::Object(patterns)) => patterns,
            Some(_) => bail!("{path}.patternProperties: this must be an object"),
        };
        let each = patterns.iter().map(|(name, value)| {
            let place = || format!("{path}.patternProperties.{}", short(name));
            let key = pattern::matching(name, self.budget).with_context(place)?.expr;
            Ok((name, key, value))
        });
        each.collect()
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
