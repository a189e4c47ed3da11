//! Conversations over HTTP with models that generate a script: calls, thoughts, fields of requests, and interfaces
//! other than OpenAI's.

use serde_json::{Value, json};

use crate::common::arenite_with;
use crate::scripted::{CHATML, Scripted};
use crate::serve::Server;

const IM: [&str; 2] = ["<|im_start|>", "<|im_end|>"];
/// The tokens for fill-in-the-middle.
pub const FIM: [&str; 3] = ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"];

pub struct Talk {
    pub server: Server,
    directory: tempfile::TempDir,
}

pub fn start(script: &[&str], control: &[&str], user: &[&str], template: &str) -> Talk {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("m.gguf");
    let control = [&IM[..], control].concat();
    Scripted { script, control: &control, user, template }.write(&path);
    let server = Server::start_with(&["-m", path.to_str().unwrap(), "-c", "1024", "--parallel", "2", "-t", "1"]);
    Talk { server, directory }
}

pub fn function(name: &str) -> Value {
    let parameters = json!({ "type": "object", "properties": { "city": { "type": "string" } }, "required": ["city"] });
    json!({ "type": "function", "function": { "name": name, "parameters": parameters } })
}

pub fn asked(more: Value) -> Value {
    let mut body = json!({ "messages": [{ "role": "user", "content": "hi" }], "temperature": 0, "max_tokens": 200 });
    more.as_object().unwrap().iter().for_each(|(key, value)| body[key] = value.clone());
    body
}

impl Talk {
    /// The path of the model's file.
    pub fn model(&self) -> String {
        self.directory.path().join("m.gguf").to_str().unwrap().into()
    }

    pub fn good(&self, path: &str, body: &Value) -> Value {
        let (status, answer) = self.server.post(path, body.to_string().as_bytes());
        assert_eq!(status, 200, "{answer}");
        answer
    }

    pub fn refused(&self, path: &str, body: &Value) -> Value {
        let (status, answer) = self.server.post(path, body.to_string().as_bytes());
        assert_eq!(status, 400, "{answer}");
        answer["error"].clone()
    }

    pub fn chat(&self, more: Value) -> Value {
        self.good("/v1/chat/completions", &asked(more))["choices"][0].clone()
    }

    /// The JSON of each event of a stream.
    pub fn stream(&self, path: &str, body: &Value) -> Vec<Value> {
        let mut body = body.clone();
        body["stream"] = json!(true);
        let (_, text) = self.server.ask("POST", path, "", body.to_string().as_bytes());
        let data = text.lines().filter_map(|line| line.strip_prefix("data: ").or(line.strip_prefix('{').map(|_| line)));
        data.filter_map(|line| serde_json::from_str(line).ok()).collect()
    }
}

#[test]
fn calls_by_tokens_after_text() {
    let script =
        ["Let me see.", "<|python_tag|>", "{\"name\": \"get_weather\", ", "\"arguments\": {\"city\": \"Oslo\"}}"];
    let talk = start(&script, &["<|python_tag|>"], &[], CHATML);
    let choice = talk.chat(json!({ "tools": [function("get_weather")] }));
    assert_eq!(choice["finish_reason"], "tool_calls");
    assert_eq!(choice["message"]["content"], "Let me see.");
    assert_eq!(
        choice["message"]["tool_calls"][0]["function"],
        json!({ "name": "get_weather", "arguments": "{\"city\":\"Oslo\"}" })
    );
    // Calls are only parsed for declared functions.
    let choice = talk.chat(json!({ "tools": [function("get_time")] }));
    assert_eq!(choice["finish_reason"], "stop");
    assert!(choice["message"].get("tool_calls").is_none());
    // The same, streamed.
    let events = talk.stream("/v1/chat/completions", &asked(json!({ "tools": [function("get_weather")] })));
    let deltas: Vec<&Value> = events.iter().map(|event| &event["choices"][0]["delta"]).collect();
    let content: String = deltas.iter().filter_map(|delta| delta["content"].as_str()).collect();
    assert_eq!(content, "Let me see.");
    assert!(deltas.iter().any(|delta| delta["tool_calls"][0]["function"]["name"] == "get_weather"));
}

