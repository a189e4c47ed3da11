//! Limits the cost of compiling a grammar, because clients of a server may send grammars.
//!
//! Everything that can grow faster than the text of a grammar is counted before it is built. The counts are the same
//! on every machine and bound both memory and time.

use std::cell::Cell;

use anyhow::{Result, bail};
use serde_json::Value;

/// Maximum number of states and transitions of all rules together, before and after determinization.
const MAX_STATES: usize = 1_500_000;
/// Maximum number of steps: states visited, and schema values copied or compared.
const MAX_STEPS: usize = 20_000_000;

/// The remaining budget of one grammar.
pub struct Budget {
    states: Cell<usize>,
    steps: Cell<usize>,
}

impl Budget {
    pub fn new() -> Self {
        Self { states: Cell::new(MAX_STATES), steps: Cell::new(MAX_STEPS) }
    }

    pub fn states(&self, count: usize) -> Result<()> {
        if !take(&self.states, count) {
            bail!(
                "this is too large: more than {MAX_STATES} states and transitions: use smaller limits, or `*` instead of a limit"
            );
        }
        Ok(())
    }

    pub fn steps(&self, count: usize) -> Result<()> {
        if !take(&self.steps, count) {
            bail!(
                "this is too much work: more than {MAX_STEPS} steps: use smaller limits, or fewer overlapping or combined parts"
            );
        }
        Ok(())
    }

    /// Takes the steps for copying a part of a schema.
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

/// Subtracts `count`. If too little is left, sets the rest to 0 and returns false.
fn take(left: &Cell<usize>, count: usize) -> bool {
    let enough = count <= left.get();
    left.set(left.get().saturating_sub(count));
    enough
}
