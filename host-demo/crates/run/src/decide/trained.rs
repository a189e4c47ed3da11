//! Models that are trained for decisions: their types, prompts and answers.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use arenite::TokenId;
use arenite::gguf::{Gguf, Value as Meta};
use arenite::tokenizer::Tokenizer;
use arenite_chat::Compiled;
use arenite_text as text;
use serde_json::{Map, Value, json};

use super::joint::{Joint, JointHead};
use super::laya::Layout;
use super::question::{Choice, Kind, Question, Request};
use super::{Reading, Scored, answer, joint, kev};

/// The key of the template for a question's prompt.
const TEMPLATE: &str = "tokenizer.chat_template.systemone";
/// The token after each option of [`Type::Kev`].
const OPTION_END: &str = "<|box_end|>";
/// Maximum number of options of a question.
const MOST_OPTIONS: usize = 255;
/// A model of the type [`Type::Lev`] answers a yes-or-no question by this many ratings, from certainly no to certainly
/// yes.
const RATINGS: usize = 9;

/// The types of decision models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    /// Options are letters after the prompt.
    OpenJev,
    /// The options are labels after the prompt. A choice is asked twice, with its options in two orders.
    Lev,
    /// The options are labels after the prompt. One prompt lists all questions.
    Nimble,
    /// The options are in the prompt, each followed by a certain token. An option's score compares the vector of this
    /// token with the vector of the prompt's last token.
    Kev,
    /// An encoder scores the `[MASK]` token before each option.
    Laya,
    /// A head decides about all questions together.
    Clef,
}

impl Type {
    const ALL: [(&str, Self); 6] = [
        ("openjev", Self::OpenJev),
        ("lev", Self::Lev),
        ("nimble", Self::Nimble),
        ("kev", Self::Kev),
        ("laya", Self::Laya),
        ("clef", Self::Clef),
    ];
}

/// What a type needs to find its options.
enum Options {
    /// The labels of the options in order, and the token of each label.
    Labels(Vec<(String, TokenId)>),
    /// The token that ends each option.
    Ends(TokenId),
    /// The text of the token that stands before each option, and the layout that says how prompts are cut.
    Marks(String, Layout),
    Joint(Arc<JointHead>),
}

/// A model that is trained for decisions.
pub struct DecisionModel {
    kind: Type,
    template: Compiled,
    options: Options,
    /// Temperatures by type of question, or by type and range of the number of options: `choice`, `choice.3_5`.
    temperatures: HashMap<String, f64>,
}

/// Refuses a file whose type of decision is unknown.
///
/// # Errors
///
/// The error has the name of the type and the names of the known types.
pub fn check_type(gguf: &Gguf<'_>) -> Result<()> {
    type_of(gguf).map(|_| ())
}

fn type_of(gguf: &Gguf<'_>) -> Result<Option<Type>> {
    let Some(name) = gguf.str(gguf.architecture()?, "decision.type")? else { return Ok(None) };
    let known = Type::ALL.iter().find(|(known, _)| known.as_bytes() == name).map(|(_, kind)| *kind);
    match known {
        Some(kind) => Ok(Some(kind)),
        None => bail!(
            "decision models of the type {} are not supported: give one of the type {}",
            text::shown::one_line(&String::from_utf8_lossy(name)),
            Type::ALL.map(|(name, _)| name).join(", ")
        ),
    }
}

