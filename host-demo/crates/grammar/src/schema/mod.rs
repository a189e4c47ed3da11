//! Converts JSON schemas to rules for the texts of the values that they allow.
//!
//! Every text that the rules allow is a valid value, except where [`Schemas::differences`] names a keyword that is not
//! enforced. Not every valid value can be generated. Properties are generated in the order of the schema. As in
//! llama.cpp, unlisted properties are generated only if the schema mentions them.

mod combine;
mod dialect;
mod object;
mod overlap;
mod scalar;

use std::collections::{HashMap, VecDeque};
use std::fmt::Display;

use anyhow::{Context, Result, anyhow, bail};
use serde_json::{Map, Value};

use super::budget::Budget;
use super::expr::{Chars, Expr, Rules};
use super::{format, number, pattern, short};
use percent_encoding::percent_decode_str;
use scalar::{Loose, string};

/// Keywords that are refused, because grammars cannot express what they require.
const UNSUPPORTED: [&str; 14] = [
    "not",
    "if",
    "then",
    "else",
    "dependentRequired",
    "dependentSchemas",
    "dependencies",
    "contains",
    "minContains",
    "maxContains",
    "$dynamicRef",
    "$recursiveRef",
    "unevaluatedItems",
    "unevaluatedProperties",
];

/// Keywords that constrain values, but do not imply a type. Keywords that are neither in this list nor in [`OF_TYPES`]
/// or [`UNSUPPORTED`] are annotations.
const UNTYPED: [&str; 12] = [
    "$ref",
    "allOf",
    "anyOf",
    "oneOf",
    "type",
    "enum",
    "const",
    "nullable",
    "uniqueItems",
    "not",
    "unevaluatedItems",
    "unevaluatedProperties",
];

/// Keywords that constrain only values of one type; values of other types are always valid.
const OF_TYPES: [(&str, &[&str]); 4] = [
    (
        "object",
        &[
            "properties",
            "required",
            "additionalProperties",
            "patternProperties",
            "propertyNames",
            "minProperties",
            "maxProperties",
        ],
    ),
    ("array", &["items", "prefixItems", "additionalItems", "minItems", "maxItems"]),
    ("string", &["minLength", "maxLength", "pattern", "format"]),
    ("number", &["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"]),
];

const TYPES: [&str; 7] = ["object", "array", "string", "number", "integer", "boolean", "null"];

/// Maximum number of different schemas with `$ref` or `allOf`. A larger number indicates a reference cycle that grows.
const MAX_RULES: usize = 4000;
/// Maximum nesting of schemas.
const MAX_NESTING: usize = 100;
/// This number of listed elements counts as one level of nesting, because the expression of an element contains the
/// expressions of all later elements.
const ELEMENTS: usize = 4;

/// Maximum number of listed values for which `uniqueItems` is enforced. The number is low because each set of used
/// values takes a rule.
const MOST_DISTINCT: usize = 8;
/// A maximum length in a schema above this number of characters or elements is ignored, because no answer is so long.
const BEYOND: u32 = 1 << 20;

/// The rules of one or more schemas.
#[derive(Default)]
pub struct Schemas {
    pub rules: Rules,
    /// See [`Table::differences`](crate::Table::differences).
    pub differences: Vec<String>,
    /// Numbers of the rules for texts with a pattern or a format, by the values of these keywords, and what
    /// is left out. A rule is used again
    /// for the same keywords, because even a hundred functions use only a few different patterns and formats.
    texts: HashMap<String, (usize, Loose)>,
    /// True if `maxLength` is not enforced where it takes an intersection with a pattern or format.
    drops_lengths: bool,
    /// True if there is such a `maxLength`.
    pub has_lengths: bool,
    /// The rule for any value.
    value: Option<usize>,
}

impl Schemas {
    /// Makes the rules of schemas without each `maxLength` that takes an intersection.
    pub fn without_lengths() -> Self {
        Self { drops_lengths: true, ..Self::default() }
    }

