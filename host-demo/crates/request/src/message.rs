//! Messages of a conversation, and their notation in JSON, which is used by chat templates, by files with conversations
//! and by OpenAI's interface.

use serde_json::{Map, Value, json};

use super::content::Content;
use super::picture::Picture;

/// A message of a conversation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Message {
    /// The author: `system`, `user`, `assistant`, `tool`, or another role of the template.
    pub role: String,
    /// The text; `None` if the message has only calls.
    pub text: Option<String>,
    /// The pictures within the text.
    pub pictures: Vec<Picture>,
    /// Offsets in bytes at which a text part follows another text part: see [`Content::breaks`].
    pub breaks: Vec<usize>,
    /// The thought before the text.
    pub thought: Option<String>,
    /// Calls after the text.
    pub calls: Vec<EarlierCall>,
    /// The identifier of the call that this message answers.
    pub call_id: Option<String>,
    /// The name of the author or of the called function.
    pub name: Option<String>,
    /// True if the next message continues this one.
    pub is_open: bool,
    /// Other fields, which the template may read.
    pub others: Map<String, Value>,
}

/// A call in an earlier answer.
#[derive(Clone, Debug, PartialEq)]
pub struct EarlierCall {
    /// The call's identifier.
    pub id: Option<String>,
    /// The function's name.
    pub name: String,
    /// The arguments: a JSON value, or its text.
    pub arguments: Value,
}

/// Names of fields that hold a thought. The first field with a text counts.
const THOUGHTS: [&str; 3] = ["reasoning_content", "reasoning", "thinking"];

impl Message {
    /// Makes a message with a text.
    pub fn new(role: &str, text: impl Into<String>) -> Self {
        Self { role: role.into(), text: Some(text.into()), ..Self::default() }
    }

    /// Reads a message in the notation of OpenAI's chats.
    ///
    /// # Errors
    ///
    /// The message is not an object, has no role, or contains something other than text, pictures and calls.
    pub fn of(value: &Value) -> Result<Self, String> {
        let object = value.as_object().ok_or("a message must be an object")?;
        let mut others = object.clone();
        others.retain(|_, value| !value.is_null());
        let role = others.remove("role").and_then(|role| Some(role.as_str()?.to_string()));
        let (content, within) = without_thoughts(others.remove("content"));
        let content = content.map(|content| Content::of(&content)).transpose()?;
        let thought = THOUGHTS.iter().find_map(|name| Some(object.get(*name)?.as_str()?.to_string())).or(within);
        THOUGHTS.iter().for_each(|name| _ = others.remove(*name));
        let mut calls = match others.remove("tool_calls") {
            Some(Value::Array(calls)) => calls.iter().map(EarlierCall::of).collect::<Result<Vec<_>, _>>()?,
            _ => Vec::new(),
        };
        // The notation of a single call before there were several.
        if let Some(call) = others.remove("function_call").filter(|_| calls.is_empty()) {
            calls.push(EarlierCall::of(&json!({ "function": call }))?);
        }
        let mut field = |name: &str| match others.remove(name) {
            Some(Value::String(text)) => Some(text),
            _ => None,
        };
        let (call_id, name) = (field("tool_call_id"), field("name"));
        // An assistant message with this flag is continued. The flag is called `prefix` by DeepSeek's and Mistral's
        // interfaces, and `partial` by Kimi's and Qwen's.
        let mut is_open = false;
        for name in ["prefix", "partial"] {
            is_open |= others.remove(name) == Some(Value::Bool(true));
        }
        let role = role.ok_or("a message needs a role")?;
        let read = Self { role, thought, calls, call_id, name, is_open, others, ..Self::default() };
        Ok(content.into_iter().fold(read, Self::with))
    }

    /// Makes a message with a text and pictures.
    pub fn with_content(role: &str, content: Content) -> Self {
        Self { role: role.into(), ..Self::default() }.with(content)
    }

    /// Replaces the text and the pictures.
    #[must_use]
    pub fn with(self, Content { text, pictures, breaks }: Content) -> Self {
        Self { text: Some(text), pictures, breaks, ..self }
    }

    /// Adds a line break between the parts of the message's text: see [`Content::in_lines`].
    #[must_use]
    pub fn in_lines(mut self) -> Self {
        let (pictures, breaks) = (std::mem::take(&mut self.pictures), std::mem::take(&mut self.breaks));
        match self.text.take() {
            Some(text) => self.with(Content { text, pictures, breaks }.in_lines()),
            None => Self { pictures, ..self },
        }
    }

    /// Returns true if the message has neither text nor pictures nor calls.
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty() && self.pictures.is_empty() && self.text.as_deref().is_none_or(str::is_empty)
    }
}

impl EarlierCall {
    fn of(call: &Value) -> Result<Self, String> {
        let body = ["function", "custom"].iter().find_map(|key| call.get(*key).filter(|body| body.is_object()));
        let body = body.ok_or("a call in tool_calls needs a function")?;
        let arguments = ["arguments", "input"].iter().find_map(|key| body.get(*key)).cloned();
        Ok(Self {
            id: call.get("id").and_then(Value::as_str).map(str::to_string),
            name: body.get("name").and_then(Value::as_str).unwrap_or_default().into(),
            arguments: arguments.filter(|value| !value.is_null()).unwrap_or_else(|| json!({})),
        })
    }
}

/// Removes thoughts from a list of parts, which Mistral's and Anthropic's interfaces put there. Returns the other parts
/// and the text of the thoughts.
fn without_thoughts(content: Option<Value>) -> (Option<Value>, Option<String>) {
    let is_thought = |part: &mut Value| part.get("type").is_some_and(|kind| kind == "thinking");
    let Some(Value::Array(mut parts)) = content else { return (content, None) };
    let thoughts: Vec<Value> = parts.extract_if(.., is_thought).collect();
    let texts = thoughts.iter().map(|part| text_of(&part["thinking"]).unwrap_or_default());
    let thought = texts.collect::<String>();
    (Some(Value::Array(parts)), Some(thought).filter(|thought| !thought.is_empty()))
}

/// Returns the text of a message's content, which is a text or a list of parts with texts.
///
/// # Errors
///
/// A part is not a text.
pub fn text_of(content: &Value) -> Result<String, String> {
    Content::of(content)?.into_text()
}

/// Makes a function in the notation of templates: `{"type": "function", "function": {...}}`. Templates read the
/// parameters, which clients may leave out.
pub fn function(name: &str, description: Option<&str>, parameters: Option<&Value>, is_strict: bool) -> Value {
    let mut function = Map::from_iter([("name".to_string(), json!(name))]);
    function.extend(description.map(|text| ("description".to_string(), json!(text))));
    let given = parameters.filter(|schema| schema.as_object().is_some_and(|schema| !schema.is_empty()));
    let parameters = given.cloned().unwrap_or_else(|| json!({ "type": "object", "properties": {} }));
    function.insert("parameters".into(), parameters);
    if is_strict {
        function.insert("strict".into(), json!(true));
    }
    json!({ "type": "function", "function": function })
}