/// Each call of an answer has its own identifier and index, in a stream too.
#[test]
fn ollamas_calls_have_identifiers() {
    let call = |city| format!("<tool_call>{{\"name\": \"f\", \"arguments\": {{\"city\": \"{city}\"}}}}</tool_call>");
    let (first, second) = (call("Oslo"), call("Rome"));
    let talk = start(&[&first, &second], &[], &[], CHATML);
    let messages = json!([{ "role": "user", "content": "hi" }]);
    let body =
        json!({ "messages": messages, "tools": [function("f")], "stream": false, "options": { "temperature": 0 } });
    let whole = talk.good("/api/chat", &body)["message"]["tool_calls"].as_array().cloned().unwrap_or_default();
    let lines = talk.stream("/api/chat", &body);
    let streamed: Vec<Value> =
        lines.iter().flat_map(|line| line["message"]["tool_calls"].as_array().cloned().unwrap_or_default()).collect();
    for calls in [whole, streamed] {
        assert_eq!(calls.len(), 2, "{calls:?}");
        for (index, city) in ["Oslo", "Rome"].iter().enumerate() {
            let function = json!({ "index": index, "name": "f", "arguments": { "city": city } });
            assert_eq!(calls[index]["function"], function);
        }
        let [a, b] = [0, 1].map(|index| calls[index]["id"].as_str().unwrap());
        assert!(a.starts_with("call_") && b.starts_with("call_") && a != b, "{a} {b}");
    }
}

#[test]
fn thoughts_and_schemas() {
    let talk = start(&["<think>", "Hm.", "</think>", "\n\n", "Hello."], &[], &["<think>", "</think>"], CHATML);
    let message = talk.chat(json!({}))["message"].clone();
    assert_eq!((&message["content"], &message["reasoning_content"]), (&json!("Hello."), &json!("Hm.")));
    // A schema in the request constrains the whole answer. It leaves no room for a thought, unless the prompt has
    // already opened one.
    let message = talk.chat(json!({ "json_schema": { "const": { "tag": "<think>" } } }))["message"].clone();
    assert_eq!(
        serde_json::from_str::<Value>(message["content"].as_str().unwrap()).unwrap(),
        json!({ "tag": "<think>" })
    );
    drop(talk);

    let template = format!("{CHATML}<think>\n");
    let talk = start(&["So it is 4.", "\n", "</think>", "\n\n", "four"], &[], &["</think>"], &template);
    let schema = json!({ "type": "object", "properties": { "answer": { "enum": ["four"] } }, "required": ["answer"] });
    let format = json!({ "type": "json_schema", "json_schema": { "name": "x", "schema": schema } });
    let message = talk.chat(json!({ "response_format": format }))["message"].clone();
    assert_eq!(message["reasoning_content"], "So it is 4.");
    assert_eq!(
        serde_json::from_str::<Value>(message["content"].as_str().unwrap()).unwrap(),
        json!({ "answer": "four" })
    );
    // A thought ends when its budget is used up.
    let message = talk.chat(json!({ "reasoning_budget": 1, "grammar": "root ::= \"yes\"" }))["message"].clone();
    assert_eq!((&message["content"], &message["reasoning_content"]), (&json!("yes"), &json!("So it is 4.")));
}

#[test]
fn required_and_strict_calls_have_the_own_form() {
    let template = "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}{{ m.role }}: {{ m.content }}\
                    {% for c in m.tool_calls or [] %}[TOOL_CALLS]{{ c.function.name }}[ARGS]{{ c.function.arguments | tojson }}{% endfor %}\n{% endfor %}";
    let talk = start(&["Once", " upon"], &["[TOOL_CALLS]", "[ARGS]"], &[], template);
    for choice in [json!("required"), json!({ "type": "function", "function": { "name": "get_weather" } })] {
        let mut tool = function("get_weather");
        tool["function"]["parameters"]["properties"]["city"] = json!({ "enum": ["Oslo"] });
        let answer = talk.chat(json!({ "tools": [tool], "tool_choice": choice, "parallel_tool_calls": false }));
        assert_eq!(answer["message"]["content"], Value::Null, "{answer}");
        let function = &answer["message"]["tool_calls"][0]["function"];
        assert_eq!(
            serde_json::from_str::<Value>(function["arguments"].as_str().unwrap()).unwrap(),
            json!({ "city": "Oslo" })
        );
    }
    drop(talk);

    let script = ["Well. ", "[TOOL_CALLS]", "get_time", "[ARGS]", "{}"];
    let talk = start(&script, &["[TOOL_CALLS]", "[ARGS]"], &[], template);
    let mut tool = function("get_weather");
    tool["function"]["strict"] = json!(true);
    tool["function"]["parameters"]["properties"]["city"] = json!({ "const": "Oslo" });
    let answer = talk.chat(json!({ "tools": [tool] }));
    assert_eq!(answer["message"]["content"], "Well.", "{answer}");
    assert_eq!(answer["message"]["tool_calls"][0]["function"]["name"], "get_weather", "{answer}");
}

