//! Fields of OpenAI's Responses API, and the sampling fields that vLLM and llama.cpp add.

use serde_json::{Value, json};

use super::form::{self, FORM};
use super::openai::{ANSWER, SAMPLING, THINKING};
use super::refused::{HARMLESS, REFUSED};
use super::tools::{self, name_within};
use super::{Asked, Field, Neutral, Result, Row, Use, fields, read};
use arenite_request::{Content, EarlierCall, Input, Message, Refusal, text_of};

/// Reads a request.
pub fn response(body: &Value) -> Result<Asked> {
    let mut asked = Asked::default();
    read(fields(body)?, &TABLES, &mut asked)?;
    if asked.request.count.is_some_and(|count| count > 1) {
        return Err(Refusal::about("n", "n must be 1"));
    }
    asked.finish_tools()?;
    if asked.request.messages().is_empty() {
        return Err(Refusal::about("input", "input must be a text or a list of items"));
    }
    Ok(asked)
}

/// The tables of a request.
pub(super) const TABLES: [&[Row<Asked>]; 9] =
    [RESPONSE, tools::ROWS, SAMPLING, ANSWER, FORM, THINKING, OTHERS, REFUSED, HARMLESS];

const RESPONSE: &[Row<Asked>] = &[
    Row(&["previous_response_id", "conversation"], Use::Reads(stored)),
    Row(&["instructions"], Use::Reads(instructions)),
    Row(&["input"], Use::Reads(input)),
    Row(
        &["max_output_tokens"],
        Use::Reads(|asked, field| {
            asked.request.limit = field.limit()?;
            Ok(())
        }),
    ),
    Row(&["text"], Use::Reads(text)),
];

/// The rows that are read after the tables of all interfaces. They need values that the rows of these tables have set,
/// such as `top_logprobs`.
const OTHERS: &[Row<Asked>] = &[
    Row(
        &["include"],
        Use::Reads(|asked, field| {
            if field.list()?.iter().any(|name| name == "message.output_text.logprobs") {
                asked.request.logprobs.get_or_insert(0);
            }
            Ok(())
        }),
    ),
    Row(
        &["top_logprobs"],
        Use::Reads(|asked, _| {
            asked.request.logprobs = asked.top_logprobs;
            Ok(())
        }),
    ),
    Row(&["background"], Use::Refused(Neutral::Empty)),
    Row(&["image_data"], Use::Refused(Neutral::Empty)),
    Row(&["prompt"], Use::Refused(Neutral::Empty)),
    Row(&["echo"], Use::Refused(Neutral::Empty)),
    Row(&["suffix"], Use::Refused(Neutral::Empty)),
    Row(&["continue_final_message"], Use::Refused(Neutral::Empty)),
    Row(&["add_generation_prompt"], Use::Refused(Neutral::True)),
    Row(&["documents"], Use::Refused(Neutral::Empty)),
    Row(&["modalities"], Use::Refused(Neutral::Empty)),
    Row(
        &["truncation"],
        Use::Reads(|asked, field| {
            if field.value != "disabled" {
                asked.reply.warnings.push("truncation: a conversation that is too long is refused, not cut");
            }
            Ok(())
        }),
    ),
    // These fields are ignored, because they are about tools of OpenAI's service, about what the service stores, or
    // about reports.
    Row(
        &["max_tool_calls", "context_management", "client_metadata", "access_programs", "background_options", "image"],
        Use::Harmless,
    ),
];

const LOST: &str = "input: thoughts that the server no longer has are left out";

fn stored(_: &mut Asked, field: &Field<'_>) -> Result<()> {
    match Neutral::Empty.includes(field.value) {
        true => Ok(()),
        false => Err(field.refused(format!(
            "{}: the server keeps no conversations: send the whole conversation as input",
            field.name
        ))),
    }
}

/// Adds messages to the conversation.
fn add(asked: &mut Asked, more: Vec<Message>) {
    match &mut asked.request.input {
        Input::Chat(messages) => messages.extend(more),
        input => *input = Input::Chat(more),
    }
}

/// Reads a text, or a list of items like those of `input`.
fn instructions(asked: &mut Asked, field: &Field<'_>) -> Result<()> {
    let messages = match field.value {
        Value::String(text) if text.is_empty() => Vec::new(),
        Value::String(text) => vec![Message::new("system", text)],
        Value::Array(list) => items(asked, list, field)?,
        _ => return Err(field.refused("instructions must be a text or a list of messages")),
    };
    add(asked, messages);
    Ok(())
}

