//! The same request gives the same text, thought, calls and reason for the end in every way of sending it: `generate`
//! or `chat`, `Loaded`, `batch`, and `serve`, both whole and streamed.

use std::path::{Path, PathBuf};

use arenite_run::service::Endpoint;
use arenite_run::{AnswerEnd, Loaded, Request, RunOptions};
use arenite_serve::faces;
use serde_json::{Value, json};

use crate::common::{arenite_with, lines, path};
use crate::scripted::{CHATML, Scripted};
use crate::serve::Server;

/// The answer of a door, without ids and times.
#[derive(Clone, Debug, Default, PartialEq)]
struct Answer {
    content: String,
    thought: String,
    /// Names and arguments.
    calls: Vec<(String, String)>,
    /// `stop` or `length`; `stop` also for calls.
    finish: String,
}

impl Answer {
    fn add(&mut self, message: &Value) {
        self.content += message["content"].as_str().unwrap_or_default();
        self.thought += message["reasoning_content"].as_str().unwrap_or_default();
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            let [name, arguments] = ["name", "arguments"].map(|key| call["function"][key].as_str().unwrap().into());
            self.calls.push((name, arguments));
        }
    }

    fn end(&mut self, finish: &Value) {
        if let Some(finish) = finish.as_str() {
            self.finish = finish.replace("tool_calls", "stop");
        }
    }

    /// A choice of a complete answer in a chat or a completion.
    fn whole(choice: &Value) -> Self {
        let mut answer = Self::default();
        answer.add(&choice["message"]);
        answer.content += choice["text"].as_str().unwrap_or_default();
        answer.end(&choice["finish_reason"]);
        answer
    }

    /// What `arenite chat --reasoning show` prints.
    fn printed(&self) -> String {
        let mut text = self.thought.clone();
        if !self.thought.is_empty() && !self.content.is_empty() {
            text += "\n\n";
        }
        text += &self.content;
        for (name, arguments) in &self.calls {
            let line = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
            text += &format!("{line}{name}({arguments})");
        }
        text
    }
}

/// A model, and the requests to it.
struct Case {
    model: PathBuf,
    bodies: Vec<Value>,
}

