//! llama.cpp's routes: properties, rendered templates, completions, and fill-in-the-middle.

use std::sync::Arc;

use arenite::TokenId;
use arenite::sampler::Params;
use axum::Json;
use axum::body::Body as HttpBody;
use axum::extract::{Request, State};
use axum::response::Response;
use serde::Serialize;
use serde_json::{Value, json};

use crate::app::{Answer, App, OpenRequest, Ready, whole};
use crate::faces::{Asked, infill, openai};
use crate::http::error::{ApiError, Result};
use crate::routes::answer::{Timings, with_warning};
use crate::routes::logprobs;
use crate::routes::stream::{Events, channel, sse};
use crate::routes::vectors::VectorFormat;
use arenite_request::{Message, Refusal};
use arenite_run::scheduler::{Event, Finish};
use arenite_run::service::{Choice, Service};

/// The server's properties.
#[derive(Serialize)]
struct Props<'s> {
    default_generation_settings: Defaults,
    total_slots: usize,
    model_alias: &'s str,
    model_path: &'s str,
    modalities: Modalities,
    chat_template: String,
    bos_token: String,
    eos_token: String,
    build_info: &'static str,
}

#[derive(Serialize)]
struct Defaults {
    n_ctx: usize,
    params: Value,
}

#[derive(Serialize)]
struct Modalities {
    vision: bool,
    audio: bool,
}

/// `GET /props`.
pub async fn props(State(app): State<Arc<App>>) -> Json<Value> {
    let service = &app.service;
    let spelled = |id: Option<u32>| {
        id.map(|id| String::from_utf8_lossy(service.tokenizer().spelling(id)).into_owned()).unwrap_or_default()
    };
    Json(json!(Props {
        default_generation_settings: Defaults { n_ctx: service.context, params: sampling(&service.params) },
        total_slots: app.parallel,
        model_alias: &service.name,
        model_path: &service.name,
        modalities: Modalities { vision: service.open.eyes().is_some(), audio: false },
        chat_template: service.source(),
        bos_token: spelled(service.tokenizer().bos()),
        eos_token: spelled(service.tokenizer().eos()),
        build_info: concat!("arenite ", env!("CARGO_PKG_VERSION")),
    }))
}

/// Returns the sampler's parameters by llama.cpp's names.
pub(super) fn sampling(params: &Params) -> Value {
    let more = &params.more;
    let dry_last_n = if more.dry_last_n == u32::MAX { -1 } else { i64::from(more.dry_last_n) };
    json!({
        "temperature": params.temperature, "top_k": params.top_k, "top_p": params.top_p, "min_p": params.min_p,
        "typical_p": params.typical_p, "repeat_last_n": params.repeat_last_n, "repeat_penalty": params.repeat_penalty,
        "min_keep": more.min_keep, "top_n_sigma": more.top_n_sigma,
        "xtc_probability": more.xtc_probability, "xtc_threshold": more.xtc_threshold,
        "dry_multiplier": more.dry_multiplier, "dry_base": more.dry_base,
        "dry_allowed_length": more.dry_allowed_length, "dry_penalty_last_n": dry_last_n,
        "dynatemp_range": more.dynatemp_range, "dynatemp_exponent": more.dynatemp_exponent,
        "mirostat": more.mirostat as u8, "mirostat_tau": more.mirostat_tau, "mirostat_eta": more.mirostat_eta,
        "adaptive_target": more.adaptive_target, "adaptive_decay": more.adaptive_decay,
    })
}