/// Strict functions constrain calls in channels. They also constrain calls after a thought with a limited budget.
#[test]
fn strict_calls_after_thoughts_and_in_channels() {
    let mut tool = function("get_weather");
    tool["function"]["strict"] = json!(true);
    tool["function"]["parameters"]["properties"]["city"] = json!({ "const": "Oslo" });
    let call = |answer: &Value| answer["message"]["tool_calls"][0]["function"]["arguments"].clone();

    let channels = ["<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|call|>", "<|end|>"];
    let template =
        "{% for m in messages %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endfor %}<|start|>assistant";
    let script =
        ["<|channel|>", "commentary to=functions.", "get_weather", " ", "<|constrain|>", "json", "<|message|>", "{}"];
    let talk = start(&script, &channels, &[], template);
    let answer = talk.chat(json!({ "tools": [tool] }));
    let arguments: Value = serde_json::from_str(call(&answer).as_str().unwrap()).unwrap();
    assert_eq!(arguments, json!({ "city": "Oslo" }), "{answer}");
    drop(talk);

    let marks = ["<think>", "</think>", "<tool_call>", "</tool_call>"];
    let template = "{{ messages | tojson }}{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}\
                    {% for c in m.tool_calls or [] %}<tool_call>\n{{ c.function | tojson }}\n</tool_call>{% endfor %}{% endfor %}<think>\n";
    let script = ["Hm. ", "Well. ", "</think>", "Let me see. ", "<tool_call>", "{}"];
    let talk = start(&script, &[], &marks, template);
    for more in [json!({}), json!({ "reasoning_budget": 1 })] {
        let mut asked = more.clone();
        asked["tools"] = json!([tool]);
        let answer = talk.chat(asked);
        let arguments: Value = serde_json::from_str(call(&answer).as_str().unwrap()).unwrap();
        assert_eq!(arguments, json!({ "city": "Oslo" }), "{more} {answer}");
    }
}

/// The budget of thoughts also applies to thoughts in channels, and to a thought that the model itself opens in its
/// answer.
#[test]
fn thoughts_that_the_answer_opens_have_a_budget() {
    let parts = |answer: &Value| (answer["message"]["content"].clone(), answer["message"]["reasoning_content"].clone());
    let script = ["<think>", "Hm.", " Well.", " So.", "\n", "</think>", "\n\n", "Hello."];
    let talk = start(&script, &[], &["<think>", "</think>"], CHATML);
    let whole = (json!("Hello."), json!("Hm. Well. So."));
    assert_eq!(parts(&talk.chat(json!({}))), whole);
    assert_eq!(parts(&talk.chat(json!({ "reasoning_budget": 9 }))), whole);
    assert_eq!(parts(&talk.chat(json!({ "reasoning_budget": 2 }))), (json!("Hello."), json!("Hm. Well.")));
    drop(talk);

    let channels = ["<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|call|>", "<|end|>", "<|return|>"];
    let template =
        "{% for m in messages %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endfor %}<|start|>assistant";
    let talk = start(&["<|channel|>", "analysis", "<|message|>", "Hm.", " Well.", " So."], &channels, &[], template);
    assert_eq!(parts(&talk.chat(json!({}))), (json!(""), json!("Hm. Well. So.")));
    let (content, thought) = parts(&talk.chat(json!({ "reasoning_budget": 2 })));
    assert_eq!((content, thought), (json!("Hm. Well. So."), json!("Hm. Well.")));
    // If functions are declared, the next message may be a call. A second thought is closed at once, and the content
    // follows.
    let (content, thought) = parts(&talk.chat(json!({ "reasoning_budget": 1, "tools": [function("get_time")] })));
    assert_eq!((content, thought), (json!("Hm. Well. So."), json!("Hm.")));
    let schema = json!({ "type": "object", "properties": { "n": { "enum": [4] } }, "required": ["n"] });
    let (content, thought) = parts(&talk.chat(json!({ "reasoning_budget": 2, "json_schema": schema })));
    let content: Value = serde_json::from_str(content.as_str().unwrap()).unwrap();
    assert_eq!((content, thought), (json!({ "n": 4 }), json!("Hm. Well.")));
}

