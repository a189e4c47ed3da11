//! Chat requests: the prompt, the functions, and the constraint of the answer.

use std::sync::Arc;

use arenite::TokenId;
use serde_json::{Map, Value};

use super::grammars::Source;
use super::request::Settings;
use super::service::{Prepared, Service};
use crate::chat::Prompt;
use crate::chat::dialect::{Constraint, GateSettings, Own, ThoughtBudget, ThoughtForm, Tools, unwrapped};
use crate::grammar;
use crate::text_request::{Form, Message, Must, Named, Refusal, TextRequest};

impl Service {
    /// Returns the prompt of a chat; completes the settings and `prepared`.
    pub fn chat(
        &self,
        request: &TextRequest,
        settings: &mut Settings,
        prepared: &mut Prepared,
    ) -> Result<(String, Vec<TokenId>), Refusal> {
        prepared.tools = Arc::new(Tools::of(&request.tools));
        let is_form = |form: &Named<Form>| !matches!(form.value, Form::Gbnf(_));
        prepared.is_schema = request.form.as_ref().is_some_and(is_form);
        let (prompt, warning) = self.chat_prompt(request, settings)?;
        prepared.warning = warning;
        if request.kept_tokens(0) == usize::MAX {
            self.check_len("messages", &prompt.text)?;
        }
        let mut ids = request.context.clone();
        ids.extend(self.ids(&prompt, ids.is_empty())?);
        settings.marks = Some(self.style.marks.clone()).filter(|marks| !marks.is_empty());
        for stop in settings.stops.clone() {
            let resolved = self.style.marks.resolve(&stop);
            if resolved != stop {
                settings.stops.push(resolved);
            }
        }
        let must = &request.choice.must;
        let is_free = matches!(must, Must::Auto | Must::Never);
        settings.table = self.chat_form(request, prepared)?;
        // Without a budget, a thought before a constrained answer gets half of the available tokens.
        let room = self.context.saturating_sub(ids.len());
        let half = settings.table.is_some().then(|| settings.limit.unwrap_or(room).min(room) / 2);
        let budget = match request.thinking.budget {
            Some(budget) => usize::try_from(budget).ok(),
            None if self.is_quiet(request) => Some(0),
            None => half,
        };
        let is_strict = is_free && settings.table.is_none() && prepared.tools.0.iter().any(|tool| tool.strict);
        let has_grammar = is_strict || settings.table.is_some();
        settings.gate = if has_grammar { self.style.thought_gate(&prompt.text) } else { None };
        let reader = || self.style.reader(&prepared.tools, &prompt.text);
        settings.thoughts = budget.map(|budget| ThoughtBudget::new(reader(), budget));
        if is_strict {
            self.strict_calls(settings, prepared)?;
        }
        Ok((prompt.text, ids))
    }

    /// Returns the tokens of a prompt. Only the first prompt in a context begins with BOS.
    fn ids(&self, prompt: &Prompt, is_first: bool) -> Result<Vec<TokenId>, Refusal> {
        let ids = match is_first {
            true => prompt.encode(self.tokenizer()),
            false => prompt.encode_after(0, self.tokenizer()),
        };
        ids.map_err(|error| Refusal::invalid(error.to_string()))
    }

    /// Returns true if the request turns thoughts off. A model that always thinks then gets a closed thought.
    fn is_quiet(&self, request: &TextRequest) -> bool {
        let thinking = &request.thinking;
        let is_off = thinking.effort.as_ref().is_some_and(|effort| effort.value == "none");
        is_off || thinking.wish == Some(false) || thinking.switch.as_ref().is_some_and(|switch| !switch.value)
    }

    /// Returns the rendered conversation, and a warning for the client.
    fn chat_prompt(
        &self,
        request: &TextRequest,
        settings: &mut Settings,
    ) -> Result<(Prompt, Option<&'static str>), Refusal> {
        let (messages, continues) = self.continued(request)?;
        let conversation = self.style.conversation(messages, &request.tools);
        let kwargs = self.kwargs(request)?;
        let rendered = self.style.prompt(&self.renderer, conversation, &kwargs, continues);
        let (prompt, warning) = rendered
            .map_err(|why| Refusal::about("messages", format!("the chat template refuses this conversation: {why}")))?;
        let stop = self.renderer.stop();
        // A stop string that also ends thoughts does not end the answer.
        let ends_thought = |form: &ThoughtForm<String>| unwrapped(&form.close) == stop;
        if !stop.is_empty() && !self.style.dialect.thoughts.iter().any(ends_thought) {
            settings.stops.push(stop.into());
        }
        Ok((prompt, warning))
    }

