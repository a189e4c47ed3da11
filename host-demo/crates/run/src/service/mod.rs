//! A model with everything that requests need: converts requests to jobs for the scheduler, and events to answers.
//!
//! | file | |
//! |---|---|
//! | `mod` | requests to jobs |
//! | `host` | the plan of a model for many conversations |
//! | `chats` | prompts and grammars of chats |
//! | `pictures` | pictures in prompts |
//! | `settings` | the settings of an answer |
//! | `grammars` | compiled grammars |
//! | `scales` | scales of adapters |
//! | `texts` | texts to embed and to rank |
//! | `decisions` | questions with a probability for each answer |
//! | `choice` | complete answers |

mod chats;
mod choice;
mod decisions;
mod grammars;
mod host;
mod loosen;
mod pictures;
mod scales;
mod settings;
mod texts;

pub use choice::{AnswerError, Choice, Parts, Splitter};
pub use decisions::{Decisions, Fields, MOST_QUESTIONS};
pub use host::{Host, Kept, by_chance, run_engine};
pub use pictures::Fetch;
pub use texts::{MOST_TEXTS, Pairs, token_count, unit};

use std::sync::Arc;

use arenite::sampler::Params;
use arenite::tokenizer::{Encode, Tokenizer};
use arenite::{Gguf, TokenId};
use serde_json::Value;

use crate::decide::DecisionModel;
use crate::eyes::{Eyes, Shown, Sights};
use crate::generation::{Settings, Shift};
use crate::model_file::ModelFile;
use crate::open_model::OpenModel;
use crate::ranking::Ranking;
use arenite_chat::dialect::{Template, Tools};
use arenite_chat::{Reader, Renderer, Style};
use arenite_pictures::Limits;
use arenite_request::{Infill, Input, MOST_CHOICES, Prompt, Refusal, TextRequest};
use arenite_text as text;
pub use scales::LoraScales;
use settings::settings;

/// Endpoints of text requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    Chat,
    Completions,
    Embeddings,
}

impl Endpoint {
    /// Returns the endpoint for the path of a URL.
    pub fn of(url: &str) -> Option<Self> {
        match url.trim_end_matches('/') {
            "/v1/chat/completions" => Some(Self::Chat),
            "/v1/completions" => Some(Self::Completions),
            "/v1/embeddings" => Some(Self::Embeddings),
            _ => None,
        }
    }
}

/// The model, and everything that requests need from it.
pub struct Service {
    pub open: Arc<OpenModel>,
    pub renderer: Renderer,
    /// Compiles and caches grammars.
    pub grammars: grammars::Grammars,
    /// The model's conversation style.
    pub style: Style,
    /// The sampler's parameters that requests do not set.
    pub params: Params,
    /// Texts that interrupt the repetitions counted by DRY, for requests that do not set such texts.
    pub breakers: Vec<String>,
    /// True if answers continue in a full context; the context then drops tokens.
    pub shifts: bool,
    /// The temperature that the command line sets, if it sets one. It replaces Ollama's default, which differs from the
    /// temperature in `params`.
    pub temperature: Option<f32>,
    /// The model's name in requests and answers.
    pub name: String,
    /// Further names of the model in requests.
    pub aliases: Vec<String>,
    /// Maximum number of positions of a conversation.
    pub context: usize,
    pub vocab: usize,
    /// Maximum number of bytes of text that one token stands for. White space does not count. `None` if the vocabulary
    /// drops other text, too.
    pub token_bytes: Option<usize>,
    /// Number of values in an embedding.
    pub embedding_len: usize,
    /// True if the model generates text.
    pub makes_text: bool,
    /// True if the model embeds texts.
    pub makes_vectors: bool,
    /// The settings for tokenizing pairs of texts, if the model is a reranker.
    pub ranking: Option<Ranking>,
    /// The settings for questions, if the model is trained for decisions.
    pub decisions: Option<DecisionModel>,
    /// True if the model is not trained for decisions and answers questions by the probabilities of the options' texts.
    pub decides_any: bool,
    /// Tokens for fill-in-the-middle. They are before the prefix, before the suffix, and before the text between them.
    pub infill: Option<[TokenId; 3]>,
    /// The largest pictures that are decoded.
    pub limits: Limits,
    /// Downloads pictures that a request gives by their addresses. `None` if such requests are refused.
    pub fetch: Option<Fetch>,
    /// The adapters, and their default scales. The defaults apply to requests that give no scales.
    pub lora: LoraScales,
    pub facts: Facts,
}