/// A forced call contains a text that does not end. The answer then ends with `length`, and the unfinished call is not
/// shown as text.
#[test]
fn a_forced_call_that_the_limit_cuts_is_no_text() {
    let template = "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}\
                    <tool_call>\n<function={{ c.function.name }}>\n{% for k, v in c.function.arguments | items %}<parameter={{ k }}>\n{{ v }}\n</parameter>\n\
                    {% endfor %}</function>\n</tool_call>{% endfor %}{% endfor %}";
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("m.gguf");
    Scripted { script: &["a"], control: &IM, user: &["<tool_call>", "</tool_call>"], template }.write_random(&path, 7);
    let server = Server::start_with(&["-m", path.to_str().unwrap(), "-c", "1024", "-t", "1"]);
    let talk = Talk { server, directory };
    let asked = asked(json!({
        "tools": [function("get_weather")], "tool_choice": "required", "temperature": 1.5, "seed": 1, "max_tokens": 60,
    }));
    let choice = talk.good("/v1/chat/completions", &asked)["choices"][0].clone();
    let content = choice["message"]["content"].as_str().unwrap();
    assert_eq!(choice["finish_reason"], "length");
    assert!(choice["message"].get("tool_calls").is_none(), "{choice}");
    assert_eq!(content, "");
    let events = talk.stream("/v1/chat/completions", &asked);
    let deltas: Vec<&Value> = events.iter().map(|event| &event["choices"][0]).collect();
    let streamed: String = deltas.iter().filter_map(|choice| choice["delta"]["content"].as_str()).collect();
    assert_eq!(streamed, content);
    assert!(deltas.iter().all(|choice| choice["delta"].get("tool_calls").is_none()));
    assert_eq!(deltas.last().unwrap()["finish_reason"], "length");
    // An empty string in the first chunk would become a text in some clients.
    assert_eq!(deltas[0]["delta"], json!({ "role": "assistant", "content": null }));

    // The other interfaces have no empty block or item either.
    let tool = json!({ "name": "get_weather", "input_schema": function("get_weather")["function"]["parameters"] });
    let mut messages = asked.clone();
    (messages["tools"], messages["tool_choice"]) = (json!([tool]), json!({ "type": "any" }));
    let message = talk.good("/v1/messages", &messages);
    assert_eq!((&message["content"], &message["stop_reason"]), (&json!([]), &json!("max_tokens")));
    let kinds: Vec<Value> = talk.stream("/v1/messages", &messages).iter().map(|event| event["type"].clone()).collect();
    assert_eq!(json!(kinds), json!(["message_start", "ping", "message_delta", "message_stop"]));
    let mut body = asked;
    body["input"] = body["messages"].take();
    body["tools"] = json!([function("get_weather")]);
    body["max_output_tokens"] = body["max_tokens"].take();
    body.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    let response = talk.good("/v1/responses", &body);
    assert_eq!((&response["output"], &response["status"]), (&json!([]), &json!("incomplete")));
}

/// Codex sends the functions of MCP servers in namespaces, and runs only calls that have the namespace in a field.
#[test]
fn functions_of_a_namespace() {
    let script = ["<|python_tag|>", "{\"name\": \"mcp__w__get_weather\", ", "\"arguments\": {\"city\": \"Oslo\"}}"];
    let talk = start(&script, &["<|python_tag|>"], &[], CHATML);
    let mut tool = function("get_weather")["function"].clone();
    tool["type"] = json!("function");
    let tools = json!([{ "type": "namespace", "name": "mcp__w", "description": "d", "tools": [&tool] }]);
    let mut body = json!({ "input": "hi", "temperature": 0, "tools": tools });
    let item = talk.good("/v1/responses", &body)["output"][0].clone();
    assert_eq!((&item["name"], &item["namespace"]), (&json!("get_weather"), &json!("mcp__w")), "{item}");
    let events = talk.stream("/v1/responses", &body);
    let done = events.iter().find(|event| event["type"] == "response.output_item.done").unwrap();
    assert_eq!((&done["item"]["name"], &done["item"]["namespace"]), (&json!("get_weather"), &json!("mcp__w")));
    let output = json!({ "type": "function_call_output", "call_id": item["call_id"], "output": "Rain." });
    body["input"] = json!([{ "role": "user", "content": "hi" }, item, output]);
    talk.good("/v1/responses", &body);
    // Names are looked up: a plain function and a longer namespace may begin with the name of a namespace.
    let list = |tools: Value| json!({ "type": "namespace", "name": "mcp", "tools": tools });
    let longer = json!({ "type": "namespace", "name": "mcp__w", "tools": [tool] });
    for more in [json!([list(json!([])), longer]), json!([longer, list(json!([function("x")]))])] {
        body["tools"] = more;
        assert_eq!(talk.good("/v1/responses", &body)["output"][0]["namespace"], "mcp__w");
    }
    body["tools"] = json!([list(json!([])), { "type": "function", "name": "mcp__w__get_weather" }]);
    assert!(talk.good("/v1/responses", &body)["output"][0].get("namespace").is_none());
    body["tools"] = json!([longer, longer]);
    assert_eq!(talk.refused("/v1/responses", &body)["param"], "tools");
}

