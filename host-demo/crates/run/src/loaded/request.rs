//! Requests: a text or a conversation, and the settings of its answer.

use std::sync::Arc;

use anyhow::{Result, ensure};
use arenite::TokenId;
use arenite::sampler::Params;
use serde_json::Value;

use arenite_request::{Biased, Content, Form, Input, Named, Picture, PictureSource, Prompt, Sampling, TextRequest};

/// A text or a conversation, and the settings of its answer.
///
/// Without settings, an answer is sampled in the same way as by `arenite generate`, with a random seed, and ends with
/// the model's end token.
///
/// # Examples
///
/// ```
/// use arenite_run::{Message, Request};
///
/// let text = Request::from("The sea").max_tokens(50).temperature(0.0).stop("\n");
/// let conversation = Request::from(&[Message::system("Be brief."), Message::user("What is the sea?")][..]).seed(7);
/// ```
#[derive(Clone, Debug)]
pub struct Request {
    pub(super) request: TextRequest,
}

/// A message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The author.
    pub role: Role,
    /// The text.
    pub content: String,
    /// The bytes of picture files (PNG, JPEG, WebP, GIF or BMP). The pictures come before the text.
    pub pictures: Vec<Arc<[u8]>>,
}

/// The author of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Instructions for the whole conversation.
    System,
    /// The user.
    User,
    /// The model.
    Assistant,
}

impl Role {
    /// The name in chat templates.
    pub fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
        }
    }
}

impl Message {
    fn new(role: Role, content: impl Into<String>) -> Self {
        Self { role, content: content.into(), pictures: Vec::new() }
    }

    /// Adds the bytes of a picture file, for a model that reads pictures (see
    /// [`Source::projector`](crate::model_file::Source::projector)).
    #[must_use]
    pub fn picture(mut self, file: impl Into<Arc<[u8]>>) -> Self {
        self.pictures.push(file.into());
        self
    }

    /// The message of a request.
    fn asked(&self) -> arenite_request::Message {
        let picture = |file: &Arc<[u8]>| Picture { at: 0, source: PictureSource::File(file.clone()) };
        let pictures = self.pictures.iter().map(picture).collect();
        arenite_request::Message::with_content(self.role.name(), Content { pictures, ..self.content.clone().into() })
    }

    /// Instructions for the whole conversation.
    pub fn system(content: impl Into<String>) -> Self {
        Self::new(Role::System, content)
    }

    /// A message of the user.
    pub fn user(content: impl Into<String>) -> Self {
        Self::new(Role::User, content)
    }

    /// An answer of the model.
    pub fn assistant(content: impl Into<String>) -> Self {
        Self::new(Role::Assistant, content)
    }
}

impl From<&str> for Request {
    fn from(prompt: &str) -> Self {
        Input::Texts(vec![Prompt::Text(prompt.into())]).into()
    }
}

impl From<String> for Request {
    fn from(prompt: String) -> Self {
        prompt.as_str().into()
    }
}

impl From<&[Message]> for Request {
    fn from(messages: &[Message]) -> Self {
        Input::Chat(messages.iter().map(Message::asked).collect()).into()
    }
}

/// Makes a request from all settings that a client of the server can use.
impl From<TextRequest> for Request {
    fn from(request: TextRequest) -> Self {
        Self { request }
    }
}

impl From<Input> for Request {
    fn from(input: Input) -> Self {
        let sampling = Sampling { temperature: Some(Params::DEFAULT.temperature), ..Sampling::default() };
        Self { request: TextRequest { input, sampling, ..TextRequest::default() } }
    }
}

impl Request {
    /// Ends the answer after `count` tokens.
    #[must_use]
    pub fn max_tokens(mut self, count: usize) -> Self {
        self.request.limit = Some(count);
        self
    }

    /// Sets the temperature. At 0, the most likely token is always chosen. The default is 0.8.
    #[must_use]
    pub fn temperature(mut self, temperature: f32) -> Self {
        self.request.sampling.temperature = Some(temperature);
        self
    }

    /// Samples only from the most likely tokens whose probabilities together reach `p`. The default is 0.95; 1 disables
    /// this step.
    #[must_use]
    pub fn top_p(mut self, p: f32) -> Self {
        self.request.sampling.top_p = Some(p);
        self
    }

    /// Samples from the `count` most likely tokens. The default is 40; 0 disables this step.
    #[must_use]
    pub fn top_k(mut self, count: u32) -> Self {
        self.request.sampling.top_k = Some(count.into());
        self
    }

