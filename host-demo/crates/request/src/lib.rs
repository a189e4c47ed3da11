//! A request for text: a prompt or a conversation, and how to answer it.
//!
//! The interfaces of the server, batches and `arenite_run::Loaded` all convert their requests to a [`TextRequest`]. It
//! has no field names of any interface, so that the meaning of a request is decided in one place. If a later error
//! needs the name of a field, the name is stored with the value ([`Named`]).
//!
//! | file | |
//! |---|---|
//! | `lib` | the request, and the form of its answer |
//! | `message` | messages and calls, and their JSON |
//! | `content` | the content of a message |
//! | `picture`, `document` | pictures and text files in it |
//! | `sampling`, `order` | the sampler's parameters, and the order of its steps |
//! | `refusal` | reasons why a request is refused |
//!
//! ```
//! use arenite::sampler::Params;
//! use arenite_request::{Input, Message, Sampling, TextRequest};
//!
//! let input = Input::Chat(vec![Message::new("user", "Tell a story.")]);
//! let sampling = Sampling { temperature: Some(0.2), ..Sampling::default() };
//! let request = TextRequest { input, sampling, limit: Some(100), ..TextRequest::default() };
//! let params = request.sampling.params(&Params::DEFAULT).unwrap(); // an error if a value is out of range
//! assert_eq!((params.temperature, params.top_k), (0.2, Params::DEFAULT.top_k));
//! ```

mod content;
mod document;
mod message;
mod order;
mod picture;
mod refusal;
mod sampling;

use std::time::Duration;

use arenite::TokenId;
use serde_json::{Map, Value};

pub use content::Content;
pub use document::{heading, text_of_file};
pub use message::{EarlierCall, Message, function, text_of};
pub use order::Samplers;
pub use picture::{MOST_PICTURES, Picture, PictureSource};
pub use refusal::{Refusal, RefusalKind};
pub use sampling::Sampling;

/// Maximum number of answers to one request.
pub const MOST_CHOICES: usize = 128;

/// A value of a request, with the name that its field has in the client's interface.
#[derive(Clone, Debug, PartialEq)]
pub struct Named<T> {
    /// The field's name.
    pub field: &'static str,
    /// The value.
    pub value: T,
}

/// A request for text.
#[derive(Clone, Debug, Default)]
pub struct TextRequest {
    /// The model's name; `None` for the only one.
    pub model: Option<String>,
    /// The text to continue or to answer.
    pub input: Input,
    /// Tokens before the rendered conversation.
    pub context: Vec<TokenId>,
    /// True if the last message is an answer that is to be continued.
    pub continues: bool,
    /// True if the prompt has no start of an answer. This is used only for prompts that are counted or shown.
    pub is_closed: bool,
    /// The functions that clients declare, in the notation of templates (see [`function`]).
    pub tools: Vec<Value>,
    /// The functions that may or must be called.
    pub choice: ToolChoice,
    /// True if an answer may have several calls; the default is true.
    pub is_parallel: Option<bool>,
    /// The constraint of the answer.
    pub form: Option<Named<Form>>,
    /// The settings of thoughts.
    pub thinking: Thinking,
    /// Further variables of the template.
    pub arguments: Map<String, Value>,
    /// The sampler's parameters.
    pub sampling: Sampling,
    /// Biases of tokens' logits.
    pub bias: Vec<(Biased, f32)>,
    /// The seed; `None` for a random one.
    pub seed: Option<u64>,
    /// Number of answers to each prompt; the default is 1.
    pub count: Option<usize>,
    /// Maximum number of tokens of the answer; `None` for no limit.
    pub limit: Option<usize>,
    /// Number of tokens before an end is allowed.
    pub min_tokens: usize,
    /// Texts that end the answer.
    pub stops: Vec<String>,
    /// Tokens that end the answer, in addition to the vocabulary's end tokens.
    pub stop_ids: Vec<TokenId>,
    /// Number of alternatives reported with each token; `None` if no log-probabilities are reported.
    pub logprobs: Option<usize>,
    /// True if the answer begins with the prompt.
    pub echo: bool,
    /// Part of a long prompt that is kept.
    pub keep: Keep,
    /// True if the prompt is only counted or shown. The prompt may then be longer than the context.
    pub is_counted: bool,
    /// True if end tokens do not end the answer.
    pub ignore_end: bool,
    /// Minimum indentation of the lines after the first one.
    pub indent: usize,
    /// Time after which the next line break ends the answer.
    pub time: Option<Duration>,
    /// Number of tokens at the start that are kept when the context is full; a negative number keeps the whole prompt.
    pub n_keep: i64,
    /// Number of tokens that are dropped when the context is full; 0 drops half of the tokens that may be dropped.
    pub n_discard: usize,
    /// Minimum length of a run of equal tokens that is reused from an earlier conversation although its positions
    /// differ; `None` for the default length.
    pub reuse: Option<usize>,
    /// True if no cached context is used.
    pub reads_anew: bool,
    /// The number of the slot that keeps the conversation; `None` for any slot.
    pub slot: Option<usize>,
    /// The adapters of the request, by number, with their scales. `None` for the default scales.
    pub lora: Option<Vec<(usize, f32)>>,
}

