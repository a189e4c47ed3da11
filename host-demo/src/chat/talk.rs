//! A conversation and its session: the messages, and the tokens that are already in the context.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use arenite::tokenizer::Tokenizer;
use arenite::{Session, TokenId};
use base64::Engine;
use base64::prelude::BASE64_STANDARD as STANDARD;
use minijinja::value::Value;

use super::Sources;
use super::dialect::{Call, Part, Reader, Tools, shown};
use crate::cli::{AnswerArgs, Watcher};
use arenite_chat::{Arguments, Ending, Prompt, Renderer, Style, content};
use arenite_grammar::{MaskMemory, Table};
use arenite_pictures::Limits;
use arenite_request::{Message, PictureSource};
use arenite_run::drafts::{DraftCounts, Drafts};
use arenite_run::eyes::Sights;
use arenite_run::generation::{self, End, Generation, Settings, StrictCalls, ThoughtLimit, Wanted, Workbench};
use arenite_run::open_model::OpenModel;
use arenite_run::reuse;
use arenite_run::rng::AnyRng;

/// Settings of every answer.
pub struct Rules {
    /// The settings that do not depend on the prompt.
    pub settings: Settings,
    /// True if the grammar is that of a JSON schema.
    pub is_schema: bool,
    /// The grammar of calls with strict parameters.
    pub strict: Option<(String, Arc<Table>)>,
    pub thoughts: ThoughtLimit,
    /// True if the oldest exchanges are dropped when the context is full.
    pub shift: bool,
    /// Tokens per pass; Ctrl-C is checked between passes.
    pub step: usize,
}

/// Counts and times of an answer.
#[derive(Clone, Copy, Debug)]
pub struct Stats {
    /// Tokens of the prompt that were already in the context.
    pub kept: usize,
    /// Number of tokens of the prompt that were reused although they are at other positions in the earlier
    /// conversation.
    pub reused: usize,
    /// The other tokens of the prompt.
    pub prefilled: usize,
    pub prefill: Duration,
    pub decoded: usize,
    pub decode: Duration,
    pub end: End,
    pub drafts: DraftCounts,
}

/// A conversation and its session.
pub struct Talk<'a, 'm, 'w> {
    pub session: Session<'m, 'w>,
    pub drafts: Drafts<'a>,
    /// Memory for the sampler.
    pub scratch: Vec<u8>,
    pub rng: AnyRng,
    pub tokenizer: &'a Tokenizer<'a, 'a>,
    /// The model, which may see.
    pub open: &'a OpenModel,
    pub renderer: Renderer,
    pub style: Style,
    /// The declared functions, both as JSON schemas and in the parsed form that the reader of answers needs.
    pub declared: Vec<serde_json::Value>,
    /// Variables of the template.
    pub kwargs: serde_json::Map<String, serde_json::Value>,
    pub tools: Arc<Tools>,
    pub rules: Rules,
    /// The options that the rules come from, and `/set` changes.
    pub answers: AnswerArgs,
    /// All messages: `{role, content}` and the other fields of a loaded conversation.
    pub messages: Vec<Value>,
    /// The tokens of the last prompt and of its answer. The context contains the tokens before the session's position.
    pub known: Vec<TokenId>,
    /// The text of `known`, if it contains the whole answer.
    pub known_text: Option<String>,
    pub last: Option<Stats>,
    /// Calls of the last answer that still need results.
    pub calls: Vec<Call>,
    /// Pictures for the next message.
    pub pictures: Vec<PictureSource>,
    /// The index whose passages accompany questions.
    pub sources: Option<Sources>,
}

/// Makes a message with the fields `role` and `content`.
pub fn message(role: &str, content: &str) -> Value {
    Value::from_pairs([("role", role), ("content", content)])
}

/// Makes the part of a content that shows a picture, in OpenAI's format.
fn picture_part(bytes: &[u8]) -> Value {
    let url = format!("data:;base64,{}", STANDARD.encode(bytes));
    Value::from_pairs([("type", Value::from("image_url")), ("image_url", Value::from_pairs([("url", url)]))])
}

fn is_from(message: &Value, role: &str) -> bool {
    message.get_attr("role").is_ok_and(|who| who.as_str() == Some(role))
}

