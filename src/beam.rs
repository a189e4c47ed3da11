//! Beam search: the most probable continuations of a decoder behind an encoder, several followed at once.
//!
//! The hypotheses run as one batch, so that every weight is read once a step. Their keys and values lie side
//! by side in the cache, one place for each at every position, and stay there: a hypothesis knows by a mask
//! which places are its own. To fork one copies its mask, some bits a position, and nothing of the cache.

use bytemuck::{Pod, Zeroable};

use crate::kernel::Masks;
use crate::memory::{Arena, TILE};
use crate::plan::Plan;
use crate::session::Session;
use crate::{Error, TokenId};

/// What to search for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Search {
    /// Hypotheses to follow, at least 1: then the most probable token is taken at every step.
    pub beams: usize,
    /// Most tokens of a hypothesis; not more than the context.
    pub length: usize,
    /// A hypothesis of `n` tokens scores its log-probability divided by `n` to this power: 0 does not
    /// look at lengths, 1 takes the mean.
    pub length_penalty: f32,
    /// The token that a decoder begins with.
    pub start: TokenId,
    /// The token that ends a hypothesis, if any does; it counts as one of its tokens.
    pub end: Option<TokenId>,
    /// A token that is never chosen, such as padding.
    pub banned: Option<TokenId>,
}

/// A hypothesis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hypothesis<'h> {
    /// Its tokens, without those at start and end.
    pub tokens: &'h [TokenId],
    /// By which it is compared: see [`Search::length_penalty`].
    pub score: f32,
}

/// The hypotheses that a search found, the best first.
pub struct Beams<'w> {
    /// `[length][beams]`: which token, and behind which one of the step before.
    nodes: &'w mut [Node],
    found: &'w mut [Found],
    /// Room for the tokens of one hypothesis.
    tokens: &'w mut [TokenId],
    beams: usize,
    count: usize,
}

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Node {
    token: TokenId,
    parent: u32,
}

/// A hypothesis that ended: with so many nodes, the last one at this place in its step.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Found {
    score: f32,
    steps: u32,
    beam: u32,
}

/// A continuation of the hypothesis at `beam`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Candidate {
    score: f32,
    token: TokenId,
    beam: u32,
}

/// A list in descending order of score, of as many as there is room for. Of equals the first comes first.
fn insert<T: Copy>(list: &mut [T], count: &mut usize, item: T, score: impl Fn(&T) -> f32) {
    let Some(kept) = list.get(..*count) else { return };
    let at = kept.partition_point(|other| score(other) >= score(&item));
    if at >= list.len() {
        return;
    }
    *count = (*count + 1).min(list.len());
    if let Some(moved) = list.get_mut(at..*count) {
        moved.rotate_right(1);
        if let Some(place) = moved.first_mut() {
            *place = item;
        }
    }
}

impl<'w> Beams<'w> {
    /// Bytes of memory for a search with as many beams as planned, up to the planned context.
    pub const fn bytes(plan: &Plan) -> usize {
        let (beams, length) = (plan.options.beams, plan.options.context);
        let nodes = Arena::padded(length * beams * size_of::<Node>());
        let lists = Arena::padded(beams * size_of::<Found>()) + Arena::padded(2 * beams * size_of::<Candidate>());
        let masks = 2 * Arena::padded(beams * Self::words(beams, length) * size_of::<u16>());
        nodes + lists + masks + 3 * Arena::padded(beams * 4) + Arena::padded(length * 4)
    }

    /// Words of a hypothesis' mask.
    const fn words(beams: usize, length: usize) -> usize {
        (beams * length).div_ceil(TILE)
    }