    /// Adds the rules of a schema. Returns the number of its root rule.
    pub fn add(&mut self, schema: &Value, budget: &Budget) -> Result<usize> {
        budget.copy(schema).context("$")?;
        let schema = &mut dialect::with_integers(schema.clone());
        dialect::remove_nulls(schema);
        let schema = &*schema;
        let root = self.rules.add("$", Expr::never());
        let named = HashMap::from([(r##"{"$ref":"#"}"##.into(), root)]);
        let mut reader = Reader { root: schema, budget, all: self, named, left: VecDeque::new(), depth: 0 };
        let expr = reader.schema(schema, "$")?;
        reader.all.rules.0[root].expr = expr;
        while let Some((rule, schema, path)) = reader.left.pop_front() {
            let expr = reader.combined(&schema, &path)?;
            reader.all.rules.0[rule].expr = expr;
        }
        Ok(root)
    }
}

struct Reader<'s> {
    root: &'s Value,
    budget: &'s Budget,
    /// The rules of this schema and of those before it.
    all: &'s mut Schemas,
    /// Numbers of the rules for schemas with `$ref` or `allOf`. The key is the text of the schema.
    named: HashMap<String, usize>,
    /// Schemas with `$ref` or `allOf` that still have to be converted. Each entry has the number of the rule to fill,
    /// the schema, and the schema's path.
    left: VecDeque<(usize, Map<String, Value>, String)>,
    depth: usize,
}

/// White space as models write it: none, one space, or a line break with indentation.
fn space() -> Expr {
    let blanks = Chars::of([(9, 9), (32, 32)]);
    Expr::alt([Expr::empty(), Expr::text(" "), Expr::seq([Expr::text("\n"), Expr::Chars(blanks).repeat(0, 20)])])
}

fn comma() -> Expr {
    Expr::seq([Expr::text(","), space()])
}

/// Returns the value of a keyword that takes a whole number.
fn count(schema: &Map<String, Value>, key: &str, path: &str) -> Result<Option<u32>> {
    let Some(value) = schema.get(key) else { return Ok(None) };
    match value.as_u64().map(|count| u32::try_from(count).unwrap_or(u32::MAX)) {
        Some(count) if key.starts_with("max") && count > BEYOND => Ok(None),
        Some(count) => Ok(Some(count)),
        None => bail!("{path}.{key}: this must be a whole number that is not negative"),
    }
}

/// Reads a list of names.
fn names<'s>(schema: &'s Map<String, Value>, key: &str, path: &str) -> Result<Vec<&'s str>> {
    let Some(names) = schema.get(key) else { return Ok(Vec::new()) };
    let names = names.as_array().map(|names| names.iter().map(Value::as_str).collect::<Option<Vec<_>>>());
    match names.flatten() {
        Some(names) => Ok(names),
        // Draft 3 had a boolean `required` in each property.
        None => bail!("{path}.{key}: this must be a list of names"),
    }
}

/// Matches a list of `min` to `max` elements with commas between them.
fn list(element: Expr, min: u32, max: Option<u32>) -> Expr {
    if max == Some(0) {
        return Expr::empty();
    }
    let more = Expr::seq([comma(), element.clone()]);
    let all = Expr::seq([element, more.repeat(min.saturating_sub(1), max.map(|max| max - 1))]);
    if min == 0 { all.optional() } else { all }
}

