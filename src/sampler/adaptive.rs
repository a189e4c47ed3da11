//! Adaptive-p: draws tokens whose probability is near a target. The target moves, so that the mean probability of the
//! selected tokens reaches the requested probability. Source: llama.cpp, `llama_sampler_init_adaptive_p`.

use super::more::{More, State};

/// Highest transformed logit.
const PEAK: f64 = 5.0;
/// Decrease of the logit with the square of the distance.
const SHARPNESS: f64 = 10.0;
/// Unit of distance: a token's probability differs from the target by this much if the distance is 1.
const WIDTH: f64 = 0.3;

fn decay(more: &More) -> f32 {
    more.adaptive_decay.clamp(0.0, 0.99)
}

/// Start values of the two running sums of adaptive-p: the weighted sum of the chosen tokens' probabilities, and the
/// sum of the weights. They are the limits after infinitely many tokens with exactly the target probability.
pub(super) fn start(more: &More) -> (f32, f32) {
    let weight = 1.0 / (1.0 - decay(more));
    (more.adaptive_target * weight, weight)
}

/// The target for the next token.
pub(super) fn adapted(more: &More, state: &State) -> f64 {
    let target = f64::from(more.adaptive_target);
    let mean = f64::from(state.adaptive_sum) / f64::from(state.adaptive_weight);
    let adapted = (2.0 * target - mean).clamp(0.0, 1.0);
    if adapted.is_nan() { target } else { adapted }
}

/// Weight of a token of probability `share` in the draw of adaptive-p: the closer to the adapted target, the larger. An
/// impossible token stays impossible.
pub(super) fn weight(logit: f32, share: f64, adapted: f64) -> f64 {
    if logit == f32::NEG_INFINITY {
        return 0.0;
    }
    let distance = libm::fabs(share - adapted) / WIDTH;
    libm::exp(PEAK - SHARPNESS * distance * distance / (1.0 + distance))
}

/// Adds a selected token, whose probability was `share`.
pub(super) fn learn(more: &More, state: &mut State, share: f64) {
    let decay = decay(more);
    state.adaptive_sum = share as f32 + decay * state.adaptive_sum;
    state.adaptive_weight = 1.0 + decay * state.adaptive_weight;
}
