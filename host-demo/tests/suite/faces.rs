//! Requests of real clients to each interface: fields, tools, templates that refuse, paths and names of hosts.
//!
//! The bodies are those of Claude Code, Codex, Ollama's Go package, Cohere's and Hugging Face's clients, and others; what is
//! right follows the documentation of each interface.

use serde_json::{Value, json};

use crate::common::arenite_with;
use crate::scripted::CHATML;
use crate::serve::Server;
use crate::talk::{FIM, Talk, asked, function, start};

/// Gemma 2's template: no system message, and authors alternate.
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
        // OpenAI's agents: their prompts are cut by the service only if they are too long.
        ("/v1/responses", json!({ "input": "hi", "truncation": "auto" })),
        // Messages of OpenAI's assistants.
        (
            "/v1/chat/completions",
            json!({ "messages": [{ "role": "user", "content": [{ "type": "text", "text": { "value": "hi", "annotations": [] } }, { "type": "text", "text": null }] }] }),
        ),
        // Blocks that only Anthropic's service writes, in a conversation that goes on here.
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
        ("text.verbosity", response(json!({ "text": { "verbosity": "low" } }))),
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

/// Anthropic's package keeps conversations at the service, unless an error with these details says that this is not possible:
/// then it sends whole conversations.
#[test]
fn threads_of_anthropic_are_refused_so_that_its_package_goes_on() {
    let talk = start(&["Once"], &[], &[], CHATML);
    let said = json!([{ "role": "user", "content": "hi" }]);
    let error = talk.refused("/v1/messages", &json!({ "messages": said, "thread": { "type": "create" } }));
    let details = json!({ "error_code": "thread_unsupported_request", "unsupported": ["thread"] });
    assert_eq!((&error["type"], &error["details"]), (&json!("invalid_request_error"), &details));
    talk.good("/v1/messages", &json!({ "messages": said, "thread": null }));
}

/// Mistral's interface, and programs for several interfaces, have thoughts among the parts of a content.
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

/// Grammars, schemas and patterns in the notations of several servers. None is left out silently.
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

