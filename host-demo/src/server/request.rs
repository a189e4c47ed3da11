//! Fields of text requests, and the engine settings derived from them.

use std::time::Duration;

use arenite::TokenId;
use arenite::sampler::Params;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::app::not_json;
use super::error::ApiError;
use super::fields;
use super::lora::LoraScale;
use crate::cli::Samplers;
use crate::generation::Settings;

/// The body of a text request.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, expecting = "an object")]
pub struct Body {
    pub messages: Option<Vec<Value>>,
    pub prompt: Option<Value>,
    pub model: Option<String>,
    pub stream: Option<bool>,
    pub stream_options: Option<StreamOptions>,
    #[serde(alias = "n_predict")]
    pub max_tokens: Option<i64>,
    pub max_completion_tokens: Option<i64>,
    pub min_tokens: Option<usize>,
    #[serde(alias = "n_cmpl")]
    pub n: Option<usize>,
    pub best_of: Option<usize>,
    pub stop: Option<Stop>,
    pub stop_token_ids: Option<Vec<TokenId>>,
    #[serde(alias = "random_seed")]
    pub seed: Option<i64>,
    pub temperature: Option<f32>,
    pub top_p: Option<f32>,
    pub top_k: Option<i64>,
    pub min_p: Option<f32>,
    #[serde(alias = "typ_p")]
    pub typical_p: Option<f32>,
    #[serde(alias = "repetition_penalty")]
    pub repeat_penalty: Option<f32>,
    pub repeat_last_n: Option<i64>,
    pub frequency_penalty: Option<f32>,
    pub presence_penalty: Option<f32>,
    /// The sampling steps in order: a list of names, or a text with a letter for each step.
    pub samplers: Option<Value>,
    /// An object, or a list of pairs of a token and its bias.
    pub logit_bias: Option<Value>,
    /// A boolean in chats, a number in completions.
    pub logprobs: Option<Value>,
    pub top_logprobs: Option<usize>,
    /// llama.cpp's name for the number of alternatives; 0 reports nothing.
    pub n_probs: Option<usize>,
    pub echo: Option<bool>,
    /// Number of tokens to keep from the end of a prompt; -1 keeps as many as fit.
    pub truncate_prompt_tokens: Option<i64>,
    pub ignore_eos: Option<bool>,
    /// Minimum number of spaces and tabs at the beginning of a line, after the first line.
    pub n_indent: Option<i64>,
    /// Time in milliseconds after which the next line break ends the answer; 0 and -1 mean no limit.
    pub t_max_predict_ms: Option<i64>,
    /// Fields of the answer to return, in llama.cpp's own format.
    pub response_fields: Option<Vec<String>>,
    /// True if the answer's tokens are returned, in llama.cpp's own format.
    pub return_tokens: Option<bool>,
    pub response_format: Option<Value>,
    #[serde(alias = "guided_json")]
    pub json_schema: Option<Value>,
    pub grammar: Option<String>,
    pub guided_choice: Option<Vec<String>>,
    pub structured_outputs: Option<Map<String, Value>>,
    pub tools: Option<Vec<Value>>,
    pub tool_choice: Option<Value>,
    pub parallel_tool_calls: Option<bool>,
    pub chat_template_kwargs: Option<Map<String, Value>>,
    pub reasoning_effort: Option<String>,
    /// Settings of thoughts: `{"effort": ..., "max_tokens": ..., "enabled": true or false}`.
    pub reasoning: Option<Reasoning>,
    /// Settings of thoughts: `{"type": "enabled" or "disabled", "budget_tokens": ...}`.
    pub thinking: Option<Thinking>,
    /// Maximum number of tokens of a thought.
    #[serde(alias = "thinking_budget_tokens", alias = "thinking_budget")]
    pub reasoning_budget: Option<i64>,
    /// Scales of adapters.
    pub lora: Option<Vec<LoraScale>>,
    /// All other fields, which are refused if they are unsupported and would change the answer.
    #[serde(flatten)]
    pub others: Map<String, Value>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub struct StreamOptions {
    pub include_usage: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Reasoning {
    pub effort: Option<String>,
    pub max_tokens: Option<i64>,
    pub enabled: Option<bool>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Thinking {
    #[serde(rename = "type")]
    pub kind: Option<String>,
    pub budget_tokens: Option<i64>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "expected a text or a list of texts")]
pub enum Stop {
    One(String),
    Many(Vec<String>),
}

/// Pairs of names of one field. If a request has both, the first name takes precedence unless its value is null, as in
/// llama-server.
const SYNONYMS: &[(&str, &str)] = &[
    ("n_predict", "max_completion_tokens"),
    ("n_predict", "max_tokens"),
    ("n_cmpl", "n"),
    ("repeat_penalty", "repetition_penalty"),
    ("typical_p", "typ_p"),
    ("seed", "random_seed"),
    ("json_schema", "guided_json"),
    ("thinking_budget_tokens", "thinking_budget"),
    ("reasoning_budget", "thinking_budget_tokens"),
    ("reasoning_budget", "thinking_budget"),
];

/// Maximum number of answers to one request.
pub const MOST_CHOICES: usize = 128;
/// Maximum number of alternatives for a token.
const MOST_LOGPROBS: usize = 20;
/// Maximum number of stop strings. All of them are searched with every token.
const MOST_STOPS: usize = 16;
/// Maximum size of a stop string in bytes.
const MOST_STOP_BYTES: usize = 512;
/// Maximum number of tokens with a bias, and of tokens that end an answer.
const MOST_BIASES: usize = 1024;

/// Converts whole numbers with a decimal point, as some programs write all numbers, to integers.
pub fn with_integers(mut body: Value) -> Value {
    for value in body.as_object_mut().into_iter().flat_map(Map::values_mut) {
        if let Some(number) =
            value.as_f64().filter(|number| value.is_f64() && number.fract() == 0.0 && number.abs() < 1e15)
        {
            *value = (number as i64).into();
        }
    }
    body
}

/// Removes the second name of each field that a request gives twice.
fn without_synonyms(mut body: Value) -> Value {
    if let Some(fields) = body.as_object_mut() {
        for (name, other) in SYNONYMS {
            match fields.get(*name) {
                None => {}
                Some(Value::Null) => drop(fields.remove(*name)),
                Some(_) => drop(fields.remove(*other)),
            }
        }
    }
    body
}

impl Body {
    pub fn parse(bytes: &[u8]) -> Result<Self, ApiError> {
        let value = serde_json::from_slice(bytes);
        Self::of(value.map_err(|error| not_json(&error))?)
    }

    /// Converts a body that is already parsed as JSON.
    pub fn of(value: Value) -> Result<Self, ApiError> {
        let value = without_synonyms(with_integers(value));
        let Err(error) = Self::deserialize(&value) else {
            return serde_json::from_value(value).map_err(|error| ApiError::invalid(error.to_string()));
        };
        // Find a field that is invalid by itself.
        let is_wrong = |(name, value): &(&String, &Value)| {
            let name = name.as_str();
            Self::deserialize(&json!({ name: value })).is_err()
        };
        Err(match value.as_object().and_then(|fields| fields.iter().find(is_wrong)) {
            Some((name, _)) => ApiError::about(name.as_str(), format!("{name} is invalid: {error}")),
            None => ApiError::invalid(format!("the body is invalid: {error}")),
        })
    }

    /// Returns the number of tokens of a prompt to keep, if the context has room for `room` tokens.
    pub fn kept_tokens(&self, room: usize) -> Result<usize, ApiError> {
        const FIELD: &str = "truncate_prompt_tokens";
        match self.truncate_prompt_tokens {
            None => Ok(usize::MAX),
            Some(-1) => Ok(room),
            Some(count @ 1..) => Ok(count as usize),
            Some(count) => Err(ApiError::about(FIELD, format!("{FIELD} is {count}: give a number of tokens, or -1"))),
        }
    }

    pub fn choices(&self) -> Result<usize, ApiError> {
        let n = match self.n.unwrap_or(1) {
            n @ 1..=MOST_CHOICES => n,
            n => return Err(ApiError::about("n", format!("n is {n}, and 1 to {MOST_CHOICES} are possible"))),
        };
        match self.best_of {
            Some(best) if best != n => Err(ApiError::unsupported("best_of")),
            _ => Ok(n),
        }
    }

    /// Returns the settings, without the grammar. Parameters that the request does not set are taken from `usual`.
    pub fn settings(&self, vocab: usize, usual: &Params, by_chance: u64) -> Result<Settings, ApiError> {
        fields::check(&self.others)?;
        let limit = self.limit()?;
        let logprobs = self.alternatives()?;
        let stop_ids = self.stop_token_ids.clone().unwrap_or_default();
        if stop_ids.len() > MOST_BIASES || stop_ids.iter().any(|id| *id as usize >= vocab) {
            return Err(ApiError::about("stop_token_ids", "stop_token_ids names a token that does not exist"));
        }
        Ok(Settings {
            params: self.params(usual)?,
            bias: self.biases(vocab)?,
            seed: self.seed.filter(|seed| *seed != -1).map_or(by_chance, |seed| seed as u64),
            limit,
            min_tokens: self.min_tokens.unwrap_or(0),
            stops: self.stops()?.to_vec(),
            stop_ids,
            ignore_end: self.ignore_eos.unwrap_or(false),
            indent: self.n_indent.and_then(|least| usize::try_from(least).ok()).unwrap_or(0),
            time: self.t_max_predict_ms.filter(|time| *time > 0).map(|time| Duration::from_millis(time as u64)),
            logprobs,
            ..Settings::default()
        })
    }

    /// Number of alternatives to report with each token; `None` if no log-probabilities are reported.
    fn alternatives(&self) -> Result<Option<usize>, ApiError> {
        let (name, count) = match (self.n_probs, &self.logprobs) {
            (Some(count @ 1..), _) => ("n_probs", count),
            (_, None | Some(Value::Null | Value::Bool(false))) => return Ok(None),
            (_, Some(Value::Bool(true))) => ("top_logprobs", self.top_logprobs.unwrap_or(0)),
            (_, Some(number)) => match number.as_u64() {
                Some(number) => ("logprobs", number as usize),
                None => return Err(ApiError::about("logprobs", "logprobs must be true, false or a count")),
            },
        };
        match count {
            0..=MOST_LOGPROBS => Ok(Some(count)),
            _ => Err(ApiError::about(name, format!("{name} is {count}, and at most {MOST_LOGPROBS} are possible"))),
        }
    }

    fn params(&self, usual: &Params) -> Result<Params, ApiError> {
        let ranged =
            |name: &'static str, value: Option<f32>, default: f32, range: std::ops::RangeInclusive<f32>| match value {
                None => Ok(default),
                Some(value) if range.contains(&value) => Ok(value),
                Some(value) => Err(ApiError::about(
                    name,
                    format!("{name} is {value}, and {} to {} are possible", range.start(), range.end()),
                )),
            };
        let counted = |name: &'static str, value: Option<i64>, default: u32, all: u32| match value {
            None => Ok(default),
            Some(-1) => Ok(all),
            Some(value) => u32::try_from(value)
                .map_err(|_| ApiError::about(name, format!("{name} is {value}, and must be -1 or a count"))),
        };
        let params = Params {
            temperature: ranged("temperature", self.temperature, usual.temperature, 0.0..=100.0)?,
            top_p: ranged("top_p", self.top_p, usual.top_p, 0.0..=1.0)?,
            min_p: ranged("min_p", self.min_p, usual.min_p, 0.0..=1.0)?,
            typical_p: ranged("typical_p", self.typical_p, usual.typical_p, 0.0..=1.0)?,
            top_k: counted("top_k", self.top_k, usual.top_k, 0)?,
            repeat_penalty: ranged("repeat_penalty", self.repeat_penalty, usual.repeat_penalty, 0.01..=100.0)?,
            // The limit is the room in the engine's scratch memory.
            repeat_last_n: counted("repeat_last_n", self.repeat_last_n, usual.repeat_last_n, 1024)?.min(1024),
            frequency_penalty: ranged(
                "frequency_penalty",
                self.frequency_penalty,
                usual.frequency_penalty,
                -2.0..=2.0,
            )?,
            presence_penalty: ranged("presence_penalty", self.presence_penalty, usual.presence_penalty, -2.0..=2.0)?,
            ..*usual
        };
        let Some(list) = self.samplers.as_ref().filter(|list| !list.is_null()) else { return Ok(params) };
        let Params { repeat_penalty, frequency_penalty, presence_penalty, .. } = params;
        let has_penalties = repeat_penalty != 1.0 || frequency_penalty != 0.0 || presence_penalty != 0.0;
        match Samplers::of_request(list, has_penalties && params.repeat_last_n > 0) {
            Ok(samplers) => Ok(samplers.apply(params)),
            Err(why) => Err(ApiError::about("samplers", format!("samplers: {why}"))),
        }
    }

