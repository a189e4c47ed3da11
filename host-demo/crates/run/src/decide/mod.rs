//! Decisions: typed questions about a state, and answers with their probabilities. Nothing is generated.
//!
//! Models that are trained for decisions name their type in the key `decision.type`, and have a template for the prompt
//! of a question (`tokenizer.chat_template.systemone`). For any other model the options are texts. In both cases the
//! score of an option is the log-probability of its tokens after the prompt: a letter, or the text. Sources: llama.cpp
//! b11434, `tools/server/server-decision.cpp`.
//!
//! | file | |
//! |---|---|
//! | `mod` | the types of decision models, their prompts and answers |
//! | `question` | requests |
//! | `any` | prompts for other models |
//! | `answer` | scores to probabilities and answers |

mod answer;
mod any;
mod question;

use std::collections::HashMap;

use anyhow::{Context, Result, bail, ensure};
use arenite::TokenId;
use arenite::gguf::{Gguf, Value as Meta};
use arenite::tokenizer::Tokenizer;
use arenite_chat::{Compiled, Renderer, Style};
use arenite_text as text;
use serde_json::{Map, Value, json};

pub use question::{Choice, Kind, Question, Request};

/// The key of the template for a question's prompt.
const TEMPLATE: &str = "tokenizer.chat_template.systemone";
/// Maximum number of labels of options.
const MOST_LABELS: usize = 255;
/// Number of ratings with which [`Type::Lev`] answers yes or no, from certainly no to certainly yes.
const RATINGS: usize = 9;

/// The types of decision models whose options are labels after the prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    OpenJev,
    Lev,
    Nimble,
}

impl Type {
    const ALL: [(&str, Self); 3] = [("openjev", Self::OpenJev), ("lev", Self::Lev), ("nimble", Self::Nimble)];
}

/// A prompt, and the labels of the options that may follow it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    pub ids: Vec<TokenId>,
    pub labels: Vec<Vec<TokenId>>,
}

/// A model that is trained for decisions.
pub struct DecisionModel {
    kind: Type,
    template: Compiled,
    /// The labels of options in their order, each with its token.
    labels: Vec<(String, TokenId)>,
    /// Temperatures by type of question, or by type and number of options: `choice`, `choice.3_5`.
    temperatures: HashMap<String, f64>,
}

/// Refuses a file with a type of decision that is not known.
///
/// # Errors
///
/// The type's name, and the known ones.
pub fn check_type(gguf: &Gguf<'_>) -> Result<()> {
    type_of(gguf).map(|_| ())
}

fn type_of(gguf: &Gguf<'_>) -> Result<Option<Type>> {
    let Some(name) = gguf.str(gguf.architecture()?, "decision.type")? else { return Ok(None) };
    let known = Type::ALL.iter().find(|(known, _)| known.as_bytes() == name).map(|(_, kind)| *kind);
    match known {
        Some(kind) => Ok(Some(kind)),
        None => bail!(
            "decision models of the type {} are not supported: give one of the type openjev, lev or nimble",
            text::shown::one_line(&String::from_utf8_lossy(name))
        ),
    }
}

impl DecisionModel {
    /// Reads the decision keys of a file; `None` if it has none.
    ///
    /// # Errors
    ///
    /// The type is unknown, a temperature is not above 0, the template is missing, or labels are not tokens.
    pub fn new(gguf: &Gguf<'_>, tokenizer: &Tokenizer<'_, '_>) -> Result<Option<Self>> {
        let Some(kind) = type_of(gguf)? else { return Ok(None) };
        let template = gguf.keys().find(|(key, _)| *key == TEMPLATE);
        let Some((_, Meta::Str(template))) = template else { bail!("a decision model needs the key {TEMPLATE}") };
        let prefix = format!("{}.decision.temperature.", gguf.architecture()?);
        let mut temperatures = HashMap::new();
        for (key, value) in gguf.keys() {
            let Some(name) = key.strip_prefix(&prefix) else { continue };
            match value {
                Meta::F32(t) if t > 0.0 && t.is_finite() => _ = temperatures.insert(name.to_string(), f64::from(t)),
                _ => bail!("the key {key} must be a float above 0"),
            }
        }
        let upper = || ('A'..='Z').map(String::from);
        let names: Vec<String> = match kind {
            Type::OpenJev => upper().chain(('a'..='z').map(String::from)).collect(),
            Type::Lev | Type::Nimble => {
                upper().chain(upper().flat_map(|first| upper().map(move |second| first.clone() + &second))).collect()
            }
        };
        let mut labels = Vec::new();
        for name in names {
            match text::token(tokenizer, &name) {
                Some(token) => labels.push((name, token)),
                None => ensure!(kind != Type::OpenJev, "the label {name} of a decision is not one token"),
            }
        }
        labels.truncate(MOST_LABELS);
        ensure!(labels.len() >= RATINGS, "the vocabulary has too few labels for decisions: {}", labels.len());
        let template = Compiled::new(String::from_utf8_lossy(template).into_owned());
        Ok(Some(Self { kind, template, labels, temperatures }))
    }

    /// The orders in which the options of a question are shown: one prompt for each.
    fn orders(&self, question: &Question) -> Vec<Vec<usize>> {
        let count = question.options.len();
        match (self.kind, question.kind) {
            (Type::OpenJev, Kind::Noul) => vec![vec![1, 0]],
            (Type::Lev, Kind::Choice) if count > 1 => vec![(0..count).collect(), (0..count).rev().collect()],
            _ => vec![(0..count).collect()],
        }
    }

