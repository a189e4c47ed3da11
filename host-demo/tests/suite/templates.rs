//! Forced calls of models with random weights and public templates: every answer must be read back. The templates come
//! from `ARENITE_FIXTURES`, and from the directory `ARENITE_TEMPLATES` if it is set. `ARENITE_SAMPLES` is the number of
//! answers for each template (default: 5).

use std::collections::BTreeSet;
use std::io::Read;
use std::path::PathBuf;

use flate2::read::GzDecoder;
use serde_json::{Value, json};

use crate::scripted::Scripted;
use crate::serve::Server;

/// Returns the public templates by name.
fn templates() -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = Vec::new();
    if let Some(root) = std::env::var_os("ARENITE_FIXTURES") {
        let packed = std::fs::read(PathBuf::from(root).join("templates/cases.json.gz")).expect("the cases");
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

/// Returns the marks in a template that look like control tokens.
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

/// Returns the fault of an answer that must consist of calls.
fn fault_of(message: &Value, finish: &Value) -> Option<String> {
    let calls = message["tool_calls"].as_array().map_or(&[][..], Vec::as_slice);
    if calls.is_empty() || !message["content"].as_str().unwrap_or_default().trim().is_empty() || finish != "tool_calls"
    {
        return Some(format!("{finish} {message}"));
    }
    calls.iter().find_map(fault)
}

#[test]
#[ignore = "takes minutes without optimization"]
fn forced_calls_of_every_template_are_read_back() {
    let templates = templates();
    if templates.is_empty() {
        eprintln!("SKIP: ARENITE_FIXTURES is not set, so no calls are forced from public templates");
        return;
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
        let forms = [
            json!({ "tool_choice": "required" }),
            json!({ "tool_choice": { "type": "function", "function": { "name": "get_weather" } } }),
            json!({ "tool_choice": "required", "parallel_tool_calls": false }),
            json!({ "tool_choice": "required", "temperature": 0.7 }),
        ];
        let (mut good, mut last) = (0, String::new());
        for (at, form) in forms.iter().enumerate() {
            let count = (samples + forms.len() - 1 - at) / forms.len();
            let mut body = json!({
                "messages": [{ "role": "user", "content": "Weather?" }], "tools": tools, "temperature": 1.5, "seed": at,
                "max_tokens": 900, "reasoning_budget": 3, "n": count.max(1),
            });
            form.as_object().unwrap().iter().for_each(|(key, value)| body[key] = value.clone());
            let (status, answer) = server.post("/v1/chat/completions", body.to_string().as_bytes());
            if status != 200 {
                last = format!("{answer}");
                continue;
            }
            for choice in answer["choices"].as_array().unwrap() {
                match fault_of(&choice["message"], &choice["finish_reason"]) {
                    None => good += 1,
                    Some(fault) => last = fault,
                }
            }
        }
        eprintln!("{name}: {good} of {samples}");
        if !last.is_empty() {
            faults.push(format!("{name}: {last}"));
        }
    }
    assert!(faults.is_empty(), "{} of {}:\n{}", faults.len(), templates.len(), faults.join("\n"));
}
