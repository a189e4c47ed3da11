//! Parses calls whose arguments are nested elements: `<invoke name="NAME"><KEY>VALUE</KEY></invoke>`, with a delimiter
//! before every tag.

use serde_json::{Map, Value};

use super::literal::Literals;
use super::step::{Step, Unread};
use super::tools::{Call, Tool, Tools};
use super::{Tag, unwrapped};

/// Maximum nesting of elements.
const MOST_NESTED: usize = 64;

/// Parses one call. `lead` precedes every tag.
pub fn call(tools: &Tools, input: &mut Literals<'_>, lead: &str, call: &Tag<String>) -> Step<Call> {
    input.eat(lead)?;
    let (name, _) = head(input, call)?;
    let tool = tools.find(name).ok_or(Unread::No)?;
    let mut arguments = Map::new();
    loop {
        input.eat(lead)?;
        if input.reached(&call.close)? {
            return Ok(tool.call(arguments));
        }
        let key = key(input)?;
        let value = value(tool, tool.schema(&key).unwrap_or(&Value::Null), input, lead, &key, 0)?;
        arguments.insert(key, value);
    }
}

/// Parses `<KEY>`.
fn key(input: &mut Literals<'_>) -> Step<String> {
    input.eat("<")?;
    let rest = input.rest();
    let len = rest.find('>').ok_or(if rest.len() > 256 { Unread::No } else { Unread::More })?;
    input.at += len + 1;
    Ok(unwrapped(&rest[..len]))
}

/// Parses the content of an element, and its closing tag.
fn value(tool: &Tool, schema: &Value, input: &mut Literals<'_>, lead: &str, name: &str, depth: usize) -> Step<Value> {
    let rest = input.rest();
    let len = rest.find(lead).ok_or(Unread::More)?;
    let close = format!("</{name}>");
    let after = &rest[len + lead.len()..];
    if after.starts_with(&close) {
        input.at += len + lead.len() + close.len();
        return Ok(match schema["type"].as_str() {
            Some("array") if len == 0 => Value::Array(Vec::new()),
            Some("object") if len == 0 => Value::Object(Map::new()),
            _ => tool.typed_by(schema, &rest[..len]),
        });
    }
    if close.starts_with(after) {
        return Err(Unread::More);
    }
    if depth == MOST_NESTED || !rest[..len].trim().is_empty() {
        return Err(Unread::No);
    }
    let (mut members, mut items) = (Map::new(), Vec::new());
    loop {
        input.eat(lead)?;
        if input.reached(&close)? {
            break;
        }
        let key = key(input)?;
        let inner = schema.pointer(&format!("/properties/{key}")).or_else(|| schema.get("items"));
        let value = value(tool, inner.unwrap_or(&Value::Null), input, lead, &key, depth + 1)?;
        match key.as_str() {
            "item" if schema.get("properties").is_none() => items.push(value),
            _ => _ = members.insert(key, value),
        }
    }
    Ok(if items.is_empty() { Value::Object(members) } else { Value::Array(items) })
}

/// Returns the name in an element's head, and the rest of the head.
pub fn head<'t>(input: &mut Literals<'t>, tag: &Tag<String>) -> Step<(&'t str, &'t str)> {
    input.eat(&tag.open)?;
    let rest = input.rest();
    // A quoted name ends with its closing quote; attributes may follow the quote.
    let (quote, close) = match tag.head.strip_prefix('"') {
        Some(close) => ("\"", close),
        None => ("", tag.head.as_str()),
    };
    let len = input.name_end(if quote.is_empty() { close } else { quote })?;
    let after = &rest[len + quote.len()..];
    let end = after.find(close).ok_or(Unread::More)?;
    input.at += len + quote.len() + end + close.len();
    Ok((rest[..len].trim(), &after[..end]))
}
