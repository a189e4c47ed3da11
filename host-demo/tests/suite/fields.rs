//! Fields of requests: fields that real clients send, alternative names of fields, and fields that would change the
//! answer.

use serde_json::{Value, json};

use crate::scripted::CHATML;
use crate::talk::{asked, function, start};

#[test]
fn fields_of_clients_change_nothing() {
    let talk = start(&["Once", " upon"], &[], &[], CHATML);
    let said = [json!({ "role": "user", "content": "hi" })];
    for (path, body) in [
        // Claude Code, with tools of Anthropic's servers.
        (
            "/v1/messages?beta=true",
            json!({
                "messages": said, "max_tokens": 4, "thinking": { "type": "adaptive" }, "output_config": { "effort": "high" },
                "context_management": { "edits": [{ "type": "clear_thinking_20251015", "keep": "all" }] }, "metadata": { "user_id": "u" },
                "service_tier": "auto", "mcp_servers": [], "container": null, "stop_sequences": null, "system": null, "tools": null,
            }),
        ),
        (
            "/v1/messages",
            json!({
                "messages": [said[0], { "role": "assistant", "content": [
                    { "type": "server_tool_use", "id": "s", "name": "web_search", "input": {} },
                    { "type": "web_search_tool_result", "tool_use_id": "s", "content": [] }, { "type": "text", "text": "x" },
                ] }, said[0]], "tools": [{ "type": "web_search_20250305", "name": "web_search" }, { "type": "mcp_toolset", "mcp_server_name": "m" }],
            }),
        ),
        // Codex.
        (
            "/v1/responses",
            json!({
                "input": [{ "type": "message", "role": "developer", "content": [{ "type": "input_text", "text": "x" }] }, said[0],
                    { "type": "web_search_call", "id": "w", "status": "completed" },
                    { "type": "local_shell_call", "call_id": "c", "action": { "command": ["ls"] } },
                    { "type": "local_shell_call_output", "call_id": "c", "output": "a" },
                    { "type": "custom_tool_call", "call_id": "d", "name": "apply_patch", "input": "*** Begin" },
                    { "type": "custom_tool_call_output", "call_id": "d", "output": "ok" },
                    { "type": "reasoning", "summary": [], "encrypted_content": "x" }],
                "tools": [{ "type": "function", "name": "f", "strict": false, "parameters": { "type": "object" } },
                    { "type": "namespace", "name": "n", "tools": [] }, { "type": "web_search" }, { "type": "custom", "name": "apply_patch" },
                    { "type": "local_shell" }, { "type": "mcp", "server_label": "m" }],
                "tool_choice": "auto", "reasoning": { "summary": "auto" }, "store": false, "include": ["reasoning.encrypted_content"],
                "prompt_cache_key": "k", "client_metadata": {}, "max_output_tokens": 4, "text": null, "truncation": "disabled",
                "background": false, "previous_response_id": null,
            }),
        ),
        // Ollama's Go package, and null in every field.
        (
            "/api/chat",
            json!({ "messages": said, "options": null, "tools": null, "format": null, "keep_alive": null, "think": null, "stream": null }),
        ),
        (
            "/api/chat",
            json!({ "messages": said, "options": { "stop": null, "num_predict": 2, "num_ctx": null, "seed": null }, "images": null }),
        ),
        (
            "/api/generate",
            json!({ "prompt": "a", "suffix": "", "system": "", "template": "", "options": null, "context": null, "images": null }),
        ),
        (
            "/v1/chat/completions",
            json!({
                "messages": said, "temperature": null, "n": null, "stop": null, "tools": null, "tool_choice": null, "logit_bias": null,
                "response_format": null, "stream_options": null, "reasoning_effort": null, "store": true, "metadata": {}, "user": "u",
                "prediction": { "type": "content", "content": "x" }, "verbosity": "medium", "functions": [], "reasoning_format": "deepseek",
                "stop": vec!["stop"; 64],
            }),
        ),
        ("/v1/chat/completions", json!({ "messages": said, "verbosity": "low", "response_format": {} })),
        ("/v1/responses", json!({ "input": "hi", "text": { "verbosity": "high" } })),
        // Text files.
        (
            "/v1/chat/completions",
            json!({ "messages": [{ "role": "user", "content": [{ "type": "file", "file": { "filename": "a.txt", "file_data": "data:text/plain;base64,aGk=" } }] }] }),
        ),
        (
            "/v1/responses",
            json!({ "input": [{ "role": "user", "content": [{ "type": "input_file", "filename": "a.txt", "file_data": "aGk=" }, { "type": "input_text", "text": "hi" }] }] }),
        ),
        (
            "/v1/messages",
            json!({ "messages": [{ "role": "user", "content": [{ "type": "document", "source": { "type": "base64", "media_type": "text/plain", "data": "aGk=" } }] }] }),
        ),
        // OpenAI's agents send `truncation`: "auto" asks the service to cut prompts that are too long. It changes
        // nothing for other prompts.
        ("/v1/responses", json!({ "input": "hi", "truncation": "auto" })),
        // Messages of OpenAI's assistants.
        (
            "/v1/chat/completions",
            json!({ "messages": [{ "role": "user", "content": [{ "type": "text", "text": { "value": "hi", "annotations": [] } }, { "type": "text", "text": null }] }] }),
        ),
        // Only Anthropic's own service writes these blocks. The conversation was begun there and is continued here.
        (
            "/v1/messages",
            json!({ "messages": [said[0], { "role": "assistant", "content": [{ "type": "compaction", "content": "x" },
                { "type": "fallback", "from": { "model": "a" }, "to": { "model": "b" } }, { "type": "tool_use", "id": "t", "name": "ToolSearch", "input": {} }] },
                { "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "t", "content": [{ "type": "tool_reference", "tool_name": "f" }] }] }] }),
        ),
    ] {
        let (status, answer) = talk.server.post(path, body.to_string().as_bytes());
        assert_eq!(status, 200, "{path} {body}: {answer}");
    }
}

#[test]
fn fields_that_would_change_the_answer_are_named() {
    let talk = start(&["Once", " upon"], &[], &[], CHATML);
    let chat = |more: Value| ("/v1/chat/completions", asked(more));
    let response = |more: Value| {
        let mut body = json!({ "input": "hi" });
        more.as_object().unwrap().iter().for_each(|(key, value)| body[key] = value.clone());
        ("/v1/responses", body)
    };
    for (field, (path, body)) in [
        ("previous_response_id", response(json!({ "previous_response_id": "resp_1" }))),
        ("prompt", response(json!({ "prompt": { "id": "pmpt_1" } }))),
        ("background", response(json!({ "background": true }))),
        ("functions", chat(json!({ "functions": [{ "name": "f" }] }))),
        ("reasoning_format", chat(json!({ "reasoning_format": "none" }))),
        ("response_format", chat(json!({ "response_format": { "type": "regex", "regex": "a" } }))),
        ("text.verbosity", response(json!({ "text": { "verbosity": "least" } }))),
        ("mirostat", response(json!({ "mirostat": 3 }))),
        ("mirostat", response(json!({ "mirostat": 2, "temperature": 0 }))),
        ("xtc_threshold", response(json!({ "xtc_threshold": 2 }))),
        ("dry_sequence_breakers", response(json!({ "dry_multiplier": 1, "dry_sequence_breakers": vec!["x"; 17] }))),
        ("min_p", response(json!({ "min_p": 7 }))),
        (
            "tool_choice",
            response(json!({ "tools": [{ "type": "web_search" }], "tool_choice": { "type": "web_search" } })),
        ),
        ("tool_choice", response(json!({ "tools": [{ "type": "web_search" }], "tool_choice": "required" }))),
        ("tool_choice", chat(json!({ "tools": [function("f")], "tool_choice": { "type": "function", "name": "g" } }))),
        (
            "messages",
            chat(json!({ "messages": [{ "role": "user", "content": [{ "type": "image_url", "image_url": {} }] }] })),
        ),
        ("continue_final_message", chat(json!({ "continue_final_message": true }))),
        ("suffix", ("/v1/completions", json!({ "prompt": "a", "suffix": "b" }))),
    ] {
        assert_eq!(talk.refused(path, &body)["param"], field, "{body}");
    }
    for body in [
        json!({ "prompt": "a", "template": "x" }),
        json!({ "prompt": "a", "raw": true, "context": [1] }),
        json!({ "prompt": "a", "options": { "mirostat": 3 } }),
    ] {
        assert_eq!(talk.server.post("/api/generate", body.to_string().as_bytes()).0, 400, "{body}");
    }
}

#[test]
fn fields_of_responses_and_messages_are_named_as_their_clients_know_them() {
    let talk = start(&["Once", " upon"], &[], &[], CHATML);
    let long = json!({ "input": "a ".repeat(2000), "truncation": "auto" });
    let error = talk.refused("/v1/responses", &long);
    assert_eq!((&error["param"], &error["code"]), (&json!("input"), &json!("context_length_exceeded")), "{error}");
    for (truncation, is_told) in [("auto", true), ("disabled", false)] {
        let body = json!({ "input": "hi", "truncation": truncation }).to_string();
        let (head, text) = talk.server.ask("POST", "/v1/responses", "", body.as_bytes());
        assert!(head.contains(" 200 ") && head.contains("x-warning: truncation: ") == is_told, "{head} {text}");
    }
    let upload = json!([{ "type": "container_upload", "file_id": "file_1" }, { "type": "text", "text": "hi" }]);
    let error = talk.refused("/v1/messages", &asked(json!({ "messages": [{ "role": "user", "content": upload }] })));
    assert!(error["message"].as_str().unwrap().contains("container_upload"), "{error}");
}

/// Anthropic's package keeps conversations at the service, unless an error with these details says that this is not
/// possible. The package then sends whole conversations.
#[test]
fn threads_of_anthropic_are_refused_so_that_its_package_goes_on() {
    let talk = start(&["Once"], &[], &[], CHATML);
    let said = json!([{ "role": "user", "content": "hi" }]);
    let error = talk.refused("/v1/messages", &json!({ "messages": said, "thread": { "type": "create" } }));
    let details = json!({ "error_code": "thread_unsupported_request", "unsupported": ["thread"] });
    assert_eq!((&error["type"], &error["details"]), (&json!("invalid_request_error"), &details));
    talk.good("/v1/messages", &json!({ "messages": said, "thread": null }));
}

/// Grammars, schemas and patterns in the notations of several servers. All of them have an effect.
#[test]
fn other_names_of_grammars() {
    let talk = start(&["Once"], &[], &[], CHATML);
    let content = |more: Value| talk.chat(more)["message"]["content"].as_str().unwrap().to_string();
    let schema = json!({ "const": "no" });
    for more in [
        json!({ "response_format": { "type": "grammar", "grammar": "root ::= \"no\"" } }),
        json!({ "structured_outputs": { "grammar": "root ::= \"no\"" } }),
        json!({ "ebnf": "root ::= \"no\"" }),
        json!({ "structured_outputs": { "regex": "^n[o]$" } }),
        json!({ "guided_regex": "no" }),
        json!({ "regex": "no" }),
        json!({ "regex": "no", "max_tokens": 1u64 << 63 }),
        json!({ "structured_outputs": { "regex": "no", "disable_fallback": true, "disable_any_whitespace": true } }),
        json!({ "response_format": { "type": "regex", "value": "no" } }),
    ] {
        assert_eq!(content(more.clone()), "no", "{more}");
    }
    // huggingface_hub and text-generation-inference.
    for (kind, key) in
        [("json_object", "value"), ("json", "value"), ("json_object", "schema"), ("json_schema", "schema")]
    {
        assert_eq!(content(json!({ "response_format": { "type": kind, key: schema } })), "\"no\"", "{kind} {key}");
    }
    let within = json!({ "type": "json_object", "json_schema": { "schema": schema } });
    assert_eq!(content(json!({ "response_format": within })), "\"no\"");
    let object = content(json!({ "structured_outputs": { "json_object": true }, "max_tokens": 1 }));
    assert!(object.starts_with('{'), "{object}");
    for (more, says) in [
        (json!({ "response_format": { "type": "json_object", "shape": schema } }), "response_format.shape is not"),
        (json!({ "structured_outputs": { "json": schema, "whitespace_pattern": " " } }), "whitespace_pattern is not"),
        (json!({ "guided_grammar": "start: \"no\"" }), "not Lark's notation"),
        (json!({ "regex": "a(" }), "not a supported regular expression"),
    ] {
        let mut body = json!({ "messages": [{ "role": "user", "content": "hi" }] });
        more.as_object().unwrap().iter().for_each(|(key, value)| body[key] = value.clone());
        let told = talk.refused("/v1/chat/completions", &body);
        assert!(told["message"].as_str().unwrap().contains(says), "{more}: {told}");
    }
}

#[test]
fn responses_obey_fields_of_the_sampler() {
    let talk = start(&["A", "B", "C"], &[], &[], CHATML);
    let text = |more: Value| {
        let mut body = json!({ "input": "hi", "temperature": 0 });
        more.as_object().unwrap().iter().for_each(|(key, value)| body[key] = value.clone());
        talk.good("/v1/responses", &body)
    };
    let said = |answer: &Value| answer["output"][0]["content"][0]["text"].as_str().unwrap().to_string();
    assert_eq!(said(&text(json!({ "stop": ["C"] }))), "AB");
    assert_ne!(said(&text(json!({ "logit_bias": { "A": -100 } }))), "ABC");
    let plain = text(json!({}))["usage"]["input_tokens"].as_u64().unwrap();
    let listed = json!({ "instructions": [{ "role": "developer", "content": [{ "type": "input_text", "text": "In French." }] }] });
    let plainly = json!({ "instructions": "In French." });
    assert_eq!(text(listed)["usage"]["input_tokens"], text(plainly.clone())["usage"]["input_tokens"]);
    assert!(text(plainly)["usage"]["input_tokens"].as_u64().unwrap() > plain);
    let answer = text(json!({ "top_logprobs": 2, "include": ["message.output_text.logprobs"] }));
    let logprobs = answer["output"][0]["content"][0]["logprobs"].as_array().unwrap();
    assert_eq!(logprobs.len() as u64, answer["usage"]["output_tokens"].as_u64().unwrap());
    assert!(logprobs.iter().all(|token| token["top_logprobs"].as_array().unwrap().len() == 2), "{answer}");
    let events = talk.stream("/v1/responses", &json!({ "input": "hi", "temperature": 0, "top_logprobs": 1 }));
    let count = |kind: &str| {
        let of = events.iter().filter(|event| event["type"] == kind);
        of.map(|event| event["logprobs"].as_array().unwrap().len()).sum::<usize>()
    };
    assert_eq!((count("response.output_text.delta"), count("response.output_text.done")), (3, 3));
}

#[test]
fn biases_of_texts_are_those_of_their_tokens() {
    let talk = start(&["A", "B"], &[], &[], CHATML);
    let ids: Vec<Value> = talk.good("/tokenize", &json!({ "content": "A" }))["tokens"].as_array().unwrap().clone();
    let ask = |bias: Value| talk.chat(json!({ "logit_bias": bias, "max_tokens": 3 }))["message"]["content"].clone();
    let wanted = ask(ids.iter().map(|id| json!([id, -100])).collect());
    assert_ne!(wanted, "AB");
    assert_eq!(ask(json!([["A", -100]])), wanted);
    assert_eq!(ask(json!({ "A": false })), wanted);
    assert_eq!(ask(json!([["A", -100], [5, 0.0]])), wanted);
    for wrong in [json!({ "A": "x" }), json!([["A"]]), json!([[-1, 1]]), json!({ "999999": 1 }), json!("A")] {
        assert_eq!(talk.refused("/v1/chat/completions", &asked(json!({ "logit_bias": wrong })))["param"], "logit_bias");
    }
}

/// The line that Claude Code adds for Anthropic's accounting is removed, because it changes with every request.
#[test]
fn lines_of_accounting_are_left_out() {
    let talk = start(&["Once"], &[], &[], CHATML);
    let line =
        |cch: &str| format!("x-anthropic-billing-header: cc_version=2.1.37.{cch}; cc_entrypoint=cli; cch={cch};");
    let count = |system: Value| {
        let body = json!({ "messages": [{ "role": "user", "content": line("1") }], "system": system });
        talk.good("/v1/messages/count_tokens", &body)["input_tokens"].as_u64().unwrap()
    };
    let block = |text: &str| json!({ "type": "text", "text": text });
    let alone = count(json!([block("Be brief.")]));
    assert_eq!(count(json!([block(&line("fa690")), block("Be brief.")])), alone);
    for one in [json!(format!("{}\nBe brief.", line("eb6"))), json!([block(&format!("{}\n\nBe brief.", line("eb6")))])]
    {
        assert_eq!(count(one), alone);
    }
    assert!(count(json!([block("Be brief. x-anthropic-billing-header: is a header.")])) > alone);
}

/// Names that stand for any model: huggingface_hub's name for the model of a URL, and names with Ollama's tag.
#[test]
fn names_of_any_model() {
    let talk = start(&["Once"], &[], &[], CHATML);
    for name in ["dummy", "default", "m", "m:latest"] {
        talk.chat(json!({ "model": name, "max_tokens": 1 }));
    }
    assert_eq!(talk.server.post("/v1/completions", br#"{"model": "x:latest", "prompt": "a"}"#).0, 404);
}
