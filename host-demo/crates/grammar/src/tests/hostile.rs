//! Malicious grammars: each is refused within the budget, and the error names the place.

use serde_json::{Value, json};

use super::gbnf::no_tokens;
use crate::{Budget, from_gbnf, from_json_schema};

fn schema(schema: &Value, says: &str) {
    let error = format!("{:#}", from_json_schema(schema, &Budget::of_command()).expect_err(says));
    assert!(error.contains(says) && error.len() < 1000, "{error} instead of {says}");
}

fn gbnf(text: &str, says: &str) {
    let error = format!("{:#}", from_gbnf(text, &no_tokens, &Budget::of_command()).expect_err(says));
    assert!(error.contains(says) && error.len() < 1000, "{error} instead of {says}");
}

/// Checks that a schema is refused as one of three properties of an object, and that the error names this property,
/// `one`.
fn property(one: Value, says: &str) {
    let text = json!({ "type": "string", "maxLength": 20 });
    let properties = json!({ "small": text, "one": one, "other": text });
    schema(&json!({ "type": "object", "properties": properties }), says);
}

/// A thousand values are OpenAI's limit. The texts come from a linear congruential generator and have few common
/// prefixes.
#[test]
fn a_thousand_listed_values_are_cheap() {
    let mut state = 1u32;
    let mut letter = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        char::from(b'a' + (state >> 24) as u8 % 26)
    };
    let values: Vec<String> = (0..1000).map(|_| (0..20).map(|_| letter()).collect()).collect();
    let schema = json!({ "type": "object", "properties": { "a": { "enum": values } } });
    from_json_schema(&schema, &Budget::of_request()).unwrap();
}

#[test]
fn repetitions_of_repetitions() {
    property(json!({ "pattern": "^((a{1,200}){1,200}){1,200}$" }), "$.properties.one: this is too");
    property(json!({ "pattern": "^(([a-z]{0,99}x?){0,99}y?){0,99}$" }), "$.properties.one: this is too");
    // This repetition makes no states but takes time.
    property(json!({ "pattern": "^(){4000000000}$" }), "$.properties.one: this is too much work");
    let any = "{0,99})".repeat(5);
    gbnf(&format!("root ::= \"x\"\nroot ::= (((((([^x]*){any}"), "2:1: this is too much work");
    gbnf("root ::= \"a\"{1,10000000}", "1:16: more than 1000000 repetitions");
}

/// The number of states of the automaton grows with the logarithm of the count of a repetition, so large counts are
/// compiled.
#[test]
fn large_counts() {
    for schema in [
        json!({ "type": "string", "maxLength": 65_536 }),
        json!({ "type": "string", "minLength": 4_000_000_000u32 }),
        json!({ "type": "string", "pattern": "^[a-f]{0,65536}$" }),
        json!({ "type": "array", "items": { "type": "integer" }, "minItems": 65_536, "maxItems": 4_000_000_000u32 }),
        json!({ "type": "array", "items": { "type": "string", "maxLength": 4096 }, "maxItems": 65_536 }),
    ] {
        let table =
            from_json_schema(&schema, &Budget::of_request()).unwrap_or_else(|error| panic!("{schema}: {error:#}"));
        assert!(table.len() < 500_000, "{schema}: {}", table.len());
    }
    let many = (0..40).map(|i| (format!("p{i}"), json!({ "type": "string", "maxLength": 2000 })));
    let required: Vec<String> = many.clone().map(|(name, _)| name).collect();
    let schema =
        json!({ "properties": serde_json::Map::from_iter(many), "required": required, "additionalProperties": false });
    from_json_schema(&schema, &Budget::of_request()).unwrap();
    // Requests have a smaller budget.
    for text in ["((a{0,99}b?){0,99}c?){0,99}", "((([^x]*){0,99}y?){0,99}z?){0,99}", "(a|b)*a(a|b){18}"] {
        let error = from_json_schema(&json!({ "pattern": format!("^{text}$") }), &Budget::of_request());
        assert!(format!("{:#}", error.unwrap_err()).contains("$: this is too"), "{text}");
    }
}

