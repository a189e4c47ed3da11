//! Fields of Anthropic's Messages API.

use serde_json::Value;

use super::{Asked, Field, Neutral, Result, Row, Use, fields, openai, read, tools};
use arenite_request::{
    Content, EarlierCall, Form, Input, Message, Picture, PictureSource, Refusal, RefusalKind, heading, text_of_file,
};

/// Reads a request.
pub fn messages(body: &Value) -> Result<Asked> {
    let mut asked = Asked::default();
    read(fields(body)?, &[MESSAGES], &mut asked)?;
    asked.finish_tools()?;
    let messages = asked.request.messages();
    let Some(last) = messages.last() else {
        return Err(Refusal::about("messages", "there are no messages"));
    };
    let is_answer = last.role == "assistant";
    if is_answer && !last.calls.is_empty() {
        return Err(Refusal::about("messages", "the last message has calls: end with their results"));
    }
    asked.request.continues = is_answer;
    Ok(asked)
}

/// A row for a field that goes to the request.
macro_rules! row {
    ($name:expr, $asked:ident, $field:ident, $body:expr) => {
        Row(
            &[$name],
            Use::Reads(|$asked, $field| {
                $body;
                Ok(())
            }),
        )
    };
}

pub(super) const MESSAGES: &[Row<Asked>] = &[
    row!("model", asked, field, asked.request.model = Some(field.text()?)),
    row!("max_tokens", asked, field, asked.request.limit = field.limit()?),
    Row(&["system"], Use::Reads(system)),
    Row(&["messages"], Use::Reads(conversation)),
    row!("stream", asked, field, asked.reply.stream = field.switch()?),
    Row(&["stop_sequences"], Use::Reads(openai::stop)),
    row!("temperature", asked, field, asked.request.sampling.temperature = Some(field.number()?)),
    row!("top_p", asked, field, asked.request.sampling.top_p = Some(field.number()?)),
    row!("top_k", asked, field, asked.request.sampling.top_k = Some(field.whole()?)),
    Row(&["tools"], Use::Reads(tools::anthropic_tools)),
    Row(&["tool_choice"], Use::Reads(tools::choice)),
    Row(&["thinking"], Use::Reads(thinking)),
    Row(&["output_format"], Use::Reads(schema)),
    Row(&["output_config"], Use::Reads(output)),
    // These fields are refused, because Anthropic's service would connect to other servers, run code in a container, or
    // summarize the conversation.
    Row(&["mcp_servers"], Use::Refused(Neutral::Empty)),
    Row(&["container"], Use::Refused(Neutral::Empty)),
    Row(&["thread"], Use::Reads(thread)),
    Row(&["compaction"], Use::Refused(Neutral::Empty)),
    // This field asks the service to drop old parts of long conversations. It is ignored because this server keeps all
    // parts, and refuses a conversation that is too long.
    Row(&["context_management"], Use::Harmless),
    Row(
        &[
            "metadata",
            "service_tier",
            "betas",
            "anthropic_beta",
            "cache_control",
            "inference_geo",
            "speed",
            "fallbacks",
            "fallback_credit_token",
            "billing_policy",
            "diagnostics",
        ],
        Use::Harmless,
    ),
];

/// The start of a line with which Claude Code reports to Anthropic's accounting. The line is removed because it changes
/// with every request, so that no text after it could be reused from the cache.
const ACCOUNTING: &str = "x-anthropic-billing-header:";

/// Removes the line for accounting at the start of a text.
fn without_accounting(text: String) -> String {
    match text.trim_start().starts_with(ACCOUNTING) {
        true => text.trim_start().split_once('\n').map(|(_, rest)| rest.trim_start().to_string()).unwrap_or_default(),
        false => text,
    }
}

fn system(asked: &mut Asked, field: &Field<'_>) -> Result<()> {
    let text = match field.value {
        Value::Array(blocks) => {
            let texts =
                blocks.iter().map(|block| content_of(block, field)?.into_text().map_err(|why| field.refused(why)));
            let texts = texts.collect::<Result<Vec<_>>>()?;
            let texts = texts.into_iter().map(without_accounting).map(Content::from);
            let mut all = Content::default();
            texts.for_each(|text| all.append(text));
            all.in_lines().text
        }
        _ => without_accounting(field.text()?),
    };
    if !text.is_empty() {
        asked.request.input = Input::Chat(vec![Message::new("system", text)]);
    }
    Ok(())
}

fn conversation(asked: &mut Asked, field: &Field<'_>) -> Result<()> {
    let mut messages = asked.request.messages().to_vec();
    for message in field.list()? {
        let role = message.get("role").and_then(Value::as_str);
        let role = role.ok_or_else(|| field.refused("a message needs a role"))?;
        match message.get("content") {
            Some(Value::String(text)) => messages.push(Message::new(role, text)),
            Some(Value::Array(list)) => blocks(role, list, field, &mut messages)?,
            _ => return Err(field.refused("the content of a message must be a text or a list of blocks")),
        }
    }
    asked.request.input = Input::Chat(messages);
    Ok(())
}

