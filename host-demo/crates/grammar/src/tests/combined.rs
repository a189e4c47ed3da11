//! Combinations of schemas in `allOf`, `anyOf` and `oneOf`, checked against an independent validator.

use arenite::grammar::Grammar;
use serde_json::{Map, Value, json};

use super::texts::{Random, random_text};
use super::{accepts, check};
use crate::{Budget, from_json_schema};

/// Checks that the grammar accepts at least one spelling of each valid value, and no spelling of an invalid value.
fn exactly(schema: &Value, valid: &[Value], invalid: &[Value]) {
    let table = from_json_schema(schema, &Budget::of_command()).unwrap_or_else(|error| panic!("{schema}: {error:#}"));
    let validator = jsonschema::options().should_validate_formats(true).build(schema).unwrap();
    for (values, is_valid) in [(valid, true), (invalid, false)] {
        for value in values {
            assert_eq!(validator.is_valid(value), is_valid, "{schema}: {value} is not what the test says");
            assert_eq!(ways(value).iter().any(|text| accepts(&table, text)), is_valid, "{schema}: {value}");
        }
    }
}

/// The texts of a value with its members in any order.
fn ways(value: &Value) -> Vec<String> {
    fn orders(members: &[String]) -> Vec<Vec<String>> {
        let Some((first, rest)) = members.split_first() else { return vec![Vec::new()] };
        let with_first = |at: usize, mut order: Vec<String>| {
            order.insert(at, first.clone());
            order
        };
        orders(rest)
            .into_iter()
            .flat_map(|order| (0..=order.len()).map(move |at| with_first(at, order.clone())))
            .collect()
    }
    let Value::Object(members) = value else { return vec![value.to_string()] };
    let members: Vec<String> = members.iter().map(|(name, value)| format!("{}:{value}", json!(name))).collect();
    orders(&members).into_iter().map(|order| format!("{{{}}}", order.join(","))).collect()
}

/// Like `exactly`, for values that must match both schemas. The schemas are combined in three ways: in an `allOf` in
/// both orders, and by an `allOf` with `b` inside `a`.
fn both(a: Value, b: Value, valid: &[Value], invalid: &[Value]) {
    exactly(&json!({ "allOf": [a, b] }), valid, invalid);
    exactly(&json!({ "allOf": [b, a] }), valid, invalid);
    let mut beside = a;
    beside["allOf"] = json!([b]);
    exactly(&beside, valid, invalid);
}

#[test]
fn whole_numbers_however_they_are_written() {
    let listed = json!({"enum": [1, 2.0, 2.5, [3.0]]});
    both(listed.clone(), json!({"const": 1.0}), &[json!(1)], &[json!(2)]);
    both(listed.clone(), json!({"enum": [2, 2.5]}), &[json!(2), json!(2.5)], &[json!(1)]);
    both(listed, json!({"const": [3]}), &[json!([3])], &[json!(3)]);
    both(json!({"maxLength": 2.0}), json!({"type": "string"}), &[json!("ab")], &[json!("abc")]);
}

#[test]
fn limits() {
    for (key, low, high, least, most) in [
        ("minimum", json!(3), json!(5), json!(5), json!(4)),
        ("exclusiveMinimum", json!(3), json!(5), json!(6), json!(5)),
        ("minLength", json!(1), json!(2), json!("ab"), json!("a")),
        ("minItems", json!(1), json!(2), json!([1, 2]), json!([1])),
    ] {
        both(json!({ key: low }), json!({ key: high }), &[least], &[most]);
    }
    for (key, low, high, most, more) in [
        ("maximum", json!(3), json!(5), json!(3), json!(4)),
        ("exclusiveMaximum", json!(3), json!(5), json!(2), json!(3)),
        ("maxLength", json!(1), json!(2), json!("a"), json!("ab")),
        ("maxItems", json!(1), json!(2), json!([1]), json!([1, 2])),
        ("maxProperties", json!(1), json!(2), json!({ "a": 1 }), json!({ "a": 1, "b": 2 })),
    ] {
        both(json!({ key: low }), json!({ key: high }), &[most], &[more]);
    }
    let type_of = |name: &str| json!({ "type": name, "multipleOf": 2 });
    both(type_of("integer"), json!({ "multipleOf": 6 }), &[json!(0), json!(12)], &[json!(2), json!(3)]);
    both(
        json!({ "type": "number", "multipleOf": 0.25 }),
        json!({ "multipleOf": 0.5 }),
        &[json!(1.5), json!(-2)],
        &[json!(0.25), json!(0.3)],
    );
    exactly(&json!({ "type": "number", "multipleOf": 0.01 }), &[json!(1), json!(-0.25)], &[json!(0.255)]);
}