/// Properties of the model's file for lists of models.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The architecture's name.
    pub family: String,
    /// The model's name without size and version, if the file has one.
    pub basename: Option<String>,
    /// Number of weights.
    pub parameters: u64,
    pub size_label: String,
    pub quantization: String,
    pub bytes: u64,
    pub fingerprint: u64,
}

impl Facts {
    pub fn new(file: &ModelFile, gguf: &Gguf<'_>) -> Self {
        let text =
            |key: &str| gguf.str("general", key).ok().flatten().map(|text| String::from_utf8_lossy(text).into_owned());
        Self {
            family: text("architecture").unwrap_or_default(),
            basename: text("basename").or_else(|| text("name")).filter(|name| !name.is_empty()),
            parameters: gguf.tensors().map(|tensor| tensor.dims.iter().product::<u64>()).sum(),
            size_label: text("size_label").unwrap_or_default(),
            quantization: quantization(gguf),
            bytes: file.len() as u64,
            fingerprint: gguf.fingerprint(),
        }
    }
}

/// Returns the type of most weights.
fn quantization(gguf: &Gguf<'_>) -> String {
    let mut sizes = std::collections::HashMap::new();
    for tensor in gguf.tensors().filter(|tensor| tensor.dim_count > 1) {
        *sizes.entry(format!("{:?}", tensor.kind)).or_insert(0u64) += tensor.dims.iter().product::<u64>();
    }
    sizes.into_iter().max_by_key(|(_, size)| *size).map(|(name, _)| name.to_uppercase()).unwrap_or_default()
}

/// A request that is ready to be answered.
pub struct Prepared {
    pub endpoint: Endpoint,
    /// A prompt, settings and a seed for each answer.
    pub jobs: Vec<(Arc<[TokenId]>, Arc<Settings>, u64)>,
    /// The text of the prompt of each answer. It is needed to read the answer, because the prompt may have opened a
    /// thought.
    pub prompts: Vec<Arc<str>>,
    /// Number of prompts in the request. The answers in `jobs` are divided evenly among them.
    pub prompt_count: usize,
    /// The functions that may be called.
    pub tools: Arc<Tools>,
    pub echo: bool,
    /// True if the tokens of the prompts are reported before the tokens of the answers.
    pub scores_prompts: bool,
    /// True if a schema constrains the answer, so that the whole answer is content.
    pub is_schema: bool,
    pub is_parallel: bool,
    /// True if thoughts are left out of the answer.
    pub hides_thoughts: bool,
    /// True if the request gives the scales of adapters.
    pub has_lora: bool,
    pub style: Style,
    /// A warning for the client.
    pub warning: Option<String>,
}

impl Prepared {
    /// Adds a warning for the client.
    pub fn warn(&mut self, warning: impl Into<String>) {
        let before = self.warning.take().map(|before| before + "; ").unwrap_or_default();
        self.warning = Some(before + &warning.into());
    }
}

