//! Calls of functions in answers, in the forms that common templates teach.

use serde_json::{Value, json};

/// A call: a name, and arguments as JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub name: String,
    pub arguments: String,
}

impl Call {
    fn of(value: &Value) -> Option<Self> {
        let value = value.get("function").filter(|function| function.is_object()).unwrap_or(value);
        let name = value.get("name")?.as_str()?.to_string();
        let arguments = match value.get("arguments").or_else(|| value.get("parameters"))? {
            Value::String(text) => text.clone(),
            arguments => arguments.to_string(),
        };
        Some(Self { name, arguments })
    }

    /// One call or a list of them.
    fn all_of(text: &str) -> Option<Vec<Self>> {
        match serde_json::from_str(text.trim()).ok()? {
            Value::Array(values) if !values.is_empty() => values.iter().map(Self::of).collect(),
            value => Some(vec![Self::of(&value)?]),
        }
    }
}

/// What an answer says, and which functions it calls.
///
/// `<tool_call>{...}</tool_call>` as Hermes and Qwen write it, `[TOOL_CALLS][...]` as Mistral does, and an answer that
/// is nothing but a call, as Llama 3 does.
pub fn calls(text: &str) -> (String, Vec<Call>) {
    const OPEN: &str = "<tool_call>";
    const CLOSE: &str = "</tool_call>";
    let (mut said, mut calls) = (String::new(), Vec::new());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(OPEN) {
        let (inner, next) = after.split_once(CLOSE).unwrap_or((after, ""));
        match Call::all_of(inner) {
            Some(found) => {
                said += before;
                calls.extend(found);
            }
            None => said += &rest[..rest.len() - next.len()],
        }
        rest = next;
    }
    said += rest;
    if calls.is_empty() {
        for mark in ["[TOOL_CALLS]", "<|python_tag|>"] {
            if let Some((before, list)) = text.split_once(mark)
                && let Some(found) = Call::all_of(list)
            {
                return (before.trim().into(), found);
            }
        }
        if let Some(found) = Call::all_of(text) {
            return (String::new(), found);
        }
        return (text.into(), calls);
    }
    (said.trim().into(), calls)
}

/// As in answers.
pub fn to_json(calls: &[Call], id: &str, choice: usize) -> Value {
    calls
        .iter()
        .enumerate()
        .map(|(index, call)| {
            json!({
                "index": index,
                "id": format!("call_{}_{choice}_{index}", id.rsplit('-').next().unwrap_or_default()),
                "type": "function",
                "function": { "name": call.name, "arguments": call.arguments },
            })
        })
        .collect()
}

/// The schema of a call of one of these functions.
pub fn schema(tools: &[&Value]) -> Value {
    let each = tools.iter().map(|tool| {
        let parameters = tool.pointer("/function/parameters").cloned().unwrap_or_else(|| json!({ "type": "object" }));
        json!({
            "type": "object",
            "properties": { "name": { "const": tool.pointer("/function/name") }, "arguments": parameters },
            "required": ["name", "arguments"],
        })
    });
    json!({ "anyOf": each.collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(name: &str, arguments: &str) -> Call {
        Call { name: name.into(), arguments: arguments.into() }
    }

    #[test]
    fn common_forms_are_read() {
        let weather = call("weather", r#"{"city":"Oslo"}"#);
        for text in [
            "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>",
            "[TOOL_CALLS][{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}]",
            "{\"name\": \"weather\", \"parameters\": {\"city\": \"Oslo\"}}",
            "<|python_tag|>{\"name\": \"weather\", \"parameters\": {\"city\": \"Oslo\"}}",
            "{\"type\": \"function\", \"function\": {\"name\": \"weather\", \"arguments\": \"{\\\"city\\\":\\\"Oslo\\\"}\"}}",
        ] {
            assert_eq!(calls(text), (String::new(), vec![weather.clone()]), "{text}");
        }
        let two = "Let me see.\n<tool_call>{\"name\":\"a\",\"arguments\":{}}</tool_call>\n<tool_call>{\"name\":\"b\",\"arguments\":{}}";
        assert_eq!(calls(two), ("Let me see.".into(), vec![call("a", "{}"), call("b", "{}")]));
    }

    #[test]
    fn what_is_no_call_is_said() {
        for text in ["hello", "{\"name\": 1}", "<tool_call>soon</tool_call> x", "[1, 2]", ""] {
            assert_eq!(calls(text), (text.into(), vec![]));
        }
    }
}
