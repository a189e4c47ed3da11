//! What it may cost to compile a grammar: clients of a server send grammars.
//!
//! Everything that grows faster than the text of a grammar is counted before it is made: what is counted is the same on
//! every machine, and it bounds memory and time.

use std::cell::Cell;

use anyhow::{Result, bail};
use serde_json::Value;

/// Most states of automata and ways between them, of all rules together, before and after they are made deterministic.
const MOST_STATES: usize = 1_500_000;
/// Most steps: states looked at, values of schemas copied or compared.
const MOST_STEPS: usize = 20_000_000;

/// What is left for one grammar.
pub struct Budget {
    states: Cell<usize>,
    steps: Cell<usize>,
}

impl Budget {
    pub fn new() -> Self {
        Self { states: Cell::new(MOST_STATES), steps: Cell::new(MOST_STEPS) }
    }

    pub fn states(&self, count: usize) -> Result<()> {
        if !take(&self.states, count) {
            bail!(
                "this is too large: more than {MOST_STATES} states and ways between them: use smaller limits, or `*` instead of a limit"
            );
        }
        Ok(())
    }

    pub fn steps(&self, count: usize) -> Result<()> {
        if !take(&self.steps, count) {
            bail!(
                "this is too much work: more than {MOST_STEPS} steps: use smaller limits, and fewer parts that overlap or are combined"
            );
        }
        Ok(())
    }

    /// Steps for a copy of a part of a schema.
    pub fn copy(&self, value: &Value) -> Result<()> {
        self.copies(value, 1)
    }

    pub fn copies(&self, value: &Value, times: usize) -> Result<()> {
        let mut left = vec![value];
        while let Some(value) = left.pop() {
            let bytes = match value {
                Value::Object(members) => {
                    left.extend(members.values());
                    members.keys().map(String::len).sum()
                }
                Value::Array(values) => {
                    left.extend(values);
                    0
                }
                Value::String(text) => text.len(),
                _ => 0,
            };
            self.steps(times.saturating_mul(1 + bytes))?;
        }
        Ok(())
    }
}

/// Once it is not enough, nothing is left.
fn take(left: &Cell<usize>, count: usize) -> bool {
    let enough = count <= left.get();
    left.set(left.get().saturating_sub(count));
    enough
}
