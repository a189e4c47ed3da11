//! Any answer of a model is read without a fault, and the same way however it is divided into pieces. Calls name a
//! declared function.
#![no_main]

use std::sync::{Arc, LazyLock};

use arbitrary::Arbitrary;
use arenite_chat::dialect::{Dialect, Marks, Part, Reader, Tools};
use fuzz::list::List;
use fuzz_host::Words;
use libfuzzer_sys::fuzz_target;
use serde_json::json;

#[derive(Arbitrary, Debug)]
struct Case {
    prompt: u8,
    answer: Words<40>,
    /// Lengths of pieces in characters.
    pieces: List<u8, 12>,
    is_cut: bool,
    is_marked: bool,
    only_one: bool,
}

const PROMPTS: [&str; 6] = ["", "<think>\n", "[THINK]", ">>>", "<|start|>assistant", "<|channel|>analysis<|message|>"];

#[rustfmt::skip]
const WORDS: &[&str] = &[
    "<tool_call>", "</tool_call>", "<tool_calls>", "</tool_calls>", "<function=", "</function>", "<parameter=", "</parameter>",
    "get_weather", "get_time", "city", "days", "Oslo", "2", ">", "\n", " ", "{\"name\": \"get_weather\", \"arguments\": ",
    "{\"city\": \"Oslo\", \"days\": 2}", "{\"city\": \"", "\"", "}", "}}", "{", "[", "]", ",", ":", "\\", "\\u00", "(", ")", "=", "'",
    "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "<|tool_call|>", "<|/tool_call|>",
    "functools", "<|python_tag|>", ".call", "<|tool_call_start|>", "<|tool_call_end|>", "<think>", "</think>", "```json\n", "```",
    "<|channel|>", "<|message|>", "<|end|>", "<|call|>", "commentary to=functions.get_weather", "final", "analysis", "<|constrain|>",
    "<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "function<｜tool▁sep｜>", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>",
    "<invoke name=\"get_weather\">", "</invoke>", "<parameter name=\"city\">", "<minimax:tool_call>", "</minimax:tool_call>",
    "<|open|>", "<|sep|>", "<|close|>", "call tool=\"get_weather\"", "argument key=\"city\"", "<start_function_call>", "call:get_weather",
    "<escape>", "<end_function_call>", "Action: ", "<|START_ACTION|>", "<|END_ACTION|>", "functions.get_weather:0", ">>>", "all\n",
    "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<![CDATA[", "]]>", "é", "\u{fdd0}", "\u{fdd1}", "null", "true", "1e999", "-",
];

static DIALECT: LazyLock<Arc<Dialect>> = LazyLock::new(|| Arc::new(Dialect::all(&Marks::default())));
static TOOLS: LazyLock<Arc<Tools>> = LazyLock::new(|| {
    let weather = json!({ "type": "object", "properties": {
        "city": { "type": "string" }, "days": { "type": "integer" }, "at": { "type": "object" },
        "tags": { "type": "array", "items": { "type": "string" } }, "unit": { "anyOf": [{ "type": "string" }, { "type": "null" }] } } });
    let none = json!({ "type": "object", "properties": {} });
    let tool =
        |name: &str, parameters| json!({ "type": "function", "function": { "name": name, "parameters": parameters } });
    Arc::new(Tools::of(&[tool("get_weather", weather), tool("get_time", none)]))
});

/// The parts of an answer. Parts of one kind that follow each other are one part.
fn read(case: &Case, text: &str, lengths: &[u8]) -> Vec<Part> {
    let mut reader = Reader::new(DIALECT.clone(), TOOLS.clone(), PROMPTS[usize::from(case.prompt) % PROMPTS.len()]);
    if case.is_marked {
        reader = reader.only_marked();
    }
    if case.only_one {
        reader = reader.only_one_call();
    }
    let (mut parts, mut rest, mut lengths) = (Vec::new(), text, lengths.iter().cycle());
    while !rest.is_empty() {
        let len = lengths.next().map_or(usize::MAX, |len| usize::from(len % 16) + 1);
        let end = rest.char_indices().nth(len).map_or(rest.len(), |(at, _)| at);
        reader.push(&rest[..end], &mut parts);
        rest = &rest[end..];
    }
    reader.finish(&mut parts, case.is_cut);
    let mut joined: Vec<Part> = Vec::new();
    for part in parts {
        match (joined.last_mut(), part) {
            (Some(Part::Content(text)), Part::Content(more)) | (Some(Part::Thought(text)), Part::Thought(more)) => {
                *text += &more;
            }
            (_, part) => joined.push(part),
        }
    }
    joined.retain(|part| !matches!(part, Part::Content(text) | Part::Thought(text) if text.is_empty()));
    joined
}

fuzz_target!(|case: Case| {
    let text = case.answer.text(WORDS);
    let whole = read(&case, &text, &[]);
    for part in &whole {
        if let Part::Call(call) = part {
            assert!(TOOLS.find(&call.name).is_some_and(|tool| tool.name == call.name), "a call of {:?}", call.name);
        }
    }
    assert_eq!(whole, read(&case, &text, &case.pieces), "{text:?} is read another way in pieces");
});
