//! The arguments that commands share. Each command's own arguments stand in its file.

use std::path::PathBuf;
use std::str::FromStr;

use arenite::TokenId;
use clap::builder::RangedU64ValueParser;
use clap::{Args, Parser, ValueEnum};

use crate::commands::Command;

/// Runs transformer language models from GGUF files.
///
/// Without a command it tells a story with the model that is built into the binary.
#[derive(Debug, Parser)]
#[command(name = "arenite", version, propagate_version = true, max_term_width = 100)]
#[command(after_help = "Examples:
  arenite                                              a story from the built-in model
  arenite generate -m model.gguf -p \"The sea\" -n 100   continue a text
  arenite plan -m model.gguf                           the memory it needs, and which boards have it

`arenite COMMAND --help` shows the options of a command.
Exit codes: 0 done, 1 error, 2 wrong usage, 130 stopped with Ctrl-C.")]
pub struct Cli {
    /// The model, a GGUF file [default: the model built into this binary]
    #[arg(short, long, global = true, value_name = "FILE")]
    pub model: Option<PathBuf>,

    #[command(subcommand)]
    pub command: Option<Command>,
}

/// How much memory a session takes and which kernels run it.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Memory and machine")]
pub struct SessionArgs {
    /// Positions in the context [default: the model's own, at most 4096]
    #[arg(short, long, value_name = "CTX", value_parser = at_least_one())]
    pub ctx_size: Option<usize>,

    /// Most tokens that one pass takes; a longer prompt is cut, with the same result
    #[arg(short, long, value_name = "BATCH", default_value_t = 512, value_parser = at_least_one())]
    pub batch_size: usize,

    /// Number type of the key-value cache
    #[arg(long, value_enum, default_value_t = Kv::F16)]
    pub kv: Kv,

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
    #[arg(short, long, value_parser = at_least_one())]
    pub threads: Option<usize>,
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

/// Token ids as people paste them: `1,2,3`, `1 2 3` or `[1, 2, 3]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ids(pub Vec<TokenId>);

impl FromStr for Ids {
    type Err = String;

    fn from_str(list: &str) -> Result<Self, String> {
        let list = list.trim();
        let list = list.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(list);
        list.split(|c: char| c == ',' || c.is_whitespace())
            .filter(|id| !id.is_empty())
            .map(|id| id.parse().map_err(|_| format!("`{id}` is not a token id: give numbers such as 1,2,3")))
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

/// A number that must not be zero.
pub fn at_least_one() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn ids_are_read_in_every_usual_form() {
        for list in ["1,2,3", "1 2 3", "[1, 2, 3]", " 1,2,\n3, "] {
            assert_eq!(list.parse(), Ok(Ids(vec![1, 2, 3])), "{list:?}");
        }
        assert_eq!("[]".parse(), Ok(Ids(vec![])));
        for list in ["1,x", "-1", "4294967296", "[1,2"] {
            assert!(list.parse::<Ids>().is_err(), "{list:?}");
        }
    }
}
