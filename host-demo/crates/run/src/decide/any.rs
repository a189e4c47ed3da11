//! Questions to models that are not trained for decisions: the options are texts, and the model's own probability of each
//! text as the answer counts.

use anyhow::Result;
use arenite::TokenId;
use arenite::tokenizer::{Encode, Tokenizer};
use arenite_chat::{Renderer, Style};
use arenite_request::Message;
use arenite_text as text;
use serde_json::{Map, Value};

use super::question::{Choice, Kind, Question};
use super::{Reading, Scored};

/// Maximum number of options of a question, as llama.cpp has it for decision models.
pub const MOST_OPTIONS: usize = 255;

/// Returns the prompt of a question and the tokens of each option.
pub fn reading(
    state: &Value,
    question: &Question,
    style: &Style,
    renderer: &Renderer,
    tokenizer: &Tokenizer<'_, '_>,
) -> Result<Reading> {
    let asked = format!("{}\n\n{}", written(state), words(question));
    let answers = question.options.iter().map(|option| shown(question.kind, option));
    if renderer.has_own_format() {
        return in_chat(asked, answers, style, renderer, tokenizer);
    }
    let how = Encode { add_special: true, parse_special: false };
    let prompt = format!("{asked}\n\nAnswer:");
    // Prompt and answer are tokenized together, since a vocabulary may join or split tokens where they meet. The line
    // break keeps an option from winning because it begins another one.
    let whole = answers.map(|answer| text::encode(tokenizer, format!("{prompt} {answer}\n").as_bytes(), how));
    let whole = whole.collect::<Result<Vec<_>>>()?;
    let mut ids = text::encode(tokenizer, prompt.as_bytes(), how)?;
    let shared = |ids: &[TokenId], other: &[TokenId]| ids.iter().zip(other).take_while(|(a, b)| a == b).count();
    let common = whole.iter().map(|whole| shared(&ids, whole)).min().unwrap_or(ids.len());
    ids.truncate(common);
    Ok(Reading { ids, scored: Scored::Labels(whole.iter().map(|whole| whole[common..].to_vec()).collect()) })
}

/// The prompt and the options in the model's chat format, without thoughts.
fn in_chat(
    asked: String,
    answers: impl Iterator<Item = String>,
    style: &Style,
    renderer: &Renderer,
    tokenizer: &Tokenizer<'_, '_>,
) -> Result<Reading> {
    let message = Message { role: "user".into(), text: Some(asked), ..Message::default() };
    let conversation = style.conversation(&[message], &[]);
    let quiet = Map::from_iter([("enable_thinking".to_string(), Value::Bool(false))]);
    let (prompt, _) = style.prompt(renderer, conversation, &quiet, false).map_err(anyhow::Error::msg)?;
    // The end of the turn keeps an option from winning because it begins another one.
    let end = text::token(tokenizer, renderer.stop()).or(tokenizer.eos());
    let how = Encode { add_special: false, parse_special: false };
    let label = |answer: String| {
        let mut ids = text::encode(tokenizer, answer.as_bytes(), how)?;
        ids.extend(end);
        Ok(ids)
    };
    let labels = answers.map(label).collect::<Result<_>>()?;
    Ok(Reading { ids: prompt.encode(tokenizer)?, scored: Scored::Labels(labels) })
}

/// The question with its options.
fn words(question: &Question) -> String {
    let asked = written(&question.instructions);
    let listed = |options: &[Choice]| {
        let line = |option: &Choice| match (question.kind, &option.description) {
            (Kind::Score, _) | (_, Value::Null) => format!("- {}\n", shown(question.kind, option)),
            (kind, description) => format!("- {}: {}\n", shown(kind, option), written(description)),
        };
        options.iter().map(line).collect::<String>()
    };
    let is_plain = question.options.iter().all(|option| option.description.is_null());
    match question.kind {
        Kind::Choice => format!("{asked}\nOptions:\n{}Answer with one of the options only.", listed(&question.options)),
        Kind::Score => {
            format!(
                "{asked}\nLevels, the lowest first:\n{}Answer with one of the levels only.",
                listed(&question.options)
            )
        }
        Kind::Noul if is_plain => format!("{asked}\nAnswer with Yes or No only."),
        Kind::Noul => format!("{asked}\n{}Answer with Yes or No only.", listed(&question.options)),
    }
}

/// The text that answers a question with this option.
fn shown(kind: Kind, option: &Choice) -> String {
    match kind {
        Kind::Choice => option.key.clone(),
        Kind::Score => written(&option.description),
        Kind::Noul => if option.key == "true" { "Yes" } else { "No" }.into(),
    }
}

/// A text as it is, and any other value as JSON.
fn written(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_string)
}
