//! From a request to jobs for the engine, and from what comes of them to an answer. The server and `batch` share it.

use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

use arenite::TokenId;
use arenite::tokenizer::{Encode, Tokenizer};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use minijinja::value::Value as Jinja;
use serde_json::{Value, json};

use super::engine::Finish;
use super::error::ApiError;
use super::logprobs::{self, Logprob};
use super::request::{Body, MOST_CHOICES, Settings};
use super::tools;
use crate::chat::{Part, Renderer, Thoughts};
use crate::ranking::{self, Ranking, Texts};
use crate::{grammar, text};

/// Texts that one request may have vectors of, as OpenAI has it, or scores.
const MOST_TEXTS: usize = 2048;

/// What requests can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    Chat,
    Completions,
    Embeddings,
}

impl Endpoint {
    /// By the path of a URL.
    pub fn of(url: &str) -> Option<Self> {
        match url.trim_end_matches('/') {
            "/v1/chat/completions" => Some(Self::Chat),
            "/v1/completions" => Some(Self::Completions),
            "/v1/embeddings" => Some(Self::Embeddings),
            _ => None,
        }
    }
}

/// The model and what is known of it.
pub struct Service {
    pub tokenizer: &'static Tokenizer<'static, 'static>,
    pub renderer: Mutex<Renderer>,
    /// As requests name it.
    pub name: String,
    /// Positions that a conversation has.
    pub context: usize,
    pub vocab: usize,
    /// Whether it goes on with texts.
    pub makes_text: bool,
    /// Whether it makes vectors of texts.
    pub makes_vectors: bool,
    /// How pairs are asked about, if the model ranks.
    pub ranking: Option<Ranking>,
    /// Whether the model's template writes calls between `<tool_call>` and `</tool_call>`.
    pub tags_calls: bool,
}

/// A request that can be answered.
pub struct Prepared {
    pub endpoint: Endpoint,
    /// A prompt and settings for each answer.
    pub jobs: Vec<(Vec<TokenId>, Settings)>,
    /// What the answers go on from: it may have begun a thought.
    pub prompts: Vec<String>,
    pub stream: bool,
    pub include_usage: bool,
    /// Calls of functions are looked for.
    pub has_tools: bool,
    echo: bool,
}

/// An answer, whole.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    pub text: String,
    pub logprobs: Vec<Logprob>,
    pub end: Option<Finish>,
    pub prompt: usize,
    pub cached: usize,
    pub answer: usize,
}

/// What stands around an answer.
#[derive(Clone, Debug)]
pub struct Frame {
    pub id: String,
    pub created: u64,
    /// Whether it is said what did not have to be computed, which is by chance.
    pub says_cached: bool,
}

impl Frame {
    /// Of an answer that begins now.
    pub fn new(id: String) -> Self {
        let created = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        Self { id, created, says_cached: true }
    }
}

/// An answer in its parts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parts {
    pub content: String,
    pub reasoning: String,
    pub calls: Vec<tools::Call>,
}

impl Service {
    /// Checks the name of the model.
    pub fn check_model(&self, model: Option<&str>) -> Result<(), ApiError> {
        match model {
            None => Ok(()),
            Some(model) if model == self.name || model == "default" => Ok(()),
            Some(model) => Err(ApiError {
                param: Some("model"),
                ..ApiError::new(
                    axum::http::StatusCode::NOT_FOUND,
                    format!("there is no model `{model}` here; there is `{}`", self.name),
                )
            }),
        }
    }

