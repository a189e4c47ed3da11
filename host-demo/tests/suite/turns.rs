//! Conversations of real clients: templates that refuse messages, thoughts and calls that are sent back or cut off, and
//! calls together with schemas.

use serde_json::{Value, json};

use crate::scripted::CHATML;
use crate::talk::{Talk, asked, function, start};

/// The rules of Gemma 2's template: no system message, and the authors must alternate.
const GEMMA: &str = "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}\
    {% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate') }}{% endif %}\
    <{{ m.role }}>{{ m.content | trim }}</>{% endfor %}{% if add_generation_prompt %}<model>{% endif %}";

/// A template whose only system message is the first one.
const FIRST: &str = "{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('System message must be first') }}{% endif %}\
    <{{ m.role }}>{{ m.content }}</>{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";

/// A template that always opens a thought.
const THINKS: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n<think>\n";

fn prompt(talk: &Talk, messages: Value) -> String {
    talk.good("/apply-template", &json!({ "messages": messages }))["prompt"].as_str().unwrap().into()
}

/// Programs for Mistral's interface or for several interfaces send thoughts as parts of a message's content.
#[test]
fn thoughts_among_parts_are_thoughts() {
    const SHOWS: &str = "{% for m in messages %}[{{ m.role }}|{{ m.reasoning_content }}|{{ m.content }}]{% endfor %}";
    let talk = start(&["Once"], &[], &[], SHOWS);
    for thinking in [json!("Hm."), json!([{ "type": "text", "text": "Hm." }])] {
        let content =
            json!([{ "type": "thinking", "thinking": thinking, "signature": "" }, { "type": "text", "text": "x" }]);
        let messages = json!([{ "role": "user", "content": "a" }, { "role": "assistant", "content": content }, { "role": "user", "content": "b" }]);
        assert_eq!(prompt(&talk, messages), "[user||a][assistant|Hm.|x][user||b]");
    }
}

#[test]
fn only_allowed_functions_are_called() {
    let talk = start(&["Once"], &[], &[], CHATML);
    let functions = json!([function("f"), function("g")]);
    let flat = json!([{ "type": "function", "name": "f" }, { "type": "function", "name": "g", "parameters": {} }]);
    let nested = json!({ "type": "allowed_tools", "allowed_tools": { "mode": "required", "tools": [{ "type": "function", "function": { "name": "g" } }] } });
    let plain = json!({ "type": "allowed_tools", "mode": "required", "tools": [{ "type": "function", "name": "g" }] });
    for (tools, choice) in [
        (&functions, &nested),
        (&functions, &plain),
        (&flat, &plain),
        (&functions, &json!({ "type": "function", "name": "g" })),
        (&flat, &json!({ "type": "function", "function": { "name": "g" } })),
    ] {
        let choice =
            talk.chat(json!({ "tools": tools, "tool_choice": choice, "seed": 1, "parallel_tool_calls": false }));
        let calls = choice["message"]["tool_calls"].as_array().cloned().unwrap_or_default();
        assert!(calls.iter().all(|call| call["function"]["name"] == "g"), "{choice}");
    }
}

