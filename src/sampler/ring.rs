//! The most recent tokens in a ring buffer.

use super::scratch::{Word, set};
use crate::TokenId;

/// The most recent tokens, as many as the buffer has words.
pub(super) struct Ring<'s> {
    words: &'s mut [Word],
    /// Index of the next token.
    next: usize,
    /// Number of tokens stored.
    len: usize,
}

impl<'s> Ring<'s> {
    pub fn new(words: &'s mut [Word]) -> Self {
        Self { words, next: 0, len: 0 }
    }

    pub fn clear(&mut self) {
        (self.next, self.len) = (0, 0);
    }

    pub fn push(&mut self, token: TokenId) {
        if self.words.is_empty() {
            return;
        }
        set(self.words, self.next, token);
        self.next = if self.next + 1 < self.words.len() { self.next + 1 } else { 0 };
        self.len = (self.len + 1).min(self.words.len());
    }

    /// The stored tokens, in no particular order.
    pub fn stored(&self) -> &[Word] {
        self.words.get(..self.len).unwrap_or(&[])
    }
}

#[cfg(feature = "samplers")]
impl Ring<'_> {
    /// Number of tokens stored.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the recent token that is `back` places before the last one.
    pub fn back(&self, back: usize) -> TokenId {
        let last = self.next.checked_sub(back + 1).unwrap_or((self.next + self.words.len()).saturating_sub(back + 1));
        super::scratch::get(self.words, last)
    }
}