impl Reader<'_> {
    /// Matches the values of a schema.
    fn schema(&mut self, schema: &Value, path: &str) -> Result<Expr> {
        let schema = match schema {
            Value::Bool(true) => return Ok(self.any_value()),
            Value::Bool(false) => return Ok(Expr::never()),
            Value::Object(schema) if dialect::is_never(schema) => return Ok(Expr::never()),
            Value::Object(schema) => schema,
            _ => bail!("{path}: a schema must be an object, true or false"),
        };
        if self.depth > MAX_NESTING {
            bail!(
                "{path}: more than {MAX_NESTING} nested schemas (every {ELEMENTS} listed elements count as one level)"
            );
        }
        self.budget.steps(path.len()).with_context(|| path.to_string())?;
        self.depth += 1;
        let expr = self.object_schema(schema, path);
        self.depth -= 1;
        Ok(match expr? {
            rule @ Expr::Rule(_) => rule,
            expr => Expr::At(path.into(), Box::new(expr)),
        })
    }

    fn object_schema(&mut self, schema: &Map<String, Value>, path: &str) -> Result<Expr> {
        if dialect::has_switch(schema) {
            self.copy_of(schema, path)?;
            return self.object_schema(&dialect::without_switches(schema.clone(), path)?, path);
        }
        self.check_keywords(schema, path)?;
        if schema.contains_key("$ref") || schema.contains_key("allOf") {
            return self.named(schema, path);
        }
        for key in ["anyOf", "oneOf"] {
            if let Some(alternatives) = schema.get(key) {
                return self.alternatives(schema, key, alternatives, path);
            }
        }
        if let Some(values) = schema.get("enum").map(|values| (values, "enum")) {
            let (Value::Array(values), key) = values else { bail!("{path}.enum: this must be a list of values") };
            return self.values(values, schema, &format!("{path}.{key}"));
        }
        if let Some(value) = schema.get("const") {
            return self.values(std::slice::from_ref(value), schema, &format!("{path}.const"));
        }
        if combine::UNEVALUATED.iter().any(|(key, _)| schema.contains_key(*key)) {
            self.copy_of(schema, path)?;
            let mut closed = schema.clone();
            combine::close(&mut closed, path)?;
            return self.object_schema(&closed, path);
        }
        let mut types = declared_types(schema, path)?;
        if types.is_empty() {
            types = implied_types(schema);
            if types.is_empty() {
                self.differ_in_uniqueness(schema, None, path);
                return Ok(self.any_value());
            }
            self.differ(path, format_args!("only {} is generated, because there is no type", types.join(", ")));
        }
        // Every integer is also a number.
        if types.contains(&"number") {
            types.retain(|name| *name != "integer");
        }
        let each = types.into_iter().map(|name| self.typed(name, schema, path));
        Ok(Expr::Alt(each.collect::<Result<_>>()?))
    }

    fn check_keywords(&self, schema: &Map<String, Value>, path: &str) -> Result<()> {
        for key in UNSUPPORTED {
            match schema.get(key) {
                None => {}
                Some(Value::Bool(_)) if key.starts_with("unevaluated") => {}
                Some(_) => bail!("{path}.{key}: this keyword is not supported"),
            }
        }
        Ok(())
    }

    /// Returns a call of the rule that belongs to a schema with `$ref` or `allOf`. The schema is converted to this rule
    /// later, by [`Schemas::add`].
    fn named(&mut self, schema: &Map<String, Value>, path: &str) -> Result<Expr> {
        self.copy_of(schema, path)?;
        let asserting: Map<String, Value> = schema
            .iter()
            .filter(|(key, _)| is_assertion(key))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        let name = serde_json::to_string(&asserting)?;
        if let Some(rule) = self.named.get(&name) {
            return Ok(Expr::Rule(*rule));
        }
        if self.named.len() >= MAX_RULES {
            bail!(
                "{path}: more than {MAX_RULES} different references and combinations: use fewer, or check for a circular reference that grows"
            );
        }
        let rule = self.all.rules.add(path, Expr::never());
        self.named.insert(name, rule);
        self.left.push_back((rule, asserting, path.into()));
        Ok(Expr::Rule(rule))
    }

    /// Charges the budget for a copy of a schema.
    fn copy_of(&self, schema: &Map<String, Value>, path: &str) -> Result<()> {
        let each = schema.iter().try_for_each(|(key, value)| {
            self.budget.steps(key.len())?;
            self.budget.copy(value)
        });
        each.with_context(|| path.to_string())
    }

    /// Converts a schema with `$ref` or `allOf`: follows a `$ref` that stands alone, or combines all parts into one
    /// schema.
    fn combined(&mut self, schema: &Map<String, Value>, path: &str) -> Result<Expr> {
        if let (1, Some(Value::String(reference))) = (schema.len(), schema.get("$ref")) {
            let target = self.target(reference, path)?.clone();
            let path = format!("${}", short(reference.trim_start_matches('#')).replace('/', "."));
            return self.schema(&target, &path);
        }
        let flat = self.flat(&Value::Object(schema.clone()), path, 0)?;
        self.schema(&flat, path)
    }

    /// Finds the target of a reference: a JSON pointer, an anchor, or the whole schema.
    fn target(&self, reference: &str, path: &str) -> Result<&Value> {
        let own = self.root.get("$id").or_else(|| self.root.get("id")).and_then(Value::as_str);
        let within = own.and_then(|own| reference.strip_prefix(own.trim_end_matches('#'))).unwrap_or(reference);
        let none = || anyhow!("{path}.$ref: there is no {} in the schema", short(reference));
        let target = match percent_decode_str(within).decode_utf8_lossy().strip_prefix('#') {
            None if within.is_empty() => self.root,
            None => bail!("{path}.$ref: only references within the schema are supported, such as #/$defs/name"),
            Some(pointer) if pointer.is_empty() || pointer.starts_with('/') => {
                self.root.pointer(pointer).ok_or_else(none)?
            }
            Some(anchor) => {
                // The search for the anchor may visit the whole schema, so the budget is charged for the whole schema.
                self.budget.copy(self.root).with_context(|| path.to_string())?;
                anchored(self.root, anchor).ok_or_else(none)?
            }
        };
        // Charge the budget here, because the caller makes a copy.
        self.budget.copy(target).with_context(|| path.to_string())?;
        Ok(target)
    }

    fn alternatives(
        &mut self,
        schema: &Map<String, Value>,
        key: &str,
        alternatives: &Value,
        path: &str,
    ) -> Result<Expr> {
        let Value::Array(alternatives) = alternatives else { bail!("{path}.{key}: this must be a list of schemas") };
        let mut rest = schema.clone();
        rest.remove(key);
        rest.retain(|key, _| is_assertion(key));
        let mut each = Vec::new();
        for (i, alternative) in alternatives.iter().enumerate() {
            let path = format!("{path}.{key}[{i}]");
            self.budget.copy(alternative).with_context(|| path.clone())?;
            each.push(match rest.is_empty() {
                true => alternative.clone(),
                false => self.both(&Value::Object(rest.clone()), alternative, &path, 0)?,
            });
        }
        if key == "oneOf" {
            self.check_exclusive(&each, path)?;
        }
        let each = each.iter().enumerate().map(|(i, schema)| self.schema(schema, &format!("{path}.{key}[{i}]")));
        Ok(Expr::Alt(each.collect::<Result<_>>()?))
    }

    /// Matches those of the listed values that also satisfy the schema's other keywords.
    fn values(&mut self, values: &[Value], schema: &Map<String, Value>, path: &str) -> Result<Expr> {
        let (mut allowed, mut loose) = (Vec::new(), None);
        // Notes a difference in the format once for the whole list and not for each value, because a client chooses the
        // number of values.
        if values.iter().any(Value::is_string) {
            self.differ_in_format(schema, path);
        }
        for value in values {
            self.budget.copy(value).with_context(|| path.to_string())?;
            if !is_allowed(value, values, schema, path)? {
                continue;
            }
            let text = text_of(value);
            let is_checked = value.is_string() && (schema.contains_key("pattern") || schema.contains_key("format"));
            allowed.push(match is_checked {
                true => {
                    let (checked, left_out) = string(schema, path, self.budget, false)?;
                    loose = Some(left_out);
                    Expr::Both(Box::new(text), Box::new(pattern::quoted(checked)))
                }
                false => text,
            });
        }
        if let Some(loose) = loose {
            self.differ_in_text(loose, path);
        }
        Ok(Expr::Alt(allowed))
    }

    fn typed(&mut self, name: &str, schema: &Map<String, Value>, path: &str) -> Result<Expr> {
        match name {
            "object" => self.object(schema, path),
            "array" => self.array(schema, path),
            "string" => {
                self.differ_in_format(schema, path);
                self.text(schema, path)
            }
            "number" | "integer" => scalar::number(name == "integer", schema, path),
            "boolean" => Ok(Expr::alt([Expr::text("true"), Expr::text("false")])),
            _ => Ok(Expr::text("null")),
        }
    }

    /// A text with a pattern or a format becomes a rule.
    fn text(&mut self, schema: &Map<String, Value>, path: &str) -> Result<Expr> {
        let key = ["pattern", "format", "minLength", "maxLength"].map(|key| schema.get(key));
        if key[..2] == [None, None] {
            return string(schema, path, self.budget, true).map(|(expr, _)| pattern::quoted(expr));
        }
        let key = serde_json::to_string(&key)?;
        self.budget.steps(key.len()).with_context(|| path.to_string())?;
        if let Some((rule, loose)) = self.all.texts.get(&key).copied() {
            self.differ_in_text(loose, path);
            return Ok(Expr::Rule(rule));
        }
        let (expr, loose) = string(schema, path, self.budget, !self.all.drops_lengths)?;
        self.differ_in_text(loose, path);
        let rule = self.all.rules.add(path, pattern::quoted(expr));
        self.all.texts.insert(key, (rule, loose));
        Ok(Expr::Rule(rule))
    }

    fn array(&mut self, schema: &Map<String, Value>, path: &str) -> Result<Expr> {
        let min = count(schema, "minItems", path)?.unwrap_or(0);
        let max = count(schema, "maxItems", path)?;
        // Before 2020-12, `items` could also be a list of schemas, and `additionalItems` applied to the elements after
        // the list.
        let (first, first_key, others) = match (schema.get("prefixItems"), schema.get("items")) {
            (Some(first), others) => (Some(first), "prefixItems", others.map(|others| (others, "items"))),
            (None, Some(first @ Value::Array(_))) => {
                (Some(first), "items", schema.get("additionalItems").map(|others| (others, "additionalItems")))
            }
            (None, others) => (None, "items", others.map(|others| (others, "items"))),
        };
        let first = match first {
            None => &[][..],
            Some(Value::Array(first)) => first,
            Some(_) => bail!("{path}.{first_key}: this must be a list of schemas"),
        };
        if schema.get("uniqueItems") == Some(&Value::Bool(true))
            && let (true, Some((others, _))) = (first.is_empty(), others)
            && let Some(values) = self.few_values(others, &format!("{path}.items"))?
        {
            let inner = self.distinct(&values, min, max, path);
            return Ok(Expr::seq([Expr::text("["), space(), inner, space(), Expr::text("]")]));
        }
        self.differ_in_uniqueness(schema, max, path);
        let known = first.len() as u32;
        // Elements without a schema are generated only if `minItems` requires them or if the schema describes no
        // elements at all.
        let mut rest = match others {
            Some((others, key)) => self.schema(others, &format!("{path}.{key}"))?,
            None if known == 0 || min > known => self.any_value(),
            None => Expr::never(),
        };
        if !matches!(rest, Expr::Rule(_)) {
            rest = Expr::Rule(self.all.rules.add(format!("{path}.items"), rest));
        }
        let inner = if known == 0 {
            list(rest, min, max)
        } else {
            let more = Expr::seq([comma(), rest]);
            let mut tail = more.repeat(min.saturating_sub(known), max.map(|max| max.saturating_sub(known)));
            for (i, schema) in (0..known).zip(first).rev() {
                let before = i as usize / ELEMENTS;
                self.depth += before;
                let element = self.schema(schema, &format!("{path}.{first_key}[{i}]"));
                self.depth -= before;
                let element = element?;
                let element = if i == 0 { element } else { Expr::seq([comma(), element]) };
                tail = match max.is_some_and(|max| i >= max) {
                    true => Expr::empty(),
                    false if i < min => Expr::seq([element, tail]),
                    false => Expr::seq([element, tail]).optional(),
                };
            }
            tail
        };
        let inner = if max.is_some_and(|max| max < min) { Expr::never() } else { inner };
        Ok(Expr::seq([Expr::text("["), space(), inner, space(), Expr::text("]")]))
    }

    /// Returns the values that a schema lists, if it lists at most [`MOST_DISTINCT`] values. Returns `None` for other
    /// schemas, because `uniqueItems` is not enforced for them.
    fn few_values(&self, schema: &Value, path: &str) -> Result<Option<Vec<Value>>> {
        let flat = if schema.get("$ref").is_some() { &self.flat(schema, path, 0)? } else { schema };
        let Some(values) = flat.get("enum").and_then(Value::as_array) else { return Ok(None) };
        if values.len() > MOST_DISTINCT || flat.get("anyOf").is_some() || flat.get("oneOf").is_some() {
            return Ok(None);
        }
        let Value::Object(flat) = flat else { return Ok(None) };
        self.check_keywords(flat, path)?;
        let mut distinct = Vec::new();
        for value in values {
            let is_string = value.is_string() && (flat.contains_key("pattern") || flat.contains_key("format"));
            if is_string {
                return Ok(None);
            }
            if !distinct.contains(value) && is_allowed(value, values, flat, path)? {
                distinct.push(value.clone());
            }
        }
        Ok(Some(distinct))
    }

    /// Matches `min` to `max` of `values` in any order, each value at most once. For each set of values that are
    /// already used, there is one rule, which matches the rest.
    fn distinct(&mut self, values: &[Value], min: u32, max: Option<u32>, path: &str) -> Expr {
        let first = self.all.rules.0.len();
        for used in 0..1usize << values.len() {
            let count = used.count_ones();
            let mut ways = Vec::new();
            if count >= min {
                ways.push(Expr::empty());
            }
            if max.is_none_or(|max| count < max) {
                let left = values.iter().enumerate().filter(|(i, _)| used & 1 << i == 0);
                ways.extend(left.map(|(i, value)| {
                    let before = if count == 0 { Expr::empty() } else { comma() };
                    Expr::seq([before, text_of(value), Expr::Rule(first + (used | 1 << i))])
                }));
            }
            self.all.rules.add(format!("{path}.items"), Expr::Alt(ways));
        }
        Expr::Rule(first)
    }

    /// Notes a difference between the schema at `path` and the grammar that is made of it.
    fn differ(&mut self, path: &str, how: impl Display) {
        self.all.differences.push(format!("{path}: {how}"));
    }

    /// Notes that `uniqueItems` is not enforced for a list of up to `max` elements.
    fn differ_in_uniqueness(&mut self, schema: &Map<String, Value>, max: Option<u32>, path: &str) {
        if schema.get("uniqueItems") == Some(&Value::Bool(true)) && max.is_none_or(|max| max > 1) {
            self.differ(path, format_args!("uniqueItems is enforced only for up to {MOST_DISTINCT} listed values"));
        }
    }

    /// Notes what a text's format does not enforce.
    fn differ_in_format(&mut self, schema: &Map<String, Value>, path: &str) {
        if let Some(name) = schema.get("format").and_then(Value::as_str)
            && let Some(difference) =
                format::difference(name, schema.contains_key("maxLength") && !self.all.drops_lengths)
        {
            self.differ(path, format_args!("format {}: {difference}", short(name)));
        }
    }

    /// Notes the keywords of a text that are not enforced.
    fn differ_in_text(&mut self, loose: Loose, path: &str) {
        if loose.pattern {
            self.differ(path, "pattern is not supported, so only format is enforced");
        }
        if loose.length && self.all.drops_lengths {
            self.differ(
                path,
                "maxLength is not enforced, because it takes too many states with this pattern or format",
            );
        }
        self.all.has_lengths |= loose.length;
    }

    fn any_value(&mut self) -> Expr {
        if let Some(rule) = self.all.value {
            return Expr::Rule(rule);
        }
        let rule = self.all.rules.add("$ (any value)", Expr::never());
        self.all.value = Some(rule);
        let key = pattern::quoted(pattern::any_char().repeat(0, None));
        let member = Expr::seq([key.clone(), Expr::text(":"), space(), Expr::Rule(rule)]);
        let members = Expr::Members { members: Vec::new(), rest: Some(Box::new(member)), separator: Box::new(comma()) };
        let object = Expr::seq([Expr::text("{"), space(), members, space(), Expr::text("}")]);
        let list = list(Expr::Rule(rule), 0, None);
        let array = Expr::seq([Expr::text("["), space(), list, space(), Expr::text("]")]);
        let words = ["true", "false", "null"].map(Expr::text);
        self.all.rules.0[rule].expr = Expr::alt([object, array, key, number::number()].into_iter().chain(words));
        Expr::Rule(rule)
    }
}

