//! Forced calls of models with random weights and public templates: every answer must be parsed as calls. The templates
//! come from `ARENITE_FIXTURES`, and from the directory `ARENITE_TEMPLATES` if this variable is set. `ARENITE_SAMPLES`
//! is the number of answers for each template (default: one for each request).

use std::collections::BTreeSet;
use std::io::Read;

use flate2::read::GzDecoder;
use serde_json::{Value, json};

use crate::common::{external, skip};
use crate::scripted::Scripted;
use crate::serve::Server;

/// Returns the public templates by name.
fn templates() -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = Vec::new();
    if let Some(cases) = external("templates/cases.json.gz") {
        let packed = std::fs::read(cases).expect("the cases");
        let mut json = String::new();
        GzDecoder::new(&packed[..]).read_to_string(&mut json).expect("gzip");
        for case in serde_json::from_str::<Vec<Value>>(&json).expect("JSON") {
            let text = |key: &str| case[key].as_str().unwrap_or_default().to_string();
            let name = text("name").split('/').next().unwrap_or_default().to_string();
            if all.last().is_none_or(|(last, _)| *last != name) {
                all.push((name, text("template")));
            }
        }
    }
    for entry in
        std::env::var_os("ARENITE_TEMPLATES").map(|path| std::fs::read_dir(path).unwrap()).into_iter().flatten()
    {
        let entry = entry.unwrap();
        let name = entry.file_name().to_string_lossy().into_owned();
        all.push((name, std::fs::read_to_string(entry.path()).unwrap()));
    }
    all
}

/// Returns the texts in a template that look like control tokens.
fn control_tokens(template: &str) -> BTreeSet<&str> {
    let marks = [("<|", "|>"), ("<\u{ff5c}", "\u{ff5c}>"), ("[", "]")].into_iter().flat_map(|(open, close)| {
        template.match_indices(open).filter_map(move |(at, _)| {
            let len = template[at..].find(close)? + close.len();
            Some(&template[at..at + len])
        })
    });
    let is_mark = |mark: &&str| {
        let inner = mark.trim_matches(['<', '>', '|', '[', ']', '\u{ff5c}']);
        let is_word = |c: char| c.is_alphanumeric() || "_/:\u{2581}".contains(c);
        let is_upper = !mark.starts_with('[')
            || inner.len() > 3 && inner.chars().all(|c| c.is_ascii_uppercase() || "_/".contains(c));
        !inner.is_empty() && inner.len() < 40 && inner.chars().all(is_word) && is_upper
    };
    marks.filter(is_mark).collect()
}

fn function(name: &str, parameters: Value) -> Value {
    json!({ "type": "function", "function": { "name": name, "description": "A function", "strict": true, "parameters": parameters } })
}

/// Returns the fault of a call.
fn fault(call: &Value) -> Option<String> {
    let function = &call["function"];
    let arguments = match serde_json::from_str::<Value>(function["arguments"].as_str()?) {
        Ok(arguments) => arguments,
        Err(error) => return Some(format!("{error}: {call}")),
    };
    let is_in = |key: &str, test: &dyn Fn(&Value) -> bool| arguments.get(key).is_none_or(test);
    let is_good = match function["name"].as_str() {
        Some("get_time") => arguments == json!({}),
        Some("get_weather") => {
            arguments["city"].as_str().is_some_and(|city| city.chars().count() <= 8)
                && is_in("days", &|days| days.as_i64().is_some_and(|days| (0..=9).contains(&days)))
                && is_in("unit", &|unit| *unit == "c" || *unit == "f")
                && is_in("exact", &Value::is_boolean)
                && is_in("tags", &|tags| tags.as_array().is_some_and(|tags| tags.len() <= 2))
        }
        _ => false,
    };
    (!is_good).then(|| format!("{call}"))
}

/// Returns a description of the fault of an answer that should consist of calls; `None` if the answer has no fault.
fn fault_of(message: &Value, finish: &Value) -> Option<String> {
    let calls = message["tool_calls"].as_array().map_or(&[][..], Vec::as_slice);
    if calls.is_empty() || !message["content"].as_str().unwrap_or_default().trim().is_empty() || finish != "tool_calls"
    {
        return Some(format!("{finish} {message}"));
    }
    calls.iter().find_map(fault)
}

/// A way to ask for calls: the fields of the request, true if the answer must be a call, and true if the answer is
/// streamed.
struct Way {
    fields: Value,
    is_forced: bool,
    is_streamed: bool,
}

/// Returns requests that lead to a call in different ways: with a forced call, or with a free choice. Each is sent both
/// whole and streamed. `bias` makes the delimiters of calls likely, for requests that the model may also answer with
/// text.
fn ways(bias: &Value) -> Vec<Way> {
    let named = json!({ "type": "function", "function": { "name": "get_weather" } });
    let forced = [
        json!({ "tool_choice": "required" }),
        json!({ "tool_choice": named }),
        json!({ "tool_choice": "required", "parallel_tool_calls": false }),
        json!({ "tool_choice": "required", "temperature": 0.7 }),
    ];
    let forced = forced.into_iter().map(|fields| (fields, true));
    let all: Vec<_> = forced.chain([(json!({ "tool_choice": "auto", "logit_bias": bias }), false)]).collect();
    // The first half has every request once.
    let both = [false, true].into_iter().flat_map(|other| {
        all.iter().enumerate().map(move |(at, (fields, is_forced))| Way {
            fields: fields.clone(),
            is_forced: *is_forced,
            is_streamed: (at % 2 == 1) != other,
        })
    });
    both.collect()
}

