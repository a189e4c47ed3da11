//! DRY, "don't repeat yourself": lowers the logits of tokens that would continue a repetition of recent tokens. The
//! longer the repetition, the lower the logits (p-e-w, oobabooga/text-generation-webui pull request 5677; limits and
//! breakers as in llama.cpp).

use super::more::More;
use super::ring::Ring;
use super::scratch::Word;
use crate::TokenId;
use crate::sort::heapsort;

/// Breakers of DRY: sequences of tokens at which a repetition ends, such as line breaks and quotation marks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Breakers<'b> {
    /// The sequences, sorted by their first tokens.
    heads: &'b [Breaker],
    tails: &'b [TokenId],
}

/// A sequence of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Breaker {
    /// The first token.
    pub head: TokenId,
    /// Where the breaker's other tokens begin, in the tails of [`Breakers::new`].
    pub start: u32,
    /// Number of tokens after the first one.
    pub len: u32,
}

impl<'b> Breakers<'b> {
    /// Creates the list of sequences that interrupt repetitions. A sequence begins with one of `heads`, and its other
    /// tokens are in `tails`. `None` if the heads are not sorted by their first tokens, or if a head's other tokens are
    /// not all in `tails`.
    pub fn new(heads: &'b [Breaker], tails: &'b [TokenId]) -> Option<Self> {
        let is_inside = |head: &Breaker| u64::from(head.start) + u64::from(head.len) <= tails.len() as u64;
        let is_right = heads.is_sorted_by_key(|head| head.head) && heads.iter().all(is_inside);
        is_right.then_some(Self { heads, tails })
    }

    /// The tails of the sequences that begin with `head`.
    fn after(&self, head: TokenId) -> impl Iterator<Item = &'b [TokenId]> + use<'b> {
        let first = self.heads.partition_point(|breaker| breaker.head < head);
        let (heads, tails) = (self.heads.get(first..).unwrap_or(&[]), self.tails);
        let tail = |breaker: &Breaker| {
            let rest = tails.get(breaker.start as usize..)?;
            rest.get(..breaker.len as usize)
        };
        heads.iter().take_while(move |breaker| breaker.head == head).filter_map(tail)
    }
}

/// What DRY needs: the recent tokens, and memory in which it finds their repetitions.
pub(super) struct Dry<'s> {
    pub ring: Ring<'s>,
    pub breakers: Breakers<'s>,
    /// A pair for each recent token.
    repeats: &'s mut [[Word; 2]],
}

impl<'s> Dry<'s> {
    pub fn new(ring: &'s mut [Word], repeats: &'s mut [[Word; 2]]) -> Self {
        Self { ring: Ring::new(ring), breakers: Breakers::default(), repeats }
    }

    /// Returns the penalties of tokens that would continue a repetition, in the order of tokens.
    pub fn penalties(&mut self, more: &More) -> impl Iterator<Item = (TokenId, f32)> + use<'_> {
        let found = self.repeats(more.dry_allowed_length as usize);
        let (allowed, multiplier, base) = (more.dry_allowed_length, more.dry_multiplier, more.dry_base);
        // The exponent is limited, because with a longer repetition the power would be infinite.
        let limit = f64::from(f32::MAX_EXP) * core::f64::consts::LN_2 / libm::log(base.into());
        let longest = if base > 1.000001 { limit as u32 } else { 0 };
        let mut last = None;
        found.iter().filter_map(move |[token, len]| {
            let (token, len) = (u32::from_le_bytes(*token), u32::from_le_bytes(*len));
            // The first pair of a token has its longest repetition.
            if last.replace(token) == Some(token) {
                return None;
            }
            let more = len.saturating_sub(allowed);
            let more = if longest > 0 { more.min(longest) } else { more };
            Some((token, (f64::from(multiplier) * libm::pow(base.into(), more.into())) as f32))
        })
    }

    /// Returns pairs of a token and a length: earlier in the text, the token followed a copy of the last tokens, and
    /// the copy has this length, at least `allowed`. The pairs are sorted by token; of the same token, longer
    /// repetitions come first.
    fn repeats(&mut self, allowed: usize) -> &[[Word; 2]] {
        let len = self.ring.len();
        let limit = self.limit();
        if len <= allowed || limit < allowed {
            return &[];
        }
        self.matches();
        let Self { ring, breakers, repeats, .. } = self;
        // Moves the pairs to keep to the front.
        let mut count = 0;
        for back in 1..len {
            let [_, matched] = repeats.get(back).copied().unwrap_or_default();
            let matched = (u32::from_le_bytes(matched) as usize).min(limit);
            let token = ring.back(back - 1);
            if matched >= allowed
                && !breakers.after(token).any(<[_]>::is_empty)
                && let Some(place) = repeats.get_mut(count)
            {
                *place = [token.to_le_bytes(), (matched as u32).to_le_bytes()];
                count += 1;
            }
        }
        let found = repeats.get_mut(..count).unwrap_or(&mut []);
        heapsort(found, |[a, long], [b, short]| {
            let (a, b) = (u32::from_le_bytes(*a), u32::from_le_bytes(*b));
            a < b || a == b && u32::from_le_bytes(*long) > u32::from_le_bytes(*short)
        });
        found
    }

    /// Maximum length of a repetition. It is the number of tokens after the last breaker, because a repetition cannot
    /// include a breaker.
    fn limit(&self) -> usize {
        let len = self.ring.len();
        for back in 0..len {
            let is_here = |tail: &&[TokenId]| {
                tail.len() <= back && (1..).zip(*tail).all(|(offset, token)| self.ring.back(back - offset) == *token)
            };
            if let Some(longest) = self.breakers.after(self.ring.back(back)).filter(is_here).map(<[_]>::len).max() {
                return back - longest;
            }
        }
        len
    }

    /// Computes how long a repetition ends at each position `i`: the number of tokens before `i` that equal the last
    /// tokens of the text, counted backwards. Stores it as the second number of pair `i`. The Z-algorithm takes time
    /// proportional to the number of tokens.
    fn matches(&mut self) {
        let Self { ring, repeats, .. } = self;
        let len = ring.len();
        let (mut left, mut right) = (0, 0);
        for back in 1..len {
            let inside = usize::saturating_sub(right, back);
            let [_, known] = repeats.get(back - left).copied().unwrap_or_default();
            let mut matched = (u32::from_le_bytes(known) as usize).min(inside);
            if back >= right || matched == inside {
                while back + matched < len && ring.back(matched) == ring.back(back + matched) {
                    matched += 1;
                }
                (left, right) = (back, back + matched);
            }
            if let Some([_, place]) = repeats.get_mut(back) {
                *place = (matched as u32).to_le_bytes();
            }
        }
    }
}
