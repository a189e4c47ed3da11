//! Calls with the mistakes that models make. If Python's `json.loads(strict=False)` or `ast.literal_eval` accepts the
//! text, its result is the expected value.

use serde_json::{Value, json};

use super::Part;
use super::tests::{FORMS, read, read_after, reader};

/// Checks that an answer consists of one call of `get_weather` with these arguments, and of nothing else.
fn check(text: &str, arguments: &Value) {
    let wanted = vec![("get_weather".to_string(), arguments.clone())];
    assert_eq!(read(text), (String::new(), String::new(), wanted), "{text}");
}

#[test]
fn values_that_are_not_quite_json() {
    for (given, wanted) in [
        ("{\"city\": \"x\ny\tz\"}", json!({ "city": "x\ny\tz" })),
        (r#"{"city": "C:\x86 \d+ \temp \u00zz"}"#, json!({ "city": "C:\\x86 \\d+ \temp \\u00zz" })),
        (r#"{"city": "it\'s", "days": 1,}"#, json!({ "city": "it's", "days": 1 })),
        (r#"{"tags": ["a", "b",], "days": 1}"#, json!({ "tags": ["a", "b"], "days": 1 })),
        (
            r"{'city': 'it\'s \x41', 'exact': True, 'unit': None}",
            json!({ "city": "it's A", "exact": true, "unit": null }),
        ),
        (r#"{"city": "\ud83d", "tags": ["\ud83d\ude00\n\q"]}"#, json!({ "city": "\u{fffd}", "tags": ["😀\n\\q"] })),
        (
            r#"{"at": {"a": NaN, "b": 1e400, "c": -1e400}}"#,
            json!({ "at": { "a": null, "b": f64::MAX, "c": f64::MIN } }),
        ),
        (r#"{"at": {"a": [1, 2}, "days": 3}"#, json!({ "at": { "a": [1, 2] }, "days": 3 })),
    ] {
        for text in [
            format!("<tool_call>\n{{\"name\": \"get_weather\", \"arguments\": {given}}}\n</tool_call>"),
            format!("[TOOL_CALLS][{{\"name\": \"get_weather\", \"arguments\": {given}}}]"),
            format!("[TOOL_CALLS]get_weather[ARGS]{given}"),
            format!(
                "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{given}<|tool_call_end|><|tool_calls_section_end|>"
            ),
            format!("{{\"name\": \"get_weather\", \"parameters\": {given}}}"),
        ] {
            check(&text, &wanted);
        }
    }
}

#[test]
fn brackets_that_are_missing_or_surplus() {
    for text in [
        "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\"}\n</tool_call>",
        "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\"\n</tool_call>",
        "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\"}} }\n</tool_call>",
        "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\"}}}}",
        "<tool_call>\n```json\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\"}\n```\n</tool_call>",
        "<tool_call>\n{'name': 'get_weather', 'arguments': {'city': 'Oslo'}}\n</tool_call>",
        "[TOOL_CALLS][{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\"}]",
        "[TOOL_CALLS][{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\"}",
        "[TOOL_CALLS][{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\"}}}]",
        "[TOOL_CALLS][{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\"}}]}",
        "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Oslo\"}",
        "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Oslo\"}}}",
        "\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\"}} </tool_call>",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{\"city\": \"Oslo\"<|tool_call_end|><|tool_calls_section_end|>",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{\"city\": \"Oslo\"}}<|tool_call_end|><|tool_calls_section_end|>",
        "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": \"{\\\"city\\\": \\\"Oslo\\\",}\"}\n</tool_call>",
    ] {
        check(text, &json!({ "city": "Oslo" }));
    }
    let prompt = "<|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>";
    let channel = &prompt["<|start|>assistant".len()..];
    let (content, _, calls) = read_after("<|start|>assistant", &format!("{channel}{{\"city\": \"x\ny\"}}<|call|>"));
    assert_eq!((content.as_str(), calls), ("", vec![("get_weather".to_string(), json!({ "city": "x\ny" }))]));
}

#[test]
fn text_with_mistakes_that_is_no_call() {
    for text in [
        "<tool_call>{'name': 'other', 'arguments': {}}</tool_call>",
        "<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"city\": Oslo}}</tool_call>",
        "<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"city\": \"say \"hi\" now\"}}</tool_call>",
        "<tool_call>{ soon }</tool_call>",
        "{'name': 'get_weather', 'arguments': {}}",
        "{\"name\": \"get_weather\", \"arguments\": {}}} is how to call it.",
        "{\"city\": \"Oslo\"}</tool_call>",
        // The arguments are not complete.
        "[TOOL_CALLS][{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\"",
        "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Oslo\", ",
        "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\"}",
    ] {
        assert_eq!(read(text), (text.to_string(), String::new(), vec![]), "{text}");
    }
}

/// Reads a long call in small pieces, in time proportional to its length. If the time were proportional to the square
/// of the length, this test would take days.
#[test]
fn a_long_call_in_small_pieces() {
    let code = "if (a[b]) {\n\tc(\"\\d\");\n}\n".replace('"', "'").repeat(100_000);
    for (open, close) in [
        ("<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"", "\"}}\n</tool_call>"),
        ("[TOOL_CALLS][{\"name\": \"get_weather\", \"arguments\": {\"city\": \"", "\"}}]"),
    ] {
        let text = format!("{open}{code}{close}");
        let (mut reader, mut parts) = (reader(""), Vec::new());
        text.as_bytes().chunks(4).for_each(|piece| reader.push(std::str::from_utf8(piece).unwrap(), &mut parts));
        reader.finish(&mut parts, false);
        let [Part::Call(call)] = &parts[..] else { panic!("{} parts", parts.len()) };
        let arguments: Value = serde_json::from_str(&call.arguments).unwrap();
        assert_eq!(arguments["city"], code);
    }
}

#[test]
fn calls_at_the_end_of_a_thought_that_is_not_closed() {
    let call = "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>";
    let oslo = || ("get_weather".to_string(), json!({ "city": "Oslo" }));
    for (text, thought, calls) in [
        (format!("plan\n{call}"), "plan".to_string(), vec![oslo()]),
        (format!("I use <tool_call> or\n\n{call}\n{call}\n"), "I use <tool_call> or".into(), vec![oslo(), oslo()]),
        (call.to_string(), String::new(), vec![oslo()]),
        (format!("plan\n{call} and on"), format!("plan\n{call} and on"), vec![]),
        (format!("plan\n{}", &call[..40]), format!("plan\n{}", &call[..40]), vec![]),
        ("plan [TOOL_CALLS]other[ARGS]{}".into(), "plan [TOOL_CALLS]other[ARGS]{}".into(), vec![]),
    ] {
        assert_eq!(read_after("<think>\n", &text), (String::new(), thought, calls), "{text}");
    }
    // A closed thought is a thought.
    let closed = read_after("<think>\n", &format!("plan\n{call}\n</think>\n\nDone"));
    assert_eq!(closed, ("Done".into(), format!("plan\n{call}"), vec![]));
}

/// Some arguments have more than 64 bits, such as hashes, or amounts of a currency in its smallest unit. Clients must
/// get them exactly.
#[test]
fn large_integers_stay_exact() {
    for number in ["123456789012345678901234567890", "-9223372036854775809", "18446744073709551616"] {
        for form in FORMS {
            let (mut reader, mut parts) = (reader(""), Vec::new());
            let (before, after) = form.split_once("days").unwrap();
            reader.push(&format!("{before}days{}", after.replacen('2', number, 1)), &mut parts);
            reader.finish(&mut parts, false);
            let [Part::Call(call)] = &parts[..] else { panic!("{form}: {parts:?}") };
            let wanted = format!("{{\"city\":\"Oslo\",\"days\":{number}}}");
            assert_eq!(call.arguments.replace(": ", ":").replace(", ", ","), wanted, "{form}");
        }
    }
    // Integers of up to 64 bits and other numbers stay numbers. They are not held as texts.
    let text = "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"at\": {\"a\": 18446744073709551615, \"b\": 1.0e25}}}\n</tool_call>";
    let wanted = vec![("get_weather".to_string(), json!({ "at": { "a": u64::MAX, "b": 1.0e25 } }))];
    assert_eq!(read(text), (String::new(), String::new(), wanted));
}