#[test]
fn types_and_listed_values() {
    both(
        json!({ "type": ["integer", "string"] }),
        json!({ "type": ["number", "null"] }),
        &[json!(1)],
        &[json!(1.5), json!("a"), json!(null)],
    );
    both(
        json!({ "enum": [1, 2, "a"] }),
        json!({ "enum": ["a", 3, 2] }),
        &[json!(2), json!("a")],
        &[json!(1), json!(3)],
    );
    both(json!({ "enum": [1, 2, "a"] }), json!({ "const": 2 }), &[json!(2)], &[json!(1), json!("a")]);
    both(json!({ "enum": [1, 2, "a"] }), json!({ "type": "string" }), &[json!("a")], &[json!(1)]);
    both(json!({ "type": "string" }), json!({}), &[json!("a")], &[json!(1)]);
    exactly(&json!({ "allOf": [true, { "type": "string" }, true] }), &[json!("a")], &[json!(1)]);
    exactly(
        &json!({ "anyOf": [{ "type": "null" }, { "allOf": [{ "type": "string" }, false] }] }),
        &[json!(null)],
        &[json!("a")],
    );
}

#[test]
fn properties() {
    let integer = json!({ "type": "integer" });
    // For a schema that does not list a property, the property is an additional one, so `additionalProperties` of this
    // schema applies to it.
    both(
        json!({ "properties": { "a": integer, "b": { "minimum": 3, "type": "number" } }, "additionalProperties": integer }),
        json!({ "properties": { "b": integer, "c": { "maximum": 9 } }, "required": ["c"] }),
        &[json!({ "a": 1, "b": 3, "c": 9 }), json!({ "c": 9 })],
        &[json!({ "a": 1 }), json!({ "b": 2, "c": 9 }), json!({ "c": 8.5 }), json!({ "b": 3.5, "c": 9 })],
    );
    both(
        json!({ "properties": { "a": integer }, "additionalProperties": false }),
        json!({ "properties": { "a": { "maximum": 5 }, "b": {} } }),
        &[json!({}), json!({ "a": 5 })],
        &[json!({ "a": 6 }), json!({ "b": 1 })],
    );
    both(
        json!({ "type": "object", "additionalProperties": integer }),
        json!({ "additionalProperties": { "minimum": 3 } }),
        &[json!({}), json!({ "x": 3 })],
        &[json!({ "x": 2 }), json!({ "x": "a" })],
    );
    both(
        json!({ "required": ["a"] }),
        json!({ "required": ["b", "a"], "additionalProperties": integer }),
        &[],
        &[json!({ "a": 1 }), json!({ "a": 1, "b": "x" })],
    );
    exactly(
        &json!({ "required": ["a"], "additionalProperties": integer }),
        &[json!({ "a": 1 }), json!({ "a": 1, "x": 2 })],
        &[json!({ "a": "x" }), json!({ "x": 1 })],
    );
    both(
        json!({ "patternProperties": { "^x": integer }, "properties": { "y": integer } }),
        json!({ "properties": { "x1": { "minimum": 3 } } }),
        &[json!({ "y": 1, "x1": 3 }), json!({ "y": 1, "x2": 0 })],
        &[json!({ "x1": 2 }), json!({ "x2": "a" })],
    );
    both(
        json!({ "patternProperties": { "^x": integer }, "additionalProperties": false }),
        json!({ "properties": { "x1": { "minimum": 3 }, "y": {} } }),
        &[json!({ "x1": 3 }), json!({ "x2": 1 }), json!({})],
        &[json!({ "x1": 2 }), json!({ "y": 1 }), json!({ "x2": "a" })],
    );
    exactly(
        &json!({ "type": "object", "propertyNames": { "title": "a note", "type": "string", "maxLength": 2 } }),
        &[json!({}), json!({ "ab": 1 })],
        &[json!({ "abc": 1 })],
    );
    exactly(&json!({ "type": "object", "propertyNames": true }), &[json!({ "ab": 1 })], &[]);
}