    /// Returns the messages, and true if the answer continues the last one. An empty start is left out.
    fn continued<'r>(&self, request: &'r TextRequest) -> Result<(&'r [Message], bool), Refusal> {
        let messages = request.messages();
        let Some((last, before)) = messages.split_last().filter(|_| request.continues) else {
            return Ok((messages, false));
        };
        if !last.calls.is_empty() || last.text.as_deref().is_none_or(|text| text.trim().is_empty()) {
            return match last.calls.is_empty() && last.thought.is_none() && !before.is_empty() {
                true => Ok((before, false)),
                false => Err(Refusal::about("messages", "only the text of an answer can be continued")),
            };
        }
        if let Some((field, _)) = request.schema() {
            let message = format!("{field}: a started answer cannot be continued by a value: leave one out");
            return Err(Refusal::about(field, message));
        }
        Ok((messages, true))
    }

    /// Returns the template's variables that the request sets.
    fn kwargs(&self, request: &TextRequest) -> Result<Map<String, Value>, Refusal> {
        let (thinking, style) = (&request.thinking, &self.style);
        let mut kwargs = Map::new();
        if let Some(hint) = &thinking.hint {
            kwargs.extend(style.effort(hint).unwrap_or_default());
        }
        if let Some(Named { field, value: effort }) = &thinking.effort {
            kwargs.extend(match (effort.as_str(), style.effort(effort)) {
                (_, Some(variables)) => variables,
                // Without switches in the template, the model always or never thinks: "medium" is its normal behaviour,
                // and "none" gets a closed thought.
                ("medium" | "none", None) => Map::new(),
                (_, None) => return Err(Refusal::unsupported(field)),
            });
        }
        if let Some(is_on) = thinking.wish {
            kwargs.extend(style.thinking(is_on).unwrap_or_default());
        }
        if thinking.budget == Some(0) {
            kwargs.extend(style.thinking(false).unwrap_or_default());
        }
        if let Some(Named { field, value: is_on }) = thinking.switch {
            match style.thinking(is_on) {
                Some(variables) => kwargs.extend(variables),
                None if !is_on => {}
                None => return Err(Refusal::unsupported(field)),
            }
        }
        let documents = request.arguments.get("documents").filter(|documents| !documents.is_null());
        if documents.is_some() && !self.source().contains("documents") {
            return Err(Refusal::unsupported("documents"));
        }
        kwargs.extend(request.arguments.clone());
        Ok(kwargs)
    }

    /// Compiles the grammar of a chat's answer; `None` if the answer is not constrained.
    fn chat_form(&self, request: &TextRequest, prepared: &Prepared) -> Result<Option<Arc<[u8]>>, Refusal> {
        let style = &self.style;
        let constraint = Constraint { dialect: &style.dialect, marks: &style.marks };
        let named = match &request.choice.must {
            Must::Auto | Must::Never => {
                // In a dialect with channels or recipients, a schema describes only the last message.
                let in_messages = style.dialect.has_recipients || style.dialect.own == Own::Channels;
                if let (Some((param, schema)), true) = (request.schema(), in_messages) {
                    let table = self.grammars.table(&Source::Pieces(&constraint.content(schema)));
                    return table.map(Some).map_err(|error| Refusal::about(param, format!("{param}: {error:#}")));
                }
                return self.form(request);
            }
            Must::Any => None,
            Must::Named(name) => Some(name),
        };
        let tools = prepared.tools.0.iter();
        let wanted: Vec<_> = tools.filter(|tool| named.is_none_or(|name| *name == tool.name)).collect();
        if wanted.is_empty() {
            return Err(Refusal::about("tool_choice", "there is no such function among the tools"));
        }
        let is_parallel = prepared.is_parallel && named.is_none();
        let table = self.grammars.table(&Source::Pieces(&constraint.calls(&wanted, is_parallel)));
        table.map(Some).map_err(|error| Refusal::about("tools", format!("tools: {error:#}")))
    }

    /// Sets the grammar of calls, which applies after the opening mark of a call.
    fn strict_calls(&self, settings: &mut Settings, prepared: &Prepared) -> Result<(), Refusal> {
        let constraint = Constraint { dialect: &self.style.dialect, marks: &self.style.marks };
        let tools: Vec<_> = prepared.tools.0.iter().collect();
        let Some((until, calls)) = constraint.after_mark(&tools, prepared.is_parallel) else { return Ok(()) };
        let table = self.grammars.table(&Source::Pieces(&calls));
        settings.table = Some(table.map_err(|error| Refusal::about("tools", format!("tools: {error:#}")))?);
        let gate = GateSettings { until, is_thought: false, then: None };
        match &mut settings.gate {
            Some(thought) => thought.then = Some(Box::new(gate)),
            none => *none = Some(gate),
        }
        Ok(())
    }

    /// Compiles the grammar, choice or schema of a request.
    pub fn form(&self, request: &TextRequest) -> Result<Option<Arc<[u8]>>, Refusal> {
        let Some(Named { field, value: form }) = &request.form else { return Ok(None) };
        let table = match form {
            Form::Gbnf(text) => self.grammars.table(&Source::Gbnf(text, self.tokenizer())),
            Form::Choice(texts) => {
                let each = texts.iter().cloned().map(grammar::Piece::Text).collect();
                self.grammars.table(&Source::Pieces(&grammar::Piece::Alt(each)))
            }
            Form::Schema(schema) => self.grammars.table(&Source::Schema(schema)),
        };
        table.map(Some).map_err(|error| Refusal::about(*field, format!("{field}: {error:#}")))
    }
}
