//! A conversation with its session: the messages, and the tokens that the context already has.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use arenite::grammar::{Constraint, Grammar};
use arenite::sampler::Sampler;
use arenite::tokenizer::{Decoder, Tokenizer};
use arenite::{Session, TokenId};
use minijinja::value::Value;

use super::conversation::Style;
use super::dialect::{Call, Gate, Part, ThoughtBudget, Tools, shown};
use super::guard::Prompt;
use super::render::{Arguments, Renderer, content};
use crate::generation::{self, End, Request};
use crate::grammar::MaskMemory;
use crate::rng::AnyRng;
use crate::text_request::Message;
use crate::{runtime, text};

/// Settings of every answer.
pub struct Rules {
    /// Maximum number of tokens of an answer.
    pub limit: Option<usize>,
    /// Texts that end an answer.
    pub stops: Vec<String>,
    /// Tokens that end an answer, in addition to the vocabulary's own.
    pub stop_ids: Vec<TokenId>,
    /// True if the oldest exchanges are dropped when the context is full.
    pub shift: bool,
    /// Tokens per pass; Ctrl-C is checked between passes.
    pub step: usize,
    /// A compiled grammar for every answer; it applies after the thought.
    pub form: Option<Vec<u8>>,
    /// Maximum number of tokens of a thought.
    pub thought_budget: Option<usize>,
}

/// Counts and times of an answer.
#[derive(Clone, Copy, Debug)]
pub struct Stats {
    /// Tokens of the prompt that were already in the context.
    pub kept: usize,
    /// The other tokens of the prompt.
    pub prefilled: usize,
    pub prefill: Duration,
    pub decoded: usize,
    pub decode: Duration,
    pub end: End,
}

/// A conversation and its session.
pub struct Talk<'a, 'm, 'w> {
    pub session: Session<'m, 'w>,
    pub sampler: Sampler<'a>,
    pub rng: AnyRng,
    pub tokenizer: &'a Tokenizer<'a, 'a>,
    pub renderer: Renderer,
    pub style: Style,
    /// The declared functions, as JSON schemas and as parsed for the reader of answers.
    pub declared: Vec<serde_json::Value>,
    /// Variables of the template.
    pub kwargs: serde_json::Map<String, serde_json::Value>,
    pub tools: Arc<Tools>,
    pub rules: Rules,
    /// All messages: `{role, content}` and the other fields of a loaded conversation.
    pub messages: Vec<Value>,
    /// Tokens of the last prompt and its answer. The context has the tokens before the session's position.
    pub known: Vec<TokenId>,
    /// The text of `known`, if it contains the whole answer.
    pub known_text: Option<String>,
    pub last: Option<Stats>,
    /// Calls of the last answer that still need results.
    pub calls: Vec<Call>,
}

/// Makes a message with the fields `role` and `content`.
pub fn message(role: &str, content: &str) -> Value {
    Value::from_pairs([("role", role), ("content", content)])
}

fn is_from(message: &Value, role: &str) -> bool {
    message.get_attr("role").is_ok_and(|who| who.as_str() == Some(role))
}

