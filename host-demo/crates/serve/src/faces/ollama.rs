//! Fields of Ollama's `/api/chat` and `/api/generate`.

use serde_json::{Map, Value, json};

use super::openai::{self, SAMPLING, THINKING};
use super::refused::REFUSED;
use super::{Asked, Field, Neutral, Result, Row, Use, fields, read, tools};
use arenite_request::{Content, Form, Input, Message, Picture, PictureSource, Prompt, Refusal};

/// A request in Ollama's format.
#[derive(Debug, Default)]
pub struct OllamaAsked {
    pub asked: Asked,
    messages: Vec<Message>,
    system: Option<Message>,
    prompt: String,
    pictures: Vec<Picture>,
    is_raw: bool,
    options: Map<String, Value>,
    /// True if the model is to be unloaded.
    pub unloads: bool,
}

/// Reads a request. `is_chat` is true for `/api/chat`. A request without a text only asks to load the model:
/// `asked.request.input` is then `None`.
pub fn asked(body: &Value, is_chat: bool) -> Result<OllamaAsked> {
    let mut read_in = OllamaAsked::default();
    read_in.asked.reply.stream = true;
    read(fields(body)?, &[ROWS], &mut read_in)?;
    let OllamaAsked { asked, messages, system, prompt, pictures, is_raw, options, unloads: _ } = &mut read_in;
    read(options, &OF_OPTIONS, asked)?;
    asked.finish_tools()?;
    let request = &mut asked.request;
    if is_chat {
        // As in Ollama, the answer continues the last message if that is a message of the assistant. With a
        // schema, the answer is a new message, because JSON cannot continue a text. Agents ask for their result in this way.
        let is_answer = |last: &Message| last.role == "assistant" && last.calls.is_empty();
        request.continues = messages.last().is_some_and(is_answer) && request.schema().is_none();
        request.input = Input::Chat(std::mem::take(messages));
        return Ok(read_in);
    }
    let (suffix, has_context) = (read_in_suffix(body), !request.context.is_empty());
    if *is_raw && (system.is_some() || has_context) {
        return Err(Refusal::about("raw", "raw goes with a prompt alone, without system and context"));
    }
    let content = Content { pictures: std::mem::take(pictures), ..std::mem::take(prompt).into() };
    match suffix {
        Some(_) if !content.pictures.is_empty() => {
            return Err(Refusal::about("images", "images and suffix exclude each other: leave one out"));
        }
        Some(value) => {
            request.input = Input::Texts(vec![Prompt::Text(content.text)]);
            openai::suffix(asked, &Field { name: "suffix", value })?;
        }
        None if content == Content::default() => request.input = Input::Chat(Vec::new()),
        None if *is_raw => {
            let is_seen = !content.pictures.is_empty();
            let prompt = if is_seen { Prompt::Seen(content) } else { Prompt::Text(content.text) };
            request.input = Input::Texts(vec![prompt]);
        }
        None => {
            let user = Message::with_content("user", content);
            request.input = Input::Chat(system.take().into_iter().chain([user]).collect());
        }
    }
    Ok(read_in)
}

fn read_in_suffix(body: &Value) -> Option<&Value> {
    body.get("suffix").filter(|suffix| suffix.as_str().is_some_and(|text| !text.is_empty()))
}

impl OllamaAsked {
    /// Returns true if the request has no text to answer.
    pub fn is_empty(&self) -> bool {
        matches!(&self.asked.request.input, Input::Chat(messages) if messages.is_empty())
    }
}