impl Case {
    fn url(body: &Value) -> &'static str {
        if body.get("messages").is_some() { "/v1/chat/completions" } else { "/v1/completions" }
    }

    /// Sends every request through each interface that the test covers. Returns how their answers differ from the
    /// server's answer that is not streamed.
    fn differences(&self, folder: &Path) -> Vec<String> {
        let model = path(&self.model);
        let common = ["-m", model, "-c", "1024", "-t", "1"];
        let served = self.served(&common);
        let batch = self.batched(folder, &common);
        let loaded = self.loaded();
        let mut differences = Vec::new();
        for (at, body) in self.bodies.iter().enumerate() {
            let (whole, streamed) = &served[at];
            let mut same = |door: &str, told: &dyn std::fmt::Debug, want: &dyn std::fmt::Debug| {
                let (told, want) = (format!("{told:?}"), format!("{want:?}"));
                if told != want {
                    differences.push(format!("{} {body}\n  {door}: {told}\n  serve: {want}", self.model.display()));
                }
            };
            same("streamed", streamed, whole);
            same("batch", &batch[at], whole);
            if whole.calls.is_empty() && body.get("tools").is_none() {
                same("Loaded", &loaded[at], whole);
            }
            let typed = typed(folder, body, &common);
            if Self::url(body) == "/v1/completions" {
                let report: Value = serde_json::from_str(&typed).unwrap_or_default();
                let end = report["stats"]["end"].as_str();
                let finish = if matches!(end, Some("length" | "context")) { "length" } else { "stop" };
                let text = report["text"].as_str().unwrap_or(&typed);
                same("generate", &(text, finish), &(whole.content.as_str(), whole.finish.as_str()));
            } else {
                same("chat", &typed.trim_end(), &whole.printed().trim_end());
            }
        }
        differences
    }

    fn served(&self, common: &[&str]) -> Vec<(Answer, Answer)> {
        let server = Server::start_with(&[common, &["--parallel", "3"]].concat());
        let ask = |body: &Value| {
            let (status, answer) = server.post(Self::url(body), body.to_string().as_bytes());
            assert_eq!(status, 200, "{} {answer} {body}", self.model.display());
            let mut streamed = body.clone();
            streamed["stream"] = json!(true);
            let text = server.ask("POST", Self::url(body), "", streamed.to_string().as_bytes()).1;
            let mut parts = Answer::default();
            for event in text.lines().filter_map(|line| line.strip_prefix("data: {")) {
                let event: Value = serde_json::from_str(&format!("{{{event}")).unwrap();
                let choice = &event["choices"][0];
                parts.add(&choice["delta"]);
                parts.content += choice["text"].as_str().unwrap_or_default();
                parts.end(&choice["finish_reason"]);
            }
            (Answer::whole(&answer["choices"][0]), parts)
        };
        self.bodies.iter().map(ask).collect()
    }

    fn batched(&self, folder: &Path, common: &[&str]) -> Vec<Answer> {
        let line = |(at, body): (usize, &Value)| {
            json!({ "custom_id": at, "method": "POST", "url": Self::url(body), "body": body }).to_string() + "\n"
        };
        let input: String = self.bodies.iter().enumerate().map(line).collect();
        let file = folder.join("batch.jsonl");
        std::fs::write(&file, input).unwrap();
        let output = arenite_with(&[&["batch", "-i", path(&file), "-o", "-", "--parallel", "4"], common].concat(), b"");
        let text = String::from_utf8(output.stdout).unwrap();
        lines(&text).iter().map(|line| Answer::whole(&line["response"]["body"]["choices"][0])).collect()
    }

    fn loaded(&self) -> Vec<Answer> {
        let options = RunOptions { context: Some(1024), threads: 1, parallel: 2, ..RunOptions::default() };
        let model = Loaded::open(self.model.as_path(), options).unwrap();
        let ask = |body: &Value| {
            let is_chat = Self::url(body) == "/v1/chat/completions";
            let endpoint = if is_chat { Endpoint::Chat } else { Endpoint::Completions };
            let request = Request::from(faces::read_json(endpoint, body).unwrap().request);
            let mut answer = if is_chat { model.chat(request) } else { model.generate(request) }.unwrap();
            let content = answer.by_ref().collect::<Result<String, _>>().unwrap();
            let finish = if answer.end() == Some(AnswerEnd::Length) { "length" } else { "stop" };
            Answer { content, thought: answer.thought().into(), calls: Vec::new(), finish: finish.into() }
        };
        self.bodies.iter().map(ask).collect()
    }
}

/// Runs the command line with the options of a request, and returns what it prints.
fn typed(folder: &Path, body: &Value, common: &[&str]) -> String {
    let mut args: Vec<String> = common.iter().map(|arg| arg.to_string()).collect();
    let file = |name: &str, value: &Value| {
        let file = folder.join(name);
        std::fs::write(&file, value.to_string()).unwrap();
        path(&file).to_string()
    };
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_string);
    for (key, value) in body.as_object().unwrap() {
        let (flag, value) = match key.as_str() {
            "messages" => ("--messages", file("messages.json", value)),
            "prompt" => ("--prompt", text(value)),
            "tools" => ("--tools", file("tools.json", value)),
            "max_tokens" => ("-n", text(value)),
            "temperature" => ("--temp", text(value)),
            "seed" | "top_k" | "top_p" | "min_p" | "repeat_penalty" | "frequency_penalty" | "presence_penalty"
            | "stop" | "json_schema" | "reasoning_budget" | "repeat_last_n" | "samplers" => {
                args.push(format!("--{}={}", key.replace('_', "-"), text(value)));
                continue;
            }
            "grammar" => {
                let file = folder.join("grammar.gbnf");
                std::fs::write(&file, text(value)).unwrap();
                ("--grammar", path(&file).to_string())
            }
            "thinking" => ("--think", "off".to_string()),
            "ignore_eos" => {
                args.push("--ignore-eos".into());
                continue;
            }
            "logit_bias" => {
                for (id, bias) in value.as_object().unwrap() {
                    args.push(format!("--logit-bias={id}={bias}"));
                }
                continue;
            }
            _ => panic!("{key} has no option"),
        };
        args.extend([flag.to_string(), value]);
    }
    let first: &[&str] = match body.get("messages") {
        Some(_) => &["chat", "--reasoning", "show"],
        None => &["generate", "--format", "json"],
    };
    let args: Vec<&str> = first.iter().copied().chain(args.iter().map(String::as_str)).collect();
    let output = arenite_with(&args, b"");
    // If the limit on tokens cuts the answer inside a JSON value, the command prints the value so far, and reports an
    // error.
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() || said.contains("cut off"), "{args:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

