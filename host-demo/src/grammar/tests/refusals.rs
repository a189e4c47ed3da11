//! Whole sentences that refuse a grammar or a schema: what, where, and what to do.

use serde_json::{Map, Value, json};

use super::gbnf::no_tokens;
use crate::grammar::{from_gbnf, from_json_schema};

fn schema(schema: Value, says: &str) {
    assert_eq!(format!("{:#}", from_json_schema(&schema).unwrap_err()), says, "{schema}");
}

fn gbnf(text: &str, says: &str) {
    assert_eq!(format!("{:#}", from_gbnf(text, &no_tokens).unwrap_err()), says, "{text:?}");
}

#[test]
fn of_gbnf() {
    gbnf("root ::= a\n[a-z]+", "2:1: here a rule must begin: a name of letters, digits, `-` and `_`, and then `::=`");
    gbnf("root ::= \"a\"{x}", "1:14: here a number of repetitions must stand, as in `{2}`, `{2,}`, `{,3}` and `{2,3}`");
    gbnf(
        "root ::= \"a\"{2,x}",
        "1:16: here a number of repetitions must stand, as in `{2}`, `{2,}`, `{,3}` and `{2,3}`",
    );
    gbnf("root ::= !\"a\"", "1:11: after `!`, a token must come: `!<text>` or `!<[1000]>`");
}

#[test]
fn of_patterns() {
    let flags = "$.pattern: flags are not supported: write `[aA]` for `(?i)a`";
    schema(json!({ "pattern": "(?i)a" }), flags);
    schema(json!({ "pattern": "x(?i:a)" }), flags);
    schema(json!({ "pattern": "(?i:a)" }), flags);
    let ends = "$.pattern: `^` and `$` are supported at the ends of the expression or of its alternatives only";
    schema(json!({ "pattern": "x(^a|b)" }), ends);
}

#[test]
fn of_keywords() {
    schema(json!({ "allOf": {} }), "$.allOf: this must be a list of schemas");
    schema(json!({ "allOf": [{}, 3] }), "$.allOf[1]: a schema is an object, true or false");
    schema(
        json!({ "allOf": [{ "not": {}, "$ref": "#/$defs/a" }], "$defs": { "a": {} } }),
        "$.allOf[0].not: this keyword is not supported",
    );
    schema(json!({ "prefixItems": { "type": "string" } }), "$.prefixItems: this must be a list of schemas");
    schema(json!({ "properties": ["a"] }), "$.properties: this must be an object");
    schema(json!({ "patternProperties": ["^a"] }), "$.patternProperties: this must be an object");
    schema(json!({ "properties": { "a": { "minimum": "3" } } }), "$.properties.a.minimum: this must be a number");
    schema(
        json!({ "type": "integer", "maximum": 1e19 }),
        "$: a limit of 10000000000000000000 is not supported for whole numbers: leave it out, and they have up to 16 digits",
    );
    let digits =
        "$: a minimum from 1e16 on or a maximum to -1e16 is not supported: numbers are written with up to 16 digits";
    schema(json!({ "type": "number", "minimum": 1e16 }), digits);
    schema(json!({ "type": "number", "maximum": -1e16 }), digits);
}

#[test]
fn of_numbers_and_names_of_properties() {
    let beside = "$: `minProperties` and `maxProperties` beside `properties` and `required` are not supported: say in `required` what must be there";
    schema(json!({ "properties": { "a": {}, "b": {} }, "minProperties": 1 }), beside);
    schema(json!({ "required": ["a"], "additionalProperties": {}, "maxProperties": 2 }), beside);
    schema(
        json!({ "type": "object", "minProperties": 2 }),
        "$.minProperties: more than 1 is not supported: the same name could come again",
    );
    let alone = "$.propertyNames: this is supported only without `properties`, `required` and `patternProperties`";
    let names = json!({ "pattern": "^a" });
    schema(json!({ "propertyNames": names, "properties": { "b": {} }, "additionalProperties": false }), alone);
    schema(json!({ "propertyNames": names, "required": ["b"], "additionalProperties": true }), alone);
    schema(json!({ "propertyNames": names, "patternProperties": { "b": {} } }), alone);
    schema(
        json!({ "propertyNames": { "enum": ["a", "b"] } }),
        "$.propertyNames.enum: this keyword is not supported here: there are minLength, maxLength, pattern, format",
    );
    schema(
        json!({ "propertyNames": { "type": "integer" } }),
        "$.propertyNames.type: this keyword is not supported here: there are minLength, maxLength, pattern, format",
    );
    schema(
        json!({ "propertyNames": false }),
        "$.propertyNames: this must be an object, with minLength, maxLength, pattern, format",
    );
}

