//! The model, the memory it takes and the machine that runs it.

use std::path::PathBuf;

use arenite::workers::Workers;
use clap::{Args, ValueEnum};

use super::number::{at_least_one, context_size, threads};
use crate::workers;

/// Which model.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Model")]
pub struct ModelArgs {
    /// The model: a GGUF file, or a llama2.c checkpoint with --tokenizer [default: the model built into this binary]
    #[arg(short, long, global = true, value_name = "FILE")]
    pub model: Option<PathBuf>,

    /// The vocabulary, for a model that has none or a wrong one; for a llama2.c checkpoint its tokenizer.bin
    #[arg(long, global = true, value_name = "FILE")]
    pub tokenizer: Option<PathBuf>,

    /// Show a terminal what a model or a file says as it is, control characters and all
    #[arg(long, global = true)]
    pub raw: bool,
}

/// For commands that name their files themselves: `-m` and `--tokenizer` are not in their help.
#[derive(Clone, Debug, Args)]
pub struct NoModelArgs {
    #[arg(short, long, hide = true)]
    model: Option<PathBuf>,

    #[arg(long, hide = true)]
    tokenizer: Option<PathBuf>,
}

/// How much memory a session takes and which kernels run it.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Memory and machine")]
pub struct SessionArgs {
    /// Positions in the context [default: the model's own, at most 4096]
    #[arg(short, long, value_name = "CTX", allow_negative_numbers = true, value_parser = context_size)]
    pub ctx_size: Option<usize>,

    /// Most tokens that one pass takes; a longer prompt is cut, with the same result
    #[arg(short, long, value_name = "BATCH", default_value_t = 512, allow_negative_numbers = true, value_parser = at_least_one)]
    pub batch_size: usize,

    /// Number type of the key-value cache [default: f16; f32 for a model of llama2.c]
    #[arg(long, value_enum)]
    pub kv: Option<Kv>,

    /// Instruction set of the kernels, or `auto` for the best that this machine has
    #[arg(long, value_name = "NAME", default_value = "auto")]
    pub isa: String,
}

/// Arguments of every command that runs a model.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Memory and machine")]
pub struct RunArgs {
    #[command(flatten)]
    pub session: SessionArgs,

    /// Threads [default: one for every core]
    #[arg(short, long, allow_negative_numbers = true, value_parser = threads)]
    pub threads: Option<usize>,
}

impl RunArgs {
    /// The threads that they ask for.
    pub fn workers(&self) -> Box<dyn Workers> {
        workers::start(self.threads.unwrap_or_else(workers::cores))
    }
}

/// Number type of the key-value cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Kv {
    F32,
    F16,
    #[value(name = "q8_0")]
    Q8_0,
}

impl Kv {
    /// The name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Q8_0 => "q8_0",
        }
    }
}