/// Each part is small enough, but not all of them together.
#[test]
fn many_that_are_large() {
    let mut defs = serde_json::Map::new();
    let mut properties = serde_json::Map::new();
    for i in 0..400 {
        // Parts that occur often would be compiled once.
        let other = char::from(b'b' + i as u8 % 25);
        let pattern = format!("^{i}{}(a|{other})*a(a|{other}){{15}}$", "x".repeat(400));
        defs.insert(format!("d{i}"), json!({ "pattern": pattern }));
        for twice in ["a", "b"] {
            properties.insert(format!("{twice}{i}"), json!({ "$ref": format!("#/$defs/d{i}") }));
        }
    }
    let required: Vec<&String> = properties.keys().collect();
    schema(&json!({ "properties": properties, "required": required, "$defs": defs }), "$.$defs.d");
    let rules = (0..200).map(|i| format!("r{i} ::= (([a-z]{{90}} \"{i}\"?){{0,1900}} \"-\"){{2}}\n"));
    let root: Vec<String> = (0..200).map(|i| format!("r{i} r{i}")).collect();
    gbnf(&format!("root ::= {}\n{}", root.join(" | "), rules.collect::<String>()), "this is too");
}

#[test]
fn wide_alternations() {
    let words: Vec<String> = (0..150_000).map(|i| format!("{:x}", i * 2_654_435_761u64)).collect();
    property(json!({ "pattern": format!("^[a-z ]*({})[a-z ]*$", words.join("|")) }), "$.properties.one");
    let other = |i: u32| char::from_u32(0x1000 + i).unwrap();
    let parts: Vec<String> = (0..3000).map(|i| format!("[^{}]*{i}", other(i))).collect();
    property(json!({ "pattern": format!("^({})$", parts.join("|")) }), "$.properties.one");
    let classes: String = (0..300_000u32).filter_map(|i| char::from_u32(0x1000 + 2 * i)).collect();
    property(json!({ "pattern": format!("^[{classes}]{{20}}$") }), "$.properties.one");
    property(json!({ "pattern": "\\p{L}".repeat(200_000) }), "$.properties.one.pattern: this is too much work");
}

#[test]
fn deep_nesting() {
    gbnf(&format!("root ::= \"a\"{}", "?".repeat(1_000_000)), "nested repetitions");
    gbnf(&format!("root ::= {}", "(".repeat(1_000_000)), "1:111: more than 100 nested groups");
    let elements = vec![json!({ "type": "null" }); 100_000];
    property(
        json!({ "type": "array", "prefixItems": elements }),
        "$.properties.one.prefixItems[99999]: more than 100 nested schemas",
    );
    let patterns: Vec<Value> = (0..20_000).map(|i| json!({ "pattern": format!("{i}") })).collect();
    property(json!({ "allOf": patterns }), "$.properties.one");
    property(json!({ "pattern": vec!["a"; 100_000] }), "$.properties.one.pattern: more than");
    property(json!({ "pattern": "(".repeat(100_000) + &")".repeat(100_000) }), "$.properties.one.pattern: `((((");
    let mut nested = json!({ "type": "null" });
    for _ in 0..60 {
        nested = json!({ "items": { "items": nested } });
    }
    schema(&nested, "more than 100 nested schemas");
    // Limits with many digits nest deeply, but are allowed.
    let digits = json!({ "type": "number", "minimum": 5e-324, "maximum": 1e-300 });
    assert!(from_json_schema(&digits, &Budget::of_command()).is_ok());
}

