//! Converts messages to the form that the model's template accepts.

use std::sync::Arc;

use arenite::tokenizer::Tokenizer;
use minijinja::value::Value as Jinja;
use serde_json::{Map, Value, json};

use super::dialect::{
    self, Call, Constraint, Dialect, GateSettings, Marks, Own, Probe, Reader, Template, ThoughtForm, Tool, Tools,
    exact, loose, unwrapped,
};
use super::guard::{Prompt, marked};
use super::render::{Arguments, Ending, Renderer};
use super::rewrites::{Conversation, as_text, as_user, join};
use super::thoughts::Thoughts;
use arenite_grammar::Piece;
use arenite_request::{EarlierCall, Message, Thinking};

/// A model's conversation style: the syntax of its thoughts and calls, and the properties of its template.
#[derive(Clone)]
pub struct Style {
    pub dialect: Arc<Dialect>,
    pub marks: Arc<Marks>,
    pub probe: Probe,
    /// True if the template only accepts call identifiers of nine characters.
    wants_short_ids: bool,
    thoughts: Thoughts,
}

impl Style {
    pub fn of(template: &dyn Template, tokenizer: &Tokenizer<'_, '_>) -> Self {
        let marks = Marks::of(tokenizer);
        let mut dialect = Dialect::all(&marks);
        let probe = dialect::look(template, &mut dialect);
        let source = template.source();
        let opens = |form: &dialect::ThoughtForm<String>| source.contains(&dialect::unwrapped(&form.open));
        let knows_thoughts = dialect.thoughts.iter().any(opens) || source.contains("reasoning_content");
        Self {
            dialect: dialect.into(),
            marks: marks.into(),
            probe,
            thoughts: Thoughts::of(template, knows_thoughts),
            wants_short_ids: source.contains("|length != 9"),
        }
    }

    /// Returns the reader for an answer to `prompt`.
    pub fn reader(&self, tools: &Arc<Tools>, prompt: &str) -> Reader {
        Reader::new(self.dialect.clone(), tools.clone(), prompt)
    }

    /// Returns true if the stop text `stop` ends an answer. Returns false if `stop` also closes a thought, because the
    /// answer follows the thought.
    pub fn ends_answer(&self, stop: &str) -> bool {
        let ends_thought = |form: &ThoughtForm<String>| unwrapped(&form.close) == stop;
        !stop.is_empty() && !self.dialect.thoughts.iter().any(ends_thought)
    }

    /// True if the model writes an answer as one or several messages, each of which has its own delimiters.
    pub fn is_in_messages(&self) -> bool {
        self.dialect.has_recipients || self.dialect.own == Own::Channels
    }

    /// Returns the grammar of an answer that follows a schema or calls functions; `None` if such an answer can only be
    /// the value of the schema. The answer can be more if functions are declared, or if the dialect has channels or
    /// recipients, because the schema then describes only the last message.
    pub fn schema_or_calls(&self, schema: &Value, tools: &[&Tool], is_parallel: bool) -> Option<Piece> {
        let content = || self.constraint().content(schema);
        match tools {
            [] => self.is_in_messages().then(content),
            _ => Some(Piece::Alt(vec![content(), self.constraint().calls(tools, is_parallel)])),
        }
    }

    /// Returns the text at the start of calls and the grammar of the calls; `None` unless functions have strict
    /// parameters and nothing else constrains the answer.
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

    /// Returns true if the model's template shows that the model can think.
    pub fn thinks(&self) -> bool {
        self.thoughts.are_possible()
    }

    /// Returns the variables of the template that turn thoughts on or off, or set their effort, as a request asks.
    ///
    /// # Errors
    ///
    /// The template does not accept the requested effort.
    pub fn thinking(&self, asked: &Thinking) -> Result<Map<String, Value>, String> {
        self.thoughts.variables(asked)
    }

    /// If `prompt` ends inside a thought, returns the settings of a gate that waits for the end of the thought;
    /// otherwise `None`.
    pub fn thought_gate(&self, prompt: &str) -> Option<GateSettings> {
        let form = self.dialect.opened_by(prompt.trim_end())?;
        Some(GateSettings { until: form.close.clone(), is_thought: true, then: None })
    }

