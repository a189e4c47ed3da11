//! Texts that a grammar accepts, refuses or allows. The tests of calls in `arenite-chat` include this file, too.

use arenite::grammar::{Grammar, State};

/// Returns true if the grammar of a table accepts a text as complete.
pub fn accepts(table: &[u8], text: &str) -> bool {
    let grammar = Grammar::new(table).unwrap();
    let mut state = State::new(&grammar);
    // The text is given in two halves, so that the result is also tested for a text that arrives in pieces.
    let (first, second) = text.as_bytes().split_at(text.len() / 2);
    state.accept(&grammar, first.iter().copied())
        && state.accept(&grammar, second.iter().copied())
        && state.is_complete()
}

pub fn check(what: &str, table: &[u8], good: &[&str], bad: &[&str]) {
    for text in good {
        assert!(accepts(table, text), "{what} must allow {text:?}");
    }
    for text in bad {
        assert!(!accepts(table, text), "{what} must refuse {text:?}");
    }
}

pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) as usize) % n
    }
}

/// Generates a text that the grammar allows. The text consists of random bytes, and ends at random where it may end.
pub fn random_text(grammar: &Grammar<'_>, random: &mut Random) -> Option<String> {
    let mut state = State::new(grammar);
    let mut text = Vec::new();
    for _ in 0..5000 {
        if state.is_complete() && (state.is_over() || random.below(4) == 0) {
            return Some(String::from_utf8(text).unwrap());
        }
        let mut bytes: Vec<u8> = (0..=255).filter(|byte| state.allows(grammar, [*byte].into_iter())).collect();
        assert!(!bytes.is_empty() || state.is_complete(), "a dead end after {:?}", String::from_utf8_lossy(&text));
        // Prefers bytes that end strings and lists, because they would be rare if all bytes were equally likely.
        let ends: Vec<u8> = bytes.iter().copied().filter(|byte| b"\"]},".contains(byte)).collect();
        if !ends.is_empty() && random.below(3) == 0 {
            bytes = ends;
        }
        let byte = bytes[random.below(bytes.len())];
        assert!(state.accept(grammar, [byte].into_iter()));
        text.push(byte);
    }
    None
}
