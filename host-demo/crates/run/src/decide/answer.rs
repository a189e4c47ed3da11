//! Scores of options to an answer with probabilities.

use serde_json::{Map, Value, json};

use super::question::{Kind, Question};

/// Returns the probabilities of options with these scores: the softmax of the scores divided by the temperature.
pub fn probabilities(scores: &[f64], temperature: f64) -> Vec<f64> {
    let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = scores.iter().map(|score| ((score - top) / temperature).exp()).collect();
    let sum: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / sum).collect()
}

/// Returns the answer to a question whose options have these probabilities, as llama.cpp writes it.
pub fn answer(question: &Question, probabilities: &[f64]) -> Value {
    let each = || question.options.iter().zip(probabilities);
    let listed = || each().map(|(option, p)| (option.key.clone(), json!(p))).collect::<Map<_, _>>();
    let best =
        (0..probabilities.len()).fold(0, |best, at| if probabilities[at] > probabilities[best] { at } else { best });
    match question.kind {
        Kind::Choice => json!({
            "type": question.kind.name(),
            "choice": question.options[best].key,
            "probabilities": listed(),
            "confidence": certainty(probabilities[best], probabilities.len()),
        }),
        Kind::Score => json!({
            "type": question.kind.name(),
            "score": mean(probabilities),
            "legend": each().map(|(option, _)| (option.key.clone(), option.description.clone())).collect::<Map<_, _>>(),
            "probabilities": listed(),
            "confidence": agreement(probabilities, best),
        }),
        Kind::Noul => yes(probabilities.get(1).copied().unwrap_or_default()),
    }
}

/// Returns the answer yes with a probability.
pub fn yes(probability: f64) -> Value {
    json!({ "type": Kind::Noul.name(), "noul": probability })
}

/// The mean of the levels 0, 1, ... of a scale.
pub fn mean(probabilities: &[f64]) -> f64 {
    probabilities.iter().zip(0u32..).map(|(p, level)| p * f64::from(level)).sum()
}

/// Returns how far the probability of the best of `count` options is from chance: 0 if all options are equally
/// probable, 1 if the best option is certain.
fn certainty(best: f64, count: usize) -> f64 {
    let chance = 1.0 / count as f64;
    if count == 1 { 1.0 } else { ((best - chance) / (1.0 - chance)).max(0.0) }
}

/// Returns how sure a rating is: how near the possible levels, weighted by their probabilities, are to the most
/// probable level. 1 means that this level is certain. 0 means that the mean distance is as large as that of equally
/// probable levels from the middle.
fn agreement(probabilities: &[f64], best: usize) -> f64 {
    let distance = |at: usize, from: f64| (at as f64 - from).abs();
    let count = probabilities.len();
    let spread: f64 = probabilities.iter().enumerate().map(|(at, p)| p * distance(at, best as f64)).sum();
    let even: f64 = (0..count).map(|at| distance(at, (count - 1) as f64 / 2.0)).sum();
    (1.0 - spread * count as f64 / even).max(0.0)
}