impl Service {
    /// The model's tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer<'_, '_> {
        self.open.tokenizer().unwrap_or_else(|_| unreachable!("a host needs a tokenizer"))
    }

    /// Names of the abilities of the model: Ollama's names, and `rerank`, `decisions` and `transcription`.
    pub fn capabilities(&self) -> Vec<&'static str> {
        let thinks = self.makes_text && self.style.thinks();
        let hears = self.open.model().spec().sound().is_some();
        let all = [
            ("completion", self.makes_text && !hears),
            ("tools", self.makes_text && !hears),
            ("thinking", thinks && !hears),
            ("insert", self.infill.is_some()),
            ("vision", self.makes_text && self.open.eyes().is_some()),
            ("embedding", self.makes_vectors),
            ("rerank", self.ranking.is_some()),
            ("decisions", self.decisions.is_some()),
            ("transcription", hears),
        ];
        all.into_iter().filter(|(_, can)| *can).map(|(name, _)| name).collect()
    }

    /// Refuses a request for another model.
    pub fn check_model(&self, model: Option<&str>) -> Result<(), Refusal> {
        match model {
            None => Ok(()),
            Some(model) if is_any(model) => Ok(()),
            Some(model) if self.aliases.iter().chain([&self.name]).any(|name| is_name(model, name)) => Ok(()),
            Some(model) => Err(Refusal::no_model(model, &self.name)),
        }
    }

    /// Replaces the chat template by the Jinja source `template`. If `template` is `None`, the format `name` replaces
    /// the chat template.
    pub fn use_template(&mut self, name: &str, template: Option<String>) -> anyhow::Result<()> {
        let open = self.open.clone();
        let renderer = Renderer::new(open.gguf(), open.vocabulary()?, name, template)?;
        self.style = Style::of(&renderer, open.vocabulary()?);
        self.renderer = renderer;
        Ok(())
    }

    /// Returns the source of the chat template, or an empty text.
    pub fn source(&self) -> String {
        self.renderer.source().to_string()
    }

    /// Refuses a text whose length proves that it has too many tokens, because tokenizing some megabytes takes a
    /// second.
    pub fn check_len(&self, param: &str, text: &str) -> Result<(), Refusal> {
        let Some(token_bytes) = self.token_bytes.filter(|most| text.len() / most >= self.context) else {
            return Ok(());
        };
        // White space is not counted, because it may have no tokens: some vocabularies drop it beside special tokens.
        let bytes: usize = text.chars().filter(|c| !c.is_whitespace()).map(char::len_utf8).sum();
        let least = bytes / token_bytes;
        match least >= self.context {
            true => Err(Refusal::too_long(param, format_args!("at least {least}"), self.context)),
            false => Ok(()),
        }
    }

    /// Converts a text request to jobs.
    pub fn jobs(&self, request: &TextRequest, seed_by_chance: u64) -> Result<Prepared, Refusal> {
        self.check_model(request.model.as_deref())?;
        if !self.makes_text {
            return Err(Refusal::invalid(match self.open.model().spec().sound().is_some() {
                true => "this model transcribes speech: use /v1/audio/transcriptions",
                false => "this model generates no text, only embeddings (/v1/embeddings)",
            }));
        }
        let choices = request.count.unwrap_or(1);
        let mut settings =
            settings(request, self.tokenizer(), self.vocab, (&self.params, &self.breakers), seed_by_chance)?;
        settings.lora = match &request.lora {
            Some(list) => self.lora.of_request(list)?,
            None => self.lora.usual(None),
        };
        if request.context.iter().any(|id| *id as usize >= self.vocab) {
            return Err(Refusal::about("context", "context names a token that does not exist"));
        }
        let is_chat = matches!(request.input, Input::Chat(_));
        let mut prepared = Prepared {
            endpoint: if is_chat { Endpoint::Chat } else { Endpoint::Completions },
            jobs: Vec::new(),
            prompts: Vec::new(),
            prompt_count: 1,
            tools: Arc::default(),
            echo: request.echo,
            scores_prompts: false,
            is_schema: false,
            is_parallel: request.is_parallel.unwrap_or(true),
            hides_thoughts: request.thinking.is_hidden,
            has_lora: request.lora.is_some(),
            style: self.style.clone(),
            warning: None,
        };
        let prompts = match &request.input {
            Input::Chat(_) => vec![self.chat(request, &mut settings, &mut prepared)?],
            input => {
                settings.table = self.form(request, &mut prepared)?;
                settings.is_json = request.schema().is_some();
                settings.scores_prompt = prepared.echo && settings.logprobs.is_some();
                prepared.scores_prompts = settings.scores_prompt;
                self.prompts(input, request.kept_tokens(0) == usize::MAX, MOST_CHOICES / choices)?
            }
        };
        prepared.prompt_count = prompts.len();
        let seed = settings.seed;
        settings.shift = self.shifts.then(|| {
            // A negative number keeps all of the prompt.
            let keep = usize::try_from(request.n_keep)
                .unwrap_or(prompts.iter().map(|(_, sights)| sights.ids.len()).max().unwrap_or(0));
            let keep = keep.saturating_add(usize::from(self.tokenizer().add_bos()));
            Shift { keep, discard: request.n_discard }
        });
        let usual = self.open.options.reuse;
        (settings.reuse, settings.tells_reuse) = (request.reuse.unwrap_or(usual), usual > 0);
        let settings = Arc::new(settings);
        for (mut text, Sights { mut ids, shown }) in prompts {
            if ids.is_empty() {
                return Err(Refusal::about("prompt", "the prompt is empty"));
            }
            let settings = if shown.is_empty() { settings.clone() } else { with_pictures(&settings, shown)? };
            let is_cut = settings.shown.is_empty();
            let cut = ids.len().saturating_sub(request.kept_tokens(self.context.saturating_sub(1)));
            if cut > 0 && is_cut {
                ids.drain(..cut);
                if prepared.echo {
                    text =
                        String::from_utf8_lossy(&text::decode(self.tokenizer(), &ids).unwrap_or_default()).into_owned();
                }
            }
            // A prompt that is only scored may fill the whole context. A prompt to be answered must leave room for at
            // least one token.
            let room = self.context + usize::from(settings.limit == Some(0));
            if ids.len() >= room && !request.is_counted {
                let param = if is_chat { "messages" } else { "prompt" };
                return Err(Refusal::too_long(param, ids.len(), self.context));
            }
            let (text, ids): (Arc<str>, Arc<[TokenId]>) = (text.into(), ids.into());
            for i in 0..choices {
                prepared.jobs.push((ids.clone(), settings.clone(), seed.wrapping_add(i as u64)));
                prepared.prompts.push(text.clone());
            }
        }
        Ok(prepared)
    }

    /// Returns the texts and tokens of the prompts of a completion, at most `most`. If `is_whole` is true, no prompt is
    /// cut.
    fn prompts(&self, input: &Input, is_whole: bool, most: usize) -> Result<Vec<(String, Sights)>, Refusal> {
        match input {
            Input::Infill(infill) => Ok(vec![(String::new(), self.infill_prompt(infill)?.into())]),
            Input::Texts(prompts) => {
                few("prompt", prompts.len(), most)?;
                let parts = prompts.iter().flat_map(|prompt| match prompt {
                    Prompt::Mixed(parts) => &parts[..],
                    prompt => std::slice::from_ref(prompt),
                });
                for prompt in parts.filter(|_| is_whole) {
                    if let Prompt::Text(text) = prompt {
                        self.check_len("prompt", text)?;
                    }
                }
                prompts.iter().map(|prompt| self.prompt(prompt)).collect()
            }
            Input::Chat(_) => Ok(Vec::new()),
        }
    }

    /// Returns the text and the tokens of a prompt that an answer continues.
    fn prompt(&self, prompt: &Prompt) -> Result<(String, Sights), Refusal> {
        if let Prompt::Seen(content) = prompt {
            let marker = self.open.eyes().map_or("", Eyes::marker);
            let sights = self.sights("prompt", arenite_chat::Prompt::raw(content, marker), true)?;
            return Ok((content.text.clone(), sights));
        }
        self.tokens("prompt", prompt, Encode::PROMPT).map(|(text, ids)| (text, ids.into()))
    }

    /// Returns the text and the tokens of a prompt from the field `name`.
    pub fn tokens(&self, name: &str, prompt: &Prompt, how: Encode) -> Result<(String, Vec<TokenId>), Refusal> {
        match prompt {
            Prompt::Text(text) => {
                let ids = text::encode(self.tokenizer(), text.as_bytes(), how);
                Ok((text.clone(), ids.map_err(|error| Refusal::about(name, error.to_string()))?))
            }
            Prompt::Tokens(ids) => {
                if let Some(id) = ids.iter().find(|id| **id as usize >= self.vocab) {
                    let message = format!("{name}: {id} is not a token id: the vocabulary has {} tokens", self.vocab);
                    return Err(Refusal::about(name, message));
                }
                let text = text::decode(self.tokenizer(), ids).unwrap_or_default();
                Ok((String::from_utf8_lossy(&text).into_owned(), ids.clone()))
            }
            Prompt::Mixed(parts) => {
                let (mut text, mut ids) = (String::new(), Vec::new());
                for (at, part) in parts.iter().enumerate() {
                    let how = Encode { add_special: how.add_special && at == 0, ..how };
                    let (more, next) = self.tokens(name, part, how)?;
                    text += &more;
                    ids.extend(next);
                }
                Ok((text, ids))
            }
            Prompt::Seen(_) => Err(Refusal::about(name, "pictures cannot stand here: give texts or tokens")),
        }
    }

    /// Returns the prompt for filling in the text between a prefix and a suffix, with the model's tokens for this
    /// purpose.
    fn infill_prompt(&self, infill: &Infill) -> Result<Vec<TokenId>, Refusal> {
        let Infill { prefix, suffix, start, files } = infill;
        let Some([before, after, middle]) = self.infill else {
            let why = "this model has no tokens for fill-in-the-middle";
            return Err(match suffix {
                Some(suffix) => Refusal::about(suffix.field, format!("{}: {why}", suffix.field)),
                None => Refusal::invalid(why),
            });
        };
        for part in [prefix, suffix].into_iter().flatten() {
            self.check_len(part.field, &part.value)?;
        }
        self.check_len("prompt", start)?;
        let text = |part: &Option<arenite_request::Named<String>>| {
            part.as_ref().map(|part| part.value.clone()).unwrap_or_default()
        };
        let encode = |text: &str| {
            let how = Encode { add_special: false, parse_special: false };
            text::encode(self.tokenizer(), text.as_bytes(), how).map_err(|error| Refusal::invalid(error.to_string()))
        };
        let mut ids = Vec::from_iter(self.tokenizer().bos().filter(|_| self.tokenizer().add_bos()));
        for (name, text) in files {
            ids.extend(encode(&format!("--- {name} ---\n{text}\n"))?);
        }
        ids.push(before);
        ids.extend(encode(&text(prefix))?);
        ids.push(after);
        ids.extend(encode(&text(suffix))?);
        ids.push(middle);
        ids.extend(encode(start)?);
        Ok(ids)
    }
}