#[test]
fn elements() {
    let (integer, string) = (json!({ "type": "integer" }), json!({ "type": "string" }));
    both(
        json!({ "items": integer }),
        json!({ "items": { "minimum": 3 } }),
        &[json!([]), json!([3, 4])],
        &[json!([2]), json!(["a"])],
    );
    both(
        json!({ "prefixItems": [integer, {}] }),
        json!({ "prefixItems": [{ "minimum": 3 }, string] }),
        &[json!([3, "a"]), json!([])],
        &[json!([2, "a"]), json!([3, 4])],
    );
    // If only one schema lists an element, the `items` of the other schema apply to it.
    both(
        json!({ "prefixItems": [integer], "items": string }),
        json!({ "items": { "maximum": 5, "maxLength": 1 } }),
        &[json!([5]), json!([5, "a"])],
        &[json!([6]), json!([5, "ab"])],
    );
    both(
        json!({ "prefixItems": [integer, integer, integer], "items": string }),
        json!({ "prefixItems": [{ "minimum": 3 }], "items": { "maximum": 5 } }),
        &[json!([9]), json!([3, 5, 5]), json!([3, 5, 5, "a"])],
        &[json!([2]), json!([3, 6]), json!([3, 5, 5, 5])],
    );
    both(json!({ "prefixItems": [integer] }), json!({ "items": false }), &[json!([])], &[json!([1])]);
    exactly(
        &json!({ "prefixItems": [integer, string, string], "maxItems": 1 }),
        &[json!([]), json!([1])],
        &[json!([1, "a"]), json!(["a"])],
    );
}

#[test]
fn what_is_left_unevaluated() {
    let name = |name: &str| json!({ "properties": { name: { "type": "integer" } } });
    let mut closed = name("b");
    closed["unevaluatedProperties"] = json!(false);
    // If an element of `allOf` has `unevaluatedProperties: false`, the properties that other elements list are
    // forbidden. If the schema itself has it next to `allOf`, the properties of all elements are allowed.
    both(name("a"), closed, &[json!({}), json!({ "b": 1 })], &[json!({ "a": 1 }), json!({ "a": 1, "b": 1 })]);
    exactly(
        &json!({ "allOf": [name("a"), name("b")], "unevaluatedProperties": false }),
        &[json!({ "a": 1, "b": 1 })],
        &[json!({ "c": 1 })],
    );
    // A property that only `required` or a similar keyword mentions is unevaluated, so it is forbidden.
    exactly(&json!({ "type": "object", "unevaluatedProperties": false }), &[json!({})], &[json!({ "a": 1 })]);
    exactly(
        &json!({ "anyOf": [{ "required": ["a"] }, { "type": "null" }], "unevaluatedProperties": false }),
        &[json!(null)],
        &[json!({ "a": 1 })],
    );
    exactly(
        &json!({ "allOf": [{ "additionalProperties": { "type": "integer" } }], "unevaluatedProperties": false }),
        &[json!({ "a": 1 })],
        &[json!({ "a": "x" })],
    );
    exactly(
        &json!({ "enum": ["a", 1, {}], "unevaluatedProperties": true, "unevaluatedItems": false }),
        &[json!("a"), json!(1)],
        &[json!({ "a": 1 })],
    );
    exactly(
        &json!({ "prefixItems": [{ "type": "integer" }], "unevaluatedItems": false }),
        &[json!([]), json!([1])],
        &[json!([1, 2])],
    );
}

