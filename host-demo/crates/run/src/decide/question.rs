//! Questions about a state, in the form of a request to llama.cpp's `/v1/systemone`.

use arenite_request::Refusal;
use serde_json::{Map, Value};

/// Number of levels that a scale may have.
const LEVELS: std::ops::RangeInclusive<usize> = 2..=10;

/// A state, and the questions about it.
pub struct Request {
    pub state: Value,
    pub questions: Vec<Question>,
}

/// A question.
pub struct Question {
    pub id: String,
    pub kind: Kind,
    /// What is asked: a text, or any other value.
    pub instructions: Value,
    /// The possible answers. For yes or no, these are `false` and `true`, in this order; for a scale, its levels from
    /// the lowest on.
    pub options: Vec<Choice>,
}

/// A possible answer.
pub struct Choice {
    pub key: String,
    /// A text or any other value; null if there is none.
    pub description: Value,
}

/// The types of questions, by their numbers in laya.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One of several options.
    Choice,
    /// A level of a scale.
    Score,
    /// Yes or no.
    Noul,
}

impl Kind {
    const ALL: [(&str, Self); 3] = [("choice", Self::Choice), ("score", Self::Score), ("noul", Self::Noul)];

    /// The name in requests and in keys of model files.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }
}

impl Request {
    /// Reads a state and questions. A question may have at most `most` options.
    ///
    /// # Errors
    ///
    /// The same requests are refused as by llama.cpp, with the same messages.
    pub fn read(state: Option<&Value>, questions: Option<&Value>, most: usize) -> Result<Self, Refusal> {
        let state = state.filter(|state| !state.is_null());
        let state = state.ok_or_else(|| Refusal::invalid("\"state\" must be provided"))?.clone();
        let questions = questions.and_then(Value::as_object).filter(|questions| !questions.is_empty());
        let questions = questions.ok_or_else(|| Refusal::invalid("\"questions\" must be a non-empty object"))?;
        let read = |(id, question): (&String, &Value)| {
            Question::read(id, question, most).map_err(|why| Refusal::invalid(format!("questions.{id}: {why}")))
        };
        Ok(Self { state, questions: questions.iter().map(read).collect::<Result<_, _>>()? })
    }
}

impl Question {
    fn read(id: &str, question: &Value, most: usize) -> Result<Self, String> {
        let question = question.as_object().ok_or("must be an object")?;
        let instructions = question.get("instructions").filter(|value| !value.is_null());
        let instructions = instructions.ok_or("\"instructions\" must be provided")?.clone();
        let name = question.get("type").and_then(Value::as_str);
        let kind = Kind::ALL.iter().find(|(known, _)| Some(*known) == name).map(|(_, kind)| *kind);
        let kind = kind.ok_or("\"type\" must be one of: choice, score, noul")?;
        let options = options(kind, question.get("criteria").filter(|value| !value.is_null()))?;
        match options.len() > most {
            true => Err(format!("too many options ({}), this model supports at most {most}", options.len())),
            false => Ok(Self { id: id.into(), kind, instructions, options }),
        }
    }
}

fn options(kind: Kind, criteria: Option<&Value>) -> Result<Vec<Choice>, String> {
    let option = |key: &str, description: &Value| Choice { key: key.into(), description: description.clone() };
    let members = criteria.and_then(Value::as_object);
    match kind {
        Kind::Choice => {
            let members = members.filter(|members| !members.is_empty());
            let members = members.ok_or("\"criteria\" must be a non-empty object")?;
            Ok(members.iter().map(|(key, description)| option(key, description)).collect())
        }
        Kind::Score => {
            let levels = criteria.and_then(Value::as_array).filter(|levels| LEVELS.contains(&levels.len()));
            let levels = levels.ok_or("\"criteria\" must be an array of 2 to 10 levels")?;
            Ok(levels.iter().enumerate().map(|(at, level)| option(&at.to_string(), level)).collect())
        }
        Kind::Noul => {
            if criteria.is_some() && members.is_none() {
                return Err("\"criteria\" must be an object".into());
            }
            let described = |key| members.and_then(|members: &Map<_, _>| members.get(key)).unwrap_or(&Value::Null);
            Ok(["false", "true"].map(|key| option(key, described(key))).into())
        }
    }
}
