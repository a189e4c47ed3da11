//! Tests what grammars accept and refuse, from text to table, with the core's reader.

mod calls;
mod combined;
mod gbnf;
mod hostile;
mod masks;
mod random;
mod refusals;
mod schema;

use arenite::grammar::{Grammar, State};

/// Returns true if a table accepts a text and the text may end there.
fn accepts(table: &[u8], text: &str) -> bool {
    let grammar = Grammar::new(table).unwrap();
    let mut state = State::new(&grammar);
    // The text comes in two halves: the position of the cut must not matter.
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