#[test]
fn switches() {
    let draft4 = |mut schema: Value| {
        schema["$schema"] = json!("http://json-schema.org/draft-04/schema#");
        schema
    };
    let above = json!({ "type": "integer", "minimum": 3, "exclusiveMinimum": true });
    exactly(&draft4(above.clone()), &[json!(4)], &[json!(3)]);
    let from = json!({ "minimum": 3, "exclusiveMinimum": false });
    for all in [json!([above, from]), json!([from, above])] {
        exactly(&draft4(json!({ "allOf": all })), &[json!(4)], &[json!(3)]);
    }
    exactly(
        &draft4(
            json!({ "enum": [3, 4, 5], "minimum": 3, "exclusiveMinimum": true, "maximum": 5, "exclusiveMaximum": true }),
        ),
        &[json!(4)],
        &[json!(3), json!(5)],
    );
    // Only tests the grammar with given texts, because the validator does not support `nullable`, a keyword of OpenAPI.
    let nullable = |schema: Value, good: &[&str], bad: &[&str]| {
        check(&schema.to_string(), &from_json_schema(&schema, &Budget::of_command()).unwrap(), good, bad);
    };
    let maybe = json!({ "type": "string", "nullable": true });
    nullable(maybe.clone(), &["null", "\"a\""], &["1"]);
    nullable(json!({ "type": "string", "nullable": false }), &["\"a\""], &["null"]);
    nullable(json!({ "maxLength": 3, "nullable": true }), &["null", "\"a\""], &["1"]);
    nullable(json!({ "type": "string", "nullable": true, "enum": ["a", null] }), &["null", "\"a\""], &["\"b\""]);
    nullable(json!({ "allOf": [maybe, { "type": "string" }] }), &["\"a\""], &["null"]);
    nullable(
        json!({ "allOf": [maybe, { "type": ["null", "string"], "maxLength": 1 }] }),
        &["\"a\"", "null"],
        &["\"ab\""],
    );
}

#[test]
fn alternatives_that_exclude_each_other() {
    let (integer, nothing) = (json!({ "type": "integer" }), json!({ "type": "null" }));
    // The first alternative of `oneOf` must exclude both alternatives of the `anyOf`, which is its second alternative.
    exactly(
        &json!({ "oneOf": [integer, { "anyOf": [{ "type": "string" }, nothing] }] }),
        &[json!(1), json!("a"), json!(null)],
        &[json!(true)],
    );
    // The two objects exclude each other: one alternative allows only the properties that it lists, and the other
    // requires a property that is not among them.
    let closed = json!({ "type": "object", "properties": { "a": integer }, "additionalProperties": false });
    let other = json!({ "type": "object", "properties": { "b": integer }, "required": ["b"] });
    exactly(
        &json!({ "oneOf": [closed, other] }),
        &[json!({}), json!({ "a": 1 }), json!({ "b": 1 })],
        &[json!({ "a": "x" }), json!({ "b": "x" })],
    );
    for (one, other, value) in [
        (json!({ "minLength": 3 }), json!({ "maxLength": 2 }), json!("ab")),
        (json!({ "minItems": 2 }), json!({ "maxItems": 1 }), json!([1])),
        (json!({ "minimum": 3 }), json!({ "exclusiveMaximum": 3 }), json!(3)),
    ] {
        let name = if value.is_string() {
            "string"
        } else if value.is_array() {
            "array"
        } else {
            "number"
        };
        exactly(&json!({ "type": name, "oneOf": [one, other] }), &[value], &[json!(null)]);
    }
    exactly(&json!({ "oneOf": [false, integer] }), &[json!(1)], &[json!("a")]);
}

#[test]
fn anchors_within_lists() {
    exactly(
        &json!({ "$ref": "#here", "$defs": { "x": { "anyOf": [{ "$anchor": "here", "type": "integer" }, {}] } } }),
        &[json!(1)],
        &[json!("a")],
    );
}

#[test]
fn patterns() {
    let pattern = |pattern: &str, valid: &[&str], invalid: &[&str]| {
        let values = |texts: &[&str]| texts.iter().map(|text| json!(text)).collect::<Vec<_>>();
        exactly(&json!({ "type": "string", "pattern": pattern }), &values(valid), &values(invalid));
    };
    pattern("(^a$)", &["a"], &["ab", "ba", ""]);
    pattern("(ab|^c)", &["ab", "xaby", "cx"], &["xc", "ba"]);
    pattern("(?:(b$)|^)", &["b", "xb", "x"], &[]);
    pattern("(?<year>[0-9]{2})", &["2012", "x20"], &["2", "x"]);
    // The alternatives of this pattern have different anchors, and one text may contain matches of several
    // alternatives.
    pattern("ab|^c|d$|^e$|(?:cd|^$)", &["xabx", "cx", "xd", "e", "abcd", ""], &["xc", "dx", "xe", "ex"]);
    let words: Vec<String> = (0..40).map(|n| format!("word_{n}")).collect();
    pattern(&words.join("|"), &["word_7", "x word_39 word_3"], &["word_", "word-1"]);
    pattern("^", &["", "a"], &[]);
    pattern("$", &["", "a"], &[]);
    // `\p{Zl}` is one character, and `\P{Any}` is none.
    pattern("^\\p{Zl}$", &["\u{2028}"], &["\u{2029}", "a"]);
    pattern("^[\\p{Zl}a]$", &["\u{2028}", "a"], &["\u{2029}"]);
    pattern("^(a|\\P{Any})$", &["a"], &["b", ""]);
}

