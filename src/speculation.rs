//! Speculative decoding: runs guessed tokens in one pass with the last token, and keeps the correct guesses.
//!
//! Guesses never change the result. Every token is chosen from the same logits as without guesses, because a pass with
//! more tokens computes the same bits. A guess only costs additional rows in a pass that is limited by reading the
//! weights.
//!
//! [`lookup`] guesses from the text itself (Saxena, "Prompt Lookup Decoding", 2023). A smaller model with the same
//! vocabulary guesses better but costs more (Leviathan et al., "Fast Inference from Transformers via Speculative
//! Decoding", 2022).

use crate::TokenId;

/// Maximum number of last tokens of the text that [`lookup`] searches for in the earlier text. It searches for the
/// longest suffix first.
const LONGEST: usize = 4;
/// Minimum number of last tokens that [`lookup`] searches for in the earlier text. It is not 1, because a single token
/// repeats too often by chance.
const SHORTEST: usize = 2;

/// Finds an earlier occurrence of the text's suffix and returns the tokens after it: at most `most` tokens, and no
/// tokens if there is no earlier occurrence.
///
/// If there are several occurrences, the result follows the last occurrence that has at least `most` tokens after it.
/// This way a text that repeats with a short period is guessed to the full length. If no occurrence has `most` tokens
/// after it, the result follows the first occurrence. Time is linear in the length of the text.
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
        // The earlier occurrence may overlap the suffix that is searched for, but at least one token must follow it.
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
    fn the_longest_suffix_and_its_last_long_occurrence() {
        assert_eq!(lookup(&[1, 2, 7, 5, 1, 2, 8, 1, 2], 1), [8]);
        assert_eq!(lookup(&[9, 1, 2, 7, 5, 1, 2, 8, 9, 1, 2], 3), [7, 5, 1]);
        assert_eq!(lookup(&[3, 3, 3, 3], 4), [3]);
        assert_eq!(lookup(&[8, 3, 4, 3, 4, 3, 4, 3, 4], 3), [3, 4, 3]);
        assert_eq!(lookup(&[8, 3, 4, 3, 4, 3, 4], 9), [3, 4]);
        assert!(lookup(&[1, 2, 1, 2], 0).is_empty());
        assert!(lookup(&[], 3).is_empty());
        assert!(lookup(&[4, 5, 6, 5], 3).is_empty());
    }
}
