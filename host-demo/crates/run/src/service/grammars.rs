//! Compiles the grammars of requests, and caches them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use arenite::tokenizer::Tokenizer;
use serde_json::Value;

use arenite_grammar::{self as grammar, Budget, Piece, Table};
use arenite_text as text;

/// Maximum size of the cache in bytes.
const MOST_BYTES: usize = 16 << 20;
/// Size in bytes above which a source is not cached. A cached source takes memory, because it is the key of its
/// grammar.
const LARGE: usize = 1 << 20;

/// The source of a grammar.
pub enum Source<'s> {
    Gbnf(&'s str, &'s Tokenizer<'s, 's>),
    Schema(&'s Value),
    /// A regular expression for the whole text.
    Pattern(&'s str),
    Pieces(&'s Piece),
}

impl Source<'_> {
    /// A key that differs for every source.
    fn key(&self) -> String {
        match self {
            Self::Gbnf(text, _) => format!("g{text}"),
            Self::Schema(schema) => format!("s{schema}"),
            Self::Pattern(pattern) => format!("r{pattern}"),
            Self::Pieces(piece) => format!("p{piece:?}"),
        }
    }

    fn compile(&self, budget: &Budget) -> anyhow::Result<Table> {
        match self {
            Self::Gbnf(gbnf, tokenizer) => grammar::from_gbnf(gbnf, &|text| text::token(tokenizer, text), budget),
            Self::Schema(schema) => grammar::from_json_schema(schema, budget),
            Self::Pattern(pattern) => grammar::from_pattern(pattern, budget),
            Self::Pieces(piece) => grammar::from_pieces(piece, budget),
        }
    }
}

/// Caches compiled grammars by their sources. The most recently used grammar is at the end.
pub struct Grammars {
    known: Mutex<VecDeque<(String, Arc<Table>)>>,
    budget: fn() -> Budget,
    most_bytes: usize,
}

impl Grammars {
    /// Creates an empty cache. `budget` limits each grammar.
    pub fn new(budget: fn() -> Budget) -> Self {
        Self { known: Mutex::default(), budget, most_bytes: MOST_BYTES }
    }

    /// Returns the compiled table of a grammar; takes it from the cache if possible.
    pub fn table(&self, source: &Source<'_>) -> anyhow::Result<Arc<Table>> {
        let key = source.key();
        let lock = || self.known.lock().unwrap_or_else(|broken| broken.into_inner());
        {
            let mut known = lock();
            if let Some(at) = known.iter().position(|(known, _)| *known == key)
                && let Some(found) = known.remove(at)
            {
                let table = found.1.clone();
                known.push_back(found);
                return Ok(table);
            }
        }
        let table = Arc::new(source.compile(&(self.budget)())?);
        if key.len() <= LARGE {
            let mut known = lock();
            known.push_back((key, table.clone()));
            while known.iter().map(|(key, table)| key.len() + table.len()).sum::<usize>() > self.most_bytes {
                known.pop_front();
            }
        }
        Ok(table)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_grammar_is_compiled_once() {
        let grammars = Grammars { most_bytes: 40_000, ..Grammars::new(Budget::of_request) };
        let schema = |max: usize| json!({ "type": "string", "maxLength": max });
        let table = |max| grammars.table(&Source::Schema(&schema(max))).unwrap();
        let first = table(5);
        assert!(Arc::ptr_eq(&first, &table(5)));
        let piece = Piece::Schema(schema(5));
        assert!(!Arc::ptr_eq(&first, &grammars.table(&Source::Pieces(&piece)).unwrap()));
        (6..30).for_each(|max| _ = table(max));
        let bytes: usize = grammars.known.lock().unwrap().iter().map(|(key, table)| key.len() + table.len()).sum();
        assert!((20_000..40_000).contains(&bytes) && !Arc::ptr_eq(&first, &table(5)), "{bytes}");
    }
}
