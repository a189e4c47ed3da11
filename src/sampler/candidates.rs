//! Selecting tokens: top-k without sorting the vocabulary, the nucleus, and the random draw.

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

/// The token with the highest logit. If logits are equal, the lowest id wins; 0 if there are no logits.
pub(super) fn best(logits: &[f32]) -> TokenId {
    best_where(logits, &mut |_| true).unwrap_or(0)
}

/// The best token that `allowed` accepts and whose logit is above minus infinity. Only calls `allowed` for tokens that
/// are better than the best token so far.
pub(super) fn best_where(logits: &[f32], allowed: &mut impl FnMut(TokenId) -> bool) -> Option<TokenId> {
    const PART: usize = 256;
    let (mut best, mut token) = (f32::NEG_INFINITY, None);
    for (part, start) in logits.chunks(PART).zip((0..).step_by(PART)) {
        // Searches a chunk for a better logit first, and tests single tokens only if there is one, because such chunks
        // are rare.
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

/// True if a logit exceeds `limit`. Tests 32 lanes at a time, so that the compiler uses vector instructions.
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
    /// Collects the best allowed tokens, as many as there are slots, in one pass over the logits. Only calls `allowed`
    /// for tokens that would enter the list.
    pub fn best(slots: &'s mut [Slot], logits: &[f32], allowed: &mut impl FnMut(TokenId) -> bool) -> Self {
        let mut logits = logits.iter().map(|logit| clean(*logit)).enumerate();
        let mut count = 0;
        while let Some(place) = slots.get_mut(count) {
            let Some((token, logit)) = logits.by_ref().find(|(token, _)| allowed(*token as TokenId)) else { break };
            *place = slot(token, logit);
            count += 1;
        }
        let slots = slots.get_mut(..count).unwrap_or(&mut []);
        // Builds a heap whose root is the worst of the candidates, because a better token will replace the worst one.
        for root in (0..count / 2).rev() {
            sink(slots, root, count, &mut is_better);
        }
        for (token, value) in logits {
            // If two tokens have the same logit, the one with the lower id is better. Tokens come in the order of their
            // ids, so only a higher logit replaces a candidate.
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

    /// Collects the best of all tokens, at least one, until `enough` returns true. The arguments of `enough` are the
    /// number of collected tokens, the logit and the weight of the token that was collected last, and the weight of all
    /// tokens together. The remaining tokens stay unsorted.
    pub fn best_until(
        slots: &'s mut [Slot],
        logits: &[f32],
        temperature: f32,
        mut enough: impl FnMut(usize, f32, f64, f64) -> bool,
    ) -> Self {
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
        // Moves the best from the front of the heap to its end.
        let mut left = count;
        let mut is_enough = false;
        while left > 0 && !is_enough {
            left -= 1;
            if let (Some(&first), Some(&last)) = (slots.first(), slots.get(left)) {
                is_enough = enough(count - left, logit(&first), weight(logit(&first), highest, temperature), total);
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

    /// Collects the best of all tokens, until the collected tokens together have probability `top_p`.
    pub fn nucleus(slots: &'s mut [Slot], logits: &[f32], top_p: f32, min_keep: usize, temperature: f32) -> Self {
        let mut reached = 0.0;
        Self::best_until(slots, logits, temperature, |count, _, weight, total| {
            reached += weight;
            let is_short = reached < f64::from(top_p) * total;
            count >= min_keep && !is_short
        })
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
    pub fn top_p(self, top_p: f32, min_keep: usize, temperature: f32) -> Self {
        let total: f64 = self.weights(temperature).sum();
        let mut reached = 0.0;
        let enough = self.weights(temperature).position(|weight| {
            reached += weight;
            reached >= f64::from(top_p) * total
        });
        match enough {
            Some(last) => self.keep((last + 1).max(min_keep)),
            None => self,
        }
    }

    /// Keeps the candidates whose surprise (negative log-probability) is nearest to the expected surprise, until the
    /// kept candidates together exceed probability `typical_p` (Meister et al., "Locally Typical Sampling", 2022).
    ///
    /// The kept candidates are adjacent, because surprise increases along the candidates.
    pub fn typical(self, typical_p: f32, min_keep: usize, temperature: f32) -> Self {
        let highest = self.highest();
        let total: f64 = self.weights(temperature).sum();
        let surprise = |weight: f64| libm::log(total) - libm::log(weight);
        let expected: f64 =
            self.weights(temperature).filter(|weight| *weight > 0.0).map(|w| w / total * surprise(w)).sum();
        let at = |i: usize| self.slots.get(i).map(|s| weight(logit(s), highest, temperature));
        // The kept range starts at the candidate whose surprise reaches the expected surprise. It is then extended to
        // both sides.
        let middle = self.weights(temperature).take_while(|w| surprise(*w) <= expected).count();
        let (mut start, mut end, mut reached) = (middle, middle, 0.0);
        while end - start < min_keep.max(1) || reached <= f64::from(typical_p) * total {
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

    /// Keeps the candidates that are at least `min_p` times as probable as the best candidate (Nguyen et al., "Turning
    /// Up the Heat: Min-p Sampling", 2024).
    pub fn min_p(self, least: Least, min_keep: usize) -> Self {
        let least = least.logit(self.highest());
        let count = self.slots.iter().take_while(|s| logit(s) >= least).count();
        self.keep(count.max(min_keep))
    }

    /// Draws a candidate at a temperature; `None` if no candidate is possible. `random` is in [0, 1).
    pub fn draw(&self, temperature: f32, random: f64) -> Option<TokenId> {
        draw(self.slots.iter().map(|s| (token(s), logit(s))), self.highest(), temperature, random)
    }
}

#[cfg(feature = "samplers")]
impl Candidates<'_> {
    /// Typical sampling after top-n-sigma, as in llama.cpp. If a candidate is impossible, llama.cpp's entropy is NaN,
    /// so that all comparisons of its sort are false. llama.cpp then keeps the first candidates of the order in which
    /// that sort leaves them, and so does this function.
    pub fn typical_by_no_number(self, typical_p: f32, min_keep: usize, temperature: f32) -> Self {
        if self.slots.last().is_none_or(|worst| logit(worst) > f32::NEG_INFINITY) {
            return self.typical(typical_p, min_keep, temperature);
        }
        let (highest, total) = (self.highest(), self.weights(temperature).sum::<f64>());
        partition(self.slots);
        let mut reached = 0.0;
        let enough = self.slots.iter().enumerate().position(|(at, s)| {
            reached += weight(logit(s), highest, temperature);
            reached > f64::from(typical_p) * total && at + 1 >= min_keep
        });
        let kept = enough.map_or(self.slots.len(), |last| last + 1);
        let slots = self.slots.get_mut(..kept).unwrap_or(&mut []);
        heapsort(slots, is_better);
        Self { slots }
    }

    /// Subtracts penalties, multiplied by the temperature, from logits. `penalties` is in the order of tokens.
    pub fn lower(self, penalties: impl Iterator<Item = (TokenId, f32)>, temperature: f32) -> Self {
        heapsort(self.slots, |a, b| token(a) < token(b));
        let mut slots = self.slots.iter_mut().peekable();
        for (id, penalty) in penalties {
            while slots.next_if(|s| token(s) < id).is_some() {}
            if let Some(place) = slots.next_if(|s| token(s) == id) {
                *place = slot(id as usize, logit(place) - penalty * temperature);
            }
        }
        heapsort(self.slots, is_better);
        self
    }

    /// Makes all candidates impossible whose logit is more than `count` standard deviations below the highest logit
    /// (Tang et al., "Top-nσ: Not All Logits Are You Need", 2024). As in llama.cpp, impossible candidates remain in the
    /// list.
    pub fn top_n_sigma(self, count: f32) -> Self {
        let least = sigmas(count, || self.slots.iter().map(logit));
        for place in self.slots.iter_mut().filter(|s| f64::from(logit(s)) < least) {
            *place = slot(token(place) as usize, f32::NEG_INFINITY);
        }
        // Equal logits are in the order of tokens.
        heapsort(self.slots, is_better);
        self
    }

    /// Removes the candidates that have at least probability `threshold`, except for the last of these (p-e-w,
    /// oobabooga/text-generation-webui pull request 6335).
    pub fn xtc(self, threshold: f32, min_keep: usize, temperature: f32) -> Self {
        let total: f64 = self.weights(temperature).sum();
        let top = self.weights(temperature).take_while(|weight| *weight >= f64::from(threshold) * total).count();
        let removed = top.saturating_sub(1);
        match self.slots.len().checked_sub(removed) {
            Some(left) if left >= min_keep.max(1) => Self { slots: self.slots.get_mut(removed..).unwrap_or(&mut []) },
            _ => self,
        }
    }

    /// The temperature, between `least` and `most`, that corresponds to the entropy of the candidates (Zhu et al.,
    /// "Improving Open-Ended Text Generation via Adaptive Decoding", 2024; the form is llama.cpp's); 1 if there is only
    /// one candidate.
    pub fn dynamic(&self, (least, most): (f32, f32), exponent: f32) -> f32 {
        if self.slots.len() <= 1 {
            return 1.0;
        }
        let total: f64 = self.weights(1.0).sum();
        let shares = self.weights(1.0).map(|weight| weight / total).filter(|share| *share > 0.0);
        let entropy: f64 = -shares.map(|share| share * libm::log(share)).sum::<f64>();
        let factor = libm::pow(entropy / libm::log(self.slots.len() as f64), exponent.into());
        (f64::from(least) + f64::from(most - least) * factor) as f32
    }

    /// The probability of a token.
    pub fn share(&self, id: TokenId, temperature: f32) -> f64 {
        self.shares(temperature).find(|(other, ..)| *other == id).map_or(0.0, |(_, _, share)| share)
    }

    /// The candidates with their logits and probabilities.
    pub fn shares(&self, temperature: f32) -> impl Iterator<Item = (TokenId, f32, f64)> + Clone {
        let (highest, total) = (self.highest(), self.weights(temperature).sum::<f64>());
        self.slots.iter().map(move |s| (token(s), logit(s), weight(logit(s), highest, temperature) / total))
    }

    /// Draws a candidate at random. A candidate's chance is proportional to its weight, which `weight` computes from
    /// the candidate's logit and probability.
    pub fn draw_by(&self, weight: impl Fn(f32, f64) -> f64, temperature: f32, random: f64) -> Option<TokenId> {
        if self.highest() == f32::NEG_INFINITY {
            return None;
        }
        draw_weighted(self.shares(temperature).map(|(token, logit, share)| (token, weight(logit, share))), random)
    }
}

/// Permutes the items as an introsort (a quicksort with the median of three as pivot) does if all items compare as
/// equal.
#[cfg(feature = "samplers")]
fn partition(slots: &mut [Slot]) {
    /// Ranges of at most this length are not divided.
    const SHORT: usize = 16;
    let mut ranges: heapless::Vec<(usize, usize), 64> = heapless::Vec::new();
    let _ = ranges.push((0, slots.len()));
    while let Some((start, end)) = ranges.pop() {
        let Some(range) = slots.get_mut(start..end).filter(|range| range.len() > SHORT) else { continue };
        let middle = range.len() / 2;
        if let Some((first, rest)) = range.split_first_mut() {
            if let Some(median) = rest.get_mut(middle - 1) {
                core::mem::swap(first, median);
            }
            rest.reverse();
        }
        // The first item goes to the lower range, together with the first half (rounded up) of all other items.
        let cut = start + 1 + (range.len() - 1) / 2;
        let _ = ranges.push((start, cut));
        let _ = ranges.push((cut, end));
    }
}

/// Returns the logit that is `count` standard deviations below the highest logit. Logits of minus infinity, which
/// belong to forbidden tokens, do not count.
#[cfg(feature = "samplers")]
pub(super) fn sigmas<I: Iterator<Item = f32>>(count: f32, logits: impl Fn() -> I) -> f64 {
    let possible = || logits().map(clean).filter(|logit| *logit > f32::NEG_INFINITY).map(f64::from);
    let n = possible().count() as f64;
    let mean = possible().sum::<f64>() / n;
    let variance = possible().map(|logit| (logit - mean) * (logit - mean)).sum::<f64>() / n;
    possible().fold(f64::NEG_INFINITY, f64::max) - f64::from(count) * libm::sqrt(variance)
}

/// The lowest logit that a candidate may have, given as the difference from the highest logit.
#[derive(Clone, Copy)]
pub(super) struct Least(f32);

impl Least {
    pub const NONE: Self = Self(f32::NEG_INFINITY);

    /// The limit for a given `min_p`, relative to the highest logit: a token with this logit is `min_p` times as
    /// probable as the best token.
    pub fn of(min_p: f32, temperature: f32) -> Self {
        if min_p > 0.0 { Self(libm::logf(min_p) * temperature) } else { Self::NONE }
    }

    fn logit(self, highest: f32) -> f32 {
        highest + self.0
    }
}

/// Draws a token at a temperature. All tokens whose logits are not below the limit `least` take part.
pub(super) fn draw_of_all(logits: &[f32], least: Least, temperature: f32, random: f64) -> Option<TokenId> {
    let highest = logits.get(best(logits) as usize).copied().map_or(f32::NEG_INFINITY, clean);
    draw(of_all(logits, highest, least.logit(highest)), highest, temperature, random)
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
    draw_weighted(candidates.map(|(token, logit)| (token, weight(logit, highest, temperature))), random)
}

fn draw_weighted(candidates: impl Iterator<Item = (TokenId, f64)> + Clone, random: f64) -> Option<TokenId> {
    let total: f64 = candidates.clone().map(|(_, weight)| weight).sum();
    let mut passed = 0.0;
    let mut chosen = None;
    for (token, weight) in candidates {
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

/// Returns the tokens among which [`draw_of_all`] draws, each with its logit.
fn of_all(logits: &[f32], highest: f32, least: f32) -> impl Iterator<Item = (TokenId, f32)> + Clone {
    let logits = logits.iter().enumerate().map(|(token, logit)| (token as TokenId, clean(*logit)));
    logits.filter(move |(_, logit)| *logit >= least || *logit == highest)
}

/// Returns the tokens among which [`draw_of_all`] draws, each with its logit and its probability.
#[cfg(feature = "samplers")]
pub(super) fn shares_of_all(
    logits: &[f32],
    least: Least,
    temperature: f32,
) -> impl Iterator<Item = (TokenId, f32, f64)> {
    let highest = logits.get(best(logits) as usize).copied().map_or(f32::NEG_INFINITY, clean);
    let all = of_all(logits, highest, least.logit(highest));
    let total: f64 = all.clone().map(|(_, logit)| weight(logit, highest, temperature)).sum();
    all.map(move |(token, logit)| (token, logit, weight(logit, highest, temperature) / total))
}
