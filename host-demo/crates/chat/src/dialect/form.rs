//! Builds the grammar of an answer that must be a call, in the model's own form; also writes calls as text for prompts.

use std::collections::VecDeque;
use std::sync::Arc;

use serde_json::{Value, json};

use super::marks::pieces;
use super::tools::Tool;
use super::{CallForm, Dialect, Marks, Own, Syntax, Tag, unwrapped};
use arenite_grammar::Piece;

/// Builds the grammars of answers that must consist of calls or match a schema.
pub struct Constraint<'r> {
    pub dialect: &'r Dialect,
    pub marks: &'r Marks,
}

/// Maximum number of calls in an answer that must consist of calls.
const MOST_CALLS: u32 = 8;

impl Constraint<'_> {
    /// Returns the grammar of a text with delimiters. A delimiter that is a token is matched by its id, and the rest as
    /// text.
    fn mark(&self, pattern: &str) -> Piece {
        let piece = |(is_mark, text): (bool, &str)| match self.marks.id_of(text).filter(|_| is_mark) {
            Some(id) => Piece::Token(id),
            None => Piece::Text(unwrapped(text)),
        };
        Piece::Seq(pieces(pattern).into_iter().map(piece).collect())
    }

    /// Any text before the delimiter `pattern`, then the delimiter. The text has no control tokens, because a grammar
    /// matches control tokens only by id.
    fn up_to(&self, pattern: &str) -> Piece {
        Piece::Seq(vec![Piece::Without(unwrapped(pattern)), self.mark(pattern)])
    }

    /// Returns the grammar of an answer whose content is a value that matches `schema`.
    pub fn content(&self, schema: &Value) -> Piece {
        let value = Piece::Schema(schema.clone());
        match self.dialect.own {
            Own::Channels => Piece::Seq(vec![self.analysis(), self.message("final", ""), value]),
            Own::Form(_) if self.dialect.has_recipients => Piece::Seq(vec![self.thought(), self.to("user", value)]),
            Own::Form(_) => value,
        }
    }

    /// A message to a recipient.
    fn to(&self, name: &str, content: Piece) -> Piece {
        let header = Piece::Text(format!(" to={name}"));
        Piece::Seq(vec![header, self.mark(&self.dialect.channels.message), content])
    }

    /// An optional thought: a message of the model to itself.
    fn thought(&self) -> Piece {
        let content = Piece::Seq(vec![self.up_to(&self.dialect.channels.ends[3]), self.next_message()]);
        Piece::Repeat(Box::new(self.to("self", content)), 0, 1)
    }

    /// The start of a further message of the answer.
    fn next_message(&self) -> Piece {
        Piece::Seq(vec![self.mark(&self.dialect.channels.start), Piece::Text("assistant".into())])
    }

    /// One or more calls of these functions.
    pub fn calls(&self, tools: &[&Tool], is_parallel: bool) -> Piece {
        let form = match self.dialect.own {
            Own::Channels => {
                let call = |tool: &&Tool| {
                    let header = self.message(&format!("commentary to=functions.{} ", tool.name), "json");
                    Piece::Seq(vec![header, Piece::Schema(tool.parameters.clone())])
                };
                return Piece::Seq(vec![self.analysis(), Piece::Alt(tools.iter().map(call).collect())]);
            }
            Own::Form(own) => &self.dialect.calls[own],
        };
        if self.dialect.has_recipients {
            let message = |tool: &&Tool| self.to(&tool.name, self.calls_in(form, &[tool], false));
            let one = Piece::Rule(Arc::new(Piece::Alt(tools.iter().map(message).collect())));
            let end = self.mark(&self.dialect.channels.ends[3]);
            let more = Piece::Seq(vec![end, self.next_message(), one.clone()]);
            let most = if is_parallel { MOST_CALLS } else { 1 };
            return Piece::Seq(vec![self.thought(), one, Piece::Repeat(Box::new(more), 0, most - 1)]);
        }
        self.calls_in(form, tools, is_parallel)
    }

    /// One or more calls in a form.
    pub fn calls_in(&self, form: &CallForm<String>, tools: &[&Tool], is_parallel: bool) -> Piece {
        let most = if is_parallel { MOST_CALLS } else { 1 };
        // The text before the first call's name (`head`) is outside of the rule for a call. A grammar of calls without
        // this text therefore shares the rule.
        let calls = Piece::Alt(tools.iter().map(|tool| self.call(form, tool)).collect());
        let one = Piece::Seq(vec![self.head(form), Piece::Rule(Arc::new(calls))]);
        let several = |between: &str| {
            let more = Piece::Seq(vec![self.mark(between), one.clone()]);
            Piece::Seq(vec![one.clone(), Piece::Repeat(Box::new(more), 0, most - 1)])
        };
        let (open, close) = (self.mark(&form.open), self.mark(&form.close));
        match &form.syntax {
            Syntax::Json { is_list: true, .. } => {
                let (before, after) = fence(form);
                let list = [Piece::Text(format!("{before}[")), several(", "), Piece::Text(format!("]{after}"))];
                Piece::Seq([vec![open], list.into(), vec![close]].concat())
            }
            Syntax::Python => {
                let is_list = form.open != "<function_calls>" && !form.open.ends_with("```python");
                let list = match is_list {
                    true => vec![Piece::Text("[".into()), several(", "), Piece::Text("]".into())],
                    false => vec![Piece::Text("\n".into()), several("\n"), Piece::Text("\n".into())],
                };
                Piece::Seq([vec![open], list, vec![close]].concat())
            }
            // Each call has its own delimiters.
            Syntax::Keyed { call, .. } if !call[0].is_empty() => {
                let line = || Piece::Text("\n".into());
                Piece::Seq(vec![open, line(), several("\n"), line(), close])
            }
            Syntax::Json { .. } | Syntax::Keyed { .. } | Syntax::Braces { .. } => {
                let is_line = matches!(form.syntax, Syntax::Json { .. }) && !form.close.is_empty();
                let line = || Piece::Text(if is_line { "\n" } else { "" }.into());
                let one = Piece::Seq(vec![open, line(), one, line(), close]);
                // Only one call is allowed if the opening or the closing delimiter is empty, because nothing would
                // separate two calls.
                let most = if form.trigger().is_empty() || form.close.is_empty() { 1 } else { most };
                let more = Piece::Seq(vec![line(), one.clone()]);
                Piece::Seq(vec![one, Piece::Repeat(Box::new(more), 0, most - 1)])
            }
            Syntax::Tagged { .. } => {
                let is_each = unwrapped(&form.open) == "<tool_call>";
                let line = || Piece::Text(if form.open.is_empty() { "" } else { "\n" }.into());
                match is_each {
                    true => {
                        let one = Piece::Seq(vec![open, line(), one, line(), close]);
                        let more = Piece::Seq(vec![line(), one.clone()]);
                        Piece::Seq(vec![one, Piece::Repeat(Box::new(more), 0, most - 1)])
                    }
                    false => Piece::Seq(vec![
                        open,
                        line(),
                        several(if form.open.is_empty() { "" } else { "\n" }),
                        line(),
                        close,
                    ]),
                }
            }
            Syntax::Named { .. } => Piece::Seq(vec![open, several(""), close]),
            Syntax::Nested { .. } => {
                let line = || Piece::Text("\n".into());
                Piece::Seq(vec![open, line(), several("\n"), line(), close])
            }
        }
    }

    /// Returns the delimiter at the start of calls, and the grammar of the text after the delimiter. `None` if the
    /// calls of the dialect have no delimiter.
    pub fn after_mark(&self, tools: &[&Tool], is_parallel: bool) -> Option<(String, Piece)> {
        match self.dialect.own {
            Own::Form(own) => {
                let form = &self.dialect.calls[own];
                let is_parallel = is_parallel && !self.dialect.has_recipients;
                let mark = form.trigger();
                (!mark.is_empty()).then(|| (mark.into(), after(self.calls_in(form, tools, is_parallel), mark)))
            }
            Own::Channels => {
                let channels = &self.dialect.channels;
                let constrain = self.mark(&self.marks.resolve("<|constrain|>"));
                let text = |text: &str| Piece::Text(text.into());
                let kinds = Piece::Alt(vec![
                    Piece::Seq(vec![text(" "), constrain.clone(), text("json")]),
                    Piece::Seq(vec![constrain, text("json")]),
                    text(" json"),
                    text(""),
                ]);
                let call = |tool: &&Tool| {
                    let schema = Piece::Schema(tool.parameters.clone());
                    Piece::Seq(vec![text(&tool.name), kinds.clone(), self.mark(&channels.message), schema])
                };
                let mark = format!("{}commentary to=functions.", channels.channel);
                Some((mark, Piece::Alt(tools.iter().map(call).collect())))
            }
        }
    }

    /// An optional thought in its own channel.
    fn analysis(&self) -> Piece {
        let channels = &self.dialect.channels;
        let thought = vec![self.message("analysis", ""), self.up_to(&channels.ends[0]), self.next_message()];
        Piece::Repeat(Box::new(Piece::Seq(thought)), 0, 1)
    }

    /// The header of a message.
    fn message(&self, header: &str, kind: &str) -> Piece {
        let channels = &self.dialect.channels;
        let mut all = vec![self.mark(&channels.channel), Piece::Text(header.into())];
        if !kind.is_empty() {
            all.extend([self.mark(&self.marks.resolve("<|constrain|>")), Piece::Text(kind.into())]);
        }
        all.push(self.mark(&channels.message));
        Piece::Seq(all)
    }

    /// The delimiters before the name of a function.
    fn head(&self, form: &CallForm<String>) -> Piece {
        match &form.syntax {
            Syntax::Named { lead, before, .. } => {
                let lead = if lead.is_empty() { Piece::Text(String::new()) } else { self.identifier(lead) };
                Piece::Seq(vec![lead, self.mark(before)])
            }
            Syntax::Tagged { call, .. } => self.mark(&call.open),
            _ => Piece::Text(String::new()),
        }
    }

    /// Returns the grammar of a single call. It does not include the delimiters around the list of calls, nor the
    /// delimiter before the function's name.
    fn call(&self, form: &CallForm<String>, tool: &Tool) -> Piece {
        let text = |text: String| Piece::Text(text);
        let schema = || Piece::Schema(tool.parameters.clone());
        match &form.syntax {
            Syntax::Json { name: "", .. } => {
                Piece::Seq(vec![text(format!("{{{}: ", json!(tool.name))), schema(), text("}".into())])
            }
            Syntax::Json { name, arguments, .. } => {
                let before = format!("{{\"{name}\": {}, \"{arguments}\": ", json!(tool.name));
                Piece::Seq(vec![text(before), schema(), text("}".into())])
            }
            Syntax::Named { between, after, .. } => {
                Piece::Seq(vec![text(self.named(between, &tool.name)), self.mark(between), schema(), self.mark(after)])
            }
            Syntax::Tagged { call, parameter, pad } => self.tagged(tool, call, parameter, pad),
            Syntax::Keyed { call: [open, separator, end], key, value } => {
                let pair = |name: &str| {
                    let head = [
                        self.mark(&key.0),
                        text(name.into()),
                        self.mark(&key.1),
                        text("\n".into()),
                        self.mark(&value.0),
                    ];
                    Piece::Seq([head.into(), vec![self.bare(tool, name, &value.1), text("\n".into())]].concat())
                };
                let head = [self.mark(open), text(tool.name.clone()), self.mark(separator), text("\n".into())];
                Piece::Seq([head.into(), vec![members(tool, &pair), self.mark(end)]].concat())
            }
            Syntax::Python => {
                let pair = |name: &str| Piece::Seq(vec![text(format!("{name}=")), value_of(tool, name)]);
                let members = Piece::Members(pairs(tool, &pair), Box::new(text(", ".into())));
                Piece::Seq(vec![text(format!("{}(", tool.name)), members, text(")".into())])
            }
            Syntax::Braces { quote } => {
                let pair = |name: &str| {
                    let value = match tool.is_text(name) {
                        true => Piece::Seq(vec![self.mark(quote), self.texts(tool, name, quote)]),
                        false => value_of(tool, name),
                    };
                    Piece::Seq(vec![text(format!("{name}:")), value])
                };
                let members = Piece::Members(pairs(tool, &pair), Box::new(text(",".into())));
                Piece::Seq(vec![text(format!("call:{}{{", tool.name)), members, text("}".into())])
            }
            Syntax::Nested { lead, call } => {
                let pair = |name: &str| {
                    let value = self.bare(tool, name, &format!("{lead}</{name}>"));
                    Piece::Seq(vec![self.mark(lead), text(format!("<{name}>")), value])
                };
                let head = [self.mark(lead), self.mark(&call.open), text(tool.name.clone()), self.mark(&call.head)];
                let end = [members(tool, &pair), self.mark(lead), self.mark(&call.close)];
                Piece::Seq([&head[..], &end[..]].concat())
            }
        }
    }

    /// Returns the name of a function as the model writes it in this form. Kimi K2 writes a prefix before it and the
    /// number of the call after it.
    fn named(&self, between: &str, name: &str) -> String {
        match unwrapped(between).as_str() {
            "<|tool_call_argument_begin|>" => format!("functions.{name}:0"),
            _ => name.into(),
        }
    }

    /// A delimiter followed by an identifier. MiroThinker writes an element with the name of a server instead of both.
    fn identifier(&self, mark: &str) -> Piece {
        if mark == "<server_name>" {
            return Piece::Text("\n<server_name>tools</server_name>\n".into());
        }
        Piece::Seq(vec![self.mark(mark), Piece::Text("0".into())])
    }

    fn tagged(&self, tool: &Tool, call: &Tag<String>, parameter: &Tag<String>, pad: &str) -> Piece {
        let text = |text: &str| Piece::Text(text.into());
        // In most forms, each element is on a line of its own. A value is on its own line only if `pad` is a line
        // break.
        let opening = unwrapped(&call.open);
        let is_tight = ["<function name", "<|open|>"].iter().any(|start| opening.starts_with(start));
        let line = if is_tight || opening.contains("steptml") { "" } else { "\n" };
        let pair = |name: &str| {
            // Some forms write the type of the value as an attribute.
            let is_text = tool.is_text(name);
            let head = match (
                unwrapped(&parameter.open).contains("ML\u{ff5c}"),
                unwrapped(&parameter.open).contains("<|open|>"),
            ) {
                (true, _) => Piece::Text(format!("\" string=\"{is_text}\">")),
                (_, true) => {
                    let kind = if is_text { "string" } else { "object" };
                    Piece::Seq(vec![
                        Piece::Text(format!("\" type=\"{kind}\"")),
                        self.mark(parameter.head.trim_start_matches('"')),
                    ])
                }
                _ => self.mark(&parameter.head),
            };
            let value = match (is_text, pad) {
                (true, _) => Piece::Seq(vec![text(pad), self.bare(tool, name, &format!("{pad}{}", parameter.close))]),
                (false, pad) => {
                    Piece::Seq(vec![text(pad), value_of(tool, name), text(pad), self.mark(&parameter.close)])
                }
            };
            Piece::Seq(vec![self.mark(&parameter.open), text(name), head, value, text(line)])
        };
        let head = vec![text(&tool.name), self.mark(&call.head), text(line)];
        Piece::Seq([head, vec![members(tool, &pair), self.mark(&call.close)]].concat())
    }

    /// An unquoted value, then the closing delimiter.
    fn bare(&self, tool: &Tool, name: &str, close: &str) -> Piece {
        if tool.is_text(name) {
            return self.texts(tool, name, close);
        }
        Piece::Seq(vec![value_of(tool, name), self.mark(close)])
    }

    /// Matches an argument without quotes: a text that the parameter's schema allows, then the closing delimiter.
    fn texts(&self, tool: &Tool, name: &str, close: &str) -> Piece {
        let schema = tool.schema(name).unwrap_or(&Value::Null);
        let values = schema.get("enum").and_then(Value::as_array).map(Vec::as_slice);
        let values = values.or_else(|| schema.get("const").map(std::slice::from_ref));
        if let Some(values) = values {
            let each = values.iter().filter_map(Value::as_str).map(|value| Piece::Text(value.into()));
            return Piece::Seq(vec![Piece::Alt(each.collect()), self.mark(close)]);
        }
        let (_, last) = pieces(close).pop().unwrap_or((false, close));
        let count = |key: &str| schema.get(key).and_then(Value::as_u64).map(|count| count.min(4096) as u32);
        let text = match (count("minLength"), count("maxLength")) {
            (None, None) => Piece::Without(unwrapped(last)),
            (least, most) => Piece::Between(unwrapped(last), least.unwrap_or(0), most),
        };
        Piece::Seq(vec![text, self.mark(close)])
    }
}