/// Agents ask for a value after their last answer.
#[test]
fn a_value_after_an_answer() {
    let talk = start(&["{\"n\": 4}"], &[], &[], CHATML);
    let schema = json!({ "type": "object", "properties": { "n": { "enum": [4] } }, "required": ["n"] });
    let messages = json!([{ "role": "user", "content": "hi" }, { "role": "assistant", "content": "Four." }]);
    let body = json!({ "messages": messages, "format": schema, "stream": false, "options": { "temperature": 0 } });
    let answer = talk.good("/api/chat", &body);
    let value: Value = serde_json::from_str(answer["message"]["content"].as_str().unwrap()).unwrap();
    assert_eq!(value, json!({ "n": 4 }));
}

#[test]
fn prompts_are_scored() {
    let talk = start(&["Once", " upon", " a"], &[], &[], CHATML);
    let body = |prompt: Value, limit: u32| json!({ "prompt": prompt, "max_tokens": limit, "temperature": 0, "echo": true, "logprobs": 1 });
    for prompt in [json!("abc"), json!([100, 101, 102])] {
        let choice = talk.good("/v1/completions", &body(prompt.clone(), 1))["choices"][0].clone();
        assert_eq!(choice["text"], "abcOnce");
        let logprobs = &choice["logprobs"];
        assert_eq!(logprobs["tokens"], json!(["a", "b", "c", "Once"]));
        assert_eq!(logprobs["text_offset"], json!([0, 1, 2, 3]));
        assert_eq!((&logprobs["token_logprobs"][0], &logprobs["top_logprobs"][0]), (&Value::Null, &Value::Null));
        assert!(logprobs["token_logprobs"][1].as_f64().unwrap() < 0.0);
        let scored = talk.good("/v1/completions", &body(prompt, 0));
        assert_eq!(scored["choices"][0]["logprobs"]["tokens"], json!(["a", "b", "c"]));
        assert_eq!(scored["usage"]["completion_tokens"], 0);
    }
    let many =
        talk.good("/v1/completions", &json!({ "prompt": ["abcdefghij", "xy"], "max_tokens": 2, "temperature": 0 }));
    assert_eq!((&many["usage"]["prompt_tokens"], &many["usage"]["completion_tokens"]), (&json!(12), &json!(4)));
}

#[test]
fn offsets_count_whole_characters() {
    let bytes = ["A", "<0xC3>", "<0xA9>", "<0xF0>", "<0x9F>", "<0x99>", "<0x82>", "B"];
    let talk = start(&bytes, &[], &[], CHATML);
    let body = json!({ "prompt": "abc", "max_tokens": 8, "temperature": 0, "logprobs": 1 });
    let choice = talk.good("/v1/completions", &body)["choices"][0].clone();
    assert_eq!(choice["text"], "A\u{e9}\u{1f642}B");
    assert_eq!(choice["logprobs"]["text_offset"], json!([0, 1, 1, 2, 2, 2, 2, 3]));
    let events = talk.stream("/v1/completions", &body);
    let offsets = events.iter().filter_map(|event| event["choices"][0]["logprobs"]["text_offset"][0].as_u64());
    assert_eq!(offsets.collect::<Vec<_>>(), [0, 1, 1, 2, 2, 2, 2, 3]);
}

