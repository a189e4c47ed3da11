//! The header `x-warning` of answers.

use serde_json::json;

use crate::scripted::CHATML;
use crate::talk::{asked, function, start};

#[test]
fn tools_that_are_no_functions_are_left_out_with_a_warning() {
    let talk = start(&["Once"], &[], &[], CHATML);
    for (path, body) in [
        ("/v1/responses", json!({ "input": "hi", "tools": [{ "type": "web_search" }] })),
        (
            "/v1/chat/completions",
            asked(json!({ "tools": [{ "type": "custom", "custom": { "name": "c" } }, function("f")] })),
        ),
        (
            "/v1/messages",
            json!({ "messages": [{ "role": "user", "content": "hi" }], "tools": [{ "type": "bash_20250124", "name": "bash" }] }),
        ),
    ] {
        let (head, answer) = talk.server.ask("POST", path, "", body.to_string().as_bytes());
        assert!(head.starts_with("HTTP/1.1 200") && head.contains("x-warning: "), "{head}\n{answer}");
    }
}

/// If a grammar cannot enforce the whole schema, a header of the answer tells which parts are not enforced.
#[test]
fn differences_from_a_schema_are_told() {
    let talk = start(&["[1]"], &[], &[], CHATML);
    let tags = json!({ "type": "array", "items": { "type": "integer" }, "uniqueItems": true });
    let schema = json!({ "type": "json_schema", "json_schema": { "name": "a", "schema": tags } });
    for body in [json!({ "response_format": schema }), json!({ "response_format": schema, "stream": true })] {
        let (head, _) = talk.server.ask("POST", "/v1/chat/completions", "", asked(body).to_string().as_bytes());
        let warning = "x-warning: response_format: $: uniqueItems is enforced only for up to 8 listed values\r\n";
        assert!(head.contains(warning), "{head}");
    }
    let body = json!({ "prompt": "hi", "json_schema": tags });
    let (head, _) = talk.server.ask("POST", "/completion", "", body.to_string().as_bytes());
    assert!(head.contains("x-warning: json_schema: $: uniqueItems"), "{head}");
    let mut limited = function("f");
    limited["function"]["parameters"] = json!({ "properties": { "\u{e4}": { "format": "uri", "maxLength": 9 } } });
    let called = asked(json!({ "tools": [limited], "tool_choice": "required" }));
    let (head, _) = talk.server.ask("POST", "/v1/chat/completions", "", called.to_string().as_bytes());
    assert!(head.contains("x-warning: ") && head.contains("tools: $.properties.\\u{e4}: format uri: "), "{head}");
}
