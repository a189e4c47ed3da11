//! Mirostat (Basu et al., 2020): keeps only the best tokens. Their number is chosen so that the mean surprise of
//! selected tokens approaches `tau` bits.

use core::f64::consts::LOG2_E;

use super::candidates::{Candidates, Slot};
use super::more::More;

/// Number of tokens from which version 1 estimates the exponent of Zipf's law.
const SAMPLE: usize = 100;

/// Mirostat, version 1: keeps the most probable tokens. Their number follows from an estimate of how fast the
/// probabilities fall (the exponent of Zipf's law) and from the limit `mu` on the surprise.
pub(super) fn v1<'s>(slots: &'s mut [Slot], logits: &[f32], temperature: f32, mu: f32) -> Candidates<'s> {
    let vocab = logits.len();
    // Estimates the exponent of Zipf's law from pairs of adjacent tokens (by rank). A pair contributes two logarithms:
    // of the ratio of the two ranks, and of the ratio of the two probabilities.
    let (mut products, mut squares, mut before, mut kept) = (0.0, 0.0, None, None);
    let enough = |count: usize, logit: f32, _: f64, _: f64| {
        if let Some(before) = before.replace(logit)
            && logit > f32::NEG_INFINITY
        {
            let ranks = libm::log(count as f64 / (count as f64 - 1.0));
            products += ranks * (f64::from(before) - f64::from(logit)) / f64::from(temperature);
            squares += ranks * ranks;
        }
        if count < SAMPLE && count < vocab {
            return false;
        }
        count >= *kept.get_or_insert_with(|| number(products / squares, mu, vocab))
    };
    let candidates = Candidates::best_until(slots, logits, temperature, enough);
    candidates.top_k(kept.unwrap_or(1))
}

/// Number of tokens to keep so that their surprise stays near the limit `mu`, if the probabilities follow Zipf's law
/// with this exponent.
fn number(exponent: f64, mu: f32, vocab: usize) -> usize {
    let shape = exponent - 1.0;
    let base = shape * libm::exp2(mu.into()) / (1.0 - libm::pow(vocab as f64, -shape));
    let number = libm::pow(base, 1.0 / exponent);
    // The conversion turns NaN and negative numbers into 0. 0 then becomes 1, because at least one token is kept.
    (number as usize).clamp(1, vocab.max(1))
}

/// Keeps tokens whose surprise is at most `mu`.
pub(super) fn v2<'s>(slots: &'s mut [Slot], logits: &[f32], temperature: f32, mu: f32) -> Candidates<'s> {
    let mut kept = 0;
    let candidates = Candidates::best_until(slots, logits, temperature, |count, _, weight, total| {
        let is_over = surprise(weight / total) > f64::from(mu);
        kept = if is_over { count - 1 } else { count };
        is_over
    });
    candidates.top_k(kept)
}

/// Negative binary logarithm of a probability.
fn surprise(share: f64) -> f64 {
    -libm::log(share) * LOG2_E
}

/// Mirostat's update of the limit on the surprise, after a token of probability `share` was drawn.
pub(super) fn learned(more: &More, mu: f32, share: f64) -> f32 {
    mu - more.mirostat_eta * (surprise(share) as f32 - more.mirostat_tau)
}
