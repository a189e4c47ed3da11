//! Complete answers in OpenAI's format.

use std::time::{SystemTime, UNIX_EPOCH};

use axum::http::HeaderValue;
use axum::response::Response;
use serde::Serialize;
use serde_json::{Value, json};

use crate::app::Ready;
use crate::routes::logprobs;
use arenite_chat::Call;
use arenite_run::generation::Logprob;
use arenite_run::scheduler::{Finish, Times};
use arenite_run::service::{Choice, Endpoint, Parts, Prepared, Service};

/// Identifier and time of an answer.
#[derive(Clone, Debug)]
pub struct ResponseMeta {
    pub id: String,
    pub created: u64,
    /// True if the client is told how many tokens of its prompt were cached. The number depends on other requests.
    pub reports_cached: bool,
}

impl ResponseMeta {
    /// Makes the metadata of an answer that begins now.
    pub fn new(id: String) -> Self {
        let created = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        Self { id, created, reports_cached: true }
    }
}

/// The message of a chat answer.
#[derive(Serialize)]
struct Message {
    role: &'static str,
    content: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    reasoning_content: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<ToolCall>,
}

/// A call in an answer. Streams need `index`.
#[derive(Clone, Debug, Serialize)]
pub struct ToolCall {
    index: usize,
    id: String,
    #[serde(rename = "type")]
    kind: &'static str,
    function: Function,
}

#[derive(Clone, Debug, Serialize)]
struct Function {
    name: String,
    arguments: String,
}

impl ToolCall {
    pub fn new(call: Call, index: usize, id: &str, choice: usize) -> Self {
        let id = call_id(id, choice, index);
        Self { index, id, kind: "function", function: Function { name: call.name, arguments: call.arguments } }
    }
}

/// Returns the identifier of a call in an answer.
pub fn call_id(id: &str, choice: usize, index: usize) -> String {
    format!("call_{}_{choice}_{index}", id.rsplit(['-', '_']).next().unwrap_or_default())
}

/// Token counts.
#[derive(Clone, Debug, Serialize)]
pub struct Usage {
    pub prompt_tokens: usize,
    pub completion_tokens: usize,
    pub total_tokens: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_tokens_details: Option<CompletionDetails>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_tokens_details: Option<PromptDetails>,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct PromptDetails {
    pub cached_tokens: usize,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct CompletionDetails {
    pub reasoning_tokens: usize,
}

impl Usage {
    /// Adds up the counts of all answers. A prompt with several answers counts once.
    pub fn of(choices: &[Choice], prompts: usize, reports_cached: bool) -> Self {
        let each = choices.len().div_ceil(prompts.max(1)).max(1);
        let first = || choices.iter().step_by(each);
        let prompt_tokens = first().map(|choice| choice.prompt).sum();
        let completion_tokens = choices.iter().map(|choice| choice.answer).sum();
        let cached_tokens = first().map(|choice| choice.cached).sum();
        let reasoning_tokens = choices.iter().map(|choice| choice.thought).sum();
        let has_thoughts = reasoning_tokens > 0;
        Self {
            prompt_tokens,
            completion_tokens,
            total_tokens: prompt_tokens + completion_tokens,
            completion_tokens_details: has_thoughts.then_some(CompletionDetails { reasoning_tokens }),
            prompt_tokens_details: reports_cached.then_some(PromptDetails { cached_tokens }),
        }
    }
}

/// Numbers of tokens under llama.cpp's names: cached tokens of the prompt, tokens of the prompt that were read, tokens
/// of the answer, and tokens of drafts. A complete answer also has its times.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Timings {
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_n: Option<usize>,
    prompt_n: usize,
    predicted_n: usize,
    #[serde(flatten)]
    speed: Option<Speed>,
    #[serde(flatten)]
    drafts: Option<DraftTimings>,
}

/// Times in milliseconds, and rates. A rate of no tokens is 0.
#[derive(Clone, Copy, Debug, Serialize)]
struct Speed {
    prompt_ms: f64,
    prompt_per_token_ms: f64,
    prompt_per_second: f64,
    predicted_ms: f64,
    predicted_per_token_ms: f64,
    predicted_per_second: f64,
}

impl Speed {
    fn of(times: Times, prompt_n: usize, predicted_n: usize) -> Self {
        let quotient = |a: f64, b: f64| if b > 0.0 { a / b } else { 0.0 };
        let [prompt, answer] = [times.prompt, times.answer].map(|time| time.as_secs_f64() * 1000.0);
        let [prompts, answers] = [prompt_n, predicted_n].map(|count| count as f64);
        Self {
            prompt_ms: prompt,
            prompt_per_token_ms: quotient(prompt, prompts),
            prompt_per_second: quotient(1000.0 * prompts, prompt),
            predicted_ms: answer,
            predicted_per_token_ms: quotient(answer, answers),
            predicted_per_second: quotient(1000.0 * answers, answer),
        }
    }
}

#[derive(Clone, Copy, Debug, Serialize)]
struct DraftTimings {
    draft_n: usize,
    draft_n_accepted: usize,
}

impl Timings {
    /// Adds up the counts and times of all answers. If there were no drafts, the counts of drafts are left out. The
    /// times are left out together with `cached_tokens`, because both depend on other requests.
    pub fn of(choices: &[Choice], reports_cached: bool) -> Self {
        let sum = |count: fn(&Choice) -> usize| -> usize { choices.iter().map(count).sum() };
        let cache_n = reports_cached.then(|| sum(|choice| choice.cached));
        let drafts = DraftTimings {
            draft_n: sum(|choice| choice.drafts.drafted),
            draft_n_accepted: sum(|choice| choice.drafts.accepted),
        };
        let prompt_n = sum(|choice| choice.prompt).saturating_sub(cache_n.unwrap_or(0));
        let predicted_n = sum(|choice| choice.answer);
        let times = choices.iter().try_fold(Times::default(), |sum, choice| {
            let Times { prompt, answer } = choice.times?;
            Some(Times { prompt: sum.prompt + prompt, answer: sum.answer + answer })
        });
        Self {
            prompt_n,
            cache_n,
            predicted_n,
            speed: times.filter(|_| reports_cached).map(|times| Speed::of(times, prompt_n, predicted_n)),
            drafts: (drafts.draft_n > 0).then_some(drafts),
        }
    }