/// Returns the code fence around a JSON list.
fn fence(form: &CallForm<String>) -> (&'static str, &'static str) {
    if form.open == "Action:" { (" ```json\n", "\n```") } else { ("", "") }
}

/// The value of an argument, in JSON.
fn value_of(tool: &Tool, name: &str) -> Piece {
    let mut schema = tool.schema(name).cloned().unwrap_or(Value::Bool(true));
    // Adds the definitions of the whole schema, because references in the parameter's schema point to them.
    for key in ["$defs", "definitions"] {
        if let (Some(defs), Some(schema)) = (tool.parameters.get(key), schema.as_object_mut()) {
            schema.entry(key).or_insert_with(|| defs.clone());
        }
    }
    Piece::Schema(schema)
}

/// Returns the grammars of a function's arguments. The flag of each is true if the argument is required.
fn pairs(tool: &Tool, pair: &dyn Fn(&str) -> Piece) -> Vec<(Piece, bool)> {
    let required = tool.parameters.get("required").and_then(Value::as_array);
    let is_required = |name: &str| required.is_some_and(|list| list.iter().any(|other| other == name));
    let properties = tool.parameters.get("properties").and_then(Value::as_object);
    properties.into_iter().flatten().map(|(name, _)| (pair(name), is_required(name))).collect()
}

