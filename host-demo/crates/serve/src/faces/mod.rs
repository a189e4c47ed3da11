//! The tables of fields that convert the requests of each interface to a [`TextRequest`].
//!
//! A row of a table names a field, and says whether the server reads it, ignores it because it changes no answer, or
//! refuses it. `null` means that a field is absent. Fields without a row are ignored because clients may send
//! additional fields.

pub mod anthropic;
pub mod audio;
pub mod decisions;
pub mod embeddings;
mod field;
mod form;
pub mod infill;
pub mod ollama;
pub mod openai;
mod refused;
pub mod rerank;
pub mod responses;
#[cfg(test)]
mod tests;
mod tools;

pub use field::Field;

use std::collections::HashMap;

use serde_json::{Map, Value};

use arenite_request::{Refusal, TextRequest};
use arenite_run::service::Endpoint;

type Result<T> = std::result::Result<T, Refusal>;

/// A request, and the form of its answer.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    pub request: TextRequest,
    pub reply: Reply,
    /// Number of alternatives for each token, if log-probabilities are reported.
    top_logprobs: Option<usize>,
    /// Tools that are not functions.
    left_out: Vec<String>,
}

#[derive(Clone, Debug, Default)]
pub struct Reply {
    pub stream: bool,
    /// True if a stream ends with the token counts.
    pub include_usage: bool,
    /// Paths of the fields to return in llama.cpp's own format. If the list is empty, all fields are returned.
    pub fields: Vec<String>,
    /// True if answers in OpenAI's format have llama.cpp's `timings`.
    pub has_timings: bool,
    /// True if llama.cpp's own format returns the answer's tokens.
    pub has_tokens: bool,
    /// The namespace and the name of each function of a namespace, by the name that the model sees. A call returns the
    /// namespace in a field of its own.
    pub namespaces: HashMap<String, (String, String)>,
    /// Warnings for the client.
    pub warnings: Vec<&'static str>,
}

/// The effect of a field.
pub enum Use<T> {
    /// The field becomes part of the request.
    Reads(fn(&mut T, &Field<'_>) -> Result<()>),
    /// The field changes no answer.
    Harmless,
    /// The field would change the answer. A request with this field is refused, unless the field's value leaves the
    /// answer unchanged.
    Refused(Neutral),
}

/// The values of a refused field that leave the answer unchanged.
#[derive(Clone, Copy)]
pub enum Neutral {
    /// Absent, null, false, or empty.
    Empty,
    /// The values of `Empty`, or this number.
    Number(f64),
    /// The values of `Empty`, or this text.
    Text(&'static str),
    /// Absent, null or true.
    True,
}

/// The names of a field, and its use. If a request uses several of these names, the first name with a value counts.
pub struct Row<T: 'static>(pub &'static [&'static str], pub Use<T>);

/// Reads the fields of `body` in the order of the tables.
pub fn read<T>(body: &Map<String, Value>, tables: &[&[Row<T>]], target: &mut T) -> Result<()> {
    for Row(names, use_of) in tables.iter().copied().flatten() {
        let given = |name: &&'static str| Some((*name, body.get(*name).filter(|value| !value.is_null())?));
        let Some((name, value)) = names.iter().find_map(given) else { continue };
        match use_of {
            Use::Reads(read) => read(target, &Field { name, value })?,
            Use::Harmless => {}
            Use::Refused(neutral) if neutral.includes(value) => {}
            Use::Refused(_) => return Err(Refusal::unsupported(name)),
        }
    }
    Ok(())
}

/// Reads the body of a text request to one of OpenAI's endpoints, and converts it.
pub fn read_json(endpoint: Endpoint, body: &Value) -> Result<Asked> {
    match endpoint {
        Endpoint::Chat => openai::chat(body),
        _ => openai::completion(body),
    }
}

/// Returns the fields of a body.
pub fn fields(body: &Value) -> Result<&Map<String, Value>> {
    body.as_object().ok_or_else(|| Refusal::invalid("the body must be a JSON object"))
}

impl Neutral {
    fn includes(self, value: &Value) -> bool {
        let is_empty = match value {
            Value::Null | Value::Bool(false) => true,
            Value::String(text) => text.is_empty(),
            Value::Array(list) => list.is_empty(),
            Value::Object(object) => object.is_empty(),
            _ => false,
        };
        match self {
            Self::Empty => is_empty,
            Self::Number(number) => is_empty || value.as_f64() == Some(number),
            Self::Text(text) => is_empty || value == text,
            Self::True => value == &Value::Bool(true),
        }
    }
}
