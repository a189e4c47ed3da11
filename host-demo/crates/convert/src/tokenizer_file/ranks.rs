//! Byte-level vocabularies whose ids are the ranks of the merges, as in tiktoken's files. The merges themselves are not
//! stored.

use std::collections::HashMap;
use std::ops::Range;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;

/// The vocabulary of tiktoken's file: the tokens in the order of their ranks, and the rank of each token by its bytes.
pub struct Ranks<'t> {
    tokens: &'t [&'t [u8]],
    by_bytes: HashMap<&'t [u8], u32>,
}

impl<'t> Ranks<'t> {
    pub fn new(tokens: &'t [&'t [u8]]) -> Self {
        let mut by_bytes = HashMap::new();
        for (rank, token) in (0..).zip(tokens) {
            by_bytes.entry(*token).or_insert(rank);
        }
        Self { tokens, by_bytes }
    }

    /// Returns the ids of the tokens of `piece`. The whole piece is encoded as one word; no pre-tokenizer splits it.
    pub fn encode(&self, piece: &[u8]) -> Vec<u32> {
        let parts = self.parts(piece, u32::MAX);
        parts.into_iter().filter_map(|part| self.by_bytes.get(&piece[part]).copied()).collect()
    }

    /// Returns the tokens and their ids. A token's text has one character for each byte.
    pub fn texts(&self) -> impl Iterator<Item = (String, u32)> {
        (0..).zip(self.tokens).map(|(id, token)| (text(token), id))
    }

    /// Returns a text for each token that a merge makes: the two merged halves with a space between them.
    pub fn merges(&self) -> Vec<String> {
        let merge = |(rank, token): (u32, &&[u8])| match &self.parts(token, rank)[..] {
            [left, right] => Some(format!("{} {}", text(&token[left.clone()]), text(&token[right.clone()]))),
            _ => None,
        };
        (0..).zip(self.tokens).filter_map(merge).collect()
    }

    /// Splits `piece` into bytes. Then merges two neighbours again and again, always the two that form the token with
    /// the lowest rank, as long as this rank is below `end`.
    fn parts(&self, piece: &[u8], end: u32) -> Vec<Range<usize>> {
        let mut parts: Vec<Range<usize>> = (0..piece.len()).map(|at| at..at + 1).collect();
        loop {
            let merged = |pair: &[Range<usize>]| self.by_bytes.get(&piece[pair[0].start..pair[1].end]).copied();
            let ranks = parts.windows(2).enumerate().filter_map(|(at, pair)| Some((merged(pair)?, at)));
            let Some((_, at)) = ranks.min().filter(|(rank, _)| *rank < end) else { return parts };
            parts[at].end = parts.remove(at + 1).end;
        }
    }
}

/// Returns true for tiktoken's file: each line has a token in base64 and the token's rank.
pub fn is(file: &[u8]) -> bool {
    let first = file.split(|byte| *byte == b'\n').next().and_then(|line| str::from_utf8(line).ok()).unwrap_or_default();
    let parts = first.trim_end().split_once(' ');
    parts.is_some_and(|(token, rank)| BASE64.decode(token).is_ok() && rank.parse::<u32>().is_ok())
}

/// Converts bytes to GPT-2's characters: printable bytes keep their character, and all other bytes get a character from
/// U+0100 on.
pub fn text(token: &[u8]) -> String {
    let is_own = |byte: u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    let character = |byte: u8| match is_own(byte) {
        true => char::from(byte),
        false => char::from_u32(0x100 + (0..byte).filter(|byte| !is_own(*byte)).count() as u32).unwrap_or_default(),
    };
    token.iter().map(|byte| character(*byte)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merges_follow_from_the_ranks() {
        let tokens: [&[u8]; 8] = [b"a", b"b", b"c", b" ", b"ab", b" c", b"", b"ab c"];
        let ranks = Ranks::new(&tokens);
        assert_eq!(ranks.merges(), ["a b", "Ġ c", "ab Ġc"]);
        assert_eq!(ranks.encode(b"abab c"), [4, 7]);
        assert_eq!(ranks.encode(b"bac"), [1, 0, 2]);
    }
}