    /// Samples only from tokens whose probability is at least `p` times that of the most likely token. The default is
    /// 0.05; 0 disables this step.
    #[must_use]
    pub fn min_p(mut self, p: f32) -> Self {
        self.request.sampling.min_p = Some(p);
        self
    }

    /// Subtracts `penalty` from the logit of a recent token for each of its occurrences. The default is 0.
    #[must_use]
    pub fn frequency_penalty(mut self, penalty: f32) -> Self {
        self.request.sampling.frequency_penalty = Some(penalty);
        self
    }

    /// Subtracts `penalty` once from the logit of each recent token. The default is 0.
    #[must_use]
    pub fn presence_penalty(mut self, penalty: f32) -> Self {
        self.request.sampling.presence_penalty = Some(penalty);
        self
    }

    /// Divides positive logits of recent tokens by `penalty`, and multiplies their negative logits by `penalty`, so
    /// that these tokens are repeated less often. The default is 1.
    #[must_use]
    pub fn repeat_penalty(mut self, penalty: f32) -> Self {
        self.request.sampling.repeat_penalty = Some(penalty);
        self
    }

    /// Adds `bias` to the logit of a token.
    #[must_use]
    pub fn logit_bias(mut self, token: TokenId, bias: f32) -> Self {
        let bias = if bias <= -100.0 { f32::NEG_INFINITY } else { bias.min(f32::MAX) };
        self.request.bias.push((Biased::Token(token), bias));
        self
    }

    /// Sets the seed: the same request with the same seed has the same answer.
    #[must_use]
    pub fn seed(mut self, seed: u32) -> Self {
        self.request.seed = Some(seed.into());
        self
    }

    /// Ends the answer before the first occurrence of `text`. This function may be called several times.
    #[must_use]
    pub fn stop(mut self, text: impl Into<String>) -> Self {
        self.request.stops.push(text.into());
        self
    }

    /// Constrains the answer by a grammar. The grammar is written in GBNF, the notation of llama.cpp.
    #[must_use]
    pub fn grammar(mut self, gbnf: impl Into<String>) -> Self {
        self.request.form = Some(Named { field: "grammar", value: Form::Gbnf(gbnf.into()) });
        self
    }

    /// Constrains the answer to a value that matches a JSON schema. [`Loaded::json`](super::Loaded::json) returns the
    /// value.
    #[must_use]
    pub fn json_schema(mut self, schema: Value) -> Self {
        self.request.form = Some(Named { field: "schema", value: Form::Schema(schema) });
        self
    }

    /// Adds the bytes of a picture file to a text: the picture takes the place of the model's marker for pictures in
    /// the text, or comes before the text. In a conversation, [`Message::picture`] adds a picture to a message.
    #[must_use]
    pub fn picture(mut self, file: impl Into<Arc<[u8]>>) -> Self {
        let picture = Picture { at: 0, source: PictureSource::File(file.into()) };
        match &mut self.request.input {
            Input::Texts(texts) => {
                for prompt in texts {
                    if let Prompt::Text(text) = prompt {
                        *prompt = Prompt::Seen(std::mem::take(text).into());
                    }
                    if let Prompt::Seen(content) = prompt {
                        content.pictures.push(picture.clone());
                    }
                }
            }
            Input::Chat(messages) => {
                let last = messages.last_mut().into_iter();
                last.for_each(|message| message.pictures.insert(0, picture.clone()));
            }
            Input::Infill(_) => {}
        }
        self
    }

    pub(super) fn has_messages(&self) -> bool {
        matches!(self.request.input, Input::Chat(_))
    }

    /// Converts a text to a message of the user.
    pub(super) fn into_chat(mut self) -> Self {
        if let Input::Texts(texts) = &self.request.input {
            let message = match &texts[..] {
                [Prompt::Text(text)] => arenite_request::Message::new("user", text),
                [Prompt::Seen(content)] => arenite_request::Message::with_content("user", content.clone()),
                _ => return self,
            };
            self.request.input = Input::Chat(vec![message]);
        }
        self
    }

    /// Refuses an empty conversation, which templates would answer.
    pub(super) fn must_have_messages(&self) -> Result<()> {
        ensure!(!matches!(&self.request.input, Input::Chat(messages) if messages.is_empty()), "there are no messages");
        Ok(())
    }

    /// Refuses a conversation.
    pub(super) fn must_be_text(&self) -> Result<()> {
        ensure!(!self.has_messages(), "a conversation cannot be continued as a text: use `chat`");
        Ok(())
    }
}
