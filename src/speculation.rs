//! Speculative decoding: guessed tokens are run in one pass with the last one, and kept as far as they were right.
//!
//! A guess changes nothing in the result: every token is still chosen from the logits that it would have had alone,
//! which have the same bits in a longer pass. It costs a few rows of a pass that is bound by reading the weights.
//!
//! [`lookup`] guesses from the text itself (Saxena, "Prompt Lookup Decoding", 2023); a smaller model of the same
//! vocabulary guesses better and costs more (Leviathan et al., "Fast Inference from Transformers via Speculative
//! Decoding", 2022).

use crate::TokenId;

/// Ends of this many tokens are looked for, the longest first.
const LONGEST: usize = 4;
/// A single token comes again too often by chance.
const SHORTEST: usize = 2;

/// What followed when the text had the same end before: at most `most` tokens, none if it never had.
///
/// Of several places the latest counts that `most` tokens follow, so that a text that goes round in short circles is
/// guessed as far as one likes; else the first. The time is in proportion to the length of the text.
///
/// # Examples
///
/// ```
/// use arenite::speculation::lookup;
///
/// assert_eq!(lookup(&[1, 2, 3, 4, 9, 1, 2], 2), [3, 4]);
/// assert_eq!(lookup(&[1, 2, 3], 2), []);
/// ```
pub fn lookup(text: &[TokenId], most: usize) -> &[TokenId] {
    for len in (SHORTEST..=LONGEST).rev() {
        let Some((before, end)) = text.len().checked_sub(len).and_then(|at| text.split_at_checked(at)) else {
            continue;
        };
        // A place may overlap the end, but has something that follows it within the text.
        let mut places = (0..before.len()).rev().filter(|at| text.get(*at..*at + len) == Some(end));
        let place = places.clone().find(|at| text.len() - at - len >= most).or_else(|| places.next_back());
        if let Some(at) = place {
            let follows = text.get(at + len..).unwrap_or(&[]);
            return follows.get(..most.min(follows.len())).unwrap_or(&[]);
        }
    }
    &[]
}

#[cfg(test)]
mod tests {
    use super::lookup;

    #[test]
    fn the_longest_end_counts_and_the_latest_with_enough_after_it() {
        assert_eq!(lookup(&[1, 2, 7, 5, 1, 2, 8, 1, 2], 1), [8]);
        assert_eq!(lookup(&[9, 1, 2, 7, 5, 1, 2, 8, 9, 1, 2], 3), [7, 5, 1]);
        assert_eq!(lookup(&[3, 3, 3, 3], 4), [3]);
        assert_eq!(lookup(&[8, 3, 4, 3, 4, 3, 4, 3, 4], 3), [3, 4, 3]);
        assert_eq!(lookup(&[8, 3, 4, 3, 4, 3, 4], 9), [3, 4]);
        assert_eq!(lookup(&[1, 2, 1, 2], 0), []);
        assert_eq!(lookup(&[], 3), []);
        assert_eq!(lookup(&[4, 5, 6, 5], 3), []);
    }
}