impl Talk<'_, '_, '_> {
    /// Generates the answer to the last message and adds it to the conversation. `show` is called first with the
    /// prompt, and then with each part of the answer.
    pub fn answer(&mut self, mut show: impl FnMut(ChatEvent<'_>) -> Result<()>) -> Result<Stats> {
        let opening = self.renderer.opening(&self.messages);
        let mut said = opening.clone().unwrap_or_default();
        let (mut prompt, Sights { ids, shown: places }) = self.fitting_prompt(0)?;
        let begun = prompt.text.clone();
        show(ChatEvent::Prompt(&begun))?;
        opening.as_deref().map_or(Ok(()), |opening| show(ChatEvent::Answer(opening)))?;
        let settings = Settings { shown: places, ..self.settings(&begun, ids.len()) };
        let mut memory = settings.table.as_ref().map(|_| MaskMemory::new(self.tokenizer));
        let mut masks = memory.as_mut().map(|memory| memory.masks(self.tokenizer)).transpose()?;
        let rng = self.rng.clone();
        let mut generation = Generation::new(Arc::new(settings), &ids, rng, 0, Some(self.tokenizer))?;
        let mut answered = |text: &str| {
            said += text;
            show(ChatEvent::Answer(text))
        };
        let mut stats: Option<Stats> = None;
        let stats = loop {
            let asked = (generation.ids(), generation.shown());
            let least = self.open.options.reuse;
            let (kept, donor) = reuse::rewind_to(&mut self.session, &self.known, asked, least)?;
            let prefilled = generation.ids().len() - kept;
            let context = self.session.context();
            let mut bench = Workbench {
                tokenizer: Some(self.tokenizer),
                masks: masks.as_mut(),
                scratch: &mut self.scratch,
                context,
            };
            let mut watch = Watcher::new(&mut answered);
            let ran = generation::run(
                &mut self.session,
                &mut generation,
                &mut bench,
                &mut self.drafts,
                (self.rules.step, donor),
                &mut watch,
            )?;
            let (decode, end) = (Duration::ZERO, ran.end);
            let drafts = DraftCounts::default();
            let (reused, prefilled) = (ran.reused, prefilled - ran.reused);
            let first = Stats { kept, reused, prefilled, prefill: ran.prefill, decoded: 0, decode, end, drafts };
            let turn = stats.get_or_insert(first);
            (turn.decoded, turn.decode, turn.end) = (generation.answer().len(), turn.decode + ran.decode, end);
            turn.drafts += ran.drafts;
            self.known = generation.ids().to_vec();
            let turn = *turn;
            if !(end == End::Context && self.rules.shift && self.forget_oldest()) {
                break turn;
            }
            let sights;
            (prompt, sights) = self.fitting_prompt(generation.answer().len())?;
            generation.replace_prompt(&sights.ids, sights.shown);
        };
        answered(&generation.rest())?;
        let is_empty = generation.answer().is_empty();
        self.rng = generation.into_rng();
        let calls = self.calls(&begun, &said, stats.end.is_unfinished());
        let said = shown(&said);
        // After a stop string, the known text is dropped, because the session's tokens contain the stop string but the
        // answer does not.
        self.known_text = (stats.end != End::Stop && opening.is_none()).then(|| prompt.text + &said);
        self.last = Some(stats);
        match stats.end {
            // No token was generated: the question is removed.
            End::Interrupted if is_empty && self.unsay() => {}
            _ if !calls.1.is_empty() => {
                self.known_text = None;
                self.messages.push(call_message(self.turns() + 1, &calls.0, &calls.1)?);
                self.calls = calls.1;
            }
            _ => self.messages.push(message("assistant", &said)),
        }
        Ok(stats)
    }

    /// Returns the settings of the answer to a prompt of `len` tokens.
    fn settings(&self, prompt: &str, len: usize) -> Settings {
        let mut settings = self.rules.settings.clone();
        let strict = self.rules.strict.clone().map(|(until, table)| StrictCalls { until, table });
        let room = self.session.context().saturating_sub(len);
        let wanted = Wanted { prompt, tools: &self.tools, thoughts: self.rules.thoughts, room, strict };
        wanted.complete(&self.style, &mut settings);
        settings
    }

    /// Returns the reader of the answer to a prompt.
    pub fn reader(&self, prompt: &str) -> Reader {
        self.style.answer_reader(&self.tools, prompt, self.rules.is_schema, true)
    }

    /// Renders the prompt for a conversation. If the template does not accept the messages as they are, they are
    /// rendered in a form that it accepts.
    fn rendered(&self, messages: &[Value]) -> Prompt {
        let plain = |message: &Value| Message::of(&serde_json::to_value(message).unwrap_or_default());
        let plain: Result<Vec<Message>, String> = messages.iter().map(plain).collect();
        let plain = plain.unwrap_or_default();
        if !plain.is_empty() {
            let conversation = self.style.conversation(&plain, &self.declared);
            if let Ok((prompt, _)) = self.style.prompt(&self.renderer, conversation, &self.kwargs, Ending::Answer) {
                return prompt;
            }
        }
        // The closest format has no places for pictures, so the result is an error if there are pictures.
        let pictures = plain.into_iter().flat_map(|message| message.pictures).map(|picture| picture.source).collect();
        let mut prompt = self.renderer.prompt(messages, &Arguments::default());
        prompt.pictures = pictures;
        prompt
    }

    /// Returns the content and the calls of an answer. If no functions are declared, there are no calls.
    fn calls(&self, prompt: &str, said: &str, is_unfinished: bool) -> (String, Vec<Call>) {
        let (mut content, mut calls, mut parts) = (String::new(), Vec::new(), Vec::new());
        if self.tools.is_empty() {
            return (content, calls);
        }
        let mut reader = self.reader(prompt);
        reader.push(said, &mut parts);
        reader.finish(&mut parts, is_unfinished);
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

    /// Returns the prompt of the conversation, which is shortened to fit the context if shortening is enabled.
    fn fitting_prompt(&mut self, more: usize) -> Result<(Prompt, Sights)> {
        loop {
            let prompt = self.prompt();
            let sights = self.sights(&prompt)?;
            let (needed, context) = (sights.ids.len() + more, self.session.context());
            if needed < context {
                return Ok((prompt, sights));
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
            // If the template writes a space before an answer, the first space of the answer itself is dropped.
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

    /// Encodes a prompt. If the prompt begins with the text of the conversation so far, its known tokens are kept and
    /// only the new text is encoded, because encoding the text of an answer may give other tokens than the model has
    /// generated.
    fn sights(&self, prompt: &Prompt) -> Result<Sights> {
        let goes_on = |known: &&String| prompt.text.len() > known.len() && prompt.text.starts_with(known.as_str());
        let known = self.known_text.as_ref().filter(goes_on);
        if prompt.pictures.is_empty() {
            return Ok(match known {
                Some(known) => [self.known.clone(), prompt.encode_after(known.len(), self.tokenizer)?].concat().into(),
                None => prompt.encode(self.tokenizer)?.into(),
            });
        }
        // Encode the whole prompt, because the text of a prompt does not identify its pictures.
        let eyes = self.open.need_eyes()?;
        eyes.read(prompt, true, self.tokenizer, self.open.machine(Limits::DEFAULT))
    }

    /// Removes the oldest question and all messages up to the next question. Returns false if only one question is
    /// left.
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
        self.pictures.clear();
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

    /// Adds a message of the user, with the pictures that were given for this message and with passages of the index.
    pub fn say(&mut self, text: &str) -> Result<()> {
        let asked = self.sources.as_mut().map(|sources| sources.with_passages(text)).transpose()?;
        let text = asked.as_deref().unwrap_or(text);
        let pictures = std::mem::take(&mut self.pictures);
        if pictures.is_empty() {
            self.messages.push(message("user", text));
            return Ok(());
        }
        let parts = pictures.iter().filter_map(|picture| picture.bytes().ok()).map(|bytes| picture_part(bytes));
        let text = (!text.is_empty()).then(|| Value::from_pairs([("type", "text"), ("text", text)]));
        let content: Vec<Value> = parts.chain(text).collect();
        self.messages.push(Value::from_pairs([("role", Value::from("user")), ("content", content.into())]));
        Ok(())
    }

    /// Prints the sources of the last answer.
    pub fn cite(&self) -> Result<()> {
        let answer = self.messages.last().filter(|last| is_from(last, "assistant") && self.calls.is_empty());
        match (&self.sources, answer) {
            (Some(sources), Some(answer)) => sources.cite(&content(answer)),
            _ => Ok(()),
        }
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

    /// Removes the last question. Returns false if there is no question.
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