#[test]
fn references_and_combinations_that_multiply() {
    let four = |i: usize| vec![json!({ "$ref": format!("#/$defs/d{}", i + 1) }); 4];
    let mut defs: serde_json::Map<_, _> = (0..14).map(|i| (format!("d{i}"), json!({ "allOf": four(i) }))).collect();
    defs.insert("d14".into(), json!({ "type": "object", "properties": { "a": { "type": "integer" } } }));
    schema(&json!({ "$ref": "#/$defs/d0", "$defs": defs }), "this is too much work");
    let alternatives = |level: usize, inner: &Value| -> Vec<Value> {
        let name = format!("p{level}");
        let told = |i| json!({ "properties": { &name: { "const": i }, "x": inner }, "required": [name, "x"] });
        (0..40).map(told).collect()
    };
    let exclusive = (0..3).fold(json!({}), |inner, level| json!({ "oneOf": alternatives(level, &inner) }));
    schema(&exclusive, "this is too much work");
    let tall = (0..9).fold(json!({ "type": "object" }), |inner, _| json!({ "anyOf": vec![inner; 4] }));
    schema(&json!({ "oneOf": [tall.clone(), tall] }), "$");
}

#[test]
fn many_names() {
    let names: Vec<String> = (0..3000).map(|i| format!("name{i}")).collect();
    let all: serde_json::Map<_, _> = names.iter().map(|name| (name.clone(), json!({}))).collect();
    schema(&json!({ "properties": all, "patternProperties": all }), "this is too much work");
    let names: Vec<String> = (0..5000).map(|i| format!("name{i}")).collect();
    let backwards: Vec<&String> = names.iter().rev().collect();
    schema(
        &json!({ "allOf": [{ "required": names }, { "required": backwards }] }),
        "$.allOf[1].required: this is too much work",
    );
    // The work is limited, because each of the listed properties (or elements) gets a copy of the other schema's rule
    // for unlisted ones.
    let large = json!({ "enum": vec!["x".repeat(1000); 100] });
    schema(
        &json!({ "allOf": [{ "properties": all }, { "additionalProperties": large }] }),
        "$.allOf[1].additionalProperties: this is too much work",
    );
    schema(
        &json!({ "allOf": [{ "prefixItems": vec![json!({}); 3000] }, { "items": large }] }),
        "$.allOf[1].items: this is too much work",
    );
    // Every source location repeats this long name.
    let long = "n".repeat(1_000_000);
    let refs: Vec<Value> = (0..150).map(|i| json!({ "allOf": [{ "type": "string", "minLength": i }] })).collect();
    let inner: serde_json::Map<_, _> =
        (0..3000).map(|i| (format!("p{i}"), json!({ "allOf": [{ "minLength": i }, refs[i % 150]] }))).collect();
    schema(&json!({ "properties": { long: { "properties": inner } } }), "this is too");
    // Listed values take time in proportion to their number.
    let values: Vec<Value> = (0..300_000).map(|i| json!(i)).collect();
    schema(&json!({ "enum": values, "type": "string" }), "no text can satisfy this");
}

#[test]
fn long_texts() {
    gbnf(&format!("root ::= \"{}\"", "a".repeat(2_000_000)), "the grammar has more than 1048576 bytes");
    // Each rule starts with a call of the next rule, so the rules are processed in one round for each rule.
    let chain: String = (0..40_000).map(|i| format!("r{i} ::= r{}\n", i + 1)).collect();
    gbnf(&format!("root ::= r0\n{chain}r40000 ::= \"a\"?"), "1:1: this is too much work");
    // The location of each name is counted from the previous location and not from the start, so the time is
    // proportional to the length of the text.
    let undefined: String = (0..100_000).map(|i| format!("u{i} ")).collect();
    gbnf(&format!("root ::= {undefined}"), "1:10: the rule `u0` is not defined");
    let class: String = "ab".repeat(250_000);
    let late = format!("root ::= {} [{class}", "\"x\" |\n ".repeat(60_000));
    gbnf(&late, "60001:3: this class of characters is not closed");
}
