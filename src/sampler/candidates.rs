//! Choosing among tokens: the k best without sorting the vocabulary, the nucleus, the draw.

use super::scratch::Word;
use crate::TokenId;
use crate::sort::{heapsort, sink};

/// A token and its logit, as it lies in the caller's memory.
pub(super) type Slot = [Word; 2];

/// A logit as it counts: NaN is no logit at all.
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

/// The order of choice: the higher logit, of equal ones the lower id.
fn is_better(a: &Slot, b: &Slot) -> bool {
    logit(a) > logit(b) || (logit(a) == logit(b) && token(a) < token(b))
}

/// The best token; of equal ones that with the lowest id, of none the first.
pub(super) fn best(logits: &[f32]) -> TokenId {
    best_where(logits, &mut |_| true).unwrap_or(0)
}

/// The best of the tokens that are possible and allowed. Only those are asked about that are better than all before.
pub(super) fn best_where(logits: &[f32], allowed: &mut impl FnMut(TokenId) -> bool) -> Option<TokenId> {
    const PART: usize = 256;
    let (mut best, mut token) = (f32::NEG_INFINITY, None);
    for (part, start) in logits.chunks(PART).zip((0..).step_by(PART)) {
        // Seldom does a part have a better one.
        if !has_above(part, best) {
            continue;
        }
        for (logit, id) in part.iter().zip(start..) {
            // NaN is not greater than anything.
            if *logit > best && allowed(id) {
                (best, token) = (*logit, Some(id));
            }
        }
    }
    token
}

/// Whether one of these is above a limit: in lanes, for vector instructions.
fn has_above(logits: &[f32], limit: f32) -> bool {
    let (parts, rest) = logits.as_chunks::<32>();
    let mut lanes = [false; 32];
    for part in parts {
        lanes.iter_mut().zip(part).for_each(|(lane, logit)| *lane |= *logit > limit);
    }
    lanes.contains(&true) || rest.iter().any(|logit| *logit > limit)
}

/// How much less likely a logit is than the highest, before division by the sum of all.
#[inline]
fn weight(logit: f32, highest: f32, temperature: f32) -> f64 {
    if logit == highest {
        1.0 // also where both are infinite
    } else if logit == f32::NEG_INFINITY {
        0.0 // also at infinite temperature
    } else {
        f64::from(libm::expf((logit - highest) / temperature))
    }
}

/// Candidates, the best first.
pub(super) struct Candidates<'s> {
    slots: &'s mut [Slot],
}

impl<'s> Candidates<'s> {
    /// The best tokens that are allowed, as many as there are slots (at most all). One pass over the logits; only
    /// tokens that would be among the best are asked about.
    pub fn best(slots: &'s mut [Slot], logits: &[f32], allowed: &mut impl FnMut(TokenId) -> bool) -> Self {
        let mut logits = logits.iter().map(|logit| clean(*logit)).enumerate();
        let mut count = 0;
        while let Some(place) = slots.get_mut(count) {
            let Some((token, logit)) = logits.by_ref().find(|(token, _)| allowed(*token as TokenId)) else { break };
            *place = slot(token, logit);
            count += 1;
        }
        let slots = slots.get_mut(..count).unwrap_or(&mut []);
        // A heap whose first is the worst of the best so far.
        for root in (0..count / 2).rev() {
            sink(slots, root, count, &mut is_better);
        }
        for (token, value) in logits {
            // Of equal ones the earlier stays, which is the one with the lower id.
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

    /// The best tokens that together have the probability `top_p`, out of all. The rest stays
    /// unsorted.
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
        // The best one from the front of the heap to its end, until there are enough.
        let mut left = count;
        let mut reached = 0.0;
        // At least one, as everywhere.
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

    /// Only the first ones, at least one.
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

    /// Keeps the first ones that together have the probability `top_p` among the candidates
    /// (Holtzman et al., "The Curious Case of Neural Text Degeneration", 2019).
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

    /// Keeps those whose surprise is nearest to the expected surprise, as many as together have more
    /// than the probability `typical_p` (Meister et al., "Locally Typical Sampling", 2022).
    ///
    /// Surprise only grows along the candidates, so what is kept lies side by side.
    pub fn typical(self, typical_p: f32, temperature: f32) -> Self {
        let highest = self.highest();
        let total: f64 = self.weights(temperature).sum();
        let surprise = |weight: f64| libm::log(total) - libm::log(weight);
        let expected: f64 =
            self.weights(temperature).filter(|weight| *weight > 0.0).map(|w| w / total * surprise(w)).sum();
        let at = |i: usize| self.slots.get(i).map(|s| weight(logit(s), highest, temperature));
        // From where surprise is as expected, to both sides.
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

    /// Keeps those that are at least `min_p` times as likely as the best (Nguyen et al., "Turning
    /// Up the Heat: Min-p Sampling", 2024).
    pub fn min_p(self, least: Least) -> Self {
        let least = least.logit(self.highest());
        let count = self.slots.iter().take_while(|s| logit(s) >= least).count();
        self.keep(count)
    }

    /// Draws one at a temperature, if any is possible; `random` is from 0 to 1, without 1.
    pub fn draw(&self, temperature: f32, random: f64) -> Option<TokenId> {
        draw(self.slots.iter().map(|s| (token(s), logit(s))), self.highest(), temperature, random)
    }
}

/// How far below the best a logit may be.
#[derive(Clone, Copy)]
pub(super) struct Least(f32);

impl Least {
    pub const NONE: Self = Self(f32::NEG_INFINITY);

    /// So far that at this temperature it is `min_p` times as likely.
    pub fn of(min_p: f32, temperature: f32) -> Self {
        if min_p > 0.0 { Self(libm::logf(min_p) * temperature) } else { Self::NONE }
    }

    fn logit(self, highest: f32) -> f32 {
        highest + self.0
    }
}

/// Draws one of all tokens that are likely enough, at a temperature.
pub(super) fn draw_of_all(logits: &[f32], least: Least, temperature: f32, random: f64) -> Option<TokenId> {
    let highest = logits.get(best(logits) as usize).copied().map_or(f32::NEG_INFINITY, clean);
    let least = least.logit(highest);
    let logits = logits.iter().enumerate().map(|(token, logit)| (token as TokenId, clean(*logit)));
    draw(logits.filter(|(_, logit)| *logit >= least || *logit == highest), highest, temperature, random)
}

/// Draws one of the candidates in proportion to its weight.
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
