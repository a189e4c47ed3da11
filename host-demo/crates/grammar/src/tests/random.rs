//! Random schemas. Compiling must not fail unexpectedly, and every text that a grammar allows must be valid for the
//! schema.

use arenite::grammar::{Grammar, State};
use serde_json::{Value, json};

use super::texts::{Random, random_text};
use crate::{Budget, from_json_schema};

fn pick<'s>(random: &mut Random, from: &[&'s str]) -> &'s str {
    from[random.below(from.len())]
}

pub fn random_schema(random: &mut Random, depth: usize) -> Value {
    let kinds = if depth == 0 { 7 } else { 13 };
    match random.below(kinds) {
        0 => json!({"type": "string", "minLength": random.below(3), "maxLength": 2 + random.below(5)}),
        1 => json!({"type": "integer", "minimum": random.below(50) as i64 - 25, "maximum": 30 + random.below(1000)}),
        2 => {
            json!({"type": "number", "minimum": random.below(9), "exclusiveMaximum": 9.5 + random.below(9) as f64 / 8.0})
        }
        3 => json!({"type": ["boolean", "null"]}),
        4 => json!({"enum": ["a", random.below(9), null, [1, "\n"]]}),
        5 => {
            json!({"type": "string", "pattern": pick(random, &["^[a-c]{1,3}$", "x+y", "^(ab|\\d\\.)*$", "^[^\\s\"]$"])})
        }
        6 => json!({"type": "string", "format": pick(random, &["date", "time", "uuid", "ipv4", "date-time"])}),
        7 => {
            let items = random_schema(random, depth - 1);
            json!({"type": "array", "items": items, "minItems": random.below(2), "maxItems": 1 + random.below(3)})
        }
        8 | 9 => {
            let mut properties = serde_json::Map::new();
            let mut required = Vec::new();
            for name in ["a", "b\"", "long name", "d"].into_iter().take(1 + random.below(4)) {
                properties.insert(name.into(), random_schema(random, depth - 1));
                if random.below(2) == 0 {
                    required.push(name);
                }
            }
            let more = match random.below(3) {
                0 => json!(false),
                1 => json!({"type": "integer"}),
                _ => json!({"type": "null"}),
            };
            let mut object =
                json!({"type": "object", "properties": properties, "required": required, "additionalProperties": more});
            if random.below(3) == 0 {
                object["patternProperties"] = json!({"^[ab]": random_schema(random, 0), "e$": {"type": "integer"}});
            }
            object
        }
        10 | 11 => {
            let each: Vec<Value> = (0..1 + random.below(3)).map(|_| random_schema(random, depth - 1)).collect();
            json!({pick(random, &["anyOf", "anyOf", "oneOf", "allOf"]): each})
        }
        _ => json!({"$ref": "#/$defs/again"}),
    }
}

#[test]
fn whatever_is_allowed_is_valid() {
    let mut random = Random(7);
    let (mut compiled, mut texts) = (0, 0);
    for _ in 0..256 {
        let mut schema = random_schema(&mut random, 3);
        schema["$defs"] = json!({"again": random_schema(&mut random, 1)});
        let table = match from_json_schema(&schema, &Budget::of_command()) {
            Ok(table) => table,
            Err(error) => {
                let error = format!("{error:#}");
                assert!(error.starts_with('$'), "{schema}: {error}");
                continue;
            }
        };
        compiled += 1;
        let grammar = Grammar::new(&table).unwrap();
        let validator = jsonschema::options().should_validate_formats(true).build(&schema).unwrap();
        for _ in 0..8 {
            let Some(text) = random_text(&grammar, &mut random) else { continue };
            let value: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{schema}: {text}: {error}"));
            assert!(validator.is_valid(&value), "{schema}: {text}");
            texts += 1;
        }
    }
    assert!(compiled > 128 && texts > 900, "{compiled} schemas, {texts} texts");
}

#[test]
fn damaged_tables_do_no_harm() {
    let table = from_json_schema(
        &json!({"anyOf": [{}, {"type": "object", "properties": {"a": {"type": "string"}}}]}),
        &Budget::of_command(),
    )
    .unwrap();
    let mut random = Random(3);
    for _ in 0..3000 {
        let mut damaged = table.to_vec();
        for _ in 0..1 + random.below(3) {
            let at = random.below(damaged.len());
            damaged[at] ^= 1 << random.below(8);
        }
        if random.below(8) == 0 {
            damaged.truncate(random.below(damaged.len()));
        }
        if let Ok(grammar) = Grammar::new(&damaged) {
            let mut state = State::new(&grammar);
            for byte in b"{\"a\": [[\"b\", 1.5e3, {\"c\":null}]]}" {
                state.accept(&grammar, [*byte].into_iter());
            }
        }
    }
}
