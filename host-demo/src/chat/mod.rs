//! Conversations: from messages to a prompt, by the model's own template or by a well-known format.

mod guard;
mod jinja;
mod python;
mod source;

pub use guard::{ControlTokens, Prompt};
pub use jinja::{Failure, Inputs, render};