#[test]
fn templates_that_refuse_get_what_they_accept() {
    let user = |text: &str| json!({ "role": "user", "content": text });
    let system = |text: &str| json!({ "role": "system", "content": text });
    let answer = |text: &str| json!({ "role": "assistant", "content": text });
    let result = |id: &str, text: &str| json!({ "role": "tool", "tool_call_id": id, "content": text });
    let call = |id: &str| json!({ "id": id, "type": "function", "function": { "name": "f", "arguments": "{}" } });
    let calls = json!({ "role": "assistant", "content": null, "tool_calls": [call("c"), call("d")] });
    let talk = start(&["a"], &[], &[], GEMMA);
    for (messages, wanted) in [
        (json!([user("Hi")]), "<user>Hi</><model>"),
        (json!([system("S"), user("Hi")]), "<user>S\n\nHi</><model>"),
        (
            json!([system("S"), system("T"), user("Hi"), answer("A"), user("B")]),
            "<user>S\n\nT\n\nHi</><assistant>A</><user>B</><model>",
        ),
        (json!([system("S")]), "<user>S</><model>"),
        (json!([system("S"), answer("A"), user("B")]), "<user>S</><assistant>A</><user>B</><model>"),
        (json!([user("Hi"), answer("A"), system("S"), user("B")]), "<user>Hi</><assistant>A</><user>S\n\nB</><model>"),
        (
            json!([user("Hi"), user("you"), answer("A"), answer("B"), user("C")]),
            "<user>Hi\n\nyou</><assistant>A\n\nB</><user>C</><model>",
        ),
        (
            json!([user("Hi"), calls, result("c", "three"), result("d", "four")]),
            "<user>Hi</><assistant><tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call></>\
             <user><tool_response>\nthree\n</tool_response>\n\n<tool_response>\nfour\n</tool_response></><model>",
        ),
    ] {
        assert_eq!(prompt(&talk, messages), wanted);
    }
    let (head, _) = talk.server.ask(
        "POST",
        "/v1/chat/completions",
        "",
        asked(json!({ "messages": [system("S"), user("a")] })).to_string().as_bytes(),
    );
    assert!(head.contains("x-warning: the chat template has no system message"), "{head}");
    drop(talk);
    let talk = start(&["a"], &[], &[], FIRST);
    for (messages, wanted) in [
        // A conversation that the template accepts is unchanged.
        (json!([system("S"), user("a"), user("b")]), "<system>S</><user>a</><user>b</><assistant>"),
        (json!([system("S"), user("a"), system("T"), user("b")]), "<system>S\n\nT</><user>a</><user>b</><assistant>"),
    ] {
        assert_eq!(prompt(&talk, messages), wanted);
    }
}

#[test]
fn started_answers_are_continued() {
    let talk = start(&["Once", " upon"], &[], &[], FIRST);
    let user = json!({ "role": "user", "content": "x" });
    let start = |more: Value| {
        let mut message = json!({ "role": "assistant", "content": "Dear Sir" });
        more.as_object().unwrap().iter().for_each(|(key, value)| message[key] = value.clone());
        json!([user, message])
    };
    for field in ["prefix", "partial"] {
        assert_eq!(prompt(&talk, start(json!({ field: true }))), "<user>x</><assistant>Dear Sir", "{field}");
    }
    assert_eq!(prompt(&talk, start(json!({ "prefix": true, "content": "{ " }))), "<user>x</><assistant>{ ");
    assert_eq!(prompt(&talk, start(json!({ "prefix": true, "content": "" }))), "<user>x</><assistant>");
    assert_eq!(prompt(&talk, start(json!({ "prefix": false }))), "<user>x</><assistant>Dear Sir</><assistant>");
    let body = json!({ "messages": start(json!({})), "continue_final_message": true, "add_generation_prompt": false });
    assert_eq!(talk.good("/apply-template", &body)["prompt"], "<user>x</><assistant>Dear Sir");
    let answer = talk.good("/v1/messages", &json!({ "messages": start(json!({})), "max_tokens": 4, "temperature": 0 }));
    assert_eq!(answer["content"][0]["text"], "Once upon");
    let mut body = json!({ "messages": start(json!({ "prefix": true })) });
    body["json_schema"] = json!({ "type": "object" });
    assert_eq!(talk.refused("/apply-template", &body)["param"], "json_schema");
}

