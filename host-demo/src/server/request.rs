//! Requests as OpenAI defines them, and what of them the engine needs.

use std::collections::HashMap;
use std::sync::Arc;

use arenite::TokenId;
use arenite::sampler::Params;
use serde::Deserialize;
use serde_json::{Value, json};

use super::error::ApiError;
use crate::grammar;

/// The body of a request for text.
#[derive(Clone, Debug, Deserialize)]
pub struct Body {
    #[serde(default)]
    pub messages: Option<Vec<Value>>,
    #[serde(default)]
    pub prompt: Option<Value>,
    #[serde(default)]
    pub model: Option<String>,
    #[serde(default)]
    pub stream: Option<bool>,
    #[serde(default)]
    pub stream_options: Option<StreamOptions>,
    #[serde(default)]
    pub max_tokens: Option<usize>,
    #[serde(default)]
    pub max_completion_tokens: Option<usize>,
    #[serde(default)]
    pub n: Option<usize>,
    #[serde(default)]
    pub stop: Option<Stop>,
    #[serde(default)]
    pub seed: Option<i64>,
    #[serde(default)]
    pub temperature: Option<f32>,
    #[serde(default)]
    pub top_p: Option<f32>,
    #[serde(default)]
    pub top_k: Option<u32>,
    #[serde(default)]
    pub min_p: Option<f32>,
    #[serde(default)]
    pub repeat_penalty: Option<f32>,
    #[serde(default)]
    pub frequency_penalty: Option<f32>,
    #[serde(default)]
    pub presence_penalty: Option<f32>,
    #[serde(default)]
    pub logit_bias: Option<HashMap<String, f32>>,
    /// A switch for chats, a number for completions.
    #[serde(default)]
    pub logprobs: Option<Value>,
    #[serde(default)]
    pub top_logprobs: Option<usize>,
    #[serde(default)]
    pub echo: Option<bool>,
    #[serde(default)]
    pub ignore_eos: Option<bool>,
    #[serde(default)]
    pub response_format: Option<Value>,
    #[serde(default)]
    pub grammar: Option<String>,
    #[serde(default)]
    pub tools: Option<Vec<Value>>,
    #[serde(default)]
    pub tool_choice: Option<Value>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
pub struct StreamOptions {
    #[serde(default)]
    pub include_usage: bool,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Stop {
    One(String),
    Many(Vec<String>),
}

/// Most answers to one request, and most alternatives of a token.
pub const MOST_CHOICES: usize = 128;
const MOST_LOGPROBS: usize = 20;
/// Texts that end an answer, and their bytes: all of them are looked for with every token.
const MOST_STOPS: usize = 16;
const MOST_STOP_BYTES: usize = 512;
/// Tokens with a bias.
const MOST_BIASES: usize = 1024;

/// What the engine needs to know of a request, its prompt apart.
#[derive(Clone, Debug)]
pub struct Settings {
    pub params: Params,
    pub bias: Vec<(TokenId, f32)>,
    pub seed: u64,
    pub limit: Option<usize>,
    pub stops: Vec<String>,
    pub ignore_end: bool,
    /// A compiled grammar.
    pub table: Option<Arc<[u8]>>,
    /// How many alternatives of each token are reported with it.
    pub logprobs: Option<usize>,
}

impl Body {
    pub fn parse(bytes: &[u8]) -> Result<Self, ApiError> {
        serde_json::from_slice(bytes).map_err(|error| ApiError::invalid(format!("the body makes no sense: {error}")))
    }

    /// Of a body that was read as JSON.
    pub fn of(value: Value) -> Result<Self, ApiError> {
        serde_json::from_value(value).map_err(|error| ApiError::invalid(format!("the body makes no sense: {error}")))
    }

    pub fn choices(&self) -> Result<usize, ApiError> {
        match self.n.unwrap_or(1) {
            n @ 1..=MOST_CHOICES => Ok(n),
            n => Err(ApiError::about("n", format!("n is {n}, and 1 to {MOST_CHOICES} are possible"))),
        }
    }

