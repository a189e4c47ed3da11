//! Labels and probabilities of a classifier.

use anyhow::{Result, ensure};
use arenite::gguf::Value;
use arenite::{Gguf, Model};
use serde::Serialize;

/// A label, and the probability of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Class {
    /// The label in the model's file, or `LABEL_` and its number.
    pub label: String,
    pub score: f64,
}

/// The labels of a classifier, in the order of its outputs.
#[derive(Clone)]
pub struct Labels(Vec<String>);

impl Labels {
    /// Reads the labels.
    ///
    /// # Errors
    ///
    /// The model is not a classifier.
    pub fn new(gguf: &Gguf<'_>, model: &Model<'_>) -> Result<Self> {
        ensure!(
            model.spec().ranks(),
            "this model is not a classifier: give one with -m, or let any model choose with `arenite decide`"
        );
        let count = model.spec().embedding_len();
        let family = gguf.str("general", "architecture").ok().flatten().unwrap_or_default();
        let key = format!("{}.classifier.output_labels", String::from_utf8_lossy(family));
        let mut labels = Vec::new();
        if let Some(Value::Array(names)) = gguf.get(&key) {
            let mut names = names.strings();
            while let Some(name) = names.next_string() {
                labels.push(String::from_utf8_lossy(name).into_owned());
            }
        }
        labels.truncate(count);
        labels.extend((labels.len()..count).map(|number| format!("LABEL_{number}")));
        Ok(Self(labels))
    }

    /// The classes of a text by the outputs for it, the most probable one first. Probabilities of several classes sum to 1.
    /// A single output is the probability of its class alone.
    pub fn classes(self, outputs: &[f32]) -> Vec<Class> {
        let most = outputs.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let powers: Vec<f64> = outputs.iter().map(|output| f64::from(output - most).exp()).collect();
        let sum: f64 = powers.iter().sum();
        let scores = powers.into_iter().map(|power| match outputs {
            [output] => 1.0 / (1.0 + f64::from(-output).exp()),
            _ => power / sum,
        });
        let mut classes: Vec<Class> =
            self.0.into_iter().zip(scores).map(|(label, score)| Class { label, score }).collect();
        classes.sort_by(|a, b| b.score.total_cmp(&a.score));
        classes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values were computed with Python's `math`.
    #[test]
    fn several_outputs_share_the_probability_and_one_output_stands_alone() {
        let labels = |names: &[&str]| Labels(names.iter().map(|name| (*name).to_owned()).collect());
        let classes = labels(&["out", "goal", "corner"]).classes(&[-0.513_952_7, 0.957_256_1, -0.344_023_9]);
        let names: Vec<_> = classes.iter().map(|class| class.label.as_str()).collect();
        assert_eq!(names, ["goal", "corner", "out"]);
        for (class, want) in classes.iter().zip([0.665_853_9, 0.181_234_2, 0.152_911_8]) {
            assert!((class.score - want).abs() < 1e-7, "{class:?}");
        }
        let alone = labels(&["toxic"]).classes(&[0.5]);
        assert!((alone[0].score - 0.622_459_331).abs() < 1e-9);
    }
}
