//! Conversations: renders prompts with the model's own template or a well-known format, and parses answers.
//!
//! | file | |
//! |---|---|
//! | `render`, `story` | the template or format of a model |
//! | `jinja`, `source`, `visits`, `values`, `methods`, `filters`, `to_json` | Jinja as transformers runs it |
//! | `guard` | control tokens in the texts of users |
//! | `conversation` | messages in the form that a template accepts |
//! | [`dialect`] | the ways in which models write thoughts and calls |
#![deny(unsafe_code)]
#![allow(missing_docs, clippy::missing_errors_doc)]

mod conversation;
pub mod dialect;
mod filters;
mod guard;
mod jinja;
mod methods;
mod render;
mod source;
mod story;
mod to_json;
mod values;
mod visits;

pub use conversation::{Conversation, Style};
pub use dialect::{Call, Part, Reader};
pub use guard::Prompt;
pub use jinja::Compiled;
pub use render::{Arguments, Renderer, content};