#[test]
fn of_combinations() {
    let together =
        "`patternProperties` cannot be combined with the `additionalProperties` of another schema: put both into one";
    let (patterns, closed) =
        (json!({ "patternProperties": { "^x": {} } }), json!({ "properties": {}, "additionalProperties": false }));
    schema(json!({ "allOf": [patterns, closed] }), &format!("$.allOf[1]: {together}"));
    schema(json!({ "allOf": [closed, patterns] }), &format!("$.allOf[1]: {together}"));
    for (key, a, b) in [
        ("format", json!("date"), json!("time")),
        ("multipleOf", json!(4), json!(6)),
        ("items", json!([{}]), json!({ "type": "null" })),
        ("oneOf", json!([{ "type": "string" }]), json!([{ "type": "null" }])),
    ] {
        schema(
            json!({ "allOf": [{ key: a }, { key: b }] }),
            &format!("$.allOf[1].{key}: this cannot be combined with another `{key}`"),
        );
    }
    let each = |from: usize| (from..from + 17).map(|n| json!({ "minLength": n })).collect::<Vec<_>>();
    schema(
        json!({ "allOf": [{ "anyOf": each(0) }, { "anyOf": each(20) }] }),
        "$.allOf[1].anyOf: with those of another `anyOf` there are more than 256 combinations: use fewer alternatives",
    );
    schema(
        json!({ "allOf": [{ "type": "object" }, { "anyOf": [{}], "unevaluatedProperties": false }] }),
        "$.allOf[1].unevaluatedProperties: beside alternatives, this is not supported within a combination: move it out of there",
    );
    let (properties, defs): (Map<_, _>, Map<_, _>) = (0..4000)
        .map(|i| ((format!("p{i}"), json!({ "$ref": format!("#/$defs/d{i}") })), (format!("d{i}"), json!({}))))
        .unzip();
    schema(
        json!({ "properties": properties, "$defs": defs }),
        "$.properties.p3999: more than 4000 different references and combinations: use fewer, or look for one that refers to itself and grows",
    );
    let ambiguous = |i: usize, j: usize| {
        format!(
            "$.oneOf[{i}]: a value could satisfy oneOf[{j}] as well: say what tells them apart (a property with a `const`), or use `anyOf`"
        )
    };
    schema(json!({ "oneOf": [{ "type": "null" }, true] }), &ambiguous(0, 1));
    schema(json!({ "oneOf": [{ "type": "boolean" }, { "type": ["boolean", "null"] }] }), &ambiguous(0, 1));
    schema(
        json!({ "oneOf": [{ "type": "null" }, { "type": "object", "required": ["a"] }, { "type": "object", "properties": { "a": {} } }] }),
        &ambiguous(1, 2),
    );
    // What alternatives within one write, another may allow.
    let kinds = json!([{ "properties": { "kind": { "type": "string" } } }, { "type": "string" }]);
    schema(
        json!({ "oneOf": [{ "properties": { "p": {} }, "anyOf": kinds }, { "type": "object", "required": ["kind"] }] }),
        &ambiguous(0, 1),
    );
    schema(json!({ "oneOf": [{ "properties": { "p": {} }, "anyOf": kinds }, { "type": "string" }] }), &ambiguous(0, 1));
    schema(json!({ "oneOf": [{ "properties": { "p": {} }, "nullable": true }, { "type": "null" }] }), &ambiguous(0, 1));
    // Deeper than properties are looked into.
    let deep = |kind: &str| {
        (0..12).fold(
            json!({ "const": kind }),
            |inner, _| json!({ "type": "object", "properties": { "a": inner }, "required": ["a"] }),
        )
    };
    schema(json!({ "oneOf": [deep("x"), deep("y")] }), &ambiguous(0, 1));
}

/// What contradicts itself is refused as a whole.
#[test]
fn of_contradictions() {
    for one in [
        json!({ "type": "integer", "minimum": 5, "maximum": 3 }),
        json!({ "type": "string", "minLength": 3, "maxLength": 2 }),
        json!({ "minProperties": 1, "maxProperties": 0 }),
        json!({ "minProperties": 1, "additionalProperties": false }),
        json!({ "required": ["a", "b"], "maxProperties": 1 }),
        json!({ "allOf": [{ "const": 1 }, { "const": 2 }] }),
        json!({ "allOf": [{ "enum": [1, 2] }, { "enum": [3] }] }),
        json!({ "allOf": [{ "required": ["b"] }, { "properties": { "a": {} }, "unevaluatedProperties": false }] }),
    ] {
        schema(one, "$: no text can satisfy this: what it asks for contradicts itself, or nests without end");
    }
}
