//! Fields of llama.cpp's requests for filling in code, and the field `suffix` of a completion.

use serde_json::Value;

use super::openai::{ANSWER, FORM, SAMPLING};
use super::refused::{HARMLESS, REFUSED};
use super::{Asked, Field, Neutral, Result, Row, Use, fields, read};
use arenite_request::{Infill, Input, Named, Prompt, Refusal};

/// The tables of code to fill in.
pub(super) const TABLES: [&[Row<Asked>]; 6] = [GAP, SAMPLING, ANSWER, FORM, REFUSED, HARMLESS];

/// Reads a request in llama.cpp's format for the text in a gap between a prefix and a suffix.
pub fn gap(body: &Value) -> Result<Asked> {
    let mut asked = Asked::default();
    asked.request.input = Input::Infill(Infill::default());
    read(fields(body)?, &TABLES, &mut asked)?;
    Ok(asked)
}

/// The gap to fill.
const GAP: &[Row<Asked>] = &[
    Row(
        &["input_prefix"],
        Use::Reads(|asked, field| {
            infill_of(asked).prefix = Some(field.named(field.text()?));
            Ok(())
        }),
    ),
    Row(
        &["input_suffix"],
        Use::Reads(|asked, field| {
            infill_of(asked).suffix = Some(field.named(field.text()?));
            Ok(())
        }),
    ),
    Row(
        &["input_extra"],
        Use::Reads(|asked, field| {
            for file in field.list()? {
                let part = |key: &str| file.get(key).and_then(Value::as_str).unwrap_or_default().to_string();
                infill_of(asked).files.push((part("filename"), part("text")));
            }
            Ok(())
        }),
    ),
    Row(
        &["prompt"],
        Use::Reads(|asked, field| {
            infill_of(asked).start = field.text()?;
            Ok(())
        }),
    ),
    Row(&["image_data"], Use::Refused(Neutral::Empty)),
];

fn infill_of(asked: &mut Asked) -> &mut Infill {
    if !matches!(asked.request.input, Input::Infill(_)) {
        asked.request.input = Input::Infill(Infill::default());
    }
    match &mut asked.request.input {
        Input::Infill(infill) => infill,
        _ => unreachable!("the input was just set"),
    }
}

/// Reads the text after the cursor. A completion with such a text fills the gap between the prompt and this text.
pub fn suffix(asked: &mut Asked, field: &Field<'_>) -> Result<()> {
    let suffix = field.text()?;
    if suffix.is_empty() {
        return Ok(());
    }
    let prefix = match &asked.request.input {
        Input::Texts(texts) if texts.is_empty() => String::new(),
        Input::Texts(texts) => match &texts[..] {
            [Prompt::Text(text)] => text.clone(),
            _ => return Err(field.refused("suffix goes with a prompt that is one text")),
        },
        _ => return Err(Refusal::unsupported(field.name)),
    };
    if asked.request.echo {
        return Err(field.refused("suffix and echo exclude each other: leave one out"));
    }
    let prefix = Some(Named { field: "prompt", value: prefix });
    asked.request.input = Input::Infill(Infill { prefix, suffix: Some(field.named(suffix)), ..Infill::default() });
    Ok(())
}