/// The grammars of all parameters in order; parameters that are not required may be left out.
fn members(tool: &Tool, pair: &dyn Fn(&str) -> Piece) -> Piece {
    let each = pairs(tool, pair).into_iter().map(|(piece, is_required)| match is_required {
        true => piece,
        false => Piece::Repeat(Box::new(piece), 0, 1),
    });
    Piece::Seq(each.collect())
}

/// Removes the delimiter `mark` from the beginning of a grammar. The result is the grammar of the text after the
/// delimiter.
fn after(piece: Piece, mark: &str) -> Piece {
    strip(piece, &mut pieces(mark).into_iter().collect())
}

/// Removes `marks` from the beginning of a grammar.
fn strip(piece: Piece, marks: &mut VecDeque<(bool, &str)>) -> Piece {
    match piece {
        piece if marks.is_empty() => piece,
        Piece::Rule(piece) => strip((*piece).clone(), marks),
        Piece::Seq(list) => Piece::Seq(list.into_iter().map(|piece| strip(piece, marks)).collect()),
        Piece::Alt(list) => {
            let mut left = marks.clone();
            let list = list.into_iter().map(|piece| {
                left.clone_from(marks);
                strip(piece, &mut left)
            });
            let list = list.collect();
            *marks = left;
            Piece::Alt(list)
        }
        Piece::Token(id) => match marks.front() {
            Some((true, _)) => {
                marks.pop_front();
                Piece::Text(String::new())
            }
            _ => Piece::Token(id),
        },
        Piece::Text(text) => match marks.front() {
            Some((_, mark)) if text == unwrapped(mark) => {
                marks.pop_front();
                Piece::Text(String::new())
            }
            _ => Piece::Text(text),
        },
        piece => piece,
    }
}
