//! A model for programs: it continues texts, holds conversations, generates JSON that matches a schema, and computes
//! embeddings and rankings.
//!
//! [`Loaded`] owns the model's file, its memory and the thread that runs it. Several threads can use the same
//! [`Loaded`] at the same time. An answer depends neither on other answers nor on the machine, only on its request and
//! seed.

mod answer;
mod request;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use anyhow::{Context, Result, anyhow, ensure};
use arenite::tokenizer::Encode;
use arenite::{Gguf, TokenId};
use serde::de::DeserializeOwned;
use serde_json::Value;

pub use answer::{Answer, AnswerEnd};
pub use request::{Message, Request, Role};

use crate::classes::{Class, Labels};
use crate::model_file::{ModelFile, Source};
use crate::open_model::OpenModel;
use crate::ranking::{Pairing, Texts};
use crate::runtime::RunOptions;
use crate::scheduler::{Asker, Client, Command, Counters, Decision, Embedding, Event, Job};
use crate::service::{AnswerError, Fields, Host, Kept, MOST_QUESTIONS, Pairs, Service, by_chance, run_engine, unit};
use arenite_request::{Keep, Prompt, Refusal};

/// A loaded model. Dropping it frees its memory and closes its file.
///
/// # Examples
///
/// ```
/// use arenite_run::{Loaded, Request, RunOptions};
///
/// let model = Loaded::open("../../../tests/fixtures/stories.gguf", RunOptions::default())?;
/// let request = Request::from("One day, a little fox").max_tokens(20).seed(7);
/// for text in model.generate(request)? {
///     print!("{}", text?); // as it is generated, in whole characters
/// }
/// # Ok::<(), arenite_run::Error>(())
/// ```
pub struct Loaded {
    service: Service,
    /// `None` only during `drop`.
    commands: Option<Sender<Command>>,
    engine: Option<JoinHandle<Result<()>>>,
    /// The process that has the engine's thread.
    process: u32,
}