#[test]
fn models_that_always_think() {
    let talk = start(&["Let", " me", " see", "</think>", "The", " answer"], &[], &["<think>", "</think>"], THINKS);
    let ask = |path: &str, more: Value| talk.good(path, &asked(more));
    let ollama = |think: Value| ask("/api/chat", json!({ "stream": false, "think": think }))["message"].clone();
    for think in [json!(true), json!("high"), Value::Null] {
        assert_eq!((&ollama(think)["thinking"], "x"), (&json!("Let me see"), "x"));
    }
    // The thought is closed at once.
    assert_eq!(ollama(json!(false)).get("thinking"), None);
    let path = "/v1/chat/completions";
    for more in [
        json!({ "enable_thinking": true }),
        json!({ "reasoning": { "effort": "low" } }),
        json!({ "reasoning_effort": "high" }),
    ] {
        assert_eq!(ask(path, more)["choices"][0]["message"]["reasoning_content"], "Let me see");
    }
    for more in [
        json!({ "enable_thinking": false }),
        json!({ "reasoning_effort": "none" }),
        json!({ "thinking": { "type": "disabled" } }),
    ] {
        assert_eq!(ask(path, more)["choices"][0]["message"].get("reasoning_content"), None);
    }
    // The thought with its closing delimiter has four tokens.
    let usage = ask(path, json!({}))["usage"].clone();
    assert_eq!(usage["completion_tokens_details"]["reasoning_tokens"], 4, "{usage}");
    let usage = talk.good("/v1/responses", &json!({ "input": "hi", "temperature": 0 }))["usage"].clone();
    assert_eq!(usage["output_tokens_details"]["reasoning_tokens"], 4, "{usage}");
    let events = talk.stream(path, &asked(json!({ "stream_options": { "include_usage": true } })));
    let (last, others) = events.split_last().unwrap();
    assert_eq!(last["usage"]["completion_tokens_details"]["reasoning_tokens"], 4);
    assert!(others.len() > 2 && others.iter().all(|event| event.get("usage").is_none()), "{others:?}");
}

#[test]
fn thoughts_that_come_back_are_shown() {
    let template = "{% for m in messages %}<{{ m.role }}>{% if m.reasoning_content %}[{{ m.reasoning_content }}]{% endif %}{{ m.content }}\
                    {% for c in m.tool_calls or [] %}({{ c.function.name }}){% endfor %}</>{% endfor %}<assistant>";
    let talk = start(&["a"], &[], &[], template);
    let count = |items: Value| {
        talk.good("/v1/responses", &json!({ "input": items, "max_output_tokens": 1 }))["usage"]["input_tokens"].clone()
    };
    let chat = |messages: Value| {
        talk.good("/v1/chat/completions", &asked(json!({ "messages": messages })))["usage"]["prompt_tokens"].clone()
    };
    let user = json!({ "role": "user", "content": "hi" });
    let thought =
        json!({ "type": "reasoning", "summary": [], "content": [{ "type": "reasoning_text", "text": "Call f." }] });
    let summary = json!({ "type": "reasoning", "summary": [{ "type": "summary_text", "text": "Call f." }] });
    let call = json!({ "type": "function_call", "call_id": "c", "name": "f", "arguments": "{}" });
    let output =
        json!({ "type": "function_call_output", "call_id": "c", "output": [{ "type": "output_text", "text": "ok" }] });
    let said = json!({ "role": "assistant", "content": "", "reasoning_content": "Call f.",
        "tool_calls": [{ "id": "c", "type": "function", "function": { "name": "f", "arguments": "{}" } }] });
    let wanted = chat(json!([user, said, { "role": "tool", "tool_call_id": "c", "content": "ok" }]));
    assert_eq!(count(json!([user, thought, call, output])), wanted);
    assert_eq!(count(json!([user, summary, call, output])), wanted);
    let text = json!({ "type": "message", "role": "assistant", "content": [{ "type": "output_text", "text": "x" }] });
    let plain = json!({ "role": "assistant", "content": "x", "reasoning_content": "Call f." });
    assert_eq!(count(json!([user, thought, text, user])), chat(json!([user, plain, user])));
}

