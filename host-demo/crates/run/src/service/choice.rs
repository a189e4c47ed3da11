//! Complete answers.

use arenite::TokenId;
use arenite_chat::{Call, Part, Reader};

use super::Prepared;
use crate::drafts::DraftCounts;
use crate::generation::Logprob;
use crate::scheduler::{Event, Finish, Times};

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
    /// The text of the answer. Delimiters that are tokens are enclosed in noncharacters (see `dialect/marks.rs`).
    pub text: String,
    pub tokens: Vec<TokenId>,
    /// The end in `text` of each token's text.
    pub ends: Vec<usize>,
    pub logprobs: Vec<Logprob>,
    /// Log-probabilities of the prompt's tokens, if requested.
    pub scored: Vec<Logprob>,
    pub end: Option<Finish>,
    /// The stop string that ended the answer.
    pub stop: Option<String>,
    pub prompt: usize,
    pub cached: usize,
    pub answer: usize,
    /// The number of the slot that has the conversation.
    pub slot: usize,
    /// Number of tokens in the context.
    pub read: usize,
    /// True if the context was full.
    pub is_full: bool,
    /// Number of tokens that drafts proposed, and number of them that were accepted.
    pub drafts: DraftCounts,
    /// Set at the end of the answer.
    pub times: Option<Times>,
    /// Number of tokens of thoughts; set when the answer is split into parts.
    pub thought: usize,
}

impl Choice {
    /// Returns true if the maximum number of tokens or a full context ended the answer.
    pub fn is_cut(&self) -> bool {
        self.end == Some(Finish::Length)
    }

    /// Returns true if a limit or a stop string ended the answer before the model did.
    pub fn is_unfinished(&self) -> bool {
        self.is_cut() || self.stop.is_some()
    }

    /// Upper bound for the bytes of the answer's JSON.
    pub fn bytes(&self) -> usize {
        let tokens = self.logprobs.iter().chain(&self.scored).map(|logprob| 100 * (1 + logprob.top.len()));
        self.text.len() + 20 * self.tokens.len() + tokens.sum::<usize>()
    }

    /// Applies an event of a streamed answer: keeps only the text, tokens and log-probabilities of this event, because
    /// they are sent at once. Returns true for the last event.
    pub fn next(&mut self, event: Event) -> Result<bool, AnswerError> {
        self.text.clear();
        self.tokens.clear();
        self.ends.clear();
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
                self.ends.push(self.text.len());
                self.logprobs.extend(logprob);
                Ok(false)
            }
            Event::Done { end, stop, text, prompt, cached, answer, slot, read, is_full, drafts, times } => {
                self.text += &text;
                self.stop = stop;
                (self.end, self.prompt, self.cached, self.answer) = (Some(end), prompt, cached, answer);
                (self.slot, self.read, self.is_full, self.drafts) = (slot, read, is_full, drafts);
                self.times = Some(times);
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
    /// For each token, true if it belongs to a thought.
    pub is_thought: Vec<bool>,
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
    /// Splits an answer into content, thoughts and calls. Counts the tokens of thoughts.
    pub fn parts(&self, index: usize, choice: &mut Choice) -> Parts {
        let mut splitter = self.splitter(index);
        let (mut list, mut parts, mut start) = (Vec::new(), Parts::default(), 0);
        for end in choice.ends.iter().copied() {
            parts.is_thought.push(splitter.push(&choice.text[start..end], 1, &mut list));
            start = end;
        }
        splitter.push(&choice.text[start..], 0, &mut list);
        splitter.reader.finish(&mut list, choice.is_unfinished());
        choice.thought = splitter.thought;
        list.into_iter().for_each(|part| parts.add(part));
        parts
    }

    /// Returns true if an answer without any text may have ended inside of its first call. Such an answer gets no empty
    /// text, because other servers refuse empty texts in a conversation.
    pub fn may_end_in_call(&self, choice: &Choice) -> bool {
        choice.is_unfinished() && !self.tools.0.is_empty()
    }

    /// Returns a splitter for an answer.
    pub fn splitter(&self, index: usize) -> Splitter {
        Splitter { reader: self.reader(index), thought: 0 }
    }
}

/// Splits an answer into parts while it arrives, and counts the tokens of thoughts.
pub struct Splitter {
    reader: Reader,
    thought: usize,
}

impl Splitter {
    /// Adds the text of `tokens` tokens. Returns true if these tokens belong to a thought; the delimiters of a thought
    /// belong to it, too.
    fn push(&mut self, text: &str, tokens: usize, parts: &mut Vec<Part>) -> bool {
        let before = self.reader.is_thinking();
        self.reader.push(text, parts);
        let is_thought = before || self.reader.is_thinking();
        self.thought += if is_thought { tokens } else { 0 };
        is_thought
    }

    /// Adds an event of a streamed answer. Returns true if its token belongs to a thought.
    pub fn next(&mut self, choice: &mut Choice, is_end: bool, parts: &mut Vec<Part>) -> bool {
        let is_thought = self.push(&choice.text, choice.tokens.len(), parts);
        if is_end {
            self.reader.finish(parts, choice.is_unfinished());
        }
        choice.thought = self.thought;
        is_thought
    }
}
