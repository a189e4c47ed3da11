//! Dialects: how a model writes its thoughts and its calls of functions, as data, and how answers are read.
//!
//! ```text
//! table     every known form       marks     marks that are tokens of a vocabulary
//! reader    an answer, streamed    channels  messages in channels (harmony)
//! syntax    one call or several    literal   values of Python's and Gemma's kind
//! tools     declared functions     probe     which forms a template writes
//! form      calls as a grammar         gate      the mark after which a grammar holds
//! ```

mod channels;
mod form;
mod gate;
mod literal;
mod marks;
mod probe;
mod reader;
mod syntax;
mod table;
#[cfg(test)]
mod tests;
mod tools;

pub use form::{Constraint, after, write};
pub use gate::{Gate, GateSettings};
pub use marks::{Marks, plain, shown, unwrapped};
pub use probe::{Probe, Template, look};
pub use reader::{Part, Reader};
pub use tools::{Call, Tools};

/// One way to write calls of functions.
#[derive(Clone, Debug)]
pub struct CallForm<S> {
    /// Who writes it, for people.
    pub family: &'static str,
    /// The mark before the calls; empty where the first of the syntax's own marks begins them.
    pub open: S,
    /// The mark after the calls; empty where they end with the answer.
    pub close: S,
    pub syntax: Syntax<S>,
}

/// The notation of a call between the marks.
#[derive(Clone, Debug)]
pub enum Syntax<S> {
    /// `{"name": ..., "arguments": ...}`, or a list of these; with empty keys `{NAME: ARGUMENTS}`.
    Json { name: &'static str, arguments: &'static str, is_list: bool },
    /// `BEFORE NAME BETWEEN {...} AFTER`. From `lead` to `before`, and from `id` to `between`, is an identifier.
    Named { lead: S, before: S, id: S, between: S, after: S },
    /// Elements: a call with a parameter in each. `pad` stands around values.
    Tagged { call: Tag<S>, parameter: Tag<S>, pad: &'static str },
    /// A name, then pairs of a key and a value.
    Keyed { key: (S, S), value: (S, S) },
    /// `[name(key=value), ...]`, also without brackets.
    Python,
    /// `call:NAME{key:value}` with `quote` around texts.
    Braces { quote: S },
}

/// The marks of an element with a name: `OPEN NAME HEAD ... CLOSE`.
#[derive(Clone, Debug)]
pub struct Tag<S> {
    pub open: S,
    pub head: S,
    pub close: S,
}

/// One way to write a thought.
#[derive(Clone, Debug)]
pub struct ThoughtForm<S> {
    pub open: S,
    pub close: S,
    /// The mark at the end of the content that follows; may be empty.
    pub end: S,
}

/// The marks of messages in channels, as gpt-oss writes them.
#[derive(Clone, Debug)]
pub struct Channels<S> {
    pub start: S,
    pub channel: S,
    pub message: S,
    pub ends: [S; 3],
}

/// The forms that a model may use, with its own tokens as marks.
#[derive(Clone, Debug)]
pub struct Dialect {
    pub thoughts: Vec<ThoughtForm<String>>,
    pub calls: Vec<CallForm<String>>,
    pub wrappers: Vec<(String, String)>,
    pub channels: Channels<String>,
    /// The form for answers that must be calls.
    pub own: Own,
}

/// How a model writes the calls that it is made to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Own {
    /// A form, by its number.
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
            Syntax::Keyed { key, value } => {
                Syntax::Keyed { key: (to(&key.0), to(&key.1)), value: (to(&value.0), to(&value.1)) }
            }
            Syntax::Python => Syntax::Python,
            Syntax::Braces { quote } => Syntax::Braces { quote: to(quote) },
        };
        CallForm { family: self.family, open: to(&self.open), close: to(&self.close), syntax }
    }
}

impl CallForm<String> {
    /// The text that calls in this form begin with; empty where they have no mark.
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
    /// Every known form, with the marks that are tokens of a vocabulary.
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
            own: Own::Form(0),
        }
    }
}