impl Prepared {
    /// Returns the number of bytes of memory that the request takes until it ends. The memory of its answers is not
    /// included.
    pub fn bytes(&self) -> usize {
        /// Bytes of a job and of the channel of its events.
        const JOB: usize = 4096;
        let each = self.jobs.len().div_ceil(self.prompt_count.max(1)).max(1);
        let prompts = self.jobs.iter().zip(&self.prompts).step_by(each);
        let prompts: usize = prompts.map(|((ids, ..), text)| size_of_val(&ids[..]) + text.len()).sum();
        let table =
            self.jobs.first().and_then(|(_, settings, _)| settings.table.as_ref()).map_or(0, |table| table.len());
        let tools: usize = self.tools.0.iter().map(|tool| tool.name.len() + bytes_of(&tool.parameters)).sum();
        prompts + self.jobs.len() * JOB + table + tools
    }

    /// Returns a reader that splits an answer into content, thoughts and calls.
    pub fn reader(&self, index: usize) -> Reader {
        let reader = self.style.answer_reader(&self.tools, &self.prompts[index], self.is_schema, self.is_parallel);
        reader.hiding_thoughts(self.hides_thoughts)
    }
}

/// Returns the settings of an answer to a prompt with pictures.
fn with_pictures(settings: &Settings, shown: Shown) -> Result<Arc<Settings>, Refusal> {
    if settings.scores_prompt {
        return Err(Refusal::about(
            "echo",
            "log-probabilities of a prompt with pictures are not reported: leave out echo",
        ));
    }
    // A full context cannot shift here, because it cannot drop a part of a picture.
    Ok(Arc::new(Settings { shown, shift: None, ..settings.clone() }))
}