/// `POST /apply-template`: the prompt of a chat.
pub async fn apply_template(State(app): State<Arc<App>>, request: Request<HttpBody>) -> Result<Response> {
    let render = |app: &App, body| {
        let mut asked = openai::chat(&body)?;
        // As in llama.cpp, the answer continues the last message if that is a message of the assistant, unless the
        // client denies this.
        let is_answer = |last: &Message| last.role == "assistant" && last.calls.is_empty();
        let last = body["messages"].as_array().and_then(|messages| messages.last());
        let is_denied = body["continue_final_message"] == false || last.is_some_and(|last| last["prefix"] == false);
        let request = &mut asked.request;
        request.continues |= !request.is_closed && !is_denied && request.messages().last().is_some_and(is_answer);
        let prepared = app.count(asked)?;
        Ok(json!({ "prompt": prepared.prompts.first().map(|prompt| &**prompt) }))
    };
    app.answered(request, render).await
}

/// `POST /v1/chat/completions/input_tokens`: the number of tokens of a chat's prompt.
pub async fn input_tokens(State(app): State<Arc<App>>, request: Request<HttpBody>) -> Result<Response> {
    let count = |app: &App, body| {
        let prepared = app.count(openai::chat(&body)?)?;
        Ok(json!({ "input_tokens": prepared.jobs.first().map_or(0, |(prompt, ..)| prompt.len()) }))
    };
    app.answered(request, count).await
}

/// `POST /infill`: the text between a prefix and a suffix.
pub async fn infill(State(app): State<Arc<App>>, request: Request<HttpBody>) -> Result<Response> {
    complete(app, request, infill::gap).await
}

/// `POST /completion`: the continuation of a prompt.
pub async fn completion(State(app): State<Arc<App>>, request: Request<HttpBody>) -> Result<Response> {
    complete(app, request, openai::completion).await
}

/// Answers a request in llama.cpp's own format. The function `read` parses the request.
async fn complete(
    app: Arc<App>,
    request: Request<HttpBody>,
    read: fn(&Value) -> std::result::Result<Asked, Refusal>,
) -> Result<Response> {
    let prepare = move |app: &App, body: Value| {
        let prepared = app.prepare(read(&body)?)?;
        if prepared.reply.stream && prepared.jobs.len() > 1 {
            let message = "this path streams one answer to one prompt; /v1/completions streams several";
            return Err(ApiError::about("stream", message));
        }
        let format = Format::new(&prepared, app.service.context);
        Ok((prepared, format))
    };
    let (open, (mut prepared, format)) = app.asked(request, prepare).await?;
    let warning = prepared.warning.take();
    if prepared.reply.stream {
        let answer = app.begin(&open, prepared)?;
        let (out, response) = channel();
        tokio::spawn(stream(app, answer, format, out, open));
        return Ok(with_warning(response, warning));
    }
    let mut choices = Vec::new();
    for answer in app.submit(&open, &mut prepared)? {
        choices.push(whole(answer).await?);
    }
    let bytes = choices.iter().map(Choice::bytes).sum::<usize>() + format.bytes();
    let response = app.write(&open, bytes, move |app| format.all(&app.service, &choices)).await?;
    Ok(with_warning(response, warning))
}

/// Request settings that determine the fields of an answer in llama.cpp's own format.
struct Format {
    /// The paths of those fields that the answer should have. An empty list stands for all fields.
    fields: Vec<String>,
    has_tokens: bool,
    settings: Value,
    prompts: Vec<Arc<str>>,
}

impl Format {
    fn new(prepared: &Ready, context: usize) -> Self {
        let settings = prepared.jobs.first().map_or(json!({}), |(_, settings, _)| {
            let mut all = sampling(&settings.params);
            all["n_ctx"] = json!(context);
            all["n_predict"] = settings.limit.map_or(json!(-1), |limit| json!(limit));
            all["seed"] = json!(settings.seed);
            all["stop"] = json!(settings.stops);
            all["ignore_eos"] = json!(settings.ignore_end);
            all["n_probs"] = json!(settings.logprobs.unwrap_or(0));
            all
        });
        Self {
            fields: prepared.reply.fields.clone(),
            has_tokens: prepared.reply.stream || prepared.reply.has_tokens,
            settings,
            prompts: prepared.prompts.clone(),
        }
    }