    /// Reads a request for text.
    pub fn prepare(&self, endpoint: Endpoint, body: &Body, seed_by_chance: u64) -> Result<Prepared, ApiError> {
        self.check_model(body.model.as_deref())?;
        if !self.makes_text {
            return Err(ApiError::invalid("this model makes embeddings (/v1/embeddings), and no text"));
        }
        let choices = body.choices()?;
        let token = |text: &str| crate::cli::token(self.tokenizer, text);
        let mut settings = body.settings(self.vocab, seed_by_chance, &token)?;
        let mut has_tools = false;
        let prompts = match endpoint {
            Endpoint::Chat => {
                let tools = self.tools(body, &mut settings)?;
                has_tools = !tools.is_empty();
                vec![self.chat_prompt(body, tools, &mut settings)?]
            }
            _ => self.prompts(body, choices)?,
        };
        let mut jobs = Vec::new();
        let mut texts = Vec::new();
        for (text, ids) in prompts {
            if ids.is_empty() {
                return Err(ApiError::about("prompt", "the prompt is empty"));
            }
            if ids.len() >= self.context {
                let message = format!(
                    "the prompt has {} tokens, and the context has room for {} with an answer: shorten it",
                    ids.len(),
                    self.context - 1
                );
                return Err(ApiError::about(if endpoint == Endpoint::Chat { "messages" } else { "prompt" }, message));
            }
            for i in 0..choices {
                let seed = settings.seed.wrapping_add(i as u64);
                jobs.push((ids.clone(), Settings { seed, ..settings.clone() }));
                texts.push(text.clone());
            }
        }
        Ok(Prepared {
            endpoint,
            jobs,
            prompts: texts,
            stream: body.stream.unwrap_or(false),
            include_usage: body.stream_options.is_some_and(|options| options.include_usage),
            has_tools,
            echo: body.echo.unwrap_or(false),
        })
    }

    /// The functions that may be called; one that must be makes the grammar.
    fn tools(&self, body: &Body, settings: &mut Settings) -> Result<Vec<Value>, ApiError> {
        let tools = body.tools.clone().unwrap_or_default();
        for tool in &tools {
            if tool.pointer("/function/name").and_then(Value::as_str).is_none() {
                return Err(ApiError::about("tools", "a tool needs a function with a name"));
            }
        }
        let named = match &body.tool_choice {
            None | Some(Value::Null) => return Ok(tools),
            Some(Value::String(choice)) => match choice.as_str() {
                "none" => return Ok(Vec::new()),
                "auto" => return Ok(tools),
                "required" => None,
                _ => {
                    return Err(ApiError::about(
                        "tool_choice",
                        "tool_choice must be none, auto, required or a function",
                    ));
                }
            },
            Some(choice) => match choice.pointer("/function/name").and_then(Value::as_str) {
                Some(name) => Some(name),
                None => return Err(ApiError::about("tool_choice", "tool_choice names no function")),
            },
        };
        let wanted: Vec<&Value> = tools
            .iter()
            .filter(|tool| {
                named.is_none_or(|name| tool.pointer("/function/name").and_then(Value::as_str) == Some(name))
            })
            .collect();
        if wanted.is_empty() {
            return Err(ApiError::about("tool_choice", "there is no such function among the tools"));
        }
        let schema = tools::schema(&wanted);
        let (before, after) = if self.tags_calls { ("<tool_call>\n", "\n</tool_call>") } else { ("", "") };
        let table = grammar::from_json_schema_between(before, &schema, after)
            .map_err(|error| ApiError::about("tools", format!("tools: {error:#}")))?;
        settings.table = Some(table.into());
        Ok(tools)
    }

    fn chat_prompt(
        &self,
        body: &Body,
        tools: Vec<Value>,
        settings: &mut Settings,
    ) -> Result<(String, Vec<TokenId>), ApiError> {
        let messages = body.messages.as_deref().unwrap_or_default();
        if messages.is_empty() {
            return Err(ApiError::about("messages", "there are no messages"));
        }
        let messages = messages.iter().map(message).collect::<Result<Vec<_>, _>>()?;
        let mut renderer = self.renderer.lock().unwrap_or_else(|broken| broken.into_inner());
        renderer.tools = if tools.is_empty() { Jinja::from(()) } else { jinja(Value::Array(tools))? };
        let prompt = renderer.prompt(&messages);
        let stop = renderer.stop();
        if !stop.is_empty() {
            settings.stops.push(stop.into());
        }
        let ids = prompt.encode(self.tokenizer).map_err(|error| ApiError::invalid(error.to_string()))?;
        Ok((prompt.text, ids))
    }

