//! Answers as public templates write them. Each template renders a conversation; the text after the prompt is then read
//! as an answer. The templates come from `ARENITE_FIXTURES`, and from the directory `ARENITE_TEMPLATES` if this
//! variable is set.

use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::jinja::{Compiled, Inputs};

/// A template, rendered with `<s>` as BOS and `</s>` as EOS.
struct Source(Compiled);

impl Template for Source {
    fn render_with(&self, messages: &Value, tools: &Value, asks: bool, variables: &Value) -> Option<String> {
        let value = |value: &Value| serde_json::from_value::<minijinja::Value>(value.clone()).ok();
        let (messages, tools, kwargs) = (value(messages)?, value(tools)?, value(variables)?);
        let (bos, eos) = ("<s>".to_string(), "</s>".to_string());
        self.0.render(Inputs { messages, tools, bos, eos, kwargs, asks, is_probe: true }).ok()
    }

    fn source(&self) -> &str {
        self.0.source()
    }
}

const QUESTION: &str = "What is the weather?";
/// Delimiters that end an answer.
const ENDS: &[&str] = &[
    "</s>",
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<|eot|>",
    "<|eom|>",
    "<|call|>",
    "<|calls|>",
    "<|return|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<end_of_turn>",
    "<turn|>",
    "<|tool_response>",
    "<|END_OF_TURN_TOKEN|>",
    "<\u{ff5c}end\u{2581}of\u{2581}sentence\u{ff5c}>",
    "<\u{ff5c}hy_eos:opensource\u{ff5c}>",
    "<end_of_sentence>",
    "<|end_of_msg|>",
    "[|endofturn|]",
    "<|end_of_turn|>",
    "<|EOT|>",
    "<|stop|>",
    "[e~[",
    "<seed:eos>",
    "<SPECIAL_12>",
    "<|message_sep|>",
    "<|role_end|>",
    "<|assistant_end|>",
    "<sep>",
    "</assistant>",
    "<|eos|>",
    "<|close|>message<|sep|>",
];

type Calls = Vec<(String, Value)>;

/// Content, thought and calls of an answer.
#[derive(Clone, Debug, Default, PartialEq)]
struct Answer {
    content: String,
    thought: String,
    calls: Calls,
}

fn functions() -> Value {
    let text = json!({ "type": "string", "description": "A text" });
    let weather = json!({ "type": "object", "required": ["city"], "properties": {
        "city": text, "days": { "type": "integer", "description": "A number" },
        "exact": { "type": "boolean", "description": "A switch" },
        "at": { "type": "object", "description": "An object", "properties": { "a": { "type": "array", "items": { "type": "integer" } } } },
        "tags": { "type": "array", "description": "A list", "items": { "type": "string" } } } });
    let time = json!({ "type": "object", "properties": {} });
    let function = |name: &str, parameters: Value| json!({ "type": "function", "function": { "name": name, "description": "A function", "parameters": parameters } });
    json!([function("get_weather", weather), function("get_time", time)])
}