#[test]
fn fields_mean_what_they_say() {
    let talk = start(&["Once", " upon"], &[], &[], CHATML);
    let path = "/v1/chat/completions";
    for (field, value) in [("top_a", json!(0.2)), ("best_of", json!(3)), ("audio", json!({ "voice": "x" }))] {
        let error = talk.refused(path, &asked(json!({ field: value })));
        assert_eq!((&error["param"], &error["code"]), (&json!(field), &json!("unsupported_parameter")));
    }
    // An error names the field that caused it: a field with a value of the wrong type, or a field that the template
    // ignores.
    for (field, value) in
        [("temperature", json!("hot")), ("echo", json!(true)), ("documents", json!([{ "text": "x" }]))]
    {
        assert_eq!(talk.refused(path, &asked(json!({ field: value })))["param"], field);
    }
    assert_eq!(talk.chat(json!({ "logit_bias": [[5, false], [6, -1.5]] }))["message"]["content"], "Once upon");
    let error = talk.refused(path, &asked(json!({ "messages": [{ "role": "user", "content": "x".repeat(3000) }] })));
    assert_eq!(error["code"], "context_length_exceeded");
    let (status, answer) = talk.server.post(path, asked(json!({ "model": "other" })).to_string().as_bytes());
    assert_eq!((status, &answer["error"]["code"]), (404, &json!("model_not_found")));
    assert_eq!(
        talk.chat(json!({ "max_tokens": -1, "repetition_penalty": 1.0, "mirostat": 0, "user": "me" }))["message"]["content"],
        "Once upon"
    );
    assert_eq!(
        talk.chat(json!({ "guided_choice": ["seven", "eight"] }))["message"]["content"].as_str().map(str::len),
        Some(5)
    );
    // The role `developer` becomes `system` if the template does not support it.
    let prompt = |role: &str| {
        let body = asked(json!({ "messages": [{ "role": role, "content": "x" }, { "role": "user", "content": "y" }] }));
        talk.good("/apply-template", &body)["prompt"].clone()
    };
    assert_eq!(prompt("developer"), prompt("system"));
    // If the template cannot show functions, they are added to the system message.
    let body = asked(json!({ "tools": [function("get_weather")] }));
    let text = talk.good("/apply-template", &body)["prompt"].as_str().unwrap().to_string();
    assert!(
        text.starts_with("<|im_start|>system\n") && text.contains("get_weather") && text.contains("<tool_call>"),
        "{text}"
    );
    let models = talk.server.ask("GET", "/v1/models/m", "", b"").1;
    assert_eq!(serde_json::from_str::<Value>(&models).unwrap()["id"], "m");
    let text = talk.good("/detokenize", &json!({ "tokens": [100, 101] }));
    assert_eq!((&text["content"], &text["prompt"]), (&json!("ab"), &json!("ab")));
}

/// The prompts are those of llama.cpp.
#[test]
fn a_prompt_that_is_shown_may_end_with_any_message() {
    let asks = "<|im_start|>assistant\n";
    let template = CHATML.replace(
        asks,
        &format!("{{% if add_generation_prompt %}}{{{{ '{}' }}}}{{% endif %}}", asks.replace('\n', "\\n")),
    );
    let talk = start(&["a"], &[], &[], &template);
    let prompt = |more: Value| talk.good("/apply-template", &asked(more))["prompt"].clone();
    let asks = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n";
    assert_eq!(prompt(json!({})), asks);
    assert_eq!(prompt(json!({ "add_generation_prompt": false })), "<|im_start|>user\nhi<|im_end|>\n");
    let messages = json!([{ "role": "user", "content": "hi" }, { "role": "assistant", "content": "b" }]);
    assert_eq!(prompt(json!({ "messages": messages })), format!("{asks}b"));
    let denied = json!({ "messages": messages, "continue_final_message": false });
    assert_eq!(prompt(denied), format!("{asks}b<|im_end|>\n<|im_start|>assistant\n"));
    let closed = json!({ "messages": messages, "add_generation_prompt": false });
    assert_eq!(prompt(closed), format!("{asks}b<|im_end|>\n"));
    // If a request sets `add_generation_prompt` to false, the answer begins directly after the last message.
    let answer = talk.good("/v1/chat/completions", &asked(json!({ "add_generation_prompt": false })));
    let (usual, closed) = (talk.good("/v1/chat/completions", &asked(json!({}))), &answer["usage"]["prompt_tokens"]);
    assert!(closed.as_u64() < usual["usage"]["prompt_tokens"].as_u64(), "{answer}");
    assert_eq!(answer["choices"][0]["message"]["content"], "a");
}

#[test]
fn templates_that_refuse_are_errors() {
    let talk = start(&["a"], &[], &[], "{{ raise_exception('no ' ~ messages[0].role) }}");
    let error = talk.refused("/v1/chat/completions", &asked(json!({})));
    assert!(error["message"].as_str().unwrap().contains("no user"), "{error}");
}

