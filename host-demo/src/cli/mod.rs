//! Options that several commands share. Options of a single command are in the file of the command.

mod answers;
mod choice;
mod constraint;
mod drafts;
mod input;
pub mod llama;
mod machine;
mod more;
mod number;
pub mod pictures;
mod reuse;
mod sampling;
mod template;
mod watch;
pub mod words;

pub use answers::AnswerArgs;
pub use choice::one_of;
pub use constraint::{ConstraintArgs, Form, warn_of_differences};
pub use drafts::DraftArgs;
pub use input::{Text, TextArgs, each, each_json, each_line, is_piped, numbered_lines, read_input};
pub use machine::{Kv, ModelArgs, NoModelArgs, RunArgs, SessionArgs};
pub use number::{Ids, Limit, at_least_one, beams, context_size, finite, memory_size, threads};
pub use pictures::PictureArgs;
pub use reuse::ReuseArgs;
pub use sampling::{SamplingArgs, StepArgs};
pub use template::TemplateArgs;
pub use watch::Watcher;
