//! The template of a conversation: the model's own, a template from a file, or a well-known format.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, anyhow};
use arenite::chat::{Format, Message, Piece, Role};
use arenite::gguf::{Gguf, Value as Meta};
use arenite::tokenizer::Tokenizer;
use minijinja::value::{Value, ValueKind};

use super::dialect::Template;
use super::guard::{ControlTokens, Prompt};
use super::jinja::{Compiled, Failure, Inputs};
use super::story;

/// The GGUF key of a model's own template.
const KEY: &str = "tokenizer.chat_template";
/// The key of a template for conversations with functions.
const TOOL_USE: &str = "tokenizer.chat_template.tool_use";

/// Renders prompts from conversations.
pub struct Renderer {
    jinja: Option<Compiled>,
    /// A second template of the model, for conversations with functions. `None` if the file has no such template.
    tool_use: Option<Compiled>,
    /// The format used if there is no template or if it fails.
    format: Format,
    control_tokens: ControlTokens,
    /// True for the built-in model, which is trained on stories, not on conversations.
    tells_stories: bool,
    /// True if the user named the format.
    pub is_chosen: bool,
    bos: String,
    eos: String,
    warned: AtomicBool,
}

/// The inputs of a template besides the messages.
#[derive(Clone, Debug, Default)]
pub struct Arguments {
    /// JSON schemas of functions, or `None`.
    pub tools: Value,
    /// Further variables of the template by name, or `None`.
    pub kwargs: Value,
}

/// The end of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The start of an answer.
    Answer,
    /// The prompt ends with the text of the last message, which the answer continues.
    Continued,
    /// The end of the last message.
    Closed,
}

impl Renderer {
    /// Creates a renderer. `name` is a well-known format or `auto`. `template` is the source of a Jinja template that
    /// replaces the template of the model.
    pub fn new(gguf: &Gguf<'_>, tokenizer: &Tokenizer<'_, '_>, name: &str, template: Option<String>) -> Result<Self> {
        let spelled = |id: Option<u32>| {
            id.map(|id| String::from_utf8_lossy(tokenizer.spelling(id)).into_owned()).unwrap_or_default()
        };
        // BOS is written only if the file has the key, because the default start token is an arbitrary one for a
        // byte-level vocabulary.
        let has_start = gguf.u32("tokenizer.ggml", "bos_token_id")?.is_some()
            || gguf.str("tokenizer.ggml", "model")? != Some(b"gpt2");
        let (jinja, tool_use, format) = match (template, name) {
            (Some(jinja), _) => (Some(jinja), None, None),
            (None, "auto") => (own_template(gguf, KEY), own_template(gguf, TOOL_USE), None),
            (None, name) => (None, None, Some(named(name)?)),
        };
        let format = format.or_else(|| Format::detect(jinja.as_deref()?)).unwrap_or(Format::PLAIN);
        Ok(Self {
            jinja: jinja.map(Compiled::new),
            tool_use: tool_use.map(Compiled::new),
            format,
            tells_stories: false,
            is_chosen: false,
            control_tokens: ControlTokens::of(tokenizer),
            bos: if has_start { spelled(tokenizer.bos()) } else { String::new() },
            eos: spelled(tokenizer.eos()),
            warned: AtomicBool::new(false),
        })
    }

    /// If the file is the built-in model, which has no template, requests to it are answered by stories.
    pub fn tell_stories(&mut self, gguf: &Gguf<'_>) {
        let name = gguf.keys().find(|(key, _)| *key == "general.name");
        self.tells_stories = self.jinja.is_none() && matches!(name, Some((_, Meta::Str(b"Arenite Stories"))));
    }

    /// Returns true if the conversation's format comes from the file or from the user.
    pub fn has_own_format(&self) -> bool {
        self.jinja.is_some() || self.tells_stories || self.is_chosen
    }

    /// Returns true if there is a template, not only a format.
    pub fn has_template(&self) -> bool {
        self.jinja.is_some()
    }

