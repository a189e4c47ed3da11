//! Conversations: from messages to a prompt, by the model's own template or by a well-known format, and the answers.

mod guard;
mod jinja;
mod lines;
mod methods;
mod python;
mod reasoning;
mod render;
mod screen;
mod source;
mod story;
mod talk;

pub use lines::{Input, Lines};
pub use reasoning::{Part, Thoughts};
pub use render::Renderer;
pub use screen::{Reasoning, Screen};
pub use talk::{Rules, Shown, Stats, Talk};
