//! What grammars accept and refuse, from the text to the table as the core reads it.

mod gbnf;
mod masks;
mod random;
mod schema;

use arenite::grammar::{Grammar, State};

/// Whether a table allows all of this text, and only then an end.
fn accepts(table: &[u8], text: &str) -> bool {
    let grammar = Grammar::new(table).unwrap();
    let mut state = State::new(&grammar);
    // In two halves: where a text is cut must not matter.
    let (first, second) = text.as_bytes().split_at(text.len() / 2);
    state.accept(&grammar, first.iter().copied())
        && state.accept(&grammar, second.iter().copied())
        && state.is_complete()
}

fn check(what: &str, table: &[u8], good: &[&str], bad: &[&str]) {
    for text in good {
        assert!(accepts(table, text), "{what} must allow {text:?}");
    }
    for text in bad {
        assert!(!accepts(table, text), "{what} must refuse {text:?}");
    }
}

/// A table that is made of a changed grammar is one that the core takes.
#[test]
fn changed_grammars() {
    let gbnf = br#"root ::= object | "[" ws (value ("," ws value)*)? "]" {1,3}
object ::= "{" [a-z]+ ":" [^"\\x7F\u00e9]* value? "}" # c
value ::= object | <think> | !<end> | "\"" ( [0-9]{2,5} | "x"+ ) "\n"
ws ::= [ \t]*"#;
    let schema = br##"{"type": "object", "properties": {"a": {"type": "integer", "minimum": 3, "maximum": 900}, "b": {"$ref": "#/$defs/n"},
        "c": {"type": "string", "pattern": "^[a-f]{2,4}(x|y)*$", "maxLength": 9}, "d": {"enum": ["e", 1, null, [2]]},
        "e": {"type": "array", "items": {"type": "number", "multipleOf": 0.25}, "minItems": 1, "maxItems": 3}},
        "required": ["a"], "additionalProperties": {"anyOf": [{"type": "boolean"}, {"format": "date"}]},
        "$defs": {"n": {"type": ["null", "object"], "properties": {"n": {"$ref": "#/$defs/n"}}}}}"##;
    crate::changed::all(&[gbnf, schema], |bytes| {
        let text = String::from_utf8_lossy(bytes);
        if let Ok(table) = super::from_gbnf(&text, &|token| Some(token.len() as u32)) {
            Grammar::new(&table).unwrap();
        }
        if let Ok(table) = serde_json::from_slice(bytes)
            .map_err(anyhow::Error::from)
            .and_then(|schema| super::from_json_schema(&schema))
        {
            Grammar::new(&table).unwrap();
        }
    });
}