impl Loaded {
    /// Opens a model file: GGUF, or a llama2.c checkpoint with its tokenizer.
    ///
    /// # Errors
    ///
    /// The file cannot be read, the model is not supported or is a speech model, or there is too little memory.
    pub fn open<'a>(source: impl Into<Source<'a>>, options: RunOptions) -> Result<Self> {
        Self::new(OpenModel::new(ModelFile::open(source)?, options)?)
    }

    /// Plans the memory of an opened model, and starts its thread.
    ///
    /// # Errors
    ///
    /// The model is a speech model, or there is too little memory.
    pub fn new(open: OpenModel) -> Result<Self> {
        ensure!(
            open.model().spec().sound().is_none(),
            "{}: this is a speech model, which generates no texts: open a language model",
            open.name()
        );
        let Host { open, plan, drafting, mut service } = Host::new(open, false)?;
        service.decides_any = true;
        let (commands, asked) = channel();
        let (ready, is_ready) = channel();
        let counters = Arc::new(Counters::default());
        let run = move || run_engine(&open, (plan, drafting), Kept::Nothing, counters, &asked, || _ = ready.send(()));
        let engine = std::thread::Builder::new().name("engine".into()).spawn(run)?;
        if is_ready.recv().is_ok() {
            return Ok(Self { service, commands: Some(commands), engine: Some(engine), process: std::process::id() });
        }
        let ended = engine.join().map_err(|_| anyhow!("the engine's thread panicked"))?;
        Err(ended.err().unwrap_or_else(gone))
    }

    /// Continues a text.
    ///
    /// # Errors
    ///
    /// The model generates no text, the prompt does not fit in the context, or a setting is invalid. Errors while the
    /// text is generated come from the [`Answer`].
    pub fn generate(&self, request: impl Into<Request>) -> Result<Answer<'_>> {
        let request = request.into();
        request.must_be_text()?;
        self.begin(&request)
    }

    /// Answers the last message of a conversation, in the model's own chat format. A plain text counts as a message of
    /// the user. The common beginning of two conversations is computed once.
    ///
    /// # Examples
    ///
    /// ```
    /// use arenite_run::{Loaded, Message, Request, RunOptions};
    ///
    /// let model = Loaded::open("../../../tests/fixtures/stories.gguf", RunOptions::default())?;
    /// let mut messages = vec![Message::system("Be brief."), Message::user("Tell a story.")];
    /// let answer = model.chat(Request::from(&messages[..]).max_tokens(10))?.text()?;
    /// messages.extend([Message::assistant(answer), Message::user("Another one!")]);
    /// # Ok::<(), arenite_run::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`generate`](Self::generate), and an error if the chat template refuses the messages.
    pub fn chat(&self, request: impl Into<Request>) -> Result<Answer<'_>> {
        self.begin(&request.into().into_chat())
    }

    /// Like [`generate`](Self::generate); the answer keeps the model alive, so that it can be stored or sent to another
    /// thread.
    ///
    /// # Errors
    ///
    /// The errors of [`generate`](Self::generate).
    pub fn generate_owned(self: Arc<Self>, request: impl Into<Request>) -> Result<Answer<'static>> {
        let request = request.into();
        request.must_be_text()?;
        Ok(self.begin(&request)?.keeping(self))
    }

    /// Like [`chat`](Self::chat); the answer keeps the model alive, so that it can be stored or sent to another thread.
    ///
    /// # Errors
    ///
    /// The errors of [`chat`](Self::chat).
    pub fn chat_owned(self: Arc<Self>, request: impl Into<Request>) -> Result<Answer<'static>> {
        Ok(self.begin(&request.into().into_chat())?.keeping(self))
    }

    /// Generates a value that matches a JSON schema: as an answer in the model's chat format if the model has one,
    /// otherwise as a continuation of the text.
    ///
    /// # Examples
    ///
    /// ```
    /// use arenite_run::{Loaded, RunOptions};
    ///
    /// let model = Loaded::open("../../../tests/fixtures/stories.gguf", RunOptions::default())?;
    /// let schema = r#"{"type": "array", "items": {"enum": ["cat", "dog"]}, "minItems": 2, "maxItems": 3}"#;
    /// let pets: Vec<String> = model.json("Her pets were", schema)?;
    /// assert!(pets.len() <= 3 && pets.iter().all(|pet| ["cat", "dog"].contains(&pet.as_str())));
    /// # Ok::<(), arenite_run::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`generate`](Self::generate), and an error if the schema is invalid, if the context or
    /// `max_tokens` ends before the value is complete, or if the value is not a `T`.
    pub fn json<T: DeserializeOwned>(&self, request: impl Into<Request>, schema: &str) -> Result<T> {
        let mut answer = self.begin_json(request.into(), schema)?;
        let text = answer.by_ref().collect::<Result<String>>()?;
        answer.must_be_whole()?;
        serde_json::from_str(&text).with_context(|| format!("the answer is not of this type: {text}"))
    }

    /// Like [`json`](Self::json), but returns the text of the value while it is generated. After the end,
    /// [`Answer::must_be_whole`] tells whether the value is complete.
    ///
    /// # Errors
    ///
    /// The errors of [`json`](Self::json) before the value begins.
    pub fn json_owned(self: Arc<Self>, request: impl Into<Request>, schema: &str) -> Result<Answer<'static>> {
        Ok(self.begin_json(request.into(), schema)?.keeping(self))
    }

    fn begin_json(&self, request: Request, schema: &str) -> Result<Answer<'static>> {
        let request = request.json_schema(serde_json::from_str(schema).context("the schema is not JSON")?);
        self.begin(&if self.service.renderer.has_own_format() { request.into_chat() } else { request })
    }

    /// Embeds a text. The vector has length 1.
    ///
    /// # Errors
    ///
    /// The model makes no embeddings, or the text does not fit in its context.
    pub fn embed(&self, text: &str) -> Result<Vec<f32>> {
        self.embed_many(&[text])?.pop().context("there is no embedding")
    }

    /// Embeds several texts at once, which takes less time than embedding them one after another. Each vector has
    /// length 1.
    ///
    /// # Errors
    ///
    /// The errors of [`embed`](Self::embed).
    pub fn embed_many(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
        self.embed_within(texts, None)
    }

    /// Like [`embed_many`](Self::embed_many), but embeds only the beginning of a text that does not fit in the context.
    /// Special tokens at its end stay.
    ///
    /// # Errors
    ///
    /// The model makes no embeddings.
    pub fn embed_beginnings(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
        self.embed_within(texts, Some(self.context()))
    }

    fn embed_within(&self, texts: &[&str], limit: Option<usize>) -> Result<Vec<Vec<f32>>> {
        self.service.check_vectors().map_err(refused)?;
        let mut inputs = Vec::new();
        for text in texts {
            inputs.extend(self.service.texts("text", &[Prompt::Text(text.to_string())], limit).map_err(refused)?);
        }
        Ok(self.vectors(inputs)?.iter().map(|vector| unit(vector)).collect())
    }

    /// Splits a text into tokens, and adds the special tokens that the model has at the start and end of a text.
    ///
    /// # Errors
    ///
    /// The model has no vocabulary.
    pub fn tokenize(&self, text: &str) -> Result<Vec<TokenId>> {
        let how = Encode { add_special: true, parse_special: false };
        arenite_text::encode(self.service.open.vocabulary()?, text.as_bytes(), how)
    }

    /// Returns the text of tokens. Bytes that are not UTF-8 become U+FFFD.
    ///
    /// # Errors
    ///
    /// The model has no vocabulary, or a token is outside of it.
    pub fn detokenize(&self, tokens: &[TokenId]) -> Result<String> {
        let bytes = arenite_text::decode(self.service.open.vocabulary()?, tokens)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Returns the number of tokens that fit in the context of one text or conversation.
    pub fn context(&self) -> usize {
        self.service.context
    }

    /// The model's file.
    pub fn gguf(&self) -> &Gguf<'_> {
        self.service.open.gguf()
    }

    /// Classifies a text with a classifier, the most probable class first.
    ///
    /// # Errors
    ///
    /// The model is not a classifier, or the text does not fit in its context.
    pub fn classify(&self, text: &str) -> Result<Vec<Class>> {
        self.classified(self.service.texts("text", &[Prompt::Text(text.into())], None))
    }

    /// Like [`classify`](Self::classify), for tokens, which are used exactly as given.
    ///
    /// # Errors
    ///
    /// Same as [`classify`](Self::classify).
    pub fn classify_tokens(&self, tokens: &[TokenId]) -> Result<Vec<Class>> {
        self.classified(self.service.texts("tokens", &[Prompt::Tokens(tokens.into())], None))
    }

    /// Like [`classify`](Self::classify), for a pair of texts: a classifier of entailment compares the second text with
    /// the first.
    ///
    /// # Errors
    ///
    /// Same as [`classify`](Self::classify).
    pub fn classify_pair(&self, text: &str, second: &str) -> Result<Vec<Class>> {
        let (gguf, tokenizer) = (self.service.open.gguf(), self.service.tokenizer());
        let pair = Pairing::new(gguf, tokenizer)?.pair(tokenizer, text, second, None)?;
        self.classified(self.service.fitting("text", "the pair of texts", pair).map(|pair| vec![pair]))
    }

    fn classified(&self, texts: Result<Vec<Texts>, Refusal>) -> Result<Vec<Class>> {
        let labels = Labels::new(self.service.open.gguf(), self.service.open.model())?;
        let outputs = self.vectors(texts.map_err(refused)?)?;
        Ok(labels.classes(outputs.first().context("there is no output")?))
    }

    /// Scores the relevance of each document to a query, with a reranker model.
    ///
    /// # Errors
    ///
    /// The model is not a reranker, or a pair of query and document does not fit in its context.
    pub fn rerank(&self, query: &str, documents: &[&str]) -> Result<Vec<f64>> {
        let mut inputs = Vec::new();
        for document in documents {
            let texts = &[document.to_string()];
            let pairs = Pairs { query, field: "documents", texts, keep: Keep::All, most_tokens: None };
            inputs.extend(self.service.pairs(&pairs).map_err(refused)?);
        }
        let ranking = self.service.ranking.as_ref().context("the model does not rank")?;
        Ok(self.vectors(inputs)?.iter().map(|vector| ranking.score(vector)).collect())
    }

    /// Answers questions about a state without generating text. Each answer has a probability. Questions and answers
    /// have the form of llama.cpp's `/v1/systemone`: `choice` has options, `score` has a scale, and `noul` is yes or
    /// no. A model that is not trained for decisions answers by the probabilities of the options' texts.
    ///
    /// # Examples
    ///
    /// ```
    /// use arenite_run::{Loaded, RunOptions, Value};
    ///
    /// let model = Loaded::open("../../../tests/fixtures/stories.gguf", RunOptions::default())?;
    /// let questions = r#"{"pet": {"type": "choice", "instructions": "Who barks?", "criteria": {"cat": null, "dog": null}}}"#;
    /// let answer = model.decide(&"Tim had two pets.".into(), &questions.parse()?)?;
    /// let probabilities = &answer["answers"]["pet"]["probabilities"];
    /// assert!((probabilities["cat"].as_f64().unwrap() + probabilities["dog"].as_f64().unwrap() - 1.0).abs() < 1e-9);
    /// # Ok::<(), arenite_run::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The model generates no text, a question is invalid, or a prompt does not fit in the context.
    pub fn decide(&self, state: &Value, questions: &Value) -> Result<Value> {
        self.decided(Fields { state: Some(state), questions: Some(questions), ..Fields::default() })
    }

    /// Answers the same questions about each of several states, like [`decide`](Self::decide). The prompts of a
    /// question share all tokens before the state, so that a further state costs little more than its own tokens. A
    /// model that is not trained for decisions gets the question before the state, so its answers may differ from those
    /// of `decide`.
    ///
    /// # Errors
    ///
    /// Same as [`decide`](Self::decide).
    pub fn decide_each(&self, states: &[Value], questions: &Value) -> Result<Vec<Value>> {
        let count = questions.as_object().map_or(1, serde_json::Map::len).max(1);
        let mut answers = Vec::new();
        for states in states.chunks((MOST_QUESTIONS / count).max(1)) {
            let states = Value::from(states);
            let fields = Fields { states: Some(&states), questions: Some(questions), ..Fields::default() };
            match self.decided(fields)?["answers"].take() {
                Value::Array(more) => answers.extend(more),
                one => answers.push(one),
            }
        }
        Ok(answers)
    }

    fn decided(&self, fields: Fields<'_>) -> Result<Value> {
        let mut decisions = self.service.decisions(fields).map_err(refused)?;
        let (answer, scores) = channel();
        let (readings, lora) = (decisions.take_readings(), self.service.lora.usual(None));
        self.send(Command::Decide(Decision { readings, scope: None, lora, answer: Box::new(answer) }))?;
        let scores = scores.recv().map_err(|_| gone())?.map_err(anyhow::Error::msg)?;
        self.service.decided(&decisions, scores).map_err(refused)
    }

    /// Sends a request to the engine. The caller either limits the answer to the lifetime of the model, or gives the
    /// model to the answer.
    fn begin(&self, request: &Request) -> Result<Answer<'static>> {
        request.must_have_messages()?;
        let prepared = self.service.jobs(&request.request, by_chance());
        let mut prepared = prepared.map_err(refused)?;
        prepared.warning.iter().for_each(|warning| log::warn!("warning: {warning}"));
        let (prompt, settings, seed) = prepared.jobs.pop().context("the request has no prompt")?;
        let (events, inbox) = channel();
        let client = Box::new(Reader { events, is_gone: Arc::default() });
        let is_gone = client.is_gone.clone();
        let job = Job { prompt, settings, seed, client, asker: Asker::default(), scope: None };
        self.send(Command::Generate(Box::new(job)))?;
        Ok(Answer::new(prepared, inbox, is_gone))
    }

    fn vectors(&self, inputs: Vec<Texts>) -> Result<Vec<Vec<f32>>> {
        let send = |texts| {
            let (answer, vector) = channel();
            let lora = self.service.lora.usual(None);
            self.send(Command::Embed(Embedding { texts, client: 0, lora, answer: Box::new(answer) }))?;
            Ok(vector)
        };
        let sent = inputs.into_iter().map(send).collect::<Result<Vec<_>>>()?;
        sent.into_iter().map(|vector| vector.recv().map_err(|_| gone())?.map_err(anyhow::Error::msg)).collect()
    }

    fn send(&self, command: Command) -> Result<()> {
        ensure!(
            self.is_here(),
            "this process was forked after the model was opened, so it lacks the model's threads: open the model in \
             each process, or start processes without fork (in Python: multiprocessing's method `spawn`)"
        );
        self.commands.as_ref().and_then(|commands| commands.send(command).ok()).ok_or_else(gone)
    }
}