#[test]
fn a_call_that_the_limit_cuts_is_no_text() {
    let tools = "{% if tools %}{{ tools | tojson }}{% endif %}";
    for (script, user) in [
        (
            &["<tool_call>", "\n{\"name\": \"f\"", ", \"arguments\": {\"city\": \"", "x", " y", "\"}}", "</tool_call>"]
                [..],
            &["<tool_call>", "</tool_call>"][..],
        ),
        // Delimiters of several tokens.
        (
            &[
                "<tool",
                "_call>",
                "\n{\"name\"",
                ": \"f\"",
                ", \"arguments\": {\"city\": \"",
                "x",
                "\"}}",
                "</tool",
                "_call>x",
            ],
            &[],
        ),
        (&["[TOOL_CALLS]", "[{\"name\": \"f\"", ", \"arguments\": {\"city\": \"", "x", "\"}}]"], &["[TOOL_CALLS]"]),
        (&["{\"name\": \"f\"", ", \"parameters\": {\"city\": \"", "x", "\"}}"], &[]),
    ] {
        let talk = start(script, &[], user, &format!("{tools}{CHATML}"));
        for limit in 1..script.len() - 1 {
            let body = asked(json!({ "tools": [function("f")], "max_tokens": limit }));
            let choice = talk.good("/v1/chat/completions", &body)["choices"][0].clone();
            let content = choice["message"]["content"].as_str().unwrap_or_default();
            assert!(content.is_empty() && choice["finish_reason"] == "length", "{script:?} {limit}: {choice}");
            let streamed = talk.stream("/v1/chat/completions", &body);
            let text: String =
                streamed.iter().filter_map(|event| event["choices"][0]["delta"]["content"].as_str()).collect();
            assert_eq!(text, "", "{script:?} {limit}");
        }
    }
}

#[test]
fn a_closing_mark_that_the_limit_cuts_is_no_text() {
    let template = format!("{{% if tools %}}{{{{ tools | tojson }}}}{{% endif %}}{CHATML}");
    // In each case, `len` is the number of the script's tokens that make up the call, without its closing delimiters.
    for (script, len) in [
        (
            &[
                "<tool_call>",
                "\n{\"name\": \"f\"",
                ", \"arguments\": {\"city\": \"x\"}}",
                "\n",
                "<",
                "/too",
                "l_call",
                ">",
            ][..],
            3,
        ),
        (
            &[
                "<tool_call>",
                "\n<function=f>",
                "\n<parameter=city>",
                "\nx\n",
                "</parameter>",
                "\n</function>",
                "\n</",
                "tool_",
                "call>",
            ],
            6,
        ),
        (
            &[
                "<minimax:tool_call>",
                "\n<invoke name=\"f\">",
                "\n<parameter name=\"city\">",
                "x",
                "</parameter>",
                "\n</invoke>",
                "\n</mini",
                "max:tool",
                "_call>",
            ],
            6,
        ),
        (&["[TOOL", "_CALLS", "]", "[{\"name\": \"f\"", ", \"arguments\": {\"city\": \"x\"}}", "]"], 6),
    ] {
        let talk = start(script, &[], &[], &template);
        for limit in 1..=script.len() {
            let body = asked(json!({ "tools": [function("f")], "max_tokens": limit }));
            let choice = talk.good("/v1/chat/completions", &body)["choices"][0].clone();
            let calls = choice["message"]["tool_calls"].as_array().map_or(0, Vec::len);
            let content = choice["message"]["content"].as_str().unwrap_or_default();
            assert_eq!((content, calls), ("", usize::from(limit >= len)), "{script:?} {limit}: {choice}");
            let streamed = talk.stream("/v1/chat/completions", &body);
            let text: String =
                streamed.iter().filter_map(|event| event["choices"][0]["delta"]["content"].as_str()).collect();
            assert_eq!(text, "", "{script:?} {limit}");
        }
    }
    // A text after the call that only looks like one.
    let script =
        ["<tool_call>", "\n{\"name\": \"f\", \"arguments\": {\"city\": \"x\"}}", "\n</tool_call>", "a", " </", "tool"];
    let talk = start(&script, &[], &[], &template);
    let choice = talk.chat(json!({ "tools": [function("f")], "max_tokens": 5 }));
    assert_eq!(choice["message"]["content"], "a </", "{choice}");
}

