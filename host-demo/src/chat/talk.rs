//! A conversation at work: what was said, and what of it is in the context.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use arenite::grammar::{Constraint, Grammar};
use arenite::sampler::Sampler;
use arenite::tokenizer::{Decoder, Tokenizer};
use arenite::{Session, TokenId};
use minijinja::value::Value;

use super::conversation::Style;
use super::dialect::{Call, Gate, Part, Tools, shown};
use super::guard::Prompt;
use super::render::{Renderer, content};
use crate::cli::AnyRng;
use crate::generation::{self, End, Request};
use crate::grammar::MaskMemory;
use crate::text;

/// What holds for every answer.
pub struct Rules {
    /// Most tokens of an answer.
    pub limit: Option<usize>,
    /// Texts that end it.
    pub stops: Vec<String>,
    /// Tokens that end it, in addition to the vocabulary's own.
    pub stop_ids: Vec<TokenId>,
    /// Whether the oldest exchanges are forgotten when the context is full.
    pub shift: bool,
    /// Tokens to take in between two looks at Ctrl-C.
    pub step: usize,
    /// A compiled grammar of every answer; it holds after the thought.
    pub form: Option<Vec<u8>>,
    /// Maximum number of tokens of a thought.
    pub thought_budget: Option<usize>,
}

/// What an answer took.
#[derive(Clone, Copy, Debug)]
pub struct Stats {
    /// Tokens of the prompt that were in the context already, and those that were not.
    pub kept: usize,
    pub prefilled: usize,
    pub prefill: Duration,
    pub decoded: usize,
    pub decode: Duration,
    pub end: End,
}

/// A conversation, and the session that it runs in.
pub struct Talk<'a, 'm, 'w> {
    pub session: Session<'m, 'w>,
    pub sampler: Sampler<'a>,
    pub rng: AnyRng,
    pub tokenizer: &'a Tokenizer<'a, 'a>,
    pub renderer: Renderer,
    /// How the model converses.
    pub style: Style,
    /// The functions that may be called, as they are declared and as they are read in answers.
    pub declared: Vec<serde_json::Value>,
    pub tools: Arc<Tools>,
    pub rules: Rules,
    /// Everything that was said: `{role, content}` and what else a loaded conversation has.
    pub messages: Vec<Value>,
    /// The tokens of the last prompt and its answer; the session has run those before its position.
    pub known: Vec<TokenId>,
    /// Their text, where the answer is in it whole.
    pub known_text: Option<String>,
    pub last: Option<Stats>,
    /// The calls of the last answer, until they have results.
    pub calls: Vec<Call>,
}

/// `{role, content}`.
pub fn message(role: &str, content: &str) -> Value {
    Value::from_pairs([("role", role), ("content", content)])
}

fn is_from(message: &Value, role: &str) -> bool {
    message.get_attr("role").is_ok_and(|who| who.as_str() == Some(role))
}