impl Loaded {
    /// False in a process that was forked after the model was opened: a fork copies only the thread that calls it.
    fn is_here(&self) -> bool {
        self.process == std::process::id()
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        let (commands, engine) = (self.commands.take(), self.engine.take());
        if !self.is_here() {
            std::mem::forget(commands); // the channel may have been locked when the process was forked
            return;
        }
        // Drop the sender first, because the engine ends when all senders are dropped. There are no more answers,
        // because answers borrow from `self`.
        drop(commands);
        if let Some(engine) = engine {
            let _ = engine.join(); // the answers have reported the engine's error
        }
    }
}

/// The reader of an answer.
struct Reader {
    events: Sender<Event>,
    is_gone: Arc<AtomicBool>,
}

impl Client for Reader {
    fn send(&self, event: Event) {
        let _ = self.events.send(event); // `is_closed` tells that the reader has gone
    }

    fn is_closed(&self) -> bool {
        self.is_gone.load(Ordering::Relaxed)
    }
}

fn failed(error: AnswerError) -> anyhow::Error {
    match error {
        AnswerError::Failed(message) => anyhow::Error::msg(message),
        AnswerError::Overflow => anyhow!("there is no memory for the rest of the answer"),
    }
}

fn refused(refusal: Refusal) -> anyhow::Error {
    anyhow::Error::msg(refusal.message)
}

fn gone() -> anyhow::Error {
    anyhow!("the engine has stopped")
}
