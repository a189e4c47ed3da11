//! Writes calls as text in the model's own form, for templates that do not write calls.

use minijinja::value::Rest;
use serde_json::{Map, Value, json};

use super::tools::{Call, Tool};
use super::{Constraint, Dialect, Marks, Own, exact, loose, unwrapped};
use crate::to_json::tojson;
use arenite_grammar::Piece;

impl Constraint<'_> {
    /// Writes calls. If the dialect has channels, or the arguments are not an object, the form of Hermes is used.
    pub fn write(&self, calls: &[Call]) -> String {
        let hermes = Dialect::all(&Marks::default());
        let exact: Option<Vec<Tool>> = calls.iter().map(only).collect();
        let (form, tools) = match (self.dialect.own, exact) {
            (Own::Form(own), Some(tools)) => (&self.dialect.calls[own], tools),
            _ => (&hermes.calls[0], calls.iter().map(|call| only(call).unwrap_or_else(|| whole(call))).collect()),
        };
        let piece = self.calls_in(form, &tools.iter().collect::<Vec<_>>(), true);
        let mut writer = Writer { marks: self.marks, count: tools.len(), next: 0, out: String::new() };
        writer.piece(&piece);
        exact::bare(&writer.out)
    }
}

/// Returns a function whose only parameters are the arguments of this call; `None` if the arguments are not an object.
fn only(call: &Call) -> Option<Tool> {
    let parsed = loose::strict(&call.arguments).or_else(|| loose::whole(&call.arguments))?;
    let Value::Object(arguments) = parsed else { return None };
    let required: Vec<Value> = arguments.keys().map(|key| json!(key)).collect();
    let properties: Map<String, Value> =
        arguments.into_iter().map(|(key, value)| (key, json!({ "const": value }))).collect();
    let parameters = json!({ "type": "object", "properties": properties, "required": required });
    Some(Tool { name: call.name.clone(), parameters, strict: false })
}

/// Returns a function that has only this call: its schema allows nothing but the call's arguments.
fn whole(call: &Call) -> Tool {
    Tool { name: call.name.clone(), parameters: json!({ "const": call.arguments }), strict: false }
}

/// Writes the only text that a grammar of calls allows.
struct Writer<'m> {
    marks: &'m Marks,
    count: usize,
    /// Number of the next call.
    next: usize,
    out: String,
}

impl Writer<'_> {
    fn piece(&mut self, piece: &Piece) {
        match piece {
            Piece::Text(text) => self.out += text,
            Piece::Token(id) => self.out += &self.marks.text_of(*id).map(unwrapped).unwrap_or_default(),
            Piece::Seq(list) => list.iter().for_each(|piece| self.piece(piece)),
            Piece::Rule(piece) => self.piece(piece),
            // The calls, or the only value of a text.
            Piece::Alt(list) if list.len() == self.count && self.next < self.count => {
                self.next += 1;
                self.piece(&list[self.next - 1]);
            }
            Piece::Alt(list) => list.iter().take(1).for_each(|piece| self.piece(piece)),
            Piece::Repeat(further, ..) => {
                for _ in self.next..self.count {
                    self.piece(further);
                }
            }
            Piece::Members(pairs, between) => {
                for (at, (pair, _)) in pairs.iter().enumerate() {
                    if at > 0 {
                        self.piece(between);
                    }
                    self.piece(pair);
                }
            }
            Piece::Schema(schema) => {
                let value: minijinja::Value = serde_json::from_value(value(schema)).unwrap_or_default();
                self.out += &tojson(&value, Rest(Vec::new())).unwrap_or_default();
            }
            Piece::Without(_) | Piece::Between(..) => {}
        }
    }
}

/// Returns the only value of a schema.
fn value(schema: &Value) -> Value {
    match (schema.get("const"), schema.get("properties").and_then(Value::as_object)) {
        (Some(value), _) => value.clone(),
        (None, Some(properties)) => properties.iter().map(|(key, schema)| (key.clone(), value(schema))).collect(),
        (None, None) => json!({}),
    }
}
