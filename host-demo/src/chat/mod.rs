//! Conversations on a terminal.

mod dropped;
mod lines;
mod screen;
mod sources;
mod talk;

pub use arenite_chat::{Arguments, Renderer, Style, dialect};
pub use dropped::dropped;
pub use lines::{Input, Lines};
pub use screen::{Reasoning, Screen};
pub use sources::Sources;
pub use talk::{ChatEvent, Rules, Stats, Talk};
