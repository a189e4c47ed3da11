//! Decisions: typed questions about a state, and answers with their probabilities. Nothing is generated.
//!
//! Models that are trained for decisions name their type in the key `decision.type`, and have a template for the prompt
//! of a question (`tokenizer.chat_template.systemone`). For all other models, the options are texts. The score of an
//! option is the log-probability of its tokens after the prompt (a letter, or the text of the option), or is computed
//! from the states of tokens in the prompt ([`Scored`]). Sources: llama.cpp b11434, `tools/server/server-decision.cpp`.
//!
//! | file | |
//! |---|---|
//! | `question` | requests |
//! | `trained` | the types of decision models, with their prompts and answers |
//! | `kev`, `laya`, `joint` | prompts and scores for the types of these names |
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
    /// The score of an option is the log-probability of its tokens after the prompt. These tokens are given here for
    /// each option.
    Labels(Vec<Vec<TokenId>>),
    /// An option's score is the product of two vectors: the first half of the vector of the prompt's last token, and
    /// the second half of the vector of the token that ends the option (kev).
    Ends(Vec<usize>),
    /// An encoder computes the scores at the positions `marks`, for a question of the type `kind` (laya).
    Marks { marks: Vec<usize>, kind: usize },
    /// By a head that reads the states of all tokens (clef).
    Joint(Joint),
}

impl Scored {
    /// Returns the number of tokens that are read after the prompt for the longest option.
    pub fn longest(&self) -> usize {
        match self {
            // The last token of a label needs no room in the context, because it is not read: only its probability is
            // needed.
            Self::Labels(labels) => labels.iter().map(|label| label.len().saturating_sub(1)).max().unwrap_or(0),
            _ => 0,
        }
    }

    /// True if each option is one token after the prompt.
    pub fn is_one_token(&self) -> bool {
        matches!(self, Self::Labels(labels) if labels.iter().all(|label| label.len() == 1))
    }

    /// Returns the number of tokens at the start of a prompt of `len` tokens that may be reused from an earlier prompt.
    pub fn shareable(&self, len: usize) -> usize {
        match self {
            Self::Labels(_) => len.saturating_sub(1),
            // The scores need the states at the ends of all options. Therefore only the tokens before the end of the
            // first option can be taken from the cache.
            Self::Ends(ends) => ends.first().copied().unwrap_or(0).min(len.saturating_sub(1)),
            Self::Marks { .. } | Self::Joint(_) => 0,
        }
    }
}

/// What answers the questions: a decision model, or any other model by the probabilities that it gives to texts.
pub enum Decider<'s> {
    Trained(&'s DecisionModel),
    Any { style: &'s Style, renderer: &'s Renderer },
}

impl Decider<'_> {
    /// Reads a request.
    ///
    /// # Errors
    ///
    /// The same requests are refused as by llama.cpp, with the same messages.
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

    /// Returns the prompts of all questions about one state. `is_one_of_many` is true if the questions are asked about
    /// several states. Models that are not trained for decisions then get prompts that begin with the question, so that
    /// the prompts about all states have a common beginning.
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

    /// Returns the answers, keyed by the names of the questions. `scores` has the scores of the options of each prompt.
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
