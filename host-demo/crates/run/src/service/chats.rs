//! Chat requests: the prompt, the functions, and the constraint of the answer.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::grammars::Source;
use super::loosen::loosened;
use super::{Prepared, Service};
use crate::eyes::Sights;
use crate::generation::{Settings, StrictCalls, ThoughtLimit, Wanted};
use arenite_chat::dialect::{Tool, Tools};
use arenite_chat::{Ending, Prompt};
use arenite_grammar::{self as grammar, Piece, Table};
use arenite_request::{Form, Message, Must, Named, Refusal, TextRequest};
use arenite_text as text;

/// The grammar of the empty text.
const NOTHING: Piece = Piece::Text(String::new());

/// Returns the functions that an answer may call instead of following the request's JSON schema. If the request demands
/// or forbids calls, there are none.
fn callable<'t>(request: &TextRequest, tools: &'t Tools) -> Vec<&'t Tool> {
    match request.choice.must {
        Must::Auto => tools.0.iter().collect(),
        _ => Vec::new(),
    }
}

impl Service {
    /// Returns the prompt of a chat, and completes `settings` and `prepared`.
    pub fn chat(
        &self,
        request: &TextRequest,
        settings: &mut Settings,
        prepared: &mut Prepared,
    ) -> Result<(String, Sights), Refusal> {
        prepared.tools = Arc::new(Tools::of(&request.tools));
        let is_form = |form: &Named<Form>| !matches!(form.value, Form::Gbnf(_));
        prepared.is_schema = request.form.as_ref().is_some_and(is_form);
        let (prompt, warning) = self.chat_prompt(request, settings, prepared)?;
        warning.into_iter().for_each(|warning| prepared.warn(warning));
        if request.kept_tokens(0) == usize::MAX && !request.is_counted {
            self.check_len("messages", &prompt.text)?;
        }
        let text = prompt.text.clone();
        let sights = self.sights("messages", prompt, request.context.is_empty())?.after(request.context.clone());
        let is_free = matches!(request.choice.must, Must::Auto | Must::Never);
        settings.table = self.chat_form(request, prepared)?;
        // A schema alone restricts line breaks to what the model writes first. If calls are possible, this does not
        // apply, because a call may need line breaks that are not the model's first choice.
        settings.is_json = is_free
            && request.schema().is_some()
            && !self.style.is_in_messages()
            && callable(request, &prepared.tools).is_empty();
        let strict = if is_free && settings.table.is_none() { self.strict_calls(prepared)? } else { None };
        let thoughts = ThoughtLimit::of(&request.thinking);
        let room = self.context.saturating_sub(sights.ids.len());
        let wanted = Wanted { prompt: &text, tools: &prepared.tools, thoughts, room, strict };
        wanted.complete(&self.style, settings);
        Ok((text, sights))
    }

    /// Returns the rendered conversation, and a warning for the client.
    fn chat_prompt(
        &self,
        request: &TextRequest,
        settings: &mut Settings,
        prepared: &mut Prepared,
    ) -> Result<(Prompt, Option<&'static str>), Refusal> {
        let (messages, ending) = self.ending(request)?;
        let conversation = self.style.conversation(messages, &request.tools);
        let kwargs = self.kwargs(request, prepared)?;
        let rendered = self.style.prompt(&self.renderer, conversation, &kwargs, ending);
        let (prompt, warning) = rendered
            .map_err(|why| Refusal::about("messages", format!("the chat template refuses this conversation: {why}")))?;
        let stop = self.renderer.stop();
        if self.style.ends_answer(stop) && !request.ignore_end {
            settings.stops.push(stop.into());
            settings.stop_ids.extend(text::token(self.tokenizer(), stop));
        }
        Ok((prompt, warning))
    }