    /// The settings; `token` finds a token by its text.
    pub fn settings(
        &self,
        vocab: usize,
        by_chance: u64,
        token: &dyn Fn(&str) -> Option<TokenId>,
    ) -> Result<Settings, ApiError> {
        let ranged =
            |name: &'static str, value: Option<f32>, default: f32, range: std::ops::RangeInclusive<f32>| match value {
                None => Ok(default),
                Some(value) if range.contains(&value) => Ok(value),
                Some(value) => Err(ApiError::about(
                    name,
                    format!("{name} is {value}, and {} to {} are possible", range.start(), range.end()),
                )),
            };
        let default = Params::DEFAULT;
        let params = Params {
            temperature: ranged("temperature", self.temperature, 1.0, 0.0..=100.0)?,
            top_p: ranged("top_p", self.top_p, default.top_p, 0.0..=1.0)?,
            min_p: ranged("min_p", self.min_p, default.min_p, 0.0..=1.0)?,
            top_k: self.top_k.unwrap_or(default.top_k),
            repeat_penalty: ranged("repeat_penalty", self.repeat_penalty, 1.0, 0.01..=100.0)?,
            frequency_penalty: ranged("frequency_penalty", self.frequency_penalty, 0.0, -2.0..=2.0)?,
            presence_penalty: ranged("presence_penalty", self.presence_penalty, 0.0, -2.0..=2.0)?,
            ..default
        };
        let logprobs = match &self.logprobs {
            None | Some(Value::Null | Value::Bool(false)) => None,
            Some(Value::Bool(true)) => Some(self.top_logprobs.unwrap_or(0)),
            Some(number) => number.as_u64().map(|number| number as usize),
        };
        if logprobs.is_some_and(|count| count > MOST_LOGPROBS) {
            return Err(ApiError::about("logprobs", format!("at most {MOST_LOGPROBS} alternatives are reported")));
        }
        let limit = self.max_completion_tokens.or(self.max_tokens);
        if limit == Some(0) {
            return Err(ApiError::about("max_tokens", "max_tokens is 0, and must be at least 1"));
        }
        Ok(Settings {
            params,
            bias: self.biases(vocab)?,
            seed: self.seed.map_or(by_chance, |seed| seed as u64),
            limit,
            stops: self.stops()?.to_vec(),
            ignore_end: self.ignore_eos.unwrap_or(false),
            table: self.form(token)?.map(Arc::from),
            logprobs,
        })
    }

    fn biases(&self, vocab: usize) -> Result<Vec<(TokenId, f32)>, ApiError> {
        let wrong = |message: String| Err(ApiError::about("logit_bias", message));
        let given = self.logit_bias.iter().flatten();
        if given.clone().count() > MOST_BIASES {
            return wrong(format!("logit_bias names more than {MOST_BIASES} tokens"));
        }
        let mut biases = Vec::new();
        for (name, bias) in given {
            let Some(id) = name.parse().ok().filter(|id| (*id as usize) < vocab) else {
                return wrong("logit_bias names a token that does not exist".into());
            };
            biases.push((id, if *bias <= -100.0 { f32::NEG_INFINITY } else { *bias }));
        }
        // The order of a map is by chance, and sums depend on it.
        biases.sort_by_key(|(id, _)| *id);
        Ok(biases)
    }

    fn stops(&self) -> Result<&[String], ApiError> {
        let stops = match &self.stop {
            None => &[],
            Some(Stop::One(stop)) => std::slice::from_ref(stop),
            Some(Stop::Many(stops)) => stops.as_slice(),
        };
        if stops.len() > MOST_STOPS {
            let message = format!("stop has {} texts, and at most {MOST_STOPS} are possible", stops.len());
            return Err(ApiError::about("stop", message));
        }
        match stops.iter().find(|stop| stop.len() > MOST_STOP_BYTES) {
            Some(long) => {
                let message =
                    format!("a text in stop has {} bytes, and at most {MOST_STOP_BYTES} are possible", long.len());
                Err(ApiError::about("stop", message))
            }
            None => Ok(stops),
        }
    }

    /// The grammar of the answer.
    fn form(&self, token: &dyn Fn(&str) -> Option<TokenId>) -> Result<Option<Vec<u8>>, ApiError> {
        if let Some(text) = &self.grammar {
            let table = grammar::from_gbnf(text, token);
            return table.map(Some).map_err(|error| ApiError::about("grammar", format!("grammar: {error:#}")));
        }
        let Some(format) = &self.response_format else { return Ok(None) };
        let schema = match format.get("type").and_then(Value::as_str) {
            Some("text") => return Ok(None),
            Some("json_object") => json!({ "type": "object" }),
            Some("json_schema") => match format.pointer("/json_schema/schema") {
                Some(schema) => schema.clone(),
                None => return Err(ApiError::about("response_format", "response_format has no json_schema.schema")),
            },
            _ => {
                let message = "response_format.type must be text, json_object or json_schema";
                return Err(ApiError::about("response_format", message));
            }
        };
        let table = grammar::from_json_schema(&schema);
        table.map(Some).map_err(|error| ApiError::about("response_format", format!("response_format: {error:#}")))
    }
}
