//! Questions to models that are not trained for decisions. The options are texts, and the score of an option is the
//! probability that the model itself gives to this text as the answer.

use anyhow::Result;
use arenite::TokenId;
use arenite::tokenizer::{Encode, Tokenizer};
use arenite_chat::{Ending, Renderer, Style};
use arenite_request::Message;
use arenite_text as text;
use serde_json::{Map, Value};

use super::question::{Choice, Kind, Question};
use super::{Reading, Scored};
use arenite_text::shared;

/// Maximum number of options of a question. llama.cpp has the same limit for decision models.
pub const MOST_OPTIONS: usize = 255;

/// Returns the prompt of a question and the tokens of each option. If `is_shared` is true, the prompt begins with the
/// state, so that all questions about a state share it. Otherwise the prompt begins with the question, so that all
/// states share the question.
pub fn reading(
    (state, is_shared): (&Value, bool),
    question: &Question,
    style: &Style,
    renderer: &Renderer,
    tokenizer: &Tokenizer<'_, '_>,
) -> Result<Reading> {
    let (state, question_words) = (written(state), words(question));
    let asked = match is_shared {
        true => format!("{state}\n\n{question_words}"),
        false => format!("{question_words}\n\n{state}"),
    };
    let answers = question.options.iter().map(|option| shown(question.kind, option));
    if renderer.has_own_format() {
        return in_chat(question, asked, answers, style, renderer, tokenizer);
    }
    let how = Encode { add_special: true, parse_special: false };
    let prompt = format!("{asked}\n\nAnswer:");
    // Prompt and answer are tokenized together, because a vocabulary may join or split tokens at their border. A line
    // break ends the answer, so that an option which is the beginning of another option has no advantage.
    let whole = answers.map(|answer| text::encode(tokenizer, format!("{prompt} {answer}\n").as_bytes(), how));
    let whole = whole.collect::<Result<Vec<_>>>()?;
    let mut ids = text::encode(tokenizer, prompt.as_bytes(), how)?;
    let common = whole.iter().map(|whole| shared(&ids, whole)).min().unwrap_or(ids.len());
    ids.truncate(common);
    let labels = whole.iter().map(|whole| whole[common..].to_vec()).collect();
    Ok(Reading { ids, scored: Scored::Labels(told_apart(labels)) })
}

/// The prompt and the options in the model's chat format, without thoughts.
fn in_chat(
    question: &Question,
    asked: String,
    answers: impl Iterator<Item = String>,
    style: &Style,
    renderer: &Renderer,
    tokenizer: &Tokenizer<'_, '_>,
) -> Result<Reading> {
    let message = Message { role: "user".into(), text: Some(asked), ..Message::default() };
    let conversation = style.conversation(&[message], &[]);
    let quiet = Map::from_iter([("enable_thinking".to_string(), Value::Bool(false))]);
    let (prompt, _) = style.prompt(renderer, conversation, &quiet, Ending::Answer).map_err(anyhow::Error::msg)?;
    // In a chat, the token that ends the turn is scored as a part of each answer. Otherwise an option that is the
    // beginning of another option would have an advantage.
    let end = text::token(tokenizer, renderer.stop()).or(tokenizer.eos());
    let how = Encode { add_special: false, parse_special: false };
    // Except for yes-or-no questions, the answer begins with the question's name, because SmolLM2 then chooses the
    // right text more often. The name does not improve answers to yes-or-no questions, and its tokens would be a
    // quarter of a short question.
    let (name, before) = match question.kind {
        Kind::Noul => (String::new(), ""),
        _ => (format!("{}:", question.id), " "),
    };
    let label = |answer: String| {
        let mut ids = text::encode(tokenizer, format!("{before}{answer}").as_bytes(), how)?;
        ids.extend(end);
        Ok(ids)
    };
    let labels = answers.map(label).collect::<Result<_>>()?;
    let mut ids = prompt.encode(tokenizer)?;
    ids.extend(text::encode(tokenizer, name.as_bytes(), how)?);
    Ok(Reading { ids, scored: Scored::Labels(told_apart(labels)) })
}

/// Cuts each label after the first token that distinguishes it from all other labels. Later tokens would only make long
/// options less probable, and each costs a pass.
fn told_apart(labels: Vec<Vec<TokenId>>) -> Vec<Vec<TokenId>> {
    let cut = |(at, label): (usize, &Vec<TokenId>)| {
        let others = labels.iter().enumerate().filter(|(other, _)| *other != at);
        let common = others.map(|(_, other)| shared(label, other)).max().unwrap_or(0);
        label[..label.len().min(common + 1)].to_vec()
    };
    labels.iter().enumerate().map(cut).collect()
}

/// Returns the text of a question. The question follows its options, so that questions with the same options share the
/// tokens of the options.
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
    let options = listed(&question.options);
    match question.kind {
        Kind::Choice => format!("Options:\n{options}\n{asked}"),
        Kind::Score => format!("Levels, the lowest first:\n{options}\n{asked}"),
        Kind::Noul if is_plain => format!("Answer with Yes or No only.\n\n{asked}"),
        Kind::Noul => format!("{options}Answer with Yes or No only.\n\n{asked}"),
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