    /// Describes the template or format in use.
    pub fn name(&self) -> String {
        match self.jinja {
            Some(_) if !self.warned.load(Ordering::Relaxed) => "its Jinja template".to_string(),
            _ if self.tells_stories => "stories: say what about, or how one begins".to_string(),
            _ => format!("the format {}", self.format.name()),
        }
    }

    /// The text that ends a model's answer.
    pub fn stop(&self) -> &'static str {
        self.format.stop()
    }

    /// Renders the prompt; a template that fails is an error.
    pub fn exact(&self, messages: &[Value], arguments: &Arguments) -> Result<String> {
        match &self.jinja {
            Some(jinja) => self.with_jinja(jinja, messages, arguments, true, false).map_err(|failure| match failure {
                Failure::Broken(error) => error.context("the chat template does not work"),
                Failure::Refused(why) => anyhow!("the chat template refuses this conversation: {why}"),
            }),
            None => Ok(self.control_tokens.prompt(&self.with_format(messages)).text),
        }
    }

    /// Returns the fixed beginning of the answer to the last message, if the model prescribes one.
    pub fn opening(&self, messages: &[Value]) -> Option<String> {
        if self.tells_stories { story::opening(&content(messages.last()?)) } else { None }
    }

    /// Renders the prompt. If the template fails or rejects the conversation, the closest format is used, with a
    /// warning.
    pub fn prompt(&self, messages: &[Value], arguments: &Arguments) -> Prompt {
        self.try_prompt(messages.to_vec(), arguments, Ending::Answer).unwrap_or_else(|why| {
            self.warn(&format!("refuses this conversation: {why}"));
            self.control_tokens.prompt(&self.with_format(messages))
        })
    }

    /// Renders the prompt, or returns the template's reason for rejecting the conversation.
    pub fn try_prompt(
        &self,
        mut messages: Vec<Value>,
        arguments: &Arguments,
        ending: Ending,
    ) -> Result<Prompt, String> {
        let continues = ending == Ending::Continued;
        if let Some(opening) = self.opening(&messages).filter(|_| ending == Ending::Answer) {
            return Ok(self.control_tokens.prompt(&opening));
        }
        for message in &mut messages {
            if let Some(marked) = self.control_tokens.mark(message) {
                *message = marked;
            }
        }
        let rendered = match &self.jinja {
            Some(jinja) => match self.with_jinja(jinja, &messages, arguments, ending == Ending::Answer, false) {
                Ok(rendered) if continues => self.up_to_last(rendered, &messages)?,
                Ok(rendered) => rendered,
                Err(Failure::Refused(why)) => return Err(why),
                Err(Failure::Broken(error)) => {
                    self.warn(&format!("does not work: {error:#}"));
                    self.with_format_of(&messages, continues)
                }
            },
            None if ending == Ending::Closed => {
                return Err("without a template, a prompt ends with the start of an answer".into());
            }
            None => self.with_format_of(&messages, continues),
        };
        Ok(self.control_tokens.prompt(&rendered))
    }

    /// Cuts a rendered conversation after the text of its last message, as `continue_final_message` of transformers
    /// does.
    fn up_to_last(&self, mut rendered: String, messages: &[Value]) -> Result<String, String> {
        let text = messages.last().map(content).unwrap_or_default();
        let shown = text.trim();
        let at = rendered.rfind(shown).ok_or("the template does not show the answer that is to be continued")?;
        rendered.truncate(at + shown.len());
        Ok(rendered + &text[text.trim_end().len()..])
    }

    /// Renders with the well-known format. If `continues` is set, the prompt ends with the text of the last message.
    fn with_format_of(&self, messages: &[Value], continues: bool) -> String {
        match messages.split_last().filter(|_| continues) {
            Some((last, before)) => self.with_format(before) + &content(last),
            None => self.with_format(messages),
        }
    }

    /// Warns once that the format replaces the template.
    fn warn(&self, why: &str) {
        if !self.warned.swap(true, Ordering::Relaxed) {
            let name = self.format.name();
            log::warn!("warning: the chat template {why}; the format `{name}` takes its place");
        }
    }

    fn with_jinja(
        &self,
        jinja: &Compiled,
        messages: &[Value],
        arguments: &Arguments,
        asks: bool,
        is_probe: bool,
    ) -> Result<String, Failure> {
        let Arguments { tools, kwargs } = arguments.clone();
        let (bos, eos) = (self.bos.clone(), self.eos.clone());
        // As in transformers and llama.cpp, functions select the template that is made for them.
        let has_tools = tools.len().is_some_and(|count| count > 0);
        let jinja = self.tool_use.as_ref().filter(|_| has_tools).unwrap_or(jinja);
        jinja.render(Inputs { messages: Value::from(messages.to_vec()), tools, bos, eos, kwargs, asks, is_probe })
    }

    /// Renders the conversation with the well-known format `self.format`. The control tokens in the messages' texts are
    /// marked.
    fn with_format(&self, messages: &[Value]) -> String {
        let contents: Vec<_> = messages.iter().map(content).collect();
        let messages: Vec<_> = messages
            .iter()
            .zip(&contents)
            .map(|(message, content)| Message { role: role(message), content: content.as_str() })
            .collect();
        let mut rendered = String::new();
        let Ok(()) = self.format.pieces(&messages, |piece| -> Result<(), std::convert::Infallible> {
            match piece {
                Piece::Template(text) => rendered += text,
                Piece::Content(text) => rendered += &self.control_tokens.marked_text(text),
            }
            Ok(())
        });
        rendered
    }
}

