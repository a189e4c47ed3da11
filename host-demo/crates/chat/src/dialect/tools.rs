//! Functions declared by a request, and calls of them.

use serde_json::{Map, Value, json};

use super::marks::unwrapped;
use super::{exact, loose};

/// A call: a name, and arguments as JSON text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub name: String,
    pub arguments: String,
}

/// A function with the schema of its arguments.
#[derive(Clone, Debug)]
pub struct Tool {
    pub name: String,
    pub parameters: Value,
    pub strict: bool,
}

/// The functions that may be called.
#[derive(Clone, Debug, Default)]
pub struct Tools(pub Vec<Tool>);

/// Types of JSON values that a schema allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Types {
    string: bool,
    other: bool,
}

impl Tools {
    /// Parses functions as in OpenAI's requests: `{"type": "function", "function": {...}}`, or the inner object.
    pub fn of(declared: &[Value]) -> Self {
        let tool = |tool: &Value| {
            let function = tool.get("function").filter(|function| function.is_object()).unwrap_or(tool);
            let parameters = function.get("parameters").filter(|value| value.is_object()).cloned();
            let mut parameters = parameters.unwrap_or_else(|| json!({ "type": "object" }));
            name_types(&mut parameters, 0);
            let has_others = ["$ref", "anyOf", "oneOf", "allOf", "additionalProperties", "patternProperties"];
            let names = parameters.get("properties").and_then(Value::as_object).map_or(0, Map::len);
            // A function without parameters accepts no arguments.
            if names == 0 && !has_others.iter().any(|key| parameters.get(key).is_some()) {
                parameters["additionalProperties"] = json!(false);
            }
            Some(Tool {
                name: function.get("name")?.as_str()?.to_string(),
                parameters,
                strict: function.get("strict").and_then(Value::as_bool).unwrap_or(false),
            })
        };
        Self(declared.iter().filter_map(tool).collect())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the declared function with this name. The prefix `functions.`, a number after a colon and the suffix
    /// `.call` are ignored.
    pub fn find(&self, written: &str) -> Option<&Tool> {
        let written = written.trim().trim_matches(['"', '\'']);
        let exact = |name: &str| self.0.iter().find(|tool| tool.name == name);
        let inner = written.strip_prefix("functions.").unwrap_or(written);
        let numbered = |name: &str| {
            let (name, number) = name.rsplit_once(':')?;
            (!number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit())).then(|| exact(name))?
        };
        let spelled = unwrapped(written);
        exact(written)
            .or_else(|| exact(inner))
            .or_else(|| numbered(inner))
            .or_else(|| exact(inner.strip_suffix(".call")?))
            .or_else(|| (spelled != written).then(|| exact(&spelled))?)
    }

    /// Returns true if `written` may be the beginning of a name that [`find`](Self::find) knows.
    pub fn begins(&self, written: &str) -> bool {
        let inner = written.strip_prefix("functions.").unwrap_or(written);
        let ends = |rest: &str| ".call".starts_with(rest) || rest.starts_with(':');
        let begins = |tool: &Tool| tool.name.starts_with(inner) || inner.strip_prefix(&tool.name).is_some_and(ends);
        "functions.".starts_with(written) || self.0.iter().any(begins)
    }
}

impl Tool {
    pub fn call(&self, arguments: Map<String, Value>) -> Call {
        self.call_json(&Value::Object(arguments))
    }

    /// Makes a call from its arguments: a JSON value, or a string that contains JSON.
    pub fn call_json(&self, arguments: &Value) -> Call {
        let arguments = match arguments {
            Value::String(text) if text.trim().is_empty() => "{}".into(),
            Value::String(text) if serde_json::from_str::<Value>(text).is_ok() => text.clone(),
            Value::String(text) => loose::whole(text).map_or_else(|| text.clone(), |value| value.to_string()),
            Value::Null => "{}".into(),
            arguments => arguments.to_string(),
        };
        Call { name: self.name.clone(), arguments: exact::bare(&unwrapped(&arguments)) }
    }

    /// Returns the schema of one argument.
    pub fn schema(&self, key: &str) -> Option<&Value> {
        self.parameters.get("properties")?.get(key)
    }

    /// Returns the name of the argument at a position.
    pub fn key(&self, at: usize) -> Option<&str> {
        self.parameters.get("properties")?.as_object()?.keys().nth(at).map(String::as_str)
    }