    /// The prompts of a completion: texts or tokens, one or several. Prompts times `choices` are limited.
    fn prompts(&self, body: &Body, choices: usize) -> Result<Vec<(String, Vec<TokenId>)>, ApiError> {
        inputs(self, body.prompt.as_ref(), "prompt", MOST_CHOICES / choices, Encode::PROMPT)
    }

    /// The texts of a request for embeddings, as tokens.
    pub fn embedding_inputs(&self, body: &Value) -> Result<Vec<Texts>, ApiError> {
        self.check_model(body.get("model").and_then(Value::as_str))?;
        if !self.makes_vectors {
            return Err(ApiError::invalid("this model makes text, and no embeddings"));
        }
        let texts =
            inputs(self, body.get("input"), "input", MOST_TEXTS, Encode { add_special: true, parse_special: false })?;
        for (_, ids) in &texts {
            if ids.is_empty() || ids.len() > self.context {
                let message = format!("a text has {} tokens, and 1 to {} are possible", ids.len(), self.context);
                return Err(ApiError::about("input", message));
            }
        }
        Ok(texts.into_iter().map(|(_, ids)| ids.into()).collect())
    }

    /// The pairs of a request for a ranking, as tokens.
    pub fn pairs(&self, body: &Value) -> Result<Vec<Texts>, ApiError> {
        self.check_model(body.get("model").and_then(Value::as_str))?;
        let ranking = self.ranking.as_ref().ok_or_else(|| ApiError::invalid("this model does not rank"))?;
        let query = body.get("query").and_then(Value::as_str);
        let query = query.ok_or_else(|| ApiError::about("query", "there must be a query, a text"))?;
        let documents = body.get("documents").and_then(Value::as_array);
        let documents = documents.ok_or_else(|| ApiError::about("documents", "there must be a list of texts"))?;
        few("documents", documents, MOST_TEXTS)?;
        let pair = |document: &Value| {
            let text = document.as_str().or_else(|| document.get("text")?.as_str());
            let text = text.ok_or_else(|| ApiError::about("documents", "each must be a text"))?;
            let pair =
                ranking.pair(self.tokenizer, query, text).map_err(|error| ApiError::invalid(error.to_string()))?;
            let len = pair.ids.len();
            if len == 0 || len > self.context {
                let message = format!("a pair has {len} tokens, and 1 to {} are possible", self.context);
                return Err(ApiError::about("documents", message));
            }
            Ok(pair)
        };
        documents.iter().map(pair).collect()
    }

    /// The answer to a request for a ranking: the best first.
    pub fn ranking(&self, body: &Value, vectors: &[Vec<f32>], tokens: usize) -> Value {
        let mut scores: Vec<_> = vectors.iter().map(|vector| ranking::score(vector)).enumerate().collect();
        scores.sort_by(|a, b| b.1.total_cmp(&a.1));
        let top = body.get("top_n").and_then(Value::as_u64).map_or(usize::MAX, |top| top as usize);
        let results = scores.iter().take(top).map(|(index, score)| {
            let mut result = json!({ "index": index, "relevance_score": score });
            if body.get("return_documents").and_then(Value::as_bool) == Some(true) {
                result["document"] = body["documents"][*index].clone();
            }
            result
        });
        json!({
            "object": "list",
            "model": self.name,
            "results": results.collect::<Vec<_>>(),
            "usage": { "prompt_tokens": tokens, "total_tokens": tokens },
        })
    }