    /// Returns the messages, and the ending of the prompt. If the last message is an empty start of an answer, it is
    /// left out.
    fn ending<'r>(&self, request: &'r TextRequest) -> Result<(&'r [Message], Ending), Refusal> {
        let messages = request.messages();
        if request.is_closed && !request.continues {
            return Ok((messages, Ending::Closed));
        }
        let Some((last, before)) = messages.split_last().filter(|_| request.continues) else {
            return Ok((messages, Ending::Answer));
        };
        if !last.calls.is_empty() || last.text.as_deref().is_none_or(|text| text.trim().is_empty()) {
            return match last.calls.is_empty() && last.thought.is_none() && !before.is_empty() {
                true => Ok((before, Ending::Answer)),
                false => Err(Refusal::about("messages", "only the text of an answer can be continued")),
            };
        }
        if let Some((field, _)) = request.schema() {
            let message = format!("{field}: a started answer cannot be continued by a value: leave one out");
            return Err(Refusal::about(field, message));
        }
        Ok((messages, Ending::Continued))
    }

    /// Returns the template's variables that the request sets.
    fn kwargs(&self, request: &TextRequest, prepared: &mut Prepared) -> Result<Map<String, Value>, Refusal> {
        let (thinking, style) = (&request.thinking, &self.style);
        let field = thinking.field.unwrap_or_default();
        if thinking.is_on() && !style.thinks() {
            if thinking.is_required {
                return Err(Refusal::unsupported(field));
            }
            prepared.warn(format!("{field}: the model does not think"));
        }
        let mut kwargs = style.thinking(thinking).map_err(|why| Refusal::about(field, format!("{field}: {why}")))?;
        let documents = request.arguments.get("documents").filter(|documents| !documents.is_null());
        if documents.is_some() && !self.source().contains("documents") {
            return Err(Refusal::unsupported("documents"));
        }
        kwargs.extend(request.arguments.clone());
        Ok(kwargs)
    }

    /// Compiles the grammar of a chat's answer. Returns `None` if the answer is not constrained.
    fn chat_form(&self, request: &TextRequest, prepared: &mut Prepared) -> Result<Option<Arc<Table>>, Refusal> {
        let (tools, is_parallel, style) = (prepared.tools.clone(), prepared.is_parallel, &self.style);
        let named = match &request.choice.must {
            Must::Auto | Must::Never => {
                let Some((field, schema)) = request.schema() else { return self.form(request, prepared) };
                let callable = callable(request, &tools);
                if style.schema_or_calls(schema, &[], is_parallel).is_none() && callable.is_empty() {
                    return self.form(request, prepared);
                }
                let grammar = |tools: &[&Tool]| style.schema_or_calls(schema, tools, is_parallel).unwrap_or(NOTHING);
                return self.table_of_calls(field, &callable, grammar, prepared).map(Some);
            }
            Must::Any => None,
            Must::Named(name) => Some(name),
        };
        let wanted: Vec<_> = tools.0.iter().filter(|tool| named.is_none_or(|name| *name == tool.name)).collect();
        if wanted.is_empty() {
            return Err(Refusal::about("tool_choice", "there is no such function among the tools"));
        }
        let calls = |tools: &[&Tool]| style.constraint().calls(tools, is_parallel && named.is_none());
        self.table_of_calls("tools", &wanted, calls, prepared).map(Some)
    }

    /// Compiles the grammar for calls with strict parameters. It applies to the text after the delimiter that begins a
    /// call.
    fn strict_calls(&self, prepared: &mut Prepared) -> Result<Option<StrictCalls>, Refusal> {
        let (tools, is_parallel) = (prepared.tools.clone(), prepared.is_parallel);
        let Some((until, _)) = self.style.strict_calls(&tools, is_parallel) else { return Ok(None) };
        let after_mark = |tools: &[&Tool]| {
            self.style.constraint().after_mark(tools, is_parallel).map_or(NOTHING, |(_, calls)| calls)
        };
        let tools: Vec<_> = tools.0.iter().collect();
        let table = self.table_of_calls("tools", &tools, after_mark, prepared)?;
        Ok(Some(StrictCalls { until, table }))
    }

    /// Compiles the grammar that the closure `grammar` builds for the given functions. If the grammar cannot be
    /// compiled, it is built again: for functions that are not strict, without the parts of parameters that a grammar
    /// cannot express.
    fn table_of_calls(
        &self,
        field: &str,
        tools: &[&Tool],
        grammar: impl Fn(&[&Tool]) -> Piece,
        prepared: &mut Prepared,
    ) -> Result<Arc<Table>, Refusal> {
        let first = self.table(field, &Source::Pieces(&grammar(tools)), prepared);
        if first.is_ok() || tools.iter().all(|tool| tool.strict) {
            return first;
        }
        // All attempts to compile a grammar share one budget. Otherwise a client could multiply the work by declaring
        // many functions.
        let budget = grammar::Budget::of_request();
        let mut loose: Vec<Tool> = tools.iter().map(|tool| (*tool).clone()).collect();
        for tool in loose.iter_mut().filter(|tool| !tool.strict) {
            if let Err(why) = grammar::from_json_schema(&tool.parameters, &budget) {
                prepared.warn(format!("tools: the parameters of {} are enforced in part: {why:#}", tool.name));
                tool.parameters = loosened(&tool.parameters, &budget);
            }
        }
        self.table(field, &Source::Pieces(&grammar(&loose.iter().collect::<Vec<_>>())), prepared)
    }

    /// Compiles the grammar, choice or schema of a request.
    pub fn form(&self, request: &TextRequest, prepared: &mut Prepared) -> Result<Option<Arc<Table>>, Refusal> {
        let Some(Named { field, value: form }) = &request.form else { return Ok(None) };
        let choice;
        let source = match form {
            Form::Gbnf(text) => Source::Gbnf(text, self.tokenizer()),
            Form::Choice(texts) => {
                choice = Piece::Alt(texts.iter().cloned().map(Piece::Text).collect());
                Source::Pieces(&choice)
            }
            Form::Pattern(pattern) => Source::Pattern(pattern),
            Form::Schema(schema) => Source::Schema(schema),
        };
        self.table(field, &source, prepared).map(Some)
    }

    /// Compiles the grammar that the field `field` asks for, and warns the client if it differs from a schema.
    fn table(&self, field: &str, source: &Source<'_>, prepared: &mut Prepared) -> Result<Arc<Table>, Refusal> {
        let table =
            self.grammars.table(source).map_err(|error| Refusal::about(field, format!("{field}: {error:#}")))?;
        table.differences().iter().for_each(|difference| prepared.warn(format!("{field}: {difference}")));
        Ok(table)
    }
}
