//! The budget of thoughts: the maximum number of tokens of all thoughts in an answer. When the budget is used up, the
//! tokens that close the thought replace the sampled tokens.

use std::collections::VecDeque;

use anyhow::{Context, Result};
use arenite::TokenId;
use arenite::grammar::Constraint;
use arenite::tokenizer::{Encode, Tokenizer};

use super::reader::Reader;
use arenite_text as text;

/// Counts the tokens of an answer's thoughts, and closes an open thought when the budget is used up. The prompt, the
/// start of the answer and messages in channels can open thoughts.
#[derive(Clone, Debug)]
pub struct ThoughtBudget {
    reader: Reader,
    /// Number of tokens that thoughts may still have.
    left: usize,
    /// True if the budget has closed a thought.
    has_closed: bool,
    /// Tokens that are written next, regardless of the logits.
    forced: VecDeque<TokenId>,
}

impl ThoughtBudget {
    /// Creates the budget of an answer. `reader` must not have read any of the answer yet.
    pub fn new(reader: Reader, tokens: usize) -> Self {
        Self { reader, left: tokens, has_closed: false, forced: VecDeque::new() }
    }

    /// Returns true while a thought is open.
    pub fn is_thinking(&self) -> bool {
        self.reader.is_thinking()
    }

    /// Uses up the budget, so that the open thought is closed.
    pub fn close(&mut self) {
        self.left = 0;
    }

    /// Once the budget is used up, returns the next token of the text that closes the thought. Before that, returns
    /// `None`. A token that the grammar `constraint` forbids is not forced.
    ///
    /// # Errors
    ///
    /// The vocabulary cannot encode the text that closes the thought.
    pub fn forced(
        &mut self,
        tokenizer: &Tokenizer<'_, '_>,
        constraint: Option<&Constraint<'_>>,
    ) -> Result<Option<TokenId>> {
        if self.left == 0 && self.forced.is_empty() && self.reader.is_thinking() {
            let how = Encode { add_special: false, parse_special: true };
            let closing = self.reader.closing(self.has_closed);
            let ids = text::encode(tokenizer, closing.as_bytes(), how);
            self.forced.extend(ids.with_context(|| format!("cannot close the thought with {closing:?}"))?);
            self.has_closed = true;
        }
        let next = self.forced.pop_front();
        if next.zip(constraint).is_some_and(|(token, constraint)| !constraint.allows(tokenizer, token)) {
            self.forced.clear();
            return Ok(None);
        }
        Ok(next)
    }

    /// Counts a token of the answer by its text. Returns false if the answer can contain no further thought.
    pub fn push(&mut self, piece: &str) -> bool {
        if self.reader.is_thinking() {
            self.left = self.left.saturating_sub(1);
        }
        self.reader.push(piece, &mut Vec::new());
        !self.forced.is_empty() || self.reader.may_think()
    }
}