fn answers() -> [(&'static str, Answer); 8] {
    let weather = |arguments: Value| ("get_weather".to_string(), arguments);
    let oslo = || weather(json!({ "city": "Oslo" }));
    let time = || ("get_time".to_string(), json!({}));
    let answer =
        |content: &str, thought: &str, calls: Calls| Answer { content: content.into(), thought: thought.into(), calls };
    let nested = json!({ "city": "Öl \"og\" {brød}\n2 <b>", "days": -3, "exact": true, "at": { "a": [1, 2] }, "tags": ["x, y", "नमस्ते"] });
    [
        ("call", answer("", "", vec![weather(json!({ "city": "Oslo", "days": 2 }))])),
        ("calls", answer("", "", vec![oslo(), time()])),
        ("text and call", answer("Let me see.", "", vec![oslo()])),
        ("nested arguments", answer("", "", vec![weather(nested)])),
        ("no arguments", answer("", "", vec![time()])),
        ("thought", answer("Hello there.", "Hm, well.", vec![])),
        ("thought and call", answer("", "Hm, well.", vec![oslo()])),
        ("text", answer("Hello there.", "", vec![])),
    ]
}

impl Answer {
    /// Returns the message for a template.
    fn message(&self, as_text: bool, blank: Option<&str>) -> Value {
        let content = if self.content.is_empty() { json!(blank) } else { json!(self.content) };
        let mut message = json!({ "role": "assistant", "content": content });
        if !self.thought.is_empty() {
            for key in ["reasoning_content", "reasoning", "thinking"] {
                message[key] = json!(self.thought);
            }
        }
        let call = |(at, (name, arguments)): (usize, &(String, Value))| {
            let arguments = if as_text { json!(arguments.to_string()) } else { arguments.clone() };
            json!({ "id": format!("abcd{at:05}"), "type": "function", "function": { "name": name, "arguments": arguments } })
        };
        if !self.calls.is_empty() {
            message["tool_calls"] = self.calls.iter().enumerate().map(call).collect();
        }
        message
    }

    /// Renders the answer in `self` with a template. Returns the prompt before the answer and the text of the answer.
    /// `None` if the template cannot show the answer.
    fn written(&self, template: &Source, dialect: &Dialect, probe: &Probe) -> Option<(String, String)> {
        let (tools, question) = (functions(), json!({ "role": "user", "content": QUESTION }));
        let alone = json!([question]);
        let prompt = template.render(&alone, &tools, true)?;
        let before = template.render(&alone, &tools, false)?;
        [(probe.wants_text, probe.blank), (probe.wants_text, Some("")), (true, None), (false, Some(""))]
            .into_iter()
            .find_map(|(as_text, blank)| {
                let whole = template.render(&json!([question, self.message(as_text, blank)]), &tools, false)?;
                let start = whole_marks(&whole, common(&before, &whole));
                let text = match whole.strip_prefix(&prompt) {
                    Some(text) => text.to_string(),
                    None => {
                        let (asked, rest) = (prompt.get(start..)?, &whole[start..]);
                        rest[whole_marks(rest, common(asked, rest))..].to_string()
                    }
                };
                let form = dialect.opened_by(prompt.trim_end());
                let text = match form.map(|form| unwrapped(&form.close)) {
                    Some(close) if !text.contains(&close) => format!("\n{close}\n\n{}", text.trim_start()),
                    _ => text,
                };
                let words = [&self.content, &self.thought].into_iter().chain(self.calls.iter().map(|(name, _)| name));
                let found: Vec<usize> = words
                    .filter(|word| !word.is_empty())
                    .map(|word| text.rfind(word.as_str()))
                    .collect::<Option<_>>()?;
                let (first, last) = (*found.iter().min()?, *found.iter().max()?);
                // The first delimiter after the last word ends the answer.
                let end_after = |at: usize| ENDS.iter().filter_map(|end| Some(at + text[at..].find(end)?)).min();
                let nulls = text.contains("None") || text.contains("null");
                let text = text[..end_after(last).unwrap_or(text.len())].to_string();
                // A rendering is not used if it has content after a call, if it consists of two messages, or if it
                // lacks the start of a thought although the prompt has already closed a thought.
                let closes = dialect.thoughts.iter().find(|form| prompt.trim_end().ends_with(&*unwrapped(&form.close)));
                let is_open = closes.is_none_or(|form| text.contains(&*unwrapped(&form.open)));
                let is_good = match self.thought.is_empty() {
                    true => {
                        (self.content.is_empty() || found[0] == first) && end_after(first).is_none_or(|end| end > last)
                    }
                    false => is_open,
                } && !nulls
                    && before.contains(QUESTION)
                    && !text.contains(QUESTION);
                is_good.then_some((prompt.clone(), text))
            })
    }
}

/// If a position is inside a delimiter such as `<|end|>`, moves it back to the delimiter's start.
fn whole_marks(text: &str, at: usize) -> usize {
    match (text[..at].rfind('<'), text[..at].rfind('>')) {
        (Some(open), close) if close.is_none_or(|close| close < open) => open,
        _ => at,
    }
}

/// Length of the common prefix.
fn common(a: &str, b: &str) -> usize {
    a.char_indices().zip(b.chars()).find(|((_, a), b)| a != b).map_or(a.len().min(b.len()), |((at, _), _)| at)
}

fn read(dialect: &Arc<Dialect>, tools: &Arc<Tools>, prompt: &str, text: &str, size: usize) -> Answer {
    let mut reader = Reader::new(dialect.clone(), tools.clone(), prompt);
    let (mut parts, mut answer) = (Vec::new(), Answer::default());
    let chars: Vec<char> = text.chars().collect();
    for piece in chars.chunks(size) {
        reader.push(&piece.iter().collect::<String>(), &mut parts);
    }
    reader.finish(&mut parts, false);
    for part in parts {
        match part {
            Part::Content(text) => answer.content += &text,
            Part::Thought(text) => answer.thought += &text,
            Part::Call(call) => {
                answer.calls.push((call.name, serde_json::from_str(&call.arguments).unwrap_or_default()));
            }
        }
    }
    answer.content = answer.content.trim().into();
    answer.thought = answer.thought.trim().into();
    answer
}

/// Returns the bracketed delimiters of the table that occur in a text, longest first.
fn tokens_in(text: &str) -> Vec<&'static str> {
    let patterns = super::marks::patterns();
    let marks = patterns.iter().flat_map(|pattern| pattern.split_inclusive(['>', ']']));
    let marks = marks.filter_map(|mark| Some(&mark[mark.rfind(['<', '['])?..]));
    let is_token = |mark: &&str| mark.len() > 3 && !mark.contains(['=', '"', ' ']) && mark.ends_with(['>', ']']);
    let mut tokens: Vec<_> = marks.filter(is_token).filter(|mark| text.contains(mark)).collect();
    tokens.sort_unstable_by_key(|mark| (usize::MAX - mark.len(), *mark));
    tokens.dedup();
    tokens
}