fn with(mut body: Value, more: &Value) -> Value {
    more.as_object().unwrap().iter().for_each(|(key, value)| body[key] = value.clone());
    body
}

const IM: [&str; 2] = ["<|im_start|>", "<|im_end|>"];
const THINK: [&str; 2] = ["<think>", "</think>"];

fn tool(is_strict: bool) -> Value {
    let parameters = json!({ "type": "object", "properties": { "city": { "const": "Oslo" } }, "required": ["city"],
        "additionalProperties": false });
    json!({ "type": "function", "function": { "name": "get_weather", "parameters": parameters, "strict": is_strict } })
}

/// Fields of chat requests to scripted models.
fn chats(has_tools: bool) -> Vec<Value> {
    let schema = json!({ "type": "object", "properties": { "a": { "type": "integer" } }, "required": ["a"],
        "additionalProperties": false });
    let mut fields = vec![
        json!({}),
        json!({ "max_tokens": 1 }),
        json!({ "max_tokens": 5 }),
        json!({ "stop": "lo" }),
        json!({ "stop": "think" }),
        json!({ "stop": "</think>" }),
        json!({ "json_schema": schema }),
        json!({ "json_schema": schema, "max_tokens": 24 }),
        json!({ "json_schema": { "enum": ["four", "five"] }, "seed": 3, "temperature": 1.5 }),
        json!({ "json_schema": schema, "reasoning_budget": 2 }),
        json!({ "json_schema": schema, "reasoning_budget": -1, "max_tokens": 40 }),
        json!({ "grammar": "root ::= \"yes\" | \"no\"" }),
        json!({ "grammar": "root ::= \"yes\"", "reasoning_budget": 0 }),
        json!({ "reasoning_budget": 0 }),
        json!({ "reasoning_budget": 1 }),
        json!({ "thinking": { "type": "disabled" } }),
        json!({ "seed": 11, "temperature": 0.9, "max_tokens": 30, "repeat_penalty": 1.3 }),
    ];
    for is_strict in [false, true].into_iter().filter(|_| has_tools) {
        fields.push(json!({ "tools": [tool(is_strict)] }));
        fields.push(json!({ "tools": [tool(is_strict)], "max_tokens": 3 }));
    }
    let base = json!({ "messages": [{ "role": "user", "content": "hi" }], "temperature": 0, "max_tokens": 60 });
    fields.iter().map(|more| with(base.clone(), more)).collect()
}

fn continuations() -> Vec<Value> {
    let base = json!({ "prompt": "Once upon a time", "temperature": 0, "max_tokens": 20 });
    let mut bodies: Vec<Value> = [
        json!({}),
        json!({ "stop": "little" }),
        json!({ "stop": "." }),
        json!({ "max_tokens": 1 }),
        json!({ "logit_bias": { "300": 5.0, "13": -100.0 } }),
        json!({ "ignore_eos": true, "max_tokens": 60, "prompt": "The end" }),
        json!({ "prompt": "The", "seed": 4, "temperature": 2.0 }),
        json!({ "json_schema": { "type": "array", "items": { "enum": ["cat", "dog"] }, "maxItems": 3 } }),
        json!({ "json_schema": { "type": "string", "minLength": 30 } }),
        json!({ "grammar": "root ::= (\"a\" | \"b\")+ \"c\"", "temperature": 1.2, "seed": 5 }),
        json!({ "frequency_penalty": 1.0, "presence_penalty": 0.5, "repeat_last_n": 16 }),
    ]
    .iter()
    .map(|more| with(base.clone(), more))
    .collect();
    for seed in 0..10 {
        let steps =
            [json!({ "top_k": 5 }), json!({ "top_p": 0.5 }), json!({ "min_p": 0.2 }), json!({ "repeat_penalty": 1.5 })];
        let body = with(base.clone(), &json!({ "seed": seed, "temperature": 0.4 + 0.2 * seed as f64, "stop": "s " }));
        bodies.push(with(body, &steps[seed % 4]));
    }
    bodies
}