    /// The answer to a request for embeddings, which are lists of numbers or base64 of their bytes.
    pub fn embeddings(&self, body: &Value, vectors: &[Vec<f32>], tokens: usize) -> Value {
        let is_base64 = body.get("encoding_format").and_then(Value::as_str) == Some("base64");
        let unit = |vector: &[f32]| {
            let norm = vector.iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>().sqrt().max(1e-12);
            vector.iter().map(|x| (f64::from(*x) / norm) as f32).collect::<Vec<_>>()
        };
        let written = |vector: Vec<f32>| match is_base64 {
            true => json!(BASE64.encode(vector.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>())),
            false => json!(vector),
        };
        let data = vectors.iter().enumerate().map(
            |(index, vector)| json!({ "object": "embedding", "index": index, "embedding": written(unit(vector)) }),
        );
        json!({
            "object": "list",
            "data": data.collect::<Vec<_>>(),
            "model": self.name,
            "usage": { "prompt_tokens": tokens, "total_tokens": tokens },
        })
    }

    /// The answer to a request, whole.
    pub fn answer(&self, prepared: &Prepared, choices: &[Choice], frame: &Frame) -> Value {
        let each = choices.iter().enumerate().map(|(index, choice)| match prepared.endpoint {
            Endpoint::Chat => {
                let parts = prepared.parts(index, &choice.text);
                let mut message = json!({ "role": "assistant", "content": parts.content });
                if !parts.reasoning.is_empty() {
                    message["reasoning_content"] = json!(parts.reasoning);
                }
                let mut finish = choice.end.unwrap_or(Finish::Stop).name();
                if !parts.calls.is_empty() {
                    message["tool_calls"] = tools::to_json(&parts.calls, &frame.id, index);
                    if parts.content.is_empty() {
                        message["content"] = Value::Null;
                    }
                    finish = "tool_calls";
                }
                let content: Vec<Value> = choice.logprobs.iter().map(Logprob::chat).collect();
                let logprobs = if content.is_empty() { Value::Null } else { json!({ "content": content }) };
                json!({ "index": index, "message": message, "logprobs": logprobs, "finish_reason": finish })
            }
            _ => {
                let logprobs = match choice.logprobs.is_empty() {
                    true => Value::Null,
                    false => logprobs::completion(&choice.logprobs),
                };
                let before = if prepared.echo { prepared.prompts[index].as_str() } else { "" };
                json!({
                    "index": index,
                    "text": format!("{before}{}", choice.text),
                    "logprobs": logprobs,
                    "finish_reason": choice.end.unwrap_or(Finish::Stop).name(),
                })
            }
        });
        let mut answer = self.frame(prepared.endpoint, frame, false);
        answer["choices"] = each.collect();
        answer["usage"] = usage(choices, frame.says_cached);
        answer
    }

    /// What stands around choices.
    pub fn frame(&self, endpoint: Endpoint, frame: &Frame, is_piece: bool) -> Value {
        let object = match endpoint {
            Endpoint::Chat if is_piece => "chat.completion.chunk",
            Endpoint::Chat => "chat.completion",
            _ => "text_completion",
        };
        json!({ "id": frame.id, "object": object, "created": frame.created, "model": self.name })
    }
}

impl Prepared {
    /// An answer's text in its parts.
    pub fn parts(&self, index: usize, text: &str) -> Parts {
        let mut parts = Parts::default();
        let mut thoughts = Thoughts::after(&self.prompts[index]);
        let mut show = |part: Part<'_>| -> Result<(), std::convert::Infallible> {
            match part {
                Part::Said(text) => parts.content += text,
                Part::Thought(text) => parts.reasoning += text,
            }
            Ok(())
        };
        let Ok(()) = thoughts.push(text, &mut show);
        let Ok(()) = thoughts.finish(&mut show);
        if !parts.reasoning.is_empty() {
            parts.reasoning = without_tags(&parts.reasoning).trim().into();
            parts.content = parts.content.trim_start().into();
        }
        if self.has_tools {
            (parts.content, parts.calls) = tools::calls(&parts.content);
        }
        parts
    }
}