/// Joins the deltas of each choice of a stream to a message. Returns the messages with their finish reasons.
fn collected(stream: &str, count: usize) -> Vec<Value> {
    let mut choices = vec![json!({ "message": { "content": "", "tool_calls": [] }, "finish_reason": null }); count];
    let append = |text: &mut Value, more: &Value| {
        *text = json!(format!("{}{}", text.as_str().unwrap_or_default(), more.as_str().unwrap_or_default()));
    };
    for chunk in stream.lines().filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data: ")?).ok()) {
        for part in chunk["choices"].as_array().into_iter().flatten() {
            let choice = &mut choices[part["index"].as_u64().unwrap() as usize];
            append(&mut choice["message"]["content"], &part["delta"]["content"]);
            if !part["finish_reason"].is_null() {
                choice["finish_reason"] = part["finish_reason"].clone();
            }
            for call in part["delta"]["tool_calls"].as_array().into_iter().flatten() {
                let calls = choice["message"]["tool_calls"].as_array_mut().unwrap();
                let at = call["index"].as_u64().unwrap() as usize;
                if at == calls.len() {
                    calls.push(json!({ "function": { "name": "", "arguments": "" } }));
                }
                for key in ["name", "arguments"] {
                    append(&mut calls[at]["function"][key], &call["function"][key]);
                }
            }
        }
    }
    choices
}

/// Asks a server and returns the choices.
fn ask(server: &Server, body: &mut Value, is_streamed: bool, count: usize) -> Result<Vec<Value>, String> {
    body["stream"] = json!(is_streamed);
    let (head, text) = server.ask("POST", "/v1/chat/completions", "", body.to_string().as_bytes());
    if !head.contains(" 200 ") {
        return Err(text);
    }
    if is_streamed {
        return Ok(collected(&text, count));
    }
    let answer: Value = serde_json::from_str(&text).unwrap();
    Ok(answer["choices"].as_array().unwrap().clone())
}

#[test]
fn forced_calls_of_every_template_are_read_back() {
    let templates = templates();
    if templates.is_empty() {
        return skip("templates");
    }
    let samples: usize = std::env::var("ARENITE_SAMPLES").map_or(5, |text| text.parse().unwrap());
    let weather = json!({ "type": "object", "additionalProperties": false, "required": ["city"], "properties": {
        "city": { "type": "string", "description": "A text", "maxLength": 8 }, "days": { "type": "integer", "description": "A number", "minimum": 0, "maximum": 9 },
        "unit": { "type": "string", "description": "A unit", "enum": ["c", "f"] }, "exact": { "type": "boolean", "description": "A switch" },
        "tags": { "type": "array", "description": "A list", "maxItems": 2, "items": { "type": "string", "maxLength": 4 } } } });
    let tools =
        json!([function("get_weather", weather), function("get_time", json!({ "type": "object", "properties": {} }))]);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("m.gguf");
    let mut faults = Vec::new();
    for (name, template) in &templates {
        let control: Vec<&str> = control_tokens(template).into_iter().collect();
        let user: Vec<&str> = ["<tool_call>", "</tool_call>", "<think>", "</think>"]
            .into_iter()
            .filter(|mark| template.contains(mark))
            .collect();
        Scripted { script: &["a"], control: &control, user: &user, template }.write_random(&path, 7);
        let server = Server::start_with(&["-m", path.to_str().unwrap(), "-c", "8192", "--parallel", "4", "-t", "1"]);
        // The vocabulary has three tokens and a token for every byte, 259 together. The ids of the delimiters follow.
        let opens = |mark: &str| ["tool", "TOOL", "python", "channel"].iter().any(|word| mark.contains(word));
        let marks = control.iter().chain(&user).enumerate().filter(|(_, mark)| opens(mark) && !mark.contains('/'));
        let bias = marks.map(|(at, _)| (format!("{}", 259 + at), json!(4))).collect::<serde_json::Map<_, _>>();
        let ways = ways(&json!(bias));
        let (mut good, mut called, mut free, mut last) = (0, 0, 0, String::new());
        for (at, way) in ways.iter().enumerate() {
            let count = (samples + ways.len() - 1 - at) / ways.len();
            if count == 0 {
                continue;
            }
            let mut body = json!({
                "messages": [{ "role": "user", "content": "Weather?" }], "tools": tools, "temperature": 1.5, "seed": at,
                "max_tokens": if way.is_forced { 900 } else { 200 }, "reasoning_budget": 3, "n": count,
            });
            way.fields.as_object().unwrap().iter().for_each(|(key, value)| body[key] = value.clone());
            match ask(&server, &mut body, way.is_streamed, count) {
                Err(error) => last = error,
                Ok(choices) => {
                    for choice in choices {
                        let (message, finish) = (&choice["message"], &choice["finish_reason"]);
                        let calls = message["tool_calls"].as_array().map_or(&[][..], Vec::as_slice);
                        free += usize::from(!way.is_forced);
                        called += usize::from(!way.is_forced && !calls.is_empty());
                        let fault =
                            if way.is_forced { fault_of(message, finish) } else { calls.iter().find_map(fault) };
                        match fault {
                            None => good += 1,
                            Some(fault) => last = format!("{} {fault}", way.fields),
                        }
                    }
                }
            }
        }
        eprintln!("{name}: {good} of {samples}; free to call: {called} of {free} did");
        if !last.is_empty() {
            faults.push(format!("{name}: {last}"));
        }
    }
    assert!(faults.is_empty(), "{} of {}:\n{}", faults.len(), templates.len(), faults.join("\n"));
}