impl DecisionModel {
    /// Reads the decision keys of a file; `None` if the file has no such keys.
    ///
    /// # Errors
    ///
    /// The type is unknown, a temperature is not above 0, the template is missing, or a label is not a token.
    pub fn new(gguf: &Gguf<'_>, tokenizer: &Tokenizer<'_, '_>) -> Result<Option<Self>> {
        let Some(kind) = type_of(gguf)? else { return Ok(None) };
        let template = gguf.keys().find(|(key, _)| *key == TEMPLATE);
        let Some((_, Meta::Str(template))) = template else { bail!("a decision model needs the key {TEMPLATE}") };
        let prefix = format!("{}.decision.temperature.", gguf.architecture()?);
        let mut temperatures = HashMap::new();
        for (key, value) in gguf.keys() {
            let Some(name) = key.strip_prefix(&prefix) else { continue };
            match value {
                Meta::F32(t) if t > 0.0 && t.is_finite() => _ = temperatures.insert(name.to_string(), f64::from(t)),
                _ => bail!("the key {key} must be a float above 0"),
            }
        }
        let options = match kind {
            Type::OpenJev | Type::Lev | Type::Nimble => Options::Labels(labels(kind, tokenizer)?),
            Type::Kev => {
                let end = text::token(tokenizer, OPTION_END);
                Options::Ends(
                    end.with_context(|| format!("a decision model of this type needs the token {OPTION_END}"))?,
                )
            }
            Type::Laya => marks(gguf, tokenizer)?,
            Type::Clef => Options::Joint(Arc::new(JointHead::new(gguf)?)),
        };
        let template = Compiled::new(String::from_utf8_lossy(template).into_owned());
        Ok(Some(Self { kind, template, options, temperatures }))
    }

    /// Returns the orders in which the options of a question are shown to the model. There is one prompt for each
    /// order.
    fn orders(&self, question: &Question) -> Vec<Vec<usize>> {
        let count = question.options.len();
        match (self.kind, question.kind) {
            (Type::OpenJev | Type::Clef, Kind::Noul) => vec![vec![1, 0]],
            (Type::Lev, Kind::Choice) if count > 1 => vec![(0..count).collect(), (0..count).rev().collect()],
            _ => vec![(0..count).collect()],
        }
    }

    /// Maximum number of options of a question.
    pub fn most_options(&self) -> usize {
        match &self.options {
            Options::Labels(labels) => labels.len(),
            Options::Ends(_) | Options::Marks(..) | Options::Joint(_) => MOST_OPTIONS,
        }
    }

    /// True if the model generates text beside deciding.
    pub fn makes_text(&self) -> bool {
        !matches!(self.kind, Type::Laya | Type::Clef)
    }

    /// Puts the options of a request's questions in the order that the answer will have.
    pub fn arrange(&self, request: &mut Request) {
        if self.kind == Type::Clef {
            for question in request.questions.iter_mut().filter(|question| question.kind == Kind::Choice) {
                question.options.sort_by(|a, b| a.key.cmp(&b.key));
            }
        }
    }

    /// Returns the prompts of all questions, in the order of the questions.
    ///
    /// # Errors
    ///
    /// The template fails, or does not show the options.
    pub fn readings(&self, request: &Request, tokenizer: &Tokenizer<'_, '_>) -> Result<Vec<Reading>> {
        let prompts = self.prompts(request)?;
        if let Options::Joint(head) = &self.options {
            let kinds: Vec<Kind> = request.questions.iter().map(|question| question.kind).collect();
            let (ids, fields) = joint::tokens(prompts.first().map_or("", String::as_str), &kinds, tokenizer)?;
            let scored = Scored::Joint(Joint { head: head.clone(), fields });
            return Ok(vec![Reading { ids, scored }]);
        }
        let asked = request.questions.iter().flat_map(|question| vec![question; self.orders(question).len()]);
        let how = arenite::tokenizer::Encode { add_special: false, parse_special: true };
        let reading = |(prompt, question): (String, &Question)| {
            let ids = text::encode(tokenizer, prompt.as_bytes(), how)?;
            self.reading(ids, question)
        };
        prompts.into_iter().zip(asked).map(reading).collect()
    }

    fn reading(&self, ids: Vec<TokenId>, question: &Question) -> Result<Reading> {
        let count = question.options.len();
        Ok(match &self.options {
            Options::Labels(labels) => {
                let count = if self.rates(question) { RATINGS } else { count };
                let scored = Scored::Labels(labels.iter().take(count).map(|(_, token)| vec![*token]).collect());
                Reading { ids, scored }
            }
            Options::Ends(end) => {
                let ends: Vec<usize> = (0..ids.len()).filter(|at| ids[*at] == *end).collect();
                ensure!(ends.len() == count, "the template does not show all options, or shows others");
                Reading { ids, scored: Scored::Ends(ends) }
            }
            Options::Marks(_, layout) => {
                let (ids, marks) = layout.cut(&ids, count)?;
                Reading { ids, scored: Scored::Marks { marks, kind: question.kind as usize } }
            }
            Options::Joint(_) => bail!("a question of this type has no prompt of its own"),
        })
    }

