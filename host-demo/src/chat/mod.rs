//! Conversations: renders prompts with the model's own template or a well-known format, and parses answers.

mod conversation;
pub mod dialect;
mod filters;
mod guard;
mod jinja;
mod lines;
mod methods;
mod render;
mod screen;
mod source;
mod story;
mod talk;
mod to_json;
mod values;
mod visits;
mod wrap;

pub use conversation::Style;
pub use dialect::{Call, Part, Reader};
pub use guard::Prompt;
pub use lines::{Input, Lines};
pub use render::{Arguments, Renderer};
pub use screen::{Reasoning, Screen};
pub use talk::{ChatEvent, Rules, Stats, Talk};