#[test]
fn anthropics_messages() {
    let script = [
        "<think>",
        "Hm.",
        "</think>",
        "Let me see.",
        "<tool_call>",
        "{\"name\": \"get_weather\", ",
        "\"arguments\": {\"city\": \"Oslo\"}}",
        "</tool_call>",
    ];
    let talk = start(&script, &[], &["<think>", "</think>", "<tool_call>", "</tool_call>"], CHATML);
    let schema = function("x")["function"]["parameters"].clone();
    let body = json!({
        "model": "m", "max_tokens": 100, "temperature": 0, "system": "Be brief.",
        "messages": [
            { "role": "user", "content": "hi" },
            { "role": "assistant", "content": [{ "type": "tool_use", "id": "t1", "name": "get_weather", "input": { "city": "Bergen" } }] },
            { "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "t1", "content": "3" }] },
        ],
        "tools": [{ "name": "get_weather", "input_schema": schema }],
    });
    let answer = talk.good("/v1/messages", &body);
    let kinds: Vec<&str> =
        answer["content"].as_array().unwrap().iter().map(|block| block["type"].as_str().unwrap()).collect();
    assert_eq!((kinds, &answer["stop_reason"]), (vec!["thinking", "text", "tool_use"], &json!("tool_use")));
    assert_eq!(answer["content"][2]["input"], json!({ "city": "Oslo" }));
    let events = talk.stream("/v1/messages", &body);
    let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!((kinds.first(), kinds.last()), (Some(&"message_start"), Some(&"message_stop")));
    let text: String = events.iter().filter_map(|event| event["delta"]["text"].as_str()).collect();
    let input: String = events.iter().filter_map(|event| event["delta"]["partial_json"].as_str()).collect();
    assert_eq!((text.as_str(), input.as_str()), ("Let me see.", "{\"city\":\"Oslo\"}"));
    let count = talk.good("/v1/messages/count_tokens", &body)["input_tokens"].as_u64();
    let usage = &answer["usage"];
    let known =
        usage["input_tokens"].as_u64().zip(usage["cache_read_input_tokens"].as_u64()).map(|(new, cached)| new + cached);
    assert_eq!(count, known);
    for (field, value) in [
        ("mcp_servers", json!([{ "name": "x" }])),
        ("container", json!("container_1")),
        ("tool_choice", json!({ "type": "tool", "name": "web_search" })),
    ] {
        let mut body = body.clone();
        body[field] = value;
        assert_eq!(talk.server.post("/v1/messages", body.to_string().as_bytes()).0, 400, "{field}");
    }
    let (head, error) =
        talk.server.ask("POST", "/v1/messages", "x-request-id: mine\r\n", b"{\"model\": \"m\", \"messages\": []}");
    let error: Value = serde_json::from_str(&error).unwrap();
    assert_eq!((&error["type"], &error["error"]["type"]), (&json!("error"), &json!("invalid_request_error")));
    assert!(head.contains("\r\nrequest-id: mine") && error["request_id"] == "mine", "{head} {error}");
}

#[test]
fn ollamas_interface() {
    let talk = start(&["Once", " upon", " a"], &[], &[], CHATML);
    let body = json!({ "model": "m:latest", "messages": [{ "role": "user", "content": "hi" }], "options": { "temperature": 0 } });
    let lines = talk.stream("/api/chat", &body);
    let text: String = lines.iter().filter_map(|line| line["message"]["content"].as_str()).collect();
    assert_eq!(text, "Once upon a");
    let last = lines.last().unwrap();
    assert_eq!((&last["done"], &last["done_reason"], &last["eval_count"]), (&json!(true), &json!("stop"), &json!(3)));
    let whole = talk.good(
        "/api/generate",
        &json!({ "model": "m", "prompt": "hi", "stream": false, "options": { "temperature": 0, "num_predict": 2 } }),
    );
    assert_eq!((&whole["response"], &whole["done_reason"]), (&json!("Once upon"), &json!("length")));
    // Only a positive number is a limit.
    for limit in [0, -1, -2] {
        let body = json!({ "model": "m", "prompt": "hi", "stream": false, "options": { "temperature": 0, "num_predict": limit } });
        assert_eq!(talk.good("/api/generate", &body)["response"], "Once upon a", "{limit}");
    }
    let raw = talk.good(
        "/api/generate",
        &json!({ "model": "m", "prompt": "hi", "raw": true, "stream": false, "options": { "temperature": 0 } }),
    );
    assert_eq!(raw["response"], "Once upon a");
    let shown = talk.good("/api/show", &json!({ "model": "m" }));
    assert_eq!((&shown["template"], &shown["details"]["family"]), (&json!(CHATML), &json!("llama")));
    // LM Studio's interface is below Ollama's path, with OpenAI's formats.
    let list: Value = serde_json::from_str(&talk.server.ask("GET", "/api/v0/models", "", b"").1).unwrap();
    let entry = json!({ "type": list["data"][0]["type"], "state": list["data"][0]["state"] });
    assert_eq!(entry, json!({ "type": "llm", "state": "loaded" }), "{list}");
    assert!(talk.good("/api/v0/chat/completions", &asked(json!({})))["choices"][0]["message"].is_object());
    assert_eq!(talk.refused("/api/v0/chat/completions", &json!({ "messages": [] }))["param"], "messages");
    let tags = talk.server.ask("GET", "/api/tags", "", b"").1;
    assert_eq!(serde_json::from_str::<Value>(&tags).unwrap()["models"][0]["name"], "m");
    assert!(talk.server.ask("GET", "/api/version", "", b"").1.contains("version"));
    // Every error has Ollama's form.
    for (method, path, body, status) in [
        ("POST", "/api/chat", "{}{", 400),
        ("POST", "/api/chat", "{\"model\": \"other\", \"messages\": [{\"role\": \"user\", \"content\": \"x\"}]}", 404),
        ("POST", "/api/show", "{\"model\": \"other\"}", 404),
        ("POST", "/api/generate", "{\"prompt\": \"x\", \"images\": [\"x\"]}", 400),
        ("GET", "/api/chat", "", 405),
        ("GET", "/api/unknown", "", 404),
    ] {
        let (head, text) = talk.server.ask(method, path, "", body.as_bytes());
        let error: Value = serde_json::from_str(&text).unwrap();
        assert!(head.contains(&format!(" {status} ")), "{path}: {head}");
        assert!(error["error"].is_string(), "{path}: {text}");
    }
}

#[test]
fn llamas_routes() {
    let talk = start(&["Once", " upon"], &FIM, &[], CHATML);
    let props: Value = serde_json::from_str(&talk.server.ask("GET", "/props", "", b"").1).unwrap();
    assert_eq!(
        (&props["chat_template"], &props["default_generation_settings"]["n_ctx"]),
        (&json!(CHATML), &json!(1024))
    );
    let filled = talk.good("/infill", &json!({ "input_prefix": "ab", "input_suffix": "cd", "temperature": 0 }));
    assert_eq!(
        (&filled["content"], &filled["tokens_evaluated"], &filled["stop_type"]),
        (&json!("Once upon"), &json!(7), &json!("eos"))
    );
    for path in ["/completion", "/completions"] {
        let filled = talk.good(path, &json!({ "prompt": "ab", "n_predict": 1, "temperature": 0 }));
        assert_eq!(
            (&filled["content"], &filled["stop"], &filled["stop_type"]),
            (&json!("Once"), &json!(true), &json!("limit"))
        );
        // As in llama-server, the answers to several prompts are returned as a list.
        let filled = talk.good(path, &json!({ "prompt": ["a", "b"], "n_predict": 1, "temperature": 0 }));
        assert_eq!((&filled[0]["content"], &filled[1]["index"], &filled[2]), (&json!("Once"), &json!(1), &Value::Null));
    }
    assert_eq!(talk.server.ask("GET", "/v1/health", "", b"").1, r#"{"status":"ok"}"#);
    drop(talk);
    let talk = start(&["a"], &[], &[], CHATML);
    let body = json!({ "input_prefix": "a", "input_suffix": "b" }).to_string();
    assert_eq!(talk.server.post("/infill", body.as_bytes()).0, 400);
}

#[test]
fn calls_are_run_from_the_command_line() {
    let script =
        ["<tool_call>", "{\"name\": \"get_weather\", ", "\"arguments\": {\"city\": \"Oslo\"}}", "</tool_call>"];
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_string();
    let template =
        "{% if messages[-1].role == 'tool' %}<|im_end|>{% endif %}{{ messages | tojson }}{{ tools | tojson }}";
    Scripted { script: &script, control: &IM, user: &["<tool_call>", "</tool_call>"], template }
        .write(path("m.gguf").as_ref());
    std::fs::write(path("tools.json"), json!([function("get_weather")]).to_string()).unwrap();
    let seen = path("seen");
    // The model calls the tool again after each result, until the maximum number of rounds is reached. The command
    // notes each call in the file `seen`.
    let command = format!("cat >> {seen}; echo 3");
    let args = ["chat", "-m", &path("m.gguf"), "--temp", "0", "--tools", &path("tools.json"), "--tool-cmd", &command];
    let output = arenite_with(&args, b"hi\n");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.starts_with("get_weather({\"city\":\"Oslo\"})"), "{text} {}", String::from_utf8_lossy(&output.stderr));
    let asked = std::fs::read_to_string(&seen).unwrap();
    let asked: Value = serde_json::from_str(asked.lines().next().unwrap()).unwrap();
    assert_eq!(asked, json!({ "name": "get_weather", "arguments": { "city": "Oslo" } }));
}

#[test]
fn ignored_ends_do_not_end_a_chat() {
    let talk = start(&["Once", "<|im_end|>", " more"], &[], &[], CHATML);
    let ended = talk.chat(json!({ "max_tokens": 3 }));
    assert_eq!((&ended["message"]["content"], &ended["finish_reason"]), (&json!("Once"), &json!("stop")));
    let whole = talk.chat(json!({ "max_tokens": 3, "ignore_eos": true }));
    assert_eq!((&whole["message"]["content"], &whole["finish_reason"]), (&json!("Once more"), &json!("length")));
}