/// Returns the public templates by name.
fn templates() -> Vec<(String, Source)> {
    let mut all = Vec::new();
    if let Some(root) = std::env::var_os("ARENITE_FIXTURES") {
        let packed = std::fs::read(PathBuf::from(root).join("templates/cases.json.gz")).expect("the cases");
        let mut json = String::new();
        flate2::read::GzDecoder::new(&packed[..]).read_to_string(&mut json).expect("gzip");
        for case in serde_json::from_str::<Vec<Value>>(&json).expect("JSON") {
            let text = |key: &str| case[key].as_str().unwrap_or_default().to_string();
            let name = text("name").split('/').next().unwrap_or_default().to_string();
            if all.last().is_none_or(|(last, _)| *last != name) {
                all.push((name, Source(Compiled::new(text("template")))));
            }
        }
    }
    if let Some(directory) = std::env::var_os("ARENITE_TEMPLATES") {
        for entry in std::fs::read_dir(directory).expect("a directory").flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            all.push((name, Source(Compiled::new(std::fs::read_to_string(entry.path()).expect("a template")))));
        }
        all.sort_by(|a, b| a.0.cmp(&b.0));
    }
    all
}

#[test]
fn answers_of_public_templates_are_read_back() {
    let templates = templates();
    if templates.is_empty() {
        return;
    }
    let tools = Arc::new(Tools::of(functions().as_array().unwrap()));
    let (mut count, mut faults) = (0, Vec::new());
    for (name, template) in &templates {
        let mut plain = Dialect::all(&Marks::default());
        let probe = look(template, &mut plain);
        for (kind, wanted) in answers() {
            let Some((prompt, text)) = wanted.written(template, &plain, &probe) else { continue };
            let marks = Marks::from_spellings(&tokens_in(&format!("{prompt}{text}")));
            let mut dialect = Dialect::all(&marks);
            look(template, &mut dialect);
            for (dialect, text) in [(plain.clone(), text.clone()), (dialect, marks.resolve(&text))] {
                let dialect = Arc::new(dialect);
                count += 1;
                for size in [usize::MAX, 1, 5] {
                    let got = read(&dialect, &tools, &prompt, &text, size);
                    if got != wanted {
                        faults.push(format!(
                            "{name}, {kind}: {text:?} after {:?} became {got:?}",
                            prompt.lines().next_back()
                        ));
                        break;
                    }
                }
            }
        }
    }
    assert!(faults.is_empty(), "{} of {count}:\n{}", faults.len(), faults.join("\n"));
    assert!(count >= 80, "{count}");
}