    /// Searches for continuations in the text that `session` has [encoded](Session::encode). `memory` holds
    /// [`bytes`](Self::bytes) and starts on an [`ALIGN`](crate::memory::ALIGN) boundary. The session's
    /// decoder is at position 0 afterwards, and its logits are of no use.
    ///
    /// # Errors
    ///
    /// [`Error::TooManyBeams`]; [`Error::BufferTooSmall`] and [`Error::Misaligned`] for `memory`; and what
    /// [`Session::prefill`] says.
    pub fn search(session: &mut Session<'_, '_>, search: &Search, memory: &'w mut [u8]) -> Result<Self, Error> {
        let plan = *session.plan();
        let (beams, length) = (search.beams.max(1), search.length.clamp(1, plan.options.context));
        if beams > plan.options.beams {
            return Err(Error::TooManyBeams { planned: plan.options.beams, given: beams });
        }
        session.rewind(0)?;
        session.check(&[search.start])?;
        let short =
            Error::BufferTooSmall { what: "memory for beam search", needed: Self::bytes(&plan), given: memory.len() };
        let mut arena = Arena::new(memory)?;
        let nodes = arena.take::<Node>(length * beams).ok_or(short)?;
        let found = arena.take::<Found>(beams).ok_or(short)?;
        let candidates = arena.take::<Candidate>(2 * beams).ok_or(short)?;
        let words = Self::words(beams, length);
        let mut masks = arena.take::<u16>(beams * words).ok_or(short)?;
        let mut next_masks = arena.take::<u16>(beams * words).ok_or(short)?;
        let scores = arena.take::<f32>(beams).ok_or(short)?;
        let parents = arena.take::<u32>(beams).ok_or(short)?;
        let inputs = arena.take::<TokenId>(beams).ok_or(short)?;
        let tokens = arena.take::<TokenId>(length).ok_or(short)?;

        // At first all are the same hypothesis: one counts.
        inputs.fill(search.start);
        parents.fill(0);
        scores.fill(f32::NEG_INFINITY);
        scores.iter_mut().take(1).for_each(|score| *score = 0.0);
        masks.fill(0);
        let normed = |score: f32, len: usize| score / libm::powf(len as f32, search.length_penalty);
        let mut count = 0;
        for step in 0..length {
            // Each has what its parent had, and its own place.
            for (beam, (mask, parent)) in next_masks.chunks_exact_mut(words).zip(&*parents).enumerate() {
                let parent = *parent as usize * words;
                mask.copy_from_slice(masks.get(parent..parent + words).ok_or(short)?);
                let place = step * beams + beam;
                if let Some(word) = mask.get_mut(place / TILE) {
                    *word |= 1 << (place % TILE);
                }
            }
            core::mem::swap(&mut masks, &mut next_masks);
            let seen = if beams > 1 { Masks { words: masks, stride: words } } else { Masks::NONE };
            session.run_alternatives(inputs, step, seen);

            let mut chosen = 0;
            for (beam, score) in scores.iter().enumerate().filter(|(_, score)| **score > f32::NEG_INFINITY) {
                let logits = session.head(beam);
                let total = log_sum(logits);
                for (token, logit) in (0..).zip(logits.iter()).filter(|(token, _)| Some(*token) != search.banned) {
                    let candidate = Candidate { score: score + (logit - total), token, beam: beam as u32 };
                    if !candidate.score.is_nan() {
                        insert(candidates, &mut chosen, candidate, |candidate| candidate.score);
                    }
                }
            }
            // What ends goes among the found, the best of the rest go on.
            let (mut live, row) = (0, step * beams);
            scores.fill(f32::NEG_INFINITY);
            for (rank, candidate) in candidates.iter().take(chosen).enumerate() {
                if Some(candidate.token) == search.end {
                    // Beyond as many as there are beams it would not have been looked at without more room.
                    if rank < beams {
                        let score = normed(candidate.score, step + 1);
                        let ended = Found { score, steps: step as u32, beam: candidate.beam };
                        insert(found, &mut count, ended, |found| found.score);
                    }
                } else if live < beams {
                    let node = Node { token: candidate.token, parent: candidate.beam };
                    let places =
                        (nodes.get_mut(row + live), inputs.get_mut(live), parents.get_mut(live), scores.get_mut(live));
                    if let (Some(place), Some(input), Some(parent), Some(score)) = places {
                        (*place, *input, *parent, *score) = (node, node.token, node.parent, candidate.score);
                    }
                    live += 1;
                }
            }
            let best = scores.first().map_or(f32::NEG_INFINITY, |score| normed(*score, step + 1));
            let is_last = step + 1 == length;
            let settled = match beams {
                1 => count > 0,
                _ => count == beams && found.last().is_some_and(|worst| worst.score >= best),
            };
            if live == 0 || settled {
                break;
            }
            if is_last {
                for (beam, score) in scores.iter().take(live).enumerate() {
                    let cut = Found { score: normed(*score, step + 1), steps: step as u32 + 1, beam: beam as u32 };
                    insert(found, &mut count, cut, |found| found.score);
                }
            }
        }
        session.rewind(0)?;
        Ok(Self { nodes, found, tokens, beams, count })
    }

    /// How many there are: at most as many as there were beams.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The hypothesis of this rank, 0 for the best.
    pub fn hypothesis(&mut self, rank: usize) -> Option<Hypothesis<'_>> {
        let Found { score, steps, mut beam } = *self.found.get(..self.count)?.get(rank)?;
        let tokens = self.tokens.get_mut(..steps as usize)?;
        for (step, place) in tokens.iter_mut().enumerate().rev() {
            let node = self.nodes.get(step * self.beams + beam as usize)?;
            *place = node.token;
            beam = node.parent;
        }
        Some(Hypothesis { tokens, score })
    }
}

impl core::fmt::Debug for Beams<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Beams").field("count", &self.count).finish_non_exhaustive()
    }
}

/// The logarithm of the sum of the exponentials.
fn log_sum(logits: &[f32]) -> f32 {
    let top = logits.iter().fold(f32::NEG_INFINITY, |top, logit| if *logit > top { *logit } else { top });
    let sum: f64 = logits.iter().map(|logit| f64::from(libm::expf(logit - top))).sum();
    top + libm::log(sum) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_keep_the_best() {
        let mut list = [0.0f32; 3];
        let mut count = 0;
        for (i, x) in [2.0, 5.0, 1.0, 3.0, 0.0, 5.0].into_iter().enumerate() {
            insert(&mut list, &mut count, x, |x| *x);
            assert_eq!(count, (i + 1).min(3));
        }
        assert_eq!(list, [5.0, 5.0, 3.0]);
        insert(&mut [0.0f32; 0], &mut 0, 1.0, |x| *x);
    }

    #[test]
    fn sums_of_exponentials() {
        assert!((log_sum(&[0.0, 0.0]) - core::f32::consts::LN_2).abs() < 1e-7);
        assert!((log_sum(&[1000.0, 0.0, f32::NEG_INFINITY]) - 1000.0).abs() < 1e-4);
    }
}