impl Talk<'_, '_, '_> {
    /// Answers what was said last; the answer becomes part of the conversation. `show` is first called with the
    /// prompt, then with the answer as it comes.
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
            let kept = self.rewind_to(&ids)?;
            self.sampler.reset();
            ids[..kept].iter().for_each(|id| self.sampler.accept(*id));
            let (table, budget) = (self.rules.form.as_deref(), self.rules.thought_budget);
            let grammar = table.map(Grammar::new).transpose()?;
            let mut memory = grammar.as_ref().map(|_| MaskMemory::new(self.tokenizer));
            let mut masks = memory.as_mut().map(|memory| memory.masks(self.tokenizer)).transpose()?;
            let gate = match answered.is_empty() {
                true => self.style.thought_gate(self.tokenizer, &prompt.text, budget, grammar.is_some())?,
                false => None,
            };
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
            // A stop text is in the tokens and not in the answer.
            self.known_text = (outcome.end != End::Stop && opening.is_none()).then(|| prompt.text + &said);
            self.last = Some(stats);
            match outcome.end {
                // Nothing was said: the question is as if it had not been asked.
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

    /// The prompt of messages. With functions, calls and results are put as the template takes them.
    fn rendered(&self, messages: &[Value]) -> Prompt {
        if self.tools.is_empty() {
            return self.renderer.prompt(messages);
        }
        let plain = messages.iter().map(serde_json::to_value).collect::<Result<Vec<_>, _>>().unwrap_or_default();
        match self.style.conversation(&plain, &self.declared) {
            Ok(conversation) => {
                let value = |message| serde_json::from_value::<Value>(message).unwrap_or_default();
                self.renderer.prompt(&conversation.messages.into_iter().map(value).collect::<Vec<_>>())
            }
            Err(_) => self.renderer.prompt(messages),
        }
    }

    /// The content and the calls of an answer; no calls where no functions are declared.
    fn calls(&self, prompt: &str, said: &str) -> (String, Vec<Call>) {
        let (mut content, mut calls, mut parts) = (String::new(), Vec::new(), Vec::new());
        if self.tools.is_empty() {
            return (content, calls);
        }
        let mut reader = self.style.reader(&self.tools, prompt);
        reader.push(said, &mut parts);
        reader.finish(&mut parts);
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

    /// The prompt of the conversation, shortened to what the context has room for, if that is wanted.
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
                     /reset begins anew, --shift forgets the oldest turns, -c gives a larger context"
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
            // Where the template itself puts a space before an answer, the one that the model has put is it.
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

    /// The tokens of a prompt. Where it goes on after the last answer the answer keeps its own tokens: they need
    /// not be those that its text would have.
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

    /// Takes the session back to where `ids` and its context part, and gives the place.
    fn rewind_to(&mut self, ids: &[TokenId]) -> Result<usize> {
        let same = ids.iter().zip(&self.known).take_while(|(a, b)| a == b).count();
        // The last token has to run: its logits are wanted.
        let kept = same.min(self.session.position()).min(ids.len().saturating_sub(1));
        if self.session.rewind(kept).is_ok() {
            return Ok(kept);
        }
        // A sliding window has forgotten what came before.
        self.session.rewind(0)?;
        Ok(0)
    }

    /// Drops the first exchange after the system's message, never the last one.
    fn forget_oldest(&mut self) -> bool {
        let users: Vec<_> = (0..self.messages.len()).filter(|at| is_from(&self.messages[*at], "user")).collect();
        let [first, second, ..] = users[..] else { return false };
        self.messages.drain(first..second);
        self.known_text = None;
        true
    }

    /// Forgets everything but the system's message.
    pub fn reset(&mut self) -> Result<()> {
        self.messages.retain(|message| is_from(message, "system"));
        self.forget_context()
    }

    /// Takes another conversation's place.
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

    /// Puts `text` in the place of the system's message.
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

    /// Takes the last answer back; whether there was one.
    pub fn take_back_answer(&mut self) -> bool {
        let is_answer = self.messages.last().is_some_and(|last| is_from(last, "assistant"));
        if is_answer {
            self.messages.pop();
            self.known_text = None;
        }
        is_answer
    }

    /// Whether the last message waits for an answer.
    pub fn waits(&self) -> bool {
        self.messages.last().is_some_and(|last| is_from(last, "user") || is_from(last, "tool"))
    }

    /// Takes the last question back; whether there was one.
    pub fn unsay(&mut self) -> bool {
        let is_question = self.messages.last().is_some_and(|last| is_from(last, "user"));
        if is_question {
            self.messages.pop();
        }
        is_question
    }

    /// How many times the model has answered.
    pub fn turns(&self) -> usize {
        self.messages.iter().filter(|message| is_from(message, "assistant")).count()
    }
}

/// The identifier of a call: nine characters, as some templates demand.
fn call_id(turn: usize, index: usize) -> String {
    format!("c{:05}{:03}", turn % 100_000, index % 1000)
}

/// An answer that is calls, in OpenAI's form.
fn call_message(turn: usize, content: &str, calls: &[Call]) -> Result<Value> {
    let call = |(index, call): (usize, &Call)| {
        let function = serde_json::json!({ "name": call.name, "arguments": call.arguments });
        serde_json::json!({ "id": call_id(turn, index), "type": "function", "function": function })
    };
    let calls: Vec<_> = calls.iter().enumerate().map(call).collect();
    Ok(serde_json::from_value(serde_json::json!({ "role": "assistant", "content": content, "tool_calls": calls }))?)
}

/// A step of an answer.
pub enum ChatEvent<'a> {
    Prompt(&'a str),
    Answer(&'a str),
}

/// A decoder that goes on after `ids`.
fn decoder_after(tokenizer: &Tokenizer<'_, '_>, ids: &[TokenId]) -> Result<Decoder> {
    let mut decoder = tokenizer.decoder();
    let mut before = String::new();
    for &id in ids {
        text::push(&mut decoder, id, tokenizer, &mut before)?;
    }
    Ok(decoder)
}
