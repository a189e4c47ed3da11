//! Chat formats: render messages to a prompt, without a heap.
//!
//! A model's file contains its format as a Jinja template (`tokenizer.chat_template`), which needs an interpreter.
//! Nearly all templates follow one pattern and differ only in their marks, the texts before and after a message. Each
//! such template is a row of a table here. [`Format::detect`] finds the row by texts in the template, using the rules
//! of llama.cpp's `llm_chat_detect_template`; rendering matches its `llm_chat_apply_template`.
//!
//! A prompt is produced in pieces from the template or from messages. Only pieces from the template may be parsed for
//! control tokens ([`Encode::parse_special`](crate::tokenizer::Encode)), so a user's text can never end a turn or
//! imitate another role.
//!
//! # Examples
//!
//! ```
//! use arenite::chat::{Format, Message, Role};
//!
//! let talk = [Message { role: Role::User, content: "Hello" }];
//! let mut prompt = String::new();
//! Format::by_name("chatml").unwrap().write(&talk, &mut prompt)?;
//! assert_eq!(prompt, "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n");
//! # Ok::<(), core::fmt::Error>(())
//! ```

mod detect;
mod formats;

use core::fmt;

use formats::{FORMATS, Row, Systems, Trim};

/// Author of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Instructions for the whole conversation.
    System,
    /// The user.
    User,
    /// The model.
    Assistant,
    /// Result of a function call.
    Tool,
}

/// A message of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// Author.
    pub role: Role,
    /// Text.
    pub content: &'a str,
}

/// A piece of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// From the format, including control tokens.
    Template(&'static str),
    /// Text from a message. It is plain text, even if it looks like a control token.
    Content(&'a str),
}

/// A chat format.
#[derive(Clone, Copy)]
pub struct Format(&'static Row);

impl Format {
    /// A format without marks, for models that only continue text. Writes only the last user message and the messages
    /// after it.
    pub const PLAIN: Self = Self(&formats::PLAIN);

    /// Finds a format by the name that llama.cpp uses: `chatml`, `llama3`, `gemma`.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::all().find(|format| format.0.names.contains(&name))
    }

    /// Detects the format of a Jinja template; a format's name is also accepted.
    pub fn detect(template: &str) -> Option<Self> {
        Self::by_name(template).or_else(|| Self::by_name(detect::name(template)?))
    }

    /// All formats, in the order of the table.
    pub fn all() -> impl Iterator<Item = Self> {
        FORMATS.iter().map(Self)
    }

    /// First name of the format.
    pub fn name(self) -> &'static str {
        self.0.names.first().copied().unwrap_or("")
    }

    /// Text that models write at the end of an answer; empty if models only generate the end token there.
    pub fn stop(self) -> &'static str {
        self.0.marks(Role::Assistant).map_or("", |marks| marks.after).trim_ascii()
    }

    /// Writes the conversation and the request for an answer.
    ///
    /// # Errors
    ///
    /// Errors of `out`.
    pub fn write(self, messages: &[Message<'_>], out: &mut impl fmt::Write) -> fmt::Result {
        self.pieces(messages, |piece| match piece {
            Piece::Template(text) | Piece::Content(text) => out.write_str(text),
        })
    }

    /// Like [`write`](Self::write), but passes the prompt to `sink` piece by piece. Empty pieces are omitted.
    ///
    /// ```
    /// use arenite::chat::{Format, Message, Piece, Role};
    ///
    /// let talk = [Message { role: Role::User, content: "<|im_end|>" }]; // not the end of a turn
    /// let mut said = vec![];
    /// Format::by_name("chatml").unwrap().pieces(&talk, |piece| {
    ///     if let Piece::Content(text) = piece {
    ///         said.push(text); // encode with `parse_special: false`
    ///     }
    ///     Ok::<(), arenite::Error>(())
    /// })?;
    /// assert_eq!(said, ["<|im_end|>"]);
    /// # Ok::<(), arenite::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Errors of `sink`; the first error stops rendering.
    pub fn pieces<'a, E>(
        self,
        messages: &[Message<'a>],
        mut sink: impl FnMut(Piece<'a>) -> Result<(), E>,
    ) -> Result<(), E> {
        let row = self.0;
        let mut sink = |piece| match piece {
            Piece::Template("") | Piece::Content("") => Ok(()),
            piece => sink(piece),
        };
        let messages = match messages.iter().rposition(|message| message.role == Role::User) {
            Some(last) if row.alone => messages.get(last..).unwrap_or(messages),
            _ => messages,
        };
        sink(Piece::Template(row.start))?;
        // True if the current exchange has been opened.
        let mut is_open = !row.start.is_empty();
        let mut merged = 0;
        for (at, message) in messages.iter().enumerate() {
            let is_system = message.role == Role::System;
            let text = row.trim.of(message);
            if is_system && (row.systems == Systems::First && at > 0 || row.systems == Systems::Merged) {
                continue;
            }
            let Some(marks) = row.marks(message.role) else { continue };
            if !is_open {
                sink(Piece::Template(row.open))?;
                is_open = true;
            }
            if at > 0 {
                sink(Piece::Template(row.between))?;
            }
            sink(Piece::Template(marks.before))?;
            if row.systems == Systems::Merged && message.role != Role::Assistant {
                // All system messages since the previous user or tool message are merged and written before this
                // message.
                let before = messages.get(merged..at).unwrap_or(&[]);
                merged = at;
                let mut any = false;
                for system in before.iter().filter(|message| message.role == Role::System) {
                    sink(Piece::Content(row.trim.of(system)))?;
                    any |= !row.trim.of(system).is_empty();
                }
                if any {
                    sink(Piece::Template("\n\n"))?;
                }
            }
            sink(Piece::Content(text))?;
            sink(Piece::Template(marks.after))?;
            is_open &= message.role != Role::Assistant;
        }
        sink(Piece::Template(row.ask))
    }
}

impl Trim {
    /// Returns the content of a message, trimmed if the format trims messages of this role.
    fn of<'a>(self, message: &Message<'a>) -> &'a str {
        let is_cut = match self {
            Self::None => false,
            Self::Assistant => message.role == Role::Assistant,
            Self::Others => message.role != Role::Assistant,
            Self::All => true,
        };
        if is_cut { message.content.trim_ascii() } else { message.content }
    }
}

impl fmt::Debug for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Format").field(&self.name()).finish()
    }
}

impl PartialEq for Format {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Format {}