    /// Returns the texts of the prompts: one prompt for each order of a question's options, or one prompt for all
    /// questions.
    ///
    /// # Errors
    ///
    /// The template fails.
    pub fn prompts(&self, request: &Request) -> Result<Vec<String>> {
        let shown = |question: &Question| -> Vec<Value> {
            self.orders(question).iter().map(|order| self.variables(question, order)).collect()
        };
        let all: Vec<Vec<Value>> = request.questions.iter().map(shown).collect();
        let first: Vec<Value> = all.iter().filter_map(|orders| orders.first().cloned()).collect();
        let mut shared = Map::from_iter([
            ("state".to_string(), self.prepared(&request.state)),
            ("images".to_string(), json!([])),
            ("questions".to_string(), first.into()),
        ]);
        if self.kind == Type::Clef {
            let marks = [("sep", joint::SEPARATOR), ("mark_question", joint::QUESTION), ("mark_option", joint::OPTION)];
            shared.extend(marks.map(|(name, text)| (name.to_string(), text.into())));
            return Ok(vec![self.filled(shared.into())?]);
        }
        let rendered = |mut variables: Value| {
            if let Some(members) = variables.as_object_mut() {
                members.extend(shared.clone());
            }
            self.filled(variables)
        };
        all.into_iter().flatten().map(rendered).collect()
    }

    fn filled(&self, variables: Value) -> Result<String> {
        self.template.fill(variables).context("the template of decisions does not work")
    }

    /// Returns the template's variables for a question whose options are shown in the order `order`.
    fn variables(&self, question: &Question, order: &[usize]) -> Value {
        let label = |place: usize| match &self.options {
            Options::Labels(labels) => labels.get(place).map(|(label, _)| label.as_str()),
            _ => None,
        };
        let shown = |(place, at): (usize, &usize)| {
            let Choice { key, description } = &question.options[*at];
            let key = self.prepared(&key.as_str().into());
            let description = if description.is_null() { Value::Null } else { self.prepared(description) };
            json!({ "key": key, "description": description, "label": label(place) })
        };
        json!({
            "id": self.prepared(&question.id.as_str().into()),
            "type": question.kind.name(),
            "instructions": self.prepared(&question.instructions),
            "options": order.iter().enumerate().map(shown).collect::<Vec<_>>(),
        })
    }

    /// Converts a value to the form in which the model was trained to read it. Depending on the type of the model, the
    /// members of objects are sorted, the value becomes text, or texts that look like the delimiters of options are
    /// replaced.
    fn prepared(&self, value: &Value) -> Value {
        let mut value = value.clone();
        if matches!(self.kind, Type::Lev | Type::Clef) {
            value.sort_all_objects();
        }
        match (&self.options, self.kind) {
            (_, Type::Kev) => kev::text(&value).into(),
            (Options::Marks(mark, _), _) => replaced(value, mark, " "),
            (_, Type::Clef) => replaced(value, joint::MARKER, joint::NO_MARKER),
            _ => value,
        }
    }

    /// Returns true if the model answers a question by choosing one of several ratings instead of one of the question's
    /// options.
    fn rates(&self, question: &Question) -> bool {
        self.kind == Type::Lev && question.kind == Kind::Noul
    }

    fn temperature(&self, question: &Question) -> f64 {
        let bucket = match (self.kind, question.options.len()) {
            (Type::Lev, ..=8) => "small",
            (Type::Lev, ..=26) => "mid",
            (Type::Lev, _) => "large",
            (_, ..=2) => "2",
            (_, ..=5) => "3_5",
            (_, ..=10) => "6_10",
            _ => "11",
        };
        let kind = question.kind.name();
        let given = self.temperatures.get(&format!("{kind}.{bucket}")).or_else(|| self.temperatures.get(kind));
        given.copied().unwrap_or(1.0)
    }

