//! Penalties for recent tokens.

use super::Params;
use super::ring::Ring;
use super::scratch::{Word, get};
use crate::TokenId;
use crate::sort::heapsort;

/// The recent tokens, and memory of the same size for sorting these tokens.
pub(super) struct History<'s> {
    ring: Ring<'s>,
    sorted: &'s mut [Word],
}

impl<'s> History<'s> {
    pub fn new(ring: &'s mut [Word], sorted: &'s mut [Word]) -> Self {
        Self { ring: Ring::new(ring), sorted }
    }

    pub fn clear(&mut self) {
        self.ring.clear();
    }

    pub fn push(&mut self, token: TokenId) {
        self.ring.push(token);
    }

    /// Lowers the logits of the tokens in the history.
    ///
    /// The repetition penalty divides positive logits and multiplies all other logits, so that every logit decreases
    /// (Keskar et al., "CTRL", 2019, with llama.cpp's correction). The frequency penalty is subtracted once for each
    /// occurrence of a token, the presence penalty once for each token.
    pub fn apply(&mut self, params: &Params, logits: &mut [f32]) {
        // Sorts the tokens, so that equal tokens are adjacent and can be counted.
        let recent = self.ring.stored();
        let len = recent.len();
        let Some(sorted) = self.sorted.get_mut(..len) else { return };
        for (to, from) in sorted.iter_mut().zip(recent) {
            *to = *from;
        }
        heapsort(sorted, |a, b| u32::from_le_bytes(*a) < u32::from_le_bytes(*b));
        let mut start = 0;
        while start < len {
            let token = get(self.sorted, start);
            let mut end = start + 1;
            while end < len && get(self.sorted, end) == token {
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