impl Talk<'_, '_, '_> {
    /// Generates the answer to the last message and adds it to the conversation. `show` is called with the prompt
    /// first, then with each part of the answer.
    pub fn answer(&mut self, mut show: impl FnMut(ChatEvent<'_>) -> Result<()>) -> Result<Stats> {
        let mut answered: Vec<TokenId> = Vec::new();
        let opening = self.renderer.opening(&self.messages);
        let mut said = opening.clone().unwrap_or_default();
        let mut stats: Option<Stats> = None;
        loop {
            let (prompt, mut ids) = self.fitting_prompt(answered.len())?;
            if answered.is_empty() {
                show(ChatEvent::Prompt(&prompt.text))?;
                opening.as_deref().map_or(Ok(()), |opening| show(ChatEvent::Answer(opening)))?;
            }
            ids.extend(&answered);
            let kept = runtime::rewind_to(&mut self.session, &self.known, &ids)?;
            self.sampler.reset();
            ids[..kept].iter().for_each(|id| self.sampler.accept(*id));
            let grammar = self.rules.form.as_deref().map(Grammar::new).transpose()?;
            let mut memory = grammar.as_ref().map(|_| MaskMemory::new(self.tokenizer));
            let mut masks = memory.as_mut().map(|memory| memory.masks(self.tokenizer)).transpose()?;
            // If the answer continues because older turns were dropped, its thought is over.
            let is_start = answered.is_empty();
            let gate = if is_start && grammar.is_some() { self.style.thought_gate(&prompt.text) } else { None };
            let budget = self.rules.thought_budget.filter(|_| is_start);
            let reader = || self.style.reader(&self.tools, &prompt.text);
            let request = Request {
                prompt: &ids[kept..],
                text: Some((self.tokenizer, decoder_after(self.tokenizer, &ids)?)),
                limit: self.rules.limit.map(|limit| limit.saturating_sub(answered.len())),
                stops: &self.rules.stops,
                stop_ids: &self.rules.stop_ids,
                ignore_end: false,
                constraint: grammar.map(Constraint::new).zip(masks.as_mut()),
                marks: Some(&self.style.marks),
                gate: gate.map(Gate::new),
                thoughts: budget.map(|budget| ThoughtBudget::new(reader(), budget)),
                guesser: None,
                step: self.rules.step,
            };
            let outcome = generation::run(&mut self.session, &mut self.sampler, &mut self.rng, request, |text| {
                said += text;
                show(ChatEvent::Answer(text))
            })?;
            let turn = stats.get_or_insert(Stats {
                kept,
                prefilled: ids.len() - kept,
                prefill: outcome.prefill,
                decoded: 0,
                decode: Duration::ZERO,
                end: outcome.end,
            });
            turn.decoded += outcome.ids.len();
            turn.decode += outcome.decode;
            turn.end = outcome.end;
            let stats = *turn;
            answered.extend(&outcome.ids);
            ids.extend(&outcome.ids);
            self.known = ids;
            if outcome.end == End::Context && self.rules.shift && self.forget_oldest() {
                continue;
            }
            let calls = self.calls(&prompt.text, &said);
            let said = shown(&said);
            // A stop text is among the tokens but not in the answer.
            self.known_text = (outcome.end != End::Stop && opening.is_none()).then(|| prompt.text + &said);
            self.last = Some(stats);
            match outcome.end {
                // No token was generated: the question is removed.
                End::Interrupted if answered.is_empty() && self.unsay() => {}
                _ if !calls.1.is_empty() => {
                    self.known_text = None;
                    self.messages.push(call_message(self.turns() + 1, &calls.0, &calls.1)?);
                    self.calls = calls.1;
                }
                _ => self.messages.push(message("assistant", &said)),
            }
            return Ok(stats);
        }
    }

    /// Renders the prompt for `messages`. If functions are declared, calls and results are converted for the template.
    fn rendered(&self, messages: &[Value]) -> Prompt {
        let plain = |message: &Value| Message::of(&serde_json::to_value(message).unwrap_or_default());
        let plain: Result<Vec<Message>, String> = messages.iter().map(plain).collect();
        let prompt = plain.and_then(|messages| {
            let conversation = self.style.conversation(&messages, &self.declared);
            self.style.prompt(&self.renderer, conversation, &self.kwargs, false)
        });
        prompt.map_or_else(|_| self.renderer.prompt(messages, &Arguments::default()), |(prompt, _)| prompt)
    }

    /// Returns the content and the calls of an answer; without declared functions there are no calls.
    fn calls(&self, prompt: &str, said: &str) -> (String, Vec<Call>) {
        let (mut content, mut calls, mut parts) = (String::new(), Vec::new(), Vec::new());
        if self.tools.is_empty() {
            return (content, calls);
        }
        let mut reader = self.style.reader(&self.tools, prompt);
        reader.push(said, &mut parts);
        reader.finish(&mut parts, false);
        for part in parts {
            match part {
                Part::Content(text) => content += &text,
                Part::Call(call) => calls.push(call),
                Part::Thought(_) => {}
            }
        }
        (content, calls)
    }

    /// Adds the result of a call to the conversation.
    pub fn add_result(&mut self, call: &Call, index: usize, result: &str) {
        self.known_text = None;
        let id = call_id(self.turns(), index);
        self.messages.push(Value::from_pairs([
            ("role", "tool"),
            ("name", call.name.as_str()),
            ("tool_call_id", id.as_str()),
            ("content", result),
        ]));
    }

    /// Returns the prompt of the conversation, shortened to fit the context if that is enabled.
    fn fitting_prompt(&mut self, more: usize) -> Result<(Prompt, Vec<TokenId>)> {
        loop {
            let prompt = self.prompt();
            let ids = self.ids(&prompt)?;
            let (needed, context) = (ids.len() + more, self.session.context());
            if needed < context {
                return Ok((prompt, ids));
            }
            if !(self.rules.shift && self.forget_oldest()) {
                bail!(
                    "the context is full: the conversation takes {needed} of {context} positions; \
                     /reset begins anew, --shift forgets the oldest turns, -c {} or more gives a larger context",
                    needed + 1
                );
            }
        }
    }

    /// The prompt of the conversation.
    fn prompt(&mut self) -> Prompt {
        let prompt = self.rendered(&self.messages);
        let Some(known) = &self.known_text else { return prompt };
        let last = self.messages.iter().rposition(|message| is_from(message, "assistant"));
        if let (false, Some(last)) = (prompt.text.starts_with(known.as_str()), last)
            && let Some(said) = content(&self.messages[last]).strip_prefix(' ')
        {
            // If the template writes a space before an answer, the answer's own first space is dropped.
            let mut messages = self.messages.clone();
            messages[last] = message("assistant", said);
            let without = self.rendered(&messages);
            if without.text.starts_with(known.as_str()) {
                self.messages = messages;
                return without;
            }
        }
        prompt
    }

    /// Encodes a prompt. If the prompt continues after the last answer, the answer's own tokens are kept, because
    /// encoding the answer's text may give other tokens.
    fn ids(&self, prompt: &Prompt) -> Result<Vec<TokenId>> {
        match &self.known_text {
            Some(known) if prompt.text.len() > known.len() && prompt.text.starts_with(known.as_str()) => {
                let mut ids = self.known.clone();
                ids.extend(prompt.encode_after(known.len(), self.tokenizer)?);
                Ok(ids)
            }
            _ => prompt.encode(self.tokenizer),
        }
    }

    /// Drops the first exchange after the system message, but not the last exchange.
    fn forget_oldest(&mut self) -> bool {
        let users: Vec<_> = (0..self.messages.len()).filter(|at| is_from(&self.messages[*at], "user")).collect();
        let [first, second, ..] = users[..] else { return false };
        self.messages.drain(first..second);
        self.known_text = None;
        true
    }

    /// Drops all messages but the system message, and all tokens.
    pub fn reset(&mut self) -> Result<()> {
        self.messages.retain(|message| is_from(message, "system"));
        self.forget_context()
    }

    /// Replaces the conversation.
    pub fn load(&mut self, messages: Vec<Value>) -> Result<()> {
        self.messages = messages;
        self.known_text = None;
        Ok(())
    }

    fn forget_context(&mut self) -> Result<()> {
        self.known.clear();
        self.known_text = None;
        Ok(self.session.rewind(0)?)
    }

    /// Sets the system message to `text`.
    pub fn set_system(&mut self, text: &str) {
        if self.messages.first().is_some_and(|first| is_from(first, "system")) {
            self.messages.remove(0);
        }
        if !text.is_empty() {
            self.messages.insert(0, message("system", text));
        }
        self.known_text = None;
    }

    pub fn say(&mut self, text: &str) {
        self.messages.push(message("user", text));
    }

    /// Removes the last answer. Returns false if there is none.
    pub fn take_back_answer(&mut self) -> bool {
        let is_answer = self.messages.last().is_some_and(|last| is_from(last, "assistant"));
        if is_answer {
            self.messages.pop();
            self.known_text = None;
        }
        is_answer
    }

    /// Returns true if the last message has no answer yet.
    pub fn waits(&self) -> bool {
        self.messages.last().is_some_and(|last| is_from(last, "user") || is_from(last, "tool"))
    }

    /// Removes the last question. Returns false if there is none.
    pub fn unsay(&mut self) -> bool {
        let is_question = self.messages.last().is_some_and(|last| is_from(last, "user"));
        if is_question {
            self.messages.pop();
        }
        is_question
    }

    /// Number of answers by the model.
    pub fn turns(&self) -> usize {
        self.messages.iter().filter(|message| is_from(message, "assistant")).count()
    }
}

