//! Limits the cost of compiling a grammar, because clients of a server may send grammars.
//!
//! Everything that can grow faster than the text of a grammar is counted before it is built. The counts are the same
//! on every machine and bound both memory and time.

use std::cell::Cell;

use anyhow::{Result, bail};
use serde_json::Value;

/// The remaining budget of one grammar.
pub struct Budget {
    /// Number of states and transitions that all rules of the grammar may have together. They are counted both before
    /// and after automata are made deterministic.
    states: Part,
    /// Number of steps: states visited, and schema values copied or compared.
    steps: Part,
}

/// A limit, and what is left of it.
struct Part {
    most: usize,
    left: Cell<usize>,
}

impl Part {
    fn new(most: usize) -> Self {
        Self { most, left: Cell::new(most) }
    }

    /// Takes `count` out of this part of the budget. If less than `count` is left, sets the part to 0 and returns
    /// false.
    fn take(&self, count: usize) -> bool {
        let left = self.left.get();
        self.left.set(left.saturating_sub(count));
        count <= left
    }
}

impl Budget {
    /// The budget of a grammar on the command line: about two seconds.
    pub fn of_command() -> Self {
        Self { states: Part::new(1_500_000), steps: Part::new(20_000_000) }
    }

    /// The budget of a grammar in a request: some hundredths of a second.
    pub fn of_request() -> Self {
        Self { states: Part::new(300_000), steps: Part::new(1_000_000) }
    }

    /// True if more was needed than the budget has.
    pub fn is_used_up(&self) -> bool {
        [&self.states, &self.steps].iter().any(|part| part.left.get() == 0)
    }

    /// Restores the whole budget.
    pub fn renew(&self) {
        [&self.states, &self.steps].iter().for_each(|part| part.left.set(part.most));
    }

    /// Charges the budget with `count` states.
    ///
    /// # Errors
    ///
    /// The budget has fewer states.
    pub fn states(&self, count: usize) -> Result<()> {
        if !self.states.take(count) {
            bail!(
                "this is too large: more than {} states and transitions: use smaller limits or a smaller multipleOf, or `*` instead of a limit",
                self.states.most
            );
        }
        Ok(())
    }

    /// Charges the budget with `count` steps.
    ///
    /// # Errors
    ///
    /// The budget has fewer steps.
    pub fn steps(&self, count: usize) -> Result<()> {
        if !self.steps.take(count) {
            bail!(
                "this is too much work: more than {} steps: use smaller limits, or fewer overlapping or combined parts",
                self.steps.most
            );
        }
        Ok(())
    }

    /// Takes the steps for copying a part of a schema.
    ///
    /// # Errors
    ///
    /// The budget has fewer steps.
    pub fn copy(&self, value: &Value) -> Result<()> {
        self.copies(value, 1)
    }

    /// Charges the budget with the steps that it takes to copy a part of a schema `times` times.
    ///
    /// # Errors
    ///
    /// The budget has fewer steps.
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