fn scripted(folder: &Path, name: &str, script: &[&str], control: &[&str], user: &[&str], template: &str) -> Case {
    let model = folder.join(format!("{name}.gguf"));
    let control = [&IM[..], control].concat();
    Scripted { script, control: &control, user, template }.write(&model);
    Case { model, bodies: chats(matches!(name, "thinks" | "calls" | "mistral" | "harmony")) }
}

fn cases(folder: &Path) -> Vec<Case> {
    let opened = format!("{CHATML}<think>\n");
    let switched = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant: {% if enable_thinking is defined \
        and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}";
    let calls = "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}{{ m.role }}: {{ m.content }}\
        {% for c in m.tool_calls or [] %}<tool_call>\n{\"name\": \"{{ c.function.name }}\", \"arguments\": {{ c.function.arguments | tojson }}}\n</tool_call>\
        {% endfor %}\n{% endfor %}";
    let mistral = "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}{{ m.role }}: {{ m.content }}\
        {% for c in m.tool_calls or [] %}[TOOL_CALLS]{{ c.function.name }}[ARGS]{{ c.function.arguments | tojson }}{% endfor %}\n{% endfor %}";
    let harmony =
        "{% for m in messages %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endfor %}<|start|>assistant";
    let channels = ["<|start|>", "<|message|>", "<|channel|>", "<|end|>", "<|return|>", "<|call|>", "<|constrain|>"];
    let call = ["<tool_call>", "{\"name\": \"get_weather\", ", "\"arguments\": {\"city\": \"Oslo\"}}", "</tool_call>"];
    let mut cases = vec![
        scripted(folder, "thinks", &["<think>", "Hm.", "</think>", "\n\n", "Hello there."], &[], &THINK, CHATML),
        scripted(folder, "opened", &["So it is 4.", "\n", "</think>", "\n\n", "Hello"], &[], &THINK, &opened),
        scripted(folder, "straddles", &["Hm.", "</think>{", "\"a\"", ":", "1", "}"], &[], &[], &opened),
        scripted(folder, "strays", &["Hm.", "</think>no", "</think>", " four"], &[], &[], &opened),
        scripted(folder, "ends", &["Hm."], &[], &THINK, &opened),
        scripted(folder, "switched", &["<think>", "So.", "</think>", "Hello"], &[], &THINK, switched),
        scripted(
            folder,
            "calls",
            &[&["Let me see."], &call[..]].concat(),
            &[],
            &["<tool_call>", "</tool_call>"],
            calls,
        ),
        scripted(
            folder,
            "mistral",
            &["Well. ", "[TOOL_CALLS]", "get_time", "[ARGS]", "{}"],
            &["[TOOL_CALLS]", "[ARGS]"],
            &[],
            mistral,
        ),
        scripted(
            folder,
            "harmony",
            &["<|channel|>", "final", "<|message|>", "Hello", " you", "<|return|>"],
            &channels,
            &[],
            harmony,
        ),
    ];
    let random = folder.join("random.gguf");
    Scripted { script: &["Hello"], control: &IM, user: &THINK, template: CHATML }.write_random(&random, 7);
    let chat = json!({ "messages": [{ "role": "user", "content": "hi" }], "max_tokens": 24 });
    let sampled =
        |seed: u64| with(chat.clone(), &json!({ "seed": seed, "temperature": 1.0, "top_p": 0.9, "stop": "e" }));
    let mut bodies: Vec<Value> = (0..12).map(sampled).collect();
    // Until the context is full.
    bodies.push(json!({ "prompt": "hi", "temperature": 1.2, "seed": 5, "max_tokens": -1, "ignore_eos": true }));
    cases.push(Case { model: random, bodies });
    let stories = crate::common::committed("tests/fixtures/stories.gguf");
    cases.push(Case { model: stories, bodies: continuations() });
    cases
}

#[test]
fn the_same_request_has_the_same_answer_through_every_door() {
    let folder = tempfile::tempdir().unwrap();
    let cases = cases(folder.path());
    let differences: Vec<String> = std::thread::scope(|scope| {
        let run = |(at, case): (usize, &Case)| {
            let own = folder.path().join(at.to_string());
            std::fs::create_dir(&own).unwrap();
            case.differences(&own)
        };
        let all: Vec<_> = cases.iter().enumerate().map(|case| scope.spawn(move || run(case))).collect();
        all.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n"));
    let count: usize = cases.iter().map(|case| case.bodies.len()).sum();
    assert!(count >= 200, "{count}");
}
