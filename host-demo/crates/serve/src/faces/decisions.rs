//! Fields of llama.cpp's `/v1/systemone`: questions about a state.

use serde_json::{Map, Value};

use super::{Result, Row, Use, fields, read};
use arenite_request::Refusal;
use arenite_run::service::{Decisions, Fields, Service};

/// A request for decisions.
#[derive(Debug, Default)]
struct Asked {
    state: Option<Value>,
    states: Option<Value>,
    questions: Option<Value>,
}

/// Reads a request without its pictures.
fn asked(body: &Value) -> Result<Asked> {
    let mut asked = Asked::default();
    read(fields(body)?, &[ROWS], &mut asked)?;
    Ok(asked)
}

/// Reads a request, and returns its prompts.
pub fn decisions(service: &Service, body: &Value) -> Result<Decisions> {
    let asked = asked(body)?;
    let Asked { state, states, questions } = &asked;
    let fields = Fields { state: state.as_ref(), states: states.as_ref(), questions: questions.as_ref() };
    let decisions = service.decisions(fields)?;
    check_pictures(body)?;
    Ok(decisions)
}

/// Refuses pictures and films with llama.cpp's messages. This check comes after the check of the questions, so that a
/// request with several faults gets the same error as from llama.cpp.
fn check_pictures(body: &Value) -> Result<()> {
    read(body.as_object().unwrap_or(&Map::new()), &[PICTURES], &mut ())
}

const ROWS: &[Row<Asked>] = &[
    Row(
        &["state"],
        Use::Reads(|asked, field| {
            asked.state = Some(field.value.clone());
            Ok(())
        }),
    ),
    Row(
        // Not in llama.cpp.
        &["states"],
        Use::Reads(|asked, field| {
            asked.states = Some(field.value.clone());
            Ok(())
        }),
    ),
    Row(
        &["questions"],
        Use::Reads(|asked, field| {
            asked.questions = Some(field.value.clone());
            Ok(())
        }),
    ),
    // As in llama.cpp, a server with a single model accepts any name, because clients send the name of their own
    // service.
    Row(&["model"], Use::Harmless),
    Row(&["stream"], Use::Harmless),
];

const PICTURES: &[Row<()>] = &[
    Row(&["videos"], Use::Reads(|(), _| Err(Refusal::invalid("\"videos\" is not supported")))),
    Row(
        &["images"],
        Use::Reads(|(), field| {
            let images = field.value.as_array().ok_or_else(|| Refusal::invalid("\"images\" must be an array"))?;
            let is_data = |image: &Value| {
                image.as_str().is_some_and(|url| url.starts_with("data:image/") && url.contains(";base64,"))
            };
            if !images.iter().all(is_data) {
                return Err(Refusal::invalid("images must be data URLs (data:image/...;base64,...)"));
            }
            match images.is_empty() {
                true => Ok(()),
                false => Err(Refusal::not_possible(
                    "This server does not support image input for decisions. For a model that supports it, start it \
                     with `--mmproj`",
                )),
            }
        }),
    ),
];
