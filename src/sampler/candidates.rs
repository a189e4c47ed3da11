//! Selecting tokens: top-k without sorting the vocabulary, the nucleus, and the draw.

use super::scratch::Word;
use crate::TokenId;
use crate::sort::{heapsort, sink};

/// A token and its logit in the caller's memory.
pub(super) type Slot = [Word; 2];

/// Replaces NaN by minus infinity.
#[inline]
pub(super) fn clean(logit: f32) -> f32 {
    if logit.is_nan() { f32::NEG_INFINITY } else { logit }
}

fn slot(token: usize, logit: f32) -> Slot {
    [logit.to_le_bytes(), (token as TokenId).to_le_bytes()]
}

fn logit([logit, _]: &Slot) -> f32 {
    f32::from_le_bytes(*logit)
}

fn token([_, token]: &Slot) -> TokenId {
    TokenId::from_le_bytes(*token)
}

/// True if `a` has the higher logit, or the same logit and the lower id.
fn is_better(a: &Slot, b: &Slot) -> bool {
    logit(a) > logit(b) || (logit(a) == logit(b) && token(a) < token(b))
}

/// The best token. Ties go to the lowest id; 0 if there are no logits.
pub(super) fn best(logits: &[f32]) -> TokenId {
    best_where(logits, &mut |_| true).unwrap_or(0)
}

/// The best token that `allowed` accepts and whose logit is above minus infinity. Only calls `allowed` for tokens that
/// are better than the best one so far.
pub(super) fn best_where(logits: &[f32], allowed: &mut impl FnMut(TokenId) -> bool) -> Option<TokenId> {
    const PART: usize = 256;
    let (mut best, mut token) = (f32::NEG_INFINITY, None);
    for (part, start) in logits.chunks(PART).zip((0..).step_by(PART)) {
        // Chunks with a better logit are rare.
        if !has_above(part, best) {
            continue;
        }
        for (logit, id) in part.iter().zip(start..) {
            // NaN compares as not greater.
            if *logit > best && allowed(id) {
                (best, token) = (*logit, Some(id));
            }
        }
    }
    token
}

/// True if a logit exceeds `limit`; written for vector instructions.
fn has_above(logits: &[f32], limit: f32) -> bool {
    let (parts, rest) = logits.as_chunks::<32>();
    let mut lanes = [false; 32];
    for part in parts {
        lanes.iter_mut().zip(part).for_each(|(lane, logit)| *lane |= *logit > limit);
    }
    lanes.contains(&true) || rest.iter().any(|logit| *logit > limit)
}

/// Weight of a logit: `exp((logit - highest) / temperature)`, not normalized.
#[inline]
fn weight(logit: f32, highest: f32, temperature: f32) -> f64 {
    if logit == highest {
        1.0 // also if both are infinite
    } else if logit == f32::NEG_INFINITY {
        0.0 // also at infinite temperature
    } else {
        f64::from(libm::expf((logit - highest) / temperature))
    }
}

/// Candidate tokens, best first.
pub(super) struct Candidates<'s> {
    slots: &'s mut [Slot],
}

impl<'s> Candidates<'s> {
    /// Collects the best allowed tokens, as many as there are slots. One pass over the logits; only calls `allowed` for
    /// tokens that would enter the list.
    pub fn best(slots: &'s mut [Slot], logits: &[f32], allowed: &mut impl FnMut(TokenId) -> bool) -> Self {
        let mut logits = logits.iter().map(|logit| clean(*logit)).enumerate();
        let mut count = 0;
        while let Some(place) = slots.get_mut(count) {
            let Some((token, logit)) = logits.by_ref().find(|(token, _)| allowed(*token as TokenId)) else { break };
            *place = slot(token, logit);
            count += 1;
        }
        let slots = slots.get_mut(..count).unwrap_or(&mut []);
        // A heap with the worst of the current candidates at its root.
        for root in (0..count / 2).rev() {
            sink(slots, root, count, &mut is_better);
        }
        for (token, value) in logits {
            // For equal logits the earlier one stays, which has the lower id.
            if slots.first().is_some_and(|worst| value > logit(worst)) && allowed(token as TokenId) {
                if let Some(worst) = slots.first_mut() {
                    *worst = slot(token, value);
                }
                sink(slots, 0, count, &mut is_better);
            }
        }
        heapsort(slots, is_better);
        Self { slots }
    }

    /// Collects the best of all tokens, until together they have probability `top_p`. The other tokens remain unsorted.
    pub fn nucleus(slots: &'s mut [Slot], logits: &[f32], top_p: f32, temperature: f32) -> Self {
        let count = slots.len().min(logits.len());
        let slots = slots.get_mut(..count).unwrap_or(&mut []);
        for (place, (token, logit)) in slots.iter_mut().zip(logits.iter().enumerate()) {
            *place = slot(token, clean(*logit));
        }
        let mut is_worse = |a: &Slot, b: &Slot| is_better(b, a);
        for root in (0..count / 2).rev() {
            sink(slots, root, count, &mut is_worse);
        }
        let highest = slots.first().map_or(0.0, logit);
        let total: f64 = slots.iter().map(|s| weight(logit(s), highest, temperature)).sum();
        // Moves the best from the front of the heap to its end, until the probability is reached.
        let mut left = count;
        let mut reached = 0.0;
        // Like all filters, this one keeps at least one token.
        while left > 0 && (left == count || reached < f64::from(top_p) * total) {
            left -= 1;
            if let (Some(&first), Some(&last)) = (slots.first(), slots.get(left)) {
                reached += weight(logit(&first), highest, temperature);
                for (at, slot) in [(0, last), (left, first)] {
                    if let Some(place) = slots.get_mut(at) {
                        *place = slot;
                    }
                }
            }
            sink(slots, 0, left, &mut is_worse);
        }
        let slots = slots.get_mut(left..).unwrap_or(&mut []);
        slots.reverse();
        Self { slots }
    }

