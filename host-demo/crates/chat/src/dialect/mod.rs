//! Dialects: tables of the ways in which models write thoughts and function calls, and a reader for answers. A
//! *thought* is the reasoning before the content of an answer; a *delimiter* (in code: mark) is a text that begins or
//! ends a thought or a call, such as `<think>`; a *form* is one syntax of thoughts or calls.
//!
//! ```text
//! table     all known forms        marks     delimiters that are tokens
//! reader    an answer, streamed    channels  messages in channels (harmony)
//! syntax    one call or several    literal   values in Python's and Gemma's syntax
//! nested    calls in nested elements
//! loose     JSON with the mistakes of models
//! exact     integers of more than 64 bits
//! tools     declared functions     probe     the forms that a template writes
//! place     where functions stand  write     calls as text
//! form      calls as a grammar
//! gate      the delimiter before a grammar
//! budget    the budget of thoughts
//! ```

mod budget;
mod channels;
pub(crate) mod exact;
mod form;
mod gate;
mod literal;
pub(crate) mod loose;
mod marks;
#[cfg(test)]
mod mistakes;
mod nested;
mod place;
mod probe;
mod reader;
mod step;
mod syntax;
mod table;
#[cfg(test)]
mod templates;
#[cfg(test)]
mod tests;
mod tools;
mod write;

pub use budget::ThoughtBudget;
pub use form::Constraint;
pub use gate::{Gate, GateSettings};
pub use marks::{Marks, plain, shown, unwrapped};
pub use place::{Place, specifications};
pub use probe::{Probe, Template, look};
pub use reader::{Part, Reader};
pub use tools::{Call, Tool, Tools};

/// A syntax of function calls.
#[derive(Clone, Debug)]
pub struct CallForm<S> {
    /// The models that write this form.
    pub family: &'static str,
    /// The delimiter before the first call. Empty if each call begins with a delimiter of its own.
    pub open: S,
    /// The delimiter after the calls. Empty if no delimiter follows them before the end of the answer.
    pub close: S,
    pub syntax: Syntax<S>,
}

/// The notation of a call between the delimiters.
#[derive(Clone, Debug)]
pub enum Syntax<S> {
    /// `{"name": ..., "arguments": ...}`, or a list of these. With empty keys: `{NAME: ARGUMENTS}`.
    Json { name: &'static str, arguments: &'static str, is_list: bool },
    /// `BEFORE NAME BETWEEN {...} AFTER`. Some models write `LEAD IDENTIFIER` before `BEFORE`, or `ID IDENTIFIER` after
    /// the name; for all other models, `lead` and `id` are empty.
    Named { lead: S, before: S, id: S, between: S, after: S },
    /// A call element with one element for each parameter. `pad` surrounds values.
    Tagged { call: Tag<S>, parameter: Tag<S>, pad: &'static str },
    /// Name and arguments without brackets: a name, then pairs of a key and a value. The delimiters in `call` are
    /// written before each call, after the name and after the call; each may be empty.
    Keyed { call: [S; 3], key: (S, S), value: (S, S) },
    /// `[name(key=value), ...]`, also without brackets.
    Python,
    /// `call:NAME{key:value}` with `quote` around texts.
    Braces { quote: S },
    /// A call element with an element named after each parameter. `lead` precedes every tag. The values of a list
    /// are elements named `item`.
    Nested { lead: S, call: Tag<S> },
}

/// The delimiters of an element with a name: `OPEN NAME HEAD ... CLOSE`.
#[derive(Clone, Debug)]
pub struct Tag<S> {
    pub open: S,
    pub head: S,
    pub close: S,
}

/// A syntax of thoughts.
#[derive(Clone, Debug)]
pub struct ThoughtForm<S> {
    pub open: S,
    pub close: S,
    /// The delimiter after the content that follows the thought; may be empty.
    pub end: S,
}

/// The delimiters of messages in channels, as written by gpt-oss and, without channels, by Muse Glimmer.
#[derive(Clone, Debug)]
pub struct Channels<S> {
    pub start: S,
    pub channel: S,
    pub message: S,
    pub ends: [S; 5],
}

/// The forms that a model may use. Delimiters that are tokens of the model's vocabulary are wrapped.
#[derive(Clone, Debug)]
pub struct Dialect {
    pub thoughts: Vec<ThoughtForm<String>>,
    pub calls: Vec<CallForm<String>>,
    pub wrappers: Vec<(String, String)>,
    pub channels: Channels<String>,
    /// True if the model writes messages in channels.
    pub has_channels: bool,
    /// True if calls are messages that name the function as their recipient. In Muse Glimmer's form,
    /// `to=NAME<|message|>` stands before the call.
    pub has_recipients: bool,
    /// The form for answers that must be calls.
    pub own: Own,
}

/// The form in which a model writes forced calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Own {
    /// The index of a form in [`Dialect::calls`].
    Form(usize),
    /// Messages in channels.
    Channels,
}

impl<S> CallForm<S> {
    fn map<T>(&self, to: &dyn Fn(&S) -> T) -> CallForm<T> {
        let tag = |tag: &Tag<S>| Tag { open: to(&tag.open), head: to(&tag.head), close: to(&tag.close) };
        let syntax = match &self.syntax {
            Syntax::Json { name, arguments, is_list } => Syntax::Json { name, arguments, is_list: *is_list },
            Syntax::Named { lead, before, id, between, after } => {
                Syntax::Named { lead: to(lead), before: to(before), id: to(id), between: to(between), after: to(after) }
            }
            Syntax::Tagged { call, parameter, pad } => {
                Syntax::Tagged { call: tag(call), parameter: tag(parameter), pad }
            }
            Syntax::Keyed { call, key, value } => Syntax::Keyed {
                call: call.each_ref().map(to),
                key: (to(&key.0), to(&key.1)),
                value: (to(&value.0), to(&value.1)),
            },
            Syntax::Python => Syntax::Python,
            Syntax::Braces { quote } => Syntax::Braces { quote: to(quote) },
            Syntax::Nested { lead, call } => Syntax::Nested { lead: to(lead), call: tag(call) },
        };
        CallForm { family: self.family, open: to(&self.open), close: to(&self.close), syntax }
    }
}

impl CallForm<String> {
    /// The text with which calls in this form begin. Empty if such calls have no delimiter.
    pub fn trigger(&self) -> &str {
        if !self.open.is_empty() {
            return &self.open;
        }
        match &self.syntax {
            Syntax::Named { before, .. } => before,
            Syntax::Tagged { call, .. } => &call.open,
            _ => "",
        }
    }
}

impl Dialect {
    /// Returns all known forms. Delimiters that are tokens of a vocabulary are wrapped.
    pub fn all(marks: &Marks) -> Self {
        let own = |mark: &&str| marks.resolve(mark);
        let channels = &table::CHANNELS;
        Self {
            thoughts: table::THOUGHTS
                .iter()
                .map(|form| ThoughtForm { open: own(&form.open), close: own(&form.close), end: own(&form.end) })
                .collect(),
            calls: table::CALLS.iter().map(|form| form.map(&own)).collect(),
            wrappers: table::WRAPPERS.iter().map(|(open, close)| (own(open), own(close))).collect(),
            channels: Channels {
                start: own(&channels.start),
                channel: own(&channels.channel),
                message: own(&channels.message),
                ends: channels.ends.each_ref().map(own),
            },
            has_channels: marks::has_token(&own(&channels.message)),
            has_recipients: false,
            own: Own::Form(0),
        }
    }
}
