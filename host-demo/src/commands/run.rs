//! `arenite run`: `chat` on a terminal, `generate` otherwise.

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

use super::{chat, generate};
use crate::cli::ModelArgs;
use crate::model_file::ModelFile;
use crate::output;

/// Talk with a model on a terminal, or continue a text otherwise
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  arenite run model.gguf                        a conversation
  arenite run model.gguf \"The sea\" | less       a text
  arenite run model.gguf \"Hello\" --temp 0       options of `chat` or of `generate` come last")]
pub struct Args {
    /// The model; the same as -m
    #[arg(value_name = "MODEL", conflicts_with = "model")]
    file: Option<PathBuf>,

    /// What to say first, or the text to continue
    prompt: Option<String>,

    /// Options of `chat` or of `generate`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTIONS")]
    options: Vec<OsString>,
}

#[derive(Parser)]
struct Chat {
    #[command(flatten)]
    args: chat::Args,
}

#[derive(Parser)]
struct Generate {
    #[command(flatten)]
    args: generate::Args,
}

pub fn run(args: &Args, model: &ModelArgs) -> Result<ExitCode> {
    let model = ModelArgs { model: args.file.clone().or(model.model.clone()), ..model.clone() };
    let prompt = args.prompt.iter().flat_map(|prompt| ["-p", prompt]).map(OsString::from);
    let options = [OsString::from("arenite run")].into_iter().chain(prompt).chain(args.options.iter().cloned());
    if io::stdin().is_terminal() && io::stdout().is_terminal() {
        match Chat::try_parse_from(options) {
            Ok(chat) => chat::run(&chat.args, &ModelFile::open(&model)?),
            Err(told) => Ok(output::usage_error(&told)),
        }
    } else {
        match Generate::try_parse_from(options) {
            Ok(generate) => generate::run(&generate.args, &ModelFile::open(&model)?),
            Err(told) => Ok(output::usage_error(&told)),
        }
    }
}
