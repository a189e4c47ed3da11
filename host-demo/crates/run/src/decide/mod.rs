//! Decisions: typed questions about a state, and answers with their probabilities. Nothing is generated.
//!
//! Models that are trained for decisions name their type in the key `decision.type`, and have a template for the prompt
//! of a question (`tokenizer.chat_template.systemone`). For any other model the options are texts. The score of an option
//! is the log-probability of its tokens after the prompt (a letter, or the text), or comes from the states of tokens in
//! the prompt ([`Scored`]). Sources: llama.cpp b11434, `tools/server/server-decision.cpp`.
//!
//! | file | |
//! |---|---|
//! | `question` | requests |
//! | `trained` | the types of decision models, their prompts and answers |
//! | `kev`, `laya`, `joint` | prompts and scores that single types need |
//! | `any` | prompts for other models |
//! | `answer` | scores to probabilities and answers |

mod answer;
mod any;
mod joint;
mod kev;
mod laya;
mod question;
mod trained;

use anyhow::Result;
use arenite::TokenId;
use arenite::tokenizer::Tokenizer;
use arenite_chat::{Renderer, Style};
use arenite_request::Refusal;
use serde_json::{Map, Value};

pub use joint::Joint;
pub use question::{Choice, Kind, Question, Request};
pub use trained::{DecisionModel, check_type};

/// A prompt, and how the options after or in it are scored.
#[derive(Clone)]
pub struct Reading {
    pub ids: Vec<TokenId>,
    pub scored: Scored,
}

/// How a prompt's options are scored.
#[derive(Clone)]
pub enum Scored {
    /// By the log-probability of each option's tokens after the prompt.
    Labels(Vec<Vec<TokenId>>),
    /// By the product of two vectors, for the token that ends each option: the first half of the last token's vector, and
    /// the second half of that token's (kev).
    Ends(Vec<usize>),
    /// By an encoder that scores these positions, for a type of question (laya).
    Marks { marks: Vec<usize>, kind: usize },
    /// By a head that reads the states of all tokens (clef).
    Joint(Joint),
}

impl Scored {
    /// Tokens of the longest option that are read after the prompt.
    pub fn longest(&self) -> usize {
        match self {
            // Without the last token of a label, because it is not read.
            Self::Labels(labels) => labels.iter().map(|label| label.len().saturating_sub(1)).max().unwrap_or(0),
            _ => 0,
        }
    }

    /// True if each option is one token after the prompt.
    pub fn is_one_token(&self) -> bool {
        matches!(self, Self::Labels(labels) if labels.iter().all(|label| label.len() == 1))
    }

    /// Number of the prompt's tokens that may come from an earlier prompt, of `len` tokens.
    pub fn shareable(&self, len: usize) -> usize {
        match self {
            Self::Labels(_) => len.saturating_sub(1),
            // Up to the first option's end, because the states of all ends are needed.
            Self::Ends(ends) => ends.first().copied().unwrap_or(0).min(len.saturating_sub(1)),
            Self::Marks { .. } | Self::Joint(_) => 0,
        }
    }
}

/// What answers questions: a decision model, or any other model with its own probabilities.
pub enum Decider<'s> {
    Trained(&'s DecisionModel),
    Any { style: &'s Style, renderer: &'s Renderer },
}

impl Decider<'_> {
    /// Reads a request.
    ///
    /// # Errors
    ///
    /// What llama.cpp refuses, in its words.
    pub fn request(&self, state: Option<&Value>, questions: Option<&Value>) -> Result<Request, Refusal> {
        match self {
            Self::Trained(model) => {
                let mut request = Request::read(state, questions, model.most_options())?;
                model.arrange(&mut request);
                Ok(request)
            }
            Self::Any { .. } => Request::read(state, questions, any::MOST_OPTIONS),
        }
    }

    /// Returns the prompts of all questions. If `is_one_of_many`, the same questions are asked about other states; prompts
    /// for models that are not trained for decisions then begin with the question, which all states share.
    ///
    /// # Errors
    ///
    /// The template fails.
    pub fn readings(
        &self,
        request: &Request,
        is_one_of_many: bool,
        tokenizer: &Tokenizer<'_, '_>,
    ) -> Result<Vec<Reading>> {
        let Request { state, questions } = request;
        match self {
            Self::Any { style, renderer } => {
                let state = (state, !is_one_of_many);
                questions.iter().map(|asked| any::reading(state, asked, style, renderer, tokenizer)).collect()
            }
            Self::Trained(model) => model.readings(request, tokenizer),
        }
    }

    /// Returns the answers by the questions' names, from the scores of each prompt's options.
    pub fn answers(&self, request: &Request, scores: &[Vec<f64>]) -> Value {
        match self {
            Self::Trained(model) => model.answers(request, scores).into(),
            Self::Any { .. } => {
                let answered = |(question, scores): (&Question, &Vec<f64>)| {
                    (question.id.clone(), answer::answer(question, &answer::probabilities(scores, 1.0)))
                };
                request.questions.iter().zip(scores).map(answered).collect::<Map<_, _>>().into()
            }
        }
    }
}
