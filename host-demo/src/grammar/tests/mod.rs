//! What grammars accept and refuse, from the text to the table as the core reads it.

mod combined;
mod gbnf;
mod hostile;
mod masks;
mod random;
mod refusals;
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
