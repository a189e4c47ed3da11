//! Converts the messages of a client to the form that the model's template accepts.

use std::sync::Arc;

use arenite::tokenizer::Tokenizer;
use serde_json::{Map, Value, json};

use super::dialect::{
    self, Call, Constraint, Dialect, GateSettings, Marks, Own, Probe, Reader, Template, ThoughtForm, Tools, unwrapped,
};
use arenite_grammar::Piece;

/// A model's conversation style: the syntax of its thoughts and calls, and the properties of its template.
#[derive(Clone)]
pub struct Style {
    pub dialect: Arc<Dialect>,
    pub marks: Arc<Marks>,
    pub probe: Probe,
    /// True if the template only accepts call identifiers of nine characters.
    wants_short_ids: bool,
    knows_thoughts: bool,
    /// Variables of [`SWITCHES`] and [`EFFORTS`] that the template reads.
    switches: Vec<&'static str>,
}

/// A conversation in the form that a template accepts.
pub struct Conversation {
    pub messages: Vec<Value>,
    /// Functions that are passed to the template.
    pub tools: Vec<Value>,
    /// A warning if the template cannot show functions. It names the message that lists the functions instead.
    pub warning: Option<&'static str>,
}

/// Names of template variables that turn thoughts on or off.
const SWITCHES: [&str; 3] = ["enable_thinking", "thinking", "think"];
/// Names of template variables that set the reasoning effort.
const EFFORTS: [&str; 2] = ["reasoning_effort", "thinking_effort"];

impl Style {
    pub fn of(template: &dyn Template, tokenizer: &Tokenizer<'_, '_>) -> Self {
        let marks = Marks::of(tokenizer);
        let mut dialect = Dialect::all(&marks);
        let probe = dialect::look(template, &mut dialect);
        let source = template.source();
        let opens = |form: &dialect::ThoughtForm<String>| source.contains(&dialect::unwrapped(&form.open));
        let knows_thoughts = dialect.thoughts.iter().any(opens) || source.contains("reasoning_content");
        let reads = |name: &&&str| is_word(source, name);
        Self {
            dialect: dialect.into(),
            marks: marks.into(),
            probe,
            knows_thoughts,
            wants_short_ids: source.contains("|length != 9"),
            switches: SWITCHES.iter().chain(&EFFORTS).filter(reads).copied().collect(),
        }
    }

    /// Returns the reader for an answer to `prompt`.
    pub fn reader(&self, tools: &Arc<Tools>, prompt: &str) -> Reader {
        Reader::new(self.dialect.clone(), tools.clone(), prompt)
    }

    /// Returns true if the text `stop` at the end of a turn ends an answer: it may also be the mark after a thought.
    pub fn ends_answer(&self, stop: &str) -> bool {
        let ends_thought = |form: &ThoughtForm<String>| unwrapped(&form.close) == stop;
        !stop.is_empty() && !self.dialect.thoughts.iter().any(ends_thought)
    }

    /// Returns the grammar of an answer that follows a schema, if the schema describes only the last of several
    /// messages: in dialects with channels or recipients.
    pub fn schema_in_messages(&self, schema: &Value) -> Option<Piece> {
        let in_messages = self.dialect.has_recipients || self.dialect.own == Own::Channels;
        in_messages.then(|| self.constraint().content(schema))
    }

    /// Returns the mark before calls and their grammar, if an answer without another constraint may call functions
    /// with strict parameters.
    pub fn strict_calls(&self, tools: &Tools, is_parallel: bool) -> Option<(String, Piece)> {
        if !tools.0.iter().any(|tool| tool.strict) {
            return None;
        }
        self.constraint().after_mark(&tools.0.iter().collect::<Vec<_>>(), is_parallel)
    }

    /// Returns the reader that divides an answer to `prompt` into content, thoughts and calls. An answer that follows a
    /// schema is content after its thought.
    pub fn answer_reader(&self, tools: &Arc<Tools>, prompt: &str, is_schema: bool, is_parallel: bool) -> Reader {
        let mut reader = self.reader(tools, prompt);
        if is_schema {
            reader = reader.without_thought().only_marked();
        }
        if is_parallel { reader } else { reader.only_one_call() }
    }