    /// Returns the answers, keyed by the names of the questions. `scores` has the scores of the options of each prompt.
    pub fn answers(&self, request: &Request, scores: &[Vec<f64>]) -> Map<String, Value> {
        let mut prompts = scores.iter();
        let mut all = scores.first().map_or(&[][..], Vec::as_slice);
        let answered = |question: &Question| {
            let own: Vec<Vec<f64>> = if self.kind == Type::Clef {
                let (own, rest) = all.split_at(question.options.len().min(all.len()));
                all = rest;
                vec![own.to_vec()]
            } else {
                prompts.by_ref().take(self.orders(question).len()).cloned().collect()
            };
            (question.id.clone(), self.answer(question, &own))
        };
        request.questions.iter().map(answered).collect()
    }

    /// Answers a question from the scores of the options in each of its prompts.
    fn answer(&self, question: &Question, scores: &[Vec<f64>]) -> Value {
        let temperature = self.temperature(question);
        let orders = self.orders(question);
        if self.rates(question) {
            let ratings = scores.first().map(|scores| answer::probabilities(scores, temperature)).unwrap_or_default();
            return answer::yes(answer::mean(&ratings) / (RATINGS - 1) as f64);
        }
        let mut mean = vec![0.0; question.options.len()];
        for (order, scores) in orders.iter().zip(scores) {
            for (at, p) in order.iter().zip(answer::probabilities(scores, temperature)) {
                mean[*at] += p / orders.len() as f64;
            }
        }
        answer::answer(question, &mean)
    }
}

/// The labels of options and their tokens.
fn labels(kind: Type, tokenizer: &Tokenizer<'_, '_>) -> Result<Vec<(String, TokenId)>> {
    let upper = || ('A'..='Z').map(String::from);
    let names: Vec<String> = match kind {
        Type::OpenJev => upper().chain(('a'..='z').map(String::from)).collect(),
        _ => upper().chain(upper().flat_map(|first| upper().map(move |second| first.clone() + &second))).collect(),
    };
    let mut labels = Vec::new();
    for name in names {
        match text::token(tokenizer, &name) {
            Some(token) => labels.push((name, token)),
            None => ensure!(kind != Type::OpenJev, "the label {name} of a decision is not one token"),
        }
    }
    labels.truncate(MOST_OPTIONS);
    ensure!(labels.len() >= RATINGS, "the vocabulary has too few labels for decisions: {}", labels.len());
    Ok(labels)
}

/// The tokens that structure the prompts of [`Type::Laya`].
fn marks(gguf: &Gguf<'_>, tokenizer: &Tokenizer<'_, '_>) -> Result<Options> {
    let id = |name: &str| {
        let id = gguf.u32("tokenizer.ggml", name)?;
        id.with_context(|| format!("a decision model needs the key tokenizer.ggml.{name}"))
    };
    let (mark, separator) = (id("mask_token_id")?, id("seperator_token_id")?); // the format's spelling
    let head = gguf.u32(gguf.architecture()?, "decision.max_head_tokens")?.filter(|most| *most > 0);
    let head = head.context("a decision model needs the key decision.max_head_tokens above 0")? as usize;
    let text = String::from_utf8_lossy(tokenizer.spelling(mark)).into_owned();
    ensure!(!text.is_empty(), "the mask token of a decision model has no text");
    Ok(Options::Marks(text, Layout { mark, separator, head }))
}

/// Replaces a text in all strings of a value.
fn replaced(value: Value, from: &str, to: &str) -> Value {
    match value {
        Value::String(text) => text.replace(from, to).into(),
        Value::Array(items) => items.into_iter().map(|item| replaced(item, from, to)).collect(),
        Value::Object(members) => {
            members.into_iter().map(|(key, item)| (key, replaced(item, from, to))).collect::<Map<_, _>>().into()
        }
        other => other,
    }
}
