//! Finds parts of a `tokenizer.json`.

use serde_json::Value;

pub fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Returns `value` if its type is `name`, otherwise the first element inside `value` with this type.
pub fn part<'v>(value: &'v Value, name: &str) -> Option<&'v Value> {
    if value["type"] == name {
        return Some(value);
    }
    let parts = ["pretokenizers", "normalizers", "decoders", "processors"];
    parts.iter().flat_map(|parts| list(&value[*parts])).find_map(|value| part(value, name))
}
