//! Any GBNF or JSON schema is refused, or the core accepts the table, no text leads to a dead end, and every text
//! that a schema allows is JSON.
#![no_main]

use arbitrary::{Arbitrary, Result, Unstructured};
use arenite::grammar::{Constraint, Grammar};
use arenite_grammar::{Budget, from_gbnf, from_json_schema};
use fuzz::change::TOKENIZER;
use fuzz::list::List;
use fuzz_host::{Atom, Edits, Words};
use libfuzzer_sys::fuzz_target;
use serde_json::{Map, Value, json};

#[derive(Arbitrary, Debug)]
enum Case {
    Gbnf { text: Words<80>, walk: List<u8, 60> },
    Schema { schema: Schema, edits: Edits, walk: List<u8, 60> },
}

#[rustfmt::skip]
const GBNF: &[&str] = &[
    "root", "a", "b", "ws", " ::= ", "\n", " | ", " ", "\"a\"", "\"\\x41\"", "\"\"", "[a-z]", "[^\\n]",
    "[é-\\U0010FFFF]", ".", "*", "+", "?", "{2}", "{0,3}", "{2,}", "{,9}", "{1000}", "(", ")", "<s>", "!<[5]>",
    "<[2]>", "# no\n", "[", "]", "\\", "{", "}", "root ::= ", "a ::= ", "b ::= ", "\"b\" ", "\\u00e9",
];

#[rustfmt::skip]
const PATTERN: &[&str] = &[
    "^", "$", "a", "b", "[a-z]", "[^\"]", ".", "*", "+", "?", "{2}", "{1,3}", "{5,}", "(", ")", "(?:", "|", "\\d",
    "\\w", "\\s", "\\p{L}", "\\u00e9", "é", "\\", "\"", "(?i)", "(?=", "\\b", "[[:alpha:]]",
];

const NAMES: &[&str] = &["a", "b", "", "\"", "é", "x-y"];

#[derive(Debug)]
struct Schema(Value);

impl<'a> Arbitrary<'a> for Schema {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let mut whole = schema(u, 0)?;
        if let (Value::Object(whole), true) = (&mut whole, u.arbitrary()?) {
            whole.insert("$defs".into(), json!({ "a": schema(u, 1)?, "b": schema(u, 1)? }));
        }
        Ok(Self(whole))
    }
}

/// A schema of up to four keywords, mostly ones that fit together.
fn schema(u: &mut Unstructured<'_>, depth: usize) -> Result<Value> {
    if depth > 4 || u.is_empty() {
        return Ok(json!(true));
    }
    let mut map = Map::new();
    for _ in 0..u.int_in_range(0..=4)? {
        let one = |u: &mut Unstructured<'_>| schema(u, depth + 1);
        let several =
            |u: &mut Unstructured<'_>| (0..u.int_in_range(0..=3)?).map(|_| one(u)).collect::<Result<Vec<_>>>();
        let small = |u: &mut Unstructured<'_>| -> Result<Value> { Ok(u.int_in_range(0..=12u8)?.into()) };
        let name = |u: &mut Unstructured<'_>| -> Result<String> { Ok((*u.choose(NAMES)?).to_string()) };
        let members = |u: &mut Unstructured<'_>| -> Result<Value> {
            (0..u.int_in_range(0..=3)?).map(|_| Ok((name(u)?, one(u)?))).collect::<Result<Map<_, _>>>().map(Value::from)
        };
        let atom = |u: &mut Unstructured<'_>| -> Result<Value> { Ok(Atom::arbitrary(u)?.value()) };
        let (key, value) = match u.int_in_range(0..=24)? {
            0..=2 => ("type", json!(u.choose(&["object", "array", "string", "integer", "number", "boolean", "null"])?)),
            3 => ("type", json!([u.choose(&["object", "string"])?, u.choose(&["integer", "null"])?])),
            4 => ("enum", json!([atom(u)?, atom(u)?])),
            5 => ("const", atom(u)?),
            6 => ("properties", members(u)?),
            7 => ("required", json!([name(u)?, name(u)?])),
            8 => ("additionalProperties", one(u)?),
            9 => ("patternProperties", json!({ (Words::<8>::arbitrary(u)?.text(PATTERN)): one(u)? })),
            10 => ("propertyNames", one(u)?),
            11 => (*u.choose(&["minProperties", "maxProperties"])?, small(u)?),
            12 => ("items", one(u)?),
            13 => ("prefixItems", several(u)?.into()),
            14 => (*u.choose(&["minItems", "maxItems", "minLength", "maxLength"])?, small(u)?),
            15 => ("pattern", Words::<16>::arbitrary(u)?.text(PATTERN).into()),
            16 => ("format", json!(u.choose(&["date", "time", "date-time", "uuid", "email", "ipv4", "uri"])?)),
            17 => (*u.choose(&["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"])?, atom(u)?),
            18 => (*u.choose(&["minimum", "maximum", "multipleOf"])?, json!(u.int_in_range(-99..=99)?)),
            19 => ("$ref", json!(u.choose(&["#", "#/$defs/a", "#/$defs/b", "#/properties/a", "a"])?)),
            20 => ("anyOf", several(u)?.into()),
            21 => ("oneOf", several(u)?.into()),
            22 => ("allOf", several(u)?.into()),
            23 => ("not", one(u)?),
            _ => (*u.choose(&["nullable", "uniqueItems", "title", "description", "default", "contains"])?, atom(u)?),
        };
        map.insert(key.into(), value);
    }
    Ok(map.into())
}

/// Generates a text that the grammar allows. Returns None if the text does not end soon enough. Every state on the way
/// must have a continuation.
fn told(table: &[u8], walk: &[u8]) -> Option<Vec<u8>> {
    let grammar = Grammar::new(table).expect("the core takes what the compiler makes");
    let mut constraint = Constraint::new(grammar);
    let mut text = vec![];
    for choice in walk.iter().chain(&[0; 60]) {
        if constraint.is_complete() && choice % 4 == 0 {
            return Some(text);
        }
        // Chooses the first allowed byte from `choice` on. After the end of `walk`, this is the lowest allowed byte,
        // which ends most texts. Each byte has a token, after three control tokens.
        let token = |byte: u8| 3 + u32::from(byte);
        let mut bytes = (0..=255).map(|number| choice.wrapping_add(number));
        let Some(byte) = bytes.find(|byte| constraint.allows(&TOKENIZER, token(*byte))) else {
            let goes_on = (0..TOKENIZER.vocab_len() as u32).any(|id| constraint.allows(&TOKENIZER, id));
            assert!(constraint.is_complete() || goes_on, "a dead end");
            return constraint.is_complete().then_some(text);
        };
        constraint.accept(&TOKENIZER, token(byte)).expect("it is allowed");
        text.push(byte);
    }
    None
}

fuzz_target!(|case: Case| match case {
    Case::Gbnf { text, walk } => {
        let token = |text: &str| ["<unk>", "<s>", "</s>"].iter().position(|token| *token == text).map(|id| id as u32);
        if let Ok(table) = from_gbnf(&text.text(GBNF), &token, &Budget::of_request()) {
            told(&table, &walk);
        }
    }
    Case::Schema { schema, edits, walk } => {
        let schema = edits.document(schema.0);
        if let Some(text) = from_json_schema(&schema, &Budget::of_request()).ok().and_then(|table| told(&table, &walk))
        {
            let read = serde_json::from_slice::<Value>(&text);
            assert!(read.is_ok(), "no JSON: {:?} by {schema}", String::from_utf8_lossy(&text));
        }
    }
});
