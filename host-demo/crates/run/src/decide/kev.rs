//! Writes JSON values as plain text for models of the type kev, which are not trained to read JSON. Source: llama.cpp's
//! `decision_kev_render`.

use serde_json::Value;

/// Returns a value as text. Names of special tokens in the value become ordinary text, because the prompt's special
/// tokens are parsed after the template is filled.
pub fn text(value: &Value) -> String {
    without_special(&flat(value, 0))
}

/// Returns a value as text lines. The elements of a list become `- item`, and the members of an object become `key:
/// value`. Each level is indented by two spaces.
fn flat(value: &Value, level: usize) -> String {
    let pad = "  ".repeat(level);
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Bool(true) => "True".into(),
        Value::Bool(false) => "False".into(),
        Value::Number(number) => number.to_string(),
        Value::Array(items) => {
            let line = |item| format!("{pad}- {}", flat(item, level + 1).trim_start_matches([' ', '\t', '\n', '\r']));
            items.iter().map(line).collect::<Vec<_>>().join("\n")
        }
        Value::Object(members) => {
            let line = |(key, item): (&String, &Value)| match item {
                Value::Object(_) | Value::Array(_) => format!("{pad}{key}:\n{}", flat(item, level + 1)),
                _ => format!("{pad}{key}: {}", flat(item, 0)),
            };
            members.iter().map(line).collect::<Vec<_>>().join("\n")
        }
    }
}

/// Replaces `<|name|>` by `<¦name¦>`.
fn without_special(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("<|") {
        out.push_str(before);
        let len = after.bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count();
        let (name, end) = after.split_at(len);
        match end.strip_prefix("|>").filter(|_| len > 0) {
            Some(end) => {
                out.push_str("<¦");
                out.push_str(name);
                out.push_str("¦>");
                rest = end;
            }
            None => {
                out.push_str("<|");
                rest = after;
            }
        }
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The expected texts were computed by the function of llama.cpp's that `text` follows.
    #[test]
    fn values_are_flattened() {
        let nested = json!({"a": [1, {"b": null, "c": [true, "x"]}], "d": {"e": 12.5}, "f": false});
        let lines = "a:\n  - 1\n  - b: \n    c:\n      - True\n      - x\nd:\n  e: 12.5\nf: False";
        assert_eq!(text(&nested), lines);
        assert_eq!(text(&json!([[1, 2], []])), "- - 1\n  - 2\n- ");
        assert_eq!(text(&json!(null)), "");
    }

    #[test]
    fn special_tokens_become_text() {
        let spelled = |input: &str| text(&json!(input));
        assert_eq!(spelled("a <|im_end|> b"), "a <¦im_end¦> b");
        assert_eq!(spelled("<|<|x|>|> <|a b|> <||> <|"), "<|<¦x¦>|> <|a b|> <||> <|");
    }
}