pub(super) const ROWS: &[Row<OllamaAsked>] = &[
    Row(
        &["model", "name"],
        Use::Reads(|read, field| {
            read.asked.request.model = Some(field.text()?.trim_end_matches(":latest").to_string());
            Ok(())
        }),
    ),
    Row(
        &["messages"],
        Use::Reads(|read, field| {
            read.messages = field.list()?.iter().map(|said| message(said, field)).collect::<Result<_>>()?;
            Ok(())
        }),
    ),
    Row(
        &["prompt"],
        Use::Reads(|read, field| {
            read.prompt = field.text()?;
            Ok(())
        }),
    ),
    Row(
        &["system"],
        Use::Reads(|read, field| {
            read.system = Some(field.text()?).filter(|text| !text.is_empty()).map(|text| Message::new("system", text));
            Ok(())
        }),
    ),
    Row(
        &["raw"],
        Use::Reads(|read, field| {
            read.is_raw = field.switch()?;
            Ok(())
        }),
    ),
    Row(
        &["context"],
        Use::Reads(|read, field| {
            let wrong = || field.refused("context must be a list of tokens, as an earlier answer has it");
            let id = |id: &Value| id.as_u64().and_then(|id| u32::try_from(id).ok()).ok_or_else(wrong);
            read.asked.request.context = field.list()?.iter().map(id).collect::<Result<_>>()?;
            Ok(())
        }),
    ),
    Row(
        &["stream"],
        Use::Reads(|read, field| {
            read.asked.reply.stream = field.switch()?;
            Ok(())
        }),
    ),
    Row(&["tools"], Use::Reads(|read, field| tools::tools(&mut read.asked, field))),
    Row(&["format"], Use::Reads(|read, field| format(&mut read.asked, field))),
    Row(
        &["think"],
        Use::Reads(|read, field| {
            let thinking = &mut read.asked.request.thinking;
            // If the model does not think, this is an error, because Ollama also refuses such a request. Other
            // interfaces only warn.
            thinking.is_required = true;
            match field.value {
                Value::Bool(is_on) => thinking.turn(field.name, *is_on),
                Value::String(level) => thinking.try_hard(field.name, level),
                _ => return Err(field.refused("think must be true, false, low, medium or high")),
            }
            Ok(())
        }),
    ),
    Row(
        &["options"],
        Use::Reads(|read, field| {
            read.options = field.object()?.clone();
            Ok(())
        }),
    ),
    Row(
        &["keep_alive"],
        Use::Reads(|read, field| {
            let is_zero = field.value.as_str().is_some_and(|time| time.trim_end_matches(char::is_alphabetic) == "0");
            read.unloads = is_zero || field.value.as_f64() == Some(0.0);
            Ok(())
        }),
    ),
    // Read together with the prompt.
    Row(&["suffix"], Use::Harmless),
    Row(&["template"], Use::Refused(Neutral::Empty)),
    Row(
        &["images"],
        Use::Reads(|read, field| {
            read.pictures = pictures(field.value).map_err(|why| field.refused(why))?;
            Ok(())
        }),
    ),
    Row(
        &["top_logprobs"],
        Use::Reads(|read, field| {
            read.asked.top_logprobs = Some(openai::alternatives(field)?);
            Ok(())
        }),
    ),
    Row(
        &["logprobs"],
        Use::Reads(|read, field| {
            let count = read.asked.top_logprobs.unwrap_or(0);
            read.asked.request.logprobs = field.switch()?.then_some(count);
            Ok(())
        }),
    ),
    Row(&["truncate", "shift", "dimensions", "_debug_render_only"], Use::Harmless),
    // These fields are ignored, because they apply only to models that generate pictures.
    Row(&["width", "height", "steps"], Use::Harmless),
];

/// The tables of the object `options`.
pub(super) const OF_OPTIONS: [&[Row<Asked>]; 4] = [OPTIONS, SAMPLING, THINKING, REFUSED];

/// Ollama's options besides those of the sampler.
const OPTIONS: &[Row<Asked>] = &[
    Row(
        &["num_predict"],
        Use::Reads(|asked, field| {
            // `num_predict` is a limit only if it is positive. In Ollama, 0 and negative numbers mean no limit.
            asked.request.limit = usize::try_from(field.whole()?).ok().filter(|limit| *limit > 0);
            Ok(())
        }),
    ),
    Row(
        &[
            "num_ctx",
            "num_batch",
            "num_gpu",
            "main_gpu",
            "num_thread",
            "use_mmap",
            "use_mlock",
            "low_vram",
            "f16_kv",
            "vocab_only",
            "numa",
            "logits_all",
            "penalize_newline",
            "embedding_only",
        ],
        Use::Harmless,
    ),
];

/// Reads a message. Ollama's calls have no type and often no identifier, and a result names its function in the field
/// `tool_name`.
fn message(said: &Value, field: &Field<'_>) -> Result<Message> {
    let (mut said, mut images) = (said.clone(), Value::Null);
    if let Some(said) = said.as_object_mut() {
        images = said.remove("images").unwrap_or_default();
        if let Some(name) = said.remove("tool_name").filter(|name| !name.is_null()) {
            said.insert("name".into(), name);
        }
    }
    let mut message = Message::of(&said).map_err(|why| field.refused(why))?;
    message.pictures.splice(..0, pictures(&images).map_err(|why| Refusal::about("images", why))?);
    for (index, call) in message.calls.iter_mut().enumerate() {
        call.id.get_or_insert_with(|| format!("call{index:05}"));
    }
    Ok(message)
}

/// Reads pictures in base64. As in Ollama, the pictures come before the text.
fn pictures(images: &Value) -> std::result::Result<Vec<Picture>, String> {
    let wrong = || "images must be a list of pictures in base64".to_string();
    let picture = |image: &Value| {
        PictureSource::of_base64(image.as_str().ok_or_else(wrong)?).map(|source| Picture { at: 0, source })
    };
    match images {
        Value::Null => Ok(Vec::new()),
        images => images.as_array().ok_or_else(wrong)?.iter().map(picture).collect(),
    }
}

fn format(asked: &mut Asked, field: &Field<'_>) -> Result<()> {
    let schema = match field.value {
        Value::String(name) if name.is_empty() => return Ok(()),
        Value::String(name) if name == "json" => json!({ "type": "object" }),
        schema @ Value::Object(_) => schema.clone(),
        _ => return Err(field.refused("format must be json or a schema")),
    };
    asked.request.form = Some(field.named(Form::Schema(schema)));
    Ok(())
}
