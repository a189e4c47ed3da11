//! Requests for decisions.

use arenite::TokenId;
use arenite_request::{Refusal, RefusalKind};
use serde_json::{Map, Value, json};

use super::Service;
use crate::decide::{Decider, Reading, Request, Scored};

/// Maximum number of questions in a request. If there are several states, the questions about each state count.
pub const MOST_QUESTIONS: usize = 256;

/// The fields of a request for decisions.
#[derive(Clone, Copy, Default)]
pub struct Fields<'f> {
    pub state: Option<&'f Value>,
    /// Several states, given instead of `state`. The questions are answered for each of them.
    pub states: Option<&'f Value>,
    pub questions: Option<&'f Value>,
}

/// The questions of a request, and their prompts.
pub struct Decisions {
    /// The questions, which are the same for each state.
    request: Request,
    /// Number of states.
    states: usize,
    /// True if the request has a list of states.
    are_many: bool,
    /// The prompts of all questions about all states. Usually, they are ordered by state: all prompts about the first
    /// state, then those about the next one. If prompts begin with the question, they are ordered by question: the
    /// prompts of the first question for all states, then those of the next one.
    readings: Vec<Reading>,
    is_question_first: bool,
    /// Number of tokens of all prompts.
    tokens: usize,
    /// Size in bytes of a token's state, if the decision needs the states of all tokens of a prompt. Otherwise 0.
    state_bytes: usize,
}

impl Decisions {
    /// Takes the prompts to score.
    pub fn take_readings(&mut self) -> Vec<Reading> {
        std::mem::take(&mut self.readings)
    }

    /// Returns the number of bytes of memory that the prompts, their labels and the scores take.
    pub fn bytes(&self) -> usize {
        /// Bytes of a label and its score.
        const LABEL: usize = 64;
        let options: usize = self.request.questions.iter().map(|question| question.options.len()).sum();
        let labels = 2 * self.states * options;
        // The ids are counted twice, because the cache of contexts keeps a copy of each prompt's ids.
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

    /// Returns the prompts for questions about one state, or about each of several states.
    ///
    /// # Errors
    ///
    /// The model cannot answer such questions, the request is invalid, or a prompt does not fit in the context.
    pub fn decisions(&self, fields: Fields<'_>) -> Result<Decisions, Refusal> {
        let decider = self.decider()?;
        let Fields { state, states, questions } = fields;
        let states = states.filter(|states| !states.is_null());
        let list = match states {
            None => None,
            Some(_) if state.is_some_and(|state| !state.is_null()) => {
                return Err(Refusal::about("states", "give `state` or `states`, not both"));
            }
            Some(states) => {
                let list = states.as_array().filter(|list| !list.is_empty());
                Some(list.ok_or_else(|| Refusal::about("states", "`states` must be a list of at least one state"))?)
            }
        };
        let each = list.map_or(vec![state], |list| list.iter().map(Some).collect());
        let count = each.len().saturating_mul(questions.and_then(Value::as_object).map_or(1, Map::len));
        if count > MOST_QUESTIONS {
            let message = format!(
                "there are {count} questions about all states, and at most {MOST_QUESTIONS} are possible in one request"
            );
            return Err(Refusal::about("questions", message));
        }
        let states = each.len();
        // The questions are parsed only once, because a copy for every state could take gigabytes.
        let mut request = decider.request(each.first().copied().flatten(), questions)?;
        for question in questions.and_then(Value::as_object).into_iter().flat_map(Map::values) {
            self.check_len("questions", &question.to_string())?;
        }
        let mut by_state = Vec::new();
        for state in each {
            let state = state.filter(|state| !state.is_null());
            let state = state.ok_or_else(|| Refusal::invalid("\"state\" must be provided"))?;
            self.check_len("state", &state.to_string())?;
            request.state = state.clone();
            let readings = decider.readings(&request, list.is_some(), self.tokenizer());
            by_state.push(readings.map_err(|error| Refusal::invalid(format!("{error:#}")))?);
        }
        let is_question_first = list.is_some() && matches!(decider, Decider::Any { .. });
        let readings = if is_question_first { transposed(by_state) } else { by_state.into_iter().flatten().collect() };
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
        /// Number of bytes that an element of a token's state takes while scores are computed: the element itself and
        /// three copies in f64.
        const ELEMENT: usize = 4 + 8 + 8 + 8;
        let is_joint = readings.iter().any(|reading| matches!(reading.scored, Scored::Joint(_)));
        let state_bytes = if is_joint { self.open.model().spec().dim * ELEMENT } else { 0 };
        Ok(Decisions { request, states, are_many: list.is_some(), readings, is_question_first, tokens, state_bytes })
    }

    /// Returns the answer to a request, computed from the scores of each prompt's labels.
    ///
    /// # Errors
    ///
    /// The model cannot answer such questions.
    pub fn decided(&self, decisions: &Decisions, scores: Vec<Vec<f64>>) -> Result<Value, Refusal> {
        let decider = self.decider()?;
        let Decisions { request, states, are_many, is_question_first, tokens, .. } = decisions;
        let scores = match is_question_first {
            true => transposed(parts(scores, *states)),
            false => scores,
        };
        let of_state = (scores.len() / (*states).max(1)).max(1);
        let mut answers: Vec<Value> = scores.chunks(of_state).map(|scores| decider.answers(request, scores)).collect();
        let answers = if *are_many { answers.into() } else { answers.pop().unwrap_or_default() };
        Ok(json!({
            "model": self.name,
            "answers": answers,
            "usage": { "input_tokens": tokens, "output_tokens": 0 },
        }))
    }
}

/// Divides a list into parts of `len`.
fn parts<T>(list: Vec<T>, len: usize) -> Vec<Vec<T>> {
    let mut list = list.into_iter().peekable();
    let mut parts = Vec::new();
    while list.peek().is_some() {
        parts.push(list.by_ref().take(len.max(1)).collect());
    }
    parts
}

/// Returns the first element of each list, then the second element of each list, and so on, up to the end of the
/// shortest list.
fn transposed<T>(lists: Vec<Vec<T>>) -> Vec<T> {
    let mut lists: Vec<_> = lists.into_iter().map(Vec::into_iter).collect();
    let mut all = Vec::new();
    while let Some(row) = lists.iter_mut().map(Iterator::next).collect::<Option<Vec<_>>>().filter(|row| !row.is_empty())
    {
        all.extend(row);
    }
    all
}
