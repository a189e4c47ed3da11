//! Parses calls in one form from the text after the opening delimiter.

use serde_json::{Map, Value};

use super::exact;
use super::literal::{Literals, MOST_NAME};
use super::loose::{self, After};
use super::nested::{self, head};
use super::step::{Step, Unread};
use super::tools::{Call, Tool, Tools};
use super::{CallForm, Syntax, Tag};

/// How the parsed text ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// More text follows.
    Open,
    /// The answer ends here.
    Whole,
    /// The limit of tokens ends the answer here.
    Cut,
}

/// JSON keys of a call's name, in any dialect.
const NAMES: [&str; 3] = ["name", "tool_name", "function"];
const ARGUMENTS: [&str; 4] = ["arguments", "parameters", "args", "input"];
/// The delimiters of a CDATA section, whose text is not parsed as XML.
const CDATA: (&str, &str) = ("<![CDATA[", "]]>");
/// Other keys of calls.
const OTHERS: [&str; 4] = ["type", "id", "tool_call_id", "index"];

/// Parses calls and their closing delimiter. Returns the calls and the length of the consumed text.
pub fn read(form: &CallForm<String>, tools: &Tools, text: &str, end: End) -> Step<(Vec<Call>, usize)> {
    let is_end = end != End::Open;
    let mut input = Literals::new(text, quote(&form.syntax));
    let mut calls: Vec<Call> = Vec::new();
    let done = loop {
        if !calls.is_empty() && matches!(form.syntax, Syntax::Json { .. }) {
            loose::skip_surplus(&mut input, &form.close, is_end)?;
        }
        let before = input.at;
        let close = if form.close.is_empty() { Err(Unread::No) } else { input.eat(&form.close) };
        match close {
            Ok(()) if calls.is_empty() => break Err(Unread::No),
            Ok(()) => return Ok((calls, input.at)),
            Err(Unread::More) if !is_end => return Err(Unread::More),
            _ => {}
        }
        if !calls.is_empty() {
            input.skip_space();
            if input.rest().is_empty() && !is_end {
                return Err(Unread::More);
            }
            if input.rest().starts_with([',', ';']) {
                input.at += 1;
            }
        }
        // If the answer was cut off, an element without its closing delimiter is not accepted, because some of its
        // arguments may be missing.
        match item(form, tools, &mut input, end == End::Whole) {
            Ok(mut more) => calls.append(&mut more),
            Err(Unread::More) if !is_end => return Err(Unread::More),
            Err(why) => {
                // The answer ends within a further call.
                let is_cut = why == Unread::More && !calls.is_empty();
                input.at = if is_cut { text.len() } else { before };
                break Err(why);
            }
        }
    };
    // Calls count even without the closing delimiter, because models often omit the delimiter.
    match calls.is_empty() {
        false => Ok((calls, input.at)),
        true => done,
    }
}

fn quote(syntax: &Syntax<String>) -> &str {
    if let Syntax::Braces { quote } = syntax { quote } else { "" }
}

/// Parses one call, or a list of calls.
fn item(form: &CallForm<String>, tools: &Tools, input: &mut Literals<'_>, is_end: bool) -> Step<Vec<Call>> {
    match &form.syntax {
        Syntax::Json { .. } => {
            let after = After { mark: &form.close, may_be_end: form.close.is_empty() && is_end };
            json(tools, input, form.open.is_empty(), after)
        }
        Syntax::Named { lead, before, id, between, after } => {
            let is_first_mark = form.open.is_empty();
            if !lead.is_empty() && input.reached(lead)? {
                let rest = input.rest();
                input.at += rest.find(before.as_str()).ok_or(Unread::More)?;
            }
            if is_first_mark || !before.is_empty() {
                input.eat(before)?;
            }
            // In a form without an opening delimiter, text is only held back while it may be the beginning of a
            // function's name.
            if is_first_mark && before.is_empty() && !tools.begins(input.rest().lines().next().unwrap_or_default()) {
                return Err(Unread::No);
            }
            let tool = name_before(tools, input, id, between)?;
            Ok(vec![named(tool, input, after, is_end)?])
        }
        Syntax::Tagged { call, parameter, .. } => tagged(tools, input, call, parameter, is_end).map(|call| vec![call]),
        Syntax::Keyed { call, key, value } => {
            keyed(tools, input, call, key, value, &form.close, is_end).map(|call| vec![call])
        }
        Syntax::Python => python(tools, input, form.open.is_empty()),
        Syntax::Braces { .. } => braces(tools, input).map(|call| vec![call]),
        Syntax::Nested { lead, call } => nested::call(tools, input, lead, call).map(|call| vec![call]),
    }
}