    /// Converts an unquoted argument to the type in its schema.
    pub fn typed(&self, key: &str, text: &str) -> Value {
        self.typed_by(self.schema(key).unwrap_or(&Value::Null), text)
    }

    /// Converts an unquoted value to the type in a schema; `null` allows every type.
    pub fn typed_by(&self, schema: &Value, text: &str) -> Value {
        let text = unwrapped(text);
        let types = types(schema, &self.parameters, 0);
        let parsed = || loose::strict(&text).or_else(|| super::literal::whole(text.trim()));
        match types {
            Types { string: true, other: false } => Value::String(text),
            Types { string: true, other: true } => match parsed() {
                Some(Value::String(_)) | None => Value::String(text),
                Some(value) => value,
            },
            _ => parsed().unwrap_or(Value::String(text)),
        }
    }

    /// Returns true if the schema allows a text for this argument.
    pub fn may_be_text(&self, key: &str) -> bool {
        self.schema(key).is_none_or(|schema| types(schema, &self.parameters, 0).string)
    }

    /// Returns true if the function's schema allows no values but texts for this argument.
    pub fn is_text(&self, key: &str) -> bool {
        self.schema(key)
            .is_some_and(|schema| types(schema, &self.parameters, 0) == Types { string: true, other: false })
    }
}

/// Replaces names of types in other languages by JSON Schema's names: `dict`, `float`, `List[str]`, `int, optional`,
/// `STRING`. A type without an equivalent allows any value.
fn name_types(schema: &mut Value, depth: usize) {
    let Some(members) = schema.as_object_mut().filter(|_| depth < 64) else { return };
    if members.get("required").is_some_and(Value::is_null) {
        members.remove("required");
    }
    if let Some(Value::String(name)) = members.get("type") {
        let lower = name.to_lowercase();
        let name = lower.split([',', '[', '<']).next().unwrap_or_default().trim();
        let known = match name {
            "object" | "array" | "string" | "number" | "integer" | "boolean" | "null" => name,
            "dict" | "map" | "hashmap" => "object",
            "list" | "tuple" | "set" | "arraylist" => "array",
            "str" | "text" | "char" => "string",
            "float" | "double" | "decimal" => "number",
            "int" | "long" => "integer",
            "bool" => "boolean",
            "none" => "null",
            _ => "",
        };
        match known {
            "" => _ = members.remove("type"),
            known => _ = members.insert("type".into(), json!(known)),
        }
    }
    for (key, inner) in members {
        match (key.as_str(), inner) {
            ("enum" | "const" | "default" | "examples" | "example", _) => {}
            ("properties" | "$defs" | "definitions" | "patternProperties", Value::Object(named)) => {
                named.values_mut().for_each(|schema| name_types(schema, depth + 1));
            }
            (_, Value::Array(list)) => list.iter_mut().for_each(|schema| name_types(schema, depth + 1)),
            (_, schema) => name_types(schema, depth + 1),
        }
    }
}

/// Returns the types that a schema allows. A schema that names no type allows texts and other values.
fn types(schema: &Value, root: &Value, depth: usize) -> Types {
    let mut types = Types::default();
    let mut add = |is_string: bool| match is_string {
        true => types.string = true,
        false => types.other = true,
    };
    if depth > 8 {
        return Types { string: true, other: true };
    }
    match schema.get("type") {
        Some(Value::String(name)) => add(name == "string"),
        Some(Value::Array(names)) => names.iter().for_each(|name| add(name == "string")),
        _ => {
            let values = schema.get("enum").and_then(Value::as_array).into_iter().flatten();
            values.chain(schema.get("const")).for_each(|value| add(value.is_string()));
        }
    }
    let target = schema.get("$ref").and_then(Value::as_str).and_then(|path| root.pointer(path.strip_prefix('#')?));
    let lists = ["anyOf", "oneOf", "allOf"].into_iter().filter_map(|key| schema.get(key)?.as_array()).flatten();
    for inner in lists.chain(target) {
        let inner = self::types(inner, root, depth + 1);
        types.string |= inner.string;
        types.other |= inner.other;
    }
    match types {
        Types { string: false, other: false } => Types { string: true, other: true },
        types => types,
    }
}
