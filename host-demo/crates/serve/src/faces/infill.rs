//! Fields of llama.cpp's requests for filling in code.

use serde_json::Value;

use super::form::FORM;
use super::openai::{ANSWER, SAMPLING};
use super::refused::{HARMLESS, REFUSED};
use super::{Asked, Neutral, Result, Row, Use, fields, read};
use arenite_request::{Infill, Input};

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