    /// Returns the conversation in the form that the template accepts.
    pub fn conversation(&self, messages: &[Message], tools: &[Value]) -> Conversation {
        let in_lines = |message: Message| if self.probe.knows_parts { message } else { message.in_lines() };
        let messages = messages.iter().map(|message| self.message(in_lines(message.clone()))).collect();
        let mut conversation = Conversation { messages, tools: tools.to_vec(), warning: None };
        // A template that shows calls belongs to a model that was trained with calls. Its prompt is left unchanged even
        // if the template does not show the functions.
        if !tools.is_empty() && !self.probe.shows_tools && !self.probe.shows_calls {
            let text = self.instructions(tools);
            let messages = &mut conversation.messages;
            match messages.first_mut().filter(|first| first.role == "system") {
                Some(system) => join(system, Message::new("system", text)),
                None => messages.insert(0, Message::new("system", text)),
            }
            conversation.tools.clear();
            conversation.warning = Some("the chat template shows no functions: the system message lists them");
        } else if !self.probe.shows_tools && !conversation.names_all(tools) {
            const HIDDEN: &str = "the chat template shows calls but no functions: describe them in a system message";
            conversation.warning = Some(HIDDEN);
        }
        if self.probe.has_metadata && !self.probe.shows_calls {
            conversation.calls_as_metadata();
        }
        if self.probe.numbers_calls {
            conversation.number_calls();
        }
        if self.probe.refuses_system {
            let has_tools = !tools.is_empty() && conversation.tools.is_empty();
            conversation.system_to_user(has_tools);
        }
        conversation
    }