/// A thought without the tags around it.
pub fn without_tags(thought: &str) -> String {
    thought.replace("<think>", "").replace("</think>", "")
}

/// How many tokens there were.
pub fn usage(choices: &[Choice], says_cached: bool) -> Value {
    let answer: usize = choices.iter().map(|choice| choice.answer).sum();
    let prompt = choices.first().map_or(0, |choice| choice.prompt);
    let mut usage = json!({ "prompt_tokens": prompt, "completion_tokens": answer, "total_tokens": prompt + answer });
    if says_cached {
        usage["prompt_tokens_details"] = json!({ "cached_tokens": choices.first().map_or(0, |choice| choice.cached) });
    }
    usage
}

/// A message for templates: the parts of its content as one text.
fn message(message: &Value) -> Result<Jinja, ApiError> {
    let wrong = |what: &str| ApiError::about("messages", what);
    let object = message.as_object().ok_or_else(|| wrong("a message must be an object"))?;
    if object.get("role").and_then(Value::as_str).is_none() {
        return Err(wrong("a message needs a role"));
    }
    let mut object = object.clone();
    match object.get("content") {
        Some(Value::Array(parts)) => {
            let texts = parts.iter().map(|part| part.get("text").and_then(Value::as_str)).collect::<Option<Vec<_>>>();
            let text = texts.ok_or_else(|| wrong("only parts of text can be read, no images or sounds"))?.concat();
            object.insert("content".into(), text.into());
        }
        Some(Value::String(_)) => {}
        None | Some(Value::Null) => {
            object.insert("content".into(), "".into());
        }
        Some(_) => return Err(wrong("the content of a message must be a text or a list of parts")),
    }
    // Templates want the arguments of calls as objects, and clients send them as texts.
    if let Some(calls) = object.get_mut("tool_calls").and_then(Value::as_array_mut) {
        for call in calls {
            if let Some(arguments) = call.pointer_mut("/function/arguments")
                && let Some(Ok(parsed)) = arguments.as_str().map(serde_json::from_str::<Value>)
            {
                *arguments = parsed;
            }
        }
    }
    jinja(Value::Object(object))
}

/// A value for templates.
fn jinja(value: Value) -> Result<Jinja, ApiError> {
    serde_json::from_value(value).map_err(|error| ApiError::invalid(error.to_string()))
}

/// Refuses a list that is too long.
fn few(name: &'static str, list: &[Value], most: usize) -> Result<(), ApiError> {
    match list.len() {
        len if len > most => Err(ApiError::about(
            name,
            format!("{name} has {len} texts, and at most {most} are possible in one request"),
        )),
        _ => Ok(()),
    }
}

/// Texts or tokens, one or several.
fn inputs(
    service: &Service,
    value: Option<&Value>,
    name: &'static str,
    most: usize,
    how: Encode,
) -> Result<Vec<(String, Vec<TokenId>)>, ApiError> {
    let wrong = || ApiError::about(name, format!("{name} must be a text, tokens, or a list of these"));
    let one = |value: &Value| -> Result<(String, Vec<TokenId>), ApiError> {
        match value {
            Value::String(text) => {
                let ids = text::encode(service.tokenizer, text.as_bytes(), how);
                Ok((text.clone(), ids.map_err(|error| ApiError::about(name, error.to_string()))?))
            }
            Value::Array(ids) => {
                let id = |id: &Value| id.as_u64().filter(|id| (*id as usize) < service.vocab).map(|id| id as TokenId);
                Ok((String::new(), ids.iter().map(id).collect::<Option<_>>().ok_or_else(wrong)?))
            }
            _ => Err(wrong()),
        }
    };
    match value {
        Some(Value::Array(list)) if !list.is_empty() && !list[0].is_number() => {
            few(name, list, most)?;
            list.iter().map(one).collect()
        }
        Some(value) => Ok(vec![one(value)?]),
        None => Err(wrong()),
    }
}