/// Returns the schema with the `$anchor` `name`. In drafts before 2019-09, an `$id` of `#name` has the same meaning;
/// draft 4 writes `id`.
fn anchored<'s>(root: &'s Value, anchor: &str) -> Option<&'s Value> {
    let mut left = vec![root];
    while let Some(schema) = left.pop() {
        match schema {
            Value::Object(object) => {
                let text = |key| object.get(key).and_then(Value::as_str);
                let is_id = |key| text(key).and_then(|id: &str| id.strip_prefix('#')) == Some(anchor);
                if text("$anchor") == Some(anchor) || is_id("$id") || is_id("id") {
                    return Some(schema);
                }
                // The values of `const` and `enum` are not searched for anchors, because they are not schemas.
                left.extend(
                    object.iter().filter(|(key, _)| !["const", "enum"].contains(&key.as_str())).map(|(_, value)| value),
                );
            }
            Value::Array(list) => left.extend(list),
            _ => {}
        }
    }
    None
}

/// The types that a schema lists.
fn declared_types(schema: &Map<String, Value>, path: &str) -> Result<Vec<&'static str>> {
    let known = |value: &Value| {
        let name = value.as_str().unwrap_or_default();
        TYPES.into_iter().find(|known| *known == name).ok_or_else(|| {
            anyhow!("{path}.type: {} is not a type: use one of {}", short(&value.to_string()), TYPES.join(", "))
        })
    };
    match schema.get("type") {
        None => Ok(Vec::new()),
        Some(Value::Array(names)) if names.is_empty() => bail!("{path}.type: this list is empty"),
        Some(Value::Array(names)) => names.iter().map(known).collect(),
        Some(name) => Ok(vec![known(name)?]),
    }
}

