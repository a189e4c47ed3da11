//! Chat requests: the prompt, the functions, and the constraint of the answer.

use std::sync::Arc;

use arenite::TokenId;
use minijinja::value::Value as Jinja;
use serde_json::{Map, Value};

use super::error::ApiError;
use super::grammars::Source;
use super::request::{Body, Settings};
use super::service::{Prepared, Service};
use crate::chat::Prompt;
use crate::chat::dialect::{Constraint, GateSettings, Own, ThoughtBudget, ThoughtForm, Tools, unwrapped};
use crate::grammar;

/// The functions that must be called.
enum Must {
    /// No function.
    No,
    Any,
    Named(String),
}

impl Service {
    /// Returns the prompt of a chat; completes the settings and `prepared`.
    pub fn chat(
        &self,
        body: &Body,
        settings: &mut Settings,
        prepared: &mut Prepared,
    ) -> Result<(String, Vec<TokenId>), ApiError> {
        let (tools, must) = declared(body)?;
        prepared.tools = Arc::new(Tools::of(&tools));
        let schema = body.schema()?;
        prepared.is_schema = schema.is_some() || body.choice().is_some();
        let (prompt, warning) = self.chat_prompt(body, &tools, settings)?;
        prepared.warning = warning;
        if body.truncate_prompt_tokens.is_none() {
            self.check_len("messages", &prompt.text)?;
        }
        let ids = prompt.encode(self.tokenizer()).map_err(|error| ApiError::invalid(error.to_string()))?;
        settings.marks = Some(self.style.marks.clone()).filter(|marks| !marks.is_empty());
        for stop in settings.stops.clone() {
            let resolved = self.style.marks.resolve(&stop);
            if resolved != stop {
                settings.stops.push(resolved);
            }
        }
        let is_free = matches!(must, Must::No);
        settings.table = self.chat_form(body, must, prepared)?;
        // Without a budget, a thought before a constrained answer gets half of the available tokens.
        let room = self.context.saturating_sub(ids.len());
        let half = settings.table.is_some().then(|| settings.limit.unwrap_or(room).min(room) / 2);
        let budget = match body.thought_budget() {
            Some(budget) => usize::try_from(budget).ok(),
            None if body.effort().1 == Some(false) => Some(0),
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

    /// Returns the rendered conversation, and a warning for the client.
    fn chat_prompt(
        &self,
        body: &Body,
        tools: &[Value],
        settings: &mut Settings,
    ) -> Result<(Prompt, Option<&'static str>), ApiError> {
        let messages = body.messages.as_deref().unwrap_or_default();
        if messages.is_empty() {
            return Err(ApiError::about("messages", "there are no messages"));
        }
        let conversation = self.style.conversation(messages, tools).map_err(|why| ApiError::about("messages", why))?;
        let messages = conversation.messages.into_iter().map(jinja).collect::<Result<Vec<_>, _>>()?;
        let kwargs = jinja(Value::Object(self.kwargs(body)?))?;
        let mut renderer = self.renderer.lock().unwrap_or_else(|broken| broken.into_inner());
        renderer.tools = match conversation.tools.is_empty() {
            true => Jinja::from(()),
            false => jinja(Value::Array(conversation.tools))?,
        };
        renderer.kwargs = kwargs;
        let prompt = renderer.try_prompt(&messages).map_err(|why| {
            ApiError::about("messages", format!("the chat template refuses this conversation: {why}"))
        })?;
        let stop = renderer.stop();
        // A stop string that also ends thoughts does not end the answer.
        let ends_thought = |form: &ThoughtForm<String>| unwrapped(&form.close) == stop;
        if !stop.is_empty() && !self.style.dialect.thoughts.iter().any(ends_thought) {
            settings.stops.push(stop.into());
        }
        Ok((prompt, conversation.warning))
    }

    /// Returns the template's variables that the request sets.
    fn kwargs(&self, body: &Body) -> Result<Map<String, Value>, ApiError> {
        let mut kwargs = Map::new();
        if body.echo == Some(true) {
            return Err(ApiError::unsupported("echo"));
        }
        if let Some(documents) = body.others.get("documents").filter(|documents| !documents.is_null()) {
            if !self.source().contains("documents") {
                return Err(ApiError::unsupported("documents"));
            }
            kwargs.insert("documents".into(), documents.clone());
        }
        let (effort, is_on) = body.effort();
        if let Some(effort) = effort {
            let unknown = || ApiError::unsupported("reasoning_effort");
            kwargs.extend(match effort {
                // Without switches in the template, the model always or never thinks: "medium" is its normal behaviour.
                "medium" => self.style.effort(effort).unwrap_or_default(),
                effort => self.style.effort(effort).ok_or_else(unknown)?,
            });
        }
        if let Some(is_on) = is_on {
            kwargs.extend(self.style.thinking(is_on).unwrap_or_default());
        }
        if body.thought_budget() == Some(0) {
            kwargs.extend(self.style.thinking(false).unwrap_or_default());
        }
        if let Some(switch) = body.others.get("enable_thinking").and_then(Value::as_bool) {
            kwargs.extend(self.style.thinking(switch).ok_or_else(|| ApiError::unsupported("enable_thinking"))?);
        }
        kwargs.extend(body.chat_template_kwargs.clone().unwrap_or_default());
        Ok(kwargs)
    }

    /// Compiles the grammar of a chat's answer; `None` if the answer is not constrained.
    fn chat_form(&self, body: &Body, must: Must, prepared: &Prepared) -> Result<Option<Arc<[u8]>>, ApiError> {
        let style = &self.style;
        let constraint = Constraint { dialect: &style.dialect, marks: &style.marks };
        let named = match must {
            Must::No => {
                // In a dialect with channels or recipients, a schema describes only the last message.
                let in_messages = style.dialect.has_recipients || style.dialect.own == Own::Channels;
                if let (Some((param, schema)), true) = (body.schema()?, in_messages) {
                    let table = self.grammars.table(&Source::Pieces(&constraint.content(&schema)));
                    return table.map(Some).map_err(|error| ApiError::about(param, format!("{param}: {error:#}")));
                }
                return self.form(body);
            }
            Must::Any => None,
            Must::Named(name) => Some(name),
        };
        let tools = prepared.tools.0.iter();
        let wanted: Vec<_> = tools.filter(|tool| named.as_deref().is_none_or(|name| name == tool.name)).collect();
        if wanted.is_empty() {
            return Err(ApiError::about("tool_choice", "there is no such function among the tools"));
        }
        let is_parallel = prepared.is_parallel && named.is_none();
        let table = self.grammars.table(&Source::Pieces(&constraint.calls(&wanted, is_parallel)));
        table.map(Some).map_err(|error| ApiError::about("tools", format!("tools: {error:#}")))
    }

    /// Sets the grammar of calls, which applies after the opening mark of a call.
    fn strict_calls(&self, settings: &mut Settings, prepared: &Prepared) -> Result<(), ApiError> {
        let constraint = Constraint { dialect: &self.style.dialect, marks: &self.style.marks };
        let tools: Vec<_> = prepared.tools.0.iter().collect();
        let Some((until, calls)) = constraint.after_mark(&tools, prepared.is_parallel) else { return Ok(()) };
        let table = self.grammars.table(&Source::Pieces(&calls));
        settings.table = Some(table.map_err(|error| ApiError::about("tools", format!("tools: {error:#}")))?);
        let gate = GateSettings { until, is_thought: false, then: None };
        match &mut settings.gate {
            Some(thought) => thought.then = Some(Box::new(gate)),
            none => *none = Some(gate),
        }
        Ok(())
    }

    /// Compiles the grammar, choice or schema of a request.
    pub fn form(&self, body: &Body) -> Result<Option<Arc<[u8]>>, ApiError> {
        if let Some(text) = body.grammar.as_ref().filter(|text| !text.is_empty()) {
            let table = self.grammars.table(&Source::Gbnf(text, self.tokenizer()));
            return table.map(Some).map_err(|error| ApiError::about("grammar", format!("grammar: {error:#}")));
        }
        if let Some(choice) = body.choice() {
            let each = choice.into_iter().map(grammar::Piece::Text).collect();
            let table = self.grammars.table(&Source::Pieces(&grammar::Piece::Alt(each)));
            return table.map(Some).map_err(|error| ApiError::about("guided_choice", format!("{error:#}")));
        }
        let Some((param, schema)) = body.schema()? else { return Ok(None) };
        let table = self.grammars.table(&Source::Schema(&schema));
        table.map(Some).map_err(|error| ApiError::about(param, format!("{param}: {error:#}")))
    }
}

/// Returns the functions of a request, and those that must be called.
fn declared(body: &Body) -> Result<(Vec<Value>, Must), ApiError> {
    let mut tools = body.tools.clone().unwrap_or_default();
    for tool in &mut tools {
        let function = tool.get_mut("function").and_then(Value::as_object_mut);
        let Some(function) = function.filter(|function| function.get("name").is_some_and(Value::is_string)) else {
            return Err(ApiError::about("tools", "a tool needs a function with a name"));
        };
        // Templates read the parameters, which clients may omit or leave empty.
        let parameters = function.entry("parameters").or_insert(Value::Null);
        if parameters.as_object().is_none_or(Map::is_empty) {
            *parameters = serde_json::json!({ "type": "object", "properties": {} });
        }
    }
    let wrong = "tool_choice must be none, auto, required or a function";
    let must = match &body.tool_choice {
        None | Some(Value::Null) => Must::No,
        Some(Value::String(choice)) => match choice.as_str() {
            "none" => return Ok((Vec::new(), Must::No)),
            "auto" => Must::No,
            "required" | "any" => Must::Any,
            _ => return Err(ApiError::about("tool_choice", wrong)),
        },
        Some(choice) => {
            if let Some(allowed) = choice.get("allowed_tools") {
                return allowed_tools(tools, allowed);
            }
            match choice.pointer("/function/name").and_then(Value::as_str) {
                Some(name) => Must::Named(name.into()),
                None => return Err(ApiError::about("tool_choice", "tool_choice names no function")),
            }
        }
    };
    if tools.is_empty() && !matches!(must, Must::No) {
        return Err(ApiError::about("tool_choice", "tool_choice requires a call, but there are no tools"));
    }
    Ok((tools, must))
}

/// Keeps the functions that `{"allowed_tools": {"mode": ..., "tools": [...]}}` lists. Returns them, and whether one
/// must be called.
fn allowed_tools(mut tools: Vec<Value>, allowed: &Value) -> Result<(Vec<Value>, Must), ApiError> {
    let names = allowed.get("tools").and_then(Value::as_array).into_iter().flatten();
    let names: Vec<&Value> = names.filter_map(|tool| tool.pointer("/function/name")).collect();
    tools.retain(|tool| tool.pointer("/function/name").is_some_and(|name| names.contains(&name)));
    if tools.is_empty() {
        return Err(ApiError::about("tool_choice", "there is no such function among the tools"));
    }
    let must = if allowed.get("mode").is_some_and(|mode| mode == "required") { Must::Any } else { Must::No };
    Ok((tools, must))
}

/// Converts a value for templates.
fn jinja(value: Value) -> Result<Jinja, ApiError> {
    serde_json::from_value(value).map_err(|error| ApiError::invalid(error.to_string()))
}