/// Parses JSON; a code block around the JSON is accepted. Without an opening delimiter, a call must have arguments.
fn json(tools: &Tools, input: &mut Literals<'_>, is_bare: bool, after: After<'_>) -> Step<Vec<Call>> {
    let is_fenced = input.reached("```json")? || input.reached("```")?;
    input.skip_space();
    let text = input.rest();
    if text.is_empty() {
        return Err(Unread::More);
    }
    if !text.starts_with(['{', '[']) {
        return Err(Unread::No);
    }
    if is_bare {
        may_be_call(tools, text)?;
    }
    let after = if is_fenced { After { mark: "```", ..after } } else { after };
    let (value, len) = json_value(text, after)?;
    input.at += len;
    let calls = match value {
        Value::Array(values) if !values.is_empty() => {
            values.iter().map(|value| json_call(tools, value, is_bare)).collect()
        }
        value => json_call(tools, &value, is_bare).map(|call| vec![call]),
    };
    let calls: Option<Vec<Call>> = calls;
    if is_fenced {
        input.eat("```")?;
    }
    calls.ok_or(Unread::No)
}

/// Parses a JSON value at the start of a text, and accepts the mistakes that models make. Returns the value and the
/// length of its text.
fn json_value(text: &str, after: After<'_>) -> Step<(Value, usize)> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    match values.next() {
        Some(Ok(value)) => {
            let parsed = (value, values.byte_offset());
            let loosely = || loose::value(text, after).ok().filter(|(_, len)| *len == parsed.1);
            Ok(exact::may_have_large(&text[..parsed.1]).then(loosely).flatten().unwrap_or(parsed))
        }
        Some(Err(error)) if error.is_eof() && !after.may_be_end => Err(Unread::More),
        _ => loose::value(text, after),
    }
}

fn json_call(tools: &Tools, value: &Value, needs_arguments: bool) -> Option<Call> {
    let object = value.get("function").filter(|function| function.is_object()).unwrap_or(value).as_object()?;
    let arguments = ARGUMENTS.iter().find_map(|key| object.get(*key));
    if let Some(tool) = NAMES.iter().find_map(|key| tools.find(object.get(*key)?.as_str()?)) {
        return match arguments {
            None if needs_arguments => None,
            None => Some(tool.call(Map::new())),
            Some(arguments) => Some(tool.call_json(arguments)),
        };
    }
    // `{NAME: ARGUMENTS}`
    let (name, arguments) = object.iter().next().filter(|_| object.len() == 1)?;
    tools.find(name).filter(|_| arguments.is_object() && !needs_arguments).map(|tool| tool.call_json(arguments))
}

