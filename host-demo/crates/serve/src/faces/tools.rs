//! Functions in requests, and the choice among them.

use serde_json::{Map, Value, json};

use super::{Asked, Field, Result, Row, Use};
use arenite_request::{Must, Refusal, ToolChoice, function};

/// A warning for the client.
const LEFT_OUT: &str = "only functions can be called here: other tools are left out";

/// The functions of OpenAI's chats and responses.
pub const ROWS: &[Row<Asked>] = &[
    Row(&["tools"], Use::Reads(tools)),
    Row(&["tool_choice"], Use::Reads(choice)),
    Row(
        &["parallel_tool_calls"],
        Use::Reads(|asked, field| {
            asked.request.is_parallel = Some(field.switch()?);
            Ok(())
        }),
    ),
];

/// Returns the name that the model sees for a function of a namespace.
pub fn name_within(namespace: Option<&str>, name: &str) -> String {
    match namespace.filter(|namespace| !namespace.is_empty()) {
        Some(namespace) => format!("{namespace}__{name}"),
        None => name.into(),
    }
}

/// Reads the functions of OpenAI's requests: `{"type": "function", "function": {...}}`, or the same fields without the
/// inner object. `{"type": "namespace", "name": ..., "tools": [...]}` contains more functions. Other tools are left out.
pub fn tools(asked: &mut Asked, field: &Field<'_>) -> Result<()> {
    functions(asked, field, None)
}

/// Reads functions. If they belong to a namespace, their names get it as a prefix.
fn functions(asked: &mut Asked, field: &Field<'_>, namespace: Option<&str>) -> Result<()> {
    for tool in field.list()? {
        let kind = tool.get("type").and_then(Value::as_str).unwrap_or("function");
        let name = tool.get("name").and_then(Value::as_str);
        if let ("namespace", Some(name), Some(value), None) = (kind, name, tool.get("tools"), namespace) {
            functions(asked, &Field { value, ..*field }, Some(name))?;
            continue;
        }
        if kind != "function" {
            asked.leave_out(name.unwrap_or(kind));
            continue;
        }
        let nested = tool.get("function").and_then(Value::as_object);
        let Some(inner) =
            nested.or_else(|| tool.as_object()).filter(|inner| inner.get("name").is_some_and(Value::is_string))
        else {
            return Err(field.refused("a tool needs a function with a name"));
        };
        let mut inner = inner.clone();
        if let (Some(namespace), Some(Value::String(name))) = (namespace, inner.get_mut("name")) {
            let own = std::mem::replace(name, name_within(Some(namespace), name));
            if asked.reply.namespaces.insert(name.clone(), (namespace.into(), own)).is_some() {
                return Err(field.refused(format!("two functions have the name `{name}`")));
            }
        }
        if nested.is_none() {
            inner.retain(|key, value| key != "type" && !value.is_null());
        }
        // Add the parameters if a client omits them or leaves them empty, because templates read them.
        let parameters = inner.entry("parameters").or_insert(Value::Null);
        if parameters.as_object().is_none_or(Map::is_empty) {
            *parameters = json!({ "type": "object", "properties": {} });
        }
        let mut whole = tool.clone();
        match nested {
            Some(_) => whole["function"] = inner.into(),
            None => whole = json!({ "type": "function", "function": inner }),
        }
        asked.request.tools.push(whole);
    }
    Ok(())
}

/// Reads the functions of Anthropic's requests.
pub fn anthropic_tools(asked: &mut Asked, field: &Field<'_>) -> Result<()> {
    for tool in field.list()? {
        let text = |key: &str| tool.get(key).and_then(Value::as_str);
        let name = text("name");
        if let Some(kind) = text("type").filter(|kind| *kind != "custom") {
            asked.leave_out(name.unwrap_or(kind));
            continue;
        }
        let name = name.ok_or_else(|| field.refused("a tool needs a name"))?;
        let is_strict = tool.get("strict").and_then(Value::as_bool).unwrap_or(false);
        asked.request.tools.push(function(name, text("description"), tool.get("input_schema"), is_strict));
    }
    Ok(())
}

