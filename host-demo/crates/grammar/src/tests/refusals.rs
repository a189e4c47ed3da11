//! Complete error messages for grammars and schemas: the reason, the place and the remedy.

use serde_json::{Map, Value, json};

use super::gbnf::no_tokens;
use crate::{Budget, from_gbnf, from_json_schema};

fn schema(schema: Value, says: &str) {
    assert_eq!(format!("{:#}", from_json_schema(&schema, &Budget::of_command()).unwrap_err()), says, "{schema}");
}

fn gbnf(text: &str, says: &str) {
    assert_eq!(format!("{:#}", from_gbnf(text, &no_tokens, &Budget::of_command()).unwrap_err()), says, "{text:?}");
}

#[test]
fn of_gbnf() {
    gbnf("root ::= a\n[a-z]+", "2:1: expected a rule: a name of letters, digits, `-` and `_`, then `::=`");
    gbnf("root ::= \"a\"{x}", "1:14: expected a number of repetitions, as in `{2}`, `{2,}`, `{,3}` and `{2,3}`");
    gbnf("root ::= \"a\"{2,x}", "1:16: expected a number of repetitions, as in `{2}`, `{2,}`, `{,3}` and `{2,3}`");
    gbnf("root ::= !\"a\"", "1:11: expected a token after `!`: `!<text>` or `!<[1000]>`");
}

#[test]
fn of_patterns() {
    let flags = "$.pattern: flags are not supported: write `[aA]` for `(?i)a`";
    schema(json!({ "pattern": "(?i)a" }), flags);
    schema(json!({ "pattern": "x(?i:a)" }), flags);
    schema(json!({ "pattern": "(?i:a)" }), flags);
    let ends = "$.pattern: `^` and `$` are supported only at the ends of the expression or of its alternatives";
    schema(json!({ "pattern": "x(^a|b)" }), ends);
}

#[test]
fn of_keywords() {
    schema(json!({ "allOf": {} }), "$.allOf: this must be a list of schemas");
    schema(json!({ "allOf": [{}, 3] }), "$.allOf[1]: a schema must be an object, true or false");
    schema(
        json!({ "allOf": [{ "not": { "const": 1 }, "$ref": "#/$defs/a" }], "$defs": { "a": {} } }),
        "$.allOf[0].not: this keyword is not supported",
    );
    schema(json!({ "prefixItems": { "type": "string" } }), "$.prefixItems: this must be a list of schemas");
    schema(
        json!({ "items": { "enum": ["a"], "if": {} }, "uniqueItems": true }),
        "$.items.if: this keyword is not supported",
    );
    for (key, value) in [("properties", json!({ "a": 1 })), ("items", json!([1])), ("uniqueItems", json!([1]))] {
        schema(
            json!({ "enum": ["a", value], key: {} }),
            &format!("$.enum: `{key}` together with listed values is not supported"),
        );
    }
    schema(json!({ "properties": ["a"] }), "$.properties: this must be an object");
    schema(json!({ "patternProperties": ["^a"] }), "$.patternProperties: this must be an object");
    schema(json!({ "properties": { "a": { "minimum": "3" } } }), "$.properties.a.minimum: this must be a number");
    schema(
        json!({ "type": "integer", "minimum": 1e21 }),
        "$: whole numbers beyond 1000000000000000000000 are not supported: they have up to 20 digits",
    );
}