    /// Keeps the first `count` candidates, at least one.
    fn keep(self, count: usize) -> Self {
        let count = count.clamp(self.slots.len().min(1), self.slots.len());
        Self { slots: self.slots.get_mut(..count).unwrap_or(&mut []) }
    }

    fn highest(&self) -> f32 {
        self.slots.first().map_or(0.0, logit)
    }

    fn weights(&self, temperature: f32) -> impl Iterator<Item = f64> {
        let highest = self.highest();
        self.slots.iter().map(move |s| weight(logit(s), highest, temperature))
    }

    /// Keeps the `k` best.
    pub fn top_k(self, k: usize) -> Self {
        self.keep(k)
    }

    /// Keeps the first candidates that together have probability `top_p` (Holtzman et al., "The Curious Case of Neural
    /// Text Degeneration", 2019).
    pub fn top_p(self, top_p: f32, temperature: f32) -> Self {
        let total: f64 = self.weights(temperature).sum();
        let mut reached = 0.0;
        let enough = self.weights(temperature).position(|weight| {
            reached += weight;
            reached >= f64::from(top_p) * total
        });
        match enough {
            Some(last) => self.keep(last + 1),
            None => self,
        }
    }

    /// Keeps the candidates whose surprise (negative log-probability) is nearest to the expected surprise, until
    /// together they exceed probability `typical_p` (Meister et al., "Locally Typical Sampling", 2022).
    ///
    /// Surprise increases along the candidates, so the kept ones are adjacent.
    pub fn typical(self, typical_p: f32, temperature: f32) -> Self {
        let highest = self.highest();
        let total: f64 = self.weights(temperature).sum();
        let surprise = |weight: f64| libm::log(total) - libm::log(weight);
        let expected: f64 =
            self.weights(temperature).filter(|weight| *weight > 0.0).map(|w| w / total * surprise(w)).sum();
        let at = |i: usize| self.slots.get(i).map(|s| weight(logit(s), highest, temperature));
        // Starts where the surprise equals the expected surprise, and extends to both sides.
        let middle = self.weights(temperature).take_while(|w| surprise(*w) <= expected).count();
        let (mut start, mut end, mut reached) = (middle, middle, 0.0);
        while start == end || reached <= f64::from(typical_p) * total {
            match (start.checked_sub(1).and_then(at), at(end)) {
                (Some(one), other)
                    if other.is_none_or(|other| expected - surprise(one) <= surprise(other) - expected) =>
                {
                    start = start.saturating_sub(1);
                    reached += one;
                }
                (_, Some(other)) => {
                    end += 1;
                    reached += other;
                }
                _ => break,
            }
        }
        Self { slots: self.slots.get_mut(start..end).unwrap_or(&mut []) }
    }

    /// Keeps candidates with at least `min_p` times the best one's probability (Nguyen et al., "Turning Up the Heat:
    /// Min-p Sampling", 2024).
    pub fn min_p(self, least: Least) -> Self {
        let least = least.logit(self.highest());
        let count = self.slots.iter().take_while(|s| logit(s) >= least).count();
        self.keep(count)
    }

    /// Draws a candidate at a temperature; `None` if none is possible. `random` is in [0, 1).
    pub fn draw(&self, temperature: f32, random: f64) -> Option<TokenId> {
        draw(self.slots.iter().map(|s| (token(s), logit(s))), self.highest(), temperature, random)
    }
}

/// Lower limit of logits, as a difference from the highest logit.
#[derive(Clone, Copy)]
pub(super) struct Least(f32);

impl Least {
    pub const NONE: Self = Self(f32::NEG_INFINITY);

    /// The limit at which a token is `min_p` times as probable as the best one, at this temperature.
    pub fn of(min_p: f32, temperature: f32) -> Self {
        if min_p > 0.0 { Self(libm::logf(min_p) * temperature) } else { Self::NONE }
    }

    fn logit(self, highest: f32) -> f32 {
        highest + self.0
    }
}

/// Draws one of all tokens whose logits are not below the limit `least`, at a temperature.
pub(super) fn draw_of_all(logits: &[f32], least: Least, temperature: f32, random: f64) -> Option<TokenId> {
    let highest = logits.get(best(logits) as usize).copied().map_or(f32::NEG_INFINITY, clean);
    let least = least.logit(highest);
    let logits = logits.iter().enumerate().map(|(token, logit)| (token as TokenId, clean(*logit)));
    draw(logits.filter(|(_, logit)| *logit >= least || *logit == highest), highest, temperature, random)
}

/// Draws a candidate in proportion to its weight.
fn draw(
    candidates: impl Iterator<Item = (TokenId, f32)> + Clone,
    highest: f32,
    temperature: f32,
    random: f64,
) -> Option<TokenId> {
    if highest == f32::NEG_INFINITY {
        return None;
    }
    let total: f64 = candidates.clone().map(|(_, logit)| weight(logit, highest, temperature)).sum();
    let mut passed = 0.0;
    let mut chosen = None;
    for (token, logit) in candidates {
        let weight = weight(logit, highest, temperature);
        passed += weight;
        if weight > 0.0 || chosen.is_none() {
            chosen = Some(token);
        }
        if passed > random * total {
            break;
        }
    }
    chosen
}