/// Returns the memory that a JSON value takes, in bytes.
fn bytes_of(value: &Value) -> usize {
    /// Bytes of a value without its elements or text.
    const VALUE: usize = size_of::<Value>();
    /// Bytes of an object's entry without key and value.
    const ENTRY: usize = 64;
    let (mut bytes, mut left) = (0, vec![value]);
    while let Some(value) = left.pop() {
        bytes += VALUE;
        match value {
            Value::Object(members) => {
                bytes += members.keys().map(|key| ENTRY + key.len()).sum::<usize>();
                left.extend(members.values());
            }
            Value::Array(values) => left.extend(values),
            Value::String(text) => bytes += text.len(),
            _ => {}
        }
    }
    bytes
}

/// Returns true if any model may answer a request in which the model has this name. `dummy` is such a name, because
/// huggingface_hub sends it for the model at a URL.
pub fn is_any(asked: &str) -> bool {
    matches!(asked, "" | "default" | "dummy")
}

/// Returns true if a request asks for the model `name`. Ollama's tag may follow the name.
pub fn is_name(asked: &str, name: &str) -> bool {
    asked == name || asked.strip_suffix(":latest") == Some(name)
}

/// Refuses a list that is too long.
pub fn few(name: &str, len: usize, most: usize) -> Result<(), Refusal> {
    match len > most {
        true => {
            let message = format!("{name} has {len} texts, and at most {most} are possible in one request");
            Err(Refusal::about(name, message))
        }
        false => Ok(()),
    }
}