fn input(asked: &mut Asked, field: &Field<'_>) -> Result<()> {
    let messages = match field.value {
        Value::String(text) => vec![Message::new("user", text)],
        Value::Array(list) => items(asked, list, field)?,
        _ => return Err(field.refused("input must be a text or a list of items")),
    };
    add(asked, messages);
    Ok(())
}

/// Converts items to messages. A thought, the text after it, and the calls after the text become one message of the
/// assistant.
fn items(asked: &mut Asked, list: &[Value], field: &Field<'_>) -> Result<Vec<Message>> {
    let wrong = |why: String| field.refused(why);
    let mut messages: Vec<Message> = Vec::new();
    // The thought before the next message of the assistant.
    let mut thought: Option<String> = None;
    for item in list {
        let text = |key: &str| item.get(key).and_then(Value::as_str).map(str::to_string);
        let content = |key: &str| text_of(item.get(key).unwrap_or(&Value::Null)).map_err(wrong);
        let kind = item.get("type").and_then(Value::as_str).unwrap_or("message");
        let name = || name_within(text("namespace").as_deref(), &text("name").unwrap_or_default());
        let call = |arguments: Value| EarlierCall { id: text("call_id"), name: name(), arguments };
        let mut calls = Vec::new();
        match kind {
            "message" => {
                let mut message = Message::of(item).map_err(wrong)?;
                ["id", "type", "status", "phase"].iter().for_each(|key| _ = message.others.remove(*key));
                if message.role == "assistant" {
                    message.thought = thought.take().or(message.thought);
                }
                messages.push(message);
            }
            "function_call" => calls.push(call(item.get("arguments").cloned().unwrap_or_else(|| json!({})))),
            "custom_tool_call" => calls.push(call(json!({ "input": item["input"] }))),
            "local_shell_call" | "shell_call" | "apply_patch_call" => {
                let name = kind.trim_end_matches("_call").to_string();
                let arguments = ["action", "operation"].iter().find_map(|key| item.get(*key)).cloned();
                calls.push(EarlierCall {
                    id: text("call_id"),
                    name,
                    arguments: arguments.unwrap_or_else(|| json!({})),
                });
            }
            "reasoning" => {
                let read = content("content")?;
                let read = if read.is_empty() { content("summary")? } else { read };
                if !read.is_empty() {
                    thought = Some(thought.map_or(read.clone(), |before| format!("{before}\n\n{read}")));
                }
            }
            "item_reference" => {
                let id = text("id").unwrap_or_default();
                // If the missing item is a thought, the request is answered with a warning, because an answer is
                // possible without it.
                if !id.starts_with("rs_") {
                    let why = format!("the server does not have the item `{id}`: send it itself, as with store: false");
                    return Err(wrong(why));
                }
                if !asked.reply.warnings.contains(&LOST) {
                    asked.reply.warnings.push(LOST);
                }
            }
            _ if kind.ends_with("_output") => {
                let output = ["output", "content"].iter().find_map(|key| item.get(*key)).unwrap_or(&Value::Null);
                // A list of parts contains texts and pictures. Any other list or object is shown to the model as JSON.
                let shown = Content::of(output).or_else(|why| match kind {
                    "function_call_output" => Err(wrong(why)),
                    _ => Ok(output.to_string().into()),
                })?;
                messages.push(Message { call_id: text("call_id"), ..Message::with_content("tool", shown) });
            }
            // Calls of tools that a service runs itself are left out. The answer after them already contains what they
            // returned.
            _ if kind.ends_with("_call") || kind.ends_with("_list_tools") || kind.contains("mcp_approval") => {}
            "compaction" | "compaction_summary" | "context_compaction" | "additional_tools" => {}
            other => return Err(wrong(format!("an item of type `{other}` cannot be read"))),
        }
        if calls.is_empty() {
            continue;
        }
        match messages.last_mut().filter(|last| last.role == "assistant" && thought.is_none()) {
            Some(last) => last.calls.extend(calls),
            None => {
                messages.push(Message { calls, thought: thought.take(), ..Message::new("assistant", "") });
            }
        }
    }
    Ok(messages)
}

fn text(asked: &mut Asked, field: &Field<'_>) -> Result<()> {
    let given = |key: &str| Ok(field.object()?.get(key).filter(|value| !value.is_null()));
    if let Some(value) = given("format")? {
        form::response_format(asked, &Field { name: "text.format", value })?;
    }
    given("verbosity")?.map_or(Ok(()), |value| form::verbosity(asked, &Field { name: "text.verbosity", value }))
}
