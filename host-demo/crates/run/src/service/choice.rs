//! Complete answers.

use arenite::TokenId;
use arenite_chat::{Call, Part};

use super::Prepared;
use crate::generation::Logprob;
use crate::scheduler::{Event, Finish};

/// The reason why an answer has no end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnswerError {
    /// The model failed, with this message.
    Failed(String),
    /// The memory for the rest of the answer is exhausted.
    Overflow,
}

/// A complete answer.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// The text. Tokens that are marks are enclosed in noncharacters (see `dialect/marks.rs`).
    pub text: String,
    pub tokens: Vec<TokenId>,
    pub logprobs: Vec<Logprob>,
    /// Log-probabilities of the prompt's tokens, if requested.
    pub scored: Vec<Logprob>,
    pub end: Option<Finish>,
    /// The stop string that ended the answer.
    pub stop: Option<String>,
    pub prompt: usize,
    pub cached: usize,
    pub answer: usize,
}

impl Choice {
    /// Returns true if the maximum number of tokens or a full context ended the answer.
    pub fn is_cut(&self) -> bool {
        self.end == Some(Finish::Length)
    }

    /// Upper bound for the bytes of the answer's JSON.
    pub fn bytes(&self) -> usize {
        let tokens = self.logprobs.iter().chain(&self.scored).map(|logprob| 100 * (1 + logprob.top.len()));
        self.text.len() + 12 * self.tokens.len() + tokens.sum::<usize>()
    }

    /// Applies an event of a streamed answer: keeps only the text, tokens and log-probabilities of this event, which
    /// are sent at once. Returns true for the last event.
    pub fn next(&mut self, event: Event) -> Result<bool, AnswerError> {
        self.text.clear();
        self.tokens.clear();
        self.logprobs.clear();
        self.scored.clear();
        self.take(event)
    }

    /// Applies an event. Returns true for the last event.
    pub fn take(&mut self, event: Event) -> Result<bool, AnswerError> {
        match event {
            Event::Prompt(scored) => {
                self.scored = scored;
                Ok(false)
            }
            Event::Token { id, text, logprob } => {
                self.tokens.push(id);
                self.text += &text;
                self.logprobs.extend(logprob);
                Ok(false)
            }
            Event::Done { end, stop, text, prompt, cached, answer } => {
                self.text += &text;
                self.stop = stop;
                (self.end, self.prompt, self.cached, self.answer) = (Some(end), prompt, cached, answer);
                Ok(true)
            }
            Event::Failed(message) => Err(AnswerError::Failed(message)),
            Event::Overflow => Err(AnswerError::Overflow),
        }
    }

    /// Returns the `finish_reason` of an answer in a chat.
    pub fn finish(&self, has_calls: bool) -> &'static str {
        match self.end.unwrap_or(Finish::Stop) {
            Finish::Stop if has_calls => "tool_calls",
            end => end.name(),
        }
    }
}

/// An answer, split into content, thoughts and calls.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parts {
    pub content: String,
    pub reasoning: String,
    pub calls: Vec<Call>,
}

impl Parts {
    pub fn add(&mut self, part: Part) {
        match part {
            Part::Content(text) => self.content += &text,
            Part::Thought(text) => self.reasoning += &text,
            Part::Call(call) => self.calls.push(call),
        }
    }
}

impl Prepared {
    /// Splits an answer into content, thoughts and calls.
    pub fn parts(&self, index: usize, choice: &Choice) -> Parts {
        let mut reader = self.reader(index);
        let (mut list, mut parts) = (Vec::new(), Parts::default());
        reader.push(&choice.text, &mut list);
        reader.finish(&mut list, choice.is_cut());
        list.into_iter().for_each(|part| parts.add(part));
        parts
    }
}