/// Returns Ok if incomplete JSON may become a call without a delimiter: the first key is a key of calls, and the
/// function is declared.
fn may_be_call(tools: &Tools, text: &str) -> Step<()> {
    let object = text.strip_prefix('[').unwrap_or(text).trim_start();
    let Some(inner) = object.strip_prefix('{').map(str::trim_start) else {
        return if object.is_empty() { Err(Unread::More) } else { Err(Unread::No) };
    };
    let Some(key) = inner.strip_prefix('"') else {
        return if inner.is_empty() { Err(Unread::More) } else { Err(Unread::No) };
    };
    let known = || NAMES.iter().chain(&ARGUMENTS).chain(&OTHERS);
    let Some((key, rest)) = key.split_once('"') else {
        return if known().any(|known| known.starts_with(key)) { Err(Unread::More) } else { Err(Unread::No) };
    };
    if !known().any(|known| *known == key) {
        return Err(Unread::No);
    }
    let value = rest.trim_start().strip_prefix(':').map(str::trim_start);
    match value.and_then(|value| value.strip_prefix('"')) {
        Some(name) if key == "name" || key == "tool_name" => match name.split_once('"') {
            Some((name, _)) if tools.find(name).is_none() => Err(Unread::No),
            None if !tools.begins(name) => Err(Unread::No),
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

/// Parses a function's name, which ends where `between` begins. If `between` is empty, it ends where the arguments
/// begin. The name must be that of a declared function.
fn name_before<'f>(tools: &'f Tools, input: &mut Literals<'_>, id: &str, between: &str) -> Step<&'f Tool> {
    let rest = input.rest();
    let (name, len) = if between.is_empty() {
        let at = rest.find('{').ok_or(Unread::More)?;
        (&rest[..at], at)
    } else {
        // Spaces at the ends of the delimiter need not be in the text, unless the delimiter consists only of spaces.
        let mark = if between.trim().is_empty() { between } else { between.trim() };
        let at = input.name_end(mark)?;
        (&rest[..at], at + mark.len())
    };
    let name = if id.is_empty() { name } else { name.split(id).next().unwrap_or(name) };
    let tool = tools.find(name).ok_or(Unread::No)?;
    input.at += len;
    Ok(tool)
}

/// Parses arguments in JSON, and the delimiter after them.
fn named(tool: &Tool, input: &mut Literals<'_>, after: &str, is_end: bool) -> Step<Call> {
    input.skip_space();
    if input.rest().is_empty() {
        return Err(Unread::More);
    }
    if !input.rest().starts_with('{') {
        return Err(Unread::No);
    }
    let mark = after.trim_start().lines().next().unwrap_or_default();
    let mark = if mark.starts_with("```") { "```" } else { mark };
    let (value, len) = json_value(input.rest(), After { mark, may_be_end: false })?;
    input.at += len;
    if !mark.is_empty() {
        loose::skip_surplus(input, mark, is_end)?;
    }
    // Several delimiters may follow, each after white space.
    for mark in after.split('\n').filter(|mark| !mark.is_empty()) {
        let (fence, rest) = match mark.strip_prefix("```") {
            Some(rest) => ("```", rest),
            None => ("", mark),
        };
        for mark in [fence, rest].into_iter().filter(|mark| !mark.is_empty()) {
            match input.eat(mark) {
                Err(Unread::More) if !is_end => return Err(Unread::More),
                Err(Unread::No) => return Err(Unread::No),
                _ => {}
            }
        }
    }
    Ok(tool.call_json(&value))
}

fn tagged(
    tools: &Tools,
    input: &mut Literals<'_>,
    call: &Tag<String>,
    parameter: &Tag<String>,
    is_end: bool,
) -> Step<Call> {
    let (name, _) = head(input, call)?;
    let tool = tools.find(name).ok_or(Unread::No)?;
    let mut arguments = Map::new();
    loop {
        match input.eat(&call.close) {
            Ok(()) => return Ok(tool.call(arguments)),
            Err(Unread::More) if is_end => {
                input.at += input.rest().len();
                return Ok(tool.call(arguments));
            }
            Err(Unread::More) => return Err(Unread::More),
            Err(Unread::No) => {}
        }
        let (key, attributes) = head(input, parameter)?;
        let rest = input.rest();
        // The end of a CDATA section is searched for first, because the closing delimiter of the element may also occur
        // in the section as text.
        let literal = rest.trim_start().strip_prefix(CDATA.0).map(|inner| rest.len() - inner.len());
        let from = match literal {
            Some(start) => start + rest[start..].find(CDATA.1).ok_or(Unread::More)?,
            None => 0,
        };
        let len = from + rest[from..].find(&parameter.close).ok_or(Unread::More)?;
        input.at += len + parameter.close.len();
        if let Some(start) = literal {
            arguments.insert(super::unwrapped(key), Value::String(super::unwrapped(&rest[start..from])));
            continue;
        }
        let value = &rest[..len];
        let value = value.strip_prefix('\n').unwrap_or(value);
        let value = value.strip_suffix('\n').unwrap_or(value);
        let is_text = attributes.contains("string=\"true\"") || attributes.contains("type=\"string\"");
        let is_other = attributes.contains("string=\"false\"") || attributes.contains("type=\"");
        let value = match () {
            () if is_text => Value::String(super::unwrapped(value)),
            () if is_other => loose::strict(value).unwrap_or_else(|| tool.typed(key, value)),
            () => tool.typed(key, value),
        };
        arguments.insert(super::unwrapped(key), value);
    }
}

/// Parses `NAME`, then keys and values, up to the closing delimiter.
fn keyed(
    tools: &Tools,
    input: &mut Literals<'_>,
    call: &[String; 3],
    key: &(String, String),
    value: &(String, String),
    close: &str,
    is_end: bool,
) -> Step<Call> {
    let [open, separator, end] = call;
    if !open.is_empty() {
        input.eat(open)?;
    }
    input.skip_space();
    let rest = input.rest();
    let ends = ["\n", key.0.as_str(), close, separator, end];
    let found = ends.iter().filter(|end| !end.is_empty()).map(|end| input.name_end(end));
    let len =
        match found.min_by_key(|found| found.map_or_else(|why| (1, usize::from(why == Unread::No)), |len| (0, len))) {
            Some(Ok(len)) => len,
            _ if is_end && rest.len() <= MOST_NAME => rest.len(),
            Some(Err(why)) => return Err(why),
            None => return Err(Unread::No),
        };
    let tool = tools.find(&rest[..len]).ok_or(Unread::No)?;
    input.at += len;
    if !separator.is_empty() && !input.reached(separator)? {
        return Err(Unread::No);
    }
    let mut arguments = Map::new();
    loop {
        if !end.is_empty() {
            match input.eat(end) {
                Ok(()) => return Ok(tool.call(arguments)),
                Err(Unread::More) if !is_end => return Err(Unread::More),
                _ => {}
            }
        }
        match input.eat(&key.0) {
            Ok(()) => {}
            Err(Unread::More) if !is_end => return Err(Unread::More),
            // The answer ends within a delimiter.
            Err(Unread::More) => {
                input.at += input.rest().len();
                return Ok(tool.call(arguments));
            }
            // The following text closes the call, or is the next call.
            Err(Unread::No) => return Ok(tool.call(arguments)),
        }
        let name = up_to(input, &key.1)?.trim();
        input.eat(&value.0)?;
        let text = up_to(input, &value.1)?;
        arguments.insert(super::unwrapped(name), tool.typed(name, text));
    }
}

fn up_to<'t>(input: &mut Literals<'t>, mark: &str) -> Step<&'t str> {
    let rest = input.rest();
    let len = rest.find(mark).ok_or(Unread::More)?;
    input.at += len + mark.len();
    Ok(&rest[..len])
}

/// Parses calls in Python's syntax. Without an opening delimiter, they are in brackets.
fn python(tools: &Tools, input: &mut Literals<'_>, is_bare: bool) -> Step<Vec<Call>> {
    let is_list = input.reached("[")?;
    if is_bare && !is_list {
        return Err(Unread::No);
    }
    let mut calls = Vec::new();
    loop {
        let start = input.at;
        let name = input.name();
        if input.rest().trim_start().is_empty() {
            let is_begun = if input.rest().is_empty() { tools.begins(name) } else { tools.find(name).is_some() };
            input.at = start;
            return if is_begun { Err(Unread::More) } else { Err(Unread::No) };
        }
        input.eat("(")?;
        let tool = tools.find(name).ok_or(Unread::No)?;
        calls.push(tool.call(python_arguments(tool, input)?));
        if !is_list {
            return Ok(calls);
        }
        if input.reached("]")? {
            return Ok(calls);
        }
        input.eat(",")?;
        if input.reached("]")? {
            return Ok(calls);
        }
    }
}

/// Parses `key=value, ...)`. A value without a key is assigned to the parameter at the value's position.
fn python_arguments(tool: &Tool, input: &mut Literals<'_>) -> Step<Map<String, Value>> {
    let mut arguments = Map::new();
    loop {
        if input.reached(")")? {
            return Ok(arguments);
        }
        let start = input.at;
        let name = input.name();
        input.skip_space();
        if input.rest().is_empty() {
            return Err(Unread::More);
        }
        if !name.is_empty() && input.rest().starts_with('=') {
            input.at += 1;
            let value = match input.value(0)? {
                Value::String(text) if !tool.may_be_text(name) => tool.typed(name, &text),
                value => value,
            };
            arguments.insert(name.to_string(), value);
        } else {
            input.at = start;
            let value = input.value(0)?;
            let key = tool.key(arguments.len()).ok_or(Unread::No)?;
            arguments.insert(key.to_string(), value);
        }
        if !input.reached(",")? && !input.rest().starts_with(')') {
            return Err(Unread::No);
        }
    }
}

/// Parses `call:NAME{...}`.
fn braces(tools: &Tools, input: &mut Literals<'_>) -> Step<Call> {
    input.eat("call:")?;
    let rest = input.rest();
    let len = rest.find('{').ok_or(Unread::More)?;
    let tool = tools.find(&rest[..len]).ok_or(Unread::No)?;
    input.at += len + 1;
    Ok(tool.call(input.members("}", ":", 0)?))
}
