//! llama.cpp's routes: properties, rendered templates, completions, and fill-in-the-middle.

use std::sync::Arc;

use arenite::TokenId;
use arenite::sampler::Params;
use axum::Json;
use axum::body::Body as HttpBody;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::response::sse::Event as Sse;
use serde::Serialize;
use serde_json::{Value, json};

use super::answer::Choice;
use super::app::{Answer, App, OpenRequest, Result, object, whole};
use super::engine::Finish;
use super::error::ApiError;
use super::logprobs;
use super::request::Body;
use super::service::{Endpoint, Prepared, Service};
use super::stream::{Events, channel};

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
        modalities: Modalities { vision: false, audio: false },
        chat_template: service.source(),
        bos_token: spelled(service.tokenizer().bos()),
        eos_token: spelled(service.tokenizer().eos()),
        build_info: concat!("arenite ", env!("CARGO_PKG_VERSION")),
    }))
}

/// Returns the sampler's parameters by llama.cpp's names.
fn sampling(params: &Params) -> Value {
    json!({
        "temperature": params.temperature, "top_k": params.top_k, "top_p": params.top_p, "min_p": params.min_p,
        "typical_p": params.typical_p, "repeat_last_n": params.repeat_last_n, "repeat_penalty": params.repeat_penalty,
    })
}

/// `POST /apply-template`: the prompt of a chat.
pub async fn apply_template(State(app): State<Arc<App>>, request: Request<HttpBody>) -> Result<Response> {
    let render = |app: &App, body| {
        let prepared = app.prepare(Endpoint::Chat, &Body::of(body)?)?;
        Ok(json!({ "prompt": prepared.prompts.first().map(|prompt| &**prompt) }))
    };
    app.answered(request, render).await
}

/// `POST /infill`: the text between a prefix and a suffix.
pub async fn infill(State(app): State<Arc<App>>, request: Request<HttpBody>) -> Result<Response> {
    complete(app, request, |app, mut asked| {
        let ids = app.service.infill_prompt(&asked)?;
        asked["prompt"] = json!(ids);
        for key in ["input_prefix", "input_suffix", "input_extra"] {
            asked.as_object_mut().and_then(|asked| asked.remove(key));
        }
        Ok(asked)
    })
    .await
}

/// `POST /completion`: the continuation of a prompt.
pub async fn completion(State(app): State<Arc<App>>, request: Request<HttpBody>) -> Result<Response> {
    complete(app, request, |_, asked| Ok(asked)).await
}

/// Answers a request in llama.cpp's own format. `read` converts it to a request for a completion.
async fn complete(
    app: Arc<App>,
    request: Request<HttpBody>,
    read: impl FnOnce(&App, Value) -> Result<Value> + Send + 'static,
) -> Result<Response> {
    let prepare = |app: &App, asked: Value| {
        let body = Body::of(read(app, object(asked)?)?)?;
        let prepared = app.prepare(Endpoint::Completions, &body)?;
        if prepared.stream && prepared.jobs.len() > 1 {
            let message = "this path streams one answer to one prompt; /v1/completions streams several";
            return Err(ApiError::about("stream", message));
        }
        let format = Format::new(body, &prepared, app.service.context);
        Ok((prepared, format))
    };
    let (open, (mut prepared, format)) = app.asked(request, prepare).await?;
    if prepared.stream {
        let answer = app.begin(&open, prepared)?;
        let (out, response) = channel();
        tokio::spawn(stream(app, answer, format, out, open));
        return Ok(response);
    }
    let mut choices = Vec::new();
    for answer in app.submit(&open, &mut prepared)? {
        choices.push(whole(answer).await?);
    }
    let bytes = choices.iter().map(Choice::bytes).sum();
    app.write(&open, bytes, move |app| format.all(&app.service, &choices)).await
}

/// Request settings that determine the fields of an answer in llama.cpp's own format.
struct Format {
    /// Paths of the fields to return. If there are none, all fields are returned.
    fields: Vec<String>,
    has_tokens: bool,
    settings: Value,
}

impl Format {
    fn new(body: Body, prepared: &Prepared, context: usize) -> Self {
        let mut settings = prepared.jobs.first().map_or(json!({}), |(_, settings, _)| sampling(&settings.params));
        settings["n_ctx"] = json!(context);
        Self {
            fields: body.response_fields.unwrap_or_default(),
            has_tokens: prepared.stream || body.return_tokens == Some(true),
            settings,
        }
    }

    /// Returns the complete answers: an object, or a list if there are several.
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
        if self.fields.is_empty() {
            return answer;
        }
        // A path such as `timings/prompt_n` is also the name of the field that is returned.
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
            tokens_cached: choice.cached,
            stop_type: match (choice.end, &choice.stop) {
                (None, _) => "none",
                (Some(Finish::Length), _) => "limit",
                (Some(Finish::Stop), Some(_)) => "word",
                (Some(Finish::Stop), None) => "eos",
            },
            stopping_word: choice.stop.as_deref().unwrap_or_default(),
            truncated: false,
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
    stop_type: &'static str,
    stopping_word: &'s str,
    truncated: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    completion_probabilities: Vec<Value>,
}

async fn stream(app: Arc<App>, mut answer: Answer, format: Format, out: Events, _open: OpenRequest) {
    let mut choice = Choice::default();
    loop {
        let Some(event) = out.next(&mut answer.events).await else { return };
        let line = match choice.next(event) {
            Ok(true) => (format.end(&app.service, &choice, 0), true),
            Ok(false) => (format.part(&app.service, &choice, 0), false),
            Err(error) => (error.body(), true),
        };
        out.send(Sse::default().data(line.0.to_string()));
        if line.1 {
            return;
        }
    }
}

impl Service {
    /// Returns the prompt for the text between a prefix and a suffix, with the model's own tokens.
    fn infill_prompt(&self, asked: &Value) -> Result<Vec<u32>> {
        let Some([prefix, suffix, middle]) = self.infill else {
            return Err(ApiError::invalid("this model has no tokens for fill-in-the-middle"));
        };
        let text = |key: &'static str| match asked.get(key) {
            None | Some(Value::Null) => Ok(""),
            Some(Value::String(text)) => self.check_len(key, text).map(|()| text.as_str()),
            Some(_) => Err(ApiError::about(key, format!("{key} must be a text"))),
        };
        let encode = |text: &str| {
            let how = arenite::tokenizer::Encode { add_special: false, parse_special: false };
            crate::text::encode(self.tokenizer(), text.as_bytes(), how)
                .map_err(|error| ApiError::invalid(error.to_string()))
        };
        let mut ids = Vec::from_iter(self.tokenizer().bos().filter(|_| self.tokenizer().add_bos()));
        for extra in asked.get("input_extra").and_then(Value::as_array).into_iter().flatten() {
            let part = |key: &str| extra.get(key).and_then(Value::as_str).unwrap_or_default();
            ids.extend(encode(&format!("--- {} ---\n{}\n", part("filename"), part("text")))?);
        }
        ids.push(prefix);
        ids.extend(encode(text("input_prefix")?)?);
        ids.push(suffix);
        ids.extend(encode(text("input_suffix")?)?);
        ids.push(middle);
        ids.extend(encode(text("prompt")?)?);
        Ok(ids)
    }
}
