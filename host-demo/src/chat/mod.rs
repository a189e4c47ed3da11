//! Conversations on a terminal.

mod lines;
mod screen;
mod talk;

pub use arenite_chat::{Arguments, Renderer, Style, dialect};
pub use lines::{Input, Lines};
pub use screen::{Reasoning, Screen};
pub use talk::{ChatEvent, Rules, Stats, Talk};