/// Returns true if a keyword restricts values, that is, if it is in [`UNTYPED`] or [`OF_TYPES`].
fn is_assertion(key: &str) -> bool {
    UNTYPED.contains(&key) || OF_TYPES.iter().any(|(_, keys)| keys.contains(&key))
}

/// Returns the types to which the keywords of a schema without `type` apply.
fn implied_types(schema: &Map<String, Value>) -> Vec<&'static str> {
    let mut types = Vec::new();
    for (name, keys) in OF_TYPES {
        if keys.iter().any(|key| schema.contains_key(*key)) {
            types.push(name);
        }
    }
    if !types.is_empty() && schema.get("nullable") == Some(&Value::Bool(true)) {
        types.push("null");
    }
    types
}

/// Matches a value in its one canonical spelling.
fn text_of(value: &Value) -> Expr {
    match value {
        Value::String(text) => pattern::quoted(pattern::literal(text)),
        Value::Array(values) => {
            let elements = values.iter().enumerate().flat_map(|(i, value)| {
                let before = if i == 0 { Expr::empty() } else { comma() };
                [before, text_of(value)]
            });
            Expr::seq([Expr::text("[")].into_iter().chain(elements).chain([Expr::text("]")]))
        }
        Value::Object(members) => {
            let members = members.iter().enumerate().flat_map(|(i, (key, value))| {
                let before = if i == 0 { Expr::empty() } else { comma() };
                [before, pattern::quoted(pattern::literal(key)), Expr::text(":"), space(), text_of(value)]
            });
            Expr::seq([Expr::text("{")].into_iter().chain(members).chain([Expr::text("}")]))
        }
        other => Expr::text(&other.to_string()),
    }
}

