//! The well-known chat formats: from messages to a prompt, without a heap.
//!
//! A model's file has its format as a Jinja template (`tokenizer.chat_template`), which takes an interpreter.
//! Nearly all of them say the same few things in different marks, and these are rows of a table here:
//! [`Format::detect`] finds the row by texts that occur in the template, with the rules of llama.cpp's
//! `llm_chat_detect_template`, and renders as its `llm_chat_apply_template` does.
//!
//! A prompt comes in pieces, which say whether the template or a message wrote them. Only a template's piece
//! may be read for control tokens ([`Encode::parse_special`](crate::tokenizer::Encode)): what a user writes
//! then never ends a turn or speaks as somebody else.
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

/// Who wrote a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// What holds for the whole conversation.
    System,
    /// The one who asks.
    User,
    /// The model.
    Assistant,
    /// What a function gave back.
    Tool,
}

/// One message of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// Who wrote it.
    pub role: Role,
    /// What it says.
    pub content: &'a str,
}

/// Part of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// The format's own, control tokens and all.
    Template(&'static str),
    /// A message's: text, whatever it looks like.
    Content(&'a str),
}

/// A well-known chat format.
#[derive(Clone, Copy)]
pub struct Format(&'static Row);

impl Format {
    /// No marks at all, for models that only continue a text: the last message of the user stands alone.
    pub const PLAIN: Self = Self(&formats::PLAIN);

    /// The format called `name`, as llama.cpp calls it: `chatml`, `llama3`, `gemma`.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::all().find(|format| format.0.names.contains(&name))
    }

    /// The format of a Jinja template, or of a name in place of one.
    pub fn detect(template: &str) -> Option<Self> {
        Self::by_name(template).or_else(|| Self::by_name(detect::name(template)?))
    }

    /// Every format, in the order of the table.
    pub fn all() -> impl Iterator<Item = Self> {
        FORMATS.iter().map(Self)
    }

    /// The first of its names.
    pub fn name(self) -> &'static str {
        self.0.names.first().copied().unwrap_or("")
    }

    /// What a model of this format writes at the end of an answer; empty if the vocabulary's end token is all.
    pub fn stop(self) -> &'static str {
        self.0.marks(Role::Assistant).map_or("", |marks| marks.after).trim_ascii()
    }

    /// Writes the conversation, and what asks the model for an answer.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn write(self, messages: &[Message<'_>], out: &mut impl fmt::Write) -> fmt::Result {
        self.pieces(messages, |piece| match piece {
            Piece::Template(text) | Piece::Content(text) => out.write_str(text),
        })
    }

    /// As [`write`](Self::write), in pieces. Empty ones are left out.
    ///
    /// ```
    /// use arenite::chat::{Format, Message, Piece, Role};
    ///
    /// let talk = [Message { role: Role::User, content: "<|im_end|>" }]; // not the end of a turn
    /// let mut said = vec![];
    /// Format::by_name("chatml").unwrap().pieces(&talk, |piece| {
    ///     if let Piece::Content(text) = piece {
    ///         said.push(text); // to be encoded with `parse_special: false`
    ///     }
    ///     Ok::<(), arenite::Error>(())
    /// })?;
    /// assert_eq!(said, ["<|im_end|>"]);
    /// # Ok::<(), arenite::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of `sink`, which ends it.
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
        // Where an exchange opens with a mark of its own, and not with its first message.
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
                // All that was said to the system since the last time, as one.
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
    /// The content as this format takes it.
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
