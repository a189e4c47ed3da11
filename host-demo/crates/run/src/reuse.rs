//! Reuses the tokens after a change in a prompt (`--cache-reuse`). An earlier conversation has the same tokens at other
//! positions.

use std::collections::{HashMap, VecDeque};

use anyhow::Result;
use arenite::{Context, Engine, Session, TokenId};

use crate::eyes::Shown;
use arenite_text::shared;

/// Equal tokens, which begin at position `at` of a prompt and at position `from` of an earlier conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    pub at: usize,
    pub from: usize,
    pub len: usize,
}

/// Finds blocks of at least `least` equal tokens after the first `start` tokens of both texts. The blocks have the same
/// order in both texts. The prompt's last token is in no block, because its logits are needed.
pub fn blocks(prompt: &[TokenId], earlier: &[TokenId], start: usize, least: usize) -> Vec<Block> {
    let mut found = Vec::new();
    let end = prompt.len().saturating_sub(1);
    if least == 0 || start + least > end.min(earlier.len()) {
        return found;
    }
    let mut places: HashMap<&[TokenId], Vec<usize>> = HashMap::new();
    for (from, run) in earlier.windows(least).enumerate().skip(start) {
        places.entry(run).or_default().push(from);
    }
    let (mut at, mut next) = (start, start);
    while let Some(run) = prompt[..end].get(at..at + least) {
        let places = places.get(run).map_or(&[][..], Vec::as_slice);
        let Some(&from) = places.get(places.partition_point(|from| *from < next)) else {
            at += 1;
            continue;
        };
        let len = shared(&prompt[at..end], &earlier[from..]);
        found.push(Block { at, from, len });
        (at, next) = (at + len, from + len);
    }
    found
}

/// Number of tokens in blocks.
pub fn sum(blocks: &[Block]) -> usize {
    blocks.iter().map(|block| block.len).sum()
}

/// Rewinds a session to the common prefix of its tokens and a prompt, without the prompt's last token, whose logits are
/// needed, and without a part of a picture. Returns the length of the prefix. Also returns the later tokens that the
/// prompt has at other positions, in blocks of at least `least` tokens.
///
/// # Errors
///
/// The session fails.
pub fn rewind_to(
    session: &mut Session<'_, '_>,
    known: &[TokenId],
    (prompt, shown): (&[TokenId], &Shown),
    least: usize,
) -> Result<(usize, Option<Donor>)> {
    let (engine, context) = session.parts();
    let read = &known[..known.len().min(context.position())];
    let is_on = least > 0 && !read.is_empty() && shown.is_empty() && engine.can_reuse();
    let donor = if is_on { Some(engine.fork(context)?) } else { None };
    let same = shared(prompt, known);
    let mut kept = shown.whole(same.min(session.position()).min(prompt.len().saturating_sub(1)));
    if session.rewind(kept).is_err() {
        kept = 0; // a sliding window no longer has the earlier positions
        session.rewind(0)?;
    }
    let donor = donor.map(|context| Donor::new(context, blocks(prompt, read, kept, least)));
    Ok((kept, donor))
}

/// Where a prompt can take tokens from without computing them again: a copy of an earlier conversation's context, and
/// the blocks of its tokens that will be reused.
pub struct Donor {
    pub context: Context,
    blocks: VecDeque<Block>,
}

impl Donor {
    pub fn new(context: Context, blocks: Vec<Block>) -> Self {
        Self { context, blocks: blocks.into() }
    }

    /// The position at which the next block is reused.
    pub fn next(&self) -> Option<usize> {
        self.blocks.front().map(|block| block.at)
    }

    /// Appends the blocks that begin at the context's current position. Returns the number of appended tokens. If there
    /// is no free page, the tokens are read instead.
    pub fn give(&mut self, engine: &mut Engine<'_, '_>, context: &mut Context) -> usize {
        let before = context.position();
        while let Some(&Block { at, from, len }) = self.blocks.front().filter(|block| block.at <= context.position()) {
            self.blocks.pop_front();
            if at == context.position()
                && let Err(error) = engine.reuse(context, &self.context, from..from + len)
            {
                log::debug!("{len} tokens are read again: {error}");
                self.blocks.clear();
            }
        }
        context.position() - before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(prompt: &[TokenId], earlier: &[TokenId], start: usize, least: usize) -> Vec<(usize, usize, usize)> {
        blocks(prompt, earlier, start, least).iter().map(|Block { at, from, len }| (*at, *from, *len)).collect()
    }

    #[test]
    fn blocks_after_changes() {
        let earlier: Vec<TokenId> = (0..20).collect();
        // A removed part, a changed line, and both.
        assert_eq!(found(&[&earlier[..5], &earlier[9..]].concat(), &earlier, 5, 4), [(5, 9, 10)]);
        assert_eq!(found(&[&earlier[..5], &[99; 3], &earlier[7..]].concat(), &earlier, 5, 4), [(8, 7, 12)]);
        let prompt = [&earlier[..2], &[99], &earlier[3..8], &[98, 97], &earlier[12..]].concat();
        assert_eq!(found(&prompt, &earlier, 2, 4), [(3, 3, 5), (10, 12, 7)]);
        assert_eq!(found(&prompt, &earlier, 2, 6), [(10, 12, 7)]);
        // Runs shorter than the minimum, the last token of the prompt, and blocks in a different order than in the
        // earlier prompt are not reused.
        assert_eq!(found(&prompt, &earlier, 2, 8), []);
        assert_eq!(found(&earlier[15..], &earlier, 0, 4), [(0, 15, 4)]);
        assert_eq!(found(&earlier[15..], &earlier, 0, 5), []);
        assert_eq!(found(&[&earlier[10..], &earlier[..10]].concat(), &earlier, 0, 4), [(0, 10, 10)]);
        // Off, and nothing to compare.
        assert_eq!(found(&prompt, &earlier, 2, 0), []);
        assert_eq!(found(&[], &earlier, 0, 4), []);
        assert_eq!(found(&prompt, &[], 0, 1), []);
        assert_eq!(found(&[1, 2], &earlier, 1, 4), []);
    }
}
