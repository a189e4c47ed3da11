//! Calls in every dialect: every text that the grammar of a dialect allows is parsed as calls of the declared
//! functions.

use std::sync::Arc;

use arenite::grammar::Grammar;
use serde_json::{Value, json};

use arenite_grammar::{Budget, from_pieces};

#[path = "../../grammar/src/tests/texts.rs"]
mod texts;

use arenite_chat::dialect::{Call, Constraint, Dialect, Marks, Own, Part, Reader, Tools};
use texts::{Random, accepts, random_text};

fn tools() -> Tools {
    let weather = json!({ "type": "object", "additionalProperties": false, "required": ["city", "days"], "properties": {
        "city": { "type": "string", "maxLength": 4 },
        "days": { "type": "integer", "minimum": -9, "maximum": 9 },
        "unit": { "type": "string", "enum": ["c", "Fahrenheit"] },
        "exact": { "type": "boolean" },
        "tags": { "type": "array", "maxItems": 2, "items": { "enum": ["a", "b"] } },
    } });
    let function = |name: &str, parameters: Value| json!({ "function": { "name": name, "parameters": parameters } });
    Tools::of(&[function("get_weather", weather), function("get_time", json!({ "type": "object", "properties": {} }))])
}

/// Returns the calls of an answer, and true if the answer also has content.
fn read(dialect: &Arc<Dialect>, tools: &Arc<Tools>, prompt: &str, text: &str) -> (Vec<(String, Value)>, bool) {
    let mut reader = Reader::new(dialect.clone(), tools.clone(), prompt);
    let mut parts = Vec::new();
    reader.push(text, &mut parts);
    reader.finish(&mut parts, false);
    let has_more = parts.iter().any(|part| matches!(part, Part::Content(_)));
    let call = |part| match part {
        Part::Call(call) => Some((call.name, serde_json::from_str(&call.arguments).unwrap())),
        _ => None,
    };
    (parts.into_iter().filter_map(call).collect(), has_more)
}

fn check(family: &str, text: &str, calls: &[(String, Value)]) {
    for (name, arguments) in calls {
        let of = |key: &str| &arguments[key];
        let good = match name.as_str() {
            "get_time" => *arguments == json!({}),
            _ => {
                of("city").as_str().is_some_and(|city| city.chars().count() <= 4)
                    && of("days").as_i64().is_some_and(|days| (-9..=9).contains(&days))
                    && [&Value::Null, &json!("c"), &json!("Fahrenheit")].contains(&of("unit"))
                    && (of("exact").is_null() || of("exact").is_boolean())
                    && (of("tags").is_null() || of("tags").is_array())
            }
        };
        assert!(good, "{family}: {text:?} became {arguments}");
    }
}

#[test]
fn every_dialect_reads_its_own_grammar() {
    let marks = Marks::default();
    let tools = Arc::new(tools());
    let all: Vec<_> = tools.0.iter().collect();
    let count = Dialect::all(&marks).calls.len();
    let muse = Dialect::all(&marks).calls.iter().position(|form| form.family == "Muse Glimmer").unwrap();
    let forms = (0..count).map(Own::Form).chain([Own::Channels]).map(|own| (own, false));
    for (own, has_recipients) in forms.chain([(Own::Form(muse), true)]) {
        let mut dialect = Dialect::all(&marks);
        (dialect.own, dialect.has_recipients) = (own, has_recipients);
        let in_messages = has_recipients || own == Own::Channels;
        dialect.has_channels |= in_messages;
        let dialect = Arc::new(dialect);
        let family = match own {
            Own::Form(at) => dialect.calls[at].family,
            Own::Channels => "gpt-oss",
        };
        let constraint = Constraint { dialect: &dialect, marks: &marks };
        let table = from_pieces(&constraint.calls(&all, true), &Budget::of_command()).unwrap();
        let grammar = Grammar::new(&table).unwrap();
        // The grammar after the mark, for strict functions.
        let rest = constraint.after_mark(&all, true);
        let rest = rest.map(|(mark, rest)| (mark, from_pieces(&rest, &Budget::of_command()).unwrap()));
        let mut random = Random(7);
        for _ in 0..6 {
            let Some(text) = random_text(&grammar, &mut random) else { continue };
            let prompt = if in_messages { "<|start|>assistant" } else { "" };
            let (calls, has_more) = read(&dialect, &tools, prompt, &text);
            assert!(!calls.is_empty() && !has_more, "{family}: {text:?}");
            check(family, &text, &calls);
            if let Some((mark, rest)) = &rest {
                // In a dialect with recipients, `rest` describes a single call, but `text` may contain further
                // messages.
                let (_, after) = text.split_once(mark.as_str()).unwrap();
                assert!(has_recipients || accepts(rest, after), "{family}: {text:?}");
            }
        }
    }
}