/// Adds the blocks of a message. Each tool result becomes a separate message.
fn blocks(role: &str, list: &[Value], field: &Field<'_>, messages: &mut Vec<Message>) -> Result<()> {
    let mut message = Message::new(role, "");
    let (mut content, mut thought, mut has_results) = (Content::default(), String::new(), false);
    for block in list {
        let given = |key: &str| block.get(key).and_then(Value::as_str).map(str::to_string);
        let kind = given("type").unwrap_or_else(|| "text".into());
        match kind.as_str() {
            "thinking" => thought += &given("thinking").unwrap_or_default(),
            "redacted_thinking" => {}
            "tool_use" => message.calls.push(EarlierCall {
                id: given("id"),
                name: given("name").ok_or_else(|| field.refused("a tool_use needs a name"))?,
                arguments: block.get("input").cloned().unwrap_or_else(|| Value::Object(Default::default())),
            }),
            "tool_result" => {
                let result = match block.get("content") {
                    Some(Value::Array(list)) => joined(list, field)?,
                    Some(Value::String(text)) => text.clone().into(),
                    _ => Content::default(),
                };
                has_results = true;
                messages.push(Message { call_id: given("tool_use_id"), ..Message::with_content("tool", result) });
            }
            // Blocks of the service's own tools are left out, because the text after them already contains their
            // results.
            kind if kind.ends_with("_tool_use") || kind.ends_with("_tool_result") => {}
            "fallback" => {}
            "container_upload" => {
                return Err(field.refused("container_upload: the server keeps no files: send the text itself"));
            }
            _ => content.append(content_of(block, field)?),
        }
    }
    if content == Content::default() && message.calls.is_empty() && has_results {
        return Ok(());
    }
    message.thought = Some(thought).filter(|thought| !thought.is_empty());
    messages.push(message.with(content));
    Ok(())
}

/// Returns the text of a block, or its picture.
fn content_of(block: &Value, field: &Field<'_>) -> Result<Content> {
    if block.get("type").is_some_and(|kind| kind == "image") {
        let source = PictureSource::of_part(block).map_err(|why| field.refused(why))?;
        return Ok(Content { pictures: vec![Picture { at: 0, source }], ..Content::default() });
    }
    // A block may carry its text in a field of another name: a summary of earlier messages has it in `content`, and a
    // function that a search has found has its name in `tool_name`.
    let other = ["content", "tool_name"].iter().find_map(|key| block.get(*key)?.as_str());
    let source = block.get("source").filter(|source| source.get("type").is_some_and(|kind| kind == "text"));
    let text = block.get("text").or_else(|| source?.get("data")).and_then(Value::as_str);
    let inner = block.get("content").and_then(Value::as_array).or_else(|| block.pointer("/source/content")?.as_array());
    let mut content = Content::from(described(block));
    let file = block.pointer("/source/data").and_then(Value::as_str);
    content.append(match (text.or_else(|| block.as_str()).or(other), inner, file) {
        (Some(text), ..) => text.to_owned().into(),
        (None, Some(inner), _) => joined(inner, field)?,
        (None, None, Some(file)) => {
            let name = block.get("title").and_then(Value::as_str).unwrap_or("a document");
            text_of_file(file, name).map_err(|why| field.refused(why))?.into()
        }
        (None, None, None) => return Err(field.refused("only texts, pictures and text files can be read")),
    });
    Ok(content)
}

/// Returns the client's description of a document or of a search result.
fn described(block: &Value) -> String {
    let given = |key: &'static str| (key, block.get(key).and_then(Value::as_str).filter(|text| !text.is_empty()));
    match block.get("type").and_then(Value::as_str) {
        Some("document" | "search_result") => heading(["title", "source", "context"].map(given)),
        _ => String::new(),
    }
}

/// Returns the texts and pictures of blocks.
fn joined(blocks: &[Value], field: &Field<'_>) -> Result<Content> {
    let mut content = Content::default();
    blocks.iter().try_for_each(|block| content_of(block, field).map(|next| content.append(next)))?;
    Ok(content)
}

/// Reads the settings of thoughts. Every type except `disabled` turns thoughts on.
fn thinking(asked: &mut Asked, field: &Field<'_>) -> Result<()> {
    let thinking = &mut asked.request.thinking;
    let given = |key: &str| field.object().map(|object| object.get(key).filter(|value| !value.is_null()));
    match given("type")?.and_then(Value::as_str) {
        Some(kind) => thinking.turn(field.name, kind != "disabled"),
        None => return Err(field.refused("thinking needs a type")),
    }
    if let Some(value) = given("budget_tokens")? {
        thinking.budget = Some(Field { name: field.name, value }.whole()?);
    }
    thinking.is_hidden = given("display")?.is_some_and(|display| display == "omitted");
    Ok(())
}

/// Refuses to keep the conversation. The refusal has a special code, because Anthropic's packages then send the whole
/// conversation instead.
fn thread(_: &mut Asked, field: &Field<'_>) -> Result<()> {
    match Neutral::Empty.includes(field.value) {
        true => Ok(()),
        false => Err(Refusal {
            kind: RefusalKind::NoThreads,
            ..field.refused("thread: the server keeps no conversations: send the whole conversation as messages")
        }),
    }
}

fn schema(asked: &mut Asked, field: &Field<'_>) -> Result<()> {
    if let Some(schema) = field.object()?.get("schema").filter(|schema| !schema.is_null()) {
        asked.request.form = Some(field.named(Form::Schema(schema.clone())));
    }
    Ok(())
}

fn output(asked: &mut Asked, field: &Field<'_>) -> Result<()> {
    if let Some(value) = field.object()?.get("format").filter(|value| !value.is_null()) {
        schema(asked, &Field { name: field.name, value })?;
    }
    let effort = field.object()?.get("effort").and_then(Value::as_str);
    // If thoughts are off, Anthropic's effort determines only the length of the answer, so it is ignored.
    if let Some(effort) = effort.filter(|_| asked.request.thinking.is_on()) {
        asked.request.thinking.try_hard(field.name, effort);
    }
    Ok(())
}