    /// Renders the prompt. If the template refuses the conversation, the conversation is rewritten as little as
    /// possible.
    ///
    /// # Errors
    ///
    /// The template's reason, if it refuses every form.
    pub fn prompt(
        &self,
        renderer: &Renderer,
        conversation: Conversation,
        kwargs: &Map<String, Value>,
        ending: Ending,
    ) -> Result<(Prompt, Option<&'static str>), String> {
        let render = |conversation: &Conversation| -> Result<Prompt, String> {
            let mut messages = conversation.messages.iter().map(|message| self.json(message)).collect();
            self.probe.place.put(&conversation.tools, &mut messages);
            let messages = messages.into_iter().map(jinja).collect();
            let tools = match conversation.tools.is_empty() {
                true => Jinja::from(()),
                false => jinja(conversation.tools.clone().into()),
            };
            let arguments = Arguments { tools, kwargs: jinja(kwargs.clone().into()) };
            let pictures = conversation.messages.iter().flat_map(|message| &message.pictures);
            let pictures = pictures.map(|picture| picture.source.clone()).collect();
            let mut prompt = renderer.try_prompt(messages, &arguments, ending)?;
            prompt.pictures = pictures;
            Ok(prompt)
        };
        let shows_all = |conversation: &Conversation, prompt: &Prompt| {
            !renderer.has_template()
                || !self.probe.shows_texts
                || conversation.is_shown(&prompt.text, &|words| Some(render(words).ok()?.text))
        };
        let first = render(&conversation);
        if let Ok(prompt) = &first
            && shows_all(&conversation, prompt)
        {
            return first.map(|prompt| (prompt, conversation.warning));
        }
        let mut accepted = None;
        for rewritten in conversation.rewritten() {
            let Ok(prompt) = render(&rewritten) else { continue };
            if shows_all(&rewritten, &prompt) {
                return Ok((prompt, rewritten.warning));
            }
            accepted.get_or_insert((prompt, rewritten.warning));
        }
        const HIDDEN: &str = "the chat template does not show all system messages and results of functions";
        match (first, accepted) {
            (Ok(prompt), _) => Ok((prompt, Some(conversation.warning.unwrap_or(HIDDEN)))),
            (Err(_), Some((prompt, warning))) => Ok((prompt, warning)),
            (Err(refused), None) => Err(refused),
        }
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

    /// Returns `message` with the role, the calls and the identifiers that the template can show.
    fn message(&self, mut message: Message) -> Message {
        if message.role == "developer" && !self.probe.knows_developer {
            message.role = "system".into();
        }
        if self.probe.shows_tools || self.probe.shows_calls || message.role != "tool" {
            message.call_id = message.call_id.map(|id| self.id(&id));
        } else {
            message = as_user(message);
        }
        if self.probe.shows_calls || self.probe.has_metadata {
            message.calls.iter_mut().for_each(|call| call.id = call.id.take().map(|id| self.id(&id)));
        } else if !message.calls.is_empty() {
            let calls = std::mem::take(&mut message.calls).into_iter();
            let calls: Vec<Call> =
                calls.map(|call| Call { arguments: as_text(&call.arguments), name: call.name }).collect();
            let text = self.constraint().write(&calls);
            message.text = match message.text.take().filter(|text| !text.is_empty()) {
                None => Some(text),
                Some(before) => Some(format!("{before}\n{text}")),
            };
        }
        message
    }

    /// Returns a message in the notation of templates.
    fn json(&self, message: &Message) -> Value {
        let has_calls = !message.calls.is_empty();
        let text = message.text.as_deref().filter(|text| !text.is_empty());
        let shows_calls = has_calls && self.probe.shows_calls;
        let content = match self.probe.blank {
            None if shows_calls => json!(text),
            Some(blank) if shows_calls && text.is_none() => json!(blank),
            _ => self.content(message),
        };
        let mut object = Map::from_iter([("role".to_string(), json!(message.role)), ("content".to_string(), content)]);
        let texts =
            [("name", &message.name), ("tool_call_id", &message.call_id), ("reasoning_content", &message.thought)];
        object.extend(texts.iter().filter_map(|(key, text)| Some((key.to_string(), json!(text.as_ref()?)))));
        if has_calls {
            object.insert("tool_calls".into(), message.calls.iter().map(|call| self.call(call)).collect());
        }
        let plan = [message.thought.as_deref(), text].into_iter().flatten().collect::<Vec<_>>().join("\n");
        if shows_calls && self.probe.has_plan && !plan.is_empty() {
            object.insert("tool_plan".into(), json!(plan));
        }
        object.extend(message.others.clone());
        Value::Object(object)
    }

    /// Returns the content of a message in the form that the template accepts: one text or a list of parts.
    fn content(&self, message: &Message) -> Value {
        let text = message.text.as_deref().unwrap_or_default();
        let (pictures, Probe { shows_pictures, needs_parts, .. }) = (&message.pictures, self.probe);
        // The content of a function's result is given as a text and not as a list of parts, because few templates
        // accept a list in such messages.
        let shows_pictures = shows_pictures && message.role != "tool";
        if !needs_parts && (pictures.is_empty() || !shows_pictures) {
            return if pictures.is_empty() { json!(text) } else { json!(marked(text, pictures)) };
        }
        let part = |text: &str| json!({ "type": "text", "text": text });
        if pictures.is_empty() || !shows_pictures {
            return json!([part(&marked(text, pictures))]);
        }
        let (mut parts, mut at) = (Vec::new(), 0);
        for picture in pictures {
            parts.extend(text.get(at..picture.at).filter(|text| !text.is_empty()).map(part));
            parts.push(json!({ "type": "image" }));
            at = picture.at;
        }
        parts.extend(text.get(at..).filter(|text| !text.is_empty()).map(part));
        parts.into()
    }

    /// Returns a call in the notation of templates.
    fn call(&self, call: &EarlierCall) -> Value {
        let text = as_text(&call.arguments);
        let arguments = match self.probe.wants_text {
            true => json!(text),
            false => loose::strict(&text).unwrap_or_else(|| call.arguments.clone()),
        };
        let function = json!({ "name": call.name, "arguments": arguments });
        match &call.id {
            Some(id) => json!({ "id": id, "type": "function", "function": function }),
            None => json!({ "type": "function", "function": function }),
        }
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

/// Converts a value for templates, whose integers have up to 128 bits.
fn jinja(value: Value) -> Jinja {
    let large = |digits: &str| -> Option<Jinja> {
        let integer = digits.parse::<i128>().map(Jinja::from);
        integer.ok().or_else(|| digits.parse::<f64>().map(Jinja::from).ok())
    };
    match value {
        Value::String(text) => exact::digits(&text).and_then(large).unwrap_or_else(|| text.into()),
        Value::Array(items) => items.into_iter().map(jinja).collect(),
        Value::Object(members) => Jinja::from_pairs(members.into_iter().map(|(key, value)| (key, jinja(value)))),
        value => serde_json::from_value(value).unwrap_or_default(),
    }
}