    /// Returns the texts of the prompts of all questions, in their order.
    ///
    /// # Errors
    ///
    /// The template fails.
    pub fn prompts(&self, request: &Request) -> Result<Vec<String>> {
        let state = self.sorted(&request.state);
        let shown = |question: &Question| -> Vec<Value> {
            self.orders(question).iter().map(|order| self.variables(question, order)).collect()
        };
        let all: Vec<Vec<Value>> = request.questions.iter().map(shown).collect();
        let first: Vec<Value> = all.iter().filter_map(|orders| orders.first().cloned()).collect();
        let shared = Map::from_iter([
            ("state".to_string(), state),
            ("images".to_string(), json!([])),
            ("questions".to_string(), first.into()),
        ]);
        let rendered = |mut variables: Value| {
            if let Some(members) = variables.as_object_mut() {
                members.extend(shared.clone());
            }
            self.template.fill(variables).context("the template of decisions does not work")
        };
        all.into_iter().flatten().map(rendered).collect()
    }

    /// The template's variables of a question whose options are shown in this order.
    fn variables(&self, question: &Question, order: &[usize]) -> Value {
        let shown = |(at, label): (&usize, &(String, TokenId))| {
            let Choice { key, description } = &question.options[*at];
            json!({ "key": key, "description": self.sorted(description), "label": label.0 })
        };
        let options: Vec<Value> = order.iter().zip(&self.labels).map(shown).collect();
        json!({
            "id": question.id,
            "type": question.kind.name(),
            "instructions": self.sorted(&question.instructions),
            "options": options,
        })
    }

    /// Returns a value with the members of all objects in the order that the model was trained with.
    fn sorted(&self, value: &Value) -> Value {
        let mut value = value.clone();
        if self.kind == Type::Lev {
            value.sort_all_objects();
        }
        value
    }

    /// The tokens of the labels that the prompts of a question are scored with.
    fn labels(&self, question: &Question) -> Vec<Vec<TokenId>> {
        let count = if self.rates(question) { RATINGS } else { question.options.len() };
        self.labels.iter().take(count).map(|(_, token)| vec![*token]).collect()
    }

    /// True if a question is answered with a rating in place of one of its options.
    fn rates(&self, question: &Question) -> bool {
        self.kind == Type::Lev && question.kind == Kind::Noul
    }

    fn temperature(&self, question: &Question) -> f64 {
        let bucket = match (self.kind, question.options.len()) {
            (Type::Lev, ..=8) => "small",
            (Type::Lev, ..=26) => "mid",
            (Type::Lev, _) => "large",
            (_, ..=2) => "2",
            (_, ..=5) => "3_5",
            (_, ..=10) => "6_10",
            _ => "11",
        };
        let kind = question.kind.name();
        let given = self.temperatures.get(&format!("{kind}.{bucket}")).or_else(|| self.temperatures.get(kind));
        given.copied().unwrap_or(1.0)
    }

    /// Answers a question from the scores of its prompts' labels.
    fn answer(&self, question: &Question, scores: &[Vec<f64>]) -> Value {
        let temperature = self.temperature(question);
        let orders = self.orders(question);
        if self.rates(question) {
            let ratings = scores.first().map(|scores| answer::probabilities(scores, temperature)).unwrap_or_default();
            return answer::yes(answer::mean(&ratings) / (RATINGS - 1) as f64);
        }
        let mut mean = vec![0.0; question.options.len()];
        for (order, scores) in orders.iter().zip(scores) {
            for (at, p) in order.iter().zip(answer::probabilities(scores, temperature)) {
                mean[*at] += p / orders.len() as f64;
            }
        }
        answer::answer(question, &mean)
    }
}

/// What answers questions: a decision model, or any other model with its own probabilities.
pub enum Decider<'s> {
    Trained(&'s DecisionModel),
    Any { style: &'s Style, renderer: &'s Renderer },
}

impl Decider<'_> {
    /// Maximum number of options of a question.
    pub fn most_options(&self) -> usize {
        match self {
            Self::Trained(model) => model.labels.len(),
            Self::Any { .. } => any::MOST_OPTIONS,
        }
    }

    /// Returns the prompts of all questions.
    ///
    /// # Errors
    ///
    /// The template fails.
    pub fn readings(&self, request: &Request, tokenizer: &Tokenizer<'_, '_>) -> Result<Vec<Reading>> {
        let Request { state, questions } = request;
        match self {
            Self::Any { style, renderer } => {
                questions.iter().map(|asked| any::reading(state, asked, style, renderer, tokenizer)).collect()
            }
            Self::Trained(model) => {
                let how = arenite::tokenizer::Encode { add_special: false, parse_special: true };
                let labels = questions.iter().flat_map(|asked| vec![model.labels(asked); model.orders(asked).len()]);
                let prompts = model.prompts(request)?.into_iter().zip(labels);
                let reading = |(prompt, labels): (String, _)| {
                    Ok(Reading { ids: text::encode(tokenizer, prompt.as_bytes(), how)?, labels })
                };
                prompts.map(reading).collect()
            }
        }
    }

    /// Returns the answers by the questions' names, from the scores of each prompt's labels.
    pub fn answers(&self, request: &Request, scores: &[Vec<f64>]) -> Value {
        let mut scores = scores;
        let answered = |question: &Question| {
            let answer = match self {
                Self::Trained(model) => {
                    let (own, rest) = scores.split_at(model.orders(question).len().min(scores.len()));
                    scores = rest;
                    model.answer(question, own)
                }
                Self::Any { .. } => {
                    let (own, rest) = scores.split_at(1.min(scores.len()));
                    scores = rest;
                    answer::answer(question, &answer::probabilities(own.first().map_or(&[], Vec::as_slice), 1.0))
                }
            };
            (question.id.clone(), answer)
        };
        request.questions.iter().map(answered).collect::<Map<_, _>>().into()
    }
}