    /// Returns the timings for an answer in OpenAI's format: all that the client asks for, or the counts if there were
    /// drafts.
    pub fn shown(self, is_asked: bool) -> Option<Self> {
        match is_asked {
            true => Some(self),
            false => self.drafts.map(|_| Self { speed: None, ..self }),
        }
    }
}

/// The fields of an answer before `choices`.
#[derive(Serialize)]
struct Head<'s> {
    id: &'s str,
    object: &'static str,
    created: u64,
    model: &'s str,
    system_fingerprint: &'static str,
}

/// Returns the complete answer to a request.
pub fn answer(service: &Service, prepared: &Ready, choices: &mut [Choice], meta: &ResponseMeta) -> Value {
    let each = choices.iter_mut().enumerate().map(|(index, choice)| match prepared.endpoint {
        Endpoint::Chat => chat_choice(prepared, choice, meta, index),
        _ => completion_choice(prepared, choice, index),
    });
    let each: Value = each.collect();
    let mut answer = head(service, prepared.endpoint, meta, false);
    answer["choices"] = each;
    answer["usage"] = json!(Usage::of(choices, prepared.prompt_count, meta.reports_cached));
    if let Some(timings) = Timings::of(choices, meta.reports_cached).shown(prepared.reply.has_timings) {
        answer["timings"] = json!(timings);
    }
    answer
}

/// Returns the fields of an answer before `choices`.
pub fn head(service: &Service, endpoint: Endpoint, meta: &ResponseMeta, is_chunk: bool) -> Value {
    let object = match endpoint {
        Endpoint::Chat if is_chunk => "chat.completion.chunk",
        Endpoint::Chat => "chat.completion",
        _ => "text_completion",
    };
    let system_fingerprint = concat!("arenite-", env!("CARGO_PKG_VERSION"));
    json!(Head { id: &meta.id, object, created: meta.created, model: &service.name, system_fingerprint })
}

fn chat_choice(prepared: &Prepared, choice: &mut Choice, meta: &ResponseMeta, index: usize) -> Value {
    let Parts { content, reasoning, calls, .. } = prepared.parts(index, choice);
    let finish = choice.finish(!calls.is_empty());
    let content = (!content.is_empty() || calls.is_empty()).then_some(content);
    let calls = calls.into_iter().enumerate().map(|(at, call)| ToolCall::new(call, at, &meta.id, index));
    let message = Message { role: "assistant", content, reasoning_content: reasoning, tool_calls: calls.collect() };
    let logprobs: Vec<Value> = choice.logprobs.iter().map(logprobs::chat).collect();
    let logprobs = if logprobs.is_empty() { Value::Null } else { json!({ "content": logprobs }) };
    json!({ "index": index, "message": message, "logprobs": logprobs, "finish_reason": finish })
}

fn completion_choice(prepared: &Prepared, choice: &Choice, index: usize) -> Value {
    let before = if prepared.echo { &*prepared.prompts[index] } else { "" };
    let all: Vec<Logprob> = choice.scored.iter().chain(&choice.logprobs).cloned().collect();
    let start = if prepared.echo { 0 } else { all.first().map_or(0, |first| first.offset) };
    let logprobs = if all.is_empty() { Value::Null } else { logprobs::completion(&all, start) };
    json!({
        "index": index,
        "text": format!("{before}{}", choice.text),
        "logprobs": logprobs,
        "finish_reason": choice.end.unwrap_or(Finish::Stop).name(),
    })
}

/// Maximum number of characters of a warning in a header, because proxies limit the size of headers.
const LONGEST_WARNING: usize = 1000;

/// Adds a warning for the client as a header. Characters outside ASCII are escaped, because the warning may quote a
/// client's schema.
pub fn with_warning(mut response: Response, warning: Option<String>) -> Response {
    let escaped = |warning: String| warning.escape_default().take(LONGEST_WARNING).collect::<String>();
    if let Some(value) = warning.and_then(|warning| HeaderValue::try_from(escaped(warning)).ok()) {
        response.headers_mut().insert("x-warning", value);
    }
    response
}