/// The text to continue or to answer.
#[derive(Clone, Debug)]
pub enum Input {
    /// Texts that are continued.
    Texts(Vec<Prompt>),
    /// A conversation whose last message is answered.
    Chat(Vec<Message>),
    /// A gap in a text.
    Infill(Infill),
}

/// A text that is continued.
#[derive(Clone, Debug)]
pub enum Prompt {
    /// A text.
    Text(String),
    /// Tokens.
    Tokens(Vec<TokenId>),
    /// Texts and tokens, one after the other.
    Mixed(Vec<Prompt>),
    /// A text with pictures.
    Seen(Content),
}

/// A gap in a text that is filled in.
#[derive(Clone, Debug, Default)]
pub struct Infill {
    /// The text before the gap, with the name of its field.
    pub prefix: Option<Named<String>>,
    /// The text after the gap.
    pub suffix: Option<Named<String>>,
    /// The start of the text in the gap.
    pub start: String,
    /// Names and texts of other files.
    pub files: Vec<(String, String)>,
}

/// The functions that may or must be called.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolChoice {
    /// The functions that must be called.
    pub must: Must,
    /// Names of the functions that may be called; `None` for all.
    pub allowed: Option<Vec<String>>,
}

/// The functions that must be called.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Must {
    /// The model chooses.
    #[default]
    Auto,
    /// The model sees no functions.
    Never,
    /// At least one.
    Any,
    /// This function.
    Named(String),
}

/// The constraint of an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Form {
    /// A value that matches a JSON schema.
    Schema(Value),
    /// A grammar in GBNF.
    Gbnf(String),
    /// The answer is one of these texts.
    Choice(Vec<String>),
    /// The whole answer matches this regular expression.
    Pattern(String),
}

/// The thoughts that a request asks for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Thinking {
    /// Turns thoughts on or off.
    pub switch: Option<bool>,
    /// The effort: `none`, `minimal`, `low`, `medium`, `high`, `xhigh`, `max` or another word of the template.
    pub effort: Option<String>,
    /// Maximum number of tokens of a thought; a negative number means no limit.
    pub budget: Option<i64>,
    /// The first field that turned thoughts on.
    pub field: Option<&'static str>,
    /// True if a model that does not think must refuse a request that turns thoughts on.
    pub is_required: bool,
    /// True if thoughts are left out of the answer.
    pub is_hidden: bool,
}

impl Thinking {
    /// Turns thoughts on or off. If several fields of a request contradict each other, thoughts are off.
    pub fn turn(&mut self, field: &'static str, is_on: bool) {
        self.switch = Some(is_on && self.switch != Some(false));
        if is_on {
            self.field.get_or_insert(field);
        }
    }

    /// Sets the effort, which turns thoughts on or off.
    pub fn try_hard(&mut self, field: &'static str, effort: &str) {
        if effort.is_empty() {
            return;
        }
        if effort != "none" {
            self.field.get_or_insert(field);
        }
        self.effort = Some(effort.into());
    }

    /// Returns true if the request asks for no thoughts.
    pub fn is_off(&self) -> bool {
        self.switch == Some(false) || self.effort.as_deref() == Some("none") || self.budget == Some(0)
    }

    /// Returns true if the request asks for thoughts.
    pub fn is_on(&self) -> bool {
        !self.is_off() && (self.switch.is_some() || self.effort.is_some())
    }
}

/// The token or tokens of a bias.
#[derive(Clone, Debug, PartialEq)]
pub enum Biased {
    /// A token.
    Token(TokenId),
    /// All tokens of a text.
    Text(String),
}

/// Part of a long prompt that is kept: the end of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keep {
    /// All; a prompt that is too long is an error.
    #[default]
    All,
    /// As many tokens as fit.
    Fitting,
    /// This number of tokens.
    Last(usize),
}

impl Default for Input {
    fn default() -> Self {
        Self::Texts(Vec::new())
    }
}

impl TextRequest {
    /// Returns the messages of a conversation.
    pub fn messages(&self) -> &[Message] {
        match &self.input {
            Input::Chat(messages) => messages,
            _ => &[],
        }
    }

    /// Returns the schema that constrains the answer.
    pub fn schema(&self) -> Option<(&'static str, &Value)> {
        match self.form.as_ref()? {
            Named { field, value: Form::Schema(schema) } => Some((field, schema)),
            _ => None,
        }
    }

    /// Returns the number of tokens at the start of a prompt that are kept, if the context has room for `room` tokens.
    pub fn kept_tokens(&self, room: usize) -> usize {
        match self.keep {
            Keep::All => usize::MAX,
            Keep::Fitting => room,
            Keep::Last(count) => count,
        }
    }
}