/// huggingface_hub's name for the model of a URL, and Ollama's tag.
#[test]
fn names_of_any_model() {
    let talk = start(&["Once"], &[], &[], CHATML);
    for name in ["dummy", "default", "m", "m:latest"] {
        talk.chat(json!({ "model": name, "max_tokens": 1 }));
    }
    assert_eq!(talk.server.post("/v1/completions", br#"{"model": "x:latest", "prompt": "a"}"#).0, 404);
}

/// As in llama.cpp, each event of a stream has the numbers so far.
#[test]
fn streams_of_completions_count() {
    let talk = start(&["A", "B", "C"], &[], &[], CHATML);
    let body = json!({ "prompt": "hi", "n_predict": 3, "temperature": 0, "stream": true });
    let (_, text) = talk.server.ask("POST", "/completion", "", body.to_string().as_bytes());
    let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data: ")?).ok());
    let counts =
        events.map(|event| (event["tokens_predicted"].as_u64(), event["tokens_evaluated"].as_u64().unwrap() > 0));
    let counts: Vec<_> = counts.collect();
    assert_eq!(counts[..3], [(Some(1), true), (Some(2), true), (Some(3), true)], "{text}");
}

#[test]
fn a_model_that_is_here_is_pulled_and_listed() {
    let talk = start(&["Once"], &[], &[], CHATML);
    let (status, answer) = talk.server.ask("POST", "/api/pull", "", br#"{"model":"m:latest"}"#);
    assert!(status.contains(" 200 ") && answer.trim() == r#"{"status":"success"}"#, "{status} {answer}");
    let (status, answer) = talk.server.post("/api/pull", br#"{"model":"other"}"#);
    assert_eq!((status, &answer["error"]), (404, &json!("there is no model `other` here; there is `m`")));
    let (_, loaded) = talk.server.ask("GET", "/api/ps", "", b"");
    let loaded: Value = serde_json::from_str(&loaded).unwrap();
    assert_eq!(loaded["models"][0]["context_length"], 1024);
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
fn ollama_reports_log_probabilities() {
    let talk = start(&["A", "B", "C"], &[], &[], CHATML);
    let asked = [
        ("/api/chat", json!({ "messages": [{ "role": "user", "content": "hi" }] })),
        ("/api/generate", json!({ "prompt": "hi" })),
    ];
    for (path, mut body) in asked {
        (body["logprobs"], body["top_logprobs"]) = (json!(true), json!(2));
        body["options"] = json!({ "temperature": 0 });
        let lines = talk.stream(path, &body);
        let streamed: Vec<&Value> =
            lines.iter().flat_map(|line| line["logprobs"].as_array().into_iter().flatten()).collect();
        body["stream"] = json!(false);
        let answer = talk.good(path, &body);
        let whole = answer["logprobs"].as_array().unwrap();
        assert_eq!(whole.iter().collect::<Vec<_>>(), streamed, "{path}");
        assert_eq!(whole.iter().take(3).map(|token| token["token"].as_str().unwrap()).collect::<String>(), "ABC");
        assert!(whole.iter().all(|token| token["top_logprobs"].as_array().unwrap().len() == 2), "{answer}");
        body["logprobs"] = json!(false);
        assert!(talk.good(path, &body).get("logprobs").is_none());
    }
}

#[test]
fn tokens_of_a_response_are_counted_beforehand() {
    let talk = start(&["A"], &[], &[], CHATML);
    let mut body = json!({ "input": "hi", "instructions": "Be brief.", "tools": [function("f")] });
    let count = talk.good("/v1/responses/input_tokens", &body);
    body["temperature"] = json!(0);
    assert_eq!(count["input_tokens"], talk.good("/v1/responses", &body)["usage"]["input_tokens"]);
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

/// Claude Code's line for Anthropic's accounting changes with every request.
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
    // The thought with its closing mark has four tokens.
    let usage = ask(path, json!({}))["usage"].clone();
    assert_eq!(usage["completion_tokens_details"]["reasoning_tokens"], 4, "{usage}");
    let usage = talk.good("/v1/responses", &json!({ "input": "hi", "temperature": 0 }))["usage"].clone();
    assert_eq!(usage["output_tokens_details"]["reasoning_tokens"], 4, "{usage}");
    let events = talk.stream(path, &asked(json!({ "stream_options": { "include_usage": true } })));
    assert_eq!(events.last().unwrap()["usage"]["completion_tokens_details"]["reasoning_tokens"], 4);
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
        // Marks of several tokens.
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
    // The number of tokens of the call without its closing marks.
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

#[test]
fn a_context_continues_ollamas_prompts() {
    let talk = start(&["Once", " upon"], &[], &[], CHATML);
    let ask = |more: Value| {
        let mut body = json!({ "prompt": "hi", "stream": false, "options": { "temperature": 0 } });
        more.as_object().unwrap().iter().for_each(|(key, value)| body[key] = value.clone());
        talk.good("/api/generate", &body)
    };
    let first = ask(json!({}));
    let context = first["context"].as_array().unwrap();
    let count = |answer: &Value, key: &str| answer[key].as_u64().unwrap();
    assert_eq!(context.len() as u64, count(&first, "prompt_eval_count") + count(&first, "eval_count"));
    let second = ask(json!({ "context": context }));
    assert_eq!(count(&second, "prompt_eval_count"), context.len() as u64 + count(&first, "prompt_eval_count"));
    let lines = talk.stream("/api/generate", &json!({ "prompt": "hi", "options": { "temperature": 0 } }));
    assert_eq!(&lines.last().unwrap()["context"], &first["context"]);
    assert!(lines[..lines.len() - 1].iter().all(|line| line.get("context").is_none()));
    assert_eq!(ask(json!({ "raw": true })).get("context"), None);
}

#[test]
fn a_suffix_fills_a_gap() {
    let talk = start(&["Once", " upon"], &FIM, &[], CHATML);
    let infill = talk.good("/infill", &json!({ "input_prefix": "ab", "input_suffix": "cd", "temperature": 0 }));
    let answer = talk.good("/v1/completions", &json!({ "prompt": "ab", "suffix": "cd", "temperature": 0 }));
    assert_eq!(
        (&answer["choices"][0]["text"], &answer["usage"]["prompt_tokens"]),
        (&infill["content"], &infill["tokens_evaluated"])
    );
    let body = json!({ "prompt": "ab", "suffix": "cd", "stream": false, "options": { "temperature": 0 } });
    let answer = talk.good("/api/generate", &body);
    assert_eq!((&answer["response"], &answer["prompt_eval_count"]), (&infill["content"], &infill["tokens_evaluated"]));
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
fn every_path_exists_without_its_version() {
    let talk = start(&["Once"], &[], &[], CHATML);
    let said = json!([{ "role": "user", "content": "hi" }]);
    for (path, body) in [
        ("/v1/chat/completions", asked(json!({}))),
        ("/v1/responses", json!({ "input": "hi" })),
        ("/v1/messages", json!({ "messages": said })),
        ("/v1/messages/count_tokens", json!({ "messages": said })),
        ("/v1/embeddings", json!({ "input": "hi" })),
        ("/v1/rerank", json!({ "query": "a", "documents": ["b"] })),
        ("/v1/audio/transcriptions", json!({})),
        ("/v1/audio/translations", json!({})),
    ] {
        let status = |path: &str| talk.server.post(path, body.to_string().as_bytes()).0;
        assert_eq!(status(path), status(&path[3..]), "{path}");
        assert_ne!(status(path), 404, "{path}");
    }
    for path in ["/v1/models", "/models", "/models/m"] {
        assert!(talk.server.ask("GET", path, "", b"").0.starts_with("HTTP/1.1 200"), "{path}");
    }
    let show = talk.good("/api/show", &json!({ "model": "m" }));
    assert!(show["model_info"]["general.basename"].is_string() && show["capabilities"].is_array(), "{show}");
    let version = talk.server.ask("GET", "/api/version", "", b"").1;
    let version: Value = serde_json::from_str(&version).unwrap();
    let numbers: Vec<u32> =
        version["version"].as_str().unwrap().split('.').map(|number| number.parse().unwrap()).collect();
    // VS Code asks for 0.6.4, and thoughts came with 0.9.
    assert!(numbers.len() == 3 && numbers >= vec![0, 9, 0], "{version}");
}

/// Clients that split a stream with Python's `str.splitlines` also end lines at these characters.
#[test]
fn lines_of_streams_have_no_other_line_breaks() {
    const BREAKS: [char; 3] = ['\u{85}', '\u{2028}', '\u{2029}'];
    let said = "a\u{2028}b\u{2029}c\u{85}d end";
    let talk = start(&["a\u{2028}b", "\u{2029}c\u{85}d", " end"], &[], &[], CHATML);
    let streamed = |path: &str, texts: &[&str]| {
        let mut body = asked(json!({ "input": "hi", "stream": true }));
        if path.contains("compl") && !path.contains("chat") || path == "/api/generate" {
            body.as_object_mut().unwrap().remove("messages");
            body["prompt"] = json!("hi");
        }
        let (head, text) = talk.server.ask("POST", path, "", body.to_string().as_bytes());
        assert!(head.contains(" 200 ") && !text.contains(BREAKS), "{path}: {head} {text}");
        let lines = text.lines().map(|line| line.strip_prefix("data: ").unwrap_or(line));
        let events = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let parts =
            events.filter_map(|event| texts.iter().find_map(|text| Some(event.pointer(text)?.as_str()?.to_string())));
        assert_eq!(parts.collect::<String>(), said, "{path}: {text}");
    };
    streamed("/v1/chat/completions", &["/choices/0/delta/content"]);
    streamed("/v1/completions", &["/choices/0/text"]);
    streamed("/completion", &["/content"]);
    streamed("/v1/messages", &["/delta/text"]);
    streamed("/v1/responses", &["/delta"]);
    streamed("/api/chat", &["/message/content"]);
    streamed("/api/generate", &["/response"]);
    let path = talk.model();
    let line = json!({ "custom_id": "\u{2028}", "url": "/v1/chat/completions", "body": asked(json!({})) }).to_string();
    let output = arenite_with(&["batch", "-m", &path, "-i", "-", "-o", "-", "-c", "256"], line.as_bytes());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!text.contains(BREAKS), "{text}");
    let answer: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(answer["response"]["body"]["choices"][0]["message"]["content"], said);
}

#[test]
fn streams_pass_proxies() {
    let talk = start(&["Once"], &[], &[], CHATML);
    for (path, body) in [
        ("/v1/chat/completions", asked(json!({ "stream": true }))),
        ("/v1/completions", json!({ "prompt": "a", "stream": true })),
        ("/completion", json!({ "prompt": "a", "stream": true })),
        ("/v1/responses", json!({ "input": "a", "stream": true })),
        ("/v1/messages", json!({ "messages": [{ "role": "user", "content": "hi" }], "stream": true })),
        ("/api/chat", json!({ "messages": [{ "role": "user", "content": "hi" }] })),
        ("/api/generate", json!({ "prompt": "hi" })),
    ] {
        let (head, _) = talk.server.ask("POST", path, "", body.to_string().as_bytes());
        assert!(head.contains("x-accel-buffering: no") && head.contains("cache-control: no-cache"), "{path}: {head}");
    }
}

#[test]
fn pages_and_containers_of_this_machine() {
    let server = Server::start(&[]);
    let head = |method: &str, headers: &str| server.ask(method, "/v1/models", headers, b"").0;
    for origin in [
        "http://localhost:3000",
        "http://127.0.0.1:5173",
        "http://0.0.0.0:8080",
        "tauri://localhost",
        "capacitor://localhost",
        "app://obsidian.md",
        "vscode-webview://x",
    ] {
        let allowed = format!("access-control-allow-origin: {origin}");
        let preflight = format!(
            "Origin: {origin}\r\nAccess-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: authorization\r\n"
        );
        assert!(head("OPTIONS", &preflight).contains(&allowed), "{origin}");
        assert!(head("GET", &format!("Origin: {origin}\r\n")).contains(&allowed), "{origin}");
    }
    for origin in
        ["https://evil.example", "null", "http://localhost.evil.example", "http://a.local", "chrome-extension://x"]
    {
        assert!(!head("GET", &format!("Origin: {origin}\r\n")).contains("access-control-allow-origin"), "{origin}");
    }
    // A page whose own name is near, as anybody on the local network may have: it is told nothing.
    for near in ["evil.local", "evil.internal"] {
        let origin = format!("http://{near}:{}", server.port());
        for more in [format!("Origin: {origin}\r\n"), "Sec-Fetch-Site: same-origin\r\n".to_string()] {
            use std::io::{Read, Write};
            let mut socket = server.connect();
            let host = format!("{near}:{}", server.port());
            let asked = format!("GET /slots HTTP/1.1\r\nHost: {host}\r\n{more}Connection: close\r\n\r\n");
            socket.write_all(asked.as_bytes()).unwrap();
            let mut answer = String::new();
            let _ = socket.read_to_string(&mut answer);
            assert!(answer.starts_with("HTTP/1.1 403"), "{more}: {answer}");
        }
    }
    let status = |host: &str| {
        use std::io::{Read, Write};
        let mut socket = server.connect();
        let _ = socket
            .write_all(format!("GET /v1/models HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").as_bytes());
        let mut answer = String::new();
        let _ = socket.read_to_string(&mut answer);
        answer.split(' ').nth(1).map(str::to_string).unwrap_or_default()
    };
    for host in [
        "host.docker.internal:11434",
        "gateway.docker.internal",
        "host.containers.internal:1",
        "HOST.DOCKER.INTERNAL.",
        "box.local",
        "0.0.0.0:8080",
    ] {
        assert_eq!(status(host), "200", "{host}");
    }
    for host in ["attacker.example", "internal", "host.docker.internal.attacker.example", "xinternal:80"] {
        assert_eq!(status(host), "403", "{host}");
    }
}

#[test]
fn rankings_of_cohere_and_text_embeddings_inference() {
    let model = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/bert_reranker/model.gguf");
    let server = Server::start_with(&["-m", model.to_str().unwrap()]);
    let documents = ["the cat sat on the mat", "a dog", "rain in spain"];
    let ask = |path: &str, body: Value| {
        let (status, answer) = server.post(path, body.to_string().as_bytes());
        assert_eq!(status, 200, "{path} {body}: {answer}");
        answer
    };
    let whole = ask("/v1/rerank", json!({ "query": "cat", "documents": documents }));
    let best = ask(
        "/v2/rerank",
        json!({ "query": "cat", "documents": documents, "top_n": 2, "max_tokens_per_doc": 4096, "model": null }),
    );
    assert!(best["id"].is_string() && best["meta"].is_object(), "{best}");
    // Cohere promises shares from 0 to 1; llama.cpp's route has the model's own scores.
    let share = |raw: f64| 1.0 / (1.0 + (-raw).exp());
    let compare = |best: &Value, count: usize| {
        assert_eq!(best["results"].as_array().unwrap().len(), count);
        for (best, own) in best["results"].as_array().unwrap().iter().zip(whole["results"].as_array().unwrap()) {
            assert_eq!(best["index"], own["index"]);
            let [best, own] = [best, own].map(|result| result["relevance_score"].as_f64().unwrap());
            assert!((best - share(own)).abs() < 1e-9 && own < 0.0, "{best} {own}");
        }
    };
    compare(&best, 2);
    compare(&ask("/v1/rerank", json!({ "query": "cat", "documents": documents, "raw_scores": false })), 3);
    let own = ask("/v2/rerank", json!({ "query": "cat", "documents": documents, "raw_scores": true }));
    assert_eq!(own["results"], whole["results"]);
    let (status, answer) = server.post("/v1/embeddings", br#"{"input": "cat"}"#);
    let said = answer["error"]["message"].as_str().unwrap();
    assert!(status == 400 && said.contains("scores texts and computes no embeddings: use /v1/rerank"), "{answer}");
    let output = arenite_with(&["embed", "-m", model.to_str().unwrap(), "-p", "cat"], b"");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains("scores texts and computes no embeddings"), "{said}");
    let scores = |path: &str, raw: bool| {
        let body = json!({ "query": "cat", "texts": documents, "raw_scores": raw, "return_text": true, "truncate": true, "truncation_direction": "Right" });
        ask(path, body).as_array().unwrap().clone()
    };
    let raw = scores("/rerank", true);
    for (one, result) in raw.iter().zip(whole["results"].as_array().unwrap()) {
        assert_eq!((&one["index"], &one["score"]), (&result["index"], &result["relevance_score"]));
        assert_eq!(one["text"], documents[one["index"].as_u64().unwrap() as usize]);
    }
    for (share, raw) in scores("/rerank", false).iter().zip(&raw) {
        let [share, raw] = [share, raw].map(|one| one["score"].as_f64().unwrap());
        assert!((share - 1.0 / (1.0 + (-raw).exp())).abs() < 1e-9);
    }
    assert_eq!(server.post("/rerank", br#"{"query": "a"}"#).0, 400);
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
    // The types of parameters stay, and so do parts deep inside.
    let owner = json!({ "type": "object", "properties": { "mail": { "type": "string", "pattern": "(?i)a", "maxLength": 3 } },
        "required": ["mail"], "dependentRequired": { "mail": ["x"] } });
    body["tools"][0]["function"]["parameters"] = json!({
        "type": "object",
        "properties": { "city": { "type": "integer", "minimum": 0, "maximum": 9, "not": { "const": 3 } }, "owner": owner },
        "required": ["city", "owner"],
    });
    // The script's model writes all the white space that the grammar allows.
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

/// Clients whose `store` is true, which is the default, name the items of earlier answers by their ids.
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
    // An item that is not kept: an error, unless it is a thought.
    let items = answer(json!(false), false);
    let error = talk.refused("/v1/responses", &json!({ "input": [user, named(&items[1]), user] }));
    let message = error["message"].as_str().unwrap();
    assert!(error["param"] == "input" && message.contains("store: false") && message.contains("msg_"), "{error}");
    let without_thought = json!({ "input": [user, named(&items[0]), items[1], user] });
    let (head, _) = talk.server.ask("POST", "/v1/responses", "", without_thought.to_string().as_bytes());
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("x-warning: input: thoughts"), "{head}");
}

/// The list of models has the form of the client's interface.
#[test]
fn models_are_listed_for_anthropics_clients() {
    let talk = start(&["Once"], &[], &[], CHATML);
    let get = |path: &str, headers: &str| {
        let (head, body) = talk.server.ask("GET", path, headers, b"");
        (head.contains(" 200 "), serde_json::from_str::<Value>(&body).unwrap())
    };
    const ANTHROPIC: &str = "anthropic-version: 2023-06-01\r\n";
    let (_, list) = get("/v1/models?limit=20", ANTHROPIC);
    let card = json!({
        "type": "model", "id": "m", "display_name": "m", "created_at": "1970-01-01T00:00:00Z", "lifecycle": "active",
        "max_input_tokens": 1024, "max_tokens": 1024,
    });
    assert_eq!(list, json!({ "data": [card], "has_more": false, "first_id": "m", "last_id": "m" }));
    assert_eq!(get("/v1/models/m", ANTHROPIC), (true, card));
    let (is_good, error) = get("/v1/models/other", ANTHROPIC);
    assert!(!is_good && error["type"] == "error" && error["error"]["type"] == "not_found_error", "{error}");
    assert_eq!(get("/v1/models", "").1["object"], "list");
    assert_eq!(get("/v1/models/m", "").1["object"], "model");
}

/// A conversation that is longer than the context is counted and shown, but not answered.
#[test]
fn long_conversations_are_counted() {
    let talk = start(&["a"], &[], &[], CHATML);
    for words in [1000, 100_000] {
        let body = json!({ "messages": [{ "role": "user", "content": "a ".repeat(words) }], "max_tokens": 1 });
        let counted = talk.good("/v1/messages/count_tokens", &body)["input_tokens"].as_u64().unwrap();
        assert!(counted >= 2 * words as u64, "{counted}");
        talk.refused("/v1/messages", &body);
        let prompt = talk.good("/apply-template", &body)["prompt"].as_str().unwrap().len();
        assert!(prompt > 2 * words);
        let body = json!({ "input": "a ".repeat(words) });
        assert_eq!(talk.good("/v1/responses/input_tokens", &body)["input_tokens"], counted);
        talk.refused("/v1/responses", &body);
    }
}
