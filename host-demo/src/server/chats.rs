//! Chat requests: the prompt, the functions, and the constraint of the answer.

use std::sync::Arc;

use arenite::TokenId;
use minijinja::value::Value as Jinja;
use serde_json::{Map, Value};

use super::error::ApiError;
use super::grammars::Source;
use super::request::Body;
use super::service::{Prepared, Service};
use crate::chat::Prompt;
use crate::chat::dialect::Tools;
use crate::generation::Settings;
use crate::generation::{StrictCalls, ThoughtLimit, Wanted};
use crate::{grammar, text};

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
        let is_free = matches!(must, Must::No);
        settings.table = self.chat_form(body, must, prepared)?;
        let strict = if is_free && settings.table.is_none() { self.strict_calls(prepared)? } else { None };
        let thoughts = match body.thought_budget() {
            Some(budget) => usize::try_from(budget).map_or(ThoughtLimit::Unlimited, ThoughtLimit::UpTo),
            None if body.effort().1 == Some(false) => ThoughtLimit::UpTo(0),
            None => ThoughtLimit::Usual,
        };
        let room = self.context.saturating_sub(ids.len());
        let wanted = Wanted { prompt: &prompt.text, tools: &prepared.tools, thoughts, room, strict };
        wanted.complete(&self.style, settings);
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
        if self.style.ends_answer(stop) {
            settings.stops.push(stop.into());
            settings.stop_ids.extend(text::token(self.tokenizer(), stop));
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
        let named = match must {
            Must::No => {
                if let Some((param, schema)) = body.schema()?
                    && let Some(piece) = self.style.schema_in_messages(&schema)
                {
                    let table = self.grammars.table(&Source::Pieces(&piece));
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
        let table = self.grammars.table(&Source::Pieces(&self.style.constraint().calls(&wanted, is_parallel)));
        table.map(Some).map_err(|error| ApiError::about("tools", format!("tools: {error:#}")))
    }

    /// Compiles the grammar of calls that applies after their opening mark.
    fn strict_calls(&self, prepared: &Prepared) -> Result<Option<StrictCalls>, ApiError> {
        let Some((until, calls)) = self.style.strict_calls(&prepared.tools, prepared.is_parallel) else {
            return Ok(None);
        };
        let table = self.grammars.table(&Source::Pieces(&calls));
        let table = table.map_err(|error| ApiError::about("tools", format!("tools: {error:#}")))?;
        Ok(Some(StrictCalls { until, table }))
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