    /// Maximum number of tokens of the answer: -1 means no limit, 0 only processes the prompt.
    fn limit(&self) -> Result<Option<usize>, ApiError> {
        match self.max_completion_tokens.or(self.max_tokens) {
            None | Some(-1) => Ok(None),
            Some(limit) => usize::try_from(limit).map(Some).map_err(|_| {
                ApiError::about("max_tokens", format!("max_tokens is {limit}, and must be -1 or a count"))
            }),
        }
    }

    fn biases(&self, vocab: usize) -> Result<Vec<(TokenId, f32)>, ApiError> {
        let wrong = |message: String| Err(ApiError::about("logit_bias", message));
        let pair = |pair: &Value| Some((pair.get(0)?.as_u64()?, pair.get(1)?.clone()));
        let given: Option<Vec<(u64, Value)>> = match &self.logit_bias {
            None | Some(Value::Null) => Some(Vec::new()),
            Some(Value::Object(map)) => map.iter().map(|(id, bias)| Some((id.parse().ok()?, bias.clone()))).collect(),
            Some(Value::Array(pairs)) => pairs.iter().map(pair).collect(),
            Some(_) => None,
        };
        let Some(given) = given else {
            return wrong("logit_bias must map tokens to numbers".into());
        };
        if given.len() > MOST_BIASES {
            return wrong(format!("logit_bias names more than {MOST_BIASES} tokens"));
        }
        let mut biases = Vec::new();
        for (id, bias) in given {
            if id >= vocab as u64 {
                return wrong("logit_bias names a token that does not exist".into());
            }
            let bias = match bias {
                Value::Bool(false) => f32::NEG_INFINITY,
                bias => match bias.as_f64() {
                    Some(bias) if bias <= -100.0 => f32::NEG_INFINITY,
                    Some(bias) => bias as f32,
                    None => return wrong("a bias in logit_bias is no number".into()),
                },
            };
            biases.push((id as TokenId, bias));
        }
        // Sort by token: sums depend on the order, and the order of fields in a JSON object has no meaning.
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

    /// Returns the JSON schema for the answer, and the name of the request's field that has it. Returns `None` if the
    /// request has no schema.
    pub fn schema(&self) -> Result<Option<(&'static str, Value)>, ApiError> {
        if let Some(schema) = self.json_schema.as_ref().filter(|schema| !schema.is_null()) {
            let parsed = schema.as_str().and_then(|text| serde_json::from_str(text).ok());
            return Ok(Some(("json_schema", parsed.unwrap_or_else(|| schema.clone()))));
        }
        if let Some(outputs) = &self.structured_outputs {
            let wrong = || ApiError::about("structured_outputs", "structured_outputs must have json or choice here");
            let schema = outputs.get("json").filter(|schema| !schema.is_null());
            return match schema {
                Some(schema) => Ok(Some(("structured_outputs", schema.clone()))),
                None if outputs.get("choice").is_some_and(Value::is_array) => Ok(None),
                None => Err(wrong()),
            };
        }
        let Some(format) = self.response_format.as_ref().filter(|format| !format.is_null()) else { return Ok(None) };
        let schema = match format.get("type").and_then(Value::as_str) {
            Some("text") => return Ok(None),
            // llama.cpp also accepts a schema with this type.
            Some("json_object") => match format.get("schema").filter(|schema| !schema.is_null()) {
                Some(schema) => schema.clone(),
                None => json!({ "type": "object" }),
            },
            Some("json_schema") => match format.pointer("/json_schema/schema").or_else(|| format.get("schema")) {
                Some(schema) => schema.clone(),
                None => return Err(ApiError::about("response_format", "response_format has no json_schema.schema")),
            },
            _ => {
                let message = "response_format.type must be text, json_object or json_schema";
                return Err(ApiError::about("response_format", message));
            }
        };
        Ok(Some(("response_format", schema)))
    }

    /// Returns the requested effort, and true or false if the request turns thoughts on or off.
    pub fn effort(&self) -> (Option<&str>, Option<bool>) {
        let reasoning = self.reasoning.as_ref();
        let effort = self.reasoning_effort.as_deref().or_else(|| reasoning?.effort.as_deref());
        let kind = self.thinking.as_ref().and_then(|thinking| thinking.kind.as_deref());
        let is_on = kind.map(|kind| kind != "disabled").or_else(|| reasoning?.enabled);
        (effort, is_on)
    }

    /// Returns the maximum number of tokens of a thought, if the request has one.
    pub fn thought_budget(&self) -> Option<i64> {
        let thinking = || self.thinking.as_ref()?.budget_tokens;
        self.reasoning_budget.or_else(thinking).or_else(|| self.reasoning.as_ref()?.max_tokens)
    }

    /// Returns the texts among which the answer must be chosen.
    pub fn choice(&self) -> Option<Vec<String>> {
        let outputs = self.structured_outputs.as_ref().and_then(|outputs| outputs.get("choice")?.as_array());
        let texts = |list: &Vec<Value>| list.iter().filter_map(|text| Some(text.as_str()?.to_string())).collect();
        self.guided_choice.clone().or_else(|| outputs.map(texts))
    }
}