impl Template for Renderer {
    fn render_with(
        &self,
        messages: &serde_json::Value,
        tools: &serde_json::Value,
        asks: bool,
        variables: &serde_json::Value,
    ) -> Option<String> {
        let value = |value: &serde_json::Value| serde_json::from_value::<Value>(value.clone()).ok();
        let messages: Vec<Value> = value(messages)?.try_iter().ok()?.collect();
        let arguments = Arguments { tools: value(tools)?, kwargs: value(variables)? };
        match &self.jinja {
            Some(jinja) => self.with_jinja(jinja, &messages, &arguments, asks, true).ok(),
            None => Some(self.control_tokens.prompt(&self.with_format(&messages)).text),
        }
    }

    fn source(&self) -> &str {
        self.jinja.as_ref().map_or("", Compiled::source)
    }
}

fn named(name: &str) -> Result<Format> {
    Format::by_name(name).ok_or_else(|| {
        let names: Vec<_> = Format::all().map(Format::name).collect();
        anyhow!("there is no chat format `{name}`; give auto or one of: {}", names.join(", "))
    })
}

/// Returns a template in the file.
fn own_template(gguf: &Gguf<'_>, name: &str) -> Option<String> {
    match gguf.keys().find(|(key, _)| *key == name)?.1 {
        Meta::Str(text) => Some(String::from_utf8_lossy(text).into_owned()),
        _ => None,
    }
}

/// Returns the role of a message, converted to one of the roles that exist in the well-known formats.
fn role(message: &Value) -> Role {
    match message.get_attr("role").ok().as_ref().and_then(Value::as_str) {
        Some("system" | "developer") => Role::System,
        Some("assistant" | "model") => Role::Assistant,
        Some("tool" | "function" | "ipython") => Role::Tool,
        _ => Role::User,
    }
}

/// Returns a message's text: a string, or the joined texts of its parts.
pub fn content(message: &Value) -> String {
    let Ok(content) = message.get_attr("content") else { return String::new() };
    match content.kind() {
        ValueKind::String => content.as_str().unwrap_or_default().to_string(),
        ValueKind::Seq => {
            let parts = content.try_iter().into_iter().flatten();
            parts.filter_map(|part| Some(part.get_attr("text").ok()?.as_str()?.to_string())).collect()
        }
        _ => String::new(),
    }
}
