//! Requests for decisions.

use arenite::TokenId;
use arenite_request::{Refusal, RefusalKind};
use serde_json::{Map, Value, json};

use super::Service;
use crate::decide::{Decider, Reading, Request, Scored};

/// Maximum number of questions in a request.
const MOST_QUESTIONS: usize = 256;

/// The questions of a request, and their prompts.
pub struct Decisions {
    request: Request,
    readings: Vec<Reading>,
    /// Number of tokens of all prompts.
    tokens: usize,
    /// Bytes of a token's state, if the states of a prompt are collected.
    state_bytes: usize,
}

impl Decisions {
    /// Takes the prompts to score.
    pub fn take_readings(&mut self) -> Vec<Reading> {
        std::mem::take(&mut self.readings)
    }

    /// Returns the memory that the prompts, their labels and the scores take, in bytes.
    pub fn bytes(&self) -> usize {
        /// Bytes of a label and its score.
        const LABEL: usize = 64;
        let options: usize = self.request.questions.iter().map(|question| question.options.len()).sum();
        let labels = 2 * options;
        // The cache of contexts keeps a copy of each prompt.
        self.tokens * (2 * size_of::<TokenId>() + self.state_bytes) + labels * LABEL
    }
}

impl Service {
    fn decider(&self) -> Result<Decider<'_>, Refusal> {
        match &self.decisions {
            Some(model) => Ok(Decider::Trained(model)),
            None if !self.decides_any => Err(Refusal::not_possible("This model is not a decision model")),
            None if !self.makes_text => {
                Err(Refusal::not_possible("this model generates no text, so it has no probabilities of answers"))
            }
            None => Ok(Decider::Any { style: &self.style, renderer: &self.renderer }),
        }
    }

    /// Returns the prompts for questions about a state.
    ///
    /// # Errors
    ///
    /// The model does not decide, the request is invalid, or a prompt does not fit in the context.
    pub fn decisions(&self, state: Option<&Value>, questions: Option<&Value>) -> Result<Decisions, Refusal> {
        let decider = self.decider()?;
        let request = decider.request(state, questions)?;
        let count = request.questions.len();
        if count > MOST_QUESTIONS {
            let message =
                format!("there are {count} questions, and at most {MOST_QUESTIONS} are possible in one request");
            return Err(Refusal::about("questions", message));
        }
        self.check_len("state", &request.state.to_string())?;
        for question in questions.and_then(Value::as_object).into_iter().flat_map(Map::values) {
            self.check_len("questions", &question.to_string())?;
        }
        let readings = decider.readings(&request, self.tokenizer());
        let readings = readings.map_err(|error| Refusal::invalid(format!("{error:#}")))?;
        for Reading { ids, scored } in &readings {
            let (len, context) = (ids.len() + scored.longest(), self.context);
            if len > context {
                let message = format!(
                    "request ({len} tokens) exceeds the available context size ({context} tokens), try increasing it"
                );
                return Err(Refusal { kind: RefusalKind::TooLong, ..Refusal::invalid(message) });
            }
            let is_empty = matches!(scored, Scored::Labels(labels) if labels.iter().any(Vec::is_empty));
            if ids.is_empty() || is_empty {
                return Err(Refusal::invalid("a question or an option has no tokens in this model's vocabulary"));
            }
        }
        let tokens = readings.iter().map(|reading| reading.ids.len()).sum();
        /// Bytes per element of a state: as it is, with its norm in f64, and its word in f64.
        const ELEMENT: usize = 4 + 8 + 8 + 8;
        let is_joint = readings.iter().any(|reading| matches!(reading.scored, Scored::Joint(_)));
        let state_bytes = if is_joint { self.open.model().spec().dim * ELEMENT } else { 0 };
        Ok(Decisions { request, readings, tokens, state_bytes })
    }

    /// Returns the answer to a request, from the scores of each prompt's labels.
    ///
    /// # Errors
    ///
    /// The model does not decide.
    pub fn decided(&self, decisions: &Decisions, scores: &[Vec<f64>]) -> Result<Value, Refusal> {
        Ok(json!({
            "model": self.name,
            "answers": self.decider()?.answers(&decisions.request, scores),
            "usage": { "input_tokens": decisions.tokens, "output_tokens": 0 },
        }))
    }
}