/// Returns whether a value has a type.
fn is_of_type(value: &Value, name: &str) -> bool {
    match (name, value) {
        ("object", Value::Object(_)) | ("array", Value::Array(_)) | ("string", Value::String(_)) => true,
        ("boolean", Value::Bool(_)) | ("null", Value::Null) | ("number", Value::Number(_)) => true,
        ("integer", Value::Number(number)) => number.as_f64().is_some_and(|number| number.fract() == 0.0),
        _ => false,
    }
}

/// Returns true if a listed value satisfies the rest of its schema.
fn is_allowed(value: &Value, all: &[Value], schema: &Map<String, Value>, path: &str) -> Result<bool> {
    let types = declared_types(schema, path)?;
    if !types.is_empty() && !types.iter().any(|name| is_of_type(value, name)) {
        return Ok(false);
    }
    for (key, limit) in schema {
        let (number, length) = (value.as_f64(), value.as_str().map(|text| text.chars().count() as f64));
        let compared = |found: Option<f64>, holds: fn(f64, f64) -> bool| {
            found.zip(limit.as_f64()).is_none_or(|(found, limit)| holds(found, limit))
        };
        let holds = match key.as_str() {
            "const" => value == limit,
            "enum" => limit.as_array().is_some_and(|values| std::ptr::eq(&values[..], all) || values.contains(value)),
            "minimum" => compared(number, |a, b| a >= b),
            "maximum" => compared(number, |a, b| a <= b),
            "exclusiveMinimum" => compared(number, |a, b| a > b),
            "exclusiveMaximum" => compared(number, |a, b| a < b),
            "minLength" => compared(length, |a, b| a >= b),
            "maxLength" => compared(length, |a, b| a <= b),
            // `pattern` and `format` count as satisfied here. They are checked later, when the text of the value is
            // intersected with their automata.
            "type" | "nullable" | "pattern" | "format" => true,
            "unevaluatedProperties" => !value.is_object(),
            "unevaluatedItems" => !value.is_array(),
            "uniqueItems" if !value.is_array() => true,
            other if OF_TYPES.iter().any(|(name, keys)| keys.contains(&other) && !is_of_type(value, name)) => true,
            other if is_assertion(other) => {
                bail!("{path}: `{other}` together with listed values is not supported")
            }
            _ => true,
        };
        if !holds {
            return Ok(false);
        }
    }
    Ok(true)
}
