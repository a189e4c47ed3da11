//! Penalties for recent tokens.

use super::Params;
use super::scratch::{Word, get, set};
use crate::TokenId;
use crate::sort::heapsort;

/// The most recent tokens in a ring buffer.
pub(super) struct History<'s> {
    ring: &'s mut [Word],
    /// Scratch of the same size for sorting.
    sorted: &'s mut [Word],
    /// Index of the next token.
    next: usize,
    /// Number of tokens stored.
    len: usize,
}

impl<'s> History<'s> {
    pub fn new(ring: &'s mut [Word], sorted: &'s mut [Word]) -> Self {
        Self { ring, sorted, next: 0, len: 0 }
    }

    pub fn clear(&mut self) {
        (self.next, self.len) = (0, 0);
    }

    pub fn push(&mut self, token: TokenId) {
        if self.ring.is_empty() {
            return;
        }
        set(self.ring, self.next, token);
        self.next = if self.next + 1 < self.ring.len() { self.next + 1 } else { 0 };
        self.len = (self.len + 1).min(self.ring.len());
    }

    /// Lowers the logits of the tokens in the history.
    ///
    /// The repetition penalty divides positive logits and multiplies others, so that all decrease (Keskar et al.,
    /// "CTRL", 2019, with llama.cpp's correction). The frequency penalty is subtracted once for each occurrence of a
    /// token, the presence penalty once for each token.
    pub fn apply(&mut self, params: &Params, logits: &mut [f32]) {
        // Sorts the tokens, so that equal tokens are adjacent and can be counted.
        let (Some(recent), Some(sorted)) = (self.ring.get(..self.len), self.sorted.get_mut(..self.len)) else {
            return;
        };
        for (to, from) in sorted.iter_mut().zip(recent) {
            *to = *from;
        }
        heapsort(sorted, |a, b| u32::from_le_bytes(*a) < u32::from_le_bytes(*b));
        let mut start = 0;
        while start < self.len {
            let token = get(self.sorted, start);
            let mut end = start + 1;
            while end < self.len && get(self.sorted, end) == token {
                end += 1;
            }
            if let Some(logit) = logits.get_mut(token as usize) {
                if *logit > 0.0 {
                    *logit /= params.repeat_penalty;
                } else {
                    *logit *= params.repeat_penalty;
                }
                *logit -= (end - start) as f32 * params.frequency_penalty + params.presence_penalty;
            }
            start = end;
        }
    }
}