    /// Number of bytes of the prompts in the answers.
    fn bytes(&self) -> usize {
        self.prompts.iter().map(|prompt| prompt.len()).sum()
    }

    /// Returns the complete answers: an object for a single answer, or a list for several answers.
    fn all(&self, service: &Service, choices: &[Choice]) -> Value {
        match choices {
            [choice] => self.end(service, choice, 0),
            _ => choices.iter().enumerate().map(|(index, choice)| self.end(service, choice, index)).collect(),
        }
    }

    /// Returns a complete answer, or the end of a streamed one.
    fn end(&self, service: &Service, choice: &Choice, index: usize) -> Value {
        let mut answer = self.part(service, choice, index);
        answer["generation_settings"] = self.settings.clone();
        answer["prompt"] = json!(self.prompts.get(index).map(|prompt| &**prompt));
        if self.fields.is_empty() {
            return answer;
        }
        // The client chooses fields by paths such as `timings/prompt_n`. Each is returned under its whole path as the
        // name.
        let field = |path: &String| Some((path.clone(), answer.pointer(&format!("/{path}"))?.clone()));
        Value::Object(self.fields.iter().filter_map(field).collect())
    }

    /// Returns the answer's fields, complete or not.
    fn part(&self, service: &Service, choice: &Choice, index: usize) -> Value {
        json!(Filled {
            index,
            content: &choice.text,
            tokens: if self.has_tokens { &choice.tokens } else { &[] },
            stop: choice.end.is_some(),
            model: &service.name,
            tokens_predicted: choice.answer,
            tokens_evaluated: choice.prompt,
            // Number of tokens in the context. The last token of the answer is excluded, because the model has not read
            // it.
            tokens_cached: choice.read,
            timings: Timings::of(std::slice::from_ref(choice), true),
            id_slot: choice.slot,
            stop_type: match (choice.end, &choice.stop) {
                (None, _) => "none",
                (Some(Finish::Length), _) => "limit",
                (Some(Finish::Stop), Some(_)) => "word",
                (Some(Finish::Stop), None) => "eos",
            },
            stopping_word: choice.stop.as_deref().unwrap_or_default(),
            truncated: choice.is_full,
            has_new_line: choice.text.contains('\n'),
            completion_probabilities: choice.logprobs.iter().map(logprobs::chat).collect(),
        })
    }
}

/// An answer in llama.cpp's own format.
#[derive(Serialize)]
struct Filled<'s> {
    index: usize,
    content: &'s str,
    tokens: &'s [TokenId],
    stop: bool,
    model: &'s str,
    tokens_predicted: usize,
    tokens_evaluated: usize,
    tokens_cached: usize,
    timings: Timings,
    id_slot: usize,
    stop_type: &'static str,
    stopping_word: &'s str,
    truncated: bool,
    has_new_line: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    completion_probabilities: Vec<Value>,
}

async fn stream(app: Arc<App>, mut answer: Answer, format: Format, out: Events, _open: OpenRequest) {
    // As in llama.cpp, each event has the numbers so far.
    let mut choice = Choice { prompt: answer.prompt_tokens, ..Choice::default() };
    loop {
        let Some(event) = out.next(&mut answer.events).await else { return };
        choice.answer += usize::from(matches!(event, Event::Token { .. }));
        let line = match choice.next(event).map_err(ApiError::from) {
            Ok(true) => (format.end(&app.service, &choice, 0), true),
            Ok(false) => (format.part(&app.service, &choice, 0), false),
            Err(error) => (error.body(), true),
        };
        out.send(sse(&line.0));
        if line.1 {
            return;
        }
    }
}

/// Returns embeddings in llama.cpp's own format, in which each embedding is a list with a single vector.
pub fn embeddings(vectors: &[Vec<f32>], format: VectorFormat) -> Value {
    let row = |(index, vector): (usize, &Vec<f32>)| json!({ "index": index, "embedding": [format.values(vector)] });
    vectors.iter().enumerate().map(row).collect()
}
