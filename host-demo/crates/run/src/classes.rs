//! Labels and probabilities of a classifier.

use anyhow::{Result, ensure};
use arenite::gguf::Value;
use arenite::{Gguf, Model};
use serde::Serialize;

/// A label, and the probability of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Class {
    /// The name of the class. If the model's file has no name for it, this is `LABEL_` and the number of the class.
    pub label: String,
    pub score: f64,
}

/// The labels of a classifier, in the order of its outputs, and the meaning of the outputs.
#[derive(Clone)]
pub struct Labels {
    names: Vec<String>,
    problem: Problem,
}

/// The meaning of a classifier's outputs: transformers' `problem_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Problem {
    /// One of the classes applies.
    OneOf,
    /// Each class applies or not.
    Each,
    /// The outputs are values.
    Values,
}

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
        let problem = match gguf.str("general", "problem_type").ok().flatten() {
            Some(b"multi_label_classification") => Problem::Each,
            Some(b"regression") => Problem::Values,
            _ if count == 1 => Problem::Each,
            _ => Problem::OneOf,
        };
        Ok(Self { names: labels, problem })
    }

    /// The labels, in the order of the outputs.
    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns the classes of a text, the most probable class first. `outputs` are the classifier's outputs for the
    /// text. If exactly one class applies, the probabilities of all classes sum to 1. A single output is the
    /// probability of its only class. A regression has values instead of probabilities.
    pub fn classes(self, outputs: &[f32]) -> Vec<Class> {
        let most = outputs.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let powers: Vec<f64> = outputs.iter().map(|output| f64::from(output - most).exp()).collect();
        let sum: f64 = powers.iter().sum();
        let scores = powers.into_iter().zip(outputs).map(|(power, output)| match self.problem {
            Problem::OneOf => power / sum,
            Problem::Each => 1.0 / (1.0 + f64::from(-output).exp()),
            Problem::Values => f64::from(*output),
        });
        let mut classes: Vec<Class> =
            self.names.into_iter().zip(scores).map(|(label, score)| Class { label, score }).collect();
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
        let labels = |problem, names: &[&str]| {
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            Labels { names, problem }
        };
        let classes =
            labels(Problem::OneOf, &["out", "goal", "corner"]).classes(&[-0.513_952_7, 0.957_256_1, -0.344_023_9]);
        let names: Vec<_> = classes.iter().map(|class| class.label.as_str()).collect();
        assert_eq!(names, ["goal", "corner", "out"]);
        for (class, want) in classes.iter().zip([0.665_853_9, 0.181_234_2, 0.152_911_8]) {
            assert!((class.score - want).abs() < 1e-7, "{class:?}");
        }
        let alone = labels(Problem::Each, &["toxic"]).classes(&[0.5]);
        assert!((alone[0].score - 0.622_459_331).abs() < 1e-9);
        let both = labels(Problem::Each, &["rude", "toxic"]).classes(&[0.5, 1.0]);
        assert_eq!((both[0].label.as_str(), both[1].score), ("toxic", alone[0].score));
        assert!((both[0].score - 0.731_058_579).abs() < 1e-9);
        assert_eq!(labels(Problem::Values, &["stars"]).classes(&[-0.25])[0].score, -0.25);
    }
}
