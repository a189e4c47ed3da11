//! Fields for the form of an answer: a schema, a grammar, or one of several texts.

use serde_json::{Map, Value, json};

use super::{Asked, Field, Neutral, Result, Row, Use};
use arenite_request::Form;

/// Fields that constrain the form of an answer. If a request has several, the last of them in this table takes effect.
pub const FORM: &[Row<Asked>] = &[
    Row(&["response_format"], Use::Reads(response_format)),
    Row(&["verbosity"], Use::Reads(verbosity)),
    Row(
        &["structured_outputs"],
        Use::Reads(|asked, field| {
            let outputs = field.object()?;
            // vLLM's settings of its grammars do not change which values an answer may have.
            no_others(
                field,
                &["json", "json_object", "choice", "regex", "grammar", "disable_fallback", "disable_any_whitespace"],
            )?;
            if outputs.get("disable_any_whitespace") == Some(&Value::Bool(true)) {
                asked.reply.warnings.push("disable_any_whitespace has no effect");
            }
            let given = |key: &str| outputs.get(key).filter(|value| !value.is_null());
            let part = |value| Field { name: field.name, value };
            let form = match (given("json"), given("choice"), given("regex"), given("grammar")) {
                (Some(schema), ..) => Form::Schema(parsed(schema)),
                (_, Some(choice), ..) => Form::Choice(part(choice).texts()?),
                (.., Some(regex), _) => Form::Pattern(part(regex).text()?),
                (.., Some(grammar)) => Form::Gbnf(part(grammar).text()?),
                _ if outputs.get("json_object") == Some(&Value::Bool(true)) => any_object(),
                _ => return Err(field.refused("structured_outputs must have json, choice, regex or grammar")),
            };
            asked.request.form = Some(field.named(form));
            Ok(())
        }),
    ),
    Row(
        &["json_schema", "guided_json"],
        Use::Reads(|asked, field| {
            asked.request.form = Some(field.named(Form::Schema(parsed(field.value))));
            Ok(())
        }),
    ),
    Row(
        &["guided_choice"],
        Use::Reads(|asked, field| {
            asked.request.form = Some(field.named(Form::Choice(field.texts()?)));
            Ok(())
        }),
    ),
    Row(
        &["regex", "guided_regex"],
        Use::Reads(|asked, field| {
            let text = field.text()?;
            if !text.is_empty() {
                asked.request.form = Some(field.named(Form::Pattern(text)));
            }
            Ok(())
        }),
    ),
    Row(
        &["grammar", "guided_grammar", "ebnf"],
        Use::Reads(|asked, field| {
            let text = field.text()?;
            if !text.is_empty() {
                asked.request.form = Some(field.named(Form::Gbnf(text)));
            }
            Ok(())
        }),
    ),
];

/// Parses a schema that is given as text.
fn parsed(schema: &Value) -> Value {
    schema.as_str().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_else(|| schema.clone())
}

/// Any JSON object.
fn any_object() -> Form {
    Form::Schema(json!({ "type": "object" }))
}

/// Refuses an object that has a value under any other key than `known`, because the answer would not follow that value.
fn no_others(field: &Field<'_>, known: &[&str]) -> Result<()> {
    let mut others =
        field.object()?.iter().filter(|(key, value)| !known.contains(&key.as_str()) && !Neutral::Empty.includes(value));
    match others.next() {
        Some((key, _)) => Err(field.refused(format!("{}.{key} is not supported here: leave it out", field.name))),
        None => Ok(()),
    }
}

/// Reads the form of an answer: `text`, `json_object`, `json_schema`, the types of text-generation-inference (`json`
/// and `regex`), or the type of Fireworks (`grammar`).
pub fn response_format(asked: &mut Asked, field: &Field<'_>) -> Result<()> {
    // `name`, `description` and `strict` are fields of OpenAI's schemas.
    no_others(field, &["type", "json_schema", "schema", "value", "grammar", "name", "description", "strict"])?;
    let given = |key: &str| field.value.get(key).filter(|value| !value.is_null());
    let text = |key: &str| {
        let text = given(key).and_then(Value::as_str).map(str::to_string);
        text.ok_or_else(|| field.refused(format!("{} has no {key}", field.name)))
    };
    let within = given("json_schema").and_then(|named| named.get("schema"));
    let schema = within.or_else(|| given("schema")).or_else(|| given("value"));
    let form = match given("type").and_then(Value::as_str) {
        Some("text") => return Ok(()),
        None if field.value.as_object().is_some_and(Map::is_empty) => return Ok(()),
        Some("json_object") => schema.cloned().map_or_else(any_object, Form::Schema),
        Some("json_schema" | "json") => match schema {
            Some(schema) => Form::Schema(schema.clone()),
            None => return Err(field.refused(format!("{} has no json_schema.schema", field.name))),
        },
        Some("regex") => Form::Pattern(text("value")?),
        Some("grammar") => Form::Gbnf(text("grammar")?),
        _ => {
            let message = format!("{}.type must be text, json_object, json_schema, regex or grammar", field.name);
            return Err(field.refused(message));
        }
    };
    asked.request.form = Some(field.named(form));
    Ok(())
}

/// Reads how long answers should be. No model here has such a setting, so a value other than the usual one is a warning.
pub fn verbosity(asked: &mut Asked, field: &Field<'_>) -> Result<()> {
    match field.text()?.as_str() {
        "medium" => {}
        "low" | "high" => {
            asked.reply.warnings.push("verbosity has no effect: ask for short or long answers in a message")
        }
        other => return Err(field.refused(format!("{} is {other}, and low, medium and high are possible", field.name))),
    }
    Ok(())
}
