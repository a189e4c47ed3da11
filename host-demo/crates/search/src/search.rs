//! The passages nearest to a question.

use anyhow::Result;
use arenite_run::Loaded;
use serde::Serialize;

use crate::index::Index;
use crate::passages::Passage;

/// A passage that was found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Found {
    /// The passage.
    #[serde(flatten)]
    pub passage: Passage,
    /// How near the passage is to the question: the cosine of the angle between their vectors, or the score of a
    /// reranker. A larger score is nearer.
    pub score: f64,
}

impl Index {
    /// Returns the `most` passages that are nearest to a question, the nearest first. Equally near passages are in the
    /// order of the folder.
    ///
    /// # Errors
    ///
    /// The index was made with another model, or the question does not fit in the model's context.
    pub fn search(&self, model: &Loaded, question: &str, most: usize) -> Result<Vec<Found>> {
        self.must_be_of(model)?;
        let asked = model.embed(&format!("{}{question}", self.prefixes.query))?;
        let cosine = |vector: &[f32]| vector.iter().zip(&asked).map(|(a, b)| f64::from(a * b)).sum::<f64>();
        let mut scores: Vec<(usize, f64)> = self.vectors().map(cosine).enumerate().collect();
        scores.sort_by(|a, b| b.1.total_cmp(&a.1));
        Ok(scores.iter().take(most).map(|(at, score)| Found { passage: self.passage(*at), score: *score }).collect())
    }
}

/// Orders passages by a reranker's scores.
///
/// # Errors
///
/// The model is not a reranker, or question and passage do not fit in its context.
pub fn reranked(reranker: &Loaded, question: &str, mut found: Vec<Found>) -> Result<Vec<Found>> {
    let texts: Vec<&str> = found.iter().map(|found| &*found.passage.text).collect();
    let scores = reranker.rerank(question, &texts)?;
    found.iter_mut().zip(scores).for_each(|(found, score)| found.score = score);
    found.sort_by(|a, b| b.score.total_cmp(&a.score));
    Ok(found)
}
