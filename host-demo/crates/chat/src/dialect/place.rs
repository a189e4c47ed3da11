//! Where a template reads the declared functions: in the variable `tools`, or in a message.

use minijinja::value::{Kwargs, Rest, Value as Jinja};
use serde_json::{Value, json};

use crate::to_json::tojson;

/// The place of the declared functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The variable `tools`.
    Variable,
    /// A list in the system message's field `tools`: GLM-4-9B.
    List,
    /// JSON text in the system message's field `tools`: Phi-4-mini.
    Text,
    /// In a message of the role `functions`, which follows the system message: FireFunction 1.
    Message,
}

impl Place {
    /// Adds the functions to the messages, if the template reads the functions from a message.
    pub fn put(self, tools: &[Value], messages: &mut Vec<Value>) {
        let has_system = messages.first().is_some_and(|first| first["role"] == "system");
        match self {
            Self::Variable => return,
            Self::Message => {
                let functions = json!({ "role": "functions", "content": specifications(tools, Some(4)) });
                return messages.insert(usize::from(has_system), functions);
            }
            Self::List | Self::Text if tools.is_empty() => return,
            Self::List | Self::Text if !has_system => messages.insert(0, json!({ "role": "system", "content": "" })),
            Self::List | Self::Text => {}
        }
        messages[0]["tools"] = match self {
            Self::Text => json!(specifications(tools, None)),
            _ => tools.into(),
        };
    }
}

/// Returns the functions as a JSON list of names, descriptions and parameters.
pub fn specifications(tools: &[Value], indent: Option<u32>) -> String {
    let functions: Vec<&Value> = tools.iter().map(|tool| tool.get("function").unwrap_or(tool)).collect();
    let indent =
        indent.map(|indent| Jinja::from(Kwargs::from_iter([("indent".to_string(), Jinja::from(indent))])).into());
    let functions: Jinja = serde_json::from_value(json!(functions)).unwrap_or_default();
    tojson(&functions, Rest(indent.into_iter().collect())).unwrap_or_default()
}
