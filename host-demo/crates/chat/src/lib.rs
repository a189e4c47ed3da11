//! Conversations: renders prompts with the model's own template or a well-known format, and parses answers.
//!
//! | file | |
//! |---|---|
//! | `render`, `story` | the template or format of a model |
//! | `jinja`, `source`, `words`, `visits`, `values`, `methods`, `filters`, `to_json` | Jinja as transformers runs it |
//! | `guard` | control tokens in the texts of users |
//! | `conversation`, `rewrites` | messages in the form that a template accepts |
//! | `thoughts` | how much a model thinks: switches and efforts of templates |
//! | [`dialect`] | the ways in which models write thoughts and calls |
//!
//! ```
//! use std::sync::Arc;
//!
//! use arenite_chat::dialect::{Dialect, Marks, Tools};
//! use arenite_chat::{Part, Reader};
//!
//! let dialect = Dialect::all(&Marks::default()); // of a vocabulary without mark tokens
//! let mut reader = Reader::new(Arc::new(dialect), Arc::new(Tools::default()), "<think>\n");
//! let mut parts = Vec::new();
//! reader.push("Two and two.\n</think>\n\nFour.", &mut parts); // text of an answer, in pieces of any size
//! reader.finish(&mut parts, false);
//! assert!(parts.contains(&Part::Content("Four.".into())) && matches!(parts[0], Part::Thought(_)));
//! ```
#![deny(unsafe_code)]
#![allow(missing_docs, clippy::missing_errors_doc)]

mod conversation;
pub mod dialect;
mod filters;
mod guard;
mod jinja;
mod methods;
mod render;
mod rewrites;
mod source;
mod story;
mod thoughts;
mod to_json;
mod values;
mod visits;
mod words;

pub use conversation::Style;
pub use dialect::{Call, Part, Reader};
pub use guard::Prompt;
pub use jinja::Compiled;
pub use render::{Arguments, Ending, Renderer, content};
pub use rewrites::Conversation;