#[test]
fn half_a_surrogate_pair_ends_no_conversation() {
    let talk = start(&["Once"], &[], &[], CHATML);
    for path in ["/v1/chat/completions", "/v1/messages", "/api/chat"] {
        for text in [r"cut here \ud83d", r"\ude00 b", r"\ud83d\ud83d\ude00", r"\u0000"] {
            let body = format!(r#"{{"messages": [{{"role": "user", "content": "{text}"}}]}}"#);
            assert!(talk.server.ask("POST", path, "", body.as_bytes()).0.starts_with("HTTP/1.1 200"), "{path} {text}");
        }
    }
}

#[test]
fn an_answer_with_a_schema_may_be_a_call_instead() {
    let template = format!("{{% if tools %}}{{{{ tools | tojson }}}}{{% endif %}}{CHATML}");
    let call =
        ["<tool_call>", "\n", "{\"name\": \"f\"", ", \"arguments\": {\"city\": \"", "x", "\"}}", "\n</tool_call>"];
    let value = ["{\"a\"", ": 1", "}"];
    let schema = json!({ "type": "object", "properties": { "a": { "type": "integer" } }, "required": ["a"] });
    let form = json!({ "type": "json_schema", "json_schema": { "name": "s", "schema": schema } });
    for (script, called, said) in [(&call[..], true, ""), (&value[..], false, "{\"a\": 1}")] {
        let talk = start(script, &[], &["<tool_call>"], &template);
        let choice = talk.chat(json!({ "tools": [function("f")], "response_format": form }));
        let message = &choice["message"];
        assert_eq!(message["tool_calls"][0]["function"]["name"] == "f", called, "{choice}");
        assert_eq!(message["content"].as_str().unwrap_or_default(), said, "{choice}");
        let choice = talk.chat(json!({ "tools": [function("f")], "response_format": form, "tool_choice": "none" }));
        assert!(choice["message"]["tool_calls"].is_null(), "{choice}");
    }
}

#[test]
fn a_function_that_is_not_strict_loses_only_what_a_grammar_cannot_express() {
    let template = format!("{{% if tools %}}{{{{ tools | tojson }}}}{{% endif %}}{CHATML}");
    let call =
        ["<tool_call>", "\n", "{\"name\": \"f\"", ", \"arguments\": {\"city\": \"", "x", "\"}}", "\n</tool_call>"];
    let talk = start(&call, &[], &["<tool_call>"], &template);
    let mut tool = function("f");
    tool["function"]["parameters"]["if"] = json!({ "required": ["city"] });
    tool["function"]["parameters"]["properties"]["date"] = json!({ "type": "string", "pattern": "(?i)a" });
    let mut body = asked(json!({ "tools": [tool], "tool_choice": "required" }));
    let (head, text) = talk.server.ask("POST", "/v1/chat/completions", "", body.to_string().as_bytes());
    assert!(head.contains("x-warning: tools: the parameters of f are enforced in part: $.if: this keyword"), "{head}");
    assert!(text.contains(r#"{\"city\":\"x\"}"#), "{text}");
    // In these parameters, only the keywords that a grammar cannot express are removed. The grammar still enforces the
    // types, also in nested objects.
    let owner = json!({ "type": "object", "properties": { "mail": { "type": "string", "pattern": "(?i)a", "maxLength": 3 } },
        "required": ["mail"], "dependentRequired": { "mail": ["x"] } });
    body["tools"][0]["function"]["parameters"] = json!({
        "type": "object",
        "properties": { "city": { "type": "integer", "minimum": 0, "maximum": 9, "not": { "const": 3 } }, "owner": owner },
        "required": ["city", "owner"],
    });
    // The script makes the model write all white space that the grammar allows.
    (body["max_tokens"], body["parallel_tool_calls"]) = (json!(500), json!(false));
    let answer = talk.good("/v1/chat/completions", &body);
    let call = answer["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"].as_str().unwrap();
    let call: Value = serde_json::from_str(call).unwrap();
    assert!(call["city"].is_i64() && call["owner"]["mail"].is_string(), "{answer}");
    // Without names, any object is possible.
    body["tools"][0]["function"]["parameters"] = json!({ "$ref": "https://example.org/schema" });
    let (_, text) = talk.server.ask("POST", "/v1/chat/completions", "", body.to_string().as_bytes());
    assert!(text.contains(r#"{\"city\":\"x\"}"#), "{text}");
    body["tools"][0]["function"]["parameters"] = json!({ "type": "object", "if": {} });
    body["tools"][0]["function"]["strict"] = json!(true);
    assert!(talk.refused("/v1/chat/completions", &body)["message"].as_str().unwrap().contains("$.if"));
}

#[test]
fn stop_strings_count_in_content_and_leave_no_part_of_a_call() {
    let thought = ["<think>", "I must", " not say", "</think>", "done", " so", " say"];
    let talk = start(&thought, &[], &["<think>", "</think>"], CHATML);
    let message = talk.chat(json!({ "stop": ["say"] }))["message"].clone();
    assert_eq!((&message["reasoning_content"], &message["content"]), (&json!("I must not say"), &json!("done so ")));
    let template = format!("{{% if tools %}}{{{{ tools | tojson }}}}{{% endif %}}{CHATML}");
    let call = ["<tool_call>", "\n{\"name\": \"f\"", ", \"arguments\": {\"city\": \"", "x", "\"}}", "</tool_call>"];
    let talk = start(&call, &[], &["<tool_call>", "</tool_call>"], &template);
    let choice = talk.chat(json!({ "tools": [function("f")], "stop": ["x"] }));
    assert_eq!((&choice["message"]["content"], &choice["finish_reason"]), (&json!(""), &json!("stop")), "{choice}");
}

/// If `store` is true, which is the default, clients refer to the items of earlier answers by their ids.
#[test]
fn items_of_responses_may_be_named() {
    let template = "{% for m in messages %}<{{ m.role }}>{% if m.reasoning_content %}[{{ m.reasoning_content }}]{% endif %}{{ m.content }}\
                    {% for c in m.tool_calls or [] %}({{ c.function.name }}){% endfor %}</>{% endfor %}<assistant>";
    let script = [
        "<think>",
        "Hm.",
        "</think>",
        "Let me see.",
        "<|python_tag|>",
        "{\"name\": \"f\", ",
        "\"arguments\": {\"city\": \"Oslo\"}}",
    ];
    let talk = start(&script, &["<|python_tag|>"], &["<think>", "</think>"], template);
    let user = json!({ "role": "user", "content": "hi" });
    let answer = |store: Value, stream: bool| {
        let body = json!({ "input": [user], "tools": [function("f")], "temperature": 0, "store": store });
        let answer = match stream {
            true => talk.stream("/v1/responses", &body).pop().unwrap()["response"].clone(),
            false => talk.good("/v1/responses", &body),
        };
        assert_eq!(answer["store"], store != json!(false));
        answer["output"].as_array().unwrap().clone()
    };
    let named = |item: &Value| json!({ "type": "item_reference", "id": item["id"] });
    let body = |items: Vec<Value>| {
        let output =
            json!({ "type": "function_call_output", "call_id": items.last().unwrap()["call_id"], "output": "ok" });
        json!({ "input": ([vec![user.clone()], items, vec![output]].concat()) })
    };
    for stream in [false, true] {
        let items = answer(json!(null), stream);
        let kinds: Vec<&Value> = items.iter().map(|item| &item["type"]).collect();
        assert_eq!(kinds, ["reasoning", "message", "function_call"]);
        let whole = body(items.clone());
        let mut short = whole.clone();
        (0..3).for_each(|at| short["input"][1 + at] = named(&items[at]));
        for path in ["/v1/responses/input_tokens", "/v1/responses"] {
            let count = |body: &Value| {
                let answer = talk.good(path, body);
                answer.pointer("/usage/input_tokens").unwrap_or(&answer["input_tokens"]).as_u64().unwrap()
            };
            assert_eq!(count(&short), count(&whole));
        }
    }
    // A request may name an item of an earlier answer by its id. If the item was not kept, this is an error, except for
    // a thought, which is then left out.
    let items = answer(json!(false), false);
    let error = talk.refused("/v1/responses", &json!({ "input": [user, named(&items[1]), user] }));
    let message = error["message"].as_str().unwrap();
    assert!(error["param"] == "input" && message.contains("store: false") && message.contains("msg_"), "{error}");
    let without_thought = json!({ "input": [user, named(&items[0]), items[1], user] });
    let (head, _) = talk.server.ask("POST", "/v1/responses", "", without_thought.to_string().as_bytes());
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("x-warning: input: thoughts"), "{head}");
}