#[test]
fn of_numbers_and_names_of_properties() {
    let more = "$.minProperties: more than one beside the listed properties is not supported: a name could repeat";
    schema(json!({ "type": "object", "minProperties": 2 }), more);
    schema(json!({ "required": ["a"], "additionalProperties": {}, "minProperties": 3 }), more);
    let alone = "$.propertyNames: this is supported only without `properties`, `required` and `patternProperties`";
    let names = json!({ "pattern": "^a" });
    schema(json!({ "propertyNames": names, "properties": { "b": {} }, "additionalProperties": false }), alone);
    schema(json!({ "propertyNames": names, "required": ["b"], "additionalProperties": true }), alone);
    schema(json!({ "propertyNames": names, "patternProperties": { "b": {} } }), alone);
    schema(
        json!({ "propertyNames": { "anyOf": [{ "const": "a" }] } }),
        "$.propertyNames.anyOf: this keyword is not supported here: use one of enum, minLength, maxLength, pattern, format",
    );
    schema(
        json!({ "propertyNames": { "type": "integer" } }),
        "$.propertyNames.type: this keyword is not supported here: use one of enum, minLength, maxLength, pattern, format",
    );
    schema(
        json!({ "propertyNames": false }),
        "$.propertyNames: this must be an object, with enum, minLength, maxLength, pattern, format",
    );
    schema(
        json!({ "propertyNames": { "enum": ["a", "b"], "pattern": "^a" } }),
        "$.propertyNames: `pattern` together with listed names is not supported",
    );
    schema(
        json!({ "propertyNames": { "enum": ["a"], "if": {} } }),
        "$.propertyNames.if: this keyword is not supported",
    );
    // pydantic writes this for `dict` with an `IntEnum`.
    schema(
        json!({ "propertyNames": { "$ref": "#/$defs/e" }, "$defs": { "e": { "enum": [1, 2], "type": "integer" } } }),
        "$.propertyNames: names are strings, and no string is listed: list strings, or remove `propertyNames`",
    );
}

#[test]
fn of_combinations() {
    let together = "`patternProperties` cannot be combined with the `additionalProperties` of another schema: write both in one schema";
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
        "$.allOf[1].anyOf: combined with another `anyOf`, it has more than 256 alternatives: use fewer",
    );
    schema(
        json!({ "allOf": [{ "type": "object" }, { "anyOf": [{}], "unevaluatedProperties": false }] }),
        "$.allOf[1].unevaluatedProperties: not supported together with alternatives inside a combination: move it out of the combination",
    );
    let (properties, defs): (Map<_, _>, Map<_, _>) = (0..4000)
        .map(|i| ((format!("p{i}"), json!({ "$ref": format!("#/$defs/d{i}") })), (format!("d{i}"), json!({}))))
        .unzip();
    schema(
        json!({ "properties": properties, "$defs": defs }),
        "$.properties.p3999: more than 4000 different references and combinations: use fewer, or check for a circular reference that grows",
    );
    let ambiguous = |i: usize, j: usize| {
        format!(
            "$.oneOf[{i}]: a value could also satisfy oneOf[{j}]: make them distinguishable (by a property with a `const`), or use `anyOf`"
        )
    };
    schema(json!({ "oneOf": [{ "type": "null" }, true] }), &ambiguous(0, 1));
    schema(json!({ "oneOf": [{ "type": "boolean" }, { "type": ["boolean", "null"] }] }), &ambiguous(0, 1));
    schema(
        json!({ "oneOf": [{ "type": "null" }, { "type": "object", "required": ["a"] }, { "type": "object", "properties": { "a": {} } }] }),
        &ambiguous(1, 2),
    );
    // The first schema of `oneOf` has alternatives of its own. A value that satisfies one of these could also satisfy
    // the second schema.
    let kinds = json!([{ "properties": { "kind": { "type": "string" } } }, { "type": "string" }]);
    schema(
        json!({ "oneOf": [{ "properties": { "p": {} }, "anyOf": kinds }, { "type": "object", "required": ["kind"] }] }),
        &ambiguous(0, 1),
    );
    schema(json!({ "oneOf": [{ "properties": { "p": {} }, "anyOf": kinds }, { "type": "string" }] }), &ambiguous(0, 1));
    schema(json!({ "oneOf": [{ "properties": { "p": {} }, "nullable": true }, { "type": "null" }] }), &ambiguous(0, 1));
    // The two schemas differ only in a property that is nested so deeply that the comparison of schemas does not reach
    // it.
    let deep = |kind: &str| {
        (0..12).fold(
            json!({ "const": kind }),
            |inner, _| json!({ "type": "object", "properties": { "a": inner }, "required": ["a"] }),
        )
    };
    schema(json!({ "oneOf": [deep("x"), deep("y")] }), &ambiguous(0, 1));
}

/// The error of a contradiction names the whole schema.
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
        schema(one, "$: no text can satisfy this: it contradicts itself or recurses without end");
    }
}
