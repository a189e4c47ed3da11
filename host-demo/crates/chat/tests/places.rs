//! Conversations with functions and calls, as public templates expect them. The cases are in `places.json`, with the
//! templates of Phi-4-mini and Functionary 2.2 and abridged templates of the other families. The expected prompts come
//! from transformers 5.24 with Jinja2, for conversations in the notation of the model's card.

use std::sync::Arc;

use arenite::Gguf;
use arenite_chat::dialect::{Part, Tools};
use arenite_chat::{Ending, Renderer, Style};
use arenite_request::Message;
use arenite_text as text;
use serde_json::{Value, json};

fn cases() -> Vec<Value> {
    serde_json::from_str(include_str!("places.json")).unwrap()
}

/// Calls `with` with the style of a template.
fn with_style<T>(template: &str, with: impl FnOnce(&Renderer, &Style) -> T) -> T {
    let gguf = Gguf::parse(include_bytes!("../../../models/stories.gguf")).unwrap();
    let mut index = Vec::new();
    let tokenizer = text::tokenizer(&gguf, &mut index).unwrap();
    let renderer = Renderer::new(&gguf, &tokenizer, "auto", Some(template.to_string())).unwrap();
    with(&renderer, &Style::of(&renderer, &tokenizer))
}

#[test]
fn functions_and_calls_stand_where_the_model_knows_them() {
    for case in cases() {
        let messages = case["messages"].as_array().unwrap().iter();
        let messages: Vec<Message> = messages.map(|message| Message::of(message).unwrap()).collect();
        let tools = case["tools"].as_array().unwrap();
        let variables = case["variables"].as_object().unwrap();
        let (prompt, warning) = with_style(case["template"].as_str().unwrap(), |renderer, style| {
            style.prompt(renderer, style.conversation(&messages, tools), variables, Ending::Answer).unwrap()
        });
        let wanted = (case["prompt"].as_str().unwrap(), case["warning"].as_str());
        assert_eq!((prompt.text.as_str(), warning), wanted, "{}", case["name"]);
    }
}

#[test]
fn calls_are_read_as_templates_write_them() {
    let answer = |name: &str| cases().into_iter().find(|case| case["name"] == name).unwrap();
    for (name, text, content) in [
        ("GLM-4-9B", "f\n{\"city\": \"Oslo\"}", ""),
        ("FireFunction 2", " functools[{\"name\": \"f\", \"arguments\": {\"city\": \"Oslo\"}}]", ""),
        ("FireFunction 1", "<functioncall>{\"name\": \"f\", \"arguments\": {\"city\": \"Oslo\"}}", ""),
        ("Functionary 2.2", "f\n<|content|>{\"city\": \"Oslo\"}", ""),
        (
            "Llama 4",
            "<|python_start|>Let me see.<|python_end|>{\"name\": \"f\", \"parameters\": {\"city\": \"Oslo\"}}",
            "Let me see.",
        ),
        ("Llama 4", "<|python_start|><|python_end|>{\"name\": \"f\", \"parameters\": {\"city\": \"Oslo\"}}", ""),
    ] {
        let case = answer(name);
        let tools = Arc::new(Tools::of(case["tools"].as_array().unwrap()));
        let mut parts = Vec::new();
        with_style(case["template"].as_str().unwrap(), |_, style| {
            let mut reader = style.reader(&tools, case["prompt"].as_str().unwrap());
            reader.push(text, &mut parts);
            reader.finish(&mut parts, false);
        });
        let mut said = String::new();
        let mut calls = Vec::new();
        for part in parts {
            match part {
                Part::Content(text) => said += &text,
                Part::Thought(text) => panic!("{name}: {text}"),
                Part::Call(call) => calls.push((call.name, serde_json::from_str::<Value>(&call.arguments).unwrap())),
            }
        }
        assert_eq!((said.as_str(), calls), (content, vec![("f".to_string(), json!({ "city": "Oslo" }))]), "{name}");
    }
}
