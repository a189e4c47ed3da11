//! Numbers of grammars.

use std::collections::VecDeque;
use std::sync::Arc;

use arenite_grammar::Table;

/// Assigns a number to each grammar, under which the grammar's masks are cached. Remembers only recently used grammars.
#[derive(Default)]
pub struct Grammars {
    known: VecDeque<(u32, Arc<Table>)>,
    last: u32,
}

impl Grammars {
    /// The number of a grammar. Numbers are never reused.
    pub fn number(&mut self, table: &Arc<Table>) -> u32 {
        const MOST: usize = 16;
        if let Some(at) = self.known.iter().position(|(_, known)| known == table)
            && let Some(found) = self.known.remove(at)
        {
            self.known.push_back(found);
        } else {
            self.last += 1;
            self.known.push_back((self.last, table.clone()));
            if self.known.len() > MOST {
                self.known.pop_front();
            }
        }
        self.known.back().map_or(0, |(number, _)| *number)
    }
}