/// One or more random keywords for one type of value.
fn random_part(random: &mut Random, kind: usize) -> Value {
    let mut n = |most: usize| random.below(most + 1);
    let inner = |n: usize| match n % 4 {
        0 => json!({ "type": "integer" }),
        1 => json!({ "minimum": 3, "type": ["number", "null"] }),
        2 => json!({ "enum": [1, 4, "a", null] }),
        _ => json!({ "maxLength": 2, "type": ["string", "integer"] }),
    };
    let mut part = Map::new();
    for _ in 0..1 + n(2) {
        let (key, value) = match (kind, n(6)) {
            (0, 0) => ("type", json!(["integer", "null"])),
            (0, 1) => ("enum", json!([1, 2, 4.5, 6, null])),
            (0, 2) => ("minimum", json!(n(9))),
            (0, 3) => ("exclusiveMaximum", json!(n(9))),
            (0, 4) => ("maximum", json!(n(9) as f64 / 2.0)),
            (0, _) => ("multipleOf", json!(1 + n(3))),
            (1, 0) => ("minLength", json!(n(3))),
            (1, 1) => ("maxLength", json!(n(5))),
            (1, 2) => ("pattern", ["^a", "b$", "^[ab]+$"][n(2)].into()),
            (1, _) => ("enum", json!(["a", "ab", "ba", 1])),
            (2, 0) => ("minItems", json!(n(2))),
            (2, 1) => ("maxItems", json!(n(3))),
            (2, 2) => ("items", inner(n(3))),
            (2, 3) => ("unevaluatedItems", json!(false)),
            (2, _) => ("prefixItems", (0..=n(1)).map(|_| inner(n(3))).collect()),
            (_, 0) => ("required", vec![["a", "b", "xa"][n(2)]].into()),
            (_, 1) => ("additionalProperties", if n(1) == 0 { json!(false) } else { inner(n(3)) }),
            (_, 2) => ("patternProperties", json!({ "^x": inner(n(3)) })),
            (_, 3) => ("unevaluatedProperties", json!(false)),
            (_, 4) => ("maxProperties", json!(n(3))),
            (_, _) => {
                let names = ["a", "b", "xa", "xb"].into_iter().filter(|_| n(1) == 0).collect::<Vec<_>>();
                ("properties", names.into_iter().map(|name| (name.into(), inner(n(3)))).collect::<Map<_, _>>().into())
            }
        };
        part.insert(key.into(), value);
    }
    if n(1) == 0 {
        part.insert("type".into(), vec![["number", "string", "array", "object"][kind], "null"].into());
    }
    part.into()
}

#[test]
fn whatever_parts_allow_together_is_valid() {
    let mut random = Random(11);
    let (mut compiled, mut texts) = (0, 0);
    for n in 0..600 {
        let parts: Vec<Value> = (0..2 + random.below(2)).map(|_| random_part(&mut random, n % 4)).collect();
        let key = ["allOf", "allOf", "anyOf", "oneOf"][random.below(4)];
        let mut schema = json!({ key: parts });
        if random.below(2) == 0 {
            let Value::Object(beside) = random_part(&mut random, n % 4) else { continue };
            schema.as_object_mut().unwrap().extend(beside);
        }
        let Ok(table) = from_json_schema(&schema, &Budget::of_command()) else { continue };
        compiled += 1;
        let grammar = Grammar::new(&table).unwrap();
        let validator = jsonschema::validator_for(&schema).unwrap();
        for _ in 0..6 {
            let Some(text) = random_text(&grammar, &mut random) else { continue };
            let value: Value = serde_json::from_str(&text).unwrap();
            // The validator converts integers of more than 64 bits to floats, so its result is not exact for them.
            let is_exact = value.is_i64() || value.is_u64() || value.as_f64().is_none_or(|value| value.abs() < 1e15);
            assert!(!is_exact || validator.is_valid(&value), "{schema}: {text}");
            texts += 1;
        }
    }
    assert!(compiled > 200 && texts > 1000, "{compiled} schemas, {texts} texts");
}
