//! What commands have in common on the command line. Each command's own arguments stand in its file.

mod constraint;
mod input;
pub mod llama;
mod machine;
mod number;
mod sampling;

pub use constraint::{ConstraintArgs, token};
pub use input::{Text, TextArgs, each, each_line};
pub use machine::{Kv, ModelArgs, RunArgs, SessionArgs};
pub use number::{Ids, Limit, at_least_one, beams, context_size, memory_size, threads};
pub use sampling::{AnyRng, SamplingArgs};