    pub fn constraint(&self) -> Constraint<'_> {
        Constraint { dialect: &self.dialect, marks: &self.marks }
    }

    /// Returns true if the template supports thoughts.
    pub fn thinks(&self) -> bool {
        self.knows_thoughts
    }

    /// Returns the variables that turn thoughts on or off; `None` if the template has no switch.
    pub fn thinking(&self, is_on: bool) -> Option<Map<String, Value>> {
        if !is_on && !self.knows_thoughts {
            return Some(Map::new());
        }
        let found = SWITCHES.iter().filter(|name| self.switches.contains(name));
        let map: Map<String, Value> = found.map(|name| (name.to_string(), json!(is_on))).collect();
        Some(map).filter(|map| !map.is_empty())
    }

    /// Returns the variables for a reasoning effort: those of [`EFFORTS`], otherwise those that turn thoughts on;
    /// `None` if the template reads neither.
    pub fn effort(&self, effort: &str) -> Option<Map<String, Value>> {
        if effort == "none" {
            return self.thinking(false);
        }
        let found = EFFORTS.iter().filter(|name| self.switches.contains(name));
        let map: Map<String, Value> = found.map(|name| (name.to_string(), json!(effort))).collect();
        Some(map).filter(|map| !map.is_empty()).or_else(|| self.thinking(true))
    }

    /// Returns the settings of a gate that waits for the end of the thought opened by `prompt`; `None` if no thought is
    /// open.
    pub fn thought_gate(&self, prompt: &str) -> Option<GateSettings> {
        let form = self.dialect.opened_by(prompt.trim_end())?;
        Some(GateSettings { until: form.close.clone(), is_thought: true, then: None })
    }

    /// Returns the conversation in the form that the template accepts.
    ///
    /// # Errors
    ///
    /// A message is invalid.
    pub fn conversation(&self, messages: &[Value], tools: &[Value]) -> Result<Conversation, String> {
        let mut messages = messages.iter().map(|message| self.message(message)).collect::<Result<Vec<_>, _>>()?;
        let mut tools = tools.to_vec();
        let mut warning = None;
        // A template that shows calls belongs to a model trained with calls: the prompt is left unchanged.
        if !tools.is_empty() && !self.probe.shows_tools && !self.probe.shows_calls {
            let text = self.instructions(&tools);
            warning = Some(if self.probe.refuses_system {
                "the chat template shows neither functions nor a system message: the first message lists the functions"
            } else {
                "the chat template shows no functions: the system message lists them"
            });
            let first = messages.first_mut().map(|first| (first["role"] == "system", first));
            match first.filter(|(is_system, _)| *is_system || self.probe.refuses_system) {
                Some((is_system, message)) => {
                    let content = message["content"].as_str().unwrap_or_default();
                    let parts = if is_system { [content, &text] } else { [&text, content] };
                    message["content"] = json!(parts.join("\n\n"));
                }
                None => messages.insert(0, json!({ "role": "system", "content": text })),
            }
            tools.clear();
        }
        Ok(Conversation { messages, tools, warning })
    }

    /// Describes the functions as text, for a system message.
    fn instructions(&self, tools: &[Value]) -> String {
        let lines: Vec<String> = tools.iter().map(Value::to_string).collect();
        let lines = lines.join("\n");
        let is_taught = matches!(self.dialect.own, Own::Form(own) if dialect::unwrapped(&self.dialect.calls[own].open) == "<tool_call>");
        let mut text = format!("# Tools\n\nYou may call one or more functions.\n\n<tools>\n{lines}\n</tools>");
        if is_taught {
            text += "\n\nFor each function call, return a JSON object with the function's name and arguments within \
                     <tool_call></tool_call> tags:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call>";
        }
        text
    }

    fn message(&self, message: &Value) -> Result<Value, String> {
        let object = message.as_object().ok_or("a message must be an object")?;
        let role = object.get("role").and_then(Value::as_str).ok_or("a message needs a role")?.to_string();
        let mut object = object.clone();
        let has_calls = object.get("tool_calls").and_then(Value::as_array).is_some_and(|calls| !calls.is_empty());
        if !has_calls {
            object.remove("tool_calls");
        }
        if role == "developer" && !self.probe.knows_developer {
            object.insert("role".into(), json!("system"));
        }
        let content = match object.get("content") {
            Some(Value::Array(parts)) => Some(text_of(parts)?),
            Some(Value::String(text)) => Some(text.clone()),
            None | Some(Value::Null) => None,
            Some(_) => return Err("the content of a message must be a text or a list of parts".into()),
        };
        let keeps_null = has_calls && self.probe.shows_calls && self.probe.takes_null;
        let is_empty = content.as_deref().is_none_or(str::is_empty);
        let content = match content {
            None if keeps_null => Value::Null,
            Some(text) if text.is_empty() && keeps_null => Value::Null,
            content => json!(content.unwrap_or_default()),
        };
        object.insert("content".into(), content);
        if has_calls {
            self.calls(&mut object, is_empty)?;
        }
        if let Some(id) = object.get("tool_call_id").and_then(Value::as_str) {
            let id = json!(self.id(id));
            object.insert("tool_call_id".into(), id);
        }
        if role == "tool" && !self.probe.shows_tools && !self.probe.shows_calls {
            let text = object["content"].as_str().unwrap_or_default();
            let text = format!("<tool_response>\n{text}\n</tool_response>");
            return Ok(json!({ "role": "user", "content": text }));
        }
        Ok(Value::Object(object))
    }

    /// Converts the calls of an earlier answer to the form that the template expects. If the template does not show
    /// calls, they become part of the content.
    fn calls(&self, object: &mut Map<String, Value>, is_empty: bool) -> Result<(), String> {
        let mut calls = object.remove("tool_calls").unwrap_or_default();
        let mut written = Vec::new();
        for call in calls.as_array_mut().into_iter().flatten() {
            if let Some(id) = call.get("id").and_then(Value::as_str) {
                call["id"] = json!(self.id(id));
            }
            let Some(function) = call.get_mut("function").filter(|function| function.is_object()) else {
                return Err("a call in tool_calls needs a function".into());
            };
            let arguments = function.get("arguments").cloned().unwrap_or_else(|| json!({}));
            let text = match &arguments {
                Value::String(text) if text.trim().is_empty() => "{}".to_string(),
                Value::String(text) => text.clone(),
                value => value.to_string(),
            };
            written.push(Call { name: function["name"].as_str().unwrap_or_default().into(), arguments: text.clone() });
            function["arguments"] = match self.probe.wants_text {
                true => json!(text),
                false => serde_json::from_str(&text).unwrap_or(arguments),
            };
        }
        if self.probe.shows_calls {
            object.insert("tool_calls".into(), calls);
            return Ok(());
        }
        let before = object["content"].as_str().unwrap_or_default().to_string();
        let text = dialect::write(&written);
        object.insert("content".into(), json!(if is_empty { text } else { format!("{before}\n{text}") }));
        Ok(())
    }

    /// Returns `id`, or a hash of nine characters if the template does not accept `id`.
    fn id(&self, id: &str) -> String {
        let is_short = id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if !self.wants_short_ids || is_short {
            return id.into();
        }
        let hash = id
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
        format!("{:09x}", hash & 0xf_ffff_ffff)
    }
}

/// Joins the texts of a message's parts.
fn text_of(parts: &[Value]) -> Result<String, String> {
    let wrong = || "only text parts are supported, no images or audio".to_string();
    let text = |part: &Value| {
        let text = part.get("text").or_else(|| part.get("refusal")).and_then(Value::as_str);
        text.or_else(|| part.as_str()).map(str::to_string).ok_or_else(wrong)
    };
    parts.iter().map(text).collect::<Result<Vec<_>, _>>().map(|texts| texts.concat())
}

/// Returns true if a template reads the variable `name`: a whole word that is not an attribute, quoted text or a tag.
fn is_word(source: &str, name: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    source.match_indices(name).any(|(at, _)| {
        let before = source[..at].chars().next_back();
        let after = source[at + name.len()..].chars().next();
        !before.is_some_and(|c| is_part(c) || ".'\"<".contains(c)) && !after.is_some_and(|c| is_part(c) || c == '>')
    })
}