#[test]
fn one_call_where_only_one_may_be() {
    let marks = Marks::default();
    let tools = Arc::new(tools());
    let dialect = Arc::new(Dialect::all(&marks));
    let table = from_pieces(
        &Constraint { dialect: &dialect, marks: &marks }.calls(&[&tools.0[1]], false),
        &Budget::of_command(),
    )
    .unwrap();
    let call = "<tool_call>\n{\"name\": \"get_time\", \"arguments\": {}}\n</tool_call>";
    texts::check("a call", &table, &[call], &["", &format!("{call}\n{call}"), "hello", "{}"]);
}

/// Calls of four ordinary functions compile within the budget of a request.
#[test]
fn ordinary_functions_fit_in_a_request() {
    let marks = Marks::default();
    let text = |most: u32| json!({ "type": "string", "maxLength": most });
    let function = |name: &str, properties: Value| json!({ "function": { "name": name, "parameters": { "type": "object", "properties": properties, "additionalProperties": false } } });
    let numbers = json!({ "type": "array", "items": { "type": "number" }, "minItems": 1, "maxItems": 4 });
    let tools = Tools::of(&[
        function("get_weather", json!({ "city": text(20), "unit": { "enum": ["celsius", "fahrenheit"] } })),
        function("add", json!({ "numbers": numbers })),
        function("send_mail", json!({ "to": text(30), "subject": text(40), "urgent": { "type": "boolean" } })),
        function("stop", json!({})),
    ]);
    let all: Vec<_> = tools.0.iter().collect();
    let dialect = Dialect::all(&marks);
    let calls = Constraint { dialect: &dialect, marks: &marks }.calls(&all, true);
    assert!(from_pieces(&calls, &Budget::of_request()).is_ok());
}

/// The grammar for strict calls of 130 different functions can be compiled within the budget of a request.
#[test]
fn many_functions_fit_in_a_request() {
    let marks = Marks::default();
    let formats = ["date", "time", "date-time", "uri", "email", "uuid", "ipv4", "ipv6", "hostname", "duration"];
    let function = |at: usize| {
        let own = format!("own_{at}");
        let properties = json!({
            "path": { "type": "string" },
            "limit": { "type": "integer", "minimum": 1, "maximum": 100 + at },
            "mode": { "enum": ["read", "write", format!("mode {at}")] },
            "when": { "type": "string", "format": formats[at % formats.len()] },
            "tags": { "type": "array", "items": { "type": "string", "pattern": "^[a-z][a-z0-9-]*$" } },
            own: { "type": "object", "properties": { "page": { "type": ["integer", "null"] } }, "required": ["page"], "additionalProperties": false },
        });
        let required: Vec<_> = properties.as_object().unwrap().keys().collect();
        let schema =
            json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false });
        json!({ "function": { "name": format!("server_{}__tool_{at}", at / 10), "strict": true, "parameters": schema } })
    };
    let tools = Tools::of(&(0..130).map(function).collect::<Vec<_>>());
    let all: Vec<_> = tools.0.iter().collect();
    let dialect = Dialect::all(&marks);
    let calls = Constraint { dialect: &dialect, marks: &marks }.calls(&all, true);
    let table = from_pieces(&calls, &Budget::of_request());
    assert!(table.is_ok(), "{:?}", table.err());
}

/// In each dialect, the reader finds the same calls that were written in the dialect's form.
#[test]
fn every_dialect_reads_what_it_writes() {
    let marks = Marks::default();
    let tools = Arc::new(tools());
    let city = json!({ "city": "Öl \"og\" {brød}\n2 <b>", "days": -3, "exact": true, "tags": ["x, y", "b"] });
    let given = [("get_weather".to_string(), city), ("get_time".to_string(), json!({}))];
    for own in (0..Dialect::all(&marks).calls.len()).map(Own::Form).chain([Own::Channels]) {
        let mut dialect = Dialect::all(&marks);
        dialect.own = own;
        let dialect = Arc::new(dialect);
        let family = match own {
            Own::Form(at) => dialect.calls[at].family,
            Own::Channels => "gpt-oss",
        };
        let call = |(name, value): &(String, Value)| Call { name: name.clone(), arguments: value.to_string() };
        for count in [1, 2] {
            let calls: Vec<Call> = given[..count].iter().map(call).collect();
            let text = Constraint { dialect: &dialect, marks: &marks }.write(&calls);
            assert_eq!(read(&dialect, &tools, "", &text), (given[..count].to_vec(), false), "{family}: {text}");
        }
    }
}