/// Makes a call identifier: nine characters, as some templates require.
fn call_id(turn: usize, index: usize) -> String {
    format!("c{:05}{:03}", turn % 100_000, index % 1000)
}

/// The message of an answer with calls, in OpenAI's format.
fn call_message(turn: usize, content: &str, calls: &[Call]) -> Result<Value> {
    let call = |(index, call): (usize, &Call)| {
        let function = serde_json::json!({ "name": call.name, "arguments": call.arguments });
        serde_json::json!({ "id": call_id(turn, index), "type": "function", "function": function })
    };
    let calls: Vec<_> = calls.iter().enumerate().map(call).collect();
    Ok(serde_json::from_value(serde_json::json!({ "role": "assistant", "content": content, "tool_calls": calls }))?)
}

/// An event while an answer is generated.
pub enum ChatEvent<'a> {
    Prompt(&'a str),
    Answer(&'a str),
}

/// Returns a decoder that continues after `ids`.
fn decoder_after(tokenizer: &Tokenizer<'_, '_>, ids: &[TokenId]) -> Result<Decoder> {
    let mut decoder = tokenizer.decoder();
    let mut before = String::new();
    for &id in ids {
        text::push(&mut decoder, id, tokenizer, &mut before)?;
    }
    Ok(decoder)
}