/// Reads the choice among the functions: a word, a function, or a list of allowed functions. The formats of OpenAI's
/// interfaces and of Anthropic's are understood.
pub fn choice(asked: &mut Asked, field: &Field<'_>) -> Result<()> {
    let choice = field.value;
    let kind = choice.as_str().or_else(|| choice.get("type")?.as_str());
    let kind = kind.or_else(|| choice.get("function").map(|_| "function")).unwrap_or_default();
    let name = |tool: &Value| {
        let name = tool.pointer("/function/name").or_else(|| tool.get("name"))?.as_str()?;
        Some(name_within(tool.get("namespace").and_then(Value::as_str), name))
    };
    let must = match kind {
        "none" => Must::Never,
        "auto" => Must::Auto,
        "required" | "any" => Must::Any,
        "function" | "tool" => Must::Named(name(choice).ok_or_else(|| field.refused("tool_choice names no function"))?),
        "allowed_tools" => {
            let allowed = choice.get("allowed_tools").unwrap_or(choice);
            let names = allowed.get("tools").and_then(Value::as_array).into_iter().flatten().filter_map(name);
            asked.request.choice.allowed = Some(names.collect());
            if allowed.get("mode").is_some_and(|mode| mode == "required") { Must::Any } else { Must::Auto }
        }
        "" => return Err(field.refused("tool_choice must be none, auto, required or a function")),
        other if choice.is_object() => {
            let message =
                format!("tool_choice asks for a tool of type `{other}`, and only functions can be called here");
            return Err(field.refused(message));
        }
        // A plain string is the name of a function. text-generation-inference and huggingface_hub write it instead of
        // an object that contains the name.
        name if asked
            .request
            .tools
            .iter()
            .any(|tool| tool.pointer("/function/name").is_some_and(|tool| tool == name)) =>
        {
            Must::Named(name.into())
        }
        _ => return Err(field.refused("tool_choice must be none, auto, required or a function")),
    };
    let is_single = choice.get("disable_parallel_tool_use").and_then(Value::as_bool);
    asked.request.is_parallel = is_single.map(|is_single| !is_single).or(asked.request.is_parallel);
    asked.request.choice.must = must;
    Ok(())
}

impl Asked {
    /// Leaves out a tool that is not a function.
    pub fn leave_out(&mut self, name: &str) {
        self.left_out.push(name.into());
        self.reply.warnings.push(LEFT_OUT);
    }

    /// Keeps the functions that may be called, and checks that there are some if one must be called.
    pub fn finish_tools(&mut self) -> Result<()> {
        let wrong = |message: &str| Err(Refusal::about("tool_choice", message));
        let ToolChoice { must, allowed } = &self.request.choice;
        let tools = &mut self.request.tools;
        let name = |tool: &Value| tool.pointer("/function/name").and_then(Value::as_str).map(str::to_string);
        if let Some(allowed) = allowed {
            tools.retain(|tool| name(tool).is_some_and(|name| allowed.contains(&name)));
            // If the allowed functions are all among those that the server leaves out, the request is accepted as long
            // as no call is required, because the model can answer without a call.
            if tools.is_empty() && !(allowed.is_empty() && *must == Must::Auto) {
                return wrong("there is no such function among the tools");
            }
        }
        match must {
            Must::Auto => Ok(()),
            Must::Never => {
                tools.clear();
                Ok(())
            }
            Must::Named(wanted) if self.left_out.contains(wanted) => {
                wrong("tool_choice asks for a tool that is no function, and only functions can be called here")
            }
            Must::Any | Must::Named(_) if tools.is_empty() => {
                wrong("tool_choice requires a call, but there are no tools that are functions")
            }
            Must::Named(wanted) if !tools.iter().any(|tool| name(tool).as_ref() == Some(wanted)) => {
                wrong("there is no such function among the tools")
            }
            _ => Ok(()),
        }
    }
}
